"""The application's end of an atomic multicast over TCP: ask, be told when it is done, and hear what is delivered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from ordercast.core.errors import UsageError, unknown_name
from ordercast.core.ids import NodeId
from ordercast.core.messages import Guarantee, Message
from ordercast.net.nodes.node import NodeHost

IN_FLIGHT = 256
"""So many requests of one client may be on their way before the next one waits."""


class MulticastClient:
    """One application on a node. Requests run side by side and in no particular order unless it waits for them."""

    def __init__(self, host: NodeHost, *, in_flight: int = IN_FLIGHT) -> None:
        if host.protocol.guarantee is not Guarantee.ATOMIC:
            raise UsageError(f"protocol {host.protocol.name!r} is no atomic multicast")
        if in_flight < 1:
            raise UsageError(f"in_flight: {in_flight} is not at least 1")
        self.host = host
        self._slots = asyncio.Semaphore(in_flight)

    @property
    def servers(self) -> tuple[NodeId, ...]:
        """Possible destinations, in the order that all nodes agree on."""
        return self.host.place.servers

    async def multicast(self, payload: bytes, to: Iterable[str], *, topic: str = "") -> Message:
        """Send `payload` to the servers named in `to`; returns once it is delivered where the protocol says so.

        Raises:
            UsageError: the destinations or the payload make no sense; nothing was sent.
            ConnectionError: this node was stopped before the answer came.
        """
        dst = self.check(payload, to)
        async with self._slots:
            return await self.host.publish(topic, payload, guarantee=Guarantee.ATOMIC, dst=dst)

    def check(self, payload: bytes, to: Iterable[str]) -> tuple[NodeId, ...]:
        """The destinations in the order of servers, or one error that says what is wrong."""
        if not isinstance(payload, bytes):
            raise UsageError(f"payload: bytes are needed, not {type(payload).__name__}")
        limit = self.host.settings.max_payload_bytes
        if len(payload) > limit:
            raise UsageError(f"payload: {len(payload)} bytes are over the limit of {limit}")
        if isinstance(to, str):
            raise UsageError(f"to: a list of servers is needed, not {to!r}")
        names = list(to)
        if not names:
            raise UsageError("to: no destination is named")
        for i, name in enumerate(names):
            if name not in self.servers:
                raise UsageError(f"to: {unknown_name('server', name, self.servers)}")
            if name in names[:i]:
                raise UsageError(f"to: {name!r} is named twice")
        return tuple(server for server in self.servers if server in names)

    def on_delivery(self, callback: Callable[[Message], None]) -> None:
        """Call back with every message that this node delivers, in the order of delivery.

        What a callback asks for is sent after the event that led to it, so callbacks may use the host at will.
        """
        self.host.delivery_watchers.append(lambda _host, message: callback(message))
