"""What makes no sense is refused in the same words, whether a scenario is simulated or run with real processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ordercast.core.errors import UsageError
from ordercast.net.supervise.plan import RunPlan
from ordercast.protocols import lookup
from ordercast.scenario.load import parse_scenario
from ordercast.scenario.model import Scenario
from ordercast.sim import simulate

OPEN = {"kind": "open", "rate_per_s": 10}


def _simulated(scenario: Scenario) -> None:
    simulate(scenario, lookup(scenario.protocol))


def _planned(scenario: Scenario) -> None:
    RunPlan(scenario, lookup(scenario.protocol), scenario.protocol, 0)


def _steps(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"workload": [{"kind": "schedule", "steps": list(steps)}]}


def _fault(kind: str, **fields: Any) -> dict[str, Any]:
    return {"fault": [{"kind": kind, **fields}]}


@pytest.mark.parametrize("runtime", [_simulated, _planned])
@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"workload": []}, "workload: nobody publishes anything"),
        ({"duration_ms": 0}, "duration_ms: 0.0 is not positive"),
        ({"detector": {"delay_ms": -1}}, "detector.delay_ms: -1.0 is negative"),
        (
            _steps({"node": "n1", "after": "nonsense"}),
            "workload[0].steps[0].after: 'nonsense' is not a message id such as 'n0#1'",
        ),
        (_steps({"node": "n1", "after": "n7#1"}), "workload[0].steps[0].after: unknown node 'n7'"),
        (_steps({"node": "n7", "at_ms": 1}), "workload[0].steps[0].node: unknown node 'n7'"),
        (_steps({"node": "n1", "at_ms": 1, "dst": ["n7"]}), "workload[0].steps[0].dst: unknown node 'n7'"),
        ({"workload": [{**OPEN, "rate_per_s": 1e9}]}, "workload[0].rate_per_s: 1000000000.0 is not above 0 and at"),
        ({"workload": [{**OPEN, "window": -1}]}, "workload[0].window: -1 is not from 0 up"),
        (
            {"workload": [{"kind": "closed", "until": "self", "outstanding": 0}]},
            "workload[0]: a closed load needs outstanding >= 1",
        ),
        ({"workload": [{"kind": "burst", "size": 1, "every_ms": 1e-9}]}, "workload[0]: a burst load needs size >= 1"),
        ({"workload": [{"kind": "reply", "probability": 1, "depth": 0}]}, "workload[0]: a reply load needs 0 <"),
        (
            _fault("crash", node="n0", at_ms=100, recover_ms=100),
            "fault[0].recover_ms: 100.0 is not between at_ms 100.0 and the duration of 300.0 ms",
        ),
        (
            _fault("pause", node="n0", at_ms=100, until_ms=400),
            "fault[0].until_ms: 400.0 is not between at_ms 100.0 and the duration of 300.0 ms",
        ),
        (_fault("crash", node="n0", at_ms=400), "fault[0].at_ms: 400.0 is not within the run's duration of 300.0 ms"),
        (_fault("join", node="n0", at_ms=1), "fault[0].kind: nodes cannot join or leave with protocol 'fifo'"),
    ],
)
def test_both_runtimes_refuse_what_makes_no_sense_in_the_same_words(
    changes: dict[str, Any], complaint: str, runtime: Callable[[Scenario], None]
) -> None:
    base = {
        "name": "odd",
        "protocol": "fifo",
        "duration_ms": 300,
        "overlay": {"kind": "line", "nodes": 2},
        "workload": [OPEN],
    }
    with pytest.raises(UsageError) as caught:
        runtime(parse_scenario({**base, **changes}))
    assert str(caught.value).startswith(complaint)


def test_over_tcp_nobody_waits_for_more_than_an_hour() -> None:
    raw = {"name": "patient", "protocol": "fifo", "overlay": {"kind": "line", "nodes": 2}, "workload": [OPEN]}
    _planned(parse_scenario({**raw, "detector": {"delay_ms": 3_600_000}}))
    with pytest.raises(UsageError, match=r"detector\.delay_ms: 3600001\.0 is more than an hour"):
        _planned(parse_scenario({**raw, "detector": {"delay_ms": 3_600_001}}))
