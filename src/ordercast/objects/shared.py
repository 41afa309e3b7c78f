"""Kinds of shared objects: what they have, and how to write them.

Replicas that have delivered the same updates have the same values, of every kind. Values are plain: None, booleans,
numbers, text, bytes, and lists and dicts of them. Each kind has names of its own: a register and a counter of one name
have nothing to do with each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from ordercast.core.errors import UsageError
from ordercast.objects.contributions import (
    Contribution,
    Contributions,
    Element,
    Elements,
    Put,
    Total,
    Word,
    encode_update,
)  # fmt: skip

Value = TypeVar("Value")

Change = Callable[[Contributions, int], bytes | None]
"""The payload, given the state and the own entry, at the moment in which the update is made; None: nothing to say."""

_CANNOT_BE_SENT = (TypeError, OverflowError, ValueError, RecursionError)


class OwningCluster(Protocol):
    """The cluster that an object belongs to, as the object uses it."""

    state: Contributions
    process: str

    async def write(self, change: Change) -> None:
        """Returns when the update is made, and this process has delivered it."""


class Register:
    """Has the value that was set last. Of values that were set at the same time, all replicas agree on one."""

    def __init__(self, replica: OwningCluster, name: str) -> None:
        self._replica = replica
        self.name = name

    @property
    def value(self) -> Any:
        """None if it was never set."""
        return self._replica.state.register(self.name)

    async def set(self, value: Any) -> None:
        payload = _encoded(Put(self.name, value))
        await self._replica.write(lambda _state, _entry: payload)


class Counter:
    """Counts what all writers have added."""

    def __init__(self, replica: OwningCluster, name: str) -> None:
        self._replica = replica
        self.name = name

    @property
    def value(self) -> int:
        return self._replica.state.count(self.name)

    async def add(self, amount: int = 1) -> None:
        if not isinstance(amount, int):
            raise UsageError(f"{self.name}: a {type(amount).__name__} cannot be counted")
        await self._replica.write(
            lambda state, entry: _encoded(Total(self.name, state.total(self.name, entry) + amount))
        )


class GrowingSet:
    """Has everything that was ever added: text, whole numbers and bytes."""

    def __init__(self, replica: OwningCluster, name: str) -> None:
        self._replica = replica
        self.name = name

    @property
    def value(self) -> frozenset[Element]:
        return self._replica.state.elements(self.name)

    async def add(self, element: Element) -> None:
        """Nothing happens if it is there."""
        if type(element) not in (str, int, bytes):
            raise UsageError(f"{self.name}: a {type(element).__name__} cannot be added; text, whole numbers, bytes can")
        await self._replica.write(lambda state, _entry: self._with(state, element))

    def _with(self, state: Contributions, element: Element) -> bytes | None:
        if state.has(self.name, element):
            return None
        return _encoded(Elements(self.name, (*state.repeated(self.name), element)))


class Merged(Generic[Value]):
    """Has the value that a function of yours makes of the last word of every process.

    The function gets them with the one that was said last at the end. If it does not depend on that order, replicas
    that have the same words have the same value whatever the function. Only those that spoke last count, at most
    `MOST_SPEAKERS` of them.
    """

    def __init__(self, replica: OwningCluster, name: str, merge: Callable[[Sequence[Any]], Value]) -> None:
        if not callable(merge):
            raise UsageError("merge: takes a list of contributions and returns the value")
        self._replica = replica
        self.name = name
        self._merge = merge

    @property
    def value(self) -> Value:
        return self._merge(self._replica.state.words(self.name))

    @property
    def own(self) -> Any:
        """This process's last contribution, in this life or, as far as others have told it, in an earlier one."""
        return self._replica.state.word(self.name, self._replica.process)

    async def contribute(self, contribution: Any) -> None:
        """In place of all that this process said before."""
        payload = _encoded(Word(self.name, contribution))
        await self._replica.write(lambda _state, _entry: payload)


def _encoded(contribution: Contribution) -> bytes:
    try:
        return encode_update(contribution)
    except _CANNOT_BE_SENT as error:
        raise UsageError(f"{contribution.name}: its value cannot be sent: {error}") from None
