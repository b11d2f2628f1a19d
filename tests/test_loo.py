"""Leave-one-out: every k against the oracle, the log score against direct evaluation over r."""

import dataclasses
import math

import naive
import numba
import numpy as np
import pytest
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier

import mksknn
from mksknn import _loo
from mksknn._neighbors import rank
from mksknn._targets import encode
from mksknn._threads import limit_threads

GRAPHS = ("knn", "mutual", "symmetric")
BOUNDS = (1e-6, 1e6)
GRID = np.exp(np.linspace(math.log(BOUNDS[0]), math.log(BOUNDS[1]), 2001))


def points(kind, n, seed=0):
    rng = np.random.default_rng(seed)
    if kind == "random":
        return rng.normal(size=(n, 2))
    if kind == "lattice":  # every distance many times over
        return rng.permutation([[a, b] for a in range(8) for b in range(8)])[:n].astype(float)
    return rng.normal(size=(n // 3 + 1, 2))[rng.integers(0, n // 3 + 1, n)]  # duplicates


def targets(kind, X, seed=0):
    n = len(X)
    rng = np.random.default_rng(seed + 100)
    if kind == "bool":
        y = X[:, 0] + 0.5 * rng.normal(size=n) > np.median(X[:, 0])
        y[:2] = False, True
        return y
    if kind == "strings":
        y = np.array(["left", "mid", "right"])[rng.integers(0, 3, n)]
        y[:2] = "left", "mid"
        return y
    if kind == "ints":
        return np.concatenate([[7, -3], rng.choice([7, -3, 0, 11, 40], n - 2)])
    if kind == "one output":
        return X[:, 0] + 0.3 * rng.normal(size=n) + 5.0
    return np.column_stack([X, rng.normal(size=n)]) * [1.0, 100.0, 0.01] + [0.0, 7.0, 1.0]


def direct_scores(W, y, r, center=True):
    """S(r) for an array of r, from the weights, by the formulas of design section 4b."""
    r = np.atleast_1d(r)
    w = W.sum(axis=1)[:, None] + r
    if naive.resolve_task(y) == "regression":
        Y = naive.columns(y)
        Y = Y - Y.mean(axis=0) if center else Y
        n, m = Y.shape
        residual = ((Y[:, :, None] - (W @ Y)[:, :, None] / w[:, None, :]) ** 2).sum(axis=1)
        sigma0 = m * n / (w * residual).sum(axis=0)
        return 0.5 * m * np.log(sigma0 * w / (2 * math.pi)).sum(axis=0) - 0.5 * m * n
    labels, index = naive.class_indices(y)
    own = (W * (index[:, None] == index)).sum(axis=1)[:, None]
    return np.log((own + r / len(labels)) / w).sum(axis=0)


def check(X, y, graph, k_max=None, metric="euclidean", center=True):
    """Every k of the curve against the oracle and the grid."""
    curve = mksknn.loo_curve(X, y, graph=graph, k_max=k_max, metric=metric, center=center)
    D = naive.distance_matrix(X, metric)
    n = len(D)
    ks = np.arange(1, (n - 1 if k_max is None else k_max) + 1)
    assert np.array_equal(curve.k, ks)
    assert curve.graph == graph
    for k, error, score, ratio in zip(curve.k, curve.error, curve.log_score, curve.ratio):
        expected = naive.loo_error(D, y, graph, k, metric="precomputed", center=center)
        assert error == pytest.approx(expected, rel=1e-9, abs=1e-12)
        W = naive.weights(D, k, graph, "precomputed")
        assert BOUNDS[0] <= ratio <= BOUNDS[1]
        assert score == pytest.approx(
            direct_scores(W, y, ratio, center)[0], rel=1e-9, abs=1e-12 * n
        )
        assert score >= direct_scores(W, y, GRID, center).max() - 1e-9 * abs(score) - 1e-13 * n
    return curve


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kind", ["bool", "strings", "ints", "one output", "three outputs"])
@pytest.mark.parametrize("layout", ["random", "lattice", "duplicates"])
def test_every_k_against_the_oracle(layout, kind, graph):
    X = points(layout, 17)
    check(X, targets(kind, X), graph)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kind", ["bool", "ints", "one output", "three outputs"])
def test_short_lists(kind, graph):
    # k_max < n - 1: a symmetric neighbour may be one that the point's own list does not reach
    for layout in ("random", "lattice"):
        X = points(layout, 40, seed=3)
        y = targets(kind, X)
        curve = check(X, y, graph, k_max=4)
        full = mksknn.loo_curve(X, y, graph=graph)
        assert np.array_equal(curve.error, full.error[:4])
        assert np.array_equal(curve.log_score, full.log_score[:4])
        assert np.array_equal(curve.ratio, full.ratio[:4])


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("metric", ["manhattan", "chebyshev", "cosine", "precomputed"])
def test_metrics(metric, graph):
    X = points("random", 12, seed=5)
    data = naive.distance_matrix(X) if metric == "precomputed" else X
    for kind in ("strings", "one output"):
        check(data, targets(kind, X), graph, metric=metric)


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("n", [2, 3, 5])
def test_few_points(n, graph):
    X = points("lattice", n, seed=1)
    check(X, np.arange(n) % 2, graph)
    check(X, X[:, 0] + 0.1 * X[:, 1], graph)
    check(X, np.column_stack([X, -X]), graph, center=False)


@pytest.mark.parametrize("graph", GRAPHS)
def test_without_centring(graph):
    X = points("random", 15, seed=6)
    check(X, targets("one output", X), graph, center=False)
    check(X, targets("three outputs", X), graph, center=False)


def test_direct_evaluation_is_the_oracles():
    X = points("random", 12, seed=7)
    for kind in ("ints", "one output", "three outputs"):
        y = targets(kind, X)
        for graph in GRAPHS:
            W = naive.weights(X, 3, graph)
            for r in (1e-6, 0.3, 20.0, 1e6):
                expected = naive.loo_log_score(X, y, graph, 3, r)
                assert direct_scores(W, y, r)[0] == pytest.approx(expected, rel=1e-11)


@pytest.mark.uncompiled
def test_polished_ratio():
    # the ratio itself, where the maximum is inside the bounds
    X = points("random", 40, seed=8)
    y = targets("bool", X)
    curve = mksknn.loo_curve(X, y, graph="symmetric")
    inside = np.flatnonzero((curve.ratio > 1e-3) & (curve.ratio < 1e3))
    assert len(inside) > 3
    for a in inside[::4]:
        value, ratio = naive.best_loo_log_score(X, y, "symmetric", int(curve.k[a]), points=101)
        assert curve.log_score[a] == pytest.approx(value, rel=1e-10)
        assert curve.ratio[a] == pytest.approx(ratio, rel=1e-4)


# ---------------------------------------------------------------- several local maxima


def cliques(pairs, triples, large):
    """Distances between groups of which none but the largest is the other's neighbour.

    At k = large - 1 the mutual graph is a set of cliques, the groups: the largest group's points
    use all their k on each other, and everyone else ranks them before any other group.
    """
    group = np.repeat(np.arange(pairs + triples + 1), [2] * pairs + [3] * triples + [large])
    last = pairs + triples
    D = np.where(group[:, None] == group, 1.0, 100.0)
    D[(group[:, None] == last) ^ (group == last)] = 10.0
    D += np.abs(np.subtract.outer(np.arange(len(group)), np.arange(len(group)))) * 1e-3
    np.fill_diagonal(D, 0.0)
    return D, group


@pytest.mark.uncompiled
# Uphill from r = 1 ends at the maximum inside, which is the global one in the second case only.
@pytest.mark.parametrize(
    ("large", "counts", "inside"), [(53, [26, 27], False), (85, [45, 40], True)]
)
def test_two_maxima(large, counts, inside):
    # pairs that disagree want r up, triples that agree want it down, the large group wants it up
    D, group = cliques(2, 2, large)
    y = np.array([0, 1] * 2 + [0] * 3 + [1] * 3 + [0] * counts[0] + [1] * counts[1])
    W = naive.weights(D, large - 1, "mutual", "precomputed")
    assert np.array_equal(W, (group[:, None] == group) & ~np.eye(len(group), dtype=bool))
    scores = direct_scores(W, y, GRID)
    rises = np.diff(scores) > 0
    assert (rises[:-1] & ~rises[1:]).sum() + rises[-1] == 2  # a maximum inside, one at the end
    curve = mksknn.loo_curve(D, y, graph="mutual", metric="precomputed", k_max=large - 1)
    score, ratio = curve.log_score[-1], curve.ratio[-1]
    assert score >= scores.max() - 1e-9 * abs(score)
    assert ratio == pytest.approx(GRID[scores.argmax()], rel=0.02)
    assert (ratio < 1e6) == inside


def random_histograms(rng):
    """Votes and weights over orders of magnitude: one in thirty has several local maxima."""
    J = int(rng.integers(2, 6))
    size = int(10 ** rng.uniform(0.5, 3))
    x, w, h = [], [], []
    groups = int(rng.integers(1, 8))
    shares = rng.multinomial(size, rng.dirichlet(np.full(groups, 0.5)))
    for weight, count in zip(np.round(10 ** rng.uniform(-1, 3.5, groups)), shares):
        votes = 0, weight, round(weight * rng.random())
        for v, c in zip(votes, rng.multinomial(count, rng.dirichlet(np.full(3, 0.3)))):
            if c:
                x.append(J * v)
                w.append(weight)
                h.append(c)
    return np.array(x, float), np.array(w, float), np.array(h, float)


def histogram_scores(x, w, h, r):
    return (h[:, None] * np.log((x[:, None] + r) / (w[:, None] + r))).sum(axis=0)


@pytest.mark.uncompiled
def test_many_maxima(monkeypatch):
    rng = np.random.default_rng(9)
    several, evaluate, looked = 0, _loo._evaluate, []

    def counting(f, t, node):
        looked.append(t)
        evaluate(f, t, node)

    if numba.config.DISABLE_JIT:
        monkeypatch.setattr(_loo, "_evaluate", counting)
    for _ in range(1500):
        x, w, h = random_histograms(rng)
        scores = histogram_scores(x, w, h, GRID)
        rises = np.diff(scores) > 0
        several += (rises[:-1] & ~rises[1:]).sum() + rises[-1] + ~rises[0] > 1
        start = rng.uniform(-14, 14)
        terms = _loo._terms(x, h, w, h, np.empty((0, 3)), *BOUNDS)
        looked.clear()
        best, ratio = _loo._branch_and_bound(terms, 0.0, start)
        slack = 1e-9 * abs(best) + 1e-12 * h.sum()
        assert best >= scores.max() - slack
        assert best == pytest.approx(histogram_scores(x, w, h, ratio)[0], abs=slack)
        assert len(looked) < 200
    assert several > 20


@pytest.mark.uncompiled
def test_bounds_hold():
    rng = np.random.default_rng(10)
    concave = 0
    for _ in range(1000):
        x, w, h = random_histograms(rng)
        left = rng.uniform(-13.8, 13.0)
        right = min(left + 10 ** rng.uniform(-3, 1.3), 13.8)
        terms = _loo._terms(x, h, w, h, np.empty((0, 3)), *BOUNDS)
        nodes = np.empty((2, _loo._COLUMNS))
        for t, node in zip((left, right), nodes):
            _loo._evaluate(terms, t, node)
        r = np.exp(np.linspace(left, right, 201))
        scores = histogram_scores(x, w, h, r)
        slack = 1e-12 * h.sum()
        scale = max((w * h).sum() / h.sum(), 1.0)
        bound = _loo._bound(*nodes, h.sum(), scale)
        assert bound >= scores.max() - slack
        assert bound <= scores.max() + h.sum() * (right - left) ** 2
        if _loo._concave(*nodes):
            concave += 1
            # one maximum: up, then down
            falls = np.diff(scores) < -slack
            assert not (np.diff(scores)[np.argmax(falls) :] > slack).any() or not falls.any()
    assert concave > 550  # of 596 that are


@pytest.mark.uncompiled
def test_bounds_hold_however_large_the_ratio():
    rng = np.random.default_rng(12)
    for _ in range(500):
        x, w, h = random_histograms(rng)
        left, right = rng.uniform(-5.0, 5.0), rng.uniform(20.0, 690.0)
        terms = _loo._terms(x, h, w, h, np.empty((0, 3)), 1e-10, 1e300)
        nodes = np.empty((2, _loo._COLUMNS))
        for t, node in zip((left, right), nodes):
            _loo._evaluate(terms, t, node)
        scores = histogram_scores(x, w, h, np.exp(np.linspace(left, right, 301)))
        bound = _loo._bound(*nodes, h.sum(), max((w * h).sum() / h.sum(), 1.0))
        assert bound >= scores.max() - 1e-12 * h.sum()


@pytest.mark.uncompiled
def test_regression_has_one_maximum():
    # the claim that lets the regression search climb: checked over graphs, targets and all k
    for seed in range(4):
        X = points(("random", "lattice", "duplicates", "random")[seed], 24, seed)
        y = targets(("one output", "three outputs")[seed % 2], X, seed)
        for graph in GRAPHS:
            for k in range(1, 24, 3):
                scores = direct_scores(naive.weights(X, k, graph), y, GRID)
                steps = np.diff(scores)
                steps = steps[np.abs(steps) > 1e-10 * np.abs(scores).max()] > 0
                assert not (~steps[:-1] & steps[1:]).any()


# ---------------------------------------------------------------- special cases


@pytest.mark.uncompiled
def test_score_that_does_not_depend_on_the_ratio():
    # a square: one of the two nearest has the point's own class, so every probability is 1/2
    curve = mksknn.loo_curve([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [0, 0, 1, 1])
    assert curve.log_score[1] == pytest.approx(-4 * math.log(2), rel=1e-15)
    assert curve.ratio[1] == 1e6


@pytest.mark.uncompiled
def test_clean_classes_push_the_ratio_down():
    X = np.array([[0.0], [1.0], [2.1], [100.0], [101.0], [102.1]])
    curve = mksknn.loo_curve(X, list("aaabbb"), graph="symmetric", ratio_bounds=(1e-3, 1.0))
    assert curve.error[:2].tolist() == [0.0, 0.0]
    assert curve.ratio[:2].tolist() == [1e-3, 1e-3]
    assert (curve.log_score < 0).all()
    assert curve.best_k == 1
    assert curve.best_k_log == 2


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", GRAPHS)
def test_exact_fit_stays_finite(graph):
    X = np.array([[0.0], [1.0], [100.0], [101.0]])
    y = np.array([1.0, 1.0, 2.0, 2.0])
    for low in (1e-6, 1e-300):
        curve = mksknn.loo_curve(X, y, graph=graph, ratio_bounds=(low, 1e6), k_max=1)
        assert curve.error.tolist() == [0.0]
        assert curve.ratio[0] <= 1e-100 or curve.ratio[0] == low
        assert np.isfinite(curve.log_score).all()


@pytest.mark.parametrize("graph", GRAPHS)
def test_extreme_ratio_bounds_and_scales(graph):
    X = points("random", 20, seed=11)
    for kind in ("ints", "three outputs"):
        y = targets(kind, X)
        wide = mksknn.loo_curve(X, y, graph=graph, ratio_bounds=(1e-250, 1e250))
        assert np.isfinite(wide.log_score).all()
        usual = mksknn.loo_curve(X, y, graph=graph)
        assert (wide.log_score >= usual.log_score - 1e-9 * np.abs(usual.log_score)).all()
        narrow = mksknn.loo_curve(X, y, graph=graph, ratio_bounds=(0.5, 0.6))
        assert ((narrow.ratio >= 0.5) & (narrow.ratio <= 0.6)).all()
        assert (narrow.log_score <= usual.log_score + 1e-9 * np.abs(usual.log_score)).all()
    y = targets("one output", X)
    usual = mksknn.loo_curve(X, y, graph=graph)
    for scale in (2.0**-400, 2.0**400):
        scaled = mksknn.loo_curve(X, y * scale, graph=graph)
        assert np.allclose(scaled.error, usual.error * scale * scale, rtol=1e-12, atol=0)
        assert np.allclose(scaled.log_score, usual.log_score - 20 * math.log(scale), rtol=1e-12)
        assert np.allclose(scaled.ratio, usual.ratio, rtol=1e-6)


@pytest.mark.uncompiled
def test_best_k_takes_the_smallest_of_equals():
    k = np.arange(1, 6)
    error = np.array([0.3, 0.1, 0.2, 0.1, 0.1])
    score = np.array([-5.0, -3.0, -2.0, -2.0, -4.0])
    curve = mksknn.LooCurve(k, error, score, np.ones(5), "mutual")
    assert (curve.best_k, curve.best_k_log) == (2, 3)
    assert isinstance(curve.best_k, int)
    text = repr(curve)
    assert "mutual" in text
    assert "best_k=2" in text
    assert "best_k_log=3" in text
    assert curve == curve
    with pytest.raises(dataclasses.FrozenInstanceError):
        curve.k = None


@pytest.mark.parametrize("graph", GRAPHS)
def test_errors_without_log_scores(graph):
    X = points("random", 30, seed=12)
    ranked = rank(X, 29, "euclidean")
    for kind in ("strings", "three outputs"):
        y = targets(kind, X)
        full = mksknn.loo_curve(X, y, graph=graph)
        encoded = encode(y, 30, "auto", "auto", True)
        error, *rest = _loo.loo_scores(ranked, encoded, graph, BOUNDS, log_score=False)
        assert np.array_equal(error, full.error)
        assert [len(part) for part in rest] == [0, 0]  # log scores and ratios
    constant = encode(np.ones(30), 30, "auto", "auto", True)
    assert not _loo.loo_scores(ranked, constant, graph, BOUNDS, log_score=False)[0].any()


@pytest.mark.parametrize("graph", GRAPHS)
def test_threads_do_not_matter(graph):
    X = points("random", 150, seed=13)
    for kind in ("ints", "one output"):
        y = targets(kind, X)
        curves = []
        for threads in (1, 2):
            with limit_threads(threads):
                curves.append(mksknn.loo_curve(X, y, graph=graph))
        for name in ("k", "error", "log_score", "ratio"):
            assert np.array_equal(*(getattr(curve, name) for curve in curves))


@pytest.mark.parametrize("graph", GRAPHS)
def test_batches_do_not_matter(graph):
    """Of 1,100 points all k take several batches, the first 400 a single one."""
    X = points("random", 1100, seed=14)
    for kind in ("ints", "one output"):
        y = targets(kind, X)
        curves = [mksknn.loo_curve(X, y, graph=graph, k_max=k_max) for k_max in (400, None)]
        for name in ("k", "error", "log_score", "ratio"):
            assert np.array_equal(*(getattr(curve, name)[:400] for curve in curves)), name


@pytest.mark.parametrize("entries", [1, 30, 10**6])
def test_lists_are_counted_in_blocks(entries, monkeypatch):
    monkeypatch.setattr(_loo, "_BATCH_ENTRIES", entries)
    indices = mksknn.neighbors(points("random", 20), 7).indices
    expected = max((indices == i).sum() for i in range(20))
    assert _loo._most_listed(indices) == expected > 7


def test_scikit_learn_on_new_thyroid():
    data = mksknn.datasets.load_new_thyroid()
    X = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0)
    y = data.y
    n = len(y)
    curve = mksknn.loo_curve(X, y)
    ranked = mksknn.neighbors(X)
    labels, index = naive.class_indices(y)
    for k in (1, 2, 5, 31, 213):
        # the brute-force route would start OpenMP threads for every single prediction
        model = KNeighborsClassifier(k, algorithm="kd_tree")
        theirs = cross_val_predict(model, X, y, cv=LeaveOneOut())
        wrong = clear = 0
        for i in range(n):
            votes = np.bincount(index[ranked.indices[i, :k]], minlength=len(labels))
            # no tie decides: one class leads, and no other point is as near as the last neighbour
            last, after = ranked.distances[i, k - 1 : k + 1]
            if np.sum(votes == votes.max()) == 1 and after > last * (1 + 1e-9):
                assert theirs[i] == labels[votes.argmax()]
                wrong += theirs[i] != y[i]
                clear += 1
            else:
                w = np.zeros(n)
                w[ranked.indices[i, :k]] = 1
                winner = naive.tie_break(votes, w, index, ranked.indices[i], "nearest")
                wrong += winner != index[i]
        assert clear > 0.8 * n
        assert curve.error[k - 1] == wrong / n


# ---------------------------------------------------------------- input


def test_score_near_zero_keeps_its_digits():
    # two clean blobs: every probability is 1 - r / (2 (w + r)), r at its lower bound
    X = np.concatenate([points("random", 150, seed=15), points("random", 150, seed=16) + 1000.0])
    curve = mksknn.loo_curve(X, np.repeat([0, 1], 150), graph="symmetric", k_max=100)
    assert (curve.ratio == 1e-6).all()
    for k in (1, 10, 100):
        w = mksknn.knn_graph(X, k, graph="symmetric").sum(axis=1)
        expected = np.log1p(-0.5e-6 / (w + 1e-6)).sum()
        assert curve.log_score[k - 1] == pytest.approx(expected, rel=1e-12)


def test_input_types_are_left_alone():
    X = points("random", 20, seed=14)
    y = targets("one output", X)
    expected = mksknn.loo_curve(X, y)
    frozen = X.copy()
    frozen.flags.writeable = False
    for data, values in ((frozen, y), (np.asfortranarray(X), y), (X.tolist(), y.tolist())):
        curve = mksknn.loo_curve(data, values)
        assert np.array_equal(curve.log_score, expected.log_score)
    single = X.astype(np.float32)
    assert np.isfinite(mksknn.loo_curve(single, y.astype(np.float32)).log_score).all()
    assert np.array_equal(X, frozen)


@pytest.mark.uncompiled
@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"graph": "nearest"}, ValueError, "graph must be one of"),
        ({"graph": 3}, TypeError, "graph must be one of"),
        ({"metric": "l2"}, ValueError, "metric must be one of"),
        ({"task": "ranking"}, ValueError, "task must be one of"),
        ({"center": 1}, TypeError, "center must be True or False"),
        ({"k_max": 0}, ValueError, "k_max must be from 1 to 3"),
        ({"k_max": 4}, ValueError, "k_max must be from 1 to 3"),
        ({"k_max": 2.0}, TypeError, "k_max must be an integer"),
        ({"ratio_bounds": (1.0, 0.1)}, ValueError, "ratio_bounds must have low < high"),
        ({"ratio_bounds": (0.0, 1.0)}, ValueError, "ratio_bounds"),
        ({"ratio_bounds": 3}, TypeError, "ratio_bounds must be two numbers"),
    ],
)
def test_bad_options(options, kind, message):
    with pytest.raises(kind, match=message.replace("[", r"\[")):
        mksknn.loo_curve([[0.0], [1.0], [2.0], [4.0]], [0, 1, 0, 1], **options)


@pytest.mark.uncompiled
@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([[0.0], [math.nan]], [0, 1], "X must be finite"),
        ([[0.0]], [0], "X must have at least 2 rows"),
        ([[0.0], [1.0]], [0, 1, 1], "y must have one entry"),
        ([[0.0], [1.0]], [1, 1], "y must have at least 2 classes"),
        ([[0.0], [1.0]], [1.0, math.inf], "y must be finite"),
        ([[0.0], [1.0], [2.0]], [0.1, 0.1, 0.1], "y must not be constant"),
        ([[0.0], [1.0]], [0.0, 0.0], "y must not be constant"),
        ([[0.0], [1.0]], [1e200, -1e200], "y must have squares that fit"),
    ],
)
def test_bad_data(X, y, message):
    with pytest.raises(ValueError, match=message):
        mksknn.loo_curve(X, y)
    if message == "y must not be constant":
        with pytest.raises(ValueError, match=message):
            mksknn.loo_curve(X, np.column_stack([y, y]), graph="mutual")


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", ["knn", "mutual", "symmetric"])
def test_wider_bounds_find_no_less(graph):
    """From k to k a search goes on where the last one ended: not where all is flat to rounding."""
    for seed in range(30, 60):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(8, 20))
        X = rng.integers(0, 3, size=(n, 1)).astype(float)
        y = 0.1 * rng.normal(size=n)
        near = mksknn.loo_curve(X, y, graph=graph)
        for bounds in ((1e-6, 1e100), (1e-100, 1e6), (1e-100, 1e100)):
            far = mksknn.loo_curve(X, y, graph=graph, ratio_bounds=bounds)
            assert (far.log_score >= near.log_score - 1e-9 * np.abs(near.log_score)).all()


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", ["knn", "mutual", "symmetric"])
def test_wider_bounds_find_no_less_of_classes(graph):
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(6, 20))
        X = rng.integers(0, 1 + seed % 3, size=(n, 1)).astype(float)
        y = rng.integers(0, int(rng.integers(2, n)), size=n)
        y[:2] = 0, 1
        near = mksknn.loo_curve(X, y, graph=graph)
        for bounds in ((1e-6, 1e20), (1e-30, 1e30), (1e-6, 1e300), (1e-300, 1e300)):
            far = mksknn.loo_curve(X, y, graph=graph, ratio_bounds=bounds)
            assert (far.log_score >= near.log_score - 1e-9 * np.abs(near.log_score)).all()


@pytest.mark.parametrize("graph", ["knn", "mutual", "symmetric"])
def test_variances_are_as_large_as_errors(graph):
    """By leave-one-out, whatever the graph: its sigma0 is that of its own weights."""
    rng = np.random.default_rng(0)
    X, new = rng.uniform(0.0, 10.0, (2, 600, 1))
    y, expected = (np.sin(x[:, 0]) + 0.5 * rng.normal(size=600) for x in (X, new))
    for model in (
        mksknn.select_k(X, y, criterion="loo_log", graph=graph),
        mksknn.posterior(X, y, weights="loo_log", graph=graph),
    ):
        found = mksknn.predict(X, y, new, model)
        share = ((expected - found.mean) ** 2).mean() / found.variance.mean()
        assert 0.85 < share < 1.15
