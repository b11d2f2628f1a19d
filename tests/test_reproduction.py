"""The reproduction of the paper in its quick mode: what it selects, counts and writes."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import mksknn
from mksknn import datasets

ROOT = Path(__file__).resolve().parents[1]


def _load_script():
    path = ROOT / "examples" / "reproduce_paper.py"
    spec = importlib.util.spec_from_file_location("reproduce_paper", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pytest.importorskip("matplotlib")
paper = _load_script()


# ---------------------------------------------------------------------------------------------
# What is published


@pytest.mark.parametrize("table", [paper.TABLE_2, paper.TABLE_4])
def test_published_means_of_k_are_those_of_the_ten_folds(table):
    for ks, mean in table.values():
        assert len(ks) == 10
        assert np.mean(ks) == pytest.approx(mean)


def test_published_rates_are_counts_of_201():
    for rate, _ in paper.TABLE_1.values():
        assert round(201 * rate) / 201 == pytest.approx(rate, abs=5e-7)


def test_published_pima_rows_are_possible_in_folds_of_20():
    """With divisor 9 the squares of ten counts of errors must add up to a whole number."""
    for mean, deviation in paper.TABLE_3.values():
        total = 200 * mean
        squares = 9 * (20 * deviation) ** 2 + total**2 / 10
        assert total == pytest.approx(round(total))
        assert squares == pytest.approx(round(squares), abs=2e-3)


def test_published_spot_checks():
    assert len(paper.TABLE_1) == len(paper.TABLE_5) == 11
    assert paper.TABLE_1["BSkNN-I"] == (0.089552, 2)
    assert paper.TABLE_2["BMkNN (binary)"][0][1] == 108
    assert paper.TABLE_3["MkNN (B k)"] == (0.25500, 0.089598)
    assert paper.TABLE_4["MkNN"][0][6] == 60
    assert paper.TABLE_5["SkNN (B-II k)"] == (0.037446, 0.043098)


# ---------------------------------------------------------------------------------------------
# What comes out


def test_quick_mode(tmp_path):
    """All in one test, so that the workers of a parallel run do not each run the script."""
    results = paper.reproduce(tmp_path, splits=1, say=lambda text: None)
    for check in (
        check_sinc_rows,
        check_sinc_curves_lie_between_the_tie_rules,
        check_fixed_values_do_not_select_the_published_k,
        check_starting_values_are_moot,
        check_every_published_row_has_ours_beside_it,
        check_number_outside_is_the_number_of_marks,
        check_both_formulations_have_all_rows,
        check_beyond_the_paper,
        check_output_files,
    ):
        check(results, tmp_path)


def check_sinc_rows(results, folder):
    rows = results["Sinc3C"]["rows"]
    assert [*rows] == [*paper.TABLE_1]
    assert (rows["SkNN"]["k"], rows["SkNN"]["errors"]) == (5, 13)
    assert rows["BMkNN-I"]["k"] == 1 and rows["BMkNN-I"]["at_bound"]
    assert rows["BSkNN-I"]["k"] == 2 and not rows["BSkNN-I"]["at_bound"]
    assert rows["MkNN (B-I k)"]["errors"] == 6
    assert rows["SkNN (B-II k)"]["at_published_k"] == 6
    for row in rows.values():
        low, high = row["range"]
        assert low <= row["at_published_k"] <= high


def check_sinc_curves_lie_between_the_tie_rules(results, folder):
    for curve in results["Sinc3C"]["loo"].values():
        assert (curve["low"] <= curve["errors"]).all()
        assert (curve["errors"] <= curve["high"]).all()


@pytest.mark.parametrize("graph", ["mutual", "symmetric"])
def test_formulations_give_equal_labels_at_equal_k(graph):
    data = datasets.make_sinc3c()
    for k in (1, 2, 3, 5, 8, 20):
        labels = []
        for formulation in ("I", "II"):
            found = mksknn.select_k(data.X, data.y, graph=graph, formulation=formulation, ks=[k])
            labels.append(mksknn.predict(data.X, data.y, data.X_test, found, ties="lowest").label)
        np.testing.assert_array_equal(*labels)


def check_fixed_values_do_not_select_the_published_k(results, folder):
    pima = results["Pima.tr"]
    assert (pima["rows"]["BMkNN (binary), fixed"]["ks"] == 1).all()
    fixed, published, _, _, optimum = pima["fixed"]
    assert (fixed["k"], published["k"], optimum["k"]) == (1, 97, 39)
    assert published["log_evidence"] < fixed["log_evidence"] < optimum["log_evidence"]
    assert fixed["log_evidence"] == pytest.approx(-4376.57, abs=0.01)
    assert optimum["log_evidence"] == pytest.approx(-255.763, abs=0.001)


def check_starting_values_are_moot(results, folder):
    for row in results["starts"]:
        assert row["optimum"] > row["at_start"]
        if row["climbed"] is not None:
            assert row["climbed"][0] <= row["optimum"] + 1e-6
    reached = [
        abs(row["climbed"][0] - row["optimum"]) < 1e-3
        for row in results["starts"]
        if row["climbed"]
    ]
    assert sum(reached) >= 4


def check_every_published_row_has_ours_beside_it(results, folder):
    page = (folder / "index.md").read_text(encoding="utf-8")
    for name, experiment in paper.EXPERIMENTS.items():
        assert experiment.published_k.keys() <= results[name]["rows"].keys()
        for method, (mean, deviation) in experiment.published_error.items():
            assert f"| {method} " in page
            assert f"{mean:.4f} ± {deviation:.4f}" in page


def check_number_outside_is_the_number_of_marks(results, folder):
    k, error = paper.totals(results, fixed=False)
    k_fixed, error_fixed = paper.totals(results, fixed=True)
    assert (k + error, k_fixed + error_fixed) != (0, 0)
    for name, experiment in paper.EXPERIMENTS.items():
        rows = results[name]["rows"]
        marked = [
            line.split("|")[1].strip()
            for line in paper.error_table(name, rows).splitlines()
            if "outside" in line and ", fixed" not in line
        ]
        assert marked == results[name]["scalings"]["standardised"]["error"]
        assert set(marked) <= set(experiment.published_error)
    assert f"**Altogether {k + error} of 30 published means are outside**" in results["page"]


def check_both_formulations_have_all_rows(results, folder):
    rows = results["New Thyroid"]["rows"]
    assert np.mean(rows["BSkNN-I"]["ks"] == rows["BSkNN-II"]["ks"]) >= 0.8
    for row in rows.values():
        assert 0.0 <= row["error"]["mean"] <= 0.2


def check_beyond_the_paper(results, folder):
    for name in paper.EXPERIMENTS:
        rows = results[name]["rows"]
        for method in paper.BEYOND:
            assert 0 < rows[method]["log_loss"]["mean"] < 0.7
            assert method in results["page"]


def check_output_files(results, folder):
    names = ["figure-1", "figure-2", "figure-3", "errors", "k-pima-tr", "k-new-thyroid"]
    for name in names:
        assert (folder / f"{name}.png").stat().st_size > 5000
        assert f"({name}.png)" in results["page"]
    stored = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert stored["Sinc3C"]["rows"]["SkNN"]["errors"] == 13
    assert str(ROOT) not in results["page"]


def test_page_is_as_the_script_writes_it():
    """The page in docs comes from the full mode: same published numbers, same rows."""
    folder = ROOT / "docs" / "reproduction"
    if not (folder / "results.json").exists():
        pytest.skip("the results are not part of this tree")
    assert "reproduce_paper.py --full" in (folder / "index.md").read_text(encoding="utf-8")
    stored = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert stored["splits"] == 10
    fresh = paper.plain(paper.run_sinc())
    for name, curve in fresh.pop("evidence").items():
        kept = stored["Sinc3C"]["evidence"][name]["log_evidence"]
        np.testing.assert_allclose(kept, curve["log_evidence"], rtol=1e-5)
    del stored["Sinc3C"]["evidence"]
    assert stored["Sinc3C"] == fresh


# ---------------------------------------------------------------------------------------------
# Parts


def test_leave_one_out_votes_agree_with_the_library():
    data = datasets.load_new_thyroid()
    X, codes = paper.standardise(data.X)[::3], data.y[::3]
    for graph in paper.NAMES:
        low, high = paper.error_range(paper.votes(X, codes, graph), codes)
        errors = np.rint(mksknn.loo_curve(X, codes, graph=graph).error * len(codes))
        assert (low <= errors).all() and (errors <= high).all()
        clear = low == high
        assert clear.any() and (errors == low)[clear].all()


def test_literal_votes_are_those_of_a_new_point():
    data = datasets.make_sinc3c()
    for graph in paper.NAMES:
        votes = paper.votes(data.X, data.y, graph, literal=True)
        for i, k in [(0, 1), (7, 1), (20, 3), (31, 7), (58, 4)]:
            rest = np.arange(len(data.y)) != i
            args = (data.X[rest], data.y[rest], data.X[[i]])
            mean = mksknn.predict(*args, k=k, graph=graph).mean[0]
            total = max(votes[i, :, k - 1].sum(), 1.0)
            np.testing.assert_allclose(mean, votes[i, :, k - 1] / total, atol=1e-12)


def test_sklearn_row_is_a_grid_search():
    pytest.importorskip("sklearn")
    from sklearn.model_selection import GridSearchCV, StratifiedKFold
    from sklearn.neighbors import KNeighborsClassifier

    data = datasets.load_pima()
    X, ks = paper.standardise(data.X), [1, 2, 6, 13, 40, 75]
    inner = StratifiedKFold(10, shuffle=True, random_state=3)
    search = GridSearchCV(KNeighborsClassifier(), {"n_neighbors": ks}, cv=inner).fit(X, data.y)
    accuracy = paper.sklearn_accuracy(X, data.y, 3)
    np.testing.assert_allclose(accuracy[np.array(ks) - 1], search.cv_results_["mean_test_score"])
    assert paper.sklearn_knn(X, data.y, X[:3], 3)[0] == 1 + accuracy.round(12).argmax()


def test_folds_partition_the_points():
    tests = [test for _, test in paper.folds(215, 4)]
    assert sorted(len(test) for test in tests) == [21] * 5 + [22] * 5
    np.testing.assert_array_equal(np.sort(np.concatenate(tests)), np.arange(215))
    for train, test in paper.folds(215, 4):
        assert len(np.intersect1d(train, test)) == 0 and len(train) + len(test) == 215
