"""Ranking by (distance, index): all of it, the nearest k_max, and where a query would stand.

Every route computes a distance with the same operations in the same order (a sum over columns from
first to last), so all routes return the same bits:

- the full ranking sorts whole rows;
- the top k_max in few dimensions come from SciPy's k-d tree, in many from a scan in which matrix
  products rule pairs out; in both, exact distances decide, ties at the edge included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ._jit import kernel
from ._threads import one_thread_each, run_blocks
from ._validation import METRICS, check_k_max, check_memory, check_points, one_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

_CODES = {"euclidean": 0, "manhattan": 1, "chebyshev": 2, "cosine": 3}
_TREE_POWER = {"euclidean": 2.0, "manhattan": 1.0, "chebyshev": np.inf}
_EPS = np.finfo(np.float64).eps
_TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True, eq=False)
class Neighbors:
    """The nearest neighbours of each point, nearest first.

    Attributes
    ----------
    indices : ndarray of int32, shape (n, k_max)
        Row i holds the neighbours of point i in the order of (distance, index).
    distances : ndarray of float64, shape (n, k_max)
        Their distances to point i.
    """

    indices: np.ndarray
    distances: np.ndarray

    def __repr__(self) -> str:
        n, k_max = self.indices.shape
        return f"Neighbors(n={n}, k_max={k_max})"


def neighbors(X: ArrayLike, k_max: int | None = None, *, metric: str = "euclidean") -> Neighbors:
    """Rank the k_max nearest neighbours of every point by (distance, index).

    Parameters
    ----------
    X : array_like, shape (n, d)
        The points, or their n x n distances if ``metric="precomputed"``.
    k_max : int, optional
        How many neighbours to rank, from 1 to n - 1. By default all n - 1.
    metric : str
        "euclidean", "manhattan", "chebyshev", "cosine" or "precomputed".

    Returns
    -------
    Neighbors
        ``indices`` and ``distances``, both of shape (n, k_max). A point is never its own
        neighbour; duplicates of it are.

    Examples
    --------
    >>> import mksknn
    >>> ranked = mksknn.neighbors([[0.0], [1.0], [2.0], [4.0]], k_max=2)
    >>> ranked.indices.tolist()
    [[1, 2], [0, 2], [1, 0], [2, 1]]
    >>> ranked.distances.tolist()
    [[1.0, 2.0], [1.0, 1.0], [1.0, 2.0], [2.0, 3.0]]
    """
    one_of(metric, METRICS, "metric")
    points = check_points(X, metric)
    return rank(points, check_k_max(k_max, len(points)), metric)


def rank(points: np.ndarray, k_max: int, metric: str, route: str | None = None) -> Neighbors:
    """Rank validated points; `route` ("sort", "scan" or "tree") is for tests and benchmarks."""
    n = len(points)
    check_memory(
        n * k_max * 12.0,
        f"ranking {k_max} neighbours of each of {n} points",
        "k_max limits how many neighbours are ranked",
    )
    space = Space(points, metric)
    indices = np.empty((n, k_max), np.int32)
    distances = np.empty((n, k_max))
    route = route or choose_route(n, k_max, space)
    if route == "sort":
        _sort_rows(space, indices, distances)
    elif route == "scan":
        _scan(space, points, indices, distances, own=True)
    else:
        _search_tree(space, points, indices, distances, own=True)
    return Neighbors(indices, distances)


def nearest(points: np.ndarray, new: np.ndarray, k: int, metric: str) -> Neighbors:
    """The k nearest training points of each query, in the order of (distance, index)."""
    space = Space(points, metric)
    indices = np.empty((len(new), k), np.int32)
    distances = np.empty((len(new), k))
    if len(new):
        route = choose_route(len(points), k, space)
        search = _search_tree if route == "tree" else _scan
        search(space, new, indices, distances, own=False)
    return Neighbors(indices, distances)


class Space:
    """Training points laid out for the kernels: columns contiguous, lengths for cosine."""

    def __init__(self, points: np.ndarray, metric: str) -> None:
        self.points = points
        self.metric = metric
        self.precomputed = metric == "precomputed"
        self.code = _CODES.get(metric, -1)
        # distances that are given need no second copy
        self.columns = points if self.precomputed else np.ascontiguousarray(points.T)
        self.lengths = _lengths(points) if metric == "cosine" else np.empty(0)

    def distances(self, new: np.ndarray) -> np.ndarray:
        """Distances of a block of queries to all training points."""
        if self.precomputed:
            return np.abs(new)  # -0.0 would sort after everything
        out = np.empty((len(new), self.columns.shape[1]))
        lengths = _lengths(new) if self.metric == "cosine" else self.lengths
        _fill_distances(self.columns, new, self.lengths, lengths, self.code, out)
        return out


# Which route. Measured by benchmarks/neighbors.py --routes on 2 cores.
SORT_SHARE = 4  # the full sort beats the scan from about k_max = n / 4 on
_TREE_DIMENSIONS = 8
_TREE_SIZE = 500


def choose_route(n: int, k_max: int, space: Space) -> str:
    if k_max * SORT_SHARE >= n:
        return "sort"
    if (
        space.metric in _TREE_POWER
        and space.points.shape[1] <= _TREE_DIMENSIONS
        and n >= _TREE_SIZE
        and k_max <= n // 32
    ):
        return "tree"
    return "scan"


# ---------------------------------------------------------------------------------------------
# Distances: one definition, in two loops that do the same operations in the same order


@kernel
def _lengths(points):
    """Euclidean length of each row, columns in order."""
    out = np.zeros(points.shape[0])
    for i in range(points.shape[0]):
        for c in range(points.shape[1]):
            out[i] += points[i, c] * points[i, c]
        out[i] = np.sqrt(out[i])
    return out


@kernel
def pair_distance(a, b, code, length_a, length_b):
    """Distance of two points."""
    total = 0.0
    if code == 0:
        for c in range(a.shape[0]):
            step = a[c] - b[c]
            total += step * step
        return np.sqrt(total)
    if code == 1:
        for c in range(a.shape[0]):
            total += abs(a[c] - b[c])
        return total
    if code == 2:
        for c in range(a.shape[0]):
            total = max(total, abs(a[c] - b[c]))
        return total
    for c in range(a.shape[0]):
        total += a[c] * b[c]
    return max(0.0, 1.0 - total / (length_a * length_b))


@kernel
def _fill_distances(columns, new, lengths, new_lengths, code, out):
    """Distances of queries to all points; the inner loop runs along a column, so it vectorises."""
    d, n = columns.shape
    tile = 1024  # keeps a stretch of the row in the L1 cache
    for r in range(new.shape[0]):
        for left in range(0, n, tile):
            row = out[r, left : left + tile]
            row[:] = 0.0
            for c in range(d):
                x = new[r, c]
                column = columns[c, left : left + tile]
                if code == 0:
                    for j in range(row.shape[0]):
                        step = x - column[j]
                        row[j] += step * step
                elif code == 1:
                    for j in range(row.shape[0]):
                        row[j] += abs(x - column[j])
                elif code == 2:
                    for j in range(row.shape[0]):
                        row[j] = max(row[j], abs(x - column[j]))
                else:
                    for j in range(row.shape[0]):
                        row[j] += x * column[j]
            if code == 0:
                for j in range(row.shape[0]):
                    row[j] = np.sqrt(row[j])
            elif code == 3:
                for j in range(row.shape[0]):
                    row[j] = max(0.0, 1.0 - row[j] / (new_lengths[r] * lengths[left + j]))


# ---------------------------------------------------------------------------------------------
# Full ranking: NumPy's vectorised integer sort on keys that hold distance and index

SORT_BLOCK = 2**17  # entries per block of rows: 1 MB of distances and 1 MB of keys


def _sort_rows(space: Space, indices: np.ndarray, distances: np.ndarray) -> None:
    """Rank whole rows, and keep as many neighbours as `indices` has columns."""
    n = len(indices)
    bits = np.uint64(int(n - 1).bit_length())

    def work(start: int, stop: int) -> None:
        block = space.distances(space.points[start:stop])
        keys = np.empty(block.shape, np.uint64)
        pack_keys(block.view(np.uint64), start, bits, keys)
        keys.sort(axis=1)
        unpack_keys(keys, n - 1, block, bits, indices[start:stop], distances[start:stop])

    run_blocks(work, n, max(1, SORT_BLOCK // n))


@kernel
def pack_keys(distance_bits, first, bits, keys):
    """Distance (its highest bits) above, index below; a training point itself goes last.

    Row r is that of training point ``first + r``, or of a query if `first` is negative.

    The bits of a non-negative double order as the double does. Those that the index displaces are
    the last of the mantissa: `unpack_keys` settles pairs that differ only there.
    """
    low = (np.uint64(1) << bits) - np.uint64(1)
    for r in range(keys.shape[0]):
        for j in range(keys.shape[1]):
            keys[r, j] = (distance_bits[r, j] & ~low) | np.uint64(j)
        if first >= 0:
            keys[r, first + r] = ~np.uint64(0)


@kernel
def unpack_keys(keys, n_keys, block, bits, indices, distances):
    """Indices and distances out of sorted keys, rows put in the order of (distance, index)."""
    low = (np.uint64(1) << bits) - np.uint64(1)
    k_max = indices.shape[1]
    order_distance = np.empty(n_keys)
    order_index = np.empty(n_keys, np.int32)
    for r in range(keys.shape[0]):
        begin = 0
        while begin < k_max:
            end = begin
            top = keys[r, begin] >> bits
            sorted_run = True
            while end < n_keys and keys[r, end] >> bits == top:
                j = np.int64(keys[r, end] & low)
                order_index[end] = j
                order_distance[end] = block[r, j]
                if end > begin and order_distance[end] < order_distance[end - 1]:
                    sorted_run = False
                end += 1
            if not sorted_run:
                # stable, and the run is in the order of index: ties keep it
                run = np.argsort(order_distance[begin:end], kind="mergesort")
                order_distance[begin:end] = order_distance[begin:end][run]
                order_index[begin:end] = order_index[begin:end][run]
            begin = end
        indices[r] = order_index[:k_max]
        distances[r] = order_distance[:k_max]


# ---------------------------------------------------------------------------------------------
# Top k_max by a scan over all pairs

SCAN_ROWS = 128
SCAN_COLUMNS = 1024  # 128 x 1024 doubles: a block of products stays in the L2 cache
PRUNE_DIMENSIONS = 4  # below, the distances cost no more than the products that would prune them


def _scan(
    space: Space, new: np.ndarray, indices: np.ndarray, distances: np.ndarray, own: bool
) -> None:
    """Top k of each query among all points; `own` says that the queries are the points."""
    prune = space.metric in ("euclidean", "cosine") and new.shape[1] >= PRUNE_DIMENSIONS
    if prune:
        pruner = Pruner(space, new)

    def work(start: int, stop: int) -> None:
        skip = start if own else -1
        out = indices[start:stop], distances[start:stop]
        if not prune:
            select_rows(space.distances(new[start:stop]), skip, *out)
            return
        _scan_pruned(
            pruner.right,
            pruner.left[start:stop],
            pruner.offset[start:stop],
            space.points,
            new[start:stop],
            space.lengths,
            pruner.lengths[start:stop],
            space.code,
            skip,
            *out,
        )

    rows = SCAN_ROWS if prune else max(1, SORT_BLOCK // len(space.points))
    with one_thread_each():
        run_blocks(work, len(new), rows)


class Pruner:
    """Matrix products that bound distances from below, rounding included.

    ``left @ right`` is |b|^2 - 2ab (cosine: -ab of unit vectors); a pair can be no nearer than d
    unless that is at most d^2 - |a|^2 plus the margin (cosine: d - 1 plus it). Each rounding step
    errs by at most eps (|a| + |b|)^2, and there are fewer than 4 d + 20 of them. Products below the
    smallest normal number err by more than eps of themselves, but all together by less than it.
    """

    def __init__(self, space: Space, new: np.ndarray) -> None:
        d = new.shape[1]
        self.lengths = _lengths(new) if space.metric == "cosine" else np.empty(len(new))
        if space.metric == "cosine":
            self.right = np.ascontiguousarray((space.points / space.lengths[:, None]).T)
            self.left = -new / self.lengths[:, None]
            self.offset = np.full(len(new), -1.0 + (4 * d + 20) * _EPS)
            return
        centre = space.points.mean(axis=0)
        points, queries = space.points - centre, new - centre
        squares = (points * points).sum(axis=1)
        self.right = np.ascontiguousarray(np.column_stack([points, squares]).T)
        self.left = np.column_stack([-2.0 * queries, np.ones(len(queries))])
        own_squares = (queries * queries).sum(axis=1)
        margin = (4 * d + 20) * _EPS * (np.sqrt(own_squares) + np.sqrt(squares.max())) ** 2
        self.offset = margin - own_squares + _TINY


@kernel
def _scan_pruned(
    right, left, offset, points, new, lengths, new_lengths, code, skip, indices, distances
):
    """Top k of a block of queries: products rule pairs out, exact distances decide."""
    rows, k = indices.shape
    n = points.shape[0]
    distances[:] = np.inf
    indices[:] = 2147483647
    limit = np.full(rows, np.inf)
    products = np.empty((rows, SCAN_COLUMNS))
    for begin in range(0, n, SCAN_COLUMNS):
        end = min(n, begin + SCAN_COLUMNS)
        if end - begin < SCAN_COLUMNS:
            products = np.empty((rows, end - begin))
        np.dot(left, np.ascontiguousarray(right[:, begin:end]), products)
        for r in range(rows):
            row = products[r]
            bound = limit[r]
            for j in range(end - begin):
                if row[j] <= bound and (skip < 0 or begin + j != skip + r):
                    d = pair_distance(
                        new[r],
                        points[begin + j],
                        code,
                        new_lengths[r] if code == 3 else 0.0,
                        lengths[begin + j] if code == 3 else 0.0,
                    )
                    if d < distances[r, 0]:  # the index only grows, so a tie loses
                        replace_top(distances[r], indices[r], d, begin + j)
                        worst = distances[r, 0]
                        bound = offset[r] + (worst if code == 3 else worst * worst)
            limit[r] = bound
    for r in range(rows):
        sort_heap(distances[r], indices[r])


@kernel
def select_rows(block, skip, indices, distances):
    """Top k of each row of a block of distances."""
    distances[:] = np.inf
    indices[:] = 2147483647
    for r in range(block.shape[0]):
        for j in range(block.shape[1]):
            if block[r, j] < distances[r, 0] and (skip < 0 or j != skip + r):
                replace_top(distances[r], indices[r], block[r, j], j)
        sort_heap(distances[r], indices[r])


@kernel
def replace_top(distances, indices, d, j):
    """Replace the farthest entry of a heap ordered by (distance, index), farthest first."""
    _sift_down(distances, indices, d, j, distances.shape[0])


@kernel
def _sift_down(distances, indices, d, j, size):
    spot = 0
    while True:
        child = 2 * spot + 1
        if child >= size:
            break
        other = child + 1
        if other < size and (
            distances[other] > distances[child]
            or (distances[other] == distances[child] and indices[other] > indices[child])
        ):
            child = other
        if distances[child] > d or (distances[child] == d and indices[child] > j):
            distances[spot] = distances[child]
            indices[spot] = indices[child]
            spot = child
        else:
            break
    distances[spot] = d
    indices[spot] = j


@kernel
def sort_heap(distances, indices):
    """Turn the heap into rising order of (distance, index)."""
    for size in range(distances.shape[0] - 1, 0, -1):
        d, j = distances[size], indices[size]
        distances[size], indices[size] = distances[0], indices[0]
        _sift_down(distances, indices, d, j, size)


# ---------------------------------------------------------------------------------------------
# Top k_max by SciPy's k-d tree

_TREE_BLOCK = 2048  # queries
_TREE_FOUND = 2**20  # answers per block, so that asking again for more takes no more memory
# Rows still tied when asked for more than n / 64 are scanned: with all points equal (n = 20,000,
# d = 2, k = 10) asking on to n / 2 took 31 s, the scan 1.2 s.
_TREE_SHARE = 64


def _search_tree(
    space: Space, new: np.ndarray, indices: np.ndarray, distances: np.ndarray, own: bool
) -> None:
    """Top k of each query from the k-d tree, ranked again by our distances.

    The tree may round a distance otherwise than we do, and breaks ties as it likes. So it is asked
    for more than k, and a query is settled only when the tree's farthest answer is clearly beyond
    the k-th; the others (ties at the edge) are asked again for more, at last by a scan.
    """
    from scipy.spatial import cKDTree  # half of the time that importing mksknn would take

    n, k = len(space.points), indices.shape[1]
    tree = cKDTree(space.points)
    pending = np.arange(len(new))
    asked = k + 1 + own
    most = min(n // 2, max(asked, n // _TREE_SHARE))
    while len(pending) and asked <= most:
        settled = np.empty(len(pending), np.bool_)

        def work(start: int, stop: int, pending=pending, asked=asked, settled=settled) -> None:
            block = pending[start:stop]
            far, found = tree.query(new[block], asked, p=_TREE_POWER[space.metric])
            _rank_found(
                space.points,
                new,
                block,
                found,
                far[:, -1],
                space.code,
                own,
                settled[start:stop],
                indices,
                distances,
            )

        run_blocks(work, len(pending), max(1, min(_TREE_BLOCK, _TREE_FOUND // asked)))
        pending = pending[~settled]
        asked = 4 * asked
    if len(pending):
        rest = np.empty((len(pending), k), np.int32), np.empty((len(pending), k))
        if own:
            _scan_some(space, pending, *rest)
        else:
            _scan(space, new[pending], *rest, own=False)
        indices[pending], distances[pending] = rest


def _scan_some(
    space: Space, chosen: np.ndarray, indices: np.ndarray, distances: np.ndarray
) -> None:
    """Top k of some of the training points."""

    def work(start: int, stop: int) -> None:
        block = space.distances(space.points[chosen[start:stop]])
        block[np.arange(stop - start), chosen[start:stop]] = np.inf
        select_rows(block, -1, indices[start:stop], distances[start:stop])

    run_blocks(work, len(chosen), max(1, SORT_BLOCK // len(space.points)))


@kernel
def _rank_found(points, new, block, found, edge, code, own, settled, indices, distances):
    """Rank what the tree found; a row is settled if nothing it missed can be as near."""
    k = indices.shape[1]
    # the tree's distance and ours agree to a few units in the last place for each column, and its
    # bounds on what it leaves out gather another on each level
    slack = 1.0 - (points.shape[1] + 64) * 2.3e-16
    near_d = np.empty(found.shape[1])
    near_i = np.empty(found.shape[1], np.int32)
    for r in range(block.shape[0]):
        me = block[r]
        size = 0
        for c in range(found.shape[1]):
            j = found[r, c]
            if own and j == me:
                continue
            d = pair_distance(new[me], points[j], code, 0.0, 0.0)
            spot = size  # the tree's order is almost ours, so this insertion seldom moves anything
            while spot > 0 and (
                near_d[spot - 1] > d or (near_d[spot - 1] == d and near_i[spot - 1] > j)
            ):
                near_d[spot] = near_d[spot - 1]
                near_i[spot] = near_i[spot - 1]
                spot -= 1
            near_d[spot] = d
            near_i[spot] = j
            size += 1
        settled[r] = near_d[k - 1] < edge[r] * slack
        if settled[r]:
            indices[me] = near_i[:k]
            distances[me] = near_d[:k]
