"""Settings of a client: timeouts and limits."""

from __future__ import annotations

from typing import Annotated

import msgspec

_Ms = Annotated[float, msgspec.Meta(gt=0, le=86_400_000)]
_Count = Annotated[int, msgspec.Meta(ge=1)]


class ClientSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Defaults suit one machine or one local network."""

    request_ms: _Ms = 2000.0
    """Silence limit for a dial and for the answer to an Attach; then the next broker is tried."""
    grant_ms: _Ms = 15_000.0
    """How long an edge may leave a topic unconfirmed before another broker is tried. Doubles each time in vain."""
    retry_ms: _Ms = 300.0
    """Pause after all brokers were tried in vain, drawn from half to one and a half times this."""
    ping_ms: _Ms = 1000.0
    """An edge that was silent for so long is asked whether it lives."""
    silence_ms: _Ms = 4000.0
    """An edge that was silent for so long is lost."""
    stability_ms: _Ms = 100.0
    """Period of stability reports (BRK-ST1)."""
    report_every: _Count = 8192
    """So many messages taken by the application are reported without waiting for the period."""
    report_bytes: _Count = 1 << 20
    """The same for so many bytes of payloads, about: what is not known to be stable takes memory everywhere."""
    batch_entries: _Count = 1024
    """Publications in one packet, at most."""
    batch_bytes: _Count = 1 << 18
    """Size of one packet, about, unless a single publication is larger. Far below the limit of a frame."""
    window_bytes: _Count = 1 << 23
    """Bytes of a topic's publications that are on their way to the edge at a time, about: what it gets beyond its own
    limits when it says that it has enough."""
    folds: bool = False
    """The session takes a ticket (BRK-F1), so that brokers need not remember it for ever once it has ended."""
    consumes_at_once: bool = True
    """A delivery counts as taken by the application at once; otherwise when the machine is told `consumed`."""


def ns(milliseconds: float) -> int:
    return round(milliseconds * 1_000_000)
