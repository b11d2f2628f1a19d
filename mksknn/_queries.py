"""Where queries stand among the training points, for every k up to k_max at once.

A prediction weighs training point i by two facts: the rank of i in the query's own list, and the
rank that the query would take in i's list. Every graph at every k follows from the two ranks, so
one search at k_max serves all k, as averaging over k needs.

The second rank makes training points matter that the query itself does not have among its nearest:
point i would adopt the query if it lies nearer than i's k_max-th neighbour. Three routes find them,
all with the exact distances of `_neighbors`, so all return the same bits:

- in few dimensions a k-d tree on the training points, in which every node also knows the box around
  the balls in which its points adopt;
- in many dimensions the scan in which matrix products rule pairs out, by either rank;
- otherwise (other metrics, precomputed distances, k near n) whole rows of distances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ._jit import kernel
from ._neighbors import (
    PRUNE_DIMENSIONS,
    SCAN_COLUMNS,
    SCAN_ROWS,
    SORT_BLOCK,
    SORT_SHARE,
    Pruner,
    Space,
    choose_route,
    pack_keys,
    pair_distance,
    rank,
    replace_top,
    select_rows,
    sort_heap,
    unpack_keys,
)
from ._threads import one_thread_each, run_blocks

_GRAPH_CODES = {"knn": 0, "mutual": 1, "symmetric": 2}


@dataclass(frozen=True, eq=False)
class Links:
    """The training points that can weigh on each query, in the order of (distance, index).

    Query q has the entries ``starts[q]:starts[q + 1]``. Graph "knn" holds the k_max nearest,
    "mutual" those of them that would have the query among theirs, "symmetric" the k_max nearest and
    everyone who would adopt the query.
    """

    k_max: int
    starts: np.ndarray  # int64, (queries + 1,)
    indices: np.ndarray  # int32, training points
    distances: np.ndarray  # float64
    ranks: np.ndarray  # int32, rank of the training point in the query's list, k_max + 1 if beyond
    reverse: np.ndarray  # int32, rank of the query in the point's list, k_max + 1 if beyond
    closest: np.ndarray  # int32, (queries,), the nearest training point, linked or not


class LinkFinder:
    """The training side of a search for links, made once; then `find` for each block of queries.

    Parameters
    ----------
    points, new : ndarray
        Validated training points and all queries.
    k_max : int
        The largest k that will be asked for.
    graph, metric : str
        As in `predict`.
    route : str, optional
        "tree", "scan" or "rows", for tests and benchmarks.
    """

    def __init__(
        self,
        points: np.ndarray,
        new: np.ndarray,
        k_max: int,
        graph: str,
        metric: str,
        route: str | None = None,
    ) -> None:
        self.k_max = k_max
        self.graph = _GRAPH_CODES[graph]
        self._new = new
        self._space = Space(points, metric)
        self._route = route or _query_route(k_max, self._space)
        # row i: the distances of i's own neighbours, which the query would have to beat
        self._lists = np.empty((0, k_max))
        radii = np.zeros(0)  # empty: nobody adopts
        if graph != "knn":
            self._lists = rank(points, k_max, metric).distances
        if graph == "symmetric":
            radii = np.ascontiguousarray(self._lists[:, -1])
        self._radii = radii
        self._order = None
        if self._route == "tree":
            self._tree = _build_tree(points, radii)
            # neighbouring queries one after another find the same part of the tree in the cache:
            # 100,000 of them in 3 dimensions took 0.9 s instead of 1.6 s
            self._order = _build_tree(new, np.zeros(0)).order
            self._new = new[self._order]
        elif self._route == "scan":
            self._pruner = Pruner(self._space, new)
            self._reach = radii if metric == "cosine" else radii * radii

    @property
    def block(self) -> int:
        """Queries to search at a time: enough to be quick, few enough to hold their links."""
        if self._route == "rows":
            return max(1, SORT_BLOCK // len(self._space.points))
        return SCAN_ROWS if self._route == "scan" else _TREE_ROWS

    def run(self, work: Callable[[Links, np.ndarray], None]) -> None:
        """Call ``work(links, rows)`` for blocks of queries, on all threads; `rows` says which."""
        order = np.arange(len(self._new)) if self._order is None else self._order

        def block(start: int, stop: int) -> None:
            work(self.find(start, stop), order[start:stop])

        with one_thread_each():
            run_blocks(block, len(self._new), self.block)

    def find(self, start: int, stop: int) -> Links:
        """Links of the queries ``start:stop``, on the calling thread alone."""
        near_i = np.empty((stop - start, self.k_max), np.int32)
        near_d = np.empty((stop - start, self.k_max))
        search = {"tree": self._search_tree, "scan": self._scan, "rows": self._search_rows}
        *adopters, reverse = search[self._route](start, stop, near_i, near_d)
        arrays = _join(near_i, near_d, *adopters, reverse, self._lists, self.graph)
        return Links(self.k_max, *arrays, near_i[:, 0].copy())

    def _search_tree(self, start: int, stop: int, near_i: np.ndarray, near_d: np.ndarray) -> tuple:
        new = self._new[start:stop]
        return *_walk_tree(self._tree, new, self._space.code, near_i, near_d), _NO_REVERSE

    def _scan(self, start: int, stop: int, near_i: np.ndarray, near_d: np.ndarray) -> tuple:
        pruner, space = self._pruner, self._space
        return *_scan_both(
            pruner.right,
            pruner.left[start:stop],
            pruner.offset[start:stop],
            self._reach,
            self._radii,
            space.points,
            self._new[start:stop],
            space.lengths,
            pruner.lengths[start:stop],
            space.code,
            near_i,
            near_d,
        ), _NO_REVERSE

    def _search_rows(self, start: int, stop: int, near_i: np.ndarray, near_d: np.ndarray) -> tuple:
        block = self._space.distances(self._new[start:stop])
        n = block.shape[1]
        reverse = _NO_REVERSE
        if self.k_max * SORT_SHARE < n:
            select_rows(block, -1, near_i, near_d)
        else:
            bits = np.uint64(int(n - 1).bit_length())
            keys = np.empty(block.shape, np.uint64)
            pack_keys(block.view(np.uint64), -1, bits, keys)
            keys.sort(axis=1)
            unpack_keys(keys, n, block, bits, near_i, near_d)
            if self.graph:
                # long lists: all queries against one list at a time, while it is in the cache
                reverse = np.empty(block.shape, np.int32)
                _rank_columns(block, self._lists, reverse)
        return *_adopters_of_rows(block, self._radii), reverse


_NO_REVERSE = np.empty((0, 0), np.int32)
_TREE_ROWS = 256  # as good as 1024 by time; a query that everyone adopts has n links, so not more


def _query_route(k_max: int, space: Space) -> str:
    n, d = space.points.shape
    route = choose_route(n, k_max, space)
    if route != "scan":
        return "tree" if route == "tree" else "rows"
    prune = space.metric in ("euclidean", "cosine") and d >= PRUNE_DIMENSIONS
    return "scan" if prune else "rows"


# ---------------------------------------------------------------------------------------------
# From both ranks to links


@kernel
def _standing(own_list, d):
    """The rank a query at distance d takes in a list: it comes last among equals."""
    low, high = 0, own_list.shape[0]
    while low < high:
        middle = (low + high) // 2
        if own_list[middle] <= d:
            low = middle + 1
        else:
            high = middle
    return low + 1


@kernel
def _rank_columns(block, lists, reverse):
    for j in range(block.shape[1]):
        for r in range(block.shape[0]):
            reverse[r, j] = _standing(lists[j], block[r, j])


@kernel
def _join(near_i, near_d, counts, rows, points, distances, reverse, lists, graph):
    """Put the nearest of each query, and after them the adopters beyond, into one list per query.

    The adopters come in any order, ``counts[r]`` of them for row r; those among the nearest are
    dropped here, because they are listed already.
    """
    n_rows, k = near_i.shape
    begins = np.zeros(n_rows + 1, np.int64)
    begins[1:] = np.cumsum(counts)
    beyond_i = np.empty(rows.shape[0], np.int32)
    beyond_d = np.empty(rows.shape[0])
    spot = begins[:-1].copy()
    for e in range(rows.shape[0]):
        r = rows[e]
        edge = near_d[r, k - 1]
        if distances[e] > edge or (distances[e] == edge and points[e] > near_i[r, k - 1]):
            beyond_i[spot[r]] = points[e]
            beyond_d[spot[r]] = distances[e]
            spot[r] += 1

    size = n_rows * k
    for r in range(n_rows):
        size += spot[r] - begins[r]
    starts = np.zeros(n_rows + 1, np.int64)
    link_i = np.empty(size, np.int32)
    link_d = np.empty(size)
    ranks = np.empty(size, np.int32)
    back = np.full(size, k + 1, np.int32)
    end = 0
    for r in range(n_rows):
        for c in range(k):
            i = near_i[r, c]
            if graph > 0:
                place = reverse[r, i] if reverse.size else _standing(lists[i], near_d[r, c])
                if graph == 1 and place > k:
                    continue
                back[end] = place
            link_i[end] = i
            link_d[end] = near_d[r, c]
            ranks[end] = c + 1
            end += 1
        first = end
        end += spot[r] - begins[r]
        if end > first:
            _sort_into(
                beyond_i[begins[r] : spot[r]],
                beyond_d[begins[r] : spot[r]],
                link_i[first:end],
                link_d[first:end],
            )
            for e in range(first, end):
                i = link_i[e]
                ranks[e] = k + 1
                back[e] = reverse[r, i] if reverse.size else _standing(lists[i], link_d[e])
        starts[r + 1] = end
    return starts, link_i[:end], link_d[:end], ranks[:end], back[:end]


@kernel
def _sort_into(from_i, from_d, to_i, to_d):
    """Sort by (distance, index): through a heap that starts full of entries beyond any other."""
    to_d[:] = np.inf
    to_i[:] = 2147483647
    for e in range(from_i.shape[0]):
        replace_top(to_d, to_i, from_d[e], from_i[e])
    sort_heap(to_d, to_i)


# ---------------------------------------------------------------------------------------------
# Whole rows of distances


@kernel
def _adopters_of_rows(block, radii):
    """Everyone with the query inside their radius: counts by row, and (row, point, distance)."""
    counts = np.zeros(block.shape[0], np.int64)
    if radii.shape[0]:
        for r in range(block.shape[0]):
            for j in range(block.shape[1]):
                counts[r] += block[r, j] < radii[j]
    size = counts.sum()
    rows = np.empty(size, np.int32)
    points = np.empty(size, np.int32)
    distances = np.empty(size)
    e = 0
    if size:
        for r in range(block.shape[0]):
            for j in range(block.shape[1]):
                if block[r, j] < radii[j]:
                    rows[e] = r
                    points[e] = j
                    distances[e] = block[r, j]
                    e += 1
    return counts, rows, points, distances


@kernel
def _grown(array):
    out = np.empty(2 * array.shape[0], array.dtype)
    out[: array.shape[0]] = array
    return out


# ---------------------------------------------------------------------------------------------
# The scan with matrix products


@kernel
def _scan_both(
    right, left, offset, reach, radii, points, new, lengths, new_lengths, code, near_i, near_d
):
    """Nearest points and adopters of a block of queries: products rule out, distances decide."""
    n_rows, k = near_i.shape
    n = points.shape[0]
    near_d[:] = np.inf
    near_i[:] = 2147483647
    adopt = radii.shape[0] > 0
    counts = np.zeros(n_rows, np.int64)
    size = 0
    found_r = np.empty(max(SCAN_COLUMNS, 4 * n_rows * k) if adopt else 0, np.int32)
    found_i = np.empty(found_r.shape[0], np.int32)
    found_d = np.empty(found_r.shape[0])
    limit = np.full(n_rows, np.inf)
    products = np.empty((n_rows, SCAN_COLUMNS))
    for begin in range(0, n, SCAN_COLUMNS):
        end = min(n, begin + SCAN_COLUMNS)
        if end - begin < SCAN_COLUMNS:
            products = np.empty((n_rows, end - begin))
        np.dot(left, np.ascontiguousarray(right[:, begin:end]), products)
        for r in range(n_rows):
            length = new_lengths[r] if code == 3 else 0.0
            if not adopt:
                limit[r] = _scan_row(
                    products[r],
                    begin,
                    limit[r],
                    offset[r],
                    points,
                    new[r],
                    lengths,
                    length,
                    code,
                    near_i[r],
                    near_d[r],
                )
                continue
            if size + end - begin > found_r.shape[0]:
                found_r, found_i, found_d = _grown(found_r), _grown(found_i), _grown(found_d)
            limit[r], more = _scan_row_both(
                products[r],
                begin,
                limit[r],
                offset[r],
                reach[begin:end],
                radii,
                points,
                new[r],
                lengths,
                length,
                code,
                near_i[r],
                near_d[r],
                found_i[size:],
                found_d[size:],
            )
            found_r[size : size + more] = r
            counts[r] += more
            size += more
    for r in range(n_rows):
        sort_heap(near_d[r], near_i[r])
    return counts, found_r[:size], found_i[:size], found_d[:size]


# The two rows differ by the adopters. One kernel with a flag for them took five times as long: the
# compiler keeps the inner loop tight only if nothing in it can be resized or left out.


@kernel
def _scan_row(row, begin, bound, offset, points, x, lengths, length, code, near_i, near_d):
    for j in range(row.shape[0]):
        if row[j] <= bound:
            i = begin + j
            d = pair_distance(x, points[i], code, length, lengths[i] if code == 3 else 0.0)
            if d < near_d[0]:  # the index only grows, so a tie loses
                replace_top(near_d, near_i, d, i)
                bound = offset + (near_d[0] if code == 3 else near_d[0] * near_d[0])
    return bound


@kernel
def _scan_row_both(
    row,
    begin,
    bound,
    offset,
    reach,
    radii,
    points,
    x,
    lengths,
    length,
    code,
    near_i,
    near_d,
    found_i,
    found_d,
):
    size = 0
    for j in range(row.shape[0]):
        if row[j] <= bound or row[j] <= offset + reach[j]:
            i = begin + j
            d = pair_distance(x, points[i], code, length, lengths[i] if code == 3 else 0.0)
            if d < near_d[0]:
                replace_top(near_d, near_i, d, i)
                bound = offset + (near_d[0] if code == 3 else near_d[0] * near_d[0])
            if d < radii[i]:
                found_i[size] = i
                found_d[size] = d
                size += 1
    return bound, size


# ---------------------------------------------------------------------------------------------
# The tree
#
# Distances to a box are computed with the operations of distances to a point, in the same order,
# and each of them is monotone also after rounding. So a box is never farther than a point in it,
# not even by one unit in the last place, and what is pruned is beyond doubt. Squares stand for
# Euclidean distances; the factor _WIDER keeps those whose square root rounds to the same number.
# The balls' boxes do suffer rounding, by less than _MARGIN of centre plus radius.

_LEAF = 16  # 12 to 32 took the same time in 3 dimensions
_WIDER = 1.0 + 1e-15
_MARGIN = 1e-15
_STACK = 64  # a search keeps one node waiting per level, and 2**31 points make 28 levels


class _Tree(NamedTuple):
    """Nodes by number, the root first; points in the order of the leaves."""

    columns: np.ndarray  # (d, n)
    order: np.ndarray  # the index of each point
    radii: np.ndarray  # of each point; empty if nobody adopts
    boxes: np.ndarray  # (nodes, 2, d), the lowest and the highest corner
    begin: np.ndarray  # the points of a node
    end: np.ndarray
    child: np.ndarray  # the first of two children, the second follows; 0 marks a leaf
    reach: np.ndarray  # (nodes, 2, d), boxes around the balls of the points in a node


@kernel
def _build_tree(points, radii):
    """A k-d tree by halving boxes across their longest side; children follow their parents."""
    n, d = points.shape
    order = np.arange(n).astype(np.int32)
    size = 1
    while size * _LEAF < 2 * n:
        size *= 2
    boxes = np.empty((size, 2, d))
    begin, end = np.empty(size, np.int32), np.empty(size, np.int32)
    child = np.zeros(size, np.int32)
    reach = np.empty((size if radii.shape[0] else 0, 2, d))
    begin[0], end[0] = 0, n
    made = 1
    node = 0
    while node < made:
        first, last = begin[node], end[node]
        low, high = boxes[node, 0], boxes[node, 1]
        low[:] = points[order[first]]
        high[:] = low
        for e in range(first, last):
            i = order[e]
            for c in range(d):
                low[c] = min(low[c], points[i, c])
                high[c] = max(high[c], points[i, c])
        if radii.shape[0]:
            reach[node] = boxes[node]
            for e in range(first, last):
                i = order[e]
                for c in range(d):
                    far = radii[i] + _MARGIN * (radii[i] + abs(points[i, c]))
                    reach[node, 0, c] = min(reach[node, 0, c], points[i, c] - far)
                    reach[node, 1, c] = max(reach[node, 1, c], points[i, c] + far)
        if last - first > _LEAF:
            axis = np.argmax(high - low)
            middle = (first + last) // 2
            _split(points, axis, order, first, last - 1, middle)
            child[node] = made
            begin[made], end[made] = first, middle
            begin[made + 1], end[made + 1] = middle, last
            made += 2
        node += 1
    return _Tree(
        np.ascontiguousarray(points[order].T),
        order,
        radii[order] if radii.shape[0] else radii,
        boxes[:made],
        begin[:made],
        end[:made],
        child[:made],
        reach[:made],
    )


@kernel
def _split(points, axis, order, left, right, middle):
    """Quickselect: what lies before `middle` is no larger along the axis than what lies after."""
    while left < right:
        pivot = points[order[(left + right) // 2], axis]
        i, j = left, right
        while i <= j:
            while points[order[i], axis] < pivot:
                i += 1
            while points[order[j], axis] > pivot:
                j -= 1
            if i <= j:
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if middle <= j:
            right = j
        elif middle >= i:
            left = i
        else:
            return


@kernel
def _to_box(x, box, code):
    """Distance (Euclidean: its square) of a point to a box."""
    total = 0.0
    for c in range(x.shape[0]):
        gap = max(max(box[0, c] - x[c], x[c] - box[1, c]), 0.0)
        if code == 0:
            total += gap * gap
        elif code == 1:
            total += gap
        else:
            total = max(total, gap)
    return total


@kernel
def _inside(x, box):
    for c in range(x.shape[0]):
        if x[c] < box[0, c] or x[c] > box[1, c]:
            return False
    return True


@kernel
def _to_leaf(x, columns, begin, size, code, out):
    """Distances (Euclidean: their squares) of a point to those in a leaf."""
    row = out[:size]
    row[:] = 0.0
    for c in range(x.shape[0]):
        column = columns[c, begin : begin + size]
        if code == 0:
            for e in range(size):
                step = x[c] - column[e]
                row[e] += step * step
        elif code == 1:
            for e in range(size):
                row[e] += abs(x[c] - column[e])
        else:
            for e in range(size):
                row[e] = max(row[e], abs(x[c] - column[e]))


@kernel
def _walk_tree(tree, new, code, near_i, near_d):
    """Nearest points and adopters of a block of queries."""
    n_rows, k = near_i.shape
    near_d[:] = np.inf
    near_i[:] = 2147483647
    adopt = tree.radii.shape[0] > 0
    counts = np.zeros(n_rows, np.int64)
    size = 0
    found_r = np.empty(4 * n_rows * k if adopt else 0, np.int32)
    found_i = np.empty(found_r.shape[0], np.int32)
    found_d = np.empty(found_r.shape[0])
    stack = np.empty(_STACK, np.int32)
    away = np.empty(_STACK)
    leaf = np.empty(_LEAF)
    for r in range(n_rows):
        _find_nearest(tree, new[r], code, near_i[r], near_d[r], stack, away, leaf)
        if not adopt:
            continue
        more = _find_adopters(tree, new[r], code, found_i[size:], found_d[size:], stack, leaf)
        while more < 0:
            found_r, found_i, found_d = _grown(found_r), _grown(found_i), _grown(found_d)
            more = _find_adopters(tree, new[r], code, found_i[size:], found_d[size:], stack, leaf)
        found_r[size : size + more] = r
        counts[r] = more
        size += more
    return counts, found_r[:size], found_i[:size], found_d[:size]


@kernel
def _find_nearest(tree, x, code, near_i, near_d, stack, away, leaf):
    """Nearest points of one query, in order."""
    bound = np.inf
    stack[0] = 0
    away[0] = 0.0
    depth = 1
    while depth:
        depth -= 1
        node = stack[depth]
        if away[depth] > bound:
            continue
        while tree.child[node]:  # down on the nearer side, the other one waits
            one, two = tree.child[node], tree.child[node] + 1
            to_one, to_two = _to_box(x, tree.boxes[one], code), _to_box(x, tree.boxes[two], code)
            if to_two < to_one:
                one, two, to_two = two, one, to_one
            if to_two <= bound:
                stack[depth] = two
                away[depth] = to_two
                depth += 1
            node = one
        first, size = tree.begin[node], tree.end[node] - tree.begin[node]
        _to_leaf(x, tree.columns, first, size, code, leaf)
        for e in range(size):
            if leaf[e] <= bound:
                d = np.sqrt(leaf[e]) if code == 0 else leaf[e]
                i = tree.order[first + e]
                if d < near_d[0] or (d == near_d[0] and i < near_i[0]):
                    replace_top(near_d, near_i, d, i)
                    bound = near_d[0] * near_d[0] * _WIDER if code == 0 else near_d[0]
    sort_heap(near_d, near_i)


@kernel
def _find_adopters(tree, x, code, found_i, found_d, stack, leaf):
    """Write the adopters of one query; return how many, or -1 if there is no room for them."""
    found = 0
    stack[0] = 0
    depth = 1
    while depth:
        depth -= 1
        node = stack[depth]
        if tree.child[node]:
            for side in range(tree.child[node], tree.child[node] + 2):
                if _inside(x, tree.reach[side]):
                    stack[depth] = side
                    depth += 1
            continue
        first, size = tree.begin[node], tree.end[node] - tree.begin[node]
        if found + size > found_i.shape[0]:
            return -1
        _to_leaf(x, tree.columns, first, size, code, leaf)
        if code == 0:
            for e in range(size):
                leaf[e] = np.sqrt(leaf[e])
        for e in range(size):
            if leaf[e] < tree.radii[first + e]:
                found_i[found] = tree.order[first + e]
                found_d[found] = leaf[e]
                found += 1
    return found
