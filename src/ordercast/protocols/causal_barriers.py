"""Causal Barriers on a tree: a message carries, for every node, which messages that node must deliver before.

The baseline of minimal waiting and of quadratic headers. Spec: docs/protocols/causal-barriers.md (B1 to B5), from
Prakash, Raynal and Singhal.
"""

from __future__ import annotations

from typing import ClassVar

from ordercast.core.errors import PeerError, UsageError, unknown_name
from ordercast.core.machine import Outbox, Place
from ordercast.core.messages import Guarantee, Message
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols.baseline_sizes import barrier_bytes
from ordercast.protocols.cbcast import one_hop
from ordercast.protocols.links import Ack, Numbered
from ordercast.protocols.tree_node import NOBODY, TreeNode, TreeOptions

Barrier = tuple[int, ...]
"""Publisher and number of each message that must be delivered before, one after the other, in order. Most nodes have
equal barriers; as tuples they are worked on once."""
Lists = tuple[tuple[int, ...], ...]
"""Per node with a barrier: its rank, then publisher and number of each message, one after the other."""
Header = tuple[tuple[int, ...], Lists]


class Data(Numbered, frozen=True, tag=1):
    """A message on its way along the tree."""

    carries: ClassVar[str | None] = "message"

    message: Message
    header: Header
    """For whom the message is, and the barriers of all nodes."""


class Options(TreeOptions, frozen=True, forbid_unknown_fields=True):
    """Settings of Causal Barriers."""

    prune: bool = True
    """B5: whether a node forgets barriers that another one has told it to be behind."""


class CausalBarriers(TreeNode):
    """One node."""

    protocol = "causal-barriers"
    constant: ClassVar[tuple[str, ...]] = (*TreeNode.constant, "prunes", "members")
    durable: ClassVar[tuple[str, ...]] = (*TreeNode.durable, "barriers", "delivered", "blocked")

    def __init__(self, place: Place, options: Options) -> None:
        super().__init__(place, options)
        self.prunes = options.prune
        groups = place.groups or {}
        self.members = {topic: tuple(self.routes.rank[node] for node in nodes) for topic, nodes in groups.items()}
        self.barriers: dict[int, Barrier] = {}
        """CB: what the next message of this node to another one has to wait for there."""
        self.delivered: dict[int, dict[int, int]] = {self.me: {}}
        """Del, by receiver: the last message of each publisher known to be delivered there."""
        self.blocked: dict[tuple[int, int], list[tuple[Message, Header]]] = {}

    # Messages

    def on_publish(self, message: Message, out: Outbox) -> None:
        """B1: the barriers travel along; from now on this message is the barrier of all it is for."""
        targets = self._targets(message)
        lists = tuple([(node, *barrier) for node, barrier in sorted(self.barriers.items()) if barrier])
        self.barriers.update(dict.fromkeys(targets, (self.me, message.number)))
        self.barriers.pop(self.me, None)
        if self.me in targets:
            self.delivered[self.me][self.me] = message.number
            out.deliver(message)
        out.complete(message.id)
        self._pass_on(message, (targets, lists), NOBODY, out)

    def _targets(self, message: Message) -> tuple[int, ...]:
        """The destinations of the message, or the members of its group."""
        if not message.dst:
            self.routes.check_topic(message.topic)
            return self.members.get(message.topic, tuple(range(len(self.routes.nodes))))
        rank = self.routes.rank
        for node in message.dst:
            if node not in rank:
                raise UsageError(f"{message.id}: {unknown_name('node', node, rank)}")
        return tuple(sorted({rank[node] for node in message.dst}))

    def _pass_on(self, message: Message, header: Header, came: int, out: Outbox) -> None:
        """T2: unchanged, to whoever leads to a target."""
        if message.dst:
            towards = {self.routes.step(self.me, node) for node in header[0] if node != self.me}
            ways = tuple(sorted(towards - {came}))
        else:
            ways = self._ways(came, message.topic)
        for peer in ways:
            self.links.give(self.routes.nodes[peer], Data, message, header, out)
            if self.tally is not None:
                self.tally.add(barrier_bytes(len(header[0]), header[1]))

    def _arrived(self, peer: int, packet: Numbered, out: Outbox) -> None:
        assert isinstance(packet, Data)
        message, header = packet.message, packet.header
        self._publisher(peer, message)
        if not self._makes_sense(header):
            raise PeerError(self.routes.nodes[peer], f"sent {message.id} with barriers of nodes that nobody knows")
        self._pass_on(message, header, peer, out)
        if self.me in header[0]:
            self._sort_in(message, header, out)

    def _makes_sense(self, header: Header) -> bool:
        targets, lists = header
        nodes = range(len(self.routes.nodes))
        return all(node in nodes for node in targets) and all(len(one) % 2 and one[0] in nodes for one in lists)

    def _sort_in(self, message: Message, header: Header, out: Outbox) -> None:
        """B2: deliver the message and what waited for it, or file it under what it waits for."""
        candidates = [(message, header)]
        for candidate in candidates:  # It grows while it is looked at.
            message, header = candidate
            publisher = self.routes.rank[message.publisher]
            if self.delivered[self.me].get(publisher, 0) >= message.number:
                continue  # A duplicate.
            obstacle = self._obstacle(next((one[1:] for one in header[1] if one[0] == self.me), ()))
            if obstacle is not None:
                self.blocked.setdefault(obstacle, []).append(candidate)
                continue
            self._deliver(message, header[0], {one[0]: one[1:] for one in header[1]}, out)
            if self.blocked:
                candidates += self.blocked.pop((publisher, message.number), ())

    def _obstacle(self, barrier: Barrier) -> tuple[int, int] | None:
        """B2: a message that must be delivered here before; None: there is none."""
        mine = self.delivered[self.me]
        for publisher, number in _pairs(barrier).items():
            if mine.get(publisher, 0) < number:
                return publisher, number
        return None

    def _deliver(self, message: Message, targets: tuple[int, ...], theirs: dict[int, Barrier], out: Outbox) -> None:
        """B3: the message is delivered, and becomes the barrier of the others that it is for."""
        publisher, number = self.routes.rank[message.publisher], message.number
        self.delivered[self.me][publisher] = number
        made: dict[tuple[Barrier, Barrier], Barrier] = {}
        for node in targets:
            both = (self.barriers.get(node, ()), theirs.get(node, ()))
            if both not in made:
                made[both] = _larger(self._replaced(*both), (publisher, number))
            self.barriers[node] = made[both]
        self.barriers.pop(self.me, None)
        addressed = frozenset(targets)
        self._hand_on({node: barrier for node, barrier in theirs.items() if node not in addressed})
        if self.prunes:
            self._prune(publisher, number if publisher in addressed else 0, theirs)
        out.deliver(message)

    def _replaced(self, mine: Barrier, theirs: Barrier) -> Barrier:
        """B3: what the delivered message itself waits for need not be waited for again."""
        implied = _pairs(theirs)
        return _flat({publisher: n for publisher, n in _pairs(mine).items() if n > implied.get(publisher, 0)})

    def _hand_on(self, theirs: dict[int, Barrier]) -> None:
        """B4: what nodes have to wait for that the message is not for."""
        made: dict[tuple[Barrier, Barrier], Barrier] = {}
        for node, barrier in theirs.items():
            both = (self.barriers.get(node, ()), barrier)
            if both not in made:
                made[both] = _larger(*both)
            self.barriers[node] = made[both]

    def _prune(self, publisher: int, number: int, theirs: dict[int, Barrier]) -> None:
        """B5: what lies in the past of a message, and was addressed to its publisher, was delivered there."""
        known = self.delivered.setdefault(publisher, {})
        for barrier in sorted({*theirs.values(), (publisher, number)}):
            for other, count in _pairs(barrier).items():
                known[other] = max(count, known.get(other, 0))
        mine = _pairs(self.barriers.get(publisher, ()))
        self.barriers[publisher] = _flat({other: n for other, n in mine.items() if n > known.get(other, 0)})


def _pairs(barrier: Barrier) -> dict[int, int]:
    return dict(zip(barrier[::2], barrier[1::2], strict=True))


def _larger(one: Barrier, other: Barrier) -> Barrier:
    """All of both, and of one publisher the later message."""
    if not one:
        return other
    found = _pairs(one)
    for publisher, number in _pairs(other).items():
        found[publisher] = max(number, found.get(publisher, 0))
    return _flat(found)


def _flat(pairs: dict[int, int]) -> Barrier:
    return tuple([part for pair in sorted(pairs.items()) for part in pair])


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
    metadata="22 + o + t + T + B*2 + E*2",
    genuine=False,
    build=CausalBarriers,
    packets=(Data, Ack),
    options=Options,
    reach=one_hop,
)
