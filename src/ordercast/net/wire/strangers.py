"""Connections that have not introduced themselves: how many there may be, and how loudly each address is complained of.

Somebody who opens connections and says nothing must not keep others from introducing themselves. So a newcomer is
always let in, and one that is there goes: a silent one of the newcomer's own address if that has too many, otherwise
one of the address that has the most.
"""

from __future__ import annotations

from typing import Protocol

from ordercast.net.wire.credentials import is_loopback
from ordercast.net.wire.ends import ConnectionEnd
from ordercast.net.wire.settings import WireSettings, ns

_PAUSE_MS = 5000.0
"""An address is complained of so often; complaints in between are counted."""
_MOST_ADDRESSES = 10_000


class Newcomer(Protocol):
    """An accepted connection of which nothing is known yet. It is the same as itself only."""

    @property
    def host(self) -> str:
        """The address that a stranger comes from."""

    @property
    def has_spoken(self) -> bool:
        """Whether it has said anything."""

    @property
    def lingers(self) -> bool:
        """Whether it was refused already and is only there to read why."""

    def refuse(self, end: ConnectionEnd) -> None:
        """Close it, and tell it why."""

    def abort(self, end: ConnectionEnd) -> None:
        """End it at once."""


class Strangers:
    """Accepted connections in their handshake, by the address that they come from, the oldest first.

    One that was refused is still one of them until its socket is closed: sockets are what there are few of.
    """

    def __init__(self, settings: WireSettings) -> None:
        self._settings = settings
        self._of: dict[str, dict[Newcomer, None]] = {}
        self._count = 0
        self._complained: dict[str, tuple[int, int]] = {}
        """When each address was complained of last, and how often it was not since."""

    def came(self, newcomer: Newcomer) -> None:
        host = newcomer.host
        mine = self._of.setdefault(host, {})
        mine[newcomer] = None
        self._count += 1
        if len(mine) > self._most_of(host):
            self._turn_away(host, self._most_of(host), "strangers_per_address")
        elif self._count > self._settings.strangers:
            crowd = max(self._of, key=lambda other: len(self._of[other]))
            self._turn_away(crowd, len(self._of[crowd]) - 1, "strangers")

    def _most_of(self, host: str) -> int:
        """Everything on this machine shares one address: it may have half of all places."""
        settings = self._settings
        return max(1, settings.strangers // 2) if is_loopback(host) else settings.strangers_per_address

    def _turn_away(self, host: str, most: int, limit: str) -> None:
        """One that was refused before goes for good; if that is not enough, the oldest silent one is refused."""
        there = self._of[host]
        end = ConnectionEnd("strangers", f"too many connections that do not introduce themselves ({limit})")
        refused = next((one for one in there if one.lingers), None)
        if refused is not None:
            self.went(refused)
            refused.abort(end)
        if len(there) > most:
            next((one for one in there if not one.has_spoken), next(iter(there))).refuse(end)

    def went(self, connection: Newcomer) -> None:
        """It has introduced itself, or is over."""
        there = self._of.get(connection.host, {})
        if connection in there:
            del there[connection]
            self._count -= 1
            if not there:
                del self._of[connection.host]

    def complaints(self, host: str, now_ns: int) -> int:
        """How many complaints about the address are to be written in one line now; 0: none, it was complained of."""
        last_ns, more = self._complained.get(host, (0, 0))
        if last_ns and now_ns - last_ns < ns(_PAUSE_MS):
            self._complained[host] = last_ns, more + 1
            return 0
        if len(self._complained) >= _MOST_ADDRESSES:
            self._complained.clear()
        self._complained[host] = now_ns, 0
        return more + 1
