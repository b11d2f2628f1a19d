"""The search over r on spectra made up for it: exact, never stuck, and sparing with values."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from posing import opened_graph, problem_of
from scipy.optimize import brentq

from mksknn import datasets
from mksknn._bounds import guess_ratio
from mksknn._determinants import Spectrum
from mksknn._search import (
    _GAP,
    _MOST,
    _STEEPEST,
    Curve,
    PeakSearch,
    _largest_bend,
    _poles,
    climb,
)

PATIENCE = 60  # values after which a search counts as stuck; the worst one seen took 23


class Counted:
    """log|L + r I| from a spectrum, counting how often it is asked for."""

    def __init__(self, spectrum):
        self.spectrum = spectrum
        self.ratios = []

    def __call__(self, ratio):
        self.ratios.append(ratio)
        assert len(self.ratios) <= PATIENCE, "stuck"
        return float(np.log(self.spectrum + ratio).sum())


def value(spectrum, norm, roughness, ratio):
    return np.log(spectrum + ratio).sum() - len(spectrum) * math.log(roughness + ratio * norm)


def true_peak(spectrum, norm, roughness, low, high):
    """The highest value, from the root of the slope; the slope changes sign at most once."""

    def slope(t):
        r = math.exp(t)
        graph = (spectrum / (spectrum + r)).sum()
        return len(spectrum) * roughness / (roughness + r * norm) - graph

    bottom, top = math.log(low), math.log(high)
    if slope(bottom) <= 0:
        return low
    if slope(top) >= 0:
        return high
    return math.exp(brentq(slope, bottom, top, xtol=1e-14, rtol=1e-15))


class Opened(NamedTuple):
    """What a search needs of a graph."""

    logdet: Callable[[float], float]
    spectrum: Spectrum


def known_of(spectrum):
    """What a graph tells of its spectrum without computing it."""
    nulls = int((spectrum == 0.0).sum())
    return Spectrum(len(spectrum), nulls, 1.3 * spectrum.max(), float(spectrum.mean()))


def search_for(spectrum, norm, roughness, low, high, start):
    logdet = Counted(spectrum)
    opened = Opened(logdet, known_of(spectrum))
    return PeakSearch(opened, norm, roughness, (low, high), start), logdet


def check_peak(spectrum, norm, roughness, low, high, start):
    search, logdet = search_for(spectrum, norm, roughness, low, high, start)
    search.run()
    ratio, found = search.ratio, search.logdet
    assert low <= ratio <= high
    assert all(low <= r <= high for r in logdet.ratios)
    assert len(set(logdet.ratios)) == len(logdet.ratios)  # none is asked for twice
    assert found == float(np.log(spectrum + ratio).sum())
    best = value(spectrum, norm, roughness, true_peak(spectrum, norm, roughness, low, high))
    missed = best - value(spectrum, norm, roughness, ratio)
    assert missed <= 1e-8 + 1e-13 * abs(best)
    assert search.settled
    assert search.lower <= search.upper
    check_enclosed(search, best)
    return ratio, len(logdet.ratios)


def check_enclosed(search, best):
    """The peak is between `lower` and `upper`, but for the rounding of the values themselves."""
    noise = search.curve.noise + 1e-14 * abs(best)
    assert search.lower - noise <= best <= search.upper + noise


def graph_spectrum(rng, n, zeros=1):
    """Much like the spectrum of a k-NN graph: a bulk, and a tail towards zero."""
    spectrum = 20.0 * rng.beta(2, 4, n)
    spectrum[:zeros] = 0.0
    return spectrum


# ---------------------------------------------------------------- what is known on the way


@settings(max_examples=100)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(2, 60),
    middle=st.floats(-8, 5),
    spread=st.floats(0, 4),
    log_roughness=st.floats(-15, 5),
    start=st.floats(-6, 6),
)
def test_the_peak_lies_between_lower_and_upper(seed, n, middle, spread, log_roughness, start):
    """Wherever a floor ends it."""
    rng = np.random.default_rng(seed)
    spectrum = np.exp(middle + spread * rng.normal(size=n))
    spectrum[0] = 0.0
    roughness = math.exp(log_roughness)
    best = value(spectrum, 1.0, roughness, true_peak(spectrum, 1.0, roughness, 1e-6, 1e6))
    for above in (100.0, 1.0, 1e-2, 1e-5, -math.inf):
        search, logdet = search_for(spectrum, 1.0, roughness, 1e-6, 1e6, 10.0**start)
        search.run(best + above)
        check_enclosed(search, best)
        assert search.upper <= best + above or search.settled
        assert len(set(logdet.ratios)) == len(logdet.ratios)
    assert search.settled
    assert search.lower == pytest.approx(best, abs=1e-8 + 1e-13 * abs(best))


@pytest.mark.uncompiled
@settings(max_examples=100)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(2, 80),
    spread=st.floats(0, 3),
    count=st.integers(2, 12),
    width=st.floats(0.01, 4.0),
)
def test_polynomials_are_as_close_as_they_say(seed, n, spread, count, width):
    """H at any place between the values, from the eigenvalues: within the error that is told."""
    rng = np.random.default_rng(seed)
    spectrum = np.exp(spread * rng.normal(size=n))
    spectrum[: 1 + n // 5] = 0.0
    known = known_of(spectrum)
    curve = Curve(known)
    middle = curve.place(10.0 ** rng.uniform(-3, 1))
    for v in middle + width * rng.uniform(-1, 0, count):
        ratio = curve.ratio_at(v)
        curve.add(ratio, float(np.log(spectrum + ratio).sum()))
    if len(curve.v) < 2:
        return
    v = rng.uniform(curve.v[0], curve.v[-1], 50)
    ratios = known.top / np.expm1(-v)
    logdet = np.log(spectrum + ratios[:, None]).sum(axis=1)
    exact = logdet - n * np.log(ratios + known.top)
    height, error = curve.enclose(v, float(v[0]))
    assert (np.abs(height - exact) <= error + curve.noise).all()


@pytest.mark.uncompiled
def test_a_low_peak_takes_few_values():
    """Near its peak, a rival that cannot win is ruled out by a handful of values."""
    spectrum = graph_spectrum(np.random.default_rng(3), 2_000)
    peak = true_peak(spectrum, 1.0, 2.0, 1e-6, 1e6)
    height = value(spectrum, 1.0, 2.0, peak)
    for off in (-0.15, 0.0, 0.1):
        search, logdet = search_for(spectrum, 1.0, 2.0, 1e-6, 1e6, peak * math.exp(off))
        search.run(height + 2.0)
        assert len(logdet.ratios) <= 4
        check_enclosed(search, height)
        assert search.upper <= height + 2.0


def derivatives_of_logistic(count):
    """sigma', sigma'', ... as polynomials in p = sigma: each is the one before by p, times p'."""
    step = np.polynomial.Polynomial([0.0, 1.0, -1.0])
    found = [step]
    while len(found) < count:
        found.append(found[-1].deriv() * step)
    return found


def test_derivatives_of_a_share():
    """What the remainders rest on: no derivative exceeds its bound anywhere."""
    p = np.linspace(1e-6, 1 - 1e-6, 20_001)
    for at, one in enumerate(derivatives_of_logistic(len(_STEEPEST))):
        steepest = np.abs(one(p) / (p * (1 - p))).max()
        assert steepest <= _STEEPEST[at] * (1 + 1e-9)  # as these polynomials round
        assert steepest >= 0.98 * _STEEPEST[at]  # and none is larger than it must be


@pytest.mark.uncompiled
def test_derivatives_by_poles():
    p = np.linspace(0.0, 1.0, 20_001)
    for order, one in enumerate(derivatives_of_logistic(13), start=2):
        largest = np.abs(one(p)).max() / math.factorial(order)
        assert largest <= float(_poles(order)) * (1 + 1e-9)
        if order % 2 == 0:  # at x = 0 all poles add up
            assert largest >= float(_poles(order)) * (1 - 1e-9)


@pytest.mark.uncompiled
def test_the_largest_bend_between_two_shares():
    for low, high in ((0.0, 0.0), (0.1, 0.4), (0.2, 0.9), (0.6, 0.7), (0.3, 1.0), (1.0, 1.0)):
        between = np.linspace(low, high, 1001)
        expected = (between * (1.0 - between)).max()
        assert _largest_bend(low, high) == pytest.approx(expected, abs=1e-6)


def slope_of(spectrum, top, v):
    """dH/dv: the logistic function of each eigenvalue."""
    z = math.exp(v) * (1.0 - spectrum / top)
    return float((z / (spectrum / top + z)).sum())


@pytest.mark.uncompiled
@pytest.mark.parametrize("twin", [None, 1e-9, 1e-5])
def test_slopes_of_polynomials(twin):
    """To eight digits; two values side by side, which differ by rounding only, spoil nothing."""
    spectrum = graph_spectrum(np.random.default_rng(8), 50)
    curve = Curve(known_of(spectrum))
    middle = curve.place(1.0)
    places = middle + 0.1 * np.arange(-5, 26)  # more than a polynomial takes, most of them far
    for v in places if twin is None else [*places, middle + twin, middle - 2 * twin]:
        ratio = curve.ratio_at(v)
        curve.add(ratio, float(np.log(spectrum + ratio).sum()))
    for v in (middle, middle + 0.04):
        found = curve.slope(v, curve.nodes_for_slope(v))
        assert found == pytest.approx(slope_of(spectrum, curve.spectrum.top, v), rel=1e-8)
        if twin is None:
            assert curve.enclose(np.array([v + 0.07]), v)[1] < 1e-9  # by the nodes that are near


@pytest.mark.uncompiled
@pytest.mark.filterwarnings("error")
def test_two_places_that_are_one_in_z():
    """exp(v) rounds to the same number: no warning, and nothing inconsistent."""
    spectrum = graph_spectrum(np.random.default_rng(9), 20)
    curve = Curve(known_of(spectrum))
    for ratio in (1.0, 1e10, 1e10 * (1 + 1e-12), 1e12):
        curve.add(ratio, float(np.log(spectrum + ratio).sum()))
    assert (np.diff(curve.v) > 0).all() and (np.diff(np.exp(curve.v)) == 0).any()
    assert curve.consistent
    curve.add(3.0, float(np.log(spectrum + 3.0).sum()) + 5.0)
    assert not curve.consistent


@pytest.mark.uncompiled
def test_differences_within_rounding_do_not_bracket():
    """Three values side by side say nothing of where the peak is: the far ones do."""
    spectrum = graph_spectrum(np.random.default_rng(10), 200)
    peak = true_peak(spectrum, 1.0, 2.0, 1e-6, 1e6)
    search, _ = search_for(spectrum, 1.0, 2.0, 1e-6, 1e6, peak)
    for factor in (0.1, 1.0 - 1e-12, 1.0, 1.0 + 1e-12, 10.0):
        search._visit(peak * factor)
    assert len(search.curve.v) == 5
    assert search._around() == (0, 4)


@pytest.mark.uncompiled
def test_the_peak_of_a_polynomial():
    """From values on both sides, none of them at the peak."""
    spectrum = graph_spectrum(np.random.default_rng(11), 100)
    peak = true_peak(spectrum, 1.0, 2.0, 1e-6, 1e6)
    search, _ = search_for(spectrum, 1.0, 2.0, 1e-6, 1e6, peak)
    for off in (-0.4, -0.15, 0.05, 0.3, 0.5):
        search._visit(peak * math.exp(off))
    assert search._model_peak() == pytest.approx(peak, rel=1e-4)


@pytest.mark.uncompiled
def test_the_slope_of_the_offset():
    search, _ = search_for(graph_spectrum(np.random.default_rng(12), 30), 1.5, 2.0, 1e-6, 1e6, 1.0)
    step = 1e-5
    for v in (search.curve.place(ratio) for ratio in (1e-3, 0.5, 2.0, 40.0, 1e4)):
        below, above = search._offset(v + step * np.array([-1.0, 1.0]))
        slope = (above - below) / (2.0 * step * 30)
        assert search._share(np.array([v]))[0] == pytest.approx(slope, rel=1e-6)


@pytest.mark.uncompiled
def test_an_upper_bound_is_by_the_values_that_are_nearest():
    """Of many values, those around a cell enclose it: the peak is not missed by much."""
    spectrum = graph_spectrum(np.random.default_rng(13), 100)
    peak = true_peak(spectrum, 1.0, 2.0, 1e-6, 1e6)
    search, _ = search_for(spectrum, 1.0, 2.0, 1e-6, 1e6, peak)
    for off in np.arange(-5.15, 8.0, 0.25):
        search._visit(peak * math.exp(off))
    assert len(search.curve.v) > 2 * _MOST
    upper, where = search._ceiling(-math.inf)
    best = value(spectrum, 1.0, 2.0, peak)
    assert best <= upper <= best + 1e-4
    assert search.curve.ratio_at(where) == pytest.approx(peak, rel=0.1)


# ---------------------------------------------------------------- exact


@settings(max_examples=100)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(2, 60),
    middle=st.floats(-12, 8),
    spread=st.floats(0, 5),
    zeros=st.floats(0, 0.9),
    log_roughness=st.floats(-20, 10),
    low=st.floats(-10, -1),
    high=st.floats(1, 10),
    start=st.floats(-12, 12),
)
def test_any_spectrum(seed, n, middle, spread, zeros, log_roughness, low, high, start):
    rng = np.random.default_rng(seed)
    spectrum = np.exp(middle + spread * rng.normal(size=n))
    spectrum[: max(1, int(zeros * n))] = 0.0
    spectrum[-1] = max(spectrum[-1], 1e-8)
    check_peak(spectrum, 1.0, math.exp(log_roughness), 10.0**low, 10.0**high, 10.0**start)


@pytest.mark.parametrize("start", [1e-30, 1e-3, 1.0, 1e5, 1e30])
@pytest.mark.parametrize("gap", [1e-8, 1e-4, 1e4, 1e8])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_spectrum_with_a_gap(gap, share, start):
    n = 40
    spectrum = np.where(np.arange(n) < share * n, gap, 1.0)
    spectrum[0] = 0.0
    for roughness in (1e-6 * gap, 0.1 * gap, 0.1, 0.9):
        check_peak(spectrum, 1.0, min(roughness, 0.9 * spectrum.mean()), 1e-12, 1e12, start)


@pytest.mark.uncompiled
@pytest.mark.parametrize("bounds", [(1e-100, 1e100), (1e-6, 1e30), (1e-40, 1.0), (1e-6, 1e6)])
@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e100])
@pytest.mark.parametrize("start", [1e-40, 1.0, 1e40])
def test_wide_bounds_and_scaled_targets(bounds, scale, start):
    """Far from the peak the profile is flat to rounding: the search must not start there."""
    spectrum = graph_spectrum(np.random.default_rng(1), 40)
    expected = true_peak(spectrum, 1.0, 1.5, *bounds)
    ratio, _ = check_peak(spectrum, scale, 1.5 * scale, *bounds, start)
    assert ratio == pytest.approx(expected, rel=1e-3)


@pytest.mark.uncompiled
@pytest.mark.parametrize("bounds", [(1e-6, 1e-3), (1e2, 1e3), (0.5, 0.500001), (1.0, 1.0 + 1e-12)])
@pytest.mark.parametrize("start", [1e-3, 1.0, 1e3])
def test_narrow_bounds(bounds, start):
    spectrum = graph_spectrum(np.random.default_rng(2), 30)
    check_peak(spectrum, 1.0, 1.0, *bounds, start)


@pytest.mark.uncompiled
@pytest.mark.parametrize("low", [1e-100, 0.3, 1e50])
@pytest.mark.parametrize("width", [0.0, 1e-15, 1e-13, 9e-13])
def test_bounds_that_are_nearer_than_a_visit_is_to_an_end(low, width):
    """Each visit goes to the end that is nearer, not always to the upper one."""
    high = max(low * (1.0 + width), math.nextafter(low, math.inf))
    spectrum = graph_spectrum(np.random.default_rng(2), 30)
    for start in (low, math.sqrt(low) * math.sqrt(high), high):
        ratio, calls = check_peak(spectrum, 1.0, 1.0, low, high, start)
        assert ratio in (low, high) and calls <= 4


def test_visits_that_bring_nothing_new_end_the_search(monkeypatch):
    """Nothing is proven then, and the search says so."""
    monkeypatch.setattr(PeakSearch, "_clip", lambda self, v: 1.0)
    spectrum = graph_spectrum(np.random.default_rng(2), 30)
    search = search_for(spectrum, 1.0, 1.0, 1e-6, 1e6, 1.0)[0].run()
    assert not search.settled and search.upper == math.inf


# ---------------------------------------------------------------- the ends


@pytest.mark.uncompiled
def test_equal_targets_need_one_value():
    spectrum = graph_spectrum(np.random.default_rng(3), 30, zeros=4)
    assert check_peak(spectrum, 1.0, 0.0, 1e-6, 1e6, 1.0) == (1e-6, 1)


@pytest.mark.uncompiled
@pytest.mark.parametrize("excess", [1.0, 1.5, 100.0])
def test_targets_as_rough_as_noise_need_one_value(excess):
    spectrum = graph_spectrum(np.random.default_rng(4), 32)
    roughness = excess * spectrum.mean()
    assert check_peak(spectrum, 1.0, roughness, 1e-6, 1e6, 1.0) == (1e6, 1)


@pytest.mark.uncompiled
@pytest.mark.parametrize("start", [1e-6, 2e-6, 0.01, 1.0, 1e6])
def test_peak_below_and_above_the_bounds(start):
    spectrum = graph_spectrum(np.random.default_rng(5), 50)
    peak = true_peak(spectrum, 1.0, 1.0, 1e-6, 1e6)
    below, calls = check_peak(spectrum, 1.0, 1.0, 1e-6, peak / 1.01, start)
    assert below == peak / 1.01 and calls <= 14
    above, calls = check_peak(spectrum, 1.0, 1.0, peak * 1.01, 1e6, start)
    assert above == peak * 1.01 and calls <= 14


@pytest.mark.uncompiled
@pytest.mark.parametrize("n", [20, 200])
def test_settled_is_what_is_promised(n):
    """So much for each point, and some rounding."""
    spectrum = graph_spectrum(np.random.default_rng(8), n)
    search = search_for(spectrum, 1.0, 1.0, 1e-6, 1e6, 1.0)[0].run()
    promised = 1.5 * (_GAP * n + 8.0 * search.curve.noise)
    assert search.curve.noise > 1e-4 * promised
    for gap, settled in ((0.999 * promised, True), (1.001 * promised, False)):
        search.lower, search.upper = 0.0, gap
        assert search.settled is settled


# ---------------------------------------------------------------- how many values


@pytest.mark.uncompiled
@pytest.mark.parametrize("start", [0.9, 1.0])
def test_a_start_near_the_upper_end(start):
    """The profile falls towards it: no value is spent at the end itself."""
    spectrum = graph_spectrum(np.random.default_rng(9), 50)
    search, logdet = search_for(spectrum, 1.0, 1.0, 1e-6, 2.0, 2.0 * start)
    search.run()
    assert search.settled and search.ratio < 1.0
    assert logdet.ratios[0] == 2.0 * start and max(logdet.ratios[1:]) < 2.0 * start


@pytest.mark.parametrize("n", [30, 300, 3000])
@pytest.mark.parametrize("zeros", [1, 5])
def test_values_asked_for(n, zeros):
    """A search that starts near the peak takes about 6 factorizations, a cold one a few more."""
    cold, warm = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        spectrum = graph_spectrum(rng, n, zeros)
        roughness = spectrum.mean() * rng.uniform(0.05, 0.8)
        peak = true_peak(spectrum, 1.0, roughness, 1e-6, 1e6)
        off = 10.0 ** rng.choice([-1.0, 1.0])
        cold.append(check_peak(spectrum, 1.0, roughness, 1e-6, 1e6, peak * off)[1])
        start = peak * math.exp(rng.normal(scale=0.1))
        warm.append(check_peak(spectrum, 1.0, roughness, 1e-6, 1e6, start)[1])
    assert np.mean(cold) <= 13 and max(cold) <= 16, (np.mean(cold), max(cold))
    assert np.mean(warm) <= 8 and max(warm) <= 10, (np.mean(warm), max(warm))


@pytest.mark.parametrize("graph", ["mutual", "symmetric"])
@pytest.mark.parametrize("name", ["load_pima", "load_new_thyroid"])
def test_values_asked_for_on_real_graphs(name, graph):
    """From where Lanczos's method says, and from the peak of the k before."""
    data = getattr(datasets, name)()
    problem = problem_of(data.X, data.y, graph=graph, k_max=40)
    cold, warm, start = [], [], None
    for k in range(1, 41, 3):
        opened, profile = opened_graph(problem.pairs, k, "lapack"), problem.profile(k)
        one = (opened, profile.norm, profile.roughness, (1e-6, 1e6))
        search = PeakSearch(*one, guess_ratio(problem, k)).run()
        assert search.settled
        expected = opened.peak(profile.norm, profile.roughness, (1e-6, 1e6))
        assert search.ratio == pytest.approx(expected, rel=1e-5)
        cold.append(len(search.curve.v))
        if start is not None:
            warm.append(len(PeakSearch(*one, start).run().curve.v))
        start = search.ratio
    assert np.mean(cold) <= 8 and max(cold) <= 11, (np.mean(cold), max(cold))
    assert np.mean(warm) <= 9 and max(warm) <= 13, (np.mean(warm), max(warm))


@pytest.mark.uncompiled
def test_noisy_values_end_the_search():
    """Values that carry more rounding than they should: it ends, and what it says of them holds."""
    rng = np.random.default_rng(6)
    spectrum = graph_spectrum(rng, 200)
    logdet = Counted(spectrum)
    noisy = Opened(lambda r: logdet(r) + 1e-9 * rng.normal(), known_of(spectrum))
    search = PeakSearch(noisy, 1.0, 1.0, (1e-6, 1e6), 1.0).run()
    best = true_peak(spectrum, 1.0, 1.0, 1e-6, 1e6)
    assert value(spectrum, 1.0, 1.0, best) - value(spectrum, 1.0, 1.0, search.ratio) < 1e-7


@pytest.mark.uncompiled
def test_a_search_that_spends_its_budget_says_so():
    """Values from no spectrum at all, as a broken backend would give them."""
    rng = np.random.default_rng(7)
    spectrum = graph_spectrum(rng, 200)
    asked = []

    def broken(ratio):
        asked.append(ratio)
        return float(np.log(spectrum + ratio).sum() + 0.1 * rng.normal())

    search = PeakSearch(Opened(broken, known_of(spectrum)), 1.0, 1.0, (1e-6, 1e6), 1.0).run()
    assert not search.settled
    assert len(asked) <= 65
    assert search.upper > search.lower


# ---------------------------------------------------------------- slopes that cost nothing


SLOPES = {
    "even": lambda away: -away,
    "steep above": lambda away: -math.expm1(away),
    "steep below": lambda away: math.expm1(-away),
    "flat": lambda away: -(away**3),
}


@pytest.mark.uncompiled
@pytest.mark.parametrize("name", SLOPES)
@pytest.mark.parametrize("peak", [2e-6, 0.03, 7.0, 5e5])
@pytest.mark.parametrize("width", [1e-7, 1e-11])
def test_climbing_to_a_peak(name, peak, width):
    seen = []

    def slope(t):
        seen.append(t)
        return SLOPES[name](t - math.log(peak))

    found = climb(slope, (1e-6, 1e6), width)
    assert abs(math.log(found / peak)) <= width + 1e-14
    assert len(seen) <= 100  # 34, or 95 where the slope is flat; without halving 45 and 116
    assert all(math.log(1e-6) <= t <= math.log(1e6) for t in seen)


@pytest.mark.uncompiled
@pytest.mark.parametrize("name", SLOPES)
def test_climbing_to_an_end(name):
    for low, high in ((1e-3, 0.5), (0.2, 1.0)):
        assert climb(SLOPES[name], (low, high), 1e-11) == high
    for low, high in ((2.0, 1e3), (1.0, 9.0)):
        assert climb(SLOPES[name], (low, high), 1e-11) == low
