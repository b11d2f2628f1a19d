"""show_config says what would be used here."""

import platform

import numba
import numpy as np
import pytest
import scipy

import mksknn
from mksknn import _config, _logdet
from mksknn._threads import blas_names, limit_threads, one_thread_each


def shown(capsys):
    capsys.readouterr()
    assert mksknn.show_config() is None
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_versions(capsys):
    text = shown(capsys)
    for part in (
        f"mksknn {mksknn.__version__}",
        f"Python {platform.python_version()}",
        f"numpy {np.__version__}",
        f"scipy {scipy.__version__}",
        f"numba {numba.__version__}",
    ):
        assert part in text
    for name in ("scikit-sparse", "matplotlib", "tqdm", "dask"):
        assert name in text


def test_backends_and_blas(capsys):
    text = shown(capsys)
    dense, sparse = text.splitlines()[2:4]
    assert "dense graphs" in dense and "lapack" in dense
    assert "sparse graphs" in sparse and _logdet.sparse_backend() in sparse
    assert ("superlu available" in sparse) == (_logdet.cholmod() is not None)
    assert blas_names()
    for name in blas_names():
        assert f"BLAS:          {name}" in text


def test_threads(capsys):
    with limit_threads(3):
        assert "threads:       3" in shown(capsys)
    assert f"threads:       {numba.config.NUMBA_NUM_THREADS}" in shown(capsys)
    with one_thread_each():
        assert shown(capsys).count("threads: 1 (") == len(blas_names())


def test_without_scikit_sparse(capsys, monkeypatch):
    for module in (_config, _logdet):
        monkeypatch.setattr(module, "cholmod", lambda: None)
    text = shown(capsys)
    assert "sparse graphs: superlu" in text
    assert "scikit-sparse is not installed" in text


def test_missing_packages_are_named(capsys, monkeypatch):
    def missing(name):
        raise _config.PackageNotFoundError(name)

    monkeypatch.setattr(_config, "version", missing)
    assert shown(capsys).count("not installed") >= 7


@pytest.mark.parametrize("name", ["numpy", "no-such-package"])
def test_one_version(name):
    assert _config._version(name) == (np.__version__ if name == "numpy" else "not installed")
