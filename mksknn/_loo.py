"""Leave-one-out: the error and the log score of every k from one ranking.

Leaving a point out and putting it back as a query gives its training ranks, so nothing is refitted:
votes grow as k brings neighbours in, and graph k differs from graph k - 1 by the pairs of rank k.

The log score S_k(r) depends on a point only through a few numbers, and points that share a weight
share a term, so every k boils down to short histograms:

- classes: sum over own-class votes v of log(v + r/J), minus sum over weights w of log(w + r);
- regression: m/2 sum over w of log(w + r), minus mn/2 log Q(r), where
  Q(r) = sum |e_i + r y_i|^2 / (w_i + r) and e_i = sum_j w_ij (y_i - y_j).

For classes S_k may have several local maxima in r. Branch and bound finds the global one: cells of
log r are ruled out by bounds that follow from the convexity of those terms.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ._graphs import Pairs, pairs_by_rank
from ._jit import interruptible, kernel
from ._metrics import Metric
from ._names import Graph, MetricName, Task
from ._neighbors import Neighbors, Ranking
from ._order import copy_into
from ._problem import RATIO_BOUNDS, Profile, Question, pose, span
from ._targets import Targets
from ._threads import run_blocks
from ._validation import check_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import ArrayLike

_SEARCH_BLOCK = 16  # consecutive k searched by one thread; each starts from the optimum before it
_BATCH_ENTRIES = 2**20  # pairs, and numbers for the log score, held between sweep and search


@dataclass(frozen=True, eq=False)
class LooCurve:
    """Leave-one-out error and log score of every k.

    Attributes
    ----------
    k : ndarray of int64
        The k scored, rising.
    error : ndarray of float64
        Misclassification rate of the plain vote, or mean squared error of the plain average.
    log_score : ndarray of float64
        Sum over the points of the log probability (or density) of each one's own target, at the
        best ratio.
    ratio : ndarray of float64
        That ratio r = sigma2 / sigma0; an end of ``ratio_bounds`` if the score rises towards it.
    graph : str
        "knn", "mutual" or "symmetric".
    """

    k: np.ndarray
    error: np.ndarray
    log_score: np.ndarray
    ratio: np.ndarray
    graph: Graph

    @property
    def best_k(self) -> int:
        """The k of least error, the smallest of equals."""
        return int(self.k[np.argmin(self.error)])

    @property
    def best_k_log(self) -> int:
        """The k of highest log score, the smallest of equals."""
        return int(self.k[np.argmax(self.log_score)])

    def __repr__(self) -> str:
        low, high = int(np.argmin(self.error)), int(np.argmax(self.log_score))
        return (
            f"LooCurve(graph={self.graph!r}, {span(self.k)}, "
            f"best_k={self.best_k} (error={self.error[low]:.4g}), "
            f"best_k_log={self.best_k_log} (log_score={self.log_score[high]:.6g}, "
            f"ratio={self.ratio[high]:.3g}))"
        )


@interruptible
def loo_curve(
    X: ArrayLike | Neighbors,
    y: ArrayLike,
    *,
    graph: Graph = "knn",
    ks: Iterable[int] | None = None,
    k_max: int | None = None,
    task: Task = "auto",
    center: bool = True,
    ratio_bounds: tuple[float, float] = RATIO_BOUNDS,
    metric: MetricName | Metric = "euclidean",
) -> LooCurve:
    """Compute the leave-one-out error and log score of every k.

    Every point is predicted from the others. One ranking serves all k, so the whole curve costs
    little more than ranking the points.

    Parameters
    ----------
    X : array_like of shape (n, d), or Neighbors
        The points, or their n x n distances if ``metric="precomputed"``, or their
        :class:`Neighbors`, ranked before.
    y : array_like, shape (n,) or (n, outputs)
        Labels or values, one per point.
    graph : str
        "knn", "mutual" or "symmetric": whose votes count.
    ks : iterable of int, optional
        The k wanted. By default 1..k_max.
    k_max : int, optional
        The largest k. By default n - 1, all of them.
    task : str
        "auto" (float y is regression, anything else classes), "classification" or "regression".
    center : bool
        Regression: take the mean off y first. A point without neighbours is predicted to be that
        mean (0 without centring), and the log score shrinks predictions towards it.
    ratio_bounds : tuple of float
        The range in which the ratio r = sigma2 / sigma0 of the log score is searched.
    metric : str or Metric
        "euclidean", "manhattan", "chebyshev", "cosine" or "precomputed", or one from
        :func:`learn_metric`.

    Returns
    -------
    LooCurve
        ``k``, ``error``, ``log_score``, ``ratio`` and ``graph``, with ``best_k`` (least error) and
        ``best_k_log`` (highest log score); the smallest k among equals.

    Raises
    ------
    ValueError
        If the values of a regression are all equal: their log score is unbounded.

    See Also
    --------
    select_k : The best k by either score, with ``criterion="loo"`` or ``"loo_log"``.
    posterior : Weights of every k by the log score, with ``weights="loo_log"``.
    plot_curve : Draws it.

    Notes
    -----
    The error is that of the plain rules: the class with most votes, ties going to the class of the
    nearest neighbour among the tied classes (of the nearest point, where there are no neighbours),
    or the average of the neighbours' values. Squared errors are averaged over points and outputs.

    With w_i the total weight of point i's neighbours, V_i that of those in its own class of J, and
    mean_i = (weighted sum of the neighbours' centred values) / (w_i + r), the log score is

    - classes: the sum of log((V_i + r/J) / (w_i + r));
    - regression: the sum of the log densities of normal distributions of mean mean_i and variance
      1 / (sigma0 (w_i + r)) in each output, at the best sigma0.

    Its global maximum over r is found to 1e-9 of its size, whatever the number of local maxima
    (classes can have several: branch and bound). Where the score does not depend on r, the ratio is
    the upper bound. Where neighbours agree exactly, the score of a regression grows without bound
    as r falls: the lower bound of r keeps it finite.

    Examples
    --------
    >>> import mksknn
    >>> X = [[0.0], [1.0], [2.0], [10.0], [11.0], [12.5]]
    >>> curve = mksknn.loo_curve(X, ["a", "a", "a", "b", "b", "b"])
    >>> curve.error.tolist()
    [0.0, 0.0, 0.0, 0.0, 1.0]
    >>> curve.best_k, curve.best_k_log
    (1, 2)
    """
    question = pose(
        X,
        y,
        graph=graph,
        task=task,
        center=center,
        ks=ks,
        k_max=k_max,
        ratio_bounds=ratio_bounds,
        metric=metric,
        evidence=False,
        fitted=False,
    )
    found = score(question, *next(question.candidates()))
    return LooCurve(question.ks, found.error, found.log_score, found.ratio, found.graph)


@dataclass(frozen=True, eq=False)
class Scored:
    """Leave-one-out scores of the k of a question, and what they come from."""

    graph: Graph
    error: np.ndarray
    log_score: np.ndarray  # empty, as the ratio, if not asked for
    ratio: np.ndarray
    targets: Targets
    ranked: Neighbors

    @functools.cached_property
    def pairs(self) -> Pairs:
        """The graph's; for "knn" the symmetric graph's, twice the mean of both directions."""
        return pairs_by_rank(self.ranked, "symmetric" if self.graph == "knn" else self.graph)

    @functools.cached_property
    def roughness(self) -> np.ndarray:
        """q_k for k = 0, 1, ...: half the sum of w_ij |y_i - y_j|^2 over all i and j."""
        return self.targets.roughness(self.pairs) * (0.5 if self.graph == "knn" else 1.0)

    def profile(self, k: int) -> Profile:
        """The evidence of graph k."""
        return Profile.of(self.targets, float(self.roughness[k]))


def score(question: Question, ranking: Ranking, graph: Graph, *, log_score: bool = True) -> Scored:
    """Score every k of a question by one candidate."""
    targets, ks = question.targets, question.ks
    if log_score:
        _check_scorable(targets)
    ranked = ranking.to(int(ks[-1]))
    curve = loo_scores(ranked, targets, graph, question.ratio_bounds, log_score=log_score)
    error, scores, ratio = (part[ks - 1] if len(part) else part for part in curve)
    return Scored(graph, error, scores, ratio, targets, ranked)


def loo_scores(
    ranked: Neighbors,
    targets: Targets,
    graph: Graph,
    ratio_bounds: tuple[float, float],
    *,
    log_score: bool = True,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Errors and, unless told not to, log scores and ratios for k = 1..k_max of a ranking."""
    make = _ValueSweep if targets.regression else _ClassSweep
    sweep = make(ranked, targets, graph)
    k_max = ranked.indices.shape[1]
    score, ratio = np.empty((2, k_max if log_score else 0))
    bins = sweep.bins if log_score else 0
    per_k = max(bins, len(ranked.indices))
    batch = _SEARCH_BLOCK * max(1, _BATCH_ENTRIES // (_SEARCH_BLOCK * per_k))
    # of each k of a batch: arrivals of 16 bytes a point, then votes or sums
    rest = 28.0 * bins if targets.regression else 8.0 * len(ranked.indices) * bool(bins)
    check_memory(
        min(batch, k_max) * (16.0 * len(ranked.indices) + rest),
        f"leave-one-out scores of {len(ranked.indices)} points",
        "lower k_max or the number of points",
    )
    for first in range(0, k_max, batch):
        last = min(first + batch, k_max)
        search = sweep.advance(first, last, bins)
        if not log_score:
            continue

        def work(start: int, stop: int, first: int = first, search: Callable = search) -> None:
            into = slice(first + start, first + stop)
            search(start, stop, *ratio_bounds, score[into], ratio[into])

        # The blocks do not depend on the number of threads, so neither do the starting points.
        run_blocks(work, last - first, _SEARCH_BLOCK)
    return sweep.error, score, ratio


def _check_scorable(targets: Targets) -> None:
    """Refuse values whose log score is unbounded whatever the ratio."""
    if targets.regression and not targets.values.any():
        raise ValueError(
            "y must not be constant: the leave-one-out log score of "
            f"{len(targets.values)} equal values is unbounded"
        )


# ---------------------------------------------------------------------------------------------
# The sweep: neighbours arrive in the order of k, and every arrival costs O(1)


class _Sweep:
    """Arrivals for a range of k; subclasses hold what the arrivals change."""

    def __init__(self, ranked: Neighbors, targets: Targets, graph: Graph) -> None:
        self.ranked, self.targets, self.both = ranked, targets, graph != "knn"
        self.pairs = pairs_by_rank(ranked, graph) if graph == "mutual" else None
        n, k_max = ranked.indices.shape
        self.error = np.empty(k_max)
        self.weight = np.zeros(n, np.int64)
        most = k_max  # the largest weight a point can reach
        if graph == "symmetric":
            most += _most_listed(ranked.indices)
        self.bins = most + 1

    def arrivals(self, first: int, last: int) -> tuple[np.ndarray, ...]:
        """Pairs (i, j) of ranks first + 1..last, their distances, and where each rank's start."""
        n = len(self.weight)
        found = np.ascontiguousarray(self.ranked.indices[:, first:last].T)
        away = np.ascontiguousarray(self.ranked.distances[:, first:last].T)
        if self.pairs is None:
            rows = np.tile(np.arange(n, dtype=np.int32), last - first)
            return rows, found.ravel(), away.ravel(), n * np.arange(last - first + 1)
        count = self.pairs.count[first : last + 1]
        rows = self.pairs.rows[count[0] : count[-1]]
        columns = self.pairs.columns[count[0] : count[-1]]
        starts = count - count[0]
        return rows, columns, _mutual_distances(rows, columns, starts, found, away), starts


def _most_listed(indices: np.ndarray) -> int:
    """In how many lists the point is that is in most; counted in blocks, which are copied."""
    n, k_max = indices.shape
    count = np.zeros(n, np.int64)
    block = max(1, _BATCH_ENTRIES // k_max)
    for start in range(0, n, block):
        count += np.bincount(indices[start : start + block].ravel(), minlength=n)
    return int(count.max())


@kernel
def _mutual_distances(rows, columns, starts, found, away):
    """A pair that rank k completes is the k-th neighbour of one of its ends, or of both."""
    out = np.empty(rows.shape[0])
    for c in range(starts.shape[0] - 1):
        for e in range(starts[c], starts[c + 1]):
            i, j = rows[e], columns[e]
            out[e] = away[c, i] if found[c, i] == j else away[c, j]
    return out


class _ClassSweep(_Sweep):
    """Votes per class; for the log score, those of each point's own class."""

    def __init__(self, ranked: Neighbors, targets: Targets, graph: Graph) -> None:
        super().__init__(ranked, targets, graph)
        shape = n, J = len(self.weight), targets.n_classes
        check_memory(16.0 * n * J, f"votes of {n} points for {J} classes", "use fewer classes")
        nearest = np.empty(shape), np.empty(shape, np.int32)
        # before anyone has voted all classes tie, and the nearest point decides
        leader = targets.codes[ranked.indices[:, 0]]
        self.poll = _Poll(np.zeros(shape, np.int32), self.weight, *nearest, leader)

    def advance(self, first: int, last: int, bins: int) -> Callable[..., None]:
        """Take in ranks first + 1..last; return the search over their log scores."""
        own, weights = np.empty((2, last - first, len(self.weight) if bins else 0), np.int32)
        codes, J = self.targets.codes, self.targets.n_classes
        error = self.error[first:last]
        _sweep_votes(*self.arrivals(first, last), self.both, codes, self.poll, error, own, weights)

        def search(start: int, stop: int, *rest: Any) -> None:
            _search_votes(own[start:stop], weights[start:stop], bins, J, *rest)

        return search


class _Poll(NamedTuple):
    """How the votes stand."""

    votes: np.ndarray  # (points, classes)
    weight: np.ndarray  # the sum of each point's votes
    near: np.ndarray  # distance and index of the nearest neighbour of each class
    who: np.ndarray
    leader: np.ndarray


@kernel
def _sweep_votes(rows, columns, away, starts, both, codes, poll, error, own_votes, weights):
    """Add the votes of each rank; after each, count the errors and keep what the log score needs.

    The leader is the class of most votes, then of the nearest neighbour. A vote only moves its own
    class up that order, so one comparison with the leader is enough.
    """
    votes, weight, near, who, leader = poll
    n = codes.shape[0]
    wrong = 0
    for i in range(n):
        wrong += leader[i] != codes[i]
    for c in range(starts.shape[0] - 1):
        for e in range(starts[c], starts[c + 1]):
            i, j, d = rows[e], columns[e], away[e]
            for _ in range(1 + both):  # not a function: passing the arrays would double the time
                new, old = codes[j], leader[i]
                count = votes[i, new]
                if count == 0 or d < near[i, new] or (d == near[i, new] and j < who[i, new]):
                    near[i, new] = d
                    who[i, new] = j
                votes[i, new] = count + 1
                weight[i] += 1
                if new != old and count + 1 >= votes[i, old]:
                    ahead = near[i, new] - near[i, old]
                    if (
                        count + 1 > votes[i, old]
                        or ahead < 0.0
                        or (ahead == 0.0 and who[i, new] < who[i, old])
                    ):
                        leader[i] = new
                        wrong += int(new != codes[i]) - int(old != codes[i])
                i, j = j, i
        error[c] = wrong / n
        for i in range(own_votes.shape[1]):
            own_votes[c, i] = votes[i, codes[i]]
            weights[c, i] = weight[i]


class _ValueSweep(_Sweep):
    """Sums of differences to the neighbours; for the log score, the sums of Q per weight."""

    def __init__(self, ranked: Neighbors, targets: Targets, graph: Graph) -> None:
        super().__init__(ranked, targets, graph)
        # Scaled by a power of two (no rounding), so that no sum of squares over- or underflows.
        size = np.abs(targets.values).max()
        self.exponent = math.frexp(size)[1] if size > 0 else 0
        self.values = np.ldexp(targets.values, -self.exponent)
        self.gap = np.zeros_like(self.values)  # e_i, differences so that equal values give 0

    def advance(self, first: int, last: int, bins: int) -> Callable[..., None]:
        """Take in ranks first + 1..last; return the search over their log scores."""
        weights = np.zeros((last - first, bins), np.int32)
        sums = np.zeros((last - first, bins, 3))
        error = self.error[first:last]
        rows, columns, _, starts = self.arrivals(first, last)
        state = self.values, self.gap, self.weight
        _sweep_values(rows, columns, starts, self.both, *state, error, weights, sums)
        error[:] = np.ldexp(error, 2 * self.exponent)
        n, m = self.values.shape
        constant = 0.5 * m * n * (math.log(n * m / (2.0 * math.pi)) - 1.0)
        constant -= n * m * self.exponent * math.log(2.0)

        def search(start: int, stop: int, *rest: Any) -> None:
            _search_values(weights[start:stop], sums[start:stop], m, constant, *rest)

        return search


@kernel
def _sweep_values(rows, columns, starts, both, values, gap, weight, error, by_weight, sums):
    """Add the differences of each rank; average the squares and fill the sums after each."""
    n, m = values.shape
    for c in range(starts.shape[0] - 1):
        for e in range(starts[c], starts[c + 1]):
            i, j = rows[e], columns[e]
            weight[i] += 1
            for a in range(m):
                gap[i, a] += values[i, a] - values[j, a]
            if both:
                weight[j] += 1
                for a in range(m):
                    gap[j, a] += values[j, a] - values[i, a]
        total = 0.0
        for i in range(n):
            square, product, own = 0.0, 0.0, 0.0
            for a in range(m):
                square += gap[i, a] * gap[i, a]
                product += gap[i, a] * values[i, a]
                own += values[i, a] * values[i, a]
            w = weight[i]
            total += square / (float(w) * float(w)) if w > 0 else own
            if by_weight.shape[1] > 0:
                by_weight[c, w] += 1
                sums[c, w, 0] += square
                sums[c, w, 1] += product
                sums[c, w, 2] += own
        error[c] = total / (n * m)


# ---------------------------------------------------------------------------------------------
# The search over r, for one k
#
# Both scores start from A, a sum of logs of (x + r) with positive coefficients of sum `total`:
#
#     classes      S = A - B            A = sum log(J v + r)      B = sum log(w + r)
#     regression   S = A - total log B  A = m/2 sum log(w + r)    B = Q(r)
#
# Regression has one maximum, so climbing finds it: before sigma0 is put at its best, the score is
# m/2 sum log(sigma0 w + sigma2) - 1/2 sum |sigma0 e + sigma2 y|^2 / (sigma0 w + sigma2), concave in
# (sigma0, sigma2) together: logs of linear functions are concave, and squares over linear functions
# convex. A concave function exceeds any level on a convex set, and on a convex set the ratios
# sigma2 / sigma0 fill an interval.
#
# Classes can have many. There, climbing is followed by a proof, or refutation, that the maximum is
# the global one: branch and bound.
#
# A node is a point of log r where everything has been evaluated; these are its columns.
_T, _R, _S, _A, _A1, _A2, _B, _B1, _B2 = range(9)  # log r, r, S, then A, A', -A'', B, B', |B''|
_A3, _B3 = 9, 10  # classes: total - r A' and total - r B', summed up without taking a difference
_COLUMNS = 11
_CLOSE = 1e-10  # a cell that may beat the best score by no more than this share of it is dropped
_NARROW = 1e-7  # width in log r at which a cell is dropped: its bound is its score, nearly
_BESIDE = 0.4  # width in log r of the cells beside a maximum, where S should turn out concave
_TINY = 1e-300
_FLAT = 1e4  # ratios so many times larger than all weights, or smaller than one, change S little


@kernel
def _search_votes(own_votes, weights, bins, J, low, high, score, ratio):
    """The best ratio for each row of own-class votes and weights, classes."""
    n = weights.shape[1]
    none = np.empty((0, 3))
    level = -n * math.log(J)  # log(v + r/J) is log(J v + r) - log J
    start = 0.0
    for c in range(weights.shape[0]):
        by_vote, by_weight = np.zeros(bins, np.int32), np.zeros(bins, np.int32)
        for i in range(n):
            by_vote[own_votes[c, i]] += 1
            by_weight[weights[c, i]] += 1
        for v in range((bins - 1) // J + 1):  # log(J v + r) cancels where w = J v
            same = min(by_vote[v], by_weight[J * v])
            by_vote[v] -= same
            by_weight[J * v] -= same
        x, h = _occupied(by_vote)
        w, g = _occupied(by_weight)
        if x.shape[0] == 0:  # nothing depends on r
            score[c], ratio[c] = level, high
            continue
        for b in range(x.shape[0]):
            x[b] *= J
        score[c], ratio[c] = _branch_and_bound(_terms(x, h, w, g, none, low, high), level, start)
        start = math.log(ratio[c])
        if score[c] > -0.01 * n:  # almost all is cancelled: point by point no digits are lost
            score[c] = 0.0
            for i in range(n):
                rest = weights[c, i] - own_votes[c, i] + ratio[c] * (1.0 - 1.0 / J)
                score[c] += math.log1p(-rest / (weights[c, i] + ratio[c]))


@kernel
def _search_values(by_weight, sums, m, constant, low, high, score, ratio):
    """The best ratio of each row of sums, regression."""
    ends, best, trial = np.empty((2, _COLUMNS)), np.empty(_COLUMNS), np.empty(_COLUMNS)
    start = 0.0
    for c in range(by_weight.shape[0]):
        w, g = _occupied(by_weight[c])
        # from where S is not flat to rounding: a climb would end there
        start = min(max(start, -math.log(_FLAT)), math.log(_FLAT * (1.0 + w[-1])))
        parts = np.empty((w.shape[0], 3))
        for b in range(w.shape[0]):
            for a in range(3):
                parts[b, a] = sums[c, int(w[b]), a]
        terms = _terms(w, 0.5 * m * g, w, g, parts, low, high)
        _highest(terms, start, ends, best, trial)
        score[c], ratio[c], start = best[_S] + constant, best[_R], best[_T]


@kernel
def _occupied(histogram):
    """Values and counts of the bins in use."""
    size = 0
    for value in range(histogram.shape[0]):
        size += histogram[value] > 0
    values, counts = np.empty(size), np.empty(size)
    size = 0
    for value in range(histogram.shape[0]):
        if histogram[value] > 0:
            values[size] = value
            counts[size] = histogram[value]
            size += 1
    return values, counts


class _Terms(NamedTuple):
    """What S is made of."""

    x: np.ndarray  # A is the sum of h log(x + r)
    h: np.ndarray
    w: np.ndarray  # B is the sum of g log(w + r), or Q of the parts
    g: np.ndarray
    parts: np.ndarray  # empty for classes
    total: float  # of the h
    low: float  # the bounds of r, and their logarithms
    high: float
    left: float
    right: float


@kernel
def _terms(x, h, w, g, parts, low, high):
    total = 0.0  # h.sum() takes Numba three times as long to compile
    for c in range(h.shape[0]):
        total += h[c]
    return _Terms(x, h, w, g, parts, total, low, high, math.log(low), math.log(high))


@kernel
def _evaluate(f, t, node):
    """Fill a node at log r = t."""
    r = math.exp(t)
    if t <= f.left:
        r = f.low  # exactly, so that a caller can tell
    elif t >= f.right:
        r = f.high
    a, a1, a2, a3 = _log_sums(f.x, f.h, r)
    w, parts = f.w, f.parts
    if parts.shape[0] == 0:
        b, b1, b2, b3 = _log_sums(w, f.g, r)
        s = a - b
    else:
        b, b1, b2, b3 = 0.0, 0.0, 0.0, 0.0
        for c in range(w.shape[0]):
            u = w[c] + r
            square, product, own = parts[c, 0], parts[c, 1], parts[c, 2]
            part = square / u + 2.0 * product * (r / u) + own * r * (r / u)
            b += part
            b1 += (2.0 * product + 2.0 * own * r - part) / u
            # |sum of the neighbours' values|^2, which is |w y - e|^2
            b2 += 2.0 * max(0.0, square - 2.0 * w[c] * product + w[c] * w[c] * own) / u / u / u
        # Q > 0 unless r^2 underflows: -r < 0 is no eigenvalue of the Laplacian of any of the graphs
        b = max(b, _TINY)
        s = a - f.total * math.log(b)
    node[_T], node[_R], node[_S] = t, r, s
    node[_A], node[_A1], node[_A2] = a, a1, a2
    node[_B], node[_B1], node[_B2] = b, b1, b2
    node[_A3], node[_B3] = a3, b3


@kernel
def _log_sums(x, h, r):
    """Sum of h log(x + r), its slope, minus its second derivative, and sum h - r slope."""
    value, slope, bend, rest = 0.0, 0.0, 0.0, 0.0
    for c in range(x.shape[0]):
        inverse = 1.0 / (x[c] + r)
        value += h[c] * math.log(x[c] + r)
        slope += h[c] * inverse
        bend += h[c] * inverse * inverse
        rest += h[c] * inverse * x[c]
    return value, slope, bend, rest


@kernel
def _slopes(f, node):
    """First and second derivative of S in log r."""
    r = node[_R]
    if f.parts.shape[0] > 0:
        tilt = node[_B1] / node[_B]
        first = r * (node[_A1] - f.total * tilt)
        second = -node[_A2] - f.total * (node[_B2] / node[_B] - tilt * tilt)
    else:
        # where r exceeds the weights by far, A' and B' have the same leading digits
        few = node[_A3] + node[_B3] < f.total
        first = node[_B3] - node[_A3] if few else r * (node[_A1] - node[_B1])
        second = node[_B2] - node[_A2]
    return first, first + r * r * second


@kernel
def _climb(f, node, left, right, trial):
    """Newton's method in log r, uphill from `node` (updated) to a local maximum in left..right."""
    stride = 2.0  # where S is not concave, and the most that is trusted where it is
    for _ in range(100):
        first, second = _slopes(f, node)
        step = -first / second if second < 0.0 else math.copysign(stride, first)
        step = min(max(step, -stride), stride)
        climbed = False
        for _ in range(40):
            t = min(max(node[_T] + step, left), right)
            step = t - node[_T]
            if abs(step) < 1e-9:
                break
            _evaluate(f, t, trial)
            if trial[_S] >= node[_S]:
                climbed = True
                break
            step *= 0.25
        if not climbed:
            break
        copy_into(trial, node)
        if abs(step) < 1e-6:  # Newton's method squares it: what is left is lost in rounding
            break
        stride = 2.0 * abs(step) + 1.0


@kernel
def _highest(f, start, ends, best, trial):
    """Climb from log r = `start` to `best`, the greatest S where there is one maximum only.

    Where S is so flat that rounding stops the climb, an end may be higher: the first and the last
    of `ends` are filled with them.
    """
    _evaluate(f, min(max(start, f.left), f.right), best)
    _climb(f, best, f.left, f.right, trial)
    _evaluate(f, f.right, ends[-1])
    _evaluate(f, f.left, ends[0])
    for c in (-1, 0):
        if ends[c, _S] > best[_S]:
            copy_into(ends[c], best)
            _climb(f, best, f.left, f.right, trial)


@kernel
def _branch_and_bound(f, level, start):
    """The greatest S (plus the constant `level`) and its r, classes.

    `start` is where in log r to climb first. It does not change the maximum, only the time.
    """
    mass = 0.0
    for c in range(f.w.shape[0]):
        mass += f.w[c] * f.g[c]
    scale = max(mass / f.total, 1.0)
    best, middle, trial = np.empty(_COLUMNS), np.empty(_COLUMNS), np.empty(_COLUMNS)
    ends = np.empty((5, _COLUMNS))
    _highest(f, start, ends, best, trial)

    # Cells: a narrow one on either side of the maximum, where S can be shown concave, and the rest
    _evaluate(f, max(best[_T] - _BESIDE, f.left), ends[1])
    copy_into(best, ends[2])
    _evaluate(f, min(best[_T] + _BESIDE, f.right), ends[3])
    # depth first: one more per halving, of which _NARROW allows 50
    stack = np.empty((256, 2, _COLUMNS))
    size = 0
    for c in range(4):
        if ends[c, _T] < ends[c + 1, _T]:
            copy_into(ends[c], stack[size, 0])
            copy_into(ends[c + 1], stack[size, 1])
            size += 1
    while size > 0:
        size -= 1
        a, b = stack[size, 0], stack[size, 1]
        slack = _CLOSE * abs(best[_S] + level) + 1e-15 * (abs(a[_A]) + abs(b[_A]) + f.total)
        if _bound(a, b, f.total, scale) <= best[_S] + slack or b[_T] - a[_T] < _NARROW:
            continue
        if _concave(a, b):
            # one maximum: where the best was found, at an end, or to be found between
            known = a[_T] <= best[_T] <= b[_T]
            if not known and _slopes(f, a)[0] > 0.0 and _slopes(f, b)[0] < 0.0:
                copy_into(a if a[_S] > b[_S] else b, middle)
                _climb(f, middle, a[_T], b[_T], trial)
                if middle[_S] > best[_S]:
                    copy_into(middle, best)
            continue
        _evaluate(f, 0.5 * (a[_T] + b[_T]), middle)
        copy_into(middle, stack[size + 1, 0])
        copy_into(b, stack[size + 1, 1])
        copy_into(middle, b)
        size += 2
        if middle[_S] > best[_S] + slack:
            _climb(f, middle, f.left, f.right, trial)
            copy_into(middle, best)
    return best[_S] + level, best[_R]


@kernel
def _concave(a, b):
    """Whether S is certainly concave in r, or in log r, between two nodes (classes).

    The sums of 1 / (x + r) and of its square fall as r grows; those of r / (x + r) rise.
    """
    if a[_B2] < b[_A2]:
        return True
    p, q = a[_R], b[_R]
    return q * b[_A1] - p * p * a[_A2] < p * a[_B1] - q * q * b[_B2]


@kernel
def _bound(a, b, total, scale):
    """No S between two nodes exceeds this (classes).

    The lower of two bounds, both exact at the nodes and off by the square of the width between:

    1. in log r, A and B are convex: A lies below its chord, B above its tangents;
    2. in z = r / (scale + r), every (x + r) / (scale + r) is linear, so A and B, each less total
       log(scale + r), are concave: A lies below its tangents, B above its chord.

    The first is exact for points without votes of their own class, the second for points whose
    weight is `scale`, and nearly so for all where r exceeds the weights by far.
    """
    p, q = a[_R], b[_R]
    width = b[_T] - a[_T]
    share, floor = _meet(a[_B], p * a[_B1] * width, b[_B], q * b[_B1] * width)
    first = a[_A] + (b[_A] - a[_A]) * share - floor

    # slopes per cell: d/dz = (scale + r)^2 / scale d/dr, and z goes up by scale (q - p) / (u v);
    # A' u - total is scale A' - A3, which keeps its digits however large r is
    u, v = scale + p, scale + q
    shift_a, shift_b = total * math.log(u), total * math.log(v)
    rise_a = (scale * a[_A1] - a[_A3]) * ((q - p) / v)
    rise_b = (scale * b[_A1] - b[_A3]) * ((q - p) / u)
    share, roof = _meet(a[_A] - shift_a, rise_a, b[_A] - shift_b, rise_b)
    chord_a, chord_b = a[_B] - shift_a, b[_B] - shift_b
    second = roof - (chord_a + (chord_b - chord_a) * share)
    return max(a[_S], b[_S], min(first, second))


@kernel
def _meet(left, left_rise, right, right_rise):
    """Where tangents at the ends of a cell meet: the share of the way, and the height there."""
    share = 0.5
    if left_rise != right_rise:
        share = min(max((right - right_rise - left) / (left_rise - right_rise), 0.0), 1.0)
    return share, left + left_rise * share
