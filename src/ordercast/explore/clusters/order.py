"""The optimistic layer completely: updates made at any moment, that arrive at any moment or never, in any order.

Patience may run out at any moment for anything that waits, and one process may lose its memory and go on from where
another one stands. Promises O1, O2 and O4 are judged from who had delivered what, without a look at vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ordercast.core.ids import Origin, Topic
from ordercast.core.messages import Message
from ordercast.explore.clusters.search import BrokenScopeError, Explored, explore_all
from ordercast.protocols.cluster.events import ABSENT, Event, Value, key_of, value_of
from ordercast.protocols.cluster.ordering import UpdateOrdering


class Standing(NamedTuple):
    """One process: what its machine holds, and what an observer has seen of it."""

    clock: tuple[Value, ...]
    waiting: tuple[Event, ...]
    epoch: int
    seq: int
    got: int
    """Updates that it has delivered, as bits."""
    past: int
    """All that happened before those."""


class Scene(NamedTuple):
    """A state: all processes, all updates made so far with their true past, and restarts that are left."""

    processes: tuple[Standing, ...]
    made: tuple[Event, ...]
    pasts: tuple[int, ...]
    restarts: int


class OrderScope:
    """`processes` coordinators, and `updates` in all."""

    def __init__(
        self, processes: int, updates: int, restarts: int = 0, ordering: type[UpdateOrdering] = UpdateOrdering
    ) -> None:
        self.processes = processes
        self.updates = updates
        self.restarts = restarts
        self.ordering = ordering

    def explore(self, most: int = 2_000_000) -> Explored:
        nobody = Standing((0,) * self.processes, (), 1, 0, 0, 0)
        return explore_all(Scene((nobody,) * self.processes, (), (), self.restarts), self._steps, most)

    def _steps(self, scene: Scene) -> Iterator[tuple[str, Scene]]:
        for p, standing in enumerate(scene.processes):
            if len(scene.made) < self.updates:
                yield self._make(scene, p)
            waiting = {event.key for event in standing.waiting}
            for number, event in enumerate(scene.made):
                if event.value > standing.clock[event.entry] and event.key not in waiting:
                    yield self._arrive(scene, p, number)
            for event in standing.waiting:
                yield self._force(scene, p, event)
            if scene.restarts:
                yield from self._restart(scene, p)

    def _machine(self, standing: Standing) -> UpdateOrdering:
        ordering = self.ordering(self.processes)
        ordering.clock = list(standing.clock)
        for event in standing.waiting:
            ordering.hold(event)
        return ordering

    def _make(self, scene: Scene, p: int) -> tuple[str, Scene]:
        standing = scene.processes[p]
        value = value_of(standing.epoch, standing.seq + 1)
        prev = ABSENT if standing.seq else standing.clock[p]
        number = len(scene.made)
        message = Message(Origin(f"p{p}"), number, Topic("t"), b"")
        event = Event(key_of(p, value), (*standing.clock[:p], value, *standing.clock[p + 1 :]), prev, f"p{p}", message)
        made = scene._replace(made=(*scene.made, event), pasts=(*scene.pasts, standing.got | standing.past))
        ordering = self._machine(standing)
        step = f"p{p} makes m{number}"
        after = self._after(made, p, ordering, ordering.take(event), step)
        return step, self._with(made, p, after._replace(seq=standing.seq + 1))

    def _arrive(self, scene: Scene, p: int, number: int) -> tuple[str, Scene]:
        ordering, event, step = self._machine(scene.processes[p]), scene.made[number], f"m{number} reaches p{p}"
        delivered: list[Event] = []
        if ordering.advance(event):
            delivered = [event]
        elif ordering.is_ready(event):
            delivered = ordering.take(event)
        else:
            ordering.hold(event)
        return step, self._with(scene, p, self._after(scene, p, ordering, delivered, step))

    def _force(self, scene: Scene, p: int, event: Event) -> tuple[str, Scene]:
        ordering, step = (
            self._machine(scene.processes[p]),
            f"p{p} waits no longer for what is before m{event.message.number}",
        )
        return step, self._with(scene, p, self._after(scene, p, ordering, ordering.force(event), step))

    def _restart(self, scene: Scene, p: int) -> Iterator[tuple[str, Scene]]:
        for q, other in enumerate(scene.processes):
            if q != p:
                fresh = Standing(other.clock, (), scene.processes[p].epoch + 1, 0, 0, 0)
                yield (
                    f"p{p} forgets everything and goes on from p{q}",
                    self._with(scene._replace(restarts=scene.restarts - 1), p, fresh),
                )

    def _after(self, scene: Scene, p: int, ordering: UpdateOrdering, delivered: list[Event], step: str) -> Standing:
        """The process after it handed these over; raises if that breaks a promise."""
        standing = scene.processes[p]
        got, past = standing.got, standing.past
        for event in delivered:
            bit = 1 << event.message.number
            if got & bit:
                raise BrokenScopeError(f"{step} | O2: p{p} delivers m{event.message.number} twice")
            if past & bit:
                raise BrokenScopeError(f"{step} | O1: p{p} delivers m{event.message.number} too late")
            got |= bit
            past |= scene.pasts[event.message.number]
        for event in standing.waiting:
            if event.key not in ordering.waiting and not got >> event.message.number & 1:
                raise BrokenScopeError(f"{step} | O4: p{p} had m{event.message.number} and drops it")
        waiting = tuple(sorted(ordering.waiting.values(), key=lambda event: event.key))
        return standing._replace(clock=tuple(ordering.clock), waiting=waiting, got=got, past=past)

    def _with(self, scene: Scene, p: int, standing: Standing) -> Scene:
        return scene._replace(processes=(*scene.processes[:p], standing, *scene.processes[p + 1 :]))
