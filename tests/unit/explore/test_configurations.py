"""Scopes hold every configuration once, and bad ones are refused by name."""

from __future__ import annotations

import pytest

from ordercast.core.errors import UsageError
from ordercast.explore.scope.configurations import Configuration, Scope, check_scope, parse_destinations


@pytest.mark.parametrize(
    ("nodes", "messages", "sizes_from", "count"),
    [(3, 2, 1, 28), (3, 3, 2, 20), (4, 3, 2, 286), (4, 3, 1, 680), (4, 4, 2, 1001), (5, 3, 2, 3276)],
)
def test_a_scope_has_as_many_configurations_as_there_are_multisets(
    nodes: int, messages: int, sizes_from: int, count: int
) -> None:
    scope = Scope(nodes, messages, sizes_from)

    listed = [configuration.destinations for configuration in scope.configurations(messages)]

    assert len(listed) == scope.count(messages) == count
    assert len({tuple(sorted(destinations)) for destinations in listed}) == count


@pytest.mark.parametrize("messages", [1, 2, 3])
@pytest.mark.parametrize("total", [2, 4, 5, 8, 20])
@pytest.mark.parametrize("sizes_from", [1, 2])
def test_a_bound_on_all_destinations_leaves_out_the_larger_configurations(
    messages: int, total: int, sizes_from: int
) -> None:
    scope = Scope(4, messages, sizes_from, total_destinations=total)
    everything = Scope(4, messages, sizes_from).configurations(messages)

    expected = [c.destinations for c in everything if sum(map(len, c.destinations)) <= total]

    assert [c.destinations for c in scope.configurations(messages)] == expected
    assert scope.count(messages) == len(expected)


def test_broadcast_scopes_choose_publishers_and_address_everyone() -> None:
    configurations = list(Scope(2, 2, broadcast=True).configurations(2))

    assert [c.publishers for c in configurations] == [(0, 0), (0, 1), (1, 1)]
    assert all(c.destinations == ((0, 1), (0, 1)) for c in configurations)
    assert Scope(2, 2, broadcast=True).count(2) == 3


def test_smaller_sizes_come_first() -> None:
    assert list(Scope(3, 3).sizes()) == [1, 2, 3]


def test_a_configuration_is_written_with_the_names_of_the_schedule() -> None:
    assert str(Configuration(3, ((0, 2), (1, 2)))) == "m1{n0,n2} m2{n1,n2}"
    assert str(Configuration(2, ((0, 1), (0, 1)), (1, 0))) == "m1@n1 m2@n0"


def test_twins_are_the_messages_with_the_same_destinations() -> None:
    assert Configuration(3, ((0, 2), (1, 2), (0, 2))).twins(2) == [0, 2]


@pytest.mark.parametrize(
    ("scope", "field"),
    [
        (Scope(0, 2), "nodes"),
        (Scope(3, 0), "messages"),
        (Scope(3, 2, 4), "sizes_from"),
        (Scope(3, 2, 2, total_destinations=1), "total_destinations"),
        (Scope(40, 2), "nodes: 40 nodes have .* destination sets"),
    ],
)
def test_a_scope_with_nothing_in_it_is_refused(scope: Scope, field: str) -> None:
    with pytest.raises(UsageError, match=field):
        check_scope(scope)


def test_destinations_are_read_with_or_without_the_letter_of_the_node() -> None:
    assert parse_destinations("2,0; n1,n2", 3) == ((0, 2), (1, 2))


@pytest.mark.parametrize("text", ["0,3", "0,x", "", "0,0", "0;;1", "²"])
def test_destinations_that_are_no_nodes_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="destinations"):
        parse_destinations(text, 3)
