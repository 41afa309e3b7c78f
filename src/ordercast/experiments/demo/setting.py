"""The setting of the demo: the source's overlay, latencies and load, and a schedule of crashes.

Eight brokers on three continents, five bank replicas of two countries, 40 % eventual, 30 % causal and 30 % total
operations. Every pair of processes has the latency of its regions, before and after a repair.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ordercast.core.chance import salt, unit
from ordercast.experiments.ginger.setting import (
    BROKERS,
    CLIENTS,
    DEGREE,
    INTERVAL_MS,
    MAX_HOPS,
    PARENTS,
    TO_EDGE_MS,
    latency_ms,
)
from ordercast.net.brokers.cluster_file import BrokerEntry, ClusterFile
from ordercast.net.brokers.door_tables import WebTable
from ordercast.net.wire.settings import WireSettings
from ordercast.pubsub.settings import BrokerSettings

TOPICS = {"topic1": "accounts.PT", "topic2": "accounts.US"}
REPLICAS = {client: (edge, TOPICS[topic]) for client, (edge, topic) in CLIENTS.items()}
"""Replica to its first edge broker and its topic."""
SETTINGS = BrokerSettings(total_degree=DEGREE, max_hops=MAX_HOPS, order_scope="key", partitions="primary")
_SILENCE_MS = 5000.0
"""A killed process is noticed at once, by its broken connections; a busy machine must not look like a dead one."""
_JITTER_S = 1.0


class Act(msgspec.Struct, frozen=True):
    """Something that is done to a broker in the middle of the run."""

    at_s: float
    """After the first operation."""
    deed: Literal["kill", "restart"]
    broker: str
    role: str
    """What it is in the tree, for the reader."""


ACTS = (
    Act(5.0, "kill", "b0", "the root"),
    Act(11.0, "kill", "b1", "inner broker of b4 and b5"),
    Act(16.0, "restart", "b0", "the former root"),
    Act(20.0, "kill", "b6", "edge broker of c2 and c3"),
)


class Play(msgspec.Struct, frozen=True, kw_only=True):
    """One run: its load, and what is done to its brokers."""

    seed: int = 0
    operations: int = 500
    """Of each replica."""
    interval_ms: float = INTERVAL_MS
    accounts: int = 100
    mix: tuple[float, float, float] = (0.4, 0.3, 0.3)
    acts: tuple[Act, ...] = ACTS
    patience_s: float = 60.0
    """How long after its last own operation a replica waits for those of the others."""

    def expected(self, topic: str) -> int:
        """Operations on the topic, of all replicas."""
        return self.operations * sum(of == topic for _, of in REPLICAS.values())

    def in_words(self) -> list[str]:
        """The chosen setting, in words for the reader."""
        slowest = max(limits().delay_ms.values())
        rate = len(REPLICAS) * 1000 / self.interval_ms
        eventual, causal, total = (f"{share:.0%}" for share in self.mix)
        return [
            f"{len(BROKERS)} brokers on three continents, links of {TO_EDGE_MS:g} to {slowest:g} ms one way; degree "
            f"{SETTINGS.total_degree}, order scope {SETTINGS.order_scope}, partitions {SETTINGS.partitions}",
            f"{len(REPLICAS)} bank replicas with SQLite stores: {self.operations} operations each, one every "
            f"{self.interval_ms:g} ms ({rate:g}/s in all), on {self.accounts} accounts; {eventual} eventual, "
            f"{causal} causal, {total} total; seed {self.seed}",
        ]


def play(seed: int) -> Play:
    """The demo with this seed: it decides the operations, and shifts the moments of the crashes a little."""
    shifted = [
        msgspec.structs.replace(act, at_s=act.at_s + _JITTER_S * unit(salt(seed, "act", number)))
        for number, act in enumerate(ACTS)
    ]
    return Play(seed=seed, acts=tuple(shifted))


def live_play(seed: int, minutes: float) -> Play:
    """As long as somebody wants to watch; nobody is killed but by hand."""
    return Play(seed=seed, operations=max(1, round(minutes * 60_000 / INTERVAL_MS)), acts=())


def cluster_file(ports: dict[str, int], trace: str, *, web: dict[str, str], origins: tuple[str, ...]) -> ClusterFile:
    """The tree of brokers, which listen at `ports` and record their events in `trace`; with doors for pages, if any."""
    entries = tuple(
        BrokerEntry(id=broker, port=ports[broker], parent=PARENTS.get(broker, ""), web=web.get(broker, ""))
        for broker in BROKERS
    )
    table = WebTable(origins=origins)
    return ClusterFile(cluster="demo", broker=entries, settings=SETTINGS, limits=limits(), trace=trace, web=table)


def limits() -> WireSettings:
    """The same for all processes: which pair is how far apart."""
    delays = {f"{a} {b}": latency_ms(a, b) for a in BROKERS for b in BROKERS if a < b}
    for replica, (edge, _) in REPLICAS.items():
        delays |= {f"{replica} {broker}": latency_ms(edge, broker) for broker in BROKERS if broker != edge}
        delays[f"{replica} {edge}"] = TO_EDGE_MS
    return WireSettings(silence_ms=_SILENCE_MS, handshake_ms=_SILENCE_MS, delay_ms=delays)
