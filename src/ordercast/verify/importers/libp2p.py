"""Trace events of libp2p pubsub, as its JSON tracer writes them: a line an event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ordercast.trace.store import TraceError
from ordercast.verify.importers.rows import UNSAID, ImportedRows, json_lines, word

if TYPE_CHECKING:
    from pathlib import Path

    from ordercast.verify.load import LoadedTrace

_TYPES = (
    "PUBLISH_MESSAGE", "REJECT_MESSAGE", "DUPLICATE_MESSAGE", "DELIVER_MESSAGE", "ADD_PEER", "REMOVE_PEER", "RECV_RPC",
    "SEND_RPC", "DROP_RPC", "JOIN", "LEAVE", "GRAFT", "PRUNE",
)  # fmt: skip
_FIELDS = {
    "PUBLISH_MESSAGE": ("publish", "publishMessage"),
    "DELIVER_MESSAGE": ("deliver", "deliverMessage"),
    "JOIN": ("subscribe", "join"),
    "LEAVE": ("unsubscribe", "leave"),
}


def read(path: Path) -> LoadedTrace:
    """The events of all peers in a file; those of a peer are in the order of the lines."""
    rows = ImportedRows(path)
    for number, event in json_lines(path):
        where = f"{path}: line {number}"
        peer = word(event.get("peerID"), f"{where}: peerID")
        name = _type(event.get("type"), where)
        time_ns = event.get("timestamp")
        if not isinstance(time_ns, int | None) or isinstance(time_ns, bool):
            raise TraceError(f"{where}: timestamp {time_ns!r} is no number")
        if name not in _FIELDS:
            rows.add(peer, UNSAID, time_ns=time_ns)
            continue
        kind, field = _FIELDS[name]
        about: Any = event.get(field)
        if not isinstance(about, dict):
            raise TraceError(f"{where}: {name} without {field}")
        topic = word(about.get("topic"), f"{where}: topic")
        if kind in ("subscribe", "unsubscribe"):
            rows.add(peer, kind, topic=topic, time_ns=time_ns)
        else:
            msg = word(about.get("messageID"), f"{where}: messageID")
            rows.add(peer, kind, msg, topic=topic, time_ns=time_ns)
    return rows.trace()


def _type(value: Any, where: str) -> str:
    if isinstance(value, int) and 0 <= value < len(_TYPES):
        return _TYPES[value]
    if value in _TYPES:
        return str(value)
    raise TraceError(f"{where}: {value!r} is no type of a trace event")
