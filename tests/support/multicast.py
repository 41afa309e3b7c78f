"""Atomic multicast driven by hand, in the notation of the counterexamples.

`c:a` hands the client's copy of message a to the server it enters at (`c:a@2`: to server 2), `1>2` lets server 2 handle
the oldest packet on the channel from 1, `1>2x3` three of them, `1!2` swaps the first two packets on the channel, and
`*` drains all channels, always the lowest one first.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

from ordercast.core.effects import Complete, Deliver, Effect, EffectLog, Send
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.machine import Machine, Place
from ordercast.core.messages import Guarantee, Message, Packet
from ordercast.core.registry import ProtocolInfo
from ordercast.protocols import lookup
from ordercast.protocols.multicast.multicast import Done

CLIENT = NodeId("client")


class Servers:
    """`size` servers called 1, 2, ... and one client that has sent all the messages; no copy has arrived yet."""

    def __init__(self, protocol: str | ProtocolInfo, size: int, messages: Mapping[str, str], **options: Any) -> None:
        self.info = lookup(protocol) if isinstance(protocol, str) else protocol
        self.options = self.info.parse_options({"check_invariants": True} | options)
        self.servers = tuple(NodeId(str(i + 1)) for i in range(size))
        self.machines = {node: self.build(node) for node in (*self.servers, CLIENT)}
        self.channels: defaultdict[tuple[str, str], deque[Packet]] = defaultdict(deque)
        self.log: list[tuple[str, str, Packet]] = []
        """Every packet between servers that was handled: from, to, what."""
        self.orders: dict[str, list[str]] = {node: [] for node in self.servers}
        self.completed: list[str] = []
        self.effects: list[tuple[str, Effect]] = []
        """All that the machines asked for, with who did."""
        self.names: dict[str, str] = {}
        self.copies: dict[str, dict[str, Packet]] = {}
        for number, (name, destinations) in enumerate(messages.items(), start=1):
            self._ask(name, number, tuple(map(NodeId, destinations)))

    def build(self, node: NodeId) -> Machine:
        """A machine for the node as it is at its start."""
        everyone = (*self.servers, CLIENT)
        place = Place(node, tuple(n for n in everyone if n != node), everyone, None, 0, (CLIENT,))
        return self.info.build(place, self.options)

    def run(self, schedule: str) -> Servers:
        for step in schedule.split():
            if step == "*":
                self.drain()
            elif step.startswith("c:"):
                name, _, server = step[2:].partition("@")
                self.enter(name, server)
            elif "!" in step:
                channel = self.channels[step[0], step[2]]
                channel[0], channel[1] = channel[1], channel[0]
            else:
                pair, _, times = step.partition("x")
                for _ in range(int(times or 1)):
                    self.carry(*pair.split(">"))
        return self

    def enter(self, name: str, server: str = "") -> None:
        copies = self.copies[name]
        server = server or next(iter(copies))
        self._do(NodeId(server), "on_receive", CLIENT, copies.pop(server))

    def carry(self, sender: str, receiver: str) -> None:
        packet = self.channels[sender, receiver].popleft()
        self.log.append((sender, receiver, packet))
        self._do(NodeId(receiver), "on_receive", NodeId(sender), packet)

    def drain(self) -> None:
        while busy := sorted(pair for pair, channel in self.channels.items() if channel):
            self.carry(*busy[0])

    # What came of it

    def order(self, server: int) -> str:
        return " ".join(self.orders[str(server)])

    def all_orders(self) -> dict[int, str]:
        return {int(server): " ".join(order) for server, order in self.orders.items() if order}

    def visitors(self, name: str) -> set[int]:
        """Servers that handled a packet of the message and are not its destinations."""
        found = set()
        for _, receiver, packet in self.log:
            message = getattr(packet, packet.carries) if packet.carries else None
            if message is not None and self.names[message.id] == name and receiver not in message.dst:
                found.add(int(receiver))
        return found

    def hops(self, name: str) -> list[str]:
        """The ways of the packets of a message, those still in flight included."""
        flying = [(a, b, packet) for (a, b), channel in sorted(self.channels.items()) for packet in channel]
        return [
            f"{a}>{b}"
            for a, b, packet in [*self.log, *flying]
            if packet.carries and self.names[getattr(packet, packet.carries).id] == name
        ]

    def has_cycle(self) -> bool:
        """Definition level: repeatedly remove a message that nothing precedes any more."""
        left = {name for order in self.orders.values() for name in order}
        while left:
            rests = [[name for name in order if name in left] for order in self.orders.values()]
            first = {name for name in left if all(name not in rest[1:] for rest in rests)}
            if not first:
                return True
            left -= first
        return False

    def is_blocked(self) -> bool:
        """At rest although a client still waits for its answer."""
        assert not any(self.channels.values())
        return set(self.completed) != set(self.names.values())

    # Inside

    def _ask(self, name: str, number: int, dst: tuple[NodeId, ...]) -> None:
        message = Message(Origin(CLIENT), number, Topic(""), name.encode(), Guarantee.ATOMIC, (), dst)
        self.names[message.id] = name
        log = EffectLog()
        self.machines[CLIENT].on_publish(message, log)
        self.copies[name] = {effect.peer: effect.packet for effect in log.effects if isinstance(effect, Send)}

    def _do(self, node: NodeId, event: str, *args: object) -> None:
        log = EffectLog()
        getattr(self.machines[node], event)(*args, log)
        self.effects += [(node, effect) for effect in log.effects]
        for effect in log.effects:
            match effect:
                case Send(peer, Done() as answer) if peer == CLIENT:
                    self._do(CLIENT, "on_receive", node, answer)
                case Send(peer, packet):
                    self.channels[node, peer].append(packet)
                case Deliver(message):
                    self.orders[node].append(self.names[message.id])
                case Complete(message_id):
                    self.completed.append(self.names[message_id])
                case _:
                    raise AssertionError(f"unexpected {effect}")
