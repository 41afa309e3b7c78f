"""Commands for kept topics: what is kept, and what was said."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode

import typer

from ordercast.cli.brokering import (
    AdminCa,
    AdminPorts,
    AdminTls,
    AdminToken,
    AdminTokenFile,
    ClusterOption,
    admins,
    in_words,
    say,
)
from ordercast.cli.messaging import (
    Broker,
    Ca,
    Cert,
    CertKey,
    ClientId,
    Token,
    TokenFile,
    User,
    UseTls,
    as_json,
    as_line,
    default_brokers,
    run_client,
    secret_of,
    tls_of,
)
from ordercast.cli.options import Json, console, print_json
from ordercast.core.errors import UsageError

if TYPE_CHECKING:
    from ordercast.api import Client, Position
    from ordercast.net.wire.credentials import AdminKey
    from ordercast.pubsub.publications import Publication


def history(
    topics: Annotated[list[str], typer.Argument(help="Kept topics.")],
    last: Annotated[int, typer.Option(min=0, help="Only the last so many of each topic; 0: all.")] = 0,
    start: Annotated[str, typer.Option("--from", help="earliest, a time, or a position.")] = "earliest",
    end: Annotated[str, typer.Option("--to", help="A position; what is kept now if not given.")] = "",
    positions: Annotated[bool, typer.Option("--position", help="Print the position behind it, to stderr.")] = False,
    broker: Broker = None,
    client_id: ClientId = None,
    token: Token = "",
    token_file: TokenFile = None,
    user: User = "",
    tls: UseTls = False,
    ca: Ca = None,
    cert: Cert = None,
    cert_key: CertKey = None,
    json: Json = False,
) -> None:
    """Print what kept topics have, one message a line: topic, key and payload, separated by tabs.

    A message is in the history once every subscriber that is there has taken it.
    Example: ordercast history accounts.PT --last 20
    """
    import ordercast
    from ordercast.api.starts import parsed_start

    begin = parsed_start(start)
    until = ordercast.Position.parse(end) if end else None
    if last and (start != "earliest" or end):
        raise UsageError("--last: not together with --from or --to")
    secret, secure = secret_of(token, token_file), tls_of(ca, cert, cert_key, asked=tls)

    async def main() -> None:
        async with ordercast.connect(default_brokers(broker), client_id, token=secret, user=user, tls=secure) as client:
            await _print_history(client, topics, begin, until, last, json=json, positions=positions)

    run_client(main())


async def _print_history(
    client: Client, topics: list[str], start: str | Position | dt.datetime, end: Position | None, last: int, *,
    json: bool, positions: bool,
) -> None:  # fmt: skip
    past = client.read(topics, start, end)
    show = as_json if json else as_line
    if last:
        _print(await past.last(last), show)
    else:
        async for batch in past.batches():
            _print(batch, show)
    if positions:
        typer.echo(str(past.end), err=True)


def _print(messages: Iterable[Publication], show: Callable[[Publication], str]) -> None:
    sys.stdout.write("".join(show(message) for message in messages))


def keep(
    pattern: Annotated[str, typer.Argument(help="Topics to keep; without it, what is kept.", metavar="[FILTER]")] = "",
    max_age: Annotated[str, typer.Option(help="Remove what is older: 7d, 12h, 90s. 0: never.")] = "0",
    max_bytes: Annotated[str, typer.Option(help="Bytes of a topic at each copy: 10GB, 512MiB. 0: no limit.")] = "0",
    copies: Annotated[int, typer.Option(min=1, help="Brokers that keep each topic.")] = 2,
    compact: Annotated[str, typer.Option(help="none, or key: only the last message of each key stays.")] = "none",
    stop: Annotated[bool, typer.Option("--stop", help="Keep them no longer, and remove what was kept.")] = False,
    cluster: ClusterOption = None,
    admin: AdminPorts = None,
    token: AdminToken = "",
    token_file: AdminTokenFile = None,
    tls: AdminTls = False,
    ca: AdminCa = None,
    json: Json = False,
) -> None:
    """Keep topics from now on, or change how long; without a filter, show what is kept.

    All brokers learn of it, and those with a data directory remember it.
    Example: ordercast keep "accounts.>" --max-age 30d
    """
    known = admins(cluster, admin, token, token_file, ca, tls=tls)
    addresses = known.answering
    if not addresses:
        raise UsageError("keep: no broker with an admin port is running; --admin HOST:PORT names one")
    if not pattern:
        _show_kept(addresses, known.key, json=json)
        return
    from ordercast.net.brokers.admin_client import post

    asked = {"filter": pattern, "max_age": max_age, "max_bytes": max_bytes, "copies": copies, "compact": compact}
    post(addresses, f"/keep?{urlencode({**asked, 'stop': int(stop)})}", known.key)
    say({**asked, "stopped": stop}, f"{pattern}: {'kept no longer' if stop else 'kept'}", json=json)


def _show_kept(addresses: list[str], key: AdminKey, *, json: bool) -> None:
    from ordercast.net.brokers.admin_client import ask

    answers = [answer for address in addresses if (answer := ask(address, "/status?topics=0", key)) is not None]
    rows = [{"broker": answer["id"], **row} for answer in answers for row in answer["kept"]]
    if json:
        print_json(rows)
        return
    from rich.table import Table

    table = Table("topic", "broker", "messages", "bytes", "segments", "since", "missing")
    for row in sorted(rows, key=lambda row: (row["topic"], row["broker"])):
        since = dt.datetime.fromtimestamp(row["since_ms"] / 1000).astimezone() if row["since_ms"] else None
        told = since.isoformat(timespec="seconds") if since is not None else ""
        table.add_row(*map(in_words, (row["topic"], row["broker"], row["messages"], row["bytes"], row["segments"])),
                      told, in_words(row["holes"]))  # fmt: skip
    console().print(table)
