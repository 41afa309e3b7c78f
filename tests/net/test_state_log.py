"""The log of a node: what was flushed is there in the next life, whatever happened in between."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec
import pytest

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.messages import Guarantee, Message
from ordercast.net.log.files import Disk
from ordercast.net.nodes.state_log import (
    Fired,
    Head,
    Input,
    JoinedInput,
    LeftInput,
    LifeBegun,
    MachineReplaced,
    PublishedInput,
    ReceivedInput,
    Started,
    StateLog,
    Subscribed,
    Suspected,
    Trusted,
    Unsubscribed,
    Whose,
    belongs_to,
    timer_name,
)
from ordercast.net.supervise.process import ProcessLayout
from ordercast.protocols import lookup
from ordercast.scenario.model import Edges, OpenLoad, Scenario

ME = Whose(NodeId("n1"), 0, "locamu", "{}", 7)
T = Topic("t")
ALL: list[Input] = [
    Started(),
    PublishedInput(T, b"payload", Guarantee.CAUSAL, ("k",), (NodeId("n2"),)),
    ReceivedInput(NodeId("n2"), (b"one", b"two")),
    Fired("tick"),
    Suspected(NodeId("n2")),
    Trusted(NodeId("n2")),
    Subscribed(T),
    Unsubscribed(T),
    JoinedInput(),
    LeftInput(),
    LifeBegun(),
    MachineReplaced(),
]


def write(directory: Path, *turns: list[Input]) -> None:
    log = StateLog(directory, ME)
    for turn in turns:
        for happened in turn:
            log.add(happened)
        log.flush()
    log.close()


def read(directory: Path) -> tuple[list[Input], int]:
    log = StateLog(directory, ME)
    log.close()
    return log.inputs, log.log.cut_bytes


def segment(directory: Path) -> Path:
    (path,) = directory.glob("*.log")
    return path


def test_every_input_is_there_in_the_next_life(tmp_path: Path) -> None:
    first = StateLog(tmp_path, ME)
    assert not first.has_past
    first.close()
    write(tmp_path, ALL[:3], ALL[3:])
    again = StateLog(tmp_path, ME)
    assert again.has_past
    assert again.inputs == ALL
    again.close()


@pytest.mark.parametrize("name", ["tick", 3, ("need", 2), (("a", ("b",)), 1)])
def test_a_timer_is_called_what_the_machine_called_it(name: object, tmp_path: Path) -> None:
    write(tmp_path, [Fired(name)])
    ((happened,), _) = read(tmp_path)
    assert isinstance(happened, Fired)
    assert timer_name(happened.timer) == name


def test_a_write_that_was_cut_short_anywhere_never_happened(tmp_path: Path) -> None:
    write(tmp_path, ALL[:2])
    whole = segment(tmp_path).read_bytes()
    write(tmp_path, ALL[2:])
    longer = segment(tmp_path).read_bytes()
    for size in range(len(whole), len(longer)):
        segment(tmp_path).write_bytes(longer[:size])
        assert read(tmp_path) == (ALL[:2], size - len(whole))
        assert segment(tmp_path).read_bytes() == whole


def test_what_is_written_after_a_torn_end_is_read_again(tmp_path: Path) -> None:
    write(tmp_path, ALL[:2], ALL[2:4])
    path = segment(tmp_path)
    os.truncate(path, path.stat().st_size - 1)
    write(tmp_path, ALL[4:])
    assert read(tmp_path) == (ALL[:2] + ALL[4:], 0)


@pytest.mark.parametrize("zeros", [1, 12, 400])
def test_zeros_that_a_power_failure_leaves_at_the_end_are_cut_off(zeros: int, tmp_path: Path) -> None:
    write(tmp_path, ALL)
    with segment(tmp_path).open("ab") as file:
        file.write(bytes(zeros))
    assert read(tmp_path) == (ALL, zeros)


def test_a_snapshot_replaces_all_that_came_before_it(tmp_path: Path) -> None:
    log = StateLog(tmp_path, ME, least_bytes=200)
    while not log.oversized:
        log.add(Fired("tick"))
        log.flush()
    late = Message(Origin("n1"), 4, T, b"not handed over yet")
    head = Head(ME, saved=b"saved", published=4, told=9, delivered=5, unheard=(late,))
    log.compact(head)
    assert not log.oversized
    log.add(Suspected(NodeId("n2")))
    log.flush()
    log.close()
    assert segment(tmp_path).name == "00000002.log"
    again = StateLog(tmp_path, ME)
    assert (again.head, again.inputs) == (head, [Suspected(NodeId("n2"))])
    again.close()


def test_a_log_does_not_grow_beyond_twice_its_state_or_the_limit(tmp_path: Path) -> None:
    log = StateLog(tmp_path, ME, least_bytes=300)
    largest = 0
    for _ in range(500):
        log.add(Fired("tick"))
        log.flush()
        largest = max(largest, sum(path.stat().st_size for path in tmp_path.glob("*.log")))
        if log.oversized:
            log.compact(Head(ME, saved=bytes(400)))
    log.close()
    assert largest < 1_200


def test_a_snapshot_that_was_not_finished_does_not_count(tmp_path: Path) -> None:
    write(tmp_path, ALL)
    (tmp_path / "00000002.new").write_bytes(b"half a snap")
    assert read(tmp_path) == (ALL, 0)
    assert [path.suffix for path in sorted(tmp_path.iterdir())] == [".log", ""]


def test_the_newest_snapshot_counts_where_the_older_one_was_not_removed(tmp_path: Path) -> None:
    write(tmp_path, ALL)
    old = segment(tmp_path).read_bytes()
    log = StateLog(tmp_path, ME)
    log.compact(Head(ME, published=3))
    log.close()
    (tmp_path / "00000001.log").write_bytes(old)
    again = StateLog(tmp_path, ME)
    assert (again.head.published, again.inputs) == (3, [])
    again.close()


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        (msgspec.structs.replace(ME, node=NodeId("n2")), "node is n1 there and n2 here"),
        (msgspec.structs.replace(ME, protocol="fifo"), "protocol is locamu there and fifo here"),
        (msgspec.structs.replace(ME, options='{"f":2}'), 'options is {} there and {"f":2} here'),
        (msgspec.structs.replace(ME, incarnation=1), "incarnation is 0 there and 1 here"),
        (msgspec.structs.replace(ME, around=8), "the overlay or the groups were others"),
    ],
)
def test_the_state_of_somebody_else_is_refused(other: Whose, complaint: str, tmp_path: Path) -> None:
    write(tmp_path, ALL)
    with pytest.raises(UsageError, match=complaint):
        StateLog(tmp_path, other)
    assert read(tmp_path) == (ALL, 0)


def test_two_processes_cannot_use_one_state(tmp_path: Path) -> None:
    log = StateLog(tmp_path, ME)
    with pytest.raises(UsageError, match="another process uses this state"):
        StateLog(tmp_path, ME)
    log.close()
    StateLog(tmp_path, ME).close()


def test_a_directory_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="file/n1: Not a directory"):
        StateLog(tmp_path / "file" / "n1", ME)


class Counting(Disk):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def write(self, file: int, data: bytes) -> None:
        self.calls.append("write")
        super().write(file, data)

    def sync(self, file: int) -> None:
        self.calls.append("sync")
        super().sync(file)


def test_a_turn_is_one_write_and_where_asked_one_sync(tmp_path: Path) -> None:
    for name, calls in (("never", ["write"]), ("always", ["write", "sync"])):
        disk = Counting()
        log = StateLog(tmp_path / name, ME, fsync=name, disk=disk)  # type: ignore[arg-type]
        disk.calls.clear()
        for happened in ALL:
            log.add(happened)
        log.flush()
        log.flush()
        assert disk.calls == calls
        log.close()


class Failing(Disk):
    """Full in the middle of a write, or unable to synchronise, when it is told to be."""

    fails = ""

    def write(self, file: int, data: bytes) -> None:
        if self.fails == "write":
            super().write(file, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(file, data)

    def sync(self, file: int) -> None:
        if self.fails == "sync":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(file)


@pytest.mark.parametrize("fails", ["write", "sync"])
def test_after_a_failure_nothing_more_is_written_and_what_was_written_is_read(fails: str, tmp_path: Path) -> None:
    """A torn frame with others behind it could never be read again."""
    disk = Failing()
    log = StateLog(tmp_path, ME, fsync="always", disk=disk)
    log.add(ALL[0])
    log.flush()
    disk.fails = fails
    log.add(ALL[1])
    with pytest.raises(OSError, match=r"(No space left|Input/output error).*00000001\.log"):
        log.flush()
    disk.fails = ""
    for _ in range(2):
        log.add(ALL[2])
        with pytest.raises(OSError, match=r"(No space left|Input/output error).*00000001\.log"):
            log.flush()
    with pytest.raises(OSError, match=r"No space left|Input/output error"):
        log.compact(Head(ME))
    log.close()
    inputs, _ = read(tmp_path)
    assert inputs == (ALL[:1] if fails == "write" else ALL[:2])


def test_a_log_that_could_not_begin_anew_is_written_no_more(tmp_path: Path) -> None:
    disk = Failing()
    log = StateLog(tmp_path, ME, disk=disk)
    log.add(ALL[0])
    log.flush()
    disk.fails = "write"
    with pytest.raises(OSError, match="No space left"):
        log.compact(Head(ME, saved=b"saved"))
    disk.fails = ""
    log.add(ALL[1])
    with pytest.raises(OSError, match="No space left"):
        log.flush()
    log.close()
    assert read(tmp_path) == (ALL[:1], 0)


def test_a_process_that_died_before_its_life_began_leaves_no_past(tmp_path: Path) -> None:
    StateLog(tmp_path, ME).close()
    log = StateLog(tmp_path, ME)
    assert not log.has_past
    log.begin_life()
    log.close()
    log = StateLog(tmp_path, ME)
    assert log.has_past
    assert (log.inputs, log.lives) == ([Started()], 1)
    log.close()


def test_the_same_links_on_another_tree_are_another_overlay() -> None:
    def whose(edges: list[tuple[str, str]]) -> Whose:
        scenario = Scenario(name="tree", overlay=Edges(edges=edges, tree=True), workload=[OpenLoad(rate_per_s=1)])
        info = lookup("locamu")
        layout = ProcessLayout(scenario, info, 0)
        place = layout.place(NodeId("a"), 0)
        assert place.neighbours == ("b", "c")
        return belongs_to(place, info, layout.options)

    assert whose([("a", "b"), ("b", "c")]) != whose([("a", "b"), ("a", "c")])
    assert whose([("a", "b"), ("b", "c")]) == whose([("a", "b"), ("b", "c")])
