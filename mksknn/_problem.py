"""The problem of a call, posed once: points or neighbours, targets and options, all checked.

Every public function about k is built on it. A `Question` holds what the candidates (graphs and
metrics) of one call have in common; each (points, metric) is ranked once, as deep as is needed. A
`Problem` is one candidate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from ._graphs import Pairs, gathered, pairs_by_rank
from ._metrics import Metric, check_metric, name_of
from ._names import (
    BACKENDS,
    EVIDENCE_GRAPHS,
    GRAPHS,
    Backend,
    ChosenGraph,
    Formulation,
    Graph,
    MetricName,
    Task,
)
from ._neighbors import Neighbors, Ranking, check_ranked_by, check_width
from ._plan import ONE, SEARCH, WHOLE, Orders, Plan, make_plan
from ._targets import Targets, encode
from ._validation import check_k, check_ks, check_ratio_bounds, check_sigmas, free_memory, one_of

RATIO_BOUNDS = (1e-6, 1e6)
_RATIOS = (1e-100, 1e100)  # products of a pivot and of squares of these still fit in a float
LOG_2PI = math.log(2.0 * math.pi)

_Numbers = TypeVar("_Numbers", float, np.ndarray)


def shown(log_evidence: float) -> str:
    """A log evidence as results print it: given sigmas may make it one of 200 digits."""
    return f"{log_evidence:.4f}" if abs(log_evidence) < 1e12 else f"{log_evidence:.6g}"


def span(ks: np.ndarray) -> str:
    """Some k as results print them."""
    if len(ks) == 1:
        return f"k={ks[0]}"
    return f"k={ks[0]}..{ks[-1]} ({len(ks)} values)"


def named(metric: MetricName | Metric | None) -> str:
    """How results print a metric that is not the usual one."""
    name = "euclidean" if metric is None else name_of(metric)
    return "" if name == "euclidean" else f", metric={name!r}"


@dataclass(frozen=True)
class Optimum:
    """The evidence of one k and where it is reached."""

    log_evidence: float
    sigma0: float
    sigma2: float
    at_bound: bool

    @property
    def ratio(self) -> float:
        """sigma2 / sigma0."""
        return self.sigma2 / self.sigma0


@dataclass(frozen=True)
class Profile:
    """The evidence of one graph as a function of r = sigma2/sigma0 and log|L + r I|.

    The height log|L + r I| - n log(q + r s) is what a search over r sees of it.
    """

    n: int
    m: int
    norm: float  # s
    constant: float
    roughness: Any  # q; of several graphs at once, an array

    @classmethod
    def of(cls, targets: Targets, roughness: float | np.ndarray) -> Profile:
        """The evidence of these targets, of this roughness on the graph."""
        return cls(targets.n, targets.m, targets.norm, targets.constant, roughness)

    def value(self, ratio: float, logdet: float) -> float:
        """Log evidence at the best sigma0 for this ratio."""
        return self.evidence(logdet - self.n * math.log(self._denominator(ratio)))

    def values(self, ratios: np.ndarray, logdets: np.ndarray) -> np.ndarray:
        """The same for several ratios."""
        return self.evidence(logdets - self.n * np.log(self.roughness + ratios * self.norm))

    def evidence(self, height: _Numbers) -> _Numbers:
        """Log evidence where log|L + r I| - n log(q + r s) has this height."""
        return 0.5 * self.m * (height + self._level) + self.constant

    def height(self, evidence: float) -> float:
        """The height that gives this log evidence."""
        return 2.0 * (evidence - self.constant) / self.m - self._level

    def optimum(self, ratio: float, logdet: float, bounds: tuple[float, float]) -> Optimum:
        """The evidence at a ratio found best within the bounds."""
        sigma0 = self.sigma0(ratio)
        return Optimum(self.value(ratio, logdet), sigma0, ratio * sigma0, ratio in bounds)

    def value_at(self, sigma0: float, ratio: float, logdet: _Numbers) -> _Numbers:
        """Log evidence at a given sigma0."""
        determinant = 0.5 * self.m * (self.n * math.log(sigma0) + logdet - self.n * LOG_2PI)
        return determinant - 0.5 * sigma0 * self._denominator(ratio) + self.constant

    def sigma0(self, ratio: float) -> float:
        """The best sigma0 for this ratio."""
        return self.m * self.n / self._denominator(ratio)

    @property
    def _level(self) -> float:
        return self.n * (math.log(self.m * self.n) - 1.0 - LOG_2PI)

    def _denominator(self, ratio: float) -> float:
        return self.roughness + ratio * self.norm


@dataclass(frozen=True, eq=False)
class Problem:
    """One graph of one ranking, with its targets: everything that a worker needs."""

    pairs: Pairs  # up to the depth ranked so far, numbered as `gathered` does
    targets: Targets
    roughness: np.ndarray  # q_k for k = 0..depth
    ks: np.ndarray  # all that were asked for
    ratio_bounds: tuple[float, float]
    sigmas: tuple[float, float] | None
    backend: str
    plan: Plan
    ranking: Ranking | None  # None at a worker

    def values(self, whole: bool = False) -> int:
        """How many determinants of a graph the evidence of one k takes: without a floor, below
        which nobody asks any more, it is the whole search.
        """
        if self.sigmas is not None:
            return ONE
        return WHOLE if whole else SEARCH

    @property
    def ratio(self) -> float:
        """sigma2 / sigma0, where they are given."""
        assert self.sigmas is not None
        return self.sigmas[1] / self.sigmas[0]

    @property
    def depth(self) -> int:
        """The largest k whose graph is at hand."""
        return self.pairs.k_max

    def profile(self, k: int) -> Profile:
        """The evidence of graph k."""
        return Profile.of(self.targets, float(self.roughness[k]))

    def deepened(self, depth: int) -> Problem:
        """The same problem with more of the graphs at hand."""
        assert self.ranking is not None
        pairs, plan = pairs_by_rank(self.ranking.to(depth), self.pairs.graph), self.plan
        roughness, pairs = self.targets.roughness(pairs), gathered(pairs)
        if plan.dense_from > self.depth:
            plan = make_plan(pairs, self.backend, plan.memory, plan.most)
        else:  # it is known which graphs are dense
            plan = replace(plan, orders=Orders(plan.memory))
        return replace(self, pairs=pairs, roughness=roughness, plan=plan)

    def for_workers(self) -> Problem:
        """Without the points, which no worker needs."""
        return replace(self, ranking=None)


@dataclass(frozen=True, eq=False)
class Question:
    """The arguments of a call, checked."""

    rankings: list[Ranking]  # one for each metric
    graphs: tuple[Graph, ...]
    targets: Targets
    ks: np.ndarray
    ratio_bounds: tuple[float, float]
    sigmas: tuple[float, float] | None
    backend: str
    center: bool
    memory: float | None  # bytes free when the call was made

    @property
    def limited(self) -> bool:
        """Whether larger k exist than the largest asked for."""
        return int(self.ks[-1]) < self.targets.n - 1

    def candidates(self) -> Iterator[tuple[Ranking, Graph]]:
        """The (ranking, graph) to choose from."""
        return ((ranking, graph) for ranking in self.rankings for graph in self.graphs)

    def called(self, ranking: Ranking, graph: Graph) -> str:
        """A candidate on a progress bar, with its metric where there are several."""
        if len(self.rankings) == 1 or ranking.metric is None:
            return graph
        return f"{graph}, {name_of(ranking.metric)}"

    def problem(
        self, ranking: Ranking, graph: Graph, depth: int | None = None, most: int = SEARCH
    ) -> Problem:
        """One candidate, ranked to the largest k or to a lesser depth; so many ratios are asked of
        a graph, at most.
        """
        depth = int(self.ks[-1]) if depth is None else depth
        pairs = pairs_by_rank(ranking.to(depth), graph)
        roughness, pairs = self.targets.roughness(pairs), gathered(pairs)
        return Problem(
            pairs=pairs,
            targets=self.targets,
            roughness=roughness,
            ks=self.ks,
            ratio_bounds=self.ratio_bounds,
            sigmas=self.sigmas,
            backend=self.backend,
            plan=make_plan(pairs, self.backend, self.memory, most),
            ranking=ranking,
        )


def pose(
    X: object,
    y: object,
    *,
    graph: object,
    metric: object,
    formulation: Formulation = "auto",
    task: Task = "auto",
    center: bool = True,
    ks: object = None,
    k_max: object = None,
    k: object = None,
    sigma0: object = None,
    sigma2: object = None,
    ratio_bounds: object = RATIO_BOUNDS,
    backend: Backend = "auto",
    evidence: bool = True,
    fitted: bool = True,
    one: bool = True,
) -> Question:
    """Check the arguments of a call.

    `k` stands for a single one; `evidence` says that the graph must have one, `fitted` that sigmas
    are wanted if not given, `one` that there is nothing to choose from.
    """
    graphs = _check_graphs(graph, evidence, one)
    metrics = _check_metrics(metric, one)
    one_of(backend, BACKENDS, "backend")
    if isinstance(X, Neighbors):
        check_ranked_by(X, metrics)
    rankings = [Ranking(X, name) for name in metrics]
    n, most = rankings[0].n, rankings[0].most
    if k is None:
        asked = check_ks(ks, k_max if ks is not None or k_max is not None else most, n)
    else:
        asked = np.array([check_k(k, n)])
    check_width(int(asked[-1]), most, "k" if k is not None else "ks" if ks is not None else "k_max")
    targets = encode(y, n, task, formulation, center, X)
    sigmas, bounds = check_sigmas(sigma0, sigma2), check_ratio_bounds(ratio_bounds)
    if evidence or fitted:
        _check_range(bounds, sigmas, targets)
    if evidence and sigmas is None and targets.norm == 0.0:
        raise ValueError(
            "y must vary: all its values are equal, so that the evidence grows without end as "
            "sigma0 does; give sigma0 and sigma2 to compute it at fixed values"
        )
    return Question(
        rankings, graphs, targets, asked, bounds, sigmas, backend, bool(center), free_memory()
    )


def _check_graphs(graph: object, evidence: bool, one: bool) -> tuple[Graph, ...]:
    if evidence and isinstance(graph, str) and graph == "knn":
        raise ValueError(
            "graph must be 'mutual' or 'symmetric' for an evidence; got 'knn', which is directed "
            "and has none: loo_curve and select_k(criterion='loo') work on it"
        )
    allowed: tuple[ChosenGraph, ...] = EVIDENCE_GRAPHS if evidence else GRAPHS
    chosen = one_of(graph, allowed if one else (*allowed, "auto"), "graph")
    return EVIDENCE_GRAPHS if chosen == "auto" else (chosen,)


def _check_metrics(metric: object, one: bool) -> list[MetricName | Metric]:
    if one or not isinstance(metric, list | tuple):
        return [check_metric(metric)]
    metrics = list(dict.fromkeys(check_metric(name) for name in metric))
    if not metrics or ("precomputed" in metrics and len(metrics) > 1):
        raise ValueError(
            "metric must be one name, or a sequence of metrics of the same points "
            f"(not 'precomputed'); got {metric!r}"
        )
    return metrics


_SIGMAS = (1e-290, 1e290)  # so that sums over outputs and points divided by one fit in a float
_SIZES = (1e-300, 1e300)  # the same for whatever is computed on the way


def _check_range(
    bounds: tuple[float, float], sigmas: tuple[float, float] | None, targets: Targets
) -> None:
    """Refuse what would over- or underflow."""
    least, largest = _RATIOS
    if not (least <= bounds[0] and bounds[1] <= largest):
        raise ValueError(
            f"ratio_bounds must lie within {least:g} to {largest:g} for an evidence and for fitted "
            f"sigmas; got {bounds}"
        )
    if sigmas is not None:
        _check_sigma_range(*sigmas, targets)
    elif targets.norm > 0.0:
        # sigma0 = m n / (q + r s), r sigma0 and the bounds, m n (2 n + r) / (q + r s), for every r.
        # q is from 0 to 4 n s: no eigenvalue of L is larger than twice the largest degree.
        (low, high), n = bounds, float(targets.n)
        smallest = targets.norm * min(low, 1.0) / (2.0 * n * n * targets.m)
        biggest = targets.norm * 4.0 * n * max(high, 1.0 / low)
        if not _SIZES[0] < smallest <= biggest < _SIZES[1]:
            raise ValueError(
                "y must have a sum of squares that fits in a float also when multiplied by "
                f"ratio_bounds or divided by them; got {targets.norm:g} (centred) with "
                f"ratio_bounds={bounds}: rescale y, or narrow ratio_bounds"
            )


def _check_sigma_range(sigma0: float, sigma2: float, targets: Targets) -> None:
    for name, value in (("sigma0", sigma0), ("sigma2", sigma2)):
        if not _SIGMAS[0] <= value <= _SIGMAS[1]:
            raise ValueError(
                f"{name} must be from {_SIGMAS[0]:g} to {_SIGMAS[1]:g} for an evidence; got {value}"
            )
    least, largest = _RATIOS
    if not least <= sigma2 / sigma0 <= largest:
        raise ValueError(
            f"sigma2/sigma0 must be from {least:g} to {largest:g}; "
            f"got sigma0={sigma0} and sigma2={sigma2}"
        )
    most = 4.0 * targets.n * (sigma0 * targets.norm) + sigma2 * targets.norm
    if not most < _SIZES[1]:
        raise ValueError(
            "sigma0 and sigma2 must have products with the squares of y that fit in a float; got "
            f"sigma0={sigma0} and sigma2={sigma2} with a sum of squares of {targets.norm:g}"
        )
