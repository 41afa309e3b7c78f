"""A protocol is a machine: events come in as method calls, effects go out as calls on the outbox handed in.

No clock, socket, thread or random number inside: the same object runs under virtual time, over TCP and in an explorer.
Calls instead of effect objects because they were measured 2.4 to 7 times cheaper (benchmarks/effect_styles.py);
`ordercast.core.effects.EffectLog` turns them back into values where a test or an explorer wants to look at them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Protocol

import msgspec

from ordercast.core.ids import NodeId, Topic
from ordercast.core.messages import Message, Packet
from ordercast.core.state import State


class Outbox(Protocol):
    """The outbox of a machine takes its effects. The order of calls is the order in which they take effect."""

    def send(self, peer: NodeId, packet: Packet) -> None:
        """Put `packet` on the link to `peer`."""

    def deliver(self, message: Message) -> None:
        """Hand `message` to the application."""

    def set_timer(self, name: Hashable, delay_ns: int, *, background: bool = False) -> None:
        """Ask for `on_timer(name)` after the delay; replaces an armed timer of that name.

        A background timer (a heartbeat) does not keep a run from counting as come to rest.
        """

    def cancel_timer(self, name: Hashable) -> None:
        """Forget the timer, armed or not."""

    def complete(self, message_id: str) -> None:
        """Answer the application: what this node promised for its own message of that id is done."""

    def note(self, kind: str, info: Mapping[str, str]) -> None:
        """Record an event of the trace format that is neither packet nor message, such as `repair_start`."""


class Place(msgspec.Struct, frozen=True):
    """The place of a machine: itself, its neighbours on the overlay, and who else is there."""

    node: NodeId
    neighbours: tuple[NodeId, ...]
    nodes: tuple[NodeId, ...]
    """Everyone, in one order that all nodes agree on."""
    groups: Mapping[Topic, tuple[NodeId, ...]] | None = None
    """Members of each topic at the start; None: everyone is a member of everything."""
    incarnation: int = 0
    """How often this node has restarted without its state."""
    clients: tuple[NodeId, ...] = ()
    """Those of `nodes` that only publish: they order nothing and are never a destination."""

    @property
    def servers(self) -> tuple[NodeId, ...]:
        """All nodes but the clients."""
        return tuple(node for node in self.nodes if node not in self.clients) if self.clients else self.nodes

    def initial_topics(self) -> frozenset[Topic] | None:
        """The topics this node is a member of at the start; None: all."""
        if self.groups is None:
            return None
        return frozenset(topic for topic, members in self.groups.items() if self.node in members)


class Machine(State):
    """Base of all protocols. A handler runs to its end before the next event; unused events do nothing."""

    def on_start(self, out: Outbox) -> None:
        """The node begins its first life, or one without its former state."""

    def on_recover(self, out: Outbox) -> None:
        """The node is back with its durable state; what was in flight when it crashed may be lost."""
        self.on_start(out)

    def on_publish(self, message: Message, out: Outbox) -> None:
        """The application of this node publishes. The host has numbered and recorded the message."""

    def on_receive(self, peer: NodeId, packet: Packet, out: Outbox) -> None:
        """A packet arrived from a neighbour."""

    def on_receive_many(self, peer: NodeId, packets: Sequence[Packet], out: Outbox) -> None:
        """A batch from one neighbour, in order. Override where a batch is cheaper than its parts."""
        for packet in packets:
            self.on_receive(peer, packet, out)

    def on_timer(self, name: Hashable, out: Outbox) -> None:
        """A timer that this machine set has run out."""

    def on_suspect(self, peer: NodeId, out: Outbox) -> None:
        """The failure detector thinks that a neighbour has crashed."""

    def on_trust(self, peer: NodeId, out: Outbox) -> None:
        """The failure detector has changed its mind, or the neighbour is back."""

    def on_subscribe(self, topic: Topic, out: Outbox) -> None:
        """The application of this node wants a topic."""

    def on_unsubscribe(self, topic: Topic, out: Outbox) -> None:
        """The application of this node no longer wants a topic."""

    def on_join(self, out: Outbox) -> None:
        """The node is not part of the overlay and is to enter it."""

    def on_leave(self, out: Outbox) -> None:
        """The node is to leave the overlay in good order."""
