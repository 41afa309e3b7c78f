"""Brokers and clients that fold ended sessions without one of the guards of BRK-F4 to BRK-F9.

Without the second round it takes a rarer schedule to go wrong: it is made by hand in
tests/unit/broker/test_topics_folding.py.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ordercast.broker.node import Broker
from ordercast.broker.topics.sessions.folding import Folding
from ordercast.broker.topics.topics import Topics
from ordercast.client.machine import ClientMachine
from ordercast.core.ids import Origin, Topic
from ordercast.pubsub.client_packets import SessionsClosed
from ordercast.pubsub.closed import Closed
from ordercast.sim.pubsub.parts import Parts
from tests.support.pubsub_folding import folding_client


def _folding(kind: type[Folding]) -> Parts:
    topics = type("Broken", (Topics,), {"folding_type": kind})
    return Parts(broker=type("Broken", (Broker,), {"topics_type": topics}), client=folding_client)


class NothingIsHeld(Folding):
    """BRK-F4: what brokers have in logs, pending or as orphans does not matter."""

    def held_here(self) -> set[Origin]:
        return set()

    def _left_nothing(self, origin: Origin) -> bool:
        return True


class NobodyIsMissed(Folding):
    """BRK-F5: the round does not wait for a broker that is away."""

    def all_answered(self) -> bool:
        return True


class NobodyIsAway(Folding):
    """BRK-F6: members that are away with a history do not matter."""

    def all_are_here(self, topic: Topic) -> bool:
        return True


class Forgets(Folding):
    """BRK-F7: a broker forgets what it knew of closed sessions, and that they are closed."""

    def close(self, closed: Closed, source: Any) -> None:
        super().close(closed, source)
        self.book.closed._bounds.clear()


class _Remembers(ClientMachine):
    def _sessions_closed(self, packet: SessionsClosed) -> None:
        super()._sessions_closed(packet)
        self.session.closed._bounds.clear()


def forgetful_client(name: str, session: int, addresses: Any, wires: Any, app: Any, settings: Any, *rest: Any) -> Any:
    """BRK-F8: a client forgets what it has delivered of closed sessions, and that they are closed."""
    return _Remembers(name, session, addresses, wires, app, replace(settings, folds=True), *rest)


FOLDING_MUTANTS: dict[str, Parts] = {
    "F4-held": _folding(NothingIsHeld),
    "F5-everybody": _folding(NobodyIsMissed),
    "F6-away": _folding(NobodyIsAway),
    "F7-closed-set": _folding(Forgets),
    "F8-client": Parts(client=forgetful_client),
}
