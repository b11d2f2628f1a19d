"""What a new process pays: the import, the first call ever, the first call of a later process.

python benchmarks/startup.py
"""

from __future__ import annotations

import compileall
import re
import tempfile
from pathlib import Path

from timing import apart, run, size, verdict

README = Path(__file__).parents[1] / "README.md"


def seconds(code: str, environment: dict | None = None, runs: int = 1) -> float:
    """Of some code in a new process, the best of some runs."""
    timed = f"import time; t = time.perf_counter()\n{code}\nprint(time.perf_counter() - t)"
    return min(apart(timed, environment) for _ in range(runs))


def imports() -> list[dict]:
    runs = size(5, 2, 1)
    # as an installed package has it, and as those compared with are
    compileall.compile_dir(README.parent / "mksknn", quiet=2)
    needed = seconds("import numba, scipy.sparse, scipy.linalg", runs=runs)
    ratio = seconds("import mksknn", runs=runs) / needed
    return [verdict("import mksknn / import numba, scipy.sparse, scipy.linalg", ratio, at_most=1.3)]


def example() -> dict:
    """The README's example, import included: with an empty cache and with a full one."""
    code = re.search(r"^```python\n(.*?)^```", README.read_text("utf-8"), re.M | re.S).group(1)
    needed = seconds("import numba, scipy.sparse, scipy.linalg", runs=size(3, 1, 1))
    if size(False, False, True):  # compiling takes longer than a test should
        code = "import mksknn"
    with tempfile.TemporaryDirectory() as empty:
        first = seconds(code, {"NUMBA_CACHE_DIR": empty})
        later = seconds(code, {"NUMBA_CACHE_DIR": empty}, runs=3)
    rows = [
        verdict("README's example, empty cache: seconds", first, at_most=8),
        verdict(
            "README's example, full cache / importing numba and scipy", later / needed, at_most=3
        ),
    ]
    return {"rows": rows, "first use": {"cold": first, "warm": later}}


if __name__ == "__main__":
    run("startup", __doc__, {"imports": imports, "example": example})
