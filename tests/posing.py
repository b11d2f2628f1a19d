"""Problems and graphs as the public functions pose and open them, for tests of what is behind."""

import numpy as np

from mksknn._graphs import components, fill_laplacian, pairs_by_rank
from mksknn._neighbors import rank
from mksknn._plan import make_plan, open_graph
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
    return open_graph(pairs, k, make_plan(pairs, backend, None), many)


def lower_laplacian(pairs, k):
    """The lower triangle of L_k, zeros above."""
    out, parts = np.zeros((pairs.n, pairs.n)), components(pairs, k)
    fill_laplacian(pairs, k, out, np.zeros(parts.count), parts)
    return out
