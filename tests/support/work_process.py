"""A worker, a publisher or an undertaker as a process of its own: `python -m tests.support.work_process TASK`.

Each life has a book, to which it appends one line for everything that it does, on the disk before it goes on. The books
are all that the checker sees (`tests/support/work_books.py`). A process ends in good order when its input ends.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
import uvloop

from ordercast.api import Client, WorkLost, connect
from ordercast.api.work import Work, WorkInbox
from ordercast.client.settings import ClientSettings
from ordercast.client.work.leader import WorkSettings
from ordercast.client.work.words import dead_topic
from ordercast.testing import QUICK_LIMITS
from tests.mutants.work_mutants import MUTANTS

GROUP = "workers"
SETTINGS = WorkSettings(window=8, silent_ms=1500, max_attempts=4)
POISON = "!"
"""How the name of a unit ends that nobody can deal with."""
LEADS = "leads"
"""What stands beside the heart of the worker whose process leads: for the driver, to choose its victims."""
_LONG_S = 300.0
_HEART_S = 0.2
_IN_FLIGHT = 8


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """All that a process is told when it starts."""

    role: str
    """`worker`, `publisher` or `undertaker`."""
    name: str
    addresses: list[str]
    topic: str
    books: str
    """Directory of the books."""
    seed: str = ""
    count: int = 0
    """Units that a publisher publishes."""
    pause_s: float = 0.05
    keys: int = 4
    mutant: str = ""
    """A rule of shared work that this worker lacks."""


class Book:
    """The lines of one life: when, what, which unit, and its keys."""

    def __init__(self, directory: str, name: str) -> None:
        self.who = f"{name}@{os.getpid()}"
        self._file = os.open(Path(directory) / f"{self.who}.book", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, word: str, unit: str = "-", keys: tuple[str, ...] = (), *, lasting: bool = True) -> None:
        os.write(self._file, f"{time.monotonic_ns()} {word} {unit} {','.join(keys) or '-'}\n".encode())
        if lasting:
            os.fsync(self._file)


class WorkProcess:
    """One life."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.book = Book(task.books, task.name)
        self.chance = random.Random(f"{task.seed}/{task.name}/{time.time_ns()}")
        self.pending: dict[str, Work] = {}
        """Units in hand, also those that are to be tried again."""
        self.busy: set[asyncio.Task[None]] = set()

    async def live(self) -> None:
        task = self.task
        client = await connect(
            task.addresses, task.name, timeout=_LONG_S, wire=QUICK_LIMITS,
            settings=ClientSettings(request_ms=1000, retry_ms=100, ping_ms=500, silence_ms=2000, stability_ms=50),
        )  # fmt: skip
        role = {"worker": self._work, "publisher": self._publish, "undertaker": self._bury}[task.role]
        living = [asyncio.create_task(role(client)), asyncio.create_task(_end_of_input())]
        try:
            finished, _ = await asyncio.wait(living, return_when=asyncio.FIRST_COMPLETED)
            for one in finished:
                one.result()
        finally:
            for one in living:
                one.cancel()
            await asyncio.gather(*living, return_exceptions=True)
            with suppress(ConnectionError, TimeoutError):
                await client.close(timeout=5.0)
        self.book.write("left")

    async def _work(self, client: Client) -> None:
        inbox = await client.subscribe(
            self.task.topic, group=GROUP, start="earliest", work=SETTINGS, timeout=_LONG_S
        )  # fmt: skip
        beating = asyncio.create_task(self._beat(inbox))
        try:
            async for message in inbox:
                unit = message.payload.decode()
                self.book.write("take", unit, tuple(key for key in message.keys if key))
                self.pending[unit] = message
                self._spawn(unit, message)
        finally:
            beating.cancel()

    def _spawn(self, unit: str, message: Work) -> None:
        dealing = asyncio.create_task(self._deal(unit, message))
        self.busy.add(dealing)
        dealing.add_done_callback(self.busy.discard)

    async def _deal(self, unit: str, message: Work) -> None:
        await asyncio.sleep(self.chance.random() * 0.04)
        if message.over:
            return
        if unit.endswith(POISON) or (message.attempt == 1 and self.chance.random() < 0.05):
            self.book.write("retry", unit)
            message.retry(after=self.chance.random() * 0.05, reason="it cannot be done")
            return
        self.book.write("said", unit)
        del self.pending[unit]
        try:
            await message.done()
            self.book.write("done", unit)
        except WorkLost:
            self.book.write("lost", unit)

    async def _beat(self, inbox: WorkInbox) -> None:
        """Alive, and waiting for work; and what was taken away is noted, also what waits to be tried again."""
        while True:
            for unit in [unit for unit, message in self.pending.items() if message.over]:
                del self.pending[unit]
                self.book.write("lost", unit)
            self.book.write("heart", LEADS if inbox.leads else "-", lasting=False)
            await asyncio.sleep(_HEART_S)

    async def _publish(self, client: Client) -> None:
        task, chance = self.task, self.chance
        gate = asyncio.Semaphore(_IN_FLIGHT)

        async def publish(unit: str, keys: tuple[str, ...]) -> None:
            self.book.write("ask", unit, keys)
            await client.publish(task.topic, unit.encode(), keys=keys, ack="safe")
            self.book.write("safe", unit)
            gate.release()

        publishing = []
        for i in range(task.count):
            await gate.acquire()
            drawn = chance.sample(range(task.keys), chance.choice((0, 1, 1, 1, 1, 2)))
            name = f"{self.book.who}:{i}{POISON if chance.random() < 0.02 else ''}"
            publishing.append(asyncio.create_task(publish(name, tuple(f"k{key}" for key in sorted(drawn)))))
            await asyncio.sleep(task.pause_s * 2 * chance.random())
        await asyncio.gather(*publishing)
        self.book.write("settled")
        await asyncio.Event().wait()  # Until its input ends.

    async def _bury(self, client: Client) -> None:
        dead = dead_topic(self.task.topic, GROUP)
        async for message in await client.subscribe(dead, start="earliest", timeout=_LONG_S):
            self.book.write("dead", message.payload.decode())


async def _end_of_input() -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()


def main() -> None:
    task = msgspec.json.decode(sys.argv[1], type=Task)
    if task.mutant:
        MUTANTS[task.mutant][0](pytest.MonkeyPatch())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(WorkProcess(task).live())


if __name__ == "__main__":
    main()
