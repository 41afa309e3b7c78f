"""The messages that a LoCaMu node has processed and that others may still want.

Spec: docs/protocols/locamu.md (LCM-S3, LCM-D1).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import ClassVar

from ordercast.core.messages import Message
from ordercast.core.state import State
from ordercast.protocols.locamu.neighbourhood import NOBODY, Neighbourhood
from ordercast.protocols.locamu.parts import NodePart
from ordercast.protocols.locamu.rules import Rules
from ordercast.protocols.locamu.streams import Streams
from ordercast.protocols.locamu.vectors import Name, Past, Vector, usable
from ordercast.protocols.locamu.waiting import WaitingCopies

FIRST_WAIT, LONGEST_WAIT = 2, 32
"""So many rounds at least, and at most, pass before a message is sent again: answers wait in queues, too."""


class Copy(State):
    """A copy as it was read."""

    constant: ClassVar[tuple[str, ...]] = ("message",)

    def __init__(
        self,
        message: Message,
        forwarder: int,
        depth: int,
        epoch: int,
        vectors: tuple[Vector, ...],
        past: Past,
        keys: list[int],
        sender: int,
        names: list[Name],
    ) -> None:
        self.message = message
        self.forwarder = forwarder
        self.depth = depth
        self.epoch = epoch
        self.vectors = vectors
        self.past = past
        """The forwarder's, in its own order of streams."""
        self.keys = keys
        """The streams of the past; as its complement where a number is not part of it."""
        self.sender = sender
        self.names = names
        """What the vectors tell this node."""
        self.wants: list[Name] = []
        """What it waits for: forwarders and their numbers for this node."""

    def frozen(self) -> tuple[object, ...]:
        past = frozenset(pair for pair in zip(self.keys, self.past, strict=False) if pair[1])
        return (self.message, self.forwarder, self.depth, self.epoch, self.vectors, past, self.sender)

    def pairs(self) -> list[tuple[int, int]]:
        """The past as streams and numbers."""
        return [(key, value) for key, value in zip(self.keys, self.past, strict=False) if value and key >= 0]

    def see_anew(self, vectors: tuple[Vector, ...], near: Container[int]) -> None:
        """The tree has changed, and with it what vectors mean; only who is near is still waited for."""
        self.vectors = vectors
        self.names = usable(vectors)
        self.wants = [want for want in self.wants if want[0] in near]


class Entry(State):
    """LCM-S3: a message that was processed and that somebody may still want."""

    constant: ClassVar[tuple[str, ...]] = ("message", "came", "depth", "epoch", "internal", "upstream", "past")

    def __init__(
        self,
        copy: Copy,
        came: int,
        depth: int,
        upstream: int,
        own: Vector,
        past: Past,
        round_: int,
    ) -> None:
        self.message = copy.message
        self.came = came
        self.depth = depth
        self.epoch = copy.epoch
        self.internal = copy.message.topic.startswith("$")
        """A message of the protocol itself."""
        self.upstream = upstream
        """How many nodes before this one count, at most the window."""
        self.vectors = (*copy.vectors, own)
        """Of the nodes upstream, oldest first, and the own one."""
        self.past = past
        self.received: dict[int, Copy] = {}
        """By last forwarder: what a proxy for it would send."""
        self.names = copy.names
        self.round = round_
        """In which it was processed."""
        self.given: list[int] = []
        """Who was sent a copy by this node, as far as that counts; it may have been lost."""
        self.sent: dict[int, tuple[int, int]] | None = None
        """Until which round a node that was sent it again has time to say so, and for how many rounds it had."""

    @property
    def own(self) -> Vector:
        return self.vectors[-1]

    def is_due(self, peer: int, before: int) -> bool:
        """LCM-R2: whether the peer has had time until that round."""
        return self.sent is None or peer not in self.sent or self.sent[peer][0] < before

    def forget_sent(self, peer: int) -> None:
        """LCM-R2: what was sent to the peer so far does not count."""
        if self.sent is not None:
            self.sent.pop(peer, None)
        if peer in self.given:
            self.given.remove(peer)

    def is_under_way(self, peer: int, before: int) -> bool:
        """LCM-R2: whether a copy was sent to the peer that it may not have got by that round, only because it waits."""
        return peer in self.given and not (self.round < before and self.is_due(peer, before))

    def note_sent(self, peer: int, round_: int) -> None:
        """LCM-R2: it was sent again: the peer has twice as many rounds as the last time."""
        if self.sent is None:
            self.sent = {}
        wait = min(2 * self.sent[peer][1], LONGEST_WAIT) if peer in self.sent else FIRST_WAIT
        self.sent[peer] = (round_ + wait, wait)


class MessageStore(NodePart):
    """LCM-S3: processed messages by the order in which they were, and by the names that this node knows them by."""

    constant: ClassVar[tuple[str, ...]] = ("rules",)
    durable: ClassVar[tuple[str, ...]] = ("entries", "names", "serial")
    here: Neighbourhood
    streams: Streams
    waiting: WaitingCopies

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.entries: dict[int, Entry] = {}
        self.names: dict[Name, int] = {}
        self.serial = 0
        """How many messages were processed so far."""

    def file(self, entry: Entry, copy: Copy) -> bool:
        """Keep a message under all its names, until everyone near has it; False: everyone has."""
        self.serial += 1
        serial = self.serial
        self.entries[serial] = entry
        for name in copy.names:
            self.names[name] = serial
        if copy.forwarder != NOBODY:
            entry.received[copy.forwarder] = copy
        return self.waiting.wait(serial, entry.vectors)

    def find(self, names: Iterable[Name]) -> int | None:
        """Which message has one of these names; None: none that is kept."""
        for name in names:
            if name in self.names:
                return self.names[name]
        return None

    def rename(self, serial: int, names: Iterable[Name], vectors: Sequence[Vector]) -> None:
        """LCM-M5: a message has further names and vectors; the vectors go where they belong."""
        entry = self.entries[serial]
        for name in names:
            if name not in self.names:
                self.names[name] = serial
                entry.names = [*entry.names, name]
        if vectors:
            entry.vectors = tuple(sorted([*entry.vectors, *vectors], key=lambda vector: -vector[0].distance))

    def before(self, round_: int) -> list[Entry]:
        """Messages that were processed before that round."""
        found: list[Entry] = []
        for entry in self.entries.values():
            if entry.round >= round_:
                break
            found.append(entry)
        return found

    def forget_sent(self, peer: int) -> None:
        """LCM-R2: whatever was sent to the peer may have been lost."""
        for entry in self.entries.values():
            entry.forget_sent(peer)

    def forget_all_sent(self) -> None:
        """LCM-R6: what was on its way when this node crashed may be lost."""
        for entry in self.entries.values():
            entry.given, entry.sent = [], None

    def doubt(self, peer: int) -> None:
        """LCM-R2: the peer is suspected: what was sent to it may be lost, and what came from it sent in its name."""
        for entry in self.entries.values():
            entry.forget_sent(peer)
            if peer in entry.received:
                entry.sent = None

    def keeps_anything_of(self, publisher: str) -> bool:
        return any(entry.message.publisher == publisher for entry in self.entries.values())

    # Forgetting

    def forget(self) -> None:
        """LCM-D1: look at what was acknowledged since the last look."""
        entries, wait = self.entries, self.waiting.wait
        for serial in sorted(self.waiting.released(), reverse=True):  # What holds for the last holds for those before.
            if serial in entries and not wait(serial, entries[serial].vectors):
                self.collect(serial)

    def forget_if_complete(self, serial: int) -> None:
        """LCM-D1: drop a message that every linked node has acknowledged under every name known here."""
        if not self.waiting.wait(serial, self.entries[serial].vectors):
            self.collect(serial)

    def collect(self, serial: int) -> None:
        """LCM-D1: drop a message that nobody waits for, if no near forwarder can name it any more."""
        entry = self.entries[serial]
        near = self.here.radii.numbering
        if self.rules.keeps_until_complete and _named(entry.vectors, near) < min(near, entry.upstream):
            return
        del self.entries[serial]
        for name in entry.names:
            self.names.pop(name, None)

    def see_anew(self) -> None:
        """The tree has changed, and with it what vectors mean and who has to acknowledge."""
        for entry in self.entries.values():
            entry.vectors = self.streams.seen_anew(entry.vectors)

    def wait_anew(self) -> None:
        """The tree has changed: find out once more for whom each message waits."""
        self.waiting.begin_anew()
        for serial in list(self.entries):
            self.forget_if_complete(serial)


def _named(vectors: Sequence[Vector], radius: int) -> int:
    """How many of these vectors are of nodes upstream within the radius."""
    return sum(0 < shape.distance <= radius for shape, _, _ in vectors)
