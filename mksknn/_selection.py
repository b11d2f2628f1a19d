"""The best k, by evidence or by leave-one-out."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ._jit import interruptible
from ._loo import Scored, score
from ._metrics import Metric
from ._names import (
    CRITERIA,
    Backend,
    ChosenGraph,
    Criterion,
    Encoding,
    Formulation,
    Graph,
    MetricName,
    Task,
)
from ._plan import ONE, make_plan, open_graph
from ._problem import RATIO_BOUNDS, Question, named, pose, shown
from ._race import find_best, first_depth
from ._threads import Executor, one_thread_each, progress_bar
from ._validation import check_executor, check_flag, one_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike

    from ._neighbors import Neighbors, Ranking


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
        at that ratio (of the "knn" graph: of the mean of its two directions).
    log_evidence : float or None
        The evidence at k, sigma0 and sigma2; None for the "knn" graph, which has none.
    graph, formulation, criterion : str
        What was selected, and by what.
    certified : bool
        True when every other k is proven to be no better: computed from `margin`.
    evaluated : ndarray of int
        The k of which any determinant was computed (leave-one-out: whose score was); every other k
        was ruled out by bounds.
    at_bound : bool
        True when sigma2/sigma0 stopped at an end of `ratio_bounds`, having no peak within them: at
        the lower one because (nearly) every edge joins equal targets, at the upper one because the
        graph explains nothing. With "loo_log" and classes the lower one only says that their votes
        are best unsmoothed.
    metric : str, Metric or None
        The metric of the ranking; None for lists from `as_neighbors`, which do not say.
    center : bool
        Whether regression targets were centred.
    margin : float
        By evidence: the best log evidence minus the highest upper bound of any other k, in nats,
        rounding allowed for; 0 for an exact draw, infinite where there was one k only. By
        leave-one-out: the best score minus the next.
    at_k_max : bool
        True when k is the largest k allowed and larger ones exist: then the limit decided.
    compared : dict
        The criterion's best value for each (graph, metric) there was to choose from; by "loo" minus
        the error, so that the highest wins.
    classes : ndarray or None
        The labels, sorted; None for regression.
    """

    k: int
    sigma0: float | None
    sigma2: float | None
    log_evidence: float | None
    graph: Graph
    formulation: Encoding
    criterion: Criterion
    certified: bool
    evaluated: np.ndarray
    at_bound: bool
    metric: MetricName | Metric | None = "euclidean"
    center: bool = True
    margin: float = np.inf
    at_k_max: bool = False
    compared: dict[tuple[Graph, MetricName | Metric | None], float] = field(default_factory=dict)
    classes: np.ndarray | None = None

    def __repr__(self) -> str:
        parts = [f"k={self.k}"]
        if self.sigma0 is not None:
            parts += [f"sigma0={self.sigma0:.6g}", f"sigma2={self.sigma2:.6g}"]
        if self.log_evidence is not None:
            parts.append(f"log_evidence={shown(self.log_evidence)}")
        parts += [f"graph={self.graph!r}", f"formulation={self.formulation!r}"]
        parts.append(f"criterion={self.criterion!r}")
        count = len(self.evaluated)
        parts.append(f"certified={self.certified} by {count} evaluation{'s' * (count != 1)}")
        if self.at_bound:
            parts.append("at_bound=True")
        if self.at_k_max:
            parts.append("at_k_max=True: larger k may be better")
        return f"Selection({', '.join(parts)}{named(self.metric)})"


@interruptible
def select_k(
    X: ArrayLike | Neighbors,
    y: ArrayLike,
    *,
    criterion: Criterion = "evidence",
    graph: ChosenGraph = "symmetric",
    formulation: Formulation = "auto",
    task: Task = "auto",
    center: bool = True,
    ks: Iterable[int] | None = None,
    k_max: int | None = None,
    sigma0: float | None = None,
    sigma2: float | None = None,
    ratio_bounds: tuple[float, float] = RATIO_BOUNDS,
    metric: MetricName | Metric | Sequence[MetricName | Metric] = "euclidean",
    executor: Executor | None = None,
    progress: bool = False,
    backend: Backend = "auto",
) -> Selection:
    """Select the best k over all k, sigma0 and sigma2.

    Parameters
    ----------
    X : array_like of shape (n, d), or Neighbors
        The points, or their n x n distances if ``metric="precomputed"``, or their
        :class:`Neighbors`, ranked before.
    y : array_like, shape (n,) or (n, outputs)
        Float values (regression), or class labels of any sortable type.
    criterion : str
        "evidence": the highest Bayesian evidence, found with a proof. "loo": the least
        leave-one-out error. "loo_log": the highest leave-one-out log score.
    graph : str
        "symmetric" or "mutual", or "auto" for the better of the two by the criterion; the
        leave-one-out criteria know "knn" too.
    formulation : str
        For classes: "binary" (two of them), "I" (one output per class) or "II" (differences between
        classes). "auto" is "binary" for two classes and "II" for more.
    task : str
        "regression", "classification", or "auto" to go by the type of `y`: floats are values,
        anything else is classes.
    center : bool
        Regression: take the mean off each output first.
    ks : iterable of int, optional
        The k to choose from. By default 1..k_max.
    k_max : int, optional
        The largest k, by default n - 1: all of them.
    sigma0, sigma2 : float, optional
        Fixed hyperparameters, both or neither; not with the leave-one-out criteria. By default the
        best of each k.
    ratio_bounds : tuple of float
        The range in which sigma2/sigma0 is searched, within 1e-100 to 1e100.
    metric : str or Metric, or a sequence of them
        "euclidean", "manhattan", "chebyshev", "cosine" or "precomputed", or one from
        :func:`learn_metric`. Of several the criterion chooses one.
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
    Selection
        ``k``, ``sigma0``, ``sigma2`` and how they were found; pass it to :func:`predict`.
        ``graph`` and ``metric`` are the ones chosen, and ``evaluated`` is theirs.

    See Also
    --------
    posterior : How probable every k is, in place of one choice.
    evidence_curve : The evidence of every k, to look at.
    loo_curve : The leave-one-out scores of every k.
    predict, prepare : Use the choice.

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
    by_evidence = criterion == "evidence"
    if not by_evidence:
        for name, value in (("sigma0", sigma0), ("sigma2", sigma2)):
            if value is not None:
                raise ValueError(f"{name} must be None with criterion={criterion!r}; got {value!r}")
    question = pose(
        X,
        y,
        graph=graph,
        formulation=formulation,
        task=task,
        center=center,
        ks=ks,
        k_max=k_max,
        sigma0=sigma0,
        sigma2=sigma2,
        ratio_bounds=ratio_bounds,
        metric=metric,
        backend=backend,
        evidence=by_evidence,
        fitted=criterion != "loo",
        one=False,
    )
    found = []
    for ranking, one_graph in question.candidates():
        if by_evidence:
            value, fields = _by_evidence(question, ranking, one_graph, executor, progress)
        else:
            value, fields = _by_loo(question, ranking, one_graph, criterion)
        found.append((value, {"graph": one_graph, "metric": ranking.metric, **fields}))
    best, fields = max(found, key=lambda one: one[0])  # the first among equals
    return Selection(
        formulation=question.targets.formulation,
        criterion=criterion,
        center=question.center,
        at_k_max=question.limited and fields["k"] == question.ks[-1],
        compared={(one["graph"], one["metric"]): value for value, one in found},
        classes=question.targets.classes,
        **fields,
    )


def _by_evidence(
    question: Question, ranking: Ranking, graph: Graph, executor: Executor | None, progress: bool
) -> tuple[float, dict]:
    """The highest evidence, and the selection it leads to."""
    # One hold for all that is computed here: 27 were made for 200 points (4-D), which took 0.1 ms
    # each on a busy machine, and 0.01 inside another. Nobody is held while others compute.
    hold = one_thread_each() if executor is None else nullcontext()
    with progress_bar(f"select_k, {question.called(ranking, graph)}", None, progress) as bar, hold:
        bar.say("ranking")
        problem = question.problem(ranking, graph, first_depth(question, ranking))
        standing = find_best(problem, executor, bar)
    best = standing.enclosed[standing.best].optimum
    return best.log_evidence, {
        "k": int(question.ks[standing.best]),
        **asdict(best),
        "certified": standing.certified,
        "evaluated": standing.evaluated,
        "margin": standing.margin,
    }


def _by_loo(
    question: Question, ranking: Ranking, graph: Graph, criterion: Criterion
) -> tuple[float, dict]:
    """The best leave-one-out score, and the selection it leads to."""
    by_score = criterion == "loo_log"
    scored = score(question, ranking, graph, log_score=by_score)
    scores = scored.log_score if by_score else 0.0 - scored.error
    best = int(np.argmax(scores))
    k = int(question.ks[best])
    others = np.delete(scores, best)
    fields = {
        "k": k,
        "sigma0": None,
        "sigma2": None,
        "log_evidence": None,
        "certified": True,
        "evaluated": question.ks,
        "at_bound": False,
        "margin": float(scores[best] - others.max()) if len(others) else np.inf,
    }
    if by_score:
        fields |= _sigmas_of_score(question, scored, k, float(scored.ratio[best]))
    return float(scores[best]), fields


def _sigmas_of_score(question: Question, scored: Scored, k: int, ratio: float) -> dict:
    """The sigmas that go with a ratio found by leave-one-out, and the evidence there."""
    profile, bounds = scored.profile(k), question.ratio_bounds
    if scored.graph == "knn":  # it has no evidence
        return asdict(profile.optimum(ratio, 0.0, bounds)) | {"log_evidence": None}
    plan = make_plan(scored.pairs, question.backend, question.memory)
    opened = open_graph(scored.pairs, k, plan, ONE)
    return asdict(profile.optimum(ratio, opened.logdet(ratio), bounds))
