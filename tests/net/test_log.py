"""The one log: a torn end is cut off, and damage anywhere else is never silent, whoever uses it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId, Topic
from ordercast.net.brokers.ledger import DiskBrokerLedger
from ordercast.net.log import segments
from ordercast.net.log.files import Disk
from ordercast.net.log.log import DamagedLogError, Log
from ordercast.net.nodes.state_log import Fired, ReceivedInput, StateLog, Suspected, Whose
from tests.support.client_edge import publication

T = Topic("t")
ME = Whose(NodeId("n1"), 0, "locamu", "{}", 7)
TURNS = 4


class User:
    """Somebody who writes a few turns into a log, and what it finds there later."""

    kind = ""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write(self) -> list[int]:
        """Write all turns; where each ends in the file."""
        raise NotImplementedError

    def found(self, *, salvage: bool = False) -> list[int]:
        """Which turns a new life finds."""
        raise NotImplementedError

    @property
    def segment(self) -> Path:
        (path,) = self.directory.rglob("*.log")
        return path


class BrokerUser(User):
    kind = "broker"

    def write(self) -> list[int]:
        ledger = DiskBrokerLedger(self.directory)
        ends = []
        for turn in range(TURNS):
            ledger.entries(T, (publication("ann", turn + 1, payload=b"turn %d" % turn),))
            ledger.flush()
            ends.append(ledger.log.segment_bytes)
        ledger.abandon()
        return ends

    def found(self, *, salvage: bool = False) -> list[int]:
        ledger = DiskBrokerLedger(self.directory, salvage=salvage)
        ledger.abandon()
        return [entry.number - 1 for entry in ledger.saved().entries.get(T, [])]


class NodeUser(User):
    kind = "node"

    def write(self) -> list[int]:
        log = StateLog(self.directory, ME)
        ends = []
        for turn in range(TURNS):
            log.add(Fired(turn))
            log.add(ReceivedInput(NodeId("n2"), (b"some bytes",)))
            log.flush()
            ends.append(log.log.segment_bytes)
        log.close()
        return ends

    def found(self, *, salvage: bool = False) -> list[int]:
        assert not salvage
        log = StateLog(self.directory, ME)
        log.close()
        return [happened.timer for happened in log.inputs if isinstance(happened, Fired)]


@pytest.fixture(params=[BrokerUser, NodeUser])
def user(request: pytest.FixtureRequest, tmp_path: Path) -> User:
    made: User = request.param(tmp_path / "user")
    return made


def every_flip(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Every bit turned over, one at a time, and the byte it is in."""
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        yield bit // 8, bytes(flipped)


def test_a_log_that_was_cut_anywhere_has_every_turn_before_the_cut(user: User) -> None:
    ends = user.write()
    data = user.segment.read_bytes()
    path = user.segment
    beginning = ends[0] - (ends[1] - ends[0])
    for size in range(len(data)):
        path.write_bytes(data[:size])
        if size < beginning:  # That was on the disk before the file had its name: no cut write leaves less.
            with pytest.raises(DamagedLogError, match=str(path)):
                user.found()
            assert path.read_bytes() == data[:size]
        else:
            whole = [turn for turn, end in enumerate(ends) if end <= size]
            assert user.found() == whole
            assert path.stat().st_size == max([beginning, *(ends[turn] for turn in whole)])


def test_any_bit_that_is_turned_over_is_found_and_the_file_kept(user: User) -> None:
    """In the last frame too: it is of full length, so what it said may have been acknowledged."""
    ends = user.write()
    path = user.segment
    data = path.read_bytes()
    for place, flipped in every_flip(data):
        path.write_bytes(flipped)
        with pytest.raises(UsageError, match=str(path)) as told:
            user.found()
        assert "\n" not in str(told.value)
        if place >= ends[0]:
            start = max(end for end in ends if end <= place)
            assert f"damaged at byte {start} of {len(data)}" in str(told.value)
        assert path.read_bytes() == flipped
    path.write_bytes(data)
    assert user.found() == list(range(TURNS))


def test_a_salvaged_log_has_every_turn_before_and_behind_the_damage(tmp_path: Path) -> None:
    written = BrokerUser(tmp_path / "written")
    ends = written.write()
    data = written.segment.read_bytes()
    for place, flipped in list(every_flip(data))[::19]:
        with tempfile.TemporaryDirectory(dir=tmp_path) as directory:
            user = BrokerUser(Path(directory))
            (user.directory / "ledger").mkdir()
            (user.directory / "ledger" / "00000001.log").write_bytes(flipped)
            hit = next(turn for turn, end in enumerate(ends) if end > place)
            first = ends[0] - (ends[1] - ends[0])
            expected = [turn for turn in range(TURNS) if place < first or turn != hit]
            ledger = DiskBrokerLedger(user.directory, salvage=True, fsync="never")
            ledger.abandon()
            assert [entry.number - 1 for entry in ledger.saved().entries[T]] == expected
            assert not ledger.saved().whole
            assert ledger.log.lost_bytes > 0
            if place >= ends[0]:
                assert (ledger.log.lost_writes, ledger.log.lost_bytes) == (1, ends[hit] - ends[hit - 1])
            assert Path(ledger.log.kept).read_bytes() == flipped
            assert user.found() == expected, "what was salvaged is a log like any other"


def test_one_bad_bit_early_in_a_long_log_costs_one_turn_of_a_hundred(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = DiskBrokerLedger(tmp_path)
    for number in range(1, 101):
        ledger.entries(T, (publication("ann", number),))
        ledger.flush()
    ledger.abandon()
    (path,) = tmp_path.rglob("*.log")
    data = bytearray(path.read_bytes())
    data[len(data) // 10] ^= 4
    path.write_bytes(data)
    with pytest.raises(DamagedLogError, match=r"with 92 readable records behind it; --salvage starts"):
        DiskBrokerLedger(tmp_path)
    again = DiskBrokerLedger(tmp_path, salvage=True)
    assert len(again.saved().entries[T]) == 99
    again.log.report("b1")
    again.close()
    (said,) = caplog.records
    assert said.facts["kept"] == str(path.with_suffix(".damaged"))  # type: ignore[attr-defined]
    assert said.facts["writes"] == 1  # type: ignore[attr-defined]
    assert path.with_suffix(".damaged").read_bytes() == data


def test_a_salvaged_broker_does_not_trust_its_terms_before_it_has_written_one(tmp_path: Path) -> None:
    user = BrokerUser(tmp_path)
    user.write()
    data = bytearray(user.segment.read_bytes())
    data[-1] ^= 1
    user.segment.write_bytes(data)
    for life in ("salvaged", "the next one"):
        ledger = DiskBrokerLedger(tmp_path, salvage=life == "salvaged")
        assert not ledger.saved().whole, life
        ledger.abandon()
    ledger = DiskBrokerLedger(tmp_path)
    ledger.term(3)
    ledger.close()
    again = DiskBrokerLedger(tmp_path)
    assert again.saved().whole
    assert again.saved().term_number == 3
    again.close()


@pytest.mark.parametrize("zeros", [1, 12, 19, 20, 25, 400, 5000])
def test_zeros_that_a_machine_that_died_leaves_at_the_end_are_cut_off(user: User, zeros: int) -> None:
    user.write()
    with user.segment.open("ab") as file:
        file.write(bytes(zeros))
    assert user.found() == list(range(TURNS))


def test_a_last_write_of_which_a_sector_never_came_is_torn(tmp_path: Path) -> None:
    def log() -> Log:
        return Log(tmp_path, "test", least_bytes=1 << 20)

    first = log()
    first.begin([b"beginning"])
    first.write(b"one")
    whole = first.segment_bytes
    first.write(bytes([7]) * 3000)
    first.close()
    data = bytearray(first.path.read_bytes())
    data[1024:1536] = bytes(512)
    first.path.write_bytes(data)
    again = log()
    assert [record.body for record in again.records] == [b"beginning", b"one"]
    assert (again.segment_bytes, again.cut_bytes) == (whole, len(data) - whole)
    again.write(b"two")
    again.close()
    assert [record.body for record in log().records] == [b"beginning", b"one", b"two"]
    first.path.write_bytes(data[:1300] + b"x" + data[1301:])
    with pytest.raises(DamagedLogError, match=f"damaged at byte {whole} of {len(data)}"):
        log()


def test_a_hole_with_readable_writes_behind_it_is_damage_even_if_it_is_zeros(user: User) -> None:
    ends = user.write()
    data = bytearray(user.segment.read_bytes())
    data[ends[0] : ends[2]] = bytes(ends[2] - ends[0])
    user.segment.write_bytes(data)
    with pytest.raises(DamagedLogError, match=f"damaged at byte {ends[0]} of {len(data)}, with 1 readable"):
        user.found()


@pytest.mark.parametrize("change", ["a turn is missing", "a turn is there twice"])
def test_whole_frames_that_are_missing_or_doubled_are_damage(user: User, change: str) -> None:
    ends = user.write()
    data = user.segment.read_bytes()
    rest = data[ends[1] :] if change == "a turn is missing" else data[ends[0] :]
    user.segment.write_bytes(data[: ends[0] if change == "a turn is missing" else ends[1]] + rest)
    with pytest.raises(DamagedLogError, match="damaged at byte"):
        user.found()


def test_nothing_that_was_published_passes_for_a_frame(tmp_path: Path) -> None:
    """A payload that is itself a piece of a log, in a frame whose header is damaged."""
    foreign = DiskBrokerLedger(tmp_path / "foreign")
    foreign.term(99)
    foreign.close()
    ledger = DiskBrokerLedger(tmp_path / "mine")
    ledger.term(1)
    ledger.flush()
    start = ledger.log.segment_bytes
    ledger.entries(T, (publication("eve", 1, payload=foreign.log.path.read_bytes()),))
    ledger.flush()
    ledger.entries(T, (publication("ann", 1),))
    ledger.close()
    data = bytearray(ledger.log.path.read_bytes())
    data[start + 9] ^= 1
    ledger.log.path.write_bytes(data)
    saved = DiskBrokerLedger(tmp_path / "mine", salvage=True).saved()
    assert saved.term_number == 1
    assert [entry.origin for entry in saved.entries[T]] == ["ann"]


def test_another_format_another_user_and_another_file_are_each_named(tmp_path: Path) -> None:
    user = NodeUser(tmp_path)
    user.write()
    data = user.segment.read_bytes()
    user.segment.write_bytes(b"ordercast log 7\n" + bytes(100))
    with pytest.raises(UsageError, match="written in format 7; this version reads format 4"):
        user.found()
    user.segment.write_bytes(b"\x00\x00\x00\x07garbage" * 9)
    with pytest.raises(DamagedLogError, match="damaged from its beginning on, or no log of format 4"):
        user.found()
    user.segment.write_bytes(data)
    with pytest.raises(UsageError, match="the log of a node, not of a broker"):
        Log(tmp_path, "broker", least_bytes=1)
    log = Log(tmp_path, "node", least_bytes=1)
    log.write(b"\xc1 is no msgpack")
    log.close()
    with pytest.raises(UsageError, match=rf"the record at byte {len(data)} is none of format 4"):
        user.found()


class FullDisk(Disk):
    def write(self, file: int, data: bytes) -> None:
        raise OSError(28, os.strerror(28))


@pytest.mark.parametrize(
    "start",
    [
        lambda directory: DiskBrokerLedger(directory, disk=FullDisk()),
        lambda directory: StateLog(directory, ME, disk=FullDisk()),
    ],
    ids=["broker", "node"],
)
def test_a_full_disk_at_the_start_is_one_line(start: Callable[[Path], object], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"00000001\.log: No space left on device$"):
        start(tmp_path)


def test_what_is_kept_is_private(user: User) -> None:
    user.write()
    assert user.segment.stat().st_mode & 0o777 == 0o600
    assert user.directory.stat().st_mode & 0o777 == 0o700
    assert user.segment.parent.stat().st_mode & 0o777 == 0o700


# Whatever the bytes are

_BROKER = segments.begun(7, "broker", [b"\x90"])


@settings(deadline=None)
@given(st.binary(max_size=400) | st.binary(max_size=300).map(_BROKER.__add__))
@example(b"")
@example(segments.PREAMBLE)
@example(_BROKER + segments.frame(7, 2, b"\x91\x93\x01\xa1t\x91\x90"))
@example(_BROKER + segments.frame(7, 2, b"\x91" * 5000))
@example(_BROKER + segments.frame(7, 2, b"\x91\x92\x05\xcf" + b"\xff" * 8))
@example(segments.begun(7, "broker", [b"\x91\x93\x03\xa2\xff\xff"]))
def test_bytes_of_any_kind_are_read_or_refused_in_one_line(data: bytes) -> None:
    segments.read(data)
    for salvage in (False, True):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "ledger" / "00000001.log"
            path.parent.mkdir()
            path.write_bytes(data)
            complaint = _complaint(Path(directory), salvage=salvage)
            assert complaint is None or (str(path) in complaint and "\n" not in complaint)
            assert complaint is None or path.read_bytes() == data


def _complaint(directory: Path, *, salvage: bool) -> str | None:
    try:
        DiskBrokerLedger(directory, salvage=salvage).close()
    except UsageError as error:
        return str(error)
    return None


@settings(deadline=None)
@given(st.data())
def test_any_number_of_changes_loses_only_what_they_touch(data: st.DataObject) -> None:
    """Frames are found again behind bytes that were changed, removed or put in."""
    bodies = data.draw(st.lists(st.binary(max_size=30), min_size=1, max_size=8), "bodies")
    pieces = [segments.begun(9, "test", []), *(segments.frame(9, i, body) for i, body in enumerate(bodies, start=1))]
    touched = data.draw(st.sets(st.integers(1, len(bodies))), "touched")
    for number in sorted(touched):
        piece = pieces[number]
        start = data.draw(st.integers(0, len(piece)))
        end = data.draw(st.integers(start, len(piece)))
        changed = piece[:start] + data.draw(st.binary(max_size=20)) + piece[end:]
        pieces[number] = changed
    read = segments.read(b"".join(pieces))
    kept = [body for number, body in enumerate(bodies, start=1) if number not in touched]
    found = [record.body for record in read.records]
    assert set(kept) <= set(found)
    assert set(found) <= set(bodies)


def test_a_gap_is_counted(tmp_path: Path) -> None:
    frames = [segments.frame(9, i, b"%d" % i) for i in range(1, 6)]
    read = segments.read(segments.begun(9, "test", []) + frames[0] + b"rubbish" + frames[4])
    assert [record.body for record in read.records] == [b"1", b"5"]
    assert [(damage.end - damage.start, damage.writes) for damage in read.damage] == [(7, 3)]


def test_a_node_that_waits_for_the_disk_is_told_when_it_fails(tmp_path: Path) -> None:
    log = StateLog(tmp_path, ME, fsync="always")
    log.log._disk = FullDisk()
    log.add(Suspected(NodeId("n2")))
    with pytest.raises(OSError, match="No space left"):
        log.flush()
    log.close()
