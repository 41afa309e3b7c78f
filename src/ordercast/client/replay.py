"""Subscriptions that begin in the past (ARC-S1 to ARC-S5): history, then live, as one view without a seam.

A subscriber reads the history as a mere reader first, and again what has come since, so that nobody waits for it. When
it is nearly there it becomes a member. It is granted with a base; what it still lacks up to the base it reads, while
what is live waits; then that is delivered, and from there on it is a subscriber like any other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import ClassVar

from ordercast.client.history import Histories, HistoryRead, Start, at
from ordercast.client.joining import FROM_MEMBERSHIP, INFO_FROM, TopicJoining
from ordercast.client.membership import Membership
from ordercast.client.ports import SavedReplay
from ordercast.client.session import Session
from ordercast.client.settings import ns
from ordercast.core.ids import Origin, Topic
from ordercast.core.state import State
from ordercast.pubsub.closed import Closed
from ordercast.pubsub.cuts import closed_in, common, folded, grow, plain, within
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Vector

READING, JOINING, CLOSING, DONE = "reading", "joining", "closing", "done"
_NEARLY_MS = 250.0
"""A subscriber that reads all there is in less than this is nearly there."""
_MOST_ROUNDS = 8
"""A reader that is slower than the topic becomes a member all the same, and then slows the topic down, as any does."""


class UntakenPiece(State):
    """A piece of the past that the application was handed and has not taken to its end."""

    constant: ClassVar[tuple[str, ...]] = ("entries", "covered")

    def __init__(self, entries: Sequence[Publication], covered: Vector) -> None:
        self.entries = tuple(entries)
        self.covered = covered
        """With the last of them everything up to here is taken."""
        self.taken = 0
        self.behind: tuple[int, ...] = ()
        """For each entry the least number of its publisher behind it, 0 if there is none; empty: nobody has asked."""

    @property
    def left(self) -> int:
        return len(self.entries) - self.taken

    def take(self, count: int) -> list[tuple[Origin, int, int]]:
        """The publisher and number of the next so many, and up to where all of that publisher is taken with each."""
        self.behind = self.behind or self._least_behind()
        found: list[tuple[Origin, int, int]] = []
        for place in range(self.taken, self.taken + count):
            origin, number = self.entries[place].origin, self.entries[place].number
            reached = self.covered.get(origin, 0)
            found.append((origin, number, min(reached, self.behind[place] - 1) if self.behind[place] else reached))
        self.taken += count
        return found

    def _least_behind(self) -> tuple[int, ...]:
        least: dict[Origin, int] = {}
        behind: list[int] = []
        for entry in reversed(self.entries):
            behind.append(least.get(entry.origin, 0))
            least[entry.origin] = min(entry.number, least.get(entry.origin, entry.number))
        return tuple(reversed(behind))


class SubscriptionReplay(State):
    """One subscription that begins in the past."""

    constant: ClassVar[tuple[str, ...]] = ("topic", "latest_only", "optional", "tells")

    def __init__(
        self, topic: Topic, start: Start, *, latest_only: bool = False, optional: bool = False, tells: bool = False
    ) -> None:
        self.topic = topic
        self.start = start
        self.latest_only = latest_only
        """Of each key only the last publication of the history is delivered."""
        self.optional = optional
        """Where the topic is not kept it goes on without the past."""
        self.tells = tells
        """And the application is told so."""
        self.phase = READING
        self.progress: Vector = {}
        """Everything up to here was read."""
        self.taken: Vector = {}
        """Everything up to here was taken by the application."""
        self.until: Vector | None = None
        """The base that the membership was granted with."""
        self.read: HistoryRead | None = None
        self.pending: deque[UntakenPiece] = deque()
        """What was handed over and is not taken."""
        self.latest: dict[str, Publication] = {}
        self.handed = False
        """The application was handed something of the past: what is cleaned behind it from here on is lost to it."""
        self.before = 0
        """Deliveries of a former session, made before those of the past, that the application has not taken."""
        self.had: dict[Origin, tuple[int, ...]] = {}
        """Taken beyond `taken`, by this session or the one before: what came with a lower number is not."""
        self.began_ns = 0
        self.rounds = 0
        self.whole = False
        self.opened = False

    @property
    def holds(self) -> bool:
        """Whether what is live has to wait."""
        return self.phase != DONE

    @property
    def may_begin_anew(self) -> bool:
        """ARC-S5: its start is what there is, and the application has nothing yet behind which a gap could be."""
        return not self.handed and self.start.kind != "position"

    def begin_at(self, cut: Vector) -> None:
        """Nothing up to the cut is wanted. What lies beyond the base of the membership comes as live."""
        if self.until is None:
            self.progress = dict(cut)
        else:
            grow(self.progress, common(cut, self.until))
        self.taken = dict(self.progress)

    def take(self, count: int) -> int:
        """The application has taken the next so many; how many of them were of the past."""
        before = count
        while self.pending and self.pending[0].left <= count:
            piece = self.pending.popleft()
            count -= piece.left
            grow(self.taken, piece.covered)
        if self.pending and count:
            for origin, number, reached in self.pending[0].take(count):
                if reached > self.taken.get(origin, 0):
                    self.taken[origin] = reached
                if number > self.taken.get(origin, 0):
                    self.had[origin] = (*self.had.get(origin, ()), number)
            count = 0
        if self.had:
            self._forget_had()
        return before - count

    def _forget_had(self) -> None:
        low = self.taken.get
        left = {origin: tuple(n for n in numbers if n > low(origin, 0)) for origin, numbers in self.had.items()}
        self.had = {origin: numbers for origin, numbers in left.items() if numbers}

    def keep_latest(self, entries: Sequence[Publication]) -> None:
        for entry in entries:
            for key in entry.keys:
                name = key or entry.id
                self.latest.pop(name, None)
                self.latest[name] = entry

    def last_ones(self) -> list[Publication]:
        """The last publication of each key, each once, in the order of the history."""
        found, self.latest = self.latest, {}
        once = {(entry.origin, entry.number): entry for entry in found.values()}
        return list(once.values())


class Replays(State):
    """The subscriptions of a client that begin in the past, by topic."""

    constant: ClassVar[tuple[str, ...]] = (
        "wires", "ledger", "app", "members", "at_once", "histories", "joining", "release", "close"
    )  # fmt: skip

    def __init__(
        self, session: Session, histories: Histories, joining: TopicJoining, release: Callable[[Membership, int], None]
    ) -> None:
        self.wires = session.wires
        self.ledger = session.ledger
        self.app = session.app
        self.members = session.topics
        self.close: Callable[[Closed], None] = session.close
        self.at_once = session.settings.consumes_at_once
        self.histories = histories
        self.joining = joining
        self.release = release
        """Delivers what is live and waited."""
        self.topics: dict[Topic, SubscriptionReplay] = {}

    def begin(self, topic: Topic, start: Start, *, latest_only: bool = False, optional: bool = False) -> None:
        """ARC-S1: read the past of the topic first; `optional`: if it is kept."""
        replay = self.topics[topic] = SubscriptionReplay(topic, start, latest_only=latest_only, optional=optional)
        self._read(replay, start)

    def begin_behind(self, topic: Topic, start: Start, *, tells: bool) -> None:
        """ARC-S8: a topic that began while this client had no session: nobody else remembers that it is to be read."""
        replay = self.topics[topic] = SubscriptionReplay(topic, start, optional=True, tells=tells)
        self._write_down(replay)
        self._read(replay, start)

    def resume(self, topic: Topic, saved: SavedReplay) -> None:
        """A former life had come so far."""
        start = at(saved.progress) if saved.untouched is None else Start(saved.untouched[0], {}, saved.untouched[1])
        replay = SubscriptionReplay(topic, start, optional=saved.optional, tells=saved.tells)
        self.topics[topic] = replay
        replay.had = dict(saved.had)
        replay.progress, replay.taken, replay.until = dict(saved.progress), dict(saved.progress), saved.until
        membership = self.members.get(topic)
        if saved.until is not None:
            replay.phase = CLOSING
            replay.before = saved.before
            self._close(replay)
        else:
            replay.before = membership.untaken_count() if membership is not None else 0
            self._read(replay, replay.start)

    def _read(self, replay: SubscriptionReplay, start: Start, until: Vector | None = None) -> None:
        replay.began_ns = self.wires.now_ns
        replay.rounds += 1
        replay.read = self.histories.begin(replay.topic, start, until, self)

    def holds(self, topic: Topic) -> bool:
        replay = self.topics.get(topic)
        return replay is not None and replay.holds

    def former(self, topic: Topic) -> int | None:
        """How many of the deliveries that are not taken come before what is read; None: nothing is, all may come."""
        replay = self.topics.get(topic)
        return replay.before if replay is not None and replay.holds else None

    def waits_to_join(self, topic: Topic) -> bool:
        """ARC-S2: whether it is not a member yet, because it has too much to read."""
        replay = self.topics.get(topic)
        return replay is not None and replay.phase == READING

    def forget(self, topic: Topic) -> None:
        """The subscription ends."""
        replay = self.topics.pop(topic, None)
        if replay is None:
            return
        if replay.read is not None:
            self.histories.end(replay.read)
        self._given_up(replay)

    def _given_up(self, replay: SubscriptionReplay) -> None:
        self.ledger.replay(replay.topic, None)
        if replay.opened and replay.until is None:
            self.wires.note("unsubscribe", {"topic": replay.topic})

    def position(self, topic: Topic) -> Vector | None:
        """Up to where the application has taken the past; None: all of it."""
        replay = self.topics.get(topic)
        return dict(replay.taken) if replay is not None else None

    def is_whole(self, topic: Topic) -> bool:
        """Whether the subscription has everything that was ever published on the topic."""
        replay = self.topics.get(topic)
        return replay is not None and replay.whole and not replay.latest_only

    # What is read

    def history_opened(self, read: HistoryRead) -> None:
        replay = self.topics[read.topic]
        if read.start != replay.start:
            return  # It goes on from where it was.
        replay.whole = read.whole
        if replay.until is not None and not read.whole:  # The grant may have said that it has everything.
            self.wires.note("subscribe", {"topic": read.topic, INFO_FROM: FROM_MEMBERSHIP})
        replay.begin_at(read.progress or {})
        self._write_down(replay)
        if not replay.opened:
            replay.opened = True
            self.wires.note("subscribe", {"topic": read.topic, "pending": "true"})
            self.app.replaying(read.topic)

    def history(self, read: HistoryRead, entries: Sequence[Publication], covered: Vector) -> None:
        replay = self.topics[read.topic]
        grow(replay.progress, covered)
        if replay.had:
            news = [entry for entry in entries if entry.number not in replay.had.get(entry.origin, ())]
            read.untaken -= len(entries) - len(news)
            entries = news
        if replay.latest_only:
            replay.keep_latest(entries)
            read.untaken = 0
        else:
            self._deliver(replay, entries, covered)

    def _deliver(self, replay: SubscriptionReplay, entries: Sequence[Publication], covered: Vector) -> None:
        replay.pending.append(UntakenPiece(entries, covered))
        if entries:
            if not replay.handed:
                replay.handed = True
                self._write_down(replay)
            self.app.deliver(entries)
        if self.at_once or not entries:
            self.consumed(replay.topic, len(entries))

    def consumed(self, topic: Topic, count: int) -> int:
        """The application has taken the next `count` deliveries; how many of them were not of the past."""
        replay = self.topics.get(topic)
        if replay is None:
            return count
        former = min(count, replay.before)
        replay.before -= former
        count -= former
        taken = replay.take(count)
        if replay.read is not None and taken:
            self.histories.taken(replay.read, taken)
        self._write_down(replay)
        self._end_if_over(replay)
        return former + count - taken

    def _write_down(self, replay: SubscriptionReplay) -> None:
        if self.topics.get(replay.topic) is replay and not replay.latest_only:
            anew = (
                None if replay.handed or replay.start.kind == "position" else (replay.start.kind, replay.start.amount)
            )
            saved = SavedReplay(
                dict(replay.taken), replay.until, optional=replay.optional, untouched=anew, tells=replay.tells,
                before=replay.before, had=dict(replay.had),
            )  # fmt: skip
            self.ledger.replay(replay.topic, saved)

    def _end_if_over(self, replay: SubscriptionReplay) -> None:
        if replay.phase == DONE and not replay.pending and self.topics.get(replay.topic) is replay:
            del self.topics[replay.topic]
            self.ledger.replay(replay.topic, None)

    def history_over(self, read: HistoryRead) -> None:
        """ARC-S2, ARC-S4: read on if that took long, else become a member; or the rest is read, and all is over."""
        replay = self.topics[read.topic]
        replay.read = None
        if replay.phase == CLOSING:
            self._finish(replay)
            return
        took = self.wires.now_ns - replay.began_ns
        if took > ns(_NEARLY_MS) and replay.rounds < _MOST_ROUNDS:
            self._read(replay, at(replay.progress))
        else:
            self._join(replay)

    def _join(self, replay: SubscriptionReplay) -> None:
        replay.phase = JOINING
        self.joining.want(replay.topic, receives=True)

    def granted(self, membership: Membership, base: Vector) -> None:
        """ARC-S3: the first grant. What was read beyond the base is not to come again."""
        replay = self.topics.get(membership.topic)
        if replay is None or replay.phase != JOINING:
            return
        membership.have.raise_to(plain(replay.progress))
        self.close(closed_in(replay.progress))  # A copy may know of them before the edge does.
        replay.until = folded(base)
        replay.phase = CLOSING
        self._write_down(replay)
        self._close(replay)

    def _close(self, replay: SubscriptionReplay) -> None:
        assert replay.until is not None
        if within(replay.until, replay.progress):
            self._finish(replay)
        else:
            self._read(replay, at(replay.progress), replay.until)

    def _finish(self, replay: SubscriptionReplay) -> None:
        """ARC-S4: from here on the subscription is live."""
        if replay.latest_only:
            self._deliver(replay, replay.last_ones(), {})
        replay.phase = DONE
        self._end_if_over(replay)
        membership = self.members.get(replay.topic)
        if membership is not None:
            self.release(membership, replay.before)

    def history_failed(self, read: HistoryRead, code: str, cut: Vector) -> None:
        """ARC-S5: the past cannot be had; the application is told, and decides."""
        replay = self.topics[read.topic]
        replay.read = None
        if replay.optional and code == "unkept":
            if replay.tells:
                self.ledger.gap(read.topic, told=False)
                self.app.missed(read.topic)
            self._go_on_without(replay)
            return
        if code in ("cleaned", "lost") and self._may_begin_anew(replay, read):
            replay.latest.clear()
            self._read(replay, replay.start, replay.until)
            return
        self.topics.pop(read.topic)
        self._given_up(replay)
        membership = self.members.get(read.topic)
        if membership is not None and membership.wants:
            self.joining.unwanted(membership)
        self.app.no_history(read.topic, code, cut)

    def _may_begin_anew(self, replay: SubscriptionReplay, read: HistoryRead) -> bool:
        """ARC-S5: not where a copy could not even say where the start is now: it has lost something behind it."""
        return replay.may_begin_anew and (read.progress is not None or read.start != replay.start)

    def _go_on_without(self, replay: SubscriptionReplay) -> None:
        if replay.phase == CLOSING:
            self._finish(replay)
        else:
            replay.phase = DONE
            self.joining.want(replay.topic, receives=True)
            self._end_if_over(replay)
