"""Groups rows by a small integer, stable in their order."""

from __future__ import annotations

import numpy as np

from ordercast.verify.kernels.jit import Ints, Offsets, kernel


@kernel
def group(keys: Ints, groups: int) -> tuple[Offsets, Offsets]:
    """Offsets of each group and the row numbers sorted by group, stable: a counting sort."""
    offsets = np.zeros(groups + 1, np.int64)
    for i in range(keys.size):
        offsets[keys[i] + 1] += 1
    for g in range(groups):
        offsets[g + 1] += offsets[g]
    cursor = offsets[:-1].copy()
    order = np.empty(keys.size, np.int64)
    for i in range(keys.size):
        order[cursor[keys[i]]] = i
        cursor[keys[i]] += 1
    return offsets, order


@kernel
def first_where_falls(values: Offsets, offsets: Offsets) -> int:
    """The first index whose value is not above its neighbour's on the left in the same group; -1 if all rise."""
    for g in range(offsets.size - 1):
        for i in range(offsets[g] + 1, offsets[g + 1]):
            if values[i] <= values[i - 1]:
                return i
    return -1
