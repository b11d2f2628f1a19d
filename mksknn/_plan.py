"""Which backend computes the determinants of which graph: decided once, before work starts.

A plan comes from sizes, fill and memory, is carried to every worker, and never changes: so the same
call takes the same route on every worker.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace

import numpy as np

from ._cholmod import cholmod
from ._dense import Cholesky, Tridiagonal
from ._determinants import Determinants
from ._graphs import Pairs
from ._lapack import TILED
from ._sparse import Cholmod, SuperLU
from ._validation import check_memory

_DENSE_SIZE = 600  # so small, LAPACK wins however few the edges (benchmarks/curve.py backends)
_DENSE_SHARE = 0.05  # edges over n^2: so many, it wins without asking for the fill
# A multiplication of CHOLMOD (one thread) takes as long as so many of LAPACK's (by tiles, two
# threads): 6.1 to 7.5 where a tenth of the factor fills, 7.3 to 9.2 where less does (n = 3,000 and
# 6,000, 4 and 10 dimensions, k = 4 to 16).
_SPARSE_PRICE = 7.0
# How that work grows with k, to find where it is too much in three or four analyses: as k to the
# powers 1.6 (10-D) to 2.2 (3-D).
_FIRST_GUESS, _GUESSED_POWER, _STEEPEST = 12, 0.5, 3.0
# Points: of so many, what comes before and after CHOLMOD is worth a thread (17.7 s for 19.3 at
# n = 100,000 in the plane with k_max = 40; nothing was gained from 1,000 to 10,000).
_ASIDE = 20_000
# Graphs times n^2: less is not worth a thread. Four graphs enclosed on one or two threads, and all
# of select_k, means of 24 problems: n = 60 3.6 and 4.8 ms, 100 6.2 and 6.5, 200 15.0 and 15.2, 300
# 28.3 and 28.1, 400 61 and 49. Bounds of so few points are not either: 15.2 and 16.1 ms at n = 200,
# 122 and 125 at 600.
_WORK, _BOUNDS = 100_000, 1_000
_DENSE_BYTES = 10.0  # an n x n matrix of doubles and some room
# One reduction takes as long as 4.7 Cholesky factorizations for n = 300 to 1,500, 13 at 2,500: the
# matrix has left the cache. Two at once lose nothing to each other, as factorizations do where the
# cores share their arithmetic. Milliseconds of one k of a curve on two threads, by six to seven
# factorizations and by a reduction: n = 700 20 and 8, 1,000 43 and 20, 1,500 138 and 60, 1,797 258
# and 120, 2,040 208 and 190. With a floor, one or two factorizations are often enough.
_REDUCE_SIZE, _REDUCE_WHOLE, _REDUCTION = 800, 1_800, 10
# Ratios that are asked for: at fixed sigmas, in a search that may end at a floor, in a whole one,
# and to integrate over r (61 to 110 of a sparse graph).
ONE, SEARCH, WHOLE, INTEGRAL = 1, 2, 7, 100
# Against one reduction, the many factorizations of an integral must be small, and each takes as
# long as so many multiplications before it has done one. CPU seconds of one k by LAPACK and by
# CHOLMOD, in the plane, on a busy machine: n = 700 0.04 and 0.16 to 0.45 (k = 5 to 40), 1,000 0.1
# and 0.19 to 0.63, 1,500 0.27 and 0.16 (k = 5), 0.29 (10), 0.86 (20), 4,000 7.9 and 0.4 to 4.1.
_BEFORE = 1.5e7


@dataclass(frozen=True)
class Plan:
    """Who computes what."""

    n: int
    sparse: str  # the backend of sparse graphs, "cholmod" or "superlu"
    dense_from: int  # graphs of this k and above go to LAPACK
    memory: float | None  # bytes that were free
    most: int  # ratios that are asked of a graph
    orders: Orders = field(compare=False, repr=False)

    def dense(self, k: int) -> bool:
        """Whether LAPACK serves graph k."""
        return k >= self.dense_from

    def reduces(self, values: int) -> bool:
        """Whether LAPACK reduces a matrix once for all of so many ratios."""
        if self.n <= _REDUCE_SIZE:
            return values > ONE
        return values >= (WHOLE if self.n <= _REDUCE_WHOLE else _REDUCTION)

    def side_by_side(self, ks: np.ndarray, values: int) -> bool:
        """Whether several k at once keep the threads busy, if so many ratios are asked of each.

        LAPACK is called without the GIL, but a large factorization uses all threads by itself, as
        no reduction does. CHOLMOD keeps the GIL, but what comes before and after it does not.
        """
        if (ks >= self.dense_from).any():
            return len(ks) * self.n**2 >= _WORK and (self.n < TILED or self.reduces(values))
        return self.n >= _ASIDE

    @property
    def bounds_side_by_side(self) -> bool:
        """Whether the bounds of several k at once are worth the threads."""
        return self.n >= _BOUNDS


def sparse_backend() -> str:
    """The backend that sparse graphs use here."""
    return "superlu" if cholmod() is None else "cholmod"


def make_plan(pairs: Pairs, backend: str, memory: float | None, most: int = SEARCH) -> Plan:
    """Decide for every graph up to the largest k of the pairs, with so many bytes free, if at most
    so many ratios are asked of it.
    """
    n, orders = pairs.n, Orders(memory)
    never = pairs.k_max + 1
    if backend == "cholmod" and cholmod() is None:
        raise ImportError(
            "backend='cholmod' needs scikit-sparse: pip install 'scikit-sparse' (with SuiteSparse "
            "older than 7.4 'scikit-sparse<0.5'), or leave backend out"
        )
    if backend in ("cholmod", "superlu"):
        return Plan(n, backend, never, memory, most, orders)
    fits = memory is None or _DENSE_BYTES * n * n < memory
    if backend == "lapack" or n <= _DENSE_SIZE:
        check_memory(
            _DENSE_BYTES * n * n,
            f"a dense factorization of {n} points",
            "lower k_max, so that the graph stays sparse, or the number of points",
        )
        return Plan(n, sparse_backend(), 0, memory, most, orders)
    if not fits:
        return Plan(n, sparse_backend(), never, memory, most, orders)
    # fill grows with k: find the first k from which it is too much
    high = int(np.searchsorted(pairs.count, _DENSE_SHARE * n * n, side="right"))
    if sparse_backend() == "superlu":
        return Plan(n, "superlu", high, memory, most, orders)
    enough = n**3 / (3.0 * _SPARSE_PRICE)
    if most >= INTEGRAL:
        enough = enough * _REDUCTION / most - _BEFORE
    last = _last_sparse(pairs, high - 1, orders, enough)
    return Plan(n, "cholmod", last + 1, memory, most, orders)


def _last_sparse(pairs: Pairs, k_max: int, orders: Orders, enough: float) -> int:
    """The largest k of which CHOLMOD has less than enough to do: its work grows with k.

    Work is about a power of k, so that a few symbolic analyses find it.
    """
    if enough <= 0.0:
        return 0
    low, high, k = 0, k_max + 1, min(_FIRST_GUESS, k_max)
    while high - low > 1:
        flops = max(orders.flops(pairs, k), 1.0)
        low, high = (k, high) if flops < enough else (low, k)
        if flops * (k_max / k) ** _STEEPEST < enough:
            return k_max
        k = int(min(k * (enough / flops) ** _GUESSED_POWER, k_max))
        k = min(max(k, low + 1), high - 1)
    return low


def open_graph(pairs: Pairs, k: int, plan: Plan, values: int) -> Determinants:
    """The log-determinants of graph k, of which about so many will be asked for."""
    if plan.dense(k):
        return Tridiagonal(pairs, k) if plan.reduces(values) else Cholesky(pairs, k)
    if plan.sparse == "superlu":
        return SuperLU(pairs, k)
    return plan.orders.open(pairs, k, plan.dense_from)


# Graphs share the fill-reducing order of the next rung above, which is an order of theirs too, only
# with edges to spare: at n = 30,000 (2-D), k = 48 took 1.24 of its time in the order of k = 64, and
# k = 32 1.18 in that of 48; to order k = 48 took five times as long as to factorize it. An order of
# fewer edges is none: k = 48 took 12 times as long in that of k = 32.
_FEWEST = 5_000  # points: of fewer, all orders together take less than a second
_RUNGS = np.unique(np.rint(2.0 ** np.arange(0.0, 31.0, 0.5)).astype(np.int64))


class Orders:
    """Fill-reducing orders that neighbouring k share, where those are dear to find.

    Which k share one is fixed, so that values do not depend on which k came first; what has been
    found stays in this process.
    """

    def __init__(self, memory: float | None) -> None:
        self._memory = memory
        self._places: dict[int, np.ndarray | None] = {}  # by rung; None: to each k its own
        self._analyzed: dict[int, Cholmod] = {}  # in an order of their own, not asked for yet
        self._lock = threading.Lock()  # of several threads one finds an order

    def __reduce__(self) -> tuple:
        return Orders, (self._memory,)

    def flops(self, pairs: Pairs, k: int) -> float:
        """Multiplications of a factorization of graph k in an order of its own."""
        self._analyzed[k] = self._alone(pairs, k)
        return self._analyzed[k].flops

    def open(self, pairs: Pairs, k: int, dense_from: int) -> Cholmod:
        """Graph k, in the order of its rung or in its own."""
        rung = int(_RUNGS[np.searchsorted(_RUNGS, k)])
        rung = min(rung, pairs.k_max, max(dense_from - 1, k))
        if rung == k or pairs.n < _FEWEST:
            return self._alone(pairs, k)
        with self._lock:
            if rung not in self._places:
                above = self._analyzed[rung] = self._alone(pairs, rung)
                self._places[rung] = above.places if above.order_is_dear else None
            place = self._places[rung]
        if place is None:
            return self._alone(pairs, k)
        edges = pairs.count[k]
        rows, columns = place[pairs.rows[:edges]], place[pairs.columns[:edges]]
        return Cholmod(replace(pairs, rows=rows, columns=columns), k, "natural", self._memory)

    def _alone(self, pairs: Pairs, k: int) -> Cholmod:
        known = self._analyzed.pop(k, None)
        return Cholmod(pairs, k, memory=self._memory) if known is None else known
