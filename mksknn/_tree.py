"""A k-d tree whose nodes also know the largest distance within which one of their points adopts.

Distances to a box are computed with the operations of distances to a point, in the same order, and
each of them is monotone also after rounding. So a box is never farther than a point in it, not even
by one unit in the last place, and what is pruned is beyond doubt. Squares stand for Euclidean
distances; the factor _WIDER keeps those whose square root rounds to the same number.

A node has two boxes. One holds its points; nobody in it adopts beyond the largest radius from
there. The other holds the balls of all its points, so that one with a large radius at the edge of a
node does not claim queries at the opposite edge: among 100,000 normal points in 3 dimensions that
left 9 leaves to look at for each query instead of 13, and 66 nodes to pass instead of 115.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ._jit import kernel
from ._order import replace_top, sort_heap
from ._products import grown

_LEAF = 32  # 12 to 32 took the same time in 3 dimensions, and 32 has the fewest nodes to keep
_WIDER = 1.0 + 1e-15
# A ball that is widened so holds whatever is within its radius after rounding, of a coordinate or
# of a square that loses digits because it is nearly too small to be a number.
_SLACK, _VANISHED = 1e-14, 2.0**-500
_STACK = 64  # a search keeps one node waiting per level, and 2**31 points make 28 levels


class Tree(NamedTuple):
    """Nodes by number, the root first; points in the order of the leaves."""

    columns: np.ndarray  # (d, n)
    order: np.ndarray  # the index of each point
    radii: np.ndarray  # of each point; empty if nobody adopts
    boxes: np.ndarray  # (nodes, 2, d), the lowest and the highest corner
    begin: np.ndarray  # the points of a node
    end: np.ndarray
    child: np.ndarray  # the first of two children, the second follows; 0 marks a leaf
    reach: np.ndarray  # (nodes,), the largest radius in a node (Euclidean: its square)
    balls: np.ndarray  # (nodes, 2, d), corners of a box that holds everything its points adopt


@kernel
def build_tree(points):
    """A k-d tree by halving boxes across their longest side; children follow their parents."""
    n, d = points.shape
    order = np.arange(n).astype(np.int32)
    size = 1
    while size * _LEAF < 2 * n:
        size *= 2
    boxes = np.empty((size, 2, d))
    begin, end = np.empty(size, np.int32), np.empty(size, np.int32)
    child = np.zeros(size, np.int32)
    begin[0], end[0] = 0, n
    made = 1
    node = 0
    while node < made:
        first, last = begin[node], end[node]
        low, high = boxes[node, 0], boxes[node, 1]
        low[:] = np.inf
        high[:] = -np.inf
        for e in range(first, last):
            i = order[e]
            for c in range(d):
                low[c] = min(low[c], points[i, c])
                high[c] = max(high[c], points[i, c])
        if last - first > _LEAF:
            axis = np.argmax(high - low)
            middle = (first + last) // 2
            _split(points, axis, order, first, last - 1, middle)
            child[node] = made
            begin[made], end[made] = first, middle
            begin[made + 1], end[made + 1] = middle, last
            made += 2
        node += 1
    return Tree(
        np.ascontiguousarray(points[order].T),
        order,
        np.empty(0),
        boxes[:made].copy(),
        begin[:made].copy(),
        end[:made].copy(),
        child[:made].copy(),
        np.empty(0),
        np.empty((0, 2, d)),
    )


def tree_with_radii(tree: Tree, radii: np.ndarray, code: int) -> Tree:
    """The same tree, in which each point adopts whatever is nearer than its radius."""
    reach, balls = _reach(tree, radii, code)
    return tree._replace(radii=radii[tree.order], reach=reach, balls=balls)


@kernel
def _reach(tree, radii, code):
    d = tree.columns.shape[0]
    reach = np.zeros(tree.child.shape[0])
    balls = np.empty((reach.shape[0], 2, d))
    for node in range(reach.shape[0] - 1, -1, -1):  # children before their parents
        one = tree.child[node]
        if one:
            reach[node] = max(reach[one], reach[one + 1])
            for c in range(d):
                balls[node, 0, c] = min(balls[one, 0, c], balls[one + 1, 0, c])
                balls[node, 1, c] = max(balls[one, 1, c], balls[one + 1, 1, c])
            continue
        balls[node, 0] = np.inf
        balls[node, 1] = -np.inf
        for e in range(tree.begin[node], tree.end[node]):
            radius = radii[tree.order[e]]
            reach[node] = max(reach[node], _widest(radius, code))
            for c in range(d):
                x = tree.columns[c, e]
                away = radius + _SLACK * (radius + abs(x)) + _VANISHED
                balls[node, 0, c] = min(balls[node, 0, c], x - away)
                balls[node, 1, c] = max(balls[node, 1, c], x + away)
    return reach, balls


@kernel
def _widest(distance, code):
    """The largest number (Euclidean: square) that stands for a distance of at most this."""
    return distance * distance * _WIDER if code == 0 else distance


@kernel
def _split(points, axis, order, left, right, middle):
    """Quickselect: what lies before `middle` is no larger along the axis than what lies after."""
    while left < right:
        pivot = points[order[(left + right) // 2], axis]
        i, j = left, right
        while i <= j:
            while points[order[i], axis] < pivot:
                i += 1
            while points[order[j], axis] > pivot:
                j -= 1
            if i <= j:
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if middle <= j:
            right = j
        elif middle >= i:
            left = i
        else:
            return


@kernel
def _to_box(x, box, code):
    """Distance (Euclidean: its square) of a point to a box."""
    total = 0.0
    for c in range(x.shape[0]):
        gap = max(max(box[0, c] - x[c], x[c] - box[1, c]), 0.0)
        if code == 0:
            total += gap * gap
        elif code == 1:
            total += gap
        else:
            total = max(total, gap)
    return total


@kernel
def _inside(x, box):
    for c in range(x.shape[0]):
        if x[c] < box[0, c] or x[c] > box[1, c]:
            return False
    return True


@kernel
def _to_leaf(x, columns, begin, size, code, out):
    """Distances (Euclidean: their squares) of a point to those in a leaf.

    Loops that this and `fill_tile` call in common would take every first ranking, with a tree or
    without, a quarter of a second more to compile.
    """
    row = out[:size]
    row[:] = 0.0
    for c in range(x.shape[0]):
        column = columns[c, begin : begin + size]
        if code == 0:
            for e in range(size):
                step = x[c] - column[e]
                row[e] += step * step
        elif code == 1:
            for e in range(size):
                row[e] += abs(x[c] - column[e])
        else:
            for e in range(size):
                row[e] = max(row[e], abs(x[c] - column[e]))


class _Room(NamedTuple):
    """Where a search keeps what waits, and the distances to a leaf."""

    node: np.ndarray
    away: np.ndarray  # how far its box is
    claimed: np.ndarray  # whether a point in it may adopt the query
    leaf: np.ndarray


@kernel
def _room():
    return _Room(
        np.empty(_STACK, np.int32), np.empty(_STACK), np.empty(_STACK, np.bool_), np.empty(_LEAF)
    )


@kernel
def walk_tree(tree, new, code, near_i, near_d):
    """Nearest points and adopters of a block of queries.

    Returns the number of adopters of each row, and (row, point, distance) of each adopter.
    """
    n_rows, k = near_i.shape
    counts = np.zeros(n_rows, np.int64)
    size = 0
    found_r = np.empty(4 * n_rows * k + _LEAF if tree.radii.shape[0] else 0, np.int32)
    found_i = np.empty(found_r.shape[0], np.int32)
    found_d = np.empty(found_r.shape[0])
    room = _room()
    for r in range(n_rows):
        near = near_i[r], near_d[r]
        more = _search(tree, new[r], -1, code, *near, found_i[size:], found_d[size:], room)
        while more < 0:
            found_r, found_i, found_d = grown(found_r), grown(found_i), grown(found_d)
            more = _search(tree, new[r], -1, code, *near, found_i[size:], found_d[size:], room)
        sort_heap(near_d[r], near_i[r])
        found_r[size : size + more] = r
        counts[r] = more
        size += more
    return counts, found_r[:size], found_i[:size], found_d[:size]


@kernel
def rank_tree(tree, start, stop, code, indices, distances):
    """Neighbours of the points at places ``start:stop`` of the tree, nearest first."""
    found_i, found_d = np.empty(0, np.int32), np.empty(0)
    room = _room()
    for e in range(start, stop):
        x, i = tree.columns[:, e].copy(), tree.order[e]
        _search(tree, x, i, code, indices[i], distances[i], found_i, found_d, room)
        sort_heap(distances[i], indices[i])


@kernel
def walk_tree_within(tree, start, stop, ks, code, radii):
    """Distances of the ks-th neighbours of the points at places ``start:stop`` of the tree."""
    near_i = np.empty(ks[-1], np.int32)
    near_d = np.empty(ks[-1])
    found_i, found_d = np.empty(0, np.int32), np.empty(0)
    room = _room()
    for e in range(start, stop):
        x = tree.columns[:, e].copy()
        i = tree.order[e]
        _search(tree, x, i, code, near_i, near_d, found_i, found_d, room)
        if ks.shape[0] == 1:  # the farthest is on top of the heap: 4% of the time saved
            radii[i, 0] = near_d[0]
            continue
        sort_heap(near_d, near_i)
        for a in range(ks.shape[0]):
            radii[i, a] = near_d[ks[a] - 1]


@kernel
def _search(tree, x, own, code, near_i, near_d, found_i, found_d, room):
    """Nearest points of one query, as a heap, and its adopters, in any order.

    It is training point `own`, or new if that is -1. Returns the number of adopters, or -1 if there
    is no room for them.
    """
    near_d[:] = np.inf
    near_i[:] = 2147483647
    bound = np.inf
    found = 0
    adopt = tree.radii.shape[0] > 0
    leaf = room.leaf
    room.node[0], room.away[0], room.claimed[0] = 0, 0.0, adopt
    depth = 1
    while depth:
        depth -= 1
        node, away, claimed = room.node[depth], room.away[depth], room.claimed[depth]
        if away > bound and not claimed:
            continue
        while tree.child[node]:  # down on the nearer side, the other one waits
            one, two = tree.child[node], tree.child[node] + 1
            away, other = _to_box(x, tree.boxes[one], code), _to_box(x, tree.boxes[two], code)
            if other < away:
                one, two, away, other = two, one, other, away
            claims = claimed and other <= tree.reach[two] and _inside(x, tree.balls[two])
            claimed = claimed and away <= tree.reach[one] and _inside(x, tree.balls[one])
            if other <= bound or claims:
                room.node[depth], room.away[depth], room.claimed[depth] = two, other, claims
                depth += 1
            node = one
            if away > bound and not claimed:
                break
        if away > bound and not claimed:
            continue
        first, size = tree.begin[node], tree.end[node] - tree.begin[node]
        _to_leaf(x, tree.columns, first, size, code, leaf)
        if away <= bound:
            for e in range(size):
                if leaf[e] <= bound:
                    d = np.sqrt(leaf[e]) if code == 0 else leaf[e]
                    i = tree.order[first + e]
                    if i != own and (d < near_d[0] or (d == near_d[0] and i < near_i[0])):
                        replace_top(near_d, near_i, d, i)
                        bound = _widest(near_d[0], code)
        if claimed:
            if found + size > found_i.shape[0]:
                return -1
            # first who may, without a branch that nobody could foretell
            stop = found
            for e in range(size):
                found_i[stop] = e
                stop += leaf[e] <= _widest(tree.radii[first + e], code)
            for a in range(found, stop):
                e = found_i[a]
                d = np.sqrt(leaf[e]) if code == 0 else leaf[e]
                if d < tree.radii[first + e]:
                    found_i[found] = tree.order[first + e]
                    found_d[found] = d
                    found += 1
    return found
