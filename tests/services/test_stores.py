"""Every store keeps the same promises."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import psycopg
import pytest

from ordercast.core.errors import UsageError
from ordercast.services.stores import Store, StoreError, open_store
from ordercast.services.stores.postgres import PostgresStore
from ordercast.services.stores.sqlite import SqliteStore
from tests.services.conftest import Opener


def test_what_was_committed_is_there_after_reopening(opener: Opener) -> None:
    store = opener()
    txn = store.begin()
    txn.put("a", b"1")
    txn.put("a", b"2")
    txn.write({"b": b"\x00\xff", "c": b"3"})
    txn.delete("c")
    txn.commit()
    store.close()
    again = opener()
    txn = again.begin()
    assert [txn.get(key) for key in "abc"] == [b"2", b"\x00\xff", None]
    txn.abort()
    again.close()


def test_a_transaction_sees_its_own_changes_and_abort_undoes_them(opener: Opener) -> None:
    store = opener()
    txn = store.begin()
    txn.put("a", b"1")
    assert txn.get("a") == b"1"
    txn.abort()
    txn = store.begin()
    assert txn.get("a") is None
    txn.write({"a": None})
    txn.commit()
    store.close()


def test_a_scan_is_sorted_and_keeps_to_its_prefix(opener: Opener) -> None:
    store = opener()
    txn = store.begin()
    txn.write({key: key.encode() for key in ("p b", "p a", "p é", "p \U0001f600", "q", "o", "p", "p \x7f")})
    assert [key for key, _ in txn.scan("p ")] == ["p a", "p b", "p \x7f", "p é", "p \U0001f600"]
    txn.put("p \x00", b"0")
    txn.delete("p b")
    assert [key for key, _ in txn.scan("p ")] == ["p \x00", "p a", "p \x7f", "p é", "p \U0001f600"]
    txn.abort()
    store.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_second_replica_cannot_open_the_same_store(
    kind: str, tmp_path: Path, schema: str, request: pytest.FixtureRequest
) -> None:
    def opened() -> Store:
        if kind == "sqlite":
            return SqliteStore(tmp_path / "s.db")
        return PostgresStore(request.getfixturevalue("postgres"), schema=schema, lock_wait_s=0.1)

    first = opened()
    with pytest.raises(UsageError, match="another replica has"):
        opened()
    first.close()
    opened().close()


def test_a_lost_postgres_connection_is_an_error_once_and_then_a_new_connection(postgres: str, schema: str) -> None:
    store = PostgresStore(postgres, schema=schema)
    txn = store.begin()
    txn.put("a", b"1")
    txn.commit()
    with psycopg.connect(postgres, autocommit=True) as other:
        assert store._connection is not None
        other.execute("SELECT pg_terminate_backend(%s)", (store._connection.info.backend_pid,))
    txn = store.begin()
    with pytest.raises(StoreError):
        txn.get("a")
    txn.abort()
    txn = store.begin()
    assert txn.get("a") == b"1"
    txn.abort()
    store.close()


def test_a_locked_sqlite_file_is_an_error_that_can_be_retried(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    store._connection.execute("PRAGMA busy_timeout = 0")
    other = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        store.begin()
    other.execute("ROLLBACK")
    other.close()
    store.begin().abort()
    store.close()


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ("", "store: is empty"),
        ("/proc/nowhere/x.db", "cannot be written"),
        ("postgresql://127.0.0.1:1/none", "cannot connect to PostgreSQL"),
    ],
)
def test_a_store_that_cannot_be_opened_says_so_in_one_line(where: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as caught:
        open_store(where)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_database_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"this is not a database at all" * 100)
    with pytest.raises(UsageError, match=r"x\.db: cannot be opened"):
        open_store(str(tmp_path / "x.db"))
