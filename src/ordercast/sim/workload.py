"""Who publishes what and when. Every draw belongs to (load, publisher, number), so loads do not disturb each other."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, assert_never

from ordercast.core.chance import exponential, mix, salt, shuffled, unit
from ordercast.core.errors import UsageError, unknown_name
from ordercast.core.ids import NodeId, Topic
from ordercast.core.messages import GUARANTEES, Guarantee, Message
from ordercast.scenario.model import BurstLoad, ClosedLoad, OpenLoad, ReplyLoad, Schedule, Step
from ordercast.sim.host import Host
from ordercast.sim.scheduler import ns
from ordercast.sim.world import World

AnyLoad = OpenLoad | ClosedLoad | BurstLoad | ReplyLoad

_TOPIC, _GUARANTEE, _KEY, _GAP, _REPLY = 1, 2, 3, 4, 5
_NO_TOPIC = Topic("")


def start_workload(world: World) -> None:
    """Put every load of the scenario on the calendar."""
    for i, load in enumerate(world.scenario.workload):
        where = f"workload[{i}]"
        match load:
            case OpenLoad():
                _Open(world, load, where)
            case ClosedLoad():
                _Closed(world, load, where)
            case BurstLoad():
                _Burst(world, load, where)
            case ReplyLoad():
                _Reply(world, load, where)
            case Schedule():
                _Script(world, load, where)
            case _:
                assert_never(load)


class _Load:
    """What the kinds of load have in common: choosing topic, guarantee, keys and destinations."""

    def __init__(self, world: World, load: AnyLoad, where: str) -> None:
        self.world = world
        self.load = load
        self.left = load.limit if load.limit is not None else math.inf
        self.start = ns(load.start_ms)
        self.stop = ns(min(load.stop_ms or math.inf, world.scenario.duration_ms))
        self.payload = bytes(load.payload_bytes) if load.payload_bytes >= 0 else b""
        _check_common(load, where)
        self.publishers = self._publishers(where)
        self.salts = {host.node: salt(world.seed, where, host.node) for host in self.publishers}
        self.counts = dict.fromkeys(self.salts, 0)
        self._topics = self._topic_lists(where)
        self._guarantees = _guarantee_shares(load.guarantee, world.protocol.guarantee, where)

    def publish(self, host: Host) -> bool:
        """One message from `host`, if the load is not over; says whether it was published."""
        if self.left <= 0 or not host.alive or self.world.clock.now > self.stop:
            return False
        self.left -= 1
        self.counts[host.node] = number = self.counts[host.node] + 1
        bits = mix(self.salts[host.node], number)
        topic, dst = self._target(host, bits)
        host.publish(topic, self.payload, self._guarantee(bits), self._keys(bits), dst)
        return True

    def _target(self, host: Host, bits: int) -> tuple[Topic, tuple[NodeId, ...]]:
        if self.load.destinations:
            chosen = set(shuffled(self.world.graph.nodes, bits, "dst")[: self.load.destinations])
            return _NO_TOPIC, tuple(node for node in self.world.graph.nodes if node in chosen)
        topics, weights = self._topics[host.node]
        return topics[_weighted(weights, mix(bits, _TOPIC))], ()

    def _guarantee(self, bits: int) -> Guarantee:
        guarantees, weights = self._guarantees
        return guarantees[_weighted(weights, mix(bits, _GUARANTEE))]

    def _keys(self, bits: int) -> tuple[str, ...]:
        if not self.load.keys:
            return ()
        drawn = {mix(bits, _KEY, i) % self.load.keys for i in range(self.load.keys_per_message)}
        return tuple(f"k{key}" for key in sorted(drawn))

    def _publishers(self, where: str) -> list[Host]:
        if self.load.publishers == "all":
            return list(self.world.hosts.values())
        if not self.load.publishers:
            raise UsageError(f"{where}.publishers: nobody publishes")
        return [self.world.host(name, f"{where}.publishers") for name in self.load.publishers]

    def _topic_lists(self, where: str) -> dict[NodeId, tuple[Sequence[Topic], list[float]]]:
        """For each publisher the topics it chooses from and their cumulated weights."""
        groups = self.world.groups
        lists: dict[NodeId, tuple[Sequence[Topic], list[float]]] = {}
        for host in self.publishers:
            match self.load.topics:
                case "any":
                    topics = list(groups)
                case "member":
                    topics = [topic for topic, members in groups.items() if host.node in members]
                case given:
                    for topic in given:
                        if topic not in groups:
                            raise UsageError(f"{where}.topics: {unknown_name('topic', topic, groups)}")
                    topics = [Topic(topic) for topic in given]
            lists[host.node] = (topics, _cumulated(len(topics), self.load.popularity))
        if not self.load.destinations:
            self.publishers = [host for host in self.publishers if lists[host.node][0]]
            if not self.publishers:
                raise UsageError(f"{where}.topics: no publisher has a topic to publish to")
        return lists


class _Open(_Load):
    def __init__(self, world: World, load: OpenLoad, where: str) -> None:
        super().__init__(world, load, where)
        if not (load.rate_per_s > 0 and math.isfinite(load.rate_per_s)):
            raise UsageError(f"{where}.rate_per_s: {load.rate_per_s} is not a positive rate")
        self.regular = load.arrival == "regular"
        self.gap_ns = 1e9 * len(self.publishers) / load.rate_per_s
        for i, host in enumerate(self.publishers):
            # Regular publishers take turns; others begin after a random gap of their own.
            first = self.gap_ns * i / len(self.publishers) if self.regular else self._gap(host, 0)
            world.clock.at(self.start + int(first), self._next, host, 1)

    def _gap(self, host: Host, number: int) -> float:
        if self.regular:
            return self.gap_ns
        return exponential(mix(self.salts[host.node], number, _GAP), self.gap_ns)

    def _next(self, host: Host, number: int) -> None:
        clock = self.world.clock
        if clock.now > self.stop or self.left <= 0:
            return
        self.publish(host)
        # A sum of rounded gaps would drift; the loss of less than a nanosecond a message does not matter here.
        clock.at(clock.now + int(self._gap(host, number)), self._next, host, number + 1)


class _Closed(_Load):
    def __init__(self, world: World, load: ClosedLoad, where: str) -> None:
        super().__init__(world, load, where)
        if load.outstanding < 1 or load.think_ms < 0:
            raise UsageError(f"{where}: a closed load needs outstanding >= 1 and think_ms >= 0")
        self.think = ns(load.think_ms)
        self.own_delivery = load.until == "self"
        self.waiting: dict[str, set[NodeId]] = {}
        self.publishing = False
        self.by_node = {host.node: host for host in self.publishers}
        world.publish_watchers.append(self._published)
        world.delivery_watchers.append(self._delivered)
        for host in self.publishers:
            for _ in range(load.outstanding):
                world.clock.at(self.start, self._next, host)

    def _next(self, host: Host, _: None = None) -> None:
        clock = self.world.clock
        self.publishing = True
        published = self.publish(host)
        self.publishing = False
        if not published and not host.alive and clock.now <= self.stop:
            clock.at(clock.now + ns(10), self._next, host)  # A client goes on once its node is back.

    def _published(self, host: Host, message: Message) -> None:
        if not self.publishing:
            return
        who = message.dst or self.world.members[message.topic]
        self.waiting[message.id] = {host.node} if self.own_delivery else set(who)

    def _delivered(self, host: Host, message: Message) -> None:
        missing = self.waiting.get(message.id)
        if missing is None:
            return
        missing.discard(host.node)
        if all(not self.world.hosts[node].alive for node in missing):
            del self.waiting[message.id]
            clock = self.world.clock
            clock.at(clock.now + self.think, self._next, self.by_node[message.publisher])


class _Burst(_Load):
    def __init__(self, world: World, load: BurstLoad, where: str) -> None:
        super().__init__(world, load, where)
        if load.size < 1 or load.every_ms <= 0:
            raise UsageError(f"{where}: a burst load needs size >= 1 and every_ms > 0")
        self.size = load.size
        self.every = ns(load.every_ms)
        for host in self.publishers:
            world.clock.at(self.start, self._next, host)

    def _next(self, host: Host, _: None) -> None:
        clock = self.world.clock
        if clock.now > self.stop or self.left <= 0:
            return
        for _i in range(self.size):
            self.publish(host)
        clock.at(clock.now + self.every, self._next, host)


class _Reply(_Load):
    def __init__(self, world: World, load: ReplyLoad, where: str) -> None:
        super().__init__(world, load, where)
        if not 0 < load.probability <= 1 or load.delay_ms < 0 or load.depth < 1:
            raise UsageError(f"{where}: a reply load needs 0 < probability <= 1, delay_ms >= 0 and depth >= 1")
        self.probability = load.probability
        self.delay = ns(load.delay_ms)
        self.max_depth = load.depth
        self.depths: dict[str, int] = {}
        self.replying_to: str | None = None
        world.publish_watchers.append(self._published)
        world.delivery_watchers.append(self._delivered)

    def _published(self, _host: Host, message: Message) -> None:
        if self.replying_to is not None:
            self.depths[message.id] = self.depths.get(self.replying_to, 0) + 1

    def _delivered(self, host: Host, message: Message) -> None:
        salted = self.salts.get(host.node)
        if salted is None or message.publisher == host.node or self.depths.get(message.id, 0) >= self.max_depth:
            return
        if unit(mix(salted, hash_id(message.id), _REPLY)) < self.probability:
            clock = self.world.clock
            clock.at(clock.now + self.delay, self._answer, host, message.id)

    def _answer(self, host: Host, to: str) -> None:
        self.replying_to = to
        self.publish(host)
        self.replying_to = None


class _Script:
    """An explicit schedule."""

    def __init__(self, world: World, load: Schedule, where: str) -> None:
        self.world = world
        self.after: dict[tuple[NodeId, str], list[tuple[Host, Step]]] = {}
        for i, step in enumerate(load.steps):
            self._plan(step, f"{where}.steps[{i}]")
        if self.after:
            world.delivery_watchers.append(self._delivered)

    def _plan(self, step: Step, where: str) -> None:
        host = self.world.host(step.node, f"{where}.node")
        _check_step(self.world, step, where)
        if step.at_ms is not None:
            self.world.clock.at(ns(step.at_ms), self._do, host, step)
        elif step.after is not None:
            self.after.setdefault((host.node, step.after), []).append((host, step))

    def _delivered(self, host: Host, message: Message) -> None:
        for waiting, step in self.after.pop((host.node, message.id), []):
            self.world.clock.at(self.world.clock.now, self._do, waiting, step)

    def _do(self, host: Host, step: Step) -> None:
        topic = Topic(step.topic) if step.topic is not None else next(iter(self.world.groups), _NO_TOPIC)
        match step.do:
            case "publish":
                guarantee = GUARANTEES[step.guarantee] if step.guarantee else self.world.protocol.guarantee
                dst = tuple(node for node in self.world.graph.nodes if node in step.dst)
                host.publish(_NO_TOPIC if dst else topic, bytes(step.payload_bytes), guarantee, tuple(step.keys), dst)
            case "subscribe":
                host.subscribe(topic)
            case "unsubscribe":
                host.unsubscribe(topic)


def hash_id(message_id: str) -> int:
    """An integer for a message id that does not depend on PYTHONHASHSEED."""
    return int.from_bytes(message_id.encode()[-16:], "little")


def _check_step(world: World, step: Step, where: str) -> None:
    if (step.at_ms is None) == (step.after is None):
        raise UsageError(f"{where}: give either at_ms or after")
    if step.at_ms is not None and not 0 <= step.at_ms <= world.scenario.duration_ms:
        raise UsageError(f"{where}.at_ms: {step.at_ms} is not within the run's duration")
    if step.topic is not None and step.topic not in world.groups and step.do == "publish":
        raise UsageError(f"{where}.topic: {unknown_name('topic', step.topic, world.groups)}")
    if step.guarantee and step.guarantee not in GUARANTEES:
        raise UsageError(f"{where}.guarantee: {unknown_name('guarantee', step.guarantee, GUARANTEES)}")
    for name in step.dst:
        world.host(name, f"{where}.dst")


def _check_common(load: AnyLoad, where: str) -> None:
    checks: dict[str, Any] = {
        "payload_bytes": load.payload_bytes,
        "start_ms": load.start_ms,
        "popularity": load.popularity,
        "destinations": load.destinations,
        "keys": load.keys,
    }
    for name, value in checks.items():
        if value < 0:
            raise UsageError(f"{where}.{name}: {value} is negative")
    if load.keys_per_message < 1:
        raise UsageError(f"{where}.keys_per_message: {load.keys_per_message} is not at least 1")


def _guarantee_shares(
    asked: str | dict[str, float], default: Guarantee, where: str
) -> tuple[list[Guarantee], list[float]]:
    shares = {asked: 1.0} if isinstance(asked, str) else asked
    if not asked:
        return [default], [1.0]
    for name, share in shares.items():
        if name not in GUARANTEES:
            raise UsageError(f"{where}.guarantee: {unknown_name('guarantee', name, GUARANTEES)}")
        if share < 0:
            raise UsageError(f"{where}.guarantee.{name}: {share} is negative")
    if sum(shares.values()) <= 0:
        raise UsageError(f"{where}.guarantee: the shares add up to nothing")
    return [GUARANTEES[name] for name in shares], list(accumulate(shares.values()))


def _cumulated(count: int, exponent: float) -> list[float]:
    return list(accumulate((k + 1) ** -exponent for k in range(count)))


def _weighted(cumulated: list[float], bits: int) -> int:
    """An index with probability by weight."""
    return min(bisect_right(cumulated, unit(bits) * cumulated[-1]), len(cumulated) - 1)
