"""An overlay whose links change at run time keeps its promise in the simulator and over TCP alike."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ordercast.core.ids import NodeId
from ordercast.core.messages import Guarantee
from ordercast.net.nodes.node import NodePlace
from ordercast.net.overlays.host import OverlayHost
from ordercast.net.wire.settings import WireSettings
from ordercast.sim.clock import ns
from ordercast.sim.connections import Processes, drawn_pairs
from ordercast.sim.connections.overlay import OverlayApplications
from ordercast.trace.journal import Journal, read_journal
from tests.support.loop import run_async, until
from tests.support.moving_links import CODEC, MOVES, MovingLinks

NAMES = [NodeId(f"n{i:02d}") for i in range(8)]
EACH = 5
EVERY_MS = 20.0
GUARANTEE = Guarantee.EVENTUAL


def build(wires: Any, me: Any, contacts: tuple[str, ...]) -> MovingLinks:
    return MovingLinks(wires, me, contacts, ns(EVERY_MS))


class Stage:
    """What both runtimes let a test do."""

    def __init__(self) -> None:
        self.got: dict[NodeId, list[str]] = defaultdict(list)

    publish: Callable[[NodeId, bytes], object]
    machines: Callable[[], list[MovingLinks]]
    wait: Callable[[float], Awaitable[None]]
    stop: Callable[[], Awaitable[None]]


async def simulated(_: Path) -> Stage:
    stage = Stage()
    world = Processes(7, drawn_pairs(7, 1.0, 9.0), codec=CODEC)
    applications = OverlayApplications(world, GUARANTEE)
    applications.delivery_watchers.append(lambda name, message: stage.got[name].append(message.id))
    for name in NAMES:
        applications.add(name, build, (NAMES[0],))
        world.start(name)

    async def wait(milliseconds: float) -> None:
        world.clock.run_until(world.clock.now + ns(milliseconds))

    async def stop() -> None:
        assert world.peer_errors == []

    stage.publish = lambda name, payload: applications.publish(name, "t", payload)
    stage.machines = lambda: [machine for name in NAMES if isinstance(machine := world.machine(name), MovingLinks)]
    stage.wait, stage.stop = wait, stop
    return stage


async def over_tcp(directory: Path) -> Stage:
    stage = Stage()
    known = NodePlace("test", b"a secret").credentials()
    hosts: dict[NodeId, OverlayHost] = {}
    for name in NAMES:
        contacts = (hosts[NAMES[0]].me.address,) if hosts else ()
        hosts[name] = host = OverlayHost(
            name, build, contacts, CODEC, GUARANTEE, WireSettings(), credentials=known,
            journal=Journal(directory / name, packets=False),
        )  # fmt: skip
        host.delivery_watchers.append(lambda message, name=name: stage.got[name].append(message.id))  # type: ignore[misc]
        await host.start("127.0.0.1:0")

    async def wait(milliseconds: float) -> None:
        await asyncio.sleep(milliseconds / 1000)

    async def stop() -> None:
        await asyncio.gather(*(host.stop() for host in hosts.values()))
        for name, host in hosts.items():
            assert host.failure is None
            assert host.counters["closed_protocol"] == 0
            recorded = [row.msg for row in read_journal(directory / name) if row.kind == "deliver"]
            assert recorded == stage.got[name]

    stage.publish = lambda name, payload: hosts[name].publish("t", payload)
    stage.machines = lambda: [host.machine for host in hosts.values() if isinstance(host.machine, MovingLinks)]
    stage.wait, stage.stop = wait, stop
    return stage


@pytest.mark.parametrize("runtime", [simulated, over_tcp])
def test_everybody_delivers_everything_once_while_links_come_and_go(
    runtime: Callable[[Path], Awaitable[Stage]], tmp_path: Path
) -> None:
    async def main() -> None:
        stage = await runtime(tmp_path)
        try:
            for number in range(EACH):
                for name in NAMES:
                    stage.publish(name, b"%d" % number)
                await stage.wait(EVERY_MS * MOVES / EACH)
            everything = Counter(f"{name}#{number + 1}" for name in NAMES for number in range(EACH))
            for _ in range(500):
                moved = all(machine.moves == MOVES for machine in stage.machines())
                if moved and all(len(stage.got[name]) >= everything.total() for name in NAMES):
                    break
                await stage.wait(EVERY_MS)
            assert [Counter(stage.got[name]) for name in NAMES] == [everything] * len(NAMES)
            assert all(machine.moves == MOVES for machine in stage.machines()), "nobody's links stayed as they were"
        finally:
            await stage.stop()

    run_async(main)


def test_a_stranger_without_the_token_is_no_neighbour() -> None:
    async def main() -> None:
        friend, stranger = (
            OverlayHost(
                NodeId(name), build, contacts, CODEC, GUARANTEE, WireSettings(),
                credentials=NodePlace("test", token).credentials(),
            )
            for name, token, contacts in (("a", b"a secret", ()), ("b", b"a guess", ()))
        )  # fmt: skip
        await friend.start("127.0.0.1:0")
        await stranger.start("127.0.0.1:0")
        stranger.turn(stranger.open, friend.me.address)
        await until(lambda: friend.counters["closed_handshake"] == 1)
        assert friend.connections == {}
        waiting = friend.publish("t", b"to myself")
        assert (await waiting).id == "a#1"
        await asyncio.gather(friend.stop(), stranger.stop())
        with pytest.raises(ConnectionError, match="a is stopped"):
            await friend.publish("t", b"too late")

    run_async(main)
