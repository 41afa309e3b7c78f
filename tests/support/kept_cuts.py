"""Asks a running system for cuts across its topics, and finds those that have an answer without its question."""

from __future__ import annotations

from typing import Any

from ordercast.client.ports import EDGE
from ordercast.core.ids import Origin, Topic
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Vector
from ordercast.sim.clock import ns
from ordercast.sim.pubsub.client import SimClient
from ordercast.sim.pubsub.world import PubsubWorld

Pair = tuple[Topic, Origin, int]
_STEP = ns(120)


class CutWatch:
    """Notes, for everything that is published, what its publisher had been delivered or told by then (ARC-G6)."""

    def __init__(self, world: PubsubWorld, start_ms: float, stop_ms: float) -> None:
        self.world = world
        self.known: dict[str, set[Pair]] = {}
        """What each client has been delivered, and which of its own it was told of."""
        self.before: dict[Pair, frozenset[Pair]] = {}
        self.asked = 0
        self.by_filter: set[tuple[str, int]] = set()
        """Clients and numbers of their questions about all topics there are."""
        world.delivery_watchers.append(self._delivered)
        world.acknowledgement_watchers.append(self._told)
        told, world.published = world.published, self._published  # type: ignore[method-assign]
        self._record: Any = told
        for i in range(int((stop_ms - start_ms) * 1e6) // _STEP):
            world.clock.at(ns(start_ms) + i * _STEP, self._ask, i)

    @property
    def cuts(self) -> list[tuple[dict[Topic, Vector], bool]]:
        """All cuts that were told; whether each is of all topics."""
        told = [(node, number, cut) for node, own in self.world.clients.items() for number, cut in own.cuts.items()]
        return [(cut, (node, number) in self.by_filter) for node, number, cut in told]

    def _delivered(self, client: SimClient, entry: Publication) -> None:
        self.known.setdefault(client.node, set()).add((entry.topic, entry.origin, entry.number))

    def _told(self, client: SimClient, topic: Topic, level: str, low: int, extras: tuple[int, ...]) -> None:
        machine = client.machine
        if machine is not None and level != EDGE:
            mine = {(topic, machine.session.origin, number) for number in (*range(1, low + 1), *extras)}
            self.known.setdefault(client.node, set()).update(mine)

    def _published(self, client: SimClient, publication: Publication) -> None:
        pair = publication.topic, publication.origin, publication.number
        self.before[pair] = frozenset(self.known.get(client.node, ()))
        self._record(client, publication)

    def _ask(self, turn: int, _: None) -> None:
        alive = [client for client in self.world.clients.values() if client.alive and client.machine is not None]
        if alive:
            client = alive[turn % len(alive)]
            machine, by_filter = client.machine, turn // len(alive) % 2 == 1
            topics = sorted({topic for other in self.world.clients.values() for topic in other.spec.topics})
            self.asked += 1
            assert machine is not None
            self.world.processes.act(client.node, machine.ask_cut, [">"] if by_filter else topics)
            if by_filter:
                self.by_filter.add((client.node, machine.cuts.count))

    def problems(self) -> list[str]:
        found = []
        for cut, of_all in self.cuts:
            for (topic, origin, number), before in self.before.items():
                if number <= cut.get(topic, {}).get(origin, 0):
                    told = (pair for pair in before if of_all or pair[0] in cut)
                    lacking = [pair for pair in told if pair[2] > cut.get(pair[0], {}).get(pair[1], 0)]
                    if lacking:
                        found.append(f"a cut has {topic} {origin}#{number} and not {lacking[0]}, which came before")
                        break
        return found
