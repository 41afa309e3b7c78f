"""Casts over connections, for networks that carry no datagrams: the same packets, in the same frames.

A process that casts to an address dials it in the role of one who only casts. Such a connection goes one way, is never
shown to a machine, and is given up like a datagram: what does not get through is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ordercast.net.wire.connection import WireConnection

_MOST_LINKS = 128
"""Connections that one process keeps for its casts; for one more, the one that was used longest ago goes."""
_MOST_WAITING_BYTES = 1 << 20
"""A receiver for whom so much waits is too slow: what more is cast to it is lost."""


class CastLinks:
    """The connections on which one process casts."""

    def __init__(
        self, dial: Callable[[str], WireConnection], has_frames: Callable[[WireConnection], None],
        counters: Counter[str],
    ) -> None:  # fmt: skip
        self._dial = dial
        self._has_frames = has_frames
        self._counters = counters
        self._links: dict[str, WireConnection] = {}

    def cast(self, address: str, frame: bytes) -> None:
        """Put the frame on a connection to the address; it leaves when the turn ends, or when the connection is up."""
        link = self._links.pop(address, None) or self._dial(address)
        self._links[address] = link
        if len(self._links) > _MOST_LINKS:
            self._retire(next(iter(self._links)))
        if link.queued_bytes > _MOST_WAITING_BYTES:
            self._counters["casts_lost_full"] += 1
            return
        link.out.append(frame)
        self._counters["casts_sent"] += 1
        self._has_frames(link)

    def flush(self) -> None:
        """Connections are flushed with all others."""

    def close(self) -> None:
        self._links.clear()

    def ended(self, link: WireConnection) -> None:
        """The connection is over; the next cast dials again."""
        if self._links.get(link.address) is link:
            del self._links[link.address]

    def _retire(self, address: str) -> None:
        link = self._links.pop(address)
        link.say_goodbye("not used any more")
        self._has_frames(link)
