"""Causal Barriers on a tree: a message carries, for every node, which messages that node must deliver before.

The baseline of minimal waiting and of quadratic headers. Spec: docs/protocols/causal-barriers.md (CBR-B1 to CBR-B5),
from Prakash, Raynal and Singhal.
"""

from __future__ import annotations

from typing import ClassVar

from ordercast.core.errors import PeerError, UsageError, unknown_name
from ordercast.core.machine import Outbox, Place
from ordercast.core.messages import Guarantee, Message
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols.shared.links import Ack, Numbered
from ordercast.protocols.tree.causal_barriers_lists import (
    Data,
    Header,
    Known,
    Lists,
    Nodes,
    Targets,
    added,
    handed_on,
    nodes_of,
    pruned,
    replaced,
    within,
)
from ordercast.protocols.tree.cbcast import one_hop
from ordercast.protocols.tree.sizes import barrier_bytes
from ordercast.protocols.tree.tree_node import NOBODY, TreeNode, TreeOptions, shared_table

NOTHING_KNOWN: Known = {}
Held = tuple[Message, Header]


class CausalBarriersOptions(TreeOptions, frozen=True, forbid_unknown_fields=True):
    """Settings of Causal Barriers."""

    prune: bool = True
    """CBR-B5: whether a node forgets barriers that another one has told it to be behind."""


class CausalBarriers(TreeNode):
    """One node."""

    protocol = "causal-barriers"
    constant: ClassVar[tuple[str, ...]] = (*TreeNode.constant, "prunes", "targets", "own")
    durable: ClassVar[tuple[str, ...]] = (*TreeNode.durable, "barriers", "delivered", "known", "blocked")

    def __init__(self, place: Place, options: CausalBarriersOptions) -> None:
        super().__init__(place, options)
        self.prunes = options.prune
        self.targets = shared_table(self.routes, Targets, place.groups)
        self.own: Nodes = 1 << self.me
        self.barriers: Lists = {}
        """CB: what the next message of this node to others has to wait for there."""
        self.delivered: Known = {}
        """Del of this node: the last message of each publisher that was delivered here."""
        self.known: dict[int, Known] = {}
        """Del of other nodes that publish, as far as their messages tell."""
        self.blocked: dict[tuple[int, int], list[Held]] = {}

    # Messages

    def on_publish(self, message: Message, out: Outbox) -> None:
        """CBR-B1: the barriers travel along; from now on this message is the barrier of all it is for."""
        targets = self._targets(message)
        others = self.targets.everyone & ~self.own
        lists = {
            publisher: left for publisher, waits in sorted(self.barriers.items()) if (left := within(waits, others))
        }
        rest = self.targets.everyone & ~targets
        self.barriers = {publisher: left for publisher, waits in lists.items() if (left := within(waits, rest))}
        if targets & others:
            self.barriers[self.me] = added(self.barriers.get(self.me, ()), message.number, targets & others)
        if targets & self.own:
            self.delivered[self.me] = message.number
            out.deliver(message)
        out.complete(message.id)
        self._pass_on(message, Header(lists), targets, NOBODY, out)

    def _targets(self, message: Message) -> Nodes:
        """The destinations of the message, or the members of its group."""
        if not message.dst:
            self.routes.check_topic(message.topic)
            return self.targets.of(message.topic)
        rank = self.routes.rank
        for node in message.dst:
            if node not in rank:
                raise UsageError(f"{message.id}: {unknown_name('node', node, rank)}")
        return nodes_of(rank[node] for node in message.dst)

    def _pass_on(self, message: Message, header: Header, targets: Nodes, came: int, out: Outbox) -> None:
        """TRE-T2: unchanged, to whoever leads to a target."""
        if message.dst:
            ranks = [self.routes.rank[node] for node in message.dst]
            towards = {self.routes.step(self.me, rank) for rank in ranks if rank != self.me}
            ways = tuple(sorted(towards - {came}))
        else:
            ways = self._ways(came, message.topic)
        for peer in ways:
            if self.tally is not None:
                self.tally.add(barrier_bytes(targets.bit_count(), header.entries))
            self.links.give(self.routes.nodes[peer], Data, message, header, out)

    def _arrived(self, peer: int, packet: Numbered, out: Outbox) -> None:
        assert isinstance(packet, Data)
        message, header = packet.message, packet.header
        self._publisher(peer, message)
        if not header.fits(self.targets.everyone) or any(node not in self.routes.rank for node in message.dst):
            raise PeerError(self.routes.nodes[peer], f"sent {message.id} with barriers of nodes that nobody knows")
        targets = self._targets(message)
        self._pass_on(message, header, targets, peer, out)
        if targets & self.own:
            self._sort_in((message, header), out)

    def _sort_in(self, held: Held, out: Outbox) -> None:
        """CBR-B2: deliver the message and what waited for it, or file it under what it waits for."""
        candidates = [held]
        for candidate in candidates:  # It grows while it is looked at.
            message, header = candidate
            publisher = self.routes.rank[message.publisher]
            if self.delivered.get(publisher, 0) >= message.number:
                continue  # A duplicate.
            obstacle = self._obstacle(header)
            if obstacle is not None:
                self.blocked.setdefault(obstacle, []).append(candidate)
                continue
            self.delivered[publisher] = message.number
            self._take_in(publisher, message.number, self._targets(message), header)
            out.deliver(message)
            if self.blocked:
                candidates += self.blocked.pop((publisher, message.number), ())

    def _obstacle(self, header: Header) -> tuple[int, int] | None:
        """CBR-B2: a message that must be delivered here before; None: there is none."""
        delivered, own = self.delivered, self.own
        for publisher, waits in header.lists.items():
            reached = delivered.get(publisher, 0)
            if waits[-1][0] > reached:
                for number, nodes in waits:
                    if number > reached and nodes & own:
                        return publisher, number
        return None

    def _take_in(self, publisher: int, number: int, targets: Nodes, header: Header) -> None:
        """CBR-B3 to CBR-B5: the message is delivered here, and becomes the barrier of the others that it is for."""
        barriers = self.barriers
        rest = self.targets.everyone & ~targets
        for other, theirs in header.lists.items():
            before = barriers.get(other, ())
            mine = replaced(before, theirs, targets) if before else before
            if rest and mine is not theirs:
                mine = handed_on(mine, theirs, rest)
            if mine:
                barriers[other] = mine
            elif before:
                del barriers[other]
        barriers[publisher] = added(barriers.get(publisher, ()), number, targets)
        if self.prunes:
            self._prune(publisher, number if targets >> publisher & 1 else 0, header)

    def _prune(self, publisher: int, number: int, header: Header) -> None:
        """CBR-B5: what lies in the past of a message, and was addressed to its publisher, was delivered there."""
        known = header.known_after(self.known.get(publisher, NOTHING_KNOWN), publisher, number)
        self.known[publisher] = known
        bit = 1 << publisher
        reached = known.get
        behind = [
            (other, waits)
            for other, waits in self.barriers.items()
            if waits[0][0] <= reached(other, 0) and (waits[0][1] & bit or len(waits) > 1)
        ]
        for other, waits in behind:
            if left := pruned(waits, reached(other, 0), bit):
                self.barriers[other] = left
            else:
                del self.barriers[other]


CAUSAL_BARRIERS = ProtocolInfo(
    name="causal-barriers",
    summary="causal multicast on a tree to any set of nodes: a message carries direct dependencies for every node",
    source=(
        "Prakash, Raynal and Singhal, An efficient causal ordering algorithm for mobile computing environments, "
        "ICDCS 1996; as in V. Santos, Localized Reliable Causal Multicast, MSc thesis, Instituto Superior "
        "Tecnico, 2019; pruning is ours"
    ),
    guarantee=Guarantee.CAUSAL,
    overlay="a tree; links may lose, double and reorder packets",
    faults=(
        "crashes and recoveries with state without limit, partitions that heal, wrong suspicions: what lies behind "
        "waits; no crash for good of any node, no restart without state"
    ),
    metadata="22 + o + t + M*(5 + W)",
    genuine=False,
    build=CausalBarriers,
    packets=(Data, Ack),
    options=CausalBarriersOptions,
    reach=one_hop,
)
