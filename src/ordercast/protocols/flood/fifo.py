"""FIFO broadcast: flood, and what one node publishes is delivered everywhere in the order of publication.

Spec: docs/protocols/fifo.md (FLD-O1 to FLD-O4).
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from ordercast.core.ids import Origin
from ordercast.core.machine import Outbox, Place
from ordercast.core.messages import Guarantee, Message
from ordercast.protocols.flood.flood import FLOOD, Flood, FloodOptions, Stamp
from ordercast.protocols.shared.seen import Seen, Summary


class Fifo(Flood):
    """Holds a message back until all earlier ones of its origin were delivered. Numbers run over all topics."""

    durable: ClassVar[tuple[str, ...]] = (*Flood.durable, "due", "held", "skipped")

    def __init__(self, place: Place, options: FloodOptions) -> None:
        super().__init__(place, options)
        self.due: dict[Origin, int] = {}
        """The number to be delivered next, where it is not 1."""
        self.held: dict[Origin, dict[int, Message]] = {}
        self.skipped = Seen()
        """What a newcomer was told not to wait for."""

    def _flooded(self, message: Message, _stamp: Stamp, out: Outbox) -> None:
        origin, number = message.origin, message.number
        due = self.due.get(origin, 1)
        if number == due:
            self.due[origin] = due + 1
            self._deliver(message, out)  # FLD-O1
            if origin in self.held or origin in self.skipped.highest:
                self._advance(origin, out)
        elif number > due and not self._is_skipped(message):
            self.held.setdefault(origin, {})[number] = message  # FLD-O2
        # FLD-O4: what was skipped and comes after all is dropped; to deliver it out of turn would break the order.

    def _advance(self, origin: Origin, out: Outbox) -> None:
        """FLD-O3: deliver what has become due."""
        held = self.held.get(origin, {})
        due = self.skipped.next_absent(origin, self.due.get(origin, 1))
        while (message := held.pop(due, None)) is not None:
            self._deliver(message, out)
            due = self.skipped.next_absent(origin, due + 1)
        self.due[origin] = due
        if not held:
            self.held.pop(origin, None)

    def _welcomed(self, seen: Summary, out: Outbox) -> None:
        """FLD-O4: a newcomer does not wait for what it will not get."""
        super()._welcomed(seen, out)
        self.skipped.merge(seen)
        for origin, _, _ in seen:
            held = self.held.get(origin, {})
            for message in list(held.values()):
                if self._is_skipped(message):
                    del held[message.number]
            self._advance(origin, out)

    def _is_skipped(self, message: Message) -> bool:
        return self.skipped.next_absent(message.origin, message.number) != message.number


FIFO = msgspec.structs.replace(
    FLOOD,
    name="fifo",
    summary="flood, and messages of one publisher are delivered in the order of their publication",
    guarantee=Guarantee.FIFO,
    build=Fifo,
)
