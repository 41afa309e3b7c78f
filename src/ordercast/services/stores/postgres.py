"""The store of a replica as one table in a PostgreSQL schema."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import psycopg
from psycopg import sql

from ordercast.core.errors import UsageError
from ordercast.services.stores.port import StoreError

_CONNECT_S = 10
_LOOK_AGAIN_S = 0.05
_LOCK_CLASS = 0x0C
"""Of the advisory locks that say which schema has a replica."""


class PostgresStore:
    """Reconnects by itself; a session-wide advisory lock keeps a second replica out of the schema."""

    waits = True

    def __init__(self, dsn: str, *, schema: str = "ordercast", lock_wait_s: float = 3.0) -> None:
        """`lock_wait_s`: how long to wait for the server to notice that an earlier life of this replica is dead."""
        self._dsn = dsn
        self.schema = schema
        table = sql.Identifier(schema, "state")
        self.statements = _Statements(table)
        try:
            self._connection: psycopg.Connection | None = self._first_connection(lock_wait_s)
        except psycopg.Error as error:
            raise UsageError(f"store {schema!r}: cannot connect to PostgreSQL: {_line(error)}") from None
        except StoreError as error:
            raise UsageError(f"store {schema!r}: {error}") from None

    def begin(self) -> PostgresTxn:
        """A transaction, if need be on a new connection: the old one may have died with the server."""
        try:
            if self._connection is None or self._connection.closed:
                self._connection = self._connect()
        except psycopg.Error as error:
            raise StoreError(_line(error)) from error
        return PostgresTxn(self._connection, self.statements)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _first_connection(self, lock_wait_s: float) -> psycopg.Connection:
        deadline = time.monotonic() + lock_wait_s
        while True:
            try:
                return self._connect()
            except StoreError:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(_LOOK_AGAIN_S)

    def _connect(self) -> psycopg.Connection:
        connection = psycopg.connect(self._dsn, connect_timeout=_CONNECT_S)
        try:
            self._claim(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _claim(self, connection: psycopg.Connection) -> None:
        """The lock lasts as long as the connection; the table is made on first use."""
        lock = connection.execute("SELECT pg_try_advisory_lock(%s, hashtext(%s))", (_LOCK_CLASS, self.schema))
        if lock.fetchone() != (True,):
            raise StoreError("another replica has the schema open")
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(self.schema)))
        connection.execute(self.statements.create)
        connection.commit()


class _Statements:
    def __init__(self, table: sql.Identifier) -> None:
        self.create = sql.SQL("CREATE TABLE IF NOT EXISTS {} (key bytea PRIMARY KEY, value bytea NOT NULL)").format(
            table
        )
        self.get = sql.SQL("SELECT value FROM {} WHERE key = %s").format(table)
        self.put = sql.SQL(
            "INSERT INTO {} AS kept (key, value) VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        ).format(table)
        # One statement and one round trip for any number of keys.
        self.put_many = sql.SQL(
            "INSERT INTO {} AS kept (key, value) SELECT * FROM unnest(%s::bytea[], %s::bytea[]) "
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        ).format(table)
        self.delete_many = sql.SQL("DELETE FROM {} WHERE key = ANY(%s::bytea[])").format(table)
        self.scan = sql.SQL("SELECT key, value FROM {} WHERE key >= %s AND key < %s ORDER BY key").format(table)


class PostgresTxn:
    """One transaction; psycopg begins it with the first statement."""

    def __init__(self, connection: psycopg.Connection, statements: _Statements) -> None:
        self._connection = connection
        self._statements = statements

    def get(self, key: str) -> bytes | None:
        row = self._run(self._statements.get, key.encode()).fetchone()
        return None if row is None else bytes(row[0])

    def put(self, key: str, value: bytes) -> None:
        self._run(self._statements.put, key.encode(), value)

    def delete(self, key: str) -> None:
        self._run(self._statements.delete_many, [key.encode()])

    def write(self, changes: Mapping[str, bytes | None]) -> None:
        kept = {key.encode(): value for key, value in changes.items() if value is not None}
        gone = [key.encode() for key, value in changes.items() if value is None]
        if kept:
            self._run(self._statements.put_many, list(kept), list(kept.values()))
        if gone:
            self._run(self._statements.delete_many, gone)

    def scan(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        low = prefix.encode()
        for key, value in self._run(self._statements.scan, low, low + b"\xff"):
            yield bytes(key).decode(), bytes(value)

    def commit(self) -> None:
        try:
            self._connection.commit()
        except psycopg.Error as error:
            raise StoreError(_line(error)) from error

    def abort(self) -> None:
        try:
            self._connection.rollback()
        except psycopg.Error:
            self._connection.close()  # The server ends what a dead connection had begun.

    def _run(self, statement: sql.Composed, *values: object) -> psycopg.Cursor[tuple[bytes, ...]]:
        try:
            return self._connection.execute(statement, values)
        except psycopg.Error as error:
            raise StoreError(_line(error)) from error


def _line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
