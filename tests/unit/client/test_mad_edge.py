"""No packet of an edge, whatever is in it, ends a client: at worst it looks for another edge."""

from __future__ import annotations

import random
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pytest

from ordercast.client.machine import ClientMachine
from ordercast.client.settings import ClientSettings
from ordercast.core.errors import PeerError
from ordercast.core.ids import Topic
from ordercast.core.messages import Packet
from ordercast.core.process import Connection, Peer
from ordercast.pubsub.client_packets import CLIENT_PACKETS, Entries, Granted, Live, TopicState, View
from ordercast.pubsub.publications import Publication, void
from tests.support.any_packet import any_packet
from tests.support.client_edge import publication

T = Topic("t.x")


class Nowhere:
    """Wires into the void."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.opened = 0
        self.timers: dict[Hashable, int] = {}

    def open(self, address: str) -> Connection:
        assert address
        self.opened += 1
        return self.opened

    def send(self, connection: Connection, packet: Packet) -> None:
        pass

    def close(self, connection: Connection, reason: str = "") -> None:
        pass

    def set_timer(self, name: Hashable, delay_ns: int, *, background: bool = False) -> None:
        self.timers[name] = self.now_ns + delay_ns

    def cancel_timer(self, name: Hashable) -> None:
        self.timers.pop(name, None)

    def note(self, kind: str, info: Mapping[str, str]) -> None:
        pass

    def count(self, name: str, by: int = 1) -> None:
        pass


class Reader:
    """An application that takes what it is handed at once, and hears the rest."""

    machine: ClientMachine

    def __init__(self) -> None:
        self.taken: list[Publication] = []

    def deliver(self, entries: Sequence[Publication]) -> None:
        assert entries
        self.taken += entries
        self.machine.consumed(entries[0].topic, len(entries))

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def reading() -> tuple[ClientMachine, Reader, Nowhere]:
    wires, reader = Nowhere(), Reader()
    machine = ClientMachine("ann", 1, ("b0:1", "b1:1"), wires, reader, ClientSettings(consumes_at_once=False))
    reader.machine = machine
    machine.on_start()
    _answer(machine, wires)
    machine.subscribe(T)
    machine.on_packets(wires.opened, [TopicState(T, {}, {}), Granted(T, {}, new=True), Live(T)])
    machine.on_turn_end()
    return machine, reader, wires


def _answer(machine: ClientMachine, wires: Nowhere) -> None:
    machine.on_opened(wires.opened, Peer("broker", "b0", 0))
    machine.on_packets(wires.opened, [View(())])


def test_whatever_an_edge_says_the_client_goes_on() -> None:
    for seed in range(300):
        chance = random.Random(seed)
        machine, _, wires = reading()
        for _ in range(30):
            packet = any_packet(CLIENT_PACKETS, chance)
            if isinstance(packet, Entries) and chance.random() < 0.7:
                packet = Entries(T, packet.entries)
            if chance.random() < 0.3 and not machine.ended:
                machine.publish(T, b"x")
            try:
                machine.on_packets(machine.edge.connection or 0, [packet])
            except PeerError:  # The runtime ends the connection.
                machine.on_closed(machine.edge.connection or 0, gone=False, reason="it is mad")
                if machine.edge.connection is not None:
                    _answer(machine, wires)
            machine.on_turn_end()
            if wires.timers and chance.random() < 0.1:
                name = min(wires.timers, key=lambda timer: (wires.timers[timer], str(timer)))
                wires.now_ns = max(wires.now_ns, wires.timers.pop(name))
                machine.on_timer(name)
                machine.on_turn_end()


def test_a_publication_on_another_topic_is_not_handed_on() -> None:
    machine, reader, wires = reading()
    with pytest.raises(PeerError, match=r"b0: sent a publication on another topic among those on t\.x"):
        machine.on_packets(wires.opened, [Entries(T, (publication("bob", 1, "elsewhere"),))])
    assert reader.taken == []


def test_a_void_is_handed_to_no_application_and_closes_the_gap() -> None:
    """BRK-V1: also while the application has not taken what came before."""
    machine, reader, wires = reading()
    first, third = publication("bob", 1, T), publication("bob", 3, T)
    machine.on_packets(wires.opened, [Entries(T, (first, third)), Entries(T, (void(first.origin, 2, T),))])

    assert reader.taken == [first, third]
    membership = machine.topics[T]
    assert membership.consumed_vector() == {"bob": 3}
    assert membership.kept() == [first, third, void(first.origin, 2, T)]
