"""The command that watches a run while it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from ordercast.cli.exits import VIOLATED
from ordercast.cli.messaging import Ca, Cert, CertKey, Token, TokenFile, User, UseTls, one_line, secret_of, tls_of
from ordercast.cli.options import Master
from ordercast.core.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from ordercast.streaming.options import Connection

Run = Annotated[
    Path | None, typer.Argument(help="The directory that clients were given as `trace`.", show_default=False)
]
Brokers = Annotated[
    list[str] | None, typer.Option("--broker", help="HOST:PORT to look on at, instead of journals. Repeatable.")
]
Topics = Annotated[list[str] | None, typer.Option(help="Topic or filter to look on at; all if not given. Repeatable.")]
Every = Annotated[float, typer.Option(help="Seconds between two looks at the journals.", min=0.1)]
Seconds = Annotated[float | None, typer.Option("--for", help="Seconds to watch; until interrupted if not given.")]
Once = Annotated[bool, typer.Option("--once", help="Look at what is there now, and end.")]

_LOOK_S = 1


def monitor(
    run: Run = None,
    broker: Brokers = None,
    topics: Topics = None,
    every: Every = 1.0,
    for_: Seconds = None,
    once: Once = False,
    master: Master = None,
    token: Token = "",
    token_file: TokenFile = None,
    user: User = "",
    tls: UseTls = False,
    ca: Ca = None,
    cert: Cert = None,
    cert_key: CertKey = None,
) -> None:
    """Watch a running cluster on Spark, and print every violation of fifo, causal or total order.

    Either the journals of its clients (RUN), or what subscribers of its own are delivered at each --broker: fifo order,
    and total order where there are two. A line on standard output for each message that came after one that it belongs
    before. Whether anything is missing says `ordercast verify` when the run is over. Exit 1 if there was a violation.
    Example: ordercast monitor --broker 127.0.0.1:7000 --broker 127.0.0.1:7001
    """
    if (run is None) == (not broker):
        raise UsageError("monitor: give the journals of a run, or a --broker to look on at")
    if run is not None:
        if not run.is_dir():
            raise UsageError(f"{run}: no such directory")
        _watch(run, str(run), None if once else every, for_, master, check=lambda: None)
        return
    if once:
        raise UsageError("--once: what is there now are journals; a broker is looked on at for some time (--for)")
    from ordercast.streaming.options import Connection

    at = Connection(
        tuple(broker or ()),
        user,
        secret_of(token, token_file),
        tls=tls_of(ca, cert, cert_key, asked=tls),
        timeout_s=10.0,
    )
    with _observed(at, topics or [">"]) as (journals, check):
        _watch(journals, ", ".join(at.brokers), every, for_, master, check=check, remove=True)


@contextmanager
def _observed(at: Connection, topics: list[str]) -> Iterator[tuple[Path, Callable[[], None]]]:
    """Where the observers' journals are, and what raises if one of them has ended."""
    from ordercast.net.wire.credentials import split_address
    from ordercast.pubsub.filters import check_filter
    from ordercast.streaming.observers import Observers

    for address in at.brokers:
        split_address(address)
    for topic in topics:
        check_filter(topic)
    with TemporaryDirectory(prefix="ordercast-monitor-", ignore_cleanup_errors=True) as directory, one_line():
        observers = Observers(Path(directory), at, topics)
        try:
            observers.start()
            yield Path(directory), observers.check
        finally:
            observers.stop()


def _watch(
    run: Path, told: str, every: float | None, for_: float | None, master: str | None, *, check: Callable[[], None],
    remove: bool = False,
) -> None:  # fmt: skip
    from ordercast.streaming.monitor import start_monitor, summary
    from ordercast.verify.online import OrderWatch
    from ordercast.verify.spark.session import session

    watch = OrderWatch(patience=0) if remove else OrderWatch()  # Nobody who publishes has a journal here.
    spark = session(master, quick=True)
    query = start_monitor(spark, run, watch, lambda alarm: typer.echo(str(alarm)), every_s=every, remove=remove)
    typer.echo(f"watching {told}: Ctrl-C ends it", err=True)
    try:
        _wait(query, for_, check)
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
    query.stop()
    typer.echo(", ".join(f"{count:,} {name}" for name, count in summary(watch).items()), err=True)
    if any(watch.counts[order] for order in ("fifo", "causal", "total")):
        raise typer.Exit(VIOLATED)


def _wait(query: StreamingQuery, for_: float | None, check: Callable[[], None]) -> None:
    """Until the query ends, the time is over, or somebody cannot look on any more."""
    until = None if for_ is None else time.monotonic() + for_
    while until is None or time.monotonic() < until:
        if query.awaitTermination(_LOOK_S):
            return
        check()
