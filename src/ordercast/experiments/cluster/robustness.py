"""X3: loss of datagrams, crashes, slow links, bursts with and without digests, and entries that change hands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from ordercast.experiments.cluster.load import LOOKS
from ordercast.experiments.cluster.measures import measured
from ordercast.experiments.cluster.setting import ClusterSetting
from ordercast.experiments.cluster.sources import ENTRY_WORDS, LCC05, WORDS
from ordercast.experiments.kit.claims import all_of, guarantees_hold
from ordercast.experiments.kit.figures import CONFIDENCE, drawn, label, legend, line, panels
from ordercast.experiments.kit.results import Curve, Number, Results, curve, means
from ordercast.experiments.kit.study import PROTOTYPE, Picture, Row, SourceClaim, Study, Value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_RECOVERIES = ("none", "source", "k")


def _scale(losses: Sequence[float], crashes: Sequence[float], members: int, seeds: int, rounds: int) -> list[Row]:
    common: Row = {
        "members": members, "updaters": members, "rounds": rounds, "ttl": 4, "events_per_round": 3.0, "loss": 0.002,
        "crashed": 0.0, "slow": 0.0, "burst": 0, "digest_every": 1, "hand_over": 0,
    }  # fmt: skip
    changes: list[Row] = [{"part": "loss", "loss": loss} for loss in losses]
    changes += [{"part": "crashes", "crashed": share, "loss": 0.05} for share in crashes]
    changes += [{"part": "slow", "slow": 0.05, "loss": 0.05, "crashed": 0.1}]
    points = [{**common, **change, "variant": variant} for change in changes for variant in _RECOVERIES]
    points += [
        {**common, "part": "bursts", "rounds": 4 * rounds, "burst": 2, "loss": 0.1, "ttl": 3,
         "digest_every": every, "variant": "k"}
        for every in (0, 1)
    ]  # fmt: skip
    points += [
        {**common, "part": "hand-over", "updaters": 5, "events_per_round": 2.0, "ttl": 5, "hand_over": every,
         "variant": "k"}
        for every in (0, 5)
    ]  # fmt: skip
    return [{**point, "seed": seed} for point in points for seed in range(seeds)]


def run(parameters: Row) -> Row:
    setting = ClusterSetting.of(parameters)
    if setting.hand_over:
        from ordercast.experiments.cluster.hand_over import measured_hand_overs

        return measured_hand_overs(setting)
    return {**measured(setting), "epochs": None, "two_makers": None}


def claims(results: pa.Table) -> list[SourceClaim]:
    found = Results(results)
    return [
        guarantees_hold(found.rows, "Whatever fails, nothing is delivered out of causal order, or twice.", what="part"),
        _recovery_helps(found),
        _k_beats_source_with_loss(found),
        _k_beats_source_with_crashes(found),
        _digests(found),
        _no_entry_has_two_owners(found),
        _hand_over_loses_little(found),
    ]


def _loss(found: Results, **fixed: Value) -> Number:
    return found.mean("lost_share", **fixed)


def _by(found: Results, part: str, along: str, variant: str) -> Curve:
    return curve(found.rows, "lost_share", along=along, part=part, variant=variant)


def _recovery_helps(found: Results) -> SourceClaim:
    pairs = []
    for part, along in (("loss", "loss"), ("crashes", "crashed")):
        none = means(_by(found, part, along, "none"))
        for variant in ("source", "k"):
            with_it = means(_by(found, part, along, variant))
            pairs += [(none[x], with_it[x]) for x in none.keys() & with_it.keys()]
    return SourceClaim(
        id="recovery-helps-everywhere", source=LCC05,
        statement="At every loss of datagrams and every share of crashes, recovery loses less than no recovery.",
        measured=f"less in {sum(b < a or a == b == 0 for a, b in pairs)} of {len(pairs)} comparisons",
        holds=all(b < a or a == b == 0 for a, b in pairs) if pairs else None,
    )  # fmt: skip


def _compared(found: Results, part: str, **fixed: Value) -> tuple[str, dict[str, Number]]:
    losses = {variant: _loss(found, part=part, variant=variant, **fixed) for variant in _RECOVERIES}
    return ", ".join(f"{name} {'?' if loss is None else f'{loss:.3%}'}" for name, loss in losses.items()), losses


def _less(one: Number, other: Number) -> bool | None:
    return None if one is None or other is None else one < other


def _k_beats_source_with_loss(found: Results) -> SourceClaim:
    told, losses = _compared(found, "loss", loss=0.1)
    return SourceClaim(
        id="k-beats-source-with-loss", source=PROTOTYPE,
        statement="With 10 % of the datagrams lost, k-recovery loses less than source recovery.",
        measured=told, holds=_less(losses["k"], losses["source"]),
    )  # fmt: skip


def _k_beats_source_with_crashes(found: Results) -> SourceClaim:
    shares = sorted({row["crashed"] for row in found.rows if row["part"] == "crashes" and row["crashed"]}, key=str)
    told = {share: _compared(found, "crashes", crashed=share) for share in shares}
    return SourceClaim(
        id="k-beats-source-with-crashes", source=PROTOTYPE,
        statement="With crashes and 5 % of the datagrams lost, k-recovery loses less than source recovery.",
        measured="; ".join(f"{share}: {said}" for share, (said, _) in told.items()),
        holds=all_of(_less(losses["k"], losses["source"]) for _, losses in told.values()),
    )  # fmt: skip


def _digests(found: Results) -> SourceClaim:
    without, with_them = (_loss(found, part="bursts", digest_every=every) for every in (0, 1))
    known = without is not None and with_them is not None
    return SourceClaim(
        id="digests-end-silent-loss", source=PROTOTYPE,
        statement="Where updates come in short bursts, digests cut the loss at least to a fifth: without them nobody "
        "notices that the last update before a silence is missing.",
        measured=f"{without:.2%} without, {with_them:.2%} with digests" if known else "nothing",
        holds=with_them <= without / 5 if without is not None and with_them is not None else None,
    )  # fmt: skip


def _no_entry_has_two_owners(found: Results) -> SourceClaim:
    rows = [row for row in found.rows if row["hand_over"]]
    epochs, two = (sum(int(row[name] or 0) for row in rows) for name in ("epochs", "two_makers"))
    return SourceClaim(
        id="no-entry-has-two-owners", source=PROTOTYPE,
        statement="However often entries change hands, no two updates ever have the same entry, epoch and number.",
        measured=f"{epochs} owners of entries in {len(rows)} runs, {two} updates with a stamp that was taken",
        holds=two == 0 if epochs else None,
    )  # fmt: skip


def _hand_over_loses_little(found: Results) -> SourceClaim:
    steady, changing = (_loss(found, part="hand-over", hand_over=every) for every in (0, 5))
    return SourceClaim(
        id="hand-over-loses-little", source=PROTOTYPE,
        statement="Entries that change hands every 5 rounds add less than 0.5 % of loss.",
        measured="nothing" if steady is None or changing is None else f"{steady:.3%} without, {changing:.3%} with",
        holds=None if steady is None or changing is None else changing - steady < 0.005,
    )  # fmt: skip


def figures(results: pa.Table, directory: Path) -> list[Picture]:
    return drawn(Results(results), directory, {"robustness": _robustness})


def _robustness(found: Results) -> Figure:
    figure, (left, right) = panels(
        1, 2, "Left: pairs of update and member that were lost, against the share of datagrams that were lost. Right: "
        f"against the share of members that crashed, with 5 % of the datagrams lost. {CONFIDENCE}", width=4.2,
    )  # fmt: skip
    for variant in _RECOVERIES:
        line(left, _by(found, "loss", "loss", variant), LOOKS[variant], scale=100)
        line(right, _by(found, "crashes", "crashed", variant), LOOKS[variant], scale=100)
    label(left, "Lost datagrams", "share of datagrams lost", "loss, % of pairs")
    label(right, "Crashes", "share of members that crash", "loss, % of pairs")
    for axes, part, along in ((left, "loss", "loss"), (right, "crashes", "crashed")):
        axes.set_yscale("symlog", linthresh=0.01)
        axes.set_ylim(bottom=0)
        axes.set_xticks([point.x for point in _by(found, part, along, "k")])
    legend(figure, left, right)
    return figure


STUDY = Study(
    name="cluster-robustness",
    version=1,
    title="Causal clusters: what lost datagrams, crashes, slow links, bursts and changing coordinators do",
    source=LCC05,
    description=(
        "Members gossip for 4 rounds with fanout 4 and make 3 updates a round. Varied: the share of datagrams that are "
        "lost, the share of members that crash for good, links that take 5 rounds longer; bursts of updates with "
        "silence in between, with and without digests; entries that are leased from three managers and given back "
        "every 5 rounds."
    ),
    scales={
        "quick": _scale((0.0, 0.1, 0.3), (0.0, 0.2), members=30, seeds=3, rounds=40),
        "paper": _scale((0.0, 0.05, 0.1, 0.2, 0.3), (0.0, 0.05, 0.1, 0.2), members=60, seeds=10, rounds=100),
    },
    run=run,
    claims=claims,
    figures=figures,
    words={**WORDS, **ENTRY_WORDS, "epoch": "one ownership of an entry; an update's stamp is entry, epoch and number"},
)  # fmt: skip
