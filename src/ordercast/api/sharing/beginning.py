"""The beginning of a group on a filter (SHW-10): written down once, so that later topics are worked from theirs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from ordercast.api.errors import HistoryLost
from ordercast.api.position import Position
from ordercast.api.sharing.ports import WorkClient
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
    time each write down a beginning, and then see both. SHW-13: where what was written may be lost, the group begins at
    the beginning of all topics rather than now, or work would be lost with it.
    """
    topic = beginning_topic(pattern, group)
    try:
        known, gaps = await _written(client, topic, None)
        if not known:
            known, gaps = await _written(client, topic, await client.position_across([topic], timeout=None))
        if not known:
            word = GroupBeginning(await _place(client, pattern, "earliest" if gaps and start == "now" else start))
            await client.publish(topic, encode(word), key=client.session)
            known, _ = await _written(client, topic, await client.position_across([topic], timeout=None))
    except HistoryLost as lost:
        if lost.earliest is None:
            raise UsageError(f"group {group!r}: the topic {topic} is not kept; see [[keep]] of the cluster") from None
        raise
    return Position(earliest_of(known))


async def _written(client: PositionedClient, topic: Topic, end: Position | None) -> tuple[list[GroupBeginning], bool]:
    """What members wrote down, also before a part that is lost; and whether there is such a part."""
    history = client.read([topic], "earliest", end, over_gaps=True)
    words = [beginning_in(message.payload) async for message in history]
    return [word for word in words if word is not None], history.gaps


async def _place(client: PositionedClient, pattern: str, start: str | Position) -> dict[Topic, dict[Any, int]]:
    if start == "earliest":
        return {}
    now = start if isinstance(start, Position) else await client.position_across([pattern], timeout=None)
    return {Topic(topic): now.of(topic) for topic in now.topics}
