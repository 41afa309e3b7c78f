"""The watch over a broker's place in the tree: one that looks for it in vain for long says so, once."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from ordercast.pubsub.settings import BrokerSettings

LOG = logging.getLogger("ordercast.broker")
_REQUESTS = 5
"""So many requests in vain, beyond the time that a start may take, are no longer a repair."""
_LOOKS = 10
"""It looks so often in that time."""


class PlaceInTree(Protocol):
    """The place of a broker, as its part of the tree tells it."""

    @property
    def seeking(self) -> bool: ...
    @property
    def is_root(self) -> bool: ...
    @property
    def decides(self) -> bool: ...


class PlaceWatch:
    """A look now and then at whether a broker has a parent, or is a root that decides."""

    def __init__(self, node: str, tree: PlaceInTree, settings: BrokerSettings) -> None:
        self._node = node
        self._tree = tree
        self.patience_s = (settings.startup_grace_ms + settings.lease_ms + _REQUESTS * settings.request_ms) / 1000
        self._without = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self.patience_s / _LOOKS, self._again)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _again(self) -> None:
        self.look()
        self.start()

    def look(self) -> None:
        """Says one line once it has been without a place at so many looks in a row; anew only after it had one."""
        placeless = self._tree.seeking or (self._tree.is_root and not self._tree.decides)
        self._without = self._without + 1 if placeless else 0
        if self._without == _LOOKS:
            why = (
                f"no parent, and no root that may decide, for {self.patience_s:g} s: brokers are missing, or request_ms"
                " (more than four times the latency one way) or lease_ms (more than once) is too short for the links"
            )
            LOG.warning("looks for its place in vain", extra={"facts": {"node": self._node, "why": why}})
