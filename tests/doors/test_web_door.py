"""Browsers and curl publish, subscribe and read history, with the rights of their users and no others."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

import ordercast
from ordercast.doors.web import websocket
from ordercast.net.brokers.broker_host import HOPS_AT_ONCE, TrafficWatch
from tests.support.doors import Line, ask, dial, doors, masked, page
from tests.support.loop import run_async, until

USERS = {"peer_token": "p", "user": [{"name": "ann", "token": "a"}, {"name": "bob", "token": "b", "publish": []}]}


def basic(user: str, token: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{token}".encode()).decode()


def test_what_is_posted_reaches_native_subscribers_with_guarantee_and_key() -> None:
    async def main() -> None:
        async with doors() as opened, ordercast.connect(opened.broker) as client:
            inbox = await client.subscribe("shop.>")
            target = "/publish/shop.PT?guarantee=total&key=shelf-7&key=shelf-8"
            status, body = await ask(opened.web.address, "POST", target, b"one book")
            message = await inbox.get(20)
            assert (status, json.loads(body)["id"]) == (200, message.id)
            assert (message.payload, message.keys) == (b"one book", ("shelf-7", "shelf-8"))
            assert message.guarantee.label == "total"

    run_async(main)


def test_the_trace_context_of_a_request_goes_on_with_its_message() -> None:
    async def main() -> None:
        async with doors() as opened, ordercast.connect(opened.broker) as client:
            inbox = await client.subscribe("t")
            line = await dial(opened.web.address)
            await line.say(f"GET /subscribe?topic=t HTTP/1.1\r\nHost: {opened.web.address}\r\n\r\n".encode())
            await line.until(b": subscribed\n\n")
            parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
            await ask(opened.web.address, "POST", "/publish/t", b"x", traceparent=parent)
            assert (await inbox.get(20)).headers == {b"traceparent": parent.encode()}
            event = json.loads((await line.until(b"\n\n")).split(b"data: ")[1])
            assert event["headers"] == {"traceparent": parent}
            line.close()

    run_async(main)


def test_server_sent_events_begin_when_the_subscription_is_confirmed_and_come_in_order() -> None:
    async def main() -> None:
        async with doors() as opened, ordercast.connect(opened.broker) as client:
            line = await dial(opened.web.address)
            await line.say(f"GET /subscribe?topic=a.*&topic=b HTTP/1.1\r\nHost: {opened.web.address}\r\n\r\n".encode())
            await line.until(b": subscribed\n\n")
            for number in range(50):
                client.publish_soon("a.x", b"%d" % number)
            await client.publish("b", b"\xff")
            events = [json.loads((await line.until(b"\n\n")).split(b"data: ")[1]) for _ in range(51)]
            assert [event["text"] for event in events if event["topic"] == "a.x"] == [str(n) for n in range(50)]
            assert [event["base64"] for event in events if event["topic"] == "b"] == ["/w=="]
            line.close()

    run_async(main)


def test_history_is_read_by_topic_and_by_number(tmp_path: Path) -> None:
    async def main() -> None:
        async with doors(tmp_path, keep=[{"filter": "kept.>"}]) as opened:
            for number in range(5):
                await ask(opened.web.address, "POST", "/publish/kept.x?ack=delivered", b"%d" % number)
            status, body = await ask(opened.web.address, "GET", "/history/kept.x?last=2")
            assert status == 200
            assert [json.loads(line)["text"] for line in body.splitlines()] == ["3", "4"]
            status, body = await ask(opened.web.address, "GET", "/history/other")
            assert status == 404
            assert b"not kept" in body

    run_async(main)


def test_users_prove_themselves_and_have_their_rights() -> None:
    async def main() -> None:
        async with doors(**USERS) as opened:
            where = opened.web.address
            assert (await ask(where, "POST", "/publish/t", b"x"))[0] == 401
            assert (await ask(where, "POST", "/publish/t", b"x", Authorization=basic("ann", "b")))[0] == 401
            assert (await ask(where, "POST", "/publish/t", b"x", Authorization=basic("nobody", "")))[0] == 401
            assert (await ask(where, "POST", "/publish/t", b"x", Authorization=basic("ann", "a")))[0] == 200
            status, body = await ask(where, "POST", "/publish/t", b"x", Authorization=basic("bob", "b"))
            assert status == 403
            assert b"no right to publish" in body

    run_async(main)


def test_pages_of_other_sites_may_not_connect_unless_they_are_named() -> None:
    async def main() -> None:
        async with doors(web={"origins": ["https://shop.example"]}) as opened:
            where = opened.web.address
            assert (await ask(where, "POST", "/publish/t", b"x", Origin="https://evil.example"))[0] == 403
            assert (await ask(where, "POST", "/publish/t", b"x", Origin="https://shop.example"))[0] == 200
            assert (await ask(where, "POST", "/publish/t", b"x", Origin=f"http://{where}"))[0] == 200
            assert (await ask(where, "POST", "/publish/t", b"x", Host="evil.example"))[0] == 403
            line = await dial(where)
            evil = "Origin: https://evil.example\r\nUpgrade: websocket\r\nSec-WebSocket-Key: AAAA"
            await line.say(f"GET /socket HTTP/1.1\r\nHost: {where}\r\n{evil}\r\n\r\n".encode())
            assert (await line.rest()).startswith(b"HTTP/1.1 403")
            line.close()

    run_async(main)


def test_a_page_publishes_and_subscribes_on_a_websocket() -> None:
    async def main() -> None:
        async with doors() as opened:
            mine = await page(opened)
            await mine.order(op="subscribe", topic="a.>", ref=1)
            assert await mine.told() == {"op": "subscribed", "ref": 1, "topic": "a.>"}
            await mine.order(op="publish", topic="a.x", text="häll", guarantee="total", key="k", ref="p")
            said = {told["op"]: told for told in (await mine.told(), await mine.told())}
            assert said["published"]["ref"] == "p"
            assert said["message"]["text"] == "häll"
            assert said["message"]["id"] == said["published"]["id"]
            await mine.order(op="unsubscribe", topic="a.>", ref=2)
            assert (await mine.told())["op"] == "unsubscribed"
            await mine.order(op="publish", topic="a.*", text="x", ref=3)
            assert "filters" in (await mine.told())["reason"]
            await mine.say(websocket.PING, b"there?")
            assert await mine.hear() == (websocket.PONG, b"there?")
            await mine.say(websocket.CLOSE, b"")
            assert (await mine.hear())[0] == websocket.CLOSE
            mine.line.close()

    run_async(main)


def test_a_page_says_hello_where_users_are_known() -> None:
    async def main() -> None:
        async with doors(**USERS) as opened:
            stranger = await page(opened)
            await stranger.order(op="publish", topic="t", text="x")
            kind, said = await stranger.hear()
            assert kind == websocket.CLOSE
            assert b"hello" in said
            liar = await page(opened)
            await liar.order(op="hello", user="ann", token="b")
            assert (await liar.hear())[0] == websocket.CLOSE
            ann = await page(opened)
            await ann.order(op="hello", user="ann", token="a", ref=1)
            assert (await ann.told())["client"].startswith("ann.")
            for one in (stranger, liar, ann):
                one.line.close()

    run_async(main)


@pytest.mark.parametrize(
    "data",
    [b"\x81\x05hello", b"\xf1\x80\0\0\0\0", masked(3, b""), masked(0, b"x"), masked(9, b"", final=False),
     b"\x81\xff" + (1 << 40).to_bytes(8) + b"\0\0\0\0"],
)  # fmt: skip
def test_frames_that_are_none_end_that_page_only(data: bytes) -> None:
    async def main() -> None:
        async with doors() as opened:
            bad, good = await page(opened), await page(opened)
            await bad.line.say(data)
            assert (await bad.hear())[0] == websocket.CLOSE
            await good.order(op="publish", topic="t", text="x", ref=1)
            assert (await good.told())["op"] == "published"
            for one in (bad, good):
                one.line.close()

    run_async(main)


@pytest.mark.parametrize(
    ("target", "status"),
    [("/publish/a..b", 400), ("/publish/t?guarantee=best", 400), ("/publish/t?ack=never", 400), ("/nothing", 404),
     ("/publish/" + "x" * 300, 400)],
)  # fmt: skip
def test_wrong_requests_are_told_why(target: str, status: int) -> None:
    async def main() -> None:
        async with doors() as opened:
            found, body = await ask(opened.web.address, "POST", target, b"x")
            assert found == status
            assert len(body.splitlines()) == 1

    run_async(main)


def test_a_reader_that_does_not_read_is_cut_off_and_holds_nobody_up() -> None:
    async def main() -> None:
        limits = {"slow_consumer_ms": 200, "slow_consumer_bytes": 1 << 16}
        async with doors(limits=limits) as opened, ordercast.connect(opened.broker) as client:
            line = await dial(opened.web.address)
            await line.say(f"GET /subscribe?topic=t HTTP/1.1\r\nHost: {opened.web.address}\r\n\r\n".encode())
            await line.until(b": subscribed\n\n")
            for _ in range(200):
                await client.publish("t", bytes(100_000), ack="edge")
            await client.flush("delivered", timeout=30)
            line.close()
            await until(lambda: opened.process.host.counters["web_connections_refused"] == 1)

    run_async(main)


def test_the_javascript_client_is_served() -> None:
    async def main() -> None:
        async with doors() as opened:
            status, body = await ask(opened.web.address, "GET", "/ordercast.js")
            assert status == 200
            assert b"export class Ordercast" in body
            assert len(body.splitlines()) <= 60  # A page that copies it should be able to read it.

    run_async(main)


async def snapshots(line: Line, count: int) -> list[dict[str, Any]]:
    await line.until(b"\r\n\r\n")
    return [json.loads((await line.until(b"\n\n")).removeprefix(b"data: ")) for _ in range(count)]


def test_the_page_is_told_what_passes_while_it_watches_and_the_broker_takes_no_notes_else() -> None:
    async def main() -> None:
        async with doors() as opened, ordercast.connect(opened.broker, "ann") as client:
            host = opened.process.host
            assert host.watch is None
            line = await dial(opened.web.address)
            await line.say(f"GET /live HTTP/1.1\r\nHost: {opened.web.address}\r\n\r\n".encode())
            await until(lambda: host.watch is not None)
            await client.subscribe("t")
            message = await client.publish("t", b"x", guarantee="total")
            first, second = await snapshots(line, 2)
            told = first["hops"] + second["hops"]
            assert [hop[2:7] for hop in told] == [
                [True, "ann", "client", message, "total"], [False, "ann", "client", message, "total"]
            ]  # fmt: skip
            assert second["overlay"]["role"] == "root"
            assert {wire["peer"] for wire in second["connections"]} == {"ann"}
            assert sum(second["deliveries"]["total"]) == 1
            line.close()
            await until(lambda: host.watch is None)
            assert json.loads((await ask(opened.web.address, "GET", "/explain?msg=nobody"))[1])["state"] == "unknown"

    run_async(main)


def test_a_flood_leaves_as_many_notes_as_one_look_of_the_page_can_show() -> None:
    """However many messages pass between two looks: the page costs the broker the same."""

    async def main() -> None:
        async with doors() as opened, ordercast.connect(opened.broker, "ann") as client:
            host = opened.process.host
            host.watch = watch = TrafficWatch()
            await client.subscribe("t")
            for _ in range(HOPS_AT_ONCE):
                await client.publish("t", b"x")
            await until(lambda: watch.counts["ann", True] == watch.counts["ann", False] == HOPS_AT_ONCE)
            assert [hop.number for hop in watch.since(0)] == list(range(1, HOPS_AT_ONCE + 1))
            assert watch.since(HOPS_AT_ONCE) == []
            message = await client.publish("t", b"x")
            await until(lambda: [hop.message for hop in watch.since(HOPS_AT_ONCE)] == [message, message])

    run_async(main)


def test_who_watches_needs_the_admin_token_where_there_is_one() -> None:
    async def main() -> None:
        async with doors(admin_token="secret") as opened:
            where = opened.web.address
            assert (await ask(where, "GET", "/explain?msg=x"))[0] == 401
            assert (await ask(where, "GET", "/explain?msg=x", Authorization="Bearer secret"))[0] == 200

    run_async(main)


def test_the_page_fetches_nothing_from_elsewhere() -> None:
    async def main() -> None:
        async with doors() as opened:
            status, body = await ask(opened.web.address, "GET", "/")
            assert status == 200
            assert not re.findall(rb"(?:src|href)\s*=|@import|url\(", body)

    run_async(main)
