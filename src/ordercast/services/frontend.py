"""The application's end of a service: a call publishes the operation and gives back what the local replica makes of it.

bank = node.frontend().of(BankService)
balance = await bank.deposit("pt-1", 500)
bank.deposit.send("pt-1", 500)
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from contextvars import ContextVar
from typing import Any, Protocol

from ordercast.core.errors import UsageError
from ordercast.core.ids import Topic
from ordercast.core.messages import Guarantee
from ordercast.services.operations import service_of
from ordercast.services.transactions import Planned, Transaction
from ordercast.services.wire import Call

_open_transaction: ContextVar[Transaction | None] = ContextVar("ordercast_transaction", default=None)


class AskedOperations(Protocol):
    """The replica's port for the front end beside it."""

    def ask(
        self, topic: Topic, calls: tuple[Call, ...], keys: tuple[str, ...], level: Guarantee
    ) -> Awaitable[tuple[Any, ...]]:
        """Publish now; the values of the calls when the local replica has applied the echo."""

    def tell(self, topic: Topic, calls: tuple[Call, ...], keys: tuple[str, ...], level: Guarantee) -> None:
        """Publish, and that is all."""

    async def read(self, topic: Topic, call: Call) -> Any:
        """Answer a read from the local state."""


class Frontend:
    """Calls operations of services. `publish_reads` false: eventual reads are answered locally, unpublished."""

    def __init__(self, asked: AskedOperations, *, publish_reads: bool = True) -> None:
        self._asked = asked
        self._publish_reads = publish_reads

    def of(self, service: type) -> ServiceFront:
        """The service; its operations are attributes that can be called."""
        return ServiceFront(self, service)

    def transaction(self) -> Transaction:
        """Calls of one topic that happen together or not at all. Inside another one's block it is part of that."""
        return Transaction(plan, self._commit, _open_transaction)

    def call(self, service: type, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Awaitable[Any]:
        """Publish at once; what comes back can be awaited for the value, or for Refused or SessionLost."""
        planned = plan(service, name, args, kwargs)
        operation = service_of(service).operation(name)
        if operation.read_only and planned.level == Guarantee.EVENTUAL and not self._publish_reads:
            return self._asked.read(planned.topic, planned.call)
        return PendingAnswer(self._asked.ask(planned.topic, (planned.call,), planned.keys, planned.level))

    def send(self, service: type, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Publish and forget: no value, no refusal."""
        planned = plan(service, name, args, kwargs)
        self._asked.tell(planned.topic, (planned.call,), planned.keys, planned.level)

    async def _commit(
        self, topic: Topic, calls: tuple[Call, ...], keys: tuple[str, ...], level: Guarantee
    ) -> tuple[Any, ...]:
        return await self._asked.ask(topic, calls, keys, level)


class ServiceFront:
    """A service as its callers see it."""

    def __init__(self, frontend: Frontend, service: type) -> None:
        self._frontend = frontend
        self._service = service
        self._names = service_of(service).operations

    def __getattr__(self, name: str) -> CallableOperation:
        if name.startswith("__") or name not in self._names:
            raise AttributeError(f"{self._service.__name__} has no operation {name!r}")
        return CallableOperation(self._frontend, self._service, name)


class CallableOperation:
    """One operation. Calling it publishes; `send` does so without an answer."""

    def __init__(self, frontend: Frontend, service: type, name: str) -> None:
        self._frontend = frontend
        self._service = service
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Awaitable[Any]:
        return self._frontend.call(self._service, self._name, args, kwargs)

    def send(self, *args: Any, **kwargs: Any) -> None:
        self._frontend.send(self._service, self._name, args, kwargs)


def plan(service: type, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Planned:
    """The publication of a call; a UsageError says what is wrong with the call."""
    declared = service_of(service)
    operation = declared.operation(name)
    arguments = operation.arguments(args, kwargs)
    keys = operation.key_items(arguments)
    try:
        topic = declared.topic_of(arguments)
    except TypeError as error:
        raise UsageError(
            f"service {declared.name!r}: its topic cannot be found for {name}{arguments!r}: {error}"
        ) from None
    return Planned(topic, Call(declared.name, name, arguments), keys, declared.level_of(operation, keys))


class PendingAnswer:
    """The value of a single call, for those who await it; nobody has to."""

    def __init__(self, values: Awaitable[tuple[Any, ...]]) -> None:
        self._values = values

    def __await__(self) -> Generator[Any, None, Any]:
        values = yield from self._values.__await__()
        return values[0]
