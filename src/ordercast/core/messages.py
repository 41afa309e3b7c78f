"""Messages (what applications exchange), packets (what nodes exchange) and guarantees."""

from __future__ import annotations

import enum
from typing import ClassVar

import msgspec

from ordercast.core.ids import NodeId, Origin, Topic, publisher_of


class Guarantee(enum.IntEnum):
    """The promise made for a message. Small integers, because every header carries one."""

    EVENTUAL = 0
    FIFO = 1
    CAUSAL = 2
    TOTAL = 3
    ATOMIC = 4
    OPTIMISTIC_CAUSAL = 5

    @property
    def label(self) -> str:
        """The name users write."""
        return _LABELS[self]


_LABELS = {guarantee: guarantee.name.lower().replace("_", "-") for guarantee in Guarantee}
"""Made once: every row of a trace has one."""
GUARANTEES = {guarantee.label: guarantee for guarantee in Guarantee}


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One publication. `origin` and `number` (from 1, no gaps) identify it for ever."""

    origin: Origin
    number: int
    topic: Topic
    payload: bytes
    guarantee: Guarantee = Guarantee.EVENTUAL
    keys: tuple[str, ...] = ()
    dst: tuple[NodeId, ...] = ()
    """Explicit destinations; empty means the subscribers of the topic."""

    @property
    def key(self) -> tuple[Origin, int]:
        """What no other message has."""
        return self.origin, self.number

    @property
    def id(self) -> str:
        """The message id as traces and people write it."""
        return f"{self.origin}#{self.number}"

    @property
    def publisher(self) -> NodeId:
        return publisher_of(self.origin)


class Packet(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of what travels between nodes. A protocol lists its packet types; the tag is the type's name on the wire.

    Subclasses set `tag` to a small integer, unique within their protocol.
    """

    carries: ClassVar[str | None] = None
    """Name of the field that holds the Message, for packets that carry one."""
    model_bytes: ClassVar[int | None] = None
    """Of packets without a message: their size as the protocol's source counts it, if it does."""
