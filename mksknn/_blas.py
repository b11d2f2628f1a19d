"""SciPy's LAPACK called without the GIL, and a hold on how many threads a BLAS uses.

SciPy's own wrappers keep the GIL, so a sweep over k could not use two cores. The same routines
through ctypes release it. Two sweeping threads on a BLAS that starts threads of its own are slower
than one (at n = 200, dsytrd took 6.4 ms instead of 0.8 ms), so sweeps hold it to one thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from collections.abc import Iterator

import numpy as np
import scipy.linalg.cython_blas
from numba.extending import get_cython_function_address

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
def _routine(name: str, arguments: int):
    address = get_cython_function_address("scipy.linalg.cython_lapack", name)
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)(address)


def _int(value: int):
    return ctypes.byref(ctypes.c_int(value))


_UPPER = ctypes.c_char_p(b"U")
_WORK_COLUMNS = 32  # dsytrd's block size in LAPACK's own tuning table


def cholesky(matrix: np.ndarray) -> None:
    """Overwrite the lower triangle of a C-ordered matrix with its Cholesky factor (dpotrf)."""
    n = len(matrix)
    info = ctypes.c_int(0)
    # the lower triangle in C order is the upper one in Fortran's
    _routine("dpotrf", 5)(_UPPER, _int(n), matrix.ctypes.data, _int(n), ctypes.byref(info))
    if info.value:
        raise np.linalg.LinAlgError(f"dpotrf: not positive definite, info {info.value}")


def cholesky_inverse(factor: np.ndarray) -> None:
    """Overwrite a factor from `cholesky` with the inverse, lower triangle (dpotri)."""
    n = len(factor)
    info = ctypes.c_int(0)
    _routine("dpotri", 5)(_UPPER, _int(n), factor.ctypes.data, _int(n), ctypes.byref(info))
    if info.value:
        raise np.linalg.LinAlgError(f"dpotri: singular factor, info {info.value}")


def tridiagonalize(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Reduce a symmetric matrix (lower triangle, overwritten) to its tridiagonal form (dsytrd)."""
    n = len(matrix)
    diagonal, beside, scale = np.empty(n), np.empty(n), np.empty(n)
    work = np.empty(n * _WORK_COLUMNS)
    info = ctypes.c_int(0)
    _routine("dsytrd", 10)(
        _UPPER,
        _int(n),
        matrix.ctypes.data,
        _int(n),
        diagonal.ctypes.data,
        beside.ctypes.data,
        scale.ctypes.data,
        work.ctypes.data,
        _int(len(work)),
        ctypes.byref(info),
    )
    return diagonal, beside[: n - 1]
