"""Weights, Laplacians and sums over edges, for every k, against the oracle."""

import naive
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from posing import lower_laplacian
from scipy.sparse.csgraph import connected_components

import mksknn
from mksknn import _graphs
from mksknn._neighbors import rank
from mksknn._threads import limit_threads

GRAPHS = ("mutual", "symmetric")
ALL_GRAPHS = ("knn", *GRAPHS)
METRICS = ("euclidean", "manhattan", "chebyshev", "cosine", "precomputed")


def make_pairs(X, graph, k_max=None, metric="euclidean"):
    return _graphs.pairs_by_rank(rank(X, k_max or len(X) - 1, metric), graph)


def some_ks(n):
    return sorted({1, 2, n // 3, n // 2, n - 1} & set(range(1, n)))


def full(lower):
    """A symmetric matrix from its lower triangle."""
    return lower + np.tril(lower, -1).T


# ---------------------------------------------------------------- weights


@pytest.mark.parametrize("graph", ALL_GRAPHS)
def test_weights_of_hard_points(small_points, graph):
    for k in some_ks(len(small_points)):
        found = mksknn.knn_graph(small_points, k, graph=graph)
        np.testing.assert_array_equal(found.toarray(), naive.weights(small_points, k, graph))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("graph", ALL_GRAPHS)
def test_weights_by_every_metric(graph, metric):
    X = np.random.default_rng(0).integers(1, 5, (21, 3)).astype(float)
    if metric == "precomputed":
        X = naive.distance_matrix(X)
    D = np.maximum(naive.distance_matrix(X, metric), 0.0)
    for k in some_ks(len(X)):
        found = mksknn.knn_graph(X, k, graph=graph, metric=metric)
        np.testing.assert_array_equal(found.toarray(), naive.weights(D, k, graph, "precomputed"))


@pytest.mark.uncompiled
@pytest.mark.parametrize("ranks", [1, 40, 100])
def test_blocks_of_rows_give_the_same_graphs(monkeypatch, ranks):
    X = np.random.default_rng(0).integers(1, 5, (21, 3)).astype(float)
    pairs = [make_pairs(X, "mutual", 9)]
    monkeypatch.setattr(_graphs, "_RANKS", ranks)
    for graph in GRAPHS:
        expected = naive.weights(X, 9, graph)
        np.testing.assert_array_equal(mksknn.knn_graph(X, 9, graph=graph).toarray(), expected)
    pairs.append(make_pairs(X, "mutual", 9))
    for name in ("rows", "columns", "count"):
        np.testing.assert_array_equal(*(getattr(one, name) for one in pairs))


@pytest.mark.parametrize("name", ["load_pima", "load_new_thyroid"])
@pytest.mark.parametrize("graph", ALL_GRAPHS)
def test_weights_of_the_bundled_sets(name, graph):
    X = getattr(mksknn.datasets, name)().X
    found = mksknn.knn_graph(X, 11, graph=graph)
    np.testing.assert_array_equal(found.toarray(), naive.weights(X, 11, graph))


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", ALL_GRAPHS)
def test_weights_of_few_points(graph):
    X = np.array([[0.0], [1.0], [2.0], [2.0], [5.0], [1.0]])
    for k in range(1, 6):
        found = mksknn.knn_graph(X, k, graph=graph)
        np.testing.assert_array_equal(found.toarray(), naive.weights(X, k, graph))


@given(
    X=st.tuples(st.integers(2, 10), st.integers(1, 3)).flatmap(
        lambda shape: arrays(np.float64, shape, elements=st.integers(0, 3).map(float))
    ),
    graph=st.sampled_from(ALL_GRAPHS),
    share=st.floats(0, 1),
)
def test_weights_of_any_small_grid(X, graph, share):
    k = 1 + int(share * (len(X) - 2))
    found = mksknn.knn_graph(X, k, graph=graph)
    np.testing.assert_array_equal(found.toarray(), naive.weights(X, k, graph))


@pytest.mark.parametrize("graph", ALL_GRAPHS)
def test_form_of_the_result(graph):
    X = np.random.default_rng(1).normal(size=(30, 2))
    W = mksknn.knn_graph(X, 4, graph=graph)
    assert isinstance(W, scipy.sparse.csr_array)
    assert W.shape == (30, 30)
    assert W.dtype == np.float64
    assert W.has_sorted_indices
    assert W.has_canonical_format
    assert np.all(W.data > 0)  # nothing stored that is zero
    assert not W.diagonal().any()


def test_what_the_graphs_have_to_do_with_each_other():
    X = np.random.default_rng(2).integers(0, 6, (60, 2))
    for k in (1, 3, 10, 59):
        directed, mutual, symmetric = (
            mksknn.knn_graph(X, k, graph=graph).toarray() for graph in ALL_GRAPHS
        )
        assert (directed.sum(axis=1) == k).all()
        for W in (mutual, symmetric):
            np.testing.assert_array_equal(W, W.T)
        np.testing.assert_array_equal(mutual, directed * directed.T)
        np.testing.assert_array_equal(symmetric, directed + directed.T)
        np.testing.assert_array_equal(mutual == 1, symmetric == 2)
        assert symmetric.sum() == 2 * k * len(X)


@pytest.mark.parametrize("graph", ALL_GRAPHS)
def test_nested_in_k_up_to_the_complete_graph(graph):
    X = np.random.default_rng(3).integers(0, 4, (20, 2))
    before = np.zeros((20, 20))
    for k in range(1, 20):
        W = mksknn.knn_graph(X, k, graph=graph).toarray()
        assert (W >= before).all()
        before = W
    complete = 1.0 - np.eye(20)
    np.testing.assert_array_equal(before, (1 + (graph == "symmetric")) * complete)


@pytest.mark.parametrize("graph", ALL_GRAPHS)
def test_inputs_of_other_kinds(graph):
    X = np.random.default_rng(4).integers(0, 9, (15, 3)).astype(float)
    expected = mksknn.knn_graph(X, 3, graph=graph).toarray()
    read_only = np.asfortranarray(X)
    read_only.flags.writeable = False
    for form in (X.tolist(), X.astype(np.float32), read_only, pd.DataFrame(X)):
        np.testing.assert_array_equal(
            mksknn.knn_graph(form, np.int64(3), graph=graph).toarray(), expected
        )


# ---------------------------------------------------------------- pairs in the order of k


def weights_of(pairs, k):
    """The weights of graph k, pair by pair."""
    W = np.zeros((pairs.n, pairs.n), int)
    np.add.at(W, (pairs.rows[: pairs.count[k]], pairs.columns[: pairs.count[k]]), 1)
    return W + W.T


@pytest.mark.parametrize("graph", GRAPHS)
def test_pairs_of_hard_points(small_points, graph):
    n = len(small_points)
    pairs = make_pairs(small_points, graph)
    assert pairs.k_max == n - 1
    assert pairs.count[0] == 0
    assert len(pairs.rows) == len(pairs.columns) == pairs.count[-1]
    assert (np.diff(pairs.count) >= 0).all()
    for k in some_ks(n):
        W = naive.weights(small_points, k, graph)
        assert pairs.count[k] == np.triu(W).sum()
        np.testing.assert_array_equal(weights_of(pairs, k), W)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("k_max", [1, 4, 12])
def test_pairs_of_a_truncated_ranking_are_the_first_of_all(graph, k_max):
    X = np.random.default_rng(5).integers(0, 5, (40, 2)).astype(float)
    everything, some = make_pairs(X, graph), make_pairs(X, graph, k_max)
    assert some.k_max == k_max
    np.testing.assert_array_equal(some.count, everything.count[: k_max + 1])
    for k in range(1, k_max + 1):
        np.testing.assert_array_equal(weights_of(some, k), weights_of(everything, k))


# ---------------------------------------------------------------- Laplacians


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("k_max", [7, None])
def test_laplacians(graph, k_max):
    X = np.random.default_rng(6).integers(0, 5, (24, 2)).astype(float)
    pairs = make_pairs(X, graph, k_max)
    for k in range(1, pairs.k_max + 1):
        L = naive.laplacian(naive.weights(X, k, graph))
        sparse = _graphs.sparse_laplacian(pairs, k, np.ones(pairs.n, np.bool_))
        dense = lower_laplacian(pairs, k)
        assert dense.flags.c_contiguous
        for lower in (dense, sparse.toarray()):
            np.testing.assert_array_equal(lower, np.tril(L))
            np.testing.assert_array_equal(full(lower).sum(axis=1), 0.0)


@pytest.mark.uncompiled
def test_laplacian_stores_the_diagonal_of_isolated_points():
    X = np.array([[0.0], [1.0], [10.0], [30.0]])
    L = _graphs.sparse_laplacian(make_pairs(X, "mutual"), 1, np.ones(len(X), np.bool_))
    assert isinstance(L, scipy.sparse.csc_array)
    assert L.dtype == np.float64
    assert L.indptr.tolist() == [0, 2, 3, 4, 5]
    np.testing.assert_array_equal(L.diagonal(), [1, 1, 0, 0])
    assert L.has_sorted_indices


def test_laplacian_spectra_of_known_graphs():
    """The complete graph, and a path whose last edge counts twice."""
    n = 9
    for graph, weight in (("mutual", 1.0), ("symmetric", 2.0)):
        pairs = make_pairs(np.arange(float(n))[:, None], graph)
        complete = np.linalg.eigvalsh(full(lower_laplacian(pairs, n - 1)))
        np.testing.assert_allclose(complete, [0.0] + [weight * n] * (n - 1), atol=1e-12)
    # gaps that shrink from left to right: everyone's nearest is the next, the last's the one before
    steps = np.cumsum(0.9 ** np.arange(n))[:, None]
    path = np.linalg.eigvalsh(full(lower_laplacian(make_pairs(steps, "symmetric"), 1)))
    last_edge_twice = naive.laplacian(
        np.diag([1] * (n - 2) + [2], 1) + np.diag([1] * (n - 2) + [2], -1)
    )
    np.testing.assert_allclose(path, np.linalg.eigvalsh(last_edge_twice), atol=1e-12)


# ---------------------------------------------------------------- sums over edges


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("k_max", [6, None])
@pytest.mark.parametrize("outputs", [1, 3])
def test_roughness(graph, k_max, outputs):
    rng = np.random.default_rng(7)
    X = rng.integers(0, 6, (25, 2)).astype(float)
    Y = rng.normal(size=(25, outputs))
    pairs = make_pairs(X, graph, k_max)
    expected = [0.0]
    for k in range(1, pairs.k_max + 1):
        W = naive.weights(X, k, graph)
        expected.append(naive.roughness(W, Y))
        np.testing.assert_allclose(expected[-1], np.trace(Y.T @ naive.laplacian(W) @ Y))
    found = _graphs.roughness(pairs, Y)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert (np.diff(found) >= 0).all()


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("k_max", [6, None])
def test_unequal_edges(graph, k_max):
    rng = np.random.default_rng(8)
    X = rng.integers(0, 6, (25, 2)).astype(float)
    codes = rng.integers(0, 3, 25).astype(np.int32)
    pairs = make_pairs(X, graph, k_max)
    differ = codes[:, None] != codes
    expected = [
        np.sum(np.triu(naive.weights(X, k, graph)) * differ) for k in range(1, pairs.k_max + 1)
    ]
    np.testing.assert_array_equal(_graphs.roughness(pairs, codes), [0, *expected])


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("k_max", [6, 80, None])
@pytest.mark.parametrize("anchor", [1, 4])
def test_resistance_sums(graph, k_max, anchor):
    rng = np.random.default_rng(9)
    n, r = 90, 0.3
    X = rng.normal(size=(n, 2))
    pairs = make_pairs(X, graph, k_max)
    B = np.linalg.inv(naive.laplacian(naive.weights(X, anchor, graph)) + r * np.eye(n))
    R = np.diag(B)[:, None] + np.diag(B) - 2 * B
    ks = [k for k in range(1, pairs.k_max + 1) if k < 8 or k % 20 == 0]
    expected = [np.sum(np.triu(naive.weights(X, k, graph)) * R) for k in ks]
    parts = _graphs.components(pairs, anchor)
    gap = rng.random(parts.count)
    # what the null vectors of L add to B may be left out of it, and given as the gap instead
    lifted = B - (gap[parts.label] * (parts.label[:, None] == parts.label))
    for inverse, label, missing in (
        (B, np.zeros(n, np.int64), np.zeros(1)),
        (lifted, parts.label, gap),
    ):
        only_lower = np.tril(inverse) + np.triu(np.full_like(B, np.nan), 1)
        found = _graphs.resistance_sums(pairs, only_lower, label, missing)
        assert len(found) == pairs.k_max + 1
        assert found[0] == 0
        np.testing.assert_allclose(found[ks], expected, rtol=1e-10)
        # at the anchor itself rho + r T = n
        np.testing.assert_allclose(found[anchor] + r * np.trace(B), n, rtol=1e-10)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_resistance_sums_do_not_depend_on_threads(threads):
    X = np.random.default_rng(10).normal(size=(300, 2))
    pairs = make_pairs(X, "symmetric")
    inverse = np.linalg.inv(full(lower_laplacian(pairs, 5)) + np.eye(300))
    arguments = pairs, inverse, np.zeros(300, np.int64), np.zeros(1)
    with limit_threads(1):
        expected = _graphs.resistance_sums(*arguments)
    with limit_threads(threads):
        np.testing.assert_array_equal(_graphs.resistance_sums(*arguments), expected)


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", GRAPHS)
def test_components(small_points, graph):
    pairs = make_pairs(small_points, graph)
    for k in some_ks(len(small_points)):
        W = naive.weights(small_points, k, graph)
        count, label = connected_components(W, directed=False)
        found = _graphs.components(pairs, k)
        assert found.count == count == naive.n_components(W)
        np.testing.assert_array_equal(found.label[:, None] == found.label, label[:, None] == label)
        np.testing.assert_array_equal(found.size, np.bincount(found.label, minlength=count))


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", GRAPHS)
def test_sums_over_the_edges_of_few_points(graph):
    X = np.array([[0.0], [1.0], [2.0], [2.0], [5.0]])
    Y = np.array([[1.0], [2.0], [4.0], [8.0], [16.0]])
    codes = np.array([0, 1, 0, 1, 1], np.int32)
    pairs = make_pairs(X, graph)
    for k in range(1, 5):
        W = naive.weights(X, k, graph)
        assert _graphs.roughness(pairs, Y)[k] == naive.roughness(W, Y)
        assert _graphs.roughness(pairs, codes)[k] == np.sum(np.triu(W) * (codes[:, None] != codes))
        np.testing.assert_array_equal(full(lower_laplacian(pairs, k)), naive.laplacian(W))
        whole = np.zeros(5, np.int64), np.zeros(1)
        assert _graphs.resistance_sums(pairs, np.eye(5), *whole)[k] == np.sum(W)


def test_many_points_are_numbered_by_who_is_near():
    """The same graphs under other numbers, which more neighbours do not change."""
    X = np.random.default_rng(5).normal(size=(30_000, 2))
    for graph in GRAPHS:
        deep, flat = make_pairs(X, graph, 12), make_pairs(X, graph, 9)
        new = _graphs.gathered(deep)
        place = np.full(len(X), -1)
        place[deep.rows], place[deep.columns] = new.rows, new.columns
        np.testing.assert_array_equal(np.sort(place[place >= 0]), np.unique(place[place >= 0]))
        np.testing.assert_array_equal(place[deep.rows], new.rows)
        np.testing.assert_array_equal(place[deep.columns], new.columns)
        np.testing.assert_array_equal(new.count, deep.count)
        assert np.abs(new.rows - new.columns).mean() < 0.1 * np.abs(deep.rows - deep.columns).mean()
        edges = flat.count[9]
        np.testing.assert_array_equal(_graphs.gathered(flat).rows[:edges], new.rows[:edges])
    few = make_pairs(X[:500], "symmetric", 5)
    assert _graphs.gathered(few) is few


def test_degrees_are_remembered_as_they_are():
    X = np.random.default_rng(6).normal(size=(40, 2))
    pairs = make_pairs(X, "symmetric")
    for k in [*range(1, 39), 3, 20, 3]:
        W = naive.weights(X, k, "symmetric")
        np.testing.assert_array_equal(_graphs.degrees(pairs, k), W.sum(axis=0))


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", GRAPHS)
def test_degrees_in_any_order_of_k(graph):
    """Each is counted from the nearest graph that was looked at, up or down."""
    rng = np.random.default_rng(8)
    X = rng.integers(0, 4, size=(40, 2)).astype(float)
    pairs = make_pairs(X, graph)
    for k in rng.permutation(np.tile(np.arange(1, 40), 2)).tolist():
        expected = np.asarray(mksknn.knn_graph(X, k, graph=graph).sum(axis=1)).ravel()
        np.testing.assert_array_equal(_graphs.degrees(pairs, k), expected)
