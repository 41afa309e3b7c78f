"""Parameters that each study varies, by scale."""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.experiments.kit.study import Row
from ordercast.experiments.preventive.setting import point

SLOW_MS = 500.0
"""Latency where it is not what is varied and time matters."""


def _by_size(sizes: Sequence[int], seeds: int, few: int) -> list[Row]:
    """Large networks say a lot in one run: fewer seeds do from 10,000 processes on."""
    return [
        point(nodes=nodes, messages=20 if nodes < 10_000 else few, seed=seed)
        for nodes in sizes
        for seed in range(seeds if nodes < 10_000 else 1)
    ]


def _by_origins(nodes: int, origins: Sequence[int], seeds: int) -> list[Row]:
    """With vector clocks, whose cost is the number of those who ever published."""
    return [
        point(protocol=protocol, nodes=nodes, origins=some, messages=4 * some, rate_per_s=4.0, seed=seed)
        for protocol in ("preventive", "vector-overlay")
        for some in origins
        for seed in range(seeds)
    ]


def _by_latency(sizes: Sequence[int], latencies: Sequence[float], seeds: int, few: int) -> list[Row]:
    return [
        point(nodes=nodes, latency_ms=latency, messages=20 if nodes < 10_000 else few, seed=seed)
        for nodes in sizes
        for latency in latencies
        for seed in range(seeds if nodes < 10_000 else 1)
    ]


def _by_movement(nodes: int, periods: Sequence[float], churns: Sequence[float], seeds: int) -> list[Row]:
    """Periods, churn, links that differ, no promises to mediators, small buffers, and memories of links."""
    moving: Row = {"nodes": nodes, "latency_ms": SLOW_MS, "period_s": 10.0}
    crowded: Row = {**moving, "messages": 200, "rate_per_s": 10.0}
    differing: Row = {**moving, "nodes": 50, "messages": 200, "rate_per_s": 20.0, "links_differ": True}
    coming: Row = {"nodes": nodes, "latency_ms": 100.0, "period_s": 20.0, "messages": 60}
    talking: Row = {**coming, "messages": 200, "rate_per_s": 10.0}
    rows: list[Row] = []
    for protocol in ("preventive", "flood-overlay"):
        rows += [{**moving, "period_s": period, "protocol": protocol} for period in periods]
        rows.append({**differing, "protocol": protocol})
    rows += [{**coming, "churn_per_minute": churn} for churn in churns]
    rows += [{**crowded, "max_buffer": most} for most in (2, 8, 64)]
    rows.append({**moving, "hold_ms": 0.001})
    rows += [{**talking, "memory": memory} for memory in ("vector", "links")]
    rows += [{**talking, "period_s": 0.0, "memory": memory} for memory in ("vector", "counting")]
    return [point(**row, seed=seed) for row in rows for seed in range(seeds)]


SIZES = {
    "quick": [*_by_size((100, 300, 1_000), seeds=3, few=6), *_by_origins(100, (5, 10, 20, 40), seeds=2)],
    "paper": [
        *_by_size((100, 300, 1_000, 3_000, 10_000), seeds=5, few=12),
        *_by_origins(200, (5, 10, 20, 40, 80), seeds=5),
        point(nodes=100_000, messages=4),
    ],
}
LATENCIES = {
    "quick": _by_latency((200,), (50.0, 500.0, 2_000.0, 5_000.0), seeds=3, few=6),
    "paper": _by_latency((100, 1_000, 10_000), (50.0, 500.0, 2_000.0, 5_000.0), seeds=5, few=12),
}
MOVEMENTS = {
    "quick": _by_movement(100, (0.0, 60.0, 20.0, 10.0, 5.0), (0.0, 1.0, 5.0), seeds=2),
    "paper": _by_movement(500, (0.0, 120.0, 60.0, 20.0, 10.0, 5.0), (0.0, 0.5, 1.0, 5.0), seeds=5),
}
