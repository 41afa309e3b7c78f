"""A client reads a kept topic while its oldest part is being cleaned: rules ARC-7 and ARC-S1 to ARC-S5."""

from __future__ import annotations

from typing import cast

import pytest

from ordercast.broker.archive.ports import Record
from ordercast.broker.archive.records import encode_record
from ordercast.broker.archive.segment_map import covered_by
from ordercast.client.history import EARLIEST, HistoryRead, HistoryReader, Start, at
from ordercast.client.memory_ledger import MemoryClientLedger
from ordercast.core.ids import Origin, Topic
from ordercast.core.process import Peer
from ordercast.pubsub.client_packets import (
    AskCopies,
    Granted,
    HistoryOpened,
    KeptAt,
    KeptRecords,
    Live,
    NoHistory,
    OpenHistory,
    SessionsClosed,
    TopicState,
)
from ordercast.pubsub.cuts import intervals
from ordercast.pubsub.received import Vector
from tests.support.client_edge import HandEdge, publication

T = Topic("t")
EDGE = 1
SINCE_NOON = Start("time", {}, 43_200_000)
LAST_TWO = Start("last", {}, 2)


def cut(number: int) -> Vector:
    return {Origin("bob~1"): number}


class Reader:
    """A client at its edge, and the one copy of the topic, which a test plays."""

    def __init__(self, former: Reader | None = None, **settings: float | bool) -> None:
        ledger = former.edge.ledger if former is not None else MemoryClientLedger(Origin("ann"))
        self.edge = HandEdge(saved=ledger.saved() if former is not None else None, ledger=ledger, **settings)
        self.edge.accept()

    @property
    def told(self) -> list[tuple[object, ...]]:
        """Why the past could not be had."""
        return [heard for heard in self.edge.app.heard if heard[0] == "no_history" or heard[2:3] == ("cleaned",)]

    @property
    def delivered(self) -> list[int]:
        return [entry.number for entry in self.edge.app.delivered]

    @property
    def asked(self) -> OpenHistory:
        return self.edge.sent(OpenHistory)[-1]

    def finds_the_copy(self) -> None:
        self.dials_the_copy()
        self.reaches_the_copy()

    def dials_the_copy(self) -> None:
        if not self._asks_for_copies():
            self.edge.pass_time(500)
            assert self._asks_for_copies()
        self.edge.say(KeptAt(T, (("b1", "h:2"),), 1), on=EDGE)

    def reaches_the_copy(self) -> None:
        self.edge.client.on_opened(self.edge.connection, Peer("broker", "b1", 0, "h:2"))
        self.edge.client.on_turn_end()

    def _asks_for_copies(self) -> bool:
        return any(isinstance(packet, AskCopies) for packet in self.edge.new())

    def starts_again(self) -> Reader:
        """The next life of the client, with what it had written down; it has asked the copy."""
        again = Reader(former=self)
        again.finds_the_copy()
        return again

    def opens(self, since: int, until: int, *, whole: bool = False) -> None:
        end = cut(until) if self.asked.until is None else self.asked.until
        self.edge.say(HistoryOpened(T, self.asked.read, cut(since), end, whole=whole, place=(1, 0)))

    def gives(self, *numbers: int) -> None:
        entries = tuple(publication("bob~1", number) for number in numbers)
        body = encode_record(Record(0, covered_by(entries), entries))
        self.edge.say(KeptRecords(T, self.asked.read, (body,), (1, 9)))

    def cleans(self, up_to: int) -> None:
        """What the client was about to read is gone: it opens the history again."""
        self.edge.say(NoHistory(T, self.asked.read, "moved", {}))
        self.finds_the_copy()
        self.refuses(up_to)

    def refuses(self, up_to: int) -> None:
        """Who names a position that was cleaned is told so."""
        if self.asked.start == "position":
            self.edge.say(NoHistory(T, self.asked.read, "cleaned", cut(up_to)))

    def grants(self, base: int) -> None:
        self.edge.say(TopicState(T, {}, {}), on=EDGE)
        self.edge.say(Granted(T, cut(base), new=True), Live(T), on=EDGE)


def reading(start: Start, *, latest_only: bool = False, **settings: float | bool) -> Reader:
    """A subscriber that has asked the copy where its start is."""
    reader = Reader(**settings)
    reader.edge.client.subscribe_from(T, start, latest_only=latest_only)
    reader.edge.client.on_turn_end()
    reader.finds_the_copy()
    return reader


@pytest.mark.parametrize("start", [EARLIEST, SINCE_NOON], ids=lambda start: start.kind)
def test_a_start_that_is_cleaned_before_anything_was_read_is_what_is_there_then(start: Start) -> None:
    reader = reading(start)
    reader.opens(0, 9)
    reader.cleans(up_to=4)
    reader.opens(4, 9)
    reader.gives(5, 6, 7, 8, 9)

    assert not reader.told
    assert reader.delivered == [5, 6, 7, 8, 9]
    assert reader.edge.client.taken_up_to(T) == cut(9)


def test_what_the_application_takes_while_the_next_copy_is_dialled_does_not_end_the_past() -> None:
    """ARC-G3: a copy that has not answered yet has not said that there is nothing more."""
    reader = reading(EARLIEST, consumes_at_once=False)
    reader.opens(0, 9)
    reader.gives(1, 2, 3)
    reader.edge.say(NoHistory(T, reader.asked.read, "moved", {}))
    reader.dials_the_copy()
    reader.edge.act("consumed", T, 3)
    reader.reaches_the_copy()
    reader.opens(3, 9)
    reader.gives(4, 5, 6, 7, 8, 9)

    assert reader.delivered == [1, 2, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("start", [EARLIEST, SINCE_NOON, LAST_TWO], ids=lambda start: start.kind)
def test_a_read_without_a_subscription_begins_at_what_is_there_too(start: Start) -> None:
    reader = Reader()
    reader.edge.act("read", T, start, None)
    reader.finds_the_copy()
    reader.opens(0, 9)
    reader.cleans(up_to=4)
    reader.opens(4, 9)
    reader.gives(5, 6, 7, 8, 9)

    assert not reader.told
    assert reader.delivered == [5, 6, 7, 8, 9]


def test_a_client_that_dies_before_it_was_handed_anything_begins_at_what_is_there_again() -> None:
    """With a data directory: nothing lies between its two lives that it could have lost."""
    reader = reading(EARLIEST)
    reader.opens(0, 9)
    again = reader.starts_again()
    again.refuses(up_to=4)
    again.opens(4, 9)
    again.gives(5, 6, 7, 8, 9)

    assert not again.told
    assert again.delivered == [5, 6, 7, 8, 9]


def test_a_client_that_dies_in_the_middle_is_told_what_was_cleaned_meanwhile() -> None:
    reader = reading(EARLIEST)
    reader.opens(0, 9)
    reader.gives(1, 2)
    again = reader.starts_again()
    again.refuses(up_to=4)

    assert again.told == [("no_history", T, "cleaned", cut(4))]


def test_a_reader_that_cleaning_overtakes_in_the_middle_is_told_what_it_lost() -> None:
    reader = reading(EARLIEST)
    reader.opens(0, 9)
    reader.gives(1, 2)
    reader.cleans(up_to=4)

    assert reader.told == [("no_history", T, "cleaned", cut(4))]
    assert reader.delivered == [1, 2]


def test_a_position_that_is_cleaned_before_anything_was_read_is_told() -> None:
    reader = reading(at(cut(2)))
    reader.opens(2, 9)
    reader.cleans(up_to=4)

    assert reader.told == [("no_history", T, "cleaned", cut(4))]


def test_of_each_key_the_last_one_is_looked_for_again_where_cleaning_came_between() -> None:
    """Nothing is handed out before all is read; what gone ones may have replaced is not among it."""
    reader = reading(EARLIEST, latest_only=True)
    reader.opens(0, 9)
    reader.gives(1, 2)
    reader.cleans(up_to=4)
    reader.finds_the_copy()
    reader.opens(4, 9)
    reader.gives(5, 6, 7, 8, 9)
    reader.grants(9)

    assert not reader.told
    assert reader.delivered == [5, 6, 7, 8, 9]


def test_a_history_that_was_empty_and_is_cleaned_up_to_the_membership_is_no_loss() -> None:
    """ARC-S4: what came between the first look and the membership is gone; the subscriber has nothing before it."""
    reader = reading(EARLIEST)
    reader.opens(3, 3)
    reader.grants(base=9)
    reader.finds_the_copy()
    reader.refuses(up_to=7)
    reader.finds_the_copy()
    reader.opens(7, 9)
    reader.gives(8, 9)

    assert not reader.told
    assert reader.delivered == [8, 9]
    assert reader.edge.client.taken_up_to(T) == cut(9)


@pytest.mark.parametrize("lost", [False, True])
def test_that_it_has_everything_is_taken_back_if_a_part_is_lost_before_it_was_read(*, lost: bool) -> None:
    reader = reading(EARLIEST)
    reader.opens(0, 0, whole=True)
    reader.grants(base=9)
    reader.finds_the_copy()
    if lost:
        reader.edge.say(NoHistory(T, reader.asked.read, "lost", cut(7)))
        reader.finds_the_copy()
    reader.opens(7 if lost else 0, 9, whole=not lost)
    reader.gives(*range(8 if lost else 1, 10))

    claims = [info.get("from") for kind, info in reader.edge.wires.notes if kind == "subscribe"]
    assert claims == [None, "everything", *(["membership"] if lost else [])]
    assert reader.delivered == list(range(8 if lost else 1, 10))


def test_a_history_whose_beginning_lies_beyond_the_membership_by_now_is_over() -> None:
    reader = reading(EARLIEST)
    reader.opens(3, 3)
    reader.grants(base=9)
    reader.finds_the_copy()
    reader.refuses(up_to=12)
    reader.finds_the_copy()
    reader.opens(12, 9)

    assert not reader.told
    assert reader.edge.client.taken_up_to(T) == cut(9)
    assert not reader.edge.client.replays.topics


def test_the_past_ends_with_all_of_the_sessions_that_are_closed_when_the_edge_says_that_there_are_any() -> None:
    """ARC-12: a base says nothing of them; a reader that was at the end before may lack what they published last."""
    reader = reading(EARLIEST)
    reader.opens(0, 0)
    reader.edge.say(SessionsClosed({"0.b1": (1, 4)}), TopicState(T, {}, {}), on=EDGE)
    reader.edge.say(Granted(T, cut(2), new=True, aged=True), Live(T), on=EDGE)
    reader.finds_the_copy()
    assert reader.asked.until == cut(2) | {"~1.0.b1": 3}


def test_where_no_session_of_the_topic_is_closed_a_position_says_nothing_of_those_that_are() -> None:
    reader = reading(EARLIEST)
    reader.opens(0, 0)
    reader.edge.say(SessionsClosed({"0.b1": (1, 4)}), TopicState(T, {}, {}), on=EDGE)
    reader.edge.say(Granted(T, cut(2), new=True), Live(T), on=EDGE)
    reader.finds_the_copy()
    assert reader.asked.until == cut(2)


def test_what_a_copy_says_to_be_closed_beyond_the_end_is_not_taken_for_read() -> None:
    """The session of bob is closed in the record; the end that was asked for is from before, and has less of it."""
    origin = Origin("bob~1.1.0.b1")
    read = HistoryRead(1, T, EARLIEST, {origin: 1}, _nobody())
    read.progress = {}
    entries = tuple(publication(origin, number) for number in (1, 2))
    body = encode_record(Record(0, covered_by(entries) | intervals({"0.b1": (1, 2)}), entries))
    found, reached = read.fresh([body])
    assert [entry.number for entry in found] == [1]
    assert reached == {origin: 1}


def _nobody() -> HistoryReader:
    return cast("HistoryReader", None)
