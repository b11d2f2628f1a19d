"""predict against the oracle, scikit-learn and the theorems."""

import dataclasses
import itertools
import re

import naive
import numpy as np
import pandas as pd
import pytest
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

import mksknn
from mksknn._queries import Index
from mksknn._targets import encode
from mksknn._threads import limit_threads
from mksknn._votes import Blend, combine

GRAPHS = ("knn", "mutual", "symmetric")
METRICS = ("euclidean", "manhattan", "chebyshev", "cosine", "precomputed")
FIELDS = ("label", "probability", "mean", "variance", "n_neighbors")


def cloud(kind="normal", n=40, n_new=25, d=2, seed=0):
    """Training points and queries; some queries are training points."""
    rng = np.random.default_rng(seed)
    if kind == "lattice":  # ties, duplicates and equidistant queries, in exact arithmetic
        X, new = rng.integers(1, 5, (n, d)).astype(float), rng.integers(0, 11, (n_new, d)) / 2 + 0.5
    else:
        X, new = rng.normal(size=(n, d)), rng.normal(size=(n_new, d))
    new[: n_new // 5] = X[: n_new // 5]
    return X, new


def targets(kind, n, seed=0):
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 3, n)
    classes[:3] = 0, 1, 2
    return {
        "string": np.array(["red", "green", "violet"])[classes],
        "object": np.array(["red", "green", "violet"], dtype=object)[classes],
        "int": 7 - 3 * classes,
        "bool": classes > 0,
        "one output": rng.normal(size=n) + 5.0,
        "one column": rng.normal(size=(n, 1)) + 5.0,
        "three outputs": rng.normal(size=(n, 3)) + 5.0,
    }[kind]


def assert_same(got, expected):
    for field in FIELDS:
        mine, theirs = getattr(got, field), expected[field]
        if theirs is None:
            assert mine is None, field
        elif field in ("label", "n_neighbors"):
            assert mine.shape == theirs.shape
            assert mine.tolist() == theirs.tolist(), field
        else:
            assert mine.shape == theirs.shape, field
            np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-14, err_msg=field)
    if got.probability is not None:
        np.testing.assert_allclose(got.probability.sum(axis=1), 1.0, rtol=1e-14)


def sigma_choices(graph):
    plain = {"sigma0": None, "sigma2": None}
    return [plain] if graph == "knn" else [plain, {"sigma0": 0.7, "sigma2": 0.2}]


# ------------------------------------------------------------------------------ against the oracle


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kind", ["string", "object", "int", "bool"])
@pytest.mark.parametrize("points", ["normal", "lattice"])
def test_classes(points, kind, graph):
    X, new = cloud(points)
    y = targets(kind, len(X))
    for k, ties, sigmas in itertools.product(
        (1, 2, 6, len(X) - 1), ("nearest", "lowest"), sigma_choices(graph)
    ):
        got = mksknn.predict(X, y, new, k=k, graph=graph, ties=ties, **sigmas)
        assert_same(got, naive.predict(X, y, new, k, graph, ties=ties, **sigmas))
        assert got.label.dtype.kind == ("U" if kind == "object" else y.dtype.kind)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kind", ["one output", "one column", "three outputs"])
@pytest.mark.parametrize("points", ["normal", "lattice"])
def test_regression(points, kind, graph):
    X, new = cloud(points)
    y = targets(kind, len(X))
    for k, center, sigmas in itertools.product(
        (1, 5, len(X) - 1), (True, False), sigma_choices(graph)
    ):
        got = mksknn.predict(X, y, new, k=k, graph=graph, center=center, **sigmas)
        assert_same(got, naive.predict(X, y, new, k, graph, center=center, **sigmas))


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("points", ["normal", "lattice"])
def test_metrics(points, metric, graph):
    X, new = cloud(points, d=3)
    y = targets("string", len(X))
    if metric == "precomputed":
        X, new = naive.distance_matrix(X), naive.cross_distances(new, X)
    for k in (1, 7):
        got = mksknn.predict(X, y, new, k=k, graph=graph, metric=metric)
        assert_same(got, naive.predict(X, y, new, k, graph, metric=metric))


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("n_new", [0, 1])
@pytest.mark.parametrize("kind", ["string", "one output", "three outputs"])
def test_few_queries(kind, n_new, graph):
    X, new = cloud()
    y = targets(kind, len(X))
    for sigmas in sigma_choices(graph):
        got = mksknn.predict(X, y, new[:n_new], k=4, graph=graph, **sigmas)
        expected = naive.predict(X, y, new[:n_new], 4, graph, **sigmas)
        if n_new:
            assert_same(got, expected)
        for field in FIELDS:
            assert (getattr(got, field) is None) == (expected[field] is None)
        assert got.mean.shape == {"string": (n_new, 3), "one output": (n_new,)}.get(
            kind, (n_new, 3)
        )
        assert got.n_neighbors.shape == (n_new,)
        if kind == "string":
            assert got.label.shape == (n_new,) and got.label.dtype == y.dtype
            assert got.probability.shape == (n_new, 3)
    assert mksknn.predict(X, y, [], k=4, graph=graph).n_neighbors.shape == (0,)


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", GRAPHS)
def test_few_points(graph):
    X, new = cloud("lattice", 12, 8)
    for kind in ("int", "three outputs"):
        y = targets(kind, len(X))
        for sigmas in sigma_choices(graph):
            got = mksknn.predict(X, y, new, k=3, graph=graph, **sigmas)
            assert_same(got, naive.predict(X, y, new, 3, graph, **sigmas))


def test_two_points():
    got = mksknn.predict([[0.0], [1.0]], ["a", "b"], [[0.5], [0.4], [3.0]], k=1, graph="mutual")
    assert got.label.tolist() == ["a", "a", "b"]
    assert got.n_neighbors.tolist() == [1, 1, 0]
    assert got.probability.tolist() == [[1, 0], [1, 0], [0.5, 0.5]]


# ------------------------------------------------------------------------------ rules, by hand


def test_the_symmetric_graph_counts_adopters():
    """The far point has the query as its nearest, while the query has two nearer ones."""
    X, y = [[0.0], [0.2], [5.0]], ["near", "near", "far"]
    got = mksknn.predict(X, y, [[1.5]], k=2, graph="symmetric", sigma0=1.0, sigma2=1.0)
    # 0.0 and 0.2 both have it second (nearer than 5.0), and so has 5.0, which only adopts
    assert got.n_neighbors.tolist() == [3]
    np.testing.assert_allclose(got.mean, [[1 / 6, 4 / 6]])
    np.testing.assert_allclose(got.variance, [1 / 6])


def test_without_neighbours():
    X, new = [[0.0], [1.0], [2.0], [3.0]], [[9.0]]
    values = [1.0, 2.0, 3.0, 8.0]
    for center, expected in ((True, 3.5), (False, 0.0)):
        for sigmas in ({}, {"sigma0": 2.0, "sigma2": 0.5}):
            got = mksknn.predict(X, values, new, k=1, graph="mutual", center=center, **sigmas)
            assert got.mean.tolist() == [expected]
            assert got.n_neighbors.tolist() == [0]
            assert got.variance is None if not sigmas else got.variance.tolist() == [2.0]
    labels = ["a", "b", "b", "c"]
    for ties, label in (("nearest", "c"), ("lowest", "a")):
        got = mksknn.predict(X, labels, new, k=1, graph="mutual", ties=ties)
        assert got.label.tolist() == [label]
        assert got.mean.tolist() == [[0.0, 0.0, 0.0]]
        np.testing.assert_allclose(got.probability, 1 / 3)


def test_ties_by_hand():
    X, y = [[1.0], [2.0], [-2.0], [-3.0]], ["c", "b", "b", "c"]
    # from 0: c at 1, b at 2 twice, c at 3: two votes each
    for ties, label in (("nearest", "c"), ("lowest", "b")):
        assert mksknn.predict(X, y, [[0.0]], k=3, graph="knn", ties=ties).label[0] == "b"
        X4 = [*X, [50.0]]
        got = mksknn.predict(X4, [*y, "a"], [[0.0]], k=4, graph="knn", ties=ties)
        assert got.label[0] == label


def test_votes_decide_also_where_the_ratio_is_huge():
    X, new = cloud()
    y = targets("string", len(X))
    plain = mksknn.predict(X, y, new, k=5)
    drowned = mksknn.predict(X, y, new, k=5, sigma0=1e-200, sigma2=1e80)
    assert drowned.label.tolist() == plain.label.tolist()
    np.testing.assert_allclose(drowned.probability, 1 / 3)


# ------------------------------------------------------------------------------ theorems and peers


@pytest.mark.parametrize("graph", ["mutual", "symmetric"])
def test_the_precision_is_positive_definite(graph):
    X, _ = cloud("lattice")
    for k in (1, 5, len(X) - 1):
        W = mksknn.knn_graph(X, k, graph=graph).toarray()
        L = np.diag(W.sum(axis=1)) - W
        lowest = np.linalg.eigvalsh(3.0 * L + 1e-3 * np.eye(len(X)))[0]
        assert lowest == pytest.approx(1e-3, rel=1e-6)


@pytest.mark.parametrize("graph", ["mutual", "symmetric"])
@pytest.mark.parametrize("kind", ["string", "one output"])
def test_the_mean_tends_to_the_plain_estimate(kind, graph):
    X, new = cloud()
    y = targets(kind, len(X))
    plain = mksknn.predict(X, y, new, k=6, graph=graph)
    errors = []
    for ratio in (1e-2, 1e-5, 1e-8):
        got = mksknn.predict(X, y, new, k=6, graph=graph, sigma0=1.0, sigma2=ratio)
        linked = got.n_neighbors > 0
        errors.append(np.abs(got.mean - plain.mean)[linked].max())
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-7


def test_the_mean_is_the_conditional_mean_of_the_process():
    """The new point as one more node of the graph, conditioned on the targets of the others."""
    X, new = cloud(n_new=6)
    y = targets("one output", len(X))
    sigma0, sigma2 = 0.8, 0.3
    got = mksknn.predict(X, y, new, k=4, sigma0=sigma0, sigma2=sigma2, center=False)
    D, d_new = naive.distance_matrix(X), naive.cross_distances(new, X)
    for a, d in enumerate(d_new):
        w = naive.query_weights(D, d, 4, "symmetric")
        joint = np.zeros((len(X) + 1, len(X) + 1))
        joint[-1, :-1] = joint[:-1, -1] = w
        joint[:-1, :-1] = naive.weights(X, 4, "symmetric")
        P = sigma0 * naive.laplacian(joint) + sigma2 * np.eye(len(joint))
        assert got.mean[a] == pytest.approx(-P[-1, :-1] @ y / P[-1, -1], rel=1e-12)
        assert got.variance[a] == pytest.approx(1 / P[-1, -1], rel=1e-12)


@pytest.mark.parametrize("d", [3, 10])
def test_knn_equals_scikit_learn(d):
    X, new = cloud(n=700, n_new=300, d=d)
    new += 1e-3
    for kind, k in itertools.product(("bool", "string"), (1, 7, 15)):
        y = targets(kind, len(X))
        got = mksknn.predict(X, y, new, k=k, graph="knn")
        peer = KNeighborsClassifier(k).fit(X, y)
        assert np.array_equal(got.probability, peer.predict_proba(new))
        votes = np.sort(got.probability, axis=1)
        clear = votes[:, -1] > votes[:, -2]
        assert clear.all() if kind == "bool" else clear.mean() > 0.5
        assert np.array_equal(got.label[clear], peer.predict(new)[clear])
    y = targets("three outputs", len(X))
    expected = KNeighborsRegressor(9).fit(X, y).predict(new)
    np.testing.assert_allclose(mksknn.predict(X, y, new, k=9, graph="knn").mean, expected)


# ------------------------------------------------------------------------------ models


def selection(**changes):
    fields = {
        "k": 5,
        "sigma0": 0.7,
        "sigma2": 0.2,
        "log_evidence": -1.0,
        "graph": "mutual",
        "formulation": "II",
        "criterion": "evidence",
        "certified": True,
        "evaluated": np.array([5]),
        "at_bound": False,
        "metric": "manhattan",
        "center": True,
    }
    return mksknn.Selection(**{**fields, **changes})


def test_a_selection_is_k_graph_metric_and_sigmas():
    X, new = cloud()
    y = targets("string", len(X))
    model = selection()
    options = {"sigma0": 0.7, "sigma2": 0.2, "graph": "mutual", "metric": "manhattan"}
    expected = dataclasses.asdict(mksknn.predict(X, y, new, k=5, **options))
    assert_same(mksknn.predict(X, y, new, model), expected)
    assert_same(mksknn.predict(X, y, new, model, k=5, **options), expected)
    plain = selection(sigma0=None, sigma2=None, criterion="loo", graph="knn")
    expected = mksknn.predict(X, y, new, k=5, graph="knn", metric="manhattan")
    assert_same(mksknn.predict(X, y, new, plain), dataclasses.asdict(expected))
    # the log score gives k-NN a ratio too, although no evidence
    shrunk = mksknn.predict(X, y, new, selection(graph="knn", criterion="loo_log"))
    assert shrunk.label.tolist() == expected.label.tolist()
    assert (shrunk.probability > 0).all() and (shrunk.probability < 1).all()


def test_a_selection_remembers_centring():
    X, new = cloud()
    y = targets("one output", len(X))
    model = selection(formulation="regression", center=False)
    expected = naive.predict(X, y, new, 5, "mutual", 0.7, 0.2, center=False, metric="manhattan")
    assert_same(mksknn.predict(X, y, new, model), expected)


def test_formulations_give_the_same_labels_for_the_same_k():
    X, new = cloud()
    y = targets("string", len(X))
    found = {}
    for formulation in ("I", "II"):
        best = mksknn.select_k(X, y, formulation=formulation, ks=[6])
        assert best.k == 6 and best.formulation == formulation
        found[formulation] = mksknn.predict(X, y, new, best)
    assert found["I"].label.tolist() == found["II"].label.tolist()
    assert not np.array_equal(found["I"].variance, found["II"].variance)


# ------------------------------------------------------------------------------ averages


def parts(seed=0):
    """(k, r, weight, E[1/sigma0]) as the oracle takes them, and as a blend."""
    rng = np.random.default_rng(seed)
    ks, sizes = [2, 3, 9, 20], [3, 1, 4, 2]
    weights = np.split(rng.dirichlet(np.ones(sum(sizes))), np.cumsum(sizes)[:-1])
    listed = [
        (k, rng.lognormal(size=size), weight, rng.lognormal(size=size))
        for k, size, weight in zip(ks, sizes, weights)
    ]
    flat = [
        (k, r, inverse, w)
        for k, ratios, ws, inverses in listed
        for r, w, inverse in zip(ratios, ws, inverses)
    ]
    return listed, Blend.many(*map(np.array, zip(*flat, (30, 1.0, 1.0, 0.0))))


def averaged(X, y, new, blend, graph, ties):
    """What a predictor with any blend says."""
    plain = mksknn.prepare(X, y, k=1, graph=graph, ties=ties)
    index = Index(X, blend.ks, graph, "euclidean")
    return dataclasses.replace(plain, blend=blend, index=index)(new)


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kind", ["string", "bool", "one output", "three outputs"])
@pytest.mark.parametrize("ties", ["nearest", "lowest"])
def test_averages(kind, graph, ties):
    X, new = cloud("lattice")
    y = targets(kind, len(X))
    listed, blend = parts()
    assert blend.k.max() == 20  # what has no weight is dropped
    got = averaged(X, y, new, blend, graph, ties)
    expected = naive.mixture_predict(X, y, new, listed, graph, ties, "auto", True, "euclidean")
    expected["variance"] = expected["variance"].reshape(len(new), -1).mean(axis=1)
    touched = [naive.predict(X, y, new, k, graph)["n_neighbors"] for k, *_ in listed]
    expected["n_neighbors"] = np.max(touched, axis=0)
    assert_same(got, expected)


def test_an_average_of_equals_is_each_of_them():
    X, new = cloud()
    y = targets("string", len(X))
    k, ratio, inverse = (np.full(3, value) for value in (6, 0.5, 2.0))
    same = Blend.many(k, ratio, inverse, np.array([0.2, 0.3, 0.5]))
    got = averaged(X, y, new, same, "symmetric", "nearest")
    one = mksknn.predict(X, y, new, k=6, sigma0=0.5, sigma2=0.25)
    assert_same(got, dataclasses.asdict(one))


@pytest.mark.uncompiled
def test_votes_of_one_search():
    X, new = cloud()
    y = targets("string", len(X))
    voters = encode(y, len(X), "auto", "auto", True)
    for graph in GRAPHS:
        for k in (1, 6, len(X) - 1):
            blend = Blend.single(k, None)
            got = combine(
                Index(X, blend.ks, graph, "euclidean").find(new), voters, blend, graph, "nearest"
            )
            expected = naive.predict(X, y, new, k, graph)
            assert voters.classes[got.winner].tolist() == expected["label"].tolist()
            np.testing.assert_allclose(got.probability, expected["probability"], rtol=1e-12)
            assert got.n_neighbors.tolist() == expected["n_neighbors"].tolist()


# ------------------------------------------------------------------------------ threads and inputs


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("d", [2, 12])
def test_threads_do_not_change_the_answer(d, graph):
    X, new = cloud(n=900, n_new=1200, d=d)
    for kind in ("string", "three outputs"):
        y = targets(kind, len(X))
        answers = []
        for threads in (1, 2):
            with limit_threads(threads):
                answers.append(mksknn.predict(X, y, new, k=9, graph=graph))
        one, two = answers
        for field in FIELDS:
            assert np.array_equal(getattr(one, field), getattr(two, field))


@pytest.mark.parametrize("graph", GRAPHS)
def test_queries_do_not_depend_on_each_other(graph):
    X, new = cloud("lattice", n=600, n_new=700, d=3)
    y = targets("string", len(X))
    whole = mksknn.predict(X, y, new, k=9, graph=graph)
    shuffled = np.random.default_rng(1).permutation(len(new))[:50]
    some = mksknn.predict(X, y, new[shuffled], k=9, graph=graph)
    assert np.array_equal(some.label, whole.label[shuffled])
    assert np.array_equal(some.probability, whole.probability[shuffled])


def test_kinds_of_input():
    X, new = cloud()
    y = targets("string", len(X))
    expected = dataclasses.asdict(mksknn.predict(X, y, new, k=4))
    for array in (X, y, new):
        array.flags.writeable = False
    before = X.copy(), y.copy(), new.copy()
    assert_same(mksknn.predict(X, y, new, k=4), expected)
    assert_same(mksknn.predict(X.tolist(), y.tolist(), new.tolist(), k=np.int64(4)), expected)
    assert_same(mksknn.predict(np.asfortranarray(X), y, np.asfortranarray(new), k=4), expected)
    frames = pd.DataFrame(X), pd.Series(y), pd.DataFrame(new)
    assert_same(mksknn.predict(*frames, k=4), expected)
    for array, copy in zip((X, y, new), before):
        assert np.array_equal(array, copy)
    D, d_new = naive.distance_matrix(X), naive.cross_distances(new, X)
    D.flags.writeable = d_new.flags.writeable = False
    assert_same(mksknn.predict(D, y, d_new, k=4, metric="precomputed"), expected)


def test_repr_is_short():
    X, new = cloud()
    shown = repr(mksknn.predict(X, targets("one output", len(X)), new, k=4))
    assert re.fullmatch(
        r"Prediction\(n_new=25, mean=\[[-\d., ]{10,}, \.\.\.\], n_neighbors=\[[\d, ]+, \.\.\.\]\)",
        shown,
    )
    one = mksknn.predict(X, targets("string", len(X)), new[:1], k=4, sigma0=1.0, sigma2=0.1)
    assert repr(one) == (
        f"Prediction(n_new=1, label={one.label.tolist()}, "
        f"its probability=[{one.probability.max():.4g}], variance=[{one.variance[0]:.4g}], "
        f"n_neighbors={one.n_neighbors.tolist()}, 3 classes)"
    )
    assert "label=[], its probability=[]" in repr(mksknn.predict(X, X[:, 0] > 0, new[:0], k=4))
    assert "mean=[[" in repr(mksknn.predict(X, X, new, k=4))
    dates = np.where(X[:, 0] > 0, "2020-01-01", "2021-01-01").astype("M8[ns]")
    assert "label=['202" in repr(mksknn.predict(X, dates, new, k=4))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"k": None}, ValueError, "k must be given, or a model"),
        ({"k": 0}, ValueError, "k must be from 1 to 39"),
        ({"k": 40}, ValueError, "k must be from 1 to 39"),
        ({"k": 2.0}, TypeError, "k must be an integer"),
        ({"graph": "both"}, ValueError, "graph must be one of"),
        ({"metric": "cubist"}, ValueError, "metric must be one of"),
        ({"ties": "random"}, ValueError, "ties must be one of"),
        ({"task": "ranking"}, ValueError, "task must be one of"),
        ({"center": 1}, TypeError, "center must be True or False"),
        ({"sigma0": 1.0}, ValueError, "sigma2 must be given with sigma0"),
        ({"sigma2": 1.0}, ValueError, "sigma0 must be given with sigma2"),
        ({"sigma0": -1.0, "sigma2": 1.0}, ValueError, "sigma0 must be finite and > 0"),
        ({"sigma0": 1e-200, "sigma2": 1e200}, ValueError, "ratio that fits in a float"),
        ({"sigma0": 1.0, "sigma2": 1.0, "graph": "knn"}, ValueError, "left out with graph='knn'"),
        ({"X_new": [[1.0]]}, ValueError, "X_new must have 2 columns"),
        ({"X_new": [[1.0, np.nan]]}, ValueError, "X_new must be finite"),
        ({"X_new": [1.0, 2.0]}, ValueError, "use [X_new] for a single point"),
        ({"X_new": np.empty((0, 5))}, ValueError, "X_new must have 2 columns"),
        ({"y": ["a"] * 40}, ValueError, "y must have at least 2 classes"),
        ({"y": ["a", "b"]}, ValueError, "y must have one entry for each"),
        ({"model": "best"}, TypeError, "model must be a Selection"),
        ({"model": selection(), "k": 4}, ValueError, "k must be left out or equal the model's k=5"),
        ({"model": selection(), "graph": "knn"}, ValueError, "graph must be left out or equal"),
        ({"model": selection(), "metric": "cosine"}, ValueError, "metric must be left out"),
        ({"model": selection(), "metric": pd.NA}, ValueError, "metric must be left out"),
        ({"model": selection(), "k": np.array([5, 6])}, ValueError, "k must be left out"),
        ({"model": selection(), "sigma0": 1.0}, ValueError, "sigma0 must be left out or equal"),
        ({"model": selection(), "center": False}, ValueError, "center must be True"),
        ({"model": selection(k=40)}, ValueError, "model.k must be from 1 to 39"),
        ({"model": selection(), "y": np.zeros(40)}, ValueError, "y must be of the kind"),
        ({"model": selection(formulation="regression")}, ValueError, "y must be of the kind"),
        ({"model": selection(formulation="binary")}, ValueError, "y must have the 2 classes"),
    ],
)
def test_bad_input(changes, error, message):
    X, new = cloud()
    arguments = {"X": X, "y": targets("int", len(X)), "X_new": new, "k": 3, **changes}
    if "model" in changes and "k" not in changes:
        del arguments["k"]
    with pytest.raises(error, match=re.escape(message)):
        mksknn.predict(**arguments)
