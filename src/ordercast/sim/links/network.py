"""Links under virtual time: latency, loss, duplication, order, bandwidth, cuts, and what a crash leaves behind."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from statistics import NormalDist
from typing import Any, Protocol, assert_never

from ordercast.core.chance import exponential, mix, salt, unit
from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId
from ordercast.core.machine import Machine, Outbox
from ordercast.core.messages import Packet
from ordercast.scenario.model import Link
from ordercast.scenario.tables import Exponential, Latency, LogNormal, Uniform
from ordercast.sim.clock import NS_PER_MS, Scheduler, ns
from ordercast.sim.links.packets import PacketFacts
from ordercast.trace.recorder import Recorder

_LOSS, _DUPLICATE, _SECOND_COPY = 1, 2, 3


class Server:
    """A queue with a service rate: packets in order of arrival, so many picoseconds a byte."""

    __slots__ = ("free", "ps_per_byte", "taken_bytes")

    def __init__(self, mbps: float) -> None:
        # As an integer, so that sums are exact on every machine.
        self.ps_per_byte = round(8_000_000 / mbps)
        self.free = 0
        self.taken_bytes = 0

    def serve(self, now: int, size: int) -> int:
        """The time at which the last of `size` bytes is through."""
        self.taken_bytes += size
        self.free = done = max(now, self.free) + size * self.ps_per_byte // 1_000
        return done


class LinkWorld(Protocol):
    """Port to the world of a run, for its links."""

    clock: Scheduler
    recorder: Recorder | None
    facts: PacketFacts
    sees_packets: bool
    counts_packets: bool

    def count_fault(self, kind: str) -> None: ...


class LinkEnd(Outbox, Protocol):
    """Port to a node, for the channels that begin or end there."""

    node: NodeId
    alive: bool
    ready: bool
    weighs: bool
    machine: Machine
    egress: Server | None
    stalled: list[tuple[int, Callable[[Any, Any], None], Any, Any]]

    @property
    def world(self) -> LinkWorld: ...

    def enqueue(self, channel: LinkDirection, packet: Packet, size: int) -> None: ...

    def weigh(self, packet: Packet) -> int: ...

    def room_on(self, channel: LinkDirection) -> None: ...


class LinkDirection:
    """One direction of a link. Times are in nanoseconds."""

    __slots__ = (
        "_arrive", "_changes", "_clock", "_constant_ns", "_draw_ns", "_duplicate", "_fifo", "_last_arrival", "_loss",
        "_plain", "_salt", "_steady", "_traced", "_void", "arrived", "cuts", "dropped", "host", "link", "peer",
        "pending", "sender", "sent", "weighed", "world",
    )  # fmt: skip

    def __init__(self, sender: LinkEnd, host: LinkEnd, link: Link, seed: int) -> None:
        self.world = sender.world
        self.sender = sender
        self.host = host
        """The receiving end."""
        self.peer: NodeId = sender.node
        """Whom the receiving end sees as the source."""
        self.link = link
        self.sent = 0
        self.arrived = 0
        self.dropped = 0
        self.weighed = sender.weighs or host.weighs or self.world.counts_packets
        """Whether the size of a packet matters at either end; it then travels along."""
        self.pending = 0
        """Of a weighed channel: packets that were sent and are neither handled nor lost."""
        self.cuts = 0
        self._loss = link.loss
        self._duplicate = link.duplicate
        self._fifo = link.fifo
        self._changes = False
        self._constant_ns = -1
        self.set_latency(link.latency_ms)
        self._salt = salt(seed, "channel", sender.node, host.node)
        self._last_arrival = 0
        self._void: set[int] = set()
        self._arrive: Callable[[Any, int], None] = self.arrive_weighed if self.weighed else self.arrive
        self._clock = self.world.clock
        self._traced = self.world.sees_packets
        self._plain = self._steady = False
        self.refresh()

    def refresh(self) -> None:
        """A channel without chance and limits takes the short way through `transmit`."""
        steady = self._constant_ns >= 0 and not self._changes
        self._steady = steady and not self.cuts and not self._loss and not self._duplicate
        self._plain = self._steady and not self.weighed

    def set_latency(self, latency: Latency) -> None:
        """Set the latency of what is sent from now on."""
        self._draw_ns = latency_draw(latency)
        self._constant_ns = ns(latency) if isinstance(latency, int | float) else -1

    def expect_changes(self) -> None:
        """Its latency will change: what is faster then must not overtake where packets keep their order."""
        self._changes = True
        self.refresh()

    def heal(self) -> None:
        """The drain has begun: nothing is lost or doubled any more."""
        self._loss = self._duplicate = 0.0
        self.refresh()

    def transmit(self, packet: Packet, size: int = 0) -> None:
        """Put a packet on its way; `size`, if it was weighed before: when its machine sent it."""
        self.sent = number = self.sent + 1
        if self._traced:
            self._record("send", self.sender.node, self.host.node, packet)
        if not self._plain:
            self._transmit_weighed(packet, number, size)
            return
        clock = self._clock
        arrival = clock.now + self._constant_ns
        if arrival in clock.instants:
            clock.instants[arrival].append((self._arrive, packet, number))
        else:
            clock.at(arrival, self._arrive, packet, number)

    def _transmit_weighed(self, packet: Packet, number: int, size: int) -> None:
        """Transmit by bandwidth; what is lost on the way has left the node all the same, and takes its share."""
        departure = self._clock.now
        if self.weighed:
            size = size or self.sender.weigh(packet)
            self.pending += 1
            if self.sender.egress is not None:
                departure = self.sender.egress.serve(departure, size)
        if self._steady:
            self._schedule((packet, size), number, departure + self._constant_ns)
        else:
            self._transmit_with_chance(packet, number, size, departure)

    def _transmit_with_chance(self, packet: Packet, number: int, size: int, departure: int) -> None:
        world = self.world
        if self.cuts:
            self._drop(packet, "cut")
            return
        world.facts.look(packet)
        bits = mix(self._salt, world.facts.identity, world.clock.now)
        if self._loss and unit(mix(bits, _LOSS)) < self._loss:
            self._drop(packet, "lost")
            return
        freight = (packet, size) if self.weighed else packet
        self._schedule(freight, number, departure + self._draw_ns(bits))
        if self._duplicate and unit(mix(bits, _DUPLICATE)) < self._duplicate:
            world.count_fault("duplicate")
            self.pending += 1
            self._schedule(freight, number, departure + self._draw_ns(mix(bits, _SECOND_COPY)))

    def _schedule(self, freight: Packet | tuple[Packet, int], number: int, arrival: int) -> None:
        """Also where latency is constant: what survived a crash in its sender's queue must not be overtaken."""
        if self._fifo:
            if arrival < self._last_arrival:
                arrival = self._last_arrival
            else:
                self._last_arrival = arrival
        self._clock.at(arrival, self._arrive, freight, number)

    def arrive(self, packet: Packet, number: int) -> None:
        """The packet is at the receiving end; a dead or busy host has its own ways with it."""
        host = self.host
        if number in self._void or not (host.ready or host.alive):
            self._drop(packet, "crash-loss")
            return
        self.arrived += 1
        if host.ready:
            if self._traced:
                self._record("receive", host.node, self.peer, packet)
            host.machine.on_receive(self.peer, packet, host)
        else:
            host.enqueue(self, packet, 0)

    def arrive_weighed(self, freight: tuple[Packet, int], number: int) -> None:
        """Like `arrive`, of a packet whose size matters."""
        packet, size = freight
        host = self.host
        if number in self._void or not host.alive:
            self._drop(packet, "crash-loss")
            return
        self.arrived += 1
        if host.ready:
            self.hand_over(packet)
        else:
            host.enqueue(self, packet, size)

    def hand_over(self, packet: Packet) -> None:
        """Give the packet to the machine now, whatever kept it waiting."""
        if self._traced:
            self._record("receive", self.host.node, self.peer, packet)
        self.host.machine.on_receive(self.peer, packet, self.host)
        if self.weighed:
            self.settle()

    def settle(self) -> None:
        """A packet is no longer on its way: there may be room for another."""
        self.pending -= 1
        if self.sender.stalled:
            self.sender.room_on(self)

    def sender_crashed(self, in_flight: list[int], survive: str, bits: int) -> None:
        """Of what is in flight, given in order of sending, a prefix survives."""
        kept = {"all": len(in_flight), "none": 0, "random": int(unit(bits) * (len(in_flight) + 1))}[survive]
        self._void.update(in_flight[kept:])

    def receiver_crashed(self, in_flight: list[int]) -> None:
        """Nothing that is in flight reaches the next life of the receiver."""
        self._void.update(in_flight)

    def _drop(self, packet: Packet, why: str) -> None:
        self.dropped += 1
        self.world.count_fault(why)
        if self.weighed:
            self.settle()
        if self._traced:
            self._record("drop", self.host.node if why == "crash-loss" else self.sender.node, "", packet, why)

    def _record(self, kind: str, node: NodeId, peer: str, packet: Packet, why: str = "") -> None:
        world = self.world
        facts = world.facts
        facts.look(packet)
        info = facts.info
        if why:
            peer = self.peer if node == self.host.node else self.host.node
            info = [*(info or []), ("why", why)]
        assert world.recorder is not None
        world.recorder.packet(
            kind, node, world.clock.now, peer, facts.msg, facts.payload_bytes, facts.header_bytes, info
        )  # fmt: skip


def in_flight(clock: Scheduler) -> dict[LinkDirection, list[int]]:
    """The numbers of the packets on their way, in order of sending, for every channel that has any.

    Looks through the whole calendar: crashes are rare, and hops, which would have to keep count, are not.
    """
    numbers: defaultdict[LinkDirection, set[int]] = defaultdict(set)
    for action, _, number in clock.pending():
        if getattr(action, "__func__", None) in (LinkDirection.arrive, LinkDirection.arrive_weighed):
            numbers[action.__self__].add(number)  # type: ignore[attr-defined]
    return {channel: sorted(sent) for channel, sent in numbers.items()}


def latency_draw(latency: Latency) -> Callable[[int], int]:
    """A function from 64 random bits to a latency in nanoseconds."""
    match latency:
        case Uniform(low_ms=low, high_ms=high):
            width = high - low
            return lambda bits: int((low + width * unit(bits)) * NS_PER_MS)
        case Exponential(mean_ms=mean, min_ms=least):
            return lambda bits: int((least + exponential(bits, mean)) * NS_PER_MS)
        case LogNormal(median_ms=median, sigma=sigma):
            normal = NormalDist()
            smallest = 2.0**-60
            return lambda bits: int(median * math.exp(sigma * normal.inv_cdf(max(unit(bits), smallest))) * NS_PER_MS)
        case int() | float():
            constant = ns(latency)
            return lambda _bits: constant
        case _:
            assert_never(latency)


def check_link(link: Link, where: str) -> None:
    """Reject what no link can be."""
    for field in ("loss", "duplicate"):
        share = getattr(link, field)
        if not 0 <= share < 1:
            raise UsageError(f"{where}.{field}: {share} is not a share from 0 up to, not including, 1")
    values: dict[str, Any] = {}
    match link.latency_ms:
        case Uniform(low_ms=low, high_ms=high):
            if high < low:
                raise UsageError(f"{where}.latency_ms.high_ms: {high} is below low_ms {low}")
            values = {"low_ms": low}
        case Exponential(mean_ms=mean, min_ms=least):
            values = {"mean_ms": mean, "min_ms": least}
        case LogNormal(median_ms=median, sigma=sigma):
            values = {"median_ms": median, "sigma": sigma}
        case constant:
            values = {"": constant}
    for name, value in values.items():
        if value < 0:
            raise UsageError(f"{where}.latency_ms{'.' if name else ''}{name}: {value} is negative")
