"""Which k are out, and by what: the one place where that is decided.

Every k has an upper bound on its evidence and a highest value found. Bounds are improved in the
order of their price (`_bounds`), but only for k that are still above the floor; what is left is
enclosed by factorizations, the highest bound first. k beyond the ranked ones are bounded by one
pass over all pairs (`_tails`), and ranked only where that does not rule them out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ._bounds import (
    anchor_bounds,
    diagonal_bounds,
    foretell,
    identity_bounds,
    local_bound,
    slack,
    tail_bounds,
)
from ._enclosures import Enclosure, enclose
from ._neighbors import Ranking
from ._plan import ONE, open_graph
from ._problem import Problem, Question
from ._spectra import Triangles
from ._tails import bound_tail
from ._threads import Progress, map_chunks, run_pieces

_DEPTH = 48  # neighbours ranked at first; the bounds of `_tails` rule out most k beyond
_ALL = 256  # of so few points all are ranked at once: no pass over the pairs need be compiled
# Twice as many as at first are ranked at once too. With k_max = 200, 200 at once took 1.3 and 1.5
# times as long as no limit (letter 2,000 x 16, phoneme 2,500 x 5).
_DEEP = 96
_ROUND = 4  # k enclosed against one floor; fixed, so that no answer depends on the workers
# Of so many points, what is foretold costs less than the searches that it saves: CPU seconds
# without and with it, on a busy machine: 4,000 x 10 (two classes, ten k within 8 nats) 14.8 and
# 5.9, 34 selections of 3,000 to 6,000 points 123 and 116, 1,000 x 5 (labels of noise) 0.05 and 0.12
_POINTS = 3_000
_MANY = 16  # so many rivals of fewer points, it is asked for once the lead is known
_FEW = 9  # a dense anchor costs three factorizations or more, ruling out one k one to three
# Anchors go on if the last one ruled out a tenth of the k; a sparse one, which takes as long as
# enclosing seven k at n = 100,000 (2-D) and five at 30,000, also so many of them. With 10, 7 and 5
# in the plane, k_max = 20: n = 5,000 1.10, 1.00 and 0.86 s, 10,000 1.37, 0.83 and 0.87 s, 20,000
# 2.26, 1.90 and 1.97 s; 10,000 with k_max = 40 7.8, 8.5 and 7.5 s.
_WORTHWHILE, _SPARSE_ANCHOR = 0.1, 7
_MISS = 0.4  # for 1/4: 0.39 was seen at n = 100,000 (2-D), ten k below 55
# At its own peak an anchor bounds hardly any k by less than its own evidence; above the peak it
# does (docs/theory). Of the 19 k below 20 at n = 100,000 (2-D), none is ruled out from the peak,
# all are from 1.01 to 2.7 times its ratio; at n = 10,000 7 are. On Pima.tr 7 and 8 k (symmetric,
# mutual) are evaluated with 1.3, 9 and 35 with 1.6, 48 and 38 with 1.
# Where graphs are reduced, the first anchor is at the peak of the best k, which need not be
# foretold, and anchors go on as long as they rule any k out: 195 reductions in all instead of 274
# on 19 sets of 200 points with both graphs, 315 instead of 404 with 500.
_ABOVE = 1.3

UNKNOWN, IDENTITY, DIAGONAL, LOCAL, ENCLOSED = range(5)  # what a k's bound comes from


def first_depth(question: Question, ranking: Ranking) -> int:
    """How many neighbours to rank before anything is known."""
    ks = question.ks
    beyond = int((ks > _DEPTH).sum())
    at_once = ks[-1] <= _DEEP or ranking.n <= _ALL or ranking.points is None
    if at_once or ks[0] > _DEPTH or beyond <= _ROUND:
        return int(ks[-1])
    return _DEPTH


class Standing:
    """What is known of each k of a problem."""

    def __init__(self, problem: Problem, executor: object, progress: Progress) -> None:
        self.problem, self.executor, self.progress = problem, executor, progress
        self.lower = np.full(len(problem.ks), -np.inf)
        self.upper = np.full(len(problem.ks), np.inf)
        self.level = np.full(len(problem.ks), UNKNOWN)
        self.enclosed: dict[int, Enclosure] = {}
        self.anchored: set[int] = set()
        self.consistent = True  # no value was found above a bound
        self._anchors_pay = True
        self._percent = -1
        self._told: dict[int, tuple[float, float]] = {}
        # a reduction is as cheap as what could be foretold
        self.foretells = problem.sigmas is None and not problem.plan.reduces(problem.values())
        self._triangles = Triangles(problem.pairs)
        self._rank()

    # -----------------------------------------------------------------------------------------
    # Bounds

    def lead(self) -> int:
        """Position of the most promising ranked k: the highest bound, each as good as it comes."""
        ranked = np.flatnonzero(self.problem.ks <= self.problem.depth)
        while True:
            at = int(ranked[np.argmax(self.upper[ranked])])
            if self.level[at] >= LOCAL:
                return at
            if self.level[at] == DIAGONAL:
                self._bound_locally(np.array([at]))
                continue
            loose = ranked[self.level[ranked] == IDENTITY]
            highest = np.argsort(-self.upper[loose], kind="stable")[:_MANY]
            self._bound_by_degrees(np.sort(loose[highest]))

    def improve(self, floor: float) -> None:
        """Bound every k above the floor as well as the cheap bounds can, ranking where needed."""
        self._reach(floor)
        self._tighten(floor)

    def _reach(self, floor: float) -> None:
        """Rank as many neighbours as the k above the floor need."""
        self._bound_tail(floor)
        rivals = self.rivals(floor)
        beyond = rivals[self.level[rivals] == UNKNOWN]
        if len(beyond):
            depth = int(self.problem.ks[beyond[-1]])
            self.progress.say(f"ranking {depth} neighbours")
            self.problem = self.problem.deepened(depth)
            self._triangles = Triangles(self.problem.pairs)
            self._rank()

    def _tighten(self, floor: float) -> None:
        """Bound the ranked k above the floor by their degrees, then locally."""
        rivals = self.rivals(floor)
        self._bound_by_degrees(rivals[self.level[rivals] == IDENTITY])
        rivals = self.rivals(floor)
        self._bound_locally(rivals[self.level[rivals] == DIAGONAL])

    def rivals(self, floor: float) -> np.ndarray:
        """Positions of the k that may be above the floor and are not enclosed yet."""
        return np.flatnonzero((self.upper > floor) & (self.level < ENCLOSED))

    def first(self) -> int:
        """Position of the k to enclose first.

        Of many points, the one of which most is foretold, among those whose bounds are above what
        is foretold of the k with the highest bound.
        """
        lead = self.lead()
        if not self.foretells or self.problem.pairs.n < _POINTS:
            return lead
        told = self._foretell(self.problem.ks[[lead]])[0][0]
        self.improve(told)
        rivals = self.rivals(told)
        return self.favourite(rivals) if len(rivals) > 1 else lead

    def favourite(self, rivals: np.ndarray) -> int:
        """Position of the rival of which most is foretold: on a grid, then around the best on it.

        Bounds are lowest, compared with what they bound, at the k that have most edges. By them
        alone the race came from k = 48 to 52 in four searches (n = 100,000 in the plane, where the
        best k is near 60); what is foretold is off by a few nats.
        """

        self.foretells = False  # once is enough

        def best_of(some: Sequence[int]) -> int:
            told = self._foretell(self.problem.ks[rivals[list(some)]])
            return some[int(np.argmax([value for value, _ in told]))]

        step = max(1, len(rivals) // 8)
        best = best_of(range(0, len(rivals), step))
        while step > 1:
            step //= 2
            best = best_of((best, max(best - step, 0), min(best + step, len(rivals) - 1)))
        return int(rivals[best])

    def _foretell(self, ks: np.ndarray) -> list[tuple[float, float]]:
        """The best evidence of each of these k as it should turn out, and its ratio."""

        def work(k: int) -> None:
            self._told[k] = foretell(self.problem, k, self._triangles.known(k))

        self._bound_each(work, sorted(set(ks.tolist()) - set(self._told)))
        return [self._told[k] for k in ks.tolist()]

    def _bound_each(self, work: Callable[[int], None], pieces: Sequence[int]) -> None:
        run_pieces(work, pieces, None if self.problem.plan.bounds_side_by_side else 1)

    def _rank(self) -> None:
        """Bound the k whose graphs have come to hand."""
        problem = self.problem
        new = np.flatnonzero((problem.ks <= problem.depth) & (self.level == UNKNOWN))
        self.upper[new] = np.minimum(self.upper[new], identity_bounds(problem, problem.ks[new]))
        self.level[new] = IDENTITY

    def _bound_tail(self, floor: float) -> None:
        """Bound the k beyond the ranked ones, if nothing is known of them yet."""
        beyond = np.flatnonzero(np.isinf(self.upper) & (self.upper > 0))
        if not len(beyond) or floor == -math.inf:
            return
        problem, ranking = self.problem, self.problem.ranking
        assert ranking is not None and ranking.points is not None  # the lists given end here
        tail = bound_tail(
            ranking.points,
            ranking.name,
            problem.pairs.graph,
            problem.targets,
            problem.depth,
            self._say_rows,
        )
        self.upper[beyond] = tail_bounds(problem, tail, problem.ks[beyond])

    def _say_rows(self, done: int, total: int) -> None:
        percent = 5 * (20 * done // total)
        if percent != self._percent:  # a bar takes longer to draw than some rows to do
            self._percent = percent
            self.progress.say(f"ruling out by one pass over all pairs: {percent}%")

    def _bound_by_degrees(self, positions: np.ndarray) -> None:
        if not len(positions):
            return
        bounds, pays = diagonal_bounds(self.problem, self.problem.ks[positions])
        self.upper[positions] = np.minimum(self.upper[positions], bounds)
        self.level[positions] = np.where(pays, DIAGONAL, LOCAL)

    def _bound_locally(self, positions: np.ndarray) -> None:
        if not len(positions):
            return
        ks = self.problem.ks[positions].tolist()
        bounds = np.empty(len(ks))

        def work(one: int) -> None:
            bounds[one] = local_bound(self.problem, ks[one], self._triangles.of(ks[one]))

        self._bound_each(work, range(len(ks)))
        self.upper[positions] = np.minimum(self.upper[positions], bounds)
        self.level[positions] = LOCAL

    # -----------------------------------------------------------------------------------------
    # Factorizations

    def enclose(self, positions: np.ndarray, floor: float) -> None:
        """Enclose these k, as far as they are above the floor."""
        problem = self.problem
        ks = problem.ks[positions]
        found = map_chunks(
            _enclose_above,
            (problem.for_workers(), floor),
            [(k, self._triangles.known(k), self._peak_beside(k)) for k in ks.tolist()],
            executor=self.executor,
            progress=self.progress,
            threads=problem.plan.side_by_side(ks, problem.values()),
        )
        for at, one in zip(positions.tolist(), found, strict=True):
            self.note(at, one)

    def _peak_beside(self, k: int) -> float | None:
        """The best ratio of the nearest k that has been searched to its end."""
        known = [one for one in self.enclosed.values() if one.settled]
        if not known:
            return None
        return min(known, key=lambda one: (abs(one.k - k), one.k)).optimum.ratio

    def note(self, at: int, one: Enclosure) -> None:
        """Take in what is known of one k."""
        if one.lower > self.upper[at] + slack(self.problem):
            self.consistent = False
        self.enclosed[at] = one
        self.lower[at] = one.lower
        self.settle(at, one.upper)
        self.upper[at] = max(self.upper[at], one.lower)

    def settle(self, at: int, upper: float = math.inf) -> None:
        """Ask no more of a k, of which this bound may have been found."""
        self.level[at] = ENCLOSED
        self.upper[at] = min(self.upper[at], upper)

    def anchor(self, floor: float) -> bool:
        """Bound all k from one of them, where that pays; say whether anything was tried."""
        rivals = self.rivals(floor)
        if not self._anchors_pay or not len(rivals):
            return False
        problem = self.problem
        ks = problem.ks[rivals]
        # resistances of a sparse graph bound the k below it, those of a dense one all
        dense = problem.plan.dense(int(ks[-1]))
        if len(rivals) < (_FEW if dense else _SPARSE_ANCHOR):
            return False
        one = int(np.argmax(self.upper[rivals])) if dense else self._sparse_anchor(ks, floor)
        if one is None:
            return False
        by_peak = problem.plan.reduces(problem.values()) and self.best in self.enclosed
        at = int(rivals[one])
        if dense and by_peak and self.best not in self.anchored:
            at = self.best  # see _ABOVE
            ratio = self.enclosed[at].optimum.ratio
        elif problem.sigmas is not None:
            ratio = problem.ratio
        else:
            ratio = _ABOVE * self._foretell(problem.ks[[at]])[0][1]
        ratio = min(max(ratio, problem.ratio_bounds[0]), problem.ratio_bounds[1])
        opened = open_graph(problem.pairs, int(problem.ks[at]), problem.plan, ONE)
        bounds = anchor_bounds(problem, opened, ratio)
        if bounds is None:
            self._anchors_pay = False
            return False
        self.anchored.add(at)
        ranked = np.flatnonzero(problem.ks <= problem.depth)
        self.upper[ranked] = np.maximum(np.minimum(self.upper[ranked], bounds), self.lower[ranked])
        out = len(rivals) - len(self.rivals(floor))
        enough = 0.0 if by_peak else _WORTHWHILE * len(rivals)
        self._anchors_pay = out >= max(enough, 1 if dense else _SPARSE_ANCHOR)
        return True

    def _sparse_anchor(self, ks: np.ndarray, floor: float) -> int | None:
        """Which of these rivals, as an anchor, should rule out most; None if that is too few.

        An anchor's bound on a k below it is too high by m/4 of what the squares of the resistances
        of the edges between them add up to, if those are near 2 / (mean degree) and no edge knows
        of another; and by something for what they know.
        """
        pairs = self.problem.pairs
        self._foretell(ks[:: max(1, len(ks) // 8)])
        known = sorted(self._told)
        told = np.interp(ks, known, [self._told[k][0] for k in known])
        edges = np.maximum(pairs.count[ks].astype(np.float64), 1.0)  # given lists may make none
        between = np.maximum(edges[:, None] - edges, 0.0)
        error = _MISS * self.problem.targets.m * between * (pairs.n / edges[:, None]) ** 2
        out = np.tril(told + error < floor).sum(axis=1)
        best = int(np.argmax(out))
        return best if out[best] >= _SPARSE_ANCHOR else None

    # -----------------------------------------------------------------------------------------
    # What is proven, once the best k has been enclosed

    @property
    def best(self) -> int:
        """Position of the highest value found, the smallest k among equals."""
        return int(np.argmax(self.lower))

    @property
    def margin(self) -> float:
        """The highest value found, less the highest upper bound of any other k.

        0 for a draw: another k was found as exactly as promised, and differs by less than that.
        """
        best, others = self.lower[self.best], self.upper.copy()
        for at, one in self.enclosed.items():
            if one.settled:
                others[at] = min(others[at], best)
        others[self.best] = -np.inf
        return float(best - others.max())

    @property
    def certified(self) -> bool:
        """Whether no other k can be better, by a margin that was computed."""
        return self.consistent and self.enclosed[self.best].settled and self.margin >= 0.0

    @property
    def evaluated(self) -> np.ndarray:
        """The k of which any determinant was computed."""
        return self.problem.ks[np.array(sorted(self.anchored | set(self.enclosed)), np.int64)]


def _enclose_above(
    shared: tuple[Problem, float], graph: tuple[int, np.ndarray | None, float | None]
) -> Enclosure:
    problem, floor = shared
    k, triangles, start = graph
    return enclose(problem, k, floor, triangles, start)


def find_best(problem: Problem, executor: object, progress: Progress) -> Standing:
    """Race all k of a problem until one is proven to be the best."""
    standing = Standing(problem, executor, progress)
    progress.say("ruling out")
    standing.enclose(np.array([standing.first()]), -math.inf)
    while True:
        floor = float(standing.lower.max())
        standing.improve(floor)
        rivals = standing.rivals(floor)
        progress.say(f"k left: {len(rivals)}")
        if not len(rivals):
            return standing
        if standing.foretells and len(rivals) > _MANY:
            standing.enclose(np.array([standing.favourite(rivals)]), floor)
            continue
        if standing.anchor(floor):
            continue
        highest = np.argsort(-standing.upper[rivals], kind="stable")[:_ROUND]
        standing.enclose(rivals[highest], floor)
