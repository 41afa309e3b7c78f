"""Logs of broadcast exercises: a file a process, of lines `b SEQ` and `d SENDER SEQ`, as many courses ask for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from ordercast.trace.store import TraceError
from ordercast.verify.importers.rows import ImportedRows, text_of

if TYPE_CHECKING:
    from ordercast.verify.load import LoadedTrace

TOPIC = "broadcast"
_LINE = re.compile(r"b (\d{1,18})|d (\d{1,18}) (\d{1,18})")


def read(path: Path) -> LoadedTrace:
    """The logs in a directory; the number in a file's name is the process."""
    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    rows = ImportedRows(path)
    seen: dict[int, Path] = {}
    for file in files:
        process = _process(file)
        if process is None:
            continue
        if process in seen:
            raise TraceError(f"{file}: {seen[process].name} is of process {process}, too")
        seen[process] = file
        _read_log(file, process, rows)
    if not seen:
        raise TraceError(f"{path}: no log of a process (a file whose name has its number, such as proc01.output)")
    return rows.trace("a process that wrote no log did nothing")


def _process(file: Path) -> int | None:
    number = re.search(r"(\d+)", file.name)
    known = Path(file.name.removesuffix(".gz")).suffix in (".output", ".log", ".txt", ".out", "")
    return int(number[1]) if number and known and not file.name.startswith(".") else None


def _read_log(file: Path, process: int, rows: ImportedRows) -> None:
    for number, line in enumerate(text_of(file).splitlines(), 1):
        found = _LINE.fullmatch(line.strip())
        if found is None and line.strip():
            raise TraceError(f"{file}: line {number}: {line.strip()[:40]!r} is neither 'b SEQ' nor 'd SENDER SEQ'")
        if found is None:
            continue
        if found[1]:
            rows.add(str(process), "publish", f"{process}:{int(found[1])}", topic=TOPIC)
        else:
            rows.add(str(process), "deliver", f"{int(found[2])}:{int(found[3])}")


def read_causes(path: Path) -> dict[str, list[str]]:
    """Localized dependencies: a first line with the number of messages, then `P A B …`: A and B affect P."""
    causes: dict[str, list[str]] = {}
    lines = [line.split() for line in text_of(path).splitlines() if line.strip()]
    if lines and len(lines[0]) == 1 and len(lines) > 1:
        lines = lines[1:]
    for words in lines:
        if not all(word.isdecimal() and len(word) <= 18 for word in words):
            raise TraceError(f"{path}: {' '.join(words)[:40]!r} is not a line of numbers of processes")
        causes[str(int(words[0]))] = [str(int(word)) for word in words[1:]]
    if not causes:
        raise TraceError(f"{path}: names no process")
    return causes
