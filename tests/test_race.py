"""The race: how deep to rank, which k are out, whose turn it is, and what is proven at the end."""

import dataclasses
import re

import naive
import numpy as np
import pytest
from posing import opened_graph, problem_of, random_set

import mksknn
from mksknn import _race
from mksknn._bounds import anchor_bounds, diagonal_bounds, foretell, guess_ratio, local_bound, slack
from mksknn._enclosures import enclose
from mksknn._problem import pose
from mksknn._race import Standing, find_best, first_depth

GRAPHS = ("mutual", "symmetric")


class Said:
    """A bar that remembers what is said."""

    def __init__(self):
        self.texts = []

    def say(self, text):
        self.texts.append(text)

    def update(self, steps=1):
        pass

    def numbers(self, before):
        """The numbers that follow these words."""
        found = [re.match(f"{before}(\\d+)(?!\\.)", text) for text in self.texts]
        return [int(one.group(1)) for one in found if one]


def standing_of(X, y, depth=None, said=None, **options):
    """What is known of each k at the start, with so many neighbours ranked."""
    question = pose(X, y, graph=options.pop("graph", "symmetric"), metric="euclidean", **options)
    problem = question.problem(*next(question.candidates()), depth)
    return Standing(problem, None, Said() if said is None else said)


# ---------------------------------------------------------------- how deep to rank


@pytest.mark.uncompiled
def test_how_many_neighbours_are_ranked_at_first():
    """All that are asked for, where those are few; otherwise those of the first k."""
    few, deep, small = _race._DEPTH, _race._DEEP, _race._ALL
    beyond = np.arange(deep + 1, deep + 1 + _race._ROUND)
    for n, ks, expected in (
        (small, None, small - 1),
        (small + 1, None, few),
        (small + 1, range(1, deep + 1), deep),
        (small + 1, range(1, deep + 2), few),
        (small + 1, [few, *beyond], beyond[-1]),
        (small + 1, [few, *beyond, deep + 20], few),
        (small + 1, range(few + 1, small), small - 1),
        (small + 1, range(few, small), few),
    ):
        X = np.arange(float(n))[:, None] ** 1.1
        question = pose(X, X[:, 0], graph="mutual", metric="euclidean", ks=ks)
        assert first_depth(question, question.rankings[0]) == expected
    lists = mksknn.neighbors(X)
    question = pose(lists, X[:, 0], graph="mutual", metric="euclidean")
    assert first_depth(question, question.rankings[0]) == small


# ---------------------------------------------------------------- bounds


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", GRAPHS)
def test_every_ranked_k_has_a_bound_and_no_other(graph):
    X, y, _ = random_set(31, "regression", n=14)
    for depth in (1, 6, 13):
        standing = standing_of(X, y, depth, graph=graph)
        assert (np.isfinite(standing.upper) == (np.arange(1, 14) <= depth)).all()
        assert standing.rivals(-np.inf).tolist() == list(range(13))


@pytest.mark.uncompiled
def test_a_bound_at_the_floor_is_enough():
    """The k is out, and nobody looks for a better bound."""
    X, y, _ = random_set(32, "binary", n=40)
    for at in (0, 2, 4):
        standing = standing_of(X, y, graph="mutual")
        floor = standing.upper[at]
        assert at not in standing.rivals(floor)
        assert at in standing.rivals(np.nextafter(floor, -np.inf))
        floor = diagonal_bounds(standing.problem, np.array([at + 1]))[0][0]
        assert floor < standing.upper[at]
        standing.improve(floor)
        assert standing.upper[at] == floor
        standing.improve(np.nextafter(floor, -np.inf))
        assert standing.upper[at] < floor


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", GRAPHS)
def test_k_beyond_the_ranked_are_bounded_then_ranked_if_need_be(graph):
    X, y, _ = random_set(33, "regression", n=70)
    said = Said()
    standing = standing_of(X, y, 5, said, graph=graph)
    standing.improve(standing.upper[:5].max() + 1e9)
    assert standing.problem.depth == 5 and np.isfinite(standing.upper).all()
    for k in (6, 20, 69):
        assert standing.upper[k - 1] >= naive.optimum(X, y, k, graph=graph)[0]
    rows = said.numbers("ruling out by one pass over all pairs: ")
    assert rows == sorted(set(rows)) and rows[-1] == 100  # a bar takes long to draw
    assert all(one % 5 == 0 for one in rows)
    assert not said.numbers("ranking ")
    beyond = 6 + int(np.argmax(standing.upper[5:]))
    standing.improve(np.nextafter(standing.upper[beyond - 1], -np.inf))
    assert said.numbers("ranking ") == [standing.problem.depth]
    assert standing.problem.depth >= beyond


@pytest.mark.uncompiled
def test_values_above_their_bounds_are_noticed():
    """Rounding, as far as the slack goes, is none; and what is enclosed is no rival any more."""
    X, y, _ = random_set(37, "regression", n=12)
    for by, consistent in ((0.0, True), (0.5, True), (1.0, True), (1.5, False)):
        standing = standing_of(X, y)
        one = enclose(standing.problem, 4)
        standing.upper[3] = bound = one.lower - 3.0
        higher = bound + by * slack(standing.problem)
        optimum = dataclasses.replace(one.optimum, log_evidence=higher)
        standing.note(3, dataclasses.replace(one, optimum=optimum))
        assert standing.consistent is consistent
        assert standing.lower[3] == higher and standing.upper[3] == max(bound, higher)
        assert 3 not in standing.rivals(-np.inf)
        assert standing.evaluated.tolist() == [4]


# ---------------------------------------------------------------- whose turn it is

# from how many points on, rivals, and whether bounds are improved and a favourite is asked for
CASES_OF_THE_FIRST = [(71, 5, False, False), (70, 5, True, True), (70, 2, True, True)]
CASES_OF_THE_FIRST += [(70, 1, True, False), (70, 0, True, False)]


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", GRAPHS)
def test_the_lead_has_the_highest_bound(graph):
    """As good a bound as it comes without a factorization, of those that are ranked."""
    X, y, _ = random_set(40, "regression", n=30)
    for ks, depth in ([7], 7), (range(1, 30), 29), (range(1, 30), 3), ([2, 3, 28], 28):
        standing = standing_of(X, y, depth, graph=graph, ks=ks)
        lead = standing.lead()
        ranked = standing.problem.ks <= depth
        assert ranked[lead] and standing.upper[lead] == standing.upper[ranked].max()
        k = standing.problem.ks[lead]
        diagonal, pays = diagonal_bounds(standing.problem, np.array([k]))
        best = local_bound(standing.problem, int(k)) if pays[0] else diagonal[0]
        assert standing.upper[lead] <= best


@pytest.mark.uncompiled
@pytest.mark.parametrize("points, others, improved, asked", CASES_OF_THE_FIRST)
def test_of_many_points_the_favourite_is_first(points, others, improved, asked, monkeypatch):
    """Among those that may beat what is foretold of the lead; without rivals it is the lead."""
    X, y, _ = random_set(33, "regression", n=70)
    standing = standing_of(X, y)
    lead, told, floors = standing.lead(), 12.5, []
    rivals = np.arange(others)
    monkeypatch.setattr(_race, "_POINTS", points)
    monkeypatch.setattr(standing, "_foretell", lambda ks: [(told, 1.0)])
    monkeypatch.setattr(standing, "improve", floors.append)
    monkeypatch.setattr(standing, "rivals", lambda floor: rivals)
    monkeypatch.setattr(standing, "favourite", lambda some: -len(some))
    standing.foretells = True
    assert standing.first() == (-others if asked else lead)
    assert floors == ([told] if improved else [])


@pytest.mark.uncompiled
def test_the_favourite_is_the_one_foretold_to_be_best():
    """Wherever it is among the rivals, if what is foretold rises up to it and then falls."""
    X, y, _ = random_set(34, "binary", n=40)
    standing = standing_of(X, y)
    told = np.argsort([foretell(standing.problem, k)[0] for k in range(1, 40)])
    for size in (3, 16, 19, 34, 35):
        for best in {0, 1, 5 % size, size // 2, size - 2, size - 1}:
            rising = np.sort(np.random.default_rng(best).choice(size - 1, best, replace=False))
            falling = np.setdiff1d(np.arange(size - 1), rising)[::-1]
            rivals = told[np.concatenate([rising, [size - 1], falling])]
            assert standing.favourite(rivals) == rivals[best]


@pytest.mark.parametrize("more", [0, 1])
def test_a_few_rivals_take_their_turns_by_their_bounds(more):
    """So many at once; of more, the favourite comes first. (None is ruled out by a bound here.)"""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(801, 3))
    y = X[:, 0] + rng.normal(size=801)
    ks, said = range(20, 21 + _race._MANY + more), Said()
    problem = problem_of(X, y, graph="mutual", ks=ks, backend="superlu")
    standing = find_best(problem, None, said)
    left = said.numbers("k left: ")
    assert left[0] == _race._MANY + more and left[-1] == 0
    assert left[0] - left[1] == (1 if more else _race._ROUND)
    assert standing.certified and len(standing.evaluated) == len(ks)


@pytest.mark.uncompiled
def test_a_search_begins_at_the_peak_of_the_nearest_k(monkeypatch):
    X, y, _ = random_set(3, "regression", n=24)
    standing, starts = standing_of(X, y, backend="superlu"), {}
    standing.enclose(np.array([1, 15]), -np.inf)
    peaks = {one.k: one.optimum.ratio for one in standing.enclosed.values()}
    assert peaks[2] != peaks[16]

    def enclosing(problem, k, floor, triangles, start):
        starts[k] = start
        return enclose(problem, k, floor, triangles, start)

    monkeypatch.setattr(_race, "enclose", enclosing)
    standing.enclose(np.array([3, 12]), -np.inf)
    assert starts == {4: peaks[2], 13: peaks[16]}


@pytest.mark.uncompiled
def test_which_sparse_anchor_should_rule_out_most():
    """By the errors foretold of its bounds on the k below it, literally; none if those are few."""
    X, y, _ = random_set(5, "regression", n=40)
    standing = standing_of(X, y, backend="superlu", k_max=30)
    ks, edges = np.arange(1, 31), 40.0 * np.arange(31)  # symmetric: each adds one edge a point
    chosen = []
    for scale in (0.02, 0.05, 0.1, 0.3, 1.0):
        told = {k: -scale * (k - 24) ** 2 / 24.0 for k in range(1, 31)}
        standing._told = {k: (value, 1.0) for k, value in told.items()}
        out = [
            sum(
                told[k] + 0.4 * (edges[a] - edges[k]) * (40.0 / edges[a]) ** 2 < -0.01
                for k in range(1, a + 1)
            )
            for a in range(1, 31)
        ]
        expected = int(np.argmax(out)) if max(out) >= 10 else None
        assert standing._sparse_anchor(ks, -0.01) == expected
        chosen.append(expected)
    assert None in chosen and len(set(chosen)) >= 3


@pytest.mark.uncompiled
def test_anchors_go_on_as_long_as_they_pay():
    """Where few are left to rule out, none is tried; one that rules out few is the last one."""
    X, y, _ = random_set(38, "regression", n=40)
    few = _race._FEW
    for k_max, tried in ((few - 1, False), (few, True)):
        standing = standing_of(X, y, k_max=k_max)
        assert standing.anchor(-np.inf) is tried
        assert len(standing.anchored) == tried

    for k_max, out, goes_on in ((10, 0, False), (10, 1, True), (20, 1, False), (20, 2, True)):
        first = standing_of(X, y, k_max=k_max)
        first.anchor(-np.inf)
        floor = -np.inf if not out else np.sort(first.upper)[out - 1]
        standing = standing_of(X, y, k_max=k_max)
        assert len(standing.rivals(floor)) == k_max
        assert standing.anchor(floor)
        assert len(standing.rivals(floor)) == k_max - out
        assert standing.anchor(floor) is goes_on


@pytest.mark.uncompiled
@pytest.mark.parametrize("known", ["nothing", "the peak", "sigmas"])
def test_an_anchor_is_above_the_peak(known):
    """It bounds every ranked k, none by less than a value that was found."""
    X, y, _ = random_set(36, "regression", n=20)
    sigmas = {"sigma0": 0.3, "sigma2": 0.7} if known == "sigmas" else {}
    standing = standing_of(X, y, 15, ks=range(1, 19), **sigmas)
    problem, before = standing.problem, standing.upper.copy()
    at = int(np.argmax(before[:15]))
    ratio = 1.3 * guess_ratio(problem, at + 1)
    if known == "the peak":
        one = enclose(problem, at + 1)
        standing.enclosed[at] = one
        ratio = one.optimum.ratio * (1.0 if at == 4 else 1.3)  # 4 is the best, below
    elif known == "sigmas":
        ratio = 0.7 / 0.3
    standing.upper[15:] = before[:15].min()
    standing.lower[4] = lower = before[4] + 1.0
    assert standing.anchor(-np.inf)
    assert standing.evaluated.tolist() == [at + 1]
    opened = opened_graph(problem.pairs, at + 1, "lapack", many=False)
    expected = np.minimum(anchor_bounds(problem, opened, ratio), before[:15])
    expected[4] = lower
    np.testing.assert_allclose(standing.upper[:15], expected, rtol=1e-12)
    assert (standing.upper[15:] == before[:15].min()).all()


# ---------------------------------------------------------------- what is proven


@pytest.mark.uncompiled
def test_a_draw_is_proven():
    X, y, _ = random_set(39, "binary", n=11)
    standing = standing_of(X, y, ks=[4, 7])
    one = enclose(standing.problem, 4)
    standing.upper[:] = one.upper
    standing.note(0, one)
    standing.note(1, one)
    assert standing.best == 0 and standing.margin == 0.0 and standing.certified
    standing.note(1, dataclasses.replace(one, settled=False))
    assert standing.margin == one.lower - one.upper < 0.0 and not standing.certified


@pytest.mark.uncompiled
@pytest.mark.parametrize("graph", GRAPHS)
def test_a_race_among_a_dozen(graph):
    """The margin is what the bounds leave."""
    X, y, _ = random_set(38, "regression", n=13)
    said = Said()
    standing = find_best(problem_of(X, y, graph=graph), None, said)
    ks, values, *_ = naive.evidence_curve(X, y, graph=graph)
    assert ks[standing.best] == naive.best_k(X, y, graph=graph)
    assert standing.certified
    others = np.delete(standing.upper, standing.best)
    assert 0.0 < standing.margin == standing.lower[standing.best] - others.max()
    allowed = slack(standing.problem) + 1e-9
    assert (standing.lower - allowed <= values).all() and (values <= standing.upper + allowed).all()
    assert said.numbers("k left: ")[-1] == 0


@pytest.mark.filterwarnings("error")
def test_given_lists_may_make_no_edge():
    """Each ranks the next ones, and no two each other: the graph explains nothing."""
    n = 1500
    lists = mksknn.as_neighbors((np.arange(n)[:, None] + np.arange(1, 40)) % n)
    best = mksknn.select_k(lists, np.random.default_rng(0).integers(0, 2, n), graph="mutual")
    assert best.certified and best.at_bound
    assert best.sigma2 / best.sigma0 == pytest.approx(1e6)
