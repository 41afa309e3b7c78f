"""One seed, one run: byte for byte, in any process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ordercast.scenario.load import dump_scenario, parse_scenario
from ordercast.scenario.model import Scenario
from ordercast.sim import simulate
from tests.support.plain_flood import PLAIN_FLOOD

_RUN = """
import sys
from pathlib import Path
from ordercast.scenario.load import load_scenario
from ordercast.sim import simulate
from tests.support.plain_flood import PLAIN_FLOOD
simulate(load_scenario(Path(sys.argv[1])), PLAIN_FLOOD, seed=int(sys.argv[2]), out=Path(sys.argv[3]))
"""


def _everything() -> Scenario:
    """Every source of chance there is, in one scenario."""
    return parse_scenario(
        {
            "name": "everything",
            "overlay": {"kind": "regular", "nodes": 16, "degree": 3},
            "groups": {"kind": "zipf", "count": 5},
            "link": {
                "latency_ms": {"kind": "lognormal", "median_ms": 8, "sigma": 0.7},
                "fifo": False,
                "loss": 0.05,
                "duplicate": 0.05,
            },
            "nodes": [{"nodes": ["n1", "n2"], "bandwidth_mbps": 2.0, "cpu": {"per_packet_us": 40}}],
            "workload": [
                {"kind": "open", "rate_per_s": 150, "keys": 9, "guarantee": {"fifo": 1, "causal": 2}, "popularity": 1},
                {"kind": "closed", "publishers": ["n3"], "outstanding": 2, "destinations": 3},
                {"kind": "burst", "size": 3, "every_ms": 200, "publishers": ["n5"]},
                {"kind": "reply", "probability": 0.05, "depth": 2},
            ],
            "fault": [
                {"kind": "crash", "node": "n4", "at_ms": 150, "recover_ms": 400, "state": "lost"},
                {"kind": "crash", "node": "n6", "at_ms": 250},
                {"kind": "partition", "sides": [["n0", "n1", "n2", "n3"], ["n7", "n8", "n9", "n10", "n11", "n12"]],
                 "at_ms": 300, "until_ms": 500},
                {"kind": "suspicion", "node": "n9", "at_ms": 100, "until_ms": 200},
            ],
            "duration_ms": 700,
        }
    )  # fmt: skip


def _bytes_of(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """The same seed under two hash seeds, and another seed."""
    directory = tmp_path_factory.mktemp("determinism")
    file = directory / "everything.toml"
    file.write_text(dump_scenario(_everything()))
    written = {}
    for name, hash_seed, seed in (("one", "1", 7), ("again", "4242", 7), ("other", "1", 8)):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(["src", "."])}
        command = [sys.executable, "-c", _RUN, str(file), str(seed), str(directory / name)]
        subprocess.run(command, check=True, env=environment, cwd=Path(__file__).parents[2])
        written[name] = _bytes_of(directory / name)
    return written


def test_two_processes_with_one_seed_write_the_same_bytes(runs: dict[str, dict[str, bytes]]) -> None:
    assert len(runs["one"]["events/part-00000.parquet"]) > 10_000
    assert runs["one"] == runs["again"]


def test_another_seed_is_another_run(runs: dict[str, dict[str, bytes]]) -> None:
    assert runs["one"]["events/part-00000.parquet"] != runs["other"]["events/part-00000.parquet"]


def test_a_run_does_not_depend_on_the_runs_before_it(runs: dict[str, dict[str, bytes]], tmp_path: Path) -> None:
    simulate(_everything(), PLAIN_FLOOD, seed=3)
    simulate(_everything(), PLAIN_FLOOD, seed=7, out=tmp_path / "run")
    assert _bytes_of(tmp_path / "run") == runs["one"]
