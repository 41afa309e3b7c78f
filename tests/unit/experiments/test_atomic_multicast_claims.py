"""The claims of the article on the daisy chain: each can be kept and can be broken by results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ordercast.experiments.atomic_multicast import (
    CLOCKS_STUDY,
    GROUPS_STUDY,
    RANDOM_STUDY,
    STUDIES,
    TCP_STUDY,
    TPCC_STUDY,
)
from ordercast.experiments.atomic_multicast.runs import COVER, DCC, DCC_RV, DF, LITE, SKEEN, STRIDED
from ordercast.experiments.kit.study import Row, Study
from tests.support.study_claims import judged

DESTINATIONS = {"rand2": 2, "rand4": 4, "rand8": 8, "randN": 8.5, "tpcc": 1.1, "2x8": 2, "4x4": 4, "8x2": 8}
VISITS = {"strict": 3.0, "lite": 2.0, "cover": 1.0}


def rate(row: dict[str, Any]) -> float:
    """Multicasts per second as the article would have them."""
    size = DESTINATIONS[row["workload"]]
    if row["clients"] == 1:
        return {SKEEN: 3000.0, DF: 2500.0}.get(row["system"], 1000.0)
    loaded = {SKEEN: 300_000 / size**2, DF: 100_000 / size**2.5}
    chain = 100_000 / size**0.5 * (1 - row["random"]) / (1 + row["servers"] / 100)
    return float(loaded.get(row["system"], chain if "whole" in row["system"] else chain * 1.1))


def ideal(parameters: Row) -> Row:
    """A result as the claims would have it."""
    row: dict[str, Any] = {"id": "x", **parameters}
    size = DESTINATIONS[row["workload"]]
    latency = 1000 * row["clients"] / rate(row)
    steps = VISITS.get(row["system"].partition(",")[0], 0.0)
    return {
        **row,
        "published": row.get("messages", 100),
        "throughput_per_s": rate(row),
        "latency_ms_mean": latency,
        "latency_ms_trimmed": 0.9 * latency,
        "latency_ms_p99": 2 * latency,
        "to_1": 0.893,
        "to_2": 0.105,
        "to_3": 0.002,
        "packets_per_message": {SKEEN: size * size, DF: 2 * size - 1}.get(row["system"], size),
        "header_bytes_per_hop": 100.0 + row["servers"] if "whole" in row["system"] else 30.0,
        "visits_per_message": steps,
        "visits_per_destination": steps / size,
        "fast_share": 1 / (1 + steps),
        "judged": "held",
        "failed_checks": "",
    }


def ideal_results(study: Study) -> list[Row]:
    return [ideal(parameters) for parameters in study.scales["quick"]]


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_every_claim_holds_for_ideal_results(study: Study) -> None:
    refuted = {claim.id for claim in judged(study, ideal_results(study)).values() if claim.holds is not True}
    assert refuted == set()


def test_the_studies_judge_all_eleven_claims_of_the_article() -> None:
    found = {claim for study in STUDIES for claim in judged(study, ideal_results(study))}
    assert {f"Q{i}" for i in range(1, 12)} <= found


Spoil = tuple[str, Study, dict[str, Any], dict[str, Any]]
SPOILED: list[Spoil] = [
    ("Q1", RANDOM_STUDY, {"system": DF, "workload": "rand8"}, {"throughput_per_s": 1e6}),
    ("Q1", RANDOM_STUDY, {"system": DF, "workload": "rand8"}, {"latency_ms_mean": 0.1}),
    ("Q2", RANDOM_STUDY, {"system": SKEEN, "workload": "rand4"}, {"throughput_per_s": 1e6}),
    ("Q3", RANDOM_STUDY, {"system": DCC, "workload": "rand8"}, {"throughput_per_s": 10.0}),
    ("Q3", RANDOM_STUDY, {"system": DCC, "workload": "rand2"}, {"throughput_per_s": 1e7}),
    ("Q1", TCP_STUDY, {"system": DF, "workload": "rand4"}, {"throughput_per_s": 1e6}),
    ("Q2", TCP_STUDY, {"system": SKEEN, "workload": "rand4"}, {"throughput_per_s": 1e6}),
    ("Q3", TCP_STUDY, {"system": DCC, "workload": "rand4"}, {"throughput_per_s": 10.0}),
    ("guarantees-hold", TCP_STUDY, {"system": DCC}, {"judged": "violated", "failed_checks": "acyclic"}),
    ("Q4", RANDOM_STUDY, {"system": DCC, "workload": "rand8"}, {"visits_per_destination": 9.0}),
    ("Q5", RANDOM_STUDY, {"system": SKEEN, "workload": "randN", "clients": 1}, {"latency_ms_mean": 9.0}),
    ("Q6", TPCC_STUDY, {"system": DCC}, {"throughput_per_s": 1e6}),
    ("Q6", TPCC_STUDY, {}, {"to_2": 0.2}),
    ("Q7", TPCC_STUDY, {"system": DCC_RV}, {"throughput_per_s": 10.0}),
    ("Q7", CLOCKS_STUDY, {"system": DCC_RV}, {"latency_ms_mean": 99.0}),
    ("Q8", CLOCKS_STUDY, {"system": DCC, "servers": 4}, {"latency_ms_mean": 99.0}),
    ("Q8", CLOCKS_STUDY, {"system": DCC, "servers": 8}, {"latency_ms_p99": 99.0}),
    ("Q9", GROUPS_STUDY, {"system": SKEEN, "workload": "8x2"}, {"throughput_per_s": 1e6}),
    ("Q10", GROUPS_STUDY, {"system": DCC_RV, "workload": "4x4", "random": 0.02}, {"throughput_per_s": 1e6}),
    ("Q11", GROUPS_STUDY, {"system": DF, "workload": "4x4"}, {"throughput_per_s": 1e6}),
    ("Q11", GROUPS_STUDY, {"system": SKEEN, "workload": "randN"}, {"throughput_per_s": 1e6}),
    ("guarantees-hold", RANDOM_STUDY, {"system": LITE}, {"judged": "violated", "failed_checks": "acyclic"}),
    ("closed-loop", TPCC_STUDY, {"system": SKEEN, "clients": 8, "seed": 0}, {"throughput_per_s": 1.0}),
    ("exact-packets", RANDOM_STUDY, {"system": SKEEN, "workload": "rand4"}, {"packets_per_message": 16.01}),
    ("exact-packets", GROUPS_STUDY, {"system": LITE, "workload": "2x8"}, {"packets_per_message": 2.5}),
    ("weaker-rules-visit-less", RANDOM_STUDY, {"system": COVER, "workload": "rand2"}, {"visits_per_message": 3.5}),
    ("weaker-rules-visit-less", TPCC_STUDY, {"system": LITE}, {"visits_per_message": 3.1}),
    (
        "weaker-rules-visit-less",
        GROUPS_STUDY,
        {"system": COVER, "workload": "8x2", "layout": STRIDED},
        {"visits_per_message": 3.5},
    ),
    ("reduced-clocks-are-smaller", CLOCKS_STUDY, {"system": COVER, "servers": 4}, {"header_bytes_per_hop": 200.0}),
]


@pytest.mark.parametrize(("claim", "study", "where", "values"), SPOILED)
def test_a_claim_that_the_results_contradict_does_not_hold(
    claim: str, study: Study, where: dict[str, Any], values: dict[str, Any]
) -> None:
    rows = [{**row, **values} if where.items() <= row.items() else row for row in ideal_results(study)]
    assert judged(study, rows)[claim].holds is False


def test_a_broken_guarantee_is_named_with_its_configuration() -> None:
    first, *rest = ideal_results(TPCC_STUDY)
    broken = {**first, "id": "culprit", "judged": "violated", "failed_checks": "prefix, acyclic"}
    measured = judged(TPCC_STUDY, [broken, *rest])["guarantees-hold"].measured
    assert measured.endswith("(prefix, acyclic), configuration culprit")


def test_what_the_judge_could_not_decide_is_not_taken_for_held() -> None:
    first, *rest = ideal_results(TPCC_STUDY)
    assert judged(TPCC_STUDY, [{**first, "judged": "undecided"}, *rest])["guarantees-hold"].holds is None


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_incomplete_results_decide_no_claim_that_compares(study: Study) -> None:
    claims = judged(study, ideal_results(study)[:1])
    decided = {claim.id for claim in claims.values() if claim.holds is not None}
    assert decided == {"guarantees-hold", "closed-loop"} & claims.keys()


def test_one_run_on_a_busy_machine_does_not_decide_what_the_median_does() -> None:
    where: Row = {"system": SKEEN, "workload": "rand2", "seed": 1}
    rows = [
        {**row, "throughput_per_s": 1.0} if where.items() <= row.items() else row for row in ideal_results(TCP_STUDY)
    ]
    assert judged(TCP_STUDY, rows)["Q2"].holds is True


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_the_same_results_are_drawn_as_the_same_figures(study: Study, tmp_path: Path) -> None:
    table = pa.Table.from_pylist(ideal_results(study))
    drawn = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        drawn.append([(one.file.name, one.file.read_bytes()) for one in study.figures(table, tmp_path / name)])
    assert drawn[0] == drawn[1]
    assert drawn[0]


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_incomplete_results_are_drawn_too(study: Study, tmp_path: Path) -> None:
    assert study.figures(pa.Table.from_pylist(ideal_results(study)[:1]), tmp_path)


def test_curves_have_the_confidence_of_their_means(tmp_path: Path) -> None:
    """The rules differ by little on TPC-C: without it nobody sees whether that is noise."""
    rows = [
        {**row, "latency_ms_mean": (1 + row["seed"] / 10) * row["latency_ms_mean"]} for row in ideal_results(TPCC_STUDY)
    ]
    alike, different = (
        TPCC_STUDY.figures(pa.Table.from_pylist(some), tmp_path)[0].file.read_bytes()
        for some in (ideal_results(TPCC_STUDY), rows)
    )
    assert different.count(b"LineCollection") > alike.count(b"LineCollection") == 0


def test_every_run_of_real_processes_is_drawn_beside_the_median(tmp_path: Path) -> None:
    rows = [{**row, "latency_ms_mean": 1.0 + row["seed"]} for row in ideal_results(TCP_STUDY)]
    (picture,) = TCP_STUDY.figures(pa.Table.from_pylist(rows), tmp_path)
    assert "each of them as a dot" in picture.caption
    assert "nothing is trimmed" in picture.caption
