"""The clock of CBCAST, one vector for each group, and how it travels: as what differs from the clock sent before.

Spec: docs/protocols/cbcast.md (C5). A clock and its vectors are never changed, only replaced, so that messages, links
and buffers share them.
"""

from __future__ import annotations

from typing import ClassVar

from ordercast.core.messages import Message
from ordercast.core.state import State
from ordercast.protocols.links import Numbered

Vector = dict[int, int]
"""How many messages each node has published to one group; nodes with none are left out."""
Clock = dict[int, Vector]
"""By the number of the group; groups without messages are left out."""
Changes = tuple[tuple[int, ...], ...]
"""Per group that differs: its number, then node and difference of each entry, one after the other."""

_NOTHING: Vector = {}


class Data(Numbered, frozen=True, tag=1):
    """A message on its way along the tree."""

    carries: ClassVar[str | None] = "message"

    message: Message
    clock: Changes
    """Against the clock of the packet before on this link, or, without compression, against the empty clock."""


class Incoming(State):
    """The receiving end of a link with compression: packets are read in the order in which they were numbered."""

    durable: ClassVar[tuple[str, ...]] = ("next", "clock", "early")

    def __init__(self) -> None:
        self.next = 1
        self.clock: Clock = {}
        self.early: dict[int, Data] = {}


def differences(clock: Clock, reference: Clock) -> Changes:
    """C5: all entries in which two clocks differ, to the larger or to the smaller."""
    changes: list[tuple[int, ...]] = []
    for group in sorted({**reference, **clock}):
        new, old = clock.get(group, _NOTHING), reference.get(group, _NOTHING)
        if new is old:
            continue
        nodes = [node for node, count in new.items() if old.get(node) != count]
        if len(old) + len(nodes) > len(new):
            nodes += [node for node in old if node not in new]
        nodes.sort()
        if nodes:
            pairs = [part for node in nodes for part in (node, new.get(node, 0) - old.get(node, 0))]
            changes.append((group, *pairs))
    return tuple(changes)


def assigned(changes: Changes, reference: Clock) -> Clock:
    """C5: the clock that `differences` was given. Assigned, not the maximum: an entry can be smaller than before."""
    clock = reference.copy()
    for change in changes:
        group = change[0]
        vector = clock.pop(group, _NOTHING).copy()
        for i in range(1, len(change) - 1, 2):
            count = vector.get(change[i], 0) + change[i + 1]
            if count:
                vector[change[i]] = count
            else:
                vector.pop(change[i], None)
        if vector:
            clock[group] = vector
    return clock


def merged(one: Vector, other: Vector) -> Vector:
    """The larger of each entry; one of the two themselves where that is enough."""
    news = {node: count for node, count in other.items() if count > one.get(node, 0)}
    return {**one, **news} if news else one
