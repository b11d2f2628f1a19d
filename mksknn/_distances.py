"""Distances: one definition, in two loops that do the same operations in the same order.

Every route to neighbours takes its distances from here (a sum over columns from first to last), so
all of them return the same bits.
"""

from __future__ import annotations

import numpy as np

from ._jit import kernel

_CODES = {"euclidean": 0, "manhattan": 1, "chebyshev": 2, "cosine": 3}


class Space:
    """Training points laid out for the kernels: columns contiguous, lengths for cosine."""

    def __init__(self, points: np.ndarray, metric: str) -> None:
        self.points = points
        self.metric = metric
        self.precomputed = metric == "precomputed"
        self.code = _CODES.get(metric, -1)
        # distances that are given need no second copy
        self.columns = points if self.precomputed else np.ascontiguousarray(points.T)
        self.lengths = row_lengths(points) if metric == "cosine" else np.empty(0)

    def distances(self, new: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Distances of a block of queries to all training points, into `out` if that is given."""
        out = np.empty((len(new), self.columns.shape[1])) if out is None else out
        lengths = row_lengths(new) if self.metric == "cosine" else self.lengths
        _fill_distances(self.columns, new, self.lengths, lengths, self.code, out)
        return out


@kernel
def row_lengths(points):
    """Euclidean length of each row, summed as distances are: columns in order."""
    out = np.zeros(points.shape[0])
    for i in range(points.shape[0]):
        for c in range(points.shape[1]):
            out[i] += points[i, c] * points[i, c]
        out[i] = np.sqrt(out[i])
    return out


@kernel
def pair_distance(a, b, code, length_a, length_b):
    """Distance of two points, Euclidean (code 0) or cosine: the two that `_products` prunes."""
    total = 0.0
    if code == 0:
        for c in range(a.shape[0]):
            step = a[c] - b[c]
            total += step * step
        return np.sqrt(total)
    for c in range(a.shape[0]):
        total += a[c] * b[c]
    return max(0.0, 1.0 - total / (length_a * length_b))


@kernel
def _fill_distances(columns, new, lengths, new_lengths, code, out):
    """Distances of queries to all points."""
    tile = 1024  # keeps a stretch of the row in the L1 cache
    for r in range(new.shape[0]):
        length = new_lengths[r] if code == 3 else 0.0
        for left in range(0, out.shape[1], tile):
            fill_tile(columns, new[r], left, lengths, length, code, out[r, left : left + tile])


@kernel
def fill_tile(columns, x, left, lengths, length, code, row):
    """Distances of a query to the points from `left` on, as many as `row` has room for.

    The inner loop runs along a column, so it vectorises. Of given distances (a negative code), `x`
    is the query's row; its sign goes, for -0.0 would sort after everything.
    """
    if code < 0:
        for j in range(row.shape[0]):
            row[j] = abs(x[left + j])
        return
    row[:] = 0.0
    for c in range(columns.shape[0]):
        value = x[c]
        column = columns[c, left : left + row.shape[0]]
        if code == 0:
            for j in range(row.shape[0]):
                step = value - column[j]
                row[j] += step * step
        elif code == 1:
            for j in range(row.shape[0]):
                row[j] += abs(value - column[j])
        elif code == 2:
            for j in range(row.shape[0]):
                row[j] = max(row[j], abs(value - column[j]))
        else:
            for j in range(row.shape[0]):
                row[j] += value * column[j]
    if code == 0:
        for j in range(row.shape[0]):
            row[j] = np.sqrt(row[j])
    elif code == 3:
        for j in range(row.shape[0]):
            row[j] = max(0.0, 1.0 - row[j] / (length * lengths[left + j]))
