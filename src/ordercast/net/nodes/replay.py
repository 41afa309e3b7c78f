"""Replays a node's logged inputs until its machine is in the state it had when the process died.

Nothing that the machine does meanwhile leaves: it was sent, delivered and recorded then. What the log has and the trace
or the application has not, because the process died in between, is told now.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path

import msgspec

from ordercast.core.errors import InvariantError, UsageError
from ordercast.core.ids import NodeId, Origin
from ordercast.core.machine import Machine
from ordercast.core.messages import Message, Packet
from ordercast.core.wire import Codec
from ordercast.net.journal_writer import JournalWriter
from ordercast.net.nodes.batches import handle_batch
from ordercast.net.nodes.saved_state import restore
from ordercast.net.nodes.state_log import (
    Fired,
    Input,
    JoinedInput,
    LeftInput,
    LifeBegun,
    MachineReplaced,
    PublishedInput,
    ReceivedInput,
    Started,
    StateLog,
    Subscribed,
    Suspected,
    Trusted,
    Unsubscribed,
    timer_name,
)
from ordercast.trace.journal import read_journal

BY_THE_HOST = frozenset({"send", "receive", "suspect", "recover"})
"""Kinds of events that the host records of itself. All others are the machine's and the application's: they follow from
the inputs, and a journal has as many of them as the log tells of, or less."""


class ToldEvents(msgspec.Struct, frozen=True):
    """The part of a node's history that its journal and application had seen before its process died."""

    events: int = 0
    """Publications, deliveries and notes in its journals."""
    deliveries: int = 0
    """Messages that the application has taken over."""
    last: tuple[str, str | None] | None = None
    """Kind and message of the last of these events, if it is known."""


def told_by(journals: Iterable[Path]) -> ToldEvents:
    """Events in the journals of former lives; without another record their deliveries count as taken over."""
    events = deliveries = 0
    last: tuple[str, str | None] | None = None
    for journal in journals:
        for row in read_journal(journal):
            if row.kind not in BY_THE_HOST:
                events += 1
                deliveries += row.kind == "deliver"
                last = row.kind, row.msg
    return ToldEvents(events, deliveries, last)


class ReplayedEvent(msgspec.Struct, frozen=True):
    """An event of a replay that the trace still lacks."""

    kind: str
    message: Message | None = None
    info: Mapping[str, str] | None = None

    @property
    def title(self) -> tuple[str, str | None]:
        return self.kind, self.message.id if self.message is not None else None

    def record(self, journal: JournalWriter, time_ns: int) -> None:
        if self.message is None:
            journal.event(self.kind, time_ns, self.info)
        elif self.kind == "publish":
            journal.publish(time_ns, self.message)
        else:
            journal.deliver(time_ns, self.message)


class InputReplay:
    """Feeds logged inputs to a machine, and is its outbox meanwhile: effects are counted, none is carried out."""

    def __init__(
        self, log: StateLog, build: Callable[[], Machine], codec: Codec, origin: Origin, *, notes_membership: bool
    ) -> None:
        """`notes_membership`: the machine itself notes its subscriptions."""
        head = log.head
        self.machine = build()
        if head.saved:
            restore(self.machine, head.saved)
        self.published = head.published
        self.delivered = head.delivered
        self._build = build
        self._codec = codec
        self._origin = origin
        self._notes_membership = notes_membership
        self._told_before = head.told
        self._heard_before = head.delivered - len(head.unheard)
        self._events: list[ReplayedEvent] = []
        self._deliveries: list[Message] = list(head.unheard)
        for happened in log.inputs:
            self._repeat(happened)
        log.inputs = []

    @property
    def told(self) -> int:
        """All events so far."""
        return self._told_before + len(self._events)

    def untold(self, told: ToldEvents) -> list[ReplayedEvent]:
        """The events that had not come out."""
        place = told.events - self._told_before
        before = self._events[place - 1] if 0 < place <= len(self._events) else None
        if place > len(self._events) or (before is not None and told.last not in (None, before.title)):
            raise InvariantError(
                f"event {told.events} in the journals is {told.last}, and the log does not have it there"
            )
        return self._events[max(0, place) :]

    def unheard(self, heard: int) -> list[Message]:
        """The deliveries after the first `heard`."""
        if heard < self._heard_before:
            raise UsageError(
                f"the application has taken over {heard} deliveries, and those before {self._heard_before + 1} are "
                "no longer in the state"
            )
        if heard > self.delivered:
            raise UsageError(
                f"the application has taken over {heard} deliveries, and the state knows of {self.delivered} only"
            )
        return self._deliveries[heard - self._heard_before :]

    def revived(self) -> Machine:
        """A machine that has what must survive a crash, and nothing else."""
        machine = self._build()
        machine.restore(self.machine.save())
        return machine

    def _repeat(self, happened: Input) -> None:
        match happened:
            case Started():
                self.machine.on_start(self)
            case LifeBegun():
                self.machine = self.revived()
                self.machine.on_recover(self)
            case MachineReplaced():
                self.machine.on_recover(self)  # The head of the log has what it was restored from.
            case PublishedInput():
                self._publish(happened)
            case ReceivedInput(peer, bodies):
                packets = [self._codec.decode(body, peer) for body in bodies]
                handle_batch(self.machine, peer, packets, self)  # What made no sense then makes none now.
            case Fired(name):
                self.machine.on_timer(timer_name(name), self)
            case Suspected(peer):
                self.machine.on_suspect(peer, self)
            case Trusted(peer):
                self.machine.on_trust(peer, self)
            case _:
                mark = len(self._events)
                try:
                    self._change(happened)
                except UsageError:
                    del self._events[mark:]  # Refused then, refused now.

    def _change(self, happened: Subscribed | Unsubscribed | JoinedInput | LeftInput) -> None:
        match happened:
            case Subscribed(topic):
                if not self._notes_membership:
                    self.note("subscribe", {"topic": topic})
                self.machine.on_subscribe(topic, self)
            case Unsubscribed(topic):
                self.machine.on_unsubscribe(topic, self)
                if not self._notes_membership:
                    self.note("unsubscribe", {"topic": topic})
            case JoinedInput():
                self.machine.on_join(self)
            case LeftInput():
                self.machine.on_leave(self)

    def _publish(self, asked: PublishedInput) -> None:
        content = (asked.topic, asked.payload, asked.guarantee, asked.keys, asked.dst)
        message = Message(self._origin, self.published + 1, *content)
        mark = len(self._events)
        self._events.append(ReplayedEvent("publish", message))
        try:
            self.machine.on_publish(message, self)
        except UsageError:
            del self._events[mark:]  # Refused then, refused now.
        else:
            self.published += 1

    # What the machine asks for

    def deliver(self, message: Message) -> None:
        self.delivered += 1
        self._events.append(ReplayedEvent("deliver", message))
        self._deliveries.append(message)

    def note(self, kind: str, info: Mapping[str, str]) -> None:
        self._events.append(ReplayedEvent(kind, info=info))

    def send(self, peer: NodeId, packet: Packet) -> None:
        """Nothing is sent in a replay: the packet left in the former life."""

    def complete(self, message_id: str) -> None:
        """A completion from a former life: whoever waited for it has died with the process."""

    def set_timer(self, name: Hashable, delay_ns: int, *, background: bool = False) -> None:
        """If it ran out, the log says so."""

    def cancel_timer(self, name: Hashable) -> None:
        """If it ran out, the log says so."""
