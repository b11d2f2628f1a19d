"""log|L_k + r I| of graphs with many edges: LAPACK on dense matrices.

L is singular: its null vectors are the indicators 1_c of the connected components c. Factorizing
L + r I at r = 1e-6 as it stands would lose half the digits to their eigenvalue, which is r and
known. So L is lifted to L + lift * sum_c 1_c 1_c'/|c|, in which that eigenvalue is lift + r, and
each component's log(lift + r) is traded for log r at the end.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from ._determinants import Determinants, Resistances
from ._graphs import Pairs, fill_laplacian, resistance_sums
from ._jit import kernel
from ._lapack import cholesky, cholesky_inverse, tridiagonalize
from ._search import climb, known_end


class _Lifted(Determinants):
    """A graph as a dense matrix."""

    backend = "lapack"

    def __init__(self, pairs: Pairs, k: int) -> None:
        super().__init__(pairs, k)
        self._lift = 2.0 * pairs.count[k] / pairs.n  # the mean degree, so within the spectrum

    def _fill(self, matrix: np.ndarray) -> None:
        parts = self._components
        fill_laplacian(self._pairs, self._k, matrix, self._lift / parts.size, parts)


class Cholesky(_Lifted):
    """A factorization for each r."""

    def __init__(self, pairs: Pairs, k: int) -> None:
        super().__init__(pairs, k)
        self._matrix = np.empty((pairs.n, pairs.n))

    def logdet(self, ratio: float) -> float:
        """log|L + ratio I|."""
        self._fill(self._matrix)
        self._matrix.flat[:: len(self._matrix) + 1] += ratio
        cholesky(self._matrix)
        lifted = 2.0 * float(np.log(np.diagonal(self._matrix)).sum())
        null = math.log(ratio) - math.log(ratio + self._lift)
        return lifted + self._components.count * null

    def trace_inverse(self, ratio: float) -> float:
        """tr (L + ratio I)^-1."""
        return self._invert(ratio)[1]

    def resistance_sums(self, ratio: float) -> Resistances:
        """The anchor L + ratio I, and its resistances summed over every graph.

        In the lifted inverse the null vectors of L have the eigenvalue 1/(ratio + lift) and not
        1/ratio. That changes no resistance within a component; one between the components c and d
        lacks ``gap[c] + gap[d]``.
        """
        logdet, trace = self._invert(ratio)
        parts = self._components
        sums = resistance_sums(
            self._pairs, self._matrix, parts.label, self._gap(ratio) / parts.size
        )
        return Resistances(logdet, trace, sums)

    def _gap(self, ratio: float) -> float:
        return 1.0 / ratio - 1.0 / (ratio + self._lift)

    def _invert(self, ratio: float) -> tuple[float, float]:
        """log|L + ratio I| and the trace of its inverse; the lifted inverse is left behind."""
        logdet = self.logdet(ratio)
        cholesky_inverse(self._matrix)
        return logdet, float(np.trace(self._matrix)) + self._components.count * self._gap(ratio)


class Tridiagonal(_Lifted):
    """One reduction to tridiagonal form; then every r costs O(n)."""

    free_ratios = True

    def __init__(self, pairs: Pairs, k: int) -> None:
        super().__init__(pairs, k)
        matrix = np.empty((pairs.n, pairs.n))
        self._fill(matrix)
        self._form = (*tridiagonalize(matrix), self._components.count, self._lift)

    def logdet(self, ratio: float) -> float:
        """log|L + ratio I|."""
        return _shifted_logdet(*self._form, ratio)[0]

    def logdets(self, ratios: np.ndarray) -> np.ndarray:
        """log|L + r I| at each ratio r."""
        return _shifted_logdets(*self._form, ratios)

    def trace_inverse(self, ratio: float) -> float:
        """tr (L + ratio I)^-1."""
        return _shifted_logdet(*self._form, ratio)[1]

    def peak(self, norm: float, roughness: float, bounds: tuple[float, float]) -> float:
        """The r within the bounds at which log|L + r I| - n log(roughness + r norm) peaks."""
        end = known_end(self.spectrum, norm, roughness, bounds)
        if end is not None:
            return end
        return climb(functools.partial(_slope, *self._form, norm, roughness), bounds, 1e-11)


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
