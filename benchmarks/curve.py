"""The evidence of every k against bare LAPACK and a careful NumPy program, and its memory.

python benchmarks/curve.py              the comparisons
python benchmarks/curve.py backends     LAPACK against CHOLMOD, on which the choice rests
"""

from __future__ import annotations

import time

import numpy as np
from scipy.linalg.lapack import dpotrf
from scipy.optimize import minimize
from sklearn.datasets import load_digits
from timing import best_times, peak_memory, run, size, verdict

import mksknn
from mksknn._dense import Cholesky, Tridiagonal
from mksknn._graphs import pairs_by_rank
from mksknn._neighbors import rank
from mksknn._sparse import Cholmod


def digits(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Real data: images of ten digits, 64 pixels each."""
    X, y = load_digits(return_X_y=True)
    return X[:n], y[:n]


def curves() -> list[dict]:
    """Curves over all k at n = 500, in units of as many bare Cholesky factorizations."""
    X, y = digits(size(500, 300, 60))
    n = len(X)
    ranked, matrices = mksknn.neighbors(X), []
    for k in range(1, n):
        W = mksknn.knn_graph(ranked, k, graph="symmetric").toarray()
        matrices.append(np.asfortranarray(np.diag(W.sum(axis=1) + 0.1) - W))

    def bare() -> None:
        for matrix in matrices:
            dpotrf(matrix, lower=1, clean=0)

    times = best_times(
        bare=bare,
        fixed=lambda: mksknn.evidence_curve(X, y, sigma0=1.0, sigma2=0.1),
        optimised=lambda: mksknn.evidence_curve(X, y),
    )
    fixed, optimised = times["fixed"] / times["bare"], times["optimised"] / times["bare"]
    return [
        verdict(f"curve over all k, n={n}, fixed sigmas / bare dpotrf", fixed, at_most=1.5),
        verdict(f"curve over all k, n={n}, best sigmas / bare dpotrf", optimised, at_most=6),
    ]


def by_numpy() -> list[dict]:
    """What a careful person would write, timed at some of the k and multiplied."""
    X, y = digits(size(1_000, 400, 80))
    n = len(X)
    sampled = list(range(1, n, max(n // 9, 1)))
    start = time.perf_counter()
    numpy_sweep(X, y, sampled)
    sweep = (time.perf_counter() - start) * (n - 1) / len(sampled)
    ours = best_times(
        curve=lambda: mksknn.evidence_curve(X, y), select_k=lambda: mksknn.select_k(X, y)
    )
    print(f"(the NumPy program was timed at {len(sampled)} of {n - 1} k)")
    peer = "NumPy slogdet and L-BFGS for each k (scaled)"
    return [
        verdict(
            f"{peer} / {call}, n={n:,}",
            sweep / ours[name],
            at_least=goal,
            seconds=(ours[name], sweep),
        )
        for name, call, goal in (("curve", "evidence_curve", None), ("select_k", "select_k", 30))
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
    """Peak memory of the curve, the selection and the posterior."""
    n = size(1_000, 500, 200)
    setup = f"from curve import digits; X, y = digits({n})"
    rows = []
    for name in ("evidence_curve", "select_k", "posterior"):
        peak = peak_memory(f"{setup}; mksknn.{name}(X[:150], y[:150])", f"mksknn.{name}(X, y)")
        what = f"peak memory of {name}, n={n:,}, in n^2 doubles"
        rows.append(verdict(what, peak * 2**20 / (8.0 * n * n), at_most=10) | {"MB": peak})
    return rows


def backends() -> None:
    """Time per factorization, and flops of the sparse one over those of the dense one."""
    print("     n   d    k  dpotrf  dsytrd  analysis  cholmod [s]   flops ratio, time ratio")
    random = np.random.default_rng(0)
    for n in size((200, 400, 800, 1600, 3200), (200, 400, 800), (120,)):
        for d in (2, 5, 20):
            X = random.normal(size=(n, d))
            for k in (3, 10, 30, 100):
                pairs = pairs_by_rank(rank(X, k, "euclidean"), "symmetric")
                opened = Cholmod(pairs, k)
                times = best_times(
                    2,
                    one=lambda p=pairs, k=k: Cholesky(p, k).logdet(0.1),
                    many=lambda p=pairs, k=k: Tridiagonal(p, k),
                    analysis=lambda p=pairs, k=k: Cholmod(p, k),
                    sparse=lambda o=opened: o.logdet(0.1),
                )
                shown = "  ".join(f"{seconds:.4f}" for seconds in times.values())
                flops = opened.flops / (n**3 / 3)
                ratio = times["sparse"] / times["one"]
                print(f"{n:>6}{d:>4}{k:>5}  {shown}   {flops:.4f}  {ratio:.4f}", flush=True)


if __name__ == "__main__":
    parts = {"curves": curves, "numpy": by_numpy, "memory": memory}
    run("curve", __doc__, parts, {"backends": backends})
