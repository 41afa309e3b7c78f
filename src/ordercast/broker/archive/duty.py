"""Which topics this broker has to keep, what of them is too old, and how brokers tell each other the rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ordercast.broker.archive.kept import NO_TERM, KeptTopics
from ordercast.broker.archive.topic_archive import TopicArchive
from ordercast.broker.topics.channels import Channels
from ordercast.broker.topics.state.topics_state import TopicsPart, TopicsState
from ordercast.core.ids import NodeId, Topic
from ordercast.core.process import Connection
from ordercast.pubsub.filters import is_following
from ordercast.pubsub.keeping import KeepRule, StampedRule
from ordercast.pubsub.topic_packets import KeepNews

TICK = ("topics", "archive")
_READ_AT_ONCE = 8
"""Archives of a former life that are looked at in one turn, though nobody has asked for them."""


class Lookers(Protocol):
    """Port to the clients that look for kept topics."""

    def learned(self, topics: Iterable[Topic]) -> None:
        """Some broker has a history of these topics."""

    def rules_changed(self) -> None:
        """Topics that were not kept may be now."""


class ArchiveDuty(TopicsPart):
    """Takes part in the topics that this broker keeps, and cleans their archives."""

    constant = (*TopicsPart.constant, "kept", "channels", "lookers")
    lookers: Lookers

    def __init__(self, state: TopicsState, kept: KeptTopics, channels: Channels) -> None:
        super().__init__(state)
        self.kept = kept
        self.channels = channels
        self.ticking = False
        self.directory: tuple[NodeId, ...] = ()
        """The brokers there were at the last look."""
        self.compacting: dict[Topic, tuple[list[int], set[str]]] = {}
        """Topics that are being compacted: the segments that are left, the last first, and the keys behind them."""

    def start(self) -> None:
        if self.kept.rules:
            self._tell_able()
            self.look_at_all()

    # ARC-1: the rules

    def order(self, rule: KeepRule) -> None:
        """An operator has made a rule, at this broker."""
        self.learn(KeepNews((StampedRule(rule, self.kept.rules.next_version(), self.tree.node),), {}), None)

    def learn(self, news: KeepNews, source: Connection | None) -> None:
        """Take in what is new, and pass it on to everybody else."""
        kept = self.kept
        rules = tuple(stamped for stamped in news.rules if kept.rules.learn(stamped))
        able = {node: said for node, said in sorted(news.able.items()) if said[0] > kept.able.get(node, (-1, True))[0]}
        kept.able.update(able)
        topics = tuple(topic for topic in news.topics if topic not in kept.named)
        kept.named.update(topics)
        aged = kept.learn_aged(news.aged)
        if not rules and not able and not topics and not aged:
            return
        if rules and kept.files is not None:
            kept.files.keep_rules(kept.rules.everything())
        self._spread(KeepNews(rules, able, topics, aged), source)
        self.lookers.learned(topics)
        if not rules and not able:
            return
        if rules:
            self.lookers.rules_changed()
            self._tell_able()
        self.look_at_all()

    def _tell_able(self) -> None:
        me = self.tree.node
        said = (self.tree.life, self.kept.files is not None)
        if self.kept.able.get(me) != said:
            self.kept.able[me] = said
            self._spread(KeepNews((), {me: said}), None)

    def _spread(self, news: KeepNews, source: Connection | None) -> None:
        for link in self.state.neighbours():
            if link != source:
                self.wires.send(link, news)

    def linked(self, link: Connection) -> None:
        """A new neighbour in the tree: it is told everything."""
        if self.kept.rules:
            able, topics = dict(sorted(self.kept.able.items())), tuple(sorted(self.kept.named))
            self.wires.send(link, KeepNews(self.kept.rules.everything(), able, topics, tuple(sorted(self.kept.aged))))

    # ARC-2: the topics

    def learned(self, topics: Iterable[Topic]) -> None:
        """Topics that have members now. Before this broker acknowledges the join it has asked to take part."""
        if self.kept.rules:
            for topic in topics:
                self._look_at(topic)

    def _name(self, topics: Iterable[Topic]) -> None:
        """ARC-S7: tell everybody of which topics there is a history here."""
        new = tuple(topic for topic in topics if topic not in self.kept.named)
        if new:
            self.learn(KeepNews((), {}, new), None)

    def age(self, topics: Iterable[Topic]) -> None:
        """ARC-13: tell everybody of which topics sessions are folded, before they hear which sessions."""
        self.learn(KeepNews((), {}, (), tuple(topics)), None)

    def look_at_all(self) -> None:
        """Rules, or the brokers that share the work, have changed."""
        self.directory = tuple(self.tree.directory)
        self.kept.forget_strangers()
        self._name(self.kept.topics())
        self.age(self.kept.aged_here())
        self.learned(self.book.topics())
        for topic in self.kept.topics():
            if self.kept.rule_of(topic) is None:
                self._stop(topic)
        self._tick_on()

    def _look_at(self, topic: Topic) -> None:
        rule = None if is_following(topic) else self.kept.rule_of(topic)
        if rule is not None and (self.kept.is_copy(topic, rule) or self.kept.find(topic) is not None):
            node = self.channels.node(topic)
            if not node.kept:
                node.kept = True
                self.kept.stash(topic, self.kept.found.pop(topic, ()), NO_TERM)
                archive = self.kept.of(topic)
                archive.jump(node.base)
                self.channels.stability.merge_base(node, dict(archive.cut), None)
                self._name((topic,))
            self._tick_on()

    def look_at(self, topics: Iterable[Topic]) -> None:
        """BRK-F4: the root is about to fold sessions of these: whoever has an archive of them takes part."""
        for topic in topics:
            if self.kept.find(topic) is not None:
                self._look_at(topic)

    def _stop(self, topic: Topic) -> None:
        """Only a rule that says so removes anything: a file that was edited does not."""
        self.kept.named.discard(topic)
        self.kept.aged.discard(topic)
        stopped = any(s.rule.stopped and s.version for s in self.kept.rules.everything())
        archive = self.kept.find(topic)
        if archive is not None:
            archive.take_back()
        if stopped:
            self.kept.forget(topic)
        node = self.nodes.get(topic)
        if node is not None and node.kept:
            node.kept = False
            self.channels.ground(node)

    # ARC-8, ARC-9

    def _tick_on(self) -> None:
        if not self.ticking and self.kept.files is not None:
            self.ticking = True
            self.wires.set_timer(TICK, int(self.settings.retry_ms * 1e6), background=True)

    def tick(self) -> None:
        self.ticking = False
        if tuple(self.tree.directory) != self.directory:
            self.look_at_all()
        for topic in self.kept.unread()[:_READ_AT_ONCE]:
            self.kept.find(topic)
        for topic in sorted(self.kept.archives):
            rule = self.kept.rule_of(topic)
            if rule is not None:
                removed = self.kept.archives[topic].clean(rule)
                if removed:
                    self.wires.count("entries_cleaned", removed)
                if rule.compact == "key":
                    self._compact(self.kept.archives[topic])
        self._tick_on()

    def _compact(self, archive: TopicArchive) -> None:
        """One segment at a time, from the newest to the oldest: nobody waits for long."""
        under_way = self.compacting.get(archive.topic)
        if under_way is None:
            stored = sum(info.count for info in archive.manifest.segments)
            if archive.appended < max(archive.files.worth_compacting, stored // 2) or not archive.sealed_numbers():
                return
            archive.appended = 0
            under_way = self.compacting[archive.topic] = archive.sealed_numbers(), archive.keys_of_the_rest()
        left, seen = under_way
        if not left:
            del self.compacting[archive.topic]
            return
        removed = archive.compact(left.pop(), seen)
        if removed:
            self.wires.count("entries_compacted", removed)
