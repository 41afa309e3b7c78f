"""Publishers that wait for their publication to be acknowledged as `edge`, `safe` or `delivered`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from ordercast.api.errors import PublishRefused
from ordercast.client.ports import EDGE, SAFE, STABLE
from ordercast.core.errors import unknown_name

DELIVERED = "delivered"
_REACHES = {EDGE: (EDGE,), SAFE: (EDGE, SAFE), STABLE: (EDGE, SAFE, DELIVERED)}
"""Who is content with a level that the broker tree reports."""
ACKS = (EDGE, SAFE, DELIVERED)
"""What a publisher may wait for: the edge broker has it; it survives the crashes it is promised to survive; every
subscriber's application has it."""

_Waiting = deque[tuple[int, "asyncio.Future[None]"]]


def check_ack(ack: str) -> None:
    if ack not in ACKS:
        raise unknown_name("ack", ack, ACKS)


class AckWaiting:
    """The waiting publishers of one topic. Numbers are asked for in ascending order."""

    def __init__(self, over: Exception | None = None) -> None:
        self._reached: dict[str, tuple[int, frozenset[int]]] = {ack: (0, frozenset()) for ack in ACKS}
        self._for_one: dict[str, _Waiting] = {ack: deque() for ack in ACKS}
        self._for_all: dict[str, _Waiting] = {ack: deque() for ack in ACKS}
        self._refused: set[int] = set()
        self._over = over
        """Why nothing will be acknowledged any more."""

    def wait(self, ack: str, number: int) -> asyncio.Future[None] | None:
        """Done when this publication has come that far; None if it has already."""
        low, extras = self._reached[ack]
        if number <= low or number in extras:
            return None
        return self._enter(self._for_one[ack], number)

    def wait_for_all(self, ack: str, number: int) -> asyncio.Future[None] | None:
        """Done when all publications up to the number have come that far, or were refused."""
        if number <= self._prefix(ack):
            return None
        return self._enter(self._for_all[ack], number)

    def _enter(self, waiting: _Waiting, number: int) -> asyncio.Future[None]:
        if self._over is not None:  # Whoever comes late is told too.
            raise self._over
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append((number, future))
        return future

    def _prefix(self, ack: str) -> int:
        low, extras = self._reached[ack]
        while low + 1 in extras or low + 1 in self._refused:
            low += 1
        return low

    def reached(self, level: str, low: int, extras: tuple[int, ...]) -> None:
        for ack in _REACHES[level]:
            if low >= self._reached[ack][0]:
                self._reached[ack] = low, frozenset(extras)
                self._release(ack)

    def _release(self, ack: str) -> None:
        low, extras = self._reached[ack]
        waiting = self._for_one[ack]
        while waiting and waiting[0][0] <= low:
            _finish(waiting.popleft()[1])
        if extras:
            for number, future in waiting:
                if number in extras:
                    _finish(future)
        waiting = self._for_all[ack]
        if waiting:
            prefix = self._prefix(ack)
            while waiting and waiting[0][0] <= prefix:
                _finish(waiting.popleft()[1])

    def refused(self, number: int, error: PublishRefused) -> bool:
        """End the wait for a refused publication; whether anybody waited for it."""
        self._refused.add(number)
        told = False
        for waiting in self._for_one.values():
            for asked, future in waiting:
                if asked == number and not future.done():
                    future.set_exception(error)
                    told = True
        for ack in ACKS:
            self._release(ack)
        return told

    def fail(self, error: Exception) -> None:
        """Nobody waits in vain, from now on either."""
        self._over = error
        for waiting in (*self._for_one.values(), *self._for_all.values()):
            for _, future in waiting:
                if not future.done():
                    future.set_exception(error)
                    future.exception()  # Whoever stopped waiting must not be warned of it.
            waiting.clear()


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def within(wait: Awaitable[object], timeout: float | None, unless: str | Callable[[], str]) -> None:
    """Wait for so many seconds; then a TimeoutError says what has not happened."""
    try:
        async with asyncio.timeout(timeout):
            await wait
    except TimeoutError:
        what = unless if isinstance(unless, str) else unless()
        raise TimeoutError(f"{what} within {timeout:g} s") from None
