"""Shrinking: a planted bug comes out as what it is made of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ordercast.core.ids import NodeId
from ordercast.core.machine import Outbox
from ordercast.core.messages import Message, Packet
from ordercast.core.registry import ProtocolInfo
from ordercast.scenario.brokers import BrokerTree
from ordercast.scenario.load import dump_scenario, load_scenario
from ordercast.scenario.model import Crash, Edges, Explicit, Scenario, Schedule, Step
from ordercast.sim.catalogue import BROKER
from ordercast.sim.shrink import shrink
from tests.support.plain_flood import Data, PlainFlood, protocol_of
from tests.support.sim_lab import Lab, publish, scenario, schedule

BUSY = {
    "overlay": {"kind": "tree", "nodes": 12},
    "workload": [
        {"kind": "open", "rate_per_s": 120},
        {"kind": "reply", "probability": 0.02, "depth": 2},
    ],
    "link": {"latency_ms": {"kind": "exponential", "mean_ms": 6.0}, "fifo": False, "duplicate": 0.02},
    "fault": [
        {"kind": "pause", "node": "n2", "at_ms": 100, "until_ms": 150},
        {"kind": "partition", "sides": [["n1"], ["n3", "n4"]], "at_ms": 300, "until_ms": 320},
        {"kind": "crash", "node": "n6", "at_ms": 400, "recover_ms": 500},
    ],
}


class _Loses(PlainFlood):
    """Delivers twice when messages of n5, n3 and n9 have met, in this order, within what it remembers."""

    pattern = ("n5", "n3", "n9")

    def __init__(self, place: object, options: object) -> None:
        super().__init__(place, options)  # type: ignore[arg-type]
        self.met = 0

    def _take(self, message: Message, source: NodeId | None, out: Outbox) -> None:
        new = (message.origin, message.number) not in self.seen
        super()._take(message, source, out)
        if new and self.met < len(self.pattern) and message.origin == self.pattern[self.met]:
            self.met += 1
            if self.met == len(self.pattern):
                out.deliver(message)


THREE_MEET = protocol_of(_Loses, "three-meet")


def _delivers_twice(protocol: ProtocolInfo) -> Callable[[Scenario], bool]:
    def fails(asked: Scenario) -> bool:
        lab = Lab(asked, protocol, asked.seed)
        delivered = [(row["node"], row["msg"]) for row in lab.of("deliver")]
        return len(delivered) != len(set(delivered))

    return fails


def _steps(small: Scenario) -> list[Step]:
    (only,) = small.workload
    assert isinstance(only, Schedule)
    return only.steps


@pytest.fixture(scope="module")
def small() -> Scenario:
    asked = scenario(**BUSY, trace={"record": "app"})
    assert _delivers_twice(THREE_MEET)(asked)
    return shrink(asked, THREE_MEET, _delivers_twice(THREE_MEET), seed=0)


def test_three_messages_that_must_meet_are_all_that_is_left(small: Scenario) -> None:
    assert [step.node for step in sorted(_steps(small), key=lambda step: step.at_ms or 0)] == ["n5", "n3", "n9"]


def test_faults_links_and_nodes_that_the_failure_does_not_need_are_gone(small: Scenario) -> None:
    assert small.fault == []
    assert isinstance(small.overlay, Edges)
    assert {name for edge in small.overlay.edges for name in edge} == {"n3", "n5", "n9"}
    assert small.link.duplicate == 0
    assert small.link.fifo


def test_the_small_scenario_fails_again_when_it_is_read_from_its_file(small: Scenario, tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(dump_scenario(small))
    assert load_scenario(file) == small
    assert _delivers_twice(THREE_MEET)(load_scenario(file))
    assert len(file.read_text().splitlines()) < 40


def test_shrinking_is_deterministic(small: Scenario) -> None:
    again = shrink(scenario(**BUSY, trace={"record": "app"}), THREE_MEET, _delivers_twice(THREE_MEET), seed=0)
    assert again == small


def test_the_number_of_tries_is_bounded_and_progress_is_told() -> None:
    asked_for: list[Scenario] = []
    seen: list[float] = []

    def fails(asked: Scenario) -> bool:
        asked_for.append(asked)
        return _delivers_twice(THREE_MEET)(asked)

    shrink(scenario(**BUSY, trace={"record": "app"}), THREE_MEET, fails, seed=0, max_tries=12, progress=seen.append)
    assert len(asked_for) == 12
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_a_fault_that_the_failure_needs_stays() -> None:
    class Forgetful(PlainFlood):
        durable = ()

    protocol = protocol_of(Forgetful, "forgetful")
    asked = scenario(
        overlay={"kind": "ring", "nodes": 4},
        workload=[{"kind": "open", "rate_per_s": 100}],
        link={"latency_ms": 40, "duplicate": 0.5},
        fault=[
            {"kind": "crash", "node": "n1", "at_ms": 200, "recover_ms": 201},
            {"kind": "crash", "node": "n2", "at_ms": 600, "recover_ms": 601},
        ],
        trace={"record": "app"},
    )
    small = shrink(asked, protocol, _delivers_twice(protocol), seed=1)
    assert len(small.fault) == 1
    assert isinstance(small.fault[0], Crash)
    assert len(_steps(small)) == 1
    assert _delivers_twice(protocol)(small)


def test_an_answer_keeps_its_question_even_when_ids_move() -> None:
    """The third message of n0 and its answer: once the first two are gone, the question is n0#1."""

    class Answers(PlainFlood):
        def on_receive(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
            super().on_receive(peer, packet, out)
            assert isinstance(packet, Data)
            if packet.message.keys == ("answer",):
                out.deliver(packet.message)

    protocol = protocol_of(Answers, "answers")
    steps = [publish("n0", 10), publish("n0", 20), publish("n0", 30, keys=["question"])]
    asked = scenario(workload=[schedule(*steps, publish("n1", after="n0#3", keys=["answer"]))])

    def fails(candidate: Scenario) -> bool:
        lab = Lab(candidate, protocol, candidate.seed)
        asked_for = [row["msg"] for row in lab.of("publish") if row["keys"] == ["question"]]
        answered = lab.messages("deliver", "n0").count("n1#1") == 2
        return answered and bool(asked_for)

    small = shrink(asked, protocol, fails, seed=0)
    question, answer = sorted(_steps(small), key=lambda step: step.node)
    assert question.keys == ["question"]
    assert answer.after == "n0#1"


def test_groups_lose_the_topics_and_members_that_nobody_needs() -> None:
    asked = scenario(
        overlay={"kind": "tree", "nodes": 7},
        groups={"kind": "subtrees"},
        workload=[{"kind": "open", "rate_per_s": 60}],
        trace={"record": "app"},
    )

    def fails(candidate: Scenario) -> bool:
        return any(row["topic"] == "below-n1" for row in Lab(candidate, seed=candidate.seed).of("deliver", "n3"))

    small = shrink(asked, protocol_of(PlainFlood, "plain"), fails, seed=0)
    assert isinstance(small.groups, Explicit)
    assert small.groups.members["below-n1"] == ["n3"]
    assert set(small.groups.members) == {"below-n1"}
    assert len(_steps(small)) == 1


def test_a_load_that_only_fails_as_a_load_keeps_its_loads() -> None:
    """Here the failure is that nothing is published by schedule, so an explicit schedule cannot fail."""
    asked = scenario(workload=[{"kind": "open", "rate_per_s": 60}, {"kind": "burst", "size": 1, "every_ms": 100}])

    def fails(candidate: Scenario) -> bool:
        return any(not isinstance(load, Schedule) for load in candidate.workload)

    small = shrink(asked, protocol_of(PlainFlood, "plain"), fails, seed=0)
    assert len(small.workload) == 1


def test_the_seed_and_the_protocol_are_part_of_the_result(small: Scenario) -> None:
    assert (small.seed, small.protocol) == (0, "three-meet")


# --- brokers ---


def test_a_run_of_brokers_shrinks_to_what_its_failure_is_made_of() -> None:
    """The failure: c1 delivers a total of c3 in a run in which some broker crashes."""
    asked = scenario(
        protocol="broker",
        overlay={
            "kind": "broker-tree",
            "brokers": 5,
            "clients": {f"c{i}": {"edge": f"b{i}", "topics": ["t", "u"]} for i in range(4)},
            "detection_ms": {"kind": "uniform", "low_ms": 1, "high_ms": 30},
        },
        options={"partitions": "excluded"},
        link={"latency_ms": {"kind": "uniform", "low_ms": 1, "high_ms": 20}},
        duration_ms=1500,
        workload=[{"kind": "open", "rate_per_s": 30, "start_ms": 500, "guarantee": {"causal": 0.5, "total": 0.5}}],
        fault=[
            {"kind": "crash", "node": "b4", "at_ms": 700},
            {"kind": "crash", "node": "b2", "at_ms": 900, "recover_ms": 1200, "state": "lost"},
            {"kind": "delay", "between": ["b0", "b1"], "at_ms": 600, "latency_ms": 50.0},
        ],
    )

    def fails(candidate: Scenario) -> bool:
        lab = Lab(candidate, BROKER, candidate.seed)
        totals = {row["msg"] for row in lab.of("publish", "c3") if row["guarantee"] == "total"}
        return bool(lab.of("crash")) and any(row["msg"] in totals for row in lab.of("deliver", "c1"))

    small = shrink(asked, BROKER, fails, seed=3, max_tries=300)
    tree = small.overlay
    assert isinstance(tree, BrokerTree)
    (load,) = small.workload
    assert isinstance(load, Schedule)
    assert [(step.node, step.guarantee) for step in load.steps] == [("c3", "total")]
    assert set(tree.clients) == {"c1", "c3"}
    assert len(tree.parents) == 1
    assert [fault.__struct_config__.tag for fault in small.fault] == ["crash"]
    assert fails(small)
