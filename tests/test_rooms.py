"""The house: a file imports only from those above it, and some things are done in one file only."""

import ast
import functools
import inspect
import re
from pathlib import Path

import mksknn

PACKAGE = Path(mksknn.__file__).parent

# In the order in which data goes.
ROOMS = """
    _version _names _jit _validation _threads _lapack _order _distances _products _tree _metrics
    _neighbors _queries _graphs _targets _determinants _search _dense _inverse _cholmod _sparse
    _spectra _plan _problem _tails _bounds _enclosures _race _evidence _loo _selection _quadrature
    _posterior _votes _archive _prediction _relevance _learning _plotting _config
""".split()

FIRST_ROUND = """
    EvidenceCurve LooCurve Neighbors Posterior Prediction Selection datasets evidence_curve
    knn_graph log_evidence loo_curve neighbors plot_curve plot_decision posterior predict select_k
    selected_inverse show_config
""".split()
SECOND_ROUND = "Metric Predictor as_neighbors learn_metric load_predictor prepare".split()


@functools.cache
def trees():
    return {path.stem: ast.parse(path.read_text()) for path in sorted(PACKAGE.glob("_*.py"))}


def imported_rooms(tree):
    """Files of the package that a file imports from, wherever it does so."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            names = [node.module] if node.module else [name.name for name in node.names]
            found.update(name.split(".")[0] for name in names)
    return found


def test_files_of_kernels_import_names_from_files():
    """By these imports a kernel on disk is known to be stale (`_jit._imported`)."""
    for name, tree in trees().items():
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
        if any(one.name == "kernel" for node in nodes for one in node.names):
            assert all(node.module for node in nodes), name


def imported_packages(tree):
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(name.name.split(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(node.module.split(".")[0])
    return found


def test_every_file_has_its_place():
    assert set(trees()) - {"__init__"} == set(ROOMS)
    assert len(ROOMS) == len(set(ROOMS))


def test_no_file_imports_from_below_it():
    place = {name: at for at, name in enumerate(ROOMS)}
    wrong = []
    for name in ROOMS:
        rooms = imported_rooms(trees()[name]) & set(ROOMS)
        print(f"{name}: {' '.join(sorted(rooms, key=place.get))}")  # the graph, with pytest -s
        wrong += [f"{name} <- {other}" for other in rooms if place[other] >= place[name]]
    assert not wrong


def test_one_file_imports_scikit_sparse_and_one_ctypes():
    packages = {name: imported_packages(tree) for name, tree in trees().items()}
    assert [name for name in packages if "sksparse" in packages[name]] == ["_cholmod"]
    assert [name for name in packages if "ctypes" in packages[name]] == ["_lapack"]


def test_one_file_sets_numbers_of_threads():
    """Whatever sets one, in a BLAS, in OpenMP or in Numba, goes by one of these names."""
    words = r"threadpoolctl|set_num_threads|set_max_active_levels|NUM_THREADS\s*=|threadpool_limits"
    setting = [
        path.stem for path in sorted(PACKAGE.rglob("*.py")) if re.search(words, path.read_text())
    ]
    assert setting == ["_threads"]


def test_no_public_name_has_gone():
    assert set(FIRST_ROUND) | set(SECOND_ROUND) <= set(mksknn.__all__)
    for name in mksknn.__all__:
        assert getattr(mksknn, name) is not None


NAMED = """
    backend criterion families formulation graph k_scale metric score task ties weights
""".split()


def test_arguments_that_are_names_have_types_that_list_them():
    seen = set()
    for function in map(vars(mksknn).get, mksknn.__all__):
        if inspect.isfunction(function):
            for name, one in inspect.signature(function).parameters.items():
                if name in NAMED:
                    assert not re.search(r"\bstr\b", one.annotation), (function, name)
                    seen.add(name)
    assert seen == set(NAMED)


def test_every_function_says_what_it_returns():
    """Kernels are compiled, not called: Numba finds their types."""
    silent = []
    for name, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.returns is None:
                if not any("kernel" in ast.unparse(one) for one in node.decorator_list):
                    silent.append(f"{name}.{node.name}")
    assert not silent
