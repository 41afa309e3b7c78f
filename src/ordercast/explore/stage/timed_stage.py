"""A stage on which clients send when the schedule says so, and remember when they were answered."""

from __future__ import annotations

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId
from ordercast.core.machine import Machine
from ordercast.core.messages import Packet
from ordercast.explore.machines.acting import Cause, act
from ordercast.explore.machines.setting import Arrival, Setting
from ordercast.explore.promises.properties import Violation, answers, name, real_time
from ordercast.explore.scope.configurations import Configuration
from ordercast.explore.stage.schedule import NodeStep
from ordercast.explore.stage.stage import Stage


class TimedStage(Stage):
    """Steps such as `c1 publishes` come on top."""

    def __init__(self, setting: Setting, configuration: Configuration) -> None:
        super().__init__(setting, configuration)
        self._messages = setting.messages(configuration)
        self._clients: dict[str, Machine] = {}
        self._answered_before = [0] * configuration.messages
        self._answered = 0

    def _asked(self) -> list[Arrival]:
        return []

    def possible(self) -> list[NodeStep]:
        unsent = [NodeStep(message.origin) for message in self._messages if message.origin not in self._clients]
        return [*unsent, *super().possible()]

    def locate(self, cause: Cause) -> NodeStep:
        if cause.node >= len(self.setting.servers):
            return NodeStep(self._name(cause.node))
        return super().locate(cause)

    def take(self, step: NodeStep) -> str:
        return super().take(step) if step.node in self.setting.servers else self._send(step)

    def rest(self) -> Violation | None:
        violation = super().rest()
        if violation is not None or self.possible():
            return violation
        return answers(self._answered, len(self._messages)) or real_time(tuple(self.histories), self._answered_before)

    def _send(self, step: NodeStep) -> str:
        if step.node not in self.setting.clients or step.peer or step.timer or step.node in self._clients:
            raise UsageError(f"{step}: {step.node} cannot do that now")
        i = self.setting.clients.index(NodeId(step.node))
        self._clients[step.node], arrivals = self.setting.submission(self._messages[i])
        self._answered_before[i] = self._answered
        for arrival in arrivals:
            self._put(arrival)
        return f"the client of {name(i)} sends it"

    def _answer(self, client: NodeId, node: int, packet: Packet) -> None:
        cause = Cause(self.setting.rank[client], node, packet)
        effects = act(self._clients[client], cause, self.setting, self._index)
        if isinstance(effects, Violation):
            self.violation = effects
        elif effects.completed:
            self._answered |= 1 << self.setting.clients.index(client)
