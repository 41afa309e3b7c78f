"""Publications, as clients make them, brokers pass them on and clients receive them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId, Origin, Topic, plain_origin, publisher_of
from ordercast.core.messages import Guarantee
from ordercast.pubsub.extras import Extras
from ordercast.trace.moments import Moment, moment

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
    """When it was published, by its client's wall clock, in nanoseconds of the epoch; virtual time in a simulation."""
    extras: Extras | None = None
    """What few publications carry: headers, an end of life, and the like."""

    @property
    def id(self) -> str:
        """The message id as traces and people write it; no ticket is part of it (BRK-F1)."""
        return f"{plain_origin(self.origin)}/{self.topic}#{self.number}"

    @property
    def weight(self) -> int:
        """Bytes that it takes in a broker's memory, about."""
        return len(self.payload) + BESIDES_PAYLOAD + (self.extras.weight if self.extras is not None else 0)

    @property
    def headers(self) -> dict[bytes, bytes]:
        """The publisher's headers beside the payload; empty if there are none."""
        return dict(self.extras.headers) if self.extras is not None else {}

    @property
    def published_at(self) -> Moment:
        """The time of publication, by the clock of its publisher's machine."""
        return moment(self.published_ns)

    @property
    def expires_at(self) -> Moment | None:
        """From then on no subscriber is handed it any more; None: never."""
        return moment(self.extras.expires_ns) if self.extras is not None and self.extras.expires_ns else None

    @property
    def dedup(self) -> str:
        """The idempotence id that its publisher gave it, if any."""
        return self.extras.dedup if self.extras is not None else ""

    @property
    def is_void(self) -> bool:
        """BRK-V1: it only takes the place of a number that never comes, and is handed to no application."""
        return not self.keys

    @property
    def publisher(self) -> NodeId:
        """The client that published it."""
        return publisher_of(self.origin)

    @property
    def key(self) -> str:
        """The first key item."""
        return self.keys[0] if self.keys else ""

    def reply(self, payload: bytes, **options: Any) -> Any:  # noqa: ARG002
        """Answer a request; a message of which nobody waits for an answer raises a UsageError."""
        raise UsageError(f"{self.id}: nobody waits for an answer to it")

    @property
    def dst(self) -> tuple[NodeId, ...]:
        """Publications go to the members of their topic, never to named destinations."""
        return ()


def void(origin: Origin, number: int, topic: Topic) -> Publication:
    """BRK-V1: what stands for a publication that will never come."""
    return Publication(origin, number, topic, b"", Guarantee.EVENTUAL)


def carried_bytes(entries: Sequence[Publication]) -> int:
    """Payloads and extras of all of them together."""
    payloads = sum([len(entry.payload) for entry in entries])
    if not any_extras(entries):
        return payloads
    return payloads + sum([entry.extras.weight for entry in entries if entry.extras is not None])


def any_extras(entries: Sequence[Publication]) -> bool:
    """Whether one of them has any; mostly none has, and that is seen fast."""
    return [entry.extras for entry in entries].count(None) < len(entries)
