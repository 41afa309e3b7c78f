"""Chooses where the next micro-batch ends: at a closed position, within a limit if that is possible.

In one topic every beginning of a copy's order is closed, so that a limit is kept to the message. Nothing says where a
backlog of several topics could be cut: only the positions that were asked for while the query ran are known to be
closed across them. The next micro-batch ends at the last of those within the limit, or at the first beyond it.
"""

from __future__ import annotations

from ordercast.api import Position
from ordercast.core.ids import Topic
from ordercast.streaming import cuts
from ordercast.streaming.options import ReadOptions
from ordercast.streaming.reading import within

MOST_STEPS = 1024


class Ladder:
    """The positions closed across topics that lie ahead of a query, each behind the one before."""

    def __init__(self) -> None:
        self._steps: list[Position] = []

    def add(self, position: Position) -> None:
        if not self._steps or self._steps[-1] < position:
            self._steps.append(position)
        if len(self._steps) > MOST_STEPS:
            self._steps = [*self._steps[:-1:2], self._steps[-1]]  # Coarser, but as far as before.

    def next(self, start: Position, most: int) -> Position:
        """The end of the micro-batch that begins at `start`; `start` itself if there is nothing ahead."""
        self._steps = [step for step in self._steps if not step <= start]
        if not self._steps:
            return start
        fitting = [step for step in self._steps if not most or cuts.size(start, step) <= most]
        return fitting[-1] if fitting else self._steps[0]


def topic_by_topic(options: ReadOptions, start: Position, end: Position, most: int) -> Position:
    """A position on the way to `end` that is closed in each topic: each gives its share of the limit, at least one."""
    if not most:
        return end
    whole = max(1, cuts.size(start, end))
    found = {}
    for topic in end.topics:
        begin = start.of(topic) if topic in start.topics else None
        share = max(1, most * cuts.between(begin or {}, end.of(topic)) // whole)
        found[Topic(topic)] = within(options, topic, begin, end.of(topic), share)
    return Position(found)
