"""An exact check of small histories of a key-value store: is there one order of all operations that explains it?"""

from __future__ import annotations

from dataclasses import dataclass, field

Value = bytes | None


@dataclass(frozen=True)
class Event:
    """One operation: when it was asked for, when its answer came, what it read and what it wrote."""

    invoked: float
    completed: float
    reads: dict[str, Value] = field(default_factory=dict)
    writes: dict[str, Value] = field(default_factory=dict)


def explains(history: list[Event], *, real_time: bool) -> bool:
    """Whether some order gives every read what it read; with `real_time`, one that no finished operation contradicts.

    Tries every order, but no set of finished operations with the same data twice.
    """
    seen: set[tuple[frozenset[int], frozenset[tuple[str, Value]]]] = set()

    def search(left: frozenset[int], data: dict[str, Value]) -> bool:
        if not left:
            return True
        state = (left, frozenset(data.items()))
        if state in seen:
            return False
        seen.add(state)
        first_end = min(history[i].completed for i in left)
        for i in sorted(left):
            event = history[i]
            if real_time and event.invoked > first_end:
                continue
            if all(data.get(key) == value for key, value in event.reads.items()):
                after = {key: value for key, value in {**data, **event.writes}.items() if value is not None}
                if search(left - {i}, after):
                    return True
        return False

    return search(frozenset(range(len(history))), {})
