"""Acknowledgements of linked LoCaMu nodes, and the stored messages that wait for more of them.

Spec: docs/protocols/locamu.md (LCM-S4).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from ordercast.core.state import State
from ordercast.protocols.locamu.packets import SECOND, SECOND_BITS
from ordercast.protocols.locamu.processed import MOST_BEYOND, of_runs
from ordercast.protocols.locamu.vectors import Vector


class WaitingCopies(State):
    """LCM-S4: which numbers linked nodes have acknowledged, and which stored messages still wait for that.

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

    def begin_anew(self) -> None:
        """Forget which messages wait, though not what was acknowledged."""
        self.queues, self.complete = {}, {}

    def forget(self, node: int) -> None:
        """LCM-V6: it has left, and numbers nothing and acknowledges nothing any more."""
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

    def owing(self, messages: Iterable[Sequence[Vector]]) -> set[int]:
        """Nodes that have one of these to acknowledge, the newest first: of each shape only the last vector matters."""
        known, found, seen = self.known, set(), set()
        for vectors in messages:
            for shape, numbers, _ in vectors:
                if shape.code not in seen:
                    seen.add(shape.code)
                    found |= {stream & SECOND for i, stream in shape.expected if numbers[i] > known.get(stream, 0)}
        return found
