"""Where queries stand among the training points, in the graphs of every k at once.

A prediction weighs training point i by two facts: from which k on i is among the query's nearest,
and from which k on the query would be among i's. For the second it is enough to know how far i's
k-th neighbours are, for each k that will be asked for: n numbers for each k.

The second fact makes training points matter that the query itself does not have among its nearest:
point i would adopt the query if it lies nearer than i's k-th neighbour. Three routes find them, all
with the exact distances of `_distances`, so all return the same bits:

- in few dimensions the k-d tree of `_tree`;
- in many dimensions the scan of `_products`, in which matrix products rule pairs out;
- otherwise (other metrics, precomputed distances, k near n) whole rows of distances.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ._distances import Space
from ._jit import kernel
from ._names import GRAPHS, Graph, MetricName
from ._neighbors import SCAN_ROWS, SORT_BLOCK, choose_route, prunes, rank, sorts
from ._order import rank_rows, select_rows, sort_stretch
from ._products import FEW, Products, Target, scan
from ._threads import run_blocks
from ._tree import Tree, build_tree, tree_with_radii, walk_tree, walk_tree_within
from ._validation import check_memory


class Links(NamedTuple):
    """The training points that can weigh on each query, in the order of (distance, index).

    Query q has the entries ``starts[q]:starts[q + 1]``. Graphs are counted by their place among the
    k asked for, and a link that no graph holds has their number. Graph "knn" holds the nearest
    points, "mutual" those of them that would have the query among theirs, "symmetric" the nearest
    and everyone who would adopt the query.
    """

    starts: np.ndarray  # int64, (queries + 1,)
    indices: np.ndarray  # int32, training points
    distances: np.ndarray  # float64
    own: np.ndarray  # int32, the first graph in which the point is among the query's nearest
    back: np.ndarray  # int32, the first graph in which the query is among the point's nearest
    closest: np.ndarray  # int32, (queries,), the nearest training point, linked or not


class Index:
    """Training points laid out for searching, once; then `run` or `find` for any queries.

    Nothing in it changes after it was made, so threads may share it.

    Parameters
    ----------
    points : ndarray
        Validated training points, of which a copy is kept. Of precomputed distances nothing is
        kept, and no rows are needed where the radii are known.
    ks : ndarray of int
        The k that will be asked for, rising.
    graph, metric : str
        As in `predict`.
    radii : ndarray, shape (n, len(ks)), optional
        Distances of everyone's ks-th neighbours, where they are known already.
    route : str, optional
        "tree", "scan" or "rows", for tests and benchmarks.
    """

    def __init__(
        self,
        points: np.ndarray,
        ks: np.ndarray,
        graph: Graph,
        metric: MetricName,
        radii: np.ndarray | None = None,
        route: str | None = None,
    ) -> None:
        self.n = points.shape[1] if metric == "precomputed" else len(points)
        self.ks = np.asarray(ks, dtype=np.int64)
        self.graph = graph
        self.metric = metric
        # the first graph to hold the p-th nearest
        self._enters = np.searchsorted(self.ks, np.arange(1, self.k_max + 1)).astype(np.int32)
        space = Space(points, metric)
        self.route = route or _query_route(self.n, self.k_max, space)
        self._code = space.code
        if self.route == "tree":
            self._tree: Tree = build_tree(space.points)
        elif self.route == "scan":
            self._products = Products(space, self.k_max)
            self._target = Target(space.points.copy(), space.lengths, np.empty(0), self._code)
        else:
            # distances that were given say nothing of new points
            kept = np.empty((0, self.n)) if space.precomputed else space.points.copy()
            self._space = Space(kept, metric)
        self.radii = np.empty((self.n, 0))  # of k-NN, which asks nobody back
        if graph != "knn":
            self.radii = self._find_radii(space) if radii is None else radii
        if graph == "symmetric":
            self._adopt(np.ascontiguousarray(self.radii[:, -1]))

    @property
    def k_max(self) -> int:
        """The largest k asked for."""
        return int(self.ks[-1])

    @property
    def points(self) -> np.ndarray | None:
        """The training points in their order; None if distances were given."""
        if self.metric == "precomputed":
            return None
        if self.route != "tree":
            return self._target.points if self.route == "scan" else self._space.points
        points = np.empty((self.n, len(self._tree.columns)))
        points[self._tree.order] = self._tree.columns.T
        return points

    # The training side

    def _find_radii(self, space: Space) -> np.ndarray:
        """How far everyone's ks-th neighbours are."""
        if self.route == "rows":
            return rank(space.points, self.k_max, self.metric).distances[:, self.ks - 1]
        check_memory(
            8.0 * self.n * len(self.ks),
            f"the k-th distances of {self.n} points for {len(self.ks)} k",
            "a model of fewer k takes less",
        )
        radii = np.empty((self.n, len(self.ks)))

        def work(start: int, stop: int) -> None:
            if self.route == "tree":
                walk_tree_within(self._tree, start, stop, self.ks, self._code, radii)
            else:
                _, near_d, *_ = self._scan(space.points[start:stop], start)
                radii[start:stop] = near_d[:, self.ks - 1]

        run_blocks(work, self.n, self._block())
        return radii

    def _adopt(self, reach: np.ndarray) -> None:
        """Let everyone be found by the queries within their reach."""
        if self.route == "tree":
            self._tree = tree_with_radii(self._tree, reach, self._code)
        elif self.route == "scan":
            self._products.adopt(reach)
            self._target = self._target._replace(radii=reach)

    # The query side

    def run(self, new: np.ndarray, work: Callable[[Links, np.ndarray | slice], None]) -> None:
        """Call ``work(links, rows)`` for blocks of queries, on all threads; `rows` says which.

        A few queries are searched at once, on the calling thread.
        """
        if 0 < len(new) < FEW:
            work(self.find(new), slice(None))
            return
        block = self._block()
        order = None
        if self.route == "tree" and len(new) > block:
            # neighbouring queries one after another find the same part of the tree in the cache:
            # 100,000 of them in 3 dimensions took 0.9 s instead of 1.6 s
            order = build_tree(new).order
            new = new[order]

        def one(start: int, stop: int) -> None:
            rows = slice(start, stop) if order is None else order[start:stop]
            work(self.find(new[start:stop]), rows)

        run_blocks(one, len(new), block)

    def _block(self) -> int:
        """Queries to search at a time: enough to be quick, few enough to hold their links."""
        if self.route == "rows":
            return max(1, SORT_BLOCK // self.n)
        return SCAN_ROWS if self.route == "scan" else _TREE_ROWS

    def find(self, new: np.ndarray) -> Links:
        """Links of a block of queries, on the calling thread alone."""
        search = {"tree": self._search_tree, "scan": self._scan, "rows": self._search_rows}
        near_i, near_d, *adopters = search[self.route](new)
        graph = GRAPHS.index(self.graph)
        lists = _join(near_i, near_d, *adopters, self._enters, self.radii, len(self.ks), graph)
        starts, indices, distances, own, back = lists
        return Links(starts, indices, distances, own, back, near_i[:, 0].copy())

    def _room(self, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
        return np.empty((n_rows, self.k_max), np.int32), np.empty((n_rows, self.k_max))

    def _search_tree(self, new: np.ndarray) -> tuple:
        near = self._room(len(new))
        return *near, *walk_tree(self._tree, new, self._code, *near)

    def _scan(self, new: np.ndarray, first: int = -1) -> tuple:
        near = self._room(len(new))
        shadows = self._products.shadows(new)
        return *near, *scan(self._products.tiles, self._target, shadows, new, first, *near)

    def _search_rows(self, new: np.ndarray) -> tuple:
        near = self._room(len(new))
        block = self._space.distances(new)
        order = rank_rows if sorts(self.n, self.k_max) else select_rows
        order(block, -1, *near)
        if self.graph != "symmetric":
            return *near, *_nobody(len(new))
        return *near, *_adopters_of_rows(block, np.ascontiguousarray(self.radii[:, -1]))


def _nobody(n_rows: int) -> tuple[np.ndarray, ...]:
    """No adopters, as the kernels return them."""
    none = np.empty(0, np.int32)
    return np.zeros(n_rows, np.int64), none, none, np.empty(0)


_TREE_ROWS = 256  # as good as 1024 by time; a query that everyone adopts has n links, so not more


def _query_route(n: int, k_max: int, space: Space) -> str:
    route = choose_route(n, k_max, space)
    return route if route == "tree" or (route == "scan" and prunes(space)) else "rows"


# ---------------------------------------------------------------------------------------------
# From neighbours and adopters to links


@kernel
def _first_graph(radii, i, d):
    """The first graph in which a point at distance d is on the list of i: last among equals."""
    low, high = 0, radii.shape[1]
    while low < high:
        middle = (low + high) // 2
        if radii[i, middle] <= d:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _join(near_i, near_d, counts, rows, points, distances, enters, radii, never, graph):
    """Put the nearest of each query, and after them the adopters beyond, into one list per query.

    The adopters come in any order, ``counts[r]`` of them for row r; those among the nearest are
    dropped here, because they are listed already.
    """
    n_rows, k = near_i.shape
    size = n_rows * k + rows.shape[0]
    link_i, link_d = np.empty(size, np.int32), np.empty(size)
    own, back = np.empty(size, np.int32), np.empty(size, np.int32)
    # Adopters first, each row's behind room for its nearest and all adopters of the rows before:
    # at their place or behind it.
    spot = np.empty(n_rows, np.int64)
    begin = 0
    for r in range(n_rows):
        begin += k
        spot[r] = begin
        begin += counts[r]
    for e in range(rows.shape[0]):
        r = rows[e]
        edge = near_d[r, k - 1]
        if distances[e] > edge or (distances[e] == edge and points[e] > near_i[r, k - 1]):
            link_i[spot[r]] = points[e]
            link_d[spot[r]] = distances[e]
            spot[r] += 1

    starts = np.empty(n_rows + 1, np.int64)
    begin = end = np.int64(0)  # of plain zeros, the sort would be compiled for literals as well
    for r in range(n_rows):
        starts[r] = end
        for c in range(k):
            first = never if graph == 0 else _first_graph(radii, near_i[r, c], near_d[r, c])
            if graph == 1 and first == never:
                continue
            link_i[end] = near_i[r, c]
            link_d[end] = near_d[r, c]
            own[end] = enters[c]
            back[end] = first
            end += 1
        beyond = end
        for e in range(begin + k, spot[r]):
            link_i[end] = link_i[e]
            link_d[end] = link_d[e]
            end += 1
        sort_stretch(link_d, link_i, beyond, end)
        for e in range(beyond, end):
            own[e] = never
            back[e] = _first_graph(radii, link_i[e], link_d[e])
        begin += k + counts[r]
    starts[n_rows] = end
    return starts, link_i[:end], link_d[:end], own[:end], back[:end]


# ---------------------------------------------------------------------------------------------
# Whole rows of distances


@kernel
def _adopters_of_rows(block, radii):
    """Everyone with the query inside their radius: counts by row, and (row, point, distance)."""
    counts = np.empty(block.shape[0], np.int64)
    size = 0
    for r in range(block.shape[0]):
        before = size
        for j in range(block.shape[1]):
            size += block[r, j] < radii[j]
        counts[r] = size - before
    rows = np.empty(size, np.int32)
    points = np.empty(size, np.int32)
    distances = np.empty(size)
    e = 0
    for r in range(block.shape[0]):
        for j in range(block.shape[1]):
            if block[r, j] < radii[j]:
                rows[e] = r
                points[e] = j
                distances[e] = block[r, j]
                e += 1
    return counts, rows, points, distances
