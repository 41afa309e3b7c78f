"""Without a vector: what a process remembers is what is under way (PRV-9.2, PRV-9.3)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId
from ordercast.protocols import lookup
from ordercast.protocols.preventive.packets import RULES
from ordercast.protocols.preventive.remembering import Remembering
from ordercast.protocols.preventive.settings import PreventiveOptions
from ordercast.protocols.preventive.variants import kind_of
from ordercast.scenario.load import parse_scenario
from ordercast.sim import simulate
from ordercast.sim.overlays.faults import OverlayFaults
from ordercast.sim.overlays.run import drain, start_everybody
from ordercast.sim.overlays.world import OverlayWorld
from ordercast.sim.workload import start_workload
from ordercast.verify.judge import judge_path
from ordercast.verify.verdict import FAIL, HELD
from tests.properties.preventive_memory_swarm import broken, judge_memory_seed
from tests.support.remembering_lab import NothingMet
from tests.support.seeds import batch_name, batches

RING = [["n0", "n1"], ["n1", "n2"], ["n2", "n3"], ["n0", "n3"]]
COUNTING = {"memory": "counting", "skip_sender": False, "fallback": "hint"}


def a_run(**changes: Any) -> dict[str, Any]:
    return {
        "name": "remembering",
        "protocol": "preventive",
        "overlay": {"kind": "edges", "edges": RING},
        "options": COUNTING,
        "duration_ms": 1000,
        "link": {"latency_ms": {"kind": "uniform", "low_ms": 1, "high_ms": 60}},
        "workload": [{"kind": "open", "rate_per_s": 100, "payload_bytes": 8}],
        **changes,
    }


def judged(out: Path, **changes: Any) -> set[str]:
    """The checks that fail, by the product as a user runs it."""
    simulate(parse_scenario(a_run(**changes)), lookup("preventive"), out=out)
    (verdict,) = judge_path(out)
    failed = {result.check for result in verdict.results if result.verdict == FAIL}
    assert failed or verdict.exit_code() == HELD, verdict
    return failed


@pytest.mark.parametrize("seeds", batches(8, 8, 4), ids=batch_name)
def test_a_memory_of_links_tells_copies_as_a_vector_would(seeds: list[int], tmp_path: Path) -> None:
    """PRV-9.2, PRV-9.3: whatever joins, leaves, crashes and opens; and nothing is remembered at rest."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        own: Counter[str] = Counter()
        found = broken(judge_memory_seed(seed, tmp_path / "run", counts=own), seed, own)
        assert found == [], f"again: python -m tests.properties.preventive_memory_swarm --seeds 1 --first {seed}"
        counts += own
    assert min(counts["I1"], counts["I3"], counts["empty_memories"]) > 0


def test_a_link_that_begins_with_an_empty_memory_tells_twice(tmp_path: Path) -> None:
    """PRV-9.3 without its four items: the counterexample to counting where links change."""
    with pytest.raises(AssertionError, match="a copy"):
        judge_memory_seed(1, tmp_path / "run", NothingMet)


def test_counting_keeps_the_promise_on_links_that_stay(tmp_path: Path) -> None:
    assert judged(tmp_path / "run") == set()


def test_counting_without_a_copy_back_to_the_sender_waits_for_ever_and_is_refused() -> None:
    """PRV-9.2: the copy that is never sent stays remembered, so the guard is at the options."""
    options = {**COUNTING, "skip_sender": True}
    with pytest.raises(UsageError, match="needs skip_sender = false"):
        kind_of(PreventiveOptions(**options))  # type: ignore[arg-type]
    assert remembered(COUNTING, Remembering) == 0
    assert remembered(options, Remembering) > 0


def remembered(options: dict[str, Any], machine: type[Remembering]) -> int:
    """How much all processes together remember at rest, with or without leave."""
    import msgspec

    info = msgspec.structs.replace(lookup("preventive"), build_overlay=machine)
    world = OverlayWorld(parse_scenario(a_run(options=options)), info, 0, None)
    OverlayFaults(world)
    start_workload(world)
    start_everybody(world)
    world.clock.run_until(1_000_000_000)
    drain(world)
    assert all(world.nodes[NodeId(f"n{i}")].machine.broadcast.log.end > 50 for i in range(4))  # type: ignore[union-attr]
    return sum(node.machine.broadcast.memory.entries for node in world.nodes.values())  # type: ignore[union-attr]


@pytest.mark.parametrize("options", [{"sampling": "spray"}, {"script": ("n0 opens n2 at 1",)}])
def test_counting_is_refused_where_links_change(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="for links that stay"):
        kind_of(PreventiveOptions(**COUNTING, **options))


def test_a_vector_and_a_memory_are_no_neighbours() -> None:
    """One of them would deliver twice: they follow different rules."""
    rules = {PreventiveOptions(memory=memory).rules for memory in ("vector", "counting", "links")}  # type: ignore[arg-type]
    assert len(rules) == 3
    assert PreventiveOptions().rules == RULES


@pytest.mark.parametrize("sampling", ["spray", "cyclon"])
def test_a_memory_of_links_works_on_a_peer_sampling(sampling: str, tmp_path: Path) -> None:
    nodes = [[f"n{i}", f"n{(i + step) % 12}"] for i in range(12) for step in (1, 3)]
    options = {**COUNTING, "memory": "links", "sampling": sampling, "period_ms": 150, "ack_ms": 500}
    assert judged(tmp_path / "run", overlay={"kind": "edges", "edges": nodes}, options=options) == set()
