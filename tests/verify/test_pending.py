"""Subscriptions that take time, and those that came with the past: what is owed before they were confirmed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.random_traces import Row
from tests.support.trace_builder import judged, manifest, result, rows

LOCAL = manifest(guarantee="eventual", groups={"t": ["p"]})
GLOBAL = manifest(guarantee="eventual", groups={"t": ["p"]}, clock="global")
LEAVING = manifest(guarantee="eventual", groups={"t": ["p", "q"]}, clock="global")


def story(*lines: str) -> list[Row]:
    """Rows as usual; a line that begins with `pending` is one that is not complete."""
    made = rows(*[line.removeprefix("pending ") for line in lines])
    for row, line in zip(made, lines, strict=True):
        if line.startswith("pending "):
            row["info"] = {"pending": "true"}
    return made


def verdicts(made: list[Row], about: Any) -> tuple[str, str]:
    verdict = judged(made, about)
    return result(verdict, "integrity").verdict, result(verdict, "agreement").verdict


def with_past(*lines: str) -> list[Row]:
    """Rows as usual; `wholly` begins a subscription that came with the past, `partly` takes that back."""
    made = rows(*[line.removeprefix("wholly ").removeprefix("partly ") for line in lines])
    for row, line in zip(made, lines, strict=True):
        if (word := line.split()[0]) in ("wholly", "partly"):
            row["info"] = {"from": "everything" if word == "wholly" else "membership"}
    return made


M1, M2 = ("p publishes m1", "p delivers m1"), ("p publishes m2", "p delivers m2")


@pytest.mark.parametrize("about", [LOCAL, GLOBAL])
def test_who_came_with_the_past_owes_what_was_published_before(about: Any) -> None:
    assert verdicts(with_past(*M1, "wholly q subscribes t", "q delivers m1"), about) == ("pass", "pass")
    assert verdicts(with_past(*M1, "wholly q subscribes t"), about) == ("pass", "fail")


def test_who_takes_that_back_owes_what_came_since_it_was_a_member() -> None:
    told = (*M1, "wholly q subscribes t", *M2, "partly q subscribes t")
    assert verdicts(with_past(*told, "q delivers m2"), GLOBAL) == ("pass", "pass")
    assert verdicts(with_past(*told, "q delivers m1", "q delivers m2"), GLOBAL) == ("pass", "pass")
    assert verdicts(with_past(*told), GLOBAL) == ("pass", "fail")


@pytest.mark.parametrize("about", [LOCAL, GLOBAL])
def test_who_comes_with_the_past_a_second_time_owes_each_message_once(about: Any) -> None:
    told = (*M1, "wholly q subscribes t", "q delivers m1", "q unsubscribes t", "wholly q subscribes t")
    assert verdicts(with_past(*told), about) == ("pass", "pass")
    assert verdicts(with_past(*(line for line in told if line != "q delivers m1")), about) == ("pass", "fail")


def through_filter(*lines: str) -> list[Row]:
    """Rows as usual; `found` begins a subscription to a topic that began after the filter `>` was followed."""
    made = rows(*[line.removeprefix("found ") for line in lines])
    for row, line in zip(made, lines, strict=True):
        if line.startswith("found "):
            row["info"] = {"from": "filter", "filter": ">"}
    return made


FOUND = ("q subscribes >", "q publishes word", "q delivers word", "p delivers word", *M1, "found q subscribes t")
"""The word tells p, who shares no clock with q, that q follows."""


@pytest.mark.parametrize("clock", ["local", "global"])
def test_who_followed_a_filter_owes_what_was_published_on_a_topic_since(clock: str) -> None:
    about = manifest(guarantee="eventual", groups={"t": ["p"], "u": ["p", "q"]}, clock=clock)

    def on_another(made: list[Row]) -> list[Row]:
        return [row | {"topic": "u"} if (row["kind"], row.get("msg")) == ("publish", "word") else row for row in made]

    assert verdicts(on_another(through_filter(*FOUND, "q delivers m1")), about) == ("pass", "pass")
    assert verdicts(on_another(through_filter(*FOUND)), about) == ("pass", "fail")
    assert verdicts(on_another(rows(*[line.removeprefix("found ") for line in FOUND])), about) == ("pass", "pass")


def following(pattern: str, *lines: str) -> list[Row]:
    """Rows as usual; a subscription to the pattern is one to a filter."""
    return [row | ({"info": {"filter": pattern}} if row.get("topic") == pattern else {}) for row in rows(*lines)]


@pytest.mark.parametrize(("pattern", "owed"), [(">", True), ("*", True), ("t", True), ("t.>", False), ("*.*", False)])
def test_who_followed_a_filter_and_was_never_told_of_a_topic_owes_it_all_the_same(pattern: str, owed: bool) -> None:
    made = following(pattern, f"q subscribes {pattern}", *M1)
    assert verdicts(made, GLOBAL) == ("pass", "fail" if owed else "pass")
    assert verdicts(rows(f"q subscribes {pattern}", *M1), GLOBAL) == ("pass", "fail" if pattern == "t" else "pass")
    before = following(pattern, *M1, f"q subscribes {pattern}", f"q unsubscribes {pattern}", *M2)
    assert verdicts(before, GLOBAL) == ("pass", "pass")


def test_of_a_topic_that_it_left_a_follower_owes_nothing_more() -> None:
    made = following(">", "q subscribes >", "q subscribes t", "q unsubscribes t", *M1)
    assert verdicts(made, GLOBAL) == ("pass", "pass")


def test_of_several_filters_the_one_that_lasts_counts() -> None:
    told = ("q subscribes *", "q subscribes >", "q unsubscribes *", *M1)
    made = [row | ({"info": {"filter": row["topic"]}} if row.get("topic") in ("*", ">") else {}) for row in rows(*told)]
    assert verdicts(made, GLOBAL) == ("pass", "fail")


def test_a_filter_counts_for_a_topic_only_until_it_is_left() -> None:
    left = ("q subscribes >", "found q subscribes t", "q unsubscribes t", *M1, "found q subscribes t")
    assert verdicts(through_filter(*left), GLOBAL) == ("pass", "pass")
    given_up = ("q subscribes >", "q unsubscribes >", *M1, "found q subscribes t")
    assert verdicts(through_filter(*given_up), GLOBAL) == ("pass", "pass")


BEGINS = ("pending q subscribes t", "p publishes m1", "p delivers m1")


@pytest.mark.parametrize("about", [LOCAL, GLOBAL])
def test_who_waits_for_its_subscription_may_get_messages_and_need_not(about: Any) -> None:
    assert verdicts(story(*BEGINS, "q delivers m1"), about) == ("pass", "pass")
    assert verdicts(story(*BEGINS), about) == ("pass", "pass")
    assert verdicts(story(*BEGINS, "q delivers m1", "q subscribes t"), about) == ("pass", "pass")
    assert verdicts(story(*BEGINS, "q subscribes t"), about) == ("pass", "pass")


def test_what_is_published_once_it_is_complete_is_owed() -> None:
    after = ("q subscribes t", "p publishes m2", "p delivers m2")
    assert verdicts(story(*BEGINS, *after), GLOBAL) == ("pass", "fail")
    assert verdicts(story(*BEGINS, *after, "q delivers m2"), GLOBAL) == ("pass", "pass")


def test_who_never_asked_must_not_get_anything() -> None:
    assert verdicts(story("p publishes m1", "p delivers m1", "q delivers m1"), GLOBAL) == ("fail", "pass")


ENDS = ("pending q unsubscribes t", "p publishes m1", "p delivers m1")


def test_who_waits_for_its_cancellation_is_owed_nothing_and_may_get_something() -> None:
    assert verdicts(story(*ENDS), LEAVING) == ("pass", "pass")
    assert verdicts(story(*ENDS, "q delivers m1"), LEAVING) == ("pass", "pass")
    assert verdicts(story("p publishes m1", "p delivers m1"), LEAVING) == ("pass", "fail")


def test_after_a_complete_cancellation_nothing_may_come() -> None:
    after = ("q unsubscribes t", "p publishes m2", "p delivers m2")
    assert verdicts(story(*ENDS, *after), LEAVING) == ("pass", "pass")
    assert verdicts(story(*ENDS, *after, "q delivers m2"), LEAVING) == ("fail", "pass")


def test_out_and_in_again_is_owed_from_the_second_confirmation_on() -> None:
    again = ("pending q unsubscribes t", "pending q subscribes t", "p publishes m1", "p delivers m1", "q subscribes t")
    assert verdicts(story(*again), LEAVING) == ("pass", "pass")
    assert verdicts(story(*again, "p publishes m2", "p delivers m2"), LEAVING) == ("pass", "fail")
    assert verdicts(story(*again, "p publishes m2", "p delivers m2", "q delivers m2"), LEAVING) == ("pass", "pass")
