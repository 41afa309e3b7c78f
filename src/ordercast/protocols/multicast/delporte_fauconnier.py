"""Delporte-Gallet and Fauconnier's atomic multicast: a message climbs through its destinations, which wait for its end.

Genuine, and also keeps real-time order. Spec: docs/protocols/delporte-fauconnier.md (AMC-D1 to AMC-D5).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import ClassVar, Literal, Self

from ordercast.core.errors import InvariantError, PeerError
from ordercast.core.ids import NodeId, Origin
from ordercast.core.machine import Outbox, Place
from ordercast.core.messages import Guarantee, Message, Packet
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols.multicast.multicast import (
    ANY_ORDER_LINKS,
    NO_FAULTS,
    Ask,
    CheckedOptions,
    Done,
    Multicast,
    Ranks,
    key_of,
)


class Climb(Packet, frozen=True, tag=3):
    """A message on its way from one destination to the next higher one."""

    carries: ClassVar[str | None] = "message"

    message: Message


class End(Packet, frozen=True, tag=4):
    """The highest destination has delivered the message: the others may go on."""

    origin: Origin
    number: int


class DelporteFauconnierOptions(CheckedOptions, frozen=True, forbid_unknown_fields=True):
    """Options that say when a destination below the highest delivers."""

    delivery: Literal["handle", "end"] = "handle"
    """As soon as it handles the message, or when it learns of the end."""


class DelporteFauconnier(Multicast):
    """One server or client."""

    constant: ClassVar[tuple[str, ...]] = (*Multicast.constant, "delivers_early")
    durable: ClassVar[tuple[str, ...]] = (*Multicast.durable, "queue", "current")

    name: ClassVar[str] = "delporte-fauconnier"

    def __init__(self, place: Place, options: DelporteFauconnierOptions) -> None:
        super().__init__(place, options)
        self.delivers_early = options.delivery == "handle"
        self.queue: deque[Message] = deque()
        self.current: Message | None = None
        """The message whose end this node waits for."""

    def _on_ask(self, message: Message, _ranks: Ranks, out: Outbox) -> None:
        """AMC-D1: a client's copy at the lowest destination."""
        self._enqueue(message, out)

    def _on_step(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        match packet:
            case Climb(message):
                self._check_climb(peer, message)
                self._enqueue(message, out)
            case End(origin, number):
                self._on_end(peer, (origin, number), out)
            case _:
                raise self._not_ours(peer, packet)

    def _check_climb(self, peer: NodeId, message: Message) -> None:
        below = [rank for rank in self._received_ranks(peer, message) if rank < self.me]
        if self.node not in message.dst or not below or self.servers[below[-1]] != peer:
            raise PeerError(peer, f"passes on message {message.id}, which does not climb from it to {self.node}")

    def _enqueue(self, message: Message, out: Outbox) -> None:
        self.queue.append(message)
        self._pump(out)

    def _pump(self, out: Outbox) -> None:
        """AMC-D2: handle one message after the other, until one must end elsewhere first."""
        while self.current is None and self.queue:
            message = self.queue.popleft()
            ranks = self._ranks(message)
            if ranks[-1] == self.me:
                self._finish(message, ranks, out)
            else:
                self._pass_on(message, ranks, out)

    def _pass_on(self, message: Message, ranks: Ranks, out: Outbox) -> None:
        """AMC-D3: send the message up and wait for its end."""
        if self.delivers_early:
            out.deliver(message)
        out.send(self.servers[min(rank for rank in ranks if rank > self.me)], Climb(message))
        self.current = message

    def _finish(self, message: Message, ranks: Ranks, out: Outbox) -> None:
        """AMC-D4: the highest destination never waits; it ends the message for all others and answers the client."""
        out.deliver(message)
        for rank in ranks[:-1]:
            out.send(self.servers[rank], End(message.origin, message.number))
        self._answer(message, out)

    def _on_end(self, peer: NodeId, key: tuple[Origin, int], out: Outbox) -> None:
        """AMC-D5: the message is delivered everywhere above, so the next one may be handled."""
        message = self.current
        if message is None or key_of(message) != key:
            raise PeerError(peer, f"ends message {key[0]}#{key[1]}, for which {self.node} does not wait")
        if self.checked and self.rank[peer] <= self.me:
            raise InvariantError(f"{self.node} waited for {peer}, which is not above it")
        if not self.delivers_early:
            out.deliver(message)
        self.current = None
        self._pump(out)

    def copy(self) -> Self:
        """By hand: messages are frozen, so two shallow copies do."""
        clone = object.__new__(type(self))
        clone.__dict__.update(self.__dict__)
        clone.awaited = self.awaited.copy()
        clone.queue = self.queue.copy()
        return clone

    def frozen(self) -> Hashable:
        return (self.current, tuple(self.queue), frozenset(self.awaited.items()))


DELPORTE_FAUCONNIER = ProtocolInfo(
    name="delporte-fauconnier",
    summary="atomic multicast: a message climbs through its destinations, each of which waits until it has ended",
    source=(
        "Delporte-Gallet and Fauconnier, Fault-Tolerant Genuine Atomic Multicast to Multiple Groups, OPODIS 2000, "
        "pp. 107-122, each group reduced to one node"
    ),
    guarantee=Guarantee.ATOMIC,
    overlay=ANY_ORDER_LINKS,
    faults=NO_FAULTS,
    metadata="15 + o + d",
    genuine=True,
    build=DelporteFauconnier,
    packets=(Ask, Done, Climb, End),
    options=DelporteFauconnierOptions,
)
