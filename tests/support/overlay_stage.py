"""One overlay machine in the simulator and as real processes: what both let a test of the runtimes do."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from ordercast.core.ids import NodeId, Topic
from ordercast.core.messages import Guarantee
from ordercast.core.process import OverlayMachine, OverlayPlace, OverlayWires, Peer
from ordercast.core.registry import ProtocolInfo
from ordercast.core.wire import Codec
from ordercast.net.host import Carrier
from ordercast.net.nodes.node import NodePlace
from ordercast.net.overlays.host import OverlayHost
from ordercast.net.wire.settings import WireSettings
from ordercast.scenario.model import Edges, Link, Scenario
from ordercast.scenario.tables import Uniform
from ordercast.sim.clock import ns
from ordercast.sim.connections import CastModel
from ordercast.sim.overlays.run import start_everybody
from ordercast.sim.overlays.world import OverlayWorld
from ordercast.trace.journal import Journal, read_journal

GUARANTEE = Guarantee.EVENTUAL
TOPIC = Topic("t")
MachineT = TypeVar("MachineT", bound=OverlayMachine)


class Players(Generic[MachineT]):
    """Nodes with names, all of which know the first one, and the machine that each of them runs.

    A machine is told its wires, itself, whom it knows, and how often it acts.
    """

    def __init__(
        self,
        make: Callable[[OverlayWires, Peer, tuple[str, ...], int], MachineT],
        codec: Codec,
        nodes: int,
        every_ms: float,
    ) -> None:
        self.make, self.codec, self.every_ms = make, codec, every_ms
        self.names = [NodeId(f"n{i:02d}") for i in range(nodes)]

    def build(self, wires: OverlayWires, place: OverlayPlace, _options: Any = None) -> MachineT:
        return self.make(wires, place.me, place.contacts, ns(self.every_ms))

    def info(self) -> ProtocolInfo:
        return ProtocolInfo(
            name="under-test", summary="", source="", guarantee=GUARANTEE, overlay="", faults="", metadata="0",
            genuine=False, packets=(), build_overlay=self.build,
        )  # fmt: skip


class OverlayStage(Generic[MachineT]):
    """What the simulator and real processes have in common."""

    def __init__(self, names: list[NodeId]) -> None:
        self.names = names
        self.got: dict[NodeId, list[str]] = defaultdict(list)

    def publish(self, name: NodeId, payload: bytes) -> object:
        raise NotImplementedError

    def machines(self) -> list[MachineT]:
        raise NotImplementedError

    def counters(self, name: NodeId) -> Counter[str]:
        raise NotImplementedError

    async def wait(self, milliseconds: float) -> None:
        raise NotImplementedError

    async def stop(self) -> None:
        """Also looks for what must never have happened."""
        raise NotImplementedError

    async def all_get(
        self, each: int, *, also: Callable[[], bool] = lambda: True, rounds: int, every_ms: float
    ) -> None:
        """Wait until everybody has `each` messages of everybody; then nothing is missing, and nothing came twice."""
        everything = Counter(f"{name}#{number + 1}" for name in self.names for number in range(each))
        for _ in range(rounds):
            if also() and all(len(self.got[name]) >= everything.total() for name in self.names):
                break
            await self.wait(every_ms)
        assert [Counter(self.got[name]) for name in self.names] == [everything] * len(self.names)


class SimulatedStage(OverlayStage[MachineT]):
    def __init__(
        self, players: Players[MachineT], low_ms: float, high_ms: float, casts: CastModel | None = None
    ) -> None:
        super().__init__(players.names)
        knows = Edges(edges=[(players.names[0], name) for name in players.names[1:]])
        link = Link(latency_ms=Uniform(low_ms=low_ms, high_ms=high_ms))
        scenario = Scenario(name="under-test", overlay=knows, workload=[], link=link)
        self.world = OverlayWorld(scenario, players.info(), 7, None)
        self.world.processes.codec = players.codec
        if casts is not None:
            self.world.processes.casts.model = casts
        self.world.delivery_watchers.append(lambda node, message: self.got[node.node].append(message.id))
        start_everybody(self.world)

    def publish(self, name: NodeId, payload: bytes) -> object:
        return self.world.nodes[name].publish(TOPIC, len(payload), GUARANTEE)

    def machines(self) -> list[MachineT]:
        return cast("list[MachineT]", [node.machine for node in self.world.nodes.values()])

    def counters(self, name: NodeId) -> Counter[str]:
        return self.world.nodes[name].process.counters

    async def wait(self, milliseconds: float) -> None:
        self.world.clock.run_until(self.world.clock.now + ns(milliseconds))

    async def stop(self) -> None:
        assert self.world.processes.peer_errors == []


class RealStage(OverlayStage[MachineT]):
    """One host per node, all in this process; `await start()` before anything else."""

    def __init__(
        self,
        players: Players[MachineT],
        directory: Path,
        settings: WireSettings | None = None,
        carrier: Carrier = "tcp",
    ) -> None:
        super().__init__(players.names)
        self._players, self._directory, self._carrier = players, directory, carrier
        self._settings = settings or WireSettings()
        self.hosts: dict[NodeId, OverlayHost] = {}

    async def start(self) -> RealStage[MachineT]:
        for name in self.names:
            host = self._host(name, (self.hosts[self.names[0]].me.address,) if self.hosts else ())
            host.delivery_watchers.append(lambda message, name=name: self.got[name].append(message.id))  # type: ignore[misc]
            self.hosts[name] = host
            await host.start("127.0.0.1:0")
        return self

    def _host(self, name: NodeId, contacts: tuple[str, ...]) -> OverlayHost:
        return OverlayHost(
            name, self._players.build, contacts, self._players.codec, GUARANTEE, self._settings,
            credentials=NodePlace("test", b"a secret").credentials(), carrier=self._carrier,
            journal=Journal(self._directory / name, packets=False),
        )  # fmt: skip

    def publish(self, name: NodeId, payload: bytes) -> object:
        return self.hosts[name].publish(TOPIC, payload)

    def machines(self) -> list[MachineT]:
        return cast("list[MachineT]", [host.machine for host in self.hosts.values()])

    def counters(self, name: NodeId) -> Counter[str]:
        return self.hosts[name].counters

    async def wait(self, milliseconds: float) -> None:
        await asyncio.sleep(milliseconds / 1000)

    async def stop(self) -> None:
        await asyncio.gather(*(host.stop() for host in self.hosts.values()))
        for name, host in self.hosts.items():
            assert host.failure is None
            assert host.counters["closed_protocol"] == host.counters["casts_refused"] == 0
            recorded = [row.msg for row in read_journal(self._directory / name) if row.kind == "deliver"]
            assert recorded == self.got[name]
