"""Writes down every input of a node's machine, and restores the machine from them after a restart."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.machine import Machine
from ordercast.core.messages import Message, Packet
from ordercast.core.wire import Codec
from ordercast.net.nodes.replay import InputReplay, ReplayedEvent, ToldEvents
from ordercast.net.nodes.saved_state import pack, restore
from ordercast.net.nodes.state_log import (
    Fired,
    Head,
    Input,
    JoinedInput,
    LeftInput,
    MachineReplaced,
    PublishedInput,
    ReceivedInput,
    StateLog,
    Subscribed,
    Suspected,
    Trusted,
    Unsubscribed,
)

LOG = logging.getLogger("ordercast.net")


class DurableInputs:
    """The log of a node, if it has one, and the counts that go into it."""

    def __init__(self, log: StateLog | None, told: ToldEvents | None, codec: Codec, *, notes_membership: bool) -> None:
        self.durable = log is not None
        """Whether anything is written down."""
        self.recovered = log is not None and log.has_past
        self.events = 0
        """Publications, deliveries and notes so far: those events of the trace that the log can repeat."""
        self.published = 0
        self.delivered = 0
        self.untold: list[ReplayedEvent] = []
        """Of former lives, what the trace does not have."""
        self.unheard: list[Message] = []
        """Of former lives, what the application does not have."""
        self._log = log
        self._told = told or ToldEvents()
        self._codec = codec
        self._notes_membership = notes_membership
        self._build: Callable[[], Machine] | None = None

    def machine(self, build: Callable[[], Machine], origin: Origin) -> Machine:
        """As it is built, or with what its former lives have left."""
        self._build = build
        if self._log is None or not self._log.has_past:
            return build()
        past = InputReplay(self._log, build, self._codec, origin, notes_membership=self._notes_membership)
        self.events, self.published, self.delivered = past.told, past.published, past.delivered
        self.untold = past.untold(self._told)
        self.unheard = past.unheard(self._told.deliveries)
        return past.revived()

    # What happens

    def on_life(self) -> None:
        if self._log is not None:
            self._log.begin_life()

    def on_publish(self, content: tuple[Any, ...]) -> None:
        self._add(PublishedInput(*content))

    def on_receive(self, peer: NodeId, packets: Sequence[Packet]) -> None:
        if self._log is not None:
            self._log.add(ReceivedInput(peer, tuple(map(self._codec.encode, packets))))

    def on_timer(self, name: Hashable) -> None:
        self._add(Fired(name))

    def on_suspect(self, peer: NodeId) -> None:
        self._add(Suspected(peer))

    def on_trust(self, peer: NodeId) -> None:
        self._add(Trusted(peer))

    def on_subscribe(self, topic: Topic) -> None:
        self._add(Subscribed(topic))

    def on_unsubscribe(self, topic: Topic) -> None:
        self._add(Unsubscribed(topic))

    def on_join(self) -> None:
        self._add(JoinedInput())

    def on_leave(self) -> None:
        self._add(LeftInput())

    # The end of a turn

    def flush(self) -> None:
        """From here on the turn has happened, whatever becomes of the process."""
        if self._log is not None:
            self._log.flush()

    @property
    def oversized(self) -> bool:
        return self._log is not None and self._log.oversized

    def renewed(self, machine: Machine, published: int, delivered: int, unheard: tuple[Message, ...]) -> Machine | None:
        """A machine that has what this one saves, and a log that begins with it. It is yet to be told that it is back.

        The log could not go on with the old machine: whoever repeats it has what was saved and nothing else. By now
        log and trace must have been told everything. None: what this machine saves cannot be read back, so the log
        must go on growing.
        """
        if self._log is None or self._build is None:
            return None
        fresh = self._build()
        try:
            saved = pack(machine)
            restore(fresh, saved)
        except UsageError as error:
            self._log.put_off()
            facts = {"node": self._log.head.whose.node, "reason": str(error)}
            LOG.warning("the log grows on: what the machine saves cannot be read back", extra={"facts": facts})
            return None
        whose, lives = self._log.head.whose, self._log.lives
        self._log.compact(Head(whose, saved, published, self.events, delivered, unheard, lives))
        self._log.add(MachineReplaced())
        return fresh

    def close(self) -> None:
        if self._log is not None:
            self._log.close()

    def _add(self, happened: Input) -> None:
        if self._log is not None:
            self._log.add(happened)
