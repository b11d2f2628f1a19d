"""Exact log|L_k + r I|: LAPACK on dense matrices, CHOLMOD or SuperLU on sparse ones.

The only file that imports scikit-sparse. A backend is opened once per graph and asked for any
number of ratios r:

- "lapack": one r is a Cholesky factorization; for several, the Laplacian is reduced to tridiagonal
  form once and every r costs O(n);
- "cholmod": one symbolic analysis, then a numeric factorization for each r (the shift is CHOLMOD's
  ``beta``), through scikit-sparse 0.4 or 0.5;
- "superlu": SciPy's LU in symmetric mode, for installs without scikit-sparse.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csc_array, csc_matrix, eye_array, sparray, spmatrix, tril

from ._graphs import Pairs, components, dense_laplacian, sparse_laplacian
from ._inverse import inverse_entries
from ._jit import kernel
from ._lapack import cholesky, cholesky_inverse, tridiagonalize
from ._search import Climb
from ._threads import blas_threads_for, cholmod_blas
from ._validation import check_memory, check_symmetric, free_memory

BACKENDS = ("auto", "lapack", "cholmod", "superlu")

# When LAPACK and when CHOLMOD, by benchmarks/evidence.py --backends. A sweep over r at one k takes
# CHOLMOD (analysis and 8 factorizations) as long as LAPACK (one reduction) at 1 % of the dense
# multiplications for n = 400, 10 % for n = 800, 20 % for n = 1,600 and 55 % for n = 3,200.
_DENSE_SIZE = 600
_DENSE_SHARE = 0.05  # edges over n^2
_SPARSE_PRICE = 8_000.0  # over n: a CHOLMOD multiplication takes as long as so many of LAPACK's
_DENSE_BYTES = 10.0  # an n x n matrix of doubles and some room


@functools.cache
def cholmod():
    """scikit-sparse's CHOLMOD module, None where it is not installed."""
    try:
        import sksparse.cholmod
    except ImportError:
        return None
    return sksparse.cholmod


def sparse_backend() -> str:
    """The backend that sparse graphs use here."""
    return "superlu" if cholmod() is None else "cholmod"


# ---------------------------------------------------------------------------------------------
# LAPACK


@dataclass(frozen=True, eq=False)
class Anchor:
    """A = L_a + r_a I inverted.

    In `inverse` the null vectors of L_a have the eigenvalue 1/(r_a + lift) and not 1/r_a (see
    `Dense`). That changes no resistance within a component; one between the components c and d
    lacks ``gap[c] + gap[d]``.
    """

    logdet: float
    trace: float
    inverse: np.ndarray  # the lower triangle
    label: np.ndarray  # component of each point
    gap: np.ndarray  # of each component
    null: float  # 1/(r_a + lift)


class Scratch:
    """A matrix to work in, for one graph after the other; a new one is paged in for each graph."""

    def __init__(self) -> None:
        self._matrix = np.empty((0, 0))

    def matrix(self, n: int) -> np.ndarray:
        """An n x n matrix of anything."""
        if len(self._matrix) != n:
            self._matrix = np.empty((n, n))
        return self._matrix


class Dense:
    """log|L + r I| of one graph by LAPACK; `many` says that more than one r will be asked for.

    L is singular: its null vectors are the indicators 1_c of the connected components c.
    Factorizing L + r I at r = 1e-6 as it stands would lose half the digits to their eigenvalue,
    which is r and known. So L is lifted to L + lift * sum_c 1_c 1_c'/|c|, in which that eigenvalue
    is lift + r, and each component's log(lift + r) is traded for log r at the end.
    """

    backend = "lapack"

    def __init__(self, pairs: Pairs, k: int, many: bool, scratch: Scratch | None = None) -> None:
        self._pairs, self._k = pairs, k
        self._components = components(pairs, k)
        self._lift = 2.0 * pairs.count[k] / pairs.n  # the mean degree, so within the spectrum
        self._tridiagonal = None
        if many:
            with blas_threads_for(pairs.n):
                out = None if scratch is None else scratch.matrix(pairs.n)
                self._tridiagonal = tridiagonalize(self._lifted(out))

    def logdet(self, ratio: float) -> float:
        """log|L + ratio I|."""
        if self._tridiagonal is not None:
            return _shifted_logdet(*self._spectrum, ratio)[0]
        return self._factorize(ratio)[0]

    def logdets(self, ratios: np.ndarray) -> np.ndarray:
        """log|L + r I| at each ratio r, if opened for many."""
        return _shifted_logdets(*self._spectrum, ratios)

    def peak(
        self, norm: float, roughness: float, low: float, high: float, start: float | None = None
    ) -> tuple[float, float]:
        """The r in [low, high] at which log|L + r I| - n log(roughness + r norm) peaks, and log|.|.

        `start` is not needed: any number of r costs next to nothing here.
        """
        ratio = _climb(*self._spectrum, norm, roughness, np.log(low), np.log(high))
        ratio = low if ratio == 0.0 else high if ratio == np.inf else min(max(ratio, low), high)
        return ratio, self.logdet(ratio)

    @property
    def _spectrum(self) -> tuple:
        return (*self._tridiagonal, self._components.count, self._lift)

    def anchor(self, ratio: float) -> Anchor:
        """The inverse of L + ratio I, and what bounds on other graphs need besides."""
        logdet, matrix = self._factorize(ratio)
        with blas_threads_for(len(matrix)):
            cholesky_inverse(matrix)
        gap = 1.0 / ratio - 1.0 / (ratio + self._lift)
        return Anchor(
            logdet=logdet,
            trace=float(np.trace(matrix)) + self._components.count * gap,
            inverse=matrix,
            label=self._components.label,
            gap=gap / self._components.size,
            null=1.0 / (ratio + self._lift),
        )

    def trace_inverse(self, ratio: float) -> float:
        """tr (L + ratio I)^-1."""
        if self._tridiagonal is not None:
            return _shifted_logdet(*self._spectrum, ratio)[1]
        return self.anchor(ratio).trace

    def _lifted(self, out: np.ndarray | None = None) -> np.ndarray:
        matrix = dense_laplacian(self._pairs, self._k, out)
        _lift_components(matrix, self._components.label, self._lift / self._components.size)
        return matrix

    def _factorize(self, ratio: float) -> tuple[float, np.ndarray]:
        matrix = self._lifted()
        matrix.flat[:: len(matrix) + 1] += ratio
        with blas_threads_for(len(matrix)):
            cholesky(matrix)
        lifted = 2.0 * float(np.log(np.diagonal(matrix)).sum())
        null = np.log(ratio) - np.log(ratio + self._lift)
        return lifted + self._components.count * float(null), matrix


@kernel
def _lift_components(matrix, label, lift):
    if lift.shape[0] == 1:
        for i in range(matrix.shape[0]):
            matrix[i, : i + 1] += lift[0]
        return
    for i in range(matrix.shape[0]):
        for j in range(i + 1):
            if label[i] == label[j]:
                matrix[i, j] += lift[label[i]]


@kernel
def _shifted_logdet(diagonal, beside, components, lift, ratio):
    """log|L + ratio I| and its derivative tr (L + ratio I)^-1, from the lifted tridiagonal form."""
    pivot = diagonal[0] + ratio
    slope = 1.0  # of the pivot
    product = pivot  # several pivots share one logarithm
    logdet = 0.0
    trace = slope / pivot
    for i in range(1, diagonal.shape[0]):
        share = beside[i - 1] / pivot
        pivot = diagonal[i] + ratio - share * beside[i - 1]
        slope = 1.0 + share * share * slope
        trace += slope / pivot
        product *= pivot
        if product > 1e200 or product < 1e-200:
            logdet += np.log(product)
            product = 1.0
    logdet += np.log(product) + components * (np.log(ratio) - np.log(ratio + lift))
    trace += components * (1.0 / ratio - 1.0 / (ratio + lift))
    return logdet, trace


@kernel
def _shifted_logdets(diagonal, beside, components, lift, ratios):
    out = np.empty(ratios.shape[0])
    for a in range(ratios.shape[0]):
        out[a] = _shifted_logdet(diagonal, beside, components, lift, ratios[a])[0]
    return out


@kernel
def _climb(diagonal, beside, components, lift, norm, roughness, low, high):
    """The r at the peak in low <= log r <= high; 0 or inf where the peak is at an end.

    The slope changes its sign once, from plus to minus, so it is enclosed: secants (Illinois) with
    a bisection now and then, since a far-off end slows secants down.
    """
    left, right = low, high
    slope_left = _slope(diagonal, beside, components, lift, norm, roughness, left)
    if slope_left <= 0.0:
        return 0.0
    slope_right = _slope(diagonal, beside, components, lift, norm, roughness, right)
    if slope_right >= 0.0:
        return np.inf
    side = 0
    middle = 0.5 * (left + right)
    for step in range(200):
        if right - left < 1e-11:
            break
        if step % 3 == 2:
            middle = 0.5 * (left + right)
        else:
            middle = (left * slope_right - right * slope_left) / (slope_right - slope_left)
        slope = _slope(diagonal, beside, components, lift, norm, roughness, middle)
        if slope == 0.0:
            break
        if slope > 0.0:
            left, slope_left = middle, slope
            if side == 1:
                slope_right *= 0.5
            side = 1
        else:
            right, slope_right = middle, slope
            if side == -1:
                slope_left *= 0.5
            side = -1
    return np.exp(middle)


@kernel
def _slope(diagonal, beside, components, lift, norm, roughness, log_ratio):
    """Derivative of log|L + r I| - n log(roughness + r norm) in log r.

    Two forms of the same difference: with the trace of r (L + r I)^-1, or of L (L + r I)^-1, which
    alone has any digits left where r is large.
    """
    ratio = np.exp(log_ratio)
    n = diagonal.shape[0]
    share = ratio * norm / (roughness + ratio * norm)
    if share <= 0.5:
        return ratio * _shifted_logdet(diagonal, beside, components, lift, ratio)[1] - n * share
    rest = _rest_of_trace(diagonal, beside, components, lift, ratio)
    return n * roughness / (roughness + ratio * norm) - rest


@kernel
def _rest_of_trace(diagonal, beside, components, lift, ratio):
    """tr L (L + ratio I)^-1 = n - ratio tr (L + ratio I)^-1, without that subtraction."""
    pivot = diagonal[0] + ratio
    slope = 1.0
    rest = diagonal[0] / pivot
    for i in range(1, diagonal.shape[0]):
        share = beside[i - 1] / pivot
        graph = diagonal[i] - share * beside[i - 1]  # pivot - ratio
        loss = share * share * slope  # slope - 1
        pivot = graph + ratio
        slope = 1.0 + loss
        rest += (graph - ratio * loss) / pivot
    return rest - components * (lift / (ratio + lift))


# ---------------------------------------------------------------------------------------------
# Sparse


class _Grounded:
    """log|L + r I| of one graph from sparse factorizations of a well-conditioned part of it.

    The same trouble as in `Dense`, and another remedy, since lifting would fill the matrix: one
    vertex of each component is left out. With M the rest of L + r I and x = M^-1 1, the Schur
    complement of the vertex left out of component c is r (|c| - r sum of x over c), so

        log|L + r I| = log|M| + sum_c [ log r + log(|c| - r sum_c x) ].
    """

    def __init__(self, pairs: Pairs, k: int, order: str | None = None) -> None:
        self.n, self._pairs, self._k = pairs.n, pairs, k
        self._components = components(pairs, k)
        self._order = order  # "natural" where the points are in a fill-reducing order already
        laplacian = sparse_laplacian(pairs, k)
        self._degrees = laplacian.diagonal()
        # the best-connected vertex: the one whose loss leaves the least fill
        order = np.lexsort((-self._degrees, self._components.label))
        firsts = np.concatenate([[0], np.cumsum(self._components.size)[:-1]])
        self._kept = np.ones(pairs.n, np.bool_)
        self._kept[order[firsts]] = False
        self._label = self._components.label[self._kept]
        self._matrix = csc_matrix(laplacian[self._kept][:, self._kept], dtype=np.float64)
        if self._matrix.shape[0]:
            self._analyze()

    def logdet(self, ratio: float) -> float:
        """log|L + ratio I|."""
        null = self._components.count * np.log(ratio)
        if not self._matrix.shape[0]:
            return float(null)
        part = self._factorize(ratio)
        rest = self._components.size - ratio * self._sums(self._solve(self._ones()))
        return float(part + null + np.log(rest).sum())

    def trace_inverse(self, ratio: float) -> float:
        """tr (L + ratio I)^-1, the derivative of `logdet`."""
        null = self._components.count / ratio
        if not self._matrix.shape[0]:
            return null
        self._factorize(ratio)
        x = self._solve(self._ones())
        sums, squares = self._sums(x), self._sums(x * x)
        slope = (ratio * squares - sums) / (self._components.size - ratio * sums)
        return self._trace_of_part() + null + float(slope.sum())

    def peak(
        self, norm: float, roughness: float, low: float, high: float, start: float | None = None
    ) -> tuple[float, float]:
        """The r in [low, high] at which log|L + r I| - n log(roughness + r norm) peaks, and log|.|.

        A `start` near the peak saves factorizations.
        """
        climb = self.climb(norm, roughness, low, high, start)
        climb.run(self.logdet)
        return climb.ratio, climb.logdet

    def climb(
        self, norm: float, roughness: float, low: float, high: float, start: float | None = None
    ) -> Climb:
        """The search for that peak, not begun yet."""
        return Climb(self._degrees, norm, roughness, low, high, start)

    def _ones(self) -> np.ndarray:
        return np.ones(self._matrix.shape[0])

    def _sums(self, values: np.ndarray) -> np.ndarray:
        return np.bincount(self._label, values, minlength=self._components.count)

    def _trace_of_part(self, block: int = 128) -> float:
        """tr M^-1, by solves with the columns of the identity."""
        n = self._matrix.shape[0]
        total = 0.0
        for start in range(0, n, block):
            width = min(block, n - start)
            unit = np.zeros((n, width), order="F")
            unit[start + np.arange(width), np.arange(width)] = 1.0
            total += float(np.trace(self._solve(unit)[start : start + width]))
        return total


# AMD orders in a third of METIS's time. With four to eight factorizations in the order found, the
# whole took 0.3 to 1.0 of the time with METIS below 30,000 multiplications a point (2-D up to
# k = 10 at n = 100,000 and 300,000, 3-D up to k = 5 at 10,000), 1.2 to 2.2 above 100,000 (3-D from
# k = 7 on), and about the same between.
_METIS_FLOPS = 50_000.0
_INVERSE_BYTES = 45.0  # for each entry of the factor, seen at n = 100,000 in 3-D


class _CholmodFactor:
    """A CHOLMOD factorization, through scikit-sparse 0.4 or 0.5."""

    def __init__(self, lower: csc_matrix, order: str | None = None) -> None:
        self._matrix = lower  # its lower triangle is all that CHOLMOD reads
        self._analyze(order or "amd")
        if order is None and self.flops > _METIS_FLOPS * lower.shape[0]:
            self._analyze("metis")

    def _analyze(self, order: str) -> None:
        self.order = order
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

    def factorize(self, shift: float) -> None:
        """Factorize the matrix plus shift on its diagonal."""
        check_memory(
            12.0 * self.fill,
            f"the Cholesky factor of this matrix ({self.fill:.3g} entries)",
            "lower k_max, or the number of points",
        )
        # SuiteSparse 5 starts four OpenMP threads for each supernode, to copy a few columns;
        # without them, k = 20 in 2-D took 0.021 s instead of 0.067 s at n = 10,000, and 0.34 s
        # instead of 0.50 s at n = 100,000
        with cholmod_blas().without_openmp():
            if self._old:
                self._factor.cholesky_inplace(self._matrix, beta=shift)
            else:
                self._factor.factorize(self._matrix, beta=shift)

    def logdet(self) -> float:
        """log of the determinant."""
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
        place = np.empty(len(self.permutation), np.int64)
        place[self.permutation] = np.arange(len(place))
        return inverse_entries(lower.indptr, lower.indices, lower.data, place[rows], place[columns])


class Cholmod(_Grounded):
    """CHOLMOD: one analysis, then a factorization for each r."""

    backend = "cholmod"

    def _analyze(self) -> None:
        self._factor = _CholmodFactor(self._matrix, self._order)
        self._solve = self._factor.solve
        self.flops = self._factor.flops
        self.order = self._factor.order

    def inverse_fits(self) -> bool:
        """Whether there is memory for `resistances`."""
        free = free_memory()
        return free is None or self._factor.inverse_bytes < free

    def reorder(self, pairs: Pairs) -> Pairs:
        """The same pairs with the points renumbered in this graph's fill-reducing order."""
        kept = np.flatnonzero(self._kept)[self._factor.permutation]
        order = np.concatenate([kept, np.flatnonzero(~self._kept)])
        place = np.empty(pairs.n, np.int32)
        place[order] = np.arange(pairs.n, dtype=np.int32)
        return replace(pairs, rows=place[pairs.rows], columns=place[pairs.columns])

    def _factorize(self, ratio: float) -> float:
        self._factor.factorize(ratio)
        return self._factor.logdet()

    def _trace_of_part(self) -> float:
        everyone = np.arange(self._matrix.shape[0])
        return float(self._factor.inverse_entries(everyone, everyone).sum())

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

    def _analyze(self) -> None:
        self._matrix = csc_array(self._matrix + tril(self._matrix, -1).T)
        self._identity = eye_array(self._matrix.shape[0], format="csc")

    def _factorize(self, ratio: float) -> float:
        from scipy.sparse.linalg import splu

        factor = splu(
            csc_array(self._matrix + ratio * self._identity),
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
        self._solve = factor.solve
        return float(np.log(np.abs(factor.U.diagonal())).sum())


def fill_and_flops(lower: csc_matrix, permutation: np.ndarray) -> tuple[int, float]:
    """Entries of the Cholesky factor under a permutation, and the multiplications it takes."""
    full = (lower + tril(lower, -1).T).tocsr()
    permuted = full[permutation][:, permutation]
    counts = _column_counts(permuted.indptr, permuted.indices)
    return int(counts.sum()), float((counts.astype(np.float64) ** 2).sum())


@kernel
def _column_counts(starts, indices):
    """Entries in each column of the Cholesky factor of a symmetric pattern.

    Row i of the factor is the part of the elimination tree reached from the entries of row i.
    """
    n = starts.shape[0] - 1
    parent = np.full(n, -1, np.int64)
    seen = np.full(n, -1, np.int64)
    counts = np.ones(n, np.int64)
    for i in range(n):
        seen[i] = i
        for e in range(starts[i], starts[i + 1]):
            j = np.int64(indices[e])
            if j > i:
                continue
            while seen[j] != i:
                if parent[j] < 0:
                    parent[j] = i
                counts[j] += 1
                seen[j] = i
                j = parent[j]
    return counts


def selected_inverse(A: sparray | spmatrix) -> csc_array:
    """Compute the entries of a sparse inverse where the matrix itself has entries.

    Parameters
    ----------
    A : sparse array, shape (n, n)
        Symmetric and positive definite.

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
        raise ImportError("selected_inverse needs scikit-sparse: pip install mksknn[cholmod]")
    lower = csc_matrix(tril(full), dtype=np.float64)
    factor = _CholmodFactor(lower)
    try:
        factor.factorize(0.0)
        with np.errstate(invalid="ignore"):  # a simplicial factorization goes on to pivots < 0
            logdet = factor.logdet()
    except cholmod().CholmodNotPositiveDefiniteError:
        logdet = np.nan
    if not np.isfinite(logdet):
        raise ValueError("A must be positive definite; its Cholesky factorization failed")
    half = lower.tocoo()
    entries = factor.inverse_entries(half.row, half.col)
    inverse = csc_array((entries, (half.row, half.col)), shape=full.shape)
    return csc_array(inverse + tril(inverse, -1).T)


# ---------------------------------------------------------------------------------------------
# Which backend


def open_graph(
    pairs: Pairs, k: int, many: bool, backend: str = "auto", scratch: Scratch | None = None
) -> Dense | _Grounded:
    """The log-determinants of graph k; `many` says that more than one ratio will be asked for."""
    if backend == "lapack":
        return _open_dense(pairs, k, many, scratch)
    if backend == "cholmod":
        if cholmod() is None:
            raise ImportError("backend='cholmod' needs scikit-sparse: pip install mksknn[cholmod]")
        return Cholmod(pairs, k)
    if backend == "superlu":
        return SuperLU(pairs, k)
    if surely_dense(pairs, k):
        return _open_dense(pairs, k, many, scratch)
    if sparse_backend() == "superlu":
        return SuperLU(pairs, k)
    sparse = Cholmod(pairs, k)
    if _price(sparse) > pairs.n**3 / 3 and _dense_fits(pairs.n):
        return _open_dense(pairs, k, many, scratch)
    return sparse


# Falling k share a fill-reducing order down to this part of the k it was found for. With three
# factorizations at each k, k = 14 in the order of k = 20 took 0.45 (n = 100,000, 2-D, symmetric),
# 0.8 (10,000, 3-D, symmetric) and 1.15 (31,623, 3-D, mutual) of its time in an order of its own,
# k = 10 0.55, 0.8 and 1.3, k = 6 0.7, 1.2 and 2.7.
_REACH = 0.7


class Opener:
    """`open_graph` for falling k, neighbours in one fill-reducing order."""

    def __init__(self, pairs: Pairs, many: bool, backend: str = "auto") -> None:
        options = {"many": many, "backend": backend, "scratch": Scratch()}
        self._open = functools.partial(open_graph, pairs, **options)
        self._pairs = pairs
        self._shared: tuple[int, Pairs] | None = None  # a k, and the points in its order

    def open(self, k: int) -> tuple[Dense | _Grounded, Callable[[], Dense | _Grounded]]:
        """Graph k, and a function that opens it again in the same order."""
        if self._shared is not None and k >= _REACH * self._shared[0]:
            again = functools.partial(Cholmod, self._shared[1], k, order="natural")
            return again(), again
        opened, self._shared = self._open(k), None
        if not isinstance(opened, Cholmod):
            return opened, functools.partial(self._open, k)
        self._shared = k, opened.reorder(self._pairs)
        return opened, functools.partial(Cholmod, self._shared[1], k, order="natural")


def surely_dense(pairs: Pairs, k: int) -> bool:
    """Whether LAPACK wins without asking for the fill: few points, or many edges a point."""
    n = pairs.n
    return n <= _DENSE_SIZE or (pairs.count[k] > _DENSE_SHARE * n * n and _dense_fits(n))


def sparse_price(pairs: Pairs, k: int) -> float:
    """What a sparse factorization of graph k costs, in multiplications of LAPACK that fits."""
    if not _dense_fits(pairs.n):
        return 0.0
    if sparse_backend() == "superlu":
        return math.inf  # too slow to be worth it where a dense one fits
    return _price(Cholmod(pairs, k))


def _price(sparse: Cholmod) -> float:
    return _SPARSE_PRICE / sparse.n * sparse.flops


def _open_dense(pairs: Pairs, k: int, many: bool, scratch: Scratch | None) -> Dense:
    check_memory(
        _DENSE_BYTES * pairs.n**2,
        f"a dense factorization of {pairs.n} points",
        "lower k_max, so that the graph stays sparse, or the number of points",
    )
    return Dense(pairs, k, many, scratch)


def _dense_fits(n: int) -> bool:
    free = free_memory()
    return free is None or _DENSE_BYTES * n * n < free
