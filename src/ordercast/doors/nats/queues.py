"""Queue groups: of all who subscribe to a subject with one queue name, one gets each message.

The members of a group are the members of a topic of its own, so that every broker knows them. Who gets a message is
drawn from its id: all doors that know of the same members draw the same. While somebody joins or leaves, they may for a
moment not, and a message then reaches two members or none; members at one door never differ.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import OrderedDict
from collections.abc import Iterable

from ordercast.broker.node import Broker
from ordercast.core.ids import Topic, publisher_of

_MOST_REMEMBERED = 20_000


def group_topic(subject: str, queue: str) -> str:
    """The topic that the members of a queue group are members of; nothing is published on it."""
    return f"_QUEUE.{hashlib.sha256(f'{queue} {subject}'.encode()).hexdigest()[:24]}"


def drawn(message: str, candidates: Iterable[str]) -> str:
    """The one of the candidates that a message is for: the same whatever their order; empty: there is none."""
    return max(candidates, key=lambda one: (zlib.crc32(f"{message}\n{one}".encode()), one), default="")


class QueueGroups:
    """The queue groups of one door: draws who gets a message, and remembers the draw, as all members ask."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._drawn: OrderedDict[tuple[str, str], str] = OrderedDict()

    def owner(self, topic: str, message: str) -> str:
        """The client that gets a message of the group."""
        known = self._drawn.get((topic, message))
        if known is None:
            members = {publisher_of(member) for member in self._broker.topics.receivers(Topic(topic))}
            known = self._drawn[topic, message] = drawn(message, members)
            if len(self._drawn) > _MOST_REMEMBERED:
                self._drawn.popitem(last=False)
        return known
