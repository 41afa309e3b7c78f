"""Verdicts and metrics as tables for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from ordercast.report import rows
from ordercast.verify.verdict import ASSUMED, FAIL, LOCAL, NOT_APPLICABLE, OWED, PASS, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console, JustifyMethod

    from ordercast.verify.metrics.values import RunMetrics
    from ordercast.verify.verdict import CheckResult, Verdict, Witness

_STYLES = {PASS: "green", FAIL: "bold red", UNKNOWN: "yellow", NOT_APPLICABLE: "dim"}
_DETAILED = 4
# The columns of rows.COMPARISON_HEADERS in words that leave room for ten columns in a terminal.
_SHORT_COMPARISON = (
    "run",
    "protocol",
    "deliveries",
    "per s",
    "p50",
    "p99",
    "header",
    "copies",
    "held p99",
    "repair",
)
_OUTCOME_STYLES = {"held": "bold green", "violated": "bold red", "undecided": "bold yellow"}


def print_verdicts(verdicts: Sequence[Verdict], console: Console) -> None:
    """For each run its outcome, the table of checks, and the story of every violation."""
    for verdict in verdicts:
        outcome = rows.outcome(verdict)
        words = f"{verdict.run}  {verdict.protocol}, {verdict.guarantee}: "
        _say(console, Text(words) + Text(outcome, style=_OUTCOME_STYLES[outcome]))
        if verdict.reason:
            _say(console, Text(verdict.reason))
        if OWED in verdict.facts:
            _say(console, Text(rows.owed(verdict)))
        if verdict.engine != LOCAL:
            _say(console, Text(f"judged by the {verdict.engine} engine", style="dim"))
        if ASSUMED in verdict.facts:
            _say(console, Text(f"assumed: {verdict.facts[ASSUMED]}", style="dim"))
        shown = [result for result in verdict.results if result.claimed or result.verdict != NOT_APPLICABLE]
        if shown:
            console.print(_checks(shown))
        _print_stories(verdict, console)


def print_metrics(all_metrics: Sequence[RunMetrics], console: Console) -> None:
    """Each run's numbers; several runs are first set side by side, and many only so."""
    if len(all_metrics) > 1:
        console.print(_table(_SHORT_COMPARISON, rows.comparison(all_metrics), words=2))
    for metrics in all_metrics if len(all_metrics) <= _DETAILED else ():
        console.print()
        _say(console, Text(f"{metrics.run}  {metrics.protocol}, {metrics.guarantee}", style="bold"))
        console.print(_table(("", "value"), rows.scalars(metrics)))
        spreads = rows.distributions(metrics)
        if spreads:
            console.print(_table(rows.DISTRIBUTION_HEADERS, spreads))
        for names, reason in rows.reasons(metrics):
            _say(console, Text(f"not measured: {names} ({reason})", style="dim"))


def _checks(results: Iterable[CheckResult]) -> Table:
    table = _table(("check", "verdict", "claimed", "deliveries", "violations", "reason"), [], words=3)
    table.columns[-1].justify = "left"
    for result in results:
        table.add_row(
            Text(result.check),
            Text(result.verdict, style=_STYLES.get(result.verdict, "")),
            Text("yes" if result.claimed else "no"),
            Text(rows.number(result.deliveries)),
            Text(rows.number(result.violations)),
            Text(result.reason),
        )
    return table


def _print_stories(verdict: Verdict, console: Console) -> None:
    """One story for each broken check, and how many more there are of it."""
    told: set[str] = set()
    for checks, witness in rows.stories(verdict):
        if not told.issuperset(checks):
            told.update(checks)
            _print_story(checks, witness, console)
    more = [
        f"{rows.number(result.violations - 1)} more of {result.check}"
        for result in verdict.results
        if result.violations > 1
    ]
    if more:
        _say(console, Text(f"and {', '.join(more)} (--json and the report tell of some)", style="dim"))


def _print_story(checks: list[str], witness: Witness, console: Console) -> None:
    broken, messages = ", ".join(checks), ", ".join(witness.messages)
    _say(console, Text(f"{broken} broken at {witness.node}: {messages}", style="bold red"))
    for step, line in enumerate(witness.story, 1):
        _say(console, Text(f"  {step}. {line}"))


def _table(headers: Sequence[str], cells: Iterable[Sequence[str]], *, words: int = 1) -> Table:
    """Columns from the `words`-th on are numbers. Cells are Text: a bracket in a name is no markup."""
    table = Table(box=None, pad_edge=False, padding=(0, 1), collapse_padding=True, header_style="dim")
    for index, header in enumerate(headers):
        justify: JustifyMethod = "left" if index < words else "right"
        table.add_column(Text(header), justify=justify, overflow="fold", no_wrap=0 < index < len(headers) - 1)
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _say(console: Console, words: Text) -> None:
    """A line as long as it needs to be: who pipes it on wants it whole."""
    console.print(words, soft_wrap=True)
