"""Wounded positions and archives: a reader is told, a broker starts, and nothing is read that nobody wrote."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from ordercast.api import Position
from ordercast.broker.archive.segment_map import Unavailable
from ordercast.broker.archive.topic_archive import TopicArchive
from ordercast.client.history import HistoryRead, at
from ordercast.core.errors import UsageError
from ordercast.core.ids import Origin, Topic
from ordercast.core.messages import Guarantee
from ordercast.core.wire import NOT_DECODABLE
from ordercast.net.brokers.archive import ArchiveFiles
from ordercast.net.log import segments
from ordercast.pubsub.publications import Publication
from tests.fuzz.engine import Target

_TOPIC = Topic("t")
_ANN = Origin("ann~1.7.0.b1")
_MARKER = 77


@cache
def _desk() -> Path:
    path = Path(tempfile.mkdtemp(prefix="ordercast-kept-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


# Positions


def _positions() -> list[bytes]:
    cuts = ({}, {_TOPIC: {_ANN: 3}}, {_TOPIC: {_ANN: 3, Origin("bob~9"): 1 << 40}, Topic("u"): {_ANN: 1}})
    return [str(Position(cut)).encode() for cut in cuts]


def _parse(data: bytes) -> None:
    """What is taken says the same when it is printed and read again."""
    position = Position.parse(data.decode("utf-8", "replace"))
    assert Position.parse(str(position)) == position
    repr(position)


# Archives


def _entry(number: int) -> Publication:
    return Publication(_ANN, number, _TOPIC, b"x" * number, Guarantee.CAUSAL, (f"k{number % 3}",))


@cache
def _written() -> tuple[Path, Path]:
    """A broker's directory with an archive of one sealed segment and one that is being written; and the sealed one."""
    path = _desk() / "seed"
    files = ArchiveFiles(path, fsync="never")
    archive = TopicArchive(_TOPIC, files)
    for first in range(1, 40, 4):
        files.segment_size = 600  # type: ignore[misc]
        archive.append([_entry(number) for number in range(first, first + 4)])
    files.flush()
    files.close()
    return path, min(path.glob("archive/*/*.log"))


def _segments() -> list[bytes]:
    path, _ = _written()
    return [file.read_bytes() for file in sorted(path.glob("archive/*/*.log")) if file.parent.name != "index"]


def _records() -> list[bytes]:
    _, sealed = _written()
    return [record.body for record in segments.read(sealed.read_bytes()).records][-3:]


def _in_the_place(*, last: bool) -> Callable[[bytes], None]:
    """The bytes as the first segment, which is sealed, or as the one that was being written."""

    def decode(data: bytes) -> None:
        path = _desk() / "tried"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(_written()[0], path)
        found = sorted(file for file in path.glob("archive/*/*.log") if file.parent.name != "index")
        (found[-1] if last else found[0]).write_bytes(data)
        _read_all(path)

    return decode


def _read_all(path: Path) -> None:
    files = ArchiveFiles(path, fsync="never")
    try:
        archive = TopicArchive(_TOPIC, files, files.saved().get(_TOPIC))
        for number in [info.number for info in archive.manifest.segments]:
            place: tuple[int, int] | None = (number, 0)
            with suppress(Unavailable):
                while place is not None:
                    _, place = archive.read(place)
        archive.at_time(0)
        archive.append([_entry(1000)])
        archive.keys_of_the_rest()
    finally:
        files.abandon()


def _record_on_disk(data: bytes) -> None:
    """The bytes as a record whose checksum is right: another version, or a disk that lies, wrote it."""
    _in_the_place(last=True)(segments.begun(_MARKER, "archive", []) + segments.frame(_MARKER, 1, data))


def _piece(data: bytes) -> None:
    """The bytes as a record that a copy hands a reader."""
    read = HistoryRead(1, _TOPIC, at({}), {_ANN: 1000}, None)  # type: ignore[arg-type]
    read.progress = {}
    read.fresh([data])


def kept_targets() -> Iterator[Target]:
    yield Target("positions", _positions, _parse, UsageError, text=True, cases=1500)
    yield Target("archive-segments", _segments, _in_the_place(last=False), cases=100)
    yield Target("archive-segments-in-use", _segments, _in_the_place(last=True), cases=100)
    yield Target("archive-records", _records, _record_on_disk, cases=100)
    yield Target("archive-pieces", _records, _piece, *NOT_DECODABLE, cases=1500)
