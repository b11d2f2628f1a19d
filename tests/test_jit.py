"""The compile decorator and its cache."""

import gc
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import numpy as np
import pytest

from mksknn import _jit

ROOT = Path(__file__).resolve().parents[1]


def add_one(values):
    out = np.empty_like(values)
    for i in range(values.shape[0]):
        out[i] = values[i] + 1.0
    return out


# ---------------------------------------------------------------- kernel


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
@pytest.mark.parametrize("error", [RuntimeError("no locator available"), OSError("no such file")])
def test_kernel_falls_back_where_nothing_can_be_cached(monkeypatch, error):
    def no_cache(function):
        raise error

    monkeypatch.setattr(_jit, "_Cache", no_cache)
    compiled = _jit.kernel(add_one)
    np.testing.assert_array_equal(compiled(np.arange(3.0)), [1.0, 2.0, 3.0])
    assert not compiled.stats.cache_path


def test_kernel_sets_up_no_cache_before_it_is_called(monkeypatch):
    monkeypatch.setattr(_jit, "_Cache", lambda function: pytest.fail("set up"))
    _jit.kernel(add_one)


def test_kernel_hides_no_other_error(monkeypatch):
    def njit(**options):
        raise TypeError("no such option")

    monkeypatch.setattr(_jit, "njit", njit)
    with pytest.raises(TypeError, match="no such option"):
        _jit.kernel(add_one)


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
def test_kernel_releases_the_gil_and_keeps_divisions_plain():
    options = _jit.kernel(add_one).targetoptions
    assert options["nogil"]
    assert options["error_model"] == "numpy"
    assert not options.get("fastmath", False)
    assert not options.get("parallel", False)


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
@pytest.mark.parametrize("enabled", [True, False])
def test_compiling_leaves_the_garbage_collector_as_it_was(enabled):
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        _jit.kernel(add_one)(np.arange(3.0))
        assert gc.isenabled() == enabled
        with pytest.raises(numba.TypingError):
            _jit.kernel(add_one)("no array")
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()


# ---------------------------------------------------------------- a package with two kernels

OUTER = """
from ._jit import kernel
from .inner import inner

@kernel
def outer(x):
    return inner(x) + 1.0
"""
INNER = """
from ._jit import kernel

@kernel
def inner(x):
    return {factor} * x
"""
RUN = """
import sys, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from package.outer import outer
    {before}
    print(outer(1.0))
    hits = sum(outer.stats.cache_hits.values())
    print(hits)
    for one in caught:
        print(one.category.__name__, one.message)
"""


@pytest.fixture
def package(tmp_path):
    """A function that runs ``outer(1.0)`` in a process of its own: value, hits, warnings."""
    if numba.config.DISABLE_JIT:
        pytest.skip("nothing is compiled")
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "outer.py").write_text(OUTER)
    (folder / "inner.py").write_text(INNER.format(factor=2.0))
    (folder / "_jit.py").write_text(Path(_jit.__file__).read_text())

    def run(before="", **environment):
        # -B: Python's own cache goes by size and whole seconds, and would be stale itself
        done = subprocess.run(
            [sys.executable, "-B", "-c", RUN.format(before=before)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(tmp_path), **environment},
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        value, hits, *warned = done.stdout.splitlines()
        return float(value), int(hits), warned

    run.folder = folder
    return run


def test_a_kernel_is_cached(package):
    assert package() == (3.0, 0, [])
    assert list((package.folder / "__pycache__").glob("*.nbc"))
    assert package() == (3.0, 1, [])


def test_three_processes_that_compile_at_once(package):
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: package(), range(3)))
    assert [(value, warned) for value, _, warned in found] == [(3.0, [])] * 3
    assert package() == (3.0, 1, [])


def test_a_change_in_another_file_is_noticed(package):
    assert package() == (3.0, 0, [])
    (package.folder / "inner.py").write_text(INNER.format(factor=5.0))
    assert package() == (6.0, 0, [])
    assert package() == (6.0, 1, [])


def test_a_change_after_the_import_is_not_cached_under_its_name(package):
    inner, changed = package.folder / "inner.py", INNER.format(factor=5.0) + "\n"
    change = f"import pathlib; pathlib.Path({str(inner)!r}).write_text({changed!r})"
    assert package(change) == (3.0, 0, [])
    assert package() == (6.0, 0, [])


def test_a_read_only_package_is_cached_elsewhere(package, tmp_path):
    elsewhere = {"NUMBA_CACHE_DIR": str(tmp_path / "elsewhere")}
    assert package(**elsewhere) == (3.0, 0, [])
    assert package(**elsewhere) == (3.0, 1, [])
    (package.folder / "inner.py").write_text(INNER.format(factor=5.0))
    assert package(**elsewhere) == (6.0, 0, [])
    assert not list(package.folder.rglob("*.nbc"))


@pytest.mark.parametrize(
    ("pattern", "content"),
    [
        ("outer*.nbi", b""),
        ("outer*.nbi", "half"),
        ("outer*.nbc", b""),
        ("outer*.nbc", "half"),
        ("*.nb?", b"rubbish"),
    ],
)
def test_a_broken_cache_is_mended(package, pattern, content):
    package()
    cache = package.folder / "__pycache__"
    broken = list(cache.glob(pattern))
    assert broken
    for path in broken:
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2] if content == "half" else content)
    value, hits, warned = package()
    assert (value, hits) == (3.0, 0)
    assert len(warned) == 1
    assert warned[0].startswith("RuntimeWarning") and str(cache) in warned[0]
    assert package() == (3.0, 1, [])


FULL_DISK = """
import errno, numba.core.caching as caching
def full(self, path):
    raise OSError(errno.ENOSPC, "No space left on device")
caching.IndexDataCacheFile._open_for_write = full
"""


def test_a_full_disk(package):
    value, hits, warned = package("exec(%r)" % FULL_DISK)  # noqa: UP031
    assert (value, hits) == (3.0, 0)
    assert len(warned) == 1 and "No space left on device" in warned[0]
    assert str(package.folder / "__pycache__") in warned[0]


# What the system itself says where a file may not grow, after half of it is written.
NO_ROOM = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))"


@pytest.mark.skipif(sys.platform == "win32", reason="no limit for files")
def test_a_file_that_the_system_does_not_let_grow(package):
    for _ in range(2):
        value, hits, warned = package(NO_ROOM)
        assert (value, hits) == (3.0, 0)
        assert len(warned) == 1 and "File too large" in warned[0]
        assert str(package.folder / "__pycache__") in warned[0]
    assert package() == (3.0, 0, [])  # nothing broken is left
    assert package() == (3.0, 1, [])


def test_a_full_disk_with_a_broken_cache(package):
    package()
    for path in (package.folder / "__pycache__").glob("*.nbi"):
        path.write_bytes(b"")
    value, hits, warned = package("exec(%r)" % FULL_DISK)  # noqa: UP031
    assert (value, hits) == (3.0, 0)
    assert len(warned) == 1


# ---------------------------------------------------------------- the library


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
def test_library_works_without_any_place_for_a_cache():
    """A read-only install of a user without a home: Numba finds no place and says so."""
    script = """
import numba.core.caching as caching
caching.CacheImpl._locator_classes = []
import numba
try:
    numba.njit(cache=True)(lambda x: x)
except RuntimeError:
    pass
else:
    raise SystemExit("the simulation does not work")
import numpy as np
from mksknn._distances import row_lengths  # of all kernels the quickest to compile
assert row_lengths(np.array([[3.0, 4.0]])).tolist() == [5.0]
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
