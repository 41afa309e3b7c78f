"""Header sizes: the source's count, the closed forms, and what the codec really writes."""

from __future__ import annotations

import pytest

from ordercast.core.messages import Packet
from ordercast.protocols import lookup
from ordercast.protocols.locamu.packets import Data
from ordercast.protocols.locamu.rules import radii
from ordercast.protocols.locamu.sizes import formula, largest, streams_around
from ordercast.scenario.load import parse_scenario
from ordercast.sim.links.network import LinkDirection
from ordercast.sim.links.world import World
from ordercast.sim.run import live
from tests.support.locamu_lab import TreeGroup, line

LINE_SIZES = {"01": (20, 20), "12": (40, 40), "23": (60, 60), "34": (60, 80), "45": (52, 72)}
"""Per hop: vectors, and what changed of the past at the second message; nothing at the first."""


def test_the_source_s_count_on_a_line() -> None:
    group = TreeGroup(line(6), "5", tally=True)
    messages = [group.publish("0", "5") for _ in range(2)]
    sizes = {"01": [20, 0, 20, 20]}
    for hop, (vectors, past) in LINE_SIZES.items():
        tally = group.machine(hop[0]).tally
        assert tally is not None
        if hop == "01":
            assert (tally.vector_bytes, tally.past_bytes, tally.last) == (2 * vectors, past, vectors + past)
        for message in messages if hop != "01" else []:
            before = (tally.vector_bytes, tally.past_bytes)
            group.carry(message, to=hop[0], by=str(int(hop[0]) - 1))
            sizes.setdefault(hop, []).extend((tally.vector_bytes - before[0], tally.past_bytes - before[1]))
            assert tally.last == sum(sizes[hop][-2:])
        assert sizes[hop] == [vectors, 0, vectors, past]


@pytest.mark.parametrize(
    ("degree", "f", "stated", "published", "corrected"),
    [
        (3, 1, 540, 588, 588),
        (3, 2, 2_604, 3_924, 6_740),
        (4, 1, 1_408, 1_564, 1_564),
        (4, 2, 12_896, 24_804, 51_156),
        (5, 1, 3_100, 3_452, 3_452),
    ],
)
def test_the_closed_forms(degree: int, f: int, stated: int, published: int, corrected: int) -> None:
    assert formula(degree, f) == stated
    assert largest(degree, f, "published") == published
    assert largest(degree, f) == corrected


def test_a_node_with_three_neighbours_keeps_track_of_102_streams() -> None:
    assert streams_around(3, radii(1, "corrected")) == 102


def test_an_average_header_in_a_large_tree_is_what_the_model_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """One publisher, one group, the binary tree of 511 nodes: 289 bytes a copy, of them 139 for the vectors.

    The wire needs less than a sixth of it, introductions (LCM-H6) included.
    """
    raw = {
        "name": "sizes",
        "overlay": {"kind": "tree", "nodes": 511},
        "duration_ms": 100,
        "link": {"latency_ms": 1.0},
        "options": {"tally": True},
        "workload": [{"kind": "open", "arrival": "regular", "rate_per_s": 200, "publishers": ["n37"]}],
        "trace": {"record": "app"},
    }
    codec, transmit = lookup("locamu").codec(), LinkDirection.transmit
    headers: list[int] = []

    def weigh(channel: LinkDirection, packet: Packet, size: int = 0) -> None:
        if isinstance(packet, Data):
            headers.append(codec.size(packet) - len(packet.message.payload))
        transmit(channel, packet, size)

    monkeypatch.setattr(LinkDirection, "transmit", weigh)
    world = World(parse_scenario(raw), lookup("locamu"), 0, None)
    live(world)
    assert sum(headers) / len(headers) < 289 / 6
    tallies = [getattr(host.machine, "tally") for host in world.hosts.values()]  # noqa: B009
    copies = sum(tally.copies for tally in tallies)
    assert copies == 510 * world.published
    assert sum(tally.vector_bytes for tally in tallies) / copies == pytest.approx(139, rel=0.1)
    # The first copy of a link has no past to speak of.
    steady = world.published / (world.published - 1)
    assert steady * sum(tally.past_bytes for tally in tallies) / copies == pytest.approx(157, rel=0.1)


def test_the_wire_needs_less_than_the_model() -> None:
    group = TreeGroup(line(6), "5", tally=True)
    codec = lookup("locamu").codec()
    for _ in range(3):
        group.publish("0", "5")
    while any(isinstance(packet, Data) for _, _, packet in group.in_flight):
        by, to, packet = next(flying for flying in group.in_flight if isinstance(flying[2], Data))
        assert codec.decode(codec.encode(packet), "peer") == packet
        header = codec.size(packet) - codec.size(Data(packet.message, 0, 0, ()))
        said = group.said(packet)
        words = sum(1 + 2 * len(nodes) for _, nodes, _ in said.vectors) + 2 * len(list(said.past))
        assert packet.number == 0 or header < 4 * words
        group.carry(packet.message, to=to, by=by)
