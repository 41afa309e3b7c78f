"""The world of one run of brokers and clients: processes, trace rows, and the workload's view of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ordercast.broker.archive.memory_files import MemoryFiles
from ordercast.broker.memory_ledger import MemoryBrokerLedger
from ordercast.broker.node import BROKER_CODEC, Broker
from ordercast.broker.place import BrokerPlace
from ordercast.core.errors import UsageError, unknown_name
from ordercast.core.ids import NodeId, Topic
from ordercast.core.messages import Guarantee, Message, Packet
from ordercast.core.process import Peer, Wires
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.settings import BrokerSettings
from ordercast.scenario.brokers import BrokerTree
from ordercast.scenario.choosing import Population
from ordercast.scenario.model import Scenario
from ordercast.sim.clock import ns
from ordercast.sim.connections import Processes, Timing
from ordercast.sim.pubsub.client import SimClient
from ordercast.sim.pubsub.layout import address_of, lay_out, receives
from ordercast.sim.pubsub.parts import Parts
from ordercast.trace.recorder import Recorder


class PubsubWorld:
    """Built from a scenario, broker settings and a seed; nothing in it depends on anything else."""

    def __init__(
        self, scenario: Scenario, settings: BrokerSettings, seed: int, recorder: Recorder | None,
        parts: Parts | None = None,
    ) -> None:  # fmt: skip
        self.scenario = scenario
        self.settings = settings
        self.seed = seed
        self.recorder = recorder
        self.parts = parts or Parts()
        self.layout = lay_out(scenario, seed)
        tree = cast("BrokerTree", scenario.overlay)
        timing = Timing(tree.detection_ms, tree.silence_ms, detection=self.layout.detection)
        self.processes = Processes(seed, self.layout.latency, timing, codec=BROKER_CODEC)
        self.processes.notes = self._note
        self.processes.tap = self._sent
        self.clock = self.processes.clock
        self.packets: Counter[str] = Counter()
        """Packets sent, by type."""
        self.faults: Counter[str] = Counter()
        self.complaints: list[str] = []
        """Refusals and denials: none in a scenario without rights."""
        self.delivery_watchers: list[Any] = []
        self.completion_watchers: list[Any] = []
        self.leave_watchers: list[Any] = []
        self.return_watchers: list[Any] = []
        self.acknowledgement_watchers: list[Any] = []
        self.filter_watchers: list[Any] = []
        self.reply_depths: dict[str, int] = {}
        self.disks = {broker: MemoryBrokerLedger() for broker in self.layout.parents}
        self.archives = {broker: self._new_archive() for broker in self.layout.parents}
        self._restored: set[NodeId] = set()
        for broker in self.layout.parents:
            self.processes.add(broker, "broker", self._build_broker, address=address_of(broker))
        directory = self.layout.directory()
        self.clients: dict[NodeId, SimClient] = {}
        for name, spec in self.layout.clients.items():
            edge = address_of(spec.edge)
            others = tuple(address for address in directory.values() if address != edge)
            self.clients[name] = SimClient(self, name, spec, (edge, *others))
        self.groups = {
            topic: tuple(name for name, c in self.layout.clients.items() if topic in (*c.topics, *c.publishes))
            for topic in self.layout.topics
        }
        self.members = {
            topic: {name for name, client in self.layout.clients.items() if receives(client, topic)}
            for topic in self.groups
        }

    # Brokers

    def _build_broker(self, wires: Wires, peer: Peer) -> Broker:
        layout, name = self.layout, NodeId(peer.name)
        directory = layout.directory()
        seeds: tuple[str, ...] = ()
        if name in layout.late:
            seeds = tuple(directory.values())
            directory = {name: peer.address}
        place = BrokerPlace(name, peer.address, directory, layout.parents[name], peer.life, seeds, keep=layout.keep)
        saved = self.disks[name].saved() if name in self._restored else None
        files = self.archives[name] if layout.keep else None
        return self.parts.broker(place, self.settings, wires, self.disks[name], saved, files)

    def _new_archive(self) -> MemoryFiles:
        return MemoryFiles(lambda: self.clock.now // ns(1))

    def start_broker(self, name: NodeId, *, state_kept: bool = False) -> None:
        """Begin a life; one without its state has an empty disk."""
        if state_kept:
            self._restored.add(name)
        else:
            self._restored.discard(name)
            self.disks[name] = MemoryBrokerLedger()
            self.archives[name] = self._new_archive()
        self.processes.start(name)

    def brokers(self) -> dict[NodeId, Broker]:
        """The live ones."""
        found = {name: self.processes.machine(name) for name in self.layout.parents}
        return {name: cast("Broker", machine) for name, machine in found.items() if machine is not None}

    # What the workload sees

    @property
    def default_guarantee(self) -> Guarantee:
        return Guarantee.CAUSAL

    def population(self) -> Population:
        names = tuple(self.clients)
        return Population(names, (), names, self.groups)

    def host(self, name: str, where: str) -> SimClient:
        client = self.clients.get(NodeId(name))
        if client is None:
            raise UsageError(f"{where}: {unknown_name('client', name, self.clients)}")
        return client

    # What clients tell

    def published(self, client: SimClient, publication: Publication) -> None:
        if self.recorder is not None:
            # A Publication has everything that a row takes from a Message.
            self.recorder.publish(client.node, self.clock.now, cast("Message", publication))

    def delivered(self, client: SimClient, entries: Sequence[Publication]) -> None:
        recorder, now = self.recorder, self.clock.now
        for entry in entries:
            if recorder is not None:
                recorder.deliver(client.node, now, cast("Message", entry))
            for watch in self.delivery_watchers:
                watch(client, entry)

    def acknowledged(
        self, client: SimClient, topic: Topic, level: str, low: int, extras: tuple[int, ...]
    ) -> None:  # fmt: skip
        for watch in self.acknowledgement_watchers:
            watch(client, topic, level, low, extras)

    def follows(self, client: SimClient, pattern: str, topics: tuple[Topic, ...]) -> None:
        for watch in self.filter_watchers:
            watch(client, pattern, topics)

    def left(self, client: SimClient, topic: Topic) -> None:
        self.members[topic].discard(client.node)
        self.gone(client)

    def gone(self, client: SimClient) -> None:
        """It crashed, left or lost its session: nobody need wait for it."""
        for watch in self.leave_watchers:
            watch(client)

    # Rows

    def record(self, kind: str, node: str, info: Mapping[str, str] | None = None) -> None:
        if self.recorder is not None:
            self.recorder.event(kind, node, self.clock.now, info)

    def _note(self, node: str, kind: str, info: Mapping[str, str]) -> None:
        self.record(kind, node, info)

    def _sent(self, _source: str, _target: str, packet: Packet) -> None:
        self.packets[type(packet).__name__] += 1
