"""The best k, by evidence or by leave-one-out."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ._bounds import all_dense, bounds_pay, race_on, select_by_bounds, select_by_race
from ._evidence import (
    EVIDENCE_GRAPHS,
    RATIO_BOUNDS,
    Profile,
    evaluate,
    evaluate_all,
    pose,
)
from ._logdet import BACKENDS, open_graph
from ._loo import score
from ._validation import METRICS, check_executor, check_flag, one_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike

    from ._threads import Executor

CRITERIA = ("evidence", "loo", "loo_log")


@dataclass(frozen=True, eq=False)
class Selection:
    """The k selected, and what `predict` needs to use it.

    Attributes
    ----------
    k : int
        The number of neighbours.
    sigma0, sigma2 : float or None
        The hyperparameters that go with it; None with ``criterion="loo"``, which has none. With
        "loo_log" their ratio is the one that scores best, and sigma0 the one of highest evidence
        at that ratio.
    log_evidence : float or None
        The evidence at k, sigma0 and sigma2; None for the "knn" graph, which has none.
    graph, formulation, criterion : str
        What was selected, and by what.
    certified : bool
        True when every other k is proven to be no better.
    evaluated : ndarray of int
        The k whose criterion was computed, or for the evidence of dense graphs, which were
        inverted to bound the others; every other k was ruled out by bounds.
    at_bound : bool
        True when sigma2/sigma0 stopped at an end of `ratio_bounds`, having no peak within them: at
        the lower one because (nearly) every edge joins equal targets, at the upper one because the
        graph explains nothing.
    metric : str
        The metric of the ranking.
    center : bool
        Whether regression targets were centred.
    """

    k: int
    sigma0: float | None
    sigma2: float | None
    log_evidence: float | None
    graph: str
    formulation: str
    criterion: str
    certified: bool
    evaluated: np.ndarray
    at_bound: bool
    metric: str = "euclidean"
    center: bool = True

    def __repr__(self) -> str:
        parts = [f"k={self.k}"]
        if self.sigma0 is not None:
            parts += [f"sigma0={self.sigma0:.6g}", f"sigma2={self.sigma2:.6g}"]
        if self.log_evidence is not None:
            parts.append(f"log_evidence={self.log_evidence:.4f}")
        parts += [f"graph={self.graph!r}", f"formulation={self.formulation!r}"]
        parts.append(f"criterion={self.criterion!r}")
        count = len(self.evaluated)
        parts.append(f"certified={self.certified} by {count} evaluation{'s' * (count != 1)}")
        if self.at_bound:
            parts.append("at_bound=True")
        return f"Selection({', '.join(parts)})"


def select_k(
    X: ArrayLike,
    y: ArrayLike,
    *,
    criterion: str = "evidence",
    graph: str = "symmetric",
    formulation: str = "auto",
    task: str = "auto",
    center: bool = True,
    ks: Iterable[int] | None = None,
    k_max: int | None = None,
    sigma0: float | None = None,
    sigma2: float | None = None,
    ratio_bounds: tuple[float, float] = RATIO_BOUNDS,
    metric: str | Sequence[str] = "euclidean",
    executor: Executor | None = None,
    progress: bool = False,
    backend: str = "auto",
) -> Selection:
    """Select the best k over all k, sigma0 and sigma2.

    Parameters
    ----------
    X : array_like, shape (n, d)
        The points, or their n x n distances if ``metric="precomputed"``.
    y : array_like, shape (n,) or (n, outputs)
        Float values (regression), or class labels of any sortable type.
    criterion : str
        "evidence": the highest Bayesian evidence, found with a proof. "loo": the least
        leave-one-out error. "loo_log": the highest leave-one-out log score.
    graph : str
        "symmetric" or "mutual", or "auto" for the better of the two by the criterion; the
        leave-one-out criteria know "knn" too.
    metric : str or sequence of str
        As in :func:`evidence_curve`, or several of them to choose from by the criterion.
    formulation, task, center, ks, k_max, sigma0, sigma2, ratio_bounds, executor, progress, backend
        As in :func:`evidence_curve`. The leave-one-out criteria take no sigmas.

    Returns
    -------
    Selection
        ``k``, ``sigma0``, ``sigma2`` and how they were found; pass it to :func:`predict`.
        ``graph`` and ``metric`` are the ones chosen, and ``evaluated`` is theirs.

    Notes
    -----
    Choosing a graph or a metric compares the evidence of the same targets under different priors.
    That is meaningful for one `y` in one formulation, and for metrics of the same points; not if
    the winner is ``at_bound`` at the lower end of `ratio_bounds`, which then decides how high its
    evidence is.

    Examples
    --------
    >>> import mksknn
    >>> data = mksknn.datasets.load_new_thyroid()
    >>> best = mksknn.select_k(data.X, data.y)
    >>> best.k, best.certified, len(best.evaluated) < 20
    (3, True, True)
    """
    one_of(criterion, CRITERIA, "criterion")
    executor, progress = check_executor(executor), check_flag(progress, "progress")
    found = []
    for one_graph, one_metric in candidates(graph, metric):
        options = {
            "graph": one_graph,
            "formulation": formulation,
            "task": task,
            "center": center,
            "ks": ks,
            "k_max": k_max,
            "sigma0": sigma0,
            "sigma2": sigma2,
            "ratio_bounds": ratio_bounds,
            "metric": one_metric,
            "backend": backend,
        }
        if criterion == "evidence":
            found.append(_select_by_evidence(X, y, executor, progress, **options))
        else:
            found.append(_select_by_loo(X, y, criterion, **options))
    return max(found, key=lambda one: one[0])[1]  # the first among equals


def _select_by_evidence(X, y, executor, progress: bool, **options) -> tuple[float, Selection]:
    """The highest evidence, and the selection it leads to."""
    problem = pose(X, y, **options)
    if bounds_pay(problem):
        k, best, evaluated = select_by_bounds(problem, progress)
    elif not all_dense(problem):
        race = select_by_race if executor is None else functools.partial(race_on, executor)
        k, best, evaluated = race(problem, progress)
    else:
        found = evaluate_all(problem, executor, progress)
        k = int(problem.ks[np.argmax([one.log_evidence for one in found])])
        best, evaluated = evaluate(problem, k), problem.ks  # once more from nothing, as `_choose`
    return best.log_evidence, Selection(
        k=k,
        sigma0=best.sigma0,
        sigma2=best.sigma2,
        log_evidence=best.log_evidence,
        graph=options["graph"],
        formulation=problem.targets.formulation,
        criterion="evidence",
        certified=True,
        evaluated=evaluated,
        at_bound=best.at_bound,
        metric=options["metric"],
        center=options["center"],
    )


def candidates(graph: object, metric: object) -> list[tuple[object, object]]:
    """The (graph, metric) to choose from: both graphs if "auto", each metric of a sequence."""
    graphs = EVIDENCE_GRAPHS if isinstance(graph, str) and graph == "auto" else (graph,)
    metrics = [metric]
    if isinstance(metric, list | tuple):
        metrics = list(dict.fromkeys(one_of(one, METRICS, "metric") for one in metric))
        if not metrics or ("precomputed" in metrics and len(metrics) > 1):
            raise ValueError(
                "metric must be one name, or a sequence of metrics of the same points "
                f"(not 'precomputed'); got {metric!r}"
            )
    return [(graph, metric) for metric in metrics for graph in graphs]


# ---------------------------------------------------------------------------------------------
# Leave-one-out


def _select_by_loo(
    X: ArrayLike,
    y: ArrayLike,
    criterion: str,
    *,
    sigma0,
    sigma2,
    backend: str,
    **options,
) -> tuple[float, Selection]:
    """The best leave-one-out score, and the selection it leads to."""
    one_of(backend, BACKENDS, "backend")
    for name, value in (("sigma0", sigma0), ("sigma2", sigma2)):
        if value is not None:
            raise ValueError(f"{name} must be None with criterion={criterion!r}; got {value!r}")
    by_score = criterion == "loo_log"
    scored = score(X, y, log_score=by_score, **options)
    ks, targets = scored.ks, scored.targets
    scores = scored.log_score if by_score else -scored.error
    best = int(np.argmax(scores))
    k = int(ks[best])
    sigma0, sigma2, log_evidence, at_bound = None, None, None, False
    if by_score:
        ratio, q = float(scored.ratio[best]), float(scored.roughness[k])
        at_bound = ratio in scored.ratio_bounds
        profile = Profile(targets.n, targets.m, targets.norm, targets.constant, q)
        sigma0, sigma2 = profile.sigma0(ratio), ratio * profile.sigma0(ratio)
        if options["graph"] != "knn":
            opened = open_graph(scored.pairs, k, False, backend)
            log_evidence = profile.value(ratio, opened.logdet(ratio))
    return float(scores.max()), Selection(
        k=k,
        sigma0=sigma0,
        sigma2=sigma2,
        log_evidence=log_evidence,
        graph=options["graph"],
        formulation=targets.formulation,
        criterion=criterion,
        certified=True,
        evaluated=ks,
        at_bound=at_bound,
        metric=options["metric"],
        center=options["center"],
    )
