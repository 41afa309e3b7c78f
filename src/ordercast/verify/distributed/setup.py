"""The setup that every stage knows: the run's nodes, how rows are cut into tasks, and the few rows that concern all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ordercast.trace.schema import INFO_STATE, STATE_LOST
from ordercast.verify.distributed.wire import schema_of
from ordercast.verify.load import LoadedTrace
from ordercast.verify.rows import KIND

if TYPE_CHECKING:
    from ordercast.trace.store import Manifest
    from ordercast.verify.asked import JudgeOptions
    from ordercast.verify.kernels.jit import Offsets

RARE = ("subscribe", "unsubscribe", "join", "leave", "crash", "recover")
"""Kinds of rows that say who was where and when: few, and every task gets all of them."""
RARE_SCHEMA = schema_of(
    node=pa.int32(),
    seq=pa.int64(),
    kind=pa.int32(),
    time_ns=pa.int64(),
    topic=pa.string(),
    info=pa.map_(pa.string(), pa.string()),
)
NO_MESSAGE = 64
"""Added to the kind of a row that names no message."""
AGAIN = 32
"""Added to the kind of a publication of what had been published before."""

SCAN_BYTES = 64
PART_BYTES = 64
KEY_BYTES = 96
"""What a row costs a task of the stage, at most: of those by message, by receiver and by key."""
MESSAGE_BYTES = 96
"""What a message costs a task by receiver, if it concerns any of its receivers."""
MOST_STRETCH_BYTES = 16 << 20
STRETCHES_A_TASK = 8
"""A stretch of the messages' side is no more than this part of what a task may need."""


@dataclass(frozen=True)
class NodeRows:
    """The nodes of a run by name, and what a first look at their rows says of each."""

    names: list[str]
    hashes: Offsets
    """Of the names, as the rows have it."""
    rows: Offsets
    ends: Offsets
    """The last seq and one."""
    published_until: Offsets
    """The seq of its last publication and one; 0 for none."""


@dataclass(frozen=True)
class TaskCut:
    """Into how many tasks each stage is cut."""

    buckets: int
    parts: int
    key_blocks: int
    stretch_bytes: int = MOST_STRETCH_BYTES
    """So much of the messages' side a part reads at a time."""

    @staticmethod
    def for_size(rows: int, nodes: int, messages: int, *, cores: int, task_bytes: int) -> TaskCut:
        """Enough tasks that none needs more than `task_bytes`, and all cores have work. A log is never cut."""

        def tasks(row_bytes: int) -> int:
            return max(cores, -(-rows * row_bytes // task_bytes))

        stretch_bytes = min(task_bytes // STRETCHES_A_TASK, MOST_STRETCH_BYTES)
        parts = tasks(PART_BYTES)
        while parts < nodes and part_bytes(rows, messages, parts, stretch_bytes) > task_bytes:
            parts += 1
        return TaskCut(tasks(SCAN_BYTES), min(parts, max(nodes, 1)), tasks(KEY_BYTES), stretch_bytes)


def part_bytes(rows: int, messages: int, parts: int, stretch_bytes: int) -> int:
    """What one of so many tasks by receiver needs: for rows, the messages they may be about, and stretches of all."""
    mine = -(-rows // parts)
    return mine * PART_BYTES + min(messages, mine) * MESSAGE_BYTES + 2 * stretch_bytes


@dataclass(frozen=True)
class Setup:
    """Goes to every task of a run."""

    path: str
    run: str
    manifest: Manifest | None
    asked: JudgeOptions
    nodes: NodeRows
    rare: pa.Table
    """RARE_SCHEMA, by node and seq."""
    cut: TaskCut
    witnesses: int
    assumed: str = ""
    part_of: Offsets = field(init=False)
    lost: Offsets = field(init=False)
    """Rows with which a node came back without its state, as `place` numbers them."""

    def __post_init__(self) -> None:
        """Deal the nodes out in stretches of about as many rows each."""
        before = np.cumsum(self.nodes.rows) - self.nodes.rows
        share = max(-(-int(self.nodes.rows.sum()) // self.cut.parts), 1)
        object.__setattr__(self, "part_of", np.minimum(before // share, self.cut.parts - 1).astype(np.int64))
        object.__setattr__(self, "lost", self._lost())

    def _lost(self) -> Offsets:
        kinds = np.asarray(self.rare.column("kind").combine_chunks())
        infos = self.rare.column("info").to_pylist()
        places = self.rare_places()
        found = [
            place
            for place, kind, info in zip(places.tolist(), kinds.tolist(), infos, strict=True)
            if kind == KIND["recover"] and info and dict(info).get(INFO_STATE) == STATE_LOST
        ]
        return np.array(found, np.int64)

    def rare_places(self) -> Offsets:
        node = np.asarray(self.rare.column("node").combine_chunks(), dtype=np.int64)
        seq = np.asarray(self.rare.column("seq").combine_chunks(), dtype=np.int64)
        return place(node, seq)

    @property
    def dated(self) -> bool:
        """Whether all nodes share one clock."""
        return self.asked.one_clock or (self.manifest is not None and self.manifest.clock == "global")

    @property
    def asks_real_time(self) -> bool:
        """Whether messages may be held to real-time order, and times can tell."""
        claims = self.manifest.claims if self.manifest else []
        return self.dated and "real-time" in {*claims, *(self.asked.checks or ())}

    def trace(self, table: pa.Table) -> LoadedTrace:
        """The run as the judge knows runs, with `table` for its rows."""
        return LoadedTrace(self.path, self.run, self.manifest, table, self.assumed)

    def receivers(self, node: Any, seq: Any) -> Offsets:
        """The receiver at which each row happened: its node, in the life that it had then."""
        if not self.lost.size:
            return np.asarray(node, np.int64)
        found: Offsets = node + np.searchsorted(self.lost, place(node, seq), side="right")
        return found


def place(node: Any, seq: Any) -> Offsets:
    """Rows as numbers that grow with node and seq."""
    numbers: Offsets = (node.astype(np.int64) << 32) | seq.astype(np.int64)
    return numbers
