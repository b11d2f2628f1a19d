"""Figures of curves over k, and of the regions that a choice of k gives in the plane.

Matplotlib is imported by the functions that draw, so that the library works without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ._evidence import EvidenceCurve
from ._loo import LooCurve
from ._posterior import Posterior
from ._prediction import predict
from ._selection import Selection
from ._validation import check_points, one_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

SCORES = ("error", "log_score")

_K_LABEL = "k, number of neighbours"
_MARKED = 60  # up to so many k, each one gets a dot or a bar of its own
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
    score: str = "error",
    label: str | None = None,
) -> Axes:
    """Draw an evidence curve, a leave-one-out curve or a posterior over k.

    Parameters
    ----------
    curve : EvidenceCurve, LooCurve or Posterior
        What to draw. The best k is marked; on an evidence curve, so is every k whose ratio
        sigma2/sigma0 stopped at an end of ``ratio_bounds``; on a posterior, the interval of k.
    ax : matplotlib.axes.Axes, optional
        Where to draw. By default a new figure. Several curves may share one.
    selection : Selection, optional
        What :func:`select_k` returned for the same data: the k that it evaluated are marked along
        the lower edge.
    score : str
        Of a leave-one-out curve: "error" or "log_score".
    label : str, optional
        Name of the curve in the legend. By default its graph and formulation.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn on.

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
    kinds = {EvidenceCurve: _draw_evidence, LooCurve: _draw_loo, Posterior: _draw_posterior}
    if type(curve) not in kinds:
        raise TypeError(
            "curve must be an EvidenceCurve, a LooCurve or a Posterior; "
            f"got {type(curve).__name__}: evidence_curve, loo_curve and posterior return them"
        )
    one_of(score, SCORES, "score")
    if not (selection is None or isinstance(selection, Selection)):
        raise TypeError(f"selection must be a Selection; got {type(selection).__name__}")
    if ax is None:
        ax = _new_axes((6.4, 3.8))
    kinds[type(curve)](ax, curve, score=score, label=label)
    if selection is not None:
        _draw_evaluated(ax, curve, selection)
    ax.set_xlabel(_K_LABEL)
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    return ax


def _draw_evidence(ax, curve: EvidenceCurve, *, score: str, label: str | None) -> None:
    colour = _draw_line(ax, curve.k, curve.log_evidence, label or _name(curve))
    if curve.at_bound.any():
        ax.plot(
            curve.k[curve.at_bound],
            curve.log_evidence[curve.at_bound],
            "v",
            color=colour,
            markersize=4,
            zorder=4,
            label="ratio at a bound",
        )
    best = int(np.argmax(curve.log_evidence))
    _draw_best(ax, curve.k[best], curve.log_evidence[best], colour)
    ax.set_ylabel("log evidence (nats)")


def _draw_loo(ax, curve: LooCurve, *, score: str, label: str | None) -> None:
    if score == "error":
        values, best = curve.error, curve.best_k
        ax.set_ylabel("leave-one-out error")
    else:
        best = curve.best_k_log  # says so if the curve has no log scores
        values = curve.log_score
        ax.set_ylabel("leave-one-out log score (nats)")
    colour = _draw_line(ax, curve.k, values, label or curve.graph)
    _draw_best(ax, best, values[np.searchsorted(curve.k, best)], colour)


def _draw_posterior(ax, curve: Posterior, *, score: str, label: str | None) -> None:
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
    _draw_best(ax, k[best], probability[best], colour, "most probable k")
    ax.set_xlim(first - 1, last + 1)
    ax.set_ylim(bottom=0)
    ax.set_ylabel("probability of k" if curve.weights == "evidence" else "weight of k")


def _draw_line(ax, k: np.ndarray, values: np.ndarray, label: str) -> str:
    """Draw a curve and return its colour."""
    marker = "." if len(k) <= _MARKED else ""
    (line,) = ax.plot(k, values, marker=marker, linewidth=1.4, label=label)
    return line.get_color()


def _draw_best(ax, k: int, value: float, colour: str, what: str = "best k") -> None:
    ax.plot(
        [k],
        [value],
        "o",
        color=colour,
        markersize=9,
        markerfacecolor="white",
        markeredgewidth=1.8,
        zorder=3,
        label=f"{what} = {k}",
    )


def _draw_evaluated(ax, curve, selection: Selection) -> None:
    evaluated = selection.evaluated
    ax.plot(
        evaluated,
        np.full(len(evaluated), 0.02),
        "|",
        color="0.35",
        markersize=9,
        transform=ax.get_xaxis_transform(),
        label=f"evaluated by select_k: {len(evaluated)} of {len(curve.k)}",
    )


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
    graph: str | None = None,
    sigma0: float | None = None,
    sigma2: float | None = None,
    ties: str = "nearest",
    task: str = "auto",
    center: bool = True,
    metric: str | None = None,
    resolution: int = 120,
    margin: float = 0.08,
    class_names: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw what is predicted all over the plane, under the points it is predicted from.

    Each class has a colour; the more probable it is, the stronger the colour. Where all classes are
    equally probable the plane is white. For regression the colour is the mean.

    Parameters
    ----------
    X : array_like, shape (n, 2)
        The points.
    y : array_like, shape (n,)
        Their labels or values.
    model : Selection or Posterior, optional
        What to predict with.
    k, graph, sigma0, sigma2, ties, task, center, metric
        As in :func:`predict`.
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
    points = check_points(X, "euclidean")
    if points.shape[1] != 2:
        raise ValueError(f"X must have 2 columns to be drawn; got {points.shape[1]}")
    if "precomputed" in (metric, getattr(model, "metric", None)):
        raise ValueError("metric must not be 'precomputed': a grid of new points has no distances")
    if int(resolution) != resolution or resolution < 2:
        raise ValueError(f"resolution must be an integer of at least 2; got {resolution!r}")
    axes = [_grid(column, int(resolution), margin) for column in points.T]
    first, second = np.meshgrid(*axes)
    extra = {} if metric is None else {"metric": metric}
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
        **extra,
    )
    if ax is None:
        ax = _new_axes((5.2, 4.4))
    if found.label is None:
        _draw_surface(ax, axes, points, np.asarray(y), found)
    else:
        _draw_regions(ax, axes, points, np.asarray(y), found, class_names)
    ax.set_xlim(axes[0][0], axes[0][-1])
    ax.set_ylim(axes[1][0], axes[1][-1])
    return ax


def _grid(column: np.ndarray, resolution: int, margin: float) -> np.ndarray:
    low, high = column.min(), column.max()
    room = margin * (high - low) or 1.0
    return np.linspace(low - room, high + room, resolution)


def _draw_regions(ax, axes, points, y, found, class_names) -> None:
    from matplotlib.colors import to_rgb

    classes, codes = np.unique(y, return_inverse=True)
    names = [str(one) for one in (classes if class_names is None else class_names)]
    if len(names) != len(classes):
        raise ValueError(f"class_names must have {len(classes)} names; got {len(names)}")
    colours = np.array([to_rgb(_COLOURS[c % len(_COLOURS)]) for c in range(len(classes))])
    label = np.searchsorted(classes, found.label)
    chosen = found.probability[np.arange(len(label)), label]
    # 0 where every class is as probable, 1 where one is certain
    strength = np.clip((len(classes) * chosen - 1.0) / (len(classes) - 1.0), 0.0, 1.0)
    shade = 1.0 - 0.65 * strength[:, None] * (1.0 - colours[label])
    ax.pcolormesh(*axes, shade.reshape(len(axes[1]), len(axes[0]), 3), shading="nearest")
    for c, name in enumerate(names):
        here = points[codes == c]
        ax.scatter(
            *here.T,
            s=22,
            color=colours[c],
            edgecolors="white",
            linewidths=0.6,
            label=name,
            zorder=3,
        )
    ax.legend(loc="best", framealpha=0.9)


def _draw_surface(ax, axes, points, y, found) -> None:
    if found.mean.ndim > 1 and found.mean.shape[1] > 1:
        raise ValueError(f"y must have one output to be drawn; got {found.mean.shape[1]}")
    mean, values = found.mean.ravel(), y.ravel()
    span = {"vmin": min(mean.min(), values.min()), "vmax": max(mean.max(), values.max())}
    surface = mean.reshape(len(axes[1]), len(axes[0]))
    mesh = ax.pcolormesh(*axes, surface, shading="nearest", cmap="viridis", **span)
    ax.scatter(
        *points.T, c=values, s=22, cmap="viridis", edgecolors="white", linewidths=0.6, **span
    )
    ax.figure.colorbar(mesh, ax=ax, label="mean")


def _new_axes(size: tuple[float, float]):
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plotting needs matplotlib: pip install mksknn[plot]") from error
    return plt.subplots(figsize=size, layout="constrained")[1]
