"""Selected inversion against the full inverse."""

import dataclasses

import naive
import numpy as np
import pytest
import scipy.sparse as sp
from posing import pairs_of, problem_of

import mksknn
from mksknn._bounds import anchor_bounds
from mksknn._cholmod import Factor, cholmod
from mksknn._dense import Cholesky
from mksknn._race import find_best
from mksknn._sparse import Cholmod
from mksknn._threads import progress_bar

pytestmark = pytest.mark.skipif(cholmod() is None, reason="scikit-sparse is not installed")


def random_matrix(n, density, seed):
    """A sparse positive definite matrix; its pattern need not be connected."""
    rng = np.random.default_rng(seed)
    half = sp.csc_array(np.where(rng.random((n, n)) < density, rng.random((n, n)), 0.0))
    symmetric = half + half.T
    return sp.csc_array(symmetric + sp.diags_array(abs(symmetric).sum(axis=0) + 0.1))


def laplacian_matrix(n, k, graph, ratio):
    X = np.random.default_rng(n + k).normal(size=(n, 2))
    L = naive.laplacian(naive.weights(X, k, graph))
    return sp.csc_array(L + ratio * np.eye(n))


def star_matrix(n):
    """Everyone joined to the first."""
    A = 2.0 * np.eye(n)
    A[0, 1:] = A[1:, 0] = -1.0
    A[0, 0] = n
    return sp.csc_array(A)


MATRICES = {
    "one": sp.csc_array([[2.0]]),
    "diagonal": sp.csc_array(np.diag([1.0, 2.0, 4.0])),
    "two blocks": sp.block_diag([[[2.0, 1.0], [1.0, 2.0]], [[3.0]]], format="csc"),
    "dense": sp.csc_array(np.ones((12, 12)) + 5.0 * np.eye(12)),
    "large and dense": sp.csc_array(np.ones((135, 135)) + np.diag(np.arange(1.0, 136.0))),
    "chain": sp.diags_array([[-1.0] * 39, [2.5] * 40, [-1.0] * 39], offsets=[-1, 0, 1]),
    "star": star_matrix(20),
    "sparse": random_matrix(80, 0.02, 0),
    "denser": random_matrix(80, 0.2, 1),
    "mutual": laplacian_matrix(60, 4, "mutual", 1e-3),
    "symmetric": laplacian_matrix(60, 6, "symmetric", 0.5),
}


@pytest.mark.uncompiled
@pytest.mark.parametrize("name", MATRICES)
def test_entries_of_the_inverse(name):
    A = MATRICES[name]
    found = mksknn.selected_inverse(A)
    full = np.linalg.inv(A.toarray())
    pattern = (A.toarray() != 0) | np.eye(A.shape[0], dtype=bool)
    assert sp.issparse(found) and found.shape == A.shape
    np.testing.assert_allclose(
        found.toarray(), np.where(pattern, full, 0.0), rtol=1e-10, atol=1e-12
    )


def test_a_large_matrix_against_solves():
    n = 3000
    X = np.random.default_rng(0).normal(size=(n, 2))
    W = mksknn.knn_graph(X, 8, graph="symmetric")
    A = sp.csc_array(sp.diags_array(W.sum(axis=0) + 0.01) - W)
    found = mksknn.selected_inverse(A)
    for i in (0, 1234, n - 1):
        column = sp.linalg.spsolve(A, np.eye(n)[:, i])
        rows = A[:, [i]].nonzero()[0]
        np.testing.assert_allclose(found[:, [i]].toarray()[rows, 0], column[rows], rtol=1e-9)


def test_the_input_is_left_alone():
    A = MATRICES["sparse"].copy()
    mksknn.selected_inverse(A)
    assert (A != MATRICES["sparse"]).nnz == 0


@pytest.mark.parametrize(
    ("bad", "kind", "words"),
    [
        (np.eye(3), TypeError, "A must be a SciPy sparse array; got ndarray"),
        (sp.csc_array((0, 0)), ValueError, "not empty"),
        (sp.csc_array(np.ones((2, 3))), ValueError, "square"),
        (sp.csc_array([[1.0, 2.0], [0.0, 1.0]]), ValueError, "symmetric"),
        (sp.csc_array([[1.0, np.nan], [np.nan, 1.0]]), ValueError, "finite"),
        (sp.csc_array([[1j]]), TypeError, "real"),
        (sp.csc_array([[1.0, 2.0], [2.0, 1.0]]), ValueError, "positive definite"),
        (sp.csc_array([[0.0, 1.0], [1.0, 0.0]]), ValueError, "positive definite"),
    ],
)
def test_bad_input(bad, kind, words):
    with pytest.raises(kind, match=words):
        mksknn.selected_inverse(bad)


def test_memory_for_the_inverse(memory):
    """Enough for the factor, not for the inverse: refused, and `select_k` does without."""
    A = sp.csc_array(np.ones((500, 500)) + 600.0 * np.eye(500))
    fill = Factor(sp.csc_matrix(sp.tril(A))).fill
    memory(20.0 * fill)
    with pytest.raises(ValueError, match="the inverse on the pattern of the Cholesky factor"):
        mksknn.selected_inverse(A)


def test_selection_without_memory_for_anchors():
    """A backend with no room for a selected inverse has no anchor, and says so."""
    X, y = two_clouds(200, 3)
    problem = problem_of(X, y, k_max=25, backend="cholmod")
    roomy, tight = Cholmod(problem.pairs, 20), Cholmod(problem.pairs, 20, memory=1e4)
    assert roomy.resistance_sums(1.0) is not None
    assert tight.resistance_sums(1.0) is None
    assert anchor_bounds(problem, tight, 1.0) is None
    without = dataclasses.replace(problem, plan=dataclasses.replace(problem.plan, memory=1e4))
    with progress_bar("race", None, False) as bar:
        found, expected = (find_best(one, None, bar) for one in (without, problem))
    assert not found.anchored
    assert found.best == expected.best and found.certified
    best, other = (one.enclosed[one.best].optimum for one in (found, expected))
    assert (best.sigma0, best.sigma2) == (other.sigma0, other.sigma2)


def test_without_scikit_sparse(scikit_sparse):
    scikit_sparse(None)
    with pytest.raises(ImportError, match="scikit-sparse"):
        mksknn.selected_inverse(MATRICES["chain"])


# ---------------------------------------------------------------- resistances


def two_clouds(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    X[::3] += 9.0  # several components at small k
    y = (np.sin(2.0 * X[:, 0]) + 0.5 * rng.normal(size=n) > 0).astype(int)
    return X, y


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", ["mutual", "symmetric"])
@pytest.mark.parametrize("ratio", [1e-6, 1e-2, 1.0, 1e4])
@pytest.mark.parametrize("k", [1, 3, 10])
def test_resistances_of_edges(graph, ratio, k):
    X, _ = two_clouds(50, 4)
    pairs = pairs_of(X, graph, k)
    logdet, trace, found = Cholmod(pairs, k).resistances(ratio)
    expected = naive.effective_resistances(naive.weights(X, k, graph), ratio)
    assert logdet == pytest.approx(
        float(naive.logdet_mpmath(naive.laplacian(naive.weights(X, k, graph)), ratio)),
        rel=1e-11,
        abs=1e-11,
    )
    assert trace == pytest.approx(Cholesky(pairs, k).trace_inverse(ratio), rel=1e-11)
    if ratio >= 1e-2:  # the oracle's plain inverse loses digits below
        np.testing.assert_allclose(found, expected[2][pairs.rows, pairs.columns], rtol=1e-9)


@pytest.mark.parametrize("graph", ["mutual", "symmetric"])
@pytest.mark.parametrize("anchor", [2, 7, 15])
@pytest.mark.parametrize("ratio", [1e-5, 0.3])
@pytest.mark.parametrize("sigmas", [{}, {"sigma0": 2.0, "sigma2": 0.1}])
def test_sparse_and_dense_anchors_give_the_same_bounds(graph, anchor, ratio, sigmas):
    X, y = two_clouds(120, 5)
    problem = problem_of(X, y, graph=graph, k_max=15, **sigmas)
    dense = anchor_bounds(problem, Cholesky(problem.pairs, anchor), ratio)
    own = Cholmod(problem.pairs, anchor)
    place = own.places
    ends = {"rows": place[problem.pairs.rows], "columns": place[problem.pairs.columns]}
    reordered = Cholmod(dataclasses.replace(problem.pairs, **ends), anchor, "natural")
    for opened in (own, reordered):
        sparse = anchor_bounds(problem, opened, ratio)
        np.testing.assert_allclose(sparse[:anchor], dense[:anchor], rtol=1e-10)
        assert np.isinf(sparse[anchor:]).all()


@pytest.mark.parametrize("graph", ["mutual", "symmetric"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sigmas", [{}, {"sigma0": 1.0, "sigma2": 0.05}])
def test_selection_by_sparse_anchors(graph, seed, sigmas):
    """The same k as the full curve, and proven without evaluating every k."""
    X, y = two_clouds(200, seed)
    options = {"graph": graph, "k_max": 25, "backend": "cholmod", **sigmas}
    curve = mksknn.evidence_curve(X, y, **options)
    best = mksknn.select_k(X, y, **options)
    assert best.k == curve.best_k and best.certified
    assert best.log_evidence == pytest.approx(curve.log_evidence.max(), rel=1e-11, abs=1e-8)
    assert len(best.evaluated) < 25 or sigmas
