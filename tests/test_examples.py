"""Every example runs by itself in its small mode, prints something and leaves its figure."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
EXAMPLES = [
    "quickstart",
    "regression",
    "many_classes",
    "noisy_labels",
    "distributed",
    "estimators",
]


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name, tmp_path):
    if name == "distributed":
        pytest.importorskip("distributed")
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), "--small", "--out", "figures"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) >= 5
    assert "nan" not in done.stdout
    picture = tmp_path / "figures" / f"{name}.png"
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert picture.stat().st_size > 10_000
    if name == "distributed":
        assert done.stdout.count("equal: True") == 2
    if name == "quickstart":
        assert len(done.stdout.splitlines()) <= 24  # the first of `make demo`'s two screens


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_explains_itself(name):
    if name == "distributed":
        pytest.importorskip("distributed")
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{name}.py"), "--help"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--out" in done.stdout
    assert "--small" in done.stdout


def test_demo_fits_on_two_screens_and_says_what_next():
    """Two screens have 48 lines; the quickstart takes 20 of them, see above."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = re.search(r"^demo: .*\n((?:\t.*\n)+)", makefile, re.MULTILINE).group(1)
    assert all(line.startswith("\t@") for line in recipe.splitlines())  # no echo of the commands
    said = recipe.count("@echo")
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        from reproduce_paper import brief
    finally:
        sys.path.pop(0)
    page = (ROOT / "docs" / "reproduction" / "index.md").read_text(encoding="utf-8")
    printed = len(brief(page).splitlines()) + 8  # progress before it, and where the page is
    assert said + printed <= 28
    assert "What to try next" in recipe
    for path in re.findall(r"(?:docs|examples)/[\w/]+\.(?:md|py)", recipe):
        assert (ROOT / path).exists(), path


def test_what_the_demo_writes_is_ignored_by_git():
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    assert {"build/", "figures/"} <= set(ignored)
    written = re.findall(r"--out (\S+?)[\s\"]", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert written and all(folder.startswith("build/") for folder in written)
