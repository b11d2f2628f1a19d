"""Exact log-determinants: every backend against high precision, closed forms and each other."""

import functools
import math

import naive
import numpy as np
import pytest
from posing import opened_graph, pairs_of

import mksknn
from mksknn._cholmod import cholmod
from mksknn._dense import Cholesky

GRAPHS = ("mutual", "symmetric")
BACKENDS = (
    "lapack",
    pytest.param(
        "cholmod",
        marks=pytest.mark.skipif(cholmod() is None, reason="scikit-sparse is missing"),
    ),
    "superlu",
)
RATIOS = (1e-6, 1e-4, 0.01, 1.0, 37.0, 1e4, 1e6)


def _points():
    rng = np.random.default_rng(7)
    lattice = np.array([(a, b) for a in range(6) for b in range(5)], dtype=float)
    return {
        "normal": rng.normal(size=(30, 2)),
        "clusters": rng.normal(size=(30, 2)) + 1e3 * np.repeat(np.arange(3), 10)[:, None],
        "outliers": np.concatenate(
            [rng.normal(size=(25, 2)), 10.0 ** np.arange(2, 7)[:, None] * [1, 1]]
        ),
        "lattice": lattice,
        "duplicates": np.repeat(rng.normal(size=(6, 2)), 5, axis=0),
        "line": np.arange(30.0)[:, None],
        "two": np.array([[0.0], [1.0]]),
        "three": np.array([[0.0], [1.0], [5.0]]),
    }


POINTS = _points()


@functools.cache
def exact(name, graph, k, ratio):
    """log|L_k + r I| at 50 digits."""
    L = naive.laplacian(naive.weights(POINTS[name], k, graph))
    return float(naive.logdet_mpmath(L, ratio))


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", POINTS)
def test_against_fifty_digits(name, graph, backend):
    pairs = pairs_of(POINTS[name], graph)
    for k in sorted({1, 3, pairs.n - 1} & set(range(1, pairs.n))):
        single, many = (opened_graph(pairs, k, backend, many=flag) for flag in (False, True))
        assert single.backend == many.backend == backend
        for ratio in (1e-6, 0.3, 1e6):
            expected = exact(name, graph, k, ratio)
            assert single.logdet(ratio) == pytest.approx(expected, rel=1e-12, abs=1e-11)
            assert many.logdet(ratio) == pytest.approx(expected, rel=1e-12, abs=1e-11)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kind", ["normal", "clusters", "chain", "pima"])
def test_backends_agree(kind, graph):
    rng = np.random.default_rng(8)
    X = {
        "normal": rng.normal(size=(150, 3)),
        "clusters": rng.normal(size=(150, 2)) + 100.0 * rng.integers(0, 12, (150, 1)),
        "chain": np.cumsum(rng.exponential(size=(150, 1)), axis=0),
        "pima": mksknn.datasets.load_pima().X,
    }[kind]
    pairs = pairs_of(X, graph)
    names = ["lapack", "superlu"] + ["cholmod"] * (cholmod() is not None)
    for k in (1, 2, 5, 20, len(X) - 1):
        opened = [
            opened_graph(pairs, k, name, many=many) for name in names for many in (False, True)
        ]
        for ratio in RATIOS:
            values = np.array([one.logdet(ratio) for one in opened])
            np.testing.assert_allclose(values, values[0], rtol=1e-9, atol=1e-9)
        if k <= 20:
            ratio = 0.2
            traces = np.array([one.trace_inverse(ratio) for one in opened])
            np.testing.assert_allclose(traces, traces[0], rtol=1e-9)


@pytest.mark.uncompiled
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_trace_is_that_of_the_inverse(graph, backend):
    for name in ("clusters", "outliers", "two"):
        X = POINTS[name][:12]
        pairs = pairs_of(X, graph)
        for k in (1, len(X) - 1):
            spectrum = naive.spectrum(naive.weights(X, k, graph))
            for many in (False, True):
                opened = opened_graph(pairs, k, backend, many=many)
                for ratio in (1e-6, 0.1, 1e6):
                    expected = (1.0 / (spectrum + ratio)).sum()
                    assert opened.trace_inverse(ratio) == pytest.approx(expected, rel=1e-10)


@pytest.mark.uncompiled
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("n", [2, 3, 7])
def test_complete_graph(n, graph, backend):
    """Every eigenvalue but one zero is n times the weight of an edge."""
    weight = 1 if graph == "mutual" else 2
    pairs = pairs_of(np.arange(float(n))[:, None] ** 2, graph)
    for ratio in (1e-6, 1.0, 1e6):
        expected = math.log(ratio) + (n - 1) * math.log(weight * n + ratio)
        for many in (False, True):
            opened = opened_graph(pairs, n - 1, backend, many=many)
            assert opened.logdet(ratio) == pytest.approx(expected, rel=1e-13, abs=1e-12)


@pytest.mark.uncompiled
@pytest.mark.parametrize("backend", BACKENDS)
def test_path(backend):
    """Equally spaced points, each linked to the one before and after it."""
    n = 50
    pairs = pairs_of(np.arange(float(n))[:, None], "mutual")
    spectrum = 2.0 - 2.0 * np.cos(np.pi * np.arange(n) / n)
    opened = opened_graph(pairs, 2, backend)
    for ratio in RATIOS:
        expected = np.log(spectrum + ratio).sum()
        assert opened.logdet(ratio) == pytest.approx(expected, rel=1e-12, abs=1e-11)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_never_decreases_in_k(graph, backend):
    for name in ("normal", "clusters", "lattice", "duplicates"):
        pairs = pairs_of(POINTS[name], graph)
        opened = [opened_graph(pairs, k, backend) for k in range(1, pairs.n)]
        for ratio in (1e-6, 1.0, 1e6):
            steps = np.diff([one.logdet(ratio) for one in opened])
            assert (steps >= -1e-10).all()


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", GRAPHS)
def test_the_peak_of_a_reduced_graph(graph):
    """Where the slope from the eigenvalues vanishes, or at an end."""
    X = POINTS["clusters"][::3]
    spectrum = naive.spectrum(naive.weights(X, 3, graph))
    opened = opened_graph(pairs_of(X, graph), 3, "lapack")
    for share in (1e-4, 0.01, 0.3, 0.8, 0.99):
        roughness = share * spectrum.mean()
        for bounds in ((1e-6, 1e6), (1e-3, 2e-3), (50.0, 60.0)):
            ratio = opened.peak(1.0, roughness, bounds)
            graph_part = (spectrum / (spectrum + ratio)).sum()
            slope = len(X) * roughness / (roughness + ratio) - graph_part
            assert bounds[0] <= ratio <= bounds[1]
            if ratio in bounds:
                assert (slope <= 0.0) == (ratio == bounds[0])
            else:
                assert abs(slope) < 1e-9


def test_many_ratios_at_once():
    pairs = pairs_of(POINTS["clusters"], "symmetric")
    ratios = np.array(RATIOS)
    for backend in ("lapack", "superlu"):
        for many in (False, True):
            opened = opened_graph(pairs, 4, backend, many=many)
            expected = [opened.logdet(ratio) for ratio in RATIOS]
            np.testing.assert_array_equal(opened.logdets(ratios), expected)


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("ratio", [1e-6, 0.5, 1e6])
def test_an_anchor_knows_the_resistances_of_every_graph(graph, ratio):
    """log|A|, tr A^-1 and rho_k from the inverse by eigenvectors; several components among them."""
    for name in ("normal", "clusters", "outliers", "duplicates"):
        X = POINTS[name]
        pairs = pairs_of(X, graph)
        graphs = [naive.weights(X, k, graph) for k in range(1, len(X))]
        for k in (1, 3, len(X) - 1):
            W = graphs[k - 1]
            lam, vectors = np.linalg.eigh(naive.laplacian(W))
            lam[: naive.n_components(W)] = 0.0
            # differences of entries, by eigenvectors: null vectors are constant in a component
            label = np.unique(vectors[:, lam == 0.0].round(6), axis=0, return_inverse=True)[1]
            gaps = vectors[:, None, :] - vectors[None, :, :]
            same = label.ravel()[:, None] == label.ravel()
            gaps[same] *= lam > 0.0
            resistance = (gaps**2 / (lam + ratio)).sum(axis=2)
            found = Cholesky(pairs, k).resistance_sums(ratio)
            assert found.logdet == pytest.approx(np.log(lam + ratio).sum(), rel=1e-11)
            assert found.trace == pytest.approx((1.0 / (lam + ratio)).sum(), rel=1e-11)
            assert found.sums[0] == 0.0
            expected = [0.5 * (one * resistance).sum() for one in graphs]
            np.testing.assert_allclose(found.sums[1:], expected, rtol=1e-8)


def test_what_a_backend_cannot_do_it_says():
    pairs = pairs_of(POINTS["normal"], "mutual")
    slow = opened_graph(pairs, 4, "superlu")
    assert not slow.free_ratios
    assert slow.peak(1.0, 1.0, (1e-6, 1e6)) is None
    assert slow.resistance_sums(1.0) is None
    fast = opened_graph(pairs, 4, "lapack")
    assert fast.free_ratios
    single = opened_graph(pairs, 4, "lapack", many=False)
    assert not single.free_ratios and single.resistance_sums(1.0) is not None


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", GRAPHS)
def test_what_is_known_of_a_spectrum(graph):
    for name in POINTS:
        X = POINTS[name]
        pairs = pairs_of(X, graph)
        for k in sorted({1, 2, len(X) - 1} & set(range(1, len(X)))):
            W = naive.weights(X, k, graph)
            lam, known = naive.spectrum(W), opened_graph(pairs, k, "superlu").spectrum
            assert (known.n, known.nulls) == (len(X), naive.n_components(W))
            assert known.mean == pytest.approx(lam.mean(), rel=1e-12, abs=1e-12)
            assert known.top >= lam.max() * (1 - 1e-12)
