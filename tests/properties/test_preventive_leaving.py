"""PRV-6.9: who leaves stays until somebody who stays has all that it had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from ordercast.protocols import lookup
from ordercast.protocols.preventive.node import Preventive
from ordercast.scenario.load import parse_scenario
from ordercast.sim import simulate
from ordercast.verify.judge import judge_path
from ordercast.verify.verdict import HELD
from tests.mutants.preventive_mutants import AnswersWhileLeaving, LeavesAtOnce
from tests.sources.test_preventive_corrections import LINE, a_world, machine, published, run_to

PARTED = {"kind": "partition", "sides": [["n0"], ["n1", "n2"]], "at_ms": 1000, "until_ms": 2000}


def leaves(node: str, at_ms: float) -> dict[str, Any]:
    return {"kind": "leave", "node": node, "at_ms": at_ms}


def heard_by(name: str, kind: type[Preventive] = Preventive, **changes: Any) -> int:
    """How much of n0 that one has at the end."""
    options = {"script": [], "retry_ms": 50, "ack_ms": 300}
    world = a_world("preventive", kind, **{"links": [], "options": options, **changes})
    run_to(world, 30_000)
    return int(machine(world, name).broadcast.log.received.get("n0", 0))


def test_who_leaves_while_it_is_parted_goes_when_it_was_heard() -> None:
    """It published to nobody; it waits for the others to be back, and they have its last words."""
    load = {"fault": [PARTED, leaves("n0", 1150)], "detector": {"delay_ms": 50}, **published(1100)}
    assert heard_by("n2", **load) == 1
    assert heard_by("n2", LeavesAtOnce, **load) == 0


def test_two_that_leave_together_are_heard_by_a_third() -> None:
    """n0 knows nobody but n1, which leaves as well: n1 takes the farewell along, and answers when it was heard."""
    cut = {"kind": "partition", "sides": [["n0", "n1"], ["n2"]], "at_ms": 1000, "until_ms": 2000}
    load = {"fault": [cut, leaves("n0", 1150), leaves("n1", 1151)], "detector": {"delay_ms": 50}, **published(1100)}
    assert heard_by("n2", **load) == 1
    assert heard_by("n2", AnswersWhileLeaving, **load) == 0


@pytest.mark.parametrize("publishes", [True, False])
def test_whom_nobody_hears_goes_after_a_while_and_the_trace_says_what_is_lost(publishes: bool, tmp_path: Path) -> None:
    """For `leave_ms`. Who has nothing to say goes at once."""
    scenario = parse_scenario(
        {
            "name": "unheard", "protocol": "preventive", "overlay": {"kind": "edges", "edges": LINE},
            "duration_ms": 20_000, "link": {"latency_ms": 5}, "options": {"leave_ms": 3000, "retry_ms": 50},
            "fault": [{**PARTED, "until_ms": 15_000}, leaves("n0", 1150)],
            **published(1100, node="n0" if publishes else "n1"),
        }
    )  # fmt: skip
    simulate(scenario, lookup("preventive"), out=tmp_path / "run")
    (row,) = [row for row in pq.read_table(tmp_path / "run" / "events").to_pylist() if row["kind"] == "leave"]
    assert row["time_ns"] == (4150 if publishes else 1150) * 1_000_000
    assert dict(row["info"] or ()).get("lost", "") == ("nobody who stays has heard its last words" if publishes else "")
    (verdict,) = judge_path(tmp_path / "run")
    assert verdict.exit_code() == HELD


def test_who_leaves_publishes_nothing_more_and_takes_nobody_in() -> None:
    """A joiner that asks it asks somebody else."""
    options = {"script": [], "retry_ms": 50, "ack_ms": 300, "join_ms": 400}
    world = a_world(
        "preventive", links=[], options=options,
        overlay={"kind": "edges", "edges": [*LINE, ["n0", "n3"], ["n2", "n3"]]},
        fault=[PARTED, leaves("n0", 1150), {"kind": "join", "node": "n3", "at_ms": 1200}],
        detector={"delay_ms": 50}, **published(1100, 1160),
    )  # fmt: skip
    run_to(world, 30_000)
    assert world.published == 1
    assert machine(world, "n3").joined
    assert machine(world, "n3").joining.contact is None or machine(world, "n3").joining.contact == "n2"


def test_a_leave_is_a_matter_of_the_protocol_and_its_packets_belong_to_its_rules() -> None:
    """Neighbours that know nothing of farewells are refused by their rules, not met with surprises."""
    assert lookup("preventive").options().rules == 2
    assert msgspec.structs.replace(lookup("preventive").options(), memory="links").rules == 2 + 512
