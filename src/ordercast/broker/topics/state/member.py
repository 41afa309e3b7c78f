"""Those who take part in a topic, as a broker keeps them: members, those who wait to be, and what they report."""

from __future__ import annotations

from collections.abc import Hashable

from ordercast.core.ids import Origin
from ordercast.core.process import Connection
from ordercast.core.state import State, Value, freeze
from ordercast.pubsub.received import Summary, Vector

Coverage = frozenset[tuple[Origin, int]]
"""Members and the epochs in which a broker answers for them (BRK-L2)."""


class Member(State):
    """A confirmed local member. Without a connection: one that leaves or is away, or this broker for orphans."""

    def __init__(self, connection: Connection | None, epoch: int, *, receives: bool) -> None:
        self.connection = connection
        self.epoch = epoch
        self.receives = receives
        self.leaving = False
        self.away = False
        """BRK-M14: its connection has ended, and this broker answers for it."""
        self.vector: Vector | None = None
        """Its last stability report."""
        self.acked: object = None
        """The last acknowledgements that it was sent."""

    def go_on_from(self, before: Member) -> None:
        """It was a member before, on the same connection: what it reported then is true."""
        self.vector = before.vector

    def begin_to_leave(self, connection: Connection) -> None:
        """BRK-M11: the client says so; one that was away is back for this."""
        self.connection = connection
        self.leaving, self.away = True, False

    def step_away(self, *, receives: bool) -> None:
        """BRK-M14: the client is gone and its place stays. `receives`: it counts for what is stable."""
        self.connection = None
        self.away = True
        self.receives = receives


class WaitingMember(State):
    """A local client whose membership the root has not confirmed yet (BRK-M2)."""

    def __init__(self, connection: Connection | None, epoch: int, *, receives: bool) -> None:
        self.connection = connection
        self.epoch = epoch
        self.receives = receives
        self.have: Summary = {}
        self.base: Vector = {}
        self.heard_ns = 0
        self.resumed = False
        """It has answered the last TopicState."""
        self.life = 0
        """Of the log that its history was sent for."""
        self.complete = False
        """Its whole history is here: only then is the root asked to confirm it."""
        self.asked = 0
        """How often the root was asked in vain, on the present way to it."""
        self.may_be_recorded = False
        """The root has been asked, on this way to it or another."""
        self.ask_ns = 0
        """When it is asked again."""
        self.away = False
        """BRK-M14: its connection has ended since the root was asked, and this broker will answer for it."""
        self.until_ns = 0
        """How long it is asked for in its absence."""

    def answered(self, have: Summary, base: Vector, now_ns: int) -> None:
        """BRK-M2: a piece of its history has come."""
        self.have, self.base, self.heard_ns = have, base, now_ns
        self.resumed = True

    def step_away(self, *, receives: bool, until_ns: int) -> None:
        """BRK-M14: the client is gone, and the root may have recorded it with what it was asked for.

        What it had is known since then, although its history may have gone with the log: complete is who has it all.
        """
        self.connection = None
        self.away = self.resumed = True
        self.receives, self.until_ns = receives, until_ns

    def is_given_up(self, now_ns: int) -> bool:
        """BRK-M8: whether the root would have been rid of it by now."""
        return self.away and now_ns >= self.until_ns

    def look_for_it_again(self) -> None:
        """BRK-S7: the log has begun anew. Who is away cannot be asked: what it had has to come with the new one."""
        self.complete = False

    def begin_with(self, life: int) -> None:
        """BRK-M2: its history is asked for once more, for the log of that life."""
        self.complete = self.resumed = False
        self.life = life


class Roll(Value):
    """BRK-M7: members that are here or below, and those that a broker answers for; confirmed, or waiting to be."""

    __slots__ = ("away", "here")

    def __init__(self, here: Coverage = frozenset(), away: Coverage = frozenset()) -> None:
        self.here = here
        self.away = away

    def frozen(self) -> Hashable:
        return self.here, self.away


class Vote(Value):
    """BRK-ST1: members that have voted, and what all of them have. No vector: none of them holds anybody up."""

    __slots__ = ("members", "vector")

    def __init__(self, members: Coverage, vector: Vector | None) -> None:
        self.members = members
        self.vector = vector

    def frozen(self) -> Hashable:
        return self.members, freeze(self.vector)
