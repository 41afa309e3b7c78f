"""The records of a group (SHW-1): what its leaders wrote down, also where a part of that is lost (SHW-13)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ordercast.api.sharing.ports import WorkClient
from ordercast.client.work.words import GroupProgress, progress_in
from ordercast.core.ids import Topic
from ordercast.pubsub.publications import Publication

_MOST_WORDS = 100
"""So many leaders may take over one after the other without writing anything down; if it is more, more is read."""
_LOOKS, _LOOK_S = 50, 0.02
"""How often copies are asked that have not begun to keep a topic that has something."""


async def records_of(client: WorkClient, topic: Topic) -> tuple[list[GroupProgress], bool]:
    """Words of earlier leaders, from the history of the group's topic; and whether later ones may be lost.

    What a leader writes has everything in it, so a gap before it does not matter. Where nothing is written behind a
    gap, the last words before it count; that there are none is believed only of a history that is whole.
    """
    found, _ = await _last(client, topic, _MOST_WORDS, over_gaps=False)
    if last_written(words_in(found)) is not None:
        return words_in(found), False
    count = _MOST_WORDS
    while True:
        found, gaps = await _last(client, topic, count, over_gaps=True)
        words = words_in(found)
        if last_written(words) is not None or len(found) < count:
            return words, gaps
        count *= 10


async def _last(client: WorkClient, topic: Topic, count: int, *, over_gaps: bool) -> tuple[list[Publication], bool]:
    """The last ones that are in the history up to where this client is a member: what is older is not delivered."""
    for _ in range(_LOOKS):
        history = client.read([topic], over_gaps=over_gaps)
        found = await history.last(count)
        joined = await client.position(topic)
        if history.end.of(topic) or not joined.of(topic):
            break
        await asyncio.sleep(_LOOK_S)  # The topic has something, and no copy has begun to keep it.
    else:
        return [], True
    if not joined <= history.end:  # A copy that was behind.
        history = client.read([topic], "earliest", joined, over_gaps=over_gaps)
        found = await history.last(count)
    return found, history.gaps


def words_in(messages: Iterable[Publication]) -> list[GroupProgress]:
    return [word for message in messages if (word := progress_in(message.payload)) is not None]


def last_written(words: Iterable[GroupProgress]) -> GroupProgress | None:
    """SHW-1: the last of the latest leader that has written anything down."""
    last: GroupProgress | None = None
    for word in words:
        if not word.begins and (last is None or word.epoch >= last.epoch):
            last = word
    return last
