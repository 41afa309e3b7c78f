"""Runs a configuration to rest without further faults, in one fixed order.

Everybody is trusted, packets arrive at once and in order, and only when none is on its way time passes, to the timer
that is due first. What a protocol owes its members it must have delivered when nothing is left to happen.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence

from ordercast.core.messages import Message, Packet
from ordercast.explore.machines.acting import Cause, told
from ordercast.explore.machines.actors import Actors
from ordercast.explore.machines.behaviour import met
from ordercast.explore.machines.setting import APPLICATION, Effects, Setting
from ordercast.explore.promises.properties import History, Violation
from ordercast.explore.scope.configurations import Configuration
from ordercast.explore.scope.faults import DetectorChange

_MOST_STEPS = 20_000


class Script:
    """A configuration's publications, in the form that an end needs."""

    def __init__(self, setting: Setting, configuration: Configuration) -> None:
        messages = setting.messages(configuration)
        self.index = {message: i for i, message in enumerate(messages)}
        self.after = dict(zip(messages, configuration.after, strict=True))
        self.rank = setting.rank


class Settling:
    """One run to its end."""

    def __init__(
        self,
        actors: Actors,
        script: Script,
        timers: Sequence[Iterable[Hashable]],
        histories: Sequence[History],
    ) -> None:
        self.actors = actors
        self._script = script
        self._packets: deque[tuple[int, int, Packet]] = deque()
        self._now = 0
        self._due: dict[tuple[int, Hashable], int] = {}
        """By node and name: when a timer runs out."""
        self._alarms: list[tuple[int, int, int, Hashable]] = []
        """Time, a number that makes it unique, node and name; some of them are not due any more."""
        self._set = 0
        self.histories = list(histories)
        for node, names in enumerate(timers):
            for name in sorted(names, key=repr):
                self._arm(node, name, 0)

    def run(
        self,
        suspected: Sequence[Iterable[int]],
        unpublished: Mapping[int, Sequence[Message]],
        packets: Iterable[tuple[int, int, Packet]] = (),
    ) -> Violation | None:
        """A machine's first fault, or that it never ends; `histories` then say what happened.

        `packets` are on their way: receiver, sender and content.
        """
        self._packets.extend(packets)
        waiting = {node: deque(messages) for node, messages in unpublished.items()}
        for node, peers in enumerate(suspected):
            for peer in sorted(peers):
                if fault := self._do(Cause(node, node, DetectorChange((peer,), on=False))):
                    return fault
        for _ in range(_MOST_STEPS):
            cause = self._next(waiting)
            if cause is None:
                return None
            if fault := self._do(cause):
                return fault
        return Violation("rest", "it never comes to rest, although nothing goes wrong any more")

    def _next(self, waiting: Mapping[int, deque[Message]]) -> Cause | None:
        if self._packets:
            node, peer, packet = self._packets.popleft()
            return Cause(node, peer, packet)
        for node, messages in waiting.items():
            if messages and met(self._script.after[messages[0]], self.histories[node]):
                return Cause(node, APPLICATION, messages.popleft())
        while self._alarms:
            time, _, node, name = heapq.heappop(self._alarms)
            if self._due.get((node, name)) == time:
                del self._due[node, name]
                self._now = time
                return Cause(node, node, None, name)
        return None

    def _do(self, cause: Cause) -> Violation | None:
        node = cause.node
        effects = self.actors.do(cause)
        if isinstance(effects, Violation):
            return effects
        self.histories[node] += told(cause, effects, self._script.index)
        rank = self._script.rank
        self._packets.extend((rank[peer], node, packet) for peer, packet in effects.sent)
        self._set_timers(node, effects)
        return None

    def _set_timers(self, node: int, effects: Effects) -> None:
        for name, on in effects.timers:
            if on:
                self._arm(node, name, self._now + effects.delays[name])
            else:
                self._due.pop((node, name), None)

    def _arm(self, node: int, name: Hashable, time: int) -> None:
        self._set += 1
        self._due[node, name] = time
        heapq.heappush(self._alarms, (time, self._set, node, name))
