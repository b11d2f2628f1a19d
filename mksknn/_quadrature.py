"""The integral over log r of one k's density, with an error that is bounded.

The log density is (m/2) (log|L + r I| - n log(q + r s)), 0 at its peak. Where any number of
determinants is free it is integrated as it is; where each costs a factorization, polynomials stand
for it whose distance from it is bounded by less than `_ERROR`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ._determinants import Determinants
from ._enclosures import Enclosure, enclose_opened
from ._plan import open_graph
from ._problem import Problem
from ._search import chebyshev_error

_PILED = 0.1  # of the peak: a density this high at an end of the bounds depends on them
_CUT = 40.0  # the tails begin where the log density has fallen by this
_ENOUGH, _TOO_MUCH = 30.0, 120.0  # a window may end where the log density has fallen this much
_ERROR = 1e-9  # of the integral, relative
_MOST_NODES = 48  # of one polynomial
_LEBESGUE = 4.0  # rounding grows by less in polynomials through Chebyshev nodes
_DEPTH = 24  # a panel is halved at most this often
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
# integrals of the polynomials that are 1 at one node and 0 at the others, from -1 up to each node
_UP_TO = np.array(
    [
        np.polynomial.Polynomial.fromroots(np.delete(_NODES, j)).integ(lbnd=-1.0)(_NODES)
        / np.prod(_NODES[j] - np.delete(_NODES, j))
        for j in range(len(_NODES))
    ]
).T
_BOTH_NODES = np.concatenate([_NODES - 1.0, _NODES + 1.0]) / 2.0  # of the two halves
_BOTH_WEIGHTS = np.concatenate([_WEIGHTS, _WEIGHTS]) / 2.0


@dataclass(frozen=True, eq=False)
class Slice:
    """The density in t = log r of one k, integrated."""

    log_marginal: float  # log p(y | k)
    t: np.ndarray  # nodes, rising
    share: np.ndarray  # of the mass, at each node; sums to one
    below: np.ndarray  # share of the mass below each node
    at_bound: bool
    error: float  # of the integral, relative


@dataclass(frozen=True, eq=False)
class Skipped:
    """A k whose log evidence is known to be no higher than this."""

    upper: float


class _Density:
    """The log density of one graph, 0 at its peak, over the whole range of t."""

    def __init__(self, problem: Problem, found: Enclosure) -> None:
        self.profile = problem.profile(found.k)
        self.low, self.high = problem.ratio_bounds
        self.bottom, self.ceiling = math.log(self.low), math.log(self.high)
        self.ratio, self.logdet = found.optimum.ratio, found.logdet
        if found.optimum.at_bound:
            self.ratio = min(problem.ratio_bounds, key=lambda end: abs(math.log(end / self.ratio)))
        self.peak = math.log(self.ratio)
        self.half = 0.5 * self.profile.m * self.profile.n
        # what rounding does to the log density: a few units of the determinant's last place
        self.noise = 1e-14 * self.half
        # it bends by no more than m n / 8, so that nothing is narrower than this
        self.width = 2.0 / math.sqrt(self.half)

    def of(self, t: np.ndarray, logdets: np.ndarray) -> np.ndarray:
        """The log density at t, given the log-determinants there."""
        q, s = self.profile.roughness, self.profile.norm
        fall = np.log((q + np.exp(t) * s) / (q + self.ratio * s))
        return 0.5 * self.profile.m * (logdets - self.logdet) - self.half * fall

    def ratios(self, t: np.ndarray) -> np.ndarray:
        """exp(t), the ends exactly."""
        return np.clip(np.exp(t), self.low, self.high)


def slice_graph(problem: Problem, k: int, floor: float = -math.inf) -> Slice | Skipped:
    """Integrate over r at graph k, unless its evidence is no higher than `floor` anywhere."""
    opened = open_graph(problem.pairs, k, problem.plan)
    found = enclose_opened(problem, k, opened, floor)
    if found.upper <= floor:
        return Skipped(found.upper)
    density = _Density(problem, found)
    log_density: Callable[[np.ndarray], np.ndarray]
    if opened.free_ratios:

        def log_density(t: np.ndarray) -> np.ndarray:
            return density.of(t, opened.logdets(density.ratios(t)))

        left, right, error = *_window(density, log_density), density.noise
    else:
        left, right = _probe_window(density, opened.logdet)
        log_density = _Panels(density, opened, left, right)
        error = log_density.error
    t, share, below, log_integral, missed = _integrate(log_density, left, right, density)
    heights = log_density(np.array([left, right]))
    # the density has one peak: beyond the window it is nowhere higher than at its end
    beyond = np.exp(heights - log_integral) @ [left - density.bottom, density.ceiling - right]
    reached = np.array([left == density.bottom, right == density.ceiling])
    return Slice(
        log_marginal=found.lower
        + sigma0_integral(problem)
        + log_integral
        - math.log(density.ceiling - density.bottom),
        t=t,
        share=share,
        below=below,
        at_bound=bool((heights[reached] > math.log(_PILED)).any()),
        error=error + missed + float(beyond),
    )


def sigma0_integral(problem: Problem) -> float:
    """What integrating sigma0 out adds to the profile: the same for every k."""
    a = 0.5 * problem.targets.m * problem.targets.n
    return math.lgamma(a) - a * math.log(a) + a


# ---------------------------------------------------------------------------------------------
# The window that matters


def _window(density: _Density, log_density: Callable) -> tuple[float, float]:
    """Where the log density has fallen by `_CUT` on either side of its single peak."""
    ends = []
    for end in (density.bottom, density.ceiling):
        steps = (end - density.peak) * 2.0 ** np.arange(-24.0, 0.0)
        fallen = np.flatnonzero(log_density(density.peak + steps) < -_CUT)
        ends.append(density.peak + float(steps[fallen[0]]) if len(fallen) else end)
    return ends[0], ends[1]


def _probe_window(density: _Density, logdet: Callable[[float], float]) -> tuple[float, float]:
    """The same with a few determinants only."""

    def probe(t: float) -> float:
        ratio = float(density.ratios(np.array([t]))[0])
        return float(density.of(np.array([t]), np.array([logdet(ratio)]))[0])

    reach = _reach_guess(density)
    right, reach = _find_end(probe, density.peak, density.ceiling, reach)
    left, _ = _find_end(probe, density.peak, density.bottom, reach)
    return left, right


def _reach_guess(density: _Density) -> float:
    """How far from the peak the density may fall by `_CUT`.

    The curvature at an inner peak is m n / 2 times the variance, over the eigenvalues u, of
    r / (u + r), whose mean is known; 0.3 of the largest variance with that mean is typical.
    """
    q, s = density.profile.roughness, density.profile.norm * density.ratio
    if density.peak in (density.bottom, density.ceiling) or q == 0.0:
        return _CUT / density.half
    return math.sqrt(2.0 * _CUT / (density.half * 0.3)) * (q + s) / math.sqrt(q) / math.sqrt(s)


def _find_end(
    probe: Callable[[float], float], peak: float, end: float, reach: float
) -> tuple[float, float]:
    """Where the log density has fallen far enough towards an end, and how far that is."""
    most = abs(end - peak)
    if not most:
        return end, reach
    short, far = 0.0, math.inf  # reaches known to be too short, and too far
    while True:
        reach = min(reach, most)
        t = end if reach == most else peak + math.copysign(reach, end - peak)
        fall = -probe(t)
        if _ENOUGH <= fall <= _TOO_MUCH or (t == end and fall < _ENOUGH):
            return t, reach
        short, far = (reach, far) if fall < _ENOUGH else (short, reach)
        # as if the density were normal, but well within what is known
        reach *= min(max(math.sqrt(_CUT / max(fall, 0.1)), 0.25), 4.0)
        if far < math.inf:
            reach = min(max(reach, short + 0.2 * (far - short)), far - 0.2 * (far - short))


# ---------------------------------------------------------------------------------------------
# The density from a few determinants


class _Panels:
    """The log density from determinants at Chebyshev nodes, off by a known amount at most.

    In v of `_search`, H is a sum of softplus functions; the remainder of its polynomial is bounded
    before any value is known, so the panels and their nodes are chosen at once, as few as will do.
    """

    def __init__(
        self,
        density: _Density,
        opened: Determinants,
        left: float,
        right: float,
    ) -> None:
        self._density, self._spectrum = density, opened.spectrum
        spectrum = opened.spectrum
        first, last = self._place(density.ratios(np.array([left, right]))).tolist()
        promised = _ERROR / density.profile.m
        count, size = _fewest_nodes(spectrum.n - spectrum.nulls, last - first, promised)
        self._edges = np.linspace(first, last, count + 1)
        angles = (np.arange(size) + 0.5) * math.pi / size
        self._weights = (-1.0) ** np.arange(size) * np.sin(angles)
        half = 0.5 * (last - first) / count
        middles = 0.5 * (self._edges[1:] + self._edges[:-1])
        self._nodes = middles[:, None] + half * np.cos(angles)
        ratios = np.clip(spectrum.top / np.expm1(-self._nodes), density.low, density.high)
        self._nodes = self._place(ratios)
        logdets = opened.logdets(ratios.ravel()).reshape(ratios.shape)
        self._heights = logdets - spectrum.n * np.log(ratios + spectrum.top)
        left_over = chebyshev_error(spectrum.n - spectrum.nulls, half, size)
        self.error = 0.5 * density.profile.m * left_over + _LEBESGUE * density.noise

    def __call__(self, t: np.ndarray) -> np.ndarray:
        """The log density at t, by the barycentric formula."""
        ratios = self._density.ratios(t)
        v = self._place(ratios)
        panel = np.clip(np.searchsorted(self._edges, v) - 1, 0, len(self._nodes) - 1)
        steps = v[:, None] - self._nodes[panel]
        exact = steps == 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = self._weights / steps
            heights = (parts * self._heights[panel]).sum(axis=1) / parts.sum(axis=1)
        hit = exact.any(axis=1)
        heights[hit] = self._heights[panel[hit], np.argmax(exact[hit], axis=1)]
        spectrum = self._spectrum
        return self._density.of(t, heights + spectrum.n * np.log(ratios + spectrum.top))

    def _place(self, ratios: np.ndarray) -> np.ndarray:
        return -np.log1p(self._spectrum.top / ratios)


def _fewest_nodes(active: int, width: float, promised: float) -> tuple[int, int]:
    """Panels and nodes in each, fewest in all, for which the polynomials keep a promise."""
    best = math.inf, 1, 2
    for count in range(1, 2 + int(width)):
        half = 0.5 * width / count
        for size in range(2, _MOST_NODES):
            if chebyshev_error(active, half, size) <= promised:
                best = min(best, (count * size, count, size))
                break
    return best[1], best[2]


# ---------------------------------------------------------------------------------------------
# The integral


def _integrate(
    log_density: Callable, left: float, right: float, density: _Density
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float, float]:
    """Nodes in t, each one's share and the share below it, the integral's log, its relative error.

    Panels widen from the peak outwards, beginning with the narrowest feature that the density can
    have, so that none is missed between nodes. A panel is accepted when its halves agree with it,
    for the density itself and for the density over r, which the variance of a point without
    neighbours needs.
    """
    peak, noise = density.peak, density.noise
    begin, end = _panels(left, peak, right, density.width)
    found_t, found_w, found_below = [], [], []
    total, missed = np.zeros(2), np.zeros(2)  # of the panels accepted

    def sample(nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        t = 0.5 * (begin + end)[:, None] + 0.5 * (end - begin)[:, None] * nodes
        return t, np.exp(np.minimum(log_density(t.ravel()), 1.0)).reshape(t.shape)

    def sums(t: np.ndarray, w: np.ndarray) -> np.ndarray:
        return np.column_stack([w.sum(axis=1), (w * np.exp(peak - t)).sum(axis=1)])

    t, value = sample(_NODES)
    for depth in range(_DEPTH + 1):
        half = 0.5 * (end - begin)[:, None]
        finer_t, finer_value = sample(_BOTH_NODES)
        rough, fine = (
            sums(t, half * _WEIGHTS * value),
            sums(finer_t, half * _BOTH_WEIGHTS * finer_value),
        )
        # the sums of the errors of all panels, the many small ones included, stay below _ERROR
        part = np.maximum(2.0 * half / (right - left), 1.0 / 64)
        allowed = np.maximum(0.5 * _ERROR * part * (total + fine.sum(axis=0)), noise * fine)
        error = np.abs(rough - fine)
        done = (error <= allowed).all(axis=1) | (depth == _DEPTH)
        found_t.append(t[done].ravel())
        found_w.append((half * _WEIGHTS * value)[done].ravel())
        found_below.append((half * (value @ _UP_TO.T))[done].ravel())
        total += fine[done].sum(axis=0)
        missed += error[done].sum(axis=0)
        if done.all():
            break
        split = ~done
        middle = 0.5 * (begin + end)[split]
        begin = np.concatenate([begin[split], middle])
        end = np.concatenate([middle, end[split]])
        t = np.concatenate(np.split(finer_t[split], 2, axis=1))
        value = np.concatenate(np.split(finer_value[split], 2, axis=1))
    t, w, inside = map(np.concatenate, (found_t, found_w, found_below))
    order = np.argsort(t)
    t, w, inside = t[order], w[order], inside[order]
    # what lies below a panel, and what of the panel lies below the node
    panels = w.reshape(-1, len(_NODES)).sum(axis=1)
    before = np.repeat(np.cumsum(panels) - panels, len(_NODES))
    below = np.clip(np.maximum.accumulate((before + inside) / w.sum()), 0.0, 1.0)
    return t, w / w.sum(), below, math.log(w.sum()), float(missed[0] / total[0])


def _panels(left: float, peak: float, right: float, width: float) -> tuple[np.ndarray, np.ndarray]:
    """Intervals from left to right that double in width with the distance from the peak."""
    edges = {left, peak, right}
    for end in (left, right):
        reach = 2.0 * width
        while reach < abs(end - peak):
            edges.add(peak + math.copysign(reach, end - peak))
            reach *= 3.0
    ordered = np.array(sorted(edges))
    return ordered[:-1], ordered[1:]
