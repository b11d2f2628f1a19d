"""Bad inputs, one a row: the call, what is wrong with it, the argument named, part of the message.

Every one is refused at once, by a ValueError or a TypeError that names the argument.
"""

import itertools
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import mksknn

RNG = np.random.default_rng(7)
N = 12
X = RNG.normal(size=(N, 3))
VALUES = X[:, 0] + RNG.normal(size=N)
TWO, THREE = np.arange(N) % 2, np.arange(N) % 3
D = np.abs(X[:, :1] - X[:, :1].T)
RANKED = mksknn.neighbors(X, 5)
SELECTED = mksknn.select_k(X, TWO)
AVERAGED = mksknn.posterior(X, THREE)
MASKED = np.ma.array(X, mask=X > 1.0)
CLOSED = ThreadPoolExecutor(1)
CLOSED.shutdown()


class Eager:
    """An executor whose submit returns no future."""

    def submit(self, function, *args):
        """Do it now."""
        return function(*args)


def spoiled(value, dtype=float):
    """X with one bad entry."""
    out = X.astype(dtype)
    out[2, 1] = value
    return out


def asymmetric():
    """Distances that are not symmetric."""
    out = D.copy()
    out[1, 4] += 1.0
    return out


DEFAULTS = {
    "neighbors": {"X": X},
    "as_neighbors": {"indices": RANKED.indices},
    "knn_graph": {"X": X, "k": 3},
    "log_evidence": {"X": X, "y": TWO, "k": 3, "sigma0": 1.0, "sigma2": 1.0},
    "evidence_curve": {"X": X, "y": TWO},
    "select_k": {"X": X, "y": TWO},
    "loo_curve": {"X": X, "y": TWO},
    "posterior": {"X": X, "y": TWO},
    "predict": {"X": X, "y": TWO, "X_new": X[:2], "k": 3},
    "prepare": {"X": X, "y": TWO, "k": 3},
    "learn_metric": {"X": X, "y": TWO},
    "plot_decision": {"X": X[:, :2], "y": TWO, "k": 3},
}
V, T = ValueError, TypeError
# (function, argument at fault, value, further arguments, exception, part of the message)
TABLE = [
    # X
    ("neighbors", "X", None, {}, T, "real numbers"),
    ("neighbors", "X", "points", {}, T, "real numbers"),
    ("neighbors", "X", 3.0, {}, V, "matrix"),
    ("neighbors", "X", X[:, 0], {}, V, "X[:, None]"),
    ("neighbors", "X", X[None], {}, V, "3 dimension(s)"),
    ("neighbors", "X", X[:1], {}, V, "at least 2 rows"),
    ("neighbors", "X", X[:0], {}, V, "at least 2 rows"),
    ("neighbors", "X", X[:, :0], {}, V, "at least 1 column"),
    ("neighbors", "X", [[1.0, 2.0], [3.0]], {}, V, "all rows of one length"),
    ("neighbors", "X", spoiled(np.nan), {}, V, "X[2, 1] = nan"),
    ("neighbors", "X", spoiled(np.inf), {}, V, "X[2, 1] = inf"),
    ("neighbors", "X", spoiled(-np.inf), {}, V, "X[2, 1] = -inf"),
    ("neighbors", "X", X.astype(complex), {}, T, "complex128"),
    ("neighbors", "X", X.astype(str), {}, T, "real numbers"),
    ("neighbors", "X", spoiled("a", object), {}, T, "'a' (str)"),
    ("neighbors", "X", spoiled(None, object), {}, T, "None"),
    ("neighbors", "X", spoiled(10**400, object), {}, V, "308 digits"),
    ("neighbors", "X", X.astype("datetime64[s]"), {}, T, "datetime64"),
    ("neighbors", "X", scipy.sparse.csr_array(X), {}, T, "toarray"),
    ("neighbors", "X", MASKED, {}, V, "masked values"),
    ("neighbors", "X", list(MASKED), {}, V, "masked values"),
    ("neighbors", "X", [list(row) for row in MASKED], {}, V, "masked values"),
    ("neighbors", "X", np.full((4, 2), 2**53 + 1), {}, V, "9007199254740993"),
    ("neighbors", "X", np.full((4, 2), -(2**60) - 1), {}, V, "-1152921504606846977"),
    ("neighbors", "X", np.full((4, 2), 2**64 - 1, np.uint64), {}, V, "18446744073709551615"),
    ("neighbors", "X", spoiled(2**53 + 1, object), {}, V, "9007199254740993"),
    ("neighbors", "X", [[2**53 + 1, 0.5], [1, 2.5]], {}, V, "9007199254740993"),
    ("neighbors", "X", [np.array([1, -(2**60) - 1]), X[0, :2]], {}, V, "-1152921504606846977"),
    ("neighbors", "X", pd.DataFrame({"a": [2**53 + 1, 2], "b": 0.5}), {}, V, "9007199254740993"),
    ("neighbors", "X", spoiled(1e160), {}, V, "rescale"),
    ("neighbors", "X", 1e-160 * X, {}, V, "rescale"),
    ("neighbors", "X", spoiled(1.7e308), {}, V, "X must"),
    ("neighbors", "X", np.vstack([X, np.zeros(3)]), {"metric": "cosine"}, V, "length 0"),
    ("neighbors", "X", D[:5], {"metric": "precomputed"}, V, "square"),
    ("neighbors", "X", -D, {"metric": "precomputed"}, V, ">= 0"),
    ("neighbors", "X", asymmetric(), {"metric": "precomputed"}, V, "symmetric"),
    ("neighbors", "X", pd.DataFrame(spoiled(np.nan), columns=list("abc")), {}, V, "column 'b'"),
    ("predict", "X", RANKED, {}, T, "the points themselves"),
    ("prepare", "X", RANKED, {}, T, "the points themselves"),
    ("learn_metric", "X", RANKED, {}, T, "the points themselves"),
    ("plot_decision", "X", RANKED, {}, T, "the points themselves"),
    ("learn_metric", "X", np.ones((N, 2)), {}, V, "X must vary"),
    ("learn_metric", "X", spoiled(np.nan), {}, V, "nan"),
    # names
    ("neighbors", "metric", "hamming", {}, V, "'euclidean'"),
    ("neighbors", "metric", None, {}, T, "'euclidean'"),
    ("select_k", "metric", [], {}, V, "metric must be one name"),
    ("select_k", "metric", ["euclidean", "precomputed"], {}, V, "not 'precomputed'"),
    ("evidence_curve", "metric", ["euclidean", "cosine"], {}, T, "'euclidean'"),
    ("select_k", "metric", "cosine", {"X": RANKED}, V, "left out"),
    ("knn_graph", "graph", "both", {}, V, "'mutual'"),
    ("knn_graph", "graph", 3, {}, T, "'mutual'"),
    ("evidence_curve", "graph", "knn", {}, V, "directed"),
    ("evidence_curve", "graph", "auto", {}, V, "'symmetric'"),
    ("log_evidence", "graph", "knn", {}, V, "directed"),
    ("select_k", "criterion", "aic", {}, V, "'evidence'"),
    ("posterior", "weights", "loo", {}, V, "'loo_log'"),
    ("evidence_curve", "backend", "gpu", {}, V, "'lapack'"),
    ("predict", "ties", "random", {}, V, "'nearest'"),
    ("select_k", "task", "ranking", {}, V, "'regression'"),
    ("select_k", "formulation", "III", {}, V, "'binary'"),
    ("select_k", "formulation", "binary", {"y": THREE}, V, "3 classes"),
    ("select_k", "formulation", "I", {"y": VALUES}, V, "regression"),
    ("learn_metric", "families", ("scale", "magic"), {}, V, "magic"),
    ("learn_metric", "criterion", "loo", {}, V, "'evidence'"),
    ("learn_metric", "graph", "knn", {}, V, "'mutual'"),
    # y
    ("select_k", "y", None, {}, V, "one entry for each"),
    ("select_k", "y", 3, {}, V, "one entry for each"),
    ("select_k", "y", TWO[:-1], {}, V, "one entry for each of the 12 rows"),
    ("select_k", "y", VALUES[:, None, None], {}, V, "one entry for each"),
    ("select_k", "y", np.zeros(N, int), {}, V, "at least 2 classes"),
    ("select_k", "y", np.full(N, 0.1), {}, V, "must vary"),
    ("evidence_curve", "y", np.full(N, 0.1), {}, V, "must vary"),
    ("posterior", "y", np.full(N, 0.1), {}, V, "must vary"),
    ("loo_curve", "y", np.full(N, 0.1), {}, V, "not be constant"),
    ("learn_metric", "y", np.full(N, 0.1), {}, V, "must vary"),
    ("select_k", "y", np.where(TWO, np.nan, VALUES), {}, V, "y[1] = nan"),
    ("select_k", "y", np.where(TWO, np.inf, VALUES), {}, V, "y[1] = inf"),
    ("select_k", "y", [None, *TWO[1:]], {}, V, "missing"),
    ("select_k", "y", [1, "a"] * 6, {}, T, "sorted"),
    ("select_k", "y", TWO.astype(complex), {}, T, "complex128"),
    ("select_k", "y", scipy.sparse.csr_array(TWO[:, None]), {}, T, "toarray"),
    ("select_k", "y", np.ma.array(TWO, mask=TWO > 0), {}, V, "masked values"),
    ("select_k", "y", list(np.ma.array(VALUES, mask=TWO > 0)), {}, V, "masked values"),
    ("select_k", "y", np.column_stack([TWO, TWO]), {}, V, "one label per point"),
    ("select_k", "y", np.empty((N, 0)), {}, V, "at least 1 output"),
    ("select_k", "y", 1e160 * VALUES, {}, V, "rescale y"),
    ("select_k", "y", 1e-160 * VALUES, {}, V, "rescale y"),
    ("loo_curve", "y", 2**60 + np.arange(N), {"task": "regression"}, V, "11529215046068469"),
    ("select_k", "y", [2**53 + 1, 0.5] * 6, {}, V, "9007199254740993"),
    ("select_k", "y", list("ab" * 6), {"task": "regression"}, T, "real numbers"),
    # k
    ("knn_graph", "k", 0, {}, V, "from 1 to 11"),
    ("knn_graph", "k", -1, {}, V, "from 1 to 11"),
    ("knn_graph", "k", N, {}, V, "from 1 to 11"),
    ("knn_graph", "k", 2.0, {}, T, "integer"),
    ("knn_graph", "k", True, {}, T, "integer"),
    ("knn_graph", "k", "3", {}, T, "integer"),
    ("knn_graph", "k", None, {}, T, "integer"),
    ("knn_graph", "k", [3], {}, T, "integer"),
    ("knn_graph", "k", 10**30, {}, V, "from 1 to 11"),
    ("knn_graph", "k", 6, {"X": RANKED}, V, "at most 5"),
    ("log_evidence", "k", None, {}, T, "integer"),
    ("log_evidence", "k", 12, {}, V, "from 1 to 11"),
    ("predict", "k", None, {}, V, "given"),
    ("predict", "k", 12, {}, V, "from 1 to 11"),
    ("predict", "k", Fraction(3), {}, T, "integer"),
    ("neighbors", "k_max", 12, {}, V, "from 1 to 11"),
    ("select_k", "k_max", 0, {}, V, "from 1 to 11"),
    ("select_k", "k_max", 2.5, {}, T, "integer"),
    ("select_k", "k_max", 9, {"X": RANKED}, V, "at most 5"),
    ("select_k", "ks", [], {}, V, "at least one"),
    ("select_k", "ks", [0, 1], {}, V, "from 1 to 11"),
    ("select_k", "ks", [1, 12], {}, V, "from 1 to 11"),
    ("select_k", "ks", [1.5], {}, T, "integer"),
    ("select_k", "ks", 3, {}, T, "sequence of integers"),
    ("select_k", "ks", "123", {}, T, "sequence of integers"),
    ("select_k", "ks", {1: 2}, {}, T, "sequence of integers"),
    ("select_k", "ks", itertools.count(1), {}, V, "from 1 to 11"),
    ("select_k", "ks", [1, 2], {"k_max": 3}, V, "not both"),
    ("loo_curve", "ks", [12], {}, V, "from 1 to 11"),
    # numbers
    ("log_evidence", "sigma0", 0.0, {}, V, "> 0"),
    ("log_evidence", "sigma0", -1.0, {}, V, "> 0"),
    ("log_evidence", "sigma0", np.nan, {}, V, "> 0"),
    ("log_evidence", "sigma0", np.inf, {}, V, "> 0"),
    ("log_evidence", "sigma0", None, {}, T, "> 0"),
    ("log_evidence", "sigma0", "1", {}, T, "> 0"),
    ("log_evidence", "sigma0", True, {}, T, "> 0"),
    ("log_evidence", "sigma0", 1j, {}, T, "> 0"),
    ("log_evidence", "sigma0", 10**400, {}, V, "> 0"),
    ("log_evidence", "sigma0", 1.7e308, {}, V, "1e+290"),
    ("log_evidence", "sigma2", 1e-300, {}, V, "1e-290"),
    ("log_evidence", "sigma2", 1e-200, {}, V, "1e-100"),
    ("evidence_curve", "sigma2", None, {"sigma0": 1.0}, V, "or neither"),
    ("select_k", "sigma0", 1.0, {"sigma2": 1.0, "criterion": "loo"}, V, "must be None"),
    ("predict", "sigma0", 1.0, {"sigma2": 1.0, "graph": "knn"}, V, "left out"),
    ("predict", "sigma0", 1.0, {}, V, "or neither"),
    ("select_k", "ratio_bounds", (1.0, 1.0), {}, V, "low < high"),
    ("select_k", "ratio_bounds", (2.0, 1.0), {}, V, "low < high"),
    ("select_k", "ratio_bounds", (0.0, 1.0), {}, V, "> 0"),
    ("select_k", "ratio_bounds", (1.0, np.inf), {}, V, "> 0"),
    ("select_k", "ratio_bounds", 3.0, {}, T, "two numbers"),
    ("select_k", "ratio_bounds", (1.0, 2.0, 3.0), {}, T, "two numbers"),
    ("select_k", "ratio_bounds", (1e-200, 1.0), {}, V, "1e-100"),
    ("select_k", "ratio_bounds", (1e-100, 1.0), {"y": 1e143 * VALUES}, V, "rescale y"),
    ("posterior", "max_skipped", 1.0, {}, V, "below 1"),
    ("posterior", "max_skipped", -0.1, {}, V, "at least 0"),
    ("posterior", "max_skipped", np.nan, {}, V, "at least 0"),
    ("posterior", "max_skipped", 10**400, {}, V, "below 1"),
    ("posterior", "max_skipped", "0", {}, T, "number"),
    ("posterior", "max_skipped", np.complex64(0), {}, T, "number"),
    # flags and executors
    ("select_k", "center", 1, {}, T, "True or False"),
    ("select_k", "progress", "yes", {}, T, "True or False"),
    ("log_evidence", "return_gradient", None, {}, T, "True or False"),
    ("select_k", "executor", 4, {}, T, "submit"),
    ("select_k", "executor", "processes", {}, T, "submit"),
    ("select_k", "executor", ProcessPoolExecutor, {}, T, "ProcessPoolExecutor()"),
    ("posterior", "executor", ThreadPoolExecutor, {}, T, "ThreadPoolExecutor()"),
    ("evidence_curve", "executor", CLOSED, {}, V, "no more work"),
    ("evidence_curve", "executor", Eager(), {}, T, "returns futures"),
    # predictions
    ("predict", "X_new", None, {}, T, "real numbers"),
    ("predict", "X_new", X[0], {}, V, "X_new[None, :]"),
    ("predict", "X_new", X[:, :2], {}, V, "3 columns"),
    ("predict", "X_new", np.empty((0, 5)), {}, V, "3 columns"),
    ("predict", "X_new", spoiled(np.nan), {}, V, "X_new[2, 1] = nan"),
    ("predict", "X_new", MASKED, {}, V, "masked values"),
    ("predict", "X_new", list(MASKED), {}, V, "masked values"),
    ("predict", "X_new", spoiled(2**53 + 1, object), {}, V, "9007199254740993"),
    ("predict", "X_new", D[:, :5], {"X": D, "metric": "precomputed"}, V, "12 columns"),
    ("predict", "X_new", -D, {"X": D, "metric": "precomputed"}, V, ">= 0"),
    ("prepare", "model", 3, {"k": None}, T, "Selection"),
    ("prepare", "model", mksknn.Selection, {"k": None}, T, "Selection"),
    ("prepare", "k", 2 + SELECTED.k % 2, {"model": SELECTED}, V, "left out or equal"),
    ("prepare", "graph", "mutual", {"model": SELECTED, "k": None}, V, "left out or equal"),
    ("prepare", "k", 3, {"model": AVERAGED, "y": THREE}, V, "averages over it"),
    ("prepare", "y", TWO, {"model": AVERAGED, "k": None}, V, "classes"),
    ("prepare", "y", THREE, {"model": SELECTED, "k": None}, V, "classes"),
    ("prepare", "y", VALUES, {"model": SELECTED, "k": None}, V, "kind"),
    # lists found elsewhere
    ("as_neighbors", "indices", RANKED.indices.astype(float), {}, T, "integers"),
    ("as_neighbors", "indices", RANKED.indices[0], {}, V, "shape (5,)"),
    ("as_neighbors", "indices", RANKED.indices - 1, {}, V, "from 0 to 11"),
    ("as_neighbors", "indices", np.arange(N)[:, None], {}, V, "its own row"),
    ("as_neighbors", "indices", [[1, 1], [0, 0]], {}, V, "indices must"),
    ("as_neighbors", "indices", [[1, 2], [0], [1, 0]], {}, V, "rows of one length"),
    ("as_neighbors", "indices", np.ma.array([[1], [0]], mask=[[1], [0]]), {}, V, "masked"),
    ("as_neighbors", "indices", list(np.ma.array([[1], [0]], mask=[[1], [0]])), {}, V, "masked"),
    ("as_neighbors", "distances", X, {}, V, "shape of indices"),
    ("as_neighbors", "distances", -RANKED.distances, {}, V, ">= 0"),
    ("as_neighbors", "distances", RANKED.distances[:, ::-1], {}, V, "fall"),
]


def test_the_table_is_long():
    assert len(TABLE) >= 100


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "row", TABLE, ids=[f"{at}-{row[0]}-{row[1]}" for at, row in enumerate(TABLE)]
)
def test_bad_input_is_refused(row):
    function, argument, value, others, kind, words = row
    arguments = {**DEFAULTS[function], **others, argument: value}
    if arguments.get("model") is not None and "k" not in (argument, *others):
        del arguments["k"]
    positional = [
        arguments.pop(name) for name in ("X", "y", "X_new", "indices") if name in arguments
    ]
    with pytest.raises((ValueError, TypeError)) as caught:
        getattr(mksknn, function)(*positional, **arguments)
    assert type(caught.value) is kind, caught.value
    message = str(caught.value)
    assert argument in message and words in message, message
