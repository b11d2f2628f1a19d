"""Where a search over r should begin: the spectrum of a Laplacian as one random vector sees it.

A few steps of Lanczos's method give nodes and weights that stand for the eigenvalues in any smooth
sum over them; the peak of the profile of these nodes is near the true one. Nothing is proven here
and nothing rests on it but how many factorizations the search takes.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh_tridiagonal

from ._graphs import Components, Pairs, degrees
from ._jit import kernel

# Starts were off by a factor of 1.0 to 1.3 with 30 steps (n = 1,000 to 10,000, 2-D to 10-D, k = 2
# to 32), and by up to 3 with 12; a factor of 3 costs two more factorizations.
_STEPS = 30


def spectrum_nodes(pairs: Pairs, k: int, parts: Components) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights that stand for the eigenvalues of L_k; the weights add up to n."""
    n, nulls = pairs.n, parts.count
    if nulls == n:
        return np.zeros(1), np.array([float(n)])
    vector = np.random.default_rng(n).choice([-1.0, 1.0], n)
    # the null vectors are known: without them, the rest is seen better
    vector = _off_nulls(vector, parts)
    if not vector.any():  # the same sign throughout each component, as happens to a few points
        vector = _off_nulls(np.arange(float(n)), parts)
    edges = pairs.count[k]
    norm = float(np.sqrt((vector * vector).sum()))
    steps = min(_STEPS, n - nulls)
    diagonal, beside = _lanczos(
        pairs.rows[:edges], pairs.columns[:edges], degrees(pairs, k), vector / norm, steps
    )
    size = len(diagonal)
    values, vectors = eigh_tridiagonal(diagonal, beside[: size - 1])
    nodes = np.append(np.maximum(values, 0.0), 0.0)
    return nodes, np.append((n - nulls) * vectors[0] ** 2, float(nulls))


def _off_nulls(vector: np.ndarray, parts: Components) -> np.ndarray:
    """A vector less its mean over each component."""
    return vector - (np.bincount(parts.label, vector) / parts.size)[parts.label]


@kernel
def _lanczos(rows, columns, degree, vector, steps):
    """The tridiagonal matrix of a few steps from a unit vector."""
    n = vector.shape[0]
    diagonal, beside = np.empty(steps), np.empty(steps)
    before, here, ahead = np.zeros(n), vector.copy(), np.empty(n)
    last = 0.0
    for step in range(steps):
        for i in range(n):
            ahead[i] = degree[i] * here[i] - last * before[i]
        for e in range(rows.shape[0]):
            i, j = rows[e], columns[e]
            ahead[i] -= here[j]
            ahead[j] -= here[i]
        along, size = 0.0, 0.0
        for i in range(n):
            along += ahead[i] * here[i]
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
