"""Weights and Laplacians: the pairs of points in the order in which k brings them in.

Both graphs grow by unit weights as k does. Symmetric: each "j is the k-th neighbour of i" adds 1 to
the weight of {i, j}. Mutual: {i, j} gets its 1 when k reaches the larger of the two ranks. So one
list of pairs, sorted by the k that brings them in, holds every graph at once, and any sum over
edges comes out for all k in one pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import coo_array, csc_array, csr_array

from ._jit import kernel
from ._neighbors import Neighbors, rank
from ._threads import run_blocks
from ._validation import GRAPHS, METRICS, check_k, check_points, one_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of unit weight; graph k consists of the first ``count[k]`` of them."""

    graph: str
    n: int
    rows: np.ndarray  # int32
    columns: np.ndarray  # int32
    count: np.ndarray  # int64, (k_max + 1,)

    @property
    def k_max(self) -> int:
        """The largest k whose graph is held."""
        return len(self.count) - 1


def knn_graph(
    X: ArrayLike, k: int, *, graph: str = "mutual", metric: str = "euclidean"
) -> csr_array:
    """Build the weights of the k-NN, mutual k-NN or symmetric k-NN graph.

    Parameters
    ----------
    X : array_like, shape (n, d)
        The points, or their n x n distances if ``metric="precomputed"``.
    k : int
        Number of neighbours, from 1 to n - 1.
    graph : str
        "knn": 1 where j is among the k nearest of i. "mutual": 1 where each is among the k nearest
        of the other. "symmetric": the sum of both directions, 1 or 2.
    metric : str
        "euclidean", "manhattan", "chebyshev", "cosine" or "precomputed".

    Returns
    -------
    scipy.sparse.csr_array, shape (n, n)
        The weights, with a zero diagonal.

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
    one_of(metric, METRICS, "metric")
    points = check_points(X, metric)
    n = len(points)
    k = check_k(k, n)
    ranked = rank(points, k, metric)
    if graph == "knn":
        starts = np.arange(0, n * k + 1, k)
        weights = csr_array((np.ones(n * k), ranked.indices.ravel(), starts), shape=(n, n))
        weights.sort_indices()
        return weights
    return weight_matrix(pairs_by_rank(ranked, graph), k)


def pairs_by_rank(ranked: Neighbors, graph: str) -> Pairs:
    """The pairs of the mutual or symmetric graph in the order in which k brings them in."""
    n, k_max = ranked.indices.shape
    if graph == "symmetric":
        rows = np.tile(np.arange(n, dtype=np.int32), k_max)
        columns = np.ascontiguousarray(ranked.indices.T).ravel()
        return Pairs(graph, n, rows, columns, n * np.arange(k_max + 1, dtype=np.int64))
    return Pairs(graph, n, *_mutual_pairs(ranked.indices))


@kernel
def _mutual_pairs(indices):
    """Pairs in which each ranks the other, sorted by the larger rank (a counting sort)."""
    n, k_max = indices.shape
    starts = np.zeros(n + 1, np.int64)  # who ranks j: a transpose of the table
    for i in range(n):
        for c in range(k_max):
            starts[indices[i, c] + 1] += 1
    starts = np.cumsum(starts)
    spot = starts[:-1].copy()
    admirer = np.empty(n * k_max, np.int32)
    place = np.empty(n * k_max, np.int32)
    for i in range(n):
        for c in range(k_max):
            j = indices[i, c]
            admirer[spot[j]] = i
            place[spot[j]] = c + 1
            spot[j] += 1

    count = np.zeros(k_max + 1, np.int64)
    own_rank = np.zeros(n, np.int32)
    rows = np.empty(0, np.int32)
    columns = np.empty(0, np.int32)
    for filling in range(2):  # first count the pairs of each k, then put them in place
        for i in range(n):
            for c in range(k_max):
                own_rank[indices[i, c]] = c + 1
            for e in range(starts[i], starts[i + 1]):
                j = admirer[e]
                if j < i and own_rank[j] > 0:
                    k = max(own_rank[j], place[e])
                    if filling:
                        rows[spot[k]] = i
                        columns[spot[k]] = j
                        spot[k] += 1
                    else:
                        count[k] += 1
            for c in range(k_max):
                own_rank[indices[i, c]] = 0
        if not filling:
            count = np.cumsum(count)
            rows = np.empty(count[k_max], np.int32)
            columns = np.empty(count[k_max], np.int32)
            spot = np.empty(k_max + 1, np.int64)
            spot[1:] = count[:-1]
    return rows, columns, count


def weight_matrix(pairs: Pairs, k: int) -> csr_array:
    """The weights of graph k."""
    edges = pairs.count[k]
    rows, columns = pairs.rows[:edges], pairs.columns[:edges]
    ends = np.concatenate([rows, columns]), np.concatenate([columns, rows])
    weights = coo_array((np.ones(2 * edges), ends), shape=(pairs.n, pairs.n)).tocsr()
    weights.sum_duplicates()
    return weights


def sparse_laplacian(pairs: Pairs, k: int) -> csc_array:
    """The lower triangle of L_k, every diagonal entry present (CHOLMOD reads that half only)."""
    edges = pairs.count[k]
    rows, columns = pairs.rows[:edges], pairs.columns[:edges]
    degrees = np.bincount(rows, minlength=pairs.n) + np.bincount(columns, minlength=pairs.n)
    everyone = np.arange(pairs.n, dtype=np.int32)
    values = np.concatenate([degrees, np.full(edges, -1.0)])
    lower = (
        np.concatenate([everyone, np.maximum(rows, columns)]),
        np.concatenate([everyone, np.minimum(rows, columns)]),
    )
    laplacian = coo_array((values, lower), shape=(pairs.n, pairs.n)).tocsc()
    laplacian.sum_duplicates()
    return laplacian


def dense_laplacian(pairs: Pairs, k: int, out: np.ndarray | None = None) -> np.ndarray:
    """The lower triangle of L_k as a full C-ordered matrix, zeros above."""
    if out is None:
        out = np.zeros((pairs.n, pairs.n))
    else:
        out[:] = 0.0
    _add_edges(pairs.rows[: pairs.count[k]], pairs.columns[: pairs.count[k]], out)
    return out


@kernel
def _add_edges(rows, columns, out):
    degree = np.zeros(out.shape[0])
    for e in range(rows.shape[0]):
        i, j = rows[e], columns[e]
        out[max(i, j), min(i, j)] -= 1.0
        degree[i] += 1.0
        degree[j] += 1.0
    for i in range(degree.shape[0]):
        out[i, i] = degree[i]


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
    label = _find_components(pairs.n, pairs.rows[:edges], pairs.columns[:edges])
    return Components(label, np.bincount(label))


@kernel
def _find_components(n, rows, columns):
    """Union-find that stops as soon as everything is connected, which is early for large k."""
    parent = np.arange(n)
    left = n
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
    label = np.empty(n, np.int64)
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
    return label


def roughness(pairs: Pairs, Y: np.ndarray) -> np.ndarray:
    """q_k = tr(Y' L_k Y) for k = 0..k_max: the sum over edges of |y_i - y_j|^2."""
    return _sum_squares(pairs.rows, pairs.columns, pairs.count, Y)


@kernel
def _sum_squares(rows, columns, count, Y):
    out = np.zeros(count.shape[0])
    for k in range(1, count.shape[0]):
        total = 0.0
        for e in range(count[k - 1], count[k]):
            i, j = rows[e], columns[e]
            for c in range(Y.shape[1]):
                step = Y[i, c] - Y[j, c]
                total += step * step
        out[k] = out[k - 1] + total
    return out


def unequal_edges(pairs: Pairs, codes: np.ndarray) -> np.ndarray:
    """Weight of the edges between different classes, for k = 0..k_max."""
    return _count_unequal(pairs.rows, pairs.columns, pairs.count, codes)


@kernel
def _count_unequal(rows, columns, count, codes):
    out = np.zeros(count.shape[0])
    for k in range(1, count.shape[0]):
        unequal = 0
        for e in range(count[k - 1], count[k]):
            unequal += codes[rows[e]] != codes[columns[e]]
        out[k] = out[k - 1] + unequal
    return out


def resistance_sums(
    pairs: Pairs, inverse: np.ndarray, label: np.ndarray, gap: np.ndarray
) -> np.ndarray:
    """rho_k for k = 0..k_max: the sum over edges of the resistance B_ii + B_jj - 2 B_ij.

    B is the inverse of L_a + r_a I at an anchor; only its lower triangle is read. Between two of
    the anchor's components, `gap` of both is added (see `Anchor`).
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
