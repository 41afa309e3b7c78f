"""Shared work under faults of real processes: `python -m tests.chaos.work --seeds 20 --first 0 [--spare]`.

Five brokers keep a topic and what its group writes down in two copies each. Publishers publish and wait for `safe`;
workers deal with units, retry some, and are killed, stopped and started again while brokers are killed, stand still,
lose their connections or are cut off. With `--spare` a copy of each topic is in the tree at all times, and nothing may
be missing or done again; otherwise both copies, or all brokers, are killed together now and then. Judged from books
that the processes wrote themselves (`tests/support/work_books.py`); a run that fails keeps its directory, and names it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, cast

import msgspec
import uvloop

from ordercast.api import connect
from ordercast.api.errors import ConnectError
from ordercast.client.work.words import group_topic
from ordercast.core.ids import NodeId, Topic
from ordercast.net.brokers.cluster import BrokerCluster, BrokerState
from ordercast.pubsub.keeping import KeepTable, ranked
from tests.support.chaos_run import ROOT, SETTINGS, behind_proxies, draws
from tests.support.proxy import Proxy
from tests.support.work_books import FOREVER, Facts, Problem, WorkBooks, read_books
from tests.support.work_process import GROUP, LEADS, Task
from tests.support.work_records import first_written

_BROKERS, _COPIES, _WORKERS, _PUBLISHERS = 5, 2, 4, 2
_PATIENCE_S = 60.0
_STEP_S = 0.2


class TaskProcess:
    """One of the processes, life after life."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.process: asyncio.subprocess.Process | None = None
        self.wanted = True
        """It is started again when it has ended by itself."""

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    @property
    def life(self) -> str:
        """As its book is called."""
        return f"{self.task.name}@{self.process.pid if self.process is not None else 0}"

    async def start(self) -> None:
        if self.running:
            return
        with (Path(self.task.books) / f"{self.task.name}.err").open("ab") as errors:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.support.work_process", msgspec.json.encode(self.task).decode(),
                cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}"}, stdin=subprocess.PIPE, stderr=errors,
            )  # fmt: skip

    def send(self, number: signal.Signals) -> None:
        if self.running:
            assert self.process is not None
            self.process.send_signal(number)

    async def end(self, number: signal.Signals | None = signal.SIGKILL) -> None:
        """With that signal; None: in good order."""
        if self.process is None:
            return
        if number is not None:
            self.send(number)
        elif self.running and self.process.stdin is not None:
            self.process.stdin.close()
        async with asyncio.timeout(40):
            await self.process.wait()
        cast("Any", self.process)._transport.close()


class WorkChaos:
    """One run."""

    def __init__(self, seed: int, directory: Path, *, seconds: float, spare: bool, mutant: str = "") -> None:
        self.seed, self.directory, self.seconds, self.spare = seed, directory, seconds, spare
        self.topic = f"jobs.s{seed}"
        self.books = directory / "books"
        self.story: list[str] = []
        self.counts: Counter[str] = Counter()
        self.began = time.monotonic()
        names = [NodeId(f"b{i}") for i in range(_BROKERS)]
        record = group_topic(self.topic, GROUP)
        copies = {topic: tuple(ranked(Topic(topic), names)[:_COPIES]) for topic in (self.topic, record)}
        self.facts = Facts(copies, self.topic, record)
        self.touched: dict[str, int] = {}
        """Brokers under a fault, by how many; they are out of the tree until they are seen in it afterwards."""
        self.parents: dict[str, str] = {}
        self._out_since: dict[str, int] = {}
        self._notes: list[str] = []
        roles = [("publisher", f"p{i}") for i in range(_PUBLISHERS)] + [("worker", f"w{i}") for i in range(_WORKERS)]
        self.people = [
            TaskProcess(
                Task(
                    role=role, name=name, addresses=[], topic=self.topic, books=str(self.books), seed=str(seed),
                    count=round(seconds * 10), keys=draws(seed, "keys").choice((2, 5, 20)), mutant=mutant,
                )
            )
            for role, name in [*roles, ("undertaker", "u")]
        ]  # fmt: skip
        self.cluster: BrokerCluster
        self.proxies: list[Proxy]

    async def run(self) -> list[Problem]:
        """Everything that is wrong with it, excused or not."""
        self.books.mkdir(parents=True)
        keep = [KeepTable(filter="dead.>", copies=_BROKERS), KeepTable(filter="jobs.>", copies=_COPIES)]
        keep.append(KeepTable(filter="groups.>", copies=_COPIES, compact="key"))
        self.cluster, self.proxies = await behind_proxies(
            self.directory, Path(), _BROKERS, settings=SETTINGS, data=str(self.directory / "data"), fsync="never",
            keep=tuple(keep),
        )  # fmt: skip
        addresses = [entry.address for entry in self.cluster.config.broker]
        for i, one in enumerate(self.people):
            first = i % _BROKERS
            one.task = msgspec.structs.replace(one.task, addresses=addresses[first:] + addresses[:first])
        watching = []
        try:
            await asyncio.to_thread(self.cluster.up, 60)
            watching = [asyncio.create_task(self._watch()), asyncio.create_task(self._start_again())]
            await self._until_tree()
            await self._until(lambda books: len(books.hearts) >= _WORKERS, 60)
            self.began = time.monotonic()
            await self._faults()
            await self._heal()
            await self._until(self._is_done, _PATIENCE_S)
            await self._read_history(addresses)
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)
            for one in self.people:
                one.send(signal.SIGCONT)
            await asyncio.gather(*(one.end() for one in self.people))
            await asyncio.to_thread(self.cluster.down)
            for proxy in self.proxies:
                await proxy.close()
            (self.directory / "facts.json").write_bytes(msgspec.json.encode(self.facts))
        return self._books().problems() + self._failures()

    def _failures(self) -> list[Problem]:
        """A broker that ended by itself found a bug."""
        logs = sorted(self.cluster.run_directory.glob("*.log"))
        lines = [(log.name, line) for log in logs for line in log.read_text().splitlines()]
        return [Problem("broken", f"{n}: {line}") for n, line in lines if "Traceback" in line or "Invariant" in line]

    # What is looked at while it runs

    def _books(self) -> WorkBooks:
        out = {broker: list(spans) for broker, spans in self.facts.out.items()}
        for broker, since in self._out_since.items():
            out.setdefault(broker, []).append((since, FOREVER))
        return WorkBooks(read_books(self.books), replace(self.facts, out=out))

    async def _until(self, reached: Any, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not reached(self._books()):
            await asyncio.sleep(3 * _STEP_S)

    def _is_done(self, books: WorkBooks) -> bool:
        """All was published and done; and nobody has been handed anything for a while, which may come again."""
        publishers = [one for one in self.people if one.task.role == "publisher"]
        settled = all("settled" in self._last_word(one) for one in publishers)
        last = max((held.began for held in books.holdings), default=0)
        return settled and not books.undone() and time.monotonic_ns() - last > 3_000_000_000

    def _last_word(self, one: TaskProcess) -> str:
        path = self.books / f"{one.life}.book"
        return path.read_text().rpartition("\n")[0].rpartition("\n")[2] if path.exists() else ""

    async def _read_history(self, addresses: list[str]) -> None:
        """What is left of the topic, also on both sides of a gap, and of what leaders wrote down."""
        client = await connect(addresses, "historian", timeout=30)
        try:
            async with asyncio.timeout(30):
                kept = [message async for message in client.read([self.topic], over_gaps=True)]
                records = [message async for message in client.read([self.facts.record], over_gaps=True)]
        except (ConnectError, TimeoutError, LookupError) as error:
            self._note(f"the history cannot be read: {error}")
            return
        finally:
            await client.close()
        units = {(message.origin, message.number): message.payload.decode() for message in kept}
        self.facts = replace(self.facts, kept=frozenset(units.values()), written=first_written(units, records))

    async def _watch(self) -> None:
        """Who is in the tree, and under whom."""
        while True:
            asked = time.monotonic_ns()
            for state in await asyncio.to_thread(self.cluster.status):
                takes_part = state.state == "running" and self._takes_part(state)
                if takes_part and not self.touched.get(state.id):
                    self.parents[state.id] = str(state.detail["overlay"].get("parent") or "")
                    if self._out_since.get(state.id, asked) < asked:
                        self.facts.out.setdefault(state.id, []).append((self._out_since.pop(state.id), asked))
                elif not takes_part:
                    self._out_since.setdefault(state.id, asked - int(2 * _STEP_S * 1e9))
            await asyncio.sleep(_STEP_S)

    def _takes_part(self, state: BrokerState) -> bool:
        """Whether the broker is told of everything on the topics that it keeps."""
        topics = [topic for topic, copies in self.facts.copies.items() if state.id in copies]
        return all(state.detail["topics"].get(topic, {}).get("channel") in ("live", "root") for topic in topics)

    async def _start_again(self) -> None:
        """Somebody looks after the processes: those that ended by themselves are started again."""
        while True:
            for one in self.people:
                if one.wanted and not one.running:
                    if one.process is not None:
                        self.counts["ended by itself"] += 1
                        self._killed(one)
                        await one.end()
                    await one.start()
            await asyncio.sleep(_STEP_S)

    async def _until_tree(self) -> None:
        if not await asyncio.to_thread(self.cluster.await_tree, 60):
            raise AssertionError("no tree within 60 s")

    # Faults

    def _note(self, what: str) -> None:
        self.story.append(f"{time.monotonic() - self.began:6.2f} s: {what}")

    def _killed(self, one: TaskProcess) -> None:
        with (self.books / "driver.book").open("a") as book:
            book.write(f"{time.monotonic_ns()} killed {one.life} -\n")

    def _with_those_below(self, brokers: Iterable[str]) -> set[str]:
        found = set(brokers)
        while more := {child for child, parent in self.parents.items() if parent in found} - found:
            found |= more
        return found

    def _may(self, brokers: Iterable[str]) -> bool:
        """Whether a copy of each topic stays in the tree, and a majority of the brokers."""
        out = self._with_those_below(brokers) | set(self._out_since) | {b for b, count in self.touched.items() if count}
        if not self.spare:
            return all(not self.touched.get(broker) for broker in brokers)
        return len(out) <= 2 and all(set(copies) - out for copies in self.facts.copies.values())

    def _touch(self, brokers: Iterable[str]) -> None:
        now = time.monotonic_ns()
        for broker in self._with_those_below(brokers):
            self._out_since.setdefault(broker, now)
        for broker in brokers:
            self.touched[broker] = self.touched.get(broker, 0) + 1

    def _leave(self, brokers: Iterable[str]) -> None:
        for broker in brokers:
            self.touched[broker] -= 1

    async def _faults(self) -> None:
        chance = draws(self.seed, "work faults")
        kinds = [self._kill, self._kill, self._pause, self._cut, self._freeze, self._kill_worker, self._kill_worker]
        kinds += [self._kill_leader, self._stop_worker, self._kill_publisher, self._restart_worker]
        if not self.spare:
            kinds += [self._kill_pair, self._kill_pair, self._kill_all]
        lasting = []
        while time.monotonic() - self.began < self.seconds:
            await asyncio.sleep(chance.random() * 0.8)
            lasting.append(asyncio.create_task(chance.choice(kinds)(Random(chance.random()))))
            if chance.random() < 0.5:
                await asyncio.gather(*lasting)
        await asyncio.gather(*lasting)

    async def _down(self, brokers: list[str], seconds: float) -> None:
        if not self._may(brokers):
            return
        self.counts["brokers killed"] += len(brokers)
        self._note(f"{', '.join(brokers)} killed for {seconds:.1f} s")
        self._touch(brokers)
        try:
            running = [b for b in brokers if self.cluster.process(b) is not None]
            await asyncio.gather(*(asyncio.to_thread(self.cluster.kill, broker) for broker in running))
            await asyncio.sleep(seconds)
            await asyncio.gather(*(asyncio.to_thread(self.cluster.restart, broker, 60) for broker in brokers))
        finally:
            self._leave(brokers)
        self._note(f"{', '.join(brokers)} back")

    async def _kill(self, chance: Random) -> None:
        await self._down([f"b{chance.randrange(_BROKERS)}"], chance.random() * 2)

    async def _kill_pair(self, chance: Random) -> None:
        self.counts["pairs killed"] += 1
        await self._down(list(chance.choice(sorted(self.facts.copies.values()))), chance.random() * 2)

    async def _kill_all(self, chance: Random) -> None:
        self.counts["all killed"] += 1
        await self._down([f"b{i}" for i in range(_BROKERS)], chance.random())

    async def _pause(self, chance: Random) -> None:
        broker = f"b{chance.randrange(_BROKERS)}"
        if not self._may([broker]) or self.cluster.process(broker) is None:
            return
        self._note(f"{broker} stands still")
        self._touch([broker])
        await asyncio.to_thread(self.cluster.kill, broker, signal.SIGSTOP)
        await asyncio.sleep(chance.choice((0.2, 1.0, 2.5)))
        await asyncio.to_thread(self.cluster.kill, broker, signal.SIGCONT)
        await asyncio.sleep(_STEP_S)  # It finds out what it has missed.
        self._leave([broker])

    async def _cut(self, chance: Random) -> None:
        number = chance.randrange(_BROKERS)
        if self._may([f"b{number}"]):
            self._note(f"connections to b{number} are reset")
            self._touch([f"b{number}"])
            self.proxies[number].cut()
            await asyncio.sleep(_STEP_S)
            self._leave([f"b{number}"])

    async def _freeze(self, chance: Random) -> None:
        number = chance.randrange(_BROKERS)
        if self._may([f"b{number}"]):
            self._note(f"nothing comes through to b{number}")
            self._touch([f"b{number}"])
            self.proxies[number].freeze()
            await asyncio.sleep(chance.choice((0.2, 1.0, 2.5)))
            self.proxies[number].thaw()
            await asyncio.sleep(_STEP_S)
            self._leave([f"b{number}"])

    def _one(self, chance: Random, role: str) -> TaskProcess | None:
        running = [one for one in self.people if one.task.role == role and one.running and one.wanted]
        return chance.choice(running) if running else None

    async def _kill_one(self, one: TaskProcess | None, seconds: float) -> None:
        if one is None:
            return
        self.counts[f"{one.task.role}s killed"] += 1
        self._note(f"{one.task.name} killed for {seconds:.1f} s")
        one.wanted = False
        await one.end()
        self._killed(one)
        one.process = None
        await asyncio.sleep(seconds)
        one.wanted = True

    async def _kill_leader(self, chance: Random) -> None:
        """Or somebody, while nobody leads."""
        leads = [one for one in self.people if f" heart {LEADS} " in self._last_word(one)]
        one = chance.choice(leads) if leads else self._one(chance, "worker")
        if one is not None and one.wanted:
            await self._kill_one(one, chance.random() * 2)

    async def _kill_worker(self, chance: Random) -> None:
        await self._kill_one(self._one(chance, "worker"), chance.random() * 2)

    async def _kill_publisher(self, chance: Random) -> None:
        await self._kill_one(self._one(chance, "publisher"), chance.random())

    async def _restart_worker(self, chance: Random) -> None:
        """In good order, and it comes back."""
        one = self._one(chance, "worker")
        if one is not None:
            self._note(f"{one.task.name} leaves")
            one.wanted = False
            await one.end(None)
            one.process, one.wanted = None, True

    async def _stop_worker(self, chance: Random) -> None:
        one = self._one(chance, "worker")
        if one is not None:
            self.counts["workers stopped"] += 1
            self._note(f"{one.task.name} stands still")
            one.send(signal.SIGSTOP)
            await asyncio.sleep(chance.choice((0.5, 2.0, 4.0)))
            one.send(signal.SIGCONT)

    async def _heal(self) -> None:
        for one in self.people:
            one.send(signal.SIGCONT)
        for proxy in self.proxies:
            proxy.thaw()
        await self._until_tree()
        self._note("all is well again")


def try_seed(
    seed: int, directory: Path, *, seconds: float = 8.0, spare: bool = False, mutant: str = ""
) -> tuple[list[Problem], WorkChaos]:
    """What is wrong with the run of this seed, and the run."""
    chaos = WorkChaos(seed, directory, seconds=seconds, spare=spare, mutant=mutant)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return runner.run(chaos.run()), chaos
        except (AssertionError, TimeoutError) as error:
            return [Problem("the run broke off", str(error))], chaos


def main() -> int:
    """Run seeds; 0 if nothing is wrong that the docs do not except."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="how many seeds (default: 10)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--seconds", type=float, default=8.0, help="how long the faults of a seed last (default: 8)")
    parser.add_argument("--spare", action="store_true", help="a copy of each topic is in the tree at all times")
    parser.add_argument("--mutant", default="", help="workers lack a rule, see tests/mutants/work_mutants.py")
    arguments = parser.parse_args()
    failed, total = 0, Counter[str]()
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        directory = Path(tempfile.mkdtemp(prefix=f"ordercast-work-{seed}-"))
        problems, chaos = try_seed(
            seed, directory, seconds=arguments.seconds, spare=arguments.spare, mutant=arguments.mutant
        )
        books = WorkBooks(read_books(chaos.books), chaos.facts)
        total += chaos.counts + Counter(units=len(books.owed()), taken=len(books.holdings), buried=len(books.dead))
        bad = [problem for problem in problems if not problem.excuse]
        failed += bool(bad)
        total += Counter(f"{problem.kind}, excused" for problem in problems if problem.excuse)
        if problems:
            print(f"\nseed {seed}: {directory}", *chaos.story, *problems[:12], sep="\n  ")
            print(Counter(problem.kind for problem in problems), flush=True)
        else:
            shutil.rmtree(directory)
        print(
            f"seed {seed}: {len(bad)} problems, {len(problems) - len(bad)} excused; {len(books.owed())} units",
            flush=True,
        )
    told = ", ".join(f"{count} {what}" for what, count in sorted(total.items()))
    print(f"work: {arguments.seeds} runs, {failed} failed; {told}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
