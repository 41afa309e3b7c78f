"""Lets a process join a running network (PRV-6.7): through one contact at a time, from which it inherits.

What a joiner inherits counts as delivered and is never handed to its application: that gets the contact's state
instead. Until then the joiner is nobody's neighbour; what others already send it waits.
"""

from __future__ import annotations

from typing import ClassVar

from ordercast.core.ids import Origin
from ordercast.core.messages import Message, Packet
from ordercast.core.process import Connection, OverlayWires
from ordercast.core.state import State
from ordercast.protocols.preventive.packets import JoinAsk

_MOST_PARKED = 4_096
"""Packets that wait for the join to be over, of each connection."""
_PATIENT_ROUNDS = 2
"""So often all contacts are asked before the joiner no longer keeps a run from its rest."""


class ContactSearch(State):
    """A joiner's search for a contact that answers."""

    constant: ClassVar[tuple[str, ...]] = ("wires", "address", "contacts", "join_ns", "rules")
    durable: ClassVar[tuple[str, ...]] = ("waiting",)

    def __init__(self, wires: OverlayWires, address: str, contacts: tuple[str, ...], join_ns: int, rules: int) -> None:
        self.wires = wires
        self.address = address
        self.contacts = tuple(contact for contact in contacts if contact != address)
        self.join_ns = join_ns
        self.rules = rules
        self.under_way = False
        self.asked = 0
        """How many contacts were asked, one after the other; also the nonce of the current question."""
        self.connection: Connection = 0
        """To the one contact that is asked."""
        self.contact: Origin | None = None
        self.waiting: list[Message] = []
        """Publications that wait until this process has joined."""
        self.parked: dict[Connection, list[Packet]] = {}
        """What processes said that already heard of this one."""

    def begin(self) -> None:
        """The process is not a part of the network yet."""
        self.under_way = True
        self.ask_next()

    def ask_next(self) -> None:
        """Ask the next contact. The one before is forgotten first: two at once could contradict each other (C6)."""
        if self.connection:
            self.wires.close(self.connection, "it took too long")
            self.connection, self.contact = 0, None
        if not self.contacts:
            return
        address = self.contacts[self.asked % len(self.contacts)]
        self.asked += 1
        if self.asked > 1:
            self.wires.count("join_retries")
        self.connection = self.wires.open(address)
        patient = self.asked > _PATIENT_ROUNDS * len(self.contacts)
        self.wires.set_timer(("join",), self.join_ns, background=patient)
        self.wires.send(self.connection, JoinAsk(self.rules, self.asked))

    def keep(self, message: Message) -> None:
        """A publication waits until this process has joined."""
        self.waiting.append(message)

    def lost(self, connection: Connection) -> bool:
        """A connection has ended; true if it was the contact's: the next is asked after a while."""
        self.parked.pop(connection, None)
        if connection != self.connection:
            return False
        self.connection, self.contact = 0, None
        return True

    def park(self, connection: Connection, packet: Packet) -> bool:
        """Keep what came too early; false if it is too much."""
        packets = self.parked.setdefault(connection, [])
        packets.append(packet)
        return len(packets) <= _MOST_PARKED

    def end(self) -> tuple[list[Message], dict[Connection, list[Packet]]]:
        """The process has joined: what it was to publish, and what it was to hear."""
        self.wires.cancel_timer(("join",))
        self.under_way = False
        told = self.waiting, dict(self.parked)
        self.waiting = []
        self.parked.clear()
        return told
