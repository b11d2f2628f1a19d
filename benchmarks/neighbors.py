"""Neighbour ranking against scikit-learn and SciPy.

python benchmarks/neighbors.py            the goals, as ratios in one run
python benchmarks/neighbors.py --routes   our own routes against each other
"""

from __future__ import annotations

import argparse
import subprocess
import sys

import numpy as np
from scipy.spatial import cKDTree
from sklearn.neighbors import NearestNeighbors
from timing import best_times, peak_memory, save, verdict

import mksknn
from mksknn._neighbors import rank


def cloud(n: int, d: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, d))


def goals() -> None:
    rows = []
    X = cloud(5_000, 10)
    mksknn.neighbors(X[:100])
    times = best_times(
        mksknn=lambda: mksknn.neighbors(X),
        sklearn=lambda: (
            NearestNeighbors(n_neighbors=len(X) - 1, algorithm="brute", n_jobs=2)
            .fit(X)
            .kneighbors()
        ),
    )
    print(times)
    ratio = times["sklearn"] / times["mksknn"]
    both = times["mksknn"], times["sklearn"]
    what = "full ranking, n=5,000 d=10: sklearn brute / mksknn"
    rows.append(verdict(what, ratio, at_least=2, seconds=both))

    X = cloud(20_000, 3)
    mksknn.neighbors(X[:1000], 5)
    times = best_times(
        mksknn=lambda: mksknn.neighbors(X, 30),
        tree=lambda: cKDTree(X).query(X, 31, workers=2),
    )
    print(times)
    ratio = times["mksknn"] / times["tree"]
    both = times["mksknn"], times["tree"]
    what = "top 30, n=20,000 d=3: mksknn / cKDTree(workers=2)"
    rows.append(verdict(what, ratio, at_most=1.3, seconds=both))

    X = cloud(20_000, 20)
    mksknn.neighbors(X[:2000], 5)
    times = best_times(
        mksknn=lambda: mksknn.neighbors(X, 30),
        sklearn=lambda: (
            NearestNeighbors(n_neighbors=30, algorithm="brute", n_jobs=2).fit(X).kneighbors()
        ),
    )
    print(times)
    ratio = times["mksknn"] / times["sklearn"]
    both = times["mksknn"], times["sklearn"]
    what = "top 30, n=20,000 d=20: mksknn / sklearn brute"
    rows.append(verdict(what, ratio, at_most=1.0, seconds=both))

    setup = "X = np.random.default_rng(0).normal(size=(40_000, 20)); mksknn.neighbors(X[:2000], 50)"
    peak, result = peak_memory(setup, "mksknn.neighbors(X, 50)"), 40_000 * 50 * 12 / 2**20
    print(f"top 50, n=40,000 d=20: peak {peak:.0f} MB for a result of {result:.0f} MB")
    what = "peak memory / result (n^2 doubles would be 533)"
    rows.append(verdict(what, peak / result, at_most=3))

    ratio = import_time("mksknn") / import_time("numba, scipy.sparse, scipy.linalg")
    what = "import mksknn / import numba, scipy.sparse, scipy.linalg"
    rows.append(verdict(what, ratio, at_most=1.3))
    save("neighbors", rows)


def import_time(modules: str) -> float:
    """Seconds of a fresh process's import, best of five."""
    code = f"import time; t = time.perf_counter(); import {modules}; print(time.perf_counter() - t)"
    command = [sys.executable, "-c", code]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(5)]
    return min(float(run.stdout) for run in runs)


def routes() -> None:
    print(f"{'n':>7}{'d':>4}{'k_max':>7}   sort / scan / tree, seconds")
    for n in (500, 2_000, 10_000):
        for d in (2, 4, 6, 8, 12, 20):
            X = cloud(n, d)
            for k_max in (5, 20, n // 32, n // 8, n // 4, n // 2):
                calls = {
                    route: lambda route=route, X=X, k=k_max: rank(X, k, "euclidean", route)
                    for route in ("sort", "scan", "tree")
                }
                times = best_times(2, **calls)
                shown = "  ".join(f"{seconds:8.4f}" for seconds in times.values())
                print(f"{n:>7}{d:>4}{k_max:>7}   {shown}  {min(times, key=times.get)}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--routes", action="store_true")
    routes() if parser.parse_args().routes else goals()
