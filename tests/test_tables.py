"""Tables with names for their columns: messages say which column is meant."""

import re

import numpy as np
import pandas as pd
import pytest

import mksknn

TABLE = pd.DataFrame({"glu": [1.0, 2.0, 3.0, 4.0], "skin": [5.0, 6.0, 7.0, 8.0]})
Y = ["a", "b", "a", "b"]


def call_all(table):
    """The functions that take points, and new points."""
    yield lambda: mksknn.select_k(table, Y)
    yield lambda: mksknn.neighbors(table, 2)
    yield lambda: mksknn.learn_metric(table, Y)
    yield lambda: mksknn.predict(TABLE, Y, table, k=1)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_missing_and_infinite_values(value):
    table = TABLE.copy()
    table.loc[2, "skin"] = value
    for call in call_all(table):
        with pytest.raises(ValueError, match=r"\[2, 1\] = (nan|inf) in column 'skin'") as caught:
            call()
        assert ("fill in missing values" in str(caught.value)) == (value != value)


def test_text():
    for call in call_all(TABLE.assign(skin=["north", "south", "north", "north"])):
        with pytest.raises(TypeError, match=r"'north' \(str\) in column 'skin': turn.*get_dum"):
            call()


def test_other_columns():
    table = TABLE.assign(clinic=["north", "south", "north", "north"])
    for call in list(call_all(table))[:2]:
        with pytest.raises(TypeError, match=r"got 'north' \(str\) in column 'clinic'"):
            call()
    with pytest.raises(ValueError, match=r"X_new must have the columns of X, \['glu', 'skin'\]"):
        mksknn.predict(TABLE, Y, table, k=1)


def test_missing_whole_numbers():
    table = TABLE.assign(skin=pd.array([1, None, 3, 4], dtype="Int64"))
    for call in call_all(table):
        with pytest.raises(TypeError, match=r"NA.* in column 'skin': drop or fill in missing"):
            call()


def test_arrays_have_no_names():
    values = TABLE.to_numpy().copy()
    values[0, 0] = float("nan")
    with pytest.raises(ValueError, match=r"\[0, 0\] = nan: drop or fill"):
        mksknn.select_k(values, Y)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("1.5", "it is text, turn it into numbers (pandas.to_numeric)"),
        ("1,5", "it has decimal commas, read it by pandas.read_csv(..., decimal=',')"),
        ("1,500,000", "turn categories into indicators (pandas.get_dummies)"),
        ("north", "turn categories into indicators (pandas.get_dummies)"),
        (pd.Timestamp("2026-11-18"), "turn dates into numbers, such as days since the first"),
        (None, "drop or fill in missing values first"),
    ],
)
def test_a_column_that_holds_no_numbers_is_told_what_to_become(value, hint):
    table = pd.DataFrame({"age": [1.0, 2.0], "when": pd.Series([value] * 2, dtype=object)})
    with pytest.raises(TypeError, match=re.escape(f"in column 'when': {hint}")):
        mksknn.neighbors(table)


@pytest.mark.parametrize("y", [[1.0, float("nan"), 2.0, 3.0], ["a", None, "b", "b"]])
def test_a_missing_target_is_told_where_it_is_and_what_to_do(y):
    with pytest.raises(ValueError, match=r"got y\[1\] = (nan|None): leave out the rows without"):
        mksknn.select_k([[0.0], [1.0], [2.0], [4.0]], y)


def test_the_way_to_a_single_row_works_for_what_was_given():
    table = pd.DataFrame({"age": [1.0, 2.0, 4.0, 8.0], "bmi": [0.0, 1.0, 0.0, 2.0]})
    predictor = mksknn.prepare(table, ["a", "a", "b", "b"], k=1)
    for X_new in (table.iloc[0], table.to_numpy()[0], [1.0, 0.0]):
        with pytest.raises(ValueError, match="for a single point") as caught:
            predictor(X_new)
        (how,) = re.findall("use (.*) for a single point", str(caught.value))
        assert predictor(eval(how)).label.tolist() == ["a"]
    for X in (table["age"], table["age"].to_numpy(), [1.0, 2.0, 4.0, 8.0]):
        with pytest.raises(ValueError, match="for points with one column") as caught:
            mksknn.neighbors(X)
        (how,) = re.findall("use (.*) for points with one column", str(caught.value))
        assert mksknn.neighbors(eval(how, {"X": X})).indices[0].tolist() == [1, 2, 3]


def test_a_number_where_a_model_belongs():
    with pytest.raises(TypeError, match="got 3: pass k=3"):
        mksknn.predict([[0.0], [1.0]], ["a", "b"], [[0.5]], 3)


def test_text_in_an_array_is_told_what_to_become():
    with pytest.raises(TypeError, match=r"it is text, X.astype\(float\) makes numbers of it"):
        mksknn.select_k(TABLE.to_numpy().astype(str), Y)
    with pytest.raises(TypeError, match=r"it is text, y.astype\(float\) makes numbers of it"):
        mksknn.select_k(TABLE, TABLE.iloc[:, 0].to_numpy().astype(str), task="regression")
    with pytest.raises(TypeError, match=r"it is text, numpy.array\(X, dtype=float\) makes"):
        mksknn.select_k([["1"], ["2"], ["3"]], ["a", "b", "a"])
    with pytest.raises(TypeError, match=r"real numbers; got 'patients.csv'$"):
        mksknn.select_k("patients.csv", Y)


def test_indicators_are_told_how_to_become_labels():
    indicators = pd.get_dummies(Y)
    with pytest.raises(ValueError, match=r": numpy.argmax\(y, axis=1\) makes labels") as caught:
        mksknn.select_k(TABLE, indicators)
    (how,) = re.findall(r"numpy(\.argmax\(.*\)) makes", str(caught.value))
    labels = eval(f"np{how}", {"np": np, "y": indicators})
    assert mksknn.select_k(TABLE, labels).k == mksknn.select_k(TABLE, Y).k
    with pytest.raises(ValueError, match=r"got shape \(\d+, 2\)$"):
        mksknn.select_k(TABLE, np.column_stack([Y, Y]).astype(str))


def test_a_dict_is_no_table_yet():
    with pytest.raises(TypeError, match=r"X must .* got a dict: pandas.DataFrame\(X\) makes"):
        mksknn.select_k(TABLE.to_dict("list"), Y)
    predictor = mksknn.prepare(TABLE, Y, k=2)
    row = TABLE.iloc[0].to_dict()
    with pytest.raises(TypeError, match=r"X_new must .* pandas.DataFrame\(\[X_new\]\) one row"):
        predictor(row)
    assert len(predictor(pd.DataFrame([row])).label) == 1


def test_half_precision_is_taken_without_a_word():
    table = TABLE.astype(np.float16)
    assert mksknn.select_k(table, Y).k == mksknn.select_k(table.astype(float), Y).k
