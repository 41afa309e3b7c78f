"""Decides the claims about crashes everywhere: order, completeness, how long children wait, and what repair costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import pyarrow as pa

from ordercast.experiments.kit.claims import HELD, UNDECIDED, all_of, guarantees_hold
from ordercast.experiments.kit.study import OURS, Row, SourceClaim
from ordercast.experiments.locamu_scale.storm import DETECTOR_MS, DOWN_MS, EVERY_MS, QUARTER, SINGLE
from ordercast.experiments.locamu_scale.storm_runs import OTHERS, SETTINGS
from ordercast.experiments.locamu_scale.text import size

_TOGETHER = {SINGLE: "one node down", QUARTER: "a quarter of the nodes down"}
_COMPLETE_MS = 2_000.0
_EMPTY_MS = 5_000.0
_WITHIN = 0.95
"""Share of the gaps that have to be as short as allowed: queues are looked at every 5 ms only."""


def claims(results: pa.Table) -> list[SourceClaim]:
    rows: list[Row] = results.to_pylist()
    locamu = _sorted(row for row in rows if row["protocol"] == "locamu")
    others = _sorted(row for row in rows if row["protocol"] != "locamu")
    return [
        guarantees_hold(rows),
        _order(locamu),
        *[_complete(_of(locamu, *setting), *setting) for setting in SETTINGS],
        *[_gaps(_of(locamu, *setting), *setting) for setting in SETTINGS],
        _others_wait(locamu, others),
        _repair(locamu),
    ]


def _sorted(rows: object) -> list[Row]:
    found = cast("list[Row]", list(rows))  # type: ignore[call-overload]
    return sorted(found, key=lambda row: (str(row["protocol"]), cast("int", row["nodes"]), -cast("float", row["load"])))


def _of(rows: Sequence[Row], together: str, load: float) -> list[Row]:
    return [row for row in rows if row["together"] == together and row["load"] == load]


def setting_name(together: str, load: float) -> str:
    return f"{_TOGETHER[together]}, {load:.0%} load"


def name(row: Row) -> str:
    return f"{row['nodes']} nodes, {setting_name(str(row['together']), _number(row, 'load'))}"


def _each(rows: Sequence[Row], say: Callable[[Row], str]) -> str:
    return "; ".join(f"{name(row)}: {say(row)}" for row in rows) or "nothing measured"


def _number(row: Row, column: str) -> float:
    return float(cast("float", row[column]))


def _order(rows: Sequence[Row]) -> SourceClaim:
    return SourceClaim(
        id="P1-P2",
        source=OURS,
        statement="While nodes are down most of the time, one on every path of three at most, others every "
        f"{EVERY_MS:g} ms, LoCaMu delivers in causal order and nothing twice (judged).",
        measured=_each(
            rows, lambda row: f"{row['judged']}, {row['crashes']:,} crashes, {row['delivered']:,} deliveries"
        ),
        holds=all_of(None if row["judged"] in (None, UNDECIDED) else row["judged"] == HELD for row in rows),
    )


def _complete(rows: Sequence[Row], together: str, load: float) -> SourceClaim:
    return SourceClaim(
        id=f"P3-{together}-{load:.0%}".replace("%", ""),
        source=OURS,
        statement=f"With {setting_name(together, load)}, every node has every message within {_COMPLETE_MS / 1e3:g} s "
        f"of the last recovery, and nobody stores any of them after {_EMPTY_MS / 1e3:g} s.",
        measured=_each(rows, lambda row: f"{_number(row, 'last_delivery_ms_after_recovery'):,.0f} ms"
                       f"{'' if row['complete'] else ', and not even then'}, which is "
                       f"{_number(row, 'last_delivery_ms_after_publication'):,.0f} ms after the last publication; "
                       f"stores empty after {_number(row, 'stores_empty_ms_after_recovery'):,.0f} ms"
                       f"{'' if row['stores_empty'] else ', but not all'}; at most {row['most_stored']:,} stored and "
                       f"{row['most_buffered']:,} held back at one node"),
        holds=all_of(
            row["complete"] is True
            and row["stores_empty"] is True
            and _number(row, "last_delivery_ms_after_recovery") <= _COMPLETE_MS
            and _number(row, "stores_empty_ms_after_recovery") <= _EMPTY_MS
            for row in rows
        ),
    )  # fmt: skip


def _gaps(rows: Sequence[Row], together: str, load: float) -> SourceClaim:
    return SourceClaim(
        id=f"gap-{together}-{load:.0%}".replace("%", ""),
        source=OURS,
        statement=f"With {setting_name(together, load)}, a child of a crashed node goes without deliveries from "
        "beyond it for at most the detector's "
        f"{DETECTOR_MS:g} ms, two round trips and the queues at whoever sends to it and at itself "
        f"({_WITHIN:.0%} of the crashes).",
        measured=_each(rows, lambda row: f"{row['gaps']:,} gaps, median {_number(row, 'gap_ms_p50'):.0f} ms, 95th "
                       f"percentile {_number(row, 'gap_ms_p95'):.0f}, longest {_number(row, 'gap_ms_max'):.0f}; "
                       f"allowed in the median {_number(row, 'gap_allowed_ms_p50'):.0f}, {row['gaps_over']} longer "
                       f"by up to {_number(row, 'gap_over_ms_max'):.0f}"),
        holds=all_of(_number(row, "gaps_over") <= (1 - _WITHIN) * _number(row, "gaps") for row in rows),
    )  # fmt: skip


def _others_wait(locamu: Sequence[Row], others: Sequence[Row]) -> SourceClaim:
    beside = [
        row
        for row in locamu
        if others
        and row["nodes"] == others[0]["nodes"]
        and row["load"] == others[0]["load"]
        and row["together"] == QUARTER
    ]
    all_were_run = bool(beside) and {row["protocol"] for row in others} == set(OTHERS)
    told = "; ".join(
        f"{row['protocol']} {_number(row, 'gap_ms_p50'):.0f} ms, 95th percentile {_number(row, 'gap_ms_p95'):.0f}, "
        f"last delivery {_number(row, 'last_delivery_ms_after_publication'):,.0f} ms after the last publication"
        for row in [*beside, *others]
    )
    return SourceClaim(
        id="others-wait",
        source=OURS,
        statement=f"Protocols without jumps, or whose publishers wait for everyone, deliver nothing to the children "
        f"before the {DOWN_MS:g} ms are over: in the median their gap is at least that long, LoCaMu's at most half.",
        measured=f"median gap: {told}" if told else "nothing measured",
        holds=all_of(
            [
                True if all_were_run else None,
                *[_number(row, "gap_ms_p50") >= DOWN_MS for row in others],
                *[_number(row, "gap_ms_p50") <= DOWN_MS / 2 for row in beside],
            ]
        ),
    )


def _repair(rows: Sequence[Row]) -> SourceClaim:
    def told(row: Row) -> str:
        parts = ", ".join(
            f"{kind} {size(_number(row, f'{kind}_bytes'))}" for kind in ("resend", "proxy", "alias", "ack")
        )
        return (
            f"first copies {size(_number(row, 'first_bytes'))}, {parts}: repair is {_number(row, 'repair_share'):.0%}"
        )

    return SourceClaim(
        id="repair-bytes",
        source=OURS,
        statement="Resends, proxies and aliases together take less than the first copies.",
        measured=_each(rows, told),
        holds=all_of(_number(row, "repair_share") < 1 for row in rows),
    )
