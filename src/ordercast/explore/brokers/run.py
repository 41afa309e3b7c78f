"""Explore brokers: every interleaving of every configuration of a scope, shortest first."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import msgspec

from ordercast.core.errors import UsageError
from ordercast.core.messages import Guarantee
from ordercast.explore.brokers.processes import ExploredParts, ProcessTable
from ordercast.explore.brokers.promises import Promises
from ordercast.explore.brokers.scope import (
    BrokerScope,
    Talk,
    Trouble,
    check_scope,
    parse_crash,
    parse_members,
    parse_number,
    parse_talk,
    settings_of,
    tree_of,
)
from ordercast.explore.brokers.world import BrokerWorld, FaultyBeginningError, Moment, PossibleStep
from ordercast.explore.promises.properties import Histories, Violation, name
from ordercast.explore.result import Counterexample, Exploration, Memory, Replay, Size
from ordercast.explore.scope.publications import parse_edges
from ordercast.explore.stage.schedule import SteppedRun
from ordercast.pubsub.settings import BrokerSettings

C = TypeVar("C", bound=Iterable[object])
"""A configuration: what is published."""
_MARKS = 1 << 19
"""Entries of histories from here on are no messages."""
_CHUNK = 512
"""Moments between two looks at the limits."""


class _LimitReachedError(Exception):
    pass


def explore_brokers(
    scope: BrokerScope,
    *,
    parts: ExploredParts | None = None,
    keep_going: bool = False,
    limit_states: int | None = None,
    limit_seconds: float | None = None,
    progress: Callable[[float], None] | None = None,
) -> Exploration:
    """Run every interleaving of what the scope says, from the moment at which all subscriptions count."""
    check_scope(scope)
    counts = {messages: len(list(scope.configurations(messages))) for messages in scope.sizes()}
    sizes = [Size(messages, count) for messages, count in counts.items()]
    result = Exploration(protocol="broker", nodes=scope.brokers, sizes=sizes, decided=True)
    return explore_all(
        result,
        scope.configurations,
        lambda talks: BrokerSearch(scope, talks, parts or ExploredParts()),
        lambda talks, search: _tell(scope, talks, parts or ExploredParts(), search),
        keep_going=keep_going, limit_states=limit_states, limit_seconds=limit_seconds, progress=progress,
    )  # fmt: skip


def explore_all(
    result: Exploration,
    configurations: Callable[[int], Iterable[C]],
    make: Callable[[C], BrokerSearch],
    tell: Callable[[C, BrokerSearch], Counterexample],
    *,
    keep_going: bool,
    limit_states: int | None,
    limit_seconds: float | None,
    progress: Callable[[float], None] | None,
) -> Exploration:
    """Search every configuration of every size; `tell` makes a counterexample of a search that found one."""
    memory = Memory()
    begin, cpu_begin = time.monotonic(), time.process_time()

    def look(states: int) -> None:
        late = limit_seconds is not None and time.monotonic() - begin > limit_seconds
        if late or (limit_states is not None and result.states + states > limit_states):
            raise _LimitReachedError

    collecting = gc.isenabled()
    gc.disable()  # Millions of tuples that stay, and no cycles.
    try:
        for size in result.sizes:
            for configuration in configurations(size.messages):
                found = _explore(make(configuration), size, result, look)
                if found is not None:
                    _note_violation(configuration, found, make, tell, result)
                if progress is not None:
                    progress(result.configurations / result.scope)
                if result.counterexample is not None and not keep_going:
                    return result
    except _LimitReachedError:
        result.decided = False
    finally:
        if collecting:
            gc.enable()
        result.bytes_per_state = memory.per_state(result.largest)
        result.seconds, result.cpu_seconds = time.monotonic() - begin, time.process_time() - cpu_begin
    return result


def _explore(search: BrokerSearch, size: Size, result: Exploration, look: Callable[[int], None]) -> Violation | None:
    try:
        found = search.run(look)
    finally:
        size.states += len(search.seen)
        size.transitions += search.transitions
        size.longest = max(size.longest, search.depth)
        result.machine_steps += search.table.steps_run
        result.largest = max(result.largest, len(search.seen))
    size.explored += 1
    size.outcomes += len(search.promises.outcomes)
    return found


def _note_violation(
    configuration: C,
    found: Violation,
    make: Callable[[C], BrokerSearch],
    tell: Callable[[C, BrokerSearch], Counterexample],
    result: Exploration,
) -> None:  # fmt: skip
    """List it; the first one is searched once more, remembering where every moment came from."""
    result.violating.append(f"{words(configuration)}: {found.check}")
    if result.counterexample is None:
        search = make(configuration)
        search.parents = {}
        search.violation = search.run(lambda _states: None)
        assert search.violation is not None, "the search is deterministic"
        result.counterexample = tell(configuration, search)


def words(configuration: Iterable[object]) -> str:
    """A configuration in one line."""
    return " ".join(f"{name(i)}:{talk}" for i, talk in enumerate(configuration))


class BrokerSearch:
    """Breadth first over the moments of one configuration, each visited once."""

    who = "c"
    """Whose histories they are: clients."""

    def __init__(self, scope: BrokerScope, talks: tuple[Talk, ...], parts: ExploredParts) -> None:
        table = ProcessTable(scope, talks, parts)
        self._begin(table, BrokerWorld(table), Promises(scope, talks))

    def _begin(self, table: ProcessTable, world: BrokerWorld, promises: Promises) -> None:
        self.table = table
        self.world = world
        self.promises = promises
        self.violation: Violation | None = None
        self.seen: set[Moment] = set()
        self.transitions = 0
        self.depth = 0
        self.parents: dict[Moment, tuple[Moment, str]] | None = None
        self.end: tuple[Moment, str] | None = None
        """Where the violation shows: at a moment, or by the step that is named."""

    def run(self, look: Callable[[int], None]) -> Violation | None:
        """The first violation, or None if there is none in any interleaving."""
        try:
            start = self.world.begin()
        except FaultyBeginningError as error:
            return error.violation
        self.seen = {start}
        frontier = [start]
        while frontier:
            reached: list[Moment] = []
            for i, moment in enumerate(frontier):
                if i % _CHUNK == 0:
                    look(len(self.seen))
                violation = self._expand(moment, reached)
                if violation is not None:
                    return violation
            frontier = reached
            self.depth += 1
        return None

    def _expand(self, moment: Moment, reached: list[Moment]) -> Violation | None:
        quiet = True
        for step in labelled(self.world, moment) if self.parents is not None else self.world.steps(moment):
            self.transitions += 1
            quiet = quiet and step.optional
            violation = step.fault or (self.promises.safety(self.histories(step.after)) if step.told else None)
            if violation is not None:
                self.end = (moment, step.label)
                return violation
            if step.after not in self.seen:
                self.seen.add(step.after)
                reached.append(step.after)
                if self.parents is not None:
                    self.parents[step.after] = (moment, step.label)
        return self.at_rest(moment) if quiet else None

    def at_rest(self, moment: Moment) -> Violation | None:
        """Deliveries that are missing where nothing more happens, however long one waits."""
        histories = self.histories(moment)
        if histories in self.promises.outcomes:
            return None
        violation = self.promises.agreement(histories)
        if violation is not None:
            violation = self.promises.agreement(self.histories(self.world.much_later(moment)))
        if violation is None:
            self.promises.outcomes.add(histories)
        else:
            self.end = (moment, "")
        return violation

    def histories(self, moment: Moment) -> Histories:
        brokers = self.table.scope.brokers
        return tuple(self.table.known[process].history for process in moment.processes[brokers:])

    def schedule(self) -> list[str]:
        """The steps to the violation that `run` found with parents."""
        if self.end is None or self.parents is None:
            return []
        moment, last = self.end
        steps = [last] if last else []
        while moment in self.parents:
            moment, label = self.parents[moment]
            steps.append(label)
        return steps[::-1]


def labelled(world: BrokerWorld, moment: Moment) -> Iterator[PossibleStep]:
    """The steps, each with a label of its own."""
    used: dict[str, int] = {}
    for step in world.steps(moment):
        used[step.label] = count = used.get(step.label, 0) + 1
        yield step if count == 1 else step._replace(label=f"{step.label} ({count})")


def _tell(scope: BrokerScope, talks: tuple[Talk, ...], parts: ExploredParts, search: BrokerSearch) -> Counterexample:
    steps = search.schedule()
    assert search.violation is not None
    schedule = _schedule(scope, talks, steps, search.violation)
    performed = perform(BrokerSearch(scope, talks, parts), steps)
    return Counterexample(words(talks), search.violation, schedule, performed.story, performed.orders)


def perform(search: BrokerSearch, steps: list[str]) -> Replay:
    """Take exactly these steps on fresh machines, and say what came of them."""
    moment = search.world.begin()
    story: list[str] = []
    violation: Violation | None = None
    for label in steps:
        before = search.histories(moment)
        step = next((step for step in labelled(search.world, moment) if step.label == label), None)
        if step is None:
            raise UsageError(f"{label!r} cannot happen here")
        moment = step.after
        violation = step.fault or search.promises.safety(search.histories(moment))
        story.append("; ".join([label, *_news(search.who, before, search.histories(moment))]))
        if violation is not None:
            break
    if violation is None and search.world.at_rest(moment):
        violation = search.at_rest(moment)
    orders = [
        f"{search.who}{client}: {' '.join(name(entry) for entry in history if 0 <= entry < _MARKS)}".rstrip()
        for client, history in enumerate(search.histories(moment))
    ]
    return Replay(violation, None, story, orders)


def _news(who: str, before: Histories, after: Histories) -> list[str]:
    return [
        f"{who}{client} delivers {name(entry)}"
        for client, (old, new) in enumerate(zip(before, after, strict=True))
        for entry in new[len(old) :]
        if 0 <= entry < _MARKS
    ]


def _schedule(scope: BrokerScope, talks: tuple[Talk, ...], steps: list[str], violation: Violation) -> SteppedRun:
    trouble = scope.trouble
    returns = " returns" if trouble.returns else ""
    defaults = msgspec.structs.asdict(BrokerSettings())
    return SteppedRun(
        protocol="broker",
        nodes=scope.brokers,
        edges=[f"b{parent}-b{child}" for child, parent in enumerate(scope.parents) if parent is not None],
        clients=[str(member) for member in scope.members],
        publications=[str(talk) for talk in talks],
        crash="" if trouble.crash is None else f"b{trouble.crash}{returns}",
        cut="" if trouble.cut is None else f"c{trouble.cut}",
        early=trouble.early,
        timer=trouble.timer if trouble.early else "",
        options={k: v for k, v in msgspec.structs.asdict(scope.settings).items() if v != defaults[k]},
        steps=steps,
        violation=violation,
    )


def replay_brokers(schedule: SteppedRun) -> Replay:
    """Perform a schedule of brokers on fresh machines."""
    edges = parse_edges(",".join(schedule.edges).replace("b", "")) if schedule.edges else ()
    crash, returns = parse_crash(schedule.crash) if schedule.crash else (None, False)
    talks = tuple(parse_talk(text, Guarantee.CAUSAL) for text in schedule.publications)
    scope = BrokerScope(
        brokers=schedule.nodes,
        members=parse_members(";".join(schedule.clients)),
        parents=tree_of("line", schedule.nodes, edges),
        talks=talks,
        trouble=Trouble(
            crash,
            returns,
            parse_number(schedule.cut, "cut") if schedule.cut else None,
            schedule.early,
            schedule.timer or Trouble().timer,
        ),
        settings=settings_of(schedule.options),
    )
    check_scope(scope)
    return msgspec.structs.replace(
        perform(BrokerSearch(scope, talks, ExploredParts()), schedule.steps), recorded=schedule.violation
    )
