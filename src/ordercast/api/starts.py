"""Parses where to begin in the past (`earliest`, a time, a position, the last n), as people write it."""

from __future__ import annotations

import datetime as dt

from ordercast.api.position import Position
from ordercast.core.errors import UsageError


def parsed_start(said: str) -> str | Position | dt.datetime:
    """`earliest`, `last-of-each-key`, a position, or a time (of this machine's zone unless it names one)."""
    if said in ("now", "earliest", "last-of-each-key"):
        return said
    if said.startswith("cut"):
        return Position.parse(said)
    try:
        return dt.datetime.fromisoformat(said).astimezone()
    except ValueError:
        known = "earliest, last-of-each-key, a time such as 2026-11-16T10:00, or a position"
        raise UsageError(f"from: {said[:40]!r} is none of {known}") from None
