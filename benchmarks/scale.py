"""How time and memory grow with n: ranking, the curve and select_k on sparse graphs.

python benchmarks/scale.py                 n = 1,000 to 100,000 in 2 and 3 dimensions, the goals
python benchmarks/scale.py --million       a million points in the plane, k_max = 5
python benchmarks/scale.py --processes     two processes against one, n = 1,000, all k
python benchmarks/scale.py --page          docs/scale.md from the results of the other three
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
from mksknn._jit import limit_threads

SIZES = (1_000, 3_162, 10_000, 31_623, 100_000)
GRAPHS = ("symmetric", "mutual")
MEASURED = ("neighbors", "select_k", "evidence_curve")


def make_data(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Two classes whose border is a curve, one label in ten wrong."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] > 0
    return X, np.where(rng.random(n) < 0.1, ~y, y)


def measure(n: int, d: int, k_max: int, graph: str, curve: bool) -> dict:
    """One row, in this process; memory is the process's peak after each step."""
    import resource

    from scipy.sparse import csc_matrix

    from mksknn._graphs import pairs_by_rank, sparse_laplacian
    from mksknn._logdet import cholmod
    from mksknn._neighbors import rank

    def timed(name: str, function, *arguments, **options):
        start = time.perf_counter()
        result = function(*arguments, **options)
        row[name] = time.perf_counter() - start
        row[f"{name} MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return result

    X, y = make_data(n, d)
    for call in (mksknn.select_k, mksknn.evidence_curve):  # compile first
        call(X[:1500], y[:1500], k_max=12, graph=graph, backend="cholmod")
    row = {"n": n, "d": d, "k_max": k_max, "graph": graph}
    ranked = timed("neighbors", rank, X, k_max, "euclidean")
    matrix = csc_matrix(sparse_laplacian(pairs_by_rank(ranked, graph), k_max))
    del ranked
    best = timed("select_k", mksknn.select_k, X, y, k_max=k_max, graph=graph)
    row["k"] = best.k
    if curve:
        found = timed("evidence_curve", mksknn.evidence_curve, X, y, k_max=k_max, graph=graph)
        assert found.best_k == best.k
    # one factorization as scikit-sparse does it
    metis = {"beta": 0.1, "ordering_method": "metis"}
    factor = timed("ordered factorization", cholmod().cholesky, matrix, **metis)
    numeric = []
    for _ in range(3):
        timed("numeric factorization", factor.cholesky_inplace, matrix, beta=0.1)
        numeric.append(row["numeric factorization"])
    row["numeric factorization"] = min(numeric)
    return row


def measure_apart(*arguments) -> dict:
    """`measure` in a process of its own, so that the peak memory is its own."""
    command = [sys.executable, __file__, "--row", json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    row = json.loads(done.stdout.splitlines()[-1])
    print(row, flush=True)
    return row


def pick(rows: list[dict], graph: str, d: int) -> list[dict]:
    return [row for row in rows if (row["graph"], row["d"]) == (graph, d)]


def goals() -> None:
    rows = []
    for n in SIZES:
        for d in (2, 3):
            rows += [measure_apart(n, d, 20, graph, True) for graph in GRAPHS]
        save("scale", {"rows": rows})  # a long run: nothing is lost if it is stopped
    largest = pick(rows, "symmetric", 2)[-1]
    numeric = largest["select_k"] / largest["numeric factorization"]
    ordered = largest["select_k"] / largest["ordered factorization"]
    verdicts = [
        verdict("select_k / one METIS ordering and factorization, k=20", ordered, at_most=50),
        verdict("select_k / one numeric factorization alone, k=20", numeric, at_most=50),
        verdict("peak memory at n=100,000, GB", largest["select_k MB"] / 1024, at_most=3),
    ]
    save("scale", {"rows": rows, "exponents": exponents(rows), "goals": verdicts})
    plot(rows)


def fit(rows: list[dict], what: str) -> tuple[float, float]:
    """(a, b) of the line log(time) = a log(n) + b, without the smallest n."""
    n, times = ([row[name] for row in rows[1:]] for name in ("n", what))
    slope, level = np.polyfit(np.log(n), np.log(times), 1)
    return float(slope), float(level)


def exponents(rows: list[dict]) -> dict[str, dict[str, float]]:
    return {
        f"{graph}, {d}-D": {what: fit(pick(rows, graph, d), what)[0] for what in MEASURED}
        for d in (2, 3)
        for graph in GRAPHS
    }


def plot(rows: list[dict]) -> None:
    """Time and memory against n on log axes, with the fitted powers."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    libraries = min(row["neighbors MB"] for row in rows)
    rows = [row | {"MB": row["select_k MB"] - libraries} for row in rows]
    figure, axes = plt.subplots(2, 2, figsize=(9, 7), sharex=True)
    for ax, what in zip(axes.flat, (*MEASURED, "MB"), strict=True):
        for d, colour in ((2, "C0"), (3, "C1")):
            for graph, style in zip(GRAPHS, ("-", "--"), strict=True):
                chosen = pick(rows, graph, d)
                n = np.array([row["n"] for row in chosen])
                slope, level = fit(chosen, what)
                label = f"{graph}, {d}-D: $n^{{{slope:.2f}}}$"
                ax.loglog(n, np.exp(level) * n**slope, style, color=colour, lw=1, label=label)
                ax.loglog(n, [row[what] for row in chosen], "o", color=colour, ms=4)
        memory = f"peak memory of select_k, beyond {libraries:.0f} MB"
        ax.set_title(memory if what == "MB" else what)
        ax.set_ylabel("MB" if what == "MB" else "seconds")
        ax.legend(fontsize=8)
    for ax in axes[1]:
        ax.set_xlabel("points n")
    figure.tight_layout()
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / "scale.png", dpi=120)


def million() -> None:
    """A million points: what it takes."""
    row = measure_apart(1_000_000, 2, 5, "symmetric", False)
    print(
        f"n=1,000,000, 2-D, k_max=5: {row['select_k']:.0f} s of which {row['neighbors']:.1f} s "
        f"ranking, {row['select_k MB'] / 1024:.1f} GB at the peak, k={row['k']}"
    )
    save("million", row)


def processes() -> None:
    """The all-k curve at n = 1,000: one process on one thread, two processes, the default call."""
    X, y = make_data(1_000, 5)

    def alone() -> None:
        with limit_threads(1):
            mksknn.evidence_curve(X, y)

    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        mksknn.evidence_curve(X[:150], y[:150], executor=pool)  # start the workers
        times = best_times(1, alone=alone) | best_times(
            2,
            two=lambda: mksknn.evidence_curve(X, y, executor=pool),
            default=lambda: mksknn.evidence_curve(X, y),
        )
    print(times)
    rows = [
        verdict(
            "one process on one thread / two processes", times["alone"] / times["two"], None, 1.6
        ),
        verdict("default call / two processes", times["default"] / times["two"], at_most=1.0),
    ]
    save("processes", rows)


PAGE = """# How cost grows

*Written by `benchmarks/scale.py --page` from measurements on {cores} cores of {machine}.*

A call costs a ranking and some determinants. What each depends on:

| quantity | ranking | determinants |
|---|---|---|
| points n | a k-d tree in few dimensions: about n log n; otherwise all pairs, n² | measured below |
| dimensions d | the tree up to 8, all pairs beyond | through the fill: larger separators |
| k_max | n k_max numbers to hold | each k has its own graph; the factor grows with k |
| ratios r tried | none | dense: next to nothing; sparse: a factorization each |
| classes J, outputs m | none | none: the determinant is only raised to the power m |

The search over r takes 6 or 7 factorizations for a k whose neighbour is known and 9 from nothing;
three are enough to show that a k is not the best ([](theory.md)).

## Dense graphs

Up to 600 points, and wherever the graph fills in, a k costs one reduction to tridiagonal form,
(4/3) n³ multiplications and additions, whatever the number of r. `select_k` inverts some 5 to 20
matrices instead of reducing n - 1 of them.

## Sparse graphs

Points from a normal distribution, two classes with one label in ten wrong, k_max = 20. Seconds,
and the process's peak memory, of which {base:.0f} MB are Python and the libraries:

{table}

![Time and memory against n]({figure})

Powers of n fitted to these times, the smallest n left out:

{exponents}

At n = 100,000 in the plane, on the symmetric graph, `select_k` took {ordered:.1f} times as long as
scikit-sparse takes to order (METIS) and factorize the one matrix of k = 20, and {numeric:.0f} times
as long as the numeric factorization alone.

{million}

## What a cluster buys

The k of an `evidence_curve` do not depend on each other. At n = 1,000 and all k, {processes}
A cluster of w workers divides a sweep by nearly w as long as there are many more k than workers.
See [](howto/cluster.md).

## Where exact stops being affordable

In the plane the factor of a k-NN graph has about n log n entries and takes n^1.5 operations; in
space n^1.33 and n²; from 5 or 6 dimensions on it is nearly full. A factor takes 12 bytes an entry
and a dense matrix 8 n². So on a machine like this one:

- in the plane: a million points at small k, some hundred thousand at k = 20;
- in space: a hundred thousand, minutes for a selection;
- in many dimensions: ten to twenty thousand, where an n x n matrix takes 0.8 to 3.2 GB.

Before a factorization that does not fit, mksknn raises an error that names the gigabytes and what
to lower. `loo_curve` and `select_k(criterion="loo")` factorize nothing and go on from there.
"""


def write_page() -> None:
    """docs/scale.md and its figure."""
    import os
    import platform

    def load(name: str):
        return json.loads((RESULTS / f"{name}.json").read_text())

    scale, pair, million = load("scale"), load("processes"), load("million")
    columns = {
        "n": "n",
        "d": "d",
        "graph": "graph",
        "neighbors": "ranking",
        "select_k": "select_k",
        "evidence_curve": "evidence_curve",
        "numeric factorization": "one factorization, k = 20",
        "select_k MB": "MB, select_k",
        "k": "best k",
    }
    rows = sorted(scale["rows"], key=lambda row: (row["d"], row["graph"] != "symmetric", row["n"]))
    shown = [[show(row[name]) for name in columns] for row in rows]
    powers = [
        [where, *(f"{slope:.2f}" for slope in slopes.values())]
        for where, slopes in scale["exponents"].items()
    ]
    ordered, numeric = (goal["ratio"] for goal in scale["goals"][:2])
    two, default = (goal["ratio"] for goal in pair)
    text = PAGE.format(
        cores=os.cpu_count(),
        machine=f"a {platform.machine()} machine",
        base=min(row["neighbors MB"] for row in scale["rows"]),
        table=table(list(columns.values()), shown),
        figure="_static/scale.png",
        exponents=table(["graph", *MEASURED], powers),
        ordered=ordered,
        numeric=numeric,
        million=(
            f"A million points in the plane with k_max = 5 took {million['select_k']:.0f} s, of "
            f"which {million['neighbors']:.1f} s ranking, and {million['select_k MB'] / 1024:.1f} "
            f"GB; one factorization at k = 5 takes {million['numeric factorization']:.1f} s there."
        ),
        processes=(
            f"two processes were {two:.2f} times as fast as one process on one thread, and the "
            f"default call, on threads, took {default:.2f} times as long as the two processes."
        ),
    )
    docs = RESULTS.parents[1] / "docs"
    (docs / "scale.md").write_text(text)
    (docs / "_static" / "scale.png").write_bytes((RESULTS / "scale.png").read_bytes())


def show(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--processes", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--plot", action="store_true", help="only the figure, from stored results")
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
    elif arguments.plot:
        plot(json.loads((RESULTS / "scale.json").read_text())["rows"])
    else:
        goals()
