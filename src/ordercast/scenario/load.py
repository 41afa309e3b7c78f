"""Scenario files: TOML in, checked values out, and back to TOML for a shrunk one."""

from __future__ import annotations

import re
import tomllib
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ordercast.core.errors import UsageError, unknown_name
from ordercast.scenario.model import Scenario

_UNKNOWN_FIELD = re.compile(r"unknown field `(?P<name>[^`]*)`(?: - at `(?P<path>[^`]*)`)?")
_BAD_TAG = re.compile(r"Invalid value '(?P<name>[^']*)' - at `(?P<path>[^`]*)\.kind`")


def load_scenario(path: Path, overrides: Sequence[str] = ()) -> Scenario:
    """The scenario in `path` with `key=value` overrides applied; what is wrong is named by file and field."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise _no_such_file(path) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
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
    if directory is not None and isinstance(overlay, dict) and isinstance(overlay.get("file"), str):
        raw = {**raw, "overlay": {**overlay, "file": str(directory / overlay["file"])}}
    try:
        return msgspec.convert(raw, Scenario)
    except msgspec.ValidationError as error:
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
    raw = msgspec.to_builtins(scenario)
    bare = msgspec.convert({"name": "", "overlay": raw["overlay"], "workload": []}, Scenario)
    defaults = msgspec.to_builtins(bare)
    changed = {key: value for key, value in raw.items() if key == "overlay" or value != defaults[key]}
    return _toml(changed)


def _no_such_file(path: Path) -> UsageError:
    siblings = [p.name for p in path.parent.glob("*.toml")] if path.parent.is_dir() else []
    if not siblings:
        return UsageError(f"{path}: no such scenario file")
    return UsageError(f"{path}: {unknown_name('scenario file', path.name, siblings)}")


def _child(target: Any, name: str, override: str) -> Any:
    if isinstance(target, list):
        return target[_index(target, name, override)]
    child = target.setdefault(name, {}) if isinstance(target, dict) else None
    if not isinstance(child, dict | list):
        raise UsageError(f"--set {override!r}: {name!r} is not a table")
    return child


def _index(target: list[Any], name: str, override: str) -> int:
    if not name.isdigit() or int(name) >= len(target):
        raise UsageError(f"--set {override!r}: {name!r} is not an index from 0 to {len(target) - 1}")
    return int(name)


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _explain(error: str) -> UsageError:
    """What msgspec says, with the nearest valid name where a name is wrong."""
    if match := _UNKNOWN_FIELD.search(error):
        where = match["path"] or "$"
        return UsageError(f"{where[2:] or 'top level'}: {unknown_name('key', match['name'], _fields_at(where))}")
    if match := _BAD_TAG.search(error):
        kinds = [str(struct.__struct_config__.tag) for struct in _structs_at(match["path"])]
        return UsageError(f"{match['path'][2:]}: {unknown_name('kind', match['name'], kinds)}")
    return UsageError(error.replace("`$.", "`"))


def _fields_at(path: str) -> set[str]:
    return {name for struct in _structs_at(path) for name in struct.__struct_encode_fields__} | (
        {"kind"} if any(struct.__struct_config__.tag for struct in _structs_at(path)) else set()
    )


def _structs_at(path: str) -> list[Any]:
    """The structs that may stand at a path such as `$.workload[...].steps[...]`."""
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
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else msgspec.json.encode(name).decode()


def _inline(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{ " + ", ".join(_pairs(value)) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_inline(item) for item in value) + "]"
    if isinstance(value, str):
        return msgspec.json.encode(value).decode()
    return repr(value)
