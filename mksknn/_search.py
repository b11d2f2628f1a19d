"""The peak of a profile over r when each value costs a factorization."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

_GAIN = 1e-10  # stop when the model promises no more than this, in log evidence per output
_NODES = 6  # how many of the nearest values the model goes through; `_remainder` holds up to 6
_TRIAL = 0.1  # a step in log r at which a model is tried
_BEND = 1e-2  # a step in log r for second differences
_WIDTH = 1e-9  # a bracket in log r that needs no further search
_ROUGH = 1.0  # a bracket in log r that is narrow enough for a rough search
_GRID = 256


class Climb:
    """The search for the r at which log|L + r I| - n log(roughness + r norm) peaks.

    The first term is smooth in t = log r (a sum of n softplus functions), the second is known: so a
    polynomial through a few values of the first predicts the peak, one more value there corrects
    it, and so on. The peak is single, and is kept between two lower values or an end all the while.

    A search can be left early and taken up again. `lower` and `upper` enclose the height of the
    peak meanwhile; the upper one is proven, by the polynomial's remainder.
    """

    def __init__(
        self,
        degrees: np.ndarray,
        norm: float,
        roughness: float,
        low: float,
        high: float,
        start: float | None = None,
    ) -> None:
        self.low, self.high = low, high
        self.ratio, self.logdet = math.nan, math.nan  # the best so far
        self.lower, self.upper = -math.inf, math.inf
        self._degrees, self._norm, self._roughness, self._start = degrees, norm, roughness, start
        self._known: dict[float, float] = {}  # log|L + r I| by log r
        self._bracket: tuple[float, float, float] | None = None  # of the peak, the best between
        self._error = math.inf  # of the model's slope, seen at the last value

    def run(
        self, logdet: Callable[[float], float], floor: float = -math.inf, rough: bool = False
    ) -> None:
        """Go on until the peak is found, or is known to be no higher than `floor`.

        A rough search stops as soon as the peak lies between two values not far apart. Each call
        takes up where the last one stopped.
        """
        bottom, top = math.log(self.low), math.log(self.high)
        # Two ends that need no search. All edges join equal targets: the profile only falls. The
        # targets are as rough as noise: by Jensen's inequality it only rises.
        if self._roughness == 0.0:
            self._finish(logdet, bottom)
            return
        if self._roughness / self._norm >= self._degrees.mean():
            self._finish(logdet, top)
            return

        def value(t: float) -> float:
            return self._logdet(logdet, t) - float(self._offset(t))

        if self._bracket is None:
            self._bracket = _bracket(value, *self._first_step(bottom, top), bottom, top)
        left, middle, right = self._bracket
        known, offset, error = self._known, self._offset, self._error
        while right - left > _WIDTH:
            nodes = _nodes(known, left, middle, right)
            self._take(middle)
            self._bracket, self._error = (left, middle, right), error
            self.upper = min(self.upper, self._ceiling(nodes, left, right))
            if self.upper <= floor or (rough and right - left <= _ROUGH):
                return
            best, slope, bend = _model_peak(nodes, known, offset, left, right)
            promised = float(_interpolate(nodes, known, np.array([best]))[0] - offset(best))
            rounding = 1e-14 * abs(known[middle])
            gain = promised - value(middle) - rounding
            if gain <= _GAIN or abs(best - middle) < _WIDTH or not left < best < right:
                near = right - left <= _TRIAL
                at_end = near and middle in (left, right) and abs(slope) > 2.0 * error
                missed = error * (right - left)
                if bend > 0.0:
                    missed = min(missed, error * error / (2.0 * bend))
                if at_end or missed <= _GAIN:
                    break
                # nothing to gain, by a model not tried yet: try it a little further on
                side = right - middle if right - middle > middle - left else left - middle
                best = middle + math.copysign(min(0.3 * abs(side), _TRIAL), side)
                promised = float(_interpolate(nodes, known, np.array([best]))[0] - offset(best))
            # one value may be foretold by luck, so an earlier error is not forgotten at once
            seen = abs(promised - value(best)) / float(np.abs(nodes - best).min())
            error = seen if error == math.inf else max(seen, 0.01 * error)
            left, middle, right = _narrow(value, left, middle, right, best)
        self._bracket = middle, middle, middle
        self._finish(logdet, middle)

    @property
    def estimate(self) -> float:
        """The ratio at the peak of the model, so far."""
        if self._bracket is None or self.lower == self.upper:
            return self.ratio
        left, middle, right = self._bracket
        nodes = _nodes(self._known, left, middle, right)
        return self._ratio(_model_peak(nodes, self._known, self._offset, left, right)[0])

    def _first_step(self, bottom: float, top: float) -> tuple[float, float]:
        """Where to begin, and how far away to look next."""
        least, most = _enclosure(self._degrees, self._norm, self._roughness, bottom, top)
        if self._start is not None:
            center, step = math.log(self._start), 0.2
        elif least > bottom:
            center, step = least, 1.0
        else:
            center, step = math.log(self._degrees.mean()) - 6.0, 2.0
        return max(min(max(center, least), most, top), bottom), step

    def _logdet(self, logdet: Callable[[float], float], t: float) -> float:
        if t not in self._known:
            self._known[t] = logdet(self._ratio(t))
        return self._known[t]

    def _ratio(self, t: float) -> float:
        """exp(t), the ends exactly."""
        ends = {math.log(self.low): self.low, math.log(self.high): self.high}
        return ends[t] if t in ends else math.exp(t)

    def _offset(self, t):
        return len(self._degrees) * np.log(self._roughness + np.exp(t) * self._norm)

    def _take(self, t: float) -> None:
        self.ratio, self.logdet = self._ratio(t), self._known[t]
        self.lower = self.logdet - float(self._offset(t))

    def _finish(self, logdet: Callable[[float], float], t: float) -> None:
        self._logdet(logdet, t)
        self._take(t)
        self.upper = self.lower

    def _ceiling(self, nodes: np.ndarray, left: float, right: float) -> float:
        """What the profile cannot exceed between left and right."""
        n = len(self._degrees)
        grid = np.linspace(left, right, _GRID + 1)
        bound = _interpolate(nodes, self._known, grid) - self._offset(grid)
        bound += _remainder(nodes, self._known, n, grid)
        # between points of the grid the profile bends down, by as much as its second term
        share = np.exp(grid) * self._norm
        share = share / (self._roughness + share)
        bend = n * (0.25 if share[0] < 0.5 < share[-1] else float((share * (1.0 - share)).max()))
        rounding = 1e-14 * abs(self._known[float(nodes[0])])
        return float(bound.max()) + bend * (grid[1] - grid[0]) ** 2 / 8.0 + rounding


def _enclosure(
    degrees: np.ndarray, norm: float, roughness: float, bottom: float, top: float
) -> tuple[float, float]:
    """Two log r between which the peak lies, the first usually a little below it.

    The slope of the profile is at least what the degrees alone give, since the diagonal of an
    inverse is at least the inverse of the diagonal; and no eigenvalue exceeds twice the largest
    degree. Far beyond the second the profile is flat to rounding, and no search would find back.
    """
    grid = np.linspace(bottom, top, 200)
    values, counts = np.unique(degrees, return_counts=True)
    ratios = np.exp(grid)[:, None]
    slope = len(degrees) * roughness / (roughness + ratios[:, 0] * norm)
    slope -= (counts * (values / (values + ratios))).sum(axis=1)
    rising = np.flatnonzero(slope > 0)
    least = float(grid[rising[-1]]) if len(rising) else bottom
    spare = degrees.mean() * norm / roughness - 1.0
    most = math.log(2.0 * degrees.max()) - math.log(spare) if spare > 0.0 else math.inf
    return least, most


def _bracket(
    value: Callable[[float], float], center: float, step: float, bottom: float, top: float
) -> tuple[float, float, float]:
    """Three points of which the middle one is the highest; at an end, two of them coincide."""
    other = min(center + step, top) if center < top else max(center - step, bottom)
    if value(other) > value(center):
        direction = 1.0 if other > center else -1.0
        before, here = center, other
    else:
        direction = -1.0 if other > center else 1.0
        before, here = other, center
    # a model through values farther apart than this is of no use
    stride = max(3.0, 0.1 * (top - bottom))
    while True:
        step = min(2.0 * step, stride)
        ahead = min(max(here + direction * step, bottom), top)
        if ahead == here or value(ahead) <= value(here):
            return (before, here, ahead) if direction > 0 else (ahead, here, before)
        before, here = here, ahead


def _narrow(
    value: Callable[[float], float], left: float, middle: float, right: float, new: float
) -> tuple[float, float, float]:
    """The bracket that is left when one more value within it is known."""
    if value(new) > value(middle):
        return (middle, new, right) if new > middle else (left, new, middle)
    return (left, middle, new) if new > middle else (new, middle, right)


def _nodes(known: dict[float, float], left: float, middle: float, right: float) -> np.ndarray:
    """What the model goes through: the nearest values, the ends of the bracket among them.

    Without the ends, the model could rise beyond the middle there, where the values do not.
    """
    near = sorted(known, key=lambda t: abs(t - middle))
    ends = {left, middle, right}
    return np.array([*ends, *(t for t in near if t not in ends)][:_NODES])


def _model_peak(nodes, known, offset, left, right) -> tuple[float, float, float]:
    """The peak of the model between left and right, its slope there and how it bends."""
    for _ in range(6):
        grid = np.linspace(left, right, 65)
        best = int(np.argmax(_interpolate(nodes, known, grid) - offset(grid)))
        left, right = grid[max(best - 1, 0)], grid[min(best + 1, 64)]
    around = grid[best] + _BEND * np.array([-1.0, 0.0, 1.0])
    before, here, after = (_interpolate(nodes, known, around) - offset(around)).tolist()
    slope, bend = (after - before) / (2.0 * _BEND), (2.0 * here - before - after) / _BEND**2
    return float(grid[best]), slope, bend


def _interpolate(nodes: np.ndarray, known: dict[float, float], t: np.ndarray) -> np.ndarray:
    """The polynomial through the nodes, in Newton's form."""
    coefficients = np.array([known[node] for node in nodes.tolist()])
    for level in range(1, len(nodes)):
        rise = coefficients[level:] - coefficients[level - 1 : -1]
        coefficients[level:] = rise / (nodes[level:] - nodes[:-level])
    out = np.full_like(t, coefficients[-1])
    for coefficient, node in zip(coefficients[-2::-1], nodes[-2::-1], strict=True):
        out = out * (t - node) + coefficient
    return out


def _remainder(nodes: np.ndarray, known: dict[float, float], n: int, t: np.ndarray) -> np.ndarray:
    """How far log|L + e^t I| can be from the polynomial, for t among the nodes (at most 6).

    Its derivative in t is the sum of p = e^t / (lambda + e^t) over the eigenvalues lambda, and up
    to the fifth derivative of p none exceeds p (1 - p) in size. The sum of these is at most
    n u (1 - u), u the mean of the p; and as log|L + r I| is concave in r, the mean at the last node
    is at most what the last two values give.
    """
    before, last = np.sort(nodes)[-2:].tolist()
    rise = known[last] - known[before] + 1e-14 * (abs(known[last]) + abs(known[before]))
    mean = rise / -math.expm1(before - last) / n
    most = n * (mean * (1.0 - mean) if mean < 0.5 else 0.25)
    product = np.prod([np.abs(t - node) for node in nodes], axis=0)
    return most * product / math.factorial(len(nodes))
