"""Who publishes what and when."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from ordercast.core.errors import UsageError
from ordercast.protocols import CATALOGUE
from tests.support.sim_lab import MS, Lab, Row, publish, scenario, schedule

TREE = {"kind": "tree", "nodes": 7}


def _load(*loads: dict[str, object], **changes: object) -> Lab:
    changes.setdefault("overlay", TREE)
    return Lab(scenario(workload=list(loads), trace={"record": "app"}, **changes))


def _published(lab: Lab) -> list[Row]:
    return sorted(lab.of("publish"), key=lambda row: row["time_ns"])


# --- leaving ---


@pytest.mark.parametrize(
    "load",
    [
        {"kind": "open", "rate_per_s": 200},
        {"kind": "closed", "outstanding": 2},
        {"kind": "burst", "size": 2, "every_ms": 50},
    ],
)
def test_nothing_is_drawn_for_a_node_that_leaves(load: dict[str, object]) -> None:
    """With publishers `all`, and answers to what it still delivers."""
    lab = Lab(
        scenario(
            overlay={"kind": "tree", "nodes": 7},
            workload=[load, {"kind": "reply", "probability": 0.2, "delay_ms": 5.0}],
            fault=[{"kind": "leave", "node": "n6", "at_ms": 300}],
        ),
        CATALOGUE["locamu"],
    )
    times = lab.times_ms("publish", "n6")
    assert times
    assert max(times) <= 300
    assert max(lab.times_ms("publish", "n5")) > 400


# --- open ---


def test_a_regular_open_load_publishes_at_its_rate_exactly_with_publishers_in_turn() -> None:
    rows = _published(_load({"kind": "open", "rate_per_s": 70, "arrival": "regular"}))
    gaps = {round(b["time_ns"] - a["time_ns"], -3) for a, b in pairwise(rows)}
    assert len(rows) == 70
    assert gaps <= {14_285_000, 14_286_000}
    assert [row["node"] for row in rows[:8]] == ["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n0"]


def test_a_poisson_open_load_has_its_rate_and_irregular_gaps() -> None:
    rows = _published(_load({"kind": "open", "rate_per_s": 1500}))
    gaps = [b["time_ns"] - a["time_ns"] for a, b in pairwise(rows)]
    assert len(rows) == pytest.approx(1500, rel=0.1)
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert deviation == pytest.approx(mean, rel=0.15)  # As exponential gaps have it.


def test_a_load_starts_and_stops_when_it_should() -> None:
    times = _load({"kind": "open", "rate_per_s": 500, "start_ms": 300, "stop_ms": 600}).times_ms("publish")
    assert 300 <= min(times) < 350
    assert 550 < max(times) < 600


def test_a_limit_counts_the_messages_of_all_publishers() -> None:
    assert len(_load({"kind": "open", "rate_per_s": 500, "limit": 17}).of("publish")) == 17
    assert len(_load({"kind": "burst", "size": 3, "every_ms": 10, "limit": 17}).of("publish")) == 17


def test_only_the_publishers_named_publish() -> None:
    lab = _load({"kind": "open", "rate_per_s": 300, "publishers": ["n2", "n5"]})
    assert {row["node"] for row in lab.of("publish")} == {"n2", "n5"}


def test_a_rare_load_does_not_keep_the_run_from_its_rest() -> None:
    """The next message would be hours after the end: it must not count as work that is left."""
    lab = _load({"kind": "open", "rate_per_s": 0.001, "arrival": "regular"})
    assert lab.manifest.drained is True
    assert lab.outcome.virtual_ns < 2000 * MS


def test_loads_do_not_disturb_each_other() -> None:
    first = {"kind": "open", "rate_per_s": 200, "publishers": ["n1"], "keys": 50}
    alone = _published(_load(first))
    together = _published(_load(first, {"kind": "open", "rate_per_s": 200, "publishers": ["n2"]}))
    assert [(r["time_ns"], r["keys"]) for r in together if r["node"] == "n1"] == [
        (r["time_ns"], r["keys"]) for r in alone
    ]


# --- closed ---


def _on_its_way(lab: Lab, publisher: str, waits_for: int) -> int:
    """The most messages of `publisher` that were published and not yet delivered by so many nodes."""
    events = [(row["time_ns"], i, row) for i, row in enumerate(lab.rows) if row["kind"] in {"publish", "deliver"}]
    delivered: Counter[str] = Counter()
    out, most = set(), 0
    for _, _, row in sorted(events, key=lambda event: event[:2]):
        if not row["msg"].startswith(f"{publisher}#"):
            continue
        if row["kind"] == "publish":
            out.add(row["msg"])
            most = max(most, len(out))
        else:
            delivered[row["msg"]] += 1
            if delivered[row["msg"]] == waits_for:
                out.discard(row["msg"])
    return most


@pytest.mark.parametrize("outstanding", [1, 4])
def test_a_closed_load_never_has_more_on_their_way_than_asked_for(outstanding: int) -> None:
    lab = _load({"kind": "closed", "outstanding": outstanding})
    assert {_on_its_way(lab, f"n{i}", waits_for=7) for i in range(7)} == {outstanding}


def test_a_closed_load_goes_on_when_everyone_has_delivered() -> None:
    lab = _load({"kind": "closed", "publishers": ["n0"], "think_ms": 2}, link={"latency_ms": 5})
    assert lab.times_ms("publish")[:4] == [0, 12, 24, 36]  # Two hops down the tree, then two milliseconds of thought.


def test_a_closed_load_can_wait_for_its_own_delivery_only() -> None:
    lab = _load({"kind": "closed", "publishers": ["n0"], "think_ms": 2, "until": "self"})
    assert lab.times_ms("publish")[:4] == [0, 2, 4, 6]


def test_a_closed_load_that_waits_for_nobody_lets_time_pass() -> None:
    lab = _load({"kind": "closed", "publishers": ["n0"], "until": "self"})
    assert lab.times_ms("publish")[:4] == [0, 1, 2, 3]


def test_a_closed_load_does_not_wait_for_the_dead() -> None:
    crash = {"kind": "crash", "node": "n6", "at_ms": 17}
    lab = _load({"kind": "closed", "publishers": ["n0"]}, fault=[crash], link={"latency_ms": 5})
    assert lab.times_ms("publish")[:5] == [0, 10, 20, 30, 40]


def test_a_closed_load_goes_on_when_the_last_one_it_waits_for_crashes() -> None:
    """n1 is the slow one: when it dies, nobody delivers anything any more that could wake the loop."""
    lab = Lab(
        scenario(
            workload=[{"kind": "closed", "publishers": ["n0"]}],
            link={"latency_ms": 200},
            fault=[{"kind": "crash", "node": "n1", "at_ms": 50, "recover_ms": 60}],
        )
    )
    times = lab.times_ms("publish")
    assert times[:2] == [0, 50]
    assert [time for time in times if time > 60] == [260, 460, 660, 860]


def test_a_closed_load_goes_on_after_its_own_crash_with_as_many_as_before() -> None:
    lab = _load(
        {"kind": "closed", "publishers": ["n0"], "outstanding": 3},
        fault=[{"kind": "crash", "node": "n0", "at_ms": 102, "recover_ms": 300, "survive": "none"}],
    )
    times = lab.times_ms("publish")
    assert not [time for time in times if 102 < time < 300]
    assert times.count(300) == 3
    assert max(Counter(times).values()) == 3
    assert max(times) > 900


def test_a_closed_load_does_not_wait_for_those_who_unsubscribed() -> None:
    leave = schedule({"node": "n6", "do": "unsubscribe", "at_ms": 17, "topic": "t0"})
    lab = _load({"kind": "closed", "publishers": ["n0"]}, leave, link={"latency_ms": 5})
    assert lab.times_ms("publish")[:5] == [0, 10, 20, 30, 40]


# --- bursts ---


def test_bursts_come_all_at_once_and_at_their_interval() -> None:
    lab = _load({"kind": "burst", "size": 4, "every_ms": 250, "publishers": ["n0", "n3"]})
    assert Counter(lab.times_ms("publish")) == dict.fromkeys([0, 250, 500, 750], 8)


# --- replies ---


def test_answers_are_answered_up_to_the_depth_and_no_further() -> None:
    lab = _load(
        schedule(publish("n0", 0)),
        {"kind": "reply", "probability": 1.0, "depth": 3, "delay_ms": 1},
        overlay={"kind": "line", "nodes": 2},
    )
    assert [row["msg"] for row in _published(lab)] == ["n0#1", "n1#1", "n0#2", "n1#2"]


def test_two_reply_loads_share_the_bound_on_the_chain() -> None:
    reply = {"kind": "reply", "probability": 1.0, "depth": 3}
    lab = _load(
        schedule(publish("n0", 0)),
        {**reply, "publishers": ["n0"]},
        {**reply, "publishers": ["n1"]},
        overlay={"kind": "line", "nodes": 2},
    )
    assert len(lab.of("publish")) == 4


def test_a_share_of_the_deliveries_is_answered_also_with_long_names() -> None:
    """The draw must look at the whole id, number included."""
    edges = {"kind": "edges", "edges": [["a-broker-with-a-long-name", "another-broker"]]}
    steps = [publish("a-broker-with-a-long-name", i) for i in range(400)]
    answers = {"kind": "reply", "probability": 0.25, "depth": 1}
    lab = _load(schedule(*steps), answers, overlay=edges)
    assert len(lab.of("publish", "another-broker")) == pytest.approx(100, abs=30)


def test_an_answer_comes_after_its_delay_and_not_after_the_end() -> None:
    reply = {"kind": "reply", "probability": 1.0, "depth": 1, "delay_ms": 40}
    lab = _load(schedule(publish("n0", 0), publish("n0", 970)), reply, overlay={"kind": "line", "nodes": 2})
    assert lab.times_ms("publish", "n1") == [45]


# --- schedules ---


def test_a_step_after_a_message_happens_right_after_its_delivery_at_that_node() -> None:
    lab = _load(
        schedule(publish("n0", 10), publish("n1", after="n0#1"), publish("n0", after="n1#1")),
        overlay={"kind": "line", "nodes": 2},
    )
    assert lab.times_ms("publish", "n1") == lab.times_ms("deliver", "n1")[:1] == [15]
    assert lab.times_ms("publish", "n0") == [10, 20]


def test_subscriptions_change_when_the_schedule_says() -> None:
    lab = _load(
        schedule(
            *(publish("n0", time, topic="news") for time in (10, 20, 30)),
            {"node": "n1", "do": "subscribe", "topic": "news", "at_ms": 18},
            {"node": "n1", "do": "unsubscribe", "topic": "news", "at_ms": 28},
        ),
        overlay={"kind": "line", "nodes": 2},
        groups={"kind": "explicit", "members": {"news": ["n0"]}},
    )
    assert lab.messages("deliver", "n1") == ["n0#2"]
    changes = [(r["kind"], r["topic"], r["time_ns"] / MS) for r in lab.rows if "subscribe" in r["kind"]]
    assert changes == [("subscribe", "news", 18), ("unsubscribe", "news", 28)]


def test_a_step_says_everything_about_its_message() -> None:
    step = publish("n0", 0, dst=["n3", "n1"], keys=["a", "b"], guarantee="causal", payload_bytes=9)
    row = _load(schedule(step)).of("publish")[0]
    assert (row["topic"], row["dst"], row["keys"]) == (None, ["n1", "n3"], ["a", "b"])
    assert (row["guarantee"], row["payload_bytes"]) == ("causal", 9)


# --- what is in a message ---


def test_topics_are_chosen_among_those_of_the_publisher_unless_told_otherwise() -> None:
    groups = {"kind": "explicit", "members": {"left": ["n1"], "right": ["n2"], "all": ["n1", "n2"]}}
    load = {"kind": "open", "rate_per_s": 400, "publishers": ["n1"]}
    assert {row["topic"] for row in _load(load, groups=groups).of("publish")} == {"left", "all"}
    assert {row["topic"] for row in _load({**load, "topics": "any"}, groups=groups).of("publish")} == {
        "left",
        "right",
        "all",
    }
    assert {row["topic"] for row in _load({**load, "topics": ["right"]}, groups=groups).of("publish")} == {"right"}


def test_a_publisher_without_a_topic_stays_silent() -> None:
    groups = {"kind": "explicit", "members": {"left": ["n1"]}}
    lab = _load({"kind": "open", "rate_per_s": 100}, groups=groups)
    assert {row["node"] for row in lab.of("publish")} == {"n1"}


def test_popular_topics_get_the_share_zipf_gives_them() -> None:
    lab = _load({"kind": "open", "rate_per_s": 2200, "popularity": 1.0}, groups={"kind": "everyone", "topics": 3})
    counts = Counter(row["topic"] for row in lab.of("publish"))
    assert counts["t0"] / counts["t1"] == pytest.approx(2, rel=0.25)
    assert counts["t0"] / counts["t2"] == pytest.approx(3, rel=0.25)


def test_guarantees_are_mixed_by_their_shares() -> None:
    lab = _load({"kind": "open", "rate_per_s": 1000, "guarantee": {"fifo": 3, "causal": 1, "total": 0}})
    counts = Counter(row["guarantee"] for row in lab.of("publish"))
    assert set(counts) == {"fifo", "causal"}
    assert counts["fifo"] / counts["causal"] == pytest.approx(3, rel=0.25)
    assert lab.manifest.guarantee == "mixed"


def test_one_guarantee_for_all_is_what_the_run_claims() -> None:
    assert _load({"kind": "open", "rate_per_s": 50, "guarantee": "causal"}).manifest.guarantee == "causal"
    assert _load({"kind": "open", "rate_per_s": 50}).manifest.guarantee == "eventual"


def test_keys_come_from_their_space_and_are_distinct_within_a_message() -> None:
    lab = _load({"kind": "open", "rate_per_s": 300, "keys": 5, "keys_per_message": 3})
    seen = {key for row in lab.of("publish") for key in row["keys"]}
    assert seen == {"k0", "k1", "k2", "k3", "k4"}
    assert all(1 <= len(row["keys"]) == len(set(row["keys"])) <= 3 for row in lab.of("publish"))


def test_random_destinations_have_their_number_and_only_they_deliver() -> None:
    lab = _load({"kind": "open", "rate_per_s": 100, "destinations": 3})
    wanted = {row["msg"]: set(row["dst"]) for row in lab.of("publish")}
    assert {len(dst) for dst in wanted.values()} == {3}
    assert len({frozenset(dst) for dst in wanted.values()}) > 10
    for msg, dst in wanted.items():
        assert {row["node"] for row in lab.of("deliver") if row["msg"] == msg} == dst


# --- bad loads ---

OPEN = {"kind": "open", "rate_per_s": 10}


@pytest.mark.parametrize(
    ("load", "complaint"),
    [
        ({"kind": "open", "rate_per_s": 0}, "workload[0].rate_per_s: 0.0"),
        ({"kind": "open", "rate_per_s": 1e15}, "workload[0].rate_per_s: 1000000000000000.0"),
        ({**OPEN, "publishers": []}, "workload[0].publishers: nobody publishes"),
        ({**OPEN, "publishers": ["n77"]}, "workload[0].publishers: unknown node 'n77'; known: n0, n1"),
        ({**OPEN, "topics": ["t00"]}, "workload[0].topics: unknown topic 't00'; did you mean 't0'?"),
        ({**OPEN, "guarantee": "casual"}, "workload[0].guarantee: unknown guarantee 'casual'; did you mean 'causal'?"),
        ({**OPEN, "guarantee": {"fifo": -1}}, "workload[0].guarantee.fifo: -1.0 is negative"),
        ({**OPEN, "guarantee": {"fifo": 0}}, "workload[0].guarantee: the shares add up to nothing"),
        ({**OPEN, "payload_bytes": -1}, "workload[0].payload_bytes: -1 is not from 0"),
        ({**OPEN, "payload_bytes": 10**12}, "workload[0].payload_bytes: 1000000000000 is not from 0"),
        ({**OPEN, "start_ms": 5000}, "workload[0].start_ms: 5000.0 is not from 0 to 1000"),
        ({**OPEN, "start_ms": 500, "stop_ms": 500}, "workload[0].stop_ms: 500.0 is not after start_ms"),
        ({**OPEN, "limit": 0}, "workload[0].limit: 0 is not from 1 up"),
        ({**OPEN, "keys": -1}, "workload[0].keys: -1"),
        ({**OPEN, "keys_per_message": 0}, "workload[0].keys_per_message: 0"),
        ({**OPEN, "popularity": -1}, "workload[0].popularity: -1.0"),
        ({**OPEN, "destinations": 8}, "workload[0].destinations: 8 is not from 0 to 7"),
        ({"kind": "closed", "outstanding": 0}, "workload[0]: a closed load needs outstanding >= 1"),
        ({"kind": "burst", "size": 1, "every_ms": 0}, "workload[0]: a burst load needs size >= 1 and every_ms > 0"),
        ({"kind": "reply", "probability": 1.5}, "workload[0]: a reply load needs 0 < probability <= 1"),
        (schedule({"node": "n0"}), "workload[0].steps[0]: give either at_ms or after"),
        (schedule(publish("n0", 1, after="n0#1")), "workload[0].steps[0]: give either at_ms or after"),
        (schedule(publish("n0", 5000)), "workload[0].steps[0].at_ms: 5000.0 is not within the run's duration"),
        (schedule(publish("n9", 5)), "workload[0].steps[0].node: unknown node 'n9'"),
        (schedule(publish("n0", 5, topic="x")), "workload[0].steps[0].topic: unknown topic 'x'"),
        (schedule(publish("n0", 5, guarantee="x")), "workload[0].steps[0].guarantee: unknown guarantee 'x'"),
        (schedule(publish("n0", 5, dst=["x"])), "workload[0].steps[0].dst: unknown node 'x'"),
        (schedule(publish("n0", 5, payload_bytes=-1)), "workload[0].steps[0].payload_bytes: -1"),
        (schedule(publish("n0", after="first")), "workload[0].steps[0].after: 'first' is not a message id"),
        (schedule(publish("n0", after="x#1")), "workload[0].steps[0].after: unknown node 'x'"),
    ],
)
def test_an_impossible_load_is_named(load: dict[str, object], complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        _load(load)
    assert str(caught.value).startswith(complaint)
    assert "\n" not in str(caught.value)
