"""Declaring a service: its topic and its operations, each with a consistency level and the key items it touches.

    @service(topic="bank-pt")
    class BankService:
        @operation(level="causal", keys=lambda acc, amount: [acc])
        def deposit(self, acc, amount): ...

The body of an operation is what every replica does when the operation is delivered to it: it may read its arguments,
`self.store` and `self.context`, and nothing else, so that replicas in equal states end in equal states.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from ordercast.core.errors import UsageError, unknown_name
from ordercast.core.ids import Topic
from ordercast.core.messages import Guarantee
from ordercast.pubsub.filters import check_topic

LEVELS = {
    "eventual": Guarantee.EVENTUAL,
    "fifo": Guarantee.FIFO,
    "causal": Guarantee.CAUSAL,
    "total": Guarantee.TOTAL,
    "linear": Guarantee.TOTAL,
}
"""`linear` is the source's word for `total`."""

KeyLevels = Mapping[str, str] | Callable[[str], str | None]
"""Levels declared for data: per key item, or a function from the key item; None: nothing is declared for it."""
TopicChoice = str | Callable[..., str]
P = ParamSpec("P")
S = TypeVar("S")
R = TypeVar("R")
C = TypeVar("C", bound=type)

_MARK = "__ordercast_operation__"
_SERVICE = "__ordercast_service__"


class OperationRefused(Exception):  # noqa: N818 - a decision of the operation, not an error of anybody
    """The operation's own decision not to happen, such as insufficient funds. Whatever it had written is undone."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Operation(msgspec.Struct, frozen=True):
    """The declaration of one operation."""

    name: str
    level: Guarantee
    keys: Callable[..., Iterable[str]]
    read_only: bool
    commutes_with: tuple[str, ...]
    body: Callable[..., Any]
    signature: inspect.Signature
    count: int
    """Of its arguments; -1 if that varies."""

    def arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """All arguments by position, defaults filled in; a UsageError names the operation if they do not fit."""
        if len(args) == self.count and not kwargs:
            return tuple(args)  # As they come from the wire.
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise UsageError(f"operation {self.name!r}: {error}") from None
        bound.apply_defaults()
        return bound.args

    def key_items(self, arguments: Sequence[Any]) -> tuple[str, ...]:
        """The key items in a fixed order, each once. An operation that names none touches the key "" ."""
        items = self.keys(*arguments)
        if isinstance(items, str):
            raise UsageError(f"operation {self.name!r}: keys must be a list of strings, not the string {items!r}")
        found = tuple(sorted(set(items)))
        if any(not isinstance(item, str) for item in found):
            raise UsageError(f"operation {self.name!r}: a key item is a string, {found!r} has something else")
        return found or ("",)


class Service(msgspec.Struct, frozen=True):
    """The declaration of a service."""

    name: str
    topic: TopicChoice
    operations: dict[str, Operation]
    key_levels: KeyLevels
    cls: type

    def operation(self, name: str) -> Operation:
        found = self.operations.get(name)
        if found is None:
            raise unknown_name(f"operation of {self.name}", name, self.operations)
        return found

    def topic_of(self, arguments: Sequence[Any]) -> Topic:
        """The topic of a call; a topic function gets the arguments of the operation."""
        if isinstance(self.topic, str):
            return Topic(self.topic)
        name = self.topic(*arguments)
        check_topic(name)
        return Topic(name)

    def level_of(self, operation: Operation, keys: Sequence[str]) -> Guarantee:
        """The higher of the operation's level and those declared for the keys it touches."""
        return max([operation.level, *(self._declared(key) for key in keys)]) if self.key_levels else operation.level

    def _declared(self, key: str) -> Guarantee:
        name = self.key_levels.get(key) if isinstance(self.key_levels, Mapping) else self.key_levels(key)
        return Guarantee.EVENTUAL if name is None else level_named(name)

    def commute(self, one: str, other: str) -> bool:
        """Whether replicas may do the two in different orders and still agree: declared, or both only read."""
        first, second = self.operation(one), self.operation(other)
        if first.read_only and second.read_only:
            return True
        return other in first.commutes_with or one in second.commutes_with

    def hazards(self) -> list[tuple[str, str]]:
        """Pairs of writing operations below `total` that were not declared to commute.

        Two replicas may do such a pair in different orders, and nothing makes them equal again.
        """
        writing = sorted(n for n, op in self.operations.items() if not op.read_only and op.level < Guarantee.TOTAL)
        return [(one, other) for i, one in enumerate(writing) for other in writing[i:] if not self.commute(one, other)]


def level_named(name: str) -> Guarantee:
    """The guarantee behind the name of a level."""
    level = LEVELS.get(name)
    if level is None:
        raise unknown_name("level", name, LEVELS)
    return level


def operation(
    *, level: str, keys: Callable[..., Iterable[str]] | None = None, read_only: bool = False,
    commutes_with: Iterable[str] = (),
) -> Callable[[Callable[Concatenate[S, P], R]], Callable[Concatenate[S, P], R]]:  # fmt: skip
    """Declare a method to be an operation. `keys` takes the same arguments and names the key items it touches."""
    guarantee = level_named(level)
    if isinstance(commutes_with, str):
        raise UsageError(f"commutes_with must be a list of operations, not the string {commutes_with!r}")

    def declare(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
        whole = inspect.signature(method)
        parameters = list(whole.parameters.values())[1:]
        named = Operation(
            name=method.__name__,
            level=guarantee,
            keys=keys if keys is not None else _no_keys,
            read_only=read_only,
            commutes_with=tuple(commutes_with),
            body=method,
            signature=whole.replace(parameters=parameters),
            count=-1 if any(p.kind == p.VAR_POSITIONAL for p in parameters) else len(parameters),
        )
        if any(p.kind in (p.KEYWORD_ONLY, p.VAR_KEYWORD) for p in parameters):
            raise UsageError(f"operation {named.name!r}: its arguments travel by position; it takes some by name only")
        setattr(method, _MARK, named)
        return method

    return declare


def service(
    *, topic: TopicChoice, name: str | None = None, key_levels: KeyLevels | None = None
) -> Callable[[C], C]:  # fmt: skip
    """Declare a class to be a service: on one topic, or on the topic that a function finds from the arguments."""
    if isinstance(topic, str):
        check_topic(topic)

    def declare(cls: C) -> C:
        called = name or cls.__name__
        if not called or " " in called:
            raise UsageError(f"service {called!r}: a name has no space and at least one character")
        found = {op.name: op for op in (getattr(m, _MARK, None) for _, m in inspect.getmembers(cls)) if op is not None}
        if not found:
            raise UsageError(f"service {called!r}: has no operation")
        for declared in found.values():
            for other in declared.commutes_with:
                if other not in found:
                    raise unknown_name(f"operation in commutes_with of {called}.{declared.name}", other, found)
        setattr(cls, _SERVICE, Service(called, topic, found, key_levels or {}, cls))
        return cls

    return declare


def service_of(cls: type) -> Service:
    """The declaration that `@service` made of the class."""
    found = vars(cls).get(_SERVICE)
    if not isinstance(found, Service):
        raise UsageError(f"{cls.__name__} is not a service; decorate it with @service")
    return found


def _no_keys(*_: object) -> tuple[str, ...]:
    return ()
