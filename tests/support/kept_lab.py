"""Runs with kept topics: the judge sees every copy of the archive as one more subscriber, and so do late readers."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from typing import Any, cast

from ordercast.broker.archive.memory_files import MemoryFiles
from ordercast.broker.archive.ports import DOUBT, HOLE, LOST
from ordercast.broker.archive.records import decode_record
from ordercast.broker.archive.segment_map import Unavailable
from ordercast.broker.archive.topic_archive import TopicArchive
from ordercast.client.history import HistoryRead, HistoryReader, at
from ordercast.core.chance import salt
from ordercast.core.ids import Topic, ticket_of
from ordercast.core.messages import Message
from ordercast.pubsub.cuts import CutSet, within
from ordercast.pubsub.filters import allows
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.received import Vector
from ordercast.scenario.model import Scenario
from ordercast.sim.catalogue import BROKER
from ordercast.sim.clock import ns
from ordercast.sim.pubsub.parts import Parts
from ordercast.sim.pubsub.rest import unrest
from ordercast.sim.pubsub.run import build_world, live, manifest_of
from ordercast.sim.pubsub.world import PubsubWorld
from ordercast.trace.recorder import Recorder
from ordercast.trace.writer import RunWriter
from tests.support.kept_cuts import CutWatch
from tests.support.pubsub_folding import let_fold, unfolded
from tests.support.pubsub_lab import Finding, TableWriter, Watch, _verdict, complaints

_BEGIN_MS = 2900.0
_PLACES = 12
"""Times at which positions are taken in a run."""
_SETTLING = ns(45_000)
"""Longer than a session that will not come back is waited for."""


def run_kept(
    scenario: Scenario,
    parts: Parts | None = None,
    *,
    may_lose: bool = False,
    damaged: bool = False,
    across: bool = False,
    folds: bool = False,
) -> Finding:
    """Run the scenario in memory; everything that is wrong with it, copies of the archive included."""
    writer = TableWriter()
    recorder = Recorder(cast("RunWriter", writer), scenario.name, packets=False)
    world = build_world(scenario, BROKER, scenario.seed, recorder, parts)
    watch = Watch(world)
    seen: dict[Topic, set[str]] = {}
    world.delivery_watchers.append(lambda _, entry: seen.setdefault(entry.topic, set()).update(entry.keys))
    got: dict[str, set[str]] = {}
    world.delivery_watchers.append(lambda client, entry: got.setdefault(client.node, set()).add(entry.id))
    mischief = Damage(world) if damaged else None
    cuts = CutWatch(world, _BEGIN_MS, scenario.duration_ms) if across else None
    places = PlaceWatch(world, scenario.duration_ms) if folds else None
    events, drained = live(world)
    world.clock.run_until(world.clock.now + _SETTLING)
    if mischief is not None:
        scrub(world)
        world.clock.run_until(world.clock.now + _SETTLING)
    problems = list(watch.problems)
    if places is not None:
        let_fold(world)
        problems += places.problems()
        if drained:
            problems += unfolded(world) + uncounted(world)
    if cuts is not None:
        problems += cuts.problems()
        world.processes.processes[next(iter(world.brokers()))].counters["cuts_judged"] += len(cuts.cuts)
    if not drained:
        problems.append(f"not at rest: {unrest(world)}")
    problems += [f"blamed: {one} blames {other}: {why}" for one, other, why in world.processes.peer_errors]
    problems += [told for told in world.complaints if not (may_lose and told.endswith((" is lost", " is cleaned")))]
    copies = copies_of(world)
    torn = [(name, topic) for name, topic, archive in copies if _has(archive, HOLE) or _has(archive, DOUBT)]
    problems += [f"{name} has holes in {topic}" for name, topic in torn]
    problems += unread(world, copies, got)
    if not may_lose:
        problems += [f"{name} has lost a part of {topic}" for name, topic, archive in copies if not is_whole(archive)]
    if all(rule.compact == "none" for rule in world.layout.keep):
        problems += differences(copies)
    else:
        problems += [f"{n} has no message of some keys of {t}" for n, t, a in copies if seen.get(t, set()) - keys_of(a)]
    extra = _show(world, recorder, copies)
    manifest = manifest_of(world, scenario.name, drained=drained)
    manifest.nodes.extend(extra)
    recorder.finish(manifest)
    verdict = _verdict(writer, manifest)
    problems += complaints(verdict, drained=drained) if verdict is not None else []
    return Finding(problems, verdict, world, events, writer.rows)


def unread(world: PubsubWorld, copies: list[tuple[str, Topic, TopicArchive]], got: dict[str, set[str]]) -> list[str]:
    """ARC-S7: what followers of a filter from the beginning have not got of its topics."""
    found = []
    for client in world.clients.values():
        if client.spec.filters and client.spec.start == "earliest" and client.alive:
            for _, topic, archive in copies:
                kept = {entry.id for entry in entries_of(archive)} if allows(client.spec.filters, topic) else set()
                lacking = kept - got.get(client.node, set())
                if lacking:
                    found.append(f"{client.node} has not got {min(lacking)} and {len(lacking) - 1} more of {topic}")
    return found


class PlaceWatch:
    """Positions of copies that were taken while the run went on, before and after sessions were folded."""

    def __init__(self, world: PubsubWorld, duration_ms: float) -> None:
        self.world = world
        self.taken: dict[Topic, list[Vector]] = {}
        for i in range(_PLACES):
            world.clock.at(ns(_BEGIN_MS + (i + 1) * (duration_ms + 2000) / _PLACES), self._look, None)

    def _look(self, _: None, __: None) -> None:
        for _, topic, archive in copies_of(self.world):
            self.taken.setdefault(topic, []).append(archive.end)

    def problems(self) -> list[str]:
        """What lies between two positions is the same at every copy that says that it has it."""
        found = []
        for topic, places in self.taken.items():
            copies = [(name, archive) for name, kept, archive in copies_of(self.world) if kept == topic]
            pairs = [*zip([{}, *places[:-1]], places, strict=True), *((place, places[-1]) for place in places)]
            for start, end in pairs:
                read = [(name, got) for name, archive in copies if (got := between(archive, start, end)) is not None]
                found += [
                    f"{one} and {other} differ in {topic} between {start} and {end}: {sorted(mine ^ theirs)[:3]}"
                    for (one, mine), (other, theirs) in pairwise(read)
                    if mine != theirs
                ]
        return found


def between(archive: TopicArchive, start: Vector, end: Vector) -> set[str] | None:
    """What a reader gets from the copy between two positions; None: the copy says that it cannot."""
    read = HistoryRead(1, archive.topic, at(start), end, cast("HistoryReader", None))
    read.progress = dict(start)
    got: set[str] = set()
    try:
        place = archive.place(start, end)
        while place is not None and not within(end, read.progress):
            bodies, place = archive.read(place)
            entries = [entry.id for entry in read.fresh(bodies)[0] if entry.keys]
            assert not got & set(entries), "twice"
            got.update(entries)
    except Unavailable:
        return None
    return got


def uncounted(world: PubsubWorld) -> list[str]:
    """Ended sessions that an archive counts one by one although all brokers are in place and nothing happens."""
    brokers = world.brokers()
    if any(broker.tree.directory.keys() != brokers.keys() for broker in brokers.values()):
        return []
    alive = {client.machine.session.origin for client in world.clients.values() if client.machine is not None}
    return [
        f"{name} counts {origin} of {topic} one by one"
        for name, topic, archive in copies_of(world)
        for origin in archive.cut
        if ticket_of(origin) is not None and origin not in alive
    ]


class Damage:
    """Now and then a record of some archive is not what was written."""

    def __init__(self, world: PubsubWorld) -> None:
        self.world = world
        self.done = 0
        for i in range(6):
            world.clock.at(ns(2900 + 400 * i), self._strike, i)

    def _strike(self, i: int, _: None) -> None:
        bits = salt(self.world.seed, "damage", i)
        names = sorted(self.world.archives)
        files = self.world.archives[names[bits % len(names)]]
        segments = [key for key in sorted(files.segments) if files.segments[key]]
        if segments:
            records = files.segments[segments[(bits >> 8) % len(segments)]]
            records[(bits >> 16) % len(records)] = None
            self.done += 1


def scrub(world: PubsubWorld) -> None:
    """Every copy is read through once, so that it finds its damage."""
    for _, _, archive in copies_of(world):
        for number in [info.number for info in archive.manifest.segments]:
            place: tuple[int, int] | None = (number, 0)
            with suppress(Unavailable):
                while place is not None and place[0] == number:
                    _, place = archive.read(place)


def copies_of(world: PubsubWorld) -> list[tuple[str, Topic, TopicArchive]]:
    """All archives of brokers that are alive."""
    return [
        (name, topic, archive)
        for name, broker in world.brokers().items()
        for topic in broker.topics.kept.topics()
        if (archive := broker.topics.kept.find(topic)) is not None
    ]


def entries_of(archive: TopicArchive) -> list[Publication]:
    """In the order of the copy, without voids and without what it lacks."""
    bodies = [
        body
        for info in archive.manifest.segments
        if info.state == "whole"
        for body in cast("MemoryFiles", archive.files).segments.get((archive.topic, info.number), [])
    ]
    return [entry for body in bodies if body is not None for entry in decode_record(body).entries if entry.keys]


def _has(archive: TopicArchive, state: str) -> bool:
    return any(info.state == state for info in archive.manifest.segments)


def is_whole(archive: TopicArchive) -> bool:
    return not archive.manifest.floor and not any(_has(archive, state) for state in (LOST, HOLE, DOUBT))


def keys_of(archive: TopicArchive) -> set[str]:
    return {key for entry in entries_of(archive) for key in entry.keys}


def differences(copies: list[tuple[str, Topic, TopicArchive]]) -> list[str]:
    """Where two copies that both have everything between two cuts have not the same set between them."""
    found = []
    whole = [copy for copy in copies if is_whole(copy[2])]
    for i, (one, topic, mine) in enumerate(whole):
        for other, same, theirs in whole[i + 1 :]:
            if same == topic and _set(mine, theirs.end) != _set(theirs, mine.end):
                found.append(f"{one} and {other} have not the same of {topic}")
    return found


def _set(archive: TopicArchive, cut: Vector) -> set[str]:
    reached = CutSet(cut)
    return {entry.id for entry in entries_of(archive) if reached.has(entry.origin, entry.number)}


def _show(world: PubsubWorld, recorder: Recorder, copies: list[tuple[str, Topic, TopicArchive]]) -> list[str]:
    """Rows as of a subscriber for each copy; one that has everything owes everything."""
    shown = []
    newest: dict[Topic, Vector] = {}
    for _, topic, archive in copies:
        known = newest.setdefault(topic, archive.end)
        if within(known, archive.end):
            newest[topic] = archive.end
    for name, topic, archive in copies:
        node = f"archive-{name}-{topic}"
        info = {"topic": topic}
        compacted = any(rule.compact != "none" for rule in world.layout.keep)
        if is_whole(archive) and within(newest[topic], archive.end) and not compacted:
            info["from"] = "everything"
        shown.append(node)
        recorder.event("subscribe", node, world.clock.now, info)
        for entry in entries_of(archive):
            recorder.deliver(node, world.clock.now, cast("Message", entry))
    return shown


def rows_of(finding: Finding, kind: str) -> list[tuple[Any, ...]]:
    return [row for row in finding.rows if kind in row]
