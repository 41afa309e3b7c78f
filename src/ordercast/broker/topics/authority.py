"""Decisions that only the root takes: grants, opening topics, joins, fences.

Rules BRK-M4 and BRK-M7 to BRK-M11.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ordercast.broker.roster_book import FOR_EVER, REPLACED, broker_of, departure, fence, older_sessions, written
from ordercast.broker.topics.join_wave import JoinWaves
from ordercast.broker.topics.roster_news import RosterNews
from ordercast.broker.topics.sessions.absence import Absence
from ordercast.broker.topics.state.grants import Grants
from ordercast.broker.topics.state.member import Coverage
from ordercast.broker.topics.state.topic import TopicNode
from ordercast.broker.topics.state.topics_state import TopicsPart, TopicsState
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.pubsub.filters import followed, is_following, matches
from ordercast.pubsub.topic_packets import AttachDenied, AttachGranted, AttachRequest, MemberGone, RosterUpdate

_UPDATES_OF_A_TERM = 1 << 24


class AttachAnswers(Protocol):
    """Port to send the root's answer back to the edge that asked."""

    def answer(self, path: tuple[NodeId, ...], packet: AttachGranted | AttachDenied) -> None:
        """BRK-M5: one step back along the path; at its end the edge acts on it."""


class Authority(TopicsPart):
    """The root's decisions and what they rest on. Empty at every other broker, and begun anew in every term."""

    constant = (*TopicsPart.constant, "grants", "news", "waves", "absence", "answers")
    answers: AttachAnswers

    def __init__(
        self, state: TopicsState, grants: Grants, news: RosterNews, waves: JoinWaves, absence: Absence
    ) -> None:
        super().__init__(state)
        self.absence = absence
        self.grants = grants
        self.news = news
        self.waves = waves
        self.updates = 0
        self.clear()

    def clear(self) -> None:
        """BRK-O15: no grants, no opened topics."""
        self.grants.clear()
        self.opened: set[Topic] = set()
        self.asks: dict[Topic, dict[Origin, AttachRequest]] = {}
        self.joining: dict[Topic, set[Origin]] = {}
        self.known_to_few: set[tuple[Topic, Origin]] = set()
        """Members whose wave did not reach enough brokers: it is sent again before they are granted."""
        self.began: dict[tuple[Topic, Origin], int] = {}
        """The epochs in which members joined that were none before."""
        self.fencing: dict[Origin, bool] = {}
        """Sessions whose fences are on their way, and whether their clients have asked for it (BRK-F2)."""
        self.to_few: set[Origin] = set()
        """Those whose clients have asked for it, and whose fence too few brokers have recorded."""

    # BRK-M4, BRK-M7, BRK-M9

    def request(self, packet: AttachRequest) -> None:
        """BRK-M4. A request that cannot be decided yet is remembered until the topic is opened.

        An edge that has not noticed yet that the client has moved on goes on asking: the later epoch counts.
        """
        asks = self.asks.setdefault(packet.topic, {})
        if packet.member not in asks or asks[packet.member].epoch <= packet.epoch:
            asks[packet.member] = packet
        if self.tree.decides:
            self._replace_older(packet)
        self.serve(packet.topic)

    def _replace_older(self, packet: AttachRequest) -> None:
        """BRK-M13: whoever asks under the same name with a later session is the same client, started anew."""
        for member in older_sessions(packet.member, self.book.live(packet.topic)):
            self.wires.count("sessions_replaced")
            self._fence(member, end=REPLACED)

    def serve(self, topic: Topic) -> None:
        """Decide on every request for the topic that can be decided."""
        if not (self.tree.is_root and self.tree.decides and self._is_open(topic)):
            return
        asks = self.asks.get(topic, {})
        for member in sorted(asks):
            packet = asks.get(member)
            if packet is None:
                continue
            if self.book.fenced(member):
                del asks[member]
                self.answers.answer(packet.path, AttachDenied(topic, member, packet.epoch, packet.path))
            elif self.book.over(topic, member, packet.epoch):
                del asks[member]  # It has left since it asked.
            elif packet.epoch < self.book.epoch(topic, member):
                del asks[member]  # It is, or asks to be, confirmed at another edge since.
            elif member in self.joining.get(topic, ()):
                continue
            elif packet.epoch != self.book.epoch(topic, member) or (topic, member) in self.known_to_few:
                self._record(packet)
            else:
                del asks[member]
                self._grant(packet)

    def _is_open(self, topic: Topic) -> bool:
        """A topic without members is open."""
        return topic in self.opened or not self.book.live(topic)

    def _record(self, packet: AttachRequest) -> None:
        """BRK-M9: every broker records the member, and the epoch of each later attach of it, before it is granted.

        A root of a later term then knows at which epoch the member is to be found: coverage by an edge that it has
        left, and that has not noticed, must not count. That edge drops it as the wave passes.
        """
        followers = self.followers(packet.topic)
        followers.pop(packet.member, None)
        if self.book.epoch(packet.topic, packet.member) < 0:
            self.began[packet.topic, packet.member] = packet.epoch
        self.opened.add(packet.topic)
        self.joining.setdefault(packet.topic, set()).add(packet.member)
        self.known_to_few.discard((packet.topic, packet.member))
        entries = tuple(written(member, epoch) for member, epoch in sorted(followers.items()))
        self.waves.begin(RosterUpdate(self._update_id(), packet.topic, packet.member, packet.epoch, entries))

    def followers(self, topic: Topic) -> dict[Origin, int]:
        """BRK-W2: who is recorded as a member in advance, because it follows a filter that takes the topic in.

        All who do when the topic begins; later those of them who have not come yet, since an earlier wave may have
        reached too few.
        """
        if is_following(topic):
            return {}
        return self.book.awaited(topic) if self.book.live(topic) else self.book.followers(topic)

    def _update_id(self) -> int:
        self.updates += 1
        return self.tree.term[0] * _UPDATES_OF_A_TERM + self.updates

    def recorded(self, update: RosterUpdate, *, enough: bool) -> None:
        """BRK-M9.3: all brokers that are there know; `enough` of all that belong to the tree do."""
        topic, member = update.topic, update.member
        if not topic:
            on_purpose = self.fencing.pop(member, False)
            if on_purpose and not enough:
                self.to_few.add(member)  # Its edge may have heard of it, and tell it no more.
            if enough and self.tree.decides:
                self.wires.count("sessions_ended" if on_purpose else "members_fenced")
                self.news.learn({}, fence(member, update.epoch))
            return
        self.joining.get(topic, set()).discard(member)
        if enough:
            self.serve(topic)
        else:  # It is asked for again (BRK-M3).
            self.known_to_few.add((topic, member))

    def _grant(self, packet: AttachRequest) -> None:
        """BRK-M4.4: from here on coverage by an older epoch of the member counts no more."""
        topic, member = packet.topic, packet.member
        self.grants.record(topic, member, packet.epoch)
        self.wires.count("attaches_granted")
        new = self.began.get((topic, member)) == packet.epoch
        grant = AttachGranted(topic, self.tree.term, member, packet.epoch, packet.path, new)
        self.answers.answer(packet.path, grant)
        node = self.nodes.get(topic)
        if node is not None:
            self.state.vote_again(node)
            self.state.look_again(node)

    def roll_call(self, node: TopicNode) -> None:
        """BRK-M7: open the topic once every live member has reported in this term; notice who is absent (BRK-M10)."""
        if not self.tree.decides:
            return
        if self.to_few:
            self._fence_again()
        if node.topic not in self.opened and self.may_open(node):
            self.opened.add(node.topic)
        self.serve(node.topic)
        self._notice_absent(node.topic)

    def may_open(self, node: TopicNode) -> bool:
        """F-TOT-9: a root grants nothing before the logs of all members are in."""
        return self.book.live(node.topic) - self.book.awaited(node.topic).keys() <= self._answered_for(node)

    def all_present(self, topic: Topic) -> bool:
        """BRK-F6: whether no live member of the topic is away."""
        return self.book.live(topic) <= self._present(self.nodes.get(topic))

    def unanswered_for(self, topic: Topic) -> set[Origin]:
        """ARC-C3: live members that are away, and for whom no broker answers."""
        node = self.nodes.get(topic)
        return set(self.book.live(topic)) - (self._answered_for(node) if node is not None else set())

    def forget_closed(self) -> None:
        """BRK-F7: nothing is known of folded sessions one by one."""
        closed = self.book.closed
        for key in [key for key in self.began if key[1] in closed]:
            del self.began[key]

    def forget_topics(self, topics: Iterable[Topic]) -> None:
        """BRK-S9: nobody takes part in them; a topic without members is open."""
        for topic in topics:
            self.opened.discard(topic)
            if not self.asks.get(topic, True):
                del self.asks[topic]
            if not self.joining.get(topic, True):
                del self.joining[topic]

    def _present(self, node: TopicNode | None) -> set[Origin]:
        """The members that are here or below, in the epoch that was recorded last or a later one."""
        return self._latest(node, node.roll().here) if node is not None else set()

    def _answered_for(self, node: TopicNode) -> set[Origin]:
        """BRK-M14: those, and the ones that are away and whose edge is here or below."""
        roll = node.roll()
        return self._latest(node, roll.here | roll.away)

    def _latest(self, node: TopicNode, members: Coverage) -> set[Origin]:
        recorded = self.book.epoch
        return {member for member, epoch in members if epoch >= recorded(node.topic, member)}

    # BRK-M8, BRK-M10, BRK-M11

    def _fence_again(self) -> None:
        """BRK-M10: the tree may be another one than when too few recorded it."""
        again, self.to_few = self.to_few, set()
        for member in sorted(again):
            if not self.book.fenced(member):
                self._fence(member, on_purpose=True)

    def end(self, member: Origin) -> None:
        """BRK-F9: the session is over."""
        if not self.book.fenced(member):
            self._fence(member)

    def member_gone(self, packet: MemberGone) -> None:
        """BRK-M8, BRK-M11: unless the member has been granted a later attach."""
        if not self.tree.decides:
            return
        topic, member = packet.topic, packet.member
        if packet.unheard and not self._may_withdraw(packet):
            return
        if topic:
            if self.grants.epoch(topic, member) <= packet.epoch:
                self.news.learn({}, departure(topic, member, packet.epoch))
                if is_following(topic):
                    self._unfollowed(topic, member)
        elif not self.book.fenced(member) and all(
            self.book.epoch(topic, member) <= packet.epoch for topic in self.book.topics_of(member)
        ):
            self._fence(member, on_purpose=packet.on_purpose)

    def _may_withdraw(self, packet: MemberGone) -> bool:
        """BRK-M8: not who has been a member before, or is one by a filter (BRK-W2): it is owed what comes meanwhile."""
        topic, member = packet.topic, packet.member
        newcomer = self.book.epoch(topic, member) < 0 or self.began.get((topic, member)) == packet.epoch
        return newcomer and member not in self.book.followers(topic)

    def _unfollowed(self, name: Topic, member: Origin) -> None:
        """BRK-W3: nobody waits for it any more in topics of which it was to hear by the filter alone."""
        for topic in self.book.topics_of(member):
            epoch = self.book.awaited(topic).get(member)
            if epoch is not None and matches(followed(name), topic) and member not in self.book.followers(topic):
                self.news.learn({}, departure(topic, member, epoch))

    def _fence(self, member: Origin, *, on_purpose: bool = False, end: int = FOR_EVER) -> None:
        """Every broker records it before it takes effect (BRK-M10).

        Whatever is still on its way from an edge that does not know is then here before anything is decided without
        the member. Where partitions are possible a majority is needed, or a later root would wait for it.
        """
        if member not in self.fencing:
            self.fencing[member] = on_purpose
            self.waves.begin(RosterUpdate(self._update_id(), Topic(""), member, end))

    def _notice_absent(self, topic: Topic) -> None:
        absent = set(self.book.live(topic) - self._present(self.nodes.get(topic)))
        self.absence.noticed(topic, absent)
        for member in sorted(filter(self._is_dead, absent)):
            self._fence(member)

    def _is_dead(self, member: Origin) -> bool:
        """BRK-R2: whether it is the adopter of a life of a broker that has ended: nobody needs to wait for it."""
        broker = broker_of(member)
        return broker is not None and self.tree.dead.get(broker[0], -1) >= broker[1]

    def absence_checked(self) -> None:
        """BRK-M10: whoever has not been below a root for `member_timeout_ms` never counts again."""
        if self.tree.is_root and self.tree.decides:
            for member in self.absence.overdue():
                self._fence(member)

    def may_decide(self) -> None:
        """Everything that waited for the right to decide."""
        self.absence.inherit()
        for number, topic in enumerate(sorted({*self.book.topics(), *self.asks})):
            node = self.nodes.get(topic)
            if node is not None and number < self.state.portion:
                self.roll_call(node)
            elif node is not None:  # BRK-L7
                self.state.look_later(node)
            else:
                self.serve(topic)
                self._notice_absent(topic)
