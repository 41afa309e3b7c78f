"""Draws the messages of a load: pure functions of seed, load, publisher and number, the same in every runtime."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

import msgspec

from ordercast.core.chance import mix, salt, unit
from ordercast.core.errors import UsageError, unknown_name
from ordercast.core.ids import NodeId, Topic
from ordercast.core.messages import GUARANTEES, Guarantee
from ordercast.core.registry import is_code
from ordercast.scenario.brokers import Join
from ordercast.scenario.destinations import Choose, chooser
from ordercast.scenario.model import (
    BurstLoad,
    ClosedLoad,
    Fault,
    OpenLoad,
    RandomTo,
    ReplyLoad,
    Scenario,
    Schedule,
    Workload,
)

DrawnLoad = OpenLoad | ClosedLoad | BurstLoad | ReplyLoad
"""Loads whose messages are drawn; a schedule spells its own out."""

_TOPIC, _GUARANTEE, _KEY = 1, 2, 3
_NO_TOPIC = Topic("")


class Population(msgspec.Struct, frozen=True):
    """The nodes that are there, as far as a load has to know."""

    nodes: tuple[NodeId, ...]
    servers: tuple[NodeId, ...]
    clients: tuple[NodeId, ...]
    groups: Mapping[Topic, tuple[NodeId, ...]]


class Choice(msgspec.Struct, frozen=True):
    """A message but for its origin, number and payload."""

    topic: Topic
    guarantee: Guarantee
    keys: tuple[str, ...]
    dst: tuple[NodeId, ...]


def protocol_of(scenario: Scenario, chosen: str | None) -> str:
    """The protocol that the user names, or else the scenario. A scenario is data: code runs only if the user names it.

    Raises:
        UsageError: only the scenario names a file or module.
    """
    if chosen is None and is_code(scenario.protocol):
        raise UsageError(
            f"protocol: {scenario.protocol!r} is code, which a scenario alone does not load; "
            f"if you trust it: --protocol {scenario.protocol}"
        )
    return chosen or scenario.protocol


class Chooser:
    """Draws the messages of one load at one publisher."""

    def __init__(
        self, load: DrawnLoad, where: str, node: NodeId, people: Population, seed: int, default: Guarantee
    ) -> None:
        self.salted = salt(seed, where, node)
        self._load = load
        self._choose = _destinations(load, where, people)
        self._topics = topics_of(load, where, node, people)
        self._topic_weights = _cumulated(len(self._topics), load.popularity)
        self._guarantees, self._guarantee_weights = _guarantee_shares(load.guarantee, default, where)

    @property
    def has_target(self) -> bool:
        """Whether there is anybody this publisher can address."""
        return self._choose is not None or bool(self._topics)

    def choose(self, number: int) -> Choice:
        """The `number`-th message, counted from 1."""
        bits = mix(self.salted, number)
        topic = _NO_TOPIC
        dst: tuple[NodeId, ...] = ()
        if self._choose is not None:
            dst = self._choose(bits)
        else:
            topic = self._topics[_weighted(self._topic_weights, mix(bits, _TOPIC))]
        guarantee = self._guarantees[_weighted(self._guarantee_weights, mix(bits, _GUARANTEE))]
        return Choice(topic, guarantee, self._keys(bits), dst)

    def _keys(self, bits: int) -> tuple[str, ...]:
        if not self._load.keys:
            return ()
        drawn = {mix(bits, _KEY, i) % self._load.keys for i in range(self._load.keys_per_message)}
        return tuple(f"k{key}" for key in sorted(drawn))


def publishers_of(load: DrawnLoad, where: str, people: Population) -> list[NodeId]:
    """The publishers of the load, in the order of nodes or as listed."""
    if load.publishers == "all":
        return list(people.nodes)
    if load.publishers == "clients":
        return list(people.clients or people.nodes)
    if not load.publishers:
        raise UsageError(f"{where}.publishers: nobody publishes")
    for name in load.publishers:
        if name not in people.nodes:
            raise UsageError(f"{where}.publishers: {unknown_name('node', name, people.nodes)}")
    return [NodeId(name) for name in load.publishers]


def joining(faults: Iterable[Fault]) -> list[NodeId]:
    """Nodes of the overlay that are not there from the beginning."""
    return [NodeId(fault.node) for fault in faults if isinstance(fault, Join)]


def topics_of(load: DrawnLoad, where: str, node: NodeId, people: Population) -> list[Topic]:
    """The topics that the publisher chooses from."""
    match load.topics:
        case "any":
            return list(people.groups)
        case "member":
            return [topic for topic, members in people.groups.items() if node in members]
        case given:
            for name in given:
                if name not in people.groups:
                    raise UsageError(f"{where}.topics: {unknown_name('topic', name, people.groups)}")
            return [Topic(name) for name in given]


def claimed_guarantee(workload: Iterable[Workload], default: Guarantee) -> str:
    """The one guarantee of all messages, or `mixed`."""
    labels: set[str] = set()
    for load in workload:
        if isinstance(load, Schedule):
            asked = [step.guarantee for step in load.steps if step.do == "publish"]
        else:
            asked = [load.guarantee] if isinstance(load.guarantee, str) else list(load.guarantee)
        labels |= {label or default.label for label in asked}
    return labels.pop() if len(labels) == 1 else "mixed"


def _destinations(load: DrawnLoad, where: str, people: Population) -> Choose | None:
    """The choice of destinations for a message without topic; None: it has a topic."""
    if load.to is not None and load.destinations:
        raise UsageError(f"{where}: give either destinations or to")
    to = RandomTo(count=load.destinations) if load.destinations else load.to
    return chooser(to, people.servers, f"{where}.to") if to is not None else None


def _guarantee_shares(
    asked: str | dict[str, float], default: Guarantee, where: str
) -> tuple[list[Guarantee], list[float]]:
    if not asked:
        return [default], [1.0]
    shares = {asked: 1.0} if isinstance(asked, str) else asked
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


def _weighted(cumulated: Sequence[float], bits: int) -> int:
    """An index with probability by weight."""
    return min(bisect_right(cumulated, unit(bits) * cumulated[-1]), len(cumulated) - 1)
