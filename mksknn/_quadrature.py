"""The integral over log r of one k's density, with an error that is bounded.

The log density is (m/2) (log|L + r I| - n log(q + r s)), 0 at its peak. Where any number of
determinants is free, panels are halved until two rules agree. Where each costs a factorization,
Gauss's rules get as many nodes as it takes to keep what they miss proven to be below `_ERROR`: the
few values that found the peak bound the density on ellipses in the complex plane.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ._determinants import Determinants
from ._enclosures import Enclosure, enclose_opened
from ._plan import INTEGRAL, open_graph
from ._problem import Problem
from ._search import Curve

_PILED = 0.1  # of the peak: a density this high at an end of the bounds depends on them
_CUT = 40.0  # the tails begin where the log density, over r too, has fallen by this
_ENOUGH, _TOO_MUCH = 30.0, 120.0  # a window may end where the log density has fallen this much
_ERROR = 1e-9  # of the integral, relative
_PLANNED, _BEYOND = 0.8, 0.05  # shares of _ERROR for what rules miss, and for what is left out
_NEAR = 0.05  # in log r: values as near to the peak say little of how it bends
_GRID = 64  # places on each side of the peak where a window may end
_MOST_NODES, _FEWEST = 64, 8  # of one of Gauss's rules; with so few it is not divided
# Values where the bound on the log density may be too high by _GAP or more, unless the density is
# below exp(-_DEEP). For 26 slices of 2,000 to 10,000 points no such value took 1,811 determinants
# in all, one 1,653, two 1,609, four with a gap of 1.5 1,603, and eight with one of 0.7 1,646.
_PILLARS, _GAP, _DEEP = 2, 2.0, 25.0
_SPLITS = (0.2, 0.35, 0.5, 0.65, 0.8)  # where a rule may be divided; in the middle only: 54 for 47
_LEAN = 3.0  # half of the height of an ellipse around an interval of t: below pi
_ROUND = 8.0  # or so many times half the interval
_ELLIPSES = np.linspace(0.2, 1.0, 12)  # tried, shares of the log of the widest one's rho
_ARCS = 64  # of the upper half of an ellipse
_COSINES, _SINES = (part(np.linspace(0.0, math.pi, _ARCS + 1)) for part in (np.cos, np.sin))
_DEPTH = 24  # a panel is halved at most this often
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_STEPS = np.linspace(-1.0, 1.0, 129)  # of a panel, where it is told how much lies below
# integrals of the polynomials that are 1 at one node and 0 at the others, from -1 up to each step
_UP_TO = np.array(
    [
        np.polynomial.Polynomial.fromroots(np.delete(_NODES, j)).integ(lbnd=-1.0)(_STEPS)
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
    places: np.ndarray  # of t, rising, from end to end of the window, closer together
    below: np.ndarray  # share of the mass below each of these, from 0 to 1
    at_bound: bool
    error: float  # of the integral, relative


@dataclass(frozen=True, eq=False)
class Skipped:
    """A k whose log evidence is known to be no higher than this."""

    upper: float


@dataclass(frozen=True, eq=False)
class _Integral:
    """The integral over a window, the density being 1 at its peak."""

    t: np.ndarray
    share: np.ndarray
    places: np.ndarray
    below: np.ndarray
    log: float
    error: float  # relative, of what is in the window
    ends: tuple[float, float]
    heights: np.ndarray  # of the log density at both ends


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

    @property
    def flat(self) -> bool:
        """Whether the bounds are so close that the density is the same on all of the range.

        Neither of its two terms changes by more than m n / 2 for each unit of t. The ends may even
        have one logarithm, rounded.
        """
        return self.half * (self.ceiling - self.bottom) <= _ERROR

    @property
    def log_range(self) -> float:
        """The log of the length of the range of t; 0 where it is `flat`, and taken to be one."""
        return 0.0 if self.flat else math.log(self.ceiling - self.bottom)

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
    opened = open_graph(problem.pairs, k, problem.plan, INTEGRAL)
    if not opened.free_ratios:
        opened = _Remembered(opened)
    found = enclose_opened(problem, k, opened, floor)
    if found.upper <= floor:
        return Skipped(found.upper)
    density = _Density(problem, found)
    if density.flat:
        integral = _integrate_flat(density)
    elif isinstance(opened, _Remembered):
        integral = _integrate_few(density, opened, found)
    else:
        integral = _integrate_many(density, opened)
    ends = integral.ends
    # the density has one peak: beyond the window it is nowhere higher than at its end
    sizes = np.array([ends[0] - density.bottom, density.ceiling - ends[1]])
    beyond = float(np.exp(integral.heights - integral.log) @ sizes)
    return Slice(
        log_marginal=found.lower
        + problem.targets.sigma0_integral
        + integral.log
        - density.log_range,
        t=integral.t,
        share=integral.share,
        places=integral.places,
        below=integral.below,
        at_bound=bool((integral.heights[sizes == 0.0] > math.log(_PILED)).any()),
        error=integral.error + beyond,
    )


def _integrate_flat(density: _Density) -> _Integral:
    """The mean over a range on which the density does not change: what it is at the peak."""
    ends = density.bottom, density.ceiling
    error = density.half * (ends[1] - ends[0]) + density.noise
    peak, both = np.array([density.peak]), np.array([0.0, 1.0])
    return _Integral(peak, np.ones(1), np.array(ends), both, 0.0, error, ends, np.zeros(2))


# ---------------------------------------------------------------------------------------------
# The window that matters


def _integrate_many(density: _Density, opened: Determinants) -> _Integral:
    """The integral where any number of determinants is free."""

    def log_density(t: np.ndarray) -> np.ndarray:
        return density.of(t, opened.logdets(density.ratios(t)))

    ends = _window(density, log_density)
    t, share, places, below, log, missed = _integrate(log_density, *ends, density)
    error = missed + density.noise
    return _Integral(t, share, places, below, log, error, ends, log_density(np.array(ends)))


def _gain(peak: float, end: float) -> float:
    """By how much 1/r, in logs, rises from the peak to an end of the bounds.

    Its mean is asked for too. The density falls like a power of r towards small r, and what it has
    lost there 1/r may have gained.
    """
    return max(peak - end, 0.0)


def _window(density: _Density, log_density: Callable) -> tuple[float, float]:
    """Where the log density has fallen far enough on either side of its single peak."""
    ends = []
    for end in (density.bottom, density.ceiling):
        steps = (end - density.peak) * 2.0 ** np.arange(-24.0, 0.0)
        cut = _CUT + _gain(density.peak, end)
        fallen = np.flatnonzero(log_density(density.peak + steps) < -cut)
        ends.append(density.peak + float(steps[fallen[0]]) if len(fallen) else end)
    return ends[0], ends[1]


def _probe_window(
    density: _Density, curve: Curve, logdet: Callable[[float], float]
) -> tuple[float, float]:
    """The same with a few determinants only."""

    def probe(t: float) -> float:
        ratio = float(density.ratios(np.array([t]))[0])
        return float(density.of(np.array([t]), np.array([logdet(ratio)]))[0])

    ends = density.bottom, density.ceiling
    left, right = (_find_end(probe, density.peak, end, _reach(density, curve, end)) for end in ends)
    return left, right


def _reach(density: _Density, curve: Curve, end: float) -> float:
    """How far from the peak towards an end the density may fall by `_CUT`, and what 1/r gains.

    The slope of log|L + r I| in log r is the sum of r / (u + r) over the eigenvalues u. Without the
    components, it is taken to grow like a power of r until it is one for each eigenvalue; values on
    both sides of the peak tell which power.
    """
    q, s, cut = density.profile.roughness, density.profile.norm, _CUT + _gain(density.peak, end)
    if density.peak in (density.bottom, density.ceiling) or q == 0.0:
        return cut / density.half
    nulls, most = curve.spectrum.nulls, density.profile.n - curve.spectrum.nulls
    slope = density.profile.n * density.ratio * s / (q + density.ratio * s)
    share = min(max(slope - nulls, 1e-3 * slope) / max(most, 1), 0.99)
    known, power = np.log(curve.ratio) - density.peak, 0.5
    if (known > _NEAR).any() and (known < -_NEAR).any():
        right, left = known[known > _NEAR].min(), known[known < -_NEAR].max()
        logdet = [curve.logdet[known == one][0] - density.logdet for one in (right, left)]
        bend = 2.0 * (logdet[0] / right - logdet[1] / left) / (right - left)
        power = min(max(bend / (most * share * (1.0 - share)), 0.1), 1.0)
    steps = np.linspace(0.0, end - density.peak, _GRID)[1:]
    grown = nulls * steps + most / power * np.log1p(share * np.expm1(power * steps))
    fallen = density.of(density.peak + steps, density.logdet + grown) <= -cut
    return float(abs(steps[np.argmax(fallen) if fallen.any() else -1]))


def _find_end(probe: Callable[[float], float], peak: float, end: float, reach: float) -> float:
    """Where the log density has fallen far enough towards an end."""
    most, gain = abs(end - peak), _gain(peak, end)
    if not most:
        return end
    short, far = 0.0, math.inf  # reaches known to be too short, and too far
    while True:
        reach = min(reach, most)
        t = end if reach == most else peak + math.copysign(reach, end - peak)
        fall = -probe(t)
        enough = fall >= _ENOUGH + gain
        if (enough and fall <= _TOO_MUCH + gain) or (t == end and not enough):
            return t
        short, far = (short, reach) if enough else (reach, far)
        # as if the density were normal, but well within what is known
        reach *= min(max(math.sqrt((_CUT + gain) / max(fall, 0.1)), 0.25), 4.0)
        if far < math.inf:
            reach = min(max(reach, short + 0.2 * (far - short)), far - 0.2 * (far - short))


# ---------------------------------------------------------------------------------------------
# The integral from a few determinants


class _Remembered(Determinants):
    """A graph that keeps the determinants asked of it."""

    def __init__(self, opened: Determinants) -> None:
        self._opened, self.spectrum, self.curve = opened, opened.spectrum, Curve(opened.spectrum)

    def logdet(self, ratio: float) -> float:
        """log|L + ratio I|."""
        value = self._opened.logdet(ratio)
        self.curve.add(ratio, value)
        return value

    def trace_inverse(self, ratio: float) -> float:
        """tr (L + ratio I)^-1."""
        return self._opened.trace_inverse(ratio)


class _Roof:
    """What the density cannot exceed, on the real line of t and beside it, from a few values of it.

    H of `_search` is convex in v, with a slope of at least the number of components, and concave
    in z after these are taken off; at r = infinity it is 0.
    """

    def __init__(self, density: _Density, curve: Curve) -> None:
        self._density, self._spectrum = density, curve.spectrum
        self._v, self._heights = np.append(curve.v, 0.0), np.append(curve.height, 0.0)
        self._slack = 0.5 * density.profile.m * curve.noise
        # on which sides of the peak that was found the density is known to be monotone
        self._rises, self._falls = density.peak > density.bottom, density.peak < density.ceiling

    def above(self, t: np.ndarray, before: np.ndarray | None = None) -> np.ndarray:
        """The log density is no higher: at t, or anywhere from `before` to t."""
        v, logs = self._place(t)
        height = np.interp(v, self._v, self._heights)
        height += self._spectrum.nulls * np.minimum(v - self._v[0], 0.0)
        logdet = height + self._spectrum.n * logs
        # both terms of the log density rise with t
        return self._density.of(t if before is None else before, logdet) + self._slack

    def below(self, t: np.ndarray) -> np.ndarray:
        """The log density is no lower, between the outermost values."""
        v, logs = self._place(t)
        nulls = self._spectrum.nulls
        height = np.interp(np.exp(v), np.exp(self._v), self._heights - nulls * self._v)
        return self._density.of(t, height + nulls * v + self._spectrum.n * logs) - self._slack

    def beside(self, low: np.ndarray, high: np.ndarray, lean: np.ndarray) -> np.ndarray:
        """The log of the largest size where the real part is from low to high, the other <= lean.

        |u + r e^(iy)| <= u + r, so that only the known denominator makes the density larger there.
        """
        peak, profile = self._density.peak, self._density.profile
        found = self.above(high, low)
        # where it is known to be monotone it is no higher than at the peak
        if self._rises:
            at_most = np.minimum(self.above(high), 0.0)
            found = np.where(high <= peak, np.minimum(found, at_most), found)
        if self._falls:
            at_most = np.minimum(self.above(low), 0.0)
            found = np.where(low >= peak, np.minimum(found, at_most), found)
        if self._rises and self._falls:
            found = np.minimum(found, 0.0)
        parts = [np.exp(t) * profile.norm for t in (low, high)]
        share = np.clip(0.5, *(part / (profile.roughness + part) for part in parts))
        turned = 4.0 * share * (1.0 - share) * np.sin(0.5 * lean) ** 2
        return found - 0.5 * self._density.half * np.log1p(-turned)

    def _place(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """v, and log(r + top)."""
        top = self._spectrum.top
        return -np.log1p(top * np.exp(-t)), np.logaddexp(t, math.log(top))


def _raise_roof(density: _Density, opened: _Remembered, left: float, right: float) -> _Roof:
    """A roof, after some values where it may be far above the density: each saves several nodes."""
    t = np.linspace(left, right, 2 * _GRID)
    for _ in range(_PILLARS):
        roof = _Roof(density, opened.curve)
        gap = np.minimum(roof.above(t), 0.0) - np.maximum(roof.below(t), -_DEEP)
        if gap.max() < _GAP:
            break
        opened.logdet(float(density.ratios(t[[np.argmax(gap)]])[0]))
    return _Roof(density, opened.curve)


def _shrink(
    roof: _Roof, density: _Density, left: float, right: float
) -> tuple[float, float, np.ndarray]:
    """The window without what is proven to be negligible, and about how much there is in it.

    Of the density and of the density over r.
    """
    t = np.concatenate(
        [np.linspace(left, density.peak, _GRID)[:-1], np.linspace(density.peak, right, _GRID)]
    )
    above, peak = roof.above(t), density.peak
    scale = np.stack([np.zeros(len(t)), peak - t])
    value = np.exp(np.minimum(roof.below(t), 0.0) + scale)
    there = (0.5 * (value[:, 1:] + value[:, :-1])) @ np.diff(t)
    little = _BEYOND * _ERROR * there[:, None]
    height = np.exp(np.minimum(above, 0.0))
    before = height * np.stack([t - density.bottom, np.exp(peak - density.bottom) + 0.0 * t])
    after = height * np.exp(scale) * (density.ceiling - t)
    cut = np.flatnonzero((before <= little).all(axis=0) & (t < peak))
    left = float(t[cut[-1]]) if len(cut) else left
    cut = np.flatnonzero((after <= little).all(axis=0) & (t > peak))
    right = float(t[cut[0]]) if len(cut) else right
    return left, right, there


@dataclass(frozen=True, eq=False)
class _Rule:
    """Gauss's rule on an interval of t, with as many nodes as a promise takes."""

    left: float
    right: float
    size: int
    error: np.ndarray  # of both integrals, of the density and of the density over r


def _rule(roof: _Roof, peak: float, left: float, right: float, allowed: np.ndarray) -> _Rule:
    """The rule of fewest nodes whose errors are proven to be below those allowed.

    With N nodes it misses at most 64/15 half_width M rho^-2N / (1 - rho^-2), where M is the mean
    size of the integrand on the ellipse around the interval whose half axes add up to rho, over
    angles (docs/theory). Of some ellipses the best counts; the mean is bounded arc by arc.
    """
    half, middle = 0.5 * (right - left), 0.5 * (left + right)
    widest = math.asinh(min(_LEAN / half, _ROUND))  # the log of rho
    logs = widest * _ELLIPSES[:, None]
    places = middle + half * np.cosh(logs) * _COSINES
    lean = half * np.sinh(logs) * _SINES
    low, high = places[:, 1:], places[:, :-1]
    size = roof.beside(low, high, np.maximum(lean[:, 1:], lean[:, :-1]))
    both = np.stack([size, size + peak - low])
    highest = both.max(axis=2)
    mean = highest + np.log(np.exp(both - highest[:, :, None]).mean(axis=2))
    factor = math.log(64.0 / 15.0 * half) - np.log(-np.expm1(-2.0 * logs[:, 0]))
    needed = (mean + factor - np.log(allowed)[:, None]) / (2.0 * logs[:, 0])
    count = max(2, math.ceil(needed.min(axis=1).max()))
    error = np.exp((mean + factor - 2.0 * count * logs[:, 0]).min(axis=1))
    return _Rule(left, right, count, error)


def _rules(roof: _Roof, peak: float, left: float, right: float, allowed: np.ndarray) -> list[_Rule]:
    """One rule from left to right, or several where those take fewer nodes in all."""
    return _divide(roof, peak, _rule(roof, peak, left, right, allowed), allowed, _DEPTH)


def _divide(roof: _Roof, peak: float, whole: _Rule, allowed: np.ndarray, depth: int) -> list[_Rule]:
    if whole.size <= _FEWEST or not depth:
        return [whole]
    best, least = [whole], whole.size if whole.size <= _MOST_NODES else math.inf
    for share in _SPLITS:
        middle = whole.left + share * (whole.right - whole.left)
        ends = (whole.left, middle), (middle, whole.right)
        parts = [_rule(roof, peak, *both, 0.5 * allowed) for both in ends]
        if (size := sum(part.size for part in parts)) < least:
            best, least = parts, size
    if len(best) == 1:
        return best
    return [rule for part in best for rule in _divide(roof, peak, part, 0.5 * allowed, depth - 1)]


@functools.cache
def _gauss(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes and weights of Gauss's rule, and the weights of the polynomial through its nodes."""
    nodes, weights = np.polynomial.legendre.leggauss(size)
    return nodes, weights, (-1.0) ** np.arange(size) * np.sqrt((1.0 - nodes**2) * weights)


class _Sampled:
    """The log density at the nodes of some rules, and by polynomials between them."""

    def __init__(self, density: _Density, opened: Determinants, rules: list[_Rule]) -> None:
        self._rules, self.t, self.values, self.weights = rules, [], [], []
        for rule in rules:
            nodes, weights, _ = _gauss(rule.size)
            half = 0.5 * (rule.right - rule.left)
            t = 0.5 * (rule.left + rule.right) + half * nodes
            self.t.append(t)
            self.values.append(density.of(t, opened.logdets(density.ratios(t))))
            self.weights.append(half * weights)

    def __call__(self, t: np.ndarray) -> np.ndarray:
        """The log density at t, by the barycentric formula."""
        out = np.empty(len(t))
        which = np.searchsorted([rule.right for rule in self._rules[:-1]], t)
        for at, rule in enumerate(self._rules):
            here = which == at
            steps = t[here][:, None] - self.t[at]
            steps[steps == 0.0] = 1e-300  # at a node its value is all that counts
            parts = _gauss(rule.size)[2] / steps
            out[here] = (parts @ self.values[at]) / parts.sum(axis=1)
        return out


def _integrate_few(density: _Density, opened: _Remembered, found: Enclosure) -> _Integral:
    """The integral where each determinant costs a factorization."""
    opened.curve.add(density.ratio, density.logdet)
    left, right = _probe_window(density, opened.curve, opened.logdet)
    roof = _raise_roof(density, opened, left, right)
    left, right, about = _shrink(roof, density, left, right)
    rules = _rules(roof, density.peak, left, right, _PLANNED * _ERROR * about)
    heights = roof.above(np.array([left, right]))
    sampled = _Sampled(density, opened, rules)
    t, weights = np.concatenate(sampled.t), np.concatenate(sampled.weights)
    values = weights * np.exp(np.concatenate(sampled.values))
    total = float(values.sum())
    places, below = _integrate(sampled, left, right, density)[2:4]
    # the peak may be a little higher than the value found
    doubt = found.upper - found.lower if opened.curve.consistent else math.inf
    missed = sum(float(rule.error[0]) for rule in rules) / total
    error = math.exp(doubt) * missed + density.noise if doubt < _CUT else math.inf
    share = values / total
    return _Integral(t, share, places, below, math.log(total), error, (left, right), heights)


# ---------------------------------------------------------------------------------------------
# The integral


def _integrate(
    log_density: Callable, left: float, right: float, density: _Density
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float, float]:
    """Nodes in t and each one's share; places and the share below each; the integral's log and its
    relative error.

    Panels widen from the peak outwards, beginning with the narrowest feature that the density can
    have, so that none is missed between nodes. A panel is accepted when its halves agree with it,
    for the density itself and for the density over r, which the variance of a point without
    neighbours needs.
    """
    peak, noise = density.peak, density.noise
    begin, end = _panels(left, peak, right, density.width)
    found_t, found_w, found_places, found_below = [], [], [], []
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
        found_places.append((0.5 * (begin + end)[:, None] + half * _STEPS)[done])
        found_below.append((half * (value @ _UP_TO.T))[done])
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
    t, w = np.concatenate(found_t), np.concatenate(found_w)
    order = np.argsort(t)
    t, w, total_w = t[order], w[order], w.sum()
    # what lies below a panel, and what of the panel lies below each step of it
    places, inside = np.concatenate(found_places), np.concatenate(found_below)
    order = np.argsort(places[:, 0])
    places, inside = places[order], inside[order]
    panels = w.reshape(-1, len(_NODES)).sum(axis=1)
    below = ((np.cumsum(panels) - panels)[:, None] + inside) / total_w
    below = np.clip(np.maximum.accumulate(below[:, 1:].ravel()), 0.0, 1.0)
    places, below = np.append(left, places[:, 1:]), np.append(0.0, below)
    return t, w / total_w, places, below, math.log(total_w), float(missed[0] / total[0])


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
