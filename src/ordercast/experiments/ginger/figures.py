"""The studies in pictures, as the source draws them: latency by guarantee, repair time by rounds, latency by keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from ordercast.experiments.ginger.claims import by_length, lengths_of, pausing_and_not
from ordercast.experiments.ginger.measures import GUARANTEES
from ordercast.experiments.ginger.reference import (
    PROTOTYPE_KEYS_MS,
    PROTOTYPE_MS,
    PROTOTYPE_ROUNDS_MS,
    SOURCE_REPAIR_MS,
)
from ordercast.experiments.ginger.repairs import Mended, repairs, took
from ordercast.experiments.ginger.scales import BY_FAULTS, KEYS, SMALL_BUFFER
from ordercast.experiments.ginger.setting import MAIN, PROCESSES, SCENARIOS
from ordercast.experiments.kit.figures import (
    CONFIDENCE,
    REFERENCE,
    Look,
    bars,
    drawn,
    label,
    legend,
    line,
    panels,
)
from ordercast.experiments.kit.results import Estimate, Point, Results, curve
from ordercast.experiments.kit.study import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOOKS = {
    "eventual": Look("eventual", "#56b4e9", "s", "--", hollow=True),
    "causal": Look("causal", "#0072b2", "o"),
    "total": Look("total", "#d55e00", "^"),
}
_COLOURS = {name: look.colour for name, look in _LOOKS.items()}
_SCENARIO_COLOURS = {
    "S1": "#e69f00", "S2": "#0072b2", "S3": "#009e73", "S4": "#d55e00", "S5": "#cc79a7", "E6": "#555555",
}  # fmt: skip
_SCENARIO_MARKERS = {"S1": "o", "S2": "s", "S3": "^", "S4": "D", "S5": "v", "E6": "P"}


def scenario_figures(table: pa.Table, directory: Path) -> list[Picture]:
    """Latency by guarantee and scenario; after the crash; and with real processes."""
    return drawn(Results(table), directory, {
        "latency-by-scenario": _latency, "latency-after-the-crash": _after, "simulated-and-real": _real,
    })  # fmt: skip


def repair_figures(table: pa.Table, directory: Path) -> list[Picture]:
    """Repair time against rounds, and by scenario."""
    return drawn(
        Results(table), directory, {"repair-time-by-rounds": repair_picture, "repair-time-by-scenario": _by_scenario}
    )


def fault_figures(table: pa.Table, directory: Path) -> list[Picture]:
    """Latency against faults, in the whole run and after the crash, and what a small buffer costs."""
    return drawn(Results(table), directory, {
        "latency-by-faults": _latency, "latency-after-the-crash": _after, "small-buffer": _buffer,
    })  # fmt: skip


def key_figures(table: pa.Table, directory: Path) -> list[Picture]:
    """Latency against keys, and against the length of the run."""
    return drawn(Results(table), directory, {"latency-by-keys": _keys, "latency-by-length": _length})


def _by_tag(results: Results, column: str, scenarios: tuple[str, ...] = SCENARIOS) -> dict[str, list[Estimate | None]]:
    return {tag: [results.get(f"{tag}_{column}", scenario=name, part=MAIN) for name in scenarios] for tag in GUARANTEES}


def _latency(results: Results) -> Figure:
    figure, both = panels(
        1, 2, "Latency from publication to delivery at the other members, by guarantee and scenario: S0 no fault, S1 "
        "and S2 one, S3 and S4 two, S5 three. Left the mean of the whole run, with the means of the prototype as black "
        f"lines, right the 95th percentile. {CONFIDENCE}", width=4.6,
    )  # fmt: skip
    references = {tag: [PROTOTYPE_MS[name][i] for name in SCENARIOS] for i, tag in enumerate(GUARANTEES)}
    bars(both[0], SCENARIOS, _by_tag(results, "ms_mean"), _COLOURS, references)
    bars(both[1], SCENARIOS, _by_tag(results, "ms_p95"), _COLOURS)
    label(both[0], "Mean of the whole run", "", "latency (ms)")
    label(both[1], "95th percentile of the whole run", "", "")
    legend(figure, both[0])
    return figure


def _after(results: Results) -> Figure:
    figure, both = panels(
        1, 2, "Latency of what was published within 5 s after the crash (in S0: at the same time), by guarantee and "
        "scenario, mean and 95th percentile. The number below a scenario is the most parent requests (rounds) that a "
        f"broker made. {CONFIDENCE}", width=4.6,
    )  # fmt: skip
    rounds = [results.mean("rounds_most", scenario=name, part=MAIN) for name in SCENARIOS]
    names = [f"{name}\n{found:.0f}" if found else name for name, found in zip(SCENARIOS, rounds, strict=True)]
    bars(both[0], names, _by_tag(results, "after_ms_mean"), _COLOURS)
    bars(both[1], names, _by_tag(results, "after_ms_p95"), _COLOURS)
    label(both[0], "Mean after the crash", "", "latency (ms)")
    label(both[1], "95th percentile after the crash", "", "")
    legend(figure, both[0])
    return figure


def _real(results: Results) -> Figure:
    names = sorted({str(row["scenario"]) for row in results.where(runs=PROCESSES)}) or ["S2"]
    figure, all_axes = panels(
        1, len(GUARANTEES), "Mean latency by guarantee, simulated, and with brokers as processes that are killed; "
        f"times of the processes multiplied by five, as everything was run in a fifth of the time. {CONFIDENCE}",
    )  # fmt: skip
    shades = {"simulated": "#999999", "real processes": "#009e73"}
    for axes, tag in zip(all_axes, GUARANTEES, strict=True):
        series = {
            "simulated": [results.get(f"{tag}_ms_mean", scenario=name, part=MAIN) for name in names],
            "real processes": [results.get(f"{tag}_ms_mean", scenario=name, runs=PROCESSES) for name in names],
        }
        bars(axes, names, series, shades)
        label(axes, tag, "", "mean latency (ms)")
    legend(figure, all_axes[0])
    return figure


def repair_picture(results: Results) -> Figure:
    """Every repair is a point; those of a scenario lie side by side."""
    figure, (left, right) = panels(
        1, 2, "Every mark is a repair of one broker in one run: from the loss of its parent to the last publication "
        "that it had missed, by its rounds (parent requests, refused, unanswered or accepted). The line joins the "
        "means, in which a repair that came out the same in several scenarios counts once; so many different ones are "
        "below each number of rounds. Grey bars: what the "
        "prototype took, smallest to largest, with constant latencies; dotted: "
        f"{SOURCE_REPAIR_MS:g} ms, the one time that the source prints, over a link that did not have the latency of "
        "its regions.", width=4.8,
    )  # fmt: skip
    every = list(repairs(results))
    for (first, last), times in PROTOTYPE_ROUNDS_MS.items():
        for rounds in range(first, last + 1):
            left.plot([rounds, rounds], times, color="#bbbbbb", linewidth=9, zorder=0, label="prototype")
    left.axhline(SOURCE_REPAIR_MS, linestyle=":", color=REFERENCE, label="source")
    _scatter(left, [repair for repair in every if not repair.elected])
    _scatter(right, [repair for repair in every if repair.elected and repair.parent])
    label(left, "Lost a parent that was not the root", "rounds", "until synchronised (ms)")
    label(right, "Lost the root: an election first", "rounds", "")
    legend(figure, left, right, columns=5, last=(*_SCENARIO_COLOURS, "mean", "prototype", "source"))
    return figure


def _scatter(axes: Axes, group: list[Mended]) -> None:
    names = [name for name in _SCENARIO_COLOURS if any(repair.scenario == name for repair in group)]
    for i, name in enumerate(names):
        shift = (i - (len(names) - 1) / 2) * 0.09
        points = [repair for repair in group if repair.scenario == name]
        axes.scatter(
            [repair.rounds + shift for repair in points],
            [repair.ms for repair in points],
            s=16,
            alpha=0.6,
            color=_SCENARIO_COLOURS[name],
            marker=_SCENARIO_MARKERS[name],
            label=name,
        )
    steps = sorted({repair.rounds for repair in group})
    means = [took(repair for repair in group if repair.rounds == step) for step in steps]
    axes.plot(steps, [found.mean for found in means if found], color="black", linewidth=1.2, label="mean")
    axes.set_xticks(steps, [f"{step}\n({found.n if found else 0})" for step, found in zip(steps, means, strict=True)])
    axes.set_ylim(bottom=0)


def _by_scenario(results: Results) -> Figure:
    every = list(repairs(results))
    names = [name for name in _SCENARIO_COLOURS if any(repair.scenario == name for repair in every)]
    figure, (axes,) = panels(
        1, 1, "Mean over the brokers that lost their parent, by scenario. Until attached: a new parent has accepted, "
        "or it is root. Until synchronised: it has what it had missed. Election: what the elected broker spent on it. "
        "Error bars: 95 % confidence over brokers and runs.", width=9.2,
    )  # fmt: skip
    kinds: dict[str, Callable[[Mended], float | None]] = {
        "until attached": lambda r: r.attached_ms,
        "until synchronised": lambda r: r.synchronised_ms,
        "election": lambda r: r.election_ms if not r.parent else None,
    }
    series = {
        kind: [took([repair for repair in every if repair.scenario == name], of) for name in names]
        for kind, of in kinds.items()
    }
    bars(axes, names, series, dict(zip(kinds, ("#56b4e9", "#0072b2", "#e69f00"), strict=True)))
    label(axes, "What a repair takes", "", "ms")
    legend(figure, axes)
    return figure


def _buffer(results: Results) -> Figure:
    names = BY_FAULTS[:3]
    figure, (axes,) = panels(
        1, 1, f"Mean latency of all guarantees if clients are asked to pause while a log has more than {SMALL_BUFFER} "
        "entries, as the source's bufferSize may be read, and if they are practically never, under the same seeds; no "
        f"fault, the root dies, the root and b1 die. {CONFIDENCE}", width=9.2,
    )  # fmt: skip
    kinds = (f"pause above {SMALL_BUFFER}", "no pause")
    pairs = [pausing_and_not(results, name) for name in names]
    series = dict(zip(kinds, map(list, zip(*pairs, strict=True)), strict=True))
    bars(axes, names, series, dict(zip(series, ("#d55e00", "#999999"), strict=True)))
    label(axes, "Clients that pause", "", "mean latency (ms)")
    legend(figure, axes)
    return figure


def _keys(results: Results) -> Figure:
    figure, all_axes = panels(
        2, 2, "Mean latency by guarantee against the number of keys, with 0 to 3 faults (S0, S2, S4, S5). One key is "
        "more than the system can serve: there the mean depends on the length of the run. Crosses: the prototype, "
        f"without faults. {CONFIDENCE}", width=4.6,
    )  # fmt: skip
    for faults, (axes, name) in enumerate(zip(all_axes, BY_FAULTS, strict=True)):
        for i, (tag, look) in enumerate(_LOOKS.items()):
            line(axes, curve(results.rows, f"{tag}_ms_mean", along="keys", scenario=name, part=MAIN), look)
            if not faults:
                values = [PROTOTYPE_KEYS_MS[keys][i] for keys in KEYS]
                axes.plot(KEYS, values, "x", color="black", markersize=7, zorder=5, label="prototype")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(KEYS, [str(keys) for keys in KEYS])
        axes.minorticks_off()
        axes.set_ylim(200, 60_000)
        label(axes, f"{faults} fault{'s' if faults != 1 else ''} ({name})", "keys", "mean latency (ms)")
    legend(figure, all_axes[0])
    return figure


def _length(results: Results) -> Figure:
    figure, (axes,) = panels(
        1, 1, "Mean latency of all guarantees without faults, against how long clients publish (20 publications a "
        f"second and client). What grows is a queue. {CONFIDENCE}", width=9.2,
    )  # fmt: skip
    kinds = {(1, "key"): Look("1 key", "#d55e00", "^"), (100, "key"): Look("100 keys", "#0072b2", "o", "--"),
             (100, "session"): Look("100 keys, order scope session", "#009e73", "s", hollow=True),
             (1000, "session"): Look("1000 keys, order scope session", "#cc79a7", "D", ":")}  # fmt: skip
    for (keys, scope), look in kinds.items():
        found = {length: by_length(results, keys, scope, length) for length in lengths_of(results)}
        points = [Point(length, value.mean, value.half) for length, value in found.items() if value]
        line(axes, points, look, scale=1e-3)
        axes.set_xticks([point.x for point in points])
    label(axes, "Queues", "operations per client", "mean latency (s)")
    axes.set_ylim(bottom=0)
    legend(figure, axes, columns=2)
    return figure
