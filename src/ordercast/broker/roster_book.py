"""The roster: all members of all topics known to this broker. Books merge alike in any order (BRK-M9.4).

A membership is known by the epoch of its last attach. It ends by a fence of the whole session, or by a departure from
one topic up to an epoch; a membership of a later epoch than a departure counts. Who follows a filter is a member of the
filter's own name, and, in advance, of every topic of it that begins (BRK-W2).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import ClassVar

from ordercast.broker.ports import Fenced, Roster
from ordercast.core.ids import NodeId, Origin, Topic, plain_origin, ticket_of
from ordercast.core.state import State
from ordercast.pubsub.client_packets import FENCED, REPLACED_BY_NEWER
from ordercast.pubsub.closed import Closed, ClosedSessions
from ordercast.pubsub.filters import FilterIndex, followed, is_following

FOR_EVER = 1 << 62
"""The end of a whole session: beyond all epochs."""
REPLACED = FOR_EVER + 1
"""The same, because a later session of its client has taken its place (BRK-M13)."""
SERIALS = 1 << 21
"""Epochs of one attach. Those that a client has asked for are even, those in advance odd."""
_APART = " "
"""Neither in a topic nor in an origin: "alice~3 17" is a member since epoch 17, "alice~3 orders" a departure."""


NEVER_NS = 1 << 80
_NOBODY: frozenset[Origin] = frozenset()


class RosterBook(State):
    """The members of all topics and the fenced sessions, with a merge that gives the same book in any order."""

    derived: ClassVar[tuple[str, ...]] = ("_live", "_changed", "_changed_ends", "_filters", "_topics", "oldest_ns")

    def __init__(
        self, roster: Roster | None = None, fenced: Fenced | None = None, closed: Closed | None = None
    ) -> None:
        self.closed = ClosedSessions(closed)
        """BRK-F7: sessions that have ended and left nothing; whatever is said of them is old."""
        self._topics: dict[Origin, set[Topic]] = {}
        """Where each session is recorded as a member, whether or not it still is one."""
        self.joined: dict[Topic, dict[Origin, int]] = {}
        self.ended: Fenced = {}
        self._live: dict[Topic, frozenset[Origin]] = {}
        self._filters: FilterIndex[Topic] = FilterIndex()
        """All filters that somebody has followed."""
        self._unnoted: dict[Origin, None] = {}
        self._noted_ns: dict[Origin, int] = {}
        """When each departure was first seen by `prune`, the earliest first."""
        self.oldest_ns = NEVER_NS
        """The earliest of them: there is something to prune when it is old enough."""
        self._changed: set[Topic] = set()
        """Topics whose members may be others than `changes` last said."""
        self._changed_ends: dict[Origin, None] = {}
        """Ends that were recorded or forgotten since `changed_ends` was last asked."""
        self.merge(roster or {}, fenced or {})
        self._changed.clear()
        self._changed_ends = dict.fromkeys(who for who in fenced or {} if who not in self.ended)

    def live(self, topic: Topic) -> frozenset[Origin]:
        """The members that count."""
        known = self._live.get(topic)
        if known is None:
            if topic not in self.joined:
                return _NOBODY
            known = self._live[topic] = frozenset(
                member for member, epoch in self.joined.get(topic, {}).items() if not self.over(topic, member, epoch)
            )
        return known

    def epoch(self, topic: Topic, member: Origin) -> int:
        """The one that was recorded last for a member that counts; -1: it does not."""
        return self.joined[topic][member] if member in self.live(topic) else -1

    def over(self, topic: Topic, member: Origin, epoch: int) -> bool:
        """Whether a membership of that epoch has ended."""
        return member in self.closed or epoch <= max(
            self.ended.get(member, -1), self.ended.get(_departure(topic, member), -1)
        )

    def fenced(self, member: Origin) -> bool:
        """Whether the session is over in every topic."""
        return member in self.ended or member in self.closed

    def why_over(self, member: Origin) -> str:
        """What a client whose session is over is told."""
        return REPLACED_BY_NEWER if self.ended.get(member) == REPLACED else FENCED

    def ended_sessions(self) -> list[Origin]:
        """BRK-F3: sessions with a ticket that never count again and are not folded yet, in the order of their end."""
        return [who for who, epoch in self.ended.items() if epoch >= FOR_EVER and ticket_of(who) is not None]

    def has_ends_of_tickets(self) -> bool:
        """Whether a session with a ticket has ended, or has left a topic, and that is on record."""
        return any(ticket_of(touched(who)[0]) is not None for who in self.ended)

    def join(self, topic: Topic, member: Origin, epoch: int) -> bool:
        """Record a membership; whether that is news."""
        if member in self.closed:
            return False
        members = self.joined.get(topic)
        if members is None:
            members = self.joined[topic] = {}
            if is_following(topic):
                self._filters.add(followed(topic), topic)
        if members.get(member, -1) >= epoch:
            return False
        members[member] = epoch
        self._topics.setdefault(member, set()).add(topic)
        self._changed.add(topic)
        self._count(topic, member)
        return True

    def _count(self, topic: Topic, member: Origin) -> None:
        """Count a member anew whose entry has changed, without a look at all others."""
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
        new_fenced = {
            who: epoch for who, epoch in sorted(fenced.items())
            if epoch > self.ended.get(who, -1) and touched(who)[0] not in self.closed
        }  # fmt: skip
        self.ended.update(new_fenced)
        self._changed_ends.update(dict.fromkeys(new_fenced))
        for who in new_fenced:
            member, over_topic = touched(who)
            if over_topic is not None or broker_of(member) is not None:
                self._unnoted.setdefault(who)
            for topic in [over_topic] if over_topic is not None else sorted(self._topics.get(member, ())):
                if member in self.joined.get(topic, ()):
                    self._changed.add(topic)
                    self._count(topic, member)
        return new_roster, new_fenced

    def close(self, closed: Closed) -> Closed:
        """BRK-F7: fold these sessions; gives what of it was news. What was recorded of them one by one goes."""
        news = self.closed.merge(closed)
        if news:
            for who in [who for who in self.ended if touched(who)[0] in self.closed]:
                del self.ended[who]
                self._changed_ends[who] = None
                self._noted_ns.pop(who, None)
                self._unnoted.pop(who, None)
            for member in [member for member in self._topics if member in self.closed]:
                for topic in sorted(self._topics.pop(member)):
                    self._forget(topic, member)
        return news

    def _forget(self, topic: Topic, member: Origin) -> None:
        members = self.joined.get(topic, {})
        members.pop(member, None)
        if topic in self._live and member in self._live[topic]:
            self._live[topic] -= {member}
        if not members:
            self.joined.pop(topic, None)
            self._live.pop(topic, None)
            if is_following(topic):
                self._filters.discard(followed(topic), topic)

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
            for name in [topic] if topic is not None else sorted(self._topics.get(member, ())):
                members = self.joined.get(name, {})
                if member in members and members[member] <= self.ended[who]:
                    self._topics[member].discard(name)
                    self._forget(name, member)
            if not self._topics.get(member, True):
                del self._topics[member]
            del self.ended[who], self._noted_ns[who]
            self._changed_ends[who] = None
        self.oldest_ns = next(iter(self._noted_ns.values()), NEVER_NS)

    def roster(self) -> Roster:
        """For the wire: every membership that has not ended."""
        return {topic: self._members(topic) for topic in sorted(self.joined) if self.live(topic)}

    def changes(self) -> Roster:
        """For the disk: the members of all topics with others than at the last call; of some there are none left."""
        changed, self._changed = sorted(self._changed), set()
        return {topic: self._members(topic) for topic in changed}

    def changed_ends(self) -> tuple[Fenced, tuple[Origin, ...]]:
        """For the disk: what has ended since the last call, and what is forgotten of what had."""
        changed, self._changed_ends = self._changed_ends, {}
        forgotten = tuple(who for who in changed if who not in self.ended)
        return {who: self.ended[who] for who in changed if who in self.ended}, forgotten

    def _members(self, topic: Topic) -> tuple[Origin, ...]:
        joined = self.joined.get(topic, {})
        return tuple([written(member, joined[member]) for member in sorted(self.live(topic))])

    def fences(self) -> Fenced:
        """For the wire: everything that has ended."""
        return dict(sorted(self.ended.items()))

    def topics(self) -> list[Topic]:
        """All topics that somebody is a member of."""
        return [topic for topic in sorted(self.joined) if self.live(topic)]

    def followers(self, topic: Topic) -> dict[Origin, int]:
        """BRK-W2: who follows a filter that takes the topic in, each with an epoch for its membership in advance.

        It is lower than any that the client asks for itself on the same attach, and higher than all that have ended.
        """
        found: dict[Origin, int] = {}
        for name, _ in self._filters.matching(topic):
            for member in self.live(name):
                ended = self.ended.get(_departure(topic, member), -1)
                attach = self.joined[name][member] // SERIALS
                found[member] = max(found.get(member, 0), attach * SERIALS + 1, (ended + 1) | 1)
        return found

    def awaited(self, topic: Topic) -> dict[Origin, int]:
        """BRK-W2: the members in advance that have not asked to be members themselves yet, with their epochs."""
        members = self.joined.get(topic, {})
        return {member: members[member] for member in self.live(topic) if members[member] & 1}

    def topics_of(self, member: Origin) -> list[Topic]:
        return [topic for topic in self.recorded_in(member) if member in self.live(topic)]

    def recorded_in(self, member: Origin) -> list[Topic]:
        """The topics in which it is, or was until lately, a member."""
        return sorted(self._topics.get(member, ()))


def adopter(node: NodeId, life: int, names: int, topic: Topic) -> Origin:
    """BRK-R2: no client is called like this, behind the session there is nothing in their names."""
    return Origin(f"{node}~{life}.{names}@{topic}")


def broker_of(member: Origin) -> tuple[NodeId, int] | None:
    """The broker, and its life, of an adopter; None: it is a client."""
    who, at, _ = member.partition("@")
    node, _, lives = who.rpartition("~")
    life, dot, _ = lives.partition(".")
    return (NodeId(node), int(life)) if at and dot and node and life.isdecimal() else None


def older_sessions(member: Origin, others: Iterable[Origin]) -> list[Origin]:
    """Among the others, earlier sessions of the client whose session this is."""
    if broker_of(member) is not None:
        return []
    name, mine = _session(member)
    found = []
    for other in others:
        if other.startswith(name) and other != member and broker_of(other) is None:
            theirs, number = _session(other)
            if theirs == name and number < mine:
                found.append(other)
    return sorted(found)


def _session(member: Origin) -> tuple[str, int]:
    """The client's name and the number of its session, whatever its ticket."""
    name, _, session = plain_origin(member).partition("~")
    return name, int(session) if session.isdecimal() else 0


def written(member: Origin, epoch: int) -> Origin:
    """A member of a roster as it travels."""
    return Origin(f"{member}{_APART}{epoch}")


def fence(member: Origin, end: int = FOR_EVER) -> Fenced:
    """The session never counts again; `end` says whether another one has taken its place."""
    return {member: max(end, FOR_EVER)}


def departure(topic: Topic, member: Origin, epoch: int) -> Fenced:
    """BRK-M11: the membership of that epoch, and any earlier one, is over."""
    return {_departure(topic, member): epoch}


def touched(who: Origin) -> tuple[Origin, Topic | None]:
    """The session, or the one topic of it, that an ended entry is about."""
    member, _, topic = who.partition(_APART)
    return Origin(member), Topic(topic) if topic else None


def _departure(topic: Topic, member: Origin) -> Origin:
    return Origin(f"{member}{_APART}{topic}")


def parsed(entry: Origin) -> tuple[Origin, int]:
    """The entry that `written` wrote as this text."""
    member, _, epoch = entry.partition(_APART)
    return Origin(member), int(epoch)
