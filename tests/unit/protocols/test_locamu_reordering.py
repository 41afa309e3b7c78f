"""LoCaMu on links that reorder and lose nothing: sessions on links are to cost no more there than whole headers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ordercast.core.machine import Outbox
from ordercast.core.messages import Message, Packet
from ordercast.protocols.locamu.links import LinkEnds
from ordercast.protocols.locamu.node import Locamu
from ordercast.protocols.locamu.packets import Data
from ordercast.protocols.locamu.variants import LOCAMU
from ordercast.scenario.load import parse_scenario
from ordercast.sim.links.world import World
from ordercast.sim.run import live


def _costs(*, delta: bool, high_ms: float) -> tuple[float, float]:
    """Copies per delivery, and the mean latency in ms, on a tree of 15 nodes with 60 messages a second."""
    copies = 0

    class Counting(Locamu):
        def on_receive(self, peer: Any, packet: Packet, out: Outbox) -> None:
            nonlocal copies
            copies += isinstance(packet, Data)
            super().on_receive(peer, packet, out)

    scenario = parse_scenario(
        {
            "name": "reordering",
            "overlay": {"kind": "tree", "nodes": 15},
            "duration_ms": 1000,
            "options": {"delta": delta},
            "link": {"latency_ms": {"kind": "uniform", "low_ms": 1, "high_ms": high_ms}, "fifo": False},
            "workload": [{"kind": "open", "rate_per_s": 60, "payload_bytes": 32}],
            "trace": {"record": "app"},
        }
    )
    world = World(scenario, msgspec.structs.replace(LOCAMU, build=Counting), 1, None)
    published: dict[str, int] = {}
    latencies: list[int] = []
    for host in world.hosts.values():

        def deliver(message: Message, then: Any = host.deliver) -> None:
            latencies.append(world.clock.now - published.setdefault(message.id, world.clock.now))
            then(message)

        host.deliver = deliver  # type: ignore[method-assign]
    live(world)
    others = [latency for latency in latencies if latency]  # A publisher delivers its own at once.
    assert len(latencies) == 15 * len(published)
    return copies / len(others), sum(others) / len(others) / 1e6


@pytest.mark.parametrize(("high_ms", "more"), [(30, 1.1), (100, 1.1), (400, 1.4)])
def test_links_that_reorder_cost_little_more_with_sessions_than_without(high_ms: float, more: float) -> None:
    """LCM-H5: giving sessions up because copies are late made more copies, which were late, and so on.

    What nodes have to learn first counts most where it takes longest: the run is one second long.
    """
    copies, latency_ms = _costs(delta=True, high_ms=high_ms)
    copies_whole, latency_ms_whole = _costs(delta=False, high_ms=high_ms)

    assert copies <= more * copies_whole
    assert latency_ms <= more * latency_ms_whole


def test_sessions_that_are_given_up_again_and_again_are_tried_ever_more_seldom() -> None:
    """LCM-H5: a link that never carries one costs whole headers and little else; one that does is tried soon again."""
    links = LinkEnds(delta=True)
    pauses = []
    for _ in range(6):
        links.give_up(1)
        pauses.append(links.outgoing[1].whole)
        links.outgoing[1].whole = 0
    assert pauses == [32, 128, 512, 2048, 8192, 8192]
    links.outgoing[1].session, links.outgoing[1].number = 1, 4 * 8192 + 1
    links.give_up(1)

    assert links.outgoing[1].whole == 32
