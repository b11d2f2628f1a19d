"""The benchmarks' results as a page: `python benchmarks/report.py [file]`, or on the screen.

`--readme` puts the comparisons with peers into the README.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
README = Path(__file__).parents[1] / "README.md"
PEERS = re.compile("sklearn|scikit|GridSearch|NumPy|cKDTree|Metropolis|MCMC|sampler", re.IGNORECASE)


def rows(path: Path) -> list[dict]:
    """The ratios with a goal in a results file, wherever in it they are."""
    return list(_find(json.loads(path.read_text(encoding="utf-8"))))


def _find(data: object):
    if isinstance(data, dict) and {"what", "ratio", "goal", "met"} <= data.keys():
        yield data
    elif isinstance(data, dict):
        for value in data.values():
            yield from _find(value)
    elif isinstance(data, list):
        for value in data:
            yield from _find(value)


def table(found: list[dict]) -> str:
    """A Markdown table of ratios."""
    lines = ["| what | ratio | goal | |", "|---|---:|---:|---|"]
    for row in found:
        verdict = "met" if row["met"] else "**missed**"
        what = str(row["what"]).replace("|", "\\|")
        lines.append(f"| {what} | {row['ratio']:.3g} | {row['goal']} | {verdict} |")
    return "\n".join(lines)


def report() -> str:
    """One section per benchmark script that has left results."""
    sections, total, met = [], 0, 0
    for path in sorted(RESULTS.glob("*.json")):
        found = rows(path)
        if found:
            sections.append(f"## `benchmarks/{path.stem}.py`\n\n{table(found)}\n")
            total += len(found)
            met += sum(row["met"] for row in found)
    summary = f"{met} of {total} goals are met by the results that are stored here.\n"
    return "\n".join([summary, *sections])


def compare(row: dict) -> tuple[str, str, float]:
    """What was done, by what else, and how many times as fast mksknn was.

    Rows say "task: this / that" or "that / our call"; one of the two sides is mksknn.
    """
    task, _, sides = row["what"].rpartition(": ")
    left, right = sides.split(" / ", 1)
    if "mksknn" in left:
        return task, right, 1.0 / row["ratio"]
    return task or right, left, row["ratio"]


def write_readme() -> None:
    """Replace what is between the marks in the README."""
    found = [row for path in sorted(RESULTS.glob("*.json")) for row in rows(path)]
    lines = ["| task | compared with | mksknn is faster by a factor of |", "|---|---|---:|"]
    for row in found:
        if PEERS.search(row["what"]):
            task, peer, faster = compare(row)
            shown = f"{faster:,.0f}" if faster >= 10 else f"{faster:.2g}"
            lines.append(f"| {task} | {peer} | {shown} |")
    source = README.read_text(encoding="utf-8")
    pattern = re.compile(r"(<!-- speed: [^\n]*-->\n).*?(<!-- end of speed -->)", re.DOTALL)
    body = "\n" + "\n".join(lines) + "\n\n"
    README.write_text(pattern.sub(lambda m: m[1] + body + m[2], source), encoding="utf-8")


def main() -> None:
    """Write the report to the file named, or print it."""
    if "--readme" in sys.argv:
        write_readme()
    elif len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(report(), encoding="utf-8")
    else:
        print(report())


if __name__ == "__main__":
    main()
