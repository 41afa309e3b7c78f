"""What a message carries besides its payload: headers, the time of publication, an end of life."""

from __future__ import annotations

import datetime as dt
import json
import time
from pathlib import Path

import msgspec
import pytest

import ordercast
from ordercast.api import messages
from ordercast.pubsub.extras import MOST_HEADER_BYTES, Extras, objection
from ordercast.pubsub.keeping import KeepTable
from ordercast.pubsub.publications import Publication
from ordercast.testing import cluster
from tests.support.loop import run_async

HEADERS = {b"trace-id": b"\x00\xff", b"kind": b"order"}


def test_headers_and_time_arrive_live_from_the_archive_and_after_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        before = dt.datetime.now(dt.UTC)
        keep = (KeepTable(filter="kept.>"),)
        async with cluster(1, data=tmp_path / "b", keep=keep, fsync="never") as brokers:
            async with brokers.connect("ann", trace=tmp_path / "run") as ann, brokers.connect("bob") as bob:
                inbox = await bob.subscribe("kept.t")
                await ann.publish("kept.t", b"x", headers=HEADERS, expires_after=3600)
                await ann.publish("kept.t", b"plain")
                live = [await inbox.get(10), await inbox.get(10)]
            await brokers.restart("b0")
            await brokers.settle()
            async with brokers.connect("cho") as cho:
                late = await cho.subscribe("kept.t", start="earliest")
                replayed = [await late.get(10), await late.get(10)]

        assert live == replayed
        assert live[0].headers == HEADERS
        assert live[1].headers == {}
        assert before <= live[0].published_at <= live[1].published_at <= dt.datetime.now(dt.UTC)
        assert live[0].expires_at == live[0].published_at + dt.timedelta(hours=1)
        rows = [json.loads(line) for line in next((tmp_path / "run").glob("journals/ann.*")).read_text().splitlines()]
        told = [row["info"] for row in rows if row["kind"] == "publish"]
        assert told[0]["header.kind"] == "order"
        assert int(told[0]["expires_ns"]) - int(told[0]["published_ns"]) == 3600 * 10**9
        assert list(told[1]) == ["published_ns"]

    run_async(main)


def test_an_expired_message_is_handed_to_nobody_and_holds_up_nobody() -> None:
    async def main() -> None:
        async with cluster(1) as brokers, brokers.connect("ann") as ann, brokers.connect("bob") as bob:
            inbox = await bob.subscribe("t")
            ann.publish_soon("t", b"1", expires_after=1e-9)
            ann.publish_soon("t", b"2", expires_after=60)
            await ann.publish("t", b"3", expires_after=1e-9)
            await ann.publish("t", b"4")

            assert [(await inbox.get(10)).payload for _ in range(2)] == [b"2", b"4"]
            ann.publish_soon("t", b"5", expires_after=1e-9)
            reading = inbox.get(0.3)  # Asks for the next, so that everything before it counts as taken.
            with pytest.raises(TimeoutError):
                await reading
            await ann.flush("delivered", timeout=10)

    run_async(main)


def test_what_expires_while_it_waits_in_an_inbox_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [Publication("a", i, "t", b"x", extras=Extras(expires_ns=i * 100)) for i in (1, 2, 3)]  # type: ignore[arg-type]
    monkeypatch.setattr("ordercast.api.messages.time.time_ns", lambda: 200)
    assert [entry.number for entry in messages.HandedView(print).of(entries)] == [3]


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({b"a": b"x" * MOST_HEADER_BYTES}, f"4097 bytes; at most 64 names and {MOST_HEADER_BYTES} bytes"),
        ({b"%d" % i: b"" for i in range(65)}, "65 names"),
        ({"a": b"x"}, "bytes are needed for names and values, not 'a'"),
    ],
)
def test_headers_that_are_too_long_are_refused_with_the_limit(headers: dict[bytes, bytes], words: str) -> None:
    async def main() -> None:
        async with cluster(1) as brokers, brokers.connect("ann") as ann:
            with pytest.raises(ordercast.UsageError, match=words):
                await ann.publish("t", b"x", headers=headers)
            with pytest.raises(ordercast.UsageError, match="expires_after"):
                ann.publish_soon("t", b"x", expires_after=-1)
            await ann.publish("t", b"x")

    run_async(main)


def test_a_broker_refuses_headers_that_a_liar_sends_and_goes_on() -> None:
    async def main() -> None:
        async with cluster(1) as brokers, brokers.connect("eve") as eve, brokers.connect("bob") as bob:
            inbox = await bob.subscribe("t")
            huge = Extras(headers=((b"h", b"x" * (MOST_HEADER_BYTES + 1)),))
            with pytest.raises(ordercast.PublishRefused, match=f"{MOST_HEADER_BYTES} bytes are allowed"):
                await eve.publish("t", b"bad", extras=huge)
            await eve.publish("t", b"good", headers=HEADERS)

            assert (await inbox.get(10)).payload == b"good"

    run_async(main)


@pytest.mark.parametrize(
    "extras",
    [
        Extras(headers=((b"a", b"1"), (b"a", b"2"))),
        Extras(expires_ns=-1),
        Extras(expires_ns=1 << 63),
        Extras(dedup="x" * 256),
        Extras(reply_to="x" * 256),
        Extras(answers="x" * 641),
        Extras(parts=-1),
    ],
)
def test_brokers_object_to_extras_that_make_no_sense(extras: Extras) -> None:
    assert objection(extras)
    assert not objection(Extras(headers=((b"a", b"1"), (b"b", b"2")), expires_ns=1, dedup="x", parts=3))


def test_any_time_a_stranger_claims_can_be_told() -> None:
    for ns in (-(1 << 62), 0, time.time_ns(), (1 << 63) - 1):
        message = Publication("a", 1, "t", b"", published_ns=ns, extras=Extras(expires_ns=max(ns, 0)))  # type: ignore[arg-type]
        assert message.published_at.tzinfo is dt.UTC


def test_a_publication_written_before_there_were_extras_is_read() -> None:
    old = msgspec.msgpack.encode(["ann~1", 1, "t", b"x", 2, ["k"], 7])
    read = msgspec.msgpack.decode(old, type=Publication)
    assert (read.id, read.payload, read.keys, read.published_ns, read.extras) == ("ann~1/t#1", b"x", ("k",), 7, None)
