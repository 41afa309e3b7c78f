"""Every interleaving of one configuration, breadth first, so that the first violation found is a shortest one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations, product
from typing import Any, NamedTuple

from ordercast.core.messages import Guarantee
from ordercast.explore.machines.acting import Cause
from ordercast.explore.machines.behaviour import Behaviour, Move
from ordercast.explore.machines.memo import Memo
from ordercast.explore.promises.precedence import Precedence
from ordercast.explore.promises.properties import (
    Histories,
    Violation,
    agreement,
    first_violation,
    prefix,
    safety_checks,
)
from ordercast.explore.scope.configurations import Configuration

State = tuple[int, ...]
Numbers = tuple[int, ...]
"""The numbers of all nodes' histories."""

Look = Callable[[int], None]
"""Called with the number of states every now and then; raises LimitReachedError to end the search."""

_CHUNK = 8192
"""States between two looks at the limits."""


class LimitReachedError(Exception):
    """The search was told to look no further."""


class Found(NamedTuple):
    """A violation, and the state and move that show it; no move: the state itself, at rest."""

    violation: Violation
    state: State
    move: Move | None


class Judge:
    """The promises of one configuration; every combination of histories is looked at once."""

    def __init__(self, behaviour: Behaviour, configuration: Configuration, guarantee: Guarantee) -> None:
        self._behaviour = behaviour
        self._configuration = configuration
        self._checks = safety_checks(guarantee)
        self._known: dict[Numbers, Violation | None] = {}
        self._precedence = Precedence(configuration) if prefix in self._checks else None
        self._bits: dict[int, int] = Memo(self._learn_bits)
        """By component: what its history says about who precedes whom."""
        self._bits_of_history: dict[tuple[int, int], int] = Memo(self._learn_bits_of_history)
        self.outcomes: set[Numbers] = set()
        """The histories of all states at rest."""

    def safety(self, state: State) -> Violation | None:
        if self._precedence is not None:
            union, bits = 0, self._bits
            for component in state:
                union |= bits[component]
            if self._precedence.is_acyclic(union):
                return None
        history = self._behaviour.history
        numbers = tuple([history[component] for component in state])
        if numbers not in self._known:
            self._known[numbers] = first_violation(self._checks, self.histories(numbers), self._configuration)
        return self._known[numbers]

    def _learn_bits(self, component: int) -> int:
        state, history, _ = self._behaviour.content(component)
        return self._bits_of_history[self._behaviour.reactions.node(state), history]

    def _learn_bits_of_history(self, key: tuple[int, int]) -> int:
        assert self._precedence is not None
        node, history = key
        return self._precedence.bits(node, self._behaviour.histories[history])

    def at_rest(self, state: State) -> Violation | None:
        history = self._behaviour.history
        return self._owed(tuple([history[component] for component in state]))

    def at_the_end(self, numbers: Numbers) -> Violation | None:
        """As at rest, for histories that were made without looking at them."""
        if numbers in self.outcomes:
            return None
        return first_violation(self._checks, self.histories(numbers), self._configuration) or self._owed(numbers)

    def _owed(self, numbers: Numbers) -> Violation | None:
        if numbers in self.outcomes:
            return None
        violation = agreement(self.histories(numbers), self._configuration)
        if violation is None:
            self.outcomes.add(numbers)
        return violation

    def histories(self, numbers: Numbers) -> Histories:
        return tuple(self._behaviour.histories[number] for number in numbers)

    def distinct_outcomes(self, *, twins_in_order: bool) -> int:
        """How many outcomes there are when every message can be told from every other."""
        if not twins_in_order:
            return len(self.outcomes)
        outcomes = [self.histories(numbers) for numbers in self.outcomes]
        return len({_renamed(o, names) for names in _renamings(self._configuration) for o in outcomes})


class Search:
    """Breadth first over the states of one configuration, each visited once."""

    def __init__(self, behaviour: Behaviour, judge: Judge, look: Look) -> None:
        self._behaviour = behaviour
        self._judge = judge
        self._look = look
        self.seen: set[State] = set()
        self.transitions = 0
        self.depth = 0
        self._found: Found | None = None
        self._parents: dict[State, tuple[State, Move]] | None = None

    def run(self, start: State) -> Found | None:
        """The first violation, or None if there is none in any interleaving."""
        self.seen = {start}
        frontier = [start]
        last = start
        while frontier and self._found is None:
            reached: list[State] = []
            for i in range(0, len(frontier), _CHUNK):
                self._expand(frontier[i : i + _CHUNK], reached)
                if self._is_over():
                    return self._found
            last = frontier[-1]
            frontier = reached
            self.depth += 1
        if self._found is None and not self._judge.outcomes:
            self._found = Found(Violation("rest", "it never comes to rest, whatever happens"), last, None)
        return self._found

    def ask_again(self, most: int) -> None:
        """Repeat up to so many of the steps that this search alone has seen; the tables of reactions know the others.

        Raises:
            UsageError: a machine does not do the same again.
        """

    def _is_over(self) -> bool:
        """Whether a limit was reached after something was found; that it was reached without is not for here to say."""
        try:
            self._look(len(self.seen))
        except LimitReachedError:
            if self._found is None:
                raise
            return True
        return False

    def schedule(self, start: State) -> tuple[Violation | None, list[Cause]]:
        """A violation and a shortest schedule to it: the search, remembering where every state came from."""
        self._parents = {}
        found = self.run(start)
        if found is None:
            return None, []
        causes = [] if found.move is None else [found.move.cause]
        state = found.state
        while state != start:
            state, move = self._parents[state]
            causes.append(move.cause)
        return found.violation, causes[::-1]

    def _expand(self, states: list[State], reached: list[State]) -> None:
        moves_of, timers_of = self._behaviour.moves, self._behaviour.timers
        for state in states:
            idle = True
            for component in state:
                moves = moves_of[component]
                if moves:
                    idle = False
                    self._follow(state, moves, reached)
            if idle:
                # Time passes only when nothing else can happen: timeouts are long, journeys short.
                late = [timers for component in state if (timers := timers_of[component])]
                for timers in late:
                    self._follow(state, timers, reached)
                if not late and (violation := self._judge.at_rest(state)):
                    self._report(Found(violation, state, None))

    def _follow(self, state: State, moves: tuple[Move, ...], reached: list[State]) -> None:
        pushed, seen, parents = self._behaviour.pushed, self.seen, self._parents
        self.transitions += len(moves)
        for move in moves:
            after, pushes, tells, fault, cause, _ = move
            successor: Any = list(state)
            successor[cause[0]] = after
            for target, parcel in pushes:
                successor[target] = pushed[successor[target], parcel]
            successor = tuple(successor)
            if (tells or fault) and (violation := fault or self._judge.safety(successor)):
                self._report(Found(violation, state, move))
            elif successor not in seen:  # As in `_reach`, without another call for every state.
                seen.add(successor)
                reached.append(successor)
                if parents is not None:
                    parents[successor] = (state, move)

    def _reach(self, successor: State, state: State, move: Move, reached: list[State]) -> None:
        if successor in self.seen:
            return
        self.seen.add(successor)
        reached.append(successor)
        if self._parents is not None:
            self._parents[successor] = (state, move)

    def _report(self, found: Found) -> None:
        """Keep the first, but prefer a state at rest of the same level: it needs one step less."""
        if self._found is None or (self._found.move is not None and found.move is None):
            self._found = found


def _renamings(configuration: Configuration) -> list[dict[int, int]]:
    """All ways to swap messages with equal destinations."""
    classes = sorted({tuple(configuration.twins(i)) for i in range(configuration.messages)})
    return [
        {old: new for olds, news in zip(classes, choice, strict=True) for old, new in zip(olds, news, strict=True)}
        for choice in product(*(permutations(members) for members in classes))
    ]


def _renamed(histories: Histories, names: dict[int, int]) -> Histories:
    return tuple(tuple(names[e] if e >= 0 else ~names[~e] for e in history) for history in histories)
