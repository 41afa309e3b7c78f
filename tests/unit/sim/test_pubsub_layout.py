"""A tree of brokers as a scenario describes it: what is accepted, what is refused, and how far it is from A to B."""

from __future__ import annotations

from typing import Any

import pytest

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId
from ordercast.scenario.load import parse_scenario
from ordercast.scenario.model import Scenario
from ordercast.sim.pubsub.layout import lay_out

CLIENT = {"edge": "b1", "topics": ["t"]}


def scenario(overlay: dict[str, Any] | None = None, **more: Any) -> Scenario:
    tree = {"kind": "broker-tree", "parents": {"b1": "b0", "b2": "b0"}, "clients": {"c": CLIENT}, **(overlay or {})}
    raw: dict[str, Any] = {"name": "x", "protocol": "broker", "overlay": tree, "workload": [], **more}
    return parse_scenario(raw)


def test_the_root_is_the_broker_without_a_parent_whatever_the_order() -> None:
    layout = lay_out(scenario({"parents": {"b2": "b1", "b1": "b0"}}), 0)
    assert layout.parents == {"b0": None, "b1": "b0", "b2": "b1"}


def test_a_random_tree_belongs_to_the_seed_and_keeps_the_degree() -> None:
    asked = scenario({"parents": {}, "brokers": 20, "degree": 3})
    first, again, other = (lay_out(asked, seed).parents for seed in (1, 1, 2))
    assert first == again != other
    degrees = {
        name: sum(p == name for p in first.values()) + (parent is not None) for name, parent in first.items()
    }  # fmt: skip
    assert max(degrees.values()) <= 3
    assert sum(parent is None for parent in first.values()) == 1


def test_a_client_is_where_its_edge_is_and_a_pair_goes_before_its_regions() -> None:
    latency = lay_out(
        scenario(
            {
                "regions": {"b0": "Europe", "b1": "Asia"},
                "latency": [{"between": ["Europe", "Asia"], "latency_ms": 240.0}],
            },
            links=[{"between": ["b1", "c"], "latency_ms": 5.0}],
            link={"latency_ms": 7.0},
        ),
        0,
    ).latency
    assert [latency("c", "b0"), latency("b0", "b1"), latency("c", "b1"), latency("b2", "b0")] == [
        240.0,
        240.0,
        5.0,
        7.0,
    ]


def test_who_joins_later_is_not_in_the_directory() -> None:
    layout = lay_out(scenario(fault=[{"kind": "join", "node": "b2", "at_ms": 5}]), 0)
    assert layout.late == {NodeId("b2")}
    assert set(layout.directory()) == {"b0", "b1"}


@pytest.mark.parametrize(
    ("overlay", "more", "words"),
    [
        ({"parents": {"b1": "b0", "b3": "b2"}}, {}, "one root, not 2"),
        ({"parents": {"b1": "b2", "b2": "b1"}}, {}, "a cycle"),
        ({"parents": {"b1": "b0", "b3": "b2", "b2": "b3"}}, {}, "is on a cycle"),
        ({"parents": {}}, {}, "either parents or a number of brokers"),
        ({"brokers": 3}, {}, "given by its parents already"),
        ({"parents": {}, "brokers": 5, "degree": 1}, {}, "no tree of 5 brokers"),
        ({"clients": {}}, {}, "nobody publishes or receives"),
        ({"clients": {"c": {"edge": "b9", "topics": ["t"]}}}, {}, r"overlay.clients.c.edge: unknown process 'b9'"),
        ({"clients": {"c": {"edge": "b1"}}}, {}, "it has none"),
        ({"clients": {"b1": CLIENT}}, {}, "a broker of that name"),
        ({"clients": {"a/b": CLIENT}}, {}, "cannot be a name"),
        ({"clients": {"c": {"edge": "b1", "topics": ["a b"]}}}, {}, "not allowed"),
        ({"clients": {"c": {"edge": "b1", "topics": ["t"], "publishes": ["t"]}}}, {}, "among its topics already"),
        ({"regions": {"b7": "Asia"}}, {}, "unknown process 'b7'"),
        ({"latency": [{"between": ["Mars", "Mars"], "latency_ms": 1.0}]}, {}, "unknown region 'Mars'"),
        ({}, {"links": [{"between": ["b1", "x"], "latency_ms": 1.0}]}, "unknown process 'x'"),
        ({}, {"link": {"loss": 0.1}}, "neither lose, double nor reorder"),
        ({}, {"fault": [{"kind": "join", "node": "b0", "at_ms": 1}]}, "cannot join it later"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_named(overlay: dict[str, Any], more: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        lay_out(scenario(overlay, **more), 0)


def test_a_plain_overlay_is_not_for_brokers() -> None:
    asked = parse_scenario({"name": "x", "overlay": {"kind": "line", "nodes": 3}, "workload": []})
    with pytest.raises(UsageError, match="runs on a 'broker-tree'"):
        lay_out(asked, 0)


def test_the_way_back_may_take_another_time() -> None:
    latency = lay_out(
        scenario(
            {
                "regions": {"b0": "Europe", "b1": "Asia"},
                "latency": [
                    {"between": ["Europe", "Asia"], "latency_ms": 240.0},
                    {"between": ["Asia", "Europe"], "latency_ms": 90.0, "one_way": True},
                ],
            },
            links=[{"between": ["b2", "c"], "latency_ms": 5.0, "one_way": True}],
            link={"latency_ms": 7.0},
        ),
        0,
    ).latency
    assert [latency("b0", "b1"), latency("b1", "b0"), latency("b2", "c"), latency("c", "b2")] == [240.0, 90.0, 5.0, 7.0]


@pytest.mark.parametrize(
    ("detection", "words"),
    [({"b9": 5.0}, "overlay.detection: unknown process 'b9'"), ({"b1": -1.0}, "overlay.detection.b1.latency_ms: -1.0")],
)
def test_a_detection_that_makes_no_sense_is_refused(detection: dict[str, float], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        lay_out(scenario({"detection": detection}), 0)
