"""The ways in which a connection ends, as counters, logs and the other end are told of them."""

from __future__ import annotations

from ordercast.net.wire.frames import LONGEST_REASON


class ConnectionEnd:
    """The way in which a connection ended."""

    __slots__ = ("gone", "reason", "why")

    def __init__(self, why: str, reason: str, *, gone: bool = True) -> None:
        self.why = why
        """For counters: `garbage`, `handshake`, `late`, `strangers`, `protocol`, `silent`, `slow`, `long`, `lost`,
        `goodbye`, `unreachable` or `local`."""
        self.reason = reason[:LONGEST_REASON]
        self.gone = gone

    @property
    def complaint(self) -> bool:
        """It is about something that the other end did and should not do."""
        return self.why not in ("lost", "goodbye", "local", "unreachable")
