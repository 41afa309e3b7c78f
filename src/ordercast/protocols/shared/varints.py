"""Many numbers in few bytes: seven bits of a number a byte, lowest first, the eighth says that there are more."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

_BITS = 7
_MORE = 1 << _BITS
_LONGEST = 9
"""Bytes of the largest number: 63 bits."""


def varints(numbers: Numbers) -> bytes:
    """The bytes of numbers that are not negative."""
    if not len(numbers) or numbers.max() < _MORE:
        return numbers.astype(np.uint8).tobytes()
    lengths = np.ones(len(numbers), np.int64)
    for i in range(1, _LONGEST):
        lengths += numbers >= 1 << _BITS * i
    ends = lengths.cumsum()
    data = np.empty(ends[-1], np.uint8)
    for i in range(int(lengths.max())):
        long = lengths > i
        more = np.where(lengths[long] > i + 1, _MORE, 0)
        data[(ends - lengths)[long] + i] = numbers[long] >> _BITS * i & _MORE - 1 | more
    return data.tobytes()


def read_varints(data: bytes) -> Numbers:
    """The numbers that `varints` was given; a ValueError says what is wrong with the bytes."""
    parts = np.frombuffer(data, np.uint8).astype(np.int64)
    last = parts < _MORE
    if last.all():
        return parts
    ends = last.nonzero()[0]
    if not last[-1]:
        raise ValueError("the last number is cut off")
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    if lengths.max() > _LONGEST:
        raise ValueError("a number is too large")
    numbers = np.zeros(len(ends), np.int64)
    for i in range(int(lengths.max())):
        long = lengths > i
        numbers[long] |= (parts[starts[long] + i] & _MORE - 1) << _BITS * i
    return numbers


def unsigned(numbers: Numbers) -> Numbers:
    """Numbers near zero, of either sign, as small ones that are not negative."""
    return numbers << 1 ^ numbers >> 63


def signed(numbers: Numbers) -> Numbers:
    """The number that `unsigned` was given."""
    return numbers >> 1 ^ -(numbers & 1)
