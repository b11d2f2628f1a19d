"""A problem as the public functions pose it, for tests of what lies behind them."""

from mksknn._problem import pose


def problem_of(X, y, *, graph="symmetric", **options):
    """The problem of one graph, ranked to the largest k."""
    question = pose(X, y, graph=graph, metric="euclidean", **options)
    return question.problem(*next(question.candidates()))
