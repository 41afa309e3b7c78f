"""A directory of entry owners, learned from updates: whom to ask for what is missing. CLU-4.2."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from ordercast.core.state import State
from ordercast.protocols.cluster.events import (
    ENTRY_BITS,
    ENTRY_MASK,
    SEQ_BITS,
    Event,
    Value,
    epoch_key,
    epoch_of,
    key_of,
    value_of,
)  # fmt: skip
from ordercast.protocols.cluster.packets import Owner

REMEMBERED = 4
"""Epochs of an entry whose owners are remembered."""


class Directory(State):
    """The owners of the last few epochs of every entry."""

    derived: ClassVar[tuple[str, ...]] = ("makers",)

    def __init__(self) -> None:
        self.owners: dict[int, dict[int, str]] = {}
        """By entry and epoch."""
        self.makers: dict[int, str] = {}
        """The same, by entry and epoch as one number: every update is looked up here."""

    def agrees(self, event: Event) -> bool:
        """Remember who made the update; false if another process made updates under the same entry and epoch."""
        key = event.key
        known = self.makers.get(key >> ENTRY_BITS + SEQ_BITS << ENTRY_BITS | key & ENTRY_MASK)  # `epoch_key` in place.
        if known is None:
            self._learn(event.entry, epoch_of(event.value), event.creator)
            return True
        return known == event.creator

    def _learn(self, entry: int, epoch: int, address: str) -> None:
        epochs = self.owners.setdefault(entry, {})
        epochs[epoch] = address
        self.makers[epoch_key(key_of(entry, value_of(epoch, 0)))] = address
        if len(epochs) > REMEMBERED:
            oldest = min(epochs)
            del epochs[oldest], self.makers[epoch_key(key_of(entry, value_of(oldest, 0)))]

    def between(self, entry: int, low: Value, high: Value) -> list[str]:
        """Owners of the entry in the epochs that the range touches, as far as known."""
        epochs = self.owners.get(entry, {})
        return [address for epoch, address in sorted(epochs.items()) if epoch_of(low) <= epoch <= epoch_of(high)]

    def told(self) -> tuple[Owner, ...]:
        """For a newcomer."""
        return tuple((entry, *last) for entry, epochs in sorted(self.owners.items()) for last in sorted(epochs.items()))

    def hear(self, owners: Iterable[Owner]) -> None:
        for entry, epoch, address in owners:
            if epoch not in self.owners.get(entry, {}):
                self._learn(entry, epoch, address)
