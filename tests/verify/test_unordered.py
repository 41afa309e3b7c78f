"""A node that says that it keeps no order is not held to one, and still to everything else."""

from __future__ import annotations

from ordercast.verify.verdict import Verdict
from tests.support.random_traces import Row
from tests.support.trace_builder import judged, manifest, result, rows

ABOUT = manifest(guarantee="optimistic-causal", groups={"t": ["a", "b", "c"]})
CHAIN = ("a publishes m1", "b delivers m1", "b publishes m2")


def story(*lines: str) -> list[Row]:
    """Rows as usual; a line that begins with `unordered` or `ordered` says whether an order is kept from there on."""
    made = rows(*[line.removeprefix("unordered ").removeprefix("ordered ") for line in lines])
    for row, line in zip(made, lines, strict=True):
        if "ordered " in line:
            row["info"] = {"ordered": "no" if line.startswith("unordered ") else "yes"}
    return made


def order_of(verdict: Verdict) -> str:
    return result(verdict, "optimistic-causal").verdict


def test_who_says_that_it_keeps_no_order_is_not_accused_of_breaking_it() -> None:
    late = ("c delivers m2", "c delivers m1")
    assert order_of(judged(story(*CHAIN, "c subscribes t", *late), ABOUT)) == "fail"
    verdict = judged(story(*CHAIN, "unordered c subscribes t", *late), ABOUT)
    assert order_of(verdict) == "pass"
    assert verdict.facts["unordered"] == 2
    assert result(verdict, "optimistic-causal").deliveries == 1, "b's alone"


def test_it_is_still_held_to_integrity() -> None:
    twice = story(*CHAIN, "unordered c subscribes t", "c delivers m1", "c delivers m1")
    assert result(judged(twice, ABOUT), "integrity").verdict == "fail"


def test_the_others_are_still_held_to_the_order() -> None:
    lines = (*CHAIN, "unordered c subscribes t", "d subscribes t", "d delivers m2", "d delivers m1")
    assert order_of(judged(story(*lines), ABOUT)) == "fail"


def test_whoever_keeps_the_order_again_is_held_to_it_again() -> None:
    lines = (*CHAIN, "unordered c subscribes t", "ordered c subscribes t", "c delivers m2", "c delivers m1")
    assert order_of(judged(story(*lines), ABOUT)) == "fail"


def test_a_subscription_that_says_nothing_about_order_changes_nothing() -> None:
    lines = (*CHAIN, "unordered c subscribes t", "c subscribes t", "c delivers m2", "c delivers m1")
    assert order_of(judged(story(*lines), ABOUT)) == "pass"


def test_deliveries_without_order_need_not_fit_into_one_order() -> None:
    about = manifest(guarantee="optimistic-causal", groups={"t": ["a", "b", "c"]}, claims=["one-order"])
    late = ("c delivers m2", "c delivers m1")
    ordered = ("a publishes m1", "a delivers m1", "b delivers m1", "b publishes m2", "b delivers m2", "c subscribes t")
    assert result(judged(story(*ordered, *late), about), "one-order").verdict == "fail"
    free = result(judged(story(*ordered[:-1], "unordered c subscribes t", *late), about), "one-order")
    assert (free.verdict, free.deliveries) == ("pass", 3)


def test_no_order_on_one_topic_says_nothing_about_another() -> None:
    about = manifest(guarantee="optimistic-causal", groups={"t": ["a", "b", "c"], "other": ["c"]})
    lines = (*CHAIN, "unordered c subscribes other", "c delivers m2", "c delivers m1")
    assert order_of(judged(story(*lines), about)) == "fail"


def test_a_message_that_is_promised_more_than_the_optimistic_order_is_held_to_it() -> None:
    about = manifest(guarantee="causal", groups={"t": ["a", "b", "c"]})
    verdict = judged(story(*CHAIN, "unordered c subscribes t", "c delivers m2", "c delivers m1"), about)
    assert result(verdict, "causal").verdict == "fail"


def test_where_nobody_keeps_the_order_there_is_nothing_to_pass() -> None:
    lines = ("a publishes m1", "unordered c subscribes t", "c delivers m1")
    assert order_of(judged(story(*lines), ABOUT)) != "pass"
