"""Whatever arrives at the datagram socket, the process goes on, counts it, and complains in few lines."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId
from ordercast.core.messages import Guarantee, Message
from ordercast.core.process import OverlayPlace, Peer
from ordercast.net.host import Carrier
from ordercast.net.nodes.node import NodePlace
from ordercast.net.overlays.host import OverlayHost
from ordercast.net.turn_ports import address_of, lasting_door
from ordercast.net.wire.credentials import Credentials, split_address
from ordercast.net.wire.datagrams import DatagramSealer, datagram_key
from ordercast.net.wire.frames import packet_frame
from ordercast.net.wire.settings import WireSettings
from tests.support.loop import run_async, until
from tests.support.rumours import CODEC, Have, Rumour, Rumours
from tests.support.wires import LogLines

KNOWN = NodePlace("test", b"a secret").credentials()
KEY = datagram_key(KNOWN.peer_token.encode())
HAVE = packet_frame(CODEC.encode(Have((), ())))


def build(wires: Any, place: OverlayPlace) -> Rumours:
    return Rumours(wires, place.me, place.contacts, 5_000_000)


def node(
    name: str, *contacts: str, credentials: Credentials = KNOWN, settings: WireSettings | None = None,
    carrier: Carrier = "udp",
) -> OverlayHost:  # fmt: skip
    return OverlayHost(
        NodeId(name), build, contacts, CODEC, Guarantee.EVENTUAL, settings or WireSettings(), credentials=credentials,
        carrier=carrier,
    )  # fmt: skip


@asynccontextmanager
async def running(*hosts: OverlayHost) -> AsyncIterator[None]:
    for host in hosts:
        await host.start("127.0.0.1:0")
    try:
        yield
    finally:
        await asyncio.gather(*(host.stop() for host in hosts))
        assert [host.failure for host in hosts] == [None] * len(hosts)


def throw(host: OverlayHost, *datagrams: bytes) -> None:
    """What anybody can do who reaches the port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for datagram in datagrams:
            stranger.sendto(datagram, split_address(host.me.address))


def sealed(host: OverlayHost, frame: bytes, *, name: str = "mallory", key: bytes = KEY, life: int = 0) -> list[bytes]:
    """What a member of this name would cast."""
    out = DatagramSealer(Peer("node", name, life, "127.0.0.1:9"), "test", key, 1400, 0)
    return list(out.datagrams(host.me.address, frame))


async def goes_on(host: OverlayHost, friend: OverlayHost) -> None:
    """The host still hears what its friend casts."""
    message = await friend.publish("t", b"still here")
    machine = host.machine
    assert isinstance(machine, Rumours)
    friend.turn(friend.cast, host.me.address, Rumour(message))
    await until(lambda: message.id in machine.have)


@pytest.mark.parametrize(
    ("counter", "reason"),
    [
        ("casts_garbage", "does not speak Ordercast"),
        ("casts_forged", "does not know the token"),
        ("casts_misdirected", "looks for 127.0.0.1:9, and this is"),
        ("casts_oversized", "sends a datagram of more than 1400 bytes (datagram_bytes)"),
        ("casts_replayed", "again, or far too late"),
        ("casts_malformed", "sent a malformed packet"),
        ("casts_refused", "talks nonsense"),
    ],
)
def test_nonsense_is_counted_with_its_reason_and_the_process_goes_on(counter: str, reason: str, log: LogLines) -> None:
    async def main() -> None:
        host, friend = node("a"), node("b")
        async with running(host, friend):
            nonsense = Message(NodeId("mallory"), 1, "nonsense", b"", Guarantee.EVENTUAL)  # type: ignore[arg-type]
            thrown = {
                "casts_garbage": [b"GET / HTTP/1.1\r\n\r\n"],
                "casts_forged": sealed(host, HAVE, key=datagram_key(b"a guess")),
                "casts_misdirected": list(
                    DatagramSealer(Peer("node", "x", 0, "127.0.0.1:9"), "test", KEY, 1400, 0).datagrams(
                        "127.0.0.1:9", HAVE
                    )
                ),
                "casts_oversized": [bytes(1401)],
                "casts_replayed": sealed(host, HAVE) * 2,
                "casts_malformed": sealed(host, packet_frame(b"\xc1\xc1")),
                "casts_refused": sealed(host, packet_frame(CODEC.encode(Rumour(nonsense)))),
            }
            throw(host, *thrown[counter])
            await until(lambda: host.counters[counter] == 1)
            assert any(reason in said for said in [*log.reasons("datagrams"), *log.reasons("casts")])
            await goes_on(host, friend)

    run_async(main)


def test_a_flood_of_forged_datagrams_keeps_nobody_from_being_heard_and_fills_no_log(log: LogLines) -> None:
    async def main() -> None:
        host, friend = node("a"), node("b")
        async with running(host, friend):
            forged = sealed(host, HAVE, key=b"x" * 32) * 500 + [bytes(80)] * 500
            for _ in range(5):
                throw(host, *forged)
                await goes_on(host, friend)
            assert host.counters["casts_forged"] + host.counters["casts_garbage"] > 1000
            assert len(log.reasons("datagrams")) == 1

    run_async(main)


def test_nothing_is_remembered_of_strangers() -> None:
    async def main() -> None:
        host = node("a")
        async with running(host):
            for number in range(200):
                throw(host, *sealed(host, HAVE, name=f"m{number}", key=b"x" * 32))
            await until(lambda: host.counters["casts_forged"] == 200)
            casts: Any = host._casts
            assert casts._incoming._senders == {}
            assert casts._incoming._incomplete == {}

    run_async(main)


def test_a_captured_datagram_is_of_no_use_at_another_node() -> None:
    async def main() -> None:
        host, other = node("a"), node("b")
        async with running(host, other):
            captured = sealed(host, HAVE)
            throw(host, *captured)
            throw(other, *captured)
            await until(lambda: other.counters["casts_misdirected"] == 1)
            assert host.counters["casts_received"] == 1
            assert other.counters["casts_received"] == 0

    run_async(main)


def test_two_nodes_with_different_tokens_do_not_hear_each_other() -> None:
    async def main() -> None:
        friend, stranger = node("a"), node("b", credentials=NodePlace("test", b"a guess").credentials())
        async with running(friend, stranger):
            stranger.turn(stranger.cast, friend.me.address, Have((), ()))
            friend.turn(friend.cast, stranger.me.address, Have((), ()))
            await until(lambda: friend.counters["casts_forged"] == stranger.counters["casts_forged"] == 1)

    run_async(main)


def test_casts_to_a_name_arrive_once_it_has_been_looked_up() -> None:
    async def main() -> None:
        host = node("a")
        async with running(host):
            port = split_address(host.me.address)[1]
            friend = node("b", f"localhost:{port}")
            async with running(friend):
                await until(lambda: host.counters["casts_received"] >= 1)
                assert friend.counters["casts_unresolved"] >= 1

    run_async(main)


def test_casts_to_nowhere_are_counted_and_stop_nothing() -> None:
    async def main() -> None:
        host, friend = node("a"), node("b")
        async with running(host, friend):
            for address in ("127.0.0.1:1", "255.255.255.255:9", "[::1]:9", "no address", "nobody.invalid:80", ""):
                host.turn(host.cast, address, Have((), ()))
            await until(lambda: host.counters["casts_unsendable"] == 2)
            await goes_on(host, friend)

    run_async(main)


def test_a_process_without_a_carrier_casts_nothing_and_one_over_connections_opens_no_port_for_datagrams() -> None:
    async def main() -> None:
        silent, other = node("a", carrier="none"), node("b", carrier="tcp")
        async with running(silent, other):
            silent.turn(silent.cast, other.me.address, Have((), ()))
            assert silent.counters["casts_lost"] == 1
            for host in (silent, other):
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
                    free.bind(split_address(host.me.address))

    run_async(main)


def test_a_port_that_others_have_for_datagrams_is_refused_by_name() -> None:
    async def main() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken, lasting_door() as door:
            address = address_of(door)
            taken.bind(split_address(address))
            door.close()
            with pytest.raises(UsageError, match=f"listen: {address}: no datagrams there: Address already in use"):
                await node("a").start(address)

    run_async(main)


def test_a_slow_receiver_over_connections_costs_a_bounded_amount_of_memory() -> None:
    async def main() -> None:
        host = node("a", carrier="tcp")
        async with running(host):
            with socket.socket() as deaf:
                deaf.bind(("127.0.0.1", 0))
                deaf.listen()
                address = f"127.0.0.1:{deaf.getsockname()[1]}"
                for _ in range(100):
                    host.turn(host.cast, address, Have(("x" * 50_000,), ()))
                assert host.counters["casts_lost_full"] > 50

    run_async(main)
