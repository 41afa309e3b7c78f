"""A table that computes missing entries when they are looked up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Memo(dict[K, V]):
    """A table that computes what it does not hold yet."""

    def __init__(self, learn: Callable[[K], V]) -> None:
        super().__init__()
        self._learn = learn

    def __missing__(self, key: K) -> V:
        value = self[key] = self._learn(key)
        return value


def number_of(value: V, numbers: dict[V, int], values: list[V]) -> int:
    """The number of a value, a new one if it is new."""
    number = numbers.get(value)
    if number is None:
        number = numbers[value] = len(values)
        values.append(value)
    return number


_FEW = 200


def to_repeat(known: Sequence[V], most: int) -> list[V]:
    """Evenly chosen where there are more than `most`, and again and again where there are few.

    Chance and a clock may well do the same twice, but hardly as often as that.
    """
    chosen = list(known[:: -(-len(known) // most) or 1])
    return chosen * -(-_FEW // len(chosen)) if chosen else []
