"""Every public name is documented in numpydoc's form, and every example in a docstring runs."""

import doctest
import importlib
import inspect
import pathlib
import pkgutil
import re

import pytest

import mksknn
from mksknn import _problem

MODULES = ["mksknn"] + [
    module.name for module in pkgutil.walk_packages(mksknn.__path__, prefix="mksknn.")
]


def public_names():
    for module in (mksknn, mksknn.datasets):
        for name in getattr(module, "__all__"):  # noqa: B009
            thing = getattr(module, name)
            if inspect.isfunction(thing) or inspect.isclass(thing):
                yield f"{module.__name__}.{name}", thing


PUBLIC = dict(public_names())
FUNCTIONS = {name: thing for name, thing in PUBLIC.items() if inspect.isfunction(thing)}
CLASSES = {name: thing for name, thing in PUBLIC.items() if inspect.isclass(thing)}


def sections(thing):
    """The numpydoc section titles of a docstring."""
    lines = inspect.cleandoc(thing.__doc__).splitlines()
    return [title for title, rule in zip(lines, lines[1:]) if title and rule == "-" * len(title)]


def documented_names(thing, section):
    """The names that a numpydoc section explains, "a, b : int" being two."""
    lines = inspect.cleandoc(thing.__doc__).splitlines()
    start = lines.index(section) + 2
    names = []
    for line, rule in zip(lines[start:], [*lines[start + 1 :], ""]):
        if rule and set(rule) == {"-"}:
            break
        if line and not line.startswith(" "):
            names += [name.strip(" *`") for name in line.split(" : ")[0].split(",")]
    return names


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    module = importlib.import_module(name)
    failed, _ = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert failed == 0


@pytest.mark.parametrize("name", MODULES)
def test_modules_say_what_they_are_for(name):
    assert importlib.import_module(name).__doc__ or name.endswith("._version")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_have_a_runnable_example(name):
    examples = doctest.DocTestFinder(recurse=False).find(FUNCTIONS[name], name)
    assert sum(len(test.examples) for test in examples) >= 1
    assert "+SKIP" not in FUNCTIONS[name].__doc__


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_documented(name):
    function = FUNCTIONS[name]
    found = sections(function)
    expected = ["Returns", "Examples"]
    parameters = inspect.signature(function).parameters
    if parameters:
        expected.insert(0, "Parameters")
        assert sorted(documented_names(function, "Parameters")) == sorted(parameters)
    if inspect.signature(function).return_annotation in (None, "None"):
        expected.remove("Returns")
    assert [title for title in found if title in expected] == expected
    summary = inspect.cleandoc(function.__doc__).splitlines()[0]
    assert summary.endswith(".")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_references_stand_by_themselves(name):
    """Every parameter is explained where it is, and related functions are named."""
    assert not re.search(r"^\s+As (in|for) ", FUNCTIONS[name].__doc__, re.MULTILINE)
    alone = {"show_config", "selected_inverse", "make_sinc3c", "load_pima", "load_new_thyroid"}
    assert "See Also" in sections(FUNCTIONS[name]) or name.rpartition(".")[2] in alone


def test_the_reference_has_every_public_name():
    page = pathlib.Path(__file__).parents[1] / "docs" / "reference.rst"
    if not page.exists():
        pytest.skip("the pages are not here")
    listed = set(re.findall(r"^   ([\w.]+)$", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert {name.removeprefix("mksknn.") for name in PUBLIC} <= listed


@pytest.mark.parametrize("name", CLASSES)
def test_results_are_documented(name):
    result = CLASSES[name]
    assert "Attributes" in sections(result)
    documented = documented_names(result, "Attributes")
    for field in result.__dataclass_fields__:
        inherited = any(
            field in getattr(base, "__dataclass_fields__", {}) for base in result.__mro__[1:]
        )
        assert field in documented or inherited
    assert result.__dataclass_params__.frozen


def test_public_names_are_sorted_and_exist():
    names = getattr(mksknn, "__all__")  # noqa: B009
    assert len(set(names)) == len(names)
    for name in names:
        assert hasattr(mksknn, name)


@pytest.mark.parametrize("name", ["evidence_curve", "select_k", "posterior"])
def test_the_limits_of_ratio_bounds_are_told(name):
    told = re.search(
        r"ratio_bounds : [^:]*within (\S+) to\s+(\S+)\.\n", getattr(mksknn, name).__doc__
    )
    assert tuple(map(float, told.groups())) == _problem._RATIOS


def test_data_goes_one_way():
    """The order of the files in CONTRIBUTING is the one in which they import each other."""
    root = pathlib.Path(__file__).parents[1]
    if not (root / "CONTRIBUTING.md").exists():
        pytest.skip("CONTRIBUTING.md is not here")
    drawn = re.search(
        r"## The rooms.*?```text\n(.*?)```", (root / "CONTRIBUTING.md").read_text(), re.DOTALL
    )
    order = re.findall(r"\b_\w+", drawn.group(1))
    package = pathlib.Path(mksknn.__path__[0])
    assert sorted(order) == sorted(path.stem for path in package.glob("_[a-z]*.py"))
    for at, name in enumerate(order):
        source = (package / f"{name}.py").read_text(encoding="utf-8")
        found = re.findall(r"^\s*from \.(\w*) import (\w+)", source, re.MULTILINE)
        assert {one or other for one, other in found} <= set(order[:at]), name
