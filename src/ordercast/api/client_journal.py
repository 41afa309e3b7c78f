"""The trace journal of a client, one file for each run of the program, complete across restarts.

A turn is first made durable in the data directory, then written into the journal, then its packets leave. A client that
is killed in between goes on later with something that its journal has never heard of; its next life adds that.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ordercast.core.errors import UsageError
from ordercast.trace.journal import Journal, journal_path, read_journal
from ordercast.trace.schema import (
    INFO_FILTER,
    INFO_PUBLISHED,
    INFO_STATE,
    JOURNAL_SUFFIX,
    JOURNALS,
    STATE_KEPT,
    STATE_LOST,
)

if TYPE_CHECKING:
    from ordercast.client.ports import SavedClient
    from ordercast.pubsub.publications import Publication


def open_journal(trace: Path, client: str, session: int, kept: SavedClient | None) -> Journal:
    """The journal of the life that begins; `kept` is what it has of the one before, if it is the same session."""
    directory = trace / JOURNALS
    if Path(client).name != client:
        raise UsageError(f"client_id: {client!r} cannot be the name of a journal in {directory}")
    directory.mkdir(parents=True, exist_ok=True)
    lives = _earlier_lives(directory, client)
    life = max([session, *(life + 1 for life in lives)])
    journal = Journal(journal_path(directory, client, life), packets=False)
    now_ns = time.monotonic_ns()
    state = (STATE_KEPT if kept is not None else STATE_LOST) if lives else None
    journal.begin(now_ns, life=int(bool(lives)), state=state)
    if kept is not None and lives:
        _complete(journal, now_ns, [journal_path(directory, client, life) for life in lives], kept)
    return journal


def told_of(entry: Publication) -> dict[str, str]:
    """The extra content of a publication's row: its wall-clock time, and what it carries."""
    told = entry.extras.told() if entry.extras is not None else {}
    return {INFO_PUBLISHED: str(entry.published_ns), **told}


def _earlier_lives(directory: Path, client: str) -> list[int]:
    endings = (
        path.name[len(client) + 1 : -len(JOURNAL_SUFFIX)]
        for path in directory.glob(f"*{JOURNAL_SUFFIX}")
        if path.name.startswith(f"{client}.")
    )
    return sorted(int(ending) for ending in endings if ending.isascii() and ending.isdigit())


def _complete(journal: Journal, now_ns: int, earlier: Sequence[Path], kept: SavedClient) -> None:
    """Record what the last turn of the last life did and had no time to record: all of it is still in `kept`.

    A subscription that was given up and has come back with the state counts again from here.
    """
    known = set()
    subscribed: dict[str | None, bool] = {}
    last_ns = now_ns
    """Of the row after which it had no time to record anything."""
    for row in (row for path in earlier for row in read_journal(path)):
        known.add((row.kind, row.msg))
        last_ns = min(row.time_ns, now_ns)
        if row.kind == "leave" or (row.kind == "recover" and (row.info or {}).get(INFO_STATE) == STATE_LOST):
            subscribed.clear()  # What follows is of another session.
        elif row.kind in ("subscribe", "unsubscribe"):
            subscribed[row.topic] = row.kind == "subscribe"
    for pattern in kept.followed:
        if not subscribed.get(pattern):
            journal.event("subscribe", now_ns, {"topic": pattern, INFO_FILTER: pattern})
    for topic, saved in sorted(kept.topics.items()):
        if saved.receives and saved.granted and not subscribed.get(topic):
            journal.event("subscribe", now_ns, {"topic": topic})
        for entry in saved.outbox:
            if ("publish", entry.id) not in known:
                journal.publish(last_ns, entry, told_of(entry))
        if saved.receives:
            journal.deliver_many(now_ns, [entry for entry in saved.history if ("deliver", entry.id) not in known])
