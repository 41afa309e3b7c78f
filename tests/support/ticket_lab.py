"""Managers of entries and processes that want them, with clocks that run at different rates, under virtual time.

Packets are lost, late and overtaken; managers and owners die, managers come back without their memory, or with what is
on their disks. Every use of an entry is written down with its true time, so that two owners at a time are seen whatever
they think themselves.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ordercast.core.chance import mix, salt, unit
from ordercast.core.messages import Packet
from ordercast.core.process import Peer
from ordercast.objects.ticket_log import TicketLog
from ordercast.protocols.cluster.options import ClusterOptions
from ordercast.protocols.cluster.packets import Claim, Release, Renew, TicketAsked, TicketState
from ordercast.protocols.cluster.tickets.lease import Lease, Phase
from ordercast.protocols.cluster.tickets.manager import Manager

CLUSTER = "room"
MS = 1_000_000


class Clock:
    """The clock of one process: its rate differs from true time, and it began at some moment of its own."""

    def __init__(self, lab: TicketLab, rate: float) -> None:
        self.lab = lab
        self.rate = rate
        self.began = lab.now

    @property
    def now_ns(self) -> int:
        return round((self.lab.now - self.began) * self.rate)

    def after(self, local_ns: float, action: Callable[[], None]) -> None:
        self.lab.plan(local_ns / self.rate, action)


class Wanting:
    """A process that wants an entry, uses it now and then, and gives it back after some time."""

    def __init__(self, lab: TicketLab, name: str, life: int, rate: float) -> None:
        self.lab, self.clock = lab, Clock(lab, rate)
        self.peer = Peer("node", name, life, f"{name}~{life}")
        self.lease: Lease = lab.lease(CLUSTER, lab.options, salt(lab.seed, name, life))
        self.alive = True
        self.wants = True
        self.grants = 0
        self.turn = 0
        lab.plan(1, self.step)

    def cast(self, address: str, packet: Packet) -> None:
        self.lab.post(self.peer, address, packet)

    def step(self) -> None:
        """What its timer makes it do."""
        if not self.alive:
            return
        self.turn += 1
        lease, now, options = self.lease, self.clock.now_ns, self.lab.options
        if lease.phase is Phase.OWNER:
            self._own(now)
            self._again(lease.lease_ns // 4)
        elif lease.phase in (Phase.ASKING, Phase.CLAIMING):
            lease.give_up_claim(now, self.cast)
            self._again(lease.pause_ns(now))
        elif self.wants:
            lease.ask(now, self.cast)
            self._again(options.claim_ms * MS)

    def _own(self, now: int) -> None:
        if not self.lease.is_valid(now):
            self.lease.phase = Phase.NONE
        elif self.lab.chance("release", self.peer.address, self.turn) < 0.15:
            self.lease.release(self.cast)
        else:
            self.lease.renew(now, self.cast)

    def _again(self, local_ns: float) -> None:
        turn = self.turn
        self.clock.after(local_ns, lambda: self.step() if self.turn == turn else None)

    def hear(self, manager: Peer, packet: Packet) -> None:
        before = self.lease.phase
        if self.lease.receive(manager.address, packet, self.clock.now_ns, self.cast) is not None:
            self.grants += 1
            self.lab.granted(self)
            self.use()
            self.turn += 1
            self._again(self.lease.lease_ns // 4)
        elif self.lease.phase is Phase.BACKING_OFF and before is not Phase.BACKING_OFF:
            self.turn += 1
            self._again(self.lease.pause_ns(self.clock.now_ns))

    def use(self) -> None:
        """As often as it may: until the last moment of its lease."""
        if self.alive and self.lease.is_valid(self.clock.now_ns):
            self.lease.seq += 1
            self.lab.used(self)
            grant = self.grants
            self.clock.after(self.lab.use_every_ns, lambda: self.use() if self.grants == grant else None)


class TicketLab:
    """`run` lets it live; `double` and `overlaps` are what must not be."""

    def __init__(
        self, seed: int, *, manager: type[Manager] = Manager, lease: type[Lease] = Lease, wanting: int = 4,
        managers: int = 3, loss: float = 0.1, latest_ms: float = 6, rates: float = 0.0, crashes: bool = True,
        disks: Path | None = None, log: type[TicketLog] = TicketLog, **settings: Any,
    ) -> None:  # fmt: skip
        """`rates`: by how much clocks differ from true time, at most.

        `disks`: managers keep what they promise, below this directory; all of them die at once then, not one at a time.
        """
        self.disks, self.log = disks, log
        self.logs: dict[str, TicketLog] = {}
        self.seed, self.now, self.order = seed, 0.0, 0
        self.manager, self.lease = manager, lease
        self.loss, self.latest_ms, self.rates = loss, latest_ms, rates
        self.addresses = tuple(f"m{i}" for i in range(managers))
        defaults: dict[str, Any] = {"entries": 2, "lease_ms": 60.0, "claim_ms": 20.0, "managers": self.addresses}
        self.options = ClusterOptions(**defaults | settings)
        self.use_every_ns = 1.0 * MS
        self.queue: list[tuple[float, int, Callable[[], None]]] = []
        self.managers: dict[str, tuple[Peer, Manager, Clock] | None] = {}
        self.lives: dict[str, int] = {}
        self.owners: dict[tuple[int, int], str] = {}
        self.last_use: dict[int, tuple[int, str]] = {}
        self.double: list[str] = []
        self.overlaps: list[str] = []
        self.cut: set[str] = set()
        """Addresses that nothing reaches, and from which nothing comes."""
        self.grants: list[tuple[float, int, int, str]] = []
        for address in self.addresses:
            self.start_manager(address)
        self.wanting = {f"q{i}": Wanting(self, f"q{i}", 0, self._rate(f"q{i}")) for i in range(wanting)}
        self.by_address = {one.peer.address: one for one in self.wanting.values()}
        if crashes:
            self.plan(20 * MS, partial(self._fault, 0))

    def chance(self, *identity: object) -> float:
        return unit(mix(salt(self.seed, *identity), 1))

    def _rate(self, name: str) -> float:
        return 1 + self.rates * (1 if self.chance("rate", name) < 0.5 else -1)

    def set_rates(self, *, owner: float, managers: float) -> None:
        """How fast clocks run from now on; none has run yet."""
        for one in self.wanting.values():
            one.clock.rate = owner
        for there in self.managers.values():
            assert there is not None
            there[2].rate = managers

    def plan(self, delay_ns: float, action: Callable[[], None]) -> None:
        self.order += 1
        heapq.heappush(self.queue, (self.now + delay_ns, self.order, action))

    def run(self, milliseconds: float) -> TicketLab:
        while self.queue and self.queue[0][0] <= milliseconds * MS:
            self.now, _, action = heapq.heappop(self.queue)
            action()
        return self

    # Packets

    def post(self, source: Peer, address: str, packet: Packet) -> None:
        self.order += 1
        if not {source.address, address} & self.cut and self.chance("loss", self.order) >= self.loss:
            self.plan(
                self.chance("delay", self.order) * self.latest_ms * MS, partial(self._arrive, source, address, packet)
            )

    def _arrive(self, source: Peer, address: str, packet: Packet) -> None:
        there = self.managers.get(address)
        for_manager = isinstance(packet, TicketAsked | Claim | Renew | Release)
        if there is not None and (for_manager or (isinstance(packet, TicketState) and packet.nonce < 0)):
            peer, manager, clock = there
            said: list[tuple[str, Packet]] = []
            manager.receive(source, packet, clock.now_ns, lambda to, answer: said.append((to, answer)))
            if address in self.logs:
                self.logs[address].flush()
            for to, answer in said:
                self.post(peer, to, answer)
        elif address in self.by_address and self.by_address[address].alive:
            self.by_address[address].hear(source, packet)

    # Faults

    def start_manager(self, address: str) -> None:
        life = self.lives.get(address, -1) + 1
        self.lives[address] = life
        peer, clock = Peer("node", address, life, address), Clock(self, self._rate(address))
        manager = self.manager(peer, self.options)
        if self.disks is not None:
            self.logs[address] = log = self.log(self.disks / address, address, first_life=life == 0)
            manager.keep = log.keep
            manager.remember(log.tickets(), everything=log.everything)
        manager.start(clock.now_ns)
        self.managers[address] = peer, manager, clock

    def _fault(self, number: int) -> None:
        """A manager at a time, long enough apart for it to learn, or all with their disks; an owner now and then."""
        victim = self.addresses[int(self.chance("manager", number) * len(self.addresses))]
        for address in (victim,) if self.disks is None else self.addresses:
            self.managers[address] = None
            if address in self.logs:
                self.logs.pop(address).abandon()
            self.plan(10 * MS, partial(self.start_manager, address))
        name = f"q{int(self.chance('owner', number) * len(self.wanting))}"
        self.crash(name)
        self.plan(self.chance("next", number) * 50 * MS + 250 * MS, partial(self._fault, number + 1))

    def crash(self, name: str) -> None:
        """It dies without a word and comes back as another life."""
        old = self.wanting[name]
        old.alive = False
        del self.by_address[old.peer.address]
        new = self.wanting[name] = Wanting(self, name, old.peer.life + 1, self._rate(name))
        self.by_address[new.peer.address] = new

    # What is seen

    def granted(self, one: Wanting) -> None:
        place = one.lease.entry, one.lease.epoch
        self.grants.append((self.now, *place, one.peer.address))
        if self.owners.setdefault(place, one.peer.address) != one.peer.address:
            self.double.append(f"{place}: {self.owners[place]} and {one.peer.address}")

    def used(self, one: Wanting) -> None:
        entry, epoch = one.lease.entry, one.lease.epoch
        last = self.last_use.get(entry, (0, ""))
        if last[0] > epoch:
            self.overlaps.append(f"entry {entry}: {one.peer.address} in epoch {epoch} after {last}")
        else:
            self.last_use[entry] = epoch, one.peer.address
