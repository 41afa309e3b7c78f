"""Proofs that a broker of this cluster has said something, which its clients keep and show to other brokers.

A client's memory repairs the tree (decision 9), so brokers must be able to believe it, and a client must not be able to
make things up (decision 13). A seal is a keyed hash: all brokers of a cluster know the key and nobody else does.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from hashlib import blake2b
from hmac import compare_digest
from typing import Any

import msgspec

from ordercast.core.ids import Origin, Topic
from ordercast.core.state import Value
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Vector

SEAL_BYTES = 16
NO_SEAL = bytes(SEAL_BYTES)
"""Stands where a client has none; proves nothing."""
_encode = msgspec.msgpack.Encoder().encode


def seal_key(secret: str, cluster: str) -> bytes:
    """The key of the brokers that share the secret; empty where there is none."""
    return blake2b(cluster.encode(), key=blake2b(secret.encode()).digest(), person=b"seals").digest() if secret else b""


def cut(seals: bytes, count: int) -> list[bytes]:
    """The seals of so many things, one each; of none at all if it is another number of them."""
    if len(seals) != count * SEAL_BYTES:
        return []
    return [seals[start : start + SEAL_BYTES] for start in range(0, len(seals), SEAL_BYTES)]


class Seals(Value):
    """Seals with one key, and believes what is sealed with it. Without a key everybody is believed."""

    __slots__ = ("_key", "_keyed")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._keyed = blake2b(key=key, digest_size=SEAL_BYTES) if key else None

    def frozen(self) -> Hashable:
        return self._key

    def __bool__(self) -> bool:
        return self._keyed is not None

    def _seal(self, fact: Any) -> bytes:
        assert self._keyed is not None
        state = self._keyed.copy()
        state.update(_encode(fact))
        return state.digest()

    def of_entries(self, entries: Sequence[Publication]) -> bytes:
        """A seal for each: it was in a broker's log, as it is here."""
        return b"".join(map(self._seal, entries))

    def of_base(self, topic: Topic, base: Vector) -> bytes:
        """A seal for each publisher in the order of the vector: everything up to this number of it is stable."""
        return b"".join(self._seal((topic, *known)) for known in base.items())

    def of_ticket(self, origin: Origin) -> bytes:
        """BRK-F1: a broker has given this session its ticket. Nothing without a key."""
        return self._seal(("ticket", origin)) if self._keyed is not None else b""

    def proves_ticket(self, origin: Origin, seal: bytes) -> bool:
        return self._keyed is None or compare_digest(self._seal(("ticket", origin)), seal)

    def proven_entries(self, entries: Sequence[Publication], seals: bytes) -> tuple[Publication, ...]:
        """The entries whose seals are right, in order."""
        if self._keyed is None:
            return tuple(entries)
        said = cut(seals, len(entries))
        return tuple(
            entry for entry, seal in zip(entries, said, strict=False) if compare_digest(self._seal(entry), seal)
        )

    def proven_base(self, topic: Topic, base: Vector, seals: bytes) -> Vector:
        """The part of the vector whose seals are right."""
        if self._keyed is None:
            return base
        said = zip(base.items(), cut(seals, len(base)), strict=False)
        return {known[0]: known[1] for known, seal in said if compare_digest(self._seal((topic, *known)), seal)}
