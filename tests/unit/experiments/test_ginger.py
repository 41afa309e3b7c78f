"""The studies of the broker system: what one run measures and sees, and how its claims are kept and broken."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ordercast.experiments.ginger import FAULTS_STUDY, KEYS_STUDY, REPAIR_STUDY, SCENARIOS_STUDY, STUDIES
from ordercast.experiments.ginger.delays import Doors
from ordercast.experiments.ginger.figures import repair_picture
from ordercast.experiments.ginger.reference import PROTOTYPE_KEYS_MS, PROTOTYPE_MS
from ordercast.experiments.ginger.repairs import Mended, took
from ordercast.experiments.ginger.runs import measure, measure_repair
from ordercast.experiments.ginger.setting import (
    BROKERS,
    CLIENTS,
    DRAWN,
    FAILING,
    PROCESSES,
    configuration,
    fault_ms,
    mean_path_ms,
    scenario,
)
from ordercast.experiments.kit.results import Results, estimate
from ordercast.experiments.kit.study import Row, Study
from ordercast.net.turn_ports import lasting_door
from ordercast.net.wire.credentials import split_address
from ordercast.scenario.model import Schedule
from tests.support.loop import run_async
from tests.support.study_claims import judged

TAGS = ("eventual", "causal", "total")
STRUCTURAL = [f"E{i}" for i in range(1, 15)]


def ideal(parameters: Row) -> Row:
    """A result as the source would have it."""
    row: dict[str, Any] = {"id": "x", **parameters, "judged": "held", "failed_checks": "", "bank": "equal"}
    name = row["scenario"] if row["scenario"] in PROTOTYPE_MS else "S1"
    saturated = row["keys"] == 1 or row["order_scope"] == "session"
    means = [10.0 * row["operations"]] * 3 if saturated else list(PROTOTYPE_KEYS_MS[row["keys"]])
    if row["keys"] != 1 and not saturated:
        means = [
            mean * there / calm for mean, there, calm in zip(means, PROTOTYPE_MS[name], PROTOTYPE_MS["S0"], strict=True)
        ]
    if row["buffer"] == 150:
        means = [2 * mean for mean in means]
    for tag, mean in zip((*TAGS, "all"), [*means, sum(means) / 3], strict=True):
        row |= {f"{tag}_ms_{what}": mean for what in ("mean", "p50", "p95")}
        row |= {f"{tag}_after_ms_{what}": mean + 100 * row["faults"] for what in ("mean", "p50", "p95")}
    row |= {"rounds_most": row["faults"], "fault_to_rest_ms": 1000.0, "peak_log": 200}
    row["all_after_ms_p95"] = 500.0 + 100 * row["faults"]
    for statement in STRUCTURAL:
        row[statement], row[f"{statement}_seen"] = True, "as expected"
    return row | repaired(row["scenario"])


def repaired(name: str) -> Row:
    """Repairs whose time grows with their rounds, and the election of b2."""
    row: Row = {f"{client}_failover_ms": None for client in CLIENTS}
    row["c0_failover_ms"] = 1000.0 if name == "S3" else None
    rounds = {"S1": 1, "S3": 2, "S4": 5, "S5": 2, "E6": 1}
    for broker in BROKERS[1:]:
        elected = name in ("S2", "S4") and broker in ("b1", "b2", "b3")
        winner = elected and broker == "b2"
        row |= {
            f"{broker}_lost": "b0" if elected else "b1",
            f"{broker}_parent": "" if winner else "b2",
            f"{broker}_rounds": 1 if elected else rounds.get(name),
            f"{broker}_attached_ms": 300.0,
            f"{broker}_synchronised_ms": None if winner else 400.0 * rounds.get(name, 1),
            f"{broker}_election_ms": 480.0 if elected else 0.0,
        }
    return row


def ideal_results(study: Study) -> list[Row]:
    return [ideal(parameters) for parameters in study.scales["quick"]]


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_every_claim_holds_for_ideal_results(study: Study) -> None:
    claims = judged(study, ideal_results(study))
    assert {id_: claim.measured for id_, claim in claims.items() if claim.holds is not True} == {}


SPOILED: dict[str, tuple[Study, dict[str, Any], dict[str, Any]]] = {
    "guarantees-hold": (FAULTS_STUDY, {"scenario": "S4"}, {"judged": "violated", "failed_checks": "total"}),
    "bank-replicas-equal": (FAULTS_STUDY, {"scenario": "S4"}, {"bank": "c0 and c3: acc0001 ends at 1 and 2"}),
    "real-processes": (SCENARIOS_STUDY, {"runs": PROCESSES}, {"judged": "undecided"}),
    **{name: (SCENARIOS_STUDY, {"scenario": "S1"}, {name: False}) for name in STRUCTURAL},
    "Q1": (REPAIR_STUDY, {"scenario": "S1"}, {f"{broker}_synchronised_ms": 9000.0 for broker in BROKERS[1:]}),
    "Q2": (SCENARIOS_STUDY, {"scenario": "S5"}, {"total_ms_mean": 400.0}),
    "Q3": (SCENARIOS_STUDY, {"scenario": "S3"}, {"causal_ms_mean": 450.0}),
    "Q4": (FAULTS_STUDY, {"scenario": "S0"}, {"eventual_ms_mean": 1000.0}),
    "Q5": (KEYS_STUDY, {"keys": 1000, "scenario": "S2"}, {"causal_ms_mean": 1000.0}),
    "Q6": (SCENARIOS_STUDY, {"keys": 1000}, {"eventual_ms_mean": 330.0}),
    "Q7": (FAULTS_STUDY, {"scenario": "S1"}, {"total_ms_mean": 900.0}),
    "like-the-prototype": (SCENARIOS_STUDY, {"scenario": "S4"}, {"total_ms_mean": 1100.0}),
    "election-apart": (REPAIR_STUDY, {"scenario": "S2"}, {"b3_parent": ""}),
    "client-failover": (REPAIR_STUDY, {"scenario": "S5"}, {"c4_failover_ms": 100.0}),
    "small-buffer": (FAULTS_STUDY, {"scenario": "S2", "buffer": 150}, {"all_ms_mean": 10.0}),
    "saturation-one-key": (KEYS_STUDY, {"keys": 1, "scenario": "S0", "operations": 200}, {"all_ms_mean": 1000.0}),
    "saturation-session": (KEYS_STUDY, {"order_scope": "session", "operations": 200}, {"all_ms_mean": 10.0}),
}


@pytest.mark.parametrize("claim", SPOILED)
def test_a_claim_that_the_results_contradict_does_not_hold(claim: str) -> None:
    study, where, values = SPOILED[claim]
    rows = [{**row, **values} if where.items() <= row.items() else row for row in ideal_results(study)]
    assert judged(study, rows)[claim].holds is False


def test_repairs_of_five_rounds_that_are_shorter_than_of_four_are_not_hidden_by_their_mean() -> None:
    rows = [
        row | {"b4_rounds": 4, "b4_synchronised_ms": 2500.0} if row["scenario"] == "S5" else row
        for row in ideal_results(REPAIR_STUDY)
    ]
    claim = judged(REPAIR_STUDY, rows)["Q1"]
    assert "4 rounds 2500" in claim.measured
    assert claim.holds is False


@pytest.mark.parametrize("scale", ["quick", "paper"])
@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_no_run_is_made_and_counted_twice_for_two_parts_of_a_study(study: Study, scale: str) -> None:
    runs = [tuple((name, value) for name, value in row.items() if name != "part") for row in study.scales[scale]]
    assert len(set(runs)) == len(runs)


def test_runs_in_which_the_tree_is_repaired_alike_are_not_counted_as_different() -> None:
    """Latencies are constant there: seeds change what is published, not who becomes whose child."""
    rows = ideal_results(SCENARIOS_STUDY)
    claims = judged(SCENARIOS_STUDY, [{**row, "E6_seen": f"seed {row['seed']}"} for row in rows])
    assert "runs, 8 of which differ in this. " in claims["E1"].measured
    only_hop_order = [row for row in rows if row["view_order"] == "hop-order"]
    assert "in 3 of 3 runs, all alike in this. " in judged(SCENARIOS_STUDY, only_hop_order)["E7"].measured
    assert "alike" not in claims["E9"].measured
    assert "differ" not in claims["E9"].measured


def test_scenarios_with_as_many_faults_are_no_seeds_of_each_other() -> None:
    """S1 and S2 have a fault each and cost very different amounts: a mean over both says nothing about either."""
    means = {"S1": 400.0, "S2": 500.0}
    rows = [{**row, "all_ms_mean": means.get(row["scenario"], 600.0)} for row in ideal_results(FAULTS_STUDY)]
    assert "1: S1 400 and S2 500," in judged(FAULTS_STUDY, rows)["Q4"].measured


def test_pausing_is_compared_under_the_seeds_that_were_run_with_both_buffers() -> None:
    """One seed with the small buffer, three with the other: the other two may be faster or slower anyway."""
    rows = [
        {**row, "all_ms_mean": 400.0 + 100.0 * row["seed"] if row["part"] == "main" else 400.0}
        for row in ideal_results(FAULTS_STUDY)
    ]
    claim = judged(FAULTS_STUDY, rows)["small-buffer"]
    assert "under the same seeds (n = 1): S2: 400 against 400 ms" in claim.measured
    assert "without faults 400 against 400 ms" in claim.measured


def test_a_repair_that_is_the_same_in_several_scenarios_under_one_seed_is_counted_once() -> None:
    """Scenarios share what is drawn for a seed: b5 loses b1 in S1, S3 and S5, and finds the same place in each."""

    def lost_b1(scenario: str, seed: int, ms: float) -> Mended:
        return Mended(scenario, seed, "b5", "b1", "b2", 1, ms / 2, ms, 0.0)

    shared = [lost_b1(scenario, seed, 400.0 + seed) for scenario in ("S1", "S3", "S5") for seed in range(2)]
    other = lost_b1("E6", 0, 700.0)

    assert took([*shared, other]) == estimate([400.0, 401.0, 700.0])
    assert took(shared, lambda repair: repair.attached_ms) == estimate([200.0, 200.5])


def test_a_mean_by_rounds_is_drawn_with_how_many_different_repairs_it_is_of() -> None:
    """And the legend names scenarios in their order, whichever panel has them."""
    figure = repair_picture(Results(pa.Table.from_pylist(ideal_results(REPAIR_STUDY))))
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["1\n(7)", "2\n(7)", "5\n(4)"]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["S1", "S2", "S3", "S4", "S5", "E6", "mean", "prototype", "source"]


def test_every_seed_of_the_repair_study_has_latencies_of_its_own_within_the_sources_ranges() -> None:
    links = []
    for seed in range(3):
        planned = scenario(configuration("S1", seed=seed, operations=20, latencies=DRAWN))
        links.append({link.between: link.latency_ms for link in planned.links if link.between[0].startswith("b")})
    assert len({tuple(sorted(found.items())) for found in links}) == 3
    for found in links:
        assert len(found) == 28
        assert 70 <= float(str(found["b0", "b1"])) <= 160
        assert 180 <= float(str(found["b0", "b3"])) <= 300
        assert 5 <= float(str(found["b1", "b4"])) <= 70


def test_the_tail_after_the_crash_must_grow_with_the_rounds() -> None:
    rows = [
        {**row, "all_after_ms_p95": 2000.0} if row["scenario"] == "S1" else row for row in ideal_results(FAULTS_STUDY)
    ]
    assert judged(FAULTS_STUDY, rows)["Q4"].holds is False


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_incomplete_results_decide_nothing_they_cannot(study: Study) -> None:
    claims = judged(study, ideal_results(study)[:1])
    assert not [claim.id for claim in claims.values() if claim.holds is False]


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_figures_are_drawn_and_the_same_each_time(study: Study, tmp_path: Path) -> None:
    table = pa.Table.from_pylist(ideal_results(study))
    pictures = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        pictures.append([one.file.read_bytes() for one in study.figures(table, tmp_path / name)])
    assert pictures[0] == pictures[1]
    assert len(pictures[0]) >= 2


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_the_paper_scale_has_ten_seeds_and_the_sources_numbers(study: Study) -> None:
    main = [row for row in study.scales["paper"] if row["part"] == "main"]
    assert {row["seed"] for row in main} == set(range(10))
    assert {row["operations"] for row in main} == {1000 if study is REPAIR_STUDY else 500}


def test_latencies_along_the_tree_average_290_ms() -> None:
    assert mean_path_ms() == pytest.approx(290)


def test_the_load_is_the_sources_tuple() -> None:
    planned = scenario(configuration("S4", seed=3, operations=500))
    (load,) = planned.workload
    assert isinstance(load, Schedule)
    assert len(load.steps) == 500 * len(CLIENTS)
    shares = {level: sum(step.guarantee == level for step in load.steps) / len(load.steps) for level in TAGS}
    assert shares == pytest.approx({"eventual": 0.4, "causal": 0.3, "total": 0.3}, abs=0.03)
    assert {len(step.keys) for step in load.steps} == {1, 2}
    assert {fault.node: fault.at_ms for fault in planned.fault} == dict.fromkeys(FAILING["S4"], fault_ms(500))  # type: ignore[union-attr]


def test_without_transfers_every_publication_has_one_key() -> None:
    (load,) = scenario(configuration("S0", seed=0, operations=50, transfers=False)).workload
    assert isinstance(load, Schedule)
    assert {len(step.keys) for step in load.steps} == {1}


def test_a_run_sees_what_the_source_describes_for_its_first_scenario() -> None:
    row = measure(configuration("S1", seed=0, operations=40))
    assert (row["judged"], row["bank"], row["published"]) == ("held", "equal", 200)
    assert {name: row[f"{name}_seen"] for name in STRUCTURAL if row[name] is False} == {}
    assert row["E7_seen"] == "b4 asks b0 (accepted); b5 asks b0 (DEGREE), b2 (accepted)"
    assert float(row["total_ms_mean"] or 0) > float(row["eventual_ms_mean"] or 0) > 200


def test_a_repair_has_rounds_times_and_an_election() -> None:
    row = measure_repair(configuration("S2", seed=0, operations=40))
    assert (row["b2_parent"], row["b1_parent"], row["b3_parent"]) == ("", "b2", "b2")
    assert 300 < float(row["b2_election_ms"] or 0) < 2000
    assert float(row["b1_synchronised_ms"] or 0) > float(row["b1_attached_ms"] or 0)
    assert row["b4_rounds"] is None


def test_confidence_is_that_of_students_distribution() -> None:
    found = estimate([1.0, 2.0, 3.0])
    assert found is not None
    assert (found.mean, found.half) == (2.0, pytest.approx(4.303 / 3**0.5))
    assert estimate([]) is None


def test_a_door_delays_both_ways_and_keeps_the_order() -> None:
    async def main() -> None:
        over = asyncio.Event()

        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(1000):
                writer.write(data)
            writer.close()
            over.set()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        doors = Doors()
        address = await doors.open(server.sockets[0].getsockname()[:2], 0.05)
        reader, writer = await asyncio.open_connection(*split_address(address))
        loop = asyncio.get_running_loop()
        began = loop.time()
        for i in range(20):
            writer.write(b"%02d" % i)
            await asyncio.sleep(0)
        assert await reader.readexactly(40) == b"".join(b"%02d" % i for i in range(20))
        assert round(loop.time() - began, 3) >= 0.1  # The loop counts in milliseconds.
        writer.close()
        await writer.wait_closed()
        await over.wait()
        server.close()
        await doors.close()
        await server.wait_closed()

    run_async(main)


def test_a_door_to_nobody_closes() -> None:
    async def main() -> None:
        with lasting_door() as door:
            target = door.getsockname()
        doors = Doors()
        reader, writer = await asyncio.open_connection(*split_address(await doors.open(target, 0.01)))
        assert await reader.read() == b""
        writer.close()
        await doors.close()

    run_async(main)
