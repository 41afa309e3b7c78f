"""Cuts in which closed sessions stand as intervals: what is in them, and how they compare."""

from __future__ import annotations

from itertools import product

import pytest

from ordercast.core.ids import Origin
from ordercast.pubsub.cuts import (
    ALL,
    CutSet,
    closed_in,
    common,
    folded,
    grow,
    intervals,
    senseless_interval,
    union,
    within,
)
from ordercast.pubsub.received import Vector


def session(ticket: int, name: str = "ann") -> Origin:
    return Origin(f"{name}~5.{ticket}.0.b1")


SESSIONS = [session(ticket) for ticket in range(1, 5)]
PAIRS = [(origin, number) for origin in SESSIONS for number in (1, 2, 3)]
CUTS: list[Vector] = [
    {},
    {SESSIONS[0]: 2},
    {SESSIONS[0]: 3, SESSIONS[2]: 1},
    intervals({"0.b1": (1, 3)}),
    intervals({"0.b1": (1, 2, 3, 5)}) | {SESSIONS[1]: 2},
    intervals({"0.b1": (2, 4), "0.b2": (1, 9)}) | {SESSIONS[0]: 1},
]


def in_it(cut: Vector) -> set[tuple[Origin, int]]:
    return {(origin, number) for origin, number in PAIRS if CutSet(cut).has(origin, number)}


def test_tickets_three_to_seventy_of_a_broker_are_one_name() -> None:
    assert intervals({"0.b2": (3, 71)}) == {"~3.0.b2": 70}
    assert closed_in({Origin("~3.0.b2"): 70}) == {"0.b2": (3, 71)}


def test_everything_of_a_closed_session_is_in_a_cut_whatever_its_number() -> None:
    cut = CutSet({Origin("~1.0.b1"): 2, SESSIONS[2]: 7})
    assert [cut.upto(origin) for origin in SESSIONS] == [ALL, ALL, 7, 0]
    assert cut.has(SESSIONS[1], 10**9)
    assert not cut.has(SESSIONS[2], 8)


@pytest.mark.parametrize(("one", "other"), list(product(CUTS, CUTS)))
def test_unions_and_common_parts_are_those_of_the_sets(one: Vector, other: Vector) -> None:
    grown = dict(one)
    grow(grown, other)
    assert in_it(union(one, other)) == in_it(grown) == in_it(one) | in_it(other)
    assert in_it(common(one, other)) == in_it(one) & in_it(other)
    assert within(one, union(one, other))
    assert within(common(one, other), one)


@pytest.mark.parametrize(("one", "other"), list(product(CUTS, CUTS)))
def test_a_cut_within_another_has_nothing_more_than_it(one: Vector, other: Vector) -> None:
    if within(one, other):
        assert in_it(one) <= in_it(other)
    elif not closed_in(one):
        assert not in_it(one) <= in_it(other)


def test_from_before_a_session_was_closed_to_after_it_is_forward() -> None:
    before, after = {SESSIONS[0]: 8}, intervals({"0.b1": (1, 2)})
    assert within(before, after)
    assert not within(after, before)


def test_what_is_closed_is_not_counted_too_and_neighbours_are_one_interval() -> None:
    cut = {Origin("~1.0.b1"): 2, Origin("~3.0.b1"): 3, SESSIONS[2]: 7, SESSIONS[3]: 1}
    assert folded(cut) == {"~1.0.b1": 3, SESSIONS[3]: 1}


@pytest.mark.parametrize("name", ["~", "~x.0.b1", "~3", "~3.0", "~3.x.b1", "~-1.0.b1"])
def test_a_name_that_stands_for_no_sessions_is_pointed_out(name: str) -> None:
    assert senseless_interval({SESSIONS[0]: 1, Origin(name): 4}) == name
    assert closed_in({Origin("~" + "9" * 5000 + ".0.b1"): 4}) == {}
