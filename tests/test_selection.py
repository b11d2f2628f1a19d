"""select_k: the bound behind the certificate, and the argmax of the full curve."""

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from posing import random_set
from sklearn.datasets import load_digits

import mksknn
from mksknn._cholmod import cholmod

GRAPHS = ("mutual", "symmetric")
KINDS = ("binary", "I", "II", "regression", "three outputs")


def bundled(name, scaled):
    data = getattr(mksknn.datasets, name)()
    X = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0) if scaled else data.X
    return X, data.y


def assert_argmax(X, y, **options):
    """The selection and the curve tell the same."""
    curve = mksknn.evidence_curve(X, y, **options)
    found = mksknn.select_k(X, y, **options)
    best = int(np.argmax(curve.log_evidence))
    assert found.k == curve.best_k
    assert found.log_evidence == pytest.approx(curve.log_evidence[best], rel=1e-12, abs=1e-9)
    assert found.sigma0 == pytest.approx(curve.sigma0[best], rel=1e-6)
    assert found.sigma2 == pytest.approx(curve.sigma2[best], rel=1e-6)
    assert found.at_bound == curve.at_bound[best]
    assert found.certified
    assert found.k in found.evaluated and set(found.evaluated) <= set(curve.k)
    assert (np.diff(found.evaluated) > 0).all()
    assert (found.graph, found.formulation) == (curve.graph, curve.formulation)
    return curve, found


# ---------------------------------------------------------------- the argmax


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("name", ["load_pima", "load_new_thyroid"])
def test_bundled_sets(name, scaled, graph):
    X, y = bundled(name, scaled)
    curve, found = assert_argmax(X, y, graph=graph)
    assert len(found.evaluated) <= 0.2 * len(curve.k)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("formulation", ["I", "II"])
def test_bundled_sets_by_other_formulations(formulation, graph):
    for name in ("load_pima", "load_new_thyroid"):
        X, y = bundled(name, True)
        _, found = assert_argmax(X, y, graph=graph, formulation=formulation, k_max=60)
        assert found.formulation == formulation


@pytest.mark.parametrize("graph", GRAPHS)
def test_a_thousand_points(graph):
    """At most 4% of the k, and no other k near the winner is better."""
    digits = load_digits()
    X, y = digits.data[:1000], digits.target[:1000]
    found = mksknn.select_k(X, y, graph=graph)
    assert found.certified
    assert len(found.evaluated) <= 0.04 * 999
    ks = sorted({*range(max(1, found.k - 2), found.k + 3), 20, 60, 999})
    curve = mksknn.evidence_curve(X, y, graph=graph, ks=ks)
    assert curve.best_k == found.k
    assert curve.log_evidence.max() == pytest.approx(found.log_evidence, abs=1e-8)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kind", KINDS)
def test_random_sets(kind, graph):
    for seed in range(12):
        X, y, options = random_set(seed, kind)
        assert_argmax(X, y, graph=graph, **options)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kind", KINDS)
def test_random_sets_with_limits(kind, graph):
    """Some of the k, other bounds, fixed sigmas, uncentred targets, all by bounds."""
    for seed in range(4):
        X, y, options = random_set(100 + seed, kind, n=40)
        some = np.random.default_rng(seed).choice(np.arange(1, 40), 15, replace=False)
        assert_argmax(X, y, graph=graph, ks=some, **options)
        assert_argmax(X, y, graph=graph, k_max=12, **options)
        assert_argmax(X, y, graph=graph, ratio_bounds=(0.05, 0.3), **options)
        assert_argmax(X, y, graph=graph, ratio_bounds=(1e-3, 1e12), **options)
        for sigmas in ((1.0, 1.0), (0.01, 3.0), (50.0, 1e-4)):
            assert_argmax(X, y, graph=graph, sigma0=sigmas[0], sigma2=sigmas[1], **options)
        if kind == "regression":
            assert_argmax(X, y + 5.0, graph=graph, center=False)


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.sampled_from(KINDS), st.sampled_from(GRAPHS))
def test_any_set(seed, kind, graph):
    X, y, options = random_set(seed, kind)
    assert_argmax(X, y, graph=graph, **options)


@pytest.mark.parametrize("graph", GRAPHS)
def test_hard_points(small_points, graph):
    n = len(small_points)
    for y in (np.arange(n) % 2, np.arange(n) < (n + 1) // 2):
        assert_argmax(small_points, y.astype(int), graph=graph)


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", GRAPHS)
def test_a_dozen_points(graph):
    X, y, _ = random_set(5, "binary", n=12)
    _, found = assert_argmax(X, y, graph=graph)
    assert found.k == naive.best_k(X, y, graph=graph)


SPARSE = [
    "superlu",
    pytest.param(
        "cholmod",
        marks=pytest.mark.skipif(cholmod() is None, reason="scikit-sparse is missing"),
    ),
]


@pytest.mark.parametrize("backend", SPARSE)
def test_forced_backends(backend):
    for seed in range(6):
        X, y, _ = random_set(seed, "binary", n=30)
        found = mksknn.select_k(X, y, backend=backend)
        dense = mksknn.select_k(X, y)
        assert found.k == dense.k and found.certified
        assert found.log_evidence == pytest.approx(dense.log_evidence, abs=1e-8)


def assert_same_choice(X, y, backend, **options):
    """A race on a sparse backend ends where LAPACK's curve has its maximum."""
    curve = mksknn.evidence_curve(X, y, backend="lapack", **options)
    found = mksknn.select_k(X, y, backend=backend, **options)
    best = np.flatnonzero(curve.k == found.k)[0]  # to the last digits, several may be best
    assert curve.log_evidence[best] >= curve.log_evidence.max() - 1e-9
    assert found.log_evidence == pytest.approx(curve.log_evidence[best], rel=1e-11, abs=1e-8)
    assert found.sigma2 == pytest.approx(curve.sigma2[best], rel=1e-3)
    assert found.at_bound == curve.at_bound[best]


@pytest.mark.parametrize("backend", SPARSE)
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("kind", KINDS)
def test_races(kind, graph, backend):
    for seed in range(4):
        X, y, options = random_set(200 + seed, kind)
        assert_same_choice(X, y, backend, graph=graph, **options)
        assert_same_choice(X, y, backend, graph=graph, k_max=5, **options)
        bounds = (0.05, 0.3)
        assert_same_choice(X, y, backend, graph=graph, ratio_bounds=bounds, **options)
        assert_same_choice(X, y, backend, graph=graph, sigma0=0.4, sigma2=0.2, **options)


@pytest.mark.parametrize("backend", SPARSE)
@pytest.mark.parametrize("graph", GRAPHS)
def test_races_on_hard_points(graph, backend, small_points):
    n = len(small_points)
    assert_same_choice(small_points, np.arange(n) % 2, backend, graph=graph)
    lattice = np.array([(a, b) for a in range(7) for b in range(6)], dtype=float)
    doubled = np.concatenate([lattice, lattice[:20]])
    for X in (lattice, doubled):
        assert_same_choice(X, (X[:, 0] > 3) ^ (X[:, 1] > 4), backend, graph=graph)


@pytest.mark.parametrize("kind", ["binary", "regression"])
def test_without_cholmod(kind, scikit_sparse):
    """SuperLU is slow and has no anchors: the same k, still proven."""
    X, y, _ = random_set(1, kind, n=700)
    expected = mksknn.select_k(X, y, graph="mutual", k_max=12)
    scikit_sparse(None)
    found = mksknn.select_k(X, y, graph="mutual", k_max=12)
    assert found.k == expected.k and found.certified
    assert found.log_evidence == pytest.approx(expected.log_evidence, abs=1e-8)


def test_a_race_saves_factorizations(monkeypatch):
    import scipy.sparse.linalg

    rng = np.random.default_rng(11)
    X = rng.normal(size=(900, 2))
    y = (np.sin(2.0 * X[:, 0]) + X[:, 1] > 0) ^ (rng.random(900) < 0.1)
    splu, counted = scipy.sparse.linalg.splu, []
    monkeypatch.setattr(
        scipy.sparse.linalg, "splu", lambda *a, **b: counted.append(1) or splu(*a, **b)
    )
    curve = mksknn.evidence_curve(X, y, k_max=16, backend="superlu")
    whole = len(counted)
    counted.clear()
    assert mksknn.select_k(X, y, k_max=16, backend="superlu").k == curve.best_k
    assert 0 < len(counted) <= 0.75 * whole


@pytest.mark.parametrize("graph", GRAPHS)
def test_sparse_graphs(graph):
    rng = np.random.default_rng(7)
    X = np.cumsum(rng.exponential(size=(1200, 1)), axis=0)
    y = np.sin(X[:, 0] / 30) + 0.2 * rng.normal(size=1200)
    for k_max in (9, 30):
        found = mksknn.select_k(X, y, graph=graph, k_max=k_max)
        curve = mksknn.evidence_curve(X, y, graph=graph, k_max=k_max)
        assert found.k == curve.best_k and found.certified
        assert found.log_evidence == pytest.approx(curve.log_evidence.max(), abs=1e-8)
    dense = mksknn.select_k(X, y, graph=graph, k_max=9, backend="lapack")
    sparse = mksknn.select_k(X, y, graph=graph, k_max=9)
    assert dense.k == sparse.k
    assert dense.log_evidence == pytest.approx(sparse.log_evidence, abs=1e-7)


def test_one_k():
    X, y, _ = random_set(8, "binary", n=20)
    found = mksknn.select_k(X, y, ks=[7])
    assert found.k == 7 and found.evaluated.tolist() == [7] and found.certified


# ---------------------------------------------------------------- what is computed


@pytest.mark.parametrize("graph", GRAPHS)
def test_little_is_computed(graph, counted):
    X, y = bundled("load_new_thyroid", True)
    found = mksknn.select_k(X, y, graph=graph)
    assert len(found.evaluated) <= counted["cholesky"] + counted["tridiagonalize"] <= 60


def test_small_sets_take_few_reductions(counted):
    """An anchor at the best k first, then more of them as long as they rule any k out."""
    answers = []
    for d in (2, 4, 10):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(200, d))
        y = (np.sin(2.0 * X[:, 0]) + X[:, 1] > 0) ^ (rng.random(200) < 0.1)
        answers += [(X, y, graph, mksknn.select_k(X, y, graph=graph)) for graph in GRAPHS]
    assert counted["tridiagonalize"] <= 25 and counted["cholesky"] <= 4  # 29 and 2 from a rival
    for X, y, graph, found in answers:
        assert found.certified
        assert found.k == mksknn.evidence_curve(X, y, graph=graph).best_k


# ---------------------------------------------------------------- other criteria, results


def test_sigmas_of_a_log_score_fit_in_floats():
    """What would make them infinite is refused; scores alone have no use for sigmas."""
    X, y = np.arange(40.0)[:, None], np.repeat([-1.0, 1.0], 20)
    X[20:] += 1000.0
    options = {"graph": "mutual", "k_max": 5, "task": "regression"}
    tiny, wide = {"ratio_bounds": (1e-30, 1.0)}, {"ratio_bounds": (5e-324, 1e308)}
    for values, bounds, word in (
        (1e-143 * y, tiny, "y must have a sum"),
        (y, wide, "ratio_bounds"),
    ):
        with pytest.raises(ValueError, match=word):
            mksknn.select_k(X, values, criterion="loo_log", **bounds, **options)
        mksknn.select_k(X, values, criterion="loo", **bounds, **options)
        assert np.isfinite(mksknn.loo_curve(X, values, **bounds, **options).log_score).all()


@pytest.mark.parametrize("graph", ["knn", *GRAPHS])
@pytest.mark.parametrize("criterion", ["loo", "loo_log"])
def test_leave_one_out(criterion, graph):
    X, y, _ = random_set(10, "binary", n=35)
    curve = mksknn.loo_curve(X, y, graph=graph)
    found = mksknn.select_k(X, y, criterion=criterion, graph=graph)
    assert found.k == (curve.best_k if criterion == "loo" else curve.best_k_log)
    assert (found.criterion, found.graph) == (criterion, graph)
    if criterion == "loo":
        assert found.sigma0 is found.sigma2 is found.log_evidence is None
        return
    assert found.sigma2 / found.sigma0 == pytest.approx(curve.ratio[found.k - 1], rel=1e-12)
    if graph == "knn":
        assert found.log_evidence is None
    else:
        Y, m, constant = naive.targets(y)
        W = naive.weights(X, found.k, graph)
        ratio = curve.ratio[found.k - 1]
        assert found.sigma0 == pytest.approx(naive.best_sigma0(W, Y, m, ratio), rel=1e-10)
        expected = naive.profile(W, Y, m, constant, ratio)
        assert found.log_evidence == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("changes", "kind", "parts"),
    [
        ({"criterion": "cv"}, ValueError, ["criterion", "'cv'", "loo_log"]),
        ({"criterion": None}, TypeError, ["criterion", "None"]),
        ({"criterion": "loo", "sigma0": 1.0}, ValueError, ["sigma0", "'loo'", "1.0"]),
        ({"criterion": "loo_log", "sigma2": 2.0}, ValueError, ["sigma2", "'loo_log'", "2.0"]),
        ({"criterion": "loo", "graph": "full"}, ValueError, ["graph", "'full'"]),
        ({"criterion": "loo", "metric": "hamming"}, ValueError, ["metric", "'hamming'"]),
        ({"criterion": "loo", "ks": []}, ValueError, ["ks", "empty"]),
        ({"criterion": "loo", "executor": 1}, TypeError, ["executor", "submit"]),
        ({"criterion": "loo", "progress": "no"}, TypeError, ["progress", "'no'"]),
        ({"graph": "knn"}, ValueError, ["graph", "'knn'"]),
    ],
)
def test_bad_criteria(changes, kind, parts):
    X, y, _ = random_set(11, "binary", n=12)
    with pytest.raises(kind) as caught:
        mksknn.select_k(X, y, **changes)
    for part in parts:
        assert part in str(caught.value)


def test_repr_and_attributes():
    X, y, _ = random_set(12, "binary", n=30)
    found = mksknn.select_k(X, y, graph="mutual")
    for text in (
        f"k={found.k}",
        "sigma0=",
        "graph='mutual'",
        "formulation='binary'",
        "certified=True",
    ):
        assert text in repr(found)
    assert isinstance(found.k, int) and isinstance(found.at_bound, bool)
    with pytest.raises(AttributeError):
        found.k = 3
    assert "sigma0" not in repr(mksknn.select_k(X, y, criterion="loo"))


def test_evidence_that_still_rises_where_the_ranking_ends():
    """Of many points more are ranked before the first search; the best k is found all the same."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, 2))
    y = (X[:, 0] > 0) ^ (rng.random(10_000) < 0.2)
    found = mksknn.select_k(X, y, k_max=120)
    assert found.certified and found.k == 60
    around = mksknn.evidence_curve(X, y, ks=[59, 60, 61])
    assert around.best_k == 60
    assert found.log_evidence == pytest.approx(around.log_evidence[1], rel=1e-12)
