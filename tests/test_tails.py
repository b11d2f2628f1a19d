"""Bounds on q_k and the pairs of every k up to n - 1: on the safe side, and close."""

from fractions import Fraction
from itertools import combinations

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mksknn import _tails
from mksknn._tails import bound_tail
from mksknn._targets import encode
from mksknn._threads import limit_threads

METRICS = ("euclidean", "manhattan", "chebyshev", "cosine", "precomputed")
GRAPHS = ("symmetric", "mutual")


def given_as(X, metric):
    """What is ranked: the points, or their distances."""
    return naive.distance_matrix(X) if metric == "precomputed" else np.ascontiguousarray(X)


def targets_of(n, kind, seed=0):
    """Targets of each kind, and Y written out."""
    rng = np.random.default_rng(seed)
    if kind in ("binary", "I", "II"):
        codes = np.arange(n) % (2 if kind == "binary" else min(3, n))
        codes = rng.permutation(codes)
        Y = np.eye(codes.max() + 1)[codes]
        if kind == "binary":
            Y = 2.0 * codes[:, None] - 1.0
        return encode(codes, n, "auto", kind, True), Y
    y = rng.normal(size=(n, 3) if kind == "outputs" else n)
    targets = encode(y, n, "auto", "auto", True)
    return targets, targets.values


def truth(X, metric, graph, Y):
    """(q_k, pairs of unit weight) for k = 1..n-1, from the literal ranks."""
    D = naive.distance_matrix(X, metric)
    if metric == "cosine":
        D = np.maximum(D, 0.0)
    n = len(D)
    rank = np.full((n, n), n)
    for i in range(n):
        rank[i, naive.ranking(D, i)] = np.arange(1, n)
    gaps = ((Y[:, None] - Y[None]) ** 2).sum(axis=2)
    enters = np.triu(np.maximum(rank, rank.T), 1) if graph == "mutual" else rank
    there = (enters > 0) & (enters < n)
    q = np.bincount(enters[there], gaps[there], minlength=n)
    count = np.bincount(enters[there], minlength=n)
    return np.cumsum(q), np.cumsum(count)


def assert_safe(tail, k0, q, count):
    """The bounds hold at every k, on the grid and in between, and grow with k."""
    n = len(q)
    assert tail.ks[0] == k0 and tail.ks[-1] == n - 1
    assert (np.diff(tail.ks) > 0).all()
    assert (np.diff(tail.roughness) >= 0).all() and (np.diff(tail.edges) >= 0).all()
    above = np.searchsorted(tail.ks, np.arange(k0, n))
    below = np.searchsorted(tail.ks, np.arange(k0, n), side="right") - 1
    # only q itself is rounded here: its sums of squares differ by a few units in the last place
    assert (tail.roughness[below] <= q[k0:] * (1 + 1e-13)).all()
    assert (tail.edges[above] >= count[k0:]).all()
    np.testing.assert_allclose(tail.roughness[-1], q[-1], rtol=1e-11)  # nobody is left out
    assert tail.edges[-1] == count[-1]


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("metric", METRICS)
def test_bounds_hold_on_hard_points(small_points, metric, graph):
    X = given_as(small_points, metric)
    n = len(X)
    for kind in ("binary", "values"):
        targets, Y = targets_of(n, kind)
        q, count = truth(X, metric, graph, Y)
        for k0 in sorted({1, min(4, n - 1), n - 1}):
            assert_safe(bound_tail(X, metric, graph, targets, k0), k0, q, count)


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kind", ["binary", "I", "II", "values", "outputs"])
def test_bounds_hold_for_all_targets(kind, graph):
    X = np.random.default_rng(1).integers(0, 6, (60, 2)).astype(float)
    targets, Y = targets_of(60, kind)
    q, count = truth(X, "euclidean", graph, Y)
    assert_safe(bound_tail(X, "euclidean", graph, targets, 3), 3, q, count)


@given(
    X=st.tuples(st.integers(2, 14), st.integers(1, 3)).flatmap(
        lambda shape: arrays(np.float64, shape, elements=st.integers(1, 4).map(lambda v: 0.1 * v))
    ),
    metric=st.sampled_from(METRICS),
    graph=st.sampled_from(GRAPHS),
    bins=st.sampled_from([2, 3, 16, 512]),
    share=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_bounds_hold_on_any_small_grid(X, metric, graph, bins, share, seed):
    n = len(X)
    X = given_as(X, metric)
    k0 = 1 + int(share * (n - 2))
    targets, Y = targets_of(n, "binary", seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_tails, "_BINS", bins)
        tail = bound_tail(X, metric, graph, targets, k0)
    assert_safe(tail, k0, *truth(X, metric, graph, Y))


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", GRAPHS)
def test_few_points(graph):
    X = np.array([[0.0], [1.0], [1.0], [3.0], [7.0]])
    for n in (2, 3, 5):
        for kind in ("binary", "values"):
            targets, Y = targets_of(n, kind)
            q, count = truth(X[:n], "euclidean", graph, Y)
            assert_safe(bound_tail(X[:n], "euclidean", graph, targets, 1), 1, q, count)


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kind", ["values", "outputs"])
def test_rounding_is_on_the_safe_side(kind, graph):
    """At k = n - 1 nobody is left out: below the exact sum, by all roundings there may be.

    Those of a regular simplex, all of whose distances share a bin, and of points that need many.
    """
    n, eps = 12, np.finfo(float).eps
    targets, Y = targets_of(n, kind)
    steps = [Fraction(a) - Fraction(b) for c in Y.T.tolist() for a, b in combinations(c, 2)]
    exact = float(sum(step * step for step in steps)) * (2 if graph == "symmetric" else 1)
    few = 2 * n + 1 + targets.m + 8
    for X, least, most in (
        (np.eye(n), few - 2, few + 2),
        (np.random.default_rng(2).normal(size=(n, 2)), few + 10, 600),
    ):
        bound = bound_tail(X, "euclidean", graph, targets, 3).roughness[-1]
        assert least <= (exact - bound) / (eps * exact) <= most


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", GRAPHS)
def test_no_roughness_is_none(graph):
    """Clusters of equal values: exactly 0 as long as no edge leaves them."""
    X = np.random.default_rng(2).normal(size=(20, 2))
    X[10:] += 100.0
    targets = encode(np.repeat([0.1, 0.7], 10), 20, "regression", "auto", True)
    tail = bound_tail(X, "euclidean", graph, targets, 2)
    assert (tail.roughness[tail.ks < 10] == 0.0).all() and (tail.ks < 10).any()


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("d", [2, 10, 50])
def test_bounds_are_close(d, graph):
    """Of random points, within a few percent: near enough to rule a k out."""
    n, k0 = 400, 10
    X = np.random.default_rng(d).normal(size=(n, d))
    for kind in ("binary", "values"):
        targets, Y = targets_of(n, kind)
        q, count = truth(X, "euclidean", graph, Y)
        tail = bound_tail(X, "euclidean", graph, targets, k0)
        assert_safe(tail, k0, q, count)
        assert (tail.roughness >= 0.9 * q[tail.ks]).all()
        assert (tail.edges <= 1.25 * count[tail.ks]).all()
        assert (tail.ks[1:] <= 1.05 * tail.ks[:-1] + 1).all()


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("far", [30.0, 3000.0])
def test_clusters_that_are_classes(far, graph):
    """q is 0 within a cluster; the first edges between clusters must show, or no k would fall."""
    rng = np.random.default_rng(4)
    centres = far * np.array([[0.0, 0.0], [1.0, 0.0], [0.3, 0.9]])
    codes = np.arange(450) % 3
    X = centres[codes] + rng.normal(size=(450, 2))
    targets = encode(codes, 450, "auto", "II", True)
    q, count = truth(X, "euclidean", graph, np.eye(3)[codes])
    tail = bound_tail(X, "euclidean", graph, targets, 10)
    assert_safe(tail, 10, q, count)
    assert q[149] == 0 < q[155]
    if graph == "symmetric":
        assert (tail.roughness >= 0.98 * q[tail.ks]).all()
    elif far == 30.0:
        assert (tail.roughness >= 0.75 * q[tail.ks])[tail.ks > 190].all()


@pytest.mark.parametrize("graph", GRAPHS)
def test_bounds_are_close_where_scales_differ(graph):
    """A dense and a wide cluster, duplicates and one point far off."""
    rng = np.random.default_rng(4)
    X = np.concatenate([rng.normal(size=(250, 2)), 1e-3 * rng.normal(size=(200, 2)) + 5.0])
    X = np.concatenate([X, X[:50], [[1e6, 1e6]]])
    targets, Y = targets_of(len(X), "II")
    q, count = truth(X, "euclidean", graph, Y)
    tail = bound_tail(X, "euclidean", graph, targets, 10)
    assert_safe(tail, 10, q, count)
    # the wide cluster sees the dense one at one distance, nearly: its last 200 come together
    near = tail.ks < 300
    assert (tail.roughness >= 0.9 * q[tail.ks])[near].all()
    assert (tail.roughness >= 0.5 * q[tail.ks]).all()
    assert (tail.edges <= 1.25 * count[tail.ks]).all()


@pytest.mark.parametrize("graph", GRAPHS)
def test_any_number_of_threads_gives_the_same_bits(graph):
    X = np.random.default_rng(2).normal(size=(300, 3))
    for kind in ("II", "outputs"):
        targets, _ = targets_of(300, kind)
        tails = []
        for threads in (1, 2, 5):
            with limit_threads(threads):
                tails.append(bound_tail(X, "euclidean", graph, targets, 7))
        for tail in tails[1:]:
            for one, other in zip(tails[0], tail, strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.mark.uncompiled
def test_progress_is_told_in_rows():
    X = np.random.default_rng(3).normal(size=(100, 2))
    targets, _ = targets_of(100, "values")
    for graph, total in (("symmetric", 100), ("mutual", 200)):
        seen = []
        bound_tail(X, "euclidean", graph, targets, 5, lambda *told, seen=seen: seen.append(told))
        done = [rows for rows, _ in seen]
        assert done == sorted(done) and done[-1] == total
        assert {of for _, of in seen} == {total}


def test_memory_is_checked_first(memory):
    memory(2048)
    X = np.random.default_rng(5).normal(size=(100, 2))
    targets, _ = targets_of(100, "values")
    with pytest.raises(ValueError, match="k_max"):
        bound_tail(X, "euclidean", "mutual", targets, 5)
