"""The clients that are connected to this broker."""

from __future__ import annotations

from typing import ClassVar

from ordercast.core.ids import NodeId, Origin, Topic, origin_of
from ordercast.core.process import Connection, Peer
from ordercast.core.state import State
from ordercast.pubsub.client_packets import Sealed
from ordercast.pubsub.filters import allows

_SERIALS = 1 << 20


class AttachedClient(State):
    """One connection of a client's session."""

    derived: ClassVar[tuple[str, ...]] = ("_may_publish",)

    def __init__(self, connection: Connection, peer: Peer, attach_no: int) -> None:
        self.connection = connection
        self.name = peer.name
        self.origin: Origin = origin_of(NodeId(peer.name), peer.life)
        self.rights = peer.rights
        self.attach_no = attach_no
        self.asked = 0
        self.sealed: Sealed | None = None
        """Proofs of what its next Resume says."""
        self.patterns: set[str] = set()
        self._may_publish: dict[Topic, bool] = {}

    def next_epoch(self) -> int:
        """Grows with every attach of the session, and with every membership that it asks for on this connection."""
        self.asked += 1
        return self.attach_no * _SERIALS + self.asked

    def may_publish(self, topic: Topic) -> bool:
        known = self._may_publish.get(topic)
        if known is None:
            known = self._may_publish[topic] = allows(self.rights.publish, topic)
        return known

    def may_subscribe(self, topic: Topic) -> bool:
        return allows(self.rights.subscribe, topic)
