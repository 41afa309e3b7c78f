"""A group at work under virtual time: leaders, members and the topics between them, with crashes drawn from a seed.

The topics keep what the broker tree promises of them: of one publisher in order, to each subscriber once. The session
of a new leader fences the one before, and it sees whatever that had written down.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from ordercast.client.work.leader import WorkLeader, WorkSettings
from ordercast.client.work.member import WorkInHand, WorkMember
from ordercast.client.work.words import GroupProgress, Orders, Report
from ordercast.core.ids import Origin, Topic
from ordercast.pubsub.publications import Publication, PublicationId
from tests.support.work_judge import Handed, WorkStory

MS = 1_000_000
SETTINGS = WorkSettings(window=4, silent_ms=500, max_attempts=50)


@dataclass
class Process:
    """One client with a member, and maybe the leader."""

    name: str
    worker: WorkMember
    alive: bool = True
    troubled: bool = False
    """It was killed, stood still or left."""
    stalled_until: int = 0
    leader: WorkLeader | None = None
    in_hand: dict[PublicationId, Handed] = field(default_factory=dict)
    waiting: list[tuple[int, Handed]] = field(default_factory=list)


class WorkLab:
    """Runs the group until all work is done, or the time is up."""

    def __init__(self, seed: int, *, settings: WorkSettings = SETTINGS, leader: type[WorkLeader] = WorkLeader) -> None:
        self.rng = random.Random(seed)
        self.settings = settings
        self.leader_kind = leader
        self.now = 0
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.serial = 0
        self.processes: dict[str, Process] = {}
        self.log: list[Publication] = []
        self.written: list[GroupProgress] = []
        self.epochs = 0
        self.leading: str | None = None
        self.history: list[Handed] = []
        self.buried: list[PublicationId] = []
        self.links: dict[tuple[str, str], int] = {}
        self.fetched: dict[str, int] = {}

    # The medium

    def at(self, delay: int, act: Callable[[], None]) -> None:
        self.serial += 1
        heapq.heappush(self.events, (self.now + delay, self.serial, act))

    def carry(self, link: tuple[str, str], act: Callable[[], None]) -> None:
        """In order on each link, after some time."""
        arrival = max(self.links.get(link, 0) + 1, self.now + self.rng.randrange(1, 40) * MS)
        self.links[link] = arrival
        self.at(arrival - self.now, act)

    # Processes

    def start(self, client: str, session: int = 0) -> None:
        origin = f"{client}~{session}" if session else client
        process = self.processes[origin] = Process(origin, WorkMember(origin, self.settings, self.now))
        self.at(1, lambda: self._beat(process))

    def kill(self, name: str) -> None:
        process = self.processes[name]
        process.troubled = True
        process.alive = False
        if self.leading == name:
            process.leader = None

    def stall(self, name: str, duration: int) -> None:
        """Silent and deaf for a while, its application too."""
        self.processes[name].troubled = True
        self.processes[name].stalled_until = self.now + duration

    def leave(self, name: str) -> None:
        if self.processes[name].alive:
            self.processes[name].troubled = True
            self.processes[name].worker.leave()

    def publish(self, keys: tuple[str, ...], origin: str = "pub") -> None:
        number = 1 + sum(1 for entry in self.log if entry.origin == origin)
        self.log.append(Publication(Origin(origin), number, Topic("t"), b"", keys=keys or ("",)))

    def run(self, until: int) -> None:
        while self.events and self.events[0][0] <= until:
            self.now, _, act = heapq.heappop(self.events)
            act()
        self.now = until

    # What a process does, every few milliseconds

    def _beat(self, process: Process) -> None:
        if not process.alive:
            return
        self.at(self.rng.randrange(5, 15) * MS, lambda: self._beat(process))
        if self.now < process.stalled_until:
            return
        self._work(process)
        if process.leader is None and process.worker.wants_to_lead(self.now) and self.leading != process.name:
            process.worker.tries_to_lead(self.now)
            self.at(self.rng.randrange(1, 30) * MS, lambda: self._take_over(process))
        if process.leader is not None:
            self._lead(process, process.leader)
        report = process.worker.report(self.now)
        if report is not None and self.leading is not None:
            to = self.leading
            self.carry((process.name, "reports"), lambda: self._reported(to, report))
        if report is not None and report.leaving:
            process.alive = process.leader is not None

    def _take_over(self, process: Process) -> None:
        """A new session under the group's name: the one before is fenced, and all that it wrote is seen."""
        if not process.alive or self.now < process.stalled_until:
            return
        if self.leading is not None:
            self.processes[self.leading].leader = None
        self.leading = process.name
        self.epochs += 1
        last = self.written[-1] if self.written else None
        process.leader = self.leader_kind(self.epochs, last, self.settings, self.now)
        self.fetched[process.name] = 0
        order = list(range(len(self.log)))
        process.leader.arrive([self.log[i] for i in order])
        self.fetched[process.name] = len(self.log)

    def _lead(self, process: Process, leader: WorkLeader) -> None:
        leader.tick(self.now)
        leader.arrive(self.log[self.fetched[process.name] :])
        self.fetched[process.name] = len(self.log)
        for unit, _ in leader.buried:
            self.buried.append(unit.id)
            leader.bury(unit)
        leader.buried = []
        progress = leader.progress()
        if progress is not None:
            version = leader.version
            link = f"leader{leader.epoch}", "state"
            self.carry(link, lambda: self._written(process, leader, progress, version))
        for orders in leader.orders():
            target = orders.member.rpartition("/")[0]
            self.carry((f"leader{leader.epoch}", target), lambda orders=orders: self._ordered(orders))  # type: ignore[misc]

    def _written(self, process: Process, leader: WorkLeader, progress: GroupProgress, version: int) -> None:
        """The broker tree takes it only from a session that is not fenced."""
        if process.alive and process.leader is leader:
            self.written.append(progress)
            leader.recorded(version)

    def _reported(self, to: str, report: Report) -> None:
        leader = self.processes[to].leader if to in self.processes else None
        if self.leading is not None and self.leading != to:
            leader = self.processes[self.leading].leader  # Who joins the topic later gets what is not stable.
        if leader is not None:
            leader.report(report)

    def _ordered(self, orders: Orders) -> None:
        process = self.processes.get(orders.member.rpartition("/")[0])
        if process is None or not process.alive:
            return
        if self.now < process.stalled_until:
            self.at(process.stalled_until - self.now, lambda: self._ordered(orders))
            return
        process.worker.orders(orders, self.now)

    # The application

    def _work(self, process: Process) -> None:
        worker = process.worker
        if self.now < worker.safe_until_ns:
            ready, worker.ready = worker.ready, []
            for held in ready:
                self._hand(process, held)
        lost, worker.lost = worker.lost, []
        for held in lost:
            handed = process.in_hand.pop(held.id, None)
            if handed is not None:
                handed.ended = self.now
        process.waiting = [(number, handed) for number, handed in process.waiting if number > worker.void]
        for number, handed in process.waiting:
            if number <= worker.confirmed:
                handed.confirmed = self.now
        process.waiting = [(number, handed) for number, handed in process.waiting if handed.confirmed is None]

    def _hand(self, process: Process, held: WorkInHand) -> None:
        handed = Handed(held.id, held.keys, process.worker.member, self.now)
        process.in_hand[held.id] = handed
        self.history.append(handed)
        self.at(self.rng.randrange(1, 60) * MS, lambda: self._finish(process, held, handed))

    def _finish(self, process: Process, held: WorkInHand, handed: Handed) -> None:
        if not process.alive or process.in_hand.get(held.id) is not handed:
            return
        if self.now < process.stalled_until:
            self.at(process.stalled_until - self.now + MS, lambda: self._finish(process, held, handed))
            return
        if self.rng.random() < 0.1:
            process.worker.tried(held)
            self.at(self.rng.randrange(1, 30) * MS, lambda: self._finish(process, held, handed))
            return
        number = process.worker.done(held)
        del process.in_hand[held.id]
        handed.ended = self.now
        if number:
            handed.done = True
            process.waiting.append((number, handed))


def problems(lab: WorkLab) -> list[str]:
    """What was promised and not kept."""
    ids = [(entry.origin, entry.number) for entry in lab.log]
    place = {unit: i for i, unit in enumerate(ids)}
    blameless = [name for name, process in lab.processes.items() if not process.troubled and process.worker.life > 1]
    return [f"{name} was given up although it was never silent" for name in blameless] + WorkStory(
        ids, lab.buried, lab.history, lambda member: _dead(lab, member), lambda one, other: place[one] < place[other]
    ).problems()


def _dead(lab: WorkLab, member: str) -> bool:
    """Whether that member was given up or killed: what it did may be done again."""
    process = lab.processes[member.rpartition("/")[0]]
    return not process.alive or process.worker.member != member
