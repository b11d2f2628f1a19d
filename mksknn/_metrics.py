"""The distances there are: named ones, and linear maps that were learned from data.

Whatever the metric, ranking sees points and a name: a `Metric` maps the points first, and their
Euclidean distances are its distances.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ._jit import kernel
from ._names import METRICS, MetricName, Weights
from ._validation import check_finite, check_new_points, check_points, one_of, show

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

_SHOWN = 12  # columns that a repr names
_LEARNED_ON = "the columns that metric was learned on"


@dataclass(frozen=True, eq=False)
class Metric:
    """A distance: Euclidean after a linear map.

    :func:`learn_metric` makes them. Pass one as ``metric=`` wherever a metric is asked for, or map
    points with :meth:`transform` and search them with anything.

    Attributes
    ----------
    name : str
        The family it comes from, such as "relevance".
    matrix : ndarray of float64, shape (d, columns of the result)
        ``transform(X)`` is ``(X - center) @ matrix``.
    relevance : ndarray of float64, shape (d,)
        One number for each column of X: how far a point moves when that column alone changes by one
        standard deviation (the robust or the plain one). 0 means that the column is not used.
    compared : dict
        What each family got, by the criterion asked for. "loo_log": `log_total` of its posterior.
        "evidence": the evidence of at most 400 points, averaged over a grid of k and of ratios from
        0.01 to 300; `log_total` of a posterior averages over all k, ratios and points.
    held_out : dict
        What each family gained over "scale", in nats of leave-one-out log score of points that it
        was not learned from, one part of all points after another. A family below 2, or below four
        fifths of the best, could not win.
    criterion : str
        What `compared` holds: "evidence" or "loo_log".
    center : ndarray of float64, shape (d,)
        What is taken off first; it changes no distance, only their rounding.
    columns : tuple of str or None
        Names of the columns, where X had them.
    """

    name: str
    matrix: np.ndarray
    relevance: np.ndarray
    compared: dict[str, float] = field(default_factory=dict)
    center: np.ndarray | None = None
    columns: tuple[str, ...] | None = None
    held_out: dict[str, float] = field(default_factory=dict)
    criterion: Weights = "evidence"

    def transform(self, X: ArrayLike) -> np.ndarray:
        """Map points, so that their Euclidean distances are this metric's.

        Parameters
        ----------
        X : array_like, shape (rows, d)
            Points with the columns that the metric was learned on; names, if both have them, must
            agree.

        Returns
        -------
        ndarray of float64, shape (rows, columns of the result)
        """
        self.check_finite()
        self.check_columns(X, "X")
        reference = np.zeros((1, len(self.matrix))) if self.center is None else self.center[None]
        return self.map(check_new_points(X, reference, "euclidean", "X", _LEARNED_ON))

    def map(self, points: np.ndarray) -> np.ndarray:
        """`transform` behind the gate."""
        if points.shape[1] != len(self.matrix):
            raise ValueError(
                f"X must have {len(self.matrix)} columns ({_LEARNED_ON}); got shape {points.shape}"
            )
        shifted = points if self.center is None else points - self.center
        return _map_rows(shifted, np.ascontiguousarray(self.matrix))

    def check_columns(self, X: object, name: str) -> None:
        """Refuse a table whose columns are not those that the metric was learned on."""
        if self.columns is not None:
            check_columns(X, self.columns, name, "that metric was learned on")

    def check_finite(self) -> None:
        """Refuse a map that would make points infinite, or none."""
        check_finite(self.matrix, "metric.matrix")
        if self.center is not None:
            check_finite(self.center, "metric.center")

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each column: its own, or its number."""
        return self.columns or tuple(f"column {c}" for c in range(len(self.relevance)))

    def __repr__(self) -> str:
        names = self.names
        order = np.argsort(-self.relevance, kind="stable")
        used = [c for c in order if self.relevance[c] > 0.0]
        shown = [f"{names[c]}: {self.relevance[c]:.3g}" for c in used[:_SHOWN]]
        if len(used) > _SHOWN:
            shown.append(f"{len(used) - _SHOWN} more")
        text = f"Metric({self.name}; {', '.join(shown)}"
        idle = [names[c] for c in range(len(names)) if self.relevance[c] == 0.0]
        if idle:
            more = f", {len(idle) - _SHOWN} more" if len(idle) > _SHOWN else ""
            text += f"; not used: {', '.join(idle[:_SHOWN])}{more}"
        if self.compared:
            got = sorted(self.compared.items(), key=lambda pair: -pair[1])
            totals = ", ".join(f"{family} {value:.1f}" for family, value in got)
            text += f"; compared by {self.criterion}: {totals}"
            if got[0][0] != self.name:
                text += "; a higher one must be confirmed by points left out"
        return text + ")"


@kernel
def _map_rows(points, matrix):
    """``points @ matrix``, each row by itself: the same bits alone as among others.

    A matrix product of the BLAS rounds a row otherwise when others come with it, and two equal
    points would no longer be at distance 0.
    """
    out = np.zeros((points.shape[0], matrix.shape[1]))
    for r in range(points.shape[0]):
        for c in range(matrix.shape[0]):
            x = points[r, c]
            for j in range(matrix.shape[1]):
                out[r, j] += x * matrix[c, j]
    return out


def name_of(metric: MetricName | Metric) -> str:
    """What results and messages call a metric."""
    return metric.name if isinstance(metric, Metric) else metric


def same_metric(one: object, other: object) -> bool:
    """Whether these are equal, learned metrics by what they do: one may have been in a file."""
    if isinstance(one, Metric) and isinstance(other, Metric):
        pairs = [(one.matrix, other.matrix), (one.center, other.center)]
        return all(
            a is b or (a is not None and b is not None and np.array_equal(a, b)) for a, b in pairs
        )
    return one is other or one == other


def check_metric(metric: object) -> MetricName | Metric:
    """Return the name of a metric, or a learned one."""
    if not isinstance(metric, Metric):
        return one_of(metric, METRICS, "metric")
    metric.check_finite()
    return metric


def points_and_name(
    X: object, metric: MetricName | Metric
) -> tuple[np.ndarray, MetricName, np.ndarray]:
    """The points to rank, checked and mapped; the name of the distance between them; and the points
    as they were before they were mapped.
    """
    if isinstance(metric, Metric):
        metric.check_columns(X, "X")
        points = check_points(X)
        mapped = check_points(metric.map(points), "euclidean", "X in the metric")
        return mapped, "euclidean", points
    points = check_points(X, metric)
    return points, metric, points


def column_names(X: object) -> tuple[str, ...] | None:
    """Names of the columns of a data frame, None if it has none."""
    columns = getattr(X, "columns", None)
    return None if columns is None else tuple(str(name) for name in columns)


def check_columns(table: object, known: tuple[str, ...], name: str, which: str) -> None:
    """Refuse a data frame whose columns are not the known ones, in their order."""
    seen = column_names(table)
    if seen is None or seen == known:
        return
    missing = [column for column in known if column not in seen]
    unknown = [column for column in seen if column not in known]
    if missing or unknown:
        words = [f"without {show(missing)}"] * bool(missing)
        words += [f"with {show(unknown)}"] * bool(unknown)
        got = "others, " + " and ".join(words)
    else:
        pairs = zip(seen, known)
        first = next((c for c, (one, other) in enumerate(pairs) if one != other), len(known))
        got = f"them in another order, from column {first} on {show(list(seen[first:]))}"
    # what is too much can be left out, what is missing cannot be made up
    pick = "" if missing else f": pass {name}[names], with those names in that order"
    raise ValueError(f"{name} must have the columns {which}, {show(list(known))}; got {got}{pick}")
