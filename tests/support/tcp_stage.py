"""The stage over TCP: real sockets, all in this process, with a proxy in front of every broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ordercast import testing
from ordercast.api import Client, Inbox, SessionLost, connect
from ordercast.client.settings import ClientSettings
from ordercast.core.ids import Topic
from ordercast.net.brokers.cluster_file import BrokerEntry, ClusterFile
from ordercast.net.brokers.process import BrokerProcess, Launch
from ordercast.net.turn_ports import address_of, lasting_door
from ordercast.net.wire.credentials import join_address, split_address
from ordercast.net.wire.frames import GreetingReader
from ordercast.net.wire.handshake import Present, decode
from ordercast.verify.verdict import Verdict
from tests.support.chaos_run import judge_living
from tests.support.proxy import Ends, Proxy, Way
from tests.support.pubsub_stage import NEW, Stage


class Border(Proxy):
    """A proxy that knows who dials, and lets nothing through between two sides."""

    def __init__(
        self, target: tuple[str, int], broker: str, separated: Callable[[str, str], bool],
        delay_s: Callable[[str], float],
    ) -> None:  # fmt: skip
        super().__init__(target)
        self.broker = broker
        self.separated = separated
        self.delay_s = delay_s
        self.ways: dict[asyncio.Task[None], tuple[str, Way, Way]] = {}

    def look(self) -> None:
        """Sides have changed."""
        for dialer, *ways in self.ways.values():
            for way in ways:
                (way.freeze if self.separated(dialer, self.broker) else way.thaw)()

    async def _forward(self, near: Ends, far: Ends, lifetime_bytes: int) -> None:
        there, back = Way(), Way()
        answers = asyncio.ensure_future(self._pump(far[0], near[1], back, lifetime_bytes))
        task = asyncio.current_task()
        assert task is not None
        try:
            dialer, first = await _who(near[0])
            there.delay_s = back.delay_s = self.delay_s(dialer)
            self.ways[task] = (dialer, there, back)
            self.look()
            await there.flowing.wait()
            far[1].write(first)
            await asyncio.gather(self._pump(near[0], far[1], there, lifetime_bytes), answers)
        finally:
            self.ways.pop(task, None)
            answers.cancel()
            await asyncio.gather(answers, return_exceptions=True)

    def thaw(self) -> None:
        super().thaw()
        for _, *ways in self.ways.values():
            for way in ways:
                way.thaw()


async def _who(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """The name in the dialer's greeting, and everything that came with it."""
    greetings, first = GreetingReader("dialer"), b""
    body = None
    while body is None:
        data = await reader.read(1 << 16)
        if not data:
            raise ConnectionResetError
        first += data
        body = greetings.feed(data)
    greeting = decode(body, "dialer")
    assert isinstance(greeting, Present)
    return greeting.name, first


class Bordered(testing.InProcessCluster):
    """Brokers that are reached through their borders."""

    async def _launch(self, broker: str) -> None:
        config = self.config
        launch = Launch(
            id=broker, listen=config.entry(broker).door, cluster=config,
            data=Path(config.data) / broker if config.data else None, trace=Path(config.trace),
        )  # fmt: skip
        process = BrokerProcess(launch, door=self._doors.pop(broker, None))
        await process.start()
        self.processes[broker] = process


class TcpStage(Stage):
    """Real sockets, all in this process, with a proxy in front of every broker."""

    def __init__(self, *args: Any, directory: Path, **options: Any) -> None:
        super().__init__(*args, **options)
        self.directory = directory
        self.clients: dict[str, Client] = {}
        self._side: set[str] = set()
        self._reading: dict[str, list[asyncio.Task[None]]] = {}
        self._flowing = {name: asyncio.Event() for name in self.cast}
        self._paused: dict[str, bool] = {}
        self._lost: set[str] = set()

    async def __aenter__(self) -> TcpStage:
        doors = {name: lasting_door() for name in self.brokers}
        self.borders: list[Border] = []
        entries = []
        for name, door in doors.items():
            listen = address_of(door)
            border = Border(split_address(listen), name, self._separated, self._delay_s)
            self.borders.append(border)
            advertise = join_address(*await border.start())
            entries.append(BrokerEntry(id=name, listen=listen, advertise=advertise, parent=self.parents.get(name, "")))
        self.config = ClusterFile(
            cluster="embedded", broker=tuple(entries), settings=self.settings, limits=testing.QUICK_LIMITS,
            trace=str(self.directory / "run"), data=str(self.directory / "data") if self.durable else "",
        )  # fmt: skip
        self.cluster = Bordered(self.config, doors)
        await self.cluster.start()
        await self.settle()
        return self

    async def __aexit__(self, *_: object) -> None:
        for name in list(self.clients):
            await self._stop_reading(name)
            await self.clients.pop(name)._host.stop("over")
        await self.cluster.close()
        for border in self.borders:
            await border.close()

    def _delay_s(self, dialer: str) -> float:
        return self.cast[dialer].link_ms / 1000 if dialer in self.cast else 0.0

    def _separated(self, one: str, other: str) -> bool:
        return (one in self._side) != (other in self._side)

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def enter(self, name: str) -> None:
        role = self.cast[name]
        addresses = [self.config.entry(role.edge).address]
        addresses += [entry.address for entry in self.config.broker if entry.id != role.edge]
        client = await connect(
            addresses, name, trace=self.directory / "run", timeout=30, wire=testing.QUICK_LIMITS,
            settings=ClientSettings(request_ms=500, retry_ms=50, stability_ms=30, ping_ms=300, silence_ms=1000),
        )  # fmt: skip
        self.clients[name] = client
        self._flowing[name].set()
        client.on_event(partial(self._event, name))
        inboxes = [await client.subscribe(pattern) for pattern in role.reads]
        self._reading[name] = [asyncio.create_task(self._read(name, inbox)) for inbox in inboxes]

    def _event(self, name: str, event: Any) -> None:
        if event.kind in ("paused", "resumed"):
            self._paused[name] = event.kind == "paused"

    async def _read(self, name: str, inbox: Inbox) -> None:
        try:
            while True:
                message = await inbox.get()
                await self._flowing[name].wait()
                self.got[name].append(message.id)
                self.on_delivery(name, message)
        except SessionLost:
            self._lost.add(name)
        except ConnectionError:
            pass

    async def _stop_reading(self, name: str) -> None:
        tasks = self._reading.pop(name, [])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def publish(self, name: str, topic: str, *keys: str, guarantee: str = "causal") -> str:
        return self.clients[name].publish_soon(topic, bytes(8), keys=keys, guarantee=guarantee)

    async def acknowledged(self, name: str, message: str, level: str) -> None:
        topic, _, number = message.partition("/")[2].partition("#")
        done = self.clients[name]._bridge.waiting_of(Topic(topic)).wait(level, int(number))
        if done is not None:
            async with asyncio.timeout(self.patience_s):
                await done

    async def leave(self, name: str) -> None:
        await self._stop_reading(name)
        await self.clients.pop(name).close()

    async def kill(self, name: str) -> None:
        if name in self.clients:
            await self.clients.pop(name).abandon()
            await self._stop_reading(name)
        else:
            await self.cluster.kill(name)

    async def restart(self, broker: str) -> None:
        await self.cluster.restart(broker)

    async def settle(self) -> None:
        await self.cluster.settle(self.patience_s)

    def stand_still(self, name: str) -> None:
        self._flowing[name].clear()

    def go_on(self, name: str) -> None:
        self._flowing[name].set()

    def paused(self, name: str) -> bool:
        return self._paused.get(name, False)

    def session_lost(self, name: str) -> bool:
        return name in self._lost

    async def part(self, *side: str) -> None:
        self._side = set(side)
        for border in self.borders:
            border.look()

    async def heal(self) -> None:
        await self.part()

    async def add_broker(self) -> None:
        config = msgspec.structs.replace(self.config, broker=())
        launch = Launch(
            id=NEW, listen="127.0.0.1:0", parent=self.config.broker[0].address, cluster=config,
            trace=self.directory / "run",
        )  # fmt: skip
        process = BrokerProcess(launch)
        await process.start()
        self.cluster.processes[NEW] = process
        await self.settle()

    async def dismiss(self, broker: str) -> None:
        process = self.cluster.processes[broker]
        process.host.turn(process.broker.tree.leave)
        await self.until(lambda: process.broker.tree.left, f"{broker} has left")
        await self.cluster.stop(broker)

    def edge_of(self, name: str) -> str | None:
        return self.clients[name].broker

    def verdict(self) -> Verdict | None:
        return judge_living(self.directory / "run")[0]
