"""Timing shared by the benchmarks: interleaved, best of several, as ratios in one run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def best_times(repeats: int = 3, **calls: Callable[[], object]) -> dict[str, float]:
    """Best wall time of each call; the calls take turns, so that a slow spell hits them all."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def verdict(
    what: str,
    ratio: float,
    at_most: float | None = None,
    at_least: float | None = None,
    seconds: tuple[float, float] | None = None,
):
    """Print a ratio beside its goal and return a row for the results file.

    `seconds` are mksknn's and the peer's, for the comparisons that the README shows.
    """
    goal = f"<= {at_most}" if at_most is not None else f">= {at_least}"
    met = ratio <= at_most if at_most is not None else ratio >= at_least
    print(f"{what:<72} {ratio:9.2f}   goal {goal:<9} {'met' if met else 'MISSED'}", flush=True)
    row = {"what": what, "ratio": ratio, "goal": goal, "met": bool(met)}
    return row if seconds is None else row | {"ours": seconds[0], "theirs": seconds[1]}


def peak_memory(setup: str, call: str) -> float:
    """Megabytes that a call adds at its peak to what a fresh process had before it (Linux)."""
    code = f"""
import numpy as np, mksknn
from pathlib import Path
def resident(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024
{setup}
Path("/proc/self/clear_refs").write_text("5")
before = resident("VmRSS")
{call}
print(resident("VmHWM") - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


def save(name: str, rows: object) -> None:
    """Write a benchmark's rows to benchmarks/results/name.json."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(rows, indent=1) + "\n")
