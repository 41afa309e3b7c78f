"""Fetches the state of another replica over the bus, for a replica that has no usable state.

new replica                      members, on the control topic of the data topic
│ subscribes to the data topic; keeps what is delivered, applies nothing
│ ── Request(token, base) ─────▶ all that hold everything up to `base`
│ ◀──────────── Offer(token) ── each of them
│ ── Pick(token, member) ──────▶ the first that offered
│ ◀── Chunk(token, i of n, …) ── that one: its state between two deliveries, with its received-set V
│ restores, drops what it kept and V contains, applies the rest, goes on

It asks only after it is a member. From then on nothing above its base is forgotten, and whatever is below the base is
in the state of every member; asking first and joining afterwards would leave a gap if the base moved in between. V is a
prefix of what the member delivers, so V followed by the rest keeps causal order and every synchronisation point.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ordercast.core.ids import Origin, Topic, plain_origin
from ordercast.core.wire import NOT_DECODABLE
from ordercast.pubsub.closed import senseless
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Vector
from ordercast.services.replica import Replica, ReplicaSnapshot
from ordercast.services.topic_received import TopicReceived, is_origin_of

CHUNK_BYTES = 256 * 1024
_CONTROL = "_snapshots."


class SnapshotRequest(msgspec.Struct, frozen=True, array_like=True, tag=1):
    token: bytes
    base: Vector


class Offer(msgspec.Struct, frozen=True, array_like=True, tag=2):
    token: bytes


class Pick(msgspec.Struct, frozen=True, array_like=True, tag=3):
    token: bytes
    member: Origin


class Chunk(msgspec.Struct, frozen=True, array_like=True, tag=4):
    token: bytes
    index: int
    count: int
    data: bytes


class Here(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """A replica that has a state, but not (yet) all that was asked for: whoever asked is not alone."""

    token: bytes


Word = SnapshotRequest | Offer | Pick | Chunk | Here
_decoder = msgspec.msgpack.Decoder(Word)
_snapshots = msgspec.msgpack.Decoder(ReplicaSnapshot)
Say = Callable[[Topic, bytes], None]


def control_topic(topic: Topic) -> Topic:
    return Topic(f"{_CONTROL}{topic}")


def data_topic(topic: Topic) -> Topic | None:
    """The topic that a control topic belongs to; None: it is no control topic."""
    return Topic(topic.removeprefix(_CONTROL)) if topic.startswith(_CONTROL) else None


class Wish(msgspec.Struct):
    """The state of a topic that this replica waits for."""

    token: bytes
    base: Vector
    member: Origin | None = None
    chunks: dict[int, bytes] = {}
    answered: bool = False
    """Somebody else has a state of the topic."""


class SnapshotExchange:
    """Both sides of the exchange, for all topics of one replica."""

    def __init__(self, me: Origin, replica: Replica, say: Say, new_token: Callable[[], bytes]) -> None:
        self._me = me
        self._replica = replica
        self._say = say
        self._new_token = new_token
        self.wishes: dict[Topic, Wish] = {}

    def ask(self, topic: Topic, base: Vector) -> None:
        """Ask all members; again, with a new token, if the last attempt came to nothing."""
        wish = self.wishes[topic] = Wish(self._new_token(), base)
        self._tell(topic, SnapshotRequest(wish.token, base))

    def hear(self, publication: Publication) -> ReplicaSnapshot | None:
        """Something on a control topic. A snapshot, once this replica has all of one that it asked for."""
        topic = data_topic(publication.topic)
        try:
            word = _decoder.decode(publication.payload)
        except NOT_DECODABLE:
            return None
        if topic is None:
            return None
        match word:
            case SnapshotRequest(token, base):
                if plain_origin(publication.origin) != self._me:
                    self._answer(topic, token, base)
            case Offer(token):
                wish = self.wishes.get(topic)
                if wish is not None and wish.token == token and wish.member is None:
                    wish.member, wish.answered = plain_origin(publication.origin), True
                    self._tell(topic, Pick(token, wish.member))
            case Here(token):
                wish = self.wishes.get(topic)
                if wish is not None and wish.token == token:
                    wish.answered = True
            case Pick(token, member):
                if member == self._me and topic not in self.wishes:
                    self._send_state(topic, token)
            case Chunk():
                return self._collect(topic, plain_origin(publication.origin), word)
        return None

    def _answer(self, topic: Topic, token: bytes, base: Vector) -> None:
        """Only a replica that waits for a state itself and has none has nothing to say."""
        known, waits = self._replica.knows(topic), topic in self.wishes
        if not waits and known.contains(base):
            self._tell(topic, Offer(token))
        elif not waits or known.received.low:
            self._tell(topic, Here(token))

    def alone(self, topic: Topic) -> bool:
        """Whether nobody has answered; a proof that there is nobody, once all have heard the question."""
        wish = self.wishes.get(topic)
        return wish is not None and not wish.answered

    def _send_state(self, topic: Topic, token: bytes) -> None:
        data = msgspec.msgpack.encode(self._replica.snapshot(topic))
        parts = [data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES)]
        for index, part in enumerate(parts):
            self._tell(topic, Chunk(token, index, len(parts), part))

    def _collect(self, topic: Topic, sender: Origin, chunk: Chunk) -> ReplicaSnapshot | None:
        wish = self.wishes.get(topic)
        if wish is None or wish.token != chunk.token or wish.member != sender:
            return None
        wish.chunks[chunk.index] = chunk.data
        if len(wish.chunks) < chunk.count:
            return None
        try:
            snapshot = _snapshots.decode(b"".join(wish.chunks[i] for i in sorted(wish.chunks)))
        except NOT_DECODABLE:
            snapshot = None
        if snapshot is None or not _is_of_use(snapshot, topic, wish.base):
            self.ask(topic, wish.base)  # Of no use, for whatever reason: ask again.
            return None
        del self.wishes[topic]
        return snapshot

    def _tell(self, topic: Topic, word: Word) -> None:
        self._say(control_topic(topic), msgspec.msgpack.encode(word))


def _is_of_use(snapshot: ReplicaSnapshot, topic: Topic, base: Vector) -> bool:
    if snapshot.topic != topic or senseless(snapshot.closed):
        return False
    if not all(is_origin_of(name, origin) for name, origin in snapshot.origins.items()):
        return False
    return TopicReceived(snapshot.received, snapshot.origins, snapshot.closed).contains(base)
