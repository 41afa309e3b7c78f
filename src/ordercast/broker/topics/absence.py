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
        self.since: dict[tuple[Topic, Origin], int] = {}
        self._told: set[tuple[Topic, Origin]] = set()
        """What the brokers below know of it."""
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
        self.since = {key: max(since, earliest) for key, since in self.since.items()}
        self._watching = self._tells = False

    def noticed(self, topic: Topic, members: set[Origin]) -> None:
        """Those, and no others, are members of the topic and not below this root."""
        back = [key for key in self.since if key[0] == topic and key[1] not in members]
        new = [(topic, member) for member in sorted(members) if (topic, member) not in self.since]
        for key in back:
            del self.since[key]
        self.since.update(dict.fromkeys(new, self.wires.now_ns))
        if self._told.intersection(back):
            self.tell_all()
        if not self._tells and not self._told.issuperset(self.since):
            self._tells = True
            self.wires.set_timer(_TELL, self._patience_ns // _SHORT)
        self._watch()

    def _watch(self) -> None:
        if self.since and not self._watching:
            self._watching = True
            due = min(self.since.values()) + self._patience_ns
            self.wires.set_timer(_DUE, max(1, due - self.wires.now_ns))

    def overdue(self) -> list[Origin]:
        """Who has been absent for `member_timeout_ms`; asked again a while later, if it still is one then."""
        self._watching = False
        limit = self.wires.now_ns - self._patience_ns
        self.since = {key: since for key, since in self.since.items() if key[1] in self.book.live(key[0])}
        late = {member for (_, member), since in self.since.items() if since <= limit}
        again = limit + self._patience_ns // 4
        self.since = {key: again if key[1] in late else since for key, since in self.since.items()}
        self._watch()
        return sorted(late)

    # Telling others

    def tell_all(self) -> None:
        """The root, when an absence is no short one, and when one that was told is over."""
        self._tells = False
        if self.tree.is_root:
            self._told = set(self.since)
            for child in sorted(self.tree.children):
                self._tell(child)

    def child_added(self, child: Connection) -> None:
        if self._told:
            self._tell(child)

    def _tell(self, child: Connection) -> None:
        ages: dict[Topic, dict[Origin, int]] = {}
        for (topic, member), since in sorted(self.since.items()):
            ages.setdefault(topic, {})[member] = max(0, self.wires.now_ns - since) // _MS
        self.wires.send(child, Absent(ages))

    def told(self, packet: Absent) -> None:
        """By the parent: it replaces what was told before, and goes on to the children."""
        self.since = {
            (topic, member): self.wires.now_ns - age_ms * _MS
            for topic, ages in packet.members.items()
            for member, age_ms in ages.items()
        }
        self._told = set(self.since)
        for child in sorted(self.tree.children):
            self.wires.send(child, packet)
