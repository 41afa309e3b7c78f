"""Records what machines do as rows of the trace; the only module that knows both machines and traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ordercast.core.messages import Message
from ordercast.trace.schema import KINDS
from ordercast.trace.store import Manifest
from ordercast.trace.writer import RunWriter

_BATCH = 1 << 16
_KINDS = frozenset(KINDS)


class Recorder:
    """Numbers each node's events and hands them to the writer in batches, so that memory stays bounded."""

    def __init__(self, writer: RunWriter, run_id: str, *, packets: bool) -> None:
        self.packets = packets
        """Whether sends, receives and drops are recorded too."""
        self._writer = writer
        self._run = run_id
        self._rows: list[tuple[Any, ...]] = []
        self._next: dict[str, int] = {}

    def publish(self, node: str, time_ns: int, message: Message) -> None:
        self._row(
            node,
            "publish",
            time_ns,
            message.id,
            message.topic or None,
            message.keys or None,
            message.guarantee.label,
            message.dst or None,
            payload_bytes=len(message.payload),
        )

    def deliver(self, node: str, time_ns: int, message: Message) -> None:
        self._row(node, "deliver", time_ns, message.id, message.topic or None, None, message.guarantee.label)

    def packet(
        self,
        kind: str,
        node: str,
        time_ns: int,
        peer: str,
        msg: str | None,
        payload_bytes: int,
        header_bytes: int,
        info: list[tuple[str, str]] | None,
    ) -> None:
        """A send, receive or drop. Control packets carry no message; their info names the packet type."""
        self._row(
            node,
            kind,
            time_ns,
            msg,
            peer=peer,
            payload_bytes=payload_bytes,
            header_bytes=header_bytes,
            info=info,
        )

    def event(self, kind: str, node: str, time_ns: int, info: Mapping[str, str] | None = None) -> None:
        """Anything else. Entries of `info` that are columns (`topic`, `peer`) go where they belong."""
        if kind not in _KINDS:
            raise ValueError(f"{kind!r} is not a kind of event")
        rest = dict(info or {})
        topic, peer = rest.pop("topic", None), rest.pop("peer", None)
        self._row(node, kind, time_ns, topic=topic, peer=peer, info=sorted(rest.items()) or None)

    def finish(self, manifest: Manifest) -> None:
        self._flush()
        self._writer.finish(manifest)

    def abort(self) -> None:
        self._rows.clear()
        self._writer.abort()

    def _row(
        self,
        node: str,
        kind: str,
        time_ns: int,
        msg: str | None = None,
        topic: str | None = None,
        keys: tuple[str, ...] | None = None,
        guarantee: str | None = None,
        dst: tuple[str, ...] | None = None,
        peer: str | None = None,
        payload_bytes: int | None = None,
        header_bytes: int | None = None,
        info: list[tuple[str, str]] | None = None,
    ) -> None:
        seq = self._next.get(node, 0)
        self._next[node] = seq + 1
        named = (self._run, node, seq, kind, time_ns, msg, topic, keys, guarantee, dst, peer)
        self._rows.append((*named, payload_bytes, header_bytes, info))
        if len(self._rows) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        self._writer.write(self._rows)
        self._rows = []
