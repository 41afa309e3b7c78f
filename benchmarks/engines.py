"""What the two engines of the judge cost as traces grow: processor time, and the most memory of each kind of process.

    python benchmarks/engines.py [--millions 1 10] [--nodes 100] [--publishers 20] [--master 'local[2]']

The local engine runs in the command itself, the distributed one on Spark. The ratio is of processor time, all processes
together; the target is at least half of the local engine's rate at a hundred million deliveries.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from ordercast.trace.synthetic import TraceShape, write_synthetic

if TYPE_CHECKING:
    from collections.abc import Mapping

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Watched:
    """A command with all that it starts: its processor time, and the most memory of driver, Java and workers.

    `others` are leaders of sessions that work for it, each by its role: those of a cluster.
    """

    def __init__(
        self, command: list[str], others: Mapping[int, str] | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        begun = time.perf_counter()
        self.peak_mb: dict[str, float] = defaultdict(float)
        cpu: dict[tuple[str, int], float] = {}
        with (
            tempfile.TemporaryFile() as out,
            subprocess.Popen(command, stdout=out, env=environment, start_new_session=True) as process,
        ):
            while process.poll() is None:
                self._look(process.pid, others or {}, cpu)
                time.sleep(0.1)
            out.seek(0)
            said = out.read()
        self.wall = time.perf_counter() - begun
        self.cpu_of: dict[str, float] = defaultdict(float)
        for (role, _), seconds in cpu.items():
            self.cpu_of[role] += seconds
        self.cpu = sum(cpu.values())
        self.out = said.decode()

    def _look(self, leader: int, others: Mapping[int, str], cpu: dict[tuple[str, int], float]) -> None:
        memory: dict[str, float] = defaultdict(float)
        for directory in Path("/proc").iterdir():
            try:
                stat = (directory / "stat").read_text()
                resident = int((directory / "statm").read_text().split()[1]) * _PAGE / 1e6
            except (OSError, IndexError, ValueError):
                continue
            name, _, rest = stat.partition("(")[2].rpartition(")")
            fields = rest.split()
            pid, session = int(stat.split()[0]), int(fields[3])
            role = others.get(session, "") if session != leader else _role(name, is_leader=pid == leader)
            if not role:
                continue
            cpu[role, pid] = (int(fields[11]) + int(fields[12])) / _TICKS
            memory[role] += resident
        for role, size in memory.items():
            self.peak_mb[role] = max(self.peak_mb[role], size)


def _role(name: str, *, is_leader: bool) -> str:
    return "java" if name == "java" else "driver" if is_leader else "workers"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--millions", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--publishers", type=int, default=20)
    parser.add_argument("--master", default="local[2]")
    given = parser.parse_args()
    for millions in given.millions:
        with tempfile.TemporaryDirectory() as directory:
            violations = (("causal", 2), ("lost", 1))
            shape = TraceShape(given.nodes, given.publishers, millions * 1_000_000, violations=violations)
            run = str(write_synthetic(Path(directory) / "run", shape))
            verify = [sys.executable, "-P", "-m", "ordercast", "verify", run, "--json"]
            local = Watched([*verify, "--no-spark"])
            apart = Watched([*verify, "--engine", "distributed", "--master", given.master])
            same = local.out == apart.out.replace('"engine": "distributed"', '"engine": "local"')
            for name, watched in (("local", local), ("distributed", apart)):
                memory = ", ".join(f"{role} {size:.0f}" for role, size in sorted(watched.peak_mb.items()))
                print(f"{millions:4d} M {name:12s} {watched.cpu:7.1f} s cpu {watched.wall:7.1f} s wall, MB: {memory}")
            said = "the same" if same else "ANOTHER"
            print(f"{millions:4d} M {said} verdict, rate {local.cpu / apart.cpu:.2f} of the local engine's")


if __name__ == "__main__":
    main()
