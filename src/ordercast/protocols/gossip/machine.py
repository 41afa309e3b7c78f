"""Gossip multicast: every process tells a few others what it has heard, a few rounds long. docs/protocols/gossip.md.

Eventual delivery with high probability, never twice, in no order. No acknowledgement, no resend, no failure detector.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

from ordercast.core.chance import mix, salt
from ordercast.core.errors import PeerError
from ordercast.core.messages import Message, Packet
from ordercast.core.process import OverlayMachine, OverlayPlace, OverlayWires, Peer
from ordercast.protocols.gossip.delivered import Delivered
from ordercast.protocols.gossip.members import GossipView
from ordercast.protocols.gossip.options import GossipOptions
from ordercast.protocols.gossip.packets import Gossip
from ordercast.protocols.gossip.rumours import Rumours

ROUND = "round"


class GossipMachine(OverlayMachine):
    """One member. A packet that makes no sense is its sender's fault (PeerError) and changes nothing."""

    constant: ClassVar[tuple[str, ...]] = ("wires", "place", "options")

    def __init__(self, wires: OverlayWires, place: OverlayPlace, options: GossipOptions) -> None:
        self.wires = wires
        self.place = place
        self.options = options
        self.rumours: Rumours[Message] = Rumours(options.rumour_limits(), salt(place.salt, "rumours"))
        self.members = GossipView(
            place.me.address, place.me.life, place.contacts, options.view_limits(), salt(place.salt, "members")
        )
        self.delivered = Delivered(options.history)
        self.left = False
        self.round_due_ns = 0
        self.idle = True
        """Nothing is going round: the next round only keeps views fresh, and a run may end before it."""

    def on_start(self) -> None:
        if not self.place.genesis:
            self.wires.note("join", {})
        self._plan_round(mix(self.place.salt, 1) % self.options.round_ns)  # Not all at the same moment.

    def on_publish(self, message: Message) -> None:
        """GSP-1: delivered here at once, passed on from the next round on."""
        self.rumours.begin(message)
        self._wake()
        self._deliver(message)
        self.wires.complete(message.id)

    def on_timer(self, name: Hashable) -> None:  # noqa: ARG002 - there is only one
        """GSP-2: a round."""
        self.rumours.next_round()
        self.members.next_round()
        self._tell()
        self._plan_round(self.options.round_ns)

    def on_cast(self, peer: Peer, packets: Sequence[Packet]) -> None:
        for packet in packets:
            if not isinstance(packet, Gossip):
                raise PeerError(peer.name, f"cast a {type(packet).__name__}")
            self._hear(packet, peer.name)

    def on_leave(self) -> None:
        """GSP-4.3: tell some that it goes, and what they may not have heard yet."""
        self.left = True
        self.members.gone[self.place.me.address] = self.place.me.life
        self._tell()
        self.wires.cancel_timer(ROUND)

    def _hear(self, packet: Gossip, sender: str) -> None:
        """GSP-3: what is new is delivered and passed on; of what is known the higher age counts."""
        messages, ages = packet.messages, packet.ages
        if len(messages) > self.options.events or len(messages) != len(ages):
            raise PeerError(sender, f"tells {len(messages)} messages with {len(ages)} ages")
        self.members.hear(packet.members, sender)
        self.members.hear_gone(packet.gone, sender)
        for message in self.rumours.hear(messages, ages):
            self._deliver(message)
        self._wake()

    def _deliver(self, message: Message) -> None:
        if self.delivered.add(message.origin, message.number):
            self.wires.deliver(message)
        else:
            self.wires.count("gossip_late_duplicates")

    def _tell(self) -> None:
        messages, ages = self.rumours.chosen()
        members = self.members
        told = members.told() if not self.left else ()
        packet = Gossip(messages, ages, told, members.told_gone())
        self.wires.cast_all(members.draw(self.options.fanout), packet)

    def _plan_round(self, delay_ns: int) -> None:
        self.round_due_ns = self.wires.now_ns + delay_ns
        self.idle = not self.rumours.births
        self.wires.set_timer(ROUND, delay_ns, background=self.idle)

    def _wake(self) -> None:
        if self.idle and self.rumours.births and not self.left:
            self._plan_round(max(0, self.round_due_ns - self.wires.now_ns))
