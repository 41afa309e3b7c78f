"""Publications that travel together: pieces that fit a packet, and runs of one publisher's next numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from ordercast.core.ids import Origin
from ordercast.pubsub.closed import ClosedSessions
from ordercast.pubsub.publications import Publication, carried_bytes
from ordercast.pubsub.received import Received

_CHARACTER_BYTES = 4
"""The most that one takes."""
_NUMBERS_BYTES = 40
"""Numbers and lengths of a publication on the wire, with room to spare."""


class PublisherRun(NamedTuple):
    """Publications of one publisher whose numbers follow each other without a gap."""

    origin: Origin
    first: int
    last: int
    payload_bytes: int
    """With their extras."""


def run_of(entries: Sequence[Publication]) -> PublisherRun | None:
    """The run that the entries are, in their order; None if they are none, or nothing at all."""
    if not follow_each_other(entries):
        return None
    return PublisherRun(entries[0].origin, entries[0].number, entries[-1].number, carried_bytes(entries))


def follow_each_other(entries: Sequence[Publication]) -> bool:
    """Whether they are of one publisher, and each has the number behind the one before it."""
    if not entries:
        return False
    origin, number = entries[0].origin, entries[0].number
    for entry in entries:
        if entry.number != number or entry.origin != origin:
            return False
        number += 1
    return True


def new_ones(
    have: Received, entries: Sequence[Publication], closed: ClosedSessions, *, in_a_row: bool
) -> Sequence[Publication]:
    """The entries that are not received yet; they are from now on. `in_a_row`: they follow each other.

    BRK-F7, BRK-F8: all of a closed session counts as received.
    """
    if in_a_row and entries[0].origin not in have.extras:
        origin = entries[0].origin
        low = have.low.get(origin, 0)
        if low == entries[0].number - 1 and (low or origin not in closed):
            have.low[origin] = entries[-1].number
            return entries
    add, lows = have.add, have.low
    if closed:
        entries = [entry for entry in entries if entry.origin in lows or entry.origin not in closed]
    return [entry for entry in entries if add(entry.origin, entry.number)]


def pieces(entries: Sequence[Publication], most: int, most_bytes: int) -> Iterator[tuple[Publication, ...]]:
    """The entries of one topic in order, in pieces of at most so many and about so many bytes (one may be larger)."""
    return (piece for piece, _ in weighed_pieces(entries, most, most_bytes))


def weighed_pieces(
    entries: Sequence[Publication], most: int, most_bytes: int
) -> Iterator[tuple[tuple[Publication, ...], int]]:
    """The same, each with the bytes that it carries."""
    start = carried = 0
    while start < len(entries):
        last = min(len(entries), start + most)
        piece: tuple[Publication, ...] = ()
        if len(entries[start].payload) * (last - start) <= most_bytes:  # Else they do not fit, or are very unlike.
            piece = tuple(entries[start:last])
            carried = carried_bytes(piece)
        if not piece or carried + _besides(piece) > most_bytes:
            piece = tuple(entries[start : _end_of_piece(entries, start, last, most_bytes)])
            carried = carried_bytes(piece)
        yield piece, carried
        start += len(piece)


def _end_of_piece(entries: Sequence[Publication], start: int, last: int, most_bytes: int) -> int:
    """The end of a piece that begins with `start`, at `last` at most."""
    size = 0
    for i in range(start, last):
        entry = entries[i]
        letters = len(entry.topic) + len(entry.origin) + len("".join(entry.keys))
        size += len(entry.payload) + _NUMBERS_BYTES + _CHARACTER_BYTES * letters
        if entry.extras is not None:
            size += entry.extras.weight
        if size > most_bytes and i > start:
            return i
    return last


def _besides(entries: Sequence[Publication]) -> int:
    """Their bytes on the wire besides what they carry, at most. Mostly all are alike, which is seen at a glance."""
    origins, keys = [entry.origin for entry in entries], [entry.keys for entry in entries]
    letters = len(entries[0].topic) * len(entries)
    letters += len(origins[0]) * len(origins) if _alike(origins) else sum(map(len, origins))
    letters += len("".join(keys[0])) * len(keys) if _alike(keys) else sum(map(len, chain.from_iterable(keys)))
    return _NUMBERS_BYTES * len(entries) + _CHARACTER_BYTES * letters


def _alike(things: Sequence[object]) -> bool:
    return things.count(things[0]) == len(things)
