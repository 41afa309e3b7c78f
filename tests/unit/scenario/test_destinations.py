"""Destinations of messages without topics: each kind draws what it says, from the servers only."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from ordercast.core.chance import mix, salt
from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId
from ordercast.scenario.destinations import chooser
from ordercast.scenario.model import To

SERVERS = [NodeId(f"n{i}") for i in range(16)]
DICE = salt(1, "destinations")


def draws(times: int, servers: list[NodeId] = SERVERS, /, **to: Any) -> list[tuple[NodeId, ...]]:
    choose = chooser(msgspec.convert(to, To), servers, "workload[0].to")
    return [choose(mix(DICE, i)) for i in range(times)]


@pytest.mark.parametrize(
    "to",
    [
        {"kind": "random", "count": 4},
        {"kind": "any"},
        {"kind": "tpcc"},
        {"kind": "tpcc", "warehouses_per_node": 3},
        {"kind": "groups", "size": 4, "random": 0.5},
        {"kind": "explicit", "sets": [["n3", "n1"], ["n9"]]},
    ],
)
def test_destinations_are_distinct_servers_in_their_order(to: dict[str, Any]) -> None:
    for dst in draws(300, **to):
        places = [SERVERS.index(node) for node in dst]
        assert places == sorted(set(places))
        assert places


@pytest.mark.parametrize("count", [1, 4, 16])
def test_random_sets_have_the_size_asked_for_and_every_server_its_share(count: int) -> None:
    sets = draws(2000, kind="random", count=count)
    assert {len(dst) for dst in sets} == {count}
    shares = Counter(node for dst in sets for node in dst)
    assert all(abs(shares[node] / 2000 - count / 16) < 0.05 for node in SERVERS)


def test_any_size_is_as_likely_as_any_other() -> None:
    sizes = Counter(len(dst) for dst in draws(8000, kind="any"))
    assert set(sizes) == set(range(1, 17))
    assert all(abs(share - 500) < 90 for share in sizes.values())


def test_contiguous_groups_are_neighbours_and_strided_ones_spread() -> None:
    contiguous = {*draws(200, kind="groups", size=8, layout="contiguous")}
    strided = {*draws(200, kind="groups", size=8)}
    assert contiguous == {tuple(SERVERS[:8]), tuple(SERVERS[8:])}
    assert strided == {tuple(SERVERS[::2]), tuple(SERVERS[1::2])}


def test_some_messages_leave_their_group() -> None:
    groups = {tuple(SERVERS[i::8]) for i in range(8)}
    sets = draws(4000, kind="groups", size=2, random=0.05)
    outside = [dst for dst in sets if dst not in groups]
    assert {len(dst) for dst in outside} == {2}
    # One in fifteen random pairs happens to be a group.
    assert abs(len(outside) / 4000 - 0.05 * 14 / 15) < 0.015


def test_the_mix_of_tpcc_is_mostly_local() -> None:
    """The distribution follows from the transaction mix: 89.27 % one, 10.53 % two, 0.19 % three warehouses."""
    sizes = Counter(len(dst) for dst in draws(40_000, kind="tpcc"))
    assert abs(sizes[1] / 40_000 - 0.89268) < 0.005
    assert abs(sizes[2] / 40_000 - 0.10535) < 0.005
    assert abs(sizes[3] / 40_000 - 0.00191) < 0.0007


def test_a_lone_warehouse_serves_everybody() -> None:
    assert {*draws(300, SERVERS[:1], kind="tpcc")} == {(NodeId("n0"),)}


def test_explicit_sets_take_turns_by_chance() -> None:
    sets = Counter(draws(1000, kind="explicit", sets=[["n3", "n1"], ["n9"]]))
    assert set(sets) == {(NodeId("n1"), NodeId("n3")), (NodeId("n9"),)}
    assert min(sets.values()) > 400


@pytest.mark.parametrize(
    ("to", "problem"),
    [
        ({"kind": "random", "count": 0}, r"workload\[0\].to.count: 0 is not from 1 to 16"),
        ({"kind": "random", "count": 17}, r"workload\[0\].to.count: 17 is not from 1 to 16"),
        ({"kind": "tpcc", "warehouses_per_node": 0}, r"to.warehouses_per_node: 0 is not at least 1"),
        ({"kind": "groups", "size": 5}, r"to.size: 16 servers do not fall into groups of 5"),
        ({"kind": "groups", "size": 0}, r"to.size: 16 servers do not fall into groups of 0"),
        ({"kind": "groups", "size": 4, "random": 1.5}, r"to.random: 1.5 is not a probability"),
        ({"kind": "explicit", "sets": []}, r"to.sets: no set to choose from"),
        ({"kind": "explicit", "sets": [["n1"], []]}, r"to.sets\[1\]: no destination"),
        ({"kind": "explicit", "sets": [["n1", "n1"]]}, r"to.sets\[0\]: names a destination twice"),
        ({"kind": "explicit", "sets": [["n77"]]}, r"to.sets\[0\]: unknown server 'n77'; did you mean 'n7'"),
    ],
)
def test_what_makes_no_sense_is_named_by_its_field(to: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        draws(1, **to)
