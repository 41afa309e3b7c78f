"""Nodes over TCP for tests: hosts in one loop, and a peer that can say anything it likes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId, Topic
from ordercast.core.machine import Place
from ordercast.core.messages import Message, Packet
from ordercast.core.wire import Codec
from ordercast.net.nodes.channel import NEVER_MET, ChannelAck, ChannelResume
from ordercast.net.nodes.node import NodeHost, NodePlace
from ordercast.net.nodes.settings import NodeSettings
from ordercast.net.wire.credentials import NODE
from ordercast.net.wire.frames import GOODBYE, OVERHEAD_BYTES, PACKET, FrameReader, packet_frame
from ordercast.protocols import lookup
from ordercast.trace.journal import Journal
from tests.support.wires import Stranger

CLUSTER = "test"
_CHANNEL = Codec((ChannelResume, ChannelAck))
TOKEN = b"a secret"
HASTY = NodeSettings(
    heartbeat_ms=25, suspect_ms=200, handshake_ms=300, farewell_ms=500, reconnect_ms=2, reconnect_max_ms=50
)
"""Timeouts for tests that wait for them to run out."""


class Inbox:
    """What a node delivered, in order."""

    def __init__(self, host: NodeHost) -> None:
        self.messages: list[Message] = []
        host.delivery_watchers.append(lambda _host, message: self.messages.append(message))

    @property
    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.messages]


def build_host(
    node: str,
    nodes: Sequence[str],
    *,
    protocol: str = "fifo",
    life: int = 0,
    settings: NodeSettings = HASTY,
    journal: Journal | None = None,
    token: bytes = TOKEN,
    neighbours: Sequence[str] | None = None,
    **options: Any,
) -> NodeHost:
    """A node of a clique, unless its neighbours are given."""
    info = lookup(protocol)
    everyone = tuple(map(NodeId, nodes))
    near = tuple(map(NodeId, neighbours)) if neighbours is not None else tuple(n for n in everyone if n != node)
    place = Place(NodeId(node), near, everyone, {Topic("t"): everyone}, life)
    net = NodePlace(CLUSTER, token, life)
    return NodeHost(place, info, info.parse_options(options), net, settings=settings, journal=journal)


@asynccontextmanager
async def closing(*hosts: NodeHost) -> AsyncIterator[None]:
    """Close the hosts at the end, however it comes."""
    try:
        yield
    finally:
        await asyncio.gather(*(host.close() for host in hosts))


def connected(host: NodeHost, peer: str) -> bool:
    return host.neighbours.channels[NodeId(peer)].connected


class NodeStranger(Stranger):
    """The other end of a connection to a node; once it has introduced itself, the channel is resumed."""

    async def greet(self, me: str, to: str, *, life: int = 0, token: bytes = TOKEN, cluster: str = CLUSTER) -> None:
        """A correct handshake, as far as the arguments are."""
        await self.introduce(me, kind=NODE, credentials=NodePlace(cluster, token).credentials(), life=life, to=to)

    async def resume(self, me: str, to: str, *, life: int = 0, received: int = 0, **known: Any) -> ChannelResume:
        """A correct handshake and a channel that is resumed, as far as the arguments are; what the node resumes."""
        await self.greet(me, to, life=life, **known)
        self.send(packet_frame(_CHANNEL.encode(ChannelResume(life, NEVER_MET if not received else 0, received))))
        resumed = await self.packet()
        assert isinstance(resumed, ChannelResume)
        return resumed

    async def packet(self) -> Packet:
        """The next packet of the node; a PeerError with its reason if it says goodbye."""
        reader = FrameReader("node", 1 << 20)
        while True:
            for kind, frame in reader.feed(await self.reader.readexactly(1)):
                if kind == GOODBYE:
                    raise PeerError("node", bytes(frame[OVERHEAD_BYTES:]).decode())
                if kind == PACKET:
                    return _CHANNEL.decode(frame[OVERHEAD_BYTES:], "node")
