"""Total order per key over a run's columns: one key at a time, keys never interact."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ordercast.verify.kernels import acyclic, total
from ordercast.verify.kernels.jit import NEVER

if TYPE_CHECKING:
    from ordercast.verify.columns import Arrays
    from ordercast.verify.kernels.jit import Flags, Ints, Offsets

Finding = tuple[int, int, int, int, int, int]
"""Message, receiver that disagrees, key, kind, total message, receiver that has the message before it."""
NOBODY = -1
_AT_ONCE = 50_000_000
"""Deliveries by key that one task has in memory, about: 13 bytes each."""


def hot_keys(arrays: Arrays) -> Ints:
    """The keys that a total message has; all others order nothing."""
    total_message = np.repeat(arrays.held("total"), np.diff(arrays.key_off)) != 0
    return np.unique(arrays.keys[total_message])


def keys_at_once(arrays: Arrays) -> int:
    """As many keys as one task takes: so many that the logs are not read often, and their deliveries fit."""
    deliveries = arrays.ev.size * max(arrays.keys.size / max(arrays.messages, 1), 1.0)
    return max(int(hot_keys(arrays).size * _AT_ONCE / max(deliveries, 1.0)), 1)


def judge_keys(arrays: Arrays, first: int, last: int) -> tuple[int, list[Ints]]:
    """Judge the hot keys from `first` to before `last`: deliveries looked at, and the findings as columns."""
    return judge_keyed(*by_key(arrays, hot_keys(arrays)[first:last]))


class Keyed(NamedTuple):
    """Events by key, receiver and place; `start` says where each key of `keys` begins."""

    keys: Ints
    start: Offsets
    receiver: Ints
    message: Ints
    place: Ints
    """Of a delivery: where in the receiver's log. Of what was owed and never came: up to where it was."""
    is_total: Flags


def by_key(arrays: Arrays, keys: Ints) -> tuple[Keyed, Keyed]:
    """The deliveries of the messages of these keys, and what was owed of them and never delivered."""
    renumbered = np.full(arrays.key_topic.size, -1, np.int32)
    renumbered[keys] = np.arange(keys.size)
    of_message = renumbered[arrays.keys]
    is_total = arrays.held("total")
    start, receiver, message, place = total.deliveries_by_key(
        arrays.ev, arrays.off, arrays.key_off, of_message, 0, keys.size
    )
    delivered = Keyed(keys, start, receiver, message, place, is_total[message])
    missed_off, missed, due = arrays.owed()
    start, receiver, message, place = total.deliveries_by_key(
        missed, missed_off, arrays.key_off, of_message, 0, keys.size
    )
    return delivered, Keyed(keys, start, receiver, message, due[missed_off[receiver] + place], is_total[message])


def judge_keyed(delivered: Keyed, lacking: Keyed) -> tuple[int, list[Ints]]:
    """Judge keys whose deliveries by all receivers are here: deliveries looked at, and the findings as columns."""
    deliveries, suspicious = total.glance(
        delivered.start, lacking.start, delivered.receiver, delivered.message, delivered.is_total
    )
    findings: list[Finding] = []
    for k in np.flatnonzero(suspicious):
        mine = slice(delivered.start[k], delivered.start[k + 1])
        lacks = slice(lacking.start[k], lacking.start[k + 1])
        _, _, receiver, message, place, is_total = delivered
        one = _OneKey(int(delivered.keys[k]), receiver[mine], message[mine], place[mine], is_total[mine])
        findings += one.findings(lacking.receiver[lacks], lacking.message[lacks], lacking.place[lacks])
    columns = np.array(findings, np.int32).reshape(-1, 6)
    return deliveries, list(columns.T)


def renumbered(numbers: Ints) -> tuple[Ints, Ints]:
    """The different numbers, rising, and for each entry the place of its own."""
    if not numbers.size:
        return numbers, numbers
    least, most = int(numbers.min()), int(numbers.max())
    if most - least > 4 * numbers.size:
        ids, local = np.unique(numbers, return_inverse=True)
        return ids, local.astype(np.int32)
    there = np.zeros(most - least + 1, bool)
    there[numbers - least] = True
    place = np.cumsum(there, dtype=np.int32) - np.int32(1)
    return (np.flatnonzero(there) + least).astype(np.int32), place[numbers - least]


class _OneKey:
    """The deliveries of one key, with its messages renumbered from 0."""

    def __init__(self, key: int, receiver: Ints, message: Ints, place: Ints, is_total: Flags) -> None:
        self.key = key
        self.ids, self.message = renumbered(message)
        self.place = place
        self.run = total.runs(receiver)
        self.receivers = receiver[self.run[:-1]]
        self.synchronises = np.empty(self.ids.size, np.uint8)
        self.synchronises[self.message] = is_total

    def findings(self, lack_receiver: Ints, lack_message: Ints, lack_due: Ints) -> list[Finding]:
        rank, ordered = total.total_ranks(self.run, self.message, self.synchronises, self.ids.size)
        if not ordered:
            stuck = int(self.ids[(rank < 0) & (self.synchronises != 0)][0])
            return [(stuck, NOBODY, self.key, total.CYCLE, stuck, NOBODY)]
        low, high = total.intervals(self.run, self.message, self.synchronises, rank)
        lacking = self._lacking(lack_receiver, lack_message, lack_due, high, rank)
        suspects = sorted({*np.flatnonzero(low >= high).tolist(), *lacking})
        if not suspects:
            return []
        at = acyclic.occurrences(self.message, self.run, self.ids.size)
        scratch = np.full((2, self.ids.size), -1, np.int32)
        found = []
        for m in suspects:
            lacks = np.array(lacking.get(m, []), np.int64).reshape(-1, 2)
            kind, t, agrees, differs = total.disagreement(
                m, self.run, self.message, self.synchronises, rank, *at, int(low[m]), int(high[m]),
                lacks[:, 0].astype(np.int32), lacks[:, 1].copy(), *scratch,
            )  # fmt: skip
            if kind >= 0:
                before, after = int(self.receivers[agrees]), int(self.receivers[differs])
                found.append((int(self.ids[m]), after, self.key, kind, int(self.ids[t]), before))
        return found

    def _lacking(
        self, receiver: Ints, message: Ints, due: Ints, high: Ints, rank: Ints
    ) -> dict[int, list[tuple[int, int]]]:
        """By message: the runs that owed it and never delivered it, and where in the run they ceased to owe it.

        Only those that delivered, while they owed it, a total message that could follow it.
        """
        local = np.searchsorted(self.ids, message)
        run = np.searchsorted(self.receivers, receiver)
        known = np.flatnonzero((local < self.ids.size) & (run < self.receivers.size))
        same = (self.ids[local[known]] == message[known]) & (self.receivers[run[known]] == receiver[known])
        known = known[same & (high[local[known]] < NEVER)]
        found: dict[int, list[tuple[int, int]]] = {}
        ends: dict[tuple[int, int], tuple[int, int]] = {}
        for i, r, last in zip(local[known].tolist(), run[known].tolist(), due[known].tolist(), strict=True):
            if (r, last) not in ends:
                begin = int(self.run[r])
                end = begin + int(np.searchsorted(self.place[begin : self.run[r + 1]], last))
                ends[r, last] = end, total.highest(begin, end, self.message, self.synchronises, rank)
            end, highest = ends[r, last]
            if highest >= high[i]:
                found.setdefault(i, []).append((r, end))
        return found
