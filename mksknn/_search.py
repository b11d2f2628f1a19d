"""The peak of a profile over r when each value costs a factorization."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

_GAIN = 1e-10  # stop when the model promises no more than this, in log evidence per output
_NODES = 6  # how many of the nearest values the model goes through


def peak_of_values(
    logdet: Callable[[float], float],
    degrees: np.ndarray,
    norm: float,
    roughness: float,
    low: float,
    high: float,
    start: float | None,
) -> tuple[float, float]:
    """Where ``log|L + r I| - n log(roughness + r norm)`` peaks in [low, high], and log|L + r I| there.

    The first term is smooth in t = log r (a sum of n softplus functions), the second is known: so a
    polynomial through a few values of the first predicts the peak, one more value there corrects it,
    and so on. The peak is single, and is kept between two lower values or an end all the while.
    """
    n = len(degrees)
    # Two ends that need no search. All edges join equal targets: the profile only falls. The targets
    # are as rough as noise: by Jensen's inequality it only rises.
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

    if start is None:
        center, step = _first_guess(degrees, norm, roughness, bottom, top), 1.0
    else:
        center, step = math.log(start), 0.2
    center = min(max(center, bottom), top)
    left, middle, right = _bracket(value, center, step, bottom, top)

    while True:
        best = _model_peak(known, middle, offset, left, right)
        nodes = np.array(sorted(known, key=lambda t: abs(t - middle))[:_NODES])
        promised = _interpolate(nodes, known, np.array([best]))[0] - float(offset(best))
        if promised - value(middle) <= _GAIN or abs(best - middle) < 1e-9:
            break
        if value(best) > value(middle):
            left, middle, right = (middle, best, right) if best > middle else (left, best, middle)
        elif best > middle:
            right = best
        else:
            left = best
    ratio = low if middle == bottom else high if middle == top else math.exp(middle)
    return ratio, known[middle]


def _first_guess(
    degrees: np.ndarray, norm: float, roughness: float, bottom: float, top: float
) -> float:
    """A ratio a little below the peak: the diagonal of the inverse replaced by its lower bound."""
    grid = np.linspace(bottom, top, 200)
    values, counts = np.unique(degrees, return_counts=True)
    ratios = np.exp(grid)[:, None]
    slope = (counts * ratios / (values + ratios)).sum(axis=1)
    slope -= len(degrees) * ratios[:, 0] * norm / (roughness + ratios[:, 0] * norm)
    rising = np.flatnonzero(slope > 0)
    return float(grid[rising[-1]]) if len(rising) else 0.5 * (bottom + top)


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
    while True:
        step *= 2.0
        ahead = min(max(here + direction * step, bottom), top)
        if ahead == here or value(ahead) <= value(here):
            return (before, here, ahead) if direction > 0 else (ahead, here, before)
        before, here = here, ahead


def _model_peak(known, middle, offset, left, right) -> float:
    """The peak of the model between left and right, by ever finer grids."""
    nodes = np.array(sorted(known, key=lambda t: abs(t - middle))[:_NODES])
    for _ in range(6):
        grid = np.linspace(left, right, 65)
        best = int(np.argmax(_interpolate(nodes, known, grid) - offset(grid)))
        left, right = grid[max(best - 1, 0)], grid[min(best + 1, 64)]
    return float(grid[best])


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
