"""Arithmetic of positions: offsets of a streaming query are positions, and micro-batches lie between two of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from ordercast.api import Position
from ordercast.core.ids import Topic
from ordercast.pubsub.closed import Closed
from ordercast.pubsub.cuts import CutSet, closed_in, plain, union
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Vector


def offset_of(position: Position, *, across: bool) -> dict[str, str]:
    """The position as Spark keeps it in a checkpoint. `closed` says what the cut is closed across, for people."""
    return {"position": str(position), "closed": "all topics" if across else "each topic"}


def position_of(offset: Mapping[str, Any]) -> Position:
    """The position from which `offset_of` made this offset; a UsageError if it is none."""
    return Position.parse(str(offset.get("position", "")))


def size(start: Position, end: Position) -> int:
    """How many numbers of publishers lie between two positions, at least 0."""
    return sum(between(start.of(topic), end.of(topic)) for topic in end.topics)


def between(start: Vector, end: Vector) -> int:
    """How many numbers lie between two cuts. A session that is closed in the end alone counts as one: nobody knows."""
    tickets = sum(sum(bounds[1::2]) - sum(bounds[::2]) for bounds in newly_closed(start, end).values())
    return counted(start, end) + tickets


def counted(start: Vector, end: Vector) -> int:
    """How many numbers lie between two cuts, of sessions that are not closed."""
    has = CutSet(start)
    return sum(max(0, number - has.upto(origin)) for origin, number in plain(end).items())


def newly_closed(start: Vector, end: Vector) -> Closed:
    """Sessions that are closed in the end, of issuers of whom not all of them are at the start."""
    has, closed = CutSet(start), closed_in(end)
    return {issuer: bounds for issuer, bounds in closed.items() if not has.closed.has_all({issuer: bounds})}


def join(one: Vector, other: Vector) -> Vector:
    """Everything that is in one of the two."""
    return union(one, other)


def joined(one: Position, other: Position) -> Position:
    """Everything that is in one of the two: closed, if both are."""
    return Position({Topic(t): join(one.of(t), other.of(t)) for t in {*one.topics, *other.topics}})


def behind(start: Vector, messages: Iterable[Publication]) -> Vector:
    """The cut behind messages that were read from `start` on, in their order."""
    return union(start, {message.origin: message.number for message in messages})


def parts_of(start: Vector, end: Vector, count: int) -> list[tuple[Vector, Vector]]:
    """About equal parts of what lies between two cuts: each takes its share of every publisher's numbers."""
    spans = {origin: (start.get(origin, 0), max(0, number - start.get(origin, 0))) for origin, number in end.items()}
    shares = [{origin: low + span * i // count for origin, (low, span) in spans.items()} for i in range(1, count)]
    inner = [union(start, share) for share in shares]
    return [(low, high) for low, high in pairwise([start, *inner, end]) if between(low, high)]
