"""The studies in pictures, as the source draws them: latency by guarantee, repair time by rounds, latency by keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from ordercast.experiments.ginger.figures_common import REFERENCE, STYLE, bars, colours, drawn, legend, panels
from ordercast.experiments.ginger.measures import GUARANTEES
from ordercast.experiments.ginger.reference import PROTOTYPE_KEYS_MS, PROTOTYPE_MS
from ordercast.experiments.ginger.repairs import Mended, repairs
from ordercast.experiments.ginger.results import Estimate, Results, estimate
from ordercast.experiments.ginger.scales import BUFFER, BY_FAULTS, KEYS, LENGTH, SMALL_BUFFER
from ordercast.experiments.ginger.setting import MAIN, PROCESSES, SCENARIOS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CONFIDENCE = "Bars: 95 % confidence over the seeds."
_SCENARIO_COLOURS = {
    "S1": "#e69f00", "S2": "#0072b2", "S3": "#009e73", "S4": "#d55e00", "S5": "#cc79a7", "E6": "#555555",
}  # fmt: skip
_MS = "ms"


def scenario_figures(table: pa.Table, directory: Path) -> list[Path]:
    """Latency by guarantee and scenario; after the crash; and with real processes."""
    return drawn(table, directory, {
        "latency-by-scenario": _latency, "latency-after-the-crash": _after, "simulated-and-real": _real,
    })  # fmt: skip


def repair_figures(table: pa.Table, directory: Path) -> list[Path]:
    """Repair time against rounds, and by scenario."""
    return drawn(table, directory, {"repair-time-by-rounds": _rounds, "repair-time-by-scenario": _by_scenario})


def fault_figures(table: pa.Table, directory: Path) -> list[Path]:
    """Latency against faults, in the whole run and after the crash, and what a small buffer costs."""
    return drawn(table, directory, {
        "latency-by-faults": _latency, "latency-after-the-crash": _after, "small-buffer": _buffer,
    })  # fmt: skip


def key_figures(table: pa.Table, directory: Path) -> list[Path]:
    """Latency against keys, and against the length of the run."""
    return drawn(table, directory, {"latency-by-keys": _keys, "latency-by-length": _length})


def _by_tag(results: Results, column: str, scenarios: tuple[str, ...] = SCENARIOS) -> dict[str, list[Estimate | None]]:
    return {tag: [results.get(f"{tag}_{column}", scenario=name, part=MAIN) for name in scenarios] for tag in GUARANTEES}


def _latency(results: Results) -> Figure:
    figure, (left, right) = panels(
        2,
        "Latency from publication to delivery at the other members, by guarantee; S0 no fault, S1 and S2 one, S3 and "
        f"S4 two, S5 three. Black lines: the prototype's means. {_CONFIDENCE}",
        width=4.6,
    )
    references = {tag: [PROTOTYPE_MS[name][i] for name in SCENARIOS] for i, tag in enumerate(GUARANTEES)}
    bars(left, SCENARIOS, _by_tag(results, "ms_mean"), colours(GUARANTEES), references)
    bars(right, SCENARIOS, _by_tag(results, "ms_p95"), colours(GUARANTEES))
    left.set_title("Mean of the whole run", fontsize=10)
    right.set_title("95th percentile of the whole run", fontsize=10)
    left.set_ylabel("latency (ms)")
    legend(figure, left)
    return figure


def _after(results: Results) -> Figure:
    figure, (left, right) = panels(
        2,
        "What was published within 5 s after the crash (in S0: at the same time), with the most parent requests that a "
        f"broker made below. {_CONFIDENCE}",
        width=4.6,
    )
    rounds = [results.mean("rounds_most", scenario=name, part=MAIN) for name in SCENARIOS]
    names = [f"{name}\n{found:.0f}" if found else name for name, found in zip(SCENARIOS, rounds, strict=True)]
    bars(left, names, _by_tag(results, "after_ms_mean"), colours(GUARANTEES))
    bars(right, names, _by_tag(results, "after_ms_p95"), colours(GUARANTEES))
    left.set_title("Mean after the crash", fontsize=10)
    right.set_title("95th percentile after the crash", fontsize=10)
    left.set_ylabel("latency (ms)")
    legend(figure, left)
    return figure


def _real(results: Results) -> Figure:
    names = sorted({str(row["scenario"]) for row in results.where(runs=PROCESSES)}) or ["S2"]
    figure, all_axes = panels(
        len(GUARANTEES),
        "Mean latency, simulated, and with brokers as processes that are killed; times of the processes multiplied by "
        f"five, as everything was run in a fifth of the time. {_CONFIDENCE}",
    )
    shades = {"simulated": "#999999", "real processes": "#009e73"}
    for axes, tag in zip(all_axes, GUARANTEES, strict=True):
        series = {
            "simulated": [results.get(f"{tag}_ms_mean", scenario=name, part=MAIN) for name in names],
            "real processes": [results.get(f"{tag}_ms_mean", scenario=name, runs=PROCESSES) for name in names],
        }
        bars(axes, names, series, shades)
        axes.set_title(tag, fontsize=10)
    all_axes[0].set_ylabel("mean latency (ms)")
    legend(figure, all_axes[0])
    return figure


def _rounds(results: Results) -> Figure:
    """Every repair is a point; those of a scenario lie side by side."""
    figure, (left, right) = panels(
        2,
        "Every point is a repair of one broker: from the loss of its parent to the last publication that it had "
        "missed. A round is a parent request, refused, unanswered or accepted. The line joins the means. Latencies are "
        "constant, so the repairs of one broker in one scenario coincide, whatever the seed.",
        width=4.8,
    )
    every = list(repairs(results))
    _scatter(left, [repair for repair in every if not repair.elected])
    left.set_title("Lost a parent that was not the root", fontsize=10)
    _scatter(right, [repair for repair in every if repair.elected and repair.parent])
    right.set_title("Lost the root: an election first", fontsize=10)
    left.set_ylabel("until synchronised (ms)")
    legend(figure, left, right)
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
            label=name,
        )
    steps = sorted({repair.rounds for repair in group})
    means = [estimate([repair.ms for repair in group if repair.rounds == step]) for step in steps]
    axes.plot(steps, [found.mean for found in means if found], color="black", linewidth=1.2, label="mean")
    axes.set_xticks(steps)
    axes.set_xlabel("rounds")
    axes.set_ylim(bottom=0)


def _by_scenario(results: Results) -> Figure:
    every = list(repairs(results))
    names = [name for name in _SCENARIO_COLOURS if any(repair.scenario == name for repair in every)]
    figure, (axes,) = panels(
        1,
        "Mean over the brokers that lost their parent. Until attached: a new parent has accepted, or it is root. "
        "Election: what the elected broker spent on it. Bars: 95 % confidence over brokers and seeds.",
        width=9.2,
    )
    kinds: dict[str, Callable[[Mended], float | None]] = {
        "until attached": lambda r: r.attached_ms,
        "until synchronised": lambda r: r.synchronised_ms,
        "election": lambda r: r.election_ms if not r.parent else None,
    }
    series = {
        kind: [
            estimate([value for r in every if r.scenario == name and (value := of(r)) is not None]) for name in names
        ]
        for kind, of in kinds.items()
    }
    bars(axes, names, series, dict(zip(kinds, ("#56b4e9", "#0072b2", "#e69f00"), strict=True)))
    axes.set_ylabel(_MS)
    legend(figure, axes)
    return figure


def _buffer(results: Results) -> Figure:
    names = BY_FAULTS[:3]
    figure, (axes,) = panels(
        1,
        f"Mean latency of all guarantees if clients are asked to pause while a log has more than {SMALL_BUFFER} "
        f"entries, as the source's bufferSize may be read, and if they are practically never. {_CONFIDENCE}",
        width=9.2,
    )
    series = {
        f"pause above {SMALL_BUFFER}": [results.get("all_ms_mean", scenario=name, part=BUFFER) for name in names],
        "no pause": [results.get("all_ms_mean", scenario=name, part=MAIN) for name in names],
    }
    bars(axes, names, series, dict(zip(series, ("#d55e00", "#999999"), strict=True)))
    axes.set_ylabel("mean latency (ms)")
    legend(figure, axes)
    return figure


def _keys(results: Results) -> Figure:
    figure, all_axes = panels(
        len(BY_FAULTS),
        "Mean latency against the number of keys, 0 to 3 faults (S0, S2, S4, S5). One key is more than the system can "
        f"serve: there the mean depends on the length of the run. Crosses: the prototype. {_CONFIDENCE}",
        width=4.6,
        rows=2,
    )
    for faults, (axes, name) in enumerate(zip(all_axes, BY_FAULTS, strict=True)):
        for i, tag in enumerate(GUARANTEES):
            _line(axes, results, tag, name)
            if not faults:
                values = [PROTOTYPE_KEYS_MS[keys][i] for keys in KEYS]
                axes.plot(KEYS, values, "x", color=REFERENCE, label="prototype" if not i else None)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(KEYS, [str(keys) for keys in KEYS])
        axes.minorticks_off()
        axes.set_ylim(200, 60_000)
        axes.set_title(f"{faults} fault{'s' if faults != 1 else ''} ({name})", fontsize=10)
        axes.set_xlabel("keys")
        axes.set_ylabel("mean latency (ms)")
    legend(figure, all_axes[0])
    return figure


def _line(axes: Axes, results: Results, tag: str, scenario: str) -> None:
    found = [(keys, results.get(f"{tag}_ms_mean", scenario=scenario, keys=keys, part=MAIN)) for keys in KEYS]
    known = [(keys, value) for keys, value in found if value is not None]
    colour, marker = STYLE[tag]
    axes.errorbar(
        [keys for keys, _ in known],
        [value.mean for _, value in known],
        yerr=[value.half for _, value in known],
        color=colour,
        marker=marker,
        markersize=8 if tag == "eventual" else 4.5,  # It mostly lies behind that of causal.
        markerfacecolor="white" if tag == "eventual" else colour,
        linewidth=1.3,
        capsize=2,
        label=tag,
    )


def _length(results: Results) -> Figure:
    figure, (axes,) = panels(
        1,
        "Mean latency of all guarantees without faults, against how long clients publish (20 publications a second and "
        f"client). What grows is a queue. {_CONFIDENCE}",
        width=9.2,
    )
    lengths = sorted({int(row["operations"] or 0) for row in results.where(part=LENGTH)})
    kinds = {(1, "key"): ("1 key", "#d55e00", "^"), (100, "key"): ("100 keys", "#0072b2", "o"),
             (100, "session"): ("100 keys, order scope session", "#009e73", "s"),
             (1000, "session"): ("1000 keys, order scope session", "#cc79a7", "D")}  # fmt: skip
    for (keys, scope), (label, colour, marker) in kinds.items():
        found = [
            (n, results.get("all_ms_mean", part=LENGTH, keys=keys, order_scope=scope, operations=n)) for n in lengths
        ]
        known = [(n, value) for n, value in found if value is not None]
        axes.errorbar([n for n, _ in known], [v.mean / 1000 for _, v in known], yerr=[v.half / 1000 for _, v in known],
                      color=colour, marker=marker, markersize=5, linewidth=1.3, capsize=2, label=label)  # fmt: skip
    axes.set_xticks(lengths)
    axes.set_xlabel("operations per client")
    axes.set_ylabel("mean latency (s)")
    axes.set_ylim(bottom=0)
    legend(figure, axes)
    return figure
