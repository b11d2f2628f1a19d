"""CHOLMOD through scikit-sparse, both of its lines (0.4 and 0.5): the only file that imports it."""

from __future__ import annotations

import functools
import threading
from typing import Any

import numpy as np
from scipy.sparse import csc_matrix

from ._inverse import inverse_entries
from ._jit import kernel
from ._order import places_in
from ._threads import check_stop, one_thread_each
from ._validation import check_memory


@functools.cache
def cholmod() -> Any:
    """scikit-sparse's CHOLMOD module, None where it is not installed."""
    try:
        import sksparse.cholmod
    except ImportError:
        return None
    return sksparse.cholmod


# AMD orders in a third of METIS's time. With four to eight factorizations in the order found, the
# whole took 0.3 to 1.0 of the time with METIS below 30,000 multiplications a point (2-D up to
# k = 10 at n = 100,000 and 300,000, 3-D up to k = 5 at 10,000), 1.2 to 2.2 above 100,000 (3-D from
# k = 7 on), and about the same between.
_METIS_FLOPS = 50_000.0
_INVERSE_BYTES = 45.0  # for each entry of the factor, seen at n = 100,000 in 3-D
_ROOM = threading.Lock()  # one thread at a time asks for the room of a factor, and takes it


class Factor:
    """A Cholesky factorization; `order` is "natural" where the rows are in a good order already."""

    def __init__(self, lower: csc_matrix, order: str | None = None) -> None:
        self._matrix = lower  # its lower triangle is all that CHOLMOD reads
        self._fits = False
        self._analyze(order or "amd")
        self.dear_order = order is None and self.flops > _METIS_FLOPS * lower.shape[0]
        if self.dear_order:
            self._analyze("metis")

    def _analyze(self, order: str) -> None:
        check_stop()  # CHOLMOD keeps the interpreter to itself, here for seconds
        module, lower = cholmod(), self._matrix
        self._old = hasattr(module, "analyze")  # scikit-sparse 0.4
        if self._old:
            self._factor = module.analyze(lower, ordering_method=order)
            self.permutation = self._factor.P()
            self.solve = self._factor.solve_A
        else:
            self._factor = module.CholeskyFactor(lower, lower=True, order=order)
            self.permutation = self._factor.get_perm()
            self.solve = self._factor.solve
        self.fill, self.flops = fill_and_flops(lower, self.permutation)

    def factorize(self, shift: float) -> float:
        """Factorize the matrix plus shift on its diagonal; return the log of its determinant."""
        if self._fits:
            return self._factorize(shift)
        with _ROOM:  # the first factorization takes the room, the others go in its place
            check_memory(
                12.0 * self.fill,
                f"the Cholesky factor of this matrix ({self.fill:.3g} entries)",
                "lower k_max, or the number of points",
            )
            self._fits = True
            return self._factorize(shift)

    def _factorize(self, shift: float) -> float:
        with one_thread_each():
            if self._old:
                self._factor.cholesky_inplace(self._matrix, beta=shift)
            else:
                self._factor.factorize(self._matrix, beta=shift)
            return float(self._factor.logdet())

    @property
    def inverse_bytes(self) -> float:
        """Memory that `inverse_entries` takes: copies of the factor, and as much for the result."""
        return _INVERSE_BYTES * self.fill

    def inverse_entries(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Entries of the inverse, on the pattern of the matrix."""
        check_memory(
            self.inverse_bytes,
            f"the inverse on the pattern of the Cholesky factor ({self.fill:.3g} entries)",
            "lower k_max, or the number of points",
        )
        # 0.5's L drops entries that cancel to zero, of which Takahashi's equations need the places
        lower = csc_matrix(self._factor.L() if self._old else self._factor.factor)
        lower.sort_indices()
        place = places_in(self.permutation)
        with one_thread_each():
            return inverse_entries(
                lower.indptr, lower.indices, lower.data, place[rows], place[columns]
            )


def fill_and_flops(lower: csc_matrix, permutation: np.ndarray) -> tuple[int, float]:
    """Entries of the Cholesky factor under a permutation, and the multiplications it takes."""
    counts = _column_counts(lower.indptr, lower.indices, places_in(permutation))
    return int(counts.sum()), float((counts.astype(np.float64) ** 2).sum())


@kernel
def _column_counts(pointers, indices, place):
    """Entries in each column of the Cholesky factor of a symmetric pattern, given by its lower
    triangle in compressed columns and the place of each of them.

    Row i of the factor is the part of the elimination tree reached from the entries of row i.
    """
    n = place.shape[0]
    starts = np.zeros(n + 1, np.int64)
    for c in range(n):
        for e in range(pointers[c], pointers[c + 1]):
            starts[max(place[indices[e]], place[c]) + 1] += 1
    for i in range(n):
        starts[i + 1] += starts[i]
    before = np.empty(starts[n], np.int64)  # the entries of each row, up to the diagonal
    spot = starts[:-1].copy()
    for c in range(n):
        for e in range(pointers[c], pointers[c + 1]):
            i, j = place[indices[e]], place[c]
            before[spot[max(i, j)]] = min(i, j)
            spot[max(i, j)] += 1
    parent = np.full(n, -1, np.int64)
    seen = np.full(n, -1, np.int64)
    counts = np.ones(n, np.int64)
    for i in range(n):
        seen[i] = i
        for e in range(starts[i], starts[i + 1]):
            j = before[e]
            while seen[j] != i:
                if parent[j] < 0:
                    parent[j] = i
                counts[j] += 1
                seen[j] = i
                j = parent[j]
    return counts
