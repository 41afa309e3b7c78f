"""The study of vector clocks: each of its claims can be kept and can be broken, and one run of it is what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ordercast.experiments.kit.study import Row
from ordercast.experiments.vector_overhead import STUDY
from ordercast.experiments.vector_overhead.runs import measure, scenario
from tests.support.study_claims import judged


def ideal(parameters: Row) -> Row:
    """A result as the claims would have it."""
    row: dict[str, Any] = {"id": "x", **parameters}
    entry = 1 + row["duration_ms"] / 1e5
    vector = row["protocol"] == "vector"
    row["header_bytes_mean"] = 24.0 + (row["nodes"] * entry if vector else 0)
    row["held_share"] = {"flood": 0.0, "fifo": 0.03, "vector": 0.1 + row["rate_per_node"] / 100}[row["protocol"]]
    row["hold_ms_mean"], row["hold_ms_p99"] = 10 * row["held_share"], 100 * row["held_share"]
    row["judged"], row["failed_checks"] = "held", ""
    return row


def ideal_results() -> list[Row]:
    return [ideal(parameters) for parameters in STUDY.scales["quick"]]


def test_every_claim_holds_for_ideal_results() -> None:
    claims = judged(STUDY, ideal_results())
    assert {claim.id for claim in claims.values() if claim.holds is not True} == set()
    assert len(claims) == 10
    assert claims["vector-header-linear"].measured == "24.0 + 1.01 bytes per node, R² 1.00000"


SPOILED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "guarantees-hold": (
        {"protocol": "vector", "nodes": 16},
        {"judged": "violated", "failed_checks": "causal", "id": "culprit"},
    ),
    "vector-header-linear": ({"protocol": "vector", "nodes": 64}, {"header_bytes_mean": 30.0}),
    "flood-header-flat": ({"protocol": "flood", "nodes": 64}, {"header_bytes_mean": 29.0}),
    "fifo-header-flat": ({"protocol": "fifo", "nodes": 8}, {"header_bytes_mean": 19.0}),
    "entry-below-fixed-size": (
        {"protocol": "vector", "nodes": 8, "duration_ms": 60_000.0},
        {"header_bytes_mean": 24.0 + 8 * 8},
    ),
    "entry-grows-with-the-run": (
        {"protocol": "vector", "nodes": 8, "duration_ms": 60_000.0},
        {"header_bytes_mean": 24.0 + 8},
    ),
    "flood-never-waits": ({"protocol": "flood", "nodes": 8, "seed": 0}, {"held_share": 0.001}),
    "fifo-waits-less-than-vector": ({"protocol": "fifo", "nodes": 32}, {"held_share": 0.2}),
    "waiting-grows-with-the-rate": ({"protocol": "vector", "rate_per_node": 4.0}, {"held_share": 0.1}),
    "waiting-flat-in-the-size": ({"protocol": "vector", "nodes": 64}, {"held_share": 0.2}),
}


@pytest.mark.parametrize("claim", SPOILED)
def test_a_claim_that_the_results_contradict_does_not_hold(claim: str) -> None:
    where, values = SPOILED[claim]
    rows = [{**row, **values} if where.items() <= row.items() else row for row in ideal_results()]
    assert judged(STUDY, rows)[claim].holds is False


def test_a_broken_guarantee_is_named_with_its_configuration() -> None:
    where, values = SPOILED["guarantees-hold"]
    rows = [{**row, **values} if where.items() <= row.items() else row for row in ideal_results()]
    assert "vector (causal), configuration culprit" in judged(STUDY, rows)["guarantees-hold"].measured


def test_what_the_judge_could_not_decide_is_not_taken_for_held() -> None:
    first, *rest = ideal_results()
    assert judged(STUDY, [{**first, "judged": "undecided"}, *rest])["guarantees-hold"].holds is None


def test_incomplete_results_decide_no_claim_about_growth() -> None:
    (row,) = [row for row in ideal_results() if row["protocol"] == "vector" and row["nodes"] == 64 and row["seed"] == 0]
    holds = {claim.id: claim.holds for claim in judged(STUDY, [row]).values()}
    assert holds.pop("guarantees-hold") is True
    assert set(holds.values()) == {None}


def test_the_same_results_are_drawn_as_the_same_three_figures(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(ideal_results())
    drawn = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        drawn.append([(one.file.name, one.file.read_bytes()) for one in STUDY.figures(table, tmp_path / name)])
    assert drawn[0] == drawn[1]
    assert [name for name, _ in drawn[0]] == ["header-bytes.svg", "held-share.svg", "hold-back.svg"]


def test_incomplete_results_are_drawn_too(tmp_path: Path) -> None:
    assert len(STUDY.figures(pa.Table.from_pylist(ideal_results()[:1]), tmp_path)) == 3


VECTOR: Row = {"protocol": "vector", "nodes": 8, "rate_per_node": 1.0, "duration_ms": 1_000.0, "seed": 3}


def test_a_run_is_measured_and_judged_and_depends_on_its_parameters_alone() -> None:
    result = measure(VECTOR)
    assert (result["judged"], result["failed_checks"]) == ("held", "")
    assert result["deliveries"] == 8 * int(result["published"] or 0)
    assert measure(VECTOR) == result
    assert measure({**VECTOR, "seed": 4}) != result


def test_the_vector_costs_a_byte_a_node_over_flooding_as_long_as_its_counters_are_short() -> None:
    extra = float(measure(VECTOR)["header_bytes_mean"] or 0) - float(
        measure({**VECTOR, "protocol": "flood"})["header_bytes_mean"] or 0
    )
    assert extra == pytest.approx(8, abs=0.2)


def test_a_run_whose_order_is_broken_is_measured_as_violated() -> None:
    """`unordered` claims causal order and keeps none."""
    result = measure({**VECTOR, "protocol": "unordered", "nodes": 16, "rate_per_node": 4.0})
    assert result["judged"] == "violated"
    assert "causal" in str(result["failed_checks"])


def test_links_keep_no_order_so_that_there_is_something_to_hold_back() -> None:
    assert scenario(VECTOR).link.fifo is False
