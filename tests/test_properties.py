"""Properties over all public functions: lattices, duplicates, constants, any magnitude.

Either a finite answer that equals the literal one of `naive`, or a ValueError that names an
argument; never another exception, a warning, nan or inf. Magnitudes are powers of two, so what the
scaled data must give follows exactly from the data themselves: naive never sees them.
"""

import inspect
import math
import tempfile
import warnings
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import naive
import numpy as np
import pytest
import scipy.sparse
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import mksknn
from mksknn._cholmod import cholmod

matplotlib.use("Agg")
pytestmark = pytest.mark.filterwarnings("error")
ARGUMENTS = ("X ", "X_new ", "y ", "sigma0 ", "sigma2 ", "sigma2/sigma0 ", "ratio_bounds ")
EXPONENTS = st.integers(-498, 498)  # 1e-150 to 1e150
GRAPHS = st.sampled_from(["mutual", "symmetric"])


@st.composite
def points(draw, least=2, most=11):
    """Points in general position, on a lattice, in heaps, or all in one place."""
    n, d = draw(st.integers(least, most)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    kind = draw(st.sampled_from(["normal", "lattice", "heaps", "line", "one place"]))
    if kind == "normal":
        return rng.normal(size=(n, d))
    if kind == "lattice":
        return rng.integers(0, 3, (n, d)).astype(float)
    if kind == "heaps":
        return np.repeat(rng.normal(size=(n, d)), 3, axis=0)[:n]
    if kind == "line":
        return np.outer(rng.integers(-4, 5, n), np.ones(d))
    return np.full((n, d), 0.1)


@st.composite
def targets(draw, n):
    """Values with and without repeats, of one or two outputs, constants; or classes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    kind = draw(st.sampled_from(["normal", "lattice", "constant", "outputs", "classes", "classes"]))
    if kind == "normal":
        return rng.normal(size=n)
    if kind == "lattice":
        return rng.integers(0, 3, n).astype(float)
    if kind == "constant":
        return np.full(n, 0.1)
    if kind == "outputs":
        return np.column_stack([rng.normal(size=n), np.full(n, 0.1)])
    return rng.integers(0, draw(st.integers(2, 3)), n)


@st.composite
def problems(draw, least=2, most=11):
    """Points, targets, and the exponents by which both are scaled."""
    X = draw(points(least, most))
    y = draw(targets(len(X)))
    return X, y, draw(EXPONENTS), draw(EXPONENTS)


def scaled(X, y, by_x, by_y):
    """The same, larger or smaller; classes stay as they are."""
    return np.ldexp(X, by_x), (np.ldexp(y, by_y) if y.dtype.kind == "f" else y)


def answer(call):
    """What the call returns; None if it refuses, naming an argument."""
    try:
        return call()
    except ValueError as error:
        assert str(error).startswith(ARGUMENTS), error
        return None


def shift(y, exponent):
    """What scaling y by a power of two adds to a log evidence."""
    return -y.size * exponent * math.log(2.0) if y.dtype.kind == "f" else 0.0


def varies(y):
    return bool((y != y[0]).any())


# ---------------------------------------------------------------- against naive


@pytest.mark.uncompiled
@given(points(), EXPONENTS, st.sampled_from(["euclidean", "manhattan", "chebyshev"]))
def test_neighbors_and_graphs(X, exponent, metric):
    large = np.ldexp(X, exponent)
    found = answer(lambda: mksknn.neighbors(large, metric=metric))
    if found is None:
        assert metric == "euclidean" and abs(exponent) > 470
        return
    indices, distances = naive.neighbors(X, None, metric)
    np.testing.assert_array_equal(found.indices, indices)
    np.testing.assert_allclose(np.ldexp(found.distances, -exponent), distances, rtol=1e-13)
    for graph in ("knn", "mutual", "symmetric"):
        W = mksknn.knn_graph(large, 1, graph=graph, metric=metric)
        np.testing.assert_array_equal(W.toarray(), naive.weights(X, 1, graph, metric))


@pytest.mark.uncompiled
@given(problems(), GRAPHS, st.data())
def test_log_evidence(problem, graph, data):
    X, y, by_x, by_y = problem
    k = data.draw(st.integers(1, len(X) - 1))
    log0, log2 = data.draw(st.integers(-20, 20)), data.draw(st.integers(-20, 20))
    down = -2 * by_y if y.dtype.kind == "f" else 0
    assume(abs(down) < 980)
    sigmas = {"sigma0": math.ldexp(1.0, log0 + down), "sigma2": math.ldexp(1.0, log2 + down)}
    large = scaled(X, y, by_x, by_y)
    found = answer(lambda: mksknn.log_evidence(*large, k, graph=graph, **sigmas))
    if found is None:
        return
    expected = naive.log_evidence(X, y, k, 2.0**log0, 2.0**log2, graph)
    sizes = abs(expected) + abs(shift(y, by_y)) + y.size * (abs(log0) + abs(log2) + 10)
    literal = 1e-15 * len(X) ** 2 * y.size * 2.0 ** max(0, log0 - log2)  # naive's own rounding
    assert abs(found - expected - shift(y, by_y)) <= 1e-11 * sizes + literal


@given(problems(), GRAPHS)
def test_curve_and_selection(problem, graph):
    X, y, by_x, by_y = problem
    large = scaled(X, y, by_x, by_y)
    curve = answer(lambda: mksknn.evidence_curve(*large, graph=graph))
    best = answer(lambda: mksknn.select_k(*large, graph=graph))
    assert (curve is None) == (best is None)
    if curve is None:
        assert not varies(y) or max(abs(by_x), abs(by_y)) > 440
        return
    _, expected, _, _ = naive.evidence_curve(X, y, graph=graph)
    expected = expected + shift(y, by_y)
    tolerance = 1e-8 * (1.0 + np.abs(expected).max())
    np.testing.assert_allclose(curve.log_evidence, expected, rtol=0, atol=tolerance)
    assert best.certified and abs(best.log_evidence - expected.max()) <= tolerance
    assert expected[best.k - 1] >= expected.max() - tolerance
    assert np.isfinite([best.sigma0, best.sigma2]).all() and best.sigma0 > 0 and best.sigma2 > 0


@given(problems(least=3, most=8), GRAPHS)
def test_posterior(problem, graph):
    X, y, by_x, by_y = problem
    large = scaled(X, y, by_x, by_y)
    found = answer(lambda: mksknn.posterior(*large, graph=graph))
    if found is None:
        assert not varies(y) or max(abs(by_x), abs(by_y)) > 440
        return
    _, probability, _ = naive.posterior(X, y, graph=graph, brute=False)
    np.testing.assert_allclose(found.probability, probability, atol=3e-6)
    assert math.isfinite(found.log_total) and found.skipped_mass <= 1e-6


@given(problems(most=8), st.sampled_from(["knn", "mutual", "symmetric"]))
def test_loo(problem, graph):
    X, y, by_x, by_y = problem
    assume(abs(by_y) < 440)
    found = answer(lambda: mksknn.loo_curve(*scaled(X, y, by_x, by_y), graph=graph))
    if found is None:
        assert not varies(y) or abs(by_x) > 440
        return
    _, error, score, _ = naive.loo_curve(X, y, graph)
    unit = 2 * by_y if y.dtype.kind == "f" else 0
    np.testing.assert_allclose(np.ldexp(found.error, -unit), error, rtol=1e-9, atol=1e-25)
    score = score + shift(y, by_y)
    tolerance = 1e-8 * (1.0 + np.abs(score).max())
    np.testing.assert_allclose(found.log_score, score, rtol=0, atol=tolerance)


@given(problems(), st.sampled_from(["knn", "mutual", "symmetric"]), st.data())
def test_predict(problem, graph, data):
    X, y, by_x, by_y = problem
    k = data.draw(st.integers(1, len(X) - 1))
    new = np.vstack([X[:2], X[:2] + 0.5])
    large, large_y = scaled(X, y, by_x, by_y)
    found = answer(lambda: mksknn.predict(large, large_y, np.ldexp(new, by_x), k=k, graph=graph))
    if found is None:
        assert not varies(y) or max(abs(by_x), abs(by_y)) > 440
        return
    expected = naive.predict(X, y, new, k, graph)
    unit = by_y if y.dtype.kind == "f" else 0
    np.testing.assert_allclose(
        np.ldexp(found.mean, -unit), expected["mean"], rtol=1e-10, atol=1e-14
    )
    np.testing.assert_array_equal(found.n_neighbors, expected["n_neighbors"])
    if y.dtype.kind != "f":
        np.testing.assert_array_equal(found.label, expected["label"])
        np.testing.assert_allclose(found.probability, expected["probability"], atol=1e-14)


@given(problems(least=6, most=11))
def test_averaged_predictions_are_finite(problem):
    X, y, by_x, by_y = problem
    large = scaled(X, y, by_x, by_y)
    for make in (mksknn.select_k, mksknn.posterior):
        model = answer(lambda make=make: make(*large))
        if model is None:
            continue
        found = mksknn.predict(*large, large[0][:3], model)
        assert np.isfinite(found.mean).all() and np.isfinite(found.variance).all()
        assert (found.variance >= 0).all()


@given(problems(), st.sampled_from(["knn", "mutual", "symmetric"]), st.data())
def test_prepared_and_lists(problem, graph, data):
    """What is prepared answers as `predict` does, and lists are as good as the points."""
    X, y, by_x, by_y = problem
    k = data.draw(st.integers(1, len(X) - 1))
    large, large_y = scaled(X, y, by_x, by_y)
    ready = answer(lambda: mksknn.prepare(large, large_y, k=k, graph=graph))
    if ready is None:
        return
    plain = mksknn.predict(large, large_y, large[:3], k=k, graph=graph)
    np.testing.assert_array_equal(ready(large[:3]).mean, plain.mean)
    lists = mksknn.as_neighbors(mksknn.neighbors(large).indices)
    W = mksknn.knn_graph(large, k, graph=graph)
    assert (mksknn.knn_graph(lists, k, graph=graph) != W).nnz == 0


@settings(max_examples=15)
@given(problems(least=5, most=9))
def test_learned_metrics_are_finite(problem):
    X, y, by_x, by_y = problem
    large = scaled(X, y, by_x, by_y)
    metric = answer(lambda: mksknn.learn_metric(*large))
    if metric is None:
        assert not varies(y) or not varies(X) or max(abs(by_x), abs(by_y)) > 440
        return
    assert np.isfinite(metric.matrix).all() and np.isfinite(metric.relevance).all()
    model = mksknn.select_k(*large, metric=metric)
    assert np.isfinite(mksknn.predict(*large, large[0], model).mean).all()


@given(problems(), GRAPHS, st.data())
def test_saved_predictors_answer_as_before(problem, graph, data):
    X, y, by_x, by_y = problem
    k = data.draw(st.integers(1, len(X) - 1))
    large = scaled(X, y, by_x, by_y)
    ready = answer(lambda: mksknn.prepare(*large, k=k, graph=graph))
    if ready is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        ready.save(f"{folder}/saved.npz")
        again = mksknn.load_predictor(f"{folder}/saved.npz")
    one, other = ready(large[0][:3]), again(large[0][:3])
    np.testing.assert_array_equal(one.mean, other.mean)
    np.testing.assert_array_equal(one.n_neighbors, other.n_neighbors)


@settings(max_examples=10)
@given(problems(least=4, most=7))
def test_figures_are_drawn(problem):
    """Curves, maps and relevances of whatever has an answer; limits of the axes are finite."""
    X, y, by_x, by_y = problem
    X, y = scaled(np.column_stack([X, X])[:, :2], y, by_x, by_y)
    assume(y.ndim == 1)
    figures = [
        lambda: mksknn.plot_curve(mksknn.evidence_curve(X, y)),
        lambda: mksknn.plot_curve(mksknn.loo_curve(X, y)),
        lambda: mksknn.plot_curve(mksknn.posterior(X, y)),
        lambda: mksknn.plot_decision(X, y, k=2, graph="knn"),
        lambda: mksknn.plot_relevance(mksknn.learn_metric(X, y)),
    ]
    for figure in figures:
        ax = answer(figure)
        if ax is not None:
            ax.figure.canvas.draw()
            assert np.isfinite([*ax.get_xlim(), *ax.get_ylim()]).all()
        plt.close("all")


def test_no_public_function_is_left_out():
    source = Path(__file__).read_text()
    public = [name for name in mksknn.__all__ if inspect.isfunction(getattr(mksknn, name))]
    assert [name for name in public if f"mksknn.{name}" not in source] == ["show_config"]


@pytest.mark.skipif(cholmod() is None, reason="scikit-sparse is not installed")
@given(points(), st.integers(-400, 400))
def test_selected_inverse(X, exponent):
    L = naive.laplacian(naive.weights(X, 1, "symmetric"))
    A = scipy.sparse.csc_array(np.ldexp(L + 0.5 * np.eye(len(X)), exponent))
    found = np.ldexp(mksknn.selected_inverse(A).toarray(), exponent)
    expected = np.where(A.toarray() != 0.0, np.linalg.inv(L + 0.5 * np.eye(len(X))), 0.0)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


# ---------------------------------------------------------------- metamorphic

RNG = np.random.default_rng(3)
X0 = RNG.normal(size=(60, 3))
SMOOTH = X0[:, 0] + 0.4 * RNG.normal(size=60)
LABELS = (SMOOTH > 0.2).astype(int)


@pytest.mark.parametrize("y", [SMOOTH, LABELS], ids=["values", "classes"])
@pytest.mark.parametrize("graph", ["mutual", "symmetric"])
def test_the_order_of_points_does_not_matter(y, graph):
    order = RNG.permutation(60)
    one, other = (
        mksknn.select_k(X0, y, graph=graph),
        mksknn.select_k(X0[order], y[order], graph=graph),
    )
    assert one.k == other.k
    assert one.log_evidence == pytest.approx(other.log_evidence, rel=1e-11)
    loo, again = mksknn.loo_curve(X0, y), mksknn.loo_curve(X0[order], y[order])
    np.testing.assert_allclose(loo.error, again.error, rtol=1e-12)
    np.testing.assert_allclose(loo.log_score, again.log_score, rtol=1e-10)
    p, q = (
        mksknn.posterior(X0, y, graph=graph),
        mksknn.posterior(X0[order], y[order], graph=graph),
    )
    np.testing.assert_allclose(p.probability, q.probability, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("exponent", [-450, -3, 1, 20, 450])
def test_the_unit_of_length_does_not_matter(exponent):
    large = np.ldexp(X0, exponent)
    for y in (SMOOTH, LABELS):
        one, other = mksknn.select_k(X0, y), mksknn.select_k(large, y)
        assert (one.k, one.sigma0, one.sigma2) == (other.k, other.sigma0, other.sigma2)
        assert one.log_evidence == other.log_evidence
        mean = mksknn.predict(X0, y, X0[:9] + 0.25, one).mean
        np.testing.assert_array_equal(
            mksknn.predict(large, y, np.ldexp(X0[:9] + 0.25, exponent), other).mean, mean
        )


@pytest.mark.parametrize("exponent", [-400, -3, 1, 20, 400])
def test_the_unit_of_y_shifts_the_evidence(exponent):
    large = np.ldexp(SMOOTH, exponent)
    one, other = mksknn.evidence_curve(X0, SMOOTH), mksknn.evidence_curve(X0, large)
    moved = one.log_evidence - 60 * exponent * math.log(2.0)
    np.testing.assert_allclose(other.log_evidence, moved, rtol=1e-11)
    np.testing.assert_allclose(other.sigma2 / other.sigma0, one.sigma2 / one.sigma0, rtol=1e-5)
    assert mksknn.select_k(X0, large).k == mksknn.select_k(X0, SMOOTH).k
    p, q = mksknn.posterior(X0, SMOOTH), mksknn.posterior(X0, large)
    np.testing.assert_allclose(p.probability, q.probability, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("graph", ["mutual", "symmetric"])
def test_a_cluster_far_away_adds_its_own_evidence(graph):
    """Up to its size, no list reaches the other cluster: determinants and q add up."""
    far = np.vstack([X0, X0[:40] + 1e6])
    y = np.concatenate([SMOOTH, SMOOTH[:40]]) - SMOOTH.mean()
    options = {"sigma0": 0.7, "sigma2": 0.2, "graph": graph, "center": False}
    for k in (1, 5, 17, 39):
        whole = mksknn.log_evidence(far, y, k, **options)
        parts = mksknn.log_evidence(X0, y[:60], k, **options)
        parts += mksknn.log_evidence(X0[:40], y[60:], k, **options)
        assert whole == pytest.approx(parts, rel=1e-11)
    loo = mksknn.loo_curve(far, np.concatenate([LABELS, LABELS[:40]]), ks=[1, 7])
    near, other = (
        mksknn.loo_curve(X0, LABELS, ks=[1, 7]),
        mksknn.loo_curve(X0[:40], LABELS[:40], ks=[1, 7]),
    )
    np.testing.assert_allclose(100 * loo.error, 60 * near.error + 40 * other.error, rtol=1e-12)


def test_no_warning_is_left():
    """The filters of this file turn warnings into errors."""
    with pytest.raises(UserWarning):
        warnings.warn("seen", UserWarning, stacklevel=1)
