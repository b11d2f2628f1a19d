"""LAPACK without the GIL against NumPy."""

import hashlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mksknn import _lapack
from mksknn._threads import limit_threads

SIZES = [1, 2, 3, 50, 200]


@pytest.fixture(params=[False, True], ids=["whole", "tiles"])
def tiled(request, monkeypatch):
    """Whole matrices, or tiles of 16 rows."""
    if request.param:
        monkeypatch.setattr(_lapack, "TILED", 1)
        monkeypatch.setattr(_lapack, "_SMALL_TILE", 16)


def positive_definite(n, seed=0):
    A = np.random.default_rng(seed).normal(size=(n, n))
    return A @ A.T + n * np.eye(n)


def with_rubbish_above(A):
    """Only the lower triangle may be read."""
    return np.tril(A) + np.triu(np.full_like(A, np.nan), 1)


@pytest.mark.parametrize("n", SIZES)
def test_cholesky(n, tiled):
    A = positive_definite(n)
    factor = with_rubbish_above(A)
    assert _lapack.cholesky(factor) is None
    np.testing.assert_allclose(np.tril(factor), np.linalg.cholesky(A), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("n", SIZES)
def test_inverse(n, tiled):
    A = positive_definite(n)
    inverse = with_rubbish_above(A)
    _lapack.cholesky(inverse)
    _lapack.cholesky_inverse(inverse)
    np.testing.assert_allclose(np.tril(inverse), np.tril(np.linalg.inv(A)), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("shift", [0.0, -3.0])
def test_tridiagonal_form_keeps_the_eigenvalues(n, shift):
    A = positive_definite(n) + shift * n * np.eye(n)  # -3: indefinite
    diagonal, beside = _lapack.tridiagonalize(with_rubbish_above(A))
    assert diagonal.shape == (n,)
    assert beside.shape == (n - 1,)
    T = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    np.testing.assert_allclose(np.linalg.eigvalsh(T), np.linalg.eigvalsh(A), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", SIZES)
def test_not_positive_definite(n, tiled):
    A = positive_definite(n)
    A[-1, -1] = -1.0
    with pytest.raises(np.linalg.LinAlgError, match=f"not positive definite, info {n}"):
        _lapack.cholesky(A)


def test_singular_factor(tiled):
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        _lapack.cholesky_inverse(np.diag([1.0, 0.0, 2.0]))


@pytest.mark.parametrize("n", [1, 16, 17, 33, 130])
def test_the_same_bits_on_any_number_of_threads(n, monkeypatch):
    monkeypatch.setattr(_lapack, "TILED", 1)
    monkeypatch.setattr(_lapack, "_SMALL_TILE", 16)
    A = positive_definite(n)
    found = []
    for threads in (1, 2, 3, 8):
        with limit_threads(threads):
            matrix = with_rubbish_above(A)
            _lapack.cholesky(matrix)
            factor = np.tril(matrix)
            _lapack.cholesky_inverse(matrix)
        found.append((factor, np.tril(matrix)))
    for factor, inverse in found[1:]:
        np.testing.assert_array_equal(factor, found[0][0])
        np.testing.assert_array_equal(inverse, found[0][1])


@pytest.mark.slow
def test_more_rows_than_a_threaded_dpotrf_survives():
    """17,000 rows, 2.3 GB: SciPy's OpenBLAS crashes there on two threads."""
    n = 17_000
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(n, 3))
    digests, logdets = [], []
    for threads in (2, 1):
        matrix = factors @ factors.T
        matrix.flat[:: n + 1] += 1.0
        with limit_threads(threads):
            _lapack.cholesky(matrix)
        logdets.append(2.0 * np.log(np.diagonal(matrix)).sum())
        digests.append(hashlib.sha256(matrix).hexdigest())
    assert digests[0] == digests[1]
    small = np.linalg.slogdet(np.eye(3) + factors.T @ factors)[1]  # Sylvester's identity
    assert logdets[0] == pytest.approx(small, rel=1e-9)


def test_several_threads_at_once():
    def run(seed):
        matrix = positive_definite(80, seed)
        _lapack.cholesky(matrix)
        return matrix

    alone = [run(seed) for seed in range(12)]
    with ThreadPoolExecutor(4) as pool:
        for together, expected in zip(pool.map(run, range(12)), alone, strict=True):
            np.testing.assert_allclose(np.tril(together), np.tril(expected), rtol=1e-12)
