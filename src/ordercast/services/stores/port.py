"""The store as replicas see it: transactions over a sorted map of strings to bytes. One writer at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol


class StoreError(Exception):
    """The store did not do what it was asked to; nothing of the transaction counts, and it may be tried again."""


class Txn(Protocol):
    """One transaction. After `commit` or `abort` it is over."""

    def get(self, key: str) -> bytes | None: ...

    def put(self, key: str, value: bytes) -> None: ...

    def delete(self, key: str) -> None: ...

    def write(self, changes: Mapping[str, bytes | None]) -> None:
        """Many puts at once; None deletes."""

    def scan(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Everything whose key begins with the prefix, sorted by key."""

    def commit(self) -> None:
        """Durable from here on. After a StoreError it is not known whether it happened."""

    def abort(self) -> None: ...


class Store(Protocol):
    """Opened by one replica at a time."""

    waits: bool
    """Whether calls wait for a disk or another process, so that an event loop should not make them itself."""

    def begin(self) -> Txn: ...

    def close(self) -> None: ...
