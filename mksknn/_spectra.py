"""Numbers that stand for the eigenvalues of a Laplacian in sums of logarithms.

Lanczos's method from a vertex i gives a tridiagonal matrix T_i, and Gauss's quadrature bounds
(log(L + r I))_ii by (log(T_i + r I))_11, because even derivatives of the logarithm are negative.
One step from each vertex gives the degrees (Hadamard's inequality), two the local stand-in.

From a random vector, 30 steps give a good idea of all of the spectrum. Nothing is proven of it, and
nothing rests on it but how many factorizations a search takes.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np
from numpy.polynomial import chebyshev
from scipy.linalg import eigh_tridiagonal

from ._graphs import Components, Pairs, components, degrees, join
from ._jit import kernel

_LOCAL_SHARE = 1 / 30  # of n^3: as much work as a tenth of a dense factorization
# Starts were off by a factor of 1.0 to 1.3 with 30 steps (n = 1,000 to 10,000, 2-D to 10-D, k = 2
# to 32), and by up to 3 with 12; a factor of 3 costs two more factorizations.
_STEPS = 30


class StandIn(NamedTuple):
    """Numbers in place of eigenvalues; the weights add up to n."""

    nodes: np.ndarray
    weights: np.ndarray
    power: int = 0  # of Gauss's rule: twice the nodes of a vertex

    def logdet(self, ratio: float) -> float:
        """What stands for log|L + ratio I|."""
        return float((self.weights * np.log(self.nodes + ratio)).sum())

    def logdets(self, ratios: np.ndarray) -> np.ndarray:
        """The same for several ratios."""
        return np.array([self.logdet(ratio) for ratio in ratios.tolist()])

    def fall(self, ratios: np.ndarray) -> np.ndarray:
        """How fast the error of Gauss's rules can fall: r to the power of minus this, up to r.

        The error at a vertex with the nodes u is e(r) = integral over t > r of g(t), where

            g(t) = sum over x of a positive number / ((x + t) times the product of (u + t)^2),

        so that g(t) >= g(s) (s/t) ((u0 + s) / (u0 + t))^power for t > s, u0 being the lowest node,
        and - de/dlog r is at most e over the integral of that (docs/theory). Where a node is 0 the
        rule is exact, there being no eigenvalue below it.
        """
        nodes = self.nodes[self.nodes > 0.0]
        if not len(nodes):
            return np.zeros(len(ratios))
        return _steepest_fall(nodes.min() / ratios, self.power)


def _steepest_fall(y: np.ndarray, power: int) -> np.ndarray:
    """1 / integral from 1 to infinity of ((y + 1) / (y + u))^power / u, rounded up."""
    known = np.maximum(y, _NEGLIGIBLE)
    ratio = (known + 1.0) / known
    total = ratio**power * np.log1p(known)
    for p in range(1, power):
        total -= ratio ** (power - p) / p
    return np.where(y < _NEGLIGIBLE, float(power), np.minimum((1.0 + 1e-6) / total, power))


_NEGLIGIBLE = 0.1  # below, digits cancel, and the fall is nearly the power


class Foretold:
    """log|L_k + r I| as it will turn out, to a nat or two of thousands.

    What a random vector says is off by what it says wrongly of the first moments of the spectrum,
    which the stand-in that bounds has exactly: by up to 100 nats before, and 0.1 to 3 after a cubic
    is corrected (n = 2,500 and 4,000, 2-D, 4-D and 10-D, k = 4 to 35).
    """

    def __init__(self, pairs: Pairs, k: int, triangles: np.ndarray | None = None) -> None:
        degree = degrees(pairs, k)
        if local_pays(degree):
            self.stand_in = local_stand_in(pairs, k, triangles)
        else:
            self.stand_in = diagonal_stand_in(degree)
        self.random = random_stand_in(pairs, k)
        # a polynomial of one degree less than the derivative in Gauss's error
        self._degree = min(self.stand_in.power - 1, len(self.random.nodes) - 1)
        largest = max(float(one.nodes.max()) for one in (self.stand_in, self.random))
        self._scale = 2.0 / largest if largest else 1.0
        exact, seen = self._moments(self.stand_in), self._moments(self.random)
        self._missing = exact - seen

    def logdets(self, ratios: np.ndarray) -> np.ndarray:
        """What is foretold at each ratio."""
        nodes, weights = self.random.nodes, self.random.weights
        logs = np.log(nodes[:, None] + ratios)
        fitted = chebyshev.chebfit(self._place(nodes), logs, self._degree, w=np.sqrt(weights))
        return weights @ logs + self._missing @ fitted

    def _moments(self, one: StandIn) -> np.ndarray:
        return one.weights @ chebyshev.chebvander(self._place(one.nodes), self._degree)

    def _place(self, nodes: np.ndarray) -> np.ndarray:
        return self._scale * nodes - 1.0


# ---------------------------------------------------------------------------------------------
# Gauss's rule at every vertex


def diagonal_stand_in(degree: np.ndarray) -> StandIn:
    """The degrees of a graph: one Lanczos step from each vertex."""
    counts = np.bincount(degree)
    nodes = np.flatnonzero(counts)
    return StandIn(nodes.astype(np.float64), counts[nodes].astype(np.float64), 2)


def local_pays(degree: np.ndarray) -> bool:
    """Whether two steps from each vertex cost far less than a factorization."""
    return float((degree.astype(np.float64) ** 2).sum()) < _LOCAL_SHARE * len(degree) ** 3


def local_stand_in(pairs: Pairs, k: int, triangles: np.ndarray | None = None) -> StandIn:
    """Two Lanczos steps from each vertex of graph k, whose triangles may be known.

    Nodes are the eigenvalues of the T_i, weights the squares of their vectors' first entries.
    """
    if triangles is None:
        triangles = Triangles(pairs, k).of(k)
    nodes, weights = np.empty((pairs.n, 2)), np.empty((pairs.n, 2))
    _two_steps(*join(pairs, k), degrees(pairs, k), triangles, np.zeros(pairs.n), nodes, weights)
    return StandIn(nodes.ravel(), weights.ravel(), 4)


class Triangles:
    """(W^3)_ii at every vertex i, for each k up to the largest that was asked for.

    Graphs are nested, so those of all k cost no more than the last of them counted alone. (One by
    one, the 86 of a selection among 30,000 points took 21 of its 46 seconds.)
    """

    def __init__(self, pairs: Pairs, k_max: int | None = None) -> None:
        self._pairs = pairs
        self._most = pairs.k_max if k_max is None else k_max  # there is room for
        self._known: dict[int, np.ndarray] = {}
        self._state: tuple[np.ndarray, ...] | None = None
        self._done = 0  # the k that has been reached
        self._lock = threading.Lock()  # of several threads one counts

    def of(self, k: int) -> np.ndarray:
        """Those of graph k."""
        with self._lock:
            if k not in self._known:
                for step in range(self._done + 1, k + 1):
                    self._known[step] = self._grown(step)
                self._done = k
        return self._known[k]

    def known(self, k: int) -> np.ndarray | None:
        """Those of graph k if they have been counted."""
        return self._known.get(k)

    def _grown(self, k: int) -> np.ndarray:
        pairs = self._pairs
        if self._state is None:
            starts = np.concatenate([[0], np.cumsum(degrees(pairs, self._most))])
            ends, weights = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.int32)
            size, mark = np.zeros(pairs.n, np.int64), np.zeros(pairs.n, np.int32)
            self._state = starts, size, ends, weights, mark, np.zeros(pairs.n, np.int64)
        new = slice(pairs.count[k - 1], pairs.count[k])
        _add_triangles(pairs.rows[new], pairs.columns[new], *self._state)
        return self._state[-1].copy()


@kernel
def _add_triangles(rows, columns, starts, size, ends, weights, mark, triangles):
    """Add edges of unit weight one after the other.

    An edge {i, j} brings a walk i j l i, and the same backwards, for each l that both are joined
    to; and so for walks that begin at j or at l.
    """
    for e in range(rows.shape[0]):
        i, j = rows[e], columns[e]
        spot = -1
        for a in range(starts[i], starts[i] + size[i]):
            mark[ends[a]] = weights[a]
            if ends[a] == j:
                spot = a
        common = 0
        back = -1
        for a in range(starts[j], starts[j] + size[j]):
            both = weights[a] * mark[ends[a]]
            if both:
                common += both
                triangles[ends[a]] += 2 * both
            if ends[a] == i:
                back = a
        for a in range(starts[i], starts[i] + size[i]):
            mark[ends[a]] = 0
        triangles[i] += 2 * common
        triangles[j] += 2 * common
        if spot >= 0:
            weights[spot] += 1
            weights[back] += 1
            continue
        a, b = starts[i] + size[i], starts[j] + size[j]
        ends[a], weights[a] = j, 1
        ends[b], weights[b] = i, 1
        size[i] += 1
        size[j] += 1


@kernel
def _two_steps(starts, ends, degrees, triangles, weight, nodes, weights):
    """T_i = [[d_i, b], [b, a]]: b^2 = sum w_ij^2, a = (sum w_ij^2 d_j - triangles) / b^2.

    All entries of `weight` are 0, before and after.
    """
    for i in range(triangles.shape[0]):
        degree = float(degrees[i])
        joined = ends[starts[i] : starts[i] + degrees[i]]
        for j in joined:
            weight[j] += 1.0
        squares, far = 0.0, 0.0
        for j in joined:
            squares += weight[j]
            far += weight[j] * degrees[j]
        for j in joined:
            weight[j] = 0.0
        if squares == 0.0:  # a vertex of its own
            nodes[i, 0], nodes[i, 1] = 0.0, 0.0
            weights[i, 0], weights[i, 1] = 1.0, 0.0
            continue
        determinant = degree * (far - triangles[i]) - squares * squares  # whole numbers: exact
        other = (far - triangles[i]) / squares
        half = 0.5 * (degree - other)
        root = np.sqrt(half * half + squares)
        middle = 0.5 * (degree + other)
        high = middle + root
        # the product of the eigenvalues is T's determinant, which is at least 0; it is 0 where the
        # vertex sees no third eigenvalue
        low = determinant / (squares * high)
        nodes[i, 0], nodes[i, 1] = low, high
        share = min(max((degree - low) / (high - low), 0.0), 1.0)
        weights[i, 0], weights[i, 1] = 1.0 - share, share


# ---------------------------------------------------------------------------------------------
# Lanczos's method from a random vector


def random_stand_in(pairs: Pairs, k: int) -> StandIn:
    """Nodes and weights as one random vector sees the spectrum of L_k."""
    parts = components(pairs, k)
    n, nulls = pairs.n, parts.count
    if nulls == n:
        return StandIn(np.zeros(1), np.array([float(n)]))
    vector = np.random.default_rng(n).choice([-1.0, 1.0], n)
    # the null vectors are known: without them, the rest is seen better
    vector = _off_nulls(vector, parts)
    if not vector.any():  # the same sign throughout each component, as happens to a few points
        vector = _off_nulls(np.arange(float(n)), parts)
    norm = float(np.sqrt((vector * vector).sum()))
    steps = min(_STEPS, n - nulls)
    diagonal, beside = _lanczos(*join(pairs, k), degrees(pairs, k), vector / norm, steps)
    size = len(diagonal)
    values, vectors = eigh_tridiagonal(diagonal, beside[: size - 1])
    nodes = np.append(np.maximum(values, 0.0), 0.0)
    return StandIn(nodes, np.append((n - nulls) * vectors[0] ** 2, float(nulls)))


def _off_nulls(vector: np.ndarray, parts: Components) -> np.ndarray:
    """A vector less its mean over each component."""
    return vector - (np.bincount(parts.label, vector) / parts.size)[parts.label]


@kernel
def _lanczos(starts, ends, degrees, vector, steps):
    """The tridiagonal matrix of a few steps from a unit vector."""
    n = vector.shape[0]
    diagonal, beside = np.empty(steps), np.empty(steps)
    before, here, ahead = np.zeros(n), vector.copy(), np.empty(n)
    last = 0.0
    for step in range(steps):
        along, size = 0.0, 0.0
        for i in range(n):
            total = degrees[i] * here[i] - last * before[i]
            for e in range(starts[i], starts[i] + degrees[i]):
                total -= here[ends[e]]
            ahead[i] = total
            along += total * here[i]
        for i in range(n):
            ahead[i] -= along * here[i]
            size += ahead[i] * ahead[i]
        diagonal[step] = along
        last = np.sqrt(size)
        beside[step] = last
        if last <= 1e-8 * abs(along):
            return diagonal[: step + 1], beside[: step + 1]
        before, here, ahead = here, ahead, before
        for i in range(n):
            here[i] /= last
    return diagonal, beside
