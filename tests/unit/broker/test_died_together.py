"""A client that dies together with its broker: for how long the others wait, as `docs/guarantees.md` says."""

from __future__ import annotations

import pytest

from ordercast.scenario.load import parse_scenario
from ordercast.trace.arrow_schema import EVENT_SCHEMA
from tests.support.pubsub_lab import run_pubsub

KIND, TIME = map(EVENT_SCHEMA.names.index, ("kind", "time_ns"))
AT_MS, TIMEOUT_MS = 3000.0, 4000.0


@pytest.mark.parametrize(
    ("partitions", "broker_dies", "waits"),
    [("excluded", True, True), ("excluded", False, False), ("primary", True, True)],
)
def test_totals_wait_for_member_timeout_only_where_nobody_saw_the_connection_end(
    partitions: str, *, broker_dies: bool, waits: bool
) -> None:
    died = ["bob", "b1"] if broker_dies else ["bob"]
    found = run_pubsub(
        parse_scenario({
            "name": "together", "protocol": "broker", "duration_ms": 6000, "drain_ms": 60_000,
            "options": {"partitions": partitions, "member_timeout_ms": TIMEOUT_MS, "absent_member": "wait"},
            "overlay": {
                "kind": "broker-tree", "parents": {"b1": "b0", "b2": "b0"},
                "clients": {"ann": {"edge": "b2", "topics": ["t"]}, "bob": {"edge": "b1", "topics": ["t"]}},
            },
            "workload": [{
                "kind": "schedule",
                "steps": [{"node": "ann", "at_ms": AT_MS + 500, "topic": "t", "guarantee": "total"}],
            }],
            "fault": [{"kind": "crash", "node": node, "at_ms": AT_MS} for node in died],
        })
    )  # fmt: skip
    assert found.problems == []
    (delivered_ns,) = (row[TIME] for row in found.rows if row[KIND] == "deliver")
    waited_ms = delivered_ns / 1e6 - AT_MS
    assert waited_ms > TIMEOUT_MS if waits else waited_ms < 1000
