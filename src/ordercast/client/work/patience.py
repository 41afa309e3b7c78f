"""Clocks of the work that an application has and does nothing about (SHW-14): its member may give it up to others.

A clock runs for each unit that the application was handed, until it is done or to be tried again; and one for what
waits to be handed out, which begins anew whenever the application takes something.
"""

from __future__ import annotations

from ordercast.client.work.member import WorkInHand
from ordercast.core.state import State


class Patience(State):
    """The clocks of one member."""

    def __init__(self, most_ns: int) -> None:
        self.most_ns = most_ns
        """So long the application may take; 0: for ever."""
        self._handed: dict[WorkInHand, int] = {}
        """Since when the application has each unit, the oldest first."""
        self._waiting_since_ns = -(1 << 62)

    def handed(self, held: WorkInHand, now_ns: int) -> None:
        """The application takes this unit."""
        if self.most_ns:
            self._handed.pop(held, None)
            self._handed[held] = now_ns

    def given_back(self, held: WorkInHand) -> None:
        """It is done, or waits to be tried again."""
        self._handed.pop(held, None)

    def is_over(self, now_ns: int, *, waiting: bool, took_ns: int) -> bool:
        """Whether the application has had something for too long.

        `waiting`: there is work that it could take, and does not ask for; it last took some, maybe of another topic,
        at `took_ns`.
        """
        if not self.most_ns:
            return False
        if not waiting:
            self._waiting_since_ns = now_ns
        oldest = min(self._oldest(now_ns), max(self._waiting_since_ns, took_ns))
        return now_ns - oldest > self.most_ns

    def _oldest(self, now_ns: int) -> int:
        while self._handed and (held := next(iter(self._handed))).over:
            del self._handed[held]
        return next(iter(self._handed.values()), now_ns)
