"""Overlays that change are explored: what holds, what breaks, what is replayed, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordercast.core.errors import UsageError
from ordercast.explore import explore_overlay, read_schedule, replay, write_schedule
from ordercast.explore.overlays.scope import overlay_scope, overlay_trouble
from ordercast.scenario.load import load_scenario
from ordercast.sim import simulate
from ordercast.sim.catalogue import SIMULATED
from tests.properties.preventive_scopes import SCOPES, SMALL


@pytest.mark.parametrize("name", [name for name in SMALL if name != "open"])
def test_the_preventive_broadcast_holds_in_every_interleaving(name: str) -> None:
    """T14: openings, joins with one and two contacts, buffers for nothing, hints, memories of links."""
    found = explore_overlay(SCOPES[name])
    assert found.verdict == "holds"
    assert found.states > 1_000


def test_crashes_and_lost_acknowledgements_are_survived() -> None:
    scope = overlay_scope(
        "preventive", 3, "line", (), 2, {}, publishers=(0, 0), trouble=overlay_trouble("1", 0, 1, 0, None)
    )
    assert explore_overlay(scope).verdict == "holds"


@pytest.mark.parametrize(
    ("reading", "check"), [((), "causal"), (("guard-first",), "causal"), (("direct-locks",), "causal")]
)
def test_the_draft_breaks_and_its_schedule_can_be_replayed(
    reading: tuple[str, ...], check: str, tmp_path: Path
) -> None:
    found = explore_overlay(overlay_scope("preventive-draft", 3, "line", (), 2, {"reading": reading}))
    assert found.counterexample is not None
    assert found.counterexample.violation.check == check
    write_schedule(tmp_path / "s.toml", found.counterexample.schedule, found.counterexample.story)
    assert read_schedule(tmp_path / "s.toml").steps == found.counterexample.schedule.steps
    assert replay(tmp_path / "s.toml").violation == found.counterexample.violation


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"joins": (7,)}, "join: there is no process n7"),
        ({"joins": (0, 1, 2)}, "join: somebody must be there"),
        ({"publishers": (9,)}, "publishers: there is no process n9"),
        ({"trouble": overlay_trouble("5", 0, 0, 0, None)}, "crash: there is no process n5"),
    ],
)
def test_a_scope_that_makes_no_sense_is_refused(changes: dict[str, object], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        explore_overlay(overlay_scope("preventive", 3, "line", (), 1, {}, **changes))


def test_a_script_that_makes_no_sense_is_refused_by_its_line() -> None:
    with pytest.raises(UsageError, match=r"script\[0\]: 'n0 likes n1' is not"):
        explore_overlay(overlay_scope("preventive", 3, "line", (), 1, {"script": ("n0 likes n1",)}))


def test_a_sampling_that_nobody_knows_is_refused() -> None:
    scenario = load_scenario(Path(__file__).parents[3] / "scenarios" / "overlay-churn.toml", ["options.sampling=foo"])
    with pytest.raises(UsageError, match="unknown sampling 'foo'"):
        simulate(scenario, SIMULATED["preventive"])
