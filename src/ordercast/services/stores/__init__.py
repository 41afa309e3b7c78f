"""Stores for a replica's state: in memory, in a SQLite file, in a PostgreSQL schema."""

from ordercast.services.stores.opening import open_store
from ordercast.services.stores.port import Store, StoreError, Txn

__all__ = ["Store", "StoreError", "Txn", "open_store"]
