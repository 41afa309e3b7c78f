"""Total order per key over a run's columns: one key at a time, keys never interact."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ordercast.verify.kernels import acyclic, total

if TYPE_CHECKING:
    from ordercast.verify.columns import Arrays
    from ordercast.verify.kernels.jit import Flags, Ints

Finding = tuple[int, int, int, int, int, int]
"""Message, receiver that disagrees, key, kind, total message, receiver that has the message before it."""
NOBODY = -1


def hot_keys(arrays: Arrays) -> Ints:
    """The keys that a total message has; all others order nothing."""
    total_message = np.repeat(arrays.held("total"), np.diff(arrays.key_off)) != 0
    return np.unique(arrays.keys[total_message])


def judge_keys(arrays: Arrays, first: int, last: int, *, drained: bool) -> tuple[int, list[Ints]]:
    """Judge the hot keys from `first` to before `last`: deliveries looked at, and the findings as columns."""
    keys = hot_keys(arrays)[first:last]
    renumbered = np.full(arrays.key_topic.size, -1, np.int32)
    renumbered[keys] = np.arange(keys.size)
    of_message = renumbered[arrays.keys]
    start, receiver, message = total.deliveries_by_key(arrays.ev, arrays.off, arrays.key_off, of_message, 0, keys.size)
    # Before the drain, a message that is missing may still be on its way.
    owed_off, owed = arrays.owed() if drained else (np.zeros(arrays.off.size, np.int64), np.empty(0, np.int32))
    lack_start, lack_receiver, lack_message = total.deliveries_by_key(
        owed, owed_off, arrays.key_off, of_message, 0, keys.size
    )
    is_total = arrays.held("total")
    findings: list[Finding] = []
    for k, key in enumerate(keys):
        mine, lacks = slice(start[k], start[k + 1]), slice(lack_start[k], lack_start[k + 1])
        one = _OneKey(int(key), receiver[mine], message[mine], is_total)
        findings += one.findings(lack_receiver[lacks], lack_message[lacks])
    columns = np.array(findings, np.int32).reshape(-1, 6)
    return message.size, list(columns.T)


class _OneKey:
    """The deliveries of one key, with its messages renumbered from 0."""

    def __init__(self, key: int, receiver: Ints, message: Ints, is_total: Flags) -> None:
        self.key = key
        self.ids, local = np.unique(message, return_inverse=True)
        self.message = local.astype(np.int32)
        self.run = total.runs(receiver)
        self.receivers = receiver[self.run[:-1]]
        self.synchronises = is_total[self.ids]

    def findings(self, lack_receiver: Ints, lack_message: Ints) -> list[Finding]:
        rank, ordered = total.total_ranks(self.run, self.message, self.synchronises, self.ids.size)
        if not ordered:
            stuck = int(self.ids[(rank < 0) & (self.synchronises != 0)][0])
            return [(stuck, NOBODY, self.key, total.CYCLE, stuck, NOBODY)]
        low, high, top = total.intervals(self.run, self.message, self.synchronises, rank)
        lacking = self._lacking(lack_receiver, lack_message, high, top)
        suspects = sorted({*np.flatnonzero(low >= high).tolist(), *lacking})
        if not suspects:
            return []
        at = acyclic.occurrences(self.message, self.run, self.ids.size)
        scratch = np.full((2, self.ids.size), -1, np.int32)
        found = []
        for m in suspects:
            kind, t, agrees, differs = total.disagreement(
                m, self.run, self.message, self.synchronises, rank, *at, int(low[m]), int(high[m]),
                top, np.array(lacking.get(m, []), np.int32), *scratch,
            )  # fmt: skip
            if kind >= 0:
                before, after = int(self.receivers[agrees]), int(self.receivers[differs])
                found.append((int(self.ids[m]), after, self.key, kind, int(self.ids[t]), before))
        return found

    def _lacking(self, receiver: Ints, message: Ints, high: Ints, top: Ints) -> dict[int, list[int]]:
        """By message: the runs that were owed it and never got it, but did get a total message that could follow it."""
        found: dict[int, list[int]] = {}
        run_of = {int(r): run for run, r in enumerate(self.receivers)}
        local = np.searchsorted(self.ids, message)
        for r, m, i in zip(receiver.tolist(), message.tolist(), local.tolist(), strict=True):
            run = run_of.get(r)
            if run is not None and i < self.ids.size and self.ids[i] == m and top[run] >= high[i]:
                found.setdefault(i, []).append(run)
        return found
