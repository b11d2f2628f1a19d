"""The plan: which backend computes which graph, decided once from sizes, fill and memory."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from posing import pairs_of, problem_of

import mksknn
from mksknn._cholmod import Factor, cholmod
from mksknn._plan import INTEGRAL, ONE, SEARCH, WHOLE, make_plan, open_graph, sparse_backend
from mksknn._sparse import Cholmod
from mksknn._threads import limit_threads

REAL = pytest.mark.skipif(cholmod() is None, reason="scikit-sparse is missing")


def chain(n=900, k_max=400, seed=13):
    """Points on a line, whose factors hardly fill in."""
    rng = np.random.default_rng(seed)
    return pairs_of(np.cumsum(rng.exponential(size=(n, 1)), axis=0), "mutual", k_max)


def backend_of(pairs, k, plan):
    return open_graph(pairs, k, plan, SEARCH).backend


def test_choice_of_a_backend():
    small = pairs_of(np.random.default_rng(13).normal(size=(60, 2)), "symmetric")
    assert backend_of(small, 3, make_plan(small, "auto", None)) == "lapack"
    pairs = chain()
    plan = make_plan(pairs, "auto", None)
    assert backend_of(pairs, 2, plan) == sparse_backend()
    assert backend_of(pairs, 400, plan) == "lapack"
    assert plan.side_by_side(np.array([2, 400]), SEARCH)
    assert not plan.side_by_side(np.array([2]), SEARCH)
    assert replace(plan, n=30_000).side_by_side(np.array([2]), SEARCH)


def test_few_points_are_not_worth_a_thread():
    pairs = pairs_of(np.random.default_rng(13).normal(size=(100, 2)), "symmetric")
    plan = make_plan(pairs, "auto", None)
    assert plan.side_by_side(np.arange(1, 100), SEARCH)
    assert not plan.side_by_side(np.arange(1, 5), SEARCH)
    assert not plan.bounds_side_by_side
    assert replace(plan, n=1_000).bounds_side_by_side


def test_fill_grows_with_k_so_there_is_one_border():
    pairs = chain()
    plan = make_plan(pairs, "auto", None)
    dense = [plan.dense(k) for k in range(1, 401)]
    assert dense == sorted(dense)
    assert 1 < plan.dense_from <= 400
    for k in (plan.dense_from - 1, plan.dense_from):
        expected = "lapack" if plan.dense(k) else sparse_backend()
        assert backend_of(pairs, k, plan) == expected


@pytest.mark.parametrize("backend", ["lapack", "superlu", pytest.param("cholmod", marks=REAL)])
def test_a_backend_that_is_asked_for_serves_every_k(backend):
    pairs = chain(n=700, k_max=300)
    plan = make_plan(pairs, backend, None)
    for k in (1, 40, 300):
        assert backend_of(pairs, k, plan) == backend


@REAL
@pytest.mark.parametrize(("dimensions", "backend"), [(2, "cholmod"), (10, "lapack")])
def test_fill_decides(dimensions, backend):
    """The same number of points and of edges: in many dimensions the factor fills in."""
    points = np.random.default_rng(14).normal(size=(700, dimensions))
    pairs = pairs_of(points, "symmetric", 20)
    assert backend_of(pairs, 20, make_plan(pairs, "auto", None)) == backend


@REAL
def test_many_ratios_of_few_points_are_worth_a_reduction():
    """One reduction serves all ratios of an integral; of many points it is too dear."""
    for n, sparse in ((700, []), (2_000, [3])):
        pairs = pairs_of(np.random.default_rng(15).normal(size=(n, 2)), "symmetric", 40)
        plan = make_plan(pairs, "auto", None, INTEGRAL)
        assert [k for k in (3, 40) if not plan.dense(k)] == sparse
        assert not make_plan(pairs, "auto", None).dense(20)
    X = np.random.default_rng(16).normal(size=(700, 2))
    problem = problem_of(X, X[:, 0] > 0.0, k_max=10)
    assert problem.plan.most == SEARCH and not problem.plan.dense(10)


def test_dense_is_not_chosen_where_it_does_not_fit():
    pairs = pairs_of(np.random.default_rng(12).normal(size=(700, 2)), "symmetric", 300)
    assert backend_of(pairs, 300, make_plan(pairs, "auto", None)) == "lapack"
    assert backend_of(pairs, 300, make_plan(pairs, "auto", 1e6)) == sparse_backend()


def test_a_dense_matrix_that_was_asked_for_must_fit(memory):
    X = np.random.default_rng(12).normal(size=(700, 2))
    memory(4e6)
    with (
        limit_threads(1),
        pytest.raises(ValueError, match=r"a dense factorization of 700 points would take 0\.0 GB"),
    ):
        mksknn.evidence_curve(X, X[:, 0], ks=[3], backend="lapack")


def test_one_reduction_or_many_factorizations():
    """A reduction pays where many ratios are asked for and the matrix is small."""
    small = pairs_of(np.random.default_rng(15).normal(size=(60, 2)), "symmetric")
    plan = make_plan(small, "lapack", None)
    assert plan.reduces(SEARCH) and not plan.reduces(ONE)
    assert open_graph(small, 5, plan, SEARCH).free_ratios
    assert not open_graph(small, 5, plan, ONE).free_ratios
    large = pairs_of(np.random.default_rng(16).normal(size=(900, 1)), "symmetric", 2)
    plan = make_plan(large, "lapack", None)
    assert not open_graph(large, 2, plan, SEARCH).free_ratios
    assert open_graph(large, 2, plan, WHOLE).free_ratios
    assert not replace(plan, n=2_000).reduces(WHOLE)
    assert open_graph(large, 2, plan, INTEGRAL).free_ratios


def test_memory_is_read_once_and_goes_with_the_problem(memory):
    """Whatever is free later, workers and deeper rankings keep to the plan of the call."""
    X = np.random.default_rng(17).normal(size=(700, 2))
    memory(1e9)
    problem = problem_of(X, X[:, 0], k_max=5)
    memory(4.8e6)  # enough for the ranking of one thread, not for a dense matrix
    assert problem.for_workers().plan == problem.plan
    with limit_threads(1):
        deeper = problem.deepened(300)
    assert deeper.plan.memory == problem.plan.memory
    assert deeper.plan.dense(300)


def test_superlu_takes_over(scikit_sparse):
    pairs = chain(n=700, k_max=5)
    scikit_sparse(None)
    assert sparse_backend() == "superlu"
    plan = make_plan(pairs, "auto", None)
    assert backend_of(pairs, 3, plan) == "superlu"
    with pytest.raises(ImportError, match="backend='cholmod' needs scikit-sparse"):
        make_plan(pairs, "cholmod", None)


@REAL
def test_neighbours_share_the_order_of_the_rung_above(monkeypatch):
    """Where orders are dear, one is found for the k up to 20, and one for those up to 16."""
    pairs = pairs_of(np.random.default_rng(0).normal(size=(10_000, 3)), "symmetric", 20)
    plan, found = make_plan(pairs, "cholmod", None), []
    analyze = Factor._analyze
    monkeypatch.setattr(Factor, "_analyze", lambda one, how: (found.append(how), analyze(one, how)))
    values = {k: open_graph(pairs, k, plan, SEARCH).logdet(0.1) for k in (18, 19, 20, 17, 15)}
    dear = [how for how in found if how != "amd"]
    assert dear == ["metis", *["natural"] * 3, "metis", "natural"]
    for k, value in values.items():  # and what it was pickled for does not know any order
        copy = pickle.loads(pickle.dumps(plan))
        assert open_graph(pairs, k, copy, SEARCH).logdet(0.1) == value
        assert Cholmod(pairs, k).logdet(0.1) == pytest.approx(value, rel=1e-12)


@REAL
def test_orders_that_are_cheap_are_not_shared():
    pairs = chain(n=700, k_max=20)
    plan = make_plan(pairs, "cholmod", None)
    opened = open_graph(pairs, 18, plan, SEARCH)
    assert not opened.order_is_dear
    assert opened.logdet(0.1) == Cholmod(pairs, 18).logdet(0.1)
