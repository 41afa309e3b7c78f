"""Total order, block by block of keys: the deliveries of a key by all receivers are in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ordercast.verify.distributed.blocks import FoundInBlock
from ordercast.verify.distributed.wire import packed
from ordercast.verify.kernels.grouping import group
from ordercast.verify.kernels.total import CYCLE, runs
from ordercast.verify.keys import Keyed, by_key, judge_keyed
from ordercast.verify.tasks import partial_of
from ordercast.verify.witness import Cycle, fewest_in_a_cycle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ordercast.verify.columns import Arrays
    from ordercast.verify.distributed.concerning import RunNumbers

_COLUMNS = ("key", "receiver", "message", "place", "is_total")


def keys_for(arrays: Arrays, numbers: RunNumbers, blocks: range) -> Iterator[tuple[int, bytes]]:
    """Deliveries and misses of some receivers, for the keys that order anything, by block."""
    delivered, lacking = by_key(arrays, numbers.hot)
    for number, block in enumerate(blocks):
        chosen = np.flatnonzero(numbers.keys[numbers.hot] % len(blocks) == number)
        if chosen.size:
            columns = {**_columns(delivered, numbers, chosen, ""), **_columns(lacking, numbers, chosen, "lack_")}
            if columns["key"].size or columns["lack_key"].size:
                yield block, packed(None, columns)


def _columns(keyed: Keyed, numbers: RunNumbers, chosen: Any, prefix: str) -> dict[str, Any]:
    """As the run numbers keys and messages."""
    sizes = np.diff(keyed.start)[chosen]
    rows = np.repeat(keyed.start[:-1][chosen] - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum())
    columns = {"key": np.repeat(numbers.keys[keyed.keys[chosen]], sizes)}
    columns["message"] = numbers.messages[keyed.message[rows]]
    columns |= {name: getattr(keyed, name)[rows] for name in ("receiver", "place", "is_total")}
    return {prefix + name: values for name, values in columns.items()}


def judge_keys_of(parts: list[dict[str, Any]], cap: int) -> FoundInBlock:
    """Judge the keys of one block."""
    keys = np.unique(np.concatenate([part[name] for part in parts for name in ("key", "lack_key")]))
    delivered = _keyed(parts, keys, "")
    deliveries, found = judge_keyed(delivered, _keyed(parts, keys, "lack_"))
    partial = partial_of("total", deliveries, found, cap)
    return FoundInBlock(partial, {f[2]: _cycle(delivered, f[2]) for f in partial.findings if f[3] == CYCLE})


def _keyed(parts: list[dict[str, Any]], keys: Any, prefix: str) -> Keyed:
    """Parts come in any order; within one, events are by key, receiver and place already.

    What is missed keeps the order it came in: by receiver, and what was due longest first.
    """
    parts = sorted(parts, key=lambda part: int(part[prefix + "receiver"].max(initial=-1)))  # Each has its own stretch.
    key, receiver, message, place, is_total = (
        np.concatenate([part[prefix + name] for part in parts]) for name in _COLUMNS
    )
    start, order = group(np.searchsorted(keys, key).astype(np.int32), keys.size)
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
