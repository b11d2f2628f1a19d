"""log|L_k + r I| of graphs with few edges: CHOLMOD, or SuperLU without scikit-sparse."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from scipy.sparse import csc_array, csc_matrix, eye_array, sparray, spmatrix, tril

from ._cholmod import Factor, cholmod
from ._determinants import Determinants, Resistances
from ._graphs import Pairs, degrees, sparse_laplacian
from ._jit import interruptible
from ._order import places_in
from ._threads import check_stop
from ._validation import check_symmetric


class _Grounded(Determinants):
    """log|L + r I| of one graph from sparse factorizations of a well-conditioned part of it.

    The same trouble as in `_dense`, and another remedy, since lifting would fill the matrix: one
    vertex of each component is left out. With M the rest of L + r I and x = M^-1 1, the Schur
    complement of the vertex left out of component c is r (|c| - r sum of x over c), so

        log|L + r I| = log|M| + sum_c [ log r + log(|c| - r sum_c x) ].
    """

    def __init__(self, pairs: Pairs, k: int, order: str | None = None) -> None:
        super().__init__(pairs, k)
        # the best-connected vertex: the one whose loss leaves the least fill
        ranked = np.lexsort((-degrees(pairs, k), self._components.label))
        firsts = np.concatenate([[0], np.cumsum(self._components.size)[:-1]])
        self._kept = np.ones(pairs.n, np.bool_)
        self._kept[ranked[firsts]] = False
        self._label = self._components.label[self._kept]
        self._matrix = csc_matrix(sparse_laplacian(pairs, k, self._kept))
        if self._matrix.shape[0]:
            self._analyze(order)

    @abstractmethod
    def _analyze(self, order: str | None) -> None:
        """Get ready to factorize; `order` is "natural" if the points are in a good one already."""

    @abstractmethod
    def _factorize(self, ratio: float) -> float:
        """log|M|."""

    @abstractmethod
    def _solve(self, right: np.ndarray) -> np.ndarray:
        """M^-1 times one or more columns."""

    def logdet(self, ratio: float) -> float:
        """log|L + ratio I|."""
        null = self._components.count * np.log(ratio)
        if not self._matrix.shape[0]:
            return float(null)
        check_stop()
        part = self._factorize(ratio)
        rest = self._components.size - ratio * self._sums(self._solve(self._ones()))
        return float(part + null + np.log(rest).sum())

    def trace_inverse(self, ratio: float) -> float:
        """tr (L + ratio I)^-1, the derivative of `logdet`."""
        null = self._components.count / ratio
        if not self._matrix.shape[0]:
            return null
        check_stop()
        self._factorize(ratio)
        x = self._solve(self._ones())
        sums, squares = self._sums(x), self._sums(x * x)
        slope = (ratio * squares - sums) / (self._components.size - ratio * sums)
        return self._trace_of_part() + null + float(slope.sum())

    def _ones(self) -> np.ndarray:
        return np.ones(self._matrix.shape[0])

    def _sums(self, values: np.ndarray) -> np.ndarray:
        return np.bincount(self._label, values, minlength=self._components.count)

    def _trace_of_part(self) -> float:
        """tr M^-1, by solves with the columns of the identity."""
        n, block = self._matrix.shape[0], 128
        total = 0.0
        for start in range(0, n, block):
            check_stop()
            width = min(block, n - start)
            unit = np.zeros((n, width), order="F")
            unit[start + np.arange(width), np.arange(width)] = 1.0
            total += float(np.trace(self._solve(unit)[start : start + width]))
        return total


# Multiplications for each edge, below which METIS takes longer than the factorization: 2,400 (two
# dimensions, n = 30,000, k = 48: five times as long), 8,500 (3-D, 10,000, k = 20: twice), 140,000
# (10-D, 6,000, k = 8: half as long).
_CHEAP = 10_000.0


class Cholmod(_Grounded):
    """CHOLMOD: one analysis, then a factorization for each r."""

    backend = "cholmod"

    def __init__(
        self, pairs: Pairs, k: int, order: str | None = None, memory: float | None = None
    ) -> None:
        super().__init__(pairs, k, order)
        self._memory = memory  # bytes that there are for a selected inverse

    def _analyze(self, order: str | None) -> None:
        self._factor = Factor(self._matrix, order)

    def _solve(self, right: np.ndarray) -> np.ndarray:
        return self._factor.solve(right)

    @property
    def flops(self) -> float:
        """Multiplications of one factorization."""
        return self._factor.flops if self._matrix.shape[0] else 0.0

    @property
    def places(self) -> np.ndarray:
        """The place of each point in this graph's fill-reducing order."""
        kept = np.flatnonzero(self._kept)
        if len(kept):
            kept = kept[self._factor.permutation]
        return places_in(np.concatenate([kept, np.flatnonzero(~self._kept)]))

    @property
    def order_is_dear(self) -> bool:
        """Whether to find it took longer than a factorization."""
        if not self.flops or not self._factor.dear_order:
            return False
        return self.flops < _CHEAP * self._pairs.count[self._k]

    def _factorize(self, ratio: float) -> float:
        return self._factor.factorize(ratio)

    def _trace_of_part(self) -> float:
        everyone = np.arange(self._matrix.shape[0])
        return float(self._factor.inverse_entries(everyone, everyone).sum())

    def resistance_sums(self, ratio: float) -> Resistances | None:
        """The anchor L + ratio I, and its resistances summed over its own graph and those below.

        Selected inversion knows no other resistances. None where there is no room for it.
        """
        if not self.flops:
            return None
        if self._memory is not None and self._factor.inverse_bytes > self._memory:
            return None
        logdet, trace, own = self.resistances(ratio)
        sums = np.full(self._pairs.k_max + 1, np.inf)
        growing = np.concatenate([[0.0], np.cumsum(own)])
        sums[: self._k + 1] = growing[self._pairs.count[: self._k + 1]]
        return Resistances(logdet, trace, sums)

    def resistances(self, ratio: float) -> tuple[float, float, np.ndarray]:
        """log|A|, tr A^-1 and the resistance of each edge, for A = L + ratio I.

        Edges are in the order of the pairs. With Z = M^-1, zero at the vertices left out, and
        u = 1 - r x, the inverse of A is Z + u u'/S in each component, S = r (|c| - r sum_c x).
        """
        logdet = self.logdet(ratio)
        x = self._solve(self._ones())
        sums, squares = self._sums(x), self._sums(x * x)
        rest = self._components.size - ratio * sums
        number = np.full(len(self._kept), -1)
        number[self._kept] = np.arange(len(x))
        edges = self._pairs.count[self._k]
        rows, columns = self._pairs.rows[:edges], self._pairs.columns[:edges]
        i, j = number[rows], number[columns]
        both = (i >= 0) & (j >= 0)
        everyone = np.arange(len(x))
        entries = self._factor.inverse_entries(
            np.concatenate([everyone, i[both]]), np.concatenate([everyone, j[both]])
        )
        own = np.append(entries[: len(x)], 0.0)  # the last entry stands for a vertex left out
        out = own[i] + own[j]
        out[both] -= 2.0 * entries[len(x) :]
        x = np.append(x, 0.0)
        out += ratio * (x[i] - x[j]) ** 2 / rest[self._components.label[rows]]
        trace = own.sum() + self._components.count / ratio
        trace += float(((ratio * squares - sums) / rest).sum())
        return logdet, float(trace), out


class SuperLU(_Grounded):
    """SciPy's LU in symmetric mode, for installs without scikit-sparse."""

    backend = "superlu"

    def _analyze(self, order: str | None) -> None:
        self._matrix = csc_array(self._matrix + tril(self._matrix, -1).T)
        self._identity = eye_array(self._matrix.shape[0], format="csc")

    def _factorize(self, ratio: float) -> float:
        from scipy.sparse.linalg import splu

        self._factor = splu(
            csc_array(self._matrix + ratio * self._identity),
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
        return float(np.log(np.abs(self._factor.U.diagonal())).sum())

    def _solve(self, right: np.ndarray) -> np.ndarray:
        return self._factor.solve(right)


@interruptible
def selected_inverse(A: sparray | spmatrix) -> csc_array:
    """Compute the entries of a sparse inverse where the matrix itself has entries.

    Parameters
    ----------
    A : sparse array, shape (n, n)
        Symmetric (up to rounding, 1e-12 of its largest entry) and positive definite.

    Returns
    -------
    scipy.sparse.csc_array, shape (n, n)
        The entries of the inverse of `A` at the non-zeros of `A` and on its diagonal. They cost
        about as much as a few Cholesky factorizations, whatever the size of the full inverse.

    Raises
    ------
    ImportError
        If scikit-sparse (the extra ``cholmod``) is not installed.

    Examples
    --------
    >>> import scipy.sparse
    >>> import mksknn
    >>> A = scipy.sparse.diags_array([[-1.0] * 3, [3.0] * 4, [-1.0] * 3], offsets=[-1, 0, 1])
    >>> mksknn.selected_inverse(A).toarray().round(4).tolist()  # doctest: +NORMALIZE_WHITESPACE
    [[0.3818, 0.1455, 0.0, 0.0], [0.1455, 0.4364, 0.1636, 0.0],
     [0.0, 0.1636, 0.4364, 0.1455], [0.0, 0.0, 0.1455, 0.3818]]
    """
    full = check_symmetric(A, "A")
    if cholmod() is None:
        raise ImportError("selected_inverse needs scikit-sparse: pip install scikit-sparse")
    lower = csc_matrix(tril(full), dtype=np.float64)
    factor = Factor(lower)
    try:
        with np.errstate(invalid="ignore"):  # a simplicial factorization goes on to pivots < 0
            logdet = factor.factorize(0.0)
    except cholmod().CholmodNotPositiveDefiniteError:
        logdet = np.nan
    if not np.isfinite(logdet):
        raise ValueError("A must be positive definite; its Cholesky factorization failed")
    half = lower.tocoo()
    entries = factor.inverse_entries(half.row, half.col)
    if not np.isfinite(entries).all():
        raise ValueError(
            "A must have an inverse that fits in a float; got entries of at most "
            f"{np.abs(half.data).max():g}: rescale it"
        )
    inverse = csc_array((entries, (half.row, half.col)), shape=full.shape)
    return csc_array(inverse + tril(inverse, -1).T)
