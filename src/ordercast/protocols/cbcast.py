"""CBCAST on a tree: causal multicast to overlapping groups, with a vector clock for every group in every header.

The baseline whose headers grow with the system. Spec: docs/protocols/cbcast.md (C1 to C6, T1 to T3), from [BSS91].
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from ordercast.core.errors import PeerError, UsageError
from ordercast.core.ids import Topic
from ordercast.core.machine import Outbox, Place
from ordercast.core.messages import Guarantee, Message
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols.baseline_sizes import changed_clock_bytes
from ordercast.protocols.cbcast_clocks import Clock, Data, Incoming, assigned, differences, merged
from ordercast.protocols.links import Ack, Numbered
from ordercast.protocols.tree_node import NOBODY, TreeNode, TreeOptions

Publication = tuple[int, int, int]
"""The group, the publisher, and which of its messages to that group."""


class Options(TreeOptions, frozen=True, forbid_unknown_fields=True):
    """Settings of CBCAST."""

    delta: bool = True
    """Whether a clock travels as what differs from the one before on its link. Such packets are read in order."""


class Cbcast(TreeNode):
    """One node."""

    protocol = "cbcast"
    constant: ClassVar[tuple[str, ...]] = (*TreeNode.constant, "delta", "groups", "joined")
    durable: ClassVar[tuple[str, ...]] = (*TreeNode.durable, "clock", "blocked", "last_sent", "incoming")

    def __init__(self, place: Place, options: Options) -> None:
        super().__init__(place, options)
        self.delta = options.delta
        topics = sorted(place.groups or ())
        self.groups = {topic: i for i, topic in enumerate(topics)}
        joined = {self.groups[topic] for topic in topics if self._is_member(topic)}
        self.joined = frozenset({0} if place.groups is None else joined)
        self.clock: Clock = {}
        """Of groups joined: what was delivered here. Of others: what lies in the past of what was delivered here."""
        self.blocked: dict[Publication, list[tuple[Message, Clock]]] = {}
        near = self.routes.near[self.me]
        self.last_sent: dict[int, Clock] = {peer: {} for peer in near}
        self.incoming = {peer: Incoming() for peer in near}

    def _group(self, topic: Topic) -> int:
        """Where everybody is a member of everything, one vector serves for all topics."""
        return self.groups.get(topic, 0)

    # Messages

    def on_publish(self, message: Message, out: Outbox) -> None:
        """C1: count the message, deliver it here, and let it go with the whole clock."""
        if message.dst:
            raise UsageError(f"{message.id}: cbcast multicasts to groups, not to destinations of a message's own")
        self.routes.check_topic(message.topic)
        group = self._group(message.topic)
        vector = self.clock.get(group, {})
        self.clock[group] = {**vector, self.me: vector.get(self.me, 0) + 1}
        if self._is_member(message.topic):
            out.deliver(message)
        out.complete(message.id)
        self._pass_on(message, self.clock.copy(), NOBODY, out)

    def _pass_on(self, message: Message, clock: Clock, came: int, out: Outbox) -> None:
        """C4, C5: unchanged, to whoever leads to members."""
        for peer in self._ways(came, message.topic):
            reference = self.last_sent[peer] if self.delta else {}
            changes = differences(clock, reference)
            self.links.give(self.routes.nodes[peer], Data, message, changes, out)
            if self.tally is not None:
                self.tally.add(changed_clock_bytes(changes))
            if self.delta:
                self.last_sent[peer] = clock

    def _arrived(self, peer: int, packet: Numbered, out: Outbox) -> None:
        assert isinstance(packet, Data)
        for readable, clock in self._readable(peer, packet):
            message = readable.message
            number = clock.get(self._group(message.topic), {}).get(self._publisher(peer, message), 0)
            if number < 1 or message.dst:
                raise PeerError(self.routes.nodes[peer], f"sent {message.id} with a clock that does not count it")
            self._pass_on(message, clock, peer, out)
            if self._is_member(message.topic):
                self._sort_in(message, clock, out)

    def _readable(self, peer: int, packet: Data) -> Iterator[tuple[Data, Clock]]:
        """C5: the packets whose clocks can be read now."""
        if not self.delta:
            yield packet, assigned(packet.clock, {})
            return
        link = self.incoming[peer]
        link.early[packet.number] = packet
        while (following := link.early.pop(link.next, None)) is not None:
            link.next += 1
            link.clock = assigned(following.clock, link.clock)
            yield following, link.clock

    def _sort_in(self, message: Message, clock: Clock, out: Outbox) -> None:
        """C2: deliver the message and what waited for it, or file it under what it waits for."""
        candidates = [(message, clock)]
        for candidate in candidates:  # It grows while it is looked at.
            message, clock = candidate
            group, publisher, number = publication = self._publication(message, clock)
            if number <= self.clock.get(group, {}).get(publisher, 0):
                continue  # A duplicate.
            obstacle = self._obstacle(publication, clock)
            if obstacle is not None:
                self.blocked.setdefault(obstacle, []).append(candidate)
                continue
            self._deliver(message, publication, clock, out)
            if self.blocked:
                candidates += self.blocked.pop(publication, ())

    def _publication(self, message: Message, clock: Clock) -> Publication:
        group, publisher = self._group(message.topic), self.routes.rank[message.publisher]
        return group, publisher, clock[group][publisher]

    def _obstacle(self, publication: Publication, clock: Clock) -> Publication | None:
        """C2: a message that must be delivered here before; None: it is this one's turn."""
        group, publisher, number = publication
        if self.clock.get(group, {}).get(publisher, 0) < number - 1:
            return group, publisher, number - 1
        for other, vector in clock.items():
            if other not in self.joined:
                continue
            mine = self.clock.get(other, {})
            for node, count in vector.items() if vector is not mine else ():
                if count > mine.get(node, 0) and (other, node) != (group, publisher):
                    return other, node, count
        return None

    def _deliver(self, message: Message, publication: Publication, clock: Clock, out: Outbox) -> None:
        """C3: count it, and remember what its past says of groups that this node knows nothing of itself."""
        group, publisher, number = publication
        self.clock[group] = {**self.clock.get(group, {}), publisher: number}
        self._learn(clock)
        out.deliver(message)

    def _learn(self, clock: Clock) -> None:
        for group, vector in clock.items():
            if group not in self.joined:
                mine = self.clock.get(group)
                self.clock[group] = vector if mine is None else merged(mine, vector)


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
    metadata="20 + o + t + G*2 + E*2",
    genuine=False,
    build=Cbcast,
    packets=(Data, Ack),
    options=Options,
    reach=one_hop,
)
