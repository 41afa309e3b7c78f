"""The embedded store: one SQLite file in WAL mode. A commit is on the disk when it returns."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

from ordercast.core.errors import UsageError
from ordercast.services.stores.port import StoreError

_TABLE = "CREATE TABLE IF NOT EXISTS state (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
_PUT = "INSERT INTO state (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
_DELETE = "DELETE FROM state WHERE key = ?"


class SqliteStore:
    """Others may read the file meanwhile; only one replica may have it open (a lock on `<file>.lock` sees to it)."""

    waits = True

    def __init__(self, path: Path, *, synchronous: str = "FULL") -> None:
        if synchronous not in ("FULL", "NORMAL", "OFF"):
            raise UsageError(f"synchronous {synchronous!r}: must be FULL, NORMAL or OFF")
        self.path = path
        self._lock = _locked(path)
        try:
            # A transaction is begun and ended by hand, and by one thread at a time, though not always the same one.
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute(f"PRAGMA synchronous = {synchronous}")
            self._connection.execute(_TABLE)
        except sqlite3.Error as error:
            os.close(self._lock)
            raise UsageError(f"store {path}: cannot be opened: {error}") from None

    def begin(self) -> SqliteTxn:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}") from error
        return SqliteTxn(self._connection, self.path)

    def close(self) -> None:
        self._connection.close()
        os.close(self._lock)


class SqliteTxn:
    """One transaction of the file."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def get(self, key: str) -> bytes | None:
        row = self._run("SELECT value FROM state WHERE key = ?", (key.encode(),)).fetchone()
        return None if row is None else bytes(row[0])

    def put(self, key: str, value: bytes) -> None:
        self._run(_PUT, (key.encode(), value))

    def delete(self, key: str) -> None:
        self._run(_DELETE, (key.encode(),))

    def write(self, changes: Mapping[str, bytes | None]) -> None:
        try:
            kept = [(key.encode(), value) for key, value in changes.items() if value is not None]
            self._connection.executemany(_PUT, kept)
            self._connection.executemany(_DELETE, [(key.encode(),) for key, value in changes.items() if value is None])
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: {error}") from error

    def scan(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        low = prefix.encode()
        rows = self._run("SELECT key, value FROM state WHERE key >= ? AND key < ? ORDER BY key", (low, low + b"\xff"))
        for key, value in rows:
            yield bytes(key).decode(), bytes(value)

    def commit(self) -> None:
        self._run("COMMIT")

    def abort(self) -> None:
        if self._connection.in_transaction:
            self._run("ROLLBACK")

    def _run(self, statement: str, values: tuple[bytes, ...] = ()) -> sqlite3.Cursor:
        try:
            return self._connection.execute(statement, values)
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: {error}") from error


def _locked(path: Path) -> int:
    """Held until closed; the system lets go of it when the process dies, however it dies."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(f"store {path}: cannot be written: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise UsageError(f"store {path}: another replica has it open") from None
    return lock
