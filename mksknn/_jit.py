"""The compile decorator, and threads over blocks of rows.

Kernels are serial and release the GIL; threads are Python threads over blocks of rows. That way
kernels can be cached on disk (Numba's parallel ones cannot, reliably), no Numba threading layer is
started (its workqueue layer aborts when two threads enter at once), and the answer does not depend
on how many threads share the blocks.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numba
from numba import njit

_limit: contextvars.ContextVar[int | None] = contextvars.ContextVar("mksknn_threads", default=None)


def kernel(function: Callable) -> Callable:
    """Compile lazily, release the GIL, cache on disk where a cache can be written.

    ``error_model="numpy"`` lets divisions vectorise; fastmath stays off, because kernels decide
    neighbours and evidences.
    """
    options = {"nogil": True, "error_model": "numpy"}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # no writable place for the cache: a read-only install without a home
        return njit(**options)(function)


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
