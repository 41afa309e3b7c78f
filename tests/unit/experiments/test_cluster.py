"""The studies of causal clusters measure what they say, and their observer notices what it must."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ordercast.experiments.cluster import STUDIES, load, recovery_odds, robustness, scale, tickets
from ordercast.experiments.cluster.closed_forms import answered, bound, slots_for, tail
from ordercast.experiments.cluster.measures import measured
from ordercast.experiments.cluster.oracle import Oracle
from ordercast.experiments.cluster.setting import ClusterSetting
from ordercast.experiments.kit.engine import results_table
from ordercast.experiments.kit.parts import StudyPart
from ordercast.experiments.kit.results import Results
from ordercast.experiments.kit.study import Row, Study

SMALL = ClusterSetting(members=12, updaters=12, events_per_round=3.0, rounds=20, ttl=3, loss=0.05)


def test_the_observer_notices_an_effect_before_its_cause() -> None:
    oracle = Oracle(["ann", "bob", "cho"], ["ann", "bob"])
    oracle.delivers("ann", "ann", "question", 1)
    oracle.delivers("bob", "ann", "question", 2)
    oracle.delivers("bob", "bob", "answer", 3)
    oracle.delivers("cho", "bob", "answer", 4)
    assert oracle.out_of_order == 0, "what comes later may never come"
    oracle.delivers("cho", "ann", "question", 5)
    assert (oracle.out_of_order, oracle.twice) == (1, 0)


def test_the_observer_notices_what_is_before_something_before() -> None:
    oracle = Oracle(["ann", "bob", "cho", "dan"], ["ann", "bob", "cho"])
    oracle.delivers("ann", "ann", "a", 1)
    oracle.delivers("bob", "ann", "a", 2)
    oracle.delivers("bob", "bob", "b", 3)
    oracle.delivers("cho", "bob", "b", 4)
    oracle.delivers("cho", "cho", "c", 5)
    oracle.delivers("dan", "cho", "c", 6)
    oracle.delivers("dan", "ann", "a", 7)
    assert oracle.out_of_order == 1


def test_the_observer_lets_independent_updates_come_in_any_order_and_counts_second_times() -> None:
    oracle = Oracle(["ann", "bob"], ["ann", "bob"])
    oracle.delivers("ann", "ann", "a", 1)
    oracle.delivers("bob", "bob", "b", 1)
    oracle.delivers("ann", "bob", "b", 2)
    oracle.delivers("bob", "ann", "a", 2)
    assert oracle.out_of_order == 0
    oracle.delivers("bob", "ann", "a", 3)
    assert oracle.twice == 1


@pytest.mark.parametrize(
    ("creators", "probability", "rounds", "slots", "exact", "most", "sized"),
    [
        (10, 0.1, 2, 4, 0.133, 0.462, 11),
        (50, 0.02, 5, 10, 0.0304, 0.145, 19),
        (50, 0.02, 10, 20, 0.0031, 0.021, 29),
        (125, 0.008, 15, 30, 3.9e-4, 3.0e-3, 38),
    ],
)
def test_closed_forms_are_those_of_the_specification(
    creators: int, probability: float, rounds: int, slots: int, exact: float, most: float, sized: int
) -> None:
    trials = creators * rounds
    assert tail(trials, probability, slots) == pytest.approx(exact, rel=0.02)
    assert bound(creators * probability * rounds, slots) == pytest.approx(most, rel=0.02)
    assert slots_for(trials, probability, 1e-6) == sized


def test_asking_more_members_finds_more() -> None:
    assert answered(1, 0.1, 0.9, 0.0) == pytest.approx(0.81)
    assert answered(2, 0.1, 0.9, 0.0) == pytest.approx(1 - 0.19**2)


@pytest.mark.parametrize("variant", ["gossip", "none", "source", "k"])
def test_a_run_is_judged_and_measured_and_comes_out_the_same_again(variant: str) -> None:
    setting = ClusterSetting(**{**{f: getattr(SMALL, f) for f in SMALL.__struct_fields__}, "variant": variant})  # type: ignore[arg-type]
    found = measured(setting)
    assert found == measured(setting)
    assert found["judged"] == "held"
    assert found["made"] == 71, "the same updates whatever the variant"
    assert isinstance(found["latency_rounds"], float)
    assert (found["out_of_order"] == 0) == (variant != "gossip")


def test_recovery_loses_less_than_no_recovery() -> None:
    rows = {
        variant: measured(
            ClusterSetting(members=12, updaters=12, events_per_round=3.0, rounds=20, ttl=3, loss=0.1, variant=variant)  # type: ignore[arg-type]
        )
        for variant in ("none", "k")
    }
    assert float(rows["k"]["lost_share"] or 0) < float(rows["none"]["lost_share"] or 0)
    assert rows["none"]["lost_share"] == rows["none"]["unheard"], "order alone loses nothing"


def _table(study: Study, rows: list[Row]) -> list[bool | None]:
    parts = [
        StudyPart(id=str(i), parameters=row, result=study.run(row), seconds=0.0) for i, row in enumerate(rows)
    ]  # fmt: skip
    return [claim.holds for claim in study.claims(results_table(parts))]


def test_claims_that_need_more_than_one_run_are_not_decided_by_one() -> None:
    row: Row = {
        "members": 12, "updaters": 12, "rounds": 12, "part": "load", "fanout": 4, "ttl": 3, "ask": 4, "variant": "k",
        "events_per_round": 3.0, "seed": 0,
    }  # fmt: skip
    holds = _table(load.STUDY, [row])
    assert holds[0] is True
    assert None in holds
    assert False not in holds


def test_every_study_lists_its_points_once_and_quick_is_smaller_than_paper() -> None:
    for study in STUDIES:
        quick, paper = study.configurations("quick"), study.configurations("paper")
        assert len(quick) < len(paper)


def test_hand_overs_leases_and_buffers_are_measured() -> None:
    changing = next(row for row in robustness.STUDY.scales["quick"] if row["hand_over"])
    assert robustness.run({**changing, "members": 12, "rounds": 20})["two_makers"] == 0
    buffer = next(row for row in recovery_odds.STUDY.scales["quick"] if row["part"] == "buffer")
    found = recovery_odds.run({**buffer, "rounds": 10})
    assert int(found["probes"] or 0) > 100
    wanted: Row = {"tolerated": 1, "wanting": 12, "loss": 0.0, "seed": 1}
    assert tickets.run(wanted)["denied_share"] == pytest.approx(1 / 3)


def test_buffers_that_lost_nothing_are_drawn_too() -> None:
    """On an axis without a zero their points would be nowhere, and a curve would seem to end before them."""
    usual: Row = {"part": "buffer", "mean": 5.0, "exact": 0.03, "bound": 0.14, "success": None, "crashed": 0.0,
                  "variant": "none", "ask": 0}  # fmt: skip
    rows: list[Row] = [{**usual, "slots": slots, "unavailable": gone} for slots, gone in ((5, 0.5), (10, 0.0))]
    axes = recovery_odds.odds_picture(Results(pa.Table.from_pylist(rows))).axes[0]
    assert axes.get_ylim()[0] == 0.0
    assert [50.0, 0.0] in [list(line.get_ydata()) for line in axes.lines]


@pytest.mark.parametrize("size", ["quick", "paper"])
def test_no_group_in_which_all_update_is_run_twice(size: str) -> None:
    """25 updaters of 25 members are all members: one run, and a point of both curves."""
    rows = scale.STUDY.scales[size]
    updaters = {"5-updater": 5, "25-updater": 25}
    runs = [(updaters.get(str(row["updating"]), row["members"]), row["members"], row["seed"]) for row in rows]
    assert len(set(runs)) == len(runs)
    measured = [row | {"latency_ms": float(row["seed"]) + 1} for row in rows]
    of_all = scale.by_size(measured, "latency_ms", "full-updater")
    assert [point.x for point in of_all] == [25, 50, 75, 100, 125]
