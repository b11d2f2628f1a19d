"""Votes, means, variances and probabilities of new points, at one (k, ratio) or averaged over many.

With w_i the weight of training point i for a new point, r = sigma2/sigma0 and V_l the weight of
class l among them:

    mean         sum w_i y_i / (sum w_i + r)         classes: V_l / (sum w_i + r)
    variance     1 / (sigma0 sum w_i + sigma2)
    probability  (V_l + r/J) / (sum w_i + r)         the mean, and the mass left over spread evenly

The plain vote or average is r = 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ._jit import kernel
from ._posterior import Posterior
from ._queries import LinkFinder, Links
from ._selection import Selection
from ._targets import Targets, encode
from ._validation import (
    GRAPHS,
    METRICS,
    check_flag,
    check_k,
    check_new_points,
    check_points,
    check_sigmas,
    one_of,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

TIES = ("nearest", "lowest")
_TIE = 1e-12  # averaged probabilities nearer than this, relatively, differ by rounding alone


@dataclass(frozen=True, eq=False)
class Prediction:
    """What `predict` says of n_new points.

    Attributes
    ----------
    label : ndarray, shape (n_new,), or None
        The class of most weight, in the type of y (averaged over k: of highest probability); None
        for regression.
    probability : ndarray, shape (n_new, J), or None
        Of each class, in the sorted order of the labels (``np.unique(y)``); rows sum to one. None
        for regression.
    mean : ndarray
        Regression: the predicted values, shape (n_new,) or (n_new, outputs) as y has it. Classes:
        the latent means, shape (n_new, J), columns as in `probability`, whatever the formulation.
    variance : ndarray, shape (n_new,), or None
        The variance of one latent output; None for the plain vote or average. Averaged over k, it
        is the mean variance within the components plus the variance between their means. The
        latter is averaged over the outputs (classes); in formulation "binary" there is one, the
        difference ``mean[:, 1] - mean[:, 0]``. Infinite where two points alone say how much y
        varies.
    n_neighbors : ndarray of int, shape (n_new,)
        How many training points have a positive weight; 0 is possible with graph "mutual".
    """

    label: np.ndarray | None
    probability: np.ndarray | None
    mean: np.ndarray
    variance: np.ndarray | None
    n_neighbors: np.ndarray

    def __repr__(self) -> str:
        parts = [f"n_new={len(self.mean)}"]
        for name in ("label", "probability", "mean", "variance", "n_neighbors"):
            value = getattr(self, name)
            shape = None if value is None else f"<{'x'.join(map(str, value.shape))} {value.dtype}>"
            parts.append(f"{name}={shape}")
        return f"Prediction({', '.join(parts)})"


def predict(
    X: ArrayLike,
    y: ArrayLike,
    X_new: ArrayLike,
    model: Selection | Posterior | None = None,
    *,
    k: int | None = None,
    graph: str | None = None,
    sigma0: float | None = None,
    sigma2: float | None = None,
    ties: str = "nearest",
    task: str = "auto",
    center: bool = True,
    metric: str | None = None,
) -> Prediction:
    """Predict labels or values of new points, with probabilities and variances.

    A new point is ranked among the training points by (distance, index), and comes last among
    equals in their lists. Graph "knn" weighs its k nearest points by 1; "mutual" those of them that
    have the new point among their own k nearest; "symmetric" adds up both directions, so that
    points which would adopt the new point count although it does not have them.

    Parameters
    ----------
    X : array_like, shape (n, d)
        The training points, or their n x n distances if ``metric="precomputed"``.
    y : array_like, shape (n,) or (n, outputs)
        Their labels or values.
    X_new : array_like, shape (n_new, d)
        The new points, or their n_new x n distances to the training points.
    model : Selection or Posterior, optional
        From `select_k`: k, graph, metric, sigma0 and sigma2 to predict with. From `posterior`: the
        predictions of all k and ratios are averaged by their probability. What is given beside it
        must agree with it.
    k : int, optional
        Number of neighbours, from 1 to n - 1, in place of a model. Alone it gives the plain vote or
        average.
    graph : str, optional
        "knn", "mutual" or "symmetric". By default the model's, without one "symmetric".
    sigma0, sigma2 : float, optional
        Both or neither: the hyperparameters of the prior (sigma2 is the paper's sigma squared). Not
        with graph "knn", which is no prior.
    ties : str
        Which class wins a tie of votes. "nearest": that of the nearest neighbour of a tied class,
        and without any neighbour that of the nearest training point. "lowest": the first in sorted
        order.
    task : str
        "auto" (float y is regression, anything else classes), "classification" or "regression".
    center : bool
        Regression: take the mean off y, and add it back to the prediction, so that a point without
        neighbours gets it. With a model its own choice counts.
    metric : str, optional
        "euclidean", "manhattan", "chebyshev", "cosine" or "precomputed". By default the model's,
        without one "euclidean".

    Returns
    -------
    Prediction
        ``label``, ``probability``, ``mean``, ``variance`` and ``n_neighbors``.

    Examples
    --------
    >>> import mksknn
    >>> X = [[0.0], [1.0], [2.0], [7.0], [8.0], [9.0]]
    >>> y = ["low", "low", "low", "high", "high", "high"]
    >>> mksknn.predict(X, y, [[1.5], [6.0]], k=2).label.tolist()
    ['low', 'high']
    >>> bayes = mksknn.predict(X, y, [[1.5], [6.0]], k=2, sigma0=1.0, sigma2=0.5)
    >>> bayes.probability.round(3).tolist()
    [[0.045, 0.955], [0.929, 0.071]]
    >>> bayes.variance.round(3).tolist()
    [0.182, 0.286]
    >>> best = mksknn.select_k(X, y)
    >>> mksknn.predict(X, y, [[1.5], [6.0]], best).label.tolist()
    ['low', 'high']
    >>> averaged = mksknn.predict(X, y, [[1.5], [6.0]], mksknn.posterior(X, y))
    >>> averaged.label.tolist()
    ['low', 'high']
    """
    one_of(ties, TIES, "ties")
    center = check_flag(center, "center")
    given = {"k": k, "graph": graph, "sigma0": sigma0, "sigma2": sigma2, "metric": metric}
    if model is not None:
        _check_agreement(model, given, center)
        graph, metric, center = model.graph, model.metric, model.center
    graph = one_of("symmetric" if graph is None else graph, GRAPHS, "graph")
    metric = one_of("euclidean" if metric is None else metric, METRICS, "metric")
    points = check_points(X, metric)
    targets = encode(y, len(points), task, "auto", center)
    new = check_new_points(X_new, points, metric)
    if model is None:
        components = _components_of_sigmas(k, graph, sigma0, sigma2, len(points))
    else:
        components = _components_of_model(model, targets)
    binary = model is not None and model.formulation == "binary"
    return average(points, targets, new, components, graph, metric, ties, binary)


def _check_agreement(model: object, given: dict[str, object], center: bool) -> None:
    """Refuse arguments that say something else than the model."""
    if not isinstance(model, Selection | Posterior):
        raise TypeError(
            "model must be a Selection from select_k, a Posterior from posterior, or None; got "
            f"{model!r}"
        )
    if isinstance(model, Posterior):
        for name in ("k", "sigma0", "sigma2"):
            if given[name] is not None:
                raise ValueError(
                    f"{name} must be left out with a Posterior, which averages over it; got "
                    f"{given[name]!r}"
                )
        given = {name: given[name] for name in ("graph", "metric")}
    for name, value in given.items():
        if value is not None and value != getattr(model, name):
            raise ValueError(
                f"{name} must be left out or equal the model's {name}={getattr(model, name)!r}; "
                f"got {value!r}"
            )
    if model.center and not center:
        raise ValueError("center must be True, as it was when the model was selected; got False")


def _components_of_sigmas(
    k: object, graph: str, sigma0: object, sigma2: object, n: int
) -> Components:
    if k is None:
        raise ValueError("k must be given, or a model from select_k; got neither")
    sigmas = check_sigmas(sigma0, sigma2)
    if sigmas is not None and graph == "knn":
        raise ValueError(
            "sigma0 and sigma2 must be left out with graph='knn': its weights are not symmetric, "
            f"so no prior goes with them; got sigma0={sigma0!r} and sigma2={sigma2!r}"
        )
    return Components.single(check_k(k, n), sigmas)


def _components_of_model(model: Selection | Posterior, targets: Targets) -> Components:
    if (model.formulation == "regression") != (targets.formulation == "regression"):
        raise ValueError(
            f"y must be of the kind that the model was selected on, {model.formulation!r}; got "
            f"{targets.formulation!r} targets: pass the same y and task"
        )
    if isinstance(model, Posterior):
        mixture = model.mixture
        check_k(mixture.k[-1], targets.n, "model.k")
        return Components.many(mixture.k, mixture.ratio, mixture.inverse_sigma0, mixture.weight)
    k = check_k(model.k, targets.n, "model.k")
    return Components.single(k, check_sigmas(model.sigma0, model.sigma2))


# ---------------------------------------------------------------------------------------------
# Components: what a prediction is an average of


@dataclass(frozen=True, eq=False)
class Components:
    """Pairs (k, r) in rising order of k, with their weights and E[1/sigma0 | k, r, y].

    A posterior makes many; a Selection, or k and the sigmas, one. The plain vote has r = 0 and no
    ``inverse_sigma0``, and with it no variance.
    """

    k: np.ndarray  # int64
    ratio: np.ndarray
    inverse_sigma0: np.ndarray | None
    weight: np.ndarray  # sums to one

    @classmethod
    def single(cls, k: int, sigmas: tuple[float, float] | None) -> Components:
        """The component of a known k, with known sigmas or none."""
        ks, one = np.array([k]), np.ones(1)
        if sigmas is None:
            return cls(ks, np.zeros(1), None, one)
        sigma0, sigma2 = sigmas
        ratio, inverse = sigma2 / sigma0, 1.0 / sigma0
        if not (ratio > 0 and math.isfinite(ratio) and math.isfinite(inverse)):
            raise ValueError(
                "sigma0 and sigma2 must have a ratio that fits in a float; got "
                f"sigma0={sigma0!r} and sigma2={sigma2!r}"
            )
        return cls(ks, np.array([ratio]), np.array([inverse]), one)

    @classmethod
    def many(cls, k, ratio, inverse_sigma0, weight) -> Components:
        """Components in any order; those without weight are dropped, the others scaled to one."""
        k, weight = np.asarray(k), np.asarray(weight, dtype=np.float64)
        order = np.argsort(k, kind="stable")
        order = order[weight[order] > 0]
        ratio, inverse = np.asarray(ratio, dtype=np.float64), np.asarray(inverse_sigma0, np.float64)
        scaled = weight[order] / weight[order].sum()
        return cls(k[order].astype(np.int64), ratio[order], inverse[order], scaled)


def average(
    points: np.ndarray,
    targets: Targets,
    new: np.ndarray,
    components: Components,
    graph: str,
    metric: str,
    ties: str,
    binary: bool = False,
) -> Prediction:
    """Predict validated queries block by block; `binary` says what the latent output is."""
    n_new = len(new)
    out = Combined.empty(n_new, targets)
    if n_new:
        finder = LinkFinder(points, new, int(components.k[-1]), graph, metric)

        def work(links: Links, rows: np.ndarray) -> None:
            out.put(rows, combine(links, targets, components, graph, ties))

        finder.run(work)
    variance = None
    if components.inverse_sigma0 is not None:
        between = out.between if targets.codes is None else out.between[:, : len(targets.classes)]
        variance = out.within + (out.between[:, -1] if binary else between.mean(axis=1))
    if targets.codes is not None:
        label, mean = targets.classes[out.winner], out.mean[:, : len(targets.classes)].copy()
        return Prediction(label, out.probability, mean, variance, out.n_neighbors)
    mean = out.mean + targets.mean
    return Prediction(None, None, mean[:, 0] if targets.flat else mean, variance, out.n_neighbors)


@dataclass(frozen=True, eq=False)
class Combined:
    """Predictions of a block of queries; regression has no use for the first two.

    Outputs are those of a regression or the classes, and with two classes their difference.
    """

    winner: np.ndarray  # int32, the class by number
    probability: np.ndarray  # (queries, classes)
    mean: np.ndarray  # (queries, outputs), without the mean that regression took off
    within: np.ndarray  # variance inside the components, common to all outputs
    between: np.ndarray  # (queries, outputs), variance of the components' means
    n_neighbors: np.ndarray  # int64

    @classmethod
    def empty(cls, n_new: int, targets: Targets) -> Combined:
        """Room for n_new predictions."""
        classes = 0 if targets.codes is None else len(targets.classes)
        wide = (n_new, classes + (classes == 2) if classes else targets.values.shape[1])
        return cls(
            np.zeros(n_new, np.int32),
            np.empty((n_new, classes)),
            np.empty(wide),
            np.empty(n_new),
            np.empty(wide),
            np.empty(n_new, np.int64),
        )

    def put(self, rows: np.ndarray, block: Combined) -> None:
        """Put a block's predictions into their rows."""
        for name, values in vars(block).items():
            getattr(self, name)[rows] = values


def combine(
    links: Links, targets: Targets, components: Components, graph: str, ties: str
) -> Combined:
    """Average the predictions of the components by the law of total variance.

    mean = E[mean_c], variance = E[1/sigma0 / (sum w + r)] + Var[mean_c]; the second term is summed
    as squares around the mean, so that nothing cancels. A single component's label is decided by
    its votes, an average's by the averaged probability. A neighbour has weight in any component.
    """
    ks, begins = np.unique(components.k, return_index=True)
    # graph ks[a] is the first to hold a link of rank p if enters[p] = a
    enters = np.searchsorted(ks, np.arange(links.k_max + 2))
    codes, values = targets.codes, targets.values
    out = Combined.empty(len(links.closest), targets)
    plain = components.inverse_sigma0 is None
    _combine(
        links.starts,
        links.indices,
        links.ranks,
        links.reverse,
        links.closest,
        GRAPHS.index(graph),
        enters,
        np.append(begins, len(components.k)),
        components.ratio,
        np.zeros(len(components.k)) if plain else components.inverse_sigma0,
        components.weight,
        np.empty(0, np.int32) if codes is None else codes,
        np.empty((0, 0)) if values is None else values,
        ties == "nearest",
        out.winner,
        out.probability,
        out.mean,
        out.within,
        out.between,
        out.n_neighbors,
    )
    return out


@kernel
def _combine(
    starts,
    indices,
    ranks,
    reverse,
    closest,
    graph,
    enters,
    begins,
    ratio,
    inverse_sigma0,
    weight,
    codes,
    values,
    nearest,
    winner,
    probability,
    mean,
    within,
    between,
    n_neighbors,
):
    n_ks = begins.shape[0] - 1
    outputs, classes = mean.shape[1], probability.shape[1]
    total = np.empty(n_ks)  # sum of the weights in each graph
    sums = np.empty((n_ks, outputs))  # and of weight times target; then the mean
    for q in range(starts.shape[0] - 1):
        total[:] = 0.0
        sums[:] = 0.0
        n_neighbors[q] = 0
        for e in range(starts[q], starts[q + 1]):
            i = indices[e]
            first, second = _entries(ranks[e], reverse[e], graph, enters)
            n_neighbors[q] += min(first, second) < n_ks
            for a in (first, second):
                if a < n_ks:
                    total[a] += 1.0
                    if codes.shape[0]:
                        sums[a, codes[i]] += 1.0
                        if outputs > classes:
                            sums[a, classes] += 1.0 if codes[i] else -1.0
                    else:
                        for c in range(outputs):
                            sums[a, c] += values[i, c]
        for a in range(1, n_ks):  # each graph holds those before it
            total[a] += total[a - 1]
            for c in range(outputs):
                sums[a, c] += sums[a - 1, c]

        left = 0.0  # the mass that no vote has taken
        within[q] = 0.0
        for c in range(outputs):
            mean[q, c] = 0.0
            between[q, c] = 0.0
        for a in range(n_ks):
            mass = 0.0
            inverse = 0.0
            for p in range(begins[a], begins[a + 1]):
                below = total[a] + ratio[p]
                mass += weight[p]
                if below > 0.0:
                    inverse += weight[p] / below
                    left += weight[p] * (ratio[p] / below)
                    within[q] += weight[p] * (inverse_sigma0[p] / below)
                else:  # the plain vote of no neighbours
                    left += weight[p]
            if begins[a + 1] - begins[a] == 1:
                below = total[a] + ratio[begins[a]]
                for c in range(outputs):
                    sums[a, c] = sums[a, c] / below if below > 0.0 else 0.0
            else:
                inverse /= mass
                spread = 0.0
                for p in range(begins[a], begins[a + 1]):
                    step = 1.0 / (total[a] + ratio[p]) - inverse
                    spread += weight[p] * step * step
                for c in range(outputs):
                    between[q, c] += spread * sums[a, c] * sums[a, c]
                    sums[a, c] *= inverse
            for c in range(outputs):
                mean[q, c] += mass * sums[a, c]
        for a in range(n_ks):
            mass = weight[begins[a] : begins[a + 1]].sum()
            for c in range(outputs):
                step = sums[a, c] - mean[q, c]
                between[q, c] += mass * step * step
        if codes.shape[0] == 0:
            continue

        for c in range(classes):
            probability[q, c] = mean[q, c] + left / classes
        # equal votes make equal means; averages are equal only up to rounding
        score = mean[q, :classes] if ratio.shape[0] == 1 else probability[q]
        best = score.max()
        if ratio.shape[0] > 1:
            best *= 1.0 - _TIE
        winner[q] = -1
        if nearest:
            for e in range(starts[q], starts[q + 1]):
                first, second = _entries(ranks[e], reverse[e], graph, enters)
                if min(first, second) < n_ks and score[codes[indices[e]]] >= best:
                    winner[q] = codes[indices[e]]
                    break
            if winner[q] < 0:
                winner[q] = codes[closest[q]]
        else:
            for c in range(classes):
                if score[c] >= best:
                    winner[q] = c
                    break


@kernel
def _entries(own, other, graph, enters):
    """The graphs, by number, in which a link of these two ranks gets its first and second unit."""
    never = enters[enters.shape[0] - 1]
    if graph == 0:
        return enters[own], never
    if graph == 1:
        return enters[max(own, other)], never
    return enters[own], enters[other]
