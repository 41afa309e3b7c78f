"""Duplicate suppression, forwarding and delivery (PRV-6.1 to PRV-6.3): one look-up and one pass over the safe links.

A message never waits. Whatever reaches a process over a safe link has its causal past before it on the same link, so it
is delivered, or dropped as a copy, in the event that brought it (PRV-P6).
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from ordercast.core.errors import PeerError
from ordercast.core.ids import Origin
from ordercast.core.messages import Message
from ordercast.core.process import Connection, OverlayWires
from ordercast.core.state import State
from ordercast.protocols.preventive.delivery_log import DeliveryLog
from ordercast.protocols.preventive.packets import Data
from ordercast.protocols.preventive.settings import PreventiveOptions


class Buffers(Protocol):
    """The port of the buffers of links, told after each delivery."""

    waiting: bool
    """Whether any link is not safe yet."""

    def delivered(self) -> None:
        """One more message is in the log."""

    def mark(self) -> None:
        """Ask the neighbours how far they have read."""

    def pinned(self) -> int:
        """The log index from which on nothing may be dropped."""


class Broadcast(State):
    """The broadcast of one process."""

    log_type: ClassVar[type[DeliveryLog]] = DeliveryLog
    constant: ClassVar[tuple[str, ...]] = ("wires", "keep", "skip_sender", "mark_every", "buffers")
    durable: ClassVar[tuple[str, ...]] = ("log",)
    derived: ClassVar[tuple[str, ...]] = ("duplicates",)

    def __init__(self, wires: OverlayWires, options: PreventiveOptions) -> None:
        self.wires = wires
        self.keep = options.log_keep
        self.skip_sender = options.skip_sender
        self.mark_every = max(1, options.max_send_queue // 3)
        self.buffers: Buffers
        self.log = self.log_type()
        self.safe: tuple[Connection, ...] = ()
        """The connections whose outgoing link is safe, in the order of their peers."""
        self.duplicates = 0

    def has(self, origin: Origin) -> int:
        """How many messages of the origin were delivered or inherited."""
        return self.log.received.get(origin, 0)

    def use(self, safe: tuple[Connection, ...]) -> None:
        """Send whatever is accepted from now on over these connections."""
        self.safe = safe

    def receive(self, source: Connection, peer: Origin, packet: Data) -> None:
        """PRV-6.2: a copy came over a link that its sender uses."""
        message = packet.message
        last = self.log.received.get(message.origin, 0)
        if message.number <= last:
            self.duplicates += 1
        elif message.number == last + 1 or self._forgotten(message, last):
            self.accept(packet, source)
        else:
            self.wires.count("causal_gaps")
            raise PeerError(peer, f"sent message {message.number} of {message.origin} after {last}: a gap")

    def accept(self, packet: Data, source: Connection = 0) -> None:
        """PRV-6.3: log it, pass it on, look after the buffers, then deliver. The order matters (C9, C10)."""
        log = self.log
        log.append(packet.message)
        self.wires.send_all(self.safe, packet, source if self.skip_sender else 0)
        if self.buffers.waiting:
            self.buffers.delivered()
        if not log.end % self.mark_every:
            self.buffers.mark()
        if len(log.kept) > self.keep:
            log.evict(self.keep, self.buffers.pinned())
        self.wires.deliver(packet.message)

    def _forgotten(self, message: Message, last: int) -> bool:
        """PRV-9.1: whether the origin may be one that was silent for so long that it was forgotten."""
        if last or not self.log.forgetful:
            return False
        self.log.floor[message.origin] = message.number - 1
        return True
