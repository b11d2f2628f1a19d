"""What the figures contain: lines, markers, colours, labels and legends, not pixels."""

import builtins
import dataclasses
import itertools

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgb

import mksknn
from mksknn import datasets

SINC = datasets.make_sinc3c()
THYROID = datasets.load_new_thyroid()


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def two_clusters(n=12):
    """Two pure, well separated clusters in the plane."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2 * n, 2))
    X[n:] += 50.0
    return X, np.repeat(["left", "right"], n)


def lines(ax):
    """{label: line} of what is drawn."""
    return {line.get_label(): line for line in ax.get_lines() if line.get_label()[0] != "_"}


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


# ---------------------------------------------------------------------------------------------
# Curves


@pytest.mark.parametrize("graph", ["mutual", "symmetric"])
@pytest.mark.parametrize("formulation", ["I", "II"])
def test_evidence_curve(graph, formulation):
    curve = mksknn.evidence_curve(SINC.X, SINC.y, graph=graph, formulation=formulation, k_max=15)
    ax = mksknn.plot_curve(curve)
    drawn = lines(ax)
    x, y = drawn[f"{graph}, formulation {formulation}"].get_data()
    np.testing.assert_array_equal(x, curve.k)
    np.testing.assert_array_equal(y, curve.log_evidence)
    best = drawn[f"best k = {curve.best_k}"]
    assert best.get_xdata() == [curve.best_k]
    height = curve.log_evidence.max()
    assert best.get_ydata() == [height if height < ax.get_ylim()[1] else 1.0]  # 1: on the edge
    assert best.get_marker() == "o"
    assert ax.get_xlabel() == "k, number of neighbours"
    assert ax.get_ylabel() == "log evidence (nats)"
    assert legend(ax) == list(drawn)


UNBOUNDED = "no maximum: ratio at a bound"


def thyroid_with_a_spike():
    """A curve without a maximum at k = 1: the points that would bound it there are removed."""
    X = (THYROID.X - THYROID.X.mean(axis=0)) / THYROID.X.std(axis=0)
    edges = mksknn.knn_graph(X, 1, graph="mutual").tocoo()
    wrong = np.unique(edges.coords[0][THYROID.y[edges.coords[0]] != THYROID.y[edges.coords[1]]])
    keep = np.setdiff1d(np.arange(len(X)), wrong)
    curve = mksknn.evidence_curve(X[keep], THYROID.y[keep], graph="mutual", k_max=80)
    assert curve.at_bound.tolist() == [True] + 79 * [False]
    return curve


def test_points_without_a_maximum_are_marked():
    X, y = two_clusters()
    curve = mksknn.evidence_curve(X, y)
    lower = curve.at_bound & (curve.sigma2 < curve.sigma0)
    upper = curve.at_bound & ~lower
    assert lower.sum() > len(lower) / 4 and upper.any()
    ax = mksknn.plot_curve(curve)
    for label, there in ((UNBOUNDED, lower), ("no better than no graph", upper)):
        marked = lines(ax)[label]
        np.testing.assert_array_equal(marked.get_xdata(), curve.k[there])
        np.testing.assert_array_equal(marked.get_ydata(), curve.log_evidence[there])
        assert marked.get_linestyle() == "None"
        assert label in legend(ax)


def test_a_spike_does_not_flatten_the_rest():
    curve = thyroid_with_a_spike()
    ax = mksknn.plot_curve(curve)
    rest = curve.log_evidence[1:]
    low, high = ax.get_ylim()
    assert low < rest.min() and rest.max() < high < curve.log_evidence[0]
    assert high - low < 1.2 * np.ptp(rest)
    marked = lines(ax)[UNBOUNDED]
    assert marked.get_data()[0].tolist() == [1] and marked.get_data()[1].tolist() == [1.0]
    assert marked.get_transform() == ax.get_xaxis_transform()  # on the upper edge
    best = lines(ax)["best k = 1"]
    assert best.get_transform() == ax.get_xaxis_transform()
    ax.figure.draw_without_rendering()  # what is off the picture does not squeeze it
    assert ax.get_position().height > 0.6


def test_a_busy_machine_draws_without_a_warning(monkeypatch):
    """Matplotlib warns of a legend that took it a second; here every look at the clock does."""
    seconds = itertools.count(0.0, 2.0)
    X, y = two_clusters()
    for ax in (mksknn.plot_curve(mksknn.evidence_curve(X, y)), mksknn.plot_decision(X, y, k=3)):
        with monkeypatch.context() as patch:
            patch.setattr("time.perf_counter", lambda: next(seconds))
            patch.setattr("warnings.warn", pytest.fail)
            ax.figure.canvas.draw()


def test_a_second_curve_brings_points_back_into_the_picture():
    curve = thyroid_with_a_spike()
    ax = mksknn.plot_curve(curve, label="first")
    higher = dataclasses.replace(curve, log_evidence=curve.log_evidence + 2_000.0)
    mksknn.plot_curve(higher, ax, label="second")
    low, high = ax.get_ylim()
    assert low < curve.log_evidence.min() and curve.log_evidence[0] < high
    hollow = [line for line in ax.lines if line.get_xdata().tolist() == [1]]
    heights = [line.get_ydata()[0] for line in hollow]
    assert curve.log_evidence[0] in heights and 1.0 in heights
    assert legend(ax).count(UNBOUNDED) == 1


def test_few_bad_k_do_not_flatten_the_rest():
    curve = mksknn.evidence_curve(THYROID.X, THYROID.y, k_max=40)
    values = curve.log_evidence.copy()
    values[0] = values.min() - 5_000.0
    ax = mksknn.plot_curve(dataclasses.replace(curve, log_evidence=values))
    assert ax.get_ylim()[0] > values[0]
    assert lines(ax)["beyond the picture"].get_data()[1].tolist() == [0.0]  # the lower edge
    values[:5] = values[0]  # more than a few: they are the curve
    ax = mksknn.plot_curve(dataclasses.replace(curve, log_evidence=values))
    assert ax.get_ylim()[0] < values[0]


def test_a_high_error_is_no_reason_to_flatten_the_others():
    curve = mksknn.loo_curve(THYROID.X, THYROID.y, k_max=50)
    error = curve.error.copy()
    error[-1] = 50.0
    ax = mksknn.plot_curve(dataclasses.replace(curve, error=error))
    assert ax.get_ylim()[0] < error.min() < ax.get_ylim()[1] < 1.0


def test_no_bound_in_the_legend_where_none_was_met():
    curve = mksknn.evidence_curve(THYROID.X, THYROID.y, k_max=12)
    assert not curve.at_bound.any()
    assert UNBOUNDED not in legend(mksknn.plot_curve(curve))


def test_relative_to_the_best():
    fig, ax = plt.subplots()
    for share in (0, 40):
        y = THYROID.y.copy()
        y[:share] = np.random.default_rng(0).permutation(y)[:share]
        curve = mksknn.evidence_curve(THYROID.X, y, k_max=30)
        mksknn.plot_curve(curve, ax, relative=True, label=str(share))
        drawn = lines(ax)[str(share)].get_ydata()
        np.testing.assert_allclose(drawn, curve.log_evidence - curve.log_evidence.max())
    assert ax.get_ylabel() == "log evidence less its best (nats)"
    loo = mksknn.loo_curve(THYROID.X, THYROID.y)
    drawn = lines(mksknn.plot_curve(loo, relative=True, score="log_score"))["knn"].get_ydata()
    assert drawn.max() == 0.0
    for curve in (loo, mksknn.posterior(SINC.X, SINC.y)):
        with pytest.raises(ValueError, match="relative must be False"):
            mksknn.plot_curve(curve, relative=True)


def test_long_curves_have_a_logarithmic_axis():
    short = mksknn.loo_curve(THYROID.X, THYROID.y, k_max=60)
    long = mksknn.loo_curve(THYROID.X, THYROID.y, k_max=61)
    assert mksknn.plot_curve(short).get_xscale() == "linear"
    ax = mksknn.plot_curve(long)
    assert ax.get_xscale() == "log"
    ax.figure.draw_without_rendering()
    shown = [text.get_text() for text in ax.get_xticklabels()]
    assert {"1", "2", "5", "10", "20", "50"} <= set(shown)
    assert mksknn.plot_curve(short, ax).get_xscale() == "log"  # the first curve is still there
    assert mksknn.plot_curve(short, k_scale="log").get_xscale() == "log"
    assert mksknn.plot_curve(long, k_scale="linear").get_xscale() == "linear"
    assert mksknn.plot_curve(mksknn.posterior(SINC.X, SINC.y)).get_xscale() == "linear"


@pytest.mark.parametrize("graph", ["knn", "mutual", "symmetric"])
@pytest.mark.parametrize("score", ["error", "log_score"])
def test_loo_curve(graph, score):
    curve = mksknn.loo_curve(SINC.X, SINC.y, graph=graph)
    ax = mksknn.plot_curve(curve, score=score)
    drawn = lines(ax)
    np.testing.assert_array_equal(drawn[graph].get_xdata(), curve.k)
    np.testing.assert_array_equal(drawn[graph].get_ydata(), getattr(curve, score))
    k = curve.best_k if score == "error" else curve.best_k_log
    best = drawn[f"best k = {k}"]
    assert best.get_ydata() == [getattr(curve, score)[k - 1]]
    assert ("log score" in ax.get_ylabel()) == (score == "log_score")


def test_posterior():
    found = mksknn.posterior(SINC.X, SINC.y)
    ax = mksknn.plot_curve(found)
    (bars,) = ax.containers
    np.testing.assert_allclose([bar.get_height() for bar in bars], found.probability)
    np.testing.assert_allclose([bar.get_center()[0] for bar in bars], found.k)
    low, high = found.interval
    assert f"95% interval: {low} to {high}" in legend(ax)
    (best,) = (line for line in ax.get_lines() if line.get_label().startswith("most probable"))
    assert best.get_xdata() == [found.k[np.argmax(found.probability)]]
    assert best.get_ydata() == [found.probability.max()]
    assert ax.get_ylabel() == "probability of k"
    assert ax.get_ylim()[0] == 0


def test_wide_posterior_is_an_area():
    rng = np.random.default_rng(2)
    found = mksknn.posterior(rng.normal(size=(90, 2)), rng.integers(0, 2, 90))
    low, high = found.interval
    if high - low < 60:
        pytest.skip(f"the interval of this draw is only {low} to {high}")
    ax = mksknn.plot_curve(found)
    assert not ax.containers
    assert len(ax.collections) == 1


def test_curves_share_axes():
    fig, ax = plt.subplots()
    for graph in ("mutual", "symmetric"):
        curve = mksknn.evidence_curve(SINC.X, SINC.y, graph=graph, k_max=9)
        assert mksknn.plot_curve(curve, ax, label=graph.upper()) is ax
    assert plt.get_fignums() == [fig.number]
    drawn = lines(ax)
    assert {"MUTUAL", "SYMMETRIC"} <= set(drawn) & set(legend(ax))
    assert drawn["MUTUAL"].get_color() != drawn["SYMMETRIC"].get_color()


def test_selection_marks_what_was_evaluated():
    curve = mksknn.evidence_curve(THYROID.X, THYROID.y, k_max=40)
    best = mksknn.select_k(THYROID.X, THYROID.y, k_max=40)
    ax = mksknn.plot_curve(curve, selection=best)
    label = f"evaluated by select_k: {len(best.evaluated)} of 40"
    np.testing.assert_array_equal(lines(ax)[label].get_xdata(), best.evaluated)
    assert label in legend(ax)
    # marks along the edge leave the range of the evidence alone
    assert ax.get_ylim()[0] < curve.log_evidence.min() < curve.log_evidence.max() < ax.get_ylim()[1]


def test_long_curves_have_no_dots():
    short = mksknn.loo_curve(THYROID.X, THYROID.y, k_max=20)
    long = mksknn.loo_curve(THYROID.X, THYROID.y)
    assert lines(mksknn.plot_curve(short))["knn"].get_marker() == "."
    assert lines(mksknn.plot_curve(long))["knn"].get_marker() in ("", "None", None)


def test_k_axis_has_whole_numbers():
    curve = mksknn.evidence_curve(SINC.X, SINC.y, k_max=3)
    ticks = mksknn.plot_curve(curve).get_xticks()
    np.testing.assert_array_equal(ticks, np.round(ticks))


@pytest.mark.parametrize("function", [mksknn.evidence_curve, mksknn.loo_curve])
def test_one_k_is_a_picture_too(function):
    ax = mksknn.plot_curve(function(SINC.X, SINC.y, ks=[7]))
    low, high = ax.get_xlim()
    shown = [tick for tick in ax.get_xticks() if low <= tick <= high]
    assert shown == [6.0, 7.0, 8.0]
    if function is mksknn.loo_curve:
        assert np.ptp(ax.get_ylim()) < 0.5  # errors are shares


@pytest.mark.parametrize("curve", [None, [1.0, 2.0], SINC])
def test_other_things_are_no_curves(curve):
    with pytest.raises(TypeError, match="curve must be"):
        mksknn.plot_curve(curve)


def test_bad_arguments():
    curve = mksknn.loo_curve(SINC.X, SINC.y, k_max=4)
    with pytest.raises(ValueError, match="score"):
        mksknn.plot_curve(curve, score="accuracy")
    with pytest.raises(ValueError, match="k_scale"):
        mksknn.plot_curve(curve, k_scale="sqrt")
    with pytest.raises(TypeError, match="relative"):
        mksknn.plot_curve(curve, relative="yes")
    with pytest.raises(TypeError, match="selection"):
        mksknn.plot_curve(curve, selection=3)


def test_without_matplotlib_it_says_what_to_install(monkeypatch):
    curve = mksknn.loo_curve(SINC.X, SINC.y, k_max=4)
    real = builtins.__import__

    def no_matplotlib(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_matplotlib)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        mksknn.plot_curve(curve)


# ---------------------------------------------------------------------------------------------
# The plane


def shades(ax, resolution):
    """The colours of the grid, (second axis, first axis, rgb)."""
    array = np.asarray(ax.collections[0].get_array())
    return array.reshape(resolution, resolution, -1)


def test_decision_regions():
    X, y = two_clusters()
    ax = mksknn.plot_decision(X, y, k=3, resolution=20)
    assert legend(ax) == ["left", "right"]
    mesh, left, right = ax.collections
    np.testing.assert_allclose(left.get_offsets(), X[y == "left"])
    np.testing.assert_allclose(right.get_offsets(), X[y == "right"])
    colours = [to_rgb(one.get_facecolor()[0]) for one in (left, right)]
    assert colours[0] != colours[1]
    # a certain class shows its own colour, lightened
    grid = shades(ax, 20)
    for corner, colour in ((grid[0, 0], colours[0]), (grid[-1, -1], colours[1])):
        np.testing.assert_allclose(corner, 1 - 0.65 * (1 - np.array(colour)))
    low, high = X.min(axis=0), X.max(axis=0)
    assert ax.get_xlim()[0] < low[0] < high[0] < ax.get_xlim()[1]
    assert ax.get_ylim()[0] < low[1] < high[1] < ax.get_ylim()[1]


def test_colours_fade_with_the_probability():
    X, y = two_clusters()
    strong = mksknn.plot_decision(X, y, k=3, sigma0=1.0, sigma2=1e-6, resolution=6)
    weak = mksknn.plot_decision(X, y, k=3, sigma0=1.0, sigma2=1e6, resolution=6)
    assert shades(weak, 6).min() > 0.99  # white: both classes as probable
    assert shades(strong, 6).min() < 0.5


def test_regions_agree_with_predict():
    X = THYROID.X[:, [1, 3]]
    best = mksknn.select_k(X, THYROID.y, k_max=20)
    ax = mksknn.plot_decision(X, THYROID.y, best, resolution=9, class_names=THYROID.class_names)
    assert legend(ax) == list(THYROID.class_names)
    x0, x1 = (np.linspace(*limits, 9) for limits in (ax.get_xlim(), ax.get_ylim()))
    first, second = np.meshgrid(x0, x1)
    found = mksknn.predict(X, THYROID.y, np.column_stack([first.ravel(), second.ravel()]), best)
    grid = shades(ax, 9).reshape(-1, 3)
    colours = np.array([to_rgb(one.get_facecolor()[0]) for one in ax.collections[1:]])
    own = found.probability.max(axis=1)
    expected = 1 - 0.65 * np.clip((3 * own - 1) / 2, 0, 1)[:, None] * (1 - colours[found.label])
    np.testing.assert_allclose(grid, expected)


def test_regression_surface():
    rng = np.random.default_rng(3)
    X = rng.uniform(size=(40, 2))
    y = X[:, 0] - X[:, 1]
    fig, ax = plt.subplots()
    assert mksknn.plot_decision(X, y, k=4, resolution=10, ax=ax) is ax
    assert len(fig.axes) == 2  # a colour bar came with it
    assert fig.axes[1].get_ylabel() == "mean"
    mesh, points = ax.collections
    assert mesh.get_clim() == points.get_clim()
    np.testing.assert_array_equal(points.get_array(), y)


def test_a_table_names_the_axes():
    X, y = two_clusters()
    table = pd.DataFrame(X, columns=["height", "weight"])
    for targets in (pd.Series(y), pd.DataFrame({"side": y}), y[:, None]):
        ax = mksknn.plot_decision(table, targets, k=2, resolution=5)
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("height", "weight")
        assert legend(ax) == ["left", "right"]
    assert mksknn.plot_decision(X, y, k=2, resolution=5).get_xlabel() == ""


def test_a_learned_distance_knows_its_columns_in_the_plane():
    X, y = two_clusters()
    metric = mksknn.Metric(
        "relevance", np.diag([1.0, 2.0]), np.array([1.0, 2.0]), columns=("a", "b")
    )
    best = mksknn.select_k(X, y, metric=metric)
    mksknn.plot_decision(pd.DataFrame(X, columns=["a", "b"]), y, best, resolution=5)
    swapped = pd.DataFrame(X, columns=["b", "a"])
    for how in ({"model": best}, {"k": 2, "metric": metric}):
        with pytest.raises(
            ValueError, match="X must have the columns that metric .* another order"
        ):
            mksknn.plot_decision(swapped, y, **how, resolution=5)


@pytest.mark.parametrize("n_classes", [8, 9, 20])
def test_many_classes_can_be_told_apart(n_classes):
    X = np.random.default_rng(0).normal(size=(60, 2))
    ax = mksknn.plot_decision(X, np.arange(60) % n_classes, k=3, resolution=5)
    looks = {
        (tuple(points.get_facecolor()[0]), points.get_paths()[0].vertices.tobytes())
        for points in ax.collections[1:]
    }
    assert len(looks) == n_classes
    ax.figure.canvas.draw()
    box, axes = ax.get_legend().get_window_extent(), ax.get_window_extent()
    assert (box.x0 >= axes.x1) == (n_classes > 8)
    assert box.x1 <= ax.figure.bbox.x1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": np.zeros((24, 3))}, "2 columns"),
        ({"metric": "precomputed"}, "precomputed"),
        ({"resolution": 1}, "resolution"),
        ({"resolution": 5.5}, "resolution"),
        ({"margin": -1.0}, "margin must be a finite number >= 0; got -1.0"),
        ({"class_names": ["a"]}, "class_names must have 2"),
        ({"k": 99}, "k must be"),
    ],
)
def test_bad_arguments_in_the_plane(change, message):
    X, y = two_clusters()
    arguments = {"X": X, "y": y, "k": 2, "resolution": 5} | change
    with pytest.raises(ValueError, match=message):
        mksknn.plot_decision(**arguments)


@pytest.mark.parametrize("change", [{"resolution": "high"}, {"margin": "wide"}])
def test_words_for_numbers_in_the_plane(change):
    with pytest.raises(TypeError, match=f"{next(iter(change))} must be .*; got '"):
        mksknn.plot_decision(*two_clusters(), k=2, **change)


# ---------------------------------------------------------------------------------------------
# Relevances


def metric_of(relevance, columns=None):
    return mksknn.Metric("relevance", np.diag(relevance), np.array(relevance), columns=columns)


def test_relevance():
    ax = mksknn.plot_relevance(metric_of([1.0, 0.0, 2.5], ("glu", "skin", "bmi")))
    assert [bar.get_width() for bar in ax.patches] == [1.0, 0.0, 2.5]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["glu", "skin", "bmi"]
    top, bottom = ax.get_ylim()[::-1]
    assert top < 0.0 < 2.0 < bottom  # the first column on top
    assert [(text.get_text(), text.xy) for text in ax.texts] == [("not used", (0.0, 1))]
    assert ax.get_xlabel() == "relevance"
    assert ax.get_title() == "learned distance: relevance"
    assert ax.get_xlim()[0] == 0.0


def test_relevance_without_names_and_on_axes_given():
    _, given = plt.subplots()
    assert mksknn.plot_relevance(metric_of([1.0, 1.0]), given) is given
    assert [text.get_text() for text in given.get_yticklabels()] == ["column 0", "column 1"]
    assert not given.texts


def test_relevance_of_many_columns_is_high_but_not_without_end():
    heights = [
        mksknn.plot_relevance(metric_of(np.ones(d))).figure.get_figheight() for d in (1, 30, 500)
    ]
    assert heights[0] < heights[1] < heights[2] <= 20.0


@pytest.mark.parametrize("d", [1, 40, 70, 150])
def test_names_of_columns_do_not_overlap(d):
    ax = mksknn.plot_relevance(metric_of(np.ones(d)))
    ax.figure.canvas.draw()
    boxes = [text.get_window_extent() for text in ax.get_yticklabels()]
    assert all(upper.y0 >= lower.y1 for upper, lower in zip(boxes, boxes[1:]))


def test_relevance_of_something_else():
    with pytest.raises(TypeError, match="metric must be a Metric; got str: learn_metric returns"):
        mksknn.plot_relevance("euclidean")


def test_no_two_of_many_classes_look_alike():
    """After eight colours they come again, but darker and with another sign."""
    rng = np.random.default_rng(0)
    y = np.arange(120) % 12
    X = 6.0 * rng.normal(size=(12, 2))[y] + rng.normal(size=(120, 2))
    ax = mksknn.plot_decision(X, y, mksknn.select_k(X, y))
    points = [drawn for drawn in ax.collections if isinstance(drawn, PathCollection)]
    assert len({tuple(drawn.get_facecolor()[0]) for drawn in points}) == 12
