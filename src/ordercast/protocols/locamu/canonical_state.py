"""When two states of a LoCaMu node are the same: in which order it first heard of streams makes no difference.

Only where every past travels whole. With sessions on its links (H3), the other ends know streams and shapes by names
that this node gave them, and these are part of its state.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from ordercast.core.state import freeze
from ordercast.protocols.locamu.store import Copy, Entry
from ordercast.protocols.locamu.streams import Past, plain

if TYPE_CHECKING:
    from ordercast.protocols.locamu.machine import Locamu

_TOLD_HERE = frozenset({"streams", "shapes", "store", "buffer", "waiting", "changes", "told", "last_told"})


def nameless(node: Locamu, ack_every: int) -> Hashable:
    """The state without the names that the node uses among its own.

    Of the changes that are not acknowledged yet it tells who has not heard of them, and their number only roughly:
    nothing depends on it as long as they are much fewer than `ack_every`. For which of its missing acknowledgements a
    message waits first (S4) decides nothing either.
    """
    keys = node.streams.keys
    others = tuple(
        (name, freeze(value))
        for name, value in sorted(vars(node).items())
        if name not in node.constant and name not in _TOLD_HERE
    )
    return (
        others,
        _past(keys, node.streams.values),
        tuple([(number, _entry(keys, entry)) for number, entry in sorted(node.store.items())]),
        frozenset((key, copy.sender, _copy(copy)) for key, copy in node.buffer.items()),
        (freeze(node.waiting.known), freeze(node.waiting.beyond), freeze(node.waiting.moved)),
        frozenset(peer for peer in node.linked if node.told.get(peer, 0) < node.changes),
        (node.changes - node.last_told) // (ack_every // 2),
    )


def _past(keys: Sequence[int], values: Past | list[int]) -> Hashable:
    return frozenset(pair for pair in zip(keys, values, strict=False) if pair[1])


def _copy(copy: Copy) -> Hashable:
    named = (copy.message.id, copy.forwarder, copy.depth, copy.epoch)
    return named, tuple(plain(copy.vectors)), _past(copy.keys, copy.past)


def _entry(keys: Sequence[int], entry: Entry) -> Hashable:
    return (
        (entry.message.id, entry.came, entry.depth, entry.epoch, entry.round),
        tuple(plain(entry.vectors)),
        _past(keys, entry.past),
        frozenset((forwarder, _copy(copy)) for forwarder, copy in entry.received.items()),
        frozenset(entry.names),
        frozenset(entry.given),
        freeze(entry.sent),
    )
