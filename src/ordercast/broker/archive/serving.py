"""Answers to readers of kept topics (ARC-7). Nothing is remembered about a reader: a request has all that it needs.

A reader has one request under way at a time, on a connection of its own: a later one takes the place of one that waits.
"""

from __future__ import annotations

from ordercast.broker.archive.kept import KeptTopics
from ordercast.broker.archive.segment_map import Unavailable
from ordercast.broker.archive.topic_archive import TopicArchive
from ordercast.broker.topics.state.clients import AttachedClient
from ordercast.broker.topics.state.topics_state import TopicsPart, TopicsState
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
from ordercast.pubsub.cuts import union, within
from ordercast.pubsub.filters import allows
from ordercast.pubsub.received import Vector

_SERVE = ("topics", "serve")
_PAUSE_NS = 1_000_000
_SHORT_OPENINGS = 1000
"""Publishers in the cuts of the openings that one turn answers, about."""


class Serving(TopicsPart):
    """The archive's side of reading. One piece leaves in a turn, or a few openings: live traffic comes first."""

    ordered = ("waiting",)

    constant = (*TopicsPart.constant, "kept")

    def __init__(self, state: TopicsState, kept: KeptTopics) -> None:
        super().__init__(state)
        self.kept = kept
        self.waiting: dict[Connection, OpenHistory | ReadHistory] = {}
        """Readers that are owed an answer, the one that has waited longest first."""

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
        self.waiting[reader] = packet

    def _reply(self, reader: Connection, archive: TopicArchive, packet: OpenHistory | ReadHistory) -> None:
        try:
            reply = self._opened(archive, packet) if isinstance(packet, OpenHistory) else self._read(archive, packet)
        except Unavailable as reason:
            reply = NoHistory(packet.topic, packet.read, reason.code, reason.cut, reason.seam, reason.early)
        self.wires.send(reader, reply)

    def turn_end(self) -> None:
        """Who has waited longest comes first; the others have their turn when this one is over."""
        if not self.waiting:
            return
        room = _SHORT_OPENINGS
        while self.waiting and room > 0:
            reader = next(iter(self.waiting))
            packet = self.waiting.pop(reader)
            archive = self.kept.find(packet.topic)
            if archive is not None:
                self._reply(reader, archive, packet)
                room -= _work(archive, packet)
        if self.waiting:
            self.wires.set_timer(_SERVE, _PAUSE_NS)

    def closed(self, reader: Connection) -> None:
        self.waiting.pop(reader, None)

    def _opened(self, archive: TopicArchive, packet: OpenHistory) -> Packet:
        until = self._until(archive, packet)
        since = self._since(archive, packet, until)
        place = archive.place(since, until, over=packet.over)
        rule = self.kept.rule_of(packet.topic)
        whole = not archive.manifest.floor and not since and rule is not None and rule.compact == "none"
        gaps = packet.over and (self._begins_late(archive, packet, since) or archive.has_gaps(since, until))
        return HistoryOpened(packet.topic, packet.read, since, until, whole, place, gaps)

    def _until(self, archive: TopicArchive, packet: OpenHistory) -> Vector:
        if packet.until is not None:
            return packet.until
        return archive.whole_end if packet.start == "repair" else archive.end

    def _since(self, archive: TopicArchive, packet: OpenHistory, until: Vector) -> Vector:
        """A reader that goes over gaps begins with the first thing that is left."""
        floor = archive.manifest.floor
        match packet.start:
            case "position" | "repair":
                return union(packet.since, floor) if packet.over else packet.since
            case "time":
                return archive.at_time(packet.amount)
            case "last":
                return archive.before_last(packet.amount, until, over=packet.over)
            case _:
                return dict(floor) if packet.over else archive.whole_from()

    def _begins_late(self, archive: TopicArchive, packet: OpenHistory, since: Vector) -> bool:
        """Whether something that was asked for lies before all that is left."""
        floor, asked = archive.manifest.floor, packet.since if packet.start == "position" else {}
        return not within(floor, asked) and within(since, union(asked, floor))

    def _read(self, archive: TopicArchive, packet: ReadHistory) -> Packet:
        bodies, place = archive.read(packet.place, over=packet.over)
        self.wires.count("history_records_read", len(bodies))
        return KeptRecords(packet.topic, packet.read, tuple(bodies), place)


def _work(archive: TopicArchive, packet: OpenHistory | ReadHistory) -> int:
    """How much of a turn the answer takes: what is looked for in a segment, or read from it, all that is left."""
    if isinstance(packet, ReadHistory) or packet.start == "time":
        return _SHORT_OPENINGS
    return 10 + len(archive.cut) + len(packet.since)
