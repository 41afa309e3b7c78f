"""Checks on the delivery orders of all receivers together, block by block: `prefix`, `acyclic` and orders of topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ordercast.verify.distributed.blocks import FoundInBlock
from ordercast.verify.distributed.wire import packed
from ordercast.verify.tasks import against_prefix, partial_of, queues_by_topic, queues_of, without_place
from ordercast.verify.witness import STARTS, fewer_and_fewer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ordercast.verify.columns import Arrays
    from ordercast.verify.distributed.concerning import RunNumbers
    from ordercast.verify.kernels.jit import Ints, Offsets


def queues_for(arrays: Arrays, numbers: RunNumbers, check: str, blocks: range) -> Iterator[tuple[int, bytes]]:
    """Deliveries of some receivers of the messages held to `check`, and for `prefix` their misses, by block.

    Messages have the run's numbers.
    """
    number_of = numbers.messages
    if check in ("prefix", "acyclic"):
        queue, queue_off, missed_off, missed = queues_of(arrays, check)
        if check == "acyclic":
            missed_off, missed = np.zeros_like(missed_off), missed[:0]
        owner = np.flatnonzero((np.diff(queue_off) > 0) | (np.diff(missed_off) > 0))
        if owner.size:
            sizes, lacks = np.diff(queue_off)[owner], np.diff(missed_off)[owner]
            yield blocks.start, packed(None, _columns(owner, sizes, number_of[queue], lacks, number_of[missed]))
        return
    queue, queue_off, owners = queues_by_topic(arrays, check)
    topic = arrays.topic[queue[queue_off[:-1]]] if queue.size else np.empty(0, np.int32)
    for number, block in enumerate(blocks):
        chosen = np.flatnonzero(topic % len(blocks) == number)
        if chosen.size:
            sizes = np.diff(queue_off)[chosen]
            begins = np.cumsum(sizes) - sizes
            entries = np.repeat(queue_off[chosen] - begins, sizes) + np.arange(sizes.sum())
            theirs = number_of[queue[entries]]
            yield block, packed(None, _columns(owners[chosen], sizes, theirs, np.zeros_like(sizes), queue[:0]))


def _columns(owner: Any, sizes: Any, queue: Ints, lacks: Any, missed: Ints) -> dict[str, Any]:
    return {
        "owner": owner.astype(np.int32),
        "sizes": sizes.astype(np.int64),
        "queue": queue,
        "lacks": lacks.astype(np.int64),
        "missed": missed,
    }


def judge_queues(check: str, parts: list[dict[str, Any]], cap: int) -> FoundInBlock:
    """Judge the queues of one block, which come from parts of the receivers in any order."""
    parts = sorted(parts, key=lambda part: int(part["owner"][0]))
    owner, queue, missed = (np.concatenate([part[name] for part in parts]) for name in ("owner", "queue", "missed"))
    queue_off, missed_off = _offsets(parts, "sizes"), _offsets(parts, "lacks")
    messages = max(int(queue.max(initial=-1)), int(missed.max(initial=-1))) + 1
    if check == "prefix":
        deliveries, found = against_prefix(queue, queue_off, missed_off, missed, messages)
        found[1], found[2] = owner[found[1]], owner[found[2]]
        return FoundInBlock(partial_of(check, deliveries, found, cap))
    deliveries, found = without_place(queue, queue_off, messages)
    if not found[0].size:
        return FoundInBlock(partial_of(check, deliveries, found, cap))
    cycles = [
        (origin, (through, owner[queues].tolist()))
        for origin, (through, queues) in fewer_and_fewer(queue, queue_off, messages)
    ]
    return FoundInBlock(partial_of(check, deliveries, found, cap), stuck=found[0][:STARTS].tolist(), cycles=cycles)


def _offsets(parts: list[dict[str, Any]], name: str) -> Offsets:
    offsets: Offsets = np.concatenate([[0], *(part[name] for part in parts)]).cumsum().astype(np.int64)
    return offsets
