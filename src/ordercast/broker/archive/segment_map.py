"""A map of a topic's segments, from its manifest alone: where cuts lie, what is missing, where a reader begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ordercast.broker.archive.ports import DOUBT, HOLE, LOST, ArchiveManifest, SegmentInfo
from ordercast.core.ids import Origin
from ordercast.pubsub.closed import ClosedSessions
from ordercast.pubsub.cuts import CutSet, closed_in, folded, plain, union, within
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Vector

Place = tuple[int, int]
"""Segment and offset: where a reader goes on. Only the copy that gave it knows what it means."""


class Unavailable(Exception):  # noqa: N818 - An answer, not a fault.
    """Why a copy cannot serve what is asked: `behind`, `cleaned` or `lost`; `cut` is where it can begin.

    `seam` is where what it has and what it lacks meet first. `early`: it has not heard of all that is asked for.
    """

    def __init__(
        self, code: str, cut: Vector | None = None, seam: Vector | None = None, *, early: bool = False
    ) -> None:
        super().__init__(code)
        self.code = code
        self.cut: Vector = cut or {}
        self.seam: Vector = seam or {}
        self.early = early


def covered_by(entries: Sequence[Publication]) -> Vector:
    covered: Vector = {}
    for entry in entries:
        if entry.number > covered.get(entry.origin, 0):
            covered[entry.origin] = entry.number
    return covered


def start_of(manifest: ArchiveManifest, index: int) -> Vector:
    """The cut at which a segment begins."""
    cut = dict(manifest.floor)
    for info in manifest.segments[:index]:
        for origin, number in info.covered.items():
            if number > cut.get(origin, 0):
                cut[origin] = number
    return folded(cut)


def whole_from(manifest: ArchiveManifest) -> Vector:
    """The earliest cut from which on nothing is missing for good."""
    last = max((i for i, info in enumerate(manifest.segments) if info.state == LOST), default=-1)
    return start_of(manifest, last + 1)


def before_last(manifest: ArchiveManifest, count: int, until: Vector, *, over: bool = False) -> Vector:
    """A cut behind which at least the last `count` publications up to `until` lie, if there are so many.

    Those in a hole are among them: whoever has a hole at the end cannot say which are the last, and must not say none.
    They begin behind what is lost, unless the reader goes `over` it.
    """
    segments = manifest.segments
    index, found = len(segments), 0
    while index and found < count and (over or segments[index - 1].state != LOST):
        index -= 1
        found += segments[index].count if within(segments[index].covered, until) else 0
    return start_of(manifest, index)


def first_hole(manifest: ArchiveManifest) -> tuple[int, Vector, Vector] | None:
    """Its number, and the cuts between which it lies."""
    for index, info in enumerate(manifest.segments):
        if info.state in (HOLE, DOUBT):
            start = start_of(manifest, index)
            return info.number, start, union(start, info.covered)
    return None


def place_of(manifest: ArchiveManifest, since: Vector, until: Vector, *, over: bool = False) -> Place | None:
    """ARC-7: the first segment for a reader that has everything in `since` and wants everything in `until`, if any.

    A part of it that is lost is a refusal, unless the reader goes `over` it.
    """
    first: Place | None = None
    for info, begins, ends in _wanted(manifest, since, until):
        if over and info.state == LOST:
            continue
        if info.state in (LOST, HOLE, DOUBT):
            seam = begins if first is not None else ends
            lost = info.state == LOST
            raise Unavailable("lost" if lost else "behind", whole_from(manifest) if lost else None, union(since, seam))
        first = first or (info.number, 0)
    return first


def has_gaps(manifest: ArchiveManifest, since: Vector, until: Vector) -> bool:
    """Whether a part of what lies between the two cuts is lost."""
    return any(info.state == LOST for info, _, _ in _wanted(manifest, since, until))


def _wanted(
    manifest: ArchiveManifest, since: Vector, until: Vector
) -> Iterator[tuple[SegmentInfo, Mapping[Origin, int], Mapping[Origin, int]]]:
    """The segments of which something lies between the two cuts, each with where it begins and ends."""
    has, wants = CutSet(since), CutSet(until)
    cut = CutSet(dict(manifest.floor))
    for info in manifest.segments:
        wanted = any(
            number > has.upto(origin) and wants.upto(origin) > max(cut.upto(origin), has.upto(origin))
            for origin, number in plain(info.covered).items()
        ) or _may_fold(info, has, wants, cut)  # fmt: skip
        begins, cut = cut, CutSet(union(cut.low, info.covered))
        if wanted:
            yield info, begins.low, cut.low


def _may_fold(info: SegmentInfo, has: CutSet, wants: CutSet, cut: CutSet) -> bool:
    """ARC-12: whether something of sessions that are closed in the segment may be in it, and wanted."""
    closed = closed_in(info.covered)
    if not closed or has.closed.has_all(closed) or cut.closed.has_all(closed):
        return False
    mine = ClosedSessions(closed)
    return bool(mine.shared_with(wants.closed.summary())) or any(origin in mine for origin in plain(wants.low))


def drop_lost_front(manifest: ArchiveManifest) -> None:
    """ARC-6: where the oldest part is lost, the history begins behind it."""
    while manifest.segments and manifest.segments[0].state == LOST:
        manifest.floor = union(manifest.floor, manifest.segments.pop(0).covered)
