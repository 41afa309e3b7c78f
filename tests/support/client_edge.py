"""A client machine with a hand-driven edge: tests say what the brokers answer and see what the client sends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ordercast.client.machine import ClientMachine
from ordercast.client.membership import NO_KEY
from ordercast.client.memory_ledger import MemoryClientLedger
from ordercast.client.ports import SavedClient
from ordercast.client.settings import ClientSettings
from ordercast.core.ids import Origin, Topic
from ordercast.core.messages import Guarantee, Packet
from ordercast.core.process import Connection, Peer
from ordercast.pubsub.client_packets import (
    Entries,
    Granted,
    Live,
    Neighbour,
    TopicState,
    View,
)  # fmt: skip
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Vector
from tests.support.hand_wires import HandWires

MS = 1_000_000
P = TypeVar("P", bound=Packet)


def publication(origin: str, number: int, topic: str = "t", payload: bytes = b"x") -> Publication:
    return Publication(Origin(origin), number, Topic(topic), payload, Guarantee.CAUSAL, ("",))


class HandApp:
    """Writes down what the application hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[object, ...]] = []
        self.delivered: list[Publication] = []

    def deliver(self, entries: Sequence[Publication]) -> None:
        self.delivered.extend(entries)

    def acknowledged(self, topic: Topic, level: str, low: int, extras: tuple[int, ...]) -> None:
        self.heard.append(("acknowledged", topic, level, low, extras))

    def live(self, topic: Topic) -> None:
        self.heard.append(("live", topic))

    def left(self, topic: Topic) -> None:
        self.heard.append(("left", topic))

    def replaying(self, topic: Topic) -> None:
        self.heard.append(("replaying", topic))

    def missed(self, topic: Topic) -> None:
        self.heard.append(("missed", topic))

    def no_history(self, topic: Topic, code: str, cut: Vector) -> None:
        self.heard.append(("no_history", topic, code, cut))

    def history(self, read: int, entries: Sequence[Publication]) -> None:
        self.delivered.extend(entries)

    def history_bounds(self, read: int, since: Vector, until: Vector) -> None:
        self.heard.append(("history_bounds", read, since, until))

    def history_ended(self, read: int, code: str, cut: Vector) -> None:
        self.heard.append(("history_ended", read, code, cut))

    def watching(self, pattern: str, topics: tuple[Topic, ...]) -> None:
        self.heard.append(("watching", pattern, topics))

    def kept_found(self, pattern: str, topics: tuple[Topic, ...], why_not: str) -> None:
        self.heard.append(("kept_found", pattern, topics, why_not))

    def denied(self, topic: Topic, reason: str) -> None:
        self.heard.append(("denied", topic, reason))

    def refused(self, topic: Topic, number: int, reason: str) -> None:
        self.heard.append(("refused", topic, number, reason))

    def flow(self, topic: Topic, *, open_: bool) -> None:
        self.heard.append(("flow", topic, open_))

    def session_lost(self, reason: str, unanswered: Sequence[Publication]) -> None:
        self.heard.append(("session_lost", reason, [entry.id for entry in unanswered]))

    def connected(self, broker: str) -> None:
        self.heard.append(("connected", broker))

    def disconnected(self, reason: str) -> None:
        self.heard.append(("disconnected", reason))

    def nobody_answers(self, failures: tuple[tuple[str, str, bool], ...]) -> None:
        self.heard.append(("nobody_answers", failures))


class HandEdge:
    """One client, and whatever brokers a test plays."""

    def __init__(
        self, addresses: tuple[str, ...] = ("h:1",), saved: SavedClient | None = None, session: int = 0,
        ledger: MemoryClientLedger | None = None, **settings: float | bool,
    ) -> None:  # fmt: skip
        self.wires = HandWires()
        self.app = HandApp()
        self.ledger = ledger or MemoryClientLedger(Origin("ann"))
        self.client = ClientMachine(
            "ann", session, addresses, self.wires, self.app, ClientSettings(**settings), saved, self.ledger  # type: ignore[arg-type]
        )  # fmt: skip
        self._read = 0
        self.client.on_start()
        self.client.on_turn_end()

    # The brokers' side

    @property
    def connection(self) -> Connection:
        return len(self.wires.dialed)

    def accept(self, name: str = "b0", view: View | None = None) -> None:
        """The dialed broker is there and takes the Attach."""
        self.client.on_opened(self.connection, Peer("broker", name, 0, self.wires.dialed[-1]))
        self.client.on_turn_end()
        self.say(view or View(()))

    def say(self, *packets: Packet, on: Connection | None = None) -> None:
        self.client.on_packets(self.connection if on is None else on, packets)
        self.client.on_turn_end()

    def die(self, *, gone: bool = True, reason: str = "") -> None:
        self.client.on_closed(self.connection, gone=gone, reason=reason)
        self.client.on_turn_end()

    def make_live(self, topic: str = "t", base: Vector | None = None, entries: Sequence[Publication] = ()) -> None:
        """Answer the Subscribe that is under way, up to Live."""
        name = Topic(topic)
        self.say(TopicState(name, {}, {}))
        packets: list[Packet] = [Granted(name, base or {}, new=True)]
        if entries:
            packets.append(Entries(name, tuple(entries)))
        self.say(*packets, Live(name))

    # The application's side

    def act(self, action: str, *args: object) -> object:
        result: object = getattr(self.client, action)(*args)
        self.client.on_turn_end()
        return result

    def publish_many(self, topic: Topic, payloads: Sequence[bytes], keys: tuple[str, ...] = NO_KEY) -> list[int]:
        """As many publications, all in one turn; their numbers."""
        numbers = [self.client.publish(topic, payload, keys) for payload in payloads]
        self.client.on_turn_end()
        return numbers

    # Looking

    def new(self) -> list[Packet]:
        """What was sent since the last look."""
        fresh = [packet for _, packet in self.wires.sent[self._read :]]
        self._read = len(self.wires.sent)
        return fresh

    def sent(self, kind: type[P]) -> list[P]:
        return [packet for _, packet in self.wires.sent if isinstance(packet, kind)]

    def pass_time(self, milliseconds: float) -> None:
        """Run every timer that is due, in order."""
        end = self.wires.now_ns + round(milliseconds * MS)
        while due := sorted((at, str(name), name) for name, at in self.wires.timers.items() if at <= end):
            at, _, name = due[0]
            del self.wires.timers[name]
            self.wires.now_ns = max(self.wires.now_ns, at)
            self.client.on_timer(name)
            self.client.on_turn_end()
        self.wires.now_ns = end


def neighbour(node: str, hops: int, kind: str = "ancestor") -> Neighbour:
    return Neighbour(node, f"at-{node}", hops, kind)
