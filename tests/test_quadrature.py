"""The integral over r of one k: against a fine grid, with few determinants, and an honest error."""

import math

import naive
import numpy as np
import pytest
import scipy.sparse.linalg
from posing import problem_of, random_set

import mksknn
from mksknn import _quadrature
from mksknn._enclosures import enclose_opened
from mksknn._plan import INTEGRAL, open_graph
from mksknn._quadrature import slice_graph

KINDS = ("binary", "regression", "three outputs")
MOST = 120  # determinants of a graph after which an integral counts as stuck; 95 is the most seen


@pytest.fixture
def asked(monkeypatch):
    """How many determinants a sparse graph was asked for."""
    splu, seen = scipy.sparse.linalg.splu, []

    def counting(*arguments, **options):
        seen.append(1)
        assert len(seen) <= MOST, "stuck"
        return splu(*arguments, **options)

    monkeypatch.setattr(scipy.sparse.linalg, "splu", counting)
    return seen


@pytest.mark.uncompiled
@pytest.mark.parametrize("backend", ["superlu", "lapack"])
@pytest.mark.parametrize("kind", KINDS)
def test_against_a_fine_grid(kind, backend, asked):
    """The integral, where its mass is, and the error told of it; peaks inside and at both ends."""
    X, y, _ = random_set(50, kind, n=14)
    Y, m, constant = naive.targets(y)
    for bounds in ((1e-6, 1e6), (1e-2, 2.0), (3.0, 50.0), (1e-9, 1e-3)):
        problem = problem_of(X, y, backend=backend, ratio_bounds=bounds)
        t, weight = naive.ratio_nodes(bounds, panels=2000, order=4)
        for k in (1, 4, 12):
            asked.clear()
            one = slice_graph(problem, k)
            W = naive.weights(X, k, "symmetric")
            expected = naive.log_marginal(W, Y, m, constant, bounds)
            assert abs(one.log_marginal - expected) <= one.error + 1e-11
            assert 1e-14 * 7 * m <= one.error < 1e-8  # rounding of m n / 2 logs is part of it
            assert (np.diff(one.t) > 0).all()
            assert math.log(bounds[0]) <= one.t[0] and one.t[-1] <= math.log(bounds[1])
            density = np.exp(naive.log_marginal_of_ratio(W, Y, m, constant, t) - expected) * weight
            density /= density.sum()
            assert one.share.sum() == pytest.approx(1.0, abs=1e-14)
            for power in (1, 2, -1):
                want = density @ (t**power if power > 0 else np.exp(-t))
                got = one.share @ (one.t**power if power > 0 else np.exp(-one.t))
                assert got == pytest.approx(want, rel=1e-6)
            spread = math.sqrt(density @ (t - density @ t) ** 2)
            below = np.interp(one.places, t, np.cumsum(density))
            np.testing.assert_allclose(one.below, below, atol=0.01 + 0.05 * spread, rtol=0)


@pytest.mark.uncompiled
@pytest.mark.parametrize("lowest", [1e-18, 1e-22, 1e-40, 1e-80])
@pytest.mark.parametrize("backend", ["superlu", "lapack"])
def test_the_mean_of_one_over_r(backend, lowest):
    """A point without neighbours needs it, and nearly all of it may come from the lowest r, where
    the density itself has long become negligible.
    """
    bounds, shares = (lowest, 1e6), []
    t, weight = naive.ratio_nodes(bounds, panels=2000, order=6)
    for n, k, noise in ((14, 2, 1.0), (30, 3, 1.0), (30, 8, 0.3)):
        rng = np.random.default_rng(2)
        X = rng.normal(size=(n, 2))
        y = X[:, 0] + noise * rng.normal(size=n)
        Y, m, constant = naive.targets(y)
        one = slice_graph(problem_of(X, y, backend=backend, ratio_bounds=bounds), k)
        W = naive.weights(X, k, "symmetric")
        logs = naive.log_marginal_of_ratio(W, Y, m, constant, t)
        density = np.exp(logs - one.log_marginal) * weight
        inverse = density * np.exp(-t) / density.sum()
        shares.append(inverse[t < math.log(lowest) + 6.0].sum() / inverse.sum())
        assert one.share @ np.exp(-one.t) == pytest.approx(inverse.sum(), rel=1e-8)
    assert max(shares) > 0.9


@pytest.mark.parametrize("low", [1e-100, 0.3, 9e99])
@pytest.mark.parametrize("width", [0.0, 1e-15, 1e-13, 1e-11, 1e-9])
@pytest.mark.parametrize("backend", ["superlu", "lapack"])
def test_bounds_without_room_between_them(backend, width, low):
    """The mean over the range is the density at its ends; their logarithms may even be equal."""
    bounds = low, max(low * (1.0 + width), math.nextafter(low, math.inf))
    X, y, _ = random_set(50, "binary", n=14)
    Y, m, constant = naive.targets(y)
    one = slice_graph(problem_of(X, y, backend=backend, ratio_bounds=bounds), 4)
    W = naive.weights(X, 4, "symmetric")
    expected = naive.log_marginal_of_ratio(W, Y, m, constant, np.array([math.log(low)]))[0]
    assert one.log_marginal == pytest.approx(expected, abs=1e-8)
    assert one.error < 1e-8 and one.at_bound
    assert one.share.sum() == pytest.approx(1.0, abs=1e-14)
    assert one.below[[0, -1]] == pytest.approx([0.0, 1.0], abs=1e-14)
    np.testing.assert_allclose(one.t, math.log(low), atol=1e-8)


@pytest.mark.uncompiled
@pytest.mark.parametrize("lowest", [1e-14, 1e-40])
def test_where_a_window_ends_is_foretold(lowest, monkeypatch):
    """1/r gains what the density loses, down to the lowest r: one determinant at either end."""
    find_end, asked = _quadrature._find_end, []

    def counting(probe, *arguments):
        return find_end(lambda t: (asked.append(t), probe(t))[1], *arguments)

    monkeypatch.setattr(_quadrature, "_find_end", counting)
    rng = np.random.default_rng(2)
    X = rng.normal(size=(14, 2))
    y = X[:, 0] + rng.normal(size=14)
    slice_graph(problem_of(X, y, backend="superlu", ratio_bounds=(lowest, 1e6)), 2)
    assert asked == [math.log(lowest), math.log(1e6)]


@pytest.mark.uncompiled
def test_what_lies_beyond_the_window_counts_as_error():
    """At most the density at its ends, all the way to the bounds."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(14, 2))
    y = X[:, :1] + 0.3 * rng.normal(size=(40, 14)).T
    Y, m, constant = naive.targets(y)
    bounds = (1e-80, 1e80)
    problem, seen = problem_of(X, y, backend="superlu", ratio_bounds=bounds), 0
    for k in range(1, 14):
        one = slice_graph(problem, k)
        W = naive.weights(X, k, "symmetric")
        ends = one.places[[0, -1]]
        heights = naive.log_marginal_of_ratio(W, Y, m, constant, ends)
        heights -= one.log_marginal + math.log(math.log(bounds[1] / bounds[0]))  # of the prior
        beyond = np.array([ends[0] - math.log(bounds[0]), math.log(bounds[1]) - ends[1]])
        beyond = float(beyond @ np.exp(heights))
        if not one.at_bound:
            assert one.error >= 0.9 * beyond
            seen += beyond > 1e-13
    assert seen


@pytest.mark.uncompiled
@pytest.mark.parametrize("size", [2, 9, 40])
def test_the_polynomial_through_the_nodes(size):
    """The barycentric formula gives a polynomial of that degree back, between the nodes."""
    nodes, _, weights = _quadrature._gauss(size)
    polynomial = np.polynomial.Chebyshev.basis(size - 1)
    x = np.linspace(-1.0, 1.0, 8)
    parts = weights / (x[:, None] - nodes)
    np.testing.assert_allclose(
        parts @ polynomial(nodes) / parts.sum(axis=1), polynomial(x), rtol=0, atol=1e-12
    )


@pytest.mark.uncompiled
def test_a_roof_gets_values_where_it_is_farthest_off():
    """Between what the density cannot exceed and what it cannot fall below."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(14, 2))
    problem = problem_of(X, X[:, :1] + 0.3 * rng.normal(size=(40, 14)).T, backend="superlu")
    opened = _quadrature._Remembered(open_graph(problem.pairs, 4, problem.plan, INTEGRAL))
    density = _quadrature._Density(problem, enclose_opened(problem, 4, opened))
    t = np.linspace(density.bottom, density.peak, 200)

    def farthest_off():
        roof = _quadrature._Roof(density, opened.curve)
        return float((np.minimum(roof.above(t), 0.0) - np.maximum(roof.below(t), -25.0)).max())

    opened.logdet(density.low)
    before, known = farthest_off(), len(opened.curve.v)
    _quadrature._raise_roof(density, opened, density.bottom, density.peak)
    assert known < len(opened.curve.v) <= known + 2
    assert farthest_off() < 0.4 * before


@pytest.mark.uncompiled
def test_below_all_values_a_roof_falls_as_the_components_make_it_fall():
    """The density falls like r to the power of m/2 for each of them."""
    X, y, _ = random_set(50, "three outputs", n=14)
    problem = problem_of(X, y, graph="mutual", backend="superlu")
    opened = _quadrature._Remembered(open_graph(problem.pairs, 2, problem.plan, INTEGRAL))
    density = _quadrature._Density(problem, enclose_opened(problem, 2, opened))
    components = naive.n_components(naive.weights(X, 2, "mutual"))
    assert components > 1
    t = np.array([-30.0, -29.0])
    assert t[-1] < math.log(opened.curve.ratio.min())
    low, high = _quadrature._Roof(density, opened.curve).above(t)
    assert high - low == pytest.approx(0.5 * 3 * components, rel=1e-6)


@pytest.mark.uncompiled
def test_null_vectors_need_few_nodes(asked):
    """Two of forty points are joined: one eigenvalue is not zero, and few values serve it."""
    X = 3.0 ** np.arange(40.0)[:, None]
    y = np.sin(np.arange(40.0))
    one = slice_graph(problem_of(X, y, graph="mutual", backend="superlu", k_max=2), 1)
    assert len(asked) <= 60
    assert one.error <= 1e-9
    Y, m, constant = naive.targets(y)
    expected = naive.log_marginal(naive.weights(X, 1, "mutual"), Y, m, constant)
    assert one.log_marginal == pytest.approx(expected, abs=1e-9)


def test_a_peak_at_the_end_of_wide_bounds_takes_few_rules(monkeypatch):
    """The density is no higher than at its peak: without that, panels were halved without end."""
    rng = np.random.default_rng(0)
    X, y, tried, rule = rng.normal(size=(900, 2)), rng.normal(size=900), [], _quadrature._rule

    def counting(*args):
        tried.append(args)
        assert len(tried) < 1000
        return rule(*args)

    options = {"ks": [6, 10], "ratio_bounds": (1e-12, 1e12)}
    monkeypatch.setattr(_quadrature, "_rule", counting)
    sparse = mksknn.posterior(X, y, backend="superlu", **options)
    dense = mksknn.posterior(X, y, backend="lapack", **options)
    assert tried and sparse.at_bound.all()
    np.testing.assert_allclose(sparse.log_marginal, dense.log_marginal, rtol=1e-10)
