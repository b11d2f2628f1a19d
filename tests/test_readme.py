"""The front page: every number between its marks is a stored one, every link leads somewhere."""

import importlib.util
import json
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
if not (ROOT / "benchmarks").exists():
    pytest.skip("the benchmarks are not here", allow_module_level=True)

spec = importlib.util.spec_from_file_location("report", ROOT / "benchmarks" / "report.py")
report = importlib.util.module_from_spec(spec)
spec.loader.exec_module(report)

README = (ROOT / "README.md").read_text(encoding="utf-8")
RATIO = {"goal": ">= 1", "met": True}


@pytest.fixture
def results(tmp_path, monkeypatch):
    """An empty folder in place of the stored results; writes files there."""
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    return lambda name, data: (tmp_path / f"{name}.json").write_text(json.dumps(data))


def between(name, source=README):
    return re.search(rf"<!-- {name}: .*?-->\n(.*?)<!-- end of {name} -->", source, re.S).group(1)


def test_what_is_stored_is_what_is_shown():
    """`make refresh` writes the README again after `make bench`."""
    assert report.readme(README) == README


def test_nothing_stored_leaves_the_tables_out(results):
    source = report.readme(README)
    assert [between(name, source) for name in report.PARTS] == ["", "", ""]


def test_numbers_outside_the_marks_are_few():
    prose = re.sub(r"^```.*?^```", "", README, flags=re.M | re.S)
    for name in report.PARTS:
        prose = prose.replace(between(name), "")
    # versions of software, the size of the set in the figure, and the years of nothing
    numbers = re.findall(r"(?<![\w.-])\d[\d.,]*(?:\s?%|\s?times|\s?s\b)?", prose)
    assert not [one for one in numbers if re.search(r"%|times|s$", one)], numbers


def scored(name, method, error, log_loss, protocol="5 folds", **more):
    """A row of accuracy.json."""
    found = {"set": name, "method": method, "error": error, "log_loss": log_loss, "brier": error}
    bins = [[0] * 9 + [10], [0] * 9 + [9.0], [0] * 9 + [8]]
    found |= {"calibration": bins, "fit": 0.5, "predict_one": 2e-5, "n": 100, "d": 3}
    return found | {"task": "classification", "protocol": protocol} | more


def test_accuracy_means_over_the_sets_that_all_have(results):
    rows = [
        scored("a", "k-NN by CV", 0.2, 1.0),
        scored("a", "evidence", 0.1, 0.4),
        scored("b", "k-NN by CV", 0.4, 2.0, n=300),
        scored("b", "evidence", 0.3, 0.6, fit=0.1, n=300),
        scored("b", "evidence", 0.9, 0.9, protocol="5x2"),
        scored("c", "evidence", 0.9, 9.0),
        scored("c", "something else", 0.9, 9.0),
        {"set": "d", "method": "evidence", "rmse": 1.0, "task": "regression"},
    ]
    rows[-1] |= {"protocol": "5 folds", "nlpd": 1.0, "coverage": 0.9}
    results("accuracy", {"rows": rows})
    table = report.accuracy()
    assert "weights by 10-fold cross-validation | 30.0% | 1.500 | 0.5 s |" in table
    assert "highest evidence | 20.0% | 0.500 | 0.3 s |" in table
    assert table.count("%") == 2
    assert "2 data sets of at most 300 rows, each by 5-fold" in table.replace("\n", " ")
    whole = report.accuracy(tuple(report.METHODS))
    assert "| 20.0% | 0.500 | 0.200 | 10.0% | 0.3 s | 20 µs |" in whole
    assert "By RMSE" not in report.page()  # nobody to compare with


def test_peers_alone_are_no_table(results):
    results("accuracy", {"rows": [scored("a", "k-NN by CV", 0.2, 1.0)]})
    assert report.accuracy() == ""
    assert "How good" not in report.page()


def test_ranks_and_where_we_lose(results):
    rows = []
    for name, ours in (("a", 0.1), ("b", 0.3), ("c", 0.205)):
        rows += [scored(name, "k-NN by CV", 0.2, 0.2), scored(name, "GP", 0.4, 0.4)]
        rows += [scored(name, "learned", ours, ours)]
    results("accuracy", {"rows": rows})
    scores = report.Scores("classification")
    assert scores.ranks("error").tolist() == pytest.approx([4 / 3, 3.0, 5 / 3])
    # Demsar (2006), table 5: q = 2.343 for three methods
    assert scores.critical_difference() == pytest.approx(2.343 * (12 / 18) ** 0.5, rel=1e-3)
    lost = report.losses(scores, "error")
    assert "on 1 of 3 sets:" in lost and "- b: k-NN, CV 0.200, ours 0.300." in lost
    assert "By less, and no reason was looked for: c: k-NN, CV.\n" in lost
    page = report.page()
    assert "| b | **0.200** | 0.400 | 0.300 |" in page
    assert page.index("## How good") < page.index("### Where others are better")


def test_where_we_lose_is_said(results):
    """On how many sets, for each of ours; in how many folds; and the fresh sets by themselves."""
    rows = []
    for name, ours in (("a", 0.1), ("b", 0.3), ("c", 0.205)):
        folds = {"folds": {"error": [0.2, 0.2], "log_loss": [0.2, 0.2]}}
        rows += [scored(name, "k-NN by CV", 0.2, 0.2, **folds)]
        folds = {"folds": {"error": [0.1, 0.5], "log_loss": [0.3, 0.3]}}
        rows += [scored(name, method, ours, ours, **folds) for method in ("evidence", "learned")]
    rows += [scored("d", method, 0.4, 0.4, fresh=True) for method in ("k-NN by CV", "GP")]
    rows += [scored("d", "learned", 0.5, 0.5, fresh=True)]
    rows += [scored("d", method, 0.3, 0.3, protocol="noise") for method in ("learned", "averaged")]
    values = {"rmse": 2.0, "nlpd": 1.0, "coverage": 0.9, "task": "regression"}
    value_rows = [scored("e", method, 0, 0) | values for method in ("linear", "learned")]
    value_rows[1]["rmse"] = 3.0
    for row in value_rows:
        del row["error"]
    results("accuracy", {"rows": rows + value_rows})
    words = " ".join(report.accuracy().split())
    assert "On 1 that had no part in that it has an error of 50.0%" in words
    assert "the best of the others 40.0% (k-NN, CV) and 0.400 (k-NN, CV)." in words
    assert "some other method has fewer errors on 2 of the 3 sets" in words
    assert "and a lower log-loss on 2; of 1 sets with values, another predicts 1 better." in words
    page = report.page()
    assert "On how many of these 1 some other method" in page
    assert "| mksknn, the k of highest evidence | 2 | 2 | 2 |" in page
    assert "- b: k-NN, CV 0.200, ours 0.300 (better in 1 of 2 folds)." in page
    fresh = page.partition("### Sets that had no part in the design")[2]
    assert fresh.count("| 40.0% | 0.400 |") == 2 and fresh.count("- d: k-NN, CV 0.400, ours") == 2
    assert "### d" in report.set_by_set().partition("had no part")[2]
    assert (
        "| 1 sets, ten columns of noise added | 0.300 | 0.300 | 0.300 | 0.300 |" in report.learned()
    )


def test_ranks_that_no_chance_explains(results):
    """Friedman's statistic by its formula: 12 n / (k (k + 1)) (sum of R^2 - k (k + 1)^2 / 4)."""
    from scipy.stats import chi2

    rows = []
    for name, values in {"a": (1, 2, 3), "b": (1, 3, 2), "c": (1, 2, 3), "d": (2, 1, 3)}.items():
        for method, value in zip(("GP", "linear", "learned"), values):
            rows.append(scored(name, method, value / 10, value / 10))
    results("accuracy", {"rows": rows})
    scores = report.Scores("classification")
    ranks = scores.ranks("error")
    assert ranks.tolist() == [1.25, 2.0, 2.75]
    statistic = 12 * 4 / (3 * 4) * (float(ranks @ ranks) - 3 * 4**2 / 4)
    assert scores.friedman("error") == pytest.approx(chi2.sf(statistic, 2))
    assert "with a probability of 0.11 by log-loss" in report.all_alike(scores)


def test_another_default_is_proposed_where_it_is_better(results):
    ways = {"evidence": 0.3, "posterior": 0.29, "loo_log": 0.28, "averaged": 0.25, "learned": 0.2}
    rows = [scored(name, way, value, value) for way, value in ways.items() for name in "ab"]
    results("accuracy", {"rows": rows})
    words = " ".join(report.proposal(report.Scores("classification")).split())
    assert '`posterior(X, y, weights="loo_log")` has the lowest error and log-loss, and' in words
    assert "symmetric" not in words and "| 0.300 | 0.300 |" in words
    graphs = {"evidence, mutual": 0.27, "averaged, mutual": 0.26}
    rows += [scored(name, way, value, value) for way, value in graphs.items() for name in "ab"]
    rows += [scored("a", "evidence, auto", 0.1, 0.1)]  # not on all sets
    results("accuracy", {"rows": rows})
    words = " ".join(report.proposal(report.Scores("classification")).split())
    assert words.endswith('one; both are lower with `select_k(X, y, graph="mutual")`.')
    assert '`posterior(X, y, weights="loo_log")` has the lowest error' in words
    assert 'graph="auto"' not in words


def test_a_missed_goal_looks_missed():
    row = {"ratio": 1.00042, "goal": "<= 1.0", "met": False}
    assert report.number(row) == "1.0004" and report.number(row | {"met": True}) == "1"
    assert report.number(row | {"ratio": 999.7, "goal": ">= 1000"}) == "999.7"
    assert report.number(row | {"ratio": None, "why": "no memory"}) == "no memory"


def test_words_are_not_broken_at_hyphens():
    assert "-\n" not in report.fill("a leave-one-out log-loss " * 40)


@pytest.mark.parametrize("fresh", [False, True])
def test_every_set_on_which_we_lose_has_a_reason(fresh):
    """By hand, after a look at the set: of what is stored, and of no set on which we do not."""
    lost = set()
    for task, scores in {
        "classification": ("error", "log_loss"),
        "regression": ("rmse", "nlpd"),
    }.items():
        for what in scores:
            lines = report.losses(report.Scores(task, fresh), what)
            lost |= set(re.findall(r"^- ([\w-]+): ", lines, re.M))
    assert lost and lost <= report.WHY.keys()


def test_a_table_for_each_set(results):
    rows = [scored(name, "evidence", 0.2, 0.5) for name in "ab"]
    values = {"rmse": 12.3456, "nlpd": 1.0, "coverage": 0.9, "task": "regression"}
    rows += [scored("c", method, 0.2, 0.5) | values for method in ("linear", "evidence")]
    for row in rows[2:]:
        del row["log_loss"]
    rows[-1]["rmse"] = 20
    results("accuracy", {"rows": rows})
    page = report.set_by_set()
    assert page.count("### ") == 3
    assert page.count("100 rows, 3 columns.") == 3
    best = "**20.0%** | **0.500** | **0.200** | **10.0%** | 0.5 s | 20 µs |"
    assert page.count(f"| mksknn, the k of highest evidence | {best}") == 2
    assert "| ridge regression | **12.346** | **1.000** | 90.0% | 0.5 s | 20 µs |" in page


def test_where_we_are_slower_it_says_so(results):
    both = {"ours": 0.123, "theirs": 42.4}
    rows = [
        {"what": "predict, knn, 9 x 9, d=3, k=5: mksknn / sklearn kd_tree", "ratio": 0.5},
        {"what": "predict, mutual, 9 x 9, d=3, k=5: mksknn / sklearn kd_tree", "ratio": 2},
        {"what": "GridSearchCV over 1..899 (scaled) / select_k, n=1,000 d=19", "ratio": 345.1},
        {"what": "NumPy eigvalsh for each k (scaled) / select_k, n=1,000", "ratio": 999},
        {"what": "top 30, n=20 d=3: mksknn / PyNNDescent", "ratio": 1.02, "recall": 0.987},
        {"what": "peak memory of select_k, n=9, in n^2 doubles", "ratio": 2.0, "MB": 3.2},
        {"what": "all k / one dpotrf", "ratio": None, "why": "killed"},
    ]
    rows = [RATIO | row for row in rows]
    rows[:5] = [row | both for row in rows[:5]]
    rows[-1]["met"] = False
    about = {"busy": 0.04, "date": "2026-11-18", "cores": 2, "threads": 2, "machine": "x"}
    about |= {"versions": {"numpy": "2.2"}, "commit": "abc", "processor": "Some CPU"}
    results("some", {"parts": {"one": {"about": about, "found": rows}}})
    table = report.speed(worst=True)
    assert "| `predict`: 9 by 9, 3D | scikit-learn, `kd_tree` | 0.12 s | 42 s | slower: 2" in table
    assert "| 0.12 s | 42 s | 350 times as fast |" in table
    assert "| as fast, within 10% |" in table
    assert "memory" not in table and ", knn" not in table
    assert table.count("`select_k`") == 2 and "| NumPy: `eigvalsh` for each k" in table
    whole = report.speed(worst=False)
    assert "`predict`, knn: 9 by 9, 3D | scikit-learn, `kd_tree` | 0.12 s | 42 s | 2 tim" in whole
    assert "NumPy: `eigvalsh`" in whole
    assert "| PyNNDescent, approximate: 99% of them found | 0.12 s |" in whole
    page = report.page()
    assert page.index("## How fast") < page.index("## Goals of ours")
    assert "6 of 7 are met" in page and "| **missed** | killed |" in page
    assert "| select_k, n=9 | 3 MB |" in page
    words = page.replace("\n", " ")
    assert "(commit abc) on 2 cores (Some CPU)" in words
    assert "at most 4% in use by others at the start of a part: numpy 2.2" in words


@pytest.mark.parametrize(
    ("row", "task"),
    [
        ("select_k, the plane, n=100,000", "`select_k`: the best of all k, 100,000 points, plane"),
        (
            "select_k over 1..60, the plane, n=90",
            "`select_k`: the best of k = 1..60, 90 points, plane",
        ),
    ],
)
def test_tasks_in_words(row, task):
    assert report.in_words(row) == task


def test_rows_of_one_task_stand_together(results):
    both = {"ratio": 2.0, "ours": 1.0, "theirs": 2.0}
    what = ("GridSearchCV over 1..9 / select_k, n=90", "NumPy eigvalsh for each k / select_k, n=90")
    between = "select_k, the plane, n=900: mksknn / GridSearchCV over 1..9"
    results("some", [both | {"what": one} for one in (what[0], between, what[1])])
    lines = report.speed(worst=False).splitlines()[2:]
    assert ["900" in line for line in lines] == [False, False, True]


def test_first_use(results):
    found = {"first use": {"cold": 21.3, "warm": 1.234}}
    results("startup", {"parts": {"example": {"about": {}, "found": found}}})
    words = " ".join(report.first_use().split())
    assert "took 21 s" in words and "later processes took 1.2 s" in words


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.000034, "34 µs"),
        (0.00234, "2.3 ms"),
        (0.01234, "0.012 s"),
        (3.44, "3.4 s"),
        (42.4, "42 s"),
        (149, "150 s"),
        (8183, "2.3 h"),
    ],
)
def test_durations(seconds, shown):
    assert report.duration(seconds) == shown


def test_the_first_screen():
    """Who it is for, the table, the figure, the example; then how to install it."""
    order = ["For everyone", "<!-- accuracy", "evidence.png", "```python", "## Install", "## Speed"]
    places = [README.index(one) for one in order]
    assert places == sorted(places)
    assert "shields.io" not in README and "badge" not in README


def test_words_about_speed_outside_the_marks_are_those_of_what_is_stored():
    """README on the grid search in the plane; pages on one row, on votes, and on many classes."""

    def page(name):
        return " ".join((ROOT / name).read_text("utf-8").split())

    words = page("README.md")
    assert "a grid search over k = 1..60 is quicker from some thousands of points on" in words
    theirs = {row["n"]: row["seconds"] for row in report.part("scale", "grid")["rows"]}
    ours = report.part("scale", "n")
    for graph in ("symmetric", "mutual"):
        for row in ours[f"{graph}, 2-D"]["rows"]:
            assert (row["seconds"] > theirs[row["n"]]) == (row["n"] > 3_162), row
    assert "for which mksknn takes about twice as long at 100,000 points" in words
    same = report.part("scale", "grid")["same k"]["rows"][-1]
    assert same["n"] == 100_000 and 1.5 < same["seconds"] / theirs[100_000] < 2.5
    assert "a new row takes a fraction of a millisecond" in page("docs/index.md")
    single = [row for row in report.part("prediction", "single") if "ours" in row]
    assert single and max(row["ours"] for row in single) < 0.6e-3
    words = page("docs/howto/big_data.md")
    assert "some hundredths of a second for all k of a thousand points" in words
    votes = [row["ours"] for row in report.part("loo", "every")["rows"]]
    assert votes and 0.01 < min(votes) <= max(votes) < 0.1
    assert "64 of them about twice the time of two" in page("docs/howto/many_classes.md")
    seconds = {row["J"]: row["seconds"] for row in report.part("scale", "J")["rows"]}
    assert 1.4 < seconds[64] / seconds[2] < 3.0


def test_words_about_columns_of_noise_are_those_of_what_is_stored():
    """The theory: with columns of noise the learned distance loses most where points are few."""
    words = " ".join((ROOT / "docs" / "theory.md").read_text("utf-8").split())
    assert "With columns of noise it loses most where points are few." in words
    rows = [row for row in report.load("accuracy")["rows"] if row["method"] == "learned"]
    by = {(row["protocol"], row["set"]): row for row in rows}
    pairs = [(by["5 folds", name], row) for (way, name), row in by.items() if way == "noise"]
    lost = sorted(pairs, key=lambda pair: pair[0]["error"] - pair[1]["error"])
    assert len(lost) == 16 and max(row["n"] for row, _ in lost[:2]) < 200


def test_words_about_graphs_are_those_of_what_is_stored():
    """docs/howto/choose_k.md on what the graph of higher evidence predicts."""
    words = " ".join((ROOT / "docs" / "howto" / "choose_k.md").read_text("utf-8").split())
    assert "the symmetric graph, the default, has fewer errors and a lower log-loss than" in words
    assert "averaged over k by leave-one-out log score, the two are about alike" in words
    sets = report.Scores("classification").sets
    by = {
        (r["set"], r["method"]): r
        for r in report.load("accuracy")["rows"]
        if r["protocol"] == "5x2"
    }
    assert len(sets) == 16
    for what in ("error", "log_loss"):
        symmetric, auto, averaged, both = (
            sum(by[name, method][what] for name in sets) / 16
            for method in ("evidence", "evidence, auto", "averaged", "averaged, auto")
        )
        assert symmetric < auto - 0.03 and abs(averaged - both) < 0.01


def test_links_lead_to_files():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        if {"_build", "generated"} & set(page.parts):
            continue
        prose = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose):
            if not re.match(r"https?:", link) and "generated/" not in link:
                assert (page.parent / link).exists(), f"{page}: {link}"
