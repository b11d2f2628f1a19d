"""Weights and Laplacians: the pairs of points in the order in which k brings them in.

Both graphs grow by unit weights as k does. Symmetric: each "j is the k-th neighbour of i" adds 1 to
the weight of {i, j}. Mutual: {i, j} gets its 1 when k reaches the larger of the two ranks. So one
list of pairs, sorted by the k that brings them in, holds every graph at once, and any sum over
edges comes out for all k in one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.sparse import csc_array, csr_array

from ._jit import interruptible, kernel
from ._metrics import Metric
from ._names import GRAPHS, Graph, MetricName
from ._neighbors import Neighbors, nearest_of
from ._order import places_in
from ._threads import check_stop, run_blocks
from ._validation import check_memory, one_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of unit weight; graph k consists of the first ``count[k]`` of them."""

    graph: Graph
    n: int
    rows: np.ndarray  # int32
    columns: np.ndarray  # int32
    count: np.ndarray  # int64, (k_max + 1,)
    # what has been looked at; workers look for themselves
    degrees: dict[int, np.ndarray] = field(init=False, default_factory=dict, repr=False)
    joined: list[Joined] = field(init=False, default_factory=list, repr=False)

    @property
    def k_max(self) -> int:
        """The largest k whose graph is held."""
        return len(self.count) - 1

    def __reduce__(self) -> tuple:
        return Pairs, (self.graph, self.n, self.rows, self.columns, self.count)


class Joined(NamedTuple):
    """Vertex i is joined to those from ``ends[starts[i]]`` on, in the order in which k brings them
    in: in graph k to as many as its degree. A weight of two stands there twice.
    """

    starts: np.ndarray
    ends: np.ndarray


@interruptible
def knn_graph(
    X: ArrayLike | Neighbors,
    k: int,
    *,
    graph: Graph = "mutual",
    metric: MetricName | Metric = "euclidean",
) -> csr_array:
    """Build the weights of the k-NN, mutual k-NN or symmetric k-NN graph.

    Parameters
    ----------
    X : array_like, shape (n, d), or Neighbors
        The points, or their n x n distances if ``metric="precomputed"``, or their neighbours.
    k : int
        Number of neighbours, from 1 to n - 1.
    graph : str
        "knn": 1 where j is among the k nearest of i. "mutual": 1 where each is among the k nearest
        of the other. "symmetric": the sum of both directions, 1 or 2.
    metric : str or Metric
        "euclidean", "manhattan", "chebyshev", "cosine" or "precomputed", or a distance that
        `learn_metric` has found.

    Returns
    -------
    scipy.sparse.csr_array, shape (n, n)
        The weights, with a zero diagonal.

    See Also
    --------
    neighbors : The lists it is made from.
    log_evidence : How well a graph explains targets.

    Examples
    --------
    >>> import mksknn
    >>> X = [[0.0], [1.0], [2.0], [4.0]]
    >>> mksknn.knn_graph(X, 1, graph="mutual").toarray().astype(int).tolist()
    [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    >>> mksknn.knn_graph(X, 1, graph="symmetric").toarray().astype(int).tolist()
    [[0, 2, 0, 0], [2, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0]]
    """
    one_of(graph, GRAPHS, "graph")
    indices = nearest_of(X, k, metric).indices  # and let the distances go
    n = len(indices)
    about = f"the {graph} graph of {n} points with k={k}", "use a smaller k"
    if graph == "knn":
        check_memory(12.0 * n * k, *about)
        columns = np.sort(indices, axis=1).ravel()
        return csr_array((np.ones(n * k), columns, _pointers(np.full(n, k))), shape=(n, n))
    need = 2 if graph == "mutual" else 1
    starts, admirers = _admirers(indices)[:2]
    pointers = _pointers(_row_sizes(indices, starts, admirers, need))
    check_memory(12.0 * pointers[-1], *about)
    columns, data = np.empty(pointers[-1], np.int32), np.empty(pointers[-1])

    def fill(start: int, stop: int) -> None:
        _fill_rows(columns, data, indices, starts, admirers, need, pointers, start, stop)

    run_blocks(fill, n, _rows_at_once(indices))
    return csr_array((data, columns, pointers), shape=(n, n))


def _pointers(size: np.ndarray) -> np.ndarray:
    """Where compressed rows of these sizes begin, in the type of the columns if that is enough:
    otherwise SciPy would turn the columns into long integers as well.
    """
    pointers = np.concatenate([[0], np.cumsum(size)])
    return pointers.astype(np.int32) if pointers[-1] < 2**31 else pointers


# Ranks that are worked on at once, for some milliseconds: an interrupt is heard in between.
_RANKS = 2**20


def _rows_at_once(indices: np.ndarray) -> int:
    return max(1, _RANKS // indices.shape[1])


def _in_turn(work: Callable[[int, int], None], indices: np.ndarray) -> None:
    """Call ``work(start, stop)`` over the rows of the table, in order and on this thread."""
    n, block = len(indices), _rows_at_once(indices)
    for start in range(0, n, block):
        check_stop()
        work(start, min(start + block, n))


def _admirers(indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The table transposed: who ranks j, rising, and at which place, at starts[j]:starts[j + 1]."""
    spot = np.zeros(len(indices), np.int64)
    _in_turn(lambda start, stop: _count_admirers(spot, indices[start:stop]), indices)
    starts = np.concatenate([[0], np.cumsum(spot)])
    spot = starts[:-1].copy()
    admirers, places = np.empty(indices.size, np.int32), np.empty(indices.size, np.int32)

    def fill(start: int, stop: int) -> None:
        _fill_admirers(admirers, places, spot, indices, start, stop)

    _in_turn(fill, indices)
    return starts, admirers, places


@kernel
def _count_admirers(count, indices):
    """Add how often each point is ranked."""
    for i in range(indices.shape[0]):
        for c in range(indices.shape[1]):
            count[indices[i, c]] += 1


@kernel
def _fill_admirers(admirers, places, spot, indices, start, stop):
    """Put what some rows rank where the next one who ranks it belongs."""
    for i in range(start, stop):
        for c in range(indices.shape[1]):
            j = indices[i, c]
            admirers[spot[j]] = i
            places[spot[j]] = c + 1
            spot[j] += 1


@kernel
def _row_sizes(indices, starts, admirers, need):
    """Neighbours of each point in the graph: those joined to it in `need` directions at least."""
    n = indices.shape[0]
    seen = np.full(n, -1, np.int32)
    size = np.empty(n, np.int64)
    for i in range(n):
        both = 0
        seen[indices[i]] = i
        for e in range(starts[i], starts[i + 1]):
            both += seen[admirers[e]] == i
        either = indices.shape[1] + starts[i + 1] - starts[i] - both
        size[i] = both if need == 2 else either
    return size


@kernel
def _fill_rows(columns, data, indices, starts, admirers, need, pointers, start, stop):
    """The weights of some compressed rows: 1 if mutual, else the number of directions."""
    directions = np.zeros(indices.shape[0], np.int8)
    for i in range(start, stop):
        spot = pointers[i]
        directions[indices[i]] = 1
        for e in range(starts[i], starts[i + 1]):
            j = admirers[e]
            directions[j] += 1
            if directions[j] == need:
                columns[spot] = j
                spot += 1
        if need == 1:
            columns[spot : pointers[i + 1]] = indices[i]
        row = columns[pointers[i] : pointers[i + 1]]
        row.sort()
        for e in range(pointers[i], pointers[i + 1]):
            data[e] = 1.0 if need == 2 else directions[columns[e]]
        directions[indices[i]] = 0
        directions[admirers[starts[i] : starts[i + 1]]] = 0


# Bytes for which the system is not asked whether it has them, which takes 0.05 ms: `learn_metric`
# builds a thousand graphs a second.
_LITTLE = 2.0**20


def pairs_by_rank(ranked: Neighbors, graph: Graph) -> Pairs:
    """The pairs of the mutual or symmetric graph in the order in which k brings them in."""
    n, k_max = ranked.indices.shape
    # mutual: who ranks whom, and in which place; then at most half as many pairs as ranks
    needed = (8.0 if graph == "symmetric" else 12.0) * n * k_max
    if needed > _LITTLE:
        check_memory(
            needed,
            f"the pairs of {n} points and {k_max} neighbours of each",
            "k_max limits how many neighbours are ranked",
        )
    if graph == "symmetric":
        rows = np.tile(np.arange(n, dtype=np.int32), k_max)
        columns = np.ascontiguousarray(ranked.indices.T).ravel()
        return Pairs(graph, n, rows, columns, n * np.arange(k_max + 1, dtype=np.int64))
    return Pairs(graph, n, *_mutual_pairs(ranked.indices))


# From so many points on a vector of them is too long for the fastest caches. Points in no order in
# the plane (n = 100,000, k = 64) took 1.6 to 2 times as long to count triangles, 3.2 times for two
# steps of Lanczos's method at every vertex and 1.7 times for thirty from one vector (on a busy
# machine); to find the order took half a second.
_SCATTERED = 30_000
_NEAR = 8  # neighbours that decide who is near whom


def gathered(pairs: Pairs) -> Pairs:
    """The same graphs with the points renumbered, if they are many: who is near has a near number.

    No determinant changes with the numbers of the points. Lists of more neighbours lead to the same
    numbers.
    """
    if pairs.n < _SCATTERED:
        return pairs
    check_memory(
        4.0 * len(pairs.rows),
        f"{len(pairs.rows)} pairs of points, renumbered",
        "k_max limits how many neighbours are ranked",
    )
    from scipy.sparse.csgraph import reverse_cuthill_mckee  # takes a while to import

    near = slice(0, pairs.count[min(_NEAR, pairs.k_max)])
    ends = pairs.rows[near], pairs.columns[near]
    near_graph = csr_array((np.ones(len(ends[0]), np.int8), ends), shape=(pairs.n, pairs.n))
    place = places_in(reverse_cuthill_mckee(near_graph + near_graph.T, symmetric_mode=True))
    return replace(pairs, rows=place[pairs.rows], columns=place[pairs.columns])


def _mutual_pairs(indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs in which each ranks the other, sorted by the larger rank (a counting sort)."""
    table = indices, *_admirers(indices)
    spot = np.zeros(indices.shape[1] + 1, np.int64)
    rows = columns = np.empty(0, np.int32)
    _in_turn(lambda start, stop: _pair_up(rows, columns, spot, *table, start, stop), indices)
    count = np.cumsum(spot)
    rows, columns = np.empty(count[-1], np.int32), np.empty(count[-1], np.int32)
    spot = np.concatenate([[0], count[:-1]])
    _in_turn(lambda start, stop: _pair_up(rows, columns, spot, *table, start, stop), indices)
    return rows, columns, count


@kernel
def _pair_up(rows, columns, spot, indices, starts, admirers, places, start, stop):
    """Put the pairs of some points i with lower ones at the spot of their k, or only count them
    where there is no room yet.
    """
    own_rank = np.zeros(indices.shape[0], np.int32)
    for i in range(start, stop):
        for c in range(indices.shape[1]):
            own_rank[indices[i, c]] = c + 1
        for e in range(starts[i], starts[i + 1]):
            j = admirers[e]
            if j < i and own_rank[j] > 0:
                k = max(own_rank[j], places[e])
                if rows.shape[0] > 0:
                    rows[spot[k]] = i
                    columns[spot[k]] = j
                spot[k] += 1
        for c in range(indices.shape[1]):
            own_rank[indices[i, c]] = 0


def sparse_laplacian(pairs: Pairs, k: int, kept: np.ndarray) -> csc_array:
    """The lower triangle of L_k, every diagonal entry present (CHOLMOD reads that half only).

    `kept` says which rows and columns to keep.
    """
    edges = pairs.count[k]
    number = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
    diagonal = degrees(pairs, k)[kept].astype(np.float64)
    parts = _lower_columns(number[pairs.rows[:edges]], number[pairs.columns[:edges]], diagonal)
    return csc_array(parts, shape=(len(diagonal), len(diagonal)))


@kernel
def _lower_columns(rows, columns, degree):
    """The lower triangle of a Laplacian in compressed columns: pairs in two counting sorts, by the
    larger index and then by the smaller one, so that equal pairs meet. A negative index is none.
    """
    n, edges = degree.shape[0], rows.shape[0]
    by_row = np.zeros(n + 1, np.int64)
    by_column = np.zeros(n + 1, np.int64)
    for e in range(edges):
        i, j = rows[e], columns[e]
        if min(i, j) >= 0:
            by_row[max(i, j) + 1] += 1
            by_column[min(i, j) + 1] += 1
    by_row = np.cumsum(by_row)
    by_column = np.cumsum(by_column)
    smaller = np.empty(edges, np.int32)
    spot = by_row[:-1].copy()
    for e in range(edges):
        i, j = rows[e], columns[e]
        if min(i, j) >= 0:
            smaller[spot[max(i, j)]] = min(i, j)
            spot[max(i, j)] += 1
    larger = np.empty(edges, np.int32)
    spot = by_column[:-1].copy()
    for i in range(n):
        for e in range(by_row[i], by_row[i + 1]):
            larger[spot[smaller[e]]] = i
            spot[smaller[e]] += 1
    pointers = np.zeros(n + 1, np.int32)
    for j in range(n):
        different = 0
        for e in range(by_column[j], by_column[j + 1]):
            different += e == by_column[j] or larger[e] != larger[e - 1]
        pointers[j + 1] = pointers[j] + 1 + different
    out = np.empty(pointers[n], np.int32)
    data = np.empty(pointers[n])
    for j in range(n):
        place = pointers[j]
        out[place] = j
        data[place] = degree[j]
        for e in range(by_column[j], by_column[j + 1]):
            if e == by_column[j] or larger[e] != larger[e - 1]:
                place += 1
                out[place] = larger[e]
                data[place] = 0.0
            data[place] -= 1.0
    return data, out, pointers


def fill_laplacian(
    pairs: Pairs, k: int, out: np.ndarray, lift: np.ndarray, parts: Components
) -> None:
    """Fill the lower triangle of a square C-ordered matrix with L_k.

    Within component c of the graph `lift[c]` is added to every entry. What stands above the
    diagonal stays as it is.
    """

    def work(start: int, stop: int) -> None:
        _fill_rows_with(out, lift, parts.label, start, stop)

    run_blocks(work, len(out), max(1, _ENTRIES // len(out)))
    edges, degree = pairs.count[k], np.zeros(len(out))
    _add_edges(pairs.rows[:edges], pairs.columns[:edges], degree, out)


_ENTRIES = 2**18  # about a tenth of a millisecond's work: less is not worth a thread


@kernel
def _fill_rows_with(out, lift, label, start, stop):
    one = lift.shape[0] == 1
    for i in range(start, stop):
        if one:
            out[i, : i + 1] = lift[0]
        else:
            for j in range(i + 1):
                out[i, j] = lift[label[i]] if label[i] == label[j] else 0.0


@kernel
def _add_edges(rows, columns, degree, out):
    for e in range(rows.shape[0]):
        i, j = rows[e], columns[e]
        out[max(i, j), min(i, j)] -= 1.0
        degree[i] += 1.0
        degree[j] += 1.0
    for i in range(degree.shape[0]):
        out[i, i] += degree[i]


def degrees(pairs: Pairs, k: int) -> np.ndarray:
    """The sum of the weights at each point in graph k: counted once while k is being looked at,
    by the edges that it has more or less than the nearest graph looked at.
    """
    known = pairs.degrees.get(k)
    if known is None:
        count = pairs.count
        others = [(0, np.zeros(pairs.n, np.int64)), *pairs.degrees.copy().items()]
        near, known = min(others, key=lambda one: abs(int(count[one[0]]) - int(count[k])))
        between = slice(count[min(near, k)], count[max(near, k)])
        for ends in (pairs.rows[between], pairs.columns[between]):
            change = np.bincount(ends, minlength=pairs.n)
            known = known + change if near < k else known - change
        if len(pairs.degrees) >= _LOOKED_AT:
            pairs.degrees.clear()
        pairs.degrees[k] = known
    return known


_LOOKED_AT = 8  # graphs, by all threads together


def growing_degrees(pairs: Pairs, ks: np.ndarray) -> Iterator[np.ndarray]:
    """The degrees in graph k for rising k, each by what k adds to those before."""
    degree, done = np.zeros(pairs.n, np.int64), 0
    for edges in pairs.count[ks].tolist():
        for ends in (pairs.rows[done:edges], pairs.columns[done:edges]):
            degree = degree + np.bincount(ends, minlength=pairs.n)
        done = edges
        yield degree


# Ends for each point, of which those of all graphs are kept: 1 KB a point. (At n = 100,000 in the
# plane, to look for them anew took 13 of 297 seconds of a selection.)
_KEPT = 128


def join(pairs: Pairs, k: int) -> Joined:
    """Who is joined to whom in graph k, and unless those are many in all graphs."""
    keep = pairs.count[-1] <= _KEPT * pairs.n
    if keep and pairs.joined:
        return pairs.joined[0]
    last = pairs.k_max if keep else k
    edges = pairs.count[last]
    starts, ends = np.append(0, np.cumsum(degrees(pairs, last))), np.empty(2 * edges, np.int32)
    _fill_ends(pairs.rows[:edges], pairs.columns[:edges], starts[:-1].copy(), ends)
    found = Joined(starts[:-1], ends)
    if keep:
        pairs.joined[:] = [found]
    return found


@kernel
def _fill_ends(rows, columns, spot, ends):
    """The ends of each vertex, from its spot on."""
    for e in range(rows.shape[0]):
        i, j = rows[e], columns[e]
        ends[spot[i]] = j
        spot[i] += 1
        ends[spot[j]] = i
        spot[j] += 1


@dataclass(frozen=True, eq=False)
class Components:
    """Connected components of a graph: the null space of its Laplacian."""

    label: np.ndarray  # component of each point, 0..count-1
    size: np.ndarray  # points in each component

    @property
    def count(self) -> int:
        """Number of components."""
        return len(self.size)


def components(pairs: Pairs, k: int) -> Components:
    """The connected components of graph k."""
    edges = pairs.count[k]
    parent, label = np.arange(pairs.n), np.empty(pairs.n, np.int64)
    _find_components(pairs.rows[:edges], pairs.columns[:edges], parent, label)
    return Components(label, np.bincount(label))


# Kernels that every first call needs are given the arrays they fill: `np.arange`, `np.cumsum` and
# even `np.zeros` in a kernel take 0.1 to 0.2 s to compile, as long as all of its loops.


@kernel
def _find_components(rows, columns, parent, label):
    """Union-find that stops as soon as everything is connected, which is early for large k.

    At first every point is its own parent.
    """
    n = left = parent.shape[0]
    for e in range(rows.shape[0]):
        if left == 1:
            break
        i, j = np.int64(rows[e]), np.int64(columns[e])
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        while parent[j] != j:
            parent[j] = parent[parent[j]]
            j = parent[j]
        if i != j:
            parent[max(i, j)] = min(i, j)
            left -= 1
    found = 0
    for i in range(n):  # a root is the lowest of its component, so it comes first
        root = parent[i]
        while parent[root] != root:
            root = parent[root]
        if root == i:
            label[i] = found
            found += 1
        else:
            label[i] = label[root]


def roughness(pairs: Pairs, targets: np.ndarray) -> np.ndarray:
    """The sum over the edges of each graph, k = 0..k_max, of |y_i - y_j|^2, a row of values each;
    of class numbers, that of the weights between different ones.
    """
    out = np.zeros(len(pairs.count))
    _sum_squares(pairs.rows, pairs.columns, pairs.count, targets, out)
    return out


@kernel
def _sum_squares(rows, columns, count, targets, out):
    """Targets are values in two dimensions or class numbers in one: compiled for each by itself."""
    for k in range(1, count.shape[0]):
        total, unequal = 0.0, 0
        for e in range(count[k - 1], count[k]):
            i, j = rows[e], columns[e]
            if targets.ndim == 2:
                for c in range(targets.shape[1]):
                    step = targets[i, c] - targets[j, c]
                    total += step * step
            else:
                unequal += targets[i] != targets[j]
        out[k] = out[k - 1] + (total + unequal)


def resistance_sums(
    pairs: Pairs, inverse: np.ndarray, label: np.ndarray, gap: np.ndarray
) -> np.ndarray:
    """rho_k for k = 0..k_max: the sum over edges of the resistance B_ii + B_jj - 2 B_ij.

    B is the inverse of L_a + r_a I at an anchor; only its lower triangle is read. Between two of
    the anchor's components, `gap` of both is added.
    """
    out = np.zeros(pairs.k_max + 1)
    diagonal = inverse.diagonal().copy()

    def work(start: int, stop: int) -> None:
        _sum_resistances(
            pairs.rows, pairs.columns, pairs.count, inverse, diagonal, label, gap, start, stop, out
        )

    edges_of_a_k = max(1, int(pairs.count[-1]) // pairs.k_max)
    run_blocks(work, pairs.k_max, max(1, _RESISTANCE_EDGES // edges_of_a_k))
    return np.cumsum(out)


_RESISTANCE_EDGES = 2**17  # about a millisecond's work: less is not worth a thread


@kernel
def _sum_resistances(rows, columns, count, inverse, diagonal, label, gap, start, stop, out):
    one_component = gap.shape[0] == 1
    for k in range(start + 1, stop + 1):
        total = 0.0
        for e in range(count[k - 1], count[k]):
            i, j = rows[e], columns[e]
            total += diagonal[i] + diagonal[j] - 2.0 * inverse[max(i, j), min(i, j)]
            if not one_component and label[i] != label[j]:
                total += gap[label[i]] + gap[label[j]]
        out[k] = total
