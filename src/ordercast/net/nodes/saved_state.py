"""Serialises saved machine state; reading it can create nothing but parts of machines.

    [names of classes, column]        msgpack

A column is a number of values. It begins with what they are: scalars, which stand for themselves; a kind of container,
whose items are a column again; a class, by its place among the names, whose fields are a column each; or a mixture. So
the time it takes depends on how deep a state is more than on how much it has.

A name is looked up among the classes of machines that this process has loaded anyway and never imported. Of these only
plain parts are built, without calling anything that they define but how an `Encoded` value is read from its own bytes.
Bytes that say anything else are a UsageError.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate, chain, pairwise
from typing import Any

import msgspec

from ordercast.core.errors import InvariantError, UsageError
from ordercast.core.machine import Machine
from ordercast.core.state import State
from ordercast.core.wire import NOT_DECODABLE, Encoded

_PACKAGES = ("ordercast.core.", "ordercast.overlay.", "ordercast.protocols.")
_PARTS: tuple[type, ...] = (msgspec.Struct, State, Encoded, enum.Enum)
_SCALARS = frozenset({int, str, bytes, bool, float, type(None)})
_LEAST_INT, _LARGEST_INT = -(1 << 63), (1 << 64) - 1
"""Between these msgpack has a word for an int."""
_CONTAINERS: dict[type, int] = {list: 1, tuple: 2, set: 3, frozenset: 4, deque: 5}
_PLAIN = 0
_DICT, _INT, _STRUCT, _STATE, _ENCODED, _ENUM, _MIXED = range(6, 13)
_WRONG = (*NOT_DECODABLE, TypeError, AttributeError, LookupError, StopIteration)
"""What building from nonsense raises."""


class DamagedStateError(UsageError):
    """The bytes of a saved state are none that this version wrote, or do not fit together: the file's fault."""


def pack(machine: Machine) -> bytes:
    """The saved state of the machine, as bytes."""
    writer = _Writer(_parts_of(type(machine).__module__))
    column = writer.column([machine.save()])
    return msgspec.msgpack.encode([list(writer.names), column])


def restore(machine: Machine, data: bytes) -> None:
    """Let a machine as it was built take over what one of its kind has saved."""
    try:
        names, column = msgspec.msgpack.decode(data)
        known = _parts_of(type(machine).__module__)
        (saved,) = _ColumnReader([known[name] for name in names]).column(column)
        _check_shape(machine, saved)
        _take_over(machine, saved)
    except _WRONG as error:
        told = " ".join(f"{type(error).__name__}: {error}".split())
        raise DamagedStateError(f"the saved state is none that this version reads: {told}") from None


def _take_over(machine: Machine, saved: dict[str, Any]) -> None:
    """Here, and nowhere later, a broken promise says that the file is damaged: the machine has done nothing yet."""
    try:
        machine.restore(saved)
    except InvariantError as error:
        raise DamagedStateError(f"the saved state does not fit together: {error}") from None


@cache
def _parts_of(home: str) -> dict[str, type]:
    """The closed list: parts of our own machines, and those of the package of the module `home`."""
    packages = (*_PACKAGES, home.rpartition(".")[0] + "." if "." in home else home)
    parts: dict[str, type] = {}
    for base in _PARTS:
        for part in _below(base):
            if part.__module__ == home or part.__module__.startswith(packages):
                parts[f"{part.__module__}.{part.__qualname__}"] = part
    return parts


def _below(base: type) -> Iterator[type]:
    kinds: list[type] = type.__subclasses__(base)
    for kind in kinds:
        yield kind
        yield from _below(kind)


def _check_shape(fresh: State, saved: Any) -> None:
    """Each attribute is of the kind that it has in a new machine, as far as that can be told."""
    if type(saved) is not dict or saved.keys() != set(fresh.durable):
        raise ValueError(f"not what a {type(fresh).__name__} saves")
    for name, value in saved.items():
        now = getattr(fresh, name)
        if isinstance(now, State):
            _check_shape(now, value)
        elif type(now) is not type(value) and now is not None and value is not None:
            raise ValueError(f"{name} of {type(fresh).__name__} is a {type(now).__name__}")


class _Writer:
    """Writes columns. Structs and encoded values that are shared are written once, and shared again when read."""

    def __init__(self, parts: dict[str, type]) -> None:
        self.names: dict[str, int] = {}
        self._parts = parts
        self._written: dict[int, int] = {}
        """Structs and encoded values by identity: their place in the order in which they were written."""

    def column(self, values: Sequence[Any]) -> tuple[Any, ...]:
        kinds = set(map(type, values))
        if kinds <= _SCALARS and (int not in kinds or _fit(values, kinds)):
            return _PLAIN, values
        if len(kinds) > 1:
            return self._mixed(values, [type(value) for value in values])
        kind = kinds.pop()
        if kind is int:
            return _INT, [value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True) for value in values]
        if kind is dict:
            keys, items = list(chain.from_iterable(values)), [item for value in values for item in value.values()]
            return _DICT, list(map(len, values)), self.column(keys), self.column(items)
        if kind in _CONTAINERS:
            bounds = [[value.maxlen for value in values]] if kind is deque else []
            flat = list(chain.from_iterable(values))
            return _CONTAINERS[kind], list(map(len, values)), self.column(flat), *bounds
        return self._write_parts(kind, values)

    def _mixed(self, values: Sequence[Any], keys: list[Any]) -> tuple[Any, ...]:
        """One column for each key, and which of them each value is in."""
        groups: dict[Any, list[Any]] = {}
        for key, value in zip(keys, values, strict=True):
            groups.setdefault(key, []).append(value)
        numbers = {key: number for number, key in enumerate(groups)}
        return _MIXED, [numbers[key] for key in keys], *map(self.column, groups.values())

    def _write_parts(self, kind: type, values: Sequence[Any]) -> tuple[Any, ...]:
        name = f"{kind.__module__}.{kind.__qualname__}"
        if self._parts.get(name) is not kind:
            raise UsageError(f"the state cannot be written: {name} is no part of a machine")
        number = self.names.setdefault(name, len(self.names))
        if issubclass(kind, enum.Enum):
            return _ENUM, number, [value.value for value in values]
        if issubclass(kind, State):
            return self._states(number, values)
        fresh = list({id(value): value for value in values if id(value) not in self._written}.values())
        if issubclass(kind, Encoded):
            columns: Any = [[value.encoded() for value in fresh]]
        else:
            columns = self._rows([[getattr(value, field) for value in fresh] for field in _fields(kind)], len(fresh))
        for value in fresh:
            self._written[id(value)] = len(self._written)
        code = _STRUCT if issubclass(kind, msgspec.Struct) else _ENCODED
        return code, number, [self._written[id(value)] for value in values], *columns

    def _states(self, number: int, values: Sequence[State]) -> tuple[Any, ...]:
        attributes = [tuple(vars(value)) for value in values]
        if len(set(attributes)) > 1:
            return self._mixed(values, attributes)
        names = attributes[0]
        columns = [[vars(value)[name] for value in values] for name in names]
        return _STATE, number, names, *self._rows(columns, len(values))

    def _rows(self, columns: list[list[Any]], count: int) -> list[tuple[Any, ...]]:
        """The columns of things that have fields; of those without any, one that counts them."""
        return list(map(self.column, columns)) if columns else [(_PLAIN, [0] * count)]


class _ColumnReader:
    """Reads columns."""

    def __init__(self, kinds: list[type]) -> None:
        self._kinds = kinds
        self._parts: list[Any] = []
        """Structs and encoded values in the order in which they were written."""

    def column(self, written: list[Any]) -> list[Any]:
        code, *rest = written
        return _READ[code](self, *rest)

    def _plain(self, values: list[Any]) -> list[Any]:
        return values

    def _ints(self, values: list[bytes]) -> list[int]:
        return [int.from_bytes(value, "big", signed=True) for value in values]

    def _mixed(self, which: list[int], *columns: Any) -> list[Any]:
        values = [iter(self.column(column)) for column in columns]
        return [next(values[number]) for number in which]

    def _dicts(self, lengths: list[int], keys: Any, items: Any) -> list[dict[Any, Any]]:
        pairs = zip(self.column(keys), self.column(items), strict=True)
        return [dict(some) for some in _slices(list(pairs), lengths)]

    def _deques(self, lengths: list[int], flat: Any, bounds: list[int | None]) -> list[deque[Any]]:
        return list(map(deque, _slices(self.column(flat), lengths), bounds))

    def _structs(self, number: int, places: list[int], *columns: Any) -> list[Any]:
        kind = self._kind(number, msgspec.Struct)
        rows = self._rows(columns, bool(_fields(kind)))
        return self._shared([kind(*row) for row in rows], places)

    def _encoded(self, number: int, places: list[int], written: list[bytes]) -> list[Any]:
        return self._shared(list(map(self._kind(number, Encoded).decoded, written)), places)

    def _states(self, number: int, names: list[str], *columns: Any) -> list[State]:
        kind = self._kind(number, State)
        states: list[State] = []
        for row in self._rows(columns, bool(names)):
            states.append(object.__new__(kind))
            states[-1].__dict__.update(zip(names, row, strict=True))
        return states

    def _enums(self, number: int, values: list[Any]) -> list[Any]:
        return list(map(self._kind(number, enum.Enum), values))

    def _rows(self, columns: tuple[Any, ...], has_fields: bool) -> Iterable[tuple[Any, ...]]:
        read = list(map(self.column, columns))
        return zip(*read, strict=True) if has_fields else [() for _ in read[0]]

    def _shared(self, fresh: list[Any], places: list[int]) -> list[Any]:
        self._parts += fresh
        return [self._parts[place] for place in places]

    def _kind(self, number: int, base: type) -> type[Any]:
        kind = self._kinds[number]
        if not issubclass(kind, base):
            raise TypeError(f"{kind.__name__} is no {base.__name__}")
        return kind


def _containers(kind: type) -> Callable[..., list[Any]]:
    return lambda reader, lengths, flat: list(map(kind, _slices(reader.column(flat), lengths)))


_READ: dict[int, Callable[..., list[Any]]] = {
    _PLAIN: _ColumnReader._plain, _INT: _ColumnReader._ints, _DICT: _ColumnReader._dicts, _MIXED: _ColumnReader._mixed,
    _ENUM: _ColumnReader._enums, _STRUCT: _ColumnReader._structs, _ENCODED: _ColumnReader._encoded,
    _STATE: _ColumnReader._states,
    **{code: _containers(kind) for kind, code in _CONTAINERS.items()}, _CONTAINERS[deque]: _ColumnReader._deques,
}  # fmt: skip


def _fields(kind: type) -> tuple[str, ...]:
    fields: tuple[str, ...] = kind.__struct_fields__  # type: ignore[attr-defined]
    return fields


def _slices(values: list[Any], lengths: list[int]) -> list[list[Any]]:
    ends = list(accumulate(lengths, initial=0))
    if ends[-1] != len(values) or min(lengths, default=0) < 0:
        raise ValueError("parts that do not add up")
    return [values[start:end] for start, end in pairwise(ends)]


def _fit(values: Sequence[Any], kinds: set[type]) -> bool:
    """Whether msgpack has a word for every int among them."""
    ints = values if len(kinds) == 1 else [value for value in values if type(value) is int]
    return min(ints) >= _LEAST_INT and max(ints) <= _LARGEST_INT
