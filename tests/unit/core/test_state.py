"""State that can be copied, compared, hashed and partly saved."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.core.errors import UsageError
from ordercast.core.state import State

scalars = st.one_of(st.integers(), st.text(max_size=5), st.booleans(), st.none(), st.binary(max_size=5))
keys = st.one_of(st.integers(), st.text(max_size=5))
contents = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(keys, inner, max_size=4),
        st.sets(scalars, max_size=4),
        st.lists(inner, max_size=4).map(deque),
    ),
    max_leaves=12,
)


class Part(State):
    durable = ("kept",)

    def __init__(self, kept: Any, forgotten: Any) -> None:
        self.kept = kept
        self.forgotten = forgotten


class Whole(State):
    constant = ("name",)
    durable = ("kept", "part")

    def __init__(self, name: str, kept: Any, forgotten: Any, part: Part) -> None:
        self.name = name
        self.kept = kept
        self.forgotten = forgotten
        self.part = part


wholes = st.builds(Whole, st.just("n0"), contents, contents, st.builds(Part, contents, contents))


def _spoil(value: Any) -> None:
    """Change everything that can be changed, as deep as it goes."""
    if isinstance(value, State):
        for name, item in list(vars(value).items()):
            _spoil(item)
            if name != "name":
                setattr(value, name, "spoilt")
    elif isinstance(value, dict):
        for item in value.values():
            _spoil(item)
        value["spoilt"] = "spoilt"
    elif isinstance(value, list | deque):
        for item in value:
            _spoil(item)
        value.append("spoilt")
    elif isinstance(value, set):
        value.add("spoilt")


@given(wholes)
def test_a_copy_is_equal_and_has_the_same_hash(whole: Whole) -> None:
    assert whole.copy() == whole
    assert hash(whole.copy()) == hash(whole)


@given(wholes)
def test_changing_the_original_never_shows_in_the_copy(whole: Whole) -> None:
    clone = whole.copy()
    before = clone.frozen()
    _spoil(whole)
    assert clone.frozen() == before
    assert clone != whole


@given(wholes)
def test_exactly_what_is_durable_comes_back(whole: Whole) -> None:
    saved = whole.save()
    fresh = Whole("n0", "new", "new", Part("new", "new"))
    fresh.restore(saved)
    assert fresh == Whole("n0", whole.kept, "new", Part(whole.part.kept, "new"))


@given(wholes)
def test_what_was_saved_is_independent_of_the_state_that_saved_it_and_of_the_one_it_restored(whole: Whole) -> None:
    expected = Whole("n0", whole.copy().kept, "new", Part(whole.copy().part.kept, "new"))
    saved = whole.save()
    _spoil(whole)
    first = Whole("n0", "new", "new", Part("new", "new"))
    first.restore(saved)
    _spoil(first)
    second = Whole("n0", "new", "new", Part("new", "new"))
    second.restore(saved)
    assert second == expected


@given(st.dictionaries(keys, scalars, min_size=2))
def test_the_order_of_insertion_does_not_matter(entries: dict[Any, Any]) -> None:
    backwards = dict(reversed(entries.items()))
    assert Part(entries, set(entries)) == Part(backwards, set(backwards))


def test_the_order_of_lists_does_matter() -> None:
    assert Part([1, 2], None) != Part([2, 1], None)


def test_different_contents_are_different_states() -> None:
    assert Part({"a": 1}, None) != Part({"a": 2}, None)
    assert Part(1, None) != Whole("n0", 1, None, Part(1, None))


def test_constants_are_shared_and_not_compared() -> None:
    assert Whole("n0", 1, 2, Part(3, 4)) == Whole("n9", 1, 2, Part(3, 4))


def test_a_copied_defaultdict_still_has_its_default() -> None:
    counts: defaultdict[str, list[int]] = defaultdict(list)
    counts["a"].append(1)
    clone = Part(counts, None).copy()
    clone.kept["b"].append(2)
    clone.kept["a"].append(3)
    assert counts == {"a": [1]}


def test_a_bounded_deque_stays_bounded() -> None:
    assert Part(deque([1, 2], maxlen=2), None).copy().kept.maxlen == 2


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^Part\.kept: holds a bytearray, which copies would share"):
        Part(bytearray(b"x"), None).frozen()


class Linked(State):
    """Two parts that know each other, a dict that both use, a cache, and a dict whose order counts."""

    constant: ClassVar[tuple[str, ...]] = ("around", "also_shared")
    derived: ClassVar[tuple[str, ...]] = ("cache",)
    ordered: ClassVar[tuple[str, ...]] = ("queue",)

    def __init__(self, around: str) -> None:
        self.around = around
        self.shared: dict[str, list[int]] = {}
        self.also_shared = self.shared
        self.part = Part({}, None)
        self.cache = 0
        self.queue: dict[str, int] = {}


def test_a_machine_becomes_another_without_losing_what_its_parts_share() -> None:
    original, other = Linked("here"), Linked("there")
    original.shared["a"] = [1]
    original.cache = 5
    part = other.part

    other.become(original)

    assert other == original
    assert other.around == "there"
    assert other.also_shared is other.shared
    assert other.part is part
    assert other.cache == 5
    other.shared["a"].append(2)
    assert original.shared["a"] == [1]


def test_what_is_derived_is_not_compared_and_the_order_of_a_dict_only_where_it_counts() -> None:
    one, other = Linked(""), Linked("")
    one.cache = 1
    one.shared = {"a": [], "b": []}
    other.shared = {"b": [], "a": []}
    assert one == other
    one.queue, other.queue = {"a": 1, "b": 2}, {"b": 2, "a": 1}
    assert one != other
