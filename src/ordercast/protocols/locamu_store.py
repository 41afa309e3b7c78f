"""What a LoCaMu node remembers: which numbers it has processed, messages that others may still want, copies that wait.

Spec: docs/protocols/locamu.md (S1 to S4).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from ordercast.core.messages import Message
from ordercast.core.state import State
from ordercast.protocols.locamu_packets import Columns, Past, Vector

Name = tuple[int, int]
"""A message as one forwarder calls it: the forwarder, and its number on the stream that is looked at here."""
Known = tuple[int, frozenset[int]]


class Copy(State):
    """A copy as it was read; it never changes."""

    def __init__(
        self,
        message: Message,
        forwarder: int,
        depth: int,
        vectors: tuple[Vector, ...],
        past: Past,
        sender: int,
        names: list[Name],
    ) -> None:
        self.message = message
        self.forwarder = forwarder
        self.depth = depth
        self.vectors = vectors
        self.past = past
        self.sender = sender
        self.names = names
        """What the vectors tell this node."""


class Entry(State):
    """S3: a message that was processed and that somebody may still want."""

    constant: ClassVar[tuple[str, ...]] = ("message", "came", "depth", "upstream", "own", "past")

    def __init__(
        self, message: Message, came: int, depth: int, upstream: int, vectors: list[Vector], own: Vector, past: Past
    ) -> None:
        self.message = message
        self.came = came
        self.depth = depth
        self.upstream = upstream
        """How many nodes before this one count, at most the window."""
        self.vectors = vectors
        """Of the nodes upstream, oldest first."""
        self.own = own
        self.past = past
        self.received: dict[int, Copy] = {}
        """By last forwarder: what a proxy for it would send."""
        self.names: list[Name] = []
        self.open = 0
        """Numbers of linked nodes that these have not acknowledged."""


class Processed(State):
    """S1, S2: the numbers processed here, per forwarder: all up to a prefix, and some beyond."""

    constant: ClassVar[tuple[str, ...]] = ("gapless",)
    durable: ClassVar[tuple[str, ...]] = ("prefix", "sparse")

    def __init__(self, near: Iterable[int], far: Iterable[int]) -> None:
        self.gapless = frozenset(near)
        """Forwarders that number this node: gaps on their streams close."""
        self.prefix: dict[int, int] = dict.fromkeys([*near, *far], 0)
        self.sparse: dict[int, set[int]] = {}

    def has(self, forwarder: int, number: int) -> bool:
        if number <= self.prefix[forwarder]:
            return True
        beyond = self.sparse.get(forwarder)
        return beyond is not None and number in beyond

    def add(self, forwarder: int, number: int) -> None:
        prefix = self.prefix[forwarder]
        if number <= prefix:
            return
        beyond = self.sparse.get(forwarder)
        if number == prefix + 1 and forwarder in self.gapless:
            self.prefix[forwarder] = number if beyond is None else self._close(forwarder, beyond, number)
        elif beyond is None:
            self.sparse[forwarder] = {number}
        else:
            beyond.add(number)

    def _close(self, forwarder: int, beyond: set[int], prefix: int) -> int:
        """How far the stream is gapless now that the number after the old prefix is there."""
        while prefix + 1 in beyond:
            prefix += 1
            beyond.discard(prefix)
        if not beyond:
            del self.sparse[forwarder]
        return prefix

    def raise_to(self, forwarder: int, floor: int) -> None:
        """D2: everything up to the floor counts as processed."""
        if floor > self.prefix[forwarder]:
            self.prefix[forwarder] = floor
            beyond = {number for number in self.sparse.pop(forwarder, ()) if number > floor}
            if beyond:
                self.sparse[forwarder] = beyond

    def columns(self) -> Columns:
        """What an acknowledgement says of the streams into this node."""
        sparse = self.sparse
        return tuple([
            (forwarder, prefix, *sorted(sparse.get(forwarder, ())))
            for forwarder, prefix in self.prefix.items()
            if forwarder in self.gapless and (prefix or forwarder in sparse)
        ])  # fmt: skip


class Waiting(State):
    """S4: per linked node, which numbers it has acknowledged and which of the known ones it has not."""

    durable: ClassVar[tuple[str, ...]] = ("open", "known")

    def __init__(self, linked: tuple[int, ...]) -> None:
        self.open: dict[int, dict[int, dict[int, tuple[int, int]]]] = {peer: {} for peer in linked}
        """Per peer and forwarder: number to the entry and the round in which it was last sent or learned."""
        self.known: dict[int, dict[int, Known]] = {peer: {} for peer in linked}

    def has(self, peer: int, forwarder: int, number: int) -> bool:
        """Whether the peer has acknowledged that number."""
        known = self.known[peer].get(forwarder)
        return known is not None and (number <= known[0] or number in known[1])

    def expect(self, peer: int, forwarder: int, number: int, item: tuple[int, int]) -> bool:
        """Wait for the peer to acknowledge a number; False: it has."""
        known = self.known[peer].get(forwarder)
        if known is not None and (number <= known[0] or number in known[1]):
            return False
        streams = self.open[peer]
        stream = streams.get(forwarder)
        if stream is None:
            streams[forwarder] = {number: item}
        else:
            stream[number] = item
        return True

    def acknowledge(self, peer: int, columns: Columns) -> list[int]:
        """Take in an acknowledgement; the entry of every number that is no longer waited for."""
        done: list[int] = []
        known, streams = self.known[peer], self.open[peer]
        for forwarder, told, *beyond in columns:
            before = known.get(forwarder, (0, frozenset()))
            if told <= before[0] and not beyond:
                continue
            prefix = max(told, before[0])
            sparse = frozenset(number for number in before[1].union(beyond) if number > prefix)
            known[forwarder] = (prefix, sparse)
            stream = streams.get(forwarder)
            if stream:
                acked = [number for number in stream if number <= prefix or number in sparse]
                done += [stream.pop(number)[0] for number in acked]
                if not stream:
                    del streams[forwarder]
        return done

    def unacknowledged(self, peer: int, before: int) -> list[int]:
        """Entries with a number that the peer lacks and that was last sent or learned before that round, in order."""
        return sorted({
            entry for stream in self.open[peer].values() for entry, round_ in stream.values() if round_ < before
        })  # fmt: skip

    def sent(self, peer: int, forwarder: int, number: int, round_: int) -> None:
        stream = self.open[peer].get(forwarder)
        if stream and number in stream:
            stream[number] = (stream[number][0], round_)

    def peers(self) -> Iterator[int]:
        """Who has something to acknowledge."""
        return (peer for peer, streams in self.open.items() if streams)
