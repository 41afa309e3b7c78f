"""The archive of one topic at one broker: segments between cuts, holes, and reading from any cut on.

Whatever happens to it, the segments in their order are one legal view of the topic (docs/protocols/archive.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ordercast.broker.archive.ports import (
    DOUBT,
    HOLE,
    LOST,
    WHOLE,
    ArchiveManifest,
    Record,
    SegmentFiles,
    SegmentInfo,
    SegmentState,
)
from ordercast.broker.archive.records import (
    READ_BYTES,
    bodies_of,
    decode_record,
    encode_record,
    extend,
    joined,
    latest,
    outlines_of,
    size_of,
)
from ordercast.broker.archive.segment_map import (
    Place,
    Unavailable,
    before_last,
    covered_by,
    drop_lost_front,
    first_hole,
    has_gaps,
    place_of,
    start_of,
    whole_from,
)
from ordercast.broker.topics.state.log import packets_of
from ordercast.core.ids import Topic
from ordercast.core.wire import NOT_DECODABLE
from ordercast.pubsub.closed import Closed, ClosedSessions
from ordercast.pubsub.cuts import CutSet, closed_in, intervals, plain, union, within
from ordercast.pubsub.keeping import KeepRule
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Vector

_AGE_PARTS = 8
"""A segment is sealed when it is so small a part of `max_age` old, so that it can be removed in time."""


class TopicArchive:
    """One topic's archive. `cut` and the sessions that are `closed` are everything up to its end, holes included."""

    def __init__(self, topic: Topic, files: SegmentFiles, manifest: ArchiveManifest | None = None) -> None:
        self.topic = topic
        self.files = files
        self.manifest = manifest if manifest is not None else ArchiveManifest({}, [])
        self.damaged = self._recover()
        """Something was cut off where the last life had written."""
        end = start_of(self.manifest, len(self.manifest.segments))
        self.cut = plain(end)
        self.closed = ClosedSessions(closed_in(end))
        """ARC-12: sessions of which everything is here, and nothing is counted one by one."""
        self.untold: Closed = {}
        """Those of them that no record says to be closed."""
        self.appended = 0
        """Publications since the last look at what compaction could remove."""

    def _recover(self) -> bool:
        """The last segment may have been written to after the manifest: it is read once; whether it was damaged."""
        damaged = False
        for info in [info for info in self.manifest.segments if info.state == WHOLE and not info.sealed]:
            damaged = self.files.reopen(self.topic, info.number) or damaged
            info.covered, info.count, info.size = {}, 0, 0
            try:
                for record in outlines_of(self.files, self.topic, info.number):
                    extend(info, record.kept_ms, record.covered, record.count)
                info.size = size_of(self.files, self.topic, info.number)
            except NOT_DECODABLE:
                self._set_aside(info)
                damaged = True
        return damaged

    def _set_aside(self, info: SegmentInfo) -> None:
        """ARC-11: a record in it makes no sense, although nobody has touched it: what it had is a hole."""
        info.state, info.sealed, info.count, info.size = HOLE, True, 0, 0
        if not info.covered:
            self.manifest.segments.remove(info)
        self.files.drop(self.topic, info.number, damaged=True)
        self._note()

    def _note(self) -> None:
        self.files.note(self.topic, self.manifest)

    def status(self) -> dict[str, Any]:
        """For people."""
        segments = self.manifest.segments
        return {
            "topic": self.topic, "messages": sum(info.count for info in segments),
            "bytes": sum(info.size for info in segments), "segments": len(segments),
            "since_ms": segments[0].first_ms if segments else 0,
            "holes": sum(info.state != WHOLE for info in segments),
        }  # fmt: skip

    # Writing

    @property
    def whole_end(self) -> Vector:
        """The same with all that are closed, for another copy."""
        return self.cut | intervals(self.closed.summary())

    @property
    def end(self) -> Vector:
        """The cut up to which it reaches, holes included; with closed sessions, where any of the topic are."""
        return self.whole_end if self.manifest.aged else dict(self.cut)

    def append(self, entries: Sequence[Publication]) -> None:
        """ARC-3: publications that have become stable, in the order of the log; ARC-12: and what was closed before."""
        now = self.files.now_ms()
        for piece in packets_of(entries):
            self._add(Record(now, covered_by(piece) | intervals(self.untold), piece))
            self.untold = {}

    def _add(self, record: Record) -> None:
        info = self._active()
        info.size += self.files.add(self.topic, info.number, [encode_record(record)])
        extend(info, record.kept_ms, record.covered, len(record.entries))
        self.cut.update(plain(record.covered))
        self.appended += len(record.entries)
        if info.size >= self.files.segment_size:
            self._seal(info)

    def _active(self) -> SegmentInfo:
        segments = self.manifest.segments
        if not segments or segments[-1].sealed:
            segments.append(SegmentInfo(self._new_number(), {}))
            self._note()
        return segments[-1]

    def _new_number(self) -> int:
        manifest = self.manifest
        manifest.next_number += 1
        return manifest.next_number - 1

    def _seal(self, info: SegmentInfo) -> None:
        info.sealed = True
        self._note()

    def jump(self, base: Vector) -> None:
        """ARC-4: what lies between the end and `base` has become stable without this broker."""
        low = self.cut.get
        missing = {
            origin: number for origin, number in plain(base).items()
            if number > low(origin, 0) and origin not in self.closed
        }  # fmt: skip
        if missing:
            self._add_hole(missing, HOLE)
            self.cut.update(missing)

    def _add_hole(self, covered: Vector, state: SegmentState) -> None:
        if self.manifest.segments:
            self.manifest.segments[-1].sealed = True
        now = self.files.now_ms()
        self.manifest.segments.append(SegmentInfo(self._new_number(), covered, state, True, now, now))
        self._note()

    # ARC-12, ARC-13: sessions that are closed

    def close(self, closed: ClosedSessions) -> None:
        """These sessions are, and everything of them is here: they are not counted one by one any more."""
        news = self.closed.merge(closed.summary())
        if not news:
            return
        over = [origin for origin in self.cut if origin in self.closed]
        for origin in over:
            del self.cut[origin]
        if self.manifest.aged:
            self.untold |= news
        elif over:
            self._age()

    def _age(self) -> None:
        """Sessions of the topic are folded: from here on its cuts say which."""
        manifest = self.manifest
        if not manifest.aged:
            manifest.aged = True
            self.untold = self.closed.summary()
            self._note()

    def doubt(self, closed: ClosedSessions) -> None:
        """ARC-13: of these some may be closed of whom not all is here: another copy has to say."""
        told = closed_in(start_of(self.manifest, len(self.manifest.segments)))
        if closed and not ClosedSessions(told).has_all(closed.summary()):
            self._age()
            self._add_hole(intervals(closed.summary()), DOUBT)
        self.close(closed)

    def promise(self) -> None:
        """ARC-13: from now on no session of the topic is closed unless this copy has said that it has all of it."""
        manifest = self.manifest
        if not manifest.sure:
            manifest.sure = True
            self._note()

    def take_back(self) -> None:
        """Nobody can rely on it."""
        manifest = self.manifest
        if manifest.sure:
            manifest.sure = False
            self._note()

    # Holes

    def hole(self) -> tuple[int, Vector, Vector] | None:
        """The first one: its number, and the cuts between which it lies."""
        return first_hole(self.manifest)

    def split(self, number: int, seam: Vector) -> None:
        """ARC-5: a hole of which others have one part only is two holes, which meet at `seam`."""
        segments = self.manifest.segments
        index = next((i for i, info in enumerate(segments) if info.number == number and info.state == HOLE), None)
        if index is None:
            return
        hole, low, at = segments[index], CutSet(start_of(self.manifest, index)).upto, CutSet(seam).upto
        before = {origin: min(top, at(origin)) for origin, top in hole.covered.items()}
        before = {origin: top for origin, top in before.items() if top > low(origin)}
        hole.covered = {origin: top for origin, top in hole.covered.items() if top > at(origin)}
        segments.insert(index, SegmentInfo(self._new_number(), before, HOLE, True, hole.first_ms, hole.last_ms))
        self._note()

    def is_doubt(self, number: int) -> bool:
        """Whether another copy has to say what is missing in the hole."""
        return any(info.number == number and info.state == DOUBT for info in self.manifest.segments)

    def stage(self, into: list[SegmentInfo], record: Record) -> None:
        """ARC-5: write down a part of what fills a hole; it counts when all of it is there."""
        if not into or into[-1].size >= self.files.segment_size:
            into.append(SegmentInfo(self._new_number(), {}, sealed=True))
        info = into[-1]
        info.size += self.files.add(self.topic, info.number, [encode_record(record)])
        extend(info, record.kept_ms, record.covered, len(record.entries))

    def unstage(self, staged: list[SegmentInfo]) -> None:
        for info in staged:
            self.files.drop(self.topic, info.number)

    def fill(self, number: int, staged: list[SegmentInfo]) -> None:
        """ARC-5: the hole is filled. It may have been removed as too old meanwhile."""
        segments = self.manifest.segments
        index = next((i for i, info in enumerate(segments) if info.number == number and info.state == HOLE), None)
        if index is None:
            self.unstage(staged)
            return
        rest = {o: n for o, n in segments[index].covered.items() if n > _reach(staged, o)}
        if rest and staged:  # Publications that nobody has to be handed: all voids, or left out by compaction.
            staged[-1].covered = union(staged[-1].covered, rest)
        if not staged:
            staged = [SegmentInfo(self._new_number(), rest, sealed=True)]
        segments[index : index + 1] = staged
        self._note()

    def adopt(self, number: int, staged: list[SegmentInfo], reached: Vector) -> None:
        """ARC-13: what another copy has up to its end takes the place of a hole, and of the same behind it.

        Nobody knows which of it belongs into the hole, and before what; the other's order is as good as this one's.
        """
        segments = self.manifest.segments
        index = next((i for i, info in enumerate(segments) if info.number == number and info.state == DOUBT), None)
        if index is None:
            self.unstage(staged)
            return
        behind = [left for info in segments[index + 1 :] if (left := self._without(info, reached)) is not None]
        rest = {o: n for o, n in reached.items() if n > _reach([*segments[:index], *staged], o)}
        if rest:
            staged = [*staged, SegmentInfo(self._new_number(), rest, sealed=True)]
        segments[index:] = [*staged, *behind]
        end = start_of(self.manifest, len(segments))
        self.closed.merge(closed_in(end))
        self.cut = {origin: n for origin, n in plain(end).items() if origin not in self.closed}
        self._note()

    def _without(self, info: SegmentInfo, reached: Vector) -> SegmentInfo | None:
        """What is left of a segment without what is in the cut; what it covers stays."""
        left = None if within(info.covered, reached) else info
        if info.state == WHOLE:
            if left is not None:
                left = self._rewritten(info, CutSet(reached))
            self.files.drop(self.topic, info.number)
        return left

    def _rewritten(self, info: SegmentInfo, without: CutSet) -> SegmentInfo:
        left = SegmentInfo(self._new_number(), dict(info.covered), WHOLE, True, info.first_ms, info.last_ms)
        try:
            records = [decode_record(body) for body in bodies_of(self.files, self.topic, info.number)]
        except NOT_DECODABLE:
            records = []
        if not records or size_of(self.files, self.topic, info.number) != info.size:
            left.state = HOLE
            return left
        kept = [tuple(e for e in record.entries if not without.has(e.origin, e.number)) for record in records]
        left.count = sum(map(len, kept))
        bodies = [encode_record(Record(r.kept_ms, r.covered, e)) for r, e in zip(records, kept, strict=True)]
        left.size = self.files.add(self.topic, left.number, bodies)
        return left

    def give_up(self, number: int) -> None:
        """ARC-6: no copy has it. Where it is the oldest part, the history begins behind it."""
        for info in self.manifest.segments:
            if info.number == number and info.state in (HOLE, DOUBT):
                info.state = LOST
        drop_lost_front(self.manifest)
        self._note()

    def _judge(self, info: SegmentInfo) -> str:
        """Mark what a reader could not read as damaged, a hole from now on; unless the reader made its place up."""
        if size_of(self.files, self.topic, info.number) == info.size:
            return "moved"
        self._set_aside(info)
        return "behind"

    # Reading

    def whole_from(self) -> Vector:
        """The earliest cut from which on nothing is missing for good."""
        return whole_from(self.manifest)

    def at_time(self, at_ms: int) -> Vector:
        """The cut before the first record that was kept at that time or later."""
        for index, info in enumerate(self.manifest.segments):
            if info.last_ms >= at_ms:
                cut = start_of(self.manifest, index)
                with suppress(*NOT_DECODABLE):
                    for record in outlines_of(self.files, self.topic, info.number) if info.state == WHOLE else ():
                        if record.kept_ms >= at_ms:
                            break
                        cut = union(cut, record.covered)
                return cut
        return self.end

    def before_last(self, count: int, until: Vector, *, over: bool = False) -> Vector:
        """A cut behind which at least the last `count` publications up to `until` lie, if there are so many."""
        return before_last(self.manifest, count, until, over=over)

    def place(self, since: Vector, until: Vector, *, over: bool = False) -> Place | None:
        """ARC-7: where a reader begins that has everything in `since` and wants everything in `until`; None: it has."""
        if not within(self.manifest.floor, since):
            raise Unavailable("cleaned", self.whole_from())
        if not self.reaches(until):
            raise Unavailable("behind", seam=union(since, self.whole_end), early=True)
        return place_of(self.manifest, since, until, over=over)

    def has_gaps(self, since: Vector, until: Vector) -> bool:
        """Whether a part of what lies between the two is gone for good."""
        return has_gaps(self.manifest, since, until)

    def reaches(self, until: Vector) -> bool:
        """Whether everything in the cut is here, in a hole, or was."""
        low = self.cut.get
        counted = all(n <= low(o, 0) or o in self.closed for o, n in plain(until).items())
        return counted and self.closed.has_all(closed_in(until))

    def read(self, place: Place, *, over: bool = False) -> tuple[Sequence[bytes], Place | None]:
        """The records from there on, and where the next ones are; None: that is all there is now."""
        segments = self.manifest.segments
        index = next((i for i, info in enumerate(segments) if info.number == place[0]), None)
        if index is None:
            raise Unavailable("moved")
        offset = place[1]
        while index < len(segments):
            info = segments[index]
            if over and info.state == LOST:
                index, offset = index + 1, 0
                continue
            if info.state != WHOLE:
                raise Unavailable("behind")
            if info.sealed and not info.size:  # A hole in which nothing was missing: there is no file.
                index, offset = index + 1, 0
                continue
            piece = self.files.read(self.topic, info.number, offset, READ_BYTES)
            if piece.damaged or (info.sealed and not piece.bodies and offset < info.size):
                raise Unavailable(self._judge(info))
            if piece.bodies:
                return piece.bodies, (info.number, piece.offset)
            index, offset = index + 1, 0
        return (), None

    # Cleaning

    def clean(self, rule: KeepRule) -> int:
        """ARC-8: remove the oldest segments beyond the limits; how many publications went."""
        manifest, now = self.manifest, self.files.now_ms()
        segments = manifest.segments
        oldest = now - rule.max_age_ms if rule.max_age_ms else -1
        if segments and self._is_old(segments[-1], rule, now):
            self._seal(segments[-1])
        total = sum(info.size for info in segments)
        removed = 0
        gone = 0
        while segments and segments[0].sealed:
            first = segments[0]
            if not (first.last_ms < oldest or (rule.max_bytes and total > rule.max_bytes and len(segments) > 1)):
                break
            segments.pop(0)
            total -= first.size
            removed += first.count
            gone += 1
            manifest.floor = union(manifest.floor, first.covered)
            if first.state == WHOLE:
                self.files.drop(self.topic, first.number)
        if gone:
            drop_lost_front(self.manifest)
            self._note()
        return removed

    def _is_old(self, info: SegmentInfo, rule: KeepRule, now: int) -> bool:
        """Whether what is being written has to be sealed, or it could not be removed in time."""
        if not rule.max_age_ms or info.sealed or not info.count:
            return False
        return info.first_ms < now - max(1000, rule.max_age_ms // _AGE_PARTS)

    def forget(self) -> None:
        """Nothing of it is kept any more."""
        for info in self.manifest.segments:
            if info.state == WHOLE:
                self.files.drop(self.topic, info.number)
        self.manifest = ArchiveManifest({}, [])
        self.cut = {}
        self.closed = ClosedSessions()
        self.untold = {}
        self.files.note(self.topic, None)

    # Compaction

    def sealed_numbers(self) -> list[int]:
        return [info.number for info in self.manifest.segments if info.sealed and info.state == WHOLE]

    def keys_of_the_rest(self) -> set[str]:
        """The keys in the segment that is being written: what they say replaces what sealed ones say."""
        seen: set[str] = set()
        for info in self.manifest.segments[-1:]:
            if not info.sealed:
                with suppress(*NOT_DECODABLE):
                    for body in bodies_of(self.files, self.topic, info.number):
                        seen.update(key for entry in decode_record(body).entries for key in entry.keys)
        return seen

    def compact(self, number: int, seen: set[str]) -> int:
        """ARC-9: rewrite a sealed segment without what is replaced by later keys, which it adds to `seen`."""
        segments = self.manifest.segments
        index = next((i for i, info in enumerate(segments) if info.number == number and info.state == WHOLE), None)
        if index is None:
            return 0
        try:
            records = [decode_record(body) for body in bodies_of(self.files, self.topic, number)]
        except NOT_DECODABLE:
            self._set_aside(segments[index])
            return 0
        kept = latest(records, seen)
        removed = sum(len(old.entries) - len(new.entries) for old, new in zip(records, kept, strict=True))
        if removed:
            old = segments[index]
            new = SegmentInfo(self._new_number(), dict(old.covered), WHOLE, True, old.first_ms, old.last_ms)
            new.count = old.count - removed
            bodies = [encode_record(record) for record in joined(kept)]
            new.size = self.files.add(self.topic, new.number, bodies)
            segments[index] = new
            self._note()
            self.files.drop(self.topic, number)
        return removed


def _reach(segments: Sequence[SegmentInfo], origin: str) -> int:
    return max((info.covered.get(origin, 0) for info in segments), default=0)  # type: ignore[call-overload]
