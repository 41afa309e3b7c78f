"""Known counts of all interleavings, every known fault found, and the corrected protocols cleared in small scopes.

The counts and faults are those of an independent exploration with its own machines; see docs/explorer.md.
"""

from __future__ import annotations

from typing import Any

import pytest

from ordercast.core.errors import UsageError
from ordercast.core.registry import ProtocolInfo
from ordercast.explore import explore
from tests.unit.explore.broken_chains import CROSSED, LOG_LESS, SAME_DESTINATIONS, STALE

UNWATCHED = {"check_invariants": False}
CORRECT = [
    ("delporte-fauconnier", {"delivery": "handle"}),
    ("delporte-fauconnier", {"delivery": "end"}),
    ("daisy-chain", {"rule": "strict"}),
    ("daisy-chain", {"rule": "lite"}),
    ("daisy-chain", {"rule": "lite", "reduced": False}),
    ("daisy-chain", {"rule": "cover"}),
]


@pytest.mark.parametrize(("protocol", "options"), CORRECT)
def test_three_messages_on_three_nodes_have_120_outcomes(protocol: str, options: dict[str, Any]) -> None:
    found = explore(protocol, nodes=3, messages=3, options=options)

    assert found.verdict == "holds"
    assert (found.sizes[-1].configurations, found.sizes[-1].outcomes) == (20, 120)


@pytest.mark.parametrize(("protocol", "options"), [("skeen", {}), *CORRECT])
def test_no_admissible_order_is_excluded(protocol: str, options: dict[str, Any]) -> None:
    found = explore(protocol, nodes=3, messages=2, sizes_from=1, total_destinations=5, options=options)

    assert found.verdict == "holds"
    assert (found.sizes[-1].configurations, found.sizes[-1].outcomes) == (27, 48)


def test_four_nodes_and_three_messages_have_1638_outcomes() -> None:
    found = explore("delporte-fauconnier", nodes=4, messages=3)

    assert found.verdict == "holds"
    assert (found.sizes[-1].configurations, found.sizes[-1].outcomes) == (286, 1638)


@pytest.mark.parametrize(("protocol", "states"), [("delporte-fauconnier", 400), ("skeen", 30872)])
def test_two_messages_on_three_nodes_have_the_known_number_of_states(protocol: str, states: int) -> None:
    size = explore(protocol, nodes=3, messages=2, sizes_from=1).sizes[-1]

    assert (size.configurations, size.states, size.outcomes) == (28, states, 50)


@pytest.mark.parametrize("protocol", ["skeen", "delporte-fauconnier"])
def test_protocols_that_do_not_need_fifo_hold_without_it(protocol: str) -> None:
    assert explore(protocol, nodes=3, messages=2, total_destinations=5, fifo=False).verdict == "holds"


def test_the_daisy_chain_needs_fifo_channels() -> None:
    destinations = [[0, 3], [0, 2, 3]]
    options = UNWATCHED | {"rule": "strict", "reduced": False}

    assert explore("daisy-chain", nodes=4, destinations=destinations, options=options).verdict == "holds"
    found = explore("daisy-chain", nodes=4, destinations=destinations, options=options, fifo=False)
    assert found.counterexample is not None
    assert found.counterexample.violation.check == "agreement"


# Ascending


@pytest.mark.parametrize(("nodes", "messages", "closures"), [(3, 3, 64), (3, 4, 256), (4, 2, 118), (4, 3, 1265)])
@pytest.mark.parametrize("rule", ["strict", "lite", "cover"])
def test_ascending_counts_the_known_numbers_of_closures(rule: str, nodes: int, messages: int, closures: int) -> None:
    found = explore(
        "daisy-chain", nodes=nodes, messages=messages, ascending=True, twins_in_order=True, options={"rule": rule}
    )

    assert found.verdict == "holds"
    assert found.sizes[-1].outcomes == closures


def test_ascending_is_refused_where_packets_go_down() -> None:
    with pytest.raises(UsageError, match="sends downwards, from n1 to n0"):
        explore("delporte-fauconnier", nodes=2, messages=1, ascending=True)


@pytest.mark.parametrize("ascending", [True, False])
def test_both_ways_to_explore_find_the_same_faulty_configurations(ascending: bool) -> None:
    found = explore(LOG_LESS, nodes=4, messages=3, keep_going=True, ascending=ascending, options={"rule": "cover"})

    assert found.violating == [
        "m1{n0,n2} m2{n0,n3} m3{n0,n1,n2,n3}: invariant",
        "m1{n0,n3} m2{n0,n1,n2} m3{n0,n2,n3}: invariant",
    ]


def test_interchangeable_messages_in_order_change_neither_verdict_nor_outcomes() -> None:
    for protocol, scope in (("daisy-chain", {"nodes": 4}), ("skeen", {"nodes": 3, "total_destinations": 4})):
        plain = explore(protocol, messages=2, sizes_from=1, **scope)  # type: ignore[arg-type]
        ordered = explore(protocol, messages=2, sizes_from=1, twins_in_order=True, **scope)  # type: ignore[arg-type]

        assert ordered.verdict == plain.verdict == "holds"
        assert ordered.outcomes == plain.outcomes
        assert ordered.states < plain.states


# The faults


@pytest.mark.parametrize(
    ("destinations", "options", "check"),
    [
        pytest.param([[0, 2], [0, 2], [0, 3], [2, 3]], {}, "acyclic", id="CE-1"),
        pytest.param([[0, 2], [0, 2], [0, 3], [2, 3]], {"corrections": ["C2", "C4"]}, "acyclic", id="CE-1 without C1"),
        pytest.param(
            [[0, 1, 2, 3], [0, 2], [0, 1, 3], [2, 3]], {"corrections": ["C1", "C4"]}, "acyclic", id="CE-2 without C2"
        ),
        pytest.param([[0, 3], [0, 1, 4], [0, 1, 3, 4]], {}, "agreement", id="CE-3"),
        pytest.param(
            [[0, 3], [0, 1, 4], [0, 1, 3, 4]], {"corrections": ["C1", "C4"]}, "agreement", id="CE-3 without C2"
        ),
        pytest.param(
            [[0, 2], [0, 2], [0, 3], [0, 2, 3]],
            {"corrections": ["C1", "C2", "C4"], "buffer": "newest"},
            "agreement",
            id="CE-4",
        ),
        pytest.param([[0, 2], [0, 1, 3], [2, 3]], {"corrections": ["C1"], "first": "fast"}, "acyclic", id="CE-5"),
    ],
)
def test_the_published_daisy_chain_breaks(destinations: list[list[int]], options: dict[str, Any], check: str) -> None:
    nodes = max(map(max, destinations)) + 1
    found = explore(
        "daisy-chain-published", nodes=nodes, destinations=destinations, options=UNWATCHED | options
    ).counterexample

    assert found is not None
    assert found.violation.check == check


@pytest.mark.parametrize(
    "destinations",
    [
        [[0, 2], [0, 2], [0, 3], [2, 3]],
        [[0, 1, 2, 3], [0, 2], [0, 1, 3], [2, 3]],
        [[0, 3], [0, 1, 4], [0, 1, 3, 4]],
        [[0, 2], [0, 2], [0, 3], [0, 2, 3]],
        [[0, 2], [0, 1, 3], [2, 3]],
        [[0, 2], [0, 3], [0, 1, 2, 3]],
        [[0, 2], [0, 3], [0, 2, 3]],
        [[0, 1], [0, 4], [0, 1, 3, 4]],
        [[0, 2], [2, 3], [0, 1, 3], [0, 1, 3]],
    ],
)
@pytest.mark.parametrize("rule", ["strict", "lite", "cover"])
def test_the_corrected_daisy_chain_survives_every_schedule_of_the_counterexamples(
    destinations: list[list[int]], rule: str
) -> None:
    nodes = max(map(max, destinations)) + 1

    assert explore("daisy-chain", nodes=nodes, destinations=destinations, options={"rule": rule}).verdict == "holds"


@pytest.mark.parametrize(
    ("broken", "options", "nodes", "configuration"),
    [
        pytest.param(LOG_LESS, {"rule": "cover"}, 4, "m1{n0,n2} m2{n0,n3} m3{n0,n1,n2,n3}", id="CE-6"),
        pytest.param(CROSSED, {}, 4, "m1{n0,n2} m2{n0,n3} m3{n0,n2,n3}", id="CE-7"),
        pytest.param(STALE, {}, 5, "m1{n0,n1} m2{n0,n4} m3{n0,n1,n3,n4}", id="covers kept over foreign news"),
    ],
)
def test_what_a_rule_leaves_out_is_found(
    broken: ProtocolInfo, options: dict[str, Any], nodes: int, configuration: str
) -> None:
    found = explore(broken, nodes=nodes, messages=3, ascending=True, options=UNWATCHED | options).counterexample

    assert found is not None
    assert found.configuration == configuration
    assert found.violation.check == "agreement"


def test_comparing_destinations_alone_is_not_enough() -> None:
    destinations = [[0, 2], [2, 3], [0, 1, 3], [0, 1, 3]]

    found = explore(SAME_DESTINATIONS, nodes=4, destinations=destinations, options=UNWATCHED).counterexample

    assert found is not None
    assert found.violation.check == "acyclic"


@pytest.mark.parametrize("broken", [LOG_LESS, CROSSED, STALE])
def test_the_invariants_of_the_machines_notice_a_deadlock_before_it_happens(broken: ProtocolInfo) -> None:
    destinations = {LOG_LESS: [[0, 2], [0, 3], [0, 1, 2, 3]], CROSSED: [[0, 2], [0, 3], [0, 2, 3]]}.get(
        broken, [[0, 1], [0, 4], [0, 1, 3, 4]]
    )
    nodes = max(map(max, destinations)) + 1

    found = explore(broken, nodes=nodes, destinations=destinations, options={"check_invariants": True}).counterexample

    assert found is not None
    assert found.violation.check == "invariant"
