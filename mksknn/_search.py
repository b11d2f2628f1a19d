"""The peak of a profile over r when each value costs a factorization, enclosed with a proof.

Let top be above every eigenvalue u of L, v = log(r / (r + top)) and z = exp(v). Then

    H(v) = log|L + r I| - n log(r + top) = sum over u of log(u/top + (1 - u/top) z)

is a sum of softplus functions of v, up to constants: convex in v, concave in z, its p-th derivative
bounded for every p. So a polynomial through a few values differs from H by no more than a known
remainder (docs/theory), and the rule of a search takes three sentences. Begin with values around
the start until the highest has lower ones, or an end, on both sides: the peak, being single, lies
between them. Then go on at the peak of the polynomial, or where the upper bound of the profile is
highest. Stop when that bound is within `_GAP` of the highest value, or below a floor that is given,
or when `_BUDGET` values are spent, and then the gap that is left is reported.

Where slopes cost next to nothing, `climb` is enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ._determinants import Determinants, Spectrum
from ._jit import kernel

_GAP = 3e-11  # per point: how far the proven upper bound may be above the value found
_PLACE = 3e-7  # how far from the peak in log r the search may end
_POLISH = 3  # values to come that close: one beside the peak of the polynomial, then at it
_ASIDE = 0.04  # in v
_BUDGET = 60  # values; 5 to 7 from a good start, 10 to 13 from one off by a factor of ten
_FRESH = 1e-4  # in v: a value at the polynomial's peak is worth it if none is as near
_STEP = 0.15  # in v, between the first values
_STRIDE = 3.0  # the largest step in search of a bracket
_CELLS = 12  # between two values, at first
_MOST = 20  # nodes of a polynomial
_BESIDE = 1e-3  # in v, between two slopes that give the bend
_APART = (0.0, 1e-3, 1e-2, 5e-2)  # in v: least distances between the nodes of a slope
_EQUAL = 1e-15  # numbers that differ by less, relatively, are equal up to rounding
_ROUNDING = 2e-15  # of a log-determinant, of the sizes of the terms it is the sum of

# The largest |d^j sigma / dx^j| / (sigma (1 - sigma)) of the logistic function, j = 1, 2, ...
_STEEPEST = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.8150, 4.25, 10.201, 31.0, 93.03, 345.5, 1247.5])


def _poles(p: int) -> float:
    """No p-th derivative of log(1 + exp(x)), p >= 2, exceeds this times p!: it is a sum over poles.

    They are at x = i pi j for odd j, so that it takes the sum of 2 j^-p. What the terms up to 1999
    leave is at most half the integral from 2000 on, j^-p being convex.
    """
    odd = np.arange(1.0, 2000.0, 2.0)
    total = float((odd**-p).sum()) + 2000.0 ** (1 - p) / (2.0 * (p - 1))
    return 2.0 * total / p * math.pi**-p


_POLES = np.array([math.inf, math.inf, *(_poles(p) for p in range(2, _MOST + 4))])


class Curve:
    """log|L + r I| enclosed at every r, from its values at a few."""

    def __init__(self, spectrum: Spectrum) -> None:
        self.spectrum = spectrum
        self.noise = 0.0  # how far rounding may have moved a value
        self._take(np.empty((4, 0)))

    def _take(self, table: np.ndarray) -> None:
        """v, rising, and for each of them the ratio, log|L + r I|, and H."""
        self._table = table
        self.v, self.ratio, self.logdet, self.height = table

    def place(self, ratio: float) -> float:
        """v at a ratio."""
        return -math.log1p(self.spectrum.top / ratio)

    def ratio_at(self, v: float) -> float:
        """The ratio at v."""
        return self.spectrum.top / math.expm1(-v)

    def add(self, ratio: float, logdet: float) -> None:
        """Take in a value."""
        v = self.place(ratio)
        at = int(np.searchsorted(self.v, v))
        if at < len(self.v) and self.v[at] == v:
            return
        log = math.log(ratio + self.spectrum.top)
        one = [v, ratio, logdet, logdet - self.spectrum.n * log]
        self._take(np.insert(self._table, at, one, axis=1))
        size = abs(logdet) + self.spectrum.n * (1.0 + abs(log))
        self.noise = max(self.noise, _ROUNDING * size)

    @property
    def consistent(self) -> bool:
        """Whether H can have these values: convex in v and concave in z, up to rounding."""
        for places, sign in ((self.v, 1.0), (np.exp(self.v), -1.0)):
            apart = np.append(True, np.diff(places) > 0.0)  # two v may have one z, rounded
            gaps = np.diff(places[apart])
            slopes, doubt = np.diff(self.height[apart]) / gaps, 4.0 * self.noise / gaps
            if (sign * np.diff(slopes) < -(doubt[1:] + doubt[:-1])).any():
                return False
        return True

    def enclose(self, v: np.ndarray, near: float) -> tuple[np.ndarray, np.ndarray]:
        """H at each v, and how far it can be off; by the nodes nearest to `near`.

        At least two values must be known.
        """
        order = np.argsort(np.abs(self.v - near), kind="stable")[:_MOST]
        derivatives = self._derivatives(order, v)
        return _interpolate(self.v[order], self.height[order], derivatives, v, self.noise)

    def slope(self, v: float, nodes: np.ndarray) -> float:
        """dH/dv at v, by the polynomial through the values at some positions."""
        return _interpolate_slope(self.v[nodes], self.height[nodes], v)

    def nodes_for_slope(self, v: float) -> np.ndarray:
        """The positions whose polynomial has the slope at v that can be off least.

        Nodes close to v leave little of the remainder, but rounding is divided by their distances.
        """
        by_distance = np.argsort(np.abs(self.v - v), kind="stable")
        best, chosen, order = math.inf, by_distance[:2], by_distance[:0]
        for apart in _APART:
            before, order = order, _spread(by_distance, self.v, apart)[:_MOST]
            if len(order) < 2 or np.array_equal(order, before):
                continue
            bounds = self._derivatives(order, np.array([v]))
            following = (self.spectrum.n - self.spectrum.nulls) * _POLES[3 : len(order) + 3]
            errors = _slope_errors(self.v[order], bounds, following, v, self.noise)
            if errors.min() < best:
                best, chosen = float(errors.min()), order[: int(np.argmin(errors)) + 2]
        return chosen

    def _derivatives(self, order: np.ndarray, v: np.ndarray) -> np.ndarray:
        """A bound on |p-th derivative of H| / p! over v and the first p nodes, for p = 2, 3, ...

        With s the logistic function and s_i its value for eigenvalue i, sum s_i (1 - s_i) is at
        most that of equal s_i, whose mean is the slope of H; and the slope rises in v. Concavity
        in z bounds it at the first node from below and at the last one from above.
        """
        spectrum = self.spectrum
        known = self.v, self.height, self.noise
        counts = float(spectrum.n), float(spectrum.nulls)
        return _derivative_bounds(*known, order, v.min(), v.max(), *counts, _STEEPEST, _POLES)


@kernel
def _derivative_bounds(places, heights, noise, order, left, right, n, nulls, steepest, poles):
    """`Curve._derivatives` from `left` to `right`, by the values in this order."""
    last = places.shape[0] - 1
    active = n - nulls
    # the values that enclose left and right too; beyond the outermost nothing is known
    first_used, last_used = last + 1, -1
    for i in range(last + 1):
        if places[i] <= left:
            first_used = i
    for i in range(last, -1, -1):
        if places[i] >= right:
            last_used = i
    before, after = first_used <= last, last_used >= 0
    lowest, highest = min(first_used, order[0]), max(last_used, order[0])
    out = np.empty(order.shape[0] - 1)
    factorial = 1.0
    for p in range(2, order.shape[0] + 1):
        lowest, highest = min(lowest, order[p - 1]), max(highest, order[p - 1])
        slow, fast = nulls, n
        if before and lowest < last:
            gap = places[lowest + 1] - places[lowest]
            slow = (heights[lowest + 1] - heights[lowest] - 2.0 * noise) / np.expm1(gap)
        if after and highest > 0:
            gap = places[highest] - places[highest - 1]
            fast = (heights[highest] - heights[highest - 1] + 2.0 * noise) / -np.expm1(-gap)
        least = max((slow - nulls) / max(active, 1.0), 0.0)
        most = max(min((fast - nulls) / max(active, 1.0), 1.0), least)
        mean = min(max(0.5, least), most)
        factorial *= p
        bound = poles[p]
        if p - 2 < steepest.shape[0]:
            bound = min(bound, steepest[p - 2] * mean * (1.0 - mean) / factorial)
        out[p - 2] = active * bound
    return out


def _spread(order: np.ndarray, places: np.ndarray, apart: float) -> np.ndarray:
    """Those of an order of positions that are so far from all that are chosen before."""
    chosen: list[int] = []
    for at in order.tolist():
        if all(abs(places[at] - places[other]) >= apart for other in chosen):
            chosen.append(at)
    return np.array(chosen)


@kernel
def _lagrange(nodes, size, v, weights, slopes):
    """The weights at v of the first nodes in the polynomial through them, and their derivatives."""
    for i in range(size):
        weight, slope = 1.0, 0.0
        for j in range(size):
            if j != i:
                gap = nodes[i] - nodes[j]
                factor = (v - nodes[j]) / gap
                slope = slope * factor + weight / gap
                weight *= factor
        weights[i], slopes[i] = weight, slope


@kernel
def _interpolate(nodes, heights, derivatives, v, noise):
    """A polynomial at each v, and how far H can be from it: its remainder, and what rounding adds.

    More nodes than it takes only let rounding grow: as many as serve some eight of the v best.
    """
    weights, slopes = np.empty(nodes.shape[0]), np.empty(nodes.shape[0])
    best, count = np.inf, 2
    for size in range(2, nodes.shape[0] + 1):
        largest, remainder = 0.0, 0.0
        for a in range(0, v.shape[0], max(1, v.shape[0] // 8)):
            slack, rounding = _remainder(nodes, size, derivatives, v[a], weights, slopes)
            largest = max(largest, slack + noise * rounding)
            remainder = max(remainder, slack)
        if largest < best:
            best, count = largest, size
        if remainder <= 0.1 * noise:
            break
    found, error = np.empty(v.shape[0]), np.empty(v.shape[0])
    for a in range(v.shape[0]):
        slack, rounding = _remainder(nodes, count, derivatives, v[a], weights, slopes)
        error[a] = slack + noise * rounding
        found[a] = 0.0
        for i in range(count):
            found[a] += weights[i] * heights[i]
    return found, error


@kernel
def _remainder(nodes, size, derivatives, v, weights, slopes):
    """How far H can be from the polynomial at v, and the sum of its weights' sizes."""
    _lagrange(nodes, size, v, weights, slopes)
    slack, rounding = derivatives[size - 2], 0.0
    for i in range(size):
        slack *= abs(v - nodes[i])
        rounding += abs(weights[i])
    return slack, rounding


@kernel
def _interpolate_slope(nodes, heights, v):
    weights, slopes = np.empty(nodes.shape[0]), np.empty(nodes.shape[0])
    _lagrange(nodes, nodes.shape[0], v, weights, slopes)
    total = 0.0
    for i in range(nodes.shape[0]):  # the slopes add up to 0
        total += slopes[i] * (heights[i] - heights[0])
    return total


@kernel
def _slope_errors(nodes, derivatives, following, v, noise):
    """How far off the slope at v can be of the polynomial through the first 2, 3, ... nodes."""
    weights, slopes = np.empty(nodes.shape[0]), np.empty(nodes.shape[0])
    out = np.empty(nodes.shape[0] - 1)
    product, change = v - nodes[0], 1.0  # of the v - nodes, and its derivative
    for size in range(2, nodes.shape[0] + 1):
        change = change * (v - nodes[size - 1]) + product
        product *= v - nodes[size - 1]
        _lagrange(nodes, size, v, weights, slopes)
        rounding = 0.0
        for i in range(size):
            rounding += abs(slopes[i])
        error = derivatives[size - 2] * abs(change) + noise * rounding
        out[size - 2] = error + (size + 1) * following[size - 2] * abs(product)
    return out


def known_end(
    spectrum: Spectrum, norm: float, roughness: float, bounds: tuple[float, float]
) -> float | None:
    """The end of the bounds at which a profile peaks, where that takes no search.

    All edges join equal targets: it only falls. The targets are as rough as noise, as they often
    are to the last bit where points or classes are few: by Jensen's inequality it only rises. Of a
    graph without edges it is flat, and that explains nothing.
    """
    if roughness == 0.0 < spectrum.mean:
        return bounds[0]
    return bounds[1] if roughness >= spectrum.mean * norm * (1.0 - _EQUAL) else None


def climb(slope: Callable[[float], float], bounds: tuple[float, float], width: float) -> float:
    """The r within the bounds at which a function of one peak has it, where slopes cost little.

    The slope in log r changes its sign once, from plus to minus, and the place is enclosed to a
    width: secants (Illinois) with a bisection now and then, since a far-off end slows secants down.
    """
    low, high = bounds
    left, right = math.log(low), math.log(high)
    at_left = slope(left)
    if at_left <= 0.0:
        return low
    at_right = slope(right)
    if at_right >= 0.0:
        return high
    middle, side, step = left, 0, 0
    while right - left >= width:
        if step % 3 == 2:
            middle = 0.5 * (left + right)
        else:
            middle = (left * at_right - right * at_left) / (at_right - at_left)
        here = slope(middle)
        if here == 0.0:
            break
        if here > 0.0:
            left, at_left = middle, here
            at_right *= 0.5 if side == 1 else 1.0
            side = 1
        else:
            right, at_right = middle, here
            at_left *= 0.5 if side == -1 else 1.0
            side = -1
        step += 1
    return min(max(math.exp(middle), low), high)


class PeakSearch:
    """The search for the r in `bounds` at which log|L + r I| - n log(roughness + r norm) peaks.

    `known` are values (ratio, log|L + ratio I|) that were computed before.

    `lower` and `upper` enclose the height of the peak all the while; `ratio` and `logdet` are the
    best so far, and `curve` holds what was computed.
    """

    def __init__(
        self,
        opened: Determinants,
        norm: float,
        roughness: float,
        bounds: tuple[float, float],
        start: float,
        known: Sequence[tuple[float, float]] = (),
    ) -> None:
        self.curve = Curve(opened.spectrum)
        for value in known:
            self.curve.add(*value)
        self.bounds, self.lower, self.upper = bounds, -math.inf, math.inf
        self.ratio = self.logdet = math.nan
        self._logdet, self._norm, self._roughness = opened.logdet, norm, roughness
        self._scale = max(opened.spectrum.top * norm - roughness, 0.0)
        self._start = min(max(start, bounds[0]), bounds[1])

    @property
    def settled(self) -> bool:
        """Whether the peak is enclosed as narrowly as promised."""
        return self.upper - self.lower <= 1.5 * self._tolerance

    def run(self, floor: float = -math.inf) -> PeakSearch:
        """Go on until the peak is found, or is known to be no higher than `floor`."""
        self._search(floor)
        if not self.curve.consistent:  # a backend that is wrong proves nothing
            self.upper = math.inf
        return self

    def _search(self, floor: float) -> None:
        end = known_end(self.curve.spectrum, self._norm, self._roughness, self.bounds)
        if end is not None:
            self._visit(end)
            self.upper = self.lower + self.curve.noise
            return
        if not self._bracket():
            return
        while True:
            self.upper, ahead = self._ceiling(floor)
            if self.upper <= floor or len(self.curve.v) >= _BUDGET:
                return
            if self.upper - self.lower <= self._tolerance:
                break
            peak = self._model_peak()
            near = float(np.abs(self.curve.v - self.curve.place(peak)).min())
            known = len(self.curve.v)
            self._visit(peak if near > _FRESH else self.curve.ratio_at(ahead))
            if len(self.curve.v) == known:  # nothing new to look at: rounding is in the way
                return
        for turn in range(_POLISH):
            peak = self._model_peak()
            if abs(math.log(peak / self.ratio)) <= _PLACE:
                break
            if turn == 0:
                self._visit(self._beside(peak))
            else:
                self._visit(peak, trusted=True)
        self.upper = max(self.upper, self.lower)

    @property
    def _tolerance(self) -> float:
        return _GAP * self.curve.spectrum.n + 8.0 * self.curve.noise

    def _offset(self, v: np.ndarray) -> np.ndarray:
        """What is taken off H: the profile is H(v) - n log(q + (top s - q) z) + n log top."""
        return self.curve.spectrum.n * np.log(self._roughness + self._scale * np.exp(v))

    def _visit(self, ratio: float, trusted: bool = False) -> None:
        """Take in the value at a ratio.

        One that is `trusted` to be the peak counts as the best if no other is higher for sure:
        between values that differ by rounding, the polynomial knows better.
        """
        end = min(self.bounds, key=lambda one: abs(ratio - one))
        ratio = end if math.isclose(ratio, end, rel_tol=1e-12) else ratio  # that is meant
        ratio = min(max(ratio, self.bounds[0]), self.bounds[1])
        place, curve = self.curve.place(ratio), self.curve
        if place not in curve.v:
            curve.add(ratio, self._logdet(ratio))
        offsets = curve.spectrum.n * np.log(self._roughness + curve.ratio * self._norm)
        self._heights = curve.logdet - offsets
        best = int(np.argmax(self._heights))
        self.lower = float(self._heights[best])
        here = int(np.searchsorted(curve.v, place))
        if trusted and self._heights[here] >= self.lower - 2.0 * curve.noise:
            best = here
        self._best = best
        self.ratio, self.logdet = float(curve.ratio[best]), float(curve.logdet[best])

    def _around(self) -> tuple[int, int]:
        """Positions beside the best value that are lower than it for sure, or else the outermost.

        A difference within the noise does not say on which side the peak is.
        """
        lower = np.flatnonzero(self._heights < self.lower - 2.0 * self.curve.noise)
        last = len(self._heights) - 1
        left, right = lower[lower < self._best], lower[lower > self._best]
        return int(left[-1]) if len(left) else 0, int(right[0]) if len(right) else last

    def _bracket(self) -> bool:
        """Values until the peak is between two of them, or at an end.

        False after too many, or where a visit brings nothing new: the next one would not either.
        """
        bottom, ceiling = (self.curve.place(end) for end in self.bounds)
        self._visit(self._start)
        v, step = self.curve.place(self._start), _STEP
        if len(self.curve.v) == 1:
            self._visit(self._clip(v + step if v + step < ceiling else v - step))
        while len(self.curve.v) < _BUDGET:
            known, (left, right) = self.curve.v, self._around()
            sure = self.lower - 2.0 * self.curve.noise
            if self._heights[left] >= sure and known[left] > bottom:
                self._visit(self._clip(known[left] - step))
            elif self._heights[right] >= sure and known[right] < ceiling:
                self._visit(self._clip(known[right] + step))
            else:
                return True
            if len(self.curve.v) == len(known):
                return False
            step = min(2.0 * step, _STRIDE)
        return False

    def _beside(self, peak: float) -> float:
        """A ratio beside the peak: values at it say little of the slope there."""
        v = self.curve.place(peak) + np.array([-_ASIDE, _ASIDE])
        gaps = np.abs(v[:, None] - self.curve.v).min(axis=1)
        return self._clip(float(v[np.argmax(gaps)]))

    def _clip(self, v: float) -> float:
        """The ratio at v, the ends of the bounds exactly."""
        low, high = self.bounds
        if v <= self.curve.place(low):
            return low
        return high if v >= self.curve.place(high) else self.curve.ratio_at(v)

    def _ceiling(self, floor: float) -> tuple[float, float]:
        """What the profile cannot exceed, and where the bound is highest.

        Within a cell H lies below its chord, which lies below the chord of H's upper bounds, and
        the offset bends by n/4 at most: cells are split until what that adds is negligible.
        """
        curve = self.curve
        n, scale = curve.spectrum.n, curve.spectrum.n * math.log(curve.spectrum.top)
        left, right = self._around()
        enough = max(self.lower + 0.5 * self._tolerance, floor)
        bound, where = self.lower, float(curve.v[self._best])
        for between in range(left, right):  # polynomials of their own, through what is nearest
            near = 0.5 * float(curve.v[between] + curve.v[between + 1])
            begin, end = _split(curve.v[[between]], curve.v[[between + 1]], _CELLS)
            while len(begin):
                both = np.concatenate([begin, end])
                height, slack = curve.enclose(both, near)
                value = height + slack - self._offset(both) + scale
                cell = np.maximum(value[: len(begin)], value[len(begin) :])
                share = self._share(begin), self._share(end)
                bend = n * _largest_bend(*share) * (end - begin) ** 2 / 8
                worth = np.maximum(0.1 * self._tolerance, 0.05 * (cell - enough))
                open_cells = (cell + bend > enough) & (bend > worth)
                closed = np.where(open_cells, -np.inf, cell + bend)
                at = int(np.argmax(closed))
                if closed[at] > bound:
                    bound = float(closed[at])
                    where = float(begin[at] if value[at] >= value[at + len(begin)] else end[at])
                begin, end = _split(begin[open_cells], end[open_cells], 8)
        return bound, where

    def _share(self, v: np.ndarray) -> np.ndarray:
        """The slope of the offset over n: the part of r s in q + r s, seen in v."""
        part = self._scale * np.exp(v)
        return part / (self._roughness + part)

    def _model_peak(self) -> float:
        """The ratio at the peak of a polynomial: Newton's method on its slope."""
        curve = self.curve
        left, right = curve.v[list(self._around())]
        v = float(curve.v[self._best])
        nodes = curve.nodes_for_slope(v)
        for _ in range(6):
            there = v + _BESIDE * np.array([0.0, 1.0])
            slopes = np.array([curve.slope(one, nodes) for one in there.tolist()])
            slope, beside = slopes - curve.spectrum.n * self._share(there)
            bend = (beside - slope) / _BESIDE
            if bend >= 0.0:
                break
            step = min(max(v - slope / bend, left), right) - v
            v += step
            if abs(step) < 0.1 * _PLACE:
                break
        return self._clip(v)


def _largest_bend(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The largest p (1 - p) between two shares."""
    share = np.clip(0.5, low, high)
    return share * (1.0 - share)


def _split(begin: np.ndarray, end: np.ndarray, parts: int) -> tuple[np.ndarray, np.ndarray]:
    edges = begin[:, None] + (end - begin)[:, None] * np.arange(parts + 1) / parts
    edges[:, -1] = end
    return edges[:, :-1].ravel(), edges[:, 1:].ravel()
