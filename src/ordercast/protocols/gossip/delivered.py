"""Deliveries remembered in bounded memory: what is too old to be told from a duplicate counts as one. GSP-3.2."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from ordercast.core.state import State

WINDOW = 1_024
"""So far behind the highest number of its stream a number may come and still be told from a duplicate."""


class Delivered(State):
    """Says of every (stream, number) at most once that it is new, as long as its stream is among the last `streams`.

    A number far below the highest of its stream counts as seen: one may be lost so, but none comes twice.
    """

    constant: ClassVar[tuple[str, ...]] = ("streams",)
    ordered: ClassVar[tuple[str, ...]] = ("windows",)
    durable: ClassVar[tuple[str, ...]] = ("windows",)

    def __init__(self, streams: int) -> None:
        self.streams = streams
        self.windows: dict[Hashable, tuple[int, int]] = {}
        """By stream, the one heard of least recently first: the highest number, and one bit for each seen below it."""

    def add(self, stream: Hashable, number: int) -> bool:
        """Whether it is new; it is not from now on."""
        top, seen = self.windows.pop(stream, (0, 0))
        new = number > top or not (top - number >= WINDOW or seen >> (top - number) & 1)
        if number > top:
            seen = (seen << (number - top)) & _MASK if number - top < WINDOW else 0
            top = number
        self.windows[stream] = top, seen | 1 << (top - number) if top - number < WINDOW else seen
        if len(self.windows) > self.streams:
            del self.windows[next(iter(self.windows))]
        return new


_MASK = (1 << WINDOW) - 1
