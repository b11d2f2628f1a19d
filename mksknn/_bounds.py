"""The best k by bounds on the evidence of the others, without evaluating every k.

One anchor, a graph a with a ratio r_a inverted once, bounds the best evidence of every other k
over all sigma0 and sigma2 (docs/theory): with A = L_a + r_a I, T = tr A^-1 and rho_k the
resistances of A summed over the edges of graph k,

    log|L_k + r I| <= log|A| + n log((rho_k + r T) / n).

Dense graphs: evaluate an anchor, bound every k, go on where the bound is highest, and stop when no
bound reaches the best value found. Sparse graphs: a race, in which a few values of log|L_k + r I|
bound the peak of k itself.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from ._evidence import (
    Optimum,
    Problem,
    Profile,
    evaluate,
    evaluate_chunk,
    evaluate_opened,
    sparse_chunks,
)
from ._graphs import resistance_sums
from ._logdet import (
    Anchor,
    Cholmod,
    Dense,
    Opener,
    SuperLU,
    open_graph,
    sparse_price,
    surely_dense,
)
from ._threads import map_chunks, progress_bar

_FEW = 8  # as many k as the search usually evaluates: then evaluate them all
# At its own peak an anchor bounds hardly any k by less than its own evidence; above the peak it
# does (docs/theory). Of the 19 k below 20 at n = 100,000 (2-D), none is ruled out from the peak,
# all are from 1.01 to 2.7 times its ratio; at n = 10,000 7 are.
_ABOVE = 1.3
_WORTHWHILE = 0.75  # sparse anchors go on if the last one left no more of the k below it


def bounds_pay(problem: Problem) -> bool:
    """Whether a search by bounds costs less than evaluating every k."""
    if problem.backend not in ("auto", "lapack") or len(problem.ks) <= _FEW:
        return False
    k_max = int(problem.ks[-1])
    if problem.backend == "lapack" or surely_dense(problem.pairs, k_max):
        return True
    # an anchor is n^3 multiplications; a sparse k takes 3 factorizations, the average k a third of
    # what the largest takes
    return _FEW * problem.pairs.n**3 < len(problem.ks) * sparse_price(problem.pairs, k_max)


_VISITS = 6  # anchors at one k; Newton's method needs 1 to 4


class Search:
    """What is known of each k while the bounds close in."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        # A k that brings no pair in has the graph of the k before it; the smaller of equals wins.
        counts = problem.pairs.count[problem.ks]
        distinct = np.diff(counts, prepend=-1) > 0
        self.upper = np.where(distinct, np.inf, -np.inf)  # of the best evidence of each k
        self.lower = np.full(len(problem.ks), -np.inf)
        self.next_ratio: dict[int, float] = {}  # of each k anchored: where its peak should be
        self._visits = np.zeros(len(problem.ks), np.int64)

    def anchor(self, at: int) -> None:
        """Invert L + r I of one graph; learn its evidence, and a bound for every k."""
        problem = self.problem
        k = int(problem.ks[at])
        profile, ratio = problem.profile(k), self._ratio(at)
        anchor = open_graph(problem.pairs, k, many=False, backend="lapack").anchor(ratio)
        if problem.sigmas is None:
            value = profile.value(ratio, anchor.logdet)
            self.next_ratio[at] = _newton(profile, ratio, anchor, *problem.ratio_bounds)
        else:
            value = profile.value_at(problem.sigmas[0], ratio, anchor.logdet)
            self.next_ratio[at] = ratio
        self.lower[at] = max(self.lower[at], value)
        self.upper = np.minimum(self.upper, upper_bounds(problem, anchor))
        self._visits[at] += 1
        if self._visits[at] == _VISITS:  # Newton's method is in trouble: the search is not
            self.lower[at] = self.upper[at] = evaluate(problem, k).log_evidence

    def note(self, at: int, lower: float, upper: float) -> None:
        """Take in what is known of one k."""
        self.lower[at] = max(self.lower[at], lower)
        self.upper[at] = max(min(self.upper[at], upper), self.lower[at])

    def hopeful(self, at: int | slice) -> np.ndarray:
        """Whether these k can still beat the best."""
        best = self.lower.max()
        return self.upper[at] > (best + _tolerance(best) if best > -np.inf else best)

    def next(self) -> int | None:
        """Where to go on, None when no k can beat the best one found."""
        best = int(np.argmax(self.lower))
        others = self.upper.copy()
        others[best] = -np.inf
        rival = int(np.argmax(others))
        if others[rival] == -np.inf or not self.hopeful(rival):
            return None
        excess = others[rival] - self.lower[best]
        # raise the floor instead, where that promises more
        return best if self.upper[best] - self.lower[best] > excess else rival

    def finalists(self) -> np.ndarray:
        """Every k that the bounds cannot tell from the best."""
        best = self.lower.max()
        return np.flatnonzero(self.upper >= best - _tolerance(best))

    def _ratio(self, at: int) -> float:
        """The ratio to anchor at: the k's own, or that of the nearest k anchored so far."""
        if self.problem.sigmas is not None:
            return self.problem.sigmas[1] / self.problem.sigmas[0]
        if at in self.next_ratio:
            return self.next_ratio[at]
        if not self.next_ratio:
            return _first_ratio(self.problem, int(self.problem.ks[at]))
        ks = self.problem.ks
        near = min(self.next_ratio, key=lambda done: abs(math.log(ks[done] / ks[at])))
        return self.next_ratio[near]


def upper_bounds(problem: Problem, anchor: Anchor) -> np.ndarray:
    """A bound for each k on its evidence at the best (or the given) sigma0 and sigma2."""
    rho = resistance_sums(problem.pairs, anchor.inverse, anchor.label, anchor.gap)
    return _bounds_of_sums(problem, anchor.logdet, anchor.trace, rho[problem.ks], problem.ks)


def sparse_upper_bounds(problem: Problem, opened: Cholmod, k: int, ratio: float) -> np.ndarray:
    """The same from an anchor whose graph is sparse: for the k below the anchor's only.

    Resistances come from selected inversion, which knows the edges of the anchor's own graph.
    """
    logdet, trace, resistance = opened.resistances(ratio)
    rho = np.concatenate([[0.0], np.cumsum(resistance)])[problem.pairs.count[: k + 1]]
    below = problem.ks[problem.ks <= k]
    out = np.full(len(problem.ks), np.inf)
    out[: len(below)] = _bounds_of_sums(problem, logdet, trace, rho[below], below)
    return out


def _bounds_of_sums(
    problem: Problem, logdet: float, trace: float, rho: np.ndarray, ks: np.ndarray
) -> np.ndarray:
    t, q = problem.targets, problem.roughness[ks]
    if problem.sigmas is not None:
        sigma0, ratio = problem.sigmas[0], problem.sigmas[1] / problem.sigmas[0]
        logdet = logdet + t.n * np.log((rho + ratio * trace) / t.n)
        value = 0.5 * t.m * (t.n * math.log(sigma0) + logdet - t.n * math.log(2.0 * math.pi))
        return value - 0.5 * sigma0 * (q + ratio * t.norm) + t.constant
    # (rho + r T) / (q + r s) is monotone in r: its maximum is at an end of the bounds
    low, high = problem.ratio_bounds
    steepest = np.maximum(
        (rho + low * trace) / (q + low * t.norm),
        (rho + high * trace) / (q + high * t.norm),
    )
    best = logdet + t.n * (np.log(steepest * t.m) - 1.0 - math.log(2.0 * math.pi))
    return 0.5 * t.m * best + t.constant


def _tolerance(value: float) -> float:
    """How far rounding may move a bound: values closer than this count as equal."""
    return 1e-11 * abs(value) + 1e-9


def _first_ratio(problem: Problem, k: int) -> float:
    """A ratio to begin with: q/s, the mean eigenvalue that the targets see."""
    low, high = problem.ratio_bounds
    guess = problem.roughness[k] / problem.targets.norm
    return min(max(guess, low), high)


def _newton(profile: Profile, ratio: float, anchor: Anchor, low: float, high: float) -> float:
    """The ratio that Newton's method in log r goes to next, by steps of at most a factor of 30."""
    q, s, n = profile.roughness, profile.norm, profile.n
    share = ratio * s / (q + ratio * s)
    slope = ratio * anchor.trace - n * share
    curve = slope - ratio**2 * _inverse_square(anchor, ratio) + n * share * share
    step = -slope / curve if curve < 0 else math.copysign(1.0, slope)
    step = min(max(step, -math.log(30.0)), math.log(30.0))
    return min(max(ratio * math.exp(step), low), high)


def _inverse_square(anchor: Anchor, ratio: float) -> float:
    """tr A^-2, from the lower triangle of the lifted inverse."""
    entries = anchor.inverse.ravel()  # zeros above the diagonal
    # not by `@`: NumPy's BLAS has threads of its own, which would get in the way of SciPy's
    squares = float(np.einsum("i,i->", entries, entries))
    lifted = 2.0 * squares - float((anchor.inverse.diagonal() ** 2).sum())
    return lifted + len(anchor.gap) * (1.0 / ratio**2 - anchor.null**2)


def first_anchor(problem: Problem) -> int:
    """Position of the first k to anchor: the least rough graph for its size."""
    ks = problem.ks
    return int(np.argmin(problem.roughness[ks] / problem.pairs.count[ks]))


def select_by_bounds(problem: Problem, progress: bool) -> tuple[int, Optimum, np.ndarray]:
    """The best k, its optimum, and every k that was evaluated."""
    search = Search(problem)
    with progress_bar(None, progress) as tick:
        at = first_anchor(problem)
        while at is not None:
            search.anchor(at)
            tick()
            at = search.next()
        return _choose(problem, search, list(search.next_ratio), {})


def _choose(
    problem: Problem, search: Search, known: list[int], runners: dict[int, _Runner]
) -> tuple[int, Optimum, np.ndarray]:
    """The best of the k that the bounds cannot tell apart, each evaluated from nothing: so the
    answer is the same to the last bit whichever way k was found.
    """
    finalists = search.finalists()
    found = [
        runners[at].conclude() if at in runners else evaluate(problem, int(problem.ks[at]))
        for at in finalists.tolist()
    ]
    winner = int(np.argmax([one.log_evidence for one in found]))
    evaluated = np.union1d(problem.ks[known], problem.ks[finalists])
    return int(problem.ks[finalists[winner]]), found[winner], evaluated


def all_dense(problem: Problem) -> bool:
    """Whether every k goes to LAPACK."""
    if problem.backend == "auto":
        return surely_dense(problem.pairs, int(problem.ks[0]))
    return problem.backend == "lapack"


class _Runner:
    """One k of a race: what is known of its evidence, and the means to know more."""

    def __init__(self, problem: Problem, k: int, opener: Opener, start: float | None) -> None:
        self._problem, self._k, self._profile = problem, k, problem.profile(k)
        self._climb = None
        self._as_alone = start is None  # all that was done so far, `evaluate` would do first
        self.opened, self._reopen = opener.open(k)
        if isinstance(self.opened, Cholmod):  # its order need not be looked for again
            order = self.opened.order
            self._open_alone = functools.partial(Cholmod, problem.pairs, k, order)
        else:
            self._open_alone = self._reopen
        if problem.sigmas is not None or isinstance(self.opened, Dense):
            self.optimum = evaluate_opened(problem, k, self.opened, start)
            self.lower = self.upper = self.optimum.log_evidence
            return
        self._climb = self.opened.climb(
            self._profile.norm, self._profile.roughness, *problem.ratio_bounds, start
        )
        self._run(rough=True)

    @property
    def estimate(self) -> float:
        """The best ratio, as far as one can tell."""
        if self._climb is None:
            return self.optimum.sigma2 / self.optimum.sigma0
        return self._climb.estimate

    def release(self) -> None:
        """Let go of the factorization."""
        self.opened = None

    def finish(self, floor: float = -math.inf) -> None:
        """Find the peak, unless it turns out to be no higher than `floor`."""
        if self.lower < self.upper:
            if self.opened is None:
                self.opened, self._as_alone = self._reopen(), False
            self._run(floor=self._profile.height(floor))

    def conclude(self) -> Optimum:
        """What `evaluate` returns for this k, to the last bit."""
        if self._climb is None or not self._as_alone:
            return evaluate(self._problem, self._k)
        self.opened = self._open_alone()
        self._run()
        return self.optimum

    def _run(self, **until) -> None:
        climb, profile = self._climb, self._profile
        climb.run(self.opened.logdet, **until)
        self.optimum = profile.optimum(climb.ratio, climb.logdet, self._problem.ratio_bounds)
        self.lower = self.optimum.log_evidence
        self.upper = max(profile.evidence(climb.upper), self.lower)


def select_by_race(problem: Problem, progress: bool) -> tuple[int, Optimum, np.ndarray]:
    """As `select_by_bounds`, on graphs too sparse for a full inverse.

    About three factorizations enclose the evidence of a k, so every k has those and only the ones
    that are still in the running have their peak found. Before that, selected inversion (as long as
    two to four factorizations) of the largest graph bounds the k below it, and may rule out most.
    """
    search = Search(problem)
    opener = Opener(problem.pairs, problem.sigmas is None, problem.backend)
    runners: dict[int, _Runner] = {}
    anchors_pay, start = True, None
    with progress_bar(None, progress) as tick:
        for at in np.flatnonzero(search.upper > 0)[::-1].tolist():
            if not search.hopeful(at):
                continue
            k = int(problem.ks[at])
            runner = runners[at] = _Runner(problem, k, opener, start)
            search.note(at, runner.lower, runner.upper)
            rivals = search.hopeful(slice(0, at)).sum()
            if anchors_pay and rivals > _FEW:
                above = _ABOVE if problem.sigmas is None else 1.0
                bounds = _bounds_below(problem, runner.opened, k, above * runner.estimate)
                search.upper[:at] = np.minimum(search.upper[:at], bounds[:at])
                anchors_pay = search.hopeful(slice(0, at)).sum() <= _WORTHWHILE * rivals
            start = runner.estimate
            runner.release()
            tick()
        while (at := search.next()) is not None:
            best = search.lower.max()
            runners[at].finish(best + _tolerance(best) if search.lower[at] < best else -math.inf)
            runners[at].release()
            search.note(at, runners[at].lower, runners[at].upper)
            tick()
        known = [at for at, runner in runners.items() if runner.lower == runner.upper]
        return _choose(problem, search, known, runners)


def race_on(executor: object, problem: Problem, progress: bool) -> tuple[int, Optimum, np.ndarray]:
    """`select_by_race` with an executor: every k is enclosed, wherever there is a worker."""
    search = Search(problem)
    for at, one in enumerate(enclose_all(problem, executor, progress)):
        search.note(at, one.lower, one.upper)
    rivals = search.finalists()
    if len(rivals) > 1:
        alone = [problem.ks[at : at + 1] for at in rivals]
        peaks = map_chunks(evaluate_chunk, problem, alone, executor=executor, progress=progress)
        for at, (peak,) in zip(rivals.tolist(), peaks, strict=True):
            search.lower[at] = search.upper[at] = peak.log_evidence
    return _choose(problem, search, rivals.tolist(), {})


@dataclass(frozen=True)
class Enclosure:
    """Bounds on the best evidence of one k, and a ratio near the best."""

    lower: float
    upper: float
    ratio: float


def enclose_all(problem: Problem, executor: object, progress: bool) -> list[Enclosure]:
    """Enclose the best evidence of every k; on sparse graphs, at half the cost of finding it."""
    chunks = sparse_chunks(problem.ks)
    found = map_chunks(_enclose_chunk, problem, chunks, executor=executor, progress=progress)
    return [one for chunk in found for one in chunk]


def _enclose_chunk(problem: Problem, ks: np.ndarray) -> list[Enclosure]:
    opener = Opener(problem.pairs, problem.sigmas is None, problem.backend)
    found, start = [], None
    for k in ks[::-1].tolist():
        runner = _Runner(problem, k, opener, start)
        found.append(Enclosure(runner.lower, runner.upper, runner.estimate))
        start = runner.estimate
    return found[::-1]


def _bounds_below(
    problem: Problem, opened: Dense | Cholmod | SuperLU, k: int, ratio: float
) -> np.ndarray:
    """Bounds from an anchor on a graph that is open; none from SuperLU, or for want of memory."""
    if isinstance(opened, Dense):
        return upper_bounds(problem, opened.anchor(ratio))
    if isinstance(opened, Cholmod) and opened.inverse_fits():
        return sparse_upper_bounds(problem, opened, k, ratio)
    return np.full(len(problem.ks), np.inf)
