"""All rows of a run, sorted by node and by each node's own counting; the first look at whether the trace is whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ordercast.trace.schema import INFO_DIGEST, INFO_LOST, INFO_STATE, KINDS
from ordercast.trace.store import TraceError
from ordercast.verify.arrow import coded, taken, where_equal, whole
from ordercast.verify.kernels.grouping import first_where_falls, group

if TYPE_CHECKING:
    import pyarrow as pa

    from ordercast.verify.kernels.jit import Ints, Offsets
    from ordercast.verify.load import LoadedTrace

KIND = {name: code for code, name in enumerate(KINDS)}
MOST_SEQ = (1 << 31) - 2
_HOLES_NAMED = 3


@dataclass(frozen=True, slots=True)
class Rows:
    """Parallel arrays, one entry a row, sorted. `origin` is the row of the table that an entry came from."""

    table: pa.Table
    nodes: list[str]
    off: Offsets
    """Where each node's rows begin."""
    origin: Offsets
    seq: Ints
    kind: Ints
    msg: Ints
    """Number in `msg_names`; -1 for none."""
    msg_names: pa.Array[Any]
    holes: str

    def of_kind(self, *kinds: str) -> Offsets:
        """Entries of these kinds, in order."""
        wanted = np.zeros(len(KINDS), bool)
        wanted[[KIND[kind] for kind in kinds]] = True
        return np.flatnonzero(wanted[self.kind])

    def node_of(self, entries: Offsets) -> Offsets:
        return np.searchsorted(self.off, entries, side="right") - 1

    def column(self, name: str, entries: Offsets) -> list[Any]:
        """Values of a column of the table. For the few rows that are not publications or deliveries."""
        values: list[Any] = taken(self.table.column(name), self.origin[entries]).to_pylist()
        return values

    def times(self, entries: Offsets, *, missing: int = 0) -> Offsets:
        """The times of entries; `missing` where one has none."""
        times = self.table.column("time_ns").combine_chunks().fill_null(missing)
        return np.asarray(times, dtype=np.int64)[self.origin[entries]]

    def info(self, key: str) -> tuple[Offsets, list[str]]:
        """The entries whose info has `key`, in order, and the values."""
        maps = whole(self.table.column("info"))
        offsets = np.asarray(maps.offsets)
        having = where_equal(maps.keys, key)
        having = having[(having >= offsets[0]) & (having < offsets[-1])]  # A slice shares its neighbours' entries.
        if not having.size:
            return having, []
        row = np.searchsorted(offsets, having, side="right") - 1
        entry_of = np.empty(len(maps), np.int64)
        entry_of[self.origin] = np.arange(len(maps))
        order = np.argsort(entry_of[row], kind="stable")
        return entry_of[row][order], taken(maps.items, having[order]).to_pylist()


def sorted_rows(trace: LoadedTrace, more_nodes: set[str]) -> Rows:
    """Sort the rows of `trace` by node name and seq. `more_nodes` exist even if they have no row."""
    table = trace.table
    node_names, node_codes = coded(table.column("node"))
    used = {node_names[code].as_py() for code in np.unique(node_codes)}
    nodes = sorted(used | more_nodes)
    rank = {name: number for number, name in enumerate(nodes)}
    renumber = np.array([rank.get(name, -1) for name in node_names.to_pylist()], np.int32)
    node = renumber[node_codes] if node_codes.size else node_codes
    seq = np.asarray(table.column("seq").combine_chunks(), dtype=np.int64)
    if seq.size and (seq.min() < 0 or seq.max() > MOST_SEQ):
        worst = int(np.flatnonzero((seq < 0) | (seq > MOST_SEQ))[0])
        raise TraceError(f"{trace.path}: row {worst + 1}: seq {seq[worst]} is out of range")
    off, order = _order(node, seq, len(nodes), nodes, trace.path)
    kind_names, kind_codes = coded(table.column("kind"))
    kinds = np.array([KIND.get(name, -1) for name in kind_names.to_pylist()], np.int32)
    msg_names, msg = coded(table.column("msg"))
    seq = seq[order]
    rows = Rows(
        table=table,
        nodes=nodes,
        off=off,
        origin=order,
        seq=seq.astype(np.int32),
        kind=kinds[kind_codes][order] if kind_codes.size else kind_codes,
        msg=msg[order],
        msg_names=msg_names,
        holes=_holes(seq, off, nodes),
    )
    tagged = rows.of_kind("publish", "deliver")
    without_id = tagged[rows.msg[tagged] < 0]
    if without_id.size:
        first = without_id[0]
        node_name = nodes[int(rows.node_of(first))]
        raise TraceError(
            f"{trace.path}: node {node_name}, seq {rows.seq[first]}: {KINDS[rows.kind[first]]} without msg"
        )
    return rows


def lost_state(rows: Rows) -> Offsets:
    """Entries where a node came back without its state."""
    entries, states = rows.info(INFO_STATE)
    lost = np.array([state == "lost" for state in states], bool)
    return entries[lost & (rows.kind[entries] == KIND["recover"])] if entries.size else entries


def given_up(rows: Rows) -> Offsets:
    """Entries where the overlay had given a node's session up, or it left with something of its own unsent."""
    entries, _ = rows.info(INFO_LOST)
    leaves: Offsets = entries[rows.kind[entries] == KIND["leave"]]
    return leaves


def digests(rows: Rows) -> tuple[Offsets, list[str]]:
    """Entries that carry a digest of the node's state, and the digests."""
    return rows.info(INFO_DIGEST)


def _order(node: Ints, seq: Offsets, count: int, nodes: list[str], path: str) -> tuple[Offsets, Offsets]:
    """Offsets by node and the sorting permutation. Recorders write each node's rows in order, so a sort is rare."""
    off, order = group(node, count)
    if first_where_falls(seq[order], off) >= 0:
        order = np.lexsort((seq, node))
        twice = first_where_falls(seq[order], off)
        if twice >= 0:
            raise TraceError(f"{path}: node {nodes[node[order[twice]]]} has seq {seq[order[twice]]} twice")
    return off, order


class SeqHole(NamedTuple):
    """A node whose history lacks rows: how many, and the first of them."""

    node: str
    lacks: int
    first: int


def _holes(seq: Offsets, off: Offsets, nodes: list[str]) -> str:
    """Which nodes' histories lack rows, in words."""
    return holes_in_words(*holes_in(seq, off, nodes))


def holes_in(seq: Offsets, off: Offsets, nodes: list[str]) -> tuple[list[SeqHole], int]:
    """The first few nodes whose histories lack rows, and how many there are."""
    counts = np.diff(off)
    ends = np.zeros(counts.size, np.int64)
    ends[counts > 0] = seq[off[1:][counts > 0] - 1] + 1
    lacking = np.flatnonzero(ends > counts)
    found = []
    for n in lacking[:_HOLES_NAMED]:
        mine = seq[off[n] : off[n + 1]]
        first = int(np.flatnonzero(mine != np.arange(mine.size))[0])
        found.append(SeqHole(nodes[n], int(ends[n] - counts[n]), first))
    return found, int(lacking.size)


def holes_in_words(holes: list[SeqHole], count: int) -> str:
    """A sentence about the rows that a run says it lacks; empty if it lacks none."""
    if not holes:
        return ""
    parts = [f"node {hole.node} lacks {hole.lacks} (the first is seq {hole.first})" for hole in holes[:_HOLES_NAMED]]
    more = f" and {count - _HOLES_NAMED} more nodes" if count > _HOLES_NAMED else ""
    return f"the trace has holes: {', '.join(parts)}{more}"
