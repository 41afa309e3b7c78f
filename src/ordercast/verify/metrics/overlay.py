"""Metrics of a tree of brokers and its clients: places, repairs and failovers, from the few rows that tell.

A broker tells its parent on `join` and `repair_end` rows, a client its edge broker on `subscribe` and `repair_end`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from ordercast.trace.schema import INFO_END
from ordercast.verify.metrics.values import QUANTILES, Distribution, MeasuredRepair, ReplicaDigest, Topology

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_FAULTS = ("crash", "suspect", "repair_start")
_EDGE = ("broker", "edge")
_MS = 1e-6
_S = 1e-9
SYNCHRONISED = "synchronised"


class ToldOfTree(NamedTuple):
    """A row that is neither message nor packet. `info` is never None."""

    node: str
    seq: int
    kind: str
    time_ns: int
    topic: str | None
    peer: str | None
    info: dict[str, str]


def clients_of(rows: Iterable[ToldOfTree]) -> set[str]:
    """The nodes that name an edge broker."""
    return {row.node for row in rows if _edge(row)}


def repairs_of(rows: Sequence[ToldOfTree], first_ns: int) -> list[MeasuredRepair]:
    """Every repair and failover that was begun, by start and node; a crash of the node itself abandons it."""
    clients = clients_of(rows)
    found: list[MeasuredRepair] = []
    last: dict[str, MeasuredRepair] = {}
    for row in sorted(rows, key=lambda row: (row.node, row.seq)):
        repair = last.get(row.node)
        if row.kind == "repair_start" and (repair is None or repair.attached_ms is not None):
            start_s = (row.time_ns - first_ns) * _S
            lost = row.info.get("lost") or row.peer or ""
            repair = MeasuredRepair(row.node, row.node in clients, lost, start_s, row.time_ns)
            last[row.node] = repair
            found.append(repair)
        elif row.kind == "repair_end" and repair is not None and not _only_digest(row):
            _end(repair, row)
        elif row.kind == "crash":
            last.pop(row.node, None)
    return sorted(found, key=lambda repair: (repair.start_s, natural(repair.node)))


def _only_digest(row: ToldOfTree) -> bool:
    """A row that carries the state of a replica, and says nothing of its place."""
    return "digest" in row.info and "parent" not in row.info and not _edge(row)


def _end(repair: MeasuredRepair, row: ToldOfTree) -> None:
    """Attached first, synchronised later; the row that says so tells what it took."""
    took_ms = (row.time_ns - repair.start_ns) * _MS
    if row.info.get("phase") == SYNCHRONISED:
        repair.synchronised_ms = took_ms if repair.synchronised_ms is None else repair.synchronised_ms
        return
    if repair.attached_ms is not None:
        return
    repair.attached_ms = took_ms
    repair.parent = _edge(row) or row.info.get("parent", "")
    repair.role = row.info.get("role", "")
    repair.term = row.info.get("term", "")
    repair.rounds = _number(row.info.get("rounds"))
    repair.election_ms = _number(row.info.get("election_ms"))


def topology_of(rows: Sequence[ToldOfTree], *, one_clock: bool) -> Topology | None:
    """The tree before the first fault and at the end; None if no broker told its place."""
    in_order = sorted(rows, key=lambda row: (row.node, row.seq))
    places = [row for row in in_order if "parent" in row.info and not _edge(row)]
    if not places:
        return None
    fault_ns = min((row.time_ns for row in rows if row.kind in _FAULTS), default=None)
    early = [row for row in places if one_clock and fault_ns is not None and row.time_ns < fault_ns]
    # Where nobody can say what came before the first fault, each broker's first word has to do.
    before = {row.node: row.info["parent"] for row in early or reversed(places)}
    edges = [row for row in in_order if _edge(row)]
    first_edges = {row.node: _edge(row) for row in reversed(edges)}
    down = _down(in_order)
    return Topology(
        before=_natural_order(before),
        after=_natural_order({row.node: row.info["parent"] for row in places if row.node not in down}),
        clients_before=_natural_order(first_edges),
        clients_after=_natural_order({row.node: _edge(row) for row in edges if row.node not in down}),
        dead=sorted({row.node for row in places} & down, key=natural),
        repaired=fault_ns is not None,
    )


def _down(in_order: Iterable[ToldOfTree]) -> set[str]:
    """Nodes that crashed and did not come back, or left; not those for which the run ended."""
    down: dict[str, bool] = {}
    for row in in_order:
        if row.kind == "crash" or (row.kind == "leave" and INFO_END not in row.info):
            down[row.node] = True
        elif row.kind in ("recover", "join"):
            down[row.node] = False
    return {node for node, gone in down.items() if gone}


def digests_of(rows: Iterable[ToldOfTree]) -> list[ReplicaDigest]:
    """The last state digest of each node and topic."""
    last = {(row.topic or "", row.node): row.info["digest"] for row in rows if "digest" in row.info}
    return [ReplicaDigest(node, topic, digest) for (topic, node), digest in sorted(last.items())]


def spread_of(values: Sequence[float]) -> Distribution | None:
    """The distribution of a few values, by nearest rank as Spark counts it."""
    if not values:
        return None
    ordered = sorted(values)
    curve = tuple(ordered[max(math.ceil(q * len(ordered)), 1) - 1] for q in QUANTILES)
    at = dict(zip(QUANTILES, curve, strict=True))
    mean = sum(ordered) / len(ordered)
    return Distribution(len(ordered), mean, at[0.5], at[0.9], at[0.99], at[0.999], at[1.0], curve)


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A key that puts b2 before b10."""
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in _split_digits(name))


def _split_digits(name: str) -> list[str]:
    parts: list[str] = []
    for letter in name:
        if parts and letter.isdecimal() == parts[-1][-1].isdecimal():
            parts[-1] += letter
        else:
            parts.append(letter)
    return parts


def _natural_order(places: dict[str, str]) -> dict[str, str]:
    return {name: places[name] for name in sorted(places, key=natural)}


def _edge(row: ToldOfTree) -> str:
    return next((row.info[name] for name in _EDGE if row.info.get(name)), "")


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
