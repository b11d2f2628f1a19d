"""The posterior over k: sigma0 integrated out in closed form, sigma2/sigma0 by quadrature.

With p(sigma0) proportional to 1/sigma0, r = sigma2/sigma0 log-uniform on `ratio_bounds` and k
uniform, the integral over sigma0 is a Gamma function, and what is left of the evidence at (k, r) is
its profile (docs/theory):

    log p(y | k, r) = profile_k(r) + lgamma(a) - a log a + a,    a = m n / 2

The last terms are the same for every k and graph. The prior of log r integrates to one, so p(y | k)
is an average over r and cannot exceed its largest value: the bounds of `_bounds` on the best
evidence of a k bound its marginal too, and k whose bounds are low enough are never integrated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ._bounds import Search, bounds_pay, enclose_all, first_anchor
from ._evidence import RATIO_BOUNDS, Problem, Profile, pose
from ._graphs import components
from ._logdet import BACKENDS, Dense, open_graph, surely_dense
from ._loo import score
from ._selection import candidates
from ._threads import map_chunks, progress_bar
from ._validation import (
    check_executor,
    check_flag,
    one_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike

    from ._threads import Executor

WEIGHTS = ("evidence", "loo_log")
_LEVEL = 0.95  # of the intervals
# Whole k that carry less than this between them are left out of predictions, so that the search for
# neighbours ends at the largest k that matters.
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
        joins equal targets, at the upper end the graph explains nothing.
    log_total : float
        The log of the mean over k of p(data | k) (or of exp(log_score)).
    compared : dict
        `log_total` for each (graph, metric) there was to choose from.
    graph, formulation, weights, metric : str
        What was computed; the graph and the metric chosen if there was a choice.
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
    compared: dict[tuple[str, str], float]
    graph: str
    formulation: str
    weights: str
    metric: str
    center: bool
    mixture: Mixture

    @property
    def best_k(self) -> int:
        """The most probable k, the smallest among equals."""
        return int(self.k[np.argmax(self.probability)])

    def __repr__(self) -> str:
        best = int(np.argmax(self.probability))
        low, high = self.ratio_interval
        text = (
            f"Posterior({self.graph}, {self.formulation}: k={self.k[0]}..{self.k[-1]} "
            f"({len(self.k)} values), best_k={self.best_k} "
            f"(probability {self.probability[best]:.3g}), mean_k={self.mean_k:.4g}, "
            f"interval={self.interval}, ratio={self.ratio:.3g} ({low:.3g} to {high:.3g}), "
            f"weights={self.weights!r}, skipped_mass={self.skipped_mass:.2g}"
        )
        piled = float(self.probability[self.at_bound].sum())
        if piled >= 0.005:
            text += f", at_bound with probability {piled:.2f}"
        return text + ")"


def posterior(
    X: ArrayLike,
    y: ArrayLike,
    *,
    weights: str = "evidence",
    graph: str = "symmetric",
    formulation: str = "auto",
    task: str = "auto",
    center: bool = True,
    ks: Iterable[int] | None = None,
    k_max: int | None = None,
    ratio_bounds: tuple[float, float] = RATIO_BOUNDS,
    metric: str = "euclidean",
    max_skipped: float = 1e-6,
    executor: Executor | None = None,
    progress: bool = False,
    backend: str = "auto",
) -> Posterior:
    """Compute the posterior distribution of k, without sampling.

    Parameters
    ----------
    X : array_like, shape (n, d)
        The points, or their n x n distances if ``metric="precomputed"``.
    y : array_like, shape (n,) or (n, outputs)
        Float values (regression), or class labels of any sortable type.
    weights : str
        "evidence": the posterior probabilities of k, sigma0 and sigma2 integrated out. "loo_log":
        weights proportional to exp(leave-one-out log score), each k at its best ratio.
    graph : str
        "symmetric", "mutual", or "auto" for the one of the two with the higher `log_total`. The
        weights by leave-one-out know "knn" too.
    formulation, task, center, ks, k_max, executor, progress, backend
        As in :func:`evidence_curve`.
    ratio_bounds : tuple of float
        The range in which sigma2/sigma0 is log-uniform a priori.
    metric : str or sequence of str
        As in :func:`evidence_curve`, or several of them: the one with the highest `log_total` is
        chosen.
    max_skipped : float
        k are skipped as long as their total probability is proven to be at most this. 0 integrates
        every k.

    Returns
    -------
    Posterior
        ``k``, ``probability``, ``log_marginal``, ``mean_k``, ``interval``, a summary of the ratio,
        and what :func:`predict` needs to average over all of it.

    Notes
    -----
    The priors are uniform in k, proportional to 1/sigma0, and log-uniform in r = sigma2/sigma0 on
    `ratio_bounds`. The integral over sigma0 has a closed form; that over log r is done by
    Gauss-Legendre panels, halved until the estimated error is 1e-9 of the integral (or what the
    determinants' rounding allows, in very large problems). On sparse graphs, where a value costs a
    factorization, the density is first interpolated, to 1e-8 of its peak.

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
    allowance = _check_share(max_skipped)
    found = []
    for one_graph, one_metric in candidates(graph, metric):
        options = {
            "graph": one_graph,
            "formulation": formulation,
            "task": task,
            "center": center,
            "ks": ks,
            "k_max": k_max,
            "ratio_bounds": ratio_bounds,
            "metric": one_metric,
            "backend": backend,
        }
        if weights == "loo_log":
            found.append(_weigh_by_loo(X, y, **options))
        else:
            problem = pose(X, y, **options)
            kept, upper = _Sweep(problem, executor, progress).run(allowance)
            found.append(_summarise(problem, kept, upper, one_metric, center))
    best = max(found, key=lambda one: one["log_total"])  # the first among equals
    compared = {(one["graph"], one["metric"]): one["log_total"] for one in found}
    return Posterior(compared=compared, weights=weights, **best)


def _check_share(max_skipped: object) -> float:
    if isinstance(max_skipped, bool) or not isinstance(max_skipped, int | float | np.number):
        raise TypeError(f"max_skipped must be a number from 0 up to 1; got {max_skipped!r}")
    if not 0.0 <= max_skipped < 1.0:
        raise ValueError(f"max_skipped must be at least 0 and below 1; got {max_skipped!r}")
    return float(max_skipped)


# ---------------------------------------------------------------------------------------------
# One k

_PILED = 0.1  # of the peak: a density this high at an end of the bounds depends on them
_CUT = 40.0  # the tails begin where the log density has fallen by this
_ORDER = 8  # of the Gauss-Legendre rule in a panel
_ERROR = 1e-9  # of the integral, relative, as estimated
_DEPTH = 24  # a panel is halved at most this often
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(_ORDER)
_BOTH_NODES = np.concatenate([_NODES - 1.0, _NODES + 1.0]) / 2.0  # of the two halves
_BOTH_WEIGHTS = np.concatenate([_WEIGHTS, _WEIGHTS]) / 2.0


@dataclass(frozen=True, eq=False)
class Slice:
    """The density in t = log r of one k, integrated."""

    log_marginal: float  # log p(y | k)
    t: np.ndarray  # nodes, rising
    share: np.ndarray  # of the mass, at each node; sums to one
    at_bound: bool


class _Density:
    """log p(k, t | y) of one graph, 0 at its peak, and the interval of t that matters."""

    def __init__(self, problem: Problem, k: int, start: float | None) -> None:
        self.problem, self.k = problem, k
        self.profile = profile = problem.profile(k)
        low, high = problem.ratio_bounds
        self.bottom, self.ceiling = math.log(low), math.log(high)
        self.opened = open_graph(problem.pairs, k, True, problem.backend)
        self.dense = isinstance(self.opened, Dense)
        self.ratio, self.logdet = self.opened.peak(
            profile.norm, profile.roughness, low, high, start
        )
        self.peak = math.log(self.ratio)
        self.half = 0.5 * profile.m * profile.n
        # what rounding does to the log density: a few units of the determinant's last place
        self.noise = 1e-14 * self.half

    def of(self, t: np.ndarray, logdets: np.ndarray) -> np.ndarray:
        """The log density at t, given the log-determinants there."""
        q, s = self.profile.roughness, self.profile.norm
        fall = np.log((q + np.exp(t) * s) / (q + self.ratio * s))
        return 0.5 * self.profile.m * (logdets - self.logdet) - self.half * fall

    def logdets(self, t: np.ndarray) -> np.ndarray:
        """log|L + r I| at each t, exactly."""
        low, high = self.problem.ratio_bounds
        ratios = np.clip(np.exp(t), low, high)
        if self.dense:
            return self.opened.logdets(ratios)
        return np.array([self.opened.logdet(ratio) for ratio in ratios.tolist()])

    def exact(self, t: np.ndarray) -> np.ndarray:
        """The log density at t, from the determinants there."""
        return self.of(t, self.logdets(t))


def slice_graph(problem: Problem, k: int, start: float | None = None) -> Slice:
    """Integrate over r at graph k; `start` is a ratio near its peak, if one is known."""
    density = _Density(problem, k, start)
    profile = density.profile
    log_peak = profile.value(density.ratio, density.logdet) + _sigma0_integral(profile)
    bottom, ceiling = density.bottom, density.ceiling
    log_density, left, right = (_window if density.dense else _interpolate_window)(density)
    t, share, log_integral = _integrate(log_density, left, density.peak, right, density.noise)
    ends = np.array([end for end in (left, right) if end in (bottom, ceiling)])
    return Slice(
        log_marginal=log_peak + log_integral - math.log(ceiling - bottom),
        t=t,
        share=share,
        at_bound=bool((log_density(ends) > math.log(_PILED)).any()),
    )


def _sigma0_integral(profile: Profile) -> float:
    """What integrating sigma0 out adds to the profile: the same for every k."""
    a = 0.5 * profile.m * profile.n
    return math.lgamma(a) - a * math.log(a) + a


def _window(density: _Density) -> tuple[Callable, float, float]:
    """The log density, and where it has fallen by `_CUT` on either side of its single peak."""
    ends = []
    for end in (density.bottom, density.ceiling):
        steps = (end - density.peak) * 2.0 ** np.arange(-24.0, 0.0)
        fallen = np.flatnonzero(density.exact(density.peak + steps) < -_CUT)
        ends.append(density.peak + float(steps[fallen[0]]) if len(fallen) else end)
    return density.exact, ends[0], ends[1]


def _integrate(
    log_density: Callable, left: float, peak: float, right: float, noise: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """Nodes in t, each one's share of the integral of exp(log_density), and the integral's log.

    A panel is accepted when its halves agree with it, for the density itself and for the density
    over r, which the variance of a point without neighbours needs.
    """
    edges = np.unique([left, peak, right])
    begin, end = edges[:-1], edges[1:]
    found_t, found_w = [], []
    total = np.zeros(2)  # of the panels accepted

    def sample(nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        t = 0.5 * (begin + end)[:, None] + 0.5 * (end - begin)[:, None] * nodes
        return t, np.exp(log_density(t.ravel())).reshape(t.shape)

    def sums(t: np.ndarray, w: np.ndarray) -> np.ndarray:
        return np.column_stack([w.sum(axis=1), (w * np.exp(peak - t)).sum(axis=1)])

    t, value = sample(_NODES)
    for depth in range(_DEPTH + 1):
        half = 0.5 * (end - begin)[:, None]
        finer_t, finer_value = sample(_BOTH_NODES)
        rough, fine = (
            sums(t, half * _WEIGHTS * value),
            sums(finer_t, half * _BOTH_WEIGHTS * finer_value),
        )
        # the sums of the errors of all panels, the many small ones included, stay below _ERROR
        part = np.maximum(2.0 * half / (right - left), 1.0 / 64)
        allowed = np.maximum(0.5 * _ERROR * part * (total + fine.sum(axis=0)), noise * fine)
        done = (np.abs(rough - fine) <= allowed).all(axis=1) | (depth == _DEPTH)
        found_t.append(t[done].ravel())
        found_w.append((half * _WEIGHTS * value)[done].ravel())
        total += fine[done].sum(axis=0)
        if done.all():
            break
        split = ~done
        middle = 0.5 * (begin + end)[split]
        begin = np.concatenate([begin[split], middle])
        end = np.concatenate([middle, end[split]])
        t = np.concatenate(np.split(finer_t[split], 2, axis=1))
        value = np.concatenate(np.split(finer_value[split], 2, axis=1))
    t, w = np.concatenate(found_t), np.concatenate(found_w)
    order = np.argsort(t)
    return t[order], w[order] / w.sum(), math.log(w.sum())


# ---------------------------------------------------------------------------------------------
# One k of a sparse graph, where every determinant costs a factorization

_ENOUGH, _TOO_MUCH = 30.0, 60.0  # a window may end where the log density has fallen this much
_SPARSE_ERROR = 1e-8  # of the density anywhere, in units of its peak
_MOST_NODES = 64


class _Model:
    """A log density from a few determinants.

    Let top be above all eigenvalues u of L, and v = log(r / (r + top)): that is log r up to a
    constant where r is small, and flat where r is large. In v,

        log|L + r I| - n log(r + top) = sum over u of log((u + (top - u) exp(v)) / top)

    is analytic up to a distance of pi from the real axis, and further where u = 0 is left out, so a
    polynomial converges fast.
    """

    def __init__(self, density: _Density) -> None:
        self.density = density
        pairs, self.n = density.problem.pairs, density.profile.n
        edges = pairs.count[density.k]
        degrees = np.bincount(pairs.rows[:edges], minlength=self.n)
        degrees += np.bincount(pairs.columns[:edges], minlength=self.n)
        self.top = 2.0 * max(int(degrees.max()), 1)
        self.nulls = components(pairs, density.k).count
        self.t = np.array([density.peak])
        self.logdets = np.array([density.logdet])

    def warp(self, t: np.ndarray) -> np.ndarray:
        """v at each t."""
        return -np.log1p(self.top * np.exp(-t))

    def unwarp(self, v: np.ndarray) -> np.ndarray:
        """t at each v."""
        return -np.log(np.expm1(-v) / self.top)

    def probe(self, t: float) -> float:
        """Factorize at t, and return the log density there."""
        logdet = self.density.logdets(np.array([t]))
        self.t, self.logdets = np.append(self.t, t), np.append(self.logdets, logdet)
        return float(self.density.of(np.array([t]), logdet)[0])

    def keep(self, left: float, right: float) -> None:
        """Forget what lies outside."""
        inside = (self.t >= left) & (self.t <= right)
        self.t, self.logdets = self.t[inside], self.logdets[inside]

    def __call__(self, t: np.ndarray) -> np.ndarray:
        smooth = _interpolate(self.warp(self.t), self.logdets - self._trend(self.t), self.warp(t))
        return np.minimum(self.density.of(t, smooth + self._trend(t)), self.ceiling(t))

    def ceiling(self, t: np.ndarray) -> np.ndarray:
        """A bound on the log density: it has one peak, so what it is at the next node inwards."""
        order = np.argsort(self.t)
        nodes, known = self.t[order], self.density.of(self.t, self.logdets)[order]
        below = np.searchsorted(nodes, t, side="right") - 1
        above = np.searchsorted(nodes, t, side="left")
        inwards = np.where(t < self.density.peak, above, below)
        return known[np.clip(inwards, 0, len(nodes) - 1)]

    def _trend(self, t: np.ndarray) -> np.ndarray:
        return self.nulls * t + (self.n - self.nulls) * np.log(np.exp(t) + self.top)


def _interpolate_window(density: _Density) -> tuple[Callable, float, float]:
    """The same as `_window`, from a few determinants where their error matters most."""
    model = _Model(density)
    right, reach = _find_end(model.probe, density.peak, density.ceiling, _reach_guess(density))
    left, _ = _find_end(model.probe, density.peak, density.bottom, reach)
    model.keep(left, right)
    ends = model.warp(np.array([left, right]))
    grid = ends[0] + np.ptp(ends) * 0.5 * (1.0 - np.cos(np.linspace(0.0, np.pi, 257)[1:-1]))
    grid_t = model.unwarp(grid)
    agreed = 0
    while agreed < 2:  # in a row: one alone may be luck
        if len(model.t) > _MOST_NODES:
            return _window(density)
        # the error of a polynomial goes with the product of the distances from its nodes
        with np.errstate(divide="ignore"):
            product = np.log(np.abs(grid[:, None] - model.warp(model.t))).sum(axis=1)
        worst = int(np.argmax(product + model.ceiling(grid_t)))
        at = grid_t[worst : worst + 1]
        guess, weight = float(model(at)[0]), math.exp(float(model.ceiling(at)[0]))
        error = weight * abs(guess - model.probe(float(at[0])))
        agreed = agreed + 1 if error <= max(_SPARSE_ERROR, 10.0 * density.noise) else 0
    return model, left, right


def _interpolate(nodes: np.ndarray, values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The polynomial through the nodes, in Newton's form; the order of the nodes matters."""
    coefficients = values.copy()
    for level in range(1, len(nodes)):
        rise = coefficients[level:] - coefficients[level - 1 : -1]
        coefficients[level:] = rise / (nodes[level:] - nodes[:-level])
    out = np.full_like(at, coefficients[-1])
    for coefficient, node in zip(coefficients[-2::-1], nodes[-2::-1], strict=True):
        out = out * (at - node) + coefficient
    return out


def _reach_guess(density: _Density) -> float:
    """How far from the peak the density may fall by `_CUT`.

    The curvature at an inner peak is m n / 2 times the variance, over the eigenvalues u, of
    r / (u + r), whose mean is known; 0.3 of the largest variance with that mean is typical.
    """
    q, s = density.profile.roughness, density.profile.norm * density.ratio
    if density.peak in (density.bottom, density.ceiling):
        return _CUT / density.half
    return math.sqrt(2.0 * _CUT / (density.half * 0.3 * q * s)) * (q + s)


def _find_end(probe: Callable, peak: float, end: float, reach: float) -> tuple[float, float]:
    """Where the log density has fallen far enough towards an end, and how far that is."""
    most = abs(end - peak)
    if not most:
        return end, reach
    short, far = 0.0, math.inf  # reaches known to be too short, and too far
    while True:
        reach = min(reach, most)
        t = end if reach == most else peak + math.copysign(reach, end - peak)
        fall = -probe(t)
        if _ENOUGH <= fall <= _TOO_MUCH or (t == end and fall < _ENOUGH):
            return t, reach
        if fall < _ENOUGH:
            short = reach
        else:
            far = reach
        # as if the density were normal, unless that leads out of what is known
        reach *= min(math.sqrt(_CUT / max(fall, 0.1)), 4.0)
        if not short < reach < far:
            reach = 0.5 * (short + far) if far < math.inf else 2.0 * short


# ---------------------------------------------------------------------------------------------
# Every k

_CHUNK = 4  # k sliced by one worker at a time
_PEAK_ERROR = 1e-8  # more than the search for a peak may miss, in log evidence
_ROUND = 64  # k integrated before the sum so far is taken into account


class _Sweep:
    """The slices of a problem's k, made as far as they are needed."""

    def __init__(self, problem: Problem, executor: object, progress: bool) -> None:
        self.problem, self.executor, self.progress = problem, executor, progress
        first = int(problem.ks[0])
        self.dense = problem.backend in ("auto", "lapack") and surely_dense(problem.pairs, first)
        self.slices: list[Slice | None] = [None] * len(problem.ks)
        self.peaks: list[float | None] = [None] * len(problem.ks)  # the best ratios, where known

    def run(self, allowance: float) -> tuple[list[Slice | None], np.ndarray]:
        """The slice of each k, None where it was skipped, and bounds on all log marginals."""
        upper = np.full(len(self.slices), np.inf)
        if allowance > 0.0:
            upper = self._bound(math.log(allowance))
        self._integrate(upper, allowance)
        return self.slices, upper

    def make(self, positions: list[int]) -> None:
        """Slice the graphs at these positions, on all workers."""
        todo = [(int(self.problem.ks[at]), self.peaks[at]) for at in positions]
        made = map_chunks(
            _slice_chunk,
            self.problem,
            [todo[at : at + _CHUNK] for at in range(0, len(todo), _CHUNK)],
            executor=self.executor,
            threads=self.dense,
            progress=self.progress,
        )
        for at, one in zip(positions, (one for chunk in made for one in chunk), strict=True):
            self.slices[at] = one

    def _integrate(self, upper: np.ndarray, allowance: float) -> None:
        """Integrate k in the order of their bounds until the rest is proven to be negligible."""
        size = len(upper)
        order = np.argsort(-upper, kind="stable")
        # from each place in the order on, a bound on the log of the mass that follows
        after = np.logaddexp.accumulate(upper[order][::-1])[::-1]
        begin = 0
        while begin < size:
            limit = self._log_total() + math.log(allowance) if allowance > 0.0 else -math.inf
            within = np.flatnonzero(after <= limit)
            end = int(within[0]) if len(within) else size
            if end <= begin:
                break
            if np.isfinite(after[begin]):  # what is still to come raises the total
                end = min(end, begin + _ROUND if begin else 1)
            self.make([at for at in order[begin:end].tolist() if self.slices[at] is None])
            begin = end

    def _log_total(self) -> float:
        """The log of the sum of p(y | k) over the k integrated so far."""
        logs = [one.log_marginal for one in self.slices if one is not None]
        return float(np.logaddexp.reduce(logs)) if logs else -math.inf

    def _bound(self, log_allowance: float) -> np.ndarray:
        """A bound on the log marginal of each k: from anchors, or on its own peak."""
        if bounds_pay(self.problem):
            return self._bound_by_anchors(log_allowance)
        if self.dense:  # a peak costs as much as the integral
            return np.full(len(self.slices), np.inf)
        found = enclose_all(self.problem, self.executor, self.progress)
        self.peaks = [one.ratio for one in found]
        extra = _sigma0_integral(self.problem.profile(int(self.problem.ks[0])))
        return np.array([one.upper for one in found]) + extra + _PEAK_ERROR

    def _bound_by_anchors(self, log_allowance: float) -> np.ndarray:
        """Bounds from anchors: first as `select_k` places them, then where k may be ruled out."""
        problem = self.problem
        search = Search(problem)
        extra = _sigma0_integral(problem.profile(int(problem.ks[0])))
        with progress_bar(None, self.progress) as tick:
            at = first_anchor(problem)
            while at is not None:
                search.anchor(at)
                tick()
                at = search.next()
            best = int(np.argmax(search.lower))
            self.slices[best] = slice_graph(problem, int(problem.ks[best]))
            enough = self.slices[best].log_marginal + log_allowance - math.log(len(self.slices))
            enough -= extra
            while True:
                open_now = int((search.upper > enough).sum())
                at = _most_doubtful(search, enough)
                if at is None:
                    break
                search.anchor(at)
                tick()
                if open_now - int((search.upper > enough).sum()) < _WORTH:
                    break
        return search.upper + extra


_WORTH = 2  # integrating a k costs twice to four times what an anchor does


def _most_doubtful(search: Search, enough: float) -> int | None:
    """Where an anchor should rule k out: far below its bound, by the values of its neighbours."""
    ks = np.log(search.problem.ks)
    known = np.flatnonzero(np.isfinite(search.lower))
    guess = np.interp(ks, ks[known], search.lower[known])
    doubt = np.where((search.upper > enough) & (guess < enough), search.upper - guess, 0.0)
    doubt[known] = 0.0
    return int(np.argmax(doubt)) if doubt.any() else None


def _slice_chunk(problem: Problem, todo: list[tuple[int, float | None]]) -> list[Slice]:
    return [slice_graph(problem, k, start) for k, start in todo]


# ---------------------------------------------------------------------------------------------
# What it comes to


def _summarise(
    problem: Problem, kept: list[Slice | None], upper: np.ndarray, metric: str, center: bool
) -> dict[str, object]:
    """The fields of a Posterior by evidence."""
    targets = problem.targets
    log_marginal = np.array([math.nan if one is None else one.log_marginal for one in kept])
    log_sum = float(np.logaddexp.reduce(log_marginal[~np.isnan(log_marginal)]))
    probability = np.exp(np.where(np.isnan(log_marginal), -np.inf, log_marginal) - log_sum)
    probability /= probability.sum()
    skipped = float(np.exp(upper[np.isnan(log_marginal)] - log_sum).sum())
    parts = _heavy(probability)
    k = np.repeat(problem.ks[parts], [len(kept[at].t) for at in parts])
    ratio = np.exp(np.concatenate([kept[at].t for at in parts]))
    weight = np.concatenate([probability[at] * kept[at].share for at in parts])
    # E[1/sigma0 | k, r, y]: sigma0 has a Gamma distribution of shape m n / 2
    freedom = targets.m * targets.n - 2
    scale = problem.roughness[k] + ratio * targets.norm
    inverse = scale / freedom if freedom > 0 else np.full(len(k), np.inf)
    return {
        **_describe(problem.ks, probability, Mixture(k, ratio, inverse, weight / weight.sum())),
        "log_marginal": log_marginal,
        "log_score": None,
        "skipped_mass": skipped,
        "at_bound": np.array([one is not None and one.at_bound for one in kept]),
        "log_total": log_sum - math.log(len(kept)),
        "graph": problem.pairs.graph,
        "formulation": targets.formulation,
        "metric": metric,
        "center": center,
    }


def _heavy(probability: np.ndarray) -> np.ndarray:
    """Positions of the k that matter: the lightest ones, `_DROPPED` in all, are left out."""
    order = np.argsort(probability, kind="stable")
    return np.sort(order[np.cumsum(probability[order]) > _DROPPED])


def _describe(ks: np.ndarray, probability: np.ndarray, mixture: Mixture) -> dict[str, object]:
    """The distributions of k and of the ratio in a few numbers."""
    tail = 0.5 * (1.0 - _LEVEL)
    cumulative = np.cumsum(probability)
    ends = np.searchsorted(cumulative, [tail, 1.0 - tail])
    order = np.argsort(mixture.ratio, kind="stable")
    t, weight = np.log(mixture.ratio[order]), mixture.weight[order]
    # the distribution function at a node of Gauss's rule is about half-way up the node's weight
    quantiles = np.interp([tail, 1.0 - tail], np.cumsum(weight) - 0.5 * weight, t)
    return {
        "k": ks,
        "probability": probability,
        "mean_k": float(probability @ ks),
        "interval": (int(ks[ends[0]]), int(ks[min(ends[1], len(ks) - 1)])),
        "ratio": math.exp(float(weight @ t)),
        "ratio_interval": (math.exp(quantiles[0]), math.exp(quantiles[1])),
        "mixture": mixture,
    }


def _weigh_by_loo(
    X: ArrayLike,
    y: ArrayLike,
    *,
    graph: str,
    metric: str,
    center: bool,
    backend: str,
    **options,
) -> dict[str, object]:
    """The fields of a Posterior by leave-one-out log scores."""
    one_of(backend, BACKENDS, "backend")
    scored = score(X, y, graph=graph, metric=metric, center=center, **options)
    ks, targets, log_score, ratio = scored.ks, scored.targets, scored.log_score, scored.ratio
    log_sum = float(np.logaddexp.reduce(log_score))
    probability = np.exp(log_score - log_sum)
    probability /= probability.sum()
    parts = _heavy(probability)
    scale = scored.roughness[ks[parts]] + ratio[parts] * targets.norm
    weight = probability[parts] / probability[parts].sum()
    mixture = Mixture(ks[parts], ratio[parts], scale / (targets.m * targets.n), weight)
    return {
        **_describe(ks, probability, mixture),
        "log_marginal": None,
        "log_score": log_score,
        "skipped_mass": 0.0,
        "at_bound": np.isin(ratio, scored.ratio_bounds),
        "log_total": log_sum - math.log(len(ks)),
        "graph": graph,
        "formulation": targets.formulation,
        "metric": metric,
        "center": center,
    }
