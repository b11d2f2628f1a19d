"""Self-tests of the oracle: closed forms, the paper's literal definitions, the design's claims."""

import math

import naive
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.spatial.distance import cdist
from scipy.stats import norm
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from threadpoolctl import threadpool_limits

GRAPHS = ("mutual", "symmetric")
ALL_GRAPHS = ("knn", "mutual", "symmetric")


@pytest.fixture(autouse=True)
def one_blas_thread():
    """On matrices this small BLAS threads only wait for each other."""
    with threadpool_limits(1):
        yield


def blobs(n=18, J=3, d=2, seed=0, spread=0.8):
    """Points around J centres, every class present, labels 0..J-1."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % J
    centres = rng.normal(size=(J, d))
    return centres[y] + spread * rng.normal(size=(n, d)), y


def lattice(side=5):
    """Integer points of a square: ties everywhere."""
    return np.array([(a, b) for a in range(side) for b in range(side)], dtype=float)


def wave(n=20, outputs=1, seed=3):
    """Regression values on random points; one output is a vector."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 2))
    Y = np.sin(X @ rng.normal(size=(2, outputs))) + 0.2 * rng.normal(size=(n, outputs)) + 3.0
    return X, Y[:, 0] if outputs == 1 else Y


# ---------------------------------------------------------------- distances, ranks, graphs


@pytest.mark.parametrize(
    ("ours", "scipys"),
    [("euclidean",) * 2, ("manhattan", "cityblock"), ("chebyshev",) * 2, ("cosine",) * 2],
)
def test_distances_match_scipy(ours, scipys):
    X, _ = blobs(n=12, d=4)
    new, _ = blobs(n=5, d=4, seed=9)
    np.testing.assert_allclose(naive.distance_matrix(X, ours), cdist(X, X, scipys), atol=1e-14)
    np.testing.assert_allclose(naive.cross_distances(new, X, ours), cdist(new, X, scipys))


def test_cosine_distance_of_duplicates_is_zero_only_to_rounding():
    """1 - a.a / (|a| |a|) is ulps off zero, cut off below it: a duplicate need not rank first."""
    X = np.random.default_rng(0).normal(size=(200, 3))
    itself = np.array([naive.distance(x, x, "cosine") for x in X])
    assert itself.min() == 0 < itself.max() < 1e-15


def test_neighbors_match_sklearn_without_ties():
    X, _ = blobs(n=30)
    distances, indices = NearestNeighbors(n_neighbors=7).fit(X).kneighbors()
    ours = naive.neighbors(X, 7)
    np.testing.assert_array_equal(ours[0], indices)
    np.testing.assert_allclose(ours[1], distances)


def test_ties_go_to_the_lower_index_and_duplicates_are_neighbours():
    X = np.array([[1.0], [0.0], [1.0], [2.0], [1.0]])
    indices, distances = naive.neighbors(X)
    np.testing.assert_array_equal(indices[0], [2, 4, 1, 3])
    np.testing.assert_array_equal(indices[2], [0, 4, 1, 3])
    np.testing.assert_array_equal(indices[1], [0, 2, 4, 3])
    np.testing.assert_array_equal(distances[2], [0, 0, 1, 1])


def test_new_point_is_last_in_ties():
    D = naive.distance_matrix([[0.0], [1.0], [2.0]])
    assert not naive.adopts(D, 1, 1.0, 2)
    assert naive.adopts(D, 1, 1.0, 3)
    assert naive.adopts(D, 1, 0.5, 1)
    assert naive.query_rank(D, 1, 1.0) == 3
    d = naive.cross_distances([[0.5]], [[0.0], [1.0], [2.0]])[0]
    assert naive.query_ranking(d) == [0, 1, 2]
    np.testing.assert_array_equal(naive.query_weights(D, d, 1, "knn"), [1, 0, 0])
    np.testing.assert_array_equal(naive.query_weights(D, d, 1, "mutual"), [1, 0, 0])
    np.testing.assert_array_equal(naive.query_weights(D, d, 1, "symmetric"), [2, 1, 0])


@pytest.mark.parametrize("X", [blobs(n=12)[0], lattice(3), np.zeros((6, 2))])
def test_graphs_are_nested_and_laplacians_valid(X):
    n = len(X)
    for graph in GRAPHS:
        before = np.zeros((n, n), dtype=int)
        for k in range(1, n):
            W = naive.weights(X, k, graph)
            assert np.all(W == W.T) and np.all(np.diag(W) == 0) and np.all(W >= before)
            assert W.any()  # even k = 1 has a mutual pair, whatever the ties
            L = naive.laplacian(W)
            np.testing.assert_array_equal(L.sum(axis=1), 0)
            eigenvalues = np.linalg.eigvalsh(L)
            assert eigenvalues[0] > -1e-10
            assert np.sum(eigenvalues < 1e-9) == naive.n_components(W)
            before = W


# ---------------------------------------------------------------- determinants in closed form


@pytest.mark.parametrize("r", [1e-6, 1e-2, 1.0, 1e6])
@pytest.mark.parametrize(("graph", "w"), [("mutual", 1), ("symmetric", 2)])
def test_complete_graph(r, graph, w):
    """k = n-1 joins all pairs: the eigenvalues of L are 0 once and w n otherwise."""
    n = 9
    W = naive.weights(blobs(n=n)[0], n - 1, graph)
    exact = math.log(r) + (n - 1) * math.log(w * n + r)
    assert np.sum(np.log(naive.spectrum(W) + r)) == pytest.approx(exact, rel=1e-12)
    assert naive.logdet(naive.laplacian(W), r) == pytest.approx(exact, abs=1e-8)
    assert float(naive.logdet_mpmath(naive.laplacian(W), r)) == pytest.approx(exact, rel=1e-14)


def test_path_graph():
    """Equally spaced points at mutual k = 2 form a path: eigenvalues 2 - 2 cos(pi j / n)."""
    n, r = 11, 0.3
    W = naive.weights(np.arange(n)[:, None], 2, "mutual")
    np.testing.assert_array_equal(W, np.eye(n, k=1) + np.eye(n, k=-1))
    eigenvalues = 2 - 2 * np.cos(np.pi * np.arange(n) / n)
    np.testing.assert_allclose(naive.spectrum(W), eigenvalues, atol=1e-13)
    exact = np.sum(np.log(eigenvalues + r))
    assert naive.logdet(naive.laplacian(W), r) == pytest.approx(exact, rel=1e-13)


@pytest.mark.parametrize("r", [1e-6, 1e-3, 1.0, 1e6])
def test_spectrum_agrees_with_fifty_digits_and_plain_factorization_loses_eps_over_r(r):
    X = blobs(n=24)[0]
    for k in (2, 23):
        W = naive.weights(X, k, "symmetric")
        L = naive.laplacian(W)
        exact = float(naive.logdet_mpmath(L, r))
        assert np.sum(np.log(naive.spectrum(W) + r)) == pytest.approx(exact, abs=1e-11)
        loss = 50 * np.finfo(float).eps * L.max() / r
        assert naive.logdet(L, r) == pytest.approx(exact, abs=loss + 1e-11)


# ---------------------------------------------------------------- the three formulations


@pytest.mark.parametrize("J", [2, 3, 4, 5])
@pytest.mark.parametrize("graph", GRAPHS)
def test_literal_covariances_collapse(J, graph):
    X, y = blobs(n=14, J=J, seed=J)
    for k, sigma0, sigma2 in [(1, 2.0, 0.3), (4, 0.7, 0.05), (13, 30.0, 4.0)]:
        collapsed = naive.log_evidence(X, y, k, sigma0, sigma2, graph, "II")
        literal = naive.log_evidence_literal_II(X, y, k, sigma0, sigma2, graph)
        assert collapsed == pytest.approx(literal, rel=1e-9)
        collapsed = naive.log_evidence(X, y, k, sigma0, sigma2, graph, "I")
        literal = naive.log_evidence_literal_I(X, y, k, sigma0, sigma2, graph)
        assert collapsed == pytest.approx(literal, rel=1e-9)


@pytest.mark.parametrize("graph", GRAPHS)
def test_two_classes_in_II_are_binary_at_half_the_sigmas(graph):
    X, y = blobs(n=16, J=2)
    for k in (1, 5, 15):
        two = naive.log_evidence(X, y, k, 3.0, 0.4, graph, "II")
        assert two == pytest.approx(naive.log_evidence(X, y, k, 1.5, 0.2, graph, "binary"))
        a = naive.optimum(X, y, k, graph, "II")
        b = naive.optimum(X, y, k, graph, "binary")
        assert a[0] == pytest.approx(b[0], abs=1e-9)
        assert a[2] / a[1] == pytest.approx(b[2] / b[1], rel=1e-4)


def test_difference_targets_of_II():
    """U = onehot - 1/J has all its differences equal to one, and |U|^2 = n (1 - 1/J)."""
    _, y = blobs(n=9, J=4)
    U, m, constant = naive.targets(y, "II")
    for i, j in naive.difference_names(y, 4):
        assert U[i, y[i]] - U[i, j] == pytest.approx(1.0)
    assert m == 3
    assert np.sum(U**2) == pytest.approx(9 * (1 - 1 / 4))
    assert constant == pytest.approx(-4.5 * math.log(4))


def test_targets_table():
    Y, m, constant = naive.targets(np.array(["b", "a", "b"]))
    assert Y.tolist() == [[1], [-1], [1]] and m == 1 and constant == 0
    Y, m, _ = naive.targets([True, False, True], "I")
    assert Y.tolist() == [[0, 1], [1, 0], [0, 1]] and m == 2
    Y, m, _ = naive.targets([[1.0, 2.0], [3.0, 6.0]])
    assert Y.tolist() == [[-1, -2], [1, 2]] and m == 2
    assert naive.targets([1, 3], task="regression", center=False)[0].tolist() == [[1], [3]]
    assert naive.resolve_formulation([0, 1, 2]) == "II"


def problems():
    """(name, X, y, formulation) over every kind of target."""
    X, y = blobs(n=18, J=3, seed=1)
    yield "I", X, y, "I"
    yield "II", X, y, "II"
    yield "binary", X, y == 0, "binary"
    X, y = wave(n=18)
    yield "regression", X, y, "auto"
    X, y = wave(n=18, outputs=3)
    yield "three outputs", X, y, "auto"


PROBLEMS = [pytest.param(*p[1:], id=p[0]) for p in problems()]


@pytest.mark.parametrize(("X", "y", "formulation"), PROBLEMS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_evidence_is_concave_in_both_sigmas(X, y, formulation, graph):
    rng = np.random.default_rng(5)

    def f(sigmas):
        return naive.log_evidence(X, y, 4, *sigmas, graph=graph, formulation=formulation)

    for _ in range(20):
        a, b = np.exp(rng.uniform(-4, 4, size=(2, 2)))
        h = rng.uniform(0.05, 0.95)
        assert f(h * a + (1 - h) * b) >= h * f(a) + (1 - h) * f(b) - 1e-9


@pytest.mark.parametrize(("X", "y", "formulation"), PROBLEMS)
def test_gradient_is_the_papers(X, y, formulation):
    """dL/dtheta = m/2 tr(P^-1 dP) - 1/2 tr(Y' dP Y), dP = L or I."""
    sigma0, sigma2 = 1.3, 0.2
    Y, m, _ = naive.targets(y, formulation)
    L = naive.laplacian(naive.weights(X, 3, "symmetric"))
    inverse = np.linalg.inv(sigma0 * L + sigma2 * np.eye(len(L)))
    exact = [
        0.5 * m * np.trace(inverse @ dP) - 0.5 * np.trace(Y.T @ dP @ Y)
        for dP in (L, np.eye(len(L)))
    ]
    ours = naive.gradient(X, y, 3, sigma0, sigma2, formulation=formulation)
    np.testing.assert_allclose(ours, exact, rtol=1e-8)


# ---------------------------------------------------------------- section 2


@pytest.mark.parametrize(("X", "y", "formulation"), PROBLEMS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_profile_is_the_evidence_at_the_best_sigma0(X, y, formulation, graph):
    Y, m, constant = naive.targets(y, formulation)
    W = naive.weights(X, 5, graph)
    for r in (1e-3, 0.5, 40.0):
        sigma0 = naive.best_sigma0(W, Y, m, r)
        value = naive.profile(W, Y, m, constant, r)
        at_best = naive.log_evidence_from_graph(W, Y, m, constant, sigma0, r * sigma0)
        assert value == pytest.approx(at_best, rel=1e-10)
        searched = minimize_scalar(
            lambda u, r=r: (
                -naive.log_evidence_from_graph(W, Y, m, constant, math.exp(u), r * math.exp(u))
            ),
            bracket=(math.log(sigma0) - 1, math.log(sigma0) + 1.5),
        )
        assert -searched.fun == pytest.approx(value, rel=1e-10)


@pytest.mark.parametrize(("X", "y", "formulation"), PROBLEMS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_optimum_is_the_top_of_a_unimodal_profile(X, y, formulation, graph):
    Y, m, constant = naive.targets(y, formulation)
    for k in (1, 4, 17):
        W = naive.weights(X, k, graph)
        value, sigma0, sigma2 = naive.optimum(X, y, k, graph, formulation)
        grid = np.exp(np.linspace(math.log(1e-6), math.log(1e6), 241))
        heights = np.array([naive.profile(W, Y, m, constant, r) for r in grid])
        assert np.all(heights <= value + 1e-9)
        assert value == pytest.approx(naive.profile(W, Y, m, constant, sigma2 / sigma0), abs=1e-9)
        top = int(np.argmax(heights))
        assert np.all(np.diff(heights[: top + 1]) > -1e-9)
        assert np.all(np.diff(heights[top:]) < 1e-9)
        lam, r = naive.spectrum(W), sigma2 / sigma0
        q, s = naive.roughness(W, Y), np.sum(Y**2)
        if not naive.at_bound(sigma0, sigma2):
            left, right = np.sum(1 / (lam + r)) / s, np.sum(lam / (lam + r)) / q
            assert left == pytest.approx(right, rel=1e-4)
        if q / s >= lam.sum() / len(W):
            assert r == pytest.approx(1e6, rel=1e-3)


def test_pure_clusters_go_to_the_lower_end_and_rough_labels_to_the_upper():
    X = np.concatenate([np.linspace(0, 1, 8), np.linspace(50, 51, 8)])[:, None]
    pure = np.repeat([0, 1], 8)
    W = naive.weights(X, 3, "mutual")
    assert naive.roughness(W, naive.targets(pure)[0]) == 0
    value, sigma0, sigma2 = naive.optimum(X, pure, 3, "mutual")
    assert np.isfinite(value) and sigma2 / sigma0 == pytest.approx(1e-6)
    rough = np.tile([0, 1], 8)
    value, sigma0, sigma2 = naive.optimum(X, rough, 2, "mutual")
    assert np.isfinite(value) and sigma2 / sigma0 == pytest.approx(1e6)


def test_constant_regression_targets_leave_sigma0_unbounded():
    """Not in the design: s = q = 0 after centring, so no ratio bound keeps the evidence finite."""
    X, _ = wave(n=10)
    y = np.full(10, 2.5)
    Y, m, _ = naive.targets(y)
    assert (
        naive.roughness(naive.weights(X, 3, "symmetric"), Y) == 0 and np.sum(Y**2) == 0 and m == 1
    )
    values = [naive.log_evidence(X, y, 3, sigma0, sigma0) for sigma0 in (1.0, 1e6, 1e12)]
    np.testing.assert_allclose(np.diff(values), 5 * math.log(1e6), rtol=1e-9)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
def test_curve_and_best_k(graph, metric):
    X, y = blobs(n=12)
    ks, value, sigma0, sigma2 = naive.evidence_curve(X, y, metric=metric, graph=graph)
    assert ks.tolist() == list(range(1, 12))
    for a in (0, 6):
        direct = naive.log_evidence(X, y, ks[a], sigma0[a], sigma2[a], graph, metric=metric)
        assert value[a] == pytest.approx(direct, abs=1e-6)
    assert naive.best_k(X, y, metric=metric, graph=graph) == ks[np.argmax(value)]
    fixed = naive.evidence_curve(X, y, [2, 5], metric, 1.0, 0.1, graph=graph)
    assert fixed[1][1] == pytest.approx(naive.log_evidence(X, y, 5, 1.0, 0.1, graph, metric=metric))


# ---------------------------------------------------------------- section 3


@pytest.mark.parametrize(("X", "y", "formulation"), PROBLEMS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_bounds_hold_from_every_anchor(X, y, formulation, graph):
    Y, m, constant = naive.targets(y, formulation)
    n = len(X)
    Ws = {k: naive.weights(X, k, graph) for k in (1, 3, 8, n - 1)}
    best = {k: naive.optimum_from_graph(W, Y, m, constant)[0] for k, W in Ws.items()}
    for anchor in Ws.values():
        for r_anchor in (1e-3, 1.0, 1e3):
            for k, W in Ws.items():
                bound = naive.evidence_bound(anchor, r_anchor, W, Y, m, constant)
                assert best[k] <= bound + 1e-8
                for r in (1e-5, 0.1, 1e4):
                    logdet = np.sum(np.log(naive.spectrum(W) + r))
                    assert logdet <= naive.logdet_bound(anchor, r_anchor, W, r) + 1e-8
                    height = naive.profile_bound(anchor, r_anchor, W, Y, m, constant, r)
                    assert naive.profile(W, Y, m, constant, r) <= height + 1e-8 <= bound + 2e-8


def test_bound_is_tight_at_an_interior_optimum():
    X, y = blobs(n=18, J=3, seed=1)
    Y, m, constant = naive.targets(y, "II")
    W = naive.weights(X, 5, "symmetric")
    value, sigma0, sigma2 = naive.optimum_from_graph(W, Y, m, constant)
    assert not naive.at_bound(sigma0, sigma2)
    bound = naive.evidence_bound(W, sigma2 / sigma0, W, Y, m, constant)
    assert bound == pytest.approx(value, abs=1e-3)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("X", [blobs(n=16)[0], lattice(4)])
def test_roughness_and_logdet_grow_with_k(X, graph):
    Y = np.random.default_rng(2).normal(size=(16, 2))
    q, logdet = [], []
    for k in range(1, 16):
        W = naive.weights(X, k, graph)
        q.append(naive.roughness(W, Y))
        logdet.append(np.sum(np.log(naive.spectrum(W) + 0.1)))
        assert q[-1] == pytest.approx(np.trace(Y.T @ naive.laplacian(W) @ Y))
    assert np.all(np.diff(q) >= -1e-9) and np.all(np.diff(logdet) >= -1e-9)


# ---------------------------------------------------------------- predictions


@pytest.mark.parametrize("graph", GRAPHS)
def test_prediction_is_the_conditional_of_the_joint_process(graph):
    """Condition the (n+1)-point process on y: the paper's mean and variance."""
    X, y = wave(n=12)
    new = np.array([[0.3, -0.2]])
    sigma0, sigma2 = 1.7, 0.4
    D = naive.distance_matrix(X)
    w = naive.query_weights(D, naive.cross_distances(new, X)[0], 4, graph)
    W = np.zeros((13, 13))
    W[:12, :12] = naive.weights(X, 4, graph)
    W[12, :12] = W[:12, 12] = w
    C = np.linalg.inv(sigma0 * naive.laplacian(W) + sigma2 * np.eye(13))
    gain = np.linalg.solve(C[:12, :12], C[:12, 12])
    ours = naive.predict(X, y, new, 4, graph, sigma0, sigma2, center=False)
    assert ours["mean"][0] == pytest.approx(gain @ y, rel=1e-9)
    assert ours["variance"][0] == pytest.approx(C[12, 12] - gain @ C[:12, 12], rel=1e-9)
    centred = naive.predict(X, y, new, 4, graph, sigma0, sigma2)
    assert centred["mean"][0] == pytest.approx(y.mean() + gain @ (y - y.mean()), rel=1e-9)


def test_literal_differences_of_II_predict_differences_of_means():
    """mu_{g^{1,l}} from the (J-1)n covariance with one more difference is mean_1 - mean_l."""
    X, y = blobs(n=9, J=3)
    new = X[:1] + 0.1
    sigma0, sigma2 = 1.2, 0.3
    w = naive.query_weights(
        naive.distance_matrix(X), naive.cross_distances(new, X)[0], 3, "symmetric"
    )
    W = np.zeros((10, 10))
    W[:9, :9] = naive.weights(X, 3, "symmetric")
    W[9, :9] = W[:9, 9] = w
    c = np.linalg.inv(sigma0 * naive.laplacian(W) + sigma2 * np.eye(10))
    C = naive.difference_covariance(c, np.append(y, 0), 3)  # the new point as if of the first class
    mean = naive.predict(X, y, new, 3, "symmetric", sigma0, sigma2)["mean"][0]
    for row, l_class in ((18, 1), (19, 2)):
        g = C[row, :18] @ np.linalg.solve(C[:18, :18], np.ones(18))
        assert g == pytest.approx(mean[0] - mean[l_class], abs=1e-10)


@pytest.mark.parametrize("graph", ALL_GRAPHS)
def test_the_ratio_going_to_zero_gives_the_plain_estimate(graph):
    X, y = blobs(n=20)
    new = blobs(n=7, seed=8)[0]
    plain = naive.predict(X, y, new, 4, graph)
    bayes = naive.predict(X, y, new, 4, graph, 1.0, 1e-10)
    served = plain["n_neighbors"] > 0
    np.testing.assert_allclose(bayes["mean"][served], plain["mean"][served], atol=1e-9)
    np.testing.assert_allclose(bayes["probability"], plain["probability"], atol=1e-9)
    np.testing.assert_array_equal(bayes["label"], plain["label"])
    assert plain["variance"] is None
    np.testing.assert_allclose(plain["probability"].sum(axis=1), 1)


def test_knn_matches_sklearn():
    X, y = blobs(n=25, J=2)
    new = blobs(n=9, seed=4)[0]
    reference = KNeighborsClassifier(5).fit(X, y)
    ours = naive.predict(X, y, new, 5, "knn")
    np.testing.assert_array_equal(ours["label"], reference.predict(new))
    np.testing.assert_allclose(ours["probability"], reference.predict_proba(new))


def test_tie_rules():
    X = np.array([[0.0], [1.0], [2.4]])
    y = np.array(["b", "a", "a"])
    new = [[0.4]]
    assert naive.predict(X, y, new, 2, "knn")["label"][0] == "b"
    assert naive.predict(X, y, new, 2, "knn", ties="lowest")["label"][0] == "a"


def test_no_neighbours():
    X = np.array([[0.0], [0.1], [0.2], [9.0], [9.1], [9.2]])
    y = np.array(["b", "b", "b", "a", "a", "a"])
    far = [[4.0]]
    near = naive.predict(X, y, far, 1, "mutual")
    assert near["n_neighbors"][0] == 0 and near["label"][0] == "b"
    assert near["probability"].tolist() == [[0.5, 0.5]] and near["mean"].tolist() == [[0, 0]]
    assert naive.predict(X, y, far, 1, "mutual", ties="lowest")["label"][0] == "a"
    values = np.arange(6.0)
    assert naive.predict(X, values, far, 1, "mutual")["mean"][0] == 2.5
    assert naive.predict(X, values, far, 1, "mutual", center=False)["mean"][0] == 0
    bayes = naive.predict(X, values, far, 1, "mutual", 2.0, 0.5)
    assert bayes["mean"][0] == 2.5 and bayes["variance"][0] == 2.0


def test_shapes_and_precomputed():
    X, Y = wave(n=10, outputs=3)
    new = X[:4] + 0.01
    ours = naive.predict(X, Y, new, 3, "symmetric", 1.0, 0.1)
    assert ours["mean"].shape == (4, 3) and ours["variance"].shape == (4,)
    distances = naive.distance_matrix(X), naive.cross_distances(new, X)
    again = naive.predict(
        distances[0], Y, distances[1], 3, "symmetric", 1.0, 0.1, metric="precomputed"
    )
    np.testing.assert_array_equal(ours["mean"], again["mean"])
    X, y = blobs(n=10)
    empty = naive.predict(X, y, X[:0], 3, "mutual", 1.0, 0.1)
    assert empty["mean"].shape == empty["probability"].shape == (0, 3)
    assert empty["label"].shape == empty["variance"].shape == (0,)


# ---------------------------------------------------------------- leave-one-out


def test_leaving_out_literally_differs_from_the_training_ranks_under_ties():
    """Points 0, 1, 2: the middle one ranks point 0 first by index, but a query 0 comes after 2."""
    X = np.array([[0.0], [1.0], [2.0]])
    assert naive.loo_weights(X, 1, "mutual")[0].tolist() == [0, 1, 0]
    assert naive.loo_weights(X, 1, "mutual", literal=True)[0].tolist() == [0, 0, 0]
    assert naive.loo_weights(X, 1, "symmetric")[0].tolist() == [0, 2, 0]
    assert naive.loo_weights(X, 1, "symmetric", literal=True)[0].tolist() == [0, 1, 0]
    y = np.array([0.0, 1.0, 5.0])
    assert naive.loo_error(X, y, "mutual", 1) != naive.loo_error(X, y, "mutual", 1, literal=True)


@pytest.mark.parametrize("graph", ALL_GRAPHS)
def test_leaving_out_literally_agrees_without_ties(graph):
    X, y = blobs(n=15)
    for k in (1, 2, 7, 14):
        training = naive.loo_weights(X, k, graph)
        np.testing.assert_array_equal(training, naive.loo_weights(X, k, graph, literal=True))
        literal = naive.loo_error(X, y, graph, k, literal=True)
        assert naive.loo_error(X, y, graph, k) == literal


def test_literal_leaving_out_never_adds_weight_and_knn_has_no_difference():
    for X in (lattice(4), np.repeat(blobs(n=6)[0], 2, axis=0)):
        for k in range(1, len(X)):
            for graph in GRAPHS:
                literal = naive.loo_weights(X, k, graph, literal=True)
                assert np.all(literal <= naive.loo_weights(X, k, graph))
            literal = naive.loo_weights(X, k, "knn", literal=True)
            np.testing.assert_array_equal(literal, naive.loo_weights(X, k, "knn"))


def test_loo_error_by_refitting():
    """n fits and predictions, where nothing ties."""
    X, y = blobs(n=16)
    values = X[:, 0] ** 2
    for graph in ALL_GRAPHS:
        wrong, squares = 0, []
        for i in range(16):
            rest = np.arange(16) != i
            one = naive.predict(X[rest], y[rest], X[[i]], 3, graph)
            wrong += one["label"][0] != y[i]
            one = naive.predict(X[rest], values[rest], X[[i]], 3, graph)
            squares.append((one["mean"][0] - values[i]) ** 2)
        assert naive.loo_error(X, y, graph, 3) == wrong / 16
        literal = naive.loo_error(X, values, graph, 3, literal=True)
        assert literal == pytest.approx(np.mean(squares))
    reference = cross_val_predict(KNeighborsClassifier(1), X, y, cv=LeaveOneOut())
    assert naive.loo_error(X, y, "knn", 1) == np.mean(reference != y)


def test_log_score_of_classes_is_the_probability_of_the_own_class():
    X, y = blobs(n=14)
    for graph in ALL_GRAPHS:
        total = 0.0
        for i in range(14):
            rest = np.arange(14) != i
            one = naive.predict(X[rest], y[rest], X[[i]], 3, graph, 2.0, 0.6)
            total += math.log(one["probability"][0, y[i]])
        assert naive.loo_log_score(X, y, graph, 3, 0.3) == pytest.approx(total)


@pytest.mark.parametrize("outputs", [1, 3])
def test_log_score_of_regression_is_at_its_best_sigma0(outputs):
    X, y = wave(n=14, outputs=outputs)
    Y = naive.targets(y)[0]
    W = naive.weights(X, 3, "symmetric")
    r = 0.2

    def score(u):
        total = 0.0
        for i in range(14):
            precision = math.exp(u) * (W[i].sum() + r)
            mean = W[i] @ Y / (W[i].sum() + r)
            total += norm.logpdf(Y[i], mean, precision**-0.5).sum()
        return total

    best = minimize_scalar(lambda u: -score(u), bracket=(-3, 3))
    assert naive.loo_log_score(X, y, "symmetric", 3, r) == pytest.approx(-best.fun, rel=1e-10)


def test_log_score_is_bounded_for_classes_but_not_for_regression():
    """Pairs of equal points with equal y, k = 1: q = 0, and S grows like -m n log r."""
    X = np.repeat(np.arange(5.0), 2)[:, None]
    y = np.repeat([0.0, 3.0, 1.0, -2.0, 5.0], 2)
    low, high = (naive.loo_log_score(X, y, "mutual", 1, r) for r in (1e-6, 1e-3))
    assert low - high == pytest.approx(10 * math.log(1e3), rel=1e-3)
    labels = y.astype(int)
    assert naive.best_loo_log_score(X, labels, "mutual", 1)[0] <= 0


@pytest.mark.parametrize("graph", ALL_GRAPHS)
def test_best_log_score_beats_a_finer_grid(graph):
    X, y = blobs(n=14)
    values = wave(n=14)[1]
    for target in (y, values):
        best, ratio = naive.best_loo_log_score(X, target, graph, 2)
        assert naive.loo_log_score(X, target, graph, 2, ratio) == pytest.approx(best, abs=1e-10)
        grid = np.exp(np.linspace(math.log(1e-6), math.log(1e6), 1501))
        W = naive.weights(X, 2, graph)
        assert max(naive.loo_log_score_from_graph(W, target, r) for r in grid) <= best + 1e-9


# ---------------------------------------------------------------- the posterior


@pytest.mark.parametrize(("X", "y", "formulation"), PROBLEMS)
def test_sigma0_integrates_out(X, y, formulation):
    ks = (1, 4, 9)
    brute = naive.posterior(X, y, ks, "mutual", formulation)
    quick = naive.posterior(X, y, ks, "mutual", formulation, brute=False)
    np.testing.assert_allclose(brute[2], quick[2], rtol=1e-9)
    np.testing.assert_allclose(brute[1], quick[1], atol=1e-9)
    assert brute[1].sum() == pytest.approx(1)


def test_marginal_follows_the_profile():
    """p(k, r | y) is proportional to exp(profile) with one constant for every k and r."""
    X, y = blobs(n=12)
    Y, m, constant = naive.targets(y)
    t = np.log([1e-4, 0.3, 50.0])
    gaps = []
    for k in (1, 5, 11):
        W = naive.weights(X, k, "symmetric")
        profile = [naive.profile(W, Y, m, constant, r) for r in np.exp(t)]
        gaps.append(naive.log_marginal_of_ratio(W, Y, m, constant, t) - profile)
    np.testing.assert_allclose(gaps, gaps[0][0], atol=1e-9)


def test_expected_inverse_of_sigma0():
    """E[1/sigma0 | k, r, y] = (q + r s) / (m n - 2), by quadrature over log sigma0."""
    X, y = blobs(n=12)
    Y, m, constant = naive.targets(y, "II")
    W = naive.weights(X, 3, "symmetric")
    r = 0.4
    top = naive.profile(W, Y, m, constant, r)

    def density(u):
        sigma0 = math.exp(u)
        value = naive.log_evidence_from_graph(W, Y, m, constant, sigma0, r * sigma0)
        return math.exp(value - top)

    u0 = math.log(naive.best_sigma0(W, Y, m, r))
    mass = quad(density, u0 - 5, u0 + 5)[0]
    inverse = quad(lambda u: density(u) * math.exp(-u), u0 - 5, u0 + 5)[0]
    q, s = naive.roughness(W, Y), np.sum(Y**2)
    assert inverse / mass == pytest.approx((q + r * s) / (m * 12 - 2), rel=1e-6)


def test_metropolis_agrees_with_quadrature():
    X, y = blobs(n=14, J=3, seed=2)
    ks, probability, _ = naive.posterior(X, y, range(1, 7), brute=False)
    samples = naive.metropolis(X, y, steps=12000, seed=1, ks=ks)[1000:]
    batches = samples[:, 0].reshape(20, -1)
    for k, p in zip(ks, probability, strict=True):
        means = np.mean(batches == k, axis=1)
        error = means.std(ddof=1) / math.sqrt(20)
        assert abs(means.mean() - p) < 4 * error + 0.005


def test_skipped_mass_is_bounded():
    """The evidence bound carries over to the marginal, the prior of r being a probability."""
    X, y = blobs(n=14)
    Y, m, constant = naive.targets(y)
    n = len(X)
    anchor = naive.weights(X, 3, "symmetric")
    reference = naive.profile(anchor, Y, m, constant, 0.5)
    shift = naive.log_marginal_of_ratio(anchor, Y, m, constant, np.log([0.5]))[0] - reference
    for k in range(1, n):
        W = naive.weights(X, k, "symmetric")
        bound = naive.evidence_bound(anchor, 0.5, W, Y, m, constant) + shift
        assert naive.log_marginal(W, Y, m, constant) <= bound + 1e-9


# ---------------------------------------------------------------- averaged predictions


def test_averaging_over_one_k_and_a_narrow_ratio_is_a_single_prediction():
    X, y = blobs(n=14)
    new = blobs(n=5, seed=7)[0]
    W = naive.weights(X, 4, "symmetric")
    Y, m, _ = naive.targets(y)
    r = 0.3
    sigma0 = naive.best_sigma0(W, Y, m, r)
    one = naive.predict(X, y, new, 4, "symmetric", sigma0, r * sigma0)
    bounds = (r * (1 - 1e-9), r * (1 + 1e-9))
    many = naive.averaged_predict(X, y, new, [4], ratio_bounds=bounds)
    np.testing.assert_allclose(many["mean"], one["mean"], rtol=1e-7)
    np.testing.assert_allclose(many["probability"], one["probability"], rtol=1e-7)
    np.testing.assert_array_equal(many["label"], one["label"])
    factor = m * 14 / (m * 14 - 2)  # E[1/sigma0] against 1/sigma0*
    np.testing.assert_allclose(many["within"], factor * one["variance"], rtol=1e-7)
    np.testing.assert_allclose(many["between"], 0, atol=1e-12)


def test_averaged_mean_and_variance_are_those_of_samples():
    """Draw (k, sigma0, r) by Metropolis and y_new from each draw."""
    X, y = wave(n=14)
    new = np.array([[0.2, 0.4], [5.0, 5.0]])
    ours = naive.averaged_predict(X, y, new, [2, 3, 4])
    samples = naive.metropolis(X, y, steps=12500, seed=2, ks=[2, 3, 4])[500:]
    mean, inverse = np.zeros((2, len(samples), 2))
    D, d_new = naive.distance_matrix(X), naive.cross_distances(new, X)
    w = {k: np.array([naive.query_weights(D, d, k, "symmetric") for d in d_new]) for k in (2, 3, 4)}
    for a, (k, u, t) in enumerate(samples):
        total = w[k].sum(axis=1) + math.exp(t)
        mean[a] = y.mean() + w[k] @ (y - y.mean()) / total
        inverse[a] = math.exp(-u) / total
    for b in range(2):
        batches = mean[:, b].reshape(20, -1).mean(axis=1)
        error = batches.std(ddof=1) / math.sqrt(20)
        assert abs(batches.mean() - ours["mean"][b]) < 4 * error
        total = inverse[:, b].mean() + mean[:, b].var()
        assert total == pytest.approx(ours["variance"][b], rel=0.1)


def test_averaged_variance_differs_between_outputs():
    """The spread of the means over (k, r) is each output's own: one number per point is too few."""
    X, y = blobs(n=15, spread=1.5)
    ours = naive.averaged_predict(X, y, X[:3] + 0.2)
    assert ours["variance"].shape == (3, 3)
    assert np.ptp(ours["between"], axis=1).max() > 1e-6
    np.testing.assert_allclose(ours["probability"].sum(axis=1), 1)


def test_binary_variance_is_that_of_the_difference_of_the_two_means():
    """At the same r the binary sigma0 is half of II's, so its variance is twice that of one f."""
    X, y = blobs(n=16, J=2)
    W = naive.weights(X, 4, "symmetric")
    Y_b, m_b, _ = naive.targets(y, "binary")
    Y_2, m_2, _ = naive.targets(y, "II")
    half = naive.best_sigma0(W, Y_b, m_b, 0.3)
    assert half == pytest.approx(0.5 * naive.best_sigma0(W, Y_2, m_2, 0.3))
    new = X[:2] + 0.1
    b = naive.averaged_predict(X, y, new, formulation="binary")
    two = naive.averaged_predict(X, y, new, formulation="II")
    np.testing.assert_allclose(b["mean"], two["mean"])
    np.testing.assert_allclose(b["within"], 2 * two["within"])
    np.testing.assert_allclose(b["between"], two["between"], atol=1e-12)
    assert np.all(b["difference_variance"] >= b["within"])


def test_averaging_with_loo_log_weights():
    X, y = blobs(n=12)
    new = blobs(n=3, seed=5)[0]
    ks, weight, ratio = naive.loo_log_weights(X, y, [1, 3, 6], "symmetric")
    assert weight.sum() == pytest.approx(1)
    ours = naive.averaged_predict_loo(X, y, new, [1, 3, 6])
    explicit = sum(
        w * naive.predict(X, y, new, k, "symmetric", 1.0, r)["probability"]
        for k, w, r in zip(ks, weight, ratio, strict=True)
    )
    np.testing.assert_allclose(ours["probability"], explicit)
