"""Figures of curves over k, of what a choice of k predicts in the plane, and of relevances.

Matplotlib is imported by the functions that draw, so that the library works without it.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ._evidence import EvidenceCurve
from ._loo import LooCurve
from ._metrics import Metric, column_names
from ._names import SCALES, SCORES, Graph, MetricName, Scale, Score, Task, Ties
from ._neighbors import check_no_ranking
from ._posterior import Posterior
from ._prediction import Prediction, predict
from ._selection import Selection
from ._validation import check_flag, check_points, one_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D
    from numpy.typing import ArrayLike

_K_LABEL = "k, number of neighbours"
_UNBOUNDED = "no maximum: ratio at a bound"
_NO_GRAPH = "no better than no graph"
# Curves and text are both seen. "best" is what matplotlib takes anyway; not told so, it warns where
# the choice took a second, as on a busy machine.
_LEGEND: dict[str, Any] = {"framealpha": 0.6, "edgecolor": "none", "loc": "best"}
_DOTS: dict[str, Any] = {"s": 22, "edgecolors": "white", "linewidths": 0.6}
_MARKED = 60  # up to so many k, each one gets a dot or a bar of its own
_SIGNS = "os^Dv<>p"  # of points; colours come again after eight classes, with another sign
_DARKER = 0.55  # and darker
_COLOURS = (  # of classes; they differ in lightness too (Okabe and Ito)
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#d55e00",
    "#56b4e9",
    "#f0e442",
    "#777777",
)


def plot_curve(
    curve: EvidenceCurve | LooCurve | Posterior,
    ax: Axes | None = None,
    *,
    selection: Selection | None = None,
    score: Score = "error",
    label: str | None = None,
    k_scale: Scale = "auto",
    relative: bool = False,
) -> Axes:
    """Draw an evidence curve, a leave-one-out curve or a posterior over k.

    Parameters
    ----------
    curve : EvidenceCurve, LooCurve or Posterior
        What to draw. The best k is marked. On an evidence curve the k whose ratio sigma2/sigma0
        stopped at an end of ``ratio_bounds`` are marked too; on a posterior, the interval of k.
    ax : matplotlib.axes.Axes, optional
        Where to draw. By default a new figure. Several curves may share one.
    selection : Selection, optional
        What :func:`select_k` returned for the same data: the k that it evaluated are marked along
        the lower edge.
    score : str
        Of a leave-one-out curve: "error" or "log_score".
    label : str, optional
        Name of the curve in the legend. By default its graph and formulation.
    k_scale : str
        "linear", "log", or "auto": logarithmic for curves that go beyond k = 60, because what
        happens at small k decides. A posterior stays linear, so that areas are probabilities.
    relative : bool
        Draw log evidences and log scores less the highest of their curve, so that curves of
        different heights fit into one figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn on.

    See Also
    --------
    evidence_curve, loo_curve, posterior : What can be drawn.
    plot_decision : What a choice of k predicts, all over the plane.

    Notes
    -----
    A few values far from all others do not decide what the picture shows. Evidences without a
    maximum, whose height is a matter of ``ratio_bounds``, and a few bad k far below the rest are
    shown by triangles on the edge if the curve would be flattened otherwise.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")  # only needed where there is no screen
    >>> import mksknn
    >>> data = mksknn.datasets.load_new_thyroid()
    >>> curve = mksknn.evidence_curve(data.X, data.y, k_max=20)
    >>> ax = mksknn.plot_curve(curve)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('k, number of neighbours', 'log evidence (nats)')
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['symmetric, formulation II', 'best k = 3']
    """
    if not isinstance(curve, EvidenceCurve | LooCurve | Posterior):
        raise TypeError(
            "curve must be an EvidenceCurve, a LooCurve or a Posterior; "
            f"got {type(curve).__name__}: evidence_curve, loo_curve and posterior return them"
        )
    one_of(score, SCORES, "score")
    one_of(k_scale, SCALES, "k_scale")
    relative = check_flag(relative, "relative")
    errors = isinstance(curve, LooCurve) and score == "error"
    if relative and (isinstance(curve, Posterior) or errors):
        raise ValueError(
            "relative must be False for errors and probabilities: only log evidences and log "
            "scores are measured from their highest value"
        )
    if not (selection is None or isinstance(selection, Selection)):
        raise TypeError(f"selection must be a Selection; got {type(selection).__name__}")
    if ax is None:
        ax = _new_axes((6.4, 3.8))
    if isinstance(curve, EvidenceCurve):
        _draw_evidence(ax, curve, label, relative)
    elif isinstance(curve, LooCurve):
        _draw_loo(ax, curve, label, relative, errors)
    else:
        _draw_posterior(ax, curve, label)
    if selection is not None:
        _draw_evaluated(ax, selection.evaluated, len(curve.k))
    ax.set_xlabel(_K_LABEL)
    long = curve.k[-1] > _MARKED and not isinstance(curve, Posterior)
    scale = k_scale if k_scale != "auto" else "log" if long else ax.get_xscale()
    _scale_k(ax, scale)
    if ax.dataLim.width == 0.0:  # one k: nothing between it and the next ones
        ax.set_xlim(curve.k[0] - 1, curve.k[0] + 1)
    _fit(ax, errors)
    ax.spines[["top", "right"]].set_visible(False)
    # the marks of a selection stand on the lower edge: the legend stays clear of them
    ax.legend(**_LEGEND, borderaxespad=0.5 if selection is None else 1.3)
    return ax


def _draw_evidence(ax: Axes, curve: EvidenceCurve, label: str | None, relative: bool) -> None:
    lower, upper = _ends(curve)
    values, what = curve.log_evidence, "log evidence"
    if relative:
        bounded = values[~lower] if not lower.all() else values
        values, what = values - bounded.max(), "log evidence less its best"
    line = _draw_line(ax, curve.k, values, label or _name(curve), lower)
    if upper.any():
        named = any(one.get_label() == _NO_GRAPH for one in ax.lines)
        style: dict[str, Any] = {"color": line.get_color(), "markersize": 4, "zorder": 4}
        ax.plot(curve.k[upper], values[upper], "v", label="_" if named else _NO_GRAPH, **style)
    best = int(np.argmax(values))
    _draw_best(ax, line, curve.k[best], values[best])
    ax.set_ylabel(f"{what} (nats)")


def _ends(curve: EvidenceCurve) -> tuple[np.ndarray, np.ndarray]:
    """Which k stopped at the lower end of the bounds of the ratio, and which at the upper one."""
    ratio = curve.sigma2 / curve.sigma0
    if curve.at_bound.all() and np.ptp(ratio) == 0.0:
        lower = curve.at_bound & (ratio < 1.0)  # nothing to compare with: the default bounds
    else:
        lower = curve.at_bound & (ratio <= ratio.min())
    return lower, curve.at_bound & ~lower


def _draw_loo(ax: Axes, curve: LooCurve, label: str | None, relative: bool, errors: bool) -> None:
    if errors:
        values, best = curve.error, curve.best_k
        ax.set_ylabel("leave-one-out error")
    else:
        best = curve.best_k_log  # says so if the curve has no log scores
        values = curve.log_score - (curve.log_score.max() if relative else 0.0)
        less = " less its best" if relative else ""
        ax.set_ylabel(f"leave-one-out log score{less} (nats)")
    none = np.zeros(len(values), np.bool_)
    line = _draw_line(ax, curve.k, values, label or curve.graph, none, lowest_wins=errors)
    _draw_best(ax, line, best, values[np.searchsorted(curve.k, best)])


def _draw_posterior(ax: Axes, curve: Posterior, label: str | None) -> None:
    k, probability = curve.k, curve.probability
    seen = k[probability >= 1e-3 * probability.max()]
    low, high = curve.interval
    first, last = min(seen[0], low), max(seen[-1], high)
    name = label or _name(curve)
    if last - first < _MARKED:
        colour = ax.bar(k, probability, width=0.8, label=name)[0].get_facecolor()
    else:
        colour = ax.fill_between(k, probability, step="mid", label=name).get_facecolor()[0]
    ax.axvspan(
        low - 0.5,
        high + 0.5,
        color=colour,
        alpha=0.12,
        linewidth=0,
        zorder=0,
        label=f"95% interval: {low} to {high}",
    )
    best = int(np.argmax(probability))
    _circle(ax, k[best], probability[best], colour, f"most probable k = {k[best]}")
    ax.set_xlim(first - 1, last + 1)
    ax.set_ylim(bottom=0)
    ax.set_ylabel("probability of k" if curve.weights == "evidence" else "weight of k")


@dataclass
class _Drawn:
    """A curve on the axes, with what `_fit` moves when the axes change: its marks."""

    k: np.ndarray
    values: np.ndarray
    unbounded: np.ndarray
    window: tuple[float, float]
    marks: list[Line2D]  # of values above, below and inside the picture
    best: Any = None  # a Line2D


def _draw_line(
    ax: Axes,
    k: np.ndarray,
    values: np.ndarray,
    label: str,
    unbounded: np.ndarray,
    lowest_wins: bool = False,
) -> Line2D:
    """Draw a curve; `_fit` decides later which of its points are shown on the edge."""
    marker = "." if len(k) <= _MARKED else ""
    line: Any = ax.plot(k, values, marker=marker, linewidth=1.4, label=label)[0]
    style = {"color": line.get_color(), "markersize": 6, "zorder": 4}
    marks = [ax.plot([], [], sign, clip_on=False, **style)[0] for sign in "^v^"]
    for mark in marks:
        mark.set_in_layout(False)
    marks[-1].set_markerfacecolor("white")
    line.drawn = _Drawn(k, values, unbounded, _window(values, unbounded, lowest_wins), marks)
    return line


def _draw_best(ax: Axes, line: Any, k: int, value: float) -> None:
    line.drawn.best = _circle(ax, k, value, line.get_color(), f"best k = {k}")


def _circle(ax: Axes, k: int, value: float, colour: Any, label: str) -> Line2D:
    (circle,) = ax.plot(
        [k],
        [value],
        "o",
        color=colour,
        markersize=9,
        markerfacecolor="white",
        markeredgewidth=1.8,
        zorder=3,
        clip_on=False,
        label=label,
    )
    circle.set_in_layout(False)
    return circle


def _draw_evaluated(ax: Axes, evaluated: np.ndarray, among: int) -> None:
    ax.plot(
        evaluated,
        np.full(len(evaluated), 0.02),
        "|",
        color="0.35",
        markersize=9,
        transform=ax.get_xaxis_transform(),
        label=f"evaluated by select_k: {len(evaluated)} of {among}",
    )


# ---------------------------------------------------------------------------------------------
# What the axes show


def _window(values: np.ndarray, unbounded: np.ndarray, lowest_wins: bool) -> tuple[float, float]:
    """The values that the picture should reach to: all, unless a few would flatten the others.

    A few means one k in thirty. They have to make the picture three times as high to be left out,
    and they are never the ones near the optimum: that is what the picture is for.
    """
    if unbounded.sum() <= len(values) / 4:
        kept = values[~unbounded]
        if np.ptp(values) <= 1.5 * np.ptp(kept):
            kept = values
    else:
        kept = values  # the rule rather than the exception
    sign = -1.0 if lowest_wins else 1.0
    ordered = np.sort(sign * kept)
    low, high = ordered[0], ordered[-1]
    few = ordered[min(max(1, len(ordered) // 30), len(ordered) - 1)]
    if high - low > 3.0 * (high - few) > 0.0:
        low = few
    return (low, high) if sign > 0 else (-high, -low)


def _fit(ax: Axes, errors: bool) -> None:
    """Set the limits for all curves on the axes, and put what lies beyond them on the edge."""
    curves = [line.drawn for line in ax.lines if hasattr(line, "drawn")]
    if not curves:
        return
    low = min(curve.window[0] for curve in curves)
    high = max(curve.window[1] for curve in curves)
    room = 0.06 * (high - low) or (0.05 if errors else 1.0)
    low, high = low - room, high + room
    ax.set_ylim(low, high)
    named = set()
    for curve in curves:
        above, below = curve.values > high, curve.values < low
        inside = curve.unbounded & ~above & ~below
        for mark, there in zip(curve.marks, (above, below, inside), strict=True):
            _place(ax, mark, curve.k[there], curve.values[there])
            name = _UNBOUNDED if (curve.unbounded & there).any() else "beyond the picture"
            mark.set_label("_" if name in named or not there.any() else name)
            named.add(mark.get_label())
        if curve.best is not None:
            k = np.asarray(curve.best.get_xdata())
            _place(ax, curve.best, k, curve.values[np.searchsorted(curve.k, k)])


def _place(ax: Axes, mark: Line2D, k: np.ndarray, values: np.ndarray) -> None:
    """Put a mark at its values, or on the edge of the picture beyond which they lie."""
    low, high = ax.get_ylim()
    transform: Any = ax.transData
    if len(values) and not low <= values[0] <= high:
        transform, values = ax.get_xaxis_transform(), np.full(len(k), float(values[0] > high))
    mark.set_transform(transform)
    mark.set_data(k, values)


def _scale_k(ax: Axes, scale: str) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    if ax.get_xscale() != scale:
        ax.set_xscale(scale)
    if scale == "log":
        ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda at, _: f"{at:g}"))
        ax.xaxis.set_minor_locator(NullLocator())
    else:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _name(curve: EvidenceCurve | Posterior) -> str:
    if curve.formulation in ("I", "II"):
        return f"{curve.graph}, formulation {curve.formulation}"
    return f"{curve.graph}, {curve.formulation}"


# ---------------------------------------------------------------------------------------------
# The plane


def plot_decision(
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
    resolution: int = 120,
    margin: float = 0.08,
    class_names: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw what is predicted all over the plane, under the points it is predicted from.

    Each class has a colour; the more probable it is, the stronger the colour. Where all classes are
    equally probable the plane is white. For regression the colour is the mean. The axes have the
    names of the columns, if X is a data frame. After eight classes colours come again, darker and
    with another sign for the points.

    Parameters
    ----------
    X : array_like, shape (n, 2)
        The points.
    y : array_like, shape (n,)
        Their labels or values.
    model : Selection or Posterior, optional
        What to predict with.
    k : int, optional
        Number of neighbours, in place of a model. Alone it gives the plain vote or average.
    graph : str, optional
        "knn", "mutual" or "symmetric". By default the model's, without one "symmetric".
    sigma0, sigma2 : float, optional
        Both or neither, in place of a model.
    ties : str
        Which class wins a tie of votes: "nearest", that of the nearest neighbour, or "lowest", the
        first in sorted order.
    task : str
        "auto" (float y is regression, anything else classes), "classification" or "regression".
    center : bool
        Regression: whether the mean is taken off y. With a model its own choice counts.
    metric : str or Metric, optional
        Of points, so not "precomputed". By default the model's, without one "euclidean".
    resolution : int
        Number of grid points along each axis.
    margin : float
        How far the picture reaches beyond the points, as a share of their range.
    class_names : sequence of str, optional
        Names for the legend, in the order of the sorted labels.
    ax : matplotlib.axes.Axes, optional
        Where to draw. By default a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn on.

    See Also
    --------
    predict : The predictions themselves.
    plot_curve : Curves over k.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")  # only needed where there is no screen
    >>> import mksknn
    >>> data = mksknn.datasets.load_new_thyroid()
    >>> X = data.X[:, [1, 3]]  # two of the five laboratory tests
    >>> best = mksknn.select_k(X, data.y, k_max=30)
    >>> ax = mksknn.plot_decision(X, data.y, best, resolution=30, class_names=data.class_names)
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['normal', 'hyper', 'hypo']
    """
    check_no_ranking(X)
    points = check_points(X, "euclidean")
    if points.shape[1] != 2:
        raise ValueError(f"X must have 2 columns to be drawn; got {points.shape[1]}")
    if "precomputed" in (metric, getattr(model, "metric", None)):
        raise ValueError("metric must not be 'precomputed': a grid of new points has no distances")
    if not isinstance(resolution, numbers.Integral) or resolution < 2:
        kind = ValueError if isinstance(resolution, numbers.Real) else TypeError
        raise kind(f"resolution must be an integer of at least 2; got {resolution!r}")
    if not isinstance(margin, numbers.Real) or not 0.0 <= margin < math.inf:
        kind = ValueError if isinstance(margin, numbers.Real) else TypeError
        raise kind(f"margin must be a finite number >= 0; got {margin!r}")
    learned = getattr(model, "metric", None) if metric is None else metric
    if isinstance(learned, Metric):
        learned.check_columns(X, "X")
    names = column_names(X)
    axes = [_grid(column, int(resolution), margin) for column in points.T]
    first, second = np.meshgrid(*axes)
    found = predict(
        points,
        y,
        np.column_stack([first.ravel(), second.ravel()]),
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
    beside = ax is None  # where there is room to be made
    if ax is None:
        ax = _new_axes((5.2, 4.4))
    targets = np.asarray(y)
    if found.label is None:
        _draw_surface(ax, axes, points, targets, found)
    else:
        _draw_regions(ax, axes, points, targets.ravel(), found, class_names, beside)
    ax.set_xlim(axes[0][0], axes[0][-1])
    ax.set_ylim(axes[1][0], axes[1][-1])
    if names is not None:
        ax.set(xlabel=names[0], ylabel=names[1])
    return ax


def _grid(column: np.ndarray, resolution: int, margin: float) -> np.ndarray:
    low, high = column.min(), column.max()
    room = margin * (high - low) or 1.0
    return np.linspace(low - room, high + room, resolution)


def _draw_regions(
    ax: Axes,
    axes: list[np.ndarray],
    points: np.ndarray,
    y: np.ndarray,
    found: Prediction,
    class_names: Sequence[str] | None,
    beside: bool,
) -> None:
    from matplotlib.colors import to_rgb

    assert found.label is not None and found.probability is not None
    classes, codes = np.unique(y, return_inverse=True)
    names = [str(one) for one in (classes if class_names is None else class_names)]
    if len(names) != len(classes):
        raise ValueError(f"class_names must have {len(classes)} names; got {len(names)}")
    rounds, colour = np.divmod(np.arange(len(classes)), len(_COLOURS))
    colours = np.array([to_rgb(_COLOURS[c]) for c in colour]) * _DARKER ** rounds[:, None]
    label = np.searchsorted(classes, found.label)
    chosen = found.probability[np.arange(len(label)), label]
    # 0 where every class is as probable, 1 where one is certain
    strength = np.clip((len(classes) * chosen - 1.0) / (len(classes) - 1.0), 0.0, 1.0)
    shade = 1.0 - 0.65 * strength[:, None] * (1.0 - colours[label])
    ax.pcolormesh(*axes, shade.reshape(len(axes[1]), len(axes[0]), 3), shading="nearest")
    for c, name in enumerate(names):
        x, y = points[codes == c].T
        sign = _SIGNS[c // len(_COLOURS) % len(_SIGNS)]
        ax.scatter(x, y, color=colours[c], label=name, zorder=3, marker=sign, **_DOTS)
    if beside and len(classes) > len(_COLOURS):  # they would cover the points
        ax.legend(**_LEGEND | {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)})
        figure: Any = ax.figure
        figure.set_figwidth(figure.get_figwidth() + 0.5 + 0.08 * max(map(len, names)))
    else:
        ax.legend(**_LEGEND)


def _draw_surface(
    ax: Axes, axes: list[np.ndarray], points: np.ndarray, y: np.ndarray, found: Prediction
) -> None:
    if found.mean.ndim > 1 and found.mean.shape[1] > 1:
        raise ValueError(f"y must have one output to be drawn; got {found.mean.shape[1]}")
    mean, values = found.mean.ravel(), y.ravel()
    span = {"vmin": min(mean.min(), values.min()), "vmax": max(mean.max(), values.max())}
    surface = mean.reshape(len(axes[1]), len(axes[0]))
    mesh = ax.pcolormesh(*axes, surface, shading="nearest", cmap="viridis", **span)
    x, y = points.T
    ax.scatter(x, y, c=values, cmap="viridis", **span, **_DOTS)
    ax.figure.colorbar(mesh, ax=ax, label="mean")


# ---------------------------------------------------------------------------------------------
# Relevances


def plot_relevance(metric: Metric, ax: Axes | None = None) -> Axes:
    """Draw how much each column counts in a learned distance.

    Parameters
    ----------
    metric : Metric
        What :func:`learn_metric` returned.
    ax : matplotlib.axes.Axes, optional
        Where to draw. By default a new figure, the higher the more columns there are.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn on: a bar for each column of X, the first on top, with its name if X had
        names. Columns of relevance 0 are marked "not used".

    See Also
    --------
    learn_metric : Where metrics come from.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")  # only needed where there is no screen
    >>> import numpy as np
    >>> import mksknn
    >>> X = np.random.default_rng(0).normal(size=(150, 4))
    >>> y = X[:, 0] * X[:, 1] > 0  # the other two columns are noise
    >>> ax = mksknn.plot_relevance(mksknn.learn_metric(X, y))
    >>> [float(bar.get_width()) for bar in ax.patches]
    [1.0, 1.0, 0.0, 0.0]
    """
    if not isinstance(metric, Metric):
        raise TypeError(
            f"metric must be a Metric; got {type(metric).__name__}: learn_metric returns one"
        )
    relevance = metric.relevance
    places = np.arange(len(relevance))
    if ax is None:
        ax = _new_axes((6.4, min(max(1.2 + 0.28 * len(relevance), 2.0), 20.0)))
    ax.barh(places, relevance, height=0.7, color=_COLOURS[0], label=metric.name)
    for place in places[relevance == 0.0]:
        ax.annotate(
            "not used",
            (0.0, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize="small",
            color="0.45",
        )
    size = 0.28 if len(places) < 60 else 20.0 / len(places)  # inches for each name
    ax.set_yticks(places, metric.names, fontsize=min(10.0, 72.0 * 0.8 * size))
    ax.set_ylim(len(relevance) - 0.5, -0.5)
    ax.set_xlim(left=0.0)
    ax.set_xlabel("relevance")
    ax.set_title(f"learned distance: {metric.name}", fontsize="medium")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _new_axes(size: tuple[float, float]) -> Axes:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plotting needs matplotlib: pip install matplotlib") from error
    return plt.subplots(figsize=size, layout="constrained")[1]
