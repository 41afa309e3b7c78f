"""Processes without a vector whose every decision is compared with one that only the test keeps."""

from __future__ import annotations

from typing import ClassVar

from ordercast.core.ids import Origin
from ordercast.core.messages import Message
from ordercast.core.process import Connection
from ordercast.protocols.preventive.broadcast import Broadcast
from ordercast.protocols.preventive.delivery_log import DeliveryLog
from ordercast.protocols.preventive.memory import LinkMemory, ShortLog
from ordercast.protocols.preventive.packets import Counts, Data
from ordercast.protocols.preventive.remembering import Remembering
from ordercast.protocols.preventive.remembering_broadcast import RememberingBroadcast


class WatchedLog(ShortLog):
    """Keeps the vector, too, so that invariants can be looked at; nobody decides by it."""

    def append(self, message: Message) -> None:
        DeliveryLog.append(self, message)

    def evict(self, keep: int, pinned: int) -> None:
        DeliveryLog.evict(self, keep, pinned)

    def counts(self) -> Counts:
        return DeliveryLog.counts(self)

    def inherit(self, received: Counts, *, forgetful: bool) -> None:
        super().inherit(received, forgetful=forgetful)
        DeliveryLog.inherit(self, received, forgetful=forgetful)


class WatchedBroadcast(RememberingBroadcast):
    """A memory that disagrees with the vector is an AssertionError."""

    log_type: ClassVar[type[DeliveryLog]] = WatchedLog

    def receive(self, source: Connection, peer: Origin, packet: Data) -> None:
        message, last = packet.message, self.log.received.get(packet.message.origin, 0)
        told = (message.origin, message.number) in self.memory.expected[source]
        assert told == (message.number <= last), f"{message.id} from {peer} after {last}: a copy? {told}"
        assert message.number <= last + 1, f"{message.id} from {peer} after {last}: a gap"
        super().receive(source, peer, packet)


class Watched(Remembering):
    """The machine of every test of memories."""

    broadcast_type: ClassVar[type[Broadcast]] = WatchedBroadcast


class _NothingMet(LinkMemory):
    def open(self, connection: Connection, *_: object) -> None:
        super().open(connection)


class _NothingMetBroadcast(WatchedBroadcast):
    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self.memory = _NothingMet()


class NothingMet(Watched):
    """A mistake: a new link begins with an empty memory, as if links never changed."""

    broadcast_type: ClassVar[type[Broadcast]] = _NothingMetBroadcast
