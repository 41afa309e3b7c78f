"""Scenarios in a line or two, and runs of them as rows that a test can look at."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq

from ordercast.core.registry import ProtocolInfo
from ordercast.scenario.load import parse_scenario
from ordercast.scenario.model import Scenario
from ordercast.sim import Simulation, simulate
from ordercast.trace.store import event_files
from tests.support.plain_flood import PLAIN_FLOOD

MS = 1_000_000
Row = dict[str, Any]


def scenario(**changes: Any) -> Scenario:
    """Two nodes on a line, 5 ms apart, one message at the very start, unless the test says otherwise."""
    raw = {"name": "lab", "overlay": {"kind": "line", "nodes": 2}, "workload": [schedule(publish("n0", 0))], **changes}
    return parse_scenario(raw)


def schedule(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "schedule", "steps": list(steps)}


def publish(node: str, at_ms: float | None = None, **more: Any) -> dict[str, Any]:
    return {"node": node, **({} if at_ms is None else {"at_ms": at_ms}), **more}


def steady(node: str, count: int, every_ms: float = 1.0, **more: Any) -> dict[str, Any]:
    """A schedule of `count` messages of one node."""
    return schedule(*(publish(node, i * every_ms, **more) for i in range(count)))


class Lab:
    """What one run left behind."""

    def __init__(self, asked: Scenario, protocol: ProtocolInfo = PLAIN_FLOOD, seed: int = 0) -> None:
        with TemporaryDirectory() as directory:
            out = Path(directory) / "run"
            self.outcome: Simulation = simulate(asked, protocol, seed=seed, out=out)
            self.rows: list[Row] = [row for file in event_files(out) for row in pq.read_table(file).to_pylist()]
        self.manifest = self.outcome.manifest

    def of(self, kind: str, node: str | None = None) -> list[Row]:
        return [row for row in self.rows if row["kind"] == kind and node in (None, row["node"])]

    def times_ms(self, kind: str, node: str | None = None) -> list[float]:
        return [row["time_ns"] / MS for row in self.of(kind, node)]

    def messages(self, kind: str, node: str | None = None) -> list[str]:
        return [row["msg"] for row in self.of(kind, node)]

    def travel_ms(self, sender: str, receiver: str) -> dict[str, float]:
        """For each message the time between its send and its receive on one link; the last copy counts."""
        left = {row["msg"]: row["time_ns"] for row in self.of("send", sender) if row["peer"] == receiver}
        came = {row["msg"]: row["time_ns"] for row in self.of("receive", receiver) if row["peer"] == sender}
        return {msg: (came[msg] - left[msg]) / MS for msg in came}
