"""The archive of a topic, in memory and on a disk: what is kept, what is read back, and what becomes of damage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from ordercast.broker.archive.memory_files import MemoryFiles
from ordercast.broker.archive.ports import Record, SegmentFiles, SegmentInfo
from ordercast.broker.archive.records import decode_record
from ordercast.broker.archive.segment_map import Unavailable, covered_by
from ordercast.broker.archive.topic_archive import TopicArchive
from ordercast.core.ids import Origin, Topic
from ordercast.core.messages import Guarantee
from ordercast.net.brokers.archive import ArchiveFiles
from ordercast.pubsub.closed import ClosedSessions
from ordercast.pubsub.cuts import CutSet, intervals, union, within
from ordercast.pubsub.keeping import KeepRule
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Vector

T = Topic("orders")
ANN, BOB = Origin("ann~1"), Origin("bob~1")


class Shelf:
    """Somewhere to keep an archive, which a next life finds again."""

    def __init__(self, open_files: Callable[[], SegmentFiles]) -> None:
        self._open = open_files
        self.files = open_files()
        self.now = 1_000_000
        self.files.now_ms = lambda: self.now  # type: ignore[method-assign]
        self.archive = TopicArchive(T, self.files)

    def restart(self, *, torn: bool = False) -> TopicArchive:
        """The next life of the broker; `torn`: it was killed."""
        if isinstance(self.files, ArchiveFiles):
            self.files.flush()
            self.files.abandon() if torn else self.files.close()
            self.files = self._open()
        self.files.now_ms = lambda: self.now  # type: ignore[method-assign]
        self.archive = TopicArchive(T, self.files, self.files.saved().get(T))
        return self.archive


@pytest.fixture(params=["memory", "disk"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    if request.param == "memory":
        memory = MemoryFiles(int)
        made = Shelf(lambda: memory)
    else:
        made = Shelf(lambda: ArchiveFiles(tmp_path, fsync="never"))
        made.files.segment_size = 400  # type: ignore[misc]
    yield made
    if isinstance(made.files, ArchiveFiles):
        made.files.abandon()


def pub(origin: Origin, number: int, key: str = "k", payload: bytes = b"") -> Publication:
    return Publication(origin, number, T, payload or b"%d" % number, Guarantee.CAUSAL, (key,))


def fill(shelf: Shelf, numbers: Sequence[int], origin: Origin = ANN, key: str = "k") -> None:
    for number in numbers:
        shelf.archive.append([pub(origin, number, key)])


def read(
    archive: TopicArchive, since: Vector | None = None, until: Vector | None = None, *, over: bool = False
) -> list[int]:
    """Numbers between two cuts, as a reader gets them."""
    low, high = since or {}, archive.end if until is None else until
    place, found = archive.place(low, high, over=over), []
    reached = dict(low)
    while place is not None and not within(high, reached):
        bodies, place = archive.read(place, over=over)
        for body in bodies:
            record = decode_record(body)
            reached = union(reached, record.covered)
            wanted = [e for e in record.entries if CutSet(high).has(e.origin, e.number)]
            found += [e.number for e in wanted if not CutSet(low).has(e.origin, e.number)]
    return found


def test_what_was_kept_is_read_in_its_order_from_any_cut_on(shelf: Shelf) -> None:
    fill(shelf, range(1, 31))

    assert read(shelf.archive) == list(range(1, 31))
    assert read(shelf.archive, {ANN: 12}, {ANN: 20}) == list(range(13, 21))
    assert len(shelf.archive.manifest.segments) > 1


def test_a_next_life_goes_on_where_the_last_one_was_killed(shelf: Shelf) -> None:
    fill(shelf, range(1, 18))

    archive = shelf.restart(torn=True)
    fill(shelf, range(18, 25))

    assert archive.cut == {ANN: 24}
    assert read(shelf.restart()) == list(range(1, 25))


def test_what_became_stable_without_this_copy_is_a_hole_until_another_copy_fills_it(shelf: Shelf) -> None:
    fill(shelf, range(1, 6))
    shelf.archive.jump({ANN: 8, BOB: 2})
    fill(shelf, range(9, 12))

    with pytest.raises(Unavailable, match="behind"):
        shelf.archive.place({}, shelf.archive.cut)
    assert read(shelf.archive, {ANN: 8, BOB: 2}) == [9, 10, 11]

    number, start, end = shelf.restart().hole() or (0, {}, {})
    staged: list[SegmentInfo] = []
    lacking = (pub(BOB, 1), pub(ANN, 6), pub(ANN, 7), pub(BOB, 2), pub(ANN, 8))
    shelf.archive.stage(staged, Record(5, covered_by(lacking), lacking))
    shelf.archive.fill(number, staged)

    assert (start, end) == ({ANN: 5}, {ANN: 8, BOB: 2})
    assert read(shelf.restart()) == [1, 2, 3, 4, 5, 1, 6, 7, 2, 8, 9, 10, 11]


def test_a_hole_that_nobody_can_fill_is_told_and_history_begins_behind_it(shelf: Shelf) -> None:
    fill(shelf, range(1, 4))
    shelf.archive.jump({ANN: 6})
    fill(shelf, range(7, 9))
    shelf.archive.give_up((shelf.archive.hole() or (0,))[0])

    with pytest.raises(Unavailable, match="lost") as told:
        shelf.archive.place({}, shelf.archive.cut)

    assert told.value.cut == {ANN: 6}
    assert read(shelf.archive, shelf.archive.whole_from()) == [7, 8]


def test_what_is_too_old_or_too_much_goes_and_readers_are_told(shelf: Shelf) -> None:
    fill(shelf, range(1, 21))
    shelf.now += 10_000
    fill(shelf, range(21, 41))

    removed = shelf.archive.clean(KeepRule("orders", max_age_ms=5000))

    floor = shelf.archive.manifest.floor
    assert removed == floor[ANN] > 0
    assert read(shelf.archive, floor) == list(range(removed + 1, 41))
    with pytest.raises(Unavailable, match="cleaned"):
        shelf.archive.place({}, {ANN: 40})
    shelf.archive.clean(KeepRule("orders", max_bytes=1))
    assert len(shelf.archive.manifest.segments) == 1
    assert read(shelf.restart(), shelf.archive.manifest.floor)[-1:] in ([40], [])


def test_of_each_key_the_last_one_stays_and_cuts_stay_what_they_were(shelf: Shelf) -> None:
    fill(shelf, range(1, 41), key="a")
    fill(shelf, range(41, 44), key="")
    fill(shelf, range(44, 60), key="b")
    before = dict(shelf.archive.cut)
    seen = shelf.archive.keys_of_the_rest()

    for number in reversed(shelf.archive.sealed_numbers()):
        shelf.archive.compact(number, seen)

    left = read(shelf.restart())
    assert shelf.archive.cut == before
    assert {40, 41, 42, 43, 59} <= set(left)
    assert not set(left) & set(range(1, 40))


def test_a_position_in_time_is_the_cut_before_what_was_kept_then(shelf: Shelf) -> None:
    fill(shelf, range(1, 8))
    shelf.now += 1000
    fill(shelf, range(8, 11))

    assert shelf.archive.at_time(shelf.now) == {ANN: 7}
    assert shelf.archive.at_time(shelf.now - 500) == {ANN: 7}
    assert shelf.archive.at_time(0) == {}
    assert shelf.archive.at_time(shelf.now + 1) == {ANN: 10}


def test_a_reader_that_goes_over_gaps_gets_all_that_is_left(shelf: Shelf) -> None:
    """ARC-7: what was kept before a part that is lost is not lost with it."""
    fill(shelf, range(1, 4))
    shelf.archive.jump({ANN: 6})
    shelf.archive.give_up((shelf.archive.hole() or (0,))[0])

    assert shelf.archive.before_last(2, {ANN: 6}) == {ANN: 6}
    since = shelf.archive.before_last(2, {ANN: 6}, over=True)
    assert read(shelf.archive, since, over=True)[-2:] == [2, 3]
    assert shelf.archive.has_gaps(since, {ANN: 6})

    fill(shelf, range(7, 9))
    assert read(shelf.archive, over=True) == [1, 2, 3, 7, 8]
    assert not shelf.archive.has_gaps({ANN: 6}, {ANN: 8})


def test_the_last_ones_are_found_without_reading_all(shelf: Shelf) -> None:
    fill(shelf, range(1, 41))

    found = read(shelf.archive, shelf.archive.before_last(3, shelf.archive.cut))

    assert found[-3:] == [38, 39, 40]
    assert len(found) < 20


def test_the_last_ones_before_a_cut_are_found_whatever_lies_behind_it(shelf: Shelf) -> None:
    fill(shelf, range(1, 41))

    assert read(shelf.archive, shelf.archive.before_last(3, {ANN: 12}), {ANN: 12})[-3:] == [10, 11, 12]


def test_a_copy_that_lacks_the_last_ones_says_so_and_not_that_there_are_none(shelf: Shelf) -> None:
    """ARC-7: what became stable while it was away is the last that was written, and this copy cannot know it."""
    fill(shelf, range(1, 4))
    shelf.archive.jump({ANN: 6})

    with pytest.raises(Unavailable, match="behind"):
        shelf.archive.place(shelf.archive.before_last(2, shelf.archive.cut), shelf.archive.cut)


def test_a_place_that_a_reader_made_up_harms_nobody(shelf: Shelf) -> None:
    fill(shelf, range(1, 34))
    first, last = shelf.archive.manifest.segments[0], shelf.archive.manifest.segments[-1]
    made_up = [(first.number, 7), (first.number, first.size + 99), (999, 0), (first.number, first.size - 1)]

    told = []
    for place in [*made_up, *((last.number, offset) for offset in range(1, last.size + 99))]:
        try:
            shelf.archive.read(place)
        except Unavailable as answer:
            told.append(answer.code)

    assert not last.sealed
    assert set(told) == {"moved"}
    assert read(shelf.archive) == list(range(1, 34))
    fill(shelf, range(34, 41))
    assert read(shelf.restart()) == list(range(1, 41))


def damage(directory: Path, segment: int, place: float = 0.5) -> None:
    """One wrong byte in a segment."""
    path = sorted((directory / "archive").glob("*/*.log"))
    files = [file for file in path if file.parent.name != "index"]
    data = bytearray(files[segment].read_bytes())
    data[int(len(data) * place)] ^= 0xFF
    files[segment].write_bytes(bytes(data))


def test_a_wrong_byte_in_a_sealed_segment_makes_it_a_hole_and_the_file_is_set_aside(tmp_path: Path) -> None:
    shelf = Shelf(lambda: ArchiveFiles(tmp_path, fsync="never"))
    shelf.files.segment_size = 400  # type: ignore[misc]
    fill(shelf, range(1, 31))
    shelf.restart()
    damage(tmp_path, 1)

    with pytest.raises(Unavailable, match="behind"):
        read(shelf.archive)

    number, start, end = shelf.restart().hole() or (0, {}, {})
    assert number
    assert 0 < start[ANN] < end[ANN] < 30
    assert read(shelf.archive, end)[-1] == 30
    assert len(list(tmp_path.glob("archive/*/*.damaged"))) == 1


@pytest.mark.parametrize("place", [0.0, 0.3, 0.6, 0.99])
def test_damage_in_the_segment_that_was_being_written_costs_what_lies_behind_it(tmp_path: Path, place: float) -> None:
    shelf = Shelf(lambda: ArchiveFiles(tmp_path, fsync="never"))
    fill(shelf, range(1, 31))
    shelf.files.flush()  # type: ignore[attr-defined]
    damage(tmp_path, 0, place)

    archive = shelf.restart(torn=True)
    reached = archive.cut.get(ANN, 0)
    archive.jump({ANN: 30})
    fill(shelf, [31, 32])

    assert reached < 30
    assert read(archive, {ANN: 30}) == [31, 32]
    assert read(archive, {}, {ANN: reached}) == list(range(1, reached + 1))


def test_a_start_reads_manifests_and_not_the_history(tmp_path: Path) -> None:
    shelf = Shelf(lambda: ArchiveFiles(tmp_path, fsync="never"))
    shelf.files.segment_size = 4000  # type: ignore[misc]
    fill(shelf, range(1, 2001))
    shelf.files.close()  # type: ignore[attr-defined]
    files = ArchiveFiles(tmp_path, fsync="never")
    seen: list[int] = []
    reading = files.read

    def counted(topic: Topic, number: int, offset: int, most: int) -> object:
        seen.append(number)
        return reading(topic, number, offset, most)

    files.read = counted  # type: ignore[method-assign, assignment]
    archive = TopicArchive(T, files, files.saved()[T])

    assert archive.cut == {ANN: 2000}
    assert len(archive.manifest.segments) > 10
    assert set(seen) <= {archive.manifest.segments[-1].number}
    files.abandon()


def test_a_turn_that_writes_to_very_many_topics_has_only_so_many_files_open(tmp_path: Path) -> None:
    """Nobody may use up a broker's file descriptors by publishing on many kept topics at once."""
    files, topics = ArchiveFiles(tmp_path, fsync="never"), [Topic(f"t{i}") for i in range(300)]
    archives = {topic: TopicArchive(topic, files) for topic in topics}
    for number in (1, 2):
        for topic in topics:
            archives[topic].append([Publication(ANN, number, topic, b"x", Guarantee.CAUSAL, ("k",))])
        assert len(files._open) < 150
    files.flush()
    assert all(read(archives[topic]) == [1, 2] for topic in topics)
    files.abandon()


# Sessions that are closed (ARC-12, ARC-13)


def short_session(ticket: int) -> Origin:
    return Origin(f"cid~1.{ticket}.0.b1")


def close(shelf: Shelf, behind: int) -> None:
    """Tickets below that number are closed, and this copy was asked about them."""
    shelf.archive.promise()
    shelf.archive.close(ClosedSessions({"0.b1": (1, behind)}))


def pass_by(shelf: Shelf, tickets: range) -> None:
    """Sessions that come, publish twice, and are closed."""
    for ticket in tickets:
        shelf.archive.append([pub(short_session(ticket), 1), pub(short_session(ticket), 2)])
        close(shelf, ticket + 1)


def manifest_bytes(shelf: Shelf) -> int:
    return len(
        msgspec.msgpack.encode([shelf.archive.manifest.floor, [s.covered for s in shelf.archive.manifest.segments]])
    )


def test_a_thousand_sessions_that_were_closed_cost_a_cut_as_much_as_one(shelf: Shelf) -> None:
    shelf.files.segment_size = 1 << 30
    pass_by(shelf, range(1, 11))
    few, written = len(shelf.archive.end), manifest_bytes(shelf)
    pass_by(shelf, range(11, 1001))
    assert len(shelf.archive.end) == few == 1
    assert manifest_bytes(shelf) < written + 50
    assert len(read(shelf.archive)) == 2000


def test_a_position_from_before_a_session_was_closed_means_the_same_after_it(shelf: Shelf) -> None:
    fill(shelf, [1, 2])
    shelf.archive.append([pub(short_session(1), 1)])
    before = shelf.archive.end
    shelf.archive.append([pub(short_session(1), 2), pub(short_session(1), 3)])
    close(shelf, 2)
    fill(shelf, [3])
    assert within(before, shelf.archive.end)
    assert read(shelf.archive, before) == [2, 3, 3]
    assert read(shelf.archive, {}, before) == [1, 2, 1]
    assert read(shelf.archive.__class__(T, shelf.files, shelf.archive.manifest), before) == [2, 3, 3]


def test_a_copy_that_has_not_heard_that_a_session_is_closed_says_that_it_is_behind(shelf: Shelf) -> None:
    shelf.archive.append([pub(short_session(1), 1)])
    with pytest.raises(Unavailable, match="behind"):
        shelf.archive.place({}, intervals({"0.b1": (1, 2)}))


def test_what_was_closed_is_known_to_the_next_life_from_what_it_has_written(shelf: Shelf) -> None:
    pass_by(shelf, range(1, 4))
    fill(shelf, [1])
    archive = shelf.restart(torn=True)
    assert archive.end == {ANN: 1, "~1.0.b1": 3}
    assert read(archive) == [1, 2, 1, 2, 1, 2, 1]


def test_what_was_cleaned_of_closed_sessions_is_no_loss_to_who_had_it(shelf: Shelf) -> None:
    pass_by(shelf, range(1, 30))
    fill(shelf, range(1, 30))
    had = shelf.archive.end
    shelf.now += 10_000
    fill(shelf, [30])
    shelf.archive.clean(KeepRule(T, max_age_ms=5000))
    assert shelf.archive.manifest.floor["~1.0.b1"] > 1  # type: ignore[index]
    assert read(shelf.archive, had) == [30]
    with pytest.raises(Unavailable, match="cleaned"):
        shelf.archive.place({short_session(2): 1}, shelf.archive.end)


def test_a_copy_in_doubt_takes_what_another_has_in_the_place_of_its_own(shelf: Shelf) -> None:
    """It has two messages of a closed session, which had three; and a third of its own, that the other lacks."""
    shelf.archive.append([pub(short_session(1), 1), pub(short_session(1), 2)])
    shelf.archive.doubt(ClosedSessions({"0.b1": (1, 2)}))
    fill(shelf, [1, 2])
    with pytest.raises(Unavailable, match="behind"):
        read(shelf.archive)
    found = shelf.archive.hole()
    assert found is not None
    number, start, end = found
    assert shelf.archive.is_doubt(number)
    staged: list[SegmentInfo] = []
    theirs = [pub(short_session(1), 3), pub(ANN, 1)]
    shelf.archive.stage(staged, Record(shelf.now, covered_by(theirs), tuple(theirs)))
    shelf.archive.adopt(number, staged, union(start, {ANN: 1} | intervals({"0.b1": (1, 2)})))
    assert read(shelf.archive) == [1, 2, 3, 1, 2]
    assert within(end, shelf.archive.end)
    assert read(shelf.restart(torn=True)) == [1, 2, 3, 1, 2]


def test_a_segment_with_closed_sessions_that_is_damaged_is_a_hole_that_names_them(shelf: Shelf) -> None:
    shelf.files.segment_size = 1 << 30
    pass_by(shelf, range(1, 4))
    fill(shelf, [1])
    shelf.archive._set_aside(shelf.archive.manifest.segments[0])
    assert shelf.archive.hole() == (1, {}, {ANN: 1, "~1.0.b1": 3})


def test_where_the_end_of_what_was_written_is_cut_off_the_copy_says_so(tmp_path: Path) -> None:
    files = ArchiveFiles(tmp_path, fsync="never")
    archive = TopicArchive(T, files)
    archive.append([pub(short_session(1), 1)])
    archive.append([pub(short_session(1), 2)])
    files.close()
    damage(tmp_path, 0, 0.9)
    again = ArchiveFiles(tmp_path, fsync="never")
    assert TopicArchive(T, again, again.saved()[T]).damaged
    again.abandon()
