"""Words as numbers of 64 bits, and numbers found among others: what strings and sorted searches are too slow for."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from ordercast.verify.kernels.jit import Flags, Ints, Offsets, kernel

Words: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)
_LAST = np.uint64(0x94D049BB133111EB)
_ONE, _WORD = np.uint64(1), 63
_PAIRS, _FOURS = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
_BYTES, _SUMS = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)


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


@kernel
def delivered_first(
    kind: np.ndarray[Any, np.dtype[np.int8]], code: Ints, place: Offsets, receiver: Ints,
    counts: np.ndarray[Any, np.dtype[np.bool_]], publisher: Ints, deliver: int,
) -> tuple[Flags, Offsets, bool]:  # fmt: skip
    """Of each message: did a receiver that counts deliver it, and where was it first delivered, by place?

    And of all: did any receiver deliver what it had published itself?
    """
    copied = np.zeros(publisher.size, np.uint8)
    first = np.full(publisher.size, np.iinfo(np.int64).max, np.int64)
    own = False
    for i in range(kind.size):
        m = code[i]
        if kind[i] == deliver and m >= 0:
            if counts[receiver[i]]:
                copied[m] = 1
            first[m] = min(first[m], place[i])
            own |= publisher[m] == receiver[i]
    return copied, first, own


@kernel
def dated_before(
    kind: np.ndarray[Any, np.dtype[np.int8]], code: Ints, time_ns: Offsets, published_ns: Offsets, deliver: int,
    no_time: int,
) -> Flags:  # fmt: skip
    """Flags the deliveries that are dated before the publication of their message."""
    flags = np.zeros(kind.size, np.uint8)
    for i in range(kind.size):
        if kind[i] == deliver and code[i] >= 0 and time_ns[i] != no_time:
            flags[i] = time_ns[i] < published_ns[code[i]]
    return flags


@kernel
def mark(numbers: Ints, marks: Words) -> None:
    """Set the bits of these numbers, 64 a word."""
    for n in numbers:
        marks[n >> 6] |= _ONE << np.uint64(n & _WORD)


@kernel
def marked(marks: Words, first: int, count: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which of `count` numbers from `first` on are marked."""
    flags = np.empty(count, np.bool_)
    for i in range(count):
        flags[i] = (marks[(first + i) >> 6] >> np.uint64((first + i) & _WORD)) & _ONE != 0
    return flags


@kernel
def marks_before(marks: Words) -> Ints:
    """How many marks come before each word."""
    before = np.empty(marks.size, np.int32)
    count = np.int32(0)
    for w in range(marks.size):
        before[w] = count
        count += _ones(marks[w])
    return before


@kernel
def renumber(numbers: Ints, marks: Words, before: Ints, after: int) -> None:
    """Numbers become their places among those marked; what counts down from -2 counts up from `after`; -1 stays."""
    for i in range(numbers.size):
        n = numbers[i]
        if n >= 0:
            below = (_ONE << np.uint64(n & _WORD)) - _ONE
            numbers[i] = before[n >> 6] + _ones(marks[n >> 6] & below)
        elif n < -1:
            numbers[i] = after - 2 - n


@kernel
def _ones(word: np.uint64) -> np.int64:
    """How many bits of a word are set."""
    word -= (word >> _ONE) & _PAIRS
    word = (word & _FOURS) + ((word >> np.uint64(2)) & _FOURS)
    word = (word + (word >> np.uint64(4))) & _BYTES
    return np.int64((word * _SUMS) >> np.uint64(56))
