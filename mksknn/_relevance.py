"""A weight for each column: a search by evidence, from columns found by leave-one-out.

The search asks for the evidence of hundreds of graphs. The squared distances are kept, and a change
of one column is an update; of each graph only the lists of one k are made; and its determinant is
bounded by the degrees and the edges (docs/theory). By how much the bound exceeds the value hardly
changes from one graph to the next, so that it foretells the gain to a nat or two, and only what
promises to gain is factorized.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ._dense import Cholesky
from ._distances import Space
from ._graphs import Pairs, pairs_by_rank
from ._jit import kernel
from ._names import Graph
from ._neighbors import Neighbors
from ._order import select_rows
from ._problem import RATIO_BOUNDS, Profile
from ._targets import Targets
from ._threads import Progress

PASSES = 3  # over the columns
_SETTLE = 4  # changes of weights after which k and the ratio are looked for again
_LEAST, _LARGEST = 0.125, 8.0  # weights other than 0
# Of a set of columns to begin with, each must be worth this, in nats of leave-one-out log score. On
# the set tae with ten columns of noise, five folds, 2 nats gave an error of .444 and 1 nat .411.
_COLUMN = 1.0
_PATIENCE = 3  # columns that are not worth it in a row, and then no more are added
_SMALL = 12  # the largest k of that score


def relevances(
    features: np.ndarray, judge: Judge, bar: Progress, few: bool = True
) -> tuple[np.ndarray, State]:
    """Weights of the columns: each in turn doubled, halved, dropped or put back to one."""
    features = np.asfortranarray(features)
    used = (features != features[0]).any(axis=0)
    weights = used.astype(float)
    if few:
        weights = _few_columns(features, weights, judge)
    squares = squared(features * weights)
    state = judge.best(squares)
    # To say which column got which of four changes takes this many nats.
    margin = math.log(4.0 * max(1, int(used.sum())))
    steps = PASSES * len(used)
    for _ in range(PASSES):
        accepted = 0
        for c in np.flatnonzero(used):
            bar.update()
            steps -= 1
            levels = _changes(weights[c], bool((np.delete(weights, c) > 0.0).any()))
            moved = judge.first_gain(squares, features, weights, int(c), levels, state, margin)
            if moved is None:
                continue
            weights[c], squares, state = moved
            accepted += 1
            if accepted % _SETTLE == 0:
                state = judge.best(squares, state)
        if not accepted:
            break
        state = judge.best(squares, state)
    bar.update(steps)  # what was not necessary
    # a factor common to all changes no neighbour: the (lower) median of those in use becomes 1
    return weights / np.quantile(weights[weights > 0.0], 0.5, method="lower"), state


def _few_columns(features: np.ndarray, weights: np.ndarray, judge: Judge) -> np.ndarray:
    """The columns to begin with: all, or some that predict better by leave-one-out.

    Of many columns of noise, to drop one gains little and to drop all gains much. So columns are
    added, from none, in two orders: first those that are missed most when they alone are dropped,
    which finds columns that matter only together; and always the one next that gains most, which
    finds columns that nothing can be seen of among noise.
    """
    used = np.flatnonzero(weights).tolist()
    full = squared(features * weights)
    missed = {c: -judge.log_score(full, features[:, c], -1.0) for c in used}
    best = judge.log_score(full), used
    for gains in (missed, None):
        sets = _grow(features, judge, used, gains)
        score, kept = max(sets, key=lambda one: one[0] - _COLUMN * len(one[1]))
        # to say which columns they are takes so many nats
        score -= math.log(4 * math.comb(len(used), len(kept)))
        if score > best[0]:
            best = score, kept
    chosen = np.zeros_like(weights)
    chosen[best[1]] = 1.0
    return chosen


def _grow(
    features: np.ndarray, judge: Judge, used: list[int], gains: dict[int, float] | None
) -> Iterator[tuple[float, list[int]]]:
    """Sets of columns, one more each time, and their log scores.

    The next column is that of the highest gain. If gains are not given, they are found, until the
    highest is too little: what a column gains mostly falls as others are there, so they are looked
    at again from the highest down until the highest is one that holds for the set as it is.
    """
    squares, score = np.zeros((judge.n, judge.n)), 0.0
    greedy, kept = gains is None, list[int]()
    left = dict.fromkeys(used, math.inf) if gains is None else dict(gains)
    top, since = -math.inf, 0
    while left and since < _PATIENCE:
        fresh: set[int] = set()
        while (c := max(left, key=left.__getitem__)) not in fresh:
            now = judge.log_score(squares, features[:, c], 1.0)
            left[c] = now - score if greedy else math.inf
            fresh.add(c)
        score = score + left[c] if greedy else now
        del left[c]
        kept = [*kept, c]
        yield score, kept
        _add_squares(squares, features[:, c])
        if greedy:
            worth = score - _COLUMN * len(kept)
            top, since = (worth, 0) if worth > top else (top, since + 1)
            if len(kept) == 1:  # what one is worth alone says little of what it adds
                left = dict.fromkeys(left, math.inf)


def _changes(weight: float, others: bool) -> list[float]:
    """What a weight may become; the last column in use is not dropped."""
    wanted = [2.0 * weight, 0.5 * weight, 1.0, *([0.0] if others else [])]
    fits = [w for w in wanted if w == 0.0 or _LEAST <= w <= _LARGEST]
    return [w for w in dict.fromkeys(fits) if w != weight]


def squared(points: np.ndarray) -> np.ndarray:
    """Squared distances between all points, which add up over columns as distances do not."""
    points = np.ascontiguousarray(points)
    return np.square(Space(points, "euclidean").distances(points))


# k and ratios at which graphs are judged. The evidence is smooth in both: the steps are about a
# fifth in k and half a decade in the ratio. Ratios below .01 say that labels have no noise at all;
# there the evidence grows with every edge between classes that is lost.
_KS = np.array(
    [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 24, 29, 35, 42, 50, 60, 72, 86, 103, 124, 149, 179]
)
RATIOS = 10.0 ** np.arange(-2.0, 2.75, 0.5)


_DEEP = 11  # steps of k that a climb from nowhere looks at first
_DEEPER = 2  # steps of k that are ranked beyond the one asked for

_FADED = 3.0  # nats below the peak, beside which a cell is left out of averages


@dataclass(frozen=True)
class State:
    """An evidence of a metric on the grid, where it is, and what the bound said there."""

    value: float
    bound: float
    at: tuple[int, int]

    @property
    def slack(self) -> float:
        """By how much the bound exceeds the value; that of a graph much like it differs little."""
        return self.bound - self.value

    @property
    def doubt(self) -> float:
        """How far off a value may be that is foretold by taking the slack off a bound.

        With one weight changed, the slack changed by at most 1.1 nats of 13 (wine), 1.7 of 5
        (heart), 1.1 of 6 (pima) and 78 of 749 (penbased).
        """
        return 2.0 + self.slack / 8.0


class Judge:
    """The evidence of graphs given by squared distances, on a grid of k and ratios."""

    def __init__(self, targets: Targets, graph: Graph, k_max: int) -> None:
        self.targets, self.graph = targets, graph
        self.ks, self.k_max = _KS[_KS <= k_max], k_max
        self.n = targets.n

    def best(self, squares: np.ndarray, near: State | None = None) -> State:
        """The highest evidence on the grid, or the peak that is uphill from a state's cell."""
        states = Grid(self, squares).climb(near, 0.0)
        return max(states, key=lambda state: state.value)

    def log_total(self, squares: np.ndarray, near: State) -> float:
        """The log of the mean over k and log r of what sigma0 leaves, from the cells at the peak.

        Posterior's `log_total` on a grid, for ratios that are on it.
        """
        width = np.diff(np.concatenate([[0.0], 0.5 * (_KS[1:] + _KS[:-1] - 1), [_KS[-1]]]))
        low, high = RATIO_BOUNDS
        cell = math.log(RATIOS[1] / RATIOS[0]) / math.log(high / low)
        logs = [
            state.value + math.log(width[state.at[0]] * cell / self.k_max)
            for state in Grid(self, squares).climb(near, _FADED)
        ]
        return float(np.logaddexp.reduce(logs)) + self.targets.sigma0_integral

    def first_gain(
        self,
        squares: np.ndarray,
        features: np.ndarray,
        weights: np.ndarray,
        column: int,
        levels: Sequence[float],
        state: State,
        margin: float,
    ) -> tuple[float, np.ndarray, State] | None:
        """Which new weight of one column gains more than the margin, and what it leads to.

        Judged at the k and the ratio of the state, where the bound of the updated distances says
        what a change promises. What promises is computed, the most promising first, and from
        distances of its own: what an update leaves of rounding would decide between points that
        are equally far.
        """
        a, b = state.at
        away, k, ratio = features[:, column], int(self.ks[a]), RATIOS[b : b + 1]
        steps = [level**2 - weights[column] ** 2 for level in levels]
        bounds = [self.bounds(self.rank(squares, k, away, step), a, ratio)[1] for step in steps]
        promise = np.concatenate(bounds) - state.slack
        least = state.value + margin
        for s in np.argsort(-promise, kind="stable").tolist():
            if promise[s] + state.doubt < least:
                return None
            changed = weights.copy()
            changed[column] = levels[s]
            moved = squared(features * changed)
            found = Grid(self, moved, deeper=0).state(*state.at)
            if found.value > least:
                return levels[s], moved, found
        return None

    def log_score(
        self, squares: np.ndarray, column: np.ndarray | None = None, step: float = 0.0
    ) -> float:
        """The leave-one-out log score after a change of a column's squares, for small k."""
        pairs = self.rank(squares, min(_SMALL, self.k_max), column, step)
        return self.score(self.left_out(pairs, np.arange(self.n), True))

    def left_out(self, pairs: Pairs, rows: np.ndarray, both: bool) -> np.ndarray:
        """Sums over some points that make up their leave-one-out log score, on the grid.

        For classes those of log((V + r/J) / (w + r)), for values those of log(w + r) and of
        |e + r y|^2 / (w + r) (docs/theory).
        """
        t = self.targets
        ks = self.ks[self.ks <= pairs.k_max]
        sums = np.empty((2, len(ks), len(RATIOS)))
        _sum_left_out(
            *(pairs.rows, pairs.columns, pairs.count[ks], both),
            *(t.codes, t.values, t.n_classes, rows, RATIOS, sums),
        )
        return sums

    def score(self, sums: np.ndarray) -> float:
        """The log score that such sums over all points make up, averaged over the grid."""
        t = self.targets
        logs = sums[0]
        if t.regression:
            half = 0.5 * t.m * t.n
            logs = 0.5 * t.m * logs - half * np.log(np.maximum(sums[1], np.finfo(float).tiny))
        return float(np.logaddexp.reduce(logs, axis=None))

    def rank(
        self, squares: np.ndarray, k: int, column: np.ndarray | None = None, step: float = 0.0
    ) -> Pairs:
        """The graphs up to k, after `step` times the squares of a column are added."""
        lists, away = np.empty((self.n, k), np.int32), np.empty((self.n, k))
        if column is None:
            select_rows(squares, 0, lists, away)
        else:
            _select_moved(squares, column, step, lists, away)
        return pairs_by_rank(Neighbors(lists, away), self.graph)

    def bounds(
        self, pairs: Pairs, a: int, ratios: np.ndarray = RATIOS
    ) -> tuple[Profile, np.ndarray]:
        """Upper bounds of the evidence at a k of the grid and some ratios."""
        t, k = self.targets, int(self.ks[a])
        profile = Profile.of(t, float(t.roughness(pairs)[k]))
        return profile, profile.values(ratios, bound_logdets(pairs, k, ratios))


_NONE = np.empty(0, np.int32), np.empty(0, np.int32), np.zeros(1, np.int64)  # no pairs


class Grid:
    """The evidence of one metric on the grid, each part of it made when it is asked for."""

    def __init__(self, judge: Judge, squares: np.ndarray, deeper: int = _DEEPER) -> None:
        self.judge, self.squares, self.deeper = judge, squares, deeper
        self.pairs = Pairs(judge.graph, judge.n, *_NONE)
        self.rows: dict[int, tuple[Profile, np.ndarray]] = {}
        self.known: dict[tuple[int, int], State] = {}

    def bounds(self, a: int) -> tuple[Profile, np.ndarray]:
        """What the judge says of a k."""
        if a not in self.rows:
            ks = self.judge.ks
            if self.pairs.k_max < ks[a]:
                deepest = min(a + self.deeper, len(ks) - 1)
                self.pairs = self.judge.rank(self.squares, int(ks[deepest]))
            self.rows[a] = self.judge.bounds(self.pairs, a)
        return self.rows[a]

    def state(self, a: int, b: int) -> State:
        """The evidence of a cell."""
        if (a, b) not in self.known:
            profile, bounds = self.bounds(a)
            ratio = float(RATIOS[b])
            logdet = Cholesky(self.pairs, int(self.judge.ks[a])).logdet(ratio)
            self.known[a, b] = State(profile.value(ratio, logdet), float(bounds[b]), (a, b))
        return self.known[a, b]

    def climb(self, near: State | None, faded: float) -> list[State]:
        """From a cell uphill, all ways; every cell that was computed.

        Cells are passed over if, going by the bound, they are below the present one by `faded`.
        Without a cell to start from, the highest bound of those with a small k is one.
        """
        if near is None:
            rows = range(min(_DEEP, len(self.judge.ks)))[::-1]
            highest = {a: self.bounds(a)[1].max() for a in rows}
            a = max(rows, key=lambda a: highest[a])
            here = a, int(np.argmax(self.bounds(a)[1]))
        else:
            here = near.at
        while True:
            state, higher = self.state(*here), None
            least = state.value - faded
            for step in ((1, 0), (-1, 0), (0, 1), (0, -1)):
                a, b = here[0] + step[0], here[1] + step[1]
                if not (0 <= a < len(self.judge.ks) and 0 <= b < len(RATIOS)):
                    continue
                bound = self.bounds(a)[1][b]
                if bound > least and bound - state.slack + state.doubt > least:
                    if self.state(a, b).value > state.value:
                        higher = a, b
                        break
            if higher is None:
                return list(self.known.values())
            here = higher


def bound_logdets(pairs: Pairs, k: int, ratios: np.ndarray) -> np.ndarray:
    """At least log|L_k + r I|: sum_i log(d_i + r) - tr B^2 / 2, for every ratio.

    B is the matrix of weights divided by the roots of d_i + r on both sides. Between the diagonal
    and the local bound of `_bounds` in price and height: one pass over the edges, where that of two
    steps takes the square of the degrees.
    """
    out = np.empty(len(ratios))
    edges = pairs.count[k]
    seen = np.zeros((pairs.n, pairs.n), np.bool_)
    _bound_logdets(pairs.rows[:edges], pairs.columns[:edges], ratios, seen, out)
    return out


@kernel
def _bound_logdets(rows, columns, ratios, seen, out):
    n = seen.shape[0]
    degree = np.zeros(n)
    inverse = np.empty(n)
    for e in range(rows.shape[0]):
        i, j = rows[e], columns[e]
        seen[i, j] = True
        degree[i] += 1.0
        degree[j] += 1.0
    for b in range(ratios.shape[0]):
        total = 0.0
        for i in range(n):
            total += math.log(degree[i] + ratios[b])
            inverse[i] = 1.0 / (degree[i] + ratios[b])
        for e in range(rows.shape[0]):
            i, j = rows[e], columns[e]
            # a pair of weight two is met from both ends, so that its square, four, comes out
            total -= (2.0 if seen[j, i] else 1.0) * inverse[i] * inverse[j]
        out[b] = total


@kernel
def _add_squares(squares, column):
    """Add those of the differences in a column."""
    for i in range(squares.shape[0]):
        for j in range(squares.shape[1]):
            off = column[i] - column[j]
            squares[i, j] += off * off


@kernel
def _select_moved(squares, column, step, indices, distances):
    """The nearest of each point after `step` times the squares of a column are added."""
    n = squares.shape[0]
    row = np.empty((1, n))
    for i in range(n):
        for j in range(n):
            off = column[i] - column[j]
            row[0, j] = squares[i, j] + step * (off * off)
        select_rows(row, i, indices[i : i + 1], distances[i : i + 1])


@kernel
def _sum_left_out(rows, columns, ends, both, codes, values, J, judged, ratios, sums):
    """Votes of the own class, or differences to the neighbours, and their sums after each k."""
    n = codes.shape[0] if J > 0 else values.shape[0]
    m = 1 if J > 0 else values.shape[1]
    weight = np.zeros(n)
    own = np.zeros((n, m))
    done = 0
    for a in range(ends.shape[0]):
        for e in range(done, ends[a]):
            i, j = rows[e], columns[e]
            weight[i] += 1.0
            weight[j] += 1.0 if both else 0.0
            for c in range(m):
                if J > 0:
                    step = 1.0 if codes[i] == codes[j] else 0.0
                else:
                    step = values[i, c] - values[j, c]
                own[i, c] += step
                if both:
                    own[j, c] += step if J > 0 else -step
        done = ends[a]
        for b in range(ratios.shape[0]):
            r = ratios[b]
            logs, squares, product = 0.0, 0.0, 1.0
            for s in range(judged.shape[0]):
                i = judged[s]
                rise = weight[i] + r
                if J > 0:
                    product *= (own[i, 0] + r / J) / rise
                else:
                    product *= rise
                    for c in range(m):
                        squares += (own[i, c] + r * values[i, c]) ** 2 / rise
                if s % 16 == 15:  # a logarithm costs as much as several products
                    logs += math.log(product)
                    product = 1.0
            sums[0, a, b] = logs + math.log(product)
            sums[1, a, b] = squares
