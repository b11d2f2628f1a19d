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
from sets import standardise
from timing import best_times, run, size, timed_apart, verdict

import mksknn
from mksknn.datasets import load_new_thyroid, load_pima

sys.path.append(str(Path(__file__).parents[1] / "tests"))
import naive  # the sampler of the tests

ACCURACY = 0.01  # of p(k), total variation, that the sampler is asked for; ours is 1e-6 or better


def sampler() -> list[dict]:
    """Time of the exact posterior, and of Metropolis at an accuracy of `ACCURACY`.

    The error of a sampler falls with the root of its steps, so a run of `steps` tells how many a
    given accuracy takes: steps * (error / ACCURACY)^2. The sampler gets its eigenvalues for
    nothing: only its steps are timed, by the difference of two runs.
    """
    steps, k_max = size((40_000, 60), (5_000, 60), (50, 10))
    rows = []
    sets = (("pima", load_pima(), "symmetric"), ("new thyroid", load_new_thyroid(), "mutual"))
    for name, data, graph in sets:  # p(k) is broad in both
        X, y = standardise(data.X), data.y
        options = {"ks": list(range(1, k_max + 1)), "graph": graph}
        exact = mksknn.posterior(X, y, max_skipped=0.0, **options)
        call = partial(mksknn.posterior, X, y, **options)
        ours = best_times(5, ours=call)["ours"]
        errors, took = [], []
        for seed in range(2):
            start = time.perf_counter()
            naive.metropolis(X, y, steps=1, seed=seed, **options)
            middle = time.perf_counter()
            samples = naive.metropolis(X, y, steps=steps, seed=seed, **options)
            took.append(time.perf_counter() - middle - (middle - start))
            seen = np.array([(samples[steps // 20 :, 0] == k).mean() for k in exact.k])
            errors.append(0.5 * np.abs(seen - exact.probability).sum())
        error = float(np.mean(errors))
        needed = steps * (error / ACCURACY) ** 2
        seconds = float(np.mean(took)) / steps * needed
        print(
            f"   {steps} steps are {error:.4f} off p(k), so {ACCURACY:g} takes {needed:.2g} steps"
        )
        what = (
            f"posterior, k=1..{k_max}, {name}, {graph}, n={len(X)}: "
            f"Metropolis to {ACCURACY:g} of p(k) (scaled) / mksknn"
        )
        row = verdict(what, seconds / ours, seconds=(ours, seconds))
        rows.append(row | {"steps": steps, "off": error, "steps needed": needed})
    return rows


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
