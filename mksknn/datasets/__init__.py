"""The three data sets of the paper, small enough to travel with the package.

`make_sinc3c` computes an artificial one-dimensional set with three classes, `load_pima` and
`load_new_thyroid` read medical measurements. Features come in their original units: scale them
before looking for neighbours, unless the units are meant to count.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Dataset", "SplitDataset", "load_new_thyroid", "load_pima", "make_sinc3c"]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Points, their classes, and what both mean.

    Attributes
    ----------
    X : ndarray of float64, shape (n, d)
        One row per point.
    y : ndarray of int64, shape (n,)
        Class of each point.
    feature_names : tuple of str
        One name per column of `X`.
    class_names : tuple of str
        One name per class, in increasing order of the values in `y`.
    source : str
        Where the data come from.
    """

    X: NDArray[np.float64]
    y: NDArray[np.int64]
    feature_names: tuple[str, ...]
    class_names: tuple[str, ...]
    source: str

    def _summary(self) -> str:
        n, d = self.X.shape
        counts = np.unique(self.y, return_counts=True)[1]
        classes = ", ".join(f"{name}: {c}" for name, c in zip(self.class_names, counts))
        return f"{n} points, {d} feature{'s' * (d > 1)}, classes ({classes})"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._summary()})"


@dataclass(frozen=True, eq=False, repr=False)
class SplitDataset(Dataset):
    """A `Dataset` whose `X` and `y` are for training, with test points beside them.

    Attributes
    ----------
    X_test : ndarray of float64, shape (n_test, d)
        Test points.
    y_test : ndarray of int64, shape (n_test,)
        Their classes, coded as in `y`.
    """

    X_test: NDArray[np.float64]
    y_test: NDArray[np.int64]

    def _summary(self) -> str:
        return f"{super()._summary()}, {len(self.y_test)} test points"


def make_sinc3c() -> SplitDataset:
    """Three classes along a line, by the height of sinc(x) = sin(pi x) / (pi x).

    The 59 training points are -5 + 0.17 i and the 201 test points -5 + 0.05 i. The class is 1 where
    sinc(x) < 0, 2 where 0 <= sinc(x) < 0.2, and 3 above.

    Returns
    -------
    SplitDataset
        `X` of shape (59, 1), `X_test` of shape (201, 1), classes 1, 2 and 3.

    Notes
    -----
    The training points are evenly spaced only up to rounding, so their distances tie or not by the
    last bit. Whole numbers other than 0 are zeros of sinc; in floating point the even ones come out
    just below zero and take class 1. The paper does not say how it treats them. With these labels,
    and ties in the vote going to the lowest class, four of its seven plain-vote test errors come
    out exactly (k = 1, 3 and 5); with every zero in class 2 none does. Its three at k = 2 come out
    under neither.

    Examples
    --------
    >>> from mksknn.datasets import make_sinc3c
    >>> data = make_sinc3c()
    >>> data
    SplitDataset(59 points, 1 feature, classes (1: 23, 2: 26, 3: 10), 201 test points)
    >>> data.X[:3, 0].round(2)
    array([-5.  , -4.83, -4.66])
    """
    x = -5 + 0.17 * np.arange(59.0)
    x_test = -5 + 0.05 * np.arange(201.0)
    return SplitDataset(
        X=x[:, None],
        y=_sinc_class(x),
        feature_names=("x",),
        class_names=("1", "2", "3"),
        source=(
            "Sinc3C, computed as in H.-C. Kim, Bayesian Model Selection Methods for Mutual and "
            "Symmetric k-Nearest Neighbor Classification"
        ),
        X_test=x_test[:, None],
        y_test=_sinc_class(x_test),
    )


def load_pima() -> Dataset:
    """Diabetes among 200 women of Pima heritage, by seven measurements (Ripley's `Pima.tr`).

    The features are the number of pregnancies (`npreg`), plasma glucose (`glu`), diastolic blood
    pressure in mm Hg (`bp`), triceps skin fold in mm (`skin`), body mass index (`bmi`), a diabetes
    pedigree score (`ped`) and age in years (`age`).

    Returns
    -------
    Dataset
        `X` of shape (200, 7); class 0 is "No", class 1 is "Yes".

    Examples
    --------
    >>> from mksknn.datasets import load_pima
    >>> data = load_pima()
    >>> data.X.shape, data.class_names
    ((200, 7), ('No', 'Yes'))
    >>> print(*(data.class_names[c] for c in data.y[:4]))
    No Yes No No
    """
    return _load(
        "pima_tr.csv",
        class_names=("No", "Yes"),
        source=(
            "Pima.tr, the training set of B. D. Ripley, Pattern Recognition and Neural Networks "
            "(1996), out of data of the US National Institute of Diabetes and Digestive and "
            "Kidney Diseases"
        ),
    )


def load_new_thyroid() -> Dataset:
    """Thyroid function of 215 patients, by five laboratory tests (UCI's New Thyroid).

    The features are the T3-resin uptake in per cent (`RT3U`), total serum thyroxine (`T4`), total
    serum triiodothyronine (`T3`), basal thyroid-stimulating hormone (`TSH`) and its greatest change
    after an injection of its releasing hormone (`DTSH`).

    Returns
    -------
    Dataset
        `X` of shape (215, 5); classes 0 "normal", 1 "hyper" and 2 "hypo".

    Examples
    --------
    >>> from mksknn.datasets import load_new_thyroid
    >>> load_new_thyroid()
    Dataset(215 points, 5 features, classes (normal: 150, hyper: 35, hypo: 30))
    """
    return _load(
        "new_thyroid.csv",
        class_names=("normal", "hyper", "hypo"),
        source=(
            "New Thyroid, UCI Machine Learning Repository; measured by D. Coomans and others (1983)"
        ),
    )


def _sinc_class(x: NDArray[np.float64]) -> NDArray[np.int64]:
    # side="right": a value equal to a threshold belongs to the class above it.
    return 1 + np.searchsorted([0.0, 0.2], np.sinc(x), side="right").astype(np.int64)


def _load(filename: str, *, class_names: tuple[str, ...], source: str) -> Dataset:
    """Read a csv file of this package: a header, numeric columns, the class in the last one."""
    # Imported here because it costs more than the rest of this module.
    from importlib.resources import files

    header, *rows = csv.reader(files(__name__).joinpath(filename).read_text("utf-8").splitlines())
    return Dataset(
        X=np.array([row[:-1] for row in rows], dtype=np.float64),
        y=np.array([class_names.index(row[-1]) for row in rows], dtype=np.int64),
        feature_names=tuple(header[:-1]),
        class_names=class_names,
        source=source,
    )
