"""One sweep over k, spread over this process's threads or a caller's executor.

The chunks of a sweep are fixed by the problem, never by who works on them, and each is computed
from nothing but itself: so the answer is the same for any number of threads, processes or machines.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import tempfile
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

from ._blas import scipy_blas
from ._jit import limit_threads, thread_count
from ._logdet import one_cholmod_thread


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
        with _one_blas_thread(), ThreadPoolExecutor(workers) as pool:
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
    with limit_threads(threads), _one_blas_thread() if threads == 1 else contextlib.nullcontext():
        return function(shared, chunk)


@contextlib.contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Hold the BLAS under SciPy and the one under CHOLMOD to one thread."""
    with scipy_blas().one_thread(), one_cholmod_thread():
        yield


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
