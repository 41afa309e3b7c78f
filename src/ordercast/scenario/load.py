"""Scenario files: TOML in, checked values out, and back to TOML for a shrunk one."""

from __future__ import annotations

import math
import re
import tomllib
import types
import typing
from collections.abc import Sequence
from datetime import date, time
from pathlib import Path
from typing import Any

import msgspec

from ordercast.core.errors import UsageError, unknown_name
from ordercast.core.wire import NOT_DECODABLE
from ordercast.scenario.model import Scenario

_UNKNOWN_FIELD = re.compile(r"unknown field `(?P<name>[^`]*)`")
_BAD_TAG = re.compile(r"Invalid value '(?P<name>[^']*)'")
_BAD_CHOICE = re.compile(r"Invalid enum value '(?P<name>[^']*)'")

_LARGEST = 1e12
"""In milliseconds, 31 years; still exact in nanoseconds, and in whatever else is worked out from it."""
_LARGEST_SEED = 1e300


def load_scenario(path: Path, overrides: Sequence[str] = ()) -> Scenario:
    """The scenario in `path` with `key=value` overrides applied; what is wrong is named by file and field."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise _no_such_file(path) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    except NOT_DECODABLE as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from None
    for override in overrides:
        apply_override(raw, override)
    try:
        return parse_scenario(raw, directory=path.parent)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def parse_scenario(raw: dict[str, Any], directory: Path | None = None) -> Scenario:
    """A scenario from plain data. A relative overlay file is looked up in `directory`."""
    overlay = raw.get("overlay")
    if directory is not None and isinstance(overlay, dict) and isinstance(overlay.get("file"), str) and overlay["file"]:
        raw = {**raw, "overlay": {**overlay, "file": str(directory / overlay["file"])}}
    try:
        _check_numbers(raw, "")
        return msgspec.convert(raw, Scenario)
    except NOT_DECODABLE as error:
        raise _explain(str(error)) from None


def apply_override(raw: dict[str, Any], override: str) -> None:
    """Set `a.b=value` or `a.0.b=value` in `raw`; the value is read as TOML, or else as a string."""
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"--set {override!r}: expected key=value")
    target: Any = raw
    *parents, last = key.strip().split(".")
    for name in parents:
        target = _child(target, name, override)
    if isinstance(target, list):
        target[_index(target, last, override)] = _value(text)
    else:
        target[last] = _value(text)


def dump_scenario(scenario: Scenario) -> str:
    """The scenario as TOML, without what is at its default."""
    return _toml(_plain(scenario))


def _no_such_file(path: Path) -> UsageError:
    siblings = [p.name for p in path.parent.glob("*.toml")] if path.parent.is_dir() else []
    if not siblings:
        return UsageError(f"{path}: no such scenario file")
    return UsageError(f"{path}: {unknown_name('scenario file', path.name, siblings)}")


def _child(target: Any, name: str, override: str) -> Any:
    child = target[_index(target, name, override)] if isinstance(target, list) else target.setdefault(name, {})
    if not isinstance(child, dict | list):
        raise UsageError(f"--set {override!r}: {name!r} is not a table")
    return child


def _index(target: list[Any], name: str, override: str) -> int:
    if not name.isdecimal() or len(name) > 9 or int(name) >= len(target):
        raise UsageError(f"--set {override!r}: {name!r} is not an index of a list of {len(target)}")
    return int(name)


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except NOT_DECODABLE:
        return text


def _check_numbers(value: Any, where: str) -> None:
    """TOML knows inf, nan and dates; no field has a use for them, nor, but for seeds, for numbers that are as large."""
    if isinstance(value, dict):
        for name, item in value.items():
            _check_numbers(item, f"{where}.{name}" if where else name)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            _check_numbers(item, f"{where}[{i}]")
    elif isinstance(value, date | time):
        raise UsageError(f"{where}: {value} is a date or a time, which no field of a scenario takes")
    elif isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{where}: {value} is not a finite number")
    elif isinstance(value, int | float) and abs(value) > (largest := _LARGEST_SEED if where == "seed" else _LARGEST):
        told = value if abs(value) <= _LARGEST_SEED else "what stands there"  # Python does not print just any number.
        raise UsageError(f"{where}: {told} is too large a number ({largest:g} is the largest)")


def _explain(error: str) -> UsageError:
    """An error of msgspec in our words: the place first, and the nearest valid name where a name is wrong."""
    problem, _, path = error.partition(" - at `")
    path = path.removesuffix("`") or "$"
    where = path[2:] or "top level"
    if match := _UNKNOWN_FIELD.search(problem):
        return UsageError(f"{where}: {unknown_name('key', match['name'], _fields_at(path))}")
    if (match := _BAD_TAG.search(problem)) and path.endswith(".kind"):
        kinds = [str(struct.__struct_config__.tag) for struct in _structs_at(path.removesuffix(".kind"))]
        return UsageError(f"{where}: {unknown_name('kind', match['name'], kinds)}")
    if match := _BAD_CHOICE.search(problem):
        return UsageError(f"{where}: {unknown_name('choice', match['name'], _choices_at(path))}")
    return UsageError(f"{where}: {problem[0].lower()}{problem[1:]}")


def _fields_at(path: str) -> set[str]:
    return {name for struct in _structs_at(path) for name in struct.__struct_encode_fields__} | (
        {"kind"} if any(struct.__struct_config__.tag for struct in _structs_at(path)) else set()
    )


def _choices_at(path: str) -> list[str]:
    """The words that may stand at a path such as `$.workload[0].arrival`."""
    parent, _, field = path.rpartition(".")
    hints = [typing.get_type_hints(struct).get(field) for struct in _structs_at(parent)]
    return [word for hint in hints for word in _literals(hint)]


def _literals(hint: Any) -> list[str]:
    if typing.get_origin(hint) is typing.Literal:
        return list(typing.get_args(hint))
    return [word for argument in typing.get_args(hint) for word in _literals(argument)]


def _structs_at(path: str) -> list[Any]:
    """The structs that may stand at a path such as `$.workload[0].steps[2]`."""
    here: list[Any] = [Scenario]
    for name in path.split(".")[1:]:
        field = name.partition("[")[0]
        hints = [typing.get_type_hints(struct) for struct in here]
        here = [leaf for hint in hints if field in hint for leaf in _struct_leaves(hint[field])]
    return here


def _struct_leaves(hint: Any) -> list[Any]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return [hint]
    if typing.get_origin(hint) in {list, tuple, dict, typing.Union, types.UnionType}:
        return [leaf for argument in typing.get_args(hint) for leaf in _struct_leaves(argument)]
    return []


def _plain(value: Any) -> Any:
    """Structs as dicts of what is not at its default."""
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        tagged = {config.tag_field: config.tag} if config.tag_field is not None else {}
        changed = {
            f.encode_name: getattr(value, f.name) for f in msgspec.structs.fields(value) if _is_changed(value, f)
        }
        return tagged | {name: _plain(item) for name, item in changed.items()}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _is_changed(struct: msgspec.Struct, field: msgspec.structs.FieldInfo) -> bool:
    if field.default_factory is not msgspec.NODEFAULT:
        return bool(getattr(struct, field.name) != field.default_factory())
    return field.default is msgspec.NODEFAULT or getattr(struct, field.name) != field.default


def _toml(raw: dict[str, Any]) -> str:
    """Plain data as TOML: scalars first, then tables, then arrays of tables."""
    scalars = {k: v for k, v in raw.items() if not isinstance(v, dict) and not _is_table_array(v)}
    lines = [f"{_key(k)} = {_inline(v)}" for k, v in scalars.items() if v is not None]
    for name, value in raw.items():
        if isinstance(value, dict):
            lines += ["", f"[{_key(name)}]", *_pairs(value)]
        elif _is_table_array(value):
            for item in value:
                lines += ["", f"[[{_key(name)}]]", *_pairs(item)]
    return "\n".join(lines) + "\n"


def _pairs(table: dict[str, Any]) -> list[str]:
    return [f"{_key(k)} = {_inline(v)}" for k, v in table.items() if v is not None]


def _is_table_array(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)


def _inline(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{ " + ", ".join(_pairs(value)) + " }"
    if _is_table_array(value):
        return "[\n" + "".join(f"    {_inline(item)},\n" for item in value) + "]"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_inline(item) for item in value) + "]"
    if isinstance(value, str):
        return _quoted(value)
    return repr(value)


def _quoted(text: str) -> str:
    """A JSON string is a TOML string, but for the one control character that JSON lets stand as it is."""
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")
