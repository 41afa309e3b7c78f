"""Every metric against a trace whose answers a person can work out."""

from __future__ import annotations

import functools
import json
import math
import random
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ordercast.trace.schema import EVENTS
from ordercast.trace.store import TraceError
from ordercast.verify.metrics import local
from ordercast.verify.metrics.compose import BUCKETS
from ordercast.verify.metrics.values import QUANTILES, RunMetrics
from ordercast.verify.spark import metrics as on_spark
from tests.spark.traces import Trace, answered_question

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Measure = Callable[[Sequence[Path]], list[RunMetrics]]

near = pytest.approx


@pytest.fixture(
    scope="module", params=["here", *(pytest.param(name, marks=pytest.mark.spark) for name in ("tasks", "rows"))]
)
def measure(request: pytest.FixtureRequest) -> Measure:
    """In this process, on Spark as tasks, and where the rows lie: every promise about metrics is one of all three."""
    if request.param == "here":
        return local.measure
    spark = request.getfixturevalue("spark")
    return functools.partial(on_spark.measure, spark, distributed_from=None if request.param == "tasks" else 1)


@pytest.fixture(scope="module")
def question(measure: Measure, tmp_path_factory: pytest.TempPathFactory) -> RunMetrics:
    path = answered_question().write(tmp_path_factory.mktemp("runs") / "question", nodes=["ann", "bob", "cho", "dan"])
    return measure([path])[0]


def test_throughput_is_over_the_time_from_first_publication_to_last_delivery(question: RunMetrics) -> None:
    assert (question.published, question.delivered) == (2, 6)
    assert question.duration_s == near(0.6)
    assert question.active_s == near(0.12)
    assert question.deliveries_per_s == near(50)
    assert question.messages_per_s == near(2 / 0.12)


def test_latency_is_told_per_guarantee_and_over_all(question: RunMetrics) -> None:
    assert question.latency_ms is not None
    fifo, causal, overall = (question.latency_ms[name] for name in ("fifo", "causal", "all"))

    assert list(question.latency_ms) == ["causal", "fifo", "all"]
    assert (fifo.count, fifo.mean, fifo.p50, fifo.p90, fifo.max) == (3, near(20), near(10), near(50), near(50))
    assert (causal.count, causal.mean, causal.p50, causal.p99) == (3, near(10), near(10), near(20))
    assert (overall.count, overall.mean, overall.p50, overall.p999) == (6, near(15), near(10), near(50))


def test_header_bytes_are_per_message_copy_and_control_packets_stand_apart(question: RunMetrics) -> None:
    headers = question.header_bytes
    assert headers is not None
    assert (headers.count, headers.mean, headers.p50, headers.p99, headers.max) == (4, 25, 20, 40, 40)
    assert question.header_bytes_by_packet["Ack"].mean == 8
    assert (question.header_total_bytes, question.payload_total_bytes) == (108, 24)


def test_copies_per_delivery_leave_control_packets_out(question: RunMetrics) -> None:
    assert (question.message_copies_sent, question.control_packets_sent, question.drops) == (4, 1, 1)
    assert question.packets_sent == 5
    assert question.copies_per_delivery == near(4 / 6)


def test_hold_back_runs_from_first_receipt_and_ignores_a_late_echo_to_the_publisher(question: RunMetrics) -> None:
    assert question.hold_back_ms is not None
    assert question.hold_back_ms.count == 4
    assert question.hold_back_ms.max == near(30)
    assert question.held_share == near(1 / 4)


def test_repair_runs_from_the_first_start_to_the_end_and_detection_from_the_crash(question: RunMetrics) -> None:
    assert question.repair_ms is not None
    assert question.detection_ms is not None
    assert question.repair_ms.curve[0] == near(20)
    assert (question.repair_ms.count, question.repair_ms.max) == (2, near(40))
    assert (question.detection_ms.count, question.detection_ms.max) == (1, near(50))


def test_a_node_that_delivered_nothing_is_still_counted(question: RunMetrics) -> None:
    assert question.nodes == 4
    assert question.deliveries_by_node == {"ann": 2, "bob": 2, "cho": 2, "dan": 0}


def test_timeline_has_every_slice_and_marks_the_faults(question: RunMetrics) -> None:
    assert question.timeline is not None
    busy = {
        round(step.start_s, 3): (step.deliveries, step.p99_latency_ms) for step in question.timeline if step.deliveries
    }

    assert len(question.timeline) == BUCKETS
    assert busy == {
        0.0: (1, near(0)),
        0.01: (1, near(10)),
        0.05: (1, near(50)),
        0.1: (1, near(0)),
        0.11: (1, near(10)),
        0.12: (1, near(20)),
    }
    assert [(mark.kind, mark.node) for mark in question.marks][:3] == [
        ("crash", "cho"),
        ("suspect", "bob"),
        ("repair_start", "bob"),
    ]
    assert question.marks[0].time_s == near(0.2)


def test_metrics_survive_the_journey_through_json(question: RunMetrics) -> None:
    assert question.missing == {}
    assert msgspec.json.decode(msgspec.json.encode(question), type=RunMetrics) == question


def test_runs_of_the_same_id_are_measured_apart_and_in_the_order_given(measure: Measure, tmp_path: Path) -> None:
    short = Trace("same").add(0, "ann", "publish", "m", guarantee="fifo").add(5, "ann", "deliver", "m")
    long = (
        Trace("same")
        .add(0, "ann", "publish", "m", guarantee="fifo")
        .add(9, "bob", "deliver", "m")
        .add(9, "bob", "crash")
    )
    awkward = tmp_path / "ä b[1] %20#{x}"

    first, second, again = measure([long.write(awkward), short.write(tmp_path / "short"), awkward])

    assert [metrics.latency_ms["fifo"].max for metrics in (first, second) if metrics.latency_ms] == [near(9), near(5)]
    assert first == again
    assert second.missing["repair_ms"] == "the trace has no finished repair"
    assert second.missing["hold_back_ms"] == "the trace has no receive rows that tell"


def test_without_a_common_clock_only_what_one_node_can_tell_is_told(measure: Measure, tmp_path: Path) -> None:
    metrics = measure([answered_question().write(tmp_path / "run", clock="local")])[0]

    assert metrics.latency_ms is None
    assert metrics.duration_s is None
    assert metrics.timeline is None
    assert metrics.missing["latency_ms"].startswith("the nodes' clocks cannot be compared")
    assert metrics.hold_back_ms is not None
    assert metrics.repair_ms is not None


def test_application_only_runs_take_packet_counts_from_the_manifest(measure: Measure, tmp_path: Path) -> None:
    trace = Trace().add(0, "ann", "publish", "m", guarantee="fifo").add(5, "bob", "deliver", "m")

    metrics = measure([trace.write(tmp_path / "run", records="app", totals={"sends": 10, "drops": 1})])[0]

    assert (metrics.packets_sent, metrics.drops) == (10, 1)
    assert metrics.header_bytes is None
    assert metrics.missing["header_bytes"] == "the run recorded the application's events only"
    assert "packets_sent" not in metrics.missing


def test_an_empty_run_has_no_metrics_but_reasons(measure: Measure, tmp_path: Path) -> None:
    metrics = measure([Trace().write(tmp_path / "run")])[0]

    assert (metrics.published, metrics.delivered, metrics.latency_ms) == (0, 0, None)
    assert metrics.missing["latency_ms"] == "the trace is empty"


def test_a_directory_of_runs_is_measured_run_by_run(measure: Measure, tmp_path: Path) -> None:
    for name in ("b", "a"):
        Trace(name).add(0, "ann", "publish", "m").write(tmp_path / name)

    assert [metrics.run for metrics in measure([tmp_path])] == ["a", "b"]


def test_a_foreign_file_of_two_runs_is_two_runs(measure: Measure, tmp_path: Path) -> None:
    path = tmp_path / "two.csv"
    path.write_text("run,node,seq,kind,msg,topic\nx,ann,0,publish,m,t\ny,ann,0,publish,m,t\ny,ann,1,deliver,m,t\n")

    assert [(metrics.run, metrics.delivered) for metrics in measure([path])] == [("x", 0), ("y", 1)]


def test_distributions_agree_with_a_naive_count_over_a_random_trace(measure: Measure, tmp_path: Path) -> None:
    """Nearest rank: the smallest value that at least that share of all values do not exceed."""
    draw = random.Random(11)
    trace, latencies, holds = Trace(), [], []
    for number in range(400):
        trace.add(number, "ann", "publish", f"m{number}", guarantee="causal")
        for node in ("bob", "cho", "dan"):
            travel, hold = draw.randint(1, 500), draw.choice([0, 0, draw.randint(1, 90)])
            trace.add(number + travel, node, "receive", f"m{number}", peer="ann")
            trace.add(number + travel + hold, node, "deliver", f"m{number}")
            latencies.append(travel + hold)
            holds.append(hold)

    metrics = measure([trace.write(tmp_path / "run")])[0]

    def ranked(values: list[int], share: float) -> float:
        return near(sorted(values)[max(math.ceil(share * len(values)), 1) - 1])

    assert metrics.latency_ms is not None
    for spread, values in ((metrics.latency_ms["causal"], latencies), (metrics.hold_back_ms, holds)):
        assert spread is not None
        assert (spread.count, spread.mean) == (1200, near(sum(values) / 1200))
        assert list(spread.curve) == [ranked(values, share) for share in QUANTILES]
    assert metrics.held_share == near(sum(hold > 0 for hold in holds) / 1200)
    assert metrics.timeline is not None
    assert sum(step.deliveries for step in metrics.timeline) == 1200


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_foreign_traces_without_time_say_so(measure: Measure, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"foreign.{suffix}"
    rows = [
        {"node": "ann", "seq": 0, "kind": "publish", "msg": "m", "topic": "t", "colour": "red"},
        {"node": "bob", "seq": 0, "kind": "deliver", "msg": "m", "topic": None, "colour": None},
    ]
    match suffix:
        case "csv":
            path.write_text("node,seq,kind,msg,topic,colour,keys\nann,0,publish,m,t,red,k\nbob,0,deliver,m,,,\n")
        case "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        case _:
            pq.write_table(pa.Table.from_pylist(rows), path)

    metrics = measure([path])[0]

    assert (metrics.run, metrics.published, metrics.delivered) == ("foreign", 1, 1)
    assert metrics.missing["latency_ms"] == "the trace has no time_ns"


def test_a_crash_abandons_the_repair_that_was_under_way(measure: Measure, tmp_path: Path) -> None:
    trace = Trace().add(0, "ann", "repair_start", peer="bob").add(10, "ann", "crash").add(20, "ann", "recover")
    trace.add(100, "ann", "repair_start", peer="bob").add(103, "ann", "repair_end", peer="bob")
    trace.add(30, "bob", "suspect", peer="ann")

    metrics = measure([trace.write(tmp_path / "run")])[0]

    assert metrics.repair_ms is not None
    assert (metrics.repair_ms.count, metrics.repair_ms.max) == (1, near(3))
    assert metrics.detection_ms is None, "the suspicion came after the recovery"


def test_bad_traces_are_named_in_one_line(measure: Measure, tmp_path: Path) -> None:
    run = answered_question().write(tmp_path / "run")
    part = run / EVENTS / "part-00000.parquet"
    whole = part.read_bytes()
    no_kind = tmp_path / "nokind.csv"
    no_kind.write_text("node,seq,msg,topic\nann,0,m,t\n")
    no_json = tmp_path / "broken.jsonl"
    no_json.write_text('{"node": "ann", "seq": 0, "kind": "publish", "msg": "m"}\n{"node": \n')

    def complaint(path: Path) -> str:
        with pytest.raises(TraceError) as caught:
            measure([path])
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert complaint(tmp_path / "absent") == f"{tmp_path / 'absent'}: no such file or directory"
    assert complaint(no_kind) == f"{no_kind}: no column kind"
    assert complaint(no_json).startswith(f"{no_json}:2: ")
    part.write_bytes(whole[: len(whole) // 2])
    assert complaint(run).startswith(f"{part}: not a readable Parquet file")
    part.write_bytes(whole[:4] + b"\xff" * 400 + whole[404:])
    assert complaint(run).startswith(f"{part}: unreadable")
    part.unlink()
    assert complaint(run) == f"{run / EVENTS}: no *.parquet file"
