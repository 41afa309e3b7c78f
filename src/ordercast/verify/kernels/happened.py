"""Happened-before between messages, as slices of the publishers' own logs.

The direct predecessors of a message are its publisher's previous publication and everything the publisher delivered
since then: a contiguous slice of one log, so no adjacency list is needed. Message numbers grow along happened-before.
"""

from __future__ import annotations

import numpy as np

from ordercast.verify.kernels.jit import Ints, Offsets, kernel


@kernel
def split_logs(ev: Ints, off: Offsets, topic: Ints, topics: int) -> tuple[Ints, Offsets]:
    """Cut each log into one log per topic (number `topics` stands for none), so that no chain runs through two."""
    log = np.empty(ev.size, np.int32)
    starts = [np.int64(0)]
    count = np.zeros(topics + 1, np.int64)
    cursor = np.zeros(topics + 1, np.int64)
    for c in range(off.size - 1):
        count[:] = 0
        for i in range(off[c], off[c + 1]):
            count[topic[ev[i] if ev[i] >= 0 else ~ev[i]]] += 1
        at = off[c]
        for t in range(topics + 1):
            cursor[t] = at
            at += count[t]
            if count[t] > 0:
                starts.append(at)
        for i in range(off[c], off[c + 1]):
            t = topic[ev[i] if ev[i] >= 0 else ~ev[i]]
            log[cursor[t]] = ev[i]
            cursor[t] += 1
    return log, np.array(starts)


@kernel
def publications(log: Ints, log_off: Offsets, messages: int) -> tuple[Ints, Offsets, Ints, Offsets]:
    """Per message: the log it was published in, where, the previous publication there, and where its slice begins."""
    chain = np.full(messages, -1, np.int32)
    at = np.full(messages, -1, np.int64)
    prev = np.full(messages, -1, np.int32)
    begin = np.zeros(messages, np.int64)
    for g in range(log_off.size - 1):
        last = np.int32(-1)
        start = log_off[g]
        for i in range(log_off[g], log_off[g + 1]):
            if log[i] < 0:
                m = ~log[i]
                chain[m] = g
                at[m] = i
                prev[m] = last
                begin[m] = start
                last = m
                start = i + 1
    return chain, at, prev, begin


@kernel
def prune(log: Ints, chain: Ints, at: Offsets, begin: Offsets, logs: int) -> tuple[Offsets, Ints]:
    """The predecessors of each message that are not implied by others of its slice.

    Of one publisher only the latest in the publisher's own order stays, which need not be the one delivered last.
    Own messages are implied by the previous publication. A predecessor with a higher number was delivered before its
    own publication; integrity reports it, and it orders nothing.
    """
    messages = chain.size
    total = np.int64(0)
    for m in range(messages):
        total += at[m] - begin[m]
    edges = np.empty(total, np.int32)
    edge_off = np.zeros(messages + 1, np.int64)
    seen = np.full(logs, -1, np.int32)
    where = np.zeros(logs, np.int64)
    k = np.int64(0)
    for m in range(messages):
        for i in range(begin[m], at[m]):
            e = log[i]
            g = chain[e]
            if e >= m or g == chain[m]:
                continue
            if seen[g] != m:
                seen[g] = m
                where[g] = k
                edges[k] = e
                k += 1
            elif e > edges[where[g]]:
                edges[where[g]] = e
        edge_off[m + 1] = k
    return edge_off, edges[:k].copy()


@kernel
def stored_rows(prev: Ints, edge_off: Offsets, edges: Ints) -> tuple[Ints, int]:
    """Give each message a row in a store, free again once nobody reads it any more; and how many rows that takes.

    Whom `prev` and `edges` name, they name by their rows afterwards. A message that is the last to read the row of the
    previous publication goes on in it; otherwise its row is another one than those it reads.
    """
    left = _readers(prev, edges)
    row = np.empty(prev.size, np.int32)
    free = np.empty(16, np.int32)
    frees = 0
    most = 0
    for m in range(prev.size):
        p = prev[m]
        if p >= 0:
            left[p] -= 1
            prev[m] = row[p]
        if p >= 0 and left[p] == 0:
            row[m] = row[p]
        elif frees > 0:
            frees -= 1
            row[m] = free[frees]
        else:
            row[m] = most
            most += 1
            if most > free.size:
                free = np.concatenate((free, np.empty_like(free)))
        for i in range(edge_off[m], edge_off[m + 1]):
            e = edges[i]
            edges[i] = row[e]
            left[e] -= 1
            if left[e] == 0:
                free[frees] = row[e]
                frees += 1
        if left[m] == 0:
            free[frees] = row[m]
            frees += 1
    return row, most


@kernel
def _readers(prev: Ints, edges: Ints) -> Ints:
    """How many later messages read each message's row."""
    readers = np.zeros(prev.size, np.int32)
    for p in prev:
        if p >= 0:
            readers[p] += 1
    for e in edges:
        readers[e] += 1
    return readers


@kernel
def known_marks(
    first: int, pub: Ints, place: Ints, row: Ints, before: Ints, edge_off: Offsets, edges: Ints,
    mark_off: Offsets, bit: Offsets, mark: Ints, store: Offsets, messages: Ints, at: int, known: Offsets,
) -> None:  # fmt: skip
    """Per message a bit for each of up to 62 marks (places in logs): is it in the message's causal past?

    The marks of log g are `mark[mark_off[g]:mark_off[g + 1]]`, with their bits. A mark is known to whatever its log
    publishes from there on; `place` is where in its publisher's log a message was published. The messages are those of
    one stretch, from `first` on; `known` is told of those that are among `messages`, from entry `at` on.
    """
    for m in range(row.size):
        bits = store[before[m]] if before[m] >= 0 else np.int64(0)
        for i in range(edge_off[m], edge_off[m + 1]):
            bits |= store[edges[i]]
        for k in range(mark_off[pub[m]], mark_off[pub[m] + 1]):
            if place[m] >= mark[k]:
                bits |= np.int64(1) << bit[k]
        store[row[m]] = bits
        if at < messages.size and messages[at] == first + m:
            known[at] = bits
            at += 1


@kernel
def shortest_chain(
    log: Ints, log_off: Offsets, chain: Ints, at: Offsets, target: int, position: Ints, held: int
) -> Ints:
    """The fewest messages m1 -> ... -> `target` such that m1 comes after `held` in `position`; empty if there is none.

    Breadth-first and backwards. One hop reaches everything that the publisher did before, so each log keeps the end of
    the prefix it has scanned and every event is scanned at most once.
    """
    parent = np.full(chain.size, -1, np.int32)
    scanned = log_off[:-1].copy()
    queue = np.empty(chain.size, np.int32)
    queue[0] = target
    parent[target] = target
    head, tail = 0, 1
    while head < tail:
        m = queue[head]
        head += 1
        g = chain[m]
        for i in range(scanned[g], at[m]):
            e = log[i] if log[i] >= 0 else ~log[i]
            if parent[e] >= 0 or e > m:
                continue
            parent[e] = m
            if position[e] > held:
                return _walk(parent, e, target)
            queue[tail] = e
            tail += 1
        scanned[g] = max(scanned[g], at[m])
    return np.empty(0, np.int32)


@kernel
def _walk(parent: Ints, start: int, target: int) -> Ints:
    length = 1
    m = start
    while m != target:
        m = parent[m]
        length += 1
    path = np.empty(length, np.int32)
    m = start
    for i in range(length):
        path[i] = m
        m = parent[m]
    return path
