"""Which distance? Linear maps, compared by the evidence of what they make of the targets.

A distance is one more part of the model, so the evidence compares distances as it compares k:

- "scale": every column divided by its standard deviation, taken robustly unless the plain one
  explains the targets better;
- "whiten": times a root of the inverse covariance; "within": of the covariance within classes, or
  within slices of the values of a regression. Both are shrunk towards their diagonal;
- "relevance": a weight for each column, doubled, halved or dropped one at a time while that gains,
  after columns that are not needed have been dropped together;
- relevances followed by whitening (which keeps of them only what is not used), and whitening
  within classes followed by relevances along its axes, which still belong to a column each.

All but the first two learn from the targets, so that their evidence is too high. What they gain
in leave-one-out log score when learned on one half of the points and judged on the other says
whether to believe them.

The search for relevances asks for the evidence of hundreds of graphs. The squared distances are
kept, and a change of one column is an update; of each graph only the lists of one k are made; and
its determinant is bounded by the degrees and the edges (docs/theory). By how much the bound
exceeds the value hardly changes from one graph to the next, so that it foretells the gain to a nat
or two, and only what promises to gain is factorized.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ._dense import Cholesky
from ._distances import Space
from ._graphs import Pairs, pairs_by_rank
from ._jit import kernel
from ._metrics import Metric, column_names
from ._names import EVIDENCE_GRAPHS, FAMILIES, GRAPHS, WEIGHTS, Family, Graph, Task, Weights
from ._neighbors import Neighbors
from ._order import select_rows
from ._posterior import posterior
from ._problem import RATIO_BOUNDS, Profile
from ._targets import Targets, encode
from ._threads import Progress, one_thread_each, progress_bar, run_blocks
from ._validation import check_flag, check_k_max, check_points, one_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

# Points that are learned from, at most: the search costs the square of their number, and the
# factorizations its cube. With 20 columns, 1,000 points took 12.4 seconds of one core and 600 of
# them 3.1, where a grid search over k = 1..60 by scikit-learn, in 10 folds, takes 4.0.
_MOST = 600
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
_LEAST, _LARGEST = 0.125, 8.0  # weights other than 0
# A family wins only if it gains this, in nats of leave-one-out log score, when learned on one half
# and judged on the other, both ways round; and this share of what the best family gains there. On
# the sixteen KEEL sets of benchmarks/accuracy.py, 5 folds, before columns could be dropped
# together, the mean error was .154 by "scale", and the families chosen so had .134 (log-loss .396
# and .348) and lost .002 at most on a set. Shares from .5 to 1 gave .133 to .135. Without the
# second condition the mean was .136 and the most that was lost .010; without either .140 and .026;
# halves judged by evidence, .139 and .014.
_CONFIRMED = 2.0
_SHARE = 0.8
_FEWEST = 30  # points, below which halves say nothing and nothing but "scale" can win


def learn_metric(
    X: ArrayLike,
    y: ArrayLike,
    *,
    families: Sequence[Family] = FAMILIES,
    criterion: Weights = "evidence",
    graph: Graph = "symmetric",
    task: Task = "auto",
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
        What decides between the families that held-out points confirm: "evidence", or the
        leave-one-out log score, "loo_log". The relevances themselves are always searched by
        evidence.
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
    four changes. And every family is also learned on one half of the points and judged on the
    other by the leave-one-out log score, both ways round. Only families that gain 2 nats over
    "scale" there, and four fifths of what the best one gains, can win (`held_out`); between them
    the criterion decides. What wins is then learned from all points, and the evidence that is
    reported is not corrected.

    At most 600 points are learned from, drawn at random with a fixed seed. The answer is the same
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
    >>> mksknn.select_k(X, y, metric=metric).k
    6
    """
    one_of(criterion, WEIGHTS, "criterion")
    one_of(graph, EVIDENCE_GRAPHS if criterion == "evidence" else GRAPHS, "graph")
    asked = _check_families(families)
    progress = check_flag(progress, "progress")
    points = check_points(X)
    n = len(points)
    targets = encode(y, n, task, "auto", True)
    largest = check_k_max(k_max, n)
    if targets.norm == 0.0:
        raise ValueError("y must vary: all its values are equal, and no distance explains that")
    center, robust, plain = _spread(points)
    if not plain.any():
        raise ValueError("X must vary: each of its columns has one value only")
    chosen = _sample(targets)
    labels = _subset(targets, chosen)
    with one_thread_each(), progress_bar("learn_metric", None, progress) as bar:
        found = [
            (_Data((points[chosen] - center) * scale, labels, graph, largest), scale)
            for scale in (robust, plain)
        ]
        same = np.eye(points.shape[1])
        learned, scale = max(found, key=lambda pair: pair[0].value(same))
        maps = _learn_maps(learned, asked, bar, "all points")
        held_out = _judge_by_halves(learned, asked, list(maps), bar)
        judge = learned.log_total if criterion == "evidence" else learned.log_score
        compared = {name: judge(one) for name, one in maps.items()}
    least = max(_CONFIRMED, _SHARE * max(held_out.values()))
    confirmed = [name for name in maps if held_out[name] >= least] or ["scale"]
    winner = max(confirmed, key=lambda name: compared[name])
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


def _sample(targets: Targets) -> np.ndarray:
    """The points to learn from, rising: drawn at random, but one of each class for certain."""
    if targets.n <= _MOST:
        return np.arange(targets.n)
    order = np.random.default_rng(0).permutation(targets.n)
    if not targets.regression:
        sure = order[np.unique(targets.codes[order], return_index=True)[1]]
    else:  # the two ends, so that the values vary whatever is drawn
        widest = targets.values[:, np.argmax(np.ptp(targets.values, axis=0))]
        sure = np.array([np.argmin(widest), np.argmax(widest)])
    rest = order[~np.isin(order, sure)]
    return np.sort(np.concatenate([sure, rest])[:_MOST])


def _subset(targets: Targets, chosen: np.ndarray) -> Targets:
    """The targets of some points, encoded again: their mean and their classes may differ."""
    y = targets.values if targets.regression else targets.codes
    task: Task = "regression" if targets.regression else "classification"
    return encode(y[chosen], len(chosen), task, "auto", True)


def _spread(points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The mean of each column, and one over its standard deviation, robust and plain.

    0 for a column of one value only. The robust one lets an outlier stand far away and keeps the
    others apart; the plain one keeps it near, and a column of many outliers small.
    """
    center = np.median(points, axis=0)
    off = points - center
    robust, plain = np.zeros(points.shape[1]), np.zeros(points.shape[1])
    for c, column in enumerate(off.T):
        moved = np.abs(column[column != 0.0])
        if len(moved):
            far = _FAR * np.median(moved)
            robust[c] = 1.0 / np.clip(column, -far, far).std()
            plain[c] = 1.0 / column.std()
    return points.mean(axis=0), robust, plain


# ---------------------------------------------------------------------------------------------
# Families


class _Data:
    """Standardised points and their targets, with what judges maps of them."""

    def __init__(self, points: np.ndarray, targets: Targets, graph: Graph, largest: int) -> None:
        self.points, self.targets = points, targets
        self.graph, self.largest = graph, largest
        searched: Graph = "mutual" if graph == "mutual" else "symmetric"
        self.judge = _Judge(targets, searched, min(largest, len(points) - 1))

    def value(self, one: np.ndarray) -> float:
        """The best evidence after a map."""
        return self.judge.best(_squares(self.points @ one)).value

    def log_total(self, one: np.ndarray) -> float:
        """The evidence after a map, averaged over k and the ratio."""
        return self.judge.log_total(_squares(self.points @ one))

    def log_score(self, one: np.ndarray) -> float:
        """The leave-one-out log score after a map, averaged over k."""
        found = posterior(
            self.points @ one,
            self.labels,
            weights="loo_log",
            graph=self.graph,
            k_max=self.judge.k_max,
        )
        return found.log_total

    @property
    def labels(self) -> np.ndarray:
        """Targets for a public function."""
        return self.targets.values if self.targets.regression else self.targets.codes

    def part(self, rows: np.ndarray) -> _Data:
        """Some of the points."""
        return _Data(self.points[rows], _subset(self.targets, rows), self.graph, self.largest)

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


def _learn_maps(
    data: _Data, asked: Sequence[str], bar: Progress, where: str
) -> dict[str, np.ndarray]:
    """The map of every family, on standardised columns."""
    varies = (data.points != data.points[0]).any(axis=0)
    same = np.diag(varies.astype(float))
    maps = {"scale": same}
    if not varies.any():  # in what was drawn
        return maps
    whitenings = [name for name in ("whiten", "within") if name in asked]
    for name in whitenings:
        bar.say(f"{where}: {name}")
        maps[name] = _whitening(data, same, name)
        bar.update()
    if "relevance" not in asked:
        return maps
    bar.say(f"{where}: relevance")
    weights = _relevances(data.points @ same, data.judge, bar)
    maps["relevance"] = np.diag(weights)
    # Whitening undoes every weight but 0, so it has something to add where columns were dropped.
    kept = np.flatnonzero(weights > 0.0)
    for name in whitenings:
        dropped = len(kept) < varies.sum()
        only = np.eye(len(weights))[:, kept]
        maps[f"relevance+{name}"] = _whitening(data, only, name) if dropped else maps[name]
    if "within" in asked:
        bar.say(f"{where}: within+relevance")
        along = _relevances(data.points @ maps["within"], data.judge, bar)
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
    data: _Data, asked: Sequence[str], names: Sequence[str], bar: Progress
) -> dict[str, float]:
    """What each family gains over "scale" on the half that it was not learned on, both ways.

    By leave-one-out, whatever the criterion: it says how well that half is predicted, while the
    evidence of labels with little noise rises and falls by a hundred nats with a few edges.
    """
    gains = dict.fromkeys(names, 0.0)
    halves = _halves(data)
    if halves is None:
        return gains | {name: -math.inf for name in names if name != "scale"}
    for at, (learn, judge) in enumerate((halves, halves[::-1])):
        base = judge.log_score(np.eye(data.points.shape[1]))
        for name, one in _learn_maps(learn, asked, bar, f"half {at + 1}").items():
            gains[name] += judge.log_score(one) - base if one.any() else -math.inf
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


def _relevances(features: np.ndarray, judge: _Judge, bar: Progress) -> np.ndarray:
    """Weights of the columns: each in turn doubled, halved, dropped or put back to one."""
    features = np.asfortranarray(features)
    used = (features != features[0]).any(axis=0)
    weights = used.astype(float)
    # To say which column got which of four changes takes this many nats.
    margin = math.log(4.0 * max(1, int(used.sum())))
    squares = _squares(features * weights)
    state = judge.best(squares)
    for start in (state, judge.at_work(squares)):
        dropped = judge.without_many(squares, features, weights, start)
        if dropped is not None and dropped[2].value > state.value + dropped[3]:
            weights, squares, state = dropped[:3]
            break
    for _ in range(_PASSES):
        accepted = 0
        for c in np.flatnonzero(used):
            levels = _changes(weights[c], bool((np.delete(weights, c) > 0.0).any()))
            bar.update()
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
    # a factor common to all changes no neighbour: the (lower) median of those in use becomes 1
    return weights / np.quantile(weights[weights > 0.0], 0.5, method="lower")


def _changes(weight: float, others: bool) -> list[float]:
    """What a weight may become; the last column in use is not dropped."""
    wanted = [2.0 * weight, 0.5 * weight, 1.0, *([0.0] if others else [])]
    fits = [w for w in wanted if w == 0.0 or _LEAST <= w <= _LARGEST]
    return [w for w in dict.fromkeys(fits) if w != weight]


_BLOCK = 64  # rows ranked by one thread at a time


def _squares(points: np.ndarray) -> np.ndarray:
    """Squared distances between all points, which add up over columns as distances do not."""
    points = np.ascontiguousarray(points)
    space = Space(points, "euclidean")
    out = np.empty((len(points), len(points)))

    def work(start: int, stop: int) -> None:
        np.square(space.distances(points[start:stop]), out=out[start:stop])

    run_blocks(work, len(points), _BLOCK)
    return out


# k and ratios at which graphs are judged. The evidence is smooth in both: the steps are about a
# fifth in k and half a decade in the ratio. Ratios below .01 say that labels have no noise at all;
# there the evidence grows with every edge between classes that is lost.
_KS = np.array(
    [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 24, 29, 35, 42, 50, 60, 72, 86, 103, 124, 149, 179]
)
_RATIOS = 10.0 ** np.arange(-2.0, 2.75, 0.5)


_WORK = 4, 4  # where on the grid columns are told apart that the best k does not: k = 5, ratio 1

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

    def __init__(self, targets: Targets, graph: Graph, k_max: int) -> None:
        self.targets, self.graph = targets, graph
        self.ks, self.k_max = _KS[_KS <= k_max], k_max
        self.n = targets.n

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
        pairs = self._rank(squares, int(self.ks[rows[-1]]))
        profiles, bounds = self._bounds(pairs, rows, columns)
        known: dict[tuple[int, int], _State] = {}

        def look(a: int, b: int) -> _State:
            if (a, b) not in known:
                at = int(rows[a]), int(columns[b])
                value = self._exact(pairs, at, profiles[a])
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
        features: np.ndarray,
        weights: np.ndarray,
        column: int,
        levels: Sequence[float],
        state: _State,
        margin: float,
    ) -> tuple[float, np.ndarray, _State] | None:
        """Which new weight of one column gains more than the margin, and what it leads to.

        Judged at the k and the ratio of the state, where the bound of the updated distances says
        what a change promises. What promises is computed, the most promising first, and from
        distances of its own: what an update leaves of rounding would decide between points that
        are equally far.
        """
        away = features[:, column]
        changes = [(away, level**2 - weights[column] ** 2) for level in levels]
        promise = self._promises(squares, changes, state)
        least = state.value + margin
        for s in np.argsort(-promise, kind="stable").tolist():
            if promise[s] + state.doubt < least:
                return None
            changed = weights.copy()
            changed[column] = levels[s]
            moved = _squares(features * changed)
            found = self._look(moved, state.at)
            if found.value > least:
                return levels[s], moved, found
        return None

    def at_work(self, squares: np.ndarray) -> _State:
        """The evidence at a small k and a middling ratio.

        Where columns of noise hide everything, the best k is large, its ratio too, and no column
        makes a difference there.
        """
        at = min(_WORK[0], len(self.ks) - 1), _WORK[1]
        return self._look(squares, at)

    def without_many(
        self,
        squares: np.ndarray,
        features: np.ndarray,
        weights: np.ndarray,
        state: _State,
    ) -> tuple[np.ndarray, np.ndarray, _State, float] | None:
        """Weights without several columns at once, where that leads, and what it must gain.

        Of many columns of noise, to drop one gains little and to drop all gains much. They go in
        the order of what each promises when dropped alone, down to the last one, and the most
        promising of these sets is computed. None if none promises anything.
        """
        used = np.flatnonzero(weights)
        if len(used) < 3:
            return None
        alone = self._promises(squares, [(features[:, c], -(weights[c] ** 2)) for c in used], state)
        order = used[np.argsort(-alone, kind="stable")][:-1]
        left, promise = squares.copy(), np.empty(len(order))
        for s, c in enumerate(order):
            promise[s] = self._promises(left, [(features[:, c], -(weights[c] ** 2))], state)[0]
            left -= weights[c] ** 2 * np.square(features[:, c][:, None] - features[:, c])
        # to say which columns they are takes so many nats
        margin = [math.log(4 * math.comb(len(used), s + 1)) for s in range(len(order))]
        size = int(np.argmax(promise - margin)) + 1
        if promise[size - 1] + state.doubt < state.value + margin[size - 1]:
            return None
        changed = weights.copy()
        changed[order[:size]] = 0.0
        moved = _squares(features * changed)
        return changed, moved, self.best(moved), margin[size - 1]

    def _promises(
        self, squares: np.ndarray, changes: Sequence[tuple[np.ndarray, float]], state: _State
    ) -> np.ndarray:
        """What each change of a column's squares promises: its bound less the state's slack."""
        rows, columns = np.array([state.at[0]]), np.array([state.at[1]])
        k = int(self.ks[rows[0]])
        promise = np.empty(len(changes))

        def look(start: int, stop: int) -> None:
            for s in range(start, stop):
                _, bounds = self._bounds(self._rank(squares, k, *changes[s]), rows, columns)
                promise[s] = bounds[0, 0] - state.slack

        run_blocks(look, len(changes), 1)
        return promise

    def _look(self, squares: np.ndarray, at: tuple[int, int]) -> _State:
        """The evidence at a k and a ratio of the grid."""
        pairs = self._rank(squares, int(self.ks[at[0]]))
        (profile,), bounds = self._bounds(pairs, np.array([at[0]]), np.array([at[1]]))
        return _State(self._exact(pairs, at, profile), float(bounds[0, 0]), at)

    def _rank(
        self, squares: np.ndarray, k: int, column: np.ndarray | None = None, step: float = 0.0
    ) -> Pairs:
        """The graphs up to k, after `step` times the squares of a column are added."""
        lists, away = np.empty((self.n, k), np.int32), np.empty((self.n, k))

        def work(start: int, stop: int) -> None:
            block = squares[start:stop]
            if column is not None:
                block = block + step * np.square(column[start:stop, None] - column)
            select_rows(block, start, lists[start:stop], away[start:stop])

        run_blocks(work, self.n, _BLOCK)
        return pairs_by_rank(Neighbors(lists, away), self.graph)

    def _bounds(
        self, pairs: Pairs, rows: np.ndarray, columns: np.ndarray
    ) -> tuple[list[Profile], np.ndarray]:
        """Upper bounds of the evidence at some k and ratios of the grid."""
        ks, ratios = self.ks[rows], _RATIOS[columns]
        logdets = bound_logdets(pairs, ks, ratios)
        t = self.targets
        rough = t.roughness(pairs)[ks].tolist()
        profiles = [Profile(t.n, t.m, t.norm, t.constant, q) for q in rough]
        values = [
            [profile.value(ratio, logdet) for ratio, logdet in zip(ratios.tolist(), line.tolist())]
            for profile, line in zip(profiles, logdets)
        ]
        return profiles, np.array(values)

    def _exact(self, pairs: Pairs, at: tuple[int, int], profile: Profile) -> float:
        """The evidence at a k and a ratio of the grid."""
        ratio = float(_RATIOS[at[1]])
        return profile.value(ratio, Cholesky(pairs, int(self.ks[at[0]])).logdet(ratio))


def bound_logdets(pairs: Pairs, ks: np.ndarray, ratios: np.ndarray) -> np.ndarray:
    """At least log|L_k + r I|: sum_i log(d_i + r) - tr B^2 / 2, for every k and ratio.

    B is the matrix of weights divided by the roots of d_i + r on both sides. Between the diagonal
    and the local bound of `_bounds` in price and height: one pass over the edges, where that of two
    steps takes the square of the degrees, too much for all k of the grid at once.
    """
    out = np.empty((len(ks), len(ratios)))
    seen = np.zeros((pairs.n, pairs.n), np.bool_)
    _bound_logdets(pairs.rows, pairs.columns, pairs.count, ks, ratios, seen, out)
    return out


@kernel
def _bound_logdets(rows, columns, count, ks, ratios, seen, out):
    n = seen.shape[0]
    degree = np.zeros(n)
    inverse = np.empty(n)
    done = 0
    for a in range(ks.shape[0]):
        edges = count[ks[a]]
        for e in range(done, edges):
            i, j = rows[e], columns[e]
            seen[i, j] = True
            degree[i] += 1.0
            degree[j] += 1.0
        done = edges
        for b in range(ratios.shape[0]):
            total = 0.0
            for i in range(n):
                total += math.log(degree[i] + ratios[b])
                inverse[i] = 1.0 / (degree[i] + ratios[b])
            for e in range(edges):
                i, j = rows[e], columns[e]
                # a pair of weight two is met from both ends, so that its square, four, comes out
                total -= (2.0 if seen[j, i] else 1.0) * inverse[i] * inverse[j]
            out[a, b] = total
