"""From paths to traces: our run directories, and event files that others wrote. Bad input is named in one line."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordercast.trace.collect import describe_run, has_journals, journal_tables
from ordercast.trace.schema import JOURNALS, KINDS, MANIFEST
from ordercast.trace.store import TraceError, event_files, is_run
from ordercast.verify.arrow import coded, first_line, first_null, taken, where_equal
from ordercast.verify.foreign import GZIP, read_csv, read_json, read_tsv
from ordercast.verify.parquet import Wanted, read_parquet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from ordercast.trace.store import Manifest

REQUIRED = ("node", "seq", "kind", "msg")
OPTIONAL = ("run", "time_ns", "topic", "keys", "guarantee", "dst", "info")
_WORDS = ("run", "node", "kind", "msg", "topic", "guarantee")
_REPEATING = tuple(name for name in _WORDS if name != "msg")
_LISTS = ("keys", "dst")
_WORD = pa.dictionary(pa.int32(), pa.string())
_LIST = pa.list_(pa.string())
_INFO = pa.map_(pa.string(), pa.string())
_TEXTS = {".jsonl": read_json, ".ndjson": read_json, ".json": read_json, ".csv": read_csv, ".tsv": read_tsv}
_PARQUET = ".parquet"
_KNOWN = f"{_PARQUET}, or {', '.join(_TEXTS)}, which may end with {GZIP}"


@dataclass(frozen=True, slots=True)
class LoadedTrace:
    """The events of one run, with every column there and of its right type, and its manifest if it has one."""

    path: str
    run: str
    manifest: Manifest | None
    table: pa.Table
    assumed: str = ""
    """What the trace does not say of itself and was taken for granted, in words."""


def find_runs(path: Path) -> list[Path]:
    """The run directories and event files that `path` stands for; at least one."""
    if path.is_file():
        return [path]
    if is_run(path) or has_journals(path):
        return [path]
    if not path.is_dir():
        raise TraceError(f"{path}: no such file or directory")
    inside = {manifest.parent for manifest in path.rglob(MANIFEST)}
    inside |= {journals.parent for journals in path.rglob(JOURNALS) if has_journals(journals.parent)}
    # What starts with a dot is a run that somebody is still writing.
    found = sorted(run for run in inside if not any(part.startswith(".") for part in run.relative_to(path).parts))
    if not found and event_files_in(path):
        return [path]
    if not found:
        raise TraceError(
            f"{path}: no run in this directory (a run has a {MANIFEST}, or {JOURNALS}/, or is files of events)"
        )
    return found


def event_files_in(directory: Path) -> list[Path]:
    """The files right below a directory that are events by their names, in name order."""
    return sorted(
        file for file in directory.iterdir() if file.is_file() and _kind_of(file) and file.name[0] not in "._"
    )


def _kind_of(file: Path) -> str:
    """The ending that says how to read a file; empty if none does."""
    name = file.name.lower()
    ending = file.with_name(name.removesuffix(GZIP)).suffix if name.endswith(GZIP) else file.suffix.lower()
    known = ending in _TEXTS or (ending == _PARQUET and not name.endswith(GZIP))
    return ending if known else ""


def load(path: Path) -> Iterator[LoadedTrace]:
    """Every run in `path`, one at a time, so that only one is in memory."""
    for found in find_runs(path):
        yield from load_run(found)


def load_run(path: Path) -> Iterator[LoadedTrace]:
    """The run in one directory, or the runs in one event file, or in a directory of such files."""
    if path.is_dir() and not is_run(path) and not has_journals(path):
        yield from _one_trace([(file, _read_events(file)) for file in event_files_in(path)], path)
        return
    if path.is_dir():
        manifest, assumed = describe_run(path)
        if has_journals(path):
            journals = [_checked(part, path / JOURNALS) for part in journal_tables(path, manifest.run_id)]
            if not journals:
                raise TraceError(f"{path / JOURNALS}: no event in these journals")
            yield LoadedTrace(str(path), manifest.run_id, manifest, _joined(journals), assumed)
            return
        # The manifest has the run's name, and dates matter only where all nodes read one clock.
        without = frozenset({"run"} if manifest.clock == "global" else {"run", "time_ns"})
        parts = (
            _checked(_read_parquet(file, without, manifest.crc32.get(file.name)), file) for file in event_files(path)
        )
        yield LoadedTrace(str(path), manifest.run_id, manifest, pa.concat_tables(parts))
        return
    yield from _one_trace([(path, _read_events(path))], path)


def _read_events(file: Path) -> pa.Table:
    kind = _kind_of(file)
    if not kind:
        raise TraceError(f"{file}: not a trace (expected a run directory, {_KNOWN})")
    return _read_parquet(file) if kind == _PARQUET else _TEXTS[kind](file)


_BY_PLACE = "events have no seq: those of a node happened in the order of the rows"


def _one_trace(parts: list[tuple[Path, pa.Table]], path: Path) -> Iterator[LoadedTrace]:
    """The events of one or several files. Where none numbers them, their order in the files is their order."""
    by_place = not any("seq" in table.column_names for _, table in parts)
    if by_place:
        places: Counter[tuple[Any, Any]] = Counter()
        parts = [(file, _numbered(table, places)) for file, table in parts]
    table = _joined([_checked(table, file) for file, table in parts])
    for trace in split_runs(table, path):
        yield replace(trace, assumed=_BY_PLACE) if by_place else trace


def _numbered(table: pa.Table, places: Counter[tuple[Any, Any]]) -> pa.Table:
    """With each event's place among those of its run and node, going on from `places`."""
    runs = table.column("run").to_pylist() if "run" in table.column_names else [None] * table.num_rows
    nodes = table.column("node").to_pylist() if "node" in table.column_names else [None] * table.num_rows
    found = []
    for line in zip(runs, nodes, strict=True):
        found.append(places[line])
        places[line] += 1
    return table.append_column("seq", pa.array(found, pa.int64()))


def _joined(parts: Iterable[pa.Table]) -> pa.Table:
    """Parts whose words are numbered each for itself, as one table whose words are numbered once."""
    return pa.concat_tables(parts).unify_dictionaries()


def split_runs(table: pa.Table, path: Path) -> Iterator[LoadedTrace]:
    """One trace for each value in the column `run`; one in all if there is no such column."""
    names, codes = coded(table.column("run"))
    runs = np.unique(codes[codes >= 0])
    if runs.size and (codes < 0).any():
        raise TraceError(f"{path}: row {np.flatnonzero(codes < 0)[0] + 1} has no run, others have")
    if not runs.size:
        yield LoadedTrace(str(path), path.stem, None, table)
    for run in runs:
        chosen = table if runs.size == 1 else taken(table, np.flatnonzero(codes == run))
        yield LoadedTrace(str(path), names[int(run)].as_py(), None, chosen)


def normalised(table: pa.Table, where: str) -> pa.Table:
    """`table` with exactly our columns, each of its right type; `where` names it if something is wrong."""
    present = set(table.column_names)
    for name in REQUIRED:
        if name not in present:
            raise TraceError(f"{where}: no column {name}")
    columns: dict[str, Any] = {}
    for name in REQUIRED + OPTIONAL:
        column = table.column(name) if name in present else pa.nulls(table.num_rows)
        columns[name] = _converted(column, name, where)
    for name in ("node", "seq", "kind"):
        if columns[name].null_count:
            raise TraceError(f"{where}: row {first_null(columns[name]) + 1} has no {name}")
    _check_kinds(columns["kind"], where)
    return pa.table(columns)


def _checked(table: pa.Table, path: Path) -> pa.Table:
    return normalised(table, str(path))


def _read_parquet(path: Path, without: frozenset[str] = frozenset(), crc32: int | None = None) -> pa.Table:
    """Only the columns we need, and words that repeat as dictionaries: ten million rows then fit in little memory.

    Message ids repeat too rarely within a row group for that; encoding all of them at once is twice as fast.
    """
    needed = tuple(name for name in REQUIRED + OPTIONAL if name not in without)
    return read_parquet(Wanted(str(path), needed, _REPEATING, OPTIONAL), crc32)


def _converted(column: Any, name: str, where: str) -> Any:
    chunked = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    try:
        if name in _WORDS:
            return _as_words(chunked)
        if name in _LISTS:
            return _as_lists(chunked)
        if name == "info":
            return (
                chunked.cast(_INFO)
                if pa.types.is_map(chunked.type)
                else pa.chunked_array([pa.nulls(len(chunked), _INFO)])
            )
        return chunked.cast(pa.int64())
    except (pa.ArrowException, TypeError) as error:
        raise TraceError(f"{where}: column {name}: {first_line(error)}") from None


def _as_words(column: Any) -> Any:
    if column.type == _WORD:
        return column
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.cast(pa.string()).dictionary_encode()


def _as_lists(column: Any) -> Any:
    """Lists of words; a list that was written as one word is cut at its semicolons."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = pc.split_pattern(column, ";")
    return column.cast(_LIST)


def _check_kinds(kinds: Any, where: str) -> None:
    for kind in pc.unique(kinds).to_pylist():
        if kind not in KINDS:
            row = where_equal(kinds.cast(pa.string()), kind)[0]
            raise TraceError(f"{where}: row {row + 1}: unknown kind {kind!r}")
