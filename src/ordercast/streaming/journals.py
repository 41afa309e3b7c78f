"""The journals of running processes as a stream of Spark: what each appends comes with the next micro-batch.

Offsets are how many bytes of each journal were read, always whole lines; so a journal may be read again from anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ordercast.core.errors import UsageError
from ordercast.core.wire import NOT_DECODABLE
from ordercast.trace.journal import Row
from ordercast.trace.schema import JOURNAL_END, JOURNAL_SUFFIX, JOURNALS
from ordercast.trace.store import TraceError

SCHEMA = (
    "node string, life bigint, at bigint, kind string, time_ns bigint, msg string, topic string, keys array<string>, "
    "guarantee string, info map<string, string>"
)
MOST_BYTES = 1 << 26
"""Of one journal in one micro-batch."""
_TYPES: list[tuple[str, Any]] = [
    ("node", pa.string()), ("life", pa.int64()), ("at", pa.int64()), ("kind", pa.string()), ("time_ns", pa.int64()),
    ("msg", pa.string()), ("topic", pa.string()), ("keys", pa.list_(pa.string())), ("guarantee", pa.string()),
    ("info", pa.map_(pa.string(), pa.string())),
]  # fmt: skip
_ARROW = pa.schema(_TYPES)
_TAIL = 1 << 16
_decoder = msgspec.json.Decoder(Row)


class JournalsSource(DataSource):
    """`format("ordercast-journals").load(RUN)`: the events of all processes that keep a journal there.

    With the option `remove`, a journal that was read whole and is followed by a later life of its process is removed.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        if not options.get("path"):
            raise UsageError("path: the run directory whose journals are to be read is needed")
        self._directory = Path(options["path"]) / JOURNALS
        self._remove = options.get("remove", "false") == "true"

    @classmethod
    def name(cls) -> str:
        return "ordercast-journals"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> JournalsReader:  # noqa: N802, ARG002
        return JournalsReader(self._directory, remove=self._remove)


class JournalStretch(InputPartition):
    """Some whole lines of one journal."""

    def __init__(self, path: str, start: int, end: int) -> None:
        super().__init__(None)
        self.path, self.start, self.end = path, start, end


class JournalsReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One micro-batch after the other."""

    def __init__(self, directory: Path, *, remove: bool = False) -> None:
        self._directory, self._remove = directory, remove
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = ends_of(self._directory, {}, most=1 << 62)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802, ARG002
        ends = ends_of(self._directory, start, most=MOST_BYTES)
        if self._target is not None:
            ends = {name: min(end, self._target.get(name, 0)) for name, end in ends.items()}
        return {name: ends[name] for name in sorted(ends) if ends[name]}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [
            JournalStretch(str(self._directory / name), start.get(name, 0), stop)
            for name, stop in end.items()
            if stop > start.get(name, 0)
        ]

    def commit(self, end: dict[str, int]) -> None:
        if self._remove:
            for lives in _lives(self._directory).values():
                for path in lives[:-1]:
                    if path.stat().st_size == end.get(path.name):
                        path.unlink()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, JournalStretch)
        yield rows_of(Path(partition.path), partition.start, partition.end)


def ends_of(directory: Path, start: dict[str, int], *, most: int) -> dict[str, int]:
    """Up to where each journal has whole lines, at most so many bytes behind its start.

    A life is read to its end before the next one of that process.
    """
    found: dict[str, int] = {}
    for lives in _lives(directory).values():
        for path in lives:
            begin = start.get(path.name, 0)
            found[path.name] = max(begin, _last_line_end(path, begin, begin + most))
            if path.stat().st_size > begin + most:
                break
    return found


def _lives(directory: Path) -> dict[str, list[Path]]:
    """The journals of each process, one for each of its lives, in their order."""
    found: dict[str, list[tuple[int, Path]]] = {}
    for path in directory.glob(f"*{JOURNAL_SUFFIX}"):
        name, life = _told_by(path)
        found.setdefault(name, []).append((life, path))
    return {name: [path for _, path in sorted(lives)] for name, lives in found.items()}


def _told_by(path: Path) -> tuple[str, int]:
    """The process and its life."""
    name, _, life = path.name.removesuffix(JOURNAL_SUFFIX).rpartition(".")
    return name, int(life) if life.isdecimal() else 0


def _last_line_end(path: Path, begin: int, limit: int) -> int:
    with path.open("rb") as file:
        end = min(file.seek(0, 2), limit)
        while end > begin:
            at = max(begin, end - _TAIL)
            file.seek(at)
            newline = file.read(end - at).rfind(b"\n")
            if newline >= 0:
                return at + newline + 1
            end = at
    return begin


def rows_of(path: Path, start: int, end: int) -> pa.RecordBatch:
    """The events in some whole lines of a journal; a TraceError names one that is none."""
    with path.open("rb") as file:
        file.seek(start)
        data = file.read(end - start)
    name, life = _told_by(path)
    at, places, rows = start, [], []
    for line in data.splitlines(keepends=True):
        try:
            row = _decoder.decode(line)
        except NOT_DECODABLE as error:
            raise TraceError(f"{path}: byte {at}: {error}") from None
        if row.kind != JOURNAL_END:
            places.append(at)
            rows.append(row)
        at += len(line)
    columns: dict[str, Any] = {
        "node": [name] * len(rows), "life": [life] * len(rows), "at": places,
        "kind": [row.kind for row in rows], "time_ns": [row.time_ns for row in rows], "msg": [row.msg for row in rows],
        "topic": [row.topic for row in rows], "keys": [row.keys for row in rows],
        "guarantee": [row.guarantee for row in rows],
        "info": [None if row.info is None else list(row.info.items()) for row in rows],
    }  # fmt: skip
    return pa.RecordBatch.from_pydict(columns, schema=_ARROW)
