"""The received-set of a replica on one topic: sessions one by one while they last, closed ones in intervals (BRK-F7).

A closed session has ended, and everything of it was taken by everybody who was there: this replica, too, if it was. To
say so in an interval instead of a row is to say the same in less space, so replicas need not do it at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ordercast.core.ids import Origin, Topic, plain_origin, ticket_of
from ordercast.pubsub.closed import Closed, ClosedSessions
from ordercast.pubsub.cuts import closed_in, plain
from ordercast.pubsub.received import Received, Summary, Vector

Changes = dict[str, bytes | None]
_NONE: Mapping[Origin, Origin] = {}
_decode_closed = msgspec.msgpack.Decoder(Closed).decode


class _SessionRow(msgspec.Struct, array_like=True):
    """A session in the store. Rows from before there were tickets have none, and stay."""

    low: int
    extras: tuple[int, ...]
    origin: str = ""
    """The session's whole name, with the ticket."""


_decode_row = msgspec.msgpack.Decoder(_SessionRow).decode


class TopicReceived:
    """Sessions have the names here that they have from their beginning; `origins` has those with tickets."""

    def __init__(
        self, summary: Summary | None = None, origins: Mapping[Origin, Origin] = _NONE, closed: Closed | None = None
    ) -> None:  # fmt: skip
        self.received = Received(summary)
        self.origins = dict(origins)
        self.closed = ClosedSessions(closed)

    @classmethod
    def read(cls, rows: Mapping[str, bytes], closed: bytes | None) -> TopicReceived:
        """What `rows` and `closed_row` have made of one, by the sessions' names."""
        found = {Origin(name): _decode_row(value) for name, value in rows.items()}
        return cls(
            {name: (row.low, row.extras) for name, row in found.items()},
            {name: Origin(row.origin) for name, row in found.items() if row.origin},
            _decode_closed(closed) if closed is not None else None,
        )

    def has(self, origin: Origin, number: int) -> bool:
        return (plain_origin(origin), number) in self.received or origin in self.closed

    def add(self, origin: Origin, number: int) -> Origin:
        """Gives the name of the row that has changed."""
        name = plain_origin(origin)
        self.received.add(name, number)
        if name != origin:
            self.origins[name] = origin
        return name

    def contains(self, base: Vector) -> bool:
        """Whether everything in the cut is here; of a session that is closed there and counted here nobody can tell."""
        return self.contains_counted(base) and self.closed.has_all(closed_in(base))

    def contains_counted(self, base: Vector) -> bool:
        """The same, without a look at the closed sessions of the cut."""
        low = self.received.low.get
        return all(low(plain_origin(o), 0) >= number or o in self.closed for o, number in plain(base).items())

    def fold(self, closed: Closed) -> list[Origin] | None:
        """Everything of these sessions is here. The names of the rows that go; None: all of it was known."""
        if not self.closed.merge(closed):
            return None
        gone = [name for name, origin in self.origins.items() if origin in self.closed]
        for name in gone:
            del self.origins[name]
            self.received.forget(name)
        return gone

    def row(self, name: Origin) -> bytes:
        extras = tuple(sorted(self.received.extras.get(name, ())))
        return msgspec.msgpack.encode(_SessionRow(self.received.low.get(name, 0), extras, self.origins.get(name, "")))

    def closed_row(self) -> bytes:
        return msgspec.msgpack.encode(self.closed.summary())

    def rows(self, topic: Topic) -> Changes:
        """All of it, for a store."""
        rows: Changes = {received_prefix(topic) + name: self.row(name) for name in self.received.summary()}
        return rows | {closed_key(topic): self.closed_row()}


_LONGEST_NAME = 1000


def is_origin_of(name: Origin, origin: Origin) -> bool:
    """Whether the second can be the name with a ticket of a session that began with the first."""
    known = len(origin) <= _LONGEST_NAME and plain_origin(origin) == name
    return known and ticket_of(origin) is not None


def received_prefix(topic: Topic) -> str:
    return f"r {topic} "


def closed_key(topic: Topic) -> str:
    return f"m {topic} closed"


def session_key(topic: Topic) -> str:
    return f"m {topic} session"
