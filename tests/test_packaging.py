"""The files that describe the package agree with each other and with the code."""

import ast
import configparser
import fnmatch
import os
import pathlib
import re
import subprocess
import sys

import pytest
import yaml
from packaging.requirements import Requirement

import mksknn

ROOT = pathlib.Path(__file__).parents[1]
SCRIPTS = [".ci/run", "tools/browser.sh", "tools/mathjax.sh", "tools/r.sh", "tools/setup.sh"]

# Where the name to import is not the name to install.
DISTRIBUTION = {
    "sksparse": "scikit-sparse",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
    "rattler_build": "py-rattler-build",
}


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def config():
    parser = configparser.ConfigParser()
    parser.read_string(read("setup.cfg"))
    return parser


def requirements(text):
    """{name: version specifier} of a list in setup.cfg."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {r.name: str(r.specifier) for r in map(Requirement, lines)}


def imported_distributions(tree):
    """Third-party distributions that the statements in `tree` import."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module)
    tops = {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"mksknn"}
    return {DISTRIBUTION.get(name, name) for name in tops}


def test_version_is_in_one_place(config):
    assert config["metadata"]["version"] == "attr: mksknn._version.__version__"
    holders = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "mksknn").rglob("*.py")
        if re.search(r"^__version__\s*=", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert holders == ["mksknn/_version.py"]
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc|\.dev)\d+)?", mksknn.__version__)


def test_changelog_starts_with_the_version():
    first = re.search(r"^## (\S+)", read("CHANGELOG.md"), re.MULTILINE).group(1)
    assert first == mksknn.__version__


def test_pyproject_only_names_the_build_system():
    lines = read("pyproject.toml").splitlines()
    assert len(lines) == 3
    assert lines[0] == "[build-system]"


def test_conda_environment_covers_the_requirements(config):
    environment = yaml.safe_load(read("environment.yml"))
    assert environment["channels"][0] == "conda-forge"
    conda = requirements("\n".join(environment["dependencies"]))

    options = config["options"]
    assert conda["python"] == options["python_requires"]
    extras = config["options.extras_require"]
    needed = requirements(options["install_requires"])
    for extra in ("cholmod", "plot", "progress", "dask"):
        needed |= requirements(extras[extra])
    assert needed.items() <= conda.items()
    assert "pytest" in conda


def test_conda_environment_has_what_the_pages_and_examples_use(config):
    conda = set(requirements("\n".join(yaml.safe_load(read("environment.yml"))["dependencies"])))
    local = {path.stem for path in (ROOT / "examples").glob("*.py")}
    sources = {path: path.read_text("utf-8") for path in (ROOT / "examples").glob("*.py")}
    for page in [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]:
        if not {"generated", "_build"} & set(page.parts):
            blocks = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
            sources[page] = "\n".join(blocks)
    for path, source in sources.items():
        used = imported_distributions(ast.parse(source))
        assert used - conda <= local, path
    # and so has the extra that the documentation is built with
    brought = requirements(config["options.extras_require"]["docs"]).keys()
    brought |= requirements(config["options"]["install_requires"]).keys() | local
    for path, source in sources.items():
        assert imported_distributions(ast.parse(source)) <= brought, path


@pytest.fixture(scope="module")
def recipe():
    """The conda recipe as rattler-build, which conda-forge builds it with, understands it."""
    rattler_build = pytest.importorskip("rattler_build")
    (variant,) = rattler_build.Stage0Recipe.from_file(ROOT / "conda-recipe/recipe.yaml").render()
    return variant.recipe.to_dict()


def test_conda_recipe_agrees_with_the_metadata(config, recipe):
    options, extras = config["options"], config["options.extras_require"]
    assert recipe["package"] == {"name": "mksknn", "version": mksknn.__version__}
    assert recipe["build"]["noarch"] == "python"
    about = recipe["about"]
    assert about["license"] == config["metadata"]["license"]
    assert about["summary"] == config["metadata"]["description"]
    assert about["repository"] == about["homepage"] == config["metadata"]["url"]
    assert {"description", "documentation", "license_file"} <= about.keys()
    assert recipe["extra"]["recipe-maintainers"]

    python_min = options["python_requires"].removeprefix(">=")
    assert recipe["context"]["python_min"] == python_min
    needed = requirements("\n".join(recipe["requirements"]["run"]))
    assert needed == requirements(options["install_requires"]) | {"python": f">={python_min}"}
    # CHOLMOD is optional: its version is constrained, it is not installed
    optional = requirements("\n".join(recipe["requirements"]["run_constraints"]))
    assert optional == requirements(extras["cholmod"])

    host = recipe["requirements"]["host"]
    assert host[:2] == [f"python {python_min}.*", "pip"]
    built_with = re.search(r'requires = \["(.*)"\]', read("pyproject.toml")).group(1)
    assert requirements(built_with) == requirements("\n".join(host[2:]))


def test_conda_recipe_takes_a_release(recipe):
    (source,) = recipe["source"]
    assert source["url"].endswith(f"/v{mksknn.__version__}/mksknn-{mksknn.__version__}.tar.gz")
    assert re.fullmatch("[0-9a-f]{64}", source["sha256"])
    assert "\n  # path: ..\n" in read("conda-recipe/recipe.yaml")  # for builds from a clone


def test_conda_recipe_tests_the_package(recipe):
    imports, commands = recipe["tests"]
    assert "mksknn" in imports["python"]["imports"]
    assert imports["python"]["python_version"] == [f"{recipe['context']['python_min']}.*", "*"]
    for name in commands["files"]["source"]:
        assert (ROOT / name).exists()
    assert any("-m smoke" in command for command in commands["script"])


def test_citation_agrees_with_the_metadata(config):
    citation = yaml.safe_load(read("CITATION.cff"))
    assert citation["version"] == mksknn.__version__
    assert citation["title"] == config["metadata"]["name"]
    assert citation["license"] == config["metadata"]["license"]
    assert citation["abstract"] == config["metadata"]["description"]
    assert citation["repository-code"] == config["metadata"]["url"]
    assert citation["preferred-citation"]["title"] in re.sub(r"\s*\n>?\s*", " ", read("README.md"))


def test_messages_that_name_an_extra_work_from_a_clone_too():
    """`pip install mksknn[plot]` asks an index, where a clone's version need not be."""
    for path in (ROOT / "mksknn").rglob("*.py"):
        assert "pip install mksknn" not in path.read_text(encoding="utf-8"), path


def test_python_versions_agree(config):
    floor = config["options"]["python_requires"].removeprefix(">=")
    listed = re.findall(r":: (3\.\d+)$", config["metadata"]["classifiers"], re.MULTILINE)
    assert listed[0] == floor
    assert f'target-version = "py{floor.replace(".", "")}"' in read("ruff.toml")
    assert f"({floor} or later)" in read("README.md")


def test_imports_are_declared(config):
    required = set(requirements(config["options"]["install_requires"]))
    extras = config["options.extras_require"]
    optional = set().union(
        *(requirements(extras[extra]) for extra in ("cholmod", "plot", "progress", "dask"))
    )
    for path in (ROOT / "mksknn").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert imported_distributions(tree) <= required | optional, path
        # An optional one must be guarded, by `try` or by a function, or a plain install breaks.
        for statement in tree.body:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                assert imported_distributions(statement) <= required, path


def test_tests_need_only_what_their_extra_brings(config):
    brought = set(requirements(config["options"]["install_requires"]))
    for extra in ("test", "cholmod"):
        brought |= set(requirements(config["options.extras_require"][extra]))
    local = {
        path.stem
        for folder in ("tests", "docs", "examples")
        for path in (ROOT / folder).glob("*.py")
    }
    for path in (ROOT / "tests").glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert imported_distributions(tree) - local <= brought, path


def test_every_data_file_is_shipped(config):
    globs = {
        package: patterns.split()
        for package, patterns in config["options.package_data"].items()
        if patterns
    }
    for path in (ROOT / "mksknn").rglob("*"):
        if path.is_dir() or "__pycache__" in path.parts or path.suffix == ".py":
            continue
        package = ".".join(path.parent.relative_to(ROOT).parts)
        assert any(fnmatch.fnmatch(path.name, glob) for glob in globs[package]), path
    assert (ROOT / "mksknn/py.typed").exists()


def test_every_folder_with_code_is_a_package():
    # `find:` passes over folders without an __init__.py.
    for path in (ROOT / "mksknn").rglob("*.py"):
        assert (path.parent / "__init__.py").exists(), path


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_run(script):
    assert os.access(ROOT / script, os.X_OK)
    assert read(script).startswith("#!/usr/bin/env bash\n")
    assert "set -euo pipefail" in read(script)
    subprocess.run(["bash", "-n", ROOT / script], check=True)


def test_ci_runs_make_test():
    assert re.search(r"^make test$", read(".ci/run"), re.MULTILINE)


def test_makefile_has_the_documented_targets(config):
    makefile = read("Makefile")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    documents = read("README.md") + read("CONTRIBUTING.md")
    mentioned = set(re.findall(r"\bmake ([a-z]+)\b(?=[`\s])", "\n".join(code_in(documents))))
    assert {"demo", "test", "lint", "clean"} <= targets
    assert mentioned <= targets
    # Each `.ready-<extra>` stamp installs the extra of that name.
    extras = set(re.findall(r"\.ready-([a-z]+)", makefile)) - {"run"}
    assert extras <= set(config["options.extras_require"])


def code_in(markdown):
    """The fenced blocks and the inline code of a page."""
    blocks = re.findall(r"^```.*?^```", markdown, re.MULTILINE | re.DOTALL)
    return [*blocks, *(span + "\n" for span in re.findall(r"`([^`\n]+)`", markdown))]


def test_no_extra_asks_for_a_compiler_by_surprise(config):
    extras = config["options.extras_require"]
    building = [extra for extra in extras if "scikit-sparse" in requirements(extras[extra])]
    assert building == ["cholmod"]
