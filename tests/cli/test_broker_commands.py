"""Brokers from the command line: one in the foreground, a cluster behind it, and what goes wrong in one line."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ordercast.api import connect
from ordercast.core.ids import Topic
from ordercast.net.brokers.admin_client import ask
from ordercast.net.brokers.cluster import start_ticks
from ordercast.net.brokers.ledger import DiskBrokerLedger
from ordercast.net.turn_ports import address_of, lasting_door
from ordercast.net.wire.credentials import Credentials
from ordercast.testing import cluster
from tests.support.certificates import make_certificate
from tests.support.client_edge import publication
from tests.support.commands import Command, in_process
from tests.support.loop import run_async
from tests.support.wires import Stranger

ROOT = Path(__file__).parents[2]


@pytest.fixture
def ordercast(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Runs `ordercast ARGS` in this process, in the test's directory: exit code, standard output, standard error."""

    monkeypatch.chdir(tmp_path)
    return in_process(capfd, monkeypatch)


def as_process(tmp_path: Path, *args: str) -> subprocess.Popen[str]:
    """The same as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "ordercast", *args], cwd=tmp_path, text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip


def free_ports(count: int) -> list[int]:
    doors = [lasting_door() for _ in range(count)]
    ports = [int(address_of(door).rpartition(":")[2]) for door in doors]
    for door in doors:
        door.close()
    return ports


def write_cluster(directory: Path, ports: list[int], more: str = "") -> Path:
    brokers = [
        f'[[broker]]\nid = "b{i}"\nport = {port}\n' + ('parent = "b0"\n' if i else "") for i, port in enumerate(ports)
    ]
    file = directory / "bank.toml"
    settings = "[settings]\nlease_ms = 600\nretry_ms = 50\nrequest_ms = 500\n"
    file.write_text(f'cluster = "bank"\n{more}\n{settings}' + "".join(brokers))
    return file


@pytest.fixture
def bank(tmp_path: Path, ordercast: Command) -> Iterator[tuple[Path, list[int]]]:
    """A cluster of three that is stopped at the end, whatever the test has done to it."""
    ports = free_ports(3)
    file = write_cluster(tmp_path, ports, 'data = "data"\ntrace = "trace"\nfsync = "never"\n')
    yield file, ports
    ordercast("down", "--cluster", file)


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (("broker", "--id", "b0"), "--listen: needed"),
        (("broker", "--id", "b~0", "--listen", "127.0.0.1:0"), "id: 'b~0' is not a name"),
        (("broker", "--id", "b0", "--listen", "nowhere"), "--listen: 'nowhere' is not HOST:PORT"),
        (("broker", "--id", "b0", "--listen", "0.0.0.0:0"), "peer_token: needed to listen on 0.0.0.0"),
        (("broker", "--id", "b0", "--listen", "127.0.0.1:0", "--config", "no.toml"), "no.toml: No such file"),
        (("broker", "--id", "b0", "--listen", "127.0.0.1:0", "--data", "/proc/no"), "data: /proc/no: "),
        (("up", "no.toml"), "no.toml: No such file"),
        (("status",), "no cluster was started from this directory"),
        (("kill", "b0", "--signal", "KLL"), "unknown signal 'KLL'; did you mean 'KILL'?"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    ordercast: Command, tmp_path: Path, args: tuple[str, ...], complaint: str
) -> None:
    code, out, err = ordercast(*args)
    assert (code, out) == (2, "")
    assert complaint in err
    assert err.count("\n") == 1


def test_an_unknown_field_of_the_configuration_is_named(ordercast: Command, tmp_path: Path) -> None:
    file = write_cluster(tmp_path, [7000], "clster = 'x'")
    code, _, err = ordercast("broker", "--id", "b0", "--config", file)
    assert code == 2
    assert err == f"ordercast: {file}: top level: unknown field 'clster'; did you mean 'cluster'?\n"


def test_a_broker_that_is_not_in_the_configuration_is_named_with_the_nearest_one(
    ordercast: Command, tmp_path: Path
) -> None:
    file = write_cluster(tmp_path, [7000])
    code, _, err = ordercast("broker", "--id", "b", "--config", file)
    assert (code, err) == (2, "ordercast: unknown broker 'b'; did you mean 'b0'?\n")


def test_a_port_in_use_is_said_in_one_line(ordercast: Command, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        address = f"127.0.0.1:{port}"
        code, _, err = ordercast("broker", "--id", "b0", "--listen", address)
        assert (code, err) == (2, f"ordercast: listen: {address}: Address already in use\n")
        code, _, err = ordercast("up", write_cluster(tmp_path, [port]))
        assert (code, err) == (2, f"ordercast: broker 'b0' did not start: listen: {address}: Address already in use\n")


def _spawn(tmp_path: Path, *args: str) -> subprocess.Popen[str]:
    process = as_process(tmp_path, "broker", "--id", "b0", "--ready", "ready.json", *args)
    _await_file(tmp_path / "ready.json", process)
    return process


def _await_file(file: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 20
    while not file.exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_broker_stops_in_good_order_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    process = _spawn(tmp_path, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--trace", "run")
    admin = msgspec.json.decode((tmp_path / "ready.json").read_bytes())["admin"]
    deadline = time.monotonic() + 10
    while (ask(admin, "/status") or {"problem": "?"})["problem"] is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert ask(admin, "/status")["overlay"]["role"] == "root"
    process.send_signal(number)
    _, err = process.communicate(timeout=10)
    assert (process.returncode, err) == (0, "")
    (journal,) = (tmp_path / "run" / "journals").glob("b0.*.jsonl")
    assert '"end"' in journal.read_text().splitlines()[-1]


def test_a_second_signal_stops_it_at_once(tmp_path: Path) -> None:
    process = _spawn(tmp_path, "--listen", "127.0.0.1:0")
    address = msgspec.json.decode((tmp_path / "ready.json").read_bytes())["address"]

    async def main() -> None:
        peer = await Stranger.connect(address)
        await peer.introduce(credentials=Credentials())  # It will never close: the broker waits for it.
        process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        await peer.close()

    run_async(main)
    _, err = process.communicate(timeout=10)
    assert (process.returncode, err) == (130, "ordercast: stopped at once\n")


def test_a_broker_that_cannot_write_its_log_stops_with_one_line(tmp_path: Path) -> None:
    limit = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)); "
    run = "sys.argv = ['ordercast', *sys.argv[1:]]; runpy.run_module('ordercast', run_name='__main__')"
    process = subprocess.Popen(
        [sys.executable, "-c", limit + run, "broker", "--id", "b0", "--listen", "127.0.0.1:0", "--data", "data",
         "--ready", "ready.json"],
        cwd=tmp_path, text=True, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    _await_file(tmp_path / "ready.json", process)
    address = msgspec.json.decode((tmp_path / "ready.json").read_bytes())["address"]

    async def main() -> None:
        client = await connect(address, "ann")
        while process.poll() is None:
            client.publish_soon("t", bytes(1000))
            await asyncio.sleep(0.005)
        await client.abandon()

    run_async(main)
    _, err = process.communicate(timeout=10)
    assert process.returncode == 70
    assert err.splitlines()[-1] == "ordercast: broker b0 stops: its disk fails: File too large"


def _damaged_ledger(data: Path) -> Path:
    """A log of a hundred publications with one wrong bit in the middle."""
    ledger = DiskBrokerLedger(data)
    for number in range(1, 101):
        ledger.entries(Topic("t"), (publication("ann", number),))
        ledger.flush()
    ledger.close()
    (path,) = data.rglob("*.log")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 8
    path.write_bytes(content)
    return path


def test_a_broker_with_a_damaged_log_says_where_and_starts_only_when_told_to_salvage_it(
    ordercast: Command, tmp_path: Path
) -> None:
    path = _damaged_ledger(tmp_path / "data")
    content = path.read_bytes()
    code, _, err = ordercast("broker", "--id", "b0", "--listen", "127.0.0.1:0", "--data", "data")
    assert code == 2
    (line,) = err.splitlines()
    assert line.startswith("ordercast: data/ledger/00000001.log: damaged at byte ")
    assert line.endswith("; --salvage starts with all that is readable")
    assert path.read_bytes() == content

    process = _spawn(tmp_path, "--listen", "127.0.0.1:0", "--data", "data", "--salvage")
    process.terminate()
    _, err = process.communicate(timeout=10)
    assert process.returncode == 0
    (warning,) = (told for told in map(msgspec.json.decode, err.splitlines()) if "salvaged" in told["event"])
    assert (warning["kept"], warning["writes"]) == ("data/ledger/00000001.damaged", 1)
    assert path.with_suffix(".damaged").read_bytes() == content
    again = DiskBrokerLedger(tmp_path / "data")
    assert len(again.saved().entries[Topic("t")]) == 99
    again.close()


def test_one_broker_of_a_cluster_is_restarted_from_what_is_readable(ordercast: Command, tmp_path: Path) -> None:
    file = write_cluster(tmp_path, free_ports(1), 'data = "data"\n')
    path = _damaged_ledger(tmp_path / "data" / "b0")
    try:
        code, _, err = ordercast("up", file)
        assert (code, err.count("\n")) == (2, 1)
        assert f"broker 'b0' did not start: {path}: damaged at byte" in err
        code, _, err = ordercast("restart", "b0", "--cluster", file)
        assert code == 2
        code, out, err = ordercast("restart", "b0", "--cluster", file, "--salvage")
        assert (code, out.startswith("b0: process "), err) == (0, True, "")
        assert path.with_suffix(".damaged").exists()
    finally:
        ordercast("down", "--cluster", file)


def test_a_broker_that_finds_the_disk_full_when_it_starts_says_so_in_one_line(tmp_path: Path) -> None:
    limit = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, ({0}, {0})); "
    run = "sys.argv = ['ordercast', *sys.argv[1:]]; runpy.run_module('ordercast', run_name='__main__')"
    for bytes_left, named in ((0, "data: data/owner.new"), (40, "data/ledger/00000001.log")):
        ran = subprocess.run(
            [sys.executable, "-B", "-c", limit.format(bytes_left) + run, "broker", "--id", "b0", "--listen",
             "127.0.0.1:0", "--data", "data"],
            cwd=tmp_path, text=True, capture_output=True, timeout=30, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        )  # fmt: skip
        assert (ran.returncode, ran.stderr) == (2, f"ordercast: {named}: File too large\n")


def test_two_brokers_cannot_share_a_data_directory(ordercast: Command, tmp_path: Path) -> None:
    process = _spawn(tmp_path, "--listen", "127.0.0.1:0", "--data", "data")
    try:
        code, _, err = ordercast("broker", "--id", "b1", "--listen", "127.0.0.1:0", "--data", "data")
        assert (code, err) == (2, "ordercast: data: data: another broker uses it\n")
    finally:
        process.terminate()
        process.communicate(timeout=10)


def test_a_broker_that_joins_another_cluster_hears_its_name_and_one_that_names_it_is_taken(
    ordercast: Command, tmp_path: Path
) -> None:
    root = _spawn(tmp_path, "--listen", "127.0.0.1:0", "--cluster", "bank")
    address = msgspec.json.decode((tmp_path / "ready.json").read_bytes())["address"]
    joining = ("--id", "b1", "--listen", "127.0.0.1:0", "--parent", address)
    try:
        code, _, err = ordercast("broker", *joining)
        refusal = f"--parent: {address} refuses: looks for cluster 'ordercast', and this is 'bank'"
        assert (code, err) == (2, f"ordercast: {refusal} (cluster: --cluster or --config)\n")
        code, _, err = ordercast("broker", "--id", "b0", *joining[2:], "--cluster", "bank")
        assert (code, err) == (
            2,
            f"ordercast: --id: the broker at {address} is called 'b0' too; each broker needs its own name\n",
        )
        told = ("--admin", "127.0.0.1:0", "--ready", "b1.json", "--cluster", "bank")
        child = as_process(tmp_path, "broker", *joining, *told)
        _await_file(tmp_path / "b1.json", child)
        admin = msgspec.json.decode((tmp_path / "b1.json").read_bytes())["admin"]
        deadline = time.monotonic() + 10
        while (ask(admin, "/status") or {"problem": "?"})["problem"] is not None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert ask(admin, "/status")["overlay"]["parent"] == "b0"
        child.terminate()
        child.communicate(timeout=10)
    finally:
        root.terminate()
        root.communicate(timeout=10)


def test_a_broker_whose_parent_does_not_answer_says_so(tmp_path: Path) -> None:
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    child = _spawn(tmp_path, "--listen", "127.0.0.1:0", "--parent", nobody)
    child.terminate()
    _, err = child.communicate(timeout=20)
    assert "not in a tree yet" in err
    assert nobody in err
    assert "nobody answers there" in err


def test_brokers_that_joined_and_stopped_count_no_more(ordercast: Command, bank: tuple[Path, list[int]]) -> None:
    """Three, four that join and are stopped in good order, and then one of the three is killed: still a root."""
    file, ports = bank
    assert ordercast("up", file)[0] == 0
    joined = [_join(file.parent, f"j{i}", f"127.0.0.1:{ports[0]}") for i in range(4)]
    try:
        assert set(_root(ordercast, file)["directory"]) == {"b0", "b1", "b2", "j0", "j1", "j2", "j3"}
    finally:
        for process in joined:
            process.terminate()
        ends = [process.communicate(timeout=20)[1] for process in joined]
    assert ends == [""] * 4
    assert set(_root(ordercast, file)["directory"]) == {"b0", "b1", "b2"}
    assert (file.parent / "j3" / "left").exists()

    ordercast("kill", "b0", "--cluster", file)

    assert _root(ordercast, file)["node"] in ("b1", "b2")
    again = _join(file.parent, "j3", f"127.0.0.1:{ports[1]}")  # With the directory that says that it left.
    again.terminate()
    assert again.communicate(timeout=20)[1] == ""


def test_a_broker_leaves_for_good_and_a_dead_one_is_struck_off(
    ordercast: Command, bank: tuple[Path, list[int]]
) -> None:
    file, ports = bank
    assert ordercast("up", file)[0] == 0
    newcomer = _join(file.parent, "b9", f"127.0.0.1:{ports[1]}")
    try:
        _root(ordercast, file)
        assert ordercast("leave", "b9", "--cluster", file)[:2] == (
            0, "b9: left for good; a cluster file need not name it\n",
        )  # fmt: skip
        assert newcomer.wait(timeout=20) == 0
    finally:
        newcomer.terminate()
        newcomer.communicate(timeout=20)
    assert ordercast("remove", "b9", "--cluster", file)[2] == (
        "ordercast: broker 'b9': no broker of the directory has that name\n"
    )
    assert "it is alive" in ordercast("remove", "b2", "--cluster", file)[2]

    ordercast("kill", "b2", "--cluster", file)
    deadline = time.monotonic() + 20
    while (told := ordercast("remove", "b2", "--cluster", file))[0] and time.monotonic() < deadline:
        assert told[0] == 2
        time.sleep(0.5)
    assert "what was only on its disk is given up" in told[1]
    assert set(_root(ordercast, file)["directory"]) == {"b0", "b1"}

    code, _, err = ordercast("leave", "b1", "--cluster", file)
    assert (code, err) == (0, "")
    assert "just stop it" in ordercast("leave", "b0", "--cluster", file)[2]


def _join(directory: Path, name: str, parent: str) -> subprocess.Popen[str]:
    """A broker that is in nobody's file, once it has joined."""
    ready = directory / f"{name}.json"
    ready.unlink(missing_ok=True)
    process = as_process(
        directory, "broker", "--id", name, "--listen", "127.0.0.1:0", "--parent", parent, "--cluster", "bank",
        "--data", name, "--admin", "127.0.0.1:0", "--ready", ready.name,
    )  # fmt: skip
    _await_file(ready, process)
    admin = msgspec.json.decode(ready.read_bytes())["admin"]
    deadline = time.monotonic() + 20
    while not (ask(admin, "/status") or {"overlay": {"member": False}})["overlay"]["member"]:
        assert time.monotonic() < deadline, name
        time.sleep(0.05)
    return process


def _root(ordercast: Command, file: Path) -> dict[str, Any]:
    """What the root says of the tree, as soon as one decides."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        told = [broker["detail"] for broker in msgspec.json.decode(ordercast("status", "--cluster", file, "--json")[1])]
        deciding = [detail["overlay"] for detail in told if detail is not None and detail["overlay"]["decides"]]
        if deciding and deciding[0]["changing"] is None:
            return deciding[0]
        time.sleep(0.1)
    raise AssertionError("no root")


def test_a_configuration_of_another_cluster_is_named(ordercast: Command, bank: tuple[Path, list[int]]) -> None:
    code, _, err = ordercast("broker", "--id", "b0", "--config", bank[0], "--cluster", "other")
    assert code == 2
    assert "is about cluster" in err
    assert err.count("\n") == 1


def test_a_publication_that_does_not_become_safe_in_time_ends_with_code_1(ordercast: Command, tmp_path: Path) -> None:
    """The configured root waits for a majority that does not come."""
    ports = free_ports(3)
    names = enumerate(ports)
    entries = [f"[[broker]]\nid = 'b{i}'\nlisten = '127.0.0.1:{port}'\n" for i, port in names]
    (tmp_path / "three.toml").write_text(entries[0] + "".join(f"{entry}parent = 'b0'\n" for entry in entries[1:]))
    process = _spawn(tmp_path, "--config", "three.toml")
    try:
        code, out, err = ordercast("pub", "t", "x", "--broker", f"127.0.0.1:{ports[0]}", "--timeout", "0.5")
        assert (code, out) == (1, "")
        assert err == "1 publications are not safe within 0.5 s\n"
    finally:
        process.terminate()
        process.communicate(timeout=10)


def test_a_cluster_is_started_killed_restarted_and_stopped(
    ordercast: Command, bank: tuple[Path, list[int]], tmp_path: Path
) -> None:
    file, _ = bank
    code, out, err = ordercast("up", file, "--json")
    assert (code, err) == (0, "")
    states = {state["id"]: state for state in msgspec.json.decode(out)}
    assert [state["state"] for state in states.values()] == ["running"] * 3
    assert states["b0"]["detail"]["overlay"]["role"] == "root"
    assert states["b1"]["detail"]["overlay"]["parent"] == "b0"

    code, out, _ = ordercast("up", file, "--json")
    assert code == 0
    assert [state["pid"] for state in msgspec.json.decode(out)] == [state["pid"] for state in states.values()]

    code, out, _ = ordercast("status")
    assert code == 0
    assert "root" in out

    code, out, _ = ordercast("kill", "b1")
    assert (code, out) == (0, f"b1: SIGKILL to process {states['b1']['pid']}\n")
    assert start_ticks(states["b1"]["pid"]) == 0
    code, out, _ = ordercast("status", "--json")
    assert code == 1
    assert {state["id"]: state["state"] for state in msgspec.json.decode(out)}["b1"] == "down"
    code, _, err = ordercast("kill", "b1")
    assert (code, err) == (2, "ordercast: broker 'b1': not running\n")
    code, _, err = ordercast("kill", "b11")
    assert (code, err) == (2, "ordercast: unknown broker 'b11'; did you mean 'b1'?\n")

    assert ordercast("restart", "b1")[0] == 0
    code, out, _ = ordercast("up", file, "--json")
    assert code == 0
    again = {state["id"]: state for state in msgspec.json.decode(out)}
    assert again["b1"]["life"] > states["b1"]["life"]

    code, out, _ = ordercast("down")
    assert (code, out) == (0, "stopped: b0, b1, b2\n")
    assert ordercast("down") == (0, "nothing was running\n", "")
    assert all(start_ticks(state["pid"]) == 0 for state in again.values())


def test_messages_go_from_shell_to_shell_and_can_be_explained(
    ordercast: Command, bank: tuple[Path, list[int]], tmp_path: Path
) -> None:
    file, ports = bank
    assert ordercast("up", file)[0] == 0
    reader = as_process(
        tmp_path, "sub", "accounts.*", "--count", "4", "--timeout", "30", "--broker", f"127.0.0.1:{ports[1]}",
        "--id", "reader", "--trace", "trace", "--json",
    )  # fmt: skip
    assert reader.stderr is not None
    assert reader.stderr.readline() == "subscribed as reader\n"
    broker = f"127.0.0.1:{ports[2]}"
    code, out, err = ordercast(
        "pub", "accounts.PT", "deposit 10", "--key", "7", "--guarantee", "total", "--broker", broker, "--trace",
        "trace",
    )  # fmt: skip
    assert (code, err) == (0, "")
    (first,) = out.splitlines()
    writer = as_process(tmp_path, "pub", "accounts.PT", "--broker", broker, "--trace", "trace")
    out, _ = writer.communicate("a\nb\nc\n", timeout=30)
    assert writer.returncode == 0
    assert len(out.splitlines()) == 3
    told, _ = reader.communicate(timeout=30)
    assert reader.returncode == 0
    got = [msgspec.json.decode(line) for line in told.splitlines()]
    assert [message["payload"] for message in got] == ["deposit 10", "a", "b", "c"]
    assert (got[0]["id"], got[0]["keys"], got[0]["guarantee"]) == (first, ["7"], "total")

    code, out, _ = ordercast("explain", first, "--json")
    assert code == 0
    assert [answer["broker"] for answer in msgspec.json.decode(out)] == ["b0", "b1", "b2"]
    code, out, _ = ordercast("verify", tmp_path / "trace", "--no-spark", "--json")
    assert code == 0, out

    code, out, _ = ordercast("top", "--count", "1")
    assert code == 0
    assert "accounts.PT" in out
    code, out, _ = ordercast("explain", "nobody/accounts.PT#1", "--json")
    assert (code, {answer["state"] for answer in msgspec.json.decode(out)}) == (1, {"unknown"})


def test_a_broker_says_where_it_listens_and_a_reader_hears_when_it_is_gone(tmp_path: Path) -> None:
    broker = as_process(tmp_path, "broker", "--id", "b0", "--listen", "127.0.0.1:0")
    assert broker.stdout is not None
    said = broker.stdout.readline()
    assert said.startswith("broker b0 listens at 127.0.0.1:")
    address = said.rpartition(" ")[2].strip()
    reader = as_process(tmp_path, "sub", "t", "--broker", address, "--id", "reader")
    assert reader.stderr is not None
    assert reader.stderr.readline() == "subscribed as reader\n"

    broker.kill()
    broker.communicate()

    assert reader.stderr.readline().startswith("lost the broker (")
    reader.kill()
    reader.communicate()


def test_client_commands_speak_tls_and_read_their_token_from_a_file(ordercast: Command, tmp_path: Path) -> None:
    make_certificate(tmp_path, "good")
    make_certificate(tmp_path, "other")
    (tmp_path / "token").write_text("open sesame\n")
    (port,) = free_ports(1)
    tls = "\n".join(
        f'{name} = "{tmp_path}/good.{end}"' for name, end in (("cert", "pem"), ("key", "key"), ("ca", "pem"))
    )
    file = write_cluster(tmp_path, [port], f'peer_token = "among us"\nclient_token = "open sesame"\n[tls]\n{tls}')
    assert ordercast("up", file)[0] == 0
    broker = f"127.0.0.1:{port}"
    try:
        secure = ("--broker", broker, "--token-file", tmp_path / "token")
        assert ordercast("pub", "t", "x", *secure, "--ca", tmp_path / "good.pem")[0] == 0
        assert ordercast("sub", "t", *secure, "--ca", tmp_path / "good.pem", "--timeout", 0.2)[0] == 0
        assert ordercast("sub", "t", *secure, "--ca", tmp_path / "other.pem", "--timeout", 0.5)[0] == 2
    finally:
        ordercast("down", "--cluster", file)


@pytest.mark.parametrize(
    ("options", "culprit"),
    [
        (("--ca", "nowhere.pem"), "nowhere.pem"),
        (("--cert", "mine.pem"), "--cert-key"),
        (("--token-file", "no-token"), "no-token"),
    ],
)
def test_files_of_credentials_are_looked_at_before_anybody_is_dialed(
    ordercast: Command, options: tuple[str, str], culprit: str
) -> None:
    code, _, err = ordercast("pub", "t", "x", "--broker", "127.0.0.1:1", *options)

    assert (code, err.count("\n")) == (2, 1)
    assert culprit in err


def test_a_reader_looks_for_a_broker_no_longer_than_it_was_told_to_read(ordercast: Command) -> None:
    (port,) = free_ports(1)

    code, _, err = ordercast("sub", "t", "--broker", f"127.0.0.1:{port}", "--timeout", 0.3)

    assert code == 2
    assert "gave up after 0.3 s" in err


def test_clients_hear_in_one_line_why_they_get_nowhere(ordercast: Command, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    code, _, err = ordercast("sub", "a..b", "--broker", f"127.0.0.1:{port}")
    assert code == 2
    assert err.count("\n") == 1
    code, _, err = ordercast("pub", "t", "x", "--broker", "nowhere")
    assert (code, err) == (2, "ordercast: address: 'nowhere' is not HOST:PORT\n")


def test_commands_ask_admin_ports_that_speak_tls(ordercast: Command, tmp_path: Path) -> None:
    make_certificate(tmp_path, "broker")
    (tmp_path / "token").write_text("secret\n")
    tables = (
        'admin_token = "secret"\nadmin_tls = true\n[tls]\ncert = "broker.pem"\nkey = "broker.key"\nca = "broker.pem"\n'
    )
    file = write_cluster(tmp_path, free_ports(1), tables)
    try:
        assert ordercast("up", file)[0] == 0
        admin = msgspec.json.decode(ordercast("status", "--json")[1])[0]["admin"]
        with_key = ("--admin", admin, "--ca", "broker.pem", "--token-file", "token")

        assert ordercast("explain", "nobody/t#1")[0] == 1
        assert ordercast("explain", "nobody/t#1", *with_key)[0] == 1
        assert "root" in ordercast("top", "--count", "1", *with_key)[1]
        assert ordercast("keep", *with_key)[0] == 0
        code, _, err = ordercast("explain", "nobody/t#1", "--admin", admin, "--tls", "--token-file", "token")
        assert (code, "is not believed" in err) == (2, True)
        code, _, err = ordercast("top", "--count", "1", "--token-file", "missing")
        assert (code, "missing" in err) == (2, True)
    finally:
        ordercast("down", "--cluster", file)


def test_without_a_cluster_the_commands_for_admin_ports_say_how_to_name_one(ordercast: Command) -> None:
    for command in (("explain", "a/t#1"), ("top",), ("keep",), ("leave", "b1"), ("remove", "b1")):
        code, _, err = ordercast(*command)
        assert (code, "--admin HOST:PORT" in err) == (2, True), command


@pytest.mark.parametrize("closed", ["<&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_empty_ones(closed: str, tmp_path: Path) -> None:
    """A cron job or a supervisor may start a process without any; its sockets must not take their numbers."""

    async def main() -> None:
        async with cluster(1) as brokers:
            for command in ("sub news --timeout 0.3", "pub news", "pub news hello"):
                line = f"exec {sys.executable} -m ordercast {command} --broker {brokers.address} {closed}"
                process = await asyncio.create_subprocess_shell(line, cwd=tmp_path, env=_ENVIRONMENT)
                assert await process.wait() == 0, command

    run_async(main)


_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
