"""CBCAST on a tree: causal multicast to overlapping groups, with a vector clock for every group in every header.

The baseline whose headers grow with the system. Spec: docs/protocols/cbcast.md (CBC-C1 to CBC-C6, TRE-T1 to TRE-T3),
from [BSS91].
"""

from __future__ import annotations

from typing import Any, ClassVar

from ordercast.core.errors import PeerError, UsageError
from ordercast.core.machine import Outbox, Place
from ordercast.core.messages import Guarantee, Message
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols.shared.links import Ack, Numbered
from ordercast.protocols.tree.cbcast_clocks import CbcastIncoming, Clock, ClockLayout, Data, Difference, Entry, Joined
from ordercast.protocols.tree.tree_node import NOBODY, TreeNode, TreeOptions, shared_table

Held = tuple[Message, Entry, Clock]
"""A message, what its clock counts it as, and its clock."""


class CbcastOptions(TreeOptions, frozen=True, forbid_unknown_fields=True):
    """Settings of CBCAST."""

    delta: bool = True
    """Whether a clock travels as what differs from the one before on its link. Such packets are read in order."""


class Cbcast(TreeNode):
    """One node."""

    protocol = "cbcast"
    constant: ClassVar[tuple[str, ...]] = (*TreeNode.constant, "delta", "layout", "joined")
    durable: ClassVar[tuple[str, ...]] = (*TreeNode.durable, "clock", "blocked", "last_sent", "incoming")

    def __init__(self, place: Place, options: CbcastOptions) -> None:
        super().__init__(place, options)
        self.delta = options.delta
        self.layout = shared_table(self.routes, ClockLayout, place.groups)
        own = [topic for topic in place.groups or () if self._is_member(topic)]
        groups = {0} if place.groups is None else {self.layout.number(topic) for topic in own}
        self.joined = Joined(self.layout, frozenset(groups))
        self.clock = self.layout.empty
        """Of groups joined: what was delivered here. Of others: what lies in the past of what was delivered here."""
        self.blocked: dict[Entry, list[Held]] = {}
        near = self.routes.near[self.me]
        self.last_sent = dict.fromkeys(near, self.layout.empty)
        self.incoming = {peer: CbcastIncoming(self.layout.empty) for peer in near}

    # Messages

    def on_publish(self, message: Message, out: Outbox) -> None:
        """CBC-C1: count the message, deliver it here, and let it go with the whole clock."""
        if message.dst:
            raise UsageError(f"{message.id}: cbcast multicasts to groups, not to destinations of a message's own")
        self.routes.check_topic(message.topic)
        slot = self.layout.slot(message.topic, self.me)
        self.clock = self.clock.counting(slot, self.clock[slot] + 1)
        if self._is_member(message.topic):
            out.deliver(message)
        out.complete(message.id)
        self._pass_on(message, self.clock, NOBODY, None, out)

    def _pass_on(self, message: Message, clock: Clock, came: int, read: Difference | None, out: Outbox) -> None:
        """CBC-C4, CBC-C5: pass it on unchanged. Links that carried the same before share the difference."""
        difference = read
        for peer in self._ways(came, message.topic):
            reference = self.last_sent[peer] if self.delta else self.layout.empty
            if difference is None or difference.old is not reference:
                difference = Difference.between(reference, clock)
            if self.delta:
                self.last_sent[peer] = clock
            if self.tally is not None:
                self.tally.add(difference.counted_bytes(self.layout))
            self.links.give(self.routes.nodes[peer], Data, message, difference, out)

    def _arrived(self, peer: int, packet: Numbered, out: Outbox) -> None:
        assert isinstance(packet, Data)
        for readable, clock in self._readable(peer, packet):
            message = readable.message
            slot = self.layout.slot_of(message)
            number = 0 if slot is None else clock[slot]
            if slot is None or number < 1 or message.dst or message.number < 1:
                raise PeerError(self.routes.nodes[peer], f"sent {message.id} with a clock that does not count it")
            self._pass_on(message, clock, peer, readable.clock, out)
            if self._is_member(message.topic):
                self._sort_in((message, (slot, number), clock), out)

    def _readable(self, peer: int, packet: Data) -> list[tuple[Data, Clock]]:
        """CBC-C5: the packets whose clocks can be read now."""
        if not self.delta:
            return [(packet, self._read(peer, packet, self.layout.empty))]
        link = self.incoming[peer]
        if packet.number != link.next:
            link.early[packet.number] = packet
            return []
        readable = []
        following: Data | None = packet
        while following is not None:
            link.next += 1
            link.clock = self._read(peer, following, link.clock)
            readable.append((following, link.clock))
            following = link.early.pop(link.next, None) if link.early else None
        return readable

    def _read(self, peer: int, packet: Data, reference: Clock) -> Clock:
        try:
            return packet.clock.applied_to(reference, self.layout)
        except ValueError as error:
            raise PeerError(
                self.routes.nodes[peer], f"sent {packet.message.id} with a clock that is none: {error}"
            ) from None

    def _sort_in(self, held: Held, out: Outbox) -> None:
        """CBC-C2: deliver the message and what waited for it, or file it under what it waits for."""
        candidates = [held]
        for candidate in candidates:  # It grows while it is looked at.
            message, entry, clock = candidate
            if entry[1] <= self.clock[entry[0]]:
                continue  # A duplicate.
            obstacle = self._obstacle(entry, clock)
            if obstacle is not None:
                self.blocked.setdefault(obstacle, []).append(candidate)
                continue
            self._learn(entry, clock)
            out.deliver(message)
            if self.blocked:
                candidates += self.blocked.pop(entry, ())

    def _obstacle(self, entry: Entry, clock: Clock) -> Entry | None:
        """CBC-C2: a message that must be delivered here before; None: it is this one's turn."""
        slot, number = entry
        if self.clock[slot] < number - 1:
            return slot, number - 1
        return self.clock.first_ahead(clock, self.joined, slot)

    def _learn(self, _entry: Entry, clock: Clock) -> None:
        """CBC-C3: count the message, and what its past says of groups that this node knows nothing of itself.

        Of the groups joined there is nothing new but the message, so the larger of each entry does for all.
        """
        self.clock = self.clock.merged(clock)


def one_hop(_options: Any) -> int:
    """Links are the edges of the tree."""
    return 1


CBCAST = ProtocolInfo(
    name="cbcast",
    summary="causal multicast to groups on a tree: every header holds a vector clock for each group",
    source=(
        "[BSS91] Birman, Schiper and Stephenson, Lightweight Causal and Atomic Group Multicast, ACM TOCS 9(3), 1991; "
        "on a tree as in V. Santos, Localized Reliable Causal Multicast, MSc thesis, Instituto Superior Tecnico, 2019"
    ),
    guarantee=Guarantee.CAUSAL,
    overlay="a tree; links may lose, double and reorder packets",
    faults=(
        "crashes and recoveries with state without limit, partitions that heal, wrong suspicions: what lies behind "
        "waits; no crash for good of any node, no restart without state"
    ),
    metadata="21 + o + t + E*2",
    genuine=False,
    build=Cbcast,
    packets=(Data, Ack),
    options=CbcastOptions,
    reach=one_hop,
)
