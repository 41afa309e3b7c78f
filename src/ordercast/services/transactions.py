"""Several calls as one publication: they happen together, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Protocol

import msgspec

from ordercast.core.errors import UsageError
from ordercast.core.ids import Topic
from ordercast.core.messages import Guarantee
from ordercast.services.wire import Call


class CrossTopicTransaction(UsageError):  # noqa: N818 - named as users speak of it
    """The parts of a transaction belong to different topics; nothing orders topics with each other."""


class Planned(msgspec.Struct, frozen=True):
    """A call, and what its publication needs."""

    topic: Topic
    call: Call
    keys: tuple[str, ...]
    level: Guarantee


class Commit(Protocol):
    async def __call__(
        self, topic: Topic, calls: tuple[Call, ...], keys: tuple[str, ...], level: Guarantee
    ) -> tuple[Any, ...]: ...


Planner = Callable[[type, str, tuple[Any, ...], dict[str, Any]], Planned]


class Transaction:
    """`async with frontend.transaction() as tx:` collects; leaving the block publishes and waits for the outcome.

    An exception inside the block discards what was collected. A transaction inside a transaction is part of it.
    """

    def __init__(self, plan: Planner, commit: Commit, current: ContextVar[Transaction | None]) -> None:
        self._plan = plan
        self._commit = commit
        self._current = current
        self._outer: Transaction | None = None
        self._token: Token[Transaction | None] | None = None
        self._parts: list[Planned] = []
        self._over = False
        self.values: tuple[Any, ...] = ()
        """What the calls returned, in their order, once the block is left."""

    def call(self, service: type, operation: str, *args: Any, **kwargs: Any) -> None:
        """Add a call; it happens when the block is left."""
        self._collect(self._plan(service, operation, args, kwargs))

    def of(self, service: type) -> TransactionService:
        """The service, its operations collected by this transaction: `tx.of(BankService).deposit("pt-1", 100)`."""
        return TransactionService(self, service)

    def _collect(self, part: Planned) -> None:
        if self._over:
            raise UsageError("the transaction is over")
        self._parts.append(part)

    async def __aenter__(self) -> Transaction:
        self._outer = self._current.get()
        self._token = self._current.set(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._over = True
        if self._token is not None:
            self._current.reset(self._token)
        if kind is not None or not self._parts:
            return
        if self._outer is not None:
            for part in self._parts:
                self._outer._collect(part)
            return
        topics = sorted({part.topic for part in self._parts})
        if len(topics) > 1:
            raise CrossTopicTransaction(f"a transaction stays on one topic; this one has {', '.join(topics)}")
        keys = tuple(sorted({key for part in self._parts for key in part.keys}))
        level = max(part.level for part in self._parts)
        self.values = await self._commit(topics[0], tuple(part.call for part in self._parts), keys, level)


class TransactionService:
    """The operations of a service, as calls of a transaction."""

    def __init__(self, transaction: Transaction, service: type) -> None:
        self._transaction = transaction
        self._service = service

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: self._transaction.call(self._service, name, *args, **kwargs)
