"""Runs, watches and judges one configuration."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import cast

from ordercast.experiments.kit.claims import judged
from ordercast.experiments.kit.study import Row
from ordercast.experiments.preventive.setting import scenario_of, warm_up_ms
from ordercast.experiments.preventive.watch import RunWatch
from ordercast.protocols import lookup
from ordercast.sim.clock import ns
from ordercast.sim.overlays.faults import OverlayFaults
from ordercast.sim.overlays.run import KIND, drain, start_everybody
from ordercast.sim.overlays.world import OverlayWorld
from ordercast.sim.run import rare_collections, recorded
from ordercast.sim.workload import start_workload

JUDGED_UP_TO = 1_000
"""Above so many processes no trace is kept: gaps are counted, and who misses what."""
_LOOKS = 6


def measure(parameters: Row) -> Row:
    """Simulate one configuration and say what was seen."""
    watches: list[RunWatch] = []

    def live(world: OverlayWorld) -> tuple[int, bool]:
        watch = RunWatch(world, ns(warm_up_ms(parameters)))
        watches.append(watch)
        return _live(world, watch)

    nodes = cast("int", parameters["nodes"])
    scenario, protocol = scenario_of(parameters), lookup(str(parameters["protocol"]))
    kind = KIND._replace(live=live)
    verdict: Row = {"judged": None, "failed_checks": ""}
    if nodes > JUDGED_UP_TO:
        recorded(kind, scenario, protocol, scenario.seed, None, packets=False)
    else:
        from ordercast.verify.judge import judge_path

        with tempfile.TemporaryDirectory(prefix="ordercast-") as directory:
            run = Path(directory) / "run"
            recorded(kind, scenario, protocol, scenario.seed, run, packets=False)
            verdict = judged(judge_path(run)[0])
    return {**watches[0].results(), **verdict}


def _live(world: OverlayWorld, watch: RunWatch) -> tuple[int, bool]:
    """To the end of the run, with looks at equal times while messages travel."""
    OverlayFaults(world)
    start_workload(world)
    duration = ns(world.scenario.duration_ms)
    events = 0
    with rare_collections():
        start_everybody(world)
        for i in range(1, _LOOKS + 1):
            events += world.clock.run_until(watch.begin_ns + (duration - watch.begin_ns) * i // (_LOOKS + 1))
            watch.look()
        events += world.clock.run_until(duration)
        world.end_faults()
        events += drain(world)
    return events, world.clock.at_rest


def weigh(parameters: Row) -> float:
    """Copies of all messages, and the traffic of exchanges."""
    nodes, messages = cast("int", parameters["nodes"]), cast("int", parameters["messages"])
    period = cast("float", parameters["period_s"])
    moves = (
        (warm_up_ms(parameters) / 1000 + messages / cast("float", parameters["rate_per_s"])) / period if period else 0
    )
    return nodes * 15.0 * (messages + 20 * moves)
