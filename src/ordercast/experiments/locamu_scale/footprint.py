"""Measures memory: of the whole process, and of the state of one node's machine."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ordercast.core.state import State


def resident_bytes() -> int:
    """Memory of this process that is in use now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def reachable(machine: State) -> dict[int, object]:
    """Everything that a machine refers to, by its identity, and so on from there."""
    found: dict[int, object] = {}
    todo: list[Any] = [vars(machine)]
    while todo:
        value = todo.pop()
        if id(value) not in found and not _costs_nothing(value):
            found[id(value)] = value
            todo += _parts(value)
    return found


def own_bytes(machine: State, shared: Mapping[int, object]) -> int:
    """Bytes of a machine and its parts, without what another one refers to as well."""
    mine = [value for identity, value in reachable(machine).items() if identity not in shared]
    return sys.getsizeof(machine) + sum(map(sys.getsizeof, mine))


def _costs_nothing(value: Any) -> bool:
    """Classes, functions and names belong to the program; small numbers exist once."""
    return value is None or isinstance(value, bool | str | type) or callable(value) or (
        isinstance(value, int) and -5 <= value <= 256
    )  # fmt: skip


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | set | frozenset | deque):
        return list(value)
    if hasattr(value, "__dict__"):
        return [vars(value)]
    if hasattr(value, "__slots__") or hasattr(value, "__struct_fields__"):
        names = getattr(value, "__struct_fields__", None) or value.__slots__
        return [getattr(value, name) for name in names if hasattr(value, name)]
    return []
