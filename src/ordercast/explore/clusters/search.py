"""Breadth first through all states of a small scope, whatever a state is made of."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import TypeVar

import msgspec

S = TypeVar("S", bound=Hashable)

Steps = Callable[[S], Iterator[tuple[str, S]]]
"""What can happen in a state: a name for it, and the state after. Raises BrokenScopeError where a promise breaks."""


class BrokenScopeError(Exception):
    """A promise that does not hold; the message says which."""


class Explored(msgspec.Struct, frozen=True):
    """The outcome of a search. `story`: the steps to the violation, the shortest there is."""

    states: int
    transitions: int
    violation: str = ""
    story: tuple[str, ...] = ()
    complete: bool = True


def explore_all(start: S, steps: Steps[S], most: int) -> Explored:
    """Every state that can be reached, up to `most` of them."""
    came_from: dict[S, tuple[S, str] | None] = {start: None}
    queue: deque[S] = deque([start])
    transitions = 0
    while queue:
        state = queue.popleft()
        last = ""
        try:
            for last, after in steps(state):
                transitions += 1
                if after not in came_from:
                    came_from[after] = state, last
                    queue.append(after)
        except BrokenScopeError as broken:
            what, _, why = str(broken).partition(" | ")
            return Explored(len(came_from), transitions, why, (*_story(came_from, state), what))
        if len(came_from) > most:
            return Explored(len(came_from), transitions, complete=False)
    return Explored(len(came_from), transitions)


def _story(came_from: dict[S, tuple[S, str] | None], state: S) -> tuple[str, ...]:
    steps: list[str] = []
    at = came_from[state]
    while at is not None:
        state, step = at
        steps.append(step)
        at = came_from[state]
    return tuple(reversed(steps))
