"""Workers that run nodes for a cluster: in a process of their own, or in this one."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Protocol

import msgspec

from ordercast.core.errors import InvariantError, UsageError
from ordercast.core.ids import NodeId
from ordercast.net.supervise.orders import Addresses, Assignment, WorkerAnswer, WorkerOrder
from ordercast.net.supervise.process import REFUSED, party_of
from ordercast.protocols import lookup


class KilledEarlyError(UsageError):
    """Somebody ended a process before it had begun to live."""


class Worker(Protocol):
    """Port to a worker: it runs some of the nodes and carries out orders."""

    nodes: list[NodeId]

    async def ask(self, order: WorkerOrder) -> WorkerAnswer:
        """Have an order carried out."""

    async def kill(self) -> None:
        """End it without a word."""

    async def join(self) -> None:
        """Wait until it has stopped as it was told."""

    async def lost(self) -> int:
        """Wait until somebody else ends it, if that happens at all; with which signal."""

    def pause(self) -> None:
        """Make it stand still."""

    def resume(self) -> None:
        """Let it go on."""


class LocalWorker:
    """Nodes in this process and this event loop: quick to start. It cannot be paused, and a kill is a clean stop."""

    def __init__(self, assignment: Assignment) -> None:
        self.nodes = assignment.nodes
        self._party = party_of(assignment, lookup(assignment.protocol))

    @classmethod
    async def start(cls, assignment: Assignment, _log: Path) -> tuple[Worker, Addresses]:
        worker = cls(assignment)
        return worker, (await worker._party.listen()).addresses

    async def ask(self, order: WorkerOrder) -> WorkerAnswer:
        return await self._party.obey(order)

    async def kill(self) -> None:
        await self._party.close()

    async def join(self) -> None:
        """Nothing to do: there is no other process to wait for."""

    async def lost(self) -> int:
        """Nodes that share this process do not outlive it, and it does not outlive them."""
        never: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        return await never

    def pause(self) -> None:
        raise InvariantError("nodes that share a process cannot be paused")

    def resume(self) -> None:
        raise InvariantError("nodes that share a process cannot be paused")


class _Refusal(msgspec.Struct):
    """The last line of a log, as far as it matters."""

    failure: str


class ProcessWorker:
    """One child process and the pipes to it."""

    def __init__(self, nodes: list[NodeId], process: asyncio.subprocess.Process, log: Path) -> None:
        self.nodes = nodes
        self._process = process
        self._log = log
        self._turn = asyncio.Lock()
        self._killed = False

    @classmethod
    async def start(cls, assignment: Assignment, log: Path) -> tuple[Worker, Addresses]:
        with log.open("ab") as stderr:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "ordercast.net.supervise.process",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=stderr, limit=1 << 24,
            )  # fmt: skip
        worker = cls(assignment.nodes, process, log)
        try:
            answer = await worker._ask(msgspec.json.encode(assignment))
        except BaseException:
            await worker.kill()
            raise
        if not answer.addresses:
            raise KilledEarlyError(f"the process of {', '.join(assignment.nodes)} was killed before it had started")
        return worker, answer.addresses

    async def ask(self, order: WorkerOrder) -> WorkerAnswer:
        return await self._ask(msgspec.json.encode(order))

    async def _ask(self, line: bytes) -> WorkerAnswer:
        """One question at a time; whoever was killed has nothing more to say."""
        async with self._turn:
            answer = await self._exchange(line)
        if answer:
            return msgspec.json.decode(answer, type=WorkerAnswer)
        code = await self._process.wait()
        if self._killed or code < 0:
            return WorkerAnswer()
        if code == REFUSED:
            raise UsageError(self._reason())
        raise InvariantError(f"the process of {', '.join(self.nodes)} ended by itself: {self._last_words()}")

    async def _exchange(self, line: bytes) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if self._process.returncode is not None:
            return b""
        try:
            self._process.stdin.write(line + b"\n")
            await self._process.stdin.drain()
            return await self._process.stdout.readline()
        except (BrokenPipeError, ConnectionResetError):
            return b""

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:  # The dead neither stand still nor go on.
            self._process.send_signal(number)

    async def lost(self) -> int:
        code = await self._process.wait()
        if self._killed or code >= 0:
            # It was meant to end, or ended by itself: whoever asks it next will notice.
            await asyncio.get_running_loop().create_future()
        return -code

    async def kill(self) -> None:
        self._killed = True
        if self._process.returncode is None:
            self._process.kill()
        await self.join()

    async def join(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._process.wait()

    def _reason(self) -> str:
        """Why it refused to go on, in its own words."""
        words = self._last_words()
        try:
            return msgspec.json.decode(words, type=_Refusal).failure
        except msgspec.MsgspecError:
            return words

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it left no log"
