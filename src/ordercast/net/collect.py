"""From the journals of all processes to one run directory that the judge reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from ordercast.core.ids import NodeId
from ordercast.net.journal import Row, read_journal
from ordercast.trace.schema import COLUMNS
from ordercast.trace.store import RunWriter

_BATCH = 1 << 16
_values = attrgetter(*(name for name, _, _ in COLUMNS if name not in ("run", "node", "seq")))


class Life(msgspec.Struct):
    """One process's time as a node."""

    journal: Path
    killed_ns: int | None = None
    """When it was killed, counted like the journal's times; None: it ended in peace."""


def collect(run_id: str, lives: dict[NodeId, list[Life]], writer: RunWriter) -> Counter[str]:
    """Write every node's history, life after life; how many events of each kind there were."""
    kinds: Counter[str] = Counter()
    batch: list[tuple[Any, ...]] = []
    for node, its_lives in lives.items():
        for seq, row in enumerate(_history(its_lives)):
            kinds[row.kind] += 1
            kind, *values, info = _values(row)
            batch.append((run_id, node, seq, kind, *values, sorted(info.items()) if info else None))
            if len(batch) >= _BATCH:
                writer.write(batch)
                batch = []
    writer.write(batch)
    return kinds


def _history(lives: list[Life]) -> Iterator[Row]:
    """The rows of all lives in order; a killed one ends with the crash that it could not record itself."""
    for life in lives:
        if life.journal.exists():
            yield from read_journal(life.journal)
        if life.killed_ns is not None:
            yield Row("crash", life.killed_ns)
