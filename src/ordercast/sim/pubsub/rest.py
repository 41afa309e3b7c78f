"""Checks that a run has come to rest: one tree, nothing held or pending, all members equal (BRK-G7, BRK-I5)."""

from __future__ import annotations

from collections.abc import Iterator, Sized

from ordercast.broker.node import Broker
from ordercast.client.membership import LIVE, OUT
from ordercast.core.ids import NodeId, Topic
from ordercast.pubsub.received import Received, Summary
from ordercast.sim.pubsub.client import SimClient
from ordercast.sim.pubsub.world import PubsubWorld


def unrest(world: PubsubWorld) -> str:
    """The first thing that is still under way; empty when the run has come to rest."""
    return next(_unrest(world), "")


def _unrest(world: PubsubWorld) -> Iterator[str]:
    brokers = world.brokers()
    yield from _tree(brokers)
    for name, broker in brokers.items():
        for topic, node in sorted(broker.topics.nodes.items()):
            left: dict[str, Sized] = {
                "pending": node.pending.entries, "held": node.hold, "waiting to be confirmed": node.waiting,
            }  # fmt: skip
            for what, there in left.items():
                if there:
                    yield f"{name}: {len(there)} of {topic} {what}"
        for topic in sorted({*broker.topics.orphans.waiting, *broker.topics.orphans.closing}):
            yield f"{name}: publications of {topic} that nobody else is known to have"
    for client in world.clients.values():
        yield from _client(client)
    yield from _awaited(world, brokers)
    yield from _differences(world)


def _tree(brokers: dict[NodeId, Broker]) -> Iterator[str]:
    roots = [name for name, broker in brokers.items() if broker.tree.is_root]
    if len(roots) != 1:
        yield f"{len(roots)} roots"
    for name, broker in brokers.items():
        tree = broker.tree
        if tree.is_root:
            if not tree.decides:
                yield f"root {name} does not decide yet"
            continue
        parent = brokers.get(tree.parent_name) if tree.parent_name is not None else None
        if tree.seeking or parent is None:
            yield f"{name} has no parent"
        elif name not in parent.tree.children.values():
            yield f"{name} is no child of its parent {tree.parent_name}"


def _client(client: SimClient) -> Iterator[str]:
    machine = client.machine
    if machine is None or machine.ended:
        return
    for pattern in sorted(machine.interests.waiting()):
        yield f"{client.node}: its edge has not answered for {pattern}"
    for topic in sorted(machine.replays.topics):
        yield f"{client.node}: the past of {topic} is not all read"
    for topic, membership in sorted(machine.topics.items()):
        wanted = LIVE if membership.wants is not None else OUT
        if membership.phase != wanted:
            yield f"{client.node}: {topic} is {membership.phase}"
        if membership.outbox:
            yield f"{client.node}: {len(membership.outbox)} of {topic} in the outbox"


def _awaited(world: PubsubWorld, brokers: dict[NodeId, Broker]) -> Iterator[str]:
    """Members in advance (BRK-W2) that are there: they have not heard of their topic yet, or have not asked for it."""
    sessions = {
        client.machine.session.origin: name
        for name, client in world.clients.items()
        if client.machine is not None and not client.machine.ended
    }
    for broker in brokers.values():
        if broker.tree.is_root:
            for topic in broker.topics.book.topics():
                for member in sorted(broker.topics.book.awaited(topic).keys() & sessions.keys()):
                    yield f"{sessions[member]} has not come to {topic}"


def _differences(world: PubsubWorld) -> Iterator[str]:
    first: dict[Topic, tuple[NodeId, Summary]] = {}
    for client in world.clients.values():
        machine = client.machine
        if machine is None or machine.ended:
            continue
        for topic, membership in sorted(machine.topics.items()):
            if not membership.receiving:
                continue
            have = membership.have.summary()
            known = first.setdefault(topic, (client.node, have))
            if known[1] != have:
                yield f"{client.node} and {known[0]} have not the same of {topic}"
    for topic, (member, have) in sorted(first.items()):
        received = Received(have)
        for name, broker in world.brokers().items():
            node = broker.topics.nodes.get(topic)
            if node is not None and any((entry.origin, entry.number) not in received for entry in node.log):
                yield f"{member} has not all of {topic} that {name} has"
