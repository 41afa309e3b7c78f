"""The programs of the tutorial run as they are printed, and print what the pages say."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from ordercast.net.brokers.cluster_file import load_cluster
from ordercast.pubsub.keeping import KeepTable
from ordercast.testing import EmbeddedCluster, cluster
from tests.support.loop import run_async

PAGES = Path(__file__).parents[2] / "docs" / "tutorial"
_BLOCK = re.compile(r"```(python|text|toml)\n(.*?)```", re.DOTALL)


def blocks(page: str, kind: str) -> list[str]:
    return [body for found, body in _BLOCK.findall((PAGES / page).read_text()) if found == kind]


async def start(program: str, brokers: EmbeddedCluster, *arguments: str) -> asyncio.subprocess.Process:
    code = program.replace("127.0.0.1:7000", brokers.address)
    return await asyncio.create_subprocess_exec(sys.executable, "-c", code, *arguments, stdout=asyncio.subprocess.PIPE)


async def output(program: str, brokers: EmbeddedCluster) -> str:
    process = await start(program, brokers)
    printed, _ = await process.communicate()
    assert process.returncode == 0
    return printed.decode()


def test_requests_and_batches_run_as_printed() -> None:
    service, ask, batch = blocks("08-requests.md", "python")
    answered, handed = blocks("08-requests.md", "text")

    async def main() -> None:
        async with cluster(1) as brokers:
            serving = await start(service, brokers)
            assert serving.stdout is not None
            assert await serving.stdout.readline() == b"ready\n"
            assert await output(ask, brokers) == answered
            serving.terminate()
            await serving.wait()
            assert await output(batch, brokers) == handed

    run_async(main)


def test_history_runs_as_printed(tmp_path: Path) -> None:
    (program,) = blocks("07-history.md", "python")
    (printed,) = blocks("07-history.md", "text")
    keep = (KeepTable(filter="orders.>", max_age="30d", max_bytes="10GB"),)

    async def main() -> None:
        async with cluster(3, data=tmp_path, keep=keep) as brokers, brokers.connect("shop") as shop:
            for number in range(1, 501):
                shop.publish_soon("orders.eu", b"%d" % number)
            await shop.flush("delivered")
            assert await output(program, brokers) == printed

    run_async(main)


def test_shared_work_runs_as_printed(tmp_path: Path) -> None:
    worker, publisher = blocks("09-shared-work.md", "python")
    (tmp_path / "work.toml").write_text(blocks("09-shared-work.md", "toml")[0])
    keep = load_cluster(tmp_path / "work.toml").keep

    async def main() -> None:
        async with cluster(1, data=tmp_path, keep=keep) as brokers:
            workers = [await start(worker, brokers, name) for name in ("ann", "bob")]
            for process in workers:
                assert process.stdout is not None
                assert await process.stdout.readline() == b"ready\n"
            await output(publisher, brokers)
            lines = await printed(workers, 10)
            for process in workers:
                process.terminate()
                await process.wait()

            orders = [f"{customer} order {i}" for i in range(4) for customer in ("iris", "jack")]
            expected = [*orders, "jack broken", "jack last"]
            assert sorted(line for one in lines for line in one) == sorted(expected)
            for one in lines:  # Which of two processes printed first, their pipes do not tell.
                for customer in ("iris", "jack"):
                    mine = [line for line in one if line.startswith(customer)]
                    assert mine == [line for line in expected if line in mine]

    run_async(main)


async def printed(workers: list[asyncio.subprocess.Process], count: int) -> list[list[str]]:
    """The next lines of each of them, so many together."""
    lines: list[list[str]] = [[] for _ in workers]
    reading = {_line_of(process): i for i, process in enumerate(workers)}
    while sum(map(len, lines)) < count:
        done, _ = await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            i = reading.pop(task)
            lines[i].append(task.result().decode().rstrip())
            reading[_line_of(workers[i])] = i
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)
    return lines


def _line_of(process: asyncio.subprocess.Process) -> asyncio.Task[bytes]:
    assert process.stdout is not None
    return asyncio.create_task(process.stdout.readline())
