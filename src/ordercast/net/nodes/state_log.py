"""The log of a node: every input of its machine, in a directory that outlives the process.

    DIR/lock       held by the process that uses the directory
    DIR/<n>.log    the log (`net/log`): first the state that it begins with, then every input since

A machine is deterministic: who has its inputs has its state. The inputs of one turn of the event loop are one frame,
written before anything that they caused leaves the process. A log with a damaged place is refused: without one of its
inputs a machine would take all later ones for something else.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Hashable
from pathlib import Path
from typing import Any, Literal

import msgspec

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId, Topic
from ordercast.core.machine import Place
from ordercast.core.messages import Guarantee, Message
from ordercast.core.registry import ProtocolInfo
from ordercast.net.log.files import Disk, lock
from ordercast.net.log.log import Log
from ordercast.overlay.extended import TreePlace

StateFsync = Literal["always", "never"]

_LEAST_BYTES = 1 << 22
"""A log smaller than this is not worth beginning anew: repeating it takes about a second."""


class _Input(msgspec.Struct, frozen=True, array_like=True):
    """Base of what can happen to a machine."""


class Started(_Input, frozen=True, array_like=True, tag=1):
    """The first life begins."""


class LifeBegun(_Input, frozen=True, array_like=True, tag=2):
    """A further life begins, with what the machine of the one before would have saved."""


class PublishedInput(_Input, frozen=True, array_like=True, tag=3):
    topic: Topic
    payload: bytes
    guarantee: Guarantee
    keys: tuple[str, ...]
    dst: tuple[NodeId, ...]


class ReceivedInput(_Input, frozen=True, array_like=True, tag=4):
    peer: NodeId
    packets: tuple[bytes, ...]


class Fired(_Input, frozen=True, array_like=True, tag=5):
    """A timer has run out."""

    timer: Any


class Suspected(_Input, frozen=True, array_like=True, tag=6):
    peer: NodeId


class Trusted(_Input, frozen=True, array_like=True, tag=7):
    peer: NodeId


class Subscribed(_Input, frozen=True, array_like=True, tag=8):
    topic: Topic


class Unsubscribed(_Input, frozen=True, array_like=True, tag=9):
    topic: Topic


class JoinedInput(_Input, frozen=True, array_like=True, tag=10):
    """The node was told to enter the overlay."""


class LeftInput(_Input, frozen=True, array_like=True, tag=11):
    """The node was told to leave the overlay."""


class MachineReplaced(_Input, frozen=True, array_like=True, tag=12):
    """The machine was replaced by one that has what it saved, and was told that it is back. No life has ended."""


Input = (
    Started | LifeBegun | MachineReplaced | PublishedInput | ReceivedInput | Fired | Suspected | Trusted | Subscribed
    | Unsubscribed | JoinedInput | LeftInput
)  # fmt: skip


class Whose(msgspec.Struct, frozen=True):
    """The owner of a log: with another node, protocol or overlay its inputs would mean something else."""

    node: NodeId
    incarnation: int
    protocol: str
    options: str
    around: int
    """Of the overlay and the groups, a checksum."""


class Head(msgspec.Struct, frozen=True):
    """The first record of the log: whose it is, the saved state, and the counts up to there."""

    whose: Whose
    saved: bytes = b""
    """What the machine saved; empty: it is as it was built."""
    published: int = 0
    told: int = 0
    """Events that the trace had been told of."""
    delivered: int = 0
    unheard: tuple[Message, ...] = ()
    """The last of the messages delivered: those that the application had not been handed."""
    lives: int = 0


_encoder = msgspec.msgpack.Encoder()
_inputs = msgspec.msgpack.Decoder(list[Input])
_head = msgspec.msgpack.Decoder(Head)


def belongs_to(place: Place, protocol: ProtocolInfo, options: Any) -> Whose:
    around = _encoder.encode(
        [place.neighbours, place.nodes, sorted((place.groups or {}).items()), place.clients, _tree_of(place)]
    )
    described = msgspec.json.encode(options, order="sorted").decode()
    return Whose(place.node, place.incarnation, protocol.name, described, zlib.crc32(around))


def _tree_of(place: Place) -> Any:
    """The tree beneath the links: the same neighbours may be linked by another one."""
    if not isinstance(place, TreePlace):
        return None
    return place.parent, place.routes.near if place.routes is not None else None


def timer_name(written: Any) -> Hashable:
    """The name of a timer as the machine knows it: what was a tuple comes back from the log as a list."""
    return tuple(map(timer_name, written)) if isinstance(written, list) else written


class StateLog:
    """One node's log. `add` during a turn, `flush` at its end; `compact` where it has grown large."""

    def __init__(
        self, directory: Path, whose: Whose, *, fsync: StateFsync = "never", least_bytes: int = _LEAST_BYTES,
        disk: Disk | None = None,
    ) -> None:  # fmt: skip
        self.head = Head(whose)
        self.inputs: list[Input] = []
        """What former lives have left, after the head; emptied by whoever has repeated it."""
        self.has_past = False
        """Whether a life has begun with this state; a process may have died before."""
        self.lives = 0
        """Lives that have begun with this state: what the next one is called where nobody else counts."""
        self._fresh: list[Input] = []
        self._lock = lock(directory, "another process uses this state")
        try:
            self.log = Log(directory, "node", least_bytes=least_bytes, fsync=fsync, disk=disk)
            self._read(whose)
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def oversized(self) -> bool:
        """Whether it is time to begin anew."""
        return self.log.oversized

    def add(self, happened: Input) -> None:
        self._fresh.append(happened)

    def begin_life(self) -> None:
        """Put on record that a life begins, before anybody can hear of it."""
        self.add(LifeBegun() if self.has_past else Started())
        self.lives += 1
        self.flush()

    def flush(self) -> None:
        """One write for all inputs of the turn."""
        if self._fresh:
            body = _encoder.encode(self._fresh)
            self._fresh = []
            self.log.write(body)

    def compact(self, head: Head) -> None:
        """Begin the log anew with `head`, and forget what was before."""
        self.log.compact([_encoder.encode(head)])

    def put_off(self) -> None:
        """Try to compact later: it cannot be done now."""
        self.log.put_off()

    def close(self) -> None:
        if self._lock >= 0:
            try:
                if not self.log.failed:
                    self.flush()
            finally:
                self.log.close()
                os.close(self._lock)
                self._lock = -1

    def _read(self, whose: Whose) -> None:
        records = self.log.records
        self.log.records = []
        if not records:
            self.log.begin([_encoder.encode(self.head)])
            return
        self.head = self.log.decoded(records[0], _head)
        _check_whose(self.log.path, self.head, whose)
        turns = [self.log.decoded(record, _inputs) for record in records[1:]]
        self.inputs = [happened for turn in turns for happened in turn]
        self.lives = self.head.lives + sum(isinstance(happened, Started | LifeBegun) for happened in self.inputs)
        self.has_past = self.lives > 0


def _check_whose(path: Path, head: Head, whose: Whose) -> None:
    found = head.whose
    if found == whose:
        return
    for name in ("node", "incarnation", "protocol", "options"):
        if getattr(found, name) != getattr(whose, name):
            raise UsageError(f"{path}: {name} is {getattr(found, name)} there and {getattr(whose, name)} here")
    raise UsageError(f"{path}: the overlay or the groups were others when it was written")
