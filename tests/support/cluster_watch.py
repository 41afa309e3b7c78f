"""Watches every step of a simulated cluster: its invariants hold after each, and its order by the definition.

The order is judged from who delivered what before whom made what, without a look at any vector.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

from ordercast.core.messages import Message, Packet
from ordercast.protocols.cluster.events import epoch_of
from ordercast.protocols.cluster.machine import ClusterMachine
from ordercast.protocols.cluster.member import ClusterMember
from ordercast.protocols.cluster.packets import Recover
from ordercast.protocols.cluster.recovery import trimmed
from ordercast.protocols.cluster.tickets.lease import Phase
from ordercast.sim.connections import Life
from ordercast.sim.overlays.world import OverlayWorld

Receiver = tuple[str, int]
"""A node in one life, as far as its memory goes."""


class BrokenError(AssertionError):
    """A promise or an invariant does not hold; the id stands first."""


class OrderOracle:
    """O1 and O2 by the definition: sets of messages as bits of integers."""

    def __init__(self) -> None:
        self.bits: dict[str, int] = {}
        self.past: dict[str, int] = {}
        """Of every message: what its maker had delivered before, with all of its past."""
        self.got: dict[Receiver, int] = defaultdict(int)
        self.covered: dict[Receiver, int] = defaultdict(int)
        """Of every receiver: the past of everything that it delivered."""
        self.inversions = 0
        self.deliveries = 0

    def made(self, maker: Receiver, message_id: str) -> None:
        """Of messages that their makers do not deliver in the moment in which they make them: that moment."""
        self.past.setdefault(message_id, self.got[maker] | self.covered[maker])

    def deliver(self, receiver: Receiver, message: Message, *, ordered: bool, strict: bool = True) -> None:
        bit = self.bits.setdefault(message.id, 1 << len(self.bits))
        self.made(receiver, message.id)  # Mostly its maker delivers it first, in the moment in which it makes it.
        self.deliveries += 1
        if self.got[receiver] & bit:
            raise BrokenError(f"O2: {receiver} delivers {message.id} twice")
        if self.covered[receiver] & bit:
            self.inversions += 1
            if ordered and strict:
                raise BrokenError(f"O1: {receiver} delivers {message.id} after something that it happened before")
        self.got[receiver] |= bit
        self.covered[receiver] |= self.past[message.id]


class OneOrder:
    """CLU-9 by the definition: what each receiver delivers, one after the other, fits into one order of all."""

    def __init__(self) -> None:
        self.sequences: dict[Receiver, list[str]] = defaultdict(list)

    def check(self) -> None:
        """At the end. Take away what nobody has anything before, until nothing is left; a rest is a circle."""
        after: dict[str, set[str]] = defaultdict(set)
        before: Counter[str] = Counter()
        for sequence in self.sequences.values():
            for one, other in pairwise(sequence):
                if other not in after[one]:
                    after[one].add(other)
                    before[other] += 1
        free = [message for message in after if not before[message]]
        while free:
            for other in sorted(after.pop(free.pop(), ())):
                before[other] -= 1
                if not before[other]:
                    free.append(other)
        left = sorted(message for message, others in after.items() if others)
        if left:
            raise BrokenError(f"CLU-9: no order has all deliveries of {left[:6]} as they were")


class ClusterWatch:
    """Put on a world before it lives."""

    def __init__(self, world: OverlayWorld, cluster: str = "t0", *, timely: bool = True) -> None:
        """`timely`: nobody stands still, so that nobody holds anything back for longer than promised."""
        self.world = world
        self.cluster = cluster
        self.timely = timely
        self.oracle = OrderOracle()
        self.one_order = OneOrder()
        self.makers: dict[tuple[int, int], Receiver] = {}
        self.last_epoch: dict[int, int] = {}
        self.last_seq: dict[tuple[int, int], int] = {}
        self._clocks: dict[Receiver, list[int]] = {}
        self._waiting: dict[Receiver, dict[int, tuple[str, int]]] = {}
        self._seen: dict[Receiver, ClusterMember] = {}
        self._delivered: dict[Receiver, set[str]] = defaultdict(set)
        world.processes.after_event = self._after
        world.processes.tap = self._sent
        world.delivery_watchers.append(self._deliver)
        world.completion_watchers.append(lambda node, made: self.oracle.made(self._receiver(node.node), made))

    def member(self, name: str) -> ClusterMember | None:
        machine = self.world.processes.machine(name)
        return machine.clusters.get(self.cluster) if isinstance(machine, ClusterMachine) else None

    def _receiver(self, name: str) -> Receiver:
        return name, self.world.nodes[name].incarnation  # type: ignore[index]

    def _deliver(self, node: Any, message: Message) -> None:
        member = self.member(node.node)
        receiver = self._receiver(node.node)
        self._delivered[receiver].add(message.id)
        ordered = member is not None and member.delivery.keeps_order
        self.oracle.deliver(receiver, message, ordered=ordered)
        if ordered:
            self.one_order.sequences[receiver].append(message.id)

    def _after(self, life: Life) -> None:
        member = self.member(life.name)
        if member is None:
            return
        receiver = self._receiver(life.name)
        if self._seen.get(receiver) is not member:
            self._seen[receiver] = member  # Back with what was durable; what waited in memory is gone.
            self._waiting.pop(receiver, None)
        self._check_order(receiver, member)
        self._check_waiting(receiver, member)
        self._check_bounds(member)
        self._check_entry(receiver, member)

    def _check_order(self, receiver: Receiver, member: ClusterMember) -> None:
        ordering = member.delivery.ordering
        before = self._clocks.get(receiver)
        if before is not None and any(now < then for now, then in zip(ordering.clock, before, strict=True)):
            raise BrokenError(f"V1: the clock of {receiver} goes back")
        self._clocks[receiver] = list(ordering.clock)
        for event in ordering.waiting.values():
            if ordering.is_obsolete(event) or ordering.is_ready(event):
                raise BrokenError(f"V2: {receiver} lets {event.message.id} wait for nothing")
        if set(member.delivery.armed) != set(ordering.waiting):
            raise BrokenError(
                f"V3: {receiver} has timers {member.delivery.armed} and lets wait {list(ordering.waiting)}"
            )

    def _check_waiting(self, receiver: Receiver, member: ClusterMember) -> None:
        now = self.world.clock.now
        before = self._waiting.get(receiver, {})
        after = {key: (event.message.id, now) for key, event in member.delivery.ordering.waiting.items()}
        options = member.ports.options
        most = options.terminate_ns + options.recover_ns + options.total_ns
        after |= {event.key: (event.message.id, now) for event in member.delivery.total.events}
        overtaken = member.ports.options.total_rounds > 0
        for key, (message_id, since) in before.items():
            if key in after:
                after[key] = message_id, since
            elif message_id not in self._delivered[receiver] and not overtaken:
                raise BrokenError(f"O4: {receiver} had {message_id} and did not deliver it")
            if self.timely and now - since > most:
                raise BrokenError(f"O3: {receiver} holds {message_id} for {(now - since) / 1e6} ms")
        self._waiting[receiver] = after

    def _check_bounds(self, member: ClusterMember) -> None:
        options, delivery = member.ports.options, member.delivery
        if len(delivery.buffer.events) > options.recovery_buffer:
            raise BrokenError("V4: the recovery buffer is too long")
        sizes = {
            "held": (len(delivery.ordering.waiting), options.held),
            "early": (len(delivery.early), options.held),
            "total": (len(delivery.total.held), options.held),
            "history": (len(member.rumours.history), options.history),
            "buffer": (len(member.rumours.births), options.buffer),
            "view": (len(member.members), options.view),
            "asked": (len(delivery.asked.last), options.entries),
            "proposals": (len(member.coordinating.proposals), options.proposals),
            "owners": (len(delivery.directory.owners), options.entries),
        }
        for name, (size, limit) in sizes.items():
            if size > limit:
                raise BrokenError(f"bounds: {name} has {size}, {limit} are allowed")

    def _check_entry(self, receiver: Receiver, member: ClusterMember) -> None:
        lease = member.coordinating.lease
        if not lease.seq or lease.phase is not Phase.OWNER:
            return
        place = lease.entry, lease.epoch
        seq = self.last_seq.get(place, 0)
        if lease.seq == seq and self.makers[place] == receiver:
            return
        if self.makers.setdefault(place, receiver) != receiver:
            raise BrokenError(f"O5: {receiver} and {self.makers[place]} both make updates of entry {place}")
        if lease.seq < seq:
            raise BrokenError(f"V7: {receiver} counts back in {place}")
        if self.last_epoch.get(lease.entry, 0) > lease.epoch:
            raise BrokenError(
                f"O6: {receiver} makes an update in {place} after epoch {self.last_epoch[lease.entry]} began"
            )
        self.last_epoch[lease.entry] = lease.epoch
        self.last_seq[place] = lease.seq

    def _sent(self, source: str, _target: str, packet: Packet) -> None:
        member = self.member(source)
        if isinstance(packet, Recover) and member is not None:
            waiting = member.delivery.ordering.waiting
            for entry, low, high in packet.ranges:
                if trimmed(entry, low, high, waiting) != (low, high) or low >= high:
                    raise BrokenError(
                        f"V9: {source} asks for {(entry, low, high)}, which it has (epoch {epoch_of(high)})"
                    )
