"""Acyclic order: the delivery orders of all receivers fit into one. Ranks are the certificate, cycles the witness."""

from __future__ import annotations

import numpy as np

from ordercast.verify.kernels.jit import Ints, Offsets, kernel


@kernel
def ranks(queue: Ints, queue_off: Offsets, messages: int, owed_off: Offsets, owed: Ints) -> Ints:
    """A rank per message that rises along every queue, and from its end to what it is owed; -1 where none exists.

    Kahn's algorithm by queue heads: a message is placed when it stands at the head of every queue that contains it.
    What a queue is owed comes after all it holds, so it is released when the queue runs empty, at once if it is empty.
    """
    queues = queue_off.size - 1
    need = np.zeros(messages, np.int32)
    for m in queue:
        need[m] += 1
    for m in owed:
        need[m] += 1
    cursor = queue_off[:-1].copy()
    parked = np.full(messages, -1, np.int32)
    next_parked = np.full(queues, -1, np.int32)
    ready = np.empty(messages, np.int32)
    rank = np.full(messages, -1, np.int32)
    count = 0
    for m in range(messages):
        if need[m] == 0:
            ready[count] = m
            count += 1
    for q in range(queues):
        count = _park(q, queue, queue_off, cursor, parked, next_parked, need, ready, count, owed_off, owed)
    placed = 0
    while placed < count:
        m = ready[placed]
        rank[m] = placed
        placed += 1
        q = parked[m]
        while q >= 0:
            following = next_parked[q]
            cursor[q] += 1
            count = _park(q, queue, queue_off, cursor, parked, next_parked, need, ready, count, owed_off, owed)
            q = following
    return rank


@kernel
def _park(
    q: int, queue: Ints, queue_off: Offsets, cursor: Offsets, parked: Ints, next_parked: Ints, need: Ints, ready: Ints,
    count: int, owed_off: Offsets, owed: Ints,
) -> int:  # fmt: skip
    """Put queue `q` on its head, or, if it is exhausted, release what it is owed. Returns the number of ready ones."""
    if cursor[q] < queue_off[q + 1]:
        m = queue[cursor[q]]
        next_parked[q] = parked[m]
        parked[m] = q
        need[m] -= 1
        if need[m] == 0:
            ready[count] = m
            count += 1
        return count
    for i in range(owed_off[q], owed_off[q + 1]):
        m = owed[i]
        need[m] -= 1
        if need[m] == 0:
            ready[count] = m
            count += 1
    return count


@kernel
def rises(queue: Ints, queue_off: Offsets, rank: Ints) -> bool:
    """The certificate's check, all that has to be trusted: does `rank` rise along every queue?"""
    for q in range(queue_off.size - 1):
        for i in range(queue_off[q], queue_off[q + 1]):
            if rank[queue[i]] < 0 or (i > queue_off[q] and rank[queue[i]] <= rank[queue[i - 1]]):
                return False
    return True


@kernel
def occurrences(queue: Ints, queue_off: Offsets, messages: int) -> tuple[Offsets, Ints, Ints]:
    """By message: the queues that hold it, and where."""
    start = np.zeros(messages + 1, np.int64)
    for m in queue:
        start[m + 1] += 1
    for m in range(messages):
        start[m + 1] += start[m]
    cursor = start[:-1].copy()
    where = np.empty(queue.size, np.int32)
    position = np.empty(queue.size, np.int32)
    for q in range(queue_off.size - 1):
        for i in range(queue_off[q], queue_off[q + 1]):
            k = cursor[queue[i]]
            where[k] = q
            position[k] = i - queue_off[q]
            cursor[queue[i]] += 1
    return start, where, position


@kernel
def shortest_cycle(
    queue: Ints, queue_off: Offsets, start: Offsets, where: Ints, position: Ints, origin: int, limit: int
) -> tuple[Ints, Ints]:
    """The cycle through `origin` with the fewest queues, if shorter than `limit`: messages, and the queue of each step.

    Step i says that its queue has message i before message i+1 (the last one before the first). Breadth-first, one hop
    reaching everything earlier in the same queue, so each queue entry is scanned at most once.
    """
    parent = np.full(start.size - 1, -1, np.int32)
    via = np.full(start.size - 1, -1, np.int32)
    depth = np.zeros(start.size - 1, np.int32)
    scanned = queue_off[:-1].copy()
    pending = np.empty(start.size, np.int32)
    pending[0] = origin
    head, tail = 0, 1
    while head < tail:
        m = pending[head]
        head += 1
        if depth[m] + 1 >= limit:
            break
        for k in range(start[m], start[m + 1]):
            q = where[k]
            end = queue_off[q] + position[k]
            for i in range(scanned[q], end):
                e = queue[i]
                if e == origin:
                    return _cycle(parent, via, m, q, origin, depth[m] + 1)
                if parent[e] < 0:
                    parent[e] = m
                    via[e] = q
                    depth[e] = depth[m] + 1
                    pending[tail] = e
                    tail += 1
            scanned[q] = max(scanned[q], end)
    return np.empty(0, np.int32), np.empty(0, np.int32)


@kernel
def _cycle(parent: Ints, via: Ints, last: int, last_queue: int, origin: int, length: int) -> tuple[Ints, Ints]:
    """`origin` precedes `last` in `last_queue`, and each message precedes its parent in the queue it was found in."""
    messages = np.empty(length, np.int32)
    queues = np.empty(length, np.int32)
    messages[0] = origin
    queues[0] = last_queue
    m = last
    for i in range(1, length):
        messages[i] = m
        queues[i] = via[m]
        m = parent[m]
    return messages, queues
