"""Every example runs by itself in its small mode, prints something and leaves its figure."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
EXAMPLES = ["quickstart", "regression", "many_classes", "noisy_labels", "distributed"]


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
