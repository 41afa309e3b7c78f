"""A broker and a client can be copied, compared and hashed: what explorers and shrinkers need of them."""

from __future__ import annotations

import pytest

from ordercast.broker.node import Broker
from ordercast.broker.topics.holding import Queues
from ordercast.client.machine import ClientMachine
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.pubsub.publications import Publication
from ordercast.sim.pubsub.parts import Parts
from tests.properties.pubsub_swarm import swarm_scenario
from tests.support.pubsub_lab import run_pubsub
from tests.support.twins import Twins


@pytest.mark.parametrize("family", ["joins-and-everything", "primary-everything"])
def test_a_copy_goes_on_independently_and_does_exactly_what_the_original_does(family: str) -> None:
    twins = Twins()

    finding = run_pubsub(swarm_scenario(3, family), parts=Parts(twins.broker(), twins.client()), judge=False)

    assert finding.held, finding.problems
    assert twins.events > 1000


def test_machines_with_the_same_past_are_equal_and_others_are_not() -> None:
    def states(seed: int) -> list[Broker | ClientMachine]:
        world = run_pubsub(swarm_scenario(seed, "restart"), judge=False).world
        clients = [client.machine for client in world.clients.values() if client.machine is not None]
        return [*world.brokers().values(), *clients]

    first, same, other = states(1), states(1), states(2)
    assert first == same
    assert [hash(machine) for machine in first] == [hash(machine) for machine in same]
    assert all(mine != theirs for mine, theirs in zip(first, other, strict=False))
    assert len(set(first)) == len(first)


def test_queues_are_equal_whatever_came_and_went_before() -> None:
    def entry(number: int) -> Publication:
        return Publication(Origin("a~1"), number, Topic("t"), b"")

    one, other = Queues(by_key=False), Queues(by_key=False)
    for number in (1, 2, 3):
        one.add(entry(number))
    for number in (3, 4, 2, 1):
        other.add(entry(number))
    other.remove(entry(4))

    assert one == other
    assert hash(one) == hash(other)
    one.remove(entry(2))
    assert one != other


def test_what_a_machine_has_around_it_is_no_part_of_its_state() -> None:
    world = run_pubsub(swarm_scenario(1, "restart"), judge=False).world
    broker = world.brokers()[NodeId("b0")]

    elsewhere = broker.copy(wires=object(), ledger=object())  # type: ignore[arg-type]

    assert elsewhere == broker
    assert elsewhere.wires is not broker.wires
    assert elsewhere.topics.wires is elsewhere.wires
