"""The whole client library in the broker simulator: programs written with it run under virtual time, and crash."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from ordercast.api import publishing
from ordercast.api.bridge import Bridge
from ordercast.api.client import Client
from ordercast.api.errors import ConnectError
from ordercast.api.outbox import OutboxRoom
from ordercast.client.machine import ClientMachine
from ordercast.client.settings import ClientSettings
from ordercast.core.chance import salt
from ordercast.core.ids import NodeId, origin_of
from ordercast.core.process import Peer, Wires
from ordercast.net.host import ProcessHost
from ordercast.net.wire.settings import WireSettings
from ordercast.sim.clock import Scheduler
from ordercast.sim.connections import Life
from ordercast.sim.pubsub.layout import address_of
from ordercast.sim.pubsub.world import PubsubWorld
from tests.support.virtual_loop import VirtualLoop

_CONNECT_S = 30.0
_SERIAL_BITS = 6


@contextmanager
def virtual_wall_clock(clock: Scheduler) -> Iterator[None]:
    """What clients publish meanwhile carries virtual time, so that a run is the same whenever it runs."""
    real, publishing.time = publishing.time, SimpleNamespace(time_ns=lambda: clock.now)  # type: ignore[assignment]
    try:
        yield
    finally:
        publishing.time = real


class SimulatedHost:
    """Stands in for the TCP host of a client: a process of the simulation under any client name."""

    def __init__(self, program: Program, name: str, peer: Peer, build: Callable[[Wires], ClientMachine]) -> None:
        self.settings = WireSettings()
        self.failure: BaseException | None = None
        self.ended_event = asyncio.Event()
        self.name = name
        self._program = program
        self._processes = program.world.processes
        self.process = self._processes.add(name, "client", lambda wires, _: build(wires))
        self.process.starts += 1
        self.process.life = Life(self._processes, self.process, peer)  # `start` would call it by the process's name.
        self.process.life.start()

    @property
    def now_ns(self) -> int:
        return self._processes.clock.now

    def turn(self, handler: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        life = self.process.life
        if life is None:
            raise ConnectError("the process is dead")
        results: list[Any] = []
        life.turn(lambda: results.append(handler(*arguments, **options)))
        return results[0]

    async def stop(self, reason: str) -> None:
        self._processes.stop(self.name, reason)

    def abandon(self) -> None:
        self._processes.crash(self.name)


class Program:
    """One process with a loop of its own and any number of clients, which live and die with it."""

    def __init__(self, world: PubsubWorld, name: str, edge: str, session: int = 1) -> None:
        self.world = world
        self.name = name
        self.edge = edge
        self.session = session
        self.loop = VirtualLoop(world.clock)
        self.hosts: list[SimulatedHost] = []

    @property
    def alive(self) -> bool:
        return self.loop.alive

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        self.loop.create_task(main)

    async def connect(self, name: str, session: int) -> Client:
        """As `ordercast.connect` does, without a data directory."""
        world, settings = self.world, self.world.settings
        bridge = Bridge(origin_of(NodeId(name), session))
        own = address_of(self.edge)
        others = [address for address in world.layout.directory().values() if address != own]
        mine = ClientSettings(
            request_ms=settings.request_ms, retry_ms=settings.retry_ms, stability_ms=settings.stability_ms,
            consumes_at_once=False, folds=True,
        )  # fmt: skip

        def build(wires: Wires) -> ClientMachine:
            return ClientMachine(NodeId(name), session, (own, *others), wires, bridge, mine, None, None)

        process = f"{self.name}.{self.session}.{len(self.hosts)}"
        host = SimulatedHost(self, process, Peer("client", name, session), build)
        self.hosts.append(host)
        assert host.process.life is not None
        machine = cast("ClientMachine", host.process.life.machine)
        room = OutboxRoom(machine.topics, 100_000, 1 << 28)
        client = Client(cast("ProcessHost", host), machine, bridge, room=room, ledger=None)
        client.make_other = partial(self._other, client)
        async with asyncio.timeout(_CONNECT_S):
            while bridge.broker is None:
                await bridge.change()
        return client

    async def _other(self, _: Client, name: str, above: int) -> Client:
        """A later one has a higher number; what is drawn tells two of the same moment apart."""
        chance = salt(self.world.seed, self.name, self.session) % (1 << _SERIAL_BITS)
        number = (self.world.clock.now // 1000 << _SERIAL_BITS) + chance
        return await self.connect(name, max(above + 1, number))

    # What happens to it

    def kill(self, survive: str = "random") -> None:
        self.loop.kill()
        for host in self.hosts:
            self.world.processes.crash(host.name, survive)

    def stand_still(self, duration_ns: int) -> None:
        """Everything stops, the connections too; nothing is lost of what comes meanwhile, if nobody gives it up."""
        until = self.world.clock.now + duration_ns
        self.loop.stand_still(until)
        for host in self.hosts:
            if self.world.processes.pause(host.name):
                self.world.clock.at(until, self._go_on, host)

    def _go_on(self, host: SimulatedHost, _: None) -> None:
        self.world.processes.resume(host.name)

    def tidy_up(self) -> None:
        self.kill()
        self.loop.tidy_up()
