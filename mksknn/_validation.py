"""The gate: every public function coerces and checks its arguments here, once.

Errors name the argument, show the value seen and say what is allowed. Nothing behind the gate
checks again, and nothing behind it modifies what the caller passed.
"""

from __future__ import annotations

import decimal
import inspect
import math
import numbers
import os
import re
import reprlib
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy.sparse

from ._jit import kernel
from ._names import TASKS, Task

_Name = TypeVar("_Name", bound=str)


def one_of(value: object, allowed: Sequence[_Name], name: str) -> _Name:
    """Return `value` if it is one of the `allowed` names."""
    if isinstance(value, str) and value in allowed:
        return allowed[allowed.index(value)]  # the plain str of one that is a subclass
    choices = ", ".join(repr(choice) for choice in allowed)
    kind = ValueError if isinstance(value, str) else TypeError
    raise kind(f"{name} must be one of {choices}; got {show(value)}")


_shortened = reprlib.Repr()
_shortened.maxother = _shortened.maxstring = 80


def show(value: object) -> str:
    """A value as an error message shows it: short, and NumPy's numbers as plain ones."""
    try:
        return _shortened.repr(value.item() if isinstance(value, np.generic) else value)
    except ValueError:  # Python prints no integers of thousands of digits
        return f"{type(value).__name__} too long to print"


def check_points(X: object, metric: str = "euclidean", name: str = "X") -> np.ndarray:
    """Return training points as a C-ordered float64 matrix (distances if precomputed)."""
    points = _as_matrix(X, name)
    n, columns = points.shape
    if n < 2:
        raise ValueError(f"{name} must have at least 2 rows (points); got shape {points.shape}")
    if columns == 0:
        raise ValueError(f"{name} must have at least 1 column; got shape {points.shape}")
    if metric == "precomputed":
        return _check_distances(points, name)
    _check_metric_fits(points, metric, name)
    return _writable(points)


def check_new_points(
    X_new: object,
    points: np.ndarray,
    metric: str,
    name: str = "X_new",
    which: str = "the columns of X",
) -> np.ndarray:
    """Return query points matching the training `points` (n_new x n distances if precomputed).

    Of the points only the number of columns and their extremes matter: two corners will do, of
    distances the least and the largest.
    """
    new = _as_matrix(X_new, name, points.shape[1])
    if new.shape[1] != points.shape[1]:
        what = "a distance to each training point" if metric == "precomputed" else which
        raise ValueError(
            f"{name} must have {points.shape[1]} columns ({what}); got shape {new.shape}"
        )
    if len(new) == 0:
        return new
    if metric == "precomputed":
        return _without_negatives(new, name, float(points.max()))
    _check_metric_fits(new, metric, name, points)
    return _writable(new)


def _writable(matrix: np.ndarray) -> np.ndarray:
    """A copy if read-only (as pandas gives them): every kernel would be compiled once more."""
    return matrix if matrix.flags.writeable else matrix.copy()


def _as_matrix(X: object, name: str, columns: int | None = None) -> np.ndarray:
    """A C-ordered float64 matrix; `columns` are known of queries, and there may be none of them."""
    if isinstance(X, dict):
        raise TypeError(
            f"{name} must hold real numbers, in an array, a table or a list of rows; got a dict: "
            f"pandas.DataFrame({name}) makes a table of columns, pandas.DataFrame([{name}]) one row"
        )
    for column, kind in getattr(getattr(X, "dtypes", None), "items", tuple)():
        if str(kind) == "category":  # also if they are numbers: it is not how far they are apart
            raise TypeError(
                f"{name} must hold real numbers; got categories in column {show(column)}"
                f"{_CATEGORIES}"
            )
    dense = f", which is not supported: pass {name}.toarray(), or a reduced dense form of it"
    array = _as_array(X, name, dense, "be a matrix of numbers, all rows of one length; got")
    array = _as_real(array, name, X)
    if columns is not None and array.shape in ((0,), (0, 0)):
        return np.empty((0, columns))
    if array.ndim != 2:
        hint = _as_one(X, name, columns in (None, 1)) if array.ndim == 1 else ""
        raise ValueError(
            f"{name} must be a matrix, one row per point; got {array.ndim} dimension(s), "
            f"shape {array.shape}{hint}"
        )
    with np.errstate(over="ignore"):  # extended precision holds what float64 does not
        matrix = np.require(array, np.float64, ["C", "ALIGNED"])
    if at := _first(~np.isfinite(matrix)):
        raise ValueError(
            f"{name} must be finite; got {_entry(matrix, at, name)}{_column_name(X, at[1])}"
            f"{_FILL if np.isnan(matrix[at]) else ''}"
        )
    return matrix


def check_finite(array: np.ndarray, name: str) -> None:
    """Refuse numbers that are none."""
    if at := _first(~np.isfinite(array)):
        raise ValueError(f"{name} must be finite; got {_entry(array, at, name)}")


_CATEGORIES = ": turn categories into indicators (pandas.get_dummies), or leave it out"
_FILL = ": drop or fill in missing values first"


def _as_one(X: object, name: str, one_column: bool) -> str:
    """How a list of numbers becomes a matrix of one column, or of one row."""
    if hasattr(X, "to_frame"):  # a Series of pandas
        how = f"{name}.to_frame()" if one_column else f"{name}.to_frame().T"
    elif hasattr(X, "shape"):
        how = f"{name}[:, None]" if one_column else f"{name}[None, :]"
    else:
        how = f"[[x] for x in {name}]" if one_column else f"[{name}]"
    return f"; use {how} for " + ("points with one column" if one_column else "a single point")


def _first(bad: np.ndarray) -> tuple[int, ...]:
    """Where the first of these is, row by row; an empty tuple if nowhere."""
    if not bad.any():
        return ()
    return tuple(int(at) for at in np.unravel_index(int(bad.argmax()), bad.shape))


def _entry(array: np.ndarray, at: tuple[int, ...], name: str) -> str:
    """One entry as messages show it: X[3, 1] = nan."""
    return f"{name}[{', '.join(map(str, at))}] = {array[at]}"


def _column_name(X: object, column: int) -> str:
    """Where X is a table with names for its columns, the name of one, to be put into a message."""
    names = getattr(X, "columns", None)
    return "" if names is None else f" in column {show(names[column])}"


def _as_real(
    array: np.ndarray, name: str, X: object = None, what: str = "real numbers"
) -> np.ndarray:
    """An array of numbers that a float64 holds; `X` is what it was made from."""
    if array.dtype.kind == "O":
        array = _objects_to_float(array, name, X)
    if array.dtype.kind not in "fiub":
        if array.ndim == 0:
            raise TypeError(f"{name} must hold {what}; got {show(array.item())}")
        listed = isinstance(X, list | tuple)
        make = f"numpy.array({name}, dtype=float)" if listed else f"{name}.astype(float)"
        text = f": it is text, {make} makes numbers of it if it holds any"
        hint = text if array.dtype.kind in "US" else ""
        raise TypeError(f"{name} must hold {what}; got dtype {array.dtype}{hint}")
    _check_digits(array, name)
    return array


def _objects_to_float(array: np.ndarray, name: str, X: object) -> np.ndarray:
    """Objects are welcome where each is a number (pandas mixes them); text is not read as one."""
    for at, value in enumerate(array.ravel()):
        if isinstance(value, complex) or not isinstance(value, numbers.Real | np.bool_):
            where = _column_name(X, at % array.shape[1]) if array.ndim == 2 else ""
            hint = _into_numbers(value, name) if where or isinstance(value, decimal.Decimal) else ""
            raise TypeError(
                f"{name} must hold real numbers; got {show(value)} ({type(value).__name__})"
                f"{where}{hint}"
            )
    try:
        floats = array.astype(np.float64)
    except OverflowError:
        raise ValueError(
            f"{name} must be finite as float64; got an integer of more than 308 digits"
        ) from None
    _check_digits(array, name)
    return floats


def _into_numbers(value: object, name: str) -> str:
    """What to do with a column of a table that holds such a value, or with decimals anywhere."""
    if isinstance(value, decimal.Decimal):
        return f": numpy.asarray({name}, dtype=float) makes floats of decimals"
    kind = type(value).__name__
    if kind in ("NAType", "NaTType", "NoneType"):
        return _FILL
    if kind in ("Timestamp", "Timedelta", "Period", "datetime", "date"):
        return ": turn dates into numbers, such as days since the first, or leave it out"
    if not isinstance(value, str):
        return ""
    try:
        float(value)
    except ValueError:
        if re.fullmatch(r"\s*[-+]?[0-9]+,[0-9]+\s*", value):
            return ": it has decimal commas, read it by pandas.read_csv(..., decimal=',')"
        return _CATEGORIES
    return ": it is text, turn it into numbers (pandas.to_numeric)"


def _as_array(X: object, name: str, dense: str, form: str) -> np.ndarray:
    """Whatever NumPy takes for an array, but nothing sparse, masked or ragged, no digits lost."""
    array = _plain_array(X, name, dense, form)
    if array.dtype.kind == "f" and array is not X:
        _check_digits_before(X, array, name)
    return array


def _plain_array(X: object, name: str, dense: str, form: str) -> np.ndarray:
    """The same, but its floats may be integers that have lost digits."""
    if scipy.sparse.issparse(X):
        raise TypeError(f"{name} must be a dense array; got a sparse {type(X).__name__}{dense}")
    if count := _masked_values(X):
        raise ValueError(
            f"{name} must not have masked values; got {count} of them: drop or fill them first"
        )
    try:
        return np.asarray(X)
    except ValueError as error:
        raise ValueError(f"{name} must {form} {show(X)}") from error


def _masked_values(X: object, depth: int = 2) -> int:
    """How many there are in an array, in rows of a list and among the entries of them."""
    if isinstance(X, np.ma.MaskedArray):
        return int(np.ma.count_masked(X))
    if depth and isinstance(X, list | tuple):
        return sum(
            _masked_values(one, depth - 1)
            for one in X
            if isinstance(one, list | tuple | np.ma.MaskedArray)
        )
    return 0


def _check_digits(array: np.ndarray, name: str) -> None:
    """Refuse integers that a float64 does not hold."""
    if array.dtype.kind == "O":
        integers = [value for value in array.ravel() if isinstance(value, numbers.Integral)]
    elif array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        # the least int64 has no absolute value among them
        integers = array[(array > 2**53) | (array < -(2**53))].tolist()
    else:
        return
    for value in integers:
        if int(float(value)) != value:
            raise ValueError(
                f"{name} must hold numbers that a float64 holds; got the integer {show(value)}, "
                f"which would become {float(value):.0f}: take off what all of them have in common"
            )


def _check_digits_before(X: object, array: np.ndarray, name: str) -> None:
    """The same of integers that have become floats because there are floats beside them."""
    if array.dtype.itemsize < 4 or max(array.max(initial=0.0), -array.min(initial=0.0)) < 2.0**53:
        return
    if isinstance(X, list | tuple):
        _check_digits(np.asarray(X, dtype=object), name)
    elif hasattr(X, "dtypes") and hasattr(X, "items"):  # a table of pandas
        for _, column in X.items():
            _check_digits(np.asarray(column), name)


# Of the largest distance or entry: what differs by less is rounding. A cosine distance is off by
# 1e-16 whatever its size, so that no pair can be judged by its own.
_ROUNDING = 1e-12


def _check_distances(distances: np.ndarray, name: str) -> np.ndarray:
    """Distances of training points without what rounding has done to them."""
    if distances.shape[0] != distances.shape[1]:
        raise ValueError(
            f"{name} must be a square matrix of distances when metric='precomputed'; "
            f"got shape {distances.shape}"
        )
    if (distances != distances.T).any():
        # halves: neither their difference nor their sum overflows
        half = 0.5 * distances
        apart = np.abs(half - half.T)
        i, j = np.unravel_index(int(np.argmax(apart)), apart.shape)
        if apart[i, j] > 0.5 * _ROUNDING * distances.max():
            i, j = min(i, j), max(i, j)
            raise ValueError(
                f"{name} must be symmetric when metric='precomputed', to {_ROUNDING:g} of "
                f"its largest entry; got {name}[{i}, {j}] = {distances[i, j]} but "
                f"{name}[{j}, {i}] = {distances[j, i]}"
            )
        distances = np.where(apart > 0.0, half + half.T, distances)
    return _without_negatives(distances, name)


def _without_negatives(
    distances: np.ndarray, name: str, largest: float = 0.0, what: str = "hold distances"
) -> np.ndarray:
    """Distances of which rounding has left some below zero; the `largest` known of others."""
    least = distances.min()
    if least >= 0.0:
        return distances
    if not -least <= _ROUNDING * max(distances.max(), largest):
        raise ValueError(f"{name} must {what} >= 0; got {least}")
    return np.maximum(distances, 0.0)


# Squares of what lies beyond lose digits, or vanish: at 1e-200 all points would coincide.
_SMALLEST, _LARGEST = 1e-145, 1e153


def _check_metric_fits(
    points: np.ndarray, metric: str, name: str, among: np.ndarray | None = None
) -> None:
    """Refuse values whose distances over- or underflow, or have no meaning.

    Queries are judged together with the points that they are `among`: one far off could overflow
    where the data alone do not.
    """
    if metric == "cosine":
        with np.errstate(over="ignore"):
            lengths = np.sqrt((points * points).sum(axis=1))
        bad = np.flatnonzero(~((lengths >= _SMALLEST) & (lengths <= _LARGEST)))
        if bad.size:
            raise ValueError(
                f"{name} must have rows of length {_SMALLEST:g} to {_LARGEST:g} for "
                f"metric='cosine'; got row {bad[0]} of length {lengths[bad[0]]:g}"
            )
        return
    top, bottom = points.max(axis=0), points.min(axis=0)
    if among is not None:
        top, bottom = np.maximum(top, among.max(axis=0)), np.minimum(bottom, among.min(axis=0))
    with np.errstate(over="ignore"):
        span = top - bottom
        total = (span * span).sum() if metric == "euclidean" else span.sum()
    if not math.isfinite(total):
        raise ValueError(
            f"{name} must span a range whose {metric} distances fit in a float; "
            f"got a column spanning {span.max():g}: rescale it"
        )
    if metric == "euclidean" and 0 < span.max() < _SMALLEST:
        raise ValueError(
            f"{name} must span 0 or at least {_SMALLEST:g}, for squares of less vanish; "
            f"got columns spanning at most {span.max():g}: rescale them"
        )


def check_k(k: object, n: int, name: str = "k") -> int:
    """Return a number of neighbours in 1..n-1 as an int."""
    if isinstance(k, bool | np.bool_) or not isinstance(k, numbers.Integral):
        raise TypeError(f"{name} must be an integer from 1 to {n - 1} (n - 1); got {show(k)}")
    if not 1 <= int(k) <= n - 1:
        raise ValueError(f"{name} must be from 1 to {n - 1} (n - 1); got {show(k)}")
    return int(k)


def check_k_max(k_max: object, n: int) -> int:
    """Return k_max, all n-1 neighbours when None."""
    return n - 1 if k_max is None else check_k(k_max, n, "k_max")


def check_ks(ks: Any, k_max: object, n: int) -> np.ndarray:
    """Return the increasing k to work on: `ks`, or 1..k_max, or all of 1..n-1."""
    if ks is None:
        return np.arange(1, check_k_max(k_max, n) + 1)
    if k_max is not None:
        raise ValueError(f"give ks or k_max, not both; got ks={show(ks)} and k_max={show(k_max)}")
    try:
        entries = () if isinstance(ks, str | bytes | dict) else iter(ks)
    except TypeError:
        entries = ()
    if entries == ():
        raise TypeError(
            f"ks must be a sequence of integers from 1 to {n - 1} (n - 1); got {show(ks)}"
        )
    values = [check_k(k, n, "each of ks") for k in entries]
    if not values:
        raise ValueError("ks must hold at least one k; got an empty sequence")
    return np.unique(values)


def check_positive(value: object, name: str) -> float:
    """Return a finite number above zero as a float."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number > 0; got {show(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name} must be finite and > 0; got {show(value)}")
    return number


def check_share(value: object, name: str) -> float:
    """Return a number from 0 up to 1 as a float."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number from 0 up to 1; got {show(value)}")
    try:
        share = float(value)
    except OverflowError:
        share = math.inf
    if not 0.0 <= share < 1.0:
        raise ValueError(f"{name} must be at least 0 and below 1; got {show(value)}")
    return share


def check_sigmas(sigma0: object, sigma2: object) -> tuple[float, float] | None:
    """Return (sigma0, sigma2), or None when neither is given."""
    if sigma0 is None and sigma2 is None:
        return None
    if sigma0 is None or sigma2 is None:
        given, missing = ("sigma2", "sigma0") if sigma0 is None else ("sigma0", "sigma2")
        raise ValueError(f"{missing} must be given with {given}, or neither; got {missing}=None")
    return check_positive(sigma0, "sigma0"), check_positive(sigma2, "sigma2")


def check_ratio_bounds(ratio_bounds: Any) -> tuple[float, float]:
    """Return the range (low, high) in which sigma2/sigma0 is searched."""
    try:
        low, high = ratio_bounds
    except (TypeError, ValueError):
        raise TypeError(
            f"ratio_bounds must be two numbers (low, high); got {show(ratio_bounds)}"
        ) from None
    low, high = check_positive(low, "ratio_bounds[0]"), check_positive(high, "ratio_bounds[1]")
    if not low < high:
        raise ValueError(f"ratio_bounds must have low < high; got {show(ratio_bounds)}")
    return low, high


def check_flag(value: object, name: str) -> bool:
    """Return a plain bool."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False; got {show(value)}")
    return bool(value)


def check_executor(executor: Any) -> Any:
    """Return the executor if it can submit work."""
    if isinstance(executor, type):
        raise TypeError(
            f"executor must be an instance with a submit method, such as {executor.__name__}(); "
            f"got the class {executor.__name__} itself"
        )
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise TypeError(
            "executor must be None or have submit(fn, *args), as a ProcessPoolExecutor or a "
            f"dask.distributed.Client does; got {show(executor)}"
        )
    return executor


def check_task(y: object, n: int, task: Task = "auto") -> tuple[Task, np.ndarray]:
    """Return ("regression", float targets) or ("classification", label array), n of them.

    Float targets mean regression; integers, booleans, strings and objects mean classes.
    """
    one_of(task, TASKS, "task")
    array = _as_targets(y)
    if array.ndim not in (1, 2) or array.shape[0] != n:
        seen = show(y) if array.ndim == 0 else f"shape {array.shape}"
        raise ValueError(f"y must have one entry for each of the {n} rows of X; got {seen}")
    guessed = task == "auto"
    if guessed:
        floats = array.dtype.kind == "f" and not _were_whole(y)
        task = "regression" if floats else "classification"
    if task == "classification":
        labels = _check_labels(array)
        if guessed:
            _warn_of_values(labels)
        return task, labels
    values = _check_values(array)
    if guessed:
        _warn_of_labels(values)
    return task, values


def _were_whole(y: object) -> bool:
    """Whether pandas has made floats of integers, as it does where one is missing."""
    return all(getattr(one, "kind", "f") in "iub" for one in _types(y))


def _types(y: object) -> np.ndarray:
    """The type of an array or a column; of a table, one for each column."""
    types: Any = getattr(y, "dtypes", getattr(y, "dtype", None))
    return np.ravel(types)


_MANY = 10  # numbers, among which two different ones are not there by chance
_warned = False
_warned_of_values = False


def _warn_of_labels(values: np.ndarray) -> None:
    """Say once that two values look like labels."""
    global _warned
    if _warned or values.ndim > 1 or len(values) < _MANY:
        return
    low, high = float(values.min()), float(values.max())
    two = low < high and bool(((values == low) | (values == high)).all())
    if not (two and low.is_integer() and high.is_integer()):
        return
    warn(
        f"y holds {low} and {high} only, and is taken for values to predict because these are "
        'floats. If they are labels, pass task="classification" or integers; if they are values, '
        'task="regression" says so'
    )
    _warned = True


_CLASSES = 50  # more than that are hardly ever classes that are known by a number


def _warn_of_values(labels: np.ndarray) -> None:
    """Say once that numbers or dates look like values: many, or most of them there once."""
    global _warned_of_values
    if _warned_of_values or len(labels) < _MANY:
        return
    kind = labels.dtype.kind
    if kind in "Mm":
        what, make = "dates", "make numbers of them"
    elif kind in "iu" or (kind == "O" and all(isinstance(one, numbers.Integral) for one in labels)):
        what, make = "whole numbers", 'pass task="regression" or floats'
    elif kind == "O" and all(isinstance(one, numbers.Number) for one in labels):
        what, make = "numbers", "pass numpy.asarray(y, dtype=float)"
    else:
        return
    _, counts = np.unique(labels, return_counts=True)
    if len(counts) <= _CLASSES and 2 * int((counts == 1).sum()) <= len(labels):
        return
    warn(
        f"y holds {len(counts)} different {what} at {len(labels)} points, and each is taken for a "
        f"class. If they are values to predict, {make}; if they are labels, "
        'task="classification" says so'
    )
    _warned_of_values = True


def warn_of_order(X: object, y: object) -> None:
    """Say that a table and a column of pandas hold the same rows in different orders."""
    rows: Any = getattr(X, "index", None)
    entries: Any = getattr(y, "index", None)
    if not (hasattr(rows, "equals") and hasattr(entries, "equals")) or rows.equals(entries):
        return
    # as plain labels: two indexes may be of different types, or of different numbers of levels
    known, seen = rows.tolist(), entries.tolist()
    try:
        other = known != seen and len(set(known)) == len(known) == len(seen)
        other = other and set(known) == set(seen)
    except TypeError:  # labels that cannot be compared (pandas.NA) or hashed (lists)
        return
    if other:
        warn(
            "y has the rows of X in another order, by the index of both, and they are paired by "
            "place. If they belong together by index, pass y.loc[X.index]; if not, y.to_numpy() "
            "says so"
        )


def warn(message: str) -> None:
    """Say it of the line that calls the package."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__package__") == __package__:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=level)


def _as_targets(y: object) -> np.ndarray:
    form = "have one entry, or one row of outputs, for each point; got a ragged"
    array = _plain_array(y, "y", ": use .toarray()", form)
    if array.dtype.kind == "f" and array is not y:
        whole = _whole_numbers(y)
        if whole is None:
            _check_digits_before(y, array, "y")
        else:
            array = whole
    # Objects are common ground: categories are classes whatever they hold, NumPy would turn a NaN
    # or a number among text into text, and pandas and NumPy have further types for text.
    categories = any(str(one) == "category" for one in _types(y))
    listed_text = array.dtype.kind in "US" and array.ndim and not hasattr(y, "dtype")
    if categories or listed_text or array.dtype.kind not in "fiubOUScMm":
        array = np.asarray(y, dtype=object)
    return array


def _whole_numbers(y: object) -> np.ndarray | None:
    """A list of whole numbers of which NumPy has made floats, as it does where no signed and no
    unsigned type holds all of them, or where they are of both kinds.
    """
    if not isinstance(y, list | tuple):
        return None
    given = np.asarray(y, dtype=object)
    if not given.size or not all(isinstance(one, numbers.Integral) for one in given.ravel()):
        return None
    whole = [int(one) for one in given.ravel()]
    for kind in (np.int64, np.uint64):
        if np.iinfo(kind).min <= min(whole) and max(whole) <= np.iinfo(kind).max:
            return np.array(whole, kind).reshape(given.shape)
    return np.array(whole, dtype=object).reshape(given.shape)


def _check_values(array: np.ndarray) -> np.ndarray:
    array = _as_real(array, "y", what="real numbers for task='regression'")
    if array.ndim == 2 and array.shape[1] == 0:
        raise ValueError(f"y must have at least 1 output; got shape {array.shape}")
    values = np.ascontiguousarray(array, dtype=np.float64)
    if at := _first(~np.isfinite(values)):
        missing = ": leave out the rows without a value" if np.isnan(values[at]) else ""
        raise ValueError(f"y must be finite; got {_entry(values, at, 'y')}{missing}")
    return values


def _check_labels(array: np.ndarray) -> np.ndarray:
    if array.ndim == 2:
        if array.shape[1] != 1:
            hint = ""
            if array.dtype.kind in "iub":
                hint = ": numpy.argmax(y, axis=1) makes labels of indicators, and values to "
                hint += 'predict are floats, or told of by task="regression"'
            raise ValueError(
                f"y must be one label per point for classification; got shape {array.shape}{hint}"
            )
        array = array[:, 0]
    if array.dtype.kind == "c":
        raise TypeError(f"y must hold labels or real numbers; got dtype {array.dtype}")
    if at := _first(_missing(array)):
        raise ValueError(
            f"y must not have missing labels; got {_entry(array, at, 'y')}: leave out the rows "
            "without one"
        )
    if array.dtype.kind == "O" and all(isinstance(label, str) for label in array):
        text = array.astype(str)
        if (text == array).all():  # NumPy's text has no NULs at its end
            array = text
    try:
        distinct = np.unique(array)
    except (TypeError, ValueError):
        names = ", ".join(sorted({type(label).__name__ for label in array}))
        raise TypeError(f"y must hold labels that can be sorted; got {names}") from None
    if len(distinct) < 2:
        raise ValueError(f"y must have at least 2 classes; got only {show(distinct[0])}")
    return array


def _missing(labels: np.ndarray) -> np.ndarray:
    """Which labels are none."""
    if labels.dtype.kind == "f":
        return ~np.isfinite(labels)
    if labels.dtype.kind in "Mm":
        return np.isnat(labels)
    if labels.dtype.kind == "O":
        return np.array([_is_missing(label) for label in labels], np.bool_)
    return np.zeros(len(labels), np.bool_)


def _is_missing(label: object) -> bool:
    """None, and what is not equal to itself: NaN, NaT.

    pandas.NA and the signaling NaN of decimal will not even say.
    """
    try:
        return label is None or bool(label != label)
    except (TypeError, ArithmeticError):
        return True
    except ValueError:  # an array
        return False


def check_lists(indices: object, distances: object) -> tuple[np.ndarray, np.ndarray]:
    """Return lists of neighbours (int32) and their distances, or places where there are none."""
    found = _as_array(indices, "indices", "", "have rows of one length; got")
    if found.dtype.kind not in "iu":
        raise TypeError(f"indices must be integers; got dtype {found.dtype}")
    if found.ndim != 2 or found.shape[0] < 2 or found.shape[1] < 1:
        raise ValueError(
            "indices must have a row for each of at least 2 points, and at least 1 column; "
            f"got shape {found.shape}"
        )
    n, k_max = found.shape
    if at := _first((found < 0) | (found >= n)):
        hint = " (a neighbour that was not found?)" if found[at] == -1 else ""
        raise ValueError(
            f"indices must be from 0 to {n - 1} (n - 1); got {_entry(found, at, 'indices')}{hint}"
        )
    if at := _first(found == np.arange(n)[:, None]):
        raise ValueError(
            "indices must not hold a point in its own row; got "
            f"{_entry(found, at, 'indices')}: take the points themselves out"
        )
    found = found.astype(np.int32, order="C")
    ordered = np.sort(found, axis=1)
    if at := _first(ordered[:, 1:] == ordered[:, :-1]):
        raise ValueError(
            f"indices must not repeat a neighbour; got {ordered[at]} twice in row {at[0]}"
        )
    if distances is None:
        places = np.arange(1.0, k_max + 1.0)
        return found, np.tile(places, (n, 1))
    away = _as_matrix(distances, "distances")
    if away.shape != found.shape:
        raise ValueError(
            f"distances must have the shape of indices, {found.shape}; got {away.shape}"
        )
    away = _without_negatives(away, "distances", what="be")
    if at := _first(away[:, :-1] - away[:, 1:] > _ROUNDING * away.max()):
        raise ValueError(
            "distances must not fall along a row; "
            f"got {away[at]} before {away[at[0], at[1] + 1]} in row {at[0]}"
        )
    return found, np.abs(np.maximum.accumulate(away, axis=1))  # a copy, without -0.0


def check_ranked(indices: object, distances: object) -> None:
    """Refuse ranks by which a kernel would reach beyond its arrays: anyone may make a Neighbors."""
    plain = (
        isinstance(indices, np.ndarray)
        and isinstance(distances, np.ndarray)
        and (indices.dtype, distances.dtype) == (np.int32, np.float64)
        and indices.shape == distances.shape
        and indices.ndim == 2
        and min(indices.shape[0] - 1, indices.shape[1]) >= 1
        and _are_others(indices)
    )
    if not plain:
        raise ValueError(
            "X must be a Neighbors from neighbors or as_neighbors, as they return it; got one made "
            "or changed by hand: as_neighbors(indices, distances) takes lists"
        )


@kernel
def _are_others(indices):
    """Whether each row holds other points, and none of them twice."""
    n = indices.shape[0]
    seen = np.full(n, -1, np.int32)
    for i in range(n):
        seen[i] = i
        for c in range(indices.shape[1]):
            j = indices[i, c]
            if not 0 <= j < n or seen[j] == i:
                return False
            seen[j] = i
    return True


def check_symmetric(A: Any, name: str) -> scipy.sparse.csc_array:
    """Return a symmetric sparse matrix of finite floats."""
    if not scipy.sparse.issparse(A):
        raise TypeError(f"{name} must be a SciPy sparse array; got {type(A).__name__}")
    if A.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers; got dtype {A.dtype}")
    matrix = scipy.sparse.csc_array(A)
    _check_digits(matrix.data, name)
    matrix = matrix.astype(np.float64)
    if matrix.shape[0] != matrix.shape[1] or not matrix.shape[0]:
        raise ValueError(f"{name} must be square and not empty; got shape {matrix.shape}")
    if not np.isfinite(matrix.data).all():
        raise ValueError(f"{name} must be finite; got {matrix.data[~np.isfinite(matrix.data)][0]}")
    half = 0.5 * matrix
    apart = abs(half - half.T).tocoo()
    if not apart.nnz:
        return matrix
    worst = int(np.argmax(apart.data))
    if apart.data[worst] > _ROUNDING * abs(half).max():
        i, j = sorted((int(apart.row[worst]), int(apart.col[worst])))
        raise ValueError(
            f"{name} must be symmetric, to {_ROUNDING:g} of its largest entry; got "
            f"{name}[{i}, {j}] = {matrix[i, j]} but {name}[{j}, {i}] = {matrix[j, i]}"
        )
    return half + half.T


def check_memory(needed: float, what: str, advice: str) -> None:
    """Refuse a request that the machine's free memory cannot hold, before allocating."""
    free = free_memory()
    if free is not None and needed > free:
        raise ValueError(
            f"{what} would take {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB of memory is free: "
            f"{advice}"
        )


def free_memory() -> float | None:
    """Bytes this process may still take, or None where the system does not tell."""
    free = []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free += [1024.0 * int(row.split()[1]) for row in lines if row.startswith("MemAvailable")]
    except OSError:
        names = getattr(os, "sysconf_names", {})
        if "SC_AVPHYS_PAGES" in names:
            free.append(float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")))
    try:  # a container may have less than the machine
        group = Path("/sys/fs/cgroup")
        limit = (group / "memory.max").read_text().strip()
        if limit != "max":
            taken = float((group / "memory.current").read_text())
            stat = (group / "memory.stat").read_text().splitlines()
            # cached files give way
            cached = sum(float(row.split()[1]) for row in stat if row.startswith("inactive_file "))
            free.append(float(limit) - taken + cached)
    except (OSError, ValueError):
        pass
    return min(free) if free else None
