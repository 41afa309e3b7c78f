"""Runs of brokers and clients without a disk: invariants after every event, rest at the end, the judge's verdict."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import inf
from typing import Any, cast

import msgspec
import pyarrow as pa

from ordercast.broker.node import Broker
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.pubsub.filters import matches
from ordercast.pubsub.publications import Publication
from ordercast.scenario.model import Crash, Partition, Scenario
from ordercast.sim.catalogue import BROKER
from ordercast.sim.connections import Life
from ordercast.sim.pubsub.client import SimClient
from ordercast.sim.pubsub.parts import Parts
from ordercast.sim.pubsub.rest import unrest
from ordercast.sim.pubsub.run import build_world, live, manifest_of
from ordercast.sim.pubsub.world import PubsubWorld
from ordercast.trace.arrow_schema import EVENT_SCHEMA
from ordercast.trace.recorder import Recorder
from ordercast.trace.schema import INFO_END
from ordercast.trace.store import Manifest
from ordercast.trace.writer import RunWriter
from ordercast.verify.verdict import FAIL, UNKNOWN, Verdict
from tests.support.pubsub_folding import let_fold, unfolded
from tests.support.pubsub_liar import LIAR

_NODE, _SEQ, _KIND, _TIME, _MSG, _TOPIC, _INFO = map(
    EVENT_SCHEMA.names.index, ("node", "seq", "kind", "time_ns", "msg", "topic", "info")
)
_REPAIR_MS = 1000.0
"""Brokers that die within that time of each other may all have been the copies of something."""
_HEARD = ("deliver", "subscribe", "unsubscribe")
"""Rows about what somebody is given; a liar is owed nothing."""


class TableWriter:
    """Takes the place of a RunWriter and keeps the rows in memory."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.manifest: Manifest | None = None

    def write(self, rows: list[tuple[Any, ...]]) -> None:
        self.rows.extend(rows)

    def finish(self, manifest: Manifest) -> None:
        self.manifest = manifest

    def abort(self) -> None:
        self.rows.clear()

    def table(self) -> pa.Table:
        columns = [list(column) for column in zip(*self.rows, strict=True)]
        arrays = [
            pa.array(column, type=kind.type) for column, kind in zip(columns, EVENT_SCHEMA, strict=True)
        ]  # fmt: skip
        return pa.Table.from_arrays(arrays, schema=EVENT_SCHEMA)


@dataclass
class Finding:
    """What became of one run."""

    problems: list[str]
    verdict: Verdict | None
    world: PubsubWorld
    events: int
    rows: list[tuple[Any, ...]] = field(repr=False)

    @property
    def held(self) -> bool:
        return not self.problems


class Watch:
    """5.12 after every event: at most one root, no cycle, and what each broker promises itself."""

    def __init__(self, world: PubsubWorld, *, topics: bool = True) -> None:
        self.world = world
        self.topics = topics
        self.primary = world.settings.partitions == "primary"
        self.problems: list[str] = []
        self.tree: dict[NodeId, tuple[bool, NodeId | None]] = {}
        world.processes.after_event = self.after_event

    def after_event(self, life: Life) -> None:
        if life.peer.kind != "broker":
            return
        broker = cast("Broker", life.machine)
        place = (self._rules(broker), broker.tree.parent_name)
        if self.tree.get(NodeId(life.name)) != place:
            self.tree[NodeId(life.name)] = place
            self._check_tree()
        if self.topics:
            broker.topics.check_invariants()

    def _rules(self, broker: Broker) -> bool:
        """A root whose lease has run out while it heard nothing does nothing before it looks at the clock."""
        overlay = broker.tree
        if not self.primary:
            return overlay.is_root
        return overlay.decides and overlay.lease.until_ns >= self.world.clock.now

    def _check_tree(self) -> None:
        brokers = self.world.brokers()
        rulers = [name for name, broker in brokers.items() if self._rules(broker)]
        if len(rulers) > 1:
            self._problem(f"several roots at once: {', '.join(rulers)}")
        for name in brokers:
            seen, here = {name}, brokers[name].tree.parent_name
            while here is not None and here in brokers:
                if here in seen:
                    self._problem(f"parents in a cycle: {', '.join(sorted(seen))}")
                    break
                seen.add(here)
                here = brokers[here].tree.parent_name

    def _problem(self, what: str) -> None:
        if len(self.problems) < 5:
            self.problems.append(f"at {self.world.clock.now / 1e6:.3f} ms: {what}")


class SafeBook:
    """What clients were told is safe must reach every live member, publisher alive or not."""

    def __init__(self, world: PubsubWorld) -> None:
        self.world = world
        self.safe: dict[str, tuple[Origin, Topic, int]] = {}
        self.since: dict[str, int] = {}
        """When the first of them was told so."""
        self.delivered: set[str] = set()
        """By the one client that is a member of everything from the beginning."""
        world.acknowledgement_watchers.append(self._acknowledged)
        world.delivery_watchers.append(self._delivered)

    def _acknowledged(self, client: SimClient, topic: Topic, level: str, low: int, extras: tuple[int, ...]) -> None:
        machine = client.machine
        if level != "safe" or machine is None:
            return
        for number in (*range(1, low + 1), *extras):
            message = f"{machine.origin}/{topic}#{number}"
            self.safe[message] = (machine.session.origin, topic, number)
            self.since.setdefault(message, self.world.clock.now)

    def _delivered(self, client: SimClient, entry: Publication) -> None:
        if client.node == "c0":
            self.delivered.add(entry.id)

    def _always_there(self) -> bool:
        client = self.world.clients.get(NodeId("c0"))
        return client is not None and client.alive and client.session == 0

    def lost(self) -> list[str]:
        """Safe publications that nobody who is there at the end has."""
        have: dict[Topic, list[Any]] = {}
        for client in self.world.clients.values():
            machine = client.machine
            if machine is None or machine.ended:
                continue
            for topic, membership in machine.topics.items():
                if membership.receiving:
                    have.setdefault(topic, []).append((membership.have, machine.session.closed))
        lost = []
        for message, (origin, topic, number) in self.safe.items():
            those = have.get(topic, [])
            if any((origin, number) not in received and origin not in closed for received, closed in those):
                lost.append(message)
            elif self._is_missed(message) and any(origin in closed for _, closed in those):
                lost.append(f"{message} (folded)")
        return lost

    def _is_missed(self, message: str) -> bool:
        """By the one that was always there, though somebody was left to give it."""
        there = self._always_there() and not self._too_many_at_once(self.since[message])
        return message not in self.delivered and there

    def _too_many_at_once(self, since_ns: int) -> bool:
        """Whether as many brokers as had it may have died from then on before the tree had repaired itself."""
        names, copies = self.world.layout.parents, self.world.settings.safe_copies
        crashes = sorted(f.at_ms for f in self.world.scenario.fault if isinstance(f, Crash) and f.node in names)
        later = [at for at in crashes if at * 1e6 >= since_ns]
        return any(last - first < _REPAIR_MS for first, last in zip(later, later[copies - 1 :], strict=False))


class FilterBook:
    """Whoever follows a filter must be given everything that is published on its topics once the overlay knows it.

    On topics that were there already it is owed what is published after its subscription to each of them; that is what
    an application waits for (`until_found`).
    """

    def __init__(self, world: PubsubWorld) -> None:
        self.world = world
        self.since: dict[tuple[NodeId, str, int], int] = {}
        """When which session of a client was told that its filter is known."""
        self.before: dict[tuple[NodeId, str, int], frozenset[Topic]] = {}
        """The topics of it that were there already."""
        self.delivered: dict[NodeId, set[str]] = {name: set() for name in world.clients}
        world.filter_watchers.append(self._follows)
        world.delivery_watchers.append(lambda client, entry: self.delivered[client.node].add(entry.id))

    def _follows(self, client: SimClient, pattern: str, topics: tuple[Topic, ...]) -> None:
        follower = client.node, pattern, client.session
        if follower not in self.since:
            self.since[follower], self.before[follower] = self.world.clock.now, frozenset(topics)

    def missed(self, rows: list[tuple[Any, ...]]) -> list[str]:
        """What others have, or will have, and a follower that is still there was never given."""
        published = [row for row in rows if row[_KIND] == "publish" and self._counts(row[_MSG])]
        found = []
        for follower, since in self.since.items():
            name, pattern, session = follower
            if not self._is_there(name, session):
                continue
            begun = self._begun(follower, rows)
            found += [f"{name}, who follows {pattern}, never came to {topic}" for topic in begun if begun[topic] == inf]
            found += [
                f"missed by {name}, who follows {pattern}: {row[_MSG]}"
                for row in published
                if matches(pattern, row[_TOPIC])
                and row[_TIME] > begun.get(row[_TOPIC], since)
                and row[_MSG] not in self.delivered[name]
            ]
        return found

    def _begun(self, follower: tuple[NodeId, str, int], rows: list[tuple[Any, ...]]) -> dict[Topic, float]:
        """From when on it is owed the topics that were there before its filter was known."""
        begun: dict[Topic, float] = dict.fromkeys(self.before[follower], inf)
        for row in (row for row in rows if row[_NODE] == follower[0]):
            if row[_KIND] == "recover" and dict(row[_INFO] or ())["state"] == "lost":
                begun = dict.fromkeys(begun, inf)  # What a session before had subscribed to.
            elif row[_KIND] == "subscribe" and begun.get(row[_TOPIC]) == inf:
                begun[row[_TOPIC]] = max(row[_TIME], self.since[follower])
        return begun

    def _is_there(self, name: NodeId, session: int) -> bool:
        client = self.world.clients[name]
        return client.alive and client.session == session

    def _counts(self, message: str) -> bool:
        """Whether anybody was given it; what a dead publisher could not get rid of is owed to nobody."""
        return any(message in given for given in self.delivered.values())


def run_pubsub(
    scenario: Scenario, seed: int | None = None, parts: Parts | None = None, *, topics: bool = True, judge: bool = True,
    folds: bool = False,
) -> Finding:  # fmt: skip
    """Run the scenario in memory and say everything that is wrong with it.

    With `folds`, nothing may be left of ended sessions once all is at rest and everybody is in place.
    """
    seed = scenario.seed if seed is None else seed
    writer = TableWriter()
    recorder = Recorder(cast("RunWriter", writer), scenario.name, packets=False)
    world = build_world(scenario, BROKER, seed, recorder, parts)
    watch = Watch(world, topics=topics)
    safe = SafeBook(world)
    filters = FilterBook(world)
    events, drained = live(world)
    manifest = manifest_of(world, scenario.name, drained=drained)
    recorder.finish(manifest)
    problems = list(watch.problems)
    if not drained:
        problems.append(f"not at rest after {world.clock.now / 1e6:.0f} ms: {unrest(world)}")
    errors = [(one, other, why) for one, other, why in world.processes.peer_errors if other.split("~")[0] != LIAR]
    problems += [f"blamed: {one} blames {other}: {why}" for one, other, why in errors]
    problems += [complaint for complaint in world.complaints if not complaint.startswith(f"{LIAR}:")]
    problems += _fenced(world)
    if _crashed_brokers(world) < world.settings.safe_copies and drained:
        problems += [f"lost although it was safe: {message}" for message in safe.lost()[:3]]
    problems += filters.missed(writer.rows)[:3]
    if folds and drained:
        let_fold(world)
        problems += [f"lost although it was safe: {message}" for message in safe.lost()[:3] if "folded" in message]
        problems += unfolded(world)[:3]
    verdict = _verdict(writer, manifest) if judge else None
    if verdict is not None:
        problems += complaints(verdict, drained=drained)
    return Finding(problems, verdict, world, events, writer.rows)


def _verdict(writer: TableWriter, manifest: Manifest) -> Verdict | None:
    writer.rows = [row for row in writer.rows if row[_NODE] != LIAR or row[_KIND] not in _HEARD]
    return judge_the_living(writer, manifest, witnesses=1)


def judge_the_living(writer: TableWriter, manifest: Manifest, witnesses: int) -> Verdict | None:
    """The verdict without the last moments of the dead, whose other deliveries are then owed to all; None over nothing.

    That is stricter than what runs of brokers claim, where nothing is owed because only the dead had it.
    """
    from ordercast.verify.judge import judge_table  # Late: it compiles kernels.

    writer.rows = between_the_living(writer.rows)
    if not any(row[_KIND] == "deliver" for row in writer.rows):
        return None
    (verdict,) = judge_table(writer.table(), msgspec.structs.replace(manifest, uniform=True), witnesses=witnesses)
    return verdict


def between_the_living(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The rows without what clients delivered shortly before they died or left: BRK-G1 compares live members.

    Everything that such a client had delivered on a topic before its last publication there that a living one had
    delivered by then is kept: whatever brought that publication to others brought its past on the topic too, in the
    same order. What reached them later may have come as orphans (BRK-R3): its past too, but totals that only the dead
    had delivered are ordered anew.
    """
    lives: dict[str, list[list[tuple[Any, ...]]]] = {}
    for row in rows:
        stays = lives.setdefault(row[_NODE], [[]])
        if row[_KIND] == "recover" and dict(row[_INFO] or ())["state"] == "lost":
            stays.append([])
        stays[-1].append(row)
    living = {node for node, stays in lives.items() if not _ends_dead(stays[-1])}
    seen: dict[str, int] = {}
    for row in (row for node in living for row in lives[node][-1] if row[_KIND] == "deliver"):
        seen[row[_MSG]] = min(row[_TIME], seen.get(row[_MSG], row[_TIME]))
    topic_of = {row[_MSG]: row[_TOPIC] for row in rows if row[_KIND] == "publish"}
    faults = any(row[_KIND] == "crash" for row in rows)
    kept = []
    for node, stays in lives.items():
        whole = [row for stay in stays[:-1] for row in _closed_part(stay, seen, topic_of, faults=faults)]
        whole += stays[-1] if node in living else _closed_part(stays[-1], seen, topic_of, faults=faults)
        kept += [(*row[:_SEQ], seq, *row[_SEQ + 1 :]) for seq, row in enumerate(whole)]
    return kept


def _ends_dead(stay: list[tuple[Any, ...]]) -> bool:
    """It crashed, left or was given up; one that stayed to the end of the run is among the living."""
    ends = [row for row in stay if row[_KIND] in ("crash", "leave", "recover")]
    return bool(ends) and ends[-1][_KIND] != "recover" and INFO_END not in dict(ends[-1][_INFO] or ())


def _closed_part(
    stay: list[tuple[Any, ...]], seen: dict[str, int], topic_of: dict[str, str], *, faults: bool
) -> list[tuple[Any, ...]]:
    end = max(row[_TIME] for row in stay)
    last: dict[str, int] = {}
    for i, row in enumerate(stay):
        if row[_KIND] == "publish" and seen.get(row[_MSG], end) < end:
            last[row[_TOPIC]] = i
    kept = [
        row for i, row in enumerate(stay) if row[_KIND] != "deliver" or i <= last.get(topic_of.get(row[_MSG], ""), -1)
    ]
    if faults and any(row[_KIND] == "leave" for row in stay):  # As of a crashed one: all or none (BRK-G1).
        kept = [row for row in kept if row[_KIND] != "publish" or row[_MSG] in seen]
    return kept


def complaints(verdict: Verdict | None, *, drained: bool = True) -> list[str]:
    """What is broken, or was promised and could not be told although the run came to rest."""
    if verdict is None:
        return ["nothing was delivered"]
    found = []
    for result in verdict.results:
        undecided = result.verdict == UNKNOWN and result.claimed and drained
        if result.verdict == FAIL or undecided:
            story = " | ".join(result.witnesses[0].story) if result.witnesses else result.reason
            found.append(f"{result.check}: {result.verdict} ({result.violations}): {story}")
    return found


def _fenced(world: PubsubWorld) -> list[str]:
    """A client that never crashed, and was not cut off for longer than anybody waits, must not lose its session.

    That it is cut off it notices by the silence, so that it may look for another edge for that long after it is not.
    """
    notices_ms = getattr(getattr(world.scenario.overlay, "silence_ms", None), "high_ms", 0.0)
    crashed = {getattr(fault, "node", "") for fault in world.scenario.fault}
    for fault in world.scenario.fault:
        if not isinstance(fault, Partition):
            continue
        if fault.until_ms - fault.at_ms + notices_ms > world.settings.member_timeout_ms:
            crashed.update(*fault.sides)
    return [
        f"{name} lost its session: {client.lost_session}"
        for name, client in world.clients.items()
        if client.lost_session and name not in crashed
    ]


def _crashed_brokers(world: PubsubWorld) -> int:
    crashes = Counter(getattr(f, "node", "") for f in world.scenario.fault if type(f).__name__ in ("Crash", "Leave"))
    return sum(count for name, count in crashes.items() if name in world.layout.parents)
