"""One run's metrics out of what was measured of it, with the reason for each that is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ordercast.verify.metrics import overlay
from ordercast.verify.metrics.links import link_graph_of
from ordercast.verify.metrics.values import ALL, QUANTILES, Distribution, RunMetrics, Slice, TimelineMark

if TYPE_CHECKING:
    from ordercast.trace.store import Manifest

Row = Mapping[str, Any]
"""Figures by name."""

BUCKETS = 60
TOLD = 20_000
"""Rows about places and repairs that are looked at, of one run."""
MARKS = 500
"""Fault events that a run's timeline carries at most."""
PACKET_CLASS = "packet"
"""Entry of `info` that names the kind of packet a `send` row is about."""
FAULT_KINDS = ("crash", "recover", "suspect", "repair_start", "repair_end")
PLACE_KINDS = (*FAULT_KINDS, "join", "leave", "subscribe", "link")
"""Rows that may tell of a process's place in the overlay."""

_MS = 1e-6
_S = 1e-9
_COMMON_TIME_METRICS = (
    "duration_s",
    "active_s",
    "deliveries_per_s",
    "messages_per_s",
    "latency_ms",
    "detection_ms",
    "timeline",
)
_PACKET_METRICS = (
    "header_bytes",
    "header_total_bytes",
    "payload_total_bytes",
    "packets_sent",
    "message_copies_sent",
    "control_packets_sent",
    "copies_per_delivery",
    "drops",
)


class Measured(msgspec.Struct):
    """The measures of one run by an engine. A distribution is a row of `count`, `mean`, `curve`; times are in ns."""

    totals: Row | None = None
    headers: Row | None = None
    packets: dict[str, Row] = {}
    nodes: dict[str, int] = {}
    latency: dict[str | None, Row] = {}
    held: Row | None = None
    repair: Row | None = None
    detection: Row | None = None
    slices: list[Row] = []
    faults: list[Row] = []
    told: list[Row] = []


def metrics_of(path: str, manifest: Manifest, measured: Measured) -> RunMetrics:
    """The metrics of one run out of its rows, with the reason for each that is missing."""
    totals = measured.totals
    metrics = RunMetrics(
        run=manifest.run_id,
        path=path,
        protocol=manifest.protocol,
        guarantee=manifest.guarantee,
        nodes=len(manifest.nodes) or len(measured.nodes),
        published=totals["published"] if totals else 0,
        delivered=totals["delivered"] if totals else 0,
        deliveries_by_node={**dict.fromkeys(manifest.nodes, 0), **measured.nodes},
    )
    _add_times(metrics, manifest, measured)
    _add_packets(metrics, manifest, measured)
    _add_hold_backs(metrics, manifest, measured)
    _add_overlay(metrics, manifest, measured)
    metrics.repair_ms = _distribution(measured.repair, _MS)
    if metrics.repair_ms is None:
        metrics.missing["repair_ms"] = "the trace has no finished repair"
    return metrics


def _add_times(metrics: RunMetrics, manifest: Manifest, measured: Measured) -> None:
    """Everything that compares times of different nodes."""
    reason = _why_no_common_time(manifest, measured.totals)
    if reason is not None or measured.totals is None:
        _miss(metrics, reason or "the trace is empty", *_COMMON_TIME_METRICS)
        return
    first, last = measured.totals["first_ns"], measured.totals["last_ns"]
    metrics.duration_s = (last - first) * _S
    _add_throughput(metrics, measured.totals)
    latency = {name: _distribution(row, _MS) for name, row in measured.latency.items()}
    by_guarantee = {name: spread for name, spread in sorted(latency.items(), key=str) if name and spread}
    overall = latency.get(None)
    if overall is None:
        _miss(metrics, "no delivery of a message whose publication is in the trace", "latency_ms")
    else:
        metrics.latency_ms = {**by_guarantee, ALL: overall} if len(by_guarantee) > 1 else by_guarantee
    metrics.detection_ms = _distribution(measured.detection, _MS)
    if metrics.detection_ms is None:
        _miss(metrics, "the trace has no suspicion of a crashed node", "detection_ms")
    metrics.timeline = _timeline(measured.slices, metrics.duration_s)
    metrics.marks = [
        TimelineMark((row["time_ns"] - first) * _S, row["kind"], row["node"], row["peer"]) for row in measured.faults
    ]


def _add_throughput(metrics: RunMetrics, totals: Row) -> None:
    start, end = totals["first_publish_ns"], totals["last_deliver_ns"]
    if start is None or end is None or end <= start:
        _miss(metrics, "no delivery after a publication", "active_s", "deliveries_per_s", "messages_per_s")
        return
    metrics.active_s = (end - start) * _S
    metrics.deliveries_per_s = metrics.delivered / metrics.active_s
    metrics.messages_per_s = metrics.published / metrics.active_s


def _add_packets(metrics: RunMetrics, manifest: Manifest, measured: Measured) -> None:
    """Add packets on links: from the rows, or from the manifest's counters where the run left the rows out."""
    totals = measured.totals
    if totals is not None and totals["message_sends"] + totals["control_sends"] > 0:
        metrics.packets_sent = totals["message_sends"] + totals["control_sends"]
        metrics.message_copies_sent = totals["message_sends"]
        metrics.control_packets_sent = totals["control_sends"]
        metrics.header_total_bytes = totals["header_total"]
        metrics.payload_total_bytes = totals["payload_total"]
        metrics.header_bytes = _distribution(measured.headers)
        spreads = {name: _distribution(row) for name, row in sorted(measured.packets.items())}
        metrics.header_bytes_by_packet = {name: spread for name, spread in spreads.items() if spread}
        metrics.drops = totals["drops"]
    else:
        metrics.packets_sent = manifest.totals.get("sends")
        metrics.drops = manifest.totals.get("drops")
    if metrics.message_copies_sent is not None and metrics.delivered:
        metrics.copies_per_delivery = metrics.message_copies_sent / metrics.delivered
    absent = [name for name in _PACKET_METRICS if getattr(metrics, name) is None]
    _miss(metrics, _why_no_packets(manifest, "send"), *absent)


def _add_hold_backs(metrics: RunMetrics, manifest: Manifest, measured: Measured) -> None:
    metrics.hold_back_ms = _distribution(measured.held["held"], _MS) if measured.held else None
    if metrics.hold_back_ms is None or measured.held is None:
        _miss(metrics, _why_no_packets(manifest, "receive"), "hold_back_ms", "held_share")
    else:
        metrics.held_share = measured.held["waited"] / metrics.hold_back_ms.count


def _add_overlay(metrics: RunMetrics, manifest: Manifest, measured: Measured) -> None:
    """Places, repairs and replicas. How long a repair took is one node's clock; when it began is everybody's."""
    first_ns = measured.totals["first_ns"] if measured.totals is not None else None
    told = [_told(row) for row in measured.told]
    metrics.digests = overlay.digests_of(told)
    if first_ns is None:
        return
    metrics.repairs = overlay.repairs_of(told, first_ns)
    metrics.topology = overlay.topology_of(told, one_clock=manifest.clock == "global")
    metrics.links = link_graph_of(told, one_clock=manifest.clock == "global")
    failovers = [repair.attached_ms for repair in metrics.repairs if repair.client and repair.attached_ms is not None]
    metrics.failover_ms = overlay.spread_of(failovers)
    if metrics.failover_ms is None and overlay.clients_of(told):
        _miss(metrics, "the trace has no client that lost its edge broker and found another", "failover_ms")


def _told(row: Row) -> overlay.ToldOfTree:
    info = dict(row["info"] or {})
    return overlay.ToldOfTree(row["node"], row["seq"], row["kind"], row["time_ns"], row["topic"], row["peer"], info)


def _why_no_common_time(manifest: Manifest, totals: Row | None) -> str | None:
    if totals is not None and totals["first_ns"] is None:
        return "the trace has no time_ns"
    if manifest.clock != "global":
        return "the nodes' clocks cannot be compared: the run does not say that they are one"
    return None


def _why_no_packets(manifest: Manifest, kind: str) -> str:
    if manifest.records == "app":
        return "the run recorded the application's events only"
    return f"the trace has no {kind} rows that tell"


def _timeline(rows: list[Row], duration_s: float) -> list[Slice]:
    """All slices in order; one without deliveries is a zero, not a gap."""
    by_bucket = {row["bucket"]: row for row in rows}
    slices = []
    for bucket in range(BUCKETS):
        row = by_bucket.get(bucket)
        p99 = row["p99_ns"] * _MS if row and row["p99_ns"] is not None else None
        slices.append(Slice(duration_s * bucket / BUCKETS, row["deliveries"] if row else 0, p99))
    return slices


def _distribution(row: Row | None, unit: float = 1.0) -> Distribution | None:
    if row is None or not row["count"]:
        return None
    curve = tuple(value * unit for value in row["curve"])
    at = dict(zip(QUANTILES, curve, strict=True))
    return Distribution(row["count"], row["mean"] * unit, at[0.5], at[0.9], at[0.99], at[0.999], at[1.0], curve)


def _miss(metrics: RunMetrics, reason: str, *names: str) -> None:
    metrics.missing.update(dict.fromkeys(names, reason))
