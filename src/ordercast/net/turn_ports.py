"""Ports of a process on the TCP runtime: the ledger that it flushes each turn, and its listening socket."""

from __future__ import annotations

import os
import random
import socket
from pathlib import Path
from typing import Protocol

from ordercast.core.errors import UsageError
from ordercast.net.wire.credentials import join_address, split_address

_BACKLOG = 1024
_LOWEST_PORT, _HIGHEST_PORT = 10_000, 32_000
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


class TurnLedger(Protocol):
    """Port to durable state: `flush` makes a turn durable before its packets leave."""

    def flush(self) -> None:
        """Make everything written in this turn as durable as it is meant to be; an OSError if that fails."""

    def close(self) -> None: ...

    def abandon(self) -> None:
        """Let go of the files and write nothing more."""


def listening(address: str) -> socket.socket:
    """A socket that listens at HOST:PORT; port 0 takes a free one."""
    host, port = split_address(address, "listen")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        raw = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"listen: {address}: {_said(error)}") from None
    try:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        raw.setblocking(False)
        raw.bind(place)
        raw.listen(_BACKLOG)
    except OSError as error:
        raw.close()
        raise UsageError(f"listen: {address}: {_said(error)}") from None
    return raw


def lasting_door() -> socket.socket:
    """A socket that listens on loopback at a port that the system gives to nobody who dials.

    A broker that is killed and restarted needs its port again; one of the others might be some client's by then.
    """
    highest = _HIGHEST_PORT
    if _EPHEMERAL.exists():
        highest = max(_LOWEST_PORT + 1000, min(highest, int(_EPHEMERAL.read_text().split()[0])))
    for port in random.sample(range(_LOWEST_PORT, highest), 1000):
        try:
            return listening(join_address("127.0.0.1", port))
        except UsageError:
            continue
    raise UsageError(f"no free port between {_LOWEST_PORT} and {highest}")


def address_of(door: socket.socket) -> str:
    name = door.getsockname()
    return join_address(str(name[0]), int(name[1]))


def _said(error: Exception) -> str:
    """The system's own words, without the number."""
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number is not None and number > 0 else str(error)
