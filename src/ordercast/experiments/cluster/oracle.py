"""An observer who sees every process: what happened before what, and who delivered it how.

It knows nothing of vectors or entries: an update's past is what its maker had delivered or made before it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class Made:
    """An update: who made it, as a number, its place among theirs, when, and its causal past."""

    __slots__ = ("delivered", "maker", "number", "past", "time")

    def __init__(self, maker: int, number: int, time: int, past: NDArray[np.int64]) -> None:
        self.maker = maker
        self.number = number
        self.time = time
        self.past = past
        self.delivered: dict[str, int] = {}
        """By member: when."""


class Oracle:
    """Told every delivery; counts those out of causal order and those that came twice."""

    def __init__(self, members: Sequence[str], makers: Sequence[str]) -> None:
        self.made: dict[str, Made] = {}
        self.out_of_order = 0
        self.twice = 0
        self._makers = {name: i for i, name in enumerate(makers)}
        self._known = {name: np.zeros(len(makers), np.int64) for name in members}
        """By member: for each maker, the number of its last update that the member knows, or that is in the past of
        one it knows."""
        self._before = {name: np.zeros(len(makers), np.int64) for name in members}
        """By member: for each maker, the last that must have been delivered before something that was."""
        self._numbers = [0] * len(makers)

    def delivers(self, member: str, maker: str, update: str, now: int) -> None:
        """A member delivers an update; of its maker's own, this is when it was made."""
        if update not in self.made:
            assert member == maker, "nobody delivers what was not made"
            self._make(maker, update, now)
        made = self.made[update]
        if member in made.delivered:
            self.twice += 1
            return
        made.delivered[member] = now
        before, known = self._before[member], self._known[member]
        if made.number <= before[made.maker]:
            self.out_of_order += 1
        np.maximum(before, made.past, out=before)
        np.maximum(known, made.past, out=known)
        known[made.maker] = max(known[made.maker], made.number)

    def _make(self, maker: str, update: str, now: int) -> None:
        i = self._makers[maker]
        self._numbers[i] += 1
        self.made[update] = Made(i, self._numbers[i], now, self._known[maker].copy())
