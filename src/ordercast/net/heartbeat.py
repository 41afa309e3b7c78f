"""The beat at which a process is heard, and sees who was not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ordercast.net.wire.settings import WireSettings, ns, seconds


class Heartbeat:
    """Calls `beat` every `heartbeat_ms`, with the time and for how long this process stood still before, if it did.

    A process that stood still heard nobody, which says nothing about the others.
    """

    def __init__(self, settings: WireSettings, beat: Callable[[int, int], bool]) -> None:
        """`beat` says whether there is to be another one."""
        self._period_ms = settings.heartbeat_ms
        self._beat = beat
        self._due_ns = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._due_ns = time.monotonic_ns() + ns(self._period_ms)
        self._timer = asyncio.get_running_loop().call_later(seconds(self._period_ms), self._due)

    def _due(self) -> None:
        now = time.monotonic_ns()
        overslept = now - self._due_ns
        if self._beat(now, overslept if overslept > ns(self._period_ms) else 0):
            self.start()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
