"""The distances there are: named ones, and linear maps that were learned from data.

Whatever the metric, ranking sees points and a name: a `Metric` maps the points first, and their
Euclidean distances are its distances.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ._validation import METRICS, check_points, one_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclass(frozen=True, eq=False)
class Metric:
    """A distance: Euclidean after a linear map.

    Attributes
    ----------
    name : str
        The family it comes from, such as "relevance".
    matrix : ndarray of float64, shape (d, columns of the result)
        ``transform(X)`` is ``(X - center) @ matrix``.
    relevance : ndarray of float64, shape (d,)
        One number for each column of X; 0 means that the column is not used.
    compared : dict
        What each family got.
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

    def transform(self, X: ArrayLike) -> np.ndarray:
        """Map points, so that their Euclidean distances are this metric's."""
        return self.map(check_points(X))

    def map(self, points: np.ndarray) -> np.ndarray:
        """`transform` behind the gate."""
        if points.shape[1] != len(self.matrix):
            raise ValueError(
                f"X must have {len(self.matrix)} columns, as metric has learned; got shape "
                f"{points.shape}"
            )
        shifted = points if self.center is None else points - self.center
        return np.ascontiguousarray(shifted @ self.matrix)


def check_metric(metric: object) -> str | Metric:
    """Return the name of a metric, or a learned one."""
    return metric if isinstance(metric, Metric) else one_of(metric, METRICS, "metric")


def points_and_name(X: object, metric: str | Metric) -> tuple[np.ndarray, str]:
    """The points to rank, checked and mapped, and the name of the distance between them."""
    if isinstance(metric, Metric):
        return metric.map(check_points(X)), "euclidean"
    return check_points(X, metric), metric
