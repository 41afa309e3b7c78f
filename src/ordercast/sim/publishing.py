"""The port between workloads and runs: publishers, whether they are nodes of an overlay or clients of brokers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from ordercast.core.ids import NodeId, Topic
from ordercast.core.messages import Guarantee
from ordercast.scenario.choosing import Population
from ordercast.scenario.model import Scenario
from ordercast.sim.clock import Scheduler


class Published(Protocol):
    """A message or a publication, once it has its id."""

    @property
    def id(self) -> str: ...
    @property
    def publisher(self) -> NodeId: ...
    @property
    def topic(self) -> Topic: ...
    @property
    def dst(self) -> tuple[NodeId, ...]: ...


class Publisher(Protocol):
    """Somebody who can publish while it is alive."""

    @property
    def node(self) -> NodeId: ...
    @property
    def alive(self) -> bool: ...
    @property
    def leaving(self) -> bool:
        """Whether it has begun to leave for good: nothing is drawn for it any more."""

    def publish(
        self, topic: Topic, payload_bytes: int, guarantee: Guarantee, keys: tuple[str, ...], dst: tuple[NodeId, ...],
        told: Callable[[Any], None] | None = None,
    ) -> None:  # fmt: skip
        """One message; `told` learns what became of it."""

    def subscribe(self, topic: Topic) -> None: ...

    def unsubscribe(self, topic: Topic) -> None: ...


@runtime_checkable
class Windowed(Protocol):
    """A publisher that knows how many packets are on their way from it."""

    def has_room(self, window: int) -> bool:
        """Whether there are fewer than `window` on every link."""

    def when_room(self, window: int, action: Callable[[Any, Any], None], a: Any, b: Any) -> None:
        """Call `action(a, b)` as soon as that is so."""


class WorkloadView(Protocol):
    """A run as its workload sees it. Watchers get the publisher and, except for `leave`, what it did."""

    scenario: Scenario
    seed: int
    clock: Scheduler
    reply_depths: dict[str, int]
    delivery_watchers: list[Any]
    completion_watchers: list[Any]
    leave_watchers: list[Any]
    return_watchers: list[Any]

    @property
    def groups(self) -> Mapping[Topic, tuple[NodeId, ...]]: ...
    @property
    def members(self) -> Mapping[Topic, set[NodeId]]:
        """The members now."""

    @property
    def default_guarantee(self) -> Guarantee: ...

    def population(self) -> Population: ...

    def host(self, name: str, where: str) -> Publisher: ...
