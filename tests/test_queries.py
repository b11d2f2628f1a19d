"""Links of queries, by every route, against their definition."""

import warnings

import naive
import numpy as np
import pytest

from mksknn import _validation as gate
from mksknn._neighbors import Space, rank
from mksknn._products import Products
from mksknn._queries import Index
from mksknn._threads import limit_threads

GRAPHS = ("knn", "mutual", "symmetric")
ROUTES = {
    "euclidean": ("tree", "scan", "rows"),
    "manhattan": ("tree", "rows"),
    "chebyshev": ("tree", "rows"),
    "cosine": ("scan", "rows"),
    "precomputed": ("rows",),
}


def cloud(kind, n, n_new, d, seed=0):
    """Training points and queries; the first queries are training points."""
    rng = np.random.default_rng(seed)
    if kind == "lattice":  # full of ties and duplicates, in exact arithmetic
        X, new = rng.integers(1, 5, (n, d)).astype(float), rng.integers(0, 6, (n_new, d)) + 1.0
    elif kind == "tails":  # some radii are far larger than others
        X, new = rng.standard_cauchy((n, d)), rng.standard_cauchy((n_new, d))
    else:
        X, new = rng.normal(size=(n, d)), rng.normal(size=(n_new, d))
    new[: n_new // 4] = X[: n_new // 4]
    return X, new


def as_distances(X, new):
    return naive.distance_matrix(X), naive.cross_distances(new, X)


def find(X, new, ks, graph, metric, route=None):
    """Of each query: the nearest point, and its links as (index, distance, own, back)."""
    out = [None] * len(new)

    def work(links, rows):
        for a, row in enumerate(np.arange(len(new))[rows]):
            mine = slice(links.starts[a], links.starts[a + 1])
            columns = links.indices, links.distances, links.own, links.back
            entries = list(zip(*(column[mine].tolist() for column in columns)))
            out[row] = int(links.closest[a]), entries

    Index(X, as_ks(ks), graph, metric, route=route).run(new, work)
    return out


def as_ks(ks):
    """Every k up to a number, or those listed."""
    return np.arange(1, ks + 1) if isinstance(ks, int) else np.array(ks)


def literal(X, new, ks, graph, metric):
    """The first of the graphs that holds a link, either way; their number if none does."""
    D, d_new = naive.distance_matrix(X, metric), naive.cross_distances(new, X, metric)
    ks = as_ks(ks).tolist()
    never = len(ks)
    out = []
    for d in d_new:
        order = naive.query_ranking(d)
        entries = []
        for place, i in enumerate(order, start=1):
            own = sum(k < place for k in ks)
            back = sum(k < naive.query_rank(D, i, d[i]) for k in ks)
            keep = {
                "knn": own < never,
                "mutual": max(own, back) < never,
                "symmetric": min(own, back) < never,
            }[graph]
            if keep:
                entries.append((i, float(d[i]), own, never if graph == "knn" else back))
        out.append((order[0], entries))
    return out


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("metric", ROUTES)
@pytest.mark.parametrize(("kind", "d"), [("normal", 3), ("lattice", 2), ("lattice", 5)])
def test_every_route_finds_the_links_of_the_definition(kind, d, metric, graph):
    X, new = cloud(kind, 45, 20, d)
    if metric == "precomputed":
        X, new = as_distances(X, new)
    for ks in (1, 4, 44, [5], [2, 3, 17]):
        expected = literal(X, new, ks, graph, metric)
        for route in (None, *ROUTES[metric]):
            assert find(X, new, ks, graph, metric, route) == expected, (route, ks)


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("route", ["tree", "scan", "rows"])
def test_few_points(route, graph):
    X, new = cloud("lattice", 20, 6, 2)
    for k_max in (2, 19):
        expected = literal(X, new, k_max, graph, "euclidean")
        assert find(X, new, k_max, graph, "euclidean", route) == expected


@pytest.mark.uncompiled
@pytest.mark.parametrize(("route", "d"), [("tree", 3), ("scan", 5), ("rows", 3)])
@pytest.mark.parametrize("kind", ["normal", "tails"])
def test_adopters_that_are_not_among_the_nearest(kind, route, d):
    """In a tree of several leaves, and in a tile."""
    X, new = cloud(kind, 75, 5, d, seed=1)
    expected = literal(X, new, 3, "symmetric", "euclidean")
    assert any(own == 3 for _, entries in expected for _, _, own, _ in entries)
    assert find(X, new, 3, "symmetric", "euclidean", route) == expected


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize(
    ("kind", "d", "metric"),
    [
        ("normal", 3, "euclidean"),
        ("tails", 2, "euclidean"),
        ("lattice", 3, "euclidean"),
        ("normal", 4, "manhattan"),
        ("lattice", 2, "chebyshev"),
        ("normal", 12, "euclidean"),
        ("normal", 6, "cosine"),
    ],
)
def test_routes_and_threads_agree_on_more_points(kind, d, metric, graph):
    X, new = cloud(kind, 1500, 700, d)
    with limit_threads(1):
        expected = find(X, new, 10, graph, metric)
    for route in ROUTES[metric]:
        with limit_threads(2):
            assert find(X, new, 10, graph, metric, route) == expected, route


@pytest.mark.parametrize("scale", [1e-160, 1e-8, 1e150])
def test_routes_agree_at_extreme_scales(scale):
    """Squares of such differences underflow, or come near to overflow."""
    X, new = cloud("normal", 600, 60, 3)
    X, new = X * scale, new * scale
    expected = find(X, new, 5, "symmetric", "euclidean", "rows")
    for route in ("tree", "scan"):
        assert find(X, new, 5, "symmetric", "euclidean", route) == expected


def test_far_limits_are_infinite_in_silence():
    """Points so near each other that their scale squared leaves single precision."""
    X = np.random.default_rng(0).normal(size=(40, 5)) * 1e-300
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for graph in GRAPHS:
            expected = find(X, X[:9], [3], graph, "euclidean", "rows")
            assert find(X, X[:9], [3], graph, "euclidean", "scan") == expected
            assert find(X, X[:9], [3], graph, "euclidean", "tree") == expected


def test_routes_agree_far_from_the_origin():
    """Rounding of coordinates near 1e8 makes boxes, balls and products err the most."""
    X, new = cloud("lattice", 600, 200, 3)
    X, new = X * 1e-7 + 1e8, new * 1e-7 + 1e8
    expected = find(X, new, 5, "symmetric", "euclidean", "rows")
    for route in ("tree", "scan"):
        assert find(X, new, 5, "symmetric", "euclidean", route) == expected


@pytest.mark.parametrize("route", ["tree", "scan", "rows"])
def test_a_query_that_everyone_adopts(route):
    """Most points on a sphere are nearer to its centre than to each other: buffers must grow."""
    X = np.random.default_rng(0).normal(size=(1500, 12))
    X /= np.sqrt((X * X).sum(axis=1))[:, None]
    new = np.zeros((100, 12))
    found = find(X, new, 100, "symmetric", "euclidean", route)
    radii = rank(X, 100, "euclidean").distances[:, -1]
    d = naive.cross_distances(new[:1], X)[0]
    nearest = set(naive.query_ranking(d)[:100])
    expected = nearest | set(np.flatnonzero(d < radii).tolist())
    assert len(expected) > 1000  # more than the buffers hold at first
    for closest, entries in (found[0], found[-1]):
        assert closest == naive.query_ranking(d)[0]
        assert {entry[0] for entry in entries} == expected


def test_one_point_many_times():
    X = np.ones((700, 2))
    new = np.array([[1.0, 1.0], [2.0, 1.0]])
    for route in ROUTES["euclidean"]:
        (near, entries), (far, others) = find(X, new, 3, "symmetric", "euclidean", route)
        assert near == far == 0
        # all radii are 0, so nobody adopts, not even a duplicate: it comes last in the tie
        assert entries == [(i, 0.0, i, 3) for i in range(3)]
        assert others == [(i, 1.0, i, 3) for i in range(3)]


def test_route_choice():
    def route(n, d, k, metric="euclidean"):
        points = np.random.default_rng(0).normal(size=(n, d))
        return Index(points, np.array([k]), "knn", metric).route

    assert route(200, 3, 5) == route(200, 20, 5) == "rows"  # whose kernels are needed anyway
    assert route(1000, 3, 5) == "tree"
    assert route(1000, 20, 5) == "scan"
    assert route(1000, 20, 5, "manhattan") == "rows"
    assert route(1000, 3, 900) == "rows"
    assert route(1000, 20, 5, "cosine") == "scan"


# ------------------------------------------------------------------------------ the training side


@pytest.mark.parametrize(("route", "d"), [("tree", 3), ("scan", 9), ("rows", 9)])
@pytest.mark.parametrize("kind", ["normal", "lattice", "tails"])
def test_radii_are_the_distances_of_the_neighbours(kind, route, d):
    X, _ = cloud(kind, 800, 1, d)
    ks = np.array([1, 4, 20])
    for graph in ("mutual", "symmetric"):
        index = Index(X, ks, graph, "euclidean", route=route)
        assert np.array_equal(index.radii, rank(X, 20, "euclidean").distances[:, ks - 1])
        assert np.array_equal(index.points, X)
    assert Index(X, ks, "knn", "euclidean", route=route).radii.shape == (800, 0)


@pytest.mark.parametrize(("route", "d"), [("tree", 1), ("tree", 3), ("scan", 9), ("rows", 1)])
def test_what_is_kept_is_a_copy(route, d):
    X, new = cloud("normal", 600, 40, d)
    mine = X.copy()
    index = Index(mine, np.array([7]), "symmetric", "euclidean", route=route)
    mine[:] = 0.0
    found = []
    index.run(new[:5], lambda links, rows: found.append(links.indices.tolist()))
    expected = find(X, new[:5], [7], "symmetric", "euclidean")
    assert found[0] == [entry[0] for _, entries in expected for entry in entries]


# ------------------------------------------------------------------------------ products


def test_single_precision_only_where_it_tells_neighbours_apart():
    rng = np.random.default_rng(0)
    loose = rng.normal(size=(2000, 10))
    tight = rng.normal(size=(20, 10))[rng.integers(0, 20, 2000)] + 1e-6 * loose

    def precision(points, metric="euclidean"):
        return Products(Space(points, metric), 5).dtype

    assert precision(loose) == np.float32
    assert precision(loose + 1e6) == np.float32  # the centre does not matter
    assert precision(tight) == np.float64
    assert precision(loose, "cosine") == np.float32
    assert precision(1.0 + 1e-5 * loose, "cosine") == np.float64


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("kind", ["tight", "outlier", "far query", "mostly one point"])
def test_the_scan_is_exact_where_precision_is_short(kind, metric):
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(700, 6)), rng.normal(size=(40, 6))
    if kind == "tight":
        centres = rng.normal(size=(5, 6))
        X, new = (centres[rng.integers(0, 5, len(x))] + 1e-7 * x for x in (X, new))
    elif kind == "outlier":
        X[3], X[500] = 1e30, -1e60
    elif kind == "far query":
        new[:20] *= 10.0 ** np.arange(1, 61, 3)[:, None]
    else:
        X[:600] = X[0]
    for graph in GRAPHS:
        expected = find(X, new, [6], graph, metric, "rows")
        assert find(X, new, [6], graph, metric, "scan") == expected
        for query in (0, 19, 39):  # alone, without a matrix product
            alone = find(X, new[query : query + 1], [6], graph, metric, "scan")
            assert alone == expected[query : query + 1]


def test_more_k_than_memory_holds_are_refused(monkeypatch):
    """A number for each point and k stays with a predictor."""
    monkeypatch.setattr(gate, "free_memory", lambda: 8.0 * 3000 * 40)
    points = np.random.default_rng(0).normal(size=(3000, 2))
    Index(points, np.arange(1, 41), "mutual", "euclidean")
    with pytest.raises(ValueError, match="3000 points for 41 k would take .* fewer k"):
        Index(points, np.arange(1, 42), "mutual", "euclidean")
