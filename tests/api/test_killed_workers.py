"""Workers that are real processes, killed with kill -9 while they work."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.api.test_shared_work import kept_cluster, publish
from tests.support.loop import run_async, until

_WORKER = Path(__file__).parents[1] / "support" / "killed_worker.py"


class Workers:
    """Processes that share the work, and the diary that they all write."""

    def __init__(self, address: str, diary: Path) -> None:
        self._address = address
        self._diary = diary
        self._processes: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, name: str) -> None:
        self._processes[name] = await asyncio.create_subprocess_exec(
            sys.executable, str(_WORKER), self._address, name, str(self._diary), env={**os.environ}
        )

    def kill(self, name: str) -> None:
        self._processes[name].send_signal(signal.SIGKILL)

    async def end(self) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                process.kill()
            await process.wait()

    def lines(self, kind: str) -> list[tuple[str, str, int]]:
        """Who did which number of which key, in order."""
        written = self._diary.read_text().split("\n")[:-1] if self._diary.exists() else []
        found = [line.split() for line in written]
        return [(name, key, int(number)) for what, name, key, number in found if what == kind]

    def left(self, last: int) -> set[int]:
        return set(range(1, last + 1)) - {number for _, _, number in self.lines("done")}

    def in_hand(self, killed: str) -> set[int]:
        """What it may have done for good without a word in the diary: it was killed between the two."""
        return set([number for who, _, number in self.lines("begun") if who == killed][-1:])


def test_the_work_of_a_killed_process_is_done_by_others_in_the_order_of_its_keys(tmp_path: Path) -> None:
    async def main() -> None:
        async with kept_cluster(tmp_path / "brokers") as brokers, brokers.connect("ann") as ann:
            workers = Workers(brokers.address, tmp_path / "diary")
            try:
                last = 0
                for name in ("w0", "w1"):  # The first one leads: nobody else is there.
                    await workers.start(name)
                    await until(lambda: any(who == name for who, _, _ in workers.lines("here")))  # noqa: B023
                    while not any(who == name for who, _, _ in workers.lines("begun")):
                        await publish(ann, last + 1, last + 8, keys=8)
                        last += 8
                        await asyncio.sleep(0.1)
                await publish(ann, last + 1, last + 40, keys=8)
                last += 40
                workers.kill("w0")
                await until(lambda: workers.left(last) <= workers.in_hand("w0"), timeout_s=50)
            finally:
                await workers.end()

            for key in range(8):
                first = list(dict.fromkeys(number for _, k, number in workers.lines("begun") if k == f"k{key}"))
                assert first == [number for number in range(1, last + 1) if number % 8 == key]
            done = [number for _, _, number in workers.lines("done")]
            assert len(done) == len(set(done)), "what one was told to be done, another was handed again"

    run_async(main)
