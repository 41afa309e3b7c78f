"""A client with valid credentials that says well-formed things that are not true, beside all that a client should say.

It lies about others (publications, bases and gaps under their names), about itself (what it has, attach numbers, that
it leaves), and says what only brokers say. It tells the truth where a lie could not be told from it: what it publishes
under its own next number is what it meant to publish.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from random import Random
from typing import Any

import msgspec

from ordercast.broker.node import Broker
from ordercast.client.machine import ClientMachine
from ordercast.core.ids import Origin, Topic
from ordercast.core.messages import Guarantee, Packet
from ordercast.pubsub.client_packets import (
    Attach,
    Entries,
    LookFor,
    LookNoMore,
    Resume,
    Sealed,
    StableReport,
    Subscribe,
    Unsubscribe,
    Unwatch,
    Watch,
)  # fmt: skip
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.seals import SEAL_BYTES, cut
from ordercast.pubsub.topic_packets import BaseUpdate, Held, MemberGone, StableVote, TotalAck
from ordercast.sim.pubsub.parts import Parts

LIAR = "liar"
LYING_BROKER = "b1"
_LIE = "lie"
_EVERY_NS = 40_000_000
_HUGE = (1 << 40, (1 << 53) - 1, 1 << 53, 1 << 62)


class Liar(ClientMachine):
    """An honest client of which every `_EVERY_NS` something else speaks too."""

    def on_start(self) -> None:
        super().on_start()
        self.wires.set_timer(_LIE, _EVERY_NS, background=True)

    def on_timer(self, name: Hashable) -> None:
        if name != _LIE:
            super().on_timer(name)
            return
        self.wires.set_timer(_LIE, _EVERY_NS, background=True)
        if self.topics:
            random = Random(f"{self.origin} {self.wires.now_ns}")
            for packet in random.choice(self._lies())(random, random.choice(sorted(self.topics))):
                self.session.send(packet)

    def _lies(self) -> list[Callable[[Random, Topic], list[Packet]]]:
        return [
            self._history, self._history, self._history, self._vector, self._publication, self._attach, self._leaves,
            self._watches, self._subscribes, self._broker_talk,
        ]  # fmt: skip

    def _others(self, topic: Topic) -> list[Origin]:
        have = self.topics[topic].have
        return sorted({*have.low, *have.extras, Origin("c0"), Origin("c1"), Origin("nobody")} - {self.origin})

    def _number(self, random: Random, topic: Topic, origin: Origin) -> int:
        """Around what there is, or far beyond it; most that are too large for any packet are left out."""
        there = self.topics[topic].have.low.get(origin, 0)
        return random.choice([there + 1, there + 1, there + 2, there + 9, max(1, there), random.choice(_HUGE[:2])])

    def _vector_of_others(self, random: Random, topic: Topic) -> dict[Origin, int]:
        others = self._others(topic)
        return {one: self._number(random, topic, one) for one in random.sample(others, 1 + random.randrange(2))}

    def _forged(self, random: Random, topic: Topic) -> Publication:
        origin = random.choice(self._others(topic))
        keys = random.choice([("k0",), ("",), (), ("k1", "k2")])
        guarantee = random.choice([Guarantee.CAUSAL, Guarantee.EVENTUAL, Guarantee.TOTAL])
        return Publication(origin, self._number(random, topic, origin), topic, b"a lie", guarantee, keys)

    def _history(self, random: Random, topic: Topic) -> list[Packet]:
        membership = self.topics[topic]
        forged = [self._forged(random, topic) for _ in range(random.randrange(4))]
        real = [msgspec.structs.replace(entry, payload=b"changed") for entry in membership.kept()[:2]]
        entries = tuple(random.sample(forged + real, len(forged) + len(real)))
        base = self._vector_of_others(random, topic)
        have = {origin: (number, ()) for origin, number in self._vector_of_others(random, topic).items()}
        seals = [seal for batch, some in membership.sealed for seal in cut(some, len(batch))]
        seals = seals or [random.randbytes(SEAL_BYTES)]
        sealed = Sealed(
            topic, b"".join(random.choices(seals, k=len(base))), b"".join(random.choices(seals, k=len(entries)))
        )
        receives = random.random() < 0.8
        life = random.choice([0, 1, 2, -1, 1 << 60])
        resume = Resume(topic, random.randrange(1 << 30), have, base, entries, receives, life)
        return [sealed, resume] if random.random() < 0.7 else [resume]

    def _vector(self, random: Random, topic: Topic) -> list[Packet]:
        return [StableReport(topic, self._vector_of_others(random, topic))]

    def _publication(self, random: Random, topic: Topic) -> list[Packet]:
        ahead = self.topics[topic].counter + 1000
        own = Publication(self.origin, random.choice([ahead, *_HUGE, 0, -5]), topic, b"", Guarantee.CAUSAL, ("k0",))
        return [Entries(topic, (random.choice([own, self._forged(random, topic)]),))]

    def _attach(self, random: Random, _topic: Topic) -> list[Packet]:
        return [Attach(random.choice([0, 1, self.edge.attach_no + 1, (1 << 40) - 1, 1 << 40, -1]))]

    def _leaves(self, random: Random, topic: Topic) -> list[Packet]:
        return [Unsubscribe(random.choice([topic, Topic("never.heard.of")]))]

    def _watches(self, random: Random, _topic: Topic) -> list[Packet]:
        patterns = [f"w{random.randrange(5)}.*" for _ in range(20)]
        looks = [LookFor(">"), LookFor("a..b"), LookNoMore("never.*"), LookFor("q.*")]
        return [*map(Watch, patterns), *map(Unwatch, patterns), *looks]

    def _subscribes(self, random: Random, topic: Topic) -> list[Packet]:
        return [Subscribe(random.choice([topic, Topic("a..b"), Topic("")]), random.random() < 0.5)]

    def _broker_talk(self, random: Random, topic: Topic) -> list[Packet]:
        """What only a broker may say, or nobody: it costs the connection."""
        if random.random() < 0.7:
            return []
        victim = random.choice(self._others(topic))
        return [
            random.choice(
                [MemberGone(topic, victim, 1 << 40), BaseUpdate(topic, (9, "b0"), {victim: 99}),
                 StableReport(topic, {victim: _HUGE[2]})]
            )
        ]  # fmt: skip


class LyingBroker(Broker):
    """Tells its neighbours in every eighth turn what a client could never say. Brokers trust each other."""

    def on_turn_end(self) -> None:
        super().on_turn_end()
        random = Random(f"{self.place.node} {self.wires.now_ns} {len(self.topics.nodes)}")
        links = self.topics.neighbours()
        if links and self.topics.nodes and random.random() < 1 / 8:
            node = self.topics.nodes[random.choice(sorted(self.topics.nodes))]
            victim = random.choice(sorted({*node.have.low, Origin("c0")}))
            number = node.have.low.get(victim, 0) + random.choice([1, 2, 50])
            forged = Publication(victim, number, node.topic, b"a lie", Guarantee.CAUSAL, ("k0",))
            unseen = tuple((one, 1 << 21) for one in node.have.low)
            lies: list[Packet] = [
                Entries(node.topic, (forged,)), BaseUpdate(node.topic, self.tree.term, {victim: number}),
                MemberGone(node.topic, victim, 1 << 50), Held(node.topic, 1, {victim: (number, ())}),
                StableVote(node.topic, self.tree.term, (), {victim: number}),
                TotalAck(node.topic, self.tree.term, tuple(node.pending.entries), unseen),
            ]  # fmt: skip
            self.wires.send(random.choice(links), random.choice(lies))


def sealed_broker(place: Any, *rest: Any) -> Broker:
    """A broker of a cluster that has a secret."""
    return Broker(msgspec.structs.replace(place, seal_key=b"known to brokers alone"), *rest)


def _client(name: str, *rest: Any) -> ClientMachine:
    return (Liar if name == LIAR else ClientMachine)(name, *rest)


def _broker(place: Any, *rest: Any) -> Broker:
    return (LyingBroker if place.node == LYING_BROKER else Broker)(place, *rest)


SEALED = Parts(broker=sealed_broker)
WITH_LIAR = Parts(broker=sealed_broker, client=_client)
WITH_LYING_BROKER = Parts(broker=_broker)
