"""Exact log-determinants: every backend against high precision, closed forms and each other."""

import functools
import math
import types

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csc_matrix, tril

import mksknn
from mksknn import _logdet, _validation
from mksknn._graphs import pairs_by_rank
from mksknn._logdet import Cholmod, Dense, Opener, SuperLU, fill_and_flops, open_graph
from mksknn._neighbors import rank

GRAPHS = ("mutual", "symmetric")
BACKENDS = (
    "lapack",
    pytest.param(
        "cholmod",
        marks=pytest.mark.skipif(_logdet.cholmod() is None, reason="scikit-sparse is missing"),
    ),
    "superlu",
)
RATIOS = (1e-6, 1e-4, 0.01, 1.0, 37.0, 1e4, 1e6)
REAL = pytest.mark.skipif(_logdet.cholmod() is None, reason="scikit-sparse is missing")


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


def pairs_of(X, graph, k_max=None):
    return pairs_by_rank(rank(X, len(X) - 1 if k_max is None else k_max, "euclidean"), graph)


def some_ks(n):
    return sorted({1, 2, 3, n // 4, n // 2, n - 1} & set(range(1, n)))


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
        single, many = (open_graph(pairs, k, flag, backend) for flag in (False, True))
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
    names = ["lapack", "superlu"] + ["cholmod"] * (_logdet.cholmod() is not None)
    for k in (1, 2, 5, 20, len(X) - 1):
        opened = [open_graph(pairs, k, many, name) for name in names for many in (False, True)]
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
                opened = open_graph(pairs, k, many, backend)
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
            opened = open_graph(pairs, n - 1, many, backend)
            assert opened.logdet(ratio) == pytest.approx(expected, rel=1e-13, abs=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_path(backend):
    """Equally spaced points, each linked to the one before and after it."""
    n = 50
    pairs = pairs_of(np.arange(float(n))[:, None], "mutual")
    spectrum = 2.0 - 2.0 * np.cos(np.pi * np.arange(n) / n)
    opened = open_graph(pairs, 2, True, backend)
    for ratio in RATIOS:
        expected = np.log(spectrum + ratio).sum()
        assert opened.logdet(ratio) == pytest.approx(expected, rel=1e-12, abs=1e-11)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_never_decreases_in_k(graph, backend):
    for name in ("normal", "clusters", "lattice", "duplicates"):
        pairs = pairs_of(POINTS[name], graph)
        opened = [open_graph(pairs, k, True, backend) for k in range(1, pairs.n)]
        for ratio in (1e-6, 1.0, 1e6):
            steps = np.diff([one.logdet(ratio) for one in opened])
            assert (steps >= -1e-10).all()


@pytest.mark.parametrize("graph", GRAPHS)
def test_shared_ordering_changes_nothing(graph):
    """Neighbouring k on one ordering, the largest first."""
    X = np.random.default_rng(9).normal(size=(120, 2))
    pairs = pairs_of(X, graph)
    for backend in ("lapack", "superlu", _logdet.sparse_backend()):
        opener = Opener(pairs, True, backend)
        for k in (9, 7, 6, 5, 3, 2):
            opened, reopen = opener.open(k)
            expected = Dense(pairs, k, many=False).logdet(0.1)
            assert opened.logdet(0.1) == pytest.approx(expected, rel=1e-11)
            assert reopen().logdet(0.1) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("ratio", [1e-6, 0.5, 1e6])
def test_anchor_is_the_inverse(graph, ratio):
    """Lifted null vectors and the gaps between components make up the inverse itself."""
    for name in ("normal", "clusters", "outliers", "duplicates"):
        X = POINTS[name]
        pairs = pairs_of(X, graph)
        for k in (1, 3, len(X) - 1):
            W = naive.weights(X, k, graph)
            lam, vectors = np.linalg.eigh(naive.laplacian(W))
            lam[: naive.n_components(W)] = 0.0
            inverse = (vectors / (lam + ratio)) @ vectors.T
            anchor = Dense(pairs, k, many=False).anchor(ratio)
            assert anchor.logdet == pytest.approx(np.log(lam + ratio).sum(), rel=1e-11)
            assert anchor.trace == pytest.approx(np.trace(inverse), rel=1e-11)
            lower = np.tril(anchor.inverse)
            same = anchor.label[:, None] == anchor.label
            full = lower + np.tril(lower, -1).T + same * anchor.gap[anchor.label]
            np.testing.assert_allclose(full, inverse, rtol=1e-8, atol=1e-9 / ratio)


# ---------------------------------------------------------------- fill


def eliminate(pattern):
    """Column counts of the factor, by eliminating one vertex after another."""
    filled = pattern.copy()
    for p in range(len(filled)):
        below = np.flatnonzero(filled[p + 1 :, p]) + p + 1
        filled[np.ix_(below, below)] = True
    return np.tril(filled).sum(axis=0)


@given(st.integers(0, 2**32 - 1), st.integers(1, 25), st.floats(0, 0.5))
def test_fill_of_random_graphs(seed, n, density):
    rng = np.random.default_rng(seed)
    pattern = rng.random((n, n)) < density
    pattern = pattern | pattern.T | np.eye(n, dtype=bool)
    permutation = rng.permutation(n)
    counts = eliminate(pattern[np.ix_(permutation, permutation)])
    fill, flops = fill_and_flops(csc_matrix(np.tril(pattern).astype(float)), permutation)
    assert fill == counts.sum()
    assert flops == (counts.astype(float) ** 2).sum()


@REAL
@pytest.mark.parametrize("graph", GRAPHS)
def test_fill_of_cholmod(graph):
    module = _logdet.cholmod()
    if not hasattr(module, "analyze"):
        pytest.skip("needs scikit-sparse 0.4 to ask for a simplicial factor")
    pairs = pairs_of(np.random.default_rng(10).normal(size=(200, 2)), graph, 12)
    for k in (2, 12):
        opened = Cholmod(pairs, k)
        matrix = opened._matrix
        factor = module.analyze(matrix, mode="simplicial", ordering_method="amd")
        factor.cholesky_inplace(matrix, beta=1.0)
        assert fill_and_flops(matrix, factor.P())[0] == factor.L().nnz


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_what_does_not_fit_is_refused(backend, monkeypatch):
    X = np.random.default_rng(11).normal(size=(60, 2))
    monkeypatch.setattr(_validation, "free_memory", lambda: 1e3)
    with pytest.raises(ValueError, match=r"would take 0\.0 GB, and 0\.0 GB of memory is free"):
        open_graph(pairs_of(X, "symmetric"), 20, False, backend).logdet(1.0)


def test_dense_is_not_chosen_where_it_does_not_fit(monkeypatch):
    pairs = pairs_of(np.random.default_rng(12).normal(size=(500, 2)), "symmetric", 60)
    monkeypatch.setattr(_logdet, "_DENSE_SIZE", 100)
    assert _logdet.surely_dense(pairs, 60)
    monkeypatch.setattr(_logdet, "free_memory", lambda: 1e6)
    assert not _logdet.surely_dense(pairs, 60)
    assert open_graph(pairs, 60, False).backend == _logdet.sparse_backend()


# ---------------------------------------------------------------- which backend


def test_choice_of_a_backend():
    rng = np.random.default_rng(13)
    small = pairs_of(rng.normal(size=(60, 2)), "symmetric")
    assert open_graph(small, 3, True).backend == "lapack"
    chain = pairs_of(np.cumsum(rng.exponential(size=(900, 1)), axis=0), "mutual", 400)
    assert open_graph(chain, 2, True).backend == _logdet.sparse_backend()
    assert open_graph(chain, 400, True).backend == "lapack"


@REAL
def test_fill_decides(monkeypatch):
    pairs = pairs_of(np.random.default_rng(14).normal(size=(700, 2)), "symmetric", 8)
    assert open_graph(pairs, 8, True).backend == "cholmod"
    monkeypatch.setattr(_logdet, "_SPARSE_PRICE", 1e9)
    assert open_graph(pairs, 8, True).backend == "lapack"


# ---------------------------------------------------------------- scikit-sparse, both APIs


class FakeFactor:
    """What both fakes share: a dense Cholesky factor in an ordering of its own."""

    analyses = 0

    def _start(self, A, order):
        assert isinstance(A, csc_matrix) and A.dtype == np.float64
        assert order in ("amd", "metis", "natural")
        type(self).analyses += 1
        n = A.shape[0]
        # any ordering will do; this one makes a forgotten permutation show
        self._permutation = np.arange(n) if order == "natural" else np.arange(n)[::-1].copy()
        self._lower = None

    def _factorize(self, A, beta):
        half = np.tril(A.toarray())  # what is above the diagonal is not read
        full = half + np.tril(half, -1).T + beta * np.eye(len(half))
        self._lower = np.linalg.cholesky(full[np.ix_(self._permutation, self._permutation)])

    def _logdet(self):
        return 2.0 * np.log(np.diagonal(self._lower)).sum()

    def _solve(self, b):
        out = np.empty_like(b)
        L = self._lower
        out[self._permutation] = np.linalg.solve(L @ L.T, b[self._permutation])
        return out

    def _sparse_lower(self):
        """The factor with every place below the diagonal, zero or not."""
        places = csc_matrix(np.tril(np.ones_like(self._lower)))
        places.data = self._lower.T[np.triu_indices(len(self._lower))].copy()
        return places


class NewFactor(FakeFactor):
    """As in scikit-sparse 0.5."""

    def __init__(self, A, *, lower, order):
        assert lower is True
        self._start(A, order)

    def factorize(self, A, *, beta=0.0):
        self._factorize(A, beta)

    def logdet(self):
        return self._logdet()

    def solve(self, b):
        return self._solve(b)

    def get_perm(self):
        return self._permutation

    @property
    def factor(self):
        return self._sparse_lower()


class OldFactor(FakeFactor):
    """As in scikit-sparse 0.4."""

    def cholesky_inplace(self, A, beta=0):
        self._factorize(A, beta)

    def logdet(self):
        return self._logdet()

    def solve_A(self, b):
        return self._solve(b)

    def P(self):
        return self._permutation

    def L(self):
        return self._sparse_lower()


def old_analyze(A, mode="auto", ordering_method="default"):
    factor = OldFactor()
    factor._start(A, ordering_method)
    return factor


FAKES = {
    "0.5": (types.SimpleNamespace(CholeskyFactor=NewFactor), NewFactor),
    "0.4": (types.SimpleNamespace(analyze=old_analyze), OldFactor),
}


@pytest.fixture(params=FAKES)
def fake(request, monkeypatch):
    """CHOLMOD by one of the two APIs, without scikit-sparse; counts the analyses."""
    module, factor = FAKES[request.param]
    monkeypatch.setattr(_logdet, "cholmod", lambda: module)
    monkeypatch.setattr(factor, "analyses", 0)
    return factor


@pytest.mark.parametrize("graph", GRAPHS)
def test_adapter_to_either_api(graph, fake):
    for name in ("normal", "clusters", "outliers", "two"):
        pairs = pairs_of(POINTS[name], graph)
        for k in some_ks(pairs.n):
            dense, sparse = Dense(pairs, k, many=True), Cholmod(pairs, k)
            for ratio in (1e-6, 0.3, 1e6):
                expected = dense.logdet(ratio)
                assert sparse.logdet(ratio) == pytest.approx(expected, rel=1e-10, abs=1e-10)
                trace = dense.trace_inverse(ratio)
                assert sparse.trace_inverse(ratio) == pytest.approx(trace, rel=1e-9)


@pytest.mark.parametrize("ks", [[2, 3, 4, 5, 7, 10, 11], [2, 3, 4, 7, 11, 12, 20]])
def test_one_analysis_serves_every_ratio(ks, fake):
    X = POINTS["normal"]
    y = (X[:, 0] > 0).astype(int)
    curve = mksknn.evidence_curve(X, y, backend="cholmod", ks=ks)
    assert fake.analyses == len(ks)
    dense = mksknn.evidence_curve(X, y, backend="lapack", ks=ks)
    np.testing.assert_allclose(curve.log_evidence, dense.log_evidence, rtol=0, atol=1e-8)


@REAL
@pytest.mark.parametrize("ratio", [1e-6, 1.0, 1e6])
def test_the_real_one_through_the_same_adapter(ratio):
    pairs = pairs_of(np.random.default_rng(15).normal(size=(300, 2)), "symmetric", 10)
    expected = Dense(pairs, 10, many=False).logdet(ratio)
    assert Cholmod(pairs, 10).logdet(ratio) == pytest.approx(expected, rel=1e-12)


# ---------------------------------------------------------------- without scikit-sparse


@pytest.fixture
def without(monkeypatch):
    """An installation without scikit-sparse."""
    monkeypatch.setattr(_logdet, "cholmod", lambda: None)


def test_superlu_takes_over(without):
    rng = np.random.default_rng(16)
    X = np.cumsum(rng.exponential(size=(700, 1)), axis=0)
    y = np.sin(X[:, 0] / 20) + 0.1 * rng.normal(size=700)
    pairs = pairs_of(X, "mutual", 5)
    assert _logdet.sparse_backend() == "superlu"
    assert isinstance(open_graph(pairs, 3, True), SuperLU)
    curve = mksknn.evidence_curve(X, y, graph="mutual", k_max=5)
    dense = mksknn.evidence_curve(X, y, graph="mutual", k_max=5, backend="lapack")
    np.testing.assert_allclose(curve.log_evidence, dense.log_evidence, rtol=0, atol=1e-8)
    np.testing.assert_allclose(curve.sigma0, dense.sigma0, rtol=1e-3)
    selected = mksknn.select_k(X, y, graph="mutual", k_max=5)
    assert (selected.k, selected.certified) == (dense.best_k, True)
    assert selected.log_evidence == pytest.approx(dense.log_evidence.max(), abs=1e-8)


def test_a_backend_that_is_not_there(without):
    with pytest.raises(ImportError, match="backend='cholmod' needs scikit-sparse"):
        mksknn.evidence_curve(POINTS["normal"], np.arange(30) % 2, backend="cholmod")


# ---------------------------------------------------------------- the sparse matrix itself


@pytest.mark.parametrize("graph", GRAPHS)
def test_grounded_part_is_the_laplacian_less_a_vertex_of_each_component(graph):
    X = POINTS["clusters"]
    pairs = pairs_of(X, graph)
    for k in (1, 2, 9, 20):
        W = naive.weights(X, k, graph)
        opened = SuperLU(pairs, k)
        part = opened._matrix.toarray()
        assert len(part) == len(X) - naive.n_components(W)
        expected = naive.laplacian(W)[np.ix_(opened._kept, opened._kept)]
        np.testing.assert_array_equal(part, expected)
        assert tril(opened._matrix).nnz >= len(part)
