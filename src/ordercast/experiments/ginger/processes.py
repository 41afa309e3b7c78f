"""The scenarios once more with real broker processes on this machine, killed with SIGKILL, a fifth of the time.

All latencies and timers are a fifth of the simulated ones; clients publish as often, and so a fifth as much. What is
measured depends on the machine and on what else it does: these runs are for the judge, their times only for comparison.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
import pyarrow as pa

from ordercast.experiments.ginger.delays import Doors
from ordercast.experiments.ginger.measures import bank_verdict, counts, judged, latencies, repair_ends
from ordercast.experiments.ginger.setting import (
    AFTER_MS,
    BROKERS,
    CLIENTS,
    FAILING,
    FAULT_SHARE,
    INTERVAL_MS,
    PARENTS,
    TO_EDGE_MS,
    broker_options,
    keys_of,
    latency_ms,
    level_of,
)
from ordercast.experiments.kit.study import Row
from ordercast.services.bank_workload import BankWorkload

if TYPE_CHECKING:
    from ordercast.api import Client, Inbox
    from ordercast.net.brokers.cluster import BrokerCluster
    from ordercast.net.wire.settings import WireSettings

FASTER = 5.0
"""Everything takes so much less time than in the simulation."""
_PATIENCE_S = 60.0
_STEP_S = 0.02
_SILENCE_MS = 20_000.0
"""Only a broken connection is taken for a death: a busy machine must not be."""
_TIMERS = {"request_ms": 2000.0, "stability_ms": 500.0, "retry_ms": 300.0}


def measure_processes(parameters: Row) -> Row:
    """Run it with real processes; latencies and repairs as if time had not been scaled."""
    from ordercast.verify.load import load

    with tempfile.TemporaryDirectory(prefix="ordercast-") as directory:
        run = Path(directory) / "run"
        (run / "journals").mkdir(parents=True)
        crash_ns = asyncio.run(_run(parameters, Path(directory), run))
        (trace,) = load(run)
        table = _slowed(trace.table)
        crash = round(crash_ns * FASTER)
        verdict, _ = judged(trace)
        ends = [end for end in repair_ends(table) if end >= crash]
        return {
            **counts(table),
            **latencies(table, (crash, crash + round(AFTER_MS * 1e6))),
            **verdict,
            "bank": bank_verdict(table),
            "fault_to_rest_ms": (max(ends) - crash) / 1e6 if ends else None,
        }


def _slowed(table: pa.Table) -> pa.Table:
    """The same events, with the times that they would have had without the scaling."""
    times = (table["time_ns"].to_numpy() * FASTER).astype("int64")
    return table.set_column(table.column_names.index("time_ns"), "time_ns", pa.array(times))


async def _run(parameters: Row, directory: Path, run: Path) -> int:
    """Let it happen; when the brokers were killed."""
    operations = cast("int", parameters["operations"])
    async with _brokers(parameters, directory, run) as (cluster, doors):
        members = [await _join(name, doors, directory / name, run) for name in CLIENTS]
        try:
            failing = FAILING[str(parameters["scenario"])]
            load = BankWorkload(
                accounts=cast("int", parameters["keys"]), operations=operations, seed=cast("int", parameters["seed"])
            )
            talks = [asyncio.create_task(member.talk(load)) for member in members]
            await asyncio.sleep(FAULT_SHARE * operations * INTERVAL_MS / 1000)
            crash_ns = time.monotonic_ns()
            await asyncio.gather(*(asyncio.to_thread(cluster.kill, broker) for broker in failing))
            await asyncio.gather(*talks)
            complete = await _everybody_has_everything(members, operations)
        finally:
            await asyncio.gather(*(member.leave() for member in members))
    _describe(run, drained=complete)
    return crash_ns


class _BankClient:
    """A client that publishes the bank's operations on its topic and counts what it gets."""

    def __init__(self, name: str, client: Client, inbox: Inbox) -> None:
        self.name = name
        self.topic = CLIENTS[name][1]
        self.got = 0
        self._client = client
        self._reading = asyncio.create_task(self._read(inbox))

    async def _read(self, inbox: Inbox) -> None:
        async for _ in inbox:
            self.got += 1

    async def talk(self, load: BankWorkload) -> None:
        due = time.monotonic()
        for operation, arguments in load.calls(self.name):
            self._client.publish_soon(
                self.topic, b"", keys=keys_of(operation, arguments), guarantee=level_of(operation)
            )
            due += INTERVAL_MS / 1000
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def leave(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        await self._client.close()


async def _join(name: str, doors: dict[str, dict[str, str]], data: Path, run: Path) -> _BankClient:
    """A member with a data directory: it stops without leaving the topic, so the judge owes it everything."""
    from ordercast.api import connect
    from ordercast.client.settings import ClientSettings

    edge, topic = CLIENTS[name]
    addresses = [doors[name][edge], *(address for broker, address in doors[edge].items() if broker != edge)]
    settings = msgspec.convert(_timers() | {"silence_ms": _SILENCE_MS}, ClientSettings)
    client = await connect(
        addresses, name, data=data, trace=run, settings=settings, wire=_limits(), timeout=_PATIENCE_S
    )  # fmt: skip
    return _BankClient(name, client, await client.subscribe(topic, timeout=_PATIENCE_S))


async def _everybody_has_everything(members: list[_BankClient], operations: int) -> bool:
    deadline = time.monotonic() + _PATIENCE_S
    wanted = {topic: operations * sum(of == topic for _, of in CLIENTS.values()) for _, topic in CLIENTS.values()}
    while any(member.got < wanted[member.topic] for member in members):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_STEP_S)
    return True


@asynccontextmanager
async def _brokers(
    parameters: Row, directory: Path, run: Path
) -> AsyncIterator[tuple[BrokerCluster, dict[str, dict[str, str]]]]:
    """The tree, complete; and by whom and for whom every door is."""
    doors = Doors()
    files = await _files(parameters, directory, run, doors)
    clusters = {broker: _cluster(files.paths[broker], directory) for broker in BROKERS}
    (first, *_) = clusters.values()
    try:
        await asyncio.gather(*(asyncio.to_thread(of.restart, broker, _PATIENCE_S) for broker, of in clusters.items()))
        if not await asyncio.to_thread(first.await_tree, _PATIENCE_S):
            raise TimeoutError(f"the tree was not complete within {_PATIENCE_S:g} s")
        yield first, files.doors
    finally:
        await asyncio.to_thread(first.down)
        await doors.close()


class _Files(msgspec.Struct):
    paths: dict[str, Path]
    doors: dict[str, dict[str, str]]
    """Who dials, whom, at which address."""


async def _files(parameters: Row, directory: Path, run: Path, doors: Doors) -> _Files:
    """A file for every broker, because each reaches the others through doors of its own."""
    from ordercast.net.brokers.cluster_file import BrokerEntry, ClusterFile
    from ordercast.net.turn_ports import address_of, lasting_door
    from ordercast.net.wire.credentials import split_address
    from ordercast.pubsub.settings import BrokerSettings

    held = {broker: lasting_door() for broker in BROKERS}
    listens = {broker: address_of(door) for broker, door in held.items()}
    for door in held.values():
        door.close()
    options = broker_options(parameters) | _timers()
    settings = msgspec.convert(options, BrokerSettings)
    table: dict[str, dict[str, str]] = {}
    paths = {}
    for broker in BROKERS:
        table[broker] = {
            other: await doors.open(split_address(listens[other]), latency_ms(broker, other) / 1000 / FASTER)
            for other in BROKERS if other != broker
        }  # fmt: skip
        entries = tuple(
            BrokerEntry(id=other, listen=listens[other], advertise=table[broker].get(other, ""),
                        parent=PARENTS.get(other, ""))
            for other in BROKERS
        )  # fmt: skip
        file = ClusterFile(cluster="ginger", broker=entries, settings=settings, limits=_limits(), trace=str(run))
        paths[broker] = directory / f"{broker}.json"
        paths[broker].write_bytes(msgspec.json.encode(file))
    for client, (edge, _) in CLIENTS.items():
        table[client] = {edge: await doors.open(split_address(listens[edge]), TO_EDGE_MS / 1000 / FASTER)}
    return _Files(paths, table)


def _cluster(file: Path, directory: Path) -> BrokerCluster:
    from ordercast.net.brokers.cluster import BrokerCluster

    return BrokerCluster(file, directory / "brokers", bound=True)


def _timers() -> dict[str, float]:
    return {name: value / FASTER for name, value in _TIMERS.items()}


def _limits() -> WireSettings:
    from ordercast.net.wire.settings import WireSettings

    return WireSettings(silence_ms=_SILENCE_MS, handshake_ms=_SILENCE_MS)


def _describe(run: Path, *, drained: bool) -> None:
    """Write down what the journals cannot say: that everybody waited for the end, and what is claimed."""
    from ordercast.sim.pubsub.run import CLAIMS
    from ordercast.trace.collect import describe_run
    from ordercast.trace.schema import MANIFEST

    manifest, _ = describe_run(run)
    told = msgspec.structs.replace(manifest, drained=drained, claims=CLAIMS)
    (run / MANIFEST).write_bytes(msgspec.json.encode(told))
