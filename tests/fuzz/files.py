"""What lies on disks and stands in command lines: whatever is wrong is a UsageError, or a TraceError of a trace."""

from __future__ import annotations

import atexit
import re
import shutil
import sqlite3
import tempfile
import tomllib
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import msgspec
import pyarrow.parquet as pq

from ordercast.api.ledger import SqliteLedger
from ordercast.core.errors import UsageError
from ordercast.core.ids import NodeId, Origin, Topic
from ordercast.core.messages import Guarantee
from ordercast.explore.scope.configurations import parse_destinations
from ordercast.explore.scope.publications import parse_publication
from ordercast.explore.stage.schedule import parse_step, read_schedule
from ordercast.net.brokers.cluster import BrokerCluster, Ready
from ordercast.net.brokers.cluster_file import load_cluster
from ordercast.net.brokers.incarnation import DataDirectory
from ordercast.net.brokers.ledger import DiskBrokerLedger
from ordercast.net.log import segments
from ordercast.net.nodes import saved_state
from ordercast.net.nodes.state_log import (
    Fired,
    Head,
    LifeBegun,
    PublishedInput,
    ReceivedInput,
    Started,
    StateLog,
    Suspected,
    Whose,
)
from ordercast.net.wire.credentials import split_address
from ordercast.protocols import CATALOGUE, lookup
from ordercast.protocols.flood.fifo import FIFO
from ordercast.pubsub.extras import Extras
from ordercast.pubsub.publications import Publication
from ordercast.pubsub.tree_packets import Change, KnownDirectory
from ordercast.scenario.load import apply_override, dump_scenario, load_scenario, parse_scenario
from ordercast.sim import simulate
from ordercast.trace.journal import Row, journal_path, read_journal
from ordercast.trace.schema import EVENTS, JOURNALS, MANIFEST
from ordercast.trace.store import Manifest, TraceError, event_files, read_manifest
from ordercast.verify.asked import read_members
from ordercast.verify.importers.choose import import_trace
from ordercast.verify.judge import judge_path, judge_trace
from ordercast.verify.metrics.local import measure
from tests.fuzz.engine import Target
from tests.fuzz.harvest import ROOT, harvest
from tests.support.sim_lab import scenario

_MARKER = 0x5EED5EED
_ENTRY = Publication(Origin("ann~1"), 1, Topic("t"), b"x", Guarantee.TOTAL, ("k",), 1, Extras(((b"h", b"v"),), 1, "d"))


@cache
def _desk() -> Path:
    """A directory for the file that is tried next, in memory where there is such a place."""
    memory = Path("/dev/shm")
    path = Path(tempfile.mkdtemp(prefix="ordercast-fuzz-", dir=memory if memory.is_dir() else None))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def _in_file(name: str, read: Callable[[Path], object]) -> Callable[[bytes], None]:
    """The bytes in a file of that name, alone in a directory of its own."""

    def decode(data: bytes) -> None:
        path = _desk() / name.replace("/", "-").replace(".", "-") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        read(path)

    return decode


def _fresh(name: str) -> Path:
    path = _desk() / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def _texts(*patterns: str) -> Callable[[], list[bytes]]:
    return lambda: [path.read_bytes() for pattern in patterns for path in sorted(ROOT.glob(pattern))]


def _in_docs(page: str, word: bytes) -> list[bytes]:
    """The TOML in a page of the documentation that has this word."""
    blocks = re.findall(rb"```toml\n(.*?)```", (ROOT / "docs" / page).read_bytes(), re.DOTALL)
    return [block for block in blocks if word in block]


# Clusters, scenarios, schedules

_CLUSTER = b"""cluster = "bank"
data = "data"
fsync = "interval"
fsync_ms = 20.0
peer_token = "p"
admin_token = "a"
[settings]
total_degree = 8
[limits]
heartbeat_ms = 100
[tls]
cert = "c.pem"
key = "k.pem"
ca = "ca.pem"
[[keep]]
filter = "accounts.>"
max_age = "7d"
max_bytes = "10GB"
copies = 2
compact = "key"
[[user]]
name = "ann"
token = "x"
publish = ["news.*"]
[[broker]]
id = "b0"
port = 7000
admin = "127.0.0.1:9000"
[[broker]]
id = "b1"
listen = "[::1]:7001"
advertise = "example.org:7001"
parent = "b0"
region = "eu"
"""


def _clusters() -> list[bytes]:
    return [_CLUSTER, *_in_docs("broker-config.md", b"[[broker]]")]


def _clusters_as_json() -> list[bytes]:
    return [msgspec.json.encode(tomllib.loads(text.decode())) for text in _clusters()]


def _scenario(path: Path) -> None:
    """What can be read can be written, and read again."""
    read = load_scenario(path)
    parse_scenario(tomllib.loads(dump_scenario(read)))


def _schedule(path: Path) -> None:
    schedule = read_schedule(path)
    schedule.members()
    schedule.configuration()


_SCHEDULES = (
    b'format = 1\nprotocol = "skeen"\nnodes = 3\noverlay = "clique"\ndestinations = [\n  ["n0", "n1"],  # m1\n]\n'
    b'steps = [\n  "c1 publishes",\n  "n0 -> n1 #2 is lost",\n  "n0 suspects n1,n2",\n  "everyone settles",\n'
    b'  "n1 timer ack",\n]\n[groups]\na = ["n0", "n2"]\n[options]\nf = 1\n[violation]\ncheck = "total"\ndetail = "x"\n',
    b'protocol = "locamu"\nnodes = 4\nedges = ["0-1", "1-2"]\npublications = ["0>a", "1>a after m1"]\nsteps = []\n'
    b'[groups]\na = ["0", "1"]\n',
    b'protocol = "broker"\nnodes = 2\nclients = ["0:a", "1:a"]\ncrash = "1 returns"\nsteps = ["b0 -> b1"]\n',
)


# Logs and kept state


def _segment(data: bytes) -> None:
    """Reading raises nothing, and all that it says of the file is within it."""
    segments.other_format(data)
    found = segments.read(data)
    assert all(record.body in data for record in found.records)
    assert all(0 <= damage.start <= damage.end <= max(len(data), len(segments.PREAMBLE)) for damage in found.damage)


def _segments() -> list[bytes]:
    later = b"".join(segments.frame(_MARKER, number, bytes([number]) * 40) for number in range(3, 7))
    return [segments.begun(_MARKER, kind, [b"one", b"two" * 300]) + later for kind in ("broker", "node")]


def _log_file(kind: str, open_log: Callable[[Path], object]) -> Callable[[bytes], None]:
    """The bytes as a whole file of a log."""

    def decode(data: bytes) -> None:
        path = _fresh(f"log-{kind}")
        place = path / "ledger" if kind == "broker" else path
        place.mkdir(exist_ok=True)
        (place / "00000001.log").write_bytes(data)
        open_log(path)

    return decode


def _record(kind: str, before: list[bytes], open_log: Callable[[Path], object]) -> Callable[[bytes], None]:
    """The bytes as a record whose checksum is right: somebody, or another version, wrote them on purpose."""
    whole = _log_file(kind, open_log)
    return lambda data: whole(segments.begun(_MARKER, kind, [*before, data]))


def _open_ledger(path: Path) -> None:
    ledger = DiskBrokerLedger(path, fsync="never")
    try:
        ledger.saved()
        ledger._beginning()
    finally:
        ledger.close()


_DIRECTORY = KnownDirectory((Change(NodeId("b1"), "", (1, 2)),), (1, 1), {NodeId("b0"): "127.0.0.1:1"})


@cache
def _ledger_file() -> Path:
    path = _fresh("ledger-seed")
    ledger = DiskBrokerLedger(path, fsync="never")
    topic, ann = Topic("t"), Origin("ann~1")
    for write in (
        lambda: ledger.entries(topic, (_ENTRY,)), lambda: ledger.base(topic, {ann: 1}), lambda: ledger.term(4),
        lambda: ledger.roster({topic: (ann,)}, {ann: 3}), lambda: ledger.directory(_DIRECTORY),
        lambda: ledger.forget(topic),
    ):  # fmt: skip
        write()
        ledger.flush()
    ledger.close()
    (log,) = (path / "ledger").glob("*.log")
    return log


def _ledger_records() -> list[bytes]:
    return [record.body for record in segments.read(_ledger_file().read_bytes()).records]


_WHOSE = Whose(NodeId("n0"), 0, "fifo", "{}", 7)
_HEAD = msgspec.msgpack.encode(Head(_WHOSE))


def _open_state(path: Path) -> None:
    StateLog(path, _WHOSE).close()


def _state_files() -> list[bytes]:
    return [segments.begun(_MARKER, "node", [_HEAD, body]) for body in _state_inputs()]


def _state_inputs() -> list[bytes]:
    inputs = [
        Started(), LifeBegun(), PublishedInput(Topic("t"), b"x", Guarantee.FIFO, ("k",), ()), Fired(("ack", 1)),
        Suspected(NodeId("n1")), ReceivedInput(NodeId("n1"), (b"\x92\x01\xc0",)),
    ]  # fmt: skip
    return [msgspec.msgpack.encode([one]) for one in inputs] + [msgspec.msgpack.encode(inputs)]


def _kept(protocol: str) -> Callable[[bytes], None]:
    return lambda data: saved_state.restore(harvest(protocol).fresh(), data)


def _keepers(protocol: str) -> Callable[[], list[bytes]]:
    return lambda: [saved_state.pack(machine) for machine in harvest(protocol).machines[:3]]


# What a client keeps


def _client_rows(data: bytes) -> None:
    """The bytes in one of the places where the file has bytes."""
    path = _fresh("client") / "client.sqlite"
    shutil.copyfile(_client_file(), path)
    column = ("topics SET have", "topics SET base", "history SET body", "outbox SET body")[len(data) % 4]
    database = sqlite3.connect(path)
    with database:
        database.execute(f"UPDATE {column} = ?", (data,))
    database.close()
    _open_client(path.parent)


def _open_client(directory: Path) -> None:
    ledger = SqliteLedger(directory)
    try:
        ledger.saved()
        ledger.unanswered()
    finally:
        ledger.abandon()


@cache
def _client_file() -> Path:
    path = _fresh("client-seed")
    ledger = SqliteLedger(path)
    ledger.begin_session("ann", 1)
    ledger.member(Topic("t"), True, granted=True)
    ledger.published(Topic("t"), [_ENTRY])
    ledger.delivered(Topic("t"), [_ENTRY])
    ledger.base(Topic("t"), {Origin("ann~1"): 0})
    ledger.watched(("t.*",))
    ledger.close()
    return path / "client.sqlite"


def _client_values() -> list[bytes]:
    encode = msgspec.msgpack.encode
    return [encode(_ENTRY), encode({"ann~1": (3, (5, 7))}), encode({"ann~1": 3}), encode({})]


def _client_whole(data: bytes) -> None:
    path = _fresh("client-whole")
    (path / "client.sqlite").write_bytes(data)
    _open_client(path)


# Traces


@cache
def _run() -> Path:
    """A small run of our own."""
    out = _fresh("run-seed") / "run"
    simulate(scenario(), FIFO, seed=0, out=out)
    return out


def _manifests() -> list[bytes]:
    return [(_run() / MANIFEST).read_bytes(), msgspec.json.encode(Manifest(run_id="r", protocol="p", guarantee="fifo"))]


def _judge_manifest(data: bytes) -> None:
    path = _fresh("manifest")
    shutil.copytree(_run() / EVENTS, path / EVENTS)
    (path / MANIFEST).write_bytes(data)
    read_manifest(path)
    judge_path(path)


def _parquet() -> list[bytes]:
    """Event files of our own, and the same events as others write them."""
    (own,) = event_files(_run())
    found = [own.read_bytes()]
    for dictionaries in (True, False):
        foreign = _fresh("parquet-seed") / "e.parquet"
        pq.write_table(pq.read_table(own), foreign, compression="none", use_dictionary=dictionaries)
        found.append(foreign.read_bytes())
    return found


def _judge_and_measure(path: Path) -> None:
    """Nobody vouches for the file: a child reads it, and may die of it."""
    judge_path(path)
    measure([path])


def _journals() -> list[bytes]:
    rows = [
        Row("subscribe", 1, topic="t"), Row("publish", 2, msg="a#1", topic="t", guarantee="causal"),
        Row("deliver", 3, msg="a#1", topic="t"), Row("crash", 4), Row("recover", 5, info={"state": "kept"}),
        Row("leave", 6),
    ]  # fmt: skip
    encode = msgspec.json.Encoder().encode_lines
    return [encode(rows), encode(rows[:3])]


def _journal_run(data: bytes) -> None:
    path = _fresh("journal")
    (path / JOURNALS).mkdir()
    journal = journal_path(path / JOURNALS, "a", 0)
    journal.write_bytes(data)
    deque(read_journal(journal), maxlen=0)
    judge_path(path)


_LINES = (
    b'{"node": 1, "seq": 0, "kind": "publish", "msg": "m1", "topic": "t", "keys": ["k"], "time_ns": 5}\n'
    b'{"node": 1, "seq": 1, "kind": "deliver", "msg": "m1", "info": {"a": "b"}, "dst": "1;2"}\n'
    b'{"node": "2", "seq": 0, "kind": "deliver", "msg": "m1", "guarantee": "causal"}\n',
)
_CSV = (
    b"node,seq,kind,msg,topic,time_ns,keys\n1,0,publish,m1,t,5,k;l\n1,1,deliver,m1,t,6,\n2,0,deliver,m1,t,7,\n",
    b'"node","seq","kind","msg","run","guarantee"\r\n"1","0","publish","m1","r","causal"\r\n"2","0","deliver","m1",,\r\n',
)


# Small files and words


def _life(path: Path) -> None:
    directory = DataDirectory(path.parent)
    try:
        directory.last_life()
    finally:
        directory.release()


@cache
def _cluster() -> BrokerCluster:
    path = _fresh("ready-cluster") / "cluster.toml"
    path.write_bytes(b'[[broker]]\nid = "b0"\nport = 7000\n')
    return BrokerCluster(path)


def _ready(data: bytes) -> None:
    cluster = _cluster()
    cluster.run_directory.mkdir(parents=True, exist_ok=True)
    (cluster.run_directory / "b0.json").write_bytes(data)
    cluster.process("b0")


def _starts() -> list[bytes]:
    return [msgspec.json.encode({"file": str(_cluster().file)})]


def _started(data: bytes) -> None:
    path = _fresh("started") / "cluster.json"
    path.write_bytes(data)
    BrokerCluster._started(path)


def _words(data: bytes) -> None:
    """What may stand in a command line, each in its own place."""
    text = data.decode(errors="surrogateescape")
    raw = {"overlay": {"kind": "line", "nodes": 2}, "workload": [{"kind": "open", "rate_per_s": 1}]}
    for read in (
        lambda: split_address(text), lambda: parse_step(text), lambda: apply_override(raw, text),
        lambda: parse_scenario(raw), lambda: parse_destinations(text, 4), lambda: lookup(text.replace("/", "")),
        lambda: parse_publication(text, 4),
    ):  # fmt: skip
        try:
            read()
        except UsageError:
            continue


_COMMAND_WORDS = (
    b"127.0.0.1:7000", b"[::1]:80", b"n0 -> n1 #2", b"n0 timer ack", b"overlay.nodes=5", b"workload.0.rate_per_s=1e3",
    b"0,1;2,3", b"0>a total", b"skeen", b"no.such.module:NAME", b"seed=[1]", b"n0 suspects n1,n2", b"1>b after m1",
)  # fmt: skip


_RECORDED = "tests/verify/recorded"
_FOREIGN = {
    "cs451": f"{_RECORDED}/cs451/*",
    "shiviz": f"{_RECORDED}/shiviz.log",
    "libp2p": f"{_RECORDED}/libp2p.json",
    "jepsen-kafka": f"{_RECORDED}/kafka.edn",
    "otel": f"{_RECORDED}/otel.json",
}
"""Formats of other tools, and examples of each."""


def _imported(format_: str, file: str) -> Callable[[bytes], None]:
    name = "proc1.output" if format_ == "cs451" else Path(file).name
    return _in_file(name, lambda path: judge_trace(import_trace(format_, path)))


def file_targets() -> Iterator[Target]:
    files = {"text": True, "cases": 1500}
    yield Target("cluster-files", _clusters, _in_file("cluster.toml", load_cluster), UsageError, text=True, cases=2000)
    yield Target("cluster-files-json", _clusters_as_json, _in_file("cluster.json", load_cluster), UsageError, **files)
    scenarios = _texts("scenarios/*.toml")
    yield Target("scenarios", scenarios, _in_file("s.toml", _scenario), UsageError, text=True, cases=600)
    yield Target(
        "schedules", lambda: list(_SCHEDULES), _in_file("x.schedule.toml", _schedule), UsageError, text=True, cases=800
    )
    yield Target("segments", _segments, _segment, cases=400)
    yield Target(
        "log-of-a-broker",
        lambda: [_ledger_file().read_bytes()],
        _log_file("broker", _open_ledger),
        UsageError,
        cases=150,
    )
    yield Target("log-of-a-node", _state_files, _log_file("node", _open_state), UsageError, cases=150)
    yield Target("ledger-records", _ledger_records, _record("broker", [], _open_ledger), UsageError, cases=250)
    yield Target("state-inputs", _state_inputs, _record("node", [_HEAD], _open_state), UsageError, cases=250)
    yield Target("state-heads", lambda: [_HEAD], _record("node", [], _open_state), UsageError, cases=150)
    for name in CATALOGUE:
        yield Target(f"kept-state-of-{name}", _keepers(name), _kept(name), UsageError, cases=60)
    yield Target("client-rows", _client_values, _client_rows, UsageError, cases=60)
    yield Target("client-file", lambda: [_client_file().read_bytes()], _client_whole, UsageError, cases=25)
    yield Target("manifests", _manifests, _judge_manifest, TraceError, text=True, cases=50)
    yield Target("journals", _journals, _journal_run, TraceError, text=True, cases=120)
    yield Target("json-lines", lambda: list(_LINES), _in_file("e.jsonl", judge_path), TraceError, text=True, cases=150)
    yield Target("csv", lambda: list(_CSV), _in_file("e.csv", judge_path), TraceError, text=True, cases=150)
    yield Target("parquet", _parquet, _in_file("e.parquet", _judge_and_measure), TraceError, cases=150)
    for name, file in _FOREIGN.items():
        yield Target(f"trace-of-{name}", _texts(file), _imported(name, file), TraceError, text=True, cases=60)
    members = [b'{"t": ["a", "b"]}']
    yield Target("members", lambda: members, _in_file("m.json", read_members), UsageError, TraceError, **files)
    yield Target("lives", lambda: [b"17\n", b"0"], _in_file("life", _life), UsageError, text=True, cases=500)
    ready = [msgspec.json.encode(Ready(1, "127.0.0.1:1", "127.0.0.1:2", 3, 4))]
    yield Target("ready-files", lambda: ready, _ready, **files)
    yield Target(
        "started-clusters",
        _starts,
        _started,
        UsageError,
        text=True,
        cases=500,
    )
    yield Target("words-of-commands", lambda: list(_COMMAND_WORDS), _words, text=True, cases=1500)
