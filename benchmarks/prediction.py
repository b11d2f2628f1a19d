"""Prediction against scikit-learn's k-NN at its best algorithm, both fitted beforehand.

python benchmarks/prediction.py             everything
python benchmarks/prediction.py --small     a tenth of the points, to try it
"""

from __future__ import annotations

import argparse
import pickle

import numpy as np
from sklearn.neighbors import KNeighborsClassifier
from timing import best_times, save, verdict

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
    X, y, X_new = data(2000, 500, d)
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
    times = best_times(100, **calls)
    best = min(ALGORITHMS, key=times.get)
    rows = []
    for graph in GRAPHS:
        what = f"one row, {graph}, {n:,} x {d}, k={K}: mksknn / sklearn {best}"
        both = times[graph], times[best]
        rows.append(verdict(what, both[0] / both[1], at_most=1.5, seconds=both))
    return rows


def batch(n: int, d: int, algorithm: str) -> list[dict]:
    """As many new rows as training points, prepared and from nothing."""
    X, y, X_new = data(n, n, d)
    peer = KNeighborsClassifier(K, algorithm=algorithm, n_jobs=-1).fit(X, y)
    calls = {algorithm: lambda: peer.predict_proba(X_new)}
    for graph in GRAPHS:
        predictor = mksknn.prepare(X, y, k=K, graph=graph)
        calls[graph] = lambda one=predictor: one(X_new)
        calls[f"predict {graph}"] = lambda graph=graph: mksknn.predict(
            X, y, X_new, k=K, graph=graph
        )
    times = best_times(5, **calls)
    rows = []
    for kind, at_most in (("prepared", 1.0), ("predict", 2.5)):
        for graph in GRAPHS:
            what = f"{kind}, {graph}, {n:,} x {n:,}, d={d}, k={K}: mksknn / sklearn {algorithm}"
            both = times[graph if kind == "prepared" else f"predict {graph}"], times[algorithm]
            rows.append(verdict(what, both[0] / both[1], at_most=at_most, seconds=both))
    return rows


def preparing(n: int, d: int) -> list[dict]:
    """What has to be done once, in time and in memory."""
    X, y, _ = data(n, 1, d)
    calls = {graph: lambda graph=graph: mksknn.prepare(X, y, k=K, graph=graph) for graph in GRAPHS}
    times = best_times(3, neighbors=lambda: mksknn.neighbors(X, K), **calls)
    rows = []
    for graph in GRAPHS:
        ratio = times[graph] / times["neighbors"]
        rows.append(verdict(f"prepare, {graph}, {n:,} x {d}: time / neighbors", ratio, at_most=1.0))
        size = len(pickle.dumps(calls[graph]()))
        what = f"prepare, {graph}, {n:,} x {d}: memory / X"
        rows.append(verdict(what, size / X.nbytes, at_most=3.0))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="a tenth of the points")
    share = 10 if parser.parse_args().small else 1
    rows = []
    for d in (3, 10, 20, 30):
        compile_all(d)
    for n, d in ((100_000, 3), (50_000, 10), (50_000, 30)):
        rows += one_row(n // share, d)
        rows += preparing(n // share, d)
    rows += batch(10_000 // share, 20, "brute")
    rows += batch(100_000 // share, 3, "kd_tree")
    if share == 1:
        save("prediction", rows)


if __name__ == "__main__":
    main()
