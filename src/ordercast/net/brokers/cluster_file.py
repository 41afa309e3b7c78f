"""One file describes a cluster: its brokers and their tree, the settings they share, who may connect.

    cluster = "bank"
    data = "data"                        # optional: broker logs that outlive their processes
    [settings]
    total_degree = 8
    [[broker]]
    id = "b0"
    port = 7000                          # or listen = "HOST:PORT"
    [[broker]]
    id = "b1"
    port = 7001
    parent = "b0"

The same file serves `ordercast up`, which starts all of its brokers, and `ordercast broker --config`, which is one of
them. Relative paths in it start at its own directory. The same as JSON is as good.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ordercast.core.errors import UsageError, unknown_name
from ordercast.core.ids import NodeId, valid_broker
from ordercast.core.wire import NOT_DECODABLE
from ordercast.net.brokers.door_tables import DefaultTable, NatsTable, WebTable, check_door
from ordercast.net.log.files import Fsync
from ordercast.net.wire.credentials import AdminKey, Credentials, Tls, User, join_address, split_address
from ordercast.net.wire.settings import WireSettings
from ordercast.pubsub.keeping import KeepRule, KeepTable
from ordercast.pubsub.settings import BrokerSettings

LOOPBACK = "127.0.0.1"
_UNKNOWN_FIELD = re.compile(r"unknown field `(?P<name>[^`]*)`")
_Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
_Ms = Annotated[float, msgspec.Meta(gt=0, le=60_000)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]


class BrokerEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One broker. It listens at `listen`, or on loopback at `port`; others reach it at `advertise` if that differs."""

    id: str
    listen: str = ""
    port: _Port = 0
    advertise: str = ""
    parent: str = ""
    """Id of another broker of the file; the one without is the first root."""
    admin: str = ""
    """HOST:PORT of health, metrics and status."""
    nats: str = ""
    """HOST:PORT of its door for clients of NATS."""
    web: str = ""
    """HOST:PORT of its door for browsers and HTTP."""
    region: str = ""

    @property
    def door(self) -> str:
        return self.listen or join_address(LOOPBACK, self.port)

    @property
    def address(self) -> str:
        return self.advertise or self.door


class ClusterFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A whole cluster."""

    cluster: _Name = "ordercast"
    broker: tuple[BrokerEntry, ...] = ()
    settings: BrokerSettings = BrokerSettings()
    limits: WireSettings = WireSettings()
    peer_token: str = ""
    client_token: str = ""
    admin_token: str = ""
    """What requests to an admin port must carry; needed where that port is not on loopback."""
    admin_tls: bool = False
    """The admin ports speak TLS, with the certificate of `tls`."""
    user: tuple[User, ...] = ()
    tls: Tls | None = None
    data: str = ""
    """Directory for the logs of the brokers, one below it for each; without it brokers are soft state."""
    fsync: Fsync = "always"
    """`always`: what a turn has added is on the disk before any packet of the turn leaves. `interval`: it is within
    `fsync_ms`. `never`: whenever the system likes. The last two may lose what was acknowledged when the machine, not
    merely the process, dies."""
    fsync_ms: _Ms = 100.0
    keep: tuple[KeepTable, ...] = ()
    """Topics whose publications are kept; needs `data`."""
    nats: NatsTable = NatsTable()
    web: WebTable = WebTable()
    trace: str = ""
    """Run directory for the journals of the brokers."""

    @property
    def directory(self) -> dict[NodeId, str]:
        return {NodeId(entry.id): entry.address for entry in self.broker}

    def find(self, broker: str) -> BrokerEntry | None:
        return next((entry for entry in self.broker if entry.id == broker), None)

    def entry(self, broker: str) -> BrokerEntry:
        found = self.find(broker)
        if found is None:
            raise unknown_name("broker", broker, [entry.id for entry in self.broker])
        return found

    def keep_rules(self) -> tuple[KeepRule, ...]:
        """The rules in `keep`; a UsageError names what is wrong with it."""
        rules = []
        for i, table in enumerate(self.keep):
            try:
                rules.append(table.rule())
            except UsageError as error:
                raise UsageError(f"keep[{i}]: {error}") from None
        return tuple(rules)

    def credentials(self) -> Credentials:
        return Credentials(
            cluster=self.cluster, peer_token=self.peer_token, client_token=self.client_token, users=self.user,
            tls=self.tls,
        )  # fmt: skip

    def admin_key(self) -> AdminKey:
        """With which this cluster's admin ports are asked."""
        return AdminKey(self.admin_token, self.tls if self.admin_tls else None)

    def settings_of(self, entry: BrokerEntry | None) -> BrokerSettings:
        if entry is None or not entry.region:
            return self.settings
        return msgspec.structs.replace(self.settings, region=entry.region)


_TABLES: dict[str, type[msgspec.Struct]] = {
    "": ClusterFile, "broker": BrokerEntry, "settings": BrokerSettings, "limits": WireSettings, "user": User,
    "tls": Tls, "keep": KeepTable, "nats": NatsTable, "web": WebTable, "nats.default": DefaultTable,
    "web.default": DefaultTable,
}  # fmt: skip


def load_cluster(path: Path) -> ClusterFile:
    """The cluster in `path`; what is wrong is named by file and field."""
    try:
        text = path.read_text(encoding="utf-8")
        raw = msgspec.json.decode(text, type=dict) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except NOT_DECODABLE as error:
        raise UsageError(f"{path}: not valid {'JSON' if path.suffix == '.json' else 'TOML'}: {error}") from None
    try:
        return parse_cluster(raw, path.parent)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def parse_cluster(raw: dict[str, Any], directory: Path) -> ClusterFile:
    """A cluster from plain data; relative paths start at `directory`."""
    try:
        cluster = msgspec.convert(raw, ClusterFile)
    except NOT_DECODABLE as error:
        raise _explain(str(error)) from None
    _check_brokers(cluster)
    cluster.credentials()
    if cluster.admin_tls and cluster.tls is None:
        raise UsageError("admin_tls: needs [tls], which says with which certificate")
    _check_kept(cluster)
    for name, door in (("nats", cluster.nats), ("web", cluster.web)):
        check_door(name, door)
        cluster = _with_door(cluster, name, door.listen)
    paths = {field: str(directory / value) for field in ("data", "trace") if (value := getattr(cluster, field))}
    if cluster.tls is not None:
        files = {f: str(directory / v) for f in ("cert", "key", "ca") if (v := getattr(cluster.tls, f))}
        return msgspec.structs.replace(cluster, tls=msgspec.structs.replace(cluster.tls, **files), **paths)
    return msgspec.structs.replace(cluster, **paths)


def _with_door(cluster: ClusterFile, name: str, listen: str) -> ClusterFile:
    """The door of the whole file is the first broker's: no two can listen at one address."""
    if not listen or not cluster.broker:
        return cluster
    first, *others = cluster.broker
    if getattr(first, name):
        raise UsageError(f"{name}.listen: broker {first.id!r} says where it listens, too; say it once")
    return msgspec.structs.replace(cluster, broker=(msgspec.structs.replace(first, **{name: listen}), *others))


def _check_kept(cluster: ClusterFile) -> None:
    rules = cluster.keep_rules()
    if rules and not cluster.data:
        raise UsageError("keep: needs data, a directory for what is kept")
    if rules and cluster.settings.order_scope != "session":
        raise UsageError("keep: needs order_scope = 'session'; with 'key' there is no order that all copies could keep")
    if len({rule.filter for rule in rules}) < len(rules):
        raise UsageError("keep: two tables have the same filter")


def check_broker_id(broker: str, where: str = "id") -> None:
    """A broker's name is the name of its directory, too."""
    if not valid_broker(broker):
        raise UsageError(f"{where}: {broker!r} is not a name that a broker can have")


def _check_brokers(cluster: ClusterFile) -> None:
    ids = [entry.id for entry in cluster.broker]
    addresses: dict[str, str] = {}
    for entry in cluster.broker:
        where = f"broker {entry.id!r}"
        check_broker_id(entry.id, where)
        if ids.count(entry.id) > 1:
            raise UsageError(f"{where}: defined twice")
        if bool(entry.listen) == bool(entry.port):
            raise UsageError(f"{where}: needs either listen or port")
        split_address(entry.door, f"{where}: listen")
        other = addresses.setdefault(entry.address, entry.id)
        if other != entry.id:
            raise UsageError(f"{where}: has the address of {other!r}, {entry.address}")
        for field in ("advertise", "admin", "nats", "web"):
            if getattr(entry, field):
                split_address(getattr(entry, field), f"{where}: {field}")
        if entry.parent and entry.parent not in ids:
            raise UsageError(f"{where}: parent: {unknown_name('broker', entry.parent, ids)}")
    _check_tree(cluster)


def _check_tree(cluster: ClusterFile) -> None:
    roots = [entry.id for entry in cluster.broker if not entry.parent]
    if cluster.broker and len(roots) != 1:
        found = f"{len(roots)} have none: {', '.join(roots)}" if roots else "all have one"
        raise UsageError(f"broker: exactly one must be without a parent; {found}")
    parents = {entry.id: entry.parent for entry in cluster.broker}
    for broker in parents:
        above = [broker]
        while parents[above[-1]]:
            above.append(parents[above[-1]])
            if above.count(above[-1]) > 1:
                raise UsageError(f"broker {broker!r}: has no way to the root: {' under '.join(above)}")


def _explain(error: str) -> UsageError:
    """An error of msgspec in our words: the place first, and the nearest valid name where a name is wrong."""
    problem, _, path = error.partition(" - at `")
    where = path.removesuffix("`").removeprefix("$").removeprefix(".")
    if match := _UNKNOWN_FIELD.search(problem):
        fields = _TABLES[where.partition("[")[0]].__struct_encode_fields__
        return UsageError(f"{where or 'top level'}: {unknown_name('field', match['name'], fields)}")
    return UsageError(f"{where or 'top level'}: {problem[0].lower()}{problem[1:]}")
