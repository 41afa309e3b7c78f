"""Makes equal states of LoCaMu nodes equal, whatever the order in which a node first heard of streams.

Only where every past travels whole. With sessions on its links (LCM-H3), the other ends know streams and shapes by
names that this node gave them, and these are part of its state.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from ordercast.core.state import State, freeze
from ordercast.protocols.locamu.held import HeldCopies
from ordercast.protocols.locamu.neighbourhood import Neighbourhood
from ordercast.protocols.locamu.rounds import ACK_EVERY, Rounds
from ordercast.protocols.locamu.store import Copy, Entry, MessageStore
from ordercast.protocols.locamu.streams import Streams
from ordercast.protocols.locamu.vectors import plain

_TOLD_APART: dict[str, frozenset[str]] = {
    "streams": frozenset({"index", "keys", "values", "shapes"}),
    "store": frozenset({"entries"}),
    "held": frozenset({"copies"}),
    "waiting": frozenset({"complete", "queues"}),
    "rounds": frozenset({"changes", "told", "last_told"}),
}


def canonical(
    parts: Mapping[str, State],
    here: Neighbourhood,
    streams: Streams,
    store: MessageStore,
    held: HeldCopies,
    rounds: Rounds,
) -> Hashable:
    """The state without the names that the node uses among its own.

    Of the changes that are not acknowledged yet it tells who has not heard of them, and their number only roughly:
    nothing depends on it as long as they are much fewer than are acknowledged at once. For which of its missing
    acknowledgements a message waits first (LCM-S4) decides nothing either.
    """
    others = tuple([
        (name, attribute, freeze(value))
        for name, part in sorted(parts.items())
        for attribute, value in sorted(vars(part).items())
        if attribute not in part.constant and attribute not in _TOLD_APART.get(name, ())
    ])  # fmt: skip
    return (
        others,
        _past(streams.keys, streams.values),
        tuple([(number, _entry(streams.keys, entry)) for number, entry in sorted(store.entries.items())]),
        frozenset((key, copy.sender, _copy(copy)) for key, copy in held.copies.items()),
        frozenset(peer for peer in here.linked if rounds.told.get(peer, 0) < rounds.changes),
        (rounds.changes - rounds.last_told) // (ACK_EVERY // 2),
    )


def _past(keys: Sequence[int], values: Sequence[int]) -> Hashable:
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
