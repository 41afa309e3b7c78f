"""Numbered channels between groups and clients: what one sends, the other takes exactly once and in order.

The numbers are part of what a group agrees on, so whichever replica leads sends the same packets under the same
numbers. Spec: docs/protocols/replicated.md (REP-N1 to REP-N4).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ordercast.core.ids import NodeId
from ordercast.core.machine import Machine
from ordercast.core.state import State


class Endpoint(State):
    """A machine that takes part in the multicast under one name, and the channels to all others."""

    constant: ClassVar[tuple[str, ...]] = ("name",)
    durable: ClassVar[tuple[str, ...]] = ("machine", "received", "sent", "taken", "outputs")

    def __init__(self, name: NodeId, machine: Machine) -> None:
        self.name = name
        self.machine = machine
        self.received: dict[NodeId, int] = {}
        """By source: the number of its packets that the machine has had."""
        self.sent: dict[NodeId, int] = {}
        self.taken: dict[NodeId, int] = {}
        """By target: the number of packets that it says it has had."""
        self.outputs: dict[NodeId, dict[int, bytes]] = {}
        """By target: what it has not confirmed, in ascending order."""
        self.overdue: dict[NodeId, int] = {}
        """By target: what was sent up to this number should be confirmed by now."""

    def post(self, target: NodeId, body: bytes) -> int | None:
        """REP-N1: number a packet and keep it until it is taken; None if it is already, by other replicas' doing."""
        number = self.sent.get(target, 0) + 1
        self.sent[target] = number
        if number <= self.taken.get(target, 0):
            return None
        self.outputs.setdefault(target, {})[number] = body
        return number

    def confirm(self, target: NodeId, number: int) -> None:
        """REP-N4: the target has had everything up to `number`."""
        self.taken[target] = max(number, self.taken.get(target, 0))
        outputs = self.outputs.get(target, {})
        for old in [waiting for waiting in outputs if waiting <= number]:
            del outputs[old]

    def unconfirmed(self, target: NodeId) -> Iterator[tuple[int, bytes]]:
        yield from self.outputs.get(target, {}).items()

    def late(self, target: NodeId) -> list[tuple[int, bytes]]:
        """REP-N3: what was unconfirmed at the last such call already; what is younger may just be on its way."""
        overdue = self.overdue.get(target, 0)
        self.overdue[target] = self.sent.get(target, 0)
        return [(number, body) for number, body in self.unconfirmed(target) if number <= overdue]

    def targets(self) -> list[NodeId]:
        """Peers to which something is to be confirmed."""
        return [target for target, outputs in self.outputs.items() if outputs]

    def expects(self, source: NodeId, number: int) -> bool:
        """REP-N2: whether this is the next packet of the source."""
        return number == self.received.get(source, 0) + 1

    def has_had(self, source: NodeId, number: int) -> bool:
        return number <= self.received.get(source, 0)
