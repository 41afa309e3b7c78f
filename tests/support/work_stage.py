"""A group at work in the broker simulator: its members are programs written with the client library."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from ordercast.api.sharing.filter_work import FilterWork
from ordercast.api.work import TopicWork, Work, WorkInbox, WorkLost
from ordercast.client.work.leader import WorkSettings
from ordercast.client.work.words import dead_topic, group_topic
from ordercast.core.chance import salt
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.messages import Guarantee, Packet
from ordercast.pubsub.publications import Publication, PublicationId
from ordercast.scenario.model import Scenario
from ordercast.sim.catalogue import BROKER
from ordercast.sim.clock import ns
from ordercast.sim.pubsub.client import SimClient
from ordercast.sim.pubsub.faults import PubsubFaults
from ordercast.sim.pubsub.run import build_world, start_everybody
from ordercast.sim.pubsub.world import PubsubWorld
from ordercast.sim.workload import start_workload
from tests.support.library_stage import Program, virtual_wall_clock
from tests.support.pubsub_lab import Watch
from tests.support.work_judge import Handed, WorkStory

TOPIC, GROUP = "q", "g"
FILTER, FILTER_TOPICS = "q.*", ("q.a", "q.b")
SETTINGS = WorkSettings(window=4, silent_ms=2000, max_attempts=50)
_LOOK = ns(500)
_SAMPLE = ns(5)
_ORDERED = (Guarantee.FIFO, Guarantee.CAUSAL, Guarantee.TOTAL)
_CAUSAL = (Guarantee.CAUSAL, Guarantee.TOTAL)


def unit_of(entry: Publication) -> PublicationId:
    """A name of the unit; of two topics a publisher's first ones have the same number."""
    return Origin(f"{entry.topic} {entry.origin}"), entry.number


class Worker(Program):
    """A member of the group: deals with each unit for a while, and now and then fails."""

    def __init__(self, stage: WorkStage, name: str, edge: str, session: int) -> None:
        super().__init__(stage.world, name, edge, session)
        self.stage = stage
        self.inbox: WorkInbox | None = None
        self.leaving = False
        self.in_hand: dict[PublicationId, Handed] = {}
        self.run(self._work())

    def _parts(self) -> list[TopicWork]:
        if isinstance(self.inbox, FilterWork):
            return list(self.inbox._parts.values())
        return [self.inbox] if isinstance(self.inbox, TopicWork) else []

    def member_of(self, message: Work) -> str:
        """As the group of the message's topic knows it now."""
        assert message.inbox is not None
        return f"{self.name}.{self.session}/{message.topic}/{message.inbox.member.life}"

    def is_now(self, member: str) -> bool:
        """Whether the group of that topic knows it by that name still."""
        _, topic, life = member.split("/")
        return any(part.pattern == topic and part.member.life == int(life) for part in self._parts())

    async def _work(self) -> None:
        client = await self.connect(self.name, self.session)
        self.client = client
        pattern = self.stage.pattern_of(self.name)
        inbox = await client.subscribe(pattern, group=GROUP, start="earliest", work=self.stage.settings)
        self.inbox = inbox
        async for message in inbox:
            self.loop.create_task(self._deal(message, self._hand(message)))

    def _hand(self, message: Work) -> Handed:
        """A unit that is retried stays in hand."""
        unit, member = unit_of(message), self.member_of(message)
        handed = self.in_hand.get(unit)
        if handed is None or handed.by != member:
            keys = tuple(f"{message.topic} {key}" for key in message.keys if key)
            handed = self.in_hand[unit] = Handed(unit, keys, member, self.world.clock.now)
            self.stage.history.append(handed)
        return handed

    async def _deal(self, message: Work, handed: Handed) -> None:
        assert message.inbox is not None
        member = f"{self.name}.{self.session}/{message.inbox.member.life}"
        bits = salt(self.world.seed, member, message.id, message.attempt)
        await asyncio.sleep((1 + bits % 60) / 1000)
        if self.stage.settings.in_hand_ms and (bits >> 24) % 10 == 0:
            return  # It hangs: nothing is ever heard of this unit from here.
        if (bits >> 8) % 10 == 0:
            message.retry(after=(bits >> 16) % 30 / 1000)
            return
        if not message.over:
            self.in_hand.pop(handed.unit, None)
        handed.ended = self.world.clock.now
        handed.done = not message.over
        try:
            await message.done()
            handed.confirmed = self.world.clock.now
        except (WorkLost, ConnectionError):
            pass

    def hears_of_nobody(self) -> None:
        """As if nothing had come from the leader for long."""
        for part in self._parts():
            part.member.heard_ns -= 100 * self.stage.settings.silent_ns

    async def _leave(self) -> None:
        self.leaving = True
        await self.client.close()
        self.loop.kill()

    def leave(self) -> None:
        if self.inbox is not None and self.alive and not self.leaving:
            self.run(self._leave())


class WorkStage:
    """A world of brokers and publishers with a group beside it; everything that its members were handed."""

    def __init__(
        self, scenario: Scenario, settings: WorkSettings = SETTINGS, topics: tuple[str, ...] = (TOPIC,)
    ) -> None:
        self.settings = settings
        self.topics = topics
        self.world: PubsubWorld = build_world(scenario, BROKER, scenario.seed, None)
        self.watch = Watch(self.world)
        self.workers: dict[str, Worker] = {}
        self.former: list[Worker] = []
        self.history: list[Handed] = []
        self.buried: dict[str, int] = {}
        self.published: dict[PublicationId, Publication] = {}
        self.pasts: dict[PublicationId, set[PublicationId]] = {}
        """What the publisher of a unit had delivered when it published it, its own included."""
        self._delivered: dict[str, set[PublicationId]] = {}
        self.world.delivery_watchers.append(self._note_delivery)
        self._publish = self.world.published
        self.world.published = self._note_publication  # type: ignore[method-assign]
        self._fuses: dict[str, tuple[str, int, Callable[[], None]]] = {}
        self._begun = False
        """A copy of what the groups write down has been in the tree."""
        self.gaps: list[tuple[int, int]] = []
        """SHW-13: when no copy of what a group writes down was in the tree, if that was watched."""
        self._count = self.world.processes.tap
        self.world.processes.tap = self._sent

    # The group

    def pattern_of(self, name: str) -> str:
        """What a member shares: the topic; of several all, or now and then one of them, which others share too."""
        if len(self.topics) == 1:
            return self.topics[0]
        return self.topics[0] if name == "m1" else FILTER

    def start(self, name: str) -> None:
        """A member begins; after its death, as a new session of the same client."""
        former = self.workers.get(name)
        if former is not None:
            if former.alive:
                return
            self.former.append(former)
        session = 1 + sum(worker.name == name for worker in self.former)
        brokers = sorted(self.world.layout.parents)
        edge = brokers[salt(self.world.seed, name, session) % len(brokers)]
        self.workers[name] = Worker(self, name, edge, session)

    def leading(self) -> str:
        """Who leads, or nobody's name."""
        leads = [name for name, worker in self.workers.items() if worker.inbox is not None and worker.inbox.leads]
        return next((name for name in leads if self.workers[name].alive), "")

    def kill(self, name: str) -> None:
        if name in self.workers:
            self.workers[name].kill()

    def kill_at_packet(self, name: str, role: str, number: int) -> None:
        """Kill it when the client that is its `member`, or the `leader` that it runs, has sent so many more packets."""
        self._fuses[name] = (role, number, partial(self.kill, name))

    def stand_still_at_packet(self, name: str, role: str, number: int, duration_ns: int) -> None:
        """The same, but it goes on later."""
        self._fuses[name] = (role, number, lambda: self.workers[name].stand_still(duration_ns))

    def _sent(self, source: str, target: str, packet: Packet) -> None:
        if self._count is not None:
            self._count(source, target, packet)
        name, _, rest = source.partition(".")
        fuse = self._fuses.get(name)
        if fuse is None:
            return
        role, left, strike = fuse
        leads = not rest.endswith(".0")
        if leads == (role == "leader"):
            self._fuses[name] = (role, left - 1, strike)
            if left <= 1:
                del self._fuses[name]
                self.world.clock.at(self.world.clock.now, lambda *_: strike())

    # Copies of what the groups write down

    def watch_copies(self) -> None:
        """Note from now on when no copy of what a group writes down is in the tree."""
        now = self.world.clock.now
        records = [group_topic(topic, GROUP) for topic in self.topics]
        kept = all(any(self._keeps(name, topic) for name in self.world.brokers()) for topic in records)
        self._begun |= kept
        if self._begun and not kept:
            if self.gaps and self.gaps[-1][1] >= now - 2 * _SAMPLE:
                self.gaps[-1] = (self.gaps[-1][0], now + _SAMPLE)
            else:
                self.gaps.append((now - _SAMPLE, now + _SAMPLE))
        self.world.clock.at(now + _SAMPLE, lambda *_: self.watch_copies())

    def _keeps(self, name: str, topic: Topic) -> bool:
        """Whether the broker is a copy, and is told of everything that is published."""
        broker = self.world.brokers()[NodeId(name)]
        rule = broker.topics.kept.rule_of(topic)
        if rule is None or not broker.topics.kept.is_copy(topic, rule):
            return False
        while not broker.tree.is_root:
            node, parent = broker.topics.nodes.get(topic), broker.tree.parent_name
            if node is None or not node.up_live or parent is None or parent not in self.world.brokers():
                return False
            broker = self.world.brokers()[parent]
        return True

    def _unkept(self, start: int, end: int) -> bool:
        return any(first < end and start < last for first, last in self.gaps)

    # The run

    def live(self, until_ms: float, patience_ms: float) -> None:
        """Up to the end of all trouble, and then until all work is done, or nobody has patience any more."""
        with virtual_wall_clock(self.world.clock):
            self._live(until_ms, patience_ms)

    def _live(self, until_ms: float, patience_ms: float) -> None:
        world = self.world
        PubsubFaults(world)
        start_workload(world)
        start_everybody(world)
        world.clock.run_until(ns(until_ms))
        self._fuses.clear()
        deadline = world.clock.now + ns(patience_ms)
        while world.clock.now < deadline and (self._unfinished() or self._stirs()):
            world.clock.run_until(world.clock.now + _LOOK)

    def _unfinished(self) -> bool:
        finished = {handed.unit for handed in self.history if handed.done}
        return any(unit not in finished and not self._is_buried(unit) for unit in self.owed())

    def _stirs(self) -> bool:
        """Somebody was handed something not long ago: what died with its holder may still be handed out again."""
        last = max([handed.ended or handed.began for handed in self.history], default=0)
        return self.world.clock.now - last < 4 * ns(self.settings.silent_ms)

    def end(self) -> None:
        for worker in (*self.former, *self.workers.values()):
            worker.tidy_up()

    # What the judge needs to know

    def _note_publication(self, client: SimClient, publication: Publication) -> None:
        self._publish(client, publication)
        if publication.topic in self.topics:
            unit = unit_of(publication)
            self.published[unit] = publication
            own = {(unit[0], number) for number in range(1, publication.number)}
            self.pasts[unit] = own | self._delivered.get(client.node, set())

    def _note_delivery(self, client: SimClient, entry: Publication) -> None:
        if entry.topic in self.topics:
            self._delivered.setdefault(client.node, set()).add(unit_of(entry))
        elif entry.topic in [dead_topic(topic, GROUP) for topic in self.topics]:
            self.buried[entry.headers[b"message"].decode()] = int(entry.headers[b"attempts"])

    def owed(self) -> list[PublicationId]:
        """What the one subscriber got that was there from the beginning to the end."""
        return sorted(unit for unit in self._delivered.get("c0", ()) if unit in self.published)

    def _is_buried(self, unit: PublicationId) -> bool:
        return unit in self.published and self.published[unit].id in self.buried

    def _precedes(self, one: PublicationId, other: PublicationId) -> bool:
        mine, theirs = self.published.get(one), self.published.get(other)  # Keys are of one topic.
        if mine is None or theirs is None or one not in self.pasts[other]:
            return False
        levels = _ORDERED if mine.origin == theirs.origin else _CAUSAL
        return mine.guarantee in levels and theirs.guarantee in levels

    def _given_up(self, member: str) -> bool:
        for worker in (*self.former, *self.workers.values()):
            if f"{worker.name}.{worker.session}" == member.partition("/")[0]:
                return not worker.alive or worker.leaving or not worker.is_now(member)
        return True

    def problems(self) -> list[str]:
        buried = [unit for unit in self.published if self._is_buried(unit)]
        story = WorkStory(self.owed(), buried, self.history, self._given_up, self._precedes, self._unkept)
        found = story.problems() + self.watch.problems
        found += [f"blamed: {one} blames {other}: {why}" for one, other, why in self.world.processes.peer_errors]
        for worker in (*self.former, *self.workers.values()):
            found += [f"{worker.name}: {error}" for error in worker.loop.errors]
        return found
