"""What tests share: points that are hard to rank, counted calls, installations that differ."""

import sys
import types
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, settings

from mksknn import _dense, _neighbors, _validation, datasets
from mksknn._cholmod import cholmod

# Compiling a kernel inside an example would break any deadline. The same examples every time: `make
# soak` looks for new ones.
settings.register_profile(
    "mksknn", deadline=None, max_examples=60, print_blob=True, derandomize=True
)
# Any example that fails will do, it need not be a small one: tools/mutants.py.
settings.register_profile(
    "first", settings.get_profile("mksknn"), phases=[Phase.explicit, Phase.generate]
)
settings.load_profile("mksknn")


def _hard_points():
    rng = np.random.default_rng(20)
    grid = np.arange(1.0, 5.0)
    lattice = np.array([(a, b, c) for a in grid for b in grid for c in (1.0, 2.0)])
    normal = rng.normal(size=(30, 3))
    with_constants = rng.normal(size=(25, 4))
    with_constants[:, [0, 2]] = 7.0
    return {
        "normal": normal,
        "lattice": lattice,
        "shuffled_lattice": rng.permutation(lattice),
        "duplicates": np.repeat(rng.integers(1, 4, (9, 2)).astype(float), 3, axis=0),
        "all_equal": np.full((11, 3), 2.5),
        "constant_columns": with_constants,
        "two_points": np.array([[1.0, 2.0], [3.0, -1.0]]),
        "two_equal_points": np.array([[1.0, 2.0], [1.0, 2.0]]),
        "three_points": np.array([[1.0, 1.0], [2.0, 1.0], [1.5, 4.0]]),
        "one_column": rng.integers(1, 9, (24, 1)).astype(float),
        "sixty_columns": rng.normal(size=(26, 60)),
        "sixty_binary_columns": np.column_stack([rng.integers(0, 2, (28, 59)), np.ones(28)]),
        "far_from_origin": 1e8 + 1e-3 * rng.normal(size=(27, 5)),
        "far_lattice": 1e8 + 2.0**-10 * lattice,
        "huge": 1e150 * normal,
        "small": 1e-140 * normal,
        "sinc3c": datasets.make_sinc3c().X,
        "pima": datasets.load_pima().X,
        "new_thyroid": datasets.load_new_thyroid().X,
    }


HARD_POINTS = _hard_points()


@pytest.fixture(params=HARD_POINTS)
def hard_points(request):
    """One set of points that a ranking could get wrong; a fresh copy."""
    return HARD_POINTS[request.param].copy()


@pytest.fixture(params=[name for name in HARD_POINTS if name not in ("pima", "new_thyroid")])
def small_points(request):
    """The same without the two larger sets."""
    return HARD_POINTS[request.param].copy()


@pytest.fixture(autouse=True)
def warns_anew(monkeypatch):
    """What is said once in a process is said once in each test."""
    monkeypatch.setattr(_validation, "_warned", False)
    monkeypatch.setattr(_validation, "_warned_of_values", False)


@pytest.fixture
def counted(monkeypatch):
    """Counts of Cholesky factorizations and tridiagonalizations."""
    counts = {"cholesky": 0, "tridiagonalize": 0}
    for name in counts:
        routine = getattr(_dense, name)

        def wrapped(matrix, name=name, routine=routine):
            counts[name] += 1
            return routine(matrix)

        monkeypatch.setattr(_dense, name, wrapped)
    return counts


@pytest.fixture
def rankings(monkeypatch):
    """How many neighbours were ranked by each ranking of a question's points, in turn."""
    depths = []
    rank = _neighbors.rank

    def counting(points, depth, *args):
        depths.append(depth)
        return rank(points, depth, *args)

    monkeypatch.setattr(_neighbors, "rank", counting)
    return depths


@pytest.fixture
def scikit_sparse(monkeypatch):
    """A function that puts a module in the place of scikit-sparse's, None for no such package."""

    def put(module):
        package = None if module is None else types.SimpleNamespace(cholmod=module)
        monkeypatch.setitem(sys.modules, "sksparse", package)
        monkeypatch.setitem(sys.modules, "sksparse.cholmod", module)
        cholmod.cache_clear()

    yield put
    monkeypatch.undo()
    cholmod.cache_clear()


@pytest.fixture
def memory(monkeypatch):
    """A function that makes the system say how many bytes are free, in kilobytes."""
    read_text = Path.read_text

    def say(size):
        def answer(path, *args, **options):
            if str(path) == "/proc/meminfo":
                return f"MemAvailable: {int(size / 1024)} kB\n"
            if str(path).startswith("/sys/fs/cgroup"):
                raise FileNotFoundError(path)
            return read_text(path, *args, **options)

        monkeypatch.setattr(Path, "read_text", answer)

    return say
