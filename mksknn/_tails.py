"""Beyond the ranked neighbours: bounds on q_k and the number of pairs for every k up to n - 1.

A k far beyond the best one is ruled out by how often its edges disagree (docs/theory), and for that
a bound is enough: no table of n x n ranks, one pass over the pairs. Both q_k and the number of
pairs grow with k, so a rising grid of k serves all k in between.

Each row's distances fall into bins. If the first bins of a row hold c points, those are its c
nearest, whatever their order, ties included: equal distances share a bin. So they are in every
graph of k >= c, which bounds q_k from below; a point of the next bin is in none of k <= c, which
bounds the number of pairs from above.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ._distances import Space, fill_tile
from ._jit import kernel
from ._targets import Targets
from ._threads import run_blocks
from ._validation import check_memory

_EPS = np.finfo(np.float64).eps
_TINY = np.finfo(np.float64).tiny


class Tail(NamedTuple):
    """Bounds on a rising grid of k: for every k from ``ks[a]`` to ``ks[b]``, q_k is at least
    ``roughness[a]``, and graph k has at most ``edges[b]`` pairs of unit weight.
    """

    ks: np.ndarray  # int64, from k0 to n - 1
    roughness: np.ndarray  # float64
    edges: np.ndarray  # int64


# The grid's step; at most 250 steps, so that a byte names one.
_RATIO = 1.05
_STEPS = 250


def _grid(k0: int, n: int) -> np.ndarray:
    """A rising grid of k from k0 to n - 1."""
    steps = 2 + int(np.log((n - 1) / k0) / np.log(_RATIO))
    ks = np.unique(np.rint(np.geomspace(k0, n - 1, min(steps, _STEPS))).astype(np.int64))
    ks[0], ks[-1] = k0, n - 1
    return ks


def bound_tail(
    points: np.ndarray,
    metric: str,
    graph: str,
    targets: Targets,
    k0: int,
    progress: Callable[[int, int], object] | None = None,
) -> Tail:
    """Bound q_k and the number of pairs for all k from k0 to n - 1.

    `points` and `metric` are those that would be ranked, `graph` is "symmetric" or "mutual".
    `progress`, if given, is called with (rows done, rows in all), one call at a time.
    """
    n = len(points)
    space = Space(points, metric)
    ks, bins = _grid(k0, n), _choose_bins(space, k0)
    seen = _see(space, targets, bins)
    if graph == "symmetric":
        roughness = _sum_rows(seen, ks, _ticker(progress, n))
        edges = n * ks
    else:
        roughness, edges = _sum_pairs(seen, ks, bins.size, _ticker(progress, 2 * n))
        edges = np.minimum(edges, n * ks // 2)  # nobody has more than k
    if not targets.regression:  # whole numbers, exact
        roughness *= targets.between
    else:
        # Nothing negative is added, so each rounding step errs by at most eps of the sum: m + 3 in
        # a term, n terms in a row, its bins, then rows and blocks. Products below the smallest
        # normal number err by more, but all together by less than it.
        steps = 2 * n + bins.size + targets.m + 8
        roughness = np.maximum(roughness * (1.0 - steps * _EPS) - _TINY, 0.0)
    return Tail(ks, roughness, edges)


def _ticker(progress: Callable | None, total: int) -> Callable[[int], None]:
    """A function that threads may call with the number of rows that they have done."""
    if progress is None:
        return lambda rows: None
    lock, done = threading.Lock(), 0

    def tick(rows: int) -> None:
        nonlocal done
        with lock:
            done += rows
            progress(done, total)

    return tick


# ---------------------------------------------------------------------------------------------
# Bins of distance

# Most bins: a row's table of (count, sum) is 8 KB and stays in the L1 cache.
_BINS = 512
_KEYS = 4096  # most keys, from which the bins are put together: their table is 8 KB too
_SAMPLE = 32  # rows whose distances decide on the bins


class _Bins(NamedTuple):
    """Distance d has key (bits of d >> shift) - base, or the first or last one, and bin
    ``bins[key]``.

    The bits of a non-negative double order as the double does, so keys rise with the distance (by
    nearly equal steps of its logarithm), and equal distances share one.
    """

    base: int
    shift: int
    bins: np.ndarray  # uint16, rising from 0

    @property
    def size(self) -> int:
        """Number of bins."""
        return int(self.bins[-1]) + 1


def _choose_bins(space: Space, k0: int) -> _Bins:
    """Bins that each add about as much, in proportion, to the number of neighbours within.

    A sample's distances decide: bins begin where a few of k0 neighbours are found, and the farthest
    thousandth shares the last key. Wherever the others lie, bounds hold; they are only less close.
    """
    n = len(space.points)
    rows = np.unique(np.linspace(0, n - 1, min(n, _SAMPLE)).astype(np.intp))
    sample = space.distances(space.points[rows])
    bits = sample.view(np.int64)
    bits = bits[np.arange(n) != rows[:, None]]  # nobody is his own neighbour
    size = len(bits)
    few = min(size - 1, int(size * (0.02 * k0 / n)))
    last = size - 1 - size // 1000
    bits.partition([few, last])
    low, high = int(bits[few]), int(bits[last])
    if low == 0 < high:
        low = int(bits[bits > 0].min())
    shift = 32
    while (high >> shift) - (low >> shift) >= _KEYS:
        shift += 1
    base, keys = low >> shift, (high >> shift) - (low >> shift) + 1
    within = np.cumsum(np.bincount(np.clip((bits >> shift) - base, 0, keys - 1), minlength=keys))
    parts = np.log(np.maximum(within, few + 1.0) / (few + 1.0)) / np.log((size + 1.0) / (few + 1.0))
    # a key that brings the count past the end of a bin belongs to it
    bins = np.unique(np.ceil(parts * (_BINS - 1)), return_inverse=True)[1]
    return _Bins(base, shift, bins.astype(np.uint16))


# ---------------------------------------------------------------------------------------------
# The passes over the pairs

_ROWS = 32  # of a block: a tile of the points is read once for all of them
# Points of a tile: 256 were as fast as 512 in 2 columns (2.4 to 2.9 ns a pair), and of 100 columns
# 256 still fit in the L2 cache.
_TILE = 256


class _Seen(NamedTuple):
    """What the passes see of the points, their targets and the bins."""

    columns: np.ndarray
    points: np.ndarray
    lengths: np.ndarray
    code: int  # of the metric
    classes: bool
    values: np.ndarray  # (outputs, n), or one row of class numbers
    base: int
    shift: int
    bins: np.ndarray


def _see(space: Space, targets: Targets, bins: _Bins) -> _Seen:
    values = np.ascontiguousarray(np.atleast_2d(targets.numbers.T), np.float64)
    points = space.columns, space.points, space.lengths, space.code
    return _Seen(*points, not targets.regression, values, *bins)


def _sum_rows(seen: _Seen, ks: np.ndarray, tick: Callable[[int], None]) -> np.ndarray:
    """For each k of the grid: |Y_i - Y_j|^2 over those that are surely the k nearest of i."""
    n = len(seen.points)
    out = np.zeros((-(-n // _ROWS), len(ks)))

    def work(start: int, stop: int) -> None:
        _sum_nearest(seen, ks, start, stop, out[start // _ROWS])
        tick(stop - start)

    run_blocks(work, n, _ROWS)
    return out.sum(axis=0)


def _sum_pairs(
    seen: _Seen, ks: np.ndarray, bins: int, tick: Callable[[int], None]
) -> tuple[np.ndarray, np.ndarray]:
    """For each k of the grid: |Y_i - Y_j|^2 over pairs that are surely each among the k nearest of
    the other, and the number of those that may be.
    """
    n = len(seen.points)
    check_memory(
        n * (bins + 1.0),
        f"counting neighbours of {n} points beyond those that are ranked",
        "k_max limits how many neighbours count",
    )
    grades = np.empty((n, bins + 1), np.uint8)
    rough = np.zeros((-(-n // _ROWS), len(ks)))
    edges = np.zeros(rough.shape, np.int64)

    def grade(start: int, stop: int) -> None:
        _grade_bins(seen, ks, start, stop, grades)
        tick(stop - start)

    def work(start: int, stop: int) -> None:
        _sum_mutual(seen, grades, start, stop, rough[start // _ROWS], edges[start // _ROWS])
        tick(stop - start)

    run_blocks(grade, n, _ROWS)
    run_blocks(work, n, _ROWS)
    return np.cumsum(rough.sum(axis=0)), np.cumsum(edges.sum(axis=0))


@kernel
def _fill_spots(seen, i, left, row, spots):
    """The bins of the distances from point i to those from `left` on; unsigned, so that reading by
    them needs no test for negative ones.
    """
    code, lengths, bins = seen.code, seen.lengths, seen.bins
    base, shift, last = seen.base, seen.shift, bins.shape[0] - 1
    length = lengths[i] if code == 3 else 0.0
    fill_tile(seen.columns, seen.points[i], left, lengths, length, code, row)
    bits = row.view(np.int64)
    for j in range(row.shape[0]):
        spots[j] = np.uint32(min(max((bits[j] >> shift) - base, 0), last))
    for j in range(row.shape[0]):
        spots[j] = bins[spots[j]]


@kernel
def _fill_weights(seen, i, left, weights):
    """|Y_i - Y_j|^2 for the points from `left` on; of classes, whether they differ."""
    values = seen.values
    if seen.classes:
        for j in range(weights.shape[0]):
            weights[j] = 1.0 if values[0, left + j] != values[0, i] else 0.0
        return
    weights[:] = 0.0
    for c in range(values.shape[0]):
        for j in range(weights.shape[0]):
            step = values[c, left + j] - values[c, i]
            weights[j] += step * step


@kernel
def _sum_nearest(seen, ks, start, stop, out):
    n = seen.points.shape[0]
    # count and sum side by side: one access for both, 12% slower than whole numbers that hold both,
    # which would serve classes only
    table = np.zeros((stop - start, np.int64(seen.bins[-1]) + 1, 2))
    row, weights, spots = np.empty(_TILE), np.empty(_TILE), np.empty(_TILE, np.uint32)
    for left in range(0, n, _TILE):
        size = min(_TILE, n - left)
        for i in range(start, stop):
            _fill_spots(seen, i, left, row[:size], spots)
            _fill_weights(seen, i, left, weights[:size])
            mine = table[i - start]
            for j in range(size):
                spot = spots[j]
                mine[spot, 0] += 1.0
                mine[spot, 1] += weights[j]
            if left <= i < left + size:
                mine[spots[i - left], 0] -= 1.0  # the point itself
    for r in range(stop - start):
        count, total, g = 0.0, 0.0, 0
        for b in range(table.shape[1]):
            count += table[r, b, 0]
            while g < ks.shape[0] and ks[g] < count:  # bin b is not wholly within ks[g]
                out[g] += total
                if seen.classes:  # those of the bin that are left out may all be of other classes
                    out[g] += max(0.0, table[r, b, 1] - (count - ks[g]))
                g += 1
            total += table[r, b, 1]
        while g < ks.shape[0]:
            out[g] += total
            g += 1


@kernel
def _grade_bins(seen, ks, start, stop, grades):
    """grades[i, b + 1]: the first of `ks` that is at least the number of points in bins 0..b."""
    n = seen.points.shape[0]
    table = np.zeros((stop - start, np.int64(seen.bins[-1]) + 1), np.int64)
    row, spots = np.empty(_TILE), np.empty(_TILE, np.uint32)
    for left in range(0, n, _TILE):
        size = min(_TILE, n - left)
        for i in range(start, stop):
            _fill_spots(seen, i, left, row[:size], spots)
            mine = table[i - start]
            for j in range(size):
                mine[spots[j]] += 1
            if left <= i < left + size:
                mine[spots[i - left]] -= 1  # the point itself
    for r in range(stop - start):
        count, g = 0, 0
        grades[start + r, 0] = 0
        for b in range(table.shape[1]):
            count += table[r, b]
            while ks[g] < count:
                g += 1
            grades[start + r, b + 1] = g


@kernel
def _sum_mutual(seen, grades, start, stop, rough, edges):
    """Pairs i < j: in the graph for sure from the larger grade of their bin on, and surely not
    before the larger grade of the bin before.
    """
    n = seen.points.shape[0]
    row, weights, spots = np.empty(_TILE), np.empty(_TILE), np.empty(_TILE, np.uint32)
    for left in range(start, n, _TILE):
        size = min(_TILE, n - left)
        for i in range(start, min(stop, left + size)):
            _fill_spots(seen, i, left, row[:size], spots)
            _fill_weights(seen, i, left, weights[:size])
            mine = grades[i]
            for j in range(max(0, i + 1 - left), size):
                spot = np.int64(spots[j])
                other = grades[left + j]
                rough[max(mine[spot + 1], other[spot + 1])] += weights[j]
                edges[max(mine[spot], other[spot])] += 1
