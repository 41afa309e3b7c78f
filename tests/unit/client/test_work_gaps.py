"""Where a part of what a group wrote down, or of its work, is lost (SHW-13)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from ordercast.api.errors import HistoryLost
from ordercast.api.position import Position
from ordercast.api.sharing.records import last_written, records_of
from ordercast.api.work_leader import LeaderTask
from ordercast.client.work.leader import WorkLeader, WorkSettings
from ordercast.client.work.words import GroupProgress, Report, encode
from ordercast.core.ids import Origin, Topic
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Received
from tests.support.loop import run_async

ANN = Origin("ann")
T = Topic("groups.q.g")
SETTINGS = WorkSettings(window=4, silent_ms=1000)
SILENT = SETTINGS.silent_ns
DONE = GroupProgress(5, {ANN: (3, ())}, ("m0~1/1",))
BEGINS = GroupProgress(7, {}, begins=True)


def unit(number: int) -> Publication:
    return Publication(ANN, number, Topic("q"), b"", keys=("",))


def wait(leader: WorkLeader, until_ns: int) -> None:
    while leader.now_ns < until_ns:
        leader.tick(min(until_ns, leader.now_ns + SETTINGS.beat_ns))


class FakeHistory:
    """What a copy answers."""

    def __init__(self, words: list[GroupProgress], end: dict[Origin, int], *, gaps: bool) -> None:
        self.words, self.gaps = words, gaps
        self.end = Position({T: end})

    async def last(self, count: int) -> list[Publication]:
        return [Publication(ANN, i, T, encode(word)) for i, word in enumerate(self.words, 1)][-count:]


class FakeClient:
    """A member of the group's topic, and its history: `behind` the last gap, and all that is left."""

    def __init__(
        self, behind: list[GroupProgress], left: list[GroupProgress], *, gaps: bool, kept: bool = True
    ) -> None:
        self.behind, self.left, self.gaps = behind, left, gaps
        self.end = {ANN: 9} if kept else {}

    def read(self, topics: list[str], *bounds: object, over_gaps: bool) -> FakeHistory:
        return FakeHistory(self.left if over_gaps else self.behind, self.end, gaps=over_gaps and self.gaps)

    async def position(self, topic: str) -> Position:
        return Position({T: {ANN: 9}})


def found(client: Any) -> tuple[GroupProgress | None, bool]:
    got: list[tuple[GroupProgress | None, bool]] = []

    async def main() -> None:
        words, gap = await records_of(client, T)
        got.append((last_written(words), gap))

    run_async(main)
    return got[0]


def test_a_group_whose_last_records_are_lost_goes_on_from_the_ones_before() -> None:
    assert found(FakeClient([BEGINS], [DONE, BEGINS], gaps=True)) == (DONE, True)


def test_a_gap_before_the_last_record_does_not_matter() -> None:
    assert found(FakeClient([DONE], [DONE], gaps=True)) == (DONE, False)


def test_a_group_is_new_only_if_the_history_of_its_topic_is_whole() -> None:
    assert found(FakeClient([BEGINS], [BEGINS], gaps=False)) == (None, False)
    assert found(FakeClient([], [BEGINS], gaps=True)) == (None, True)


def test_copies_that_have_nothing_are_not_believed_where_there_was_something() -> None:
    """Both have lost their disks."""
    assert found(FakeClient([], [], gaps=False, kept=False)) == (None, True)


def test_any_number_of_leaders_may_have_come_and_gone_since_the_last_record() -> None:
    assert found(FakeClient([BEGINS] * 100, [DONE, *[BEGINS] * 250], gaps=False)) == (DONE, False)


def test_behind_a_gap_a_member_that_no_record_names_is_asked_what_it_holds() -> None:
    leader = WorkLeader(7, GroupProgress(5, {}), SETTINGS, 0, gap=True)
    leader.arrive([unit(1), unit(2)])
    wait(leader, SILENT // 2)
    leader.report(Report("m9~1/1", 5, 4))
    (asked,) = leader.orders()
    assert (asked.member, asked.epoch, asked.expelled) == ("m9~1/1", 7, False)

    leader.report(Report("m9~1/1", 7, 5, holding=((ANN, 1, 1),)))
    leader.report(Report("m1~1/1", 0, 1, fresh=True))
    wait(leader, SILENT + 1)
    assert leader.progress() is not None
    leader.recorded(leader.version)

    assert [sent.id for _, sent in leader.lanes.outgoing()] == [(ANN, 2)]


def test_behind_a_gap_nothing_is_written_before_all_members_may_have_been_heard_of() -> None:
    """A successor would take the record for everything, and not ask."""
    leader = WorkLeader(7, GroupProgress(5, {}), SETTINGS, 0, gap=True)
    wait(leader, SILENT - 1)
    assert leader.progress() is None
    wait(leader, SILENT)
    assert leader.progress() is not None


def test_without_a_gap_whoever_is_not_named_was_given_up_and_is_told_so() -> None:
    leader = WorkLeader(7, GroupProgress(5, {}), SETTINGS, 0)
    leader.report(Report("m9~1/1", 5, 4))

    (told,) = leader.orders()
    assert told.expelled


def test_what_is_left_before_a_gap_is_work_and_only_what_is_gone_is_not() -> None:
    leader = WorkLeader(7, GroupProgress(5, {ANN: (2, (4,))}), SETTINGS, 0)
    here = Received()
    here.update([(ANN, 3), (ANN, 4), (ANN, 5)])
    leader.arrive([unit(3), unit(4), unit(5)])

    assert leader.pass_over({ANN: 2}, {ANN: 9}, here) == 4
    assert leader.done.summary() == {ANN: (2, (4, 6, 7, 8, 9))}
    assert leader.waiting == 2


class GapWhileJoining:
    """A client whose subscription to the work ends in the middle: what it lacks up to its membership is gone."""

    session = "group~7"

    def __init__(self) -> None:
        self.reading = False
        self.starts: list[dict[Origin, int]] = []

    async def subscribe(self, topic: str, *, start: Position, raw: bool) -> GapWhileJoining:
        assert not self.reading, "this client reads the topic already"
        self.starts.append(start.of(topic))
        if len(self.starts) > 1:
            raise ConnectionError("that is all")
        self.reading = True
        return self

    async def unsubscribe(self, inbox: object) -> None:
        self.reading = False

    async def batches(self, *, raw: bool = False) -> AsyncIterator[list[Publication]]:
        if raw:  # The history, over the gap.
            yield [unit(3)]
            return
        yield [unit(1), unit(2)]
        raise HistoryLost("q", "has lost a part", Position({Topic("q"): {ANN: 9}}))

    def read(self, topics: list[str], start: Position, end: Position, *, over_gaps: bool) -> GapWhileJoining:
        assert (start.of("q"), end.of("q"), over_gaps) == ({ANN: 2}, {ANN: 9}, True)
        return self


def test_a_gap_that_is_found_while_the_work_is_read_is_read_over() -> None:
    client: Any = GapWhileJoining()
    leader = WorkLeader(7, None, SETTINGS, 0)

    async def main() -> None:
        task = LeaderTask(client, "q", "g", SETTINGS, "earliest", "dead", 0)
        with pytest.raises(ConnectionError, match="that is all"):
            await task._read_work(leader)

    run_async(main)

    assert client.starts == [{}, {ANN: 9}]
    assert leader.waiting == 3
    assert leader.done.summary() == {ANN: (0, (4, 5, 6, 7, 8, 9))}


def test_very_much_that_is_gone_is_passed_over_at_once() -> None:
    leader = WorkLeader(7, GroupProgress(5, {ANN: (2, ())}), SETTINGS, 0)

    assert leader.pass_over({ANN: 2}, {ANN: 1 << 60}, Received()) == (1 << 60) - 2
    assert leader.done.summary() == {ANN: (1 << 60, ())}
