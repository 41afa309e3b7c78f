"""Costs of a run, from its trace: header bytes on the wire, hold-back and latency. In one process, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ordercast.experiments.kit.study import Row
from ordercast.trace.store import event_files

_COLUMNS = ["node", "kind", "msg", "time_ns", "payload_bytes", "header_bytes"]
_PER_COPY = ["node", "msg"]
_NS_PER_MS = 1e6

Numbers = npt.NDArray[np.float64]


def trace_costs(run: Path) -> Row:
    """The costs of the run at `run`, as columns of a results table.

    `header_*`: per copy of a message put on a link. `hold_*`: from a node's first receipt of another's message to its
    delivery there, the messages that did not wait included. `latency_*`: from publication to delivery elsewhere.
    """
    events = pa.concat_tables([pq.read_table(path, columns=_COLUMNS) for path in event_files(run)])
    of_kind = {kind: _messages(events, kind) for kind in ("publish", "send", "receive", "deliver")}
    holds, latencies = _waits(of_kind)
    headers = _numbers(of_kind["send"], "header_bytes")
    return {
        "published": of_kind["publish"].num_rows,
        "deliveries": of_kind["deliver"].num_rows,
        "copies_sent": of_kind["send"].num_rows,
        "payload_bytes": _mean(_numbers(of_kind["send"], "payload_bytes")),
        **_spread("header_bytes", headers),
        "held_share": _mean(holds > 0),
        **_spread("hold_ms", holds),
        "hold_ms_when_held": _mean(holds[holds > 0]),
        **_spread("latency_ms", latencies),
    }


def _messages(events: pa.Table, kind: str) -> pa.Table:
    """The events of one kind that are about a message: copies of it, not acknowledgements."""
    return events.filter((pc.field("kind") == kind) & pc.field("msg").is_valid())


def _waits(of_kind: Mapping[str, pa.Table]) -> tuple[Numbers, Numbers]:
    """For every delivery of another node's message: how long it was held back, and how old it was, in milliseconds."""
    first_receipt = (
        of_kind["receive"]
        .group_by(_PER_COPY, use_threads=False)
        .aggregate([("time_ns", "min")])
        .rename_columns([*_PER_COPY, "received_ns"])
    )
    publication = of_kind["publish"].select(["node", "msg", "time_ns"]).rename_columns(["by", "msg", "published_ns"])
    both = (
        of_kind["deliver"]
        .select(["node", "msg", "time_ns"])
        .join(publication, keys="msg", use_threads=False)
        .filter(pc.field("node") != pc.field("by"))
        .join(first_receipt, keys=_PER_COPY, join_type="inner", use_threads=False)
    )
    delivered = _numbers(both, "time_ns")
    holds = (delivered - _numbers(both, "received_ns")) / _NS_PER_MS
    return holds, (delivered - _numbers(both, "published_ns")) / _NS_PER_MS


def _numbers(table: pa.Table, column: str) -> Numbers:
    return table[column].to_numpy().astype(np.float64)


def _spread(name: str, values: Numbers) -> Row:
    """Mean, extremes and percentiles of `values`, as columns; all missing where there is nothing to measure."""
    if not values.size:
        return dict.fromkeys((f"{name}_{what}" for what in ("mean", "min", "p50", "p99", "max")), None)
    low, median, high, top = np.percentile(values, [0, 50, 99, 100])
    return {
        f"{name}_mean": float(np.sort(values).mean()),  # Sorted: the order of rows must not show in the last digit.
        f"{name}_min": float(low),
        f"{name}_p50": float(median),
        f"{name}_p99": float(high),
        f"{name}_max": float(top),
    }


def _mean(values: npt.NDArray[np.generic]) -> float | None:
    return float(np.sort(values).mean()) if values.size else None
