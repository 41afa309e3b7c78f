"""A single broker of a few lines: it orders by arrival and confirms everybody. For tests of the client's library."""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.client.machine import CLIENT_CODEC
from ordercast.core.messages import Packet
from ordercast.core.process import Connection, Peer, ProcessMachine, Wires
from ordercast.net.host import ProcessHost
from ordercast.net.wire.credentials import Credentials
from ordercast.net.wire.settings import WireSettings
from ordercast.pubsub import client_packets as wire
from ordercast.pubsub.filters import matches
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Received, Vector


class _ToyTopic:
    def __init__(self) -> None:
        self.log: list[Publication] = []
        self.have = Received()
        self.base: Vector = {}
        self.members: dict[Connection, bool] = {}
        self.reports: dict[Connection, Vector] = {}
        self.acks: dict[Connection, str] = {}


class ToyBroker(ProcessMachine):
    """Everything on one broker, nothing survives it."""

    def __init__(self, wires: Wires) -> None:
        self.wires = wires
        self.topics: dict[str, _ToyTopic] = {}
        self.peers: dict[Connection, Peer] = {}
        self.watches: list[tuple[Connection, str]] = []
        self.denies: dict[str, str] = {}
        self.refuses: set[bytes] = set()
        self.fenced: set[str] = set()

    def on_opened(self, connection: Connection, peer: Peer) -> None:
        self.peers[connection] = peer

    def on_closed(self, connection: Connection, *, gone: bool, reason: str = "") -> None:
        self.peers.pop(connection, None)
        for name in list(self.topics):
            self._leave(connection, name)
        self.watches = [watch for watch in self.watches if watch[0] != connection]

    def on_packets(self, connection: Connection, packets: Sequence[Packet]) -> None:
        for packet in packets:
            match packet:
                case wire.Entries(topic, entries):
                    self._publish(connection, topic, packet, entries)
                case wire.AskCopies(topic):
                    self.wires.send(connection, wire.KeptAt(topic, ()))
                case wire.Attach():
                    self.wires.send(connection, wire.View(()))
                case wire.Subscribe(topic):
                    self._subscribe(connection, topic)
                case wire.Resume():
                    self._resume(connection, packet)
                case wire.StableReport(topic, vector):
                    self.topics[topic].reports[connection] = vector
                    self._stabilise(topic)
                case wire.Unsubscribe(topic):
                    self._leave(connection, topic)
                    self.wires.send(connection, wire.Left(topic))
                case wire.Watch(pattern):
                    self.watches.append((connection, pattern))
                    found = tuple(topic for topic in sorted(self.topics) if matches(pattern, topic))
                    self.wires.send(connection, wire.TopicsFound(pattern, found))
                case wire.Unwatch(pattern):
                    self.watches.remove((connection, pattern))
                case wire.Ping(at):
                    self.wires.send(connection, wire.Pong(at))

    def _subscribe(self, connection: Connection, name: str) -> None:
        if self.peers[connection].name in self.fenced:
            self.wires.send(connection, wire.Denied(name, "fenced"))
            return
        if name in self.denies:
            self.wires.send(connection, wire.Denied(name, self.denies[name]))
            return
        if name not in self.topics:
            self.topics[name] = _ToyTopic()
            for watcher, pattern in self.watches:
                if matches(pattern, name):
                    self.wires.send(watcher, wire.TopicsFound(pattern, (name,)))
        topic = self.topics[name]
        self.wires.send(connection, wire.TopicState(name, topic.have.summary(), topic.base))

    def _resume(self, connection: Connection, packet: wire.Resume) -> None:
        topic = self.topics[packet.topic]
        topic.base = {**packet.base, **topic.base}
        topic.have.raise_to(packet.base)
        fresh = tuple(entry for entry in packet.entries if topic.have.add(entry.origin, entry.number))
        self._spread(packet.topic, fresh)
        has = Received(packet.have)
        topic.members[connection] = packet.receives
        if packet.receives:
            topic.reports[connection] = {}
        self.wires.send(connection, wire.Granted(packet.topic, topic.base, new=True))
        lacks = tuple(entry for entry in topic.log if (entry.origin, entry.number) not in has)
        if packet.receives and lacks:
            self.wires.send(connection, wire.Entries(packet.topic, lacks))
        self.wires.send(connection, wire.Live(packet.topic))

    def _publish(
        self, connection: Connection, name: str, packet: wire.Entries, entries: tuple[Publication, ...]
    ) -> None:
        topic = self.topics[name]
        if connection not in topic.members:
            return
        if self.refuses:
            for entry in entries:
                if entry.payload in self.refuses:
                    self.wires.send(connection, wire.Refused(name, entry.number, "not that payload"))
            entries = tuple(entry for entry in entries if entry.payload not in self.refuses)
        add = topic.have.add
        fresh = tuple([entry for entry in entries if add(entry.origin, entry.number)])
        self._spread(name, fresh, packet if len(fresh) == len(packet.entries) else None)
        if entries:
            topic.acks[connection] = entries[0].origin

    def _spread(self, name: str, fresh: tuple[Publication, ...], packet: wire.Entries | None = None) -> None:
        if fresh:
            topic = self.topics[name]
            topic.log.extend(fresh)
            packet = packet or wire.Entries(name, fresh)
            for member, receives in topic.members.items():
                if receives:
                    self.wires.send(member, packet)

    def on_turn_end(self) -> None:
        for name, topic in self.topics.items():
            for member, origin in topic.acks.items():
                reached = (topic.have.low.get(origin, 0), tuple(sorted(topic.have.extras.get(origin, ()))))
                self.wires.send(member, wire.Acks(name, reached, reached))
            topic.acks.clear()

    def _stabilise(self, name: str) -> None:
        topic = self.topics[name]
        vectors = list(topic.reports.values())
        origins = set().union(*vectors) if vectors else set()
        base = {origin: min(vector.get(origin, 0) for vector in vectors) for origin in sorted(origins)}
        grown = {origin: number for origin, number in base.items() if number > topic.base.get(origin, 0)}
        if grown:
            topic.base.update(grown)
            topic.log = [entry for entry in topic.log if entry.number > topic.base.get(entry.origin, 0)]
            for member in topic.members:
                self.wires.send(member, wire.StableUpdate(name, dict(topic.base)))

    def _leave(self, connection: Connection, name: str) -> None:
        topic = self.topics[name]
        topic.members.pop(connection, None)
        topic.reports.pop(connection, None)
        topic.acks.pop(connection, None)
        self._stabilise(name)


async def toy_broker(name: str = "b0", listen: str = "127.0.0.1:0", token: str = "") -> ProcessHost:
    """One toy broker that listens on a free port; stop it with `await host.stop()`."""
    credentials = Credentials(client_token=token)
    host = ProcessHost(Peer("broker", name, 0), ToyBroker, CLIENT_CODEC, WireSettings(), credentials=credentials)
    await host.start(listen)
    return host
