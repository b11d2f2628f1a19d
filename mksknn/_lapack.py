"""SciPy's LAPACK and BLAS called without the GIL; large factorizations by tiles, on all threads.

SciPy's own wrappers keep the GIL, so a sweep over k could not use two cores. The same routines
through ctypes release it. A large matrix is cut into tiles, each of which is a few calls of BLAS on
one thread, and the tiles are shared by threads of our own: as fast as the threads within OpenBLAS
(which crash in dpotrf from about 15,000 rows on), and the same bits for any number of threads,
since the tiles are fixed by the size of the matrix. The only file that imports ctypes.

Matrices are square, C-ordered and symmetric; only the lower triangle is read. That is the upper
one in Fortran's order, and so A = U'U with tile (i, j) of U, i <= j, at ``matrix[j, i]`` in C.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import numpy as np
from numba.extending import get_cython_function_address

from ._threads import check_stop, one_thread_each, run_pieces, run_tasks

# In CPU seconds on one thread, against dpotrf (and dpotri): tiles of 384 took 1.11 (1.14) times as
# long at n = 2,000 and 1.04 (1.05) at 4,000, tiles of 512 1.07 (1.1) at 7,000, of 256 1.15 (1.2)
# everywhere. The order of the tasks keeps two threads busy for 1.85 times the speed of one at
# n = 2,000, 1.93 at 4,000 and 1.97 at 6,000; eight threads for 5.6 times at 4,000 and 7.0 at 6,000.
TILED = 2048  # rows from which tiles are used
_LARGE = 4096  # rows from which they are large
_SMALL_TILE, _LARGE_TILE = 384, 512
_ROWS_AT_ONCE = 2  # tiles in one multiplication; with 4, eight threads are 4.6 times as fast as one


def cholesky(matrix: np.ndarray) -> None:
    """Overwrite the lower triangle of a matrix with its Cholesky factor (dpotrf)."""
    check_stop()
    with one_thread_each():
        if len(matrix) < TILED:
            _potrf(_Tile(matrix, 0, 0, len(matrix), len(matrix)))
        else:
            _tiled_cholesky(matrix)


def cholesky_inverse(factor: np.ndarray) -> None:
    """Overwrite a factor from `cholesky` with the inverse, lower triangle (dpotri).

    What stands above the diagonal is lost: large matrices use it as room to work in.
    """
    check_stop()
    with one_thread_each():
        if len(factor) < TILED:
            _check_regular(_lapack("dpotri", _UPPER, len(factor), factor, len(factor)))
        else:
            _tiled_inverse(factor)


def tridiagonalize(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Reduce a symmetric matrix (lower triangle, overwritten) to its tridiagonal form (dsytrd)."""
    check_stop()
    n = len(matrix)
    diagonal, beside, scale = np.empty(n), np.empty(n), np.empty(n)
    work = np.empty(n * (_WORK_COLUMNS if n < _MANY_ROWS else _MORE_COLUMNS))
    with one_thread_each():
        _lapack("dsytrd", _UPPER, n, matrix, n, diagonal, beside, scale, work, len(work))
    return diagonal, beside[: n - 1]


# The block size of dsytrd, 32 in LAPACK's own tuning table. In CPU seconds, busy machine, 32 took
# 1.09 to 1.21 of the time of 16 for n = 150 to 400, 0.95 to 1.07 for 500 to 1,500, 0.95 for 2,500.
_WORK_COLUMNS, _MORE_COLUMNS, _MANY_ROWS = 16, 32, 1_000


# ---------------------------------------------------------------------------------------------
# Tiles


class _Tile:
    """A rectangle of a matrix as Fortran sees it: `rows` and `columns` are exchanged."""

    def __init__(self, matrix: np.ndarray, row: int, column: int, rows: int, columns: int) -> None:
        self.rows, self.columns, stride = rows, columns, matrix.shape[1]
        start = matrix.ctypes.data + matrix.itemsize * (column * stride + row)
        self.place = ctypes.c_void_p(start), stride  # as routines want it
        self._matrix = matrix  # kept alive


class _Tiles:
    """A matrix cut into tiles."""

    def __init__(self, matrix: np.ndarray) -> None:
        self._matrix = matrix
        self.size = _SMALL_TILE if len(matrix) < _LARGE else _LARGE_TILE
        self.edges = [*range(0, len(matrix), self.size), len(matrix)]
        self.count = len(self.edges) - 1

    def __getitem__(self, at: tuple[int | slice, int | slice]) -> _Tile:
        """Tile (row, column) in Fortran's order; a slice makes one of several."""
        (top, bottom), (left, right) = map(self._range, at)
        return _Tile(self._matrix, top, left, bottom - top, right - left)

    def _range(self, at: int | slice) -> tuple[int, int]:
        if isinstance(at, slice):
            return self.edges[at.start], self.edges[at.stop]
        return self.edges[at], self.edges[at + 1]


def _tiled_cholesky(matrix: np.ndarray) -> None:
    """U_ij = U_ii^-T (A_ij - sum over k < i of U_ki' U_kj), tile by tile."""
    tiles = _Tiles(matrix)

    def work(task: tuple[int, int, int]) -> None:
        i, j, first = task
        target, rows = tiles[i, j], _rows(i, first)
        if first == _LAST:
            if i == j:
                _potrf(target, tiles.edges[i])
            else:
                _triangular("dtrsm", _LEFT, 1.0, tiles[i, i], target)
        elif i == j:
            _syrk(_TRANSPOSED, -1.0, tiles[rows, i], 1.0, target)
        else:
            _gemm(_TRANSPOSED, _PLAIN, -1.0, tiles[rows, i], tiles[rows, j], 1.0, target)

    run_tasks(work, _cholesky_tasks(tiles.count))


_LAST = -1


def _rows(i: int, first: int) -> slice:
    """The rows that task (i, j, first) subtracts."""
    return slice(first, min(first + _ROWS_AT_ONCE, i))


def _cholesky_tasks(count: int) -> dict[tuple, list[tuple]]:
    """Tasks in order of urgency, each with those that it needs.

    Task (i, j, first) subtracts the sum over a few rows k from tile (i, j); (i, j, _LAST) makes the
    tile of what is left. A row waits for its diagonal tile, so that one is as urgent as the row
    before.
    """
    needs: dict[tuple, list[tuple]] = {}
    for i in range(count):
        for j in range(i, count):
            before: list[tuple] = []
            for first in range(0, i, _ROWS_AT_ONCE):
                k = _rows(i, first).stop - 1
                needs[i, j, first] = [*before, *{(k, i, _LAST), (k, j, _LAST)}]
                before = [(i, j, first)]
            needs[i, j, _LAST] = before if i == j else [*before, (i, i, _LAST)]

    def urgency(task: tuple[int, int, int]) -> tuple:
        i, j, first = task
        return i - (i == j), first != _LAST, j, first

    return {task: needs[task] for task in sorted(needs, key=urgency)}


def _tiled_inverse(factor: np.ndarray) -> None:
    """A^-1 = V V' with V = U^-1, whose transpose W is made on the other side of the diagonal.

    There is no room for the diagonal tiles of V there, so they have an array of their own.
    """
    tiles = _Tiles(factor)
    count = tiles.count
    corners = np.zeros((count, tiles.size, tiles.size))
    own = [_Tile(c, 0, 0, tiles[i, i].rows, tiles[i, i].rows) for i, c in enumerate(corners)]

    def invert_corner(i: int) -> None:
        start, stop = tiles.edges[i], tiles.edges[i + 1]
        size = stop - start
        corners[i, :size, :size] = np.tril(factor[start:stop, start:stop])
        _check_regular(_lapack("dtrtri", _UPPER, _PLAIN, size, *own[i].place))

    def mirror(i: int, j: int) -> None:
        """Copy tile (i, j) to (j, i), transposed."""
        rows, columns = slice(*tiles.edges[i : i + 2]), slice(*tiles.edges[j : j + 2])
        factor[rows, columns] = factor[columns, rows].T

    def invert_row(j: int) -> None:
        """W_ji = -(sum over i < k <= j of W_jk U_ik') U_ii^-T, from the diagonal outwards."""
        for i in range(j)[::-1]:
            check_stop()
            target = tiles[j, i]
            mirror(i, j)
            _triangular("dtrmm", _LEFT, 1.0, own[j], target)
            if i + 1 < j:
                between = slice(i + 1, j)
                _gemm(_PLAIN, _TRANSPOSED, 1.0, tiles[j, between], tiles[i, between], 1.0, target)
            _triangular("dtrsm", _RIGHT, -1.0, tiles[i, i], target)

    def multiply(tile: tuple[int, int]) -> None:
        """Tile (i, j) of V V': the sum over k >= j of W_ki' W_kj."""
        i, j = tile
        target, below = tiles[i, j], slice(j + 1, count)
        if i == j:
            _syrk(_PLAIN, 1.0, own[j], 0.0, target)
            if j + 1 < count:
                _syrk(_TRANSPOSED, 1.0, tiles[below, j], 1.0, target)
        else:
            mirror(j, i)
            _triangular("dtrmm", _RIGHT, 1.0, own[j], target)
            if j + 1 < count:
                _gemm(_TRANSPOSED, _PLAIN, 1.0, tiles[below, i], tiles[below, j], 1.0, target)

    run_pieces(invert_corner, range(count))
    run_pieces(invert_row, range(1, count)[::-1])  # the longest first
    run_pieces(multiply, [(i, j) for j in range(count) for i in range(j + 1)])


# ---------------------------------------------------------------------------------------------
# Routines

_UPPER, _LEFT, _RIGHT = ctypes.c_char_p(b"U"), ctypes.c_char_p(b"L"), ctypes.c_char_p(b"R")
_PLAIN, _TRANSPOSED = ctypes.c_char_p(b"N"), ctypes.c_char_p(b"T")


@functools.cache
def _routine(module: str, name: str, arguments: int) -> Callable:
    address = get_cython_function_address(f"scipy.linalg.{module}", name)
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)(address)


def _call(module: str, name: str, *arguments: object) -> None:
    """Call a routine; every argument is passed by its address."""
    _routine(module, name, len(arguments))(*map(_address, arguments))


_blas = functools.partial(_call, "cython_blas")


def _lapack(name: str, *arguments: object) -> int:
    """Call a routine of LAPACK; what its last argument, info, says."""
    info = ctypes.c_int(0)
    _call("cython_lapack", name, *arguments, ctypes.byref(info))
    return info.value


def _address(argument: object) -> object:
    if isinstance(argument, int):
        return ctypes.byref(ctypes.c_int(argument))
    if isinstance(argument, float):
        return ctypes.byref(ctypes.c_double(argument))
    if isinstance(argument, np.ndarray):
        return argument.ctypes.data
    return argument


def _potrf(tile: _Tile, before: int = 0) -> None:
    """Factorize a diagonal tile, with so many rows before it."""
    info = _lapack("dpotrf", _UPPER, tile.rows, *tile.place)
    if info:
        raise np.linalg.LinAlgError(f"dpotrf: not positive definite, info {before + info}")


def _check_regular(info: int) -> None:
    if info:
        raise np.linalg.LinAlgError(f"dpotri: singular factor, info {info}")


def _triangular(name: str, side: object, alpha: float, triangle: _Tile, out: _Tile) -> None:
    """out = alpha T out, or alpha out T, with T = U' (dtrmm) or U^-T (dtrsm)."""
    how = side, _UPPER, _TRANSPOSED, _PLAIN
    _blas(name, *how, out.rows, out.columns, alpha, *triangle.place, *out.place)


def _syrk(how: object, alpha: float, a: _Tile, beta: float, out: _Tile) -> None:
    """out = alpha A A' + beta out, or alpha A'A + beta out, upper triangle."""
    inner = a.columns if how is _PLAIN else a.rows
    _blas("dsyrk", _UPPER, how, out.rows, inner, alpha, *a.place, beta, *out.place)


def _gemm(
    how_a: object, how_b: object, alpha: float, a: _Tile, b: _Tile, beta: float, out: _Tile
) -> None:
    """out = alpha A B + beta out, with A or B transposed as told."""
    inner = a.columns if how_a is _PLAIN else a.rows
    size = out.rows, out.columns, inner
    _blas("dgemm", how_a, how_b, *size, alpha, *a.place, *b.place, beta, *out.place)
