"""The posterior over k against brute-force integration, sampling and explicit averaging."""

import math
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from types import SimpleNamespace

import naive
import numpy as np
import pytest
from posing import lower_laplacian, pairs_of, problem_of

import mksknn
from mksknn import _quadrature
from mksknn._cholmod import cholmod
from mksknn._determinants import Determinants, Spectrum
from mksknn._enclosures import enclose_opened
from mksknn._problem import Profile
from mksknn._quadrature import _find_end, slice_graph
from mksknn._threads import limit_threads


def make(n, seed=0, kind="classes"):
    """Points with targets that the neighbours know something about."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    signal = X[:, 0] + 0.5 * rng.normal(size=n)
    if kind == "classes":
        return X, np.where(signal > 0, "yes", "no")
    if kind == "three":
        return X, np.digitize(signal, [-0.5, 0.5])
    if kind == "two outputs":
        return X, np.column_stack([signal, X[:, 1] ** 2])
    return X, signal


def clean(n=24, seed=3):
    """Two far-off classes: at small k every edge joins equal labels, so q_k = 0."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    X[n // 2 :] += 50.0
    return X, np.repeat([0, 1], n // 2)


# ---------------------------------------------------------------- the integrals


@pytest.mark.parametrize("graph", ["symmetric", "mutual"])
@pytest.mark.parametrize("kind", ["classes", "three", "values", "two outputs"])
def test_probability_matches_brute_force_integration(kind, graph):
    X, y = make(8, 1, kind)
    ks, probability, log_marginal = naive.posterior(X, y, graph=graph)
    found = mksknn.posterior(X, y, graph=graph, max_skipped=0.0)
    assert found.k.tolist() == ks.tolist()
    np.testing.assert_allclose(found.probability, probability, rtol=1e-5, atol=0)
    np.testing.assert_allclose(found.log_marginal, log_marginal, rtol=0, atol=1e-5)
    assert found.probability.sum() == pytest.approx(1.0, abs=1e-14)
    assert found.skipped_mass == 0.0


@pytest.mark.parametrize("backend", ["lapack", "cholmod", "superlu"])
@pytest.mark.parametrize("graph", ["symmetric", "mutual"])
@pytest.mark.parametrize("kind", ["classes", "three", "values"])
def test_marginals_match_a_fine_quadrature_on_every_backend(kind, graph, backend):
    if backend == "cholmod":
        pytest.importorskip("sksparse")
    X, y = make(18, 2, kind)
    ks = [1, 2, 5, 11, 17]
    _, probability, log_marginal = naive.posterior(X, y, ks, graph, brute=False)
    found = mksknn.posterior(X, y, graph=graph, ks=ks, max_skipped=0.0, backend=backend)
    np.testing.assert_allclose(found.log_marginal, log_marginal, rtol=0, atol=1e-7)
    np.testing.assert_allclose(found.probability, probability, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("formulation", ["binary", "I", "II"])
def test_formulations(formulation):
    X, y = make(12, 4)
    _, probability, log_marginal = naive.posterior(X, y, formulation=formulation, brute=False)
    found = mksknn.posterior(X, y, formulation=formulation, max_skipped=0.0)
    assert found.formulation == formulation
    np.testing.assert_allclose(found.log_marginal, log_marginal, rtol=0, atol=1e-8)
    np.testing.assert_allclose(found.probability, probability, rtol=1e-8)


@pytest.mark.parametrize("bounds", [(1e-6, 1e6), (1e-3, 2.0), (0.2, 0.2001), (50.0, 1e9)])
def test_other_ratio_bounds(bounds):
    X, y = make(14, 5, "values")
    _, _, log_marginal = naive.posterior(X, y, ratio_bounds=bounds, brute=False)
    found = mksknn.posterior(X, y, ratio_bounds=bounds, max_skipped=0.0)
    np.testing.assert_allclose(found.log_marginal, log_marginal, rtol=0, atol=1e-8)
    assert ((found.mixture.ratio >= bounds[0]) & (found.mixture.ratio <= bounds[1])).all()


@pytest.mark.parametrize("backend", ["lapack", "cholmod"])
def test_edges_between_equal_targets_stay_finite_and_are_flagged(backend):
    if backend == "cholmod":
        pytest.importorskip("sksparse")
    X, y = clean()
    found = mksknn.posterior(X, y, graph="mutual", max_skipped=0.0, backend=backend)
    _, probability, log_marginal = naive.posterior(X, y, graph="mutual", brute=False)
    np.testing.assert_allclose(found.log_marginal, log_marginal, rtol=0, atol=1e-7)
    np.testing.assert_allclose(found.probability, probability, rtol=1e-6)
    assert found.at_bound[found.best_k - 1]
    assert "at_bound" in repr(found)
    loosely = mksknn.posterior(X, y, graph="mutual", ratio_bounds=(1e-12, 1e6))
    assert np.nanmax(loosely.log_marginal) > np.nanmax(found.log_marginal) + 10.0


def test_a_graph_without_influence_is_flagged_too():
    rng = np.random.default_rng(0)
    found = mksknn.posterior(rng.normal(size=(40, 2)), rng.normal(size=40), max_skipped=0.0)
    assert found.at_bound.any()  # r may be as large as it likes
    X, y = make(60, 0, "values")
    assert not mksknn.posterior(X, y, ks=[3, 5, 8]).at_bound.any()


@pytest.mark.parametrize("backend", ["lapack", "superlu"])
@pytest.mark.parametrize("kind", ["classes", "values", "clean"])
def test_ratio_summary(kind, backend):
    """Also where the density is piled up at an end of the bounds."""
    X, y = clean() if kind == "clean" else make(30, 6, kind)
    found = mksknn.posterior(X, y, ks=[2, 3, 5], max_skipped=0.0, backend=backend)
    Y, m, constant = naive.targets(y)
    t, weight = naive.ratio_nodes(panels=4000, order=4)
    logs = [
        naive.log_marginal_of_ratio(naive.weights(X, k, "symmetric"), Y, m, constant, t)
        for k in (2, 3, 5)
    ]
    density = np.exp(logs - np.max(logs)).sum(axis=0) * weight
    density /= density.sum()
    assert math.log(found.ratio) == pytest.approx(density @ t, abs=1e-6)
    spread = math.sqrt(density @ (t - density @ t) ** 2)
    ends = np.interp([0.025, 0.975], np.cumsum(density) - 0.5 * density, t)
    np.testing.assert_allclose(np.log(found.ratio_interval), ends, rtol=0, atol=1e-3 * spread)
    assert found.at_bound.any() == (kind == "clean")


@pytest.mark.parametrize("lowest", [1e-6, 1e-24, 1e-40])
def test_a_k_that_matters_only_to_variances_is_not_left_out(lowest):
    """Improbable as it is, it may be all that the variance of a point without neighbours is."""
    X, y = np.array([[0.0], [1.0], [10.0], [11.0]]), np.array([0.0, 1e-6, 1.0, 1.0])
    bounds = (lowest, 1e3)
    found = mksknn.posterior(X, y, graph="mutual", ratio_bounds=bounds, max_skipped=0.0)
    Y, m, constant = naive.targets(y)
    t, weight = naive.ratio_nodes(bounds, panels=4000, order=6)
    total = variance = 0.0
    for k in (1, 2, 3):
        W = naive.weights(X, k, "mutual")
        density = np.exp(naive.log_marginal_of_ratio(W, Y, m, constant, t)) * weight
        q = float(0.5 * (W * (Y - Y.T) ** 2).sum())
        total += density.sum()
        variance += density @ ((q + np.exp(t) * (Y**2).sum()) / np.exp(t)) / (m * len(y) - 2)
    far = mksknn.predict(X, y, [[1e4]], found)
    assert far.n_neighbors[0] == 0
    assert far.variance[0] == pytest.approx(variance / total, rel=1e-7)


def test_interval_and_mean_of_k():
    X, y = make(40, 7)
    found = mksknn.posterior(X, y, max_skipped=0.0)
    low, high = found.interval
    assert found.probability[found.k < low].sum() < 0.025
    assert found.probability[found.k <= low].sum() >= 0.025
    assert found.probability[found.k > high].sum() <= 0.025 + 1e-12
    assert found.probability[found.k >= high].sum() > 0.025
    assert found.mean_k == pytest.approx(float(found.probability @ found.k))
    assert found.best_k == found.k[np.argmax(found.probability)]


def test_few_determinants_are_enough_for_a_sparse_graph(monkeypatch):
    import scipy.sparse.linalg

    X, y = make(600, 8, "values")
    problem = problem_of(X, y, ks=[6], backend="superlu")
    splu, asked = scipy.sparse.linalg.splu, []
    monkeypatch.setattr(
        scipy.sparse.linalg, "splu", lambda *a, **b: asked.append(1) or splu(*a, **b)
    )
    sparse = slice_graph(problem, 6)
    # a long tail towards small r, all of it within proven bounds: 12 to find the peak and the
    # window, 47 in two of Gauss's rules
    assert 3 <= len(asked) <= 65
    dense = mksknn.posterior(X, y, ks=[6], backend="lapack")
    assert sparse.log_marginal == pytest.approx(dense.log_marginal[0], abs=1e-7)
    assert sparse.error <= 1e-8
    inverse = sparse.share @ np.exp(-sparse.t)
    assert inverse == pytest.approx(dense.mixture.weight @ (1.0 / dense.mixture.ratio), rel=1e-6)


@pytest.mark.parametrize("power", [0.3, 1.0, 2.0, 8.0])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 20.0])
@pytest.mark.parametrize("guess", [1e-4, 0.5, 30.0])
def test_the_end_of_a_window_is_found_whatever_the_shape(power, scale, guess):
    asked = []

    def probe(t):
        asked.append(t)
        return -((abs(t - 2.0) / scale) ** power)

    for end, gain in ((-11.0, 13.0), (15.0, 0.0)):  # 1/r is so much higher, in logs, at the end
        asked.clear()
        t = _find_end(probe, 2.0, end, guess)
        assert min(2.0, end) <= t <= max(2.0, end)
        assert len(asked) <= 30
        fall = -probe(t) - gain
        assert 30.0 <= fall <= 120.0 or (t == end and fall < 30.0)
    assert _find_end(probe, 2.0, 2.0, guess) == 2.0


class _Known(Determinants):
    """A graph by its eigenvalues."""

    def __init__(self, eigenvalues):
        self.u = np.asarray(eigenvalues, float)
        top, nulls = 1.2 * self.u.max(), int((self.u == 0.0).sum())
        self.spectrum = Spectrum(len(self.u), nulls, float(top), float(self.u.mean()))

    def logdet(self, ratio):
        return float(np.log(self.u + ratio).sum())

    def trace_inverse(self, ratio):
        return float((1.0 / (self.u + ratio)).sum())


SPECTRA = {
    "lattice": np.append(0.0, np.linspace(0.05, 8.0, 299)),
    "plane": np.append(np.zeros(3), np.linspace(0.0, 1.0, 801)[1:] ** 1.5 * 40.0),
    "equal": np.append(0.0, np.full(60, 5.0)),
    "far apart": np.concatenate(
        [np.zeros(2), np.full(3, 1e-4), np.full(20, 1.0), np.full(5, 90.0)]
    ),
    "small": np.array([0.0, 1.0, 3.0]),
}


@pytest.fixture(params=[(name, m, q) for name in SPECTRA for m in (1, 3) for q in (0.02, 0.4)])
def known(request):
    """A density whose eigenvalues are known, as `_integrate_few` has it, and its exact log."""
    name, m, rough = request.param
    opened = _quadrature._Remembered(_Known(SPECTRA[name]))
    u = SPECTRA[name]
    profile = Profile(len(u), m, 1.0 * len(u) * m, 0.0, rough * u.mean() * len(u) * m)
    targets = SimpleNamespace(n=len(u), m=m, norm=profile.norm, constant=0.0)
    problem = SimpleNamespace(
        profile=lambda k: profile, ratio_bounds=(1e-6, 1e6), sigmas=None, targets=targets,
        roughness=np.array([profile.roughness]),
    )  # fmt: skip
    found = enclose_opened(problem, 1, opened, start=rough)
    density = _quadrature._Density(problem, found)

    def exact(t):
        """Also beside the real line."""
        r = np.exp(np.asarray(t)[..., None])
        numerator = np.log((u + r) / (u + density.ratio)).sum(axis=-1)
        denominator = np.log(profile.roughness + r[..., 0] * profile.norm)
        fall = denominator - np.log(profile.roughness + density.ratio * profile.norm)
        return 0.5 * m * numerator - density.half * fall

    return density, opened, found, exact


def test_a_roof_is_above_the_density(known):
    density, opened, _, exact = known
    opened.logdet(1e-6), opened.logdet(20.0 * density.ratio)
    roof = _quadrature._Roof(density, opened.curve)
    t = np.linspace(-20.0, 20.0, 401)
    assert (roof.above(t) >= exact(t) - 1e-9).all()
    inside = t[(t > math.log(1e-6)) & (t < density.peak + 2.9)]
    assert (roof.below(inside) <= exact(inside) + 1e-9).all()
    for lean in (0.0, 0.4, 1.5, 3.0):
        for width in (0.05, 2.0):
            highest = roof.beside(t, t + width, np.full(len(t), lean))
            for part in (0.0, 0.5, 1.0):
                for off in (0.3, 1.0):
                    there = exact(t + part * width + 1j * off * lean).real
                    assert (there <= highest + 1e-8).all()


def test_rules_miss_no_more_than_they_say(known):
    """For rules of any size, on intervals of any place and width; both integrals."""
    density, opened, _, exact = known
    opened.logdet(1e-6)
    roof = _quadrature._Roof(density, opened.curve)
    fine, weights = np.polynomial.legendre.leggauss(300)
    rng = np.random.default_rng(0)
    few = 0
    for _ in range(20):
        left = density.peak + rng.uniform(-8.0, 2.0)
        right = left + rng.choice([0.3, 1.0, 3.0, 8.0])
        for allowed in (1e-1, 1e-3, 1e-6, 1e-10):
            rule = _quadrature._rule(roof, density.peak, left, right, np.full(2, allowed))
            assert (rule.error <= allowed * (1.0 + 1e-9)).all()
            if rule.size > 150:
                continue
            nodes, rough, _ = _quadrature._gauss(rule.size)
            half, middle = 0.5 * (right - left), 0.5 * (left + right)
            for at, power in enumerate((0.0, 1.0)):

                def sums(x, w, power=power, half=half, middle=middle):
                    t = middle + half * x
                    return half * w @ np.exp(exact(t) + power * (density.peak - t))

                want, got = sums(fine, weights), sums(nodes, rough)
                assert abs(want - got) <= rule.error[at] + 1e-12 * want
            few += rule.size < 20
    assert few > 20


def test_the_error_covers_what_is_missed(known):
    density, opened, found, exact = known
    got = _quadrature._integrate_few(density, opened, found)
    edges = np.linspace(density.bottom, density.ceiling, 2001)
    nodes, weights = np.polynomial.legendre.leggauss(8)
    half = 0.5 * (edges[1] - edges[0])
    t = 0.5 * (edges[1:] + edges[:-1])[:, None] + half * nodes
    value = np.exp(exact(t)) * (half * weights)
    assert got.error < 1e-9
    assert math.exp(got.log) == pytest.approx(value.sum(), rel=2e-9)
    inverse = (value * np.exp(density.peak - t)).sum() / value.sum()
    assert got.share @ np.exp(density.peak - got.t) == pytest.approx(inverse, rel=5e-9)
    below = np.interp(got.places, edges[1:], np.cumsum(value.sum(axis=1)) / value.sum())
    np.testing.assert_allclose(got.below, below, atol=1e-3)
    assert (np.diff(got.places) > 0).all() and (np.diff(got.t) > 0).all()


def test_a_graph_whose_values_cannot_be_has_no_bounded_error(known):
    density, opened, found, _ = known
    right, calls = opened._opened.logdet, []

    def wrong(ratio):
        calls.append(ratio)
        return right(ratio) + (0.01 if len(calls) % 2 else -0.01)

    opened._opened.logdet = wrong
    assert _quadrature._integrate_few(density, opened, found).error == math.inf


def test_the_error_told_covers_the_distance_from_a_dense_answer():
    """Whatever the width of the density."""
    pytest.importorskip("sksparse")
    for n, kind in ((60, "classes"), (60, "values"), (25, "three")):
        X, y = make(n, 9, kind)
        want = mksknn.posterior(X, y, ks=[4], backend="lapack")
        got = mksknn.posterior(X, y, ks=[4], backend="cholmod")
        np.testing.assert_allclose(got.log_marginal, want.log_marginal, rtol=0, atol=1e-9)
        assert abs(got.log_marginal - want.log_marginal)[0] <= got.error + want.error


@pytest.mark.parametrize("k, outputs", [(4, 1), (9, 6)])
@pytest.mark.parametrize("graph", ["symmetric", "mutual"])
def test_data_drawn_from_the_model_give_their_k_back(k, outputs, graph):
    n = 400
    rng = np.random.default_rng(k)
    X = rng.normal(size=(n, 2))
    pairs = pairs_of(X, graph, k)
    lower = lower_laplacian(pairs, k)
    precision = lower + np.tril(lower, -1).T + 0.05 * np.eye(n)
    y = np.linalg.solve(np.linalg.cholesky(precision).T, rng.normal(size=(n, outputs)))
    found = mksknn.posterior(X, y, graph=graph, center=False, k_max=60)
    assert found.best_k == k
    assert found.probability[k - 1] > 0.5
    assert found.interval[0] <= k <= found.interval[1]
    low, high = found.ratio_interval
    assert low < 0.05 < high
    choice = mksknn.posterior(X, y, graph="auto", center=False, k_max=60)
    assert (choice.graph, choice.best_k) == (graph, k)


# ---------------------------------------------------------------- what is skipped


@pytest.mark.parametrize("allowance", [1e-6, 1e-3, 0.2])
@pytest.mark.parametrize("graph", ["symmetric", "mutual"])
@pytest.mark.parametrize("backend", ["lapack", "cholmod"])
def test_the_bound_on_what_is_skipped_is_honest(graph, backend, allowance):
    if backend == "cholmod":
        pytest.importorskip("sksparse")
    X, y = make(90, 10, "three")
    y = np.where(np.arange(90) % 7 == 0, y, (X[:, 0] > 0).astype(int))
    options = {"graph": graph, "backend": backend}
    if backend == "cholmod":
        options["ks"] = range(1, 89, 6)
    full = mksknn.posterior(X, y, max_skipped=0.0, **options)
    part = mksknn.posterior(X, y, max_skipped=allowance, **options)
    skipped = np.isnan(part.log_marginal)
    assert skipped.any()
    truth = full.probability[skipped].sum()
    assert truth <= part.skipped_mass <= allowance
    np.testing.assert_allclose(
        part.log_marginal[~skipped], full.log_marginal[~skipped], rtol=0, atol=1e-7
    )
    kept = full.probability * ~skipped
    np.testing.assert_allclose(part.probability, kept / kept.sum(), rtol=0, atol=1e-9)
    assert (part.probability[skipped] == 0).all()
    assert not np.isnan(full.log_marginal).any()


def test_far_off_k_are_skipped_on_real_data():
    data = mksknn.datasets.load_new_thyroid()
    found = mksknn.posterior(data.X, data.y)
    assert np.isnan(found.log_marginal).sum() > 150
    assert 0.0 < found.skipped_mass <= 1e-6
    best = mksknn.select_k(data.X, data.y)
    assert found.best_k == best.k


# ---------------------------------------------------------------- the sampler


@pytest.mark.parametrize("kind", ["classes", "values"])
def test_a_metropolis_sampler_agrees(kind):
    X, y = make(20, 11, kind)
    ks = list(range(1, 9))
    bounds = (1e-4, 10.0)  # without the flat tail, in which 1/sigma0 has no end
    exact = mksknn.posterior(X, y, ks=ks, ratio_bounds=bounds, max_skipped=0.0)
    samples = naive.metropolis(X, y, steps=6000, seed=1, ks=ks, ratio_bounds=bounds)[500:]
    batches = samples[: len(samples) // 20 * 20].reshape(20, -1, 3)
    for k, p in zip(ks, exact.probability, strict=True):
        share = (batches[:, :, 0] == k).mean(axis=1)
        error = share.std(ddof=1) / math.sqrt(len(share))
        assert abs(share.mean() - p) < 4.0 * error + 1e-3
    t = batches[:, :, 2].mean(axis=1)
    error = t.std(ddof=1) / math.sqrt(len(t))
    assert abs(t.mean() - math.log(exact.ratio)) < 4.0 * error
    # 1/sigma0, of which predictions need the mean
    inverse = np.exp(-batches[:, :, 1]).mean(axis=1)
    expected = exact.mixture.weight @ exact.mixture.inverse_sigma0
    error = inverse.std(ddof=1) / math.sqrt(len(inverse))
    assert abs(inverse.mean() - expected) < 4.0 * error


# ---------------------------------------------------------------- averaged predictions


def check_prediction(got, want, formulation, rtol=1e-6):
    np.testing.assert_allclose(got.mean, want["mean"], rtol=rtol, atol=1e-8)
    if want["label"] is None:
        assert got.label is None
        variance = np.asarray(want["variance"]).reshape(len(got.variance), -1).mean(axis=1)
    else:
        assert got.label.tolist() == want["label"].tolist()
        np.testing.assert_allclose(got.probability, want["probability"], rtol=rtol, atol=1e-8)
        np.testing.assert_allclose(got.probability.sum(axis=1), 1.0, rtol=1e-12)
        variance = (
            want["difference_variance"]
            if formulation == "binary"
            else want["variance"].mean(axis=1)
        )
    np.testing.assert_allclose(got.variance, variance, rtol=rtol)


@pytest.mark.parametrize("graph", ["symmetric", "mutual"])
@pytest.mark.parametrize(
    "kind, formulation",
    [("classes", "binary"), ("classes", "II"), ("three", "I"), ("three", "II")]
    + [("values", "auto"), ("two outputs", "auto")],
)
def test_averaged_predictions_are_explicit_sums(kind, formulation, graph):
    X, y = make(16, 12, kind)
    new = np.vstack([np.random.default_rng(1).normal(size=(8, 2)), X[:2], [[30.0, 30.0]]])
    model = mksknn.posterior(X, y, graph=graph, formulation=formulation, max_skipped=0.0)
    got = mksknn.predict(X, y, new, model)
    want = naive.averaged_predict(X, y, new, graph=graph, formulation=formulation)
    check_prediction(got, want, formulation)


@pytest.mark.parametrize("ties", ["nearest", "lowest"])
@pytest.mark.parametrize("metric", ["manhattan", "precomputed"])
def test_averaged_predictions_with_ties_and_other_metrics(metric, ties):
    grid = np.array([(a, b) for a in range(4) for b in range(4)], dtype=float)
    y = ["b", "a", "a", "b"] * 4
    new = np.array([[0.5, 0.5], [1.0, 1.0], [9.0, 9.0]])
    if metric == "precomputed":
        new = naive.cross_distances(new, grid)
        grid = naive.distance_matrix(grid)
    model = mksknn.posterior(grid, y, metric=metric, max_skipped=0.0)
    got = mksknn.predict(grid, y, new, model, ties=ties)
    want = naive.averaged_predict(grid, y, new, metric=metric, ties=ties)
    check_prediction(got, want, "binary")


def test_skipping_hardly_moves_predictions():
    data = mksknn.datasets.load_new_thyroid()
    X, y, new = data.X[::2], data.y[::2], data.X[1::2]
    full = mksknn.predict(X, y, new, mksknn.posterior(X, y, max_skipped=0.0))
    part = mksknn.predict(X, y, new, mksknn.posterior(X, y))
    np.testing.assert_allclose(part.probability, full.probability, rtol=0, atol=2e-6)
    assert part.label.tolist() == full.label.tolist()


def test_a_certain_posterior_predicts_as_its_k_does():
    X, y = make(50, 13, "values")
    best = mksknn.select_k(X, y)
    ratio = best.sigma2 / best.sigma0
    narrow = (ratio * (1 - 1e-9), ratio * (1 + 1e-9))
    model = mksknn.posterior(X, y, ks=[best.k], ratio_bounds=narrow)
    got = mksknn.predict(X, y, X + 0.1, model)
    want = mksknn.predict(X, y, X + 0.1, best)
    np.testing.assert_allclose(got.mean, want.mean, rtol=1e-7)
    # E[1/sigma0] is (q + r s)/(n - 2), the best 1/sigma0 is (q + r s)/n
    np.testing.assert_allclose(got.variance, want.variance * 50 / 48, rtol=1e-6)


def test_two_points_say_nothing_of_the_scale():
    X, y = [[0.0], [1.0]], np.array([0.0, 1.0])
    model = mksknn.posterior(X, y)
    assert model.probability.tolist() == [1.0]
    got = mksknn.predict(X, y, [[0.2]], model)
    assert np.isfinite(got.mean).all() and np.isinf(got.variance).all()
    two_outputs = np.column_stack([y, [1.0, -1.0]])
    assert np.isfinite(
        mksknn.predict(X, two_outputs, [[0.2]], mksknn.posterior(X, two_outputs)).variance
    ).all()


def test_predict_takes_no_k_beside_a_posterior():
    X, y = make(20, 14)
    model = mksknn.posterior(X, y)
    for name, value in {"k": 3, "sigma0": 1.0, "sigma2": 1.0}.items():
        with pytest.raises(ValueError, match=f"^{name} must be left out with a Posterior"):
            mksknn.predict(X, y, X, model, **{name: value})
    with pytest.raises(ValueError, match="graph"):
        mksknn.predict(X, y, X, model, graph="mutual")
    with pytest.raises(ValueError, match="y must be of the kind"):
        mksknn.predict(X, X[:, 0], X, model)
    with pytest.raises(ValueError, match="model.k"):
        mksknn.predict(X[:4], ["yes", "no"] * 2, X, model)
    with pytest.raises(TypeError, match="^model must be a Selection"):
        mksknn.predict(X, y, X, {"k": 3})


# ---------------------------------------------------------------- leave-one-out weights


@pytest.mark.parametrize("graph", ["knn", "mutual", "symmetric"])
@pytest.mark.parametrize("kind", ["classes", "three", "values"])
def test_loo_weights(kind, graph):
    X, y = make(10, 15, kind)
    new = np.random.default_rng(2).normal(size=(6, 2))
    model = mksknn.posterior(X, y, weights="loo_log", graph=graph)
    _, weight, ratio = naive.loo_log_weights(X, y, graph=graph)
    np.testing.assert_allclose(model.probability, weight, rtol=1e-6)
    assert model.log_marginal is None and model.skipped_mass == 0.0
    curve = mksknn.loo_curve(X, y, graph=graph)
    np.testing.assert_array_equal(model.log_score, curve.log_score)
    assert model.at_bound.tolist() == np.isin(curve.ratio, (1e-6, 1e6)).tolist()
    got = mksknn.predict(X, y, new, model)
    if graph == "knn":  # the oracle's q is of a symmetric matrix: the mean of both directions
        Y, m, _ = naive.targets(y)
        parts = []
        for k, p, r in zip(model.k, weight, ratio, strict=True):
            sigma0 = naive.best_sigma0(naive.weights(X, k, "symmetric") / 2.0, Y, m, r)
            parts.append((k, np.array([r]), np.array([p]), np.array([1 / sigma0])))
        want = naive.mixture_predict(X, y, new, parts, graph, "nearest", "auto", True, "euclidean")
    else:
        want = naive.averaged_predict_loo(X, y, new, graph=graph)
    check_prediction(got, want, model.formulation, rtol=1e-4)


def test_loo_weights_with_given_ks():
    X, y = make(30, 16)
    found = mksknn.posterior(X, y, weights="loo_log", ks=[2, 7])
    curve = mksknn.loo_curve(X, y, graph="symmetric")
    scores = curve.log_score[[1, 6]]
    np.testing.assert_allclose(found.probability, np.exp(scores) / np.exp(scores).sum())
    assert found.mixture.ratio.tolist() == curve.ratio[[1, 6]].tolist()


# ---------------------------------------------------------------- graphs and metrics


@pytest.mark.parametrize("weights", ["evidence", "loo_log"])
def test_the_graph_and_the_metric_are_chosen_by_the_total(weights):
    X, y = make(40, 17)
    X[:, 1] *= 30.0  # so that the metrics differ
    metrics = ["euclidean", "manhattan", "chebyshev"]
    choice = mksknn.posterior(X, y, weights=weights, graph="auto", metric=metrics)
    each = {
        (graph, metric): mksknn.posterior(X, y, weights=weights, graph=graph, metric=metric)
        for graph in ("mutual", "symmetric")
        for metric in metrics
    }
    assert choice.compared == {key: one.log_total for key, one in each.items()}
    best = max(each, key=lambda key: each[key].log_total)
    assert (choice.graph, choice.metric) == best
    assert choice.log_total == each[best].log_total
    assert choice.probability.tolist() == each[best].probability.tolist()
    assert mksknn.predict(X, y, X, choice).label.shape == (40,)
    logs = choice.log_marginal if weights == "evidence" else choice.log_score
    logs = logs[~np.isnan(logs)]
    assert choice.log_total == pytest.approx(np.logaddexp.reduce(logs) - math.log(39), abs=1e-5)


@pytest.mark.parametrize("criterion", ["evidence", "loo", "loo_log"])
def test_select_k_chooses_the_graph_and_the_metric_too(criterion):
    X, y = make(40, 18)
    X[:, 1] *= 30.0
    metrics = ("euclidean", "manhattan")
    choice = mksknn.select_k(X, y, criterion=criterion, graph="auto", metric=metrics)
    scores = {}
    for graph in ("mutual", "symmetric"):
        for metric in metrics:
            one = mksknn.select_k(X, y, criterion=criterion, graph=graph, metric=metric)
            curve = mksknn.loo_curve(X, y, graph=graph, metric=metric)
            scores[graph, metric, one.k] = {
                "evidence": one.log_evidence,
                "loo": -curve.error.min(),
                "loo_log": curve.log_score.max(),
            }[criterion]
    assert scores[choice.graph, choice.metric, choice.k] == max(scores.values())
    assert mksknn.predict(X, y, X, choice).label.shape == (40,)


# ---------------------------------------------------------------- who does the work


@pytest.mark.parametrize("backend", ["lapack", "cholmod"])
def test_same_answer_whoever_works(backend):
    if backend == "cholmod":
        pytest.importorskip("sksparse")
    X, y = make(80, 19)
    options = {"backend": backend, "k_max": 30 if backend == "lapack" else 9}
    with limit_threads(1):
        want = mksknn.posterior(X, y, **options)
    with limit_threads(2):
        got = [mksknn.posterior(X, y, **options)]
    with ThreadPoolExecutor(3) as pool:
        got.append(mksknn.posterior(X, y, executor=pool, **options))
    with ProcessPoolExecutor(2) as pool:
        got.append(mksknn.posterior(X, y, executor=pool, **options))
    for one in got:
        np.testing.assert_array_equal(one.log_marginal, want.log_marginal)
        np.testing.assert_array_equal(one.mixture.weight, want.mixture.weight)
        assert one.skipped_mass == want.skipped_mass


def test_progress_is_silent_unless_asked_for(capsys):
    X, y = make(40, 20)
    mksknn.posterior(X, y)
    assert capsys.readouterr() == ("", "")
    pytest.importorskip("tqdm")
    mksknn.posterior(X, y, progress=True)
    assert "step" in capsys.readouterr().err


def test_inputs_are_left_alone_and_any_form_will_do():
    X, y = make(25, 21, "values")
    X.setflags(write=False)
    y.setflags(write=False)
    want = mksknn.posterior(X, y)
    for other in (np.asfortranarray(X), X.tolist()):
        np.testing.assert_array_equal(mksknn.posterior(other, y).probability, want.probability)


def test_center_is_remembered():
    X, y = make(25, 22, "values")
    model = mksknn.posterior(X, y + 10.0, center=False)
    assert not model.center
    far = mksknn.predict(X, y + 10.0, [[1e3, 1e3]], model, center=False).mean
    want = naive.averaged_predict(X, y + 10.0, [[1e3, 1e3]], center=False)["mean"]
    np.testing.assert_allclose(far, want, rtol=1e-6)


def test_repr_is_readable():
    X, y = make(25, 23)
    text = repr(mksknn.posterior(X, y))
    assert text.startswith("Posterior(symmetric, binary: k=1..24 (24 values), best_k=")
    assert "skipped_mass=" in text and "interval=(" in text and len(text) < 300
    with pytest.raises(AttributeError):
        mksknn.posterior(X, y).k = 3


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    "error, name, options",
    [
        (ValueError, "weights", {"weights": "loo"}),
        (TypeError, "weights", {"weights": None}),
        (ValueError, "graph", {"graph": "knn"}),
        (ValueError, "graph", {"graph": "both"}),
        (ValueError, "graph", {"graph": "both", "weights": "loo_log"}),
        (ValueError, "ratio_bounds", {"ratio_bounds": (5e-324, 1e308), "weights": "loo_log"}),
        (ValueError, "metric", {"metric": []}),
        (ValueError, "metric", {"metric": ["euclidean", "precomputed"]}),
        (ValueError, "metric", {"metric": ["euclid"]}),
        (TypeError, "metric", {"metric": [3]}),
        (ValueError, "metric", {"metric": "euclid"}),
        (ValueError, "max_skipped", {"max_skipped": -1e-9}),
        (ValueError, "max_skipped", {"max_skipped": 1.0}),
        (ValueError, "max_skipped", {"max_skipped": math.nan}),
        (TypeError, "max_skipped", {"max_skipped": "few"}),
        (TypeError, "max_skipped", {"max_skipped": True}),
        (ValueError, "ratio_bounds", {"ratio_bounds": (1.0, 0.1)}),
        (ValueError, "ks", {"ks": []}),
        (ValueError, "k_max", {"k_max": 12}),
        (TypeError, "executor", {"executor": 4}),
        (TypeError, "progress", {"progress": 1}),
        (ValueError, "backend", {"backend": "numpy"}),
        (ValueError, "backend", {"backend": "numpy", "weights": "loo_log"}),
    ],
)
def test_bad_arguments(error, name, options):
    X, y = make(12, 24)
    with pytest.raises(error, match=f"{name} must|^{name}"):
        mksknn.posterior(X, y, **options)


def test_bad_data():
    X, y = make(12, 25, "values")
    with pytest.raises(ValueError, match="y must vary"):
        mksknn.posterior(X, np.ones(12))
    with pytest.raises(ValueError, match="y must not be constant"):
        mksknn.posterior(X, np.ones(12), weights="loo_log")
    with pytest.raises(ValueError, match="X must be finite"):
        mksknn.posterior(X * np.nan, y)
    with pytest.raises(ValueError, match="formulation"):
        mksknn.posterior(X, y, formulation="I")


# ---------------------------------------------------------------- uncompiled


@pytest.mark.uncompiled
@pytest.mark.parametrize("kind", ["classes", "values"])
def test_tiny(kind):
    X, y = make(7, 26, kind)
    found = mksknn.posterior(X, y, max_skipped=0.0)
    _, probability, _ = naive.posterior(X, y, brute=False)
    np.testing.assert_allclose(found.probability, probability, rtol=1e-8)
    got = mksknn.predict(X, y, X[:2] + 0.1, found)
    want = naive.averaged_predict(X, y, X[:2] + 0.1)
    check_prediction(got, want, "binary")


@pytest.mark.uncompiled
def test_tiny_leave_one_out():
    X, y = make(7, 27)
    found = mksknn.posterior(X, y, weights="loo_log", graph="knn")
    _, weight, _ = naive.loo_log_weights(X, y, graph="knn")
    np.testing.assert_allclose(found.probability, weight, rtol=1e-6)


@pytest.mark.parametrize("backend", ["lapack", "superlu", "cholmod"])
@pytest.mark.parametrize("width", [0.0, 1e-13])
@pytest.mark.parametrize("kind", ["classes", "values"])
def test_bounds_that_are_nearly_one_ratio(kind, width, backend):
    if backend == "cholmod" and cholmod() is None:
        pytest.skip("scikit-sparse is not installed")
    X, y = make(60, kind=kind)
    bounds = 0.3, max(0.3 * (1.0 + width), math.nextafter(0.3, 1.0))
    options = {"ratio_bounds": bounds, "backend": backend}
    curve = mksknn.evidence_curve(X, y, ks=[3, 5, 8], **options)
    dense = mksknn.evidence_curve(X, y, ks=[3, 5, 8], **options | {"backend": "lapack"})
    np.testing.assert_allclose(curve.log_evidence, dense.log_evidence, rtol=1e-12)
    np.testing.assert_allclose(curve.sigma2, dense.sigma2, rtol=1e-12)
    assert curve.at_bound.all()
    best, found = mksknn.select_k(X, y, **options), mksknn.posterior(X, y, **options)
    assert best.certified and best.at_bound and best.k == found.best_k
    assert found.ratio_interval == pytest.approx((0.3, 0.3), rel=1e-9)
    # sigma0 integrated out at this ratio, for every k
    extra = problem_of(X, y).targets.sigma0_integral
    at = int(np.argmax(found.probability))
    assert found.log_marginal[at] == pytest.approx(best.log_evidence + extra, abs=1e-9)
