"""Nodes of a run: real machines, or recordings of what they did."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, Protocol

from ordercast.core.machine import Machine
from ordercast.core.messages import Message
from ordercast.core.state import exact
from ordercast.explore.machines.acting import Cause, act
from ordercast.explore.machines.memo import to_repeat
from ordercast.explore.machines.reactions import not_the_same
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


class Performed(NamedTuple):
    """A recorded reaction of a machine."""

    before: int
    cause: Cause
    after: int
    effects: Effects | Violation


class Repertoire:
    """Recorded reactions of machines, repeated without them: machines are deterministic."""

    def __init__(self, setting: Setting, index: Mapping[Message, int]) -> None:
        self._setting = setting
        self._index = index
        self.machines: list[Machine] = []
        """By number of a state: a machine in it, never to be changed."""
        self._numbers: dict[Hashable, int] = {}
        self._done: dict[Hashable, Performed] = {}

    def state(self, node: int, machine: Machine) -> int:
        key = (node, machine.frozen())
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.machines)
            self.machines.append(machine)
        return number

    def do(self, state: int, cause: Cause) -> tuple[int, Effects | Violation]:
        """The state after the input, and the effects."""
        key = (state, cause.node, cause.peer, exact(cause.what, shared=True), cause.timer)
        known = self._done.get(key)
        if known is None:
            known = self._done[key] = Performed(state, cause, *self._perform(state, cause))
        return known.after, known.effects

    def ask_again(self, most: int) -> None:
        """Repeat what machines did, up to `most` steps where that is many: each does the same again.

        Raises:
            UsageError: one does not, so that nothing of what was found can be relied on.
        """
        for step in to_repeat(list(self._done.values()), most):
            after, effects = self._perform(step.before, step.cause)
            if after != step.after or not _alike(effects, step.effects):
                raise not_the_same(self._setting, step.cause)

    def _perform(self, state: int, cause: Cause) -> tuple[int, Effects | Violation]:
        """Let a copy of the machine do it: the state after that, and the effects."""
        machine = self.machines[state].copy()
        effects = act(machine, cause, self._setting, self._index)
        return self.state(cause.node, machine), effects


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


def _alike(one: Effects | Violation, other: Effects | Violation) -> bool:
    """Words of an error may name places in memory: that it is one is enough."""
    if isinstance(one, Violation) or isinstance(other, Violation):
        return isinstance(one, Violation) and isinstance(other, Violation) and one.check == other.check
    return _told_apart(one) == _told_apart(other)


def _told_apart(effects: Effects) -> Hashable:
    sent = tuple([(peer, exact(packet, shared=True)) for peer, packet in effects.sent])
    delays = tuple(effects.delays.items())
    return sent, tuple(effects.delivered), tuple(effects.completed), tuple(effects.timers), delays
