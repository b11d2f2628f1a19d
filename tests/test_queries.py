"""Links of queries, by every route, against their definition."""

import naive
import numpy as np
import pytest

from mksknn import _queries
from mksknn._threads import limit_threads
from mksknn._queries import LinkFinder

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


def find(X, new, k_max, graph, metric, route=None):
    """Of each query: the nearest point, and its links as (index, distance, rank, reverse)."""
    out = [None] * len(new)

    def work(links, rows):
        for a, row in enumerate(rows):
            mine = slice(links.starts[a], links.starts[a + 1])
            columns = links.indices, links.distances, links.ranks, links.reverse
            entries = list(zip(*(column[mine].tolist() for column in columns)))
            out[row] = int(links.closest[a]), entries

    LinkFinder(X, new, k_max, graph, metric, route).run(work)
    return out


def literal(X, new, k_max, graph, metric):
    D, d_new = naive.distance_matrix(X, metric), naive.cross_distances(new, X, metric)
    beyond = k_max + 1
    out = []
    for d in d_new:
        order = naive.query_ranking(d)
        entries = []
        for place, i in enumerate(order, start=1):
            own, other = min(place, beyond), min(naive.query_rank(D, i, d[i]), beyond)
            keep = {
                "knn": own < beyond,
                "mutual": max(own, other) < beyond,
                "symmetric": min(own, other) < beyond,
            }[graph]
            if keep:
                entries.append((i, float(d[i]), own, beyond if graph == "knn" else other))
        out.append((order[0], entries))
    return out


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("metric", ROUTES)
@pytest.mark.parametrize(("kind", "d"), [("normal", 3), ("lattice", 2), ("lattice", 5)])
def test_every_route_finds_the_links_of_the_definition(kind, d, metric, graph):
    X, new = cloud(kind, 45, 20, d)
    if metric == "precomputed":
        X, new = as_distances(X, new)
    for k_max in (1, 4, 44):
        expected = literal(X, new, k_max, graph, metric)
        for route in (None, *ROUTES[metric]):
            assert find(X, new, k_max, graph, metric, route) == expected, (route, k_max)


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("route", ["tree", "scan", "rows"])
def test_few_points(route, graph):
    X, new = cloud("lattice", 20, 6, 2)
    for k_max in (2, 19):
        expected = literal(X, new, k_max, graph, "euclidean")
        assert find(X, new, k_max, graph, "euclidean", route) == expected


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
    radii = _queries.rank(X, 100, "euclidean").distances[:, -1]
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
        assert entries == [(i, 0.0, i + 1, 4) for i in range(3)]
        assert others == [(i, 1.0, i + 1, 4) for i in range(3)]


def test_route_choice():
    def route(n, d, k, metric="euclidean"):
        return LinkFinder(np.ones((n, d)), np.ones((1, d)), k, "knn", metric)._route

    assert route(1000, 3, 5) == "tree"
    assert route(1000, 20, 5) == "scan"
    assert route(1000, 20, 5, "manhattan") == "rows"
    assert route(1000, 3, 900) == "rows"
    assert route(1000, 20, 5, "cosine") == "scan"
