"""The posterior over k: sigma0 integrated out in closed form, sigma2/sigma0 by quadrature.

With p(sigma0) proportional to 1/sigma0, r = sigma2/sigma0 log-uniform on `ratio_bounds` and k
uniform, the integral over sigma0 is a Gamma function, and what is left of the evidence at (k, r) is
its profile (docs/theory):

    log p(y | k, r) = profile_k(r) + lgamma(a) - a log a + a,    a = m n / 2

The last terms are the same for every k and graph. The prior of log r integrates to one, so p(y | k)
is an average over r and cannot exceed its largest value: the bounds of `_race` on the best
evidence of a k bound its marginal too, and k whose bounds are low enough are never integrated.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ._jit import interruptible
from ._loo import score
from ._metrics import Metric
from ._names import (
    WEIGHTS,
    Backend,
    ChosenGraph,
    Encoding,
    Formulation,
    Graph,
    MetricName,
    Task,
    Weights,
)
from ._plan import INTEGRAL
from ._problem import RATIO_BOUNDS, Problem, Question, named, pose, span
from ._quadrature import Slice, slice_graph
from ._race import Standing, first_depth
from ._threads import Executor, Progress, map_chunks, progress_bar
from ._validation import check_executor, check_flag, check_share, one_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike

    from ._neighbors import Neighbors, Ranking

_LEVEL = 0.95  # of the intervals
# Whole k that carry less than this between them, of the probability and of the variance of a point
# without neighbours, are left out of predictions: the search for neighbours ends at the largest k
# that matters.
_DROPPED = 1e-10


@dataclass(frozen=True, eq=False)
class Mixture:
    """The models that a prediction is averaged over, in the order of k."""

    k: np.ndarray
    ratio: np.ndarray
    inverse_sigma0: np.ndarray  # the expected 1/sigma0 at (k, ratio)
    weight: np.ndarray  # sums to one


@dataclass(frozen=True, eq=False)
class Posterior:
    """What the data say about k, and the models that `predict` averages over.

    Attributes
    ----------
    k : ndarray of int
        The k considered, rising.
    probability : ndarray of float64
        p(k | data), or the weights by leave-one-out. Sums to one; 0 where k was skipped.
    log_marginal : ndarray of float64 or None
        log p(data | k), sigma0 and sigma2 integrated out; nan where k was skipped. Comparable
        between graphs and metrics for the same targets. None with ``weights="loo_log"``.
    log_score : ndarray of float64 or None
        With ``weights="loo_log"``, the leave-one-out log score of each k at its best ratio.
    mean_k : float
        The mean of k.
    interval : tuple of int
        The 95% interval of k, at most 2.5% on either side of it.
    ratio : float
        The geometric mean of sigma2/sigma0, exp of the mean of its logarithm.
    ratio_interval : tuple of float
        Its 95% interval.
    skipped_mass : float
        A bound on the probability of all k together that were not integrated.
    at_bound : ndarray of bool
        Where the density of log(sigma2/sigma0) is more than 10% of its peak at an end of
        `ratio_bounds`, so that the answer depends on them: at the lower end (nearly) every edge
        joins equal targets, at the upper end the graph explains nothing. With
        ``weights="loo_log"``, where the best ratio is at an end: at the lower one the votes of
        classes are best unsmoothed, and nothing depends on the bound.
    log_total : float
        The log of the mean over k of p(data | k) (or of exp(log_score)).
    compared : dict
        `log_total` for each (graph, metric) there was to choose from.
    graph, formulation, weights : str
        What was computed; the graph chosen if there was a choice.
    metric : str, Metric or None
        The metric, chosen if there was a choice; None for lists from `as_neighbors`, which do not
        say.
    error : float
        How far the integrals over r may be off, relatively: what two rules of the quadrature differ
        by, or where determinants are costly what one is proven to miss at most; what lies beyond
        the window; and rounding.
    classes : ndarray or None
        The labels, sorted; None for regression.
    center : bool
        Whether regression targets were centred.
    mixture : Mixture
        The values (k, ratio, expected 1/sigma0, weight) that `predict` averages over.
    """

    k: np.ndarray
    probability: np.ndarray
    log_marginal: np.ndarray | None
    log_score: np.ndarray | None
    mean_k: float
    interval: tuple[int, int]
    ratio: float
    ratio_interval: tuple[float, float]
    skipped_mass: float
    at_bound: np.ndarray
    log_total: float
    compared: dict[tuple[Graph, MetricName | Metric | None], float]
    graph: Graph
    formulation: Encoding
    weights: Weights
    metric: MetricName | Metric | None
    center: bool
    mixture: Mixture
    error: float = 0.0
    classes: np.ndarray | None = None

    @property
    def best_k(self) -> int:
        """The most probable k, the smallest among equals."""
        return int(self.k[np.argmax(self.probability)])

    def __repr__(self) -> str:
        best = int(np.argmax(self.probability))
        low, high = self.ratio_interval
        text = (
            f"Posterior({self.graph}, {self.formulation}: {span(self.k)}, "
            f"best_k={self.best_k} "
            f"(probability {self.probability[best]:.3g}), mean_k={self.mean_k:.4g}, "
            f"interval={self.interval}, ratio={self.ratio:.3g} ({low:.3g} to {high:.3g}), "
            f"weights={self.weights!r}, skipped_mass={self.skipped_mass:.2g}"
        )
        piled = float(self.probability[self.at_bound].sum())
        if piled >= 0.005 and self.weights == "evidence":
            text += f", at_bound with probability {piled:.2f}"
        return text + named(self.metric) + ")"


@interruptible
def posterior(
    X: ArrayLike | Neighbors,
    y: ArrayLike,
    *,
    weights: Weights = "evidence",
    graph: ChosenGraph = "symmetric",
    formulation: Formulation = "auto",
    task: Task = "auto",
    center: bool = True,
    ks: Iterable[int] | None = None,
    k_max: int | None = None,
    ratio_bounds: tuple[float, float] = RATIO_BOUNDS,
    metric: MetricName | Metric | Sequence[MetricName | Metric] = "euclidean",
    max_skipped: float = 1e-6,
    executor: Executor | None = None,
    progress: bool = False,
    backend: Backend = "auto",
) -> Posterior:
    """Compute the posterior distribution of k, without sampling.

    Parameters
    ----------
    X : array_like of shape (n, d), or Neighbors
        The points, or their n x n distances if ``metric="precomputed"``, or their
        :class:`Neighbors`, ranked before.
    y : array_like, shape (n,) or (n, outputs)
        Float values (regression), or class labels of any sortable type.
    weights : str
        "evidence": the posterior probabilities of k, sigma0 and sigma2 integrated out. "loo_log":
        weights proportional to exp(leave-one-out log score), each k at its best ratio.
    graph : str
        "symmetric", "mutual", or "auto" for the one of the two with the higher `log_total`. The
        weights by leave-one-out know "knn" too.
    formulation : str
        For classes: "binary" (two of them), "I" (one output per class) or "II" (differences between
        classes). "auto" is "binary" for two classes and "II" for more.
    task : str
        "regression", "classification", or "auto" to go by the type of `y`: floats are values,
        anything else is classes.
    center : bool
        Regression: take the mean off each output first.
    ks : iterable of int, optional
        The k to consider. By default 1..k_max.
    k_max : int, optional
        The largest k, by default n - 1: all of them.
    ratio_bounds : tuple of float
        The range in which sigma2/sigma0 is log-uniform a priori, within 1e-100 to 1e100.
    metric : str or Metric, or a sequence of them
        "euclidean", "manhattan", "chebyshev", "cosine" or "precomputed", or one from
        :func:`learn_metric`. Of several the one with the highest `log_total` is chosen.
    max_skipped : float
        k are skipped as long as their total probability is proven to be at most this. 0 integrates
        every k: for the variance of points without any neighbours, a mean of 1/r, that can matter
        where `ratio_bounds` reach far down.
    executor : object, optional
        Anything with ``submit(fn, *args)`` that returns futures: a ``ProcessPoolExecutor``, a
        ``dask.distributed.Client``. By default the threads of this process, which also do all that
        leave-one-out takes: little more than a ranking.
    progress : bool
        Show a tqdm progress bar; by evidence only.
    backend : str
        "auto", "lapack", "cholmod" or "superlu": what computes the determinants.

    Returns
    -------
    Posterior
        ``k``, ``probability``, ``log_marginal``, ``mean_k``, ``interval``, a summary of the ratio,
        and what :func:`predict` needs to average over all of it.

    See Also
    --------
    select_k : One k, the best, with a proof.
    predict, prepare : Predictions averaged over the posterior.
    plot_curve : Draws it.

    Notes
    -----
    The priors are uniform in k, proportional to 1/sigma0, and log-uniform in r = sigma2/sigma0 on
    `ratio_bounds`. The integral over sigma0 has a closed form; that over log r is done by
    Gauss-Legendre panels, halved until two rules agree to 1e-9 of the integral (or what the
    determinants' rounding allows, in very large problems). Where a value costs a factorization,
    the rules have as many nodes as it takes to keep what they miss proven to be below 1e-9 as well;
    `error` says what was reached.

    Choosing a graph or a metric compares probabilities of the same targets under different priors,
    and takes the higher one; it does not mix them. That is meaningful for one `y` in one
    formulation, and for metrics of the same points. It is not where `at_bound` holds at the lower
    end: the evidence of a graph that joins equal targets only grows as that bound falls, so that
    the bound decides.

    Examples
    --------
    >>> import mksknn
    >>> data = mksknn.datasets.load_new_thyroid()
    >>> found = mksknn.posterior(data.X, data.y)
    >>> found.best_k, found.interval, found.skipped_mass <= 1e-6
    (3, (3, 4), True)
    """
    one_of(weights, WEIGHTS, "weights")
    executor, progress = check_executor(executor), check_flag(progress, "progress")
    allowance = check_share(max_skipped, "max_skipped")
    by_evidence = weights == "evidence"
    question = pose(
        X,
        y,
        graph=graph,
        formulation=formulation,
        task=task,
        center=center,
        ks=ks,
        k_max=k_max,
        ratio_bounds=ratio_bounds,
        metric=metric,
        backend=backend,
        evidence=by_evidence,
        one=False,
    )
    found = []
    for ranking, one_graph in question.candidates():
        if by_evidence:
            fields = _by_evidence(question, ranking, one_graph, allowance, executor, progress)
        else:
            fields = _by_loo(question, ranking, one_graph)
        found.append({"graph": one_graph, "metric": ranking.metric, **fields})
    best = max(found, key=lambda one: one["log_total"])  # the first among equals
    return Posterior(
        compared={(one["graph"], one["metric"]): one["log_total"] for one in found},
        weights=weights,
        formulation=question.targets.formulation,
        center=question.center,
        classes=question.targets.classes,
        **best,
    )


# ---------------------------------------------------------------------------------------------
# By evidence

_ROUND = 64  # k integrated before the sum so far is taken into account


def _by_evidence(
    question: Question,
    ranking: Ranking,
    graph: Graph,
    allowance: float,
    executor: Executor | None,
    progress: bool,
) -> dict[str, Any]:
    """The fields of a Posterior by evidence."""
    with progress_bar(f"posterior, {question.called(ranking, graph)}", None, progress) as bar:
        bar.say("ranking")
        depth = first_depth(question, ranking) if allowance > 0.0 else None
        sweep = _Sweep(question.problem(ranking, graph, depth, INTEGRAL), executor, bar)
        sweep.run(allowance)
    return _summarise(sweep)


class _Sweep:
    """The slices of a problem's k, made as far as they are needed."""

    def __init__(self, problem: Problem, executor: Executor | None, progress: Progress) -> None:
        self.standing = Standing(problem, executor, progress)
        self.slices: dict[int, Slice] = {}  # by position
        self.extra = problem.targets.sigma0_integral

    def run(self, allowance: float) -> None:
        """Integrate k in the order of their bounds until the rest is proven to be negligible.

        p(y | k) is an average over r of what the evidence bounds: so the bounds of the race, plus
        what integrating sigma0 out adds, hold for it too.
        """
        standing = self.standing
        self._make(np.array([standing.lead()]), -math.inf)
        while True:
            floor = self._floor(allowance)
            standing.improve(floor)
            rivals = standing.rivals(floor)
            rivals = rivals[self._needed(rivals, allowance)]
            standing.progress.say(f"k left: {len(rivals)}")
            if not len(rivals):
                return
            if standing.anchor(floor):
                continue
            highest = np.argsort(-standing.upper[rivals], kind="stable")[:_ROUND]
            self._make(rivals[highest], floor)

    def _floor(self, allowance: float) -> float:
        """A log evidence below which all k together cannot have more than half the allowance."""
        if allowance == 0.0:
            return -math.inf
        size = len(self.standing.problem.ks)
        return self._log_total() + math.log(0.5 * allowance / size) - self.extra

    def _needed(self, rivals: np.ndarray, allowance: float) -> np.ndarray:
        """Which of the rivals, in the order of their bounds, are too heavy to be skipped."""
        if allowance == 0.0 or not len(rivals):
            return np.ones(len(rivals), np.bool_)
        order = np.argsort(-self.standing.upper[rivals], kind="stable")
        bounds = self.standing.upper[rivals][order] + self.extra
        after = np.logaddexp.accumulate(bounds[::-1])[::-1]  # of each and all that follow
        needed = np.empty(len(rivals), np.bool_)
        needed[order] = after > self._log_total() + math.log(0.5 * allowance)
        return needed

    def _make(self, positions: np.ndarray, floor: float) -> None:
        """Slice the graphs at these positions, on all workers."""
        standing = self.standing
        problem = standing.problem
        ks = problem.ks[positions]
        made = map_chunks(
            functools.partial(slice_graph, floor=floor),
            problem.for_workers(),
            ks.tolist(),
            executor=standing.executor,
            progress=standing.progress,
            threads=problem.plan.side_by_side(ks, INTEGRAL),
        )
        for at, one in zip(positions.tolist(), made, strict=True):
            if isinstance(one, Slice):
                self.slices[at] = one
                standing.settle(at)
            else:
                standing.settle(at, one.upper)

    def _log_total(self) -> float:
        """The log of the sum of p(y | k) over the k integrated so far."""
        return float(np.logaddexp.reduce([one.log_marginal for one in self.slices.values()]))


def _summarise(sweep: _Sweep) -> dict[str, Any]:
    """The fields of a Posterior, from its slices."""
    standing = sweep.standing
    problem = standing.problem
    targets, ks = problem.targets, problem.ks
    log_marginal = np.full(len(ks), np.nan)
    at_bound = np.zeros(len(ks), np.bool_)
    for at, one in sweep.slices.items():
        log_marginal[at], at_bound[at] = one.log_marginal, one.at_bound
    skipped = np.isnan(log_marginal)
    log_sum, probability = _shares(np.where(skipped, -np.inf, log_marginal))
    skipped_mass = float(np.exp(standing.upper[skipped] + sweep.extra - log_sum).sum())
    # the mean of (q + r s) / r, by which the variance of a point without neighbours grows
    freely = np.ones(len(ks))
    for at, one in sweep.slices.items():
        freely[at] = problem.roughness[ks[at]] * (one.share @ np.exp(-one.t)) + targets.norm
    spread = _shares(np.where(skipped, -np.inf, log_marginal) + np.log(freely))[1]
    parts = _heavy(np.maximum(probability, spread))
    slices = [sweep.slices[at] for at in parts.tolist()]
    k = np.repeat(ks[parts], [len(one.t) for one in slices])
    ratio = np.exp(np.concatenate([one.t for one in slices]))
    weight = np.concatenate(
        [probability[at] * one.share for at, one in zip(parts.tolist(), slices, strict=True)]
    )
    # E[1/sigma0 | k, r, y]: sigma0 has a Gamma distribution of shape m n / 2
    freedom = targets.m * targets.n - 2
    scale = problem.roughness[k] + ratio * targets.norm
    inverse = scale / freedom if freedom > 0 else np.full(len(k), np.inf)
    return {
        **_describe(
            ks,
            probability,
            Mixture(k, ratio, inverse, weight / weight.sum()),
            _quantiles(slices, probability[parts] / probability[parts].sum()),
        ),
        "log_marginal": log_marginal,
        "log_score": None,
        "skipped_mass": skipped_mass,
        "at_bound": at_bound,
        "log_total": log_sum - math.log(len(ks)),
        "error": max(one.error for one in sweep.slices.values()),
    }


def _shares(logs: np.ndarray) -> tuple[float, np.ndarray]:
    """The log of a sum of which the logs are given, and the share of each."""
    log_sum = float(np.logaddexp.reduce(logs))
    parts = np.exp(logs - log_sum)
    return log_sum, parts / parts.sum()


def _heavy(probability: np.ndarray) -> np.ndarray:
    """Positions of the k that matter: the lightest ones, `_DROPPED` in all, are left out."""
    order = np.argsort(probability, kind="stable")
    return np.sort(order[np.cumsum(probability[order]) > _DROPPED])


_TAILS = np.array([0.5 - 0.5 * _LEVEL, 0.5 + 0.5 * _LEVEL])


def _describe(
    ks: np.ndarray, probability: np.ndarray, mixture: Mixture, quantiles: np.ndarray
) -> dict[str, Any]:
    """The distributions of k and of the ratio in a few numbers."""
    ends = np.searchsorted(np.cumsum(probability), _TAILS)
    return {
        "k": ks,
        "probability": probability,
        "mean_k": float(probability @ ks),
        "interval": (int(ks[ends[0]]), int(ks[min(ends[1], len(ks) - 1)])),
        "ratio": math.exp(float(mixture.weight @ np.log(mixture.ratio))),
        "ratio_interval": (math.exp(quantiles[0]), math.exp(quantiles[1])),
        "mixture": mixture,
    }


def _quantiles(slices: list[Slice], weight: np.ndarray) -> np.ndarray:
    """Of log r, where it has these distributions with these weights."""

    def below(t: np.ndarray) -> np.ndarray:
        parts = zip(slices, weight.tolist(), strict=True)
        return sum(share * np.interp(t, one.places, one.below) for one, share in parts)

    low = np.full(2, min(one.places[0] for one in slices))
    high = np.full(2, max(one.places[-1] for one in slices))
    while (high - low).max() > 1e-9:
        middle = 0.5 * (low + high)
        short = below(middle) < _TAILS
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return 0.5 * (low + high)


# ---------------------------------------------------------------------------------------------
# By leave-one-out


def _by_loo(question: Question, ranking: Ranking, graph: Graph) -> dict[str, Any]:
    """The fields of a Posterior by leave-one-out log scores."""
    scored = score(question, ranking, graph)
    ks, targets = question.ks, question.targets
    log_score, ratio = scored.log_score, scored.ratio
    log_sum, probability = _shares(log_score)
    parts = _heavy(probability)
    scale = scored.roughness[ks[parts]] + ratio[parts] * targets.norm
    weight = probability[parts] / probability[parts].sum()
    mixture = Mixture(ks[parts], ratio[parts], scale / (targets.m * targets.n), weight)
    order = np.argsort(mixture.ratio, kind="stable")
    t, weight = np.log(mixture.ratio[order]), weight[order]
    return {
        **_describe(
            ks, probability, mixture, np.interp(_TAILS, np.cumsum(weight) - 0.5 * weight, t)
        ),
        "log_marginal": None,
        "log_score": log_score,
        "skipped_mass": 0.0,
        "at_bound": np.isin(ratio, question.ratio_bounds),
        "log_total": log_sum - math.log(len(ks)),
    }
