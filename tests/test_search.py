"""The search over r on spectra made up for it: exact, never stuck, and sparing with values."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from mksknn import datasets
from mksknn._evidence import pose
from mksknn._graphs import components, dense_laplacian
from mksknn._search import Climb

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


def degrees_of(spectrum):
    """Degrees that could go with a spectrum: same sum, no eigenvalue above twice the largest."""
    n, total = len(spectrum), spectrum.sum()
    largest = max(spectrum.max() / 2, total / n)
    return np.array([largest, *np.full(n - 1, max(total - largest, 0.0) / (n - 1))])


def check_peak(spectrum, norm, roughness, low, high, start=None, degrees=None):
    logdet = Counted(spectrum)
    degrees = degrees_of(spectrum) if degrees is None else degrees
    climb = Climb(degrees, norm, roughness, low, high, start)
    climb.run(logdet)
    ratio, found = climb.ratio, climb.logdet
    assert low <= ratio <= high
    assert all(low <= r <= high for r in logdet.ratios)
    assert len(set(logdet.ratios)) == len(logdet.ratios)  # none is asked for twice
    assert found == float(np.log(spectrum + ratio).sum())
    best = value(spectrum, norm, roughness, true_peak(spectrum, norm, roughness, low, high))
    missed = best - value(spectrum, norm, roughness, ratio)
    assert missed <= 1e-8 + 1e-13 * abs(best)
    return ratio, len(logdet.ratios)


def graph_spectrum(rng, n, zeros=1):
    """Much like the spectrum of a k-NN graph: a bulk, and a tail towards zero."""
    spectrum = 20.0 * rng.beta(2, 4, n)
    spectrum[:zeros] = 0.0
    return spectrum


# ---------------------------------------------------------------- what is known on the way


@settings(max_examples=200)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(2, 60),
    middle=st.floats(-8, 5),
    spread=st.floats(0, 4),
    log_roughness=st.floats(-15, 5),
    start=st.none() | st.floats(-6, 6),
)
def test_the_peak_lies_between_lower_and_upper(seed, n, middle, spread, log_roughness, start):
    """After every single value; a search taken up again asks for none of them twice."""
    rng = np.random.default_rng(seed)
    spectrum = np.exp(middle + spread * rng.normal(size=n))
    spectrum[0] = 0.0
    roughness = math.exp(log_roughness)
    start = None if start is None else 10.0**start
    best = value(spectrum, 1.0, roughness, true_peak(spectrum, 1.0, roughness, 1e-6, 1e6))
    slack = 1e-8 + 1e-13 * abs(best)
    logdet = Counted(spectrum)
    climb = Climb(degrees_of(spectrum), 1.0, roughness, 1e-6, 1e6, start)
    climb.run(logdet, rough=True)
    assert climb.lower - slack <= best <= climb.upper + slack
    floors = climb.lower + (climb.upper - climb.lower) * np.array([0.9, 0.5, 0.1, 0.01])
    for floor in floors[np.isfinite(floors)]:
        climb.run(logdet, floor=floor)
        assert climb.lower - slack <= best <= climb.upper + slack
        assert climb.lower == climb.upper or climb.upper <= floor
    climb.run(logdet)
    assert climb.lower == climb.upper == pytest.approx(best, abs=slack)
    assert len(set(logdet.ratios)) == len(logdet.ratios)
    if start is None:
        assert (climb.ratio, len(logdet.ratios)) == check_peak(spectrum, 1.0, roughness, 1e-6, 1e6)


def test_a_low_peak_takes_three_values():
    """Near its peak, a rival that cannot win is ruled out by the first three values."""
    spectrum = graph_spectrum(np.random.default_rng(3), 2_000)
    peak = true_peak(spectrum, 1.0, 2.0, 1e-6, 1e6)
    height = value(spectrum, 1.0, 2.0, peak)
    for off in (-0.15, 0.0, 0.1):
        logdet = Counted(spectrum)
        climb = Climb(degrees_of(spectrum), 1.0, 2.0, 1e-6, 1e6, peak * math.exp(off))
        climb.run(logdet, floor=height + 2.0)
        assert len(logdet.ratios) == 3
        assert climb.estimate == pytest.approx(peak, rel=0.02)
        assert climb.lower <= height <= climb.upper <= height + 2.0


def test_derivatives_of_a_share():
    """What `_remainder` rests on: up to the fifth, none exceeds p (1 - p)."""
    p = np.linspace(0.0, 1.0, 1001)
    u = p * (1.0 - p)
    factors = [1.0 + 0.0 * u, 1 - 2 * p, 1 - 6 * u, (1 - 2 * p) * (1 - 12 * u)]
    factors.append(1 - 30 * u + 120 * u * u)
    for factor, higher in itertools.pairwise([*factors, None]):
        assert np.abs(factor).max() <= 1.0 + 1e-12
        if higher is not None:  # each is the derivative of the one before, by t: dp = u dt
            slope = np.gradient(u * factor, p, edge_order=2) * u
            np.testing.assert_allclose(slope, u * higher, atol=1e-4)


# ---------------------------------------------------------------- exact


@settings(max_examples=200)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(2, 60),
    middle=st.floats(-12, 8),
    spread=st.floats(0, 5),
    zeros=st.floats(0, 0.9),
    log_roughness=st.floats(-20, 10),
    low=st.floats(-10, -1),
    high=st.floats(1, 10),
    start=st.none() | st.floats(-12, 12),
)
def test_any_spectrum(seed, n, middle, spread, zeros, log_roughness, low, high, start):
    rng = np.random.default_rng(seed)
    spectrum = np.exp(middle + spread * rng.normal(size=n))
    spectrum[: max(1, int(zeros * n))] = 0.0
    spectrum[-1] = max(spectrum[-1], 1e-8)
    start = None if start is None else 10.0**start
    check_peak(spectrum, 1.0, math.exp(log_roughness), 10.0**low, 10.0**high, start)


@pytest.mark.parametrize("start", [None, 1e-30, 1e-3, 1.0, 1e5, 1e30])
@pytest.mark.parametrize("gap", [1e-8, 1e-4, 1e4, 1e8])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_spectrum_with_a_gap(gap, share, start):
    n = 40
    spectrum = np.where(np.arange(n) < share * n, gap, 1.0)
    spectrum[0] = 0.0
    for roughness in (1e-6 * gap, 0.1 * gap, 0.1, 0.9):
        check_peak(spectrum, 1.0, min(roughness, 0.9 * spectrum.mean()), 1e-12, 1e12, start)


@pytest.mark.parametrize("bounds", [(1e-100, 1e100), (1e-6, 1e30), (1e-40, 1.0), (1e-6, 1e6)])
@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e100])
@pytest.mark.parametrize("start", [None, 1e-90, 1.0, 1e90])
def test_wide_bounds_and_scaled_targets(bounds, scale, start):
    """Far from the peak the profile is flat to rounding: the search must not start there."""
    spectrum = graph_spectrum(np.random.default_rng(1), 40)
    expected = true_peak(spectrum, 1.0, 1.5, *bounds)
    ratio, _ = check_peak(spectrum, scale, 1.5 * scale, *bounds, start)
    assert ratio == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("bounds", [(1e-6, 1e-3), (1e2, 1e3), (0.5, 0.500001), (1.0, 1.0 + 1e-12)])
@pytest.mark.parametrize("start", [None, 1e-3, 1e3])
def test_narrow_bounds(bounds, start):
    spectrum = graph_spectrum(np.random.default_rng(2), 30)
    check_peak(spectrum, 1.0, 1.0, *bounds, start)


# ---------------------------------------------------------------- the ends


def test_equal_targets_need_one_value():
    spectrum = graph_spectrum(np.random.default_rng(3), 30, zeros=4)
    assert check_peak(spectrum, 1.0, 0.0, 1e-6, 1e6) == (1e-6, 1)


@pytest.mark.parametrize("excess", [1.0, 1.5, 100.0])
def test_targets_as_rough_as_noise_need_one_value(excess):
    spectrum = graph_spectrum(np.random.default_rng(4), 32)
    roughness = excess * degrees_of(spectrum).mean()
    assert check_peak(spectrum, 1.0, roughness, 1e-6, 1e6) == (1e6, 1)


@pytest.mark.parametrize("start", [None, 1e-6, 2e-6, 0.01, 1.0, 1e6])
def test_peak_below_and_above_the_bounds(start):
    spectrum = graph_spectrum(np.random.default_rng(5), 50)
    peak = true_peak(spectrum, 1.0, 1.0, 1e-6, 1e6)
    below, calls = check_peak(spectrum, 1.0, 1.0, 1e-6, peak / 1.01, start)
    assert below == peak / 1.01 and calls <= 14
    above, calls = check_peak(spectrum, 1.0, 1.0, peak * 1.01, 1e6, start)
    assert above == peak * 1.01 and calls <= 14


# ---------------------------------------------------------------- how many values


@pytest.mark.parametrize("n", [30, 300, 3000])
@pytest.mark.parametrize("zeros", [1, 5])
def test_values_asked_for(n, zeros):
    """A search that starts near the peak takes about 6 factorizations, a cold one a few more."""
    cold, warm = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        spectrum = graph_spectrum(rng, n, zeros)
        roughness = spectrum.mean() * rng.uniform(0.05, 0.8)
        degrees = rng.uniform(0.6, 1.4, n)
        degrees *= spectrum.mean() / degrees.mean()
        ratio, calls = check_peak(spectrum, 1.0, roughness, 1e-6, 1e6, None, degrees)
        cold.append(calls)
        start = ratio * math.exp(rng.normal(scale=0.1))
        warm.append(check_peak(spectrum, 1.0, roughness, 1e-6, 1e6, start, degrees)[1])
    assert np.mean(cold) <= 12 and max(cold) <= 16
    assert np.mean(warm) <= 7 and max(warm) <= 10


@pytest.mark.parametrize("graph", ["mutual", "symmetric"])
@pytest.mark.parametrize("name", ["load_pima", "load_new_thyroid"])
def test_values_asked_for_on_real_graphs(name, graph):
    """Measured: 7.8 to 8.7 from nothing, 6.1 from the peak of the k before."""
    data = getattr(datasets, name)()
    options = {"formulation": "auto", "task": "auto", "center": True}
    problem = pose(data.X, data.y, graph=graph, k_max=40, **options)
    cold, warm, start = [], [], None
    for k in range(1, 41, 3):
        lower = dense_laplacian(problem.pairs, k)
        laplacian = lower + np.tril(lower, -1).T
        spectrum = np.linalg.eigvalsh(laplacian)
        spectrum[: components(problem.pairs, k).count] = 0.0
        profile = problem.profile(k)
        peak = (spectrum, profile.norm, profile.roughness, 1e-6, 1e6)
        ratio, calls = check_peak(*peak, None, np.diagonal(laplacian))
        cold.append(calls)
        if start is not None:
            warm.append(check_peak(*peak, start, np.diagonal(laplacian))[1])
        start = ratio
    assert np.mean(cold) <= 10 and max(cold) <= 13
    assert np.mean(warm) <= 7.5 and max(warm) <= 10


@pytest.mark.uncompiled
def test_noisy_values_end_the_search():
    """Values of a large matrix carry rounding above the gain that is asked for."""
    rng = np.random.default_rng(6)
    spectrum = graph_spectrum(rng, 200)
    logdet = Counted(spectrum)
    climb = Climb(degrees_of(spectrum), 1.0, 1.0, 1e-6, 1e6)
    climb.run(lambda r: logdet(r) + 1e-9 * rng.normal())
    best = true_peak(spectrum, 1.0, 1.0, 1e-6, 1e6)
    assert value(spectrum, 1.0, 1.0, best) - value(spectrum, 1.0, 1.0, climb.ratio) < 1e-7
