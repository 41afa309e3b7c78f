"""The clocks of an application that has work: SHW-14."""

from __future__ import annotations

from ordercast.client.work.lanes import keys_of
from ordercast.client.work.member import WorkInHand
from ordercast.client.work.patience import Patience
from tests.support.client_edge import publication


def unit(number: int) -> WorkInHand:
    entry = publication("bob~1", number)
    return WorkInHand(entry, 1, (entry.origin, number), keys_of(entry))


def test_the_unit_that_the_application_has_had_longest_counts() -> None:
    patience, first, second = Patience(100), unit(1), unit(2)
    patience.handed(first, 10)
    patience.handed(second, 50)
    assert not patience.is_over(110, waiting=False, took_ns=50)
    assert patience.is_over(111, waiting=False, took_ns=50)
    patience.given_back(first)
    assert not patience.is_over(150, waiting=False, took_ns=50)
    assert patience.is_over(151, waiting=False, took_ns=50)


def test_a_unit_that_is_handed_out_again_begins_anew_and_one_that_is_over_counts_no_more() -> None:
    patience, first, second = Patience(100), unit(1), unit(2)
    patience.handed(first, 0)
    patience.handed(second, 10)
    patience.handed(first, 90)
    second.over = True
    assert not patience.is_over(190, waiting=False, took_ns=90)


def test_who_takes_nothing_is_waited_for_from_when_there_was_something() -> None:
    patience = Patience(100)
    assert not patience.is_over(1000, waiting=False, took_ns=0)
    assert not patience.is_over(1100, waiting=True, took_ns=0)
    assert patience.is_over(1101, waiting=True, took_ns=0)


def test_who_takes_work_of_another_topic_is_not_waited_for_here() -> None:
    patience = Patience(100)
    assert not patience.is_over(1000, waiting=False, took_ns=0)
    assert not patience.is_over(1150, waiting=True, took_ns=1050)


def test_without_a_limit_the_application_may_take_for_ever() -> None:
    patience = Patience(0)
    patience.handed(unit(1), 0)
    assert not patience.is_over(1 << 60, waiting=True, took_ns=0)
