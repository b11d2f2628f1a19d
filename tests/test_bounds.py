"""Every bound on the best evidence of a k against the eigenvalues of its graph, and its price."""

import naive
import numpy as np
import pytest
from posing import opened_graph, problem_of, random_set
from scipy.integrate import trapezoid

import mksknn
from mksknn._bounds import (
    Trials,
    anchor_bounds,
    diagonal_bounds,
    guess_ratio,
    identity_bounds,
    local_bound,
    slack,
    tail_bounds,
)
from mksknn._cholmod import cholmod
from mksknn._enclosures import enclose, enclose_chunk, enclose_opened
from mksknn._graphs import degrees
from mksknn._spectra import Foretold, StandIn, Triangles, diagonal_stand_in, local_stand_in
from mksknn._tails import bound_tail

GRAPHS = ("mutual", "symmetric")
KINDS = ("binary", "I", "II", "regression", "three outputs")
LIMITS = (
    {},
    {"ratio_bounds": (0.05, 0.3)},
    {"ratio_bounds": (1e-60, 1e60)},
    {"sigma0": 0.4, "sigma2": 0.9},
)
ANCHORED = ("lapack",) if cholmod() is None else ("lapack", "cholmod")


def best_evidence(X, y, graph, formulation="auto", **limits):
    """The best evidence of every k, from the eigenvalues of its graph."""
    Y, m, constant = naive.targets(y, formulation)
    found = []
    for k in range(1, len(X)):
        W = naive.weights(X, k, graph)
        if "sigma0" in limits:
            ratio = limits["sigma2"] / limits["sigma0"]
            logdet = len(X) * np.log(limits["sigma0"]) + np.log(naive.spectrum(W) + ratio).sum()
            fit = limits["sigma0"] * (naive.roughness(W, Y) + ratio * np.sum(Y**2))
            found.append(0.5 * m * (logdet - len(X) * np.log(2 * np.pi)) - 0.5 * fit + constant)
        else:
            found.append(naive.exact_optimum(W, Y, m, constant, **limits)[0])
    return np.array(found)


def cases(kind, graph, seeds=(0, 1, 2)):
    for seed in seeds:
        X, y, options = random_set(200 + seed, kind, n=22)
        for limits in LIMITS:
            problem = problem_of(X, y, graph=graph, **options, **limits)
            yield problem, best_evidence(X, y, graph, **options, **limits)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kind", KINDS)
def test_bounds_without_an_inverse_hold_and_tighten(kind, graph):
    """Identity, diagonal and local: above the evidence, each no higher than the one before."""
    for problem, best in cases(kind, graph):
        allowed = slack(problem)
        identity = identity_bounds(problem, problem.ks)
        diagonal, _ = diagonal_bounds(problem, problem.ks)
        local = np.array([local_bound(problem, k) for k in problem.ks])
        for bounds in (identity, diagonal, local):
            assert (bounds >= best - allowed).all()
        assert (diagonal <= identity + allowed).all()
        assert (local <= diagonal + allowed).all()
        assert allowed < 1e-7


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", GRAPHS)
def test_bounds_by_degrees_are_those_of_the_formula(graph):
    """Of each k its own, in place of the eigenvalues: at known sigmas nothing is searched."""
    X, y, _ = random_set(200, "regression", n=12)
    problem = problem_of(X, y, graph=graph, sigma0=0.4, sigma2=0.9)
    Y, m, constant = naive.targets(y)
    expected = []
    for k in problem.ks:
        W = naive.weights(X, int(k), graph)
        logdet = np.log(0.4 * W.sum(axis=1) + 0.9).sum()
        fit = 0.4 * naive.roughness(W, Y) + 0.9 * np.sum(Y**2)
        expected.append(0.5 * m * (logdet - 12 * np.log(2 * np.pi)) - 0.5 * fit + constant)
    found, _ = diagonal_bounds(problem, problem.ks)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2 * slack(problem))


@pytest.mark.uncompiled
@pytest.mark.parametrize("limits", LIMITS, ids=["default", "narrow", "wide", "fixed"])
def test_where_a_bound_is_exact_it_adds_its_slack(limits):
    """Twins far from all others: every eigenvalue is 0 or 2, as the local stand-in has them."""
    X = np.repeat(10.0 * np.arange(4.0)[:, None], 2, axis=0) + [[0.0], [1.0]] * 4
    y = X[:, 0] + np.array([0.0, 3.0, 1.0, 0.5, 7.0, 2.0, 0.0, 4.0])
    problem = problem_of(X, y, graph="mutual", k_max=2, **limits)
    best, allowed = best_evidence(X, y, "mutual", **limits)[0], slack(problem)
    found = [local_bound(problem, 1), Trials(problem, 1).bound]
    for bound in found[: 1 if "sigma0" in limits else 2]:
        assert 0.5 * allowed <= bound - best <= 1.5 * allowed
    mean = 2.0 * 4 / 8  # the four edges over eight points, in the formula of docs/theory
    Y, m, constant = naive.targets(y, "auto")
    q, s = naive.roughness(naive.weights(X, 1, "mutual"), Y), float(np.sum(Y**2))
    if "sigma0" in limits:
        sigma0, sigma2 = limits["sigma0"], limits["sigma2"]
        expected = 4 * np.log((sigma0 * mean + sigma2) / (2 * np.pi))
        expected -= 0.5 * (sigma0 * q + sigma2 * s)
    else:
        ends = np.array(problem.ratio_bounds)
        expected = 4 * np.log(8 * max((mean + ends) / (q + ends * s))) - 4 * (1 + np.log(2 * np.pi))
    bound = identity_bounds(problem, problem.ks)[0]
    assert 0.5 * allowed <= bound - expected - constant <= 1.5 * allowed


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kind", KINDS)
def test_bounds_by_one_and_two_determinants_hold_and_tighten(kind, graph):
    """Whatever the ratios that were tried."""
    for problem, best in cases(kind, graph, seeds=(0, 1)):
        if problem.sigmas is not None:
            continue
        for k in (1, 2, 5, 12, 21):
            opened = opened_graph(problem.pairs, k, "lapack")
            for places in ((0,), (3, 20), (-1, 8), (30, 31, 5)):
                trials = Trials(problem, k)
                bound = trials.bound
                for ratio in trials.ratios[[min(at, len(trials.ratios) - 1) for at in places]]:
                    trials.add(ratio, opened.logdet(ratio))
                    assert best[k - 1] - slack(problem) <= trials.bound <= bound
                    bound = trials.bound


@pytest.mark.uncompiled
def test_a_determinant_lowers_the_bound_of_a_few_points():
    X, y, _ = random_set(7, "regression", n=12)
    problem = problem_of(X, y)
    best = best_evidence(X, y, "symmetric")
    for k in (2, 6):
        trials, opened = Trials(problem, k), opened_graph(problem.pairs, k, "lapack")
        before, ratio = trials.bound, trials.ratios[0]
        trials.add(ratio, opened.logdet(ratio))
        assert best[k - 1] - slack(problem) <= trials.bound < before - 1e-3


@pytest.mark.uncompiled
@pytest.mark.parametrize("kind", ["regression", "three outputs"])
def test_a_difference_within_rounding_lowers_no_bound(kind):
    """Of a stand-in and a determinant: one that is larger does, by m/2 of what is sure of it."""
    X, y, _ = random_set(8, kind, n=12)
    problem = problem_of(X, 1e3 * y, ratio_bounds=(1e-9, 1e9))
    for k in (1, 3, 8):
        stand_in, ratio = Foretold(problem.pairs, k).stand_in, problem.ratio_bounds[1]
        logdet = stand_in.logdet(ratio)
        rounding = 1e-14 * (12 + abs(logdet))
        bounds = []
        for below in (0.0, 0.5, 0.9, 200.0):
            trials = Trials(problem, k)
            trials.add(ratio, logdet - below * rounding)
            bounds.append(trials.bound)
        assert bounds[0] == bounds[1] == bounds[2] == Trials(problem, k).bound
        lowered = 0.5 * problem.targets.m * 199.0 * rounding
        assert bounds[0] - bounds[3] == pytest.approx(lowered, rel=0.05)


@pytest.mark.uncompiled
def test_a_trial_adds_its_slack_wherever_it_is_highest():
    """Twins again, whose stand-in is exact: so the bound is known for any value made up for it."""
    X = np.repeat(10.0 * np.arange(4.0)[:, None], 2, axis=0) + [[0.0], [1.0]] * 4
    y = X[:, 0] + np.array([0.0, 3.0, 1.0, 0.5, 7.0, 2.0, 0.0, 4.0])
    problem = problem_of(X, y, graph="mutual", k_max=2)
    Y, m, constant = naive.targets(y, "auto")
    W, ratios = naive.weights(X, 1, "mutual"), Trials(problem, 1).ratios
    best, sigma0, sigma2, _ = naive.exact_optimum(W, Y, m, constant)
    values = np.array([naive.profile(W, Y, m, constant, one) for one in ratios])
    # the highest value up to each ratio from the one before: there, at the peak, or here
    before = np.append(-np.inf, values[:-1])
    peak = np.searchsorted(ratios, sigma2 / sigma0)
    cells = np.where(np.arange(len(ratios)) == peak, best, np.maximum(before, values))
    logdet = np.log(naive.spectrum(W) + ratios[0]).sum()
    for too_high in (0.1, 1.0, 10.0):
        trials = Trials(problem, 1)
        trials.add(ratios[0], logdet - too_high)
        fading = (ratios[0] / ratios) ** local_stand_in(problem.pairs, 1).fall(ratios)
        expected = cells - 0.5 * m * too_high * fading
        assert np.argmax(expected) > peak
        assert 0.5 <= (trials.bound - expected.max()) / slack(problem) <= 1.5


@pytest.mark.uncompiled
@pytest.mark.parametrize("off", [0.0, 0.3, 2.0])
def test_trials_learn_from_what_was_foretold(off):
    """Values that are higher than foretold, all by as much, do not rule out what was promised. The
    next ones do, or are not asked for; and none is asked for again.
    """
    X, y, _ = random_set(11, "regression", n=30)
    problem, turns = problem_of(X, y), set()
    for k in (1, 2, 4):
        foretold = Foretold(problem.pairs, k)
        for floor in Trials(problem, k).bound - np.linspace(0.05, 8.0, 40):
            trials, taken = Trials(problem, k), []
            while trials.bound > floor and (ratio := trials.next(floor)) is not None:
                assert ratio not in taken
                taken.append(ratio)
                trials.add(ratio, foretold.logdets(np.array([ratio]))[0] + off)
            if len(taken) > (1 if off else 0):
                assert trials.bound <= floor
            turns.add(len(taken))
    assert {0, 1, 2} <= turns <= ({0, 1, 2, 3} if off else {0, 1, 2})


def test_one_determinant_rules_out_a_k_in_many_dimensions():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 10))
    y = (X[:, 0] * X[:, 1] > 0) ^ (rng.random(1000) < 0.1)
    problem = problem_of(X, y, k_max=20)
    curve = mksknn.evidence_curve(X, y, k_max=20)
    best = curve.log_evidence.max()
    taken = [enclose(problem, k, best).factorizations for k in (10, 14, 18)]
    assert taken == [1, 1, 1]
    for k in (10, 14, 18):
        found = enclose(problem, k, best)
        assert found.lower <= curve.log_evidence[k - 1] <= found.upper <= best


@pytest.mark.uncompiled
@pytest.mark.parametrize("power", [2, 4])
def test_how_fast_an_error_can_fall(power):
    """One over the literal integral, and no more than the power itself."""
    for y in (1e-9, 0.01, 0.1, 0.5, 3.0, 1e2, 1e4):
        at = np.exp(np.linspace(0.0, 40.0, 400_001))
        whole = trapezoid(((y + 1.0) / (y + at)) ** power, np.log(at))
        fall = StandIn(np.array([0.0, y, y + 1.0]), np.ones(3), power).fall(np.array([1.0]))[0]
        assert 1.0 / whole <= fall * (1.0 + 1e-6) and fall <= power
        if y >= 0.1:
            assert fall == pytest.approx(1.0 / whole, rel=1e-5)


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", GRAPHS)
def test_errors_of_stand_ins_fall_no_faster_than_said(graph):
    """Against eigenvalues, from every ratio to every larger one; small components among them."""
    ratios = 10.0 ** np.arange(-5.0, 4.0, 0.5)
    for seed in range(6):
        X, y, _ = random_set(seed, "binary", n=24)
        problem = problem_of(X, y, graph=graph)
        for k in (1, 2, 3, 6, 15):
            values = naive.spectrum(naive.weights(X, k, graph))
            exact = np.log(values[:, None] + ratios).sum(axis=0)
            degree = degrees(problem.pairs, k)
            for one in (diagonal_stand_in(degree), local_stand_in(problem.pairs, k)):
                error = one.logdets(ratios) - exact
                rounding = 1e-9 * (1.0 + np.abs(exact).max())
                assert (error > -rounding).all()
                fading = np.minimum(ratios[:, None] / ratios, 1.0) ** one.fall(ratios)
                assert (error >= fading * error[:, None] - rounding).all()


@pytest.mark.parametrize("graph", GRAPHS)
def test_what_is_foretold_is_near(graph):
    """A determinant to a nat or two, and the best ratio."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(700, 3))
    y = np.sin(2 * X[:, 0]) + 0.5 * rng.normal(size=700)
    problem = problem_of(X, y, graph=graph, k_max=12)
    curve = mksknn.evidence_curve(X, y, graph=graph, k_max=12)
    for k in (4, 12):
        foretold, opened = Foretold(problem.pairs, k), opened_graph(problem.pairs, k, "lapack")
        ratios = np.array([0.01, 0.1, 1.0, 10.0])
        assert np.abs(foretold.logdets(ratios) - opened.logdets(ratios)).max() < 5.0
        peak = curve.sigma2[k - 1] / curve.sigma0[k - 1]
        assert 0.5 < guess_ratio(problem, k) / peak < 2.0


@pytest.mark.parametrize("backend", ANCHORED)
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kind", KINDS)
def test_anchors_hold(kind, graph, backend):
    """For every anchor and k, over all ratios; anchors of several components among them."""
    for problem, best in cases(kind, graph, seeds=(0, 1)):
        for k in (1, 2, 5, 12, 21):
            opened = opened_graph(problem.pairs, k, backend, many=False)
            for ratio in (1e-6, 1e-3, 0.1, 3.0, 1e3, 1e6):
                bounds = anchor_bounds(problem, opened, ratio)
                if bounds is not None:  # CHOLMOD has none for a graph without edges
                    assert (bounds >= best - slack(problem)).all()


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_anchor_is_tight_at_its_own_peak(kind, graph):
    for seed in (0, 1, 2):
        X, y, options = random_set(300 + seed, kind, n=25)
        curve = mksknn.evidence_curve(X, y, graph=graph, **options)
        problem = problem_of(X, y, graph=graph, **options)
        for at, k in enumerate(curve.k.tolist()):
            opened = opened_graph(problem.pairs, k, "lapack", many=False)
            bound = anchor_bounds(problem, opened, curve.sigma2[at] / curve.sigma0[at])[at]
            assert bound == pytest.approx(curve.log_evidence[at], rel=1e-10, abs=1e-7)


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", GRAPHS)
def test_an_anchor_bounds_as_the_oracle_does(graph):
    X, y, _ = random_set(9, "binary", n=18)
    problem = problem_of(X, y, graph=graph)
    Y, m, constant = naive.targets(y)
    graphs = [naive.weights(X, k, graph) for k in range(1, 18)]
    for k, ratio in ((2, 0.01), (6, 1.0), (17, 100.0)):
        opened = opened_graph(problem.pairs, k, "lapack", many=False)
        expected = [naive.evidence_bound(graphs[k - 1], ratio, W, Y, m, constant) for W in graphs]
        np.testing.assert_allclose(anchor_bounds(problem, opened, ratio), expected, rtol=1e-9)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kind", KINDS)
def test_bounds_beyond_the_ranked_hold(kind, graph):
    """From a ranking to depth 5 and one pass over the pairs."""
    for seed in (0, 1):
        X, y, options = random_set(400 + seed, kind, n=40)
        best = best_evidence(X, y, graph, **options)
        problem = problem_of(X, y, graph=graph, k_max=5, **options)
        tail = bound_tail(X, "euclidean", graph, problem.targets, 5)
        ks = np.arange(6, 40)
        assert (tail_bounds(problem, tail, ks) >= best[5:] - slack(problem)).all()


@pytest.mark.parametrize("graph", GRAPHS)
def test_a_start_is_near_the_peak(graph):
    """Nothing rests on it but how many values a search takes: within a factor of three."""
    data = mksknn.datasets.load_pima()
    problem = problem_of(data.X, data.y, graph=graph, k_max=20)
    curve = mksknn.evidence_curve(data.X, data.y, graph=graph, k_max=20)
    for at in np.flatnonzero(~curve.at_bound).tolist():
        peak = curve.sigma2[at] / curve.sigma0[at]
        assert peak / 3 < guess_ratio(problem, int(curve.k[at])) < 3 * peak


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", GRAPHS)
def test_a_random_vector_sees_no_more_eigenvalues_than_there_are(graph):
    """Lanczos's method goes on by rounding alone where it has seen all."""
    for seed in range(3):
        X, y, _ = random_set(seed, "regression", n=22)
        problem = problem_of(X, y, graph=graph)
        for k in (1, 2, 5, 12, 21):
            seen, W = Foretold(problem.pairs, k).random, naive.weights(X, k, graph)
            assert len(seen.nodes) <= 22 - naive.n_components(W) + 1
            assert seen.weights.sum() == pytest.approx(22.0, rel=1e-12)
            assert seen.nodes.max() <= naive.spectrum(W).max() * (1 + 1e-12)


@pytest.mark.uncompiled
@pytest.mark.parametrize("points", [2, 3, 4])
def test_a_start_for_a_few_points(points):
    """A random vector of signs may vanish once the null vectors are taken off."""
    X = np.arange(float(points))[:, None] ** 2
    for graph in GRAPHS:
        for k in range(1, points):
            problem = problem_of(X, X[:, 0] + 1.0, graph=graph)
            with np.errstate(all="raise"):
                assert 1e-6 <= guess_ratio(problem, k) <= 1e6


# ---------------------------------------------------------------- enclosures


@pytest.mark.parametrize("backend", ["lapack", "superlu"])
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kind", KINDS)
def test_enclosures_hold_the_evidence(kind, graph, backend):
    """With a floor or without: lower <= evidence <= upper, at the certificate's tolerance."""
    X, y, options = random_set(500, kind, n=22)
    for limits in LIMITS:
        problem = problem_of(X, y, graph=graph, backend=backend, **options, **limits)
        best, allowed = best_evidence(X, y, graph, **options, **limits), slack(problem)
        together = enclose_chunk(problem, problem.ks)
        for at, k in enumerate(problem.ks.tolist()):
            whole = enclose(problem, k)
            for one in (whole, together[at], enclose(problem, k, best[at] + 1.0)):
                assert one.k == k and one.factorizations >= 1
                assert one.lower - allowed <= best[at] <= one.upper + allowed
            assert whole.settled
            assert whole.lower == pytest.approx(best[at], rel=1e-9)
            assert whole.upper - whole.lower <= 1e-6


@pytest.mark.uncompiled
@pytest.mark.parametrize("backend", ["lapack", "superlu"])
def test_an_enclosure_adds_the_slack_of_rounding(backend):
    """All edges join equal labels: the peak is at an end, and one determinant is all there is."""
    X = np.random.default_rng(3).normal(size=(14, 2))
    X[7:] += 50.0
    for limits in LIMITS:
        problem = problem_of(X, np.repeat([0, 1], 7), backend=backend, **limits)
        one = enclose(problem, 3)
        assert one.settled and one.factorizations == 1
        assert 0.9 <= (one.upper - one.lower) / slack(problem) <= 3.0


@pytest.mark.uncompiled
def test_no_more_than_a_floor_asks_for():
    """A bound at the floor is enough, one above it is not, not even by rounding."""
    X, y, _ = random_set(0, "regression", n=30)
    problem = problem_of(X, y, backend="superlu", k_max=8)
    at_floor = searched = 0
    for k in problem.ks.tolist():
        opened, best = opened_graph(problem.pairs, k, "superlu"), enclose(problem, k).lower
        for above in (30.0, 3.0, 0.3, 0.03, 0.003):
            trials = Trials(problem, k)
            ratio = trials.next(best + above)
            if ratio is not None:
                trials.add(ratio, opened.logdet(ratio))
                if Trials(problem, k).next(trials.bound) == ratio:
                    found = enclose(problem, k, trials.bound)
                    assert found.factorizations == 1 and found.upper == trials.bound
                    at_floor += 1
            else:
                found = enclose(problem, k, best + above)
                floor = found.upper - 0.5 * slack(problem)
                again = enclose(problem, k, floor)
                assert again.settled or again.upper <= floor
                searched += not found.settled
    assert at_floor and searched


class Asked:
    """An open graph that remembers the ratios it was asked for."""

    def __init__(self, opened):
        self._opened, self.ratios = opened, []

    def __getattr__(self, name):
        return getattr(self._opened, name)

    def logdet(self, ratio):
        self.ratios.append(ratio)
        return self._opened.logdet(ratio)


@pytest.mark.parametrize("kind", ["binary", "regression"])
def test_no_determinant_is_computed_twice(kind):
    """Also where a trial does not rule out a k of which that was foretold."""
    for seed in (0, 2, 5):
        X, y, _ = random_set(seed, kind, n=150)
        problem = problem_of(X, y, backend="superlu", k_max=20)
        best = max(one.lower for one in enclose_chunk(problem, problem.ks))
        for k in range(9, 21):
            opened = Asked(opened_graph(problem.pairs, k, "superlu"))
            found = enclose_opened(problem, k, opened, best)
            assert len(set(opened.ratios)) == len(opened.ratios) == found.factorizations


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", ["mutual", "symmetric"])
def test_triangles_of_growing_graphs(graph):
    """Walks of three steps back to where they began, for all k, whichever is asked for first."""
    X = np.random.default_rng(4).integers(0, 4, (22, 2)).astype(float)
    problem = problem_of(X, np.arange(22) % 2, graph=graph)
    triangles = Triangles(problem.pairs)
    assert triangles.known(7) is None
    for k in (3, 9, 5, 21):
        W = naive.weights(X, k, graph)
        np.testing.assert_array_equal(triangles.of(k), np.diag(W @ W @ W))
        alone, told = (local_stand_in(problem.pairs, k, one) for one in (None, triangles.known(k)))
        np.testing.assert_array_equal(alone.nodes, told.nodes)
        np.testing.assert_array_equal(alone.weights, told.weights)
