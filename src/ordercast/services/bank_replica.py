"""A bank replica as a process: `python -m ordercast.services.bank_replica --broker HOST:PORT --name c0 ...`.

It joins, does its workload, waits until it has applied as many operations as it was told to expect (or until SIGTERM),
and prints one JSON line. SIGTERM and SIGINT end it in good order at any time. Exit 0 done; 1 the session was lost or
not everything arrived in time; 2 bad usage; 3 no broker answers.

One that is `--led` also prints a line when it has joined and whenever it loses or finds a broker, begins its workload
at the first line on its standard input, and ends when that ends: it does not outlive whoever leads it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from collections.abc import Awaitable, Sequence
from pathlib import Path

import msgspec
import uvloop

import ordercast.api as api
from ordercast.core.errors import UsageError
from ordercast.core.ids import Topic
from ordercast.net.supervise.parent_death import end_with_standard_input
from ordercast.net.wire.settings import WireSettings
from ordercast.services.bank import TOPIC, bank_on
from ordercast.services.bank_checks import BankStep, ReplicaHistory, balances_of, steps_of
from ordercast.services.bank_workload import BankWorkload
from ordercast.services.bus import BusSessionLost
from ordercast.services.client_bus import ClientBus
from ordercast.services.dispatcher import Dispatcher
from ordercast.services.frontend import ServiceFront
from ordercast.services.node import ReplicaNode
from ordercast.services.operations import OperationRefused
from ordercast.services.replica import Applied, Replica
from ordercast.services.stores import open_store


class Summary(msgspec.Struct):
    """The line it prints."""

    replica: str
    session: str
    asked: int = 0
    applied: int = 0
    refused: int = 0
    from_snapshot: bool = False
    complete: bool = False
    digest: str = ""
    total_cents: int = 0
    mean_ms: dict[str, float] = {}
    """From the call to its answer, by operation."""
    problem: str = ""


class BankTold(msgspec.Struct):
    """A supervised replica's news: `joined`, `connected` to or `disconnected` from a broker."""

    event: str
    detail: str = ""


class BankReplica:
    """One run of the process."""

    def __init__(self, options: argparse.Namespace, client: api.Client) -> None:
        self._options = options
        self._workload = _workload(options)
        dispatcher = Dispatcher()
        self._bank = bank_on(options.topic)
        dispatcher.register(self._bank())
        self.node = ReplicaNode(
            ClientBus(client), open_store(options.store), dispatcher, topics=[options.topic],
            observe=self._observe, restored=self._restored, note=client.note,
        )  # fmt: skip
        self.history = ReplicaHistory(options.name, [], {})
        self.summary = Summary(options.name, client.session)
        self._progress = asyncio.Event()
        self._spent: dict[str, list[float]] = {}
        self._told_to_begin = asyncio.Event()
        if options.led:
            loop = asyncio.get_running_loop()
            end_with_standard_input(lambda: loop.call_soon_threadsafe(self._told_to_begin.set))
            client.on_event(lambda event: _say(BankTold(event.kind, event.detail)))

    def _observe(self, applied: Applied) -> None:
        steps: list[BankStep] = steps_of(applied)
        self.history.steps += steps
        self.summary.applied += 1
        self.summary.refused += applied.outcome.refused is not None
        self._progress.set()

    def _restored(self, replica: Replica) -> None:
        self.summary.from_snapshot = True
        self._begin_from(replica)

    def _begin_from(self, replica: Replica) -> None:
        """The history is not whole: what is there already was done by somebody else, or in an earlier life."""
        self.history.initial = balances_of(replica, self._options.topic)
        self.history.whole = not replica.received(Topic(self._options.topic))

    async def run(self, ended: asyncio.Event) -> None:
        self._begin_from(self.node.replica)
        try:
            if not await _first(self.node.start(), ended):
                self.summary.problem = "stopped before it had the state of the others"
                return
            if self._options.led:
                _say(BankTold("joined"))
                await _first(self._told_to_begin.wait(), ended, self.node.over)
            await _first(self._work(), ended, self.node.over)
            await _first(self._everything(), ended, self.node.over)
            if self.node.lost is not None:
                self.summary.problem = str(self.node.lost)
            self.summary.complete = not self._options.expect or await self.node.look(self._has_everything)
            await self._conclude()
        finally:
            await self.node.stop()

    async def _work(self) -> None:
        bank = self.node.frontend(publish_reads=not self._options.local_reads).of(self._bank)
        begin = time.monotonic()
        async with asyncio.TaskGroup() as asking:
            for number, (name, arguments) in enumerate(self._workload.calls(self._options.name)):
                await asyncio.sleep(max(0.0, begin + number * self._workload.interval_ms / 1000 - time.monotonic()))
                await self.node.drain()
                asking.create_task(self._ask(bank, name, arguments))
                self.summary.asked += 1

    async def _ask(self, bank: ServiceFront, name: str, arguments: tuple[object, ...]) -> None:
        start = time.perf_counter()
        try:
            await getattr(bank, name)(*arguments)
        except OperationRefused:
            pass  # It is in the history, like everything else.
        except BusSessionLost as lost:
            self.summary.problem = str(lost)
        self._spent.setdefault(name, []).append(time.perf_counter() - start)

    def _has_everything(self, replica: Replica) -> bool:
        """All operations that anybody asks for, whether they came one by one or inside a snapshot."""
        received = replica.received(Topic(self._options.topic))
        count = sum(low + len(extras) for low, extras in received.values())
        return count >= int(self._options.expect)

    async def _everything(self) -> None:
        """Until all is here, or time is up; without an expectation, until the signal."""
        patience = self._options.patience_s if self._options.expect else None
        try:
            async with asyncio.timeout(patience):
                while not self._options.expect or not await self.node.look(self._has_everything):
                    await self._progress.wait()
                    self._progress.clear()
        except TimeoutError:
            self.summary.problem = f"not all of {self._options.expect} operations arrived within {patience:g} s"

    async def _conclude(self) -> None:
        self.history.balances = await self.node.look(lambda replica: balances_of(replica, self._options.topic))
        self.summary.total_cents = sum(self.history.balances.values())
        self.summary.mean_ms = {n: round(1000 * sum(s) / len(s), 3) for n, s in sorted(self._spent.items())}
        if self.summary.complete:
            self.summary.digest = await self.node.digest(self._options.topic)
        if self._options.history is not None:
            self._options.history.write_bytes(msgspec.json.encode(self.history))


def _workload(options: argparse.Namespace) -> BankWorkload:
    return BankWorkload(
        accounts=options.accounts, operations=options.operations, eventual=options.mix[0],
        causal=options.mix[1], total=options.mix[2], interval_ms=options.interval_ms, seed=options.seed,
    )  # fmt: skip


def _say(line: BankTold | Summary) -> None:
    sys.stdout.write(json.dumps(msgspec.to_builtins(line)) + "\n")
    sys.stdout.flush()


async def _first(work: Awaitable[object], *ends: asyncio.Event) -> bool:
    """Whether the work was done before one of the ends came."""
    doing = asyncio.ensure_future(work)
    waiting = [asyncio.ensure_future(end.wait()) for end in ends]
    try:
        await asyncio.wait({doing, *waiting}, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            doing.result()
        return doing.done()
    finally:
        for task in (doing, *waiting):
            task.cancel()
        await asyncio.gather(doing, *waiting, return_exceptions=True)


async def run(options: argparse.Namespace) -> Summary:
    """Connect, replicate, report."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    client = await api.connect(
        options.broker,
        client_id=options.name,
        token=options.token,
        data=options.data,
        trace=options.trace,
        timeout=options.connect_s,
        wire=_limits(options.limits),
    )
    try:
        replica = BankReplica(options, client)
    except BaseException:
        await client.close()
        raise
    try:
        await replica.run(ended)
    except BusSessionLost as lost:
        replica.summary.problem = str(lost)
    return replica.summary


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        _workload(options)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            summary = runner.run(run(options))
    except UsageError as error:
        sys.stderr.write(f"bank replica {options.name}: {error}\n")
        return 2
    except api.ConnectError as error:
        sys.stderr.write(f"bank replica {options.name}: {error}\n")
        return 3
    _say(summary)
    return 1 if summary.problem else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ordercast.services.bank_replica", description=__doc__)
    parser.add_argument("--broker", required=True, action="append", help="HOST:PORT; several to have a choice")
    parser.add_argument("--name", required=True, help="client id of this replica")
    parser.add_argument("--token", default="", help="the client's token")
    parser.add_argument("--topic", default=TOPIC)
    parser.add_argument("--store", default="memory", help="memory, the path of a SQLite file, or a postgresql:// DSN")
    parser.add_argument("--data", type=Path, help="directory of the client's own durable state")
    parser.add_argument("--trace", type=Path, help="run directory to record into")
    parser.add_argument("--history", type=Path, help="file for what it did, for the bank checks")
    parser.add_argument("--accounts", type=int, default=100)
    parser.add_argument("--operations", type=int, default=0, help="to ask for, itself")
    parser.add_argument("--mix", type=_mix, default=(0.4, 0.3, 0.3), help="eventual,causal,total; default 0.4,0.3,0.3")
    parser.add_argument("--interval-ms", type=float, default=50.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--local-reads", action="store_true", help="answer eventual reads without publishing them")
    parser.add_argument("--expect", type=int, default=0, help="operations of all replicas together; 0: until SIGTERM")
    parser.add_argument("--connect-s", type=float, default=10.0, help="how long to look for a broker")
    parser.add_argument("--patience-s", type=float, default=60.0, help="how long to wait for the expected ones")
    parser.add_argument("--limits", type=Path, help="file with the limits of its connections, as JSON")
    parser.add_argument("--led", action="store_true", help="begin at a line of standard input, end with its end")
    return parser


def _limits(path: Path | None) -> WireSettings | None:
    if path is None:
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=WireSettings)
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _mix(text: str) -> tuple[float, float, float]:
    shares = tuple(float(share) for share in text.split(","))
    if len(shares) != 3:
        raise argparse.ArgumentTypeError(f"{text!r} has {len(shares)} shares instead of 3")
    return shares


if __name__ == "__main__":
    sys.exit(main())
