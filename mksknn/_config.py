"""What this installation runs on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from ._logdet import cholmod, sparse_backend
from ._threads import cholmod_blas, scipy_blas, thread_count
from ._version import __version__


def show_config() -> None:
    """Print versions, determinant backends, the BLAS under each, and threads.

    Examples
    --------
    >>> import mksknn
    >>> mksknn.show_config()  # doctest: +ELLIPSIS
    mksknn ...
    """
    print(f"mksknn {__version__}, Python {platform.python_version()}")
    names = ("numpy", "scipy", "numba", "scikit-sparse", "matplotlib", "tqdm", "dask")
    print("  " + ", ".join(f"{name} {_version(name)}" for name in names))
    print(f"  dense graphs:  lapack, on {_blas(scipy_blas())}")
    if cholmod() is None:
        print("  sparse graphs: superlu (SciPy); scikit-sparse is not installed, so no cholmod")
    else:
        print(f"  sparse graphs: {sparse_backend()}, on {_blas(cholmod_blas())}; superlu available")
    print(f"  threads:       {thread_count()} (NUMBA_NUM_THREADS sets them)")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _blas(blas) -> str:
    threads = blas.threads
    return f"{blas.name}" + ("" if threads is None else f" ({threads} threads)")
