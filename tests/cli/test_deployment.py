"""Files for running brokers for real: each is parsed, and its commands are run as written, on this machine's ports."""

from __future__ import annotations

import configparser
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml

from ordercast.net.brokers.delivery_times import DeliveryTimes
from ordercast.net.brokers.exposition import MEANINGS, exposition
from tests.cli.test_broker_commands import free_ports

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
METRIC = re.compile(r"ordercast_\w+")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


@contextmanager
def started(arguments: Sequence[str]) -> Iterator[str]:
    """The broker that `ordercast ARGUMENTS` is; the line by which it says where it listens."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ordercast", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=ENVIRONMENT,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process.stdout.readline()
    finally:
        process.terminate()
        _, complaints = process.communicate(timeout=30)
    assert process.returncode == 0, complaints


def on_this_machine(text: str, directory: Path) -> tuple[Path, dict[str, int]]:
    """A cluster file with every broker on a port of its own, on loopback; and these ports."""
    brokers = [entry["id"] for entry in tomllib.loads(text)["broker"]]
    ports = dict(zip(brokers, free_ports(len(brokers)), strict=True))
    numbers = iter(ports.values())
    moved = re.sub(r'listen = "0\.0\.0\.0:7000"', lambda _: f'listen = "127.0.0.1:{next(numbers)}"', text)
    moved = re.sub(r"advertise = .*\n", "", moved)
    moved = moved.replace('admin = "127.0.0.1:7100"', 'admin = "127.0.0.1:0"')
    file = directory / "cluster.toml"
    file.write_text(moved)
    return file, ports


def assert_they_are_one_tree(commands: Mapping[str, Sequence[str]], text: str, tmp_path: Path) -> None:
    """Start every broker by its command; what is published at the first arrives at the last."""
    file, ports = on_this_machine(text, tmp_path)
    paths = {"/etc/ordercast/cluster.toml": str(file)}
    token = ("--token", tomllib.loads(text)["client_token"])
    with ExitStack() as brokers:
        for name, command in commands.items():
            places = {**paths, "/data": str(tmp_path / name), "/data/broker": str(tmp_path / name), "$(NAME)": name}
            line = brokers.enter_context(started([places.get(word, word) for word in command]))
            assert line.startswith(f"broker {name} listens at 127.0.0.1:{ports[name]}")
        first, *_, last = (f"127.0.0.1:{port}" for port in ports.values())
        reader = subprocess.Popen(
            [sys.executable, "-m", "ordercast", "sub", "t", "--count", "1", "--broker", last, *token],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
        )  # fmt: skip
        assert reader.stderr is not None
        assert reader.stderr.readline().startswith("subscribed")
        subprocess.run(
            [sys.executable, "-m", "ordercast", "pub", "t", "hello", "--broker", first, *token], check=True,
            env=ENVIRONMENT, capture_output=True,
        )  # fmt: skip
        assert reader.communicate(timeout=60)[0] == "t\t\thello\n"


def test_the_compose_file_starts_three_brokers_of_one_tree(tmp_path: Path) -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    text = (DEPLOY / "cluster.toml").read_text()

    assert_they_are_one_tree({name: service["command"] for name, service in services.items()}, text, tmp_path)


def test_the_kubernetes_file_starts_three_brokers_of_one_tree(tmp_path: Path) -> None:
    parts = {part["kind"]: part for part in yaml.safe_load_all((DEPLOY / "kubernetes/ordercast.yaml").read_text())}
    pods = parts["StatefulSet"]["spec"]
    text = parts["Secret"]["stringData"]["cluster.toml"]
    names = [f"{parts['StatefulSet']['metadata']['name']}-{number}" for number in range(pods["replicas"])]

    assert names == [entry["id"] for entry in tomllib.loads(text)["broker"]]
    (container,) = pods["template"]["spec"]["containers"]
    assert_they_are_one_tree(dict.fromkeys(names, container["args"]), text, tmp_path)


def test_the_image_runs_a_broker_whose_health_check_passes(tmp_path: Path) -> None:
    """Docker is not needed: its instructions are words that we can run."""
    instructions = (DEPLOY / "Dockerfile").read_text().replace("\\\n", "")
    command = json.loads(re.findall(r"^CMD (\[.*\])$", instructions, re.MULTILINE)[0])
    check = json.loads(re.findall(r"^HEALTHCHECK .*CMD (\[.*\])$", instructions, re.MULTILINE)[0])
    listen, admin = (f"127.0.0.1:{port}" for port in free_ports(2))
    places = {"127.0.0.1:7000": listen, "127.0.0.1:7100": admin, "/data": str(tmp_path)}

    with started([places.get(word, word) for word in command]):
        healthy = subprocess.run([sys.executable, "-c", check[2].replace("127.0.0.1:7100", admin)], check=False)
        assert healthy.returncode == 0
    assert subprocess.run([sys.executable, "-c", check[2].replace("127.0.0.1:7100", admin)], check=False,
                          capture_output=True).returncode != 0  # fmt: skip
    assert "\nUSER ordercast\n" in instructions


@pytest.mark.parametrize("broker", ["b0", "b2"])
def test_the_service_starts_the_broker_that_it_is_named_after(tmp_path: Path, broker: str) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string((DEPLOY / "ordercast@.service").read_text())
    program, *arguments = unit["Service"]["ExecStart"].replace("%i", broker).split()
    file, ports = on_this_machine((DEPLOY / "cluster.toml").read_text(), tmp_path)
    places = {"/etc/ordercast/cluster.toml": str(file), f"/var/lib/ordercast/{broker}": str(tmp_path / broker)}

    assert Path(program).name == "ordercast"
    with started([places.get(word, word) for word in arguments]) as line:
        assert line.startswith(f"broker {broker} listens at 127.0.0.1:{ports[broker]}")


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    """Families of histograms and of counters count under the names that they are asked by."""
    board = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    asked = {
        name for panel in board["panels"] for target in panel["targets"] for name in METRIC.findall(target["expr"])
    }
    status = {
        "problem": None, "connections": [], "overlay": {"term": [1, "b0"]}, "topics": {},
        "totals": dict.fromkeys(("topics", "log", "pending", "held", "bytes"), 0),
        "counters": dict.fromkeys(MEANINGS, 0),
    }  # fmt: skip
    lines = [*exposition(status, is_root=True, ledger=(0, 0)), *DeliveryTimes().lines()]
    assert asked <= {re.split("[{ ]", line)[0] for line in lines if not line.startswith("#")}
    assert len(asked) > 10
