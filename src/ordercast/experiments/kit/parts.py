"""Files of a sweep on disk: one per finished configuration, so that an interrupted sweep goes on from there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ordercast.core.errors import UsageError
from ordercast.experiments.kit.study import Row, SweepPoint

PARTS = "parts"


class StudyPart(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one configuration."""

    id: str
    parameters: Row
    result: Row
    seconds: float
    """How long it took; not part of the results, because it differs from run to run."""
    made_by: str = version("ordercast")
    """The release that measured it. Another one may simulate differently, so its parts are not mixed in."""


class StudyParts:
    """The finished configurations in a study's output directory."""

    def __init__(self, out: Path) -> None:
        self._directory = out / PARTS
        with naming_unwritable(out):
            self._directory.mkdir(parents=True, exist_ok=True)

    def forget(self) -> None:
        """Drop every finished configuration."""
        for path in self._directory.glob("*.json"):
            path.unlink()

    def finished(self, configurations: Sequence[SweepPoint]) -> dict[str, StudyPart]:
        """Finished results of `configurations`, by id. A file that does not say what it should is run again."""
        found = {}
        for configuration in configurations:
            part = self._read(configuration)
            if part is not None:
                found[part.id] = part
        return found

    def take_over(self, results: Path, configurations: Sequence[SweepPoint]) -> None:
        """Keep what `results`, the results.parquet of an earlier run somewhere, has of `configurations`.

        A row belongs to a configuration by its id, which tells study, version and parameters. Whatever this directory
        has already stays.
        """
        rows = {row["id"]: row for row in _rows_of(results)}
        there = self.finished(configurations)
        for configuration in configurations:
            row = rows.get(configuration.id)
            if row is not None and configuration.id not in there:
                parameters = configuration.parameters
                result = {name: row[name] for name in row if name != "id" and name not in parameters}
                self.keep(StudyPart(id=configuration.id, parameters=parameters, result=result, seconds=0.0))

    def keep(self, part: StudyPart) -> None:
        with naming_unwritable(self._directory):
            write_atomically(self._path(part.id), encode(part))

    def _read(self, configuration: SweepPoint) -> StudyPart | None:
        try:
            part = msgspec.json.decode(self._path(configuration.id).read_bytes(), type=StudyPart)
        except (OSError, msgspec.DecodeError):
            return None
        expected = (configuration.id, configuration.parameters, version("ordercast"))
        return part if (part.id, part.parameters, part.made_by) == expected else None

    def _path(self, id_: str) -> Path:
        return self._directory / f"{id_}.json"


def _rows_of(results: Path) -> list[Row]:
    try:
        table = pq.read_table(results)
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"{results}: no results of a study can be read from it: {error}") from None
    if "id" not in table.column_names:
        raise UsageError(f"{results}: not the results of a study: it has no column id")
    return table.to_pylist()


def encode(value: object) -> bytes:
    """JSON for people and programs."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def write_atomically(path: Path, content: bytes) -> None:
    """`path` holds its old content or all of the new one, never a part of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing_directory(path: Path) -> Iterator[Path]:
    """An empty directory that takes the place of `path` once it is filled."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        shutil.rmtree(path, ignore_errors=True)
        temporary.replace(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def naming_unwritable(path: Path) -> Iterator[None]:
    """A full disk or a missing right is the user's to mend, so it is named in one line."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from None
