"""Base of machine state: it can be copied, compared, hashed and partly saved, as explorers and crash tests need.

A `State` is an object whose attributes are plain data: numbers, strings, bytes, frozen structs, tuples, dicts, lists,
sets, deques, Values, and other States. Nothing has to be written per class; class attributes say what is special.
Anything else is refused by name: copies would share it, and a change through one of them would show in all.

Equal states are taken for one and the same by an explorer, so what code can tell apart must not be equal: classes and
kinds count, also of what is inside, and the order in which dicts and sets are gone through, unless a class says in
`ordered` that it does nothing by it. Classes of this package have attributes of one type each, which is checked, and
name in `ordered` all whose order counts; theirs are compared the quick way.
"""

from __future__ import annotations

import dataclasses
import enum
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Hashable, Iterator, Set
from functools import cached_property
from types import FunctionType
from typing import Any, ClassVar, NamedTuple, Self

import msgspec

from ordercast.core.errors import UsageError


class State:
    """Base of every machine and of every part of one."""

    constant: ClassVar[tuple[str, ...]] = ()
    """Attributes that never change after construction: shared by copies, left out of comparisons."""
    derived: ClassVar[tuple[str, ...]] = ()
    """Attributes that follow from the others, or change nothing that anybody does: copied, left out of comparisons."""
    ordered: ClassVar[tuple[str, ...] | None] = None
    """Attributes with dicts or sets whose order counts. None: all, but for classes of this package, which have none."""
    durable: ClassVar[tuple[str, ...]] = ()
    """Attributes that must survive a restart. A State among them contributes its own durable part."""

    def copy(self) -> Self:
        """An independent copy: changing one never shows in the other."""
        clone = object.__new__(type(self))
        theirs = clone.__dict__ = vars(self).copy()
        name = ""
        try:
            for name in _layouts[type(self), tuple(theirs)].changing:
                value = theirs[name]
                if type(value) not in _free:
                    theirs[name] = duplicate(value)
        except _NotPlainError as error:
            raise _refusal(self, name, error) from None
        except RecursionError:
            if not name:
                raise  # It was too deep before the first attribute: the one that led here is named.
            raise _too_deep(self, name) from None
        return clone

    def frozen(self) -> Hashable:
        """The changing part as a hashable value, equal for equal states: nothing that a machine does can differ."""
        kind, own = type(self), vars(self)
        layout = _layouts[kind, tuple(own)]
        parts: list[Any] = [kind]
        name = ""
        try:
            for name, ordered in layout.compared:
                value = own[name]
                if type(value) in layout.plain:
                    parts.append((name, value))
                elif layout.exact:
                    parts.append((name, exact(value, ordered=ordered)))
                elif ordered:
                    parts.append((name, tuple((key, freeze(item)) for key, item in value.items())))
                else:
                    parts.append((name, freeze(value)))
        except _NotPlainError as error:
            raise _refusal(self, name, error) from None
        except RecursionError:
            if not name:
                raise  # It was too deep before the first attribute: the one that led here is named.
            raise _too_deep(self, name) from None
        return tuple(parts)

    def become(self, other: State) -> None:
        """Become equal to `other`, of the same kind, and stay independent of it.

        Parts and dicts are changed in place, so that those who share them go on sharing them: this is how a machine
        whose parts know each other is copied onto new surroundings.
        """
        name = ""
        try:
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
        except _NotPlainError as error:
            raise _refusal(other, name, error) from None

    def save(self) -> dict[str, Any]:
        """A copy of the attributes that must survive a restart, independent of this object."""
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


class _Layout(NamedTuple):
    """The attributes of a kind of state, by what is done with them."""

    changing: tuple[str, ...]
    """Those that a copy needs for itself."""
    compared: tuple[tuple[str, bool], ...]
    """Those that two equal states have equal, sorted, each with whether the order of its items counts."""
    exact: bool
    """Whether everything counts that code can tell apart."""
    plain: Set[type]
    """Types of attributes that are compared as they are."""


class _Layouts(dict[tuple[type[State], tuple[str, ...]], _Layout]):
    """By class and the names of the attributes that an object has. Worked out once."""

    def __missing__(self, key: tuple[type[State], tuple[str, ...]]) -> _Layout:
        kind, names = key
        changing = tuple(name for name in names if name not in kind.constant)
        ours, ordered = _is_ours(kind), kind.ordered
        if ordered is None:
            ordered = () if ours else names
        compared = tuple((name, name in ordered) for name in sorted(changing) if name not in kind.derived)
        self[key] = layout = _Layout(changing, compared, not ours, _alike if ours else _telling)
        return layout


_layouts = _Layouts()


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

_FIXED = (int, str, bytes, float, tuple, frozenset, enum.Enum, Value, type, FunctionType)
"""Objects of these kinds never change, but for what tuples hold (see `check_plain`)."""


class _NotPlainError(UsageError):
    """A value is no plain data; becomes an error that names the attribute it was found in."""

    def __init__(self, value: object) -> None:
        self.culprit = type(value).__name__
        super().__init__(f"a {self.culprit} cannot be part of a machine's state")


class _Shared(dict[type, bool]):
    """By type: whether objects of it never change and so may be shared by copies. Worked out once for each type."""

    def __missing__(self, kind: type) -> bool:
        frozen = issubclass(kind, msgspec.Struct) and kind.__struct_config__.frozen
        dataclass: Any = getattr(kind, "__dataclass_params__", None)
        self[kind] = known = frozen or issubclass(kind, _FIXED) or (dataclass is not None and dataclass.frozen)
        return known


_shared = _Shared()
_alike = set(_PLAIN)
"""Types whose objects states of this package compare as they are: the plain ones, and those of this package."""
_free = set(_PLAIN)
"""Types whose objects go from one copy to the next as they are: the plain ones, and those met since that are shared."""


def duplicate(value: Any) -> Any:
    """A copy that shares nothing that can change. Frozen structs, tuples of them and scalars are shared."""
    if type(value) in _free:
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
    if _shared[type(value)]:
        _free.add(type(value))
        return value
    raise _NotPlainError(value)


def freeze(value: Any) -> Hashable:
    """A hashable value for an attribute that always has the same type: equal for equal contents in any order."""
    if type(value) in _alike:
        return value  # type: ignore[no-any-return]
    if isinstance(value, dict):
        return frozenset((key, freeze(item)) for key, item in value.items())
    if isinstance(value, list | deque):
        return tuple(freeze(item) for item in value)
    if isinstance(value, set):
        return frozenset(value)
    if isinstance(value, State):
        return value.frozen()
    if not _shared[type(value)]:
        raise _NotPlainError(value)
    if not _is_ours(type(value)):
        return exact(value, shared=True)
    _alike.add(type(value))
    return value  # type: ignore[no-any-return]


def exact(value: Any, *, ordered: bool = True, shared: bool = False) -> Hashable:
    """A hashable value that is equal only for what code cannot tell apart.

    Classes and kinds count, and whether it is `ordered` also the order of dicts and sets. What could change is refused
    inside of what copies share (`shared`), such as a tuple.

    Raises:
        UsageError: something is no plain data.
    """
    kind = type(value)
    if kind in _telling:
        return value  # type: ignore[no-any-return]
    if not shared and kind in _CONTAINERS:
        return _exact_container(value, ordered)
    if not shared and isinstance(value, State):
        return kind, value.frozen()
    if not _shared[kind] or _remembers(value):
        raise _NotPlainError(value)
    if _is_ours(kind) and issubclass(kind, msgspec.Struct):
        _telling.add(kind)
        return value  # type: ignore[no-any-return]
    if issubclass(kind, type | FunctionType):
        return value  # type: ignore[no-any-return]
    return kind, _exact_fixed(value, ordered)


def _exact_container(value: Any, ordered: bool) -> Hashable:
    kind = type(value)
    if kind in _DICTS:
        entries = [
            (exact(key, ordered=ordered, shared=True), exact(item, ordered=ordered)) for key, item in value.items()
        ]
        default = exact(getattr(value, "default_factory", None), shared=True)
        return kind, default, tuple(entries) if ordered else frozenset(entries)
    if kind is set:
        return kind, _exact_set(value, ordered)
    return kind, getattr(value, "maxlen", None), tuple([exact(item, ordered=ordered) for item in value])


def _exact_set(value: Any, ordered: bool) -> Hashable:
    items = [exact(item, ordered=ordered, shared=True) for item in value]
    return tuple(items) if ordered else frozenset(items)


def _exact_fixed(value: Any, ordered: bool) -> Hashable:
    """Of what never changes: the number, the text, or the parts."""
    if isinstance(value, enum.Enum):
        return value.value if isinstance(value, enum.Flag) else value.name
    if isinstance(value, Value):
        return value.frozen()
    if isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value):
        return tuple(_exact_fields(value, ordered))
    if type(value) not in _PLAIN and getattr(value, "__dict__", None):
        raise _NotPlainError(value)  # It has more than what it is compared by.
    if isinstance(value, float):
        return value.hex()  # Nothing is equal to a NaN, and 0.0 is equal to -0.0.
    if isinstance(value, tuple):
        return tuple([exact(item, ordered=ordered, shared=True) for item in value])
    if isinstance(value, frozenset):
        return _exact_set(value, ordered)
    return str.__str__(value) if isinstance(value, str) else value


def _exact_fields(value: Any, ordered: bool) -> Iterator[Hashable]:
    """All of them, whether or not the class compares them, and what was put beside them."""
    for name, part in _attributes(value):
        try:
            yield name, exact(part, ordered=ordered, shared=True)
        except _NotPlainError as error:
            raise _refusal(value, name, error) from None


def check_plain(value: object) -> None:
    """Refuse a state or a packet with something in it that could change although copies share it.

    Raises:
        UsageError: in one line, with the class and the attribute.
    """
    for name, part in _attributes(value):
        try:
            _check_part(part, shared=not isinstance(value, State))
        except _NotPlainError as error:
            raise _refusal(value, name, error) from None


class PlainParts:
    """Remembers which parts of states and packets are plain data: of each new one only what is new is looked at."""

    def __init__(self) -> None:
        self._known: set[Hashable] = set()

    def include(self, frozen: Any) -> bool:
        """Whether nothing in a state, as `frozen` gave it, or in a packet could change."""
        try:
            return self._all_plain(frozen if isinstance(frozen, tuple) else (frozen,))
        except TypeError:
            return False  # Something inside has no hash.

    def _all_plain(self, parts: Any) -> bool:
        known = self._known
        for item in parts:
            part, kind = item, type(item)
            if kind is tuple and len(part) == 2 and type(part[0]) is str:
                part = part[1]  # An attribute, or an entry of a dict: its name is known to be plain.
                kind = type(part)
            if kind in _SCALARS or issubclass(kind, type) or part in known:
                continue
            inside = part if issubclass(kind, tuple | frozenset) else [value for _, value in _attributes(part)]
            if not _shared[kind] or _remembers(part) or not self._all_plain(inside):
                return False
            known.add(part)
        return True


def _remembers(value: object) -> bool:
    """Whether it is a function with something of its own that it could change: what it closed over, or a default."""
    if not isinstance(value, FunctionType):
        return False
    defaults = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
    return bool(value.__closure__ or vars(value)) or any(type(default) not in _SCALARS for default in defaults)


def _attributes(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, State):
        aside = value.constant + value.derived
        yield from ((name, part) for name, part in vars(value).items() if name not in aside)
        return
    names = [*getattr(value, "__struct_fields__", ())]
    if dataclasses.is_dataclass(value):
        names += [field.name for field in dataclasses.fields(value)]
    if names:
        names += [name for name in getattr(value, "__dict__", ()) if name not in names and not _is_cache(value, name)]
    yield from ((name, getattr(value, name)) for name in names)


def _is_cache(value: object, name: str) -> bool:
    """Whether the attribute follows from the others."""
    return isinstance(getattr(type(value), name, None), cached_property)


def _check_part(value: Any, *, shared: bool) -> None:
    """`shared`: it is inside of something that copies share, such as a tuple or the key of a dict."""
    if type(value) in _SCALARS:
        return
    if isinstance(value, tuple | frozenset) or (isinstance(value, dict | set) and not shared):
        for item in value:
            _check_part(item, shared=True)
    if shared or not isinstance(value, dict | list | deque | set | State):
        if not _shared[type(value)] or _remembers(value):
            raise _NotPlainError(value)
        check_plain(value)
    elif isinstance(value, State):
        check_plain(value)
    elif not isinstance(value, set):
        for item in value.values() if isinstance(value, dict) else value:
            _check_part(item, shared=False)


_SCALARS = _PLAIN - {tuple, frozenset}
_telling: set[type] = {int, str, bytes, type(None)}
"""Types whose objects are equal to none of another type, and among themselves only if nothing differs: also the structs
of this package that were met since."""
_DICTS = frozenset({dict, defaultdict, OrderedDict, Counter})
_CONTAINERS = _DICTS | {list, set, deque}
"""What changes and can be copied. Not of classes derived from these: a copy would be of the class itself."""


def _refusal(holder: object, name: str, error: _NotPlainError) -> UsageError:
    return UsageError(
        f"{type(holder).__name__}.{name}: holds a {error.culprit}, which copies would share; use plain data: numbers, "
        "strings, frozen structs, tuples, and dicts, lists and sets of them, or a State"
    )


def _too_deep(holder: object, name: str) -> UsageError:
    return UsageError(
        f"{type(holder).__name__}.{name}: holds itself, or parts within parts so deep that they cannot be copied"
    )


def _is_ours(kind: type) -> bool:
    """Whether the class belongs to this package."""
    return kind.__module__.partition(".")[0] == _PACKAGE


_PACKAGE = __name__.partition(".")[0]
