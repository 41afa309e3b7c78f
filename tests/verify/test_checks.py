"""For every check a smallest trace that passes and one that fails, and the story that the failure tells."""

from __future__ import annotations

import pytest

from ordercast.verify.verdict import CHECKS
from tests.support.trace_builder import judged, manifest, result, rows, story

TO_ALL = {"t": ["a", "b", "c"]}
DST = {"m1": {"topic": None, "dst": ["a", "b"]}, "m2": {"topic": None, "dst": ["a", "b"]}}
TOTAL = {"m1": {"guarantee": "total", "keys": ["k"]}, "m2": {"guarantee": "causal", "keys": ["k"]}}


def test_each_delivered_once_by_subscribers_only_is_integrity() -> None:
    verdict = judged(rows("a publishes m1", "b delivers m1"))
    assert result(verdict, "integrity").verdict == "pass"
    assert result(verdict, "integrity").deliveries == 1


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (("a publishes m1", "b delivers m1", "b delivers m1"), "b delivered m1 (seq 1) again"),
        (("a publishes m1", "b delivers m1", "b delivers ghost"), "b delivered ghost (seq 1), which nobody published"),
        (("a publishes m1", "b publishes m1", "b delivers m1"), "b published m1 again (seq 0)"),
        (("b delivers m1", "b publishes m2", "a delivers m2", "a publishes m1"), "a delivered m2 (seq 0)"),
    ],
    ids=["duplicate", "invention", "second publication", "delivery before its own publication"],
)
def test_breaches_of_integrity_are_told(lines: tuple[str, ...], told: str) -> None:
    verdict = judged(rows(*lines))
    assert told in story(verdict, "integrity")
    assert verdict.exit_code() == 1


def test_delivery_by_a_node_outside_the_group_is_no_integrity() -> None:
    about = manifest(nodes=["a", "b"], groups={"t": ["a"]})
    verdict = judged(rows("a publishes m1", "a delivers m1", "b delivers m1"), about)
    assert story(verdict, "integrity") == [
        "a published m1 (seq 0) for topic t",
        "b delivered m1 (seq 0), but it was no subscriber",
    ]


def test_a_subscriber_that_misses_a_message_breaks_agreement() -> None:
    about = manifest(groups={"t": ["b", "c"]})
    whole = rows("a publishes m1", "b delivers m1", "c delivers m1")
    assert result(judged(whole, about), "agreement").verdict == "pass"
    assert story(judged(whole[:2], about), "agreement") == [
        "a published m1 (seq 0)",
        "b delivered m1 (seq 0)",
        "c was a subscriber before the publication, is up at the end, and never delivered m1",
    ]


def test_nothing_delivered_of_what_was_owed_fails_agreement() -> None:
    verdict = judged(rows("a publishes m1"), manifest(groups={"t": ["b"]}))
    assert result(verdict, "agreement").verdict == "fail"
    assert verdict.exit_code() == 1


def test_what_only_a_dead_publisher_knew_is_owed_to_nobody() -> None:
    about = manifest(groups={"t": ["b", "c"]})
    assert result(judged(rows("a publishes m1", "a crashes"), about), "agreement").verdict == "not applicable"
    seen = rows("a publishes m1", "a crashes", "b delivers m1", "b crashes")
    assert story(judged(seen, about), "agreement")[1] == "b delivered m1 (seq 0)"  # by a node that died later


def test_overtaking_on_one_publisher_breaks_fifo() -> None:
    good = ("a publishes m1", "a publishes m2", "b delivers m1", "b delivers m2")
    assert result(judged(rows(*good)), "fifo").verdict == "pass"
    assert story(judged(rows(*good[:2], "b delivers m2", "b delivers m1")), "fifo") == [
        "a published m1 (seq 0) and then m2 (seq 1)",
        "b delivered m2 (seq 0) but m1 only later (seq 1)",
    ]


def test_a_gap_breaks_fifo_if_the_receiver_was_owed_what_it_skipped() -> None:
    verdict = judged(rows("a publishes m1", "a publishes m2", "b delivers m2"), manifest(groups={"t": ["b"]}))
    assert story(verdict, "fifo")[1] == "b delivered m2 (seq 0) but never delivered m1, which it had to"


def test_causal_order_is_seen_through_a_message_that_the_receiver_never_gets() -> None:
    """m1 -> m2 -> m3, and c, which is not in the group of m2, delivers m3 before m1."""
    groups = {"t": ["a", "b", "c"], "side": ["b", "d"]}
    side = {"m2": {"topic": "side"}}
    lines = [
        "a publishes m1",
        "a delivers m1",
        "b delivers m1",
        "b publishes m2",
        "b delivers m2",
        "d delivers m2",
        "d publishes m3",
        "a delivers m3",
        "b delivers m3",
    ]
    about = manifest(groups=groups)
    good = judged(rows(*lines, "c delivers m1", "c delivers m3", **side), about)
    assert good.exit_code() == 0, good
    bad = judged(rows(*lines, "c delivers m3", "c delivers m1", **side), about)
    assert story(bad, "causal") == [
        "c delivered m3 (seq 0) but m1 only later (seq 1)",
        "although m1 -> m2 -> m3:",
        "b delivered m1 (seq 0) and then published m2 (seq 1)",
        "d delivered m2 (seq 0) and then published m3 (seq 1)",
    ]
    assert result(bad, "optimistic-causal").verdict == "fail"
    assert result(bad, "fifo").verdict == "pass"
    within_topics = judged(rows(*lines, "c delivers m3", "c delivers m1", **side), about, scope="topic")
    assert result(within_topics, "causal").verdict == "pass"


def test_skipping_breaks_causal_but_not_optimistic_causal_order() -> None:
    lines = ("a publishes m1", "a delivers m1", "b delivers m1", "b publishes m2", "c delivers m2")
    verdict = judged(rows(*lines), manifest(groups=TO_ALL))
    assert story(verdict, "causal")[0] == "c delivered m2 (seq 0) but never delivered m1, which it had to"
    assert result(verdict, "optimistic-causal").verdict == "pass"


def test_a_total_message_has_the_same_messages_before_it_everywhere() -> None:
    published = ("a publishes m1", "b publishes m2", "c delivers m1", "c delivers m2")
    assert result(judged(rows(*published, "d delivers m1", "d delivers m2", **TOTAL)), "total").verdict == "pass"
    assert story(judged(rows(*published, "d delivers m2", "d delivers m1", **TOTAL)), "total") == [
        "m1 is total and shares key 'k' with m2",
        "d delivered m2 (seq 0) before m1 (seq 1)",
        "c delivered m1 (seq 0) but m2 only later (seq 1)",
    ]


def test_keys_that_differ_are_not_ordered_by_a_total_message() -> None:
    apart = TOTAL | {"m2": {"guarantee": "causal", "keys": ["other"]}}
    lines = ("a publishes m1", "b publishes m2", "c delivers m1", "c delivers m2", "d delivers m2", "d delivers m1")
    assert result(judged(rows(*lines, **apart)), "total").verdict == "pass"


def test_total_messages_that_go_round_in_a_circle_are_told_as_the_circle() -> None:
    both = {name: {"guarantee": "total"} for name in ("m1", "m2")}
    lines = ("a publishes m1", "b publishes m2", "c delivers m1", "c delivers m2", "d delivers m2", "d delivers m1")
    assert sorted(story(judged(rows(*lines, **both)), "total")) == [
        "c delivered m1 (seq 0) before m2 (seq 1)",
        "d delivered m2 (seq 0) before m1 (seq 1)",
    ]


def test_a_total_message_delivered_without_one_that_others_have_before_it_is_a_violation() -> None:
    lines = ("a publishes m1", "b publishes m2", "c delivers m2", "c delivers m1", "d delivers m1")
    groups = {"t": ["c", "d"]}
    verdict = judged(rows(*lines, **TOTAL), manifest(groups=groups))
    assert story(verdict, "total")[2] == "d delivered m1 (seq 0) but never delivered m2, which it had to"
    undrained = judged(rows(*lines, **TOTAL), manifest(groups=groups, drained=False))
    assert result(undrained, "total").verdict == "fail"  # Whenever m2 comes to d now, it comes too late.


def test_opposite_orders_at_two_destinations_break_prefix_and_acyclic_order() -> None:
    published = ("p publishes m1", "q publishes m2", "a delivers m1", "a delivers m2")
    good = judged(rows(*published, "b delivers m1", "b delivers m2", **DST))
    assert (result(good, "prefix").verdict, result(good, "acyclic").verdict) == ("pass", "pass")
    bad = judged(rows(*published, "b delivers m2", "b delivers m1", **DST))
    assert sorted(story(bad, "acyclic")) == [
        "a delivered m1 (seq 0) before m2 (seq 1)",
        "b delivered m2 (seq 0) before m1 (seq 1)",
    ]
    assert story(bad, "prefix")[-1] == "both were addressed by both messages"


def test_two_destinations_that_each_lack_what_the_other_has_break_prefix_order_only() -> None:
    verdict = judged(rows("p publishes m1", "q publishes m2", "a delivers m1", "b delivers m2", **DST))
    assert story(verdict, "prefix")[:2] == [
        "b delivered m2 (seq 0) but never m1",
        "a delivered m1 (seq 0) but never m2",
    ]
    assert result(verdict, "acyclic").verdict == "pass"


def test_a_cycle_through_three_destinations_is_told_with_all_three() -> None:
    three = {
        "m1": {"topic": None, "dst": ["a", "c"]},
        "m2": {"topic": None, "dst": ["a", "b"]},
        "m3": {"topic": None, "dst": ["b", "c"]},
    }
    published = ("p publishes m1", "p publishes m2", "p publishes m3")
    delivered = (
        "a delivers m1", "a delivers m2", "b delivers m2", "b delivers m3", "c delivers m3", "c delivers m1",
    )  # fmt: skip
    verdict = judged(rows(*published, *delivered, **three))
    assert len(story(verdict, "acyclic")) == 3
    assert result(verdict, "prefix").verdict == "pass"


def test_live_replicas_that_end_differently_have_not_converged() -> None:
    lines = ("a publishes m1", "b delivers m1", "c delivers m1", "b ends x")
    assert result(judged(rows(*lines, "c ends x")), "convergence").verdict == "pass"
    assert story(judged(rows(*lines, "c ends y")), "convergence") == [
        "b ended with the digest x (seq 1)",
        "c ended with the digest y (seq 1)",
    ]
    assert result(judged(rows(*lines, "c ends y", "c crashes")), "convergence").verdict == "not applicable"


def test_a_node_that_handles_what_is_not_for_it_is_no_genuine_multicast() -> None:
    lines = ("p publishes m1", "p sends m1", "a receives m1", "a delivers m1", "b receives m1", "b delivers m1")
    asked = {"checks": ["genuine"]}
    assert result(judged(rows(*lines, **DST), **asked), "genuine").verdict == "pass"
    assert story(judged(rows(*lines, "c receives m1", **DST), **asked), "genuine") == [
        "p published m1 (seq 0)",
        "c handled m1 (seq 0), which was not for it",
    ]
    silent = judged(rows("p publishes m1", "a delivers m1", **DST), **asked)
    assert (result(silent, "genuine").verdict, silent.exit_code()) == ("unknown", 4)
    nobody_asked = judged(rows(*lines, "c receives m1", **DST))
    assert result(nobody_asked, "genuine").verdict == "not applicable"
    claimed = manifest(genuine=True)
    assert result(judged(rows(*lines, "c receives m1", **DST), claimed), "genuine").verdict == "fail"


def test_all_violations_are_counted_but_only_some_are_told_earliest_first() -> None:
    lines = [f"a publishes m{i}" for i in range(9)] + [f"b delivers m{i}" for i in reversed(range(9))]
    fifo = result(judged(rows(*lines), witnesses=3), "fifo")
    assert (fifo.violations, len(fifo.witnesses)) == (8, 3)
    assert fifo.witnesses[0].messages == ["m0", "m1"]


def test_every_check_reports_in_the_order_of_the_interface() -> None:
    verdict = judged(rows("a publishes m1", "b delivers m1"))
    assert tuple(result.check for result in verdict.results) == CHECKS
