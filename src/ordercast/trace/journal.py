"""The events of one process in one life, as JSON lines that are on their way to the disk before any packet leaves.

A process that is killed leaves a journal that ends with some event: a true prefix of its history. The last line may be
torn; it belongs to a turn of the loop of which nothing had left the process yet. Columns are those of the trace format,
without what the collector knows better: run, node and position. Only a process that ended in good order wrote an `end`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from ordercast.trace.schema import INFO_BOOT, INFO_STATE, JOURNAL_END, JOURNAL_SUFFIX, KINDS
from ordercast.trace.store import NOT_DECODABLE, TraceError

if TYPE_CHECKING:
    from ordercast.core.messages import Message, Packet
    from ordercast.pubsub.publications import Publication

_KINDS = frozenset(KINDS)
_READ_BYTES = 1 << 22
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


_Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]
_Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)]


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event. Field names are the trace's column names."""

    kind: str
    time_ns: _Int64
    msg: str | None = None
    topic: str | None = None
    keys: tuple[str, ...] | None = None
    guarantee: str | None = None
    dst: tuple[str, ...] | None = None
    peer: str | None = None
    payload_bytes: _Int32 | None = None
    header_bytes: _Int32 | None = None
    info: dict[str, str] | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Row)


class Journal:
    """Collects rows during a turn of the loop; `flush` hands them to the operating system in one write."""

    def __init__(self, path: Path, *, packets: bool) -> None:
        self.packets = packets
        """Whether sends and receives are recorded too."""
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._rows: list[Row] = []
        self._begun = False

    def begin(
        self, time_ns: int, *, life: int, state: str | None = None, info: Mapping[str, str] | None = None
    ) -> None:
        """The first row of a life. `state` (kept or lost) is what a later life has of the one before.

        Times of journals with the same boot id come from one clock, if all count from the same moment.
        """
        self._begun = True
        told = {INFO_BOOT: boot_id(), **(info or {})}
        if state is not None:
            told[INFO_STATE] = state
        self.event("recover" if life else "join", time_ns, told)

    def end(self, time_ns: int) -> None:
        """The process ends in good order. What it was a member of it still is: that is not to `leave`.

        A journal without a `begin` says nothing of its end either: whoever started the process knows.
        """
        if self._begun:
            self._rows.append(Row(JOURNAL_END, time_ns))

    def publish(self, time_ns: int, message: Message | Publication, info: dict[str, str] | None = None) -> None:
        self._rows.append(
            Row(
                "publish", time_ns, message.id, message.topic or None, message.keys or None, message.guarantee.label,
                message.dst or None, payload_bytes=len(message.payload), info=info,
            )
        )  # fmt: skip

    def deliver(self, time_ns: int, message: Message | Publication) -> None:
        self._rows.append(Row("deliver", time_ns, message.id, message.topic or None, None, message.guarantee.label))

    def deliver_many(self, time_ns: int, messages: Iterable[Message | Publication]) -> None:
        self._rows += [
            Row("deliver", time_ns, message.id, message.topic or None, None, message.guarantee.label)
            for message in messages
        ]

    def witness_many(self, time_ns: int, messages: Iterable[Publication]) -> None:
        """Deliveries to one who looks on, with their keys: the journals of those who published may be out of reach."""
        self._rows += [
            Row("deliver", time_ns, message.id, message.topic or None, message.keys or None, message.guarantee.label)
            for message in messages
        ]

    def packet(self, kind: str, time_ns: int, peer: str, packet: Packet, wire_bytes: int) -> None:
        """A send or a receive. Control packets carry no message; their info names the packet type."""
        message: Message | None = getattr(packet, packet.carries) if packet.carries else None
        payload = len(message.payload) if message is not None else 0
        self._rows.append(
            Row(
                kind, time_ns, message.id if message is not None else None, peer=peer, payload_bytes=payload,
                header_bytes=wire_bytes - payload,
                info=None if message is not None else {"packet": type(packet).__name__},
            )
        )  # fmt: skip

    def event(self, kind: str, time_ns: int, info: Mapping[str, str] | None = None) -> None:
        """Anything else. Entries of `info` that are columns (`topic`, `peer`) go where they belong."""
        if kind not in _KINDS:
            raise ValueError(f"{kind!r} is not a kind of event")
        rest = dict(info or {})
        topic, peer = rest.pop("topic", None), rest.pop("peer", None)
        self._rows.append(Row(kind, time_ns, topic=topic, peer=peer, info=rest or None))

    def mark(self) -> int:
        """A place to `rewind` to within this turn."""
        return len(self._rows)

    def rewind(self, mark: int) -> None:
        """Drop what was recorded since: it never happened."""
        del self._rows[mark:]

    def flush(self) -> None:
        if self._rows:
            data = memoryview(_encoder.encode_lines(self._rows))
            self._rows = []
            while data:
                data = data[os.write(self._file, data) :]

    @property
    def length(self) -> int:
        """Bytes that were written."""
        return os.fstat(self._file).st_size

    def close(self) -> None:
        if self._file >= 0:
            self.flush()
            os.close(self._file)
            self._file = -1


def journal_path(directory: Path, name: str, life: int) -> Path:
    """The path of the journal of one life of a process, in the journals' directory of a run."""
    return directory / f"{name}.{life}{JOURNAL_SUFFIX}"


def boot_id() -> str:
    """An id of this boot, shared by all processes with its monotonic clock; empty where there is no telling."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def record_crash(path: Path, time_ns: int) -> None:
    """Record the time of a kill for a process that could not do so itself; its last row may be long before."""
    with path.open("r+b") as file:
        whole = file.read().rfind(b"\n") + 1
        file.seek(whole)
        file.truncate()
        file.write(_encoder.encode_lines([Row("crash", time_ns)]))


def read_journal(path: Path) -> Iterator[Row]:
    """The rows of a journal, in bounded memory; a torn last line is no row. A damaged line is named by its number."""
    rest = b""
    number = 0
    try:
        with path.open("rb") as file:
            while block := file.read(_READ_BYTES):
                *lines, rest = (rest + block).split(b"\n")
                for line in lines:
                    number += 1
                    yield _decoder.decode(line)
    except NOT_DECODABLE as error:
        raise TraceError(f"{path}:{number}: {error}") from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
