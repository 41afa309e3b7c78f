"""Opens a store by the name that users write: memory, a SQLite file or a PostgreSQL address."""

from __future__ import annotations

from pathlib import Path

from ordercast.core.errors import UsageError
from ordercast.services.stores.port import Store


def open_store(where: str) -> Store:
    """`memory`, a DSN that begins with `postgresql://` or `postgres:`, or the path of a SQLite file.

    After `postgres:` comes anything that libpq takes, such as `postgres:host=/run/pg dbname=bank`. The schema is the
    part behind `#`, if there is one: `postgresql://localhost/bank#replica1`.
    """
    if not where:
        raise UsageError("store: is empty; give memory, the path of a SQLite file or a postgresql:// DSN")
    if where == "memory":
        from ordercast.services.stores.memory import MemoryStore

        return MemoryStore()
    if where.startswith(("postgresql://", "postgres:")):
        from ordercast.services.stores.postgres import PostgresStore

        dsn, _, schema = where.partition("#")
        return PostgresStore(dsn.removeprefix("postgres:"), schema=schema or "ordercast")
    from ordercast.services.stores.sqlite import SqliteStore

    return SqliteStore(Path(where.removeprefix("sqlite:")))
