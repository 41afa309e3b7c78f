"""The records of a segment: reading them from the port, and rewriting them without what later keys replace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ordercast.broker.archive.ports import Record, SegmentFiles, SegmentInfo
from ordercast.core.ids import Topic
from ordercast.pubsub.cuts import folded, is_interval
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Vector

READ_BYTES = 1 << 18
"""What one request of a reader is answered with, about."""
encode_record = msgspec.msgpack.Encoder().encode
decode_record = msgspec.msgpack.Decoder(Record).decode


class RecordOutline(msgspec.Struct, frozen=True, array_like=True):
    """A record whose publications are not looked at one by one."""

    kept_ms: int
    covered: Vector
    entries: msgspec.Raw

    @property
    def count(self) -> int:
        return len(_count_of(self.entries))


_decode_outline = msgspec.msgpack.Decoder(RecordOutline).decode
_count_of = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


def bodies_of(files: SegmentFiles, topic: Topic, number: int) -> Iterator[bytes]:
    """All records of a segment, up to the first that is damaged."""
    offset = 0
    while (piece := files.read(topic, number, offset, READ_BYTES)).bodies:
        yield from piece.bodies
        offset = piece.offset


def outlines_of(files: SegmentFiles, topic: Topic, number: int) -> Iterator[RecordOutline]:
    """The same, as outlines; one that makes no sense raises what is in `NOT_DECODABLE`."""
    for body in bodies_of(files, topic, number):
        yield _decode_outline(body)


def size_of(files: SegmentFiles, topic: Topic, number: int) -> int:
    """The end of the last whole record of the segment, in bytes."""
    offset = 0
    while (piece := files.read(topic, number, offset, READ_BYTES)).bodies:
        offset = piece.offset
    return offset


def extend(info: SegmentInfo, kept_ms: int, covered: Vector, count: int) -> None:
    """The segment has a record more."""
    info.first_ms = info.first_ms or kept_ms
    info.last_ms = max(info.last_ms, kept_ms)
    info.covered.update(covered)
    if any(map(is_interval, covered)):
        info.covered = folded(info.covered)
    info.count += count


# Compaction


def latest(records: Sequence[Record], seen: set[str]) -> list[Record]:
    """ARC-9: the records without what later keys replace: those in `seen`, to which their own are added."""
    return [_latest(record, seen) for record in reversed(records)][::-1]


def _latest(record: Record, seen: set[str]) -> Record:
    stay: list[Publication] = []
    for entry in reversed(record.entries):
        if "" in entry.keys or not entry.keys or not seen.issuperset(entry.keys):
            stay.append(entry)
            seen.update(entry.keys)
    return Record(record.kept_ms, record.covered, tuple(reversed(stay)))


def joined(records: Sequence[Record]) -> Iterator[Record]:
    """Records with little left in them become one, so that a compacted segment does not keep their number."""
    waiting: list[Record] = []
    for record in records:
        waiting.append(record)
        if sum(entry.weight for one in waiting for entry in one.entries) >= READ_BYTES:
            yield _union(waiting)
            waiting = []
    if waiting:
        yield _union(waiting)


def _union(records: Sequence[Record]) -> Record:
    covered: Vector = {}
    for record in records:
        covered.update(record.covered)
    return Record(records[-1].kept_ms, folded(covered), tuple(entry for record in records for entry in record.entries))
