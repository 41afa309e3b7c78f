"""The promises of a manager of entries, on its disk: after a restart it goes on where it was.

    DIR/tickets/<n>.log    the log (`net/log`): first whose it is and all tickets, then those that changed in each turn

A turn is on the disk before its packets leave, so nobody holds a promise that a crash could make undone. Only who has
been promised what counts for that; how far an owner has come (`base`) is written along with the next promise, and what
is lost of it makes a new owner wait for less. Implements `TurnLedger`.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from ordercast.core.errors import UsageError
from ordercast.net.log.log import Log
from ordercast.protocols.cluster.tickets.manager import EntryTicket

_LEAST_BYTES = 1 << 20
_RUNS = 1
"""Stands for the end of a lease that had not ended: it begins anew with the manager."""

Row = tuple[str, int, int, tuple[str, int] | None, bool, int]
"""Cluster, entry, and of its ticket: the epoch promised, to whom, whether a lease runs, and the highest value told."""


class TicketHead(msgspec.Struct, frozen=True):
    """The first record."""

    node: str
    everything: bool
    """Whether nothing was promised that is not here: it began with the manager's first life, and was never lost."""
    rows: tuple[Row, ...] = ()


_head = msgspec.msgpack.Decoder(TicketHead)
_rows = msgspec.msgpack.Decoder(tuple[Row, ...])
_encode = msgspec.msgpack.Encoder().encode


class TicketLog:
    """One manager's log. The directory is locked by whoever makes it."""

    def __init__(self, directory: Path, node: str, *, first_life: bool, least_bytes: int = _LEAST_BYTES) -> None:
        """`first_life`: nobody has ever promised anything in this process's name; a new log then has everything."""
        self._rows: dict[tuple[str, int], Row] = {}
        self._fresh: dict[tuple[str, int], Row] = {}
        self._log = Log(directory / "tickets", "tickets", least_bytes=least_bytes)
        try:
            self._head = self._read(TicketHead(node, first_life))
        except BaseException:
            self._log.abandon()
            raise
        self._log.report(node)

    @property
    def everything(self) -> bool:
        """Whether the tickets are all that was ever promised."""
        return self._head.everything

    def tickets(self) -> dict[tuple[str, int], EntryTicket]:
        """As they are when the manager begins."""
        return {
            place: EntryTicket(promised, owner, _RUNS if leased else 0, base)
            for place, (_, _, promised, owner, leased, base) in self._rows.items()
        }

    def keep(self, cluster: str, entry: int, ticket: EntryTicket) -> None:
        """It is written at the end of the turn, unless nothing was promised and only its owner has moved on."""
        row = cluster, entry, ticket.promised, ticket.owner, ticket.leased, ticket.base
        known = self._rows.get((cluster, entry))
        self._rows[cluster, entry] = row
        if known is None or known[:-1] != row[:-1]:
            self._fresh[cluster, entry] = row

    def flush(self) -> None:
        if not self._fresh:
            return
        changed, self._fresh = tuple(self._fresh.values()), {}
        if self._log.oversized:
            self._log.compact([_encode(self._whole())])
        else:
            self._log.write(_encode(changed))

    def close(self) -> None:
        """With all that is known by now, for the next life."""
        try:
            if self._log.is_open and not self._log.failed:
                self._log.compact([_encode(self._whole())])
        finally:
            self._log.close()

    def abandon(self) -> None:
        self._log.abandon()

    def _whole(self) -> TicketHead:
        return msgspec.structs.replace(self._head, rows=tuple(self._rows.values()))

    def _read(self, fresh: TicketHead) -> TicketHead:
        records, self._log.records = self._log.records, []
        if not records:
            self._log.begin([_encode(fresh)])
            return fresh
        head = self._log.decoded(records[0], _head)
        if head.node != fresh.node:
            raise UsageError(f"{self._log.path}: these are the tickets of {head.node}, not of {fresh.node}")
        for rows in (head.rows, *(self._log.decoded(record, _rows) for record in records[1:])):
            self._rows |= {row[:2]: row for row in rows}
        return head
