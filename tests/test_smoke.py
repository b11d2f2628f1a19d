"""A few calls that show that an installation works: `pytest -m smoke`.

`make dist` runs this against the built wheel in an empty environment, so it needs nothing but
pytest and what mksknn itself requires.
"""

import numpy as np
import pytest

import mksknn

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def thyroid():
    data = mksknn.datasets.load_new_thyroid()
    return (data.X - data.X.mean(axis=0)) / data.X.std(axis=0), data.y


def test_version_and_configuration(capsys):
    mksknn.show_config()
    printed = capsys.readouterr().out
    assert printed.startswith(f"mksknn {mksknn.__version__}")
    assert "sparse graphs:" in printed


@pytest.mark.parametrize("graph", ["mutual", "symmetric"])
def test_select_k_is_the_best_of_the_curve(thyroid, graph):
    X, y = thyroid
    best = mksknn.select_k(X, y, graph=graph, k_max=30)
    curve = mksknn.evidence_curve(X, y, graph=graph, k_max=30)
    assert best.certified
    assert best.k == curve.best_k
    assert best.log_evidence == pytest.approx(curve.log_evidence.max(), rel=1e-8)


def test_backends_that_need_no_extra_agree(thyroid):
    X, y = thyroid
    dense = mksknn.evidence_curve(X, y, ks=[2, 5, 9], backend="lapack")
    sparse = mksknn.evidence_curve(X, y, ks=[2, 5, 9], backend="superlu")
    np.testing.assert_allclose(sparse.log_evidence, dense.log_evidence, rtol=1e-8)


def test_sparse_graphs():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(1_500, 2))
    y = (X.sum(axis=1) > 1.0).astype(int)
    best = mksknn.select_k(X, y, k_max=4)
    assert best.certified
    assert 1 <= best.k <= 4


def test_predict(thyroid):
    X, y = thyroid
    test = np.arange(len(y)) % 5 == 4
    best = mksknn.select_k(X[~test], y[~test])
    found = mksknn.predict(X[~test], y[~test], X[test], best)
    assert np.mean(found.label == y[test]) > 0.85
    np.testing.assert_allclose(found.probability.sum(axis=1), 1.0)
    averaged = mksknn.predict(X[~test], y[~test], X[test], mksknn.posterior(X[~test], y[~test]))
    assert np.mean(averaged.label == y[test]) > 0.85


def test_regression_and_leave_one_out():
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 6.0, (120, 1))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=120)
    best = mksknn.select_k(X, y)
    found = mksknn.predict(X, y, [[1.5]], best)
    assert found.mean[0] == pytest.approx(np.sin(1.5), abs=0.15)
    assert 0.0 < found.variance[0] < 0.1
    curve = mksknn.loo_curve(X, y)
    assert curve.error.min() < 0.03


def test_graph_and_neighbours():
    X = [[0.0], [1.0], [3.0]]
    assert mksknn.neighbors(X, 1).indices.ravel().tolist() == [1, 0, 1]
    assert mksknn.knn_graph(X, 1, graph="symmetric").toarray().tolist() == [
        [0, 2, 0],
        [2, 0, 1],
        [0, 1, 0],
    ]
