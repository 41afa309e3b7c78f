"""Folding (BRK-F3 to BRK-F8): what ended sessions have left behind becomes an interval of closed tickets.

That nothing of an ended session is held by any broker, is on its way, or is in the history of a live member, is true
for good once it is true. The root finds it out by rounds over all brokers of the directory: two rounds one after the
other in which every broker answered from the same place of the tree prove that the tree stood still in between, and
links are first in, first out; so whatever somebody had has arrived at the root before the second answer, or is stable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from ordercast.broker.archive.duty import ArchiveDuty
from ordercast.broker.archive.kept import KeptTopics
from ordercast.broker.topics.authority import Authority
from ordercast.broker.topics.channels import Channels
from ordercast.broker.topics.cuts import Cuts
from ordercast.broker.topics.gaps import Gaps
from ordercast.broker.topics.ordering import Ordering
from ordercast.broker.topics.orphans import Orphans
from ordercast.broker.topics.roster_news import RosterNews
from ordercast.broker.topics.sessions.tickets import Tickets
from ordercast.broker.topics.state.topic import TopicNode
from ordercast.broker.topics.state.topics_state import TopicsPart, TopicsState
from ordercast.core.ids import NodeId, Origin, Topic, ticket_of
from ordercast.core.process import Connection
from ordercast.pubsub.closed import Closed
from ordercast.pubsub.received import Vector
from ordercast.pubsub.topic_packets import FoldAnswer, FoldRound

_FOLD = ("topics", "fold")
_MOST = 5000
"""Sessions that one round is about; there is always a next one."""
_MS = 1_000_000
Places = dict[NodeId, tuple[int, int]]
"""The life of each broker that has answered, and how often it has found a place in the tree in it."""


class Folding(TopicsPart):
    """The rounds: this broker's part in the one that is under way and, at the root, what follows from them."""

    constant = (
        *TopicsPart.constant, "ordering", "orphans", "tickets", "news", "authority", "kept", "channels", "cuts", "gaps",
        "duty",
    )  # fmt: skip

    def __init__(
        self, state: TopicsState, ordering: Ordering, orphans: Orphans, tickets: Tickets, news: RosterNews,
        authority: Authority, kept: KeptTopics, channels: Channels, cuts: Cuts, gaps: Gaps, duty: ArchiveDuty,
    ) -> None:  # fmt: skip
        super().__init__(state)
        self.duty = duty
        self.gaps = gaps
        self.cuts = cuts
        cuts.begin_round = self.begin_at_once
        self.kept = kept
        self.channels = channels
        self.ordering = ordering
        self.orphans = orphans
        self.tickets = tickets
        self.news = news
        self.authority = authority
        self.found_places = 0
        """How often this life of the broker has been given a place in the tree."""
        self.running: FoldRound | None = None
        self.awaited: set[Connection] = set()
        self.places: Places = {}
        self.held: set[Origin] = set()
        self.orphaned: set[Origin] = set()
        """Ended sessions of which a broker that has answered keeps something apart from its logs."""
        self.rounds = 0
        self.began_ns = 0
        self.skipped = 0
        """Ended sessions at the front that cannot be folded yet, and that the next round is not about."""
        self.candidates: tuple[Origin, ...] = ()
        self.strays: tuple[Origin, ...] = ()
        """BRK-F9: sessions that have left all their topics long ago and have not said that they are over."""
        self.lost: set[Origin] = set()
        """Those that were connected nowhere in the last round."""
        self.last_places: Places = {}
        """At the root: the answers to the last round that came back."""
        self.last_kept: tuple[int, frozenset[Topic]] = (0, frozenset())
        """At the root: the number of the last round that came back, and the kept topics that it was about."""
        self.vouched: tuple[object, frozenset[Topic]] = (None, frozenset())
        """ARC-13: the last round that was answered here, and the archives of its topics that there were."""
        self.armed = False

    # The tree around this broker

    def placed(self) -> None:
        """It has a parent, or is root: whatever it had answered, it had answered from another place."""
        self.found_places += 1
        self.running = None
        self.last_places = {}
        self.vouched = None, frozenset()
        self.cuts.clear()

    def child_lost(self, child: Connection) -> None:
        """Nobody waits for it; the root misses it among the answers."""
        self.awaited.discard(child)

    # The root

    def wanted(self) -> None:
        """BRK-F3, BRK-F9, BRK-S9: at the root that decides, something may be over."""
        if not self.armed and self.tree.is_root and self.tree.decides and self._is_something_to_do():
            self._arm(self.settings.fold_ms)

    def _is_something_to_do(self) -> bool:
        return bool(self.state.settled or self.gaps.unproved) or self.book.has_ends_of_tickets()

    def _arm(self, wait_ms: float) -> None:
        self.armed = True
        self.wires.set_timer(_FOLD, int(wait_ms * _MS), background=True)

    def due(self) -> None:
        """BRK-F3: begin a round, unless there is nothing to fold. One that does not come back is given up."""
        self.armed = False
        if not (self.tree.is_root and self.tree.decides):
            return
        if self.running is not None and self.wires.now_ns < self.began_ns + self._patience_ns:
            self._arm(self.settings.fold_ms)
            return
        unused = self.channels.forget_unused()
        self.authority.forget_topics(unused)
        self._choose()
        cut = self.cuts.wanted()
        gaps = sorted(self.gaps.unproved)[:_MOST]
        if self.candidates or self.strays or cut or gaps:
            self.rounds += 1
            self.began_ns = self.wires.now_ns
            topics = {topic for origin in self.candidates for topic in self._topics(origin)}
            topics.update(gaps)
            ended = self.candidates if self.kept.rules else ()
            last = self._last_of(self.candidates)
            self._begin(FoldRound(self.tree.term, self.rounds, tuple(sorted(topics)), self.strays, cut, ended, last))
        if cut:
            self._arm(self.settings.retry_ms)
        elif unused or self._is_something_to_do():  # Brokers that held a topic for others may open it once more.
            self._arm(self.settings.fold_ms)

    def begin_at_once(self) -> None:
        """ARC-C2: somebody waits for a cut; not while a round is under way, and not all the time."""
        if self.running is not None:
            return
        wait_ms = self.settings.stability_ms / 2 - (self.wires.now_ns - self.began_ns) / _MS
        if self.rounds and wait_ms > 0:
            self._arm(wait_ms)
        else:
            self.due()

    def _choose(self) -> None:
        """Those that could not be folded in the last round let the ones behind them go first."""
        ended = self.book.ended_sessions()
        if self.skipped >= len(ended):
            self.skipped = 0
        self.candidates = tuple(ended[self.skipped : self.skipped + _MOST])
        strays = (origin for origin in self.state.settled if self.is_stray(origin))
        self.strays = tuple(islice(strays, _MOST))

    def is_stray(self, origin: Origin) -> bool:
        """BRK-F9: it is no member of anything, and has not been one for so long that its departure is forgotten."""
        return not self.book.fenced(origin) and not self.book.recorded_in(origin)

    @property
    def _patience_ns(self) -> int:
        return int((self.settings.request_ms + self.settings.lease_ms) * _MS)

    def _topics(self, origin: Origin) -> set[Topic]:
        """Topics in which the session was a member or has published something."""
        return {*self.book.recorded_in(origin), *self.state.settled.get(origin, ())}

    def _last_of(self, origins: Iterable[Origin]) -> dict[Topic, Vector]:
        """BRK-F4: what the root has of these in topics that are kept."""
        last: dict[Topic, Vector] = {}
        for origin in origins:
            for topic in sorted(self._topics(origin)):
                if self._is_kept(topic):
                    last.setdefault(topic, {})[origin] = self._number(topic, origin)
        return last

    def _is_kept(self, topic: Topic) -> bool:
        """By the rule that counts, or by somebody who has a history from before."""
        return topic in self.kept.named or self.kept.rule_of(topic) is not None

    def _number(self, topic: Topic, origin: Origin) -> int:
        return self.nodes[topic].base.get(origin, 0) if topic in self.nodes else 0

    # Every broker

    def asked(self, packet: FoldRound) -> None:
        """By the parent."""
        if self.state.counts(packet.term):
            self._begin(packet)

    def _begin(self, packet: FoldRound) -> None:
        self.running = packet
        self.awaited = set(self.tree.children)
        self.places, self.held, self.orphaned = {}, set(), set()
        self.cuts.begin(packet.cut)
        self.duty.look_at(packet.topics)
        for child in sorted(self.awaited):
            self.wires.send(child, packet)

    def answered(self, child: Connection, packet: FoldAnswer) -> None:
        """BRK-F4: by a child, for all below it."""
        running = self.running
        if running is None or child not in self.awaited or (packet.number, packet.term) != (
            running.number, tuple(running.term)
        ):  # fmt: skip
            return
        self.awaited.discard(child)
        self.places |= packet.places
        self.held |= set(packet.held)
        self.orphaned |= set(packet.orphaned)
        self.cuts.add(packet.found)

    def turn_end(self) -> None:
        """BRK-F4: last of all, so that everything that this broker had to say has left before its answer."""
        if self.state.have_sessions_ended() or ((self.state.settled or self.gaps.unproved) and not self.armed):
            self.wanted()
        while self.running is not None and not self.awaited and self.has_said_all(self.running):
            self._answer(self.running)

    def _answer(self, running: FoldRound) -> None:
        self.running = None
        self.places[self.tree.node] = (self.tree.life, self.found_places)
        self.held |= self.held_here() | self.connected_here(running.strays) | self.incomplete_here(running)
        self._vouch(running)
        self.orphaned |= self.orphaned_here()
        if self.tree.is_root:
            self._complete(running.number, running.last)
        else:
            held = tuple(sorted(self.held))
            orphaned = tuple(sorted(self.orphaned))
            self.state.send_up(FoldAnswer(running.term, running.number, self.places, held, self.cuts.found, orphaned))

    def has_said_all(self, running: FoldRound) -> bool:
        """BRK-F4: whether the parent knows which members of these topics are here and below."""
        if self.tree.is_root:
            return True
        if self.state.unseen:
            return False  # BRK-L7: it has not even looked at all of them.
        if running.ended and self.kept.unread():
            return False  # It has not even looked at all its archives.
        nodes = [self.nodes[topic] for topic in {*running.topics, *self.cuts.found} if topic in self.nodes]
        return all(node.up_live and node.member_sent == node.roll() for node in nodes)

    def held_here(self) -> set[Origin]:
        """BRK-F4: ended sessions of which something is here that this broker does not know to be stable."""
        found: set[Origin] = set()
        for node in self.nodes.values():
            if node.log or node.pending.entries or node.hold:
                found.update(entry.origin for entry in node.unstable())
                found.update(node.hold.of)
        found.update(entry.origin for entry in self.orphans.everything())
        return {origin for origin in found if ticket_of(origin) is not None and self.book.fenced(origin)}

    def incomplete_here(self, running: FoldRound) -> set[Origin]:
        """BRK-F4: ended sessions of which an archive here has less than the root knows of, or more."""
        found = self.kept.incomplete(frozenset(running.ended), running.last) if running.ended else {}
        self.duty.look_at({topic for topics in found.values() for topic in topics} - set(running.topics))
        return set(found)

    def _vouch(self, running: FoldRound) -> None:
        """ARC-13: archives that were asked in two rounds one after the other are asked about every session."""
        there = frozenset(topic for topic in running.last if topic in self.kept.archives and self._takes_part(topic))
        before = self.vouched
        self.vouched = (tuple(running.term), running.number), there
        if there:
            known = before[1] if before[0] == (tuple(running.term), running.number - 1) else frozenset[Topic]()
            self.kept.promise(sorted(there & known))

    def _takes_part(self, topic: Topic) -> bool:
        node = self.nodes.get(topic)
        return node is not None and node.kept

    def orphaned_here(self) -> set[Origin]:
        """BRK-V2: ended sessions of which this broker has something that it has not sent to its parent."""
        return {entry.origin for entry in self.orphans.everything() if self.book.fenced(entry.origin)}

    def connected_here(self, strays: tuple[Origin, ...]) -> set[Origin]:
        """BRK-F9: those who are connected here; they may take part in something again at any time."""
        return {client.origin for client in self.state.clients.values()} & set(strays) if strays else set()

    # What follows

    def _complete(self, number: int, last: Mapping[Topic, Vector]) -> None:
        """BRK-F5: every broker has answered; twice from the same places means that the tree stood still."""
        stood_still, everybody = self.stood_still(), self.all_answered()
        self.last_places = dict(self.places)
        before, self.last_kept = self.last_kept, (number, frozenset(last))
        twice = before[1] if before[0] == number - 1 else frozenset[Topic]()
        if not stood_still:
            if everybody:
                self._arm(self.settings.retry_ms)
        elif self.tree.decides:
            folded = [
                origin for origin in self.candidates
                if origin not in self.held and self._left_nothing(origin) and self._is_kept_whole(origin, last, twice)
            ]  # fmt: skip
            self.skipped += len(self.candidates) - len(folded)
            if folded:
                self.wires.count("sessions_folded", len(folded))
                self._age(folded, last)
                self.close(self.book.closed.of(folded), None)
            if folded and len(self.candidates) == _MOST:
                self._arm(self.settings.retry_ms)
            self._end_strays()
            self.gaps.proved(self.orphaned, self.all_are_here)
        missing = sorted(self.tree.directory.keys() - self.places.keys())
        if self.cuts.complete(stood_still=stood_still, missing=missing):
            self.due()
        elif self.cuts.wanted():
            self._arm(self.settings.stability_ms / 2)

    def _end_strays(self) -> None:
        """BRK-F9: connected nowhere in two rounds, and still members of nothing."""
        lost = {origin for origin in self.strays if origin not in self.held}
        for origin in sorted(lost & self.lost):
            if self.is_stray(origin):
                self.wires.count("sessions_given_up")
                self.authority.end(origin)
        self.lost = lost

    def stood_still(self) -> bool:
        return self.all_answered() and self.places == self.last_places

    def all_answered(self) -> bool:
        """Whether nobody of the directory is missing: one that is away may have something on its disk."""
        return self.places.keys() >= self.tree.directory.keys()

    def _left_nothing(self, origin: Origin) -> bool:
        """BRK-F6: all that the root has of it is stable, and no member of its topics is away with a history."""
        return all(
            self.all_are_here(topic) and (topic not in self.nodes or _settled(self.nodes[topic], origin))
            for topic in sorted(self._topics(origin))
        )

    def _is_kept_whole(self, origin: Origin, last: Mapping[Topic, Vector], twice: frozenset[Topic]) -> bool:
        """BRK-F6: all archives have everything of it: nothing has become stable since they were asked, twice."""
        return all(
            topic in twice and last.get(topic, {}).get(origin, -1) == self._number(topic, origin)
            for topic in self._topics(origin)
            if self._is_kept(topic)
        )

    def _age(self, folded: Iterable[Origin], last: Mapping[Topic, Vector]) -> None:
        """ARC-13: before anybody hears that they are closed."""
        gone = set(folded)
        aged = [topic for topic, numbers in last.items() if any(numbers[origin] for origin in gone & numbers.keys())]
        self.duty.age(sorted(aged))

    def all_are_here(self, topic: Topic) -> bool:
        return self.authority.all_present(topic)

    def close(self, closed: Closed, source: Connection | None) -> None:
        """BRK-F7: from the root, or from a neighbour that has heard it: fold, and pass it on."""
        news = self.news.close(closed, source)
        if news:
            self._purge()
            self.kept.close()
            self.tickets.tell_closed(news)

    def _purge(self) -> None:
        """Everything that is known of closed sessions one by one goes, from the log too: it is stable."""
        closed, folded = self.book.closed, dict[Topic, set[Origin]]()
        for origin in [origin for origin in self.state.settled if origin in closed]:
            for topic in self.state.settled.pop(origin):
                folded.setdefault(topic, set()).add(origin)
        for topic, node in self.nodes.items():
            if node.log or node.pending.entries or node.hold:
                busy = {*(entry.origin for entry in node.unstable()), *node.hold.of}
                folded.setdefault(topic, set()).update(origin for origin in busy if origin in closed)
        for topic in sorted(folded):
            if topic in self.nodes and folded[topic]:
                self._fold(self.nodes[topic], folded[topic])
        self.orphans.forget_closed()
        self.authority.forget_closed()

    def _fold(self, node: TopicNode, origins: Iterable[Origin]) -> None:
        node.fold(sorted(origins))
        if node.hold:
            self.ordering.release(node)
        self.state.vote_again(node)
        self.state.look_again(node)


def _settled(node: TopicNode, origin: Origin) -> bool:
    have = node.have
    pending = origin in node.pending.numbers or origin in node.hold or origin in have.extras
    return not pending and have.low.get(origin, 0) == node.base.get(origin, 0)
