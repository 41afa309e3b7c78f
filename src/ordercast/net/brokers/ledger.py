"""The durable log of a broker: what it holds, in a directory that outlives its process.

    DIR/lock             held by the process that uses the directory
    DIR/life             the last life that began here
    DIR/ledger/<n>.log   one segment: first everything that was held when it was begun, then what was added since

    ┌────────────┬───────────┬──────┐
    │ length (4) │ crc32 (4) │ body │      one record; big-endian; the body is a msgpack array
    └────────────┴───────────┴──────┘

A segment gets its name only when its beginning is on the disk, and the one before it is removed only after that. What
was written in one turn is one write, made durable before any packet of the turn leaves (`fsync = "always"`). A process
that dies in a write leaves a torn tail, of which nobody has heard; it is cut off at the next start. After a failed
write or fsync nothing is known of what the disk holds, so the process stops.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections import OrderedDict
from pathlib import Path
from typing import Literal

import msgspec

from ordercast.broker.place import Saved
from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.pubsub.publications import Publication, PublicationId
from ordercast.pubsub.received import Vector

Fsync = Literal["always", "interval", "never"]

_HEADER = struct.Struct(">II")
_LEAST_BYTES = 1 << 24
"""A segment smaller than this is not worth beginning anew."""
_ENTRIES_A_RECORD = 500


class _Record(msgspec.Struct, frozen=True, array_like=True):
    """Base of what a segment consists of."""


class _Entries(_Record, frozen=True, array_like=True, tag=1):
    topic: Topic
    entries: tuple[Publication, ...]


class _Base(_Record, frozen=True, array_like=True, tag=2):
    topic: Topic
    base: Vector


class _Forget(_Record, frozen=True, array_like=True, tag=3):
    topic: Topic


class _Roster(_Record, frozen=True, array_like=True, tag=4):
    roster: dict[Topic, tuple[Origin, ...]]
    fenced: dict[Origin, int]


class _Term(_Record, frozen=True, array_like=True, tag=5):
    number: int


class _Directory(_Record, frozen=True, array_like=True, tag=6):
    directory: dict[NodeId, str]


_Any = _Entries | _Base | _Forget | _Roster | _Term | _Directory
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Any)


class Disk:
    """The calls that can fail, in one place where a test can make them."""

    def write(self, file: int, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]

    def sync(self, file: int) -> None:
        os.fdatasync(file)


class _Held:
    """Everything that the records so far add up to."""

    def __init__(self) -> None:
        self.entries: dict[Topic, OrderedDict[PublicationId, Publication]] = {}
        self.bases: dict[Topic, Vector] = {}
        self.roster: dict[Topic, tuple[Origin, ...]] = {}
        self.fenced: dict[Origin, int] = {}
        self.term = 0
        self.directory: dict[NodeId, str] = {}

    def apply(self, record: _Any) -> None:
        match record:
            case _Entries(topic, entries):
                self.hold(topic, entries)
            case _Base(topic, base):
                self.raise_base(topic, base)
            case _Forget(topic):
                self.entries.pop(topic, None)
                self.bases.pop(topic, None)
            case _Roster(roster, fenced):
                self.roster, self.fenced = roster, fenced
            case _Term(number):
                self.term = max(self.term, number)
            case _Directory(directory):
                self.directory = directory

    def hold(self, topic: Topic, entries: tuple[Publication, ...]) -> None:
        """What is written again (a prepared publication that is committed) takes its later place."""
        held = self.entries.setdefault(topic, OrderedDict())
        for entry in entries:
            key = (entry.origin, entry.number)
            held[key] = entry
            held.move_to_end(key)

    def raise_base(self, topic: Topic, base: Vector) -> None:
        known = self.bases.setdefault(topic, {})
        for origin, number in base.items():
            known[origin] = max(known.get(origin, 0), number)
        held = self.entries.get(topic)
        while held:
            (origin, number), entry = held.popitem(last=False)
            if number > known.get(origin, 0):
                held[origin, number] = entry
                held.move_to_end((origin, number), last=False)
                return

    def records(self) -> list[_Any]:
        """The shortest story that leads here."""
        told: list[_Any] = [_Term(self.term), _Roster(self.roster, self.fenced), _Directory(self.directory)]
        told += [_Base(topic, base) for topic, base in sorted(self.bases.items())]
        for topic, held in sorted(self.entries.items()):
            base = self.bases.get(topic, {})
            left = [entry for entry in held.values() if entry.number > base.get(entry.origin, 0)]
            for i in range(0, len(left), _ENTRIES_A_RECORD):
                told.append(_Entries(topic, tuple(left[i : i + _ENTRIES_A_RECORD])))
        return told

    def saved(self) -> Saved:
        entries: dict[Topic, list[Publication]] = {}
        for record in self.records():
            if isinstance(record, _Entries):
                entries.setdefault(record.topic, []).extend(record.entries)
        return Saved(
            entries, {topic: dict(base) for topic, base in self.bases.items()}, dict(self.roster), dict(self.fenced),
            self.term, dict(self.directory),
        )  # fmt: skip


class BrokerLedger:
    """Implements `broker.place.Ledger`; `flush` ends the turn."""

    def __init__(self, directory: Path, *, fsync: Fsync = "always", disk: Disk | None = None) -> None:
        self.segment_bytes = 0
        """Size of the current segment."""
        self.flushes = 0
        self.cut_bytes = 0
        """What was cut off at the start."""
        self._fsync = fsync
        self._disk = disk or Disk()
        self._directory = directory / "ledger"
        self._directory.mkdir(parents=True, exist_ok=True)
        self._held = _Held()
        self._buffer: list[bytes] = []
        self._unsynced = False
        self._file = -1
        self._begin_again_at = _LEAST_BYTES
        self._segment = self._recover()
        self._begin_segment()

    def saved(self) -> Saved:
        """What earlier lives have left."""
        return self._held.saved()

    # What the broker writes down

    def entries(self, topic: Topic, entries: tuple[Publication, ...]) -> None:
        self._add(_Entries(topic, entries))

    def base(self, topic: Topic, base: Vector) -> None:
        self._add(_Base(topic, dict(base)))

    def forget(self, topic: Topic) -> None:
        self._add(_Forget(topic))

    def roster(self, roster: dict[Topic, tuple[Origin, ...]], fenced: dict[Origin, int]) -> None:
        self._add(_Roster(dict(roster), dict(fenced)))

    def term(self, number: int) -> None:
        self._add(_Term(number))

    def directory(self, directory: dict[NodeId, str]) -> None:
        self._add(_Directory(dict(directory)))

    # What the runtime calls

    def flush(self) -> None:
        """One write and, with `always`, one fsync for all that the turn has added."""
        if not self._buffer:
            return
        data = b"".join(self._buffer)
        self._buffer = []
        self._disk.write(self._file, data)
        self.segment_bytes += len(data)
        self.flushes += 1
        self._unsynced = True
        if self._fsync == "always":
            self.sync()
        if self.segment_bytes > self._begin_again_at:
            self._begin_segment()

    def sync(self) -> None:
        """Make durable what was written; for `interval`, from time to time."""
        if self._unsynced:
            self._disk.sync(self._file)
            self._unsynced = False

    def close(self) -> None:
        if self._file >= 0:
            self.flush()
            if self._fsync != "never":
                self.sync()
            self.abandon()

    def abandon(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    # Inside

    def _add(self, record: _Any) -> None:
        self._held.apply(record)
        self._buffer.append(_framed(record))

    def _path(self, segment: int) -> Path:
        return self._directory / f"{segment:08d}.log"

    def _segments(self) -> list[int]:
        return sorted(int(path.stem) for path in self._directory.glob("*.log") if path.stem.isdigit())

    def _recover(self) -> int:
        """Read the newest segment, without a torn tail; its number. Older ones are part of its beginning."""
        found = self._segments()
        for leftover in self._directory.glob("*.new"):
            leftover.unlink()
        if not found:
            return 0
        path = self._path(found[-1])
        records, self.cut_bytes = read_segment(path)
        for record in records:
            self._held.apply(record)
        return found[-1]

    def _begin_segment(self) -> None:
        """Write everything that is held into a new segment, and forget the old ones."""
        beginning = b"".join(map(_framed, self._held.records()))
        path = self._path(self._segment + 1)
        unnamed = path.with_suffix(".new")
        file = os.open(unnamed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            self._disk.write(file, beginning)
            self._disk.sync(file)
            unnamed.rename(path)
            _sync_directory(self._directory)
        except OSError:
            os.close(file)
            raise
        self.abandon()
        self._file = file
        self._segment += 1
        self._unsynced = False
        self.segment_bytes = len(beginning)
        self._begin_again_at = max(_LEAST_BYTES, 2 * len(beginning))
        for old in self._segments():
            if old < self._segment:
                self._path(old).unlink()


def read_segment(path: Path) -> tuple[list[_Any], int]:
    """The records of a segment up to its end or to where it is torn, and how many bytes lie behind that."""
    data = path.read_bytes()
    records: list[_Any] = []
    start = 0
    while len(data) - start >= _HEADER.size:
        length, crc = _HEADER.unpack_from(data, start)
        body = data[start + _HEADER.size : start + _HEADER.size + length]
        if len(body) < length or zlib.crc32(body) != crc:
            break
        try:
            records.append(_decoder.decode(body))
        except msgspec.MsgspecError as error:
            raise UsageError(f"{path}: a record at byte {start} is of another version: {error}") from None
        start += _HEADER.size + length
    return records, len(data) - start


def _framed(record: _Any) -> bytes:
    body = _encoder.encode(record)
    return _HEADER.pack(len(body), zlib.crc32(body)) + body


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
