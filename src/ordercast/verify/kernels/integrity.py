"""Integrity: nothing delivered twice, and nothing by a node that was no subscriber; and what each node was owed."""

from __future__ import annotations

import numpy as np

from ordercast.verify.kernels.jit import NEVER, Flags, Ints, Offsets, kernel

MUST_NOT, MAY, MUST, OWED = 0, 1, 2, 3
"""What a message is to a membership. OWED + n: it was owed in the membership's stay of that number, which has ended."""


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
def _delivered(
    c: int, ev: Ints, off: Offsets, audience: Ints, place: Ints, member: Offsets, first: int, member_status: Offsets,
    status: Flags, delivered: Ints, forbidden: Flags,
) -> int:  # fmt: skip
    """Note what log `c` delivered, and flag what was not for it; how many of them it owed."""
    made = 0
    for i in range(off[c], off[c + 1]):
        m = ev[i]
        if m < 0:
            continue
        delivered[m] = c
        j = member[audience[m]]
        if j < first:
            forbidden[i] = 1
        elif member_status[j] >= 0:
            what = status[member_status[j] + place[m]]
            forbidden[i] = what == MUST_NOT
            made += what >= MUST
        else:
            made += 1
    return made


@kernel
def owed_and_forbidden(
    ev: Ints, off: Offsets, pub: Ints, audience: Ints, place: Ints, audience_off: Offsets, audience_messages: Ints,
    member_off: Offsets, member_audience: Ints, member_status: Offsets, member_stay: Offsets, status: Flags,
    stay_due: Ints, stay_asked: Flags, own_implied: bool, alive: Flags, gone_ns: Offsets, published_ns: Offsets,
) -> tuple[Offsets, Ints, Ints, Flags, Flags, int, int]:  # fmt: skip
    """Duties not kept, deliveries to the wrong receiver, and how many duties were made and are excused.

    Of what each log owed and did not deliver: up to which place, and whether it is asked for in the end. A log's
    memberships name an audience, where its statuses begin, one per message of the audience (-1 for a membership that
    holds from beginning to end), and where its stays do. `own_implied`: the trace records no node's delivery to itself.
    `published_ns` is empty where there is no common clock.
    """
    columns = off.size - 1
    forbidden = np.zeros(ev.size, np.uint8)
    delivered = np.full(pub.size, -1, np.int32)
    member = np.full(audience_off.size, -1, np.int64)
    owed_off = np.zeros(columns + 1, np.int64)
    owed = np.empty(1024, np.int32)
    due = np.empty(1024, np.int32)
    asked = np.empty(1024, np.uint8)
    count = 0
    made = 0
    excused = 0
    for c in range(columns):
        for j in range(member_off[c], member_off[c + 1]):
            member[member_audience[j]] = j
        made += _delivered(
            c, ev, off, audience, place, member, member_off[c], member_status, status, delivered, forbidden
        )
        for j in range(member_off[c], member_off[c + 1]):
            a = member_audience[j]
            for k in range(audience_off[a], audience_off[a + 1]):
                m = audience_messages[k]
                if delivered[m] == c or (own_implied and pub[m] == c):
                    continue
                what = MUST
                if member_status[j] >= 0:
                    what = int(status[member_status[j] + k - audience_off[a]])
                if what < MUST:
                    continue
                if count == owed.size:
                    owed = np.concatenate((owed, np.empty(count, np.int32)))
                    due = np.concatenate((due, np.empty(count, np.int32)))
                    asked = np.concatenate((asked, np.empty(count, np.uint8)))
                owed[count] = m
                if what == MUST:
                    due[count] = NEVER
                    asked[count] = alive[c]
                    excused += alive[c] == 0 and (published_ns.size == 0 or published_ns[m] <= gone_ns[c])
                else:
                    due[count] = stay_due[member_stay[j] + what - OWED]
                    asked[count] = stay_asked[member_stay[j] + what - OWED]
                    excused += asked[count] == 0
                count += 1
        owed_off[c + 1] = count
    return owed_off, owed[:count].copy(), due[:count].copy(), asked[:count].copy(), forbidden, made, excused
