"""The archive's disk, and what is written on it. The broker sees segments of records, never files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from ordercast.core.ids import Topic
from ordercast.pubsub.keeping import StampedRule
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Vector

SegmentState = Literal["whole", "hole", "doubt", "lost"]
WHOLE: SegmentState = "whole"
HOLE: SegmentState = "hole"
DOUBT: SegmentState = "doubt"
LOST: SegmentState = "lost"


class Record(msgspec.Struct, frozen=True, array_like=True):
    """Publications that became stable together, in an order that is legal for all of them."""

    kept_ms: int
    """When they were kept first, by the clock of the broker that did."""
    covered: Vector
    """Up to where, per publisher, this record and those before it reach; also what compaction has left out. With it,
    in intervals, closed sessions of which nothing comes behind this record (ARC-12)."""
    entries: tuple[Publication, ...]


class SegmentInfo(msgspec.Struct, array_like=True):
    """One segment of a topic's archive: the records between two cuts, or a place where they are missing."""

    number: int
    covered: Vector
    """Where it ends, of the publishers that it has anything of; those that were closed meanwhile in intervals."""
    state: SegmentState = WHOLE
    """`hole`: another copy may have what is missing here. `doubt`: another copy has to say whether anything is.
    `lost`: no copy has it."""
    sealed: bool = False
    """Nothing is added to it any more; otherwise all below but the number is found by reading it."""
    first_ms: int = 0
    last_ms: int = 0
    count: int = 0
    size: int = 0


class ArchiveManifest(msgspec.Struct, array_like=True):
    """The segments that an archive has of a topic: they begin at the cut `floor`, and follow one another."""

    floor: Vector = {}
    segments: list[SegmentInfo] = []
    next_number: int = 1
    sure: bool = False
    """ARC-13: no session of the topic is closed before this copy has said that it has all of it."""
    aged: bool = False
    """Sessions that published on the topic are closed."""


class Piece(msgspec.Struct, frozen=True):
    """Whole records from one place of a segment on."""

    bodies: Sequence[bytes]
    offset: int
    """Where the next ones begin."""
    damaged: bool = False
    """What lies at the offset is neither a record nor the end."""


class SegmentFiles(Protocol):
    """Port to the disk. What a turn writes is durable before any packet of the turn leaves."""

    segment_size: int
    """A segment of this size is sealed. Sizes are the port's own: bytes on a disk."""
    worth_compacting: int
    """So many new publications are worth a look for what they replace."""

    def now_ms(self) -> int:
        """The time of day."""

    def saved(self) -> dict[Topic, ArchiveManifest]:
        """The manifests of earlier lives."""

    def rules(self) -> tuple[StampedRule, ...]:
        """Rules that were made at run time, by operators."""

    def keep_rules(self, rules: tuple[StampedRule, ...]) -> None: ...

    def note(self, topic: Topic, manifest: ArchiveManifest | None) -> None:
        """Write the topic's manifest down; None: nothing of the topic is kept any more."""

    def add(self, topic: Topic, number: int, bodies: Sequence[bytes]) -> int:
        """Add records to the end of a segment, which begins with the first of them; the bytes that they take."""

    def reopen(self, topic: Topic, number: int) -> bool:
        """A segment that was not sealed is gone on with: what is torn at its end is cut off; whether anything was."""

    def secure(self) -> None:
        """What was added is on the disk, not only written, when the turn ends."""

    def read(self, topic: Topic, number: int, offset: int, most: int) -> Piece:
        """About `most` bytes of records, at least one if there is one; offset 0 is the beginning."""

    def drop(self, topic: Topic, number: int, *, damaged: bool = False) -> None:
        """Remove a segment; a damaged one is set aside."""
