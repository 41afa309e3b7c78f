"""Adds a delay to a connection, for tests and studies on one machine; keeps the order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any


class LinkDelay:
    """Delays actions by a constant, in order. What is pending when a process is killed is lost with it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, delay_s: float) -> None:
        self._loop = loop
        self._delay_s = delay_s
        self._waiting: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()

    def do(self, action: Callable[..., object], *arguments: Any) -> None:
        self._waiting.append((action, arguments))
        self._loop.call_later(self._delay_s, self._next)

    def _next(self) -> None:
        """Timers that are due at the same instant may fire in any order; what they do is in the order it was asked."""
        action, arguments = self._waiting.popleft()
        action(*arguments)
