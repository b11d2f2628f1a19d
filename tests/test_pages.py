"""The code on the documentation's pages and in the README runs and prints what the pages say.

The last part opens the built pages in a real browser. It runs where MKSKNN_SITE names the folder of
the built pages and Chromium is installed: `make docs-check`.
"""

import html
import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading

import pytest

ROOT = pathlib.Path(__file__).parents[1]
if not (ROOT / "docs").exists():
    pytest.skip("the pages are not here", allow_module_level=True)
sys.path.insert(0, str(ROOT / "docs"))

import _pages  # noqa: E402

PAGES = {page.relative_to(ROOT).as_posix(): page for page in _pages.pages()}
# What the reproduction's script writes may be slow to run again, and has tests of its own.
PAGES = {name: page for name, page in PAGES.items() if "reproduction" not in name}


@pytest.mark.parametrize("name", PAGES)
def test_code_on_the_page_runs(name, tmp_path):
    for block, printed in _pages.run(PAGES[name], tmp_path):
        problem = _pages.difference(block, printed)
        assert not problem, problem
    source = PAGES[name].read_text(encoding="utf-8")
    stem = (
        "-".join(PAGES[name].relative_to(ROOT / "docs").with_suffix("").parts)
        if (name.startswith("docs/"))
        else ""
    )
    for figure in re.findall(rf"generated/{re.escape(stem)}/(\w+\.png)", source) if stem else ():
        assert (tmp_path / figure).stat().st_size > 5_000


def test_what_is_there():
    expected = {"README.md", "docs/index.md", "docs/tutorial.md", "docs/ties.md"}
    assert expected <= PAGES.keys()
    assert sum(name.startswith("docs/howto/") for name in PAGES) >= 8


def test_few_blocks_are_not_run():
    sources = [path.read_text(encoding="utf-8") for path in PAGES.values()]
    assert sum(source.count("<!-- not run:") for source in sources) <= 3


def test_a_wrong_page_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n")
    ((block, printed),) = _pages.run(page, tmp_path)
    assert "Expected" in _pages.difference(block, printed)
    page.write_text("```python\nprint(1 + 1)\n```\n")
    ((block, printed),) = _pages.run(page, tmp_path)
    assert "does not show" in _pages.difference(block, printed)
    _pages.fill(page)
    assert page.read_text() == "```python\nprint(1 + 1)\n```\n"
    page.write_text("```python\nprint(1 + 1)\n```\n\n```text\n```\n")
    _pages.fill(page)
    assert page.read_text() == "```python\nprint(1 + 1)\n```\n\n```text\n2\n```\n"


def test_blocks_may_be_excepted(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- not run: why -->\n```python\n1 / 0\n```\n")
    assert _pages.blocks(page) == []


def test_no_page_names_this_machine():
    for path in PAGES.values():
        assert not re.search(r"/(home|root|work|tmp)/", path.read_text(encoding="utf-8")), path


# ---------------------------------------------------------------------------------------------
# In a browser

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
SITE = os.environ.get("MKSKNN_SITE")

# Opens every page in a frame and looks at it as its reader does: which images did not load, what of
# the text is still TeX, which formulas MathJax could not read, which stand out of their boxes.
OPENER = r"""<!doctype html><body><pre id="found"></pre><script>
const TEX = /[$\\]|\b(t?frac|operatorname|mathbf|[lr]vert|textstyle|sim_k|sigma_0)\b|\w[_^]\{/g;
(async () => {
  const found = {};
  for (const page of PAGES) {
    const frame = document.createElement("iframe");
    frame.width = 1000; frame.height = 4000;
    const loaded = new Promise(done => { frame.onload = done; });
    frame.src = page;
    document.body.append(frame);
    await loaded;
    const seen = frame.contentDocument;
    const mathjax = frame.contentWindow.MathJax;
    if (mathjax) await mathjax.startup.promise;
    const images = [...seen.images];
    const formulas = [...seen.querySelectorAll("div.math")];
    const cut = formula => {
      const box = formula.getBoundingClientRect();
      return [...formula.querySelectorAll("mjx-container > svg, div.math > math")].some(one => {
        const inner = one.getBoundingClientRect();
        return inner.top < box.top - 1 || inner.bottom > box.bottom + 1;
      });
    };
    found[page] = {
      images: images.length,
      missing: images.filter(image => !image.naturalWidth).map(image => image.src),
      formulas: seen.querySelectorAll("mjx-container, math").length,
      errors: seen.querySelectorAll("merror, mjx-merror, [data-mjx-error], .problematic").length,
      cut: formulas.filter(cut).length,
      // of a reader with a small screen these scroll; of one with room they should not have to
      hidden: formulas.filter(one => one.scrollWidth > one.clientWidth + 1)
        .map(one => one.textContent.slice(0, 40)),
      wide: seen.documentElement.scrollWidth - seen.documentElement.clientWidth,
    };
    // code may say what it likes; everything else is prose
    const article = (seen.querySelector("article") || seen.body).cloneNode(true);
    article.querySelectorAll("pre, code, script, style").forEach(one => one.remove());
    const text = article.textContent;
    found[page].tex = [...text.matchAll(TEX)].map(
      one => text.slice(Math.max(0, one.index - 20), one.index + 20));
    frame.remove();
  }
  document.getElementById("found").textContent = "<<" + JSON.stringify(found) + ">>";
})();
</script></body>"""


@pytest.fixture(scope="module")
def site():
    """The address of the built pages, and the requests that failed."""
    if SITE is None:
        pytest.skip("MKSKNN_SITE is not set: `make docs-check` builds the pages and opens them")
    if CHROMIUM is None:
        pytest.skip("no Chromium here: install Debian's package chromium")
    folder = pathlib.Path(SITE).resolve()
    failed = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(folder))

        def do_GET(self):
            if self.path != "/opener":
                return super().do_GET()
            pages = [page.relative_to(folder).as_posix() for page in sorted(folder.rglob("*.html"))]
            body = OPENER.replace("PAGES", json.dumps(pages)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, code="-", size="-"):
            if int(code) >= 400 and not self.path.endswith("favicon.ico"):
                failed.append(self.path)

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", failed
    server.shutdown()


def browse(address, profile, *options, seconds=10):
    """The page as the browser has it after its scripts have run."""
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--hide-scrollbars",
        f"--user-data-dir={profile}",
        "--window-size=1200,1600",
        f"--virtual-time-budget={1000 * seconds}",
        *options,
        address,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=True).stdout


def test_front_page_in_a_browser(site, tmp_path):
    address, failed = site
    page = browse(f"{address}/index.html", tmp_path, "--dump-dom")
    assert "<h1>mksknn" in page
    for link in ("tutorial.html", "howto/choose_k.html", "theory.html", "reference.html"):
        assert f'href="{link}"' in page
    assert failed == []


def test_reference_page_in_a_browser(site, tmp_path):
    address, failed = site
    page = browse(f"{address}/generated/reference/mksknn.select_k.html", tmp_path, "--dump-dom")
    text = re.sub(r"<[^>]+>", "", page)
    for part in ("select_k", "ratio_bounds", "Parameters", "Returns", "Examples"):
        assert part in text
    assert failed == []


def test_search_in_a_browser(site, tmp_path):
    address, failed = site
    page = browse(f"{address}/search.html?q=select_k", tmp_path, "--dump-dom")
    assert re.search(r"found \d+ pages? matching", page)
    assert "generated/reference/mksknn.select_k.html" in page
    assert failed == []


def test_formulas_in_a_browser(site, tmp_path):
    address, failed = site
    page = browse(f"{address}/theory.html", tmp_path, "--dump-dom")
    assert len(re.findall("<(?:math|mjx-container) ", page)) > 100
    # nothing on the pages comes from elsewhere
    assert not re.search(r'<(script|link|img)[^>]+(src|href)="https?://', page)
    assert failed == []


def test_every_page_in_a_browser(site, tmp_path):
    address, failed = site
    page = browse(f"{address}/opener", tmp_path, "--dump-dom", seconds=300)
    match = re.search(r"&lt;&lt;(.*)&gt;&gt;", page, re.DOTALL)
    assert match, "the browser did not get through all pages"
    found = json.loads(html.unescape(match.group(1)))
    assert len(found) > 20
    assert sum(one["images"] for one in found.values()) >= 8
    assert found["theory.html"]["formulas"] > 100
    for what in ("missing", "errors", "tex", "cut", "hidden"):
        assert {page: one[what] for page, one in found.items() if one[what]} == {}, what
    assert failed == []


def test_browser_is_shown_no_folder_of_this_machine(site):
    for page in pathlib.Path(SITE).rglob("*.html"):
        assert str(ROOT) not in page.read_text(encoding="utf-8"), page


def test_screenshots_of_the_browser(site, tmp_path):
    """Pictures to look at, in MKSKNN_SCREENSHOTS if that is set."""
    address, _ = site
    folder = pathlib.Path(os.environ.get("MKSKNN_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    select_k = "generated/reference/mksknn.select_k"
    for name in ("index", "tutorial", "theory", "examples", "benchmarks", "sets", select_k):
        picture = folder / f"{name.rpartition('/')[2]}.png"
        browse(f"{address}/{name}.html", tmp_path / "profile", f"--screenshot={picture.resolve()}")
        assert picture.stat().st_size > 20_000
