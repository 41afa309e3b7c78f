"""X1: throughput, latency and message size against the number of members, for few, more and all updaters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
import pyarrow as pa

from ordercast.experiments.cluster.group import Group
from ordercast.experiments.cluster.measures import measured
from ordercast.experiments.cluster.setting import ClusterSetting
from ordercast.experiments.cluster.sources import LCC05, WORDS
from ordercast.experiments.kit.claims import all_of, guarantees_hold
from ordercast.experiments.kit.figures import CONFIDENCE, Look, doubling, drawn, label, legend, line, panels
from ordercast.experiments.kit.results import Curve, Point, curve, fit_line, listed, rises
from ordercast.experiments.kit.study import Picture, Row, SourceClaim, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_EVENTS = 6.0
"""Updates in a round, of all updaters together (of 5 updaters: 5)."""
_BASE_MS = 1.0
_BYTES_PER_MS = 1250.0
"""10 Mbit/s."""
_PILOT_ROUNDS = 15
_ROOM = 1.2
"""A round is so much longer than the longest latency that was seen."""
_LARGEST_FULL = 125
"""Beyond, the vectors of all members do not fit the packets any more."""
_UPDATERS = {"5-updater": 5, "25-updater": 25, "full-updater": 0}
_LOOKS = {
    "5-updater": Look("5 updaters", "#0072b2"),
    "25-updater": Look("25 updaters", "#d55e00", "^", "--"),
    "full-updater": Look("all members update", "#4d4d4d", "s", ":", hollow=True),
}


def _scale(sizes: Sequence[int], seeds: int, rounds: int) -> list[Row]:
    return [
        {"updating": updating, "members": members, "rounds": rounds, "seed": seed}
        for updating in _UPDATERS
        for members in sizes
        if updating != "full-updater" or (members <= _LARGEST_FULL and members not in _UPDATERS.values())
        for seed in range(seeds)
    ]


def run(parameters: Row) -> Row:
    """A pilot finds the longest latency, as the source adapted its rounds to the network; then the run itself."""
    members = cast("int", parameters["members"])
    updaters = _UPDATERS[str(parameters["updating"])] or members
    setting = ClusterSetting(
        members=members, updaters=updaters, events_per_round=min(_EVENTS, updaters), variant="k",
        seed=cast("int", parameters["seed"]), rounds=cast("int", parameters["rounds"]), ttl=_ttl(members),
        base_ms=_BASE_MS, bytes_per_ms=_BYTES_PER_MS, round_ms=20.0,
    )  # fmt: skip
    pilot = Group(msgspec.structs.replace(setting, rounds=_PILOT_ROUNDS))
    pilot.live()
    longest_ms = 2 * _BASE_MS + max(pilot.message_bytes) / _BYTES_PER_MS
    round_ms = round(_ROOM * longest_ms, 2)
    found = measured(msgspec.structs.replace(setting, round_ms=round_ms))
    return {**found, "round_ms": round_ms}


def _ttl(members: int) -> int:
    """The source's 5 up to its 125 members; beyond, as many rounds as reach everybody."""
    return 5 if members <= _LARGEST_FULL else 5 + math.ceil(math.log(members / _LARGEST_FULL, 4))


def by_size(rows: Sequence[Row], column: str, updating: str) -> Curve:
    """Of runs in which so many update; that all do is also true of as few members as a fixed number of updaters."""
    if updating == "full-updater":
        rows = [row for row in rows if (_UPDATERS[str(row["updating"])] or row["members"]) == row["members"]]
        return curve(rows, column, along="members")
    return curve(rows, column, along="members", updating=updating)


def claims(results: pa.Table) -> list[SourceClaim]:
    rows: list[Row] = results.to_pylist()
    return [
        guarantees_hold(rows, "No run delivers an update out of causal order, or twice.", what="updating"),
        _size_is_flat(rows),
        _size_grows(rows),
        _latency_is_logarithmic(rows),
        _full_latency_is_linear(rows),
        _throughput(rows),
        _load_is_even(rows),
    ]


def _size_is_flat(rows: Sequence[Row]) -> SourceClaim:
    fixed = {name: by_size(rows, "message_bytes", name) for name in ("5-updater", "25-updater")}
    fits = [fit_line(points) for points in fixed.values()]
    return SourceClaim(
        id="message-size-flat", source=LCC05,
        statement="With a fixed number of updaters, gossip messages do not get longer with the number of members "
        "(a fitted line does not rise).",
        measured="; ".join(f"{name}: {listed(points, 0, 'B')}" for name, points in fixed.items()),
        holds=all_of(None if fit is None else fit.slope <= 0 for fit in fits),
    )  # fmt: skip


def _size_grows(rows: Sequence[Row]) -> SourceClaim:
    points = by_size(rows, "message_bytes", "full-updater")
    fit = fit_line(points)
    return SourceClaim(
        id="full-message-size-grows", source=LCC05,
        statement="If all members update, gossip messages get longer with every member.",
        measured=f"{listed(points, 0, 'B')}" + (f"; {fit.slope:.1f} B a member" if fit else ""),
        holds=rises([point.mean for point in points]),
    )  # fmt: skip


def _better_logarithmic(points: Curve) -> tuple[bool | None, str]:
    straight = fit_line(points)
    curved = fit_line([Point(math.log(point.x), point.mean) for point in points])
    if straight is None or curved is None:
        return None, "too few sizes"
    return curved.r2 > straight.r2, f"R² {curved.r2:.3f} against log(members), {straight.r2:.3f} against members"


def _latency_is_logarithmic(rows: Sequence[Row]) -> SourceClaim:
    found = {name: by_size(rows, "latency_ms", name) for name in ("5-updater", "25-updater")}
    fits = {name: _better_logarithmic(points) for name, points in found.items()}
    return SourceClaim(
        id="latency-logarithmic", source=LCC05,
        statement="With a fixed number of updaters, latency grows with the logarithm of the number of members "
        "(which fits better than a line).",
        measured="; ".join(f"{name}: {listed(found[name], 1, 'ms')} ({fits[name][1]})" for name in found),
        holds=all_of(fit[0] for fit in fits.values()),
    )  # fmt: skip


def _full_latency_is_linear(rows: Sequence[Row]) -> SourceClaim:
    points = by_size(rows, "latency_ms", "full-updater")
    better, told = _better_logarithmic(points)
    return SourceClaim(
        id="full-latency-linear", source=LCC05,
        statement="If all members update, latency grows linearly with their number (a line fits better than a "
        "logarithm).",
        measured=f"{listed(points, 1, 'ms')} ({told})",
        holds=None if better is None else not better,
    )  # fmt: skip


def _throughput(rows: Sequence[Row]) -> SourceClaim:
    found = {name: by_size(rows, "deliveries_per_s", name) for name in _UPDATERS}
    full = [point.mean for point in found["full-updater"]]
    steady = [
        max(point.mean for point in points) <= 1.1 * min(point.mean for point in points) if len(points) > 1 else None
        for name, points in found.items()
        if name != "full-updater"
    ]
    return SourceClaim(
        id="throughput", source=LCC05,
        statement="With a fixed number of updaters, throughput stays within 10 % over all sizes; if all update, it "
        "falls with their number.",
        measured="; ".join(f"{name}: {listed(points, 0, '/s')}" for name, points in found.items()),
        holds=all_of([*steady, rises([-value for value in full])]),
    )  # fmt: skip


def _load_is_even(rows: Sequence[Row]) -> SourceClaim:
    shares = [float(row["busiest_share"] or 0) for row in rows if row["busiest_share"] is not None]
    return SourceClaim(
        id="load-is-even", source=LCC05,
        statement="The load is even: no member sends twice as many gossip bytes as members do on average.",
        measured=f"the busiest member of any run sends {max(shares):.2f} times the mean" if shares else "nothing",
        holds=max(shares) < 2 if shares else None,
    )  # fmt: skip


def figures(results: pa.Table, directory: Path) -> list[Picture]:
    rows: list[Row] = results.to_pylist()
    return drawn(rows, directory, {"members": _members})


def _members(rows: Sequence[Row]) -> Figure:
    figure, axes = panels(
        2, 2, "Updates that a member delivers in a second, mean time from the making of an update to its delivery, and "
        "mean length of a gossip message without its digest, against the number of members. About 6 updates are made "
        f"in a round, whoever makes them; a round lasts 1.2 times as long as the slowest message. {CONFIDENCE}",
    )  # fmt: skip
    columns = (
        ("deliveries_per_s", "Throughput", "deliveries per second and member"),
        ("latency_ms", "Latency", "ms"),
        ("message_bytes", "Gossip message", "bytes"),
    )
    sizes = sorted({float(cast("int", row["members"])) for row in rows})
    axes.pop().remove()
    for one, (column, title, unit) in zip(axes, columns, strict=True):
        for name, look in _LOOKS.items():
            line(one, by_size(rows, column, name), look)
        doubling(one, sizes)
        label(one, title, "members", unit)
        one.set_ylim(bottom=0)
    legend(figure, *axes)
    return figure


STUDY = Study(
    name="cluster-scale",
    version=1,
    title="Causal clusters: throughput, latency and message size against the number of members",
    source=LCC05,
    description=(
        "Groups of members with full views gossip with fanout 4; 5, 25 or all of them make updates, about 6 a round "
        "together. A datagram takes 1 to 2 ms and its length at 10 Mbit/s; 0.2 % are lost; a round lasts 1.2 times as "
        "long as the slowest datagram of a pilot run. Recovery asks k = 4 members. An observer that knows the true "
        "causal order judges every run."
    ),
    scales={
        "quick": _scale((25, 50, 75, 100, 125), seeds=3, rounds=50),
        "paper": _scale((25, 50, 75, 100, 125, 250, 500, 1000), seeds=3, rounds=60),
    },
    run=run,
    claims=claims,
    figures=figures,
    words=WORDS,
    weigh=lambda row: float(cast("int", row["members"])) * (3 if row["updating"] == "full-updater" else 1),
)  # fmt: skip
