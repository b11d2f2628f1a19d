"""The evidence: at given values, at the best sigma0 and sigma2 of each k, and for every k.

With r = sigma2/sigma0, q = tr(Y' L_k Y) and s = |Y|^2 the best sigma0 at a given r has a closed
form, and what is left is one search in log r, over a profile with a single peak (docs/theory).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ._graphs import Pairs, pairs_by_rank
from ._logdet import (
    BACKENDS,
    Cholmod,
    Dense,
    Opener,
    SuperLU,
    open_graph,
    surely_dense,
)
from ._neighbors import rank
from ._targets import Targets, encode
from ._threads import map_chunks
from ._validation import (
    METRICS,
    check_executor,
    check_flag,
    check_k,
    check_ks,
    check_points,
    check_ratio_bounds,
    check_sigmas,
    one_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike

    from ._threads import Executor

EVIDENCE_GRAPHS = ("mutual", "symmetric")
RATIO_BOUNDS = (1e-6, 1e6)
_LOG_2PI = math.log(2.0 * math.pi)


@dataclass(frozen=True)
class Profile:
    """The evidence of one graph as a function of r = sigma2/sigma0 and log|L + r I|."""

    n: int
    m: int
    norm: float  # s
    constant: float
    roughness: float  # q

    def value(self, ratio: float, logdet: float) -> float:
        """Log evidence at the best sigma0 for this ratio."""
        return self.evidence(logdet - self.n * math.log(self._denominator(ratio)))

    def evidence(self, height: float) -> float:
        """Log evidence where log|L + r I| - n log(q + r s) has this height."""
        return 0.5 * self.m * (height + self._level) + self.constant

    def height(self, evidence: float) -> float:
        """The height that gives this log evidence."""
        return 2.0 * (evidence - self.constant) / self.m - self._level

    def optimum(self, ratio: float, logdet: float, bounds: tuple[float, float]) -> Optimum:
        """The evidence at a ratio found best within the bounds."""
        sigma0 = self.sigma0(ratio)
        return Optimum(self.value(ratio, logdet), sigma0, ratio * sigma0, ratio in bounds)

    def value_at(self, sigma0: float, ratio: float, logdet: float) -> float:
        """Log evidence at a given sigma0."""
        determinant = 0.5 * self.m * (self.n * math.log(sigma0) + logdet - self.n * _LOG_2PI)
        return determinant - 0.5 * sigma0 * self._denominator(ratio) + self.constant

    def sigma0(self, ratio: float) -> float:
        """The best sigma0 for this ratio."""
        return self.m * self.n / self._denominator(ratio)

    def slope(self, ratio: float, trace: float) -> float:
        """Derivative of `value` in log r, given tr (L + r I)^-1."""
        graph = ratio * trace - self.n * ratio * self.norm / self._denominator(ratio)
        return 0.5 * self.m * graph

    @property
    def _level(self) -> float:
        return self.n * (math.log(self.m * self.n) - 1.0 - _LOG_2PI)

    def _denominator(self, ratio: float) -> float:
        return self.roughness + ratio * self.norm


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything an evidence over k depends on, ready to be sent to a worker."""

    pairs: Pairs
    targets: Targets
    roughness: np.ndarray  # q_k for k = 0..k_max
    ks: np.ndarray
    ratio_bounds: tuple[float, float]
    sigmas: tuple[float, float] | None
    backend: str

    def profile(self, k: int) -> Profile:
        """The evidence of graph k."""
        t = self.targets
        return Profile(t.n, t.m, t.norm, t.constant, float(self.roughness[k]))


def pose(
    X: object,
    y: object,
    *,
    graph: str,
    formulation: str,
    task: str,
    center: bool,
    ks: object = None,
    k_max: object = None,
    k: object = None,
    sigma0: object = None,
    sigma2: object = None,
    ratio_bounds: object = RATIO_BOUNDS,
    metric: str = "euclidean",
    backend: str = "auto",
) -> Problem:
    """Check the arguments and rank the neighbours; `k` stands for a single one."""
    if graph == "knn":
        raise ValueError(
            "graph must be 'mutual' or 'symmetric' for an evidence; got 'knn', which is directed "
            "and has none: loo_curve and select_k(criterion='loo') work on it"
        )
    one_of(graph, EVIDENCE_GRAPHS, "graph")
    one_of(metric, METRICS, "metric")
    one_of(backend, BACKENDS, "backend")
    points = check_points(X, metric)
    n = len(points)
    ks = check_ks(ks, k_max, n) if k is None else np.array([check_k(k, n)])
    targets = encode(y, n, task, formulation, center)
    sigmas = check_sigmas(sigma0, sigma2)
    bounds = check_ratio_bounds(ratio_bounds)
    _check_range(bounds, sigmas)
    if sigmas is None and targets.norm == 0.0:
        raise ValueError(
            "y must vary: all its values are equal, so that the evidence grows without end as "
            "sigma0 does; give sigma0 and sigma2 to compute it at fixed values"
        )
    pairs = pairs_by_rank(rank(points, int(ks[-1]), metric), graph)
    return Problem(pairs, targets, targets.roughness(pairs), ks, bounds, sigmas, backend)


_RATIOS = (1e-100, 1e100)  # products of a pivot and of squares of these still fit in a float


def _check_range(bounds: tuple[float, float], sigmas: tuple[float, float] | None) -> None:
    least, largest = _RATIOS
    if not (least <= bounds[0] and bounds[1] <= largest):
        raise ValueError(
            f"ratio_bounds must lie within {least:g} to {largest:g} for an evidence; got {bounds}"
        )
    if sigmas is not None and not least <= sigmas[1] / sigmas[0] <= largest:
        raise ValueError(
            f"sigma2/sigma0 must be from {least:g} to {largest:g}; "
            f"got sigma0={sigmas[0]} and sigma2={sigmas[1]}"
        )


# ---------------------------------------------------------------------------------------------
# One k


@dataclass(frozen=True)
class Optimum:
    """The evidence of one k and where it is reached."""

    log_evidence: float
    sigma0: float
    sigma2: float
    at_bound: bool


def evaluate(problem: Problem, k: int) -> Optimum:
    """The evidence of graph k: at the given sigmas, or the best over both."""
    opened = open_graph(problem.pairs, k, problem.sigmas is None, problem.backend)
    return evaluate_opened(problem, k, opened, None)


def evaluate_chunk(problem: Problem, ks: np.ndarray) -> list[Optimum]:
    """The evidence of neighbouring k; a sparse one begins its search at its neighbour's peak."""
    found: list[Optimum] = []
    opener = Opener(problem.pairs, problem.sigmas is None, problem.backend)
    for k in ks[::-1].tolist():
        start = found[-1].sigma2 / found[-1].sigma0 if found else None
        found.append(evaluate_opened(problem, k, opener.open(k)[0], start))
    return found[::-1]


def evaluate_opened(
    problem: Problem, k: int, opened: Dense | Cholmod | SuperLU, start: float | None
) -> Optimum:
    """The evidence of a graph that has been opened; `start` is a guess at the best ratio."""
    profile = problem.profile(k)
    if problem.sigmas is not None:
        sigma0, sigma2 = problem.sigmas
        value = profile.value_at(sigma0, sigma2 / sigma0, opened.logdet(sigma2 / sigma0))
        return Optimum(value, sigma0, sigma2, False)
    bounds = problem.ratio_bounds
    ratio, logdet = opened.peak(profile.norm, profile.roughness, *bounds, start)
    return profile.optimum(ratio, logdet, bounds)


# ---------------------------------------------------------------------------------------------
# Every k


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
    graph: str
    formulation: str

    @property
    def best_k(self) -> int:
        """The k of highest evidence, the smallest among equals."""
        return int(self.k[np.argmax(self.log_evidence)])

    def __repr__(self) -> str:
        best = np.argmax(self.log_evidence)
        return (
            f"EvidenceCurve({self.graph}, {self.formulation}: k={self.k[0]}..{self.k[-1]} "
            f"({len(self.k)} values), best_k={self.best_k}, "
            f"log_evidence={self.log_evidence[best]:.4f}"
            f"{', at_bound' if self.at_bound[best] else ''})"
        )


def evidence_curve(
    X: ArrayLike,
    y: ArrayLike,
    *,
    graph: str = "symmetric",
    formulation: str = "auto",
    task: str = "auto",
    center: bool = True,
    ks: Iterable[int] | None = None,
    k_max: int | None = None,
    sigma0: float | None = None,
    sigma2: float | None = None,
    ratio_bounds: tuple[float, float] = RATIO_BOUNDS,
    metric: str = "euclidean",
    executor: Executor | None = None,
    progress: bool = False,
    backend: str = "auto",
) -> EvidenceCurve:
    """Compute the log evidence of every k, each at its best sigma0 and sigma2.

    Parameters
    ----------
    X : array_like, shape (n, d)
        The points, or their n x n distances if ``metric="precomputed"``.
    y : array_like, shape (n,) or (n, outputs)
        Float values (regression), or class labels of any sortable type.
    graph : str
        "symmetric" or "mutual".
    formulation : str
        For classes: "binary" (two of them), "I" (one output per class) or "II" (differences between
        classes). "auto" is "binary" for two classes and "II" for more.
    task : str
        "regression", "classification", or "auto" to go by the type of `y`.
    center : bool
        Regression: take the mean off each output first.
    ks : sequence of int, optional
        The k to evaluate. By default 1..k_max.
    k_max : int, optional
        The largest k, by default n - 1.
    sigma0, sigma2 : float, optional
        Fixed hyperparameters, both or neither. By default the best of each k.
    ratio_bounds : tuple of float
        The range in which sigma2/sigma0 is searched.
    metric : str
        "euclidean", "manhattan", "chebyshev", "cosine" or "precomputed".
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

    Examples
    --------
    >>> import mksknn
    >>> data = mksknn.datasets.load_new_thyroid()
    >>> curve = mksknn.evidence_curve(data.X, data.y, k_max=20)
    >>> curve
    EvidenceCurve(symmetric, II: k=1..20 (20 values), best_k=3, log_evidence=-104.1906)
    """
    problem = pose(
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
    found = evaluate_all(problem, check_executor(executor), check_flag(progress, "progress"))
    return EvidenceCurve(
        k=problem.ks,
        log_evidence=np.array([one.log_evidence for one in found]),
        sigma0=np.array([one.sigma0 for one in found]),
        sigma2=np.array([one.sigma2 for one in found]),
        at_bound=np.array([one.at_bound for one in found]),
        graph=graph,
        formulation=problem.targets.formulation,
    )


# Neighbouring k of a sparse sweep share an ordering (see `Opener`) and a starting point for
# the search in r. Dense ones have nothing to share.
_SPARSE_CHUNK = 5
_DENSE_CHUNKS = 128


def evaluate_all(problem: Problem, executor: object, progress: bool) -> list[Optimum]:
    """`evaluate` every k of the problem."""
    ks = problem.ks
    dense = np.zeros(len(ks), np.bool_)
    if problem.backend in ("auto", "lapack"):
        dense[:] = [problem.backend == "lapack" or surely_dense(problem.pairs, k) for k in ks]
    chunks = sparse_chunks(ks[~dense]) + _cut(ks[dense], -(-len(ks) // _DENSE_CHUNKS))
    found = map_chunks(
        evaluate_chunk, problem, chunks, executor=executor, threads=dense.any(), progress=progress
    )
    return [one for chunk in found for one in chunk]


def sparse_chunks(ks: np.ndarray) -> list[np.ndarray]:
    """The k of a sparse sweep in pieces that may go to different workers."""
    return _cut(ks, _SPARSE_CHUNK)


def _cut(ks: np.ndarray, size: int) -> list[np.ndarray]:
    return [ks[start : start + size] for start in range(0, len(ks), size)]


# ---------------------------------------------------------------------------------------------
# Given values


def log_evidence(
    X: ArrayLike,
    y: ArrayLike,
    k: int,
    *,
    sigma0: float,
    sigma2: float,
    graph: str = "symmetric",
    formulation: str = "auto",
    task: str = "auto",
    center: bool = True,
    return_gradient: bool = False,
    metric: str = "euclidean",
    backend: str = "auto",
):
    """Compute the log evidence of one k at given sigma0 and sigma2.

    Parameters
    ----------
    X : array_like, shape (n, d)
        The points, or their n x n distances if ``metric="precomputed"``.
    y : array_like, shape (n,) or (n, outputs)
        Float values (regression), or class labels.
    k : int
        Number of neighbours, from 1 to n - 1.
    sigma0 : float
        Weight of an edge in the prior precision, > 0.
    sigma2 : float
        What is added to the diagonal of the precision, > 0 (the paper's sigma squared).
    graph, formulation, task, center, metric, backend
        As in :func:`evidence_curve`.
    return_gradient : bool
        Return the gradient too.

    Returns
    -------
    float, or (float, ndarray of shape (2,))
        The log evidence, and if asked for its derivatives by sigma0 and sigma2.

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
    problem = pose(
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
    k, (sigma0, sigma2) = int(problem.ks[0]), problem.sigmas
    profile, ratio = problem.profile(k), sigma2 / sigma0
    opened = open_graph(problem.pairs, k, False, problem.backend)
    value = profile.value_at(sigma0, ratio, opened.logdet(ratio))
    if not check_flag(return_gradient, "return_gradient"):
        return value
    trace = opened.trace_inverse(ratio)
    by_sigma0 = 0.5 * (profile.m * (profile.n - ratio * trace) / sigma0 - profile.roughness)
    by_sigma2 = 0.5 * (profile.m * trace / sigma0 - profile.norm)
    return value, np.array([by_sigma0, by_sigma2])
