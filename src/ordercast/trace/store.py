"""A run directory on disk and its manifest, read with every field checked. `writer` writes it."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import msgspec

from ordercast.trace.schema import EVENTS, FORMAT, MANIFEST

NOT_DECODABLE = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
"""What decoders raise about bytes that anybody may have written: their own errors, those of text, numbers, nesting."""

_PIECE = 1 << 20


class TraceError(Exception):
    """A trace that cannot be read or written as it should be; the message names the file and what is wrong."""


class Manifest(msgspec.Struct, kw_only=True):
    """run.json: what the run was and what it claims."""

    format: int = FORMAT
    run_id: str
    protocol: str
    guarantee: str
    """What the run claims: a guarantee's name, or `mixed`."""
    scope: str = "global"
    """Of causal order: `topic` or `global`."""
    order_scope: str = "session"
    """Of program order: all that one publisher published (`session`), or only what shares a key (`key`)."""
    seed: int = 0
    scenario: str = ""
    nodes: list[str] = []
    groups: dict[str, list[str]] | None = None
    """Topic to members, where static. None: membership is in the events."""
    version: str = ""
    clock: str = "local"
    """`global`: all time_ns come from one clock (virtual, or one machine's), so a subscription can be dated by it."""
    drained: bool | None = None
    """Whether the run ended with a fault-free drain that came to rest. None: nobody says."""
    genuine: bool = False
    """Whether it claims that only the publisher and the destinations of a message take part."""
    uniform: bool = True
    """Whether what a node that died had delivered is owed to all. False: only what the living delivered is."""
    leavers_pass_on: bool = False
    """Where agreement is not uniform: whether what a node that left had delivered is owed to all the same."""
    claims: list[str] = []
    """Checks that the run claims beyond what its guarantees oblige it to, such as `total-topic`."""
    records: str = "all"
    """`all` events, or only those of the application (`app`: no send, receive, drop)."""
    faults: dict[str, int] = {}
    """Faults that fired, by kind."""
    totals: dict[str, int] = {}
    """Counters of the whole run (hops, bytes, ...), also where `records` left the rows out."""
    options: dict[str, Any] = {}
    crc32: dict[str, int] = {}
    """Of each event file, by its name: what its bytes were when it was written."""


def is_run(path: Path) -> bool:
    return (path / MANIFEST).is_file()


def read_manifest(run: Path) -> Manifest:
    """The manifest of `run`, or a TraceError that says what is wrong with it."""
    path = run / MANIFEST
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise TraceError(f"{run}: not a run directory (no {MANIFEST})") from None
    except OSError as error:
        raise TraceError(f"{path}: unreadable manifest: {error}") from None
    return manifest_from(content, str(path))


def manifest_from(content: bytes, path: str) -> Manifest:
    """The manifest that these bytes are; `path` is where they come from."""
    try:
        raw = msgspec.json.decode(content)
    except NOT_DECODABLE as error:
        raise TraceError(f"{path}: unreadable manifest: {error}") from None
    if not isinstance(raw, dict) or not isinstance(raw.get("format"), int):
        raise TraceError(f"{path}: no format number")
    if raw["format"] > FORMAT:
        raise TraceError(f"{path}: format {raw['format']} is newer than {FORMAT}, the newest this program reads")
    try:
        return msgspec.convert(raw, Manifest)
    except msgspec.ValidationError as error:
        raise TraceError(f"{path}: {error}") from None


def crc32_of(path: Path) -> int | None:
    """The checksum of a file's bytes as they are now; None if they cannot be read."""
    crc = 0
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                crc = zlib.crc32(piece, crc)
    except OSError:
        return None
    return crc


def event_files(run: Path) -> list[Path]:
    """The event files of `run` in name order."""
    files = sorted((run / EVENTS).glob("*.parquet"))
    if not files:
        raise TraceError(f"{run / EVENTS}: no *.parquet file")
    return files
