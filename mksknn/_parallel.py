"""One sweep over k, spread over this process's threads or a caller's executor.

The chunks of a sweep are fixed by the problem, never by who works on them, and each is computed
from nothing but itself: so the answer is the same for any number of threads, processes or machines.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait

from ._blas import scipy_blas
from ._jit import limit_threads, thread_count


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
        with scipy_blas().one_thread(), ThreadPoolExecutor(workers) as pool:
            return _collect(pool.submit, (function, shared), chunks, tick)


def _in_turn(function: Callable, shared: object, chunks: Sequence, tick: Callable) -> list:
    results = []
    for chunk in chunks:
        results.append(function(shared, chunk))
        tick()
    return results


def _on_executor(
    executor: object, function: Callable, shared: object, chunks: Sequence, tick: Callable
) -> list:
    if hasattr(executor, "scatter"):  # a Dask client: the data travel once to each worker
        shared = executor.scatter(shared, broadcast=True, hash=False)
    return _collect(executor.submit, (_on_one_thread, function, shared), chunks, tick)


def _on_one_thread(function: Callable, shared: object, chunk: object) -> object:
    """What a worker runs: the workers share the cores, so each keeps to one of them."""
    with limit_threads(1), scipy_blas().one_thread():
        return function(shared, chunk)


def _collect(submit: Callable, call: tuple, chunks: Sequence, tick: Callable) -> list:
    """Submit every chunk and gather the results in order; cancel the rest if one fails."""
    futures = [submit(*call, chunk) for chunk in reversed(chunks)][::-1]
    try:
        for future in futures:
            future.add_done_callback(lambda _: tick())
        if all(isinstance(future, Future) for future in futures):
            wait(futures, return_when=FIRST_EXCEPTION)
        return [future.result() for future in futures]
    except BaseException:
        for future in futures:
            future.cancel()
        raise


@contextlib.contextmanager
def progress_bar(total: int | None, progress: bool):
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
