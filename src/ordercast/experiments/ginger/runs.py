"""Simulates, watches, measures and judges one configuration; the bank's replicas apply what was delivered."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import cast

from ordercast.experiments.ginger.measures import bank_verdict, counts, judged, latencies
from ordercast.experiments.ginger.setting import AFTER_MS, BROKERS, CLIENTS, INTERVAL_MS, PROCESSES, fault_ms, scenario
from ordercast.experiments.ginger.structure import SeenTree, findings
from ordercast.experiments.ginger.watch import RepairWatch
from ordercast.experiments.kit.study import Row

_LOOK_BEFORE_MS = 1.0
_PROTOCOL = "broker"


def measure(parameters: Row) -> Row:
    """Latency, what the judge and the bank say, and the structural statements; or the run with real processes."""
    if parameters["runs"] == PROCESSES:
        from ordercast.experiments.ginger.processes import measure_processes

        return measure_processes(parameters)
    row, watch, checks = observe(parameters)
    operations = cast("int", parameters["operations"])
    seen = SeenTree(parameters, watch, round(fault_ms(operations) * 1e6), checks)
    return {**row, **findings(seen)}


def measure_latency(parameters: Row) -> Row:
    """Latency, and what the judge and the bank say."""
    return observe(parameters)[0]


def measure_repair(parameters: Row) -> Row:
    """Measures of how every broker and client found its place again, one column each."""
    row, watch, _ = observe(parameters)
    kept = ("published", "judged", "passed_checks", "failed_checks", "bank", "fault_to_rest_ms", "broke_degree")
    return {name: row[name] for name in kept} | _repairs(watch)


def observe(parameters: Row) -> tuple[Row, RepairWatch, dict[str, str]]:
    """One simulated run: its measurements, what was watched, and the verdict of each check."""
    from ordercast.sim.catalogue import SIMULATED
    from ordercast.sim.pubsub.run import build_world, live, manifest_of
    from ordercast.trace.recorder import Recorder
    from ordercast.trace.writer import RunWriter
    from ordercast.verify.load import load

    planned = scenario(parameters)
    crash_ms = fault_ms(cast("int", parameters["operations"]))
    with tempfile.TemporaryDirectory(prefix="ordercast-") as directory:
        run = Path(directory) / "run"
        recorder = Recorder(RunWriter(run), planned.name, packets=False)
        world = build_world(planned, SIMULATED[_PROTOCOL], planned.seed, recorder)
        watch = RepairWatch(world, round((crash_ms - _LOOK_BEFORE_MS) * 1e6))
        _, drained = live(world)
        manifest = manifest_of(world, planned.name, drained=drained)
        recorder.finish(manifest)
        (trace,) = load(run)
        window = round(crash_ms * 1e6), round((crash_ms + AFTER_MS) * 1e6)
        verdict_row, verdict = judged(trace)
        counted = manifest.totals
        row: Row = {
            **counts(trace.table),
            **latencies(trace.table, window),
            **verdict_row,
            "bank": bank_verdict(trace.table),
            "packets": counted["sends"],
            "held": sum(count for name, count in counted.items() if name.endswith(".publications_held")),
            "peak_log": watch.peak_log,
            "broke_degree": sum(count for name, count in counted.items() if name.endswith(".broke_degree")),
            "fault_to_rest_ms": _until_rest(watch, crash_ms),
            "rounds_most": max((repair.rounds or 0 for repair in watch.tree.repairs), default=0),
        }
        return row, watch, {result.check: result.verdict for result in verdict.results}


def _until_rest(watch: RepairWatch, crash_ms: float) -> float | None:
    """From the crash until every broker has its place and everything it missed, and every client its edge."""
    ends = [r.began_ns + (r.synchronised_ms or r.attached_ms or 0.0) * 1e6 for r in watch.tree.repairs]
    ends += [outage.lost_ns + (outage.ms or 0.0) * 1e6 for outage in watch.outages]
    ends = [end for end in ends if end >= crash_ms * 1e6]
    return max(ends) / 1e6 - crash_ms if ends else None


def _repairs(watch: RepairWatch) -> Row:
    row: Row = {}
    for broker in BROKERS[1:]:
        found = [repair for repair in watch.tree.repairs if repair.broker == broker]
        repair = found[0] if found else None
        row[f"{broker}_lost"] = repair.lost if repair else None
        row[f"{broker}_parent"] = repair.parent if repair else None
        row[f"{broker}_rounds"] = repair.rounds if repair else None
        row[f"{broker}_attached_ms"] = repair.attached_ms if repair else None
        row[f"{broker}_synchronised_ms"] = repair.synchronised_ms if repair else None
        row[f"{broker}_election_ms"] = repair.election_ms if repair else None
        row[f"{broker}_received"] = repair.received if repair else None
    for client in CLIENTS:
        outages = [outage for outage in watch.outages if outage.client == client]
        row[f"{client}_failover_ms"] = outages[0].ms if outages else None
    row["repairs"] = len(watch.tree.repairs)
    return row


def weigh(parameters: Row) -> float:
    """Publications, which decide how long a simulation takes; queues make it longer."""
    operations = cast("int", parameters["operations"])
    saturated = cast("int", parameters["keys"]) == 1 or parameters["order_scope"] == "session"
    return operations * INTERVAL_MS * (2.0 if saturated else 1.0)
