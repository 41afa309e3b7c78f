"""Which managers look after an entry. docs/protocols/cluster.md, CLU-6."""

from __future__ import annotations

from ordercast.core.chance import salt


def group_of(cluster: str, entry: int, managers: tuple[str, ...], tolerated: int) -> tuple[str, ...]:
    """2k + 1 managers that follow each other on the ring."""
    start = salt(0, "ticket", cluster, entry) % len(managers)
    return tuple(managers[(start + i) % len(managers)] for i in range(2 * tolerated + 1))
