"""Words as numbers of 64 bits, and numbers found among others: what strings and sorted searches are too slow for."""

from __future__ import annotations

from typing import Any

import numpy as np

from ordercast.verify.kernels.jit import Ints, Offsets, kernel

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)
_LAST = np.uint64(0x94D049BB133111EB)


@kernel
def hashes(data: np.ndarray[Any, np.dtype[np.uint8]], offsets: Offsets) -> Offsets:
    """64 bits for each word `data[offsets[i]:offsets[i + 1]]`: eight bytes at a time, each multiplied and folded in."""
    found = np.empty(offsets.size - 1, np.int64)
    for i in range(offsets.size - 1):
        length = np.uint64(offsets[i + 1] - offsets[i])
        mixed = (length + np.uint64(1)) * _STEP
        at = offsets[i]
        while at < offsets[i + 1]:
            word = np.uint64(0)
            for b in range(min(8, offsets[i + 1] - at)):
                word |= np.uint64(data[at + b]) << np.uint64(8 * b)
            mixed = (mixed ^ word) * _MIX
            mixed ^= mixed >> np.uint64(29)
            mixed += _STEP
            at += 8
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _LAST
        found[i] = np.int64(mixed ^ (mixed >> np.uint64(31)))
    return found


@kernel
def places_of(wanted: Offsets, among: Offsets) -> Ints:
    """Of each number: its place in `among`, where every number is different; -1 if it is not there."""
    size = 16
    while size < 2 * among.size:
        size *= 2
    mask = np.int64(size - 1)
    table = np.full(size, -1, np.int32)
    for i in range(among.size):
        at = among[i] & mask
        while table[at] >= 0:
            at = (at + 1) & mask
        table[at] = i
    found = np.empty(wanted.size, np.int32)
    for i in range(wanted.size):
        at = wanted[i] & mask
        while table[at] >= 0 and among[table[at]] != wanted[i]:
            at = (at + 1) & mask
        found[i] = table[at]
    return found
