"""What a new process pays: the import, the first call ever, the first call of a later process.

python benchmarks/startup.py
"""

from __future__ import annotations

import compileall
import re
import tempfile
from pathlib import Path

import numpy as np
from timing import apart, run, size, verdict

README = Path(__file__).parents[1] / "README.md"


NEEDED = "import numba, scipy.sparse, scipy.linalg"


def seconds(code: str, environment: dict | None = None, runs: int = 1) -> float:
    """Of some code in a new process, the best of some runs."""
    timed = f"import time; t = time.perf_counter()\n{code}\nprint(time.perf_counter() - t)"
    return min(apart(timed, environment) for _ in range(runs))


def deep(code: str, calls: int) -> str:
    """The same, within so many calls of a function."""
    return f"def go(calls): go(calls - 1) if calls else exec({code!r})\ngo({calls})"


def imports() -> list[dict]:
    """The median over open calls at the time, of which Python 3.11 takes up to 50 ms more for some:
    the end of a chunk of its stack may lie where a package is read, and every call there maps and
    unmaps memory.
    """
    # as an installed package has it, and as those compared with are
    compileall.compile_dir(README.parent / "mksknn", quiet=2)
    found = []
    for calls in range(size(20, 2, 1)):
        # in turns: with five runs of the one after five of the other, the ratio was 1.17 to 1.39
        codes = [deep(code, calls) for code in (NEEDED, "import mksknn")]
        found.append([seconds(code) for code in codes])
    needed, ours = np.median(found, axis=0)
    print(f"   {needed:.3f} s, with mksknn {ours:.3f} s")
    what = "import mksknn / import numba, scipy.sparse, scipy.linalg"
    return [verdict(what, ours / needed, at_most=1.3)]


def example() -> dict:
    """The README's example, import included: with an empty cache and with a full one."""
    code = re.search(r"^```python\n(.*?)^```", README.read_text("utf-8"), re.M | re.S).group(1)
    needed = seconds(NEEDED, runs=size(5, 1, 1))
    if size(False, False, True):  # compiling takes longer than a test should
        code = "import mksknn"
    with tempfile.TemporaryDirectory() as empty:
        first = seconds(code, {"NUMBA_CACHE_DIR": empty})
        later = seconds(code, {"NUMBA_CACHE_DIR": empty}, runs=size(5, 1, 1))
    rows = [
        verdict("README's example, empty cache: seconds", first, at_most=8),
        verdict(
            "README's example, full cache / importing numba and scipy", later / needed, at_most=3
        ),
    ]
    return {"rows": rows, "first use": {"cold": first, "warm": later}}


if __name__ == "__main__":
    run("startup", __doc__, {"imports": imports, "example": example})
