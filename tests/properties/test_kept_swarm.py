"""Kept topics under crashes, lost disks and cut connections: every copy and every late reader is judged."""

from __future__ import annotations

import pytest

from tests.properties.kept_swarm import FAMILIES, try_seed
from tests.support.seeds import fixed_and_todays

SEEDS = fixed_and_todays(3, 1)


@pytest.mark.parametrize("family", ["across", "across-new-topics"])
def test_cuts_across_topics_are_told_and_judged_while_things_break(family: str) -> None:
    findings = [finding for seed in (0, 1, 2) if not isinstance(finding := try_seed(seed, family), str)]
    counters = [process.counters for finding in findings for process in finding.world.processes.processes.values()]
    assert [finding.problems for finding in findings] == [[], [], []]
    assert sum(counter["cuts_judged"] for counter in counters) > 20


@pytest.mark.parametrize("family", [name for name in FAMILIES if not name.startswith("across")])
def test_history_and_live_are_one_view_at_every_reader_and_copy(family: str) -> None:
    read = kept = 0
    for seed in SEEDS:
        finding = try_seed(seed, family)
        again = f"again: python -m tests.properties.kept_swarm --seeds 1 --first {seed} --family {family}"
        problems = [finding] if isinstance(finding, str) else finding.problems
        assert not problems, f"{again}\n{problems}"
        assert not isinstance(finding, str)
        kept += sum(process.counters["entries_kept"] for process in finding.world.processes.processes.values())
        read += sum(c.delivered for c in finding.world.clients.values() if c.spec.start == "earliest")
    assert kept > 100
    assert read > 100
