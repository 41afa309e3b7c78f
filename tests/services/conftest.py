"""Stores to test with; the PostgreSQL server is started once, and only if a test needs it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from ordercast.services.stores import Store
from ordercast.services.stores.memory import MemoryStore
from ordercast.services.stores.postgres import PostgresStore
from ordercast.services.stores.sqlite import SqliteStore
from tests.support.postgres import NoServer, server

_schemas = itertools.count(1)
Opener = Callable[[], Store]


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    try:
        with server() as dsn:
            yield dsn
    except NoServer as reason:
        pytest.skip(str(reason))


@pytest.fixture
def schema(request: pytest.FixtureRequest) -> Iterator[str]:
    """A name that nobody has; the schema is dropped afterwards."""
    name = f"ordercast_test_{os.getpid()}_{next(_schemas)}"
    yield name
    if "postgres" in request.fixturenames:
        with psycopg.connect(request.getfixturevalue("postgres"), autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def opener(request: pytest.FixtureRequest, tmp_path: Path, schema: str) -> Opener:
    """Opens the same store again and again."""
    if request.param == "memory":
        kept = MemoryStore()
        return lambda: kept
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path / "store.db")
    dsn = request.getfixturevalue("postgres")
    return lambda: PostgresStore(dsn, schema=schema)
