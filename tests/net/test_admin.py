"""The admin port: health, metrics, status and explanations, and no more than a small request can cost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ordercast.core.errors import UsageError
from ordercast.net.brokers.admin import Admin
from ordercast.net.brokers.admin_client import ask
from ordercast.net.wire.credentials import AdminKey, Tls, split_address
from ordercast.pubsub.keeping import KeepRule
from tests.support.certificates import make_certificate
from tests.support.loop import run_async
from tests.support.wires import Process, running


class Tree:
    """An overlay and topics, as far as the admin port looks."""

    is_root = True
    seeking = False
    decides = True

    def status(self) -> dict[str, Any]:
        return {"role": "root", "term": [3, "b1"], "residual": 4}


class Talk:
    def keep(self, rule: KeepRule) -> str:
        return "" if rule.copies < 9 else "too many"

    def kept_status(self) -> list[dict[str, Any]]:
        return []

    def totals(self) -> dict[str, int]:
        return {"topics": 2, "log": 9}

    def status(self, most: int) -> dict[str, Any]:
        return {'odd"name': {"log": 2, "held": 0}, "accounts.PT": {"log": 7, "held": 1, "members": ["ann"]}}

    def explain(self, message_id: str) -> dict[str, Any]:
        return {"state": "pending", "missing": ["bob"]}


class Broker:
    def __init__(self) -> None:
        self.tree = Tree()
        self.topics = Talk()


@asynccontextmanager
async def administered() -> AsyncIterator[tuple[Admin, Broker]]:
    process, broker = Process("b1"), Broker()
    async with running(process):
        process.host.counters["entries_admitted"] = 12
        admin = Admin(process.host, broker)
        await admin.start("127.0.0.1:0")
        try:
            yield admin, broker
        finally:
            await admin.stop()


async def request(admin: Admin, data: bytes) -> tuple[int, str]:
    host, port = split_address(admin.address)
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(data)
    answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), body


async def get(admin: Admin, target: str) -> tuple[int, str]:
    return await request(admin, f"GET {target} HTTP/1.1\r\nHost: localhost:80\r\n\r\n".encode())


@pytest.mark.parametrize(
    ("fields", "status", "body"),
    [
        ({}, 200, "ok\n"),
        ({"is_root": False}, 200, "ok\n"),
        ({"seeking": True, "is_root": False}, 503, "seeking a parent\n"),
        ({"decides": False}, 503, "root that waits for its lease\n"),
    ],
)
def test_a_broker_is_healthy_only_with_a_place_in_the_tree(fields: dict[str, bool], status: int, body: str) -> None:
    async def main() -> None:
        async with administered() as (admin, broker):
            for name, value in fields.items():
                setattr(broker.tree, name, value)
            assert await get(admin, "/healthz") == (status, body)

    run_async(main)


def test_metrics_are_prometheus_text() -> None:
    async def main() -> None:
        async with administered() as (admin, _):
            status, body = await get(admin, "/metrics")
            lines = body.splitlines()
            assert status == 200
            assert "ordercast_entries_admitted_total 12" in lines
            assert 'ordercast_topic_log{topic="accounts.PT"} 7' in lines
            assert 'ordercast_topic_log{topic="odd\\"name"} 2' in lines
            assert "ordercast_overlay_residual 4" in lines
            assert "ordercast_all_log 9" in lines
            assert "ordercast_overlay_term 3" in lines
            assert 'ordercast_connections{kind="client"} 0' in lines
            families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
            assert len(families) == len(set(families))
            explained = [line.split()[2] for line in lines if line.startswith("# HELP")]
            assert explained == families
            for line in lines:
                assert line.startswith("# ") or float(line.rpartition(" ")[2]) >= 0

    run_async(main)


def test_status_and_explanations_are_json() -> None:
    async def main() -> None:
        async with administered() as (admin, _):
            _, body = await get(admin, "/status")
            status = msgspec.json.decode(body)
            assert status["id"] == "b1"
            assert status["overlay"]["role"] == "root"
            assert status["topics"]["accounts.PT"]["log"] == 7
            _, body = await get(admin, "/explain?msg=ann%2Faccounts.PT%237")
            told = msgspec.json.decode(body)
            assert told == {"broker": "b1", "msg": "ann/accounts.PT#7", "state": "pending", "missing": ["bob"]}

    run_async(main)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /nonsense HTTP/1.1\r\n\r\n", 404),
        (b"GET /explain HTTP/1.1\r\n\r\n", 400),
        (b"GET /status?topics=all HTTP/1.1\r\n\r\n", 400),
        (b"GET /status?topics=9" + b"9" * 5000 + b" HTTP/1.1\r\n\r\n", 400),
        (b"POST /healthz HTTP/1.1\r\n\r\n", 405),
        (b"\x00\xff\r\n\r\n", 400),
        (b"GET //[ HTTP/1.1\r\n\r\n", 400),
        (b"GET /" + b"x" * 20_000, 431),
    ],
)
def test_odd_requests_get_an_answer_and_harm_nothing(data: bytes, status: int) -> None:
    async def main() -> None:
        async with administered() as (admin, _):
            try:
                assert (await request(admin, data))[0] == status
            except (ConnectionResetError, BrokenPipeError):
                assert len(data) > 8192  # It did not even read all of it.
            assert (await get(admin, "/healthz"))[0] == 200

    run_async(main)


def test_a_port_in_use_names_the_field() -> None:
    async def main() -> None:
        async with administered() as (admin, _):
            process = Process("b2")
            async with running(process):
                with pytest.raises(UsageError, match=r"^admin: .*: Address already in use$"):
                    await Admin(process.host, Broker()).start(admin.address)

    run_async(main)


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:7100", 200), ("localhost", 200), ("[::1]:80", 200), ("evil.example:7100", 403), ("10.0.0.1", 403)],
)
def test_a_web_page_that_resolves_its_own_name_to_this_machine_is_refused(host: str, status: int) -> None:
    async def main() -> None:
        async with administered() as (admin, _):
            found, _ = await request(admin, f"GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert found == status

    run_async(main)


def test_with_a_token_nothing_is_said_to_who_does_not_know_it() -> None:
    async def main() -> None:
        process = Process("b1")
        async with running(process):
            admin = Admin(process.host, Broker(), key=AdminKey("secret"))
            await admin.start("127.0.0.1:0")
            try:
                line = "GET /status HTTP/1.1\r\nHost: evil.example\r\n"
                assert (await request(admin, f"{line}\r\n".encode()))[0] == 401
                assert (await request(admin, f"{line}Authorization: Bearer x\r\n\r\n".encode()))[0] == 401
                assert (await request(admin, f"{line}authorization: Bearer secret\r\n\r\n".encode()))[0] == 200
                asked = asyncio.get_running_loop().run_in_executor(
                    None, ask, admin.address, "/status", AdminKey("secret")
                )
                assert (await asked)["id"] == "b1"
                wrong = asyncio.get_running_loop().run_in_executor(
                    None, ask, admin.address, "/status", AdminKey("wrong")
                )
                with pytest.raises(UsageError, match=r"admin_token: .* asks for another one"):
                    await wrong
            finally:
                await admin.stop()

    run_async(main)


def test_an_admin_port_with_tls_speaks_to_who_believes_its_certificate(tmp_path: Path) -> None:
    make_certificate(tmp_path, "broker")
    make_certificate(tmp_path, "stranger")
    own = Tls(cert=str(tmp_path / "broker.pem"), key=str(tmp_path / "broker.key"))

    async def main() -> None:
        process = Process("b1")
        async with running(process):
            admin = Admin(process.host, Broker(), key=AdminKey("secret", own))
            await admin.start("127.0.0.1:0")
            try:
                key = AdminKey("secret", Tls(ca=own.cert))
                for told in await asyncio.gather(*(_asked(admin, key) for _ in range(8))):
                    assert told["id"] == "b1"
                assert await _asked(admin, AdminKey("secret")) is None
                with pytest.raises(UsageError, match=f"certificate of {admin.address} is not believed"):
                    await _asked(admin, AdminKey("secret", Tls(ca=str(tmp_path / "stranger.pem"))))
            finally:
                await admin.stop()

    run_async(main)


async def _asked(admin: Admin, key: AdminKey) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, ask, admin.address, "/status", key)


def test_without_a_token_the_port_is_on_loopback_only() -> None:
    async def main() -> None:
        process = Process("b1")
        async with running(process):
            with pytest.raises(UsageError, match=r"^admin_token: needed for an admin port at 0\.0\.0\.0:0"):
                await Admin(process.host, Broker()).start("0.0.0.0:0")

    run_async(main)


def test_silent_connections_do_not_keep_others_from_being_answered() -> None:
    async def main() -> None:
        async with administered() as (admin, _):
            host, port = split_address(admin.address)
            silent = [await asyncio.open_connection(host, port) for _ in range(200)]
            assert (await get(admin, "/healthz"))[0] == 200
            for _, writer in silent:
                writer.close()

    run_async(main)
