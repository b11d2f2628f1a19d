"""Which distance? Linear maps, compared by the evidence of what they make of the targets.

A distance is one more part of the model, so the evidence compares distances as it compares k:

- "scale": every column divided by its standard deviation, taken robustly unless the plain one
  explains the targets better;
- "whiten": times a root of the inverse covariance; "within": of the covariance within classes, or
  within slices of the values of a regression. Both are shrunk towards their diagonal;
- "relevance": a weight for each column, doubled, halved or dropped one at a time while that gains,
  from all columns or from a few that predict better by leave-one-out;
- relevances followed by whitening (which keeps of them only what is not used), and whitening
  within classes followed by relevances along its axes, which still belong to a column each.

All but the first two learn from the targets, so that their evidence is too high. What they gain
in the leave-one-out log score of points that they were not learned from says whether to believe
them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ._jit import interruptible
from ._metrics import Metric, column_names
from ._names import EVIDENCE_GRAPHS, FAMILIES, GRAPHS, WEIGHTS, Family, Graph, Task, Weights
from ._neighbors import check_no_ranking
from ._posterior import posterior
from ._relevance import PASSES, Judge, State, relevances, squared
from ._targets import Targets, encode
from ._threads import Progress, one_thread_each, progress_bar, run_pieces
from ._validation import check_flag, check_k_max, check_points, one_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

# Points that are learned from, at most: the search costs the square of their number, and the
# factorizations its cube. On eight KEEL sets (penbased, satimage, phoneme, twonorm, banana,
# segment, titanic, ring; 1,000 points to learn from, 1,000 to predict) 300, 400, 500 and 600 of
# them gave mean errors of .110, .112, .114 and .113 and log-losses of .276, .276, .281 and .276.
# With 1,000 points and 20 columns, 400 take 1.2 seconds of one core; a grid search over k = 1..60
# by scikit-learn, in 10 folds, takes 1.1.
_MOST = 400
# Values further from the median than this many times the median distance from it (of those that
# differ from it) are pulled in before the standard deviation is taken: 6.7 standard deviations of
# a normal distribution, so that only what lies far off is touched.
_FAR = 10.0
_HUGE = 1e100  # standard deviations: sums of squares of products of these are still numbers
_SHRINKAGE = (0.1, 0.5, 0.9)  # towards the diagonal; chosen by the evidence
_LEAST_WITHIN = 0.01  # of a column's variance, at least, is taken to be within classes
_SLICES = 8  # of the values of a regression
# Parts that the points are cut into, of which each is judged by what was learned from the others:
# at least so many, more of few points, where it costs little and none can be spared. (On tae with
# ten columns of noise, 120 points, weights of columns were confirmed in three of five folds by
# three parts, in all five by nine.)
_FOLDS, _MOST_FOLDS, _SPENT = 3, 10, 1200
_LARGE = 60  # the largest k that they are judged at
# A family wins only if it gains this, in nats of leave-one-out log score of points that it was not
# learned from, and this share of what the best family gains. On the sixteen KEEL sets of
# benchmarks/accuracy.py, 5 folds, with halves instead of these parts and before columns could be
# dropped together, the mean error was .154 by "scale", and the families chosen so had .134
# (log-loss .396 and .348) and lost .002 at most on a set. Shares from .5 to 1 gave .133 to .135.
# Without the second condition the mean was .136 and the most that was lost .010; without either
# .140 and .026; judged by evidence, .139 and .014.
_CONFIRMED = 2.0
_SHARE = 0.8
_FEWEST = 30  # points, below which parts say nothing and nothing but "scale" can win


@interruptible
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
        leave-one-out log score, "loo_log". The relevances themselves are searched in the same way
        by either.
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
    four changes. And every family is also learned without one part of the points and judged by the
    leave-one-out log score of that part, for each of three to ten parts. Only families that gain 2
    nats over "scale" there, and four fifths of what the best one gains, can win (`held_out`);
    between them the criterion decides. What wins is then learned from all points, and the evidence
    that is reported is not corrected.

    At most 400 points are learned from, drawn at random with a fixed seed. The answer is the same
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
    check_no_ranking(X)
    points = check_points(X)
    n = len(points)
    targets = encode(y, n, task, "auto", True, X)
    largest = check_k_max(k_max, n)
    if targets.norm == 0.0:
        raise ValueError("y must vary: all its values are equal, and no distance explains that")
    center, robust, plain = _spread(points)
    if not plain.any():
        raise ValueError("X must vary: each of its columns has one value only")
    chosen = _sample(targets)
    labels = _subset(targets, chosen)
    with one_thread_each():
        scales = [robust] if np.array_equal(robust, plain) else [robust, plain]
        found = [
            (_Data(scaled, labels, graph, largest), scale)
            for scale in scales
            if (np.abs(scaled := (points[chosen] - center) * scale) < _HUGE).all()
        ]
        if not found:
            raise ValueError("X must vary by more than 1e-300 in each column that varies at all")
        same = np.eye(points.shape[1])
        learned, scale = max(found, key=lambda pair: pair[0].best(same).value)
        maps, compared, held_out = _compare(learned, asked, criterion, progress)
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
    task: Task = "regression" if targets.regression else "classification"
    return encode(targets.numbers[chosen], len(chosen), task, "auto", True)


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
            size = 2.0 ** (math.frexp(moved.max())[1] - 1)  # whose square may be no number
            far = _FAR * (np.median(moved) / size)
            robust[c] = 1.0 / np.clip(column / size, -far, far).std() / size
            plain[c] = 1.0 / (column / size).std() / size
    return points.mean(axis=0), robust, plain


def _compare(
    data: _Data, asked: Sequence[str], criterion: str, progress: bool
) -> tuple[dict[str, np.ndarray], dict[str, float], dict[str, float]]:
    """The map of each family, what the criterion says of it, and what it gains held out.

    Every fold is judged by maps that were learned from the others: the leave-one-out log score of
    its points among all points. By that score whatever the criterion: it says how well they are
    predicted, while the evidence of labels with little noise rises and falls by a hundred nats
    with a few edges.
    """
    folds = _folds(data)
    found: list[_Found] = [{} for _ in range(len(folds) + 1)]
    sums: list[dict[str, np.ndarray]] = [{} for _ in folds]
    compared: dict[str, float] = {}

    def learn(at: int) -> None:
        if at == len(folds):
            found[at] = _learn(data, asked, bar)
            return
        rest = np.delete(np.arange(len(data.points)), folds[at])
        found[at] = _learn(data.part(rest), asked, bar)
        sums[at] = {name: data.left_out(one, folds[at]) for name, (one, _) in found[at].items()}

    def judge(name: str) -> None:
        one, state = found[-1][name]
        evidence = criterion == "evidence"
        compared[name] = data.log_total(one, state) if evidence else data.log_score(one)

    steps = _steps(asked, data.points.shape[1])
    with progress_bar("learn_metric", (len(folds) + 1) * steps, progress) as bar:
        run_pieces(learn, range(len(folds) + 1)[::-1])  # the largest first
        bar.say("comparing")
        names = list(found[-1])
        run_pieces(judge, names)
    held_out = dict.fromkeys(names, -math.inf) | {"scale": 0.0}
    if folds:
        scores = {
            name: data.judge.score(np.sum([one[name] for one in sums], axis=0)) for name in names
        }
        held_out = {name: scores[name] - scores["scale"] for name in names}
    maps = {name: one for name, (one, _) in found[-1].items()}
    return maps, {name: compared[name] for name in names}, held_out


# ---------------------------------------------------------------------------------------------
# Families


class _Data:
    """Standardised points and their targets, with what judges maps of them."""

    def __init__(self, points: np.ndarray, targets: Targets, graph: Graph, largest: int) -> None:
        self.points, self.targets = points, targets
        self.graph, self.largest = graph, largest
        searched: Graph = "mutual" if graph == "mutual" else "symmetric"
        self.judge = Judge(targets, searched, min(largest, len(points) - 1))

    def best(self, one: np.ndarray, near: State | None = None) -> State:
        """The best evidence after a map."""
        return self.judge.best(squared(self.points @ one), near)

    def log_total(self, one: np.ndarray, near: State) -> float:
        """The evidence after a map, averaged over k and the ratio."""
        return self.judge.log_total(squared(self.points @ one), near)

    def log_score(self, one: np.ndarray) -> float:
        """The leave-one-out log score after a map, averaged over k."""
        points, y, k_max = self.points @ one, self.targets.numbers, self.judge.k_max
        return posterior(points, y, weights="loo_log", graph=self.graph, k_max=k_max).log_total

    def left_out(self, one: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """What makes up the leave-one-out log score of some points after a map."""
        pairs = self.judge.rank(squared(self.points @ one), min(_LARGE, self.judge.k_max))
        return self.judge.left_out(pairs, rows, self.graph != "knn")

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


_Found = dict[str, tuple[np.ndarray, "State"]]  # maps on standardised columns, and their evidence


def _steps(asked: Sequence[str], columns: int) -> int:
    """How many steps `_learn` takes, as a bar counts them."""
    whitenings = ("whiten" in asked) + ("within" in asked)
    searches = "relevance" in asked and 1 + ("within" in asked)
    return 1 + whitenings + searches * PASSES * columns


def _learn(data: _Data, asked: Sequence[str], bar: Progress) -> _Found:
    """The map of every family."""
    varies = (data.points != data.points[0]).any(axis=0)
    same = np.diag(varies.astype(float))
    found = {"scale": (same, data.best(same))}
    if not varies.any():
        bar.update(_steps(asked, len(varies)))
        return found
    bar.update()
    whitenings = [name for name in ("whiten", "within") if name in asked]
    for name in whitenings:
        bar.say(name)
        found[name] = _whitening(data, same, name)
        bar.update()
    if "relevance" not in asked:
        return found
    bar.say("relevance")
    weights, state = relevances(data.points, data.judge, bar)
    found["relevance"] = np.diag(weights), state
    # Whitening undoes every weight but 0, so it has something to add where columns were dropped.
    only = np.eye(len(weights))[:, weights > 0.0]
    for name in whitenings:
        dropped = only.shape[1] < varies.sum()
        found[f"relevance+{name}"] = _whitening(data, only, name) if dropped else found[name]
    if "within" in asked:
        bar.say("within+relevance")
        before = found["within"][0]
        along, state = relevances(data.points @ before, data.judge, bar, few=False)
        found["within+relevance"] = before * along, state
    return found


def _whitening(data: _Data, before: np.ndarray, name: str) -> tuple[np.ndarray, State]:
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
    found: list[tuple[np.ndarray, State]] = []
    for shrinkage in _SHRINKAGE:
        shrunk = (1.0 - shrinkage) * covariance
        np.fill_diagonal(shrunk, (1.0 - shrinkage) * np.diag(covariance) + shrinkage * diagonal)
        root = np.zeros_like(shrunk)
        root[np.ix_(used, used)] = _inverse_root(shrunk[np.ix_(used, used)])
        found.append((before @ root, data.best(before @ root, found[-1][1] if found else None)))
    return max(found, key=lambda one: one[1].value)


def _inverse_root(matrix: np.ndarray) -> np.ndarray:
    """The symmetric root: of all roots, the one whose axes stay closest to the columns."""
    values, vectors = np.linalg.eigh(matrix)
    # Beside an outlier of 1e9 standard deviations the least ones are lost, and may be negative.
    values = np.maximum(values, len(values) * np.finfo(float).eps * values[-1])
    return (vectors / np.sqrt(values)) @ vectors.T


def _folds(data: _Data) -> list[np.ndarray]:
    """Rows of parts alike in their targets; none if the rest of one could not be learned from."""
    n = len(data.points)
    if n < _FEWEST:
        return []
    shuffled = np.random.default_rng(0).permutation(n)
    order = shuffled[np.argsort(data.groups[shuffled], kind="stable")]
    count = min(_MOST_FOLDS, max(_FOLDS, _SPENT // n))
    folds = [np.sort(order[at::count]) for at in range(count)]
    for rows in folds:
        left = (np.delete(of, rows, axis=0) for of in (data.targets.numbers, data.points))
        if any((one == one[0]).all() for one in left):
            return []
    return folds
