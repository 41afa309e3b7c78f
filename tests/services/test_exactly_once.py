"""A replica that is killed -9 between any two steps, and started again, has lost nothing and done nothing twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from ordercast.pubsub.publications import Publication
from ordercast.services.bank_checks import balances_of
from ordercast.services.bank_workload import BankWorkload
from ordercast.services.replica import Replica
from ordercast.services.stores import open_store
from ordercast.services.stores.memory import MemoryStore
from tests.support.bank_lab import BANK, bank_dispatcher, published

ROOT = Path(__file__).parents[2]


def _log(operations: int) -> list[Publication]:
    workload = BankWorkload(accounts=5, operations=operations, eventual=0.1, causal=0.5, total=0.4)
    calls = enumerate(workload.calls("ann"), 1)
    return [published(name, *args, number=n) for n, (name, args) in calls]


def _undisturbed(log: list[Publication]) -> Replica:
    replica = Replica(MemoryStore(), bank_dispatcher())
    replica.apply(log)
    return replica


@pytest.mark.parametrize("mode", ["steps", "moments"])
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_killed_at_any_step_or_moment_it_ends_as_if_nothing_had_happened(
    kind: str, mode: str, tmp_path: Path, schema: str, request: pytest.FixtureRequest
) -> None:
    where = str(tmp_path / "store.db")
    if kind == "postgres":
        where = f"postgres:{request.getfixturevalue('postgres')}#{schema}"
    log = _log(90 if mode == "steps" else 2000)
    (tmp_path / "log").write_bytes(msgspec.msgpack.encode(log))
    arguments = [str(tmp_path / "log"), where, mode, "24" if mode == "steps" else "20"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.services.killed_replica", *arguments],
        cwd=ROOT, env={"PYTHONPATH": "src:.", "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 8
    expected = _undisturbed(log)
    survivor = Replica(open_store(where), bank_dispatcher())
    assert survivor.received(BANK) == expected.received(BANK)
    assert balances_of(survivor) == balances_of(expected)
    assert survivor.digest(BANK) == expected.digest(BANK)
    survivor.close()
