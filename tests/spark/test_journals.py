"""A directory of journals is judged and measured on Spark like any run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ordercast.core.ids import Origin, Topic
from ordercast.core.messages import Guarantee
from ordercast.pubsub.publications import Publication
from ordercast.trace.journal import Journal, journal_path
from ordercast.verify.judge import judge_path
from ordercast.verify.spark.jobs import verify_runs
from ordercast.verify.spark.metrics import measure

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

MS = 1_000_000


def write_run(run: Path) -> Path:
    """b0 dies; b1 becomes root; ann fails over; everything ann published reaches bob."""
    (run / "journals").mkdir(parents=True)
    made = {
        name: Journal(journal_path(run / "journals", name, 0), packets=False) for name in ("b0", "b1", "ann", "bob")
    }
    places = {"b0": {"parent": ""}, "b1": {"parent": "b0"}}
    for at, (name, journal) in enumerate(made.items()):
        journal.begin(at * MS, life=0, info=places.get(name))
    for name in ("ann", "bob"):
        made[name].event("subscribe", 10 * MS, {"topic": "t", "broker": "b0" if name == "ann" else "b1"})
    sent = [Publication(Origin("ann"), n, Topic("t"), b"x", Guarantee(n), ("k",)) for n in (1, 2, 3)]
    for publication in sent:
        made["ann"].publish(20 * MS, publication)
    made["b1"].event("repair_start", 50 * MS, {"lost": "b0"})
    made["b1"].event("repair_end", 70 * MS, {"parent": "", "rounds": "1", "role": "root"})
    made["ann"].event("repair_start", 52 * MS, {"lost": "b0"})
    made["ann"].event("repair_end", 57 * MS, {"broker": "b1"})
    for name in ("ann", "bob"):
        made[name].deliver_many(60 * MS, sent)
        made[name].event("repair_end", 90 * MS, {"topic": "t", "digest": "d"})
    for name, journal in made.items():
        if name != "b0":
            journal.end(100 * MS)
        journal.close()
    return run


def test_it_is_judged_as_in_one_process(spark: SparkSession, tmp_path: Path) -> None:
    run = write_run(tmp_path / "night")
    (verdict,), _ = verify_runs(spark, [run])
    assert [verdict] == judge_path(run)
    assert verdict.exit_code() == 0
    (claimed,), _ = verify_runs(spark, [run], checks=["total-topic", "real-time"], order_scope="key")
    assert [found.verdict for found in claimed.results] == ["pass", "pass"]


def test_it_is_measured_with_its_tree_its_repairs_and_its_replicas(spark: SparkSession, tmp_path: Path) -> None:
    (metrics,) = measure(spark, [write_run(tmp_path / "night")])
    assert (metrics.run, metrics.published, metrics.delivered) == ("night", 3, 6)
    assert metrics.latency_ms is not None
    assert set(metrics.latency_ms) == {"fifo", "causal", "total", "all"}
    assert metrics.repair_ms is not None
    assert (metrics.repair_ms.count, metrics.repair_ms.max) == (1, 20)  # The failover is none.
    assert metrics.failover_ms is not None
    assert (metrics.failover_ms.count, metrics.failover_ms.max) == (1, 5)
    assert metrics.topology is not None
    assert (metrics.topology.before, metrics.topology.after) == ({"b0": "", "b1": "b0"}, {"b1": ""})
    assert metrics.topology.clients_after == {"ann": "b1", "bob": "b1"}
    assert [(digest.node, digest.digest) for digest in metrics.digests] == [("ann", "d"), ("bob", "d")]
