"""Sweep the evidence over k on a Dask cluster.

    python examples/distributed.py                       two worker processes on this machine
    python examples/distributed.py --scheduler tcp://HOST:8786   a cluster that is running already

The data and their neighbour lists travel once to each worker; the answer is the one that a single
process gives, to the last bit.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

# This file has the name of the package that it imports: keep its folder out of the way.
HERE = Path(__file__).resolve().parent
sys.path[:] = [folder for folder in sys.path if Path(folder or ".").resolve() != HERE]

import numpy as np  # noqa: E402
from distributed import Client, LocalCluster  # noqa: E402

import mksknn  # noqa: E402


def make_data(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Points in the plane, and a smooth function of them with noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    return X, np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n)


def sweep(client: Client, n: int) -> None:
    """The same curve by the cluster and by this process."""
    X, y = make_data(n)
    start = time.perf_counter()
    curve = mksknn.evidence_curve(X, y, executor=client, progress=True)
    print(f"on the cluster:  {curve}  {time.perf_counter() - start:.1f} s")
    start = time.perf_counter()
    here = mksknn.evidence_curve(X, y)
    print(f"in this process: {here}  {time.perf_counter() - start:.1f} s")
    print("equal:", bool(np.array_equal(curve.log_evidence, here.log_evidence)))


def main() -> None:
    """Connect to a scheduler, or start a cluster of processes here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scheduler", help="address of a running scheduler")
    parser.add_argument("--small", action="store_true", help="a few seconds, for tests")
    arguments = parser.parse_args()
    n = 120 if arguments.small else 800
    if arguments.scheduler:
        with Client(arguments.scheduler) as client:
            sweep(client, n)
        return
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        sweep(client, n)


if __name__ == "__main__":  # worker processes import this file
    main()
