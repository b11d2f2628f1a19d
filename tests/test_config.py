"""show_config says what would be used here."""

import importlib.util
import platform
import sys

import numba
import numpy as np
import scipy

import mksknn
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
    installed = importlib.util.find_spec("sksparse") is not None
    assert "sparse graphs" in sparse and ("cholmod;" if installed else "superlu") in sparse
    assert ("superlu available" in sparse) == installed
    assert blas_names()
    for name in blas_names():
        assert f"BLAS:          {name}" in text


def test_threads(capsys):
    with limit_threads(3):
        assert "threads:       3" in shown(capsys)
    assert f"threads:       {numba.config.NUMBA_NUM_THREADS}" in shown(capsys)
    with one_thread_each():
        assert shown(capsys).count("threads: 1 (") == len(blas_names())


def test_without_scikit_sparse(capsys, scikit_sparse):
    scikit_sparse(None)
    text = shown(capsys)
    assert "sparse graphs: superlu" in text
    assert "scikit-sparse is not installed" in text


def test_missing_packages_are_named(capsys, monkeypatch):
    monkeypatch.setattr(sys, "path", [])  # where versions are looked up
    assert shown(capsys).count("not installed") >= 7
