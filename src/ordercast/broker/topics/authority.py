"""What only the root does: grants (M4), opening topics (M7), joins (M9), fences (M8, M10). All need `decides`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ordercast.broker.roster_book import FOR_EVER, broker_of, departure, fence, touched
from ordercast.broker.topics.topic import Coverage, TopicNode
from ordercast.core.ids import Origin, Topic
from ordercast.core.state import State
from ordercast.pubsub.topic_packets import AttachDenied, AttachGranted, AttachRequest, MemberGone, RosterUpdate

if TYPE_CHECKING:
    from ordercast.broker.topics.topics import Topics

_ABSENT = ("topics", "absent")
_UPDATES_OF_A_TERM = 1 << 24


class Authority(State):
    """Empty at every broker but the root, and anew in every term."""

    constant: ClassVar[tuple[str, ...]] = ("t",)

    def __init__(self, topics: Topics) -> None:
        self.t = topics
        self.updates = 0
        self.clear()

    def clear(self) -> None:
        """O15: no grants, no opened topics."""
        self.granted: dict[Topic, dict[Origin, int]] = {}
        self.opened: set[Topic] = set()
        self.asks: dict[Topic, dict[Origin, AttachRequest]] = {}
        self.joining: dict[Topic, set[Origin]] = {}
        self.announced: set[Topic] = set()
        """Topics whose name every watcher in the tree was told in this term, and has answered."""
        self.known_to_few: set[tuple[Topic, Origin]] = set()
        """Members whose wave did not reach enough brokers: it is sent again before they are granted."""
        self.began: dict[tuple[Topic, Origin], int] = {}
        """The epochs in which members joined that were none before."""
        self.fencing: set[Origin] = set()
        self.absent_since: dict[tuple[Topic, Origin], int] = {}
        self.watching_absence = False

    # M4, M7, M9

    def request(self, packet: AttachRequest) -> None:
        """M4. A request that cannot be decided yet is remembered until the topic is opened.

        An edge that has not noticed yet that the client has moved on goes on asking: the later epoch counts.
        """
        asks = self.asks.setdefault(packet.topic, {})
        if packet.member not in asks or asks[packet.member].epoch <= packet.epoch:
            asks[packet.member] = packet
        self.serve(packet.topic)

    def serve(self, topic: Topic) -> None:
        """Decide on every request for the topic that can be decided."""
        if not (self.t.overlay.is_root and self.t.overlay.decides and self._is_open(topic)):
            return
        asks = self.asks.get(topic, {})
        for member in sorted(asks):
            packet = asks.get(member)
            if packet is None:
                continue
            if self.t.book.fenced(member):
                del asks[member]
                self.t.members.answer(packet.path, AttachDenied(topic, member, packet.epoch, packet.path))
            elif self.t.book.over(topic, member, packet.epoch):
                del asks[member]  # It has left since it asked.
            elif packet.epoch < self.t.book.epoch(topic, member):
                del asks[member]  # It is, or asks to be, confirmed at another edge since.
            elif member in self.joining.get(topic, ()):
                continue
            elif packet.epoch != self.t.book.epoch(topic, member) or (topic, member) in self.known_to_few:
                self._record(packet)
            else:
                del asks[member]
                self._grant(packet)

    def _is_open(self, topic: Topic) -> bool:
        """A topic without members is open."""
        return topic in self.opened or not self.t.book.live(topic)

    def _record(self, packet: AttachRequest) -> None:
        """M9: every broker records the member, and the epoch of each later attach of it, before it is granted.

        A root of a later term then knows at which epoch the member is to be found: coverage by an edge that it has
        left, and that has not noticed, must not count. That edge drops it as the wave passes.
        """
        first = packet.topic not in self.announced or not self.t.book.live(packet.topic)
        if self.t.book.epoch(packet.topic, packet.member) < 0:
            self.began[packet.topic, packet.member] = packet.epoch
        self.opened.add(packet.topic)
        self.joining.setdefault(packet.topic, set()).add(packet.member)
        self.known_to_few.discard((packet.topic, packet.member))
        self.t.waves.begin(RosterUpdate(self._update_id(), packet.topic, packet.member, packet.epoch, first))

    def _update_id(self) -> int:
        self.updates += 1
        return self.t.overlay.term[0] * _UPDATES_OF_A_TERM + self.updates

    def recorded(self, update: RosterUpdate, *, enough: bool) -> None:
        """M9.3: all brokers that are there know; `enough` of all that belong to the tree do."""
        topic, member = update.topic, update.member
        if not topic:
            self.fencing.discard(member)
            if enough and self.t.overlay.decides:
                self._fenced(member)
            return
        self.joining.get(topic, set()).discard(member)
        if enough:
            self.announced.add(topic)
            self.serve(topic)
        else:  # It is asked for again (M3).
            self.known_to_few.add((topic, member))

    def _grant(self, packet: AttachRequest) -> None:
        """M4.4: from here on coverage by an older epoch of the member counts no more."""
        topic, member = packet.topic, packet.member
        self.granted.setdefault(topic, {})[member] = packet.epoch
        self.t.wires.count("attaches_granted")
        new = self.began.get((topic, member)) == packet.epoch
        grant = AttachGranted(topic, self.t.overlay.term, member, packet.epoch, packet.path, new)
        self.t.members.answer(packet.path, grant)
        node = self.t.nodes.get(topic)
        if node is not None:
            node.recheck_all = True
            self.t.stability.changed(node)
            self.t.touch(node)

    def all_of(self, topic: Topic, covered: Coverage) -> bool:
        """L4, ST2: whether every live member is among the covered, in the epoch that was granted in this term.

        To one that was granted nothing in this term an earlier root has granted the epoch that is recorded, or none
        since: an edge that knows it by an older one has lost it without noticing.
        """
        granted, recorded = self.granted.get(topic, {}), self.t.book.epoch
        latest: dict[Origin, int] = {}
        for member, epoch in covered:
            if epoch > latest.get(member, -1):
                latest[member] = epoch
        return all(
            (member, granted[member]) in covered
            if member in granted
            else latest.get(member, -1) >= recorded(topic, member)
            for member in self.t.book.live(topic)
        )

    def roll_call(self, node: TopicNode) -> None:
        """M7: open the topic once every live member has reported in this term; notice who is absent (M10)."""
        if not self.t.overlay.decides:
            return
        if node.topic not in self.opened and self.may_open(node):
            self.opened.add(node.topic)
        self.serve(node.topic)
        self._notice_absent(node.topic)

    def may_open(self, node: TopicNode) -> bool:
        """F-TOT-9, A9: a root grants nothing before the logs of all members are in."""
        return self.t.book.live(node.topic) <= self._present(node)

    def _present(self, node: TopicNode | None) -> set[Origin]:
        """The members that are here or below, in the epoch that was recorded last or a later one."""
        if node is None:
            return set()
        recorded = self.t.book.epoch
        return {member for member, epoch in self.t.members.present(node) if epoch >= recorded(node.topic, member)}

    # M8, M10, M11

    def member_gone(self, packet: MemberGone) -> None:
        """M8, M11: unless the member has been granted a later attach."""
        if not self.t.overlay.decides:
            return
        topic, member = packet.topic, packet.member
        if topic:
            if self.granted.get(topic, {}).get(member, 0) <= packet.epoch:
                self.t.learn({}, departure(topic, member, packet.epoch))
        elif all(self.t.book.epoch(topic, member) <= packet.epoch for topic in self.t.book.topics_of(member)):
            self._fence(member)

    def _fence(self, member: Origin) -> None:
        """Every broker records it before it takes effect (M10).

        Whatever is still on its way from an edge that does not know is then here before anything is decided without
        the member. Where partitions are possible a majority is needed, or a later root would wait for it.
        """
        if member not in self.fencing:
            self.fencing.add(member)
            self.t.waves.begin(RosterUpdate(self._update_id(), Topic(""), member, FOR_EVER, first=False))

    def _fenced(self, member: Origin) -> None:
        self.t.wires.count("members_fenced")
        self.t.learn({}, fence(member))

    def forget(self, who: Origin, epoch: int) -> None:
        """A membership has ended, or all of a session's: what was granted to it is of no use any more."""
        member, topic = touched(who)
        for name in [topic] if topic is not None else list(self.granted):
            granted = self.granted.get(name, {})
            if granted.get(member, FOR_EVER + 1) <= epoch:
                del granted[member]

    def _notice_absent(self, topic: Topic) -> None:
        node = self.t.nodes.get(topic)
        present = self._present(node)
        live = self.t.book.live(topic)
        for key in [key for key in self.absent_since if key[0] == topic]:
            if key[1] in present or key[1] not in live:
                del self.absent_since[key]
        for member in sorted(live - present):
            self.absent_since.setdefault((topic, member), self.t.wires.now_ns)
            if self._is_dead(member):
                self._fence(member)
        if self.absent_since and not self.watching_absence:
            self._watch_absence()

    def _is_dead(self, member: Origin) -> bool:
        """R2: whether it is the adopter of a life of a broker that has ended: nobody needs to wait for it."""
        broker = broker_of(member)
        return broker is not None and self.t.overlay.dead.get(broker[0], -1) >= broker[1]

    def _watch_absence(self) -> None:
        self.watching_absence = True
        first = min(self.absent_since.values())
        due = first + int(self.t.settings.member_timeout_ms * 1e6)
        self.t.wires.set_timer(_ABSENT, max(1, due - self.t.wires.now_ns))

    def absence_checked(self) -> None:
        """M10: whoever has not been below this root for `member_timeout_ms` never counts again."""
        self.watching_absence = False
        if not (self.t.overlay.is_root and self.t.overlay.decides):
            return
        limit = self.t.wires.now_ns - int(self.t.settings.member_timeout_ms * 1e6)
        overdue = {member for (_, member), since in self.absent_since.items() if since <= limit}
        for member in sorted(overdue):
            self._fence(member)
        for key in [key for key in self.absent_since if key[1] in overdue]:
            self.absent_since[key] = self.t.wires.now_ns  # Until the fence is known, or cannot be.
        self.absent_since = {k: since for k, since in self.absent_since.items() if not self.t.book.fenced(k[1])}
        if self.absent_since and not self.watching_absence:
            self._watch_absence()

    def may_decide(self) -> None:
        """Everything that waited for the right to decide."""
        for topic in sorted({*self.t.book.topics(), *self.asks}):
            node = self.t.nodes.get(topic)
            if node is not None:
                self.roll_call(node)
            else:
                self.serve(topic)
                self._notice_absent(topic)
