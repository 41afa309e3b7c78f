"""Edge clocks: what is known, what is new, and what has to travel."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.core.chance import mix, salt
from ordercast.protocols.daisy_chain.clocks import (
    changes,
    first_edge,
    grew_by_one_message,
    merged,
    raised,
    row,
    with_changes,
    zeros,
)
from ordercast.protocols.daisy_chain.packets import CheckedHop, ClockChannels
from tests.support.multicast import Servers

CLOCKS = st.tuples(*[st.integers(0, 3)] * 6)


def test_the_counters_of_a_head_lie_side_by_side() -> None:
    assert [first_edge(head) for head in range(5)] == [0, 0, 1, 3, 6]
    clock = raised(raised(zeros(4), 0, [2, 3]), 2, [3])
    assert [row(clock, head) for head in range(4)] == [(), (0,), (1, 0), (1, 0, 1)]


@given(CLOCKS, CLOCKS)
def test_a_merged_clock_knows_what_either_knew_and_nothing_else(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    assert merged(one, other) == tuple(max(a, b) for a, b in zip(one, other, strict=True))


@given(CLOCKS, CLOCKS)
def test_changes_rebuild_the_clock(reference: tuple[int, ...], clock: tuple[int, ...]) -> None:
    changed = changes(reference, clock)
    assert with_changes(reference, changed) == clock
    assert len(changed) == 2 * sum(a != b for a, b in zip(reference, clock, strict=True))


@pytest.mark.parametrize("nonsense", [(1,), (6, 1), (-1, 1), (0, 1, 2)])
def test_changes_that_cannot_be_are_noticed(nonsense: tuple[int, ...]) -> None:
    assert with_changes(zeros(4), nonsense) is None


@pytest.mark.parametrize(
    ("edges", "explained"),
    [
        ([(0, 2), (0, 3)], True),
        ([(0, 1), (0, 2), (0, 3)], True),  # Head 1 is not above 1.
        ([(0, 2)], False),
        ([(0, 2), (0, 3), (0, 3)], False),
        ([(0, 2), (0, 3), (1, 3)], False),
        ([], False),
    ],
)
def test_only_the_messages_own_edges_explain_what_is_new(edges: list[tuple[int, int]], explained: bool) -> None:
    after = zeros(4)
    for tail, head in edges:
        after = raised(after, tail, [head])
    assert grew_by_one_message(zeros(4), after, (0, 1, 2, 3), 1) is explained


def test_a_packet_says_nothing_about_heads_below_its_receiver() -> None:
    clock = raised(zeros(4), 0, [1, 2, 3])
    sender, receiver = _ends(reduced=False)
    assert sender.encode(clock, 2) == (1, 0, 1, 0, 0)
    assert receiver.decode((1, 0, 1, 0, 0), 1, whole=True) == raised(zeros(4), 0, [2, 3])


def test_decreases_travel_too() -> None:
    """T-RV-1: the clock of a visitor is not merged into the server it passes."""
    servers = Servers("daisy-chain", 4, {"a": "14", "b": "23"}, rule="strict").run("c:a 1>2 c:b")
    a_from_1, b_from_2 = first_edge(3), first_edge(2) + 1
    first, second = servers.channels["2", "3"]
    assert isinstance(first, CheckedHop)
    assert isinstance(second, CheckedHop)
    assert first.clock == (a_from_1, 1)
    assert second.clock == (b_from_2, 1, a_from_1, 0)


def _ends(*, reduced: bool) -> tuple[ClockChannels, ClockChannels]:
    """Both ends of the channel from server 1 to server 2 of four."""
    return (
        ClockChannels(1, 4, reduced=reduced, keeps_all_heads=False),
        ClockChannels(2, 4, reduced=reduced, keeps_all_heads=False),
    )


@given(st.lists(CLOCKS, max_size=8))
def test_reduced_clocks_are_exact(clocks: list[tuple[int, ...]]) -> None:
    """T-RV-2."""
    sender, receiver = _ends(reduced=True)
    for clock in clocks:
        assert receiver.decode(sender.encode(clock, 2), 1, whole=False) == (0, *clock[1:])


def _random_run(rule: str, seed: int, *, reduced: bool) -> Iterator[object]:
    """A random schedule, step by step: what was handled and what was delivered because of it."""
    dice = salt(seed, "schedule")
    sets = ["134", "24", "1245", "35", "15", "2", "2345"]
    messages = {f"m{i}": sets[mix(dice, i, 1) % len(sets)] for i in range(12)}
    servers = Servers("daisy-chain", 5, messages, rule=rule, reduced=reduced)
    waiting = list(messages)
    step = 0
    while True:
        step += 1
        busy = sorted(pair for pair, channel in servers.channels.items() if channel)
        if waiting and (not busy or mix(dice, step, 2) % 3 == 0):
            servers.enter(waiting.pop(mix(dice, step, 3) % len(waiting)))
        elif busy:
            servers.carry(*busy[mix(dice, step, 4) % len(busy)])
        else:
            break
        yield busy, servers.all_orders()
    assert not servers.is_blocked()
    assert not servers.has_cycle()


@pytest.mark.parametrize("rule", ["strict", "lite", "cover"])
@pytest.mark.parametrize("seed", range(20))
def test_runs_with_and_without_reduced_clocks_are_the_same(rule: str, seed: int) -> None:
    """T-RV-2."""
    assert list(_random_run(rule, seed, reduced=True)) == list(_random_run(rule, seed, reduced=False))
