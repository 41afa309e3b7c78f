"""Cluster files: what is wrong in one is said in one line that names the field."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordercast.core.errors import UsageError
from ordercast.net.brokers.cluster_file import ClusterFile, load_cluster

GOOD = """
cluster = "bank"
data = "logs"
peer_token = "p"
[settings]
total_degree = 4
[limits]
heartbeat_ms = 100
[[user]]
name = "ann"
token = "a"
publish = ["accounts.*"]
[[broker]]
id = "b0"
port = 7000
[[broker]]
id = "b1"
listen = "127.0.0.1:7001"
advertise = "10.0.0.1:7001"
parent = "b0"
"""


def _load(tmp_path: Path, text: str) -> ClusterFile:
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    return load_cluster(path)


def test_a_cluster_file_says_everything_about_its_brokers(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(GOOD)
    cluster = load_cluster(path)
    assert cluster.directory == {"b0": "127.0.0.1:7000", "b1": "10.0.0.1:7001"}
    assert cluster.entry("b1").door == "127.0.0.1:7001"
    assert cluster.settings.total_degree == 4
    assert cluster.limits.heartbeat_ms == 100
    assert cluster.data == str(tmp_path / "logs")
    assert cluster.credentials().users[0].publish == ("accounts.*",)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("cluster = 3", "cluster: expected `str`, got `int`"),
        ("clster = 'x'", "top level: unknown field 'clster'; did you mean 'cluster'?"),
        ("[settings]\ntotal_degre = 3", "settings: unknown field 'total_degre'; did you mean 'total_degree'?"),
        ("[limits]\nheartbeat = 3", "limits: unknown field 'heartbeat'; did you mean 'heartbeat_ms'?"),
        ("[settings]\ntotal_degree = 0", "settings.total_degree: expected `int` >= 1"),
        ("fsync = 'sometimes'", "fsync: invalid enum value 'sometimes'"),
        ("[[broker]]\nid = 'b0'", "broker 'b0': needs either listen or port"),
        ("[[broker]]\nid = 'b0'\nport = 1\nlisten = 'h:1'", "broker 'b0': needs either listen or port"),
        ("[[broker]]\nid = 'b0'\nlisten = 'h'", "broker 'b0': listen: 'h' is not HOST:PORT"),
        ('[[broker]]\nid = "b0"\nlisten = "\\u0000:1"', r"broker 'b0': listen: '\x00:1' is not HOST:PORT"),
        ("[[broker]]\nid = 'b~0'\nport = 1", "broker 'b~0': 'b~0' is not a name that a broker can have"),
        ("[[broker]]\nid = '..'\nport = 1", "broker '..': '..' is not a name that a broker can have"),
        ("[[broker]]\nid = '*'\nport = 1", "broker '*': '*' is not a name that a broker can have"),
        (
            "[[broker]]\nid = 'b0'\nport = 1\nadvertise = 'garbage'",
            "broker 'b0': advertise: 'garbage' is not HOST:PORT",
        ),
        ("[[broker]]\nid = 'a'\nport = 1\n[[broker]]\nid = 'a'\nport = 2\nparent = 'a'", "broker 'a': defined twice"),
        ("[[broker]]\nid = 'a'\nport = 1\nparent = 'x'", "broker 'a': parent: unknown broker 'x'; known: a"),
        ("[[broker]]\nid = 'a'\nport = 1\n[[broker]]\nid = 'b'\nport = 2", "broker: exactly one must be without"),
        (
            "[[broker]]\nid='r'\nport=9\n[[broker]]\nid='a'\nport=1\nparent='b'\n[[broker]]\nid='b'\nport=2\nparent='a'",
            "broker 'a': has no way to the root: a under b under a",
        ),
        ("[[broker]]\nid='r'\nport=9\n[[broker]]\nid='a'\nport=9\nparent='r'", "has the address of 'r', 127.0.0.1:9"),
        ("peer_token = 'x'\nclient_token = 'x'", "peer_token: is a token of clients too"),
        ("[[user]]\nname = 'ann'\ntoken = ''", "user 'ann': needs a name of its own and a token"),
        ("[[user]]\nname='a'\ntoken='t'\npublish=['a..b']", "filter 'a..b': has an empty segment"),
        ("[[user]]\nname='a'\ntokn='t'", "user[0]: unknown field 'tokn'; did you mean 'token'?"),
        ("[web]\nlisten = 'here'", "web.listen: 'here' is not HOST:PORT"),
        (
            "[nats]\nlisten = '127.0.0.1:4222'\n[[broker]]\nid = 'a'\nport = 1\nnats = '127.0.0.1:4223'",
            "nats.listen: broker 'a' says where it listens, too; say it once",
        ),
        ("cluster = ", "not valid TOML"),
    ],
)
def test_what_is_wrong_is_named_by_file_and_field(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        _load(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'cluster.toml'}: ")
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_doors_of_a_whole_file_are_those_of_its_first_broker(tmp_path: Path) -> None:
    brokers = "[[broker]]\nid = 'a'\nport = 1\n[[broker]]\nid = 'b'\nport = 2\nparent = 'a'\nweb = '127.0.0.1:8081'\n"
    cluster = _load(tmp_path, f"{brokers}[web]\nlisten = '127.0.0.1:8080'\n[nats]\nlisten = '127.0.0.1:4222'")
    assert [(entry.web, entry.nats) for entry in cluster.broker] == [
        ("127.0.0.1:8080", "127.0.0.1:4222"),
        ("127.0.0.1:8081", ""),
    ]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.toml: No such file or directory"):
        load_cluster(tmp_path / "nowhere.toml")
