"""Finding who follows a topic: the same answers as looking at every filter, at the price of a walk."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.pubsub.filters import FilterIndex, common, is_filter, matches

SEGMENTS = st.sampled_from(["a", "b", "c"])
TOPICS = st.lists(SEGMENTS, min_size=1, max_size=4).map(".".join)
FILTERS = st.builds(
    lambda front, end: ".".join([*front, *end]),
    st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=3),
    st.sampled_from([[], [">"]]),
) | st.just(">")
HELD = st.lists(st.tuples(st.integers(0, 3), FILTERS), max_size=12)


@given(HELD, HELD, TOPICS)
def test_the_index_finds_exactly_the_filters_that_match(
    added: list[tuple[int, str]], removed: list[tuple[int, str]], topic: str
) -> None:
    index: FilterIndex[int] = FilterIndex()
    for watcher, pattern in added:
        index.add(pattern, watcher)
    for watcher, pattern in removed:
        index.discard(pattern, watcher)
    left = set(added) - set(removed)
    assert sorted(index.matching(topic)) == sorted(pair for pair in left if matches(pair[1], topic))


@given(HELD)
def test_an_index_from_which_everything_was_taken_is_empty_again(held: list[tuple[int, str]]) -> None:
    index: FilterIndex[int] = FilterIndex()
    for watcher, pattern in held:
        index.add(pattern, watcher)
    copy = index.copy()
    for watcher, pattern in held:
        index.discard(pattern, watcher)
    assert index == FilterIndex()
    assert (copy == FilterIndex()) == (not held)


def test_fifty_thousand_filters_are_not_looked_at_one_by_one() -> None:
    index: FilterIndex[int] = FilterIndex()
    for number in range(50_000):
        index.add(f"shop.{number}.*", number)
    assert index.matching("shop.4711.orders") == [(4711, "shop.4711.*")]
    assert len(index._root["shop"]) == 50_000


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("a.>", "a.>", "a.>"),
        (">", "a.*", "a.*"),
        ("a.*", "*.b", "a.b"),
        ("a.>", "*.b.>", "a.b.>"),
        ("a.>", "a.b", "a.b"),
        ("a.b", "a.b", "a.b"),
        ("a.>", "a", None),
        ("a.*", "a.b.c", None),
        ("a.b", "a.c", None),
        ("*.*", ">", "*.*"),
        ("*", "a.>", None),
    ],
)
def test_what_two_filters_have_in_common_is_a_filter(one: str, other: str, both: str | None) -> None:
    assert common(one, other) == common(other, one) == both


def test_a_topic_is_in_what_filters_have_in_common_if_both_take_it_in() -> None:
    segments = ("a", "b", "*", ">")
    names = [".".join(parts) for size in (1, 2, 3) for parts in product(segments, repeat=size)]
    filters = [name for name in names if ">" not in name[:-1]]
    topics = [name for name in names if not is_filter(name)]
    for one, other in product(filters, repeat=2):
        both = common(one, other)
        taken = [topic for topic in topics if matches(one, topic) and matches(other, topic)]
        assert taken == [topic for topic in topics if both is not None and matches(both, topic)], (one, other)
