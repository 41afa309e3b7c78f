"""Recordings of running brokers of others (examples/record_nats.py, record_mqtt.py, record_kafka.py): what the judge
says of each.

NATS 2.9.10 and mosquitto 2.0.11, one server each; the brokers for tests of librdkafka 2.16.0, three, with one partition
and with four. What they say is in docs/other-traces.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ordercast.verify.judge import judge_trace
from ordercast.verify.load import load

RECORDED = Path(__file__).parent / "recorded"


@pytest.mark.parametrize(
    ("name", "failed"),
    [
        ("nats", {"total"}),
        ("mqtt-qos1", set[str]()),
        ("mqtt-qos0-cut", {"agreement"}),
        ("mqtt-qos1-cut", {"integrity"}),
        ("kafka-1", set[str]()),
        ("kafka-4", {"causal", "optimistic-causal", "total"}),
    ],
)
def test_what_others_keep_is_what_the_judge_says(name: str, failed: set[str]) -> None:
    (trace,) = load(RECORDED / f"{name}.jsonl.gz")
    verdict = judge_trace(trace, complete=True)
    assert {result.check for result in verdict.results if result.verdict == "fail"} == failed
    assert {result.check for result in verdict.results} >= {"integrity", "agreement", "fifo", "causal", "total"}
