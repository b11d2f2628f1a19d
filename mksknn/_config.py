"""What this installation runs on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from ._cholmod import cholmod
from ._plan import sparse_backend
from ._threads import blas_names, thread_count
from ._version import __version__


def show_config() -> None:
    """Print versions, determinant backends, every BLAS that is loaded, and threads.

    Examples
    --------
    >>> import mksknn
    >>> mksknn.show_config()  # doctest: +ELLIPSIS
    mksknn ...
    """
    print(f"mksknn {__version__}, Python {platform.python_version()}")
    names = ("numpy", "scipy", "numba", "scikit-sparse", "matplotlib", "tqdm", "dask")
    print("  " + ", ".join(f"{name} {_version(name)}" for name in names))
    print("  dense graphs:  lapack (SciPy)")
    if cholmod() is None:
        print("  sparse graphs: superlu (SciPy); scikit-sparse is not installed, so no cholmod")
    else:
        print(f"  sparse graphs: {sparse_backend()}; superlu available")
    for name in blas_names():
        print(f"  BLAS:          {name}")
    print(f"  threads:       {thread_count()} (NUMBA_NUM_THREADS sets them), each BLAS held to 1")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
