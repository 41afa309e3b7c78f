"""The daisy chain: a message climbs from its lowest to its highest destination, and nobody waits for its end.

Clocks that travel along keep the order; servers between two destinations are visited unless a rule allows to skip
them. Spec: docs/protocols/daisy-chain.md (DCC-H1 to DCC-H6, invariants DCC-A1 to DCC-A6, corrections DCC-C1 to DCC-C6).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar, Self

from ordercast.core.errors import InvariantError, PeerError
from ordercast.core.ids import NodeId
from ordercast.core.machine import Outbox, Place
from ordercast.core.messages import Message, Packet
from ordercast.protocols.daisy_chain.clocks import Clock, excess, first_edge, is_covered, merged, raised, row, zeros
from ordercast.protocols.daisy_chain.packets import Carried, CheckedHop, ClockChannels, Hop
from ordercast.protocols.daisy_chain.rules import NOWHERE, Rule
from ordercast.protocols.multicast.multicast import CheckedOptions, Multicast, Ranks


class ChainOptions(CheckedOptions, frozen=True, forbid_unknown_fields=True):
    """Settings of every daisy chain."""

    reduced: bool = True
    """Whether packets carry only the counters that changed since the last one on the same channel."""


class DaisyChain(Multicast):
    """One server or client; subclasses choose the rule."""

    constant: ClassVar[tuple[str, ...]] = (*Multicast.constant, "whole")
    durable: ClassVar[tuple[str, ...]] = (*Multicast.durable, "clock", "held", "rule", "channels")

    name: ClassVar[str] = "daisy-chain"
    keeps_all_heads: ClassVar[bool] = False
    """Whether counters of heads below a server are of any use to it."""
    visits_neighbours: ClassVar[bool] = True
    """Whether a message that is not skipping goes to the very next server."""

    def __init__(self, place: Place, options: ChainOptions) -> None:
        super().__init__(place, options)
        size, me = len(self.servers), max(self.me, 0)
        self.whole = not options.reduced
        self.channels = ClockChannels(me, size, reduced=options.reduced, keeps_all_heads=self.keeps_all_heads)
        self.clock = zeros(size)
        self.held: list[Carried] = []
        """Packets whose past is not delivered here yet, oldest first."""
        self.rule = self._rule(me, size, options)

    def _rule(self, me: int, size: int, options: Any) -> Rule:
        raise NotImplementedError

    # Handlers

    def _on_ask(self, message: Message, ranks: Ranks, out: Outbox) -> None:
        """DCC-H1: the lowest destination counts the message for all others and delivers it at once."""
        before = self.clock
        self.clock = raised(before, self.me, ranks[1:])
        index = tuple(self.clock[first_edge(rank) + self.me] for rank in ranks[1:]) if self.checked else ()
        self._deliver(Carried(message, ranks, self.clock, index), before, out)

    def _on_step(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        """DCC-H2: handle the packet if its past is here, then whatever waited for it."""
        carried = self._read(peer, packet)
        if self._is_enabled(carried):
            self._handle(carried, out)
        else:
            self.held.append(carried)
        self._drain(out)

    def _is_enabled(self, carried: Carried) -> bool:
        """DCC-H3: all that the packet's clock counts for this server is delivered, but for the message itself."""
        me, tail = self.me, carried.ranks[0]
        mine, due = row(self.clock, me), row(carried.clock, me)
        if me in carried.ranks:
            return due[tail] == mine[tail] + 1 and excess(due, mine) == 1
        return not excess(due, mine)  # Visits wait for messages of their own entry server too: DCC-C1.

    def _drain(self, out: Outbox) -> None:
        """DCC-H2: the oldest packet whose time has come, again and again; no younger one overtakes it (DCC-C3)."""
        while (ready := self._next_ready()) is not None:
            self._handle(self.held.pop(ready), out)
        if self.checked and any(map(self._is_enabled, self.held)):
            raise InvariantError(f"{self.node} holds back a packet whose time has come")

    def _next_ready(self) -> int | None:
        for i, carried in enumerate(self.held):
            if self._is_enabled(carried):
                return i
        return None

    def _handle(self, carried: Carried, out: Outbox) -> None:
        if self.me not in carried.ranks:
            self._pass_on(carried, out)
            return
        before = self.clock
        if self.checked:
            self._check_delivery(carried)
        self.clock = merged(before, carried.clock)
        self._deliver(carried, before, out)

    def _deliver(self, carried: Carried, before: Clock, out: Outbox) -> None:
        """DCC-H4: deliver; the last destination answers the client, the others send the message up."""
        out.deliver(carried.message)
        if self.checked and not is_covered(before, self.clock):
            raise InvariantError(f"{self.node}: delivering {carried.message.id} made the clock go back")
        target = self.rule.delivered(carried.ranks, before, self.clock)
        if carried.ranks[-1] == self.me:
            self._answer(carried.message, out)
        if target != NOWHERE:
            self._send(target, carried, self.clock, out)

    def _pass_on(self, carried: Carried, out: Outbox) -> None:
        """DCC-H5: a server that is not a destination adds what it knows."""
        if self.checked:
            self._check_visit(carried)
        clock, target = self.rule.passed(carried.ranks, carried.clock, self.clock)
        if target != NOWHERE:
            self._send(target, carried, clock, out)

    def _send(self, target: int, carried: Carried, clock: Clock, out: Outbox) -> None:
        """DCC-H6: on the wire the clock is whole or reduced."""
        counters = self.channels.encode(clock, target)
        packet: Packet
        if self.checked:
            self._check_index(carried, clock, self.me + 1)
            packet = CheckedHop(carried.message, counters, self.whole, carried.index)
        else:
            packet = Hop(carried.message, counters, self.whole)
        out.send(self.servers[target], packet)

    # Checks

    def _read(self, peer: NodeId, packet: Packet) -> Carried:
        if not isinstance(packet, Hop | CheckedHop):
            raise self._not_ours(peer, packet)
        ranks = self._received_ranks(peer, packet.message)
        sender = self.rank.get(peer, -1)
        if not ranks[0] <= sender < self.me:
            raise PeerError(peer, f"sends message {packet.message.id} to {self.node}, which is not above it")
        clock = self.channels.decode(packet.clock, sender, whole=packet.whole)
        if clock is None:
            raise PeerError(peer, f"sends message {packet.message.id} with a clock that is none")
        index = packet.index if isinstance(packet, CheckedHop) else ()
        if len(index) != (len(ranks) - 1 if self.checked else 0):
            raise PeerError(peer, "and this node do not agree on check_invariants")
        carried = Carried(packet.message, ranks, clock, index)
        if self.checked:
            self._check_way(sender, ranks, packet.message)
            self._check_index(carried, clock, self.me)
        return carried

    def _check_way(self, sender: int, ranks: Ranks, message: Message) -> None:
        """DCC-A6: a message comes from the server just below, or from a destination to a destination."""
        if self.visits_neighbours and sender != self.me - 1 and not (self.me in ranks and sender in ranks):
            raise InvariantError(f"{message.id} jumped from {self.servers[sender]} to {self.node}")

    def _check_visit(self, carried: Carried) -> None:
        """DCC-A4: a visit is on its way to somebody."""
        if carried.ranks[-1] < self.me:
            raise InvariantError(f"{self.node} is visited by {carried.message.id}, which has no destination above")

    def _check_delivery(self, carried: Carried) -> None:
        """DCC-A3: nothing that must come first is missing."""
        tail = carried.ranks[0]
        expected = row(raised(self.clock, tail, [self.me]), self.me)
        due = row(carried.clock, self.me)
        if due[tail] != expected[tail] or not is_covered(due, expected):
            raise InvariantError(f"{self.node} delivers {carried.message.id} before its past")

    def _check_index(self, carried: Carried, clock: Clock, lowest: int) -> None:
        """DCC-A2: a message never counts later ones of its own entry server, or its destinations wait for ever."""
        tail = carried.ranks[0]
        for rank, number in zip(carried.ranks[1:], carried.index, strict=True):
            counted = clock[first_edge(rank) + tail]
            if rank >= lowest and counted != number:
                edge = f"from {self.servers[tail]} to {self.servers[rank]}"
                raise InvariantError(f"{self.node}: {carried.message.id}, number {number} {edge}, counts {counted}")

    def copy(self) -> Self:
        """By hand: what is held is frozen, so shallow copies do."""
        clone = object.__new__(type(self))
        clone.__dict__.update(self.__dict__)
        clone.awaited = self.awaited.copy()
        clone.held = self.held.copy()
        clone.rule = self.rule.copy()
        clone.channels = self.channels.copy()
        return clone

    def frozen(self) -> Hashable:
        return (
            self.clock,
            tuple(self.held),
            self.rule.frozen(),
            self.channels.frozen(),
            frozenset(self.awaited.items()),
        )
