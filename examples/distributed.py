"""Sweep the evidence over k on a Dask cluster.

    python examples/distributed.py                       two worker processes on this machine
    python examples/distributed.py --scheduler tcp://HOST:8786   a cluster that is running already

The data and their neighbour lists travel once to each worker; the answer is the one that a single
process gives, to the last bit.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from pathlib import Path

# This file has the name of the package that it imports: keep its folder out of the way.
HERE = Path(__file__).resolve().parent
sys.path[:] = [folder for folder in sys.path if Path(folder or ".").resolve() != HERE]

import matplotlib  # noqa: E402

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
from distributed import Client, LocalCluster, get_task_stream  # noqa: E402

import mksknn  # noqa: E402


def make_data(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Points in the plane, and a smooth function of them with noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    return X, np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n)


def timed(function, *arguments, **options):
    """What a call returns, and the seconds it takes."""
    start = time.perf_counter()
    result = function(*arguments, **options)
    return result, time.perf_counter() - start


def sweep(client: Client, n: int, folder: Path) -> None:
    """The same curves by the cluster and by this process, and a figure of who did what."""
    X, y = make_data(n)
    workers = sorted(client.scheduler_info()["workers"])
    print(f"{n} points, every k from 1 to {n - 1}, {len(workers)} workers")
    # the first tasks of a process load what they need, or compile it: once, and not the sweep's
    _, cold = timed(mksknn.evidence_curve, X[:20], y[:20], executor=client)
    mksknn.evidence_curve(X[:20], y[:20])
    print(f"the workers are ready after {cold:.1f} s")
    fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    end = 0.0
    for colour, graph in (("C0", "mutual"), ("C1", "symmetric")):
        with get_task_stream(client) as stream:
            curve, there = timed(mksknn.evidence_curve, X, y, graph=graph, executor=client)
        again, here = timed(mksknn.evidence_curve, X, y, graph=graph)
        equal = bool(np.array_equal(curve.log_evidence, again.log_evidence))
        print(f"{graph}: best k = {curve.best_k}, log evidence {curve.log_evidence.max():.4f}")
        print(f"    {there:.1f} s on the cluster, {here:.1f} s in this process; equal: {equal}")
        mksknn.plot_curve(curve, left, label=graph)
        end = draw_tasks(right, stream.data, workers, colour, graph, end)
    left.set_title(f"the evidence of {n - 1} values of k")
    right.set_title("which worker was busy when")
    right.set_xlabel("seconds, one sweep after the other")
    right.set_yticks(range(len(workers)), [f"worker {i + 1}" for i in range(len(workers))])
    right.set_ylim(-0.6, len(workers) - 0.1)
    right.spines[["top", "right"]].set_visible(False)
    right.legend(frameon=False, loc="upper center", ncols=2)
    folder.mkdir(parents=True, exist_ok=True)
    fig.savefig(folder / "distributed.png", dpi=110)
    print(f"The evidence and the workers: {folder / 'distributed.png'}")


def draw_tasks(ax, tasks: list, workers: list, colour: str, label: str, at: float) -> float:
    """A bar for each task in the row of its worker, from `at` on; returns where the last ends."""
    done = [
        (workers.index(task["worker"]), part["start"], part["stop"])
        for task in tasks
        if task["worker"] in workers
        for part in task["startstops"]
        if part["action"] == "compute"
    ]
    rows, start, stop = np.array(done).T
    zero = start.min() - at
    ax.barh(rows, stop - start, 0.5, start - zero, color=colour, lw=0, label=label)
    return stop.max() - zero


def main() -> None:
    """Connect to a scheduler, or start a cluster of processes here."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scheduler", help="address of a running scheduler")
    parser.add_argument("--out", type=Path, default=Path("figures"), help="folder for the figure")
    parser.add_argument("--small", action="store_true", help="120 points instead of 300")
    options = parser.parse_args()
    n = 120 if options.small else 300
    if options.scheduler:
        with Client(options.scheduler) as client:
            sweep(client, n, options.out)
        return
    local = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    # on a busy machine processes take their time to end, which is not worth a warning
    with LocalCluster(**local, silence_logs=logging.ERROR) as cluster, Client(cluster) as client:
        sweep(client, n, options.out)


if __name__ == "__main__":  # worker processes import this file
    main()
