"""Matrix products that rule out pairs of a query and a point; exact distances decide the rest.

With a the query and b the point, seen from a common centre, |a - b|^2 = |a|^2 + (|b|^2 - 2 ab). The
bracket is one matrix product for a block of queries and a tile of points, and it rules a pair out
when it exceeds r^2 - |a|^2 by more than it can err. For cosine distances the product is -ab of unit
vectors, the limit r - 1.

Rounding. In a precision of machine epsilon e, coordinates, squares and the sum of d + 1 products
err together by less than (d + 4) e (|a|^2 + |b|^2), distances themselves by as much again in double
precision: c = (2 d + 16) e is enough. The share c |b|^2 is taken off the squares of the point, so
that a far-off point loosens the limit for itself alone. Single precision takes half the time and
memory; lengths are scaled to about one, so that squares neither overflow nor vanish, and what lies
too far out for that is never ruled out.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ._distances import Space, pair_distance, row_lengths
from ._jit import kernel
from ._order import copy_into, replace_top, sort_heap

TILE = 1024  # points: 128 queries x 1024 products in single precision stay in the L2 cache
_CHUNK = 32  # products tested at once
FEW = 8  # queries below which a loop over the columns beats the matrix product
_FAR_POINT, _FAR_QUERY = 2.0**40, 2.0**60  # in units of the scale; squares and products fit
_SAMPLE = 8


class Shadows(NamedTuple):
    """What the products see of a block of queries."""

    left: np.ndarray  # (queries, d + 1)
    offset: np.ndarray  # float64; at a scaled distance r the product is at most offset + r^2
    edge: np.ndarray  # the same rounded up to the precision of the products
    lengths: np.ndarray  # of the queries, for cosine


class Tiles(NamedTuple):
    """What the products see of the training points."""

    right: np.ndarray  # (tiles, d + 1, TILE); the last row holds the squares
    reach: np.ndarray  # (tiles, TILE), the scaled r^2 within which each adopts; empty: nobody does
    scale: float  # of distances


class Products:
    """The training side of the products, made once; `shadows` adds a block of queries.

    Parameters
    ----------
    space : Space
        The training points; metric "euclidean" or "cosine".
    k_max : int
        Neighbours that will be asked for: how near they are decides the precision.
    dtype : numpy.dtype, optional
        The precision, for tests.
    """

    def __init__(self, space: Space, k_max: int, dtype: np.dtype | None = None) -> None:
        n, d = space.points.shape
        self._cosine = space.metric == "cosine"
        if self._cosine:
            self._centre, self._scale = np.zeros(d), 1.0
            points = space.points / space.lengths[:, None]
            squares = np.zeros(n)
        else:
            # the median, because a single far-off point would drag the mean away from all others
            self._centre = np.median(space.points, axis=0)
            points = space.points - self._centre
            self._scale = _scale_of(points)
            with np.errstate(over="ignore"):
                points *= self._scale
                squares = (points * points).sum(axis=1)
        self.dtype = np.dtype(dtype or _precision(space, squares, k_max, self._scale))
        self._error = (2 * d + 16) * float(np.finfo(self.dtype).eps)
        far = squares > _FAR_POINT**2
        points[far] = 0.0
        squares = np.where(far, -np.inf, squares * (1.0 - self._error))
        right = np.zeros((-(-n // TILE), d + 1, TILE), self.dtype)
        right[-1, d] = np.nan  # beyond the last point: below no limit
        for t in range(len(right)):
            part = slice(t * TILE, (t + 1) * TILE)
            width = len(squares[part])
            right[t, :d, :width] = points[part].T
            right[t, d, :width] = squares[part]
        self.tiles = Tiles(right, np.empty((0, TILE), self.dtype), self._scale)

    def adopt(self, radii: np.ndarray) -> None:
        """From now on look also for the points within whose radius a query lies."""
        info = np.finfo(self.dtype)
        with np.errstate(over="ignore"):  # infinity is what is meant
            reach = radii if self._cosine else (radii * self._scale) ** 2
            reach = reach * (1.0 + 4.0 * float(info.eps)) + float(info.tiny)
            tiled = np.zeros((len(self.tiles.right), TILE), self.dtype)
            tiled.reshape(-1)[: len(reach)] = reach
        self.tiles = self.tiles._replace(reach=tiled)

    def shadows(self, new: np.ndarray) -> Shadows:
        """The query side of a block."""
        info = np.finfo(self.dtype)
        left = np.empty((len(new), new.shape[1] + 1), self.dtype)
        left[:, -1] = 1.0
        if self._cosine:
            lengths = row_lengths(new)
            left[:, :-1] = -new / lengths[:, None]
            offset = np.full(len(new), -1.0 + self._error + float(info.tiny))
        else:
            lengths = np.empty(0)
            with np.errstate(over="ignore"):
                queries = (new - self._centre) * self._scale
                squares = (queries * queries).sum(axis=1)
            # squares of distances that vanish err by a unit of the smallest number there is
            vanished = (new.shape[1] + 2) * 2.0**-1074 * self._scale * self._scale
            offset = float(info.tiny) + vanished - squares * (1.0 - self._error)
            far = squares > _FAR_QUERY**2
            if far.any():
                queries[far] = 0.0
                offset[far] = np.inf
            left[:, :-1] = -2.0 * queries
        with np.errstate(over="ignore"):  # far out: infinity, by which nothing is ruled out
            edge = (offset + 4.0 * float(info.eps) * np.abs(offset)).astype(self.dtype)
        return Shadows(left, offset, edge, lengths)


def _scale_of(points: np.ndarray) -> float:
    """The power of two that brings the typical length of rows near one; exact to multiply by."""
    largest = float(np.abs(points).max())
    if largest == 0.0:
        return 1.0
    down = math.ldexp(1.0, -math.frexp(largest)[1])
    lengths = np.sqrt(((points * down) ** 2).sum(axis=1))
    typical = float(np.median(lengths))
    if typical < 2.0**-500:  # most points lie at the centre
        typical = float(lengths.max())
    return down * math.ldexp(1.0, -math.frexp(typical)[1])


def _precision(space: Space, squares: np.ndarray, k_max: int, scale: float) -> type:
    """Single precision, unless it could not tell neighbours from others.

    Where the k-th distance is small beside the lengths (tight clusters far apart), the error would
    let all of a cluster through. A sample shows it.
    """
    n, d = space.points.shape
    sample = np.arange(0, n, max(1, n // _SAMPLE))[:_SAMPLE]
    distances = np.partition(space.distances(space.points[sample]), min(k_max, n - 1), axis=1)
    edge = distances[:, min(k_max, n - 1)]
    error = (2 * d + 16) * float(np.finfo(np.float32).eps)
    if space.metric == "cosine":
        blurred = edge < 4.0 * error
    else:
        blurred = (edge * scale) ** 2 < 8.0 * error * squares[sample]
    return np.float64 if blurred.mean() > 0.25 else np.float32


# ---------------------------------------------------------------------------------------------
# The scan


class Target(NamedTuple):
    """What exact distances are computed from, and who adopts within which distance."""

    points: np.ndarray
    lengths: np.ndarray  # for cosine
    radii: np.ndarray  # empty: nobody adopts
    code: int  # of the metric


@kernel
def scan(tiles, target, shadows, new, first, near_i, near_d):
    """Nearest points and adopters of a block of queries.

    Row r is that of training point ``first + r``, which is not its own neighbour, or of a query if
    `first` is negative. Returns the number of adopters of each row, and (row, point, distance) of
    each adopter.
    """
    n_rows, k = near_i.shape
    near_d[:] = np.inf
    near_i[:] = 2147483647
    adopt = target.radii.shape[0] > 0
    counts = np.zeros(n_rows, np.int64)
    size = 0
    found_r = np.empty(max(TILE, 4 * n_rows * k) if adopt else 0, np.int32)
    found_i = np.empty(found_r.shape[0], np.int32)
    found_d = np.empty(found_r.shape[0])
    limit = np.full(n_rows, np.inf, tiles.right.dtype)
    products = np.empty((n_rows, TILE), tiles.right.dtype)
    for t in range(tiles.right.shape[0]):
        if n_rows < FEW:
            _multiply(shadows.left, tiles.right[t], products)
        else:
            np.dot(shadows.left, tiles.right[t], products)
        for r in range(n_rows):
            own = first + r if first >= 0 else -1
            length = shadows.lengths[r] if target.code == 3 else 0.0
            query = Query(new[r], length, shadows.offset[r], shadows.edge[r], tiles.scale, own)
            row, near = products[r], (near_i[r], near_d[r])
            if not adopt:
                limit[r] = _scan_row(row, t * TILE, limit[r], target, query, *near)
                continue
            if size + TILE > found_r.shape[0]:
                found_r, found_i, found_d = grown(found_r), grown(found_i), grown(found_d)
            found = found_i[size:], found_d[size:]
            limit[r], more = _scan_row_both(
                row, tiles.reach[t], t * TILE, limit[r], target, query, *near, *found
            )
            found_r[size : size + more] = r
            counts[r] += more
            size += more
    for r in range(n_rows):
        sort_heap(near_d[r], near_i[r])
    return counts, found_r[:size], found_i[:size], found_d[:size]


class Query(NamedTuple):
    """One query."""

    x: np.ndarray
    length: float
    offset: float
    edge: float
    scale: float
    own: int  # the training point that it is, or -1


@kernel
def grown(array):
    """An array of twice the size that begins with this one."""
    out = np.empty(2 * array.shape[0], array.dtype)
    copy_into(array, out[: array.shape[0]])
    return out


@kernel
def _multiply(left, right, out):
    """The matrix product of few rows: four columns of a tile at a time."""
    columns = right.shape[0]
    for r in range(left.shape[0]):
        row = out[r]
        row[:] = 0.0
        for c in range(0, columns - 3, 4):
            x0, x1, x2, x3 = left[r, c], left[r, c + 1], left[r, c + 2], left[r, c + 3]
            b0, b1, b2, b3 = right[c], right[c + 1], right[c + 2], right[c + 3]
            for j in range(row.shape[0]):
                row[j] += (x0 * b0[j] + x1 * b1[j]) + (x2 * b2[j] + x3 * b3[j])
        for c in range(columns - columns % 4, columns):
            x, b = left[r, c], right[c]
            for j in range(row.shape[0]):
                row[j] += x * b[j]


@kernel
def _limit(worst, row, target, query):
    """The largest product that a pair at distance `worst` can have, rounded up."""
    limit = query.offset + (worst if target.code == 3 else (worst * query.scale) ** 2)
    eps = 2.4e-7 if row.itemsize == 4 else 4.5e-16  # twice the machine epsilon
    return row.dtype.type(limit + eps * abs(limit))


# The two rows differ by the adopters. One kernel with a flag for them took five times as long: the
# compiler keeps the inner loop tight only if nothing in it can be resized or left out.


@kernel
def _scan_row(row, begin, limit, target, query, near_i, near_d):
    for start in range(0, TILE, _CHUNK):
        hit = np.int32(0)
        for j in range(start, start + _CHUNK):
            hit |= np.int32(row[j] <= limit)
        if not hit:
            continue
        for j in range(start, start + _CHUNK):
            i = begin + j
            if row[j] <= limit and i != query.own:
                other = target.lengths[i] if target.code == 3 else 0.0
                d = pair_distance(query.x, target.points[i], target.code, query.length, other)
                if d < near_d[0]:  # the index only grows, so a tie loses
                    replace_top(near_d, near_i, d, i)
                    limit = _limit(near_d[0], row, target, query)
    return limit


@kernel
def _scan_row_both(row, reach, begin, limit, target, query, near_i, near_d, found_i, found_d):
    size = 0
    for start in range(0, TILE, _CHUNK):
        hit = np.int32(0)
        for j in range(start, start + _CHUNK):
            hit |= np.int32(row[j] <= max(limit, query.edge + reach[j]))
        if not hit:
            continue
        for j in range(start, start + _CHUNK):
            if row[j] <= max(limit, query.edge + reach[j]):
                i = begin + j
                other = target.lengths[i] if target.code == 3 else 0.0
                d = pair_distance(query.x, target.points[i], target.code, query.length, other)
                if d < near_d[0]:
                    replace_top(near_d, near_i, d, i)
                    limit = _limit(near_d[0], row, target, query)
                if d < target.radii[i]:
                    found_i[size] = i
                    found_d[size] = d
                    size += 1
    return limit, size
