"""Turns a PUB or HPUB into a publication: topic, guarantee, keys, headers, and where to answer."""

from __future__ import annotations

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

    def publish_run(self, client: Client, run: wire.Pubs) -> int:
        """Publish as many of them, from the first on, as there is room for; how many that were."""
        topic = topic_of(run.subject)
        if topic != run.subject or topic.startswith("_"):  # Each has a header that says where it goes.
            return self._one_by_one(client, run)
        default = self._default_of(topic)
        return client.publish_run(topic, run.payloads, keys=default.keys, guarantee=default.guarantee)

    def _one_by_one(self, client: Client, run: wire.Pubs) -> int:
        for done, payload in enumerate(run.payloads):
            try:
                self.publish(client, wire.Pub(run.subject, "", None, payload))
            except OutboxFull:
                return done
        return len(run.payloads)

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
