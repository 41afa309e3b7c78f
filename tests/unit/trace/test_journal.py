"""Journals: what was flushed is there after a kill, and becomes the rows that the judge reads."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.messages import Guarantee, Message
from ordercast.protocols.flood.flood import Data
from ordercast.protocols.shared.links import Ack
from ordercast.pubsub.publications import Publication
from ordercast.trace.collect import JournalLife, collect
from ordercast.trace.journal import Journal, Row, read_journal
from ordercast.trace.schema import COLUMNS
from ordercast.trace.store import Manifest, TraceError, event_files
from ordercast.trace.writer import RunWriter

MESSAGE = Message(Origin("n0"), 1, Topic("t"), b"abc", Guarantee.FIFO, ("k",), (NodeId("n1"),))


def test_a_row_has_every_column_that_the_collector_does_not_add() -> None:
    assert ["run", "node", "seq", *Row.__struct_fields__] == [name for name, _, _ in COLUMNS]


def test_rows_come_back_as_they_were_recorded(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", packets=True)
    journal.publish(1, MESSAGE)
    journal.packet("send", 2, "n1", Data(0, 1, 0, False, MESSAGE), 50)
    journal.packet("receive", 3, "n1", Ack(0, 1), 20)
    journal.deliver(4, MESSAGE)
    journal.event("suspect", 5, {"peer": "n1", "why": "silence"})
    journal.close()
    assert list(read_journal(tmp_path / "j")) == [
        Row("publish", 1, "n0#1", "t", ("k",), "fifo", ("n1",), payload_bytes=3),
        Row("send", 2, "n0#1", peer="n1", payload_bytes=3, header_bytes=47),
        Row("receive", 3, peer="n1", payload_bytes=0, header_bytes=20, info={"packet": "Ack"}),
        Row("deliver", 4, "n0#1", "t", guarantee="fifo"),
        Row("suspect", 5, peer="n1", info={"why": "silence"}),
    ]


def test_nothing_is_on_disk_before_the_flush_and_everything_after(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", packets=False)
    journal.deliver(1, MESSAGE)
    assert list(read_journal(tmp_path / "j")) == []
    journal.flush()
    assert [row.kind for row in read_journal(tmp_path / "j")] == ["deliver"]
    journal.close()


def test_what_is_rewound_never_happened(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", packets=False)
    journal.deliver(1, MESSAGE)
    mark = journal.mark()
    journal.publish(2, MESSAGE)
    journal.rewind(mark)
    journal.close()
    assert [row.kind for row in read_journal(tmp_path / "j")] == ["deliver"]


def test_every_torn_journal_reads_as_a_prefix(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", packets=False)
    for time_ns in range(5):
        journal.deliver(time_ns, MESSAGE)
    journal.close()
    whole = (tmp_path / "j").read_bytes()
    for size in range(len(whole) + 1):
        (tmp_path / "torn").write_bytes(whole[:size])
        times = [row.time_ns for row in read_journal(tmp_path / "torn")]
        assert times == list(range(whole[:size].count(b"\n")))


def test_an_unknown_kind_of_event_is_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", packets=False)
    with pytest.raises(ValueError, match="'party' is not a kind"):
        journal.event("party", 1)
    journal.close()


def test_the_collector_numbers_lives_in_a_row_and_adds_the_crash(tmp_path: Path) -> None:
    for name, times in (("first", (1, 2)), ("second", (7,))):
        journal = Journal(tmp_path / name, packets=False)
        for time_ns in times:
            journal.deliver(time_ns, MESSAGE)
        journal.close()
    lives = [
        JournalLife(tmp_path / "first", killed_ns=5),
        JournalLife(tmp_path / "second"),
        JournalLife(tmp_path / "never written", 9),
    ]
    writer = RunWriter(tmp_path / "run")
    kinds = collect("r", {NodeId("n0"): lives}, writer)
    run = writer.finish(Manifest(run_id="r", protocol="flood", guarantee="eventual"))
    (file,) = event_files(run)
    rows = pq.read_table(file).select(["node", "seq", "kind", "time_ns"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("n0", 0, "deliver", 1),
        ("n0", 1, "deliver", 2),
        ("n0", 2, "crash", 5),
        ("n0", 3, "deliver", 7),
        ("n0", 4, "crash", 9),
    ]
    assert kinds == {"deliver": 3, "crash": 2}


def test_a_batch_is_recorded_like_its_publications_one_by_one(tmp_path: Path) -> None:
    made = [Publication(Origin("ann"), n, Topic("t"), b"abc", Guarantee.TOTAL, ("", "k")) for n in (1, 2)]
    one, many = Journal(tmp_path / "one", packets=False), Journal(tmp_path / "many", packets=False)
    for publication in made:
        one.publish(1, publication)
        many.publish(1, publication)
    for publication in made:
        one.deliver(2, publication)
    many.deliver_many(2, made)
    one.close()
    many.close()
    assert (tmp_path / "many").read_bytes() == (tmp_path / "one").read_bytes()
    first = next(read_journal(tmp_path / "many"))
    assert first == Row("publish", 1, "ann/t#1", "t", ("", "k"), "total", payload_bytes=3)


def test_the_first_row_tells_life_state_and_clock(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", packets=False)
    journal.begin(1, life=0, info={"order_scope": "key"})
    journal.begin(2, life=1, state="kept")
    journal.close()
    told = [(row.kind, {**(row.info or {}), "boot": ""}) for row in read_journal(tmp_path / "j")]
    assert told == [("join", {"boot": "", "order_scope": "key"}), ("recover", {"boot": "", "state": "kept"})]


def test_a_damaged_line_is_named_by_its_number(tmp_path: Path) -> None:
    (tmp_path / "j").write_text('{"kind": "join", "time_ns": 1}\nnonsense\n{"kind": "leave", "time_ns": 2}\n')
    with pytest.raises(TraceError, match="j:2: "):
        list(read_journal(tmp_path / "j"))
