"""The events of one node in one life, as JSON lines that are on their way to the disk before any packet leaves.

A process that is killed leaves a journal that ends with some event: a true prefix of its history. The last line may be
torn; it belongs to a turn of the loop of which nothing had left the process yet. Columns are those of the trace format,
without what the collector knows better: run, node and position.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from ordercast.core.messages import Message, Packet
from ordercast.trace.schema import KINDS

_KINDS = frozenset(KINDS)
_READ_BYTES = 1 << 22


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event. Field names are the trace's column names."""

    kind: str
    time_ns: int
    msg: str | None = None
    topic: str | None = None
    keys: tuple[str, ...] | None = None
    guarantee: str | None = None
    dst: tuple[str, ...] | None = None
    peer: str | None = None
    payload_bytes: int | None = None
    header_bytes: int | None = None
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

    def publish(self, time_ns: int, message: Message) -> None:
        self._rows.append(
            Row(
                "publish", time_ns, message.id, message.topic or None, message.keys or None,
                message.guarantee.label, message.dst or None, payload_bytes=len(message.payload),
            )
        )  # fmt: skip

    def deliver(self, time_ns: int, message: Message) -> None:
        self._rows.append(Row("deliver", time_ns, message.id, message.topic or None, None, message.guarantee.label))

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
        """What was recorded since never happened."""
        del self._rows[mark:]

    def flush(self) -> None:
        if self._rows:
            data = memoryview(_encoder.encode_lines(self._rows))
            self._rows = []
            while data:
                data = data[os.write(self._file, data) :]

    def close(self) -> None:
        if self._file >= 0:
            self.flush()
            os.close(self._file)
            self._file = -1


def read_journal(path: Path) -> Iterator[Row]:
    """The rows of a journal, in bounded memory; a torn last line is no row."""
    rest = b""
    with path.open("rb") as file:
        while block := file.read(_READ_BYTES):
            *lines, rest = (rest + block).split(b"\n")
            yield from map(_decoder.decode, lines)
