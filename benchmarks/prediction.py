"""Prediction against scikit-learn's k-NN at its best algorithm, both fitted beforehand.

python benchmarks/prediction.py single      one row at a time, and what preparing costs
python benchmarks/prediction.py batches     as many new rows as training points

Without a part: both.
"""

from __future__ import annotations

import pickle

import numpy as np
from sklearn.neighbors import KNeighborsClassifier
from timing import THREADS, best_times, costs, run, size, verdict

import mksknn

K = 15
GRAPHS = ("knn", "mutual", "symmetric")
ALGORITHMS = ("brute", "kd_tree", "ball_tree")


def data(n: int, n_new: int, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points, labels and queries."""
    rng = np.random.default_rng(0)
    X, X_new = rng.normal(size=(n, d)), rng.normal(size=(n_new, d))
    return X, (X[:, 0] + 0.5 * rng.normal(size=n) > 0).astype(int), X_new


def compile_all(d: int) -> None:
    """Compile what will be timed, on less data."""
    X, y, X_new = data(size(2_000, 2_000, 200), size(500, 500, 20), d)
    mksknn.neighbors(X, K)
    for graph in GRAPHS:
        predictor = mksknn.prepare(X, y, k=K, graph=graph)
        predictor(X_new)
        predictor(X_new[:1])


def one_row(n: int, d: int) -> list[dict]:
    """One new row, again and again, as a service is asked."""
    X, y, X_new = data(n, 1, d)
    ours = {graph: mksknn.prepare(X, y, k=K, graph=graph) for graph in GRAPHS}
    peers = {name: KNeighborsClassifier(K, algorithm=name).fit(X, y) for name in ALGORITHMS}
    calls = {graph: lambda one=one: one(X_new) for graph, one in ours.items()}
    calls |= {name: lambda one=one: one.predict_proba(X_new) for name, one in peers.items()}
    found = costs(100, **calls)
    best = min(ALGORITHMS, key=found.get)
    rows = []
    for graph in GRAPHS:
        what = f"one row, {graph}, {n:,} x {d}, k={K}: mksknn / sklearn {best}"
        both = found[graph], found[best]
        ratio = both[0].seconds / both[1].seconds
        rows.append(verdict(what, ratio, at_most=1.5, sides=both))
    return rows


def batch(n: int, d: int, algorithm: str) -> list[dict]:
    """As many new rows as training points, prepared and from nothing."""
    X, y, X_new = data(n, n, d)
    peer = KNeighborsClassifier(K, algorithm=algorithm, n_jobs=THREADS).fit(X, y)
    calls = {algorithm: lambda: peer.predict_proba(X_new)}
    for graph in GRAPHS:
        predictor = mksknn.prepare(X, y, k=K, graph=graph)
        calls[graph] = lambda one=predictor: one(X_new)
        calls[f"predict {graph}"] = lambda graph=graph: mksknn.predict(
            X, y, X_new, k=K, graph=graph
        )
    found = costs(5, **calls)
    rows = []
    for kind, at_most in (("prepared", 1.0), ("predict", 2.5)):
        for graph in GRAPHS:
            what = f"{kind}, {graph}, {n:,} x {n:,}, d={d}, k={K}: mksknn / sklearn {algorithm}"
            both = found[graph if kind == "prepared" else f"predict {graph}"], found[algorithm]
            ratio = both[0].seconds / both[1].seconds
            rows.append(verdict(what, ratio, at_most=at_most, sides=both))
    return rows


def preparing(n: int, d: int) -> list[dict]:
    """What has to be done once, in time and in memory."""
    X, y, _ = data(n, 1, d)
    calls = {graph: lambda graph=graph: mksknn.prepare(X, y, k=K, graph=graph) for graph in GRAPHS}
    times = best_times(7, neighbors=lambda: mksknn.neighbors(X, K), **calls)
    rows = []
    for graph in GRAPHS:
        ratio = times[graph] / times["neighbors"]
        rows.append(verdict(f"prepare, {graph}, {n:,} x {d}: time / neighbors", ratio, at_most=1.0))
        held = len(pickle.dumps(calls[graph]()))
        what = f"prepare, {graph}, {n:,} x {d}: memory / X"
        rows.append(verdict(what, held / X.nbytes, at_most=3.0))
    return rows


SHARE = size(1, 10, 200)  # of the points, to try it


def single() -> list[dict]:
    """One row at a time, and what preparing costs."""
    rows = []
    for n, d in ((100_000, 3), (50_000, 10), (50_000, 30)):
        compile_all(d)
        rows += one_row(n // SHARE, d)
        rows += preparing(n // SHARE, d)
    return rows


def batches() -> list[dict]:
    """As many new rows as training points."""
    rows = []
    for n, d, algorithm in ((10_000, 20, "brute"), (100_000, 3, "kd_tree")):
        compile_all(d)
        rows += batch(n // SHARE, d, algorithm)
    return rows


if __name__ == "__main__":
    run("prediction", __doc__, {"single": single, "batches": batches})
