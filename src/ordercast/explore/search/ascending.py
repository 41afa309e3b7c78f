"""Every interleaving of one configuration for protocols whose packets only go upwards, one node after the other.

No packet goes down, so once the lower nodes have nothing left to do, everything that a node will ever receive waits
at it, and what it does cannot depend on when the higher nodes move. All merges of its inputs are therefore explored
before the next node begins: one representative of every class of interleavings that differ only in how steps of
different nodes alternate. Of the nodes that are done nothing matters any more but the order they put the messages
in, so states are told apart by what waits at the higher nodes and by the transitive closure of the orders so far.
"""

from __future__ import annotations

from collections.abc import Callable

from ordercast.core.errors import UsageError
from ordercast.explore.machines.behaviour import Behaviour
from ordercast.explore.promises.precedence import closure
from ordercast.explore.promises.properties import History, Violation, agreement, delivered, integrity
from ordercast.explore.scope.configurations import Configuration

State = tuple[int, ...]
"""The components of all nodes, and the number of a closure at the end."""
Closure = tuple[int, ...]
"""By message: the messages after it, as bits."""

_DONE = -1
_CHUNK = 8192


class Ascending:
    """Breadth first, the lowest node that has something to do first."""

    def __init__(self, behaviour: Behaviour, configuration: Configuration, look: Callable[[int], None]) -> None:
        self._behaviour = behaviour
        self._configuration = configuration
        self._look = look
        self._closures: list[Closure] = [(0,) * configuration.messages]
        self._numbers: dict[Closure, int] = {self._closures[0]: 0}
        self._folded: dict[tuple[int, int, int], int | Violation] = {}
        self.seen: set[State] = set()
        self.transitions = 0
        self.depth = 0
        self.outcomes: set[int] = set()
        """Closures of complete runs."""

    def run(self, start: State) -> Violation | None:
        first = self._settled([*start, 0])
        if isinstance(first, Violation):
            return first
        self.seen = {first}
        frontier = [first]
        while frontier:
            reached: list[State] = []
            for i in range(0, len(frontier), _CHUNK):
                violation = self._expand(frontier[i : i + _CHUNK], reached)
                if violation is not None:
                    return violation
                self._look(len(self.seen))
            frontier = reached
            self.depth += 1
        return None

    def _expand(self, states: list[State], reached: list[State]) -> Violation | None:
        moves_of, pushed, seen = self._behaviour.moves, self._behaviour.pushed, self.seen
        for state in states:
            lowest = next((component for component in state[:-1] if component != _DONE), _DONE)
            if lowest == _DONE:
                self.outcomes.add(state[-1])
                continue
            for after, pushes, _, fault, cause, _ in moves_of[lowest]:
                self.transitions += 1
                if fault is not None:
                    return fault
                moved = list(state)
                moved[cause[0]] = after
                for target, parcel in pushes:
                    moved[target] = pushed[moved[target], parcel]
                successor = self._settled(moved) if self._behaviour.is_idle(after) else tuple(moved)
                if isinstance(successor, Violation):
                    return successor
                if successor not in seen:
                    seen.add(successor)
                    reached.append(successor)
        return None

    def _settled(self, state: list[int]) -> State | Violation:
        """The state with all nodes put away that have nothing to do and nothing to wait for."""
        for node in range(len(state) - 1):
            component = state[node]
            if component == _DONE:
                continue
            if not self._behaviour.is_idle(component):
                break
            if self._behaviour.timers[component]:
                raise UsageError(f"ascending: {self._behaviour.setting.info.name} uses timers")
            folded = self._fold(state[-1], node, self._behaviour.history[component])
            if isinstance(folded, Violation):
                return folded
            state[node], state[-1] = _DONE, folded
        return tuple(state)

    def _fold(self, before: int, node: int, history: int) -> int | Violation:
        key = (before, node, history)
        if key not in self._folded:
            self._folded[key] = self._add_order(self._closures[before], node, self._behaviour.histories[history])
        return self._folded[key]

    def _add_order(self, before: Closure, node: int, history: History) -> int | Violation:
        """The number of the closure with a finished node's order in it."""
        order = delivered(history)
        if sorted(order) != sorted(self._configuration.due[node]):
            return self._unjust(node, history)
        after = list(before)
        for at, message in enumerate(order):
            for later in order[at + 1 :]:
                after[message] |= 1 << later
        closed = closure(after)
        if any(bits >> message & 1 for message, bits in enumerate(closed)):
            return Violation("acyclic", f"the order of n{node} closes a cycle")
        if closed not in self._numbers:
            self._numbers[closed] = len(self._closures)
            self._closures.append(closed)
        return self._numbers[closed]

    def _unjust(self, node: int, history: History) -> Violation:
        """The fault of a finished node that did not deliver what it must; the others are beyond reproach."""
        flawless = [tuple(sorted(due)) for due in self._configuration.due]
        alone = (*flawless[:node], history, *flawless[node + 1 :])
        violation = integrity(alone, self._configuration) or agreement(alone, self._configuration)
        assert violation is not None
        return violation
