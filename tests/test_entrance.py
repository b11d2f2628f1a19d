"""One entrance: points or neighbours, ranked once per call, with the same bits either way."""

import dataclasses
import warnings

import numpy as np
import pytest

import mksknn

RNG = np.random.default_rng(61)
X = RNG.normal(size=(60, 2))
LABELS = np.digitize(X[:, 0] + 0.5 * RNG.normal(size=60), [-0.5, 0.5])
VALUES = X[:, 0] + 0.5 * RNG.normal(size=60)
CRITERIA = ("evidence", "loo", "loo_log")


def entrances(k_max=None):
    """The same points, their neighbours, and the same neighbours as lists found elsewhere."""
    ranked = mksknn.neighbors(X, k_max)
    return X, ranked, mksknn.as_neighbors(ranked.indices, ranked.distances)


def assert_same_fields(one, other, apart=()):
    """Every field of two results, to the last bit."""
    assert type(one) is type(other)
    for field in dataclasses.fields(one):
        if field.name in apart:
            continue
        a, b = getattr(one, field.name), getattr(other, field.name)
        if dataclasses.is_dataclass(a):
            assert_same_fields(a, b)
        elif isinstance(a, np.ndarray):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b, strict=True)
        else:
            assert a == b or (a != a and b != b), field.name


def assert_same_choice(one, other):
    """Lists found elsewhere have no metric; all else is the same."""
    assert_same_fields(one, other, apart=("metric", "compared"))
    ours, theirs = ({graph: v for (graph, _), v in s.compared.items()} for s in (one, other))
    assert ours == theirs


@pytest.mark.parametrize("y", [LABELS, VALUES], ids=["labels", "values"])
@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("graph", ["mutual", "symmetric", "auto"])
def test_selections_agree_to_the_last_bit(graph, criterion, y):
    for limit in ({}, {"k_max": 9}):
        found = [
            mksknn.select_k(one, y, graph=graph, criterion=criterion, **limit)
            for one in entrances()
        ]
        assert_same_fields(found[0], found[1])
        assert_same_choice(found[0], found[2])


@pytest.mark.parametrize("graph", ["mutual", "symmetric"])
def test_every_function_takes_neighbours(graph):
    points, *others = entrances()
    calls = [
        lambda one: mksknn.evidence_curve(one, LABELS, graph=graph),
        lambda one: mksknn.loo_curve(one, LABELS, graph=graph),
        lambda one: mksknn.posterior(one, VALUES, graph=graph),
        lambda one: mksknn.posterior(one, VALUES, graph=graph, weights="loo_log"),
    ]
    for call in calls:
        for other in others:
            assert_same_fields(call(points), call(other), apart=("metric", "compared"))
    fixed = {"sigma0": 0.5, "sigma2": 0.2, "graph": graph}
    values = {mksknn.log_evidence(one, LABELS, 5, **fixed) for one in (points, *others)}
    assert len(values) == 1
    weights = [mksknn.knn_graph(one, 5, graph=graph).toarray() for one in (points, *others)]
    np.testing.assert_array_equal(weights[0], weights[1])
    np.testing.assert_array_equal(weights[0], weights[2])


# ---------------------------------------------------------------- ranked once


@pytest.mark.parametrize("criterion", CRITERIA)
def test_two_graphs_are_chosen_from_one_ranking(criterion, rankings):
    mksknn.select_k(X, LABELS, graph="auto", criterion=criterion)
    assert rankings == [59]


@pytest.mark.parametrize("weights", ["evidence", "loo_log"])
def test_two_posteriors_come_from_one_ranking(weights, rankings):
    mksknn.posterior(X, LABELS, graph="auto", weights=weights)
    assert rankings == [59]


def test_each_metric_is_ranked_once(rankings):
    mksknn.select_k(X, LABELS, graph="auto", metric=["euclidean", "manhattan"])
    assert rankings == [59, 59]


def test_neighbours_are_not_ranked_again(rankings):
    ranked = mksknn.neighbors(X)
    rankings.clear()
    for criterion in CRITERIA:
        mksknn.select_k(ranked, LABELS, graph="auto", criterion=criterion)
    mksknn.evidence_curve(ranked, LABELS)
    mksknn.loo_curve(ranked, LABELS)
    mksknn.posterior(ranked, LABELS, graph="auto")
    assert rankings == []


# ---------------------------------------------------------------- which k


@pytest.mark.parametrize("criterion", CRITERIA)
def test_a_generator_of_ks_serves_every_candidate(criterion):
    """The first candidate must not use it up."""
    options = {"graph": "auto", "metric": ["euclidean", "manhattan"], "criterion": criterion}
    expected = mksknn.select_k(X, LABELS, ks=[2, 5, 9], **options)
    found = mksknn.select_k(X, LABELS, ks=(k for k in (9, 2, 5)), **options)
    assert_same_fields(found, expected)
    assert len(found.compared) == 4


def test_a_generator_of_ks_for_a_posterior():
    expected = mksknn.posterior(X, LABELS, graph="auto", ks=[2, 5, 9])
    assert_same_fields(mksknn.posterior(X, LABELS, graph="auto", ks=iter([2, 5, 9])), expected)


@pytest.mark.parametrize("graph", ["knn", "mutual", "symmetric"])
def test_leave_one_out_of_some_ks(graph):
    full = mksknn.loo_curve(X, LABELS, graph=graph)
    some = mksknn.loo_curve(X, LABELS, graph=graph, ks=(k for k in (17, 3, 3, 8)))
    assert some.k.tolist() == [3, 8, 17]
    for name in ("error", "log_score", "ratio"):
        np.testing.assert_array_equal(getattr(some, name), getattr(full, name)[[2, 7, 16]])
    assert some.best_k in (3, 8, 17) and some.best_k_log in (3, 8, 17)
    with pytest.raises(ValueError, match="ks must"):
        mksknn.loo_curve(X, LABELS, ks=[0, 3])
    with pytest.raises(ValueError, match="not both"):
        mksknn.loo_curve(X, LABELS, ks=[3], k_max=5)


def test_no_more_neighbours_than_are_held():
    ranked = mksknn.neighbors(X, 7)
    assert mksknn.select_k(ranked, LABELS).k <= 7
    for call in (mksknn.select_k, mksknn.evidence_curve, mksknn.loo_curve, mksknn.posterior):
        with pytest.raises(ValueError, match="k_max must be at most 7, the neighbours of each"):
            call(ranked, LABELS, k_max=8)
        with pytest.raises(ValueError, match="ks must be at most 7, the neighbours of each"):
            call(ranked, LABELS, ks=[2, 8])
        with pytest.raises(ValueError, match="metric must be left out where X is a Neighbors"):
            call(ranked, LABELS, metric="manhattan")
        with pytest.raises(ValueError, match="whose lists were found elsewhere.*got 'manhattan'"):
            call(entrances()[2], LABELS, metric="manhattan")


# ---------------------------------------------------------------- lists that are refused

GOOD = [[1, 2], [0, 2], [1, 0], [2, 1]]
AWAY = [[1.0, 2.0], [1.0, 1.5], [0.5, 0.5], [0.0, 3.0]]


@pytest.mark.parametrize(
    ("indices", "distances", "kind", "words"),
    [
        ([[1.0, 2.0], [0.0, 2.0], [1.0, 0.0]], None, TypeError, "indices must be integers"),
        ([1, 0, 1], None, ValueError, "indices must have a row for each"),
        ([[0]], None, ValueError, "at least 2 points"),
        (np.empty((4, 0), int), None, ValueError, "at least 1 column"),
        ([[1, 4], [0, 2], [1, 0], [2, 1]], None, ValueError, r"0 to 3 .*indices\[0, 1\] = 4"),
        ([[1, -1], [0, 2], [1, 0], [2, 1]], None, ValueError, "a neighbour that was not found"),
        ([[1, 2], [0, 1], [1, 0], [2, 1]], None, ValueError, r"own row; got indices\[1, 1\] = 1"),
        ([[1, 1], [0, 2], [1, 0], [2, 1]], None, ValueError, "repeat a neighbour; got 1 twice"),
        (GOOD, [[1.0], [1.0], [1.0], [1.0]], ValueError, "distances must have the shape"),
        (GOOD, [[1.0, 0.5], *AWAY[1:]], ValueError, "distances must not fall along a row"),
        (GOOD, [[-1.0, 0.5], *AWAY[1:]], ValueError, "distances must be >= 0"),
        (GOOD, [[1.0, np.nan], *AWAY[1:]], ValueError, "distances must be finite"),
        (GOOD, [[1.0, np.inf], *AWAY[1:]], ValueError, "distances must be finite"),
        (GOOD, "near", TypeError, "distances"),
    ],
)
def test_lists_that_are_refused(indices, distances, kind, words):
    with pytest.raises(kind, match=words):
        mksknn.as_neighbors(indices, distances)


def test_lists_are_copied_and_need_no_distances():
    indices, distances = np.array(GOOD), np.array(AWAY)
    found = mksknn.as_neighbors(indices, distances)
    indices[0, 0], distances[0, 0] = 3, 9.0
    assert found.indices[0, 0] == 1 and found.distances[0, 0] == 1.0
    bare = mksknn.as_neighbors(GOOD)
    np.testing.assert_array_equal(bare.indices, found.indices)
    np.testing.assert_array_equal(bare.distances, [[1.0, 2.0]] * 4)


def test_a_model_of_lists_found_elsewhere_is_told_its_metric():
    """The lists say nothing of it: what `predict` is told counts, Euclidean by default."""
    rng = np.random.default_rng(3)
    X, new = rng.normal(size=(60, 4)), rng.normal(size=(20, 4))
    y = (X[:, 0] + X[:, 1] > 0).astype(int)
    ranked = mksknn.neighbors(X, metric="manhattan")
    lists = mksknn.as_neighbors(ranked.indices, ranked.distances)
    for choose in (mksknn.select_k, mksknn.posterior):
        known, unknown = choose(X, y, metric="manhattan"), choose(lists, y)
        expected = mksknn.predict(X, y, new, known)
        found = mksknn.predict(X, y, new, unknown, metric="manhattan")
        np.testing.assert_array_equal(found.probability, expected.probability)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            told = mksknn.predict(X, y, new, unknown, metric="euclidean")
        for ask in (mksknn.predict, lambda X, y, new, model: mksknn.prepare(X, y, model)(new)):
            with pytest.warns(UserWarning, match="metric of the model is None.*Eucl") as caught:
                plain = ask(X, y, new, unknown)
            assert [one.filename for one in caught] == [__file__]
            np.testing.assert_array_equal(plain.probability, told.probability)
        with pytest.raises(ValueError, match="metric must be left out or equal the model's"):
            mksknn.predict(X, y, new, known, metric="cosine")
