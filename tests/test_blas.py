"""LAPACK without the GIL against NumPy, and the hold on BLAS threads."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mksknn import _blas

SIZES = [1, 2, 3, 50, 200]


def positive_definite(n, seed=0):
    A = np.random.default_rng(seed).normal(size=(n, n))
    return A @ A.T + n * np.eye(n)


def with_rubbish_above(A):
    """Only the lower triangle may be read."""
    return np.tril(A) + np.triu(np.full_like(A, np.nan), 1)


@pytest.mark.parametrize("n", SIZES)
def test_cholesky(n):
    A = positive_definite(n)
    factor = with_rubbish_above(A)
    assert _blas.cholesky(factor) is None
    np.testing.assert_allclose(np.tril(factor), np.linalg.cholesky(A), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("n", SIZES)
def test_inverse(n):
    A = positive_definite(n)
    inverse = with_rubbish_above(A)
    _blas.cholesky(inverse)
    _blas.cholesky_inverse(inverse)
    np.testing.assert_allclose(np.tril(inverse), np.tril(np.linalg.inv(A)), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("shift", [0.0, -3.0])
def test_tridiagonal_form_keeps_the_eigenvalues(n, shift):
    A = positive_definite(n) + shift * n * np.eye(n)  # -3: indefinite
    diagonal, beside = _blas.tridiagonalize(with_rubbish_above(A))
    assert diagonal.shape == (n,)
    assert beside.shape == (n - 1,)
    T = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    np.testing.assert_allclose(np.linalg.eigvalsh(T), np.linalg.eigvalsh(A), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", SIZES)
def test_not_positive_definite(n):
    A = positive_definite(n)
    A[-1, -1] = -1.0
    with pytest.raises(np.linalg.LinAlgError, match=f"not positive definite, info {n}"):
        _blas.cholesky(A)


def test_singular_factor():
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        _blas.cholesky_inverse(np.diag([1.0, 0.0, 2.0]))


def test_several_threads_at_once():
    def run(seed):
        matrix = positive_definite(80, seed)
        _blas.cholesky(matrix)
        return matrix

    alone = [run(seed) for seed in range(12)]
    with ThreadPoolExecutor(4) as pool:
        for together, expected in zip(pool.map(run, range(12)), alone, strict=True):
            np.testing.assert_allclose(np.tril(together), np.tril(expected), rtol=1e-12)


# ---------------------------------------------------------------- threads of the BLAS


@pytest.fixture
def blas():
    """SciPy's BLAS set to two threads, and back afterwards."""
    blas = _blas.scipy_blas()
    if blas.threads is None:
        pytest.skip("this BLAS does not tell how many threads it uses")
    before = blas.threads
    blas._set(2)
    if blas.threads != 2:
        pytest.skip("this BLAS has no threads")
    yield blas
    blas._set(before)


def test_scipy_blas_is_found_and_named():
    blas = _blas.scipy_blas()
    assert blas is _blas.scipy_blas()
    assert isinstance(blas.name, str)
    assert blas.name


def test_one_thread_nests_and_restores(blas):
    with blas.one_thread():
        assert blas.threads == 1
        with blas.one_thread():
            assert blas.threads == 1
        assert blas.threads == 1
    assert blas.threads == 2


def test_one_thread_restores_after_an_error(blas):
    with pytest.raises(KeyError), blas.one_thread():
        raise KeyError
    assert blas.threads == 2


def test_the_last_of_several_threads_restores(blas):
    both_in, first_out = threading.Barrier(2, timeout=60), threading.Event()
    seen = []

    def early():
        with blas.one_thread():
            both_in.wait()
        first_out.set()

    def late():
        with blas.one_thread():
            both_in.wait()
            assert first_out.wait(60)
            seen.append(blas.threads)

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(early), pool.submit(late)]:
            future.result()
    assert seen == [1]
    assert blas.threads == 2


def test_many_holders_at_random(blas):
    def hold(_):
        with blas.one_thread():
            return blas.threads

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(hold, range(400))) == {1}
    assert blas.threads == 2


def test_a_library_that_is_not_there_is_left_alone():
    nothing = _blas.Blas("no-such-library.so")
    assert nothing.threads is None
    assert nothing.name == "unknown"
    with nothing.one_thread():
        assert nothing.threads is None
