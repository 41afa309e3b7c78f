"""The examples do what they say."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from ordercast.testing import cluster
from tests.support.loop import run_async

ROOT = Path(__file__).parents[2]


async def output(example: str, *arguments: str) -> list[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(ROOT / "examples" / example), *arguments,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    told, _ = await process.communicate()
    assert process.returncode == 0
    return told.decode().splitlines()


def test_hello() -> None:
    assert run_async(lambda: output("pubsub_hello.py")) == [
        "alice accounts.PT 162550483: deposit 10",
        "alice accounts.PT 162550483: interest",
    ]


def test_failover() -> None:
    lines = run_async(lambda: output("pubsub_failover.py"))
    assert [line.split()[1] for line in lines[:2]] == ["disconnected", "connected"]
    assert lines[-1] == "200 messages, in order: True"


def test_a_replicated_set_differs_on_flooding_and_is_equal_on_preventive_broadcast() -> None:
    lines = run_async(lambda: output("replicated_set.py"))
    assert lines[0] == "flood-overlay:"
    assert lines[4] == "  THE REPLICAS DIFFER"
    assert lines[5] == "preventive:"
    in_order = "insert draft, remove draft -> {}"
    assert lines[6:9] == [f"  {name} saw {in_order}" for name in ("ann", "bob", "dan")]
    assert lines[9] == "  the replicas are equal"


def test_without_asyncio() -> None:
    async def main() -> None:
        async with cluster(brokers=1) as brokers:
            lines = await output("pubsub_blocking.py", brokers.address)
            assert lines == ["hello ann", "hello bob", "hello cho"]

    run_async(main)


def test_shared_work_has_its_effects_exactly_once() -> None:
    lines = run_async(lambda: output("shared_work.py"))
    assert lines == [f"account-{i}: 100" for i in range(5)]
