"""A log in a directory that outlives its process: what was added before a `flush` is there in the next life.

    DIR/<n>.log        the newest segment counts (`segments.py` has its format)
    DIR/<n>.damaged    one that was salvaged, as it was found

What is added in one turn is one frame and one write, and, with `fsync = "always"`, on the disk when `flush` returns. A
segment gets its name only when its beginning is on the disk, and the one before it is removed only after that. After a
failed write nothing is known of what the disk holds: nothing more is written, and whoever uses the log must stop.
"""

from __future__ import annotations

import logging
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from ordercast.core.errors import UsageError
from ordercast.core.wire import NOT_DECODABLE
from ordercast.net.log import segments
from ordercast.net.log.files import PRIVATE_FILE, Disk, Fsync, make_private, sync_directory
from ordercast.net.log.segments import Segment, SegmentRecord

LOG = logging.getLogger("ordercast.log")
_T = TypeVar("_T")


class DamagedLogError(UsageError):
    """Bytes in the middle of a log are not what was written."""


class Log:
    """A write-ahead log in one directory. `records` are those of former lives; `compact` begins it anew."""

    def __init__(
        self, directory: Path, kind: str, *, least_bytes: int, fsync: Fsync = "always", disk: Disk | None = None,
        salvage: bool = False,
    ) -> None:  # fmt: skip
        """`least_bytes`: a smaller segment is not worth beginning anew. `salvage`: go on with what is readable."""
        self.records: list[SegmentRecord] = []
        """Emptied by whoever has read them. None at all: the log is new, and must be begun with `compact`."""
        self.cut_bytes = 0
        """What was torn at the end, and cut off at the start."""
        self.lost_bytes = 0
        self.lost_writes = 0
        """What was damaged, if it was salvaged: at least so many writes are gone."""
        self.kept = ""
        """The file that was damaged, under its new name."""
        self.segment_bytes = 0
        self._directory = directory
        self._kind = kind
        self._least_bytes = least_bytes
        self._fsync = fsync
        self._disk = disk or Disk()
        self._segment = 0
        self._marker = 0
        self._number = 0
        self._file = -1
        self._unsynced = False
        self._failure: OSError | None = None
        self._compact_at = least_bytes
        try:
            make_private(directory)
            self._open(salvage=salvage)
        except OSError as error:
            raise UsageError(f"{error.filename or directory}: {error.strerror}") from None

    @property
    def path(self) -> Path:
        """The newest segment."""
        return self._path(self._segment)

    @property
    def is_open(self) -> bool:
        return self._file >= 0

    @property
    def failed(self) -> bool:
        """Whether a write has failed; nothing more is written then."""
        return self._failure is not None

    @property
    def salvaged(self) -> bool:
        """Whether a part of it is lost; it must be begun anew with the rest."""
        return self.lost_bytes > 0 or self.lost_writes > 0

    @property
    def oversized(self) -> bool:
        """Whether it is time to begin it anew."""
        return self.segment_bytes > self._compact_at

    def put_off(self) -> None:
        """It cannot begin anew now; it is not worth another try before it has doubled."""
        self._compact_at = 2 * self.segment_bytes

    def write(self, body: bytes) -> None:
        """Add one frame with one write; with `always` it is on the disk afterwards."""
        if self._failure is not None:
            raise self._failure
        data = segments.frame(self._marker, self._number, body)
        try:
            self._disk.write(self._file, data)
        except OSError as error:
            raise self._failed(error, self.path) from None
        self._number += 1
        self.segment_bytes += len(data)
        self._unsynced = True
        if self._fsync == "always":
            self.sync()

    def sync(self) -> None:
        """Make durable what was written; for `interval`, from time to time."""
        if not self._unsynced:
            return
        if self._failure is not None:
            raise self._failure
        try:
            self._disk.sync(self._file)
        except OSError as error:
            raise self._failed(error, self.path) from None
        self._unsynced = False

    def compact(self, bodies: list[bytes]) -> None:
        """Go on in a new segment that begins with `bodies`, and forget the old ones."""
        if self._failure is not None:
            raise self._failure
        marker = secrets.randbits(32)
        data = segments.begun(marker, self._kind, bodies)
        path = self._path(self._segment + 1)
        try:
            file = self._new_segment(path, data)
        except OSError as error:
            raise self._failed(error, path) from None  # Which segment the next life finds is unknown.
        self.abandon()
        self._file, self._marker, self._number = file, marker, len(bodies) + 1
        self._segment += 1
        self._unsynced = False
        self._grow_from(len(data))
        for old in self._segments():
            if old < self._segment:
                self._path(old).unlink()

    def begin(self, bodies: list[bytes]) -> None:
        """`compact` at the start of a process, when a disk that does not take it is nothing but a wrong place."""
        try:
            self.compact(bodies)
        except OSError as error:
            raise UsageError(f"{error.filename}: {error.strerror}") from None

    def close(self) -> None:
        if self.is_open:
            try:
                if self._fsync != "never" and not self.failed:
                    self.sync()
            finally:
                self.abandon()

    def abandon(self) -> None:
        """Let go of it as a killed process does."""
        if self.is_open:
            os.close(self._file)
            self._file = -1

    def decoded(self, record: SegmentRecord, decoder: msgspec.msgpack.Decoder[_T]) -> _T:
        """The content of a record of a former life."""
        try:
            return decoder.decode(record.body)
        except NOT_DECODABLE as error:
            told = f"the record at byte {record.place} is none of format {segments.FORMAT}"
            raise UsageError(f"{self.path}: {told}: {error}") from None

    def report(self, node: str) -> None:
        """Log what was cut off or lost at the start."""
        if self.cut_bytes:
            facts = {"node": node, "file": str(self.path), "bytes": self.cut_bytes}
            LOG.warning("torn tail cut off", extra={"facts": facts})
        if self.salvaged:
            facts = {"node": node, "kept": self.kept, "bytes": self.lost_bytes, "writes": self.lost_writes}
            LOG.warning("a damaged log was salvaged without what is unreadable", extra={"facts": facts})

    # Inside

    def _failed(self, error: OSError, path: Path) -> OSError:
        self._failure = OSError(error.errno, error.strerror or str(error), str(path))
        return self._failure

    def _new_segment(self, path: Path, data: bytes) -> int:
        unnamed = path.with_suffix(".new")
        file = os.open(unnamed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, PRIVATE_FILE)
        try:
            self._disk.write(file, data)
            self._disk.sync(file)
            unnamed.rename(path)
            if self._fsync != "never":
                sync_directory(self._directory)
        except OSError:
            os.close(file)
            raise
        return file

    def _open(self, *, salvage: bool) -> None:
        for leftover in self._directory.glob("*.new"):
            leftover.unlink()
        found = self._segments()
        if not found:
            return
        self._segment = found[-1]
        data = self.path.read_bytes()
        if (other := segments.other_format(data)) is not None:
            raise UsageError(f"{self.path}: written in format {other}; this version reads format {segments.FORMAT}")
        segment = segments.read(data)
        if segment.kind not in (self._kind, ""):
            raise UsageError(f"{self.path}: the log of a {segment.kind}, not of a {self._kind}")
        self.records = segment.records
        self.cut_bytes = len(data) - max(segment.whole, segment.damage[-1].end if segment.damage else 0)
        if not segment.damage:
            self._go_on(segment)
        elif salvage:
            self._set_aside(segment)
        else:
            raise DamagedLogError(_complaint(self.path, data, segment))

    def _go_on(self, segment: Segment) -> None:
        """Cut off what is torn, and add what comes to this segment."""
        self._marker, self._number = segment.marker, segment.next_number
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        os.ftruncate(self._file, segment.whole)
        self._unsynced = self.cut_bytes > 0
        self._grow_from(segment.beginning_bytes)
        self.segment_bytes = segment.whole

    def _set_aside(self, segment: Segment) -> None:
        """Keep the damaged file under another name; its own goes when the log is begun anew."""
        self.lost_bytes = sum(damage.end - damage.start for damage in segment.damage)
        self.lost_writes = sum(damage.writes for damage in segment.damage)
        aside = self.path.with_suffix(".damaged")
        self.kept = str(aside)
        with suppress(FileExistsError):  # From a start that got no further.
            os.link(self.path, aside)

    def _grow_from(self, beginning: int) -> None:
        self.segment_bytes = beginning
        self._compact_at = max(self._least_bytes, 2 * beginning)

    def _path(self, segment: int) -> Path:
        return self._directory / f"{segment:08d}.log"

    def _segments(self) -> list[int]:
        return sorted(int(path.stem) for path in self._directory.glob("*.log") if path.stem.isdecimal())


def _complaint(path: Path, data: bytes, segment: Segment) -> str:
    """A line about the first damage, and how much else there is to read."""
    if not segment.records and segment.damage[0].start == 0:
        return f"{path}: damaged from its beginning on, or no log of format {segments.FORMAT}"
    place = segment.damage[0].start
    behind = sum(record.place > place for record in segment.records)
    return f"{path}: damaged at byte {place} of {len(data)}, with {behind} readable records behind it"
