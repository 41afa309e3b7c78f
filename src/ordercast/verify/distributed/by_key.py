"""The fifth stage, by key: total order, with the deliveries of a key by all receivers in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from ordercast.verify.distributed.part import FOUND, RESULT
from ordercast.verify.distributed.wire import unpacked, values
from ordercast.verify.kernels.total import CYCLE, runs
from ordercast.verify.keys import Keyed, judge_keyed
from ordercast.verify.tasks import Partial, partial_of
from ordercast.verify.witness import Cycle, fewest_in_a_cycle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ordercast.verify.distributed.setup import Setup


class FoundByKey(msgspec.Struct):
    """What was found in one block of keys, and of keys without an order: a shortest cycle."""

    partial: Partial
    cycles: dict[int, Cycle]


_COLUMNS = ("key", "receiver", "message", "place", "is_total")


def judge_block(setup: Setup, _: int, table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Judge the keys of one block."""
    if not table.num_rows:
        return
    parts = [unpacked(value)[1] for value in values(table, "data")]
    keys = np.unique(np.concatenate([part[name] for part in parts for name in ("key", "lack_key")]))
    delivered = _keyed(parts, keys, "")
    deliveries, found = judge_keyed(delivered, _keyed(parts, keys, "lack_"))
    partial = partial_of("total", deliveries, found, setup.witnesses)
    cycles = {f[2]: _cycle(delivered, f[2]) for f in partial.findings if f[3] == CYCLE}
    data = msgspec.msgpack.encode(FoundByKey(partial, cycles))
    yield pa.RecordBatch.from_pydict({"block": [RESULT], "data": [data]}, schema=FOUND)


def _keyed(parts: list[dict[str, Any]], keys: Any, prefix: str) -> Keyed:
    """Parts come in any order; within one, events are by key, receiver and place already."""
    key, receiver, message, place, is_total = (
        np.concatenate([part[prefix + name] for part in parts]) for name in _COLUMNS
    )
    # What is missed keeps the order it came in: by receiver, and what was due longest first.
    order = np.lexsort((receiver, key))
    start = np.searchsorted(key[order], np.append(keys, np.iinfo(np.int32).max)).astype(np.int64)
    return Keyed(keys, start, receiver[order], message[order], place[order], is_total[order])


def _cycle(delivered: Keyed, key: int) -> Cycle:
    """A cycle through the total messages of a key, with as few receivers as can be."""
    k = int(np.searchsorted(delivered.keys, key))
    mine = np.arange(delivered.start[k], delivered.start[k + 1])
    mine = mine[delivered.is_total[mine] != 0]
    ids, queue = np.unique(delivered.message[mine], return_inverse=True)
    receiver = delivered.receiver[mine]
    queue_off = runs(receiver)
    messages, queues = fewest_in_a_cycle(queue.astype(np.int32), queue_off, ids.size)
    return ids[messages].tolist(), receiver[queue_off[queues]].tolist()
