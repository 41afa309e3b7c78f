"""One stage for promises about brokers and clients, built twice: under virtual time and over TCP.

A promise is a coroutine that tells clients and brokers what to do and looks at what comes of it. The simulator's stage
lets virtual time pass while it waits, the other one real time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ordercast.pubsub.publications import Publication
from ordercast.pubsub.settings import BrokerSettings
from ordercast.verify.verdict import Verdict
from tests.support.pubsub_lab import complaints

NEW = "b9"
"""A broker that nobody has configured."""


@dataclass(frozen=True)
class Cast:
    """Where a client begins, what it reads (topics or filters), what else it publishes on, and how far away it is."""

    edge: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    link_ms: float = 0.1
    """One way, between it and any broker."""


class Stage(ABC):
    """A tree of brokers, two below each, and clients that come when they are called."""

    patience_s = 40.0

    def __init__(self, brokers: int, cast: dict[str, Cast], settings: BrokerSettings, *, durable: bool) -> None:
        self.brokers = [f"b{i}" for i in range(brokers)]
        self.parents = {f"b{i}": f"b{(i - 1) // 2}" for i in range(1, brokers)}
        self.cast = cast
        self.settings = settings
        self.durable = durable
        """What brokers knew they know again after a restart."""
        self.got: dict[str, list[str]] = {name: [] for name in cast}
        """Message ids in the order of delivery."""
        self.on_delivery: Callable[[str, Publication], None] = _nothing

    @abstractmethod
    async def wait(self, seconds: float) -> None:
        """Let time pass."""

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        left = self.patience_s
        while not condition():
            if left <= 0:
                raise AssertionError(f"not within {self.patience_s:g} s: {what}; got {self.got}")
            await self.wait(0.02)
            left -= 0.02

    async def all_have(self, messages: Iterable[str], *names: str) -> None:
        wanted = set(messages)
        for name in names:
            await self.until(lambda name=name: wanted <= set(self.got[name]), f"{name} has all of {sorted(wanted)}")

    async def join(self, *names: str) -> None:
        """Until everything that they read is confirmed."""
        for name in names:
            await self.enter(name)

    @abstractmethod
    async def enter(self, name: str) -> None: ...

    @abstractmethod
    def publish(self, name: str, topic: str, *keys: str, guarantee: str = "causal") -> str: ...

    @abstractmethod
    async def acknowledged(self, name: str, message: str, level: str) -> None: ...

    @abstractmethod
    async def leave(self, name: str) -> None: ...

    @abstractmethod
    async def kill(self, name: str) -> None:
        """A broker or a client ends without a word."""

    @abstractmethod
    async def restart(self, broker: str) -> None: ...

    @abstractmethod
    async def settle(self) -> None:
        """Until all running brokers are in one tree."""

    @abstractmethod
    def stand_still(self, name: str) -> None:
        """A client takes nothing any more."""

    @abstractmethod
    def go_on(self, name: str) -> None: ...

    @abstractmethod
    def paused(self, name: str) -> bool:
        """Whether the overlay has asked this client to publish no more for now."""

    @abstractmethod
    def session_lost(self, name: str) -> bool: ...

    @abstractmethod
    async def part(self, *side: str) -> None:
        """Nothing gets from these to anybody else, or back, until `heal`."""

    @abstractmethod
    async def heal(self) -> None: ...

    @abstractmethod
    async def add_broker(self) -> None: ...

    @abstractmethod
    async def dismiss(self, broker: str) -> None:
        """It leaves the tree for good."""

    @abstractmethod
    def edge_of(self, name: str) -> str | None: ...

    @abstractmethod
    def verdict(self) -> Verdict | None: ...

    def check(self) -> None:
        problems = complaints(self.verdict())
        assert not problems, problems
        for name, messages in self.got.items():
            assert len(messages) == len(set(messages)), f"{name} got something twice"


def _nothing(_name: str, _message: Publication) -> None:
    """Until a promise wants something done."""
