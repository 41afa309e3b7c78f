"""Link memory: what is to come over each incoming link tells copies from news, without a vector (PRV-9.2, PRV-9.3).

Over a link that is in use every message comes exactly once, because its sender sends all that it delivers, also back to
where it came from. So what was delivered here and did not come over a link yet is a copy when it comes; the memory is
as long as what is under way, whoever published it, and empty at rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from ordercast.core.ids import Origin
from ordercast.core.messages import Message
from ordercast.core.process import Connection
from ordercast.core.state import State
from ordercast.protocols.preventive.delivery_log import DeliveryLog
from ordercast.protocols.preventive.packets import Counts

Key = tuple[Origin, int]


class LinkMemory(State):
    """The memories of all incoming links of a process that are in use."""

    def __init__(self) -> None:
        self.expected: dict[Connection, set[Key]] = {}
        """By link: what was delivered here and will come over it."""
        self.filling: dict[Connection, int] = {}
        """So many messages are to come that were collected before the link was in use."""
        self.settled: dict[Connection, set[Key]] = {}
        """What comes among those or never."""

    def open(
        self, connection: Connection, delivered: Iterable[Message] = (), settled: Iterable[Message] = (), count: int = 0
    ) -> None:
        """A link is in use. `delivered` here is still to come, but for `settled`: that is among the next `count`."""
        self.expected[connection] = {_key(message) for message in delivered}
        self.settled[connection] = {_key(message) for message in settled}
        self.filling[connection] = count
        self._settle(connection)

    def close(self, connection: Connection) -> None:
        """Nothing comes over this link any more."""
        for part in (self.expected, self.filling, self.settled):
            part.pop(connection, None)

    def delivered(self, message: Message, source: Connection) -> None:
        """A message was delivered that came over the link `source`: it will come over all others."""
        key = _key(message)
        for connection, expected in self.expected.items():
            if connection != source:
                expected.add(key)

    def is_copy(self, connection: Connection, message: Message) -> bool:
        """Whether the message that came over this link was delivered before; it will not come over it again."""
        expected, key = self.expected[connection], _key(message)
        known = key in expected
        expected.discard(key)
        if self.filling[connection]:
            self.filling[connection] -= 1
            self._settle(connection)
        return known

    def _settle(self, connection: Connection) -> None:
        if not self.filling[connection]:
            self.expected[connection] -= self.settled[connection]
            self.settled[connection].clear()

    @property
    def entries(self) -> int:
        """The number of remembered entries in all."""
        return sum(map(len, self.expected.values()))


class ShortLog(DeliveryLog):
    """The latest messages in the order of delivery, without a word on what came before."""

    durable: ClassVar[tuple[str, ...]] = (*DeliveryLog.durable, "inherited")

    def __init__(self) -> None:
        super().__init__()
        self.inherited = False
        """Whether this process began with the state of another."""

    @property
    def whole(self) -> bool:
        return not self.inherited and not self.first

    @property
    def empty(self) -> bool:
        return not self.inherited and not self.end

    @property
    def total(self) -> int:
        return self.end

    def append(self, message: Message) -> None:
        self.kept.append(message)
        self.end += 1

    def inherit(self, received: Counts, *, forgetful: bool) -> None:  # noqa: ARG002
        self.inherited = True

    def evict(self, keep: int, pinned: int) -> None:
        for _ in range(min(len(self.kept) - keep, pinned - self.first)):
            self.kept.popleft()


def _key(message: Message) -> Key:
    return message.origin, message.number
