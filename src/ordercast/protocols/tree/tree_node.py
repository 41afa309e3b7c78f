"""Common base of the baselines on a tree: exactly-once links along its edges, and routes to the members of groups.

Spec: docs/protocols/cbcast.md (TRE-T1 to TRE-T3), over docs/protocols/links.md.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Annotated, Any, ClassVar, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from ordercast.core.errors import PeerError, UsageError
from ordercast.core.ids import NodeId, Topic
from ordercast.core.machine import Machine, Outbox, Place
from ordercast.core.messages import Message, Packet
from ordercast.overlay.extended import Routes, TreePlace
from ordercast.protocols.shared.fixed_group import refuse_newcomer
from ordercast.protocols.shared.links import Ack, Kind, Numbered, ReliableLinks
from ordercast.protocols.tree.sizes import HeaderTally

NOBODY = -1
Shared = TypeVar("Shared")
Ms = Annotated[float, msgspec.Meta(gt=0, le=600_000)]


class TreeOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of every protocol here."""

    ack_ms: Ms = 20.0
    """How long an acknowledgement may wait for company."""
    retransmit_ms: Ms = 200.0
    """How often what is not acknowledged is sent again."""
    tally: bool = False
    """Whether a node counts what its headers would cost by the source's model (attribute `tally` of the machine)."""


def routes_of(place: Place, protocol: str) -> Routes:
    """The tree and its groups, for protocols that cannot do without."""
    if not isinstance(place, TreePlace) or place.routes is None:
        raise UsageError(f"{place.node}: {protocol} runs on a tree, and this runtime does not say which")
    refuse_newcomer(protocol, place)
    return place.routes


_tables: WeakKeyDictionary[Routes, dict[object, Any]] = WeakKeyDictionary()


def shared_table(routes: Routes, build: Callable[[Routes, Any], Shared], groups: Any) -> Shared:
    """A table that follows from the tree and its groups: made once for all nodes of a run, and never changed."""
    tables = _tables.setdefault(routes, {})
    if build not in tables:
        tables[build] = build(routes, groups)
    table: Shared = tables[build]
    return table


def refuse_change(protocol: str, topic: Topic) -> UsageError:
    return UsageError(f"{topic}: {protocol} has fixed groups; nobody can subscribe or unsubscribe during a run")


class TreeLinks(ReliableLinks):
    """Reliable links on which each neighbour may be sent something of its own."""

    def give(self, peer: NodeId, kind: Kind, content: Any, extra: Any, out: Outbox) -> None:
        """LNK-L1, for one neighbour."""
        link = self.links[peer]
        link.sent = number = link.sent + 1
        link.unacked[number] = packet = kind(link.session, number, link.received, False, content, extra)
        if link.quiet:
            return
        out.send(peer, packet)
        if not self.resend_armed:
            self._arm_resend(out)
        if link.owed and not link.early:
            link.owed = 0  # The packet carries the acknowledgement.


class TreeNode(Machine):
    """A node that passes every message on along the tree at once, and delivers what is for it when it is time."""

    protocol: ClassVar[str]
    constant: ClassVar[tuple[str, ...]] = ("routes", "me", "ways", "memberships")
    durable: ClassVar[tuple[str, ...]] = ("links",)

    def __init__(self, place: Place, options: TreeOptions) -> None:
        self.routes = routes_of(place, self.protocol)
        self.me = self.routes.rank[place.node]
        self.links = TreeLinks(place, options.ack_ms, options.retransmit_ms)
        self.tally: HeaderTally | None = HeaderTally() if options.tally else None
        self.ways: dict[tuple[int, Topic], tuple[int, ...]] = {}
        self.memberships: dict[Topic, bool] = {}

    # What a protocol adds

    def _arrived(self, peer: int, packet: Numbered, out: Outbox) -> None:
        """TRE-T1: a packet that the link hands over, once, in whatever order."""

    # Routes

    def _ways(self, came: int, topic: Topic) -> tuple[int, ...]:
        """TRE-T2: the neighbours that lead to members, but for the one that the message came from."""
        key = (came, topic)
        ways = self.ways.get(key)
        if ways is None:
            near = self.routes.near[self.me]
            ways = tuple(peer for peer in near if peer != came and self.routes.leads(self.me, peer, topic))
            self.ways[key] = ways
        return ways

    def _is_member(self, topic: Topic) -> bool:
        found = self.memberships.get(topic)
        if found is None:
            found = self.memberships[topic] = self.routes.is_member(self.me, topic)
        return found

    def _publisher(self, peer: int, message: Message) -> int:
        """The rank of who published; a message that cannot be is blamed on the peer."""
        publisher = self.routes.rank.get(NodeId(message.origin))
        if publisher is None or not (message.dst or self.routes.knows(message.topic)) or message.number < 1:
            raise PeerError(self.routes.nodes[peer], f"passes on {message.id}, which nobody can have published")
        return publisher

    # Events

    def on_receive(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        if isinstance(packet, Numbered):
            if self.links.accept(peer, packet, out):
                self._arrived(self.routes.rank[peer], packet, out)
        elif isinstance(packet, Ack):
            self.links.on_ack(peer, packet)
        else:
            raise PeerError(peer, f"sent a {type(packet).__name__}, which is not part of this protocol")

    def on_recover(self, out: Outbox) -> None:
        """TRE-T3: back with its state: what was not acknowledged is sent again."""
        self.links.on_recover(out)

    def on_timer(self, name: Hashable, out: Outbox) -> None:
        self.links.on_timer(name, out)

    def on_suspect(self, peer: NodeId, _out: Outbox) -> None:
        self.links.on_suspect(peer)

    def on_trust(self, peer: NodeId, out: Outbox) -> None:
        self.links.on_trust(peer, out)

    def on_subscribe(self, topic: Topic, _out: Outbox) -> None:
        raise refuse_change(self.protocol, topic)

    def on_unsubscribe(self, topic: Topic, _out: Outbox) -> None:
        raise refuse_change(self.protocol, topic)
