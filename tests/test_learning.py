"""Learned distances: what is compared, what wins, what it may be used for, what is refused."""

import builtins
import pickle
import re

import naive
import numpy as np
import pandas as pd
import pytest

import mksknn
from mksknn import _learning
from mksknn._graphs import pairs_by_rank
from mksknn._learning import _Data, _folds
from mksknn._relevance import RATIOS, Grid, Judge, _grow, bound_logdets, squared
from mksknn._targets import encode
from mksknn._threads import limit_threads

WITH_WHITENING = ("relevance+whiten", "relevance+within", "within+relevance")
THYROID = mksknn.datasets.load_new_thyroid()


def xor(n=120, noise=2, seed=0):
    """Labels that two columns decide together, and columns of noise."""
    X = np.random.default_rng(seed).normal(size=(n, 2 + noise))
    return X, X[:, 0] * X[:, 1] > 0


def correlated(n=120, seed=0):
    """Labels that a direction of little variance decides: whitening finds it."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=n)
    side = rng.normal(size=(n, 3))
    X = np.column_stack([common + 0.1 * side[:, 0], common + 0.1 * side[:, 1], side[:, 2]])
    return X, (X[:, 0] - X[:, 1] > 0).astype(int)


def assert_same(one, other):
    assert one.name == other.name
    np.testing.assert_array_equal(one.matrix, other.matrix)
    np.testing.assert_array_equal(one.relevance, other.relevance)
    assert one.compared == other.compared and one.held_out == other.held_out


# ---------------------------------------------------------------------------------------------
# What wins


def test_irrelevant_columns_are_dropped():
    X, y = xor()
    metric = mksknn.learn_metric(X, y)
    assert metric.name in ("relevance", "relevance+whiten", "relevance+within")
    assert (metric.relevance[:2] > 0.0).all() and (metric.relevance[2:] == 0.0).all()
    assert set(metric.compared) == {"scale", "whiten", "within", "relevance", *WITH_WHITENING}
    assert set(metric.held_out) == set(metric.compared)
    best = max(metric.held_out.values())
    able = [name for name, gain in metric.held_out.items() if gain >= 0.8 * best]
    assert metric.name == max(able, key=metric.compared.get)
    assert metric.compared["relevance"] > metric.compared["scale"] + 20.0
    assert metric.held_out["scale"] == 0.0 and metric.held_out["relevance"] > 10.0


def test_columns_of_noise_are_dropped_together():
    # no one of them is worth a change by itself
    rng = np.random.default_rng(0)
    X = np.hstack([rng.normal(size=(150, 2)), rng.normal(size=(150, 12))])
    y = (np.hypot(X[:, 0], X[:, 1]) < 1.2) ^ (rng.random(150) < 0.1)
    metric = mksknn.learn_metric(X, y)
    assert metric.relevance[:2].min() > 10.0 * np.median(metric.relevance[2:])


def test_correlated_columns_are_whitened():
    X, y = correlated()
    metric = mksknn.learn_metric(X, y)
    assert "whiten" in metric.name or "within" in metric.name
    X_new, y_new = correlated(400, seed=1)
    plain = mksknn.learn_metric(X, y, families=["scale"])
    errors = [
        np.mean(mksknn.predict(X, y, X_new, mksknn.select_k(X, y, metric=one)).label != y_new)
        for one in (plain, metric)
    ]
    assert errors[1] < 0.5 * errors[0]


def test_scale_is_among_the_families_always():
    X, y = xor(60)
    assert list(mksknn.learn_metric(X, y, families=["whiten"]).compared) == ["scale", "whiten"]
    only = mksknn.learn_metric(X, y, families=["scale"])
    assert only.name == "scale" and list(only.compared) == ["scale"]
    np.testing.assert_array_equal(only.relevance, 1.0)
    np.testing.assert_allclose(np.diag(only.matrix), 1.0 / X.std(axis=0))
    pair = mksknn.learn_metric(X, y, families=["relevance", "whiten"]).compared
    assert set(pair) == {"scale", "whiten", "relevance", "relevance+whiten"}


def test_permuted_labels_are_not_learnable():
    X, y = xor(150)
    for seed in range(3):
        permuted = np.random.default_rng(seed).permutation(y)
        metric = mksknn.learn_metric(X, permuted)
        winner = metric.name
        assert winner == "scale" or metric.held_out[winner] >= 2.0
        # whatever won, it does not predict: its leave-one-out error is that of a coin
        error = mksknn.loo_curve(X, permuted, graph="symmetric", metric=metric).error
        assert np.median(error) > 0.4


def test_added_noise_columns_do_not_hurt():
    data = mksknn.datasets.load_new_thyroid()
    rng = np.random.default_rng(0)
    noisy = np.hstack([data.X, rng.normal(size=(len(data.X), 10)) * data.X.std()])
    train = np.arange(len(data.y)) % 2 == 0
    errors = []
    for X in (data.X, noisy):
        metric = mksknn.learn_metric(X[train], data.y[train])
        model = mksknn.posterior(X[train], data.y[train], weights="loo_log", metric=metric)
        found = mksknn.predict(X[train], data.y[train], X[~train], model)
        errors.append(np.mean(found.label != data.y[~train]))
    assert errors[1] <= errors[0] + 0.01


@pytest.mark.parametrize("outputs", [1, 3])
def test_regression(outputs):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(120, 5))
    y = np.column_stack([np.sin(2.0 * X[:, 0] + c) + 0.1 * rng.normal(size=120) for c in range(3)])
    y = y[:, 0] if outputs == 1 else y
    metric = mksknn.learn_metric(X, y)
    assert "relevance" in metric.name
    assert metric.relevance[0] > 2.0 * metric.relevance[1:].max()
    plain = mksknn.posterior(X, y, metric=mksknn.learn_metric(X, y, families=["scale"]))
    assert mksknn.posterior(X, y, metric=metric).log_total > plain.log_total + 20.0


@pytest.mark.parametrize("graph", ["mutual", "symmetric"])
def test_graphs(graph):
    X, y = xor()
    metric = mksknn.learn_metric(X, y, graph=graph)
    assert (metric.relevance[2:] < metric.relevance[:2].min()).all()


@pytest.mark.parametrize("graph", ["mutual", "symmetric", "knn"])
def test_by_leave_one_out(graph):
    X, y = xor()
    metric = mksknn.learn_metric(X, y, criterion="loo_log", graph=graph)
    assert metric.criterion == "loo_log" and "compared by loo_log" in repr(metric)
    for name, got in metric.compared.items():
        assert got <= 0.0, name  # the log of a probability
    model = mksknn.posterior(metric.transform(X), y, weights="loo_log", graph=graph)
    assert model.log_total == pytest.approx(metric.compared[metric.name], abs=1e-6)


def test_strings_and_three_classes():
    X, y = THYROID.X, THYROID.y
    names = np.array(["a: normal", "b: hyper", "c: hypo"])[np.searchsorted(np.unique(y), y)]
    assert_same(mksknn.learn_metric(X, y), mksknn.learn_metric(X, names))


# ---------------------------------------------------------------------------------------------
# Columns as they come


def test_units_do_not_matter():
    X, y = xor()
    factor = np.array([1e-6, 1.0, 1e3, 2.0**10])
    one, other = mksknn.learn_metric(X, y), mksknn.learn_metric(X * factor + 5.0, y)
    assert one.name == other.name
    np.testing.assert_allclose(other.relevance, one.relevance)
    np.testing.assert_allclose(other.matrix * factor[:, None], one.matrix, rtol=1e-6, atol=1e-9)


def test_constant_columns_are_not_used():
    X, y = xor()
    with_constants = np.insert(X, [0, 2, 4], 7.5, axis=1)
    metric = mksknn.learn_metric(with_constants, y)
    constant = (with_constants == 7.5).all(axis=0)
    assert (metric.relevance[constant] == 0.0).all() and (metric.matrix[constant] == 0.0).all()
    assert (metric.relevance[~constant][:2] > 0.0).all()
    assert np.isfinite(metric.transform(with_constants + 1.0)).all()


def test_one_outlier_does_not_squeeze_its_column():
    X, y = xor(noise=0)
    X[0, 0] = 1e6
    metric = mksknn.learn_metric(X, y, families=["scale"])
    spread = metric.transform(X)[1:, 0].std()
    assert 0.5 < spread < 1.5
    # and a column of zeros but for a few is scaled by those
    rare = np.zeros(len(X))
    rare[:3] = [1.0, 2.0, 3.0]
    scaled = mksknn.learn_metric(np.column_stack([X, rare]), y, families=["scale"])
    assert np.isfinite(scaled.matrix).all() and scaled.relevance[2] == 1.0


def test_more_columns_than_points():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 70))
    y = X[:, 0] > 0
    metric = mksknn.learn_metric(X, y)
    assert metric.matrix.shape[0] == 70 and np.isfinite(metric.matrix).all()
    assert np.isfinite(list(metric.compared.values())).all()
    assert mksknn.select_k(X, y, metric=metric).k >= 1


@pytest.mark.parametrize("n", [2, 3, 5])
def test_few_points(n):
    X = np.arange(2.0 * n).reshape(n, 2) ** 1.5
    y = np.arange(n) % 2
    metric = mksknn.learn_metric(X, y)
    assert metric.name == "scale"
    assert metric.held_out["whiten"] == metric.held_out["relevance"] == -np.inf
    assert np.isfinite(metric.transform(X)).all()
    assert np.isfinite(list(metric.compared.values())).all()
    mksknn.learn_metric(X, y.astype(float))


def test_classes_of_two_points_and_of_one():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(44, 3))
    y = np.repeat([0, 1, 2, 3], [20, 21, 2, 1])
    metric = mksknn.learn_metric(X, y)
    assert np.isfinite(metric.matrix).all()
    pairs = np.repeat(np.arange(22), 2)
    assert np.isfinite(mksknn.learn_metric(X, pairs).matrix).all()


def test_duplicates():
    X, y = xor(40)
    X, y = np.round(np.repeat(X, 3, axis=0)), np.repeat(y, 3)
    mapped = mksknn.learn_metric(X, y).transform(X)
    np.testing.assert_array_equal(mapped[::3], mapped[1::3])


def test_a_sample_of_many_points(monkeypatch):
    X, y = xor(200)
    monkeypatch.setattr(_learning, "_MOST", 80)
    metric = mksknn.learn_metric(X, y)
    assert metric.relevance[:2].min() > metric.relevance[2:].max()


@pytest.mark.parametrize("kind", ["classes", "values", "outputs"])
def test_a_sample_keeps_what_is_rare(monkeypatch, kind):
    monkeypatch.setattr(_learning, "_MOST", 40)
    y = np.zeros(300, int)
    y[[17, 230]] = [1, 2]
    if kind != "classes":
        y = y.astype(float) if kind == "values" else np.column_stack([np.zeros(300), y])
    rows = _learning._sample(encode(y, 300, "auto", "auto", True))
    assert len(rows) == 40 and (np.diff(rows) > 0).all()
    assert 230 in rows and (kind != "classes" or 17 in rows)
    X = np.zeros((300, 2))
    X[np.setdiff1d(np.arange(300), rows)[0]] = 1.0  # varies, but not in what is drawn
    assert mksknn.learn_metric(X, y).name == "scale"
    X = np.random.default_rng(0).normal(size=(300, 2))
    assert np.isfinite(mksknn.learn_metric(X, y).matrix).all()


# ---------------------------------------------------------------------------------------------
# The same every time


def test_same_answer_every_time_and_for_any_number_of_threads():
    X, y = xor(100, noise=3)
    before, labels = X.copy(), y.copy()
    first = mksknn.learn_metric(X, y)
    assert_same(first, mksknn.learn_metric(X, y))
    for threads in (1, 2):
        with limit_threads(threads):
            assert_same(first, mksknn.learn_metric(X, y))
    assert_same(first, mksknn.learn_metric(np.asfortranarray(X), y))
    np.testing.assert_array_equal(X, before)
    np.testing.assert_array_equal(y, labels)


def test_progress(capsys):
    X, y = xor(60)
    mksknn.learn_metric(X, y)
    assert capsys.readouterr().err == ""
    assert_same(mksknn.learn_metric(X, y), mksknn.learn_metric(X, y, progress=True))
    shown = capsys.readouterr().err
    assert "learn_metric" in shown and "relevance" in shown
    assert "100%" in shown and "?" not in shown.splitlines()[-1]


@pytest.mark.parametrize(
    "families", [["scale"], ["whiten"], ["relevance"], ["within", "relevance"]]
)
@pytest.mark.parametrize("n", [20, 60])
def test_progress_ends_at_its_total(capsys, families, n):
    X, y = xor(n)
    X[:, -1] = 1.0  # never used, and counted even so
    mksknn.learn_metric(X, y, families=families, progress=True)
    done, total = re.findall(r"(\d+)/(\d+)", capsys.readouterr().err)[-1]
    assert done == total


# ---------------------------------------------------------------------------------------------
# Where a metric may go


@pytest.fixture(scope="module")
def learned():
    X, y = correlated()
    return X, y, mksknn.learn_metric(X, y)


def test_metric_where_a_name_may_stand(learned):
    X, y, metric = learned
    mapped = metric.transform(X)
    for graph in ("mutual", "symmetric"):
        one = mksknn.select_k(X, y, graph=graph, metric=metric)
        other = mksknn.select_k(mapped, y, graph=graph)
        assert (one.k, one.sigma0, one.log_evidence) == (other.k, other.sigma0, other.log_evidence)
        assert one.metric is metric
        np.testing.assert_array_equal(
            mksknn.knn_graph(X, 5, graph=graph, metric=metric).toarray(),
            mksknn.knn_graph(mapped, 5, graph=graph).toarray(),
        )
    options = {"k_max": 12}
    for function, field in (
        (mksknn.evidence_curve, "log_evidence"),
        (mksknn.loo_curve, "log_score"),
        (mksknn.posterior, "probability"),
    ):
        np.testing.assert_array_equal(
            getattr(function(X, y, metric=metric, **options), field),
            getattr(function(mapped, y, **options), field),
        )
    ranked = mksknn.neighbors(X, 7, metric=metric)
    assert ranked.metric is metric
    np.testing.assert_array_equal(ranked.indices, mksknn.neighbors(mapped, 7).indices)
    sigmas = {"sigma0": 0.5, "sigma2": 0.1}
    assert mksknn.log_evidence(X, y, 4, metric=metric, **sigmas) == mksknn.log_evidence(
        mapped, y, 4, **sigmas
    )


def test_predictions_carry_the_metric(learned):
    X, y, metric = learned
    X_new, _ = correlated(50, seed=2)
    mapped, new = metric.transform(X), metric.transform(X_new)
    for choose in (mksknn.select_k, mksknn.posterior):
        model = choose(X, y, metric=metric, k_max=20)
        want = mksknn.predict(mapped, y, new, choose(mapped, y, k_max=20)).probability
        np.testing.assert_array_equal(mksknn.predict(X, y, X_new, model).probability, want)
        np.testing.assert_array_equal(mksknn.prepare(X, y, model)(X_new).probability, want)
        with pytest.raises(ValueError, match="metric"):
            mksknn.predict(X, y, X_new, model, metric="euclidean")
    plain = mksknn.predict(X, y, X_new, k=3, metric=metric)
    np.testing.assert_array_equal(plain.label, mksknn.predict(mapped, y, new, k=3).label)


def test_a_choice_between_metrics(learned):
    X, y, metric = learned
    best = mksknn.select_k(X, y, metric=["euclidean", metric])
    assert best.metric is metric
    assert set(best.compared) == {("symmetric", "euclidean"), ("symmetric", metric)}
    post = mksknn.posterior(X, y, metric=["euclidean", metric])
    assert post.metric is metric


def test_one_row_is_mapped_as_many_are(learned):
    X, _, metric = learned
    rows = [metric.transform(row[None])[0] for row in X]
    np.testing.assert_array_equal(rows, metric.transform(X))
    again = pickle.loads(pickle.dumps(metric))
    np.testing.assert_array_equal(again.transform(X), metric.transform(X))


@pytest.mark.uncompiled
def test_metric_made_by_hand():
    X, y = xor(50)
    metric = mksknn.Metric("mine", np.diag([1.0, 2.0, 0.0, 0.0]), np.array([1.0, 2.0, 0.0, 0.0]))
    np.testing.assert_array_equal(metric.transform(X), X * [1.0, 2.0, 0.0, 0.0])
    assert mksknn.select_k(X, y, metric=metric).k == mksknn.select_k(X[:, :2] * [1.0, 2.0], y).k
    assert repr(metric) == "Metric(mine; column 1: 2, column 0: 1; not used: column 2, column 3)"


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("part", ["matrix", "center"])
def test_a_metric_that_is_not_finite_is_to_blame(part, value):
    X, y = xor(20)
    parts = {"matrix": np.eye(4), "center": np.zeros(4)}
    parts[part].flat[2] = value
    metric = mksknn.Metric("mine", relevance=np.ones(4), **parts)
    calls = [
        lambda: metric.transform(X),
        lambda: mksknn.neighbors(X, metric=metric),
        lambda: mksknn.select_k(X, y, metric=["euclidean", metric]),
        lambda: mksknn.predict(X, y, X, k=3, metric=metric),
    ]
    for call in calls:
        with pytest.raises(
            ValueError, match=rf"metric\.{part} must be finite; got .*2\] = {value}"
        ):
            call()


# ---------------------------------------------------------------------------------------------
# Names


def test_names_of_columns():
    X, y = xor()
    table = pd.DataFrame(X, columns=["left", "right", "noise", "more noise"])
    metric = mksknn.learn_metric(table, y)
    assert metric.columns == tuple(table.columns)
    assert "left: " in repr(metric) and "not used: noise, more noise" in repr(metric)
    np.testing.assert_array_equal(metric.transform(table), metric.transform(X))
    with pytest.raises(ValueError, match="X must have the columns that metric.*another order"):
        metric.transform(table[table.columns[::-1]])
    with pytest.raises(ValueError, match=r"X must have the columns.*without \['right'\]"):
        mksknn.select_k(table.drop(columns="right"), y, metric=metric)
    for call in (metric.transform, lambda X: mksknn.neighbors(X, metric=metric)):
        with pytest.raises(ValueError, match="X must have 4 columns .the columns that metric was"):
            call(X[:, :2])


def test_long_tables_are_cut_in_the_repr():
    names = tuple(f"c{c}" for c in range(60))
    relevance = np.r_[np.ones(30), np.zeros(30)]
    metric = mksknn.Metric("relevance", np.diag(relevance), relevance, columns=names)
    assert "18 more; not used: c30" in repr(metric) and repr(metric).endswith("c41, 18 more)")


# ---------------------------------------------------------------------------------------------
# What is refused


def test_text_and_missing_values_are_refused():
    table = pd.DataFrame({"glu": [1.0, 2.0, 3.0, 4.0], "clinic": ["n", "s", "n", "n"]})
    y = [0, 1, 0, 1]
    with pytest.raises(TypeError, match="in column 'clinic': turn categories into indicators"):
        mksknn.learn_metric(table, y)
    table = pd.DataFrame({"glu": [1.0, 2.0, 3.0, 4.0], "skin": [1.0, np.nan, 0.0, 2.0]})
    with pytest.raises(ValueError, match=r"X\[1, 1\] = nan in column 'skin': drop or fill"):
        mksknn.learn_metric(table, y)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"families": "scale"}, TypeError, "families must be a sequence of names.*'scale'"),
        ({"families": []}, TypeError, "families must be a sequence"),
        ({"families": ["pca"]}, ValueError, "families must be.*'pca'"),
        ({"criterion": "loo"}, ValueError, "criterion must be.*'loo'"),
        ({"graph": "knn"}, ValueError, "graph must be.*'knn'"),
        ({"graph": "auto"}, ValueError, "graph must be.*'auto'"),
        ({"task": "both"}, ValueError, "task must be"),
        ({"k_max": 0}, ValueError, "k_max must be"),
        ({"progress": "yes"}, TypeError, "progress must be"),
        ({"y": np.zeros(40)}, ValueError, "y must vary"),
        ({"X": np.ones((40, 2))}, ValueError, "X must vary"),
    ],
)
def test_refusals(change, error, message):
    X, y = xor(40)
    with pytest.raises(error, match=message):
        mksknn.learn_metric(**({"X": X, "y": y} | change))


def test_progress_without_tqdm(monkeypatch):
    real = builtins.__import__

    def no_tqdm(name, *args, **kwargs):
        if name.startswith("tqdm"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_tqdm)
    with pytest.raises(ImportError, match="pip install tqdm"):
        mksknn.learn_metric(*xor(40), progress=True)


# ---------------------------------------------------------------------------------------------
# The judge, against literal definitions


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", ["mutual", "symmetric"])
@pytest.mark.parametrize("kind", ["normal", "lattice"])
def test_bounds_and_values_of_the_judge(graph, kind):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(24, 3)) if kind == "normal" else rng.integers(0, 3, (24, 3)).astype(float)
    y = rng.permutation(np.arange(24) % 3)
    targets = encode(y, 24, "auto", "auto", True)
    judge = Judge(targets, graph, 23)
    grid = Grid(judge, squared(X))
    Y, m, constant = naive.targets(y)[:3]
    for a, k in enumerate(judge.ks[judge.ks <= 20]):
        bounds = grid.bounds(a)[1]
        logdets = bound_logdets(grid.pairs, int(k), RATIOS)
        W = naive.weights(X, int(k), graph)
        L = naive.laplacian(W)
        degree = W.sum(axis=1)
        for b, ratio in enumerate(RATIOS):
            B = W / np.sqrt(np.outer(degree + ratio, degree + ratio))
            literal = np.log(degree + ratio).sum() - 0.5 * np.trace(B @ B)
            truth = np.log(np.linalg.eigvalsh(L) + ratio).sum()
            assert logdets[b] == pytest.approx(literal, rel=1e-12)
            assert logdets[b] >= truth
            exact = grid.state(a, b).value
            assert exact == pytest.approx(naive.profile(W, Y, m, constant, ratio), rel=1e-10)
            assert bounds[b] >= exact


@pytest.mark.uncompiled
def test_updated_distances_rank_as_new_ones():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(60, 4))
    judge = Judge(
        encode(rng.permutation(np.arange(60) % 2), 60, "auto", "auto", True), "mutual", 59
    )
    for level in (0.0, 0.5, 2.0):
        changed = X.copy()
        changed[:, 2] *= level
        fresh = judge.rank(squared(changed), 9)
        moved = judge.rank(squared(X), 9, np.ascontiguousarray(X[:, 2]), level**2 - 1.0)
        for one, other in ((fresh.rows, moved.rows), (fresh.columns, moved.columns)):
            np.testing.assert_array_equal(one, other)
        want = pairs_by_rank(mksknn.neighbors(changed, 9), "mutual")
        np.testing.assert_array_equal(fresh.rows, want.rows)


@pytest.mark.uncompiled
@pytest.mark.parametrize("gains", [{2: 3.0, 0: 2.0, 1: 1.0}, None], ids=["given", "found"])
def test_columns_that_are_added_are_judged_with_those_before(gains):
    """Each set by the distances in its columns; the first of all is the best by itself."""
    rng = np.random.default_rng(7)
    X = np.asfortranarray(rng.normal(size=(30, 3)))
    y = (X[:, 0] + X[:, 1] + 0.3 * rng.normal(size=30) > 0).astype(int)
    judge = Judge(encode(y, 30, "auto", "auto", True), "symmetric", 29)
    sets = list(_grow(X, judge, [0, 1, 2], gains))
    assert [len(kept) for _, kept in sets] == [1, 2, 3]
    for score, kept in sets:
        assert score == pytest.approx(judge.log_score(squared(X[:, kept])), rel=1e-9)
    if gains is not None:
        assert sets[-1][1] == [2, 0, 1]
    else:
        assert sets[0][0] == pytest.approx(
            max(judge.log_score(squared(X[:, [c]])) for c in range(3))
        )


def test_totals_are_those_of_the_posterior():
    X, y = xor(80)
    low, high = RATIOS[0], RATIOS[-1]
    targets = encode(y, 80, "auto", "auto", True)
    for points in (X, X[:, :2]):
        judge, squares = Judge(targets, "symmetric", 79), squared(points)
        total = judge.log_total(squares, judge.best(squares))
        exact = mksknn.posterior(points, y, ratio_bounds=(low, high))
        share = np.log(np.log(high / low) / np.log(1e12))  # of the default bounds
        assert total == pytest.approx(exact.log_total + share, abs=1.0)


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", ["mutual", "symmetric", "knn"])
@pytest.mark.parametrize("kind", ["classes", "values", "outputs"])
def test_log_scores_of_parts_make_up_that_of_all(graph, kind):
    rng = np.random.default_rng(6)
    X = rng.normal(size=(40, 2))
    y = rng.permutation(np.arange(40) % 3)
    if kind != "classes":
        y = rng.normal(size=40 if kind == "values" else (40, 2))
    targets = encode(y, 40, "auto", "auto", True)
    data = _Data(X, targets, graph, 39)
    folds = _folds(data)
    assert len(folds) == 10
    np.testing.assert_array_equal(np.sort(np.concatenate(folds)), np.arange(40))
    sums = np.sum([data.left_out(np.eye(2), rows) for rows in folds], axis=0)
    assert sums.shape[1] == (data.judge.ks <= 39).sum()
    Y = targets.values
    for a, k in enumerate(data.judge.ks):
        W = naive.weights(X, int(k), graph)
        for b, r in enumerate(RATIOS):
            rise = W.sum(axis=1) + r
            if kind == "classes":
                want = np.log(((W * (y[:, None] == y)).sum(axis=1) + r / 3.0) / rise).sum(), 0.0
            else:
                off = Y - W @ Y / rise[:, None]
                want = np.log(rise).sum(), (rise[:, None] * off**2).sum()
            np.testing.assert_allclose(sums[:, a, b], want, rtol=1e-9, atol=1e-9)


def test_columns_that_noise_hides_are_found():
    # a quarter of the labels says nothing, and 13 of 15 columns
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 15))
    y = np.digitize(X[:, 3] + 0.7 * X[:, 8], [-0.5, 0.5])
    y = np.where(rng.random(120) < 0.25, rng.integers(0, 3, 120), y)
    metric = mksknn.learn_metric(X, y, families=["relevance"])
    assert metric.name == "relevance"
    assert metric.relevance[[3, 8]].min() > 0.0 and np.median(metric.relevance) == 0.0


def test_most_candidates_die_by_the_bound(counted):
    X, y = xor(150, noise=8)
    mksknn.learn_metric(X, y, families=["relevance"])
    parts = 1 + 8  # all of 150 points, and without an eighth of them
    steps = parts * 2 * 10 * 4  # two passes at least, over ten columns
    assert counted["cholesky"] < steps


@pytest.mark.parametrize("value", [2147483647.0, 1e15, 1e50, 1e120])
@pytest.mark.parametrize("families", [("whiten",), ("scale", "whiten", "within", "relevance")])
def test_values_that_stand_for_missing_ones(value, families):
    """Columns with one huge value each: no covariance has digits left for the others."""
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = X[:, 0] > 0
    X[0, 1] = X[1, 2] = value
    metric = mksknn.learn_metric(X, y, families=families)
    assert np.isfinite(metric.matrix).all() and np.isfinite(metric.transform(X)).all()
    assert np.isfinite(list(metric.compared.values())).all()
    assert (mksknn.predict(X, y, X, k=5, graph="knn", metric=metric).label == y).mean() > 0.8


def test_columns_of_any_size_are_scaled_alike():
    """By powers of two, nothing changes but the scale."""
    X = np.random.default_rng(1).normal(size=(40, 2))
    y = X[:, 0] + X[:, 1] > 0
    plain = mksknn.learn_metric(X, y)
    for power in (-400, 400):
        moved = mksknn.learn_metric(X * 2.0**power, y)
        assert moved.name == plain.name and moved.compared == plain.compared
        np.testing.assert_array_equal(moved.matrix * 2.0**power, plain.matrix)
