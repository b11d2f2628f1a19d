"""How time and memory grow with n: ranking, the curve and select_k on sparse graphs.

python benchmarks/scale.py                 n = 1,000 to 100,000 in 2 and 3 dimensions, the goals
python benchmarks/scale.py --million       a million points in the plane, k_max = 5
python benchmarks/scale.py --processes     two processes against one, n = 1,000, all k
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
from timing import RESULTS, best_times, save, verdict

import mksknn
from mksknn._blas import scipy_blas
from mksknn._jit import limit_threads

SIZES = (1_000, 3_162, 10_000, 31_623, 100_000)


def make_data(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Two classes whose border is a curve, one label in ten wrong."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] > 0
    return X, np.where(rng.random(n) < 0.1, ~y, y)


def measure(n: int, d: int, k_max: int, graph: str) -> dict:
    """One row, in this process; memory is the process's peak."""
    import resource

    from scipy.sparse import csc_matrix

    from mksknn._graphs import pairs_by_rank, sparse_laplacian
    from mksknn._logdet import cholmod
    from mksknn._neighbors import rank

    X, y = make_data(n, d)
    small = X[:1500], y[:1500]
    mksknn.select_k(*small, k_max=3, graph=graph, backend="cholmod")  # compile first
    row = {"n": n, "d": d, "k_max": k_max, "graph": graph}
    start = time.perf_counter()
    ranked = rank(X, k_max, "euclidean")
    row["neighbors"] = time.perf_counter() - start

    matrix = csc_matrix(sparse_laplacian(pairs_by_rank(ranked, graph), k_max))
    start = time.perf_counter()
    factor = cholmod().cholesky(matrix, beta=0.1, ordering_method="metis")
    row["ordered factorization"] = time.perf_counter() - start
    numeric = []
    for _ in range(3):
        start = time.perf_counter()
        factor.cholesky_inplace(matrix, beta=0.1)
        numeric.append(time.perf_counter() - start)
    row["numeric factorization"] = min(numeric)
    del factor, matrix

    start = time.perf_counter()
    best = mksknn.select_k(X, y, k_max=k_max, graph=graph)
    row["select_k"] = time.perf_counter() - start
    row["k"] = best.k
    row["peak MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return row


def measure_apart(*arguments) -> dict:
    """`measure` in a process of its own, so that the peak memory is its own."""
    command = [sys.executable, __file__, "--row", json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    row = json.loads(done.stdout.splitlines()[-1])
    print(row, flush=True)
    return row


def goals() -> None:
    rows = [
        measure_apart(n, d, 20, graph)
        for graph in ("symmetric", "mutual")
        for d in (2, 3)
        for n in SIZES
        if not (d == 3 and n > 31_623)
    ]
    exponents = {}
    for graph in ("symmetric", "mutual"):
        for d in (2, 3):
            chosen = [row for row in rows if row["d"] == d and row["graph"] == graph]
            for what in ("neighbors", "select_k"):
                times = [row[what] for row in chosen[1:]]
                slope = np.polyfit(np.log([row["n"] for row in chosen[1:]]), np.log(times), 1)[0]
                exponents[f"{what}, {graph}, {d}-D"] = float(slope)
                print(f"{what}, {graph}, {d}-D: time grows as n^{slope:.2f}")
    largest = next(
        row for row in rows if (row["n"], row["d"], row["graph"]) == (100_000, 2, "symmetric")
    )
    numeric = largest["select_k"] / largest["numeric factorization"]
    ordered = largest["select_k"] / largest["ordered factorization"]
    verdicts = [
        verdict("select_k / one METIS ordering and factorization, k=20", ordered, at_most=50),
        verdict("select_k / one numeric factorization alone, k=20", numeric, at_most=50),
        verdict("peak memory at n=100,000, GB", largest["peak MB"] / 1024, at_most=3),
    ]
    save("scale", {"rows": rows, "exponents": exponents, "goals": verdicts})
    plot(rows, exponents)


def plot(rows: list[dict], exponents: dict) -> None:
    """Time against n on log axes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    for ax, what in zip(axes, ("neighbors", "select_k"), strict=True):
        for graph, style in (("symmetric", "-"), ("mutual", "--")):
            for d, colour in ((2, "C0"), (3, "C1")):
                chosen = [row for row in rows if row["d"] == d and row["graph"] == graph]
                slope = exponents[f"{what}, {graph}, {d}-D"]
                ax.loglog(
                    [row["n"] for row in chosen],
                    [row[what] for row in chosen],
                    style,
                    color=colour,
                    marker="o",
                    markersize=4,
                    label=f"{graph}, {d}-D: $n^{{{slope:.2f}}}$",
                )
        ax.set_xlabel("points n")
        ax.set_title(what)
        ax.legend(fontsize=8)
    axes[0].set_ylabel("seconds, k_max = 20")
    figure.tight_layout()
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / "scale.png", dpi=120)


def million() -> None:
    """A million points: what it takes."""
    X, y = make_data(1_000_000, 2)
    import resource

    start = time.perf_counter()
    best = mksknn.select_k(X, y, k_max=5)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"n=1,000,000, 2-D, k_max=5: {best}\n{seconds:.0f} s, {peak:.1f} GB at the peak")
    save("million", {"seconds": seconds, "peak GB": peak, "k": best.k})


def processes() -> None:
    """The all-k curve at n = 1,000: one process on one thread, two processes, the default call."""
    X, y = make_data(1_000, 5)

    def alone() -> None:
        with limit_threads(1), scipy_blas().one_thread():
            mksknn.evidence_curve(X, y)

    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        mksknn.evidence_curve(X[:150], y[:150], executor=pool)  # start the workers
        times = best_times(
            1,
            alone=alone,
            two=lambda: mksknn.evidence_curve(X, y, executor=pool),
            default=lambda: mksknn.evidence_curve(X, y),
        )
    print(times)
    rows = [
        verdict(
            "one process on one thread / two processes", times["alone"] / times["two"], None, 1.6
        ),
        verdict("default call / two processes", times["default"] / times["two"], at_most=1.05),
    ]
    save("processes", rows)


PAGE = """# How cost grows

*Written by `benchmarks/scale.py --page` from measurements on {cores} cores.*

A call costs a ranking and some factorizations. What each depends on:

| quantity | ranking | evidence |
|---|---|---|
| points n | a k-d tree in few dimensions: about n log n; otherwise all pairs, n^2 | see below |
| dimensions d | the tree up to 8, all pairs beyond | through the fill: larger separators |
| k_max | n k_max numbers to hold | each k has its own graph; the factor grows with k |
| ratios r tried | none | dense: nothing more; sparse: a factorization each, 6 to 12 a k |
| classes J or outputs m | none | none: the determinant is raised to the power m |

## Dense

Up to a few hundred points, and whenever the graph fills in, a k costs one reduction to tridiagonal
form, (4/3) n^3 multiplications and additions, whatever the number of r. `select_k` over all k
inverts some 5 to 20 matrices instead of reducing n - 1 of them.

## Sparse

Points from a normal distribution, two classes with one label in ten wrong, k_max = 20. Seconds,
and the process's peak memory:

{table}

![Time against n]({figure})

Fitted exponents (without the smallest n): {exponents}.

At n = 100,000 in 2-D on the symmetric graph, `select_k` took {ordered:.0f} times as long as one
ordering and factorization at k = 20, and {numeric:.0f} times one numeric factorization alone.

{million}

## What a cluster buys

The k of an `evidence_curve` are independent. At n = 1,000, all k: {processes}

`select_k` depends on what it has found so far, so it uses an executor only where it evaluates every
k: on sparse graphs.

## Where exact stops being affordable

In 2-D the factor of a k-NN graph has about n log n entries and takes n^1.5 operations, in 3-D
n^1.33 entries and n^2 operations; from 5 or 6 dimensions on it is nearly full. So: a million points
in the plane at small k, some hundred thousand in space, and ten to twenty thousand in many
dimensions, where an n x n matrix of doubles takes 0.8 to 3.2 GB. Before a factorization that does
not fit, mksknn raises an error that names the gigabytes. `loo_curve` and
`select_k(criterion="loo_log")` factorize nothing and go on from there.
"""


def write_page() -> None:
    """docs/scale.md and its figure."""
    import os

    def load(name: str):
        return json.loads((RESULTS / f"{name}.json").read_text())

    scale = load("scale")
    shown = ("n", "d", "graph", "neighbors", "numeric factorization", "select_k", "peak MB", "k")
    lines = [f"| {' | '.join(shown)} |", "|" + "---|" * len(shown)]
    for row in scale["rows"]:
        cells = [
            f"{row[name]:,}"
            if name in ("n", "k", "d")
            else row[name]
            if name == "graph"
            else f"{row[name]:.0f}"
            if name == "peak MB"
            else f"{row[name]:.3g}"
            for name in shown
        ]
        lines.append(f"| {' | '.join(cells)} |")
    exponents = "; ".join(f"{what}: n^{slope:.2f}" for what, slope in scale["exponents"].items())
    ordered, numeric = (goal["ratio"] for goal in scale["goals"][:2])
    million = ""
    if (RESULTS / "million.json").exists():
        found = load("million")
        million = (
            f"A million points in the plane with k_max = 5 took {found['seconds']:.0f} s and "
            f"{found['peak GB']:.1f} GB."
        )
    pair = load("processes")
    text = PAGE.format(
        cores=os.cpu_count(),
        table="\n".join(lines),
        figure="_static/scale.png",
        exponents=exponents,
        ordered=ordered,
        numeric=numeric,
        million=million,
        processes=(
            f"two processes were {pair[0]['ratio']:.2f} times as fast as one on one thread, and "
            f"the default call, on threads, took {pair[1]['ratio']:.2f} times as long as the two."
        ),
    )
    docs = RESULTS.parents[1] / "docs"
    (docs / "scale.md").write_text(text)
    (docs / "_static" / "scale.png").write_bytes((RESULTS / "scale.png").read_bytes())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--processes", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.row:
        print(json.dumps(measure(*json.loads(arguments.row))))
    elif arguments.million:
        million()
    elif arguments.processes:
        processes()
    elif arguments.page:
        write_page()
    else:
        goals()
