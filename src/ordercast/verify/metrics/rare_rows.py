"""Reads the few rows that are neither message nor packet: repairs, detections, faults and places."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from ordercast.trace.schema import INFO_DIGEST
from ordercast.verify.metrics.compose import FAULT_KINDS, MARKS, PLACE_KINDS, TOLD, Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_REPAIR_KINDS = ("repair_start", "repair_end", "crash", "subscribe")


def repairs(rows: Sequence[Row]) -> list[int]:
    """Times from a node's repair_start to its repair_end, per peer it repairs around.

    Starting again before the end is the same repair. A crash of the node itself abandons what it had begun. What
    clients do when they lose their edge broker is no repair, but a failover.
    """
    found: list[int] = []
    for history in _histories(row for row in rows if row["kind"] in _REPAIR_KINDS):
        if any(_names_an_edge(row) for row in history):
            continue
        begun: dict[Any, int] = {}
        for row in history:
            if row["kind"] == "crash":
                begun.clear()
            elif row["kind"] == "repair_start" and row["time_ns"] is not None:
                begun.setdefault(row["peer"], row["time_ns"])
            elif row["kind"] == "repair_end" and _tells_a_place(row) and row["time_ns"] is not None:
                start = begun.pop(row["peer"], None)
                found += [] if start is None else [row["time_ns"] - start]
    return found


def detections(rows: Sequence[Row]) -> list[int]:
    """Times from each crash to the first suspicion of that node, if one comes before it is back."""
    suspected = defaultdict(list)
    for row in rows:
        if row["kind"] == "suspect" and row["time_ns"] is not None:
            suspected[row["peer"]].append(row["time_ns"])
    found = []
    for history in _histories(row for row in rows if row["kind"] in ("crash", "recover")):
        for row, after in zip(history, [*history[1:], None], strict=True):
            if row["kind"] == "crash" and row["time_ns"] is not None:
                back = after["time_ns"] if after is not None else None
                seen = [at for at in suspected[row["node"]] if at >= row["time_ns"] and (back is None or at < back)]
                found += [min(seen) - row["time_ns"]] if seen else []
    return found


def faults(rows: Sequence[Row]) -> list[Row]:
    """The first fault events of the run in time order."""
    return _in_time(row for row in rows if row["kind"] in FAULT_KINDS)[:MARKS]


def told(rows: Sequence[Row]) -> list[Row]:
    """The rows that tell of places and repairs, the first of them, and of each replica its last digest."""
    chosen = {(row["node"], row["seq"]): row for row in _in_time(r for r in rows if r["kind"] in PLACE_KINDS)[:TOLD]}
    last: dict[tuple[str, str | None], Row] = {}
    for row in sorted((row for row in rows if INFO_DIGEST in row["info"]), key=_place):
        last[row["node"], row["topic"]] = row
    chosen.update({(row["node"], row["seq"]): row for row in last.values()})
    return sorted(chosen.values(), key=_place)


def _histories(rows: Iterable[Row]) -> list[list[Row]]:
    """The rows of each node, in its own order."""
    by_node: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=_place):
        by_node[row["node"]].append(row)
    return list(by_node.values())


def _in_time(rows: Iterable[Row]) -> list[Row]:
    return sorted((row for row in rows if row["time_ns"] is not None), key=lambda row: (row["time_ns"], *_place(row)))


def _place(row: Row) -> tuple[str, int]:
    return row["node"], row["seq"]


def _names_an_edge(row: Row) -> bool:
    """Whether a client tells its edge broker by this row."""
    return "broker" in row["info"] or "edge" in row["info"]


def _tells_a_place(row: Row) -> bool:
    """Not only the digest of a replica's state."""
    return INFO_DIGEST not in row["info"] or "parent" in row["info"]
