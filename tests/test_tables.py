"""Tables with names for their columns: messages say which column is meant."""

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
