"""Ranking by (distance, index): every route, any number of threads, the same bits as the oracle."""

import pickle
import re
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import naive
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import mksknn
from mksknn import _neighbors
from mksknn._distances import Space
from mksknn._metrics import Metric
from mksknn._neighbors import rank
from mksknn._threads import limit_threads

METRICS = ("euclidean", "manhattan", "chebyshev", "cosine", "precomputed")
TREE_METRICS = ("euclidean", "manhattan", "chebyshev")


def routes(metric):
    return ("sort", "scan", "tree") if metric in TREE_METRICS else ("sort", "scan")


def given_as(X, metric):
    """What to pass as X: the points, or their distances."""
    return naive.distance_matrix(X) if metric == "precomputed" else X


def oracle(X, k_max, metric):
    """The oracle's neighbours; a cosine that rounds to more than 1 is at distance 0."""
    D = np.maximum(naive.distance_matrix(X, metric), 0.0)
    return naive.neighbors(D, k_max, "precomputed")


def assert_same(found, expected):
    indices, distances = expected
    np.testing.assert_array_equal(found.indices, indices)
    np.testing.assert_array_equal(found.distances, distances)
    assert found.indices.dtype == np.int32
    assert found.distances.dtype == np.float64
    assert not np.signbit(found.distances).any()


def plain_distances(A, B, metric):
    """All distances by NumPy, columns added one after another as the contract says."""
    out = np.zeros((len(A), len(B)))
    for c in range(A.shape[1]):
        step = np.abs(A[:, c, None] - B[:, c])
        if metric == "euclidean":
            out += step * step
        elif metric == "manhattan":
            out += step
        elif metric == "chebyshev":
            out = np.maximum(out, step)
        else:
            out += A[:, c, None] * B[:, c]
    if metric == "euclidean":
        return np.sqrt(out)
    if metric == "cosine":
        return np.maximum(0.0, 1.0 - out / (plain_lengths(A)[:, None] * plain_lengths(B)))
    return out


def plain_lengths(A):
    return plain_distances(A, np.zeros((1, A.shape[1])), "euclidean")[:, 0]


def plain_ranks(D, k, own):
    """NumPy's lexsort by (distance, index)."""
    D = D.copy()
    if own:
        np.fill_diagonal(D, np.inf)
    index = np.broadcast_to(np.arange(D.shape[1]), D.shape)
    order = np.lexsort((index, D), axis=1)[:, :k]
    return order, np.take_along_axis(D, order, axis=1)


# ---------------------------------------------------------------- against the oracle


@pytest.mark.parametrize("metric", METRICS)
def test_all_neighbors_of_hard_points(hard_points, metric):
    X = given_as(hard_points, metric)
    before = X.copy()
    found = mksknn.neighbors(X, metric=metric)
    assert_same(found, oracle(X, None, metric))
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize("metric", METRICS)
def test_every_route_and_k_max(small_points, metric):
    X = given_as(small_points, metric)
    n = len(X)
    indices, distances = oracle(X, None, metric)
    for k_max in sorted({1, 2, n // 4, n // 2, n - 1} & set(range(1, n))):
        expected = indices[:, :k_max], distances[:, :k_max]
        assert_same(mksknn.neighbors(X, k_max, metric=metric), expected)
        for route in routes(metric):
            assert_same(rank(X, k_max, metric, route), expected)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", ["load_pima", "load_new_thyroid"])
def test_top_k_of_the_bundled_sets(name, metric):
    X = given_as(getattr(mksknn.datasets, name)().X, metric)
    expected = oracle(X, 7, metric)
    for route in routes(metric):
        assert_same(rank(X, 7, metric, route), expected)


@pytest.mark.uncompiled
@pytest.mark.parametrize("metric", METRICS)
def test_few_tied_points(metric):
    X = given_as(np.array([[1, 1], [2, 1], [1, 1], [1, 2], [2, 2], [3, 1], [1, 1.0]]), metric)
    for k_max in (1, 3, 6):
        expected = oracle(X, k_max, metric)
        for route in routes(metric):
            assert_same(rank(X, k_max, metric, route), expected)


@pytest.mark.uncompiled
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_few_points_of_many_columns(metric):
    X = np.random.default_rng(0).integers(0, 3, (9, 6)) + 1.0
    for route in routes(metric):
        assert_same(rank(X, 3, metric, route), oracle(X, 3, metric))


@pytest.mark.uncompiled
@pytest.mark.parametrize("metric", TREE_METRICS)
@pytest.mark.parametrize("kind", ["normal", "lattice"])
def test_a_tree_of_several_leaves(kind, metric):
    rng = np.random.default_rng(6)
    X = rng.normal(size=(75, 3)) if kind == "normal" else rng.integers(0, 5, (75, 3)) / 4.0
    found = rank(X, 5, metric, "tree")
    order, distances = plain_ranks(plain_distances(X, X, metric), 5, own=True)
    assert_same(found, (order, distances))


@given(
    X=st.tuples(st.integers(2, 14), st.integers(1, 5)).flatmap(
        lambda shape: arrays(np.float64, shape, elements=st.integers(1, 4).map(float))
    ),
    metric=st.sampled_from(METRICS),
    share=st.floats(0, 1),
)
def test_any_small_grid(X, metric, share):
    X = given_as(X, metric)
    k_max = 1 + int(share * (len(X) - 2))
    expected = oracle(X, k_max, metric)
    assert_same(mksknn.neighbors(X, k_max, metric=metric), expected)
    for route in routes(metric):
        assert_same(rank(X, k_max, metric, route), expected)


@given(
    X=st.tuples(st.integers(2, 8), st.integers(1, 6)).flatmap(
        lambda shape: arrays(
            np.float64, shape, elements=st.floats(-1e9, 1e9, allow_subnormal=False)
        )
    ),
    metric=st.sampled_from(TREE_METRICS),
)
def test_any_few_floats(X, metric):
    for route in routes(metric):
        assert_same(rank(X, len(X) - 1, metric, route), oracle(X, None, metric))


@given(
    D=st.integers(2, 9).flatmap(
        lambda n: arrays(np.float64, (n, n), elements=st.sampled_from([-0.0, 0.0, 1.0, 1e308]))
    )
)
def test_any_given_distances(D):
    D = np.maximum(D, D.T) * 1.0
    expected = naive.neighbors(np.abs(D), None, "precomputed")
    assert_same(mksknn.neighbors(D, metric="precomputed"), expected)
    assert_same(rank(D, len(D) - 1, "precomputed", "scan"), expected)


# ---------------------------------------------------------------- larger, and threads


def larger_points(kind, d, n=1000):
    rng = np.random.default_rng(3)
    if kind == "normal":
        return rng.normal(size=(n, d))
    if kind == "lattice":
        return rng.integers(1, 6, (n, d)).astype(float)
    if kind == "far":
        return 1e8 + 1e-3 * rng.normal(size=(n, d))
    return np.repeat(rng.normal(size=(n // 5, d)), 5, axis=0)  # duplicates


def check_routes_and_threads(X, k_max, metric):
    expected = plain_ranks(plain_distances(X, X, metric), k_max, own=True)
    for route in routes(metric):
        for threads in (1, 2, 3):
            with limit_threads(threads):
                assert_same(rank(X, k_max, metric, route), expected)


@pytest.mark.parametrize("metric", METRICS[:4])
@pytest.mark.parametrize("d", [2, 9])
@pytest.mark.parametrize("kind", ["normal", "lattice", "far", "duplicates"])
def test_routes_and_threads_agree(kind, d, metric):
    check_routes_and_threads(larger_points(kind, d), 23, metric)


@pytest.mark.parametrize(
    ("kind", "d", "metric"),
    [
        ("lattice", 2, "euclidean"),
        ("normal", 3, "manhattan"),
        ("far", 9, "euclidean"),
        ("duplicates", 5, "cosine"),
    ],
)
def test_routes_and_threads_agree_on_more_points(kind, d, metric):
    check_routes_and_threads(larger_points(kind, d, n=3000), 23, metric)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_full_ranking_of_more_points(threads):
    X = larger_points("lattice", 3)
    with limit_threads(threads):
        found = mksknn.neighbors(X)
    assert_same(found, plain_ranks(plain_distances(X, X, "euclidean"), len(X) - 1, own=True))


def test_keys_that_share_their_high_bits():
    """Distances closer than the bits left to them in a sort key are still told apart."""
    rng = np.random.default_rng(4)
    n = 700
    D = 1.0 + rng.integers(0, 40, (n, n)) * 2.0**-52
    D = np.maximum(D, D.T)
    expected = plain_ranks(D, n - 1, own=True)
    assert_same(mksknn.neighbors(D, metric="precomputed"), expected)
    assert_same(rank(D, n - 1, "precomputed", "scan"), expected)
    for k_max in (1, 20, 300):  # the last of which are told from the first that are left out
        assert_same(rank(D, k_max, "precomputed", "sort"), plain_ranks(D, k_max, own=True))


@pytest.mark.parametrize("d", [1, 3, 5, 20])
@pytest.mark.parametrize("scale", [1e-200, 1e-161, 1e-158, 1e-154, 1e150])
def test_routes_agree_where_squares_underflow(scale, d):
    """The gate refuses these for lack of digits, but even so no route may lose a neighbour."""
    X = scale * np.random.default_rng(5).normal(size=(400, d))
    expected = plain_ranks(plain_distances(X, X, "euclidean"), 9, own=True)
    for route in routes("euclidean"):
        assert_same(rank(X, 9, "euclidean", route), expected)


@pytest.mark.parametrize("metric", ["manhattan", "chebyshev"])
def test_tiny_and_huge_without_squares(metric):
    normal = np.random.default_rng(6).normal(size=(25, 3))
    for scale in (1e-320, 1e-200, 1e150, 1e300):
        X = scale * normal
        assert_same(mksknn.neighbors(X, metric=metric), oracle(X, None, metric))


def test_calls_from_several_threads():
    rng = np.random.default_rng(7)
    jobs = [
        (rng.normal(size=(n, d)), k_max, metric)
        for n, d, k_max in ((300, 2, None), (900, 2, 5), (900, 12, 5))
        for metric in METRICS[:4]
    ]

    def run(job):
        X, k_max, metric = job
        return mksknn.neighbors(X, k_max, metric=metric)

    alone = [run(job) for job in jobs]
    with ThreadPoolExecutor(6) as pool:
        for together, expected in zip(pool.map(run, jobs * 3), alone * 3, strict=True):
            assert_same(together, (expected.indices, expected.distances))


# ---------------------------------------------------------------- what may be passed as X

FORMS = {
    "list": lambda X: X.tolist(),
    "tuple": lambda X: tuple(map(tuple, X.tolist())),
    "float32": lambda X: X.astype(np.float32),
    "float16": lambda X: X.astype(np.float16),
    "longdouble": lambda X: X.astype(np.longdouble),
    "int64": lambda X: X.astype(np.int64),
    "uint8": lambda X: X.astype(np.uint8),
    "big_endian": lambda X: X.astype(">f8"),
    "fortran": np.asfortranarray,
    "every_other_row": lambda X: np.repeat(X, 2, axis=0)[::2],
    "reversed": lambda X: X[::-1].copy()[::-1],
    "unaligned": lambda X: (
        np.frombuffer(b"-" + X.tobytes(), np.uint8)[1:].view(float).reshape(X.shape)
    ),
    "nothing_masked": lambda X: np.ma.array(X),
    "objects": lambda X: X.astype(object),
    "frame": lambda X: pd.DataFrame(X),
    "mixed_frame": lambda X: pd.DataFrame(X).astype({0: "float32", 1: "int64"}),
    "nullable_frame": lambda X: pd.DataFrame(X).astype("Int64"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("k_max", [None, 3])
def test_forms_of_x(form, k_max):
    X = np.random.default_rng(8).integers(1, 9, (20, 5)).astype(float)
    given_form = FORMS[form](X)
    copy = np.array(given_form)
    assert_same(mksknn.neighbors(given_form, k_max), oracle(X, k_max, "euclidean"))
    np.testing.assert_array_equal(np.array(given_form), copy)


def test_booleans():
    X = np.random.default_rng(9).integers(0, 2, (20, 4)).astype(bool)
    expected = oracle(X.astype(float), None, "manhattan")
    assert_same(mksknn.neighbors(X, metric="manhattan"), expected)
    assert_same(mksknn.neighbors(pd.DataFrame(X), metric="manhattan"), expected)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_read_only_input(metric, order):
    X = given_as(np.random.default_rng(10).normal(size=(20, 5)), metric)
    X = np.array(X, order=order)
    X.flags.writeable = False
    for k_max in (None, 2):
        assert_same(mksknn.neighbors(X, k_max, metric=metric), oracle(X, k_max, metric))


def test_numpy_integers_for_k_max():
    X = np.arange(5.0)[:, None]
    for k_max in (np.int64(2), np.uint8(2), np.int32(2)):
        assert mksknn.neighbors(X, k_max).indices.shape == (5, 2)


def test_the_diagonal_of_given_distances_is_never_used():
    D = np.array([[9.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 5.0]])
    assert mksknn.neighbors(D, metric="precomputed").indices.tolist() == [[1, 2], [0, 2], [1, 0]]


def test_repr_and_freezing():
    found = mksknn.neighbors([[0.0], [1.0], [3.0]])
    assert repr(found) == "Neighbors(n=3, k_max=2, metric='euclidean')"
    with pytest.raises(AttributeError):
        found.indices = None


# ---------------------------------------------------------------- lists found elsewhere


def test_lists_are_taken_as_they_are():
    X = np.random.default_rng(15).normal(size=(30, 2))
    ranked = mksknn.neighbors(X, 6)
    for kind in (np.int64, np.uint32, np.int32):
        found = mksknn.as_neighbors(ranked.indices.astype(kind), ranked.distances)
        assert_same(found, (ranked.indices, ranked.distances))
        assert found.metric is None and ranked.metric == "euclidean"
    backwards = ranked.indices[::-1][:, ::-1]  # of nobody's distances, but lists all the same
    wrong = np.argwhere(backwards == np.arange(30)[:, None])
    if not len(wrong):
        np.testing.assert_array_equal(mksknn.as_neighbors(backwards).indices, backwards)
    found = mksknn.as_neighbors(pd.DataFrame(ranked.indices))
    np.testing.assert_array_equal(found.distances, np.tile(np.arange(1.0, 7.0), (30, 1)))


def test_lists_are_copied():
    indices, distances = np.array([[1, 2], [0, 2], [1, 0]], np.int32), np.ones((3, 2))
    found = mksknn.as_neighbors(indices, distances)
    indices[:], distances[:] = 0, 0
    assert found.indices.tolist() == [[1, 2], [0, 2], [1, 0]]
    assert (found.distances == 1.0).all()


@pytest.mark.parametrize(
    ("indices", "distances", "error", "message"),
    [
        ([[1.0], [0.0]], None, TypeError, "indices must be integers; got dtype float64"),
        ([[True], [False]], None, TypeError, "indices must be integers; got dtype bool"),
        ([1, 0], None, ValueError, r"at least 1 column; got shape \(2,\)"),
        ([[0]], None, ValueError, r"at least 2 points.* got shape \(1, 1\)"),
        (np.empty((3, 0), int), None, ValueError, r"got shape \(3, 0\)"),
        ([[1], [2]], None, ValueError, r"from 0 to 1 .*got indices\[1, 0\] = 2"),
        ([[1], [-1]], None, ValueError, r"got indices\[1, 0\] = -1 .*not found"),
        ([[1], [1]], None, ValueError, r"own row; got indices\[1, 0\] = 1"),
        ([[1, 1], [0, 2], [0, 1]], None, ValueError, "got 1 twice in row 0"),
        ([[1], [0]], [[1.0, 2.0]] * 2, ValueError, r"shape of indices, \(2, 1\); got \(2, 2\)"),
        ([[1], [0]], [[1.0], [np.nan]], ValueError, r"distances\[1, 0\] = nan"),
        ([[1], [0]], [[1.0], [-1.0]], ValueError, "distances must be >= 0; got -1.0"),
        ([[1, 2], [0, 2], [0, 1]], [[1, 2], [2, 1], [1, 1]], ValueError, "got 2.0 before 1.0 in"),
    ],
)
def test_bad_lists_are_refused(indices, distances, error, message):
    with pytest.raises(error, match=message):
        mksknn.as_neighbors(indices, distances)


@pytest.mark.uncompiled
def test_graphs_from_lists():
    X = np.random.default_rng(16).integers(0, 5, (40, 2)).astype(float)
    ranked = mksknn.neighbors(X, 9, metric="manhattan")
    taken = mksknn.as_neighbors(ranked.indices)
    before = ranked.indices.copy()
    for graph in ("knn", "mutual", "symmetric"):
        for k in (1, 5, 9):
            expected = mksknn.knn_graph(X, k, graph=graph, metric="manhattan").toarray()
            np.testing.assert_array_equal(
                mksknn.knn_graph(ranked, k, graph=graph).toarray(), expected
            )
            np.testing.assert_array_equal(
                mksknn.knn_graph(taken, k, graph=graph).toarray(), expected
            )
    np.testing.assert_array_equal(ranked.indices, before)
    with pytest.raises(ValueError, match="k must be at most 9, .*got 10"):
        mksknn.knn_graph(ranked, 10)
    with pytest.raises(ValueError, match="ranked by 'manhattan'; got 'cosine'"):
        mksknn.knn_graph(ranked, 3, metric="cosine")


@pytest.mark.uncompiled
def test_ranks_made_by_hand_are_refused():
    """A kernel would read or write beyond its arrays."""
    X = np.random.default_rng(17).normal(size=(20, 2))
    ranked = mksknn.neighbors(X, 5)
    far, own = ranked.indices.copy(), ranked.indices.copy()
    far[3, 2], own[:, 0] = 2_000_000_000, np.arange(20)
    twice, beyond = ranked.indices.copy(), ranked.indices.copy()
    twice[7, 4], beyond[19, 4] = twice[7, 0], 20
    for indices, distances in (
        (far, ranked.distances),
        (own, ranked.distances),
        (twice, ranked.distances),
        (beyond, ranked.distances),
        (np.tile(np.roll(np.arange(20, dtype=np.int32), 1)[:, None], 40), np.ones((20, 40))),
        (-ranked.indices, ranked.distances),
        (ranked.indices.astype(np.int64), ranked.distances),
        (ranked.indices, ranked.distances[:, :3]),
        (ranked.indices.tolist(), ranked.distances.tolist()),
        (ranked.indices[:, :0], ranked.distances[:, :0]),
    ):
        made = mksknn.Neighbors(indices, distances)
        for call in (mksknn.select_k, mksknn.loo_curve):
            with pytest.raises(ValueError, match="X must be a Neighbors from neighbors or as_n"):
                call(made, X[:, 0] > 0)
        with pytest.raises(ValueError, match="as_neighbors"):
            mksknn.knn_graph(made, 2)


def test_a_metric_that_was_in_a_file_is_the_same():
    X = np.random.default_rng(18).normal(size=(40, 3))
    metric = mksknn.learn_metric(X, X[:, 0] > 0)
    ranked, again = mksknn.neighbors(X, 9, metric=metric), pickle.loads(pickle.dumps(metric))
    assert mksknn.select_k(ranked, X[:, 0] > 0, metric=again).metric is metric
    assert f"metric={metric.name!r}" in repr(ranked)
    other = mksknn.Metric("other", np.eye(3), np.ones(3))
    with pytest.raises(ValueError, match=f"ranked by '{re.escape(metric.name)}'; got 'other'"):
        mksknn.select_k(ranked, X[:, 0] > 0, metric=other)


@pytest.mark.uncompiled
def test_a_learned_metric_ranks_mapped_points():
    X = np.random.default_rng(17).normal(size=(25, 3))
    matrix = np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    metric = Metric("relevance", matrix, np.array([1.0, 2.0, 0.0]))
    found = mksknn.neighbors(X, 5, metric=metric)
    assert_same(found, oracle(X[:, :2] * [1.0, 2.0], 5, "euclidean"))
    assert found.metric is metric
    expected = mksknn.knn_graph(X[:, :2] * [1.0, 2.0], 5).toarray()
    np.testing.assert_array_equal(mksknn.knn_graph(X, 5, metric=metric).toarray(), expected)
    np.testing.assert_array_equal(mksknn.knn_graph(found, 5, metric=metric).toarray(), expected)


# ---------------------------------------------------------------- memory


def test_a_ranking_that_does_not_fit_is_refused(memory):
    memory(1e7)
    X = np.random.default_rng(12).normal(size=(1000, 2))
    with pytest.raises(ValueError, match=r"999 neighbours .* 1000 points .* GB.*k_max"):
        mksknn.neighbors(X)
    with pytest.raises(ValueError, match="GB"):
        mksknn.knn_graph(X, 500)
    assert mksknn.neighbors(X, 10).indices.shape == (1000, 10)


def test_an_absurd_ranking_is_refused_before_it_allocates():
    X = np.zeros((3_000_000, 1))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"108000\.\d GB.*k_max"):
            mksknn.neighbors(X)
        assert tracemalloc.get_traced_memory()[1] < 4 * X.nbytes
    finally:
        tracemalloc.stop()


def peak(X, k_max, metric="euclidean"):
    """Bytes that NumPy arrays took at most while ranking."""
    with limit_threads(1):
        rank(X, k_max, metric)  # compile first
        tracemalloc.start()
        try:
            rank(X, k_max, metric)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("kind", ["tree", "tree with ties", "scan", "scan without products"])
def test_peak_memory_of_top_k_grows_with_n_times_k(kind):
    rng = np.random.default_rng(13)
    n, d, k_max = 8000, 2 if kind.startswith("tree") else 10, 8
    X = rng.integers(0, 3, (n, d)).astype(float) if "ties" in kind else rng.normal(size=(n, d))
    metric = "manhattan" if kind == "scan without products" else "euclidean"
    small, large = peak(X[: n // 2], k_max, metric), peak(X, k_max, metric)
    assert large < 2.6 * small  # four times if it grew with the square of n
    fixed = 2 * 8 * _neighbors.SORT_BLOCK
    assert large < 8 * n * (2 * k_max + 4 * (d + 4)) + fixed
    assert fixed < 8 * n * n / 100


def test_given_distances_are_not_copied():
    n = 1500
    D = np.random.default_rng(14).random((n, n))
    assert peak(D + D.T, 5, "precomputed") < D.nbytes / 3


def test_a_thread_uses_its_blocks_again(monkeypatch):
    """Not new pages for every block, which the system has to clear first."""
    used, distances = [], Space.distances
    monkeypatch.setattr(
        Space,
        "distances",
        lambda self, new, out=None: used.append(out.ctypes.data) or distances(self, new, out),
    )
    X = np.random.default_rng(0).normal(size=(1200, 2))
    with limit_threads(1):
        found = mksknn.neighbors(X)
    assert len(used) > 10 and len(set(used)) == 1
    nearest = naive.cross_distances(X[-3:], X).argsort(axis=1, kind="stable")[:, 1:]
    np.testing.assert_array_equal(found.indices[-3:], nearest)
