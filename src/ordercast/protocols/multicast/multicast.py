"""Common parts of the atomic multicast protocols: checked destinations, clients that ask, servers that answer.

A client sends its message to the entry servers of the protocol and is done when it has the answers it waits for; a
server that publishes is a client of its own. Spec: docs/protocols/multicast.md (AMC-M1 to AMC-M4).
"""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar

import msgspec

from ordercast.core.errors import PeerError, UsageError, unknown_name
from ordercast.core.ids import NodeId, Origin
from ordercast.core.machine import Machine, Outbox, Place
from ordercast.core.messages import Message, Packet
from ordercast.protocols.shared.fixed_group import refuse_newcomer

Ranks = tuple[int, ...]
"""Servers as their places in the order that all agree on, ascending."""

ANY_ORDER_LINKS = "a reliable link between every two servers, and between a client and every server; FIFO is not needed"
FIFO_LINKS = "a reliable FIFO link between every two servers, and between a client and every server"
NO_FAULTS = "none: no crash and no loss (pauses and slow nodes only delay); replicate each server to survive crashes"


class Ask(Packet, frozen=True, tag=1):
    """The client's copy of a message."""

    carries: ClassVar[str | None] = "message"

    message: Message


class Done(Packet, frozen=True, tag=2):
    """Answers the receiver: its message of this number was delivered at the sender."""

    number: int


class CheckedOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of every atomic multicast."""

    check_invariants: bool = False
    """Whether the machines watch themselves; tests and explorers switch it on."""


class Multicast(Machine):
    """Client side of an atomic multicast, and the frame of its server side."""

    constant: ClassVar[tuple[str, ...]] = ("node", "known", "servers", "rank", "me", "checked")
    durable: ClassVar[tuple[str, ...]] = ("awaited",)

    name: ClassVar[str]
    everyone_answers: ClassVar[bool] = False
    """Whether a client waits for all destinations, or only for the highest."""

    def __init__(self, place: Place, options: CheckedOptions) -> None:
        refuse_newcomer(self.name, place)
        self.node = place.node
        self.known = frozenset(place.nodes)
        self.servers = place.servers
        self.rank = {server: i for i, server in enumerate(self.servers)}
        self.me = self.rank.get(place.node, -1)
        """Place in the order of servers; -1: a client."""
        self.checked = options.check_invariants
        self.awaited: dict[int, int] = {}
        """Answers still to come, by number of the own message."""
        strangers = [server for server in self.servers if server != self.node and server not in place.neighbours]
        if strangers:
            raise UsageError(
                f"{self.name} needs a link to every server at every node; {self.node} has none to {strangers[0]}"
            )

    # What a protocol adds

    def _entries(self, ranks: Ranks) -> Ranks:
        """The servers to which the client's copies go."""
        return ranks[:1]

    def _on_ask(self, message: Message, ranks: Ranks, out: Outbox) -> None:
        """A client's copy has reached this server."""
        raise NotImplementedError

    def _on_step(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        """A packet from another server that is neither a client's copy nor an answer."""
        raise NotImplementedError

    # Clients

    def on_publish(self, message: Message, out: Outbox) -> None:
        """AMC-M1, AMC-M2: refuse what has no sensible destinations before anything is sent; then ask the entries."""
        ranks = self._destinations(message)
        self.awaited[message.number] = len(ranks) if self.everyone_answers else 1
        for entry in self._entries(ranks):
            if entry == self.me:
                self._on_ask(message, ranks, out)
            else:
                out.send(self.servers[entry], Ask(message))

    def _destinations(self, message: Message) -> Ranks:
        if not message.dst:
            raise UsageError(f"{self.name}: message {message.id} names no destinations")
        for name in message.dst:
            if name not in self.rank:
                problem = unknown_name("destination", name, self.servers)
                raise UsageError(f"{self.name}: message {message.id}: {problem}")
        ranks = self._ranks(message)
        for lower, higher in pairwise(ranks):
            if lower == higher:
                raise UsageError(f"{self.name}: message {message.id} names {self.servers[lower]} twice")
        return ranks

    def _on_done(self, peer: NodeId, number: int, out: Outbox) -> None:
        """AMC-M4: the last answer completes the request."""
        left = self.awaited.get(number, 0) - 1
        if left < 0:
            raise PeerError(peer, f"answers message {number} of {self.node}, which waits for no answer")
        if left:
            self.awaited[number] = left
        else:
            del self.awaited[number]
            out.complete(f"{self.node}#{number}")

    # Servers

    def on_receive(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        if type(packet) is Ask:
            ranks = self._received_ranks(peer, packet.message)
            if self.me not in self._entries(ranks):
                raise PeerError(peer, f"asks {self.node} to enter message {packet.message.id}, which enters elsewhere")
            self._on_ask(packet.message, ranks, out)
        elif type(packet) is Done:
            self._on_done(peer, packet.number, out)
        elif self.me < 0:
            raise PeerError(peer, f"sent a {type(packet).__name__} to {self.node}, which is a client")
        else:
            self._on_step(peer, packet, out)

    def _answer(self, message: Message, out: Outbox) -> None:
        """AMC-M3: tell the publisher that its message was delivered here."""
        publisher = message.publisher
        if publisher == self.node:
            self._on_done(publisher, message.number, out)
        else:
            out.send(publisher, Done(message.number))

    def _ranks(self, message: Message) -> Ranks:
        rank = self.rank
        return tuple(sorted([rank[name] for name in message.dst]))

    def _received_ranks(self, peer: NodeId, message: Message) -> Ranks:
        """The destinations in a packet; nonsense is blamed on the peer."""
        rank = self.rank
        ranks = tuple(sorted([rank.get(name, -1) for name in message.dst]))
        if not ranks or ranks[0] < 0 or len(set(ranks)) < len(ranks):
            raise PeerError(peer, f"sent message {message.id} with destinations that no client can have named")
        if message.publisher not in self.known:
            raise PeerError(peer, f"sent message {message.id} of a publisher that nobody knows")
        return ranks

    def _not_ours(self, peer: NodeId, packet: Packet) -> PeerError:
        return PeerError(peer, f"sent a {type(packet).__name__}, which is not part of this protocol")


Key = tuple[Origin, int]
"""What identifies a message where its content is not at hand."""


def key_of(message: Message) -> Key:
    return (message.origin, message.number)
