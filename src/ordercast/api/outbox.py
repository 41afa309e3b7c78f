"""The client's outbox, counted: how much waits for the broker tree, and whether more may be published."""

from __future__ import annotations

from collections.abc import Mapping

from ordercast.api.errors import OutboxFull
from ordercast.client.membership import Membership
from ordercast.core.ids import Topic

LARGE_BYTES = 4096
"""Payloads above this count in bytes too; of smaller ones, their number says enough."""
HARD_LIMIT = 8
"""So many times the limits may be published without ever waiting for room."""


class OutboxRoom:
    """The outboxes of all topics together, limited in publications and in bytes of large payloads.

    Bytes are added up as they are published, and counted anew only when that sum has reached the limit.
    """

    def __init__(self, topics: Mapping[Topic, Membership], most: int, most_bytes: int) -> None:
        self.most = most
        self.heavy = False
        """As many bytes of large payloads as may wait, or more, have been published since they were last counted."""
        self._topics = topics
        self._most_bytes = most_bytes
        self._bytes = 0

    @property
    def count(self) -> int:
        """Publications that wait: not echoed, or not stable."""
        return sum(len(membership.outbox) for membership in self._topics.values())

    def add_large(self, size: int) -> None:
        """One with so large a payload is about to be published; OutboxFull if the application never waits for room."""
        most = HARD_LIMIT * self._most_bytes - size
        if self._bytes > most and self._count_bytes() > most:
            raise OutboxFull(f"outbox: {self._bytes} bytes wait for the broker tree; await client.drain()")
        self._bytes += size
        self.heavy = self._bytes >= self._most_bytes

    def is_full(self) -> bool:
        return self.count >= self.most or (self.heavy and self._count_bytes() >= self._most_bytes)

    def enough(self) -> int:
        """With fewer publications than this there is room again: half of what may wait."""
        if not self.heavy:
            return max(1, self.most // 2)
        return max(1, self.count * self._most_bytes // (2 * self._bytes))

    def _count_bytes(self) -> int:
        waiting = [entry.payload for membership in self._topics.values() for entry in membership.outbox.values()]
        self._bytes = sum([len(payload) for payload in waiting if len(payload) > LARGE_BYTES])
        self.heavy = self._bytes >= self._most_bytes
        return self._bytes
