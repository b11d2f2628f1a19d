"""One thread in each library, threads of our own over pieces of work, and interrupts."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from mksknn import _threads
from mksknn._threads import one_thread_each

ROOT = Path(__file__).resolve().parents[1]


# ---------------------------------------------------------------- one thread in each library


def blas_threads():
    """Threads of each BLAS that is loaded."""
    return [library.num_threads for library in blas_libraries()]


def blas_libraries():
    return ThreadpoolController().select(user_api="blas").lib_controllers


def openmp_levels():
    """Levels of parallel regions that OpenMP would make active in this thread, where they are held:
    in each runtime whose threads have levels of their own.
    """
    held = [one for one in openmp_runtimes() if not levels_are_shared(one)]
    return [runtime.omp_get_max_active_levels() for runtime in held]


def openmp_runtimes():
    runtimes = ThreadpoolController().select(user_api="openmp").lib_controllers
    found = [runtime.dynlib for runtime in runtimes]
    return [runtime for runtime in found if hasattr(runtime, "omp_get_max_active_levels")]


_shared = {}


def levels_are_shared(runtime):
    """Whether one thread's levels are another's: so in libgomp before GCC 11, as wheels have it."""
    if runtime._name not in _shared:
        before = runtime.omp_get_max_active_levels()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(runtime.omp_set_max_active_levels, 0).result()
        _shared[runtime._name] = runtime.omp_get_max_active_levels() != before
        if _shared[runtime._name]:
            runtime.omp_set_max_active_levels(before)
    return _shared[runtime._name]


@pytest.fixture
def two():
    """Every BLAS set to two threads, and back afterwards."""
    libraries = blas_libraries()
    before = [library.num_threads for library in libraries]
    for library in libraries:
        _threads._set_threads(library, 2)
    if set(blas_threads()) != {2}:
        pytest.skip("this BLAS has no threads")
    yield
    for library, threads in zip(libraries, before, strict=True):
        _threads._set_threads(library, threads)


def test_holds_nest_and_restore(two):
    levels = openmp_levels()
    with one_thread_each():
        assert set(blas_threads()) == {1}
        with one_thread_each():
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {1}
        assert not any(openmp_levels())
    assert set(blas_threads()) == {2}
    assert openmp_levels() == levels


def test_an_error_restores(two):
    levels = openmp_levels()
    with pytest.raises(KeyError), one_thread_each():
        raise KeyError
    assert set(blas_threads()) == {2}
    assert openmp_levels() == levels


def test_the_last_of_several_threads_restores(two):
    outside, both_in = (threading.Barrier(2, timeout=60) for _ in range(2))
    first_out = threading.Event()
    seen = []

    def early():
        before = openmp_levels()
        outside.wait()
        with one_thread_each():
            both_in.wait()
        seen.append(openmp_levels() == before)
        first_out.set()

    def late():
        before = openmp_levels()
        outside.wait()
        with one_thread_each():
            both_in.wait()
            assert first_out.wait(60)
            seen.append(set(blas_threads()) == {1} and not any(openmp_levels()))
        seen.append(openmp_levels() == before)

    levels = openmp_levels()
    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(early), pool.submit(late)]:
            future.result()
    assert seen == [True, True, True]
    assert set(blas_threads()) == {2}
    assert openmp_levels() == levels


def test_many_holders_at_random(two):
    def hold(_):
        with one_thread_each():
            return set(blas_threads()) | set(openmp_levels())

    with ThreadPoolExecutor(8) as pool:
        assert set().union(*pool.map(hold, range(100))) <= {0, 1}
    assert set(blas_threads()) == {2}


def test_others_who_use_openmp_get_the_threads_they_ask_for():
    """scikit-learn's search merges what each of its threads found, without asking who came."""
    rng = np.random.default_rng(0)
    X, y, new = rng.normal(size=(360, 26)), rng.normal(size=360), rng.normal(size=(40, 26))
    neighbours = pytest.importorskip("sklearn.neighbors")
    model = neighbours.KNeighborsRegressor(12, algorithm="brute").fit(X, y)
    alone = model.predict(new)
    with one_thread_each(), ThreadPoolExecutor(1) as pool:
        for found in (model.predict(new), pool.submit(model.predict, new).result()):
            np.testing.assert_array_equal(found, alone)


def test_a_limit_of_its_own_is_given_back(two):
    for library in blas_libraries():
        _threads._set_threads(library, 1)
    with one_thread_each():
        assert set(blas_threads()) == {1}
    assert set(blas_threads()) == {1}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_during_a_hold(two):
    """The child has what was there before the hold, and can hold for itself."""
    levels = openmp_levels()
    with one_thread_each():
        child = os.fork()
        if child == 0:
            good = set(blas_threads()) == {2} and openmp_levels() == levels
            with one_thread_each():
                good = good and set(blas_threads()) == {1}
            os._exit(0 if good and set(blas_threads()) == {2} else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert set(blas_threads()) == {1}
    assert set(blas_threads()) == {2}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_hold_that_ends_in_a_forked_child(two):
    """Leaving the parent's hold in the child changes nothing."""
    child = None
    with one_thread_each():
        child = os.fork()
    if child == 0:
        os._exit(0 if set(blas_threads()) == {2} else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_library_that_is_loaded_during_a_hold():
    """scikit-sparse is imported late, and brings a BLAS of its own."""
    script = """
import os
os.environ["OPENBLAS_NUM_THREADS"] = "2"
from threadpoolctl import ThreadpoolController
from mksknn._threads import one_thread_each
def threads():
    blas = ThreadpoolController().select(user_api="blas")
    return [one.num_threads for one in blas.lib_controllers]

with one_thread_each():
    before = len(threads())
    import sksparse.cholmod
    with one_thread_each():
        assert set(threads()) == {1}, threads()
    assert set(threads()) == {1}, threads()
assert set(threads()) == {2} and len(threads()) >= before, threads()
"""
    pytest.importorskip("sksparse.cholmod")
    run_script(script)


def run_script(script):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


class Library:
    """A library whose number is one for the process, or one for each thread."""

    def __init__(self, per_thread):
        self.state = threading.local() if per_thread else type("State", (), {})()
        self.settings = _threads._Setting(self.get, self.set, 1)

    def get(self):
        return getattr(self.state, "value", 4)

    def set(self, value):
        self.state.value = value


@pytest.mark.parametrize("per_thread", [False, True])
def test_whose_number_it_is_is_tried_out(per_thread):
    library = Library(per_thread)
    assert library.settings.per_thread == per_thread
    assert library.get() == 4


@pytest.mark.parametrize("per_thread", [False, True])
def test_two_threads_and_either_kind_of_library(per_thread, monkeypatch):
    """Whoever leaves first, nobody is left without a hold, and everybody gets the old number."""
    limits = _threads._Limits()
    library = Library(per_thread)
    monkeypatch.setattr(limits, "_found", {"library": [library.settings]})
    limits._find()
    first, second = object(), object()
    inside, left = threading.Event(), threading.Event()
    seen = []

    def other():
        limits.hold(second)
        inside.set()
        assert left.wait(60)
        seen.append(library.get())
        limits.release(second)
        seen.append(library.get())

    limits.hold(first)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(other)
        assert inside.wait(60)
        limits.release(first)
        left.set()
        future.result()
    assert seen == [1, 4]
    assert library.get() == 4


# ---------------------------------------------------------------- threads of our own


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


def test_inner_work_gets_what_is_left_of_the_threads():
    seen = []
    with _threads.limit_threads(4):
        _threads.run_pieces(lambda piece: seen.append(_threads.thread_count()), range(2))
        assert _threads.thread_count() == 4
    assert seen == [2, 2]


@pytest.mark.parametrize("threads", [1, 2])
def test_blas_is_held_in_every_piece(two, threads):
    seen = set()
    with _threads.limit_threads(threads):
        _threads.run_blocks(lambda start, stop: seen.update(blas_threads(), openmp_levels()), 8, 1)
    assert seen <= {0, 1}
    assert set(blas_threads()) == {2}


def test_work_inside_a_piece_learns_of_the_stop():
    """One piece fails; another, in the middle of pieces of its own, ends there."""
    begun = threading.Event()
    done = []

    def inner(piece):
        begun.set()
        time.sleep(0.01)
        done.append(piece)

    def work(piece):
        if piece == 0:
            assert begun.wait(60)
            raise ZeroDivisionError
        _threads.run_pieces(inner, range(5000))

    with _threads.limit_threads(2), pytest.raises(ZeroDivisionError):
        _threads.run_pieces(work, range(2))
    assert len(done) < 4999


@pytest.mark.uncompiled
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_tasks_come_after_those_they_need(threads):
    """Every divisor of a number before the number."""
    needs = {a: [b for b in range(1, a) if a % b == 0] for a in range(60, 0, -1)}
    done = []

    def work(task):
        assert {*needs[task]} <= {*done}
        done.append(task)

    with _threads.limit_threads(threads):
        _threads.run_tasks(work, needs)
    assert sorted(done) == list(range(1, 61))


def test_the_first_task_in_order_is_taken_first():
    done = []
    with _threads.limit_threads(1):
        _threads.run_tasks(done.append, {"c": ["a"], "d": [], "a": [], "b": ["c"]})
    assert done == ["d", "a", "c", "b"]


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_a_task_that_fails_is_not_waited_for(threads):
    def work(task):
        if task == "first":
            time.sleep(0.05)
            raise ZeroDivisionError
        raise AssertionError("begun without what it needs")

    with _threads.limit_threads(threads), pytest.raises(ZeroDivisionError):
        _threads.run_tasks(work, {"first": [], "second": ["first"], "third": ["first"]})


def test_check_stop_outside_of_any_piece():
    assert _threads.check_stop() is None


def test_an_executor_of_threads_learns_of_the_stop():
    begun, released = threading.Event(), []

    def work(shared, chunk):
        if chunk == 1:
            assert begun.wait(60)
            raise ZeroDivisionError
        begun.set()
        with pytest.raises(_threads.Stopped):
            for _ in range(6000):
                time.sleep(0.01)
                _threads.check_stop()
        released.append(chunk)

    with ThreadPoolExecutor(2) as pool, pytest.raises(ZeroDivisionError):
        _threads.map_chunks(work, None, range(2), executor=pool)
    assert released == [0]


# ---------------------------------------------------------------- interrupts

# Every k reduced takes long enough that a signal comes in the middle of a chunk of many.
INTERRUPTED = """
import signal, threading, time
import numpy as np
import mksknn
from mksknn import {module} as module
rng = np.random.default_rng(0)
X = rng.normal(size=(700, 3))
y = rng.integers(0, 2, 700)
{function}(X[:40], y[:40], {options})  # compiled
begun, interrupted = [], []
tridiagonalize = module.tridiagonalize
def slow(matrix):
    begun.append(time.perf_counter())
    if len(begun) == 4:
        print("begun", flush=True)
    time.sleep(0.2)
    return tridiagonalize(matrix)
def interrupt(*_):
    interrupted.append(time.perf_counter())
    raise KeyboardInterrupt
module.tridiagonalize = slow
signal.signal(signal.SIGINT, interrupt)
try:
    {function}(X, y, {options})
except KeyboardInterrupt:
    after = [time for time in begun if time > interrupted[0]]
    print(len(begun), len(after), threading.active_count(), flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to one process")
@pytest.mark.parametrize(
    ("function", "options"),
    [("mksknn.evidence_curve", "backend='lapack'"), ("mksknn.posterior", "max_skipped=0")],
)
def test_ctrl_c(function, options):
    """A real signal: no other k is begun, though each thread is in the middle of a chunk."""
    script = INTERRUPTED.format(function=function, options=options, module="_dense")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_NUM_THREADS": "2"}
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    begun, after, alive = map(int, out.split())
    assert begun < 12
    assert after <= 1  # by another thread, before it knows
    assert alive == 1
