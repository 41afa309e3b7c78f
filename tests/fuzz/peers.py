"""What peers send: greetings, frames, packets, requests to the admin port. Whatever is wrong with it is a PeerError."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache

from ordercast.broker.node import BROKER_CODEC
from ordercast.broker.packet_checks import check
from ordercast.client.machine import CLIENT_CODEC
from ordercast.core.effects import EffectLog
from ordercast.core.errors import PeerError
from ordercast.core.process import Peer
from ordercast.core.wire import Codec
from ordercast.net.brokers.admin import Admin
from ordercast.net.nodes.channel import ChannelAck, ChannelResume
from ordercast.net.wire import handshake
from ordercast.net.wire.credentials import BROKER, CLIENT, NODE, AdminKey, Credentials, User
from ordercast.net.wire.datagrams import DatagramSealer, Incoming, datagram_key
from ordercast.net.wire.frames import (
    GREETING_LIMIT,
    HEARTBEAT_FRAME,
    FrameReader,
    GreetingReader,
    goodbye_frame,
    greeting_frame,
    packet_frame,
)
from ordercast.protocols import CATALOGUE
from ordercast.pubsub.client_packets import CLIENT_PACKETS
from ordercast.pubsub.topic_packets import TOPIC_PACKETS
from ordercast.pubsub.tree_packets import TREE_PACKETS
from tests.fuzz.engine import Target
from tests.fuzz.harvest import drawn, harvest
from tests.net.test_admin import Broker
from tests.support.wires import Process

_KNOWN = Credentials(
    cluster="test", peer_token="p", users=(User(name="ann", token="a"), User(name="bob", token="b", publish=()))
)
_ANN = Credentials(cluster="test", user="ann", client_token="a")
_ME, _DIALER = Peer(BROKER, "b1", 3, "127.0.0.1:7000"), Peer(CLIENT, "ann.desk", 1)
_DATAGRAM_KEY, _DATAGRAM_MAC_END = datagram_key(b"p"), 19
_ASKED = handshake.challenge()
_SAID = handshake.present(_DIALER, _ANN, _ASKED, "peer")


def _greetings() -> list[bytes]:
    broker = handshake.present(Peer(BROKER, "b2", 1), _KNOWN, _ASKED, "peer", "b1")
    _, answer = handshake.accept(_ME, _KNOWN, _SAID, _ASKED, "peer", 7)
    return [handshake.encode(greeting) for greeting in (_ASKED, _SAID, broker, answer, handshake.refusal("no"))]


def _greet(data: bytes) -> None:
    """All that either end may make of a greeting. The mac is always right: strangers are stopped, friends may err."""
    greeting = handshake.decode(data, "peer")
    uses: list[Callable[[], object]] = [lambda: handshake.present(_DIALER, _ANN, greeting, "peer")]
    if isinstance(greeting, handshake.Present):
        honest = handshake._signed(greeting, _KNOWN.token_of(greeting.kind, greeting.user, "peer"), _ASKED.nonce)
        uses.append(lambda: handshake.encode(handshake.accept(_ME, _KNOWN, honest, _ASKED, "peer")[1]))
    if isinstance(greeting, handshake.Accepted):
        signed = handshake._signed(greeting, _ANN.own_token(CLIENT), _SAID.nonce)
        uses.append(lambda: handshake.accepted(_DIALER, _ANN, signed, _SAID, "peer"))
    for use in uses:
        try:
            use()
        except PeerError as error:
            handshake.encode(handshake.refusal(error.reason))


def _greeting_stream(data: bytes) -> None:
    reader = GreetingReader("peer")
    for start in range(0, len(data), 7):
        body = reader.feed(data[start : start + 7])
        while body is not None:
            assert len(body) <= GREETING_LIMIT
            body = reader.feed(b"")


def _frames(data: bytes) -> None:
    """However the stream is cut, the frames are the same; nothing of it is lost or made up."""
    found = []
    for step in (len(data) or 1, 1 + len(data) // 3):
        reader = FrameReader("peer", 300)
        frames = []
        for start in range(0, len(data), step):
            if reader.broken is None:
                frames += reader.feed(data[start : start + step])
        assert b"".join(frame for _, frame in frames) == data[: sum(len(frame) for _, frame in frames)]
        found.append((frames, str(reader.broken)))
    assert found[0] == found[1]


def _datagram_seeds() -> list[bytes]:
    """What is behind the mac: short ones, long ones in pieces."""
    out = DatagramSealer(Peer(NODE, "ann", 3, "192.0.2.1:7000"), "test", _DATAGRAM_KEY, 600, 1 << 40)
    bodies = [packet_frame(BROKER_CODEC.encode(packet)) for packet in drawn(CLIENT_PACKETS, "datagrams")]
    sealed = [datagram for body in bodies for datagram in out.datagrams("192.0.2.2:7000", body)]
    sealed += list(out.datagrams("192.0.2.2:7000", packet_frame(bytes(2000))))
    return [datagram[_DATAGRAM_MAC_END:] for datagram in sealed]


def _datagram(data: bytes) -> None:
    """The bytes as they are, and as somebody who knows the token would sign them, twice."""
    bob = Incoming(Peer(NODE, "bob", 1, "192.0.2.2:7000"), "test", _DATAGRAM_KEY, lambda to: to == "192.0.2.2:7000")
    with suppress(PeerError):
        bob.take(data, "peer")
        raise AssertionError("nobody signed this")
    signed = b"oc\x01" + hmac.digest(_DATAGRAM_KEY, data, "sha256")[:16] + data
    taken = bob.take(signed, "peer")
    if taken is not None:
        BROKER_CODEC.decode(taken[1], taken[0].name)
    with suppress(PeerError):
        bob.take(signed, "peer")
        raise AssertionError("it was taken twice")


def _stream_seeds() -> list[bytes]:
    frames = [packet_frame(BROKER_CODEC.encode(packet)) for packet in drawn(CLIENT_PACKETS, "frames")]
    return [HEARTBEAT_FRAME + a + b + goodbye_frame("so long") for a, b in zip(frames, reversed(frames), strict=True)]


def _round_trip(codec: Codec) -> Callable[[bytes], None]:
    """A packet that was read can be passed on, and says the same then."""

    def decode(data: bytes) -> None:
        packet = codec.decode(data, "peer")
        passed_on = codec.encode(packet)
        assert codec.encode(codec.decode(passed_on, "peer")) == passed_on
        check("peer", packet)

    return decode


def _machine(protocol: str) -> Callable[[bytes], None]:
    """A node that has just begun takes what a neighbour says, or blames it."""

    def receive(data: bytes) -> None:
        found = harvest(protocol)
        packet = codec.decode(data, "peer")
        machine, out = found.fresh(), EffectLog()
        machine.on_start(out)
        machine.on_receive(found.places[0][0].neighbours[0], packet, out)

    codec = CATALOGUE[protocol].codec()
    return receive


@cache
def _admins() -> tuple[asyncio.AbstractEventLoop, tuple[Admin, ...]]:
    """One without a token and one with, and the loop that they live in."""

    async def build() -> tuple[Admin, ...]:
        host, broker = Process("b1").host, Broker()
        vars(broker.tree).update(ask_to_leave=lambda *_: None, remove=lambda *_: None)
        vars(broker.topics).update(keep=lambda *_: "")
        vars(host).update(turn=lambda act, *said: act(*said))
        return Admin(host, broker), Admin(host, broker, key=AdminKey("secret"))

    loop = asyncio.new_event_loop()
    return loop, loop.run_until_complete(build())


def _request(data: bytes) -> None:
    """Every request has an answer that can be sent."""
    loop, admins = _admins()

    async def ask(admin: Admin) -> int:
        reader = asyncio.StreamReader(limit=8192)
        reader.feed_data(data)
        reader.feed_eof()
        status, kind, body = await admin._handle(reader)
        assert isinstance(body, bytes)
        assert kind.isascii()
        return status

    for admin in admins:
        assert loop.run_until_complete(ask(admin)) in (200, 202, 400, 401, 403, 404, 405, 431, 503)


_REQUESTS = (
    b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:80\r\nAuthorization: Bearer secret\r\n\r\n",
    b"GET /metrics HTTP/1.0\r\n\r\n", b"GET /status?topics=12 HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
    b"GET /explain?msg=ann%7E1%231&msg=2 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n\r\n",
    b"POST /keep?filter=a.%3E&max_age=7d&max_bytes=10GB&copies=2&compact=key&stop=0 HTTP/1.1\r\nHost: [::1]\r\n\r\n",
    b"POST /leave?id=b1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST //[::1/%ff?a=%zz#x HTTP/1.1\r\nHost:\r\n\r\n", b"GET http://[x]/status?topics=\xb2 HTTP/1.1\r\n\r\n",
)  # fmt: skip


def peer_targets() -> Iterator[Target]:
    yield Target("greetings", _greetings, _greet, PeerError, cases=3000)
    yield Target("greeting-stream", lambda: [greeting_frame(g) * 2 for g in _greetings()], _greeting_stream, PeerError)
    yield Target("datagrams", _datagram_seeds, _datagram, PeerError)
    yield Target("frames", _stream_seeds, _frames, PeerError)
    brokers = (*CLIENT_PACKETS, *TREE_PACKETS, *TOPIC_PACKETS)
    everything = [BROKER_CODEC.encode(packet) for packet in drawn(brokers, "brokers")]
    yield Target("packets-of-brokers", lambda: everything, _round_trip(BROKER_CODEC), PeerError, cases=4500)
    of_clients = [CLIENT_CODEC.encode(packet) for packet in drawn(CLIENT_PACKETS, "clients")]
    yield Target("packets-of-clients", lambda: of_clients, _round_trip(CLIENT_CODEC), PeerError)
    channel = Codec((ChannelResume, ChannelAck))
    said = [channel.encode(packet) for packet in drawn((ChannelResume, ChannelAck), "channel")]
    yield Target("packets-of-channels", lambda: said, _round_trip(channel), PeerError, cases=1000)
    for name, info in CATALOGUE.items():
        seeds = _seeds_of(name)
        yield Target(f"packets-of-{name}", seeds, _round_trip(info.codec()), PeerError, cases=900)
        yield Target(f"node-of-{name}", seeds, _machine(name), PeerError, cases=400)
    yield Target("admin-requests", lambda: list(_REQUESTS), _request, text=True, cases=600)


def _seeds_of(protocol: str) -> Callable[[], list[bytes]]:
    return lambda: harvest(protocol).encodings()
