"""Predictions of new points: prepared once, then as often as there are new points.

`predict` is `prepare` and one call of what it returns. Searching is in `_queries`, voting in
`_votes`, files in `_archive`.
"""

from __future__ import annotations

import os
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _archive
from ._jit import interruptible
from ._metrics import (
    Metric,
    check_columns,
    check_metric,
    column_names,
    name_of,
    points_and_name,
    same_metric,
)
from ._names import GRAPHS, METRICS, TIES, Graph, MetricName, Task, Ties
from ._neighbors import check_no_ranking
from ._posterior import Posterior
from ._problem import span
from ._queries import Index, Links
from ._selection import Selection
from ._targets import Targets, Voters, encode
from ._validation import (
    check_finite,
    check_flag,
    check_k,
    check_new_points,
    check_points,
    check_sigmas,
    one_of,
    warn,
)
from ._version import __version__
from ._votes import Blend, Votes, combine

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclass(frozen=True, eq=False)
class Prediction:
    """What `predict` or a `Predictor` says of n_new points.

    Attributes
    ----------
    label : ndarray, shape (n_new,), or None
        The class of most weight, in the type of y (averaged over k: of highest probability); None
        for regression.
    probability : ndarray, shape (n_new, J), or None
        Of each class, columns as in `classes`; rows sum to one. None for regression.
    mean : ndarray
        Regression: the predicted values, shape (n_new,) or (n_new, outputs) as y has it. Classes:
        the latent means, shape (n_new, J), columns as in `classes`, whatever the formulation.
    variance : ndarray, shape (n_new,), or None
        The variance of one latent output; None for the plain vote or average. Averaged over k, it
        is the mean variance within the components plus the variance between their means. The
        latter is averaged over the outputs (classes); in formulation "binary" there is one, the
        difference ``mean[:, 1] - mean[:, 0]``. Infinite where two points alone say how much y
        varies.
    n_neighbors : ndarray of int, shape (n_new,)
        How many training points have a positive weight; 0 is possible with graph "mutual".
    classes : ndarray, shape (J,), or None
        The labels in sorted order: which column of `probability` and `mean` is which. None for
        regression.
    """

    label: np.ndarray | None
    probability: np.ndarray | None
    mean: np.ndarray
    variance: np.ndarray | None
    n_neighbors: np.ndarray
    classes: np.ndarray | None = None

    def __repr__(self) -> str:
        shown = {"mean": self.mean, "variance": self.variance, "n_neighbors": self.n_neighbors}
        last = []
        if self.probability is not None and self.classes is not None:
            del shown["mean"]
            best = self.probability.max(axis=1, initial=0.0)
            shown = {"label": self.label, "its probability": best, **shown}
            last = [f"{len(self.classes)} classes"]
        known = {name: value for name, value in shown.items() if value is not None}
        parts = [f"{name}={_first_of(value)}" for name, value in known.items()]
        return f"Prediction({', '.join([f'n_new={len(self.mean)}', *parts, *last])})"


_SHOWN = 3  # predictions that a repr names


def _first_of(values: np.ndarray) -> str:
    """The first few, as results print them."""
    few = values[:_SHOWN]
    if values.dtype.kind == "f":
        few = np.array([float(f"{one:.4g}") for one in few.ravel()]).reshape(few.shape)
    if values.dtype.kind == "M":  # nanoseconds would come out as integers
        few = few.astype(str)
    return str(few.tolist())[:-1] + (", ...]" if len(values) > _SHOWN else "]")


@interruptible
def predict(
    X: ArrayLike,
    y: ArrayLike,
    X_new: ArrayLike,
    model: Selection | Posterior | None = None,
    *,
    k: int | None = None,
    graph: Graph | None = None,
    sigma0: float | None = None,
    sigma2: float | None = None,
    ties: Ties = "nearest",
    task: Task = "auto",
    center: bool = True,
    metric: MetricName | Metric | None = None,
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
    metric : str or Metric, optional
        "euclidean", "manhattan", "chebyshev", "cosine" or "precomputed", or a learned one. By
        default the model's, without one "euclidean"; so, with a warning, where the model's is None.

    Returns
    -------
    Prediction
        ``label``, ``probability``, ``mean``, ``variance``, ``n_neighbors`` and ``classes``.

    See Also
    --------
    prepare : The same for new points that come one after another.
    select_k, posterior : Where models come from.
    plot_decision : Predictions all over the plane.

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
    predictor = prepare(
        X,
        y,
        model,
        k=k,
        graph=graph,
        sigma0=sigma0,
        sigma2=sigma2,
        ties=ties,
        task=task,
        center=center,
        metric=metric,
    )
    return predictor(X_new)


@interruptible
def prepare(
    X: ArrayLike,
    y: ArrayLike,
    model: Selection | Posterior | None = None,
    *,
    k: int | None = None,
    graph: Graph | None = None,
    sigma0: float | None = None,
    sigma2: float | None = None,
    ties: Ties = "nearest",
    task: Task = "auto",
    center: bool = True,
    metric: MetricName | Metric | None = None,
) -> Predictor:
    """Do once what every prediction needs, and return a function of new points.

    Mutual and symmetric graphs ask each training point how far its own k-th neighbour is, which
    takes a ranking of all of them. A `Predictor` has that behind it: calling it costs a search
    among the training points, and gives to the last bit what `predict` gives.

    Parameters
    ----------
    X : array_like, shape (n, d)
        The training points, or their n x n distances if ``metric="precomputed"``.
    y : array_like, shape (n,) or (n, outputs)
        Their labels or values.
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
        Both or neither, in place of a model. Not with graph "knn", which is no prior.
    ties : str
        Which class wins a tie of votes. "nearest": that of the nearest neighbour of a tied class,
        and without any neighbour that of the nearest training point. "lowest": the first in sorted
        order.
    task : str
        "auto" (float y is regression, anything else classes), "classification" or "regression".
    center : bool
        Regression: whether the mean is taken off y. With a model its own choice counts.
    metric : str or Metric, optional
        "euclidean", "manhattan", "chebyshev", "cosine" or "precomputed", or a learned one. By
        default the model's, without one "euclidean"; so, with a warning, where the model's is None.

    Returns
    -------
    Predictor
        To be called with new points, saved, copied, or sent to other threads and processes.

    See Also
    --------
    predict : The same in one call, where all new points are there at once.
    load_predictor : Reads what a predictor has saved.

    Examples
    --------
    >>> import mksknn
    >>> X = [[0.0], [1.0], [2.0], [7.0], [8.0], [9.0]]
    >>> y = ["low", "low", "low", "high", "high", "high"]
    >>> predictor = mksknn.prepare(X, y, mksknn.select_k(X, y))
    >>> predictor
    Predictor(n=6, d=1, k=2, graph='symmetric', metric='euclidean', 2 classes)
    >>> predictor([[1.5]]).label.tolist()
    ['low']
    >>> predictor([[6.0], [8.5]]).label.tolist()
    ['high', 'high']
    """
    one_of(ties, TIES, "ties")
    center = check_flag(center, "center")
    given = {"k": k, "graph": graph, "sigma0": sigma0, "sigma2": sigma2, "metric": metric}
    if model is not None:
        _check_agreement(model, given, center)
        graph, metric, center = model.graph, model.metric or metric, model.center
        if metric is None:
            warn(
                "metric of the model is None, as lists from as_neighbors do not say by which they "
                "were found, and Euclidean distances are taken. If the lists are of others, "
                'metric= says of which; if not, metric="euclidean" says so'
            )
    graph = one_of("symmetric" if graph is None else graph, GRAPHS, "graph")
    metric = check_metric("euclidean" if metric is None else metric)
    check_no_ranking(X)
    points, name, raw = points_and_name(X, metric)
    learned_on = metric.columns if isinstance(metric, Metric) else None
    targets = encode(y, len(points), task, "auto", center, X)
    if model is None:
        blend = _blend_of_sigmas(k, graph, sigma0, sigma2, len(points))
    else:
        blend = _blend_of_model(model, targets)
    return Predictor(
        graph=graph,
        metric=metric,
        ties=ties,
        binary=model is not None and model.formulation == "binary",
        columns=column_names(X) or learned_on,
        blend=blend,
        voters=targets,
        index=Index(points, blend.ks, graph, name),
        corners=_corners(raw, name),
    )


def _check_agreement(model: object, given: Mapping[str, object], center: bool) -> None:
    """Refuse arguments that say something else than the model."""
    if not isinstance(model, Selection | Posterior):
        hint = f": pass k={model}" if isinstance(model, int) else ""
        raise TypeError(
            "model must be a Selection from select_k, a Posterior from posterior, or None; got "
            f"{model!r}{hint}"
        )
    if isinstance(model, Posterior):
        for name in ("k", "sigma0", "sigma2"):
            if given[name] is not None:
                raise ValueError(
                    f"{name} must be left out with a Posterior, which averages over it; got "
                    f"{given[name]!r}"
                )
        given = {name: given[name] for name in ("graph", "metric")}
    if model.metric is None:  # of lists found elsewhere: only the caller knows by which
        given = {name: value for name, value in given.items() if name != "metric"}
    for name, value in given.items():
        if value is not None and not _agrees(value, getattr(model, name)):
            raise ValueError(
                f"{name} must be left out or equal the model's {name}={getattr(model, name)!r}; "
                f"got {value!r}"
            )
    if model.center and not center:
        raise ValueError("center must be True, as it was when the model was selected; got False")


def _agrees(value: object, known: object) -> bool:
    try:
        return bool(same_metric(value, known))
    except (TypeError, ValueError):  # pandas.NA, or an array
        return False


def _blend_of_sigmas(k: object, graph: Graph, sigma0: object, sigma2: object, n: int) -> Blend:
    if k is None:
        raise ValueError("k must be given, or a model from select_k; got neither")
    sigmas = check_sigmas(sigma0, sigma2)
    if sigmas is not None and graph == "knn":
        raise ValueError(
            "sigma0 and sigma2 must be left out with graph='knn': its weights are not symmetric, "
            f"so no prior goes with them; got sigma0={sigma0!r} and sigma2={sigma2!r} (those of "
            "select_k(criterion='loo_log') come with their model)"
        )
    return Blend.single(check_k(k, n), sigmas)


def _blend_of_model(model: Selection | Posterior, targets: Targets) -> Blend:
    _check_targets(model, targets)
    if isinstance(model, Posterior):
        mixture = model.mixture
        check_k(mixture.k[-1], targets.n, "model.k")
        return Blend.many(mixture.k, mixture.ratio, mixture.inverse_sigma0, mixture.weight)
    k = check_k(model.k, targets.n, "model.k")
    return Blend.single(k, check_sigmas(model.sigma0, model.sigma2))


def _check_targets(model: Selection | Posterior, targets: Targets) -> None:
    """Refuse a model that was selected on other targets."""
    if (model.formulation == "regression") != (targets.formulation == "regression"):
        raise ValueError(
            f"y must be of the kind that the model was selected on, {model.formulation!r}; got "
            f"{targets.formulation!r} targets: pass the same y and task"
        )
    if targets.classes is None:
        return
    known = model.classes
    if known is not None and list(known) != list(targets.classes):
        raise ValueError(
            "y must have the classes that the model was selected on, "
            f"{reprlib.repr(known.tolist())}; got {reprlib.repr(targets.classes.tolist())}"
        )
    if model.formulation == "binary" and len(targets.classes) != 2:
        raise ValueError(
            "y must have the 2 classes that the model was selected on; got "
            f"{len(targets.classes)} classes"
        )


# ---------------------------------------------------------------------------------------------
# The predictor

_KIND, _FORMAT = "mksknn predictor", 1


@dataclass(frozen=True, eq=False)
class Predictor:
    """A function of new points, from `prepare` or `load_predictor`.

    ``predictor(X_new)`` is a `Prediction`. Nothing in it changes, so threads may share it; it can
    be pickled, copied and sent to other processes.

    Attributes
    ----------
    graph, ties : str
        As given to `prepare`, or the model's.
    metric : str or Metric
        The distance. New points go through a `Metric` as the training points did.
    columns : tuple of str or None
        Names of the columns of X, where it had any. New points that have names must have the same
        ones in the same order.
    binary : bool
        Whether there is one latent output for two classes, as in formulation "binary".
    blend : Blend
        The k, the ratios sigma2/sigma0 and their weights that predictions are averaged over.
    voters : Voters
        The targets of the training points.
    index : Index
        The training points laid out for searching, and how far their k-th neighbours are.
    corners : ndarray, shape (2, d)
        The lowest and the highest value in each column, by which new points are checked.
    """

    graph: Graph
    metric: MetricName | Metric
    ties: Ties
    columns: tuple[str, ...] | None
    binary: bool
    blend: Blend
    voters: Voters
    index: Index
    corners: np.ndarray

    @property
    def n(self) -> int:
        """The number of training points."""
        return self.index.n

    @property
    def k(self) -> int | np.ndarray:
        """The number of neighbours; all that are averaged over, rising, if there are several."""
        ks = self.blend.ks
        return int(ks[0]) if len(ks) == 1 else ks.copy()

    @property
    def classes(self) -> np.ndarray | None:
        """The labels in the order of the columns of probabilities; None for regression."""
        return self.voters.classes

    @interruptible
    def __call__(self, X_new: ArrayLike) -> Prediction:
        """Predict labels or values of new points, as `predict` does.

        Parameters
        ----------
        X_new : array_like, shape (n_new, d)
            The new points, or their n_new x n distances to the training points.

        Returns
        -------
        Prediction
            ``label``, ``probability``, ``mean``, ``variance``, ``n_neighbors`` and ``classes``.
        """
        new = self._check_new(X_new)
        votes = Votes.empty(len(new), self.voters)

        def work(links: Links, rows: np.ndarray | slice) -> None:
            votes.put(rows, combine(links, self.voters, self.blend, self.graph, self.ties))

        self.index.run(new, work)
        return self._prediction(votes)

    def _check_new(self, X_new: object) -> np.ndarray:
        if self.columns is not None:
            check_columns(X_new, self.columns, "X_new", "of X")
        if not isinstance(self.metric, Metric):
            return check_new_points(X_new, self.corners, self.metric)
        new = check_new_points(X_new, self.corners, "euclidean")
        with np.errstate(over="ignore", invalid="ignore"):
            mapped = self.metric.map(new)
            fits = np.isfinite((mapped * mapped).sum())
        if not fits:
            raise ValueError(
                f"X_new must have distances that fit in a float in metric {self.metric.name!r}; "
                f"got values up to {np.abs(new).max():g}"
            )
        return mapped

    def _prediction(self, votes: Votes) -> Prediction:
        voters, variance = self.voters, None
        if self.blend.inverse_sigma0 is not None:
            between = votes.between[:, : voters.n_classes or None]
            variance = votes.within + (
                votes.between[:, -1] if self.binary else between.mean(axis=1)
            )
        if voters.classes is None:
            mean = votes.mean + voters.mean
            mean = mean[:, 0] if voters.flat else mean
            return Prediction(None, None, mean, variance, votes.n_neighbors, None)
        label, mean = voters.classes[votes.winner], votes.mean[:, : voters.n_classes].copy()
        classes = voters.classes.copy()
        return Prediction(label, votes.probability, mean, variance, votes.n_neighbors, classes)

    def __repr__(self) -> str:
        if self.classes is None:
            what = f"{self.voters.values.shape[1]} output{'s' * (len(self.voters.mean) != 1)}"
        else:
            what = f"{len(self.classes)} classes"
        size = f"n={self.n}"
        if self.metric != "precomputed":
            size += f", d={self.corners.shape[1]}"
        k, metric = span(self.blend.ks), name_of(self.metric)
        return f"Predictor({size}, {k}, graph={self.graph!r}, metric={metric!r}, {what})"

    def save(self, path: str | os.PathLike) -> None:
        """Write to a file that `load_predictor` reads, in another process or on another machine.

        The file is an .npz archive of plain arrays and text; nothing is pickled. It gets exactly
        the name given, and replaces a file of that name only when it is complete.

        Parameters
        ----------
        path : str or path-like
            Where to.
        """
        classes = self.classes
        if classes is not None and classes.dtype.kind == "O":
            names = ", ".join(sorted({type(label).__name__ for label in classes}))
            raise ValueError(
                "y must be an array of a plain type (text, integers, booleans, floats or "
                f"dates) for the predictor to be saved; got Python objects of type {names}: "
                "convert y first, as np.array(list(y)) does where that is possible"
            )
        about: dict[str, Any] = {
            "mksknn": __version__,
            "graph": self.graph,
            "metric": self.metric,
            "ties": self.ties,
            "binary": self.binary,
            "columns": self.columns,
            "n": self.n,
        }
        arrays = {"radii": self.index.radii, "corners": self.corners}
        if self.index.points is not None:
            arrays["points"] = self.index.points
        for part, kind in ((self.blend, Blend), (self.voters, Voters)):
            text, found = _to_file(part, kind)
            about, arrays = about | text, arrays | found
        if isinstance(self.metric, Metric):
            about["metric"], found = _to_file(self.metric, Metric, "metric_")
            arrays |= found
        _archive.write(path, _KIND, _FORMAT, about, arrays)


@interruptible
def load_predictor(path: str | os.PathLike) -> Predictor:
    """Read a predictor that was saved by ``predictor.save(path)``.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    Predictor
        It predicts what the one that was saved predicts, to the last bit. A file that is truncated,
        altered, of another kind or of a later format raises a ValueError that says so.

    See Also
    --------
    prepare : Makes predictors.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import mksknn
    >>> X, y = [[0.0], [1.0], [7.0], [8.0]], ["low", "low", "high", "high"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "model.npz"
    ...     mksknn.prepare(X, y, k=1).save(path)
    ...     predictor = mksknn.load_predictor(path)
    >>> predictor([[6.0]]).label.tolist()
    ['high']
    """
    about, arrays = _archive.read(path, _KIND, _FORMAT)
    try:
        return _from_file(about, arrays)
    except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"{path} holds no consistent predictor: {error}") from error


def _from_file(about: dict, arrays: dict[str, np.ndarray]) -> Predictor:
    """The predictor, after everything was checked that a kernel relies on."""
    n = about["n"]
    _require(type(n) is int and n >= 2, f"n must be an integer of at least 2; got {n!r}")
    graph, ties = one_of(about["graph"], GRAPHS, "graph"), one_of(about["ties"], TIES, "ties")
    blend = _blend_from_file(arrays, n)
    metric = _metric_from_file(about["metric"], arrays)
    name = "euclidean" if isinstance(metric, Metric) else metric
    if name == "precomputed":
        points = np.empty((0, n))
    else:
        points = check_points(arrays["points"], name, "points")
        _require(len(points) == n, f"points must have {n} rows; got {len(points)}")
    d = points.shape[1]  # of X as it is given
    if isinstance(metric, Metric):
        d, mapped = metric.matrix.shape
        _require(
            points.shape[1] == mapped,
            f"points must have the {mapped} columns of metric.matrix; got {points.shape[1]}",
        )
    radii = None
    if graph != "knn":
        radii = _floats(arrays, "radii", (n, len(blend.ks)))
        _require((radii >= 0).all() and (np.diff(radii) >= 0).all(), "radii must not fall")
    corners = _floats(arrays, "corners", (2, d))
    _require((corners[0] <= corners[1]).all(), "corners must be the lowest and the highest values")
    voters = _voters_from_file(about, arrays, n)
    binary = check_flag(about["binary"], "binary")
    _require(
        not binary or voters.n_classes == 2,
        f"binary must be False unless there are 2 classes; got {voters.n_classes}",
    )
    return Predictor(
        graph=graph,
        metric=metric,
        ties=ties,
        columns=_columns_from_file(about["columns"], d),
        binary=binary,
        blend=blend,
        voters=voters,
        index=Index(points, blend.ks, graph, name, radii),
        corners=corners,
    )


def _columns_from_file(columns: Any, d: int) -> tuple[str, ...] | None:
    if columns is None:
        return None
    _require(
        isinstance(columns, list) and all(isinstance(name, str) for name in columns),
        "columns must be text, in a list",
    )
    _require(len(columns) == d, f"columns must be {d} names; got {len(columns)}")
    return tuple(columns)


def _blend_from_file(arrays: dict[str, np.ndarray], n: int) -> Blend:
    k = arrays["k"]
    _require(k.ndim == 1 and k.dtype.kind == "i" and len(k) > 0, "k must be integers")
    _require((k[1:] >= k[:-1]).all(), "k must rise")  # a difference could overflow
    check_k(k[0], n)
    check_k(k[-1], n)
    inverse = arrays.get("inverse_sigma0")
    # of two points with one output it is infinite
    if inverse is not None and not (inverse.shape == k.shape and np.isposinf(inverse).all()):
        inverse = _floats(arrays, "inverse_sigma0", k.shape)
        _require((inverse >= 0).all(), "inverse_sigma0 must be >= 0")
    weight, ratio = _floats(arrays, "weight", k.shape), _floats(arrays, "ratio", k.shape)
    _require((weight >= 0).all(), "weight must be >= 0")
    _require(abs(weight.sum() - 1.0) <= 1e-9, f"weight must sum to 1; got {weight.sum()}")
    # only where there is no variance may it be 0
    least = "> 0 with inverse_sigma0" if inverse is not None else ">= 0"
    _require((ratio >= 0).all() and (inverse is None or ratio.all()), f"ratio must be {least}")
    return Blend(np.ascontiguousarray(k, dtype=np.int64), ratio, inverse, weight)


def _voters_from_file(about: dict, arrays: dict[str, np.ndarray], n: int) -> Voters:
    flat = check_flag(about["flat"], "flat")
    if "classes" not in arrays:
        values = _floats(arrays, "values", (n, arrays["values"].shape[-1]))
        outputs = values.shape[1]
        _require(outputs >= 1, "values must have at least 1 column")
        _require(not flat or outputs == 1, f"flat must be False; got True with {outputs} outputs")
        mean = _floats(arrays, "mean", (outputs,))
        return Voters(None, np.empty(0, np.int32), values, mean, flat)
    classes, codes = arrays["classes"], arrays["codes"]
    _require(classes.ndim == 1 and len(classes) >= 2, "classes must be at least 2 labels")
    _require(
        classes.dtype.kind in "fiubUSMm" and np.array_equal(np.unique(classes), classes),
        "classes must be distinct labels in sorted order",
    )
    _require(codes.shape == (n,) and codes.dtype.kind == "i", f"codes must be {n} integers")
    _require(
        codes.min() >= 0 and codes.max() < len(classes), "codes must be numbers of the classes"
    )
    codes = np.ascontiguousarray(codes, dtype=np.int32)
    return Voters(classes, codes, np.empty((0, 0)), np.empty(0), flat)


def _to_file(part: Any, kind: type, prefix: str = "") -> tuple[dict, dict[str, np.ndarray]]:
    """The fields of a dataclass as text and arrays."""
    known = {field.name: getattr(part, field.name) for field in fields(kind)}
    arrays = {name: value for name, value in known.items() if isinstance(value, np.ndarray)}
    text = {name: value for name, value in known.items() if name not in arrays}
    return text, {prefix + name: value for name, value in arrays.items()}


def _metric_from_file(about: object, arrays: dict[str, np.ndarray]) -> MetricName | Metric:
    if not isinstance(about, dict):
        return one_of(about, METRICS, "metric")
    parts = dict(about)
    for name in arrays:
        if name.startswith("metric_"):
            parts[name.removeprefix("metric_")] = arrays[name]
    _require(isinstance(parts["name"], str), "metric.name must be text")
    _require(isinstance(parts.get("criterion", ""), str), "metric.criterion must be text")
    for name in ("compared", "held_out"):
        found = parts.get(name, {})
        _require(
            isinstance(found, dict) and all(isinstance(v, int | float) for v in found.values()),
            f"metric.{name} must be numbers by name",
        )
    matrix = parts["matrix"]
    _require(matrix.ndim == 2, f"metric.matrix must be a matrix; got shape {matrix.shape}")
    d = len(matrix)
    for name, shape in (("matrix", matrix.shape), ("relevance", (d,)), ("center", (d,))):
        if name != "center" or parts[name] is not None:
            parts[name] = _floats(parts, name, shape, "metric.")
    return Metric(**parts | {"columns": _columns_from_file(parts["columns"], d)})


def _floats(
    arrays: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...], of: str = ""
) -> np.ndarray:
    """An array of finite numbers of this shape, as floats in C order."""
    array = arrays[name]
    _require(
        array.shape == shape and array.dtype.kind in "fiu",
        f"{of}{name} must be finite floats of shape {shape}; got shape {array.shape} of "
        f"{array.dtype}",
    )
    with np.errstate(over="ignore"):  # extended precision holds what float64 does not
        floats = np.ascontiguousarray(array, dtype=np.float64)
    check_finite(floats, of + name)
    return floats


def _require(held: bool | np.bool_, message: str) -> None:
    if not held:
        raise ValueError(message)


# ---------------------------------------------------------------------------------------------
# Columns


def _corners(points: np.ndarray, metric: str) -> np.ndarray:
    """The lowest and the highest value in each column, of distances of all."""
    if metric == "precomputed":
        return np.outer([0.0, points.max()], np.ones(len(points)))
    return np.stack([points.min(axis=0), points.max(axis=0)])
