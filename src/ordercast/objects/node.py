"""A process with replicated objects: one node, any number of clusters."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from ordercast.core.errors import PeerError, UsageError
from ordercast.core.ids import NodeId, valid_node
from ordercast.core.messages import Guarantee, Message
from ordercast.core.process import OverlayPlace, OverlayWires
from ordercast.net.brokers.incarnation import FIRST, DataDirectory, later_life
from ordercast.net.host import Carrier
from ordercast.net.overlays.host import OverlayHost
from ordercast.net.wire.credentials import Credentials
from ordercast.net.wire.settings import WireSettings
from ordercast.objects.cluster import Cluster, ClusterUpdate
from ordercast.objects.contributions import Maker, decode_update
from ordercast.objects.errors import UpdateRefusedError
from ordercast.objects.ticket_log import TicketLog
from ordercast.objects.writes import Made
from ordercast.protocols.cluster import CLUSTER
from ordercast.protocols.cluster.events import Event, Range, causal_order, epoch_of, seq_of
from ordercast.protocols.cluster.machine import ClusterMachine
from ordercast.protocols.cluster.options import ClusterOptions
from ordercast.protocols.cluster.tickets.manager import EntryTicket

_ASKED_BY_OWNERS = 3
"""Members that a new owner of an entry asks for their state if it could not get its former owner's last updates."""


async def start(
    name: str, *, listen: str = "127.0.0.1:0", contacts: Sequence[str] = (), managers: Sequence[str] = (),
    cluster: str = "ordercast", token: str = "", carrier: Carrier = "udp", data: Path | None = None,
    options: ClusterOptions | None = None, settings: WireSettings | None = None,
) -> Node:  # fmt: skip
    """Start a node.

    Args:
        name: of the process, different from all others.
        listen: HOST:PORT for connections and datagrams; port 0 takes a free one, see `Node.address`.
        contacts: addresses of some that are there already; none for the first.
        managers: addresses of the processes that lease entries to coordinators, the same list at every process. Three
            survive the crash of one. Without managers nobody can write.
        cluster: the name that all processes of the system share.
        token: what they all know. Without one a process listens on loopback only.
        carrier: `udp`, or `tcp` where datagrams do not pass.
        data: a directory of this process alone. A manager needs one: what it has promised is on the disk before
            anybody hears of it, and after a restart it goes on where it was. If the directory is lost, and the process
            starts with an empty one, its former promises are too: see docs/objects.md.
        options: of the protocol: rounds, fanout, entries, leases. The same at every process.
        settings: limits and timeouts of connections and datagrams.
    """
    if not valid_node(name):
        raise UsageError(f"name: {name!r} cannot be the name of a process")
    chosen = options or ClusterOptions(round_ms=50.0, lease_ms=2_000.0)
    if managers:
        chosen = msgspec.structs.replace(chosen, managers=tuple(managers))
    if chosen.coordinators:
        raise UsageError("options: coordinators: entries for ever are for scenarios; here they are leased (managers)")
    if data is None and listen in chosen.managers:
        raise UsageError(f"data: {name} is a manager, and needs a directory for what it promises")
    memory = NodeMemory(data, name) if data is not None else None
    try:
        life = memory.begin_life() if memory is not None else later_life(None)
        known = Credentials(cluster=cluster, peer_token=token)
        node = Node(name, tuple(contacts), chosen, known, carrier, life, settings or WireSettings(), memory)
        await node.start(listen)
    except BaseException:
        if memory is not None:
            memory.let_go()
        raise
    return node


class NodeMemory:
    """A process's directory: which life begins, and what it has promised as a manager of entries."""

    def __init__(self, path: Path, name: str) -> None:
        self._directory = DataDirectory(path)
        try:
            self._last = self._directory.last_life()
            self.tickets = TicketLog(path, name, first_life=self._last is None)
        except BaseException:
            self._directory.release()
            raise

    def begin_life(self) -> int:
        """0 is the first of all. The tickets' log is there before it: a life on record without one has forgotten."""
        life = FIRST if self._last is None else later_life(self._last)
        self._directory.begin(life)
        return life

    def let_go(self) -> None:
        self.tickets.abandon()
        self._directory.release()


class Node:
    """A running process with replicated objects: `join`, `stop`. Made by `start`."""

    def __init__(
        self, name: str, contacts: tuple[str, ...], options: ClusterOptions, credentials: Credentials,
        carrier: Carrier, life: int, settings: WireSettings, memory: NodeMemory | None,
    ) -> None:  # fmt: skip
        self.name = name
        self._memory = memory
        self._options = options
        self._clusters: dict[str, Cluster] = {}
        self._catching_up: set[str] = set()
        """Clusters that it owns an entry of whose former owners' updates it has not got: it fetches the state first."""
        self._joining: dict[str, asyncio.Future[None]] = {}
        self._host = OverlayHost(
            NodeId(name), self._build, contacts, CLUSTER.codec(), Guarantee.EVENTUAL, settings,
            credentials=credentials, life=life, salt=secrets.randbits(63), carrier=carrier,
            ledger=memory.tickets if memory is not None else None,
        )  # fmt: skip

    def _build(self, wires: OverlayWires, place: OverlayPlace) -> ClusterMachine:
        machine = ClusterMachine(wires, place, self._options, _Application(self, self._host))
        if self._memory is not None:
            tickets = self._memory.tickets
            machine.manager.remember(tickets.tickets(), everything=tickets.everything)
        return machine

    @property
    def address(self) -> str:
        """The address at which others reach this process."""
        return self._host.me.address

    @property
    def counters(self) -> dict[str, int]:
        """Counters of the process: casts, updates that were obsolete, ranges that were skipped, and more."""
        return dict(sorted(self._host.counters.items()))

    @property
    def failure(self) -> BaseException | None:
        """The failure that stopped the process, if it did not stop on purpose."""
        return self._host.failure

    async def start(self, listen: str) -> None:
        await self._host.start(listen)

    async def join(
        self, cluster: str, *, ordered: bool = True, repair: bool = True, timeout_s: float = 10.0
    ) -> Cluster:  # fmt: skip
        """Become a member; returns when the state of the objects is here, or nobody has any.

        `ordered`: in causal order. Otherwise updates are delivered as they come, the state is what comes from now on,
        and this process cannot write. `repair`: fetch the state of others when updates were skipped here.
        """
        if cluster in self._clusters:
            raise UsageError(f"cluster: {self.name} is a member of {cluster!r} already")
        if not cluster:
            raise UsageError("cluster: needs a name")
        joined = self._clusters[cluster] = Cluster(self, cluster, repair=repair)
        self._joining[cluster] = waiting = asyncio.get_running_loop().create_future()
        self._turn(self._machine.join, cluster, ordered=ordered)
        if not ordered:
            return joined
        try:
            async with asyncio.timeout(timeout_s):
                await waiting
        except TimeoutError:
            self.leave(cluster)
            raise TimeoutError(f"{cluster}: nobody said where it stands within {timeout_s:g} s") from None
        return joined

    async def stop(self) -> None:
        """Leave all clusters, say goodbye, and end."""
        if not self._host.ended_event.is_set():
            self._host.leave()
        await self._host.stop()
        self._let_go()

    def _let_go(self) -> None:
        for cluster in self._clusters.values():
            cluster.ended(ConnectionError(f"{self.name} is stopped"))
        if self._memory is not None:
            self._memory.let_go()

    def abandon(self) -> None:
        """Vanish without a word, as a killed process does. For tests."""
        self._host.abandon()
        self._let_go()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # What clusters ask for

    @property
    def _machine(self) -> ClusterMachine:
        machine = self._host.machine
        assert isinstance(machine, ClusterMachine)
        return machine

    def _turn(self, action: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._host.turn(action, *args, **kwargs)

    def write(self, cluster: str) -> None:
        self._check_member(cluster)
        self._turn(self._make_writes, cluster)

    def _make_writes(self, cluster: str) -> None:
        """Within a turn: what waits is made as long as this process may, and otherwise an entry is asked for."""
        found, member = self._clusters.get(cluster), self._machine.clusters.get(cluster)
        if found is None or member is None or cluster in self._catching_up:
            return
        coordinating = member.coordinating
        while found.writes and coordinating.may_update:
            found.writes.make_one(coordinating.lease.entry, partial(self._publish, cluster))
        if not found.writes:
            return
        refusal = coordinating.refusal() if len(found.writes) <= self._options.proposals else "too many updates wait"
        if refusal:
            found.writes.refuse_all(UpdateRefusedError(refusal))
        else:
            self._machine.ask_for_entry(cluster)

    def _publish(self, cluster: str, payload: bytes, made: Made) -> None:
        self._host.publish_within(cluster, payload, made)

    def resync(self, cluster: str, members: int) -> None:
        self._check_member(cluster)
        self._turn(self._machine.resync, cluster, members)

    def _check_member(self, cluster: str) -> None:
        if cluster not in self._clusters:
            raise UsageError(f"cluster: {self.name} is no member of {cluster!r} any more")

    def coordinate(self, cluster: str) -> None:
        self._turn(self._machine.coordinate, cluster)

    def release(self, cluster: str) -> None:
        if cluster in self._clusters:
            self._turn(self._machine.release, cluster)

    def coordinates_now(self, cluster: str) -> bool:
        member = self._machine.clusters.get(cluster)
        return member is not None and bool(self._turn(lambda: member.coordinating.may_update))

    def set_ordered(self, cluster: str, ordered: bool) -> None:
        self._check_member(cluster)
        self._turn(self._machine.join, cluster, ordered=ordered)
        self.write(cluster)  # What waits is refused if the order is kept no more.

    def leave(self, cluster: str) -> None:
        found = self._clusters.pop(cluster, None)
        if found is not None:
            self._joining.pop(cluster, None)
            self._catching_up.discard(cluster)
            found.ended(UsageError(f"cluster: {self.name} is no member of {cluster!r} any more"))
            self._turn(self._machine.leave, cluster)

    # What the machine tells, through its application

    def member(self, cluster: str) -> Cluster | None:
        return self._clusters.get(cluster)

    def owns_entry(self, cluster: str, entry: int, *, caught_up: bool) -> None:
        """Totals of counters go on where the owner before had come to: whoever may not know that asks others first."""
        found = self._clusters.get(cluster)
        if found is None:
            return
        if caught_up:
            found.coordination(True, f"entry {entry}")
            self._make_writes(cluster)
        else:
            self._catching_up.add(cluster)
            self._machine.resync(cluster, _ASKED_BY_OWNERS)

    def resynced(self, cluster: str, answers: int) -> None:
        found, member = self._clusters.get(cluster), self._machine.clusters.get(cluster)
        if found is None:
            return
        found.resynced(answers)
        if cluster in self._catching_up:
            self._catching_up.discard(cluster)
            if member is not None and member.coordinating.may_update:
                found.coordination(True, f"entry {member.coordinating.lease.entry}")
            self._make_writes(cluster)

    def promised(self, cluster: str, entry: int, ticket: EntryTicket) -> None:
        if self._memory is not None:
            self._memory.tickets.keep(cluster, entry, ticket)

    def joined(self, cluster: str) -> None:
        waiting = self._joining.pop(cluster, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)


class _Application:
    """The machine's port to its application: keeps the objects, and passes news on to the clusters."""

    def __init__(self, node: Node, host: OverlayHost) -> None:
        self._node = node
        self._host = host

    def joined(self, cluster: str) -> None:
        self._node.joined(cluster)

    def update(self, event: Event) -> None:
        cluster = self._node.member(event.message.topic)
        if cluster is None:
            return
        try:
            maker = maker_of(event)
            contribution = decode_update(event.message.payload, maker.process)
        except PeerError:
            self._host.count("updates_malformed")
            return
        cluster.state.take(contribution, maker)
        said = msgspec.structs.astuple(contribution)[1]
        epoch, number = epoch_of(maker.value), seq_of(maker.value)
        cluster.delivered(ClusterUpdate(contribution.name, said, maker.process, maker.entry, epoch, number))

    def lost(self, cluster: str, ranges: Sequence[Range]) -> None:
        found = self._node.member(cluster)
        if found is not None:
            found.skipped(ranges)

    def behind(self, cluster: str, ranges: Sequence[Range]) -> None:  # noqa: ARG002 - whichever they are
        found = self._node.member(cluster)
        if found is not None:
            found.behind()

    def resynced(self, cluster: str, answers: int) -> None:
        self._node.resynced(cluster, answers)

    def coordinates(self, cluster: str, *, entry: int, caught_up: bool) -> None:
        self._node.owns_entry(cluster, entry, caught_up=caught_up)

    def promised(self, cluster: str, entry: int, ticket: EntryTicket) -> None:
        self._node.promised(cluster, entry, ticket)

    def no_entry(self, cluster: str, reason: str) -> None:
        found = self._node.member(cluster)
        if found is not None:
            found.writes.refuse_all(UpdateRefusedError(reason))

    def coordinates_no_more(self, cluster: str, reason: str) -> None:
        found = self._node.member(cluster)
        if found is not None:
            found.coordination(False, reason)

    def refused(self, message: Message, reason: str) -> None:
        self._host.refuse_publication(message.id, UpdateRefusedError(reason))

    def snapshot(self, cluster: str) -> bytes:
        found = self._node.member(cluster)
        return found.state.snapshot() if found is not None else b""

    def install(self, cluster: str, state: bytes) -> None:
        found = self._node.member(cluster)
        if found is None:
            return
        try:
            found.state.install(state, cluster)
        except PeerError:
            self._host.count("states_malformed")


def maker_of(event: Event) -> Maker:
    """A PeerError if nobody can have made it."""
    message = event.message
    _, _, life = message.origin.partition("~")
    if life and not (life.isascii() and life.isdecimal()):
        raise PeerError(message.publisher, f"makes an update in life {life[:40]!r}")
    return Maker(message.publisher, int(life or 0), event.entry, event.value, causal_order(event))
