"""Choosing k among all k: against a grid search, against bare LAPACK, and against itself.

python benchmarks/select_k.py grid      10-fold cross-validation over k = 1..899
python benchmarks/select_k.py every     all k, in units of one dpotrf of the same size, and memory
python benchmarks/select_k.py limits    k_max= and ks= against no limit, six sets
python benchmarks/select_k.py plane     100,000 points in the plane with and without k_max
python benchmarks/select_k.py busy      two other processes keep the cores busy

Without a part: all of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from statistics import median

import numpy as np
from loo import winners
from sets import few, keel, standardise
from sklearn.datasets import make_friedman1
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from timing import THREADS, Cost, best_times, costs, run, size, timed_apart, unmet, verdict, wall

import mksknn

PATIENCE = 1500.0  # seconds, after which a call counts as not ending


def segment() -> tuple[np.ndarray, np.ndarray]:
    X, y = few(*keel("segment"), size(1_000, 500, 100))
    return standardise(X), y


def grid() -> list[dict]:
    """scikit-learn's search, timed at some of the k, spread evenly, and multiplied; and what a
    careful person would write: one ranking a fold, votes cumulated. Both find errors only.
    """
    X, y = segment()
    folds, largest = 10, len(X) * 9 // 10 - 1
    ks = list(range(1, largest + 1, max(largest // 60, 1)))
    search = GridSearchCV(KNeighborsClassifier(), {"n_neighbors": ks}, cv=folds, n_jobs=THREADS)
    mksknn.select_k(X, y)
    search.set_params(param_grid={"n_neighbors": [1]}).fit(X, y)  # starts the workers
    search.set_params(param_grid={"n_neighbors": ks})
    one_ranking_a_fold(X, y, largest)
    calls = {"ours": lambda: mksknn.select_k(X, y)}
    found = costs(5, **calls, cumulated=lambda: one_ranking_a_fold(X, y, largest))
    found |= costs(size(2, 1, 1), theirs=lambda: search.fit(X, y))
    ours, theirs, cumulated = found["ours"], found["theirs"], found["cumulated"]
    off = 1.0 - search.cv_results_["mean_test_score"] - one_ranking_a_fold(X, y, largest)[ks]
    if np.abs(off).max() > 0.02:  # votes tie now and then, and distances do
        raise ValueError(f"the two cross-validations differ by {np.abs(off).max():g}")
    theirs = Cost(theirs.seconds * largest / len(ks), theirs.MB)
    print(f"(the grid search was timed at {len(ks)} of {largest} k)")
    what = f"select_k, n={len(X):,} d={X.shape[1]}"
    peer, other = f"GridSearchCV over 1..{largest} (scaled)", f"one ranking a fold, 1..{largest}"
    ratio, less = theirs.seconds / ours.seconds, cumulated.seconds / ours.seconds
    return [
        verdict(f"{peer} / {what}", ratio, at_least=1000, sides=(ours, theirs)),
        verdict(f"{other} / {what}", less, sides=(ours, cumulated)),
    ]


def one_ranking_a_fold(X: np.ndarray, y: np.ndarray, largest: int) -> np.ndarray:
    """Errors of plain k-NN by 10-fold cross-validation at 0, 1, ..., `largest`, at 0 all."""
    wrong = np.zeros((10, largest + 1))
    for fold, (train, test) in enumerate(StratifiedKFold(10).split(X, y)):
        found = winners(X[test], X[train], y[train])[:, :largest]
        wrong[fold, 1:] = (found != y[test][:, None]).mean(axis=0)
    return wrong.mean(axis=0) + (np.arange(largest + 1) == 0)


# LAPACK's dpotrf in two threads crashes from some 15,000 rows on (OpenBLAS 0.3.30), so the unit for
# larger ones is our own factorization in tiles, which takes as long as dpotrf where both work.
UNIT = """
n = {n}
A = np.full((n, n), 0.5, order="F"); np.fill_diagonal(A, n)
small = A[:2100, :2100].copy(order="F")
if n <= 12_000:
    from scipy.linalg.lapack import dpotrf
    work = lambda: dpotrf(A, lower=1, clean=0, overwrite_a=1)
    dpotrf(small, lower=1)
else:
    from mksknn._lapack import cholesky
    A, small = A.T, np.ascontiguousarray(small)
    work = lambda: cholesky(A)
    cholesky(small)
"""


def every() -> list[dict]:
    """All k, from the points to the answer."""
    rows = []
    sizes = ((4_000, 2, 12), (6_000, 10, 20), (20_000, 10, 25))
    for n, d, goal in size(sizes, ((2_000, 2, 12), (2_000, 10, 20)), ((200, 2, 12),)):
        what = f"select_k, all k, {n:,} x {d}"
        unit = timed_apart(UNIT.format(n=n), "work()")["seconds"]
        setup = f"from sets import checkers; X, y = checkers({n}, {d})"
        for small, given in ((900, ""), (1_500, ", k_max=12")):  # compile first
            setup += f"; mksknn.select_k(*checkers(min({n}, {small}), {d}){given})"
        try:
            one = timed_apart(setup, "mksknn.select_k(X, y)", timeout=PATIENCE)
        except (RuntimeError, subprocess.TimeoutExpired) as why:
            rows.append(unmet(f"{what} / one dpotrf", str(why), goal))
            continue
        ratio, unit_is = one["seconds"] / unit, "dpotrf" if n <= 12_000 else "Cholesky in our tiles"
        rows.append(verdict(f"{what} / one {unit_is}", ratio, at_most=goal) | one | {"unit": unit})
        print(f"   {one['seconds']:.2f} s, dpotrf {unit:.2f} s, {one['MB']:.0f} MB, k={one['k']}")
        rows.append(verdict(f"{what}: peak memory, GB", one["MB"] / 1024, at_most=16))
    return rows


def shapes() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Six sets of different shape."""
    scale = size(1.0, 0.3, 0.05)
    sizes = {"segment": 1_000, "phoneme": 2_500, "letter": 2_000, "banana": 4_000}
    made = {name: few(*keel(name), int(n * scale)) for name, n in sizes.items()}
    sets = {name: (standardise(X), y) for name, (X, y) in made.items()}
    X, y = make_friedman1(int(2_000 * scale), 10, noise=1.0, random_state=0)
    rng = np.random.default_rng(0)
    noise = int(1_000 * scale)
    return sets | {
        "friedman1": (X, y),
        "labels of noise": (rng.normal(size=(noise, 5)), rng.integers(0, 3, noise)),
    }


def limits() -> list[dict]:
    """A limit must never cost: the slowest of three limits against none."""
    return [limit(name, X, y) for name, (X, y) in shapes().items()]


def limit(name: str, X: np.ndarray, y: np.ndarray) -> dict:
    n = len(X)
    limited = {
        "k_max=200": {"k_max": min(200, n - 1)},
        "ks up to 200 by 3": {"ks": list(range(1, min(200, n), 3))},
        "40 ks over all": {"ks": np.unique(np.geomspace(1, n - 1, 40).astype(int))},
    }
    calls = {
        key: lambda given=given: mksknn.select_k(X, y, **given)
        for key, given in {**limited, "all k": {}}.items()
    }
    for call in calls.values():
        call()
    times = best_times(3, **calls)
    worst = max(limited, key=times.get)
    what = f"select_k, {name}, {n:,} x {X.shape[1]}: {worst} / all k"
    return verdict(what, times[worst] / times["all k"], at_most=1.1) | {"seconds": times}


def plane() -> list[dict]:
    """No limit against k_max = 40, where the best k is within it and where it is beyond."""
    n = size(100_000, 10_000, 300)
    sets = {"best k within": ", waves=10, wrong=0.05", "best k beyond": ""}
    return [plane_of(n, where, given) for where, given in sets.items()]


def plane_of(n: int, where: str, given: str) -> dict:
    setup = f"from sets import border; X, y = border({n}, 2{given}); Z, z = border(5000, 2)"
    setup += "; mksknn.select_k(Z, z); mksknn.select_k(Z, z, k_max=40)" * (n > 1000)
    what = f"select_k, {n:,} points in the plane, {where}: no k_max / k_max=40"
    limited = timed_apart(setup, "mksknn.select_k(X, y, k_max=40)", timeout=PATIENCE)
    try:
        free = timed_apart(setup, "mksknn.select_k(X, y)", timeout=PATIENCE)
    except (RuntimeError, subprocess.TimeoutExpired) as why:
        return unmet(what, str(why), 3)
    print(f"   k_max=40: {limited}; no k_max: {free}")
    row = verdict(what, free["seconds"] / limited["seconds"], at_most=3)
    return row | {"no k_max": free, "k_max=40": limited}


def busy() -> list[dict]:
    """As many other processes as cores, each counting for ever."""
    X, y = segment()
    call = lambda: mksknn.select_k(X, y)  # noqa: E731
    call()
    quiet = median([wall(call) for _ in range(9)])
    spin = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(spin) for _ in range(os.cpu_count() or 1)]
    try:
        crowded = median([wall(call) for _ in range(9)])
    finally:
        for other in others:
            other.kill()
            other.wait()
    print(f"   quiet {quiet:.3f} s, busy {crowded:.3f} s")
    what = f"select_k, n={len(X):,} d={X.shape[1]}: on a busy machine / on a quiet one"
    return [verdict(what, crowded / quiet, at_most=3)]


PARTS = {"grid": grid, "every": every, "limits": limits, "plane": plane, "busy": busy}

if __name__ == "__main__":
    run("select_k", __doc__, PARTS)
