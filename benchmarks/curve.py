"""The evidence of every k against bare LAPACK and a careful NumPy program, and its memory.

python benchmarks/curve.py              the comparisons
python benchmarks/curve.py backends     LAPACK against CHOLMOD, on which the choice rests
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from scipy.linalg.lapack import dpotrf
from scipy.optimize import minimize_scalar
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits
from timing import THREADS, Cost, best_times, costs, peak_memory, run, size, verdict

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
    sampled = list(range(1, n, max(n // 32, 1)))
    numpy_sweep(X[:60], y[:60], [1, 2])
    mksknn.select_k(X, y)
    found = costs(
        size(2, 1, 1),
        sweep=lambda: numpy_sweep(X, y, sampled),
        ranking=lambda: numpy_sweep(X, y, []),
        curve=lambda: mksknn.evidence_curve(X, y),
        select_k=lambda: mksknn.select_k(X, y),
    )
    once = found["ranking"].seconds  # of all k
    each = max(found["sweep"].seconds - once, 0.0) / len(sampled)
    sweep = Cost(once + each * (n - 1), found["sweep"].MB)
    print(f"(the NumPy program was timed at {len(sampled)} of {n - 1} k)")
    ours = mksknn.evidence_curve(X, y, ks=sampled).log_evidence
    off = np.abs(ours / numpy_sweep(X, y, sampled) - 1.0).max()
    if off > 1e-9:
        raise ValueError(f"the two programs differ by {off:g}")
    peer = "NumPy eigvalsh for each k (scaled)"
    return [
        verdict(
            f"{peer} / {call}, n={n:,}",
            sweep.seconds / found[name].seconds,
            at_least=goal,
            sides=(found[name], sweep),
        )
        for name, call, goal in (("curve", "evidence_curve", None), ("select_k", "select_k", 30))
    ]


def numpy_sweep(X: np.ndarray, y: np.ndarray, ks: list[int]) -> np.ndarray:
    """What a careful person would write: one eigvalsh for each k, by which every determinant is
    known, sigma0 in closed form, a search over one number; graphs side by side.
    """
    n, classes = len(X), np.unique(y)
    squares = (X * X).sum(axis=1)
    distances = np.maximum(squares[:, None] + squares - 2.0 * X @ X.T, 0.0)
    np.fill_diagonal(distances, -1.0)
    ranks = distances.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
    Y = (y[:, None] == classes) - 1.0 / len(classes)
    m, s = len(classes) - 1, (Y * Y).sum()
    constant = -0.5 * m * n * (1.0 + np.log(2.0 * np.pi)) - 0.5 * n * np.log(len(classes))

    def one(k: int) -> float:
        chosen = (ranks <= k) & (ranks > 0)
        W = chosen.astype(float) + chosen.T
        L = np.diag(W.sum(axis=1)) - W
        q, eigenvalues = np.einsum("ij,ij->", Y, L @ Y), np.maximum(np.linalg.eigvalsh(L), 0.0)

        def loss(t: float) -> float:
            logdet = np.log(eigenvalues + np.exp(t)).sum()
            return -0.5 * m * (logdet - n * np.log((q + np.exp(t) * s) / (m * n)))

        bounds = np.log([1e-6, 1e6])
        found = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-7})
        return constant - found.fun

    with threadpool_limits(1, "blas"), ThreadPoolExecutor(THREADS) as threads:
        return np.array(list(threads.map(one, ks)))


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
