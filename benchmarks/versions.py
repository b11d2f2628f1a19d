"""This version against an older one, in one run: has anything become slower?

    python benchmarks/versions.py               against the first round of this project
    BEFORE=v1.0 python benchmarks/versions.py   against another commit, branch or tag

The older files are taken from git into a temporary folder. New processes of both versions take
turns; each makes a call once to compile and to warm up, then several times, and the best counts.
Both rank, select and predict the same points, by calls that both versions know.
"""

from __future__ import annotations

import functools
import io
import os
import subprocess
import tarfile
import tempfile
from pathlib import Path

from timing import RESULTS, Missing, run, size, timed_apart, verdict

BEFORE = os.environ.get("BEFORE", "2530024")
GOAL = 1.05
ROUNDS = size(5, 1, 1)
# the data of sets.py, without what else that imports
POINTS = """
def points(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=({n}, {d}))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] > 0
    return X, np.where(rng.random({n}) < 0.1, ~y, y)

X, y = points(0)
"""


@functools.cache
def older() -> tempfile.TemporaryDirectory:
    """A folder with the package as it was; it goes when this process ends."""
    command = ["git", "archive", "--format=tar", BEFORE, "mksknn"]
    try:
        done = subprocess.run(command, capture_output=True, cwd=RESULTS.parents[1])
    except FileNotFoundError:
        raise Missing("git is missing, and with it the version to compare with") from None
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip()
        raise Missing(f"git has no mksknn of {BEFORE} here (a whole clone has): {reason}")
    folder = tempfile.TemporaryDirectory()
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder.name)
    return folder


def compare(call: str, n: int, d: int, repeats: int, sets: int = 1) -> dict:
    """Seconds of a call of mksknn by both versions, at the same points or several sets of them."""
    trees = {"now": None, "before": Path(older().name)}
    code, setup = f"mksknn.{call}", POINTS.format(n=n, d=d)
    if sets > 1:
        code = f"[{code} for X, y in several]"
        setup += f"several = [points(seed) for seed in range({sets})]"
    setup += f"\nmore['file'] = mksknn.__file__\n{code}"
    # with --smallest compiling would take most of the time
    environment = size(None, None, {"NUMBA_DISABLE_JIT": "1"})
    best = dict.fromkeys(trees, float("inf"))
    for _ in range(ROUNDS):
        for name, tree in trees.items():
            found = timed_apart(setup, code, repeats, environment=tree and environment, root=tree)
            expected = tree or RESULTS.parents[1]
            if Path(found["file"]).resolve().parents[1] != expected.resolve():
                raise RuntimeError(f"{name}: {found['file']} was imported, not {expected}")
            best[name] = min(best[name], found["seconds"])
    shape = f"{n:,} x {d}" if sets == 1 else f"{sets} sets of {n:,} x {d}"
    row = verdict(f"{call}, {shape}: now / {BEFORE}", best["now"] / best["before"], GOAL)
    return row | best


def selection() -> list[dict]:
    few, some, many = size((200, 1_000, 10_000), (200, 500, 3_000), (12, 14, 16))
    return [
        # Of so few points how many k are evaluated is luck: 8 for 5 on the first of these sets,
        # where this version takes 1.5 times as long.
        compare("select_k(X, y)", few, 4, 5, sets=size(20, 5, 2)),
        compare("select_k(X, y)", some, 10, 5),
        compare("select_k(X, y, graph='mutual')", some, 10, 5),
        compare(f"select_k(X, y, k_max={size(20, 20, 4)})", many, 2, 3),
        compare("select_k(X, y, criterion='loo_log')", some, 10, 5),
    ]


def curves() -> list[dict]:
    few, some, many = size((300, 1_000, 3_000), (100, 300, 1_000), (12, 14, 16))
    return [
        compare("evidence_curve(X, y)", few, 4, 3),
        compare("evidence_curve(X, y, sigma0=1.0, sigma2=0.1)", few, 4, 3),
        compare(f"evidence_curve(X, y, k_max={size(15, 15, 4)})", many, 2, 3),
        compare("log_evidence(X, y, 5, sigma0=1.0, sigma2=0.1)", some, 10, 20),
        compare("loo_curve(X, y)", some, 10, 10),
    ]


def posteriors() -> list[dict]:
    dense, sparse = size((500, 2_000), (200, 1_000), (12, 16))
    return [
        compare("posterior(X, y)", dense, 10, 3),
        compare(f"posterior(X, y, k_max={size(15, 15, 4)})", sparse, 2, 3),
    ]


def predictions() -> list[dict]:
    n, sigmas = size(10_000, 2_000, 16), "sigma0=1.0, sigma2=0.1"
    return [
        compare("predict(X, y, X + 0.1, k=5, graph='knn')", n, 3, 5),
        compare(f"predict(X, y, X + 0.1, k=5, graph='mutual', {sigmas})", n, 3, 5),
        compare(f"predict(X, y, X + 0.1, k=5, graph='symmetric', {sigmas})", n, 3, 5),
    ]


def rankings() -> list[dict]:
    n, many = size((5_000, 100_000), (1_000, 10_000), (12, 16))
    return [
        compare("neighbors(X)", n, 10, 5),
        compare("neighbors(X, 10)", many, 2, 5),
        compare("neighbors(X, 10)", n, 20, 5),
        compare("knn_graph(X, 10, graph='symmetric')", n, 3, 10),
    ]


if __name__ == "__main__":
    parts = {
        "selection": selection,
        "curves": curves,
        "posteriors": posteriors,
        "predictions": predictions,
        "rankings": rankings,
    }
    run("versions", __doc__, parts)
