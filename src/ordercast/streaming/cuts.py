"""Arithmetic of positions: offsets of a streaming query are positions, and micro-batches lie between two of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from ordercast.api import Position
from ordercast.core.ids import Topic
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
    return sum(max(0, number - start.get(origin, 0)) for origin, number in end.items())


def join(one: Vector, other: Vector) -> Vector:
    """Everything that is in one of the two."""
    return {origin: max(one.get(origin, 0), other.get(origin, 0)) for origin in one | other}


def joined(one: Position, other: Position) -> Position:
    """Everything that is in one of the two: closed, if both are."""
    return Position({Topic(t): join(one.of(t), other.of(t)) for t in {*one.topics, *other.topics}})


def behind(start: Vector, messages: Iterable[Publication]) -> Vector:
    """The cut behind messages that were read from `start` on, in their order."""
    reached = dict(start)
    for message in messages:
        reached[message.origin] = message.number
    return reached


def parts_of(start: Vector, end: Vector, count: int) -> list[tuple[Vector, Vector]]:
    """About equal parts of what lies between two cuts: each takes its share of every publisher's numbers."""
    spans = {origin: (start.get(origin, 0), max(0, number - start.get(origin, 0))) for origin, number in end.items()}
    inner = [{origin: low + span * i // count for origin, (low, span) in spans.items()} for i in range(1, count)]
    return [(low, high) for low, high in pairwise([start, *inner, end]) if between(low, high)]
