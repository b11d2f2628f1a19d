"""Error, calibration and time on sixteen classification and four regression sets, against peers.

    python benchmarks/accuracy.py                        what this commit has not measured yet
    python benchmarks/accuracy.py --protocol 5x2         only that
    python benchmarks/accuracy.py --methods peers        only those of others ("ours": only ours)
    python benchmarks/accuracy.py --sets wine tae --methods learned --again
    python benchmarks/accuracy.py --quick                four small sets, not stored
    python benchmarks/accuracy.py --table                what is stored, on the screen

5 x 2 means two halves, each predicted from the other, with the seeds 0 to 4. Every set has at most
500 rows. Everything, scaling included, is learned inside the fold (categories become columns
before: that needs their list, nothing else). The protocols "noise" (5 folds, ten columns of
normal noise added) and "permuted" (5 folds, labels shuffled) ask what learning a distance
risks; only `averaged` and `learned` take part. Eight more sets, by 5 x 2, had no part in the
design of anything.

Rows are in benchmarks/results/accuracy.json, stored after each set and method. What the same commit
(or the same code, where the tree differs from its commit or has no git) has measured with the same
versions is not measured again unless asked for with --again: an interrupted run goes on where it
stopped. Times are processor seconds of one thread. A machine that is busy when a set begins is
noticed, and that set is then not stored unless --force is given.

The data: see sets.py. R: see methods.py.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
import warnings

import numpy as np
import pandas as pd
from methods import OURS, PEERS, Fitted
from sets import CLASSES, FRESH, VALUES, load
from sklearn.model_selection import KFold, StratifiedKFold
from timing import BUSY, RESULTS, Missing, at_start, put, verdict

from mksknn._threads import limit_threads, one_thread_each

QUICK = ["iris", "tae", "monk-2", "friedman1"]
PROTOCOLS = ("5 folds", "5x2", "noise", "permuted")
JUDGED = ("k-NN by CV", "random forest", "GP", "averaged", "learned")  # by the goals, with 5 folds
RISKS = ("noise", "permuted")  # protocols for what learning a distance may spoil
STORE = RESULTS / "accuracy.json"
BINS = np.linspace(0.0, 1.0, 11)  # of the calibration curve


def splits(X: np.ndarray, y: np.ndarray, protocol: str):
    """Rows to learn from and rows to predict, fold after fold."""
    folder = StratifiedKFold if y.dtype.kind == "i" else KFold
    runs = [(2, seed) for seed in range(5)] if protocol == "5x2" else [(5, 0)]
    for folds, seed in runs:
        yield from folder(folds, shuffle=True, random_state=seed).split(X, y)


def altered(X: np.ndarray, y: np.ndarray, protocol: str) -> tuple[np.ndarray, np.ndarray]:
    """The set as a protocol wants it."""
    rng = np.random.default_rng(0)
    if protocol == "noise":
        return np.column_stack([X, rng.normal(size=(len(X), 10))]), y
    return (X, rng.permutation(y)) if protocol == "permuted" else (X, y)


def methods_of(task: str, protocol: str) -> dict:
    """Which methods take part."""
    if protocol in RISKS:
        return {name: OURS[name] for name in ("averaged", "learned")}
    every = PEERS[task] | OURS
    return every if protocol == "5x2" else {name: every[name] for name in JUDGED if name in every}


# -------------------------------------------------------------------------------------------------
# Scores


def score_classes(probability: np.ndarray, y: np.ndarray) -> dict:
    J = probability.shape[1]
    own = probability[np.arange(len(y)), y]
    sure, right = probability.max(axis=1), probability.argmax(axis=1) == y
    cell = np.clip(np.digitize(sure, BINS) - 1, 0, len(BINS) - 2)
    count = functools.partial(np.bincount, cell, minlength=len(BINS) - 1)
    return {
        "error": float(1.0 - right.mean()),
        # as scikit-learn's log_loss: a probability of 0 counts as the least above it
        "log_loss": float(-np.log(np.maximum(own, np.finfo(float).eps)).mean()),
        "brier": float(((probability - np.eye(J)[y]) ** 2).sum(axis=1).mean()),
        # in ten bins of the probability of the predicted class: how many, its sum, how many right
        "calibration": [count().tolist(), count(sure).tolist(), count(right).tolist()],
    }


def score_values(mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> dict:
    off = y - mean
    return {
        "rmse": float(np.sqrt((off**2).mean())),
        "nlpd": float(0.5 * (np.log(2.0 * np.pi * variance) + off**2 / variance).mean()),
        "coverage": float((np.abs(off) <= 1.959964 * np.sqrt(variance)).mean()),
    }


def one_row_time(fitted: Fitted, rows: np.ndarray) -> float:
    """Processor seconds for one new row, the least of several."""
    if fitted.one_row is not None:
        return fitted.one_row
    times = []
    for row in rows[:10]:
        start = time.process_time()
        fitted(row[None])
        times.append(time.process_time() - start)
    return min(times)


def measure(method, X: np.ndarray, y: np.ndarray, protocol: str, folds: int | None = None) -> dict:
    """A method's scores on a set: means over the folds, and two scores of each fold."""
    found = []
    for train, test in list(splits(X, y, protocol))[:folds]:
        start = time.process_time()
        with warnings.catch_warnings():
            # of scikit-learn: classes with fewer members than folds, slow convergence
            warnings.simplefilter("ignore")
            fitted = method(X[train], y[train])
            seconds = time.process_time() - start if fitted.seconds is None else fitted.seconds
            got = fitted(X[test])
            one = one_row_time(fitted, X[test])
        score = score_classes(got, y[test]) if y.dtype.kind == "i" else score_values(*got, y[test])
        found.append(score | {"fit": seconds, "predict_one": one})
    single = [key for key in found[0] if key != "calibration"]
    row = {key: float(np.mean([one[key] for one in found])) for key in single}
    for key in ("fit", "predict_one"):  # the first fold of ours may compile
        row[key] = float(np.median([one[key] for one in found]))
    if "calibration" in found[0]:
        row["calibration"] = np.sum([one["calibration"] for one in found], axis=0).tolist()
    both = ("error", "log_loss") if y.dtype.kind == "i" else ("rmse", "nlpd")
    return row | {"folds": {score: [one[score] for one in found] for score in both}}


# -------------------------------------------------------------------------------------------------
# Store, goals and tables


def read() -> dict:
    return json.loads(STORE.read_text()) if STORE.exists() else {"rows": []}


def _place(row: dict) -> tuple[int, int, int]:
    """When a row's turn is in a run of everything."""
    methods = [*methods_of(row["task"], row["protocol"])]
    return (
        PROTOCOLS.index(row["protocol"]),
        (CLASSES + VALUES + FRESH).index(row["set"]),
        methods.index(row["method"]),
    )


def write(stored: dict) -> None:
    """All at once, so that an interrupted run leaves what was there; rows in the order of a run."""
    STORE.parent.mkdir(exist_ok=True)
    # rows of methods that are no more go with them
    kept = [r for r in stored["rows"] if r["method"] in methods_of(r["task"], r["protocol"])]
    stored["rows"] = sorted(kept, key=_place)
    rows = ",\n".join(" " + json.dumps(row) for row in stored["rows"])
    goals = json.dumps(stored.get("goals", []), indent=1)
    put(STORE, f'{{"rows": [\n{rows}\n],\n"goals": {goals}}}\n')


def goals(rows: list[dict]) -> list[dict]:
    """What the learned distance was to reach, as far as rows for it are stored (5 folds)."""
    by = {(row["protocol"], row["method"], row["set"]): row for row in rows}
    found, ours = [], ("5 folds", "learned")

    def both(names, one, other, score):
        """(set, value, value) where both are stored; none unless all sets are."""
        pairs = [(n, by.get((*one, n)), by.get((*other, n))) for n in names]
        pairs = [(n, a and a[score], b and b[score]) for n, a, b in pairs]
        return [] if any(a is None or b is None for _, a, b in pairs) else pairs

    def say(what, value, at_most):
        found.append(verdict(what, value, at_most=at_most))

    for peer in ("random forest", "GP", "k-NN by CV"):
        if pairs := both(CLASSES, ours, ("5 folds", peer), "log_loss"):
            ratio = sum(a for _, a, _ in pairs) / sum(b for *_, b in pairs)
            say(f"mean log-loss, 16 sets, 5 folds: learned / {peer}", ratio, 1.0)
    if pairs := both(CLASSES, ours, ("5 folds", "random forest"), "error"):
        more = np.mean([a - b for _, a, b in pairs])
        say("mean error, 16 sets, 5 folds: learned - random forest", more, 0.01)
    if pairs := both(CLASSES, ours, ("5 folds", "averaged"), "error"):
        worst = max(pairs, key=lambda pair: pair[1] - pair[2])
        what = f"error, the set where learning harms most ({worst[0]}): learned - not learned"
        say(what, worst[1] - worst[2], 0.01)
    if pairs := both(CLASSES, ("noise", "learned"), ours, "error"):
        more = np.mean([a - b for _, a, b in pairs])
        say("mean error, 16 sets: learned with 10 noise columns - without them", more, 0.01)
    if pairs := both(CLASSES, ("permuted", "learned"), ("permuted", "averaged"), "error"):
        more = np.mean([a - b for _, a, b in pairs])
        say("mean error, 16 sets, permuted labels: learned - not learned", more, 0.01)
    for peer in ("k-NN by CV", "GP"):
        if pairs := both(VALUES, ours, ("5 folds", peer), "rmse"):
            ratio = np.exp(np.mean([np.log(a / b) for _, a, b in pairs]))
            say(f"RMSE, geometric mean over 4 sets, 5 folds: learned / {peer}", ratio, 1.0)
        if pairs := both(VALUES, ours, ("5 folds", peer), "nlpd"):
            more = np.mean([a - b for _, a, b in pairs])
            say(f"negative log predictive density, 4 sets, 5 folds: learned - {peer}", more, 0.0)
    return found


def table(rows: list[dict], task: str, protocol: str) -> str:
    """A line for each set, means and mean ranks below."""
    rows = [row for row in rows if row["task"] == task and row["protocol"] == protocol]
    by = {(row["set"], row["method"]): row for row in rows}
    sets = [s for s in CLASSES + VALUES + FRESH if any(row["set"] == s for row in rows)]
    methods = [m for m in methods_of(task, protocol) if all((s, m) in by for s in sets)]
    if not sets or not methods:
        return ""
    classes = task == "classification"
    scores = ("error", "log_loss", "brier") if classes else ("rmse", "nlpd", "coverage")
    lines = []
    for score in scores:
        values = np.array([[by[s, m][score] for m in methods] for s in sets])
        lines += [
            f"\n{protocol}, {task}, {score}",
            " ".join(["".ljust(14), *(m[:12].rjust(12) for m in methods)]),
        ]
        for s, line in zip(sets, values):
            lines.append(" ".join([s.ljust(14), *(f"{v:12.3f}" for v in line)]))
        lines.append(" ".join(["mean".ljust(14), *(f"{v:12.4f}" for v in values.mean(axis=0))]))
        if score != "coverage":
            ranks = pd.DataFrame(values).rank(axis=1).to_numpy().mean(axis=0)
            lines.append(" ".join(["mean rank".ljust(14), *(f"{v:12.2f}" for v in ranks)]))
    for what in ("fit", "predict_one"):
        seconds = np.array([[by[s, m][what] for m in methods] for s in sets]).mean(axis=0)
        lines.append(" ".join([f"{what}, ms".ljust(14), *(f"{1e3 * v:12.3f}" for v in seconds)]))
    return "\n".join(lines)


def _made_by(row: dict) -> tuple:
    """The code that made a row."""
    about = row["about"]
    return about["commit"], about["versions"]


def run(
    sets,
    protocol: str,
    stored: dict,
    wanted,
    again: bool,
    keep: bool,
    folds=None,
    most=500,
    force=False,
):
    """Measure what is asked for and not there yet."""
    skipped = set()
    for name in sets:
        if name in FRESH and protocol != "5x2":
            continue
        before = at_start(threads=1)
        idle = keep and (before["busy"] <= BUSY or force)
        try:
            X, y = altered(*load(name, most), protocol)
        except Missing as why:
            print(f"SKIPPED: {name}: {why}", flush=True)
            continue
        task = "classification" if y.dtype.kind == "i" else "regression"
        if protocol in RISKS and task == "regression":
            continue
        for label, method in methods_of(task, protocol).items():
            key = {"set": name, "method": label, "protocol": protocol}
            same = [row for row in stored["rows"] if key.items() <= row.items()]
            done = any(_made_by(row) == _made_by({"about": before}) for row in same)
            if not wanted(label) or (done and not again) or label in skipped:
                continue
            row = key | {"task": task, "n": len(X), "d": X.shape[1], "fresh": name in FRESH}
            try:
                row |= measure(method, X, y, protocol, folds)
            except Missing as why:
                print(f"SKIPPED: {label}: {why}", flush=True)
                skipped.add(label)
                continue
            row["about"] = before
            if idle or not keep:
                stored["rows"] = [other for other in stored["rows"] if other not in same] + [row]
            if idle:
                write(stored)
            shown = ("error", "log_loss", "rmse", "nlpd", "fit")
            shown = [f"{key} {row[key]:.3f}" for key in shown if key in row]
            print(f"{protocol:8} {name:14} {label:20} {', '.join(shown)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="a few small sets, not stored")
    parser.add_argument("--smallest", action="store_true", help="40 rows, one fold, not stored")
    parser.add_argument("--protocol", nargs="+", choices=PROTOCOLS, default=PROTOCOLS)
    parser.add_argument("--sets", nargs="+", choices=CLASSES + VALUES + FRESH)
    parser.add_argument("--methods", nargs="+", help="names, or ours, or peers")
    parser.add_argument("--again", action="store_true", help="also what this commit has stored")
    parser.add_argument("--table", action="store_true", help="only show what is stored")
    parser.add_argument("--force", action="store_true", help="store although the machine is busy")
    asked = parser.parse_args()

    def wanted(label: str) -> bool:
        kind = "ours" if label in OURS else "peers"
        return not asked.methods or label in asked.methods or kind in asked.methods

    keep = not (asked.quick or asked.smallest)
    stored = read() if keep else {"rows": []}
    sets = asked.sets or (QUICK if asked.quick else CLASSES + VALUES + FRESH)
    protocols = asked.protocol
    if asked.smallest:
        sets, folds, most, protocols = ["iris", "friedman1"], 1, 40, ["5x2", "noise"]
    elif asked.quick:
        folds, most, protocols = 2, 150, ["5x2"]  # the one of all methods
    else:
        folds, most = None, 500
    if not asked.table:
        with limit_threads(1), one_thread_each():
            for protocol in protocols:
                run(sets, protocol, stored, wanted, asked.again, keep, folds, most, asked.force)
    for protocol in PROTOCOLS:
        for task in PEERS:
            if shown := table(stored["rows"], task, protocol):
                print(shown)
    print()
    stored["goals"] = goals(stored["rows"])
    if keep and stored["rows"] and not asked.table:
        write(stored)


if __name__ == "__main__":
    main()
