"""`ordercast top`: the brokers of a cluster in the terminal, as they are now."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ordercast.cli.brokering import (
    AdminCa,
    AdminPorts,
    Admins,
    AdminTls,
    AdminToken,
    AdminTokenFile,
    ClusterOption,
    admins,
)
from ordercast.cli.options import console

if TYPE_CHECKING:
    from rich.table import Column, Table

_BUSIEST = 12


def top(
    cluster: ClusterOption = None,
    admin: AdminPorts = None,
    token: AdminToken = "",
    token_file: AdminTokenFile = None,
    tls: AdminTls = False,
    ca: AdminCa = None,
    every: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.1)] = 1.0,
    count: Annotated[int, typer.Option(help="Looks until it ends; 0: until it is interrupted.", min=0)] = 0,
) -> None:
    """Watch the brokers of a cluster: roles, rates, queues, and the busiest topics with what they wait for.

    Without a terminal every look is printed below the last one. Example: ordercast top --cluster bank.toml
    """
    looks = _looks(admins(cluster, admin, token, token_file, ca, tls=tls), every, count)
    screen = console()
    if not screen.is_terminal:
        for tables in looks:
            screen.print(*tables)
        return
    from rich.console import Group
    from rich.live import Live

    with Live(console=screen, screen=not count) as live:
        for tables in looks:
            live.update(Group(*tables), refresh=True)


def _looks(known: Admins, every: float, count: int) -> Iterator[tuple[Table, Table]]:
    from ordercast.net.brokers.admin_client import ask

    before: dict[str, tuple[float, int]] = {}
    number = 0
    while True:
        told = {name: ask(port, f"/status?topics={_BUSIEST}", known.key) for name, port in known.ports if port}
        now = time.monotonic()
        yield _brokers(told, before, now), _topics(told)
        before = {name: (now, status["counters"].get("entries_admitted", 0)) for name, status in told.items() if status}
        number += 1
        if number == count:
            return
        time.sleep(every)


def _brokers(told: Mapping[str, Any], before: Mapping[str, tuple[float, int]], now: float) -> Table:
    from rich.table import Table

    table = Table(
        _name("broker"), "role", "parent", "clients", "published/s", "on their way", "held back", "longest queue"
    )
    for name, status in told.items():
        if status is None:
            table.add_row(name, "[red]does not answer[/red]", *[""] * 6)
            continue
        tree, totals, wires = status["overlay"], status["totals"], status["connections"]
        slowest = max(wires, key=lambda wire: wire["queued_bytes"], default=None)
        queue = f"{slowest['queued_bytes']:,} for {slowest['peer']}" if slowest and slowest["queued_bytes"] else ""
        table.add_row(
            status["id"], status["problem"] or tree["role"], tree["parent"] or "",
            str(sum(wire["kind"] == "client" for wire in wires)), _rate(status, before.get(name), now),
            f"{totals['log']:,}", f"{totals['held']:,}", queue,
        )  # fmt: skip
    return table


def _name(header: str) -> Column:
    """The column that is shortened last where the terminal is narrow."""
    from rich.table import Column

    return Column(header, no_wrap=True)


def _rate(status: Mapping[str, Any], before: tuple[float, int] | None, now: float) -> str:
    if before is None:
        return ""
    then, count = before
    return f"{(status['counters'].get('entries_admitted', 0) - count) / max(now - then, 1e-3):,.0f}"


def _topics(told: Mapping[str, Any]) -> Table:
    """The busiest of all brokers, each as the root knows it, or else whoever does."""
    from rich.table import Table

    table = Table(_name("topic"), "members", "on their way", "totals waiting", "held back", "publishers")
    known: dict[str, Any] = {}
    for status in filter(None, told.values()):
        for topic, one in status["topics"].items():
            if topic not in known or one["channel"] == "root":
                known[topic] = one
    busiest = sorted(known.items(), key=lambda item: (-item[1]["log"] - item[1]["pending"], item[0]))[:_BUSIEST]
    for topic, one in busiest:
        flow = "" if one["flow_open"] else "[red]told to pause[/red]"
        table.add_row(topic, str(len(one["roster"])), f"{one['log']:,}", str(one["pending"]), str(one["held"]), flow)
    return table
