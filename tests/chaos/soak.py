"""Brokers that run for long: `python -m tests.chaos.soak --minutes 30`.

Three broker processes; sessions and topics come and go, a filter reads them all, and one broker is killed and comes
back again and again. After a quarter of the time, the memory and the open files of the brokers that were never killed
may grow by no more than a small slope, and the judge must find nothing wrong with what the clients saw.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import uvloop

from ordercast import SessionLost, testing
from tests.support.chaos import GUARANTEES
from tests.support.chaos_run import judge_living
from tests.support.pubsub_lab import complaints

MOST_KB_A_MINUTE = 1024
MOST_FILES_A_MINUTE = 0.5
_SETTLES_MINUTES = 10
"""Of shorter runs the slope says little: there a broker may still be filling what it keeps at most."""
_KILL_EVERY_S = 20.0
_SAMPLE_EVERY_S = 2.0
_READ_S = 1.0
_QUIET_S = 5.0
_LAST_WORDS = 4000


class Soak:
    def __init__(self, cluster: testing.ProcessCluster, trace: Path, seconds: float) -> None:
        self.cluster = cluster
        self.trace = trace
        self.began = time.monotonic()
        self.seconds = seconds
        self.sessions = self.failed = self.kills = self.read = self.given_up = 0
        self.samples: dict[tuple[str, int], list[tuple[float, int, int]]] = {}
        """Of each life of a broker: minutes, KB and open files."""

    @property
    def goes_on(self) -> bool:
        return time.monotonic() - self.began < self.seconds

    async def sessions_come_and_go(self, who: int) -> None:
        while self.goes_on:
            self.sessions += 1
            name, topic = f"s{who}x{self.sessions}", f"t.{self.sessions % 50}"
            try:
                async with self.cluster.connect(name, broker=f"b{who % 2}", trace=self.trace) as client:
                    inbox = await client.subscribe(topic, timeout=20)
                    for i in range(5):
                        await client.publish(topic, b"%d" % i, guarantee=GUARANTEES[i % 4], timeout=20)
                    with suppress(TimeoutError):
                        await inbox.get(timeout=_READ_S)
            except Exception as error:  # noqa: BLE001 - counted and shown; whether it was right is the judge's word
                self.failed += 1
                print(f"  {name}: {type(error).__name__}: {error}", flush=True)

    async def a_filter_reads(self) -> None:
        """On a machine that stands still for `member_timeout_ms` a reader is given up, as promised: it comes anew."""
        done = False
        while not done:
            try:
                await self._read_all()
                done = True
            except SessionLost as error:
                self.given_up += 1
                print(f"  the reader: {error}", flush=True)

    async def _read_all(self) -> None:
        async with self.cluster.connect("reader", broker="b1", trace=self.trace) as client:
            inbox = await client.subscribe("t.*")
            while True:  # Until all sessions have ended and nothing is on its way to it any more.
                try:
                    await inbox.get(timeout=_QUIET_S)
                    self.read += 1
                except TimeoutError:
                    if not self.goes_on:
                        return

    async def one_is_killed(self) -> None:
        while self.goes_on:
            await asyncio.sleep(min(_KILL_EVERY_S, max(0.0, self.seconds - (time.monotonic() - self.began))))
            if self.goes_on:
                await self.cluster.kill("b2")
                await self.cluster.restart("b2")
                self.kills += 1

    async def sample(self) -> None:
        while self.goes_on:
            await asyncio.sleep(_SAMPLE_EVERY_S)
            for broker in self.cluster.ids:
                process = self.cluster.cluster.process(broker)
                with suppress(OSError):
                    if process is not None:
                        minutes = (time.monotonic() - self.began) / 60
                        row = (minutes, _rss_kb(process.pid), len(list(Path(f"/proc/{process.pid}/fd").iterdir())))
                        self.samples.setdefault((broker, process.pid), []).append(row)

    def endings(self) -> list[str]:
        """Brokers that nobody killed and that are not there any more, each with the end of its log."""
        found = []
        for broker in self.cluster.ids:
            if self.cluster.cluster.process(broker) is None:
                log = (self.cluster.cluster.run_directory / f"{broker}.log").read_text(errors="replace")
                found.append(f"{broker} ended by itself: {log[-_LAST_WORDS:]}")
        return found

    def growth(self) -> list[str]:
        """What grew too fast, after the first quarter."""
        found = []
        for (broker, _), rows in self.samples.items():
            late = np.array([row for row in rows if row[0] * 60 > self.seconds / 4], float)
            if broker == "b2" or len(late) < 3:
                continue
            kb, files = (np.polyfit(late[:, 0], late[:, column], 1)[0] for column in (1, 2))
            told = f"{broker}: {late[0, 1]:.0f} to {late[-1, 1]:.0f} KB ({kb:+.0f} a minute)"
            told += f", {late[0, 2]:.0f} to {late[-1, 2]:.0f} files ({files:+.2f} a minute)"
            print(told, flush=True)
            if self.seconds >= _SETTLES_MINUTES * 60 and (kb > MOST_KB_A_MINUTE or files > MOST_FILES_A_MINUTE):
                found.append(f"grows: {told}")
        return found


def _rss_kb(pid: int) -> int:
    """Raises ProcessLookupError if the process has just been killed."""
    resident = Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()
    if not resident:
        raise ProcessLookupError(pid)
    return int(resident[0])


async def soak(minutes: float, directory: Path) -> list[str]:
    """Everything that is wrong."""
    trace = directory / "run"
    async with testing.cluster(3, trace=trace, processes=True) as cluster:
        assert isinstance(cluster, testing.ProcessCluster)
        run = Soak(cluster, trace, minutes * 60)
        busy = [run.sessions_come_and_go(who) for who in range(4)]
        await asyncio.gather(*busy, run.a_filter_reads(), run.one_is_killed(), run.sample())
        ended = run.endings()
    print(f"{run.sessions} sessions ({run.failed} failed), {run.read} read, {run.kills} kills,", flush=True)
    print(f"the reader was given up {run.given_up} times", flush=True)
    verdict, _ = judge_living(trace)
    return [*ended, *run.growth(), *complaints(verdict)]


def main() -> int:
    """0 if nothing grows and nothing is violated."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long (default: 30)")
    minutes = parser.parse_args().minutes
    with (
        tempfile.TemporaryDirectory(prefix="ordercast-soak-") as directory,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        problems = runner.run(soak(minutes, Path(directory)))
    print(*problems[:10], f"soak: {minutes:g} minutes, {len(problems)} problems", sep="\n", flush=True)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
