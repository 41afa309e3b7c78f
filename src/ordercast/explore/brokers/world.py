"""A global state of a tree: its processes, what is in transit between them, and every step that may come next.

A connection is first in, first out, both ways. When a process dies, or a connection breaks, nothing more of what was on
its way arrives: that some of it still did is the same as that it had arrived before.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple

from ordercast.core.process import Connection, Peer
from ordercast.explore.brokers.processes import (
    Arrived,
    Closed,
    Effect,
    Input,
    Open,
    Opened,
    ProcessReaction,
    ProcessTable,
    Publishes,
    Rings,
    Sent,
    Shut,
    Subscribes,
)
from ordercast.explore.promises.properties import History, Violation

DOWN = -1
_UNANSWERED: Connection = 0
"""In place of a connection's number: its end was dialed and has not answered yet."""
_ENDED: Connection = -1
"""In place of a connection's number: that end hears nothing any more."""


class DialRequest(NamedTuple):
    """In transit: a request to open a connection."""

    peer: Peer


class Answer(NamedTuple):
    """In transit: the dialed process has accepted."""

    peer: Peer


class ClosedEnd(NamedTuple):
    """In transit: the other end has closed; `gone`: it crashed, without a word."""

    gone: bool
    reason: str


Item = bytes | DialRequest | Answer | ClosedEnd


class ExploredConnection(NamedTuple):
    """A connection: the process at each end, its number there, and what is in transit, oldest first."""

    dialer: int
    number: Connection
    target: int
    target_number: Connection
    forth: tuple[Item, ...]
    back: tuple[Item, ...]


class Moment(NamedTuple):
    """A global state: all processes and connections at one moment."""

    now: int
    processes: tuple[int, ...]
    """By rank: the number of the process as it is; -1: down."""
    lines: tuple[ExploredConnection, ...]
    said: tuple[int, ...]
    """By client: how many of its publications are out."""
    crashed: int = 0
    """1: the broker that may crash has; 2: it is back."""
    cut: bool = False
    early: int = 0
    """Timers that ran out early."""
    cuts: int = 0
    """Connections that broke, where any may."""
    losses: int = 0
    """Acknowledgements that were lost."""
    joined: int = 0
    """Bits: who has joined of those that were not there from the beginning."""
    last: tuple[tuple[int, History], ...] = ()
    """What processes had done that are dead."""


class PossibleStep(NamedTuple):
    """A step that may be next, and what it leads to."""

    label: str
    after: Moment
    told: bool
    """Whether a client has published or delivered something."""
    fault: Violation | None
    optional: bool = False
    """It need not ever happen."""


class BrokerWorld:
    """The steps of every moment of one configuration."""

    def __init__(self, table: ProcessTable) -> None:
        self.table = table
        self.scope = table.scope
        self._by_client = [
            [i for i, talk in enumerate(table.talks) if talk.client == client]
            for client in range(len(self.scope.members))
        ]

    # The beginning

    def begin(self) -> Moment:
        """Everybody is up, and every subscription counts."""
        ranks = range(len(self.table.names))
        moment = Moment(0, (DOWN,) * len(ranks), (), (0,) * len(self.scope.members))
        for rank in ranks:
            moment = self._started(moment, rank, 0)
            moment = self.settled(moment)
        for client, member in enumerate(self.scope.members):
            for topic in member.topics:
                moment = self.settled(self._follow(moment, self.scope.brokers + client, Subscribes(topic))[0])
        return moment

    def settled(self, moment: Moment) -> Moment:
        """One way to the next rest: what is on its way arrives, oldest connection first, and then time passes."""
        for _ in range(_MOST_STEPS):
            step = next(self._arrivals(moment), None) or self._time(moment)
            if step is None:
                return moment
            if step.fault is not None:
                raise FaultyBeginningError(step.fault)
            moment = step.after
        raise FaultyBeginningError(Violation("rest", "it does not come to rest"))

    # Steps

    def steps(self, moment: Moment) -> Iterator[PossibleStep]:
        """Everything that may happen next. Time passes only when nothing is on its way."""
        arrivals = list(self._arrivals(moment))
        yield from arrivals
        yield from self._publications(moment)
        yield from self._troubles(moment)
        if arrivals:
            if moment.early < self.scope.trouble.early:
                yield from self._early(moment)
        elif (step := self._time(moment)) is not None:
            yield step

    def much_later(self, moment: Moment) -> Moment:
        """One way on from a rest: time passes, although nobody waits for it."""
        for _ in range(_MUCH_LATER):
            step = next(self._arrivals(moment), None) or self._time(moment, waited=True)
            if step is None or step.fault is not None:
                break
            moment = step.after
        return moment

    def at_rest(self, moment: Moment) -> bool:
        """Whether nothing is left to happen but what may go wrong."""
        said = all(count == len(script) for count, script in zip(moment.said, self._by_client, strict=True))
        return said and next(self._arrivals(moment), None) is None and self._time(moment) is None

    def _arrivals(self, moment: Moment) -> Iterator[PossibleStep]:
        for place, line in enumerate(moment.lines):
            if line.forth:
                yield self._arrival(moment, place, forth=True)
            if line.back:
                yield self._arrival(moment, place, forth=False)

    def _arrival(self, moment: Moment, place: int, *, forth: bool) -> PossibleStep:
        """The oldest thing on one way of a connection arrives."""
        line = moment.lines[place]
        queue = line.forth if forth else line.back
        item, rest = queue[0], queue[1:]
        here, number = (line.target, line.target_number) if forth else (line.dialer, line.number)
        left = line._replace(forth=rest) if forth else line._replace(back=rest)
        label = f"{self._name(line.dialer if forth else line.target)} -> {self._name(here)}: {self._told(item)}"
        if isinstance(item, DialRequest):
            return self._knock(moment, place, left, item, label)
        if isinstance(item, ClosedEnd):
            left = left._replace(target_number=_ENDED) if forth else left._replace(number=_ENDED)
        moment = self._with_line(moment, place, left)
        event: Input
        if isinstance(item, Answer):
            event = Opened(number, item.peer)
        elif isinstance(item, ClosedEnd):
            event = Closed(number, item.gone, item.reason)
        else:
            event = Arrived(number, item)
        return self._step(label, moment, here, event)

    def _knock(
        self, moment: Moment, place: int, left: ExploredConnection, item: DialRequest, label: str
    ) -> PossibleStep:
        target = moment.processes[left.target]
        if target == DOWN:
            gone = left._replace(target_number=_ENDED, forth=(), back=(ClosedEnd(True, "nobody answers"),))
            return PossibleStep(f"{label}; nobody answers", self._with_line(moment, place, gone), False, None)
        known = self.table.known[target]
        number = known.connections + 1
        answered = left._replace(target_number=number, back=(Answer(known.peer),))
        return self._step(label, self._with_line(moment, place, answered), left.target, Opened(0, item.peer))

    def _publications(self, moment: Moment) -> Iterator[PossibleStep]:
        for client, script in enumerate(self._by_client):
            said = moment.said[client]
            if said < len(script):
                after = moment._replace(said=put(moment.said, client, said + 1))
                talk = self.table.talks[script[said]]
                label = f"c{client} publishes m{script[said] + 1} on {talk.topic}"
                yield self._step(label, after, self.scope.brokers + client, Publishes(script[said]))

    def _troubles(self, moment: Moment) -> Iterator[PossibleStep]:
        trouble = self.scope.trouble
        if trouble.crash is not None and moment.crashed == 0:
            yield PossibleStep(f"b{trouble.crash} crashes", self._crashed(moment, trouble.crash), False, None, True)
        if trouble.crash is not None and moment.crashed == 1 and trouble.returns:
            back = self._started(moment._replace(crashed=2), trouble.crash, 1)
            yield PossibleStep(f"b{trouble.crash} starts again", back, False, None, True)
        if trouble.cut is not None and not moment.cut:
            rank = self.scope.brokers + trouble.cut
            for place, line in enumerate(moment.lines):
                if line.dialer == rank and line.number > 0 and line.target_number > 0:
                    end = (ClosedEnd(True, "connection reset"),)
                    broken = self._with_line(moment._replace(cut=True), place, line._replace(forth=end, back=end))
                    yield PossibleStep(
                        f"the connection of c{trouble.cut} to {self._name(line.target)} breaks",
                        broken,
                        False,
                        None,
                        True,
                    )

    def _early(self, moment: Moment) -> Iterator[PossibleStep]:
        """Timers run out although something is on its way: links may be slower than any period."""
        for rank, process in enumerate(moment.processes):
            if process != DOWN:
                for name, _, _ in sorted(self._timers(process), key=repr):
                    if self.scope.trouble.timer not in _timer(name).split("/"):
                        continue
                    label = f"timer {_timer(name)} of {self._name(rank)} runs out early"
                    yield self._step(label, moment._replace(early=moment.early + 1), rank, Rings(name))

    def _time(self, moment: Moment, *, waited: bool = False) -> PossibleStep | None:
        """Time passes to the timer that is due first, as long as there is one that somebody waits for."""
        due: list[tuple[int, int, str]] = []
        names = {}
        for rank, process in enumerate(moment.processes):
            if process != DOWN:
                for name, at, background in self._timers(process):
                    due.append((at, rank, repr(name)))
                    names[rank, repr(name)] = name
                    waited = waited or not background
        if not waited or not due:
            return None
        at, rank, text = min(due)
        name = names[rank, text]
        label = f"timer {_timer(name)} of {self._name(rank)} runs out"
        return self._step(label, moment._replace(now=max(at, moment.now)), rank, Rings(name))

    def _timers(self, process: int) -> Iterable[tuple[Hashable, int, bool]]:
        """Those that run out when time passes."""
        return self.table.known[process].timers

    # What comes of it

    def _step(self, label: str, moment: Moment, rank: int, event: Input) -> PossibleStep:
        after, reaction = self._follow(moment, rank, event)
        return PossibleStep(label, after, reaction.tells, reaction.fault)

    def _follow(self, moment: Moment, rank: int, event: Input) -> tuple[Moment, ProcessReaction]:
        reaction = self.table.react(moment.processes[rank], event, moment.now)
        if reaction.fault is not None:
            return moment, reaction
        return self._taken(moment, rank, reaction), reaction

    def _started(self, moment: Moment, rank: int, life: int) -> Moment:
        return self._taken(moment, rank, self.table.start(rank, life, moment.now))

    def _taken(self, moment: Moment, rank: int, reaction: ProcessReaction) -> Moment:
        lines = list(moment.lines)
        for effect in reaction.effects:
            self._take_effect(lines, rank, effect, self.table.known[reaction.after].peer)
        kept = [line for line in map(_heard, lines) if line is not None]
        return moment._replace(
            processes=put(moment.processes, rank, reaction.after), lines=tuple(sorted(kept, key=_order))
        )

    def _take_effect(self, lines: list[ExploredConnection], rank: int, effect: Effect, me: Peer) -> None:
        if isinstance(effect, Open):
            target = self.table.addresses[effect.address]
            lines.append(ExploredConnection(rank, effect.connection, target, _UNANSWERED, (DialRequest(me),), ()))
            return
        for place, line in enumerate(lines):
            if (line.dialer, line.number) == (rank, effect.connection):
                lines[place] = _say(line, effect, forth=True)
                return
            if (line.target, line.target_number) == (rank, effect.connection):
                lines[place] = _say(line, effect, forth=False)
                return

    def _crashed(self, moment: Moment, rank: int) -> Moment:
        end = (ClosedEnd(True, f"{self._name(rank)} is gone"),)
        lines = []
        for line in moment.lines:
            if line.dialer == rank:
                if line.target_number == _UNANSWERED:
                    continue
                line = line._replace(number=_ENDED, forth=end)  # noqa: PLW2901
            elif line.target == rank and line.target_number != _UNANSWERED:
                line = line._replace(target_number=_ENDED, back=end)  # noqa: PLW2901
            lines.append(line)
        kept = [line for line in map(_heard, lines) if line is not None]
        return moment._replace(crashed=1, processes=put(moment.processes, rank, DOWN), lines=tuple(kept))

    def _with_line(self, moment: Moment, place: int, line: ExploredConnection) -> Moment:
        kept = _heard(line)
        between = (kept,) if kept is not None else ()
        return moment._replace(lines=(*moment.lines[:place], *between, *moment.lines[place + 1 :]))

    def _told(self, item: Item) -> str:
        match item:
            case DialRequest():
                return "dials"
            case Answer():
                return "answers"
            case ClosedEnd(gone, reason):
                return f"connection {'lost' if gone else 'closed'}: {reason}"
            case _:
                return type(self.table.codec.decode(item, "")).__name__

    def _name(self, rank: int) -> str:
        return self.table.names[rank]


_MOST_STEPS = 50_000
_MUCH_LATER = 2_000


class FaultyBeginningError(Exception):
    """The start of a configuration, which has one possible run only, already fails."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(violation.detail)
        self.violation = violation


def _say(line: ExploredConnection, effect: Sent | Shut, *, forth: bool) -> ExploredConnection:
    item: Item = effect.packet if isinstance(effect, Sent) else ClosedEnd(False, effect.reason)
    if forth:
        ended = isinstance(effect, Shut) and line.target_number == _UNANSWERED and len(line.forth) == 1
        if ended:  # Nobody has heard the knock, and there is nothing to be said.
            return line._replace(number=_ENDED, target_number=_ENDED)
        line = line._replace(forth=(*line.forth, item))
        return line._replace(number=_ENDED) if isinstance(effect, Shut) else line
    line = line._replace(back=(*line.back, item))
    return line._replace(target_number=_ENDED) if isinstance(effect, Shut) else line


def _heard(line: ExploredConnection) -> ExploredConnection | None:
    """The connection without what nobody will hear; None: it is no more."""
    if line.number == _ENDED and line.back:
        line = line._replace(back=())
    if line.target_number == _ENDED and line.forth:
        line = line._replace(forth=())
    return None if line.number == line.target_number == _ENDED else line


def _order(line: ExploredConnection) -> tuple[int, int, int, int]:
    return line.dialer, line.target, line.number, line.target_number


def put(values: tuple[int, ...], place: int, value: int) -> tuple[int, ...]:
    """The same values but for one."""
    return (*values[:place], value, *values[place + 1 :])


def _timer(name: object) -> str:
    return "/".join(map(str, name)) if isinstance(name, tuple) else str(name)
