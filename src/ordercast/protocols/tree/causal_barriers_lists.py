"""The barriers of Causal Barriers, the lists of all nodes at once: by message, the set of nodes that must wait for it.

Spec: docs/protocols/causal-barriers.md (CBR-B1 to CBR-B5). Most nodes have to wait for the same, so that a barrier is a
message with a set of nodes, and a set is an integer with a bit for each. Lists and headers never change, only their
owners do.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import ClassVar, Self

import msgspec

from ordercast.core.ids import NodeId, Topic
from ordercast.core.messages import Message
from ordercast.core.wire import Encoded
from ordercast.overlay.extended import Routes
from ordercast.protocols.shared.links import Numbered

Nodes = int
"""A set of nodes: bit r stands for the node of rank r."""
Waits = tuple[tuple[int, Nodes], ...]
"""Of one publisher: the numbers of its messages, ascending, and who must wait for each. A node is in one set only."""
Lists = dict[int, Waits]
"""By publisher."""
Known = dict[int, int]
"""The last message of each publisher that is known to be delivered somewhere."""

_ANSWERS_KEPT = 16
_written = msgspec.msgpack.Encoder()
_read = msgspec.msgpack.Decoder(list[tuple[int, int, bytes]])


class Targets:
    """The members of every group. One object for all nodes of a run."""

    def __init__(self, routes: Routes, groups: Mapping[Topic, tuple[NodeId, ...]] | None) -> None:
        self.everyone: Nodes = (1 << len(routes.nodes)) - 1
        self._members = {
            topic: nodes_of(routes.rank[member] for member in members) for topic, members in (groups or {}).items()
        }

    def of(self, topic: Topic) -> Nodes:
        return self._members.get(topic, self.everyone)


def nodes_of(ranks: Iterable[int]) -> Nodes:
    found = 0
    for rank in ranks:
        found |= 1 << rank
    return found


class Header(Encoded):
    """The barriers of all nodes, as they travel with one message."""

    __slots__ = ("_data", "_highest", "_known", "entries", "lists")

    def __init__(self, lists: Lists) -> None:
        self.lists = lists
        self.entries = sum([nodes.bit_count() for waits in lists.values() for _, nodes in waits])
        """Of the lists of all nodes together."""
        self._known: list[tuple[Known, Known]] = []
        self._data: bytes | None = None
        self._highest: tuple[int, int] | None = None

    def fits(self, everyone: Nodes) -> bool:
        """Whether it speaks of these nodes only."""
        if self._highest is None:
            sets = [nodes for waits in self.lists.values() for _, nodes in waits]
            self._highest = max(self.lists, default=0), max(sets, default=0)
        publisher, nodes = self._highest
        # A rank from the wire may be astronomical: it must not become a set of its own.
        return publisher < everyone.bit_length() and nodes <= everyone

    def known_after(self, known: Known, publisher: int, number: int) -> Known:
        """CBR-B5: what is known to be delivered at the publisher, after its message of that number with this header.

        Whoever knew the same before shares the answer, if it was asked for lately.
        """
        for before, after in self._known:
            if before is known:
                return after
        after = known | {other: max(known.get(other, 0), waits[-1][0]) for other, waits in self.lists.items()}
        after[publisher] = max(number, after.get(publisher, 0))
        self._known = [*self._known[1 - _ANSWERS_KEPT :], (known, after)]
        return after

    def encoded(self) -> bytes:
        if self._data is None:
            rows = [
                (publisher, number, nodes.to_bytes((nodes.bit_length() + 7) // 8, "little"))
                for publisher, waits in sorted(self.lists.items())
                for number, nodes in waits
            ]
            self._data = _written.encode(rows)
        return self._data

    @classmethod
    def decoded(cls, data: bytes) -> Self:
        lists: Lists = {}
        for publisher, number, packed in _read.decode(data):
            nodes, waits = int.from_bytes(packed, "little"), lists.get(publisher, ())
            apart = all(number > before and not nodes & others for before, others in waits)
            if publisher < 0 or number < 1 or not nodes or not apart:
                raise ValueError("barriers that make no sense")
            lists[publisher] = (*waits, (number, nodes))
        return cls(lists)

    def frozen(self) -> Hashable:
        return self.encoded()


class Data(Numbered, frozen=True, tag=1):
    """A message on its way along the tree."""

    carries: ClassVar[str | None] = "message"

    message: Message
    header: Header


def within(waits: Waits, nodes: Nodes) -> Waits:
    """The barriers of these nodes."""
    if len(waits) == 1:
        number, others = waits[0]
        both = others & nodes
        return waits if both == others else ((number, both),) if both else ()
    return tuple([(number, both) for number, others in waits if (both := others & nodes)])


def replaced(mine: Waits, theirs: Waits, targets: Nodes) -> Waits:
    """CBR-B3: what a delivered message itself waits for at a target need not be waited for again there."""
    if mine == theirs:
        return within(mine, ~targets)
    found = []
    for number, nodes in mine:
        left = nodes
        for implied, others in theirs:
            if implied >= number:
                left ^= left & others & targets
        if left:
            found.append((number, left))
    return tuple(found)


def handed_on(mine: Waits, theirs: Waits, nodes: Nodes) -> Waits:
    """CBR-B4: of the barriers that these nodes have here and there, the later ones; what others have here stays."""
    if not mine:
        return within(theirs, nodes)
    if mine == theirs:
        return mine
    found = dict(mine)
    for number, others in theirs:
        news = others & nodes
        for before, same in mine:
            if before >= number:
                news &= ~same
            elif same & news:
                found[before] &= ~news
        if news:
            found[number] = found.get(number, 0) | news
    return tuple([(number, others) for number, others in sorted(found.items()) if others])


def added(mine: Waits, number: int, nodes: Nodes) -> Waits:
    """CBR-B1, CBR-B3: these nodes have to wait for this message of the publisher, if not for a later one."""
    return handed_on(mine, ((number, nodes),), nodes)


def pruned(mine: Waits, number: int, node: Nodes) -> Waits:
    """CBR-B5: one node has delivered the messages up to this number."""
    left = [(n, nodes if n > number else nodes & ~node) for n, nodes in mine]
    return tuple([(n, nodes) for n, nodes in left if nodes])
