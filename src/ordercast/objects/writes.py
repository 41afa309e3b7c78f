"""Updates that wait until this process may make them: what they say is worked out in that moment, not before."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from ordercast.core.errors import UsageError
from ordercast.objects.contributions import Contributions
from ordercast.objects.shared import Change

Made = asyncio.Future[Any]


class _Write(NamedTuple):
    change: Change
    made: Made


class Writes:
    """Those of one cluster, made in the order in which they were asked for."""

    def __init__(self, state: Contributions) -> None:
        self._state = state
        self._waiting: deque[_Write] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, change: Change, made: Made) -> None:
        self._waiting.append(_Write(change, made))

    def make_one(self, entry: int, publish: Callable[[bytes, Made], None]) -> None:
        """The first one, under this entry; whoever has stopped waiting for it does not want it made."""
        write = self._waiting.popleft()
        if write.made.done():
            return
        try:
            payload = write.change(self._state, entry)
        except UsageError as error:
            write.made.set_exception(error)
            return
        if payload is None:
            write.made.set_result(None)
        else:
            publish(payload, write.made)

    def refuse_all(self, error: Exception) -> None:
        """None of them will be made."""
        while self._waiting:
            made = self._waiting.popleft().made
            if not made.done():
                made.set_exception(error)
                made.exception()  # Nobody has to ask for it.
