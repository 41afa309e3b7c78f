"""Everything that a simulated run is watched for: the tree, the exchanges of missed publications, the clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import msgspec

from ordercast.client.membership import LIVE
from ordercast.core.ids import NodeId, Topic
from ordercast.core.messages import Packet
from ordercast.experiments.ginger.watch_tree import SeenView, TreeWatch
from ordercast.pubsub.client_packets import Entries
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Received, Summary, Vector
from ordercast.pubsub.topic_packets import OpenTopic, SyncEnd, TopicBuffer
from ordercast.sim.pubsub.rest import unrest

if TYPE_CHECKING:
    from ordercast.broker.node import Broker
    from ordercast.sim.connections.life import Life
    from ordercast.sim.pubsub.world import PubsubWorld

_NS_PER_MS = 1e6
_Channel = tuple[str, str, str]
"""Sender, receiver, topic."""


class Exchange(msgspec.Struct):
    """Messages that one end of a new channel sent because the other end said that it had missed them."""

    sender: str
    receiver: str
    topic: str
    at_ns: int
    upwards: bool
    ids: list[str]
    exact: bool
    """These were exactly the ones that the receiver lacked, in the order of the sender's log."""


class Outage(msgspec.Struct):
    """A client without an edge broker."""

    client: str
    lost_ns: int
    ms: float | None = None
    """Until all its topics were live again."""
    edge: str = ""


class RepairWatch:
    """Watches repairs in a run; installed before the world starts. Its trace is not changed."""

    def __init__(self, world: PubsubWorld, look_ns: int) -> None:
        self.world = world
        self.tree = TreeWatch(world)
        self.exchanges: list[Exchange] = []
        self.outages: list[Outage] = []
        self.deliveries: dict[Topic, dict[str, list[Publication]]] = {}
        self.before: dict[str, SeenView] = {}
        """The views shortly before the crash."""
        self.residuals_before: dict[str, int] = {}
        self.peak_log = 0
        """Entries of a topic's log, the most at any broker."""
        self.last_delivered: dict[str, int] = {}
        """Publication to its last delivery so far."""
        self._times: list[int] = []
        self._sent: dict[_Channel, list[Publication]] = {}
        self._said: dict[_Channel, tuple[Summary, Vector]] = {}
        self._live: dict[str, bool] = {}
        processes = world.processes
        self._tap, self._notes = processes.tap, processes.notes
        processes.tap, processes.notes, processes.after_event = self._packet, self._note, self._after
        world.delivery_watchers.append(self._delivered)
        world.clock.at(look_ns, self._look, None)

    def _look(self, _: None, __: None) -> None:
        self.before, self.residuals_before = self.tree.views(), self.tree.residuals()

    def _delivered(self, client: object, entry: Publication) -> None:
        node: NodeId = client.node  # type: ignore[attr-defined]
        self.deliveries.setdefault(entry.topic, {}).setdefault(node, []).append(entry)
        self.last_delivered[entry.id] = self.world.clock.now
        self._times.append(self.world.clock.now)

    def delivered_between(self, start_ns: int, end_ns: int) -> int:
        return sum(start_ns <= time < end_ns for time in self._times)

    def unfinished(self) -> list[str]:
        """Publications that are still held, pending or unconfirmed."""
        problem = unrest(self.world)
        return [problem] if problem else []

    def _note(self, node: str, kind: str, info: Mapping[str, str]) -> None:
        if self._notes is not None:
            self._notes(node, kind, info)
        if node not in self.world.clients:
            self.tree.noted(node, kind, info)

    # E10

    def _packet(self, source: str, target: str, packet: Packet) -> None:
        if self._tap is not None:
            self._tap(source, target, packet)
        if isinstance(packet, Entries):
            self._sent.setdefault((source, target, packet.topic), []).extend(packet.entries)
        elif isinstance(packet, OpenTopic | TopicBuffer):
            self._said[target, source, packet.topic] = packet.have, packet.base
            self._sent.pop((source, target, packet.topic), None)
        elif isinstance(packet, SyncEnd):
            self._exchanged((source, target, packet.topic))
        else:
            self.tree.sent(source, target, packet)

    def _exchanged(self, channel: _Channel) -> None:
        source, target, topic = channel
        broker = self.world.brokers()[NodeId(source)]
        have, base = self._said[channel]
        known = Received(have)
        node = broker.topics.nodes[Topic(topic)]
        lacking = [
            entry.id
            for entry in node.log
            if (entry.origin, entry.number) not in known
            and entry.number > max(base.get(entry.origin, 0), node.base.get(entry.origin, 0))
        ]
        ids = [entry.id for entry in self._sent.get(channel, [])]
        upwards = broker.tree.parent_name == target
        self.exchanges.append(Exchange(source, target, topic, self.world.clock.now, upwards, ids, ids == lacking))

    # Clients

    def _after(self, life: Life) -> None:
        name = NodeId(life.name)
        if name in self.world.clients:
            self._client(name)
            return
        self._sent = {}
        broker = cast("Broker", life.machine)
        if life.alive:
            self.tree.handled(name, broker)
            longest = max((len(node.log) for node in broker.topics.nodes.values()), default=0)
            self.peak_log = max(self.peak_log, longest)

    def _client(self, name: NodeId) -> None:
        machine = self.world.clients[name].machine
        if machine is None or not machine.topics:
            return
        live = all(membership.phase == LIVE for membership in machine.topics.values())
        was_live, self._live[name] = self._live.get(name, False), live
        if was_live and not live:
            self.outages.append(Outage(name, self.world.clock.now))
        elif live and not was_live:
            self._back(name, machine.edge.broker)

    def _back(self, name: str, edge: str) -> None:
        outage = next((o for o in reversed(self.outages) if o.client == name and o.ms is None), None)
        if outage is not None:
            outage.ms = (self.world.clock.now - outage.lost_ns) / _NS_PER_MS
            outage.edge = edge
