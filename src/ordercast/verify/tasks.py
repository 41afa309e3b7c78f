"""The work of judging one run, cut into tasks that share its columns and nothing else, and their partial results.

The same tasks run one after the other in this process or side by side on Spark; what comes out does not depend on how
many there are, because every finding is ordered by message and receiver and only then cut off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ordercast.verify.build import INVENTED
from ordercast.verify.columns import left_to_give
from ordercast.verify.departed import overtaken
from ordercast.verify.kernels import acyclic, causal, fifo, prefix, real_time
from ordercast.verify.kernels.jit import NEVER
from ordercast.verify.keys import hot_keys, judge_keys, keys_at_once
from ordercast.verify.verdict import ABOUT_TOTALS, ONE_ORDER

if TYPE_CHECKING:
    from collections.abc import Callable

    from ordercast.verify.columns import Arrays, Columns
    from ordercast.verify.kernels.jit import Ints, Offsets

BLOCK = 128
"""Receivers per causal task: their rows then stay in the cache of one core."""
SPARE = 4
"""So many times the findings that will be told are kept, to have different ones to tell."""
_OVERTAKEN = {"fifo": 2, "causal": 2, "optimistic-causal": 2, "real-time": 2}
"""Where in a finding it says what was overtaken; in those of other checks that is the message itself."""

_PER_MESSAGE = {
    "agreement", "fifo", "causal", "optimistic-causal", "total", "prefix", "acyclic", *ABOUT_TOTALS, ONE_ORDER,
}  # fmt: skip


class Task(msgspec.Struct, frozen=True):
    """One check on the receivers, or for `total` the keys, from `first` to before `last`."""

    check: str
    first: int
    last: int


class Partial(msgspec.Struct):
    """The findings of one task: tuples that begin with message and receiver."""

    check: str
    deliveries: int
    violations: int
    findings: list[tuple[int, ...]]


def plan(columns: Columns, *, block: int | None = None) -> list[Task]:
    """The tasks of a run: none for checks that no message is held to; with holes in the trace, only integrity.

    `block`: how many receivers or keys one task takes; by default BLOCK receivers, and as many keys as fit.
    """
    tasks = []
    for check in columns.about.checks:
        if columns.about.holes and check != "integrity":
            continue
        if check in _PER_MESSAGE and not columns.arrays.held(check).any():
            continue
        if check in ("fifo", "causal", "optimistic-causal"):
            tasks += _blocks(check, columns.arrays.receivers, block or BLOCK)
        elif check == "total":
            tasks += _blocks(check, hot_keys(columns.arrays).size, block or keys_at_once(columns.arrays))
        elif check in _WHOLE:
            tasks.append(Task(check, 0, columns.arrays.receivers))
    if {"causal", "optimistic-causal"} <= {task.check for task in tasks} and _same_question(columns.arrays):
        # Nothing is missed and both hold the same messages: one answer serves both, and merge() copies it.
        tasks = [task for task in tasks if task.check != "optimistic-causal"]
    return tasks


def run_task(columns: Columns, task: Task, *, cap: int) -> Partial:
    """Do one task. Findings are kept if they can be among the first `cap` of the whole run, in the order of reports."""
    arrays = columns.arrays
    found: list[Any]
    if task.check == "total":
        deliveries, found = judge_keys(arrays, task.first, task.last)
    elif task.check in ("causal", "optimistic-causal"):
        return _causal(columns, task, cap)
    elif task.check == "fifo":
        deliveries, found = _fifo(arrays, task)
    else:
        deliveries, found = _WHOLE[task.check](columns)
    return partial_of(task.check, deliveries, found, cap)


def merge(partials: list[Partial], *, cap: int) -> dict[str, Partial]:
    """One partial result per check, whatever the number of tasks was."""
    merged: dict[str, Partial] = {}
    for part in partials:
        whole = merged.setdefault(part.check, Partial(part.check, 0, 0, []))
        whole.deliveries += part.deliveries
        whole.violations += part.violations
        whole.findings += part.findings
    for whole in merged.values():
        found = [np.array(column, np.int64) for column in zip(*whole.findings, strict=True)]
        whole.findings = [whole.findings[i] for i in spread(whole.check, found, cap * SPARE)]
    if "causal" in merged and "optimistic-causal" not in merged:
        merged["optimistic-causal"] = msgspec.structs.replace(merged["causal"], check="optimistic-causal")
    return merged


def queues_of(arrays: Arrays, check: str) -> tuple[Ints, Offsets, Offsets, Ints]:
    """Per receiver: what it delivered of the messages held to `check`, and what of them it missed."""
    held = arrays.held(check) != 0
    log = _in_order(arrays) if check == ONE_ORDER else arrays.ev
    chosen = (log >= 0) & held[np.maximum(log, 0)] if arrays.messages else np.zeros(0, bool)
    missed = held[arrays.missed] & (arrays.due == NEVER)
    return arrays.ev[chosen], _kept(chosen, arrays.off), _kept(missed, arrays.missed_off), arrays.missed[missed]


def _kept(chosen: np.ndarray[Any, Any], off: Offsets) -> Offsets:
    """Offsets after only the chosen entries stay."""
    before = np.concatenate(([0], np.cumsum(chosen)))
    return before[off].astype(np.int64)


def _blocks(check: str, size: int, block: int) -> list[Task]:
    return [Task(check, first, min(first + block, size)) for first in range(0, size, block)]


def _same_question(arrays: Arrays) -> bool:
    same = bool((arrays.held("causal") == arrays.held("optimistic-causal")).all())
    return same and not arrays.missed.size and not arrays.unordered.size


def spread(check: str, found: list[Any], cap: int, *, partly: bool = False) -> list[int]:
    """The order of reports, cut off: which rows of the parallel columns `found` come first.

    First one finding for every receiver and message that it let be overtaken, of each receiver in turn, then a second
    one, and so on; within that by message and receiver. `partly`: a receiver may have more findings elsewhere, and so
    all are kept that can come first when they are put together.
    """
    if not found or not found[0].size:
        return []
    receiver, overtaken = found[1], found[_OVERTAKEN.get(check, 0)]
    place = np.empty(receiver.size, np.int64)
    place[np.lexsort(found[::-1])] = np.arange(receiver.size)
    grouped = np.lexsort((place, overtaken, receiver))
    nth, begins = _nth(receiver[grouped], overtaken[grouped])
    firsts = place[grouped[begins]]
    by_receiver = np.lexsort((firsts, receiver[grouped[begins]]))
    turn = np.empty(begins.size, np.int64)
    turn[by_receiver] = _nth(receiver[grouped[begins]][by_receiver])[0]
    turns = turn[np.searchsorted(begins, np.arange(grouped.size), side="right") - 1]
    if partly:
        return [int(i) for i in grouped[(nth < cap) & (turns < cap)]]
    return [int(i) for i in grouped[np.lexsort((place[grouped], turns, nth))[:cap]]]


def _nth(*columns: Any) -> tuple[Any, Any]:
    """Of rows that are sorted by `columns`: the how many-th of its like each one is, and where the likes begin."""
    new = np.ones(columns[0].size, bool)
    new[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    begins = np.flatnonzero(new)
    return np.arange(new.size) - begins[np.cumsum(new) - 1], begins


def partial_of(check: str, deliveries: int, found: list[Any], cap: int) -> Partial:
    """The findings that can be told, of all. `found` are parallel columns; message and receiver first."""
    chosen = spread(check, found, cap * SPARE, partly=check == "total")
    findings = [tuple(int(column[i]) for column in found) for i in chosen]
    return Partial(check, int(deliveries), int(found[0].size), findings)


def _causal(columns: Columns, task: Task, cap: int) -> Partial:
    arrays, past = columns.arrays, columns.past
    start, column, position, deliveries = causal.positions(
        task.first,
        task.last,
        _in_order(arrays) if task.check == "optimistic-causal" else arrays.ev,
        arrays.off,
        *arrays.owed(),
        arrays.held(task.check),
        task.check == "causal",
    )
    width = task.last - task.first
    store = past.store(width)
    found = np.empty((3, 2 * cap * SPARE * width), np.int32)
    named, latest, counts = np.zeros(width, np.int32), np.full(width, -1, np.int32), np.zeros(2, np.int64)
    for stretch, at in past.forwards():
        causal.violations(
            stretch.first, *stretch.graph, past.per_message, store, past.messages, at, start, column, position,
            found, named, latest, counts, cap * SPARE,
        )  # fmt: skip
    messages, receivers, latest = found[:, : counts[1]]
    partial = partial_of(task.check, deliveries, [messages, receivers + task.first, latest], cap)
    return msgspec.structs.replace(partial, violations=int(counts[0]))


def _in_order(arrays: Arrays) -> Ints:
    """The logs, without deliveries at nodes that said that they keep no order."""
    return np.where(arrays.unordered != 0, np.int32(-1), arrays.ev) if arrays.unordered.size else arrays.ev


def _fifo(arrays: Arrays, task: Task) -> tuple[int, list[Ints]]:
    deliveries, *found = fifo.violations(
        task.first,
        task.last,
        arrays.ev,
        arrays.off,
        *arrays.owed(),
        arrays.held("fifo"),
        arrays.line_off,
        arrays.lines,
        int(arrays.lines.max(initial=-1)) + 1,
    )
    return deliveries, found


def _integrity(columns: Columns) -> tuple[int, list[Any]]:
    odd = columns.arrays.odd
    deliveries = int((columns.arrays.ev >= 0).sum()) + int((odd[:, 0] == INVENTED).sum())
    return deliveries, [odd[:, 1], odd[:, 2], odd[:, 3], odd[:, 0]]


def _agreement(columns: Columns) -> tuple[int, list[Ints]]:
    """Owed and undelivered, if the publisher is up at the end or anybody, also one that died later, delivered it.

    Where agreement is not uniform, one that died or left later counts for nothing. Of a receiver that is gone by the
    end, only what it let be overtaken before it went.
    """
    arrays = columns.arrays
    delivered = arrays.ev[arrays.ev >= 0]
    held = arrays.held("agreement") != 0
    owed = arrays.missed
    receiver = np.repeat(np.arange(arrays.receivers), np.diff(arrays.missed_off)).astype(np.int32)
    broken = held[owed] & left_to_give(arrays, columns.about)
    gone = np.flatnonzero(broken & (arrays.asked == 0))
    broken[gone] = overtaken(columns, receiver[gone], gone)
    return int(held[delivered].sum()), [owed[broken], receiver[broken]]


def _acyclic(columns: Columns) -> tuple[int, list[Ints]]:
    queue, queue_off, _, _ = queues_of(columns.arrays, "acyclic")
    return without_place(queue, queue_off, columns.arrays.messages)


def without_place(queue: Ints, queue_off: Offsets, messages: int) -> tuple[int, list[Ints]]:
    """Deliveries that fit no order of all queues: how many were looked at, and the findings as columns."""
    rank = acyclic.ranks(queue, queue_off, messages, np.zeros_like(queue_off), np.empty(0, np.int32))
    if acyclic.rises(queue, queue_off, rank):
        return queue.size, [np.empty(0, np.int32)] * 2
    stuck = np.flatnonzero(rank < 0).astype(np.int32)
    return queue.size, [stuck, np.zeros_like(stuck)]


def queues_by_topic(arrays: Arrays, check: str) -> tuple[Ints, Offsets, Ints]:
    """Deliveries of the messages held to `check`, a queue per receiver and topic; and the receiver of each."""
    queue, queue_off, _, _ = queues_of(arrays, check)
    receiver = np.repeat(np.arange(arrays.receivers), np.diff(queue_off))
    pair = receiver * (int(arrays.topic.max(initial=0)) + 1) + arrays.topic[queue]
    order = np.argsort(pair, kind="stable")
    _, begins = np.unique(pair[order], return_index=True)
    owners = receiver[order][begins].astype(np.int32)
    return queue[order], np.append(begins, queue.size).astype(np.int64), owners


def _total_topic(columns: Columns) -> tuple[int, list[Ints]]:
    return _by_topic(columns, "total-topic")


def _one_order(columns: Columns) -> tuple[int, list[Ints]]:
    return _by_topic(columns, ONE_ORDER)


def _by_topic(columns: Columns, check: str) -> tuple[int, list[Ints]]:
    """Per topic, one order that the delivery orders of all receivers fit into; as for `acyclic`, what has no place."""
    queue, queue_off, _ = queues_by_topic(columns.arrays, check)
    return without_place(queue, queue_off, columns.arrays.messages)


def _real_time(columns: Columns) -> tuple[int, list[Ints]]:
    arrays = columns.arrays
    if not columns.about.one_clock:
        return 0, [np.empty(0, np.int32)] * 3
    topics = int(arrays.topic.max(initial=0)) + 1
    deliveries, *found = real_time.violations(
        arrays.ev, arrays.off, *arrays.owed(), arrays.held("real-time"), arrays.topic, topics,
        arrays.published_ns, arrays.first_ns,
    )  # fmt: skip
    return deliveries, found


def _prefix(columns: Columns) -> tuple[int, list[Ints]]:
    """If counting never as last leaves no cycle, prefix order holds; otherwise look at every pair that matters."""
    return against_prefix(*queues_of(columns.arrays, "prefix"), columns.arrays.messages)


def against_prefix(
    queue: Ints, queue_off: Offsets, missed_off: Offsets, missed: Ints, messages: int
) -> tuple[int, list[Ints]]:
    """Deliveries looked at, and as columns: message, queue, the queue that has it the other way, and against what."""
    rank = acyclic.ranks(queue, queue_off, messages, missed_off, missed)
    if not (rank < 0).any():
        return queue.size, [np.empty(0, np.int32)] * 4
    start, where, position = acyclic.occurrences(queue, queue_off, messages)
    lacking_off, lacking, _ = acyclic.occurrences(missed, missed_off, messages)
    found = prefix.violations(queue, queue_off, missed_off, missed, start, where, position, lacking_off, lacking)
    return queue.size, list(found)


def _convergence(columns: Columns) -> tuple[int, list[Ints]]:
    """Per topic, every digest that differs from the first node's."""
    digests = columns.about.digests
    first: dict[str, int] = {}
    different = []
    for i, digest in enumerate(digests):
        reference = first.setdefault(digest.topic, i)
        if digest.digest != digests[reference].digest:
            different.append((i, reference))
    nodes = {node: number for number, node in enumerate(columns.names.nodes.to_pylist())}
    recorded = np.array(sorted({nodes[digest.node] for digest in digests}), np.int32)
    counted = np.isin(columns.arrays.node, recorded)
    deliveries = np.repeat(counted, np.diff(columns.arrays.off)) & (columns.arrays.ev >= 0)
    found = np.array(different, np.int32).reshape(-1, 2)
    return int(deliveries.sum()), [found[:, 0], found[:, 1]]


def _genuine(columns: Columns) -> tuple[int, list[Ints]]:
    outsiders = columns.arrays.outsiders
    deliveries = int((columns.arrays.ev >= 0).sum()) if columns.about.sends_recorded else 0
    return deliveries, [outsiders[:, 0], outsiders[:, 1], outsiders[:, 2]]


_WHOLE: dict[str, Callable[[Columns], tuple[int, list[Any]]]] = {
    "integrity": _integrity,
    "agreement": _agreement,
    "prefix": _prefix,
    "acyclic": _acyclic,
    "convergence": _convergence,
    "genuine": _genuine,
    "total-topic": _total_topic,
    "real-time": _real_time,
    ONE_ORDER: _one_order,
}
