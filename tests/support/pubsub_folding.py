"""Clients whose sessions fold (BRK-F1), and what must be left of those that have ended when a run is at rest."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ordercast.broker.node import Broker
from ordercast.client.machine import ClientMachine
from ordercast.core.ids import Origin, ticket_of
from ordercast.sim.clock import ns
from ordercast.sim.pubsub.parts import Parts
from ordercast.sim.pubsub.world import PubsubWorld

_LOOK_MS = 100
_ROUNDS = 20
"""Folding has so many rounds' time after everything else is at rest."""
_FORGETS = 14
"""Who has left all its topics and vanished is given up after ten times the patience (BRK-F9)."""


def folding_client(name: str, session: int, addresses: Any, wires: Any, app: Any, settings: Any, *rest: Any) -> Any:
    """A client as `ordercast.connect` makes it."""
    return ClientMachine(name, session, addresses, wires, app, replace(settings, folds=True), *rest)


FOLDING = Parts(client=folding_client)


def let_fold(world: PubsubWorld) -> None:
    """Time in which nothing else happens: whoever is gone is given up, then there are rounds."""
    settings = world.settings
    wait_ms = _ROUNDS * (settings.fold_ms + settings.retry_ms) + settings.member_timeout_ms * _FORGETS
    end = world.clock.now + ns(wait_ms)
    while world.clock.now < end and unfolded(world):
        world.clock.run_until(world.clock.now + ns(_LOOK_MS))


def unfolded(world: PubsubWorld) -> list[str]:
    """What a run at rest, with all brokers in place, still remembers of ended sessions one by one."""
    brokers = world.brokers()
    roots = [broker for broker in brokers.values() if broker.tree.is_root]
    if len(roots) != 1 or roots[0].tree.directory.keys() != brokers.keys():
        return []  # Somebody who is away may have something of them.
    alive = {machine.session.origin for machine in map(_machine, world.clients.values()) if machine is not None}
    found = [f"{name} remembers {who}" for name, broker in brokers.items() for who in _remembered(broker) - alive]
    for client in world.clients.values():
        machine = _machine(client)
        if machine is not None:
            known = {origin for membership in machine.topics.values() for origin in membership.have.low}
            found += [f"{client.node} remembers {who}" for who in _foldable(known) - alive]
    return [f"not folded: {what}" for what in sorted(found)]


def _machine(client: Any) -> ClientMachine | None:
    machine: ClientMachine | None = client.machine
    return None if machine is None or machine.ended else machine


def _remembered(broker: Broker) -> set[Origin]:
    topics = broker.topics
    known = {origin for node in topics.nodes.values() for origin in (*node.base, *node.have.low)}
    return _foldable({*known, *topics.book.ended, *topics.settled})


def _foldable(origins: set[Origin]) -> set[Origin]:
    return {origin for origin in origins if ticket_of(origin) is not None and " " not in origin}
