"""The counterexamples to the draft of the preventive broadcast: they break the draft, and not the corrected one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ordercast.core.ids import NodeId
from ordercast.core.messages import Message
from ordercast.protocols import lookup
from ordercast.protocols.preventive.draft import PreventiveDraft
from ordercast.protocols.preventive.node import Preventive
from ordercast.protocols.preventive.packets import Data
from ordercast.scenario.load import load_scenario, parse_scenario
from ordercast.scenario.model import Scenario
from ordercast.sim import simulate
from ordercast.sim.clock import ns
from ordercast.sim.overlays.faults import OverlayFaults
from ordercast.sim.overlays.run import start_everybody
from ordercast.sim.overlays.world import OverlayWorld
from ordercast.sim.workload import start_workload
from ordercast.verify.judge import judge_path
from ordercast.verify.verdict import FAIL, HELD
from tests.mutants.preventive_mutants import LARGE, AnnouncesLarge, DeliversFirst, entry_of
from tests.support.preventive_lab import Invariants

LIBRARY = Path(__file__).parents[2] / "scenarios" / "preventive-draft"
BREAKS = {
    "c01": "causal", "c02": "causal", "c03": "causal", "c04": "causal", "c05": "causal", "c06": "causal",
    "c07": "causal", "c08": "causal", "c14": "agreement", "c17": "causal", "c18": "agreement", "c19": "agreement",
}  # fmt: skip
"""By scenario: what the draft does not keep."""
LINE = [["n0", "n1"], ["n1", "n2"]]


def judged(scenario: Scenario, protocol: str, out: Path) -> set[str]:
    """The checks that fail."""
    simulate(scenario, lookup(protocol), out=out)
    (verdict,) = judge_path(out)
    if protocol == "preventive":
        assert verdict.exit_code() == HELD, verdict
    return {result.check for result in verdict.results if result.verdict == FAIL}


def test_every_scenario_has_its_test() -> None:
    assert {file.stem for file in LIBRARY.glob("*.toml")} == set(BREAKS)


@pytest.mark.parametrize(("name", "check"), BREAKS.items())
def test_the_draft_breaks_and_the_correction_holds(name: str, check: str, tmp_path: Path) -> None:
    scenario = load_scenario(LIBRARY / f"{name}.toml")
    assert check in judged(scenario, "preventive-draft", tmp_path / "draft")
    assert judged(scenario, "preventive", tmp_path / "ours") == set()


# By hand: what no verdict shows


def a_world(protocol: str, kind: type[Preventive] = Preventive, **changes: Any) -> OverlayWorld:
    """A line of three on which n0 opens a link to n2; locks and messages over n1 take half a second."""
    scenario = {
        "name": "by-hand",
        "overlay": {"kind": "edges", "edges": LINE},
        "duration_ms": 4000,
        "link": {"latency_ms": 5},
        "links": [{"between": ["n1", "n2"], "latency_ms": 500}],
        "options": {"script": ["n0 opens n2 at 1100 via n1"]},
        "workload": [],
        **changes,
    }
    info = lookup(protocol) if kind is Preventive else entry_of(kind)
    world = OverlayWorld(parse_scenario(scenario), info, 0, None)
    if protocol == "preventive" and kind is Preventive:
        Invariants(world.processes)
    OverlayFaults(world)
    start_workload(world)
    start_everybody(world)
    return world


def published(*times: float, node: str = "n0", size: int = 8) -> dict[str, Any]:
    steps = [{"node": node, "topic": "t0", "payload_bytes": size, "at_ms": at} for at in times]
    return {"workload": [{"kind": "schedule", "steps": steps}]}


def machine(world: OverlayWorld, name: str) -> Any:
    return world.nodes[NodeId(name)].machine


def run_to(world: OverlayWorld, at_ms: float) -> None:
    world.clock.run_until(ns(at_ms))


def test_c11_a_retry_that_goes_through_the_guard_leaves_a_buffer_without_end() -> None:
    """The draft's buffer for two messages holds twelve; ours begins anew, and repairs the link by a digest."""
    options = {"script": ["n0 opens n2 at 1100 via n1"], "max_buffer": 2}
    load = published(1050, *(1150 + 20 * i for i in range(12)))
    draft = a_world("preventive-draft", options=options, **load)
    run_to(draft, 1500)
    assert isinstance(machine(draft, "n0"), PreventiveDraft)
    assert len(machine(draft, "n0").buffers["n2"]) == 12
    ours = a_world("preventive", options=options, **load)
    run_to(ours, 1500)
    assert machine(ours, "n0").links.out["n2"].safe


def test_c12_a_stale_acknowledgement_ends_the_retries_of_the_draft() -> None:
    """With counters for buffers, as a figure has it: the count of retries is gone, so nobody retries or closes."""
    options = {
        "script": ["n0 opens n2 at 1100 via n1"], "max_buffer": 2, "max_attempts": 1, "reading": ["current-acks"],
    }  # fmt: skip
    times = [1050, 1120, 1130, 1140, *(1700 + 20 * i for i in range(20))]
    edges = [*LINE, ["n0", "n3"]]
    draft = a_world(
        "preventive-draft", options=options, overlay={"kind": "edges", "edges": edges},
        fault=[{"kind": "delay", "between": ["n1", "n2"], "at_ms": 1118, "latency_ms": 60_000, "one_way": True}],
        **published(*times),
    )  # fmt: skip
    run_to(draft, 2500)
    sender = machine(draft, "n0")
    assert "n2" not in sender.retries
    assert len(sender.buffers["n2"]) >= 20


def test_c13_no_buffer_of_ours_is_longer_than_it_may_be() -> None:
    """The draft asks for `q`, which is unbound, and compares after the message is in; ours is asserted at each step."""
    world = a_world("preventive", options={"script": ["n0 opens n2 at 1100 via n1"], "max_buffer": 1},
                    **published(1050, 1110, 1115, 1120))  # fmt: skip
    run_to(world, 4000)
    assert machine(world, "n2").broadcast.log.received == {"n0": 4}


def test_c15_what_only_a_crashed_process_knew_is_lost_and_nobody_is_wronged(tmp_path: Path) -> None:
    """Agreement is about the living: a message that its publisher took along is no violation."""
    scenario = parse_scenario(
        {
            "name": "c15", "overlay": {"kind": "edges", "edges": LINE}, "duration_ms": 500,
            "fault": [{"kind": "crash", "node": "n0", "at_ms": 101, "survive": "none"}],
            "link": {"latency_ms": 50}, **published(100),
        }
    )  # fmt: skip
    assert judged(scenario, "preventive", tmp_path / "run") == set()


def test_c16_a_buffered_message_is_sent_once_over_the_new_link() -> None:
    """T2: nothing before the acknowledgement, then the mark and what was collected."""
    world = a_world("preventive", **published(1050, 1105))
    sent: list[str] = []
    world.processes.tap = lambda source, target, packet: (
        sent.append(type(packet).__name__) if (source, target) == ("n0", "n2") else None
    )
    run_to(world, 4000)
    assert sent[:3] == ["Hello", "SafeMark", "Data"]
    assert sent.count("Data") == 1
    assert machine(world, "n2").broadcast.log.received == {"n0": 2}


def test_c21_a_connection_that_breaks_is_a_new_session_and_a_new_phase() -> None:
    """T12: after the break the link is not safe before it was made so again, and nothing is missing."""
    world = a_world(
        "preventive", options={"retry_ms": 20}, fault=[{"kind": "cut", "between": ["n0", "n1"], "at_ms": 1200}],
        **published(1150, 1199, 1201),
    )  # fmt: skip
    run_to(world, 1306)
    assert "n1" not in machine(world, "n0").links.out or not machine(world, "n0").links.out["n1"].safe
    run_to(world, 4000)
    assert machine(world, "n0").links.out["n1"].safe
    assert machine(world, "n2").broadcast.log.received == {"n0": 3}


def test_c23_a_neighbour_that_does_not_read_is_given_up() -> None:
    """It stands still while hundreds of messages are put on its link; afterwards it is repaired."""
    world = a_world(
        "preventive", options={"max_send_queue": 30, "retry_ms": 50}, detector={"delay_ms": 100_000},
        links=[], fault=[{"kind": "pause", "node": "n2", "at_ms": 1000, "until_ms": 2500}],
        **published(*(1010 + 2 * i for i in range(200))),
    )  # fmt: skip
    run_to(world, 2000)
    assert "n2" not in machine(world, "n1").links.out
    assert world.processes.processes["n1"].counters["failed_links"] >= 1
    run_to(world, 60_000)
    assert machine(world, "n2").broadcast.log.received == {"n0": 200}


@pytest.mark.parametrize("size", [8, LARGE])
def test_c09_c22_what_an_application_answers_comes_after_what_it_answers(size: int) -> None:
    """T13: it answers from within the delivery; on every link the answer follows its question, however large."""
    assert answered(Preventive, size) == ["n0#1", "n1#1"]


def test_c09_an_answer_overtakes_a_question_that_is_delivered_before_it_is_passed_on() -> None:
    assert answered(DeliversFirst, 8) == ["n1#1", "n0#1"]


def test_c22_an_answer_overtakes_a_large_question_of_which_only_the_name_was_sent() -> None:
    assert answered(AnnouncesLarge, 8) == ["n0#1", "n1#1"]
    assert answered(AnnouncesLarge, LARGE) == ["n1#1", "n0#1"]


def answered(kind: type[Preventive], size: int) -> list[str]:
    """What n2 delivers, in its order, when n1 answers a message of n0 at once."""
    world = a_world("preventive", kind, links=[], **published(1050, size=size))
    number = 0

    def answer(node: Any, message: Message) -> None:
        nonlocal number
        if node.node == "n1" and message.origin == "n0":
            number += 1
            node.machine.on_publish(Message(NodeId("n1"), number, message.topic, b"", message.guarantee))  # type: ignore[arg-type]

    got: list[str] = []
    world.delivery_watchers += [
        answer,
        lambda node, message: got.append(message.id) if node.node == "n2" else None,
    ]
    run_to(world, 3000)
    return got


def test_c20_each_direction_of_a_link_becomes_safe_by_itself() -> None:
    """n0's lock has passed and n2's is still under way: n0 uses the link, n2 does not, and nobody offers it."""
    slow = [{"between": ["n2", "n1"], "latency_ms": 300, "one_way": True}]
    steps = [{"node": node, "topic": "t0", "payload_bytes": 8, "at_ms": at}
             for node, at in (("n0", 1050), ("n0", 1200), ("n2", 1210))]  # fmt: skip
    world = a_world("preventive", links=slow, workload=[{"kind": "schedule", "steps": steps}])
    sent: list[tuple[str, float]] = []
    world.processes.tap = lambda source, target, packet: (
        sent.append((source, world.clock.now / 1e6))
        if isinstance(packet, Data) and {source, target} == {"n0", "n2"} else None
    )  # fmt: skip
    run_to(world, 1300)
    one, other = machine(world, "n0").links, machine(world, "n2").links
    assert one.out["n2"].safe
    assert not other.out["n0"].safe
    assert not one.is_safe("n2")
    assert not other.is_safe("n0")
    run_to(world, 4000)
    assert [source for source, at in sent if at < 1300] == ["n0"]
    assert other.out["n0"].safe
    assert machine(world, "n0").broadcast.log.received == {"n0": 2, "n2": 1}


def test_c24_who_has_crashed_receives_nothing_more_and_the_promise_does_not_say_so(tmp_path: Path) -> None:
    """That all receive what one broadcast, as a lemma of the draft has it, is false; the living all do."""
    scenario = parse_scenario(
        {
            "name": "c24", "overlay": {"kind": "edges", "edges": LINE}, "duration_ms": 1500,
            "fault": [{"kind": "crash", "node": "n2", "at_ms": 1051, "survive": "none"}],
            "link": {"latency_ms": 50}, **published(1050),
        }
    )  # fmt: skip
    assert judged(scenario, "preventive", tmp_path / "run") == set()
    rows = pq.read_table(tmp_path / "run" / "events").to_pylist()
    assert [row["node"] for row in rows if row["kind"] == "deliver"] == ["n0", "n1"]


def test_t10_who_is_too_far_behind_begins_anew() -> None:
    """Its neighbour keeps two messages, and it lacks five: it is refused, and joins as a new incarnation."""
    world = a_world(
        "preventive", options={"log_keep": 2, "retry_ms": 20, "ack_ms": 100}, links=[],
        fault=[{"kind": "crash", "node": "n2", "at_ms": 1100, "recover_ms": 1500, "state": "kept"}],
        **published(1050, 1200, 1210, 1220, 1230, 1240, 3500),
    )  # fmt: skip
    run_to(world, 4000)
    lagging = machine(world, "n2")
    assert isinstance(lagging, Preventive)
    assert lagging.me.pid == "n2~1"
    assert world.faults["renewal"] == 1
    assert lagging.broadcast.log.received["n0"] == 7
