"""Checks of a scenario that hold for every runtime; an error names the field."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable

from ordercast.core.errors import UsageError, unknown_name
from ordercast.core.ids import Origin, publisher_of
from ordercast.core.messages import GUARANTEES
from ordercast.core.registry import ProtocolInfo
from ordercast.scenario.brokers import Join, Leave
from ordercast.scenario.choosing import DrawnLoad, Population
from ordercast.scenario.model import (
    BurstLoad,
    ClosedLoad,
    Crash,
    Delay,
    Everyone,
    Fault,
    Link,
    LinkOverride,
    NodeCapacity,
    OpenLoad,
    Partition,
    Pause,
    ReplyLoad,
    Scenario,
    Slow,
    Step,
    Suspicion,
)

Known = Callable[[str, str], object]
"""Given the name of a node and where it stands: refuses a name that nobody has."""
Lasting = Crash | Pause | Slow | Partition | Suspicion | Delay
"""Faults with a beginning and an end."""

_MAX_RATE = 1e8
_LEAST_MS = 1e-6
"""A nanosecond."""


def check_times(scenario: Scenario) -> None:
    """A run lasts, and somebody publishes."""
    if scenario.duration_ms <= 0:
        raise UsageError(f"duration_ms: {scenario.duration_ms} is not positive")
    detector = scenario.detector
    times = {"drain_ms": scenario.drain_ms, "detector.delay_ms": detector.delay_ms}
    times |= {f"detector.by.{node}": delay for node, delay in detector.by.items()}
    for name, value in times.items():
        if value < 0:
            raise UsageError(f"{name}: {value} is negative")
    if not scenario.workload:
        raise UsageError("workload: nobody publishes anything")


def check_possible(scenario: Scenario, protocol: ProtocolInfo) -> None:
    """Refuse, by its field, what means nothing to nodes that choose their neighbours."""
    if protocol.build_overlay is None:
        raise UsageError(f"protocol {protocol.name!r} runs on fixed neighbours")
    for name, default in (("node", NodeCapacity()), ("nodes", [])):
        if getattr(scenario, name) != default:
            raise UsageError(f"{name}: nodes of protocol {protocol.name!r} have no limits of bandwidth or processor")
    if not isinstance(scenario.groups, Everyone):
        raise UsageError(f"groups: with protocol {protocol.name!r} everybody gets everything; use kind 'everyone'")
    links: list[Link | LinkOverride] = [scenario.link, *scenario.links]
    for i, link in enumerate(links):
        if protocol.casts and not i:
            continue  # What is cast may be lost, doubled and overtaken.
        if link.loss or link.duplicate or link.fifo is False:
            where = f"links[{i - 1}]" if i else "link"
            raise UsageError(f"{where}: connections neither lose, double nor reorder; only latency_ms can be set")


def check_load(load: DrawnLoad, where: str, people: Population, duration_ms: float, most_bytes: int) -> None:
    """`most_bytes`: the largest payload that the runtime takes."""
    bounds: dict[str, tuple[float | None, float, float]] = {
        "payload_bytes": (load.payload_bytes, 0, most_bytes),
        "start_ms": (load.start_ms, 0, duration_ms),
        "popularity": (load.popularity, 0, math.inf),
        "destinations": (load.destinations, 0, len(people.servers)),
        "keys": (load.keys, 0, math.inf),
        "keys_per_message": (load.keys_per_message, 1, math.inf),
        "limit": (load.limit, 1, math.inf),
    }
    for name, (value, low, high) in bounds.items():
        if value is not None and not low <= value <= high:
            upper = f" to {high:g}" if math.isfinite(high) else " up"
            raise UsageError(f"{where}.{name}: {value} is not from {low:g}{upper}")
    if load.stop_ms is not None and not load.start_ms < load.stop_ms <= duration_ms:
        raise UsageError(
            f"{where}.stop_ms: {load.stop_ms} is not after start_ms and within the duration of {duration_ms} ms"
        )
    _check_kind(load, where)


def _check_kind(load: DrawnLoad, where: str) -> None:
    match load:
        case OpenLoad() if not 0 < load.rate_per_s <= _MAX_RATE:
            raise UsageError(f"{where}.rate_per_s: {load.rate_per_s} is not above 0 and at most {_MAX_RATE:.0f}")
        case OpenLoad() if load.window < 0:
            raise UsageError(f"{where}.window: {load.window} is not from 0 up")
        case ClosedLoad() if load.outstanding < 1 or load.think_ms < 0 or not 0 <= load.rate_per_s <= _MAX_RATE:
            raise UsageError(f"{where}: a closed load needs outstanding >= 1, think_ms >= 0 and rate_per_s >= 0")
        case BurstLoad() if load.size < 1 or load.every_ms < _LEAST_MS:
            raise UsageError(f"{where}: a burst load needs size >= 1 and every_ms > 0")
        case ReplyLoad() if not 0 < load.probability <= 1 or load.delay_ms < 0 or load.depth < 1:
            raise UsageError(f"{where}: a reply load needs 0 < probability <= 1, delay_ms >= 0 and depth >= 1")


def check_step(
    step: Step, where: str, people: Population, duration_ms: float, most_bytes: int, known: Known
) -> None:  # fmt: skip
    """One line of a schedule."""
    known(step.node, f"{where}.node")
    if (step.at_ms is None) == (step.after is None):
        raise UsageError(f"{where}: give either at_ms or after")
    if step.at_ms is not None and not 0 <= step.at_ms <= duration_ms:
        raise UsageError(f"{where}.at_ms: {step.at_ms} is not within the run's duration")
    if step.topic is not None and step.topic not in people.groups and step.do == "publish":
        raise UsageError(f"{where}.topic: {unknown_name('topic', step.topic, people.groups)}")
    if step.guarantee and step.guarantee not in GUARANTEES:
        raise UsageError(f"{where}.guarantee: {unknown_name('guarantee', step.guarantee, GUARANTEES)}")
    if not 0 <= step.payload_bytes <= most_bytes:
        raise UsageError(f"{where}.payload_bytes: {step.payload_bytes} is not from 0 to {most_bytes}")
    if step.after is not None:
        _check_message_id(step.after, f"{where}.after", known)
    for name in step.dst:
        known(name, f"{where}.dst")


def _check_message_id(message_id: str, where: str, known: Known) -> None:
    origin, _, number = message_id.partition("#")
    origin = origin.partition("/")[0]  # Publications of brokers are numbered per topic.
    if not number.isdecimal() or int(number) < 1:
        raise UsageError(f"{where}: {message_id!r} is not a message id such as 'n0#1'")
    known(publisher_of(Origin(origin)), where)


class FaultCheck:
    """The faults of a scenario, one after the other: each may be at odds with an earlier one."""

    def __init__(self, duration_ms: float, protocol: ProtocolInfo) -> None:
        self._duration_ms = duration_ms
        self._protocol = protocol
        self._busy: defaultdict[tuple[type[Fault], str], list[tuple[float, float]]] = defaultdict(list)

    def check(self, fault: Lasting | Join | Leave, where: str) -> None:
        if isinstance(fault, Join | Leave) and not self._protocol.admits:
            raise UsageError(f"{where}.kind: nodes cannot join or leave with protocol {self._protocol.name!r}")
        duration = self._duration_ms
        if not 0 <= fault.at_ms <= duration:
            raise UsageError(f"{where}.at_ms: {fault.at_ms} is not within the run's duration of {duration} ms")
        if isinstance(fault, Join | Leave):
            return
        end = self._end(fault, where)
        last = math.inf if end is None else end
        if isinstance(fault, Crash | Pause | Slow):
            self._check_overlap(fault, fault.node, last, where)
        if isinstance(fault, Delay):
            for one, other in directions(fault):
                self._check_overlap(fault, f"{one} to {other}", last, where)
        if isinstance(fault, Crash) and end is not None and fault.state == "lost" and not self._protocol.readmits:
            raise UsageError(
                f"{where}.state: protocol {self._protocol.name!r} cannot take back a node that lost its state; "
                "use state = 'kept'"
            )

    def _end(self, fault: Lasting, where: str) -> float | None:
        name, end = ("recover_ms", fault.recover_ms) if isinstance(fault, Crash) else ("until_ms", fault.until_ms)
        if end is not None and not fault.at_ms < end <= self._duration_ms:
            raise UsageError(
                f"{where}.{name}: {end} is not between at_ms {fault.at_ms} and the duration of {self._duration_ms} ms"
            )
        return end

    def _check_overlap(self, fault: Crash | Pause | Slow | Delay, place: str, end: float, where: str) -> None:
        """One node cannot crash while it is down, nor pause while it stands still."""
        taken = self._busy[type(fault), place]
        if any(began <= end and fault.at_ms <= ended for began, ended in taken):
            raise UsageError(f"{where}.at_ms: an earlier fault of the same kind at {place} lasts into this one")
        taken.append((fault.at_ms, end))


def directions(fault: Delay) -> list[tuple[str, str]]:
    """From whom to whom."""
    one, other = fault.between
    return [(one, other)] if fault.one_way else [(one, other), (other, one)]
