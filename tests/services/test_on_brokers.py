"""Bank replicas on real brokers over TCP: crashes of brokers and replicas lose nothing and double nothing."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ordercast.services.bank_checks import ReplicaHistory, bank_violations
from ordercast.services.bank_workload import BankWorkload
from ordercast.services.client_bus import ClientBus
from ordercast.services.replica import Replica
from ordercast.services.stores.memory import MemoryStore
from ordercast.services.stores.sqlite import SqliteStore
from ordercast.testing import EmbeddedCluster, cluster
from tests.support.bank_lab import BANK, BankNode, run_workload
from tests.support.loop import run_async, until

ROOT = Path(__file__).parents[2]


async def _replica(brokers: EmbeddedCluster, name: str, broker: str, store: Any = None, **options: Any) -> BankNode:
    client = await brokers.connect(name, broker=broker, **options).__aenter__()
    node = BankNode(ClientBus(client), store or MemoryStore(), note=client.note)
    await node.node.start()
    return node


async def _equal(nodes: list[BankNode], operations: int) -> None:
    """Until everybody has everything."""

    def count(replica: Replica) -> int:
        return sum(low + len(extras) for low, extras in replica.received(BANK).values())

    async with asyncio.timeout(30):
        for node in nodes:
            while await node.node.look(count) < operations:
                await asyncio.sleep(0.02)


def test_replicas_agree_while_brokers_are_killed() -> None:
    async def main() -> None:
        async with cluster(brokers=4) as brokers:
            nodes = [await _replica(brokers, f"c{i}", f"b{i + 1}") for i in range(3)]
            working = asyncio.ensure_future(run_workload(nodes, BankWorkload(accounts=5, operations=150), wait=True))
            await asyncio.sleep(0.2)
            await brokers.kill("b2")
            await working
            await _equal(nodes, 450)
            assert bank_violations([node.history() for node in nodes]) == []
            assert len({await node.node.digest(BANK) for node in nodes}) == 1
            for node in nodes:
                await node.node.stop()

    run_async(main)


def test_a_replica_that_joins_late_takes_its_state_from_a_member() -> None:
    async def main() -> None:
        async with cluster(brokers=2) as brokers:
            first = await _replica(brokers, "c0", "b0")
            await run_workload([first], BankWorkload(accounts=3, operations=60), wait=True)
            async with asyncio.timeout(10):
                while not first.node.bus.client._machine.topics[BANK].base:  # type: ignore[attr-defined]
                    await asyncio.sleep(0.02)
            late = await _replica(brokers, "c1", "b1")
            assert len(late.order) < 60
            await _equal([late], 60)
            assert await late.bank.deposit("acc0000", 1) == first.history().balances["acc0000"] + 1
            await _equal([first, late], 61)
            assert first.history().balances == late.history().balances
            for node in (first, late):
                await node.node.stop()

    run_async(main)


def test_a_durable_replica_goes_on_where_it_stopped(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(brokers=2) as brokers:
            other = await _replica(brokers, "c1", "b1")
            seen: list[str] = []
            for life in range(3):
                node = await _replica(brokers, "c0", "b0", SqliteStore(tmp_path / "bank.db"), data=tmp_path / "client")
                await run_workload([node, other], BankWorkload(accounts=3, operations=25, seed=life))
                await node.node.stop()
                seen += node.order
            node = await _replica(brokers, "c0", "b0", SqliteStore(tmp_path / "bank.db"), data=tmp_path / "client")
            await _equal([node, other], 150)
            seen += node.order
            assert sorted(seen) == sorted(other.order)
            assert (await node.ended()).balances == (await other.ended()).balances
            for last in (node, other):
                await last.node.stop()

    run_async(main)


def test_a_durable_session_whose_store_lost_something_takes_a_snapshot(tmp_path: Path) -> None:
    """The overlay would not deliver it again: the client says that it was taken."""

    async def main() -> None:
        async with cluster(brokers=1) as brokers:
            other = await _replica(brokers, "c1", "b0")
            node = await _replica(brokers, "c0", "b0", data=tmp_path / "client")
            assert await node.bank.deposit("a", 5) == 5
            await node.node.stop()
            again = await _replica(brokers, "c0", "b0", MemoryStore(), data=tmp_path / "client")
            assert (await again.ended()).balances == {"a": 5}
            for last in (again, other):
                await last.node.stop()

    run_async(main)


def test_a_traced_run_is_judged_to_have_converged(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(brokers=3, trace=tmp_path) as brokers:
            nodes = [await _replica(brokers, f"c{i}", f"b{i}", trace=tmp_path) for i in range(3)]
            await run_workload(nodes, BankWorkload(accounts=3, operations=30), wait=True)
            await _equal(nodes, 90)
            for node in nodes:
                await node.node.digest(BANK)
                await node.node.stop()

    run_async(main)
    command = [sys.executable, "-m", "ordercast", "verify", "--no-spark", "--json", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"convergence"' in done.stdout


def _start(brokers: EmbeddedCluster, name: str, broker: str, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "ordercast.services.bank_replica", "--broker", brokers.address_of(broker)]
    return subprocess.Popen(
        [*command, "--name", name, "--accounts", "5", "--interval-ms", "10", *options],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": "src"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


async def _end(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = await asyncio.to_thread(process.communicate, None, 60)
    assert process.returncode == 0, err or out
    summary: dict[str, Any] = json.loads(out)
    return summary


def test_replica_processes_agree_although_one_is_killed_again_and_again(tmp_path: Path) -> None:
    """Its operations are asked for by the others; the one that is killed resumes with its store and its session."""

    async def main() -> None:
        async with cluster(brokers=2) as brokers:
            expect = ("--expect", "600")
            steady = [
                _start(brokers, name, "b0", "--operations", "300", "--history", str(tmp_path / name))
                for name in ("c0", "c1")
            ]
            chance = random.Random(7)
            durable = ("--store", str(tmp_path / "bank.db"), "--data", str(tmp_path / "data"))
            for _ in range(3):
                victim = _start(brokers, "v", "b1", *durable, *expect)
                await until((tmp_path / "bank.db-wal").exists)
                await asyncio.sleep(chance.uniform(0.3, 1.2))
                victim.kill()
                await asyncio.to_thread(victim.communicate)
            survivor = _start(brokers, "v", "b1", *durable, "--history", str(tmp_path / "v"), *expect)
            summaries = [await _end(survivor)]
            for process in steady:
                process.send_signal(signal.SIGTERM)
            summaries += [await _end(process) for process in steady]
            assert len({summary["digest"] for summary in summaries}) == 1
            assert {summary["total_cents"] for summary in summaries} != {0}
            histories = [
                msgspec.json.decode((tmp_path / name).read_bytes(), type=ReplicaHistory) for name in ("c0", "c1", "v")
            ]
            assert bank_violations(histories) == []

    run_async(main, timeout_s=90)


def test_a_replica_process_ends_in_good_order_on_sigterm(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(brokers=1) as brokers:
            process = _start(brokers, "c0", "b0", "--operations", "100000", "--trace", str(tmp_path))
            await until(lambda: any('"deliver"' in p.read_text() for p in tmp_path.glob("journals/*")))
            process.send_signal(signal.SIGTERM)
            summary = await _end(process)
            assert summary["complete"]
            assert 0 < summary["applied"] <= summary["asked"] < 100000

    run_async(main)


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (["--broker", "127.0.0.1:1"], 3, "cannot connect to 127.0.0.1:1"),
        (["--broker", "nonsense"], 2, "nonsense"),
        (["--broker", "127.0.0.1:1", "--mix", "1,2"], 2, "2 shares"),
        (["--broker", "127.0.0.1:1", "--mix", "1,1,1"], 2, "add up to 1"),
    ],
)
def test_bad_usage_of_the_process_is_one_line(options: list[str], status: int, words: str) -> None:
    command = [sys.executable, "-m", "ordercast.services.bank_replica", "--name", "x", "--connect-s", "1"]
    done = subprocess.run(
        [*command, *options], cwd=ROOT, env={**os.environ, "PYTHONPATH": "src"}, capture_output=True, text=True,
        check=False, timeout=30,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_the_example_runs() -> None:
    done = subprocess.run(
        [sys.executable, "examples/bank.py"], cwd=ROOT, env={**os.environ, "PYTHONPATH": "src"}, capture_output=True,
        text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "refused: insufficient funds" in done.stdout
    assert "replicas are equal: True" in done.stdout
