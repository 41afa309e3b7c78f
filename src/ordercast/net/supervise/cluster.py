"""A scenario with real processes on this machine: started, loaded, killed, paused, drained, and collected."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from ordercast.core.errors import InvariantError, UsageError
from ordercast.core.ids import NodeId
from ordercast.net.nodes.neighbours import Address
from ordercast.net.supervise.orders import Addresses, Assignment, NodeStatus, WorkerAnswer, WorkerOrder, journal_path
from ordercast.net.supervise.plan import RunPlan
from ordercast.net.supervise.workers import KilledEarlyError, LocalWorker, ProcessWorker, Worker
from ordercast.net.wire.settings import ns
from ordercast.protocols import lookup
from ordercast.scenario.choosing import claimed_guarantee, protocol_of
from ordercast.scenario.model import Crash, Fault, Pause, Scenario
from ordercast.trace.collect import JournalLife, collect
from ordercast.trace.schema import STATE_KEPT, STATE_LOST
from ordercast.trace.store import Manifest
from ordercast.trace.writer import RunWriter

LOGS = "logs"
_STATES = "states"

_POLL_S = 0.02
_CONNECT_S = 60.0
_LEAD_NS = 20_000_000
"""Between the order to go and the moment it means."""

StartWorker = Callable[[Assignment, Path], Awaitable[tuple[Worker, Addresses]]]
Route = Callable[[NodeId, NodeId, Address], Awaitable[Address]]
"""From dialer, peer and the peer's address to the address that is dialed: a place for something in between."""


class ClusterOutcome(msgspec.Struct, frozen=True):
    """The outcome of a run over TCP, apart from its trace."""

    path: Path
    manifest: Manifest
    published: int
    delivered: int
    wall_ns: int


def run_processes(
    scenario: Scenario,
    protocol: str | None = None,
    *,
    seed: int | None = None,
    out: Path,
    processes: int | None = None,
    durable: bool = False,
) -> ClusterOutcome:
    """Run `scenario` with real processes over loopback TCP and leave its trace in `out`.

    Args:
        scenario: what to run. Its tables of links and nodes describe a simulated world and do not apply here.
        protocol: a name or `FILE.py:NAME`; the scenario's own if not given.
        seed: of the workload's draws; the scenario's own if not given.
        out: the run directory to write.
        processes: how many processes share the nodes; one for each if not given. A node with faults has its own.
        durable: every node keeps its state, and a process that somebody kills is started again with it. Without,
            only those nodes do that the scenario brings back with their state.
    """
    plan = _plan(scenario, protocol, seed, durable=durable)
    return asyncio.run(_run(plan, out, plan.divide(processes), ProcessWorker.start, _direct))


async def run_together(
    scenario: Scenario,
    protocol: str | None = None,
    *,
    seed: int | None = None,
    out: Path,
    route: Route | None = None,
) -> ClusterOutcome:
    """The same with all nodes in the running event loop, still over TCP: for embedding and for tests.

    Faults of processes cannot be inflicted here; those of the network can, by a `route` through a proxy.
    """
    plan = _plan(scenario, protocol, seed)
    if scenario.fault:
        raise UsageError("fault: nodes that share a process cannot crash or pause one by one")
    parts = [[node] for node in plan.graph.nodes]
    return await _run(plan, out, parts, LocalWorker.start, route or _direct)


def _plan(scenario: Scenario, protocol: str | None, seed: int | None, *, durable: bool = False) -> RunPlan:
    name = protocol_of(scenario, protocol)
    return RunPlan(scenario, lookup(name), name, scenario.seed if seed is None else seed, durable=durable)


async def _direct(_dialer: NodeId, _peer: NodeId, address: Address) -> Address:
    return address


async def _run(plan: RunPlan, out: Path, parts: list[list[NodeId]], start: StartWorker, route: Route) -> ClusterOutcome:
    writer = RunWriter(out)
    try:
        with tempfile.TemporaryDirectory(prefix="ordercast-") as scratch:
            cluster = _Cluster(plan, Path(scratch), start, route)
            outcome = await cluster.run(parts, writer)
            shutil.copytree(Path(scratch) / LOGS, out / LOGS)
    except BaseException:
        writer.abort()
        raise
    return outcome


class _Cluster:
    """All workers of one run."""

    def __init__(self, plan: RunPlan, scratch: Path, start: StartWorker, route: Route) -> None:
        self._plan = plan
        self._scratch = scratch
        self._start_worker = start
        self._route = route
        self._epoch_ns = time.monotonic_ns()
        self._token = secrets.token_hex(16)
        self._workers: dict[NodeId, Worker] = {}
        self._addresses: Addresses = {}
        self._lives: dict[NodeId, list[JournalLife]] = {node: [] for node in plan.graph.nodes}
        self._since: dict[NodeId, int | None] = dict.fromkeys(plan.graph.nodes)
        self._incarnations: Counter[NodeId] = Counter()
        self._dead: set[NodeId] = set()
        self._returning: set[NodeId] = set()
        """Those of the dead whose next process is being started."""
        self._falls: defaultdict[NodeId, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Held from the end of a process to the life of the next: a node that is on its way back cannot fall again."""
        self._introducing = asyncio.Lock()
        """Held while a process that was started again and its neighbours are told of each other: one at a time, or
        somebody would be told an address that is no longer right."""
        self._watches: set[asyncio.Task[None]] = set()
        self._faults: Counter[str] = Counter()
        self._go_ns = 0
        self._last: dict[NodeId, NodeStatus] = {}
        self._failure: BaseException | None = None
        (scratch / LOGS).mkdir()
        (scratch / _STATES).mkdir()

    async def run(self, parts: list[list[NodeId]], writer: RunWriter) -> ClusterOutcome:
        loop = asyncio.get_running_loop()
        handler = loop.get_exception_handler()
        loop.set_exception_handler(self._note_failure)
        try:
            await self._start_all(parts)
            began = time.monotonic_ns()
            drained = await self._live()
            wall_ns = time.monotonic_ns() - began
            for worker in self._living():
                self._last |= (await worker.ask(WorkerOrder("stop"))).nodes
                await worker.join()
        finally:
            watches = list(self._watches)
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)
            for worker in self._all_workers():
                await worker.kill()
            loop.set_exception_handler(handler)
        return self._finish(writer, wall_ns, drained=drained)

    def _note_failure(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """End the run when a node in this loop breaks; nodes in processes of their own end themselves."""
        self._failure = self._failure or context.get("exception") or InvariantError(context["message"])

    # Start

    async def _start_all(self, parts: list[list[NodeId]]) -> None:
        started = await asyncio.gather(*(self._start(nodes, 0) for nodes in parts), return_exceptions=True)
        for failure in started:
            if failure is not None:
                raise failure
        dial = await self._dial_plan((a, b) for a in self._plan.graph.nodes for b in self._plan.dialed_by(a))
        await self._tell_all(WorkerOrder("start", dial))
        deadline = time.monotonic() + _CONNECT_S
        while not all(self._plan.meets(node) <= status.met for node, status in (await self._status()).items()):
            if time.monotonic() > deadline:
                raise InvariantError(f"not all nodes had met their neighbours after {_CONNECT_S:g} s")
            await asyncio.sleep(_POLL_S)

    async def _start(self, nodes: list[NodeId], life: int) -> None:
        plan, first = self._plan, nodes[0]
        keeping = any(map(plan.keeps_state, nodes))
        assignment = Assignment(
            nodes=nodes, scenario=plan.scenario, protocol=plan.name, seed=plan.seed, cluster=plan.run_id,
            token=self._token, life=life, epoch_ns=self._epoch_ns, journals=str(self._scratch),
            settings=plan.settings(), since=self._since[first], incarnation=self._incarnations[first],
            states=str(self._scratch / _STATES) if keeping else "",
        )  # fmt: skip
        worker, addresses = await self._start_worker(assignment, self._scratch / LOGS / f"{first}.jsonl")
        self._addresses |= addresses
        for node in nodes:
            self._workers[node] = worker
            self._lives[node].append(JournalLife(journal_path(self._scratch, node, life)))
        self._spawn(self._watch(worker))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._watches.add(task)
        task.add_done_callback(self._watched)

    def _watched(self, task: asyncio.Task[None]) -> None:
        self._watches.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failure = self._failure or task.exception()

    async def _watch(self, worker: Worker) -> None:
        """Nodes whose process somebody else has killed come back with their state, if they keep any."""
        signal = await worker.lost()
        first, names = worker.nodes[0], ", ".join(worker.nodes)
        if not self._plan.durable or not self._go_ns:
            raise UsageError(f"the process of {names} was killed (signal {signal}) by somebody else")
        async with self._falls[first]:
            if self._workers[first] is not worker or first in self._dead:
                return  # A crash of the scenario's own came first.
            self._faults["crash"] += 1
            self._mark_dead(worker.nodes)
            await self._restart(worker.nodes, STATE_KEPT)

    async def _dial_plan(self, pairs: Iterable[tuple[NodeId, NodeId]]) -> dict[NodeId, Addresses]:
        dial: dict[NodeId, Addresses] = {}
        for dialer, peer in pairs:
            dial.setdefault(dialer, {})[peer] = await self._route(dialer, peer, self._addresses[peer])
        return dial

    # The run

    async def _live(self) -> bool:
        """Workload and faults, then the drain; whether it came to rest."""
        self._go_ns = time.monotonic_ns() + _LEAD_NS
        await self._tell_all(WorkerOrder("go", go_ns=self._go_ns))
        await asyncio.gather(*(self._inflict(fault) for fault in self._plan.scenario.fault))
        return await self._come_to_rest()

    async def _inflict(self, fault: Fault) -> None:
        await self._until(fault.at_ms)
        if isinstance(fault, Crash):
            async with self._falls[NodeId(fault.node)]:
                await self._crash(NodeId(fault.node))
                if fault.recover_ms is not None:
                    await self._until(fault.recover_ms)
                    await self._restart([NodeId(fault.node)], fault.state)
        elif isinstance(fault, Pause):
            self._faults["pause"] += 1
            worker = self._workers[NodeId(fault.node)]
            worker.pause()
            await self._until(fault.until_ms)
            worker.resume()
        else:
            self._faults[str(fault.__struct_config__.tag)] += 1  # Nodes join and leave by themselves, in time.

    async def _crash(self, node: NodeId) -> None:
        self._faults["crash"] += 1
        self._dead.add(node)
        await self._workers[node].kill()
        self._mark_dead([node])

    def _mark_dead(self, nodes: list[NodeId]) -> None:
        for node in nodes:
            self._dead.add(node)
            self._lives[node][-1].killed_ns = time.monotonic_ns() - self._epoch_ns

    async def _restart(self, nodes: list[NodeId], state: str) -> None:
        self._faults["recover"] += 1
        life = len(self._lives[nodes[0]])
        for node in nodes:
            if state == STATE_LOST:
                self._incarnations[node] += 1
                self._since[node] = None
                shutil.rmtree(self._scratch / _STATES / node, ignore_errors=True)
            elif self._since[node] is None:
                self._since[node] = life - 1
        self._returning.update(nodes)
        await self._start_again(nodes, life)
        async with self._introducing:
            await self._introduce(nodes)
        self._returning.difference_update(nodes)

    async def _start_again(self, nodes: list[NodeId], life: int) -> None:
        """Until it lasts: a process that is killed before it has begun was no life."""
        while True:
            try:
                return await self._start(nodes, life)
            except KilledEarlyError:
                if not self._plan.durable:
                    raise

    async def _introduce(self, nodes: list[NodeId]) -> None:
        """Nodes that were started again and their neighbours learn where the others are."""
        self._dead.difference_update(nodes)
        near = self._plan.graph.neighbours
        pairs = [(node, peer) for node in nodes for peer in self._plan.dialed_by(node)]
        pairs += [(peer, node) for node in nodes for peer in near[node] if node in self._plan.dialed_by(peer)]
        dial = await self._dial_plan(pairs)
        worker = self._workers[nodes[0]]
        await worker.ask(WorkerOrder("start", dial))
        for other in self._living():
            if other is not worker:
                # Not awaited: one that stands still must not hold up the others. It is told when it goes on.
                self._spawn(self._tell(other, WorkerOrder("meet", dial)))
        await worker.ask(WorkerOrder("go", go_ns=self._go_ns))

    async def _come_to_rest(self) -> bool:
        """Equal readings of idle nodes, with everything confirmed, mean that nothing moves any more."""
        deadline = self._go_ns + ns(self._plan.scenario.duration_ms + self._plan.scenario.drain_ms)
        before: dict[NodeId, int] = {}
        still = 0
        while time.monotonic_ns() < deadline:
            status = await self._status()
            steps = {node: its.steps for node, its in status.items()}
            complete = not self._returning and status.keys() == set(self._plan.graph.nodes) - self._dead
            rests = all(its.idle and self._confirmed(its) for its in status.values())
            still = still + 1 if complete and steps == before and rests else 0
            if still >= self._plan.readings:
                return True
            before = steps
            await asyncio.sleep(_POLL_S)
        return False

    def _confirmed(self, status: NodeStatus) -> bool:
        return all(peer in self._dead for peer in status.outstanding)

    async def _until(self, at_ms: float) -> None:
        if self._failure is not None:
            raise self._failure
        await asyncio.sleep(max(0.0, (self._go_ns + ns(at_ms) - time.monotonic_ns()) / 1e9))

    # Workers

    async def _status(self) -> dict[NodeId, NodeStatus]:
        if self._failure is not None:
            raise self._failure
        answers = await self._tell_all(WorkerOrder("status"))
        return {node: status for answer in answers for node, status in answer.nodes.items()}

    async def _tell(self, worker: Worker, order: WorkerOrder) -> None:
        await worker.ask(order)

    async def _tell_all(self, order: WorkerOrder) -> list[WorkerAnswer]:
        return await asyncio.gather(*(worker.ask(order) for worker in self._living()))

    def _living(self) -> list[Worker]:
        return list(dict.fromkeys(worker for node, worker in self._workers.items() if node not in self._dead))

    def _all_workers(self) -> list[Worker]:
        return list(dict.fromkeys(self._workers.values()))

    def _finish(self, writer: RunWriter, wall_ns: int, *, drained: bool) -> ClusterOutcome:
        plan = self._plan
        kinds = collect(plan.run_id, self._lives, writer)
        manifest = Manifest(
            run_id=plan.run_id,
            protocol=plan.info.name,
            guarantee=claimed_guarantee(plan.scenario.workload, plan.info.guarantee),
            scope=plan.info.scope,
            seed=plan.seed,
            scenario=plan.scenario.name,
            nodes=list(plan.graph.nodes),
            groups=plan.groups,
            uniform=plan.info.uniform,
            version=version("ordercast"),
            clock="global",
            drained=drained,
            records=plan.scenario.trace.record,
            faults=dict(sorted(self._faults.items())),
            totals={
                "published": kinds["publish"],
                "deliveries": kinds["deliver"],
                "sends": kinds["send"] or sum(status.sent for status in self._last.values()),
                "hops": kinds["receive"] or sum(status.received for status in self._last.values()),
                "drops": 0,
            },
            claims=plan.info.claims(plan.info.parse_options(plan.scenario.options)),
            options=plan.scenario.options,
        )
        return ClusterOutcome(
            path=writer.finish(manifest),
            manifest=manifest,
            published=kinds["publish"],
            delivered=kinds["deliver"],
            wall_ns=wall_ns,
        )
