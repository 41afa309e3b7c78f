"""The scope of an exploration of brokers: a small tree, its clients, what they publish and what may go wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import combinations_with_replacement
from typing import Any

import msgspec

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId, Topic
from ordercast.core.messages import GUARANTEES, Guarantee
from ordercast.explore.scope.publications import Edges
from ordercast.pubsub.settings import BrokerSettings

_MOST = 4
"""Brokers, and clients: more than so many have more interleavings than anybody can wait for."""
_CLIENT = re.compile(r"\s*b?(?P<edge>\d+)\s*:\s*(?P<topics>\S+)\s*")
_PUBLICATION = re.compile(r"\s*c?(?P<client>\d+)\s*>\s*(?P<topic>[^\s!]+)(\s+(?P<guarantee>[a-z]+))?\s*")


class ExploredClient(msgspec.Struct, frozen=True):
    """A client: the broker it begins at, and what it subscribes to before anything else happens."""

    edge: int
    topics: tuple[Topic, ...]
    """A name, or a filter such as `a.>`."""

    def __str__(self) -> str:
        return f"b{self.edge}:{'+'.join(self.topics)}"


class Talk(msgspec.Struct, frozen=True):
    """One publication by a client."""

    client: int
    topic: Topic
    guarantee: Guarantee = Guarantee.CAUSAL

    def __str__(self) -> str:
        return f"c{self.client}>{self.topic} {self.guarantee.label}"


class Trouble(msgspec.Struct, frozen=True):
    """The faults that may happen, each at any moment and once."""

    crash: int | None = None
    """This broker dies."""
    returns: bool = False
    """... and starts again, without its memory."""
    cut: int | None = None
    """The connection of this client breaks."""
    early: int = 0
    """So often a timer runs out although something is on its way, as where links are slower than its period."""
    timer: str = "stability"
    """Which timers may: those with this word in their names."""


class BrokerScope(msgspec.Struct, frozen=True, kw_only=True):
    """All publications by `members` on a tree, up to a number of them, or exactly the given ones."""

    brokers: int
    members: tuple[ExploredClient, ...]
    parents: tuple[int | None, ...]
    messages: int = 2
    talks: tuple[Talk, ...] | None = None
    guarantee: Guarantee = Guarantee.CAUSAL
    trouble: Trouble = Trouble()
    settings: BrokerSettings = BrokerSettings()

    def configurations(self, messages: int) -> Iterator[tuple[Talk, ...]]:
        """Who publishes how often, in all ways; on the first topic that has a name."""
        if self.talks is not None:
            yield self.talks
            return
        topic = self._topic()
        for clients in combinations_with_replacement(range(len(self.members)), messages):
            yield tuple(Talk(client, topic, self.guarantee) for client in clients)

    def sizes(self) -> list[int]:
        return [len(self.talks)] if self.talks is not None else list(range(1, self.messages + 1))

    def _topic(self) -> Topic:
        names = [topic for member in self.members for topic in member.topics]
        plain = [topic for topic in names if not is_filter(topic)]
        return plain[0] if plain else Topic(re.sub(r"[*>]", "x", names[0]))


def is_filter(topic: str) -> bool:
    return bool({"*", ">"} & set(topic.split(".")))


def check_scope(scope: BrokerScope) -> None:
    """Refuse what makes no sense."""
    for what, count in (("nodes", scope.brokers), ("clients", len(scope.members))):
        if not 1 <= count <= _MOST:
            raise UsageError(f"{what}: {count} is not from 1 to {_MOST}")
    for member in scope.members:
        _check(member.edge, scope.brokers, "clients", "broker b")
    for talk in scope.talks or ():
        _check(talk.client, len(scope.members), "publish", "client c")
        if is_filter(talk.topic):
            raise UsageError(f"publish: {talk.topic!r} is a filter; a publication has one topic")
    trouble = scope.trouble
    if trouble.crash is not None:
        _check(trouble.crash, scope.brokers, "crash", "broker b")
    if trouble.cut is not None:
        _check(trouble.cut, len(scope.members), "cut", "client c")
    if trouble.cut is not None and scope.settings.partitions == "excluded":
        raise UsageError("cut: with partitions = excluded a broken connection means a dead client")


def _check(number: int, count: int, where: str, what: str) -> None:
    if not 0 <= number < count:
        raise UsageError(f"{where}: there is no {what}{number}")


def tree_of(overlay: str, brokers: int, edges: Edges) -> tuple[int | None, ...]:
    """By broker: its parent. b0 is the root."""
    if edges:
        parents: dict[int, int | None] = {0: None}
        while grown := [(a, b) for edge in edges for a, b in (edge, edge[::-1]) if a in parents and b not in parents]:
            parents[grown[0][1]] = grown[0][0]
        if len(parents) != brokers or len(edges) != brokers - 1:
            raise UsageError("edges: they are not a tree")
        return tuple(parents[i] for i in range(brokers))
    if overlay not in ("line", "star"):
        raise UsageError(f"overlay: brokers stand in a line or a star, not a {overlay}")
    return tuple(None if i == 0 else i - 1 if overlay == "line" else 0 for i in range(brokers))


def parse_members(text: str) -> tuple[ExploredClient, ...]:
    """`0:a;1:a+b.>`: c0 at b0 subscribes to a, c1 at b1 to a and to everything below b."""
    members = []
    for part in text.split(";"):
        match = _CLIENT.fullmatch(part)
        if match is None:
            raise UsageError(f"clients: {part.strip()!r} is not like '0:a' or '1:a+b.>'")
        members.append(ExploredClient(int(match["edge"]), tuple(Topic(topic) for topic in match["topics"].split("+"))))
    return tuple(members)


def parse_talk(text: str, default: Guarantee) -> Talk:
    """`0>a` or `0>a total`."""
    match = _PUBLICATION.fullmatch(text)
    if match is None or (match["guarantee"] or "causal") not in GUARANTEES:
        raise UsageError(f"publish: {text.strip()!r} is not like '0>a' or '0>a total'")
    guarantee = GUARANTEES[match["guarantee"]] if match["guarantee"] else default
    return Talk(int(match["client"]), Topic(match["topic"]), guarantee)


def parse_number(text: str, where: str) -> int:
    """`1`, `b1` or `c1`."""
    match = re.fullmatch(r"\s*[bc]?(\d+)\s*", text)
    if match is None:
        raise UsageError(f"{where}: {text.strip()!r} is not like '1'")
    return int(match[1])


def parse_crash(text: str) -> tuple[int, bool]:
    """`1`: b1 may crash. `1 returns`: and start again."""
    number, _, returns = text.strip().partition(" ")
    if returns not in ("", "returns"):
        raise UsageError(f"crash: {text.strip()!r} is not like '1' or '1 returns'")
    return parse_number(number, "crash"), bool(returns)


def settings_of(options: Mapping[str, Any]) -> BrokerSettings:
    """The options, checked."""
    try:
        return msgspec.convert(dict(options), BrokerSettings)
    except msgspec.ValidationError as error:
        raise UsageError(f"options of broker: {error}") from None


def broker_name(number: int) -> NodeId:
    return NodeId(f"b{number}")


def client_name(number: int) -> NodeId:
    return NodeId(f"c{number}")
