"""The estimators in examples/: scikit-learn's own checks, and its tools around them."""

import importlib.util
import os
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[1]
SOURCE = ROOT / "examples" / "estimators.py"
if not SOURCE.exists():
    pytest.skip("the examples are not here", allow_module_level=True)
pytest.importorskip("sklearn", minversion="1.6")

from sklearn.base import clone  # noqa: E402
from sklearn.calibration import CalibrationDisplay  # noqa: E402
from sklearn.datasets import load_diabetes  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator  # noqa: E402

import mksknn  # noqa: E402

spec = importlib.util.spec_from_file_location("estimators", SOURCE)
estimators = importlib.util.module_from_spec(spec)
sys.modules["estimators"] = estimators  # pickle looks there
spec.loader.exec_module(estimators)
EvidenceKNNClassifier = estimators.EvidenceKNNClassifier
EvidenceKNNRegressor = estimators.EvidenceKNNRegressor

THYROID = mksknn.datasets.load_new_thyroid()


def test_scikit_learns_checks_without_one_skipped():
    """In a process of its own: one check asks for SCIPY_ARRAY_API before SciPy is imported."""
    code = (
        "from estimators import EvidenceKNNClassifier, EvidenceKNNRegressor\n"
        "from sklearn.utils.estimator_checks import check_estimator\n"
        "for estimator in (EvidenceKNNClassifier(), EvidenceKNNRegressor()):\n"
        "    found = check_estimator(estimator, on_skip=None)\n"
        "    print(len(found), {one['status'] for one in found})\n"
    )
    folders = os.pathsep.join([str(ROOT), str(SOURCE.parent)])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": folders, "SCIPY_ARRAY_API": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        count, status = line.split(" ", 1)
        assert int(count) > 40 and status == "{'passed'}", done.stdout


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize(
    "options",
    [
        {"graph": "mutual", "criterion": "loo"},
        {"graph": "auto", "criterion": "loo_log", "k_max": 8},
        {"criterion": "loo_log", "average": True},
        {"average": True, "k_max": 12},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
@pytest.mark.parametrize("kind", [EvidenceKNNClassifier, EvidenceKNNRegressor])
def test_scikit_learns_checks_with_other_parameters(kind, options):
    check_estimator(kind(**options))


def test_the_same_answers_as_the_functions():
    X, y = THYROID.X, np.array(THYROID.class_names)[THYROID.y]
    model = EvidenceKNNClassifier().fit(X[::2], y[::2])
    best = mksknn.select_k(X[::2], y[::2])
    assert model.k_ == best.k
    found = mksknn.predict(X[::2], y[::2], X[1::2], best, ties="lowest")
    np.testing.assert_array_equal(model.predict_proba(X[1::2]), found.probability)
    np.testing.assert_array_equal(model.predict(X[1::2]), found.label)
    assert model.classes_.tolist() == sorted(THYROID.class_names)

    X, y = load_diabetes(return_X_y=True)
    model = EvidenceKNNRegressor(average=True, k_max=40).fit(X[:200], y[:200])
    posterior = mksknn.posterior(X[:200], y[:200], k_max=40)
    found = mksknn.predict(X[:200], y[:200], X[200:], posterior)
    mean, deviation = model.predict(X[200:], return_std=True)
    np.testing.assert_array_equal(mean, found.mean)
    np.testing.assert_array_equal(deviation, np.sqrt(found.variance))
    assert model.k_ == posterior.best_k


def test_pipelines_and_cross_validation():
    model = make_pipeline(StandardScaler(), EvidenceKNNClassifier(average=True, k_max=500))
    assert cross_val_score(model, THYROID.X, THYROID.y, cv=3).mean() > 0.9
    X, y = load_diabetes(return_X_y=True)
    model = make_pipeline(StandardScaler(), EvidenceKNNRegressor(criterion="loo_log"))
    assert cross_val_score(model, X, y, cv=3).mean() > 0.3


def test_grid_search():
    grid = GridSearchCV(
        make_pipeline(StandardScaler(), EvidenceKNNClassifier()),
        {
            "evidenceknnclassifier__graph": ["mutual", "symmetric"],
            "evidenceknnclassifier__metric": ["euclidean", "manhattan"],
        },
        scoring="neg_log_loss",
        cv=3,
    )
    grid.fit(THYROID.X, THYROID.y)
    assert len(grid.cv_results_["params"]) == 4
    assert grid.best_score_ > -0.5


def test_precomputed_distances_are_split_by_rows_and_columns():
    D = np.abs(THYROID.X[:, None] - THYROID.X[None]).sum(axis=2)
    plain = cross_val_score(EvidenceKNNClassifier(metric="manhattan"), THYROID.X, THYROID.y, cv=3)
    given = cross_val_score(EvidenceKNNClassifier(metric="precomputed"), D, THYROID.y, cv=3)
    np.testing.assert_array_equal(plain, given)


def test_clone_and_pickle():
    model = EvidenceKNNClassifier(graph="mutual", k_max=30)
    copy = clone(model)
    assert copy.get_params() == model.get_params() and not hasattr(copy, "k_")
    model.fit(THYROID.X, THYROID.y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(THYROID.X), model.predict_proba(THYROID.X))


def test_calibration_display():
    pima = mksknn.datasets.load_pima()
    model = make_pipeline(StandardScaler(), EvidenceKNNClassifier()).fit(pima.X[::2], pima.y[::2])
    shown = CalibrationDisplay.from_estimator(model, pima.X[1::2], pima.y[1::2], n_bins=4)
    assert len(shown.prob_true) > 1


def test_several_outputs_and_no_deviations_from_votes():
    X, y = load_diabetes(return_X_y=True)
    Y = np.column_stack([y, -y])[:120]
    model = EvidenceKNNRegressor(k_max=20).fit(X[:120], Y)
    mean, deviation = model.predict(X[120:125], return_std=True)
    assert mean.shape == (5, 2) and deviation.shape == (5,)
    np.testing.assert_allclose(mean[:, 0], -mean[:, 1])
    plain = EvidenceKNNRegressor(criterion="loo").fit(X[:120], y[:120])
    with pytest.raises(ValueError, match="no deviations"):
        plain.predict(X[:3], return_std=True)


def test_criteria_that_average():
    with pytest.raises(ValueError, match="criterion must be 'evidence' or 'loo_log' with average"):
        EvidenceKNNClassifier(criterion="loo", average=True).fit(THYROID.X, THYROID.y)
