"""X2: latency, attempts to recover, loss and success against the load; and what weak dissemination does to it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from ordercast.experiments.cluster.measures import measured
from ordercast.experiments.cluster.setting import ClusterSetting
from ordercast.experiments.cluster.sources import LCC05, WORDS
from ordercast.experiments.kit.claims import all_of, guarantees_hold
from ordercast.experiments.kit.figures import CONFIDENCE, Look, drawn, label, legend, line, panels
from ordercast.experiments.kit.results import Curve, curve, listed, means, rises
from ordercast.experiments.kit.study import PROTOTYPE, Picture, Row, SourceClaim, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VARIANTS = ("gossip", "none", "source", "k")
LOOKS = {
    "gossip": Look("gossip, no order", "#4d4d4d", "s", ":", hollow=True),
    "none": Look("ordered, no recovery", "#d55e00", "^", "--"),
    "source": Look("ordered, from the source", "#009e73", "D", "-.", hollow=True),
    "k": Look("ordered, from k members", "#0072b2"),
}
_TTT_ROUNDS, _TTR_ROUNDS = 6, 4
_LOW_SUCCESS = "The success rate of k-recovery is below that of source recovery at low load"


def _scale(loads: Sequence[float], members: int, seeds: int, rounds: int) -> list[Row]:
    common: Row = {"members": members, "updaters": members, "rounds": rounds}
    usual: list[Row] = [
        {**common, "part": "load", "fanout": 4, "ttl": 5, "ask": 4, "variant": variant, "events_per_round": load,
         "seed": seed}
        for variant in VARIANTS for load in loads for seed in range(seeds)
    ]  # fmt: skip
    weak: list[Row] = [
        {**common, "part": "weak", "fanout": 2, "ttl": 4, "ask": 2, "variant": variant, "events_per_round": load,
         "seed": seed}
        for variant in ("source", "k") for load in (loads[0], loads[len(loads) // 2], loads[-1])
        for seed in range(seeds)
    ]  # fmt: skip
    return usual + weak


def run(parameters: Row) -> Row:
    found = measured(ClusterSetting.of(parameters))
    del found["recovery_by_updaters"]  # Everybody updates here.
    return found


def _by_load(rows: Sequence[Row], column: str, variant: str, part: str = "load") -> Curve:
    return curve(rows, column, along="events_per_round", variant=variant, part=part)


def claims(results: pa.Table) -> list[SourceClaim]:
    rows: list[Row] = results.to_pylist()
    return [
        guarantees_hold(rows, "The ordered layer never delivers out of order, and nobody twice.", what="variant"),
        _gossip_violates(rows),
        _order_costs_latency(rows),
        _recovery_costs_little(rows),
        _loss_without_recovery(rows),
        _recovery_cuts_loss(rows),
        _attempts_grow(rows),
        _low_success(rows),
        _converges(rows),
        _hold_is_bounded(rows),
    ]  # fmt: skip


def _gossip_violates(rows: Sequence[Row]) -> SourceClaim:
    points = _by_load(rows, "out_of_order", "gossip")
    return SourceClaim(
        id="gossip-violates", source=LCC05,
        statement="Without the ordered layer, the same loads bring deliveries out of causal order.",
        measured=f"deliveries out of order by updates a round: {listed(points, 0)}",
        holds=all(point.mean > 0 for point in points) if points else None,
    )  # fmt: skip


def _order_costs_latency(rows: Sequence[Row]) -> SourceClaim:
    gossip, none = (means(_by_load(rows, "latency_rounds", variant)) for variant in ("gossip", "none"))
    extra = {x: none[x] - gossip[x] for x in sorted(none.keys() & gossip.keys())}
    return SourceClaim(
        id="order-costs-latency", source=LCC05,
        statement="Order costs latency: at every load the ordered layer without recovery takes longer than gossip on "
        f"average, by less than the time-out of {_TTT_ROUNDS} rounds.",
        measured=", ".join(f"{x:g}: {value:+.2f} rounds" for x, value in extra.items()),
        holds=all(0 < value < _TTT_ROUNDS for value in extra.values()) if extra else None,
    )  # fmt: skip


def _recovery_costs_little(rows: Sequence[Row]) -> SourceClaim:
    none, source, k = (means(_by_load(rows, "latency_rounds", variant)) for variant in VARIANTS[1:])
    extra = {x: max(source[x], k[x]) - none[x] for x in sorted(none.keys() & source.keys() & k.keys())}
    return SourceClaim(
        id="recovery-adds-little-latency", source=PROTOTYPE,
        statement="Recovery of either kind adds less than one round to the mean latency.",
        measured=", ".join(f"{x:g}: {value:+.2f} rounds" for x, value in extra.items()),
        holds=all(value < 1 for value in extra.values()) if extra else None,
    )  # fmt: skip


def _loss_without_recovery(rows: Sequence[Row]) -> SourceClaim:
    runs = [row for row in rows if row["variant"] == "none" and row["lost_share"] is not None]
    worst = max((abs(float(row["lost_share"] or 0) - float(row["unheard"] or 0)) for row in runs), default=None)
    return SourceClaim(
        id="no-loss-of-its-own", source=PROTOTYPE,
        statement="Without recovery the layer loses exactly what gossip never brings: order itself loses nothing.",
        measured="nothing" if worst is None else f"largest difference of any run: {worst:.4%} of all pairs",
        holds=None if worst is None else worst < 1e-9,
    )  # fmt: skip


def _recovery_cuts_loss(rows: Sequence[Row]) -> SourceClaim:
    none, source, k = (means(_by_load(rows, "lost_share", variant)) for variant in VARIANTS[1:])
    shared = sorted(none.keys() & source.keys() & k.keys())
    return SourceClaim(
        id="recovery-cuts-loss", source=LCC05,
        statement="Both kinds of recovery cut the loss at every load, at least by a factor of 10.",
        measured="; ".join(
            f"{x:g}: {none[x]:.3%} without, {source[x]:.3%} source, {k[x]:.3%} k" for x in shared
        ),
        holds=all(none[x] > 0 and max(source[x], k[x]) <= none[x] / 10 for x in shared) if shared else None,
    )  # fmt: skip


def _attempts_grow(rows: Sequence[Row]) -> SourceClaim:
    found = {variant: _by_load(rows, "attempts", variant) for variant in ("source", "k")}
    return SourceClaim(
        id="attempts-grow-with-load", source=LCC05,
        statement="The number of attempts to recover grows with the load.",
        measured="; ".join(f"{variant}: {listed(points, 0)}" for variant, points in found.items()),
        holds=all_of(rises([point.mean for point in points]) for points in found.values()),
    )  # fmt: skip


def _weak(rows: Sequence[Row]) -> tuple[dict[float, float], dict[float, float]]:
    source, k = (means(_by_load(rows, "success", variant, "weak")) for variant in ("source", "k"))
    return source, k


def _told(source: dict[float, float], k: dict[float, float]) -> str:
    return "; ".join(f"{x:g}: {source[x]:.2%} source, {k[x]:.2%} k" for x in sorted(source.keys() & k.keys()))


def _low_success(rows: Sequence[Row]) -> SourceClaim:
    source, k = _weak(rows)
    lowest = min(source.keys() & k.keys(), default=None)
    return SourceClaim(
        id="k-less-successful-at-low-load", source=LCC05,
        statement=f"{_LOW_SUCCESS} (weak dissemination: fanout 2, k = 2).",
        measured=_told(source, k),
        holds=None if lowest is None else k[lowest] < source[lowest],
    )  # fmt: skip


def _converges(rows: Sequence[Row]) -> SourceClaim:
    source, k = _weak(rows)
    shared = sorted(source.keys() & k.keys())
    gaps = [source[x] - k[x] for x in shared]
    return SourceClaim(
        id="k-converges-with-load", source=LCC05,
        statement="The success rate of k-recovery comes closer to that of source recovery as the load grows.",
        measured=f"by updates a round, source minus k: {', '.join(f'{x:g}: {source[x] - k[x]:+.2%}' for x in shared)}",
        holds=gaps[-1] < gaps[0] if len(gaps) > 1 else None,
    )  # fmt: skip


def _hold_is_bounded(rows: Sequence[Row]) -> SourceClaim:
    runs = [row for row in rows if row["variant"] != "gossip" and row["longest_hold_rounds"] is not None]
    longest: dict[int, float] = {}
    for row in runs:
        limit = int(row["ttl"] or 0) + 1 + _TTR_ROUNDS
        longest[limit] = max(longest.get(limit, 0.0), float(row["longest_hold_rounds"] or 0))
    return SourceClaim(
        id="hold-is-bounded", source=PROTOTYPE,
        statement="No update is held back longer than both time-outs together.",
        measured=", ".join(f"{found:.2f} of {limit} rounds" for limit, found in sorted(longest.items())),
        holds=all(found <= limit + 1e-6 for limit, found in longest.items()) if longest else None,
    )  # fmt: skip


def figures(results: pa.Table, directory: Path) -> list[Picture]:
    rows: list[Row] = results.to_pylist()
    return drawn(rows, directory, {"load": _load, "weak": _weakness})


def _load(rows: Sequence[Row]) -> Figure:
    figure, axes = panels(
        2, 2, "Mean latency, updates that members asked others for, pairs of update and member that were lost, and the "
        f"share of attempts that brought the update in time, against the updates made in a round. {CONFIDENCE}",
    )  # fmt: skip
    columns = (
        ("latency_rounds", "Latency", "rounds", 1.0, VARIANTS),
        ("attempts", "Attempts to recover", "updates asked for", 1.0, ("source", "k")),
        ("lost_share", "Loss", "% of pairs", 100.0, VARIANTS),
        ("success", "Success of attempts", "%", 100.0, ("source", "k")),
    )
    for one, (column, title, unit, scale, variants) in zip(axes, columns, strict=True):
        for variant in variants:
            line(one, _by_load(rows, column, variant), LOOKS[variant], scale=scale)
        label(one, title, "updates made in a round", unit)
    axes[2].set_yscale("symlog", linthresh=0.01)
    axes[2].set_ylim(bottom=0)
    axes[3].set_ylim(90, 100.5)
    legend(figure, *axes, columns=2)
    return figure


def _weakness(rows: Sequence[Row]) -> Figure:
    figure, (left, right) = panels(
        1, 2, "Weak dissemination: fanout 2, 4 rounds, k = 2. The share of attempts that succeeded, and the loss that "
        f"remains, against the updates made in a round. {CONFIDENCE}", width=4.2,
    )  # fmt: skip
    for variant in ("source", "k"):
        line(left, _by_load(rows, "success", variant, "weak"), LOOKS[variant], scale=100)
        line(right, _by_load(rows, "lost_share", variant, "weak"), LOOKS[variant], scale=100)
    label(left, "Success of attempts", "updates made in a round", "%")
    label(right, "Loss", "updates made in a round", "% of pairs")
    right.set_ylim(bottom=0)
    legend(figure, left, right)
    return figure


STUDY = Study(
    name="cluster-load",
    version=1,
    title="Causal clusters: latency, attempts to recover, loss and success against the load",
    source=LCC05,
    description=(
        "All members make updates. Gossip alone, the ordered layer without recovery, with recovery from the source of "
        "an update and from k members see the same updates at the same times, and latencies that belong to sender, "
        "receiver and moment; whom a member gossips with is drawn alike, but not always the same. 0.2 % of the "
        "datagrams are lost. A second part disseminates weakly, so that there is more to recover."
    ),
    scales={
        "quick": _scale((0.6, 2.4, 6.0), members=60, seeds=3, rounds=50),
        "paper": _scale((0.6, 1.2, 2.4, 4.8, 7.8, 12.0), members=125, seeds=5, rounds=100),
    },
    run=run,
    claims=claims,
    figures=figures,
    words=WORDS,
)  # fmt: skip
