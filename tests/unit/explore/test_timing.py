"""A counterexample becomes a scenario: the simulator goes the same way, and the judge of traces sees the same fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ordercast.core.errors import UsageError
from ordercast.explore import SteppedRun, explore, scenario_of
from ordercast.protocols import lookup
from ordercast.scenario.load import dump_scenario, load_scenario
from ordercast.sim import simulate
from ordercast.verify.judge import judge_path
from tests.unit.explore.toys import Climbing, ThroughTheFirst, toy

PUBLISHED = "daisy-chain-published"


@pytest.mark.parametrize(
    ("destinations", "options", "check"),
    [
        pytest.param([[0, 2], [0, 2], [0, 3], [2, 3]], {}, "acyclic", id="CE-1"),
        pytest.param([[0, 1, 2, 3], [0, 2], [0, 1, 3], [2, 3]], {"corrections": ["C1", "C4"]}, "acyclic", id="CE-2"),
        pytest.param([[0, 3], [0, 1, 4], [0, 1, 3, 4]], {}, "agreement", id="CE-3"),
        pytest.param(
            [[0, 2], [0, 2], [0, 3], [0, 2, 3]],
            {"corrections": ["C1", "C2", "C4"], "buffer": "newest"},
            "agreement",
            id="CE-4",
        ),
        pytest.param([[0, 2], [0, 1, 3], [2, 3]], {"corrections": ["C1"], "first": "fast"}, "acyclic", id="CE-5"),
    ],
)
def test_the_simulator_repeats_what_the_explorer_found(
    tmp_path: Path, destinations: list[list[int]], options: dict[str, Any], check: str
) -> None:
    nodes = max(map(max, destinations)) + 1
    options = {"check_invariants": False, **options}
    found = explore(PUBLISHED, nodes=nodes, destinations=destinations, options=options).counterexample
    assert found is not None

    scenario = scenario_of(found.schedule, lookup(PUBLISHED))
    assert scenario is not None
    file = tmp_path / "counterexample.toml"
    file.write_text(dump_scenario(scenario))
    simulate(load_scenario(file), lookup(PUBLISHED), seed=1, out=tmp_path / "run")
    (verdict,) = judge_path(tmp_path / "run")

    assert [result.check for result in verdict.results if result.verdict == "fail"] == [check]


CROSSING = ["c1 -> n0", "c2 -> n0", "c3 -> n0", "c4 -> n0", "n0 -> n1", "n0 -> n1"]


@pytest.mark.parametrize(
    ("at_n2", "possible"),
    [
        (["n0 -> n2", "n0 -> n2", "n1 -> n2", "n1 -> n2"], True),
        (["n1 -> n2", "n1 -> n2", "n0 -> n2", "n0 -> n2"], True),
        # m2 overtakes m1 on the longer way, so the direct one is slow; m4 overtakes m3 on it, so it is fast.
        (["n1 -> n2", "n0 -> n2", "n0 -> n2", "n1 -> n2"], False),
    ],
)
def test_a_link_that_would_need_two_latencies_has_no_scenario(at_n2: list[str], possible: bool) -> None:
    schedule = SteppedRun(
        protocol="toy",
        nodes=3,
        destinations=[["n0", "n2"], ["n0", "n1", "n2"], ["n0", "n1", "n2"], ["n0", "n2"]],
        steps=[*CROSSING, *at_n2],
    )

    assert (scenario_of(schedule, toy(Climbing)) is not None) is possible


def test_broadcasts_and_overtaking_are_refused() -> None:
    broadcast = SteppedRun(protocol="flood", nodes=2, publishers=["n0"], steps=["n0 publishes"])
    overtaking = explore(toy(ThroughTheFirst), nodes=3, messages=2, fifo=False).counterexample
    assert overtaking is not None

    with pytest.raises(UsageError, match="explicit destinations"):
        scenario_of(broadcast, lookup("flood"))
    with pytest.raises(UsageError, match="FIFO"):
        scenario_of(overtaking.schedule, toy(ThroughTheFirst))
