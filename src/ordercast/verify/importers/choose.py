"""The importers by the names that users give."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ordercast.trace.store import TraceError
from ordercast.verify.importers import cs451, jepsen_kafka, libp2p, otel, shiviz

if TYPE_CHECKING:
    from pathlib import Path

    from ordercast.verify.load import LoadedTrace

_READERS = {
    "cs451": cs451.read,
    "shiviz": shiviz.read,
    "libp2p": libp2p.read,
    "jepsen-kafka": jepsen_kafka.read,
    "otel": otel.read,
}
FORMATS = tuple(_READERS)
PROMISED = {"libp2p": ["integrity", "agreement"]}
"""Checks for formats whose systems promise no order, unless the user asks for others."""


def import_trace(format_: str, path: Path, *, parser: str | None = None) -> LoadedTrace:
    """The trace at `path`, which is in that format; `parser` is the regular expression of a ShiViz log."""
    if format_ not in _READERS:
        raise TraceError(f"unknown format {format_!r} (one of {', '.join(FORMATS)})")
    if not path.exists():
        raise TraceError(f"{path}: no such file or directory")
    if format_ == "shiviz":
        return shiviz.read(path, parser)
    return _READERS[format_](path)
