"""Answers to readers of kept topics (ARC-7). Nothing is remembered about a reader: a request has all that it needs."""

from __future__ import annotations

from ordercast.broker.archive.kept import KeptTopics
from ordercast.broker.archive.segment_map import Unavailable
from ordercast.broker.archive.topic_archive import TopicArchive
from ordercast.broker.topics.clients import AttachedClient
from ordercast.broker.topics.topics_state import TopicsPart, TopicsState
from ordercast.core.ids import NodeId
from ordercast.core.messages import Packet
from ordercast.core.process import Connection, Peer
from ordercast.pubsub.client_packets import (
    AskCopies,
    HistoryOpened,
    KeptAt,
    KeptRecords,
    NoHistory,
    OpenHistory,
    ReadHistory,
)
from ordercast.pubsub.filters import allows
from ordercast.pubsub.received import Vector

_SERVE = ("topics", "serve")
_PAUSE_NS = 1_000_000


class Serving(TopicsPart):
    """The archive's side of reading. One piece leaves in a turn, readers in turn: live traffic comes first."""

    ordered = ("waiting",)

    constant = (*TopicsPart.constant, "kept")

    def __init__(self, state: TopicsState, kept: KeptTopics) -> None:
        super().__init__(state)
        self.kept = kept
        self.waiting: dict[Connection, ReadHistory] = {}
        """Readers that are owed a piece, the one that has waited longest first."""

    def asked_for_copies(self, client: AttachedClient, packet: AskCopies) -> None:
        """From a local client: whom to ask about the topic."""
        rule = self.kept.rule_of(packet.topic)
        nodes: list[NodeId] = [] if rule is None else self.kept.copies_of(packet.topic)
        where = tuple((node, self.tree.directory[node]) for node in nodes if node in self.tree.directory)
        self.wires.send(client.connection, KeptAt(packet.topic, where, rule.copies if rule is not None else 0))

    def answer(self, reader: Connection, peer: Peer, packet: OpenHistory | ReadHistory) -> None:
        """From anybody who is one of us; clients need the right to subscribe."""
        if peer.kind == "client" and not allows(peer.rights.subscribe, packet.topic):
            self.wires.send(reader, NoHistory(packet.topic, packet.read, "denied", {}))
            return
        archive = self.kept.find(packet.topic)
        if archive is None:
            rule = self.kept.rule_of(packet.topic)
            code = "empty" if rule is not None and self.kept.is_copy(packet.topic, rule) else "unkept"
            self.wires.send(reader, NoHistory(packet.topic, packet.read, code, {}))
            return
        if isinstance(packet, ReadHistory):
            self.waiting[reader] = packet
        else:
            self._reply(reader, archive, packet)

    def _reply(self, reader: Connection, archive: TopicArchive, packet: OpenHistory | ReadHistory) -> None:
        try:
            reply = self._opened(archive, packet) if isinstance(packet, OpenHistory) else self._read(archive, packet)
        except Unavailable as reason:
            reply = NoHistory(packet.topic, packet.read, reason.code, reason.cut)
        self.wires.send(reader, reply)

    def turn_end(self) -> None:
        """One piece for who has waited longest; the others have their turn when this one is over."""
        if not self.waiting:
            return
        reader = next(iter(self.waiting))
        packet = self.waiting.pop(reader)
        archive = self.kept.find(packet.topic)
        if archive is not None:
            self._reply(reader, archive, packet)
        if self.waiting:
            self.wires.set_timer(_SERVE, _PAUSE_NS)

    def closed(self, reader: Connection) -> None:
        self.waiting.pop(reader, None)

    def _opened(self, archive: TopicArchive, packet: OpenHistory) -> Packet:
        until = dict(archive.cut) if packet.until is None else packet.until
        since = self._since(archive, packet, until)
        place = archive.place(since, until)
        rule = self.kept.rule_of(packet.topic)
        whole = not archive.manifest.floor and not since and rule is not None and rule.compact == "none"
        return HistoryOpened(packet.topic, packet.read, since, until, whole, place)

    def _since(self, archive: TopicArchive, packet: OpenHistory, until: Vector) -> Vector:
        match packet.start:
            case "position":
                return packet.since
            case "time":
                return archive.at_time(packet.amount)
            case "last":
                return archive.before_last(packet.amount, until)
            case _:
                return archive.whole_from()

    def _read(self, archive: TopicArchive, packet: ReadHistory) -> Packet:
        bodies, place = archive.read(packet.place)
        self.wires.count("history_records_read", len(bodies))
        return KeptRecords(packet.topic, packet.read, tuple(bodies), place)
