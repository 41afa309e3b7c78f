"""Every interleaving with faults: packets that overtake each other or never arrive, and suspicions, right or wrong.

Timers do not run out during the search, only at its ends. Wherever nothing is on its way, and nobody has anything to
publish, the run is brought to its end once: nothing goes wrong any more, time passes, and every message must reach all
members (`settling.py`). A lost packet is one that is still on its way when the end begins: that loses nothing, because
a packet that will never arrive cannot be told from one that has not arrived yet.
"""

from __future__ import annotations

from ordercast.core.messages import Message
from ordercast.explore.machines.acting import SETTLE, Cause
from ordercast.explore.machines.actors import Rememberers, Repertoire
from ordercast.explore.machines.behaviour import Behaviour, Move
from ordercast.explore.machines.memo import Memo
from ordercast.explore.machines.setting import APPLICATION
from ordercast.explore.machines.settling import Script, Settling
from ordercast.explore.promises.properties import History, Violation
from ordercast.explore.scope.configurations import Configuration
from ordercast.explore.search.breadth_first import Found, Judge, Look, Search, State

Ending = tuple[History, ...] | Violation
"""What every node does in the end, or what goes wrong then."""


class FaultySearch(Search):
    """States have one more component than there are nodes: how many changes of suspicions are left."""

    def __init__(self, behaviour: Behaviour, judge: Judge, look: Look, configuration: Configuration) -> None:
        super().__init__(behaviour, judge, look)
        self._configuration = configuration
        self._faults = behaviour.setting.faults
        self._script = Script(behaviour.setting, configuration)
        self._repertoire = Repertoire(behaviour.setting, self._script.index)
        self._roles: dict[int, int] = Memo(self._role)
        """By state of a machine: its number in the repertoire."""
        self._endings: dict[tuple[tuple[int, tuple[int, ...], int], ...], Ending] = {}

    def ask_again(self, most: int) -> None:
        self._repertoire.ask_again(most)

    def start(self) -> State:
        return (*self._behaviour.initial(self._configuration), self._faults.suspicions)

    def schedule(self, start: State) -> tuple[Violation | None, list[Cause]]:
        violation, causes = super().schedule(start)
        if self._found is None or self._found.move is not None:
            return violation, causes
        lost = [cause for component in self._found.state[:-1] for cause in self._on_the_way(component)]
        return violation, [*causes, *lost, SETTLE]

    def _on_the_way(self, component: int) -> list[Cause]:
        """The packets for a node, as losses."""
        state, _, inbox = self._behaviour.content(component)
        reactions = self._behaviour.reactions
        numbers = [number for channel, items in inbox if channel >= 0 for number in items]
        return [Cause(reactions.node(state), *reactions.inputs[number], lost=True) for number in numbers]

    def _expand(self, states: list[State], reached: list[State]) -> None:
        behaviour = self._behaviour
        moves_of, changes_of, unrest_of = behaviour.moves, behaviour.changes, behaviour.unrest
        losses = self._faults.losses
        for state in states:
            unrest = 0
            left = state[-1]
            for component in state[:-1]:
                self._follow_with(state, moves_of[component], left, reached)
                if left:
                    self._follow_with(state, changes_of[component], left - 1, reached)
                unrest += unrest_of[component]
            if unrest <= losses and (violation := self._end(state)):
                self._report(Found(violation, state, None))

    def _follow_with(self, state: State, moves: tuple[Move, ...], left: int, reached: list[State]) -> None:
        pushed, seen = self._behaviour.pushed, self.seen
        self.transitions += len(moves)
        for move in moves:
            after, pushes, tells, fault, cause, _ = move
            moved = list(state)
            moved[cause[0]] = after
            for target, parcel in pushes:
                moved[target] = pushed[moved[target], parcel]
            moved[-1] = left
            if (tells or fault) and (violation := fault or self._judge.safety(tuple(moved[:-1]))):
                self._report(Found(violation, state, move))
                continue
            successor = tuple(moved)
            if successor not in seen:
                self._reach(successor, state, move, reached)

    # Ends

    def _end(self, state: State) -> Violation | None:
        """The violation at the end, if everything on its way is lost and nothing goes wrong after that."""
        behaviour = self._behaviour
        contents = [behaviour.content(component) for component in state[:-1]]
        key = []
        for known, history, inbox in contents:
            unpublished = next((items for channel, items in inbox if channel == APPLICATION), ())
            key.append((known, unpublished, history if unpublished else -1))
        ending = self._endings.get(tuple(key))
        if ending is None:
            ending = self._endings[tuple(key)] = self._settle([content[:2] for content in contents], key)
        if isinstance(ending, Violation):
            return ending
        numbers = [
            behaviour.number_of_history(behaviour.histories[history] + more) if more else history
            for (_, history, _), more in zip(contents, ending, strict=True)
        ]
        return self._judge.at_the_end(tuple(numbers))

    def _role(self, state: int) -> int:
        known = self._behaviour.reactions.known(state)
        return self._repertoire.state(known.node, known.machine)

    def _settle(self, contents: list[tuple[int, int]], key: list[tuple[int, tuple[int, ...], int]]) -> Ending:
        behaviour, reactions = self._behaviour, self._behaviour.reactions
        known = [reactions.known(state) for state, _ in contents]
        before = [behaviour.histories[history] for _, history in contents]
        unpublished = {
            node: [message for number in items if isinstance(message := reactions.inputs[number][1], Message)]
            for node, (_, items, _) in enumerate(key)
            if items
        }
        actors = Rememberers(self._repertoire, [self._roles[state] for state, _ in contents])
        settling = Settling(actors, self._script, [one.timers for one in known], before)
        fault = settling.run([one.suspected for one in known], unpublished)
        if fault is not None:
            return fault
        return tuple(after[len(start) :] for start, after in zip(before, settling.histories, strict=True))
