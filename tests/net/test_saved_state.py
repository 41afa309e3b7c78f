"""What a machine saves comes back as it was, and bytes that say anything else build nothing."""

from __future__ import annotations

import pickle
import sys
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.machine import Machine
from ordercast.core.messages import Guarantee, Message
from ordercast.core.state import State
from ordercast.net.nodes.saved_state import pack, restore
from ordercast.protocols.tree.causal_barriers_lists import Header

NODES = st.sampled_from([NodeId("a"), NodeId("b"), NodeId("ü")])
MESSAGES = st.builds(
    Message, NODES.map(Origin), st.integers(1, 99), st.just(Topic("t")), st.binary(max_size=9),
    st.sampled_from(Guarantee), st.lists(NODES).map(tuple),
)  # fmt: skip


class Part(State):
    def __init__(self, held: Any = None) -> None:
        self.held = held


class Odd(State):
    """It has an attribute only at times, and at times none at all."""

    def __init__(self, names: str = "") -> None:
        for name in names:
            setattr(self, name, 1)


class Empty(msgspec.Struct, frozen=True):
    pass


class Keeper(Machine):
    """Keeps one value of any kind."""

    durable: ClassVar[tuple[str, ...]] = ("kept", "part")

    def __init__(self, kept: Any = None) -> None:
        self.kept = kept
        self.part = Inner()


class Inner(State):
    durable: ClassVar[tuple[str, ...]] = ("count",)

    def __init__(self) -> None:
        self.count = 0


def there_and_back(value: Any) -> Any:
    machine = Keeper()
    restore(machine, pack(Keeper(value)))
    return machine.kept


def alike(one: Any, other: Any) -> bool:
    """Equal, and of the same kinds all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return alike(list(one.items()), list(other.items()))
    if isinstance(one, list | tuple | deque):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, set | frozenset):
        return one == other and Counter(map(type, one)) == Counter(map(type, other))
    if isinstance(one, msgspec.Struct):
        return alike(msgspec.structs.astuple(one), msgspec.structs.astuple(other))
    if isinstance(one, State):
        return alike(vars(one), vars(other))
    return bool(one == other)


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=4), st.binary(max_size=4)
)
LEAVES = SCALARS | MESSAGES | st.sampled_from(Guarantee) | st.builds(Empty) | st.just(1 << 200) | st.just(-(1 << 64))
KEYS = st.recursive(SCALARS | MESSAGES, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4)


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, max_size=4)
    return st.one_of(
        lists, lists.map(tuple), st.sets(KEYS, max_size=3), st.frozensets(KEYS, max_size=3),
        st.builds(deque, lists, st.none() | st.integers(4, 9)), st.dictionaries(KEYS, inner, max_size=4),
        st.builds(Part, inner), st.builds(Odd, st.sampled_from(["", "a", "ab"])),
        st.lists(st.builds(Header, st.just({1: ((2, 1 << 70),)})), max_size=2),
    )  # fmt: skip


@settings(deadline=None)
@given(st.recursive(LEAVES, _nested, max_leaves=25))
def test_whatever_a_state_is_made_of_comes_back_as_it_was(value: Any) -> None:
    assert alike(there_and_back([value]), [value])


def test_a_bounded_queue_stays_bounded() -> None:
    assert there_and_back([deque([1], 3), deque([2])])[0].maxlen == 3


def test_messages_that_are_shared_are_written_once_and_shared_again() -> None:
    message = Message(Origin("a"), 1, Topic("t"), bytes(1000))
    kept = there_and_back({"held": [message, message], "sent": {1: message}})
    assert kept["held"][0] is kept["held"][1] is kept["sent"][1]
    assert len(pack(Keeper([message] * 50))) < 1500


def test_what_is_no_part_of_a_machine_is_not_written() -> None:
    for value in (Path("x"), Counter("a"), object(), print, {1: [sys]}):
        with pytest.raises(UsageError, match="part of a machine"):
            pack(Keeper(value))


def packed(names: list[str], *column: Any) -> bytes:
    return msgspec.msgpack.encode([names, column])


def kept(*column: Any, names: tuple[str, ...] = ()) -> bytes:
    """Bytes that say that a Keeper has kept what this column has."""
    inner = [6, [1], [0, ["count"]], [0, [5]]]
    return packed(list(names), 6, [2], [0, ["kept", "part"]], [12, [0, 1], list(column), inner])


def test_the_bytes_of_these_tests_are_those_that_are_written() -> None:
    machine = Keeper()
    restore(machine, kept(0, ["value"]))
    assert (machine.kept, machine.part.count) == ("value", 5)
    machine = Keeper()
    restore(machine, kept(9, 0, ["x"], [0, [7]], names=(f"{__name__}.Odd",)))
    assert vars(machine.kept) == {"x": 7}


EVIL = [
    "os.system", "ctypes.CDLL", "builtins.eval", "builtins.__import__", "subprocess.Popen", "pathlib.Path",
    "ordercast.net.nodes.replay.InputReplay", "ordercast.trace.journal.Journal", "ordercast.core.state.os.system",
    "ordercast.protocols.lookup", "ordercast.core.messages.msgspec.msgpack.Decoder", "tests.support.loop.run_async",
    "msgspec.Struct", "enum.Enum", "tests.no_such_module.Thing", "", "..", "a" * 10_000,
]  # fmt: skip


@pytest.mark.parametrize("name", EVIL, ids=range(len(EVIL)))
@pytest.mark.parametrize("code", [8, 9, 10, 11])
def test_a_name_of_anything_else_builds_nothing_and_imports_nothing(name: str, code: int) -> None:
    loaded = set(sys.modules)
    with pytest.raises(UsageError, match="the saved state is none that this version reads") as told:
        restore(Keeper(), kept(code, 0, [0], [0, ["x"]], names=(name,)))
    assert "\n" not in str(told.value)
    assert set(sys.modules) == loaded


class Evil:
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return sys.exit, ()


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps({"kept": Evil(), "part": {}}),
        b"",
        b"\x90",
        b"\x91" * 100_000,
        b"\xd9\x02\xff\xff",
        packed([], 0, []),
        packed([], 0, [1, 2]),
        packed([], 99, []),
        packed([], 1, [-1, 2], [0, [1]]),
        packed([], 6, [1], [0, ["kept"]], [0, [1]]),
        kept(1, [5], [0, [1]]),
        kept(6, [1], [1, [0], [0, []]], [0, [1]]),
        kept(7, [1]),
        kept(10, 0, [0], [b"\xff"], names=("ordercast.protocols.tree.causal_barriers_lists.Header",)),
        kept(9, 0, [0], [0, ["x"]], names=("ordercast.core.messages.Message",)),
        kept(8, 0, [7], [0, ["x"]], names=("ordercast.core.messages.Message",)),
        kept(11, 0, [77], names=("ordercast.core.messages.Guarantee",)),
        kept(10, 0, [0], [0, [1]], names=("ordercast.core.state.Value",)),
        kept(12, [0, 0], [0, [1]]),
        kept(5, [1], [0, [1]], ["x"]),
    ],
    ids=range(20),
)
def test_bytes_that_make_no_sense_are_refused_in_one_line(data: bytes) -> None:
    with pytest.raises(UsageError, match="the saved state is none that this version reads") as told:
        restore(Keeper(), data)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("part", [7, "text", [1], {"count": "many"}, {"other": 1}])
def test_an_attribute_of_another_kind_is_refused(part: Any) -> None:
    machine = Keeper()
    saved = Keeper([1])
    saved.part = part
    with pytest.raises(UsageError, match="the saved state is none that this version reads"):
        restore(machine, pack(saved))


def _restored(data: bytes) -> None:
    """Restored or refused: anything else that is raised is a fault."""
    try:
        restore(Keeper(), data)
    except UsageError as error:
        assert "\n" not in str(error)  # noqa: PT017


GOOD = pack(Keeper({NodeId("a"): deque([Message(Origin("a"), 1, Topic("t"), b"x"), None]), 2: {Part((1, 2)), 1 << 99}}))


@settings(deadline=None)
@given(st.data())
def test_any_change_of_good_bytes_is_restored_or_refused(data: st.DataObject) -> None:
    changed = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(GOOD) - 1))] = data.draw(st.integers(0, 255))
    _restored(bytes(changed))


NONSENSE = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 14) | st.binary(max_size=3) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=5),
    max_leaves=30,
)
KINDS = [
    "ordercast.core.messages.Message", "ordercast.core.messages.Guarantee", f"{__name__}.Part", f"{__name__}.Keeper",
    "ordercast.protocols.tree.causal_barriers_lists.Header", "ordercast.protocols.tree.cbcast_clocks.Clock",
    "ordercast.protocols.tree.cbcast_clocks.Difference",
]  # fmt: skip


@settings(deadline=None)
@given(st.lists(NONSENSE, min_size=1, max_size=5))
def test_any_nonsense_is_restored_or_refused(column: list[Any]) -> None:
    _restored(kept(*column, names=tuple(KINDS)))
