"""Costs are counted from what the trace says, by hand here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ordercast.experiments.kit.trace_costs import trace_costs
from ordercast.trace.store import Manifest
from ordercast.trace.writer import RunWriter

MS = 1_000_000


def a_run(out: Path, *rows: dict[str, Any]) -> Path:
    seqs: dict[str, int] = {}
    writer = RunWriter(out)
    for row in rows:
        seq = seqs.get(row["node"], 0)
        seqs[row["node"]] = seq + 1
        names = ("topic", "keys", "guarantee", "dst", "peer", "payload_bytes", "header_bytes", "info")
        rest = (row.get(name) for name in names)
        writer.write([("r", row["node"], seq, row["kind"], row["ms"] * MS, row.get("msg"), *rest)])
    return writer.finish(Manifest(run_id="r", protocol="p", guarantee="causal"))


def happened(kind: str, node: str, ms: float, msg: str | None = "m", **rest: int) -> dict[str, Any]:
    return {"kind": kind, "node": node, "ms": int(ms), "msg": msg, **rest}


def test_costs_are_those_of_the_copies_and_of_the_wait_after_the_first_receipt(tmp_path: Path) -> None:
    run = a_run(
        tmp_path / "run",
        happened("publish", "a", 0),
        happened("deliver", "a", 0),
        happened("send", "a", 0, payload_bytes=60, header_bytes=20),
        happened("send", "a", 0, payload_bytes=60, header_bytes=40),
        happened("send", "b", 0, msg=None, payload_bytes=0, header_bytes=999),
        happened("receive", "b", 10),
        happened("receive", "b", 12),
        happened("deliver", "b", 16),
        happened("receive", "c", 20),
        happened("deliver", "c", 20),
    )
    costs = trace_costs(run)
    assert (costs["published"], costs["deliveries"], costs["copies_sent"]) == (1, 3, 2)
    assert (costs["payload_bytes"], costs["header_bytes_mean"], costs["header_bytes_max"]) == (60, 30, 40)
    assert (costs["held_share"], costs["hold_ms_mean"], costs["hold_ms_max"]) == (0.5, 3, 6)
    assert costs["hold_ms_when_held"] == 6
    assert (costs["latency_ms_p50"], costs["latency_ms_min"]) == pytest.approx((18, 16))


def test_a_publication_that_comes_back_to_its_publisher_was_not_held_back(tmp_path: Path) -> None:
    run = a_run(
        tmp_path / "run",
        happened("publish", "a", 0),
        happened("receive", "a", 5),
        happened("deliver", "a", 9),
        happened("receive", "b", 1),
        happened("deliver", "b", 1),
    )
    costs = trace_costs(run)
    assert (costs["held_share"], costs["hold_ms_max"]) == (0, 0)


def test_what_a_trace_cannot_say_is_missing_and_not_zero(tmp_path: Path) -> None:
    costs = trace_costs(a_run(tmp_path / "run", happened("publish", "a", 0)))
    assert costs["published"] == 1
    assert costs["header_bytes_mean"] is costs["held_share"] is costs["hold_ms_when_held"] is None
    assert costs["latency_ms_p99"] is None
