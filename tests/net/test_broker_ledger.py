"""The durable log of a broker: what was flushed is there in the next life, whatever happened in between."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.messages import Guarantee
from ordercast.net.brokers import ledger as broker_ledger
from ordercast.net.brokers.incarnation import DataDirectory, later_life
from ordercast.net.brokers.ledger import DiskBrokerLedger
from ordercast.net.log.files import Disk
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.tree_packets import Change, KnownDirectory

T = Topic("accounts.PT")
ANN = Origin("ann")


def _entry(number: int, *, origin: str = "ann", size: int = 8, guarantee: Guarantee = Guarantee.CAUSAL) -> Publication:
    return Publication(Origin(origin), number, T, bytes(size), guarantee, ("k",))


KNOWN = KnownDirectory((Change(NodeId("b1"), "127.0.0.1:7001", (2, 4)),), (1, 3), {NodeId("b0"): "127.0.0.1:7000"})


def _numbers(directory: Path) -> list[int]:
    ledger = DiskBrokerLedger(directory)
    held = [entry.number for entry in ledger.saved().entries.get(T, [])]
    ledger.close()
    return held


class FaultyDisk(Disk):
    """Fails when told to; a failing write still leaves a part of its bytes behind."""

    def __init__(self) -> None:
        self.full = False
        self.broken = False
        self.calls: list[str] = []

    def write(self, file: int, data: bytes) -> None:
        self.calls.append("write")
        if self.full:
            super().write(file, data[: len(data) // 2])
            raise OSError(28, os.strerror(28))
        super().write(file, data)

    def sync(self, file: int) -> None:
        self.calls.append("sync")
        if self.broken:
            raise OSError(5, os.strerror(5))
        super().sync(file)


def test_everything_a_broker_wrote_down_is_there_in_its_next_life(tmp_path: Path) -> None:
    ledger = DiskBrokerLedger(tmp_path)
    entries = [_entry(1), _entry(2), _entry(1, origin="bob")]
    ledger.entries(T, tuple(entries))
    ledger.base(T, {ANN: 1})
    ledger.roster({T: (ANN, Origin("bob"))}, {Origin("eve"): 3})
    ledger.term(7)
    ledger.directory(KNOWN)
    ledger.flush()
    ledger.abandon()  # Killed.

    saved = DiskBrokerLedger(tmp_path).saved()
    assert saved.entries == {T: entries[1:]}
    assert saved.base == {T: {ANN: 1}}
    assert saved.roster == {T: (ANN, Origin("bob"))}
    assert saved.fenced == {Origin("eve"): 3}
    assert saved.term_number == 7
    assert saved.directory == KNOWN


def test_what_was_not_flushed_never_happened(tmp_path: Path) -> None:
    ledger = DiskBrokerLedger(tmp_path)
    ledger.entries(T, (_entry(1),))
    ledger.flush()
    ledger.entries(T, (_entry(2),))
    ledger.abandon()
    assert _numbers(tmp_path) == [1]


def test_a_forgotten_topic_stays_forgotten(tmp_path: Path) -> None:
    ledger = DiskBrokerLedger(tmp_path)
    ledger.entries(T, (_entry(1),))
    ledger.base(T, {ANN: 0})
    ledger.forget(T)
    ledger.close()
    saved = DiskBrokerLedger(tmp_path).saved()
    assert saved.entries == {}
    assert saved.base == {}


def test_a_prepared_publication_that_is_committed_takes_its_place_in_the_log(tmp_path: Path) -> None:
    ledger = DiskBrokerLedger(tmp_path)
    total = _entry(1, guarantee=Guarantee.TOTAL)
    ledger.entries(T, (total,))
    ledger.entries(T, (_entry(1, origin="bob"),))
    ledger.entries(T, (total,))
    ledger.close()
    assert [entry.origin for entry in DiskBrokerLedger(tmp_path).saved().entries[T]] == ["bob", "ann"]


def test_a_prepared_publication_stays_behind_all_that_is_committed_after_it(tmp_path: Path) -> None:
    """Nobody was given it; of two totals of one publisher the first is committed while the second is prepared."""
    ledger = DiskBrokerLedger(tmp_path)
    first, second = (_entry(number, guarantee=Guarantee.TOTAL) for number in (1, 2))
    ledger.entries(T, (first, second), prepared=True)
    ledger.entries(T, (first,))
    ledger.entries(T, (_entry(1, origin="bob"),))
    for _ in range(2):
        ledger.close()
        ledger = DiskBrokerLedger(tmp_path)
        held = [(entry.origin, entry.number) for entry in ledger.saved().entries[T]]
        assert held == [("ann", 1), ("bob", 1), ("ann", 2)]
        assert ledger.saved().prepared == {T: 1}
        ledger.log.compact(ledger._beginning())
    ledger.base(T, {Origin("ann"): 2})
    assert ledger.saved().prepared == {}
    ledger.close()


@pytest.mark.parametrize("lost", [1, 5, 20])
def test_a_torn_tail_is_cut_off_and_everything_before_it_kept(tmp_path: Path, lost: int) -> None:
    ledger = DiskBrokerLedger(tmp_path)
    for number in (1, 2, 3):
        ledger.entries(T, (_entry(number),))
        ledger.flush()
    ledger.abandon()
    (segment,) = (tmp_path / "ledger").glob("*.log")
    os.truncate(segment, segment.stat().st_size - lost)

    again = DiskBrokerLedger(tmp_path)
    assert [entry.number for entry in again.saved().entries[T]] == [1, 2]
    assert again.log.cut_bytes > 0
    again.entries(T, (_entry(3),))
    again.close()
    assert _numbers(tmp_path) == [1, 2, 3]


def test_a_turn_is_one_write_and_one_fsync(tmp_path: Path) -> None:
    disk = FaultyDisk()
    ledger = DiskBrokerLedger(tmp_path, disk=disk)
    disk.calls.clear()
    for number in range(1, 100):
        ledger.entries(T, (_entry(number),))
    ledger.flush()
    ledger.flush()
    assert disk.calls == ["write", "sync"]
    ledger.close()


@pytest.mark.parametrize(("fsync", "calls"), [("interval", ["write"]), ("never", ["write"])])
def test_other_fsync_modes_do_not_wait_for_the_disk(tmp_path: Path, fsync: str, calls: list[str]) -> None:
    disk = FaultyDisk()
    ledger = DiskBrokerLedger(tmp_path, fsync=fsync, disk=disk)  # type: ignore[arg-type]
    disk.calls.clear()
    ledger.entries(T, (_entry(1),))
    ledger.flush()
    assert disk.calls == calls
    ledger.sync()
    assert disk.calls == [*calls, "sync"]
    ledger.close()


@pytest.mark.parametrize("fault", ["full", "broken"])
def test_a_disk_that_fails_is_an_error_and_loses_nothing_that_was_flushed(tmp_path: Path, fault: str) -> None:
    disk = FaultyDisk()
    ledger = DiskBrokerLedger(tmp_path, disk=disk)
    ledger.entries(T, (_entry(1),))
    ledger.flush()
    setattr(disk, fault, True)
    ledger.entries(T, (_entry(2),))
    with pytest.raises(OSError, match=r"No space left|Input/output error"):
        ledger.flush()
    ledger.abandon()
    assert _numbers(tmp_path)[:1] == [1]


def test_the_log_does_not_grow_with_what_has_become_stable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_ledger, "_LEAST_BYTES", 10_000)
    ledger = DiskBrokerLedger(tmp_path, fsync="never")
    for number in range(1, 1001):
        ledger.entries(T, (_entry(number, size=100),))
        ledger.base(T, {ANN: max(0, number - 5)})
        ledger.flush()
    assert sum(path.stat().st_size for path in (tmp_path / "ledger").iterdir()) < 30_000
    ledger.close()
    assert _numbers(tmp_path) == [996, 997, 998, 999, 1000]


def test_one_entry_that_never_becomes_stable_does_not_keep_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_ledger, "_LEAST_BYTES", 10_000)
    ledger = DiskBrokerLedger(tmp_path, fsync="never")
    ledger.entries(T, (_entry(1, origin="gone"),))
    for number in range(1, 1001):
        ledger.entries(T, (_entry(number, size=100),))
        ledger.base(T, {ANN: number})
        ledger.flush()
    assert sum(path.stat().st_size for path in (tmp_path / "ledger").iterdir()) < 30_000
    ledger.close()
    saved = DiskBrokerLedger(tmp_path).saved()
    assert [entry.origin for entry in saved.entries[T]] == ["gone"]


def test_a_crash_between_two_segments_loses_nothing(tmp_path: Path) -> None:
    """The new segment has no name before its beginning is complete."""
    ledger = DiskBrokerLedger(tmp_path)
    ledger.entries(T, (_entry(1),))
    ledger.flush()
    ledger.abandon()
    (tmp_path / "ledger" / "00000002.new").write_bytes(b"half")
    assert _numbers(tmp_path) == [1]
    assert not list((tmp_path / "ledger").glob("*.new"))


def test_two_processes_cannot_use_one_data_directory(tmp_path: Path) -> None:
    first = DataDirectory(tmp_path)
    with pytest.raises(UsageError, match="another broker uses it"):
        DataDirectory(tmp_path)
    first.release()
    DataDirectory(tmp_path).release()


def test_every_life_is_higher_than_those_before(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    assert directory.last_life() is None
    directory.begin(0)
    assert directory.last_life() == 0
    second = later_life(directory.last_life())
    directory.begin(second)
    assert second > 0
    assert later_life(second + 10**9) == second + 10**9 + 1  # The clock was set back.
    directory.release()


def test_a_change_of_members_is_written_alone_and_read_again(tmp_path: Path) -> None:
    """However many sessions have ended, the next one costs a few bytes."""
    ledger = DiskBrokerLedger(tmp_path)
    ended = {Origin(f"pub~{n} {T}"): 1 for n in range(1000)}
    ledger.roster({T: (ANN,), Topic("u"): (ANN,)}, ended)
    ledger.flush()
    before = ledger.log.segment_bytes
    gone, new = Origin(f"pub~0 {T}"), Origin(f"pub~1000 {T}")
    ledger.roster({T: (ANN, Origin("bob")), Topic("u"): ()}, {new: 2}, (gone,))
    ledger.flush()
    assert ledger.log.segment_bytes - before < 200
    ledger.close()

    saved = DiskBrokerLedger(tmp_path).saved()

    assert saved.roster == {T: (ANN, Origin("bob"))}
    assert saved.fenced == {who: epoch for who, epoch in ended.items() if who != gone} | {new: 2}
