"""One run with crashes: how fast the tree is without them, then half as fast with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import cast

import numpy as np

from ordercast.core.ids import NodeId
from ordercast.core.machine import Machine
from ordercast.core.messages import Packet
from ordercast.core.registry import ProtocolInfo
from ordercast.experiments.kit.study import Row
from ordercast.experiments.locamu_scale.meter import metered
from ordercast.experiments.locamu_scale.simulated import lived, machine_of
from ordercast.experiments.locamu_scale.storm import BANDWIDTH_MBPS, QUARTER, SINGLE, scenario
from ordercast.experiments.locamu_scale.storm_watch import BIN_MS, KINDS, REPAIRS, Gap, StormWatch, stored_at
from ordercast.scenario.model import Crash

OTHERS = ("cbcast", "delta-neighbourhood")
HALF, SOURCE_HALF, LITTLE = 0.5, 0.16, 0.1
"""Shares of what the tree can carry without faults; the second is half of what it could with the source's headers.

Three copies of 324 + 32 bytes a message at the busiest node: 234 messages/s at 2 Mb/s, against 719 with our encoding.
"""
SETTINGS = ((SINGLE, HALF), (QUARTER, HALF), (QUARTER, SOURCE_HALF), (QUARTER, LITTLE))
BEFORE_MS, AFTER_MS, STEP_MS = 50.0, 250.0, 5.0
"""The time around a crash that the figure shows."""
_CALM_MS = 400.0
_CALM_RATE = 200.0
"""Of the run that shows what a message costs."""


def _configuration(protocol: str, nodes: int, duration_ms: float, together: str, load: float) -> Row:
    return {
        "protocol": protocol, "nodes": nodes, "duration_ms": duration_ms, "together": together, "load": load, "seed": 0,
    }  # fmt: skip


def _scale(nodes: int, duration_ms: float, more: int = 0) -> list[Row]:
    """All of it in one tree, and what a larger one can still be simulated with."""
    rows = [_configuration("locamu", nodes, duration_ms, together, load) for together, load in SETTINGS]
    rows += [_configuration(other, nodes, duration_ms, QUARTER, LITTLE) for other in OTHERS]
    if more:
        rows += [_configuration("locamu", more, duration_ms, *what) for what in ((SINGLE, HALF), (QUARTER, LITTLE))]
    return rows


SCALES = {"quick": _scale(63, 3_000.0), "paper": _scale(127, 10_000.0, more=511)}


def weigh(parameters: Row) -> float:
    """Hops, and those of LoCaMu cost more, most of all where repair takes all there is."""
    nodes, duration_ms, load = (cast("float", parameters[name]) for name in ("nodes", "duration_ms", "load"))
    repair = 5.0 if parameters["together"] == QUARTER else 1.0
    return nodes * duration_ms * load * (3.0 * repair if parameters["protocol"] == "locamu" else 1.0)


def measure(parameters: Row) -> Row:
    from ordercast.protocols import lookup

    protocol = lookup(str(parameters["protocol"]))
    nodes, duration_ms = cast("int", parameters["nodes"]), cast("float", parameters["duration_ms"])
    # All protocols at the same rate: what LoCaMu could carry decides.
    capacity = capacity_per_s(parameters, lookup("locamu"))
    rate = cast("float", parameters["load"]) * capacity
    watch = StormWatch(protocol, nodes)
    planned = scenario(parameters, rate, duration_ms=duration_ms, limited=True, stormy=True)
    run = lived(planned, watch.protocol, watch.prepare)
    crashes = [fault for fault in planned.fault if isinstance(fault, Crash)]
    recovered_ms = max(cast("float", crash.recover_ms) for crash in crashes)
    hosts = run.world.hosts.values()
    delivered = sum(host.delivered for host in hosts)
    return {
        "capacity_per_s": capacity,
        "rate_per_s": rate,
        "crashes": len(crashes),
        "published": run.world.published,
        "delivered": delivered,
        "complete": delivered == run.world.published * nodes,
        "last_delivery_ms_after_recovery": watch.last_delivery_ms - recovered_ms,
        "last_delivery_ms_after_publication": watch.last_delivery_ms - duration_ms,
        "stores_empty": not any(stored_at(machine_of(host)) for host in hosts),
        "stores_empty_ms_after_recovery": _after(watch.emptied_ms, recovered_ms, run.world.clock.now),
        "most_buffered": watch.most_buffered,
        "most_stored": watch.most_stored,
        **{f"{kind}_bytes": watch.bytes[kind] for kind in KINDS},
        **{f"{kind}_packets": watch.packets[kind] for kind in KINDS},
        "repair_share": sum(watch.bytes[kind] for kind in REPAIRS) / watch.bytes["first"],
        **_gap_columns(watch.gaps(crashes)),
        "around": _text(watch.deliveries_around(crashes, BEFORE_MS, AFTER_MS, STEP_MS)),
        **{f"{kind}_over_time": _text(_series(watch.bins[kind], duration_ms)) for kind in KINDS},
        **run.judged,
    }


def capacity_per_s(parameters: Row, protocol: ProtocolInfo) -> float:
    """Messages a second through the busiest node, by what a message costs there in and out, without any fault."""
    used: Counter[NodeId] = Counter()
    codec = protocol.codec()

    def seen(node: NodeId, peer: NodeId, packet: Packet, _machine: Machine) -> None:
        size = codec.size(packet)
        used[node] += size
        used[peer] += size

    like = {**parameters, "protocol": protocol.name}
    calm = scenario(like, _CALM_RATE, duration_ms=_CALM_MS, limited=False, stormy=False)
    run = lived(calm, metered(protocol, seen), judge=False)
    return BANDWIDTH_MBPS * 1e6 / 8 / (max(used.values()) / run.world.published)


def _after(emptied_ms: float | None, recovered_ms: float, now_ns: int) -> float:
    """The time at which the stores were empty; who looks last sees the end of the run."""
    return (now_ns / 1e6 if emptied_ms is None else emptied_ms) - recovered_ms


def _gap_columns(gaps: Sequence[Gap]) -> Row:
    lengths = np.array([gap.ms for gap in gaps])
    over = [gap for gap in gaps if gap.ms > gap.allowed_ms]
    median, high, top = np.percentile(lengths, [50, 95, 100])
    return {
        "gaps": len(gaps),
        "gap_ms_p50": float(median),
        "gap_ms_p95": float(high),
        "gap_ms_max": float(top),
        "gap_allowed_ms_p50": float(np.median([gap.allowed_ms for gap in gaps])),
        "gaps_over": len(over),
        "gap_over_ms_max": max((gap.ms - gap.allowed_ms for gap in over), default=0.0),
    }


def _series(bins: Counter[int], duration_ms: float) -> list[float]:
    """Bytes in steps of time until a second after the load has ended."""
    return [bins[i] for i in range(int((duration_ms + 1_000.0) / BIN_MS))]


def _text(values: Sequence[float]) -> str:
    """A series as one value of a row."""
    return " ".join(f"{value:.6g}" for value in values)


def series(text: object) -> list[float]:
    """The values of `_text`."""
    return [float(value) for value in str(text).split()]
