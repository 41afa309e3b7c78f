"""The ledger on disk means what the one in memory means, and outlives the process."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ordercast.api.ledger import SqliteLedger
from ordercast.core.errors import UsageError
from ordercast.core.ids import Topic
from tests.support.client_edge import publication

T, U = Topic("t"), Topic("u")


def test_a_turn_that_was_not_flushed_never_happened(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path)
    ledger.begin_session("ann", 1)
    ledger.published(T, [publication("ann~1", 1)])
    ledger.flush()
    ledger.published(T, [publication("ann~1", 2)])
    ledger.abandon()
    again = SqliteLedger(tmp_path)
    assert [entry.number for entry in again.saved().topics[T].outbox] == [1]
    assert again.origin == "ann~1"
    again.close()


def test_a_new_session_publishes_nothing_of_the_lost_one_and_keeps_it_for_the_application(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path)
    ledger.begin_session("ann", 1)
    ledger.member(T, receives=True, granted=True)
    ledger.published(T, [publication("ann~1", n, payload=b"%d" % n) for n in (1, 2, 3)])
    ledger.delivered(T, [publication("bob", 1), publication("ann~1", 1, payload=b"1"), publication("bob", 2)])
    ledger.consumed(T, 2)
    ledger.lost([publication("ann~1", 3, payload=b"3")])
    ledger.begin_session("ann", 2)
    kept = ledger.saved().topics[T]
    assert kept.outbox == []
    assert kept.counter == 0
    assert not kept.granted
    assert [(entry.id, entry.payload) for entry in ledger.unanswered()] == [("ann~1/t#3", b"3")]
    assert kept.have == {"ann~1": (1, ()), "bob": (2, ())}
    assert [entry.id for entry in kept.history] == ["bob/t#2"], "what the application has not taken stays for it"
    assert kept.untaken == 1
    ledger.forget_unanswered()
    ledger.close()
    again = SqliteLedger(tmp_path)
    assert again.unanswered() == ()
    again.close()


def test_one_directory_is_for_one_client_at_a_time(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path)
    with pytest.raises(UsageError, match=r"data: .* is in use by another client"):
        SqliteLedger(tmp_path)
    ledger.close()
    SqliteLedger(tmp_path).close()


def test_a_file_that_is_something_else_is_named(tmp_path: Path) -> None:
    (tmp_path / "client.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(UsageError, match=r"data: .*client\.sqlite cannot be used"):
        SqliteLedger(tmp_path)


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="data: "):
        SqliteLedger(tmp_path / "file" / "below")


def test_only_its_owner_may_look_into_what_a_client_keeps(tmp_path: Path) -> None:
    """Earlier versions left the file open to everybody."""
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "client.sqlite").touch(0o644)
    for directory in (tmp_path / "new" / "ann", tmp_path / "old"):
        ledger = SqliteLedger(directory)
        ledger.begin_session("ann", 1)
        modes = {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()}
        assert modes["client.sqlite"] == 0o600
        assert set(modes.values()) == {0o600}
        ledger.close()
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "new" / "ann").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_file_is_read_or_refused_in_one_line(seed: int, tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path)
    ledger.begin_session("ann", 1)
    ledger.member(T, receives=True, granted=True)
    ledger.published(T, [publication("ann~1", n) for n in range(1, 30)])
    ledger.delivered(T, [publication("bob", n) for n in range(1, 30)])
    ledger.close()
    chance = random.Random(seed)
    content = bytearray(ledger.path.read_bytes())
    for _ in range(8):
        content[chance.randrange(len(content))] = chance.randrange(256)
        start = chance.randrange(len(content))
        content[start : start + 40] = chance.randbytes(40)
    ledger.path.write_bytes(content)
    complaint = ""
    try:
        SqliteLedger(tmp_path).close()
    except UsageError as error:
        complaint = str(error)
    assert "\n" not in complaint
    assert not complaint or complaint.startswith("data: ")
