"""The last stage, one task and only where something is wrong: the stories of what was found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from ordercast.verify.columns import Names
from ordercast.verify.distributed.blocks import FOUND, RESULT
from ordercast.verify.distributed.intern import INTERNED
from ordercast.verify.distributed.order import numbered
from ordercast.verify.distributed.part import Side
from ordercast.verify.distributed.scan import PLACED, one_row, placed
from ordercast.verify.distributed.wire import column, shortened
from ordercast.verify.verdict import Witness
from ordercast.verify.witness import Cycles, witnesses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ordercast.verify.distributed.setup import Setup


@dataclass(frozen=True)
class Asking:
    """Which findings to tell, and what is needed for it."""

    findings: dict[str, list[tuple[int, ...]]]
    cycles: Cycles
    invented: list[str]
    """Names of messages that nobody published; they are numbered after all others."""
    nodes: list[int]


class Told(msgspec.Struct):
    """The stories of one check."""

    check: str
    stories: list[Witness]


def only_nodes(nodes: list[int], batches: Any) -> Iterator[pa.RecordBatch]:
    """Of what the second stage dealt out by receiver: the rows of these nodes."""
    for batch in batches:
        for i in range(batch.num_rows):
            row = pa.Table.from_batches([batch.slice(i, 1)])
            (node,) = shortened(row, "node", np.int32)
            chosen = np.isin(node, nodes)
            if chosen.any():
                yield _chosen(row, chosen)


def _chosen(row: pa.Table, chosen: Any) -> pa.RecordBatch:
    values = {name: row.column(name)[0].as_py() for name in row.column_names}
    node, seq, kind = (shortened(row, name, dtype)[0][chosen] for name, dtype in PLACED)
    values["code"] = column(row, "code", np.int32)[0][chosen].tobytes()
    return one_row(INTERNED, **(values | placed(node, seq, kind)))


def tell(setup: Setup, asked: Asking, _: int, order: pa.Table, rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Tell what was found, with the logs of all publishers, and whole those of the nodes that it is about."""
    whole_nodes = np.zeros(len(setup.nodes.names), bool)
    whole_nodes[asked.nodes] = True
    found = numbered(setup, order, rows, whole_nodes)
    side = Side(setup, found.ordered, found.rows, found.lives, found.logs, whole_nodes)
    duties = found.ordered.duties
    names = Names(
        pa.concat_arrays([found.logs.names, pa.array(asked.invented, pa.string())]),
        pa.array(setup.nodes.names, pa.string()),
        pa.array(duties.topics, pa.string()),
        duties.key_names,
    )
    columns = side.columns(side.about(), names)
    for check, findings in asked.findings.items():
        stories = witnesses(columns, check, findings, asked.cycles)
        data = msgspec.msgpack.encode(Told(check, stories))
        yield pa.RecordBatch.from_pydict({"block": [RESULT], "data": [data]}, schema=FOUND)
