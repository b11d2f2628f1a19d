"""Neighbour ranking against scikit-learn, SciPy's k-d tree, FAISS and PyNNDescent.

python benchmarks/neighbors.py            the comparisons
python benchmarks/neighbors.py routes     our own routes against each other

FAISS computes in single precision, and PyNNDescent's lists are approximate: the share of the true
neighbours that it found is printed and stored. Both are warmed up first; all use as many threads as
we do.
"""

from __future__ import annotations

import importlib

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from sklearn.neighbors import NearestNeighbors
from timing import THREADS, best_times, costs, in_threads, peak_memory, run, size, verdict

import mksknn
from mksknn._neighbors import rank


def cloud(n: int, d: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, d))


def found(module: str) -> bool:
    """Whether a peer is installed; says so where it is not."""
    try:
        importlib.import_module(module)
    except ImportError:
        print(f"SKIPPED: {module} is not installed")
        return False
    return True


def sklearn_calls(X: np.ndarray, k: int, *algorithms: str) -> dict:
    def call(algorithm):
        one = NearestNeighbors(n_neighbors=k, algorithm=algorithm, n_jobs=THREADS)
        return lambda: one.fit(X).kneighbors()

    return {f"sklearn {algorithm}": call(algorithm) for algorithm in algorithms}


def faiss_calls(X: np.ndarray, k: int) -> dict:
    """The exhaustive index, built and asked: it finds the point itself too."""
    if not found("faiss"):
        return {}
    import faiss

    single = X.astype(np.float32)
    faiss.omp_set_num_threads(THREADS)

    def call(single=single):
        index = faiss.IndexFlatL2(X.shape[1])
        index.add(single)
        return index.search(single, min(k + 1, len(single)))

    call(single[:500])
    return {"FAISS flat": call}


def pynndescent_calls(X: np.ndarray, k: int) -> dict:
    if size(False, True, True) or not found("pynndescent"):  # it compiles for half a minute
        return {}
    import pynndescent

    call = lambda X=X: pynndescent.NNDescent(X, n_neighbors=k + 1, random_state=0)  # noqa: E731
    call(X[:1000])  # compiles
    return {"PyNNDescent": call}


def compare(what: str, X: np.ndarray, k: int, peers: dict, goals: dict) -> list[dict]:
    """Ours against each of the peers, all taking turns."""
    mksknn.neighbors(X[:2000], min(k, 5))
    found = costs(3, mksknn=lambda: mksknn.neighbors(X, k), **peers)
    rows = []
    for peer in peers:
        both = found["mksknn"], found[peer]
        goal = {"at_most": goals[peer]} if peer in goals else {}
        ratio = both[0].seconds / both[1].seconds
        rows.append(verdict(f"{what}: mksknn / {peer}", ratio, sides=both, **goal))
    if "PyNNDescent" in peers:
        lists, true = peers["PyNNDescent"]().neighbor_graph[0], mksknn.neighbors(X, k).indices
        hits = [len(np.intersect1d(a, b)) for a, b in zip(lists[::50], true[::50])]
        rows[-1]["recall"] = float(np.mean(hits)) / k
        print(f"(PyNNDescent found {rows[-1]['recall']:.1%} of the true neighbours)")
    return rows


def by_scipy(X: np.ndarray) -> list[np.ndarray]:
    """What a careful person would write: distances and their order, rows shared among threads."""
    return in_threads(lambda some: np.argsort(cdist(some, X), axis=1), X)


def full() -> list[dict]:
    """Every point ranked."""
    n = size(5_000, 2_000, 200)
    X = cloud(n, 10)
    peers = {"SciPy cdist, NumPy argsort": lambda: by_scipy(X)}
    peers |= sklearn_calls(X, n - 1, "brute") | faiss_calls(X, n - 1)
    return compare(f"full ranking, n={n:,} d=10", X, n - 1, peers, {"sklearn brute": 0.5})


def few() -> list[dict]:
    """The nearest 30, in few dimensions and in many."""
    n = size(20_000, 5_000, 300)
    X = cloud(n, 3)
    # quicker to build than a balanced, compact one, and no slower to ask; of leaves of 10 to 40
    # points 32 took the least, 4% less than the 16 that there are unasked
    plain = {"balanced_tree": False, "compact_nodes": False, "leafsize": 32}
    peers = {"cKDTree": lambda: cKDTree(X, **plain).query(X, 31, workers=THREADS)}
    peers |= sklearn_calls(X, 30, "kd_tree") | pynndescent_calls(X, 30)
    rows = compare(f"top 30, n={n:,} d=3", X, 30, peers, {"cKDTree": 1.3})
    X = cloud(n, 20)
    peers = sklearn_calls(X, 30, "brute") | faiss_calls(X, 30) | pynndescent_calls(X, 30)
    return rows + compare(f"top 30, n={n:,} d=20", X, 30, peers, {"sklearn brute": 1.0})


def memory() -> list[dict]:
    n = size(40_000, 10_000, 500)
    setup = f"X = np.random.default_rng(0).normal(size=({n}, 20)); mksknn.neighbors(X[:2000], 50)"
    peak, result = peak_memory(setup, "mksknn.neighbors(X, 50)"), n * 50 * 12 / 2**20
    what = f"neighbors, n={n:,} d=20, top 50: peak memory / the result's"
    return [verdict(what, peak / result, at_most=3) | {"MB": peak}]


def routes() -> None:
    print(f"{'n':>7}{'d':>4}{'k_max':>7}   sort / scan / tree, seconds")
    for n in size((500, 2_000, 10_000), (500, 2_000), (100,)):
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
    run("neighbors", __doc__, {"full": full, "few": few, "memory": memory}, {"routes": routes})
