"""Whether the order of delivery respects what clients could see: who was answered before whom was sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ordercast.core.errors import UsageError
from ordercast.explore import SteppedRun, explore, replay, write_schedule
from ordercast.explore.promises.properties import answers, real_time
from tests.unit.explore.toys import Careless, toy


@pytest.mark.parametrize("delivery", ["handle", "end"])
def test_delporte_fauconnier_keeps_real_time_order(delivery: str) -> None:
    found = explore(
        "delporte-fauconnier", nodes=3, messages=3, sizes_from=1, real_time=True, options={"delivery": delivery}
    )

    assert found.verdict == "holds"
    assert found.configurations == 7 + 28 + 84


@pytest.mark.parametrize(
    ("protocol", "destinations"),
    [("daisy-chain", [[0, 1], [0], [1]]), ("skeen", [[0], [0], [0, 1], [0], [1]])],
)
def test_the_others_do_not_and_the_schedule_shows_it(
    protocol: str, destinations: list[list[int]], tmp_path: Path
) -> None:
    assert explore(protocol, nodes=2, destinations=destinations).verdict == "holds"
    found = explore(protocol, nodes=2, destinations=destinations, real_time=True).counterexample
    assert found is not None
    path = tmp_path / "late.schedule.toml"

    write_schedule(path, found.schedule, found.story)

    assert found.violation.check == "real-time"
    assert "answered before" in found.violation.detail
    assert replay(path).violation == found.violation


def test_a_client_without_an_answer_is_found() -> None:
    found = explore(toy(Careless), nodes=1, sizes_from=1, messages=1, real_time=True).counterexample

    assert found is not None
    assert found.violation.check == "answer"


def test_the_definition_tells_a_stale_order_from_a_fresh_one() -> None:
    first_answered_before_second = [0b00, 0b01]

    assert real_time(((0, 1),), first_answered_before_second) is None
    assert real_time(((1, 0),), [0b00, 0b00]) is None
    violation = real_time(((1, 0),), first_answered_before_second)
    assert violation is not None
    assert violation.detail.endswith("m1 answered before m2 was sent, m2 before m1 at n0")


def test_a_missing_answer_is_named() -> None:
    violation = answers(0b01, 2)

    assert answers(0b11, 2) is None
    assert violation is not None
    assert "client of m2" in violation.detail


@pytest.mark.parametrize("extra", [{"ascending": True}, {"twins_in_order": True}])
def test_reductions_that_forget_time_are_refused(extra: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="real_time"):
        explore("daisy-chain", nodes=2, real_time=True, **extra)


@pytest.mark.parametrize("steps", [["c1 publishes", "c1 publishes"], ["c1 publishes", "c9 publishes"]])
def test_a_client_sends_once(steps: list[str]) -> None:
    with pytest.raises(UsageError, match="cannot do that now"):
        replay(SteppedRun(protocol="skeen", nodes=1, destinations=[["n0"]], steps=steps))
