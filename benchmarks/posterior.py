"""The posterior over k against a sampler, and averaged predictions against those of a single k.

python benchmarks/posterior.py            both
python benchmarks/posterior.py sampler    time against Metropolis at equal accuracy of p(k)
python benchmarks/posterior.py accuracy   error and log-loss on real sets, 10-fold
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from timing import best_times, save

import mksknn

sys.path.append(str(Path(__file__).parents[1] / "tests"))
import naive  # the sampler of the tests

ACCURACY = 0.01  # of p(k), total variation, that the sampler is asked for; ours is 1e-6 or better


def standardise(X: np.ndarray, like: np.ndarray) -> np.ndarray:
    spread = like.std(axis=0)
    return (X - like.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


def real_sets() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Six real sets; every fourth point of the largest."""
    sets = {
        "iris": load_iris(return_X_y=True),
        "wine": load_wine(return_X_y=True),
        "breast cancer": load_breast_cancer(return_X_y=True),
    }
    X, y = load_digits(return_X_y=True)
    sets["digits, every 4th"] = X[::4], y[::4]
    for name, data in [
        ("pima", mksknn.datasets.load_pima()),
        ("new thyroid", mksknn.datasets.load_new_thyroid()),
    ]:
        sets[name] = data.X, data.y
    return sets


# ---------------------------------------------------------------------------------------------
# Against a sampler


def against_sampler(steps: int = 40_000, k_max: int = 60) -> list[dict]:
    """Time of the exact posterior, and of Metropolis at an accuracy of `ACCURACY`.

    The error of a sampler falls with the root of its steps, so a run of `steps` tells how many a
    given accuracy takes: steps * (error / ACCURACY)^2. The sampler gets its eigenvalues for
    nothing: only its steps are timed, by the difference of two runs.
    """
    rows = []
    for name, graph in (("pima", "symmetric"), ("new thyroid", "mutual")):  # p(k) is broad
        X, y = real_sets()[name]
        X = standardise(X, X)
        options = {"ks": list(range(1, k_max + 1)), "graph": graph}
        exact = mksknn.posterior(X, y, max_skipped=0.0, **options)
        call = partial(mksknn.posterior, X, y, **options)
        ours = best_times(5, ours=call)["ours"]
        errors, took = [], []
        for seed in range(2):
            start = time.perf_counter()
            naive.metropolis(X, y, steps=1, seed=seed, **options)
            middle = time.perf_counter()
            samples = naive.metropolis(X, y, steps=steps, seed=seed, **options)
            took.append(time.perf_counter() - middle - (middle - start))
            seen = np.array([(samples[steps // 20 :, 0] == k).mean() for k in exact.k])
            errors.append(0.5 * np.abs(seen - exact.probability).sum())
        error = float(np.mean(errors))
        needed = steps * (error / ACCURACY) ** 2
        sampler = float(np.mean(took)) / steps * needed
        rows.append(
            {
                "set": name,
                "graph": graph,
                "n": len(X),
                "k_max": k_max,
                "seconds": ours,
                "steps": steps,
                "error_of_sampler": error,
                "accuracy": ACCURACY,
                "steps_needed": needed,
                "seconds_of_sampler": sampler,
                "ratio": sampler / ours,
            }
        )
        print(
            f"{name}, {graph}, n={len(X)}, k=1..{k_max}: ours {ours:.3f} s; {steps} steps are "
            f"{error:.4f} off p(k), so {ACCURACY:g} takes {needed:.2g} steps, {sampler:.0f} s: "
            f"{sampler / ours:.0f} times as long",
            flush=True,
        )
    return rows


# ---------------------------------------------------------------------------------------------
# Against a single k


def predictors() -> dict:
    """Functions of (X, y, X_new) that return (labels, probabilities)."""

    def ours(make):
        def fit(X, y, X_new):
            found = mksknn.predict(X, y, X_new, make(X, y))
            return found.label, found.probability

        return fit

    def sklearn_knn(X, y, X_new):
        largest = int(0.9 * len(X)) - 1
        ks = np.unique(np.r_[1:31, np.geomspace(31, max(largest, 32), 15).astype(int)])
        search = GridSearchCV(
            KNeighborsClassifier(),
            {"n_neighbors": ks[ks <= largest]},
            cv=StratifiedKFold(10, shuffle=True, random_state=0),
        )
        search.fit(X, y)
        return search.predict(X_new), search.predict_proba(X_new)

    return {
        "one k, evidence": ours(lambda X, y: mksknn.select_k(X, y)),
        "one k, loo_log": ours(lambda X, y: mksknn.select_k(X, y, criterion="loo_log")),
        "all k, evidence": ours(lambda X, y: mksknn.posterior(X, y)),
        "all k, loo_log": ours(lambda X, y: mksknn.posterior(X, y, weights="loo_log")),
        "scikit-learn, k by CV": sklearn_knn,
    }


def accuracy() -> list[dict]:
    """Error and log-loss of each predictor on each set, 10-fold, columns standardised."""
    rows = []
    names = list(predictors())
    print(f"\n{'error / log-loss':<20}" + "".join(f"{name:>24}" for name in names))
    for title, (X, y) in real_sets().items():
        wrong, loss = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
        codes = np.unique(y, return_inverse=True)[1]
        for train, test in StratifiedKFold(10, shuffle=True, random_state=1).split(X, y):
            inside, outside = (standardise(X[part], X[train]) for part in (train, test))
            for name, fit in predictors().items():
                label, probability = fit(inside, y[train], outside)
                wrong[name] += (label != y[test]).sum()
                own = probability[np.arange(len(test)), codes[test]]
                # scikit-learn's votes give 0; its own log_loss cuts at the precision of floats
                loss[name] -= np.log(np.maximum(own, np.finfo(float).eps)).sum()
        row = {"set": title, "n": len(X)}
        for name in names:
            row[name] = {"error": wrong[name] / len(X), "log_loss": loss[name] / len(X)}
        rows.append(row)
        cells = (f"{row[name]['error']:.3f} / {row[name]['log_loss']:.3f}" for name in names)
        print(f"{title:<20}" + "".join(f"{cell:>24}" for cell in cells), flush=True)
    mean = {
        name: {key: float(np.mean([row[name][key] for row in rows])) for key in rows[0][name]}
        for name in names
    }
    cells = (f"{mean[name]['error']:.3f} / {mean[name]['log_loss']:.3f}" for name in names)
    print(f"{'mean':<20}" + "".join(f"{cell:>24}" for cell in cells))
    return [*rows, {"set": "mean", **mean}]


if __name__ == "__main__":
    parts = sys.argv[1:] or ["sampler", "accuracy"]
    results = {}
    if "sampler" in parts:
        results["sampler"] = against_sampler()
    if "accuracy" in parts:
        results["accuracy"] = accuracy()
    save("posterior", results)
