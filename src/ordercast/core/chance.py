"""Randomness by identity: a draw is a function of the seed and of what it is for, never of what was drawn before.

Removing one message from a run then leaves every other draw as it was, which is what makes failing runs shrink well.
Independent of PYTHONHASHSEED: only digests and integer hashes are used.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import TypeVar

from ordercast.core.compiled import also_in_c

T = TypeVar("T")

_MASK = (1 << 64) - 1
_SPREAD_A, _SPREAD_B = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F
_UNIT = 1.0 / (1 << 53)
_UNITS = float(1 << 53)


def salt(seed: int, *identity: object) -> int:
    """64 bits that stand for `identity` under `seed`. Strong and slow: for set-up."""
    text = "\x1f".join([str(seed), *map(str, identity)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


@also_in_c
def mix(salted: int, a: int, b: int = 0) -> int:
    """64 bits from a salt and two integers. Fast: for every packet."""
    x = (salted ^ (a * _SPREAD_A) ^ (b * _SPREAD_B)) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


@also_in_c
def spread(a: int, b: int = 0) -> int:
    """The part of `mix` that depends on the two integers alone, for those who mix many salts with them."""
    return (a * _SPREAD_A ^ b * _SPREAD_B) & _MASK


@also_in_c
def stir(x: int) -> int:
    """The last step, of 64 bits: with what `spread` gives of a and b, xor a salt, it is their `mix`."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


@also_in_c
def stir_twice(x: int, y: int) -> int:
    """`stir(stir(x) ^ y)`, in one call."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    x ^= (x >> 31) ^ y
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


@also_in_c
def unit(bits: int) -> float:
    """The 64 bits as a number in [0, 1)."""
    return (bits >> 11) * _UNIT


def below(share: float) -> int:
    """The bound below which bits are exactly if `unit` of them is below the share: to compare many without floats."""
    return math.ceil(share * _UNITS) << 11


def exponential(bits: int, mean: float) -> float:
    return -mean * math.log1p(-unit(bits))


def shuffled(options: Sequence[T], seed: int, *identity: object) -> list[T]:
    """The options in an order that belongs to the identity."""
    return sorted(options, key=lambda option: salt(seed, *identity, option))
