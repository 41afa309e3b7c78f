"""Crashes, recoveries, partitions, pauses and slow nodes."""

from __future__ import annotations

from collections.abc import Hashable

import pytest

from ordercast.core.errors import UsageError
from ordercast.core.machine import Outbox, Place
from ordercast.core.messages import Message
from tests.support.plain_flood import PlainFlood, Silent, protocol_of
from tests.support.sim_lab import MS, Lab, Row, publish, scenario, schedule, steady

JITTER = {"latency_ms": {"kind": "exponential", "mean_ms": 30.0}, "fifo": False}


def _crash(node: str, at_ms: float, **more: object) -> dict[str, object]:
    return {"kind": "crash", "node": node, "at_ms": at_ms, **more}


def _dropped(lab: Lab, why: str) -> list[Row]:
    return [row for row in lab.of("drop") if dict(row["info"])["why"] == why]


# --- crashes: what survives ---


def _in_flight_at_crash(survive: str, link: dict[str, object], seed: int = 0) -> tuple[list[str], Lab]:
    """Twenty messages one millisecond apart; the sender crashes at 19.5 ms. Which were on their way, and the run."""
    asked = scenario(workload=[steady("n0", 20)], link=link, fault=[_crash("n0", 19.5, survive=survive)])
    lab = Lab(asked, seed=seed)
    crash_free = Lab(scenario(workload=[steady("n0", 20)], link=link), seed=seed)
    late = {row["msg"] for row in crash_free.of("receive", "n1") if row["time_ns"] > 19.5 * MS}
    return [f"n0#{i}" for i in range(1, 21) if f"n0#{i}" in late], lab


@pytest.mark.parametrize("link", [{"latency_ms": 8}, JITTER, {**JITTER, "loss": 0.2, "duplicate": 0.5}])
def test_all_none_or_a_prefix_of_what_was_in_flight_survives_a_crash(link: dict[str, object]) -> None:
    kept = set()
    for seed in range(5):
        in_flight, lab = _in_flight_at_crash("all", link, seed)
        assert len(in_flight) >= 4
        assert set(in_flight) <= set(lab.messages("receive", "n1"))

        _, lab = _in_flight_at_crash("none", link, seed)
        late = {row["msg"] for row in lab.of("receive", "n1") if row["time_ns"] > 19.5 * MS}
        assert late == set()

        _, lab = _in_flight_at_crash("random", link, seed)
        late = {row["msg"] for row in lab.of("receive", "n1") if row["time_ns"] > 19.5 * MS}
        survivors = [msg for msg in in_flight if msg in late]
        assert survivors == in_flight[: len(survivors)]
        kept.add(len(survivors))
    assert len(kept) > 2  # Not always all and not always none.


def test_each_link_of_a_crashed_node_keeps_a_prefix_of_its_own() -> None:
    asked = scenario(
        overlay={"kind": "star", "nodes": 9},
        workload=[steady("n0", 20)],
        link={"latency_ms": 30},
        fault=[_crash("n0", 20)],
    )
    assert len({len(Lab(asked).messages("receive", f"n{i}")) for i in range(1, 9)}) > 2


def test_nothing_in_flight_reaches_the_next_life_of_the_receiver() -> None:
    asked = scenario(
        workload=[steady("n0", 20)], link=JITTER, fault=[_crash("n1", 10.5, recover_ms=10.6)], duration_ms=50
    )
    lab = Lab(asked)
    sent_before = {row["msg"] for row in lab.of("send", "n0") if row["time_ns"] < 10.5 * MS}
    received_after = {row["msg"] for row in lab.of("receive", "n1") if row["time_ns"] > 10.5 * MS}
    assert len(_dropped(lab, "crash-loss")) > 3
    assert not sent_before & received_after
    assert len(received_after) == 20 - len(sent_before)


def test_what_arrives_at_the_instant_of_a_crash_has_arrived_or_not_but_never_both() -> None:
    """The crash is planned first, so it comes before everything else of its instant."""
    asked = scenario(workload=[steady("n0", 10)], link={"latency_ms": 5}, fault=[_crash("n1", 8, recover_ms=8.5)])
    lab = Lab(asked)
    assert len(lab.of("receive", "n1")) + len(_dropped(lab, "crash-loss")) == 10
    assert lab.times_ms("receive", "n1")[:3] == [5, 6, 7]


def test_a_dead_node_neither_publishes_nor_receives() -> None:
    lab = Lab(scenario(workload=[steady("n0", 10, 10), steady("n1", 10, 10)], fault=[_crash("n1", 45)]))
    assert max(lab.times_ms("receive", "n1") + lab.times_ms("publish", "n1")) < 45
    assert len(lab.of("publish", "n1")) == 5
    assert lab.manifest.faults["crash"] == 1


def test_what_a_busy_node_had_not_served_dies_with_it() -> None:
    lab = Lab(
        scenario(
            workload=[schedule(*(publish("n0", 0) for _ in range(5)))],
            nodes=[{"nodes": ["n1"], "cpu": {"per_packet_us": 10_000}}],
            fault=[_crash("n1", 26, recover_ms=40)],
        )
    )
    assert lab.messages("receive", "n1") == ["n0#1", "n0#2"]


# --- recovery ---


class Memory(Silent):
    """Counts what it hears, durably and not; says both when it comes back."""

    durable = ("kept",)

    def __init__(self, place: Place, options: object) -> None:
        super().__init__(place, options)
        self.kept = 0
        self.forgotten = 0

    def on_publish(self, message: Message, out: Outbox) -> None:
        self.kept += 1
        self.forgotten += 1
        out.deliver(message)

    def on_start(self, out: Outbox) -> None:
        self._tell("start", out)

    def on_recover(self, out: Outbox) -> None:
        self._tell("recover", out)

    def _tell(self, how: str, out: Outbox) -> None:
        out.note("join", {"how": how, "kept": str(self.kept), "forgotten": str(self.forgotten)})


def _told(lab: Lab) -> list[tuple[str, str, str]]:
    infos = [dict(row["info"]) for row in lab.of("join", "n0")]
    return [(info["how"], info["kept"], info["forgotten"]) for info in infos]


def test_a_node_that_kept_its_state_has_exactly_what_it_declared_durable() -> None:
    asked = scenario(workload=[steady("n0", 3)], fault=[_crash("n0", 10, recover_ms=20, state="kept")])
    lab = Lab(asked, protocol_of(Memory))
    assert _told(lab) == [("start", "0", "0"), ("recover", "3", "0")]
    assert dict(lab.of("recover", "n0")[0]["info"]) == {"state": "kept"}


def test_a_node_that_lost_its_state_starts_as_a_stranger() -> None:
    asked = scenario(workload=[steady("n0", 3)], fault=[_crash("n0", 10, recover_ms=20, state="lost")])
    lab = Lab(asked, protocol_of(Memory))
    assert _told(lab) == [("start", "0", "0"), ("start", "0", "0")]
    assert dict(lab.of("recover", "n0")[0]["info"]) == {"state": "lost"}


@pytest.mark.parametrize(("state", "ids"), [("kept", ["n0#1", "n0#2"]), ("lost", ["n0#1", "n0~1#1"])])
def test_message_ids_stay_unique_across_lives(state: str, ids: list[str]) -> None:
    asked = scenario(
        workload=[schedule(publish("n0", 0), publish("n0", 30))],
        fault=[_crash("n0", 10, recover_ms=20, state=state)],
    )
    assert Lab(asked).messages("publish", "n0") == ids


def test_saved_state_is_not_shared_with_the_life_that_saved_it() -> None:
    """A second crash restores what the second life made of the state, not what the first one had."""
    asked = scenario(
        workload=[schedule(publish("n0", 0), publish("n0", 30), publish("n0", 31))],
        fault=[_crash("n0", 10, recover_ms=20), _crash("n0", 40, recover_ms=50)],
    )
    assert _told(Lab(asked, protocol_of(Memory))) == [("start", "0", "0"), ("recover", "1", "0"), ("recover", "3", "0")]


def test_a_protocol_that_cannot_take_back_a_stranger_says_so() -> None:
    asked = scenario(fault=[_crash("n0", 10, recover_ms=20, state="lost")])
    with pytest.raises(UsageError, match=r"fault\[0\]\.state: protocol 'test' cannot take back"):
        Lab(asked, protocol_of(PlainFlood, readmits=False))


# --- partitions ---


def _both_ways(fault: dict[str, object]) -> Lab:
    return Lab(scenario(workload=[steady("n0", 10, 10), steady("n1", 10, 10)], fault=[fault], link={"latency_ms": 3}))


def test_a_partition_loses_what_is_sent_into_it_both_ways_until_it_heals() -> None:
    lab = _both_ways({"kind": "partition", "sides": [["n0"], ["n1"]], "at_ms": 25, "until_ms": 55})
    assert [row["time_ns"] / MS for row in _dropped(lab, "cut") if row["node"] == "n0"] == [30, 40, 50]
    assert [row["time_ns"] / MS for row in _dropped(lab, "cut") if row["node"] == "n1"] == [30, 40, 50]
    assert lab.times_ms("receive", "n1") == [3, 13, 23, 63, 73, 83, 93]


def test_a_one_way_partition_cuts_only_from_the_first_side_to_the_second() -> None:
    lab = _both_ways({"kind": "partition", "sides": [["n0"], ["n1"]], "at_ms": 25, "until_ms": 55, "one_way": True})
    assert {row["node"] for row in _dropped(lab, "cut")} == {"n0"}
    assert len(lab.of("receive", "n0")) == 10


def test_what_was_on_its_way_before_the_cut_arrives() -> None:
    lab = _both_ways({"kind": "partition", "sides": [["n0"], ["n1"]], "at_ms": 21, "until_ms": 55})
    assert 23 in lab.times_ms("receive", "n1")


def test_overlapping_partitions_heal_when_the_last_one_ends() -> None:
    first = {"kind": "partition", "sides": [["n0"], ["n1"]], "at_ms": 15, "until_ms": 45}
    second = {"kind": "partition", "sides": [["n1"], ["n0"]], "at_ms": 25, "until_ms": 65}
    lab = Lab(scenario(workload=[steady("n0", 10, 10)], fault=[first, second], link={"latency_ms": 3}))
    assert lab.times_ms("receive", "n1") == [3, 13, 73, 83, 93]


# --- pauses and slow nodes ---


def test_a_pause_loses_nothing_and_keeps_the_order() -> None:
    pause = {"kind": "pause", "node": "n1", "at_ms": 10, "until_ms": 60}
    lab = Lab(scenario(workload=[steady("n0", 100)], fault=[pause], link={"latency_ms": 3}))
    assert lab.messages("receive", "n1") == [f"n0#{i}" for i in range(1, 101)]
    assert not [time for time in lab.times_ms("receive", "n1") if 10 < time < 60]
    assert lab.times_ms("receive", "n1").count(60) > 40


def test_a_paused_node_sends_nothing_even_if_it_was_in_the_middle_of_something() -> None:
    lab = Lab(
        scenario(
            overlay={"kind": "line", "nodes": 3},
            nodes=[{"nodes": ["n1"], "cpu": {"per_packet_us": 10_000}}],
            fault=[{"kind": "pause", "node": "n1", "at_ms": 12, "until_ms": 50}],
        )
    )
    assert lab.times_ms("receive", "n1") == [10]
    assert lab.times_ms("send", "n1") == [50]


def test_a_timer_of_a_paused_node_runs_out_when_it_goes_on() -> None:
    class Machine(Silent):
        def on_start(self, out: Outbox) -> None:
            out.set_timer("alarm", 20 * MS)

        def on_timer(self, name: Hashable, out: Outbox) -> None:
            out.note("join", {})

    pause = {"kind": "pause", "node": "n0", "at_ms": 10, "until_ms": 60}
    assert Lab(scenario(fault=[pause]), protocol_of(Machine)).times_ms("join", "n0") == [60]


def test_a_slow_node_takes_longer_for_every_input_and_only_for_a_while() -> None:
    slow = {"kind": "slow", "node": "n1", "at_ms": 20, "until_ms": 60, "extra_ms": 4}
    lab = Lab(
        scenario(overlay={"kind": "line", "nodes": 3}, workload=[steady("n0", 10, 10)], fault=[slow]),
    )
    spent = {row["msg"]: -row["time_ns"] / MS for row in lab.of("receive", "n1")}
    for row in lab.of("send", "n1"):
        spent[row["msg"]] += row["time_ns"] / MS
    assert list(spent.values()) == [0, 0, 4, 4, 4, 4, 0, 0, 0, 0]


def test_replies_and_closed_loops_work_at_busy_nodes() -> None:
    """What waits in the queue of a busy node is still the answer, or the message of the loop, that it was."""
    busy = {"cpu": {"per_packet_us": 3000}}
    loop = {"kind": "closed", "publishers": ["n0"], "limit": 6}
    lab = Lab(scenario(workload=[loop], node=busy))
    assert len(lab.of("publish", "n0")) == 6
    answers = {"kind": "reply", "probability": 1.0, "depth": 2}
    lab = Lab(scenario(workload=[schedule(publish("n0", 0)), answers], node=busy))
    assert len(lab.of("publish")) == 3


# --- bad faults ---


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        (_crash("n9", 1), "fault[0].node: unknown node 'n9'"),
        (_crash("n0", -1), "fault[0].at_ms: -1.0 is not within the run's duration"),
        (_crash("n0", 2000), "fault[0].at_ms: 2000.0 is not within the run's duration"),
        (_crash("n0", 10, recover_ms=10), "fault[0].recover_ms: 10.0 is not between"),
        ({"kind": "pause", "node": "n0", "at_ms": 10, "until_ms": 5000}, "fault[0].until_ms: 5000.0 is not between"),
        ({"kind": "slow", "node": "n0", "at_ms": 1, "until_ms": 2, "extra_ms": -1}, "fault[0].extra_ms: -1.0"),
        (
            {"kind": "partition", "sides": [["n0"], ["n0", "n1"]], "at_ms": 1, "until_ms": 2},
            "fault[0].sides: n0 is on both sides",
        ),
        (
            {"kind": "partition", "sides": [["n0"], ["n2"]], "at_ms": 1, "until_ms": 2},
            "fault[0].sides: no link of the overlay crosses",
        ),
        (
            {"kind": "partition", "sides": [["n0"], ["x"]], "at_ms": 1, "until_ms": 2},
            "fault[0].sides: unknown node 'x'",
        ),
        (
            {"kind": "suspicion", "node": "n0", "by": "n2", "at_ms": 1, "until_ms": 2},
            "fault[0].by: n2 is not a neighbour of n0",
        ),
    ],
)
def test_an_impossible_fault_is_named(fault: dict[str, object], complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        Lab(scenario(overlay={"kind": "line", "nodes": 3}, fault=[fault]))
    assert str(caught.value).startswith(complaint)


def test_a_node_cannot_crash_while_it_is_down() -> None:
    with pytest.raises(UsageError, match=r"fault\[1\]\.at_ms: an earlier fault of the same kind at n0"):
        Lab(scenario(fault=[_crash("n0", 10, recover_ms=50), _crash("n0", 20, recover_ms=30)]))


# --- latencies that change ---


def _delay(**more: object) -> dict[str, object]:
    return {"kind": "delay", "between": ["n0", "n1"], "at_ms": 100, "latency_ms": 40.0, **more}


def _travel(fault: dict[str, object]) -> tuple[set[float], set[float], set[float], set[float]]:
    """From n0 to n1 before, during and after; and from n1 to n0 during."""
    talk = [schedule(*(publish(node, at) for node in ("n0", "n1") for at in (10, 150, 300)))]
    lab = Lab(scenario(workload=talk, fault=[fault], duration_ms=500))
    forth, back = lab.travel_ms("n0", "n1"), lab.travel_ms("n1", "n0")
    return {forth["n0#1"]}, {forth["n0#2"]}, {forth["n0#3"]}, {back["n1#2"]}


def test_a_latency_changes_for_a_time_or_for_good_one_way_or_both() -> None:
    assert _travel(_delay(until_ms=200)) == ({5}, {40}, {5}, {40})
    assert _travel(_delay(one_way=True)) == ({5}, {40}, {40}, {5})


def test_what_is_faster_after_a_change_overtakes_nothing_on_a_link_in_order() -> None:
    talk = [steady("n0", 60, 5.0)]
    for fifo, ordered in ((True, True), (False, False)):
        lab = Lab(scenario(workload=talk, fault=[_delay(until_ms=200)], link={"fifo": fifo}, duration_ms=500))
        received = [int(msg.partition("#")[2]) for msg in lab.messages("receive", "n1")]
        assert (received == sorted(received)) == ordered
        assert len(received) == 60


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ([_delay(between=["n0", "n9"])], r"fault\[0\].between: unknown node 'n9'"),
        ([_delay(latency_ms=-1)], r"fault\[0\].latency_ms: -1.* is negative"),
        ([_delay(until_ms=50)], r"fault\[0\].until_ms: 50.* is not between"),
        ([_delay(), _delay(at_ms=200)], r"fault\[1\].at_ms: an earlier fault of the same kind at n0 to n1"),
    ],
)
def test_a_change_of_latency_that_makes_no_sense_is_refused(faults: list[dict[str, object]], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Lab(scenario(fault=faults))
