"""What a backend offers: log|L_k + r I| of one graph, and what can be had along with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from ._graphs import Components, Pairs, components, degrees


@dataclass(frozen=True)
class Spectrum:
    """What is known of the eigenvalues of a Laplacian without computing any."""

    n: int
    nulls: int  # eigenvalues that are zero: the components of the graph
    top: float  # none is larger: twice the largest degree
    mean: float  # the mean degree

    @classmethod
    def of(cls, pairs: Pairs, k: int, parts: Components) -> Spectrum:
        """Of graph k, whose components are known."""
        degree = degrees(pairs, k)
        return cls(pairs.n, parts.count, 2.0 * max(int(degree.max()), 1), float(degree.mean()))


@dataclass(frozen=True, eq=False)
class Resistances:
    """An anchor A = L_a + r_a I, and what its effective resistances add up to in each graph."""

    logdet: float
    trace: float  # of the inverse of A
    sums: np.ndarray  # rho_k for k = 0..k_max; infinite where the backend does not know it


class Determinants(ABC):
    """The log-determinants of one graph. A backend overrides what it can do beyond `logdet`."""

    backend: str
    free_ratios = False  # after the first ratio others cost next to nothing

    def __init__(self, pairs: Pairs, k: int) -> None:
        self._pairs, self._k = pairs, k
        self._components = components(pairs, k)
        self.spectrum = Spectrum.of(pairs, k, self._components)

    @abstractmethod
    def logdet(self, ratio: float) -> float:
        """log|L + ratio I|."""

    @abstractmethod
    def trace_inverse(self, ratio: float) -> float:
        """tr (L + ratio I)^-1, the derivative of `logdet`."""

    def logdets(self, ratios: np.ndarray) -> np.ndarray:
        """log|L + r I| at each ratio r."""
        return np.array([self.logdet(ratio) for ratio in ratios.tolist()])

    def peak(self, norm: float, roughness: float, bounds: tuple[float, float]) -> float | None:
        """The r within the bounds at which log|L + r I| - n log(roughness + r norm) peaks.

        None where it takes a search, each step of which costs a determinant.
        """
        return None

    def resistance_sums(self, ratio: float) -> Resistances | None:
        """The anchor L + ratio I; None where a backend has none, or no room for it."""
        return None
