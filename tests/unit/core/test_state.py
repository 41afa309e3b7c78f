"""State that can be copied, compared, hashed and partly saved."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple

import msgspec
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


class Unordered(Part):
    """Does nothing by the order of a dict or a set."""

    ordered: ClassVar[tuple[str, ...]] = ()


@given(st.dictionaries(keys, scalars, min_size=2))
def test_the_order_of_insertion_does_not_matter_to_a_class_that_says_so(entries: dict[Any, Any]) -> None:
    backwards = dict(reversed(entries.items()))
    assert Part(entries, None) != Part(backwards, None)
    assert Unordered(entries, set(entries)) == Unordered(backwards, set(backwards))


class Calm(NamedTuple):
    level: object


class Angry(NamedTuple):
    level: object


class Red(msgspec.Struct, frozen=True, eq=False):
    """Equal to nothing but itself, as far as its class is asked."""

    level: object


class Blue(msgspec.Struct, frozen=True):
    level: object


@dataclass(frozen=True)
class Partly:
    counts: int
    aside: object = field(default=0, compare=False)


@dataclass(frozen=True)
class Generous:
    level: object

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1


class One(IntEnum):
    ONE = 1


ALIKE = [
    (False, 0), (True, 1), (1, 1.0), (0.0, -0.0), (One.ONE, 1),
    ([], ()), ({}, set()), ([1], deque([1])), ({1}, frozenset({1})), (deque([1]), deque([1], maxlen=3)),
    (defaultdict(int), defaultdict(list)), (defaultdict(int), {}), (Counter(), {}), (OrderedDict(), {}),
    ({1: 0, 2: 0}, {2: 0, 1: 0}), ({0, 8}, {8, 0}), ({1: 0}, {True: 0}), ({1}, {True}),
    (Calm(1), Angry(1)), (Calm(1), (1,)), (Calm(1), Calm(True)), (Blue(1), Blue(True)), (Red(1), Red(2)),
    (Partly(1, 2), Partly(1, 3)), (Generous(1), Generous(2)), (Part(1, 2), Unordered(1, 2)), (Part, Unordered),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), ALIKE, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    "within",
    [lambda value: value, lambda value: [value], lambda value: {1: [value]}],
    ids=["bare", "in a list", "in a dict"],
)
def test_what_code_can_tell_apart_is_not_equal(one: object, other: object, within: Callable[[object], object]) -> None:
    """An explorer takes equal states for one and the same, and never looks at what the second would have done."""
    assert Part(within(one), None) != Part(within(other), None)
    assert Part(within(one), None) == Part(within(one), None).copy()


@pytest.mark.parametrize(("one", "other"), [(Red(1), Red(1)), (Red((1, 2)), Red((1, 2))), (math.nan, float("nan"))])
def test_what_no_code_can_tell_apart_but_by_its_place_in_memory_is_equal(one: object, other: object) -> None:
    assert Part(one, (one,)) == Part(other, (other,))


class Named(int):
    name: str


class Heap(list[int]):
    """Copies would be plain lists."""


def _named() -> Named:
    value = Named(1)
    value.name = "one"
    return value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Red([]), r"^Red\.level: holds a list"), (Partly(1, []), r"^Partly\.aside: holds a list"),
        (Generous([]), r"^Generous\.level: holds a list"), (([],), r"^Part\.kept: holds a list"),
        (_named(), r"^Part\.kept: holds a Named"), (Heap(), r"^Part\.kept: holds a Heap"),
    ],
)  # fmt: skip
def test_what_copies_would_share_or_lose_is_refused_whatever_its_class_compares(value: object, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Part(value, None).frozen()


def _endless() -> list[object]:
    value: list[object] = []
    value.append(value)
    return value


def _deep() -> tuple[object, ...]:
    value: tuple[object, ...] = ()
    for _ in range(50_000):
        value = (value,)
    return value


@pytest.mark.parametrize("value", [_endless(), _deep()], ids=["endless", "deep"])
def test_a_state_that_holds_itself_or_has_no_bottom_is_refused_by_its_name(value: object) -> None:
    with pytest.raises(UsageError, match=r"^Part\.kept: holds itself, or parts within parts so deep"):
        Part(value, None).frozen()


def test_a_state_that_is_a_part_of_itself_is_refused_by_its_name() -> None:
    part = Part(1, None)
    part.forgotten = part
    for ask in (part.frozen, part.copy):
        with pytest.raises(UsageError, match=r"^Part\.forgotten: holds itself"):
            ask()


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
