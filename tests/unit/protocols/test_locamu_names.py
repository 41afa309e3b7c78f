"""Names and acknowledgements in few bytes, and names that are passed on together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.core.errors import PeerError
from ordercast.protocols.locamu.packets import Ack, Alias, Data, Plain, flat_names, read_names
from ordercast.protocols.locamu.processed import MOST_BEYOND, in_runs, of_runs
from ordercast.protocols.locamu.waiting import WaitingCopies
from tests.support.locamu_lab import TreeGroup, line

_NUMBERS = st.integers(0, 1 << 40)


@st.composite
def _messages(draw: st.DrawFn) -> list[list[Plain]]:
    """Messages with vectors of a few kinds, each kind once."""
    kinds = draw(st.lists(st.tuples(_NUMBERS, st.lists(_NUMBERS, max_size=4).map(tuple)), unique=True, max_size=4))
    messages: list[list[Plain]] = []
    for _ in range(draw(st.integers(0, 6))):
        chosen = draw(st.lists(st.sampled_from(kinds), unique=True)) if kinds else []
        messages.append([(flagged, nodes, tuple(draw(_NUMBERS) for _ in nodes)) for flagged, nodes in chosen])
    return messages


@given(_messages())
def test_names_are_read_as_they_were_said(messages: list[list[Plain]]) -> None:
    """LCM-R5: names alone deliver nothing."""
    assert read_names(flat_names(messages)) == messages


def test_names_of_messages_in_a_row_take_a_few_bytes_each() -> None:
    """LCM-R5: the numbers of a kind rise together."""
    nodes = tuple(range(6))
    messages: list[list[Plain]] = [
        [(2 * forwarder, nodes, tuple(100 * node + i for node in nodes)) for forwarder in (7, 8, 9)] for i in range(50)
    ]
    assert len(flat_names(messages)) == 1 + 3 * (2 + 6) + 50 + 3 * (1 + 6) + 49 * 3 * 2


@given(st.integers(0, 1 << 40), st.sets(st.integers(1, 60)))
def test_acknowledged_numbers_are_read_as_they_were_said(prefix: int, beyond: set[int]) -> None:
    """LCM-S1: what is processed is said per forwarder."""
    numbers = [prefix + 1 + number for number in sorted(beyond)]
    assert of_runs(prefix, in_runs(prefix, numbers)) == numbers


def test_a_run_of_numbers_takes_two() -> None:
    """LCM-S1: what is processed is said per forwarder."""
    assert in_runs(10, [13, 14, 15, 20]) == [2, 3, 4, 1]


def test_who_acknowledges_the_impossible_takes_no_memory_with_it() -> None:
    """LCM-S1, LCM-S4: and more than there can be is not said in the first place."""
    assert len(of_runs(0, (1, 1 << 60, 1, 1 << 60))) == MOST_BEYOND
    assert of_runs(0, in_runs(0, range(2, 2 * MOST_BEYOND))) == list(range(2, MOST_BEYOND + 2))


def _names_late(group: TreeGroup, messages: int) -> None:
    """1 was skipped, and names what it gets afterwards."""
    group.suspect("1", by="0")
    sent = [group.publish("0", "123") for _ in range(messages)]
    for message in sent:
        group.carry(message, to="2", by="0")
        group.carry(message, to="3", by="2")
    group.trust("1", by="0")
    for message in sent:
        group.forward(message, "012")


def test_names_that_come_late_are_passed_on_together() -> None:
    """LCM-M5, LCM-R5: after `push_ms`, whatever has come by then, in one packet."""
    group = TreeGroup(line(4), "123", push_ms=1.0)
    _names_late(group, 3)
    assert not [p for _, _, p in group.in_flight if isinstance(p, Alias)]
    group.fire("2", "push")
    ((_, to, alias),) = [flying for flying in group.in_flight if isinstance(flying[2], Alias)]
    assert to == "3"
    assert len(read_names(alias.names)) == 3
    group.finish()
    assert group.processed("3", "1") == (3, set())


def test_names_are_not_passed_on_to_who_has_acknowledged_them_by_then() -> None:
    """LCM-M5: a duplicate only adds names."""
    group = TreeGroup(line(4), "123", push_ms=1.0)
    _names_late(group, 1)
    group.hand(Alias(flat_names([_names_at(group, "2")])), to="3", by="2")
    group.hand(Ack(group.machine("3").processed.columns()), to="2", by="3")
    group.in_flight.clear()
    group.fire("2", "push")
    assert not [p for _, _, p in group.in_flight if isinstance(p, Alias)]


def _names_at(group: TreeGroup, node: str) -> list[Plain]:
    (entry,) = group.machine(node).store.entries.values()
    return [(2 * shape.forwarder + late, shape.nodes, numbers) for shape, numbers, late in entry.vectors]


def test_a_message_that_comes_late_is_not_sent_to_who_is_known_to_have_it() -> None:
    """LCM-G6: a node that was away gets it again; its neighbours, who have said that they have it, get its names."""
    group = TreeGroup(line(4), "123")
    group.suspect("1", by="0")
    message = group.publish("0", "123")
    group.carry(message, to="2", by="0")
    group.hand(Ack(group.machine("2").processed.columns()), to="1", by="2")
    group.trust("1", by="0")
    group.carry(message, to="1", by="0")
    sent = [p for by, to, p in group.in_flight if (by, to) == ("1", "2") and not isinstance(p, Ack)]
    assert [type(packet) for packet in sent] == [Alias]
    assert not [p for by, _, p in group.in_flight if by == "1" and isinstance(p, Data)]
    group.finish()
    assert all(group.order[node] == [message] for node in "0123")
    assert group.processed("2", "1") == (1, set())


def test_names_that_come_later_still_are_passed_on_too() -> None:
    """LCM-M5: the timer is set anew."""
    group = TreeGroup(line(4), "123", push_ms=1.0)
    for turn in (1, 2):
        _names_late(group, 1)
        group.fire("2", "push")
        assert len([p for _, to, p in group.in_flight if to == "3" and isinstance(p, Alias)]) == 1
        group.settle()
        assert group.processed("3", "1") == (turn, set())


def test_nothing_is_pushed_to_who_is_suspected_by_then() -> None:
    """LCM-M5, LCM-R3: it gets it when it is trusted again."""
    group = TreeGroup(line(4), "123", push_ms=1.0)
    _names_late(group, 1)
    group.hand(Ack(group.machine("3").processed.columns()), to="2", by="3")
    group.suspect("3", by="2")
    group.in_flight.clear()
    group.fire("2", "push")
    assert not group.in_flight
    group.trust("3", by="2")
    assert [type(p) for by, to, p in group.in_flight if (by, to) == ("2", "3")] == [Ack, Alias]


def test_names_help_that_belong_to_what_the_names_before_them_release() -> None:
    """LCM-R5, LCM-M6: 3 holds the second message back for want of 1's name of the first; both names come together."""
    group = TreeGroup(line(4), "0123", push_ms=1.0)
    group.suspect("1", by="0")
    first = group.publish("0", "0123")
    group.forward(first, "023")
    group.trust("1", by="0")
    group.carry(first, to="1", by="0")
    between = group.publish("1", "0123")
    group.carry(between, to="0", by="1")
    group.carry(first, to="2", by="1")
    group.forward(between, "123")
    group.suspect("1", by="0")
    second = group.publish("0", "0123")
    group.forward(second, "023")
    assert group.held("3") == [between, second]
    group.trust("1", by="0")
    group.carry(first, to="1", by="0")
    group.forward(second, "012")
    group.fire("2", "push")
    group.carry_all()
    assert group.processed("3", "1") == (3, set())
    assert group.order["3"] == [first, between, second]


def test_who_acknowledges_a_stream_twice_in_a_packet_is_named() -> None:
    group = TreeGroup(line(2), "01")
    with pytest.raises(PeerError, match="0: sent an acknowledgement that makes no sense"):
        group.hand(Ack(((0, 1), (0, 2))), to="1", by="0")


def test_acknowledgements_of_the_impossible_do_not_add_up() -> None:
    """LCM-S4: numbers that linked nodes have acknowledged."""
    waiting = WaitingCopies()
    for i in range(4):
        waiting.acknowledge(1, [(0, 0, 1 + i * MOST_BEYOND, MOST_BEYOND)])
    assert sum(map(len, waiting.beyond.values())) == MOST_BEYOND
