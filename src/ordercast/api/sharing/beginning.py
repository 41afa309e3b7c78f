"""The beginning of a group on a filter (SHW-10): written down once, so that later topics are worked from theirs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from ordercast.api.errors import HistoryLost
from ordercast.api.position import Position
from ordercast.api.work_leader import WorkClient
from ordercast.client.work.words import GroupBeginning, beginning_in, beginning_topic, earliest_of, encode
from ordercast.core.errors import UsageError
from ordercast.core.ids import Topic


class PositionedClient(WorkClient, Protocol):
    """Port to a client that can be asked for a position across topics."""

    @property
    def position_across(self) -> Callable[..., Coroutine[Any, Any, Position]]: ...


def check_start(start: object) -> None:
    if start not in ("now", "earliest") and not isinstance(start, Position):
        raise UsageError("start: a group begins at 'now', at 'earliest' or at a Position")


async def beginning_of(client: PositionedClient, pattern: str, group: str, start: str | Position) -> Position:
    """SHW-10: where the group began, or begins now: then that is written down, before anything is worked on.

    Whoever finds nothing asks the whole tree, since a copy may lack the end of a history. Two that begin a group at one
    time each write down a beginning, and then see both.
    """
    topic = beginning_topic(pattern, group)
    try:
        known = await _written(client, topic, None)
        if not known:
            known = await _written(client, topic, await client.position_across([topic], timeout=None))
        if not known:
            word = GroupBeginning(await _place(client, pattern, start))
            await client.publish(topic, encode(word), key=client.session)
            known = await _written(client, topic, await client.position_across([topic], timeout=None))
    except HistoryLost as lost:
        if lost.earliest is None:
            raise UsageError(f"group {group!r}: the topic {topic} is not kept; see [[keep]] of the cluster") from None
        raise
    return Position(earliest_of(known))


async def _written(client: PositionedClient, topic: Topic, end: Position | None) -> list[GroupBeginning]:
    words = [beginning_in(message.payload) async for message in client.read([topic], "earliest", end)]
    return [word for word in words if word is not None]


async def _place(client: PositionedClient, pattern: str, start: str | Position) -> dict[Topic, dict[Any, int]]:
    if start == "earliest":
        return {}
    now = start if isinstance(start, Position) else await client.position_across([pattern], timeout=None)
    return {Topic(topic): now.of(topic) for topic in now.topics}
