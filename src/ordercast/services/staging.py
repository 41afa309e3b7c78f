"""Buffers writes to a store: one operation can be undone alone, and many share one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from ordercast.services.stores.port import Store, StoreError, Txn

Changes = dict[str, bytes | None]
_REMEMBERED = 100_000
"""Entries of the read cache. The replica is the only writer, so what it has read stays true."""


class Cells(Protocol):
    """The data of a service, as an operation may use it."""

    def get(self, key: str) -> bytes | None: ...

    def put(self, key: str, value: bytes) -> None: ...

    def delete(self, key: str) -> None: ...

    def scan(self, prefix: str = "") -> Iterator[tuple[str, bytes]]: ...


class StagedWrites:
    """Reads through to the store, keeps writes until `commit`. `undo` forgets those since the last `keep`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._txn: Txn | None = None
        self._cache: Changes = {}
        self.kept: Changes = {}
        self.unit: Changes = {}

    def get(self, key: str) -> bytes | None:
        for changes in (self.unit, self.kept, self._cache):
            if key in changes:
                return changes[key]
        value = self._reading().get(key)
        self._cache[key] = value
        return value

    def put(self, key: str, value: bytes | None) -> None:
        self.unit[key] = value

    def scan(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        changed = {k: v for changes in (self.kept, self.unit) for k, v in changes.items() if k.startswith(prefix)}
        found: Changes = dict(self._reading().scan(prefix))
        found.update(changed)
        for key in sorted(found):
            value = found[key]
            if value is not None:
                yield key, value

    def keep(self) -> None:
        """The unit has happened: its changes go into the next commit."""
        self.kept.update(self.unit)
        self.unit = {}

    def undo(self) -> None:
        """The unit has not happened."""
        self.unit = {}

    def commit(self) -> None:
        """Everything kept becomes durable, at once. After a StoreError nothing is forgotten: call it again.

        Changes are values, not differences, so it does no harm if the commit that failed had happened after all.
        """
        if self.unit:
            raise AssertionError("a unit was neither kept nor undone")
        if not self.kept:
            self.end()
            return
        try:
            txn = self._reading()
            txn.write(self.kept)
            txn.commit()
        except StoreError:
            self._drop()
            raise
        self._txn = None
        for key, value in self.kept.items():
            if value is None:
                self._cache.pop(key, None)  # Who deletes a row does not come back to it.
            else:
                self._cache[key] = value
        self.kept = {}
        if len(self._cache) > _REMEMBERED:
            self._cache.clear()

    def end(self) -> None:
        """Close the transaction that reads had opened, if it has nothing to write."""
        if self._txn is not None:
            self._drop()

    def _reading(self) -> Txn:
        if self._txn is None:
            self._txn = self._store.begin()
        return self._txn

    def _drop(self) -> None:
        txn, self._txn = self._txn, None
        if txn is not None:
            try:
                txn.abort()
            except StoreError:
                self._cache.clear()


class Prefixed:
    """The part of a stage that belongs to one service on one topic."""

    def __init__(self, stage: StagedWrites, prefix: str) -> None:
        self._stage = stage
        self._prefix = prefix

    def get(self, key: str) -> bytes | None:
        return self._stage.get(self._prefix + key)

    def put(self, key: str, value: bytes) -> None:
        self._stage.put(self._prefix + key, value)

    def delete(self, key: str) -> None:
        self._stage.put(self._prefix + key, None)

    def scan(self, prefix: str = "") -> Iterator[tuple[str, bytes]]:
        for key, value in self._stage.scan(self._prefix + prefix):
            yield key[len(self._prefix) :], value


Retry = Callable[[StoreError, int], None]
"""Called between two attempts to commit: wait, or raise to give up and stop the replica."""
