"""The explorer finds what is wrong, in as few steps as it takes, and clears what is right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ordercast.core.errors import UsageError
from ordercast.core.registry import ProtocolInfo
from ordercast.explore import Exploration, explore
from ordercast.explore.machines.behaviour import Behaviour
from ordercast.explore.machines.setting import Setting
from ordercast.explore.scope.configurations import Configuration
from ordercast.explore.search.breadth_first import Judge, Search
from ordercast.explore.stage.stage import Stage
from ordercast.protocols import lookup
from tests.unit.explore import toys
from tests.unit.explore.toys import toy


def the_check(found: Exploration) -> str:
    assert found.verdict == "violated"
    assert found.counterexample is not None
    return found.counterexample.violation.check


def test_a_correct_protocol_holds() -> None:
    found = explore(toy(toys.ThroughTheFirst), nodes=3, messages=3)

    assert found.verdict == "holds"
    assert [size.explored for size in found.sizes] == [4, 10, 20]
    assert found.sizes[-1].outcomes == 20 * 6  # The first server may take three messages in any order.


def test_a_protocol_that_leans_on_fifo_channels_fails_without_them() -> None:
    found = explore(toy(toys.ThroughTheFirst), nodes=3, messages=2, fifo=False)

    assert the_check(found) == "prefix"
    assert found.counterexample is not None
    assert "n0 -> n2 #2" in found.counterexample.schedule.steps or "n0 -> n1 #2" in found.counterexample.schedule.steps


def test_the_counterexample_is_the_smallest_there_is() -> None:
    found = explore(toy(toys.Careless), nodes=3, messages=3)

    assert the_check(found) == "prefix"
    assert found.counterexample is not None
    assert found.counterexample.configuration == "m1{n0,n1} m2{n0,n1}"
    assert len(found.counterexample.story) == 2
    assert found.counterexample.orders == ["n0: m1", "n1: m2", "n2:"]


@pytest.mark.parametrize(
    ("build", "check"),
    [(toys.Repeating, "integrity"), (toys.Selfish, "agreement"), (toys.Anxious, "invariant")],
)
def test_every_kind_of_fault_is_found(build: Any, check: str) -> None:
    assert the_check(explore(toy(build), nodes=2, messages=2)) == check


def test_an_error_in_a_machine_is_a_counterexample_that_names_it() -> None:
    class Clumsy(toys.Toy):
        def on_receive(self, _peer: Any, packet: Any, _out: Any) -> None:
            raise KeyError(packet.message.number)

    found = explore(toy(Clumsy), nodes=2)

    assert the_check(found) == "invariant"
    assert found.counterexample is not None
    assert found.counterexample.violation.detail == "n0: KeyError: 1"


def test_a_stranger_in_a_genuine_protocol_is_found() -> None:
    assert explore(toy(toys.ThroughTheFirst), nodes=3, messages=1).verdict == "holds"
    assert the_check(explore(toy(toys.ThroughTheFirst, genuine=True), nodes=3, messages=1)) == "genuine"


def test_timers_run_out_when_nothing_else_can_happen() -> None:
    found = explore(toy(toys.Ticking), nodes=2, messages=2)

    assert found.verdict == "holds"


def test_a_protocol_that_never_rests_is_not_called_correct() -> None:
    found = explore(toy(toys.Restless), nodes=2, messages=1)

    assert the_check(found) == "rest"
    assert found.counterexample is not None
    assert len(found.counterexample.story) == 2  # Both copies have arrived; after that only clocks tick.


def test_a_state_that_hides_something_is_not_believed() -> None:
    assert explore(toy(toys.Remembering), nodes=2, messages=1).verdict == "holds"
    with pytest.raises(UsageError, match="frozen"):
        explore(toy(toys.Forgetful), nodes=2, messages=1)


def test_keep_going_lists_every_configuration_that_can_go_wrong() -> None:
    found = explore(toy(toys.Careless), nodes=2, messages=2, sizes_from=1, keep_going=True)

    assert found.violating == ["m1{n0,n1} m2{n0,n1}: prefix"]
    assert sum(size.explored for size in found.sizes) == 3 + 6


def test_a_limit_leaves_the_question_open_and_says_how_much_there_is() -> None:
    found = explore(toy(toys.ThroughTheFirst), nodes=4, messages=3, limit_states=500)

    assert found.verdict == "undecided"
    assert found.estimated_states() > 500
    assert found.configurations < found.scope


def test_what_was_found_when_the_limit_was_reached_is_told() -> None:
    found = explore(toy(toys.Careless), nodes=2, messages=2)
    limited = explore(toy(toys.Careless), nodes=2, messages=2, limit_states=found.states - 1)

    assert limited.verdict == found.verdict == "violated"
    assert limited.counterexample is not None


def test_a_limit_of_time_leaves_the_question_open() -> None:
    assert explore(toy(toys.ThroughTheFirst), nodes=4, messages=3, limit_seconds=0.0).verdict == "undecided"


def test_progress_ends_at_one() -> None:
    shares: list[float] = []

    explore(toy(toys.ThroughTheFirst), nodes=3, messages=2, progress=shares.append)

    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"overlay": "torus"}, "overlay"),
        ({"options": {"colour": 1}}, "colour"),
        ({"publishers": [0]}, "publishers"),
        ({"destinations": [[0, 7]]}, "7"),
        ({"messages": 0}, "messages"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(UsageError, match=field):
        explore(toy(toys.Careless), **({"nodes": 3} | arguments))


def test_broadcasts_have_publishers_and_no_destinations() -> None:
    with pytest.raises(UsageError, match="destinations"):
        explore("flood", nodes=2, destinations=[[0]])


# The search against an exploration without any of its shortcuts


def every_outcome(info: ProtocolInfo, configuration: Configuration, options: Mapping[str, Any]) -> set[Any]:
    """Perform every schedule from its beginning on fresh machines, and collect the histories at rest."""
    setting = Setting(info, options, configuration.nodes, configuration.messages)
    outcomes = set()
    schedules: list[list[Any]] = [[]]
    while schedules:
        schedule = schedules.pop()
        stage = Stage(setting, configuration)
        for step in schedule:
            stage.take(step)
            assert stage.violation is None
        possible = stage.possible()
        schedules += [[*schedule, step] for step in possible]
        if not possible:
            outcomes.add(tuple(stage.histories))
    return outcomes


@pytest.mark.parametrize(
    ("protocol", "destinations"),
    [
        ("skeen", ((0, 1), (0,), (1,))),
        ("delporte-fauconnier", ((0, 2), (0, 1, 2))),
        ("daisy-chain", ((0, 2), (1, 2), (0, 1))),
    ],
)
def test_the_search_reaches_exactly_the_outcomes_of_all_schedules(
    protocol: str, destinations: tuple[tuple[int, ...], ...]
) -> None:
    info = lookup(protocol)
    configuration = Configuration(3, destinations)
    behaviour = Behaviour(Setting(info, {}, 3, len(destinations)))
    judge = Judge(behaviour, configuration, info.guarantee)

    found = Search(behaviour, judge, lambda _states: None).run(behaviour.initial(configuration))

    assert found is None
    assert {judge.histories(numbers) for numbers in judge.outcomes} == every_outcome(info, configuration, {})


# Broadcasts


@pytest.mark.parametrize("protocol", ["flood", "fifo", "vector", "sequencer"])
def test_broadcasts_hold_on_a_line_of_two(protocol: str) -> None:
    found = explore(protocol, nodes=2, messages=2, overlay="line")

    assert found.verdict == "holds"
    assert found.outcomes > 2


def test_a_broadcast_without_order_is_caught_when_packets_overtake() -> None:
    assert explore("unordered", nodes=3, messages=2).verdict == "holds"  # FIFO channels are order enough.
    assert the_check(explore("unordered", nodes=3, messages=2, fifo=False)) == "causal"


def test_given_publishers_are_the_only_configuration() -> None:
    found = explore("unordered", nodes=2, publishers=[0, 1])

    assert [(size.messages, size.configurations) for size in found.sizes] == [(2, 1)]
