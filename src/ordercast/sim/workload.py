"""Loads of a scenario under virtual time. Every draw belongs to (load, publisher, number): loads do not interfere."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any, assert_never

from ordercast.core.chance import exponential, mix, unit
from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId, Topic
from ordercast.core.messages import GUARANTEES
from ordercast.scenario.checking import check_load, check_step
from ordercast.scenario.choosing import Chooser, DrawnLoad, publishers_of
from ordercast.scenario.model import BurstLoad, ClosedLoad, OpenLoad, ReplyLoad, Schedule, Step
from ordercast.sim.clock import ns
from ordercast.sim.publishing import Published, Publisher, Windowed, WorkloadView

_GAP, _REPLY = 4, 5
"""Apart from the numbers that the choosers use up."""
_NO_TOPIC = Topic("")
_LEAST_ROUND = ns(1)
_MAX_PAYLOAD = 1 << 26


def start_workload(world: WorkloadView) -> Callable[[], None]:
    """Put every load of the scenario on the calendar. The function returned ends what is drawn of it at once."""
    loads: list[_Load] = []
    for i, load in enumerate(world.scenario.workload):
        where = f"workload[{i}]"
        match load:
            case OpenLoad():
                loads.append(_OpenLoad(world, load, where))
            case ClosedLoad():
                loads.append(_ClosedLoad(world, load, where))
            case BurstLoad():
                loads.append(_Burst(world, load, where))
            case ReplyLoad():
                loads.append(_Reply(world, load, where))
            case Schedule():
                _Script(world, load, where)
            case _:
                assert_never(load)

    def end() -> None:
        for load in loads:
            load.left = 0

    return end


class _Load:
    """The common part of all kinds of load: choosing topic, guarantee, keys and destinations."""

    def __init__(self, world: WorkloadView, load: DrawnLoad, where: str) -> None:
        self.world = world
        self.load = load
        self.left = load.limit if load.limit is not None else math.inf
        people = world.population()
        check_load(load, where, people, world.scenario.duration_ms, _MAX_PAYLOAD)
        self.start = ns(load.start_ms)
        self.stop = ns(world.scenario.duration_ms if load.stop_ms is None else load.stop_ms)
        choosers = {
            node: Chooser(load, where, node, people, world.seed, world.default_guarantee)
            for node in publishers_of(load, where, people)
        }
        self.choosers = {node: chooser for node, chooser in choosers.items() if chooser.has_target}
        self.publishers = [world.host(node, where) for node in self.choosers]
        if not self.publishers:
            raise UsageError(f"{where}.topics: no publisher has a topic to publish to")
        self.counts = dict.fromkeys(self.choosers, 0)

    def publish(self, host: Publisher, told: Callable[[Published], None] | None = None) -> None:
        """One message from `host`, if it is up and the load is not over."""
        if self.left <= 0 or not host.alive or host.leaving:
            return
        self.left -= 1
        self.counts[host.node] = number = self.counts[host.node] + 1
        choice = self.choosers[host.node].choose(number)
        host.publish(choice.topic, self.load.payload_bytes, choice.guarantee, choice.keys, choice.dst, told)

    def at(self, time_ns: int, action: Callable[[Any, Any], None], a: Any, b: Any = None) -> None:
        """Call on the clock, unless the load is over by then: what does nothing must not keep the run from its rest."""
        if time_ns < self.stop:
            self.world.clock.at(time_ns, action, a, b)


class _OpenLoad(_Load):
    def __init__(self, world: WorkloadView, load: OpenLoad, where: str) -> None:
        super().__init__(world, load, where)
        self.window = load.window
        self.windowed = {host.node: host for host in self.publishers if isinstance(host, Windowed)}
        if load.window and not self.windowed:
            raise UsageError(f"{where}.window: clients of brokers do not count packets; leave it out")
        self.regular = load.arrival == "regular"
        self.gap_ns = 1e9 * len(self.publishers) / load.rate_per_s
        for i, host in enumerate(self.publishers):
            # Regular publishers take turns; others begin after a random gap of their own.
            first = self.gap_ns * i / len(self.publishers) if self.regular else self._gap(host, 0)
            self.at(self.start + int(first), self._next, host, 1)

    def _gap(self, host: Publisher, number: int) -> float:
        if self.regular:
            return self.gap_ns
        return exponential(mix(self.choosers[host.node].salted, number, _GAP), self.gap_ns)

    def _next(self, host: Publisher, number: int) -> None:
        if self.left <= 0 or self.world.clock.now >= self.stop:
            return
        if self.window and not (windowed := self.windowed[host.node]).has_room(self.window):
            windowed.when_room(self.window, self._next, host, number)
            return
        self.publish(host)
        self.at(self.world.clock.now + int(self._gap(host, number)), self._next, host, number + 1)


class _Waiting:
    """A message of a closed loop on its way: who has not delivered it, and since when it is out."""

    def __init__(self, message: Published, missing: set[NodeId], since: int) -> None:
        self.message = message
        self.missing = missing
        self.since = since


class _ClosedLoad(_Load):
    def __init__(self, world: WorkloadView, load: ClosedLoad, where: str) -> None:
        super().__init__(world, load, where)
        self.outstanding = load.outstanding
        self.gap_ns = int(1e9 * len(self.publishers) / load.rate_per_s) if load.rate_per_s else 0
        self.earliest = {host.node: self._phase(host) for host in self.publishers}
        """Of a paced publisher: before when it may not publish again."""
        self.think = ns(load.think_ms)
        self.until = load.until
        self.waiting: dict[str, _Waiting] = {}
        self.lives: Counter[NodeId] = Counter()
        self.by_node = {host.node: host for host in self.publishers}
        if load.until == "completed":
            world.completion_watchers.append(self._completed)
        else:
            world.delivery_watchers.append(self._delivered)
        world.leave_watchers.append(self._left)
        world.return_watchers.append(self._returned)
        for host in self.publishers:
            self._open_slots(host, self.start)

    def _phase(self, host: Publisher) -> int:
        return self.start + int(unit(mix(self.choosers[host.node].salted, 0, _GAP)) * self.gap_ns)

    def _open_slots(self, host: Publisher, time_ns: int) -> None:
        for _ in range(self.outstanding):
            self._plan(host, time_ns)

    def _plan(self, host: Publisher, time_ns: int) -> None:
        """The next publication at that time, or when the pace allows it."""
        if self.gap_ns:
            time_ns = max(time_ns, self.earliest[host.node])
            self.earliest[host.node] = time_ns + self.gap_ns
        self.at(time_ns, self._next, host, self.lives[host.node])

    def _next(self, host: Publisher, life: int) -> None:
        if life == self.lives[host.node]:
            self.publish(host, self._published)

    def _published(self, message: Published) -> None:
        who = message.dst or self.world.members[message.topic]
        missing = set(who) if self.until == "everyone" else {message.publisher}
        self.waiting[message.id] = _Waiting(message, missing, self.world.clock.now)

    def _delivered(self, host: Publisher, message: Published) -> None:
        self._completed(host, message.id)

    def _completed(self, host: Publisher, message_id: str) -> None:
        waiting = self.waiting.get(message_id)
        if waiting is not None:
            waiting.missing.discard(host.node)
            self._go_on_if_done(waiting)

    def _left(self, host: Publisher) -> None:
        """Nobody waits for the dead or the unsubscribed; a client whose node is down waits for nothing."""
        if not host.alive:
            self.lives[host.node] += 1
            self.waiting = {i: w for i, w in self.waiting.items() if w.message.publisher != host.node}
        for waiting in list(self.waiting.values()):
            self._go_on_if_done(waiting)

    def _returned(self, host: Publisher) -> None:
        if host.node in self.by_node:
            self._open_slots(host, max(self.start, self.world.clock.now))

    def _go_on_if_done(self, waiting: _Waiting) -> None:
        message = waiting.message
        if any(self._must_deliver(node, message) for node in waiting.missing):
            return
        del self.waiting[message.id]
        again = self.world.clock.now + self.think
        if again == waiting.since:
            again += _LEAST_ROUND  # Who waits for nobody must not publish for ever without time passing.
        self._plan(self.by_node[message.publisher], again)

    def _must_deliver(self, node: NodeId, message: Published) -> bool:
        member = bool(message.dst) or node in self.world.members[message.topic]
        return member and self.world.host(node, "").alive


class _Burst(_Load):
    def __init__(self, world: WorkloadView, load: BurstLoad, where: str) -> None:
        super().__init__(world, load, where)
        self.size = load.size
        self.every = ns(load.every_ms)
        for host in self.publishers:
            self.at(self.start, self._next, host)

    def _next(self, host: Publisher, _: None) -> None:
        for _i in range(self.size):
            self.publish(host)
        if self.left > 0:
            self.at(self.world.clock.now + self.every, self._next, host)


class _Reply(_Load):
    def __init__(self, world: WorkloadView, load: ReplyLoad, where: str) -> None:
        super().__init__(world, load, where)
        self.probability = load.probability
        self.delay = ns(load.delay_ms)
        self.max_depth = load.depth
        self.depths = world.reply_depths
        world.delivery_watchers.append(self._delivered)

    def _delivered(self, host: Publisher, message: Published) -> None:
        chooser = self.choosers.get(host.node)
        if chooser is None or message.publisher == host.node:
            return
        depth = self.depths.get(message.id, 0) + 1
        bits = mix(chooser.salted, zlib.crc32(message.id.encode()), _REPLY)
        if depth <= self.max_depth and unit(bits) < self.probability:
            self.at(self.world.clock.now + self.delay, self._answer, host, depth)

    def _answer(self, host: Publisher, depth: int) -> None:
        def remember(answer: Published) -> None:
            self.depths[answer.id] = depth

        self.publish(host, remember)


class _Script:
    """An explicit schedule."""

    def __init__(self, world: WorkloadView, load: Schedule, where: str) -> None:
        self.world = world
        self.after: dict[tuple[NodeId, str], list[tuple[Publisher, Step]]] = {}
        for i, step in enumerate(load.steps):
            self._plan(step, f"{where}.steps[{i}]")
        if self.after:
            world.delivery_watchers.append(self._delivered)

    def _plan(self, step: Step, where: str) -> None:
        world = self.world
        check_step(step, where, world.population(), world.scenario.duration_ms, _MAX_PAYLOAD, world.host)
        host = world.host(step.node, f"{where}.node")
        if step.at_ms is not None:
            world.clock.at(ns(step.at_ms), self._do, host, step)
        elif step.after is not None:
            self.after.setdefault((host.node, step.after), []).append((host, step))

    def _delivered(self, host: Publisher, message: Published) -> None:
        for waiting, step in self.after.pop((host.node, message.id), []):
            self.world.clock.at(self.world.clock.now, self._do, waiting, step)

    def _do(self, host: Publisher, step: Step) -> None:
        topic = Topic(step.topic) if step.topic is not None else next(iter(self.world.groups), _NO_TOPIC)
        match step.do:
            case "publish":
                guarantee = GUARANTEES[step.guarantee] if step.guarantee else self.world.default_guarantee
                dst = tuple(node for node in self.world.population().nodes if node in step.dst)
                host.publish(_NO_TOPIC if dst else topic, step.payload_bytes, guarantee, tuple(step.keys), dst)
            case "subscribe":
                host.subscribe(topic)
            case "unsubscribe":
                host.unsubscribe(topic)
