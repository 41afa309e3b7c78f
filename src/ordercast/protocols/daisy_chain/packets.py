"""Packets of the daisy chain, and the clocks in them: whole, or only what changed since the last one on the channel.

Spec: docs/protocols/daisy-chain.md (DCC-W1 to DCC-W3).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar, Self

import msgspec

from ordercast.core.messages import Message, Packet
from ordercast.core.state import State
from ordercast.protocols.daisy_chain.clocks import (
    Clock,
    changes,
    first_edge,
    with_changes,
    without_heads_below,
    zeros,
)
from ordercast.protocols.multicast.multicast import Ranks


class Hop(Packet, frozen=True, tag=3):
    """A message on its way up, with the clock that says what must be delivered before it."""

    carries: ClassVar[str | None] = "message"

    message: Message
    clock: tuple[int, ...]
    """All counters, or edge and value of those that changed."""
    whole: bool = False


class CheckedHop(Packet, frozen=True, tag=4):
    """A Hop between servers that check their invariants."""

    carries: ClassVar[str | None] = "message"

    message: Message
    clock: tuple[int, ...]
    whole: bool
    index: tuple[int, ...]
    """Per destination above the lowest: the number the message got there when it entered."""


class Carried(msgspec.Struct, frozen=True, gc=False):
    """A Hop as its receiver sees it."""

    message: Message
    ranks: Ranks
    clock: Clock
    index: tuple[int, ...] = ()


class ClockChannels(State):
    """The clocks last sent and last received on each channel: both ends know them, so only differences travel."""

    constant: ClassVar[tuple[str, ...]] = ("me", "size", "reduced", "keeps_all_heads")
    durable: ClassVar[tuple[str, ...]] = ("sent", "received")

    def __init__(self, me: int, size: int, *, reduced: bool, keeps_all_heads: bool) -> None:
        self.me = me
        self.size = size
        self.reduced = reduced
        self.keeps_all_heads = keeps_all_heads
        self.sent: dict[int, Clock] = {}
        self.received: dict[int, Clock] = {}

    def floor(self, rank: int) -> int:
        """The lowest head that the server of that rank is told about."""
        return 0 if self.keeps_all_heads else rank

    def encode(self, clock: Clock, to: int) -> tuple[int, ...]:
        """DCC-W1, DCC-W2: what a packet to that server must say."""
        floor = self.floor(to)
        if floor:
            clock = without_heads_below(clock, floor)
        if not self.reduced:
            return clock[first_edge(floor) :]
        reference = self.sent.get(to) or zeros(self.size)
        self.sent[to] = clock
        return changes(reference, clock)

    def decode(self, counters: tuple[int, ...], by: int, *, whole: bool) -> Clock | None:
        """DCC-W3: the clock that server attached; None if the packet makes no sense."""
        if whole:
            clock = (0,) * first_edge(self.floor(self.me)) + counters
            return clock if len(clock) == first_edge(self.size) else None
        reference = self.received.get(by) or zeros(self.size)
        changed = with_changes(reference, counters)
        if changed is not None:
            self.received[by] = changed
        return changed

    def copy(self) -> Self:
        clone = object.__new__(type(self))
        clone.__dict__.update(self.__dict__)
        clone.sent = self.sent.copy()
        clone.received = self.received.copy()
        return clone

    def frozen(self) -> Hashable:
        return (frozenset(self.sent.items()), frozenset(self.received.items()))
