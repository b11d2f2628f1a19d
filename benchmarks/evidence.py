"""The evidence over k against bare LAPACK, scikit-learn's grid search and a careful NumPy sweep.

python benchmarks/evidence.py             the goals, as ratios in one run
python benchmarks/evidence.py --backends  LAPACK against CHOLMOD, on which the choice rests
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

import numpy as np
from scipy.linalg.lapack import dpotrf
from scipy.optimize import minimize
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from timing import best_times, peak_memory, save, verdict

import mksknn
from mksknn._graphs import dense_laplacian, pairs_by_rank
from mksknn._logdet import Cholmod, Dense
from mksknn._neighbors import rank


def digits(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Real data: images of ten digits, 64 pixels each."""
    X, y = load_digits(return_X_y=True)
    return X[:n], y[:n]


def goals() -> None:
    rows = []
    rows += curves()
    rows += selection()
    rows += memory()
    rows += fresh_process()
    save("evidence", rows)


def curves() -> list[dict]:
    """Curves over all k at n = 500, in units of as many bare Cholesky factorizations."""
    X, y = digits(500)
    pairs = pairs_by_rank(rank(X, len(X) - 1, "euclidean"), "symmetric")
    matrices = []
    for k in range(1, len(X)):
        lower = dense_laplacian(pairs, k)
        matrices.append(np.asfortranarray(lower + np.tril(lower, -1).T + 0.1 * np.eye(len(X))))

    def bare() -> None:
        for matrix in matrices:
            dpotrf(matrix, lower=1, clean=0)

    times = best_times(
        bare=bare,
        fixed=lambda: mksknn.evidence_curve(X, y, sigma0=1.0, sigma2=0.1),
        optimised=lambda: mksknn.evidence_curve(X, y),
    )
    print(times)
    fixed, optimised = times["fixed"] / times["bare"], times["optimised"] / times["bare"]
    return [
        verdict("curve over all k, n=500, fixed sigmas / bare dpotrf", fixed, at_most=1.5),
        verdict("curve over all k, n=500, best sigmas / bare dpotrf", optimised, at_most=6),
    ]


def selection() -> list[dict]:
    """select_k over all k of 1,000 points."""
    X, y = digits(1000)
    grid = list(range(1, 900, 60))
    sampled = list(range(1, 1000, 111))
    times = best_times(
        select_k=lambda: mksknn.select_k(X, y),
        grid_search=lambda: GridSearchCV(
            KNeighborsClassifier(), {"n_neighbors": grid}, cv=10, n_jobs=2
        ).fit(X, y),
    )
    times["grid_search"] *= 899 / len(grid)
    start = time.perf_counter()
    numpy_sweep(X, y, sampled)
    times["numpy"] = (time.perf_counter() - start) * 999 / len(sampled)
    print(times, mksknn.select_k(X, y))
    print(f"(grid search timed at {len(grid)} of 899 k, the NumPy sweep at {len(sampled)} of 999)")
    ours = times["select_k"]
    grid, sweep = times["grid_search"] / ours, times["numpy"] / ours
    return [
        verdict(
            "GridSearchCV over 1..899 (scaled) / select_k, n=1,000",
            grid,
            at_least=300,
            seconds=(ours, times["grid_search"]),
        ),
        verdict(
            "NumPy slogdet and L-BFGS for each k (scaled) / select_k, n=1,000",
            sweep,
            at_least=30,
            seconds=(ours, times["numpy"]),
        ),
    ]


def numpy_sweep(X: np.ndarray, y: np.ndarray, ks: list[int]) -> list[float]:
    """What a careful person would write: slogdet, the analytic gradient, L-BFGS from the last k."""
    n, classes = len(X), np.unique(y)
    distances = np.sqrt(((X[:, None] - X[None]) ** 2).sum(axis=-1)) if n <= 200 else None
    if distances is None:
        squares = (X * X).sum(axis=1)
        distances = np.sqrt(np.maximum(squares[:, None] + squares - 2.0 * X @ X.T, 0.0))
    np.fill_diagonal(distances, -1.0)
    ranks = distances.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
    Y = (y[:, None] == classes) - 1.0 / len(classes)
    m, best, start = len(classes) - 1, [], np.zeros(2)
    for k in ks:
        chosen = (ranks <= k) & (ranks > 0)
        W = chosen.astype(float) + chosen.T
        L = np.diag(W.sum(axis=1)) - W
        q, s = np.einsum("ij,ij->", Y, L @ Y), (Y * Y).sum()

        def loss(logs, L=L, q=q, s=s):
            sigma0, sigma2 = np.exp(logs)
            P = sigma0 * L + sigma2 * np.eye(n)
            inverse = np.linalg.inv(P)
            value = 0.5 * m * np.linalg.slogdet(P)[1] - 0.5 * (sigma0 * q + sigma2 * s)
            by0 = 0.5 * m * np.einsum("ij,ij->", inverse, L) - 0.5 * q
            by2 = 0.5 * m * np.trace(inverse) - 0.5 * s
            return -value, -np.array([sigma0 * by0, sigma2 * by2])

        found = minimize(loss, start, jac=True, method="L-BFGS-B")
        start = found.x
        best.append(-found.fun)
    return best


def memory() -> list[dict]:
    """Peak memory of the curve and the selection at n = 1,000."""
    setup = "from sklearn.datasets import load_digits; X, y = load_digits(return_X_y=True)"
    setup += "; X, y = X[:1000], y[:1000]; mksknn.select_k(X[:200], y[:200])"
    setup += "; mksknn.evidence_curve(X[:200], y[:200])"
    rows = []
    for call in ("mksknn.evidence_curve(X, y)", "mksknn.select_k(X, y)"):
        square = peak_memory(setup, call) * 2**20 / (8.0 * 1000**2)
        rows.append(verdict(f"peak memory of {call[7:]}, in n^2 doubles", square, at_most=10))
    return rows


def fresh_process() -> list[dict]:
    """A new process: import and one call."""
    imports = run_fresh("import numba, scipy, scipy.sparse, scipy.linalg")
    call = "import mksknn; d = mksknn.datasets.load_new_thyroid(); mksknn.select_k(d.X, d.y)"
    run_fresh(call)
    warm = run_fresh(call)
    cold = run_fresh(call, cold=True)
    print(f"import numba and scipy {imports:.2f} s; select_k warm {warm:.2f} s, cold {cold:.2f} s")
    what = "fresh process, warm cache: import and select_k / importing numba, scipy"
    return [verdict(what, warm / imports, at_most=3), {"first use": {"cold": cold, "warm": warm}}]


def run_fresh(code: str, cold: bool = False) -> float:
    """Seconds that code takes in a new process, best of three (once if the cache is to be cold)."""
    timed = f"import time; t = time.perf_counter(); {code}; print(time.perf_counter() - t)"
    if cold:
        import os
        import tempfile

        with tempfile.TemporaryDirectory() as empty:
            environment = {**os.environ, "NUMBA_CACHE_DIR": empty}
            return _seconds(timed, environment)
    return min(_seconds(timed, None) for _ in range(3))


def _seconds(code: str, environment) -> float:
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return float(done.stdout)


def backends() -> None:
    """Time per factorization, and flops of the sparse one over those of the dense one."""
    print("     n   d    k  dpotrf  dsytrd  analysis  cholmod [s]   flops ratio, time ratio")
    random = np.random.default_rng(0)
    for n in (200, 400, 800, 1600, 3200):
        for d in (2, 5, 20):
            X = random.normal(size=(n, d))
            for k in (3, 10, 30, 100):
                pairs = pairs_by_rank(rank(X, k, "euclidean"), "symmetric")
                opened = Cholmod(pairs, k)
                times = best_times(
                    2,
                    one=lambda p=pairs, k=k: Dense(p, k, many=False).logdet(0.1),
                    many=lambda p=pairs, k=k: Dense(p, k, many=True),
                    analysis=lambda p=pairs, k=k: Cholmod(p, k),
                    sparse=lambda o=opened: o.logdet(0.1),
                )
                shown = "  ".join(f"{seconds:.4f}" for seconds in times.values())
                flops = opened.flops / (n**3 / 3)
                ratio = times["sparse"] / times["one"]
                print(f"{n:>6}{d:>4}{k:>5}  {shown}   {flops:.4f}  {ratio:.4f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backends", action="store_true")
    backends() if parser.parse_args().backends else goals()
