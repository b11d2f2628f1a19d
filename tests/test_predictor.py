"""A predictor: the same bits as predict, today and tomorrow, here and elsewhere; its files."""

import copy
import datetime
import io
import json
import multiprocessing
import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from concurrent.futures import ThreadPoolExecutor

import naive
import numpy as np
import pandas as pd
import pytest
from test_prediction import FIELDS, GRAPHS, assert_same, cloud, selection, sigma_choices, targets

import mksknn
from mksknn import _archive
from mksknn._metrics import Metric

ROOT = pathlib.Path(__file__).parents[1]


def assert_equal(one, two):
    """To the last bit, types included."""
    for field in (*FIELDS, "classes"):
        mine, theirs = getattr(one, field), getattr(two, field)
        if theirs is None:
            assert mine is None, field
        else:
            assert mine.dtype == theirs.dtype, field
            assert mine.shape == theirs.shape, field
            assert mine.tobytes() == theirs.tobytes(), field


def again(predictor, tmp_path):
    """Through a file."""
    path = tmp_path / "model.npz"
    predictor.save(path)
    return mksknn.load_predictor(path)


def learned(d, columns=None):
    """A metric that mixes columns and leaves one out."""
    rng = np.random.default_rng(5)
    matrix = rng.normal(size=(d, d - 1))
    return Metric("within", matrix, np.ones(d), {"scale": -1.5}, rng.normal(size=d), columns)


# ------------------------------------------------------------------------------ the same answers


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kind", ["string", "int", "bool", "one output", "three outputs"])
def test_the_oracle_through_save_and_load(kind, graph, tmp_path):
    """Lattices: ties, duplicates, equidistant queries, and queries that are training points."""
    X, new = cloud("lattice")
    y = targets(kind, len(X))
    for ties in ("nearest", "lowest"):
        for k in (1, 6, len(X) - 1):
            for sigmas in sigma_choices(graph):
                options = {"graph": graph, "ties": ties, **sigmas}
                predictor = again(mksknn.prepare(X, y, k=k, **options), tmp_path)
                got = predictor(new)
                assert_same(got, naive.predict(X, y, new, k, **options))
                assert_equal(got, mksknn.predict(X, y, new, k=k, **options))


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "chebyshev", "cosine", "precomputed"])
def test_every_metric_through_save_and_load(metric, graph, tmp_path):
    X, new = cloud("lattice", d=3)
    y = targets("string", len(X))
    if metric == "precomputed":
        X, new = naive.distance_matrix(X), naive.cross_distances(new, X)
    predictor = again(mksknn.prepare(X, y, k=5, graph=graph, metric=metric), tmp_path)
    assert_same(predictor(new), naive.predict(X, y, new, 5, graph, metric=metric))


@pytest.mark.parametrize("graph", ["mutual", "symmetric"])
@pytest.mark.parametrize("kind", ["string", "bool", "one output"])
def test_a_posterior(kind, graph, tmp_path):
    X, new = cloud("lattice")
    y = targets(kind, len(X))
    model = mksknn.posterior(X, y, graph=graph, k_max=12)
    predictor = mksknn.prepare(X, y, model)
    expected = mksknn.predict(X, y, new, model)
    assert_equal(predictor(new), expected)
    assert_equal(again(predictor, tmp_path)(new), expected)
    # one distance for each k in the mixture, not for each neighbour
    assert predictor.index.radii.shape == (len(X), len(np.unique(model.mixture.k)))


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize(
    ("kind", "d", "metric"),
    [
        ("lattice", 3, "euclidean"),  # the tree
        ("normal", 12, "euclidean"),  # the scan
        ("lattice", 6, "cosine"),
        ("normal", 9, "manhattan"),  # whole rows
        ("normal", 5, "learned"),
        ("lattice", 12, "learned"),
    ],
)
def test_one_row_or_many(kind, d, metric, graph, tmp_path):
    X, new = cloud(kind, n=700, n_new=300, d=d)
    metric = learned(d) if metric == "learned" else metric
    for y in (targets("string", len(X)), targets("three outputs", len(X))):
        predictor = mksknn.prepare(X, y, k=9, graph=graph, metric=metric)
        whole = predictor(new)
        assert_equal(whole, mksknn.predict(X, y, new, k=9, graph=graph, metric=metric))
        loaded = again(predictor, tmp_path)
        for size in (1, 5, 40, 200):
            for other in (predictor, loaded):
                part = other(new[50 : 50 + size])
                for field in FIELDS:
                    if getattr(whole, field) is not None:
                        mine = getattr(whole, field)[50 : 50 + size]
                        assert mine.tobytes() == getattr(part, field).tobytes(), (field, size)


def test_a_learned_metric_maps_new_points(tmp_path):
    X, new = cloud(n=60, d=3)
    y = targets("string", len(X))
    metric = learned(3)
    predictor = again(mksknn.prepare(X, y, k=5, metric=metric), tmp_path)
    expected = naive.predict(metric.transform(X), y, metric.transform(new), 5, "symmetric")
    assert_same(predictor(new), expected)
    assert predictor.metric.name == "within" and predictor.metric.compared == {"scale": -1.5}
    assert np.array_equal(predictor.metric.matrix, metric.matrix)
    # a model carries its metric; the same one, or an equal one, may be given beside it
    model = selection(metric=metric, graph="symmetric", sigma0=None, sigma2=None)
    for given in (None, metric, copy.deepcopy(metric)):
        assert_equal(mksknn.prepare(X, y, model, metric=given)(new), predictor(new))
    with pytest.raises(ValueError, match="metric must be left out or equal"):
        mksknn.prepare(X, y, model, metric=learned(4))
    with pytest.raises(ValueError, match="X_new must have 3 columns"):
        predictor(new[:, :2])
    wide = Metric("scale", 1e100 * np.eye(3), np.ones(3))
    with pytest.raises(ValueError, match="distances that fit in a float in metric 'scale'"):
        mksknn.prepare(X, y, k=5, metric=wide)(new * 1e100)
    with pytest.raises(ValueError, match="X in the metric must span a range"):
        mksknn.prepare(X * 1e100, y, k=5, metric=wide)


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", GRAPHS)
def test_few_points(graph, tmp_path):
    X, new = cloud("lattice", 12, 8)
    y = targets("int", len(X))
    predictor = again(mksknn.prepare(X, y, k=3, graph=graph), tmp_path)
    assert_same(predictor(new), naive.predict(X, y, new, 3, graph))


def test_no_rows():
    X, _ = cloud()
    predictor = mksknn.prepare(X, targets("string", len(X)), k=4)
    for nothing in (
        [],
        np.empty((0, 2)),
        pd.DataFrame(),
        pd.DataFrame(columns=[0, 1], dtype=float),
    ):
        got = predictor(nothing)
        assert got.probability.shape == (0, 3) and got.label.shape == (0,)
    with pytest.raises(ValueError, match="X_new must have 2 columns"):
        predictor(np.empty((0, 5)))


def test_the_training_data_may_change_afterwards():
    for d in (1, 3, 12):
        X, new = cloud(n=600, d=d)
        y = targets("one output", len(X))
        expected = mksknn.predict(X, y, new, k=5)
        predictor = mksknn.prepare(X, y, k=5)
        X[:], y[:] = 0.0, 0.0
        assert_equal(predictor(new), expected)


# ------------------------------------------------------------------------------ elsewhere


def predictors():
    for d, n in ((2, 40), (3, 700), (12, 700)):
        X, new = cloud("lattice", n, 60, d)
        yield mksknn.prepare(X, targets("string", n), k=5), new


def test_pickle_and_copies():
    for predictor, new in predictors():
        expected = predictor(new)
        for other in (
            pickle.loads(pickle.dumps(predictor)),
            copy.copy(predictor),
            copy.deepcopy(predictor),
        ):
            assert_equal(other(new), expected)
            assert repr(other) == repr(predictor)


def test_threads_share_one():
    for predictor, new in predictors():
        expected = predictor(new)
        with ThreadPoolExecutor(4) as pool:
            for got in pool.map(predictor, [new] * 12):
                assert_equal(got, expected)
            rows = pool.map(predictor, [row[None, :] for row in new])
            label = np.concatenate([got.label for got in rows])
        assert np.array_equal(label, expected.label)


def _answer(predictor, new):
    return predictor(new)


def test_a_spawned_process_receives_one():
    sent = list(predictors())
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        answers = pool.starmap(_answer, sent)
    for (predictor, new), got in zip(sent, answers):
        assert_equal(got, predictor(new))


def test_memory_is_at_most_three_times_the_points():
    rng = np.random.default_rng(0)
    for n, d in ((16_400, 2), (5000, 3), (5000, 10), (5000, 30)):
        X, y = rng.normal(size=(n, d)), rng.integers(0, 2, n)
        for graph in GRAPHS:
            size = len(pickle.dumps(mksknn.prepare(X, y, k=15, graph=graph)))
            assert size <= 3 * X.nbytes, (n, d, graph, size / X.nbytes)


# ------------------------------------------------------------------------------ labels and columns


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["é", "日本語", ""]),
        np.array([b"a", b"bc", b"d"]),
        np.array([3, -2, 2**40]),
        np.array([0.5, -1.0, 2.0], dtype=np.float32),
        np.array(["2026-01-01", "2026-01-02", "2027-01-01"], dtype="datetime64[D]"),
        np.array([1, 2, 3], dtype=np.uint8),
        np.array(["x", "yy", "zzz"], dtype=object),
    ],
)
def test_labels_survive_a_file(labels, tmp_path):
    X, new = cloud()
    y = labels[np.arange(len(X)) % 3]
    predictor = mksknn.prepare(X, y, k=4, task="classification")
    got = again(predictor, tmp_path)(new)
    assert_equal(got, predictor(new))
    assert got.classes.tolist() == sorted(labels.tolist())


@pytest.mark.parametrize(
    ("y", "kind"),
    [
        (
            np.array([(1, "a"), (2, "b")] * 20, dtype=[("n", int), ("c", "U1")]).astype(object),
            "tuple",
        ),
        (np.array([1, 2] * 20, dtype=object), "int"),
        (pd.Series([0.5, 2.0] * 20, dtype="category"), "float"),
        ([datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)] * 20, "date"),
        (pd.to_datetime(["2026-01-01", "2026-01-02"] * 20, utc=True), "Timestamp"),
    ],
)
def test_labels_that_no_file_can_hold(y, kind, tmp_path):
    X, new = cloud()
    predictor = mksknn.prepare(X, y, k=4)
    assert predictor(new).label.dtype == object
    with pytest.raises(
        ValueError, match=f"array of a plain type .* got Python objects of type {kind}"
    ):
        predictor.save(tmp_path / "model.npz")
    assert not list(tmp_path.iterdir())


def test_classes_name_the_columns():
    X, new = cloud()
    got = mksknn.predict(X, targets("string", len(X)), new, k=4)
    assert got.classes.tolist() == ["green", "red", "violet"]
    best = got.classes[got.probability.argmax(axis=1)]
    clear = np.sort(got.probability, axis=1)[:, -1] > np.sort(got.probability, axis=1)[:, -2]
    assert np.array_equal(got.label[clear], best[clear])
    assert mksknn.predict(X, targets("one output", len(X)), new, k=4).classes is None
    assert "3 classes" in repr(got)


def test_columns_are_remembered(tmp_path):
    X, new = cloud(d=3)
    frame, later = (pd.DataFrame(data, columns=["age", "height", "weight"]) for data in (X, new))
    y = targets("string", len(X))
    first = mksknn.prepare(frame, y, k=4)
    assert first.columns == ("age", "height", "weight")
    expected = mksknn.prepare(X, y, k=4)(new)
    for predictor in (first, again(first, tmp_path)):
        assert_equal(predictor(later), expected)
        assert_equal(predictor(new), expected)  # arrays pass
        with pytest.raises(ValueError, match="order, from column 0 on .'height', 'age', 'weight'"):
            predictor(later[["height", "age", "weight"]])
        with pytest.raises(ValueError, match="without .'weight'. and with .'mass'"):
            predictor(later.rename(columns={"weight": "mass"}))
        with pytest.raises(ValueError, match="without .'weight'"):
            predictor(later[["age", "height"]])
        with pytest.raises(ValueError, match="with .'extra'"):
            predictor(later.assign(extra=1.0))
    with pytest.raises(ValueError, match=r"in another order.*: pass X_new\[names\], with those"):
        mksknn.predict(frame, y, later[["height", "age", "weight"]], k=4)
    assert_equal(mksknn.predict(X, y, later[["age", "height", "weight"]], k=4), expected)


def test_a_single_row():
    X, new = cloud(d=3)
    y = targets("string", len(X))
    predictor = mksknn.prepare(X, y, k=4)
    with pytest.raises(ValueError, match=re.escape("use X_new[None, :] for a single point")):
        predictor(new[0])
    assert predictor(new[0][None, :]).label.shape == (1,)
    with pytest.raises(ValueError, match=re.escape("use X_new[:, None] for points with one")):
        mksknn.prepare(X[:, :1], y, k=4)(new[0])


def test_models_of_other_classes_are_refused():
    X, _ = cloud()
    two, three = targets("bool", len(X)), targets("string", len(X))
    for model in (mksknn.select_k(X, two, k_max=9), mksknn.posterior(X, two, k_max=9)):
        with pytest.raises(ValueError, match="y must have the"):
            mksknn.prepare(X, three, model)


def test_repr():
    X, _ = cloud()
    y = targets("string", len(X))
    shown = repr(mksknn.prepare(X, y, k=4, graph="mutual"))
    assert shown == "Predictor(n=40, d=2, k=4, graph='mutual', metric='euclidean', 3 classes)"
    shown = repr(mksknn.prepare(X, X, mksknn.posterior(X, X, k_max=6), metric=None))
    assert re.match(r"Predictor\(n=40, d=2, k=\d\.\.6 \(\d values\), .*, 2 outputs\)", shown)
    D = naive.distance_matrix(X)
    assert "n=40, k=4" in repr(mksknn.prepare(D, X[:, 0], k=4, metric="precomputed"))


def test_what_a_predictor_is_made_of(tmp_path):
    X, _ = cloud()
    model = mksknn.posterior(X, X[:, 0], k_max=6)
    for predictor in (mksknn.prepare(X, X[:, 0], k=4), mksknn.prepare(X, X[:, 0], model)):
        predictor.save(tmp_path / "model.npz")
        for one in (predictor, mksknn.load_predictor(tmp_path / "model.npz")):
            assert one.n == 40
            np.testing.assert_array_equal(one.k, predictor.k)
    assert mksknn.prepare(X, X[:, 0], k=4).k == 4
    assert set(predictor.k) <= set(model.k.tolist())


# ------------------------------------------------------------------------------ files


@pytest.fixture
def saved(tmp_path):
    X, _ = cloud()
    path = tmp_path / "model.npz"
    mksknn.prepare(X, targets("string", len(X)), k=4, sigma0=1.0, sigma2=0.5).save(path)
    return path


def rewrite(path, about=None, **changes):
    """The same archive with other members, and no new checksum unless it is among them."""
    with np.load(path) as archive:
        members = dict(archive)
    if isinstance(about, dict):
        members["about"] = np.array(json.dumps({**json.loads(str(members["about"])), **about}))
    elif about is not None:
        members["about"] = about
    members.update(changes)
    np.savez(path, **{name: value for name, value in members.items() if value is not None})


def seal(path):
    """Give a changed file a fitting checksum."""
    with np.load(path) as archive:
        members = dict(archive)
    del members["checksum"]
    rewrite(path, checksum=np.array(_archive._checksum(members)))


def test_two_points_with_an_infinite_variance(tmp_path):
    """Two points with one output do not say how much y varies, and a file says as much."""
    X, y = np.array([[0.0], [1.0]]), np.array([0.0, 1.0])
    predictor = mksknn.prepare(X, y, mksknn.posterior(X, y))
    assert np.isposinf(predictor([[0.5]]).variance).all()
    predictor.save(tmp_path / "two.npz")
    again = mksknn.load_predictor(tmp_path / "two.npz")
    assert_same(again([[0.5]]), vars(predictor([[0.5]])))


def test_a_file_is_a_plain_archive(saved):
    with np.load(saved, allow_pickle=False) as archive:
        about = json.loads(str(archive["about"]))
        assert about["kind"] == "mksknn predictor" and about["format"] == 1
        assert archive["points"].shape == (40, 2)
    with zipfile.ZipFile(saved) as archive:
        assert archive.testzip() is None
    assert [path.name for path in saved.parent.iterdir()] == ["model.npz"]


def test_every_truncation_is_noticed(saved):
    whole = saved.read_bytes()
    for size in range(0, len(whole), 97):
        saved.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"model\.npz must be a complete .* truncated"):
            mksknn.load_predictor(saved)


def test_every_flipped_byte_is_noticed_or_does_no_harm(saved):
    """Zip has a few bytes that nobody reads: dates, flags of other systems."""
    X, new = cloud()
    expected = mksknn.load_predictor(saved)(new)
    whole = saved.read_bytes()
    noticed = 0
    for at in range(0, len(whole), 31):
        saved.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        try:
            got = mksknn.load_predictor(saved)(new)
        except ValueError as error:
            assert "model.npz" in str(error)
            noticed += 1
        else:
            assert_equal(got, expected)
    assert noticed > 0.8 * len(whole) / 31


def test_altered_numbers_are_noticed(saved):
    with np.load(saved) as archive:
        points = archive["points"] + 1e-9
    rewrite(saved, points=points)
    with pytest.raises(ValueError, match="was altered: its contents do not have the checksum"):
        mksknn.load_predictor(saved)


def test_altered_text_is_noticed(saved):
    rewrite(saved, about={"graph": "mutual"})
    with pytest.raises(ValueError, match="was altered"):
        mksknn.load_predictor(saved)


def test_a_newer_format_says_so(saved):
    rewrite(saved, about={"format": 2})
    with pytest.raises(ValueError, match="written in format 2, .* up to 1: update mksknn"):
        mksknn.load_predictor(saved)


@pytest.mark.parametrize("version", [0, -1, "1", None, 1.5, True])
def test_no_such_format(saved, version):
    rewrite(saved, about={"format": version})
    with pytest.raises(ValueError, match="format from 1 to 1"):
        mksknn.load_predictor(saved)


def test_foreign_files(tmp_path):
    path = tmp_path / "other"
    for contents in (b"", b"hello", b"PK\x03\x04", pickle.dumps({"a": 1})):
        path.write_bytes(contents)
        with pytest.raises(ValueError, match="must be a complete mksknn predictor file"):
            mksknn.load_predictor(path)
    with open(path, "wb") as file:
        np.savez(file, a=np.arange(3))
    with pytest.raises(ValueError, match="without the members 'about' and 'checksum'"):
        mksknn.load_predictor(path)
    _archive.write(path, "some other", 1, {}, {})
    with pytest.raises(ValueError, match="one of kind 'some other'"):
        mksknn.load_predictor(path)
    for about in (np.array("no json"), np.array("[1]"), np.array("[" * 100_000), np.arange(3)):
        with open(path, "wb") as file:
            np.savez(file, about=about, checksum=np.array("0"))
        with pytest.raises(ValueError, match="must be a mksknn predictor file"):
            mksknn.load_predictor(path)
    with pytest.raises(FileNotFoundError):
        mksknn.load_predictor(tmp_path / "missing")


class Trap:
    """Unpickling it would raise."""

    def __reduce__(self):
        return (exec, ("raise SystemExit('unpickled')",))


def test_nothing_is_unpickled(saved):
    trap = np.empty(1, dtype=object)
    trap[0] = Trap()
    for member in ("points", "about", "checksum", "extra"):
        whole = saved.read_bytes()
        rewrite(saved, **{member: trap})
        with pytest.raises(ValueError, match="cannot be read .*[Oo]bject arrays"):
            mksknn.load_predictor(saved)
        saved.write_bytes(whole)


def test_compressed_members_are_refused(saved):
    with np.load(saved) as archive:
        members = dict(archive)
    np.savez_compressed(saved, **members)
    with pytest.raises(ValueError, match="is compressed"):
        mksknn.load_predictor(saved)


TWO = {"k": [4, 5], "weight": [1.5, -0.5], "ratio": [1.0, 1.0], "inverse_sigma0": [1.0, 1.0]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"codes": np.full(40, 3)}, "codes must be numbers of the classes"),
        ({"codes": np.arange(39) % 3}, "codes must be 40 integers"),
        ({"codes": None}, "codes"),
        ({"classes": np.array(["one"])}, "classes must be at least 2"),
        ({"points": np.ones((39, 2))}, "points must have 40 rows"),
        ({"points": np.full((40, 2), np.nan)}, "points must be finite"),
        ({"radii": np.ones((40, 2))}, "radii must be finite floats of shape"),
        ({"radii": -np.ones((40, 1))}, "radii must not fall"),
        ({"k": np.array([40])}, "k must be from 1 to 39"),
        ({"k": np.array([4.0])}, "k must be integers"),
        ({"k": np.array([1, -(2**63), -1, 4])}, "k must rise"),
        ({"ratio": np.array(["1e400"], np.longdouble)}, "ratio must be finite; got .* = inf"),
        ({"weight": np.array([np.inf])}, "weight must be finite"),
        ({"about": {"n": "many"}}, "n must be an integer"),
        ({"about": {"graph": "none"}}, "graph must be one of"),
        ({"about": {"metric": "none"}}, "metric must be one of"),
        ({"about": {"columns": [1, 2]}}, "columns must be text"),
        ({"about": {"columns": "xy"}}, "columns must be text, in a list"),
        ({"about": {"columns": ["x"]}}, "columns must be 2 names; got 1"),
        ({"about": {"flat": 1}}, "flat must be True or False"),
        ({"about": {"binary": True}}, "binary must be False unless there are 2 classes; got 3"),
        ({"corners": np.zeros((2, 5))}, r"corners must be finite floats of shape \(2, 2\)"),
        ({"corners": np.zeros((2, 1))}, r"corners must be finite floats of shape \(2, 2\)"),
        ({"corners": np.array([[1.0, 0.0], [0.0, 1.0]])}, "corners must be the lowest"),
        ({"corners": np.array([[0.0, 0.0], [np.inf, 1.0]])}, r"finite; got corners\[1, 0\] = inf"),
        ({"points": np.ones((40, 3))}, r"corners must be finite floats of shape \(2, 3\)"),
        ({"radii": np.full((40, 1), np.nan)}, r"radii must be finite; got radii\[0, 0\] = nan"),
        ({"weight": np.array([0.9])}, "weight must sum to 1; got 0.9"),
        (
            {name: np.array(two) for name, two in TWO.items()} | {"radii": np.ones((40, 2))},
            "weight must be >= 0",
        ),
        ({"ratio": np.array([-0.5])}, "ratio must be > 0"),
        ({"ratio": np.array([0.0])}, "ratio must be > 0"),
        ({"ratio": np.array([-0.5]), "inverse_sigma0": None}, "ratio must be >= 0"),
        ({"inverse_sigma0": np.array([-1.0])}, "inverse_sigma0 must be >= 0"),
        ({"inverse_sigma0": np.array([np.inf, np.inf])}, "inverse_sigma0 must be finite floats of"),
        ({"classes": np.array(["b", "a", "c"])}, "classes must be distinct"),
        ({"classes": np.array(["a", "b", "b"])}, "classes must be distinct"),
        ({"classes": np.array([1.0, 2.0, np.nan])}, "classes must be distinct"),
        ({"classes": np.array([1j, 2j, 3j])}, "classes must be distinct"),
    ],
)
def test_contents_that_do_not_fit_together(saved, changes, message):
    """Even with a fitting checksum nothing reaches a kernel that would read beyond its arrays."""
    rewrite(saved, **changes)
    seal(saved)
    with pytest.raises(ValueError, match=f"holds no consistent predictor.*{message}"):
        mksknn.load_predictor(saved)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"values": np.ones((40, 3))}, "flat must be False; got True with 3 outputs"),
        ({"values": np.ones((40, 0))}, "values must have at least 1 column"),
        ({"mean": np.ones(2)}, "mean must be finite floats of shape"),
        ({"about": {"binary": True}}, "binary must be False unless there are 2 classes; got 0"),
    ],
)
def test_values_that_do_not_fit_together(tmp_path, changes, message):
    X, _ = cloud()
    mksknn.prepare(X, X[:, 0], k=4).save(path := tmp_path / "model.npz")
    rewrite(path, **changes)
    seal(path)
    with pytest.raises(ValueError, match=f"holds no consistent predictor.*{message}"):
        mksknn.load_predictor(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metric_matrix": np.ones((4, 2))}, "metric.relevance must be finite floats of shape"),
        ({"metric_matrix": np.ones((3, 3))}, "points must have the 3 columns of metric.matrix"),
        ({"metric_matrix": np.ones(3)}, "metric.matrix must be a matrix; got shape"),
        ({"metric_matrix": np.full((3, 2), np.nan)}, "metric.matrix must be finite; got metric.m"),
        ({"metric_matrix": None}, "'matrix'"),
        ({"metric_center": np.ones(2)}, "metric.center must be finite floats of shape"),
        ({"metric_center": np.full(3, np.inf)}, "metric.center must be finite"),
        # the columns of points as they are given, not as they are mapped
        ({"corners": np.zeros((2, 2))}, r"corners must be finite floats of shape \(2, 3\)"),
        ({"about": {"columns": ["a", "b"]}}, "columns must be 3 names; got 2"),
        ({"metric_compared": np.ones(2)}, "metric.compared must be numbers by name"),
        ({"metric_held_out": np.ones(2)}, "metric.held_out must be numbers by name"),
        ({"metric_criterion": np.array("loo")}, "metric.criterion must be text"),
    ],
)
def test_a_learned_metric_that_does_not_fit(tmp_path, changes, message):
    X, _ = cloud(d=3)
    metric = learned(3, ("a", "b", "c"))
    path = tmp_path / "model.npz"
    mksknn.prepare(X, targets("string", len(X)), k=4, metric=metric).save(path)
    assert mksknn.load_predictor(path).columns == ("a", "b", "c")
    rewrite(path, **changes)
    seal(path)
    with pytest.raises(ValueError, match=f"holds no consistent predictor.*{message}"):
        mksknn.load_predictor(path)


@pytest.mark.parametrize("graph", GRAPHS)
def test_corners_of_distances(graph, tmp_path):
    """One for each training point: there are as many distances to a new one."""
    X, _ = cloud(n=12)
    D = naive.distance_matrix(X)
    predictor = mksknn.prepare(D, X[:, 0], k=4, graph=graph, metric="precomputed")
    predictor.save(path := tmp_path / "model.npz")
    rewrite(path, corners=np.zeros((2, 15)))
    seal(path)
    with pytest.raises(ValueError, match=r"corners must be finite floats of shape \(2, 12\)"):
        mksknn.load_predictor(path)


def test_a_metric_of_whole_numbers_survives_a_file(tmp_path):
    """One made by hand: what is in the file need not be floats."""
    X, new = cloud(d=3)
    one = np.array([1, 2, 1])
    for center in (None, one):
        metric = Metric("mine", np.diag(one), one, center=center)
        predictor = mksknn.prepare(X, targets("string", len(X)), k=4, metric=metric)
        assert_equal(again(predictor, tmp_path)(new), predictor(new))


def test_a_failing_save_leaves_the_old_file(saved, monkeypatch):
    before = saved.read_bytes()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", full)
    X, _ = cloud()
    with pytest.raises(OSError, match="No space left"):
        mksknn.prepare(X, X[:, 0], k=3).save(saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == ["model.npz"]


def test_paths(saved):
    """Links stay, permissions too, and what is no file is not touched."""
    predictor = mksknn.load_predictor(saved)
    folder = saved.parent
    for name in ("no suffix", "mödel {x} %s", "x" * 250):
        predictor.save(str(folder / name))
        assert repr(mksknn.load_predictor(os.fsencode(folder / name))) == repr(predictor)
    for wrong in (None, 3, io.BytesIO()):
        for call in (predictor.save, mksknn.load_predictor):
            with pytest.raises(TypeError, match="path must be text or a path; got"):
                call(wrong)
    with pytest.raises(ValueError, match="path must name a file"):
        predictor.save(folder)
    for missing, kind in (("missing", FileNotFoundError), ("no suffix", NotADirectoryError)):
        with pytest.raises(kind, match=f"path must be in a folder .*{missing}'$"):
            predictor.save(folder / missing / "model.npz")
    assert not list(folder.glob(".*"))


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX files")
def test_links_permissions_and_devices(saved):
    predictor = mksknn.load_predictor(saved)
    link, pipe = saved.with_name("link"), saved.with_name("pipe")
    link.symlink_to(saved)
    saved.chmod(0o600)
    predictor.save(link)
    assert link.is_symlink() and saved.stat().st_mode & 0o777 == 0o600
    os.mkfifo(pipe)
    with pytest.raises(ValueError, match="path must name a file.*is something else"):
        predictor.save(pipe)
    assert pipe.is_fifo()


def test_a_zip_version_nobody_knows(saved):
    whole = bytearray(saved.read_bytes())
    at = whole.index(b"PK\x01\x02")
    whole[at + 6] = 210  # the version needed, in the first entry of the directory
    saved.write_bytes(bytes(whole))
    with pytest.raises(ValueError, match=r"model\.npz must be a complete .*zip file version 21"):
        mksknn.load_predictor(saved)


# ------------------------------------------------------------------------------ the service


@pytest.fixture
def service(tmp_path):
    """The example's address, and the predictor it serves."""
    X, _ = cloud()
    frame = pd.DataFrame(X, columns=["width", "height"])
    model = mksknn.posterior(X, targets("string", len(X)), k_max=9)
    predictor = mksknn.prepare(frame, targets("string", len(X)), model)
    predictor.save(tmp_path / "model.npz")
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / "service.py"), "model.npz", "--port", "0"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stdout.readline()
        yield re.search(r"http://127\.0\.0\.1:\d+$", line.strip()).group(), predictor
    finally:
        process.send_signal(signal.SIGTERM)  # SIGINT is ignored if these tests run as `make test &`
        said, complained = process.communicate(timeout=60)
    assert said == "stopped\n" and complained == "" and process.returncode == 0


def ask(address, body=None):
    """Status and answer of a request; a body makes it a POST."""
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(address, data, timeout=60) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


@pytest.mark.skipif(sys.platform == "win32", reason="SIGTERM ends a process there")
def test_the_service(service):
    address, predictor = service
    _, new = cloud()
    status, about = ask(address)
    assert status == 200 and about["predictor"] == repr(predictor)
    assert about["columns"] == ["width", "height"] and about["classes"] == sorted(about["classes"])

    expected = predictor(new)
    with ThreadPoolExecutor(4) as pool:
        singles = list(
            pool.map(lambda row: ask(f"{address}/predict", {"rows": [row.tolist()]}), new)
        )
    status, batch = ask(f"{address}/predict", {"rows": new.tolist()})
    assert status == 200
    for name in (*FIELDS, "classes"):
        assert batch[name] == getattr(expected, name).tolist(), name
        if name != "classes":
            assert [single[name][0] for _, single in singles] == batch[name], name
    assert ask(f"{address}/predict", {"rows": []})[1]["label"] == []

    for body, word in (
        ({"rows": [[1.0]]}, "X_new must have 2 columns"),
        ({"rows": [[1.0, None]]}, "X_new must hold real numbers"),
        (b'{"rows": [[1, NaN]]}', "X_new must be finite"),
        ({"rows": [1.0, 2.0]}, "use [X_new]"),
        ({"row": [1.0, 2.0]}, "the request must be"),
        ([1.0], "the request must be"),
        (b"no json", "Expecting value"),
        (b"[" * 100_000, "recursion"),
    ):
        status, answer = ask(f"{address}/predict", body)
        assert status == 400 and word in answer["error"], body
    assert ask(f"{address}/else")[0] == 404
    assert ask(f"{address}/else", {})[0] == 404
    assert ask(f"{address}/predict", {"rows": new.tolist()})[0] == 200  # still there
