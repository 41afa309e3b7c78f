"""A broker as a process: its machine, its log, its journal and its admin port, from start to a clean end."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ordercast.broker.node import BROKER_CODEC, Broker
from ordercast.broker.place import BrokerPlace, SavedBroker
from ordercast.core.errors import InvariantError, UsageError
from ordercast.core.ids import NodeId
from ordercast.core.process import Peer, Wires
from ordercast.net.brokers.admin import Admin
from ordercast.net.brokers.archive import ArchiveFiles
from ordercast.net.brokers.broker_host import BrokerHost
from ordercast.net.brokers.cluster import Ready, start_ticks
from ordercast.net.brokers.cluster_file import ClusterFile, check_broker_id
from ordercast.net.brokers.incarnation import DataDirectory, check_welcome, choose_life
from ordercast.net.brokers.ledger import DiskBrokerLedger
from ordercast.net.brokers.place_watch import PlaceWatch
from ordercast.net.log.files import Disk
from ordercast.net.turn_ports import address_of, listening
from ordercast.net.wire.credentials import BROKER, split_address
from ordercast.net.wire.descriptors import raise_limit
from ordercast.net.wire.settings import seconds
from ordercast.pubsub.seals import seal_key
from ordercast.trace.schema import INFO_ORDER_SCOPE, JOURNAL_SUFFIX, JOURNALS, STATE_KEPT, STATE_LOST

if TYPE_CHECKING:
    from ordercast.trace.journal import Journal

LOG = logging.getLogger("ordercast.broker")
FAILED = 70
"""Exit code of a process that found a bug in itself, or whose disk failed it."""
INTERRUPTED = 130
_COLLECT_AFTER = 50_000, 20, 100
"""Objects until the first look for cycles, and so on: a broker keeps many objects for long and makes few cycles."""
_LEAVING_S = 5.0
"""A broker that stops waits so long to be struck off; if the others are gone too, it stops all the same."""
_LOOK_S = 0.1


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """All that a broker is told when it starts."""

    id: str
    listen: str = ""
    parent: str = ""
    """HOST:PORT to ask first; without a directory of brokers, the only way in."""
    cluster: ClusterFile = ClusterFile()
    data: Path | None = None
    trace: Path | None = None
    admin: str = ""
    nats: str = ""
    """HOST:PORT of the door for clients of NATS."""
    web: str = ""
    """HOST:PORT of the door for browsers and HTTP."""
    salvage: bool = False
    """Where the log in `data` is damaged: start with what is readable of it, instead of refusing to start."""

    @property
    def joins(self) -> bool:
        """It is in nobody's file: it comes by its parent, and leaves when it stops in good order."""
        return bool(self.parent) and self.cluster.find(self.id) is None


class ForeignDoor(Protocol):
    """Port to a listener for those who do not speak the brokers' own protocol."""

    kind: str
    address: str

    async def start(self) -> None:
        """Open it; a UsageError says why it cannot be."""

    async def stop(self) -> None:
        """Say goodbye to everybody at it."""


DoorMaker = Callable[["BrokerProcess"], list[ForeignDoor]]
"""The doors that a launch asks for. They are built on clients, so whoever runs a broker hands them in."""


class Books:
    """The durable writers of a broker's turn: first the archive, then the ledger, which may forget what that has."""

    def __init__(self, archive: ArchiveFiles, ledger: DiskBrokerLedger) -> None:
        self._archive = archive
        self._ledger = ledger

    def flush(self) -> None:
        self._archive.flush()
        self._ledger.flush()

    def close(self) -> None:
        self._archive.close()
        self._ledger.close()

    def abandon(self) -> None:
        self._archive.abandon()
        self._ledger.abandon()


class BrokerProcess:
    """One broker. `start`, then wait for `host.ended_event` or `stop` it."""

    host: BrokerHost
    broker: Broker

    def __init__(
        self, launch: Launch, *, door: socket.socket | None = None, disk: Disk | None = None,
        doors: DoorMaker | None = None,
    ) -> None:  # fmt: skip
        self.launch = launch
        self.doors: list[ForeignDoor] = []
        """Open ones."""
        self._make_doors = doors
        self.admin: Admin | None = None
        self._door = door
        self._disk = disk
        self._data: DataDirectory | None = None
        self._ledger: DiskBrokerLedger | None = None
        self._archive: ArchiveFiles | None = None
        self._syncing: asyncio.TimerHandle | None = None
        self._watch: PlaceWatch | None = None

    async def start(self) -> None:
        """Everything that can be wrong with the configuration is wrong here, before anybody hears of this broker."""
        launch = self.launch
        check_broker_id(launch.id)
        self._data = DataDirectory(launch.data) if launch.data is not None else None
        try:
            await self._start(launch)
        except BaseException:
            self._let_go()
            raise

    async def _start(self, launch: Launch) -> None:
        cluster = launch.cluster
        self._check_left(launch)
        door = self._door or listening(launch.listen)
        try:
            cluster.credentials().check_listen(str(door.getsockname()[0]))
            place = await self._find_place(self._address(door))
            saved = self._open_ledger(place.life)
            journal = self._journal(place.life, kept=saved is not None)
        except BaseException:
            door.close()
            raise
        entry = cluster.find(launch.id)
        settings = cluster.settings_of(entry)

        def build(wires: Wires) -> Broker:
            self.broker = Broker(place, settings, wires, self._ledger, saved, self._archive)
            return self.broker

        me = Peer(BROKER, launch.id, place.life, place.address)
        self.host = BrokerHost(
            me, build, BROKER_CODEC, cluster.limits, credentials=cluster.credentials(),
            journal=journal, ledger=Books(self._archive, self._ledger) if self._ledger and self._archive else None,
        )  # fmt: skip
        self.host.term = lambda: self.broker.tree.term[0]
        await self.host.start(door)
        if launch.admin:
            self.admin = Admin(self.host, self.broker, self._ledger, key=cluster.admin_key())
            await self.admin.start(launch.admin)
        for foreign in self._make_doors(self) if self._make_doors is not None else ():
            await foreign.start()
            self.doors.append(foreign)
        if self._ledger is not None and cluster.fsync == "interval":
            self._plan_sync()
        self._watch = PlaceWatch(launch.id, self.broker.tree, settings)
        self._watch.start()
        LOG.info("started", extra={"facts": {"node": launch.id, "address": place.address, "life": place.life}})

    def _check_left(self, launch: Launch) -> None:
        if self._data is None or not self._data.left(self._data.path):
            return
        if not launch.joins:
            raise UsageError(
                f"data: {self._data.path}: broker {launch.id!r} has left its cluster for good; take it out of the"
                " file, or delete the directory and let it join with --parent"
            )
        self._data.begin_anew()

    async def leave(self) -> bool:
        """BRK-J3: leave the cluster for good; whether the others have let it go in time."""
        if not self.broker.tree.leaving:
            self.host.turn(self.broker.tree.leave)
        try:
            async with asyncio.timeout(_LEAVING_S):
                await self.left()
        except TimeoutError:
            return False
        return True

    async def left(self) -> None:
        """Returns when nobody counts on this broker any more, and its directory says so."""
        while not self.broker.tree.left:
            await asyncio.sleep(_LOOK_S)
        if self._data is not None:
            self._data.leave()

    async def stop(self, reason: str = "the broker stops") -> None:
        """Say goodbye to everybody, and leave everything written down. Who came by a parent is struck off first."""
        if self.launch.joins and self.broker.tree.counted_on and not await self.leave():
            LOG.warning("stays in the directory", extra={"facts": {"node": self.launch.id, "why": "nobody answers"}})
        await self._close_doors()
        await self.host.stop(reason)
        self._let_go()

    async def kill(self) -> None:
        """Vanish as a killed process does: no word, nothing more written. For brokers that share a process."""
        self.host.abandon()
        await self._close_doors()
        self._let_go()
        await asyncio.sleep(0)

    async def _close_doors(self) -> None:
        for foreign in self.doors:
            await foreign.stop()
        if self.admin is not None:
            await self.admin.stop()

    def _let_go(self) -> None:
        if self._watch is not None:
            self._watch.stop()
        if self._syncing is not None:
            self._syncing.cancel()
        if self._ledger is not None:
            self._ledger.abandon()
        if self._archive is not None:
            self._archive.abandon()
        if self._data is not None:
            self._data.release()

    def _open_ledger(self, life: int) -> SavedBroker | None:
        """The ledger with what earlier lives have left, if this broker has a data directory."""
        if self._data is None:
            return None
        launch = self.launch
        self._data.claim(launch.id, launch.cluster.cluster)
        self._data.begin(life)
        self._ledger = DiskBrokerLedger(
            self._data.path, fsync=launch.cluster.fsync, disk=self._disk, salvage=launch.salvage
        )  # fmt: skip
        self._ledger.log.report(launch.id)
        self._archive = ArchiveFiles(self._data.path, fsync=launch.cluster.fsync, disk=self._disk)
        return self._ledger.saved()

    def _address(self, door: socket.socket) -> str:
        entry = self.launch.cluster.find(self.launch.id)
        if entry is not None and entry.advertise:
            return entry.advertise
        bound = address_of(door)
        if split_address(bound)[0] in ("0.0.0.0", "::"):  # noqa: S104 - nobody can dial that
            raise UsageError(f"advertise: needed where a broker listens on all addresses ({bound})")
        return bound

    async def _find_place(self, address: str) -> BrokerPlace:
        launch = self.launch
        me = NodeId(launch.id)
        directory = {me: address} if launch.joins else {**launch.cluster.directory, me: address}
        parent, seeds = self._parent(directory)
        for seed in seeds:
            if not await check_welcome(Peer(BROKER, me), seed, launch.cluster.credentials()):
                told = {"node": launch.id, "parent": seed, "why": "nobody answers there; asked again until one does"}
                LOG.warning("not in a tree yet", extra={"facts": told})
        last = self._data.last_life() if self._data is not None else None
        life = await choose_life(
            Peer(BROKER, me), directory, launch.cluster.credentials(), last=last, has_parent=bool(parent or seeds)
        )
        return BrokerPlace(
            me, address, directory, parent, life, seeds, launch.cluster.limits.max_payload_bytes,
            launch.cluster.keep_rules(), seal_key(launch.cluster.peer_token, launch.cluster.cluster),
        )  # fmt: skip

    def _parent(self, directory: dict[NodeId, str]) -> tuple[NodeId | None, tuple[str, ...]]:
        """The configured parent by name, or else the address to ask."""
        if self.launch.parent:
            split_address(self.launch.parent, "parent")
            named = [node for node, address in directory.items() if address == self.launch.parent]
            return (named[0], ()) if named else (None, (self.launch.parent,))
        entry = self.launch.cluster.find(self.launch.id)
        return (NodeId(entry.parent) if entry is not None and entry.parent else None), ()

    def _journal(self, life: int, *, kept: bool) -> Journal | None:
        if self.launch.trace is None:
            return None
        from ordercast.trace.journal import Journal, journal_path  # With pyarrow: only for those who need it.

        directory = self.launch.trace / JOURNALS
        scope = {INFO_ORDER_SCOPE: self.launch.cluster.settings.order_scope}
        try:
            directory.mkdir(parents=True, exist_ok=True)
            earlier = any(directory.glob(f"{self.launch.id}.*{JOURNAL_SUFFIX}"))
            state = (STATE_KEPT if kept else STATE_LOST) if earlier else None
            journal = Journal(journal_path(directory, self.launch.id, life), packets=False)
            journal.begin(time.monotonic_ns(), life=int(earlier), state=state, info=scope)
            journal.flush()
        except OSError as error:
            raise UsageError(f"trace: {directory}: {error.strerror}") from None
        return journal

    def _plan_sync(self) -> None:
        loop = asyncio.get_running_loop()
        self._syncing = loop.call_later(seconds(self.launch.cluster.fsync_ms), self._sync)

    def _sync(self) -> None:
        assert self._ledger is not None
        try:
            self._ledger.sync()
            if self._archive is not None:
                self._archive.sync()
        except OSError as error:
            self.host.fail(error)
            return
        self._plan_sync()


async def serve(launch: Launch, ready: Path | None = None, doors: DoorMaker | None = None) -> int:
    """Run the broker until a signal, or until it must not go on; the exit code.

    Once it runs, it says where on standard output, and in `ready` to whoever started it.
    """
    process = BrokerProcess(launch, doors=doors)
    await process.start()
    loop = asyncio.get_running_loop()
    # A bug outside the machine is a bug too: what it left behind cannot be trusted.
    loop.set_exception_handler(lambda _, context: process.host.fail(context.get("exception") or _bug(context)))
    asked = asyncio.Event()

    def ask() -> None:
        if asked.is_set():
            sys.stderr.write("ordercast: stopped at once\n")
            sys.stderr.flush()
            os._exit(INTERRUPTED)
        asked.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask)
    if ready is not None:
        _write_ready(process, ready)
    _announce(process)
    stopping = loop.create_task(asked.wait())
    failing = loop.create_task(process.host.ended_event.wait())
    leaving = loop.create_task(process.left())
    await asyncio.wait((stopping, failing, leaving), return_when=asyncio.FIRST_COMPLETED)
    if asked.is_set() or leaving.done():
        await process.stop("the broker is being stopped" if asked.is_set() else "the broker has left")
    for task in (stopping, failing, leaving):
        task.cancel()
    failure = process.host.failure
    if failure is None:
        return 0
    await process.kill()
    sys.stderr.write(f"ordercast: broker {launch.id} stops: {_said(failure)}\n")
    return FAILED


def _bug(context: dict[str, Any]) -> InvariantError:
    return InvariantError(str(context["message"]))


def _said(failure: BaseException) -> str:
    if isinstance(failure, OSError):
        return f"its disk fails: {failure.strerror or failure}"
    return f"a bug: {type(failure).__name__}: {' '.join(str(failure).split())}"


def _announce(process: BrokerProcess) -> None:
    admin = f", admin port at {process.admin.address}" if process.admin is not None else ""
    doors = "".join(f", {door.kind} at {door.address}" for door in process.doors)
    sys.stdout.write(f"broker {process.launch.id} listens at {process.host.me.address}{admin}{doors}\n")
    sys.stdout.flush()


def _write_ready(process: BrokerProcess, ready: Path) -> None:
    me = process.host.me
    admin = process.admin.address if process.admin is not None else ""
    unnamed = ready.with_suffix(".new")
    told = Ready(os.getpid(), me.address, admin, me.life, start_ticks(os.getpid()))
    unnamed.write_bytes(msgspec.json.encode(told))
    unnamed.rename(ready)


def run(launch: Launch, ready: Path | None = None, doors: DoorMaker | None = None) -> int:
    """`serve` on the loop of the TCP runtime."""
    import uvloop

    raise_limit()
    gc.collect()
    gc.freeze()  # What was imported stays: no pause of this process is spent on looking through it again.
    gc.set_threshold(*_COLLECT_AFTER)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve(launch, ready, doors))
