"""Labels or values -> the matrix Y of the evidence, its number of outputs m and a constant.

| targets        | Y                                | m       | constant   |
|----------------|----------------------------------|---------|------------|
| regression     | y, a column per output, centred  | outputs | 0          |
| "binary"       | -1, +1                           | 1       | 0          |
| "I", J classes | one-hot                          | J       | 0          |
| "II", J classes| one-hot - 1/J                    | J - 1   | -n/2 log J |

Formulation II is the paper's (J-1)n x (J-1)n model of differences between classes, collapsed to
this form (docs/theory). For classes Y itself is never needed: tr(Y' L Y) counts the edges between
different classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ._graphs import Pairs, roughness
from ._names import FORMULATIONS, Encoding, Formulation, Task
from ._validation import check_flag, check_task, one_of, warn_of_order


@dataclass(frozen=True, eq=False)
class Voters:
    """What predictions need to know of y."""

    classes: np.ndarray | None  # sorted labels, in the user's type; None for regression
    codes: np.ndarray  # int32, class of each point, 0..J-1; empty for regression
    values: np.ndarray  # regression: (n, outputs), centred; empty for classes
    mean: np.ndarray  # regression: what was taken off each output
    flat: bool  # regression: y had one dimension

    @property
    def regression(self) -> bool:
        """Whether these are values; otherwise they are classes."""
        return self.classes is None

    @property
    def n_classes(self) -> int:
        """The number of classes; 0 for regression."""
        return 0 if self.classes is None else len(self.classes)

    @property
    def numbers(self) -> np.ndarray:
        """The values, in two dimensions, or the class of each point, in one."""
        return self.values if self.regression else self.codes


@dataclass(frozen=True, eq=False)
class Targets(Voters):
    """What the evidence needs to know of y as well."""

    formulation: Encoding
    n: int
    m: int  # outputs of the Gaussian process
    norm: float  # s = |Y|^2
    constant: float

    @property
    def between(self) -> float:
        """|Y_i - Y_j|^2 of points in two classes."""
        return 4.0 if self.formulation == "binary" else 2.0

    @property
    def sigma0_integral(self) -> float:
        """What integrating sigma0 out adds to the profile: the same for every graph."""
        a = 0.5 * self.m * self.n
        return math.lgamma(a) - a * math.log(a) + a

    def roughness(self, pairs: Pairs) -> np.ndarray:
        """q_k = tr(Y' L_k Y) for k = 0..k_max."""
        found = roughness(pairs, self.numbers)
        return found if self.regression else self.between * found


def encode(
    y: object, n: int, task: Task, formulation: Formulation, center: bool, X: object = None
) -> Targets:
    """Check y, which belongs to the n points X, and encode it."""
    one_of(formulation, FORMULATIONS, "formulation")
    center = check_flag(center, "center")
    task, array = check_task(y, n, task)
    warn_of_order(X, y)
    if task == "regression":
        if formulation != "auto":
            raise ValueError(
                f"formulation must be 'auto' for regression; got {formulation!r} (float y is "
                "regression: pass task='classification' if these are classes)"
            )
        return _encode_values(array, center)
    return _encode_labels(array, formulation)


def _encode_values(y: np.ndarray, center: bool) -> Targets:
    values = y.reshape(len(y), -1)
    with np.errstate(over="ignore", invalid="ignore"):
        mean, values = _centred(values) if center else (np.zeros(values.shape[1]), values.copy())
        norm = float((values * values).sum())
    if values.any() and not 1e-290 < norm < 1e290:  # room for sums over edges, and digits
        raise ValueError(
            "y must have squares that fit in a float, sums of them too; "
            f"got values up to {np.abs(y).max():g}: rescale y"
        )
    return Targets(
        formulation="regression",
        n=len(y),
        m=values.shape[1],
        norm=norm,
        constant=0.0,
        classes=None,
        codes=np.empty(0, np.int32),
        values=values,
        mean=mean,
        flat=y.ndim == 1,
    )


def _centred(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean of each output, and y without it; exactly nothing where all values are equal.

    A mean rounds (thirty times .1 has not the mean .1), and where y hardly varies what it is off
    by is as large as what is left of y: so the mean of what is left is taken off too.
    """
    mean = np.where((y == y[0]).all(axis=0), y[0], y.mean(axis=0))
    left = y - mean
    rest = left.mean(axis=0)
    return mean + rest, left - rest


def _encode_labels(labels: np.ndarray, formulation: Formulation) -> Targets:
    classes, codes = np.unique(labels, return_inverse=True)
    n, J = len(codes), len(classes)
    if formulation == "auto":
        formulation = "binary" if J == 2 else "II"
    if formulation == "binary" and J != 2:
        raise ValueError(
            f"formulation must be 'I' or 'II' for more than 2 classes; got 'binary' for {J} classes"
        )
    m, norm, constant = {
        "binary": (1, n, 0.0),
        "I": (J, n, 0.0),
        "II": (J - 1, n * (1.0 - 1.0 / J), -0.5 * n * np.log(J)),
    }[formulation]
    return Targets(
        formulation=formulation,
        n=n,
        m=m,
        norm=float(norm),
        constant=float(constant),
        classes=classes,
        codes=codes.reshape(-1).astype(np.int32),
        values=np.empty((0, 0)),
        mean=np.empty(0),
        flat=True,
    )
