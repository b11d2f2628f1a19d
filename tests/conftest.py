"""What tests share: points that are hard to rank, counted calls, the settings of hypothesis."""

import numpy as np
import pytest
from hypothesis import settings

from mksknn import _dense, datasets

# Compiling a kernel inside an example would break any deadline.
settings.register_profile("mksknn", deadline=None, max_examples=60, print_blob=True)
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
