"""The posterior over k against a sampler at equal accuracy, and against choosing one k.

python benchmarks/posterior.py

How good averaged predictions are: benchmarks/accuracy.py.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from numba import njit
from sets import standardise
from timing import THREADS, Cost, costs, run, size, timed_apart, verdict

import mksknn
from mksknn.datasets import load_new_thyroid, load_pima

sys.path.append(str(Path(__file__).parents[1] / "tests"))
import naive  # graphs and eigenvalues, by the formulas

ACCURACY = 0.01  # of p(k), total variation, that the sampler is asked for; ours is 1e-6 or better
SCALE = 0.4  # of the proposals: what naive.metropolis has, which tests compare with


@njit(nogil=True)
def walk(lams, qs, n, s, m, low, high, steps, rng):
    """Random-walk Metropolis over (k, log sigma0, log r): how often it is at each k, compiled.

    A step proposes another k (any, or the next one), then a move of both numbers along the ridge of
    constant sigma2, then one off it. The first twentieth of the steps does not count.
    """
    seen = np.zeros(len(qs), np.int64)
    a, u, t = 0, np.log(m * n / (qs[0] + s)), min(max(0.0, low), high)
    value = -np.inf
    for step in range(steps):
        for move in range(3):
            b, v, w = a, u, t
            if move == 0:
                if rng.random() < 0.5:
                    b = int(rng.random() * len(qs))
                else:
                    b = a + (1 if rng.random() < 0.5 else -1)
            elif move == 1:
                z = 3.0 * SCALE * rng.standard_normal()
                v, w = u - z, t + z
            else:
                v += SCALE * rng.standard_normal()
                w += SCALE * rng.standard_normal()
            if not (0 <= b < len(qs) and low <= w <= high):
                continue
            r = np.exp(w)
            logdet = n * v
            for i in range(lams.shape[1]):
                logdet += np.log(lams[b, i] + r)
            new = 0.5 * m * logdet - 0.5 * np.exp(v) * (qs[b] + r * s)
            if np.log(rng.random()) < new - value:
                a, u, t, value = b, v, w, new
        if step >= steps // 20:
            seen[a] += 1
    return seen


def sampler() -> list[dict]:
    """Time of the exact posterior, and of Metropolis at an accuracy of `ACCURACY`.

    The error of a sampler falls with the root of its steps, so a run of `steps` tells how many a
    given accuracy takes: steps * (error / ACCURACY)^2. The sampler gets its eigenvalues for
    nothing: only its steps are timed, on one thread, since a chain has no use for more; as many
    chains as threads take the time divided by these.
    """
    steps, k_max = size((1_000_000, 60), (20_000, 60), (50, 10))
    rows = []
    sets = (("pima", load_pima(), "symmetric"), ("new thyroid", load_new_thyroid(), "mutual"))
    for name, data, graph in sets:  # p(k) is broad in both
        X, y = standardise(data.X), data.y
        options = {"ks": list(range(1, k_max + 1)), "graph": graph}
        exact = mksknn.posterior(X, y, max_skipped=0.0, **options)
        found = costs(5, ours=partial(mksknn.posterior, X, y, **options))
        given = chain(X, y, **options)
        walk(*given, 2, np.random.default_rng(0))  # compiles
        errors, took = [], []
        for seed in range(4):
            start = time.perf_counter()
            seen = walk(*given, steps, np.random.default_rng(seed))
            took.append(time.perf_counter() - start)
            errors.append(0.5 * np.abs(seen / seen.sum() - exact.probability).sum())
        error = float(np.sqrt(np.mean(np.square(errors))))
        needed = steps * (error / ACCURACY) ** 2
        theirs = Cost(float(np.mean(took)) / steps * needed / THREADS)
        print(
            f"   {steps} steps are {error:.4f} off p(k), so {ACCURACY:g} takes {needed:.2g} steps"
        )
        what = (
            f"posterior, k=1..{k_max}, {name}, {graph}, n={len(X)}: "
            f"Metropolis to {ACCURACY:g} of p(k) (scaled) / mksknn"
        )
        ratio = theirs.seconds / found["ours"].seconds
        row = verdict(what, ratio, sides=(found["ours"], theirs))
        rows.append(row | {"steps": steps, "off": error, "steps needed": needed})
    return rows


def chain(X: np.ndarray, y: np.ndarray, ks: list[int], graph: str) -> tuple:
    """What a walk needs to know: eigenvalues, q of each k, and sizes."""
    D = naive.distance_matrix(X, "euclidean")
    Y, m, _ = naive.targets(y, "auto", "auto", True)
    graphs = [naive.weights(D, k, graph, "precomputed") for k in ks]
    lams = np.array([naive.spectrum(W) for W in graphs])
    qs = np.array([naive.roughness(W, Y) for W in graphs])
    low, high = np.log(naive.RATIO_BOUNDS)
    return lams, qs, len(X), float(np.sum(Y**2)), m, low, high


def memory_and_time() -> list[dict]:
    """Every k of 1,000 points: the posterior against the selection alone."""
    n = size(1_000, 500, 100)
    setup = f"from curve import digits; X, y = digits({n}); mksknn.CALL(X[:100], y[:100])"
    found = {
        name: timed_apart(setup.replace("CALL", name), f"mksknn.{name}(X, y)", repeats=3)
        for name in ("posterior", "select_k")
    }
    ratio = found["posterior"]["seconds"] / found["select_k"]["seconds"]
    return [verdict(f"posterior / select_k, all k, n={n:,}", ratio) | found]


if __name__ == "__main__":
    run("posterior", __doc__, {"sampler": sampler, "selection": memory_and_time})
