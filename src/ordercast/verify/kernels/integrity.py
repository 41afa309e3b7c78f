"""Integrity: nothing delivered twice, and nothing by a node that was no subscriber; and what each node was owed."""

from __future__ import annotations

import numpy as np

from ordercast.verify.kernels.jit import Flags, Ints, Offsets, kernel

MUST_NOT, MAY, MUST = 0, 1, 2


@kernel
def repeated(ev: Ints, off: Offsets, messages: int) -> Flags:
    """Flags the deliveries whose message the same log delivered before."""
    stamp = np.full(messages, -1, np.int32)
    again = np.zeros(ev.size, np.uint8)
    for c in range(off.size - 1):
        for i in range(off[c], off[c + 1]):
            if ev[i] >= 0:
                again[i] = stamp[ev[i]] == c
                stamp[ev[i]] = c
    return again


@kernel
def overtaken(kind: Ints, msg: Ints, off: Offsets, messages: int, receive: int, deliver: int) -> int:
    """How many deliveries had to wait: another message that reached the node later was delivered sooner."""
    stamp = np.full(messages, -1, np.int32)
    received = np.zeros(messages, np.int64)
    waited = 0
    for n in range(off.size - 1):
        newest = np.int64(-1)
        for i in range(off[n], off[n + 1]):
            m = msg[i]
            if m < 0:
                continue
            if kind[i] == receive and stamp[m] != n:
                stamp[m] = n
                received[m] = i
            elif kind[i] == deliver and stamp[m] == n:
                waited += received[m] < newest
                newest = max(newest, received[m])
    return waited


@kernel
def owed_and_forbidden(
    ev: Ints, off: Offsets, pub: Ints, audience: Ints, place: Ints, audience_off: Offsets, audience_messages: Ints,
    member_off: Offsets, member_audience: Ints, member_status: Offsets, status: Flags, own_implied: bool,
) -> tuple[Offsets, Ints, Flags]:  # fmt: skip
    """Per log the messages that it had to deliver and did not, and flags on deliveries that were not for it.

    A log's memberships name an audience and where its statuses begin, one per message of the audience; -1 for a
    membership that holds from beginning to end. `own_implied`: the trace records no node's delivery to itself.
    """
    columns = off.size - 1
    forbidden = np.zeros(ev.size, np.uint8)
    delivered = np.full(pub.size, -1, np.int32)
    member = np.full(audience_off.size, -1, np.int64)
    owed_off = np.zeros(columns + 1, np.int64)
    owed = np.empty(1024, np.int32)
    count = 0
    for c in range(columns):
        for j in range(member_off[c], member_off[c + 1]):
            member[member_audience[j]] = j
        for i in range(off[c], off[c + 1]):
            m = ev[i]
            if m < 0:
                continue
            delivered[m] = c
            j = member[audience[m]]
            if j < member_off[c]:
                forbidden[i] = 1
            elif member_status[j] >= 0:
                forbidden[i] = status[member_status[j] + place[m]] == MUST_NOT
        for j in range(member_off[c], member_off[c + 1]):
            a = member_audience[j]
            for k in range(audience_off[a], audience_off[a + 1]):
                m = audience_messages[k]
                if delivered[m] == c or (own_implied and pub[m] == c):
                    continue
                if member_status[j] >= 0 and status[member_status[j] + k - audience_off[a]] != MUST:
                    continue
                if count == owed.size:
                    grown = np.empty(2 * count, np.int32)
                    grown[:count] = owed
                    owed = grown
                owed[count] = m
                count += 1
        owed_off[c + 1] = count
    return owed_off, owed[:count].copy(), forbidden
