"""The compile decorator, and threads over blocks of rows.

Kernels are serial and release the GIL; threads are Python threads over blocks of rows. That way
kernels can be cached on disk (Numba's parallel ones cannot, reliably), no Numba threading layer is
started (its workqueue layer aborts when two threads enter at once), and the answer does not depend
on how many threads share the blocks.
"""

from __future__ import annotations

from collections.abc import Callable

from numba import njit


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
