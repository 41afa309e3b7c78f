"""Any overlay, any faults within its assumptions: a protocol keeps its promise. `make swarm` runs many more seeds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ordercast.protocols import lookup
from ordercast.scenario.model import Crash
from ordercast.sim import simulate
from ordercast.verify.verdict import HELD
from tests.properties.swarm import PROTOCOLS, judge_seed, swarm_scenario
from tests.support.seeds import batch_name, batches

SEEDS_PER_TEST = 10


@pytest.mark.parametrize("seeds", batches(50, 20, SEEDS_PER_TEST), ids=batch_name)
@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_promise_is_kept_whatever_happens(name: str, seeds: list[int], tmp_path: Path) -> None:
    protocol = lookup(name)
    for seed in seeds:
        verdict = judge_seed(protocol, seed, tmp_path / "run")
        replay = f"python -m tests.properties.swarm --seeds 1 --first {seed} --protocol {name}"
        assert verdict.exit_code() == HELD, f"{verdict}\nagain: {replay}"


def test_the_swarm_contains_every_fault(tmp_path: Path) -> None:
    fired: set[str] = set()
    crashes: set[str] = set()
    for seed in range(30):
        scenario = swarm_scenario(lookup("fifo"), seed)
        fired |= set(simulate(scenario, lookup("fifo"), seed=seed).manifest.faults)
        crashes |= {_kind(fault) for fault in scenario.fault if isinstance(fault, Crash)}
    assert fired >= {"crash", "recover", "pause", "slow", "partition", "suspicion", "duplicate", "lost", "cut"}
    assert crashes == {"for good", "kept", "lost"}


def _kind(crash: Crash) -> str:
    return "for good" if crash.recover_ms is None else crash.state


_DIGESTS = """
import hashlib, sys
from pathlib import Path
from ordercast.protocols import lookup
from ordercast.sim import simulate
from tests.properties.swarm import PROTOCOLS, swarm_scenario
for name in PROTOCOLS:
    for seed in range(4):
        run = Path(sys.argv[1]) / f"{name}-{seed}"
        simulate(swarm_scenario(lookup(name), seed), lookup(name), seed=seed, out=run)
        digest = hashlib.sha256()
        for file in sorted(path for path in run.rglob("*") if path.is_file()):
            digest.update(file.read_bytes())
        print(name, seed, digest.hexdigest())
"""


def test_traces_do_not_depend_on_the_hash_seed_of_the_process(tmp_path: Path) -> None:
    printed = {
        subprocess.run(
            [sys.executable, "-c", _DIGESTS, str(tmp_path / hash_seed)],
            env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": "src:."},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(printed) == 1
    assert len(printed.pop().splitlines()) == 4 * len(PROTOCOLS)
