"""From the journals of all processes to one run: written as a run directory, or read where they lie."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from ordercast.trace.arrow_schema import EVENT_SCHEMA
from ordercast.trace.journal import Row, read_journal
from ordercast.trace.schema import (
    COLUMNS,
    EVENTS,
    INFO_BOOT,
    INFO_END,
    INFO_ORDER_SCOPE,
    INFO_STATE,
    JOURNAL_END,
    JOURNAL_SUFFIX,
    JOURNALS,
    STATE_LOST,
)
from ordercast.trace.store import Manifest, TraceError, is_run, read_manifest

if TYPE_CHECKING:
    from ordercast.core.ids import NodeId
    from ordercast.trace.writer import RunWriter

_BATCH = 1 << 16
_values = attrgetter(*(name for name, _, _ in COLUMNS if name not in ("run", "node", "seq")))


class JournalLife(msgspec.Struct):
    """One process's time as a node."""

    journal: Path
    killed_ns: int | None = None
    """When it was killed, counted like the journal's times; None: it ended in peace."""


def collect(run_id: str, lives: dict[NodeId, list[JournalLife]], writer: RunWriter) -> Counter[str]:
    """Write every node's history, life after life; how many events of each kind there were."""
    kinds: Counter[str] = Counter()
    batch: list[tuple[Any, ...]] = []
    for node, its_lives in lives.items():
        for seq, row in enumerate(_history(its_lives)):
            kinds[row.kind] += 1
            batch.append(_event(run_id, node, seq, row))
            if len(batch) >= _BATCH:
                writer.write(batch)
                batch = []
    writer.write(batch)
    return kinds


def _event(run_id: str, node: str, seq: int, row: Row) -> tuple[Any, ...]:
    kind, *values, info = _values(row)
    return (run_id, node, seq, kind, *values, sorted(info.items()) if info else None)


def _history(lives: list[JournalLife]) -> Iterator[Row]:
    """The rows of all lives in order; a killed one ends with the crash that it could not record itself."""
    for life in lives:
        if life.journal.exists():
            yield from read_journal(life.journal)
        if life.killed_ns is not None:
            yield Row("crash", life.killed_ns)


def has_journals(run: Path) -> bool:
    """Whether the events of `run` are still in the journals of its processes."""
    return not (run / EVENTS).is_dir() and any((run / JOURNALS).glob(f"*{JOURNAL_SUFFIX}"))


def describe_run(run: Path) -> tuple[Manifest, str]:
    """The manifest of `run`, or for journals without one what a run of brokers would say; and what was assumed."""
    return (read_manifest(run), "") if is_run(run) or not has_journals(run) else _assumed(run)


def journal_tables(run: Path, run_id: str) -> Iterator[pa.Table]:
    """All events of the journals of `run`, in bounded parts."""
    for node, journals in _journals(run).items():
        history = _merged(journals)
        seq = 0
        while rows := list(islice(history, _BATCH)):
            yield _table(run_id, node, seq, rows)
            seq += len(rows)


def _table(run_id: str, node: str, seq: int, rows: list[Row]) -> pa.Table:
    """Column by column, for rows of one node: a million rows should take a second or two."""
    size = len(rows)
    columns: dict[str, Any] = {
        "run": pa.repeat(pa.scalar(run_id, pa.string()), size),
        "node": pa.repeat(pa.scalar(node, pa.string()), size),
        "seq": pa.array(range(seq, seq + size), type=pa.int64()),
    }
    for field in EVENT_SCHEMA:
        if field.name not in columns:
            values = list(map(attrgetter(field.name), rows))
            if field.name == "info":
                values = [sorted(info.items()) if info else None for info in values]
            empty = values.count(None) == size
            columns[field.name] = pa.nulls(size, field.type) if empty else pa.array(values, type=field.type)
    return pa.table(columns, schema=EVENT_SCHEMA)


def _journals(run: Path) -> dict[str, list[Path]]:
    """The journals by node, each node's in the order of its lives."""
    found: dict[str, dict[int, Path]] = {}
    for path in sorted((run / JOURNALS).glob(f"*{JOURNAL_SUFFIX}")):
        name, _, life = path.name.removesuffix(JOURNAL_SUFFIX).rpartition(".")
        if not name or not life.isascii() or not life.isdigit():
            raise TraceError(f"{path}: a journal is called NAME.LIFE{JOURNAL_SUFFIX}")
        if int(life) in found.setdefault(name, {}):
            raise TraceError(f"{path}: {name} has another journal of life {int(life)}")
        found[name][int(life)] = path
    return {name: [lives[life] for life in sorted(lives)] for name, lives in found.items()}


def _merged(journals: Sequence[Path]) -> Iterator[Row]:
    """The history of one node: without a word at its end a life ended in a crash; every later one begins with recover.

    A life without a row has left no trace and is passed over. A member whose life ended in good order, and that did not
    come back with its state, stayed to the end of its run.
    """
    before: Row | None = None
    member = False
    for journal in journals:
        last: Row | None = None
        for row in read_journal(journal):
            if last is None and before is not None:
                lost = (row.info or {}).get(INFO_STATE, STATE_LOST) == STATE_LOST
                yield from _last_word(before, member=member and lost)
                yield from _recovery(row)
                member = member and not lost
            last = row
            if row.kind != JOURNAL_END:
                yield row
            member = row.kind != "leave" and (member or row.kind == "subscribe")
        before = last or before
    if before is not None:
        yield from _last_word(before, member=member)


def _recovery(first: Row) -> Iterator[Row]:
    """The row with which a later life begins, if it does not say so itself."""
    if first.kind != "recover":
        state = (first.info or {}).get(INFO_STATE, STATE_LOST)
        yield Row("recover", first.time_ns, info={INFO_STATE: state})


def _last_word(last: Row, *, member: bool) -> Iterator[Row]:
    """The row with which a life ended, if it does not say so itself; the mark of a good end is no event."""
    if last.kind == JOURNAL_END and member:
        yield Row("leave", last.time_ns, info={INFO_END: "true"})
    elif not _ended(last):
        yield Row("crash", last.time_ns)


def _ended(last: Row) -> bool:
    return last.kind in (JOURNAL_END, "leave", "crash")


def _assumed(run: Path) -> tuple[Manifest, str]:
    """A manifest from the journals of a run of brokers, where nobody wrote one."""
    journals = _journals(run)
    firsts = [_first_info(path) for paths in journals.values() for path in paths]
    told = [info for info in firsts if info is not None]
    boots = {info.get(INFO_BOOT, "") for info in told}
    scopes = {info[INFO_ORDER_SCOPE] for info in told if INFO_ORDER_SCOPE in info}
    manifest = Manifest(
        run_id=run.resolve().name,
        protocol="broker",
        guarantee="mixed",
        scope="topic",
        order_scope="key" if "key" in scopes else "session",
        nodes=sorted(journals),
        clock="global" if len(boots) == 1 and "" not in boots else "local",
        uniform=False,
        leavers_pass_on=True,
    )
    chosen = ("protocol", "guarantee", "scope", "order_scope", "clock")
    words = ", ".join(f"{name} {getattr(manifest, name)}" for name in chosen)
    return manifest, f"no run.json: {words}; a process without a last word crashed"


def _first_info(path: Path) -> dict[str, str] | None:
    """The extra content of a journal's first row; None if there is no row."""
    first = next(read_journal(path), None)
    return None if first is None else first.info or {}
