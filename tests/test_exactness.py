"""Exact must be exact: every route and every stopping rule against eigenvalues computed here.

The oracle takes the Laplacian of `naive` and its eigenvalues by NumPy, then maximises and
integrates the profile literally, in one dimension. Nothing of the library but its public functions
is used, so that no stopping rule can agree with itself. Eigenvalues are computed once for a graph;
the targets that are tried on it are found by an adversary, which mixes a smooth signal and noise at
the angles at which a search that trusts its model would be deceived.
"""

import dataclasses
import functools
import math
import warnings

import naive
import numpy as np
import pytest
import scipy.sparse
from scipy.optimize import brentq
from scipy.special import logsumexp

import mksknn
from mksknn import _race

try:
    import sksparse.cholmod  # noqa: F401
except ImportError:
    SPARSE = ("superlu",)
else:
    SPARSE = ("cholmod", "superlu")

BACKENDS = ("auto", *SPARSE)
BOUNDS = (1e-6, 1e6)
RELATIVE = 1e-9  # of the evidence
SIGMAS = 1e-6  # relative, of sigma0 and sigma2 where the peak is not flat
MARGINAL = 1e-8  # of log p(y | k), absolute
# A peak counts as flat where the profile bends by less than this for each of the m n numbers: the
# slope is a difference of terms of the size m n, and 1e-6 in log r has to show in its digits.
FLAT = 1e-5


@pytest.fixture(autouse=True)
def no_warnings():
    """Overflow and invalid values end a program that runs with -W error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


# ---------------------------------------------------------------- the oracle


@dataclasses.dataclass(frozen=True, eq=False)
class Graph:
    """One graph: its edges and the eigenvalues of its Laplacian."""

    i: np.ndarray
    j: np.ndarray
    w: np.ndarray
    lam: np.ndarray

    @property
    def degrees(self):
        return np.bincount(np.concatenate([self.i, self.j]), np.tile(self.w, 2), len(self.lam))

    def roughness(self, Y):
        return float(np.sum(self.w * np.sum((Y[self.i] - Y[self.j]) ** 2, axis=1)))


@functools.cache
def ranks(name):
    return naive.neighbors(POINTS[name]())[0]


@functools.cache
def graph_of(name, kind, k):
    W = naive.nested_weights(ranks(name), k, kind)
    i, j = np.nonzero(np.triu(W))
    return Graph(i, j, W[i, j], naive.spectrum(W))


@dataclasses.dataclass(frozen=True)
class Truth:
    """The evidence of one graph and one y, as a function of t = log r."""

    lam: np.ndarray
    q: float
    s: float
    m: int
    constant: float
    bounds: tuple

    def value(self, t):
        n, m, r = len(self.lam), self.m, np.exp(np.atleast_1d(t))
        logdet = np.log(self.lam + r[:, None]).sum(axis=1)
        inner = n * np.log(m * n / (self.q + r * self.s)) + logdet
        return 0.5 * m * (inner - n - n * math.log(2 * math.pi)) + self.constant

    def slope(self, t):
        """The derivative of `value`, in the form that keeps its digits where r is large."""
        r = math.exp(t)
        graph = len(self.lam) * self.q / (self.q + r * self.s)
        return 0.5 * self.m * (graph - float(np.sum(self.lam / (self.lam + r))))

    def bend(self, t):
        """Minus the second derivative of `value`."""
        r = math.exp(t)
        share = r * self.s / (self.q + r * self.s)
        p = r / (self.lam + r)
        return 0.5 * self.m * (len(self.lam) * share * (1 - share) - float(np.sum(p * (1 - p))))

    @functools.cached_property
    def peak(self):
        """log r of the highest value: a grid over the bounds, then the root of the slope."""
        low, high = (math.log(bound) for bound in self.bounds)
        grid = np.linspace(low, high, 401)
        best = int(np.argmax(self.value(grid)))
        left, right = grid[max(best - 1, 0)], grid[min(best + 1, 400)]
        if self.slope(left) <= 0:
            return left
        if self.slope(right) >= 0:
            return right
        return brentq(self.slope, left, right, xtol=1e-13, rtol=1e-14)

    @property
    def best(self):
        return float(self.value(self.peak)[0])

    @property
    def sigma0(self):
        return self.m * len(self.lam) / (self.q + math.exp(self.peak) * self.s)

    @property
    def flat(self):
        """At an end of the bounds, or too flat for its place to be known to 1e-6."""
        low, high = (math.log(bound) for bound in self.bounds)
        inside = low + 1e-6 < self.peak < high - 1e-6
        return not inside or self.bend(self.peak) < FLAT * self.m * len(self.lam)

    @property
    def log_marginal(self):
        """log p(y | k): the Gamma integral over sigma0, Gauss-Legendre panels over log r.

        Panels are halved until a rule of another order on the halves says the same.
        """
        a = 0.5 * self.m * len(self.lam)
        low, high = (math.log(bound) for bound in self.bounds)
        top = self.best
        edges = np.linspace(low, high, 101)
        left, right, total = edges[:-1], edges[1:], 0.0
        for _ in range(40):
            middle = 0.5 * (left + right)
            once = self._panels(left, right, 7, top)
            halves = self._panels(left, middle, 10, top) + self._panels(middle, right, 10, top)
            done = np.abs(once - halves) <= 1e-12 * (total + halves.sum()) / 100
            total += halves[done].sum()
            left, middle, right = left[~done], middle[~done], right[~done]
            left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
            if not len(left):
                return top + math.log(total / (high - low)) + math.lgamma(a) - a * math.log(a) + a
        raise AssertionError("the oracle's quadrature has not converged")

    def _panels(self, left, right, order, top):
        """The integral of exp(value - top) over each panel."""
        x, w = np.polynomial.legendre.leggauss(order)
        half = 0.5 * (right - left)[:, None]
        t = 0.5 * (right + left)[:, None] + half * x
        return (np.exp(self.value(t.ravel()) - top).reshape(t.shape) * half * w).sum(axis=1)


def truth(name, kind, k, y, bounds=BOUNDS):
    Y, m, constant = naive.targets(y)
    graph = graph_of(name, kind, k)
    return Truth(graph.lam, graph.roughness(Y), float(np.sum(Y**2)), m, constant, bounds)


def uniform(n, d, seed=0):
    return lambda: np.random.default_rng(seed).uniform(size=(n, d))


def clusters():
    rng = np.random.default_rng(5)
    return np.concatenate([rng.normal(size=(50, 2)) + (9 * a, 0) for a in range(6)])


def heavy_tails():
    return np.random.default_rng(6).standard_t(2, size=(240, 3))


POINTS = {
    "thirteen": uniform(13, 2, 1),
    "line": uniform(120, 1, 2),
    "heavy": heavy_tails,
    "clusters": clusters,
    "cube": uniform(650, 3, 3),
    "square": uniform(1000, 2),
    "noise": uniform(1000, 2, 14),
    "large": uniform(2000, 2, 4),
}


# ---------------------------------------------------------------- what is compared


def check_curve(curve, name, kind, y, bounds=BOUNDS):
    """Every value of a curve, the sigmas where they are determined, and the best k."""
    found = [truth(name, kind, k, y, bounds) for k in curve.k.tolist()]
    best = np.array([one.best for one in found])
    tolerance = RELATIVE * np.maximum(1.0, np.abs(best))
    np.testing.assert_array_less(np.abs(curve.log_evidence - best), tolerance)
    for a, one in enumerate(found):
        if not one.flat:
            assert curve.sigma0[a] == pytest.approx(one.sigma0, rel=SIGMAS)
            assert curve.sigma2[a] == pytest.approx(one.sigma0 * math.exp(one.peak), rel=SIGMAS)
        at_value = one.value(math.log(curve.sigma2[a] / curve.sigma0[a]))[0]
        assert abs(at_value - best[a]) <= tolerance[a]  # the ratio returned has this evidence
    check_best(curve.best_k, curve.k, best, tolerance)
    return best


def check_best(k, ks, best, tolerance):
    """The best k, or one of those that no rounding tells apart."""
    ks = ks.tolist()
    assert best[ks.index(k)] >= best.max() - 2 * tolerance.max()


def check_selection(chosen, name, kind, ks, y):
    found = [truth(name, kind, k, y) for k in ks]
    best = np.array([one.best for one in found])
    tolerance = RELATIVE * np.maximum(1.0, np.abs(best))
    check_best(chosen.k, np.asarray(ks), best, tolerance)
    assert abs(chosen.log_evidence - best.max()) <= tolerance.max()
    assert set(chosen.evaluated.tolist()) <= set(ks)
    if len(ks) > 1:
        rest = np.max(best[np.asarray(ks) != chosen.k])
        # the margin is proven, so that it can only be too small
        assert chosen.margin <= chosen.log_evidence - rest + 2 * tolerance.max()
    assert chosen.certified == (chosen.margin >= 0)


def check_posterior(found, name, kind, y, bounds=BOUNDS):
    logs = np.array([truth(name, kind, k, y, bounds).log_marginal for k in found.k.tolist()])
    known = ~np.isnan(found.log_marginal)
    np.testing.assert_allclose(found.log_marginal[known], logs[known], rtol=0, atol=MARGINAL)
    probability = np.exp(logs - logsumexp(logs))
    assert probability[~known].sum() <= found.skipped_mass + 1e-12
    np.testing.assert_allclose(
        found.probability, probability, rtol=0, atol=2 * MARGINAL + found.skipped_mass
    )


def test_the_oracle_agrees_with_the_other_one():
    """The oracle of this file against `naive`, which knows neither slopes nor the closed form."""
    X, y = POINTS["thirteen"](), np.random.default_rng(3).normal(size=13)
    for k in (1, 2, 5):
        for kind in ("mutual", "symmetric"):
            one = truth("thirteen", kind, k, y)
            value, sigma0, sigma2 = naive.optimum(X, y, k, kind)
            assert one.best == pytest.approx(value, abs=1e-8)
            Y, m, constant = naive.targets(y)
            W = naive.weights(X, k, kind)
            assert one.log_marginal == pytest.approx(
                naive.log_marginal(W, Y, m, constant), abs=1e-9
            )
            if not one.flat:
                assert one.sigma0 == pytest.approx(sigma0, rel=1e-4)


# ---------------------------------------------------------------- what was found by attack


def deceiving_targets():
    """The y that made select_k prove k = 9 where k = 10 is better by a tenth of a nat."""
    X = POINTS["square"]()
    rng = np.random.default_rng(10092)
    a, b, c = rng.uniform(1, 14, 3)
    f = np.sin(a * X[:, 0] + c) * np.cos(b * X[:, 1])
    u = rng.normal(size=1000)
    return math.cos(0.723588) * f + math.sin(0.723588) * u


def test_the_proof_that_was_false():
    X, y = POINTS["square"](), deceiving_targets()
    nine, ten = (truth("square", "symmetric", k, y).best for k in (9, 10))
    assert ten - nine == pytest.approx(0.0995, abs=1e-4)
    chosen = mksknn.select_k(X, y, k_max=10)
    assert chosen.k == 10
    assert chosen.certified
    assert chosen.log_evidence == pytest.approx(ten, rel=RELATIVE)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_curve_that_was_low(backend):
    y = deceiving_targets()
    curve = mksknn.evidence_curve(POINTS["square"](), y, ks=[8, 9, 10], backend=backend)
    check_curve(curve, "square", "symmetric", y)
    assert curve.best_k == 10


def test_the_posterior_of_noise():
    rng = np.random.default_rng(14)
    X = rng.uniform(size=(1000, 2))
    np.testing.assert_array_equal(X, POINTS["noise"]())
    y = rng.normal(size=1000)
    found = mksknn.posterior(X, y, k_max=4, graph="mutual")
    np.testing.assert_allclose(found.probability, [0.2087, 0.1982, 0.2362, 0.3568], atol=5e-5)
    check_posterior(found, "noise", "mutual", y)


@pytest.mark.parametrize("backend", ["lapack", *SPARSE])
@pytest.mark.parametrize("ends", [1e60, 1e100])
@pytest.mark.parametrize("name", ["thirteen", "line"])
def test_the_posterior_within_wide_bounds(name, ends, backend):
    """A plateau of hundreds of units of log r beside a peak of less than one."""
    X, bounds = POINTS[name](), (1 / ends, ends)
    rng = np.random.default_rng(8)
    noise = rng.normal(size=len(X))
    clean = (X[:, 0] > np.median(X[:, 0])).astype(int)
    options = {"ks": [2, 5, 9], "ratio_bounds": bounds, "max_skipped": 0, "backend": backend}
    for y in (noise, np.sin(9 * X[:, 0]) + 0.3 * noise, rng.integers(0, 2, len(X)), clean):
        check_posterior(mksknn.posterior(X, y, **options), name, "symmetric", y, bounds)


# ---------------------------------------------------------------- the adversary


def mixing(X, seed):
    """Targets as a function of an angle: a smooth signal at 0, noise at a right angle."""
    rng = np.random.default_rng(seed)
    frequency = rng.uniform(1, 14, X.shape[1]) / np.ptp(X, axis=0)
    smooth = np.prod(np.sin(frequency * X + rng.uniform(0, 6, X.shape[1])), axis=1)
    smooth -= smooth.mean()
    noise = rng.normal(size=len(X))
    noise -= noise.mean()
    return lambda angle: math.cos(angle) * smooth + math.sin(angle) * noise


def polynomial(nodes, values, t):
    """The polynomial through the nodes at t, by Lagrange's formula."""
    out = 0.0
    for a, node in enumerate(nodes):
        others = np.delete(nodes, a)
        out = out + values[a] * np.prod([(t - other) / (node - other) for other in others], axis=0)
    return out


def early_model_error(one, degrees, start, step, order):
    """How wrong an interpolating search would be at the peak that its first model foretells.

    It walks uphill from `start` by growing steps until it has passed the peak, and puts a
    polynomial of log|L + r I| through the last values. Where this error is zero the model has
    foretold a value by luck, and whoever takes that for a proof stops beside the peak. Returns the
    error and the log r foretold.
    """
    low, high = (math.log(bound) for bound in one.bounds)
    if start == "degrees":
        start = last_rise_by_degrees(one, degrees)
    start = min(max(start, low), high - step)
    nodes = [start, start + step]
    height = one.value(nodes).tolist()
    up = 1 if height[1] > height[0] else -1
    if up < 0:
        nodes, height = nodes[::-1], height[::-1]
    while height[-1] > height[-2] or len(nodes) == 2:
        step = min(2 * step, 3.0)
        nodes.append(min(max(nodes[-1] + up * step, low), high))
        if nodes[-1] == nodes[-2]:  # no peak but an end
            return math.nan, math.nan
        height.append(float(one.value(nodes[-1])[0]))
    nodes = np.array(nodes[-order:])
    logdet = np.log(one.lam + np.exp(nodes)[:, None]).sum(axis=1)
    left, right = nodes.min(), nodes.max()
    for _ in range(6):
        grid = np.linspace(left, right, 65)
        offset = len(one.lam) * np.log(one.q + np.exp(grid) * one.s)
        model = polynomial(nodes, logdet, grid)
        best = int(np.argmax(model - offset))
        left, right = grid[max(best - 1, 0)], grid[min(best + 1, 64)]
    error = model[best] - np.log(one.lam + math.exp(grid[best])).sum()
    return float(error), float(grid[best])


def last_rise_by_degrees(one, degrees):
    """The last of 200 log r at which the degrees alone show that the profile still rises."""
    grid = np.linspace(*(math.log(bound) for bound in one.bounds), 200)
    r = np.exp(grid)
    rise = len(degrees) * one.q / (one.q + r * one.s)
    rise -= (degrees / (degrees + r[:, None])).sum(axis=1)
    rising = np.flatnonzero(rise > 0)
    return float(grid[rising[-1]]) if len(rising) else math.log(degrees.mean()) - 6


def lucky_angles(name, kind, k, y_of, start, step, order):
    """The angles at which that error changes its sign away from the peak, found by bisection."""
    degrees = graph_of(name, kind, k).degrees

    def error(angle):
        return early_model_error(truth(name, kind, k, y_of(angle)), degrees, start, step, order)

    angles = np.linspace(0.03, 1.5, 40)
    missed = [error(angle)[0] for angle in angles]
    found = []
    for left, right, a, b in zip(angles, angles[1:], missed, missed[1:], strict=False):
        if not (a * b < 0):
            continue
        for _ in range(40):
            middle = 0.5 * (left + right)
            here = error(middle)[0]
            if not math.isfinite(here):
                break
            left, right = (middle, right) if here * a > 0 else (left, middle)
        size, t = error(left)
        off = abs(t - truth(name, kind, k, y_of(left)).peak)
        if abs(size) < 1e-6 and off > 1e-3:  # a root, not a jump, and not at the peak itself
            found.append(left)
    return found


def peak_angles(name, kind, k, y_of, places):
    """The angles at which the peak lies at given log r: values there are the highest at once."""

    def slope(angle, t):
        return truth(name, kind, k, y_of(angle)).slope(t)

    found = []
    for t in places:
        if slope(0.02, t) * slope(1.5, t) < 0:
            found.append(brentq(slope, 0.02, 1.5, args=(t,), xtol=1e-12))
    return found


def attacks(name, kind, k, seed, budget):
    """Targets that an early stop would be deceived by, `budget` of them."""
    found = []
    middle = math.log(graph_of(name, kind, k).degrees.mean())
    rng = np.random.default_rng(seed)
    for signal in range(10):
        y_of = mixing(POINTS[name](), 100 * seed + signal)
        # the starts that the library was caught with, the middle of the bounds, and any other
        starts = [(middle - 6, 2.0, 4), ("degrees", 1.0, 3), (middle - 6, 2.0, 5)]
        starts += [(0.0, 1.0, 3), ("degrees", 1.0, 4), (middle - 6, 2.0, 3)]
        starts += [(rng.uniform(-5, 2), rng.choice([0.2, 1.0, 2.0]), int(rng.integers(3, 6)))]
        angles = [a for start in starts for a in lucky_angles(name, kind, k, y_of, *start)]
        angles += peak_angles(name, kind, k, y_of, [0.0, middle - 6, middle - 2])
        found += [y_of(angle) for angle in dict.fromkeys(np.round(angles, 9).tolist())]
        if len(found) >= budget:
            return found[:budget]
    raise AssertionError(f"only {len(found)} of {budget} attacks found")


ATTACKED = [
    ("thirteen", "symmetric", 3),
    ("thirteen", "mutual", 4),
    ("line", "symmetric", 4),
    ("line", "mutual", 7),
    ("heavy", "symmetric", 6),
    ("clusters", "mutual", 9),
    ("cube", "symmetric", 5),
    ("square", "symmetric", 10),
    ("square", "mutual", 8),
    ("large", "symmetric", 7),
]


@pytest.mark.parametrize(("name", "kind", "k"), ATTACKED)
def test_no_luck_deceives_a_search(name, kind, k):
    """A search from nothing: the only k asked for."""
    X = POINTS[name]()
    for a, y in enumerate(attacks(name, kind, k, seed=k, budget=8 if len(X) < 600 else 4)):
        backend = BACKENDS[a % len(BACKENDS)] if len(X) >= 600 else SPARSE[a % len(SPARSE)]
        curve = mksknn.evidence_curve(X, y, graph=kind, ks=[k], backend=backend)
        check_curve(curve, name, kind, y)


@pytest.mark.parametrize(
    ("name", "kind", "ks"),
    [
        ("thirteen", "symmetric", (2, 3, 4, 5)),
        ("line", "mutual", (5, 6, 7)),
        ("clusters", "symmetric", (4, 5, 8)),
        ("cube", "mutual", (6, 7, 8)),
        ("square", "symmetric", (8, 9, 10)),
    ],
)
def test_no_luck_deceives_a_selection_or_a_posterior(name, kind, ks):
    """Searches that begin at a neighbour's peak, that race, and that are integrated."""
    X = POINTS[name]()
    for a, y in enumerate(attacks(name, kind, ks[-1], seed=10 + ks[-1], budget=3)):
        backend = "auto" if len(X) >= 600 else SPARSE[a % len(SPARSE)]
        options = {"graph": kind, "ks": ks, "backend": backend}
        check_curve(mksknn.evidence_curve(X, y, **options), name, kind, y)
        check_selection(mksknn.select_k(X, y, **options), name, kind, ks, y)
        check_posterior(mksknn.posterior(X, y, **options), name, kind, y)


# ---------------------------------------------------------------- noise


def noise_targets(n, seed):
    """Values and labels that no graph explains, and values on a heavy-tailed scale."""
    rng = np.random.default_rng(seed)
    return {
        "values": rng.normal(size=n),
        "tails": rng.standard_t(2, size=n),
        "two labels": rng.integers(0, 2, n),
        "four labels": rng.integers(0, 4, n),
        "one odd label": (np.arange(n) == n // 2).astype(int),
    }


@pytest.mark.parametrize("kind", ["mutual", "symmetric"])
@pytest.mark.parametrize("name", ["clusters", "cube", "noise"])
def test_noise_on_sparse_graphs(name, kind):
    X, ks = POINTS[name](), (1, 2, 3, 4)
    for seed in (0, 1) if len(X) < 600 else (0,):
        for a, y in enumerate(noise_targets(len(X), seed).values()):
            backend = "auto" if len(X) >= 600 else SPARSE[a % len(SPARSE)]
            options = {"graph": kind, "ks": ks, "backend": backend}
            check_curve(mksknn.evidence_curve(X, y, **options), name, kind, y)
            check_selection(mksknn.select_k(X, y, **options), name, kind, ks, y)
            check_posterior(mksknn.posterior(X, y, max_skipped=0.0, **options), name, kind, y)


# ---------------------------------------------------------------- what a selection says of itself


def test_margin_and_certificate():
    """On dense and sparse routes the margin is a number that the curve confirms."""
    data = mksknn.datasets.load_new_thyroid()
    for options in (
        {"k_max": 30},
        {"k_max": 30, "graph": "mutual"},
        {"k_max": 8, "backend": "superlu"},
    ):
        chosen = mksknn.select_k(data.X, data.y, **options)
        curve = mksknn.evidence_curve(data.X, data.y, **options)
        rest = curve.log_evidence[curve.k != chosen.k].max()
        assert chosen.k == curve.best_k
        assert chosen.certified
        assert 0 <= chosen.margin <= chosen.log_evidence - rest + 1e-9 * abs(rest)
        assert set(chosen.evaluated.tolist()) <= set(curve.k.tolist())
        assert chosen.k in chosen.evaluated


def equal_lists(n=7):
    """Lists found elsewhere whose mutual graphs of k = 1, 2 and 3 are one: nobody is joined.

    Of points there are none: the closest pair that graph k lacks is in graph k + 1.
    """
    return mksknn.as_neighbors((np.arange(n)[:, None] + np.arange(1, n)) % n)


def test_equal_graphs_draw_and_the_smallest_wins():
    """k with the same mutual graph: none is better, and that is proven."""
    lists, y = equal_lists(), np.sin(np.arange(7.0)) + 0.1 * np.cos(np.arange(7.0) ** 2)
    for k in (1, 2):
        same = [mksknn.knn_graph(lists, one, graph="mutual").toarray() for one in (k, k + 1)]
        np.testing.assert_array_equal(*same)
        for backend in BACKENDS:
            chosen = mksknn.select_k(lists, y, graph="mutual", ks=[k, k + 1], backend=backend)
            assert chosen.k == k
            assert chosen.certified
            assert chosen.margin == 0


@pytest.mark.parametrize("max_skipped", [0.0, 1e-6])
def test_equal_graphs_are_equally_probable(max_skipped):
    lists, y = equal_lists(), np.sin(np.arange(7.0)) + 0.1 * np.cos(np.arange(7.0) ** 2)
    found = mksknn.posterior(lists, y, graph="mutual", max_skipped=max_skipped)
    assert found.log_marginal[0] == found.log_marginal[1] == found.log_marginal[2]
    assert found.probability[0] == found.probability[1] == found.probability[2] > 0.2
    assert found.probability.sum() == pytest.approx(1.0, abs=1e-14)


def test_a_single_candidate_is_proven():
    X = np.repeat(np.arange(4.0)[:, None] * 100, 2, axis=0)
    y = np.array([0.0, 0.1, 1.0, 1.1, 0.2, 0.3, 2.0, 2.2])
    chosen = mksknn.select_k(X, y, graph="mutual", ks=[1])
    assert chosen.certified
    assert chosen.margin > 0


def test_at_k_max():
    data = mksknn.datasets.load_new_thyroid()
    assert mksknn.select_k(data.X, data.y, k_max=2).at_k_max
    assert not mksknn.select_k(data.X, data.y, k_max=30).at_k_max
    X = np.array([[0.0], [1.0], [3.0], [7.0]])
    everything = mksknn.select_k(X, [0.0, 1.0, 0.0, 2.0], k_max=3)
    assert not everything.at_k_max  # k = n - 1 has no larger one


def test_compared_lists_every_candidate():
    data = mksknn.datasets.load_new_thyroid()
    metrics = ("euclidean", "manhattan")
    chosen = mksknn.select_k(data.X, data.y, graph="auto", metric=metrics, k_max=10)
    assert set(chosen.compared) == {(g, m) for g in ("mutual", "symmetric") for m in metrics}
    for (graph, metric), value in chosen.compared.items():
        curve = mksknn.evidence_curve(data.X, data.y, graph=graph, metric=metric, k_max=10)
        assert value == pytest.approx(curve.log_evidence.max(), rel=RELATIVE)
    assert chosen.compared[chosen.graph, chosen.metric] == max(chosen.compared.values())
    alone = mksknn.select_k(data.X, data.y, k_max=10)
    assert alone.compared == {("symmetric", "euclidean"): alone.log_evidence}


# ---------------------------------------------------------------- certificates that fail


class Wrong:
    """scikit-sparse 0.5 on a dense matrix, whose determinants are off."""

    CholmodNotPositiveDefiniteError = np.linalg.LinAlgError

    def __init__(self, off):
        self.off = off

    def CholeskyFactor(self, A, *, lower, order):
        return WrongFactor(A, self.off)


class WrongFactor:
    def __init__(self, A, off):
        self._n, self._off = A.shape[0], off

    def factorize(self, A, *, beta=0.0):
        half = np.tril(A.toarray())
        self._full = half + np.tril(half, -1).T + beta * np.eye(self._n)

    def logdet(self):
        return float(np.linalg.slogdet(self._full)[1]) + self._off()

    def solve(self, b):
        return np.linalg.solve(self._full, b)

    def get_perm(self):
        return np.arange(self._n)

    @property
    def factor(self):
        lower = np.linalg.cholesky(self._full)
        places = scipy.sparse.csc_matrix(np.tril(np.ones_like(lower)))
        places.data = lower.T[np.triu_indices(self._n)].copy()
        return places


@pytest.mark.parametrize("off", ["nothing", "too high", "noise"])
def test_a_wrong_backend_is_not_certified(off, scikit_sparse):
    """Values above their proven bounds, or that no spectrum can give: no certificate."""
    X = POINTS["heavy"]()[:80]
    y = np.sin(X[:, 0]) + 0.3 * np.random.default_rng(0).normal(size=80)
    rng = np.random.default_rng(1)
    errors = {"nothing": lambda: 0.0, "too high": lambda: 200.0, "noise": rng.normal}
    scikit_sparse(Wrong(errors[off]))
    chosen = mksknn.select_k(X, y, ks=[2, 3, 5], backend="cholmod")
    assert chosen.certified == (off == "nothing")
    if off == "nothing":
        assert chosen.k == mksknn.select_k(X, y, ks=[2, 3, 5], backend="lapack").k


def test_a_wrong_bound_is_not_certified(monkeypatch):
    """A bound that rules out too much is seen where a value lies above it."""
    data = mksknn.datasets.load_new_thyroid()
    assert mksknn.select_k(data.X, data.y, k_max=12).certified
    bound = _race.local_bound
    monkeypatch.setattr(_race, "local_bound", lambda *one: bound(*one) - 200.0)
    assert not mksknn.select_k(data.X, data.y, k_max=12).certified


def test_the_margin_of_one_k_is_infinite():
    data = mksknn.datasets.load_new_thyroid()
    assert mksknn.select_k(data.X, data.y, ks=[3]).margin == math.inf


@pytest.mark.parametrize("criterion", ["loo", "loo_log"])
def test_what_leave_one_out_says_of_itself(criterion):
    data = mksknn.datasets.load_new_thyroid()
    curve = mksknn.loo_curve(data.X, data.y, graph="symmetric", k_max=20)
    scores = -curve.error if criterion == "loo" else curve.log_score
    chosen = mksknn.select_k(data.X, data.y, criterion=criterion, k_max=20)
    best = int(np.argmax(scores))
    assert chosen.k == curve.k[best]
    assert chosen.margin == scores[best] - np.delete(scores, best).max()
    assert chosen.evaluated.tolist() == list(range(1, 21))
    assert chosen.compared == {("symmetric", "euclidean"): scores[best]}
    assert mksknn.select_k(data.X, data.y, criterion=criterion, ks=[1]).at_k_max
