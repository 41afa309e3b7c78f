"""Large bodies may travel apart from the publications that name them; a delivery then waits for its body.

The source has a second plane for data beside the one for metadata. Here it is a seam: anything that can keep bytes
under their SHA-256 and hand them out where they are needed.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path
from typing import Protocol

from ordercast.core.errors import UsageError
from ordercast.services.wire import Elsewhere

_LOOK_AGAIN_S = (0.005, 0.5)
"""First and longest pause between two looks for a body that is not there yet."""


class PayloadStore(Protocol):
    """Bodies under their digest."""

    async def put(self, body: bytes) -> Elsewhere:
        """Keep the body; the answer is what the publication carries instead of it."""

    async def get(self, where: Elsewhere) -> bytes:
        """The body, as soon as it is here. Waits as long as it takes."""


class MemoryPayloads:
    """For one process."""

    def __init__(self) -> None:
        self._bodies: dict[bytes, bytes] = {}
        self._arrived = asyncio.Condition()

    async def put(self, body: bytes) -> Elsewhere:
        where = _address(body)
        async with self._arrived:
            self._bodies[where.digest] = body
            self._arrived.notify_all()
        return where

    async def get(self, where: Elsewhere) -> bytes:
        async with self._arrived:
            await self._arrived.wait_for(lambda: where.digest in self._bodies)
            return self._bodies[where.digest]


class DirectoryPayloads:
    """Files in a directory that all replicas see, by whatever means it is shared or copied."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"payloads {directory}: cannot be written: {error.strerror}") from None

    async def put(self, body: bytes) -> Elsewhere:
        where = _address(body)
        await asyncio.to_thread(self._write, where, body)
        return where

    async def get(self, where: Elsewhere) -> bytes:
        pause, longest = _LOOK_AGAIN_S
        while True:
            body = await asyncio.to_thread(self._look, where)
            if body is not None:
                return body
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)

    def _write(self, where: Elsewhere, body: bytes) -> None:
        """Under a temporary name first: whoever finds the file finds all of it."""
        path = self._path(where)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        with temporary.open("wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)

    def _look(self, where: Elsewhere) -> bytes | None:
        """A file that is not what it should be is one that has not arrived yet."""
        try:
            body = self._path(where).read_bytes()
        except FileNotFoundError:
            return None
        return body if _address(body) == where else None

    def _path(self, where: Elsewhere) -> Path:
        return self._directory / where.digest.hex()


def _address(body: bytes) -> Elsewhere:
    return Elsewhere(hashlib.sha256(body).digest(), len(body))
