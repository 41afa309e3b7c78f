"""Recordings of running brokers of others (examples/record_*.py): what the judge says of each.

NATS 2.9.10 and mosquitto 2.0.11, one server each; the brokers for tests of librdkafka 2.16.0, three, with one partition
and with four; four nodes of py-libp2p 0.8.1; three processes of Jepsen's kafka workload on JetStream (nats-server
2.9.10). What they say is in docs/other-traces.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ordercast.verify.importers.choose import import_trace
from ordercast.verify.judge import judge_trace
from ordercast.verify.load import load
from ordercast.verify.verdict import MADE, MISSING

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


@pytest.mark.parametrize(
    ("name", "made", "failed"),
    [
        ("libp2p-gossip", 80, {"one-order"}),
        ("libp2p-gossip-fast", 139, {"agreement", "causal", "one-order"}),
    ],
)
def test_gossip_of_libp2p_loses_what_comes_too_fast_and_keeps_no_common_order(
    name: str, made: int, failed: set[str]
) -> None:
    """By examples/record_libp2p.py, with pauses of 1 s and of 0.05 s: beyond a rate, peers drop messages."""
    trace = import_trace("libp2p", RECORDED / f"{name}.json.gz")
    verdict = judge_trace(trace, complete=True, checks=["integrity", "agreement", "fifo", "causal", "one-order"])
    assert {result.check for result in verdict.results if result.verdict == "fail"} == failed
    assert verdict.facts[MADE] == made


@pytest.mark.parametrize(("name", "made", "missing"), [("jetstream", 120, 0), ("jetstream-cut", 222, 90)])
def test_jetstream_keeps_one_order_for_each_key_and_none_across_keys(name: str, made: int, missing: int) -> None:
    """By examples/record_jepsen.py, without and with `--cut`: then processes go away before they have polled all."""
    trace = import_trace("jepsen-kafka", RECORDED / f"{name}.edn.gz")
    verdict = judge_trace(trace, checks=["integrity", "fifo", "causal", "total"])
    assert {result.check for result in verdict.results if result.verdict == "fail"} == {"fifo", "causal"}
    assert {result.check for result in verdict.results if result.verdict == "pass"} == {"integrity", "total"}
    assert (verdict.facts[MADE], verdict.facts[MISSING]) == (made, missing)
