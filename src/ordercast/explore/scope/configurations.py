"""Which small configurations there are: all multisets of destination sets, or of publishers, up to a size."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations, combinations_with_replacement, product

import msgspec

from ordercast.core.errors import UsageError

Destinations = tuple[tuple[int, ...], ...]

_MOST_KINDS = 100_000
"""With more destination sets than this not even single messages can be gone through."""


class Configuration:
    """Publications to explore: message i goes to `destinations[i]`; nodes are numbered from 0."""

    def __init__(
        self,
        nodes: int,
        destinations: Destinations,
        publishers: tuple[int, ...] | None = None,
        groups: tuple[str, ...] = (),
        after: tuple[tuple[int, ...], ...] = (),
    ) -> None:
        self.nodes = nodes
        self.destinations = destinations
        self.publishers = publishers
        """The node that publishes message i; None: every message comes from a client of its own."""
        self.groups = groups
        """The group that message i goes to; empty: everything goes to everyone."""
        self.after = after or ((),) * len(destinations)
        """What the publisher of message i must have delivered or published before."""
        self.messages = len(destinations)
        self.due = [frozenset(i for i, d in enumerate(destinations) if node in d) for node in range(nodes)]
        """By node: the messages that it must deliver."""

    def twins(self, message: int) -> list[int]:
        """The messages with the same destinations, itself included: a client could not tell them apart."""
        return [i for i, members in enumerate(self.destinations) if members == self.destinations[message]]

    def __str__(self) -> str:
        if self.publishers is not None and self.groups:
            pairs = zip(self.publishers, self.groups, strict=True)
            return " ".join(f"m{i + 1}@n{node}>{group}" for i, (node, group) in enumerate(pairs))
        if self.publishers is not None:
            return " ".join(f"m{i + 1}@n{node}" for i, node in enumerate(self.publishers))
        return " ".join(f"m{i + 1}{{{','.join(f'n{n}' for n in d)}}}" for i, d in enumerate(self.destinations))


class Scope(msgspec.Struct, frozen=True):
    """A finite family of configurations."""

    nodes: int
    messages: int
    sizes_from: int = 2
    total_destinations: int | None = None
    """Leave out configurations whose destination sets have more members in total."""
    broadcast: bool = False
    """Whether nodes publish to everyone, instead of clients to destinations that they name."""
    given: Configuration | None = None
    """Only this one."""
    groups: Mapping[str, tuple[int, ...]] | None = None
    """Where nodes publish to groups: their members, by name."""

    def sizes(self) -> range:
        """The numbers of messages, smallest first: a counterexample then has as few as possible."""
        return range(self.given.messages if self.given else 1, self.messages + 1)

    def configurations(self, messages: int) -> Iterator[Configuration]:
        if self.given is not None:
            yield self.given
        elif self.groups is not None:
            yield from self._to_groups(messages, self.groups)
        elif self.broadcast:
            everyone = tuple(range(self.nodes))
            for publishers in combinations_with_replacement(range(self.nodes), messages):
                yield Configuration(self.nodes, (everyone,) * messages, publishers)
        else:
            for destinations in combinations_with_replacement(self._sets(), messages):
                if self.total_destinations is None or sum(map(len, destinations)) <= self.total_destinations:
                    yield Configuration(self.nodes, destinations)

    def count(self, messages: int) -> int:
        """How many configurations with so many messages there are."""
        if self.given is not None:
            return 1
        if self.broadcast:
            ways: int = pow(1 if self.groups is None else len(self.groups), messages)
            return ways * _multisets(self.nodes, messages)
        if self.total_destinations is None:
            return _multisets(self.kinds(), messages)
        return self._count_bounded(messages, self.total_destinations)

    def _to_groups(self, messages: int, groups: Mapping[str, tuple[int, ...]]) -> Iterator[Configuration]:
        """Configurations to these groups. One node's publications have an order; the search chooses the rest."""
        for publishers in combinations_with_replacement(range(self.nodes), messages):
            for names in product(groups, repeat=messages):
                yield Configuration(self.nodes, tuple(groups[name] for name in names), publishers, names)

    def kinds(self) -> int:
        """How many destination sets there are."""
        return sum(math.comb(self.nodes, size) for size in self._set_sizes())

    def _count_bounded(self, messages: int, total: int) -> int:
        """By (messages, destinations) so far: the ways to choose sets of the sizes looked at so far."""
        ways: Counter[tuple[int, int]] = Counter({(0, 0): 1})
        for size in self._set_sizes():
            kinds = math.comb(self.nodes, size)
            longer: Counter[tuple[int, int]] = Counter()
            for (chosen, used), count in ways.items():
                for more in range(min(messages - chosen, (total - used) // size) + 1):
                    longer[chosen + more, used + more * size] += count * _multisets(kinds, more)
            ways = longer
        return sum(count for (chosen, _), count in ways.items() if chosen == messages)

    def _set_sizes(self) -> range:
        return range(self.sizes_from, self.nodes + 1)

    def _sets(self) -> list[tuple[int, ...]]:
        return [members for size in self._set_sizes() for members in combinations(range(self.nodes), size)]


def check_scope(scope: Scope) -> None:
    """A scope with nothing in it would hold vacuously: say what is wrong instead."""
    if scope.nodes < 1:
        raise UsageError(f"nodes: {scope.nodes} is not at least 1")
    if scope.messages < 1:
        raise UsageError(f"messages: {scope.messages} is not at least 1")
    if scope.given is None and not 1 <= scope.sizes_from <= scope.nodes:
        raise UsageError(f"sizes_from: {scope.sizes_from} is not between 1 and the number of nodes, {scope.nodes}")
    if scope.given is None and not scope.broadcast and scope.kinds() > _MOST_KINDS:
        raise UsageError(
            f"nodes: {scope.nodes} nodes have {scope.kinds()} destination sets; name some with destinations"
        )
    if not any(scope.count(messages) for messages in scope.sizes()):
        raise UsageError("total_destinations: leaves no configuration to explore")


def _multisets(kinds: int, size: int) -> int:
    return math.comb(kinds + size - 1, size) if size else 1


def parse_destinations(text: str, nodes: int) -> Destinations:
    """`0,2;1,2` as destination sets: messages are separated by semicolons, their nodes by commas."""
    return tuple(_parse_set(part, nodes) for part in text.split(";"))


def parse_node(word: str, nodes: int, field: str) -> int:
    """`2` or `n2` as a node."""
    name = word.strip().removeprefix("n")
    if not (name.isascii() and name.isdecimal()) or len(name) > 9 or int(name) >= nodes:
        raise UsageError(f"{field}: {word.strip()!r} is not a node from 0 to {nodes - 1}")
    return int(name)


def _parse_set(text: str, nodes: int) -> tuple[int, ...]:
    members = [parse_node(word, nodes, "destinations") for word in text.split(",")]
    if len(set(members)) != len(members):
        raise UsageError(f"destinations: {text.strip()!r} names a node twice")
    return tuple(sorted(members))
