"""The benchmarks' results as a page: `python benchmarks/report.py [file]`, or on the screen."""

from __future__ import annotations

import json
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


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


def main() -> None:
    """Write the report to the file named, or print it."""
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(report(), encoding="utf-8")
    else:
        print(report())


if __name__ == "__main__":
    main()
