"""A topic's log at one broker: publications in order, until they are stable. No packets."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import ClassVar, NamedTuple

from ordercast.core.errors import InvariantError
from ordercast.core.ids import Origin
from ordercast.core.state import State
from ordercast.pubsub.batches import PublisherRun, pieces
from ordercast.pubsub.publications import BESIDES_PAYLOAD, Publication, carried_bytes
from ordercast.pubsub.received import Received, Vector

MOST_IN_PACKET = 1000
_MOST_BYTES = 1 << 18
"""A packet is cut here, unless one entry alone is larger: a quarter of what a connection takes."""
_ALWAYS_EXACT = 256
"""A log up to this length never keeps a stable entry."""


class LoggedBatch(NamedTuple):
    """Entries that came into the log together, as far as they are still there."""

    entries: int
    weight: int
    """Bytes of the whole batch."""
    origin: Origin | None = None
    """Of all of them, if their numbers follow each other."""
    last: int = 0
    """The last number then."""


class TopicLog(State):
    """The log of one topic. What is stable leaves it: the front at once, the rest when it is worth the look."""

    derived: ClassVar[tuple[str, ...]] = ("weight", "_batches")

    def __init__(self) -> None:
        self.entries: list[Publication] = []
        self.weight = 0
        """Bytes of the log; a batch that is stable in part counts whole."""
        self._batches: deque[LoggedBatch] = deque()
        """The batches of the log: entries that leave in the order in which they came need not be weighed again."""
        self._compacted = 0
        """How long the log was when stable entries were last looked for behind unstable ones."""

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Publication]:
        return iter(self.entries)

    @property
    def carried(self) -> int:
        """Bytes of payloads and extras, about."""
        return self.weight - BESIDES_PAYLOAD * len(self.entries)

    def append(self, entries: Sequence[Publication], run: PublisherRun | None = None) -> None:
        """New entries at the end of the log; and the run that they are, if that is known."""
        self.entries.extend(entries)
        if run is not None:
            batch = LoggedBatch(len(entries), run.payload_bytes + BESIDES_PAYLOAD * len(entries), run.origin, run.last)
        else:
            batch = LoggedBatch(len(entries), _weight_of(entries))
        self.weight += batch.weight
        self._batches.append(batch)

    def above(self, base: Vector) -> list[Publication]:
        """Entries that are not stable, in log order."""
        low = base.get
        return [entry for entry in self.entries if entry.number > low(entry.origin, 0)]

    def lacking(self, theirs: Received) -> list[Publication]:
        """Entries that somebody who has received `theirs` lacks, in log order."""
        return [entry for entry in self.entries if (entry.origin, entry.number) not in theirs]

    def cut(self, base: Vector, *, exactly: bool = False) -> None:
        """The stable front leaves at once; stable entries behind an unstable one when they are worth the look."""
        entries, low = self.entries, base.get
        front = self._take_off_runs(base)
        rest = 0
        for entry in islice(entries, front, None):
            if entry.number > low(entry.origin, 0):
                break
            rest += 1
        del entries[: front + rest]
        self._take_off(rest)
        if exactly or len(entries) <= _ALWAYS_EXACT or len(entries) > 2 * self._compacted:
            if not all(_unstable(batch, base) for batch in self._batches):
                self._compact(base)
            self._compacted = len(self.entries)

    def _take_off_runs(self, base: Vector) -> int:
        """Take the batches off that are stable as a whole, as far as that can be seen; gives their entries' number."""
        batches, low = self._batches, base.get
        entries = 0
        while batches:
            count, weight, origin, last = batches[0]
            if origin is None or last > low(origin, 0):
                break
            batches.popleft()
            self.weight -= weight
            entries += count
        return entries

    def _take_off(self, entries: int) -> None:
        batches = self._batches
        while entries:
            batch = batches[0]
            if batch.entries > entries:
                batches[0] = batch._replace(entries=batch.entries - entries)
                return
            batches.popleft()
            self.weight -= batch.weight
            entries -= batch.entries

    def _compact(self, base: Vector) -> None:
        kept = self.above(base)
        if len(kept) < len(self.entries):
            self.entries, self.weight = kept, _weight_of(kept)
            self._batches = deque([LoggedBatch(len(kept), self.weight)])

    def check(self, topic: str, base: Vector, have: Received) -> None:
        """No entry is twice in the log, and none has left it above the base."""
        logged = Received()
        for entry in self.entries:
            if not logged.add(entry.origin, entry.number):
                raise InvariantError(f"{entry.id} is twice in the log")
        logged.raise_to(base)
        if logged.summary() != have.summary():
            raise InvariantError(f"topic {topic}: received {have.summary()}, kept {logged.summary()}")
        if sum(batch.entries for batch in self._batches) != len(self.entries):
            raise InvariantError(f"topic {topic}: its batches are not those of the log")
        if self.weight < _weight_of(self.entries):
            raise InvariantError(f"topic {topic}: its publications weigh more than {self.weight} bytes")


def _unstable(batch: LoggedBatch, base: Vector) -> bool:
    """Whether nothing in the batch is stable, as far as that can be seen."""
    return batch.origin is not None and batch.last - batch.entries >= base.get(batch.origin, 0)


def _weight_of(entries: Sequence[Publication]) -> int:
    return carried_bytes(entries) + BESIDES_PAYLOAD * len(entries)


def packets_of(entries: Sequence[Publication]) -> Iterator[tuple[Publication, ...]]:
    """The entries in order, in pieces that fit a packet."""
    return pieces(entries, MOST_IN_PACKET, _MOST_BYTES)
