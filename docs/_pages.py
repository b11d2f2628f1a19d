"""Run the code on the pages: what is shown is what runs, and what it prints is what is shown.

A page is a Markdown file. Its ```python blocks share one namespace and run in order, in a folder
where they may leave figures, beside a copy of examples/estimators.py. A ```text block right after
one holds what the block prints, in doctest's notation (``...`` stands for anything). A block after
``<!-- not run: why -->`` does not run.

    python docs/_pages.py docs/tutorial.md     run it, and write what the blocks print into it
    python docs/_pages.py                      the same with all pages, the README included
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shutil
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parent
_FENCE = re.compile(r"^```(?P<kind>[a-z]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_NOT_RUN = re.compile(r"<!-- not run: [^\n]+ -->\n$")
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Block:
    """A piece of code on a page and what it should print."""

    line: int
    code: str
    expected: str | None
    span: tuple[int, int] | None  # where `expected` is in the page


def pages() -> list[Path]:
    """The pages with code, the README among them."""
    found = [path for path in DOCS.rglob("*.md") if "_build" not in path.parts]
    found = [path for path in found if "generated" not in path.parts]
    return [path for path in sorted([*found, DOCS.parent / "README.md"]) if blocks(path)]


def blocks(page: Path) -> list[Block]:
    """The pieces of code to run on a page."""
    source = page.read_text(encoding="utf-8")
    fences = list(_FENCE.finditer(source))
    found = []
    for fence, after in zip(fences, [*fences[1:], None]):
        if fence["kind"] != "python" or _NOT_RUN.search(source[: fence.start()]):
            continue
        expected = span = None
        if after and after["kind"] == "text" and not source[fence.end() : after.start()].strip():
            expected, span = after["text"], after.span("text")
        line = source.count("\n", 0, fence.start()) + 2
        found.append(Block(line, fence["text"], expected, span))
    return found


def run(page: Path, folder: Path) -> list[tuple[Block, str]]:
    """Run a page's code in a folder and return what each block printed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    namespace = {"__name__": "__main__"}
    found = []
    here = Path.cwd()
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    shutil.copy(DOCS.parent / "examples" / "estimators.py", folder)
    sys.path.insert(0, str(folder.resolve()))
    try:
        for block in blocks(page):
            # the line numbers of a traceback are those of the page
            code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(code, namespace)
            found.append((block, printed.getvalue()))
    finally:
        os.chdir(here)
        sys.path.remove(str(folder.resolve()))
        plt.close("all")
    return found


def difference(block: Block, printed: str) -> str | None:
    """What is wrong with what a block printed, or None."""
    if block.expected is None:
        return f"line {block.line} prints, and the page does not show it:\n{printed}" * bool(
            printed
        )
    checker = doctest.OutputChecker()
    if checker.check_output(block.expected, printed, _FLAGS):
        return None
    example = doctest.Example(block.code, block.expected)
    return f"line {block.line}: " + checker.output_difference(example, printed, _FLAGS)


def fill(page: Path) -> None:
    """Write what the blocks print into the page, unless it says so already."""
    with tempfile.TemporaryDirectory() as folder:
        found = run(page, Path(folder))
    source = page.read_text(encoding="utf-8")
    for block, printed in reversed(found):
        problem = difference(block, printed)
        if problem and block.span is None:
            print(f"{page}: {problem}")
        elif problem:
            start, stop = block.span
            source = source[:start] + _wrap(printed) + source[stop:]
    page.write_text(source, encoding="utf-8")


def _wrap(printed: str) -> str:
    """Break long lines where there is a space; comparing takes any white space for equal."""
    lines = [
        textwrap.wrap(line, 90, subsequent_indent="    ") if len(line) > 90 else [line]
        for line in printed.splitlines()
    ]
    return "".join(f"{piece}\n" for pieces in lines for piece in pieces)


if __name__ == "__main__":
    sys.path.insert(0, str(DOCS.parent))
    for page in [Path(name).resolve() for name in sys.argv[1:]] or pages():
        fill(page)
