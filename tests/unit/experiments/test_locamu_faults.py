"""Crashes everywhere: the plan stays within the fault assumption, the watch sees what happens, the claims can fail."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ordercast.core.ids import NodeId
from ordercast.experiments.kit.study import Row
from ordercast.experiments.locamu_scale import FAULTS_STUDY
from ordercast.experiments.locamu_scale.meter import metered
from ordercast.experiments.locamu_scale.storm import DOWN_MS, QUARTER, SINGLE, colours, crashes, scenario
from ordercast.experiments.locamu_scale.storm_runs import HALF, LITTLE, SOURCE_HALF, measure, series
from ordercast.experiments.locamu_scale.storm_watch import KINDS, StormWatch
from ordercast.overlay.graphs import build_graph
from ordercast.protocols import lookup
from ordercast.scenario.model import Tree
from ordercast.sim.links.world import World
from ordercast.sim.run import live
from tests.support.study_claims import judged

SMALL: Row = {
    "protocol": "locamu", "nodes": 15, "duration_ms": 1_200.0, "together": QUARTER, "load": 0.1, "seed": 0,
}  # fmt: skip


def neighbours(nodes: int) -> dict[str, tuple[str, ...]]:
    return {str(node): tuple(map(str, near)) for node, near in build_graph(Tree(nodes=nodes), 0).neighbours.items()}


@pytest.mark.parametrize("nodes", [15, 63, 100])
def test_no_path_of_three_nodes_has_a_colour_twice(nodes: int) -> None:
    colour_of = {f"n{i}": colour for i, colour in enumerate(colours(nodes))}
    for middle, near in neighbours(nodes).items():
        path = [colour_of[middle], *(colour_of[node] for node in near)]
        assert len(set(path)) == len(path)


@pytest.mark.parametrize("together", [QUARTER, SINGLE])
def test_at_most_one_node_of_every_path_of_three_is_down_at_any_time(together: str) -> None:
    near = neighbours(63)
    plan = crashes(63, 3_000.0, together)
    for moment in {crash.at_ms for crash in plan}:
        down = {crash.node for crash in plan if crash.at_ms <= moment <= (crash.recover_ms or 0)}
        assert down
        for middle, others in near.items():
            assert len(down.intersection([middle, *others])) <= 1


def test_every_node_is_down_once_in_a_round_of_colours() -> None:
    plan = crashes(15, 1_500.0, QUARTER)
    assert sorted(crash.node for crash in plan) == sorted(f"n{i}" for i in range(15))


def test_a_metered_run_is_the_run_itself() -> None:
    def lived(protocol: Any) -> World:
        planned = scenario(SMALL, 100.0, duration_ms=800.0, limited=True, stormy=True)
        world = World(planned, protocol, 0, None)
        live(world)
        return world

    sent: list[NodeId] = []
    plain = lived(lookup("locamu"))
    watched = lived(metered(lookup("locamu"), lambda node, _peer, _packet, _machine: sent.append(node)))
    assert [c.sent for c in watched.channels()] == [c.sent for c in plain.channels()]
    assert [h.delivered for h in watched.hosts.values()] == [h.delivered for h in plain.hosts.values()]
    assert len(sent) == sum(channel.sent for channel in plain.channels())


def test_crashes_within_the_assumption_cost_neither_order_nor_messages() -> None:
    row = measure(SMALL)
    assert row["judged"] == "held"
    assert row["complete"] is True
    assert row["stores_empty"] is True
    assert int(str(row["resend_bytes"])) > 0
    assert len(series(row["around"])) == 60
    first, at_first = (sum(series(row[f"{kind}_over_time"])) for kind in ("first", "resend"))
    assert first == row["first_bytes"]
    assert at_first <= int(str(row["resend_bytes"]))


def gap_of(deliveries: list[tuple[int, int]], *, end_ms: float = 0.0) -> tuple[float, float]:
    """Of a child of the root: when its gap began after the crash, and how long it was; deliveries with when due."""
    watch = StormWatch(lookup("locamu"), 15)
    planned = scenario(SMALL, 100.0, duration_ms=1_200.0, limited=True, stormy=True)
    world = World(planned, lookup("locamu"), 0, None)
    watch.prepare(world)
    crash = next(crash for crash in crashes(15, 1_200.0, QUARTER) if crash.node == "n0")
    for delivered, due in deliveries:
        watch.delivered[1].append(int((crash.at_ms + delivered) * 1e6))
        watch.due[1].append(int((crash.at_ms + due) * 1e6))
    world.clock.run_until(int((crash.at_ms + end_ms) * 1e6))
    gap = watch.gaps([crash])[0]
    assert gap.child == 1
    return gap.start_ms - crash.at_ms, gap.ms


def test_a_gap_is_the_longest_silence_from_the_crash_on() -> None:
    deliveries = [(-90, -91), (-1, -2), (60, 5), (65, 64), (400, 100), (900, 899)]
    assert gap_of(deliveries, end_ms=5_000.0) == (100.0, 300.0)


def test_the_gap_of_a_child_that_never_delivers_again_lasts_until_the_run_ends() -> None:
    assert gap_of([(-5, -6)], end_ms=700.0) == (0.0, 700.0)
    assert gap_of([(-5, -6), (1, 1)], end_ms=700.0) == (1.0, 699.0)
    assert gap_of([(-5, -6), (1, 1)]) == (1.0, DOWN_MS - 1.0)


def ideal(parameters: Row) -> Row:
    locamu = parameters["protocol"] == "locamu"
    row: Row = {
        "id": "x", **parameters, "rate_per_s": 100.0, "capacity_per_s": 200.0, "crashes": 10, "published": 10,
        "delivered": 630, "complete": True, "last_delivery_ms_after_recovery": 500.0,
        "last_delivery_ms_after_publication": 50.0, "stores_empty": True, "stores_empty_ms_after_recovery": 600.0,
        "most_buffered": 3, "most_stored": 9, "gaps": 100, "gap_ms_p50": 52.0 if locamu else 160.0, "gap_ms_p95": 60.0,
        "gap_ms_max": 70.0, "gap_allowed_ms_p50": 60.0, "gaps_over": 1, "gap_over_ms_max": 2.0, "repair_share": 0.5,
        "around": "1 2 3", "judged": "held", "failed_checks": "",
    }  # fmt: skip
    for kind in KINDS:
        row |= {f"{kind}_bytes": 10, f"{kind}_packets": 1, f"{kind}_over_time": "0 1 2"}
    return row


def ideal_results() -> list[Row]:
    return [ideal(parameters) for parameters in FAULTS_STUDY.scales["quick"]]


def test_every_claim_holds_for_ideal_results() -> None:
    assert {claim.id for claim in judged(FAULTS_STUDY, ideal_results()).values() if claim.holds is not True} == set()


SPOILED: dict[str, tuple[Row, Row]] = {
    "guarantees-hold": ({"protocol": "cbcast"}, {"judged": "violated"}),
    "P1-P2": ({"protocol": "locamu", "together": SINGLE}, {"judged": "violated"}),
    "P3-single-50": ({"protocol": "locamu", "together": SINGLE}, {"last_delivery_ms_after_recovery": 2_001.0}),
    "P3-quarter-50": ({"protocol": "locamu", "load": HALF}, {"stores_empty": False}),
    "P3-quarter-16": ({"protocol": "locamu", "load": SOURCE_HALF}, {"stores_empty_ms_after_recovery": 5_001.0}),
    "P3-quarter-10": ({"protocol": "locamu", "load": LITTLE}, {"complete": False}),
    "gap-single-50": ({"protocol": "locamu", "load": HALF}, {"gaps_over": 6}),
    "gap-quarter-50": ({"protocol": "locamu", "load": HALF}, {"gaps_over": 6}),
    "gap-quarter-16": ({"protocol": "locamu", "load": SOURCE_HALF}, {"gaps_over": 6}),
    "gap-quarter-10": ({"protocol": "locamu", "load": LITTLE}, {"gaps_over": 6}),
    "others-wait": ({"protocol": "cbcast"}, {"gap_ms_p50": 60.0}),
    "repair-bytes": ({"protocol": "locamu", "load": HALF}, {"repair_share": 1.1}),
}


@pytest.mark.parametrize("claim", SPOILED)
def test_a_claim_that_the_results_contradict_does_not_hold(claim: str) -> None:
    where, values = SPOILED[claim]
    rows = [{**row, **values} if where.items() <= row.items() else row for row in ideal_results()]
    assert judged(FAULTS_STUDY, rows)[claim].holds is False


def test_claims_about_missing_runs_are_undecided() -> None:
    claims = judged(FAULTS_STUDY, [row for row in ideal_results() if row["protocol"] != "locamu"])
    assert claims["P3-quarter-50"].holds is None
    assert claims["others-wait"].holds is None


@pytest.mark.parametrize("other", ["cbcast", "delta-neighbourhood"])
def test_that_others_wait_is_undecided_unless_each_of_them_was_run(other: str) -> None:
    assert (
        judged(FAULTS_STUDY, [row for row in ideal_results() if row["protocol"] != other])["others-wait"].holds is None
    )


def test_order_is_undecided_where_the_judge_cannot_tell() -> None:
    first, *rest = ideal_results()
    claims = judged(FAULTS_STUDY, [{**first, "judged": "undecided"}, *rest])
    assert (claims["P1-P2"].holds, claims["guarantees-hold"].holds) == (None, None)


def test_figures_are_drawn_and_repeat_byte_for_byte(tmp_path: Path) -> None:
    results = pa.Table.from_pylist(ideal_results())
    drawings = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        drawings.append([one.file.read_bytes() for one in FAULTS_STUDY.figures(results, tmp_path / name)])
    assert len(drawings[0]) == 2
    assert drawings[0] == drawings[1]
    # Wider ones would be scaled down on the page until nobody can read them.
    assert all(int(re.search(rb'width="(\d+)', one)[1]) <= 800 for one in drawings[0])  # type: ignore[index]
