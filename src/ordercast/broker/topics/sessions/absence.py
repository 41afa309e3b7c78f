"""Counts how long members are absent (BRK-M10). The root tells all brokers, so that its successor counts on."""

from __future__ import annotations

from ordercast.broker.topics.state.topics_state import TopicsPart, TopicsState
from ordercast.core.ids import Origin, Topic
from ordercast.core.process import Connection
from ordercast.pubsub.topic_packets import Absent

_MS = 1_000_000
_DUE = ("topics", "absent")
_TELL = ("topics", "tell_absent")
_SHORT = 8
"""An absence of this part of the patience is told; most are over before."""
_COMING = 10
"""Somebody who comes back topic by topic has so many times the patience for all of them."""


class Absence(TopicsPart):
    """Absent members. At the root: those who are not below it. Elsewhere: what the root has told last."""

    def __init__(self, state: TopicsState) -> None:
        super().__init__(state)
        self.since: dict[Topic, dict[Origin, int]] = {}
        self._of_term = 0
        """The number of the term whose root has counted this."""
        self._untold: set[tuple[Topic, Origin]] = set()
        """What of it the brokers below do not know."""
        self._back: set[tuple[Topic, Origin]] = set()
        """Those of whom the brokers below believe that they are absent, and who are not."""
        self._came_ns: dict[Origin, int] = {}
        """When somebody who is absent from a topic has come back to another one."""
        self._spared_ns: dict[Origin, int] = {}
        """Since when it is not given up for that reason."""
        self._told_any = False
        self._tells_all = True
        """Whether the brokers below know nothing from this root yet."""
        self._tells = False
        self._watching = False

    @property
    def _patience_ns(self) -> int:
        return int(self.settings.member_timeout_ms * _MS)

    def inherit(self) -> None:
        """A root begins to decide: nobody is fenced before what it can hear of members has had time to arrive."""
        settings = self.settings
        grace_ns = min(self._patience_ns // 2, int((settings.lease_ms + settings.request_ms) * _MS))
        earliest = self.wires.now_ns - self._patience_ns + grace_ns
        for members in self.since.values():
            members.update({member: max(since, earliest) for member, since in members.items()})
        self._of_term = self.tree.term[0]
        self._watching = self._tells = False
        self._tells_all = True

    def learn(self, number: int, since: dict[Topic, dict[Origin, int]]) -> None:
        """From others who agree to this broker's claim: it was away, or too short a time there, and was told less."""
        if number > self._of_term:
            self._of_term, self.since = number, {topic: members for topic, members in since.items() if members}

    def noticed(self, topic: Topic, members: set[Origin]) -> None:
        """Those, and no others, are members of the topic and not below this root."""
        before = self.since.get(topic, {})
        if members or before:
            back = {(topic, member) for member in before if member not in members}
            new = {member: self.wires.now_ns for member in sorted(members) if member not in before}
            self._replace(topic, {**{member: before[member] for member in before if member in members}, **new})
            self._back |= back - self._untold
            self._untold -= back
            self._untold.update((topic, member) for member in new)
            self._came_ns.update((member, self.wires.now_ns) for _, member in back)
        if self._untold and not self._tells:
            self._tells = True
            self.wires.set_timer(_TELL, self._patience_ns // _SHORT)
        self._watch()

    def _replace(self, topic: Topic, members: dict[Origin, int]) -> None:
        if members:
            self.since[topic] = members
        else:
            self.since.pop(topic, None)

    def _watch(self) -> None:
        if self.since and not self._watching:
            self._watching = True
            due = min(min(members.values()) for members in self.since.values()) + self._patience_ns
            self.wires.set_timer(_DUE, max(1, due - self.wires.now_ns))

    def overdue(self) -> list[Origin]:
        """Members that have been absent for `member_timeout_ms`; each is named again a while later if it still is."""
        self._watching = False
        limit = self.wires.now_ns - self._patience_ns
        for topic, members in list(self.since.items()):
            live = self.book.live(topic)
            ended = {(topic, member) for member in members if member not in live}
            self._replace(topic, {member: since for member, since in members.items() if member in live})
            self._back |= ended - self._untold
            self._untold -= ended
        late = {member for members in self.since.values() for member, since in members.items() if since <= limit}
        again = limit + self._patience_ns // 4
        for members in self.since.values():
            members.update({member: again for member in members if member in late})
        self._watch()
        coming = {member for member in late if self._is_coming(member)}
        self._spared_ns = {member: self._spared_ns.get(member, self.wires.now_ns) for member in coming}
        self._came_ns = {member: came for member, came in self._came_ns.items() if came > limit}
        return sorted(late - coming)

    def _is_coming(self, member: Origin) -> bool:
        """BRK-M10: it has come back to another topic lately; with very many of them that goes on for long."""
        now = self.wires.now_ns
        came_ns, spared_ns = self._came_ns.get(member, now - self._patience_ns), self._spared_ns.get(member, now)
        return came_ns > now - self._patience_ns and spared_ns > now - _COMING * self._patience_ns

    # Telling others

    def turn_end(self) -> None:
        if self._back:
            self.tell()

    def tell(self) -> None:
        """The root, when an absence is no short one, and at the end of a turn in which one that was told is over."""
        self._tells = False
        if self.tree.is_root:
            packet = self._everything() if self._tells_all else self._news()
            for child in sorted(self.tree.children):
                self.wires.send(child, packet)
            self._told_any = True
            self._tells_all = False
            self._untold.clear()
        self._back.clear()

    def child_added(self, child: Connection) -> None:
        if self._told_any:
            self.wires.send(child, self._everything())

    def _everything(self) -> Absent:
        return Absent(self._ages())

    def _ages(self) -> dict[Topic, dict[Origin, int]]:
        return {
            topic: {member: self._age_ms(since) for member, since in sorted(self.since[topic].items())}
            for topic in sorted(self.since)
        }

    def known(self) -> dict[Topic, dict[Origin, int]] | None:
        """What the root of the last term has told; None: nothing."""
        return self._ages() if self._of_term == self.tree.term[0] else None

    def _news(self) -> Absent:
        ages: dict[Topic, dict[Origin, int]] = {}
        for topic, member in sorted(self._untold):
            ages.setdefault(topic, {})[member] = self._age_ms(self.since[topic][member])
        return Absent(ages, tuple(sorted(self._back)), whole=False)

    def _age_ms(self, since: int) -> int:
        return max(0, self.wires.now_ns - since) // _MS

    def told(self, packet: Absent) -> None:
        """By the parent: it replaces what was told before, or adds to it, and goes on to the children."""
        now = self.wires.now_ns
        self._of_term = self.tree.term[0]
        if packet.whole:
            self.since = {}
        for topic, member in packet.back:
            left = {other: since for other, since in self.since.get(topic, {}).items() if other != member}
            self._replace(topic, left)
        for topic, ages in packet.members.items():
            told = {member: now - age_ms * _MS for member, age_ms in ages.items()}
            self._replace(topic, self.since.get(topic, {}) | told)
        self._untold.clear()
        self._told_any = True
        for child in sorted(self.tree.children):
            self.wires.send(child, packet)
