"""Channels to fixed neighbours: who is suspected, and which connections are given up for it."""

from __future__ import annotations

from typing import Any

from ordercast.core.ids import NodeId
from ordercast.core.process import Peer
from ordercast.net.nodes.channel import ChannelResume
from ordercast.net.nodes.neighbours import NeighbourChannels
from ordercast.net.nodes.settings import NodeSettings

MS = 1_000_000
ANN, BOB = NodeId("ann"), NodeId("bob")


class HandHost:
    """A host whose clock and connections a test moves by hand."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.cuts: list[tuple[int, str]] = []
        self.connections: dict[int, Any] = {}

    def send(self, connection: int, packet: object) -> None:
        """Nobody reads it."""

    def cut(self, connection: int, why: str, _reason: str) -> None:
        if connection in self.connections:
            self.cuts.append((connection, why))

    def has_frames(self, wire: object) -> None:
        """They stay where they are."""


class Wire:
    def __init__(self) -> None:
        self.heard_ns = 0
        self.out: list[bytes] = []


class Owner:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_silence(self, peer: NodeId) -> None:
        self.heard.append(f"{peer} is silent")

    def on_voice(self, peer: NodeId) -> None:
        self.heard.append(f"{peer} is back")


class Stage:
    """Ann with one neighbour, Bob, who was not heard since time 0."""

    def __init__(self) -> None:
        self.host, self.owner = HandHost(), Owner()
        settings = NodeSettings(suspect_ms=100, heartbeat_ms=25, handshake_ms=1000)
        self.ann = NeighbourChannels(Peer("node", ANN, 1), 1, [BOB], settings, self.owner)  # type: ignore[arg-type]
        self.ann.host = self.host  # type: ignore[assignment]

    def opens(self, connection: int, at_ms: int) -> Wire:
        self.host.now_ns = at_ms * MS
        wire = self.host.connections[connection] = Wire()
        self.ann.on_opened(connection, Peer("node", BOB, 1))
        return wire

    def beat(self, at_ms: int) -> None:
        self.host.now_ns = at_ms * MS
        self.ann.on_beat(self.host.now_ns, 0)


def test_a_connection_that_has_just_opened_is_not_given_up_for_the_silence_before_it() -> None:
    """On a busy machine the first word of the channel may come after the next heartbeat is due."""
    stage = Stage()
    stage.beat(200)
    assert stage.owner.heard == ["bob is silent"]
    stage.opens(7, at_ms=224)
    stage.beat(225)
    stage.beat(400)
    assert stage.host.cuts == []
    stage.ann.on_packets(7, [ChannelResume(1, 1, 0)])
    assert stage.owner.heard == ["bob is silent", "bob is back"]


def test_a_neighbour_that_falls_silent_on_its_connection_loses_it() -> None:
    stage = Stage()
    wire = stage.opens(7, at_ms=10)
    stage.ann.on_packets(7, [ChannelResume(1, 1, 0)])
    wire.heard_ns = 50 * MS
    stage.beat(149)
    assert stage.host.cuts == []
    stage.beat(151)
    assert stage.host.cuts == [(7, "silent")]
    assert stage.owner.heard == ["bob is silent"]


def test_a_neighbour_that_never_resumes_its_channel_loses_its_connection() -> None:
    stage = Stage()
    stage.opens(7, at_ms=10)
    stage.beat(1010)
    assert stage.host.cuts == []
    stage.beat(1011)
    assert stage.host.cuts == [(7, "late")]
