"""SciPy's LAPACK called without the GIL.

SciPy's own wrappers keep the GIL, so a sweep over k could not use two cores. The same routines
through ctypes release it.
"""

from __future__ import annotations

import ctypes
import functools

import numpy as np
from numba.extending import get_cython_function_address


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
