"""The stage under virtual time."""

from __future__ import annotations

from functools import partial
from typing import cast

import msgspec

from ordercast.client.membership import LIVE
from ordercast.core.ids import NodeId, Topic
from ordercast.core.messages import GUARANTEES
from ordercast.pubsub.filters import is_filter
from ordercast.pubsub.publications import Publication
from ordercast.scenario.load import parse_scenario
from ordercast.sim.catalogue import BROKER
from ordercast.sim.clock import ns
from ordercast.sim.pubsub.client import SimClient
from ordercast.sim.pubsub.run import build_world, manifest_of
from ordercast.trace.recorder import Recorder
from ordercast.trace.writer import RunWriter
from ordercast.verify.verdict import Verdict
from tests.support.pubsub_lab import TableWriter, judge_the_living
from tests.support.pubsub_stage import NEW, Stage

_MOMENT_S = 0.0002


class SimStage(Stage):
    """Virtual time."""

    patience_s = 120.0

    async def __aenter__(self) -> SimStage:
        topics = sorted({topic for c in self.cast.values() for topic in (*c.reads, *c.writes) if not is_filter(topic)})
        clients = {
            name: {
                "edge": c.edge,
                "topics": [topic for topic in c.reads if not is_filter(topic)],
                "publishes": [topic for topic in topics if topic not in c.reads],
                "filters": [pattern for pattern in c.reads if is_filter(pattern)],
            }
            for name, c in self.cast.items()
        }
        scenario = parse_scenario(
            {
                "name": "stage", "protocol": "broker", "duration_ms": 1000,
                "options": msgspec.to_builtins(self.settings),
                "link": {"latency_ms": {"kind": "uniform", "low_ms": 1, "high_ms": 10}},
                # Clients are near their brokers: an acknowledgement is faster than what it is about.
                "links": [{"between": [name, c.edge], "latency_ms": c.link_ms} for name, c in self.cast.items()],
                "overlay": {
                    "kind": "broker-tree", "parents": {**self.parents, NEW: "b0"}, "clients": clients,
                    "detection_ms": {"kind": "uniform", "low_ms": 1, "high_ms": 50}, "silence_ms": 700,
                },
                "workload": [{"kind": "open", "rate_per_s": 1, "limit": 1}],
                "fault": [{"kind": "join", "node": NEW, "at_ms": 999}],
            }
        )  # fmt: skip
        self.writer = TableWriter()
        self.recorder = Recorder(cast("RunWriter", self.writer), "stage", packets=False)
        self.world = build_world(scenario, BROKER, 1, self.recorder)
        self.world.delivery_watchers.append(self._delivered)
        self.parted: list[int] = []
        self._reached: dict[tuple[str, str, str], tuple[int, tuple[int, ...]]] = {}
        self.world.acknowledgement_watchers.append(self._acknowledged)
        self._closed: dict[str, set[str]] = {name: set() for name in self.cast}
        for broker in self.brokers:
            self.world.start_broker(NodeId(broker))
        await self.settle()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.recorder.finish(manifest_of(self.world, "stage", drained=True))

    async def wait(self, seconds: float) -> None:
        self.world.clock.run_until(self.world.clock.now + ns(seconds * 1000))

    def _delivered(self, client: SimClient, entry: Publication) -> None:
        self.got[client.node].append(entry.id)
        # Never within the event that brought it.
        self.world.clock.at(self.world.clock.now, lambda entry, _: self.on_delivery(client.node, entry), entry)

    def _acknowledged(self, client: SimClient, topic: Topic, level: str, low: int, extras: tuple[int, ...]) -> None:
        self._reached[client.node, topic, level] = (low, extras)

    def _client(self, name: str) -> SimClient:
        return self.world.clients[NodeId(name)]

    async def enter(self, name: str) -> None:
        client = self._client(name)
        found: list[str] = []
        client.watching = lambda pattern, topics: found.append(pattern)  # type: ignore[method-assign]
        client.flow = partial(self._flow, name)  # type: ignore[method-assign]
        client.start()
        machine = client.machine
        assert machine is not None
        filters = [pattern for pattern in self.cast[name].reads if is_filter(pattern)]
        await self.until(lambda: found == filters, f"{name} watches {filters}")
        await self.until(
            lambda: all(m.phase == LIVE for m in machine.topics.values()), f"{name} is confirmed as a member"
        )

    def _flow(self, name: str, topic: Topic, *, open_: bool) -> None:
        (self._closed[name].discard if open_ else self._closed[name].add)(topic)

    def publish(self, name: str, topic: str, *keys: str, guarantee: str = "causal") -> str:
        told: list[Publication] = []
        self._client(name).publish(Topic(topic), 8, GUARANTEES[guarantee], keys, (), told.append)
        return told[0].id

    async def acknowledged(self, name: str, message: str, level: str) -> None:
        topic, _, number = message.partition("/")[2].partition("#")
        wanted = "stable" if level == "delivered" else level

        def come_so_far() -> bool:
            low, extras = self._reached.get((name, topic, wanted), (0, ()))
            return int(number) <= low or int(number) in extras

        left = self.patience_s
        while not come_so_far():  # In small steps: what follows happens in the moment of the acknowledgement.
            assert left > 0, f"{message} is not {level}"
            await self.wait(_MOMENT_S)
            left -= _MOMENT_S

    async def leave(self, name: str) -> None:
        client = self._client(name)
        client.leave()
        await self.until(lambda: client.machine is None, f"{name} has left")

    async def kill(self, name: str) -> None:
        self.world.processes.crash(name, "none")
        self.world.record("crash", name)

    async def restart(self, broker: str) -> None:
        self.world.record("recover", broker, {"state": "kept" if self.durable else "lost"})
        self.world.start_broker(NodeId(broker), state_kept=self.durable)

    async def settle(self) -> None:
        def whole() -> bool:
            overlays = [broker.tree for broker in self.world.brokers().values()]
            roots = [overlay for overlay in overlays if overlay.is_root]
            return len(roots) == 1 and roots[0].decides and not any(overlay.seeking for overlay in overlays)

        await self.until(whole, "one tree")

    def stand_still(self, name: str) -> None:
        self.world.processes.pause(name)

    def go_on(self, name: str) -> None:
        self.world.processes.resume(name)

    def paused(self, name: str) -> bool:
        return bool(self._closed[name])

    def session_lost(self, name: str) -> bool:
        return bool(self._client(name).lost_session)

    async def part(self, *side: str) -> None:
        rest = [name for name in (*self.brokers, *self.cast) if name not in side]
        self.parted.append(self.world.processes.partition(side, rest))

    async def heal(self) -> None:
        while self.parted:
            self.world.processes.heal(self.parted.pop())

    async def add_broker(self) -> None:
        self.world.start_broker(NodeId(NEW))
        await self.settle()

    async def dismiss(self, broker: str) -> None:
        tree = self.world.brokers()[NodeId(broker)].tree
        self.world.processes.act(broker, tree.leave)
        await self.until(lambda: tree.left, f"{broker} has left")
        self.world.processes.stop(broker, "left")

    def edge_of(self, name: str) -> str | None:
        machine = self._client(name).machine
        return machine.edge.broker if machine is not None else None

    def verdict(self) -> Verdict | None:
        assert self.writer.manifest is not None
        return judge_the_living(self.writer, self.writer.manifest, witnesses=3)
