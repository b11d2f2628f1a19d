"""The evidence of one k, enclosed: its graph opened by the plan, its peak searched.

What is computed for a k depends on its graph and on a floor alone, below which nobody asks any
more: so serial and distributed answers are the same to the last bit. With a floor, one determinant
is often enough (`Trials`); otherwise the peak is searched, from where `guess_ratio` says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ._bounds import Trials, guess_ratio, slack
from ._determinants import Determinants
from ._plan import open_graph
from ._problem import Optimum, Problem
from ._search import PeakSearch

_MOST_TRIALS = 4  # three are asked for at most, and what is foretold may be a little off


@dataclass(frozen=True, eq=False)
class Enclosure:
    """Bounds on the best evidence of one k, and the best value found."""

    k: int
    optimum: Optimum
    upper: float
    settled: bool  # the peak was found: optimum and upper are as close as promised
    factorizations: int
    logdet: float  # at the optimum

    @property
    def lower(self) -> float:
        """The best value found."""
        return self.optimum.log_evidence


def enclose(
    problem: Problem,
    k: int,
    floor: float = -math.inf,
    triangles: np.ndarray | None = None,
    start: float | None = None,
) -> Enclosure:
    """Enclose the evidence of graph k, at the given sigmas or the best over both.

    Below `floor` it need not be known any better. The triangles of the graph may be known, and a
    ratio near the peak.
    """
    values = problem.values(whole=floor == -math.inf)
    opened = open_graph(problem.pairs, k, problem.plan, values)
    return enclose_opened(problem, k, opened, floor, start, triangles)


def enclose_opened(
    problem: Problem,
    k: int,
    opened: Determinants,
    floor: float = -math.inf,
    start: float | None = None,
    triangles: np.ndarray | None = None,
) -> Enclosure:
    """The same for a graph that is open; `start` is a ratio near the peak, if one is known."""
    profile, bounds, extra = problem.profile(k), problem.ratio_bounds, slack(problem)
    if problem.sigmas is not None:
        logdet = opened.logdet(problem.ratio)
        value = profile.value_at(problem.sigmas[0], problem.ratio, logdet)
        optimum = Optimum(value, *problem.sigmas, at_bound=False)
        return Enclosure(k, optimum, value + extra, True, 1, logdet)
    ratio = opened.peak(profile.norm, profile.roughness, bounds)
    if ratio is not None:
        logdet = opened.logdet(ratio)
        optimum = profile.optimum(ratio, logdet, bounds)
        return Enclosure(k, optimum, optimum.log_evidence + extra, True, 1, logdet)
    known: list[tuple[float, float]] = []
    if floor > -math.inf:
        trials = Trials(problem, k, triangles)
        while (trial := trials.next(floor)) is not None and len(known) < _MOST_TRIALS:
            known.append((trial, opened.logdet(trial)))
            trials.add(*known[-1])
            if trials.bound <= floor:
                ratio, logdet = max(known, key=lambda value: profile.value(*value))
                optimum = profile.optimum(ratio, logdet, bounds)
                return Enclosure(k, optimum, trials.bound, False, len(known), logdet)
    if start is None:
        start = known[0][0] if known else guess_ratio(problem, k, triangles)
    search = PeakSearch(opened, profile.norm, profile.roughness, bounds, start, known)
    search.run(-math.inf if floor == -math.inf else profile.height(floor - extra))
    optimum = profile.optimum(search.ratio, search.logdet, bounds)
    upper = max(profile.evidence(search.upper), optimum.log_evidence) + extra
    count = len(search.curve.v)
    return Enclosure(k, optimum, upper, search.settled, count, search.logdet)


def enclose_chunk(problem: Problem, ks: np.ndarray) -> list[Enclosure]:
    """Neighbouring k of a whole sweep: each search begins at its neighbour's peak."""
    found: list[Enclosure] = []
    for k in ks[::-1].tolist():
        start = found[-1].optimum.ratio if found else None
        found.append(enclose(problem, k, start=start))
    return found[::-1]
