"""Every interleaving with the moments at which clients send and are answered: is the order one of real time?

Here a client's sending is a step of its own. An answer arrives at once, which is the worst case: an answer that takes
longer only says less about what came before what.
"""

from __future__ import annotations

from typing import NamedTuple

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId
from ordercast.core.messages import Message
from ordercast.explore.machines.acting import Cause
from ordercast.explore.machines.behaviour import Behaviour, Move
from ordercast.explore.machines.memo import number_of
from ordercast.explore.promises.properties import Violation, answers, real_time
from ordercast.explore.scope.configurations import Configuration
from ordercast.explore.search.breadth_first import Found, Judge, Look, Search, State

_UNSENT = -1


class ClientsMoment(NamedTuple):
    """The clients' view at one moment: what they have done and seen."""

    clients: tuple[int, ...]
    """By message: the state of its client's machine."""
    answered_before: tuple[int, ...]
    """By message: the messages that were answered when it was sent, as bits."""
    answered: int


class RealTimeSearch(Search):
    """States have one more component than there are nodes: the number of a moment."""

    def __init__(self, behaviour: Behaviour, judge: Judge, look: Look, configuration: Configuration) -> None:
        super().__init__(behaviour, judge, look)
        self._moments: list[ClientsMoment] = []
        self._numbers: dict[ClientsMoment, int] = {}
        behaviour.reactions.expect(configuration)
        self._sendings = [self._sending(message) for message in behaviour.setting.messages(configuration)]

    def start(self, configuration: Configuration) -> State:
        """Nobody has sent anything."""
        nothing = ClientsMoment((_UNSENT,) * configuration.messages, (0,) * configuration.messages, 0)
        return (*self._behaviour.initial(configuration, asked=False), self._number(nothing))

    def _sending(self, message: Message) -> tuple[int, Move]:
        """The client's state once it has sent the message, and the step itself."""
        reactions = self._behaviour.reactions
        machine, arrivals = self._behaviour.setting.submission(message)
        rank = self._behaviour.setting.rank[NodeId(message.origin)]
        by_target: dict[int, list[int]] = {}
        for arrival in arrivals:
            by_target.setdefault(arrival.node, []).append(reactions.input(arrival.peer, arrival.what))
        sending = Move(_UNSENT, reactions.parcel(rank, by_target), False, None, Cause(rank, rank, message))
        return reactions.state(rank, machine, frozenset()), sending

    def _expand(self, states: list[State], reached: list[State]) -> None:
        for state in states:
            moment = self._moments[state[-1]]
            unsent = [i for i, client in enumerate(moment.clients) if client == _UNSENT]
            for i in unsent:
                self._send(state, moment, i, reached)
            moves = [moves for component in state[:-1] if (moves := self._behaviour.moves[component])]
            for some in moves:
                self._follow(state, some, reached)
            if not unsent and not moves:
                self._rest(state, moment)

    def _send(self, state: State, moment: ClientsMoment, i: int, reached: list[State]) -> None:
        client, sending = self._sendings[i]
        clients = (*moment.clients[:i], client, *moment.clients[i + 1 :])
        before = (*moment.answered_before[:i], moment.answered, *moment.answered_before[i + 1 :])
        self.transitions += 1
        moved = [*state[:-1], self._number(ClientsMoment(clients, before, moment.answered))]
        self._push(moved, sending)
        self._reach(tuple(moved), state, sending, reached)

    def _follow(self, state: State, moves: tuple[Move, ...], reached: list[State]) -> None:
        self.transitions += len(moves)
        for move in moves:
            moved = list(state)
            moved[move.cause.node] = move.after
            self._push(moved, move)
            fault = move.fault or (self._answer(moved, move) if move.answers else None)
            if fault is None and move.tells:
                fault = self._judge.safety(tuple(moved[:-1]))
            if fault is not None:
                self._report(Found(fault, state, move))
            else:
                self._reach(tuple(moved), state, move, reached)

    def _push(self, moved: list[int], move: Move) -> None:
        for target, parcel in move.pushes:
            moved[target] = self._behaviour.pushed[moved[target], parcel]

    def _answer(self, moved: list[int], move: Move) -> Violation | None:
        moment = self._moments[moved[-1]]
        clients, answered = list(moment.clients), moment.answered
        for rank, number in move.answers:
            i = rank - len(self._behaviour.setting.servers)
            reaction = self._behaviour.reactions.to_input(clients[i], number)
            if reaction.fault is not None:
                return reaction.fault
            clients[i] = reaction.after
            answered |= reaction.completes << i
        moved[-1] = self._number(ClientsMoment(tuple(clients), moment.answered_before, answered))
        return None

    def _rest(self, state: State, moment: ClientsMoment) -> None:
        if any(self._behaviour.timers[component] for component in state[:-1]):
            raise UsageError(f"real_time: {self._behaviour.setting.info.name} uses timers")
        violation = self._judge.at_rest(state[:-1]) or self._ending(state[:-1], moment)
        if violation is not None:
            self._report(Found(violation, state, None))

    def _ending(self, servers: State, moment: ClientsMoment) -> Violation | None:
        """The violation when everything has happened, apart from what the servers did."""
        histories = [self._behaviour.histories[self._behaviour.history[component]] for component in servers]
        violation = answers(moment.answered, len(moment.clients))
        return violation or real_time(tuple(histories), moment.answered_before)

    def _number(self, moment: ClientsMoment) -> int:
        return number_of(moment, self._numbers, self._moments)
