"""Whatever connects and whatever it sends: the node stays up, says why it closes, and serves the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.messages import Message, Packet
from ordercast.net.nodes.channel import ChannelAck, ChannelResume
from ordercast.net.nodes.neighbours import Address
from ordercast.net.nodes.node import NodeHost
from ordercast.net.nodes.settings import NodeSettings
from ordercast.net.wire.frames import (
    GREETING_LIMIT,
    HEARTBEAT_FRAME,
    PACKET,
    goodbye_frame,
    greeting_frame,
    packet_frame,
)  # fmt: skip
from ordercast.protocols import lookup
from ordercast.protocols.flood.flood import Data
from tests.support.loop import run_async, until
from tests.support.net import HASTY, TOKEN, Inbox, NodeStranger, build_host, closing, connected
from tests.support.wires import LogLines

ENOUGH = 50


def clogged(host: NodeHost, peer: str) -> bool:
    """More waits for the peer than the socket takes."""
    wire = host._host.connections.get(host.neighbours.channels[NodeId(peer)].connection)
    return wire is not None and not wire.writable


class Stage:
    """Ann and bob are nodes; cho is their neighbour by right, and played by the test."""

    def __init__(self, ann: NodeHost, bob: NodeHost, address: Address) -> None:
        self.ann = ann
        self.address = address
        self.inbox = Inbox(bob)
        self._peers: list[NodeStranger] = []

    async def peer(self) -> NodeStranger:
        self._peers.append(await NodeStranger.connect(self.address))
        return self._peers[-1]

    async def dismiss(self) -> None:
        for peer in self._peers:
            await peer.close()

    async def cho(self, *, life: int = 0) -> NodeStranger:
        """Cho, properly introduced to ann."""
        peer = await self.peer()
        await peer.resume("cho", "ann", life=life)
        return peer

    async def serves_others(self) -> None:
        """Bob still gets everything that ann publishes, once and in order."""
        before = len(self.inbox.messages)
        for i in range(ENOUGH):
            await self.ann.wait_for_room()
            self.ann.submit("t", b"%d" % i)
        await until(lambda: len(self.inbox.messages) >= before + ENOUGH)
        assert self.inbox.payloads[before:] == [b"%d" % i for i in range(ENOUGH)]


@asynccontextmanager
async def stage(settings: NodeSettings) -> AsyncIterator[Stage]:
    everyone = ("ann", "bob", "cho")
    ann = build_host("ann", everyone, settings=settings)
    bob = build_host("bob", everyone, settings=settings, neighbours=["ann"])
    async with closing(ann, bob):
        address = await ann.listen()
        await bob.listen()
        await ann.start({})
        await bob.start({NodeId("ann"): address})
        await until(lambda: connected(ann, "bob"))
        here = Stage(ann, bob, address)
        try:
            yield here
        finally:
            await here.dismiss()


def play(scene: Callable[[Stage], Coroutine[None, None, None]], settings: NodeSettings = HASTY) -> None:
    async def main() -> None:
        async with stage(settings) as here:
            await scene(here)
            await here.serves_others()

    run_async(main)


@pytest.mark.parametrize(
    ("bytes_sent", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "announces a greeting of"),
        (b"\xff" * 5000, "announces a greeting of"),
        ((GREETING_LIMIT + 1).to_bytes(4, "big"), f"announces a greeting of {GREETING_LIMIT + 1} bytes"),
        (greeting_frame(b"\xc1 this is not msgpack"), "does not speak Ordercast"),
        (greeting_frame(msgspec.msgpack.encode([9, "who"])), "does not speak Ordercast"),
    ],
)
def test_a_stranger_that_talks_garbage_is_told_so_and_closed(bytes_sent: bytes, reason: str, log: LogLines) -> None:
    async def scene(here: Stage) -> None:
        peer = await here.peer()
        peer.send(bytes_sent)
        assert reason.encode() in await peer.end()
        await peer.close()

    play(scene)
    assert any(reason in said for said in log.reasons())


def test_a_stranger_that_says_nothing_is_closed_in_time(log: LogLines) -> None:
    async def scene(here: Stage) -> None:
        peer = await here.peer()
        assert b"did not introduce itself in time" in await peer.end()
        await peer.close()

    play(scene)
    assert "did not introduce itself in time (handshake_ms)" in log.reasons()


async def introduced(peer: NodeStranger, who: dict[str, Any]) -> None:
    await peer.resume(**who)
    await peer.packet()


@pytest.mark.parametrize(
    ("who", "reason"),
    [
        ({"me": "cho", "to": "ann", "token": b"a guess"}, "does not know the token"),
        ({"me": "cho", "to": "ann", "cluster": "another"}, "looks for cluster"),
        ({"me": "cho", "to": "bob"}, "looks for bob"),
        ({"me": "eve", "to": "ann"}, "is not a neighbour"),
        ({"me": "cho", "to": "ann", "received": 7}, "claims to have received 7"),
    ],
)
def test_whoever_is_not_who_it_should_be_is_refused(who: dict[str, object], reason: str, log: LogLines) -> None:
    async def scene(here: Stage) -> None:
        peer = await here.peer()
        with pytest.raises(PeerError, match=reason):
            await introduced(peer, who)
        await peer.close()
        assert not connected(here.ann, "cho")

    play(scene)
    assert any(reason in said for said in log.reasons())


def test_a_former_life_is_refused_once_a_later_one_was_here(log: LogLines) -> None:
    async def scene(here: Stage) -> None:
        later = await here.cho(life=3)
        await until(lambda: connected(here.ann, "cho"))
        former = await here.peer()
        with pytest.raises(PeerError, match="life 3 was here already"):
            await former.resume("cho", "ann", life=2)
        assert connected(here.ann, "cho")
        await former.close()
        await later.close()

    play(scene)


def data(*, origin: str = "cho") -> bytes:
    message = Message(Origin(origin), 1, Topic("t"), b"from cho")
    return packet_frame(lookup("fifo").codec().encode(Data(0, 1, 0, False, message)))


def control(packet: Packet) -> bytes:
    return packet_frame(msgspec.msgpack.encode(packet))


@pytest.mark.parametrize(
    ("bytes_sent", "reason"),
    [
        ((1 << 31).to_bytes(4, "big") + bytes([PACKET]), "announces a frame of 2147483648 bytes"),
        (bytes(20), "announces a frame without a kind"),
        ((1).to_bytes(4, "big") + bytes([77]), "sends a frame of kind 77"),
        (packet_frame(b"\xc1"), "sent a malformed packet"),
        (control(ChannelResume(0, 0, 0)), "resumes its channel twice"),
        (control(ChannelAck(1 << 40)), "acknowledges packet"),
        (control(ChannelAck(-1)), "acknowledges packet"),
    ],
)
def test_a_neighbour_that_breaks_the_framing_is_told_so_and_may_come_back(
    bytes_sent: bytes, reason: str, log: LogLines
) -> None:
    async def scene(here: Stage) -> None:
        cho = await here.cho()
        cho.send(bytes_sent)
        assert reason.encode() in await cho.end()
        await cho.close()
        again = await here.cho()
        again.send(data())
        await until(lambda: here.ann.neighbours.channels[NodeId("cho")].received == 1)
        await again.close()

    play(scene)
    assert any(reason in said for said in log.reasons())


def test_packets_ahead_of_a_broken_one_count_and_are_not_asked_for_again() -> None:
    async def scene(here: Stage) -> None:
        cho = await here.cho()
        cho.send(data() + packet_frame(b"\xc1"))
        await cho.end()
        await cho.close()
        again = await here.peer()
        assert (await again.resume("cho", "ann")).received == 1
        await again.close()

    play(scene)


def test_a_truncated_frame_is_sent_again_on_the_next_connection_and_counts_once() -> None:
    async def scene(here: Stage) -> None:
        whole = data()
        cho = await here.cho()
        cho.send(whole[:-3])
        cho.writer.write_eof()
        await cho.end()
        await cho.close()
        again = await here.peer()
        assert (await again.resume("cho", "ann")).received == 0
        again.send(whole)
        await until(lambda: b"from cho" in here.inbox.payloads)
        await again.close()

    play(scene)


def test_a_neighbour_that_breaks_the_protocol_is_shut_out_until_it_begins_a_new_life(log: LogLines) -> None:
    async def scene(here: Stage) -> None:
        cho = await here.cho()
        cho.send(data(origin="nobody"))
        assert b"whom nobody knows" in await cho.end()
        await cho.close()
        again = await here.peer()
        with pytest.raises(PeerError, match="broke the protocol"):
            await again.resume("cho", "ann")
        await again.close()
        new = await here.cho(life=1)
        await until(lambda: connected(here.ann, "cho"))
        await new.close()

    play(scene)


@pytest.mark.parametrize(("beats", "reason"), [(False, "silent for"), (True, "took over nothing for")])
def test_a_neighbour_that_never_reads_is_suspected_and_stops_nobody(beats: bool, reason: str, log: LogLines) -> None:
    """Publishers wait for it only until it is suspected, however full its buffer is."""
    small = msgspec.structs.replace(HASTY, high_water_bytes=1 << 15)

    async def heartbeat(peer: NodeStranger) -> None:
        while True:
            peer.send(HEARTBEAT_FRAME)
            await asyncio.sleep(HASTY.heartbeat_ms / 1000)

    async def scene(here: Stage) -> None:
        cho = await here.cho()
        cho.writer.transport.pause_reading()  # type: ignore[attr-defined]
        heart = asyncio.create_task(heartbeat(cho))
        if not beats:
            heart.cancel()
        channel = here.ann.neighbours.channels[NodeId("cho")]
        while not channel.suspected:
            await here.ann.wait_for_room()
            here.ann.submit("t", bytes(1 << 14))
            await asyncio.sleep(0)
        heart.cancel()
        await asyncio.gather(heart, return_exceptions=True)
        await cho.close()
        published = here.ann.published
        await until(lambda: len(here.inbox.messages) == published)

    play(scene, small)
    assert any(reason in said for said in log.reasons())


def test_a_neighbour_that_stops_reading_and_hangs_up_is_let_go_at_once() -> None:
    """However much was still to be written to it: that is kept for its next connection."""
    patient = msgspec.structs.replace(HASTY, suspect_ms=60_000, high_water_bytes=1 << 25)

    async def scene(here: Stage) -> None:
        cho = await here.cho()
        cho.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(20):
            here.ann.submit("t", bytes(1 << 20))
        await until(lambda: clogged(here.ann, "cho"))
        cho.writer.write_eof()
        await until(lambda: not connected(here.ann, "cho"))
        await until(lambda: len(here.inbox.messages) == 20)

    play(scene, patient)


def test_an_acknowledgement_overtakes_what_a_neighbour_is_slow_to_read() -> None:
    """Otherwise two nodes that flood each other over a slow link would suspect each other."""
    patient = msgspec.structs.replace(HASTY, suspect_ms=60_000, high_water_bytes=1 << 25, ack_every=1)

    async def scene(here: Stage) -> None:
        cho = await here.cho()
        cho.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(20):
            here.ann.submit("t", bytes(1 << 20))
        await until(lambda: clogged(here.ann, "cho"))
        wire = here.ann.neighbours.channels[NodeId("cho")].wire
        assert wire is not None
        cho.send(data())
        await until(lambda: len(wire.out) > 1 and len(wire.out[0]) < 20)
        await until(lambda: len(here.inbox.messages) == 21)

    play(scene, patient)


def test_a_node_stops_even_if_a_neighbour_never_reads_its_goodbye() -> None:
    patient = msgspec.structs.replace(HASTY, suspect_ms=60_000, high_water_bytes=1 << 25)

    async def main() -> None:
        async with stage(patient) as here:
            cho = await here.cho()
            cho.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for _ in range(20):
                here.ann.submit("t", bytes(1 << 20))
            await until(lambda: clogged(here.ann, "cho"))
            await asyncio.wait_for(here.ann.close(), timeout=20)

    run_async(main)


def test_strangers_beyond_the_limit_are_turned_away(log: LogLines) -> None:
    few = msgspec.structs.replace(HASTY, strangers=2, handshake_ms=5_000)

    async def scene(here: Stage) -> None:
        peers = [await here.peer() for _ in range(6)]
        await until(lambda: any("too many connections" in said for said in log.reasons()))
        for peer in peers:
            await peer.close()

    play(scene, few)


def test_a_goodbye_says_why_to_the_peer(log: LogLines) -> None:
    async def scene(here: Stage) -> None:
        cho = await here.cho()
        cho.send(goodbye_frame("going home"))
        await cho.end()
        await cho.close()

    play(scene)
    assert any("going home" in said for said in log.reasons())


def test_the_token_never_travels() -> None:
    async def scene(here: Stage) -> None:
        peer = await here.peer()
        spoken = bytearray()
        write = peer.writer.write
        peer.writer.write = lambda data: (spoken.extend(data), write(data))[1]  # type: ignore[method-assign]
        welcome = await peer.resume("cho", "ann")
        assert TOKEN not in spoken
        assert TOKEN not in msgspec.msgpack.encode(welcome)
        await peer.close()

    play(scene)


@pytest.mark.parametrize("packet", [data(), control(ChannelAck(0))])
def test_a_neighbour_that_does_not_resume_its_channel_first_is_told_so(packet: bytes, log: LogLines) -> None:
    """What it sends could be anything: nobody has said where the channel goes on."""

    async def scene(here: Stage) -> None:
        cho = await here.peer()
        await cho.greet("cho", "ann")
        cho.send(packet)
        assert b"sends before it resumes its channel" in await cho.end()

    play(scene)
