"""Break one line in each kernel and each bound, and see that the tests notice.

    python tools/mutants.py [--list] [--only NAME] [--all-lines] [--quick] [--jobs 2]

Mutants are made of every function decorated with ``@kernel`` and of every function of the files in
`BOUNDS`: a term dropped, a sign or a factor turned round, a comparison off by one, or where none of
these can be, min for max, a line dropped, the other side of equals or the other answer. One for
each function, or with ``--all-lines`` every one there is. Each runs in a copy of the tree (with
``--jobs``, several at once) with the files that test its module: first the small ones, uncompiled
where the module has kernels, a few seconds, then, if those pass, all of them compiled, up to some
minutes. Tests that fail without any mutant do not count and are named; tests that never end count
as failed. The exit status is the number of mutants that survive both, at most 100.

A mutant that changes no answer (a block size, an order of work, a slack that is ample) is listed in
`EQUIVALENT` with the reason; one that is listed but no longer there ends the script.
"""

from __future__ import annotations

import argparse
import ast
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BOUNDS = ("_bounds", "_enclosures", "_quadrature", "_race", "_search", "_spectra", "_tails")

# Which files test a module first; all of tests/test_properties.py is tried for every one.
TESTS = {
    "_validation": ("test_neighbors",),
    "_bounds": ("test_bounds", "test_selection", "test_exactness"),
    "_enclosures": ("test_bounds", "test_race", "test_selection"),
    "_race": ("test_race", "test_selection", "test_exactness"),
    "_search": ("test_search", "test_selection"),
    "_tails": ("test_tails",),
    "_distances": ("test_neighbors", "test_queries"),
    "_order": ("test_neighbors", "test_queries"),
    "_products": ("test_neighbors", "test_queries"),
    "_tree": ("test_neighbors", "test_queries"),
    "_queries": ("test_queries", "test_prediction"),
    "_metrics": ("test_neighbors", "test_learning"),
    "_graphs": ("test_graphs", "test_evidence"),
    "_cholmod": ("test_sparse",),
    "_dense": ("test_determinants", "test_lapack", "test_evidence"),
    "_lapack": ("test_lapack",),
    "_inverse": ("test_inverse",),
    "_sparse": ("test_sparse", "test_determinants"),
    "_spectra": ("test_bounds", "test_search", "test_selection"),
    "_loo": ("test_loo",),
    "_votes": ("test_prediction",),
    "_quadrature": ("test_quadrature", "test_posterior"),
    "_learning": ("test_learning",),
    "_relevance": ("test_learning",),
}

# "module.function: change", or how that begins -> why no test can notice it
EQUIVALENT = {
    "_graphs._find_components: term dropped: left -= 1": "only ends the loop earlier",
    "_loo._branch_and_bound: term dropped: mass += f.w[c] * f.g[c]": "a bound whatever the scale",
    "_loo._highest: off by one: ends[c, _S] > best[_S]": "two ratios of equal score",
    "_bounds._foretold_peak: factor turned: start * _AROUND": "the factors are their own inverses",
    "_bounds.next: off by one: one.min() <= floor": "a bound equal to the floor to the last bit",
    "_bounds.next: off by one: min(two.min(), three.min()) <= floor": "as the one before",
    "_tree._to_box: term dropped: total += gap * gap": "boxes that seem nearer only cost time",
    "_tree._to_box: term dropped: total += gap": "boxes that seem nearer only cost time",
    "_tree._inside: off by one: x[c] > box[1, c]": "boxes are wider than what they must hold",
    "_tree._inside: off by one: x[c] < box[0, c]": "boxes are wider than what they must hold",
    "_tree._inside: answer turned: return False": "leaves looked at in vain only cost time",
    "_search._clip: off by one: v <= self.curve.place(low)": "an end to rounding is that end",
    "_search._clip: off by one: v >= self.curve.place(high)": "an end to rounding is that end",
    "_search._beside: sign turned: v[:, None] - self.curve.v": "the other side of a peak",
    "_search._ceiling: sign turned: self.lower + 0.5 * self._tolerance": "cells split further",
    "_search._bracket: sign turned: v + step": "the second value on the other side of the first",
    "_search._beside: sign turned: self.curve.place(peak) + np.array([-_ASIDE": "both sides anyway",
    "_tails._sum_pairs: sign turned: bins + 1.0": "memory foretold, two numbers a point",
    "_enclosures.enclose_opened: off by one: floor > -math.inf": "no bound is as low as that",
    "_race.favourite: off by one: step > 1": "a step of none looks at no other",
    "_race._bound_tail: off by one: self.upper > 0": "asked of infinite ones only",
    "_spectra._place: sign turned: self._scale * nodes - 1.0": "the same cubics in another basis",
}

ORDER = (
    *("term dropped", "sign turned", "factor turned", "off by one"),
    *("other end", "line dropped", "other side", "answer turned"),  # of functions without these
)
TURNED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
OTHER = {"min": "max", "max": "min"}
MOVED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}


@dataclass(frozen=True)
class Mutant:
    """One changed file: what is done to a node of a function."""

    module: str
    function: ast.FunctionDef
    at: int  # of its `_body`
    node: ast.AST
    change: str

    @property
    def name(self) -> str:
        """How it is shown, and found in `EQUIVALENT`."""
        return f"{self.module}.{self.function.name}: {self.change}: {ast.unparse(self.node)[:60]}"

    @property
    def source(self) -> str:
        """The file with the change in it."""
        tree = ast.parse(_path(self.module).read_text())
        place = self.function.name, self.function.lineno
        twin = next(one for one in _defined(tree) if (one.name, one.lineno) == place)
        apply(_body(twin)[self.at], self.change)
        return ast.unparse(tree)


def _path(module: str) -> Path:
    return ROOT / "mksknn" / f"{module}.py"


def _defined(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def functions(module: str, tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """The functions to break."""
    for node in _defined(tree):
        names = [one.id for one in node.decorator_list if isinstance(one, ast.Name)]
        if "kernel" in names or module in BOUNDS:
            yield node


def changes(node: ast.AST) -> Iterator[str]:
    """Names of what can be done to a node; `apply` does it."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add | ast.Sub):
        yield "term dropped"
        yield "sign turned"
    elif isinstance(node, ast.BinOp) and type(node.op) in (ast.Add, ast.Sub):
        yield "sign turned"
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in MOVED:
        yield "off by one"
    elif isinstance(node, ast.BinOp) and type(node.op) in TURNED:
        yield "factor turned"
    elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in OTHER:
        yield "other end"
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "np.searchsorted":
        yield "other side"
    elif isinstance(node, ast.Return) and getattr(node.value, "value", None) in (True, False):
        yield "answer turned"
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        yield "line dropped"
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "line dropped"


def apply(node: ast.AST, change: str) -> None:
    """Change a node in place."""
    if change == "term dropped":
        node.value = ast.Constant(0)
    elif change == "off by one":
        node.ops[0] = MOVED[type(node.ops[0])]()
    elif change == "other end":
        node.func.id = OTHER[node.func.id]
    elif change == "other side":
        right = any(ast.unparse(one) == "side='right'" for one in node.keywords)
        node.keywords = [ast.keyword("side", ast.Constant("left" if right else "right"))]
    elif change == "answer turned":
        node.value = ast.Constant(not node.value.value)
    elif change == "line dropped":
        node.value = node.targets[0] if isinstance(node, ast.Assign) else ast.Constant(None)
    else:
        node.op = TURNED[type(node.op)]()


def mutants(every: bool) -> Iterator[Mutant]:
    """All of them, file by file; of each function the first change that is no equivalent one."""
    unused = set(EQUIVALENT)
    for path in sorted((ROOT / "mksknn").glob("_*.py")):
        for function in functions(path.stem, ast.parse(path.read_text())):
            wanted = True
            for at, node in enumerate(_body(function)):
                one = Mutant(path.stem, function, at, node, next(changes(node)))
                same = {name for name in EQUIVALENT if one.name.startswith(name)}
                unused -= same
                if wanted and not same:
                    yield one
                    wanted = every
    if unused:
        raise SystemExit("EQUIVALENT names what is not there: " + "; ".join(sorted(unused)))


def _body(function: ast.FunctionDef) -> list[ast.AST]:
    """The nodes of a function but not of those inside it, sums before comparisons, lines last."""
    nodes, waiting = [], list(reversed(function.body))
    while waiting:
        node = waiting.pop()
        nodes.append(node)
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            waiting += reversed(list(ast.iter_child_nodes(node)))
    able = [node for node in nodes if any(changes(node))]
    return sorted(able, key=lambda node: ORDER.index(next(changes(node))))


def ways_of(mutant: Mutant, quick: bool) -> tuple[str, ...]:
    """How its tests are run: where there is no kernel, nothing has to be compiled anew."""
    first = "uncompiled" if "@kernel" in _path(mutant.module).read_text() else "small"
    return (first,) if quick else (first, "compiled")


class Copy:
    """A copy of the tree, compiled kernels included, for one mutant at a time."""

    def __init__(self, folder: Path, whole: Path) -> None:
        self.folder, self._whole = folder, whole
        shutil.copytree(whole, folder)

    def change(self, mutant: Mutant | None) -> None:
        """The package with this mutant in it; None: as it is."""
        package = self.folder / "mksknn"
        shutil.rmtree(package)  # also what was compiled from another mutant
        shutil.copytree(self._whole / "mksknn", package)
        if mutant is not None:
            (package / f"{mutant.module}.py").write_text(mutant.source)


def caught(mutant: Mutant, tree: Copy, ways: tuple[str, ...]) -> str | None:
    """Which run of tests fails with it, and in which test; None if it survives."""
    names = (*TESTS[mutant.module], "test_properties")
    files = [f"tests/{name}.py" for name in names]
    for how in ways:
        while True:
            tree.change(mutant)
            failed = _first_failure(tree.folder, [*_left_out(how), *files], how)
            if failed is None:
                break
            tree.change(None)
            if not _fails_anyway(tree.folder, failed, how):
                return f"{how:10} {failed.removeprefix('tests/')}"
    return None


# Tests that fail without any mutant, for each way to run them; and those that do not.
_FAILING: dict[str, dict[str, bool]] = {"uncompiled": {}, "small": {}, "compiled": {}}


def _left_out(how: str) -> list[str]:
    return [f"--deselect={test}" for test, fails in _FAILING[how].items() if fails]


def _fails_anyway(folder: Path, test: str, how: str) -> bool:
    """Whether a test fails without a mutant too; looked at once, and named."""
    known = _FAILING[how]
    if test not in known:
        known[test] = "::" in test and _first_failure(folder, [test], how) is not None
        if known[test]:
            print(f"not counted, fails {how} without a mutant: {test}", flush=True)
    return known[test]


# Seconds of computing, and on the clock, after which tests that have not ended are taken to have
# failed. Without mutants the small ones of a module compute for 12 at most, all of them compiled
# for 80; a mutant's kernels are compiled anew, and others may use the machine.
_PATIENCE = {"uncompiled": (60, 300), "small": (60, 300), "compiled": (400, 1200)}

_MOST_MEMORY = 6_000_000  # kilobytes: a panel that is halved for ever would take all there are


def _first_failure(folder: Path, arguments: list[str], how: str) -> str | None:
    """The first test in the copy that fails, or what else went wrong; None if all pass."""
    computing, waiting = _PATIENCE[how]
    limits = f"ulimit -t {computing}; ulimit -v {_MOST_MEMORY} 2>/dev/null"
    command = ["sh", "-c", f'{limits}; exec "$@"', "sh"]
    command += [sys.executable, "-m", "pytest", "-q", "-x", "-rfE", "-p", "no:cacheprovider"]
    command += ["--hypothesis-profile=first"]  # to look for the smallest example took a minute
    # bytecode is told apart by size and second only
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    if how != "compiled":
        command += ["-m", "uncompiled"]
    if how == "uncompiled":
        environment["NUMBA_DISABLE_JIT"] = "1"
    try:
        run = subprocess.run(
            [*command, *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            env=environment,
            timeout=waiting,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "no end, waiting"
    if run.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return "no end, computing"
    if run.returncode in (0, 5):  # 5: no test of these files carries the mark
        return None
    found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", run.stdout, re.MULTILINE)
    return found.group(1) if found else "no report"


def main() -> int:
    """Make them, run them, and report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--list", action="store_true", help="only list the mutants")
    parser.add_argument("--only", default="", help="those whose name contains this")
    parser.add_argument("--all-lines", action="store_true", help="every change, not one a function")
    parser.add_argument("--quick", action="store_true", help="only the small tests")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at once")
    given = parser.parse_args()
    chosen = [one for one in mutants(given.all_lines) if given.only in one.name]
    if given.list:
        print("\n".join(one.name for one in chosen))
        print(f"{len(chosen)} mutants")
        return 0
    survivors, begin = [], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mksknn-mutants-") as temporary:
        whole, trees = Path(temporary, "whole"), queue.SimpleQueue()
        for part in ("mksknn", "tests"):
            shutil.copytree(ROOT / part, whole / part)
        for part in ("setup.cfg", "pyproject.toml"):
            shutil.copy(ROOT / part, whole / part)
        for job in range(given.jobs):
            trees.put(Copy(Path(temporary, str(job)), whole))

        def run(one: Mutant) -> tuple[str | None, float]:
            tree, begin = trees.get(), time.monotonic()
            try:
                return caught(one, tree, ways_of(one, given.quick)), time.monotonic() - begin
            finally:
                trees.put(tree)

        with ThreadPoolExecutor(given.jobs) as pool:
            for at, (one, (by, took)) in enumerate(zip(chosen, pool.map(run, chosen), strict=True)):
                print(f"{at + 1}/{len(chosen)} {one.name}", flush=True)
                print(f"    {took:.0f} s: {by or 'SURVIVED'}", flush=True)
                if by is None:
                    survivors.append(one)
    took = time.monotonic() - begin
    print(f"{len(chosen)} mutants, {len(survivors)} survived, {took / 60:.1f} minutes")
    for one in survivors:
        print(f"  {one.name} (mksknn/{one.module}.py:{one.node.lineno})")
    return min(len(survivors), 100)


if __name__ == "__main__":
    sys.exit(main())
