"""Trees, groups, publications and toggles are read as people write them."""

from __future__ import annotations

import pytest

from ordercast.core.errors import UsageError
from ordercast.explore import PlannedPublication, Toggle
from ordercast.explore.scope.configurations import Scope
from ordercast.explore.scope.faults import parse_toggle
from ordercast.explore.scope.publications import (
    configuration_of,
    nodes_of,
    parse_edges,
    parse_groups,
    parse_publication,
    publications_of,
)


def test_edges_and_groups() -> None:
    assert parse_edges("0-1, n1-n2") == ((0, 1), (1, 2))
    assert nodes_of(parse_edges("0-1,1-2,1-3")) == 4
    assert parse_groups("a: 2,1 ; b:n0", 3) == {"a": (1, 2), "b": (0,)}


@pytest.mark.parametrize("publication", [PlannedPublication(0, "a"), PlannedPublication(12, "a.b-c", (0, 2))])
def test_a_publication_is_read_as_it_was_written(publication: PlannedPublication) -> None:
    assert parse_publication(str(publication), 13) == publication


@pytest.mark.parametrize(
    ("text", "toggle"),
    [
        ("0:1", Toggle(0, (1,))),
        ("n0 : n1, n2", Toggle(0, (1, 2))),
        ("2:1 stays", Toggle(2, (1,), stays=True)),
        ("2:1,0,1 stays", Toggle(2, (1, 0), stays=True)),
    ],
)
def test_a_toggle(text: str, toggle: Toggle) -> None:
    assert parse_toggle(text, 3) == toggle


@pytest.mark.parametrize("text", ["", "0", "0:", "0:7", "7:0", "0:1 forever", "0;1"])
def test_what_is_no_toggle_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="toggles"):
        parse_toggle(text, 3)


def test_a_configuration_remembers_its_publications() -> None:
    publications = [PlannedPublication(0, "a"), PlannedPublication(1, "b", (0,))]

    configuration = configuration_of(3, {"a": (1, 2), "b": (2,)}, publications)

    assert publications_of(configuration) == publications
    assert configuration.due == [frozenset(), frozenset({0}), frozenset({0, 1})]
    assert str(configuration) == "m1@n0>a m2@n1>b"


def test_a_scope_of_groups_has_every_order_at_a_node_and_none_between_nodes() -> None:
    scope = Scope(2, 2, broadcast=True, groups={"a": (0,), "b": (1,)})

    listed = [str(configuration) for configuration in scope.configurations(2)]

    assert len(listed) == len(set(listed)) == scope.count(2) == 3 * 4
    assert {"m1@n0>a m2@n0>b", "m1@n0>b m2@n0>a", "m1@n0>b m2@n1>a"} < set(listed)
