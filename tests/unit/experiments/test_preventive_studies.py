"""The studies of the preventive broadcast measure what they say, and every claim can fail."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from ordercast.experiments.kit.study import Row, Study
from ordercast.experiments.preventive import STUDIES
from ordercast.experiments.preventive.runs import measure
from ordercast.experiments.preventive.scales import SIZES as SIZES_STUDIED
from ordercast.experiments.preventive.setting import point, scenario_of
from ordercast.experiments.preventive.size_claims import by_size
from tests.support.study_claims import judged

BY_NAME: dict[str, Study] = {study.name: study for study in STUDIES}
TALK: dict[str, Any] = {"nodes": 40, "latency_ms": 100.0, "period_s": 10.0, "messages": 60, "rate_per_s": 10.0}


@cache
def measured(**changes: Any) -> Row:
    parameters = point(**{**TALK, **changes})
    return {**parameters, **measure(parameters)}


def test_a_new_link_is_safe_after_three_hops_and_three_packets() -> None:
    """K4, K5; and as many messages wait for it as are published meanwhile (K10)."""
    row = measured()
    assert float(row["phase_ms"] or 0) == pytest.approx(300, rel=0.1)
    assert float(row["three_packets"] or 0) > 0.9
    assert float(row["collected"] or 0) == pytest.approx(3, rel=0.3)
    assert (row["judged"], row["missing"], row["gaps"]) == ("held", 0, 0)


@pytest.mark.parametrize("changes", [{"memory": "links"}, {"memory": "counting", "period_s": 0.0}])
def test_memories_of_links_are_empty_after_the_last_message_and_a_vector_is_not(changes: dict[str, Any]) -> None:
    """K13."""
    row = measured(**changes)
    assert float(row["remembered"] or 0) > 0
    assert row["remembered_at_rest"] == 0
    assert float(measured()["remembered_at_rest"] or 0) >= 15
    assert row["judged"] == "held"


def test_clocks_cost_an_entry_for_each_who_published() -> None:
    """K1, K2: on the same overlay, from the real encoder and the real comparisons."""
    few, many = (measured(protocol="vector-overlay", origins=some) for some in (4, 16))
    assert float(many["header_max"] or 0) - float(few["header_max"] or 0) > 12 * 4
    assert float(many["comparisons"] or 0) > 2 * float(few["comparisons"] or 0) > 4
    assert few["judged"] == many["judged"] == "held"


COLUMNS = (
    "links", "unsafe", "path_safe", "path_all", "buffer_max", "time_to_all_ms", "missing", "header_min", "header_max",
    "copies", "new_links", "new_links_per_s", "phase_ms", "three_packets", "collected", "comparisons", "remembered",
    "remembered_at_rest", "lock_restarts", "failed_links", "digests", "gaps", "peer_errors",
    "isolated", "isolated_at_end",
)  # fmt: skip


def like(**changes: Any) -> Row:
    """A row as runs give it, with these numbers."""
    usual: Row = {**point(), **dict.fromkeys(COLUMNS, 1.0), "gaps": 0, "peer_errors": 0, "missing": 0}
    return {**usual, "judged": "held", "failed_checks": "", **changes}


def test_made_up_rows_have_the_columns_of_real_ones() -> None:
    assert like().keys() <= measured().keys()


SIZES = [like(**point(nodes=n), links=9.0, copies=8.0, header_min=19, header_max=20) for n in (100, 300, 1000)]
CLOCKS = [
    like(**point(protocol="vector-overlay", origins=n, rate_per_s=4.0), header_max=20 + 6 * n, comparisons=0.8 * n)
    for n in (5, 10, 20)
]
SLOW = like(**point(latency_ms=500.0), phase_ms=1500.0, unsafe=0.15, new_links_per_s=0.1, three_packets=0.99)
QUIET = like(**point(rate_per_s=10.0, latency_ms=100.0, memory="links"), remembered=5.0, remembered_at_rest=0.0)
VECTOR = like(**point(rate_per_s=10.0, latency_ms=100.0), remembered_at_rest=20.0, collected=3.0, phase_ms=300.0)


@pytest.mark.parametrize(
    ("study", "claim", "rows", "wrong"),
    [
        ("preventive-scale", "K1-header", SIZES, {"header_max": 400}),
        ("preventive-scale", "K1-clocks", CLOCKS, {"header_max": 80}),
        ("preventive-scale", "K2-comparisons", CLOCKS, {"comparisons": 90.0}),
        ("preventive-scale", "K3-vector", CLOCKS, {"failed_checks": "causal"}),
        ("preventive-scale", "K14-copies", SIZES, {"copies": 30.0}),
        ("preventive-scale", "no-gaps", SIZES, {"missing": 1}),
        ("preventive-latency", "K4-phase", [SLOW], {"phase_ms": 2000.0}),
        ("preventive-latency", "K5-control", [SLOW], {"three_packets": 0.9}),
        ("preventive-latency", "K6-little", [SLOW], {"unsafe": 0.3}),
        ("preventive-latency", "K8-paths", [SLOW], {"path_safe": 99.0}),
        ("preventive-churn", "K13-silence", [QUIET, VECTOR], {"remembered_at_rest": 1.0}),
        ("preventive-churn", "K15-isolated", [like(churn_per_minute=1.0, isolated_at_end=0)], {"isolated_at_end": 1}),
        ("preventive-churn", "K10-mean", [VECTOR, QUIET], {"collected": 5.0}),
        ("preventive-churn", "K10-buffers", [like(max_buffer=2, buffer_max=2.0)], {"buffer_max": 3.0}),
        ("preventive-churn", "K12-break-first", [like(hold_ms=0.001, digests=90, new_links=100)], {"digests": 10}),
    ],
)
def test_every_claim_holds_for_good_rows_and_not_for_bad_ones(
    study: str, claim: str, rows: list[Row], wrong: Row
) -> None:
    assert judged(BY_NAME[study], rows)[claim].holds is True
    assert judged(BY_NAME[study], [{**rows[0], **wrong}, *rows[1:]])[claim].holds is False


def test_the_links_that_the_source_reports_are_drawn_where_as_many_processes_were_measured(tmp_path: Path) -> None:
    for nodes, is_drawn in ((1_000, False), (10_000, True)):
        table = pa.Table.from_pylist([like(**point(nodes=n)) for n in (100, nodes)])
        costs = BY_NAME["preventive-scale"].figures(table, tmp_path)[0]
        assert ("about 17 links, which [PC18] reports" in costs.caption) == is_drawn
        assert ("links by [PC18]" in costs.file.read_text()) == is_drawn


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_claims_are_in_the_order_of_their_numbers(study: Study) -> None:
    for of_source in (True, False):
        ids = [
            id_ for id_, claim in judged(study, [like(links=9.0, copies=8.0)]).items() if claim.of_source is of_source
        ]
        numbers = [int(found[1]) for id_ in ids if (found := re.match(r"K(\d+)-", id_))]
        assert numbers == sorted(numbers)


def test_what_a_bound_costs_is_told_of_all_runs_with_it() -> None:
    rows = [like(max_buffer=2, buffer_max=seed + 1.0, lock_restarts=10.0 * seed, seed=seed) for seed in range(2)]
    told = judged(BY_NAME["preventive-churn"], rows)["K10-buffers"].measured
    assert "2: 2 at most, 5 ± 64 restarts a run, 1 links given up" in told


@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_a_point_by_the_number_of_processes_is_one_configuration_with_several_seeds(scale: str) -> None:
    """Runs at four times the rate, that are there for vector clocks, are not more seeds of the usual ones."""
    rows = [{**like(), **row, "links": float(cast("int", row["rate_per_s"]))} for row in SIZES_STUDIED[scale]]
    assert {(found.mean, found.error) for found in by_size(rows, "links")} == {(1.0, 0.0)}


def test_every_configuration_of_every_scale_is_a_scenario() -> None:
    """Nothing is refused after hours of others; and no configuration is there twice."""
    for study in STUDIES:
        for rows in study.scales.values():
            for row in rows:
                if int(row["nodes"] or 0) <= 1000:
                    assert scenario_of(row).duration_ms > 0
            assert len({tuple(sorted(row.items())) for row in rows}) == len(rows), study.name
