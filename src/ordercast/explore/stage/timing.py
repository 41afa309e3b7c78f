"""A schedule as a scenario for the simulator: constant latencies under which everything happens in the same order.

Where a client's copy arrives when is free; every other arrival is the sum of the latencies on its way. That a node
handles its inputs in the order of the schedule is then a set of linear inequalities, which relaxation solves if they
can be solved at all. Two packets on one channel may need two latencies: such a schedule has no scenario.
"""

from __future__ import annotations

from collections import Counter

from ordercast.core.errors import UsageError
from ordercast.core.registry import ProtocolInfo
from ordercast.explore.machines.setting import Setting
from ordercast.explore.stage.schedule import NodeStep, SteppedRun, parse_step
from ordercast.explore.stage.stage import Stage
from ordercast.scenario import model

Link = tuple[str, str]
Time = Counter[Link]
"""A moment as the latencies that add up to it."""

_GAP_MS = 1.0
_ROUNDS = 20_000
_OVERSHOOT = 1.5
"""Relaxation steps a bit further than needed, so that it ends inside and not on the border."""


def scenario_of(schedule: SteppedRun, info: ProtocolInfo) -> model.Scenario | None:
    """A scenario that does what the schedule does, or None if constant latencies cannot."""
    if not schedule.destinations:
        raise UsageError("only schedules of messages with explicit destinations can become scenarios")
    moments = _Moments(schedule, info)
    latencies = _relaxed(moments.inequalities())
    if latencies is None:
        return None
    clients = len(schedule.destinations)
    longest = sum(latencies.values())
    latest = dict.fromkeys(moments.unused, longest)
    return model.Scenario(
        name="counterexample",
        description=schedule.violation.detail if schedule.violation is not None else "",
        protocol=schedule.protocol,
        options=schedule.options,
        overlay=model.Servers(nodes=schedule.nodes, clients=clients + 1),  # The client of m1 is c1, so c0 is idle.
        workload=[
            model.Schedule(
                steps=[
                    model.Step(node=f"c{i + 1}", at_ms=0.0, dst=members)
                    for i, members in enumerate(schedule.destinations)
                ]
            )
        ],
        links=[
            model.LinkOverride(between=link, one_way=True, latency_ms=round(latency, 3))
            for link, latency in (latencies | latest).items()
        ],
    )


class _Moments:
    """The times at which things happen, while the schedule is performed once more."""

    def __init__(self, schedule: SteppedRun, info: ProtocolInfo) -> None:
        configuration = schedule.configuration()
        setting = Setting(info, schedule.options, schedule.nodes, configuration.messages, schedule.overlay)
        self._stage = Stage(setting, configuration)
        self._names = setting.everyone
        self._sent: dict[Link, list[Time]] = {}
        """When what is on its way will arrive, oldest first."""
        self._note_sent(Counter())
        self._steps: list[tuple[str, Time]] = [self._take(parse_step(step)) for step in schedule.steps]
        left = [(link, time) for link, times in self._sent.items() for time in times]
        clients = set(setting.clients)
        self.unused = [link for link, _ in left if link[0] in clients]
        """Links of clients whose copy the schedule leaves on its way."""
        self._late = [time for link, time in left if link[0] not in clients]

    def inequalities(self) -> list[Time]:
        """Each must be at least the gap: a node's next input minus its last, and what is left minus every step."""
        last: dict[str, Time] = {}
        found = []
        for node, time in self._steps:
            if node in last:
                found.append(_minus(time, last[node]))
            last[node] = time
        found += [_minus(late, time) for late in self._late for time in last.values()]
        found += [Counter({link: 1}) for _, time in self._steps for link in time]
        return [one for one in found if one]  # What was sent at once on one channel arrives at once, in its order.

    def _take(self, step: NodeStep) -> tuple[str, Time]:
        if not step.peer or step.position > 1:
            raise UsageError(f"{step}: only schedules of nothing but FIFO channels can become scenarios")
        link = (step.peer, step.node)
        self._stage.take(step)
        time = self._sent[link].pop(0)
        self._note_sent(time)
        return step.node, time

    def _note_sent(self, now: Time) -> None:
        for (node, peer), queue in self._stage.waiting.items():
            link = (self._names[peer], self._names[node])
            known = self._sent.setdefault(link, [])
            known += [now + Counter({link: 1}) for _ in queue[len(known) :]]


def _minus(later: Time, earlier: Time) -> Time:
    difference = Counter(later)
    difference.subtract(earlier)
    return Counter({link: times for link, times in difference.items() if times})


def _relaxed(inequalities: list[Time]) -> dict[Link, float] | None:
    """Latencies that keep every inequality (Agmon and Motzkin: mend the worst one, again and again)."""
    latencies = {link: _GAP_MS for inequality in inequalities for link in inequality}
    for _ in range(_ROUNDS):
        slack, worst = min(
            ((sum(times * latencies[link] for link, times in one.items()), i) for i, one in enumerate(inequalities)),
            default=(_GAP_MS, 0),
        )
        if slack >= _GAP_MS / 2:
            return latencies
        mended = inequalities[worst]
        share = _OVERSHOOT * (_GAP_MS - slack) / (sum(times * times for times in mended.values()) or 1)
        for link, times in mended.items():
            latencies[link] += share * times
    return None
