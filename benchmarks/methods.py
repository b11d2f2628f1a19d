"""The methods that benchmarks/accuracy.py compares: what people would use, and ours.

Each is fitted to training rows and gives a `Fitted`. Whatever it learns, the scale of the columns
included, it learns from these rows. k-NN of others has k and weights chosen by 10-fold
cross-validation within them, for few errors as `GridSearchCV` does unasked, or for low log-loss;
R's `class::knn.cv` its k by leave-one-out. Forests have the size of their leaves chosen by the
points that are out of bag.

R's method needs Rscript with the package class, which `make bench` installs on Debian where it may.
Without it that method is left out, and the run says so.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.metrics import get_scorer
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    ParameterGrid,
    StratifiedKFold,
    cross_val_predict,
)
from sklearn.neighbors import (
    KNeighborsClassifier,
    KNeighborsRegressor,
    NeighborhoodComponentsAnalysis,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from timing import Missing

import mksknn

K_GRID = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 25, 30, 40, 50, 60]
R_SCRIPT = Path(__file__).with_name("knn_cv.R")


@dataclass
class Fitted:
    """A fitted method."""

    ask: object  # a model of scikit-learn, or new points -> probabilities, or (means, variances)
    seconds: float | None = None  # of fitting, where it does not happen in this process alone
    one_row: float | None = None  # seconds of predicting one, likewise; known after asking

    def __call__(self, A: np.ndarray):
        return getattr(self.ask, "predict_proba", self.ask)(A)


def _inner(y: np.ndarray):
    """Ten folds; fewer only where a class has fewer members, which a fold would then lack."""
    if y.dtype.kind != "i":
        return KFold(10, shuffle=True, random_state=0)
    folds = max(2, min(10, int(np.bincount(y).min())))
    return StratifiedKFold(folds, shuffle=True, random_state=0)


def _grid(y: np.ndarray) -> dict[str, list]:
    ks = [k for k in K_GRID if k < len(y) * 9 // 10]
    return {"n_neighbors": ks, "weights": ["uniform", "distance"]}


def _tuned(model, y: np.ndarray, scoring: str | None) -> GridSearchCV:
    """k and weights by cross-validation within the training rows."""
    grid = {f"{model.steps[-1][0]}__{name}": values for name, values in _grid(y).items()}
    return GridSearchCV(model, grid, cv=_inner(y), scoring=scoring)


FOREST = {"oob_score": True, "random_state": 0}
LEAVES = (1, 2, 5, 10)  # rows, at least, in a leaf of a forest


# -------------------------------------------------------------------------------------------------
# Classes


def knn_by_cv(X, y, scoring=None):
    model = make_pipeline(StandardScaler(), KNeighborsClassifier())
    return Fitted(_tuned(model, y, scoring).fit(X, y))


def knn_by_log_loss(X, y):
    return knn_by_cv(X, y, "neg_log_loss")


_components: dict[tuple, tuple] = {}


def _learned_once(memory: dict[tuple, tuple], X, y, learn: Callable) -> tuple:
    """What is learned from these rows, and the processor seconds it took, for several methods."""
    key = X.tobytes(), y.tobytes()
    if key not in memory:
        if len(memory) == 10:  # the folds of a set, which a method goes through before the next one
            memory.pop(next(iter(memory)))
        start = time.process_time()
        found = learn(X, y)
        memory[key] = found, time.process_time() - start
    return memory[key]


def _neighbourhood_components(X, y) -> tuple:
    """Of each inner fold, as (points, labels, points held out, labels), and of all rows."""

    def learn(A, b):
        nca = NeighborhoodComponentsAnalysis(max_iter=50, random_state=0)
        return make_pipeline(StandardScaler(), nca).fit(A, b)

    folds = []
    for train, test in _inner(y).split(X, y):
        inner = learn(X[train], y[train])
        folds.append((inner.transform(X[train]), y[train], inner.transform(X[test]), y[test]))
    return folds, learn(X, y)


def nca_knn(X, y, scoring="accuracy"):
    """Neighbourhood components, then k and weights; both inside the inner folds.

    By hand, so that the components of a fold are learned once for all k.
    """
    (folds, outer), before = _learned_once(_components, X, y, _neighbourhood_components)
    start, score = time.process_time(), get_scorer(scoring)
    tried = [KNeighborsClassifier(**one) for one in ParameterGrid(_grid(y))]
    scores = np.zeros(len(tried))
    for A, b, B, c in folds:
        scores += [score(model.fit(A, b), B, c) for model in tried]
    best = tried[int(np.argmax(scores))].fit(outer.transform(X), y)
    seconds = before + time.process_time() - start
    return Fitted(lambda A: best.predict_proba(outer.transform(A)), seconds)


def nca_knn_by_log_loss(X, y):
    return nca_knn(X, y, "neg_log_loss")


def _run_r(X, y, ks, *more, A=None) -> list[str]:
    """What knn_cv.R prints for these points, and perhaps new ones."""
    if shutil.which("Rscript") is None:
        raise Missing("Rscript is missing: apt-get install r-cran-class")
    with tempfile.TemporaryDirectory() as folder:
        tables = {"points": X, "labels": y} | ({} if A is None else {"new": A})
        for name, values in tables.items():
            np.savetxt(f"{folder}/{name}.csv", values, delimiter=",", fmt="%.17g")
        command = ["Rscript", str(R_SCRIPT), folder, " ".join(map(str, ks)), *more]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"Rscript fails, is the package class there? {done.stderr.strip()}")
    return done.stdout.split()


def knn_cv_of_r(X, y, ks: list[int]) -> tuple[int, float]:
    """The k of fewest leave-one-out errors by `class::knn.cv`, and its processor seconds."""
    chosen, seconds = _run_r(X, y, ks)
    return int(chosen), float(seconds)


def r_knn_cv(X, y):
    """R's k-NN, k by leave-one-out.

    R tells only the winner's share of the votes; the rest goes to the other classes in equal parts.
    """
    scaler, J = StandardScaler().fit(X), int(y.max()) + 1
    points = scaler.transform(X)
    k, seconds = knn_cv_of_r(points, y, [k for k in K_GRID if k < len(y)])

    def ask(A):
        one, *found = _run_r(points, y, [k], "predict", A=scaler.transform(A))
        fitted.one_row = float(one)
        label, share = np.array(found[::2], dtype=int), np.array(found[1::2], dtype=float)
        probability = np.repeat((1.0 - share)[:, None] / (J - 1), J, axis=1)
        probability[np.arange(len(A)), label] = share
        return probability

    fitted = Fitted(ask, seconds)
    return fitted


def forest(X, y):
    def loss(model):  # a point that is in every bag, of 300, is a miracle
        own = model.oob_decision_function_[np.arange(len(y)), y]
        return -np.log(np.maximum(own, np.finfo(float).eps)).mean()

    made = [RandomForestClassifier(300, min_samples_leaf=leaf, **FOREST) for leaf in LEAVES]
    return Fitted(min((model.fit(X, y) for model in made), key=loss))


def gp_classifier(X, y):
    kernel = ConstantKernel(1.0) * RBF(np.sqrt(X.shape[1]))
    model = GaussianProcessClassifier(kernel, random_state=0)
    return Fitted(make_pipeline(StandardScaler(), model).fit(X, y))


def logistic(X, y):
    """The penalty by inner cross-validation, as ridge has it."""
    inner = StratifiedKFold(5, shuffle=True, random_state=0)
    model = LogisticRegressionCV(Cs=7, cv=inner, max_iter=1000, scoring="neg_log_loss")
    return Fitted(make_pipeline(StandardScaler(), model).fit(X, y))


# -------------------------------------------------------------------------------------------------
# Values


def _with_variance(predict, variance: float) -> Fitted:
    """Means, all with the variance of the residuals that were held out."""

    def found(A):
        mean = np.ravel(predict(A))
        return mean, np.full(len(mean), variance)

    return Fitted(found)


def knn_values_by_cv(X, y):
    model = make_pipeline(StandardScaler(), KNeighborsRegressor())
    best = _tuned(model, y, "neg_mean_squared_error").fit(X, y).best_estimator_
    residual = y - cross_val_predict(best, X, y, cv=_inner(y))
    return _with_variance(best.predict, float((residual**2).mean()))


def forest_values(X, y):
    def loss(model):
        return float(np.mean((y - model.oob_prediction_) ** 2))

    made = [RandomForestRegressor(300, min_samples_leaf=leaf, **FOREST) for leaf in LEAVES]
    best = min((model.fit(X, y) for model in made), key=loss)
    return _with_variance(best.predict, loss(best))


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

    return Fitted(found)


# -------------------------------------------------------------------------------------------------
# Ours


def _ready(X, y, model) -> Callable:
    ask = mksknn.prepare(X, y, model)

    def found(A):
        got = ask(A)
        return (got.mean, got.variance) if got.probability is None else got.probability

    return found


def _scaled(X, y, choose) -> Fitted:
    scaler = StandardScaler().fit(X)
    points = scaler.transform(X)
    found = _ready(points, y, choose(points, y))
    return Fitted(lambda A: found(scaler.transform(A)))


def evidence(X, y):
    return _scaled(X, y, mksknn.select_k)


def posterior(X, y):
    return _scaled(X, y, mksknn.posterior)


def loo_log(X, y):
    return _scaled(X, y, functools.partial(mksknn.select_k, criterion="loo_log"))


def averaged(X, y):
    return _scaled(X, y, functools.partial(mksknn.posterior, weights="loo_log"))


_metrics: dict[tuple, tuple] = {}


def _learned(X, y, weights: str) -> Fitted:
    metric, before = _learned_once(_metrics, X, y, mksknn.learn_metric)
    start = time.process_time()
    found = _ready(X, y, mksknn.posterior(X, y, weights=weights, metric=metric))
    return Fitted(found, before + time.process_time() - start)


def learned(X, y):
    return _learned(X, y, "loo_log")


def learned_posterior(X, y):
    return _learned(X, y, "evidence")


# The mutual graph, and the better of both: for whether another graph should be the default.
GRAPHS = {
    f"{name}, {graph}": functools.partial(_scaled, choose=functools.partial(choose, graph=graph))
    for graph in ("mutual", "auto")
    for name, choose in {
        "evidence": mksknn.select_k,
        "averaged": functools.partial(mksknn.posterior, weights="loo_log"),
    }.items()
}
OURS = {
    "evidence": evidence,
    "posterior": posterior,
    "loo_log": loo_log,
    "averaged": averaged,
    "learned": learned,
    "learned, posterior": learned_posterior,
} | GRAPHS
PEERS = {
    "classification": {
        "k-NN by CV": knn_by_cv,
        "k-NN by CV, log-loss": knn_by_log_loss,
        "NCA, k-NN by CV": nca_knn,
        "NCA, k-NN by CV, log-loss": nca_knn_by_log_loss,
        "R class::knn.cv": r_knn_cv,
        "random forest": forest,
        "GP": gp_classifier,
        "linear": logistic,
    },
    "regression": {
        "k-NN by CV": knn_values_by_cv,
        "random forest": forest_values,
        "GP": gp_values,
        "linear": ridge,
    },
}
