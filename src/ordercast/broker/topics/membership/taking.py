"""The topics that sessions take part in at this broker, with counts for the limits of clients and users."""

from __future__ import annotations

from collections.abc import Set

from ordercast.core.ids import Origin, Topic
from ordercast.core.state import State
from ordercast.pubsub.filters import is_following

_NONE: frozenset[Topic] = frozenset()


class TakenTopics(State):
    """Asked before every topic that a client takes: no answer takes longer the more topics or clients there are."""

    def __init__(self) -> None:
        self._topics: dict[Origin, set[Topic]] = {}
        self._filters: dict[Origin, int] = {}
        """How many of them stand for a filter that the session follows."""
        self._users: dict[Origin, str] = {}
        self._by_user: dict[str, int] = {}

    def add(self, origin: Origin, topic: Topic, user: str) -> None:
        """`user`: whose session it is; nothing where nobody knows."""
        topics = self._topics.setdefault(origin, set())
        if topic not in topics:
            topics.add(topic)
            self._users.setdefault(origin, user)
            self._count(origin, topic, 1)

    def discard(self, origin: Origin, topic: Topic) -> None:
        topics = self._topics.get(origin, set())
        if topic in topics:
            topics.remove(topic)
            self._count(origin, topic, -1)
            if not topics:
                self._drop(origin)

    def forget(self, origin: Origin) -> None:
        """The session takes part in nothing any more."""
        for topic in sorted(self.of(origin)):
            self.discard(origin, topic)

    def _count(self, origin: Origin, topic: Topic, change: int) -> None:
        if is_following(topic):
            self._filters[origin] = self._filters.get(origin, 0) + change
        user = self._users[origin]
        if user:
            self._by_user[user] = self._by_user.get(user, 0) + change

    def _drop(self, origin: Origin) -> None:
        del self._topics[origin]
        self._filters.pop(origin, None)
        user = self._users.pop(origin)
        if user and not self._by_user[user]:
            del self._by_user[user]

    def of(self, origin: Origin) -> Set[Topic]:
        return self._topics.get(origin, _NONE)

    def count(self, origin: Origin) -> int:
        """In how many topics the session takes part, filters left out."""
        return len(self.of(origin)) - self._filters.get(origin, 0)

    def by_user(self, user: str) -> int:
        """In how many topics the sessions of a user take part; one that two of them are in, and a filter, counts."""
        return self._by_user.get(user, 0)
