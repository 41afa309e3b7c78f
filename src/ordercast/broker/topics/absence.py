"""Since when members are absent (BRK-M10): the root counts, and tells all brokers, so that its successor counts on."""

from __future__ import annotations

from ordercast.broker.topics.topics_state import TopicsPart, TopicsState
from ordercast.core.ids import Origin, Topic
from ordercast.core.process import Connection
from ordercast.pubsub.topic_packets import Absent

_MS = 1_000_000
_DUE = ("topics", "absent")
_TELL = ("topics", "tell_absent")
_SHORT = 8
"""An absence of this part of the patience is told; most are over before."""


class Absence(TopicsPart):
    """At the root: who is not below it. At other brokers: what their root has told them last."""

    def __init__(self, state: TopicsState) -> None:
        super().__init__(state)
        self.since: dict[Topic, dict[Origin, int]] = {}
        self._untold: set[tuple[Topic, Origin]] = set()
        """What of it the brokers below do not know."""
        self._told_any = False
        self._outdated = False
        """Somebody of whom the brokers below believe that it is absent is back."""
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
        self._watching = self._tells = False

    def noticed(self, topic: Topic, members: set[Origin]) -> None:
        """Those, and no others, are members of the topic and not below this root."""
        before = self.since.get(topic, {})
        if members or before:
            back = {(topic, member) for member in before if member not in members}
            new = {member: self.wires.now_ns for member in sorted(members) if member not in before}
            self._replace(topic, {**{member: before[member] for member in before if member in members}, **new})
            self._outdated |= bool(back - self._untold)
            self._untold -= back
            self._untold.update((topic, member) for member in new)
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
        """Who has been absent for `member_timeout_ms`; asked again a while later, if it still is one then."""
        self._watching = False
        limit = self.wires.now_ns - self._patience_ns
        for topic, members in list(self.since.items()):
            live = self.book.live(topic)
            self._replace(topic, {member: since for member, since in members.items() if member in live})
        self._untold = {key for key in self._untold if key[1] in self.since.get(key[0], {})}
        late = {member for members in self.since.values() for member, since in members.items() if since <= limit}
        again = limit + self._patience_ns // 4
        for members in self.since.values():
            members.update({member: again for member in members if member in late})
        self._watch()
        return sorted(late)

    # Telling others

    def turn_end(self) -> None:
        if self._outdated:
            self.tell_all()

    def tell_all(self) -> None:
        """The root, when an absence is no short one, and at the end of a turn in which one that was told is over."""
        self._tells = self._outdated = False
        if self.tree.is_root:
            self._untold.clear()
            self._told_any = bool(self.since)
            for child in sorted(self.tree.children):
                self._tell(child)

    def child_added(self, child: Connection) -> None:
        if self._told_any:
            self._tell(child)

    def _tell(self, child: Connection) -> None:
        now = self.wires.now_ns
        self.wires.send(child, Absent({
            topic: {member: max(0, now - since) // _MS for member, since in sorted(self.since[topic].items())}
            for topic in sorted(self.since)
        }))  # fmt: skip

    def told(self, packet: Absent) -> None:
        """By the parent: it replaces what was told before, and goes on to the children."""
        now = self.wires.now_ns
        self.since = {
            topic: {member: now - age_ms * _MS for member, age_ms in ages.items()}
            for topic, ages in packet.members.items()
            if ages
        }
        self._untold.clear()
        self._told_any = bool(self.since)
        for child in sorted(self.tree.children):
            self.wires.send(child, packet)
