"""Nodes of a run: real machines, or recordings of what they did."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Protocol

from ordercast.core.machine import Machine
from ordercast.core.messages import Message
from ordercast.explore.machines.acting import Cause, act
from ordercast.explore.machines.setting import Effects, Setting
from ordercast.explore.promises.properties import Violation


class Actors(Protocol):
    """All nodes of a run."""

    def do(self, cause: Cause) -> Effects | Violation:
        """Let a node handle an input; the effects are only to be read."""


class Performers:
    """Actors that run real machines."""

    def __init__(self, setting: Setting, machines: Sequence[Machine], index: Mapping[Message, int]) -> None:
        self._setting = setting
        self._machines = machines
        self._index = index

    def do(self, cause: Cause) -> Effects | Violation:
        return act(self._machines[cause.node], cause, self._setting, self._index)


class Repertoire:
    """Recorded reactions of machines, repeated without them: machines are deterministic."""

    def __init__(self, setting: Setting, index: Mapping[Message, int]) -> None:
        self._setting = setting
        self._index = index
        self.machines: list[Machine] = []
        """By number of a state: a machine in it, never to be changed."""
        self._numbers: dict[Hashable, int] = {}
        self._done: dict[tuple[int, Cause], tuple[int, Effects | Violation]] = {}

    def state(self, node: int, machine: Machine) -> int:
        key = (node, machine.frozen())
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.machines)
            self.machines.append(machine)
        return number

    def do(self, state: int, cause: Cause) -> tuple[int, Effects | Violation]:
        """The state after the input, and the effects."""
        known = self._done.get((state, cause))
        if known is None:
            machine = self.machines[state].copy()
            effects = act(machine, cause, self._setting, self._index)
            known = self._done[state, cause] = (self.state(cause.node, machine), effects)
        return known


class Rememberers:
    """Actors that repeat what a repertoire has recorded."""

    def __init__(self, repertoire: Repertoire, states: Sequence[int]) -> None:
        self._repertoire = repertoire
        self._states = list(states)

    def machines(self) -> list[Machine]:
        """The machines behind these numbers, to be looked at and not to be changed."""
        return [self._repertoire.machines[state] for state in self._states]

    def do(self, cause: Cause) -> Effects | Violation:
        node = cause.node
        self._states[node], effects = self._repertoire.do(self._states[node], cause)
        return effects
