"""The roster: all members of all topics known to this broker. Books merge alike in any order (BRK-M9.4).

A membership is known by the epoch of its last attach. It ends by a fence of the whole session, or by a departure from
one topic up to an epoch; a membership of a later epoch than a departure counts.
"""

from __future__ import annotations

from itertools import takewhile
from typing import ClassVar

from ordercast.broker.ports import Fenced, Roster
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.state import State

FOR_EVER = 1 << 62
_APART = " "
"""Neither in a topic nor in an origin: "alice~3 17" is a member since epoch 17, "alice~3 orders" a departure."""


class RosterBook(State):
    """The members of all topics and the fenced sessions, with a merge that gives the same book in any order."""

    derived: ClassVar[tuple[str, ...]] = ("_live",)

    def __init__(self, roster: Roster | None = None, fenced: Fenced | None = None) -> None:
        self.joined: dict[Topic, dict[Origin, int]] = {}
        self.ended: Fenced = {}
        self._live: dict[Topic, frozenset[Origin]] = {}
        self._unnoted: dict[Origin, None] = {}
        self._noted_ns: dict[Origin, int] = {}
        """When each departure was first seen by `prune`, the earliest first."""
        self.merge(roster or {}, fenced or {})

    def live(self, topic: Topic) -> frozenset[Origin]:
        """The members that count."""
        known = self._live.get(topic)
        if known is None:
            known = self._live[topic] = frozenset(
                member for member, epoch in self.joined.get(topic, {}).items() if not self.over(topic, member, epoch)
            )
        return known

    def epoch(self, topic: Topic, member: Origin) -> int:
        """The one that was recorded last for a member that counts; -1: it does not."""
        return self.joined[topic][member] if member in self.live(topic) else -1

    def over(self, topic: Topic, member: Origin, epoch: int) -> bool:
        """Whether a membership of that epoch has ended."""
        return epoch <= max(self.ended.get(member, -1), self.ended.get(_departure(topic, member), -1))

    def fenced(self, member: Origin) -> bool:
        """Whether the session is over in every topic."""
        return member in self.ended

    def join(self, topic: Topic, member: Origin, epoch: int) -> bool:
        """Record a membership; whether that is news."""
        members = self.joined.setdefault(topic, {})
        if members.get(member, -1) >= epoch:
            return False
        members[member] = epoch
        self._count(topic, member)
        return True

    def _count(self, topic: Topic, member: Origin) -> None:
        """What is known about the member has changed: no look at all others for it."""
        known = self._live.get(topic)
        if known is None:
            return
        epoch = self.joined[topic].get(member)
        counts = epoch is not None and not self.over(topic, member, epoch)
        if counts != (member in known):
            self._live[topic] = known | {member} if counts else known - {member}

    def merge(self, roster: Roster, fenced: Fenced) -> tuple[Roster, Fenced]:
        """Take over what others know; gives what of it was news."""
        new_roster: Roster = {}
        for topic in sorted(roster):
            news = [entry for entry in roster[topic] if self.join(topic, *parsed(entry))]
            if news:
                new_roster[topic] = tuple(news)
        new_fenced = {who: epoch for who, epoch in sorted(fenced.items()) if epoch > self.ended.get(who, -1)}
        if new_fenced:
            self.ended.update(new_fenced)
        for who in new_fenced:
            member, over_topic = touched(who)
            if over_topic is not None or broker_of(member) is not None:
                self._unnoted.setdefault(who)
            for topic in [over_topic] if over_topic is not None else self._live:
                if topic in self.joined:
                    self._count(topic, member)
        return new_roster, new_fenced

    def prune(self, now_ns: int, keep_ns: int) -> None:
        """Forget departures, and fences of adopters, after a while, with the memberships that they ended.

        A broker that has missed one for so long brings a membership back that nobody stands behind: it ends by its
        absence (BRK-M10). Fences of clients are kept: their sessions could come back.
        """
        for who in self._unnoted:
            self._noted_ns.setdefault(who, now_ns)
        self._unnoted = {}
        for who in list(takewhile(lambda who: now_ns - self._noted_ns[who] >= keep_ns, self._noted_ns)):
            member, topic = touched(who)
            for name in [topic] if topic is not None else self.joined:
                members = self.joined.get(name, {})
                if member in members and members[member] <= self.ended[who]:
                    del members[member]
            del self.ended[who], self._noted_ns[who]

    def roster(self) -> Roster:
        """For the wire: every membership that has not ended."""
        return {
            topic: tuple(written(member, self.joined[topic][member]) for member in sorted(self.live(topic)))
            for topic in sorted(self.joined)
            if self.live(topic)
        }

    def fences(self) -> Fenced:
        """For the wire: everything that has ended."""
        return dict(sorted(self.ended.items()))

    def topics(self) -> list[Topic]:
        """All topics that somebody is a member of."""
        return [topic for topic in sorted(self.joined) if self.live(topic)]

    def topics_of(self, member: Origin) -> list[Topic]:
        return [topic for topic in sorted(self.joined) if member in self.live(topic)]


def adopter(node: NodeId, life: int, names: int, topic: Topic) -> Origin:
    """BRK-R2: no client is called like this, behind the session there is nothing in their names."""
    return Origin(f"{node}~{life}.{names}@{topic}")


def broker_of(member: Origin) -> tuple[NodeId, int] | None:
    """The broker, and its life, of an adopter; None: it is a client."""
    who, at, _ = member.partition("@")
    node, _, lives = who.rpartition("~")
    life, dot, _ = lives.partition(".")
    return (NodeId(node), int(life)) if at and dot and node and life.isdecimal() else None


def written(member: Origin, epoch: int) -> Origin:
    """A member of a roster as it travels."""
    return Origin(f"{member}{_APART}{epoch}")


def fence(member: Origin) -> Fenced:
    """The session never counts again."""
    return {member: FOR_EVER}


def departure(topic: Topic, member: Origin, epoch: int) -> Fenced:
    """BRK-M11: the membership of that epoch, and any earlier one, is over."""
    return {_departure(topic, member): epoch}


def touched(who: Origin) -> tuple[Origin, Topic | None]:
    """Whom an ended entry is about: a session, or one topic of it."""
    member, _, topic = who.partition(_APART)
    return Origin(member), Topic(topic) if topic else None


def _departure(topic: Topic, member: Origin) -> Origin:
    return Origin(f"{member}{_APART}{topic}")


def parsed(entry: Origin) -> tuple[Origin, int]:
    """What `written` wrote."""
    member, _, epoch = entry.partition(_APART)
    return Origin(member), int(epoch)
