"""A scenario with real processes on this machine: started, loaded, killed, paused, drained, and collected."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from ordercast.core.errors import InvariantError, UsageError
from ordercast.core.ids import NodeId
from ordercast.net.plan import Plan
from ordercast.net.process import Addresses, Answer, Assignment, NodeStatus, Order, journal_path
from ordercast.net.settings import ns
from ordercast.net.transport import Address
from ordercast.net.workers import LocalWorker, ProcessWorker, Worker
from ordercast.protocols import lookup
from ordercast.scenario.choosing import claimed_guarantee
from ordercast.scenario.model import Crash, Fault, Pause, Scenario
from ordercast.trace.collect import Life, collect
from ordercast.trace.store import Manifest, RunWriter

LOGS = "logs"

_POLL_S = 0.02
_CONNECT_S = 60.0
_LEAD_NS = 20_000_000
"""Between the order to go and the moment it means."""

StartWorker = Callable[[Assignment, Path], Awaitable[tuple[Worker, Addresses]]]
Route = Callable[[NodeId, NodeId, Address], Awaitable[Address]]
"""From dialer, peer and the peer's address to the address that is dialed: a place for something in between."""


class Outcome(msgspec.Struct, frozen=True):
    """What a run over TCP did, apart from its trace."""

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
) -> Outcome:
    """Run `scenario` with real processes over loopback TCP and leave its trace in `out`.

    Args:
        scenario: what to run. Its tables of links and nodes describe a simulated world and do not apply here.
        protocol: a name or `FILE.py:NAME`; the scenario's own if not given.
        seed: of the workload's draws; the scenario's own if not given.
        out: the run directory to write.
        processes: how many processes share the nodes; one for each if not given. A node with faults has its own.
    """
    plan = _plan(scenario, protocol, seed)
    return asyncio.run(_run(plan, out, plan.divide(processes), ProcessWorker.start, _direct))


async def run_together(
    scenario: Scenario,
    protocol: str | None = None,
    *,
    seed: int | None = None,
    out: Path,
    route: Route | None = None,
) -> Outcome:
    """The same with all nodes in the running event loop, still over TCP: for embedding and for tests.

    Faults of processes cannot be inflicted here; those of the network can, by a `route` through a proxy.
    """
    plan = _plan(scenario, protocol, seed)
    if scenario.fault:
        raise UsageError("fault: nodes that share a process cannot crash or pause one by one")
    parts = [[node] for node in plan.graph.nodes]
    return await _run(plan, out, parts, LocalWorker.start, route or _direct)


def _plan(scenario: Scenario, protocol: str | None, seed: int | None) -> Plan:
    name = protocol or scenario.protocol
    return Plan(scenario, lookup(name), name, scenario.seed if seed is None else seed)


async def _direct(_dialer: NodeId, _peer: NodeId, address: Address) -> Address:
    return address


async def _run(plan: Plan, out: Path, parts: list[list[NodeId]], start: StartWorker, route: Route) -> Outcome:
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

    def __init__(self, plan: Plan, scratch: Path, start: StartWorker, route: Route) -> None:
        self._plan = plan
        self._scratch = scratch
        self._start_worker = start
        self._route = route
        self._epoch_ns = time.monotonic_ns()
        self._token = secrets.token_hex(16)
        self._workers: dict[NodeId, Worker] = {}
        self._addresses: Addresses = {}
        self._lives: dict[NodeId, list[Life]] = {node: [] for node in plan.graph.nodes}
        self._dead: set[NodeId] = set()
        self._faults: Counter[str] = Counter()
        self._go_ns = 0
        self._last: dict[NodeId, NodeStatus] = {}
        self._failure: BaseException | None = None
        (scratch / LOGS).mkdir()

    async def run(self, parts: list[list[NodeId]], writer: RunWriter) -> Outcome:
        loop = asyncio.get_running_loop()
        handler = loop.get_exception_handler()
        loop.set_exception_handler(self._note_failure)
        try:
            await self._start_all(parts)
            began = time.monotonic_ns()
            drained = await self._live()
            wall_ns = time.monotonic_ns() - began
            for worker in self._living():
                self._last |= (await worker.ask(Order("stop"))).nodes
                await worker.join()
        finally:
            for worker in self._all_workers():
                await worker.kill()
            loop.set_exception_handler(handler)
        return self._finish(writer, wall_ns, drained=drained)

    def _note_failure(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What a node in this loop broke ends the run; nodes in processes of their own end themselves."""
        self._failure = self._failure or context.get("exception") or InvariantError(context["message"])

    # Start

    async def _start_all(self, parts: list[list[NodeId]]) -> None:
        await asyncio.gather(*(self._start(nodes, 0) for nodes in parts))
        dial = await self._dial_plan((a, b) for a in self._plan.graph.nodes for b in self._plan.dialed_by(a))
        await self._tell_all(Order("start", dial))
        deadline = time.monotonic() + _CONNECT_S
        while not all(len(self._plan.graph.neighbours[n]) == s.met for n, s in (await self._status()).items()):
            if time.monotonic() > deadline:
                raise InvariantError(f"not all nodes had met their neighbours after {_CONNECT_S:g} s")
            await asyncio.sleep(_POLL_S)

    async def _start(self, nodes: list[NodeId], life: int) -> None:
        plan = self._plan
        assignment = Assignment(
            nodes=nodes, scenario=plan.scenario, protocol=plan.name, seed=plan.seed, cluster=plan.run_id,
            token=self._token, life=life, epoch_ns=self._epoch_ns, journals=str(self._scratch),
            settings=plan.settings(),
        )  # fmt: skip
        worker, addresses = await self._start_worker(assignment, self._scratch / LOGS / f"{nodes[0]}.jsonl")
        self._addresses |= addresses
        for node in nodes:
            self._workers[node] = worker
            self._lives[node].append(Life(journal_path(self._scratch, node, life)))

    async def _dial_plan(self, pairs: Iterable[tuple[NodeId, NodeId]]) -> dict[NodeId, Addresses]:
        dial: dict[NodeId, Addresses] = {}
        for dialer, peer in pairs:
            dial.setdefault(dialer, {})[peer] = await self._route(dialer, peer, self._addresses[peer])
        return dial

    # The run

    async def _live(self) -> bool:
        """Workload and faults, then the drain; whether it came to rest."""
        self._go_ns = time.monotonic_ns() + _LEAD_NS
        await self._tell_all(Order("go", go_ns=self._go_ns))
        await asyncio.gather(*(self._inflict(fault) for fault in self._plan.scenario.fault))
        return await self._come_to_rest()

    async def _inflict(self, fault: Fault) -> None:
        await self._until(fault.at_ms)
        if isinstance(fault, Crash):
            await self._crash(NodeId(fault.node))
            if fault.recover_ms is not None:
                await self._until(fault.recover_ms)
                await self._restart(NodeId(fault.node))
        elif isinstance(fault, Pause):
            self._faults["pause"] += 1
            worker = self._workers[NodeId(fault.node)]
            worker.pause()
            await self._until(fault.until_ms)
            worker.resume()

    async def _crash(self, node: NodeId) -> None:
        self._faults["crash"] += 1
        self._dead.add(node)
        await self._workers[node].kill()
        self._lives[node][-1].killed_ns = time.monotonic_ns() - self._epoch_ns

    async def _restart(self, node: NodeId) -> None:
        self._faults["recover"] += 1
        await self._start([node], len(self._lives[node]))
        self._dead.discard(node)
        dialers = [peer for peer in self._plan.graph.neighbours[node] if node in self._plan.dialed_by(peer)]
        dial = await self._dial_plan([(node, b) for b in self._plan.dialed_by(node)] + [(a, node) for a in dialers])
        await self._workers[node].ask(Order("start", dial))
        for worker in self._living():
            if node not in worker.nodes:
                await worker.ask(Order("meet", dial))
        await self._workers[node].ask(Order("go", go_ns=self._go_ns))

    async def _come_to_rest(self) -> bool:
        """Two equal readings of idle nodes, with everything confirmed, mean that nothing moves any more."""
        deadline = self._go_ns + ns(self._plan.scenario.duration_ms + self._plan.scenario.drain_ms)
        before: dict[NodeId, int] = {}
        while time.monotonic_ns() < deadline:
            status = await self._status()
            steps = {node: its.steps for node, its in status.items()}
            if steps == before and all(its.idle and self._confirmed(its) for its in status.values()):
                return True
            before = steps
            await asyncio.sleep(_POLL_S)
        return False

    def _confirmed(self, status: NodeStatus) -> bool:
        return all(peer in self._dead for peer in status.outstanding)

    async def _until(self, at_ms: float) -> None:
        await asyncio.sleep(max(0.0, (self._go_ns + ns(at_ms) - time.monotonic_ns()) / 1e9))

    # Workers

    async def _status(self) -> dict[NodeId, NodeStatus]:
        if self._failure is not None:
            raise self._failure
        answers = await self._tell_all(Order("status"))
        return {node: status for answer in answers for node, status in answer.nodes.items()}

    async def _tell_all(self, order: Order) -> list[Answer]:
        return await asyncio.gather(*(worker.ask(order) for worker in self._living()))

    def _living(self) -> list[Worker]:
        return list(dict.fromkeys(worker for node, worker in self._workers.items() if node not in self._dead))

    def _all_workers(self) -> list[Worker]:
        return list(dict.fromkeys(self._workers.values()))

    def _finish(self, writer: RunWriter, wall_ns: int, *, drained: bool) -> Outcome:
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
            groups={topic: list(members) for topic, members in plan.people.groups.items()},
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
            options=plan.scenario.options,
        )
        return Outcome(
            path=writer.finish(manifest),
            manifest=manifest,
            published=kinds["publish"],
            delivered=kinds["deliver"],
            wall_ns=wall_ns,
        )
