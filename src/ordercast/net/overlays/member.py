"""A node that chooses its neighbours, as a run of real processes sees it: it listens, begins, publishes, leaves."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from typing import Any

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId, Topic
from ordercast.core.messages import Guarantee, Message
from ordercast.core.process import BuildOverlay
from ordercast.core.registry import ProtocolInfo
from ordercast.net.confirmations import Completed
from ordercast.net.datagrams import doors
from ordercast.net.host import Carrier
from ordercast.net.nodes.neighbours import Address
from ordercast.net.nodes.node import NodePlace
from ordercast.net.nodes.settings import NodeSettings
from ordercast.net.overlays.host import OverlayHost
from ordercast.net.turn_ports import address_of
from ordercast.net.wire.credentials import join_address, split_address
from ordercast.trace.journal import Journal


class OverlayMember:
    """Runs one overlay machine over TCP for a workload. One that is `late` begins when it is told to join."""

    def __init__(
        self, node: NodeId, protocol: ProtocolInfo, build: BuildOverlay, topics: Iterable[Topic], net: NodePlace,
        settings: NodeSettings, journal: Journal, *, late: bool, incarnation: int, salt: int,
        carrier: Carrier = "none",
    ) -> None:  # fmt: skip
        self.node = node
        self.protocol = protocol
        self.published = 0
        self.delivery_watchers: list[Callable[[Any, Message], None]] = []
        self.started = False
        self._build = build
        self._topics = tuple(topics)
        self._net = net
        self._settings = settings
        self._journal = journal
        self._late = late
        self._incarnation = incarnation
        self._salt = salt
        self._carrier: Carrier = carrier
        self._door: socket.socket | None = None
        self._contacts: tuple[str, ...] = ()
        self._stopping: asyncio.Task[None] | None = None
        self.host: OverlayHost | None = None

    async def listen(self) -> Address:
        """Open the door; others are answered once this node has begun."""
        self._door, datagrams = doors("127.0.0.1:0", with_datagrams=self._carrier == "udp")
        if datagrams is not None:
            datagrams.close()  # The port is free for them, too.
        return split_address(address_of(self._door))

    async def start(self, contacts: dict[NodeId, Address]) -> None:
        """Begin, or learn whom to join through when it is time."""
        self._contacts = tuple(join_address(*address) for address in contacts.values())
        if not self._late:
            await self._begin()

    async def _begin(self) -> None:
        genesis = not self._late and self._incarnation == 0 and self._net.life == 0
        self.host = host = OverlayHost(
            self.node, self._build, self._contacts, self.protocol.codec(), self.protocol.guarantee, self._settings,
            credentials=self._net.credentials(), life=self._incarnation, journal=self._journal, genesis=genesis,
            salt=self._salt, topics=self._topics, epoch_ns=self._net.epoch_ns,
            carrier=self._carrier,
        )  # fmt: skip
        host.delivery_watchers.append(self._delivered)
        host.on_failure = self._fail
        self.started = True
        await host.start(self._door)

    def _fail(self, error: BaseException) -> None:
        context = {"message": f"{self.node} cannot go on", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)

    def _delivered(self, message: Message) -> None:
        for watch in self.delivery_watchers:
            watch(self, message)

    # How it is

    @property
    def steps(self) -> int:
        """Grows with every publication and delivery: what is periodic does not keep it from its rest."""
        return self.published + (self.host.delivered if self.host is not None else 0)

    @property
    def met(self) -> int:
        """Open connections."""
        wires = self.host.connections.values() if self.host is not None else ()
        return sum(wire.peer is not None for wire in wires)

    @property
    def timers(self) -> int:
        """Armed timers that somebody waits for; not those of a node that has left."""
        return self.host.timers.armed if self.host is not None and self._stopping is None else 0

    @property
    def sent(self) -> int:
        return self.host.sent if self.host is not None else 0

    @property
    def received(self) -> int:
        return self.host.counters["packets_received"] if self.host is not None else 0

    # What a workload does with it

    async def wait_for_room(self) -> None:
        """There always is: a slow neighbour is closed, not waited for."""

    def submit(
        self, topic: str, payload: bytes, *, guarantee: Guarantee | None = None, keys: tuple[str, ...] = (),
        dst: tuple[NodeId, ...] = (), told: Callable[[Message], None] | None = None,
    ) -> Completed:  # fmt: skip
        if self.host is None:
            return _nobody(f"{self.node} has not joined yet")
        self.published += 1
        return self.host.publish(topic, payload, guarantee=guarantee, keys=keys, dst=dst, told=told)

    def subscribe(self, topic: str) -> None:
        raise UsageError(f"do: {self.node} cannot subscribe to {topic}: everybody on this overlay gets everything")

    def unsubscribe(self, topic: str) -> None:
        raise UsageError(f"do: {self.node} cannot unsubscribe from {topic}: everybody on this overlay gets everything")

    def join(self) -> None:
        self._late_start = asyncio.get_running_loop().create_task(self._begin())

    def leave(self) -> None:
        """The machine says goodbye, then the process's part in the run is over."""
        if self.host is not None and self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_task(self._leave(self.host))

    async def _leave(self, host: OverlayHost) -> None:
        host.leave()
        await host.departed.wait()
        await host.stop("leaves")

    async def close(self) -> None:
        if self._stopping is not None:
            await self._stopping
        if self.host is not None:
            await self.host.stop()
        else:
            self._journal.close()
        if self._door is not None:
            self._door.close()


def _nobody(reason: str) -> Completed:
    future: Completed = asyncio.get_running_loop().create_future()
    future.set_exception(ConnectionError(reason))
    future.exception()  # Nobody need look at it.
    return future
