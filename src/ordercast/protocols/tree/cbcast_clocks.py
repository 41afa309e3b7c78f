"""The clock of CBCAST, all vectors of all groups in one, and how it travels: as what differs from the one sent before.

Spec: docs/protocols/cbcast.md (CBC-C5). Clocks and differences never change, so that messages, links, buffers and,
within one process, nodes share them. Arrays stay inside: to the outside a clock is plain data.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import ClassVar, Self

import msgspec
import numpy as np
import numpy.typing as npt

from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.messages import Message
from ordercast.core.state import State
from ordercast.core.wire import Encoded
from ordercast.overlay.extended import Routes
from ordercast.protocols.shared.links import Numbered
from ordercast.protocols.shared.varints import Numbers, read_varints, signed, unsigned, varints
from ordercast.protocols.tree.sizes import changed_clock_bytes

Flags = npt.NDArray[np.bool_]
Entry = tuple[int, int]
"""A slot, and the count there."""
_clock_written = msgspec.msgpack.Encoder()
_clock_read = msgspec.msgpack.Decoder(tuple[bytes, dict[int, int]])


class ClockLayout:
    """Which entry of which group has which slot: the members group by group, then whoever else may publish to it.

    One object for all nodes of a run.
    """

    def __init__(self, routes: Routes, groups: Mapping[Topic, tuple[NodeId, ...]] | None) -> None:
        self.nodes = len(routes.nodes)
        self._routes = routes
        self._known: dict[tuple[Topic, Origin], int] = {}
        self._number = {topic: i for i, topic in enumerate(sorted(groups or ()))}
        members = [sorted(routes.rank[node] for node in (groups or {})[topic]) for topic in self._number]
        if groups is None:
            members = [list(range(self.nodes))]
        self._slots: list[dict[int, int]] = []
        self.size = 0
        for ranks in members:
            self._slots.append({rank: self.size + i for i, rank in enumerate(ranks)})
            self.size += len(ranks)
        self._group_of = np.repeat(np.arange(len(members)), [len(ranks) for ranks in members])
        self.limit = self.size + len(members) * self.nodes
        """Slots are below this."""
        self.empty = Clock(np.zeros(self.size, np.int64), {})

    def number(self, topic: Topic) -> int:
        """The vector's number for a topic; where everybody is a member of everything, one vector serves for all."""
        return self._number.get(topic, 0)

    def slot(self, topic: Topic, publisher: int) -> int:
        group = self._number.get(topic, 0)
        slot = self._slots[group].get(publisher)
        return self.size + group * self.nodes + publisher if slot is None else slot

    def slot_of(self, message: Message) -> int | None:
        """The slot in which a message is counted; None: nobody can have published it."""
        key = (message.topic, message.origin)
        slot = self._known.get(key)
        if slot is None:
            publisher = self._routes.rank.get(NodeId(message.origin))
            if publisher is None or not self._routes.knows(message.topic):
                return None
            slot = self._known[key] = self.slot(message.topic, publisher)
        return slot

    def group(self, slot: int) -> int:
        return int(self._group_of[slot]) if slot < self.size else (slot - self.size) // self.nodes

    def members_of(self, groups: frozenset[int]) -> Flags | None:
        """Which slots of members belong to one of the groups; None: all do."""
        flags = np.isin(self._group_of, sorted(groups))
        return None if flags.all() else flags

    def count_groups(self, slots: Numbers) -> int:
        """To how many groups the slots belong, which are in order."""
        if len(self._slots) == 1 or not len(slots):
            return int(len(slots) > 0)
        if slots[-1] >= self.size:
            return len({self.group(slot) for slot in slots.tolist()})
        groups = self._group_of[slots]
        return 1 + int(np.count_nonzero(groups[1:] != groups[:-1]))


class Joined:
    """The groups of one node."""

    def __init__(self, layout: ClockLayout, groups: frozenset[int]) -> None:
        self.flags = layout.members_of(groups)
        self._layout = layout
        self._groups = groups

    def __contains__(self, slot: int) -> bool:
        return self._layout.group(slot) in self._groups


class Clock(Encoded):
    """A clock counts how many messages each node has published to each group."""

    __slots__ = ("counts", "outside")

    def __init__(self, counts: Numbers, outside: dict[int, int]) -> None:
        self.counts = counts
        """Of members, by slot."""
        self.outside = outside
        """Of publishers that are not members, by slot, as far as they have published anything."""

    def __getitem__(self, slot: int) -> int:
        counts = self.counts
        return counts.item(slot) if slot < counts.size else self.outside.get(slot, 0)

    def counting(self, slot: int, count: int) -> Clock:
        """The clock with that entry."""
        if slot >= len(self.counts):
            return Clock(self.counts, {**self.outside, slot: count})
        counts = self.counts.copy()
        counts[slot] = count
        return Clock(counts, self.outside)

    def merged(self, other: Clock) -> Clock:
        """The larger of each entry."""
        outside = self.outside
        if other.outside:
            outside = {slot: max(self[slot], other[slot]) for slot in {**outside, **other.outside}}
        return Clock(np.maximum(self.counts, other.counts), outside)

    def first_ahead(self, other: Clock, joined: Joined, ignored: int) -> Entry | None:
        """An entry of the groups joined, but for the slot ignored, in which the other clock is ahead of this one."""
        ahead = other.counts > self.counts
        if joined.flags is not None:
            ahead &= joined.flags
        if ignored < ahead.size:
            ahead[ignored] = False
        if ahead.size and ahead[slot := int(ahead.argmax())]:
            return slot, other[slot]
        for slot in sorted(other.outside) if other.outside else ():
            if slot != ignored and other[slot] > self[slot] and slot in joined:
                return slot, other[slot]
        return None

    def frozen(self) -> Hashable:
        return self.counts.tobytes(), frozenset(self.outside.items())

    def encoded(self) -> bytes:
        """It never travels, but it is kept: little-endian counts, then what is outside."""
        return _clock_written.encode((self.counts.astype("<i8").tobytes(), self.outside))

    @classmethod
    def decoded(cls, data: bytes) -> Self:
        counts, outside = _clock_read.decode(data)
        return cls(np.frombuffer(counts, "<i8").astype(np.int64), outside)


class Difference(Encoded):
    """CBC-C5: all entries in which a clock differs from the one before on its link, to the larger or to the smaller.

    One that was not read from bytes knows both clocks: whoever has the same one before need not put the next one
    together, and what differs is found out only when bytes are sent or counted.
    """

    __slots__ = ("_changes", "_counted", "_data", "_slots", "new", "old")

    def __init__(self, slots: Numbers | None, changes: Numbers | None, old: Clock | None, new: Clock | None) -> None:
        self.old = old
        self.new = new
        self._slots = slots
        self._changes = changes
        self._data: bytes | None = None
        self._counted: int | None = None

    @classmethod
    def between(cls, old: Clock, new: Clock) -> Difference:
        return cls(None, None, old, new)

    def slots(self) -> Numbers:
        """The slots in which the clocks differ, in order."""
        if self._slots is None:
            assert self.old is not None
            assert self.new is not None
            slots = (self.old.counts != self.new.counts).nonzero()[0]
            if self.old.outside is not self.new.outside:
                slots = np.concatenate((slots, np.array(_unequal(self.old.outside, self.new.outside), np.int64)))
            self._slots = slots
        return self._slots

    def changes(self) -> Numbers:
        """By how much, slot by slot."""
        if self._changes is None:
            assert self.old is not None
            assert self.new is not None
            slots = self.slots()
            inside = slots[: np.searchsorted(slots, len(self.old.counts))]
            changes = self.new.counts[inside] - self.old.counts[inside]
            if len(inside) < len(slots):
                more = [self.new[slot] - self.old[slot] for slot in slots[len(inside) :].tolist()]
                changes = np.concatenate((changes, np.array(more, np.int64)))
            self._changes = changes
        return self._changes

    def counted_bytes(self, layout: ClockLayout) -> int:
        """Its size by the source's count."""
        if self._counted is None:
            slots = self.slots()
            self._counted = changed_clock_bytes(layout.count_groups(slots), len(slots))
        return self._counted

    def applied_to(self, clock: Clock, layout: ClockLayout) -> Clock:
        """The next clock. Assigned, not the maximum: an entry can be smaller than before."""
        if clock is self.old and self.new is not None:
            return self.new
        slots, changes = self.slots(), self.changes()
        if len(slots) and slots[-1] >= layout.limit:
            raise ValueError("there are not so many groups and nodes")
        split = int(np.searchsorted(slots, layout.size))
        counts = clock.counts.copy()
        counts[slots[:split]] += changes[:split]
        outside = dict(clock.outside)
        for slot, change in zip(slots[split:].tolist(), changes[split:].tolist(), strict=True):
            outside[slot] = outside.get(slot, 0) + change
        if (split and counts[slots[:split]].min() < 0) or min(outside.values(), default=0) < 0:
            raise ValueError("a count below zero")
        return Clock(counts, {slot: count for slot, count in outside.items() if count})

    def encoded(self) -> bytes:
        """Per entry how far its slot is from the one before, and the change."""
        if self._data is None:
            slots = self.slots()
            numbers = np.empty(2 * len(slots), np.int64)
            numbers[::2] = slots
            numbers[2::2] -= slots[:-1]
            numbers[1::2] = unsigned(self.changes())
            self._data = varints(numbers)
        return self._data

    @classmethod
    def decoded(cls, data: bytes) -> Self:
        numbers = read_varints(data)
        if len(numbers) % 2 or not numbers[2::2].all():
            raise ValueError("entries of a clock that are not in order")
        slots = numbers[::2].cumsum()
        if len(slots) and slots.min() < 0:
            raise ValueError("a slot is too large")
        return cls(slots, signed(numbers[1::2]), None, None)

    def frozen(self) -> Hashable:
        return self.encoded()


def _unequal(one: dict[int, int], other: dict[int, int]) -> list[int]:
    return sorted(slot for slot in {**one, **other} if one.get(slot, 0) != other.get(slot, 0))


class Data(Numbered, frozen=True, tag=1):
    """A message on its way along the tree."""

    carries: ClassVar[str | None] = "message"

    message: Message
    clock: Difference
    """From the clock of the packet before on this link, or, without compression, from the empty clock."""


class CbcastIncoming(State):
    """The receiving end of a link with compression: packets are read in the order in which they were numbered."""

    durable: ClassVar[tuple[str, ...]] = ("next", "clock", "early")

    def __init__(self, clock: Clock) -> None:
        self.next = 1
        self.clock = clock
        self.early: dict[int, Data] = {}
