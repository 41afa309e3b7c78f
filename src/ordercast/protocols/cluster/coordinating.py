"""Own updates: they wait for an entry, are stamped under it, and the entry is kept or given back. CLU-2.1, CLU-6."""

from __future__ import annotations

from collections import deque
from typing import ClassVar

from ordercast.core.chance import salt
from ordercast.core.messages import Message, Packet
from ordercast.core.state import State
from ordercast.protocols.cluster.delivery import Delivery
from ordercast.protocols.cluster.events import ABSENT, Event, Value, epoch_of, key_of, value_of
from ordercast.protocols.cluster.ports import Ports
from ordercast.protocols.cluster.tickets.lease import FOR_EVER, Grant, Lease, Phase
from ordercast.protocols.gossip.rumours import Rumours

LEASE, CATCH_UP = "lease", "catch-up"


class Coordinating(State):
    """The part of a member that makes updates. Without an entry, or with one that ran out, not one is made."""

    constant: ClassVar[tuple[str, ...]] = ("ports", "wires", "options", "app", "delivery", "rumours")
    durable: ClassVar[tuple[str, ...]] = ("lease", "wanted")

    def __init__(self, ports: Ports, delivery: Delivery, rumours: Rumours[Event]) -> None:
        self.ports = ports
        self.wires = ports.wires
        self.options = ports.options
        self.app = ports.app
        self.delivery = delivery
        self.rumours = rumours
        self.lease = Lease(ports.cluster, ports.options, salt(ports.place.salt, "lease", ports.cluster))
        self.proposals: deque[Message] = deque()
        self.base: Value = 0
        """What a new owner waits for: the last value that the managers know of former epochs."""
        self.catching_up = False
        self.wanted = False
        """Whether the application wants an entry even if it has no update to make."""
        self.asked = False
        """Whether it has asked for one, for updates that it will make when it has it."""
        self.announced = False
        """Whether the application knows that updates are made at once."""
        self.used_ns = 0
        """When the last update was made."""

    @property
    def may_update(self) -> bool:
        return self._owns and not self.catching_up

    @property
    def _owns(self) -> bool:
        """CLU-6.4: in time, and nobody else has begun a later epoch of the entry as far as this process knows."""
        lease = self.lease
        superseded = epoch_of(self.delivery.ordering.clock[lease.entry]) > lease.epoch
        return lease.is_valid(self.wires.now_ns) and not superseded

    def propose(self, message: Message) -> None:
        """CLU-2.1: make an update as soon as the process owns an entry."""
        refusal = self.refusal(len(message.payload))
        if refusal:
            self.wires.count("updates_refused")
            self.app.refused(message, refusal)
            return
        self.proposals.append(message)
        self.go_on()

    def refusal(self, payload_bytes: int = 0) -> str:
        """Why an update of this length will not be made, in words; empty: it may be."""
        options = self.options
        if not self.delivery.keeps_order:
            return "an observer without order makes no updates"
        if len(self.proposals) >= options.proposals:
            return f"{options.proposals} updates wait for an entry already"
        if payload_bytes > options.packet_bytes:
            return f"{payload_bytes} bytes; {options.packet_bytes} are allowed (packet_bytes)"
        return ""

    def go_on(self) -> None:
        """Make what can be made, or see to it that an entry is acquired."""
        if self.lease.phase is Phase.OWNER and not self._owns:
            if self.lease.next_epoch():
                self.base = self.delivery.ordering.clock[self.lease.entry]
            else:
                self._lose("it ran out")
        if self.catching_up and self.delivery.ordering.clock[self.lease.entry] >= self.base:
            self._caught_up()
        if not self.announced and self.may_update:
            self._announce()
        while self.proposals and self.may_update:
            self._make(self.proposals.popleft())
        if self.lease.phase is Phase.NONE and (self.proposals or self.wanted or self.asked):
            self._acquire()

    def _announce(self) -> None:
        self.announced, self.asked = True, False
        entry = self.lease.entry
        caught_up = self.delivery.ordering.clock[entry] >= self.base
        self.app.coordinates(self.ports.cluster, entry=entry, caught_up=caught_up)

    def _make(self, message: Message) -> None:
        """CLU-2.1: one update, stamped with everything that this process has delivered."""
        lease, clock = self.lease, self.delivery.ordering.clock
        lease.seq += 1
        entry, value = lease.entry, value_of(lease.epoch, lease.seq)
        prev = max(clock[entry], self.base) if lease.seq == 1 else ABSENT
        vector = (*clock[:entry], value, *clock[entry + 1 :])
        event = Event(key_of(entry, value), vector, prev, self.ports.address, message)
        self.used_ns = self.wires.now_ns
        self.rumours.begin(event)
        self.delivery.directory.agrees(event)
        self.delivery.own(event)
        self.wires.complete(message.id)

    # The entry

    def _acquire(self) -> None:
        ports, options = self.ports, self.options
        if not (self.delivery.knows_start and self.delivery.keeps_order):
            return
        name = ports.me.name
        if name in options.coordinators:
            self._granted(self.lease.own_for_ever(options.coordinators.index(name), ports.me.life))
        elif options.managers:
            self.lease.ask(ports.wires.now_ns, ports.cast)
            self._plan(round(options.claim_ms * 1e6))
        else:
            self._refuse_all("this process can own no entry: neither `coordinators` nor `managers` provide for it")

    def _refuse_all(self, reason: str) -> None:
        refused, self.proposals = self.proposals, deque()
        self.wanted = self.asked = False
        self.wires.count("updates_refused", len(refused))
        for message in refused:
            self.app.refused(message, reason)
        self.app.no_entry(self.ports.cluster, reason)

    def hear_manager(self, manager: str, packet: Packet) -> None:
        """An answer of a manager."""
        lease, now = self.lease, self.wires.now_ns
        grant = lease.receive(manager, packet, now, self.ports.cast)
        if grant is not None:
            self._granted(grant)
        elif lease.phase is Phase.BACKING_OFF:
            self._plan(lease.pause_ns(now))

    def _granted(self, grant: Grant) -> None:
        """CLU-6.8: before its first update a new owner waits, for a while, for the last ones of the owner before."""
        ports = self.ports
        self.base = grant.base
        self.used_ns = ports.wires.now_ns
        if self.lease.until_ns != FOR_EVER:
            self._plan_renewal()
        known = self.delivery.ordering.clock[grant.entry]
        if known < grant.base:
            self.catching_up = True
            ports.set_timer(CATCH_UP, 0, round(ports.options.catch_up_ms * 1e6))
            self.delivery.request([(grant.entry, known, grant.base)])
        ports.wires.count("entries_acquired")
        self.go_on()

    def _caught_up(self) -> None:
        self.catching_up = False
        self.ports.cancel_timer(CATCH_UP, 0)

    def on_timer(self, kind: str) -> None:
        lease, now = self.lease, self.wires.now_ns
        if kind == CATCH_UP:
            self.wires.count("catch_ups_given_up")
            self.catching_up = False
        elif lease.phase in (Phase.ASKING, Phase.CLAIMING):
            lease.give_up_claim(now, self.ports.cast)
            self._plan(lease.pause_ns(now))
        elif lease.phase is Phase.BACKING_OFF:
            lease.end()
        elif lease.phase is Phase.OWNER and lease.until_ns != FOR_EVER:
            self._keep_or_give_back(now)
        self.go_on()

    def _keep_or_give_back(self, now: int) -> None:
        options = self.options
        idle = not self.proposals and not self.wanted and options.idle_leases
        if idle and now - self.used_ns >= options.idle_leases * self.lease.lease_ns:
            self.give_back("idle")
        elif self._owns:
            self.lease.renew(now, self.ports.cast)
            self._plan_renewal()

    def _plan_renewal(self) -> None:
        """CLU-6.6: four times a lease, and in time to notice its end. A run may end while somebody owns an entry."""
        left = self.lease.until_ns - self.wires.now_ns
        self._plan(max(1, min(self.lease.lease_ns // 4, left)), background=not self.proposals)

    def _plan(self, delay_ns: int, *, background: bool = False) -> None:
        self.ports.set_timer(LEASE, 0, delay_ns, background=background)

    def give_back(self, reason: str) -> None:
        """CLU-6.7: on purpose."""
        owned = self.lease.phase is Phase.OWNER
        self.lease.release(self.ports.cast)
        if owned:
            self._lose(reason)
        self.ports.cancel_timer(LEASE, 0)

    def _lose(self, reason: str) -> None:
        """CLU-6.4: from the own deadline on, without a message."""
        self.lease.end()
        self._caught_up()
        self.ports.cancel_timer(LEASE, 0)
        self.wires.count("entries_left")
        if self.announced:
            self.announced = False
            self.app.coordinates_no_more(self.ports.cluster, reason)
