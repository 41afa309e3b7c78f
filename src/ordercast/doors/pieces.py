"""Bytes that come in pieces, put together once there are enough: many small pieces cost no more than a large one."""

from __future__ import annotations


class Pieces:
    """Received bytes that were not taken yet."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._length = 0
        self._needed = 0

    def add(self, data: bytes) -> bytes | None:
        """All that is here; None: less than what was said to be needed."""
        self._pieces.append(data)
        self._length += len(data)
        if self._length < self._needed:
            return None
        return data if len(self._pieces) == 1 else b"".join(self._pieces)

    def keep(self, rest: bytes, needed: int = 0) -> None:
        """This much was not taken; with fewer than `needed` bytes in all nothing more can be."""
        self._pieces = [rest] if rest else []
        self._length = len(rest)
        self._needed = needed
