"""Promises that no guarantee implies: one order of all totals, or all messages, of a topic; and real time."""

from __future__ import annotations

from typing import Any

import pytest

from ordercast.trace.store import TraceError
from tests.support.trace_builder import judged, manifest, result, rows, story

A = {"keys": ["a"], "guarantee": "total"}
B = {"keys": ["b"], "guarantee": "total"}


def claiming(*claims: str, **more: Any) -> Any:
    return manifest(groups={"t": ["p", "q"], "u": ["p", "q"]}, claims=list(claims), clock="global", **more)


OPPOSITE = (
    "p publishes m1", "q publishes m2", "p delivers m1", "p delivers m2", "q delivers m2", "q delivers m1",
)  # fmt: skip


def test_totals_on_disjoint_keys_in_opposite_orders_break_total_topic_and_nothing_else() -> None:
    verdict = judged(rows(*OPPOSITE, m1=A, m2=B), claiming("total-topic"))
    assert [found.check for found in verdict.results if found.verdict == "fail"] == ["total-topic"]
    assert story(verdict, "total-topic") == [
        "p delivered m1 (seq 1) before m2 (seq 2)",
        "q delivered m2 (seq 1) before m1 (seq 2)",
    ]


def test_totals_of_different_topics_are_in_no_common_order() -> None:
    made = rows(*OPPOSITE, m1=A, m2=B | {"topic": "u"})
    assert result(judged(made, claiming("total-topic")), "total-topic").verdict == "pass"


def test_weaker_messages_do_not_take_part() -> None:
    made = rows(*OPPOSITE, m1=A, m2=B | {"guarantee": "eventual"})
    assert result(judged(made, claiming("total-topic", "real-time")), "total-topic").verdict == "pass"


@pytest.mark.parametrize("check", ["total-topic", "real-time", "one-order"])
def test_it_does_not_apply_to_a_run_that_does_not_claim_it(check: str) -> None:
    found = result(judged(rows(*OPPOSITE, m1=A, m2=B), claiming()), check)
    assert (found.verdict, found.reason) == ("not applicable", "the run does not claim it, and nobody asked")


def test_who_asks_need_not_be_told() -> None:
    assert result(judged(rows(*OPPOSITE, m1=A, m2=B), checks=["total-topic"]), "total-topic").verdict == "fail"


SKIPPING = ("p publishes m1", "p publishes m2", "p publishes m3")


def test_whoever_skips_messages_has_the_others_in_one_order() -> None:
    gaps = (*SKIPPING, "p delivers m1", "p delivers m3", "q delivers m2", "q delivers m3", "p delivers m2")
    assert result(judged(rows(*gaps), claiming("one-order")), "one-order").verdict == "fail"
    gaps = (*SKIPPING, "p delivers m1", "p delivers m3", "q delivers m1", "q delivers m2", "q delivers m3")
    found = result(judged(rows(*gaps), claiming("one-order")), "one-order")
    assert (found.verdict, found.deliveries) == ("pass", 5)


def test_one_order_counts_for_messages_of_every_guarantee_and_names_the_circle() -> None:
    verdict = judged(rows(*OPPOSITE, m1=A, m2=B | {"guarantee": "eventual"}), claiming("one-order"))
    assert story(verdict, "one-order") == [
        "p delivered m1 (seq 1) before m2 (seq 2)",
        "q delivered m2 (seq 1) before m1 (seq 2)",
    ]
    assert result(judged(rows(*OPPOSITE, m2={"topic": "u"}), claiming("one-order")), "one-order").verdict == "pass"


DELIVERED_THEN_PUBLISHED = (
    "p publishes m1", "p delivers m1", "q publishes m2", "p delivers m2", "q delivers m2", "q delivers m1",
)  # fmt: skip


def test_a_total_published_after_another_was_delivered_comes_after_it() -> None:
    verdict = judged(rows(*DELIVERED_THEN_PUBLISHED, m1=A, m2=B), claiming("real-time"))
    assert story(verdict, "real-time") == [
        "p delivered m1 (seq 1) at 1 ns, before anybody else",
        "q published m2 (seq 0) at 2 ns, after that",
        "q delivered m2 (seq 1) but m1 only later (seq 2)",
    ]


def test_what_was_published_at_the_same_moment_is_free() -> None:
    made = rows(*DELIVERED_THEN_PUBLISHED, m1=A, m2=B)
    for row in made[1:3]:
        row["time_ns"] = 1
    assert result(judged(made, claiming("real-time")), "real-time").verdict == "pass"


def test_a_delivered_total_that_is_skipped_is_out_of_order_too() -> None:
    made = rows(*DELIVERED_THEN_PUBLISHED[:-1], m1=A, m2=B)
    assert "never delivered m1" in story(judged(made, claiming("real-time")), "real-time")[-1]


def test_without_one_clock_real_time_is_unknown() -> None:
    about = manifest(groups={"t": ["p", "q"]}, claims=["real-time"])
    verdict = judged(rows(*DELIVERED_THEN_PUBLISHED, m1=A, m2=B), about)
    assert result(verdict, "real-time").verdict == "unknown"
    assert verdict.exit_code() == 4


def test_a_claim_that_nobody_can_check_is_refused() -> None:
    with pytest.raises(TraceError, match="claims an unknown check 'justice'"):
        judged(rows("p publishes m1"), claiming("justice"))


LOST_WITH_ITS_PUBLISHER = ("p publishes m1", "p delivers m1", "p crashes", "q publishes m2", "q delivers m2")


@pytest.mark.parametrize(("uniform", "verdict"), [(True, "fail"), (False, "pass")])
def test_what_only_the_dead_delivered_is_owed_where_agreement_is_uniform(uniform: bool, verdict: str) -> None:
    made = rows(*LOST_WITH_ITS_PUBLISHER)
    told = manifest(groups={"t": ["p", "q"]}, uniform=uniform)
    assert result(judged(made, told), "agreement").verdict == verdict


@pytest.mark.parametrize(("uniform", "verdict"), [(True, "fail"), (False, "pass")])
def test_what_only_a_leaver_delivered_is_owed_where_agreement_is_uniform(uniform: bool, verdict: str) -> None:
    made = rows("p publishes m1", "p delivers m1", "p leaves", "q publishes m2", "q delivers m2")
    told = manifest(groups={"t": ["p", "q"]}, uniform=uniform)
    assert result(judged(made, told), "agreement").verdict == verdict


@pytest.mark.parametrize(("end", "verdict"), [("leaves", "fail"), ("crashes", "pass")])
def test_what_only_a_leaver_delivered_is_owed_where_leavers_pass_it_on(end: str, verdict: str) -> None:
    """As at brokers: who leaves in good order waits for its publications; who dies may take them along."""
    made = rows("p publishes m1", "p delivers m1", f"p {end}", "q publishes m2", "q delivers m2")
    told = manifest(groups={"t": ["p", "q"]}, uniform=False, leavers_pass_on=True)
    assert result(judged(made, told), "agreement").verdict == verdict


def test_what_a_living_one_delivered_is_owed_to_all_in_any_case() -> None:
    made = rows("p publishes m1", "q delivers m1", "p crashes", "r publishes m2", "r delivers m2", "q delivers m2")
    told = manifest(groups={"t": ["p", "q", "r"]}, uniform=False)
    assert result(judged(made, told), "agreement").verdict == "fail"
