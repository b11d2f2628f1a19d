"""From links to means, variances, probabilities and winners, at one (k, ratio) or averaged.

With w_i the weight of training point i for a new point, r = sigma2/sigma0 and V_l the weight of
class l among them:

    mean         sum w_i y_i / (sum w_i + r)         classes: V_l / (sum w_i + r)
    variance     1 / (sigma0 sum w_i + sigma2)
    probability  (V_l + r/J) / (sum w_i + r)         the mean, and the mass left over spread evenly

The plain vote or average is r = 0.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ._jit import kernel
from ._names import Graph, Ties
from ._queries import Links
from ._targets import Voters

_TIE = 1e-12  # averaged probabilities nearer than this, relatively, differ by rounding alone


@dataclass(frozen=True, eq=False)
class Blend:
    """What a prediction is an average of: pairs (k, r), their weights and E[1/sigma0 | k, r, y].

    They come in rising order of k. A posterior makes many; a Selection, or k and the sigmas, one.
    The plain vote has r = 0 and no ``inverse_sigma0``, and with it no variance.
    """

    k: np.ndarray  # int64
    ratio: np.ndarray
    inverse_sigma0: np.ndarray | None
    weight: np.ndarray  # sums to one

    @classmethod
    def single(cls, k: int, sigmas: tuple[float, float] | None) -> Blend:
        """A known k, with known sigmas or none."""
        ks, one = np.array([k], np.int64), np.ones(1)
        if sigmas is None:
            return cls(ks, np.zeros(1), None, one)
        sigma0, sigma2 = sigmas
        ratio, inverse = sigma2 / sigma0, 1.0 / sigma0
        if not (ratio > 0 and math.isfinite(ratio) and math.isfinite(inverse)):
            raise ValueError(
                "sigma0 and sigma2 must have a ratio that fits in a float; got "
                f"sigma0={sigma0!r} and sigma2={sigma2!r}"
            )
        return cls(ks, np.array([ratio]), np.array([inverse]), one)

    @classmethod
    def many(
        cls, k: np.ndarray, ratio: np.ndarray, inverse_sigma0: np.ndarray, weight: np.ndarray
    ) -> Blend:
        """Pairs in rising order of k; those without weight are dropped, the rest scaled to one."""
        used = weight > 0
        scaled = weight[used] / weight[used].sum()
        return cls(k[used].astype(np.int64), ratio[used], inverse_sigma0[used], scaled)

    @functools.cached_property
    def ks(self) -> np.ndarray:
        """The k in it, each once: one graph for each."""
        return np.unique(self.k)

    @functools.cached_property
    def parts(self) -> Parts:
        """The same for the kernels."""
        begins = np.append(np.searchsorted(self.k, self.ks), len(self.k))
        inverse = self.inverse_sigma0
        if inverse is None:
            inverse = np.zeros(len(self.k))
        return Parts(begins, self.ratio, inverse, self.weight)


class Parts(NamedTuple):
    """A `Blend` in which graph a has the pairs ``begins[a]:begins[a + 1]``."""

    begins: np.ndarray
    ratio: np.ndarray
    inverse_sigma0: np.ndarray
    weight: np.ndarray


class Votes(NamedTuple):
    """The answers to a block of queries; regression has no use for the first two.

    Outputs are those of a regression or the classes, and with two classes their difference.
    """

    winner: np.ndarray  # int32, the class by number
    probability: np.ndarray  # (queries, classes)
    mean: np.ndarray  # (queries, outputs), without the mean that regression took off
    within: np.ndarray  # variance inside the pairs (k, r), common to all outputs
    between: np.ndarray  # (queries, outputs), variance of the means of the pairs
    n_neighbors: np.ndarray  # int64

    @classmethod
    def empty(cls, n_new: int, voters: Voters) -> Votes:
        """Room for n_new answers."""
        classes = voters.n_classes
        outputs = classes + (classes == 2) if classes else voters.values.shape[1]
        return cls(
            np.zeros(n_new, np.int32),
            np.empty((n_new, classes)),
            np.empty((n_new, outputs)),
            np.empty(n_new),
            np.empty((n_new, outputs)),
            np.empty(n_new, np.int64),
        )

    def put(self, rows: np.ndarray | slice, block: Votes) -> None:
        """Put the answers of a block into their rows."""
        for mine, theirs in zip(self, block):
            mine[rows] = theirs


def combine(links: Links, voters: Voters, blend: Blend, graph: Graph, ties: Ties) -> Votes:
    """Average the predictions of the pairs by the law of total variance.

    mean = E[mean_c], variance = E[1/sigma0 / (sum w + r)] + Var[mean_c]; the second term is summed
    as squares around the mean, so that nothing cancels. The label of a single pair is decided by
    its votes, an average's by the averaged probability. A neighbour has weight in any of them.

    The links must be those of the graphs ``blend.ks``.
    """
    out = Votes.empty(len(links.closest), voters)
    _combine(links, graph == "mutual", blend.parts, voters.numbers, ties == "nearest", out)
    return out


@kernel
def _combine(links, mutual, parts, targets, nearest, out):
    """Targets are values in two dimensions or class numbers in one: compiled for each by itself."""
    n_graphs, outputs = parts.begins.shape[0] - 1, out.mean.shape[1]
    classes = out.probability.shape[1]
    total = np.empty(n_graphs)  # sum of the weights in each graph
    sums = np.empty((n_graphs, outputs))  # and of weight times target
    means = np.empty((n_graphs, outputs))
    for q in range(links.starts.shape[0] - 1):
        total[:], sums[:], neighbors = 0.0, 0.0, 0
        for e in range(links.starts[q], links.starts[q + 1]):
            i = links.indices[e]
            first, second = _entries(links.own[e], links.back[e], mutual, n_graphs)
            neighbors += min(first, second) < n_graphs
            for a in (first, second):
                if a < n_graphs:
                    total[a] += 1.0
                    if targets.ndim == 2:
                        for c in range(outputs):
                            sums[a, c] += targets[i, c]
                    else:
                        sums[a, targets[i]] += 1.0
                        if outputs > classes:
                            sums[a, classes] += 1.0 if targets[i] else -1.0
        out.n_neighbors[q] = neighbors
        left = _average(parts, q, total, sums, means, out)
        if targets.ndim == 2:
            continue
        for c in range(classes):
            out.probability[q, c] = out.mean[q, c] + left / classes
        # equal votes make equal means; averages are equal only up to rounding
        score, slack = out.mean, 0.0
        if parts.ratio.shape[0] > 1:
            score, slack = out.probability, _TIE
        best = score[q, 0]
        for c in range(1, classes):
            best = max(best, score[q, c])
        best *= 1.0 - slack
        # the winner, among the classes whose score reaches the best
        if nearest:
            out.winner[q] = targets[links.closest[q]]
            for e in range(links.starts[q], links.starts[q + 1]):
                first, second = _entries(links.own[e], links.back[e], mutual, n_graphs)
                code = targets[links.indices[e]]
                if min(first, second) < n_graphs and score[q, code] >= best:
                    out.winner[q] = code
                    break
        else:
            for c in range(classes):
                if score[q, c] >= best:
                    out.winner[q] = c
                    break


@kernel
def _entries(own, back, mutual, never):
    """The graphs in which a link gets its first and its second unit of weight."""
    if mutual:
        return max(own, back), np.int32(never)
    return own, back  # of k-NN, no point links back


@kernel
def _average(parts, q, total, sums, means, out):
    """Means and variances of query q over all pairs; returns the mass that no vote has taken.

    Total and sums come by the graph in which links begin.
    """
    n_graphs, outputs = sums.shape
    left = 0.0
    out.within[q] = 0.0
    for c in range(outputs):
        out.mean[q, c] = 0.0
        out.between[q, c] = 0.0
    for a in range(n_graphs):
        if a > 0:  # each graph holds the links of those before it
            total[a] += total[a - 1]
            for c in range(outputs):
                sums[a, c] += sums[a - 1, c]
        begin, end = parts.begins[a], parts.begins[a + 1]
        mass = 0.0
        inverse = 0.0  # the mean of 1 / (sum w + r)
        for p in range(begin, end):
            below = total[a] + parts.ratio[p]
            mass += parts.weight[p]
            if below > 0.0:
                inverse += parts.weight[p] / below
                left += parts.weight[p] * (parts.ratio[p] / below)
                out.within[q] += parts.weight[p] * (parts.inverse_sigma0[p] / below)
            else:  # the plain vote of no neighbours
                left += parts.weight[p]
        if end - begin == 1:
            below = total[a] + parts.ratio[begin]
            for c in range(outputs):
                means[a, c] = sums[a, c] / below if below > 0.0 else 0.0
        else:
            inverse /= mass
            spread = 0.0
            for p in range(begin, end):
                step = 1.0 / (total[a] + parts.ratio[p]) - inverse
                spread += parts.weight[p] * step * step
            for c in range(outputs):
                out.between[q, c] += spread * sums[a, c] * sums[a, c]
                means[a, c] = sums[a, c] * inverse
        for c in range(outputs):
            out.mean[q, c] += mass * means[a, c]
    for a in range(n_graphs):
        mass = 0.0
        for p in range(parts.begins[a], parts.begins[a + 1]):
            mass += parts.weight[p]
        for c in range(outputs):
            step = means[a, c] - out.mean[q, c]
            out.between[q, c] += mass * step * step
    return left
