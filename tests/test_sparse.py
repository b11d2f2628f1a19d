"""Sparse factorizations: both lines of scikit-sparse, SuperLU without it, fill and memory."""

import types

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from posing import opened_graph, pairs_of
from scipy.sparse import csc_matrix, tril

import mksknn
from mksknn import _threads
from mksknn._cholmod import cholmod, fill_and_flops
from mksknn._dense import Cholesky, Tridiagonal
from mksknn._sparse import Cholmod, SuperLU

GRAPHS = ("mutual", "symmetric")
REAL = pytest.mark.skipif(cholmod() is None, reason="scikit-sparse is missing")


def _points():
    rng = np.random.default_rng(7)
    return {
        "normal": rng.normal(size=(30, 2)),
        "clusters": rng.normal(size=(30, 2)) + 1e3 * np.repeat(np.arange(3), 10)[:, None],
        "outliers": np.concatenate(
            [rng.normal(size=(25, 2)), 10.0 ** np.arange(2, 7)[:, None] * [1, 1]]
        ),
        "two": np.array([[0.0], [1.0]]),
    }


POINTS = _points()


def some_ks(n):
    return sorted({1, 2, 3, n // 4, n // 2, n - 1} & set(range(1, n)))


# ---------------------------------------------------------------- fill


def eliminate(pattern):
    """Column counts of the factor, by eliminating one vertex after another."""
    filled = pattern.copy()
    for p in range(len(filled)):
        below = np.flatnonzero(filled[p + 1 :, p]) + p + 1
        filled[np.ix_(below, below)] = True
    return np.tril(filled).sum(axis=0)


@pytest.mark.uncompiled
@given(st.integers(0, 2**32 - 1), st.integers(1, 25), st.floats(0, 0.5))
def test_fill_of_random_graphs(seed, n, density):
    rng = np.random.default_rng(seed)
    pattern = rng.random((n, n)) < density
    pattern = pattern | pattern.T | np.eye(n, dtype=bool)
    permutation = rng.permutation(n)
    counts = eliminate(pattern[np.ix_(permutation, permutation)])
    fill, flops = fill_and_flops(csc_matrix(np.tril(pattern).astype(float)), permutation)
    assert fill == counts.sum()
    assert flops == (counts.astype(float) ** 2).sum()


@REAL
@pytest.mark.parametrize("graph", GRAPHS)
def test_fill_of_cholmod(graph):
    module = cholmod()
    if not hasattr(module, "analyze"):
        pytest.skip("needs scikit-sparse 0.4 to ask for a simplicial factor")
    pairs = pairs_of(np.random.default_rng(10).normal(size=(200, 2)), graph, 12)
    for k in (2, 12):
        opened = Cholmod(pairs, k)
        matrix = opened._matrix
        factor = module.analyze(matrix, mode="simplicial", ordering_method="amd")
        factor.cholesky_inplace(matrix, beta=1.0)
        assert fill_and_flops(matrix, factor.P())[0] == factor.L().nnz


# ---------------------------------------------------------------- memory


@REAL
def test_a_factor_that_does_not_fit_is_refused(memory):
    pairs = pairs_of(np.random.default_rng(11).normal(size=(60, 2)), "symmetric")
    opened = opened_graph(pairs, 20, "cholmod")
    memory(1e3)
    with pytest.raises(ValueError, match=r"would take 0\.0 GB, and 0\.0 GB of memory is free"):
        opened.logdet(1.0)


# ---------------------------------------------------------------- scikit-sparse, both APIs


class FakeFactor:
    """What both fakes share: a dense Cholesky factor in an ordering of its own."""

    analyses = 0

    def _start(self, A, order):
        assert isinstance(A, csc_matrix) and A.dtype == np.float64
        assert order in ("amd", "metis", "natural")
        type(self).analyses += 1
        n = A.shape[0]
        # any ordering will do; this one makes a forgotten permutation show
        self._permutation = np.arange(n) if order == "natural" else np.arange(n)[::-1].copy()
        self._lower = None

    def _factorize(self, A, beta):
        half = np.tril(A.toarray())  # what is above the diagonal is not read
        full = half + np.tril(half, -1).T + beta * np.eye(len(half))
        self._lower = np.linalg.cholesky(full[np.ix_(self._permutation, self._permutation)])

    def _logdet(self):
        return 2.0 * np.log(np.diagonal(self._lower)).sum()

    def _solve(self, b):
        out = np.empty_like(b)
        L = self._lower
        out[self._permutation] = np.linalg.solve(L @ L.T, b[self._permutation])
        return out

    def _sparse_lower(self):
        """The factor with every place below the diagonal, zero or not."""
        places = csc_matrix(np.tril(np.ones_like(self._lower)))
        places.data = self._lower.T[np.triu_indices(len(self._lower))].copy()
        return places


class NewFactor(FakeFactor):
    """As in scikit-sparse 0.5."""

    def __init__(self, A, *, lower, order):
        assert lower is True
        self._start(A, order)

    def factorize(self, A, *, beta=0.0):
        self._factorize(A, beta)

    def logdet(self):
        return self._logdet()

    def solve(self, b):
        return self._solve(b)

    def get_perm(self):
        return self._permutation

    @property
    def factor(self):
        return self._sparse_lower()


class OldFactor(FakeFactor):
    """As in scikit-sparse 0.4."""

    def cholesky_inplace(self, A, beta=0):
        self._factorize(A, beta)

    def logdet(self):
        return self._logdet()

    def solve_A(self, b):
        return self._solve(b)

    def P(self):
        return self._permutation

    def L(self):
        return self._sparse_lower()


def old_analyze(A, mode="auto", ordering_method="default"):
    factor = OldFactor()
    factor._start(A, ordering_method)
    return factor


FAKES = {
    "0.5": (types.SimpleNamespace(CholeskyFactor=NewFactor), NewFactor),
    "0.4": (types.SimpleNamespace(analyze=old_analyze), OldFactor),
}


@pytest.fixture(params=FAKES)
def fake(request, monkeypatch, scikit_sparse):
    """CHOLMOD by one of the two APIs, without scikit-sparse; counts the analyses."""
    module, factor = FAKES[request.param]
    scikit_sparse(module)
    monkeypatch.setattr(factor, "analyses", 0)
    return factor


@pytest.mark.parametrize("graph", GRAPHS)
def test_adapter_to_either_api(graph, fake):
    for name in ("normal", "clusters", "outliers", "two"):
        pairs = pairs_of(POINTS[name], graph)
        for k in some_ks(pairs.n):
            dense, sparse = Tridiagonal(pairs, k), Cholmod(pairs, k)
            for ratio in (1e-6, 0.3, 1e6):
                expected = dense.logdet(ratio)
                assert sparse.logdet(ratio) == pytest.approx(expected, rel=1e-10, abs=1e-10)
                trace = dense.trace_inverse(ratio)
                assert sparse.trace_inverse(ratio) == pytest.approx(trace, rel=1e-9)


@pytest.mark.parametrize("ks", [[2, 3, 4, 5, 7, 10, 11], [2, 3, 4, 7, 11, 12, 20]])
def test_one_analysis_serves_every_ratio(ks, fake):
    X = POINTS["normal"]
    y = (X[:, 0] > 0).astype(int)
    curve = mksknn.evidence_curve(X, y, backend="cholmod", ks=ks)
    assert fake.analyses == len(ks)
    dense = mksknn.evidence_curve(X, y, backend="lapack", ks=ks)
    np.testing.assert_allclose(curve.log_evidence, dense.log_evidence, rtol=0, atol=1e-8)


@REAL
@pytest.mark.parametrize("ratio", [1e-6, 1.0, 1e6])
def test_the_real_one_through_the_same_adapter(ratio):
    pairs = pairs_of(np.random.default_rng(15).normal(size=(300, 2)), "symmetric", 10)
    expected = Cholesky(pairs, 10).logdet(ratio)
    assert Cholmod(pairs, 10).logdet(ratio) == pytest.approx(expected, rel=1e-12)


# ---------------------------------------------------------------- without scikit-sparse


def test_superlu_takes_over(scikit_sparse):
    rng = np.random.default_rng(16)
    X = np.cumsum(rng.exponential(size=(700, 1)), axis=0)
    y = np.sin(X[:, 0] / 20) + 0.1 * rng.normal(size=700)
    scikit_sparse(None)
    curve = mksknn.evidence_curve(X, y, graph="mutual", k_max=5)
    dense = mksknn.evidence_curve(X, y, graph="mutual", k_max=5, backend="lapack")
    np.testing.assert_allclose(curve.log_evidence, dense.log_evidence, rtol=0, atol=1e-8)
    np.testing.assert_allclose(curve.sigma0, dense.sigma0, rtol=1e-3)
    selected = mksknn.select_k(X, y, graph="mutual", k_max=5)
    assert (selected.k, selected.certified) == (dense.best_k, True)
    assert selected.log_evidence == pytest.approx(dense.log_evidence.max(), abs=1e-8)


def test_a_backend_that_is_not_there(scikit_sparse):
    scikit_sparse(None)
    with pytest.raises(ImportError, match="backend='cholmod' needs scikit-sparse"):
        mksknn.evidence_curve(POINTS["normal"], np.arange(30) % 2, backend="cholmod")


# ---------------------------------------------------------------- the sparse matrix itself


@pytest.mark.parametrize("graph", GRAPHS)
def test_grounded_part_is_the_laplacian_less_a_vertex_of_each_component(graph):
    X = POINTS["clusters"]
    pairs = pairs_of(X, graph)
    for k in (1, 2, 9, 20):
        W = naive.weights(X, k, graph)
        opened = SuperLU(pairs, k)
        part = opened._matrix.toarray()
        assert len(part) == len(X) - naive.n_components(W)
        expected = naive.laplacian(W)[np.ix_(opened._kept, opened._kept)]
        np.testing.assert_array_equal(part, expected)
        assert tril(opened._matrix).nnz >= len(part)


@REAL
def test_nothing_is_analyzed_for_a_call_that_is_over():
    """With 60,000 points a second thread began an order of its own after the interrupt."""
    pairs = pairs_of(POINTS["normal"], "symmetric", 5)

    def work(piece):
        if piece:
            raise ZeroDivisionError
        with pytest.raises(_threads.Stopped):
            for _ in range(20_000):
                Cholmod(pairs, 5)
        raise _threads.Stopped

    with _threads.limit_threads(2), pytest.raises(ZeroDivisionError):
        _threads.run_pieces(work, range(2))
