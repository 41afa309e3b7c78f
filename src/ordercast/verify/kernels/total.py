"""Total order per key: a total message has the same messages of its key before it, and the same after it, everywhere.

Per key the total messages are ranked over all receivers. Every message of the key then falls, at each receiver, between
two ranks; if the intervals of all receivers intersect, all agree. Only messages where they do not, or that somebody
owed and never delivered, are looked at one total message at a time.
"""

from __future__ import annotations

import numpy as np

from ordercast.verify.kernels.acyclic import ranks
from ordercast.verify.kernels.jit import NEVER, Flags, Ints, Offsets, kernel

CYCLE, OPPOSITE, SKIPPED = 0, 1, 2


@kernel
def deliveries_by_key(
    ev: Ints, off: Offsets, key_off: Offsets, keys: Ints, first: int, last: int
) -> tuple[Offsets, Ints, Ints, Ints]:
    """Deliveries of messages with keys `first` to `last`, by key, receiver and place: receiver, message, place."""
    start = np.zeros(last - first + 1, np.int64)
    for i in range(ev.size):
        if ev[i] >= 0:
            for j in range(key_off[ev[i]], key_off[ev[i] + 1]):
                if first <= keys[j] < last:
                    start[keys[j] - first + 1] += 1
    for k in range(last - first):
        start[k + 1] += start[k]
    cursor = start[:-1].copy()
    receiver = np.empty(start[-1], np.int32)
    message = np.empty(start[-1], np.int32)
    place = np.empty(start[-1], np.int32)
    for c in range(off.size - 1):
        for i in range(off[c], off[c + 1]):
            if ev[i] < 0:
                continue
            for j in range(key_off[ev[i]], key_off[ev[i] + 1]):
                k = keys[j] - first
                if 0 <= k < last - first:
                    receiver[cursor[k]] = c
                    message[cursor[k]] = ev[i]
                    place[cursor[k]] = i - off[c]
                    cursor[k] += 1
    return start, receiver, message, place


@kernel
def runs(receiver: Ints) -> Offsets:
    """The bounds of each receiver's stretch."""
    count = 0
    for i in range(receiver.size):
        count += i == 0 or receiver[i] != receiver[i - 1]
    start = np.empty(count + 1, np.int64)
    count = 0
    for i in range(receiver.size):
        if i == 0 or receiver[i] != receiver[i - 1]:
            start[count] = i
            count += 1
    start[count] = receiver.size
    return start


@kernel
def total_ranks(run: Offsets, message: Ints, synchronises: Flags, messages: int) -> tuple[Ints, bool]:
    """Ranks of one key's total messages (local numbers), and whether all of them have one."""
    queue = np.empty(message.size, np.int32)
    queue_off = np.zeros(run.size, np.int64)
    size = 0
    for r in range(run.size - 1):
        for i in range(run[r], run[r + 1]):
            if synchronises[message[i]]:
                queue[size] = message[i]
                size += 1
        queue_off[r + 1] = size
    rank = ranks(queue[:size].copy(), queue_off, messages, np.zeros(run.size, np.int64), np.empty(0, np.int32))
    for i in range(size):
        if rank[queue[i]] < 0:
            return rank, False
    return rank, True


@kernel
def intervals(run: Offsets, message: Ints, synchronises: Flags, rank: Ints) -> tuple[Ints, Ints]:
    """Per message the highest rank delivered before it and the lowest after it, anywhere."""
    low = np.full(rank.size, -1, np.int32)
    high = np.full(rank.size, NEVER, np.int32)
    for r in range(run.size - 1):
        latest = np.int32(-1)
        for i in range(run[r], run[r + 1]):
            m = message[i]
            low[m] = max(low[m], latest)
            if synchronises[m]:
                latest = rank[m]
        coming = np.int32(NEVER)
        for i in range(run[r + 1] - 1, run[r] - 1, -1):
            m = message[i]
            high[m] = min(high[m], coming)
            if synchronises[m]:
                coming = rank[m]
    return low, high


@kernel
def glance(start: Offsets, lack_start: Offsets, receiver: Ints, message: Ints, is_total: Flags) -> tuple[int, Flags]:
    """Deliveries of all keys that can be compared, and of each key whether it needs a closer look.

    It does if its total messages fit into no order, if intervals do not intersect, or if anybody owed anything of it.
    """
    suspicious = np.zeros(start.size - 1, np.uint8)
    most = np.int32(-1)
    for i in range(message.size):
        most = max(most, message[i])
    number = np.full(most + 1, -1, np.int32)
    compared = 0
    for k in range(start.size - 1):
        mine = slice(start[k], start[k + 1])
        local, synchronises = _numbered(message[mine], is_total[mine], number)
        run = runs(receiver[mine])
        if _synchronised(run, local, synchronises) > 1:
            compared += local.size
        owed = lack_start[k] < lack_start[k + 1]
        if local.size and (owed or not _agree(run, local, synchronises)):
            suspicious[k] = 1
    return compared, suspicious


@kernel
def _numbered(message: Ints, is_total: Flags, number: Ints) -> tuple[Ints, Flags]:
    """The messages of one key numbered as they come, and which are total. `number` is scratch: -1, and left so."""
    local = np.empty(message.size, np.int32)
    synchronises = np.empty(message.size, np.uint8)
    count = 0
    for i in range(message.size):
        if number[message[i]] < 0:
            number[message[i]] = count
            synchronises[count] = is_total[i]
            count += 1
        local[i] = number[message[i]]
    for i in range(message.size):
        number[message[i]] = -1
    return local, synchronises[:count].copy()


@kernel
def _synchronised(run: Offsets, message: Ints, synchronises: Flags) -> int:
    """How many receivers delivered a total message."""
    count = 0
    for r in range(run.size - 1):
        for i in range(run[r], run[r + 1]):
            if synchronises[message[i]]:
                count += 1
                break
    return count


@kernel
def _agree(run: Offsets, message: Ints, synchronises: Flags) -> bool:
    """Whether the total messages of a key have one order, and all messages the same place in it everywhere."""
    rank, ordered = total_ranks(run, message, synchronises, synchronises.size)
    if not ordered:
        return False
    low, high = intervals(run, message, synchronises, rank)
    return bool((low < high).all())


@kernel
def disagreement(
    m: int, run: Offsets, message: Ints, synchronises: Flags, rank: Ints, at_off: Offsets, at_run: Ints, at: Ints,
    low: int, high: int, lacking: Ints, lacking_end: Offsets, before: Ints, after: Ints,
) -> tuple[int, int, int, int]:  # fmt: skip
    """The fault of message `m` of a key: (kind, total message, run that has m before it, run that does not).

    Only total messages ranked between `high` and `low` can be on both sides of m. `lacking` are the runs that owed m
    and never delivered it, and `lacking_end` is where that ceased to be owed. `before` and `after` are scratch, -1
    everywhere, and left so.
    """
    result = (-1, -1, -1, -1)
    reach = low
    for k in range(lacking.size):
        reach = max(reach, highest(run[lacking[k]], lacking_end[k], message, synchronises, rank))
    for k in range(at_off[m], at_off[m + 1]):
        _mark(run[at_run[k]], run[at_run[k] + 1], run[at_run[k]] + at[k], at_run[k], message, synchronises, rank,
              high, reach, before, after)  # fmt: skip
    for k in range(at_off[m], at_off[m + 1]):
        for i in range(run[at_run[k]], run[at_run[k] + 1]):
            t = message[i]
            if result[0] < 0 and before[t] >= 0 and after[t] >= 0:
                result = (OPPOSITE, t, after[t], before[t])
    for k in range(lacking.size):
        for i in range(run[lacking[k]], lacking_end[k]):
            t = message[i]
            if result[0] < 0 and after[t] >= 0:
                result = (SKIPPED, t, after[t], lacking[k])
    for k in range(at_off[m], at_off[m + 1]):
        for i in range(run[at_run[k]], run[at_run[k] + 1]):
            before[message[i]] = -1
            after[message[i]] = -1
    return result


@kernel
def highest(begin: int, end: int, message: Ints, synchronises: Flags, rank: Ints) -> int:
    """The rank of the last total message in a stretch of a run; -1 if there is none."""
    for i in range(end - 1, begin - 1, -1):
        if synchronises[message[i]]:
            return int(rank[message[i]])
    return -1


@kernel
def _mark(
    begin: int, end: int, here: int, r: int, message: Ints, synchronises: Flags, rank: Ints, high: int, reach: int,
    before: Ints, after: Ints,
) -> None:  # fmt: skip
    """Note, for the total messages that matter, that run `r` has them before (or after) the message at `here`."""
    for i in range(here - 1, begin - 1, -1):
        if synchronises[message[i]]:
            if rank[message[i]] < high:
                break
            before[message[i]] = r
    for i in range(here + 1, end):
        if synchronises[message[i]]:
            if rank[message[i]] > reach:
                break
            after[message[i]] = r
