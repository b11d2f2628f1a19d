"""Entries of a sparse inverse, from a Cholesky factor (Takahashi's equations).

The inverse of a sparse matrix is full, but its entries on the pattern of the Cholesky factor follow
from the factor alone, from the last column to the first, without any other entry. Columns with the
same pattern are worked on together (a supernode), on dense blocks: the block of a supernode is
assembled from its parent's in the elimination tree, and kept until its last child is done.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csc_array

from ._jit import kernel
from ._order import places_in


def inverse_entries(
    starts: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
) -> np.ndarray:
    """Entries (rows, columns) of (L L')^-1 for a lower CSC factor L with sorted columns.

    The entries asked for must lie on the pattern of L or its transpose.
    """
    order = _postorder(starts, indices)
    if (order[1:] < order[:-1]).any():
        n = len(order)
        lower = csc_array((values, indices, starts), shape=(n, n))[order][:, order]
        lower.sort_indices()
        starts, indices, values = lower.indptr, lower.indices, lower.data
        place = places_in(order)
        rows, columns = place[rows], place[columns]
    first, parent = _supernodes(starts, indices)
    inverse = _takahashi(starts, indices, values, first, parent)
    return _look_up(starts, indices, inverse, rows, columns)


@kernel
def _postorder(starts, indices):
    """The columns in an order in which the children of each come just before it."""
    n = starts.shape[0] - 1
    head = np.full(n + 1, -1, np.int64)  # first child of each, of the forest's root last
    sibling = np.full(n, -1, np.int64)
    for j in range(n - 1, -1, -1):
        parent = np.int64(indices[starts[j] + 1]) if starts[j + 1] - starts[j] > 1 else n
        sibling[j] = head[parent]
        head[parent] = j
    order = np.empty(n, np.int64)
    stack = np.empty(n + 1, np.int64)
    stack[0] = n
    depth, done = 1, 0
    while depth > 0:
        top = stack[depth - 1]
        child = head[top]
        if child >= 0:
            head[top] = sibling[child]
            stack[depth] = child
            depth += 1
        else:
            depth -= 1
            if top < n:
                order[done] = top
                done += 1
    return order


@kernel
def _supernodes(starts, indices):
    """First column of each supernode (and one past the last), and the parent of each (-1: none)."""
    n = starts.shape[0] - 1
    first = np.empty(n + 1, np.int64)
    of_column = np.empty(n, np.int64)
    count = 0
    for j in range(n):
        joins = (
            j > 0
            and starts[j] - starts[j - 1] == starts[j + 1] - starts[j] + 1
            and starts[j] - starts[j - 1] > 1
            and indices[starts[j - 1] + 1] == j
        )
        if not joins:
            first[count] = j
            count += 1
        of_column[j] = count - 1
    first[count] = n
    parent = np.full(count, -1, np.int64)
    for s in range(count):
        last = first[s + 1] - 1
        if starts[last + 1] - starts[last] > 1:
            parent[s] = of_column[indices[starts[last] + 1]]
    return first[: count + 1], parent


@kernel
def _stack_size(starts, first, parent):
    """Doubles that the blocks of all supernodes with unfinished children take at most."""
    count = parent.shape[0]
    open_size = np.zeros(count + 1, np.int64)
    top, depth, most = 0, 0, 0
    stack = np.empty(count + 1, np.int64)
    has_child = np.zeros(count, np.bool_)
    for s in range(count):
        if parent[s] >= 0:
            has_child[parent[s]] = True
    for s in range(count - 1, -1, -1):
        while depth > 0 and stack[depth - 1] != parent[s]:
            depth -= 1
            top -= open_size[depth]
        if has_child[s]:
            size = starts[first[s] + 1] - starts[first[s]]
            stack[depth] = s
            open_size[depth] = size * size
            top += size * size
            depth += 1
            most = max(most, top)
    return most, has_child


@kernel
def _takahashi(starts, indices, values, first, parent):
    """The inverse on the pattern of the factor, in the factor's own layout."""
    count = parent.shape[0]
    most, has_child = _stack_size(starts, first, parent)
    blocks = np.empty(most)
    stack = np.empty(count + 1, np.int64)  # supernodes whose block is kept,
    offset = np.zeros(count + 2, np.int64)  # and where
    depth = 0
    inverse = np.empty(values.shape[0])
    for s in range(count - 1, -1, -1):
        begin, width = first[s], first[s + 1] - first[s]
        size = starts[begin + 1] - starts[begin]
        below = size - width
        rows = indices[starts[begin] : starts[begin] + size]
        while depth > 0 and stack[depth - 1] != parent[s]:
            depth -= 1

        diagonal = np.zeros((width, width))  # L_JJ, and L_RJ under it
        lower = np.empty((below, width))
        for c in range(width):
            at = starts[begin + c]
            for r in range(c, width):
                diagonal[r, c] = values[at + r - c]
            for r in range(below):
                lower[r, c] = values[at + width - c + r]
        _invert_triangle(diagonal)
        share = np.dot(lower, diagonal)  # Y = L_RJ L_JJ^-1
        corner = np.dot(diagonal.T.copy(), diagonal)  # (L_JJ L_JJ')^-1

        block = np.empty((size, size))
        if below > 0:
            p = stack[depth - 1]
            parent_rows = indices[starts[first[p]] : starts[first[p] + 1]]
            parent_size = parent_rows.shape[0]
            parent_block = blocks[offset[depth - 1] : offset[depth]].reshape(
                (parent_size, parent_size)
            )
            place = np.empty(below, np.int64)
            spot = 0
            for r in range(below):
                while parent_rows[spot] != rows[width + r]:
                    spot += 1
                place[r] = spot
            rest = np.empty((below, below))
            for r in range(below):
                source = parent_block[place[r]]
                for c in range(below):
                    rest[r, c] = source[place[c]]
            beside = np.dot(rest, share)  # -Z_RJ
            corner += np.dot(share.T.copy(), beside)
            block[width:, width:] = rest
            block[width:, :width] = -beside
            block[:width, width:] = -beside.T
        block[:width, :width] = corner

        for c in range(width):
            at = starts[begin + c]
            for r in range(c, size):
                inverse[at + r - c] = block[r, c]
        if has_child[s]:
            stack[depth] = s
            offset[depth + 1] = offset[depth] + size * size
            blocks[offset[depth] : offset[depth + 1]] = block.ravel()
            depth += 1
    return inverse


@kernel
def _invert_triangle(lower):
    """Invert a lower triangular matrix in place: small blocks first, then pairs of blocks."""
    size = lower.shape[0]
    for start in range(0, size, 32):
        _invert_small_triangle(lower[start : start + 32, start : start + 32])
    width = 32
    while width < size:
        for start in range(0, size - width, 2 * width):
            middle, end = start + width, min(start + 2 * width, size)
            below = lower[middle:end, start:middle].copy()
            above = lower[start:middle, start:middle].copy()
            lower[middle:end, start:middle] = -np.dot(
                lower[middle:end, middle:end].copy(), np.dot(below, above)
            )
        width *= 2


@kernel
def _invert_small_triangle(lower):
    size = lower.shape[0]
    for c in range(size):
        lower[c, c] = 1.0 / lower[c, c]
        for r in range(c + 1, size):
            total = 0.0
            for i in range(c, r):
                total += lower[r, i] * lower[i, c]
            lower[r, c] = -total / lower[r, r]


@kernel
def _look_up(starts, indices, inverse, rows, columns):
    """Entries of a symmetric matrix whose lower triangle is held by columns."""
    out = np.empty(rows.shape[0])
    for e in range(rows.shape[0]):
        row, column = max(rows[e], columns[e]), min(rows[e], columns[e])
        low, high = starts[column], starts[column + 1] - 1
        while low < high:
            middle = (low + high) // 2
            if indices[middle] < row:
                low = middle + 1
            else:
                high = middle
        out[e] = inverse[low] if indices[low] == row else np.nan
    return out
