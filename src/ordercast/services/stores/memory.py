"""A store that lives as long as the process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ordercast.core.errors import InvariantError


class MemoryStore:
    """A dictionary whose changes appear at commit."""

    waits = False

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}

    def begin(self) -> MemoryTxn:
        return MemoryTxn(self)

    def close(self) -> None:
        """Nothing to give back; what was kept stays as long as the object."""


class MemoryTxn:
    """Changes are collected and merged at commit."""

    def __init__(self, store: MemoryStore) -> None:
        self._store: MemoryStore | None = store
        self._changes: dict[str, bytes | None] = {}

    def get(self, key: str) -> bytes | None:
        if key in self._changes:
            return self._changes[key]
        return self._open().data.get(key)

    def put(self, key: str, value: bytes) -> None:
        self._open()
        self._changes[key] = value

    def delete(self, key: str) -> None:
        self._open()
        self._changes[key] = None

    def write(self, changes: Mapping[str, bytes | None]) -> None:
        self._open()
        self._changes.update(changes)

    def scan(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        keys = {key for key in (*self._open().data, *self._changes) if key.startswith(prefix)}
        for key in sorted(keys):
            value = self.get(key)
            if value is not None:
                yield key, value

    def commit(self) -> None:
        data = self._open().data
        for key, value in self._changes.items():
            if value is None:
                data.pop(key, None)
            else:
                data[key] = value
        self._store = None

    def abort(self) -> None:
        self._store = None

    def _open(self) -> MemoryStore:
        if self._store is None:
            raise InvariantError("the transaction is over")
        return self._store
