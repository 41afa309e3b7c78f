"""Latencies between processes, by region and by pair."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ordercast.core.chance import salt, unit
from ordercast.scenario.tables import Latency

LatencyOf = Callable[[str, str], Latency]
"""The one-way latency from a process to another, by their names: a constant or a distribution to draw from."""


def same_everywhere(latency: Latency) -> LatencyOf:
    return lambda _source, _target: latency


def drawn_pairs(seed: int, low_ms: float, high_ms: float) -> LatencyOf:
    """Every pair has a constant of its own, the same both ways, that belongs to the two names."""

    def of(source: str, target: str) -> Latency:
        first, second = sorted((source, target))
        return low_ms + (high_ms - low_ms) * unit(salt(seed, "latency", first, second))

    return of


def both_ways(table: Mapping[tuple[str, str], Latency]) -> dict[tuple[str, str], Latency]:
    """Every entry for the way back, too, unless that has one of its own."""
    return {(other, one): latency for (one, other), latency in table.items()} | dict(table)


def by_region(
    regions: Mapping[str, str],
    between: Mapping[tuple[str, str], Latency],
    pairs: Mapping[tuple[str, str], Latency] | None = None,
    default: Latency = 1.0,
) -> LatencyOf:
    """Pairs of processes first, then pairs of their regions; then the default. Tables say each way of its own."""

    def of(source: str, target: str) -> Latency:
        for table, one, other in (
            (pairs or {}, source, target),
            (between, regions.get(source, ""), regions.get(target, "")),
        ):
            if (one, other) in table:
                return table[one, other]
        return default

    return of
