"""Prediction against SciPy's k-d tree and scikit-learn's brute force.

python benchmarks/prediction.py
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree
from sklearn.neighbors import KNeighborsClassifier
from timing import best_times, save, verdict

import mksknn

K = 15
GRAPHS = ("knn", "mutual", "symmetric")


def data(n: int, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X, X_new = rng.normal(size=(2, n, d))
    return X, (X[:, 0] + 0.5 * rng.normal(size=n) > 0).astype(int), X_new


def calls(X: np.ndarray, y: np.ndarray, X_new: np.ndarray) -> dict:
    """Our prediction by each graph, compiled beforehand."""
    for graph in GRAPHS:
        mksknn.predict(X[:2000], y[:2000], X_new[:500], k=K, graph=graph)
    return {
        graph: lambda graph=graph: mksknn.predict(X, y, X_new, k=K, graph=graph) for graph in GRAPHS
    }


def both_ways(X: np.ndarray, X_new: np.ndarray) -> None:
    """The searches that both directions of the graph ask for, without a prediction."""
    cKDTree(X).query(X_new, K, workers=2)
    cKDTree(X_new).query(X, K, workers=2)


def goals() -> None:
    rows = []
    X, y, X_new = data(100_000, 3)
    times = best_times(5, tree=lambda: both_ways(X, X_new), **calls(X, y, X_new))
    print(times)
    for graph in GRAPHS:
        what = f"predict, {graph}, 100,000 x 100,000, d=3, k=15: mksknn / cKDTree both ways"
        rows.append(verdict(what, times[graph] / times["tree"], at_most=3))

    X, y, X_new = data(10_000, 20)
    peer = KNeighborsClassifier(K, algorithm="brute", n_jobs=2).fit(X, y)
    times = best_times(9, sklearn=lambda: peer.predict_proba(X_new), **calls(X, y, X_new))
    print(times)
    for graph, at_most in zip(GRAPHS, (1.0, 2.5, 2.5)):
        what = f"predict, {graph}, 10,000 x 10,000, d=20, k=15: mksknn / sklearn brute"
        rows.append(verdict(what, times[graph] / times["sklearn"], at_most=at_most))
    save("prediction", rows)


if __name__ == "__main__":
    goals()
