"""A node's subscriptions and destinations: decides whether its application gets a message."""

from __future__ import annotations

from typing import ClassVar

from ordercast.core.ids import Topic
from ordercast.core.machine import Place
from ordercast.core.messages import Message
from ordercast.core.state import State

EVERYTHING = Topic("*")


class Interest(State):
    """Explicit destinations first, subscriptions otherwise. A change takes effect at once and only here."""

    constant: ClassVar[tuple[str, ...]] = ("node",)
    durable: ClassVar[tuple[str, ...]] = ("wanted", "declined")

    def __init__(self, place: Place) -> None:
        topics = place.initial_topics()
        self.node = place.node
        self.wanted: set[Topic] | None = None if topics is None else set(topics)
        """None: everything but what was declined."""
        self.declined: set[Topic] = set()

    def includes(self, message: Message) -> bool:
        """Whether the application is to have the message."""
        if message.dst:
            return self.node in message.dst
        if self.wanted is None:
            return message.topic not in self.declined
        return message.topic in self.wanted

    def subscribe(self, topic: Topic) -> None:
        self.declined.discard(topic)
        if self.wanted is not None:
            self.wanted.add(topic)

    def unsubscribe(self, topic: Topic) -> None:
        if self.wanted is None:
            self.declined.add(topic)
        else:
            self.wanted.discard(topic)

    def topics(self) -> list[Topic]:
        """The subscriptions, in order; everything counts as one."""
        return [EVERYTHING] if self.wanted is None else sorted(self.wanted)
