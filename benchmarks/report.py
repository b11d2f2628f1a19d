"""What the benchmarks have stored, as tables: for the README, the documentation, or a screen.

    python benchmarks/report.py             everything, on the screen
    python benchmarks/report.py FOLDER      the documentation's pages, into a folder
    python benchmarks/report.py --readme    the README's tables, between their marks

Nothing is measured here. A table whose results are not stored is left out.
"""

from __future__ import annotations

import copy
import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import friedmanchisquare, rankdata, studentized_range

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parents[1] / "docs"
README = Path(__file__).parents[1] / "README.md"
GRAPHS = re.compile(r", (knn|mutual|symmetric)\b")


def load(name: str) -> object:
    """The stored results of a script, None if it has not left any."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def part(name: str, which: str) -> object:
    """What a part of a script has stored, None if nothing."""
    stored = load(name)
    found = stored.get("parts", {}).get(which) if isinstance(stored, dict) else None
    return None if found is None else found["found"]


def rows(data: object) -> Iterator[dict]:
    """The ratios, wherever in the results they are."""
    if isinstance(data, dict) and {"what", "ratio"} <= data.keys():
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


def fill(words: str) -> str:
    """Words in lines; none is broken at its hyphen, which would become a space on the page."""
    return textwrap.fill(" ".join(words.split()), 99, break_on_hyphens=False)


def figure(name: str, words: str) -> str:
    """A figure of benchmarks/figures.py, if it has been drawn."""
    return (
        f"![{words}](_static/{name}.png)\n" if (DOCS / "_static" / f"{name}.png").exists() else ""
    )


# -------------------------------------------------------------------------------------------------
# Against others

WORDS = (  # what the scripts' rows say -> what a reader understands
    (r"^select_k, n=([\d,]*\d).*$", r"`select_k`: the best of all k, \1 points"),
    (r"^evidence_curve, n=([\d,]*\d).*$", r"`evidence_curve`: every k, \1 points"),
    (r"^LOO and log score, all k, n=([\d,]*\d)", r"`loo_curve`: every k, \1 points"),
    (
        r"^posterior, k=1\.\.(\d+), ([\w ]+?)(, \w+)?, n=(\d+)",
        r"`posterior`\3: k = 1..\1, \2, \4 points",
    ),
    (
        r"^learn_metric, n=([\d,]*\d) d=(\d+) \(from (\d+) of them\)",
        r"`learn_metric`: \1 points, \2 columns (it learns from \3 of them)",
    ),
    (r"^NCA, GridSearchCV over 1\.\.(\d+)", r"scikit-learn's NCA, `GridSearchCV` over k = 1..\1"),
    (
        r"^select_k, the plane, n=([\d,]*\d)",
        r"`select_k`: the best of all k, \1 points, plane",
    ),
    (
        r"^select_k over 1\.\.(\d+), the plane, n=([\d,]*\d)",
        r"`select_k`: the best of k = 1..\1, \2 points, plane",
    ),
    (r"^full ranking, n=([\d,]+) d=(\d+)", r"`neighbors`: a full ranking, \1 points, \2D"),
    (r"^top (\d+), n=([\d,]+) d=(\d+)", r"`neighbors`: the nearest \1, \2 points, \3D"),
    (r"^one row(, \w+)?, ([\d,]+) x (\d+), k=\d+", r"after `prepare`\1: one row, \2 points, \3D"),
    (
        r"^prepared(, \w+)?, ([\d,]+) x ([\d,]+), d=(\d+), k=\d+",
        r"after `prepare`\1: \3 by \2, \4D",
    ),
    (r"^predict(, \w+)?, ([\d,]+) x ([\d,]+), d=(\d+), k=\d+", r"`predict`\1: \3 by \2, \4D"),
    (r"^GridSearchCV over 1\.\.(\d+)", r"`GridSearchCV` over k = 1..\1"),
    (r"^NumPy eigvalsh for each k", "NumPy: `eigvalsh` for each k, 2 threads"),
    (r"^SciPy cdist, NumPy argsort", "SciPy's `cdist`, NumPy's `argsort`"),
    (r"^one ranking, errors only", "one ranking, votes by `cumsum`: errors only"),
    (
        r"^one ranking a fold, 1\.\.(\d+)",
        r"one ranking a fold, k = 1..\1, votes by `cumsum`: errors only",
    ),
    (r"^R knn\.cv", "R's `knn.cv`, as if threads shared the k: errors only"),
    (r"^Metropolis to ([\d.]+) of p\(k\)", r"Metropolis sampler, compiled, until p(k) is \1 off"),
    (r"^sklearn (\w+)", r"scikit-learn, `\1`"),
    (r"^sklearn", "scikit-learn"),
    (r"^cKDTree", "SciPy's `cKDTree`"),
    (r"^FAISS flat", "FAISS, exhaustive, single precision"),
    (r"^PyNNDescent", "PyNNDescent, approximate"),
    (r" \(scaled\)$", " *"),
)


# The tables begin with what people come for.
ORDER = "select_k evidence_curve posterior loo_curve neighbors prepare predict learn_metric".split()


def place(task: str) -> int:
    """Where in a table a task belongs, by the function that it names."""
    named = [at for at, name in enumerate(ORDER) if f"`{name}`" in task]
    return named[0] if named else len(ORDER)


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
    if ratio >= 1.1:
        digits = float(f"{ratio:.2g}")  # two: the next ones change from run to run
        return f"{digits:,.0f} times as fast" if ratio >= 10 else f"{ratio:.2g} times as fast"
    if ratio > 0.9:
        return "as fast, within 10%"
    return f"slower: {1.0 / ratio:.2g} times as long"


def duration(seconds: float) -> str:
    """Seconds, as they are read: 3.2 ms, 0.12 s, 3.4 s, 140 s, 2.3 h."""
    if seconds >= 5400:
        return f"{seconds / 3600:.2g} h"
    if seconds >= 100:
        return f"{float(f'{seconds:.2g}'):.0f} s"
    if seconds < 0.0001:
        return f"{seconds * 1e6:.2g} µs"
    return f"{seconds:.2g} s" if seconds >= 0.01 else f"{seconds * 1e3:.2g} ms"


def megabytes(amount: float | None) -> str:
    """As they are read."""
    if amount is None:
        return ""
    return f"{amount:,.0f} MB" if amount >= 1.0 else "< 1 MB"


PROGRAMS = ("NumPy", "one ranking")  # what a careful person would write, in rows


def speed(worst: bool) -> str:
    """The comparisons with peers; with `worst` the least favourable graph and library of each
    task, and of programs written for it, without memory.
    """
    chosen: dict[tuple, tuple[float, list[str]]] = {}
    for row in (row for those in all_rows().values() for row in those):
        if "theirs" not in row:
            continue
        task, peer, ratio = compare(row)
        task = in_words(GRAPHS.sub("", task) if worst else task)
        key = (task, any(one in peer for one in PROGRAMS) if worst else peer)
        if key not in chosen or ratio < chosen[key][0]:
            known = f": {row['recall']:.0%} of them found" if "recall" in row else ""
            line = [task, in_words(peer) + known, duration(row["ours"]), duration(row["theirs"])]
            line.append(times_as_fast(ratio))
            if not worst:
                line += map(megabytes, row.get("memory", (None, None)))
            chosen[key] = ratio, line
    header = ["task", "compared with", "mksknn", "the other", "mksknn is"]
    header += [] if worst else ["memory", "the other's"]
    lines = [line for _, line in chosen.values()]
    tasks = [*dict.fromkeys(line[0] for line in lines)]  # rows of one stand together
    lines.sort(key=lambda line: (place(line[0]), tasks.index(line[0])))
    return markdown(header, lines, right=len(header) - 2) if lines else ""


def first_use() -> str:
    """How long Numba compiles, once."""
    found = part("startup", "example")
    if not found:
        return ""
    cold, warm = (duration(found["first use"][name]) for name in ("cold", "warm"))
    return fill(
        f"Numba compiles on first use: the example above took {cold} the first time after an "
        f"installation, import included. The result is kept on disk, and later processes took "
        f"{warm}."
    )


# -------------------------------------------------------------------------------------------------
# How good the predictions are

METHODS = {  # of accuracy.json -> (what a table for each set calls them, and one of all sets)
    "k-NN by CV": ("k-NN, CV", "scikit-learn's k-NN, k and weights by 10-fold cross-validation"),
    "k-NN by CV, log-loss": (
        "k-NN, CV, log-loss",
        "the same, k and weights for low log-loss",
    ),
    "NCA, k-NN by CV": ("NCA, k-NN", "scikit-learn's NCA and k-NN, by 10-fold cross-validation"),
    "NCA, k-NN by CV, log-loss": (
        "NCA, k-NN, log-loss",
        "scikit-learn's NCA and k-NN, k and weights for low log-loss",
    ),
    "R class::knn.cv": ("R `class`", "R's `class::knn`, k by leave-one-out"),
    "random forest": ("forest", "scikit-learn's random forest, 300 trees, leaves by out-of-bag"),
    "GP": ("GP", "scikit-learn's Gaussian process"),
    "linear": ("linear", "a linear model"),
    "evidence": ("evidence", "mksknn, the k of highest evidence"),
    "posterior": ("posterior", "mksknn, averaged over k by evidence"),
    "loo_log": ("LOO", "mksknn, the k of best leave-one-out log score"),
    "averaged": ("averaged", "mksknn, averaged over k by leave-one-out log score"),
    "learned": ("learned", "mksknn, the same with a learned distance"),
    "learned, posterior": (
        "learned, posterior",
        "mksknn, learned distance, averaged over k by evidence",
    ),
}
OURS = ("evidence", "posterior", "loo_log", "averaged", "learned", "learned, posterior")
FRONT = ("k-NN by CV", "k-NN by CV, log-loss", "random forest", "GP", "linear")
FRONT += ("evidence", "averaged", "learned")
# Of ours, those that stand for all; each of the others lies close to one of them.
SHOWN = ("evidence", "averaged", "learned")
PROTOCOLS = {
    "5x2": "5 x 2 cross-validation (two halves, five times)",
    "5 folds": "5-fold cross-validation",
}
# Why another method is better where it is: written by hand, after a look at the set.
_PLANE = "A plane nearly separates the classes, and a linear model need not find it by points."
_COLUMN = "One column decides most cases; trees ask for it first, a distance adds it up."
WHY: dict[str, str] = {
    "wine": _PLANE,
    "wdbc": _PLANE,
    "twonorm": "Two normal clouds: the best border there is is a plane.",
    "satimage": "Planes do well by log-loss; by error the forest, one band of a pixel at a time.",
    "pima": "The best border seems to be a plane, or nearly one.",
    "saheart": "The best border seems to be a plane, or nearly one.",
    "led7digit": (
        "Seven columns of zeros and ones, 85 different rows in 500: most neighbours are ties, and "
        "a linear model has one number for each segment and digit."
    ),
    "australian": _COLUMN,
    "mammographic": _COLUMN,
    "crx": "40 of 46 columns are categories as zeros and ones, which a distance adds up.",
    "tae": "45 of 151 rows repeat an earlier one: weights by distance take the label of that row.",
    "penbased": "Smooth borders with hardly any noise, which a Gaussian process interpolates.",
    "phoneme": "Borders are finer in some places than in others, and one k serves all places.",
    "boston": "A length scale for each column, found together; relevances are searched in turn.",
    "diabetes": "Linear, as far as ten columns tell; the learned distance gains nothing here.",
    "friedman1": "A smooth function: averages of neighbours flatten it, whatever the distance.",
    "diamonds": "The logarithm of the price is nearly linear in the size and the grades.",
    # Of those that had no part in the design.
    "bupa": "Three of six columns have long tails, which stretch a distance.",
    "german": "54 of 61 columns are categories as zeros and ones, which a distance adds up.",
    "hayes-roth": (
        "84 different rows in 160, and a rule: a 4 in any column makes the third class. Trees ask "
        "for a 4, to a distance it is a little more than a 3."
    ),
    "ionosphere": "One class is scattered: a third of it has its nearest neighbour in the other.",
    "tic-tac-toe": "A plane in 27 columns of zeros and ones nearly tells who has won.",
    "vehicle": (
        "Two of four classes lie within each other, and a linear model weighs all 18 columns at "
        "once to tell them apart."
    ),
}


def in_full(method: str, task: str) -> str:
    """What a table of methods calls one."""
    if method == "linear":
        return "logistic regression" if task == "classification" else "ridge regression"
    return METHODS[method][1]


def off(calibration: ArrayLike) -> float:
    """How far stated probabilities are from the share that is right, by the bins they fall into."""
    count, stated, right = np.asarray(calibration)
    return float(np.abs(stated - right).sum() / count.sum())


class Scores:
    """The sets of a task on which all methods have been tried, by one protocol.

    The fresh ones are those that had no part in the design of anything.
    """

    def __init__(self, task: str, fresh: bool = False) -> None:
        stored = load("accuracy") or {"rows": []}
        those = [
            row
            for row in stored["rows"]
            if row["task"] == task and row["method"] in METHODS and row.get("fresh", False) == fresh
        ]
        self.sets: list[str] = []
        self.methods: list[str] = []
        self.protocol = ""
        for protocol in PROTOCOLS:  # the first of those with most sets
            by = {(row["set"], row["method"]): row for row in those if row["protocol"] == protocol}
            methods = [name for name in METHODS if any(name == method for _, method in by)]
            names = dict.fromkeys(name for name, _ in by)
            sets = [name for name in names if all((name, method) in by for method in methods)]
            if (len(sets), len(methods)) > (len(self.sets), len(self.methods)):
                self.sets, self.methods, self.protocol, self.by = sets, methods, protocol, by

    def __bool__(self) -> bool:
        return bool(self.sets)

    def table(self, what: str) -> np.ndarray:
        """A score for each set and method."""
        return np.array([[self.by[s, m][what] for m in self.methods] for s in self.sets])

    def mean(self, method: str, what: str) -> float:
        return float(np.mean([self.by[name, method][what] for name in self.sets]))

    def ranks(self, what: str) -> np.ndarray:
        """Mean rank of each method over the sets, 1 for the best."""
        return rankdata(self.table(what), axis=1).mean(axis=0)

    def without_variants(self) -> Scores:
        """The same with the others and `SHOWN`: copies would only spread the ranks."""
        found = copy.copy(self)
        found.methods = [name for name in self.methods if name in SHOWN or name not in OURS]
        return found

    def best_peer(self, name: str, what: str) -> str:
        """Which of the others is best on a set."""
        peers = [method for method in self.methods if method not in OURS]
        return min(peers, key=lambda method: self.by[name, method][what])

    def lost(self, method: str, what: str) -> list[str]:
        """The sets on which one of the others has a better score, by however little."""
        return [
            name
            for name in self.sets
            if self.by[name, self.best_peer(name, what)][what] < self.by[name, method][what]
        ]

    def critical_difference(self) -> float:
        """Nemenyi's: mean ranks that differ by less do not differ at the level of 5%."""
        count = len(self.methods)
        q = studentized_range.ppf(0.95, count, np.inf) / np.sqrt(2.0)
        return float(q * np.sqrt(count * (count + 1) / (6.0 * len(self.sets))))

    def friedman(self, what: str) -> float:
        """The p-value of all methods being alike, by the ranks of a score."""
        return float(friedmanchisquare(*self.table(what).T).pvalue)

    def calibration_error(self, method: str) -> float:
        """How far stated probabilities are from the share that is right, over all sets."""
        return off(np.sum([self.by[name, method]["calibration"] for name in self.sets], axis=0))


def accuracy(names: tuple[str, ...] = FRONT, fresh: bool = False) -> str:
    """Means over the classification sets that every method has been run on."""
    scores = Scores("classification", fresh)
    if not set(OURS) & set(scores.methods):
        return ""
    more = len(names) > len(FRONT)
    body = [
        [
            in_full(method, "classification"),
            f"{scores.mean(method, 'error'):.1%}",
            f"{scores.mean(method, 'log_loss'):.3f}",
            *[f"{scores.mean(method, 'brier'):.3f}", f"{scores.calibration_error(method):.1%}"]
            * more,
            duration(scores.mean(method, "fit")),
            *[duration(scores.mean(method, "predict_one"))] * more,
        ]
        for method in names
        if method in scores.methods
    ]
    header = ["method", "error", "log-loss", *["Brier", "calibration error"] * more, "time to fit"]
    header += ["one row"] * more
    table = markdown(header, body, right=len(header) - 1)
    most = max(scores.by[name, scores.methods[0]]["n"] for name in scores.sets)
    half = scores.protocol == "5x2"
    words = (
        f"Means over {len(scores.sets)} data sets of at most {most} rows, each by "
        f"{PROTOCOLS[scores.protocol]}{f': at most {most // 2} rows to learn from' * half}; "
        "scaling, k and distance are learned inside the fold. "
        "Log-loss judges the probabilities: lower is better. A probability of 0 for what then "
        "happens counts as 2.2e-16, which is a loss of 36. "
        "The time to fit, processor seconds of one thread, includes choosing k."
    )
    if more:
        words += (
            " *Brier* is the mean squared error of the probabilities, the *calibration error* how "
            "far the probability of the predicted class is from the share of predictions that is "
            "right, in ten bins of it, the predictions on all sets together."
        )
        if "R class::knn.cv" in scores.methods:
            words += (
                " R tells only the winner's share of the votes: the others are given equal parts "
                "of the rest, which its log-loss and Brier depend on."
            )
    parts = [table, fill(words)]
    if not more:
        parts += [words for words in (where_we_lose(scores), on_fresh_sets()) if words]
    return "\n\n".join(parts)


def on_fresh_sets() -> str:
    """How ours and the best of the others do where nothing was decided by the sets."""
    scores = Scores("classification", fresh=True)
    peers = [method for method in scores.methods if method not in OURS]
    if "learned" not in scores.methods or not peers:
        return ""
    few = min(peers, key=lambda one: scores.mean(one, "error"))
    low = min(peers, key=lambda one: scores.mean(one, "log_loss"))
    return fill(
        "How a distance is learned was decided by looking at these sets. On "
        f"{len(scores.sets)} that had no part in that it has an error of "
        f"{scores.mean('learned', 'error'):.1%} and a log-loss of "
        f"{scores.mean('learned', 'log_loss'):.3f}; the best of the others "
        f"{scores.mean(few, 'error'):.1%} ({METHODS[few][0]}) and "
        f"{scores.mean(low, 'log_loss'):.3f} ({METHODS[low][0]})."
    )


def where_we_lose(scores: Scores) -> str:
    """On how many sets the best of the others is better than the best of ours, in a sentence."""
    values = Scores("regression")
    if "learned" not in scores.methods or not set(scores.methods) - set(OURS):
        return ""
    error, loss = (len(scores.lost("learned", what)) for what in ("error", "log_loss"))
    rivals = {scores.best_peer(name, "error") for name in scores.lost("learned", "error")}
    words = (
        f"Even with a learned distance, some other method has fewer errors on {error} of the "
        f"{len(scores.sets)} sets{', not always the same one,' * (len(rivals) > 1)} and a lower "
        f"log-loss on {loss}"
    )
    if values and "learned" in values.methods:
        rmse = len(values.lost("learned", "rmse"))
        words += f"; of {len(values.sets)} sets with values, another predicts {rmse} better"
    return fill(words + ".")


def all_alike(scores: Scores) -> str:
    """What has to be asked before methods are compared in pairs, in a sentence."""
    if len(scores.methods) < 3 or len(scores.sets) < 3:
        return ""
    log_loss, error = (scores.friedman(what) for what in ("log_loss", "error"))
    return (
        f"Were all alike, ranks would differ as much with a probability of {log_loss:.2g} by "
        f"log-loss and of {error:.2g} by error (Friedman's test)."
    )


def losses_of_ours(scores: Scores) -> str:
    """For each of ours that is shown: on how many sets one of the others is better."""
    names = {"error": "error", "log_loss": "log-loss", "brier": "Brier"}
    ours = [method for method in SHOWN if method in scores.methods]
    body = [
        [METHODS[method][1], *(f"{len(scores.lost(method, what))}" for what in names)]
        for method in ours
    ]
    return markdown(["", *names.values()], body, right=3)


def per_set(scores: Scores, what: str, digits: int = 3) -> str:
    """A score on every set, the best in bold, means and ranks below."""
    values = scores.table(what)
    body = []
    for name, line in zip(scores.sets, values):
        cells = [f"{value:.{digits}f}" for value in line]
        if what != "coverage":
            least = f"{line.min():.{digits}f}"
            cells = [f"**{cell}**" if cell == least else cell for cell in cells]
        body.append([name, *cells])
    if what in ("error", "log_loss"):
        body.append(["*mean*", *(f"{value:.{digits}f}" for value in values.mean(axis=0))])
    if what != "coverage":
        body.append(["*mean rank*", *(f"{rank:.1f}" for rank in scores.ranks(what))])
    header = ["", *(METHODS[method][0] for method in scores.methods)]
    return markdown(header, body, right=len(scores.methods))


def losses(scores: Scores, what: str, best: str = "learned", slack: float = 0.01) -> str:
    """Where another method is better than ours by more than `slack`, and why if that is known."""
    if best not in scores.methods or not set(scores.methods) - set(OURS):
        return ""
    lines, close = [], []
    for name in scores.lost(best, what):
        rival = scores.best_peer(name, what)
        theirs, ours = scores.by[name, rival][what], scores.by[name, best][what]
        folds = _folds(scores, name, rival, best, what)
        if ours - theirs > slack * (1.0 if what != "rmse" else theirs):
            words = f"{name}: {METHODS[rival][0]} {theirs:.3f}, ours {ours:.3f}{folds}."
            lines.append(f"- {words} {WHY.get(name, '')}".rstrip())
        else:
            close.append(f"{name}: {METHODS[rival][0]}{folds}")
    named = {"error": "error", "log_loss": "log-loss", "rmse": "RMSE", "nlpd": "log density"}[what]
    said = f"By {named}, on {len(lines)} of {len(scores.sets)} sets"
    less = f"By less, and no reason was looked for: {'; '.join(close)}.\n" if close else ""
    return "\n".join([f"{said}{':' if lines else '.'}", "", *lines, "", less])


def _folds(scores: Scores, name: str, rival: str, best: str, what: str) -> str:
    """In how many of the folds the rival was better."""
    theirs, ours = (scores.by[name, one].get("folds", {}).get(what) for one in (rival, best))
    if not theirs or not ours:
        return ""
    better = sum(one < other for one, other in zip(theirs, ours))
    return f" (better in {better} of {len(theirs)} folds)"


def regression() -> str:
    """The four sets of values."""
    scores = Scores("regression")
    if not scores:
        return ""
    parts = [
        fill(
            f"{len(scores.sets)} sets by {PROTOCOLS[scores.protocol]}: root mean squared error, "
            "negative log predictive density (lower is better), and the share of new values "
            "within their 95% intervals. Methods without error bars got the variance of their "
            "held-out residuals."
        )
    ]
    for what, title in (
        ("rmse", "RMSE"),
        ("nlpd", "negative log density"),
        ("coverage", "within 95%"),
    ):
        parts.append(f"**{title}**\n\n{per_set(scores, what)}")
    lost = losses(scores, "rmse") + "\n" + losses(scores, "nlpd")
    return (
        "\n\n".join(parts)
        + "\n\n### Where others predict values better\n\nThan mksknn with a learned distance, by "
        + f"more than 1% of the RMSE or 0.01 of the log density:\n\n{lost}"
    )


def how_good() -> str:
    """The page's part on quality."""
    scores = Scores("classification")
    if not set(OURS) & set(scores.methods):
        return ""
    parts = [
        f"## How good\n\n{accuracy(tuple(METHODS))}\n",
        figure("ranks", "Mean ranks of the methods with the critical difference"),
        fill(
            f"Mean ranks over the {len(scores.sets)} sets, of the others and three of ours. "
            "Methods whose ranks differ by less than "
            f"{scores.without_variants().critical_difference():.1f} are joined: these sets do not "
            f"tell them apart (Nemenyi's test at 5%). {all_alike(scores.without_variants())}"
        )
        + "\n",
        figure("loss_error", "Log-loss against error on each set"),
        figure("calibration", "How often predictions are right, against how sure they are"),
        "### Every set\n\nAll scores and times of a set are on [a page of their own](sets.md).\n",
        f"**Error**\n\n{per_set(scores, 'error')}\n",
        f"**Log-loss**\n\n{per_set(scores, 'log_loss')}\n",
    ]
    if lost := losses(scores, "log_loss"):
        parts.append(
            f"### Where others are better\n\nOn how many of the {len(scores.sets)} sets some other "
            f"method is better than one of ours, by however little:\n\n{losses_of_ours(scores)}\n\n"
            "Better than mksknn with a learned distance, by more than 0.01, and what we take for "
            f"the reason:\n\n{lost}\n{losses(scores, 'error')}"
        )
    if fresh := Scores("classification", fresh=True):
        parts.append(
            "### Sets that had no part in the design\n\n"
            + fill(
                "How a distance is learned was decided by looking at the sets above "
                "([theory](theory.md)), so that what they say of it is too good. Eight more were "
                "chosen by name, before anything was run on them, and nothing has been decided by "
                "what they said:"
            )
            + f"\n\n{accuracy(tuple(METHODS), fresh=True).partition(chr(10) * 2)[0]}\n\n"
            + f"On how many of these {len(fresh.sets)} some other method is better than one of "
            + f"ours:\n\n{losses_of_ours(fresh)}\n\nBetter than mksknn with a learned distance, "
            + f"by more than 0.01:\n\n{losses(fresh, 'log_loss')}\n{losses(fresh, 'error')}"
        )
    if default := proposal(scores):
        parts.append(f"### Another default?\n\n{default}\n")
    if values := regression():
        parts.append(f"### Values\n\n{values}")
    return "\n".join(parts)


SCORES = {  # of one set: heading -> (of a row, as it is read, whether lower is better)
    "error": (lambda row: row["error"], "{:.1%}", True),
    "log-loss": (lambda row: row["log_loss"], "{:.3f}", True),
    "Brier": (lambda row: row["brier"], "{:.3f}", True),
    "calibration error": (lambda row: off(row["calibration"]), "{:.1%}", True),
    "RMSE": (lambda row: row["rmse"], "{:.3f}", True),
    "negative log density": (lambda row: row["nlpd"], "{:.3f}", True),
    "within 95%": (lambda row: row["coverage"], "{:.1%}", False),
}
SCORED_BY = {"classification": [*SCORES][:4], "regression": [*SCORES][4:]}


def table_of_set(rows: list[dict]) -> str:
    """Each method with its scores and times on one set, the best in bold."""
    task = rows[0]["task"]
    columns = [[in_full(row["method"], task) for row in rows]]
    for heading in SCORED_BY[task]:
        value, form, low = SCORES[heading]
        cells = [form.format(value(row)) for row in rows]
        best = form.format(min(map(value, rows))) if low else None
        columns.append([f"**{cell}**" if cell == best else cell for cell in cells])
    columns += [[duration(row[what]) for row in rows] for what in ("fit", "predict_one")]
    header = ["method", *SCORED_BY[task], "time to fit", "one row"]
    return markdown(header, [list(line) for line in zip(*columns)], right=len(header) - 1)


def set_by_set() -> str:
    """For the documentation: a table for each set, all that is known of each method on it."""
    parts = []
    groups = {
        "Classes": Scores("classification"),
        "Values": Scores("regression"),
        "Sets that had no part in the design": Scores("classification", fresh=True),
    }
    for title, scores in groups.items():
        if scores:
            parts.append(f"## {title}\n\nBy {PROTOCOLS[scores.protocol]}.\n")
        for name in scores.sets:
            those = [scores.by[name, method] for method in scores.methods]
            size = f"{those[0]['n']} rows, {those[0]['d']} columns."
            parts.append(f"### {name}\n\n{size}\n\n{table_of_set(those)}\n")
    return "\n".join(parts)


def proposal(scores: Scores) -> str:
    """Whether what `select_k` and `posterior` do unasked is best, by means over the sets."""
    scored = ("error", "log_loss")
    ways = {
        "evidence": "`select_k(X, y)`, the default",
        "posterior": "`posterior(X, y)`, the default",
        "loo_log": '`select_k(X, y, criterion="loo_log")`',
        "averaged": '`posterior(X, y, weights="loo_log")`',
        "learned": '`posterior(X, y, weights="loo_log", metric=learn_metric(X, y))`',
    }
    if not set(ways) <= set(scores.methods):
        return ""
    graphs = {
        "evidence, mutual": '`select_k(X, y, graph="mutual")`',
        "evidence, auto": '`select_k(X, y, graph="auto")`',
        "averaged, mutual": '`posterior(X, y, weights="loo_log", graph="mutual")`',
        "averaged, auto": '`posterior(X, y, weights="loo_log", graph="auto")`',
    }
    stored = (load("accuracy") or {"rows": []})["rows"]
    by = {(r["set"], r["method"]): r for r in stored if r["protocol"] == scores.protocol}
    missing = {way for way in graphs if any((name, way) not in by for name in scores.sets)}
    graphs = {way: words for way, words in graphs.items() if way not in missing}
    last = {"learned": ways.pop("learned")}
    ways = ways | graphs | last  # the first of equally good ones is named
    means = {
        way: [float(np.mean([by[s, way][what] for s in scores.sets])) for what in scored]
        for way in ways
    }
    body = [[words, f"{means[way][0]:.3f}", f"{means[way][1]:.3f}"] for way, words in ways.items()]
    best = {min(ways, key=lambda way: means[way][at]) for at in (0, 1)}
    plain = {min(list(ways)[:-1], key=lambda way: means[way][at]) for at in (0, 1)}
    words = "Means over the sets, of what can be asked for."
    if len(plain) == 1 and (way := plain.pop()) not in ("evidence", "posterior"):
        words += f" Without learning a distance, {ways[way]} has the lowest error and log-loss"
        words += ", and with one both are lower still." if best == {"learned"} else "."
        words += (
            " For predictions this is what we propose as the default of a later release; until then"
            " the evidence stays, whose answer comes with a proof."
        )
    if graphs:
        pairs = [(way, way.partition(",")[0]) for way in graphs]
        better = [ways[a] for a, b in pairs if max(np.subtract(means[a], means[b])) < 0.0]
        words += " Where no graph is named it is the symmetric one; "
        words += (
            f"both are lower with {' and '.join(better)}." if better else "no other lowers both."
        )
    table = markdown(["asked for", "error", "log-loss"], body, right=2)
    return f"{table}\n\n{fill(words)}"


def learned() -> str:
    """For the theory page: what learning a distance gains and risks."""
    stored = (load("accuracy") or {"rows": []})["rows"]
    by = {(row["protocol"], row["method"], row["set"]): row for row in stored}
    both = ("learned", "averaged")
    ways = {"5 folds": "as they are", "noise": "ten columns of noise added", "permuted": "permuted"}
    classes, values = [], []
    for protocol, words in ways.items():
        sets = {name for known, _, name in by if known == protocol}
        sets = {name for name in sets if all((protocol, one, name) in by for one in both)}
        rows = [[by[protocol, one, name] for one in both] for name in sorted(sets)]
        if scored := [pair for pair in rows if "error" in pair[0]]:
            means = [
                f"{np.mean([pair[at][what] for pair in scored]):.3f}"
                for what in ("error", "log_loss")
                for at in (0, 1)
            ]
            classes.append([f"{len(scored)} sets, {words}", *means])
        values += [
            [pair[0]["set"], *(f"{one['rmse']:#.3g}" for one in pair)]
            for pair in rows
            if "rmse" in pair[0]
        ]
    header = ["", "error, learned", "not learned", "log-loss, learned", "not learned"]
    parts = [markdown(header, classes, right=4)] if classes else []
    if values:
        parts.append(markdown(["", "RMSE, learned", "not learned"], values, right=2))
    return "\n\n".join(parts) + "\n"


# -------------------------------------------------------------------------------------------------
# The pages

PARTS = {
    "accuracy": accuracy,
    "speed": lambda: speed(worst=True),
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


def memory() -> str:
    """What calls add at their peak."""
    body = []
    for row in (row for those in all_rows().values() for row in those):
        if "MB" in row:
            what = row["what"].split(" / ")[0].removesuffix(", in n^2 doubles")
            body.append([what.removeprefix("peak memory of "), megabytes(row["MB"])])
    return markdown(["", "peak"], body, right=1) if body else ""


def number(row: dict) -> str:
    """A ratio as the table of goals shows it: enough digits to see that a goal is missed."""
    ratio = row["ratio"]
    if ratio is None:
        return row.get("why", "")
    if ratio >= 1000:
        return f"{ratio:,.0f}"
    goal = float(row["goal"].split()[-1])
    shown = [f"{ratio:.{digits}g}" for digits in range(3, 7)]
    apart = [one for one in shown if row["met"] or float(one) != goal]
    return [*apart, shown[-1]][0]


def goals() -> str:
    """A section for each script, its ratios beside the goals they are measured by."""
    sections, total, met = [], 0, 0
    for name, those in all_rows().items():
        those = [row for row in those if "goal" in row]
        if not those:
            continue
        body = [
            [
                row["what"].replace("|", "\\|"),
                "met" if row["met"] else "**missed**",
                number(row),
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


def circumstances() -> str:
    """On what the results were measured."""
    stored = [load(path.stem) for path in sorted(RESULTS.glob("*.json"))]
    parts = [
        one for file in stored if isinstance(file, dict) for one in file.get("parts", {}).values()
    ]
    if not parts:
        return ""
    every = [one["about"] for one in parts]
    newest = max(every, key=lambda about: about["date"])
    versions = ", ".join(f"{name} {version}" for name, version in newest["versions"].items())
    busy = max(about["busy"] for about in every)
    return fill(
        f"Speed was measured {_when(every)} on "
        f"{newest['cores']} cores ({newest.get('processor') or newest['machine']}), "
        f"{newest['threads']} threads, at most {busy:.0%} in use by others at the start of a part: "
        f"{versions}.{_of_predictions()}"
    )


def _of_predictions() -> str:
    """When the rows of accuracy.json were made, and from what."""
    every = [row["about"] for row in (load("accuracy") or {"rows": []})["rows"] if "about" in row]
    if not every:
        return ""
    return f" Predictions were scored {_when(every)}."


def _when(every: list[dict]) -> str:
    """On which days, and from which commits."""
    days = sorted({about["date"] for about in every})
    commits = ", ".join(sorted({about["commit"] for about in every if "commit" in about}))
    when = f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"
    return f"{when} (commit {commits})"


def page() -> str:
    """For the documentation: what concerns users first."""
    parts = []
    if table := how_good():
        parts.append(table)
    if table := speed(worst=False):
        star = fill(
            "\\* timed for some of the k or of the steps, and multiplied. Memory is what a call, "
            "its result included, adds at its peak to what its process and the workers of that "
            "process held before."
        )
        drawn = figure("time", "Seconds to choose k against the number of points")
        parts.append(f"## How fast\n\n{drawn}\n{table}\n\n{star}\n")
    if words := first_use():
        parts.append(words.replace("the example above", "the README's example") + "\n")
    if table := memory():
        parts.append(f"## How much memory\n\nLarge calls, in a process of their own.\n\n{table}\n")
    if words := circumstances():
        parts.append(words + "\n")
    parts.append(
        "## Goals of ours\n\nRatios that this project wants to keep, missed ones included: of "
        "times, of errors, or of amounts of memory, each measured in one run.\n\n" + goals()
    )
    return "\n".join(parts)


PAGES = {"benchmarks": page, "sets": set_by_set, "learned": learned}


def main() -> None:
    """Write what was asked for."""
    if "--readme" in sys.argv:
        README.write_text(readme(README.read_text(encoding="utf-8")), encoding="utf-8")
    elif len(sys.argv) > 1:
        for name, write in PAGES.items():
            (Path(sys.argv[1]) / f"{name}.md").write_text(write(), encoding="utf-8")
    else:
        print(page())


if __name__ == "__main__":
    main()
