"""ShiViz logs: events with the host and its vector clock, read by a regular expression; and traces as such logs.

An event's text says what happened: `publish m1`, `deliver m1`; others count in the host's history and mean nothing. A
log in other words is read by an expression with groups for the ids, `publish` and `deliver`. A host's own entry in its
clock is its place in that history; not every event need be in the log.
"""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from ordercast.trace.store import TraceError
from ordercast.verify.importers.rows import UNSAID, ImportedRows, decoded, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ordercast.verify.load import LoadedTrace

PARSER = r"(?P<host>\S*) (?P<clock>\{.*\})\n(?P<event>.*)"
"""What ShiViz takes for granted if a log says nothing else."""
_MEANING = re.compile(r"(?P<kind>publish|broadcast|deliver)\w*[\s:]+(?P<msg>\S+)", re.IGNORECASE)
_IDS = ("publish", "deliver")
TOPIC = "log"


def read(path: Path, parser: str | None = None) -> LoadedTrace:
    """The log in a file. `parser` has the groups host, clock and event, and may have publish and deliver for the ids.

    `(?<host>` is understood, too.
    """
    try:
        pattern = re.compile(re.sub(r"\(\?<(?=\w)", "(?P<", parser or PARSER), re.MULTILINE)
    except re.error as error:
        raise TraceError(f"--parser: {error}") from None
    named = set(pattern.groupindex)
    if not {"host", "clock"} <= named or not named & {"event", *_IDS}:
        raise TraceError("--parser: it needs the groups host, clock and event; or publish and deliver instead of event")
    events = [_event(path, found) for found in pattern.finditer(text_of(path))]
    if not events:
        raise TraceError(f"{path}: no event of the form {pattern.pattern!r}")
    rows = ImportedRows(path)
    last: dict[str, int] = {}
    for host, place, kind, message in sorted(events, key=lambda event: event[:2]):
        if place == last.get(host):
            raise TraceError(f"{path}: two events of {host} have the time {place}")
        last[host] = place
        if kind == "deliver":
            rows.add(host, kind, message)
        elif kind:
            rows.add(host, "publish", message, topic=TOPIC)
        else:
            rows.add(host, UNSAID)
    how = "that the expression names" if named & set(_IDS) else "that begins with publish or deliver and an id"
    return rows.trace(f"an event {how} is one")


def _event(path: Path, found: re.Match[str]) -> tuple[str, int, str, str]:
    """Host, place in its history, what happened and the message; nothing happened in an event of other words."""
    host = found["host"]
    clock = decoded(found["clock"], f"{path}: clock of {host}")
    place = clock.get(host)
    if not isinstance(place, int) or place < 1:
        raise TraceError(f"{path}: the clock {found['clock'][:40]} lacks its own host {host}")
    said = found.groupdict()
    for kind in _IDS:
        if said.get(kind):
            return host, place, kind, said[kind]
    meant = None if said.keys() & set(_IDS) else _MEANING.match(said["event"].strip())
    return (host, place, meant["kind"].lower(), meant["msg"]) if meant else (host, place, "", "")


def log_of(trace: LoadedTrace) -> Iterator[str]:
    """A trace as a ShiViz log, for PARSER: an event a publication or delivery, with the clock rebuilt."""
    rows: list[dict[str, Any]] = trace.table.select(["node", "seq", "kind", "msg"]).to_pylist()
    waiting: dict[str, deque[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: (row["node"], row["seq"])):
        if row["kind"] in ("publish", "deliver"):
            waiting.setdefault(row["node"], deque()).append(row)
    to_come = {row["msg"] for row in rows if row["kind"] == "publish"}
    clocks: dict[str, dict[str, int]] = {node: {} for node in waiting}
    published: dict[str, dict[str, int]] = {}
    parked: dict[str, list[str]] = {}
    able = deque(waiting)
    while able or parked:
        if not able:  # They wait for each other: one delivers before the publication, and knows nothing of it.
            message = min(parked)
            able.extend(parked.pop(message))
            to_come.discard(message)
        node = able.popleft()
        for row in _until_parked(node, waiting[node], published, to_come, parked):
            if row["kind"] == "publish":
                able.extend(parked.pop(row["msg"], []))
            yield _entry(row, clocks[node], published)


def _until_parked(
    node: str, rows: deque[dict[str, Any]], published: dict[str, Any], to_come: set[str], parked: dict[str, list[str]]
) -> Iterator[dict[str, Any]]:
    """The rows of a node up to a delivery of what is yet to be published."""
    while rows:
        message = rows[0]["msg"]
        if rows[0]["kind"] == "deliver" and message in to_come and message not in published:
            parked.setdefault(message, []).append(node)
            return
        yield rows.popleft()


def _entry(row: dict[str, Any], clock: dict[str, int], published: dict[str, dict[str, int]]) -> str:
    node, message = row["node"], row["msg"]
    if row["kind"] == "deliver":
        for other, count in published.get(message, {}).items():
            clock[other] = max(clock.get(other, 0), count)
    clock[node] = clock.get(node, 0) + 1
    if row["kind"] == "publish":
        published.setdefault(message, dict(clock))
    return f"{node} {msgspec.json.encode(clock).decode()}\n{row['kind']} {message}\n"
