"""Random calls against the literal answers of tests/naive.py, for some minutes.

    python tools/soak.py [minutes] [seed]

Every call has a seed of its own, printed with what went wrong: `python tools/soak.py 0 SEED`
repeats that one. Memory must stay flat: what the process holds is printed after every tenth of the
time, and what it holds at the end is compared with what it held after three of them. The exit
status is the number of findings, at most 100.
"""

from __future__ import annotations

import gc
import sys
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import naive  # noqa: E402

import mksknn  # noqa: E402

SETTLED = 3  # tenths of the time
GROWTH = 16e6  # bytes; in ten minutes on two cores 226.1 MB became 226.5
EVIDENCE_GRAPHS = ("mutual", "symmetric")
METRICS = ("euclidean", "manhattan", "chebyshev")


def points(rng: np.random.Generator) -> np.ndarray:
    """Points in general position, on a lattice, in heaps, or nearly all in one place."""
    n, d = int(rng.integers(2, 26)), int(rng.integers(1, 7))
    kind = rng.integers(4)
    if kind == 0:
        return rng.normal(size=(n, d))
    if kind == 1:
        return rng.integers(0, 4, (n, d)).astype(float)
    if kind == 2:
        return np.repeat(rng.normal(size=(n, d)), 3, axis=0)[rng.permutation(3 * n)[:n]]
    X = np.full((n, d), 0.1)
    X[0] += 1.0
    return X


def targets(rng: np.random.Generator, X: np.ndarray) -> np.ndarray:
    """Values or classes that vary."""
    n = len(X)
    kind = rng.integers(4)
    if kind == 0:
        y = rng.normal(size=(n, 2)) if rng.random() < 0.3 else rng.normal(size=n)
    elif kind == 1:
        y = X[:, 0] + 0.1 * rng.normal(size=n)
    else:
        y = rng.integers(0, kind, n) if rng.random() < 0.5 else np.digitize(X[:, 0], [-0.5, 0.5])
        y[:2] = [0, 1]
    return y


def close(found: object, expected: object, what: str, rtol: float = 1e-8) -> None:
    """Compare, relative to the largest entry."""
    expected = np.asarray(expected)
    size = rtol * (1.0 + float(np.abs(expected).max(initial=0.0)))
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=size, err_msg=what)


def check_neighbors(rng: np.random.Generator) -> None:
    """Rankings and graphs."""
    X, metric = points(rng), str(rng.choice(METRICS))
    found = mksknn.neighbors(X, metric=metric)
    indices, distances = naive.neighbors(X, None, metric)
    np.testing.assert_array_equal(found.indices, indices)
    close(found.distances, distances, "distances", 1e-13)
    k, graph = int(rng.integers(1, len(X))), str(rng.choice(("knn", *EVIDENCE_GRAPHS)))
    W = mksknn.knn_graph(X, k, graph=graph, metric=metric)
    np.testing.assert_array_equal(W.toarray(), naive.weights(X, k, graph, metric))


def check_curve(rng: np.random.Generator) -> None:
    """Evidence curves and selections, on each backend."""
    X = points(rng)
    y, graph = targets(rng, X), str(rng.choice(EVIDENCE_GRAPHS))
    backend = str(rng.choice(("auto", "lapack", "superlu")))
    _, expected, _, _ = naive.evidence_curve(X, y, graph=graph)
    curve = mksknn.evidence_curve(X, y, graph=graph, backend=backend)
    close(curve.log_evidence, expected, "curve")
    best = mksknn.select_k(X, y, graph=graph, backend=backend)
    assert best.certified, "not certified"
    close(best.log_evidence, expected.max(), "best")
    close(expected[best.k - 1], expected.max(), "k")


def check_sigmas(rng: np.random.Generator) -> None:
    """Given sigmas; by fifty digits, of which the plain determinant may need more than half."""
    X = points(rng)
    y, graph, k = targets(rng, X), str(rng.choice(EVIDENCE_GRAPHS)), int(rng.integers(1, len(X)))
    sigma0, sigma2 = np.exp(rng.uniform(-12, 12, 2)).tolist()
    found = mksknn.log_evidence(X, y, k, sigma0=sigma0, sigma2=sigma2, graph=graph)
    Y, m, constant = naive.targets(y)
    W = naive.weights(X, k, graph)
    logdet = float(naive.logdet_mpmath(naive.laplacian(W), sigma2 / sigma0))
    fit = sigma0 * naive.roughness(W, Y) + sigma2 * np.sum(Y**2)
    each = 0.5 * m * len(X) * np.log(0.5 * sigma0 / np.pi)
    close(found, each + 0.5 * m * logdet - 0.5 * fit + constant, "log_evidence", 1e-11)


def check_posterior(rng: np.random.Generator) -> None:
    """Posteriors."""
    X = points(rng)[:10]
    y, graph = targets(rng, X), str(rng.choice(EVIDENCE_GRAPHS))
    found = mksknn.posterior(X, y, graph=graph)
    _, probability, _ = naive.posterior(X, y, graph=graph, brute=False)
    np.testing.assert_allclose(found.probability, probability, atol=3e-6)


def check_loo(rng: np.random.Generator) -> None:
    """Leave-one-out curves."""
    X = points(rng)[:12]
    y, graph = targets(rng, X), str(rng.choice(("knn", *EVIDENCE_GRAPHS)))
    found = mksknn.loo_curve(X, y, graph=graph)
    _, error, score, _ = naive.loo_curve(X, y, graph)
    close(found.error, error, "error", 1e-10)
    close(found.log_score, score, "score")


def check_predict(rng: np.random.Generator) -> None:
    """Predictions, one call and prepared."""
    X = points(rng)
    y, graph = targets(rng, X), str(rng.choice(EVIDENCE_GRAPHS))
    new = np.vstack([X[:3], X[:3] + rng.normal(size=X[:3].shape)])
    k = int(rng.integers(1, len(X)))
    sigmas = dict(zip(("sigma0", "sigma2"), np.exp(rng.uniform(-5, 5, 2)).tolist(), strict=True))
    found = mksknn.predict(X, y, new, k=k, graph=graph, **sigmas)
    expected = naive.predict(X, y, new, k, graph, **sigmas)
    for name in ("mean", "variance", "n_neighbors", "probability"):
        if expected[name] is not None:
            close(getattr(found, name), expected[name], name, 1e-11)
    again = mksknn.prepare(X, y, k=k, graph=graph, **sigmas)(new[2:4])
    np.testing.assert_array_equal(again.mean, found.mean[2:4])


CHECKS = (check_neighbors, check_curve, check_sigmas, check_posterior, check_loo, check_predict)


def run_one(seed: int) -> tuple[str, str | None]:
    """One call; its name, and what went wrong."""
    rng = np.random.default_rng(seed)
    check = CHECKS[int(rng.integers(len(CHECKS)))]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check(rng)
    except Exception:
        return check.__name__, traceback.format_exc(limit=-4)
    return check.__name__, None


def held() -> float:
    """Bytes that this process holds."""
    gc.collect()
    try:
        return 4096.0 * int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0.0


def main(minutes: float, seed: int) -> int:
    """Soak, and report."""
    print(f"seed {seed}, {minutes:g} minutes", flush=True)
    begun, counts, findings, memory = time.monotonic(), Counter(), 0, [held()]
    while True:
        name, trouble = run_one(seed)
        counts[name] += 1
        if trouble:
            findings += 1
            print(f"seed {seed}, {name}:\n{trouble}", flush=True)
        passed = time.monotonic() - begun
        while len(memory) <= 10 and passed >= 6.0 * minutes * len(memory):
            memory.append(held())
            if minutes:
                told = f"{passed:.0f} s, {counts.total()} calls, {memory[-1] / 1e6:.1f} MB"
                print(f"{told}, seed {seed}", flush=True)
        if len(memory) > 10:
            break
        seed += 1
    growth = memory[-1] - memory[SETTLED]
    print(f"{counts.total()} calls ({dict(counts)}), last seed {seed}")
    print(f"memory grew by {growth / 1e6:.1f} MB in the last {10 - SETTLED} tenths of the time")
    if growth > GROWTH:
        findings += 1
        print("memory is not flat")
    print(f"{findings} findings")
    return min(findings, 100)


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(
        main(
            float(given[0]) if given else 10.0,
            int(given[1]) if len(given) > 1 else int(time.time()) % 10**9,
        )
    )
