"""Threads: limits on BLAS and OpenMP, blocks of rows on threads, sweeps over k on executors.

The only file that sets how many threads anything uses. Blocks and chunks are fixed by the problem,
never by who works on them, and each is computed from nothing but itself: so the answer is the same
for any number of threads, processes or machines.
"""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import functools
import os
import pickle
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_EXCEPTION,
    CancelledError,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from pathlib import Path
from typing import Protocol

import numba
import scipy.linalg.cython_blas

_THREAD_SETTERS = (  # (set, get), as each build of OpenBLAS, MKL and BLIS exports them
    ("scipy_openblas_set_num_threads", "scipy_openblas_get_num_threads"),
    ("scipy_openblas_set_num_threads64_", "scipy_openblas_get_num_threads64_"),
    ("openblas_set_num_threads", "openblas_get_num_threads"),
    ("openblas_set_num_threads64_", "openblas_get_num_threads64_"),
    ("MKL_Set_Num_Threads", "MKL_Get_Max_Threads"),
    ("bli_thread_set_num_threads", "bli_thread_get_num_threads"),
)


class Blas:
    """The BLAS that an extension module is linked to, found through the module's own symbols."""

    def __init__(self, module_file: str) -> None:
        self.name = "unknown"
        self._set = self._get = None
        self._levels = None  # of nested OpenMP regions: (set, get)
        self._holders = 0
        self._before = 1
        self._lock = threading.Lock()
        try:
            library = ctypes.CDLL(module_file)
        except OSError:
            return
        for setter, getter in _THREAD_SETTERS:
            if hasattr(library, setter) and hasattr(library, getter):
                self._set, self._get = getattr(library, setter), getattr(library, getter)
                self.name = _describe(library, setter)
                break
        if not any(word in self.name for word in ("OPENMP", "MKL", "BLIS")):
            with contextlib.suppress(AttributeError):
                self._levels = (
                    library.omp_set_max_active_levels,
                    library.omp_get_max_active_levels,
                )

    @property
    def threads(self) -> int | None:
        """Threads it uses now, None where it does not tell."""
        return None if self._get is None else int(self._get())

    @property
    def openmp_levels(self) -> int | None:
        """How deep OpenMP regions may nest (0: none starts threads); None where nothing tells."""
        return None if self._levels is None else int(self._levels[1]())

    @contextlib.contextmanager
    def without_openmp(self) -> Iterator[None]:
        """Run the module's OpenMP regions, in this thread of Python, on one thread each.

        The BLAS's own threads stay; where they come from OpenMP, nothing is done.
        """
        if self._levels is None:
            yield
            return
        set_levels, before = self._levels[0], self.openmp_levels
        set_levels(0)
        try:
            yield
        finally:
            set_levels(before)

    @contextlib.contextmanager
    def one_thread(self) -> Iterator[None]:
        """Hold it to one thread; the last of several holders gives the old number back."""
        if self._set is None:
            yield
            return
        with self._lock:
            if self._holders == 0:
                self._before = int(self._get())
                self._set(1)
            self._holders += 1
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                if self._holders == 0:
                    self._set(self._before)


def _describe(library: ctypes.CDLL, setter: str) -> str:
    if "openblas" not in setter:
        return "MKL" if setter.startswith("MKL") else "BLIS"
    get_config = getattr(library, setter.replace("set_num_threads", "get_config"), None)
    if get_config is None:
        return "OpenBLAS"
    get_config.restype = ctypes.c_char_p
    return get_config().decode().strip()


# Below this size, threads within the BLAS cost more than they save: dpotrf at n = 500 took 1.31 ms
# on two and 1.44 ms on one, and several times that when other work kept the second core.
_THREADS_SIZE = 600


def blas_threads_for(n: int) -> contextlib.AbstractContextManager:
    """Hold SciPy's BLAS to one thread where the matrices are too small for more."""
    return scipy_blas().one_thread() if n < _THREADS_SIZE else contextlib.nullcontext()


@functools.cache
def scipy_blas() -> Blas:
    """The BLAS under SciPy, which Numba's np.dot uses too."""
    return Blas(scipy.linalg.cython_blas.__file__)


@functools.cache
def cholmod_blas() -> Blas:
    """The BLAS under CHOLMOD (nothing to hold without scikit-sparse)."""
    try:
        import sksparse.cholmod
    except ImportError:
        return Blas("no such library")
    return Blas(sksparse.cholmod.__file__)


@contextlib.contextmanager
def one_thread_each() -> Iterator[None]:
    """Hold every BLAS to one thread and keep OpenMP regions from starting any.

    Work is spread over k, or over the tiles of one large factorization, by threads of our own: so
    no BLAS thread spins for a core it does not have, and the answer is the same for any number.
    """
    with scipy_blas().one_thread(), cholmod_blas().one_thread(), cholmod_blas().without_openmp():
        yield


# ---------------------------------------------------------------------------------------------
# Blocks of rows

_limit: contextvars.ContextVar[int | None] = contextvars.ContextVar("mksknn_threads", default=None)


def thread_count() -> int:
    """Threads to use here: ``NUMBA_NUM_THREADS`` (by default the cores of this process)."""
    limit = _limit.get()
    return numba.config.NUMBA_NUM_THREADS if limit is None else limit


@contextlib.contextmanager
def limit_threads(threads: int) -> Iterator[None]:
    """Use at most `threads` threads for what this thread starts inside the block."""
    token = _limit.set(threads)
    try:
        yield
    finally:
        _limit.reset(token)


def run_blocks(work: Callable[[int, int], None], size: int, block: int) -> None:
    """Call ``work(start, stop)`` over ``range(size)`` cut into blocks, on all threads.

    The blocks are the same whatever the number of threads, and each writes rows of its own.
    """
    starts = range(0, size, block)
    threads = min(thread_count(), len(starts))
    if threads <= 1:
        for start in starts:
            work(start, min(start + block, size))
        return
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(work, start, min(start + block, size)) for start in starts]
        try:
            for future in futures:
                future.result()
        except BaseException:
            for future in futures:
                future.cancel()
            raise


# ---------------------------------------------------------------------------------------------
# Sweeps over k


class Executor(Protocol):
    """Anything that takes work and returns futures: a process pool, a Dask client."""

    def submit(self, fn: Callable, /, *args: object) -> object:
        """Start ``fn(*args)``."""


WORKER_THREADS = "MKSKNN_WORKER_THREADS"  # environment variable of an executor's workers


def map_chunks(
    function: Callable,
    shared: object,
    chunks: Sequence,
    *,
    executor: object = None,
    threads: bool = False,
    progress: bool = False,
) -> list:
    """``[function(shared, chunk) for chunk in chunks]``, the last chunk (the costliest) first.

    `threads` says that `function` releases the GIL, so that threads help when there is no executor.
    """
    with progress_bar(len(chunks), progress) as tick:
        if executor is not None:
            return _on_executor(executor, function, shared, chunks, tick)
        workers = min(thread_count(), len(chunks)) if threads else 1
        if workers <= 1:
            return _in_turn(function, shared, chunks, tick)
        with one_thread_each(), ThreadPoolExecutor(workers) as pool:
            return _collect(pool.submit, (function, shared), chunks, tick)


def _in_turn(function: Callable, shared: object, chunks: Sequence, tick: Callable) -> list:
    results = []
    for chunk in chunks:
        results.append(function(shared, chunk))
        tick()
    return results


# ---------------------------------------------------------------------------------------------
# Executors


def _on_executor(
    executor: object, function: Callable, shared: object, chunks: Sequence, tick: Callable
) -> list:
    """Send what the chunks share once to each worker, if the executor lets us."""
    if hasattr(executor, "scatter"):  # a Dask client
        return _on_dask(executor, function, shared, chunks, tick)
    if isinstance(executor, ProcessPoolExecutor):  # the same machine: through a file
        with _spooled(shared) as path:
            return _collect(executor.submit, (_work_spooled, function, path), chunks, tick)
    return _collect(executor.submit, (_work, function, shared), chunks, tick)


_ATTEMPTS = 5  # how often a sweep survives the loss of the data with a Dask worker


def _on_dask(
    client: object, function: Callable, shared: object, chunks: Sequence, tick: Callable
) -> list:
    """Chunks on Dask workers. A task of a worker that dies is run again by Dask; if the scattered
    data die with the last worker that had them, they are scattered again.
    """
    submit = functools.partial(client.submit, pure=False)
    for last in [False] * (_ATTEMPTS - 1) + [True]:
        try:
            data = client.scatter(shared, broadcast=True, hash=False)
        except OSError:  # a worker died while they were on their way
            if last:
                raise
            continue
        try:
            return _collect(submit, (_work, function, data), chunks, tick)
        except CancelledError:
            if last:
                raise
    raise AssertionError("unreachable")


def _work(function: Callable, shared: object, chunk: object) -> object:
    """What a worker runs: the workers share the cores, so each keeps to one thread of each kind.

    ``MKSKNN_WORKER_THREADS`` in a worker's environment allows it more.
    """
    threads = int(os.environ.get(WORKER_THREADS, "1"))
    with limit_threads(threads), one_thread_each() if threads == 1 else contextlib.nullcontext():
        return function(shared, chunk)


@contextlib.contextmanager
def _spooled(shared: object) -> Iterator[str]:
    """A file that holds `shared` while the sweep lasts."""
    handle, path = tempfile.mkstemp(prefix="mksknn-", suffix=".pickle")
    try:
        with os.fdopen(handle, "wb") as file:
            pickle.dump(shared, file, protocol=pickle.HIGHEST_PROTOCOL)
        yield path
    finally:
        Path(path).unlink(missing_ok=True)


def _work_spooled(function: Callable, path: str, chunk: object) -> object:
    return _work(function, _load(path), chunk)


@functools.lru_cache(maxsize=1)
def _load(path: str) -> object:
    """What the parent spooled; a worker reads it once."""
    return pickle.loads(Path(path).read_bytes())


def _collect(submit: Callable, call: tuple, chunks: Sequence, tick: Callable) -> list:
    """Submit every chunk and gather the results in order; cancel the rest if one fails."""
    futures = []
    try:
        for chunk in reversed(chunks):
            futures.append(submit(*call, chunk))
            futures[-1].add_done_callback(lambda done: done.cancelled() or tick())
        if all(isinstance(future, Future) for future in futures):
            for done in wait(futures, return_when=FIRST_EXCEPTION).done:
                done.result()  # what failed is raised now, not when its turn comes
        return [future.result() for future in reversed(futures)]
    except BaseException:
        for future in futures:
            future.cancel()
        raise


@contextlib.contextmanager
def progress_bar(total: int | None, progress: bool) -> Iterator[Callable[[], object]]:
    """A function that advances a progress bar, or does nothing."""
    if not progress:
        yield lambda: None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise ImportError("progress=True needs tqdm: pip install mksknn[progress]") from error
    with tqdm(total=total, unit="step") as bar:
        yield bar.update
