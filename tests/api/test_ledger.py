"""The ledger on disk means what the one in memory means, and outlives the process."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from ordercast.api.ledger import SqliteLedger
from ordercast.client.memory_ledger import MemoryClientLedger
from ordercast.client.ports import SavedClient
from ordercast.core.errors import UsageError
from ordercast.core.ids import Origin, Topic
from tests.support.client_edge import publication

T, U = Topic("t"), Topic("u")


def reopened(ledger: SqliteLedger) -> SqliteLedger:
    ledger.close()
    return SqliteLedger(ledger.path.parent)


@pytest.mark.parametrize("seed", range(30))
def test_it_says_the_same_as_the_one_in_memory(seed: int, tmp_path: Path) -> None:
    disk = SqliteLedger(tmp_path)
    disk.begin_session("ann", 7)
    memory = MemoryClientLedger(Origin("ann~7"))
    chance = random.Random(seed)
    own = {T: 0, U: 0}
    heard = {T: 0, U: 0}
    for _ in range(60):
        topic = chance.choice((T, U))
        kind = chance.randrange(9)
        for ledger in (disk, memory):
            if kind < 2:
                ledger.published(topic, [publication("ann~7", own[topic] + i, topic) for i in (1, 2)])
            elif kind < 4:
                new = [publication("bob", heard[topic] + i, topic) for i in (2, 1)]
                ledger.delivered(topic, [*new, publication("ann~7", max(1, own[topic] - 1), topic)])
            elif kind == 4:
                ledger.consumed(topic, heard[topic] % 3 + 1)
            elif kind == 5:
                ledger.base(topic, {Origin("bob"): heard[topic] // 2, Origin("ann~7"): own[topic] // 2})
            elif kind == 6:
                ledger.refused(topic, own[topic])
            elif kind == 7:
                ledger.attach(heard[topic])
            else:
                ledger.member(topic, receives=True, granted=True)
        own[topic] += 2 * (kind < 2)
        heard[topic] += 2 * (2 <= kind < 4)
        if chance.random() < 0.3:
            disk.flush()
        if chance.random() < 0.1:
            disk = reopened(disk)
    disk = reopened(disk)
    assert _plain(disk.saved()) == _plain(memory.saved())
    disk.close()


def _plain(saved: SavedClient) -> object:
    return msgspec.to_builtins(saved)


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
