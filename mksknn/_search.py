"""The peak of a profile over r when each value costs a factorization."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

_GAIN = 1e-10  # stop when the model promises no more than this, in log evidence per output
_NODES = 6  # how many of the nearest values the model goes through
_TRIAL = 0.1  # a step in log r at which a model is tried
_BEND = 1e-2  # a step in log r for second differences
_WIDTH = 1e-9  # a bracket in log r that needs no further search


def peak_of_values(
    logdet: Callable[[float], float],
    degrees: np.ndarray,
    norm: float,
    roughness: float,
    low: float,
    high: float,
    start: float | None,
) -> tuple[float, float]:
    """The r in [low, high] at which log|L + r I| - n log(roughness + r norm) peaks, and log|.|.

    The first term is smooth in t = log r (a sum of n softplus functions), the second is known: so a
    polynomial through a few values of the first predicts the peak, one more value there corrects
    it, and so on. The peak is single, and is kept between two lower values or an end all the while.
    """
    n = len(degrees)
    # Two ends that need no search. All edges join equal targets: the profile only falls. The
    # targets are as rough as noise: by Jensen's inequality it only rises.
    if roughness == 0.0:
        return low, logdet(low)
    if roughness / norm >= degrees.mean():
        return high, logdet(high)

    bottom, top = math.log(low), math.log(high)
    known: dict[float, float] = {}

    def offset(t):
        return n * np.log(roughness + np.exp(t) * norm)

    def value(t: float) -> float:
        if t not in known:
            known[t] = logdet(low if t == bottom else high if t == top else math.exp(t))
        return known[t] - float(offset(t))

    least, most = _enclosure(degrees, norm, roughness, bottom, top)
    if start is None:
        center, step = least if least > bottom else 0.5 * (bottom + top), 1.0
    else:
        center, step = math.log(start), 0.2
    center = max(min(max(center, least), most, top), bottom)
    left, middle, right = _bracket(value, center, step, bottom, top)

    error = math.inf  # of the model's slope, seen at the last value
    while right - left > _WIDTH:
        nodes = _nodes(known, left, middle, right)
        best, slope, bend = _model_peak(nodes, known, offset, left, right)
        promised = float(_interpolate(nodes, known, np.array([best]))[0] - offset(best))
        gain = promised - value(middle) - 1e-14 * abs(known[middle])  # less what rounding may give
        if gain <= _GAIN or abs(best - middle) < _WIDTH or not left < best < right:
            at_end = right - left <= _TRIAL and middle in (left, right) and abs(slope) > 2.0 * error
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
        if value(best) > value(middle):
            left, middle, right = (middle, best, right) if best > middle else (left, best, middle)
        elif best > middle:
            right = best
        else:
            left = best
    ratio = low if middle == bottom else high if middle == top else math.exp(middle)
    return ratio, known[middle]


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
