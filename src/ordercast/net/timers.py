"""The timers of one machine on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable

_NS_PER_S = 1_000_000_000


class Timers:
    """Named timers of one machine; setting a name again replaces its timer."""

    def __init__(self, due: Callable[[Hashable], None]) -> None:
        self._due = due
        self._handles: dict[Hashable, asyncio.TimerHandle] = {}
        self._background: set[Hashable] = set()

    @property
    def armed(self) -> int:
        """Those that keep a node from being at rest."""
        return len(self._handles) - len(self._background)

    def set(self, name: Hashable, delay_ns: int, *, background: bool) -> None:
        self.cancel(name)
        self._handles[name] = asyncio.get_running_loop().call_later(delay_ns / _NS_PER_S, self._fire, name)
        if background:
            self._background.add(name)

    def cancel(self, name: Hashable) -> None:
        handle = self._handles.pop(name, None)
        if handle is not None:
            handle.cancel()
            self._background.discard(name)

    def names(self) -> list[Hashable]:
        """All that are set, in the order in which they were."""
        return list(self._handles)

    def stop(self) -> None:
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()
        self._background.clear()

    def _fire(self, name: Hashable) -> None:
        # Taken out of the table only by whoever runs or cancels it, so a timer that was set anew is not this one.
        self._handles.pop(name, None)
        self._background.discard(name)
        self._due(name)
