"""Ranking by (distance, index): all of it, or the nearest k_max.

Every route takes its distances from `_distances`, so all routes return the same bits:

- the full ranking sorts whole rows;
- the top k_max in few dimensions come from a k-d tree, in many from a scan in which matrix products
  rule pairs out; in both, exact distances decide, ties at the edge included;
- where neither pays, they are picked from whole rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from threading import local
from typing import TYPE_CHECKING

import numpy as np

from ._distances import Space
from ._jit import interruptible
from ._metrics import Metric, check_metric, name_of, points_and_name, same_metric
from ._order import rank_rows, select_rows
from ._products import Products, Target, scan
from ._threads import run_blocks, thread_count
from ._tree import build_tree, rank_tree
from ._validation import check_k, check_k_max, check_lists, check_memory, check_ranked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from ._names import MetricName


@dataclass(frozen=True, eq=False)
class Neighbors:
    """The nearest neighbours of each point, nearest first.

    Attributes
    ----------
    indices : ndarray of int32, shape (n, k_max)
        Row i holds the neighbours of point i in the order of (distance, index).
    distances : ndarray of float64, shape (n, k_max)
        Their distances to point i.
    metric : str, Metric or None
        The distance by which they were ranked; None for lists found elsewhere.
    """

    indices: np.ndarray
    distances: np.ndarray
    metric: MetricName | Metric | None = None

    def __repr__(self) -> str:
        n, k_max = self.indices.shape
        ranked = "" if self.metric is None else f", metric={name_of(self.metric)!r}"
        return f"Neighbors(n={n}, k_max={k_max}{ranked})"


@interruptible
def neighbors(
    X: ArrayLike, k_max: int | None = None, *, metric: MetricName | Metric = "euclidean"
) -> Neighbors:
    """Rank the k_max nearest neighbours of every point by (distance, index).

    The result stands in for X wherever points would be ranked: rank once, use many times.

    Parameters
    ----------
    X : array_like, shape (n, d)
        The points, or their n x n distances if ``metric="precomputed"``.
    k_max : int, optional
        How many neighbours to rank, from 1 to n - 1. By default all n - 1.
    metric : str or Metric
        "euclidean", "manhattan", "chebyshev", "cosine" or "precomputed", or a distance that
        `learn_metric` has found.

    Returns
    -------
    Neighbors
        ``indices`` and ``distances``, both of shape (n, k_max). A point is never its own
        neighbour; duplicates of it are.

    See Also
    --------
    as_neighbors : Lists found elsewhere.
    knn_graph : The graph that they make.

    Notes
    -----
    Distances that are given must be symmetric and not negative. Rounding is forgiven: up to 1e-12
    of the largest one, the mean of ``X[i, j]`` and ``X[j, i]`` is taken where they differ, and what
    is below zero becomes 0.

    Examples
    --------
    >>> import mksknn
    >>> ranked = mksknn.neighbors([[0.0], [1.0], [2.0], [4.0]], k_max=2)
    >>> ranked.indices.tolist()
    [[1, 2], [0, 2], [1, 0], [2, 1]]
    >>> ranked.distances.tolist()
    [[1.0, 2.0], [1.0, 1.0], [1.0, 2.0], [2.0, 3.0]]
    """
    metric = check_metric(metric)
    points, name = points_and_name(X, metric)[:2]
    return replace(rank(points, check_k_max(k_max, len(points)), name), metric=metric)


def as_neighbors(indices: ArrayLike, distances: ArrayLike | None = None) -> Neighbors:
    """Take lists of neighbours found elsewhere, such as by FAISS, HNSW or PyNNDescent.

    The result stands in for X wherever points would be ranked. The lists are taken as they are,
    approximate ones and their way to break ties included; k goes up to their length.

    Parameters
    ----------
    indices : array_like of int, shape (n, k_max)
        Row i holds the neighbours of point i, nearest first, without i itself.
    distances : array_like, shape (n, k_max), optional
        Their distances, which must not fall along a row (up to rounding, 1e-12 of the largest).
        They decide only which of several classes with equally many votes is nearest, in
        leave-one-out errors. Without them, places in the lists do (1 for the nearest; of two points
        that rank each other, the place in the list that brings the pair into the graph).

    Returns
    -------
    Neighbors
        With ``metric=None``: a model made from them does not know the metric either, and `predict`
        and `prepare` take theirs, Euclidean with a warning unless told.

    See Also
    --------
    neighbors : Exact lists, ranked here.

    Examples
    --------
    >>> import mksknn
    >>> found = mksknn.as_neighbors([[1, 2], [0, 2], [1, 0], [2, 1]])
    >>> found
    Neighbors(n=4, k_max=2)
    >>> mksknn.knn_graph(found, 1, graph="mutual").toarray().astype(int).tolist()
    [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    """
    return Neighbors(*check_lists(indices, distances))


def nearest_of(X: ArrayLike | Neighbors, k: object, metric: MetricName | Metric) -> Neighbors:
    """The k nearest neighbours of each point: ranked now, or the first of those that are given."""
    if isinstance(X, Neighbors):
        check_ranked_by(X, [metric])
    ranking = Ranking(X, check_metric(metric))
    k = check_k(k, ranking.n)
    check_width(k, ranking.most, "k")
    return ranking.to(k)


class Ranking:
    """Points and their metric, ranked once to each depth that is needed; or lists as given."""

    def __init__(self, X: object, metric: MetricName | Metric) -> None:
        self._deepest: Neighbors | None = None
        if isinstance(X, Neighbors):
            check_ranked(X.indices, X.distances)
            self._deepest, self.metric = X, X.metric
            self.points = None
            self.n, self.most = len(X.indices), X.indices.shape[1]
            return
        self.metric = metric
        self.points, self.name = points_and_name(X, metric)[:2]
        self.n = len(self.points)
        self.most = self.n - 1

    def to(self, depth: int) -> Neighbors:
        """The nearest neighbours of each point."""
        known = self._deepest
        if known is None or known.indices.shape[1] < depth:
            assert self.points is not None
            known = self._deepest = rank(self.points, depth, self.name)
        if known.indices.shape[1] == depth:
            return known
        nearest = np.ascontiguousarray(known.indices[:, :depth])
        return Neighbors(nearest, np.ascontiguousarray(known.distances[:, :depth]), known.metric)


def check_ranked_by(X: Neighbors, metrics: Sequence[MetricName | Metric]) -> None:
    """Neighbours have been ranked by a metric already; another one cannot be asked for."""
    one = metrics[0] if len(metrics) == 1 else None
    if one is None or not (same_metric(one, "euclidean") or same_metric(one, X.metric)):
        ranked = "whose lists were found elsewhere and stay as they are"
        if X.metric is not None:
            ranked = f"ranked by {name_of(X.metric)!r}"
        got = [name_of(metric) for metric in metrics]
        raise ValueError(
            f"metric must be left out where X is a Neighbors, {ranked}; "
            f"got {got if len(got) > 1 else repr(got[0])}"
        )


def check_no_ranking(X: object) -> None:
    """Neighbours stand in for points only where points would be ranked."""
    if isinstance(X, Neighbors):
        raise TypeError(
            f"X must be the points themselves, of which a Neighbors holds ranks only; got {X!r}"
        )


def check_width(k: int, most: int, name: str) -> None:
    """Lists of neighbours know no larger k than their length."""
    if k > most:
        raise ValueError(
            f"{name} must be at most {most}, the neighbours of each point that X holds; got {k}"
        )


def rank(points: np.ndarray, k_max: int, metric: MetricName, route: str | None = None) -> Neighbors:
    """Rank validated points; `route` ("sort", "scan" or "tree") is for tests and benchmarks."""
    n = len(points)
    check_memory(
        _peak(n, k_max, 0 if metric == "precomputed" else points.shape[1]),
        f"ranking {k_max} neighbours of each of {n} points",
        "k_max limits how many neighbours are ranked",
    )
    space = Space(points, metric)
    indices = np.empty((n, k_max), np.int32)
    distances = np.empty((n, k_max))
    route = route or choose_route(n, k_max, space)
    if route == "tree":
        _search_tree(space, indices, distances)
    elif route == "scan" and prunes(space):
        _scan(space, indices, distances)
    else:
        _rank_whole_rows(space, indices, distances, sort=route == "sort")
    return Neighbors(indices, distances, metric)


def _peak(n: int, k_max: int, d: int) -> float:
    """Bytes that ranking takes at most, the result of 12 for each neighbour included.

    Points come to stand in up to three layouts (columns, and products or tree with what they are
    made from), and each thread holds a block of whole rows, distances and keys.
    """
    return 12.0 * n * k_max + 24.0 * n * d + thread_count() * 16.0 * max(n, SORT_BLOCK)


# Which route. Measured by benchmarks/neighbors.py routes on 2 cores.
# The full sort beats the scan from about k_max = n / 32 on: there it took 0.4 to 0.7 of the scan's
# time (n = 2,000 to 10,000, 2 to 100 dimensions), 1.0 at worst (1,000 x 19), and at k_max = n / 4
# a tenth.
_SORT_SHARE = 32
# Of 300 points or fewer it ranks 5 neighbours in 0.3 ms in 2 dimensions as the tree does, and in a
# third of the scan's time in 10; and kernels that are not called need not be compiled.
_SORT_SIZE = 300
_TREE_DIMENSIONS = 8
_TREE_SIZE = 500


def sorts(n: int, k_max: int) -> bool:
    """Whether whole rows of distances are sorted, rather than the nearest picked out."""
    return n <= _SORT_SIZE or k_max * _SORT_SHARE >= n


def choose_route(n: int, k_max: int, space: Space) -> str:
    if sorts(n, k_max):
        return "sort"
    if (
        space.metric in ("euclidean", "manhattan", "chebyshev")
        and space.points.shape[1] <= _TREE_DIMENSIONS
        and n >= _TREE_SIZE
    ):
        return "tree"
    return "scan"


# ---------------------------------------------------------------------------------------------
# Whole rows of distances

SORT_BLOCK = 2**17  # entries per block of rows: 1 MB of distances and 1 MB of keys


def _rank_whole_rows(space: Space, indices: np.ndarray, distances: np.ndarray, sort: bool) -> None:
    """The nearest in whole rows, as many as `indices` has columns: all sorted, or these picked."""
    n = len(indices)
    rows = max(1, SORT_BLOCK // n)
    # Each thread writes into the same pages again and again. At 5,000 points, new ones for every
    # block were 29,000 page faults instead of 1,200, and 1.3 times the processor time.
    own = local()

    def work(start: int, stop: int) -> None:
        if not hasattr(own, "block"):
            own.block, own.keys = np.empty((rows, n)), np.empty((rows, n), np.uint64)
        block, out = own.block[: stop - start], (indices[start:stop], distances[start:stop])
        space.distances(space.points[start:stop], block)
        if sort:
            rank_rows(block, start, *out, own.keys[: stop - start])
        else:
            select_rows(block, start, *out)

    run_blocks(work, n, rows)


# ---------------------------------------------------------------------------------------------
# Top k_max by a scan over all pairs, in which matrix products rule most out

SCAN_ROWS = 128
_PRUNE_DIMENSIONS = 4  # below, the distances cost no more than the products that would prune them


def prunes(space: Space) -> bool:
    """Whether matrix products rule pairs out in a scan."""
    return space.metric in ("euclidean", "cosine") and space.points.shape[1] >= _PRUNE_DIMENSIONS


def _scan(space: Space, indices: np.ndarray, distances: np.ndarray) -> None:
    """Top k of every point among all others."""
    products = Products(space, indices.shape[1])
    target = Target(space.points, space.lengths, np.empty(0), space.code)

    def work(start: int, stop: int) -> None:
        new, out = space.points[start:stop], (indices[start:stop], distances[start:stop])
        scan(products.tiles, target, products.shadows(new), new, start, *out)

    run_blocks(work, len(indices), SCAN_ROWS)


# ---------------------------------------------------------------------------------------------
# Top k_max by the k-d tree

_TREE_BLOCK = 256  # points


def _search_tree(space: Space, indices: np.ndarray, distances: np.ndarray) -> None:
    """Top k of every point, in the order of the tree: neighbours find their part in the cache."""
    tree = build_tree(space.points)

    def work(start: int, stop: int) -> None:
        rank_tree(tree, start, stop, space.code, indices, distances)

    run_blocks(work, len(indices), _TREE_BLOCK)
