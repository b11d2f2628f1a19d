"""What the benchmarks have stored, as tables: for the README, the documentation, or a screen.

    python benchmarks/report.py             everything, on the screen
    python benchmarks/report.py FILE        the documentation's page, into a file
    python benchmarks/report.py --readme    the README's tables, between their marks

Nothing is measured here. A table whose results are not stored is left out.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
README = Path(__file__).parents[1] / "README.md"
PEERS = re.compile("sklearn|scikit|GridSearch|NumPy|cKDTree|Metropolis|MCMC|sampler", re.IGNORECASE)
GRAPHS = re.compile(r", (knn|mutual|symmetric)\b")


def load(name: str) -> object:
    """The stored results of a script, None if it has not left any."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def rows(data: object) -> Iterator[dict]:
    """The ratios with a goal, wherever in the results they are."""
    if isinstance(data, dict) and {"what", "ratio", "goal", "met"} <= data.keys():
        yield data
    elif isinstance(data, dict):
        for value in data.values():
            yield from rows(value)
    elif isinstance(data, list):
        for value in data:
            yield from rows(value)


def all_rows() -> dict[str, list[dict]]:
    """{script: its ratios} of all that have some."""
    found = {path.stem: list(rows(load(path.stem))) for path in sorted(RESULTS.glob("*.json"))}
    return {name: those for name, those in found.items() if those}


def markdown(header: list[str], body: list[list[str]], right: int) -> str:
    """A table whose last `right` columns are numbers."""
    left = len(header) - right
    lines = [header, ["---"] * left + ["---:"] * right, *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


# -------------------------------------------------------------------------------------------------
# Against others

WORDS = (  # what the scripts' rows say -> what a reader understands
    (r"^select_k, n=([\d,]*\d)$", r"`select_k`: the best of all k, \1 points"),
    (r"^LOO and log score, all k, n=([\d,]*\d)", r"`loo_curve`: every k, \1 points"),
    (r"^full ranking, n=([\d,]+) d=(\d+)", r"`neighbors`: a full ranking, \1 points, \2D"),
    (r"^top (\d+), n=([\d,]+) d=(\d+)", r"`neighbors`: the nearest \1, \2 points, \3D"),
    (r"^predict(, \w+)?, ([\d,]+) x ([\d,]+), d=(\d+), k=\d+", r"`predict`\1: \3 by \2, \4D"),
    (r"^GridSearchCV over 1\.\.(\d+)", r"`GridSearchCV` over k = 1..\1"),
    (r"^NumPy slogdet and L-BFGS for each k", "NumPy: `slogdet` and L-BFGS for each k"),
    (r"^sklearn brute", "scikit-learn, brute force"),
    (r"^sklearn", "scikit-learn"),
    (r"^cKDTree\(workers=2\)", "SciPy's `cKDTree`, 2 workers"),
    (r"^cKDTree", "SciPy's `cKDTree`,"),
    (r" \(scaled\)$", " *"),
)


def in_words(text: str) -> str:
    """A row's task or peer as the tables show it."""
    for pattern, words in WORDS:
        text = re.sub(pattern, lambda m, words=words: m.expand(words).replace("None", ""), text)
    return text


def compare(row: dict) -> tuple[str, str, float]:
    """What was done, by what else, and how many times as fast mksknn was.

    Rows say "task: this / that" or "that / our call"; one of the two sides is mksknn.
    """
    task, _, sides = row["what"].rpartition(": ")
    left, right = sides.split(" / ", 1)
    if "mksknn" in left:
        return task, right, 1.0 / row["ratio"]
    return task or right, left, row["ratio"]


def times_as_fast(ratio: float) -> str:
    """A ratio in words; where we are slower, it says so."""
    if ratio >= 1.05:
        return f"{ratio:,.0f} times as fast" if ratio >= 10 else f"{ratio:.2g} times as fast"
    if ratio > 0.95:
        return "as fast"
    return f"slower: {1.0 / ratio:.2g} times as long"


def duration(seconds: float) -> str:
    """Seconds, as they are read: 0.012 s, 3.4 s, 140 s, 2.3 h."""
    if seconds >= 5400:
        return f"{seconds / 3600:.2g} h"
    if seconds >= 100:
        return f"{float(f'{seconds:.2g}'):.0f} s"
    return f"{seconds:.2g} s"


def speed(worst_graph: bool) -> str:
    """The comparisons with peers; with `worst_graph` the least favourable of the graphs only."""
    chosen: dict[tuple[str, str], tuple[float, dict]] = {}
    for row in (row for those in all_rows().values() for row in those):
        if not PEERS.search(row["what"]):
            continue
        task, peer, ratio = compare(row)
        key = (GRAPHS.sub("", task) if worst_graph else task, peer)
        if key not in chosen or ratio < chosen[key][0]:
            chosen[key] = ratio, row
    if not chosen:
        return ""
    timed = any("ours" in row for _, row in chosen.values())
    body = []
    for (task, peer), (ratio, row) in chosen.items():
        seconds = [duration(row[side]) if side in row else "" for side in ("ours", "theirs")]
        body.append([in_words(task), in_words(peer), *seconds * timed, times_as_fast(ratio)])
    header = ["task", "compared with", *["mksknn", "the other"] * timed, "mksknn is"]
    return markdown(header, body, right=3 if timed else 1)


# -------------------------------------------------------------------------------------------------
# How good the predictions are

METHODS = {  # of accuracy.json -> what the table calls them
    "k-NN by CV": "scikit-learn's k-NN, k by 10-fold cross-validation",
    "random forest": "scikit-learn's random forest, 300 trees",
    "evidence": "mksknn, the k of highest evidence",
    "posterior": "mksknn, averaged over k by evidence",
    "loo_log": "mksknn, averaged over k by leave-one-out log score",
    "learned": "mksknn, the same with a learned distance",
}


def accuracy() -> str:
    """Means over the classification sets that every method has been run on."""
    stored = load("accuracy")
    if not stored:
        return ""
    kept = {
        (row["set"], row["method"]): row
        for row in stored["rows"]
        if "log_loss" in row and row["method"] in METHODS and row.get("protocol") != "5x2"
    }
    methods = [name for name in METHODS if any(method == name for _, method in kept)]
    names = dict.fromkeys(name for name, _ in kept)
    sets = [name for name in names if all((name, method) in kept for method in methods)]
    if not sets:
        return ""

    def mean(method: str, what: str) -> float:
        return sum(kept[name, method][what] for name in sets) / len(sets)

    body = [
        [
            METHODS[method],
            f"{mean(method, 'error'):.1%}",
            f"{mean(method, 'log_loss'):.3f}",
            duration(mean(method, "fit")),
        ]
        for method in methods
    ]
    table = markdown(["method", "error", "log-loss", "time to fit"], body, right=3)
    most = max(kept[name, methods[0]]["n"] for name in sets)
    words = (
        f"Means over {len(sets)} real data sets of at most {most} rows, each by 5-fold "
        "cross-validation; scaling, k and distance are learned inside the fold. Log-loss judges "
        "the probabilities: lower is better, and being sure and wrong is expensive. The time to "
        "fit includes choosing k."
    )
    return f"{table}\n\n{textwrap.fill(words, 99)}"


def first_use() -> str:
    """How long Numba compiles, once."""
    found = [one["first use"] for one in load("evidence") or [] if "first use" in one]
    if not found:
        return ""
    cold, warm = duration(found[0]["cold"]), duration(found[0]["warm"])
    words = (
        f"Numba compiles on first use: the first `select_k` after an installation took {cold}, "
        f"import included. The result is kept on disk, and later processes took {warm}."
    )
    return textwrap.fill(words, 99)


# -------------------------------------------------------------------------------------------------
# The pages

PARTS = {
    "accuracy": accuracy,
    "speed": lambda: speed(worst_graph=True),
    "first use": first_use,
}


def readme(source: str) -> str:
    """The README with what is stored between the marks."""
    for name, write in PARTS.items():
        pattern = re.compile(rf"(<!-- {name}: [^\n]*-->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        body = write()
        body = f"\n{body}\n\n" if body else ""
        source = pattern.sub(lambda m, body=body: m[1] + body + m[2], source)
    return source


def goals() -> str:
    """A section for each script, its ratios beside the goals they are measured by."""
    sections, total, met = [], 0, 0
    for name, those in all_rows().items():
        body = [
            [
                row["what"].replace("|", "\\|"),
                "met" if row["met"] else "**missed**",
                f"{row['ratio']:,.0f}" if row["ratio"] >= 1000 else f"{row['ratio']:.3g}",
                row["goal"],
            ]
            for row in those
        ]
        table = markdown(["what", "", "ratio", "goal"], body, right=2)
        sections.append(f"### `benchmarks/{name}.py`\n\n{table}\n")
        total += len(those)
        met += sum(row["met"] for row in those)
    summary = f"{met} of {total} are met by the results stored here.\n"
    return "\n".join([summary, *sections])


def page() -> str:
    """For the documentation: what concerns users first."""
    parts = []
    if table := accuracy():
        parts.append(f"## How good\n\n{table}\n")
    if table := speed(worst_graph=False):
        star = "\\* timed at some of the k, and multiplied."
        parts.append(f"## How fast\n\n{table}\n\n{star}\n")
    if words := first_use():
        parts.append(words + "\n")
    parts.append(
        "## Goals of ours\n\nRatios that this project wants to keep, missed ones included: of "
        f"times, or of amounts of memory, each measured in one run.\n\n{goals()}"
    )
    return "\n".join(parts)


def main() -> None:
    """Write what was asked for."""
    if "--readme" in sys.argv:
        README.write_text(readme(README.read_text(encoding="utf-8")), encoding="utf-8")
    elif len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(page(), encoding="utf-8")
    else:
        print(page())


if __name__ == "__main__":
    main()
