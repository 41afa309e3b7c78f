"""The archive of a broker on its disk: segments in the one log format, and a log of manifests.

    DATA/archive/index/<n>.log         which topics are kept, and their segments (`net/log`)
    DATA/archive/<topic>/<n>.log       a segment of a topic; its directory has a name made from the topic's
    DATA/archive/<topic>/<n>.damaged   one that could not be read, as it was found

What a turn adds to a segment is written when the turn ends, before the manifests and before the broker's own log: what
that forgets as stable is here by then.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import msgspec

from ordercast.broker.archive.ports import ArchiveManifest, Piece
from ordercast.core.errors import UsageError
from ordercast.core.ids import Topic
from ordercast.net.log import segments
from ordercast.net.log.files import PRIVATE_FILE, Disk, Fsync, make_private
from ordercast.net.log.log import DamagedLogError, Log
from ordercast.pubsub.keeping import StampedRule

LOG = logging.getLogger("ordercast.archive")
SEGMENT_BYTES = 1 << 23
_LEAST_BYTES = 1 << 20
_MOST_OPEN = 128
_KIND = "archive"


class _Noted(msgspec.Struct, frozen=True, array_like=True, tag=1):
    topic: Topic
    manifest: ArchiveManifest | None


class _Rules(msgspec.Struct, frozen=True, array_like=True, tag=2):
    rules: tuple[StampedRule, ...]


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(list[_Noted | _Rules])


class _Open:
    """A segment that is being written: its file, and what the turn has added."""

    def __init__(self, file: int, marker: int, number: int, size: int) -> None:
        self.file = file
        self.marker = marker
        self.number = number
        self.size = size
        self.told = size
        """The size that the caller knows of."""
        self.fresh: list[bytes] = []
        self.unsynced = False


class ArchiveFiles:
    """Implements `SegmentFiles` on a disk; `flush` ends the turn."""

    segment_size = SEGMENT_BYTES
    worth_compacting = 1000

    def __init__(self, directory: Path, *, fsync: Fsync = "always", disk: Disk | None = None) -> None:
        self._directory = directory / "archive"
        self._fsync = fsync
        self._disk = disk or Disk()
        self._open: OrderedDict[tuple[Topic, int], _Open] = OrderedDict()
        self._readers: OrderedDict[tuple[Topic, int], int] = OrderedDict()
        self._manifests: dict[Topic, bytes] = {}
        self._rules: tuple[StampedRule, ...] = ()
        self._fresh: list[_Noted | _Rules] = []
        self._secured = False
        """The turn is to be on the disk before anything of it leaves."""
        try:
            self.log = Log(
                self._directory / "index", _KIND, least_bytes=_LEAST_BYTES, fsync=fsync, disk=disk, salvage=False
            )
        except DamagedLogError as error:
            raise DamagedLogError(f"{error}; without it nobody knows what is kept: remove {self._directory}, and the"
                                  " archive is filled from other copies") from None  # fmt: skip
        for record in self.log.records:
            for told in self.log.decoded(record, _decoder):
                self._apply(told)
        if not self.log.records:
            self.log.begin([_encode([_Rules(())])])
        self.log.records = []

    # The manifests

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def saved(self) -> dict[Topic, ArchiveManifest]:
        decode = msgspec.msgpack.Decoder(ArchiveManifest).decode
        return {topic: decode(body) for topic, body in self._manifests.items()}

    def rules(self) -> tuple[StampedRule, ...]:
        return self._rules

    def keep_rules(self, rules: tuple[StampedRule, ...]) -> None:
        self._add(_Rules(tuple(rule for rule in rules if rule.version)))

    def note(self, topic: Topic, manifest: ArchiveManifest | None) -> None:
        self._add(_Noted(topic, manifest))

    def _add(self, told: _Noted | _Rules) -> None:
        self._apply(told)
        if isinstance(told, _Noted):  # The manifest may change before the turn ends: the last word counts.
            self._fresh = [one for one in self._fresh if not isinstance(one, _Noted) or one.topic != told.topic]
        self._fresh.append(told)

    def _apply(self, told: _Noted | _Rules) -> None:
        match told:
            case _Rules(rules):
                self._rules = rules
            case _Noted(topic, None):
                self._manifests.pop(topic, None)
            case _Noted(topic, manifest):
                self._manifests[topic] = _encode(manifest)

    # Segments

    def add(self, topic: Topic, number: int, bodies: Sequence[bytes]) -> int:
        opened = self._writing(topic, number)
        for body in bodies:
            opened.fresh.append(segments.frame(opened.marker, opened.number, body))
            opened.number += 1
            opened.size += len(opened.fresh[-1])
        added, opened.told = opened.size - opened.told, opened.size
        return added

    def _writing(self, topic: Topic, number: int) -> _Open:
        opened = self._open.get((topic, number))
        if opened is None:
            path = self._path(topic, number)
            opened = self._go_on(path) if path.exists() else self._begin(path)
            self._open[topic, number] = opened
            self._close_oldest()  # A turn may write to any number of topics.
        self._open.move_to_end((topic, number))
        return opened

    def _begin(self, path: Path) -> _Open:
        make_private(path.parent)
        marker = secrets.randbits(32)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, PRIVATE_FILE)
        opened = _Open(file, marker, 1, 0)
        opened.fresh.append(segments.begun(marker, _KIND, []))
        opened.size = len(opened.fresh[0])
        return opened

    def _go_on(self, path: Path) -> _Open:
        """Behind the last whole record; what is torn or damaged is cut off."""
        data = path.read_bytes()
        whole = segments.chain(data, _beginning(data))
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        if whole.end < len(data):
            LOG.warning("torn end cut off", extra={"facts": {"file": str(path), "bytes": len(data) - whole.end}})
            os.ftruncate(file, whole.end)
        if not whole.marker:
            os.close(file)
            path.unlink()
            return self._begin(path)
        return _Open(file, whole.marker, whole.next_number, whole.end)

    def reopen(self, topic: Topic, number: int) -> bool:
        path = self._path(topic, number)
        if not path.exists():
            return False
        before = path.stat().st_size
        return self._writing(topic, number).size < before

    def secure(self) -> None:
        self._secured = True

    def read(self, topic: Topic, number: int, offset: int, most: int) -> Piece:
        opened = self._open.get((topic, number))
        if opened is not None:
            self._write(opened)
        file = self._reader(topic, number)
        if file is None:
            return Piece((), offset, damaged=True)
        start = offset or self._first(file)
        data = os.pread(file, most, start)
        found = segments.chain(data, 0)
        if not found.bodies and found.needed > len(data):
            data = os.pread(file, found.needed, start)
            found = segments.chain(data, 0)
        return Piece(found.bodies, start + found.end, damaged=not found.bodies and len(data) > 0 and not found.short)

    def _first(self, file: int) -> int:
        """The place where the records of a segment begin: behind the words that say what it is."""
        return _beginning(os.pread(file, 256, 0))

    def _reader(self, topic: Topic, number: int) -> int | None:
        found = self._readers.get((topic, number))
        if found is None:
            try:
                found = os.open(self._path(topic, number), os.O_RDONLY)
            except FileNotFoundError:
                return None
            self._readers[topic, number] = found
            if len(self._readers) > _MOST_OPEN:
                os.close(self._readers.popitem(last=False)[1])
        self._readers.move_to_end((topic, number))
        return found

    def drop(self, topic: Topic, number: int, *, damaged: bool = False) -> None:
        opened = self._open.pop((topic, number), None)
        if opened is not None:
            os.close(opened.file)
        reader = self._readers.pop((topic, number), None)
        if reader is not None:
            os.close(reader)
        path = self._path(topic, number)
        with suppress(FileNotFoundError):
            if damaged:
                LOG.warning("a segment of the archive is damaged", extra={"facts": {"file": str(path)}})
                path.rename(path.with_suffix(".damaged"))
            else:
                path.unlink()

    def _path(self, topic: Topic, number: int) -> Path:
        return self._directory / blake2b(topic.encode(), digest_size=12).hexdigest() / f"{number:08d}.log"

    # What the runtime calls

    def flush(self) -> None:
        """Write what the turn has added: records first, then the manifests that speak of them."""
        for opened in self._open.values():
            if opened.fresh:
                self._write(opened)
            if opened.unsynced and self._fsync == "always":
                self._disk.sync(opened.file)
                opened.unsynced = False
        self._flush_manifests()
        if self._secured:
            self._secured = False
            if self._fsync != "never":
                self.sync()

    def _flush_manifests(self) -> None:
        if self._fresh:
            told, self._fresh = self._fresh, []
            self.log.write(_encode(told))
            if self.log.oversized:
                self.log.compact([_encode([_Rules(self._rules)]), *self._all_manifests()])

    def _close_oldest(self) -> None:
        while len(self._open) > _MOST_OPEN:
            _, opened = self._open.popitem(last=False)
            self._write(opened)
            if opened.unsynced and self._fsync != "never":
                self._disk.sync(opened.file)
            os.close(opened.file)

    def _all_manifests(self) -> list[bytes]:
        decode = msgspec.msgpack.Decoder(ArchiveManifest).decode
        return [_encode([_Noted(topic, decode(body))]) for topic, body in sorted(self._manifests.items())]

    def _write(self, opened: _Open) -> None:
        if opened.fresh:
            data, opened.fresh = b"".join(opened.fresh), []
            self._disk.write(opened.file, data)
            opened.unsynced = True

    def sync(self) -> None:
        """Make durable what was written; for `interval`, from time to time."""
        for opened in self._open.values():
            if opened.unsynced:
                self._disk.sync(opened.file)
                opened.unsynced = False
        self.log.sync()

    def close(self) -> None:
        if self.log.is_open:
            self.flush()
            if self._fsync != "never":
                self.sync()
            self.log.close()
            self._let_go()

    def abandon(self) -> None:
        self.log.abandon()
        self._let_go()

    def _let_go(self) -> None:
        for opened in self._open.values():
            os.close(opened.file)
        for reader in self._readers.values():
            os.close(reader)
        self._open.clear()
        self._readers.clear()


def _beginning(data: bytes) -> int:
    """The place of the first record, behind preamble and frame 0; 0 if that is not there."""
    if (other := segments.other_format(data)) is not None:
        raise UsageError(f"archive: written in format {other}; this version reads format {segments.FORMAT}")
    if not data.startswith(segments.PREAMBLE):
        return 0
    return segments.chain(data, len(segments.PREAMBLE), most=1).end
