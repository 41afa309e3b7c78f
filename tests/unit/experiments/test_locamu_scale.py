"""Thousands of nodes: one configuration measures what it says, and each claim can hold and can fail."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from ordercast.core.state import State
from ordercast.experiments.kit.study import Row
from ordercast.experiments.locamu_scale import LARGE_STUDY
from ordercast.experiments.locamu_scale.footprint import own_bytes, reachable
from ordercast.experiments.locamu_scale.large import ONE, SUBTREES, measure, scenario
from tests.support.study_claims import judged


def ideal(parameters: Row) -> Row:
    nodes = int(str(parameters["nodes"]))
    return {
        "id": "x", **parameters, "published": 32, "delivered": 32 * nodes, "packets": 100 * nodes, "rested": True,
        "build_cpu_s": 0.1, "run_cpu_s": nodes * 32 * 40e-6, "built_bytes_per_node": 9e3,
        "resident_bytes_per_node": 40e3, "own_bytes_per_node": 20e3, "copies": 32 * nodes, "wire_mean": 90.0,
        "wire_most": 200, "model_mean": 280.0, "model_most": 400, "other_packets": 10, "other_bytes_per_copy": 9.0,
        "judged": "held", "failed_checks": "",
    }  # fmt: skip


def ideal_results() -> list[Row]:
    return [ideal(parameters) for parameters in LARGE_STUDY.scales["quick"]]


def test_every_claim_holds_for_ideal_results() -> None:
    assert {claim.id for claim in judged(LARGE_STUDY, ideal_results()).values() if claim.holds is not True} == set()


SPOILED: dict[str, tuple[Row, Row]] = {
    "guarantees-hold": ({"nodes": 511}, {"judged": "violated"}),
    "everything-arrives": ({"nodes": 511, "groups": ONE}, {"delivered": 5}),
    "header-flat": ({"nodes": 2_047, "groups": SUBTREES}, {"model_mean": 300.0}),
    "wire-header-flat": ({"nodes": 2_047, "groups": ONE}, {"wire_mean": 99.0}),
    "memory-flat": ({"nodes": 2_047, "groups": ONE}, {"own_bytes_per_node": 25e3}),
    "time-per-hop": ({"nodes": 2_047, "groups": ONE}, {"run_cpu_s": 32 * 2_047 * 90e-6}),
}


@pytest.mark.parametrize("claim", SPOILED)
def test_a_claim_that_the_results_contradict_does_not_hold(claim: str) -> None:
    where, values = SPOILED[claim]
    rows = [{**row, **values} if where.items() <= row.items() else row for row in ideal_results()]
    assert judged(LARGE_STUDY, rows)[claim].holds is False


@pytest.mark.parametrize("groups", [ONE, SUBTREES])
def test_a_run_in_which_too_little_was_published_proves_no_arrivals(groups: str) -> None:
    rows = [{**row, "published": 0, "delivered": 0} if row["groups"] == groups else row for row in ideal_results()]
    assert judged(LARGE_STUDY, rows)["everything-arrives"].holds is False


def test_one_size_says_nothing_about_growth() -> None:
    claims = judged(LARGE_STUDY, [row for row in ideal_results() if row["nodes"] == 511])
    assert [claims[name].holds for name in ("header-flat", "wire-header-flat", "memory-flat", "time-per-hop")] == [
        None
    ] * 4


def test_figures_are_drawn_and_repeat_byte_for_byte(tmp_path: Path) -> None:
    results = pa.Table.from_pylist(ideal_results())
    drawings = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        drawings.append([one.file.read_bytes() for one in LARGE_STUDY.figures(results, tmp_path / name)])
    assert len(drawings[0]) == 1
    assert drawings[0] == drawings[1]
    # A wider one would be scaled down on the page until nobody can read it.
    assert int(re.search(rb'width="(\d+)', drawings[0][0])[1]) <= 800  # type: ignore[index]


def test_a_configuration_is_measured_in_a_process_of_its_own() -> None:
    row = measure({"protocol": "locamu", "nodes": 31, "groups": ONE, "messages": 16, "seed": 0})
    assert row["published"] == 16
    assert row["delivered"] == 16 * 31
    assert row["copies"] == 16 * 30
    assert row["judged"] == "held"
    assert 0 < int(str(row["wire_most"])) < 400


def test_publishers_are_spread_over_the_depths_of_the_tree() -> None:
    (load,) = scenario(
        {"protocol": "locamu", "nodes": 127, "groups": ONE, "messages": 8, "seed": 0}, tally=False
    ).workload
    assert [int(name[1:]) * 8 // 127 for name in load.publishers] == list(range(8))  # type: ignore[union-attr]


class Pair(State):
    def __init__(self, left: object, right: object) -> None:
        self.left = left
        self.right = right


def test_what_is_shared_and_what_is_seen_twice_counts_once_or_not_at_all() -> None:
    big = list(range(1_000, 2_000))
    alone = own_bytes(Pair(big, None), {})
    assert alone > 8 * 1_000 + 28 * 1_000
    assert abs(own_bytes(Pair(big, big), {}) - alone) < 100
    assert own_bytes(Pair(big, None), reachable(Pair(None, big))) < 1_000


def test_claims_about_our_own_encoding_are_not_the_sources() -> None:
    large = judged(LARGE_STUDY, ideal_results())
    assert (large["header-flat"].of_source, large["wire-header-flat"].of_source) == (True, False)
