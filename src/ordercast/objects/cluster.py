"""One cluster of objects, as a process that is a member of it sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import msgspec

from ordercast.core.errors import UsageError
from ordercast.objects.contributions import LONGEST_NAME, Contributions
from ordercast.objects.errors import NoEntryError
from ordercast.objects.shared import Change, Counter, GrowingSet, Merged, Register
from ordercast.objects.writes import Made, Writes
from ordercast.protocols.cluster.events import Range

Value = TypeVar("Value")

REPAIR_S = 1.0
"""How long after a gap the state of others is fetched: those that come meanwhile are repaired at the same time."""
_REPAIR_MEMBERS = 2


class ClusterUpdate(msgspec.Struct, frozen=True):
    """One update that was delivered."""

    object: str
    contribution: Any
    maker: str
    entry: int
    epoch: int
    number: int
    """Entry, epoch and number identify it for ever."""


class Home(Protocol):
    """The node of a cluster, as the cluster uses it."""

    name: str

    def write(self, cluster: str) -> None:
        """Make what waits in the cluster's `writes`, now or as soon as it owns an entry."""

    def resync(self, cluster: str, members: int) -> None: ...

    def coordinate(self, cluster: str) -> None: ...

    def release(self, cluster: str) -> None: ...

    def coordinates_now(self, cluster: str) -> bool: ...

    def set_ordered(self, cluster: str, ordered: bool) -> None: ...

    def leave(self, cluster: str) -> None: ...


class Cluster:
    """Objects, updates, and the right to make them. Callbacks run one after the other, never within each other."""

    def __init__(self, home: Home, name: str, *, repair: bool = True) -> None:
        """`repair`: fetch the state of others when updates were skipped here."""
        self.name = name
        self.lost_ranges = 0
        """How many gaps in the history were skipped here."""
        self.state = Contributions()
        self.writes = Writes(self.state)
        self.process = home.name
        self._home = home
        self._loop = asyncio.get_running_loop()
        self._repairs = repair
        self._repair: asyncio.TimerHandle | None = None
        self._resync_waiters: list[asyncio.Future[int]] = []
        self._on_update: list[Callable[[ClusterUpdate], None]] = []
        self._on_lost: list[Callable[[Sequence[Range]], None]] = []
        self._on_coordination: list[Callable[[bool, str], None]] = []
        self._watchers: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._looking = False
        self._entry_waiters: list[asyncio.Future[None]] = []

    # Objects

    def register(self, name: str) -> Register:
        """An object with one value, the last one that was set."""
        return Register(self, _checked(name))

    def counter(self, name: str) -> Counter:
        return Counter(self, _checked(name))

    def growing_set(self, name: str) -> GrowingSet:
        return GrowingSet(self, _checked(name))

    def merged(self, name: str, merge: Callable[[Sequence[Any]], Value]) -> Merged[Value]:
        """An object whose value a function of yours makes of the writers' contributions."""
        return Merged(self, _checked(name), merge)

    def objects(self) -> list[str]:
        """Names of all objects that somebody has written."""
        return self.state.names()

    # Observing

    def on_update(self, call: Callable[[ClusterUpdate], None]) -> None:
        """Call it for every update from now on, in the order in which they are delivered here."""
        self._on_update.append(call)

    def on_lost(self, call: Callable[[Sequence[Range]], None]) -> None:
        """Call it when updates are skipped that never will be delivered here: ranges of entry values."""
        self._on_lost.append(call)

    def on_coordination(self, call: Callable[[bool, str], None]) -> None:
        """Call it when this process becomes a coordinator, and when it is one no more, with the reason."""
        self._on_coordination.append(call)

    async def wait_until(self, true: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Returns when `true()` is, which is looked at after every update; a TimeoutError if that takes too long."""
        if true():
            return
        watcher = true, self._loop.create_future()
        self._watchers.append(watcher)
        try:
            async with asyncio.timeout(timeout_s):
                await watcher[1]
        finally:
            self._watchers.remove(watcher)

    # Writing

    async def become_coordinator(self, timeout_s: float = 10.0) -> Coordination:
        """Own an entry and keep it, until it is given back. A NoEntryError if none is free for so long.

        Updates of a process that coordinates nothing find an entry by themselves; this is for those who write often,
        or want to know that they can.
        """
        self._home.coordinate(self.name)
        if not self._home.coordinates_now(self.name):
            future: asyncio.Future[None] = self._loop.create_future()
            self._entry_waiters.append(future)
            try:
                async with asyncio.timeout(timeout_s):
                    await future
            except BaseException as error:
                self._home.release(self.name)  # Nobody waits for it any more.
                if isinstance(error, TimeoutError):
                    raise NoEntryError(f"{self.name}: no entry became free within {timeout_s:g} s") from None
                raise
            finally:
                self._entry_waiters.remove(future)
        return Coordination(self)

    @property
    def coordinates(self) -> bool:
        """Whether an update would be made at once."""
        return self._home.coordinates_now(self.name)

    def release(self) -> None:
        """Give the entry back, if there is one."""
        self._home.release(self.name)

    async def write(self, change: Change) -> None:
        """Make an update; returns when it is made. An UpdateRefusedError, a ConnectionError or a UsageError if not."""
        made: Made = self._loop.create_future()
        self.writes.add(change, made)
        self._home.write(self.name)
        await made

    # Repair

    async def resync(self, members: int = 3, timeout_s: float = 10.0) -> int:
        """Merge the state of so many other members with this one, and say how many have told theirs.

        Objects have then all that these members have seen; updates that this covers are not delivered one by one.
        Skipped updates are repaired this way by themselves, unless `repair` was turned off when joining.
        """
        told: asyncio.Future[int] = self._loop.create_future()
        self._resync_waiters.append(told)
        try:
            self._home.resync(self.name, members)
            async with asyncio.timeout(timeout_s):
                return await told
        finally:
            self._resync_waiters.remove(told)

    def _repair_soon(self) -> None:
        if self._repairs and self._repair is None:
            self._repair = self._loop.call_later(REPAIR_S, self._repair_now)

    def _repair_now(self) -> None:
        self._repair = None
        with suppress(ConnectionError):
            self._home.resync(self.name, _REPAIR_MEMBERS)

    def ended(self, error: Exception) -> None:
        """The node has stopped, or is a member no more: nothing that waits will come."""
        if self._repair is not None:
            self._repair.cancel()
        self._repairs = False
        self.writes.refuse_all(error)
        for told in self._resync_waiters:
            if not told.done():
                told.set_exception(error)

    # Membership

    def set_ordered(self, ordered: bool) -> None:
        """Keep causal order from now on, or take updates as they come: sooner, and in any order."""
        self._home.set_ordered(self.name, ordered)

    def leave(self) -> None:
        """Be a member no more: no updates come, and the entry is free for others."""
        self._home.leave(self.name)

    # What the node tells

    def delivered(self, update: ClusterUpdate) -> None:
        for call in self._on_update:
            self._loop.call_soon(call, update)
        self._look_soon()

    def _look_soon(self) -> None:
        if self._watchers and not self._looking:
            self._looking = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._looking = False
        for true, future in self._watchers:
            if not future.done() and true():
                future.set_result(None)

    def skipped(self, ranges: Sequence[Range]) -> None:
        self.lost_ranges += len(ranges)
        for call in self._on_lost:
            self._loop.call_soon(call, ranges)
        self._repair_soon()

    def behind(self) -> None:
        """Others have updates that nobody sends this process any more."""
        self._repair_soon()

    def resynced(self, answers: int) -> None:
        for told in self._resync_waiters:
            if not told.done():
                told.set_result(answers)
        self._look_soon()

    def coordination(self, owns: bool, reason: str) -> None:
        if owns:
            for future in self._entry_waiters:
                if not future.done():
                    future.set_result(None)
        for call in self._on_coordination:
            self._loop.call_soon(call, owns, reason)


class Coordination:
    """The right to make updates at once, until it is given back. `async with` gives it back at the end."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def valid(self) -> bool:
        """Whether this process owns an entry now. It may lose it if it does not reach the managers for a lease."""
        return self._cluster.coordinates

    def release(self) -> None:
        self._cluster.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ConnectionError):
            self.release()


def _checked(name: str) -> str:
    if not 0 < len(name) <= LONGEST_NAME:
        raise UsageError(f"object: its name has {len(name)} letters; 1 to {LONGEST_NAME} are allowed")
    return name
