"""Clients of NATS publish, subscribe, ask and answer through the tree; a fault of one ends its connection alone."""

from __future__ import annotations

import asyncio
import json
from itertools import chain
from pathlib import Path

import nats
import nats.errors
import pytest
from nats.aio.msg import Msg

import ordercast
from ordercast.doors import guests
from ordercast.doors.nats import wire
from ordercast.net.wire.credentials import Tls
from tests.support.certificates import make_certificate
from tests.support.doors import Line, dial, doors, nats_line
from tests.support.loop import run_async, until

USERS = {
    "peer_token": "p",
    "user": [{"name": "ann", "token": "a"}, {"name": "bob", "token": "b", "publish": [], "subscribe": ["open.>"]}],
}


async def pong(line: Line) -> bytes:
    """Everything until the next PONG."""
    return await line.until(b"PONG\r\n")


def test_what_one_client_of_nats_publishes_others_of_any_kind_receive() -> None:
    async def main() -> None:
        async with doors() as opened, ordercast.connect(opened.broker) as native:
            inbox = await native.subscribe("orders.*")
            reader, writer = await nats_line(opened), await nats_line(opened)
            await pong(reader)
            await reader.say(b"SUB orders.> 7\r\nPING\r\n")
            await pong(reader)
            await writer.say(b"PUB orders.PT 8\r\none book\r\n")
            assert await reader.until(b"book\r\n") == b"MSG orders.PT 7 8\r\none book\r\n"
            assert (await inbox.get(20)).payload == b"one book"
            reader.close()
            writer.close()

    run_async(main)


def test_headers_choose_guarantee_and_keys_and_deliveries_say_them() -> None:
    async def main() -> None:
        async with doors() as opened, ordercast.connect(opened.broker) as native:
            inbox = await native.subscribe("t")
            line = await nats_line(opened, headers=True)
            await line.say(b"SUB t 1\r\n")
            block = (
                b"NATS/1.0\r\nOrdercast-Guarantee: total\r\nOrdercast-Key: a\r\nordercast-key: b\r\nColour: red\r\n\r\n"
            )
            await line.say(b"HPUB t %d %d\r\n%bhello\r\n" % (len(block), len(block) + 5, block))
            message = await inbox.get(20)
            assert (message.guarantee.label, message.headers) == ("total", {b"Colour": b"red"})
            assert message.keys == ("b",)  # Of two spellings of one name the last counts, as with every header.
            told = await line.until(b"hello\r\n")
            assert f"Ordercast-Id: {message.id}\r\nOrdercast-Guarantee: total\r\nOrdercast-Key: b\r\n".encode() in told
            assert b"Colour: red\r\n\r\nhello" in told
            line.close()

    run_async(main)


def test_the_cluster_file_says_what_plain_messages_of_a_topic_are() -> None:
    async def main() -> None:
        default = {"default": [{"filter": "ledger.>", "guarantee": "total", "keys": ["book"]}]}
        async with doors(nats=default) as opened, ordercast.connect(opened.broker) as native:
            inbox = await native.subscribe("*.x")
            line = await nats_line(opened)
            await line.say(b"PUB ledger.x 1\r\na\r\nPUB other.x 1\r\nb\r\n")
            told = {message.topic: message for message in (await inbox.get(20), await inbox.get(20))}
            assert (told["ledger.x"].guarantee.label, told["ledger.x"].keys) == ("total", ("book",))
            assert told["other.x"].guarantee.label == "causal"
            line.close()

    run_async(main)


def test_a_burst_larger_than_the_outbox_arrives_whole_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guests, "OUTBOX", 5)

    async def main() -> None:
        async with doors() as opened:
            line = await nats_line(opened)
            await pong(line)
            await line.say(b"SUB t.> 7\r\nPING\r\n")
            await pong(line)
            numbers = [b"%d" % number for number in range(2000)]  # Payloads of several lengths.
            subjects = [b"t.b" if number == b"1000" else b"t.a" for number in numbers]
            burst = zip(subjects, numbers, strict=True)
            await line.say(b"".join(b"PUB %b %d\r\n%b\r\n" % (to, len(it), it) for to, it in burst) + b"PING\r\n")
            words = (await pong(line)).split()  # Each subscriber may read after the publisher was told: PONG first.
            while b"1999" not in words or b"1000" not in words:
                words += (await line.until(b"\r\n")).split()
            to_a = [number for number in numbers if number != b"1000"]
            came = [words[at + 4] for at, word in enumerate(words) if word == b"MSG" and words[at + 1] == b"t.a"]
            assert came == to_a
            line.close()

    run_async(main)


def test_pubs_in_a_row_are_taken_together_and_a_broken_one_is_told() -> None:
    reader = wire.NatsReader(100)
    assert reader.feed(b"PUB a 2\r\nxx\r\npub a 2\r\nyy\r\nPUB a 3\r\nzzz\r\nPUB b 0\r\n\r\nPUB b 2\r\nq") == [
        wire.Pubs("a", [b"xx", b"yy", b"zzz"]),
        wire.Pubs("b", [b""]),
    ]
    assert reader.feed(b"q\r\nPUB b r 1\r\n!\r\nPING\r\n") == [
        wire.Pubs("b", [b"qq"]),
        wire.Pub("b", "r", None, b"!"),
        wire.NatsPing(),
    ]
    for data in (b"PUB a 2\r\nxx\r\nPUB a 2\r\nxxx\r\n", b"PUB a 101\r\n" + bytes(101) + b"\r\n"):
        with pytest.raises(wire.NatsError):
            reader.feed(data)


def test_a_client_gets_what_it_publishes_right_after_it_subscribed_unless_it_wants_no_echo() -> None:
    async def main() -> None:
        async with doors() as opened:
            for echo in (True, False):
                line = await nats_line(opened, echo=echo)
                await pong(line)
                topic = b"echo" if echo else b"silence"
                await line.say(b"SUB %b 1\r\nPUB %b 2\r\nhi\r\nPING\r\n" % (topic, topic))
                assert (b"MSG %b 1 2" % topic in await pong(line)) == echo
                line.close()

    run_async(main)


def test_an_unsubscription_ends_after_so_many_messages() -> None:
    async def main() -> None:
        async with doors() as opened:
            line = await nats_line(opened)
            await line.say(b"SUB t 1\r\nUNSUB 1 2\r\n" + b"PUB t 1\r\nx\r\n" * 5 + b"PING\r\n")
            await pong(line)
            got = await pong(line)
            await line.say(b"PING\r\n")
            assert (got + await pong(line)).count(b"MSG t 1 1") == 2
            line.close()

    run_async(main)


def test_a_request_is_answered_across_kinds_of_clients() -> None:
    async def main() -> None:
        async with doors() as opened, ordercast.connect(opened.broker) as native:
            theirs = await nats.connect(f"nats://{opened.nats.address}")

            async def answer(message: Msg) -> None:
                await message.respond(b"nats says " + message.data)

            await theirs.subscribe("ask.nats", cb=answer)
            await theirs.flush()
            asker = await nats.connect(f"nats://{opened.nats.address}")
            assert (await asker.request("ask.nats", b"1", timeout=20)).data == b"nats says 1"
            assert (await native.request("ask.nats", b"2", timeout=20)).payload == b"nats says 2"
            questions = await native.subscribe("ask.native")

            async def serve() -> None:
                async for message in questions:
                    await message.reply(b"native says " + message.payload)

            serving = asyncio.create_task(serve())
            assert (await asker.request("ask.native", b"3", timeout=20)).data == b"native says 3"
            for _ in range(2):  # The asker itself takes part in the subject, the second time.
                with pytest.raises(nats.errors.NoRespondersError):
                    await asker.request("ask.nobody", b"4", timeout=20)
                await asker.flush()
            serving.cancel()
            await theirs.close()
            await asker.close()

    run_async(main)


def test_requests_do_not_make_topics() -> None:
    async def main() -> None:
        async with doors() as opened:
            one, other = [await nats.connect(f"nats://{opened.nats.address}") for _ in range(2)]

            async def answer(message: Msg) -> None:
                await message.respond(message.data)

            await one.subscribe("echo", cb=answer)
            await one.flush()
            for number in range(20):
                assert (await other.request("echo", b"%d" % number, timeout=20)).data == b"%d" % number
            assert opened.process.broker.topics.totals()["topics"] <= 2
            await one.close()
            await other.close()

    run_async(main)


def test_users_have_their_rights_and_strangers_none() -> None:
    async def main() -> None:
        async with doors(**USERS) as opened:
            for said in ({}, {"user": "ann", "pass": "b"}, {"user": "nobody", "pass": ""}, {"auth_token": "a"}):
                line = await nats_line(opened, **said)
                assert b"-ERR 'Authorization Violation'" in await line.rest()
                line.close()
            bob = await nats_line(opened, user="bob", **{"pass": "b"})
            await pong(bob)
            await bob.say(b"SUB secret 1\r\nSUB open.x 2\r\nPUB open.x 1\r\nx\r\nPING\r\n")
            told = await bob.until(b"on open.x")
            assert b"-ERR 'Permissions Violation for Subscription to \"secret\"'" in told
            assert b"-ERR 'Permissions Violation for Publish" in told
            bob.close()

    run_async(main)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"NONSENSE\r\n", b"Unknown Protocol Operation"),
        (b"PUB t 99999999\r\n", b"Maximum Payload Violation"),
        (b"PUB t 2\r\nlong\r\n", b"Invalid Protocol"),
        (b"SUB " + b"x" * 5000, b"Maximum Control Line Exceeded"),
        (b"CONNECT {}\r\n", b"Unknown Protocol Operation"),
        (b"HPUB t 5 3\r\nxxx\r\n", b"Invalid Protocol"),
        (b"\x00\xff\xfe\r\n", b"Unknown Protocol Operation"),
        (b"PUB \xff\xff 0\r\n\r\n", b"Invalid Subject"),
    ],
)
def test_what_is_no_protocol_ends_that_connection_only(data: bytes, says: bytes) -> None:
    async def main() -> None:
        async with doors() as opened:
            bad, good = await nats_line(opened), await nats_line(opened)
            await pong(bad)
            await pong(good)
            await bad.say(data)
            assert b"-ERR '" + says in await bad.rest()
            await good.say(b"SUB t 1\r\nPUB t 1\r\nx\r\n")
            await good.until(b"MSG t 1 1\r\nx\r\n")
            bad.close()
            good.close()

    run_async(main)


@pytest.mark.parametrize("line", [b"SUB a..b 1\r\n", b"PUB a.* 1\r\nx\r\n", b"PUB a#b 1\r\nx\r\n", b"SUB a.>.b 1\r\n"])
def test_a_subject_that_is_none_is_told_and_the_connection_goes_on(line: bytes) -> None:
    async def main() -> None:
        async with doors() as opened:
            client = await nats_line(opened)
            await pong(client)
            await client.say(line + b"PING\r\n")
            assert (await pong(client)).startswith(b"-ERR 'Invalid Subject")
            client.close()

    run_async(main)


def test_who_does_not_introduce_itself_is_let_go() -> None:
    async def main() -> None:
        async with doors(limits={"handshake_ms": 100}) as opened:
            line = await dial(opened.nats.address)
            assert (await line.rest()).endswith(b"-ERR 'Authentication Timeout'\r\n")
            line.close()

    run_async(main)


def test_a_client_that_does_not_read_is_cut_off_and_holds_nobody_up() -> None:
    async def main() -> None:
        async with doors(limits={"slow_consumer_ms": 200}) as opened, ordercast.connect(opened.broker) as native:
            line = await nats_line(opened)
            await pong(line)
            await line.say(b"SUB t 1\r\nPING\r\n")
            await pong(line)
            for _ in range(200):
                await native.publish("t", bytes(100_000), ack="edge")
            await native.flush("delivered", timeout=30)
            line.close()
            await until(lambda: opened.process.host.counters["nats_connections_refused"] == 1)

    run_async(main)


def test_verbose_clients_are_told_that_each_operation_was_taken() -> None:
    async def main() -> None:
        async with doors() as opened:
            line = await nats_line(opened, verbose=True)
            assert await pong(line) == b"+OK\r\nPONG\r\n"
            await line.say(b"PUB t 1\r\nx\r\nSUB other 1\r\nPING\r\n")
            assert await pong(line) == b"+OK\r\n+OK\r\nPONG\r\n"
            line.close()

    run_async(main)


def test_info_says_what_a_client_must_know() -> None:
    async def main() -> None:
        async with doors(**USERS) as opened:
            line = await dial(opened.nats.address)
            told = json.loads((await line.until(b"\r\n")).removeprefix(b"INFO "))
            assert {"server_id", "version", "go", "host", "port", "proto"} <= told.keys()  # Some clients insist on all.
            assert told["headers"] is True
            assert told["auth_required"] is True
            assert told["max_payload"] == 1 << 20
            line.close()

    run_async(main)


def test_with_certificates_the_door_speaks_tls(tmp_path: Path) -> None:
    make_certificate(tmp_path, "b0")
    files = {"cert": str(tmp_path / "b0.pem"), "key": str(tmp_path / "b0.key"), "ca": str(tmp_path / "b0.pem")}

    async def main() -> None:
        async with doors(tls=files) as opened:
            context = Tls(ca=files["ca"]).client_context()
            client = await nats.connect(f"tls://{opened.nats.address}", tls=context)
            got = await client.subscribe("t")
            await client.publish("t", b"secret", headers={"Ordercast-Guarantee": "total"})
            message = await got.next_msg(timeout=20)
            assert (message.data, message.headers["Ordercast-Guarantee"]) == (b"secret", "total")
            await client.close()
            plain = await dial(opened.nats.address)
            await plain.until(b"\r\n")
            await plain.say(b"CONNECT {}\r\nPING\r\n")
            assert b"PONG" not in await plain.rest()
            plain.close()

    run_async(main)


def test_the_broker_says_goodbye_when_it_stops() -> None:
    async def main() -> None:
        line = None
        async with doors() as opened:
            line = await nats_line(opened)
            await pong(line)
        assert await line.rest() == b""
        line.close()

    run_async(main)


def test_each_message_goes_to_one_member_of_a_queue_group_at_whatever_door() -> None:
    async def main() -> None:
        async with doors() as opened, ordercast.connect(opened.broker) as native:
            group = [await nats_line(opened) for _ in range(3)]
            for line in group:
                await line.say(b"SUB work.> crew 1\r\nPING\r\n")
                await pong(line)
                await pong(line)
            for number in range(200):
                native.publish_soon("work.x", b"%03d" % number)
            await native.flush("delivered", timeout=20)
            taken = []
            for line in group:
                await line.say(b"UNSUB 1\r\nPING\r\n")
                told = (await pong(line)).split(b"\r\n")
                taken.append([told[at + 1] for at, said in enumerate(told) if said.startswith(b"MSG")])
                line.close()
            assert sorted(chain.from_iterable(taken)) == [b"%03d" % number for number in range(200)]
            assert all(len(one) > 20 for one in taken)
            assert all(one == sorted(one) for one in taken)

    run_async(main)
