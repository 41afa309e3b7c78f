"""Header sizes: the source's count, the closed forms, and what the codec really writes."""

from __future__ import annotations

import pytest

from ordercast.protocols import lookup
from ordercast.protocols.locamu_packets import Data, from_columns, to_columns
from ordercast.protocols.locamu_rules import radii
from ordercast.protocols.locamu_sizes import formula, largest, past_bytes, streams_around, vector_bytes
from ordercast.scenario.load import parse_scenario
from ordercast.sim.run import live
from ordercast.sim.world import World
from tests.support.locamu_lab import TreeGroup, line

LINE_SIZES = {"01": (20, 20), "12": (40, 40), "23": (60, 60), "34": (60, 80), "45": (52, 72)}
"""Per hop: vectors, and what changed of the past at the second message; nothing at the first."""


def test_the_source_s_count_on_a_line() -> None:
    group = TreeGroup(line(6), "5")
    messages = [group.publish("0", "5") for _ in range(2)]
    for hop, (vectors, past) in LINE_SIZES.items():
        window = min(3, int(hop[1]))
        sizes = []
        for message in messages:
            (packet,) = group.travelling(message, to=hop[1], by=hop[0])
            sizes.append((vector_bytes(packet.vectors, window), past_bytes(packet.past)))
            group.carry(message, to=hop[1], by=hop[0])
        assert sizes == [(vectors, 0), (vectors, past)]


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


def test_an_average_header_in_a_large_tree_is_what_the_model_says() -> None:
    """One publisher, one group, the binary tree of 511 nodes: 289 bytes a copy, of them 139 for the vectors."""
    raw = {
        "name": "sizes",
        "overlay": {"kind": "tree", "nodes": 511},
        "duration_ms": 100,
        "link": {"latency_ms": 1.0},
        "options": {"tally": True},
        "workload": [{"kind": "open", "arrival": "regular", "rate_per_s": 200, "publishers": ["n37"]}],
        "trace": {"record": "app"},
    }
    world = World(parse_scenario(raw), lookup("locamu"), 0, None)
    live(world)
    tallies = [getattr(host.machine, "tally") for host in world.hosts.values()]  # noqa: B009
    copies = sum(tally.copies for tally in tallies)
    assert copies == 510 * world.published
    assert sum(tally.vector_bytes for tally in tallies) / copies == pytest.approx(139, rel=0.1)
    # The first copy of a link has no past to speak of.
    steady = world.published / (world.published - 1)
    assert steady * sum(tally.past_bytes for tally in tallies) / copies == pytest.approx(157, rel=0.1)


def test_differences_and_reference_give_the_past_back() -> None:
    reference = {1 * 9 + 2: 5, 1 * 9 + 3: 1, 4 * 9 + 1: 300}
    past = {**reference, 1 * 9 + 2: 6, 7 * 9 + 8: 2}
    columns = to_columns(past, list(past), reference, 9)
    assert columns == ((1, 2, 1), (7, 8, 2))
    assert from_columns(columns, reference, 9) == (past, [1 * 9 + 2, 7 * 9 + 8])


def test_the_wire_needs_less_than_the_model() -> None:
    group = TreeGroup(line(6), "5")
    codec = lookup("locamu").codec()
    for _ in range(3):
        group.publish("0", "5")
    while any(isinstance(packet, Data) for _, _, packet in group.in_flight):
        by, to, packet = next(flying for flying in group.in_flight if isinstance(flying[2], Data))
        assert codec.decode(codec.encode(packet), "peer") == packet
        header = codec.size(packet) - codec.size(Data(packet.message, 0, 0, (), ()))
        assert header < vector_bytes(packet.vectors, len(packet.vectors)) + past_bytes(packet.past)
        group.carry(packet.message, to=to, by=by)
