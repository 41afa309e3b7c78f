"""Positions in kept topics, and reading what lies between them."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterable, Sequence

from ordercast.api.bridge import Bridge
from ordercast.api.cuts import cut_across
from ordercast.api.history import History
from ordercast.api.lifetime import Lifetime
from ordercast.api.position import Position
from ordercast.api.waiting import within
from ordercast.client.machine import ClientMachine
from ordercast.core.ids import Topic
from ordercast.net.host import ProcessHost
from ordercast.pubsub.filters import check_filter, check_topic
from ordercast.pubsub.received import Vector


class Reading:
    """A client's questions to the copies of kept topics. None of them is a subscription: no broker remembers it."""

    def __init__(self, host: ProcessHost, machine: ClientMachine, bridge: Bridge, life: Lifetime) -> None:
        self._host = host
        self._machine = machine
        self._bridge = bridge
        self._life = life

    def history(
        self, topics: Sequence[str], start: str | Position | dt.datetime, end: Position | None,
        *, over_gaps: bool = False,
    ) -> History:  # fmt: skip
        across = self.position_across
        return History(self._host, self._machine, self._bridge.reads, topics, start, end, across, over_gaps=over_gaps)

    async def position(self, topics: Iterable[str], timeout: float | None) -> Position:
        """How far the client has taken each topic; of those that it does not read, where they end now."""
        cuts: dict[Topic, Vector] = {}
        for topic in checked(topics):
            if self._reads(topic):
                cuts[topic] = self._machine.taken_up_to(topic)
            else:
                self._life.check()
                history = self.history([topic], "earliest", None)
                await within(history.last(1), timeout, f"no copy of {topic} answers")
                cuts[topic] = history.end.of(topic)
        return Position(cuts)

    def _reads(self, topic: Topic) -> bool:
        membership = self._machine.topics.get(topic)
        return topic in self._machine.replays.topics or (membership is not None and bool(membership.wants))

    async def position_across(self, topics: Iterable[str], *, timeout: float | None = 30.0) -> Position:
        """A position that is closed across the topics, when a copy of each has all of it."""
        self._life.check()
        named = list(topics)
        for name in named:
            check_filter(name)
        begun = asyncio.get_running_loop().time()
        cuts = await cut_across(self._host, self._machine, self._bridge.cuts, named, timeout)
        position = Position(cuts)
        for topic in position.topics:
            spent = asyncio.get_running_loop().time() - begun
            left = None if timeout is None else max(0.1, timeout - spent)
            await within(_drained(self.history([topic], position, position)), left, f"no copy of {topic} has it all")
        return position


def checked(topics: Iterable[str]) -> list[Topic]:
    """The topics, none of them a filter or malformed."""
    named = [Topic(topic) for topic in topics]
    for topic in named:
        check_topic(topic)
    return named


async def _drained(history: History) -> None:
    async for _ in history.batches():
        pass
