"""Reading kept topics (ARC-7): find a copy, ask it for one piece after the other, go on at another copy if it fails.

A reader knows by a cut what it has, never by a place at a copy: the beginning of one copy's order and the rest of
another's are one legal view together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

import msgspec

from ordercast.client.session import Session
from ordercast.client.settings import ns
from ordercast.core import chance
from ordercast.core.errors import PeerError
from ordercast.core.ids import Origin, Topic
from ordercast.core.process import Connection
from ordercast.core.state import State
from ordercast.core.wire import NOT_DECODABLE
from ordercast.pubsub.client_packets import (
    AskCopies,
    HistoryOpened,
    KeptAt,
    KeptRecords,
    NoHistory,
    OpenHistory,
    ReadHistory,
)
from ordercast.pubsub.cuts import CutSet, closed_in, grow, intervals, is_interval, within
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Vector

HISTORY = "history"
_WINDOW = 1 << 16
"""Publications that were read and not taken by the application; beyond it nothing more is asked for."""


class _ReadRecord(msgspec.Struct, frozen=True, array_like=True):
    kept_ms: int
    covered: Vector
    entries: tuple[Publication, ...]


_decode = msgspec.msgpack.Decoder(_ReadRecord).decode


class Start(msgspec.Struct, frozen=True):
    """A beginning: `position` (behind `since`), `earliest`, `time` (`amount` ms of the epoch), `last` (`amount`)."""

    kind: str
    since: Vector = {}
    amount: int = 0


EARLIEST = Start("earliest")


class PastStart(msgspec.Struct, frozen=True):
    """The place where the topics of a filter begin: all alike, or each behind its part of a position."""

    start: Start
    cuts: dict[Topic, Vector] = {}
    latest_only: bool = False

    def of(self, topic: Topic) -> Start:
        return at(self.cuts.get(topic, {})) if self.start.kind == "position" else self.start


def at(cut: Vector) -> Start:
    return Start("position", dict(cut))


class HistoryReader(Protocol):
    """Port to whoever wants the history of a topic."""

    def history_opened(self, read: HistoryRead) -> None:
        """`progress`, `until` and `whole` are known; again, where the start was looked for anew (ARC-7)."""

    def history(self, read: HistoryRead, entries: Sequence[Publication], covered: Vector) -> None:
        """The next publications in order, if any; with them everything up to `covered` was read."""

    def history_over(self, read: HistoryRead) -> None:
        """Everything up to `until` was read."""

    def history_failed(self, read: HistoryRead, code: str, cut: Vector) -> None:
        """`unkept`, `denied`, `cleaned` or `lost`: no copy can serve it; from `cut` on there is no gap."""


class HistoryRead(State):
    """Everything between two cuts of one topic, once, wherever it is read."""

    constant: ClassVar[tuple[str, ...]] = ("reader", "number", "topic", "over")

    def __init__(
        self,
        number: int,
        topic: Topic,
        start: Start,
        until: Vector | None,
        reader: HistoryReader,
        *,
        over: bool = False,
    ) -> None:
        self.number = number
        self.topic = topic
        self.start = start
        self.until = until
        self.reader = reader
        self.over = over
        """What is gone for good is passed over."""
        self.gaps = False
        """Something was passed over."""
        self.progress: Vector | None = None
        """Up to where it was read; None: no copy has said where it begins."""
        self.begun = False
        """Something of it was read. Until then `earliest`, a time or the last ones are what a copy has then."""
        self.whole = False
        self.left: list[tuple[str, str]] | None = None
        """Copies to try in this pass; None: the edge has not said which there are."""
        self.copies: tuple[str, ...] = ()
        """Those that should have all of it: while one of them is away, it is waited for."""
        self.asking = ""
        self.said: list[tuple[str, Vector]] = []
        """Why copies could not serve it in this pass."""
        self.connection: Connection | None = None
        self.opened = False
        """The copy that is connected has said where to begin."""
        self.place: tuple[int, int] | None = None
        """Of the next piece at that copy; None, once it is opened: there is none."""
        self.asked = False
        self.untaken = 0
        self.passes = 0

    def fresh(self, records: Sequence[bytes]) -> tuple[list[Publication], Vector]:
        """Records that are new and wanted, and how far all of them reach."""
        assert self.progress is not None
        assert self.until is not None
        progress, until = CutSet(self.progress), CutSet(self.until)
        found: list[Publication] = []
        reached: Vector = {}
        for body in records:
            record = _decode(body)
            folds = any(map(is_interval, record.covered))
            spans = {origin: (progress.upto(origin), until.upto(origin)) for origin in record.covered}
            if not folds and self._is_next(record, spans):
                found.extend(record.entries)
            else:
                found.extend(
                    e for e in record.entries
                    if until.has(e.origin, e.number) and not progress.has(e.origin, e.number)
                )  # fmt: skip
            news = _news(record.covered, spans, until) if folds else {
                o: min(n, spans[o][1]) for o, n in record.covered.items() if min(n, spans[o][1]) > spans[o][0]
            }  # fmt: skip
            grow(self.progress, news)
            grow(reached, news)
            if folds:
                progress = CutSet(self.progress)
        return found, reached

    def _is_next(self, record: _ReadRecord, spans: dict[Origin, tuple[int, int]]) -> bool:
        """Whether all of it is new and wanted: its first publication of each publisher, and the last."""
        if not all(spans[origin][0] < number <= spans[origin][1] for origin, number in record.covered.items()):
            return False
        first: dict[Origin, int] = {}
        for entry in record.entries:
            if entry.origin not in first:
                first[entry.origin] = entry.number
                if len(first) == len(record.covered):
                    break
        return all(number > spans.get(origin, (number, 0))[0] for origin, number in first.items())


def _news(covered: Vector, spans: dict[Origin, tuple[int, int]], until: CutSet) -> Vector:
    """What is read with a record that says of sessions that they are closed; of others more may be wanted later."""
    counted = {o: min(n, spans[o][1]) for o, n in covered.items() if not is_interval(o)}
    news = {origin: number for origin, number in counted.items() if number > spans[origin][0]}
    return news | intervals(until.closed.shared_with(closed_in(covered)))


class Histories(State):
    """All that a client is reading from copies, each over a connection of its own."""

    constant: ClassVar[tuple[str, ...]] = ("session", "wires", "settings")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.wires = session.wires
        self.settings = session.settings
        self.reads: dict[int, HistoryRead] = {}
        self.count = 0

    def begin(
        self, topic: Topic, start: Start, until: Vector | None, reader: HistoryReader, *, over: bool = False
    ) -> HistoryRead:
        self.count += 1
        read = self.reads[self.count] = HistoryRead(self.count, topic, start, until, reader, over=over)
        self._find_copies(read)
        return read

    def end(self, read: HistoryRead) -> None:
        """Nobody wants it any more, or it is over."""
        self.reads.pop(read.number, None)
        self._hang_up(read)
        self.wires.cancel_timer((HISTORY, read.number))

    def end_all(self) -> None:
        for read in list(self.reads.values()):
            self.end(read)

    def taken(self, read: HistoryRead, count: int) -> None:
        """The application has taken so many of what was read."""
        read.untaken -= count
        if read.number in self.reads:
            self._read_on(read)

    # Finding a copy

    def _find_copies(self, read: HistoryRead) -> None:
        read.left = None
        read.said = []
        self.session.send(AskCopies(read.topic))
        self._expect(read)

    def edge_found(self) -> None:
        for read in self.reads.values():
            if read.left is None:
                self.session.send(AskCopies(read.topic))

    def copies(self, packet: KeptAt) -> None:
        """The edge has said whom to ask."""
        for read in list(self.reads.values()):
            if read.topic == packet.topic and read.left is None:
                if packet.brokers:
                    read.left = list(packet.brokers)
                    read.copies = tuple(name for name, _ in packet.brokers[: packet.copies])
                    self._next_copy(read)
                else:
                    self._fail(read, "unkept", {})

    def _next_copy(self, read: HistoryRead) -> None:
        self._hang_up(read)
        if not read.left:
            self._pass_over(read)
            return
        read.asking, address = read.left.pop(0)
        read.connection = self.wires.open(address)
        self._expect(read)

    def _pass_over(self, read: HistoryRead) -> None:
        """Every copy was asked. Unless all have said that there is nothing to wait for, they are asked again."""
        codes = {code for code, _ in read.said}
        gone = [(code, cut) for code, cut in read.said if code in ("cleaned", "lost")]
        if gone and not codes & {"behind", "away"}:
            self._fail(read, *gone[0])
        elif "empty" in codes and codes <= {"empty", "unkept"}:
            self._nothing(read)
        else:
            read.passes += 1
            part = chance.unit(chance.salt(0, self.session.origin, HISTORY, read.number, read.passes))
            read.left = []
            self.wires.set_timer((HISTORY, read.number), round(ns(self.settings.retry_ms) * (0.25 + part / 2)))

    def _nothing(self, read: HistoryRead) -> None:
        """Nothing was ever kept of the topic."""
        if read.progress is None:
            read.progress, read.whole = {}, True
            read.until = read.until if read.until is not None else {}
            read.reader.history_opened(read)
        self._over(read)

    def timer(self, number: int) -> None:
        """A copy is silent, or it is time for another pass."""
        read = self.reads.get(number)
        if read is None:
            return
        if read.connection is not None:
            read.said.append(("away" if read.asking in read.copies else "unkept", {}))
            self._next_copy(read)
        else:
            self._find_copies(read)

    def _expect(self, read: HistoryRead) -> None:
        self.wires.set_timer((HISTORY, read.number), ns(self.settings.request_ms))

    def _hang_up(self, read: HistoryRead) -> None:
        if read.connection is not None:
            self.wires.close(read.connection)
            read.connection = None
        read.opened = False
        read.place = None
        read.asked = False

    # At a copy

    def owner(self, connection: Connection) -> HistoryRead | None:
        return next((read for read in self.reads.values() if read.connection == connection), None)

    def opened(self, read: HistoryRead) -> None:
        assert read.connection is not None
        start = at(read.progress) if read.begun and read.progress is not None else read.start
        packet = OpenHistory(read.topic, read.number, start.kind, start.since, start.amount, read.until, read.over)
        self.wires.send(read.connection, packet)

    def closed(self, read: HistoryRead) -> None:
        read.connection = None
        read.said.append(("away" if read.asking in read.copies else "unkept", {}))
        self._next_copy(read)

    def receive(self, read: HistoryRead, packet: object) -> None:
        match packet:
            case HistoryOpened():
                self._opened(read, packet)
            case KeptRecords():
                self._piece(read, packet)
            case NoHistory():
                if packet.code == "denied":
                    self._fail(read, packet.code, {})
                else:
                    read.said.append(("behind" if packet.code == "moved" else packet.code, packet.cut))
                    self._next_copy(read)
            case _:
                raise PeerError("a copy", f"sent a {type(packet).__name__} to a reader")

    def _opened(self, read: HistoryRead, packet: HistoryOpened) -> None:
        read.opened, read.place = True, packet.place
        read.gaps = (read.begun and read.gaps) or packet.gaps
        if not read.begun:
            read.progress, read.until, read.whole = dict(packet.since), dict(packet.until), packet.whole
            read.reader.history_opened(read)
        if read.number in self.reads:
            self._read_on(read)

    def _read_on(self, read: HistoryRead) -> None:
        """Ask for the next piece, unless there is none, or the application has enough to do.

        A copy that is still being dialled has said nothing of what there is: what the application takes meanwhile
        does not make the read complete.
        """
        if read.connection is None or not read.opened or read.progress is None or read.until is None or read.asked:
            return
        if read.place is None or within(read.until, read.progress):
            self._over(read)
        elif read.untaken < _WINDOW:
            read.asked = True
            self.wires.send(read.connection, ReadHistory(read.topic, read.number, read.place, read.over))
            self._expect(read)
        else:
            self.wires.cancel_timer((HISTORY, read.number))

    def _piece(self, read: HistoryRead, packet: KeptRecords) -> None:
        if read.progress is None or read.until is None or not read.asked:
            raise PeerError("a copy", f"sent history of {packet.topic[:40]} that nobody asked for")
        try:
            entries, reached = read.fresh(packet.records)
        except NOT_DECODABLE as error:
            raise PeerError("a copy", f"sent a record of {read.topic} that is none: {error}") from None
        read.asked, read.place = False, packet.place
        shown = entries if all(entry.keys for entry in entries) else [entry for entry in entries if entry.keys]
        if shown or reached:
            read.begun = True
            read.untaken += len(shown)
            read.reader.history(read, shown, reached)
        if read.number in self.reads:
            self._read_on(read)

    def _over(self, read: HistoryRead) -> None:
        """All of it was read: the copy had it all when it was opened, and this was the last piece."""
        assert read.progress is not None
        assert read.until is not None
        rest = {origin: number for origin, number in read.until.items() if number > read.progress.get(origin, 0)}
        if rest:
            grow(read.progress, rest)
            read.reader.history(read, (), rest)
        self.end(read)
        read.reader.history_over(read)

    def _fail(self, read: HistoryRead, code: str, cut: Vector) -> None:
        self.end(read)
        read.reader.history_failed(read, code, cut)
