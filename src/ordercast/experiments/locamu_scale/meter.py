"""Counts what machines send, packet by packet, without a trace: each machine is wrapped, and so is its outbox.

The simulator knows nothing of it. What is counted is what a machine hands over, so a packet that is lost counts too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import msgspec

from ordercast.core.ids import NodeId, Topic
from ordercast.core.machine import Machine, Outbox, Place
from ordercast.core.messages import Message, Packet
from ordercast.core.registry import ProtocolInfo

Seen = Callable[[NodeId, NodeId, Packet, Machine], None]
"""Told of every packet: who sends it, to whom, and the machine as it is while it sends."""
Handled = Callable[[NodeId, Machine], None]
"""Told after every packet that a node has handled."""


def metered(info: ProtocolInfo, seen: Seen, handled: Handled | None = None) -> ProtocolInfo:
    """The same protocol, watched."""

    def build(place: Place, options: Any) -> Machine:
        return Metered(place.node, info.build(place, options), seen, handled)

    return msgspec.structs.replace(info, build=build)


class Metered(Machine):
    """A machine like the one inside it, whose packets are seen."""

    def __init__(self, node: NodeId, inside: Machine, seen: Seen, handled: Handled | None) -> None:
        self.node = node
        self.inside = inside
        self._handled = handled
        self._tap = Tap(node, inside, seen)

    def _through(self, out: Outbox) -> Tap:
        self._tap.out = out
        return self._tap

    def on_start(self, out: Outbox) -> None:
        self.inside.on_start(self._through(out))

    def on_recover(self, out: Outbox) -> None:
        self.inside.on_recover(self._through(out))

    def on_publish(self, message: Message, out: Outbox) -> None:
        self.inside.on_publish(message, self._through(out))

    def on_receive(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        self.inside.on_receive(peer, packet, self._through(out))
        if self._handled is not None:
            self._handled(self.node, self.inside)

    def on_timer(self, name: Hashable, out: Outbox) -> None:
        self.inside.on_timer(name, self._through(out))

    def on_suspect(self, peer: NodeId, out: Outbox) -> None:
        self.inside.on_suspect(peer, self._through(out))

    def on_trust(self, peer: NodeId, out: Outbox) -> None:
        self.inside.on_trust(peer, self._through(out))

    def on_subscribe(self, topic: Topic, out: Outbox) -> None:
        self.inside.on_subscribe(topic, self._through(out))

    def on_unsubscribe(self, topic: Topic, out: Outbox) -> None:
        self.inside.on_unsubscribe(topic, self._through(out))

    def save(self) -> dict[str, Any]:
        return self.inside.save()

    def restore(self, saved: dict[str, Any]) -> None:
        self.inside.restore(saved)


class Tap:
    """An outbox that counts what passes, and hands it on to the real one."""

    def __init__(self, node: NodeId, machine: Machine, seen: Seen) -> None:
        self.out: Outbox
        self._node = node
        self._machine = machine
        self._seen = seen

    def send(self, peer: NodeId, packet: Packet) -> None:
        self._seen(self._node, peer, packet, self._machine)
        self.out.send(peer, packet)

    def deliver(self, message: Message) -> None:
        self.out.deliver(message)

    def set_timer(self, name: Hashable, delay_ns: int, *, background: bool = False) -> None:
        self.out.set_timer(name, delay_ns, background=background)

    def cancel_timer(self, name: Hashable) -> None:
        self.out.cancel_timer(name)

    def complete(self, message_id: str) -> None:
        self.out.complete(message_id)

    def note(self, kind: str, info: Mapping[str, str]) -> None:
        self.out.note(kind, info)
