"""State that can be copied, compared, hashed and partly saved: what explorers, crashes and tests need of a machine.

A `State` is an object whose attributes are plain data: numbers, strings, bytes, frozen structs, tuples, dicts, lists,
sets, deques, Values, and other States. Nothing has to be written per class; class attributes say what is special.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Any, ClassVar, Self

from ordercast.core.errors import InvariantError


class State:
    """Base of every machine and of every part of one."""

    constant: ClassVar[tuple[str, ...]] = ()
    """Attributes that never change after construction: shared by copies, left out of comparisons."""
    derived: ClassVar[tuple[str, ...]] = ()
    """Attributes that follow from the others, or change nothing that anybody does: copied, left out of comparisons."""
    ordered: ClassVar[tuple[str, ...]] = ()
    """Dicts whose order of insertion counts."""
    durable: ClassVar[tuple[str, ...]] = ()
    """Attributes that must survive a restart. A State among them contributes its own durable part."""

    def copy(self) -> Self:
        """An independent copy: changing one never shows in the other."""
        clone = object.__new__(type(self))
        for name, value in vars(self).items():
            clone.__dict__[name] = value if name in self.constant else duplicate(value)
        return clone

    def frozen(self) -> Hashable:
        """The changing part as a hashable value, equal for equal states whatever order things were inserted in."""
        aside, ordered = self.constant + self.derived, self.ordered
        return tuple(
            (name, tuple((key, freeze(item)) for key, item in value.items()) if name in ordered else freeze(value))
            for name, value in sorted(vars(self).items())
            if name not in aside
        )

    def become(self, other: State) -> None:
        """Become equal to `other`, of the same kind, and stay independent of it.

        Parts and dicts are changed in place, so that those who share them go on sharing them: this is how a machine
        whose parts know each other is copied onto new surroundings.
        """
        for name, value in vars(other).items():
            if name in self.constant:
                continue
            mine = self.__dict__.get(name)
            if isinstance(mine, State) and type(mine) is type(value):
                mine.become(value)
            elif isinstance(mine, dict) and isinstance(value, dict):
                mine.clear()
                mine.update(duplicate(value))
            else:
                self.__dict__[name] = duplicate(value)

    def save(self) -> dict[str, Any]:
        """What must survive a restart, independent of this object."""
        saved: dict[str, Any] = {}
        for name in self.durable:
            value = getattr(self, name)
            saved[name] = value.save() if isinstance(value, State) else duplicate(value)
        return saved

    def restore(self, saved: dict[str, Any]) -> None:
        """Take over what an earlier `save` kept."""
        for name in self.durable:
            value = getattr(self, name)
            if isinstance(value, State):
                value.restore(saved[name])
            else:
                setattr(self, name, duplicate(saved[name]))

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, State) and self.frozen() == other.frozen()

    def __hash__(self) -> int:
        return hash(self.frozen())


class Value:
    """Base of parts of a state that never change, whatever they are made of: all that have the same one share it."""

    __slots__ = ()

    def frozen(self) -> Hashable:
        """The whole of it as a hashable value."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return self is other or (
            type(self) is type(other) and isinstance(other, Value) and self.frozen() == other.frozen()
        )

    def __hash__(self) -> int:
        return hash(self.frozen())


_PLAIN = frozenset({int, str, bytes, bool, float, tuple, frozenset, type(None)})
"""Most of a state is of these; looking for them first halves the price of a copy."""


def duplicate(value: Any) -> Any:
    """A copy that shares nothing that can change. Frozen structs, tuples of them and scalars are shared."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, dict):
        clone = value.copy()  # Of the same kind: a defaultdict keeps its factory.
        for key, item in value.items():
            clone[key] = duplicate(item)
        return clone
    if isinstance(value, list):
        return [duplicate(item) for item in value]
    if isinstance(value, set):
        return set(value)
    if isinstance(value, deque):
        return deque((duplicate(item) for item in value), value.maxlen)
    if isinstance(value, State):
        return value.copy()
    return value


def freeze(value: Any) -> Hashable:
    """A hashable value that is equal exactly for equal contents."""
    if type(value) in _PLAIN:
        return value  # type: ignore[no-any-return]
    if isinstance(value, dict):
        return frozenset((key, freeze(item)) for key, item in value.items())
    if isinstance(value, list | deque):
        return tuple(freeze(item) for item in value)
    if isinstance(value, set):
        return frozenset(value)
    if isinstance(value, State):
        return value.frozen()
    if isinstance(value, Hashable):
        return value
    raise InvariantError(f"{type(value).__name__} cannot be part of a machine's state")
