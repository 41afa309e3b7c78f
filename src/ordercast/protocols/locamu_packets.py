"""Packets of LoCaMu and what is in them: vectors of numbers, pasts, and acknowledgements.

Spec: docs/protocols/locamu.md (H1 to H5). Nodes travel as ranks, numbers as differences where both ends know the
reference: small integers, which take one byte each.
"""

from __future__ import annotations

from typing import ClassVar

from ordercast.core.messages import Message, Packet

Vector = tuple[int, tuple[int, ...], tuple[int, ...]]
"""H1: who numbered (twice its rank, and 1 more if the vector came late), the numbered nodes, and their numbers."""
Past = dict[int, int]
"""H2: the highest number of each stream; stream (a, l) is a times the number of nodes plus l."""
Columns = tuple[tuple[int, ...], ...]
"""Streams by their first node: its rank, then second node and number of each."""


class Data(Packet, frozen=True, tag=1):
    """A copy of a message, with the header of the node that forwarded it last."""

    carries: ClassVar[str | None] = "message"

    message: Message
    """Without its payload for nodes beside the route."""
    forwarder: int
    """Whose vector ends the list and whose past is attached: the sender, unless this is a proxy copy."""
    depth: int
    """How far off the route the forwarder is."""
    vectors: tuple[Vector, ...]
    """Oldest first. Nodes between that are not named were skipped."""
    past: Columns
    session: int = 0
    """0: the past is whole. Otherwise it is what changed since the last copy of this session (H3)."""
    number: int = 0


class Alias(Packet, frozen=True, tag=2):
    """Names of a message that the receiver may know under another one; never delivers anything."""

    vectors: tuple[Vector, ...]


class Ack(Packet, frozen=True, tag=3):
    """What its sender has processed, and what it lacks."""

    columns: Columns
    """Per forwarder: its rank, how far the stream from it to the sender is processed without gap, and what beyond."""
    need: bool = False
    """A copy waits for something."""
    ask: int = 0
    """The receiver is to answer this round of the sender with its own; 0: it need not."""
    reply: int = 0
    """The round that this answers."""
    reset: bool = False
    """The reference of the receiver's session is lost: begin a new one."""
    floors: tuple[int, ...] = ()
    """For a direct neighbour: forwarder and prefix, one after the other (D2)."""
    sent: int = 0
    """For a direct neighbour: how many messages were numbered for it; the fence of the floors."""


def to_columns(past: Past, streams: list[int], reference: Past, size: int) -> Columns:
    """H3: the given streams of `past` as differences to `reference`."""
    columns: dict[int, list[int]] = {}
    for stream in streams:
        value = past[stream] - reference.get(stream, 0)
        if not value:
            continue
        first, second = divmod(stream, size)
        column = columns.get(first)
        if column is None:
            columns[first] = [first, second, value]
        else:
            column.append(second)
            column.append(value)
    return tuple([tuple(column) for column in columns.values()])


def from_columns(columns: Columns, reference: Past, size: int) -> tuple[Past, list[int]]:
    """The past that `to_columns` was given, and which streams differ from the reference."""
    past = reference.copy()
    changed: list[int] = []
    for column in columns:
        row = column[0] * size
        for i in range(1, len(column), 2):
            stream = row + column[i]
            past[stream] = past.get(stream, 0) + column[i + 1]
            changed.append(stream)
    return past, changed
