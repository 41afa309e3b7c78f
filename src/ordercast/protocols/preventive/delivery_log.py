"""The delivery log of a process: the received vector, and the latest messages in the order of delivery.

Buffers of links that are not safe yet are places in this log, not copies (PRV-4). Because delivery is causal, what was
received of an origin is always 1 to some number, so one number an origin says it all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import ClassVar
from zlib import crc32

from ordercast.core.ids import Origin
from ordercast.core.messages import Message
from ordercast.core.state import State
from ordercast.protocols.preventive.packets import Counts


class DeliveryLog(State):
    """Indices count all deliveries of this incarnation: `first` is that of the oldest kept, `end` that of the next."""

    durable: ClassVar[tuple[str, ...]] = ("received", "floor", "kept", "end", "quiet", "before", "forgetful")

    def __init__(self) -> None:
        self.received: dict[Origin, int] = {}
        """Per origin the highest number delivered or inherited; nothing below it is missing."""
        self.floor: dict[Origin, int] = {}
        """Per origin the highest number that is not in `kept`: evicted, or inherited."""
        self.kept: deque[Message] = deque()
        self.end = 0
        self.before: dict[Origin, int] = {}
        """The received vector at the last look for silent origins."""
        self.quiet: dict[Origin, int] = {}
        """Origins that said nothing between the last two looks, and how far they were."""
        self.forgetful = False
        """Whether an origin that is unknown here may have been known once."""

    @property
    def first(self) -> int:
        return self.end - len(self.kept)

    @property
    def whole(self) -> bool:
        """Everything that was ever delivered is kept, and nothing was inherited."""
        return not self.floor

    @property
    def empty(self) -> bool:
        """Nothing was ever delivered or inherited."""
        return not self.received

    def append(self, message: Message) -> None:
        """Deliver: the caller has seen that it is the next of its origin."""
        self.received[message.origin] = message.number
        self.kept.append(message)
        self.end += 1

    def since(self, start: int) -> Iterator[Message]:
        """Messages delivered from that index on, in order."""
        return islice(self.kept, start - self.first, None)

    def inherit(self, received: Counts, *, forgetful: bool) -> None:
        """A joiner begins with what its contact had."""
        self.received.update(received)
        self.floor.update(received)
        self.forgetful = forgetful

    def counts(self) -> Counts:
        return tuple(sorted(self.received.items()))

    def evict(self, keep: int, pinned: int) -> None:
        """Drop the oldest beyond `keep`, but nothing from index `pinned` on."""
        kept = self.kept
        for _ in range(min(len(kept) - keep, pinned - self.first)):
            message = kept.popleft()
            self.floor[message.origin] = message.number

    @property
    def total(self) -> int:
        """How many messages were delivered or inherited."""
        return sum(self.received.values())

    @property
    def mark(self) -> int:
        """Tells apart what was delivered where it is equally many."""
        return crc32(repr(self.counts()).encode())

    def beyond(self, theirs: dict[Origin, int]) -> tuple[Origin, int] | None:
        """A message that somebody who has `theirs` lacks and that is kept no more; None: there is none.

        Origins that are quiet do not count: others may be about to forget them (PRV-9.1).
        """
        for origin, number in sorted(self.floor.items()):
            if theirs.get(origin, 0) < number and self.quiet.get(origin, 0) < number:
                return origin, number
        return None

    def lacking(self, theirs: dict[Origin, int]) -> list[Message]:
        """Messages that somebody who has `theirs` lacks, in order of delivery; none of origins that are quiet."""
        quiet = self.quiet
        return [
            message
            for message in self.kept
            if theirs.get(message.origin, 0) < message.number > quiet.get(message.origin, 0)
        ]

    def forget_silent(self) -> int:
        """PRV-9.1: origins silent since the look before the last are forgotten, those since the last are quiet now.

        Not those of which a message is kept: repairs would offer it, as new, to whoever has forgotten it as well.
        """
        kept = {message.origin for message in self.kept}
        silent = [origin for origin, number in self.quiet.items() if self.received.get(origin) == number]
        forgotten = [origin for origin in silent if origin not in kept]
        for origin in forgotten:
            del self.received[origin]
            self.floor.pop(origin, None)
        self.quiet = {origin: number for origin, number in self.before.items() if self.received.get(origin) == number}
        self.before = dict(self.received)
        self.forgetful = self.forgetful or bool(forgotten)
        return len(forgotten)
