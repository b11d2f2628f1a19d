"""Upper bounds on the best evidence of a k, in the order of their price.

log|L_k + r I| is at most what a stand-in for the spectrum of L_k gives (docs/theory):

- identity: every eigenvalue is the mean degree. Needs q_k and the number of edges, for k beyond the
  ranked ones only bounds on both;
- diagonal: the eigenvalues are the degrees (Hadamard's inequality);
- local: two Lanczos steps from each vertex. With T_i the 2 x 2 matrix of the steps from vertex i,
  Gauss's quadrature bounds (log(L + r I))_ii by (log(T_i + r I))_11, because even derivatives of
  the logarithm are negative. One step is the diagonal bound;
- anchor: any A = L_a + r_a I inverted bounds every k,

      log|L_k + r I| <= log|A| + n log((rho_k + r tr A^-1) / n),

  with rho_k the resistances of A summed over the edges of graph k.

Each bound is then maximised over r and sigma0, as the evidence is, and includes a slack for
rounding that follows the sizes of the terms it was summed from.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ._determinants import Determinants
from ._graphs import Pairs, components, degrees
from ._jit import kernel
from ._problem import LOG_2PI, Problem
from ._start import spectrum_nodes
from ._tails import Tail
from ._threads import run_blocks

_ROUNDING = 1e-14  # of sums over n terms, of the sizes of the terms
_LOCAL_SHARE = 1 / 30  # of n^3: as much work as a tenth of a dense factorization


def slack(problem: Problem) -> float:
    """How far rounding may move a bound, in nats."""
    t, (low, high) = problem.targets, problem.ratio_bounds
    q = float(problem.roughness[-1])
    sizes = [math.log(high), math.log(low), math.log(2.0 * t.n), math.log(t.m * t.n), LOG_2PI]
    sizes += [math.log(q + low * t.norm), math.log(q + high * t.norm)] if t.norm else []
    return _ROUNDING * (0.5 * t.m * t.n * (1.0 + sum(map(abs, sizes))) + abs(t.constant))


# ---------------------------------------------------------------------------------------------
# Identity


def identity_bounds(problem: Problem, ks: np.ndarray) -> np.ndarray:
    """The bound of each of these k, all of them ranked."""
    return _identity(problem, problem.roughness[ks], problem.pairs.count[ks])


def tail_bounds(problem: Problem, tail: Tail, ks: np.ndarray) -> np.ndarray:
    """The bound of each of these k, beyond the ranked ones."""
    at = np.searchsorted(tail.ks, ks)  # the first grid point that is not below
    known = np.concatenate([[problem.roughness[problem.depth]], tail.roughness])
    return _identity(problem, known[at], np.asarray(tail.edges, np.float64)[at])


def _identity(problem: Problem, q: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """At most so much roughness, spread over at most so many edges.

    (d + r) / (q + r s) is monotone in r: its maximum is at an end of the bounds.
    """
    mean = 2.0 * edges / problem.pairs.n
    return _best_of_ratios(problem, 0.0, mean, 1.0, q)


def _best_of_ratios(
    problem: Problem, logdet: float, level: np.ndarray, slope: float, q: np.ndarray
) -> np.ndarray:
    """The best evidence where log|L_k + r I| <= logdet + n log(level + r slope)."""
    t = problem.targets
    if problem.sigmas is not None:
        sigma0, ratio = problem.sigmas[0], problem.sigmas[1] / problem.sigmas[0]
        inner = logdet + t.n * (np.log(level + ratio * slope) + math.log(sigma0) - LOG_2PI)
        value = 0.5 * t.m * inner
        return value - 0.5 * sigma0 * (q + ratio * t.norm) + t.constant + slack(problem)
    low, high = problem.ratio_bounds
    steepest = np.maximum(
        (level + low * slope) / (q + low * t.norm), (level + high * slope) / (q + high * t.norm)
    )
    best = logdet + t.n * (np.log(steepest * t.m * t.n) - 1.0 - LOG_2PI)
    return 0.5 * t.m * best + t.constant + slack(problem)


# ---------------------------------------------------------------------------------------------
# Stand-ins for the spectrum


class StandIn(NamedTuple):
    """Numbers in place of eigenvalues; the weights add up to n."""

    nodes: np.ndarray
    weights: np.ndarray
    # Gauss's rule: sum of weights log(nodes + r) exceeds log|L + r I| by an integral over x, from 0
    # to the largest eigenvalue, of (x + r)^-power times something that is nowhere negative.
    power: int = 0

    def logdet(self, ratio: float) -> float:
        """What stands for log|L + ratio I|."""
        return float((self.weights * np.log(self.nodes + ratio)).sum())


def diagonal_stand_in(pairs: Pairs, k: int) -> StandIn:
    """The degrees of graph k: one Lanczos step from each vertex."""
    nodes, weights = np.unique(degrees(pairs, k), return_counts=True)
    return StandIn(nodes.astype(np.float64), weights.astype(np.float64), 2)


def local_stand_in(pairs: Pairs, k: int) -> StandIn:
    """Two Lanczos steps from each vertex of graph k."""
    return StandIn(*local_spectra(pairs, k), 4)


def local_pays(pairs: Pairs, k: int) -> bool:
    """Whether two steps from each vertex cost far less than a factorization."""
    degree = degrees(pairs, k).astype(np.float64)
    return float((degree * degree).sum()) < _LOCAL_SHARE * pairs.n**3


def stand_in_bound(problem: Problem, k: int, stand_in: StandIn) -> float:
    """The bound on graph k by a stand-in that is never below it."""
    return _peak(problem, k, stand_in)[0]


def guess_ratio(problem: Problem, k: int) -> float:
    """Where the peak of graph k should be."""
    return _peak(problem, k, _random_stand_in(problem.pairs, k))[1]


def _random_stand_in(pairs: Pairs, k: int) -> StandIn:
    return StandIn(*spectrum_nodes(pairs, k, components(pairs, k)))


def _peak(problem: Problem, k: int, stand_in: StandIn) -> tuple[float, float]:
    """The best evidence of graph k, were these its eigenvalues, and the ratio that gives it."""
    profile = problem.profile(k)
    if problem.sigmas is not None:
        sigma0, ratio = problem.sigmas[0], problem.sigmas[1] / problem.sigmas[0]
        value = profile.value_at(sigma0, ratio, stand_in.logdet(ratio))
        return value + slack(problem), ratio
    low, high = problem.ratio_bounds
    args = stand_in.nodes, stand_in.weights, profile.n, profile.roughness, profile.norm
    ratio = min(max(math.exp(_climb(*args, math.log(low), math.log(high))), low), high)
    return profile.value(ratio, stand_in.logdet(ratio)) + slack(problem), ratio


# Steps from one trial ratio to the next, and beyond the trials
_FINE, _TRIALS = 1.04, 32
_COARSE, _BEYOND = 1.3, 10


class Trial:
    """Bounds on the best evidence of graph k from one value of log|L_k + r I|.

    At the ratio r0 of the value, the stand-in is known to be too high by some e. By the integral
    that e is (`StandIn.power`), at any other r it is too high by at least

        e                       for r < r0,
        e (r0 / r)^power        for r > r0.

    So a value just above the peak lowers the bound on all of the peak by nearly e. Where exactly
    is chosen by what Lanczos's method from a random vector foretells of the value.
    """

    def __init__(self, problem: Problem, k: int) -> None:
        pairs = problem.pairs
        make = local_stand_in if local_pays(pairs, k) else diagonal_stand_in
        self._profile, self._slack = problem.profile(k), slack(problem)
        self._stand_in, self._random = make(pairs, k), _random_stand_in(pairs, k)
        self._highest, top = _peak(problem, k, self._stand_in)
        low, high = problem.ratio_bounds
        start = _peak(problem, k, self._random)[1] / _FINE
        steps = np.concatenate([np.full(_TRIALS, _FINE), np.full(_BEYOND, _COARSE)])
        ratios = start * np.cumprod(steps)
        self._ratios = np.unique(np.concatenate([ratios[(ratios > low) & (ratios < high)], [high]]))
        self._logdets = np.array([self._stand_in.logdet(r) for r in self._ratios.tolist()])
        values = [self._profile.value(r, d) for r, d in zip(self._ratios, self._logdets)]
        self._values = np.array(values) + self._slack
        self._top = int(np.searchsorted(self._ratios, top))  # the first ratio beyond the peak

    def best(self) -> tuple[int, float]:
        """The trial that promises most, and the bound that it promises."""
        ratios = self._ratios[: min(_TRIALS, len(self._ratios))]
        promised = [self.bound(at, self._random.logdet(r)) for at, r in enumerate(ratios.tolist())]
        return int(np.argmin(promised)), float(np.min(promised))

    def ratio(self, at: int) -> float:
        """The ratio of a trial."""
        return float(self._ratios[at])

    def bound(self, at: int, logdet: float) -> float:
        """The bound, if this is log|L_k + r I| at the ratio of a trial."""
        n, half = self._profile.n, 0.5 * self._profile.m
        error = max(self._logdets[at] - logdet - _ROUNDING * n * (1.0 + abs(logdet) / n), 0.0)
        # the stand-in's profile rises to its peak and falls after it
        below = self._highest if at >= self._top else float(self._values[at])
        beyond = np.where(np.arange(len(self._ratios)) < self._top, self._values, self._highest)
        beyond[self._top + 1 :] = self._values[self._top : -1]
        fading = (self._ratios[at] / self._ratios[at + 1 :]) ** self._stand_in.power
        cells = beyond[at + 1 :] - half * error * fading  # each ends at a ratio after the trial's
        return max(below - half * error, float(cells.max(initial=-math.inf)))


@kernel
def _climb(nodes, weights, n, roughness, norm, low, high):
    """The log r at which the profile of these eigenvalues peaks: where its slope changes sign."""
    left, right = low, high
    if _slope(nodes, weights, n, roughness, norm, left) <= 0.0:
        return left
    if _slope(nodes, weights, n, roughness, norm, right) >= 0.0:
        return right
    at_left, at_right, side = 0.0, 0.0, 0
    while right - left > 1e-7:  # the value is off by n/8 times its square at most
        middle = 0.5 * (left + right)
        if side > 0:
            secant = (left * at_right - right * at_left) / (at_right - at_left)
            width = right - left
            middle = min(max(secant, left + 0.01 * width), right - 0.01 * width)
            side = 0
        else:
            side = 1
        slope = _slope(nodes, weights, n, roughness, norm, middle)
        if slope > 0.0:
            left, at_left = middle, slope
        else:
            right, at_right = middle, slope
        if at_left == 0.0 or at_right == 0.0:
            side = 0
    return 0.5 * (left + right)


@kernel
def _slope(nodes, weights, n, roughness, norm, log_ratio):
    ratio = np.exp(log_ratio)
    rest = 0.0
    for c in range(nodes.shape[0]):
        rest += weights[c] * (nodes[c] / (nodes[c] + ratio))
    return n * roughness / (roughness + ratio * norm) - rest


_LOCAL_ROWS = 512


def local_spectra(pairs: Pairs, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The eigenvalues of each vertex's T_i, and the squares of their vectors' first entries."""
    edges = pairs.count[k]
    starts, ends = _adjacency(pairs.n, pairs.rows[:edges], pairs.columns[:edges])
    nodes, weights = np.empty((pairs.n, 2)), np.empty((pairs.n, 2))

    def work(start: int, stop: int) -> None:
        _two_steps(starts, ends, start, stop, nodes, weights)

    run_blocks(work, pairs.n, _LOCAL_ROWS)
    return nodes.ravel(), weights.ravel()


@kernel
def _adjacency(n, rows, columns):
    """Who is joined to whom, by starts and ends; a weight of two stands there twice."""
    starts = np.zeros(n + 1, np.int64)
    for e in range(rows.shape[0]):
        starts[rows[e] + 1] += 1
        starts[columns[e] + 1] += 1
    starts = np.cumsum(starts)
    spot = starts[:-1].copy()
    ends = np.empty(2 * rows.shape[0], np.int32)
    for e in range(rows.shape[0]):
        i, j = rows[e], columns[e]
        ends[spot[i]] = j
        spot[i] += 1
        ends[spot[j]] = i
        spot[j] += 1
    return starts, ends


@kernel
def _two_steps(starts, ends, first, last, nodes, weights):
    """T_i = [[d_i, b], [b, a]]: b^2 = sum w_ij^2, a = (sum w_ij^2 d_j - triangles) / b^2."""
    weight = np.zeros(starts.shape[0] - 1)
    for i in range(first, last):
        degree = float(starts[i + 1] - starts[i])
        for e in range(starts[i], starts[i + 1]):
            weight[ends[e]] += 1.0
        squares, far, triangles = 0.0, 0.0, 0.0
        for e in range(starts[i], starts[i + 1]):
            j = ends[e]
            squares += weight[j]
            far += weight[j] * (starts[j + 1] - starts[j])
            for f in range(starts[j], starts[j + 1]):
                triangles += weight[ends[f]]
        for e in range(starts[i], starts[i + 1]):
            weight[ends[e]] = 0.0
        if squares == 0.0:  # a vertex of its own
            nodes[i, 0], nodes[i, 1] = 0.0, 0.0
            weights[i, 0], weights[i, 1] = 1.0, 0.0
            continue
        other = (far - triangles) / squares
        half = 0.5 * (degree - other)
        root = np.sqrt(half * half + squares)
        middle = 0.5 * (degree + other)
        high = middle + root
        # the product of the eigenvalues is T's determinant, which is at least 0
        low = max((degree * other - squares) / high, 0.0)
        nodes[i, 0], nodes[i, 1] = low, high
        share = min(max((degree - low) / (high - low), 0.0), 1.0)
        weights[i, 0], weights[i, 1] = 1.0 - share, share


# ---------------------------------------------------------------------------------------------
# Anchors


def anchor_bounds(problem: Problem, opened: Determinants, ratio: float) -> np.ndarray | None:
    """A bound for each ranked k of the problem from one graph at this ratio; None if it has none.

    Where the backend does not know the resistances of a graph, its bound is infinite.
    """
    found = opened.resistance_sums(ratio)
    if found is None:
        return None
    ks, n = problem.ks[problem.ks <= problem.depth], problem.pairs.n
    level = found.logdet - n * math.log(n)
    return _best_of_ratios(problem, level, found.sums[ks], found.trace, problem.roughness[ks])
