"""Measuring where the rows lie says what measuring in one process says, to the last digit."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ordercast.verify.distributed import ranks
from ordercast.verify.distributed.measure import measured_apart
from ordercast.verify.distributed.tables import tables_in_files, tables_of_rows
from ordercast.verify.metrics.compose import Measured
from ordercast.verify.metrics.local import NEEDED, measured_of
from tests.support.flow import InProcess, in_files
from tests.support.random_traces import draw, table_of

TRACES = 150


def packets(seed: int) -> list[dict[str, Any]]:
    """The random execution of a seed, in which copies are also sent, received, dropped and told of."""
    rng = random.Random(f"packets {seed}")
    rows, _ = draw(seed)
    ends = {row["node"]: row["seq"] for row in rows}
    for row in [row for row in rows if row["kind"] == "deliver"]:
        row["time_ns"] = None if rng.random() < 0.05 else rng.randrange(10**12)
        for kind in rng.choices(
            ["send", "receive", "drop", "suspect", "repair_start", "repair_end"], k=rng.randrange(3)
        ):
            ends[row["node"]] += 1
            info = rng.choice([None, {"packet": "Ack"}, {"packet": "Data"}])
            about = row["msg"] if rng.random() < 0.8 else None
            more = {"kind": kind, "msg": about, "header_bytes": rng.choice([None, 8, 20, 40]), "info": info}
            place = {"run": "r", "node": row["node"], "seq": ends[row["node"]], "peer": rng.choice(["n0", "n1"])}
            rows.append({**place, **more, "time_ns": rng.randrange(10**12), "payload_bytes": rng.choice([None, 3])})
    return rows


def apart(table: pa.Table, buckets: int, *, as_files: bool) -> Measured:
    if as_files:
        return measured_apart(InProcess(), in_files(table), tables_in_files, "random", lambda _: buckets)
    return measured_apart(InProcess(), table.select(NEEDED), tables_of_rows, "random", lambda _: buckets)


@pytest.mark.parametrize("fetched", [ranks.FETCHED, 5])
def test_both_engines_measure_the_same_in_random_traces(fetched: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where only five numbers may be fetched, and all others are counted."""
    monkeypatch.setattr(ranks, "FETCHED", fetched)
    monkeypatch.setattr(ranks, "PIECES", 4)
    seen = dict.fromkeys(("latency", "held", "headers", "packets", "repair", "detection", "slices"), 0)
    for seed in range(TRACES):
        table = table_of(packets(seed))
        here = measured_of(table)
        assert apart(table, 1 + seed % 3, as_files=seed % 2 == 1) == here, f"seed {seed}"
        for name in seen:
            seen[name] += bool(getattr(here, name))
    assert min(seen.values()) > 0, seen  # Not vacuous.


def test_values_at_ranks_are_found_by_counting_alone() -> None:
    draws = np.random.default_rng(7)
    numbers = np.sort(np.concatenate([draws.integers(0, 2**62, 3000), np.full(3000, 12345), draws.integers(0, 9, 50)]))
    asked = [0, 1, 49, 50, 51, 3049, 3050, 3051, 5000, numbers.size - 1]
    low, high = int(numbers[0]), int(numbers[-1])
    wanted = [ranks.Stretch(0, rank, low, high, 0, numbers.size) for rank in asked]

    found = ranks.narrowed(wanted, lambda edges: {0: np.searchsorted(numbers, edges[0])}, lambda stretches: {
        (0, a, b): numbers[np.searchsorted(numbers, a) : np.searchsorted(numbers, b, side="right")]
        for _, a, b in stretches
    })  # fmt: skip

    assert found == numbers[asked].tolist()
