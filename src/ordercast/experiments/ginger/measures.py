"""Measures a run from its trace: latency by guarantee, in the whole run and right after the crash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ordercast.core.ids import Origin, Topic
from ordercast.core.messages import GUARANTEES as GUARANTEES_BY_NAME
from ordercast.experiments.kit import claims
from ordercast.experiments.kit.study import Row
from ordercast.pubsub.publications import Publication

if TYPE_CHECKING:
    from ordercast.verify.load import LoadedTrace
    from ordercast.verify.verdict import Verdict

GUARANTEES = ("eventual", "causal", "total")
ALL = "all"
_NS_PER_MS = 1e6

Numbers = npt.NDArray[np.float64]


def latencies(table: pa.Table, window_ns: tuple[int, int]) -> Row:
    """From publication to delivery at every member but the publisher.

    `X_ms_mean`, `_p50`, `_p95` for every guarantee X and for all together; `X_after_ms_*` for what was published in
    the window.
    """
    both = _deliveries(table)
    at = both["published_ns"].to_numpy()
    values = (both["time_ns"].to_numpy() - at) / _NS_PER_MS
    levels = both["guarantee"].to_numpy(zero_copy_only=False)
    inside = (at >= window_ns[0]) & (at < window_ns[1])
    found: Row = {}
    for name in (*GUARANTEES, ALL):
        of_level = np.ones(len(values), dtype=np.bool_) if name == ALL else levels == name
        found |= _spread(f"{name}_ms", values[of_level]) | _spread(f"{name}_after_ms", values[of_level & inside])
    return found


def _deliveries(table: pa.Table) -> pa.Table:
    words = ("node", "kind", "msg", "guarantee")
    columns = [table[name].cast(pa.string()) for name in words]
    plain = pa.Table.from_arrays([*columns, table["time_ns"]], names=[*words, "time_ns"])
    published = plain.filter(pc.field("kind") == "publish")
    published = published.select(["node", "msg", "guarantee", "time_ns"])
    published = published.rename_columns(["by", "msg", "guarantee", "published_ns"])
    delivered = plain.filter(pc.field("kind") == "deliver").select(["node", "msg", "time_ns"])
    return delivered.join(published, keys="msg", join_type="inner", use_threads=False).filter(
        pc.field("node") != pc.field("by")
    )


def _spread(name: str, values: Numbers) -> Row:
    if not values.size:
        return dict.fromkeys((f"{name}_mean", f"{name}_p50", f"{name}_p95"))
    ordered = np.sort(values)  # The order of rows must not show in the last digit.
    median, high = np.percentile(ordered, [50, 95])
    return {f"{name}_mean": float(ordered.mean()), f"{name}_p50": float(median), f"{name}_p95": float(high)}


def judged(trace: LoadedTrace) -> tuple[Row, Verdict]:
    """The judge's word, as columns."""
    from ordercast.verify.judge import judge_trace

    verdict = judge_trace(trace)
    passed = [result.check for result in verdict.results if result.verdict == "pass"]
    return {**claims.judged(verdict), "passed_checks": ", ".join(passed)}, verdict


def counts(table: pa.Table) -> Row:
    return {"published": _of_kind(table, "publish").num_rows, "deliveries": _of_kind(table, "deliver").num_rows}


def _of_kind(table: pa.Table, *kinds: str) -> pa.Table:
    return table.filter(pc.is_in(table["kind"].cast(pa.string()), pa.array(kinds)))


def repair_ends(table: pa.Table) -> list[int]:
    """When brokers had found their place, or all that they had missed, and clients another edge."""
    times: list[int] = _of_kind(table, "repair_end")["time_ns"].to_numpy().tolist()
    return times


def bank_verdict(table: pa.Table) -> str:
    """The verdict on the members' replicas of the bank after these deliveries: `equal`, or the first difference."""
    from ordercast.services.bank_checks import bank_violations
    from ordercast.services.bank_replay import bank_histories

    for _, deliveries in sorted(_delivered(table).items()):
        problems = bank_violations(bank_histories(deliveries))
        if problems:
            return problems[0]
    return "equal"


def _delivered(table: pa.Table) -> dict[str, dict[str, list[Publication]]]:
    """Per topic and member what was delivered there, in order."""
    columns = ["kind", "node", "seq", "msg", "topic", "keys", "guarantee"]
    rows = _of_kind(table, "publish", "deliver").select(columns).to_pylist()
    published = {row["msg"]: _publication(row) for row in rows if row["kind"] == "publish"}
    found: dict[str, dict[str, list[Publication]]] = {}
    for row in sorted(rows, key=lambda row: (row["node"], row["seq"])):
        if row["kind"] == "deliver":
            found.setdefault(row["topic"], {}).setdefault(row["node"], []).append(published[row["msg"]])
    return found


def _publication(row: dict[str, Any]) -> Publication:
    name, _, number = row["msg"].rpartition("#")
    origin = Origin(name.removesuffix(f"/{row['topic']}"))
    guarantee = GUARANTEES_BY_NAME[row["guarantee"]]
    return Publication(origin, int(number), Topic(row["topic"]), b"", guarantee, tuple(row["keys"] or ("",)))
