"""What clients publish, as brokers pass it on and clients receive it."""

from __future__ import annotations

import msgspec

from ordercast.core.ids import NodeId, Origin, Topic, publisher_of
from ordercast.core.messages import Guarantee

BESIDES_PAYLOAD = 256
"""What a publication weighs besides its payload, about: a million empty ones take memory too."""

PublicationId = tuple[Origin, int]
"""Identifies a publication within its topic."""


class Publication(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One publication. `origin` (client and session) and `number` (from 1, no gaps, per topic) identify it in `topic`.

    In a broker's log a publication with guarantee `total` is a committed one.
    """

    origin: Origin
    number: int
    topic: Topic
    payload: bytes
    guarantee: Guarantee = Guarantee.CAUSAL
    keys: tuple[str, ...] = ()
    """No repeats. A publication without a key of its own carries the key ""; a void has none at all."""
    published_ns: int = 0
    """When its client published it; for measurements only."""

    @property
    def id(self) -> str:
        """The message id as traces and people write it."""
        return f"{self.origin}/{self.topic}#{self.number}"

    @property
    def weight(self) -> int:
        """Bytes that it takes in a broker's memory, about."""
        return len(self.payload) + BESIDES_PAYLOAD

    @property
    def is_void(self) -> bool:
        """BRK-V1: it only takes the place of a number that never comes, and is handed to no application."""
        return not self.keys

    @property
    def publisher(self) -> NodeId:
        return publisher_of(self.origin)

    @property
    def key(self) -> str:
        """The first key item."""
        return self.keys[0] if self.keys else ""

    @property
    def dst(self) -> tuple[NodeId, ...]:
        """Publications go to the members of their topic, never to named destinations."""
        return ()


def void(origin: Origin, number: int, topic: Topic) -> Publication:
    """BRK-V1: what stands for a publication that will never come."""
    return Publication(origin, number, topic, b"", Guarantee.EVENTUAL)
