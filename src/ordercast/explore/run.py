"""Explore a scope: all its configurations, smallest first, until a promise breaks or nothing is left."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ordercast.core.errors import UsageError
from ordercast.core.registry import ProtocolInfo, is_code
from ordercast.explore.brokers.run import replay_brokers
from ordercast.explore.machines.acting import Cause, misconduct_at_start
from ordercast.explore.machines.behaviour import Behaviour
from ordercast.explore.machines.setting import Setting
from ordercast.explore.overlays.run import replay_overlay
from ordercast.explore.plan import Plan, check_plan, scope_of
from ordercast.explore.promises.properties import Violation, delivered, name
from ordercast.explore.result import Counterexample, Exploration, Memory, Replay, Size
from ordercast.explore.scope.configurations import Configuration
from ordercast.explore.scope.faults import Faults
from ordercast.explore.scope.publications import PlannedPublication, parse_edges, publications_of
from ordercast.explore.search.ascending import Ascending
from ordercast.explore.search.breadth_first import Judge, LimitReachedError, Look, Search, State
from ordercast.explore.search.faulty import FaultySearch
from ordercast.explore.search.real_time import RealTimeSearch
from ordercast.explore.stage.faulty_stage import FaultyStage
from ordercast.explore.stage.schedule import SteppedRun, parse_step, read_schedule
from ordercast.explore.stage.stage import Stage
from ordercast.explore.stage.timed_stage import TimedStage
from ordercast.protocols import OVERLAYS, lookup

Progress = Callable[[float], None]

_LARGEST_TABLE = 4_000_000
"""Entries of what was learnt before it is forgotten, between two configurations."""
_ASKED_AGAIN = 2_000
"""Steps of machines that are repeated before what was learnt of them is relied on, or forgotten."""


def explore(
    protocol: str | ProtocolInfo,
    *,
    nodes: int,
    messages: int = 1,
    destinations: Sequence[Sequence[int]] | None = None,
    publishers: Sequence[int] | None = None,
    groups: Mapping[str, Sequence[int]] | None = None,
    publications: Sequence[PlannedPublication] | None = None,
    sizes_from: int = 2,
    total_destinations: int | None = None,
    options: Mapping[str, Any] | None = None,
    overlay: str | None = None,
    edges: Sequence[tuple[int, int]] = (),
    fifo: bool = True,
    faults: Faults | None = None,
    idle_at_once: bool = False,
    twins_in_order: bool = False,
    ascending: bool = False,
    real_time: bool = False,
    keep_going: bool = False,
    limit_states: int | None = None,
    limit_seconds: float | None = None,
    progress: Progress | None = None,
) -> Exploration:
    """Run every interleaving of every configuration with up to `messages` messages on `nodes` nodes.

    Messages go to every multiset of destination sets with at least `sizes_from` members, or to `destinations` only;
    where a protocol sends everything to everyone, nodes publish instead, in all ways or as `publishers` says.
    `fifo=False` lets packets overtake each other. `twins_in_order` lets messages with equal destinations enter in the
    order of their names, which loses nothing if the protocol does not look at names. `ascending` is much faster, for
    protocols whose packets only go to higher nodes. `real_time` also asks for real-time order: no message before one
    that was answered before it was sent. `keep_going` lists all configurations that can go wrong.

    Protocols for trees multicast to `groups` (one of everyone, unless named), in all ways or as `publications` says,
    on a line unless `overlay` or `edges` say otherwise, and `faults` say what may go wrong; other protocols may be
    explored like that, too. `idle_at_once` lets a packet that would change nothing be handled at once, which loses
    nothing if what changes nothing never will.
    """
    info = lookup(protocol) if isinstance(protocol, str) else protocol
    faults = faults or Faults()
    plan = Plan(
        protocol=protocol if isinstance(protocol, str) else info.name,
        info=info,
        scope=scope_of(
            info,
            nodes,
            messages,
            destinations=destinations,
            publishers=publishers,
            groups=None if groups is None else {name: tuple(members) for name, members in groups.items()},
            publications=publications,
            faults=faults,
            sizes_from=sizes_from,
            total_destinations=total_destinations,
        ),
        options=options or {},
        overlay=overlay or ("clique" if info.reach is None else "line"),
        edges=tuple(edges),
        faults=faults,
        fifo=fifo,
        idle_at_once=idle_at_once,
        twins_in_order=twins_in_order,
        ascending=ascending,
        real_time=real_time,
        keep_going=keep_going,
        limit_states=limit_states,
        limit_seconds=limit_seconds,
    )
    check_plan(plan)
    return _Explorer(plan, progress).run()


def replay(schedule: SteppedRun | Path, protocol: str | None = None, *, trust: bool = True) -> Replay:
    """Perform a schedule on fresh machines and judge it after every step.

    With its own protocol unless another is given. Without `trust` a schedule does not load a protocol's file.
    """
    value = read_schedule(schedule) if isinstance(schedule, Path) else schedule
    if protocol is None and not trust and is_code(value.protocol):
        raise UsageError(f"{schedule}: protocol: {value.protocol!r} is code; if you trust it: --trust")
    try:
        if value.protocol == "broker":
            return replay_brokers(value)
        if value.protocol in OVERLAYS:
            return replay_overlay(value)
        info = lookup(protocol or value.protocol)
        configuration = value.configuration()
        setting = _setting_of(value, info, configuration)
        steps = [parse_step(step) for step in value.steps]
        stage = _stage(setting, configuration, timed=any(step.node in setting.clients for step in steps))
        story = []
        for step in steps:
            if stage.violation is not None:
                break
            story.append(stage.take(step))
    except UsageError as error:
        raise UsageError(f"{schedule}: {error}" if isinstance(schedule, Path) else str(error)) from None
    return Replay(stage.violation or stage.rest(), value.violation, story, _orders(stage))


def _setting_of(schedule: SteppedRun, info: ProtocolInfo, configuration: Configuration) -> Setting:
    clients = 0 if configuration.publishers is not None else configuration.messages
    return Setting(
        info,
        schedule.options,
        schedule.nodes,
        clients,
        schedule.overlay,
        edges=parse_edges(",".join(schedule.edges)) if schedule.edges else (),
        groups=schedule.members(),
        faults=Faults(without=tuple(schedule.without)),
    )


def _stage(setting: Setting, configuration: Configuration, *, timed: bool) -> Stage:
    if configuration.groups:
        return FaultyStage(setting, configuration)
    return (TimedStage if timed else Stage)(setting, configuration)


class _Explorer:
    """One call of `explore`."""

    def __init__(self, plan: Plan, progress: Progress | None) -> None:
        self.plan = plan
        self._progress = progress
        scope = plan.scope
        self._setting = plan.setting()
        self._behaviour = self._fresh_behaviour()
        self._memory = Memory()
        self._begin, self._cpu_begin = time.monotonic(), time.process_time()
        self._steps_before = 0
        self._done = 0
        sizes = [Size(messages, scope.count(messages)) for messages in scope.sizes()]
        self._total = sum(size.configurations for size in sizes)
        self.result = Exploration(protocol=plan.protocol, nodes=scope.nodes, sizes=sizes, decided=True)

    def run(self) -> Exploration:
        # The search makes no cycles of references, but millions of tuples that stay: the collector would go through
        # them again and again for nothing, which was measured to cost a third of the time.
        collecting = gc.isenabled()
        gc.disable()
        try:
            self._explore_all()
            self._behaviour.reactions.ask_again(_ASKED_AGAIN)
        except LimitReachedError:
            self.result.decided = False
        finally:
            if collecting:
                gc.enable()
        self.result.machine_steps = self._steps_before + self._behaviour.steps_run
        self.result.bytes_per_state = self._memory.per_state(self.result.largest)
        self.result.seconds = time.monotonic() - self._begin
        self.result.cpu_seconds = time.process_time() - self._cpu_begin
        return self.result

    def _explore_all(self) -> None:
        fault = misconduct_at_start(self._setting)
        for size in self.result.sizes:
            for configuration in self.plan.scope.configurations(size.messages):
                if fault is not None:
                    self._broken_at_start(configuration, fault)
                    return
                self._explore(configuration, size)
                if self.result.counterexample is not None and not self.plan.keep_going:
                    return

    def _explore(self, configuration: Configuration, size: Size) -> None:
        # Where nodes publish, what m1 stands for depends on the configuration, and so does what was learnt of it.
        if self.plan.scope.broadcast or self._behaviour.size > _LARGEST_TABLE:
            self._behaviour.reactions.ask_again(_ASKED_AGAIN)
            self._steps_before += self._behaviour.steps_run
            self._behaviour = self._fresh_behaviour()
            gc.collect()  # Its tables and itself refer to each other.
        before = self.result.states
        judge = Judge(self._behaviour, configuration, self.plan.info.guarantee)

        def look(states: int) -> None:
            self._check_limits(before + states)

        search: Search | Ascending
        if self.plan.ascending:
            search = Ascending(self._behaviour, configuration, look)
            start = self._behaviour.initial(configuration, twins_in_order=self.plan.twins_in_order)
        else:
            search, start = self._search(self._behaviour, judge, look, configuration)
        try:
            found = search.run(start)
        finally:
            self._account(size, search)
        size.explored += 1
        if isinstance(search, Search):
            search.ask_again(_ASKED_AGAIN)
        if isinstance(search, Ascending):
            size.outcomes += len(search.outcomes)
        else:
            size.outcomes += judge.distinct_outcomes(twins_in_order=self.plan.twins_in_order)
        if found is not None:
            self._broken(configuration, found if isinstance(found, Violation) else found.violation)
        self._done += 1
        if self._progress is not None:
            self._progress(self._done / self._total)

    def _search(
        self, behaviour: Behaviour, judge: Judge, look: Look, configuration: Configuration
    ) -> tuple[Search, State]:
        """The search in all interleavings, and where it starts."""
        if self.plan.faulty:
            faulty = FaultySearch(behaviour, judge, look, configuration)
            return faulty, faulty.start()
        if self.plan.real_time:
            timed = RealTimeSearch(behaviour, judge, look, configuration)
            return timed, timed.start(configuration)
        start = behaviour.initial(configuration, twins_in_order=self.plan.twins_in_order)
        return Search(behaviour, judge, look), start

    def _account(self, size: Size, search: Search | Ascending) -> None:
        size.states += len(search.seen)
        size.transitions += search.transitions
        size.longest = max(size.longest, search.depth)
        if len(search.seen) > self.result.largest:
            self.result.largest = len(search.seen)

    def _check_limits(self, states: int) -> None:
        plan = self.plan
        if plan.limit_states is not None and states > plan.limit_states:
            raise LimitReachedError
        if plan.limit_seconds is not None and time.monotonic() - self._begin > plan.limit_seconds:
            raise LimitReachedError

    def _broken(self, configuration: Configuration, violation: Violation) -> None:
        """Note a configuration that can go wrong, and which check; the first one with a shortest schedule."""
        self.result.violating.append(f"{configuration}: {violation.check}")
        if self.result.counterexample is not None:
            return
        self._behaviour.reactions.ask_again(_ASKED_AGAIN)
        behaviour = Behaviour(self._setting, fifo=self.plan.fifo, idle_at_once=self.plan.idle_at_once)
        judge = Judge(behaviour, configuration, self.plan.info.guarantee)
        search, start = self._search(behaviour, judge, lambda _states: None, configuration)
        self.result.counterexample = self._tell(configuration, *search.schedule(start))

    def _broken_at_start(self, configuration: Configuration, fault: Violation) -> None:
        """Every configuration goes wrong before its first step: one is told."""
        self.result.violating.append(f"{configuration}: {fault.check}")
        self.result.counterexample = self._tell(configuration, fault, [])

    def _tell(self, configuration: Configuration, found: Violation | None, causes: list[Cause]) -> Counterexample:
        """Perform the schedule on real machines: what the search found must happen there too."""
        stage = _stage(self._setting, configuration, timed=self.plan.real_time)
        steps, story = [], []
        for cause in causes:
            step = stage.locate(cause)
            steps.append(str(step))
            story.append(stage.take(step))
        violation = stage.violation or stage.rest()
        if violation is None and found is not None and found.check == "rest":
            violation = found  # No single run can show this one.
        if violation is None:
            raise UsageError(
                f"{self.plan.info.name}: a violation in {configuration} cannot be repeated; its machines do not do the "
                "same again, or their frozen() leaves out something that matters"
            )
        return Counterexample(
            str(configuration), violation, self._schedule(configuration, steps, violation), story, _orders(stage)
        )

    def _schedule(self, configuration: Configuration, steps: list[str], violation: Violation) -> SteppedRun:
        plan, servers = self.plan, self._setting.servers
        schedule = SteppedRun(
            protocol=plan.protocol,
            nodes=configuration.nodes,
            overlay="clique" if plan.edges else plan.overlay,
            edges=[f"{servers[a]}-{servers[b]}" for a, b in plan.edges],
            options=dict(plan.options),
            steps=steps,
            violation=violation,
        )
        if plan.scope.groups is not None:
            return msgspec.structs.replace(
                schedule,
                groups={name: [servers[n] for n in members] for name, members in plan.scope.groups.items()},
                publications=[str(publication) for publication in publications_of(configuration)],
                without=list(plan.faults.without),
            )
        if configuration.publishers is None:
            destinations = [[servers[n] for n in members] for members in configuration.destinations]
            return msgspec.structs.replace(schedule, destinations=destinations)
        return msgspec.structs.replace(schedule, publishers=[servers[n] for n in configuration.publishers])

    def _fresh_behaviour(self) -> Behaviour:
        plan = self.plan
        return Behaviour(self._setting, fifo=plan.fifo, upwards=plan.ascending, idle_at_once=plan.idle_at_once)


def _orders(stage: Stage) -> list[str]:
    return [
        f"{node}: {' '.join(map(name, delivered(history)))}".rstrip()
        for node, history in zip(stage.setting.servers, stage.histories, strict=True)
    ]
