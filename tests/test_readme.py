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


def test_accuracy_means_over_the_sets_that_all_have(results):
    def row(name, method, error, log_loss, **more):
        found = {"set": name, "method": method, "error": error, "log_loss": log_loss}
        return found | {"fit": 0.5, "n": 100, "task": "classification"} | more

    rows = [
        row("a", "k-NN by CV", 0.2, 1.0),
        row("a", "evidence", 0.1, 0.4),
        row("b", "k-NN by CV", 0.4, 2.0, n=300),
        row("b", "evidence", 0.3, 0.6, fit=0.1, n=300),
        row("b", "evidence", 0.9, 0.9, protocol="5x2"),
        row("c", "evidence", 0.9, 9.0),
        row("c", "something else", 0.9, 9.0),
        {"set": "d", "method": "evidence", "rmse": 1.0, "task": "regression"},
    ]
    results("accuracy", {"rows": rows})
    table = report.accuracy()
    assert "k by 10-fold cross-validation | 30.0% | 1.500 | 0.5 s |" in table
    assert "highest evidence | 20.0% | 0.500 | 0.3 s |" in table
    assert table.count("%") == 2
    assert "2 real data sets of at most 300 rows" in table.replace("\n", " ")


def test_where_we_are_slower_it_says_so(results):
    rows = [
        RATIO | {"what": "predict, knn, 9 x 9, d=3, k=5: mksknn / cKDTree both ways", "ratio": 0.5},
        RATIO
        | {"what": "predict, mutual, 9 x 9, d=3, k=5: mksknn / cKDTree both ways", "ratio": 2},
        RATIO | {"what": "GridSearchCV over 1..899 (scaled) / select_k, n=1,000", "ratio": 345.1},
        RATIO | {"what": "top 30, n=20 d=3: mksknn / cKDTree(workers=2)", "ratio": 1.02},
        RATIO | {"what": "peak memory of select_k(X, y), in n^2 doubles", "ratio": 2.0},
    ]
    rows[2] |= {"ours": 0.123, "theirs": 42.4}
    results("some", rows)
    table = report.speed(worst_graph=True)
    assert (
        "| `predict`: 9 by 9, 3D | SciPy's `cKDTree`, both ways |  |  | slower: 2 times as" in table
    )
    assert "| 0.12 s | 42 s | 345 times as fast |" in table
    assert "| as fast |" in table
    assert "memory" not in table and ", knn" not in table
    assert "`predict`, knn: 9 by 9, 3D | SciPy's `cKDTree`, both ways |  |  | 2 times as fast" in (
        report.speed(worst_graph=False)
    )
    page = report.page()
    assert page.index("## How fast") < page.index("## Goals of ours")
    assert "5 of 5 are met" in page


def test_first_use(results):
    results("evidence", [{"first use": {"cold": 21.3, "warm": 1.234}}])
    words = " ".join(report.first_use().split())
    assert "took 21 s" in words and "later processes took 1.2 s" in words


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.01234, "0.012 s"), (3.44, "3.4 s"), (42.4, "42 s"), (149, "150 s"), (8183, "2.3 h")],
)
def test_durations(seconds, shown):
    assert report.duration(seconds) == shown


def test_the_first_screen():
    """Who it is for, the table, the figure, the example; then how to install it."""
    order = ["For everyone", "<!-- accuracy", "evidence.png", "```python", "## Install", "## Speed"]
    places = [README.index(one) for one in order]
    assert places == sorted(places)
    assert "shields.io" not in README and "badge" not in README


def test_links_lead_to_files():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        if {"_build", "generated"} & set(page.parts):
            continue
        prose = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose):
            if not re.match(r"https?:", link) and "generated/" not in link:
                assert (page.parent / link).exists(), f"{page}: {link}"
