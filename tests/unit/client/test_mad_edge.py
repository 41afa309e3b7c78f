"""No packet of an edge, whatever is in it, ends a client: at worst it looks for another edge."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from ordercast.client.machine import ClientMachine
from ordercast.client.settings import ClientSettings
from ordercast.core.errors import PeerError
from ordercast.core.ids import Topic
from ordercast.core.process import Peer
from ordercast.pubsub.client_packets import CLIENT_PACKETS, Entries, Granted, Live, TopicState, View
from ordercast.pubsub.publications import Publication, void
from tests.support.any_packet import any_packet
from tests.support.client_edge import publication
from tests.support.hand_wires import HandWires

T = Topic("t.x")


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


def reading() -> tuple[ClientMachine, Reader, HandWires]:
    wires, reader = HandWires(), Reader()
    machine = ClientMachine("ann", 1, ("b0:1", "b1:1"), wires, reader, ClientSettings(consumes_at_once=False))
    reader.machine = machine
    machine.on_start()
    _answer(machine, wires)
    machine.subscribe(T)
    machine.on_packets(wires.last_opened, [TopicState(T, {}, {}), Granted(T, {}, new=True), Live(T)])
    machine.on_turn_end()
    return machine, reader, wires


def _answer(machine: ClientMachine, wires: HandWires) -> None:
    machine.on_opened(wires.last_opened, Peer("broker", "b0", 0))
    machine.on_packets(wires.last_opened, [View(())])


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
                machine.on_timer(wires.next_timer())
                machine.on_turn_end()


def test_a_publication_on_another_topic_is_not_handed_on() -> None:
    machine, reader, wires = reading()
    with pytest.raises(PeerError, match=r"b0: sent a publication on another topic among those on t\.x"):
        machine.on_packets(wires.last_opened, [Entries(T, (publication("bob", 1, "elsewhere"),))])
    assert reader.taken == []


def test_a_void_is_handed_to_no_application_and_closes_the_gap() -> None:
    """BRK-V1: also while the application has not taken what came before."""
    machine, reader, wires = reading()
    first, third = publication("bob", 1, T), publication("bob", 3, T)
    machine.on_packets(wires.last_opened, [Entries(T, (first, third)), Entries(T, (void(first.origin, 2, T),))])

    assert reader.taken == [first, third]
    membership = machine.topics[T]
    assert membership.consumed_vector() == {"bob": 3}
    assert membership.kept() == [first, third, void(first.origin, 2, T)]
