"""A stage on which packets are lost, nodes suspected and trusted again, and everything comes to its end on demand."""

from __future__ import annotations

import msgspec

from ordercast.core.errors import UsageError
from ordercast.core.messages import Message, Packet
from ordercast.explore.machines.acting import SETTLE, Cause
from ordercast.explore.machines.actors import Performers
from ordercast.explore.machines.behaviour import met
from ordercast.explore.machines.setting import APPLICATION, Arrival, Effects, Setting
from ordercast.explore.machines.settling import Script, Settling
from ordercast.explore.promises.properties import Violation, agreement, delivered, first_violation, name, safety_checks
from ordercast.explore.scope.configurations import Configuration
from ordercast.explore.scope.faults import DETECTOR, DetectorChange
from ordercast.explore.stage.schedule import NodeStep
from ordercast.explore.stage.stage import Stage


class FaultyStage(Stage):
    """Steps such as `n0 suspects n1`, `n0 -> n1 is lost` and `everyone settles` come on top; timers do not run out."""

    def __init__(self, setting: Setting, configuration: Configuration) -> None:
        super().__init__(setting, configuration)
        self._suspected: list[set[int]] = [set() for _ in setting.servers]

    def rest(self) -> Violation | None:
        """A schedule that does not settle proves nothing about what is missing at its end."""
        return None

    def locate(self, cause: Cause) -> NodeStep:
        if cause == SETTLE:
            return NodeStep("")
        if isinstance(cause.what, DetectorChange):
            peers = tuple(self._name(peer) for peer in cause.what.peers)
            return NodeStep(self._name(cause.node), about=peers, suspects=cause.what.on)
        if cause.lost:
            return NodeStep(self._name(cause.node), self._name(cause.peer), position=self._position(cause), lost=True)
        return super().locate(cause)

    def take(self, step: NodeStep) -> str:
        if not step.node:
            return self._settle()
        if step.lost:
            cause = self._cause(step)
            return f"{self._name(cause.peer)} -> {self._name(cause.node)}: {self._content(self._packet(cause))} is lost"
        return super().take(step)

    def _cause(self, step: NodeStep) -> Cause:
        if step.timer:
            raise UsageError(f"{step}: timers run out only when everyone settles")
        if step.about:
            return self._change(step)
        cause = super()._cause(msgspec.structs.replace(step, lost=False))
        if isinstance(cause.what, Message):
            self._check_condition(step, cause)
        return cause

    def _change(self, step: NodeStep) -> Cause:
        node = self._rank(step.node, len(self.setting.servers))
        peers = tuple(self._rank(peer, len(self.setting.servers)) for peer in step.about)
        for peer in peers:
            if peer not in self.setting.linked[node]:
                raise UsageError(f"{step}: {step.node} is not linked to {self._name(peer)}")
        if step.suspects:
            self._suspected[node].update(peers)
        else:
            self._suspected[node].difference_update(peers)
        return Cause(node, DETECTOR, DetectorChange(peers, on=step.suspects))

    def _check_condition(self, step: NodeStep, cause: Cause) -> None:
        assert isinstance(cause.what, Message)
        after = self.configuration.after[self._index[cause.what]]
        if not met(after, self.histories[cause.node]):
            raise UsageError(f"{step}: it must have {' and '.join(map(name, after))} before")

    def _put(self, arrival: Arrival) -> None:
        if not (isinstance(arrival.what, Packet) and self.setting.never_arrives(arrival.what)):
            super()._put(arrival)

    def _settle(self) -> str:
        """Let everything happen that still can; what was delivered then, in one line."""
        unpublished = {
            node: [message for message in queue if isinstance(message, Message)]
            for (node, peer), queue in sorted(self.waiting.items())
            if peer == APPLICATION
        }
        packets = [
            (node, peer, packet)
            for (node, peer), queue in sorted(self.waiting.items())
            for packet in queue
            if isinstance(packet, Packet)
        ]
        before = list(self.histories)
        actors = Performers(self.setting, self.machines, self._index)
        settling = Settling(actors, Script(self.setting, self.configuration), self.timers, before)
        fault = settling.run(self._suspected, unpublished, packets)
        self.histories = settling.histories
        self.timers = [frozenset() for _ in self.timers]
        self.waiting.clear()
        checks = safety_checks(self.setting.info.guarantee)
        histories = tuple(self.histories)
        self.violation = (
            fault or first_violation(checks, histories, self.configuration) or agreement(histories, self.configuration)
        )
        news = [
            f"{self._name(node)} delivers {' '.join(map(name, more))}"
            for node, history in enumerate(self.histories)
            if (more := delivered(history[len(before[node]) :]))
        ]
        return f"nothing goes wrong any more, and time passes: {', '.join(news) or 'nobody delivers anything'}"

    def _packet(self, cause: Cause) -> Packet:
        assert isinstance(cause.what, Packet)
        return cause.what

    # Telling

    def _describe(self, cause: Cause) -> str:
        if isinstance(cause.what, DetectorChange):
            peers = " and ".join(self._name(peer) for peer in cause.what.peers)
            return f"{self._name(cause.node)} {'suspects' if cause.what.on else 'trusts'} {peers}"
        if isinstance(cause.what, Message) and cause.what.topic:
            members = ",".join(self._name(node) for node in self.configuration.destinations[self._index[cause.what]])
            return f"{super()._describe(cause)} {{{members}}}"
        return super()._describe(cause)

    def _consequences(self, node: int, effects: Effects) -> list[str]:
        effects.sent = [(peer, packet) for peer, packet in effects.sent if not self.setting.never_arrives(packet)]
        return super()._consequences(node, effects)
