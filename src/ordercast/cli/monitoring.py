"""The command that watches a run while it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ordercast.cli.exits import FAILED
from ordercast.cli.options import Master
from ordercast.core.errors import UsageError

Run = Annotated[Path, typer.Argument(help="The directory that clients were given as `trace`.", show_default=False)]
Every = Annotated[float, typer.Option(help="Seconds between two looks at the journals.", min=0.1)]
Seconds = Annotated[float | None, typer.Option("--for", help="Seconds to watch; until interrupted if not given.")]
Once = Annotated[bool, typer.Option("--once", help="Look at what is there now, and end.")]


def monitor(run: Run, every: Every = 1.0, for_: Seconds = None, once: Once = False, master: Master = None) -> None:
    """Watch the journals of running clients on Spark, and print every violation of fifo, causal or total order.

    A line on standard output for each message that came after one that it belongs before. Whether anything is missing
    says `ordercast verify` when the run is over. Exit code 1 if there was a violation, else 0.
    """
    if not run.is_dir():
        raise UsageError(f"{run}: no such directory")
    from ordercast.streaming.monitor import start_monitor, summary
    from ordercast.verify.online import OrderWatch
    from ordercast.verify.spark.session import session

    watch = OrderWatch()
    spark = session(master, quick=True)
    query = start_monitor(spark, run, watch, lambda alarm: typer.echo(str(alarm)), every_s=None if once else every)
    typer.echo(f"watching {run}: Ctrl-C ends it", err=True)
    try:
        query.awaitTermination(None if for_ is None else max(1, round(for_)))
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
    query.stop()
    told = ", ".join(f"{count:,} {name}" for name, count in summary(watch).items())
    typer.echo(told, err=True)
    if any(watch.counts[order] for order in ("fifo", "causal", "total")):
        raise typer.Exit(FAILED)
