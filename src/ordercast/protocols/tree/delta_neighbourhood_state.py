"""State and packets of a Delta-Neighbourhood node: lists of values, values met, messages in progress.

Spec: docs/protocols/delta-neighbourhood.md (DNB-N2 to DNB-N6).
"""

from __future__ import annotations

from typing import ClassVar

from ordercast.core.messages import Message, Packet
from ordercast.core.state import State
from ordercast.protocols.tree.sizes import ACK_BYTES

Entry = tuple[int, ...]
"""Of a node on the way: its rank, the value it gave the message, and its low mark. Empty: the node was skipped."""
Entries = tuple[Entry, ...]
SKIPPED: Entry = ()


class Data(Packet, frozen=True, tag=1):
    """A copy of a message."""

    carries: ClassVar[str | None] = "message"

    message: Message
    entries: Entries
    """DNB-N2: of the last 2f + 1 nodes before the receiver, nearest last; fewer where the publisher is nearer."""


class Done(Packet, frozen=True, tag=2):
    """DNB-N5: everybody behind its sender has the message to which the receiver gave this value."""

    model_bytes: ClassVar[int | None] = ACK_BYTES

    value: int
    low: int
    """The sender's low mark."""


class Met(State):
    """DNB-N4, DNB-N6: the values of one node that were met here: all below the low mark count as met."""

    durable: ClassVar[tuple[str, ...]] = ("low", "values")

    def __init__(self) -> None:
        self.low = 1
        self.values: set[int] = set()

    def raise_low(self, low: int) -> None:
        if low - self.low > len(self.values):
            self.values = {value for value in self.values if value >= low}
            self.low = max(low, self.low)
        while self.low < low:  # Mostly by one; going through all values each time would be dear.
            self.values.discard(self.low)
            self.low += 1

    def meet(self, value: int, low: int) -> None:
        """A value, and its node's low mark."""
        if value >= self.low:
            self.values.add(value)
        if low > self.low:
            self.raise_low(low)


class Progress(State):
    """A message that somebody behind this node may still lack."""

    constant: ClassVar[tuple[str, ...]] = ("message", "value", "came")

    def __init__(self, message: Message, value: int, came: int, entries: Entries) -> None:
        self.message = message
        self.value = value
        self.came = came
        """The neighbour in whose direction the publisher is; nobody at the publisher itself."""
        self.entries = entries
        self.askers: dict[int, int] = {}
        """Who waits to hear that the message is complete, and which value it gave the message."""
        self.awaited: set[int] = set()
        self.done: set[int] = set()
        """Targets that have said so."""
        self.blocked = False
        """DNB-N3: some member cannot be reached now."""
        self.due = False
        """Whether it was sent a whole period ago."""

    def merge(self, entries: Entries) -> bool:
        """DNB-N4: fill in skipped nodes whose values another copy knows; whether there were any."""
        known = list(self.entries)
        for i in range(1, min(len(known), len(entries)) + 1):
            if not known[-i] and entries[-i]:
                known[-i] = entries[-i]
        changed = tuple(known) != self.entries
        self.entries = tuple(known)
        return changed


def extended_list(entries: Entries, own: Entry, hop: int, window: int) -> Entries:
    """DNB-N2: the list for a node `hop` away."""
    return (*entries, own, *[SKIPPED] * (hop - 1))[-window:]
