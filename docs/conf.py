"""Sphinx's settings. Building runs the pages and the examples, whose figures the pages show."""

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

from sphinx.util import logging

DOCS = Path(__file__).parent
ROOT = DOCS.parent
GENERATED = DOCS / "generated"
sys.path[:0] = [str(ROOT), str(DOCS)]

import _pages  # noqa: E402

import mksknn  # noqa: E402

project = "mksknn"
author = "mksknn developers"
copyright = "mksknn developers"
version = release = mksknn.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_parser",
    "_mathml",
]
exclude_patterns = ["_build", "_vendor", "generated/parts"]
templates_path = ["_templates"]
nitpicky = False

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
numpydoc_xref_param_type = False

html_theme = "furo"
html_title = f"mksknn {version}"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_show_sphinx = False
html_copy_source = False
pygments_style = "friendly"

# MathJax as tools/mathjax.sh leaves it. Without it, MathML: readable, but browsers do not stretch
# its brackets unless the reader has a mathematical font.
MATHJAX = DOCS / "_vendor" / "mathjax" / "tex-svg.js"
html_math_renderer = "mathjax" if MATHJAX.exists() else "mathml"
if MATHJAX.exists():
    html_static_path.append("_vendor")
    mathjax_path = "mathjax/tex-svg.js"
else:
    logging.getLogger(__name__).info("no MathJax in docs/_vendor: formulas become MathML")
mathjax3_config = {"svg": {"displayAlign": "left", "displayIndent": "2em", "scale": 0.96}}


def _sources() -> bytes:
    """A digest of everything that a figure depends on, besides its page."""
    files = sorted([*ROOT.glob("mksknn/**/*.py"), *ROOT.glob("examples/*.py")])
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).digest()


def _run_once(name: str, depends: bytes, work) -> None:
    """Do some work in generated/<name>, unless nothing it depends on has changed."""
    folder = GENERATED / name
    stamp = folder / ".stamp"
    digest = hashlib.sha256(depends).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return
    folder.mkdir(parents=True, exist_ok=True)
    if work(folder):
        stamp.write_text(digest)


def _run_page(page: Path, folder: Path) -> bool:
    try:
        problems = [_pages.difference(*one) for one in _pages.run(page, folder)]
    except Exception as error:
        problems = [f"{type(error).__name__}: {error}"]
    problems = [problem for problem in problems if problem]
    for problem in problems:
        logging.getLogger(__name__).warning("%s: %s", page.relative_to(ROOT), problem)
    return not problems


def _run_example(name: str, folder: Path) -> bool:
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), "--out", "."]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    if done.returncode:
        logging.getLogger(__name__).warning("examples/%s.py fails:\n%s", name, done.stderr)
        return False
    (folder / "output.txt").write_text(done.stdout, encoding="utf-8")
    return True


EXAMPLES = (
    "quickstart",
    "regression",
    "many_classes",
    "noisy_labels",
    "distributed",
    "estimators",
)


def _write_contents() -> None:
    """The part of the contents in which scripts may put pages of their own."""
    pages = sorted([*DOCS.glob("scale.*"), *DOCS.glob("reproduction/*.md")])
    names = [page.relative_to(DOCS).with_suffix("").as_posix() for page in pages]
    entries = "\n".join(["theory", *names, "benchmarks", "sets"])
    part = GENERATED / "parts" / "know_more.md"
    part.parent.mkdir(parents=True, exist_ok=True)
    part.write_text(f"```{{toctree}}\n:maxdepth: 1\n:caption: Know more\n\n{entries}\n```\n")


def generate(app) -> None:
    """Everything on the pages that code makes."""
    sources = _sources()
    for page in _pages.pages():
        if page.is_relative_to(DOCS):
            name = "-".join(page.relative_to(DOCS).with_suffix("").parts)
            depends = sources + page.read_bytes()
            _run_once(name, depends, lambda folder, page=page: _run_page(page, folder))
    for name in EXAMPLES:
        work = lambda folder, name=name: _run_example(name, folder)  # noqa: E731
        _run_once(f"example-{name}", sources, work)
    _write_contents()
    report = [sys.executable, str(ROOT / "benchmarks" / "report.py")]
    subprocess.run([*report, str(GENERATED / "parts")], check=True)


def keep_punctuation(app, page, template, context, doctree) -> None:
    """No line begins with the comma after a formula."""
    formula = r'(<span class="math[^"]*">[^<]*</span>[,.;:)]+)'
    body = re.sub(formula, r'<span class="together">\1</span>', context.get("body", ""))
    context["body"] = body


def setup(app) -> None:
    """Called by Sphinx."""
    app.connect("html-page-context", keep_punctuation)
    app.connect("builder-inited", generate, priority=100)
