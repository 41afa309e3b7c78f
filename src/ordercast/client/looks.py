"""Looking for the kept topics of filters (ARC-K1), at whatever edge there is: names, and no membership."""

from __future__ import annotations

from typing import ClassVar

from ordercast.client.session import Session
from ordercast.core.errors import PeerError
from ordercast.core.ids import Topic
from ordercast.core.state import State
from ordercast.pubsub.client_packets import KeptFound, LookFor, LookNoMore
from ordercast.pubsub.filters import matches


class Looks(State):
    """The filters of which the application wants to know the kept topics."""

    constant: ClassVar[tuple[str, ...]] = ("session", "edge", "app")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.edge = session.edge
        self.app = session.app
        self.found: dict[str, tuple[Topic, ...]] = {}
        """Filters, and what came of an answer whose end has not come."""

    def look(self, pattern: str) -> None:
        if pattern not in self.found:
            self.found[pattern] = ()
            self._ask(pattern)

    def _ask(self, pattern: str) -> None:
        if self.edge.attached:
            self.session.send(LookFor(pattern))

    def unlook(self, pattern: str) -> None:
        if self.found.pop(pattern, None) is not None:
            self.session.send(LookNoMore(pattern))

    def edge_found(self) -> None:
        for pattern in sorted(self.found):
            self.found[pattern] = ()
            self._ask(pattern)

    def told(self, packet: KeptFound) -> None:
        before = self.found.get(packet.pattern)
        if before is None:
            return
        if not all(matches(packet.pattern, topic) for topic in packet.topics):
            raise PeerError(self.edge.broker, f"told of a topic that {packet.pattern} does not take in")
        found = before + packet.topics
        self.found[packet.pattern] = found if packet.more else ()
        if not packet.more:
            self.app.kept_found(packet.pattern, found, packet.why_not)
