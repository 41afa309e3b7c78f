"""Options that several commands share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

if TYPE_CHECKING:
    from rich.console import Console

    from ordercast.sim.run import Progress

_FILE_WIDTH = 120

Master = Annotated[str | None, typer.Option(help="Spark master, such as local[2] or spark://HOST:PORT.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of tables.")]
Traces = Annotated[
    list[str],
    typer.Argument(help="Run directories, trace files (.parquet, .jsonl, .csv), or where Spark can read: hdfs://…"),
]
Seed = Annotated[int | None, typer.Option(help="Seed of the run; the scenario's own if not given.")]
Protocol = Annotated[
    str | None,
    typer.Option(help="Protocol by name, or your own as FILE.py or FILE.py:NAME; the scenario's own if not given."),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override a scenario value: link.loss=0.1, fault.0.at_ms=5. Repeatable."),
]


def console() -> Console:
    """A console for tables. A pipe or file has no width of its own; tables must not fold there as on a screen.

    A reader that goes away before the end has seen enough: the rest is not printed, and the exit code stays.
    """
    from rich.console import Console

    class Patient(Console):
        def on_broken_pipe(self) -> None:
            self.quiet = True
            silence_output()

    return Patient(width=None if sys.stdout.isatty() else _FILE_WIDTH)


def print_json(value: Any) -> None:
    try:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode() + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        silence_output()


def print_line(text: str) -> None:
    """One line after others; a reader that went away before it changes nothing, least of all the exit code."""
    try:
        typer.echo(text)
    except BrokenPipeError:
        silence_output()


def silence_output() -> None:
    """Nobody reads any more: what is still in the buffers goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def progress_bar(label: str) -> Iterator[Progress]:
    """A bar on stderr for work that takes over two seconds; plain lines, now and then, if that is not a terminal."""
    if not sys.stderr.isatty():
        from ordercast.verify.spark.progress import PlainProgress

        plain = PlainProgress(label)
        yield lambda share: plain.show(f"{share:.0%}")
        return
    import time

    from rich.console import Console
    from rich.progress import Progress as Bar

    bar = Bar(console=Console(stderr=True), transient=True)
    task = bar.add_task(label, total=1.0)
    start = time.monotonic()

    def advance(share: float) -> None:
        if time.monotonic() - start > 2.0 and not bar.live.is_started:
            bar.start()
        bar.update(task, completed=share)

    try:
        yield advance
    finally:
        if bar.live.is_started:
            bar.stop()
