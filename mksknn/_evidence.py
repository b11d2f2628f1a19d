"""The evidence at given values, and of every k at its best sigma0 and sigma2.

With r = sigma2/sigma0, q = tr(Y' L_k Y) and s = |Y|^2 the best sigma0 at a given r has a closed
form, and what is left is one search in log r, over a profile with a single peak (docs/theory).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ._enclosures import Enclosure, enclose_chunk
from ._jit import interruptible
from ._metrics import Metric
from ._names import Backend, Encoding, EvidenceGraph, Formulation, Graph, MetricName, Task
from ._plan import ONE, open_graph
from ._problem import RATIO_BOUNDS, Problem, pose, shown, span
from ._threads import Executor, map_chunks, progress_bar
from ._validation import check_executor, check_flag

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike

    from ._neighbors import Neighbors


@dataclass(frozen=True, eq=False)
class EvidenceCurve:
    """The log evidence of every k, at the best (or the given) sigma0 and sigma2 of each.

    Attributes
    ----------
    k : ndarray of int
        The k evaluated, rising.
    log_evidence, sigma0, sigma2 : ndarray of float64
        The evidence of each k and the hyperparameters it is reached at.
    at_bound : ndarray of bool
        Where sigma2/sigma0 stopped at an end of `ratio_bounds`: the lower end means that (nearly)
        every edge joins equal targets and the evidence has no peak, the upper end that the graph
        explains nothing.
    graph, formulation : str
        What was computed.
    """

    k: np.ndarray
    log_evidence: np.ndarray
    sigma0: np.ndarray
    sigma2: np.ndarray
    at_bound: np.ndarray
    graph: Graph
    formulation: Encoding

    @property
    def best_k(self) -> int:
        """The k of highest evidence, the smallest among equals."""
        return int(self.k[np.argmax(self.log_evidence)])

    def __repr__(self) -> str:
        best = np.argmax(self.log_evidence)
        return (
            f"EvidenceCurve({self.graph}, {self.formulation}: {span(self.k)}, "
            f"best_k={self.best_k}, "
            f"log_evidence={shown(self.log_evidence[best])}"
            f"{', at_bound' if self.at_bound[best] else ''})"
        )


@interruptible
def evidence_curve(
    X: ArrayLike | Neighbors,
    y: ArrayLike,
    *,
    graph: EvidenceGraph = "symmetric",
    formulation: Formulation = "auto",
    task: Task = "auto",
    center: bool = True,
    ks: Iterable[int] | None = None,
    k_max: int | None = None,
    sigma0: float | None = None,
    sigma2: float | None = None,
    ratio_bounds: tuple[float, float] = RATIO_BOUNDS,
    metric: MetricName | Metric = "euclidean",
    executor: Executor | None = None,
    progress: bool = False,
    backend: Backend = "auto",
) -> EvidenceCurve:
    """Compute the log evidence of every k, each at its best sigma0 and sigma2.

    Parameters
    ----------
    X : array_like of shape (n, d), or Neighbors
        The points, or their n x n distances if ``metric="precomputed"``, or their
        :class:`Neighbors`, ranked before.
    y : array_like, shape (n,) or (n, outputs)
        Float values (regression), or class labels of any sortable type.
    graph : str
        "symmetric" or "mutual".
    formulation : str
        For classes: "binary" (two of them), "I" (one output per class) or "II" (differences between
        classes). "auto" is "binary" for two classes and "II" for more.
    task : str
        "regression", "classification", or "auto" to go by the type of `y`: floats are values,
        anything else is classes.
    center : bool
        Regression: take the mean off each output first.
    ks : iterable of int, optional
        The k to evaluate. By default 1..k_max.
    k_max : int, optional
        The largest k, by default n - 1.
    sigma0, sigma2 : float, optional
        Fixed hyperparameters, both or neither. By default the best of each k.
    ratio_bounds : tuple of float
        The range in which sigma2/sigma0 is searched, within 1e-100 to 1e100.
    metric : str or Metric
        "euclidean", "manhattan", "chebyshev", "cosine" or "precomputed", or one from
        :func:`learn_metric`.
    executor : object, optional
        Anything with ``submit(fn, *args)`` that returns futures: a ``ProcessPoolExecutor``, a
        ``dask.distributed.Client``. By default the threads of this process.
    progress : bool
        Show a tqdm progress bar.
    backend : str
        "auto", "lapack", "cholmod" or "superlu": what computes the determinants.

    Returns
    -------
    EvidenceCurve
        The evidence, sigma0, sigma2 and ``at_bound`` of each k; ``best_k``.

    See Also
    --------
    select_k : The best k without evaluating all of them.
    log_evidence : The evidence of one k at given sigma0 and sigma2.
    plot_curve : Draws it.

    Examples
    --------
    >>> import mksknn
    >>> data = mksknn.datasets.load_new_thyroid()
    >>> curve = mksknn.evidence_curve(data.X, data.y, k_max=20)
    >>> curve
    EvidenceCurve(symmetric, II: k=1..20 (20 values), best_k=3, log_evidence=-104.1906)
    """
    executor, progress = check_executor(executor), check_flag(progress, "progress")
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
    )
    with progress_bar(f"ranking {question.ks[-1]} neighbours", 1, progress) as bar:
        problem = question.problem(*next(question.candidates()))
        bar.update()
    found = [one.optimum for one in evaluate_all(problem, executor, progress)]
    return EvidenceCurve(
        k=problem.ks,
        log_evidence=np.array([one.log_evidence for one in found]),
        sigma0=np.array([one.sigma0 for one in found]),
        sigma2=np.array([one.sigma2 for one in found]),
        at_bound=np.array([one.at_bound for one in found]),
        graph=problem.pairs.graph,
        formulation=problem.targets.formulation,
    )


# Neighbouring k of a sparse sweep share a starting point for the search in r. Dense ones do not
# need any.
_SPARSE_CHUNK = 5


def evaluate_all(problem: Problem, executor: Executor | None, progress: bool) -> list[Enclosure]:
    """The evidence of every k of the problem."""
    sparse = problem.ks[problem.ks < problem.plan.dense_from]
    dense = problem.ks[len(sparse) :]
    chunks = [sparse[at : at + _SPARSE_CHUNK] for at in range(0, len(sparse), _SPARSE_CHUNK)]
    chunks += [dense[at : at + 1] for at in range(len(dense))]
    found = map_chunks(
        enclose_chunk,
        problem.for_workers(),
        chunks,
        executor=executor,
        threads=problem.plan.side_by_side(problem.ks, problem.values(whole=True)),
        progress=progress,
    )
    return [one for chunk in found for one in chunk]


# ---------------------------------------------------------------------------------------------
# Given values


@interruptible
def log_evidence(
    X: ArrayLike | Neighbors,
    y: ArrayLike,
    k: int,
    *,
    sigma0: float,
    sigma2: float,
    graph: EvidenceGraph = "symmetric",
    formulation: Formulation = "auto",
    task: Task = "auto",
    center: bool = True,
    return_gradient: bool = False,
    metric: MetricName | Metric = "euclidean",
    backend: Backend = "auto",
) -> float | tuple[float, np.ndarray]:
    """Compute the log evidence of one k at given sigma0 and sigma2.

    Parameters
    ----------
    X : array_like of shape (n, d), or Neighbors
        The points, or their n x n distances if ``metric="precomputed"``, or their
        :class:`Neighbors`, ranked before.
    y : array_like, shape (n,) or (n, outputs)
        Float values (regression), or class labels.
    k : int
        Number of neighbours, from 1 to n - 1.
    sigma0 : float
        Weight of an edge in the prior precision, > 0.
    sigma2 : float
        What is added to the diagonal of the precision, > 0 (the paper's sigma squared).
    graph : str
        "symmetric" or "mutual".
    formulation : str
        For classes: "binary" (two of them), "I" (one output per class) or "II" (differences between
        classes). "auto" is "binary" for two classes and "II" for more.
    task : str
        "regression", "classification", or "auto" to go by the type of `y`: floats are values,
        anything else is classes.
    center : bool
        Regression: take the mean off each output first.
    return_gradient : bool
        Return the gradient too.
    metric : str or Metric
        "euclidean", "manhattan", "chebyshev", "cosine" or "precomputed", or one from
        :func:`learn_metric`.
    backend : str
        "auto", "lapack", "cholmod" or "superlu": what computes the determinant.

    Returns
    -------
    float, or (float, ndarray of shape (2,))
        The log evidence, and if asked for its derivatives by sigma0 and sigma2.

    See Also
    --------
    evidence_curve : Every k, each at its best sigma0 and sigma2.

    Examples
    --------
    >>> import mksknn
    >>> value, gradient = mksknn.log_evidence(
    ...     [[0.0], [1.0], [3.0]], ["a", "a", "b"], 1, sigma0=1.0, sigma2=0.5, return_gradient=True
    ... )
    >>> round(value, 6), gradient.round(6).tolist()
    (-4.741077, [-1.189189, -0.121622])
    """
    if sigma0 is None or sigma2 is None:
        name = "sigma0" if sigma0 is None else "sigma2"
        raise TypeError(f"{name} must be a number > 0; got None")
    if k is None:
        raise TypeError("k must be an integer from 1 to n - 1; got None")
    question = pose(
        X,
        y,
        graph=graph,
        formulation=formulation,
        task=task,
        center=center,
        k=k,
        sigma0=sigma0,
        sigma2=sigma2,
        metric=metric,
        backend=backend,
    )
    problem = question.problem(*next(question.candidates()))
    assert problem.sigmas is not None
    k, sigma0, ratio = int(problem.ks[0]), problem.sigmas[0], problem.ratio
    profile, opened = problem.profile(k), open_graph(problem.pairs, k, problem.plan, ONE)
    value = profile.value_at(sigma0, ratio, opened.logdet(ratio))
    if not check_flag(return_gradient, "return_gradient"):
        return value
    trace = opened.trace_inverse(ratio)
    by_sigma0 = 0.5 * (profile.m * (profile.n - ratio * trace) / sigma0 - profile.roughness)
    by_sigma2 = 0.5 * (profile.m * trace / sigma0 - profile.norm)
    return value, np.array([by_sigma0, by_sigma2])
