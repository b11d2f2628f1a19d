"""How time and memory grow with n, d, J and k_max: the figures and tables of docs/scale.md.

python benchmarks/scale.py                 all parts, the last of them a million points
python benchmarks/scale.py n dense         these parts only
python benchmarks/scale.py --page          docs/scale.md from what is stored

Each call has a process of its own, so that its peak memory is its own, and is made once after the
kernels were compiled on fewer points. No k_max unless it is named: the best of all k is found.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
from sets import border
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from timing import (
    RESULTS,
    THREADS,
    best_times,
    costs,
    exponent,
    run,
    size,
    timed_apart,
    verdict,
    wall,
)

import mksknn
from mksknn._threads import limit_threads

SIZES = (1_000, 3_162, 10_000, 31_623, 100_000)
GRAPHS = ("symmetric", "mutual")
PATIENCE = 900.0  # seconds


def blobs(n: int, d: int, J: int) -> tuple[np.ndarray, np.ndarray]:
    """J classes of normal points that overlap."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, J, n)
    return rng.normal(size=(J, d))[y] * 2.0 + rng.normal(size=(n, d)), y


def measure(call: str, data: str, given: str = "", **about) -> dict:
    """One row; `data` is a call of this module or of `sets` for n points."""
    n = about["n"]
    small = data.replace(str(n), str(min(n, 1_500)), 1)
    setup = f"from scale import *; X, y = {small}; mksknn.{call}(X, y{given}); X, y = {data}"
    try:
        row = about | timed_apart(setup, f"mksknn.{call}(X, y{given})", timeout=PATIENCE)
    except (RuntimeError, subprocess.TimeoutExpired) as why:
        row = about | {"failed": str(why)}
    print(f"   {call}: {row}", flush=True)
    return row


def growth(rows: list[dict], over: str, skip: int = 0) -> dict:
    """Rows with the power of `over` that their times grow with."""
    kept = [row for row in rows if "seconds" in row][skip:]
    found = {"rows": rows}
    if len(kept) > 1:
        found["exponent"] = exponent([row[over] for row in kept], [row["seconds"] for row in kept])
        print(f"   grows with {over}^{found['exponent']:.2f}", flush=True)
    return found


def with_n() -> dict:
    """All k on sparse graphs, from a thousand points to a hundred thousand."""
    found = {}
    for d, most in ((2, 100_000), (3, 31_623)):
        sizes = size([n for n in SIZES if n <= most], (1_000, 3_162), (60, 90))
        for graph in GRAPHS:
            given = f", graph={graph!r}"
            rows = [
                measure("select_k", f"border({n}, {d})", given, n=n, d=d, graph=graph)
                for n in sizes
            ]
            found[f"{graph}, {d}-D"] = growth(rows, "n", skip=1)
    return found


def grid() -> dict:
    """scikit-learn's search over k = 1..60 with ten folds, and ours over the same k; ours over all
    k beside them at the largest size.
    """
    largest = size(60, 60, 5)
    search = GridSearchCV(
        KNeighborsClassifier(), {"n_neighbors": range(1, largest + 1)}, cv=10, n_jobs=THREADS
    )
    theirs, ours = [], []
    for n in size(SIZES, (1_000, 3_162), (60, 90)):
        X, y = border(n, 2)
        search.fit(X[: size(200, 200, 50)], y[: size(200, 200, 50)])  # starts the workers
        mksknn.select_k(X[:1_500], y[:1_500], k_max=largest)
        calls = {
            "theirs": functools.partial(search.fit, X, y),
            "ours": functools.partial(mksknn.select_k, X, y, k_max=largest),
        }
        found = costs(3 if n < 5_000 else 1, **calls)
        theirs.append({"n": n, "d": 2, **found["theirs"]._asdict()})
        ours.append({"n": n, "d": 2, **found["ours"]._asdict()})
        print(f"   GridSearchCV: {theirs[-1]}, select_k: {ours[-1]}", flush=True)
    mksknn.select_k(X[:1_500], y[:1_500])
    every = costs(1, call=lambda: mksknn.select_k(X, y))["call"]
    plane, peer = f"the plane, n={n:,}: mksknn", f"GridSearchCV over 1..{largest}"
    both = {f"select_k, {plane}": every, f"select_k over 1..{largest}, {plane}": found["ours"]}
    rows = [
        verdict(
            f"{what} / {peer}", one.seconds / found["theirs"].seconds, sides=(one, found["theirs"])
        )
        for what, one in both.items()
    ]
    return growth(theirs, "n", skip=1) | {"same k": growth(ours, "n", skip=1), "largest": rows}


def curve() -> dict:
    """The whole curve up to k = 20, against one factorization at k = 20."""
    found = {}
    sizes = size(SIZES[:-1], (1_000, 3_162), (60, 90))
    for d in (2, 3):
        rows = []
        for n in sizes:
            given = ", k_max=20"
            rows.append(measure("evidence_curve", f"border({n}, {d})", given, n=n, d=d))
        found[f"symmetric, {d}-D"] = growth(rows, "n", skip=1)
    return found


def dense() -> dict:
    """All k in ten dimensions, where graphs fill in."""
    sizes = size((1_000, 2_000, 4_000, 8_000), (500, 1_000), (60, 90))
    return growth([measure("select_k", f"border({n}, 10)", n=n, d=10) for n in sizes], "n", skip=1)


def with_d() -> dict:
    n = size(3_000, 800, 60)
    ds = size((2, 5, 10, 20, 50, 100), (2, 10), (2, 3))
    return growth([measure("select_k", f"border({n}, {d})", n=n, d=d) for d in ds], "d")


def with_classes() -> dict:
    n = size(2_000, 500, 60)
    js = size((2, 4, 8, 16, 32, 64), (2, 8), (2, 3))
    return growth([measure("select_k", f"blobs({n}, 5, {J})", n=n, d=5, J=J) for J in js], "J")


def with_k_max() -> dict:
    """The curve, which evaluates every k it is asked for; select_k does not."""
    n = size(5_000, 1_000, 60)
    found = {}
    for call in ("evidence_curve", "select_k"):
        rows = [
            measure(call, f"border({n}, 2)", f", k_max={k}", n=n, d=2, k_max=k)
            for k in size((5, 10, 20, 40, 80), (5, 20), (5, 10))
        ]
        found[call] = growth(rows, "k_max")
    return found


def million() -> dict:
    """What it takes."""
    n = size(1_000_000, 20_000, 90)
    row = measure("select_k", f"border({n}, 2)", ", k_max=5", n=n, d=2, k_max=5)
    X = border(n, 2)[0]
    mksknn.neighbors(X[:2_000], 5)
    return row | {"neighbors": wall(lambda: mksknn.neighbors(X, 5))}


def processes() -> list[dict]:
    """The all-k curve at n = 1,000: one process on one thread, two processes, the default call."""
    X, y = border(size(1_000, 400, 60), 5)

    def alone() -> None:
        with limit_threads(1):
            mksknn.evidence_curve(X, y)

    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        mksknn.evidence_curve(X[:150], y[:150], executor=pool)  # start the workers
        times = best_times(1, alone=alone) | best_times(
            size(2, 1, 1),
            two=lambda: mksknn.evidence_curve(X, y, executor=pool),
            default=lambda: mksknn.evidence_curve(X, y),
        )
    ratio = times["alone"] / times["two"]
    return [
        verdict("evidence_curve: one process on one thread / two processes", ratio, at_least=1.6),
        verdict(
            "evidence_curve: default / two processes", times["default"] / times["two"], at_most=1.0
        ),
    ]


# -------------------------------------------------------------------------------------------------
# The page

PAGE = """# How cost grows

*Written by `benchmarks/scale.py --page` from measurements on {cores} cores of {machine}, version
{version}, {date}.*

A call costs a ranking, bounds, and some determinants. What each depends on:

| quantity | ranking | bounds | determinants |
|---|---|---|---|
| points n | n log n by a tree in few dimensions, else n² | all pairs once, for all k | see below |
| dimensions d | the tree up to 8, all pairs beyond | none | through the fill: larger separators |
| k_max | n k_max numbers to hold | fewer k to rule out | of few k only |
| classes J, outputs m | none | little | none: the determinant is only raised to the power m |

`select_k` finds the best of **all** k here, unless a k_max is named. Bounds that need no
determinant rule out nearly all k ([](theory.md)); what is left are some factorizations near the
best k.

## How long will it take?

Find the nearest row; times are wall seconds, memory what the call adds at its peak.

**In the plane and in space**, two classes, one label in ten wrong:

{sparse}

**In ten dimensions**, where graphs fill in and LAPACK takes over:

{dense}

A call that will take minutes says what it is doing from the first second with `progress=True`.

{figure}

The powers of n, fitted without the smallest n: {powers}.

## The whole curve

`evidence_curve` evaluates every k it is asked for, so give it a k_max. Up to k = 20:

{curve}

## Dimensions, classes, k_max

{others}

{million}

## What a cluster buys

The k of an `evidence_curve` do not depend on each other. {processes}
More workers than two were not measured. See [](howto/cluster.md).

## Where exact stops being affordable

In the plane the factor of a k-NN graph has about n log n entries and takes $n^{{1.5}}$ operations;
in space $n^{{1.33}}$ and n²; from 5 or 6 dimensions on it is nearly full. A factor takes 12 bytes
an entry and a dense matrix 8 n². So on a machine like this one:

- in the plane: a million points with a small k_max, a hundred thousand over all k;
- in space: the tens of thousands of the table above;
- in many dimensions: ten to twenty thousand, where an n x n matrix takes 0.8 to 3.2 GB.

Before a factorization that does not fit, mksknn raises an error that names the gigabytes and what
to lower. `loo_curve` and `select_k(criterion="loo")` factorize nothing and go on from there.
"""


def write_page() -> None:
    """docs/scale.md; as it is if no growth with n is stored."""
    if page := make_page():
        (RESULTS.parents[1] / "docs" / "scale.md").write_text(page, encoding="utf-8")
    else:
        print("no growth with n is stored: python benchmarks/scale.py n")


def make_page() -> str:
    """The page from the stored parts; what else is not stored is left out."""
    from report import duration, figure, load, markdown, megabytes, part

    stored = (load("scale") or {"parts": {}})["parts"]
    parts = {name: one["found"] for name, one in stored.items()}
    if "n" not in parts:
        return ""
    about = stored["n"]["about"]

    def cells(row: dict) -> list[str]:
        if "failed" in row:
            return ["failed", "", ""]
        return [duration(row["seconds"]), megabytes(row["MB"]), f"{row.get('k', '')}"]

    def rows_of(rows: list[dict], *names: str) -> list[list[str]]:
        return [
            [f"{row[x]:,}" if x == "n" else str(row[x]) for x in names] + cells(row) for row in rows
        ]

    def powers(found: dict, over: str) -> str:
        return f"${over}^{{{found['exponent']:.2f}}}$" if "exponent" in found else ""

    sparse = [
        line for one in parts["n"].values() for line in rows_of(one["rows"], "n", "d", "graph")
    ]
    dense = rows_of(parts.get("dense", {"rows": []})["rows"], "n")
    if found := part("select_k", "every"):
        dense += [
            ["20,000", *cells(row)]
            for row in found
            if "20,000 x 10 /" in row["what"] and "MB" in row
        ]
    curves = [
        line for one in parts.get("curve", {}).values() for line in rows_of(one["rows"], "n", "d")
    ]
    named = {
        "d": ("dimensions", parts.get("d", {})),
        "J": ("classes", parts.get("J", {})),
        "k_max": ("k_max, `evidence_curve`", parts.get("k_max", {}).get("evidence_curve", {})),
    }
    others = [
        [words, f"{row['n']:,}", str(row[x]), *cells(row)[:2]]
        for x, (words, found) in named.items()
        for row in found.get("rows", [])
    ]
    grown = "; ".join(f"{where}: {powers(found, 'n')}" for where, found in parts["n"].items())
    return PAGE.format(
        cores=about["cores"],
        machine=f"a {about['machine']} machine",
        version=about["versions"].get("mksknn", ""),
        date=about["date"],
        sparse=markdown(["n", "d", "graph", "time", "memory", "best k"], sparse, right=3),
        dense=markdown(["n", "time", "memory", "best k"], dense, right=3) if dense else "",
        figure=figure("growth", "Time against n, d, J and k_max"),
        powers=grown,
        curve=markdown(["n", "d", "time", "memory"], [line[:-1] for line in curves], right=2),
        others=markdown(["with", "n", "value", "time", "memory"], others, right=2),
        million=_million(parts.get("million"), duration),
        processes=_processes(parts.get("processes")),
    )


def _million(row: dict | None, duration) -> str:
    if not row or "seconds" not in row:
        return ""
    return (
        f"A million points in the plane with k_max = 5 took {duration(row['seconds'])}, of which "
        f"{duration(row['neighbors'])} ranking, and {row['MB'] / 1024:.1f} GB."
    )


def _processes(rows: list[dict] | None) -> str:
    if not rows:
        return ""
    two, default = (row["ratio"] for row in rows)
    return (
        f"At n = 1,000 and all k, two processes were {two:.2f} times as fast as one process on one "
        f"thread, and the default call, on threads, took {default:.2f} times as long as the two."
    )


PARTS = {
    "n": with_n,
    "grid": grid,
    "curve": curve,
    "dense": dense,
    "d": with_d,
    "J": with_classes,
    "k_max": with_k_max,
    "processes": processes,
    "million": million,
}

if __name__ == "__main__":
    if "--page" in sys.argv:
        write_page()
    else:
        run("scale", __doc__, PARTS)
