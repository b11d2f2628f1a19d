"""The gate, attacked: a refusal names the argument, shows what it saw, says what is allowed."""

import datetime
import itertools
import math
import os
import tracemalloc
import warnings
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import mksknn
from mksknn import _validation as gate

N = 6
GOOD = np.arange(12.0).reshape(N, 2)
NUMBERS = "real numbers"
MATRIX = "matrix, one row per point"


def spoiled(value, where=(2, 1), dtype=float):
    X = GOOD.astype(dtype)
    X[where] = value
    return X


def refuse(call, kinds, words):
    """The call raises one of the kinds with all the words in its message, and warns of nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(kinds) as caught:
            call()
    assert type(caught.value) in (ValueError, TypeError)
    message = str(caught.value)
    for word in words:
        assert word in message
    assert len(message) < 400


# ---------------------------------------------------------------- X

BAD_X = {
    "nan": (spoiled(np.nan), ValueError, ["finite", "X[2, 1] = nan"]),
    "inf": (spoiled(np.inf), ValueError, ["finite", "X[2, 1] = inf"]),
    "-inf": (spoiled(-np.inf, (0, 0)), ValueError, ["finite", "X[0, 0] = -inf"]),
    "float32 inf": (spoiled(np.inf, dtype=np.float32), ValueError, ["finite", "inf"]),
    "beyond float64": (
        spoiled(np.longdouble("1e400"), dtype=np.longdouble),
        ValueError,
        ["finite", "X[2, 1]"],
    ),
    "nan in a list": ([[1.0, 2.0], [math.nan, 1.0]], ValueError, ["finite", "X[1, 0] = nan"]),
    "nan in a frame": (pd.DataFrame(spoiled(np.nan)), ValueError, ["finite", "nan"]),
    "NA in a frame": (
        pd.DataFrame({"a": pd.array([1, None, 3], "Int64")}),
        (ValueError, TypeError),
        ["X", "must"],
    ),
    "NA in objects": (spoiled(pd.NA, dtype=object), TypeError, [NUMBERS, "<NA>"]),
    "None in objects": (spoiled(None, dtype=object), TypeError, [NUMBERS, "None"]),
    "text in objects": (spoiled("3", dtype=object), TypeError, [NUMBERS, "'3'", "str"]),
    "list in objects": (spoiled([1, 2], (0, 0), object), TypeError, [NUMBERS]),
    "decimals": (spoiled(Decimal(1), dtype=object), TypeError, [NUMBERS, "Decimal"]),
    "complex in objects": (spoiled(1j, dtype=object), TypeError, [NUMBERS, "1j"]),
    "huge integer": ([[10**400, 1], [2, 3]], ValueError, ["finite", "308 digits"]),
    "None": (None, TypeError, [NUMBERS, "None"]),
    "text": ("points", TypeError, [NUMBERS, "'points'"]),
    "strings": ([["1", "2"], ["3", "4"]], TypeError, [NUMBERS, "U1"]),
    "bytes": (np.array([[b"1"], [b"2"]]), TypeError, [NUMBERS, "S1"]),
    "text frame": (pd.DataFrame({"a": ["x", "y"]}), TypeError, [NUMBERS, "'x'"]),
    "complex": (GOOD * 1j, TypeError, [NUMBERS, "complex128"]),
    "dates": (GOOD.astype("M8[D]"), TypeError, [NUMBERS, "datetime64"]),
    "durations": (GOOD.astype("m8[s]"), TypeError, [NUMBERS, "timedelta64"]),
    "date frame": (
        pd.DataFrame({"a": pd.to_datetime(["2020", "2021"])}),
        TypeError,
        [NUMBERS, "datetime64"],
    ),
    "structured": (np.zeros(4, [("a", float)]), TypeError, [NUMBERS]),
    "dict": ({"a": [1, 2]}, TypeError, [NUMBERS, "dict"]),
    "set": ({1, 2}, TypeError, [NUMBERS, "set"]),
    "generator": ((i for i in range(3)), TypeError, [NUMBERS, "generator"]),
    "function": (len, TypeError, [NUMBERS, "len"]),
    "ragged": ([[1, 2], [3]], ValueError, ["one length", "[[1, 2], [3]]"]),
    "deeply ragged": ([[[1], [2, 3]], [[4], [5]]], ValueError, ["one length"]),
    "scalar": (3.0, ValueError, [MATRIX, "shape ()"]),
    "one dimension": (np.arange(4.0), ValueError, [MATRIX, "shape (4,)", "X[:, None]"]),
    "series": (pd.Series([1.0, 2.0]), ValueError, [MATRIX, "shape (2,)"]),
    "three dimensions": (np.zeros((3, 2, 1)), ValueError, [MATRIX, "shape (3, 2, 1)"]),
    "empty list": ([], ValueError, [MATRIX, "shape (0,)"]),
    "empty lists": ([[], []], ValueError, ["at least 1 column", "shape (2, 0)"]),
    "no rows": (np.empty((0, 3)), ValueError, ["at least 2 rows", "shape (0, 3)"]),
    "no columns": (np.empty((5, 0)), ValueError, ["at least 1 column", "shape (5, 0)"]),
    "one row": ([[1.0, 2.0]], ValueError, ["at least 2 rows", "shape (1, 2)"]),
    "masked": (
        np.ma.array(GOOD, mask=GOOD > 9),
        ValueError,
        ["must not have masked values", "got 2"],
    ),
    "sparse matrix": (scipy.sparse.csr_matrix(GOOD), TypeError, ["dense", "sparse csr_matrix"]),
    "sparse array": (scipy.sparse.coo_array(GOOD), TypeError, ["dense", "coo_array", ".toarray()"]),
    "overflowing squares": (1e160 * GOOD, ValueError, ["euclidean", "fit in a float", "1e+161"]),
    "overflowing span": (
        np.array([[1e308], [-1e308]]),
        ValueError,
        ["euclidean", "fit in a float", "inf"],
    ),
    "vanishing squares": (1e-200 * GOOD, ValueError, ["span 0 or at least 1e-145", "1e-199"]),
}


@pytest.mark.parametrize("case", BAD_X)
def test_bad_x(case):
    X, kind, words = BAD_X[case]
    refuse(lambda: mksknn.neighbors(X), kind, ["X", "must", *words])
    if case != "generator":
        refuse(lambda: mksknn.knn_graph(X, 1), kind, ["X", "must", *words])


# An empty X_new of the right width is fine; the words on the span are those of both together.
FINE_AS_NEW = ("empty list", "no rows", "one row")


@pytest.mark.parametrize("case", [case for case in BAD_X if case not in FINE_AS_NEW])
def test_bad_x_new(case):
    X, kind, words = BAD_X[case]
    if case in ("no columns", "empty lists"):
        words = ["2 columns", "shape"]
    if case in ("overflowing squares", "overflowing span", "vanishing squares"):
        points = np.zeros((3, np.shape(X)[1]))
    else:
        points = GOOD
    words = [word.replace("X[:, None]", "X_new[None, :]").replace("X[", "X_new[") for word in words]
    refuse(lambda: gate.check_new_points(X, points, "euclidean"), kind, ["X_new", "must", *words])


@pytest.mark.parametrize(
    ("X_new", "metric", "words"),
    [
        (np.ones((2, 3)), "euclidean", ["2 columns", "the columns of X", "shape (2, 3)"]),
        (np.ones((2, 3)), "precomputed", ["6 columns", "distance", "shape (2, 3)"]),
        (-np.ones((2, 6)), "precomputed", [">= 0", "-1.0"]),
        ([[1e200, 0.0]], "euclidean", ["euclidean", "1e+200", "rescale"]),
        ([[1e308, -1e308]], "manhattan", ["manhattan", "fit in a float"]),
        ([[0.0, 0.0]], "cosine", ["cosine", "row 0", "length 0"]),
    ],
)
def test_x_new_that_does_not_fit(X_new, metric, words):
    points = np.zeros((N, N)) if metric == "precomputed" else GOOD
    refuse(lambda: gate.check_new_points(X_new, points, metric), ValueError, ["X_new must", *words])


def test_no_new_points_are_fine():
    for nothing in ([], [[]][:0], np.empty((0, 2)), np.empty((0, 0)), pd.DataFrame()):
        assert gate.check_new_points(nothing, GOOD, "euclidean").shape == (0, 2)
    with pytest.raises(ValueError, match="X_new must have 2 columns"):
        gate.check_new_points(np.empty((0, 7)), GOOD, "euclidean")


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (np.zeros((3, 4)), ["square", "shape (3, 4)"]),
        ([[0.0, -1.0], [-1.0, 0.0]], ["distances >= 0", "-1.0"]),
        ([[0.0, 1.0], [2.0, 0.0]], ["symmetric", "X[0, 1] = 1.0", "X[1, 0] = 2.0"]),
        ([[0.0, np.nan], [np.nan, 0.0]], ["finite", "X[0, 1] = nan"]),
        ([[0.0, np.inf], [np.inf, 0.0]], ["finite", "X[0, 1] = inf"]),
        ([[0.0]], ["at least 2 rows", "shape (1, 1)"]),
    ],
)
def test_bad_distances(X, words):
    refuse(lambda: mksknn.neighbors(X, metric="precomputed"), ValueError, ["X must", *words])


@pytest.mark.parametrize(
    ("row", "word"), [([0.0, 0.0], "length 0"), ([1e200, 0.0], "inf"), ([1e-200, 0.0], "length 0")]
)
def test_rows_without_direction(row, word):
    X = spoiled(row, 3)
    refuse(
        lambda: mksknn.neighbors(X, metric="cosine"),
        ValueError,
        ["X must", "row 3", "cosine", word],
    )


def test_scales_that_are_fine():
    """What the gate lets through gives distances with all their digits."""
    for scale in (2.0**-478, 2.0**498):  # about 1e-144 and 1e150, and exact
        for metric in ("euclidean", "cosine"):
            X = scale * (GOOD + 1.0)
            expected = mksknn.neighbors(GOOD + 1.0, metric=metric).indices
            np.testing.assert_array_equal(mksknn.neighbors(X, metric=metric).indices, expected)
    assert (mksknn.neighbors(np.full((4, 2), 1e300)).distances == 0).all()


# ---------------------------------------------------------------- names, k, ks, numbers

BAD_NAMES = ["", "Euclidean", "minkowski", None, 2, ["euclidean"], b"euclidean", np.zeros(3)]


@pytest.mark.parametrize("value", BAD_NAMES, ids=repr)
def test_bad_names(value):
    kind = ValueError if isinstance(value, str) else TypeError
    shown = gate.show(value)
    refuse(
        lambda: mksknn.neighbors(GOOD, metric=value),
        kind,
        ["metric must be one of 'euclidean', 'manhattan'", "'precomputed'", shown],
    )
    refuse(
        lambda: mksknn.knn_graph(GOOD, 1, graph=value),
        kind,
        ["graph must be one of 'knn', 'mutual', 'symmetric'", shown],
    )
    refuse(lambda: gate.check_task([1, 2], 2, value), kind, ["task must be one of 'auto'", shown])


BAD_K = [
    (0, ValueError, "0"),
    (N, ValueError, "6"),
    (-1, ValueError, "-1"),
    (np.int64(99), ValueError, "99"),
    (10**400, ValueError, "1000"),
    (10**5000, ValueError, "too long"),
    (2.0, TypeError, "2.0"),
    (np.float64(2.0), TypeError, "2.0"),
    (math.nan, TypeError, "nan"),
    (True, TypeError, "True"),
    (np.True_, TypeError, "True"),
    ("3", TypeError, "'3'"),
    ([3], TypeError, "[3]"),
    (np.array(3), TypeError, "array(3)"),
    (np.array([3]), TypeError, "array([3])"),
    (3j, TypeError, "3j"),
    (Fraction(3), TypeError, "Fraction(3, 1)"),
]


@pytest.mark.parametrize(("k", "kind", "shown"), BAD_K, ids=[str(case[2]) for case in BAD_K])
def test_bad_k(k, kind, shown):
    refuse(lambda: mksknn.knn_graph(GOOD, k), kind, ["k must be", "1 to 5", shown])
    refuse(lambda: mksknn.neighbors(GOOD, k), kind, ["k_max must be", "1 to 5", shown])
    refuse(lambda: gate.check_ks(None, k, N), kind, ["k_max must be", "1 to 5", shown])
    if not isinstance(k, list | np.ndarray):
        refuse(lambda: gate.check_ks([1, k], None, N), kind, ["ks must be", "1 to 5", shown])


def test_k_is_not_optional():
    refuse(lambda: mksknn.knn_graph(GOOD, None), TypeError, ["k must be", "1 to 5", "None"])


@pytest.mark.parametrize(
    "ks",
    [
        [3, 1],
        (1, 3, 3),
        {1, 3},
        range(1, 4, 2),
        np.array([3, 1], np.uint8),
        pd.Series([1, 3]),
        pd.Index([3, 1]),
    ],
    ids=lambda ks: type(ks).__name__,
)
def test_ks_of_every_kind(ks):
    found = gate.check_ks(ks, None, N)
    assert found.tolist() == [1, 3]
    assert found.dtype == np.int64


def test_ks_from_a_generator_or_from_nothing():
    assert gate.check_ks((k for k in (5, 2)), None, N).tolist() == [2, 5]
    assert gate.check_ks(None, None, N).tolist() == [1, 2, 3, 4, 5]
    assert gate.check_ks(None, np.int32(3), N).tolist() == [1, 2, 3]


@pytest.mark.parametrize("ks", [2.5, 3, np.int64(3), np.array(3), "12", b"\x01", {1: 2}, object()])
def test_ks_that_are_no_sequence(ks):
    refuse(
        lambda: gate.check_ks(ks, None, N),
        TypeError,
        ["ks must be a sequence of integers from 1 to 5", gate.show(ks)],
    )


@pytest.mark.parametrize("ks", [[], (), set(), np.array([], int), iter(())])
def test_empty_ks(ks):
    refuse(lambda: gate.check_ks(ks, None, N), ValueError, ["ks", "at least one", "empty"])


def test_ks_of_other_shapes_without_end_or_beside_k_max():
    refuse(lambda: gate.check_ks([[1, 2]], None, N), TypeError, ["ks must be", "[1, 2]"])
    refuse(lambda: gate.check_ks(np.ones((2, 2), int), None, N), TypeError, ["ks must be"])
    refuse(lambda: gate.check_ks(itertools.count(1), None, N), ValueError, ["ks", "1 to 5", "6"])
    refuse(lambda: gate.check_ks([1, 2], 3, N), ValueError, ["ks", "k_max", "[1, 2]", "3", "both"])
    many = list(range(1, 100_000))
    refuse(lambda: gate.check_ks(many, 3, 200_000), ValueError, ["ks=[1, 2, 3"])


BAD_POSITIVE = [
    (0, ValueError, "0"),
    (0.0, ValueError, "0.0"),
    (-0.0, ValueError, "-0.0"),
    (-1.5, ValueError, "-1.5"),
    (math.nan, ValueError, "nan"),
    (math.inf, ValueError, "inf"),
    (np.float32("inf"), ValueError, "inf"),
    (np.longdouble("1e4000"), ValueError, "4000"),
    (10**400, ValueError, "1000"),
    (Fraction(1, 10**400), ValueError, "Fraction(1, 1000"),
    (True, TypeError, "True"),
    (np.True_, TypeError, "True"),
    ("1", TypeError, "'1'"),
    (1j, TypeError, "1j"),
    ([1.0], TypeError, "[1.0]"),
    (np.array(1.0), TypeError, "array(1.)"),
    (Decimal(1), TypeError, "Decimal('1')"),
    (pd.NA, TypeError, "<NA>"),
]


@pytest.mark.parametrize(
    ("value", "kind", "shown"), BAD_POSITIVE, ids=[case[2] for case in BAD_POSITIVE]
)
def test_bad_sigmas_and_ratio_bounds(value, kind, shown):
    refuse(lambda: gate.check_sigmas(value, 1.0), kind, ["sigma0 must be", "> 0", shown])
    refuse(lambda: gate.check_sigmas(1.0, value), kind, ["sigma2 must be", "> 0", shown])
    refuse(lambda: gate.check_ratio_bounds((value, 2.0)), kind, ["ratio_bounds[0]", "> 0", shown])
    refuse(lambda: gate.check_ratio_bounds([1.0, value]), kind, ["ratio_bounds[1]", "> 0", shown])


def test_one_sigma_without_the_other():
    refuse(lambda: gate.check_sigmas(1.0, None), ValueError, ["sigma2", "sigma0", "None"])
    refuse(lambda: gate.check_sigmas(None, 1.0), ValueError, ["sigma0", "sigma2", "None"])
    assert gate.check_sigmas(None, None) is None


@pytest.mark.parametrize("value", [1, 2.5, np.float32(0.5), np.int8(3), Fraction(1, 3), 5e-324])
def test_good_positive_numbers(value):
    found = gate.check_positive(value, "sigma0")
    assert type(found) is float
    assert found == float(value)


@pytest.mark.parametrize(
    "bounds", [None, 3.0, (), (1.0,), (1.0, 2.0, 3.0), np.ones((2, 2))[:1], "abc"], ids=repr
)
def test_ratio_bounds_that_are_not_two(bounds):
    refuse(
        lambda: gate.check_ratio_bounds(bounds),
        TypeError,
        ["ratio_bounds must be two numbers (low, high)", gate.show(bounds)],
    )


@pytest.mark.parametrize("bounds", [(2.0, 1.0), (1.0, 1.0), [1e6, 1e-6]])
def test_ratio_bounds_reversed(bounds):
    refuse(
        lambda: gate.check_ratio_bounds(bounds),
        ValueError,
        ["ratio_bounds must have low < high", str(bounds[0]), str(bounds[1])],
    )


def test_good_ratio_bounds():
    for bounds in ((1, 2), [1.0, 2.0], np.array([1, 2]), pd.Series([1, 2])):
        assert gate.check_ratio_bounds(bounds) == (1.0, 2.0)


@pytest.mark.parametrize("value", [0, 1, None, "True", [True], np.array(True)], ids=repr)
def test_bad_flags(value):
    refuse(
        lambda: gate.check_flag(value, "center"),
        TypeError,
        ["center must be True or False", gate.show(value)],
    )


def test_good_flags():
    assert gate.check_flag(np.True_, "center") is True
    assert gate.check_flag(False, "center") is False


def test_executors():
    assert gate.check_executor(None) is None
    with ThreadPoolExecutor(1) as pool:
        assert gate.check_executor(pool) is pool
    for bad in (4, "processes", object()):
        refuse(
            lambda bad=bad: gate.check_executor(bad), TypeError, ["executor", "submit(fn, *args)"]
        )


# ---------------------------------------------------------------- y

ENTRY = "one entry for each of the 4 rows"
MISSING = "must not have missing labels"
BAD_Y = {
    "None": (None, "auto", ValueError, [ENTRY, "None"]),
    "scalar": (3.0, "auto", ValueError, [ENTRY, "3.0"]),
    "text": ("abcd", "auto", ValueError, [ENTRY, "'abcd'"]),
    "set": ({1, 2, 3, 4}, "auto", ValueError, [ENTRY, "{1, 2, 3, 4}"]),
    "dict": ({"a": 1}, "auto", ValueError, [ENTRY, "{'a': 1}"]),
    "generator": ((i for i in range(4)), "auto", ValueError, [ENTRY, "generator"]),
    "empty": ([], "auto", ValueError, [ENTRY, "shape (0,)"]),
    "too short": ([1, 2, 1], "auto", ValueError, [ENTRY, "shape (3,)"]),
    "too long": ([1.0] * 5, "auto", ValueError, [ENTRY, "shape (5,)"]),
    "a row": ([[1, 2, 1, 2]], "auto", ValueError, [ENTRY, "shape (1, 4)"]),
    "three dimensions": (np.ones((4, 1, 1)), "auto", ValueError, [ENTRY, "shape (4, 1, 1)"]),
    "no outputs": (np.ones((4, 0)), "auto", ValueError, ["at least 1 output", "shape (4, 0)"]),
    "ragged": ([1, 2, [3], 4], "auto", ValueError, ["ragged [1, 2, [3], 4]"]),
    "two label columns": (
        np.ones((4, 2), int),
        "auto",
        ValueError,
        ["one label per point", "shape (4, 2)"],
    ),
    "nan": ([1.0, math.nan, 2.0, 3.0], "auto", ValueError, ["finite", "y[1] = nan"]),
    "inf": ([1.0, 2.0, 3.0, -math.inf], "auto", ValueError, ["finite", "y[3] = -inf"]),
    "nan in outputs": (
        [[1.0, 2.0], [1.0, math.nan], [0.0, 0.0], [1.0, 1.0]],
        "auto",
        ValueError,
        ["finite", "y[1, 1] = nan"],
    ),
    "nan label": ([1.0, math.nan, 2.0, 1.0], "classification", ValueError, [MISSING, "y[1] = nan"]),
    "inf label": ([1.0, math.inf, 2.0, 1.0], "classification", ValueError, [MISSING, "y[1] = inf"]),
    "None label": (["a", None, "b", "a"], "auto", ValueError, [MISSING, "y[1] = None"]),
    "None among numbers": ([1, None, 2, 1], "auto", ValueError, [MISSING, "y[1] = None"]),
    "nan among text": (["a", "b", math.nan, "a"], "auto", ValueError, [MISSING, "y[2] = nan"]),
    "nan among objects": (
        np.array(["a", "b", np.nan, "a"], object),
        "auto",
        ValueError,
        [MISSING, "y[2] = nan"],
    ),
    "NA label": (["a", pd.NA, "b", "a"], "auto", ValueError, [MISSING, "y[1] = <NA>"]),
    "NaT label": (
        np.array(["2020", "NaT", "2021", "2020"], "M8[ns]"),
        "auto",
        ValueError,
        [MISSING, "y[1] = NaT"],
    ),
    "missing text": (pd.Series(["a", None, "b", "a"]), "auto", ValueError, [MISSING, "y[1]"]),
    "missing string": (
        pd.Series(["a", None, "b", "a"], dtype="string"),
        "auto",
        ValueError,
        [MISSING, "y[1] = <NA>"],
    ),
    "missing category": (
        pd.Series(["a", None, "b", "a"], dtype="category"),
        "auto",
        ValueError,
        [MISSING, "y[1] = nan"],
    ),
    "missing boolean": (
        pd.Series([True, None, False, True], dtype="boolean"),
        "auto",
        ValueError,
        [MISSING, "y[1] = <NA>"],
    ),
    "missing integer": (
        pd.Series([1, None, 2, 1], dtype="Int64"),
        "auto",
        ValueError,
        [MISSING, "y[1]"],
    ),
    "missing integer in a table": (
        pd.DataFrame({"label": pd.array([1, None, 2, 1], dtype="Int64")}),
        "auto",
        ValueError,
        [MISSING, "y[1]"],
    ),
    "masked": (np.ma.array([0, 1, 0, 1], mask=[0, 1, 0, 0]), "auto", ValueError, ["masked", "1"]),
    "masked values": (
        np.ma.array([0.0, 1.0, 0.0, 1.0], mask=[1, 1, 0, 0]),
        "auto",
        ValueError,
        ["masked", "2"],
    ),
    "one class": (["a"] * 4, "auto", ValueError, ["at least 2 classes", "'a'"]),
    "one number": (np.ones(4, int), "auto", ValueError, ["at least 2 classes", "1"]),
    "mixed list": (["a", 1, "b", 2], "auto", TypeError, ["sorted", "int, str"]),
    "mixed objects": (
        np.array(["a", 1, "b", 2], object),
        "auto",
        TypeError,
        ["sorted", "int, str"],
    ),
    "arrays as labels": (
        np.array([np.ones(2), np.ones(3), 1, 2], object),
        "auto",
        TypeError,
        ["sorted", "ndarray"],
    ),
    "complex": (np.ones(4) * 1j, "auto", TypeError, ["complex128"]),
    "complex values": (np.ones(4) * 1j, "regression", TypeError, [NUMBERS, "complex128"]),
    "text values": (["1", "2", "3", "4"], "regression", TypeError, [NUMBERS, "'1'"]),
    "date values": (
        np.array(["2020", "2021", "2022", "2023"], "M8[ns]"),
        "regression",
        TypeError,
        [NUMBERS, "datetime64"],
    ),
    "python dates": ([datetime.date(2020, 1, 1)] * 4, "regression", TypeError, [NUMBERS, "date"]),
    "None value": ([1.0, None, 2.0, 3.0], "regression", TypeError, [NUMBERS, "None"]),
    "huge integer": ([10**400, 1, 2, 3], "regression", ValueError, ["finite", "308 digits"]),
    "decimals": (
        [Decimal("0.2")] * 4,
        "regression",
        TypeError,
        [NUMBERS, "Decimal('0.2')", "numpy.asarray(y, dtype=float)"],
    ),
    "signaling decimal": ([Decimal("sNaN"), Decimal(1)] * 2, "auto", ValueError, [MISSING, "sNaN"]),
    "quiet decimal": ([Decimal(1), Decimal("NaN")] * 2, "auto", ValueError, [MISSING, "NaN"]),
    "one huge label": ([2**63 + 1] * 2 + [0.5] * 2, "auto", ValueError, ["a float64 holds"]),
    "sparse": (scipy.sparse.eye_array(4), "auto", TypeError, ["dense", "sparse", ".toarray()"]),
}


@pytest.mark.parametrize("case", BAD_Y)
def test_bad_y(case):
    y, task, kind, words = BAD_Y[case]
    refuse(lambda: gate.check_task(y, 4, task), kind, ["y must", *words])


# ---------------------------------------------------------------- what comes out


@pytest.mark.parametrize(
    "X",
    [
        GOOD,
        GOOD.tolist(),
        GOOD.astype(np.float32),
        GOOD.astype(int),
        np.asfortranarray(GOOD),
        GOOD[:, ::-1][:, ::-1],
        GOOD.astype(">f8"),
        GOOD.astype(object),
        pd.DataFrame(GOOD),
        pd.DataFrame(GOOD).astype({0: "Int64"}),
        np.frombuffer(GOOD.tobytes()).reshape(N, 2),
        np.ma.array(GOOD),
    ],
    ids=lambda X: type(X).__name__,
)
def test_points_come_out_uniform(X):
    points = gate.check_points(X)
    assert type(points) is np.ndarray
    assert points.dtype == np.float64
    assert points.dtype.isnative
    flags = points.flags
    assert flags.c_contiguous
    assert flags.aligned
    assert flags.writeable  # kernels would be compiled once more for read-only arrays
    np.testing.assert_array_equal(points, GOOD)


def test_plain_points_are_not_copied_and_checking_takes_little_memory():
    X = np.random.default_rng(0).normal(size=(100_000, 20))
    tracemalloc.start()
    try:
        assert gate.check_points(X) is X
        assert tracemalloc.get_traced_memory()[1] < X.nbytes / 4
    finally:
        tracemalloc.stop()


def test_checking_new_points_does_not_copy_the_training_points():
    X = np.random.default_rng(0).normal(size=(100_000, 20))
    tracemalloc.start()
    try:
        gate.check_new_points(X[:10], X, "euclidean")
        assert tracemalloc.get_traced_memory()[1] < X.nbytes / 4
    finally:
        tracemalloc.stop()


# ---------------------------------------------------------------- memory


def test_memory_is_refused_with_both_numbers(memory):
    memory(2e9)
    refuse(
        lambda: gate.check_memory(5.55e9, "ranking", "k_max limits it"),
        ValueError,
        ["ranking would take 5.5 GB", "2.0 GB of memory is free", "k_max limits it"],
    )
    gate.check_memory(1.9e9, "ranking", "k_max limits it")


def test_memory_unknown_is_no_reason_to_refuse(monkeypatch):
    fake_files(monkeypatch, {})
    monkeypatch.setattr(os, "sysconf_names", {})
    gate.check_memory(1e30, "ranking", "k_max limits it")


def fake_files(monkeypatch, files):
    def read_text(path, *args, **kwargs):
        try:
            return files[str(path)]
        except KeyError:
            raise FileNotFoundError(path) from None

    monkeypatch.setattr(Path, "read_text", read_text)


MEMINFO = "MemTotal:       16000000 kB\nMemFree:         1000000 kB\nMemAvailable:    8000000 kB\n"
CGROUP = "/sys/fs/cgroup/memory."


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, 8.192e9),
        ({CGROUP + "max": "max\n", CGROUP + "current": "5\n"}, 8.192e9),
        (
            {
                CGROUP + "max": "4000000000\n",
                CGROUP + "current": "3000000000\n",
                CGROUP + "stat": "anon 7\nfile 9\ninactive_file 1500000000\nactive_file 8\n",
            },
            2.5e9,
        ),
        ({CGROUP + "max": "rubbish\n", CGROUP + "current": "5\n"}, 8.192e9),
    ],
    ids=["machine", "unlimited group", "limited group", "unreadable group"],
)
def test_free_memory(monkeypatch, files, free):
    fake_files(monkeypatch, {"/proc/meminfo": MEMINFO} | files)
    assert gate.free_memory() == pytest.approx(free)


def test_free_memory_where_no_file_tells(monkeypatch):
    fake_files(monkeypatch, {})
    free = gate.free_memory()
    assert free is None or free > 0


def test_categories_are_no_columns():
    """Also those that are numbers: nobody knows how far apart they are."""
    table = pd.DataFrame({"size": [1.0, 2.0, 3.0], "code": pd.Categorical([10, 0, 20])})
    with pytest.raises(TypeError, match="X must hold real .* categories in column 'code': turn"):
        gate.check_points(table)
