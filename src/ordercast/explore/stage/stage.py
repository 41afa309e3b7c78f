"""A configuration performed by hand, step after step, on real machines and without any of the search's shortcuts.

It retells a schedule for people, replays one from a file, and so is a second opinion on what the search found.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import msgspec

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId
from ordercast.core.machine import Machine
from ordercast.core.messages import Message, Packet
from ordercast.core.state import exact
from ordercast.explore.machines.acting import Cause, act, carried, misconduct_at_start, told
from ordercast.explore.machines.setting import APPLICATION, Arrival, Effects, Setting
from ordercast.explore.promises.properties import Violation, agreement, first_violation, name, safety_checks
from ordercast.explore.scope.configurations import Configuration
from ordercast.explore.scope.faults import DetectorChange
from ordercast.explore.stage.schedule import NodeStep

_LONGEST = 60
"""Characters of a packet's content that are shown."""


class Stage:
    """All nodes of one configuration, at one moment."""

    def __init__(self, setting: Setting, configuration: Configuration) -> None:
        self.setting = setting
        self.configuration = configuration
        self.violation: Violation | None = misconduct_at_start(setting)
        self.machines: list[Machine] = []
        self.timers: list[frozenset[Hashable]] = []
        self.waiting: dict[tuple[int, int], list[Packet | Message | DetectorChange]] = {}
        """By (node, peer): what is on its way, oldest first."""
        self.histories: list[tuple[int, ...]] = [()] * len(setting.servers)
        self._index = {message: i for i, message in enumerate(setting.messages(configuration))}
        self._ids = {message.id: name(i) for message, i in self._index.items()}
        if self.violation is None:  # Otherwise what was sent may be nothing that could wait anywhere.
            self.machines, self.timers, arrivals = setting.start()
            for arrival in [*arrivals, *self._asked()]:
                self._put(arrival)

    def _asked(self) -> list[Arrival]:
        """Packets that are on their way from the beginning."""
        return self.setting.requests(self.configuration)

    def possible(self) -> list[NodeStep]:
        """Every step that could be next on FIFO channels; timers only when nothing is on its way."""
        arrivals = [
            NodeStep(self._name(node), self._name(peer) if peer != APPLICATION else "")
            for node, peer in sorted(self.waiting)
        ]
        return arrivals or [
            NodeStep(self._name(node), timer=str(timer))
            for node, timers in enumerate(self.timers)
            for timer in sorted(timers, key=repr)
        ]

    def locate(self, cause: Cause) -> NodeStep:
        """The cause of a move as a step of this stage."""
        node = self._name(cause.node)
        if cause.what is None:
            return NodeStep(node, timer=str(cause.timer))
        if cause.peer == APPLICATION:
            return NodeStep(node)
        return NodeStep(node, self._name(cause.peer), position=self._position(cause))

    def _position(self, cause: Cause) -> int:
        """The place of what arrives, in the order in which it was sent."""
        waiting = [exact(what, shared=True) for what in self.waiting[cause.node, cause.peer]]
        return waiting.index(exact(cause.what, shared=True)) + 1

    def take(self, step: NodeStep) -> str:
        """Let the step happen; what it did, in one line."""
        cause = self._cause(step)
        node = cause.node
        if cause.what is None:
            self.timers[node] -= {cause.timer}
        effects = act(self.machines[node], cause, self.setting, self._index)
        if isinstance(effects, Violation):
            self.violation = effects
            return f"{self._describe(cause)}; {effects.detail}"
        self.timers[node] = effects.armed(self.timers[node])
        self.histories[node] += told(cause, effects, self._index)
        for peer, packet in effects.sent:
            if self.setting.rank[peer] < len(self.setting.servers):
                self._put(Arrival(self.setting.rank[peer], node, packet, node))
            else:
                self._answer(peer, node, packet)
        checks = safety_checks(self.setting.info.guarantee)
        self.violation = self.violation or first_violation(checks, tuple(self.histories), self.configuration)
        return "; ".join([self._describe(cause), *self._consequences(node, effects)])

    def rest(self) -> Violation | None:
        """The promise that is broken if nothing more happens; None while something could."""
        return None if self.possible() else agreement(tuple(self.histories), self.configuration)

    # Inside

    def _answer(self, client: NodeId, node: int, packet: Packet) -> None:
        """Clients only wait here; what they are told makes no difference."""

    def _cause(self, step: NodeStep) -> Cause:
        if step.goes_wrong:
            raise UsageError(f"{step}: only in schedules with publications to groups can that happen")
        node = self._rank(step.node, len(self.setting.servers))
        if step.timer:
            armed = {str(timer): timer for timer in self.timers[node]}
            if step.timer not in armed:
                raise UsageError(f"{step}: the timer is not armed")
            return Cause(node, node, None, armed[step.timer])
        peer = self._rank(step.peer, len(self.setting.everyone)) if step.peer else APPLICATION
        queue = self.waiting.get((node, peer), [])
        if len(queue) < step.position:
            raise UsageError(f"{step}: nothing is on its way there")
        what = queue.pop(step.position - 1)
        if not queue:
            del self.waiting[node, peer]
        return Cause(node, peer, what)

    def _rank(self, node: str, limit: int) -> int:
        rank = self.setting.rank.get(NodeId(node), limit)
        if rank >= limit:
            raise UsageError(f"there is no node {node!r} that could take part")
        return rank

    def _put(self, arrival: Arrival) -> None:
        self.waiting.setdefault((arrival.node, arrival.peer), []).append(arrival.what)

    def _name(self, rank: int) -> str:
        return self.setting.everyone[rank]

    # Telling

    def _describe(self, cause: Cause) -> str:
        node = self._name(cause.node)
        if cause.what is None:
            return f"timer {cause.timer} of {node} runs out"
        if isinstance(cause.what, Message):
            return f"{node} publishes {self._ids[cause.what.id]}"
        assert isinstance(cause.what, Packet)
        if cause.peer >= len(self.setting.servers):
            message = carried(cause.what)
            members = "" if message is None else f" {{{','.join(message.dst)}}}"
            return f"the client's {self._content(cause.what)}{members} reaches {node}"
        return f"{self._name(cause.peer)} -> {node}: {self._content(cause.what)}"

    def _consequences(self, node: int, effects: Effects) -> list[str]:
        lines = [f"{self._name(node)} delivers {self._ids.get(m.id, m.id)}" for m in effects.delivered]
        servers = self.setting.servers
        lines += [f"{self._content(packet)} leaves for {peer}" for peer, packet in effects.sent if peer in servers]
        return lines or ["nothing comes of it yet" if not effects.sent else f"{self._name(node)} answers"]

    def _content(self, packet: Packet) -> str:
        """A packet as its type and the messages that it is about; its other fields where it is about none."""
        names = list(dict.fromkeys(self._messages_in(packet)))
        text = ",".join(names) or ", ".join(repr(value) for value in msgspec.structs.astuple(packet))
        return f"{type(packet).__name__}({text[:_LONGEST]})"

    def _messages_in(self, value: Any) -> list[str]:
        if isinstance(value, Message):
            return [self._ids.get(value.id, value.id)]
        if isinstance(value, Packet):
            origin, number = getattr(value, "origin", None), getattr(value, "number", None)
            if f"{origin}#{number}" in self._ids:
                return [self._ids[f"{origin}#{number}"]]
            return self._messages_in(msgspec.structs.astuple(value))
        if isinstance(value, str):
            return [self._ids[value]] if value in self._ids else []
        if isinstance(value, Sequence) and not isinstance(value, bytes):
            return [found for item in value for found in self._messages_in(item)]
        return []
