"""What a PUB or HPUB asks for: topic, guarantee, keys, headers, and where to answer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

from ordercast.api.client import Client
from ordercast.api.errors import OutboxFull
from ordercast.core.errors import UsageError
from ordercast.doors.nats import wire
from ordercast.doors.nats.naming import REPLY_HEADER, SUBJECT_HEADER, answered, topic_of
from ordercast.net.brokers.door_tables import DefaultTable, default_of
from ordercast.pubsub.extras import Extras
from ordercast.pubsub.publications import Publication

GUARANTEE_HEADER, KEY_HEADER, ID_HEADER = b"Ordercast-Guarantee", b"Ordercast-Key", b"Ordercast-Id"
_OWN = {name.lower() for name in (GUARANTEE_HEADER, KEY_HEADER, ID_HEADER, SUBJECT_HEADER, REPLY_HEADER)}


class NatsPublisher:
    """Publishes for clients of NATS: headers choose guarantee and keys, or else the cluster file does."""

    def __init__(self, defaults: tuple[DefaultTable, ...]) -> None:
        self._default_of = lru_cache(maxsize=1 << 12)(partial(default_of, defaults))

    def publish(self, client: Client, pub: wire.Pub) -> str:
        """The id of the message."""
        topic = topic_of(pub.subject)
        default = self._default_of(topic)
        if pub.headers is None and not pub.reply and topic == pub.subject and not topic.startswith("_"):
            return client.publish_soon(topic, pub.payload, keys=default.keys, guarantee=default.guarantee)
        asked = wire.parse_headers(pub.headers) if pub.headers is not None else {}
        chosen = {name.lower(): value for name, value in asked.items() if name.lower() in _OWN}
        headers = {name: value for name, value in asked.items() if name.lower() not in _OWN}
        reply_to, request = topic_of(pub.reply), ""
        if topic != pub.subject:
            headers[SUBJECT_HEADER] = pub.subject.encode()
        if reply_to != pub.reply:
            headers[REPLY_HEADER] = pub.reply.encode()
        if (answer := answered(topic)) is not None:
            topic, request = answer
        return client.publish_soon(
            topic, pub.payload, guarantee=_text(chosen, GUARANTEE_HEADER) or default.guarantee,
            keys=tuple(filter(None, _text(chosen, KEY_HEADER).split("\r\n"))) or default.keys,
            headers=headers, extras=Extras(reply_to=reply_to, answers=request),
        )  # fmt: skip

    def publish_plain(self, client: Client, operations: Sequence[wire.Operation]) -> int:
        """Publish from the beginning on what needs no second look; how many of the operations that were.

        What is refused, or has no room, is left: whoever goes on there says so.
        """
        subject, topic, guarantee = "", "", ""
        keys: tuple[str, ...] = ()
        publish = client.publish_soon
        for at, pub in enumerate(operations):
            if pub.__class__ is not wire.Pub or pub.headers is not None or pub.reply:
                return at
            if pub.subject != subject:
                topic = topic_of(pub.subject)
                if topic != pub.subject or topic.startswith("_"):
                    return at
                default = self._default_of(topic)
                subject, keys, guarantee = topic, default.keys, default.guarantee
            try:
                publish(topic, pub.payload, keys=keys, guarantee=guarantee)
            except (OutboxFull, UsageError):
                return at
        return len(operations)

    def is_plain(self, entry: Publication) -> bool:
        """Whether a message says of itself only what its topic's default says."""
        default = self._default_of(entry.topic)
        return (
            entry.extras is None
            and entry.guarantee.label == default.guarantee
            and (entry.keys == default.keys or (entry.keys == ("",) and not default.keys))
        )


def facts_of(entry: Publication) -> list[tuple[bytes, bytes]]:
    """The headers that a message is delivered with."""
    facts = [(ID_HEADER, entry.id.encode()), (GUARANTEE_HEADER, entry.guarantee.label.encode())]
    facts += [(KEY_HEADER, key.encode()) for key in entry.keys if key]
    if entry.extras is not None:
        facts += [pair for pair in entry.extras.headers if pair[0] not in (SUBJECT_HEADER, REPLY_HEADER)]
    return facts


def _text(headers: dict[bytes, bytes], name: bytes) -> str:
    try:
        return headers.get(name.lower(), b"").decode()
    except UnicodeDecodeError:
        raise UsageError(f"header {name.decode()}: no text") from None
