"""Base of protocols with a fixed group: a node that restarts without its state is refused."""

from __future__ import annotations

from ordercast.core.errors import UsageError
from ordercast.core.machine import Place


def refuse_newcomer(protocol: str, place: Place) -> None:
    """Refuse a node that restarts without state: it must not pass for its former self."""
    if place.incarnation:
        raise UsageError(f"{place.node}: {protocol} has a fixed group and cannot take back a node that lost its state")
