"""Prints what `ordercast explore` found: sizes, a counterexample step by step, a schedule performed again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ordercast.cli.options import print_json
from ordercast.core.errors import UsageError
from ordercast.core.registry import is_code

if TYPE_CHECKING:
    from ordercast.explore import Counterexample, Exploration, Replay


def show(found: Exploration, out: Path | None, *, json: bool) -> None:
    from ordercast.explore import write_schedule

    counterexample = found.counterexample
    if counterexample is not None and out is not None:
        write_schedule(out, counterexample.schedule, counterexample.story)
    if json:
        print_json({"verdict": found.verdict, "result": found})
        return
    _show_sizes(found)
    if counterexample is not None:
        _show_counterexample(counterexample, found.violating, out)
    elif found.decided:
        typer.echo(f"{found.protocol}: holds in this scope")
    else:
        typer.echo(
            f"{found.protocol}: not decided within the limit; {found.configurations} of {found.scope} configurations "
            f"explored, and the whole scope has at least about {found.estimated_states():,} states"
        )


def _show_sizes(found: Exploration) -> None:
    typer.echo(f"{'messages':>8} {'configurations':>14} {'states':>12} {'transitions':>12} {'outcomes':>9}")
    for size in found.sizes:
        part = size.configurations if size.explored == size.configurations else f"{size.explored}/{size.configurations}"
        typer.echo(f"{size.messages:>8} {part!s:>14} {size.states:>12} {size.transitions:>12} {size.outcomes:>9}")
    memory = f"{found.bytes_per_state:,.0f} bytes per state, " if found.bytes_per_state else ""
    typer.echo(
        f"{found.seconds:.1f} s, {found.transitions_per_second:,.0f} transitions per second, {memory}"
        f"{found.machine_steps} distinct steps of machines",
        err=True,
    )


def _show_counterexample(counterexample: Counterexample, violating: list[str], out: Path | None) -> None:
    violation = counterexample.violation
    typer.echo(f"violated: {violation.check}: {violation.detail}")
    typer.echo(f"smallest configuration: {counterexample.configuration}")
    _show_story(counterexample.story, counterexample.orders)
    if len(violating) > 1:
        typer.echo(f"{len(violating)} configurations can go wrong:")
        for configuration in violating:
            typer.echo(f"  {configuration}")
    if out is not None:
        trust = " --trust" if is_code(counterexample.schedule.protocol) else ""
        typer.echo(f"replay: ordercast explore --replay {out}{trust}", err=True)


def write_scenario(counterexample: Counterexample, path: Path) -> None:
    from ordercast.explore import scenario_of
    from ordercast.protocols import lookup
    from ordercast.scenario.load import dump_scenario

    schedule = counterexample.schedule
    try:
        value = scenario_of(schedule, lookup(schedule.protocol))
    except UsageError as reason:
        typer.echo(f"no scenario: {reason}", err=True)  # The violation is what the exit code must tell.
        return
    if value is None:
        typer.echo("no scenario: its packets would need more than one latency on a link", err=True)
        return
    path.write_text(dump_scenario(value), encoding="utf-8")
    code = f" --protocol {schedule.protocol}" if is_code(schedule.protocol) else ""
    typer.echo(f"simulate: ordercast simulate {path}{code} --out RUN && ordercast verify RUN", err=True)


def _show_story(story: list[str], orders: list[str]) -> None:
    for number, line in enumerate(story, 1):
        typer.echo(f"  {number:>3}. {line}")
    typer.echo("delivered: " + "; ".join(orders))


def show_replay(done: Replay, *, json: bool) -> None:
    if json:
        print_json(done)
    else:
        _show_story(done.story, done.orders)
        violation = done.violation
        typer.echo("no violation" if violation is None else f"violated: {violation.check}: {violation.detail}")
        if done.recorded is not None and done.recorded != violation:
            typer.echo(f"the schedule was recorded with another end: {done.recorded.detail}", err=True)
