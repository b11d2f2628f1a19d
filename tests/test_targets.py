"""The table of targets: Y, m, |Y|^2 and the constant, for labels and values of every kind."""

import warnings
from decimal import Decimal
from fractions import Fraction

import naive
import numpy as np
import pandas as pd
import pytest

import mksknn
from mksknn import _graphs
from mksknn._neighbors import rank
from mksknn._targets import encode

RNG = np.random.default_rng(0)
X = RNG.integers(0, 5, (24, 2)).astype(float)
TWO = np.arange(24) % 2
THREE = RNG.permutation(np.arange(24) % 3)
VALUES = 5.0 + RNG.normal(size=24)


def check_against_table(targets, y, **options):
    Y, m, constant = naive.targets(y, **options)
    assert targets.n == len(Y)
    assert targets.m == m
    assert targets.constant == pytest.approx(constant, rel=1e-15)
    assert targets.norm == pytest.approx(np.sum(Y**2), rel=1e-13)
    for graph in ("mutual", "symmetric"):
        pairs = _graphs.pairs_by_rank(rank(X, 9, "euclidean"), graph)
        expected = [0.0] + [naive.roughness(naive.weights(X, k, graph), Y) for k in range(1, 10)]
        np.testing.assert_allclose(targets.roughness(pairs), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("y", "formulation", "resolved"),
    [
        (TWO, "auto", "binary"),
        (TWO, "binary", "binary"),
        (TWO, "I", "I"),
        (TWO, "II", "II"),
        (THREE, "auto", "II"),
        (THREE, "I", "I"),
        (THREE, "II", "II"),
    ],
)
def test_classes(y, formulation, resolved):
    targets = encode(y, 24, "auto", formulation, True)
    assert targets.formulation == resolved
    check_against_table(targets, y, formulation=formulation)
    np.testing.assert_array_equal(targets.classes[targets.codes], y)
    assert targets.codes.dtype == np.int32
    assert targets.values.size == 0


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("outputs", [None, 1, 3])
def test_values(outputs, center):
    y = VALUES if outputs is None else 3.0 + RNG.normal(size=(24, outputs))
    targets = encode(y, 24, "auto", "auto", center)
    assert targets.formulation == "regression"
    assert targets.flat == (outputs is None)
    assert targets.classes is None
    assert targets.codes.size == 0
    check_against_table(targets, y, center=center)
    np.testing.assert_allclose(targets.values + targets.mean, naive.columns(y), rtol=1e-14)
    assert (targets.mean == 0).all() == (not center)


def test_two_classes_as_formulation_two_are_half_the_binary():
    """|U|^2 and q are half those of -1, +1, hence the same optimum at half the sigmas."""
    binary, two = (encode(TWO, 24, "auto", name, True) for name in ("binary", "II"))
    pairs = _graphs.pairs_by_rank(rank(X, 5, "euclidean"), "mutual")
    assert two.norm == binary.norm / 2
    np.testing.assert_array_equal(two.roughness(pairs), binary.roughness(pairs) / 2)
    assert two.m == binary.m == 1


LABELS = {
    "int8": np.array([3, -1, 3, 7], np.int8),
    "uint64": np.array([3, 1, 3, 7], np.uint64),
    "bool": np.array([True, False, True, True]),
    "list_of_bools": [True, False, True, True],
    "text": np.array(["b", "a", "b", "c"]),
    "list_of_text": ["b", "a", "b", "c"],
    "bytes": np.array([b"b", b"a", b"b", b"c"]),
    "text_that_looks_missing": np.array(["NaT", "<NA>", "nan", "None"], dtype=object),
    "objects": np.array([2, 1, 2, 9], dtype=object),
    "one_column": np.array([[3], [1], [3], [7]]),
    "dates": np.array(["2020-01", "2019-01", "2020-01", "2021-01"], "M8[ns]"),
    "series": pd.Series([3, 1, 3, 7], index=[9, 8, 7, 6]),
    "text_series": pd.Series(["b", "a", "b", "c"]),
    "categories": pd.Series(["b", "a", "b", "c"], dtype="category"),
    "categories_of_floats": pd.Series([2.5, 1.0, 2.5, 3.0], dtype="category"),
    "nullable_series": pd.Series([3, 1, 3, 7], dtype="Int64"),
    "nullable_bools": pd.Series([True, False, True, True], dtype="boolean"),
    "frame": pd.DataFrame({"y": [3, 1, 3, 7]}),
    "frame_of_categories": pd.DataFrame({"y": pd.Categorical([2.5, 1.0, 2.5, 3.0])}),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_every_kind_are_classes(kind):
    y = LABELS[kind]
    targets = encode(y, 4, "auto", "auto", True)
    assert targets.formulation in ("binary", "II")
    plain = np.asarray(y).ravel().tolist()
    assert targets.classes.tolist() == sorted(set(plain))
    assert targets.classes[targets.codes].tolist() == plain


@pytest.mark.parametrize("make", [list, lambda y: np.array(y, dtype=object), pd.Series])
def test_labels_that_differ_by_a_null(make):
    """NumPy's text has none at its end, and would make one class of the two."""
    y = ["a", "a\0", "a", "b"]
    targets = encode(make(y), 4, "auto", "auto", True)
    assert targets.classes.tolist() == ["a", "a\0", "b"]
    assert targets.classes[targets.codes].tolist() == y


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [
        (5, 2**63, np.uint64),  # a float holds both
        (5, 2**63 + 1, np.uint64),
        (-5, 2**63 + 1, object),
        (5, 2**64 + 1, object),
        (np.int64(1), np.uint64(2), np.int64),
        (2**53, 2**53 + 1, np.int64),
    ],
)
def test_lists_of_whole_numbers_are_classes_however_large(low, high, dtype):
    """NumPy makes floats of some of them."""
    for y in ([low, high] * 20, [[low], [high]] * 20, (high, low) * 20):
        targets = encode(y, 40, "auto", "auto", True)
        assert targets.formulation == "binary" and targets.classes.dtype == dtype
        assert targets.classes.tolist() == [low, high]
        assert targets.codes.tolist() == [int(np.ravel(one)[0] == high) for one in y]


def test_labels_keep_their_type():
    for dtype in (np.int8, np.uint64, bool, "U1", "S1"):
        y = np.array([1, 0, 1]).astype(dtype)
        assert encode(y, 3, "auto", "auto", True).classes.dtype == y.dtype


VALUE_FORMS = {
    "list": [1.0, 2.5, 2.0],
    "float32": np.array([1.0, 2.5, 2.0], np.float32),
    "series": pd.Series([1.0, 2.5, 2.0]),
    "nullable_series": pd.Series([1.0, 2.5, 2.0], dtype="Float64"),
    "read_only": np.frombuffer(np.array([1.0, 2.5, 2.0]).tobytes()),
    "every_other": np.array([1.0, 0.0, 2.5, 0.0, 2.0])[::2],
    "longdouble": np.array([1.0, 2.5, 2.0], np.longdouble),
}


@pytest.mark.parametrize("form", VALUE_FORMS)
def test_values_of_every_kind_are_regression(form):
    targets = encode(VALUE_FORMS[form], 3, "auto", "auto", False)
    assert targets.formulation == "regression"
    np.testing.assert_array_equal(targets.values, [[1.0], [2.5], [2.0]])


def test_task_overrides_the_type():
    floats = encode([1.0, 2.0, 1.0], 3, "classification", "auto", True)
    assert floats.formulation == "binary"
    assert floats.classes.tolist() == [1.0, 2.0]
    integers = encode([1, 2, 6], 3, "regression", "auto", True)
    assert integers.formulation == "regression"
    np.testing.assert_array_equal(integers.values, [[-2.0], [-1.0], [3.0]])
    objects = encode(np.array([1, 2.5, True], dtype=object), 3, "regression", "auto", False)
    np.testing.assert_array_equal(objects.values, [[1.0], [2.5], [1.0]])


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("order", ["C", "F"])
def test_inputs_are_not_modified(center, order):
    y = np.array([[1.0, 2.0], [3.0, 5.0], [8.0, 1.0]], order=order)
    before = y.copy()
    targets = encode(y, 3, "auto", "auto", center)
    targets.values[:] = 0.0
    np.testing.assert_array_equal(y, before)


def test_a_constant_is_encoded():
    """Its evidence at given sigmas is fine; who searches for sigmas must refuse it."""
    assert encode(np.full(4, 0.1), 4, "auto", "auto", True).norm < 1e-30


@pytest.mark.parametrize(
    ("y", "options", "words"),
    [
        ([1, 2, 3], {"formulation": "binary"}, ["formulation", "'binary'", "3", "'I' or 'II'"]),
        ([1.0, 2.0, 3.0], {"formulation": "II"}, ["formulation", "'II'", "'auto'", "regression"]),
        ([1, 2, 3], {"formulation": "III"}, ["formulation", "'III'", "'binary', 'I', 'II'"]),
        ([1, 2, 3], {"formulation": 2}, ["formulation", "2", "'binary', 'I', 'II'"]),
        ([1, 2, 3], {"task": "both"}, ["task", "'both'", "'classification', 'regression'"]),
        ([1.0, 2.0, 3.0], {"center": "yes"}, ["center", "'yes'", "True or False"]),
        ([1.0, 2.0, 3.0], {"center": 1}, ["center", "1", "True or False"]),
        ([1e200, 2e200, 3e200], {}, ["y", "3e+200", "rescale"]),
        ([1e308, 1e308, 1.5e308], {}, ["y", "1.5e+308", "rescale"]),
        ([1e-200, 2e-200, 3e-200], {}, ["y", "3e-200", "rescale"]),
    ],
)
def test_refusals(y, options, words):
    options = {"task": "auto", "formulation": "auto", "center": True} | options
    with pytest.raises((ValueError, TypeError)) as caught:
        encode(y, 3, **options)
    for word in words:
        assert word in str(caught.value)


# ---------------------------------------------------------------- labels that came as floats


@pytest.mark.parametrize("labels", [TWO, 2 * TWO - 1, TWO + 1])
def test_two_floats_are_suspected_to_be_labels(labels):
    """Once, at the line that calls the package, with both ways out."""
    with pytest.warns(UserWarning) as caught:
        for _ in range(2):
            mksknn.select_k(X, labels.astype(float), k_max=3)
    (one,) = caught
    assert one.filename == __file__
    for word in (f"{labels.min()}.0", 'task="classification"', 'task="regression"'):
        assert word in str(one.message)


@pytest.mark.parametrize(
    ("y", "task"),
    [
        (TWO, "auto"),
        (TWO.astype(float), "classification"),
        (TWO.astype(float), "regression"),
        (TWO.astype(bool), "auto"),
        (THREE.astype(float), "auto"),  # may well be counts
        (0.5 * TWO, "auto"),
        (np.ones(24), "auto"),
        (np.column_stack([TWO, TWO]).astype(float), "auto"),
    ],
)
def test_anything_else_is_not(y, task):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encode(y, 24, task, "auto", True)
        encode(y[:9], 9, task, "auto", True)


PRICES = np.arange(100, 120)


@pytest.mark.parametrize(
    ("y", "what"),
    [
        (PRICES, 'whole numbers .* pass task="regression" or floats'),
        (PRICES.tolist(), "20 different whole numbers at 20 points"),
        (PRICES.astype(object), "whole numbers"),
        (PRICES.astype("datetime64[D]"), "dates .* make numbers of them"),
        (np.tile(np.arange(51), 3), "51 different whole numbers at 153 points"),
        (pd.Series(PRICES + 0.5, dtype=object), r"20 different numbers .* pass numpy\.asarray\(y"),
        ([Decimal(int(one)) / 10 for one in PRICES], "20 different numbers at 20 points"),
        ([Fraction(int(one), 7) for one in PRICES], "20 different numbers"),
    ],
)
def test_values_that_came_as_labels_are_told_once(y, what):
    X = np.random.default_rng(0).normal(size=(len(y), 2))
    with pytest.warns(UserWarning, match=what) as said:
        mksknn.select_k(X, y)
        mksknn.select_k(X, y)
    assert len(said) == 1


@pytest.mark.parametrize(
    ("y", "options"),
    [
        (PRICES, {"task": "classification"}),
        (PRICES, {"task": "regression"}),
        (PRICES // 2, {}),  # two points of each
        ([f"row {one}" for one in PRICES], {}),
        (PRICES[:8], {}),  # so few may differ by chance
        ([Decimal(int(one)) / 10 for one in PRICES // 2], {}),
        (np.array([True, False] * 10, dtype=object), {}),
    ],
)
def test_labels_that_are_labels_are_taken_without_a_word(y, options):
    X = np.random.default_rng(0).normal(size=(len(y), 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mksknn.select_k(X, y, **options)


def test_rows_in_another_order_are_told():
    """What pandas would put together by index is paired by place here."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(30, 2)), index=[f"row {i}" for i in range(30)])
    y = pd.Series(np.arange(30) % 3, index=X.index)
    shuffled = y.sample(frac=1.0, random_state=0)
    calls = (mksknn.select_k, mksknn.learn_metric, lambda X, y: mksknn.prepare(X, y, k=3))
    for call in calls:
        with pytest.warns(UserWarning, match=r"another order, .*y\.loc\[X\.index\]"):
            call(X, shuffled)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for fine in (y, shuffled.to_numpy(), shuffled.reset_index(drop=True), shuffled.tolist()):
            mksknn.select_k(X, fine)
        mksknn.select_k(X.to_numpy(), shuffled)
        mksknn.select_k(X.iloc[[0] * 15 + [1] * 15], y)  # rows drawn with repetitions


PLAIN = pd.RangeIndex(12)
PAIRS = pd.MultiIndex.from_product([[0, 1], range(6)])


@pytest.mark.parametrize(
    ("rows", "entries"),
    [
        (PLAIN, PAIRS),
        (PAIRS, PLAIN),
        (PAIRS, pd.MultiIndex.from_product([[0, 1], [0, 1], range(3)])),
        (pd.MultiIndex.from_product([[0, 1], [0, 1], range(3)]), PAIRS),
        (PLAIN, pd.date_range("2020-01-01", periods=12)),
        (PLAIN, pd.Index(range(12), dtype="Int64")),  # the same rows in the same order
        (PLAIN, pd.Index([*range(11), pd.NA], dtype="Int64")[::-1]),
        (PLAIN, pd.Index([[row] for row in range(12)], dtype=object)),
        (PLAIN, pd.Index(np.arange(12.0))),
        (PLAIN, pd.Index([0, 1] * 6)),  # some of them, more than once
        (PLAIN, pd.Index([True, False] * 6)),
    ],
)
def test_indexes_that_are_no_other_order(rows, entries):
    X = pd.DataFrame(np.arange(24.0).reshape(12, 2) ** 2, index=rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mksknn.select_k(X, pd.Series(np.arange(12) % 3, index=entries), k_max=3)


@pytest.mark.parametrize("rows", [PAIRS, pd.date_range("2020-01-01", periods=12), PLAIN])
def test_indexes_in_another_order(rows):
    X = pd.DataFrame(np.arange(24.0).reshape(12, 2) ** 2, index=rows)
    with pytest.warns(UserWarning, match="another order"):
        mksknn.select_k(X, pd.Series(np.arange(12) % 3, index=rows[::-1]), k_max=3)
