"""Problems and graphs as the public functions pose and open them, for tests of what is behind."""

import numpy as np

from mksknn._graphs import components, fill_laplacian, pairs_by_rank
from mksknn._neighbors import rank
from mksknn._plan import ONE, SEARCH, make_plan, open_graph
from mksknn._problem import pose


def problem_of(X, y, *, graph="symmetric", **options):
    """The problem of one graph, ranked to the largest k."""
    question = pose(X, y, graph=graph, metric="euclidean", **options)
    return question.problem(*next(question.candidates()))


def pairs_of(X, graph, k_max=None):
    """The pairs of a graph of points in the order of their ranks."""
    return pairs_by_rank(rank(X, len(X) - 1 if k_max is None else k_max, "euclidean"), graph)


def opened_graph(pairs, k, backend, many=True):
    """The determinants of graph k by one backend, with memory for all of it."""
    return open_graph(pairs, k, make_plan(pairs, backend, None), SEARCH if many else ONE)


def lower_laplacian(pairs, k):
    """The lower triangle of L_k, zeros above."""
    out, parts = np.zeros((pairs.n, pairs.n)), components(pairs, k)
    fill_laplacian(pairs, k, out, np.zeros(parts.count), parts)
    return out


def random_set(seed, kind, n=None):
    """Points and targets that have something to do with each other; half of them in clusters."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(9, 45)) if n is None else n
    X = rng.normal(size=(n, int(rng.integers(1, 4))))
    if rng.random() < 0.5:
        X += 10.0 ** rng.integers(0, 4) * rng.integers(0, 3, (n, 1))
    signal = X[:, 0] / X[:, 0].std() + rng.uniform(0, 2) * rng.normal(size=n)
    order = np.argsort(np.argsort(signal))
    if kind == "regression":
        return X, signal, {}
    if kind == "three outputs":
        return X, np.column_stack([signal, signal**2, rng.normal(size=n)]), {}
    if kind == "binary":
        return X, order * 2 // n, {}
    return X, order * int(rng.integers(2, 6)) // n, {"formulation": kind}
