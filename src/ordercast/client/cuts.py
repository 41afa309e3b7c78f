"""Asking the tree for a cut that is closed across topics (ARC-C1), again and again until there is one."""

from __future__ import annotations

from typing import ClassVar

from ordercast.client.session import Session
from ordercast.client.settings import ns
from ordercast.core.errors import PeerError
from ordercast.core.state import State
from ordercast.pubsub.client_packets import AskCut, CutTold
from ordercast.pubsub.filters import allows, is_filter

CUT = "cut"


class CutAsks(State):
    """The cuts that an application waits for. Only the last answer of the tree counts, and a refusal is none."""

    constant: ClassVar[tuple[str, ...]] = ("session", "wires", "settings", "app")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.wires = session.wires
        self.settings = session.settings
        self.app = session.app
        self.asks: dict[int, tuple[str, ...]] = {}
        """Topics and filters of each."""
        self.count = 0

    def ask(self, topics: tuple[str, ...]) -> int:
        self.count += 1
        self.asks[self.count] = topics
        self._ask(self.count)
        return self.count

    def _ask(self, number: int) -> None:
        self.session.send(AskCut(number, self.asks[number]))
        self.wires.set_timer((CUT, number), ns(self.settings.request_ms))

    def give_up(self, number: int) -> None:
        """Nobody waits for it any more."""
        if self.asks.pop(number, None) is not None:
            self.wires.cancel_timer((CUT, number))

    def edge_found(self) -> None:
        for number in self.asks:
            self._ask(number)

    def timer(self, number: int) -> None:
        if number in self.asks:
            self._ask(number)

    def told(self, packet: CutTold) -> None:
        topics = self.asks.get(packet.number)
        if topics is None:
            return
        filters = [name for name in topics if is_filter(name)]
        if not all(allows(filters, topic) for topic in packet.cuts.keys() - set(topics)):
            raise PeerError(self.session.edge.broker, "told a cut of a topic that nobody asked for")
        if not packet.why_not:
            self.give_up(packet.number)
        self.app.cut_told(packet.number, packet.cuts, packet.why_not)
