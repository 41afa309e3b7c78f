"""Updates and how they are stamped. docs/protocols/cluster.md, CLU-1.

An *entry value* is one integer: the epoch (who owns the entry) above the number of the update in it, so that values of
one entry compare as integers. The *key* of an update is its entry value above its entry: unique for ever.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ordercast.core.messages import Message
from ordercast.protocols.gossip.members import ADDRESS_CHARS

ENTRY_BITS, SEQ_BITS, EPOCH_BITS = 11, 26, 26
MAX_ENTRIES = 1 << ENTRY_BITS
MAX_SEQ = (1 << SEQ_BITS) - 1
MAX_EPOCH = (1 << EPOCH_BITS) - 1
ENTRY_MASK = MAX_ENTRIES - 1

ABSENT = -1
"""`prev` of an update that is not the first of its epoch."""

Value = Annotated[int, msgspec.Meta(ge=0)]
"""Epoch and number of an entry; 0: nothing yet."""
Vector = tuple[Value, ...]
Range = tuple[int, Value, Value]
"""Of an entry: everything above the first value, up to the second one."""


def value_of(epoch: int, seq: int) -> Value:
    return epoch << SEQ_BITS | seq


def epoch_of(value: Value) -> int:
    return value >> SEQ_BITS


def seq_of(value: Value) -> int:
    return value & MAX_SEQ


def key_of(entry: int, value: Value) -> int:
    return value << ENTRY_BITS | entry


def split(key: int) -> tuple[int, Value]:
    """The entry and the value of the update with this key."""
    return key & ENTRY_MASK, key >> ENTRY_BITS


class Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """CLU-1: an update of an object of the cluster. `vector` covers everything that its creator knew, and itself."""

    key: Value
    vector: Vector
    prev: Annotated[int, msgspec.Meta(ge=ABSENT)]
    """Of the first update of an epoch: the value of the entry that its creator knew. Else ABSENT."""
    creator: str
    """Where its creator listens: who is asked for it first."""
    message: Message

    @property
    def entry(self) -> int:
        return self.key & ENTRY_MASK

    @property
    def value(self) -> Value:
        return self.key >> ENTRY_BITS

    @property
    def before(self) -> Value:
        """The value of its entry that comes right before it."""
        return self.prev if self.prev != ABSENT else self.value - 1


def epoch_key(key: int) -> int:
    """The entry and the epoch of the update with this key, as one number."""
    return key >> ENTRY_BITS + SEQ_BITS << ENTRY_BITS | key & ENTRY_MASK


def causal_order(event: Event) -> tuple[int, int]:
    """CLU-1.5: to sort by. What happened before comes first, and what did not is sorted the same way everywhere."""
    return sum(event.vector), event.key


def missing(event: Event, clock: list[Value]) -> list[Range]:
    """CLU-1.4: ranges that hold every update before this one that the clock does not cover."""
    entry, vector = event.entry, event.vector
    return [
        (i, known, high) for i, known in enumerate(clock) if known < (high := event.before if i == entry else vector[i])
    ]


def can_be(event: Event, cluster: str, entries: int) -> bool:
    """CLU-8: whether a correct process can have made the update."""
    key, vector, prev = event.key, event.vector, event.prev
    entry, value = key & ENTRY_MASK, key >> ENTRY_BITS
    if len(vector) != entries or entry >= entries or vector[entry] != value:
        return False
    if event.message.topic != cluster or not 0 < len(event.creator) <= ADDRESS_CHARS:
        return False
    seq = value & MAX_SEQ
    return seq > 1 if prev == ABSENT else seq == 1 and 0 <= prev >> SEQ_BITS < value >> SEQ_BITS
