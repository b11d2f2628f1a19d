"""Which distance? Linear maps, compared by the evidence of what they make of the targets.

A distance is one more part of the model, so the evidence compares distances as it compares k:

- "scale": every column divided by its standard deviation, taken robustly;
- "whiten": times a root of the inverse covariance; "within": of the covariance within classes, or
  within slices of the values of a regression. Both are shrunk towards their diagonal;
- "relevance": a weight for each column, doubled, halved or dropped one at a time while that gains;
- relevances followed by whitening (which keeps of them only what is not used), and whitening
  within classes followed by relevances along its axes, which still belong to a column each.

All but the first two learn from the targets, so that their evidence is too high. What they gain
when learned on one half of the points and judged on the other says whether to believe them.

The search for relevances asks for the evidence of hundreds of graphs. The squared distances are
kept, and a change of one column is an update; of each graph only the lists of one k are made; and
its determinant is bounded by the degrees and the edges (docs/theory). By how much the bound
exceeds the value hardly changes from one graph to the next, so that it foretells the gain to a nat
or two, and only what promises to gain is factorized.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ._jit import kernel
from ._lapack import cholesky
from ._metrics import Metric, check_table, column_names
from ._posterior import posterior
from ._problem import EVIDENCE_GRAPHS, RATIO_BOUNDS, Profile
from ._targets import Targets, encode
from ._threads import one_thread_each, progress_bar, run_blocks
from ._validation import GRAPHS, check_flag, check_k_max, check_points, one_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

FAMILIES = ("scale", "whiten", "within", "relevance")
CRITERIA = ("evidence", "loo_log")

# Points that are learned from, at most: the search costs the square of their number, and the
# factorizations its cube. More of them, drawn at random, say little more about a column.
_MOST = 1000
# Values further from the median than this many times the median distance from it (of those that
# differ from it) are pulled in before the standard deviation is taken: 6.7 standard deviations of
# a normal distribution, so that only what lies far off is touched.
_FAR = 10.0
_SHRINKAGE = (0.1, 0.5, 0.9)  # towards the diagonal; chosen by the evidence
_LEAST_WITHIN = 0.01  # of a column's variance, at least, is taken to be within classes
_SLICES = 8  # of the values of a regression
_PASSES = 3  # over the columns
_SETTLE = 4  # changes of weights after which k and the ratio are looked for again
_NEAR = 3  # steps of the grid within which they are looked for
_DROP = 1.0  # share of the margin that dropping a column must gain
_LEAST, _LARGEST = 0.125, 8.0  # weights other than 0
# A family wins only if it gains this when learned on one half and judged on the other, both ways
# round. On nine KEEL sets, 5 folds, the families chosen by evidence had a mean error of .1336 and
# up to .020 more than "scale" on a set; with this condition .1280 and up to .004.
_CONFIRMED = 2.0
_FEWEST = 30  # points, below which halves say nothing and only "scale" and "whiten" can win


def learn_metric(
    X: ArrayLike,
    y: ArrayLike,
    *,
    families: Sequence[str] = FAMILIES,
    criterion: str = "evidence",
    graph: str = "symmetric",
    task: str = "auto",
    k_max: int | None = None,
    progress: bool = False,
) -> Metric:
    """Learn which distance between the points suits the targets.

    Parameters
    ----------
    X : array_like, shape (n, d)
        The points; of a data frame, the names of the columns are remembered.
    y : array_like, shape (n,) or (n, outputs)
        Float values (regression), or class labels of any sortable type.
    families : sequence of str
        What to compare, of "scale" (standardised columns, always among them), "whiten" (whitened),
        "within" (whitened within classes, or within eight slices of the values of a regression)
        and "relevance" (a weight for each column). "relevance" together with another one gives
        "relevance+whiten", "relevance+within" and "within+relevance" too.
    criterion : str
        What decides between the families: "evidence", or the leave-one-out log score, "loo_log".
        The relevances themselves are always searched by evidence.
    graph : str
        "symmetric" or "mutual"; by "loo_log" "knn" too, whose relevances are searched on the
        symmetric graph.
    task : str
        "regression", "classification", or "auto" to go by the type of `y`.
    k_max : int, optional
        The largest k, by default n - 1.
    progress : bool
        Show a tqdm progress bar.

    Returns
    -------
    Metric
        Its ``relevance`` is a number for each column, ``compared`` what each family got, and
        ``transform`` maps points. Pass it as ``metric=`` to :func:`select_k`, :func:`posterior`
        and the others.

    See Also
    --------
    select_k, posterior : Compare given metrics, by ``metric=[...]``.

    Notes
    -----
    The targets are used to learn the distance, so that the evidence in `compared` is optimistic for
    all but "scale" and "whiten": on labels that are noise, "within" gains a little and the search
    for relevances finds something in any large table. Two things keep that in bounds. A change of
    a weight must gain log(4 d) nats, which is what it takes to say which of d columns got which of
    four changes. And a family can only win if it also gains 2 nats over "scale" when it is
    learned on one half of the points and judged on the other, both ways round (`held_out`). What
    wins is then learned from all points, and the evidence that is reported is not corrected.

    At most 1,000 points are learned from, drawn at random with a fixed seed. The answer is the same
    every time, whatever the number of threads.

    Examples
    --------
    >>> import numpy as np
    >>> import mksknn
    >>> X = np.random.default_rng(0).normal(size=(150, 4))
    >>> y = X[:, 0] * X[:, 1] > 0  # the other two columns are noise
    >>> metric = mksknn.learn_metric(X, y)
    >>> metric.name, metric.relevance.tolist()
    ('relevance', [1.0, 1.0, 0.0, 0.0])
    >>> mksknn.select_k(metric.transform(X), y).k
    4
    """
    one_of(criterion, CRITERIA, "criterion")
    one_of(graph, EVIDENCE_GRAPHS if criterion == "evidence" else GRAPHS, "graph")
    asked = _check_families(families)
    progress = check_flag(progress, "progress")
    check_table(X)
    points = check_points(X)
    n = len(points)
    targets = encode(y, n, task, "auto", True)
    largest = check_k_max(k_max, n)
    if targets.norm == 0.0:
        raise ValueError("y must vary: all its values are equal, and no distance explains that")
    center, scale = _spread(points)
    if not scale.any():
        raise ValueError("X must vary: each of its columns has one value only")
    chosen = _sample(n)
    standard = (points[chosen] - center) * scale
    learned = _Data(standard, _subset(targets, chosen), graph == "mutual", largest)
    with one_thread_each(), progress_bar(None, progress) as tick:
        maps = _learn_maps(learned, asked, tick)
        held_out = _judge_by_halves(learned, asked, list(maps), tick)
        if criterion == "evidence":
            compared = {name: learned.log_total(one) for name, one in maps.items()}
        else:
            options = {"weights": criterion, "graph": graph, "k_max": learned.judge.k_max}
            compared = {
                name: posterior(standard @ one, learned.labels, **options).log_total
                for name, one in maps.items()
            }
    winner = max(
        (name for name in maps if name == "scale" or held_out[name] >= _CONFIRMED),
        key=compared.get,
    )
    return Metric(
        name=winner,
        matrix=scale[:, None] * maps[winner],
        relevance=np.sqrt((maps[winner] ** 2).sum(axis=1)) * (scale > 0.0),
        compared=compared,
        center=center,
        columns=column_names(X),
        held_out=held_out,
        criterion=criterion,
    )


def _check_families(families: object) -> tuple[str, ...]:
    if isinstance(families, str) or not isinstance(families, Sequence) or not len(families):
        raise TypeError(
            f"families must be a sequence of names out of {', '.join(map(repr, FAMILIES))}; "
            f"got {families!r}"
        )
    return tuple(one_of(name, FAMILIES, "families") for name in families)


def _sample(n: int) -> np.ndarray:
    """The points to learn from, rising."""
    if n <= _MOST:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).permutation(n)[:_MOST])


def _subset(targets: Targets, chosen: np.ndarray) -> Targets:
    """The targets of some points, encoded again: their mean and their classes may differ."""
    y = targets.values if targets.regression else targets.codes
    task = "regression" if targets.regression else "classification"
    return encode(y[chosen], len(chosen), task, "auto", True)


def _spread(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean of each column, and one over its standard deviation; 0 if it has one value only."""
    center = np.median(points, axis=0)
    off = points - center
    scale = np.zeros(points.shape[1])
    for c, column in enumerate(off.T):
        moved = np.abs(column[column != 0.0])
        if len(moved):
            far = _FAR * np.median(moved)
            scale[c] = 1.0 / np.clip(column, -far, far).std()
    return points.mean(axis=0), scale


# ---------------------------------------------------------------------------------------------
# Families


class _Data:
    """Standardised points and their targets, with what judges maps of them."""

    def __init__(self, points: np.ndarray, targets: Targets, mutual: bool, largest: int) -> None:
        self.points, self.targets = points, targets
        self.mutual, self.largest = mutual, largest
        self.judge = _Judge(targets, mutual, min(largest, len(points) - 1))

    def value(self, one: np.ndarray) -> float:
        """The best evidence after a map."""
        return self.judge.best(_distances(self.points @ one)).value

    def log_total(self, one: np.ndarray) -> float:
        """The evidence after a map, averaged over k and the ratio."""
        return self.judge.log_total(_distances(self.points @ one))

    @property
    def labels(self) -> np.ndarray:
        """Targets for a public function."""
        return self.targets.values if self.targets.regression else self.targets.codes

    def part(self, rows: np.ndarray) -> _Data:
        """Some of the points."""
        return _Data(self.points[rows], _subset(self.targets, rows), self.mutual, self.largest)

    @property
    def groups(self) -> np.ndarray:
        """Classes, or slices of about equally many values of a regression."""
        if not self.targets.regression:
            return self.targets.codes
        values = self.targets.values
        if values.shape[1] > 1:  # along the direction in which they vary most
            values = values @ np.linalg.svd(values, full_matrices=False)[2][0][:, None]
        slices = max(2, min(_SLICES, len(values) // 10))
        edges = np.quantile(values[:, 0], np.arange(1, slices) / slices)
        return np.searchsorted(edges, values[:, 0])


def _learn_maps(data: _Data, asked: Sequence[str], tick: Callable) -> dict[str, np.ndarray]:
    """The map of every family, on standardised columns."""
    varies = (data.points != data.points[0]).any(axis=0)
    same = np.diag(varies.astype(float))
    maps = {"scale": same}
    whitenings = [name for name in ("whiten", "within") if name in asked]
    for name in whitenings:
        maps[name] = _whitening(data, same, name)
        tick()
    if "relevance" not in asked:
        return maps
    weights = _relevances(data.points @ same, data.judge, tick)
    maps["relevance"] = np.diag(weights)
    # Whitening undoes every weight but 0, so it has something to add where columns were dropped.
    kept = np.flatnonzero(weights > 0.0)
    for name in whitenings:
        dropped = len(kept) < varies.sum()
        only = np.eye(len(weights))[:, kept]
        maps[f"relevance+{name}"] = _whitening(data, only, name) if dropped else maps[name]
        tick()
    if "within" in asked:
        along = _relevances(data.points @ maps["within"], data.judge, tick)
        maps["within+relevance"] = maps["within"] * along
    return maps


def _whitening(data: _Data, before: np.ndarray, name: str) -> np.ndarray:
    """The columns that `before` leaves, whitened; of several shrinkages the best by evidence."""
    points = data.points @ before
    off = points - points.mean(axis=0)
    total = np.maximum((off * off).mean(axis=0), np.finfo(float).tiny)
    if name == "within":
        groups = data.groups
        for group in np.unique(groups):
            off[groups == group] -= off[groups == group].mean(axis=0)
    covariance = off.T @ off / len(off)
    diagonal = np.maximum(np.diag(covariance), _LEAST_WITHIN * total)
    used = (points != points[0]).any(axis=0)
    found = []
    for shrinkage in _SHRINKAGE:
        shrunk = (1.0 - shrinkage) * covariance
        np.fill_diagonal(shrunk, (1.0 - shrinkage) * np.diag(covariance) + shrinkage * diagonal)
        root = np.zeros_like(shrunk)
        root[np.ix_(used, used)] = _inverse_root(shrunk[np.ix_(used, used)])
        found.append(before @ root)
    return max(found, key=data.value)


def _inverse_root(matrix: np.ndarray) -> np.ndarray:
    """The symmetric root: of all roots, the one whose axes stay closest to the columns."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors / np.sqrt(values)) @ vectors.T


def _judge_by_halves(
    data: _Data, asked: Sequence[str], names: Sequence[str], tick: Callable
) -> dict[str, float]:
    """What each family gains over "scale" on the half that it was not learned on, both ways."""
    gains = dict.fromkeys(names, 0.0)
    halves = _halves(data)
    if halves is None:
        return gains | {name: -math.inf for name in names if name not in ("scale", "whiten")}
    for learn, judge in (halves, halves[::-1]):
        base = judge.value(np.eye(data.points.shape[1]))
        for name, one in _learn_maps(learn, asked, tick).items():
            gains[name] += judge.value(one) - base if one.any() else -math.inf
    return gains


def _halves(data: _Data) -> tuple[_Data, _Data] | None:
    """Two halves alike in their targets; None if one of them could not be learned from."""
    n = len(data.points)
    if n < _FEWEST:
        return None
    shuffled = np.random.default_rng(0).permutation(n)
    order = shuffled[np.argsort(data.groups[shuffled], kind="stable")]
    rows = np.sort(order[::2]), np.sort(order[1::2])
    for part in rows:
        varies = data.labels
        if (varies[part] == varies[part][0]).all() or not np.ptp(data.points[part], axis=0).any():
            return None
    return data.part(rows[0]), data.part(rows[1])


# ---------------------------------------------------------------------------------------------
# Relevances


def _relevances(features: np.ndarray, judge: _Judge, tick: Callable) -> np.ndarray:
    """Weights of the columns: each in turn doubled, halved, dropped or put back to one."""
    features = np.asfortranarray(features)
    used = (features != features[0]).any(axis=0)
    weights = used.astype(float)
    # To say which column got which of four changes takes this many nats.
    margin = math.log(4.0 * max(1, int(used.sum())))
    squares = _distances(features * weights)
    state = judge.best(squares)
    for _ in range(_PASSES):
        accepted = 0
        for c in np.flatnonzero(used):
            levels = _changes(weights[c], bool((np.delete(weights, c) > 0.0).any()))
            tick()
            gain = judge.first_gain(
                squares,
                np.ascontiguousarray(features[:, c]),
                [level**2 - weights[c] ** 2 for level in levels],
                state,
                [margin if level else _DROP * margin for level in levels],
            )
            if gain is None:
                continue
            which, state = gain
            weights[c] = levels[which]
            squares = _distances(features * weights)
            accepted += 1
            if accepted % _SETTLE == 0:
                state = judge.best(squares, state)
        if not accepted:
            break
        state = judge.best(squares, state)
    # a factor common to all changes no neighbour: the (lower) median of those in use becomes 1
    return weights / np.quantile(weights[weights > 0.0], 0.5, method="lower")


def _changes(weight: float, others: bool) -> list[float]:
    """What a weight may become; the last column in use is not dropped."""
    wanted = [2.0 * weight, 0.5 * weight, 1.0, *([0.0] if others else [])]
    fits = [w for w in wanted if w == 0.0 or _LEAST <= w <= _LARGEST]
    return [w for w in dict.fromkeys(fits) if w != weight]


_BLOCK = 64  # rows ranked by one thread at a time


def _distances(points: np.ndarray) -> np.ndarray:
    """Squared distances between all points."""
    points = np.ascontiguousarray(points)
    out = np.empty((len(points), len(points)))
    run_blocks(lambda start, stop: _fill_squares(points, start, stop, out), len(points), _BLOCK)
    return out


@kernel
def _fill_squares(points, start, stop, out):
    n, d = points.shape
    for i in range(start, stop):
        for j in range(n):
            total = 0.0
            for c in range(d):
                step = points[i, c] - points[j, c]
                total += step * step
            out[i, j] = total


# k and ratios at which graphs are judged. The evidence is smooth in both: the steps are about a
# fifth in k and half a decade in the ratio. Ratios below .01 say that labels have no noise at all;
# there the evidence grows with every edge between classes that is lost.
_KS = np.array(
    [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 24, 29, 35, 42, 50, 60, 72, 86, 103, 124, 149, 179]
)
_RATIOS = 10.0 ** np.arange(-2.0, 2.75, 0.5)


_FADED = 3.0  # nats below the peak, beside which a cell is left out of averages


@dataclass(frozen=True)
class _State:
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


class _Judge:
    """The evidence of graphs given by squared distances, on a grid of k and ratios."""

    def __init__(self, targets: Targets, mutual: bool, k_max: int) -> None:
        self.targets, self.mutual = targets, mutual
        self.ks, self.k_max = _KS[_KS <= k_max], k_max
        self.n = targets.n
        self._between, self._codes, self._values = targets.between, targets.codes, targets.values

    def best(self, squares: np.ndarray, near: _State | None = None) -> _State:
        """The highest evidence on the grid, or on the part of it that is near a state."""
        return max(self._climb(squares, near, 0.0), key=lambda state: state.value)

    def log_total(self, squares: np.ndarray) -> float:
        """The log of the mean over k and log r of what sigma0 leaves, from the cells at the peak.

        Posterior's `log_total` on a grid, for ratios that are on it.
        """
        width = np.diff(np.concatenate([[0.0], 0.5 * (_KS[1:] + _KS[:-1] - 1), [_KS[-1]]]))
        low, high = RATIO_BOUNDS
        cell = math.log(_RATIOS[1] / _RATIOS[0]) / math.log(high / low)
        logs = [
            state.value + math.log(width[state.at[0]] * cell / self.k_max)
            for state in self._climb(squares, None, _FADED)
        ]
        half = 0.5 * self.targets.m * self.n
        integral = math.lgamma(half) - half * math.log(half) + half
        return float(np.logaddexp.reduce(logs)) + integral

    def _climb(self, squares: np.ndarray, near: _State | None, faded: float) -> list[_State]:
        """From the highest bound uphill, all ways; every cell that was computed.

        Cells are passed over if, going by the bound, they are below the present one by `faded`.
        """
        rows, columns = np.arange(len(self.ks)), np.arange(len(_RATIOS))
        if near is not None:
            rows = rows[abs(rows - near.at[0]) <= _NEAR]
            columns = columns[abs(columns - near.at[1]) <= _NEAR]
        lists = self._rank(squares, np.zeros(self.n), 0.0, int(self.ks[rows[-1]]))
        profiles, bounds = self._bounds(lists, rows, columns)
        known: dict[tuple[int, int], _State] = {}

        def look(a: int, b: int) -> _State:
            if (a, b) not in known:
                at = int(rows[a]), int(columns[b])
                value = self._exact(lists, at, profiles[a])
                known[a, b] = _State(value, float(bounds[a, b]), at)
            return known[a, b]

        here = tuple(int(i) for i in np.unravel_index(np.argmax(bounds), bounds.shape))
        while True:
            state, higher = look(*here), None
            for step in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, -1), (1, -1), (-1, 1)):
                to = here[0] + step[0], here[1] + step[1]
                if not (0 <= to[0] < len(rows) and 0 <= to[1] < len(columns)):
                    continue
                least = state.value - faded
                if bounds[to] > least and bounds[to] - state.slack + state.doubt > least:
                    if look(*to).value > state.value:
                        higher = to
                        break
            if higher is None:
                return list(known.values())
            here = higher

    def first_gain(
        self,
        squares: np.ndarray,
        column: np.ndarray,
        steps: Sequence[float],
        state: _State,
        margins: Sequence[float],
    ) -> tuple[int, _State] | None:
        """Which change of one column's weight gains more than its margin, and what it leads to.

        `steps` are the differences of the squared weights. Judged at the k and the ratio of the
        state, where the bound says what a change promises; what promises is factorized, the most
        promising first.
        """
        a, b = state.at
        found: list = [None] * len(steps)

        def look(start: int, stop: int) -> None:
            for s in range(start, stop):
                lists = np.empty((self.n, int(self.ks[a])), np.int32)
                _rank_moved(squares, column, steps[s], 0, self.n, lists)
                profiles, bounds = self._bounds(lists, np.array([a]), np.array([b]))
                found[s] = lists, profiles[0], float(bounds[0, 0])

        run_blocks(look, len(steps), 1)
        promise = [bound - state.slack - margins[s] for s, (_, _, bound) in enumerate(found)]
        for s in np.argsort(-np.array(promise), kind="stable").tolist():
            if promise[s] + state.doubt < state.value:
                return None
            lists, profile, bound = found[s]
            value = self._exact(lists, state.at, profile)
            if value > state.value + margins[s]:
                return s, _State(value, bound, state.at)
        return None

    def _rank(self, squares: np.ndarray, column: np.ndarray, step: float, k: int) -> np.ndarray:
        """Lists of the k nearest after a change of one column."""
        lists = np.empty((self.n, k), np.int32)
        run_blocks(
            lambda start, stop: _rank_moved(squares, column, step, start, stop, lists),
            self.n,
            _BLOCK,
        )
        return lists

    def _bounds(
        self, lists: np.ndarray, rows: np.ndarray, columns: np.ndarray
    ) -> tuple[list[Profile], np.ndarray]:
        """Upper bounds of the evidence at some k and ratios of the grid."""
        logdets, rough = np.empty((len(rows), len(columns))), np.empty(len(rows))
        _bound_logdets(
            lists,
            self.ks[rows],
            self.mutual,
            _RATIOS[columns],
            self._codes,
            self._values,
            self._between,
            np.zeros((self.n, self.n), np.bool_),
            logdets,
            rough,
        )
        t = self.targets
        profiles = [Profile(t.n, t.m, t.norm, t.constant, q) for q in rough.tolist()]
        values = [
            [profile.value(float(_RATIOS[b]), logdets[a, c]) for c, b in enumerate(columns)]
            for a, profile in enumerate(profiles)
        ]
        return profiles, np.array(values)

    def _exact(self, lists: np.ndarray, at: tuple[int, int], profile: Profile) -> float:
        ratio = float(_RATIOS[at[1]])
        marks = np.zeros((self.n, self.n), np.bool_)
        matrix = np.empty((self.n, self.n))
        _fill_precision(lists, int(self.ks[at[0]]), self.mutual, ratio, marks, matrix)
        cholesky(matrix)
        return profile.value(ratio, 2.0 * float(np.log(np.diagonal(matrix)).sum()))


@kernel
def _rank_moved(squares, column, step, start, stop, lists):
    """The nearest of each row, by (distance, index), after `step` times a column's squares."""
    n, k = squares.shape[0], lists.shape[1]
    away = np.empty(k)
    for i in range(start, stop):
        size = 0
        last = np.inf
        for j in range(n):
            gap = column[i] - column[j]
            d = squares[i, j] + step * gap * gap
            if j == i or not (size < k or d < last):
                continue
            p = size if size < k else k - 1
            while p > 0 and away[p - 1] > d:
                away[p] = away[p - 1]
                lists[i, p] = lists[i, p - 1]
                p -= 1
            away[p] = d
            lists[i, p] = j
            if size < k:
                size += 1
            if size == k:
                last = away[k - 1]


@kernel
def _bound_logdets(lists, ks, mutual, ratios, codes, values, between, marks, logdets, rough):
    """Of growing graphs: sum_i log(d_i + r) - tr B^2 / 2, at least log|L + r I|; and tr(Y' L Y).

    `marks` says who is in whose list, and is all False before.
    """
    n = lists.shape[0]
    degree = np.zeros(n)
    inverse = np.empty(n)
    q = 0.0
    done = 0
    for a in range(ks.shape[0]):
        k = ks[a]
        for c in range(done, k):
            for i in range(n):
                marks[i, lists[i, c]] = True
            for i in range(n):
                j = lists[i, c]
                if mutual:
                    # of two that list each other at this very rank, the second completes the pair
                    if not marks[j, i] or (j > i and lists[j, c] == i):
                        continue
                degree[i] += 1.0
                degree[j] += 1.0
                if codes.shape[0]:
                    q += between * (codes[i] != codes[j])
                else:
                    for o in range(values.shape[1]):
                        step = values[i, o] - values[j, o]
                        q += step * step
        done = k
        rough[a] = q
        for b in range(ratios.shape[0]):
            total = 0.0
            for i in range(n):
                total += math.log(degree[i] + ratios[b])
                inverse[i] = 1.0 / (degree[i] + ratios[b])
            for i in range(n):
                squares = 0.0
                for c in range(k):
                    j = lists[i, c]
                    if marks[j, i]:  # the pair is met from both ends
                        squares += (0.5 if mutual else 2.0) * inverse[j]
                    elif not mutual:
                        squares += inverse[j]
                total -= squares * inverse[i]
            logdets[a, b] = total


@kernel
def _fill_precision(lists, k, mutual, ratio, marks, out):
    """The lower triangle of L + r I."""
    n = lists.shape[0]
    for i in range(n):
        out[i, :i] = 0.0
        out[i, i] = ratio
        for c in range(k):
            marks[i, lists[i, c]] = True
    for i in range(n):
        for c in range(k):
            j = lists[i, c]
            if mutual and not (marks[j, i] and j < i):
                continue
            out[max(i, j), min(i, j)] -= 1.0
            out[i, i] += 1.0
            out[j, j] += 1.0
