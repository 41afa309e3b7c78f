"""Rumours that go round: bounded, with an age in rounds that travels with them. docs/protocols/gossip.md, GSP-2."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from typing import ClassVar, Generic, Protocol, TypeVar

import msgspec

from ordercast.core.chance import mix
from ordercast.core.state import State


class Rumour(Protocol):
    """Something that can go round: everywhere the same under the same key."""

    @property
    def key(self) -> Hashable: ...


Item = TypeVar("Item", bound=Rumour)

OLDEST = 255
"""The highest age that a packet can tell: ages travel as bytes."""


class RumourLimits(msgspec.Struct, frozen=True):
    """Limits of rumours: how long they go round, and how much of them is kept and sent."""

    rounds: int
    """A rumour older than so many rounds is passed on no more (ttl)."""
    per_packet: int
    buffer: int
    history: int


class Rumours(State, Generic[Item]):
    """Tells what is new from what was heard before, and what to pass on.

    A rumour counts as heard as long as it is passed on, or among the last `history` ones that came.
    """

    constant: ClassVar[tuple[str, ...]] = ("limits", "salt")
    ordered: ClassVar[tuple[str, ...]] = ("births",)
    derived: ClassVar[tuple[str, ...]] = ("known",)

    def __init__(self, limits: RumourLimits, salt: int) -> None:
        self.limits = limits
        self.salt = salt
        self.round = 0
        self.items: dict[Hashable, Item] = {}
        self.births: dict[Hashable, int] = {}
        """Of every item: the round in which it was made, by the count of this node."""
        self.history: deque[Hashable] = deque()
        """What came last, the oldest first."""
        self.known: set[Hashable] = set()
        """The same, to look up."""

    def begin(self, item: Item) -> None:
        """GSP-1: an own one goes round from the next round on."""
        self.remember(item.key)
        self._keep(item.key, item, self.round)

    def hear(self, items: Sequence[Item], ages: bytes) -> list[Item]:
        """GSP-3: those that are new, in the order in which they came; of the others, the higher age counts."""
        births, known, now = self.births, self.known, self.round
        born_of = births.get
        new: list[Item] = []
        for item, age in zip(items, ages, strict=True):
            key = item.key
            born = born_of(key)
            if born is not None:
                if now - age < born:
                    births[key] = now - age
            elif key not in known:  # `_remember_new` and `_keep` in place: everything that goes round comes by here.
                known.add(key)
                self.history.append(key)
                births[key] = now - age
                self.items[key] = item
                new.append(item)
                if len(known) > self.limits.history:
                    known.remove(self.history.popleft())
                if len(births) > self.limits.buffer:
                    self._drop_oldest()
        return new

    def remember(self, key: Hashable) -> None:
        """It counts as heard, although it is not passed on."""
        if key not in self.known:
            self._remember_new(key)

    def _remember_new(self, key: Hashable) -> None:
        history, known = self.history, self.known
        known.add(key)
        history.append(key)
        if len(history) > self.limits.history:
            known.remove(history.popleft())

    def _keep(self, key: Hashable, item: Item, born: int) -> None:
        self.births[key] = born
        self.items[key] = item
        if len(self.births) > self.limits.buffer:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        self.drop(min(self.births, key=self.births.__getitem__))

    def disown(self, key: Hashable) -> None:
        """It was no such rumour: whatever comes under this key is new."""
        self.drop(key)
        if key in self.known:
            self.known.remove(key)
            self.history.remove(key)

    def drop(self, key: Hashable) -> None:
        """Pass it on no more."""
        if self.births.pop(key, None) is not None:
            del self.items[key]

    def next_round(self) -> None:
        """GSP-2: everything is a round older, and what is too old is passed on no more."""
        self.round += 1
        oldest = self.round - self.limits.rounds
        births, items = self.births, self.items
        for key in [key for key, born in births.items() if born < oldest]:
            del births[key], items[key]

    def chosen(self) -> tuple[tuple[Item, ...], bytes]:
        """Rumours to pass on in this round, and their ages: the youngest, for most have the old ones already."""
        births = self.births
        keys = list(births)
        most = self.limits.per_packet
        if len(keys) > most:
            start = mix(self.salt, self.round) % len(keys)  # Ties are broken by chance: another one comes first.
            keys = sorted(keys[start:] + keys[:start], key=births.__getitem__, reverse=True)[:most]
        now = self.round
        return tuple(map(self.items.__getitem__, keys)), bytes([now - births[key] for key in keys])
