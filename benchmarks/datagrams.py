"""What casts cost: real datagrams beside bare asyncio ones, forged ones, and gossip rounds of a large simulated group.

Run: python benchmarks/datagrams.py. Processor time, the best of several runs; all figures of one run of this file.
The group is as the source's: fanout 4, at most 20 updates and 10 members in a message, 0.2 % of datagrams lost,
6 updates of 64 bytes a round by 25 updaters; they go round until they have reached everybody (`rounds_for`).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import socket
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ordercast.core.chance import mix, salt
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.messages import Guarantee, Message, Packet
from ordercast.core.process import OverlayMachine, OverlayPlace, OverlayWires, Peer
from ordercast.core.wire import Codec
from ordercast.net.overlays.host import OverlayHost
from ordercast.net.wire.credentials import Credentials, split_address
from ordercast.net.wire.settings import WireSettings
from ordercast.protocols.cluster.machine import ClusterMachine
from ordercast.protocols.cluster.options import ClusterOptions
from ordercast.protocols.gossip.machine import GossipMachine
from ordercast.protocols.gossip.options import GossipOptions, rounds_for
from ordercast.scenario.tables import Uniform
from ordercast.sim.connections import CastModel, Processes, same_everywhere
from ordercast.sim.run import rare_collections

DATAGRAMS = 20_000
AT_ONCE = 50
BODY = b"x" * 200
TIMES = 3
_WARM = 40
"""Rounds until everybody has heard of everybody."""


class Blob(Packet, frozen=True, tag=1):
    body: bytes


class Ear(OverlayMachine):
    """Counts what it hears."""

    def __init__(self, wires: OverlayWires, place: OverlayPlace) -> None:
        self.wires = wires
        self.heard = 0

    def on_cast(self, peer: Peer, packets: Sequence[Packet]) -> None:
        self.heard += len(packets)


async def bare() -> float:
    """Bare asyncio: an endpoint that sends, one that counts."""
    loop = asyncio.get_running_loop()
    heard = 0

    class Count(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            nonlocal heard
            heard += 1

    receiver, _ = await loop.create_datagram_endpoint(Count, local_addr=("127.0.0.1", 0))
    place = receiver.get_extra_info("sockname")
    sender, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0))

    async def send() -> None:
        for _ in range(AT_ONCE):
            sender.sendto(BODY, place)

    spent = await _timed(send, lambda: heard)
    sender.close()
    receiver.close()
    return spent


async def cast(carrier: Any) -> float:
    """Two hosts: packets, frames, macs, windows, turns."""
    ann, bob = await _host("ann", carrier), await _host("bob", carrier)
    packet = Blob(BODY)

    def send_now() -> None:
        for _ in range(AT_ONCE):
            ann.cast(bob.me.address, packet)

    async def send() -> None:
        ann.turn(send_now)

    ear = bob.machine
    assert isinstance(ear, Ear)
    spent = await _timed(send, lambda: ear.heard)
    await asyncio.gather(ann.stop(), bob.stop())
    return spent


async def forged() -> float:
    """What somebody without the token costs."""
    bob = await _host("bob", "udp")
    datagram = b"oc\x01" + bytes(250)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        place = split_address(bob.me.address)

        async def send() -> None:
            for _ in range(AT_ONCE):
                stranger.sendto(datagram, place)

        spent = await _timed(send, lambda: bob.counters["casts_forged"])
    await bob.stop()
    return spent


async def _host(name: str, carrier: Any) -> OverlayHost:
    known = Credentials(cluster="bench", peer_token="secret")
    host = OverlayHost(
        NodeId(name), Ear, (), Codec((Blob,)), Guarantee.EVENTUAL, WireSettings(), credentials=known, carrier=carrier
    )
    await host.start("127.0.0.1:0")
    return host


async def _timed(send: Callable[[], Awaitable[None]], heard: Callable[[], int]) -> float:
    """Microseconds of processor time a datagram, sent and received."""
    began, sent = time.process_time(), 0
    while sent < DATAGRAMS:
        await send()
        sent += AT_ONCE
        deadline = time.monotonic() + 0.2
        while heard() < sent and time.monotonic() < deadline:
            await asyncio.sleep(0)
    return (time.process_time() - began) / max(1, heard()) * 1e6


def best(measure: Callable[[], Awaitable[float]]) -> float:
    return min(asyncio.run(_run(measure)) for _ in range(TIMES))


async def _run(measure: Callable[[], Awaitable[float]]) -> float:
    return await measure()


def seconds_of_rounds(members: int, rounds: int, protocol: str, digest_every: int = 1) -> list[float]:
    """Processor time of each of so many gossip rounds of a group, with 6 updates a round."""
    names = tuple(f"m{i:04d}" for i in range(members))
    updaters = names[:25]
    rounds_long = rounds_for(members, 4)
    gossip: dict[str, Any] = {"round_ms": 100.0, "rounds": rounds_long, "history": 140, "view": members + 1}
    world = Processes(1, same_everywhere(Uniform(low_ms=10.0, high_ms=30.0)), casts=CastModel(loss=0.002))

    def build(wires: Any, peer: Peer) -> OverlayMachine:
        place = OverlayPlace(peer, names, True, salt(1, peer.name))
        if protocol == "gossip":
            return GossipMachine(wires, place, GossipOptions(**gossip))
        own = ClusterOptions(
            **gossip, clusters=("c",), entries=25, coordinators=updaters, recovery="k", digest_every=digest_every
        )
        return ClusterMachine(wires, place, own)

    for name in names:
        world.add(name, "node", build, address=name)
        world.start(name)
    made = dict.fromkeys(updaters, 0)

    def live(number: int) -> None:
        for i in range(6):
            name = updaters[mix(7, number, i) % len(updaters)]
            made[name] += 1
            message = Message(Origin(name), made[name], Topic("c"), bytes(64), Guarantee.EVENTUAL)
            machine = world.machine(name)
            assert isinstance(machine, OverlayMachine)
            world.act(name, machine.on_publish, message)
        world.clock.run_until(world.clock.now + 100_000_000)

    with rare_collections():
        for number in range(_WARM):
            live(number)
        gc.collect()
        spent = []
        for number in range(_WARM, _WARM + rounds):
            began = time.process_time()
            live(number)
            spent.append(time.process_time() - began)
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", choices=["gossip", "cluster"], help="simulate this one, and nothing else")
    parser.add_argument("--digest-every", type=int, default=1, help="rounds from digest to digest; 0: none")
    arguments = parser.parse_args()
    if arguments.only is None:
        measure_datagrams()
    for protocol in ("gossip", "cluster") if arguments.only is None else (arguments.only,):
        spent = seconds_of_rounds(arguments.members, arguments.rounds, protocol, arguments.digest_every)
        best_rate, median_rate = 1 / min(spent), 1 / statistics.median(spent)
        print(
            f"{protocol}, {arguments.members} members simulated: {best_rate:.1f} rounds a second of processor time "
            f"(median {median_rate:.1f})"
        )


def measure_datagrams() -> None:
    """Real ones, between two hosts in this process."""
    logging.getLogger("ordercast").setLevel(logging.CRITICAL)  # It complains of forged datagrams.
    peer = best(bare)
    print(f"bare asyncio datagrams, {len(BODY)} bytes      {peer:6.1f} us each, sent and received")
    for name, measure in (("cast as datagrams", lambda: cast("udp")), ("cast over connections", lambda: cast("tcp"))):
        spent = best(measure)
        print(f"{name:38}{spent:6.1f} us each, {spent / peer:4.1f} times the bare ones")
    print(f"{'forged datagrams':38}{best(forged):6.1f} us each, sent and refused")


if __name__ == "__main__":
    main()
