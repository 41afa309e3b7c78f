"""Turns the workload of a run into an explicit schedule: one line for every publication and subscription."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from ordercast.core.messages import Message
from ordercast.core.registry import ProtocolInfo
from ordercast.scenario.model import Scenario, Schedule, Step
from ordercast.sim.catalogue import BROKER
from ordercast.sim.clock import NS_PER_MS
from ordercast.sim.kinds import kind_of
from ordercast.sim.links.packets import time_asked
from ordercast.trace.recorder import Recorder

_CHANGES: dict[str, Literal["subscribe", "unsubscribe"]] = {
    "subscribe": "subscribe",
    "unsubscribe": "unsubscribe",
}


class Deed(msgspec.Struct, frozen=True):
    """One thing that an application did. Other deeds refer to it by the id its message had in the original run."""

    step: Step
    """With its time in the original run, whether or not it waits for something."""
    origin: str = ""
    """Whoever numbers the message: its publisher's life; with brokers, and the topic."""
    message: str = ""
    after: str = ""
    """The message whose delivery this answers."""


class _Listener(Recorder):
    """Takes the recorder's place to write down deeds instead of rows."""

    def __init__(self, protocol: ProtocolInfo) -> None:
        self._of_brokers = protocol.name == BROKER.name
        self.packets = False
        self.deeds: list[Deed] = []
        self._default = protocol.guarantee
        # On an overlay that changes nobody asks: whoever is in is a member.
        self._notes_asking = not protocol.notes_membership and protocol.build_overlay is None
        self._heard: dict[str, tuple[int, str]] = {}

    def publish(self, node: str, time_ns: int, message: Message) -> None:
        at = self._asked(message, time_ns)
        heard_at, heard = self._heard.get(node, (-1, ""))
        step = Step(
            node=node,
            at_ms=at / NS_PER_MS,
            topic=message.topic or None,
            dst=list(message.dst),
            keys=list(message.keys),
            guarantee="" if message.guarantee == self._default else message.guarantee.label,
            payload_bytes=len(message.payload),
        )
        stream = f"{message.origin}/{message.topic}" if self._of_brokers else message.origin
        self.deeds.append(Deed(step, stream, message.id, heard if heard_at == at else ""))

    def _asked(self, message: Message, time_ns: int) -> int:
        """When the application asked; a node that is busy or down may publish later than that."""
        asked = None if self._of_brokers else time_asked(message)
        return time_ns if asked is None else asked

    def deliver(self, node: str, time_ns: int, message: Message) -> None:
        if message.publisher != node:
            self._heard[node] = (time_ns, message.id)

    def event(self, kind: str, node: str, time_ns: int, info: Mapping[str, str] | None = None) -> None:
        if kind in _CHANGES and self._notes_asking:
            topic = (info or {}).get("topic")
            self.deeds.append(Deed(Step(node=node, do=_CHANGES[kind], at_ms=time_ns / NS_PER_MS, topic=topic)))


def deeds_of(scenario: Scenario, protocol: ProtocolInfo, seed: int) -> list[Deed]:
    """The deeds of a run's applications, in order of time."""
    listener = _Listener(protocol)
    kind = kind_of(protocol)
    kind.live(kind.build(scenario, protocol, seed, listener))
    asked = _asked(scenario) if protocol.notes_membership else []
    return sorted([*listener.deeds, *asked], key=lambda deed: deed.step.at_ms or 0.0)


def _asked(scenario: Scenario) -> list[Deed]:
    """The time at which the application asked; a node that is busy or down may publish later than that."""
    steps = [step for load in scenario.workload if isinstance(load, Schedule) for step in load.steps]
    return [Deed(step, after=step.after or "") for step in steps if step.do != "publish"]


def schedule_of(deeds: Sequence[Deed]) -> Schedule:
    """The deeds as a schedule. Messages get the ids they will have now that others are gone."""
    published: Counter[str] = Counter()
    new_ids: dict[str, str] = {}
    for deed in deeds:
        if deed.message:
            published[deed.origin] += 1
            new_ids[deed.message] = f"{deed.origin}#{published[deed.origin]}"
    return Schedule(steps=[_step(deed, new_ids) for deed in deeds])


def _step(deed: Deed, new_ids: Mapping[str, str]) -> Step:
    """An answer whose question is gone happens when it happened."""
    if deed.after not in new_ids:
        return deed.step
    return msgspec.structs.replace(deed.step, at_ms=None, after=new_ids[deed.after])
