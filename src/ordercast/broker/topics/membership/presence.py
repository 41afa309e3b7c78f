"""Which topics the sessions at this broker take part in, and whether one may take part in one more."""

from __future__ import annotations

from typing import ClassVar

from ordercast.broker.topics.membership.taking import TakenTopics
from ordercast.broker.topics.state.clients import AttachedClient
from ordercast.broker.topics.state.topics_state import TopicsPart, TopicsState
from ordercast.core.errors import UsageError
from ordercast.core.ids import Origin, Topic
from ordercast.pubsub.client_packets import Denied
from ordercast.pubsub.filters import check_topic


class Presence(TopicsPart):
    """Topics and followed filters that each session has asked for at this broker."""

    derived: ClassVar[tuple[str, ...]] = ("taken",)

    def __init__(self, state: TopicsState) -> None:
        super().__init__(state)
        self.taken = TakenTopics()

    def came(self, origin: Origin, topic: Topic, user: str) -> None:
        """`user`: whose session it is; nothing where nobody knows."""
        self.taken.add(origin, topic, user)

    def went(self, origin: Origin, topic: Topic) -> None:
        self.taken.discard(origin, topic)

    def forget(self, origin: Origin) -> None:
        self.taken.forget(origin)

    def of(self, origin: Origin) -> list[Topic]:
        """All that the session takes part in here, in order."""
        return sorted(self.taken.of(origin))

    def refuses(self, client: AttachedClient, topic: Topic, *, receives: bool) -> bool:
        """Whether the topic is refused to the client, which is told why."""
        objection = self._objection(client, topic, receives=receives)
        if objection:
            self.wires.send(client.connection, Denied(topic, objection))
        return bool(objection)

    def _objection(self, client: AttachedClient, topic: Topic, *, receives: bool) -> str:
        if client.unproven or self.book.fenced(client.origin):
            return self.book.why_over(client.origin)
        try:
            check_topic(topic)
        except UsageError as error:
            return str(error)
        if receives and not client.may_subscribe(topic):
            return f"{client.name} has no right to subscribe to {topic}"
        if not receives and not client.may_publish(topic):
            return f"{client.name} has no right to publish on {topic}"
        too_many = self._too_many(client, topic)
        if too_many:
            self.wires.count("topics_refused")
        return too_many

    def _too_many(self, client: AttachedClient, topic: Topic) -> str:
        """Why the topic is one too many; none of those that the client takes part in already is."""
        settings, is_new = self.settings, topic not in self.taken.of(client.origin)
        if is_new and self.taken.count(client.origin) >= settings.topics_per_client:
            return (
                f"{client.name} takes part in {settings.topics_per_client} topics, and more are not allowed "
                "(topics_per_client)"
            )
        if is_new and self.taken.by_user(client.user) >= settings.topics_per_user:
            return (
                f"the clients of {client.user} take part in {settings.topics_per_user} topics, and more are not "
                "allowed (topics_per_user)"
            )
        if topic not in self.book.joined and topic not in self.nodes and len(self.book.joined) >= settings.topics_limit:
            return f"{topic} would be one topic more than {settings.topics_limit}, which is not allowed (topics_limit)"
        return ""
