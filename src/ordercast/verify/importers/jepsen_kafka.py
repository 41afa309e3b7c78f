"""Histories of queues as Jepsen's kafka workload writes them: sends and polls with offsets, in EDN, one a line.

A key is a topic, and so a total order; the message of a send is its key and its value, which is unique there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ordercast.trace.store import TraceError
from ordercast.verify.importers.edn import EdnError, parse
from ordercast.verify.importers.rows import ImportedRows, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ordercast.verify.load import LoadedTrace

_OURS = {":send", ":poll", ":txn"}
_ASIDE = {":subscribe", ":assign", ":crash", ":debug-topic-partitions"}


def read(path: Path) -> LoadedTrace:
    """The history in a file. Operations of the nemesis are left out; those of other models are refused."""
    ended = [operation for operation in _operations(path) if operation[":type"] != ":invoke"]
    polled = {message for operation in ended for kind, _, message in _steps(operation, path) if kind == "deliver"}
    rows = ImportedRows(path)
    for operation in ended:
        node = f"p{operation[':process']}"
        for kind, key, message in _steps(operation, path):
            certain = operation[":type"] == ":ok"
            # Of a send that nobody answered, it is known that it happened if anybody polled it.
            if kind == "publish" and (certain or (operation[":type"] == ":info" and message in polled)):
                rows.add(node, kind, message, topic=key, guarantee="total")
            elif kind == "deliver" and certain:
                rows.add(node, kind, message)
    return rows.trace("a key is a topic, and who polls any of it is a member")


def _operations(path: Path) -> list[dict[str, Any]]:
    found = []
    for where, operation in _values(path):
        if not isinstance(operation, dict) or not {":type", ":f", ":process"} <= set(operation):
            raise TraceError(f"{where}: not an operation (a map with :type, :process and :f)")
        if isinstance(operation[":process"], int) and operation[":f"] not in _ASIDE:
            if operation[":f"] not in _OURS:
                raise TraceError(
                    f"{where}: {operation[':f']} is of another model; only histories of sends and polls can be judged"
                )
            found.append(operation)
    return found


def _values(path: Path) -> Iterator[tuple[str, Any]]:
    """The values on each line; or, in a file that is one vector, in it."""
    text = text_of(path)
    whole = text.lstrip().startswith("[")
    for number, line in enumerate([text] if whole else text.splitlines(), 1):
        where = str(path) if whole else f"{path}: line {number}"
        if line.strip():
            try:
                value = parse(line)
            except EdnError as error:
                raise TraceError(f"{where}: not EDN: {error}") from None
            yield from ((where, one) for one in (value if whole else [value]))


def _steps(operation: dict[str, Any], path: Path) -> list[tuple[str, str, str]]:
    """The sends and polls of an operation, in its order: what each is, its key and its message."""
    steps: list[tuple[str, str, str]] = []
    if operation[":type"] == ":fail":
        return steps
    value = operation.get(":value")
    for step in value if isinstance(value, list) else []:
        if not isinstance(step, list) or not step:
            raise TraceError(f"{path}: {str(step)[:40]!r} is neither a send nor a poll")
        if step[0] == ":send" and len(step) == 3:
            sent = step[2][-1] if isinstance(step[2], list) and step[2] else step[2]
            steps.append(("publish", str(step[1]), f"{step[1]}:{sent}"))
        elif step[0] == ":poll":
            steps += _polled(step, path)
        else:
            raise TraceError(
                f"{path}: {str(step[0])[:40]} is of another model; only histories of sends and polls can be judged"
            )
    return steps


def _polled(step: list[Any], path: Path) -> list[tuple[str, str, str]]:
    by_key = step[1] if len(step) > 1 else {}
    if not isinstance(by_key, dict):
        raise TraceError(f"{path}: {str(step)[:40]!r} is no poll")
    found = []
    for key, pairs in by_key.items():
        for pair in pairs if isinstance(pairs, list) else [None]:
            if not isinstance(pair, list) or len(pair) != 2:
                raise TraceError(f"{path}: {str(pairs)[:40]!r} are no pairs of offset and value")
            found.append(("deliver", str(key), f"{key}:{pair[1]}"))
    return found
