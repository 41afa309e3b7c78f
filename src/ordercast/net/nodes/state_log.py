"""The log of a node: every input of its machine, in a directory that outlives the process.

    DIR/lock       held by the process that uses the directory
    DIR/<n>.log    one segment: first the state that it begins with, then every input since

    ┌────────────┬───────────┬────────────────────────┬──────┐
    │ length (4) │ crc32 (4) │ crc32 of these two (4) │ body │      one frame; big-endian; the body is msgpack
    └────────────┴───────────┴────────────────────────┴──────┘

A machine is deterministic: who has its inputs has its state. The inputs of one turn of the event loop are one frame and
one write, made before anything that they caused leaves the process. A process that dies in the write leaves a torn last
frame, of which nobody has heard; it is cut off at the next start. A damaged frame with others behind it is an error:
what they caused is known elsewhere. A segment gets its name only when its beginning is on the disk, and the one before
it is removed only after that.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from collections.abc import Hashable
from pathlib import Path
from typing import Any, Literal

import msgspec

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId, Topic
from ordercast.core.machine import Place
from ordercast.core.messages import Guarantee, Message
from ordercast.core.registry import ProtocolInfo
from ordercast.net.brokers.ledger import Disk
from ordercast.overlay.extended import TreePlace

StateFsync = Literal["always", "never"]

VERSION = 3
_SIZES = struct.Struct(">II")
_CHECK = struct.Struct(">I")
_HEADER_BYTES = _SIZES.size + _CHECK.size
_LEAST_BYTES = 1 << 22
"""A log smaller than this is not worth beginning anew: repeating it takes about a second."""


class _Input(msgspec.Struct, frozen=True, array_like=True):
    """Base of what can happen to a machine."""


class Started(_Input, frozen=True, array_like=True, tag=1):
    """The first life begins."""


class Recovered(_Input, frozen=True, array_like=True, tag=2):
    """A further life begins, with what the machine of the one before would have saved."""


class Published(_Input, frozen=True, array_like=True, tag=3):
    topic: Topic
    payload: bytes
    guarantee: Guarantee
    keys: tuple[str, ...]
    dst: tuple[NodeId, ...]


class Received(_Input, frozen=True, array_like=True, tag=4):
    peer: NodeId
    packets: tuple[bytes, ...]


class Fired(_Input, frozen=True, array_like=True, tag=5):
    """A timer has run out."""

    timer: Any


class Suspected(_Input, frozen=True, array_like=True, tag=6):
    peer: NodeId


class Trusted(_Input, frozen=True, array_like=True, tag=7):
    peer: NodeId


class Subscribed(_Input, frozen=True, array_like=True, tag=8):
    topic: Topic


class Unsubscribed(_Input, frozen=True, array_like=True, tag=9):
    topic: Topic


class Joined(_Input, frozen=True, array_like=True, tag=10):
    """The node was told to enter the overlay."""


class Left(_Input, frozen=True, array_like=True, tag=11):
    """The node was told to leave the overlay."""


class Renewed(_Input, frozen=True, array_like=True, tag=12):
    """The machine was replaced by one that has what it saved, and was told that it is back. No life has ended."""


Input = (
    Started | Recovered | Renewed | Published | Received | Fired | Suspected | Trusted | Subscribed | Unsubscribed
    | Joined | Left
)  # fmt: skip


class Whose(msgspec.Struct, frozen=True):
    """Of which node with which protocol a log is; with another one its inputs would mean something else."""

    node: NodeId
    incarnation: int
    protocol: str
    options: str
    around: int
    """Of the overlay and the groups, a checksum."""


class Head(msgspec.Struct, frozen=True):
    """What a segment begins with."""

    whose: Whose
    version: int = VERSION
    saved: bytes = b""
    """What the machine saved; empty: it is as it was built."""
    published: int = 0
    told: int = 0
    """Events that the trace had been told of."""
    delivered: int = 0
    unheard: tuple[Message, ...] = ()
    """The last of the messages delivered: those that the application had not been handed."""
    lives: int = 0


_encoder = msgspec.msgpack.Encoder()
_inputs = msgspec.msgpack.Decoder(list[Input])
_head = msgspec.msgpack.Decoder(Head)


def belongs_to(place: Place, protocol: ProtocolInfo, options: Any) -> Whose:
    around = _encoder.encode(
        [place.neighbours, place.nodes, sorted((place.groups or {}).items()), place.clients, _tree_of(place)]
    )
    described = msgspec.json.encode(options, order="sorted").decode()
    return Whose(place.node, place.incarnation, protocol.name, described, zlib.crc32(around))


def _tree_of(place: Place) -> Any:
    """What lies beneath the links: the same neighbours may be linked by another tree."""
    if not isinstance(place, TreePlace):
        return None
    return place.parent, place.routes.near if place.routes is not None else None


def timer_name(written: Any) -> Hashable:
    """The name of a timer as the machine knows it: what was a tuple comes back from the log as a list."""
    return tuple(map(timer_name, written)) if isinstance(written, list) else written


class StateLog:
    """One node's log. `add` during a turn, `flush` at its end; `begin_again` where it has grown large."""

    def __init__(
        self, directory: Path, whose: Whose, *, fsync: StateFsync = "never", least_bytes: int = _LEAST_BYTES,
        disk: Disk | None = None,
    ) -> None:  # fmt: skip
        self.head = Head(whose)
        self.inputs: list[Input] = []
        """What former lives have left, after the head; emptied by whoever has repeated it."""
        self.has_past = False
        """Whether a life has begun with this state; a process may have died before."""
        self.lives = 0
        """Lives that have begun with this state: what the next one is called where nobody else counts."""
        self.cut_bytes = 0
        """What was torn at the end, and cut off at the start."""
        self.segment_bytes = 0
        self._fsync = fsync
        self._least_bytes = least_bytes
        self._disk = disk or Disk()
        self._directory = directory
        self._fresh: list[Input] = []
        self._failure = ""
        """Why nothing more is written; empty: all is well."""
        self._file = -1
        self._segment = 0
        self._begin_again_at = least_bytes
        self._lock = _locked(directory)
        try:
            self._open(whose)
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def oversized(self) -> bool:
        """Whether it is time to begin anew."""
        return self.segment_bytes > self._begin_again_at

    def add(self, happened: Input) -> None:
        self._fresh.append(happened)

    def begin_life(self) -> None:
        """Put on record that a life begins, before anybody can hear of it."""
        self.add(Recovered() if self.has_past else Started())
        self.lives += 1
        self.flush()

    def flush(self) -> None:
        """One write for all inputs of the turn.

        After an error nothing is written any more: what was torn stays the end of the log, and whoever uses it must
        stop, because nobody may hear of what came after that.
        """
        self._check_whole()
        if not self._fresh:
            return
        data = _frame(_encoder.encode(self._fresh))
        self._fresh = []
        try:
            self._disk.write(self._file, data)
            if self._fsync == "always":
                self._disk.sync(self._file)
        except OSError as error:
            raise self._failed(error) from error
        self.segment_bytes += len(data)

    def begin_again(self, head: Head) -> None:
        """Go on in a new segment that begins with `head`, and forget the old ones."""
        self._check_whole()
        data = _frame(_encoder.encode(head))
        try:
            file = self._new_segment(self._path(self._segment + 1), data)
        except OSError as error:
            raise self._failed(error) from error  # Which segment the next life finds is unknown.
        if self._file >= 0:
            os.close(self._file)
        self._file = file
        self._segment += 1
        self._grow_from(len(data))
        for old in self._segments():
            if old < self._segment:
                self._path(old).unlink()

    def put_off(self) -> None:
        """It cannot begin anew now; it is not worth another try before it has doubled."""
        self._begin_again_at = 2 * self.segment_bytes

    def close(self) -> None:
        if self._file >= 0:
            try:
                if not self._failure:
                    self.flush()
            finally:
                os.close(self._file)
                os.close(self._lock)
                self._file = self._lock = -1

    # Inside

    def _check_whole(self) -> None:
        if self._failure:
            raise OSError(self._failure)

    def _failed(self, error: OSError) -> OSError:
        self._failure = f"{self._path(self._segment)}: {error.strerror or error}; nothing was written to it after that"
        return OSError(self._failure)

    def _new_segment(self, path: Path, data: bytes) -> int:
        unnamed = path.with_suffix(".new")
        file = os.open(unnamed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        try:
            self._disk.write(file, data)
            self._disk.sync(file)
            unnamed.rename(path)
            if self._fsync == "always":
                _sync_directory(self._directory)
        except OSError:
            os.close(file)
            raise
        return file

    def _open(self, whose: Whose) -> None:
        for leftover in self._directory.glob("*.new"):
            leftover.unlink()
        found = self._segments()
        if not found:
            self.begin_again(Head(whose))
            return
        self._segment = found[-1]
        path = self._path(self._segment)
        self.head, self.inputs, whole = _read(path)
        _check_whose(path, self.head, whose)
        self.lives = self.head.lives + sum(isinstance(happened, Started | Recovered) for happened in self.inputs)
        self.has_past = self.lives > 0
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)
        self.cut_bytes = os.fstat(self._file).st_size - whole
        os.ftruncate(self._file, whole)
        self._grow_from(len(_encoder.encode(self.head)))
        self.segment_bytes = whole

    def _grow_from(self, least: int) -> None:
        self.segment_bytes = least
        self._begin_again_at = max(self._least_bytes, 2 * least)

    def _path(self, segment: int) -> Path:
        return self._directory / f"{segment:08d}.log"

    def _segments(self) -> list[int]:
        return sorted(int(path.stem) for path in self._directory.glob("*.log") if path.stem.isdigit())


def _locked(directory: Path) -> int:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise UsageError(f"{directory}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise UsageError(f"{directory}: another process uses this state") from None
    return lock


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _frame(body: bytes) -> bytes:
    sizes = _SIZES.pack(len(body), zlib.crc32(body))
    return sizes + _CHECK.pack(zlib.crc32(sizes)) + body


def _read(path: Path) -> tuple[Head, list[Input], int]:
    """Head, inputs, and how many bytes of the segment are whole."""
    data = path.read_bytes()
    body, start = _body(path, data, 0)
    if body is None:
        raise UsageError(f"{path}: damaged at its beginning")
    try:
        head = _head.decode(body)
        if head.version != VERSION:
            raise UsageError(f"{path}: written by another version ({head.version}; this one reads {VERSION})")
        inputs: list[Input] = []
        while True:
            body, end = _body(path, data, start)
            if body is None:
                return head, inputs, start
            inputs += _inputs.decode(body)
            start = end
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path}: written by another version: {error}") from None


def _body(path: Path, data: bytes, start: int) -> tuple[bytes | None, int]:
    """The body of the frame at `start` and where the next one begins; no body if nothing whole is left.

    A write that was cut short leaves the first bytes of a frame; one that the power failed may leave zeros for others.
    """
    header = data[start : start + _HEADER_BYTES]
    if len(header) < _HEADER_BYTES or not any(header):
        return None, start
    length, crc = _SIZES.unpack_from(header)
    if _CHECK.unpack_from(header, _SIZES.size)[0] != zlib.crc32(header[: _SIZES.size]):
        raise UsageError(f"{path}: damaged at byte {start}")
    end = start + _HEADER_BYTES + length
    body = data[start + _HEADER_BYTES : end]
    if zlib.crc32(body) == crc and len(body) == length:
        return body, end
    if end < len(data):
        raise UsageError(f"{path}: damaged at byte {start}, with {len(data) - end} bytes behind it")
    return None, start


def _check_whose(path: Path, head: Head, whose: Whose) -> None:
    found = head.whose
    if found == whose:
        return
    for name in ("node", "incarnation", "protocol", "options"):
        if getattr(found, name) != getattr(whose, name):
            raise UsageError(f"{path}: {name} is {getattr(found, name)} there and {getattr(whose, name)} here")
    raise UsageError(f"{path}: the overlay or the groups were others when it was written")
