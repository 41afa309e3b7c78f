"""The preventive broadcast while processes join, leave and are killed: the same test in the simulator and over TCP."""

from __future__ import annotations

import asyncio
import socket
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.messages import Message, Packet
from ordercast.net.nodes.node import NodePlace
from ordercast.net.overlays.host import OverlayHost
from ordercast.net.overlays.state_log import OverlayLog
from ordercast.net.wire.credentials import join_address
from ordercast.net.wire.settings import WireSettings
from ordercast.protocols.preventive import variants
from ordercast.protocols.preventive.node import Preventive
from ordercast.protocols.preventive.packets import RULES, Data, Hello
from ordercast.protocols.preventive.settings import PreventiveOptions
from ordercast.protocols.preventive.variants import PREVENTIVE
from ordercast.scenario.load import parse_scenario
from ordercast.sim.clock import ns
from ordercast.sim.overlays.run import start_everybody
from ordercast.sim.overlays.world import OverlayWorld
from tests.support.arq import ArqProxy
from tests.support.loop import run_async, until

FIRST = ["n0", "n1", "n2", "n3"]
LATE = ["n4", "n5"]
TIMES = {"retry_ms": 30, "ack_ms": 300, "join_ms": 500}
OPTIONS = PreventiveOptions(**TIMES)
MEMORIES: dict[str, dict[str, Any]] = {
    "vector": {},
    "counting": {"memory": "counting", "skip_sender": False, "fallback": "hint"},
    "links": {"memory": "links", "skip_sender": False, "fallback": "hint"},
}
CODEC = PREVENTIVE.codec()
RING = [["n0", "n1"], ["n1", "n2"], ["n2", "n3"], ["n0", "n3"], ["n0", "n2"]]


def build(wires: Any, place: Any) -> Preventive:
    return variants.build(wires, place, OPTIONS)


class Stage:
    """What both runtimes let a test do."""

    def __init__(self) -> None:
        self.got: dict[str, list[str]] = defaultdict(list)

    publish: Callable[[str], None]
    join: Callable[[str, str], Awaitable[None]]
    leave: Callable[[str], Awaitable[None]]
    kill: Callable[[str], None]
    machine: Callable[[str], Preventive]
    wait: Callable[[float], Awaitable[None]]
    stop: Callable[[], Awaitable[None]]

    async def eventually(self, holds: Callable[[], bool]) -> None:
        for _ in range(1000):
            if holds():
                return
            await self.wait(20)
        raise AssertionError("it did not come to that")


async def simulated(memory: str) -> Stage:
    stage = Stage()
    edges = [*RING, ["n0", "n4"], ["n2", "n5"]]
    faults = [{"kind": "join", "node": node, "at_ms": 100_000} for node in LATE]
    scenario = parse_scenario(
        {"name": "", "overlay": {"kind": "edges", "edges": edges}, "workload": [], "fault": faults,
         "duration_ms": 200_000, "link": {"latency_ms": 2}, "options": {**TIMES, **MEMORIES[memory]}}
    )  # fmt: skip
    world = OverlayWorld(scenario, PREVENTIVE, 3, None)
    world.delivery_watchers.append(lambda node, message: stage.got[node.node].append(message.id))
    start_everybody(world)

    async def wait(milliseconds: float) -> None:
        world.clock.run_until(world.clock.now + ns(milliseconds))

    async def join(name: str, _contact: str) -> None:
        world.nodes[NodeId(name)].start()

    async def leave(name: str) -> None:
        world.nodes[NodeId(name)].leave()

    async def stop() -> None:
        assert world.processes.peer_errors == []

    guarantee = PREVENTIVE.guarantee
    stage.publish = lambda name: world.nodes[NodeId(name)].publish("t0", 8, guarantee)  # type: ignore[arg-type]
    stage.kill = lambda name: (world.processes.crash(name), None)[1]
    stage.machine = lambda name: world.nodes[NodeId(name)].machine  # type: ignore[return-value]
    stage.join, stage.leave, stage.wait, stage.stop = join, leave, wait, stop
    return stage


async def over_tcp(memory: str) -> Stage:
    stage = Stage()
    options = PreventiveOptions(**TIMES, **MEMORIES[memory])
    known = NodePlace("test", b"a secret").credentials()
    hosts: dict[str, OverlayHost] = {}

    async def begin(name: str, contacts: tuple[str, ...], *, genesis: bool) -> None:
        host = hosts[name] = OverlayHost(
            NodeId(name), lambda wires, place: variants.build(wires, place, options), contacts, CODEC,
            PREVENTIVE.guarantee, WireSettings(), credentials=known, genesis=genesis,
        )  # fmt: skip
        host.delivery_watchers.append(lambda message: stage.got[name].append(message.id))
        await host.start("127.0.0.1:0")

    for name in FIRST:  # Whoever comes first knows nobody, and is found by the others.
        near = [b if a == name else a for a, b in RING if name in (a, b)]
        await begin(name, tuple(hosts[other].me.address for other in near if other in hosts), genesis=True)
    for name in FIRST:  # Of two, the one with the smaller address dials; these did not know each other's.
        for other in [b for a, b in RING if a == name]:
            sampler = hosts[name].machine.sampler  # type: ignore[attr-defined]
            sampler.neighbours[hosts[other].me.address] = None
            hosts[name].turn(sampler.wires.meet, hosts[other].me.address)

    async def join(name: str, contact: str) -> None:
        await begin(name, (hosts[contact].me.address,), genesis=False)

    async def leave(name: str) -> None:
        host = hosts.pop(name)
        host.leave()
        await host.departed.wait()
        await host.stop("leaves")
        assert host.counters["left_heard"] == 1

    async def wait(milliseconds: float) -> None:
        await asyncio.sleep(milliseconds / 1000)

    async def stop() -> None:
        await asyncio.gather(*(host.stop() for host in hosts.values()))
        assert all(host.failure is None and host.counters["closed_protocol"] == 0 for host in hosts.values())

    stage.publish = lambda name: (hosts[name].publish("t0", b"x"), None)[1]
    stage.kill = lambda name: hosts.pop(name).abandon()
    stage.machine = lambda name: hosts[name].machine  # type: ignore[return-value]
    stage.join, stage.leave, stage.wait, stage.stop = join, leave, wait, stop
    return stage


@pytest.mark.parametrize("memory", ["vector", "links"])
@pytest.mark.parametrize("runtime", [simulated, over_tcp])
def test_everybody_who_lives_agrees_in_causal_order_while_processes_come_and_go(
    runtime: Callable[[str], Awaitable[Stage]], memory: str
) -> None:
    """T16: n4 and n5 join, n1 leaves, n3 is killed; who stays has all that is published meanwhile, each once."""

    async def main() -> None:
        stage = await runtime(memory)
        try:
            for name in FIRST:
                stage.publish(name)
            await stage.eventually(lambda: all(len(stage.got[name]) == 4 for name in FIRST))
            await stage.join("n4", "n0")
            await stage.join("n5", "n2")
            await stage.eventually(lambda: all(stage.machine(name).joined for name in LATE))
            assert stage.got["n4"] == stage.got["n5"] == [], "what a joiner inherits is not delivered again"
            for name in [*FIRST, *LATE]:
                stage.publish(name)
            await stage.eventually(lambda: all(len(stage.got[name]) == 10 for name in FIRST))
            await stage.leave("n1")
            stage.kill("n3")
            for name in ("n0", "n2", "n4", "n5"):
                stage.publish(name)
            owed = {"n0": 14, "n2": 14, "n4": 10, "n5": 10}
            await stage.eventually(lambda: {name: len(stage.got[name]) for name in owed} == owed)
        finally:
            await stage.stop()
        for name, got in stage.got.items():
            assert len(set(got)) == len(got), name
            for origin in {message.split("#")[0] for message in got}:
                numbers = [int(m.split("#")[1]) for m in got if m.split("#")[0] == origin]
                assert numbers == sorted(numbers)

    run_async(main)


@pytest.mark.parametrize("runtime", [simulated, over_tcp])
def test_where_links_stay_copies_are_counted_and_nothing_is_remembered_at_rest(
    runtime: Callable[[str], Awaitable[Stage]],
) -> None:
    """PRV-9.2, in both runtimes: everybody has everything once, without a vector."""

    async def main() -> None:
        stage = await runtime("counting")
        try:
            await stage.eventually(lambda: all(len(stage.machine(name).broadcast.safe) >= 2 for name in FIRST))
            for _ in range(5):
                for name in FIRST:
                    stage.publish(name)
            await stage.eventually(lambda: all(len(stage.got[name]) == 20 for name in FIRST))
            remembered = [stage.machine(name).broadcast.memory for name in FIRST]  # type: ignore[attr-defined]
            await stage.eventually(lambda: sum(memory.entries for memory in remembered) == 0)
        finally:
            await stage.stop()
        assert all(len(set(got)) == len(got) for got in stage.got.values())

    run_async(main)


def a_host(name: str, contacts: tuple[str, ...] = (), *, token: bytes = b"a secret") -> OverlayHost:
    return OverlayHost(
        NodeId(name), build, contacts, CODEC, PREVENTIVE.guarantee, WireSettings(),
        credentials=NodePlace("test", token).credentials(),
    )  # fmt: skip


def test_a_joiner_tries_its_contacts_one_after_the_other_until_one_takes_it_in() -> None:
    """One is dead, one has another token; the third has delivered something, and the joiner inherits it."""

    async def main() -> None:
        dead, stranger, friend = a_host("dead"), a_host("stranger", token=b"a guess"), a_host("friend")
        for host in (dead, stranger, friend):
            await host.start("127.0.0.1:0")
        await friend.publish("t0", b"before")
        await dead.stop()
        joiner = a_host("joiner", (dead.me.address, stranger.me.address, friend.me.address))
        await joiner.start("127.0.0.1:0")
        waiting = joiner.publish("t0", b"while it joins")
        await waiting
        assert joiner.machine.broadcast.log.received == {"friend": 1, "joiner": 1}  # type: ignore[attr-defined]
        assert joiner.counters["join_retries"] == 2
        await until(lambda: friend.machine.broadcast.log.received.get("joiner") == 1)  # type: ignore[attr-defined]
        await asyncio.gather(*(host.stop() for host in (stranger, friend, joiner)))

    run_async(main)


@pytest.mark.parametrize(
    "said",
    [Hello(RULES + 1, Origin("friend"), (), True), Data(Message(Origin("x"), 1, Topic("t0"), b""))],
    ids=["other-rules", "no-hello"],
)
def test_who_breaks_the_rules_is_cut_off_and_nobody_else(said: Packet) -> None:
    """A peer with another version, and one that sends messages before it has said hello."""

    async def main() -> None:
        friend, guest = a_host("friend"), a_host("guest")
        await friend.start("127.0.0.1:0")
        await guest.start("127.0.0.1:0")
        connection = guest.turn(guest.open, friend.me.address)
        guest.turn(guest.send, connection, said)
        await until(lambda: friend.counters["closed_protocol"] == 1)
        await friend.publish("t0", b"goes on")
        assert friend.failure is None
        await asyncio.gather(friend.stop(), guest.stop())

    run_async(main)


def test_a_killed_process_goes_on_with_what_it_had_delivered(tmp_path: Path) -> None:
    """PRV-6.8: it comes back with its state, gets what it missed by a digest, and numbers its own messages on."""

    async def main() -> None:
        friend = a_host("friend")
        await friend.start("127.0.0.1:0")
        got: list[str] = []

        async def begin() -> OverlayHost:
            log = OverlayLog(tmp_path / "state", NodeId("kept"), 0, PREVENTIVE.name)
            host = OverlayHost(
                NodeId("kept"), build, (friend.me.address,), CODEC, PREVENTIVE.guarantee, WireSettings(),
                credentials=NodePlace("test", b"a secret").credentials(), log=log,
            )  # fmt: skip
            host.delivery_watchers.append(lambda message: got.append(message.id))
            await host.start("127.0.0.1:0")
            return host

        await friend.publish("t0", b"inherited")
        first = await begin()
        await first.publish("t0", b"mine")
        await friend.publish("t0", b"heard")
        await until(lambda: got == ["kept#1", "friend#2"])
        first.abandon()
        await friend.publish("t0", b"missed")
        second = await begin()
        await until(lambda: got[2:] == ["friend#3"])
        assert (await second.publish("t0", b"again mine")).id == "kept#2"
        assert second.machine.boots == 1  # type: ignore[attr-defined]
        await until(lambda: friend.machine.broadcast.log.received == {"friend": 3, "kept": 2})  # type: ignore[attr-defined]
        with pytest.raises(UsageError, match="another process uses this state"):
            OverlayLog(tmp_path / "state", NodeId("kept"), 0, PREVENTIVE.name)
        await asyncio.gather(friend.stop(), second.stop())
        with pytest.raises(UsageError, match="node is kept there and other here"):
            OverlayLog(tmp_path / "state", NodeId("other"), 0, PREVENTIVE.name)

    run_async(main)


def test_t17_over_datagrams_that_are_lost_and_overtake_the_order_holds() -> None:
    """5 % lost, 5 % overtaken, with numbers and repetitions below the connections; then the logs are checked."""

    async def main() -> None:
        proxies, hosts, logs = [], [], {}
        for name in FIRST:
            host = a_host(name, tuple(host.me.address for host in hosts))
            door = socket.create_server(("127.0.0.1", 0))
            proxies.append(ArqProxy(door.getsockname()[:2], loss=0.05, late=0.05, salt=len(hosts)))
            host.me = msgspec.structs.replace(host.me, address=join_address(*await proxies[-1].start()))
            logs[name] = log = []  # type: list[str]
            host.delivery_watchers.append(lambda message, log=log: log.append(message.id))
            await host.start(door)
            hosts.append(host)
        await until(lambda: all(host.machine.joined for host in hosts))  # type: ignore[attr-defined]
        base = {name: len(log) for name, log in logs.items()}
        assert set(base.values()) == {0}
        for _ in range(15):
            for host in hosts:
                host.publish("t0", b"x" * 300)
            await asyncio.sleep(0)
        await until(lambda: all(len(log) == 60 for log in logs.values()))
        await asyncio.gather(*(host.stop() for host in hosts))
        await asyncio.gather(*(proxy.close() for proxy in proxies))
        assert min(sum(proxy.lost for proxy in proxies), sum(proxy.overtaken for proxy in proxies)) > 20
        check_causal(logs)

    run_async(main)


def check_causal(logs: dict[str, list[str]]) -> None:
    """P1 and P3 from their definitions: each once, and after all that its publisher had delivered before."""
    pasts = {
        m: set(log[:place]) for name, log in logs.items() for place, m in enumerate(log) if m.startswith(f"{name}#")
    }
    for name, log in logs.items():
        assert len(set(log)) == len(log), name
        for place, message in enumerate(log):
            assert pasts[message] <= set(log[:place]), f"{name} delivers {message} too early"
