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


# ---------------------------------------------------------------------------------------------
# Whole rows: NumPy's vectorised integer sort on keys that hold distance and index


@kernel
def pack_keys(distance_bits, first, bits, keys):
    """Distance (its highest bits) above, index below; a training point itself goes last.

    Row r is that of training point ``first + r``, or of a query if `first` is negative.

    The bits of a non-negative double order as the double does. Those that the index displaces are
    the last of the mantissa: `unpack_keys` settles pairs that differ only there.
    """
    low = (np.uint64(1) << bits) - np.uint64(1)
    for r in range(keys.shape[0]):
        for j in range(keys.shape[1]):
            keys[r, j] = (distance_bits[r, j] & ~low) | np.uint64(j)
        if first >= 0:
            keys[r, first + r] = ~np.uint64(0)


@kernel
def unpack_keys(keys, n_keys, block, bits, indices, distances):
    """Indices and distances out of sorted keys, rows put in the order of (distance, index)."""
    low = (np.uint64(1) << bits) - np.uint64(1)
    k_max = indices.shape[1]
    order_distance = np.empty(n_keys)
    order_index = np.empty(n_keys, np.int32)
    for r in range(keys.shape[0]):
        begin = 0
        while begin < k_max:
            end = begin
            top = keys[r, begin] >> bits
            sorted_run = True
            while end < n_keys and keys[r, end] >> bits == top:
                j = np.int64(keys[r, end] & low)
                order_index[end] = j
                order_distance[end] = block[r, j]
                if end > begin and order_distance[end] < order_distance[end - 1]:
                    sorted_run = False
                end += 1
            if not sorted_run:
                # stable, and the run is in the order of index: ties keep it
                run = np.argsort(order_distance[begin:end], kind="mergesort")
                copy_into(order_distance[begin:end][run], order_distance[begin:end])
                copy_into(order_index[begin:end][run], order_index[begin:end])
            begin = end
        copy_into(order_index[:k_max], indices[r])
        copy_into(order_distance[:k_max], distances[r])


@kernel
def copy_into(source, target):
    """``target[:] = source``, for which Numba would compile a message about their shapes: 2 s."""
    for e in range(target.shape[0]):
        target[e] = source[e]
