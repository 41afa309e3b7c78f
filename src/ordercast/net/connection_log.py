"""Log lines about a process's connections: one for each that opens or ends, and complaints."""

from __future__ import annotations

import logging
import time
from typing import Protocol

from ordercast.core.process import Peer
from ordercast.net.wire.connection import WireConnection
from ordercast.net.wire.ends import ConnectionEnd
from ordercast.net.wire.strangers import Strangers

LOG = logging.getLogger("ordercast.net")


class EndedConnection(Protocol):
    """A connection, as far as its end is told."""

    @property
    def name(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def peer(self) -> Peer | None: ...


class ConnectionLog:
    """The lines of one process. Complaints about the same address are counted, and written now and then."""

    def __init__(self, node: str, strangers: Strangers) -> None:
        self._node = node
        self._strangers = strangers

    def opened(self, connection: WireConnection, peer: Peer) -> None:
        self._log(logging.INFO, "connected", connection, kind=peer.kind, life=peer.life)

    def ended(self, connection: EndedConnection, end: ConnectionEnd) -> None:
        """Log the end of a connection; strangers share one line for all of their address, now and then."""
        facts: dict[str, object] = {"why": end.why, "reason": end.reason}
        if end.complaint and connection.peer is None and connection.host:
            facts["times"] = times = self._strangers.complaints(connection.host, time.monotonic_ns())
            if not times:
                return
        self._log(logging.WARNING if end.complaint else logging.INFO, "closed", connection, **facts)

    def bad_cast(self, peer: str, reason: str) -> None:
        """A packet that was cast, from the peer or to it, is not what it should be."""
        times = self._strangers.complaints(peer, time.monotonic_ns())
        if times:
            LOG.warning("casts", extra={"facts": {"node": self._node, "peer": peer, "reason": reason, "times": times}})

    def failed(self, error: BaseException) -> None:
        """The process stops: a bug, or a disk that does not keep what it is given."""
        trace = None if isinstance(error, OSError) else error  # A full disk is no bug of ours.
        LOG.critical("failed", exc_info=trace, extra={"facts": {"node": self._node, "failure": str(error)}})

    def _log(self, level: int, event: str, connection: EndedConnection, **facts: object) -> None:
        if LOG.isEnabledFor(level):
            LOG.log(level, event, extra={"facts": {"node": self._node, "peer": connection.name, **facts}})
