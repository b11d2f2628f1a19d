"""Exact log|L_k + r I|: LAPACK on dense matrices, CHOLMOD or SuperLU on sparse ones.

The only file that imports scikit-sparse. A backend is opened once per graph and asked for any number
of ratios r:

- "lapack": one r is a Cholesky factorization; for several, the Laplacian is reduced to tridiagonal
  form once and every r costs O(n);
- "cholmod": one symbolic analysis, then a numeric factorization for each r (the shift is CHOLMOD's
  ``beta``), through scikit-sparse 0.4 or 0.5;
- "superlu": SciPy's LU in symmetric mode, for installs without scikit-sparse.
"""

from __future__ import annotations

import functools

import numpy as np
from scipy.sparse import csc_array, csc_matrix, eye_array, tril

from ._blas import Blas, cholesky, cholesky_inverse, tridiagonalize
from ._graphs import Pairs, components, dense_laplacian, sparse_laplacian
from ._jit import kernel
from ._validation import check_memory, free_memory

BACKENDS = ("auto", "lapack", "cholmod", "superlu")

# When LAPACK and when CHOLMOD.
_DENSE_SIZE = 400
_DENSE_SHARE = 0.05  # edges over n^2
_SPARSE_PRICE = 2.0  # a CHOLMOD multiplication takes as long as so many of LAPACK's
_DENSE_BYTES = 10.0  # an n x n matrix of doubles and some room


@functools.cache
def cholmod():
    """scikit-sparse's CHOLMOD module, None where it is not installed."""
    try:
        import sksparse.cholmod
    except ImportError:
        return None
    return sksparse.cholmod


@functools.cache
def cholmod_blas() -> Blas:
    """The BLAS under CHOLMOD."""
    return Blas(cholmod().__file__)


def sparse_backend() -> str:
    """The backend that sparse graphs use here."""
    return "superlu" if cholmod() is None else "cholmod"


# ---------------------------------------------------------------------------------------------
# LAPACK


class Dense:
    """log|L + r I| of one graph by LAPACK; `many` says that more than one r will be asked for.

    L is singular: its null vectors are the indicators 1_c of the connected components c. Factorizing
    L + r I at r = 1e-6 as it stands would lose half the digits to their eigenvalue, which is r and
    known. So L is lifted to L + lift * sum_c 1_c 1_c'/|c|, in which that eigenvalue is lift + r, and
    each component's log(lift + r) is traded for log r at the end.
    """

    backend = "lapack"

    def __init__(self, pairs: Pairs, k: int, many: bool) -> None:
        self._pairs, self._k = pairs, k
        self._components = components(pairs, k)
        self._lift = 2.0 * pairs.count[k] / pairs.n  # the mean degree, so within the spectrum
        self._tridiagonal = tridiagonalize(self._lifted()) if many else None

    @property
    def logdet_and_trace(self) -> tuple:
        """What `best_ratio` needs to know about log|L + r I| for every r."""
        return (*self._tridiagonal, self._components.count, self._lift)

    def logdet(self, ratio: float) -> float:
        """log|L + ratio I|."""
        if self._tridiagonal is not None:
            return shifted_logdet(*self.logdet_and_trace, ratio)[0]
        return self._factorize(ratio)[0]

    def logdet_and_inverse(self, ratio: float) -> tuple[float, float, np.ndarray]:
        """log|A|, tr A^-1 and A^-1 (its lower triangle) for A = L + ratio I.

        In the inverse the null vectors keep the eigenvalue 1/(ratio + lift): that changes no
        resistance within a component, and `resistance_gap` is what one between components lacks.
        """
        logdet, matrix = self._factorize(ratio)
        cholesky_inverse(matrix)
        trace = float(np.trace(matrix)) + self._components.count * self._null_gap(ratio)
        return logdet, trace, matrix

    def resistance_gap(self, ratio: float) -> np.ndarray | None:
        """For each point, what its half of a resistance to another component lacks."""
        if self._components.count == 1:
            return None
        return self._null_gap(ratio) / self._components.size

    @property
    def component_label(self) -> np.ndarray:
        """Component of each point."""
        return self._components.label

    def trace_inverse(self, ratio: float) -> float:
        """tr (L + ratio I)^-1."""
        if self._tridiagonal is not None:
            return shifted_logdet(*self.logdet_and_trace, ratio)[1]
        return self.logdet_and_inverse(ratio)[1]

    def _null_gap(self, ratio: float) -> float:
        return 1.0 / ratio - 1.0 / (ratio + self._lift)

    def _lifted(self) -> np.ndarray:
        matrix = dense_laplacian(self._pairs, self._k)
        _lift_components(matrix, self._components.label, self._lift / self._components.size)
        return matrix

    def _factorize(self, ratio: float) -> tuple[float, np.ndarray]:
        matrix = self._lifted()
        matrix.flat[:: len(matrix) + 1] += ratio
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
def shifted_logdet(diagonal, beside, components, lift, ratio):
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


# ---------------------------------------------------------------------------------------------
# Sparse


class _Grounded:
    """log|L + r I| of one graph from sparse factorizations of a well-conditioned part of it.

    The same trouble as in `Dense`, and another remedy, since lifting would fill the matrix: one
    vertex of each component is left out. With M the rest of L + r I and x = M^-1 1, the Schur
    complement of the vertex left out of component c is r (|c| - r sum of x over c), so

        log|L + r I| = log|M| + sum_c [ log r + log(|c| - r sum_c x) ].
    """

    def __init__(self, pairs: Pairs, k: int) -> None:
        self._components = components(pairs, k)
        laplacian = sparse_laplacian(pairs, k)
        # the best-connected vertex: the one whose loss leaves the least fill
        order = np.lexsort((-laplacian.diagonal(), self._components.label))
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

    def _ones(self) -> np.ndarray:
        return np.ones(self._matrix.shape[0])

    def _sums(self, values: np.ndarray) -> np.ndarray:
        return np.bincount(self._label, values, minlength=self._components.count)

    def _trace_of_part(self, block: int = 128) -> float:
        n = self._matrix.shape[0]
        total = 0.0
        for start in range(0, n, block):
            width = min(block, n - start)
            unit = np.zeros((n, width), order="F")
            unit[start + np.arange(width), np.arange(width)] = 1.0
            total += float(np.trace(self._solve(unit)[start : start + width]))
        return total


# METIS made the numeric factorization of k-NN graphs 2 to 4 times faster than AMD from this size on;
# below it, the ordering itself costs more than it saves.
_METIS_SIZE = 4_000


class Cholmod(_Grounded):
    """CHOLMOD through scikit-sparse 0.4 or 0.5: one analysis, then a factorization for each r."""

    backend = "cholmod"

    def _analyze(self) -> None:
        order = "metis" if self._matrix.shape[0] >= _METIS_SIZE else "amd"
        module = cholmod()
        if hasattr(module, "analyze"):  # scikit-sparse 0.4
            self._factor = module.analyze(self._matrix, ordering_method=order)
            self._refactor = self._factor.cholesky_inplace
            self._solve = self._factor.solve_A
            permutation = self._factor.P()
        else:
            self._factor = module.CholeskyFactor(self._matrix, lower=True, order=order)
            self._refactor = self._factor.factorize
            self._solve = self._factor.solve
            permutation = self._factor.get_perm()
        self.fill, self.flops = fill_and_flops(self._matrix, permutation)

    def _factorize(self, ratio: float) -> float:
        check_memory(
            12.0 * self.fill,
            f"the Cholesky factor of this graph ({self.fill:.3g} entries)",
            "lower k_max, or the number of points",
        )
        self._refactor(self._matrix, beta=ratio)
        return float(self._factor.logdet())


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


# ---------------------------------------------------------------------------------------------
# Which backend


def open_graph(pairs: Pairs, k: int, many: bool, backend: str = "auto") -> Dense | _Grounded:
    """The log-determinants of graph k; `many` says that more than one ratio will be asked for."""
    if backend == "lapack":
        return _open_dense(pairs, k, many)
    if backend == "cholmod":
        return Cholmod(pairs, k)
    if backend == "superlu":
        return SuperLU(pairs, k)
    if surely_dense(pairs, k):
        return _open_dense(pairs, k, many)
    if sparse_backend() == "superlu":
        return SuperLU(pairs, k)
    sparse = Cholmod(pairs, k)
    if sparse.flops * _SPARSE_PRICE > pairs.n**3 / 3 and _dense_fits(pairs.n):
        return _open_dense(pairs, k, many)
    return sparse


def surely_dense(pairs: Pairs, k: int) -> bool:
    """Whether LAPACK wins without asking for the fill: few points, or many edges a point."""
    n = pairs.n
    return n <= _DENSE_SIZE or (pairs.count[k] > _DENSE_SHARE * n * n and _dense_fits(n))


def _open_dense(pairs: Pairs, k: int, many: bool) -> Dense:
    check_memory(
        _DENSE_BYTES * pairs.n**2,
        f"a dense factorization of {pairs.n} points",
        "lower k_max, so that the graph stays sparse, or the number of points",
    )
    return Dense(pairs, k, many)


def _dense_fits(n: int) -> bool:
    free = free_memory()
    return free is None or _DENSE_BYTES * n * n < free
