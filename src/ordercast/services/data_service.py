"""The state of a service at one replica: operations change it, snapshots carry it to another replica."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import msgspec

from ordercast.core.errors import UsageError
from ordercast.core.ids import Topic
from ordercast.core.messages import Guarantee
from ordercast.pubsub.publications import Publication, PublicationId
from ordercast.services.operations import OperationRefused, Service, service_of
from ordercast.services.staging import Cells
from ordercast.services.stores.port import StoreError
from ordercast.services.wire import Call

log = logging.getLogger(__name__)

_Pairs = list[tuple[str, bytes]]
_decode_pairs = msgspec.msgpack.Decoder(_Pairs).decode


class ApplyContext(msgspec.Struct, frozen=True):
    """The context of an operation besides its arguments. The same at every replica, but for `own`."""

    topic: Topic
    publication: PublicationId
    level: Guarantee
    store: Cells
    own: bool
    """Whether this replica asked for it. Nothing that is written may depend on it."""


class DataService(ABC):
    """One per service and topic. `apply` is deterministic: no clock, no chance, no input but `ctx.store`."""

    service: Service

    @abstractmethod
    def apply(self, call: Call, ctx: ApplyContext) -> Any:
        """Do it and return its value, or raise Refused."""

    def snapshot(self, store: Cells) -> bytes:
        """All its data; equal data give equal bytes."""
        return msgspec.msgpack.encode(list(store.scan()))

    def restore(self, data: bytes, store: Cells) -> None:
        """Put what `snapshot` gave into an empty store."""
        for key, value in _decode_pairs(data):
            store.put(key, value)


class MethodService(DataService):
    """The object of a class with `@service`: operations are its methods, which find `self.store` and `self.context`."""

    def __init__(self, target: object) -> None:
        self.service = service_of(type(target))
        self._target: Any = target

    def apply(self, call: Call, ctx: ApplyContext) -> Any:
        operation = self.service.operations[call.operation]
        self._target.context = ctx
        self._target.store = ctx.store
        return operation.body(self._target, *call.arguments)


class ReadOnly:
    """For operations that said they only read."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        self.get = cells.get

    def put(self, key: str, value: bytes) -> None:
        raise UsageError(f"a read-only operation wrote {key!r} ({len(value)} bytes)")

    def delete(self, key: str) -> None:
        raise UsageError(f"a read-only operation deleted {key!r}")

    def scan(self, prefix: str = "") -> Iterator[tuple[str, bytes]]:
        return self._cells.scan(prefix)


def checked_call(data: DataService, call: Call, publication: Publication) -> tuple[Call, bool]:
    """The call with all its arguments, and whether it only reads.

    Refuses what was published without the level or the keys that its declaration asks for: replicas could disagree.
    """
    operation = data.service.operations.get(call.operation)
    if operation is None:
        raise OperationRefused(f"{call.service} has no operation {call.operation!r}")
    try:
        arguments = operation.arguments(call.arguments, {})
        keys = operation.key_items(arguments)
        level = data.service.level_of(operation, keys)
        topic = data.service.topic_of(arguments)
    except Exception as error:  # noqa: BLE001 - whatever the declaration finds wrong, it finds at every replica
        raise OperationRefused(f"{call.operation}: {error}") from None
    if publication.guarantee < level:
        raise OperationRefused(f"{call.operation}: published as {publication.guarantee.label}, needs {level.label}")
    if not set(keys) <= set(publication.keys):
        raise OperationRefused(
            f"{call.operation}: published without the keys {sorted(set(keys) - set(publication.keys))}"
        )
    if topic != publication.topic:
        raise OperationRefused(f"{call.operation}: published on {publication.topic}, belongs to {topic}")
    return Call(call.service, call.operation, arguments), operation.read_only


def perform(data: DataService, call: Call, ctx: ApplyContext) -> Any:
    """Apply one call. An operation that fails is refused: it fails alike wherever it meets the same state."""
    try:
        return data.apply(call, ctx)
    except (OperationRefused, StoreError, MemoryError, AssertionError):
        raise  # A decision; a store that will be asked again; this machine's trouble; a bug of ours.
    except Exception as error:
        log.exception("operation %s of %s failed on %s", call.operation, call.service, ctx.topic)
        raise OperationRefused(f"{call.operation} failed: {type(error).__name__}: {error}") from None
