"""Filling holes of archives from other copies (ARC-5, ARC-6): one at a time, in the background, over its own line."""

from __future__ import annotations

from ordercast.broker.archive.kept import KeptTopics
from ordercast.broker.archive.ports import Record, SegmentInfo
from ordercast.broker.archive.records import decode_record
from ordercast.broker.archive.topic_archive import TopicArchive
from ordercast.broker.topics.state.topics_state import TopicsPart, TopicsState
from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId, Topic
from ordercast.core.messages import Packet
from ordercast.core.process import Connection
from ordercast.core.state import State
from ordercast.core.wire import NOT_DECODABLE
from ordercast.pubsub.client_packets import HistoryOpened, KeptRecords, NoHistory, OpenHistory, ReadHistory
from ordercast.pubsub.closed import ClosedSessions
from ordercast.pubsub.cuts import CutSet, closed_in, grow, intervals, plain, within
from ordercast.pubsub.received import Vector

REPAIR = ("topics", "repair")
_MOST_WAITS = 20
"""So often a copy is asked again that has not heard of what is missing; where a topic has no member it may never."""


class Hole(State):
    """The hole that is being filled, and whom it was asked of."""

    def __init__(self, topic: Topic, number: int, start: Vector, end: Vector, left: list[NodeId]) -> None:
        self.topic = topic
        self.number = number
        self.start = start
        self.end = end
        self.least = end
        """What has to be in it at least."""
        self.left = left
        """Brokers that were not asked yet."""
        self.asked = NodeId("")
        self.silent = False
        """Somebody could not be asked: it may have what is missing."""
        self.reached: Vector = dict(start)
        self.seam: Vector | None = None
        """A cut within it: somebody has what lies on one side of it only."""
        self.bounds = CutSet(dict(start)), CutSet(dict(end))

    def ends_at(self, end: Vector) -> None:
        """Another copy has said how far it reaches."""
        self.end = dict(end)
        self.bounds = self.bounds[0], CutSet(self.end)

    def note_seam(self, seam: Vector) -> None:
        """Where only numbers are missing: what is closed in a hole belongs to no side of it alone."""
        if not self.bounds[0].closed.has_all(self.bounds[1].closed.summary()):
            return
        upto = CutSet(seam).upto
        within_it = {o: max(self.start.get(o, 0), min(n, upto(o))) for o, n in self.end.items()}
        if not within(self.end, within_it) and not within(within_it, self.start):
            self.seam = within_it


class ArchiveRepair(TopicsPart):
    """Reads what is missing here from somebody who has it."""

    constant = (*TopicsPart.constant, "kept", "_staged")

    def __init__(self, state: TopicsState, kept: KeptTopics) -> None:
        super().__init__(state)
        self.kept = kept
        self.line: Connection | None = None
        self.hole: Hole | None = None
        self._staged: list[SegmentInfo] = []
        self.reads = 0
        self.waits = 0
        """How often in a row a hole was not given up because a copy had not heard of it."""
        self.waiting = False

    def look(self) -> None:
        """Begin with the first hole there is, if none is being filled."""
        if self.hole is not None or self.waiting or (self.tree.parent is None and not self.tree.is_root):
            return
        for topic in sorted(self.kept.archives):
            found = self.kept.archives[topic].hole()
            if found is not None:
                others = [node for node in self.kept.copies_of(topic) if node != self.tree.node]
                self.hole = Hole(topic, *found, others)
                self._ask_next()
                return

    def _ask_next(self) -> None:
        self._hang_up()
        hole = self.hole
        assert hole is not None
        if not hole.left:
            self._nobody_has_it(hole)
            return
        node = hole.left.pop(0)
        address = self.tree.directory.get(node)
        if address is None:
            self._ask_next()
            return
        self.reads += 1
        hole.asked = node
        self.line = self.wires.open(address)
        doubt = self.kept.of(hole.topic).is_doubt(hole.number)
        start, end = ("repair", None) if doubt else ("position", hole.end)
        self.wires.send(self.line, OpenHistory(hole.topic, self.reads, start, hole.start, 0, end))
        self.wires.set_timer(REPAIR, int(self.settings.request_ms * 1e6), background=True)

    def _nobody_has_it(self, hole: Hole) -> None:
        """ARC-6: everybody who could have it has said that it does not; or it is tried again after a while."""
        self.hole = None
        if hole.seam is not None:
            self.kept.of(hole.topic).split(hole.number, hole.seam)
            self.wires.count("archive_holes_split")
            self.look()
        elif hole.silent:
            self.waiting = True
            self.wires.set_timer(REPAIR, int(self.settings.request_ms * 1e6), background=True)
        else:
            self.waits = 0
            self.kept.of(hole.topic).give_up(hole.number)
            self.wires.count("archive_holes_lost")
            self.look()

    def _hang_up(self) -> None:
        if self.line is not None:
            self.wires.close(self.line)
            self.line = None
        hole = self.hole
        if hole is not None and self._staged:
            self.kept.of(hole.topic).unstage(self._staged)
            hole.reached = dict(hole.start)
        self._staged.clear()

    # What happens on its line

    def owns(self, line: Connection) -> bool:
        return line == self.line

    def closed(self) -> None:
        """Nobody was there, or it has gone."""
        self.line = None
        self._silent()

    def _silent(self) -> None:
        """The broker that was asked does not answer; if it should keep the topic, it may have it. Ask the next one."""
        hole = self.hole
        if hole is not None:
            hole.silent = hole.silent or self._should_keep(hole)
            self._ask_next()

    def _should_keep(self, hole: Hole) -> bool:
        """Whether the broker that was asked is one of the topic's copies."""
        rule = self.kept.rule_of(hole.topic)
        return rule is not None and hole.asked in self.kept.copies_of(hole.topic)[: rule.copies]

    def timer(self) -> None:
        if self.hole is not None:
            self._silent()
        else:
            self.waiting = False
            self.look()

    def receive(self, packet: Packet) -> None:
        hole = self.hole
        if hole is None or self.line is None or getattr(packet, "read", None) != self.reads:
            return
        self.wires.set_timer(REPAIR, int(self.settings.request_ms * 1e6), background=True)
        match packet:
            case HistoryOpened():
                self._opened(hole, packet)
            case KeptRecords():
                self._take(hole, packet)
            case NoHistory():
                hole.silent = hole.silent or packet.code == "moved" or self._is_early(hole, packet)
                hole.note_seam(packet.seam)
                self._ask_next()

    def _is_early(self, hole: Hole, packet: NoHistory) -> bool:
        """ARC-6: a copy that is just back may have it in its log, and keeps it when it hears that it is stable."""
        if not packet.early or hole.silent or not self._should_keep(hole) or self.waits >= _MOST_WAITS:
            return False
        self.waits += 1
        return True

    def _opened(self, hole: Hole, packet: HistoryOpened) -> None:
        """ARC-13: in doubt, everything that the other copy has; it may not have heard of all closed sessions yet."""
        if self.kept.of(hole.topic).is_doubt(hole.number):
            if not within(hole.least, packet.until):
                hole.silent = True
                self._ask_next()
                return
            hole.ends_at(packet.until)
        self._read_on(hole, packet.place)

    def _read_on(self, hole: Hole, place: tuple[int, int] | None) -> None:
        if place is None or within(hole.end, hole.reached):
            self._filled(hole)
        elif self.line is None:
            self._ask_next()
        else:
            self.wires.send(self.line, ReadHistory(hole.topic, self.reads, place))

    def _take(self, hole: Hole, packet: KeptRecords) -> None:
        archive = self.kept.of(hole.topic)
        for body in packet.records:
            try:
                record = decode_record(body)
            except NOT_DECODABLE as error:
                raise PeerError("a copy", f"sent a record of {hole.topic} that is none: {error}") from None
            self._stage(archive, hole, record)
        self._read_on(hole, packet.place)

    def _stage(self, archive: TopicArchive, hole: Hole, record: Record) -> None:
        """Only what belongs into the hole: the other copy's records have other bounds."""
        start, end = hole.bounds
        covered = {o: min(n, end.upto(o)) for o, n in plain(record.covered).items()}
        covered = {o: n for o, n in covered.items() if n > start.upto(o)}
        closed = end.closed.shared_with(closed_in(record.covered))  # Of others something may come behind the hole.
        if closed and not ClosedSessions(closed_in(hole.reached)).has_all(closed):
            covered |= intervals(closed)
        if covered:
            wanted = (e for e in record.entries if end.has(e.origin, e.number))
            inside = tuple(e for e in wanted if not start.has(e.origin, e.number))
            archive.stage(self._staged, Record(record.kept_ms, covered, inside))
            grow(hole.reached, covered)

    def _filled(self, hole: Hole) -> None:
        staged = list(self._staged)
        self._staged.clear()
        archive = self.kept.of(hole.topic)
        if archive.is_doubt(hole.number):
            archive.adopt(hole.number, staged, hole.end)
        else:
            archive.fill(hole.number, staged)
        self.waits = 0
        self.wires.count("archive_holes_filled")
        self.hole = None
        self._hang_up()
        self.wires.cancel_timer(REPAIR)
        self.look()
