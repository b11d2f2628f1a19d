"""The files that describe the package agree with each other and with the code."""

import ast
import configparser
import fnmatch
import os
import pathlib
import re
import subprocess
import sys

import jinja2
import pytest
import yaml
from packaging.requirements import Requirement

import mksknn

ROOT = pathlib.Path(__file__).parents[1]
SCRIPTS = [".ci/run", "tools/browser.sh", "tools/setup.sh"]

# Where the name to import is not the name to install.
DISTRIBUTION = {"sksparse": "scikit-sparse", "sklearn": "scikit-learn", "yaml": "pyyaml"}


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
    for extra in ("cholmod", "plot", "progress"):
        needed |= requirements(extras[extra])
    assert needed.items() <= conda.items()
    assert "pytest" in conda


def render_recipe():
    """The conda recipe as conda-build reads it, with the functions it uses written out."""
    folder = ROOT / "conda-recipe"

    def load_file_regex(load_file, regex_pattern, from_recipe_dir=False):
        return re.search(
            regex_pattern, ((folder if from_recipe_dir else ROOT) / load_file).read_text()
        )

    environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
    template = environment.from_string(read("conda-recipe/meta.yaml"))
    return yaml.safe_load(template.render(load_file_regex=load_file_regex, PYTHON="python"))


def test_conda_recipe_agrees_with_the_metadata(config):
    recipe = render_recipe()
    options, extras = config["options"], config["options.extras_require"]
    assert recipe["package"] == {"name": "mksknn", "version": mksknn.__version__}
    assert recipe["build"]["noarch"] == "python"
    assert recipe["about"]["license"] == config["metadata"]["license"]
    assert recipe["about"]["summary"] == config["metadata"]["description"]
    assert (ROOT / "conda-recipe" / recipe["source"]["path"]).resolve() == ROOT

    run = requirements("\n".join(recipe["requirements"]["run"]))
    needed = requirements(options["install_requires"]) | requirements(extras["cholmod"])
    assert run == needed | {"python": options["python_requires"]}
    environment = yaml.safe_load(read("environment.yml"))
    assert run.items() <= requirements("\n".join(environment["dependencies"])).items()

    host = requirements("\n".join(recipe["requirements"]["host"]))
    assert host["python"] == run["python"]
    built_with = re.search(r'requires = \["(.*)"\]', read("pyproject.toml")).group(1)
    assert requirements(built_with).items() <= host.items()


def test_conda_recipe_tests_the_package():
    test = render_recipe()["test"]
    assert "mksknn" in test["imports"]
    for name in test["source_files"]:
        assert (ROOT / name).exists()
    assert any("-m smoke" in command for command in test["commands"])


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
    local = {path.stem for folder in ("tests", "docs") for path in (ROOT / folder).glob("*.py")}
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
