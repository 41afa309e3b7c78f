"""The kept topics of one broker: its rules, its archives, and the entries that enter them once they are stable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ordercast.broker.archive.ports import SegmentFiles
from ordercast.broker.archive.topic_archive import TopicArchive
from ordercast.broker.place import SavedBroker
from ordercast.broker.ports import Term
from ordercast.broker.topics.state.topic import TopicNode
from ordercast.broker.topics.state.topics_state import TopicsPart, TopicsState
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.messages import Guarantee
from ordercast.pubsub.keeping import KeepBook, KeepRule, ranked
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Vector

NO_TERM = (0, NodeId(""))
"""Before all others."""
_MOST_ASKED = 16
"""Brokers that a reader is told of."""


class KeptTopics(TopicsPart):
    """The archives of this broker. Without a data directory it has none, and keeps nothing."""

    constant = (*TopicsPart.constant, "files", "archives", "_saved")

    def __init__(
        self,
        state: TopicsState,
        files: SegmentFiles | None,
        rules: tuple[KeepRule, ...],
        saved: SavedBroker | None = None,
    ) -> None:
        super().__init__(state)
        self.files = files
        self.archives: dict[Topic, TopicArchive] = {}
        self._saved = files.saved() if files is not None else {}
        """Manifests of topics that were not looked at in this life yet."""
        self.rules = KeepBook(rules)
        for stamped in files.rules() if files is not None else ():
            self.rules.learn(stamped)
        self.spare: dict[Topic, tuple[Term, list[Publication]]] = {}
        """Entries of logs that were reset, in their order, and the term that they were in."""
        self.found = dict(saved.entries) if saved is not None and files is not None else {}
        """What the log of a former life had, until it is known which topics are kept."""
        self.able: dict[NodeId, tuple[int, bool]] = {}
        """Brokers that can or cannot keep anything, by their latest life; whoever is not in it can."""
        self.named: set[Topic] = set()
        """ARC-S7: topics of which some broker has a history."""
        self.aged: set[Topic] = set()
        """ARC-13: topics of which sessions are folded."""

    # Who keeps what

    def rule_of(self, topic: Topic) -> KeepRule | None:
        return self.rules.rule_of(topic)

    def copies_of(self, topic: Topic) -> list[NodeId]:
        """ARC-2: the brokers to ask for the topic, the ones that should keep it first."""
        brokers = [node for node in self.tree.directory if self.able.get(node, (0, True))[1]]
        return ranked(topic, brokers)[:_MOST_ASKED]

    def is_copy(self, topic: Topic, rule: KeepRule) -> bool:
        """ARC-2: whether this broker is one of those that should keep the topic."""
        if self.files is None or (len(self.tree.directory) == 1 and self.tree.parent is not None):
            return False  # A newcomer does not know who else there is.
        return self.tree.node in self.copies_of(topic)[: rule.copies]

    def forget_strangers(self) -> None:
        """Brokers that are in the directory no more: one that joins again says anew what it can."""
        self.able = {node: said for node, said in self.able.items() if node in self.tree.directory}

    # Archives

    def find(self, topic: Topic) -> TopicArchive | None:
        """The topic's archive, if there is one here; one of an earlier life is opened when it is first asked for."""
        archive = self.archives.get(topic)
        if archive is None and self.files is not None and topic in self._saved:
            archive = self.archives[topic] = TopicArchive(topic, self.files, self._saved.pop(topic))
            if archive.damaged:
                self._distrust(archive)
            self._close(archive)
        return archive

    def of(self, topic: Topic) -> TopicArchive:
        archive = self.find(topic)
        if archive is None:
            assert self.files is not None
            archive = self.archives[topic] = TopicArchive(topic, self.files)
            self._close(archive)
        return archive

    def aged_here(self) -> list[Topic]:
        """Topics of which sessions are folded in the archives of this broker."""
        manifests = {**self._saved, **{topic: archive.manifest for topic, archive in self.archives.items()}}
        return sorted(topic for topic, manifest in manifests.items() if manifest.aged)

    def unread(self) -> list[Topic]:
        """Topics that are kept, and whose archives were not looked at in this life yet."""
        return [topic for topic in sorted(self._saved) if self.rule_of(topic) is not None]

    # ARC-12, ARC-13: sessions that are closed

    def close(self) -> None:
        """Sessions were: the archives count them no more, or doubt that they have all of them."""
        for topic in sorted(self.archives):
            self._close(self.archives[topic])

    def _close(self, archive: TopicArchive) -> None:
        closed = self.book.closed
        if archive.manifest.sure:
            archive.close(closed)
        elif archive.topic in self.aged or any(origin in closed for origin in archive.cut):
            archive.doubt(closed)

    def learn_aged(self, topics: Iterable[Topic]) -> tuple[Topic, ...]:
        """Sessions of these topics are folded; those topics of which that is news.

        Of them a base says nothing any more. A copy that was not asked then does not know what it lacks.
        """
        news = tuple(topic for topic in topics if topic not in self.aged)
        self.aged.update(news)
        for topic in news:
            if topic in self.archives:
                self._close(self.archives[topic])
        return news

    def distrust_all(self) -> None:
        """This broker was struck off: what the others have folded since they have not asked it about."""
        for topic in self.topics():
            archive = self.find(topic)
            if archive is not None:
                self._distrust(archive)

    def _distrust(self, archive: TopicArchive) -> None:
        archive.take_back()
        archive.doubt(self.book.closed)

    def incomplete(self, sessions: frozenset[Origin], last: Mapping[Topic, Vector]) -> dict[Origin, set[Topic]]:
        """BRK-F4: those of the sessions of which an archive here has not exactly what the root has, and where."""
        found: dict[Origin, set[Topic]] = {}
        for topic, archive in self.archives.items():
            if self.rule_of(topic) is None:
                continue
            cut, numbers = archive.cut, last.get(topic, {})
            for origin in {*(cut.keys() & sessions), *numbers}:
                if cut.get(origin, 0) != numbers.get(origin, -1):
                    found.setdefault(origin, set()).add(topic)
        return found

    def promise(self, topics: Iterable[Topic]) -> None:
        """ARC-13: the root has been told twice what the archives of these topics have."""
        assert self.files is not None
        for topic in topics:
            self.archives[topic].promise()
            self._close(self.archives[topic])
        self.files.secure()

    # What becomes stable

    def forget(self, topic: Topic) -> None:
        """A rule says that it is kept no longer."""
        archive = self.find(topic)
        if archive is not None:
            archive.forget()
            del self.archives[topic]

    def topics(self) -> list[Topic]:
        return sorted({*self.archives, *self._saved})

    def release(self, node: TopicNode, base: Vector) -> None:
        """ARC-3, ARC-4, before the base of a kept topic grows to `base`: keep what becomes stable.

        Where some of it never was here (it became stable while this broker was away), all of it is a hole, but for what
        the log of before had first.
        """
        archive = self.of(node.topic)
        low, closed = archive.cut.get, self.book.closed
        new = {origin: number for origin, number in base.items() if number > low(origin, 0)}
        if closed:
            new = {origin: number for origin, number in new.items() if origin not in closed}
        if not new:
            return
        wanted = sum(number - low(origin, 0) for origin, number in new.items())
        stable = _between(node.log.entries, archive.cut, new)
        if len(stable) < wanted and node.topic in self.spare:
            stable = self._with_spare(node.topic, stable, archive.cut, new)
        if len(stable) == wanted:
            archive.append(stable)
            self.wires.count("entries_kept", len(stable))
        else:
            archive.append(self._first_of_spare(node.topic, archive.cut, new))
            archive.jump(new)
            self.wires.count("archive_holes")
        if node.topic in self.spare:
            self._tidy(node.topic, archive.cut)

    # ARC-10: a log that was reset

    def stash(self, topic: Topic, entries: Iterable[Publication], term: Term) -> None:
        """Entries that leave the log although they are not stable here: elsewhere they may be, and nobody has them.

        Their order is that of a log, and so legal, but for totals: a later root may order anew what no member has seen.
        """
        since, older = self.spare.get(topic, (term, []))
        known = {(entry.origin, entry.number) for entry in older}
        new = [entry for entry in entries if (entry.origin, entry.number) not in known]
        if new:  # What is of several terms is of none: its totals are not to be believed.
            self.spare[topic] = (term if tuple(since) == tuple(term) else NO_TERM, [*older, *new])
            self._tidy(topic, self.of(topic).cut)

    def _with_spare(self, topic: Topic, found: list[Publication], cut: Vector, top: Vector) -> list[Publication]:
        """These entries, behind those of the log before its reset that it lacks: they were stable earlier."""
        term, spare = self.spare[topic]
        here = {(entry.origin, entry.number) for entry in found}
        older = [entry for entry in _between(spare, cut, top) if (entry.origin, entry.number) not in here]
        totals = any(entry.guarantee is Guarantee.TOTAL for entry in older)
        return found if totals and tuple(term) != tuple(self.tree.term) else [*older, *found]

    def _first_of_spare(self, topic: Topic, cut: Vector, top: Vector) -> list[Publication]:
        """ARC-10: the beginning of what became stable, as far as the log before its reset had it without a gap.

        That is closed: whatever must precede an entry is before it in a log, or in the cut.
        """
        term, spare = self.spare.get(topic, (NO_TERM, []))
        found: list[Publication] = []
        reached = dict(cut)
        for entry in _between(spare, cut, top):
            doubtful = entry.guarantee is Guarantee.TOTAL and tuple(term) != tuple(self.tree.term)
            if doubtful or entry.number != reached.get(entry.origin, 0) + 1:
                break
            reached[entry.origin] = entry.number
            found.append(entry)
        return found

    def _tidy(self, topic: Topic, cut: Vector) -> None:
        term, spare = self.spare.pop(topic)
        closed = self.book.closed
        left = [entry for entry in spare if entry.number > cut.get(entry.origin, 0) and entry.origin not in closed]
        if left:
            self.spare[topic] = (term, left)


def _between(log: list[Publication], cut: Vector, top: Vector) -> list[Publication]:
    """The entries, in the order of the log, that are in `top` and not in `cut`."""
    low, high = cut.get, top.get
    left = sum(number - low(origin, 0) for origin, number in top.items())
    found: list[Publication] = []
    for entry in log:
        if low(entry.origin, 0) < entry.number <= high(entry.origin, 0):
            found.append(entry)
            left -= 1
            if not left:
                break
    return found
