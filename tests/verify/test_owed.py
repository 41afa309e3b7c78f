"""Who owes what, in the smallest traces: in order whatever becomes of the receiver, in the end if it was there."""

from __future__ import annotations

from typing import Any

import pytest

from ordercast.verify.verdict import EXCUSED, MADE, MISSING, OWED
from tests.support.random_traces import Row
from tests.support.trace_builder import judged, manifest, result, rows, story

ABOUT = manifest(groups={"t": ["b", "c"]})
GAP = ("a publishes m1", "a publishes m2", "c delivers m1", "c delivers m2", "b delivers m2")
DEPARTURES = {
    "left": ("b leaves",),
    "unsubscribed": ("b unsubscribes t",),
    "died": ("b crashes",),
    "lost its state": ("b recovers lost", "b leaves"),
}
TOTAL = {"m1": {"guarantee": "causal", "keys": ["k"]}, "m2": {"guarantee": "total", "keys": ["k"]}}


def closing(made: list[Row], *nodes: str, **info: str) -> list[Row]:
    """The rows with a last `leave` of each node that says how it was meant."""
    for node in nodes:
        seq = sum(row["node"] == node for row in made)
        made.append({"run": "r", "node": node, "seq": seq, "kind": "leave", "time_ns": len(made), "info": info})
    return made


@pytest.mark.parametrize("departure", DEPARTURES)
def test_a_gap_before_a_departure_breaks_order_and_agreement(departure: str) -> None:
    verdict = judged(rows(*GAP, *DEPARTURES[departure]), ABOUT)
    for check in ("fifo", "causal", "agreement"):
        assert result(verdict, check).verdict == "fail", check
    assert story(verdict, "fifo")[1] == "b delivered m2 (seq 0) but never delivered m1, which it had to"
    assert story(verdict, "agreement")[2].startswith("b owed m1, delivered what comes after it, and went")


@pytest.mark.parametrize("departure", DEPARTURES)
def test_what_is_concurrent_with_a_departure_is_excused_and_counted(departure: str) -> None:
    verdict = judged(rows(*GAP[:4], "b delivers m1", *DEPARTURES[departure]), ABOUT)
    assert verdict.exit_code() == 0
    assert [verdict.facts[name] for name in (OWED, MADE, MISSING, EXCUSED)] == [4, 3, 0, 1]


def test_eventual_messages_may_still_be_under_way_to_who_departs() -> None:
    eventual = {name: {"guarantee": "eventual"} for name in ("m1", "m2")}
    assert judged(rows(*GAP, "b leaves", **eventual), ABOUT).exit_code() == 0
    assert result(judged(rows(*GAP, **eventual), ABOUT), "agreement").verdict == "fail"


@pytest.mark.parametrize("departure", DEPARTURES)
def test_a_total_message_without_what_others_have_before_it_is_not_excused_by_a_departure(departure: str) -> None:
    published = ("a publishes m1", "d publishes m2", "c delivers m1", "c delivers m2", "b delivers m2")
    verdict = judged(rows(*published, *DEPARTURES[departure], **TOTAL), ABOUT)
    assert story(verdict, "total")[2] == "b delivered m2 (seq 0) but never delivered m1, which it had to"


def test_what_comes_after_the_end_of_a_stay_overtakes_nothing_of_it() -> None:
    lines = ("a publishes m1", "a publishes m2", "c delivers m1", "c delivers m2", "b unsubscribes t", "b delivers m2")
    verdict = judged(rows(*lines), ABOUT)
    assert (verdict.exit_code(), verdict.facts[EXCUSED]) == (0, 1)
    total = ("a publishes m1", "d publishes m2", *lines[2:])
    assert judged(rows(*total, **TOTAL), ABOUT).exit_code() == 0


def test_who_closes_with_the_run_owes_what_was_published_before() -> None:
    about = manifest(groups={"t": ["b", "c"]}, clock="global")
    missing = closing(rows(*GAP[:4], "b delivers m1"), "b", end="true")
    assert story(judged(missing, about), "agreement")[2].endswith(
        "stayed to its own end of the run, and never delivered m2"
    )
    later = closing(rows(*GAP[:1], "b delivers m1", "c delivers m1"), "b", end="true")
    later += [
        {"run": "r", "node": "a", "seq": 1, "kind": "publish", "msg": "m2", "topic": "t", "time_ns": 9},
        {"run": "r", "node": "c", "seq": 1, "kind": "deliver", "msg": "m2", "time_ns": 10},
    ]
    assert judged(later, about).exit_code() == 0
    late = {"run": "r", "node": "b", "seq": 2, "kind": "deliver", "msg": "m2", "time_ns": 11}
    assert result(judged([*later, late], about), "integrity").verdict == "fail"


def test_what_a_session_that_was_given_up_never_got_across_is_owed_to_nobody() -> None:
    about = manifest(groups={"t": ["b", "c"]})
    assert result(judged(rows("a publishes m1"), about), "agreement").verdict == "fail"
    given_up = closing(rows("a publishes m1", "a publishes m0", "b delivers m0", "c delivers m0"), "a", lost="absent")
    assert result(judged(given_up, about), "agreement").verdict == "pass"


def test_total_over_deliveries_that_nobody_else_made_is_no_pass() -> None:
    alone = rows("a publishes m1", "d publishes m2", "c delivers m1", "c delivers m2", **TOTAL)
    assert result(judged(alone, manifest(groups={"t": ["c"]})), "total").verdict == "not applicable"
    undelivered = rows("a publishes m1", "d publishes m2", "c delivers m1", "b delivers m1", **TOTAL)
    assert result(judged(undelivered, manifest()), "total").verdict == "not applicable"


def test_with_one_clock_nothing_is_delivered_before_it_was_published() -> None:
    made = rows("a publishes m1", "b delivers m1")
    made[0]["time_ns"] = 7
    assert judged(made, manifest(groups={"t": ["b"]})).exit_code() == 0
    verdict = judged(made, manifest(groups={"t": ["b"]}, clock="global"))
    assert story(verdict, "integrity") == [
        "b delivered m1 (seq 0)",
        "but a published m1 (seq 0) only later, by the clock of all nodes",
    ]


FOREIGN = ("a publishes m1", "b delivers m1", "a publishes m2", "b delivers m2")


def test_a_foreign_trace_says_what_was_assumed_and_the_user_may_say_otherwise() -> None:
    verdict = judged(rows(*FOREIGN))
    assert verdict.exit_code() == 0
    assert "who delivers anything of a topic is a member" in str(verdict.facts["assumed"])
    assert "own messages are not recorded" in str(verdict.facts["assumed"])
    told = judged(rows(*FOREIGN), members={"t": ["b", "c"]}, complete=True)
    assert {(w.node, *w.messages) for w in result(told, "agreement").witnesses} == {("c", "m1"), ("c", "m2")}
    assert "is a member" not in str(told.facts.get("assumed"))
    assert result(judged(rows(*FOREIGN), members={"t": ["b", "c"]}), "agreement").verdict == "unknown"


def test_what_is_missing_from_a_trace_that_nobody_calls_complete_is_unknown() -> None:
    cut = judged(rows("a publishes m1", "b delivers m1", "c delivers m1", "a publishes m2", "b delivers m2"))
    assert (result(cut, "agreement").verdict, cut.exit_code()) == ("unknown", 4)
    assert "one owed delivery is missing" in result(cut, "agreement").reason
    whole = judged(rows("a publishes m1", "b delivers m1", "c delivers m1"))
    assert result(whole, "agreement").verdict == "pass"


def test_every_broken_node_and_overtaken_message_has_a_story_before_any_has_two() -> None:
    """Node b let one message be overtaken by everything, c and d one each at the very end."""
    count = 30
    lines = [f"a publishes m{i}" for i in range(count)] + [f"b delivers m{i}" for i in range(1, count)]
    for node, lost in (("c", count - 2), ("d", count - 3)):
        lines += [f"{node} delivers m{i}" for i in range(count) if i != lost]
    verdict = judged(rows(*lines), manifest(groups={"t": ["b", "c", "d"]}))
    for check in ("fifo", "causal"):
        told = [(witness.node, witness.messages[0]) for witness in result(verdict, check).witnesses]
        assert set(told[:3]) == {("b", "m0"), ("c", "m28"), ("d", "m27")}, check
        assert len(told) == 5


def test_a_story_is_printed_once_with_all_the_checks_that_it_breaks() -> None:
    from ordercast.report.rows import stories

    verdict = judged(rows(*GAP), ABOUT)
    ((checks, witness),) = stories(verdict)
    assert checks == ["agreement", "fifo", "causal"]
    assert witness.check == "causal"


def _kept_apart(verdict: Any) -> set[str]:
    return {result.check for result in verdict.results if result.verdict == "fail"}


def test_what_was_published_after_a_second_subscription_is_owed_again() -> None:
    about = manifest(groups={"t": ["c"]}, clock="global")
    lines = ("b subscribes t", "b unsubscribes t", "a publishes m1", "c delivers m1", "b subscribes t")
    after = ("a publishes m2", "a publishes m3", "c delivers m2", "c delivers m3", "b delivers m3", "b leaves")
    assert _kept_apart(judged(rows(*lines, *after), about)) == {"agreement", "fifo", "causal"}
    assert not _kept_apart(judged(rows(*lines, *after[:4], "b delivers m2", "b leaves"), about))
