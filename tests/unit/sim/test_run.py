"""One run, from scenario to manifest."""

from __future__ import annotations

import gc
from pathlib import Path

import msgspec
import pytest

from ordercast.core.errors import UsageError
from ordercast.core.machine import Outbox
from ordercast.core.messages import Message
from ordercast.sim import simulate
from ordercast.trace.store import TraceError, read_manifest
from tests.support.plain_flood import PLAIN_FLOOD, PlainFlood, protocol_of
from tests.support.sim_lab import Lab, publish, scenario, schedule, steady

LOSSY_TREE = {"overlay": {"kind": "tree", "nodes": 15}, "link": {"loss": 0.1, "duplicate": 0.1}}


def test_a_flood_on_a_tree_reaches_everyone_in_as_many_hops_as_there_are_links() -> None:
    outcome = simulate(scenario(overlay={"kind": "tree", "nodes": 31}, workload=[steady("n3", 10)]), PLAIN_FLOOD)
    assert (outcome.published, outcome.delivered, outcome.hops) == (10, 310, 300)
    assert outcome.manifest.totals == {"published": 10, "deliveries": 310, "sends": 300, "hops": 300, "drops": 0}


def test_every_packet_sent_arrives_or_is_dropped() -> None:
    lab = Lab(scenario(**LOSSY_TREE, workload=[steady("n0", 200)]))
    doubled = lab.manifest.faults["duplicate"]
    assert len(lab.of("send")) + doubled == len(lab.of("receive")) + len(lab.of("drop"))
    totals = lab.manifest.totals
    assert (totals["sends"], totals["hops"], totals["drops"]) == tuple(
        len(lab.of(k)) for k in ("send", "receive", "drop")
    )


def test_tracing_changes_nothing_about_the_run(tmp_path: Path) -> None:
    asked = scenario(**LOSSY_TREE, workload=[steady("n0", 50)])
    untraced, traced = simulate(asked, PLAIN_FLOOD), simulate(asked, PLAIN_FLOOD, out=tmp_path / "run")
    written = read_manifest(tmp_path / "run")
    assert list(written.crc32) == ["part-00000.parquet"]
    assert untraced.manifest == traced.manifest == msgspec.structs.replace(written, crc32={})
    assert untraced.virtual_ns == traced.virtual_ns


def test_recording_only_the_application_leaves_packets_out_and_counts_them() -> None:
    asked = scenario(**LOSSY_TREE, workload=[steady("n0", 50)], trace={"record": "app"})
    lab = Lab(asked)
    assert {row["kind"] for row in lab.rows} == {"publish", "deliver"}
    assert lab.manifest.records == "app"
    assert lab.manifest.totals["sends"] > 500


def test_the_manifest_says_what_was_run() -> None:
    manifest = Lab(
        scenario(groups={"kind": "explicit", "members": {"news": ["n1"]}}, workload=[schedule(publish("n0", 0))]),
        seed=4,
    ).manifest
    assert (manifest.run_id, manifest.protocol, manifest.scenario, manifest.seed) == (
        "lab-plain-flood-4",
        "plain-flood",
        "lab",
        4,
    )
    assert (manifest.nodes, manifest.groups) == (["n0", "n1"], {"news": ["n1"]})
    assert (manifest.drained, manifest.clock, manifest.records) == (True, "global", "all")


def test_the_seed_of_the_scenario_counts_unless_another_is_given() -> None:
    asked = scenario(seed=9)
    assert simulate(asked, PLAIN_FLOOD).manifest.seed == 9
    assert simulate(asked, PLAIN_FLOOD, seed=0).manifest.seed == 0


def test_each_node_numbers_its_events_from_zero_without_gaps() -> None:
    lab = Lab(scenario(**LOSSY_TREE, workload=[steady("n0", 20)], fault=[{"kind": "crash", "node": "n1", "at_ms": 9}]))
    for node in lab.manifest.nodes:
        assert [row["seq"] for row in lab.rows if row["node"] == node] == list(
            range(sum(r["node"] == node for r in lab.rows))
        )


def test_time_never_runs_backwards_at_a_node() -> None:
    lab = Lab(scenario(**LOSSY_TREE, workload=[steady("n0", 20)], node={"cpu": {"per_packet_us": 300}}))
    for node in lab.manifest.nodes:
        times = [row["time_ns"] for row in lab.rows if row["node"] == node]
        assert times == sorted(times)


def test_a_machine_that_fails_leaves_no_trace_behind(tmp_path: Path) -> None:
    class Broken(PlainFlood):
        def on_publish(self, message: Message, out: Outbox) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        simulate(scenario(), protocol_of(Broken), out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_no_run_is_refused_before_anything_is_simulated(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(TraceError, match="is not a run directory"):
        simulate(scenario(), PLAIN_FLOOD, out=tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_progress_goes_from_little_to_all_and_garbage_collection_is_left_as_found() -> None:
    before = gc.get_threshold()
    seen: list[float] = []
    simulate(scenario(), PLAIN_FLOOD, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert gc.get_threshold() == before


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"duration_ms": 0}, "duration_ms: 0.0 is not positive"),
        ({"drain_ms": -1}, "drain_ms: -1.0 is negative"),
        ({"detector": {"delay_ms": -1}}, "detector.delay_ms: -1.0 is negative"),
        ({"workload": []}, "workload: nobody publishes anything"),
        ({"options": {"fanout": 3}}, "unknown option of plain-flood 'fanout'"),
    ],
)
def test_an_impossible_run_is_named(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        simulate(scenario(**changes), PLAIN_FLOOD)
    assert str(caught.value).startswith(complaint)
