"""Upper bounds on the best evidence of a k, in the order of their price.

log|L_k + r I| is at most what each of these gives (docs/theory):

- identity: every eigenvalue is the mean degree. Needs q_k and the number of edges, for k beyond the
  ranked ones only bounds on both;
- diagonal and local: stand-ins for the spectrum, see `_spectra`;
- trial: such a stand-in, and one value of log|L_k + r I|;
- anchor: any A = L_a + r_a I inverted bounds every k,

      log|L_k + r I| <= log|A| + n log((rho_k + r tr A^-1) / n),

  with rho_k the resistances of A summed over the edges of graph k.

Each bound is then maximised over r and sigma0, as the evidence is, and includes a slack for
rounding that follows the sizes of the terms it was summed from.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from ._determinants import Determinants
from ._graphs import growing_degrees
from ._jit import kernel
from ._problem import LOG_2PI, Problem, Profile
from ._search import climb
from ._spectra import (
    Foretold,
    StandIn,
    diagonal_stand_in,
    local_pays,
    local_stand_in,
)
from ._tails import Tail

_ROUNDING = 1e-14  # of sums over n terms, of the sizes of the terms


def slack(problem: Problem) -> float:
    """How far rounding may move a bound, in nats."""
    t, (low, high) = problem.targets, problem.ratio_bounds
    q = float(problem.roughness[-1])
    if problem.sigmas is not None:
        sigma0, sigma2 = problem.sigmas
        sizes = [math.log(sigma0), math.log(sigma2), math.log(2.0 * t.n), LOG_2PI]
        terms = 0.5 * t.m * t.n * (1.0 + sum(map(abs, sizes))) + abs(t.constant)
        return _ROUNDING * (terms + 0.5 * (sigma0 * q + sigma2 * t.norm))
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
    profile = Profile.of(problem.targets, q)
    if problem.sigmas is not None:
        logdets = logdet + profile.n * np.log(level + problem.ratio * slope)
        value = profile.value_at(problem.sigmas[0], problem.ratio, logdets)
        return value + slack(problem)
    ends = [(level + r * slope) / (q + r * profile.norm) for r in problem.ratio_bounds]
    return profile.evidence(logdet + profile.n * np.log(np.maximum(*ends))) + slack(problem)


# ---------------------------------------------------------------------------------------------
# Stand-ins for the spectrum


def diagonal_bounds(problem: Problem, ks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The bounds of rising k by their degrees, and whether the next better bound pays."""
    bounds, pays = np.empty(len(ks)), np.empty(len(ks), np.bool_)
    for at, degree in enumerate(growing_degrees(problem.pairs, ks)):
        bounds[at] = _peak(problem, int(ks[at]), diagonal_stand_in(degree))[0]
        pays[at] = local_pays(degree)
    return bounds, pays


def local_bound(problem: Problem, k: int, triangles: np.ndarray | None = None) -> float:
    """The bound of graph k by two Lanczos steps from each vertex."""
    return _peak(problem, k, local_stand_in(problem.pairs, k, triangles))[0]


def foretell(problem: Problem, k: int, triangles: np.ndarray | None = None) -> tuple[float, float]:
    """What the best evidence of graph k should be, and at which ratio."""
    return _foretold_peak(problem, k, Foretold(problem.pairs, k, triangles))


def guess_ratio(problem: Problem, k: int, triangles: np.ndarray | None = None) -> float:
    """Where the peak of graph k should be."""
    return foretell(problem, k, triangles)[1]


_AROUND = np.exp(np.linspace(-2.0, 2.0, 81))


def _foretold_peak(problem: Problem, k: int, foretold: Foretold) -> tuple[float, float]:
    """The best evidence and its ratio, were the determinants those foretold."""
    low, high = problem.ratio_bounds
    profile, start = problem.profile(k), _peak(problem, k, foretold.random)[1]
    if problem.sigmas is not None:
        logdet = float(foretold.logdets(np.array([start]))[0])
        return profile.value_at(problem.sigmas[0], start, logdet), start
    ratios = np.clip(start * _AROUND, low, high)
    values = profile.values(ratios, foretold.logdets(ratios))
    best = int(np.argmax(values))
    return float(values[best]), float(ratios[best])


def _peak(problem: Problem, k: int, stand_in: StandIn) -> tuple[float, float]:
    """The best evidence of graph k, were these its eigenvalues, and the ratio that gives it."""
    profile = problem.profile(k)
    if problem.sigmas is not None:
        ratio = problem.ratio
        value = profile.value_at(problem.sigmas[0], ratio, stand_in.logdet(ratio))
        return value + slack(problem), ratio
    args = stand_in.nodes, stand_in.weights, profile.n, profile.roughness, profile.norm
    # at 1e-7 from the peak the value is off by n/8 times its square at most
    ratio = climb(functools.partial(_slope, *args), problem.ratio_bounds, 1e-7)
    return profile.value(ratio, stand_in.logdet(ratio)) + slack(problem), ratio


# The ratios of trials, for one at the peak that is foretold. Far beyond it the error has hardly
# changed if all eigenvalues but the zeros are large, as in many dimensions.
_PLACES = np.concatenate(
    [1.01 ** np.arange(-24.0, 0.0, 2.0), 1.01 ** np.arange(24.0), 1.26 * 1.1 ** np.arange(20.0)]
)
_PLACES = np.append(_PLACES, _PLACES[-1] * 1.5 ** np.arange(1.0, 14.0))
_COARSE = 3  # of two ratios to try, the other is looked for among a third of them


class Trials:
    """Bounds on the best evidence of graph k from one or two values of log|L_k + r I|.

    At the ratio r0 of a value, the stand-in is known to be too high by some e. At any other r it is
    too high by at least

        e                       for r < r0,
        e (r0 / r)^fall         for r > r0, with `StandIn.fall` at r.

    So a value just above the peak lowers the bound on all of the peak by nearly e. Where exactly
    values are taken is chosen by what is foretold of them.
    """

    def __init__(self, problem: Problem, k: int, triangles: np.ndarray | None = None) -> None:
        self._profile, self._foretold = problem.profile(k), Foretold(problem.pairs, k, triangles)
        self._stand_in = self._foretold.stand_in
        low, high = problem.ratio_bounds
        ratios = _foretold_peak(problem, k, self._foretold)[1] * _PLACES
        self.ratios = np.unique(np.concatenate([ratios[(ratios > low) & (ratios < high)], [high]]))
        self._logdets = self._stand_in.logdets(self.ratios)
        values = self._profile.values(self.ratios, self._logdets)
        # Cells of r, each up to one of the ratios. The stand-in's profile rises to its peak and
        # falls after it, so its highest value in a cell is at an end, or the peak itself.
        highest, peak = _peak(problem, k, self._stand_in)
        top = int(np.searchsorted(self.ratios, peak))
        self._cells = values + slack(problem)
        self._cells[top + 1 :] = self._cells[top:-1].copy()
        self._cells[top] = highest
        self._errors = np.zeros(len(self.ratios))  # of the stand-in in each cell, at least
        fall = self._stand_in.fall(self.ratios)
        self._fading = np.minimum(self.ratios[:, None] / self.ratios, 1.0) ** fall
        self._logdets_told, self._off = self._foretold.logdets(self.ratios), 0.0

    @property
    def bound(self) -> float:
        """What the evidence cannot exceed, from the values taken in so far."""
        return float(self._bounds(self._errors))

    def next(self, floor: float) -> float | None:
        """The ratio to try next, if up to three more values promise a bound below the floor."""
        errors = self._errors_by(slice(None), self._logdets_told + self._off)
        errors = np.maximum(errors, self._errors)
        if self._bounds(errors.max(axis=0)) > floor:  # not even by values at all of the ratios
            return None
        one = self._bounds(errors)
        if one.min() <= floor:
            return float(self.ratios[np.argmin(one)])
        two = self._bounds(np.maximum(errors[::_COARSE, None], errors))
        first, second = np.unravel_index(np.argmin(two), two.shape)
        both = np.maximum(errors[_COARSE * first], errors[second])
        three = self._bounds(np.maximum(both, errors))
        return float(self.ratios[second]) if min(two.min(), three.min()) <= floor else None

    def add(self, ratio: float, logdet: float) -> None:
        """Take in the value at a ratio that was next."""
        at = int(np.searchsorted(self.ratios, ratio))
        self._errors = np.maximum(self._errors, self._errors_by(at, logdet))
        self._off = logdet - self._logdets_told[at]  # by about as much elsewhere

    def _errors_by(self, at: int | slice, logdet: float | np.ndarray) -> np.ndarray:
        """The least error in each cell, if this is log|L_k + r I| at one of the ratios; or for each
        of several by itself.
        """
        rounding = _ROUNDING * (self._profile.n + np.abs(logdet))
        error = np.maximum(self._logdets[at] - logdet - rounding, 0.0)
        return error[..., None] * self._fading[at]

    def _bounds(self, errors: np.ndarray) -> np.ndarray:
        return (self._cells - 0.5 * self._profile.m * errors).max(axis=-1)


@kernel
def _slope(nodes, weights, n, roughness, norm, log_ratio):
    """Of the profile, in the one of two forms that keeps its digits: the weights add up to n."""
    ratio = np.exp(log_ratio)
    share = ratio * norm / (roughness + ratio * norm)
    total = 0.0
    if share <= 0.5:
        for c in range(nodes.shape[0]):
            total += weights[c] * (ratio / (nodes[c] + ratio))
        return total - n * share
    for c in range(nodes.shape[0]):
        total += weights[c] * (nodes[c] / (nodes[c] + ratio))
    return n * roughness / (roughness + ratio * norm) - total


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
