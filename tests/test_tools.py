"""The tools that a release is tried with say what went wrong: soak, mutants, floors."""

import ast
import configparser
import importlib.util
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def tool(monkeypatch):
    """A function that imports a script of tools/."""

    def load(name):
        spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)  # dataclasses look there
        monkeypatch.setattr(sys, "path", list(sys.path))
        spec.loader.exec_module(module)
        return module

    return load


# ---------------------------------------------------------------- soak


def test_soak_finds_nothing_where_nothing_is_wrong(tool, monkeypatch):
    """A call of each kind; few points, for the literal answers take long."""
    soak = tool("soak")
    monkeypatch.setattr(soak, "points", lambda rng: rng.normal(size=(7, 2)))
    for check in soak.CHECKS:
        monkeypatch.setattr(soak, "CHECKS", (check,))
        assert soak.run_one(3) == (check.__name__, None)


def test_soak_prints_the_seed_of_what_went_wrong(tool, monkeypatch, capsys):
    soak = tool("soak")
    monkeypatch.setattr(soak.naive, "weights", lambda X, *_: X)
    monkeypatch.setattr(soak, "CHECKS", (soak.check_neighbors,))
    assert soak.main(0, 17) == 1
    out = capsys.readouterr().out
    assert "seed 17, check_neighbors:\n" in out and "AssertionError" in out
    assert out.endswith("1 findings\n")


@pytest.mark.parametrize(("grown", "findings"), [(1e6, 0), (1e9, 1)])
def test_soak_notices_memory_that_is_not_flat(tool, monkeypatch, capsys, grown, findings):
    soak = tool("soak")
    sizes = iter([2e8] * 10 + [2e8 + grown])
    monkeypatch.setattr(soak, "held", lambda: next(sizes))
    monkeypatch.setattr(soak, "run_one", lambda seed: ("nothing", None))
    assert soak.main(0, 1) == findings
    assert ("memory is not flat" in capsys.readouterr().out) == bool(findings)


def test_soak_takes_ten_minutes():
    makefile = (ROOT / "Makefile").read_text()
    assert "\nMINUTES ?= 10\n" in makefile
    assert re.search(r"^soak:.*\n\t.*tools/soak\.py \$\(MINUTES\)", makefile, re.MULTILINE)


# ---------------------------------------------------------------- mutants


def kernels_and_bounds(mutants):
    """(module, name, lines that can be broken) of all that is to be broken."""
    for path in sorted((ROOT / "mksknn").glob("_*.py")):
        for function in mutants.functions(path.stem, ast.parse(path.read_text())):
            yield path.stem, function.name, len(mutants._body(function))


def test_every_kernel_and_bound_has_a_mutant(tool):
    """Or nothing in it that can be broken, or a reason for each line why no test can notice it."""
    mutants = tool("mutants")
    broken = {(one.module, one.function.name) for one in mutants.mutants(False)}
    for module, name, lines in kernels_and_bounds(mutants):
        if (module, name) not in broken:
            excused = [one for one in mutants.EQUIVALENT if one.startswith(f"{module}.{name}: ")]
            assert lines <= len(excused), (module, name)
    decorated = [
        (path.stem, name)
        for path in (ROOT / "mksknn").glob("_*.py")
        for name in re.findall(r"^@kernel\ndef (\w+)", path.read_text(), re.MULTILINE)
    ]
    assert set(decorated) - broken == {("_tree", "_room")}  # empty arrays, no line to break


def test_every_mutant_changes_its_function_and_has_tests(tool):
    mutants = tool("mutants")
    seen = set()
    for one in mutants.mutants(False):
        for name in mutants.TESTS[one.module]:
            assert (ROOT / "tests" / f"{name}.py").exists()
        if (one.module, one.change) not in seen:  # each kind once in a file: all take seconds
            seen.add((one.module, one.change))
            plain = ast.parse((ROOT / "mksknn" / f"{one.module}.py").read_text())
            assert one.source != ast.unparse(plain)
            compile(one.source, one.module, "exec")
    assert {change for _, change in seen} >= {"term dropped", "sign turned", "off by one"}


def test_a_mutant_that_nobody_notices_survives(tool, monkeypatch):
    """What is noticed is a test that fails with the mutant in, and does not without it."""
    mutants = tool("mutants")
    one, inside = next(mutants.mutants(False)), []
    tree = types.SimpleNamespace(folder=ROOT, change=inside.append)

    def fails(folder, arguments, how):
        return "tests/test_x.py::test" if inside[-1] is one else None

    monkeypatch.setattr(mutants, "_first_failure", lambda *_: None)
    assert mutants.caught(one, tree, ("small", "compiled")) is None
    monkeypatch.setattr(mutants, "_first_failure", fails)
    assert mutants.caught(one, tree, ("small",)).endswith("test_x.py::test")


# ---------------------------------------------------------------- floors and coverage


def test_floors_are_the_lowest_versions_declared():
    out = subprocess.run(
        [sys.executable, ROOT / "tools/floors.py"], capture_output=True, text=True, check=True
    )
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    declared = config["options"]["install_requires"].split()
    assert out.stdout.split() == [one.replace(">=", "==") for one in declared]
    assert {one.partition("==")[0] for one in out.stdout.split()} >= {"numpy", "scipy", "numba"}


def test_coverage_asks_for_95_percent_with_kernels_uncompiled():
    makefile = (ROOT / "Makefile").read_text()
    lines = re.search(r"^coverage:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE).group(1)
    assert re.search(r"NUMBA_DISABLE_JIT=1 .* -m uncompiled\n", lines)
    assert "coverage report --fail-under 95" in lines
