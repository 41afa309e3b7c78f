"""Program order by lines: a publisher's messages are ordered only along the lines (its keys) that they share.

A message is then more than its publisher's previous publication plus what came since. It gets two rows: the even one
carries what its publisher had delivered, own echoes included, and goes on from publication to publication; the odd one
is the message itself, after the even one and after the latest earlier message of each of its lines.
"""

from __future__ import annotations

import numpy as np

from ordercast.verify.kernels.happened import _walk
from ordercast.verify.kernels.jit import Ints, Offsets, kernel


@kernel
def rows_by_line(
    log: Ints, log_off: Offsets, chain: Ints, at: Offsets, prev: Ints, begin: Offsets, line_off: Offsets, lines: Ints,
    count: int,
) -> tuple[Ints, Offsets, Ints]:  # fmt: skip
    """Per row of the causal kernel, two a message: the row it goes on from, and the further ones it reads."""
    messages = chain.size
    echo = _echoes(log, log_off, chain, at)
    row_prev = np.full(2 * messages, -1, np.int32)
    edge_off = np.zeros(2 * messages + 1, np.int64)
    edges = np.empty(log.size + lines.size, np.int32)
    stamp = np.full(count, -1, np.int32)
    latest = np.zeros(count, np.int32)
    last = np.full(count, -1, np.int32)
    k = 0
    for m in range(messages):
        if prev[m] >= 0:
            row_prev[2 * m] = 2 * prev[m]
        k = _delivered(m, log, begin[m], at[m], line_off, lines, stamp, latest, edges, k)
        edge_off[2 * m + 1] = k
        row_prev[2 * m + 1] = 2 * m
        first = k
        for j in range(line_off[m], line_off[m + 1]):
            earlier = last[lines[j]]
            last[lines[j]] = m
            if earlier < 0 or echo[earlier] < at[m]:
                continue  # An echo that is back is among the delivered.
            known = False
            for i in range(first, k):
                known = known or edges[i] == 2 * earlier + 1
            if not known:
                edges[k] = 2 * earlier + 1
                k += 1
        edge_off[2 * m + 2] = k
    return row_prev, edge_off, edges[:k].copy()


@kernel
def _echoes(log: Ints, log_off: Offsets, chain: Ints, at: Offsets) -> Offsets:
    """The place where each message's own publisher delivered it; behind everything if it never did."""
    echo = np.full(at.size, log.size, np.int64)
    for g in range(log_off.size - 1):
        for i in range(log_off[g], log_off[g + 1]):
            if log[i] >= 0 and chain[log[i]] == g:
                echo[log[i]] = i
    return echo


@kernel
def _delivered(
    m: int, log: Ints, begin: int, end: int, line_off: Offsets, lines: Ints, stamp: Ints, latest: Ints, edges: Ints,
    k: int,
) -> int:  # fmt: skip
    """Append to `edges` what the slice before m delivered, without what a later message of a line there implies."""
    for i in range(begin, end):
        e = log[i]
        if e >= m:
            continue  # Delivered before its own publication: integrity reports it, and it orders nothing.
        for j in range(line_off[e], line_off[e + 1]):
            if stamp[lines[j]] != m:
                stamp[lines[j]] = m
                latest[lines[j]] = e
            else:
                latest[lines[j]] = max(latest[lines[j]], e)
    for i in range(begin, end):
        e = log[i]
        implied = e >= m
        for j in range(line_off[e], line_off[e + 1]):
            implied = implied or latest[lines[j]] > e
        if not implied:
            edges[k] = 2 * e + 1
            k += 1
    return k


@kernel
def shortest_chain_by_line(
    log: Ints, log_off: Offsets, chain: Ints, at: Offsets, line_off: Offsets, lines: Ints, member_off: Offsets,
    members: Offsets, target: int, position: Ints, held: int,
) -> Ints:  # fmt: skip
    """As happened.shortest_chain: one hop reaches what the publisher had delivered, or published on a shared line.

    `members` are the messages of each line in order. Each log and each line keeps the end of what it has scanned.
    """
    parent = np.full(chain.size, -1, np.int32)
    scanned = log_off[:-1].copy()
    walked = member_off[:-1].copy()
    queue = np.empty(chain.size, np.int32)
    queue[0] = target
    parent[target] = target
    head, tail = 0, 1
    while head < tail:
        m = queue[head]
        head += 1
        g = chain[m]
        seen = tail
        for i in range(scanned[g], at[m]):
            e = log[i]
            if e >= 0 and e < m and parent[e] < 0:
                parent[e] = m
                queue[tail] = e
                tail += 1
        scanned[g] = max(scanned[g], at[m])
        for j in range(line_off[m], line_off[m + 1]):
            line = lines[j]
            while walked[line] < member_off[line + 1] and members[walked[line]] < m:
                e = members[walked[line]]
                walked[line] += 1
                if parent[e] < 0:
                    parent[e] = m
                    queue[tail] = e
                    tail += 1
        for i in range(seen, tail):
            if position[queue[i]] > held:
                return _walk(parent, queue[i], target)
    return np.empty(0, np.int32)
