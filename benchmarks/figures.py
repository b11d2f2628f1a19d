"""The figures of the benchmarks, drawn from what is stored into docs/_static.

    python benchmarks/figures.py

Nothing is measured here. A figure whose results are not stored is left as it is.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FixedLocator, NullLocator
from report import DOCS, METHODS, OURS, SHOWN, Scores, part

COLOURS = {
    "k-NN by CV": "#b3541e",
    "k-NN by CV, log-loss": "#d4763f",
    "NCA, k-NN by CV": "#d99a2b",
    "NCA, k-NN by CV, log-loss": "#e3bb72",
    "R class::knn.cv": "#8c6d46",
    "random forest": "#3a7d44",
    "GP": "#7b4fa3",
    "linear": "#6d6d6d",
    "evidence": "#5aa9d6",
    "posterior": "#4a96cf",
    "loo_log": "#3f83c6",
    "averaged": "#2f73bb",
    "learned": "#0b3c75",
    "learned, posterior": "#2a4f9e",
}
MARKERS = {name: "o" if name in OURS else marker for name, marker in zip(METHODS, "sp^>vDPXoooooo")}


def short(method: str) -> str:
    """A method's name in a figure."""
    name = METHODS[method][0].replace("`", "")
    return f"mksknn, {name}" if method in OURS else name


def _ladder(ax, ranks: np.ndarray, methods: list[str], gap: float, title: str) -> None:
    """Mean ranks along a line, names beside it, bars over those that cannot be told apart."""
    order, count = np.argsort(ranks), len(ranks)
    half = (count + 1) // 2
    ax.set_xlim(0.5, count + 0.5)
    ax.set_ylim(-half - 0.6, 2.6)
    ax.axis("off")
    ax.hlines(0, 1, count, color="black", lw=1)
    for tick in range(1, count + 1):
        ax.vlines(tick, 0, 0.15, color="black", lw=1)
        ax.text(tick, 0.25, str(tick), ha="center", va="bottom", fontsize=8)
    ax.hlines(1.5, 1, 1 + gap, color="black", lw=1.5)
    ax.text(1 + gap / 2, 1.6, f"critical difference {gap:.1f}", ha="center", fontsize=8)
    ax.text(count + 0.5, 1.6, title, ha="right", fontsize=11)
    for place, index in enumerate(order):
        left = place < half
        y = -(place + 1.5) if left else -(count - place + 0.5)
        end = 0.9 if left else count + 0.1
        colour = COLOURS[methods[index]]
        ax.plot([ranks[index], ranks[index], end], [0, y, y], color=colour, lw=1)
        words = f"{short(methods[index])}  {ranks[index]:.1f}"
        beside = {"ha": "right" if left else "left", "va": "center", "fontsize": 9}
        ax.text(end + (-0.08 if left else 0.08), y, words, color=colour, **beside)
    level, reached = -0.35, -1.0
    for start in range(count):
        last = max(i for i in range(count) if ranks[order[i]] - ranks[order[start]] <= gap)
        if last > start and last > reached:  # longest ones only
            ends = ranks[order[start]] - 0.05, ranks[order[last]] + 0.05
            ax.hlines(level, *ends, color="black", lw=3)
            level, reached = level - 0.25, last


def ranks(scores: Scores) -> plt.Figure:
    """The critical-difference diagrams of log-loss and error."""
    figure, axes = plt.subplots(2, 1, figsize=(8.5, 6.0))
    scores = scores.without_variants()
    gap = scores.critical_difference()
    for ax, what, title in zip(axes, ("log_loss", "error"), ("log-loss", "error")):
        _ladder(ax, scores.ranks(what), scores.methods, gap, f"mean rank by {title}")
    figure.subplots_adjust(left=0.2, right=0.8, top=0.98, bottom=0.02)
    return figure


def loss_error(scores: Scores) -> plt.Figure:
    """A panel for each set: good is down and left."""
    columns = 4
    lines = -(-len(scores.sets) // columns)
    size = (9, 2.1 * lines + 0.9)
    figure, axes = plt.subplots(lines, columns, figsize=size, squeeze=False, layout="constrained")
    for ax in axes.flat[len(scores.sets) :]:
        ax.axis("off")
    for ax, name in zip(axes.flat, scores.sets):
        losses = [scores.by[name, method]["log_loss"] for method in scores.methods]
        roof = 2.0 * np.median(losses)  # beyond it, drawn at the edge: certain and wrong
        for method, loss in zip(scores.methods, losses):
            if method in OURS and method not in SHOWN:
                continue
            mark = {"marker": MARKERS[method], "color": COLOURS[method], "ms": 5, "ls": ""}
            error = scores.by[name, method]["error"]
            ax.plot(error, min(loss, roof), label=short(method), clip_on=False, **mark)
        ax.set_ylim(0.9 * min(losses), roof)
        ax.set_title(name, fontsize=9, pad=7)  # clear of the markers on the edge
        ax.tick_params(labelsize=7)
        ax.grid(alpha=0.3)
    figure.supxlabel("error", fontsize=9)
    figure.supylabel("log-loss (markers on the upper edge: beyond it)", fontsize=9)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=5, fontsize=8, frameon=False)
    return figure


def calibration(scores: Scores) -> plt.Figure:
    """How sure a method is against how often it is right, all sets together."""
    figure, ax = plt.subplots(figsize=(5, 4.6))
    ax.plot([0, 1], [0, 1], color="black", lw=0.8, ls=":")
    for method in scores.methods:
        if method in OURS and method not in SHOWN:
            continue
        bins = [scores.by[name, method]["calibration"] for name in scores.sets]
        number, sure, right = np.sum(bins, axis=0)
        kept = number >= 20
        drawn = {"marker": MARKERS[method], "color": COLOURS[method], "ms": 4, "lw": 1.2}
        ax.plot(sure[kept] / number[kept], right[kept] / number[kept], label=short(method), **drawn)
    ax.set_xlabel("probability of the predicted class")
    ax.set_ylabel("share that is right")
    ax.set_xlim(0.25, 1.01)
    ax.set_ylim(0.15, 1.01)
    ax.grid(alpha=0.3)
    ax.legend(fontsize=8, frameon=False)
    figure.tight_layout()
    return figure


def _line(ax, found: dict, over: str, label: str, **how) -> None:
    """Points, the fitted power through them, and that power in the legend."""
    kept = [row for row in found["rows"] if "seconds" in row]
    xs, seconds = (np.array([row[name] for row in kept], float) for name in (over, "seconds"))
    ax.loglog(xs, seconds, "o", ms=4, **how)
    if "exponent" in found:
        power = found["exponent"]
        level = np.exp(np.mean(np.log(seconds[-3:]) - power * np.log(xs[-3:])))
        ax.loglog(
            xs,
            level * xs**power,
            "-",
            lw=1,
            label=f"{label}: ${over_sign(over)}^{{{power:.2f}}}$",
            **how,
        )


def _plain_ticks(ax) -> None:
    """Numbers as they are read, also where an axis spans less than a power of ten."""
    for axis, (low, high) in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
        narrow = high / low
        steps = (1, 1.5, 2, 3, 5, 7) if narrow < 5 else (1, 2, 5) if narrow < 60 else (1,)
        powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.log10(high) + 1)
        ticks = np.outer(powers, steps).ravel()
        axis.set_major_locator(FixedLocator(ticks[(ticks >= low) & (ticks <= high)]))
        axis.set_major_formatter(lambda value, _: f"{value:,g}")
        axis.set_minor_locator(NullLocator())


def over_sign(name: str) -> str:
    """A quantity in a formula."""
    return {"k_max": r"k_\mathrm{max}"}.get(name, name)


def time() -> plt.Figure | None:
    """Seconds to choose k in the plane, ours over all k and over the 60 of the grid search."""
    ours, theirs = part("scale", "n"), part("scale", "grid")
    if not ours or not theirs:
        return None
    figure, ax = plt.subplots(figsize=(5.6, 4))
    _line(ax, theirs, "n", "GridSearchCV, k = 1..60, 10 folds", color=COLOURS["k-NN by CV"])
    if same := theirs.get("same k"):
        _line(ax, same, "n", "select_k, k = 1..60, symmetric", color="#2a9d8f")
    for graph, colour in (("symmetric", COLOURS["learned"]), ("mutual", COLOURS["loo_log"])):
        _line(ax, ours[f"{graph}, 2-D"], "n", f"select_k, all k, {graph}", color=colour)
    ax.set_xlabel("points in the plane")
    ax.set_ylabel("seconds")
    _plain_ticks(ax)
    ax.grid(alpha=0.3)
    ax.legend(fontsize=8, frameon=False)
    figure.tight_layout()
    return figure


def growth() -> plt.Figure | None:
    """Time and memory with n, time with d, J and k_max."""
    ours = part("scale", "n")
    if not ours:
        return None
    figure, axes = plt.subplots(2, 3, figsize=(11, 6.6))
    colours = dict(zip(ours, ("#0b3c75", "#6aa9de", "#b3541e", "#d99a2b")))
    for where, found in ours.items():
        _line(axes[0, 0], found, "n", where, color=colours[where])
        kept = [row for row in found["rows"] if "MB" in row]
        drawn = {"color": colours[where], "label": where, "ms": 4, "lw": 1}
        axes[0, 1].loglog([row["n"] for row in kept], [row["MB"] for row in kept], "o-", **drawn)
    panels = {
        (0, 2): ("dense", "n", "select_k, all k, 10-D"),
        (1, 0): ("d", "d", "select_k, all k"),
        (1, 1): ("J", "J", "select_k, all k"),
    }
    for place, (name, over, label) in panels.items():
        if found := part("scale", name):
            _line(axes[place], found, over, label, color=COLOURS["learned"])
    colours = {"evidence_curve": COLOURS["k-NN by CV"], "select_k": COLOURS["learned"]}
    for call, found in (part("scale", "k_max") or {}).items():
        _line(axes[1, 2], found, "k_max", call, color=colours[call])
    named = {
        "points, sparse graphs": "n",
        "points, sparse graphs: memory": "n",
        "points, dense graphs": "n",
        "dimensions": "d",
        "classes": "J",
        "k_max": "k_max",
    }
    for ax, (title, over) in zip(axes.flat, named.items()):
        if not ax.lines:  # not stored
            ax.set_axis_off()
            continue
        ax.set_title(title, fontsize=10)
        ax.set_xlabel(over)
        ax.set_ylabel("MB" if "memory" in title else "seconds")
        _plain_ticks(ax)
        if ax.get_legend_handles_labels()[0]:
            ax.legend(fontsize=7, frameon=False)
    figure.tight_layout()
    return figure


def draw(folder: Path) -> list[str]:
    """Draw what can be drawn; the names of the figures."""
    scores = Scores("classification")
    figures = {"time": time(), "growth": growth()}
    if scores and len(scores.methods) > 1:
        figures |= {"ranks": ranks(scores), "loss_error": loss_error(scores)}
        figures["calibration"] = calibration(scores)
    figures = {name: figure for name, figure in figures.items() if figure is not None}
    for name, figure in figures.items():
        figure.savefig(folder / f"{name}.png", dpi=110, bbox_inches="tight")
        plt.close(figure)
    return list(figures)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS / "_static"
    print("drawn:", ", ".join(draw(target)) or "nothing")
