"""What a node has met: each pair is new once, in memory that follows the gaps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.core.errors import PeerError
from ordercast.core.ids import NodeId, Origin
from ordercast.protocols.shared.seen import GAP_LIMIT, Seen

ANN, BOB = Origin("ann"), Origin("bob")


@given(st.lists(st.tuples(st.sampled_from([ANN, BOB]), st.integers(1, 12))))
def test_a_pair_is_new_exactly_once_in_any_order(pairs: list[tuple[Origin, int]]) -> None:
    seen = Seen()
    met: set[tuple[Origin, int]] = set()
    for pair in pairs:
        assert seen.add(*pair) == (pair not in met)
        met.add(pair)


def test_memory_does_not_grow_with_messages_that_leave_no_gap() -> None:
    seen = Seen()
    for number in [*range(2, 500), 1]:
        seen.add(ANN, number)
    assert seen.highest == {ANN: 499}
    assert seen.missing == {}


numbers = st.sets(st.integers(1, 12))


@given(numbers, numbers, numbers)
def test_merging_a_summary_is_the_union_without_what_is_excluded(
    mine: set[int], theirs: set[int], excluded: set[int]
) -> None:
    here, there = Seen(), Seen()
    for number in sorted(mine):
        here.add(ANN, number)
    for number in sorted(theirs):
        there.add(ANN, number)
    here.merge(there.summary(but=[(ANN, number) for number in sorted(excluded & theirs)]))
    union = mine | (theirs - excluded)
    assert {number for number in range(1, 14) if not here.copy().add(ANN, number)} == union


@given(numbers, st.integers(1, 14))
def test_next_absent_is_the_first_number_not_met(met: set[int], start: int) -> None:
    seen = Seen()
    for number in sorted(met):
        seen.add(ANN, number)
    expected = next(number for number in range(start, 20) if number not in met)
    assert seen.next_absent(ANN, start) == expected


def test_equal_knowledge_has_equal_summaries_whatever_the_order() -> None:
    first, second = Seen(), Seen()
    for origin, number in [(ANN, 1), (BOB, 3), (ANN, 2)]:
        first.add(origin, number)
    for origin, number in [(BOB, 3), (ANN, 2), (ANN, 1)]:
        second.add(origin, number)
    assert first.summary() == second.summary() == ((ANN, 2, ()), (BOB, 3, (1, 2)))
    assert first == second


def test_an_absurd_number_is_blamed_on_whoever_passed_it_on() -> None:
    with pytest.raises(PeerError, match="ann: jumps from message 0 of ann"):
        Seen().add(ANN, GAP_LIMIT + 1)
    with pytest.raises(PeerError, match="bob: jumps from message 0 of ann"):
        Seen().add(ANN, GAP_LIMIT + 1, NodeId("bob"))
