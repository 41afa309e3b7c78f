"""Archives and readers with one rule of the seam, or of the order, taken away at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ordercast.broker.archive.kept import KeptTopics
from ordercast.broker.archive.topic_archive import TopicArchive
from ordercast.broker.topics.cuts import Cuts
from ordercast.broker.topics.state.topic import TopicNode
from ordercast.client.history import HistoryRead
from ordercast.client.machine import ClientMachine
from ordercast.client.membership import Membership
from ordercast.client.replay import Replays, SubscriptionReplay
from ordercast.core.ids import Topic
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Vector
from ordercast.sim.pubsub.parts import Parts
from tests.mutants.pubsub_mutants import _with_topics


class _SkipsOne(Replays):
    def history(self, read: HistoryRead, entries: Sequence[Publication], covered: Vector) -> None:
        super().history(read, entries[:-1] if len(entries) > 1 else entries, covered)


class _DoublesOne(Replays):
    def _close(self, replay: SubscriptionReplay) -> None:
        for origin in list(replay.progress)[:1]:
            replay.progress[origin] -= 1
        super()._close(replay)


class _SwapsTwo(Replays):
    def history(self, read: HistoryRead, entries: Sequence[Publication], covered: Vector) -> None:
        super().history(read, [*entries[1:2], *entries[:1], *entries[2:]], covered)


class _DoesNotWait(Replays):
    def holds(self, topic: Topic) -> bool:
        return False


class _TrustsTheBase(Replays):
    def granted(self, membership: Membership, base: Vector) -> None:
        replay = self.topics.get(membership.topic)
        if replay is not None:
            replay.progress.update(base)
        super().granted(membership, base)


class _ListsTopicsOnce(Cuts):
    """As if a reader asked for the topics of a filter when it begins, and for cuts across those alone."""

    def _topics_of(self, names: tuple[str, ...]) -> list[Topic]:
        if not hasattr(self, "_listed"):
            self._listed: dict[tuple[str, ...], list[Topic]] = {}
        return self._listed.setdefault(names, super()._topics_of(names))


def _client(broken: type[Replays]) -> Parts:
    class Broken(ClientMachine):
        def make_replays(self) -> Replays:
            return broken(self.session, self.histories, self.joining, self.deliveries.release)

    return Parts(client=Broken)


class _KeepsInAnyOrder(KeptTopics):
    def release(self, node: TopicNode, base: Vector) -> None:
        node.log.entries.reverse()
        super().release(node, base)
        node.log.entries.reverse()


class _ForgetsOne(KeptTopics):
    def release(self, node: TopicNode, base: Vector) -> None:
        archive = self.of(node.topic)
        append = archive.append
        archive.append = lambda entries: append(entries[1:] if len(entries) > 2 else entries)  # type: ignore[method-assign]
        super().release(node, base)
        archive.append = append  # type: ignore[method-assign]


class _DeniesHoles(KeptTopics):
    def release(self, node: TopicNode, base: Vector) -> None:
        archive = self.of(node.topic)
        archive.jump = archive.cut.update  # type: ignore[method-assign, assignment]
        super().release(node, base)


class _CutsTheLogAlone(Cuts):
    def _here(self, topic: Topic) -> Vector:
        node = self.nodes.get(topic)
        return node.have.vector() if node is not None else {}


class _BelievesWhatIsClosed(KeptTopics):
    """ARC-13: whatever it hears to be closed it has, whether or not it was asked."""

    def _close(self, archive: TopicArchive) -> None:
        archive.close(self.book.closed)


class _DropsWhatIsClosed(Replays):
    """ARC-12: what it hears to be closed it takes for read, although its position is from before."""

    def history(self, read: HistoryRead, entries: Sequence[Publication], covered: Vector) -> None:
        closed = self.joining.session.closed
        super().history(read, [entry for entry in entries if entry.origin not in closed], covered)


def _folding(parts: Parts) -> Parts:
    """With clients whose sessions fold."""

    def client(name: str, session: int, addresses: Any, wires: Any, app: Any, settings: Any, *rest: Any) -> Any:
        return parts.client(name, session, addresses, wires, app, replace(settings, folds=True), *rest)

    return Parts(broker=parts.broker, client=client)


MUTANTS: dict[str, tuple[Parts, str]] = {
    "a reader skips one message at the end of a piece": (_client(_SkipsOne), "calm"),
    "a reader gets one message of the past twice": (_client(_DoublesOne), "calm"),
    "two messages of the past change places": (_client(_SwapsTwo), "calm"),
    "what is live does not wait for the past": (_client(_DoesNotWait), "calm"),
    "what became stable before the grant is not read": (_client(_TrustsTheBase), "calm"),
    "a copy keeps messages in an order of its own": (_with_topics(kept_type=_KeepsInAnyOrder), "calm"),
    "a copy forgets a message": (_with_topics(kept_type=_ForgetsOne), "calm"),
    "a copy that was away says that it has everything": (_with_topics(kept_type=_DeniesHoles), "crashes"),
    "a cut across topics leaves out what waits for its commit": (_with_topics(cuts_type=_CutsTheLogAlone), "across"),
    "a cut across a filter leaves out topics that have just begun": (
        _with_topics(cuts_type=_ListsTopicsOnce), "across-new-topics",
    ),
    "a copy believes that it has all of a closed session": (
        _folding(_with_topics(kept_type=_BelievesWhatIsClosed)), "folded-late",
    ),
    "a reader drops what is closed behind its position": (_folding(_client(_DropsWhatIsClosed)), "folded"),
}  # fmt: skip
"""Each with the family of runs that shows it."""
