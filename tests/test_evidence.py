"""Evidence at given values and at each k's optimum, against the oracle and closed forms."""

import functools
import math

import naive
import numpy as np
import pytest
from posing import problem_of

import mksknn
from mksknn._cholmod import cholmod

GRAPHS = ("mutual", "symmetric")
SPARSE = ("superlu",) if cholmod() is None else ("superlu", "cholmod")


def _points():
    rng = np.random.default_rng(31)
    clusters = rng.normal(size=(24, 2)) + 1e3 * np.repeat(np.arange(3), 8)[:, None]
    outliers = np.concatenate([rng.normal(size=(19, 2)), np.outer(10.0 ** np.arange(2, 6), [1, 1])])
    return {
        "normal": rng.normal(size=(26, 3)),
        "clusters": clusters,
        "outliers": outliers,
        "duplicates": np.repeat(rng.integers(0, 5, (8, 2)), 3, axis=0).astype(float),
        "lattice": np.array([(a, b) for a in range(5) for b in range(4)], dtype=float),
        "two": np.array([[0.0], [1.0]]),
        "three": np.array([[0.0], [1.0], [5.0]]),
    }


POINTS = _points()


def _targets(n):
    """Every kind of y for n points, with the options it needs."""
    rng = np.random.default_rng(n)
    values = rng.normal(size=(n, 3)) + np.linspace(-2, 3, n)[:, None]
    kinds = {
        "binary": (np.arange(n) % 2, {}),
        "I": (np.where(np.arange(n) < n / 2, "a", "b"), {"formulation": "I"}),
        "II": (np.arange(n) < (n + 1) // 2, {"formulation": "II"}),
        "regression": (values[:, 0], {}),
        "uncentred": (values[:, 1], {"center": False}),
        "three outputs": (values, {}),
        "three uncentred": (values, {"center": False}),
    }
    for J in (3, 4, 5):
        if n > J:
            y = rng.permutation(np.arange(n) % J)
            kinds[f"I, J={J}"] = (y, {"formulation": "I"})
            kinds[f"II, J={J}"] = (y, {"formulation": "II"})
    return kinds


CASES = [
    pytest.param(name, kind, id=f"{name}-{kind}")
    for name, X in POINTS.items()
    for kind in _targets(len(X))
]


@functools.cache
def weights(name, k, graph):
    """The oracle's weights, which take longer than what is tested."""
    return naive.weights(POINTS[name], k, graph)


def encoded(y, options):
    """The oracle's (Y, m, constant)."""
    return naive.targets(y, options.get("formulation", "auto"), center=options.get("center", True))


def some_ks(n):
    return sorted({1, 2, 3, n // 2, n - 1} & set(range(1, n)))


def bend(W, Y, r):
    """How much the profile bends in log r, for each of the m n numbers."""
    p = r / (naive.spectrum(W) + r)
    share = r * np.sum(Y**2) / (naive.roughness(W, Y) + r * np.sum(Y**2))
    return 0.5 * float(share * (1 - share) - np.mean(p * (1 - p)))


# ---------------------------------------------------------------- given values


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_given_values(name, kind, graph):
    X = POINTS[name]
    y, options = _targets(len(X))[kind]
    encoding = encoded(y, options)
    for k in some_ks(len(X)):
        for sigma0, sigma2, backends in (
            (1.0, 1.0, ("auto", *SPARSE)),
            (0.03, 4.0, ("auto",)),
            (20.0, 0.5, ("auto",)),
        ):
            W = weights(name, k, graph)
            expected = naive.log_evidence_from_graph(W, *encoding, sigma0, sigma2)
            for backend in backends:
                found = mksknn.log_evidence(
                    X, y, k, sigma0=sigma0, sigma2=sigma2, graph=graph, backend=backend, **options
                )
                assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("J", [2, 3, 4, 5])
@pytest.mark.parametrize("name", ["normal", "outliers", "duplicates"])
def test_literal_covariances(name, J, graph):
    """The Jn x Jn and (J-1)n x (J-1)n models as the paper writes them."""
    X = POINTS[name][:15]
    y = np.arange(len(X)) * 7 % J
    for k in (1, 3, len(X) - 1):
        for sigma0, sigma2 in ((1.0, 0.4), (0.1, 2.0)):
            for form, literal in (
                ("I", naive.log_evidence_literal_I),
                ("II", naive.log_evidence_literal_II),
            ):
                found = mksknn.log_evidence(
                    X, y, k, sigma0=sigma0, sigma2=sigma2, graph=graph, formulation=form
                )
                expected = literal(X, y, k, sigma0, sigma2, graph=graph)
                assert found == pytest.approx(expected, rel=1e-9)


def central_differences(name, k, graph, y, options, sigma0, sigma2):
    fixed = weights(name, k, graph), *encoded(y, options)
    return [
        naive.derivative(lambda v: naive.log_evidence_from_graph(*fixed, v, sigma2), sigma0),
        naive.derivative(lambda v: naive.log_evidence_from_graph(*fixed, sigma0, v), sigma2),
    ]


@pytest.mark.parametrize("backend", ["lapack", *SPARSE])
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kind", ["binary", "I, J=3", "II, J=5", "uncentred", "three outputs"])
def test_gradients(kind, graph, backend):
    for name in ("normal", "clusters", "outliers"):
        X = POINTS[name]
        y, options = _targets(len(X))[kind]
        for k in (1, 4, len(X) - 1):
            for sigma0, sigma2 in ((1.0, 1.0), (0.2, 3.0), (5.0, 0.7)):
                value, gradient = mksknn.log_evidence(
                    X,
                    y,
                    k,
                    sigma0=sigma0,
                    sigma2=sigma2,
                    graph=graph,
                    return_gradient=True,
                    backend=backend,
                    **options,
                )
                assert gradient.shape == (2,)
                expected = central_differences(name, k, graph, y, options, sigma0, sigma2)
                scale = abs(value) * np.array([1 / sigma0, 1 / sigma2])
                np.testing.assert_allclose(gradient, expected, rtol=1e-7, atol=1e-9 * scale.max())


def test_gradient_vanishes_at_the_optimum():
    X = POINTS["normal"]
    y = (X[:, 0] > 0).astype(int)
    curve = mksknn.evidence_curve(X, y)
    for k in curve.k[~curve.at_bound]:
        sigma0, sigma2 = curve.sigma0[k - 1], curve.sigma2[k - 1]
        value, gradient = mksknn.log_evidence(
            X, y, int(k), sigma0=sigma0, sigma2=sigma2, return_gradient=True
        )
        assert value == pytest.approx(curve.log_evidence[k - 1], rel=1e-12)
        np.testing.assert_allclose(gradient * [sigma0, sigma2], 0.0, atol=1e-6)


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("n", [2, 3, 6])
def test_complete_graph_in_closed_form(n, graph):
    """k = n - 1: all edges, with n - 1 equal eigenvalues."""
    y = np.array([0, 1, 1, 0, 1, 1])[:n]
    weight = 1 if graph == "mutual" else 2
    sigma0, sigma2 = 0.7, 0.3
    logdet = math.log(sigma2) + (n - 1) * math.log(sigma0 * weight * n + sigma2)
    quadratic = sigma0 * weight * 4 * (y == 0).sum() * (y == 1).sum() + sigma2 * n
    expected = 0.5 * (logdet - quadratic - n * math.log(2 * math.pi))
    found = mksknn.log_evidence(
        np.arange(float(n))[:, None], y, n - 1, sigma0=sigma0, sigma2=sigma2, graph=graph
    )
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("graph", GRAPHS)
def test_two_classes_by_formulation_two(graph):
    """ "II" at (sigma0, sigma2) is "binary" at half of both, so both have one optimum."""
    X = POINTS["normal"]
    y = (X[:, 0] + X[:, 1] > 0.2).astype(int)
    for k in (1, 5, len(X) - 1):
        two = mksknn.log_evidence(X, y, k, sigma0=1.2, sigma2=0.5, graph=graph, formulation="II")
        binary = mksknn.log_evidence(X, y, k, sigma0=0.6, sigma2=0.25, graph=graph)
        assert two == pytest.approx(binary, rel=1e-12)
    two = mksknn.evidence_curve(X, y, graph=graph, formulation="II")
    binary = mksknn.evidence_curve(X, y, graph=graph)
    assert two.best_k == binary.best_k
    np.testing.assert_allclose(two.log_evidence, binary.log_evidence, rtol=1e-12)
    np.testing.assert_allclose(two.sigma0, 2 * binary.sigma0, rtol=1e-6)
    np.testing.assert_array_equal(two.at_bound, binary.at_bound)


@pytest.mark.parametrize("metric", ["manhattan", "chebyshev", "cosine", "precomputed"])
def test_metrics(metric):
    X = POINTS["normal"]
    y = (X[:, 0] > 0).astype(int)
    given = naive.distance_matrix(X, "manhattan") if metric == "precomputed" else X
    ks = [1, 4, 13, 25]
    curve = mksknn.evidence_curve(given, y, metric=metric, ks=ks)
    _, value, sigma0, _ = naive.evidence_curve(given, y, ks, metric=metric)
    np.testing.assert_allclose(curve.log_evidence, value, rtol=1e-6)
    found = mksknn.log_evidence(given, y, 4, sigma0=0.4, sigma2=0.2, metric=metric)
    expected = naive.log_evidence(given, y, 4, 0.4, 0.2, metric=metric)
    assert found == pytest.approx(expected, rel=1e-9)
    chosen = mksknn.select_k(given, y, metric=metric)
    full = mksknn.evidence_curve(given, y, metric=metric)
    assert (chosen.k, chosen.metric) == (full.best_k, metric)


# ---------------------------------------------------------------- optima


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_optima_against_a_search_over_both_sigmas(name, kind, graph):
    """The oracle climbs in (sigma0, sigma2) from several starts and knows no closed form."""
    X = POINTS[name]
    y, options = _targets(len(X))[kind]
    ks = sorted({1, 3, len(X) - 1} & set(range(1, len(X))))
    curve = mksknn.evidence_curve(X, y, graph=graph, ks=ks, **options)
    found = [naive.optimum_from_graph(weights(name, k, graph), *encoded(y, options)) for k in ks]
    value, sigma0, sigma2 = np.array(found).T
    np.testing.assert_allclose(curve.log_evidence, value, rtol=1e-6, atol=1e-6)
    assert (curve.log_evidence >= value - 1e-7).all()
    inside = ~curve.at_bound
    np.testing.assert_allclose(curve.sigma0[inside], sigma0[inside], rtol=2e-4)
    np.testing.assert_allclose(curve.sigma2[inside], sigma2[inside], rtol=2e-4)


@pytest.mark.parametrize("backend", ["lapack", *SPARSE])
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_optima_to_the_last_digits(name, kind, graph, backend):
    """Against the root of the slope of the exact profile: 1e-8 in evidence, 1e-6 in both sigmas."""
    X = POINTS[name]
    y, options = _targets(len(X))[kind]
    ks = some_ks(len(X))
    curve = mksknn.evidence_curve(X, y, graph=graph, ks=ks, backend=backend, **options)
    assert np.isfinite(curve.log_evidence).all()
    Y, m, constant = encoded(y, options)
    for at, k in enumerate(ks):
        W = weights(name, k, graph)
        value, sigma0, sigma2, at_bound = naive.exact_optimum(W, Y, m, constant)
        assert curve.log_evidence[at] == pytest.approx(value, rel=1e-12, abs=1e-8)
        assert curve.at_bound[at] == at_bound
        # a search over costly values cannot tell the place of a flat peak from rounding
        flat = backend != "lapack" and bend(W, Y, sigma2 / sigma0) < 1e-5
        tolerance = 1e-5 if flat else 1e-6
        assert curve.sigma0[at] == pytest.approx(sigma0, rel=tolerance)
        assert curve.sigma2[at] == pytest.approx(sigma2, rel=tolerance)


@pytest.mark.parametrize("backend", ["lapack", *SPARSE])
@pytest.mark.parametrize("graph", GRAPHS)
def test_every_optimum_beats_a_dense_grid(graph, backend):
    """No point of a fine grid in log r is better by more than 1e-8, also at the ends."""
    X = POINTS["normal"]
    y = (X[:, 0] > 0.3).astype(int)
    Y, m, constant = naive.targets(y)
    for bounds in ((1e-6, 1e6), (1e-3, 0.02), (5.0, 40.0)):
        curve = mksknn.evidence_curve(X, y, graph=graph, ratio_bounds=bounds, backend=backend)
        ratios = np.exp(np.linspace(*np.log(bounds), 4001))
        for at, k in enumerate(curve.k):
            W = naive.weights(X, k, graph)
            q, s, n = naive.roughness(W, Y), len(X), len(X)
            logdets = np.log(naive.spectrum(W)[:, None] + ratios).sum(axis=0)
            inner = n * np.log(m * n / (q + ratios * s)) + logdets - n - n * math.log(2 * math.pi)
            assert curve.log_evidence[at] >= (0.5 * m * inner).max() - 1e-8
            assert bounds[0] <= curve.sigma2[at] / curve.sigma0[at] * (1 + 1e-12)
            assert curve.sigma2[at] / curve.sigma0[at] <= bounds[1] * (1 + 1e-12)


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", GRAPHS)
def test_a_few_points_every_way(graph):
    X = np.array([[0.0], [1.0], [2.5], [4.5], [7.0], [7.5]])
    y = np.array([0, 0, 1, 1, 0, 1])
    _, value, _, _ = naive.evidence_curve(X, y, graph=graph)
    for backend in ("auto", "superlu"):
        curve = mksknn.evidence_curve(X, y, graph=graph, backend=backend)
        np.testing.assert_allclose(curve.log_evidence, value, rtol=1e-6)
        selected = mksknn.select_k(X, y, graph=graph, backend=backend)
        assert selected.k == curve.best_k
        assert selected.log_evidence == curve.log_evidence.max()


# ---------------------------------------------------------------- fixed sigmas


@pytest.mark.parametrize("backend", ["auto", *SPARSE])
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kind", ["binary", "II, J=4", "three outputs"])
def test_fixed_sigmas(kind, graph, backend):
    X = POINTS["normal"]
    y, options = _targets(len(X))[kind]
    options = {"graph": graph, "backend": backend, "sigma0": 0.3, "sigma2": 0.7, **options}
    curve = mksknn.evidence_curve(X, y, **options)
    np.testing.assert_array_equal(curve.k, np.arange(1, len(X)))
    expected = [mksknn.log_evidence(X, y, k, **options) for k in range(1, len(X))]
    np.testing.assert_allclose(curve.log_evidence, expected, rtol=1e-13)
    assert (curve.sigma0 == 0.3).all() and (curve.sigma2 == 0.7).all()
    assert not curve.at_bound.any()


# ---------------------------------------------------------------- which k


def test_ks_and_k_max():
    X = POINTS["normal"]
    y = (X[:, 0] > 0).astype(int)
    full = mksknn.evidence_curve(X, y)
    some = mksknn.evidence_curve(X, y, ks=[9, 2, 2, 17])
    np.testing.assert_array_equal(some.k, [2, 9, 17])
    np.testing.assert_array_equal(some.log_evidence, full.log_evidence[[1, 8, 16]])
    few = mksknn.evidence_curve(X, y, k_max=7)
    np.testing.assert_array_equal(few.k, np.arange(1, 8))
    np.testing.assert_array_equal(few.log_evidence, full.log_evidence[:7])
    assert full.best_k == full.k[np.argmax(full.log_evidence)]


def test_repr_and_attributes():
    curve = mksknn.evidence_curve(POINTS["normal"], np.arange(26) % 2, ks=[3, 5])
    assert (curve.graph, curve.formulation) == ("symmetric", "binary")
    for text in ("EvidenceCurve", "symmetric", "binary", "k=3..5", f"best_k={curve.best_k}"):
        assert text in repr(curve)
    assert curve.at_bound.dtype == bool
    with pytest.raises(AttributeError):
        curve.k = None


# ---------------------------------------------------------------- factorizations


@pytest.mark.parametrize("graph", GRAPHS)
def test_factorizations_of_a_curve(graph, counted):
    X = POINTS["normal"]
    y = (X[:, 0] > 0).astype(int)
    mksknn.evidence_curve(X, y, graph=graph)
    assert counted == {"cholesky": 0, "tridiagonalize": 25}
    mksknn.evidence_curve(X, y, graph=graph, sigma0=1.0, sigma2=0.1)
    assert counted == {"cholesky": 25, "tridiagonalize": 25}
    mksknn.log_evidence(X, y, 3, graph=graph, sigma0=1.0, sigma2=0.1)
    assert counted == {"cholesky": 26, "tridiagonalize": 25}


@pytest.mark.skipif(not hasattr(cholmod(), "analyze"), reason="needs scikit-sparse 0.4")
def test_one_analysis_for_each_k(monkeypatch):
    analyses = []
    analyze = cholmod().analyze

    def counting(*args, **options):
        analyses.append(1)
        return analyze(*args, **options)

    monkeypatch.setattr(cholmod(), "analyze", counting)
    X = POINTS["normal"]
    mksknn.evidence_curve(X, (X[:, 0] > 0).astype(int), k_max=11, backend="cholmod")
    assert len(analyses) == 11


# ---------------------------------------------------------------- degenerate input


def two_clusters(n=12):
    rng = np.random.default_rng(32)
    X = rng.normal(size=(2 * n, 2)) + 1e3 * np.repeat([0, 1], n)[:, None]
    return X, np.repeat(["left", "right"], n)


@pytest.mark.parametrize("backend", ["lapack", *SPARSE])
@pytest.mark.parametrize("bounds", [(1e-6, 1e6), (1e-3, 10.0), (1e-100, 1e100)])
@pytest.mark.parametrize("graph", GRAPHS)
def test_pure_clusters_have_no_peak(graph, bounds, backend):
    """No edge joins different labels: the evidence only ends where the bounds do, and says so."""
    X, y = two_clusters()
    curve = mksknn.evidence_curve(X, y, graph=graph, ratio_bounds=bounds, backend=backend)
    pure = np.array(
        [naive.roughness(naive.weights(X, k, graph), naive.targets(y)[0]) == 0 for k in curve.k]
    )
    assert pure[:11].all() and not pure[-1]
    assert np.isfinite(curve.log_evidence).all()
    assert curve.at_bound[pure].all()
    np.testing.assert_array_equal(curve.sigma2[pure], bounds[0] * curve.sigma0[pure])
    selected = mksknn.select_k(X, y, graph=graph, ratio_bounds=bounds, backend=backend)
    assert selected.at_bound and selected.certified
    assert selected.sigma2 == bounds[0] * selected.sigma0
    assert selected.log_evidence == pytest.approx(curve.log_evidence.max(), abs=1e-8)
    assert "at_bound" in repr(curve) and "at_bound" in repr(selected)


@pytest.mark.parametrize("backend", ["lapack", *SPARSE])
@pytest.mark.parametrize("graph", GRAPHS)
def test_noise_ends_without_a_graph(graph, backend):
    """Labels that disagree with their neighbours more often than chance."""
    X = np.arange(24.0)[:, None]
    y = np.arange(24) % 2
    curve = mksknn.evidence_curve(X, y, graph=graph, backend=backend)
    Y = naive.targets(y)[0]
    rough = []
    for k in curve.k:
        W = naive.weights(X, k, graph)
        rough.append(naive.roughness(W, Y) / 24 >= W.sum() / 24)
    rough = np.array(rough)
    assert rough[:3].all()
    assert curve.at_bound[rough].all()
    np.testing.assert_allclose(curve.sigma2[rough] / curve.sigma0[rough], 1e6, rtol=1e-12)
    # without a graph: independent, with variance 1
    no_graph = -12.0 * (1.0 + math.log(2 * math.pi))
    np.testing.assert_allclose(curve.log_evidence[rough], no_graph, atol=0.01)


@pytest.mark.parametrize("outputs", [1, 2])
def test_constant_targets(outputs):
    X = POINTS["normal"]
    y = np.full((26, outputs), 3.5)
    for call in (mksknn.evidence_curve, mksknn.select_k):
        with pytest.raises(ValueError, match="y must vary"):
            call(X, y)
    fixed = mksknn.evidence_curve(X, y, sigma0=1.0, sigma2=1.0)
    assert np.isfinite(fixed.log_evidence).all()
    assert mksknn.select_k(X, y, sigma0=1.0, sigma2=1.0).k == fixed.best_k
    assert np.isfinite(mksknn.evidence_curve(X, y, center=False).log_evidence).all()


@pytest.mark.parametrize("backend", ["lapack", *SPARSE])
@pytest.mark.parametrize("scale", [1e-100, 1e100])
def test_scaled_targets(scale, backend):
    """y times c divides both sigmas by c^2, and shifts the evidence by -m n log c."""
    X = POINTS["normal"]
    y = np.sin(X[:, 0]) + 0.1 * X[:, 1]
    for graph in GRAPHS:
        plain = mksknn.evidence_curve(X, y, graph=graph, backend=backend, k_max=11)
        scaled = mksknn.evidence_curve(X, scale * y, graph=graph, backend=backend, k_max=11)
        shift = len(X) * math.log(scale)
        np.testing.assert_allclose(scaled.log_evidence, plain.log_evidence - shift, rtol=1e-9)
        np.testing.assert_allclose(scaled.sigma0 * scale**2, plain.sigma0, rtol=1e-3)
        assert (
            mksknn.select_k(X, scale * y, graph=graph, backend=backend, k_max=11).k == plain.best_k
        )


@pytest.mark.parametrize("scale", [1e-100, 1e100])
def test_scaled_points(scale):
    X = POINTS["normal"]
    y = (X[:, 0] > 0).astype(int)
    for graph in GRAPHS:
        plain = mksknn.evidence_curve(X, y, graph=graph)
        scaled = mksknn.evidence_curve(scale * X, y, graph=graph)
        np.testing.assert_array_equal(scaled.log_evidence, plain.log_evidence)


@pytest.mark.parametrize("backend", ["lapack", *SPARSE])
@pytest.mark.parametrize("bounds", [(1e-6, 1e20), (1e-30, 1e40), (1e-100, 1e100)])
@pytest.mark.parametrize("graph", GRAPHS)
def test_wide_bounds_leave_a_peak_where_it_is(graph, bounds, backend):
    """At a huge ratio the profile is flat to rounding: that end must not pass for the peak."""
    X = np.random.default_rng(33).normal(size=(40, 2))
    y = (X[:, 0] > 0).astype(int)
    plain = mksknn.evidence_curve(X, y, graph=graph, k_max=12)
    inside = ~plain.at_bound
    assert inside.any()
    wide = mksknn.evidence_curve(X, y, graph=graph, k_max=12, ratio_bounds=bounds, backend=backend)
    np.testing.assert_allclose(wide.log_evidence[inside], plain.log_evidence[inside], atol=1e-8)
    assert not wide.at_bound[inside].any()


@pytest.mark.parametrize("backend", ["lapack", *SPARSE])
def test_bounds_that_exclude_the_peak(backend):
    X = np.random.default_rng(34).normal(size=(40, 2))
    y = (X[:, 0] > 0).astype(int)
    peak = mksknn.evidence_curve(X, y, ks=[5])
    ratio = float(peak.sigma2[0] / peak.sigma0[0])
    assert not peak.at_bound[0]
    above, below, narrow = (2 * ratio, 1e6), (1e-6, ratio / 2), (1.5 * ratio, 1.6 * ratio)
    for bounds, end in ((above, 0), (below, 1), (narrow, 0)):
        curve = mksknn.evidence_curve(X, y, ks=[5], ratio_bounds=bounds, backend=backend)
        assert curve.at_bound[0]
        assert curve.sigma2[0] == bounds[end] * curve.sigma0[0]
        assert curve.log_evidence[0] < peak.log_evidence[0]
    around = mksknn.evidence_curve(
        X, y, ks=[5], ratio_bounds=(ratio / 1.01, ratio * 1.01), backend=backend
    )
    assert around.log_evidence[0] == pytest.approx(peak.log_evidence[0], abs=1e-8)
    assert not around.at_bound[0]


# ---------------------------------------------------------------- sums over edges


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_roughness_grows_with_k(name, kind, graph):
    X = POINTS[name]
    y, options = _targets(len(X))[kind]
    options = {"formulation": "auto", "center": True, **options}
    problem = problem_of(X, y, graph=graph, **options)
    assert (np.diff(problem.roughness) >= 0).all()
    Y = naive.targets(y, options["formulation"], center=options["center"])[0]
    for k in some_ks(len(X)):
        expected = naive.roughness(naive.weights(X, k, graph), Y)
        assert problem.profile(k).roughness == pytest.approx(expected, rel=1e-11, abs=1e-11)
        assert problem.targets.norm == pytest.approx(float(np.sum(Y**2)), rel=1e-12)


# ---------------------------------------------------------------- bad input

X0, Y0 = np.arange(12.0).reshape(6, 2), np.array([0, 1, 0, 1, 1, 0])
Y3, YF = np.array([0, 1, 2, 0, 1, 2]), np.linspace(0, 1, 6)

BAD = [
    ({"graph": "knn"}, ValueError, ["graph", "'knn'", "mutual"]),
    ({"graph": "full"}, ValueError, ["graph", "'full'"]),
    ({"graph": 3}, TypeError, ["graph", "3"]),
    ({"metric": "hamming"}, ValueError, ["metric", "'hamming'"]),
    ({"backend": "cuda"}, ValueError, ["backend", "'cuda'"]),
    ({"task": "ranking"}, ValueError, ["task", "'ranking'"]),
    ({"formulation": "III"}, ValueError, ["formulation", "'III'"]),
    ({"y": Y3, "formulation": "binary"}, ValueError, ["formulation", "'binary'", "3 classes"]),
    ({"y": YF, "formulation": "II"}, ValueError, ["formulation", "'II'", "regression"]),
    ({"y": YF, "center": 1}, TypeError, ["center", "1"]),
    ({"y": Y0[:5]}, ValueError, ["y", "6 rows", "(5,)"]),
    ({"y": np.zeros(6, int)}, ValueError, ["y", "2 classes"]),
    ({"y": np.array([0.0, 1, np.nan, 2, 3, 4])}, ValueError, ["y", "finite", "nan"]),
    ({"X": [[0.0]]}, ValueError, ["X", "2 rows"]),
    ({"X": np.full((6, 2), np.inf)}, ValueError, ["X", "finite", "inf"]),
]
BAD_SWEEP = [
    ({"ks": []}, ValueError, ["ks", "empty"]),
    ({"ks": [0, 3]}, ValueError, ["ks", "1 to 5", "0"]),
    ({"ks": [6]}, ValueError, ["ks", "1 to 5", "6"]),
    ({"ks": [2.0]}, TypeError, ["each of ks must be an integer", "2.0"]),
    ({"ks": 3}, TypeError, ["ks", "3"]),
    ({"ks": [2], "k_max": 3}, ValueError, ["ks", "k_max", "not both"]),
    ({"k_max": 6}, ValueError, ["k_max", "1 to 5", "6"]),
    ({"k_max": 0}, ValueError, ["k_max", "0"]),
    ({"k_max": True}, TypeError, ["k_max", "True"]),
    ({"sigma0": 1.0}, ValueError, ["sigma2", "sigma0", "None"]),
    ({"sigma2": 1.0}, ValueError, ["sigma0", "sigma2", "None"]),
    ({"sigma0": 0.0, "sigma2": 1.0}, ValueError, ["sigma0", "> 0", "0.0"]),
    ({"sigma0": 1.0, "sigma2": -2.0}, ValueError, ["sigma2", "> 0", "-2.0"]),
    ({"sigma0": math.inf, "sigma2": 1.0}, ValueError, ["sigma0", "finite", "inf"]),
    ({"sigma0": 1.0, "sigma2": "2"}, TypeError, ["sigma2", "'2'"]),
    ({"sigma0": 1e-60, "sigma2": 1e60}, ValueError, ["sigma2/sigma0", "1e+100", "1e+60"]),
    ({"ratio_bounds": (1.0, 0.1)}, ValueError, ["ratio_bounds", "low < high", "(1.0, 0.1)"]),
    ({"ratio_bounds": (1.0, 1.0)}, ValueError, ["ratio_bounds", "low < high"]),
    ({"ratio_bounds": (0.0, 1.0)}, ValueError, ["ratio_bounds[0]", "> 0", "0.0"]),
    ({"ratio_bounds": (1e-200, 1.0)}, ValueError, ["ratio_bounds", "1e-100", "1e-200"]),
    ({"ratio_bounds": 1.0}, TypeError, ["ratio_bounds", "two numbers", "1.0"]),
    ({"executor": "local"}, TypeError, ["executor", "submit", "'local'"]),
    ({"executor": 2}, TypeError, ["executor", "submit", "2"]),
    ({"progress": 1}, TypeError, ["progress", "1"]),
    ({"progress": None}, TypeError, ["progress", "None"]),
]
BAD_VALUES = [
    ({"k": 0}, ValueError, ["k", "1 to 5", "0"]),
    ({"k": 6}, ValueError, ["k", "1 to 5", "6"]),
    ({"k": 2.5}, TypeError, ["k", "2.5"]),
    ({"sigma0": None}, TypeError, ["sigma0", "None"]),
    ({"sigma2": None}, TypeError, ["sigma2", "None"]),
    ({"sigma2": math.nan}, ValueError, ["sigma2", "nan"]),
    ({"return_gradient": "yes"}, TypeError, ["return_gradient", "'yes'"]),
]


def names(table):
    return [", ".join(changes) + f" {at}" for at, (changes, _, _) in enumerate(table)]


def refuse(call, kind, parts):
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize("function", [mksknn.evidence_curve, mksknn.select_k])
@pytest.mark.parametrize(("changes", "kind", "parts"), BAD + BAD_SWEEP, ids=names(BAD + BAD_SWEEP))
def test_bad_sweeps(changes, kind, parts, function):
    refuse(lambda: function(**{"X": X0, "y": Y0, **changes}), kind, parts)


@pytest.mark.parametrize(
    ("changes", "kind", "parts"), BAD + BAD_VALUES, ids=names(BAD + BAD_VALUES)
)
def test_bad_values(changes, kind, parts):
    options = {"X": X0, "y": Y0, "k": 2, "sigma0": 1.0, "sigma2": 1.0, **changes}
    refuse(lambda: mksknn.log_evidence(**options), kind, parts)


def test_input_is_left_alone():
    X, y = X0.copy(), Y0.copy()
    X.flags.writeable = y.flags.writeable = False
    expected = mksknn.evidence_curve(X0, Y0).log_evidence
    for form in (X, np.asfortranarray(X), X.astype(np.float32), X.tolist()):
        np.testing.assert_array_equal(mksknn.evidence_curve(form, y).log_evidence, expected)
    assert mksknn.select_k(X, y.tolist()).log_evidence == expected.max()


@pytest.mark.uncompiled
@pytest.mark.parametrize("backend", ["lapack", *SPARSE])
def test_targets_exactly_as_rough_as_noise_are_at_the_upper_bound(backend):
    # q_k / s = tr(L_k) / n but for rounding: the evidence rises all the way, by less and less
    cases = (
        ("symmetric", 3, [1, 0, 1, 1, 3]),
        ("mutual", 2, [1, 2, 2, 0]),
        ("mutual", 2, [1, 2, 2, 0, 0, 2, 2, 0, 0, 2, 1, 0, 2]),
    )
    for graph, k, y in cases:
        X = np.arange(len(y))[:, None]
        for bounds in ((1e-6, 1e6), (1e-12, 1e12), (1e-30, 1e30)):
            options = {"graph": graph, "ks": [k], "ratio_bounds": bounds, "backend": backend}
            curve = mksknn.evidence_curve(X, y, **options)
            assert curve.at_bound[0]
            assert curve.sigma2[0] / curve.sigma0[0] == pytest.approx(bounds[1], rel=1e-12)
            assert mksknn.select_k(X, y, **options).at_bound
