"""A cluster of brokers for the tests of programs that use Ordercast.

    async with ordercast.testing.cluster(brokers=3) as brokers:
        async with brokers.connect("alice") as client:
            ...
        await brokers.kill("b1")

The brokers run in the process of the test, on free ports of the loopback interface; with `processes=True` each is a
process of its own, and killing one is a SIGKILL. Timeouts are short: a test should not wait for a repair longer than it
must.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ordercast.core.errors import UsageError, unknown_name
from ordercast.net.brokers.cluster_file import BrokerEntry, ClusterFile
from ordercast.net.brokers.process import BrokerProcess, Launch
from ordercast.net.turn_ports import address_of, lasting_door
from ordercast.net.wire.settings import WireSettings
from ordercast.pubsub.settings import BrokerSettings

if TYPE_CHECKING:
    from ordercast.api import Client
    from ordercast.net.brokers.cluster import BrokerCluster

Shape = Literal["star", "line", "binary"]
QUICK = BrokerSettings(
    request_ms=500, retry_ms=50, stability_ms=30, member_timeout_ms=5000, startup_grace_ms=2000, lease_ms=600
)
"""Settings for tests: repairs within a second."""
QUICK_LIMITS = WireSettings(heartbeat_ms=100, silence_ms=1000, handshake_ms=1000, farewell_ms=500)
_STEP_S = 0.01
_PATIENCE_S = 20.0


def parents(count: int, shape: Shape) -> list[int | None]:
    """The parent of each broker: everybody under the first, one under the other, or two under each."""
    if shape == "star":
        return [None, *[0] * (count - 1)]
    if shape == "line":
        return [None, *range(count - 1)]
    if shape == "binary":
        return [None, *((i - 1) // 2 for i in range(1, count))]
    raise unknown_name("shape", shape, ["star", "line", "binary"])


class EmbeddedCluster(ABC):
    """Brokers b0, b1, ...; b0 begins as root."""

    def __init__(self, config: ClusterFile) -> None:
        self.config = config
        self._addresses = {entry.id: entry.address for entry in config.broker}

    @property
    def ids(self) -> list[str]:
        return list(self._addresses)

    @property
    def address(self) -> str:
        """Of the first broker."""
        return next(iter(self._addresses.values()))

    @property
    def addresses(self) -> list[str]:
        return list(self._addresses.values())

    def address_of(self, broker: str) -> str:
        if broker not in self._addresses:
            raise unknown_name("broker", broker, self._addresses)
        return self._addresses[broker]

    def connect(
        self, client_id: str, *, broker: str | None = None, **options: Any
    ) -> AbstractAsyncContextManager[Client]:
        """A client at `broker`, or at the first one. Further options are those of `ordercast.connect`."""
        from ordercast.api import connect

        address = self.address if broker is None else self.address_of(broker)
        connection: AbstractAsyncContextManager[Client] = connect(address, client_id=client_id, **options)
        return connection

    @abstractmethod
    async def kill(self, broker: str) -> None:
        """End it without a word."""

    @abstractmethod
    async def stop(self, broker: str) -> None:
        """End it in good order."""

    @abstractmethod
    async def restart(self, broker: str) -> None:
        """Begin its next life."""

    @abstractmethod
    async def in_tree(self) -> bool:
        """Whether every running broker has a place in the tree, and the root may decide."""

    async def settle(self, patience_s: float = _PATIENCE_S) -> None:
        """Wait until the tree is complete."""
        async with asyncio.timeout(patience_s):
            while not await self.in_tree():
                await asyncio.sleep(_STEP_S)

    @abstractmethod
    async def close(self) -> None: ...


class InProcessCluster(EmbeddedCluster):
    """All brokers in one loop."""

    def __init__(self, config: ClusterFile, doors: dict[str, socket.socket]) -> None:
        super().__init__(config)
        self.processes: dict[str, BrokerProcess] = {}
        self._doors = doors

    async def start(self) -> None:
        await asyncio.gather(*map(self._launch, self.ids))

    async def _launch(self, broker: str) -> None:
        config = self.config
        launch = Launch(
            id=broker, listen=self.address_of(broker), cluster=config,
            data=Path(config.data) / broker if config.data else None,
            trace=Path(config.trace) if config.trace else None,
        )  # fmt: skip
        process = BrokerProcess(launch, door=self._doors.pop(broker, None))
        await process.start()
        self.processes[broker] = process

    def _running(self, broker: str) -> BrokerProcess:
        self.address_of(broker)
        if broker not in self.processes:
            raise UsageError(f"broker {broker!r}: not running")
        return self.processes.pop(broker)

    async def kill(self, broker: str) -> None:
        await self._running(broker).kill()

    async def stop(self, broker: str) -> None:
        await self._running(broker).stop()

    async def restart(self, broker: str) -> None:
        if broker in self.processes:
            await self.stop(broker)
        await self._launch(broker)

    async def in_tree(self) -> bool:
        for process in self.processes.values():
            if process.host.failure is not None:
                raise process.host.failure
        trees = [process.broker.tree for process in self.processes.values()]
        roots = [tree for tree in trees if tree.is_root]
        return len(roots) == 1 and roots[0].decides and not any(tree.seeking for tree in trees)

    async def close(self) -> None:
        await asyncio.gather(*(process.stop() for process in self.processes.values()))
        for door in self._doors.values():
            door.close()


class ProcessCluster(EmbeddedCluster):
    """Every broker a process."""

    def __init__(self, config: ClusterFile, cluster: BrokerCluster) -> None:
        super().__init__(config)
        self.cluster = cluster

    async def start(self) -> None:
        await asyncio.to_thread(self.cluster.up)

    async def kill(self, broker: str) -> None:
        await asyncio.to_thread(self.cluster.kill, broker)

    async def signal(self, broker: str, number: signal.Signals) -> None:
        """Any signal: SIGSTOP and SIGCONT make a broker stand still for a while."""
        await asyncio.to_thread(self.cluster.kill, broker, number)

    async def stop(self, broker: str) -> None:
        await asyncio.to_thread(self.cluster.stop, broker)

    async def restart(self, broker: str) -> None:
        await asyncio.to_thread(self.cluster.restart, broker)

    async def in_tree(self) -> bool:
        states = await asyncio.to_thread(self.cluster.status)
        return all(state.state in ("running", "down") for state in states)

    async def close(self) -> None:
        await asyncio.to_thread(self.cluster.down)


@asynccontextmanager
async def cluster(
    brokers: int = 3,
    *,
    shape: Shape = "star",
    settings: BrokerSettings = QUICK,
    limits: WireSettings = QUICK_LIMITS,
    trace: Path | None = None,
    data: Path | None = None,
    processes: bool = False,
    settle: bool = True,
    **config: Any,
) -> AsyncIterator[EmbeddedCluster]:
    """Brokers that run until the block ends. `config` takes further fields of a cluster file (`peer_token`, `user`...).

    `trace`: a run directory that `ordercast verify` can judge afterwards. `settle`: begin when the tree is complete.
    """
    doors = {f"b{i}": lasting_door() for i in range(brokers)}
    above = parents(brokers, shape)
    entries = tuple(
        BrokerEntry(id=name, listen=address_of(door), parent=f"b{above[i]}" if above[i] is not None else "")
        for i, (name, door) in enumerate(doors.items())
    )
    file = ClusterFile(
        cluster="embedded", broker=entries, settings=settings, limits=limits, data=str(data or ""),
        trace=str(trace or ""), **config,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="ordercast-") as directory:
        running: InProcessCluster | ProcessCluster
        if processes:
            running = ProcessCluster(file, _as_processes(file, list(doors.values()), Path(directory)))
        else:
            running = InProcessCluster(file, doors)
        try:
            await running.start()
            if settle:
                await running.settle()
            yield running
        finally:
            await running.close()


def _as_processes(file: ClusterFile, doors: Sequence[socket.socket], directory: Path) -> BrokerCluster:
    """The ports are free again in a moment, for the processes that are to listen there."""
    from ordercast.net.brokers.cluster import BrokerCluster

    for door in doors:
        door.close()
    path = directory / "cluster.json"
    path.write_bytes(msgspec.json.encode(file))
    return BrokerCluster(path, bound=True)
