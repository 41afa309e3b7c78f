"""Memoised behaviour of nodes: a machine runs only when a state meets an input for the first time.

A node with its history and everything that waits at it is a *component*, a small integer. A machine is a
deterministic function of its state and its input, so the outcome of an input is computed by the real machine once
and looked up ever after; a global state is then nothing but a tuple of small integers, one per node. Components mean
the same in every configuration with the same nodes, so what one configuration taught serves the next.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ordercast.explore.machines.acting import Cause
from ordercast.explore.machines.memo import Memo, number_of
from ordercast.explore.machines.reactions import Reaction, Reactions
from ordercast.explore.machines.setting import APPLICATION, Arrival, Setting
from ordercast.explore.promises.properties import History, Violation
from ordercast.explore.scope.configurations import Configuration
from ordercast.explore.scope.faults import DETECTOR, DetectorChange

Inbox = tuple[tuple[int, tuple[int, ...]], ...]
"""By channel, in order of channels: the numbers of the inputs that wait there. Empty channels are left out."""

NEVER_CALM = 1 << 30
"""More packets than can ever wait."""


class Move(NamedTuple):
    """A component's next move."""

    after: int
    pushes: tuple[tuple[int, int], ...]
    """(node, number of a parcel) for each node that it sends to."""
    tells: bool
    """Whether the node's history grows."""
    fault: Violation | None
    cause: Cause
    answers: tuple[tuple[int, int], ...] = ()
    """(rank of a client, number of an input) for each packet to a client."""


class Behaviour:
    """The moves of all components met so far."""

    def __init__(
        self, setting: Setting, *, fifo: bool = True, upwards: bool = False, idle_at_once: bool = False
    ) -> None:
        self.setting = setting
        self.fifo = fifo
        self._idle_at_once = idle_at_once
        self.moves: dict[int, tuple[Move, ...]] = Memo(self._learn_moves)
        """By component: what it may do about what waits at it."""
        self.timers: dict[int, tuple[Move, ...]] = Memo(self._learn_timers)
        """By component: what it may do when time passes."""
        self.changes: dict[int, tuple[Move, ...]] = Memo(self._learn_changes)
        """By component: what it does if it begins to suspect a linked node, or to trust it again."""
        self.unrest: dict[int, int] = Memo(self._learn_unrest)
        """By component: how many packets wait there; without end, if there is something to publish."""
        self.pushed: dict[tuple[int, int], int] = Memo(self._learn_push)
        """By (component, number of a parcel): the component after the parcel has come to wait at it."""
        self.history: list[int] = []
        """By component: the number of its node's history."""
        self.histories: list[History] = []
        self._history_numbers: dict[History, int] = {}
        self.reactions = Reactions(setting, upwards=upwards)
        self._components: dict[tuple[int, int, Inbox], int] = {}
        self._contents: list[tuple[int, int, Inbox]] = []
        self._after: dict[int, tuple[int, ...]] = {}
        """By input: what must be in the history of the node that publishes it."""

    @property
    def steps_run(self) -> int:
        """How many inputs the real machines have handled."""
        return len(self.reactions)

    @property
    def size(self) -> int:
        """Entries in the largest table."""
        return max(len(self._components), len(self.pushed))

    def initial(
        self, configuration: Configuration, *, twins_in_order: bool = False, asked: bool = True
    ) -> tuple[int, ...]:
        """The global state in which everything has been asked for (unless not even that) and nothing has happened."""
        self.reactions.expect(configuration)
        machines, timers, arrivals = self.setting.start()
        if asked:
            arrivals += self.setting.requests(configuration, twins_in_order=twins_in_order) + self.setting.toggles()
            self._note_conditions(configuration)
        nothing = number_of((), self._history_numbers, self.histories)
        states = [self.reactions.state(node, *facts) for node, facts in enumerate(zip(machines, timers, strict=True))]
        return tuple(
            self._component(state, nothing, self._fill(a for a in arrivals if a.node == node))
            for node, state in enumerate(states)
        )

    def _note_conditions(self, configuration: Configuration) -> None:
        if configuration.publishers is None:
            return
        for message, after in zip(self.setting.messages(configuration), configuration.after, strict=True):
            if after:
                self._after[self.reactions.input(APPLICATION, message)] = after

    def content(self, component: int) -> tuple[int, int, Inbox]:
        """State, history, and what waits."""
        return self._contents[component]

    def number_of_history(self, history: History) -> int:
        return number_of(history, self._history_numbers, self.histories)

    def is_idle(self, component: int) -> bool:
        """Whether nothing waits at the node."""
        return not self._contents[component][2]

    # Components

    def _component(self, state: int, history: int, inbox: Inbox) -> int:
        key = (state, history, self._without_idle(state, inbox) if self._idle_at_once else inbox)
        number = self._components.get(key)
        if number is None:
            number = self._components[key] = len(self._contents)
            self._contents.append(key)
            self.history.append(history)
        return number

    def _without_idle(self, state: int, inbox: Inbox) -> Inbox:
        """Waiting packets, without those that would change nothing."""
        kept = []
        for channel, items in inbox:
            if channel >= 0:
                items = tuple(item for item in items if not self.reactions.is_idle(state, item))  # noqa: PLW2901
            if items:
                kept.append((channel, items))
        return tuple(kept)

    def _fill(self, arrivals: Iterable[Arrival]) -> Inbox:
        inbox: Inbox = ()
        for arrival in arrivals:
            inbox = self._put(inbox, arrival.channel, (self.reactions.input(arrival.peer, arrival.what),))
        return inbox

    def _put(self, inbox: Inbox, channel: int, items: tuple[int, ...]) -> Inbox:
        channels = dict(inbox)
        waiting = channels.get(channel, ()) + items
        channels[channel] = waiting if self._is_ordered(channel) else tuple(sorted(waiting))
        return tuple(sorted(channels.items()))

    def _is_ordered(self, channel: int) -> bool:
        return self.fifo or channel < 0

    def _is_too_early(self, number: int, history: int) -> bool:
        """Whether a node with that history cannot publish the message yet."""
        after = self._after.get(number)
        return after is not None and not met(after, self.histories[history])

    # Learning

    def _learn_push(self, key: tuple[int, int]) -> int:
        component, parcel = key
        state, history, inbox = self._contents[component]
        return self._component(state, history, self._put(inbox, *self.reactions.parcels[parcel]))

    def _learn_moves(self, component: int) -> tuple[Move, ...]:
        state, history, inbox = self._contents[component]
        node = self.reactions.node(state)
        moves = []
        for place, (channel, items) in enumerate(inbox):
            if channel == APPLICATION and self._is_too_early(items[0], history):
                continue
            for at in (0,) if self._is_ordered(channel) else _first_of_each(items):
                rest = items[:at] + items[at + 1 :]
                left = ((channel, rest),) if rest else ()
                after_inbox = inbox[:place] + left + inbox[place + 1 :]
                cause = Cause(node, *self.reactions.inputs[items[at]])
                moves.append(self._move(history, after_inbox, self.reactions.to_input(state, items[at]), cause))
        return tuple(moves)

    def _learn_timers(self, component: int) -> tuple[Move, ...]:
        state, history, inbox = self._contents[component]
        node = self.reactions.node(state)
        return tuple(
            self._move(history, inbox, self.reactions.to_timer(state, name), Cause(node, node, None, name))
            for name in self.reactions.timers(state)
        )

    def _learn_changes(self, component: int) -> tuple[Move, ...]:
        state, history, inbox = self._contents[component]
        node, _, _, suspected = self.reactions.known(state)
        moves = []
        for peer in self.setting.linked[node]:
            change = DetectorChange((peer,), on=peer not in suspected)
            reaction = self.reactions.to_input(state, self.reactions.input(DETECTOR, change))
            moves.append(self._move(history, inbox, reaction, Cause(node, DETECTOR, change)))
        return tuple(moves)

    def _learn_unrest(self, component: int) -> int:
        _, history, inbox = self._contents[component]
        for channel, items in inbox:
            if channel == APPLICATION and not self._is_too_early(items[0], history):
                return NEVER_CALM
        return sum(len(items) for channel, items in inbox if channel >= 0)

    def _move(self, history: int, inbox: Inbox, reaction: Reaction, cause: Cause) -> Move:
        after, told, pushes, fault, answers, _ = reaction
        if told:
            history = number_of(self.histories[history] + told, self._history_numbers, self.histories)
        return Move(self._component(after, history, inbox), pushes, bool(told), fault, cause, answers)


def met(after: Iterable[int], history: History) -> bool:
    """Whether a node has published or delivered all these messages."""
    return all(message in history or ~message in history for message in after)


def _first_of_each(items: tuple[int, ...]) -> list[int]:
    """Positions of distinct items: it makes no difference which of two equal ones is taken."""
    return [at for at, item in enumerate(items) if item not in items[:at]]
