"""Commands for brokers: one in the foreground, or a cluster of them in the background."""

from __future__ import annotations

import signal as signals
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from ordercast.cli.exits import VIOLATED
from ordercast.cli.messaging import secret_of, tls_of
from ordercast.cli.options import Json, console, print_json
from ordercast.core.errors import UsageError, unknown_name
from ordercast.net.wire.credentials import AdminKey

if TYPE_CHECKING:
    from ordercast.net.brokers.cluster import BrokerCluster, BrokerState
    from ordercast.net.brokers.cluster_file import ClusterFile
    from ordercast.net.brokers.process import Launch

ClusterArgument = Annotated[Path, typer.Argument(help="Cluster file (TOML).", metavar="CLUSTER.toml")]
ClusterOption = Annotated[
    Path | None,
    typer.Option("--cluster", help="Cluster file; if not given, the one cluster that was started from here."),
]
_SHOWN = ("broker", "msg", "message", "topic", "state")
Salvage = Annotated[
    bool, typer.Option("--salvage", help="If its log is damaged, start with what is readable; the file is kept.")
]
AdminPorts = Annotated[
    list[str] | None, typer.Option("--admin", help="HOST:PORT of a broker's admin port. Repeatable.")
]
AdminToken = Annotated[str, typer.Option("--token", envvar="ORDERCAST_ADMIN_TOKEN", help="Token of the admin ports.")]
AdminTokenFile = Annotated[Path | None, typer.Option("--token-file", help="File that holds the token.")]
AdminTls = Annotated[
    bool, typer.Option("--tls", help="The admin ports speak TLS; the system's authorities are believed.")
]
AdminCa = Annotated[
    Path | None, typer.Option("--ca", help="They speak TLS; the authorities in this file (PEM) are believed.")
]
Wait = Annotated[float, typer.Option(help="Seconds to wait until it is struck off everywhere.")]
_STEP_S = 0.1
BrokerId = Annotated[str, typer.Argument(help="Id of the broker.", metavar="ID")]


def broker(
    broker_id: Annotated[str, typer.Option("--id", help="Name of this broker, unique in its cluster.")],
    listen: Annotated[
        str, typer.Option(help="HOST:PORT to listen at; the one of the configuration if not given.")
    ] = "",
    parent: Annotated[str, typer.Option(help="HOST:PORT of the broker to attach to.")] = "",
    cluster: Annotated[
        str, typer.Option(help="Name of the cluster, where no configuration has it; 'ordercast' if not given.")
    ] = "",
    config: Annotated[Path | None, typer.Option(help="Cluster file (TOML): brokers, settings, credentials.")] = None,
    data: Annotated[Path | None, typer.Option(help="Directory for a log that outlives the process.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Run directory to record this broker's events in.")] = None,
    admin: Annotated[str, typer.Option(help="HOST:PORT of health, metrics and status.")] = "",
    nats: Annotated[str, typer.Option(help="HOST:PORT of the door for clients of NATS.")] = "",
    web: Annotated[str, typer.Option(help="HOST:PORT of the door for browsers and HTTP.")] = "",
    salvage: Salvage = False,
    ready: Annotated[Path | None, typer.Option(hidden=True, help="File to write when started.")] = None,
    end_with_parent: Annotated[
        bool, typer.Option("--end-with-parent", hidden=True, help="End when standard input does.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log every connection, not only complaints.")] = False,
) -> None:
    """Run one broker until a signal stops it. A second signal stops it at once.

    Example: ordercast broker --id b1 --listen 127.0.0.1:7001 --parent 127.0.0.1:7000 --data b1
    """
    import logging

    from ordercast.doors import open_doors
    from ordercast.net.brokers.process import run
    from ordercast.net.json_logs import log_to_stderr
    from ordercast.net.supervise.parent_death import end_with_standard_input

    described = _cluster_file(cluster, config)
    launch = _launch(broker_id, listen, parent, described, data, trace, admin, salvage=salvage)
    launch = _with_doors(launch, nats, web)
    log_to_stderr(logging.INFO if verbose else logging.WARNING)
    if end_with_parent:
        end_with_standard_input()
    code = run(launch, ready, open_doors)
    if code:
        raise typer.Exit(code)


def _cluster_file(name: str, config: Path | None) -> ClusterFile:
    from ordercast.net.brokers.cluster_file import load_cluster, parse_cluster

    if config is None:
        return parse_cluster({"cluster": name} if name else {}, Path())
    cluster = load_cluster(config)
    if name not in ("", cluster.cluster):
        raise UsageError(f"--cluster: {config} is about cluster {cluster.cluster!r}, not {name!r}")
    return cluster


def _launch(
    broker_id: str, listen: str, parent: str, cluster: ClusterFile, data: Path | None, trace: Path | None, admin: str,
    *, salvage: bool,
) -> Launch:  # fmt: skip
    from ordercast.net.brokers.process import Launch
    from ordercast.net.wire.credentials import split_address

    entry = cluster.find(broker_id)
    if entry is None and not listen:
        if cluster.broker:
            raise unknown_name("broker", broker_id, [known.id for known in cluster.broker])
        raise UsageError("--listen: needed, because no configuration says where this broker listens")
    for name, address in (("--listen", listen), ("--parent", parent), ("--admin", admin)):
        if address:
            split_address(address, name)
    return Launch(
        id=broker_id,
        listen=listen or (entry.door if entry is not None else ""),
        parent=parent,
        cluster=cluster,
        data=data or (Path(cluster.data) / broker_id if cluster.data else None),
        trace=trace or (Path(cluster.trace) if cluster.trace else None),
        admin=admin or (entry.admin if entry is not None else ""),
        salvage=salvage,
    )


def _with_doors(launch: Launch, nats: str, web: str) -> Launch:
    """The launch with the doors that the command line asks for, or else the cluster file."""
    from ordercast.net.wire.credentials import split_address

    cluster = launch.cluster
    entry = cluster.find(launch.id)
    doors: dict[str, str] = {}
    for name, asked, table in (("nats", nats, cluster.nats), ("web", web, cluster.web)):
        if asked:
            split_address(asked, f"--{name}")
        doors[name] = asked or (getattr(entry, name) if entry is not None else "" if cluster.broker else table.listen)
    return msgspec.structs.replace(launch, **doors)


def up(
    cluster: ClusterArgument,
    wait: Annotated[float, typer.Option(help="Seconds to wait until every broker is in the tree; 0: do not.")] = 15.0,
    json: Json = False,
) -> None:
    """Start the brokers of CLUSTER.toml in the background, those that do not run yet. Prints their status.

    Example: ordercast up bank.toml && ordercast pub accounts.PT hello --broker 127.0.0.1:7000
    """
    from ordercast.net.brokers.cluster import BrokerCluster

    found = BrokerCluster(cluster)
    found.up()
    complete = not wait or found.await_tree(wait)
    _print_status(found, json=json)
    for entry in found.config.broker if not json else ():
        if entry.web:
            typer.echo(f"{entry.id}: live page at http{'s' if found.config.tls else ''}://{entry.web}/")
    if not complete:
        typer.echo(f"not every broker is in the tree after {wait:g} s; logs: {found.run_directory}", err=True)
        raise typer.Exit(VIOLATED)


def status(cluster: ClusterOption = None, json: Json = False) -> None:
    """The brokers of a cluster on this machine: which run, who is root, who is whose parent.

    Exit 0 if all are in the tree, 1 otherwise. Example: ordercast status --cluster bank.toml
    """
    states = _print_status(_find(cluster), json=json)
    if any(state.state not in ("running", "left") for state in states):
        raise typer.Exit(VIOLATED)


def kill(
    broker_id: BrokerId,
    cluster: ClusterOption = None,
    signal: Annotated[str, typer.Option(help="Name of the signal, such as KILL, TERM, STOP or CONT.")] = "KILL",
    json: Json = False,
) -> None:
    """Kill a broker of a cluster, to see what the others make of it.

    Example: ordercast kill b1 && ordercast status
    """
    name = f"SIG{signal.upper().removeprefix('SIG')}"
    known = [member.name for member in signals.Signals]
    if name not in known:
        raise unknown_name("signal", signal, [member.removeprefix("SIG") for member in known])
    pid = _find(cluster).kill(broker_id, signals.Signals[name])
    say({"id": broker_id, "pid": pid, "signal": name}, f"{broker_id}: {name} to process {pid}", json=json)


def restart(broker_id: BrokerId, cluster: ClusterOption = None, salvage: Salvage = False, json: Json = False) -> None:
    """Start a broker of a cluster again; one that still runs is first stopped in good order.

    Example: ordercast restart b1
    """
    found = _find(cluster)
    found.restart(broker_id, salvage=salvage)
    process = found.process(broker_id)
    pid = process.pid if process is not None else None
    say({"id": broker_id, "pid": pid}, f"{broker_id}: process {pid}", json=json)


def down(cluster: ClusterOption = None, json: Json = False) -> None:
    """Stop all brokers of a cluster in good order.

    Example: ordercast down --cluster bank.toml
    """
    stopped = _find(cluster).down()
    say({"stopped": stopped}, f"stopped: {', '.join(stopped)}" if stopped else "nothing was running", json=json)


def leave(
    broker_id: BrokerId,
    cluster: ClusterOption = None,
    admin: AdminPorts = None,
    token: AdminToken = "",
    token_file: AdminTokenFile = None,
    tls: AdminTls = False,
    ca: AdminCa = None,
    wait: Wait = 30.0,
    json: Json = False,
) -> None:
    """A broker leaves its cluster for good, in good order: it hands over, is struck off, and its process ends.

    Example: ordercast leave b9
    """
    _let_go("leave", broker_id, admins(cluster, admin, token, token_file, ca, tls=tls), wait)
    say({"id": broker_id, "left": True}, f"{broker_id}: left for good; a cluster file need not name it", json=json)


def remove(
    broker_id: BrokerId,
    cluster: ClusterOption = None,
    admin: AdminPorts = None,
    token: AdminToken = "",
    token_file: AdminTokenFile = None,
    tls: AdminTls = False,
    ca: AdminCa = None,
    wait: Wait = 30.0,
    json: Json = False,
) -> None:
    """Strike a dead broker off its cluster, so that it counts in no majority. What only its disk had is given up.

    Refused while the broker is alive, and unless more than half of the others stand behind it.
    Example: ordercast remove b2
    """
    _let_go("remove", broker_id, admins(cluster, admin, token, token_file, ca, tls=tls), wait)
    line = f"{broker_id}: struck off; what was only on its disk is given up; a cluster file need not name it"
    say({"id": broker_id, "removed": True}, line, json=json)


def _let_go(deed: str, broker_id: str, known: Admins, wait: float) -> None:
    """Give the order to the root, or to a broker that was named, and wait until the directory has shrunk."""
    from ordercast.net.brokers.admin_client import order

    ports, key = known.answering, known.key
    if not ports:
        raise UsageError(f"{deed}: no broker with an admin port is running; --admin HOST:PORT names one")
    seen = _overlays(ports, key)
    deciding = [address for address, tree in seen.items() if tree["decides"]]
    if not deciding and (len(seen) == len(known.ports) or len(ports) > 1):
        raise UsageError(f"broker {broker_id!r}: no root decides now: more than half of the brokers must run")
    order(deciding[0] if deciding else ports[0], deed, broker_id, key)
    deadline = time.monotonic() + wait
    while not _is_gone(broker_id, _overlays(ports, key)):
        if time.monotonic() > deadline:
            typer.echo(f"{broker_id} is still in the directory after {wait:g} s; it goes on", err=True)
            raise typer.Exit(VIOLATED)
        time.sleep(_STEP_S)


def _overlays(ports: list[str], key: AdminKey) -> dict[str, Any]:
    from ordercast.net.brokers.admin_client import ask

    answers = {address: ask(address, "/status?topics=0", key) for address in ports}
    return {address: answer["overlay"] for address, answer in answers.items() if answer is not None}


def _is_gone(broker_id: str, seen: dict[str, Any]) -> bool:
    """Nobody who answers counts on it, and it does not answer itself; one change is complete when its root says so."""
    return all(
        tree["node"] != broker_id and broker_id not in tree["directory"] and tree["changing"] != broker_id
        for tree in seen.values()
    )


def explain(
    message: Annotated[str, typer.Argument(help="Message id, such as ann/accounts.PT#7.", metavar="MSG")],
    cluster: ClusterOption = None,
    admin: AdminPorts = None,
    token: AdminToken = "",
    token_file: AdminTokenFile = None,
    tls: AdminTls = False,
    ca: AdminCa = None,
    json: Json = False,
) -> None:
    """Where a message is at every broker, and what it waits for there. Exit 1 if no broker knows it.

    Example: ordercast explain ann/accounts.PT#7
    """
    from ordercast.net.brokers import admin_client

    answers: list[dict[str, Any]] = []
    known = admins(cluster, admin, token, token_file, ca, tls=tls)
    for name, address in known.ports:
        told = admin_client.explain(address, message, known.key) if address else None
        answers.append(told if told is not None else {"broker": name, "msg": message, "state": "no answer"})
    if json:
        print_json(answers)
    else:
        _print_explained(answers)
    if all(answer.get("state") in ("unknown", "no answer") for answer in answers):
        raise typer.Exit(VIOLATED)


def _print_explained(answers: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table("broker", "where", "what it waits for")
    for answer in answers:
        rest = {key: value for key, value in answer.items() if key not in _SHOWN}
        table.add_row(str(answer["broker"]), str(answer.get("state", "")), in_words(rest))
    console().print(table)


class Admins(msgspec.Struct, frozen=True):
    """The admin ports that a command asks."""

    ports: list[tuple[str, str]]
    """Name and port of each broker; no port where it does not run."""
    key: AdminKey

    @property
    def answering(self) -> list[str]:
        return [address for _, address in self.ports if address]


def admins(
    cluster: Path | None, named: list[str] | None, token: str, token_file: Path | None, ca: Path | None, *, tls: bool
) -> Admins:
    """Those that were named, or those of a cluster that was started here, with the key that its file knows."""
    key = AdminKey(secret_of(token, token_file), tls_of(ca, None, None, asked=tls))
    if named:
        return Admins([(address, address) for address in named], key)
    try:
        found = _find(cluster)
    except UsageError as error:
        raise error if cluster is not None else UsageError(f"{error}, or a broker with --admin HOST:PORT") from None
    running = {entry.id: found.process(entry.id) for entry in found.config.broker}
    ports = [(name, process.admin if process is not None else "") for name, process in running.items()]
    own = found.config.admin_key()
    return Admins(ports, AdminKey(key.token or own.token, key.tls or own.tls))


def _find(cluster: Path | None) -> BrokerCluster:
    from ordercast.net.brokers.cluster import BrokerCluster

    return BrokerCluster.find(cluster)


def say(value: Any, line: str, *, json: bool) -> None:
    if json:
        print_json(value)
    else:
        typer.echo(line)


def _print_status(cluster: BrokerCluster, *, json: bool) -> list[BrokerState]:
    states = cluster.status()
    if json:
        print_json([msgspec.structs.asdict(state) for state in states])
        return states
    from rich.table import Table

    table = Table("broker", "state", "role", "term", "parent", "children", "clients", "address", "pid")
    for state in states:
        tree = (state.detail or {}).get("overlay", {})
        clients = [c for c in (state.detail or {}).get("connections", ()) if c["kind"] == "client"]
        told = state.state if state.problem is None else f"{state.state}: {state.problem}"
        table.add_row(
            state.id, told, in_words(tree.get("role")), in_words(tree.get("term")), in_words(tree.get("parent")),
            in_words(tree.get("children")), str(len(clients)) if state.detail else "", state.address,
            str(state.pid or ""),
        )  # fmt: skip
    console().print(table)
    return states


def in_words(value: Any) -> str:
    """A value of a status as people read it."""
    if value is None:
        return ""
    if isinstance(value, dict):
        return ", ".join(f"{key} {in_words(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(in_words, value))
    return str(value)
