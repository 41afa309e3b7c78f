"""Readers with data directories in the broker simulator: programs that read when they like, go, and come back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import msgspec

from ordercast.api import connecting
from ordercast.api.client import Client
from ordercast.api.connecting import ConnectOptions
from ordercast.api.errors import ConnectError, HistoryLost, SessionLost
from ordercast.api.inbox import Inbox
from ordercast.api.ledger import SqliteLedger
from ordercast.client.machine import ClientMachine
from ordercast.client.settings import ClientSettings
from ordercast.core.chance import salt, unit
from ordercast.core.ids import Topic
from ordercast.core.process import Peer, Wires
from ordercast.net.wire.settings import WireSettings
from ordercast.pubsub.filters import matches
from ordercast.scenario.model import Scenario
from ordercast.sim.catalogue import BROKER
from ordercast.sim.clock import ns
from ordercast.sim.pubsub.faults import PubsubFaults
from ordercast.sim.pubsub.layout import address_of
from ordercast.sim.pubsub.run import build_world, start_everybody
from ordercast.sim.pubsub.world import PubsubWorld
from tests.support.library_stage import Program, SimulatedHost, virtual_wall_clock
from tests.support.pubsub_lab import Watch

Message = tuple[str, str, int]
"""Topic, publisher, and its number there."""


class DurableHost(SimulatedHost):
    """Made as the TCP host of a client is; what is written in its last turn is on the disk when it dies."""

    def __init__(
        self,
        me: Peer,
        build: Callable[[Wires], ClientMachine],
        *_: object,
        ledger: SqliteLedger | None = None,
        **__: Any,
    ) -> None:
        loop = asyncio.get_running_loop()
        program = next(one for one in PROGRAMS if one.loop is loop)
        self._make = program, f"{program.name}.{len(program.hosts)}", me, build
        self.ledger = ledger
        program.hosts.append(self)

    async def start(self) -> None:
        super().__init__(*self._make)

    @property
    def machine(self) -> ClientMachine:
        assert self.process.life is not None
        return cast("ClientMachine", self.process.life.machine)

    def turn(self, handler: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        try:
            return super().turn(handler, *arguments, **options)
        finally:
            if self.ledger is not None and self.process.life is None:
                self.ledger.flush()

    async def stop(self, reason: str) -> None:
        self.write_down()
        await super().stop(reason)

    def abandon(self) -> None:
        self.write_down()
        super().abandon()

    def write_down(self) -> None:
        ledger, self.ledger = self.ledger, None
        if ledger is not None:
            ledger.close()


PROGRAMS: list[Program] = []
"""All programs of the run."""


@contextmanager
def simulated_connections(world: PubsubWorld) -> Iterator[None]:
    """`ordercast.connect` inside programs leads into the simulation, and its clock is the simulated one."""
    clock = SimpleNamespace(time_ns=lambda: world.clock.now)
    chance = SimpleNamespace(randbits=lambda _: 0, token_hex=lambda _: "x")
    with (
        virtual_wall_clock(world.clock), patch.object(connecting, "ProcessHost", DurableHost),
        patch.object(connecting, "time", clock), patch.object(connecting, "secrets", chance),
        patch.object(connecting, "_EPOCH_MS", 0), patch.object(connecting, "_SKEW_MS", 0),
    ):  # fmt: skip
        yield


class Publisher(Program):
    """Publishes a few messages on each of its topics, some of which begin late."""

    def __init__(self, stage: DurableStage, name: str, edge: str, plan: list[tuple[float, str]]) -> None:
        super().__init__(stage.world, name, edge)
        self.stage = stage
        self.plan = plan
        PROGRAMS.append(self)
        self.run(self._publish())

    async def _publish(self) -> None:
        client = await self.connect(self.name, 1)
        for at_ms, topic in self.plan:
            await asyncio.sleep(max(0.0, at_ms / 1000 - self.loop.time()))
            number = len(self.stage.published.setdefault((topic, self.name), [])) + 1
            self.stage.published[topic, self.name].append(self.loop.time())
            try:
                await client.publish(topic, b"%d" % number)
            except SessionLost:  # What was never called safe may be lost.
                self.stage.published[topic, self.name].pop()
                return


class ReaderPlan(msgspec.Struct, frozen=True):
    """One life of a reader: when it begins and ends, how it ends, and how long it thinks."""

    begins_ms: float
    ends_ms: float
    end: str
    """`close`, `abandon` or `kill`."""
    waits_ms: float
    """Between its subscriptions and the first look into an inbox."""
    thinks_ms: float
    """After each message, at most."""


class ReaderLife(Program):
    """A run of the reader's program, from connect to its end."""

    def __init__(self, reader: Reader, number: int, plan: ReaderPlan) -> None:
        stage = reader.stage
        brokers = sorted(stage.world.layout.parents)
        super().__init__(
            stage.world, f"{reader.name}.{number}", brokers[salt(stage.seed, reader.name, number) % len(brokers)]
        )
        self.reader = reader
        self.plan = plan
        self.client: Client | None = None
        self.last: dict[str, Message] = {}
        PROGRAMS.append(self)
        self.run(self._live())

    async def _live(self) -> None:
        while True:
            with suppress(SessionLost, ConnectError):
                await self._read_to_the_end()
            self.reader.note("told", "")
            if self.client is not None:
                await self.client.close()
            await asyncio.sleep(0.05)

    async def _read_to_the_end(self) -> None:
        """Of the session."""
        self.client = await connecting._connect(self._options())
        inboxes = []
        for pattern in self.reader.patterns:
            inbox = await self._subscribe(pattern)
            self.reader.confirmed.setdefault(pattern, self.loop.time())
            inboxes.append(inbox)
        await asyncio.sleep(self.plan.waits_ms / 1000)
        await asyncio.gather(*map(self._read, inboxes))

    async def _subscribe(self, pattern: str) -> Inbox:
        assert self.client is not None
        while True:
            try:
                return await self.client.subscribe(pattern, start=self.reader.start)
            except HistoryLost as lost:
                self.reader.note("told", lost.topic)

    async def _read(self, inbox: Inbox) -> None:
        while True:
            try:
                message = await inbox.get()
            except HistoryLost as lost:
                self.reader.note("told", lost.topic)
                await asyncio.sleep(0.05)
                continue
            if (message.topic, message.publisher) not in self.reader.stage.published:
                continue  # Somebody else's.
            one = message.topic, message.publisher, int(message.payload)
            self.last[inbox.pattern] = one
            self.reader.note("read", one)
            thought = unit(salt(self.reader.stage.seed, self.name, *one)) * self.plan.thinks_ms
            await asyncio.sleep(0.001 + thought / 1000)

    def _options(self) -> ConnectOptions:
        settings = self.world.settings
        mine = ClientSettings(
            request_ms=settings.request_ms, retry_ms=settings.retry_ms, stability_ms=settings.stability_ms,
            consumes_at_once=False, folds=True,
        )  # fmt: skip
        own = address_of(self.edge)
        others = [address for address in self.world.layout.directory().values() if address != own]
        return ConnectOptions(
            addresses=(own, *others), client_id=self.reader.name, token="", user="", tls=None, data=self.reader.data,
            trace=None, timeout=30.0, cluster="", outbox_limit=1000, settings=mine, wire=WireSettings(),
        )  # fmt: skip

    # Its end

    def end(self) -> None:
        if self.plan.end == "kill" or self.client is None:
            self.over()
        else:
            self.run(self._end(self.client))

    async def _end(self, client: Client) -> None:
        await (client.close() if self.plan.end == "close" else client.abandon())
        if self.plan.end == "close":
            self.last.clear()  # What was read last counts as taken.
        self.over()

    def over(self) -> None:
        if self.alive:
            self.kill()
            for host in self.hosts:
                cast("DurableHost", host).write_down()
            self.reader.note("over", tuple(self.last.values()))


class Reader:
    """A client with a data directory: its lives, and what they were handed and told."""

    def __init__(self, stage: DurableStage, name: str, data: Path, patterns: list[str], start: str) -> None:
        self.stage = stage
        self.name = name
        self.data = data
        self.patterns = patterns
        self.start = start
        self.confirmed: dict[str, float] = {}
        """When each subscription was confirmed first."""
        self.story: list[tuple[str, Any]] = []
        self.lives: list[ReaderLife] = []

    def note(self, kind: str, what: Any) -> None:
        self.story.append((kind, what))

    def begin(self, plan: ReaderPlan) -> None:
        life = ReaderLife(self, len(self.lives), plan)
        self.lives.append(life)
        if plan.ends_ms:
            self.stage.world.clock.at(ns(plan.ends_ms), lambda *_: life.end())

    def problems(self, keeps: Callable[[str], bool]) -> list[str]:
        found: list[str] = []
        for (topic, publisher), times in sorted(self.stage.published.items()):
            since = min((at for pattern, at in self.confirmed.items() if matches(pattern, Topic(topic))), default=None)
            if since is not None:
                missing = self._missing(topic, publisher, times, since, found)
                told = ("told", topic) in self.story or ("told", "") in self.story
                if missing and (keeps(topic) or not told):
                    found.append(f"lost: {self.name} never read {publisher}'s {missing[:5]} on {topic}")
        return found

    def _missing(self, topic: str, publisher: str, times: list[float], since: float, found: list[str]) -> list[int]:
        """Numbers of one publisher on one topic that were owed and not read; what came twice or late is added."""
        read: list[int] = []
        again: set[Message] = set()
        for kind, what in self.story:
            if kind == "over":
                again |= set(what)
            elif kind == "read" and what[:2] == (topic, publisher):
                if what in again and what[2] in read:
                    again.discard(what)  # Read last before a kill: it may come once more.
                elif what[2] in read:
                    found.append(f"twice: {self.name} read {publisher}'s {what[2]} on {topic} twice")
                elif read and what[2] < read[-1]:
                    found.append(f"late: {self.name} read {publisher}'s {what[2]} on {topic} after {read[-1]}")
                else:
                    read.append(what[2])
        owed = [number for number, at in enumerate(times, start=1) if at > since]
        return [number for number in owed if number not in read]


class DurableStage:
    """A world of brokers with publishers and readers beside it."""

    def __init__(self, scenario: Scenario, directory: Path) -> None:
        self.seed = scenario.seed
        self.world: PubsubWorld = build_world(scenario, BROKER, scenario.seed, None)
        self.watch = Watch(self.world)
        self.directory = directory
        self.readers: list[Reader] = []
        self.published: dict[tuple[str, str], list[float]] = {}
        """Topic and publisher, and when it published what is safe."""

    def publisher(self, name: str, edge: str, begins_ms: float, plan: list[tuple[float, str]]) -> None:
        self.world.clock.at(ns(begins_ms), lambda *_: Publisher(self, name, edge, plan))

    def reader(self, name: str, patterns: list[str], start: str, lives: list[ReaderPlan]) -> None:
        reader = Reader(self, name, self.directory / name, patterns, start)
        self.readers.append(reader)
        for plan in lives:
            self.world.clock.at(ns(plan.begins_ms), lambda what, _: reader.begin(what), plan)

    def live(self, until_ms: float) -> None:
        PROGRAMS.clear()
        with simulated_connections(self.world):
            PubsubFaults(self.world)
            start_everybody(self.world)
            self.world.clock.run_until(ns(until_ms))
            for reader in self.readers:
                for life in reader.lives:
                    life.over()

    def end(self) -> None:
        for program in PROGRAMS:
            program.tidy_up()

    def problems(self, keeps: Callable[[str], bool]) -> list[str]:
        found = [problem for reader in self.readers for problem in reader.problems(keeps)] + self.watch.problems
        found += [f"blamed: {one} blames {other}: {why}" for one, other, why in self.world.processes.peer_errors]
        return found + [f"{program.name}: {error}" for program in PROGRAMS for error in program.loop.errors]
