"""Effects as values, recorded from an outbox: for tests, explorers and machines that contain machines."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import msgspec

from ordercast.core.ids import NodeId
from ordercast.core.messages import Message, Packet


class Send(msgspec.Struct, frozen=True):
    peer: NodeId
    packet: Packet


class Deliver(msgspec.Struct, frozen=True):
    message: Message


class SetTimer(msgspec.Struct, frozen=True):
    name: Hashable
    delay_ns: int
    background: bool = False


class CancelTimer(msgspec.Struct, frozen=True):
    name: Hashable


class Complete(msgspec.Struct, frozen=True):
    message_id: str


class Note(msgspec.Struct, frozen=True):
    kind: str
    info: Mapping[str, str]


Effect = Send | Deliver | SetTimer | CancelTimer | Complete | Note


class EffectLog:
    """An outbox that records the effects it is given."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []

    def send(self, peer: NodeId, packet: Packet) -> None:
        self.effects.append(Send(peer, packet))

    def deliver(self, message: Message) -> None:
        self.effects.append(Deliver(message))

    def set_timer(self, name: Hashable, delay_ns: int, *, background: bool = False) -> None:
        self.effects.append(SetTimer(name, delay_ns, background))

    def cancel_timer(self, name: Hashable) -> None:
        self.effects.append(CancelTimer(name))

    def complete(self, message_id: str) -> None:
        self.effects.append(Complete(message_id))

    def note(self, kind: str, info: Mapping[str, str]) -> None:
        self.effects.append(Note(kind, info))

    def take(self) -> list[Effect]:
        """All effects since the last call."""
        taken, self.effects = self.effects, []
        return taken
