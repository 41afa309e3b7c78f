"""What a LoCaMu node remembers: which numbers it has processed, messages that others may still want, copies that wait.

Spec: docs/protocols/locamu.md (S1 to S4).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from ordercast.core.messages import Message
from ordercast.core.state import State
from ordercast.protocols.locamu.packets import SECOND, SECOND_BITS, Columns
from ordercast.protocols.locamu.streams import Past, Vector

Name = tuple[int, int]
"""A message as one forwarder calls it: the forwarder, and its number on the stream that is looked at here."""


FIRST_WAIT, LONGEST_WAIT = 2, 32
"""So many rounds at least, and at most, pass before a message is sent again: answers wait in queues, too."""

MOST_BEYOND = 4_096
"""So many numbers beyond a prefix are acknowledged at most: who says less is sent more, and that is all."""


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


class Entry(State):
    """S3: a message that was processed and that somebody may still want."""

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
        """R2: whether the peer has had time until that round."""
        return self.sent is None or peer not in self.sent or self.sent[peer][0] < before

    def forget_sent(self, peer: int) -> None:
        """R2: what was sent to the peer so far does not count."""
        if self.sent is not None:
            self.sent.pop(peer, None)
        if peer in self.given:
            self.given.remove(peer)

    def is_under_way(self, peer: int, before: int) -> bool:
        """R2: whether a copy was sent to the peer that it may not have got by that round, only because it waits."""
        return peer in self.given and not (self.round < before and self.is_due(peer, before))

    def note_sent(self, peer: int, round_: int) -> None:
        """R2: it was sent again: the peer has twice as many rounds as the last time."""
        if self.sent is None:
            self.sent = {}
        wait = min(2 * self.sent[peer][1], LONGEST_WAIT) if peer in self.sent else FIRST_WAIT
        self.sent[peer] = (round_ + wait, wait)


class Processed(State):
    """S1, S2: the numbers processed here, per forwarder: all up to a prefix, and some beyond."""

    constant: ClassVar[tuple[str, ...]] = ("gapless",)
    durable: ClassVar[tuple[str, ...]] = ("prefix", "sparse", "holes")

    def __init__(self) -> None:
        self.gapless: frozenset[int] = frozenset()
        """Forwarders that number this node: gaps on their streams close."""
        self.prefix: dict[int, int] = {}
        self.sparse: dict[int, set[int]] = {}
        self.holes = 0
        """How many of the gapless streams have a gap right now."""

    def watch(self, near: Iterable[int], far: Iterable[int]) -> None:
        """Count what these forwarders number, from now on if they are new."""
        self.gapless = frozenset(near)
        for node in (*near, *far):
            self.prefix.setdefault(node, 0)
        self.holes = sum(node in self.gapless for node in self.sparse)

    def has_any(self, names: Iterable[Name]) -> bool:
        """Whether one of these numbers is processed."""
        prefix, sparse = self.prefix, self.sparse
        for forwarder, number in names:
            if number <= prefix[forwarder] or (forwarder in sparse and number in sparse[forwarder]):
                return True
        return False

    def add(self, names: Iterable[Name]) -> None:
        """These are processed."""
        prefix, sparse = self.prefix, self.sparse
        for forwarder, number in names:
            beyond = sparse.get(forwarder)
            reached = prefix[forwarder]
            if number == reached + 1 and forwarder in self.gapless:
                prefix[forwarder] = number if beyond is None else self._close(forwarder, beyond, number)
            elif number > reached:
                if beyond is None:
                    sparse[forwarder] = {number}
                    self.holes += forwarder in self.gapless
                else:
                    beyond.add(number)

    def _close(self, forwarder: int, beyond: set[int], prefix: int) -> int:
        """How far the stream is gapless now that the number after the old prefix is there."""
        while prefix + 1 in beyond:
            prefix += 1
            beyond.discard(prefix)
        if not beyond:
            del self.sparse[forwarder]
            self.holes -= 1
        return prefix

    def raise_to(self, forwarder: int, floor: int) -> None:
        """D2: everything up to the floor counts as processed."""
        if floor > self.prefix[forwarder]:
            self.prefix[forwarder] = floor
            before = self.sparse.pop(forwarder, None)
            beyond = {number for number in before or () if number > floor}
            if beyond:
                self.sparse[forwarder] = beyond
            elif before and forwarder in self.gapless:
                self.holes -= 1

    def forget(self, forwarder: int) -> None:
        """V6: it has left, and everything of it is processed."""
        self.prefix.pop(forwarder, None)
        self.sparse.pop(forwarder, None)

    def columns(self) -> Columns:
        """What an acknowledgement says of the streams into this node."""
        sparse = self.sparse
        return tuple([
            (forwarder, prefix, *(in_runs(prefix, sorted(sparse[forwarder])) if forwarder in sparse else ()))
            for forwarder, prefix in self.prefix.items()
            if forwarder in self.gapless and (prefix or forwarder in sparse)
        ])  # fmt: skip


class Waiting(State):
    """S4: which numbers linked nodes have acknowledged, and which stored messages still wait for that.

    A message waits for one number at a time. Only when that is acknowledged is the next one looked for.
    """

    durable: ClassVar[tuple[str, ...]] = ("known", "beyond", "complete", "queues", "moved")

    def __init__(self) -> None:
        self.known: dict[int, int] = {}
        """Per stream from a forwarder to a linked node: how far it is acknowledged without gap."""
        self.beyond: dict[int, frozenset[int]] = {}
        self.complete: dict[int, int] = {}
        """Per shape, up to which first number its vectors are acknowledged by everybody: numbers rise together."""
        self.queues: dict[int, dict[int, int]] = {}
        """Per stream: the messages that wait for it, and with which number."""
        self.moved: set[int] = set()
        """Streams that were acknowledged since the last look."""

    def has(self, stream: int, number: int) -> bool:
        """Whether the node at the end of the stream has acknowledged that number."""
        return number <= self.known.get(stream, 0) or number in self.beyond.get(stream, ())

    def forget(self, node: int) -> None:
        """V6: it has left, and numbers nothing and acknowledges nothing any more."""
        for stream in [stream for stream in self.known if node in (stream >> SECOND_BITS, stream & SECOND)]:
            del self.known[stream]
            self.beyond.pop(stream, None)
            self.moved.discard(stream)

    def wait(self, serial: int, vectors: Sequence[Vector]) -> bool:
        """Wait for a number of these that is not acknowledged; False: there is none.

        The last vector is the newest, whose numbers take longest to be acknowledged.
        """
        known, complete = self.known, self.complete
        for shape, numbers, _ in reversed(vectors):
            if not shape.expected or numbers[0] <= complete.get(shape.code, 0):
                continue
            sparse = False
            for position, stream in shape.expected:
                number = numbers[position]
                if number > known.get(stream, 0):
                    if number not in self.beyond.get(stream, ()):
                        self.queues.setdefault(stream, {})[serial] = number
                        return True
                    sparse = True
            if not sparse:
                complete[shape.code] = numbers[0]
        return False

    def acknowledge(self, peer: int, columns: Iterable[tuple[int, ...]]) -> bool:
        """Take in an acknowledgement; whether it says anything new."""
        news = False
        known = self.known
        for column in columns:
            stream = column[0] << SECOND_BITS | peer
            before = known.get(stream, 0)
            prefix = max(before, column[1])
            if prefix > before:
                known[stream] = prefix
            elif len(column) == 2 and stream not in self.beyond:
                continue
            news |= self._note_beyond(stream, prefix, of_runs(column[1], column[2:])) or prefix > before
            self.moved.add(stream)
        return news

    def _note_beyond(self, stream: int, prefix: int, numbers: Sequence[int]) -> bool:
        before = self.beyond.get(stream, frozenset())
        if not before and not numbers:
            return False
        beyond = frozenset(number for number in before.union(numbers) if number > prefix)
        if len(beyond) > MOST_BEYOND:
            beyond = frozenset(sorted(beyond)[:MOST_BEYOND])
        if beyond:
            self.beyond[stream] = beyond
        else:
            self.beyond.pop(stream, None)
        return beyond != before

    def released(self) -> list[int]:
        """Messages whose number was acknowledged since the last look; they wait for nothing now."""
        found: list[int] = []
        for stream in sorted(self.moved.intersection(self.queues)):
            queue = self.queues[stream]
            prefix, beyond = self.known.get(stream, 0), self.beyond.get(stream, ())
            done = [serial for serial, number in queue.items() if number <= prefix or number in beyond]
            if len(done) == len(queue):
                del self.queues[stream]
            else:
                for serial in done:
                    del queue[serial]
            found += done
        self.moved.clear()
        return found

    def lacks(self, peer: int, vectors: Iterable[Vector]) -> bool:
        """Whether the peer has not acknowledged some number that these give it."""
        return any(
            stream & SECOND == peer and not self.has(stream, numbers[position])
            for shape, numbers, _ in vectors
            for position, stream in shape.expected
        )

    def holds(self, peer: int, vectors: Iterable[Vector]) -> bool:
        """Whether the peer has acknowledged some number that these give it."""
        return any(
            stream & SECOND == peer and self.has(stream, numbers[position])
            for shape, numbers, _ in vectors
            for position, stream in shape.expected
        )

    def lacking(self, vector: Vector) -> list[int]:
        """Linked nodes that have not acknowledged the number this gives them."""
        shape, numbers, _ = vector
        return [stream & SECOND for i, stream in shape.expected if not self.has(stream, numbers[i])]

    def owing(self, store: dict[int, Entry]) -> set[int]:
        """Who has something of these to acknowledge. Numbers rise: of each shape only the last vector matters."""
        known, found, seen = self.known, set(), set()
        for entry in reversed(store.values()):
            for shape, numbers, _ in entry.vectors:
                if shape.code not in seen:
                    seen.add(shape.code)
                    found |= {stream & SECOND for i, stream in shape.expected if numbers[i] > known.get(stream, 0)}
        return found


def named(vectors: Sequence[Vector], radius: int) -> int:
    """How many of these vectors are of nodes upstream within the radius."""
    return sum(0 < shape.distance <= radius for shape, _, _ in vectors)


def in_runs(prefix: int, numbers: Sequence[int]) -> list[int]:
    """Rising numbers beyond a prefix, as runs: how many are left out, and how many follow."""
    runs: list[int] = []
    last = prefix
    for number in numbers[:MOST_BEYOND]:
        if number == last + 1 and runs:
            runs[-1] += 1
        else:
            runs += (number - last - 1, 1)
        last = number
    return runs


def of_runs(prefix: int, runs: Sequence[int]) -> list[int]:
    """What `in_runs` was given, of numbers from a peer: no more than there can be."""
    numbers: list[int] = []
    last = prefix
    for left_out, length in zip(runs[::2], runs[1::2], strict=False):
        start = last + left_out + 1
        last = start + min(length, MOST_BEYOND - len(numbers)) - 1
        numbers += range(start, last + 1)
    return numbers
