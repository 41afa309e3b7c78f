"""The log of a node that chooses its neighbours: what it was when the log began, and what it has delivered since.

    DIR/lock       held by the process that uses the directory
    DIR/<n>.log    the log (`net/log`): first whose it is and the saved state, then the deliveries of each turn

Links die with the process, so nothing about them is kept. A turn is written before its packets leave: nobody has heard
of a delivery that a crash could make undone. Implements `TurnLedger`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId
from ordercast.core.messages import Message
from ordercast.core.process import OverlayMachine
from ordercast.net.log.files import lock
from ordercast.net.log.log import Log
from ordercast.net.nodes.saved_state import pack, restore
from ordercast.net.nodes.state_log import StateFsync

_LEAST_BYTES = 1 << 22


class OverlayHead(msgspec.Struct, frozen=True):
    """The first record."""

    node: NodeId
    incarnation: int
    protocol: str
    saved: bytes = b""
    """What the machine saved; empty: it had not begun."""


_head = msgspec.msgpack.Decoder(OverlayHead)
_turn = msgspec.msgpack.Decoder(list[Message])
_encode = msgspec.msgpack.Encoder().encode


class OverlayLog:
    """One node's log."""

    def __init__(
        self, directory: Path, node: NodeId, incarnation: int, protocol: str, *, fsync: StateFsync = "never",
        least_bytes: int = _LEAST_BYTES,
    ) -> None:  # fmt: skip
        self._whose = OverlayHead(node, incarnation, protocol)
        self._fresh: list[Message] = []
        self._machine: OverlayMachine | None = None
        self._renew = True
        """Whether the log begins anew at the end of this turn."""
        self._lock = lock(directory, "another process uses this state")
        try:
            self._log = Log(directory, "overlay", least_bytes=least_bytes, fsync=fsync)
            self._past = self._read()
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def has_past(self) -> bool:
        """Whether an earlier life of this incarnation has begun."""
        return bool(self._past[0].saved)

    def machine(self, build: Callable[[], OverlayMachine]) -> OverlayMachine:
        """As it is built, or with what its former lives have left."""
        self._machine = machine = build()
        head, delivered = self._past
        self._past = OverlayHead(head.node, head.incarnation, head.protocol, head.saved), []
        if head.saved:
            restore(machine, head.saved)  # type: ignore[arg-type]
            for message in delivered:
                machine.redeliver(message)
        return machine

    def delivered(self, message: Message) -> None:
        self._fresh.append(message)

    def renew(self) -> None:
        """Something else than a delivery has changed: the state is written whole at the end of this turn."""
        self._renew = True

    def flush(self) -> None:
        if self._renew or self._log.oversized:
            self._renew = False
            self._fresh = []
            assert self._machine is not None
            saved = pack(self._machine)  # type: ignore[arg-type]
            self._log.compact([_encode(msgspec.structs.replace(self._whose, saved=saved))])
        elif self._fresh:
            body, self._fresh = _encode(self._fresh), []
            self._log.write(body)

    def close(self) -> None:
        if self._lock >= 0:
            try:
                if not self._log.failed:
                    self.flush()
            finally:
                self.abandon()

    def abandon(self) -> None:
        if self._lock >= 0:
            self._log.abandon()
            os.close(self._lock)
            self._lock = -1

    def _read(self) -> tuple[OverlayHead, list[Message]]:
        records, self._log.records = self._log.records, []
        if not records:
            self._log.begin([_encode(self._whose)])
            return self._whose, []
        head = self._log.decoded(records[0], _head)
        for name in ("node", "incarnation", "protocol"):
            here, there = getattr(self._whose, name), getattr(head, name)
            if here != there:
                raise UsageError(f"{self._log.path}: {name} is {there} there and {here} here")
        return head, [message for record in records[1:] for message in self._log.decoded(record, _turn)]
