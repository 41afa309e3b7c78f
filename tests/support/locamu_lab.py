"""LoCaMu nodes driven by hand: trees of one-character names, and what each node has processed, delivered or not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import msgspec

from ordercast.core.ids import NodeId
from ordercast.core.machine import Outbox, Place
from ordercast.core.messages import Message
from ordercast.core.registry import ProtocolInfo
from ordercast.core.state import State
from ordercast.overlay.extended import Routes
from ordercast.protocols import lookup
from ordercast.protocols.locamu.held import NEED
from ordercast.protocols.locamu.links import IncomingSession, LinkEnds, Outgoing
from ordercast.protocols.locamu.neighbourhood import Neighbourhood
from ordercast.protocols.locamu.node import Locamu
from ordercast.protocols.locamu.ordering import CausalOrdering
from ordercast.protocols.locamu.packets import SECOND_BITS, Ack, Data, Whole
from ordercast.protocols.locamu.rounds import TICK
from ordercast.protocols.locamu.rules import CORRECTED
from ordercast.protocols.locamu.store import Copy, Entry, MessageStore
from ordercast.protocols.locamu.streams import News, Streams
from ordercast.protocols.locamu.vectors import Name, Past, Vector, plain
from tests.support.tree_group import AnyTreeGroup


def line(count: int) -> str:
    """The edges of a line 0-1-2-..."""
    names = "0123456789abcdef"
    return " ".join(names[i] + names[i + 1] for i in range(count - 1))


class TreeGroup(AnyTreeGroup):
    """Nodes that write down what they process, and check what they say and forget."""

    def __init__(self, edges: str, groups: str, *, protocol: str | ProtocolInfo = "locamu", **options: Any) -> None:
        self.order: dict[str, list[Message]] = {name: [] for name in edges.replace(" ", "")}
        """What each node has processed, also where it only passes things on."""
        self.numbered: dict[tuple[int, int, int], str] = {}
        """The message behind every number: forwarder, numbered node, number (LCM-N1)."""
        self.hop_pasts: dict[int, set[str]] = {}
        """What precedes the next message of a node, hop by hop (LCM-N3)."""
        self.hop_pasts_at: dict[tuple[int, str], frozenset[str]] = {}
        """The same when a node processed a message."""
        self.spoken: dict[int, tuple[object, Whole]] = {}
        """What headers of sessions mean: by the identity of the header, which is kept so that it stays the only one."""
        info = lookup(protocol) if isinstance(protocol, str) else protocol
        watched = msgspec.structs.replace(info, build=_watched(info, self))
        super().__init__(watched, edges, groups, **{"need_ms": 1.0, "push_ms": 0.0, **options})

    def machine(self, node: str) -> Locamu:
        machine = self.machines[NodeId(node)]
        assert isinstance(machine, Locamu)
        return machine

    def forward(self, message: Message, path: str) -> None:
        """Carry a message along a path of nodes."""
        for by, to in pairwise(path):
            self.carry(message, to=to, by=by)

    def travelling(self, message: Message, to: str, by: str | None = None) -> list[Data]:
        """The copies in flight."""
        return [packet for packet in self.flying(message, to, by) if isinstance(packet, Data)]

    def processed(self, node: str, forwarder: str) -> tuple[int, set[int]]:
        """R of a node: how far the stream is processed, and what beyond."""
        table, rank = self.machine(node).processed, self.routes.rank[NodeId(forwarder)]
        return table.prefix[rank], set(table.sparse.get(rank, ()))

    def counter(self, node: str, first: str, second: str) -> int:
        """P of a node for one stream."""
        machine, rank = self.machine(node), self.routes.rank
        return machine.streams.value(rank[NodeId(first)] << SECOND_BITS | rank[NodeId(second)])

    def said(self, packet: Data) -> Whole:
        """What the header of a copy means."""
        return self.spoken[id(packet.header)][1] if packet.session else Whole.read(packet.header)

    def names(self, packet: Data) -> tuple[set[str], set[str]]:
        """Whose vectors a copy carries: on time, and late."""
        vectors = self.said(packet).vectors
        on_time = {str(self.nodes[flagged >> 1]) for flagged, _, _ in vectors if not flagged & 1}
        late = {str(self.nodes[flagged >> 1]) for flagged, _, _ in vectors if flagged & 1}
        return on_time, late

    def vector(self, node: str, packet: Data) -> dict[str, int]:
        """One node's vector in a copy."""
        rank = self.routes.rank[NodeId(node)]
        (found,) = [vector for vector in self.said(packet).vectors if vector[0] >> 1 == rank]
        return {str(self.nodes[k]): number for k, number in zip(found[1], found[2], strict=True)}

    def held(self, node: str) -> list[Message]:
        """What a node holds back."""
        return [copy.message for copy in self.machine(node).held.copies.values()]

    def ask(self, node: str) -> None:
        """A node that lacks something says so to everybody it is linked to."""
        machine = self.machine(node)
        for peer in machine.here.linked:
            packet = Ack(machine.processed.columns(), need=True)
            self.hand(packet, to=self.nodes[peer], by=node)

    def round(self, node: str) -> None:
        """Acknowledge now."""
        self.timers[NodeId(node)].add(TICK)
        self.fire(node, TICK)

    def trust_all(self) -> None:
        for node in self.nodes:
            for peer in sorted(self.machine(node).here.suspected):
                self.trust(self.nodes[peer], by=node)

    def finish(self) -> None:
        """Everyone trusts everyone, and everything that can happen happens."""
        self.trust_all()
        self.settle()

    def note_hop(self, node: int, copy: Copy) -> None:
        """A node processes a copy: what its forwarder had processed before precedes what the node does next."""
        known = self.hop_pasts.setdefault(node, set())
        known |= self.hop_pasts_at.get((copy.forwarder, copy.message.id), frozenset())
        self.hop_pasts_at[node, copy.message.id] = frozenset(known)
        known.add(copy.message.id)

    def check_forgettable(self, at: Neighbourhood, entry: Entry) -> None:
        """LCM-N10: whoever is linked and numbered has processed the message, and all names from upstream are there."""
        routes, message = self.routes, entry.message
        for shape, _, _ in entry.vectors:
            for node in set(shape.nodes).intersection(at.linked):
                assert message in self.order[self.nodes[node]], f"LCM-N10: {message.id} is forgotten, {node} lacks it"
        owners = {shape.forwarder for shape, _, _ in entry.vectors}
        here, origin = at.me, routes.rank[message.publisher]
        for _ in range(min(at.radii.numbering, routes.distance(here, origin))):
            here = routes.step(here, origin)
            assert here in owners, f"LCM-N10: {message.id} is forgotten before {here} has named it"

    def assert_forgotten(self) -> None:
        """All stores and buffers are empty, and every table is one number per forwarder."""
        for node in self.nodes:
            machine = self.machine(node)
            kept = [entry.message.id for entry in machine.store.entries.values()]
            assert not kept, f"{node} keeps {kept}"
            assert not machine.held.copies
            assert not machine.store.names
            assert not machine.processed.sparse, f"{node}: {machine.processed.sparse}"


def with_parts(machine: type[Locamu], **kinds: type[State]) -> type[Locamu]:
    """A node of that kind, some of whose parts are of other kinds."""

    class Remade(machine):  # type: ignore[valid-type, misc]
        def _stand_on(self, routes: Routes) -> None:
            super()._stand_on(routes)
            for name, kind in kinds.items():
                part = getattr(self, name)
                part.__class__ = _mixed(kind, type(part))

    return Remade


@cache
def _mixed(kind: type[State], base: type[State]) -> type[State]:
    return kind if issubclass(kind, base) else type(kind.__name__, (kind, base), {})


def _watched(info: ProtocolInfo, group: TreeGroup) -> Any:
    """The protocol's machine, writing down what it processes, and that every header is read as it was meant."""
    kinds: dict[str, type[State]] = {
        "ordering": _watched_ordering(group),
        "links": _watched_links(group),
        "streams": _watched_streams(group),
        "store": _watched_store(group),
    }
    made: list[type[Locamu]] = []

    def build(place: Place, options: Any) -> Locamu:
        if not made:
            machine = info.build(place, options)
            assert isinstance(machine, Locamu)
            made.append(with_parts(type(machine), **kinds))
        return made[0](place, options)

    return build


def _watched_ordering(group: TreeGroup) -> type[CausalOrdering]:
    class Watched(CausalOrdering):
        def _process(self, copy: Copy, news: News | None, out: Outbox) -> None:
            group.order[self.here.name].append(copy.message)
            group.note_hop(self.here.me, copy)
            super()._process(copy, news, out)

        def _add_names(self, names: list[Name], vectors: Sequence[Vector], copy: Copy | None, out: Outbox) -> None:
            before = tuple(self.streams.values)
            super()._add_names(names, vectors, copy, out)
            same = self.rules != CORRECTED or tuple(self.streams.values) == before
            assert same, "LCM-N8: a duplicate raised the past"

    return Watched


def _watched_links(group: TreeGroup) -> type[LinkEnds]:
    class Watched(LinkEnds):
        def encode(
            self, link: Outgoing, past: Past, vectors: Sequence[Vector], depth: int, epoch: int
        ) -> tuple[int, ...]:
            header: tuple[int, ...] = super().encode(link, past, vectors, depth, epoch)
            meant = Whole(self.here.me, depth, epoch, plain(vectors), list(self.streams.pairs(past)))
            group.spoken[id(header)] = (header, meant)
            return header

        def _decode(self, peer: int, link: IncomingSession, packet: Data) -> tuple[Copy, list[int]]:
            read: tuple[Copy, list[int]] = super()._decode(peer, link, packet)
            meant = group.said(packet)
            assert plain(read[0].vectors) == meant.vectors
            assert sorted(read[0].pairs()) == sorted(meant.past)
            assert (read[0].forwarder, read[0].depth, read[0].epoch) == (peer, meant.depth, meant.epoch)
            return read

    return Watched


def _watched_streams(group: TreeGroup) -> type[Streams]:
    class Watched(Streams):
        def merge(self, vectors: Sequence[Vector]) -> None:
            before = tuple(self.values)
            super().merge(vectors)
            late = {stream for shape, _, is_late in vectors if is_late for stream in shape.merged}
            assert all(self.values[i] == before[i] for i in late), "LCM-N8: late vectors raised the past"

        def number(self, targets: tuple[int, ...]) -> Vector:
            vector: Vector = super().number(targets)
            message = group.order[self.here.name][-1]
            for node, number in zip(vector[0].nodes, vector[1], strict=True):
                earlier = group.numbered.setdefault((self.here.me, node, number), message.id)
                assert earlier == message.id, f"{earlier} and {message.id} got the same number"
            return vector

    return Watched


def _watched_store(group: TreeGroup) -> type[MessageStore]:
    class Watched(MessageStore):
        def collect(self, serial: int) -> None:
            entry = self.entries[serial]
            super().collect(serial)
            if serial not in self.entries and self.rules == CORRECTED:
                group.check_forgettable(self.here, entry)

    return Watched


__all__ = ["NEED", "TICK", "TreeGroup", "line", "with_parts"]
