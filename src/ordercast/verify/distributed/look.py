"""From a first look at a run's rows to what every task has to know of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ordercast.trace.store import TraceError
from ordercast.verify.distributed.setup import RARE_SCHEMA, NodeRows, Setup, TaskCut
from ordercast.verify.rows import KIND, MOST_SEQ

if TYPE_CHECKING:
    from ordercast.verify.asked import JudgeOptions
    from ordercast.verify.load import LoadedTrace


class NodeLook(NamedTuple):
    """Sums over the rows of one node."""

    name: str
    hash: int
    rows: int
    end: int
    """The last seq and one."""
    until: int
    """The seq of its last publication and one; 0 for none."""


def setup_of(
    trace: LoadedTrace,
    asked: JudgeOptions,
    looks: list[NodeLook],
    rare: list[dict[str, Any]],
    destinations: set[str],
    cut: TaskCut,
    witnesses: int,
) -> Setup:
    """The setup of a run; `rare` are rows by column name, `trace` has everything but the other rows."""
    by_name = {look.name: look for look in looks}
    groups = asked.groups_of(trace) or {}
    named = set(trace.manifest.nodes) if trace.manifest else set()
    names = sorted({*by_name, *named.union(*groups.values()), *destinations})
    nobody = NodeLook("", 0, 0, 0, 0)
    found = [by_name.get(name, nobody) for name in names]
    if len({look.hash for look in looks}) < len(looks):
        raise TraceError(f"{trace.path}: two names of nodes have the same hash: judge it with --no-spark")
    for look in found:
        if look.end > MOST_SEQ + 1:
            raise TraceError(f"{trace.path}: node {look.name}: seq {look.end - 1} is out of range")
    rows, ends, until = (np.array([look[i] for look in found], np.int64) for i in (2, 3, 4))
    hashes = np.array([look.hash for look in found], np.int64)
    nodes = NodeRows(names, hashes, rows, ends, until)
    return Setup(trace.path, trace.run, trace.manifest, asked, nodes, _rare(rare, names), cut, witnesses, trace.assumed)


def _rare(rows: list[dict[str, Any]], names: list[str]) -> pa.Table:
    number = {name: i for i, name in enumerate(names)}
    chosen = sorted(rows, key=lambda row: (number[row["node"]], row["seq"]))
    columns = {
        "node": [number[row["node"]] for row in chosen],
        "seq": [row["seq"] for row in chosen],
        "kind": [KIND[row["kind"]] for row in chosen],
        "time_ns": [row["time_ns"] for row in chosen],
        "topic": [row["topic"] for row in chosen],
        "info": [_pairs(row["info"]) for row in chosen],
    }
    return pa.table(columns, schema=RARE_SCHEMA)


def _pairs(info: Any) -> list[tuple[str, str]] | None:
    if info is None:
        return None
    return list(info.items()) if isinstance(info, dict) else list(info)
