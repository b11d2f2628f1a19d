"""The compile decorator and the blocks of rows that threads share."""

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import numpy as np
import pytest

from mksknn import _jit, _threads

ROOT = Path(__file__).resolve().parents[1]


def add_one(values):
    out = np.empty_like(values)
    for i in range(values.shape[0]):
        out[i] = values[i] + 1.0
    return out


# ---------------------------------------------------------------- kernel


def test_kernel_falls_back_where_nothing_can_be_cached(monkeypatch):
    asked = []

    def njit(cache=False, **options):
        asked.append(cache)
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return numba.njit(**options)

    monkeypatch.setattr(_jit, "njit", njit)
    compiled = _jit.kernel(add_one)
    assert asked == [True, False]
    np.testing.assert_array_equal(compiled(np.arange(3.0)), [1.0, 2.0, 3.0])


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
from mksknn._neighbors import _lengths  # of all kernels the quickest to compile
assert _lengths(np.array([[3.0, 4.0]])).tolist() == [5.0]
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


# ---------------------------------------------------------------- threads


def test_thread_count_by_default_and_limited():
    assert _threads.thread_count() == numba.config.NUMBA_NUM_THREADS
    with _threads.limit_threads(3):
        assert _threads.thread_count() == 3
        with _threads.limit_threads(1):
            assert _threads.thread_count() == 1
        assert _threads.thread_count() == 3
    assert _threads.thread_count() == numba.config.NUMBA_NUM_THREADS


def test_the_limit_is_lifted_after_an_error_and_is_not_seen_by_other_threads():
    with pytest.raises(KeyError), _threads.limit_threads(7):
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(_threads.thread_count).result() == numba.config.NUMBA_NUM_THREADS
        raise KeyError
    assert _threads.thread_count() == numba.config.NUMBA_NUM_THREADS


@pytest.mark.uncompiled
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize(
    ("size", "block"), [(0, 5), (1, 5), (4, 5), (5, 5), (6, 5), (23, 1), (1000, 7)]
)
def test_blocks_cover_every_row_once(size, block, threads):
    seen = []
    with _threads.limit_threads(threads):
        _threads.run_blocks(lambda start, stop: seen.append((start, stop)), size, block)
    expected = [(start, min(start + block, size)) for start in range(0, size, block)]
    assert sorted(seen) == expected


@pytest.mark.parametrize("threads", [2, 3])
def test_blocks_run_on_as_many_threads_as_allowed(threads):
    meeting = threading.Barrier(threads, timeout=60)
    names = set()

    def work(start, stop):
        names.add(threading.get_ident())
        meeting.wait()  # passes only if that many work at once

    with _threads.limit_threads(threads):
        _threads.run_blocks(work, threads, 1)
    assert len(names) == threads


def test_one_thread_starts_none():
    names = set()
    with _threads.limit_threads(1):
        _threads.run_blocks(lambda start, stop: names.add(threading.get_ident()), 10, 3)
    assert names == {threading.get_ident()}


@pytest.mark.parametrize("threads", [1, 2])
def test_errors_come_out_and_stop_the_rest(threads):
    done = []

    def work(start, stop):
        if start == 0:
            raise ZeroDivisionError("block 0")
        time.sleep(0.001)
        done.append(start)

    with _threads.limit_threads(threads), pytest.raises(ZeroDivisionError, match="block 0"):
        _threads.run_blocks(work, 5000, 1)
    assert len(done) < 4999


def test_calls_within_calls():
    out = np.zeros((6, 40))

    def work(start, stop):
        def inner(first, last):
            out[start:stop, first:last] += 1.0

        _threads.run_blocks(inner, 40, 7)

    with _threads.limit_threads(3):
        _threads.run_blocks(work, 6, 1)
    assert (out == 1.0).all()
