"""A partitioned key-value store as a state machine: operations on one or several partitions, each of them atomic.

An operation is multicast to the partitions of its keys. Each executes its part when the message is delivered and sends
the values it read to the node that asked. Any atomic multicast makes the store serializable, because the orders of all
partitions agree; one with real-time order makes it strictly serializable.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId
from ordercast.core.state import State
from ordercast.core.wire import NOT_DECODABLE

Value = bytes | None
"""None: the key is absent; writing it removes the key."""
Pairs = tuple[tuple[str, Value], ...]


class KvOperation(msgspec.Struct, frozen=True, array_like=True):
    """Reads and writes that happen as one step; the reads see what was there before the writes."""

    reads: tuple[str, ...] = ()
    writes: Pairs = ()

    @property
    def keys(self) -> tuple[str, ...]:
        return (*self.reads, *(key for key, _ in self.writes))


class Command(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The `number`-th operation of the node `home`, on its way to the partitions of its keys."""

    home: NodeId
    number: int
    operation: KvOperation


class KvPart(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """One partition's reads for an operation of the receiver."""

    number: int
    partition: int
    values: Pairs
    problem: str = ""
    """Why there are no values."""


class Posting(msgspec.Struct, frozen=True):
    """A message to be multicast."""

    payload: bytes
    to: tuple[NodeId, ...]


class Result(msgspec.Struct, frozen=True):
    """An operation of this node is done."""

    number: int
    values: dict[str, Value]
    problem: str = ""
    """Why some of the values are missing."""


class Partitioning:
    """Which nodes hold which keys. A partition is one server, or all replicas of a replicated one."""

    def __init__(self, partitions: Sequence[Sequence[str]]) -> None:
        self.partitions = tuple(tuple(NodeId(node) for node in partition) for partition in partitions)
        if not self.partitions or not all(self.partitions):
            raise UsageError("partitions: every partition needs a node")
        self.index = {node: i for i, partition in enumerate(self.partitions) for node in partition}
        if len(self.index) < sum(map(len, self.partitions)):
            raise UsageError("partitions: a node is named twice")

    def partition_of(self, key: str) -> int:
        return zlib.crc32(key.encode()) % len(self.partitions)

    def partitions_of(self, operation: KvOperation) -> set[int]:
        return {self.partition_of(key) for key in operation.keys}

    def nodes_of(self, operation: KvOperation) -> tuple[NodeId, ...]:
        return tuple(node for i in sorted(self.partitions_of(operation)) for node in self.partitions[i])


class KvWaiting(State):
    """An operation of this node, and the partitions that have not answered."""

    def __init__(self, missing: set[int]) -> None:
        self.missing = missing
        self.values: dict[str, Value] = {}
        self.problem = ""


class KeyValueReplica(State):
    """One node of the store: it holds a part of the data, and asks for operations on all of it."""

    constant: ClassVar[tuple[str, ...]] = ("node", "partitioning", "partition")

    def __init__(self, node: str, partitioning: Partitioning) -> None:
        self.node = NodeId(node)
        self.partitioning = partitioning
        self.partition = partitioning.index.get(self.node)
        """The own one; None: this node holds no data."""
        self.data: dict[str, bytes] = {}
        self.begun = 0
        self.waiting: dict[int, KvWaiting] = {}

    def begin(self, reads: Sequence[str] = (), writes: Mapping[str, Value] | None = None) -> tuple[int, Posting]:
        """A new operation: its number, and what has to be multicast for it. It is done when `deliver` says so."""
        operation = KvOperation(tuple(dict.fromkeys(reads)), tuple((writes or {}).items()))
        if not operation.keys:
            raise UsageError("an operation has to read or write at least one key")
        if self.partition is None:
            raise UsageError(f"{self.node}: only nodes of the store can ask, for the answers are multicast to them")
        self.begun += 1
        self.waiting[self.begun] = KvWaiting(self.partitioning.partitions_of(operation))
        command = Command(self.node, self.begun, operation)
        return self.begun, Posting(msgspec.msgpack.encode(command), self.partitioning.nodes_of(operation))

    def deliver(self, payload: bytes) -> tuple[Posting | None, Result | None]:
        """Execute what was delivered: perhaps an answer has to be sent, perhaps an own operation is done."""
        try:
            what = msgspec.msgpack.decode(payload, type=Command | KvPart)
        except NOT_DECODABLE:
            return None, None  # No operation of this store; every replica skips it alike.
        match what:
            case Command(home, number, operation):
                if self.partition is None:
                    return None, None  # Whoever sent it to a node without data is wrong, and harms nobody.
                part = KvPart(number, self.partition, self._execute(operation))
                if home == self.node:
                    return None, self._collect(part)
                return Posting(msgspec.msgpack.encode(part), (home,)), None
            case part:
                return None, self._collect(part)

    def _execute(self, operation: KvOperation) -> Pairs:
        mine = [key for key in operation.reads if self.partitioning.partition_of(key) == self.partition]
        values = tuple((key, self.data.get(key)) for key in mine)
        for key, value in operation.writes:
            if self.partitioning.partition_of(key) != self.partition:
                continue
            if value is None:
                self.data.pop(key, None)
            else:
                self.data[key] = value
        return values

    def _collect(self, part: KvPart) -> Result | None:
        """The first replica of a partition that answers speaks for it."""
        waiting = self.waiting.get(part.number)
        if waiting is None or part.partition not in waiting.missing:
            return None
        waiting.missing.discard(part.partition)
        waiting.values.update(part.values)
        waiting.problem = waiting.problem or part.problem
        if waiting.missing:
            return None
        del self.waiting[part.number]
        return Result(part.number, waiting.values, waiting.problem)


def without_values(answer: Posting, problem: str) -> Posting:
    """An answer that says only why it has no values."""
    part = msgspec.msgpack.decode(answer.payload, type=KvPart)
    refusal = msgspec.structs.replace(part, values=(), problem=problem)
    return Posting(msgspec.msgpack.encode(refusal), answer.to)
