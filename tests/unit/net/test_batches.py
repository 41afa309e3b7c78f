"""A batch is handled as far as it makes sense."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId
from ordercast.core.machine import Machine, Outbox
from ordercast.core.messages import Packet
from ordercast.net.nodes.batches import handle_batch

ANN, BOB = NodeId("ann"), NodeId("bob")
NOTHING_LEAVES = cast("Outbox", None)


class Word(Packet, frozen=True):
    text: str


class Picky(Machine):
    """Blames whoever a packet names."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_receive(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        assert isinstance(packet, Word)
        if packet.text.startswith("blame "):
            raise PeerError(packet.text.removeprefix("blame "), "made no sense")
        self.heard.append(packet.text)


class Hasty(Picky):
    """Takes batches as a whole."""

    def on_receive_many(self, peer: NodeId, packets: Sequence[Packet], out: Outbox) -> None:
        for packet in packets:
            self.on_receive(peer, packet, out)


@pytest.mark.parametrize(
    ("build", "words", "heard", "blamed"),
    [
        (Picky, ["one", "two"], ["one", "two"], []),
        (Picky, ["one", "blame ann", "two"], ["one"], ["ann"]),
        (Picky, ["one", "blame bob", "two", "blame bob", "three"], ["one", "two", "three"], ["bob", "bob"]),
        (Hasty, ["one", "blame bob", "two"], ["one"], ["bob"]),
    ],
)
def test_only_what_the_peer_itself_did_wrong_ends_its_batch(
    build: type[Picky], words: list[str], heard: list[str], blamed: list[str]
) -> None:
    machine = build()
    errors = handle_batch(machine, ANN, [Word(word) for word in words], NOTHING_LEAVES)
    assert (machine.heard, [error.peer for error in errors]) == (heard, blamed)
