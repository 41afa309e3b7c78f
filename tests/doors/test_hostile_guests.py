"""Whatever comes through a door costs a bounded amount of memory, descriptors and time, and ends itself alone."""

from __future__ import annotations

import asyncio
import resource
import socket
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import ordercast
from ordercast.api.client import Client
from ordercast.doors.web.websocket import CLOSE, PING, POLICY, TEXT, WebSocketReader
from ordercast.net.wire.credentials import split_address
from tests.support.doors import Doors, Line, ask, dial, doors, masked, nats_line, page
from tests.support.loop import run_async, until

USERS = {"peer_token": "p", "user": [{"name": "ann", "token": "a"}]}
_CONTINUATION = 0


async def _deaf(opened: Doors) -> Line:
    """A client of NATS that takes in next to nothing of what it is told."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.setblocking(False)
    await asyncio.get_running_loop().sock_connect(raw, split_address(opened.nats.address))
    line = Line(*await asyncio.open_connection(sock=raw, limit=1024))
    await line.say(b"CONNECT {}\r\n")
    return line


def test_a_client_of_nats_that_reads_no_answers_is_cut_off() -> None:
    async def main() -> None:
        async with doors(limits={"slow_consumer_ms": 200}) as opened:
            line = await _deaf(opened)
            line.writer.write(b"PUB %b. 0\r\n\r\n" % (b"x" * 240) * 40_000)
            try:
                await until(lambda: opened.nats.counters["nats_connections_refused"] == 1)
            finally:
                line.writer.transport.abort()

    run_async(main)


def test_a_client_of_nats_that_asks_without_end_lets_others_have_their_turns() -> None:
    """However fast it can be answered: the loop goes round at least once for a few dozen operations."""
    pings, rounds = 20_000, 0

    async def count() -> None:
        nonlocal rounds
        while True:
            await asyncio.sleep(0)
            rounds += 1

    async def main() -> None:
        async with doors() as opened:
            line = await nats_line(opened)
            await line.until(b"PONG\r\n")
            counting = asyncio.create_task(count())
            line.writer.write(b"PING\r\n" * pings)
            await line.reader.readexactly(len(b"PONG\r\n") * pings)
            counting.cancel()
            await asyncio.gather(counting, return_exceptions=True)
            line.close()

    run_async(main)
    assert rounds > pings / 100


@pytest.mark.parametrize("request_line", [b"GET / HTTP/1.1", b"GET /ordercast.js HTTP/1.1", b"OPTIONS /x HTTP/1.1"])
def test_who_asks_the_web_door_and_reads_no_answers_is_cut_off(request_line: bytes) -> None:
    """Nobody needs a token for these: whatever they cost, any stranger can ask for it as often as it likes."""

    async def main() -> None:
        async with doors(limits={"slow_consumer_ms": 200}) as opened:
            raw = socket.socket()
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.setblocking(False)
            await asyncio.get_running_loop().sock_connect(raw, split_address(opened.web.address))
            line = Line(*await asyncio.open_connection(sock=raw, limit=1024))
            line.writer.write((request_line + b"\r\nHost: 127.0.0.1\r\n\r\n") * 30_000)
            try:
                await until(lambda: opened.web.counters["web_connections_refused"] == 1)
            finally:
                line.writer.transport.abort()
            assert opened.web.counters["web_requests"] < 20_000

    run_async(main)


def test_who_asks_the_web_door_without_end_lets_others_have_their_turns() -> None:
    requests, rounds = 2000, 0

    async def count() -> None:
        nonlocal rounds
        while True:
            await asyncio.sleep(0)
            rounds += 1

    async def main() -> None:
        async with doors() as opened:
            line = await dial(opened.web.address)
            counting = asyncio.create_task(count())
            line.writer.write(b"OPTIONS / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * requests)
            for _ in range(requests):
                await line.until(b"\r\n\r\n")
            counting.cancel()
            await asyncio.gather(counting, return_exceptions=True)
            line.close()

    run_async(main)
    assert rounds >= requests


def test_a_page_that_pings_without_end_lets_others_have_their_turns() -> None:
    pings, rounds = 10_000, 0

    async def count() -> None:
        nonlocal rounds
        while True:
            await asyncio.sleep(0)
            rounds += 1

    async def main() -> None:
        async with doors() as opened:
            line = (await page(opened)).line
            counting = asyncio.create_task(count())
            line.writer.write(masked(PING, b"") * pings)
            await line.reader.readexactly(2 * pings)
            counting.cancel()
            await asyncio.gather(counting, return_exceptions=True)
            line.close()

    run_async(main)
    assert rounds > pings / 100


def test_a_history_that_takes_too_much_memory_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        limits = {"slow_consumer_bytes": 5000}
        async with doors(tmp_path, keep=[{"filter": "kept.>"}], limits=limits) as opened:
            where = opened.web.address
            for _ in range(6):
                await ask(where, "POST", "/publish/kept.x?ack=delivered", b"." * 1000)
            assert (await ask(where, "GET", "/history/kept.x?last=3"))[0] == 200
            for asked in ("last=6", "last=6&from=2026-01-01"):
                status, body = await ask(where, "GET", f"/history/kept.x?{asked}")
                assert (status, body) == (
                    400,
                    b"last: 6 messages take more than 5000 bytes (slow_consumer_bytes); fewer?\n",
                )
            assert (await ask(where, "GET", "/history/kept.x?last=00000100000000"))[0] == 400

    run_async(main)


def test_while_an_operation_takes_its_time_nothing_more_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        safe = asyncio.Event()

        async def flush(self: Client, *_: Any, **__: Any) -> None:
            await safe.wait()

        async with doors() as opened:
            line = await nats_line(opened)
            await line.until(b"PONG\r\n")
            monkeypatch.setattr(Client, "flush", flush)
            (connection,) = opened.nats._connections
            transport: Any = connection._transport
            await line.say(b"PING\r\n")
            await until(lambda: connection._working is not None)
            await line.say(b"PUB t 0\r\n\r\n" * 2000)
            try:
                await until(lambda: not transport.is_reading())
            finally:
                safe.set()
            await line.until(b"PONG\r\n")
            await until(transport.is_reading)
            monkeypatch.undo()
            line.close()

    run_async(main)


@pytest.mark.parametrize("fragment", [b"", b"ab"], ids=["empty", "tiny"])
def test_a_message_in_any_number_of_fragments_takes_its_own_length(fragment: bytes) -> None:
    reader, frames = WebSocketReader(1 << 20), 40_000
    reader.feed(masked(TEXT, b"", final=False))
    many = masked(_CONTINUATION, fragment, final=False) * 100
    tracemalloc.start()
    for _ in range(frames // 100):
        assert reader.feed(many) == []
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 2 * len(fragment) * frames + 50_000
    ((kind, data),) = reader.feed(masked(_CONTINUATION, b"end"))
    assert (kind, data) == (TEXT, fragment * frames + b"end")


def test_a_page_that_talks_without_introducing_itself_is_refused() -> None:
    async def main() -> None:
        async with doors(**USERS, limits={"handshake_ms": 20_000}) as opened:
            talker = await page(opened)
            talker.line.writer.write(masked(PING, b"x" * 100) * 1000)
            kind = PING
            while kind != CLOSE:
                kind, said = await talker.hear()
            assert int.from_bytes(said[:2]) == POLICY
            assert opened.web.counters["web_connections_refused"] == 1
            talker.line.close()

    run_async(main)


def test_a_page_has_one_deadline_to_introduce_itself_however_often_it_says_something() -> None:
    async def main() -> None:
        async with doors(**USERS, limits={"handshake_ms": 200}) as opened:
            talker = await page(opened)

            async def talk() -> None:
                while True:
                    await talker.say(PING, b"")
                    await asyncio.sleep(0.02)

            talking = asyncio.create_task(talk())
            await talker.line.rest()
            talking.cancel()
            await asyncio.gather(talking, return_exceptions=True)
            talker.line.close()

    run_async(main)


def test_connections_without_a_request_make_room_for_those_that_have_one() -> None:
    async def main() -> None:
        async with doors(limits={"strangers": 8}) as opened:
            crowd = [await dial(opened.web.address) for _ in range(12)]
            assert await crowd[0].rest() == b""
            status, _ = await ask(opened.web.address, "GET", "/ordercast.js")
            assert status == 200
            assert opened.web.counters["web_connections_refused"] >= 12 - 4
            for line in crowd:
                line.close()

    run_async(main)


def test_the_body_of_a_request_that_nobody_may_make_is_not_waited_for() -> None:
    async def main() -> None:
        async with doors(**USERS) as opened:
            line = await dial(opened.web.address)
            head = f"POST /publish/t HTTP/1.1\r\nHost: {opened.web.address}\r\nContent-Length: 1000000\r\n\r\n"
            await line.say(head.encode())
            assert (await line.rest()).startswith(b"HTTP/1.1 401")
            line.close()

    run_async(main)


def test_no_crowd_of_connections_takes_the_descriptors_that_files_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that cannot open the next file of its log stops."""

    async def main() -> None:
        async with doors() as opened, ordercast.connect(opened.broker) as friend:
            monkeypatch.setattr(resource, "getrlimit", lambda _which: (8, 8))
            stranger, guest, visitor = [
                await dial(address) for address in (opened.broker, opened.nats.address, opened.web.address)
            ]
            assert await stranger.rest() == b""
            assert opened.process.host.counters["closed_strangers"] == 1
            assert b"Maximum Connections Exceeded" in await guest.rest()
            assert b"(open files)" in await visitor.rest()
            monkeypatch.undo()
            await friend.publish("t", b"still here", timeout=20)
            for line in (stranger, guest, visitor):
                line.close()

    run_async(main)
