"""Packets of LoCaMu and what is in them: vectors of numbers, pasts, and acknowledgements.

Spec: docs/protocols/locamu.md (LCM-H1 to LCM-H5). Headers are flat lists of small integers, which take one byte each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from ordercast.core.messages import Message, Packet

SECOND_BITS = 20
"""A stream (a, l) is known by one integer: a, then l in so many bits."""
SECOND = (1 << SECOND_BITS) - 1

MOST_NUMBERS = 4_096
"""So many numbers an alias has at most, unless it names only one message."""

Plain = tuple[int, tuple[int, ...], tuple[int, ...]]
"""LCM-H1: a vector: who numbered (twice its rank, and 1 more if it came late), whom, and with which numbers."""
Columns = tuple[tuple[int, ...], ...]
"""Of an acknowledgement, per forwarder: its rank, the prefix of its stream, and what was processed beyond, in runs."""


class Data(Packet, frozen=True, tag=1):
    """A copy of a message, with the header of the node that forwarded it last."""

    carries: ClassVar[str | None] = "message"

    message: Message
    """Without its payload for nodes beside the route."""
    session: int
    """0: the header stands for itself (`Whole`). Otherwise it goes on from the copy before in this session (LCM-H3).

    Negative: of copies that are sent again together (LCM-H8).
    """
    number: int
    header: tuple[int, ...]


class Alias(Packet, frozen=True, tag=2):
    """Names of messages that the receiver may know under others; never delivers anything."""

    names: tuple[int, ...]
    """See `flat_names`."""


class Ack(Packet, frozen=True, tag=3):
    """An acknowledgement: what its sender has processed, and what it lacks."""

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
    """For a direct neighbour: forwarder and prefix, one after the other (LCM-D2)."""
    sent: int = 0
    """For a direct neighbour: how many messages were numbered for it; the fence of the floors."""


class Notice(Data, frozen=True, tag=4):
    """A copy of a message of the protocol itself: no application sees it."""

    carries: ClassVar[str | None] = None


class Whole:
    """A header that stands for itself: forwarder, depth, epoch, number of vectors, the vectors, then the past.

    A vector is its flagged forwarder, the number of nodes, the nodes, the numbers; the past is, per first node of its
    streams, that node, the number of streams, and second node and number of each.
    """

    __slots__ = ("depth", "epoch", "forwarder", "past", "vectors")

    def __init__(
        self, forwarder: int, depth: int, epoch: int, vectors: Sequence[Plain], past: Iterable[tuple[int, int]]
    ) -> None:
        self.forwarder = forwarder
        """Whose vector ends the list and whose past is attached: the sender, unless this is a proxy copy."""
        self.depth = depth
        """How far off the route the forwarder is."""
        self.epoch = epoch
        """Which list of the group's members the message goes by."""
        self.vectors = vectors
        """Oldest first. Nodes between that are not named were skipped."""
        self.past = past
        """Streams and numbers."""

    def flat(self) -> tuple[int, ...]:
        columns: dict[int, list[int]] = {}
        for stream, number in sorted(self.past):
            columns.setdefault(stream >> SECOND_BITS, []).extend((stream & SECOND, number))
        header = [self.forwarder, self.depth, self.epoch, len(self.vectors), *flat_vectors(self.vectors)]
        for first, column in columns.items():
            header += (first, len(column) // 2, *column)
        return tuple(header)

    @classmethod
    def read(cls, header: tuple[int, ...]) -> Whole:
        """Raises ValueError if the header makes no sense."""
        if len(header) < 4 or min(header) < 0:
            raise ValueError("not a whole header")
        forwarder, depth, epoch, count = header[:4]
        vectors, at = read_vectors(header, 4, count)
        past: list[tuple[int, int]] = []
        while at < len(header):
            first, end = header[at], at + 2 + 2 * _item(header, at + 1)
            if end > len(header):
                raise ValueError("a past that is cut off")
            past += [(first << SECOND_BITS | header[i], header[i + 1]) for i in range(at + 2, end, 2)]
            at = end
        return cls(forwarder, depth, epoch, vectors, past)


def flat_vectors(vectors: Iterable[Plain]) -> list[int]:
    flat: list[int] = []
    for flagged, nodes, numbers in vectors:
        flat += (flagged, len(nodes), *nodes, *numbers)
    return flat


def read_vectors(flat: tuple[int, ...], at: int, count: int) -> tuple[list[Plain], int]:
    """So many vectors from there on, and where they end; ValueError if they are cut off."""
    vectors: list[Plain] = []
    for _ in range(count):
        size = _item(flat, at + 1)
        middle, end = at + 2 + size, at + 2 + 2 * size
        if size < 0 or end > len(flat):
            raise ValueError("vectors that are cut off")
        vectors.append((flat[at], flat[at + 2 : middle], flat[middle:end]))
        at = end
    return vectors, at


def flat_names(messages: Sequence[Sequence[Plain]]) -> tuple[int, ...]:
    """The vectors of several messages, of which most differ little from one to the next.

    First the number of kinds of vectors, and of each its flagged forwarder, the number of nodes, and the nodes. Then
    per message the number of its vectors, and of each twice its kind and by how much its numbers exceed those of the
    last of its kind: a difference of all of them, or, with 1 more than twice the kind, a difference each.
    """
    kinds: dict[tuple[int, tuple[int, ...]], int] = {}
    last: list[tuple[int, ...]] = []
    head: list[int] = []
    body: list[int] = []
    for vectors in messages:
        body.append(len(vectors))
        for flagged, nodes, numbers in vectors:
            kind = kinds.setdefault((flagged, nodes), len(kinds))
            if kind == len(last):
                head += (flagged, len(nodes), *nodes)
                last.append((0,) * len(nodes))
            steps = [number - before for number, before in zip(numbers, last[kind], strict=True)]
            last[kind] = numbers
            if len(set(steps)) == 1:
                body += (2 * kind, steps[0])
            else:
                body += (2 * kind + 1, *steps)
    return (len(kinds), *head, *body)


def read_names(flat: tuple[int, ...]) -> list[list[Plain]]:
    """The names that `flat_names` was given; ValueError if they make no sense."""
    kinds: list[tuple[int, tuple[int, ...]]] = []
    at = 1
    if _item(flat, 0) < 0:
        raise ValueError("fewer kinds of vectors than none")
    for _ in range(flat[0]):
        end = at + 2 + _item(flat, at + 1)
        if not at + 2 <= end <= len(flat):
            raise ValueError("a kind of vectors that is cut off")
        kinds.append((flat[at], flat[at + 2 : end]))
        at = end
    last = [(0,) * len(nodes) for _, nodes in kinds]
    messages: list[list[Plain]] = []
    room = max(MOST_NUMBERS, len(flat))  # Little can stand for much.
    while at < len(flat):
        count, at = flat[at], at + 1
        if not 0 <= count <= len(kinds):
            raise ValueError("more names than there can be")
        vectors: list[Plain] = []
        for _ in range(count):
            kind, each = divmod(_item(flat, at), 2)
            if not 0 <= kind < len(kinds):
                raise ValueError("a vector of no kind")
            flagged, nodes = kinds[kind]
            room -= len(nodes)
            if room < 0:
                raise ValueError("more numbers than there can be")
            steps = flat[at + 1 : at + 1 + len(nodes)] if each else (_item(flat, at + 1),) * len(nodes)
            last[kind] = tuple([step + before for step, before in zip(steps, last[kind], strict=True)])
            vectors.append((flagged, nodes, last[kind]))
            at += 1 + (len(nodes) if each else 1)
        messages.append(vectors)
    return messages


def _item(flat: tuple[int, ...], at: int) -> int:
    if at >= len(flat):
        raise ValueError("a header that is cut off")
    return flat[at]
