"""Memoised reactions of the real machines: each state meets each input once, and the result is kept."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from ordercast.core.errors import UsageError
from ordercast.core.machine import Machine
from ordercast.core.messages import Message, Packet
from ordercast.core.state import PlainParts, check_plain, exact
from ordercast.explore.machines.acting import Cause, act, told
from ordercast.explore.machines.memo import number_of, to_repeat
from ordercast.explore.machines.setting import Effects, Setting
from ordercast.explore.promises.properties import History, Violation
from ordercast.explore.scope.configurations import Configuration
from ordercast.explore.scope.faults import DetectorChange

Input = tuple[int, Packet | Message | DetectorChange]
"""Who it comes from, and what it is."""
Parcel = tuple[int, tuple[int, ...]]
"""What one node sends another in one step: the sender, and the numbers of the inputs."""


class Reaction(NamedTuple):
    """A machine's reaction to an input: its next state and effects."""

    after: int
    told: History
    """What it adds to the node's history."""
    pushes: tuple[tuple[int, int], ...]
    """(node, number of a parcel) for each node that it sends to."""
    fault: Violation | None = None
    answers: tuple[tuple[int, int], ...] = ()
    """(rank of a client, number of an input) for each packet to a client."""
    completes: bool = False
    """Whether a client now has the answer it waited for."""


class Known(NamedTuple):
    """One state of a node, met before: its machine, armed timers and suspicions."""

    node: int
    machine: Machine
    timers: frozenset[Hashable]
    """The armed ones."""
    suspected: frozenset[int]


class Reactions:
    """All states of machines, and all inputs, met so far."""

    def __init__(self, setting: Setting, *, upwards: bool) -> None:
        self.setting = setting
        self._upwards = upwards
        self.inputs: list[Input] = []
        self.parcels: list[Parcel] = []
        self._input_numbers: dict[Hashable, int] = {}
        self._parcel_numbers: dict[Parcel, int] = {}
        self._states: list[Known] = []
        self._state_numbers: dict[Hashable, int] = {}
        self._reactions: dict[tuple[int, Hashable], Reaction] = {}
        self._index: dict[Message, int] = {}
        self._plain = PlainParts()

    def __len__(self) -> int:
        return len(self._reactions)

    def expect(self, configuration: Configuration) -> None:
        """Let the messages of a configuration be delivered."""
        self._index.update((message, i) for i, message in enumerate(self.setting.messages(configuration)))

    def input(self, peer: int, what: Packet | Message | DetectorChange) -> int:
        key = (peer, exact(what, shared=True))
        try:
            number = self._input_numbers.get(key)
        except TypeError:  # Something in it has no hash, and has to go by its name.
            check_plain(what)
            raise
        if number is None:
            if not self._plain.include(what):
                check_plain(what)
            number = self._input_numbers[key] = len(self.inputs)
            self.inputs.append((peer, what))
        return number

    def state(
        self, node: int, machine: Machine, timers: frozenset[Hashable], suspected: frozenset[int] = frozenset()
    ) -> int:
        frozen = machine.frozen()
        key = (node, frozen, timers, suspected)
        try:
            number = self._state_numbers.get(key)
        except TypeError:
            check_plain(machine)
            raise
        if number is None:
            if not self._plain.include(frozen):
                check_plain(machine)
            number = self._state_numbers[key] = len(self._states)
            self._states.append(Known(node, machine, timers, suspected))
        return number

    def known(self, state: int) -> Known:
        return self._states[state]

    def timers(self, state: int) -> list[Hashable]:
        return sorted(self._states[state].timers, key=repr)

    def node(self, state: int) -> int:
        return self._states[state].node

    def to_input(self, state: int, number: int) -> Reaction:
        known = self._reactions.get((state, number))
        if known is None:
            known = self._reactions[state, number] = self._react(state, self._cause(state, number))
        return known

    def is_idle(self, state: int, number: int) -> bool:
        """Whether the input changes nothing at all."""
        reaction = self.to_input(state, number)
        changes = reaction.told or reaction.pushes or reaction.answers or reaction.fault
        return reaction.after == state and not changes

    def to_timer(self, state: int, name: Hashable) -> Reaction:
        key = (state, ("timer", name))
        if key not in self._reactions:
            self._reactions[key] = self._react(state, self._cause(*key))
        return self._reactions[key]

    def ask_again(self, most: int) -> None:
        """Repeat what machines did, up to `most` steps where that is many: each does the same again.

        Raises:
            UsageError: one does not, so that nothing of what was found can be relied on.
        """
        for (state, what), before in to_repeat(list(self._reactions.items()), most):
            cause = self._cause(state, what)
            if not _alike(before, self._react(state, cause)):
                raise not_the_same(self.setting, cause)

    def _cause(self, state: int, what: Hashable) -> Cause:
        """What `what` stands for in the table of reactions: the number of an input, or the name of a timer."""
        node = self._states[state].node
        if isinstance(what, int):
            return Cause(node, *self.inputs[what])
        assert isinstance(what, tuple)
        return Cause(node, node, None, what[1])

    def _react(self, state: int, cause: Cause) -> Reaction:
        """Run the real machine on a copy of its state."""
        node, before, timers, suspected = self._states[state]
        machine = before.copy()
        effects = act(machine, cause, self.setting, self._index)
        if isinstance(effects, Violation):
            return Reaction(state, (), (), effects)
        armed = effects.armed(timers - {cause.timer} if cause.what is None else timers)
        if isinstance(cause.what, DetectorChange):
            suspected = suspected.union(cause.what.peers) if cause.what.on else suspected.difference(cause.what.peers)
        after = self.state(node, machine, armed, suspected)
        pushes, answers = self._pack(node, effects)
        return Reaction(
            after, told(cause, effects, self._index), pushes, answers=answers, completes=bool(effects.completed)
        )

    def _pack(self, node: int, effects: Effects) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
        """The node's output as parcels: one for each server, and single answers for clients."""
        by_target: dict[int, list[int]] = {}
        answers = []
        for peer, packet in effects.sent:
            if self.setting.never_arrives(packet):
                continue
            target = self.setting.rank[peer]
            if target >= len(self.setting.servers):
                answers.append((target, self.input(node, packet)))
                continue
            if self._upwards and target <= node:
                raise UsageError(f"ascending: {self.setting.info.name} sends downwards, from n{node} to n{target}")
            by_target.setdefault(target, []).append(self.input(node, packet))
        return self.parcel(node, by_target), tuple(answers)

    def parcel(self, sender: int, by_target: dict[int, list[int]]) -> tuple[tuple[int, int], ...]:
        """(server, number of a parcel) for inputs that go to servers together."""
        return tuple(
            (target, number_of((sender, tuple(items)), self._parcel_numbers, self.parcels))
            for target, items in by_target.items()
        )


def not_the_same(setting: Setting, cause: Cause) -> UsageError:
    """The complaint about a machine that did something else the second time."""
    return UsageError(
        f"{setting.info.name}: {setting.everyone[cause.node]} does not do the same again {_occasion(cause)}: it "
        "remembers something outside of its attributes, in a variable of its module or class, or asks a clock or "
        "chance; what is explored must not"
    )


def _alike(one: Reaction, other: Reaction) -> bool:
    """Words of an error may name places in memory: that it is one is enough."""
    if one.fault is None or other.fault is None:
        return one == other
    return one.fault.check == other.fault.check


def _occasion(cause: Cause) -> str:
    if cause.what is None:
        return f"when its timer {cause.timer!r} runs out"
    if isinstance(cause.what, DetectorChange):
        return "when it suspects others, or trusts them again"
    if isinstance(cause.what, Message):
        return "when it publishes"
    return f"when it receives a {type(cause.what).__name__}"
