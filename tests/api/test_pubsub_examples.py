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


def test_without_asyncio() -> None:
    async def main() -> None:
        async with cluster(brokers=1) as brokers:
            lines = await output("pubsub_blocking.py", brokers.address)
            assert lines == ["hello ann", "hello bob", "hello cho"]

    run_async(main)
