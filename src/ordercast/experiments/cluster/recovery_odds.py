"""X4: how likely an update is still in a buffer, beside the source's bound; and recovery against crashes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from ordercast.experiments.cluster.closed_forms import answered, bound, slots_for, tail
from ordercast.experiments.cluster.group import Group
from ordercast.experiments.cluster.measures import deliveries, order, recovery
from ordercast.experiments.cluster.setting import CLUSTER, ClusterSetting
from ordercast.experiments.cluster.sources import LCC05, WORDS
from ordercast.experiments.kit.claims import guarantees_hold
from ordercast.experiments.kit.figures import CONFIDENCE, REFERENCE, Look, drawn, label, line, own_legend, panels
from ordercast.experiments.kit.results import Curve, Results, curve, listed
from ordercast.experiments.kit.study import PROTOTYPE, Picture, Row, SourceClaim, Study
from ordercast.protocols.cluster.events import Event
from ordercast.protocols.cluster.recovery import RecoveryBuffer
from ordercast.sim.run import rare_collections

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MEMBERS = 50
_TWICE = 2.0
_ACCEPTED = 1e-3
_ASKED = (1, 2, 4)
_LEAST_PERCENT = 0.01
"""Below, a figure goes on to nothing at all: buffers that lost nothing are points, too."""
_LOOKS = {
    "source": Look("from the source", "#009e73", "D", "-."),
    1: Look("k = 1", "#cc79a7", "v", ":"),
    2: Look("k = 2", "#d55e00", "^", "--"),
    4: Look("k = 4", "#0072b2"),
}


def _scale(
    means: Sequence[tuple[float, int]], factors: Sequence[float], crashes: Sequence[float], seeds: int, rounds: int
) -> list[Row]:
    """`means`: updates a round and rounds waited, which make the mean together. Runs of buffers are short: more."""
    buffers: list[Row] = [
        {"part": "buffer", "events_per_round": load, "wait_rounds": wait, "factor": factor, "crashed": 0.0,
         "variant": "none", "ask": 0, "rounds": rounds, "seed": seed}
        for load, wait in means for factor in factors for seed in range(3 * seeds)
    ]  # fmt: skip
    recoveries: list[Row] = [
        {"part": "crashes", "events_per_round": 3.0, "wait_rounds": 0, "factor": 0.0, "crashed": share,
         "variant": variant, "ask": ask, "rounds": rounds, "seed": seed}
        for share in crashes for variant, ask in (("source", 1), *(("k", asked) for asked in _ASKED))
        for seed in range(seeds)
    ]  # fmt: skip
    return buffers + recoveries


def run(parameters: Row) -> Row:
    return _buffer(parameters) if parameters["part"] == "buffer" else _crashes(parameters)


class _Watched(RecoveryBuffer):
    """Looks, some time after an update came in, whether it is still there."""

    def __init__(self, slots: int, group: Group, wait_ns: int, seen: list[bool]) -> None:
        super().__init__(slots)
        self.group, self.wait_ns, self.seen = group, wait_ns, seen

    def store(self, event: Event, born: int = 0) -> None:
        if event.key not in self.events:
            clock = self.group.world.clock
            clock.at(clock.now + self.wait_ns, self._look, event.key)
        super().store(event, born)

    def _look(self, key: int, _: None) -> None:
        self.seen.append(key in self.events)


def _buffer(parameters: Row) -> Row:
    """Availability of every update at every member, some rounds after it came there."""
    load, wait = cast("float", parameters["events_per_round"]), cast("int", parameters["wait_rounds"])
    mean, trials = load * wait, _MEMBERS * wait
    factor = cast("float", parameters["factor"])
    slots = math.ceil(factor * mean) if factor else slots_for(trials, load / _MEMBERS, _ACCEPTED)
    setting = ClusterSetting(
        members=_MEMBERS, updaters=_MEMBERS, events_per_round=load, variant="none", buffer=slots, ttl=5,
        rounds=cast("int", parameters["rounds"]) + 2 * wait, seed=cast("int", parameters["seed"]), loss=0.0,
    )  # fmt: skip
    group = Group(setting)
    seen: list[bool] = []
    for process in group.world.processes.values():
        process.build = _watching(process.build, group, slots, round(wait * setting.round_ms * 1e6), seen)
    with rare_collections():
        group.live_until(setting.rounds)
    return {
        **order(group), "slots": slots, "mean": mean, "probes": len(seen), "unavailable": 1 - fmean(seen),
        "exact": tail(trials, load / _MEMBERS, slots), "bound": bound(mean, slots), "attempts": None, "success": None,
        "dead_at_attempts": None, "predicted": None,
    }  # fmt: skip


def _watching(build: Any, group: Group, slots: int, wait_ns: int, seen: list[bool]) -> Any:
    def built(wires: Any, peer: Any) -> Any:
        machine = build(wires, peer)
        machine.clusters[CLUSTER].delivery.buffer = _Watched(slots, group, wait_ns, seen)
        return machine

    return built


def _crashes(parameters: Row) -> Row:
    """Weak dissemination, so that there is much to recover, while members crash for good."""
    setting = ClusterSetting.of({**parameters, "members": 60, "updaters": 60, "fanout": 2, "ttl": 4, "loss": 0.01})
    group = Group(setting)
    with rare_collections():
        group.live()
    times = [time for (member, _, _), time in group.attempts.items() if member not in group.crashed]
    dead = fmean(group.dead_at(time) for time in times) / setting.members if times else 0.0
    has_it = 1 - cast("float", deliveries(group)["unheard"])
    return {
        **order(group), "slots": setting.buffer, "mean": None, "probes": None, "unavailable": None, "exact": None,
        "bound": None, **recovery(group), "dead_at_attempts": dead,
        "predicted": answered(setting.ask, dead, has_it, setting.loss) if setting.variant == "k" else None,
    }  # fmt: skip


def claims(results: pa.Table) -> list[SourceClaim]:
    found = Results(results)
    buffers = [row for row in found.rows if row["part"] == "buffer" and row["probes"]]
    return [
        guarantees_hold(found.rows, "No run delivers an update out of causal order, or twice.", what="part"),
        _theorem(buffers),
        _never_beaten(buffers),
        _exact_tail(buffers),
        _sized_exactly(buffers),
        _more_asked_more_found(found),
        _crashes_hurt_source(found),
        _independence(found),
    ]


def _theorem(buffers: Sequence[Row]) -> SourceClaim:
    runs = [row for row in buffers if row["factor"] == _TWICE]
    kept = [float(row["unavailable"] or 0) <= float(row["bound"] or 0) for row in runs]
    return SourceClaim(
        id="buffer-theorem", source=LCC05,
        statement="With 2 m p T slots an update is gone after T rounds with a probability of at most (e/4)^(m p T).",
        measured=_told(runs), holds=all(kept) if kept else None,
    )  # fmt: skip


def _never_beaten(buffers: Sequence[Row]) -> SourceClaim:
    broken = [row for row in buffers if float(row["unavailable"] or 0) > float(row["bound"] or 0)]
    return SourceClaim(
        id="bound-never-beaten", source=PROTOTYPE,
        statement="The bound in its general form holds for every size of the buffer.",
        measured=f"broken in {len(broken)} of {len(buffers)} runs", holds=not broken if buffers else None,
    )  # fmt: skip


def _points(buffers: Sequence[Row]) -> dict[tuple[float, float], tuple[float, float, float]]:
    """By mean and slots: unavailability over all runs, the exact tail, the bound."""
    points: dict[tuple[float, float], list[Row]] = {}
    for row in buffers:
        points.setdefault((float(row["mean"] or 0), float(row["slots"] or 0)), []).append(row)
    return {
        point: (_mean(rows, "unavailable"), _mean(rows, "exact"), _mean(rows, "bound"))
        for point, rows in sorted(points.items())
    }


def _mean(rows: Sequence[Row], column: str) -> float:
    return fmean(float(row[column] or 0) for row in rows)


def _told(rows: Sequence[Row]) -> str:
    return "; ".join(
        f"mean {mean:g}, {slots:g} slots: {gone:.2%} (exact {exact:.2%}, bound {most:.2%})"
        for (mean, slots), (gone, exact, most) in _points(rows).items()
    )


def _exact_tail(buffers: Sequence[Row]) -> SourceClaim:
    likely = {point: found for point, found in _points(buffers).items() if found[1] >= 10 * _ACCEPTED}
    return SourceClaim(
        id="exact-tail", source=PROTOTYPE,
        statement="What is measured is within a factor of 3 of the exact binomial tail, where that is 1 % or more.",
        measured=f"{len(likely)} points; measured over exact: "
        + ", ".join(f"{gone / exact:.2f}" for gone, exact, _ in likely.values()),
        holds=all(exact / 3 <= gone <= exact * 3 for gone, exact, _ in likely.values()) if likely else None,
    )  # fmt: skip


def _sized_exactly(buffers: Sequence[Row]) -> SourceClaim:
    runs = [row for row in buffers if not row["factor"]]
    gone = _mean(runs, "unavailable") if runs else 0.0
    return SourceClaim(
        id="sized-by-the-exact-tail", source=PROTOTYPE,
        statement=f"A buffer sized by the exact tail for {_ACCEPTED:g} loses no more than three times that.",
        measured=_told(runs), holds=gone <= 3 * _ACCEPTED if runs else None,
    )  # fmt: skip


def _success(found: Results, variant: str, ask: int) -> Curve:
    return curve(found.rows, "success", along="crashed", part="crashes", variant=variant, ask=ask)


def _more_asked_more_found(found: Results) -> SourceClaim:
    curves = {ask: _success(found, "k", ask) for ask in _ASKED}
    pairs = [
        (low.mean, high.mean)
        for fewer, more in pairwise(_ASKED)
        for low, high in zip(curves[fewer], curves[more], strict=False)
    ]
    return SourceClaim(
        id="more-asked-more-found", source=LCC05,
        statement="The more members are asked, the more often one of them has the update, whatever the crashes.",
        measured="; ".join(f"k = {ask}: {listed(points, 1, '%', scale=100)}" for ask, points in curves.items()),
        holds=all(low <= high for low, high in pairs) if pairs else None,
    )  # fmt: skip


def _crashes_hurt_source(found: Results) -> SourceClaim:
    source, k = _success(found, "source", 1), _success(found, "k", 4)
    falls = (source[0].mean - source[-1].mean, k[0].mean - k[-1].mean) if len(source) > 1 and len(k) > 1 else None
    return SourceClaim(
        id="crashes-hurt-source-recovery-most", source=LCC05,
        statement="Crashes cost source recovery more of its success than recovery from 4 members.",
        measured=f"source: {listed(source, 1, '%', scale=100)}; k = 4: {listed(k, 1, '%', scale=100)}",
        holds=falls[0] > falls[1] if falls else None,
    )  # fmt: skip


def _independence(found: Results) -> SourceClaim:
    rows = [row for row in found.rows if row["predicted"] is not None and row["success"] is not None]
    gaps = [float(row["success"] or 0) - float(row["predicted"] or 0) for row in rows]
    return SourceClaim(
        id="independent-targets-predict", source=PROTOTYPE,
        statement="Success is at least what independent answers of k members with the mean availability predict, less "
        "5 points: members also recover by asking for other updates, and again.",
        measured=f"measured minus predicted, lowest and highest of {len(gaps)} runs: {min(gaps):+.1%}, {max(gaps):+.1%}"
        if gaps else "nothing",
        holds=min(gaps) >= -0.05 if gaps else None,
    )  # fmt: skip


def figures(results: pa.Table, directory: Path) -> list[Picture]:
    return drawn(Results(results), directory, {"recovery-odds": odds_picture})


def odds_picture(found: Results) -> Figure:
    buffers = [row for row in found.rows if row["part"] == "buffer"]
    means = sorted({float(row["mean"] or 0) for row in buffers})
    figure, axes = panels(
        len(means) // 2 + 1, 2, "By m p T: how often an update has left the buffer of a member T rounds after it came, "
        "against the slots over the mean m p T of updates made in that time: measured, the exact tail, and the "
        f"source's bound. Last: the share of attempts to recover that succeed while members crash. {CONFIDENCE}",
    )  # fmt: skip
    for unused in axes[len(means) + 1 :]:
        unused.remove()
    for one, mean in zip(axes, means, strict=False):
        rows: list[Row] = [{**row, "over": float(row["slots"] or 0) / mean} for row in buffers if row["mean"] == mean]
        line(one, curve(rows, "unavailable", along="over"), Look("measured", "#0072b2"), scale=100)
        line(one, curve(rows, "exact", along="over"), Look("exact tail", "#d55e00", "^", "--"), scale=100)
        line(one, curve(rows, "bound", along="over"), Look("bound", REFERENCE, "s", ":", hollow=True), scale=100)
        one.set_yscale("symlog", linthresh=_LEAST_PERCENT)
        one.set_ylim(bottom=0)
        label(one, f"m p T = {mean:g}", "slots over m p T", "% gone")
        own_legend(one)
    last = axes[len(means)]
    line(last, _success(found, "source", 1), _LOOKS["source"], scale=100)
    for ask in _ASKED:
        line(last, _success(found, "k", ask), _LOOKS[ask], scale=100)
    label(last, "Recovery while members crash", "share that crashes", "% of attempts that succeed")
    own_legend(last)
    return figure


STUDY = Study(
    name="cluster-recovery-odds",
    version=1,
    title="Causal clusters: recovery against the size of buffers and the share of crashes, beside the source's bound",
    source=LCC05,
    description=(
        "50 members, all of which make updates, keep what comes in FIFO buffers of several sizes, and some rounds "
        "later it is looked whether it is still there. Then 60 members disseminate weakly (fanout 2, 4 rounds, 1 % of "
        "the datagrams lost), so that there is much to recover, while some of them crash for good."
    ),
    scales={
        "quick": _scale(((1.0, 5), (1.0, 10)), (1.0, 1.5, 2.0, 0.0), (0.0, 0.2, 0.4), seeds=2, rounds=60),
        "paper": _scale(
            ((1.0, 5), (1.0, 10), (1.0, 15)), (1.0, 1.25, 1.5, 1.75, 2.0, 0.0), (0.0, 0.1, 0.2, 0.3, 0.4), seeds=10,
            rounds=300,
        ),
    },
    run=run,
    claims=claims,
    figures=figures,
    words={**WORDS, "m p T": "updaters, times the probability that one makes an update in a round, times rounds"},
)  # fmt: skip
