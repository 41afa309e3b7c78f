"""Verdicts and metrics with plausible numbers, for tests of how they are told."""

from __future__ import annotations

from typing import Any

from ordercast.trace.store import Manifest
from ordercast.verify.metrics.values import QUANTILES, Distribution, RunMetrics, Slice, TimelineMark
from ordercast.verify.verdict import FAIL, NOT_APPLICABLE, PASS, UNKNOWN, CheckResult, Verdict, Witness


def spread(scale: float, count: int = 100) -> Distribution:
    """Values evenly from 0 to `scale`."""
    curve = tuple(scale * quantile for quantile in QUANTILES)
    at = dict(zip(QUANTILES, curve, strict=True))
    return Distribution(count, scale / 2, at[0.5], at[0.9], at[0.99], at[0.999], at[1.0], curve)


def full_metrics(run: str = "calm-7", **changes: Any) -> RunMetrics:
    """A run that has every metric."""
    values: dict[str, Any] = {
        "run": run,
        "path": f"runs/{run}",
        "protocol": "vector",
        "guarantee": "mixed",
        "nodes": 3,
        "published": 1200,
        "delivered": 3600,
        "deliveries_by_node": {"ann": 1200, "bob": 1200, "cho": 1200},
        "duration_s": 3.0,
        "active_s": 2.5,
        "deliveries_per_s": 1440.0,
        "messages_per_s": 480.0,
        "latency_ms": {"causal": spread(40), "fifo": spread(20), "all": spread(41)},
        "header_bytes": spread(64),
        "header_bytes_by_packet": {"Ack": spread(12)},
        "header_total_bytes": 9000,
        "payload_total_bytes": 12000,
        "packets_sent": 5000,
        "message_copies_sent": 4000,
        "control_packets_sent": 1000,
        "copies_per_delivery": 4000 / 3600,
        "drops": 17,
        "hold_back_ms": spread(8),
        "held_share": 0.25,
        "repair_ms": spread(150, 2),
        "detection_ms": spread(90, 1),
        "timeline": [Slice(step * 0.05, 60, None if step == 9 else 20.0) for step in range(60)],
        "marks": [
            TimelineMark(1.0, "crash", "cho", None),
            TimelineMark(1.1, "suspect", "bob", "cho"),
            TimelineMark(1.1, "repair_start", "bob", "cho"),
            TimelineMark(1.2, "repair_end", "bob", "cho"),
            TimelineMark(2.0, "recover", "cho", None),
        ],
    }
    return RunMetrics(**{**values, **changes})


def bare_metrics(run: str = "foreign") -> RunMetrics:
    """A trace without times or packets."""
    why = {"latency_ms": "the trace has no time_ns", "timeline": "the trace has no time_ns", "drops": "no rows"}
    return RunMetrics(
        run=run,
        path=f"{run}.csv",
        protocol="unstated",
        guarantee="unstated",
        nodes=2,
        published=1,
        delivered=1,
        deliveries_by_node={},
        missing=why,
    )


def verdict(run: str = "calm-7", causal: str = PASS, **changes: Any) -> Verdict:
    story = ["ann published ann#4 (seq 17)", "bob delivered ann#4, then published bob#9", "cho delivered bob#9 first"]
    broken = causal == FAIL
    results = [
        CheckResult("integrity", PASS, 3600, 0, claimed=True),
        CheckResult(
            "causal",
            causal,
            3600,
            2 if broken else 0,
            claimed=True,
            reason="the drain at the end is missing" if causal == UNKNOWN else "",
            witnesses=[Witness("causal", "cho", ["ann#4", "bob#9"], story)] if broken else [],
        ),
        CheckResult("total", NOT_APPLICABLE, 0, 0, claimed=False, reason="no message asks for it"),
    ]
    values: dict[str, Any] = {
        "run": run,
        "path": f"runs/{run}",
        "protocol": "vector",
        "guarantee": "mixed",
        "scope": "global",
        "results": results,
        "facts": {"events": 9000},
    }
    return Verdict(**{**values, **changes})


def manifest() -> Manifest:
    return Manifest(
        run_id="calm-7",
        protocol="vector",
        guarantee="mixed",
        seed=7,
        scenario="calm",
        nodes=["ann", "bob", "cho"],
        version="0.1.0",
        drained=True,
        faults={"crash": 1},
    )
