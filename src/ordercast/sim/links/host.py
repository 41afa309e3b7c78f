"""A node under virtual time: its machine, its queue, its timers, and how it crashes and comes back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Protocol

from ordercast.core.errors import InvariantError
from ordercast.core.ids import NodeId, Topic, origin_of
from ordercast.core.machine import Machine
from ordercast.core.messages import Guarantee, Message, Packet
from ordercast.core.registry import ProtocolInfo
from ordercast.scenario.model import NodeCapacity
from ordercast.sim.links.network import LinkDirection, LinkWorld, Server
from ordercast.sim.links.packets import Scales, Traffic, payload_asked_at
from ordercast.trace.schema import INFO_PENDING, INFO_STATE

_US = 1_000

_Content = tuple[Topic, bytes, Guarantee, tuple[str, ...], tuple[NodeId, ...]]
_Outgoing = list[tuple[LinkDirection, Packet, int]]
"""What a busy node is about to send, with its size where that matters."""


class HostWorld(LinkWorld, Protocol):
    """Port to the world of a run, for one host."""

    protocol: ProtocolInfo
    scales: Scales
    members: dict[Topic, set[NodeId]]
    published: int
    delivery_watchers: list[Callable[[Host, Message], None]]
    completion_watchers: list[Callable[[Host, str], None]]
    return_watchers: list[Callable[[Host], None]]

    def build_machine(self, node: NodeId, incarnation: int) -> Machine: ...

    def someone_left(self, host: Host) -> None: ...


class Host:
    """Runs one machine and is its outbox."""

    def __init__(self, world: HostWorld, node: NodeId, ability: NodeCapacity) -> None:
        self.world = world
        self.node = node
        self.incarnation = 0
        self.machine: Machine = world.build_machine(node, 0)
        self.channels: dict[NodeId, LinkDirection] = {}
        self.alive = True
        self.leaving = False
        """Its application has said goodbye: it publishes nothing more."""
        self.paused = False
        self.ready = True
        """Alive and free: inputs go straight to the machine."""
        self.published = 0
        self.delivered = 0
        self._asked = (-1, 0)
        self.extra_ns = 0
        self.cpu = ability.cpu
        self.egress = Server(ability.bandwidth_mbps) if ability.bandwidth_mbps else None
        self.ingress = Server(ability.ingress_mbps) if ability.ingress_mbps else None
        if ability.shared:
            self.ingress = self.egress
        self.weighs = bool(self.egress or self.ingress or self.cpu)
        """Whether this node can do only so much, so that sizes of packets matter."""
        self.traffic = Traffic()
        self.stalled: list[tuple[int, Callable[[Any, Any], None], Any, Any]] = []
        """Who waits for room on all links: window, and what to call then."""
        self._inbox: deque[tuple[Callable[..., None], tuple[Any, ...], int]] = deque()
        self._serving = False
        self._outgoing: _Outgoing = []
        self._finished: _Outgoing | None = None
        self._spent = 0
        self._timers: dict[Hashable, int] = {}
        self._next_timer = 0
        self._saved: dict[str, Any] = {}
        self._life = 0
        # What every delivery looks at, within reach.
        self._recorder = world.recorder
        self._delivery_watchers = world.delivery_watchers
        self._refresh()

    # --- effects: what the machine asks for ---

    def send(self, peer: NodeId, packet: Packet) -> None:
        try:
            channel = self.channels[peer]
        except KeyError:
            raise InvariantError(f"{self.node} sends to {peer}, which is not its neighbour") from None
        if self._serving:
            self._outgoing.append((channel, packet, self.weigh(packet) if channel.weighed else 0))
        else:
            channel.transmit(packet)

    def deliver(self, message: Message) -> None:
        self.delivered += 1
        if self.cpu is not None:
            self._spent += round(self.cpu.per_delivery_us * _US)
        if self._recorder is not None:
            self._recorder.deliver(self.node, self.world.clock.now, message)
        for watch in self._delivery_watchers:
            watch(self, message)

    def set_timer(self, name: Hashable, delay_ns: int, *, background: bool = False) -> None:
        self._next_timer = token = self._next_timer + 1
        self._timers[name] = token
        clock = self.world.clock
        (clock.in_background if background else clock.at)(clock.now + delay_ns, self._timer, name, token)

    def cancel_timer(self, name: Hashable) -> None:
        self._timers.pop(name, None)

    def complete(self, message_id: str) -> None:
        for watch in self.world.completion_watchers:
            watch(self, message_id)

    def note(self, kind: str, info: Mapping[str, str]) -> None:
        world = self.world
        if kind == "subscribe" and INFO_PENDING not in info:
            world.members[Topic(info["topic"])].add(self.node)
        elif kind == "unsubscribe":
            world.members[Topic(info["topic"])].discard(self.node)
            world.someone_left(self)
        if world.recorder is not None:
            world.recorder.event(kind, self.node, world.clock.now, info)

    # --- inputs: what happens to the node ---

    def start(self) -> None:
        self._input(self.machine.on_start, self)

    def publish(
        self,
        topic: Topic,
        payload_bytes: int,
        guarantee: Guarantee,
        keys: tuple[str, ...] = (),
        dst: tuple[NodeId, ...] = (),
        told: Callable[[Message], None] | None = None,
    ) -> None:
        """The application publishes; it is `told` the message once the node has numbered it, never if it is down."""
        now = self.world.clock.now
        self._asked = (now, self._asked[1] + 1) if self._asked[0] == now else (now, 0)
        payload = payload_asked_at(*self._asked, payload_bytes)
        self._input(self._publish, (topic, payload, guarantee, keys, dst), told)

    def subscribe(self, topic: Topic) -> None:
        self._input(self._subscribe, topic)

    def unsubscribe(self, topic: Topic) -> None:
        self._input(self._unsubscribe, topic)

    def join(self) -> None:
        self._input(self.machine.on_join, self)

    def leave(self) -> None:
        self.leaving = True
        self._input(self.machine.on_leave, self)

    def suspect(self, peer: NodeId) -> None:
        if self.world.recorder is not None:
            self.world.recorder.event("suspect", self.node, self.world.clock.now, {"peer": peer})
        self._input(self.machine.on_suspect, peer, self)

    def trust(self, peer: NodeId) -> None:
        self._input(self.machine.on_trust, peer, self)

    def enqueue(self, channel: LinkDirection, packet: Packet, size: int) -> None:
        """A packet for a host that is paused, slow, or has limits of its own."""
        if self.ingress is None:
            self._input(channel.hand_over, packet, cost_bytes=size)
            return
        clock = self.world.clock
        clock.at(self.ingress.serve(clock.now, size), self._received, (channel, packet, size), self._life)

    def weigh(self, packet: Packet) -> int:
        """The size of a packet that the machine is sending right now; the node counts it."""
        return self.world.scales.weigh(packet, self.machine, self.traffic)

    # --- windows: publishers that wait while too much is on its way ---

    def has_room(self, window: int) -> bool:
        """Whether every link from this node has fewer than `window` packets on their way."""
        return all(channel.pending < window for channel in self.channels.values())

    def when_room(self, window: int, action: Callable[[Any, Any], None], a: Any, b: Any) -> None:
        """Call `action(a, b)` as soon as there is room."""
        self.stalled.append((window, action, a, b))

    def room_on(self, channel: LinkDirection) -> None:
        """A link has fewer packets on their way than before: whoever waited for that goes on."""
        clock = self.world.clock
        for waiting in list(self.stalled):
            if channel.pending < waiting[0] and self.has_room(waiting[0]):
                self.stalled.remove(waiting)
                clock.at(clock.now, *waiting[1:])

    # --- faults ---

    def crash(self) -> None:
        """The process is gone with everything it did not save."""
        self._saved = self.machine.save()
        self._life += 1
        self.alive = self.paused = self._serving = False
        self._finished = None
        self._forget_inbox()
        self._outgoing.clear()
        self._timers.clear()
        for server in (self.egress, self.ingress):
            if server is not None:
                server.free = 0
        self._refresh()
        self.world.someone_left(self)

    def recover(self, state: str) -> None:
        """Back, with what was saved or as a stranger."""
        kept = state == "kept"
        if not kept:
            self.incarnation += 1
            self.published = 0
        self.machine = self.world.build_machine(self.node, self.incarnation)
        if kept:
            self.machine.restore(self._saved)
        self.alive = True
        self._refresh()
        if self.world.recorder is not None:
            self.world.recorder.event("recover", self.node, self.world.clock.now, {INFO_STATE: state})
        self._input(self.machine.on_recover if kept else self.machine.on_start, self)
        for watch in self.world.return_watchers:
            watch(self)

    def pause(self) -> None:
        self.paused = True
        self._refresh()

    def resume(self) -> None:
        if self.paused:
            self.paused = False
            finished, self._finished = self._finished, None
            if finished is not None:
                self._served(finished, self._life)
            self._next_input()

    def slow_down(self, extra_ns: int) -> None:
        self.extra_ns = extra_ns
        self._refresh()

    # --- inside ---

    def _refresh(self) -> None:
        self._idle = (
            self.alive and not self.paused and not self._serving and not self._inbox
            and self.cpu is None and not self.extra_ns
        )  # fmt: skip
        self.ready = self._idle and self.ingress is None

    def _forget_inbox(self) -> None:
        for action, _, _ in self._inbox:
            channel = getattr(action, "__self__", None)
            if isinstance(channel, LinkDirection) and channel.weighed:
                channel.settle()
        self._inbox.clear()

    def _input(self, action: Callable[..., None], *args: Any, cost_bytes: int = 0) -> None:
        if self._idle:
            action(*args)
        elif self.alive:
            self._inbox.append((action, args, cost_bytes))
            self._next_input()

    def _next_input(self) -> None:
        """Serve the queue: one input at a time, each for as long as it costs."""
        while self._inbox and self.alive and not self.paused and not self._serving:
            action, args, size = self._inbox.popleft()
            self._serving = True
            self._spent = 0
            action(*args)
            clock = self.world.clock
            cost = self._cost_ns(size)
            if cost:
                clock.at(clock.now + cost, self._served, self._outgoing, self._life)
                self._outgoing = []
            else:
                self._serving = False
                self._release(self._outgoing)
        self._refresh()

    def _served(self, outgoing: _Outgoing, life: int) -> None:
        if life != self._life:
            return
        if self.paused:
            self._finished = outgoing  # It stands still: what it was about to send leaves when it goes on.
            return
        self._serving = False
        self._release(outgoing)
        self._next_input()

    def _release(self, outgoing: _Outgoing) -> None:
        for channel, packet, size in outgoing:
            channel.transmit(packet, size)
        outgoing.clear()

    def _cost_ns(self, size: int) -> int:
        cost = self.extra_ns + self._spent
        if self.cpu is not None:
            cost += round((self.cpu.per_packet_us + self.cpu.per_byte_us * size) * _US)
            for _, _, sent_bytes in self._outgoing:
                cost += round((self.cpu.per_send_us + self.cpu.per_sent_byte_us * sent_bytes) * _US)
        return cost

    def _received(self, arrived: tuple[LinkDirection, Packet, int], life: int) -> None:
        channel, packet, size = arrived
        if life != self._life:
            channel.settle()
        elif self._idle:
            channel.hand_over(packet)
        else:
            self._input(channel.hand_over, packet, cost_bytes=size)

    def _timer(self, name: Hashable, token: int) -> None:
        if self._timers.get(name) == token:
            self._input(self._fire, name, token)

    def _fire(self, name: Hashable, token: int) -> None:
        # The timer may have been cancelled or set anew while it waited in the queue of a busy node.
        if self._timers.get(name) == token:
            del self._timers[name]
            self.machine.on_timer(name, self)

    def _publish(self, content: _Content, told: Callable[[Message], None] | None) -> None:
        world = self.world
        self.published += 1
        message = Message(origin_of(self.node, self.incarnation), self.published, *content)
        world.published += 1
        if world.recorder is not None:
            world.recorder.publish(self.node, world.clock.now, message)
        if told is not None:
            told(message)
        self.machine.on_publish(message, self)

    def _subscribe(self, topic: Topic) -> None:
        if not self.world.protocol.notes_membership:
            self.note("subscribe", {"topic": topic})
        self.machine.on_subscribe(topic, self)

    def _unsubscribe(self, topic: Topic) -> None:
        self.machine.on_unsubscribe(topic, self)
        if not self.world.protocol.notes_membership:
            self.note("unsubscribe", {"topic": topic})
