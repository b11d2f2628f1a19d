"""The order by (distance, index): heaps of the nearest, and whole rows sorted as integers."""

from __future__ import annotations

import numpy as np

from ._jit import kernel

# ---------------------------------------------------------------------------------------------
# The nearest k: heaps, farthest first


@kernel
def select_rows(block, skip, indices, distances):
    """Top k of each row of a block of distances."""
    distances[:] = np.inf
    indices[:] = 2147483647
    for r in range(block.shape[0]):
        for j in range(block.shape[1]):
            if block[r, j] < distances[r, 0] and (skip < 0 or j != skip + r):
                replace_top(distances[r], indices[r], block[r, j], j)
        sort_heap(distances[r], indices[r])


@kernel
def replace_top(distances, indices, d, j):
    """Replace the farthest entry of a heap ordered by (distance, index), farthest first."""
    _sift_down(distances, indices, d, j, distances.shape[0])


@kernel
def _sift_down(distances, indices, d, j, size):
    spot = 0
    while True:
        child = 2 * spot + 1
        if child >= size:
            break
        other = child + 1
        if other < size and (
            distances[other] > distances[child]
            or (distances[other] == distances[child] and indices[other] > indices[child])
        ):
            child = other
        if distances[child] > d or (distances[child] == d and indices[child] > j):
            distances[spot] = distances[child]
            indices[spot] = indices[child]
            spot = child
        else:
            break
    distances[spot] = d
    indices[spot] = j


@kernel
def sort_heap(distances, indices):
    """Turn the heap into rising order of (distance, index)."""
    for size in range(distances.shape[0] - 1, 0, -1):
        d, j = distances[size], indices[size]
        distances[size], indices[size] = distances[0], indices[0]
        _sift_down(distances, indices, d, j, size)


@kernel
def sort_stretch(distances, indices, begin, end):
    """Sort a stretch of a list by (distance, index): insertion, of far-off entries first (Shell).

    A few dozen entries are the rule. Heaps would be as fast and take thrice as long to compile.
    """
    gap = (end - begin) // 2
    while gap > 0:
        for e in range(begin + gap, end):
            d, j = distances[e], indices[e]
            before = e - gap
            while before >= begin and (
                distances[before] > d or (distances[before] == d and indices[before] > j)
            ):
                distances[before + gap] = distances[before]
                indices[before + gap] = indices[before]
                before -= gap
            distances[before + gap] = d
            indices[before + gap] = j
        gap = 1 if gap == 2 else gap * 5 // 11


# ---------------------------------------------------------------------------------------------
# Whole rows: NumPy's vectorised integer sort on keys that hold distance and index


def rank_rows(
    block: np.ndarray,
    first: int,
    indices: np.ndarray,
    distances: np.ndarray,
    keys: np.ndarray | None = None,
) -> None:
    """The nearest of each row of a block of distances, as many as `indices` has columns.

    Row r is that of training point ``first + r``, which is no neighbour of its own, or of a query
    if `first` is negative. `keys` is room for as many integers as there are distances.

    Keys hold the distance (its highest bits) above and the index below: the bits of a non-negative
    double order as the double does. Those that the index displaces are the last of the mantissa. A
    row in which pairs differ only there is sorted again, by distance; equal ones are in the order
    of index already.
    """
    n_rows, n = block.shape
    bits = (n - 1).bit_length()
    low = (1 << bits) - 1
    keys = np.bitwise_and(block.view(np.uint64), np.uint64(2**64 - 1 - low), out=keys)
    keys |= np.arange(n, dtype=np.uint64)
    if first >= 0:  # the point itself goes last
        keys[np.arange(n_rows), first + np.arange(n_rows)] = 2**64 - 1
        n -= 1
    keys.sort(axis=1)
    mixed = np.empty(n_rows, np.bool_)
    if not _unpack_keys(keys, n, block, bits, indices, distances, mixed):
        return
    for r in np.flatnonzero(mixed):
        listed = (keys[r, :n] & np.uint64(low)).astype(np.int32)
        away = block[r, listed]
        order = np.argsort(away, kind="stable")[: indices.shape[1]]
        indices[r], distances[r] = listed[order], away[order]


@kernel
def _unpack_keys(keys, n_keys, block, bits, indices, distances, mixed):
    """Indices and distances out of sorted keys, and which rows, and how many, are out of order.

    It does not mend them: they are rare, and a sort would take a second to compile.
    """
    shift = np.uint64(bits)
    low = (np.uint64(1) << shift) - np.uint64(1)
    found = 0
    k_max = indices.shape[1]
    for r in range(keys.shape[0]):
        last = 0.0
        out_of_order = False
        for c in range(k_max):
            j = np.int64(keys[r, c] & low)
            d = block[r, j]
            indices[r, c] = j
            distances[r, c] = d
            out_of_order |= d < last
            last = d
        c = k_max
        while c < n_keys and keys[r, c] >> shift == keys[r, k_max - 1] >> shift:
            out_of_order |= block[r, np.int64(keys[r, c] & low)] < last
            c += 1
        mixed[r] = out_of_order
        found += out_of_order
    return found


def places_in(order: np.ndarray) -> np.ndarray:
    """The place of each in an order of them all: the inverse permutation."""
    out = np.empty(len(order), np.int32)
    out[order] = np.arange(len(order), dtype=np.int32)
    return out


@kernel
def copy_into(source, target):
    """``target[:] = source``, for which Numba would compile a message about their shapes: 2 s."""
    for e in range(target.shape[0]):
        target[e] = source[e]
